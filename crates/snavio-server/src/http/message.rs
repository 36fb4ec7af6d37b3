//! A message as consumers and operators see it: with its source filled in, and the payload's bytes as they came (MSG-10,
//! DLV-3).

use serde::Serialize;
use serde_json::value::RawValue;
use snavio_model::message::Message;
use snavio_model::message::command::COMMAND_TYPE;
use snavio_model::message::event::EventEnvelope;
use snavio_model::refusal::{Reason, Refusal};
use utoipa::ToSchema;

/// A whole message: a command, or an event in its native form.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = Message)]
pub(super) enum MessageDocument<'a> {
    Command(CommandMessage<'a>),
    Event(EventMessage<'a>),
}

#[derive(Serialize, ToSchema)]
pub(super) struct CommandMessage<'a> {
    metadata: Metadata<'a>,
    command: CommandDocument<'a>,
    /// What it said was destroyed.
    #[serde(skip_serializing_if = "Option::is_none")]
    erased: Option<bool>,
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

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Event)]
pub(super) struct EventMessage<'a> {
    event_id: &'a str,
    event_type: &'a str,
    correlation_id: &'a str,
    /// When it happened, as its producer wrote it.
    timestamp: &'a str,
    /// The version of its type.
    version: &'a str,
    /// Who published it.
    source: &'a str,
    traceparent: &'a str,
    received_at: String,
    /// Any JSON value, as it came.
    #[schema(value_type = serde_json::Value)]
    data: &'a RawValue,
    /// As it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    metadata: Option<&'a RawValue>,
    /// What it said was destroyed.
    #[serde(skip_serializing_if = "Option::is_none")]
    erased: Option<bool>,
}

impl<'a> TryFrom<&'a Message> for MessageDocument<'a> {
    type Error = Refusal;

    fn try_from(message: &'a Message) -> Result<Self, Refusal> {
        let damaged = || Refusal::new(Reason::Unavailable, "a stored payload cannot be read");
        let payload: &[u8] = if message.is_erased() { b"null" } else { &message.payload };
        let payload = serde_json::from_slice(payload).map_err(|_| damaged())?;
        let Some(event) = &message.event else { return Ok(Self::Command(command(message, payload))) };
        let metadata = event.metadata.as_deref().map(serde_json::from_str).transpose();
        Ok(Self::Event(self::event(message, event, payload, metadata.map_err(|_| damaged())?)))
    }
}

fn command<'a>(message: &'a Message, payload: &'a RawValue) -> CommandMessage<'a> {
    CommandMessage {
        metadata: Metadata {
            id: message.id.as_str(),
            timestamp: &message.sent_at,
            r#type: COMMAND_TYPE,
            version_id: message.key_text(),
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
        erased: message.is_erased().then_some(true),
    }
}

fn event<'a>(
    message: &'a Message,
    event: &'a EventEnvelope,
    data: &'a RawValue,
    metadata: Option<&'a RawValue>,
) -> EventMessage<'a> {
    EventMessage {
        event_id: message.id.as_str(),
        event_type: message.name.as_str(),
        correlation_id: message.correlation.as_str(),
        timestamp: &event.timestamp,
        version: event.version.as_str(),
        source: message.source.as_str(),
        traceparent: message.traceparent.as_str(),
        received_at: message.received_at.to_string(),
        data,
        metadata,
        erased: message.is_erased().then_some(true),
    }
}

/// A message as it is written to a processor.
pub(crate) fn written(message: &Message) -> Option<bytes::Bytes> {
    let document = MessageDocument::try_from(message).ok()?;
    serde_json::to_vec(&document).ok().map(Into::into)
}
