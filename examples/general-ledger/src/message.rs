//! Messages of the gateway: commands and native events. The ledger reads the producer, the id and the content
//! from both.

use serde::Deserialize;
use serde_json::value::RawValue;
use snavio_sdk::Delivered;

#[derive(Debug)]
pub(crate) struct Message<'a> {
    /// The message id, unique within the producer's tenant.
    pub(crate) id: String,
    /// The producer's tenant; empty if the message does not name its producer.
    pub(crate) tenant: String,
    /// The content, byte for byte as the producer sent it.
    pub(crate) payload: &'a str,
}

impl<'a> Message<'a> {
    /// Parses a command or an event; returns `None` for anything else.
    pub(crate) fn read(body: &'a [u8]) -> Option<Self> {
        let wire: Wire<'a> = serde_json::from_slice(body).ok()?;
        match wire.command {
            Some(command) => Some(Self::new(wire.metadata?.id?, command.source, command.payload)),
            None => Some(Self::new(wire.event_id?, wire.source, wire.data?)),
        }
    }

    /// Reads the message of a delivery.
    pub(crate) fn of(delivered: &'a Delivered) -> Option<Self> {
        match delivered {
            Delivered::Command(delivered) => {
                let command: Command<'a> = serde_json::from_str(delivered.command.get()).ok()?;
                let id = delivered.metadata["id"].as_str()?.to_owned();
                Some(Self::new(id, command.source, command.payload))
            }
            Delivered::Event(event) => {
                Some(Self::new(event.event_id.clone(), Some(event.source.to_string()), &event.data))
            }
        }
    }

    fn new(id: String, source: Option<String>, payload: &'a RawValue) -> Self {
        let source = source.unwrap_or_default();
        let tenant = source.split_once('/').map_or("", |(tenant, _)| tenant).to_owned();
        Self { id, tenant, payload: payload.get() }
    }
}

/// The members of commands and events.
#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(rename = "eventId")]
    event_id: Option<String>,
    source: Option<String>,
    #[serde(borrow, alias = "payload")]
    data: Option<&'a RawValue>,
    metadata: Option<Metadata>,
    #[serde(borrow)]
    command: Option<Command<'a>>,
}

#[derive(Deserialize)]
struct Metadata {
    id: Option<String>,
}

#[derive(Deserialize)]
struct Command<'a> {
    source: Option<String>,
    #[serde(borrow)]
    payload: &'a RawValue,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_events_are_read_alike() {
        let read = |body: &str| {
            let message = Message::read(body.as_bytes())?;
            Some(format!("{} {} {}", message.tenant, message.id, message.payload))
        };
        for (body, expected) in [
            (
                r#"{"metadata":{"id":"id-1","correlation_id":"c"},"command":{"source":"acme/shop","target":"acme/gl","name":"post","payload":{"a": 1}}}"#,
                Some(r#"acme id-1 {"a": 1}"#),
            ),
            (
                r#"{"eventId":"id-1","eventType":"sold","source":"acme/shop","data":{"a": 1},"metadata":{"userId":"u"}}"#,
                Some(r#"acme id-1 {"a": 1}"#),
            ),
            (r#"{"eventId":"id-1","payload":[]}"#, Some(" id-1 []")),
            (r#"{"eventId":"id-1"}"#, None),
            (r#"{"command":{"payload":{}}}"#, None),
            ("[]", None),
            ("", None),
        ] {
            assert_eq!(read(body).as_deref(), expected, "{body}");
        }
    }
}
