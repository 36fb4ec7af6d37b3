//! Writes a CloudEvent: the attributes in one order for both modes, and the whole event in structured mode.

use super::attribute::Value;
use super::data::DataKind;
use super::event::CloudEvent;
use crate::json::write_string;
use crate::message::trace::{CorrelationId, Traceparent};
use crate::name::{EventVersion, ServiceName};

impl CloudEvent<'_> {
    /// The event in structured mode.
    pub fn to_structured(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(512 + self.data.json().len());
        out.push(b'{');
        for (name, value) in self.members().chain(self.content_type_member()) {
            write_string(&mut out, name);
            out.push(b':');
            value.write_json(&mut out);
            out.push(b',');
        }
        match self.data.kind() {
            DataKind::None => drop(out.pop()),
            DataKind::Json | DataKind::Text => {
                out.extend_from_slice(br#""data":"#);
                out.extend_from_slice(self.data.json());
            }
            DataKind::Binary => {
                out.extend_from_slice(br#""data_base64":"#);
                write_string(&mut out, &self.data.base64().unwrap_or_default());
            }
        }
        out.push(b'}');
        out
    }

    /// The media type of the data, if the event names one.
    pub fn content_type(&self) -> Option<&str> {
        self.attributes.get("datacontenttype").and_then(Value::as_text)
    }

    fn content_type_member(&self) -> Option<(&str, Value)> {
        self.content_type().map(|media_type| ("datacontenttype", Value::Text(media_type.to_owned())))
    }

    /// All attributes but the content type.
    pub(super) fn members(&self) -> impl Iterator<Item = (&str, Value)> {
        let own = [
            ("specversion", Some("1.0")),
            ("id", Some(self.id.as_str())),
            ("source", Some(self.source.as_str())),
            ("type", Some(self.event_type.as_str())),
            ("time", self.time.as_deref()),
            ("correlationid", self.correlation_id.as_ref().map(CorrelationId::as_str)),
            ("traceparent", self.traceparent.as_ref().map(Traceparent::as_str)),
            ("eventversion", self.version.as_ref().map(EventVersion::as_str)),
            ("snaviosource", self.sender.as_ref().map(ServiceName::as_str)),
            ("snaviometadata", self.metadata.as_deref()),
        ];
        let own = own.into_iter().filter_map(|(name, text)| Some((name, Value::Text(text?.to_owned()))));
        let kept = self.attributes.iter().filter(|(name, _)| *name != "datacontenttype");
        own.chain(kept.map(|(name, value)| (name.as_str(), value.clone())))
    }
}
