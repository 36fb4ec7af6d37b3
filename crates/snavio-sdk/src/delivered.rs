//! The message within a delivery: a command, or an event in its native form.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use snavio_model::name::{CommandName, EventVersion, ServiceName};

/// The message within a delivery.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Box<RawValue>")]
pub enum Delivered {
    /// Something to do.
    Command(DeliveredCommand),
    /// Something that has happened.
    Event(DeliveredEvent),
}

/// A command as it is delivered.
#[derive(Debug, Clone, Deserialize)]
pub struct DeliveredCommand {
    /// Id, times, correlation.
    pub metadata: Value,
    /// Source, target, name, payload as it came.
    pub command: Box<RawValue>,
}

/// An event as it is delivered.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeliveredEvent {
    /// Its producer's id for it.
    pub event_id: String,
    /// Its type.
    pub event_type: CommandName,
    /// The journey it belongs to.
    pub correlation_id: String,
    /// When it happened, as its producer wrote it.
    pub timestamp: String,
    /// The version of its type.
    pub version: EventVersion,
    /// Who published it.
    pub source: ServiceName,
    /// Its place in a W3C trace.
    pub traceparent: String,
    /// When the gateway took it.
    pub received_at: String,
    /// What it says, as it came.
    pub data: Box<RawValue>,
    /// What else its producer said, as it came.
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
    /// Its producer's id for it.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Command(it) => it.metadata["id"].as_str(),
            Self::Event(it) => Some(&it.event_id),
        }
    }

    /// The command that it is, if it is one.
    pub fn as_command(&self) -> Option<&DeliveredCommand> {
        match self {
            Self::Command(it) => Some(it),
            Self::Event(_) => None,
        }
    }

    /// The event that it is, if it is one.
    pub fn as_event(&self) -> Option<&DeliveredEvent> {
        match self {
            Self::Event(it) => Some(it),
            Self::Command(_) => None,
        }
    }

    /// Its payload, an event's `data`, read into a type of the consumer's.
    pub fn payload<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        match self {
            Self::Command(it) => it.payload(),
            Self::Event(it) => serde_json::from_str(it.data.get()),
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
    fn a_delivery_carries_a_command_or_an_event() {
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
