//! Writes a native event, for clients. If the event is signed, its request carries the signature (MSG-4).

use super::NativeEvent;
use crate::id::MessageId;
use crate::json::write_string;
use crate::message::trace::CorrelationId;
use crate::name::{CommandName, EventVersion};
use crate::refusal::Refusal;

/// An event that a client is about to send.
#[derive(Debug, Clone, Copy)]
pub struct NewEvent<'a> {
    /// The same on every retry.
    pub id: &'a MessageId,
    /// One of the client's own types.
    pub event_type: &'a CommandName,
    /// The time of the event in RFC 3339. Without it the gateway sets the time of receipt.
    pub timestamp: Option<&'a str>,
    /// The version of the event type. Without it the type's default version counts.
    pub version: Option<&'a EventVersion>,
    /// JSON, sent byte for byte.
    pub data: &'a [u8],
    /// A JSON object, sent byte for byte.
    pub metadata: Option<&'a [u8]>,
    pub correlation_id: Option<&'a CorrelationId>,
}

impl NewEvent<'_> {
    /// The whole event as JSON. It makes the checks of the gateway first.
    pub fn write(&self) -> Result<Vec<u8>, Refusal> {
        let members = [
            ("eventId", Some(self.id.as_str())),
            ("eventType", Some(self.event_type.as_str())),
            ("correlationId", self.correlation_id.map(CorrelationId::as_str)),
            ("timestamp", self.timestamp),
            ("version", self.version.map(EventVersion::as_str)),
        ];
        let mut out = Vec::with_capacity(256 + self.data.len() + self.metadata.map_or(0, <[u8]>::len));
        out.push(b'{');
        for (name, value) in members.iter().filter_map(|(name, value)| Some((name, (*value)?))) {
            write_string(&mut out, name);
            out.push(b':');
            write_string(&mut out, value);
            out.push(b',');
        }
        if let Some(metadata) = self.metadata {
            out.extend_from_slice(br#""metadata":"#);
            out.extend_from_slice(metadata);
            out.push(b',');
        }
        out.extend_from_slice(br#""data":"#);
        out.extend_from_slice(self.data);
        out.push(b'}');
        match NativeEvent::parse(&out) {
            Ok(_) => Ok(out),
            Err(refused) => Err(refused.refusal),
        }
    }
}
