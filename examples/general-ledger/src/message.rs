//! What the gateway posts: a command message, or a native event. Both are read for who sent what under which id.

use serde::Deserialize;
use serde_json::value::RawValue;
use snavio_sdk::Delivered;

/// A message.
#[derive(Debug)]
pub(crate) struct Message<'a> {
    /// Its id, unique for its sender's tenant.
    pub(crate) id: String,
    /// The sender's tenant; empty when the message does not say who sent it.
    pub(crate) tenant: String,
    /// What it says, as it came.
    pub(crate) payload: &'a str,
}

impl<'a> Message<'a> {
    /// Reads either form; none if it is neither.
    pub(crate) fn read(body: &'a [u8]) -> Option<Self> {
        let wire: Wire<'a> = serde_json::from_slice(body).ok()?;
        match wire.command {
            Some(command) => Some(Self::new(wire.metadata?.id?, command.source, command.payload)),
            None => Some(Self::new(wire.event_id?, wire.source, wire.data?)),
        }
    }

    /// The same of a delivery.
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

/// The members of both forms.
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
        let told = |body: &str| {
            let message = Message::read(body.as_bytes())?;
            Some(format!("{} {} {}", message.tenant, message.id, message.payload))
        };
        for (body, says) in [
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
            assert_eq!(told(body).as_deref(), says, "{body}");
        }
    }
}
