//! A message as consumers and operators see it: with `command.source` filled in, and the payload's bytes as
//! they came (MSG-10, DLV-3).

use serde::Serialize;
use serde_json::value::RawValue;
use snavio_model::command::COMMAND_TYPE;
use snavio_model::message::Message;
use snavio_model::refusal::{Reason, Refusal};
use utoipa::ToSchema;

/// A whole message.
#[derive(Serialize, ToSchema)]
#[schema(as = Message)]
pub(super) struct MessageDocument<'a> {
    metadata: Metadata<'a>,
    command: CommandDocument<'a>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct Metadata<'a> {
    id: &'a str,
    /// When it was signed.
    timestamp: &'a str,
    r#type: &'static str,
    /// The key it was signed with.
    version_id: &'a str,
    correlation_id: &'a str,
    traceparent: &'a str,
    received_at: String,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Command)]
pub(super) struct CommandDocument<'a> {
    /// Who sent it.
    source: &'a str,
    target: &'a str,
    name: &'a str,
    /// Any JSON value, as it came.
    #[schema(value_type = serde_json::Value)]
    payload: &'a RawValue,
}

impl<'a> TryFrom<&'a Message> for MessageDocument<'a> {
    type Error = Refusal;

    fn try_from(message: &'a Message) -> Result<Self, Refusal> {
        let damaged = || Refusal::new(Reason::Unavailable, "a stored payload cannot be read");
        let payload = serde_json::from_slice(&message.payload).map_err(|_| damaged())?;
        Ok(Self {
            metadata: Metadata {
                id: message.id.as_str(),
                timestamp: &message.sent_at,
                r#type: COMMAND_TYPE,
                version_id: message.key_version.as_str(),
                correlation_id: message.correlation.as_str(),
                traceparent: message.traceparent.as_str(),
                received_at: message.received_at.to_string(),
            },
            command: CommandDocument {
                source: message.source.as_str(),
                target: message.target.as_str(),
                name: message.name.as_str(),
                payload,
            },
        })
    }
}
