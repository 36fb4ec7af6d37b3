//! The message in a delivery: a command, or an event in its native form.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use snavio_model::name::{CommandName, EventVersion, ServiceName};

/// The message in a delivery.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Box<RawValue>")]
pub enum Delivered {
    Command(DeliveredCommand),
    Event(DeliveredEvent),
}

/// A delivered command.
#[derive(Debug, Clone, Deserialize)]
pub struct DeliveredCommand {
    /// The id, times and correlation id.
    pub metadata: Value,
    /// The source, target, name and payload, byte for byte as the producer sent them.
    pub command: Box<RawValue>,
}

/// A delivered event.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeliveredEvent {
    /// The id that the producer gave the message.
    pub event_id: String,
    pub event_type: CommandName,
    pub correlation_id: String,
    /// The time of the event, as the producer wrote it.
    pub timestamp: String,
    /// The version of the event type.
    pub version: EventVersion,
    /// The producer.
    pub source: ServiceName,
    /// The W3C trace context.
    pub traceparent: String,
    /// The time at which the gateway accepted the event.
    pub received_at: String,
    /// The business content, byte for byte as the producer sent it.
    pub data: Box<RawValue>,
    /// The producer's additional metadata, byte for byte.
    pub metadata: Option<Box<RawValue>>,
}

impl TryFrom<Box<RawValue>> for Delivered {
    type Error = serde_json::Error;

    fn try_from(raw: Box<RawValue>) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Head {
            event_id: Option<IgnoredAny>,
        }
        let head: Head = serde_json::from_str(raw.get())?;
        match head.event_id {
            Some(_) => serde_json::from_str(raw.get()).map(Self::Event),
            None => serde_json::from_str(raw.get()).map(Self::Command),
        }
    }
}

impl Delivered {
    /// The id that the producer gave the message.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Command(command) => command.metadata["id"].as_str(),
            Self::Event(event) => Some(&event.event_id),
        }
    }

    /// Returns the command, unless the message is an event.
    pub fn as_command(&self) -> Option<&DeliveredCommand> {
        match self {
            Self::Command(command) => Some(command),
            Self::Event(_) => None,
        }
    }

    /// Returns the event, unless the message is a command.
    pub fn as_event(&self) -> Option<&DeliveredEvent> {
        match self {
            Self::Event(event) => Some(event),
            Self::Command(_) => None,
        }
    }

    /// Deserializes the payload of a command, or the `data` of an event.
    pub fn payload<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        match self {
            Self::Command(command) => command.payload(),
            Self::Event(event) => serde_json::from_str(event.data.get()),
        }
    }
}

impl DeliveredCommand {
    fn payload<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        #[derive(Deserialize)]
        struct Command<'a> {
            #[serde(borrow)]
            payload: &'a RawValue,
        }
        let command: Command<'a> = serde_json::from_str(self.command.get())?;
        serde_json::from_str(command.payload.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DLV-3, MSG-5
    #[test]
    fn delivery_carries_command_or_event() {
        let command = r#"{"metadata":{"id":"c-1"},"command":{"source":"acme/shop","payload": [1.0] }}"#;
        let event = r#"{"eventId":"e-1","eventType":"order.paid","correlationId":"c","timestamp":"t",
            "version":"1.0","source":"acme/shop","traceparent":"p","receivedAt":"r","data": [1.0] ,
            "metadata":{ "userId":"u" }}"#;
        for (text, id) in [(command, "c-1"), (event, "e-1")] {
            let read: Delivered = serde_json::from_str(text).unwrap();
            assert_eq!(read.id(), Some(id));
            assert_eq!(read.payload::<&RawValue>().unwrap().get(), "[1.0]", "as it came");
        }
        assert!(serde_json::from_str::<Delivered>(r#"{"eventId":"e-1"}"#).is_err());
        assert!(serde_json::from_str::<Delivered>("{}").is_err());
    }
}
