//! A CloudEvent, and its conversion to a native event and to a delivery.

use std::borrow::Cow;

use super::attribute::Value;
use super::data::Data;
use super::kept::{Attributes, MetadataParts};
use super::media;
use super::source::Source;
use crate::bounds::BODY_BYTES_MAX;
use crate::id::MessageId;
use crate::message::Message;
use crate::message::event::NativeEvent;
use crate::message::payload::Payload;
use crate::message::trace::{CorrelationId, Traceparent};
use crate::name::{CommandName, EventVersion, ServiceName, TargetText};
use crate::refusal::{Reason, Refusal};

/// A CloudEvent of valid form, read from a request or made from a message for delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudEvent<'a> {
    /// `id`; a UUID is in lower case.
    pub id: MessageId,
    /// `source` as sent.
    pub source: Source,
    /// `type`: the name within the service that publishes it.
    pub event_type: CommandName,
    /// `time` as sent. It is content, and of any age.
    pub time: Option<String>,
    /// The extension `correlationid`.
    pub correlation_id: Option<CorrelationId>,
    /// The extension `traceparent`, if it is valid.
    pub traceparent: Option<Traceparent>,
    /// The extension `eventversion`: the version of the event type.
    pub version: Option<EventVersion>,
    /// The extension `snaviometadata`: the metadata of the native event, a JSON object as text.
    pub metadata: Option<String>,
    /// `subject`, `dataschema`, `datacontenttype` and all other extensions.
    pub attributes: Attributes,
    pub data: Data<'a>,
    /// On a delivery: the authenticated sender, if the source is not exactly its name.
    pub(super) sender: Option<ServiceName>,
    pub(super) native_metadata: Option<String>,
}

impl CloudEvent<'_> {
    /// The native event, sent by `own`. The source must name that service (MSG-5).
    pub fn native(&self, own: &ServiceName) -> Result<NativeEvent<'_>, Refusal> {
        if !self.source.names(own) {
            let detail = format!(
                "source must name the sending service: {own}, or a URI with a path that begins with it, such as https://example.com/{own}"
            );
            return Err(Refusal::new(Reason::SourcePresent, detail));
        }
        // Text and bytes grow when they become JSON.
        if self.data.json().len() > BODY_BYTES_MAX {
            let detail = format!("the data is larger than {BODY_BYTES_MAX} bytes when it is written as JSON");
            return Err(Refusal::new(Reason::TooLarge, detail));
        }
        Ok(NativeEvent {
            id: self.id.clone(),
            event_type: self.event_type.clone(),
            correlation_id: self.correlation_id.clone(),
            timestamp: self.time.as_deref().map(Cow::Borrowed),
            version: self.version.clone(),
            source: TargetText::new(own.as_str()).ok(),
            data: Payload::parse(self.data.json())?,
            metadata: self.native_metadata.as_deref(),
        })
    }
}

impl<'a> CloudEvent<'a> {
    /// The event for a delivery. `None` for a command.
    pub fn of(message: &'a Message) -> Option<Self> {
        let envelope = message.event.as_ref()?;
        let MetadataParts { mut attributes, source, data, metadata } =
            MetadataParts::of(envelope.metadata.as_deref());
        let own = message.source.as_str();
        // A producer can write any metadata. A delivery never names a service that did not send it.
        let source = source.filter(|source| source.names(&message.source)).or_else(|| Source::new(own))?;
        let data = Data::of_payload(&message.payload, data.as_deref());
        let content_type = attributes.get("datacontenttype").and_then(Value::as_text);
        if !content_type.is_none_or(|content_type| fits(content_type, &data)) {
            attributes.remove("datacontenttype");
        }
        Some(Self {
            id: message.id.clone(),
            sender: (source.as_str() != own).then(|| message.source.clone()),
            source,
            event_type: message.name.clone(),
            time: Some(envelope.timestamp.clone()),
            correlation_id: Some(message.correlation.clone()),
            traceparent: Some(message.traceparent.clone()),
            version: Some(envelope.version.clone()),
            metadata,
            attributes,
            data,
            native_metadata: envelope.metadata.clone(),
        })
    }
}

/// Whether data can have this content type: JSON must be declared as JSON, and other data must not be.
fn fits(content_type: &str, data: &Data<'_>) -> bool {
    use super::data::DataKind::{Binary, Json, None, Text};
    media::is_media_type(content_type)
        && match data.kind() {
            None => true,
            Json => media::is_json_in_utf8(content_type),
            Text | Binary => !media::is_json(content_type),
        }
}
