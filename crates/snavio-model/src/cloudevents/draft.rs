//! A CloudEvent while the gateway reads it. Both modes pass their attributes one by one.

use super::attribute::{NAME_RULE, VALUE_RULE, Value, is_name};
use super::data::Data;
use super::event::CloudEvent;
use super::kept::{self, Attributes};
use super::source::{SOURCE_RULE, Source};
use crate::bounds::CLOUDEVENT_EXTENSIONS_MAX;
use crate::id::MessageId;
use crate::json::Fault;
use crate::message::MessageKind;
use crate::message::form::{Form, missing};
use crate::message::trace::{CorrelationId, Traceparent};
use crate::name::{CommandName, EventVersion, is_short_identifier};
use crate::refusal::{Reason, Refusal, Refused, Subject};
use crate::time::Timestamp;

/// The attributes that were read so far.
#[derive(Default)]
pub(super) struct Draft {
    is_version_1: bool,
    id: Option<MessageId>,
    source: Option<Source>,
    event_type: Option<CommandName>,
    time: Option<String>,
    correlation_id: Option<CorrelationId>,
    traceparent: Option<Traceparent>,
    version: Option<EventVersion>,
    metadata: Option<String>,
    attributes: Attributes,
    pub(super) form: Form,
}

impl Draft {
    /// Takes an attribute with its value. `Err` stands for a value that no attribute can hold.
    pub(super) fn attribute(&mut self, name: &str, value: Result<Value, ()>) {
        if !is_name(name) {
            return self.wrong_name(name);
        }
        match (value, name) {
            (Err(()), _) => self.form.add_fault(Reason::Malformed, || format!("{name} {VALUE_RULE}")),
            (Ok(value), _) if kept::is_kept(name) => self.keep(name, value),
            (Ok(Value::Text(text)), _) => self.member(name, text),
            (Ok(_), _) if kept::is_of_platform(name) => {}
            (Ok(_), _) => self.form.add_fault(Reason::Malformed, || format!("{name} must be text")),
        }
    }

    /// The refusal repeats the name only if it looks like a name.
    fn wrong_name(&mut self, name: &str) {
        if is_short_identifier(name) {
            self.form.add_fault(Reason::Malformed, || format!("{name} is not an attribute: {NAME_RULE}"));
        } else {
            self.form
                .add_fault(Reason::Malformed, || format!("an attribute has an invalid name: {NAME_RULE}"));
        }
    }

    /// Takes an attribute that has a member in the native event.
    fn member(&mut self, name: &str, text: String) {
        match name {
            "specversion" => {
                self.is_version_1 = true;
                self.check(name, text == "1.0", "must be 1.0");
            }
            "id" => {
                self.id = MessageId::event(&text);
                if self.id.is_none() {
                    self.form.add_fault(Reason::InvalidId, || format!("id {}", MessageId::EVENT_RULE));
                }
            }
            "source" => {
                self.source = Source::new(&text);
                self.check(name, self.source.is_some(), SOURCE_RULE);
            }
            "type" => match CommandName::event_type(&text) {
                Ok(event_type) => self.event_type = Some(event_type),
                Err(invalid) => self.form.add_fault(Reason::InvalidName, || format!("type: {invalid}")),
            },
            "time" => self.time(text),
            "correlationid" => {
                self.correlation_id = CorrelationId::new(&text);
                let rule = "must be 1 to 128 printable ASCII characters";
                self.check(name, self.correlation_id.is_some(), rule);
            }
            // As with the header of that name, an unreadable value begins a new trace.
            "traceparent" => self.traceparent = Traceparent::parse(&text),
            "eventversion" => match EventVersion::new(&text) {
                Ok(version) => self.version = Some(version),
                Err(invalid) => self.form.add_fault(Reason::Malformed, || format!("eventversion: {invalid}")),
            },
            "snaviometadata" => {
                let rule = "must be a JSON object as text, without a member cloudevents";
                self.check(name, kept::is_metadata(&text), rule);
                self.metadata = Some(text);
            }
            "data" => self.check(name, false, "is not an attribute: in binary mode it is the body"),
            // Another gateway wrote it.
            _ => {}
        }
    }

    fn check(&mut self, name: &str, holds: bool, rule: &str) {
        if !holds {
            self.form.add_fault(Reason::Malformed, || format!("{name} {rule}"));
        }
    }

    fn time(&mut self, text: String) {
        if Timestamp::parse(&text).is_none() {
            let form = "time must be RFC 3339 with T and an offset, without a leap second";
            self.form.add_fault(Reason::InvalidTimestamp, || form.into());
        }
        self.time = Some(text);
    }

    /// Takes an attribute that has no member in the native event.
    fn keep(&mut self, name: &str, value: Value) {
        if let Some(rule) = kept::broken_rule(name, &value) {
            self.check(name, false, rule);
        }
        if self.attributes.len() >= CLOUDEVENT_EXTENSIONS_MAX {
            let many = format!("an event may have {CLOUDEVENT_EXTENSIONS_MAX} extensions at most");
            return self.form.add_fault(Reason::Malformed, || many);
        }
        self.attributes.insert(name.to_owned(), value);
    }

    /// The content type of the data, if it was read already.
    pub(super) fn content_type(&self) -> Option<&str> {
        self.attributes.get("datacontenttype").and_then(Value::as_text)
    }

    /// The event, or the refusal with the ids that were read. Faults of the document come first, then faults
    /// of attributes, then faults of the data.
    pub(super) fn finish<'a, T>(
        mut self,
        read: Result<T, Fault>,
        data: impl FnOnce(&Self, T) -> Result<Data<'a>, Refusal>,
    ) -> Result<CloudEvent<'a>, Refused> {
        let (id, name, correlation) = (self.id.clone(), self.event_type.clone(), self.correlation_id.clone());
        let traceparent = self.traceparent.clone();
        let subject =
            || Subject { kind: MessageKind::Event, id, name, correlation, traceparent, target: None };
        let event = read.map_err(Refusal::from).and_then(|read| {
            std::mem::take(&mut self.form).into_result()?;
            let data = data(&self, read)?;
            self.event(data)
        });
        event.map_err(|refusal| Refused { subject: Box::new(subject()), refusal })
    }

    fn event(self, data: Data<'_>) -> Result<CloudEvent<'_>, Refusal> {
        if !self.is_version_1 {
            return Err(missing("specversion"));
        }
        let source = self.source.ok_or_else(|| missing("source"))?;
        let native_metadata =
            kept::metadata(self.metadata.as_deref(), &self.attributes, &source, data.kind());
        let native_metadata = native_metadata.map_err(|fault| {
            // The position is in the combined document, which the sender does not know.
            let detail = format!("snaviometadata and the event's other attributes together: {}", fault.kind);
            Refusal::new(fault.kind.reason(), detail)
        })?;
        Ok(CloudEvent {
            id: self.id.ok_or_else(|| missing("id"))?,
            event_type: self.event_type.ok_or_else(|| missing("type"))?,
            source,
            time: self.time,
            correlation_id: self.correlation_id,
            traceparent: self.traceparent,
            version: self.version,
            metadata: self.metadata,
            attributes: self.attributes,
            data,
            sender: None,
            native_metadata,
        })
    }
}

/// The refusal of data that is not strict JSON.
pub(super) fn wrong_data(fault: Fault) -> Refusal {
    Refusal::new(fault.kind.reason(), format!("data: {fault}"))
}
