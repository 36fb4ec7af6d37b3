//! Reads a native event in one pass over its bytes, without the registry.
//!
//! If the document is not strict JSON, that is the reason of its refusal. Other faults are collected during
//! the pass (`form.rs`).

use std::borrow::Cow;

use crate::hash::DomainHash;
use crate::id::MessageId;
use crate::json::{Fault, Kind, Reader};
use crate::message::MessageKind;
use crate::message::form::{Form, is_of_replay, missing};
use crate::message::payload::Payload;
use crate::message::trace::CorrelationId;
use crate::name::{CommandName, EventVersion, TargetText};
use crate::refusal::{Reason, Refusal, Refused, Subject};
use crate::time::Timestamp;

/// An event of valid form. Its sender is not known yet, nor whether the sender may send it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeEvent<'a> {
    /// A UUID is in lower case.
    pub id: MessageId,
    /// The name of the type within the service that publishes it.
    pub event_type: CommandName,
    pub correlation_id: Option<CorrelationId>,
    /// The time of the event as sent. It is content, and of any age.
    pub timestamp: Option<Cow<'a, str>>,
    /// The version of the event type.
    pub version: Option<EventVersion>,
    /// The sender that the event names.
    pub source: Option<TargetText>,
    pub data: Payload<'a>,
    /// A JSON object, as received.
    pub metadata: Option<&'a str>,
}

impl<'a> NativeEvent<'a> {
    /// Reads an event.
    pub fn parse(body: &'a [u8]) -> Result<Self, Refused> {
        let mut draft = Draft::default();
        let read = draft.read(body);
        draft.finish(read)
    }

    /// The content hash, with the whole payload.
    pub fn domain_hash(&self) -> DomainHash {
        DomainHash::of_event(self.event_type.as_str(), self.data.canonical())
    }
}

/// The members that were read so far.
#[derive(Default)]
struct Draft<'a> {
    id: Option<MessageId>,
    event_type: Option<CommandName>,
    correlation_id: Option<CorrelationId>,
    timestamp: Option<Cow<'a, str>>,
    version: Option<EventVersion>,
    source: Option<TargetText>,
    data: Option<Payload<'a>>,
    metadata: Option<&'a str>,
    form: Form,
}

impl<'a> Draft<'a> {
    fn read(&mut self, body: &'a [u8]) -> Result<(), Fault> {
        let mut reader = Reader::new(body)?;
        if reader.kind()? == Kind::Object {
            let mut object = reader.object()?;
            while let Some(member) = reader.member(&mut object)? {
                self.member(&mut reader, &member)?;
            }
        } else {
            self.form.add_fault(Reason::Malformed, || "the event must be an object".into());
            reader.skip()?;
        }
        reader.finish()
    }

    fn member(&mut self, reader: &mut Reader<'a>, member: &str) -> Result<(), Fault> {
        match member {
            "eventId" => self.id(reader)?,
            "eventType" => self.event_type = self.form.read_name(reader, member, CommandName::event_type)?,
            "correlationId" => self.correlation_id = self.form.read_correlation_id(reader, member)?,
            "timestamp" => self.timestamp(reader)?,
            "version" => self.version(reader)?,
            "source" => self.source = self.form.read_name(reader, member, TargetText::new)?,
            "data" | "payload" => self.data(reader)?,
            "metadata" => self.metadata(reader)?,
            _ if is_of_transport(member) => drop(reader.skip()?),
            _ if is_of_replay(member) => self.form.refuse_reserved(reader, member)?,
            _ => self.form.refuse_unknown(reader, "the event", member)?,
        }
        Ok(())
    }

    fn id(&mut self, reader: &mut Reader<'a>) -> Result<(), Fault> {
        if let Some(text) = self.form.read_text(reader, "eventId", Reason::Malformed)? {
            self.id = MessageId::event(&text);
            if self.id.is_none() {
                self.form.add_fault(Reason::InvalidId, || format!("eventId {}", MessageId::EVENT_RULE));
            }
        }
        Ok(())
    }

    fn timestamp(&mut self, reader: &mut Reader<'a>) -> Result<(), Fault> {
        if let Some(text) = self.form.read_text(reader, "timestamp", Reason::InvalidTimestamp)? {
            if Timestamp::parse(&text).is_none() {
                let form = "timestamp must be RFC 3339 with T and an offset, without a leap second";
                self.form.add_fault(Reason::InvalidTimestamp, || form.into());
            }
            self.timestamp = Some(text);
        }
        Ok(())
    }

    fn version(&mut self, reader: &mut Reader<'a>) -> Result<(), Fault> {
        if let Some(text) = self.form.read_text(reader, "version", Reason::Malformed)? {
            match EventVersion::new(&text) {
                Ok(version) => self.version = Some(version),
                Err(invalid) => self.form.add_fault(Reason::Malformed, || format!("version: {invalid}")),
            }
        }
        Ok(())
    }

    fn data(&mut self, reader: &mut Reader<'a>) -> Result<(), Fault> {
        let data = Payload::read(reader)?;
        if self.data.replace(data).is_some() {
            let twice = "data and payload are two names of one member: send one of them";
            self.form.add_fault(Reason::Malformed, || twice.into());
        }
        Ok(())
    }

    fn metadata(&mut self, reader: &mut Reader<'a>) -> Result<(), Fault> {
        if reader.kind()? != Kind::Object {
            self.form.add_fault(Reason::Malformed, || "metadata must be an object".into());
        }
        // The reader has checked that the bytes are text.
        self.metadata = std::str::from_utf8(reader.skip()?).ok();
        Ok(())
    }

    fn finish(self, read: Result<(), Fault>) -> Result<NativeEvent<'a>, Refused> {
        let (id, name, correlation) = (self.id.clone(), self.event_type.clone(), self.correlation_id.clone());
        let event = read.map_err(Refusal::from).and_then(|()| self.event());
        let subject = || Subject { kind: MessageKind::Event, id, name, correlation, ..Subject::default() };
        event.map_err(|refusal| Refused { subject: Box::new(subject()), refusal })
    }

    fn event(self) -> Result<NativeEvent<'a>, Refusal> {
        self.form.into_result()?;
        Ok(NativeEvent {
            id: self.id.ok_or_else(|| missing("eventId"))?,
            event_type: self.event_type.ok_or_else(|| missing("eventType"))?,
            correlation_id: self.correlation_id,
            timestamp: self.timestamp,
            version: self.version,
            source: self.source,
            data: self.data.ok_or_else(|| missing("data"))?,
            metadata: self.metadata,
        })
    }
}

/// Whether a member only describes the transport of an event (MSG-9). Systems on the way may have added it,
/// and the gateway drops it.
fn is_of_transport(member: &str) -> bool {
    matches!(
        member,
        "traceId"
            | "spanId"
            | "receivedAt"
            | "deliveryAttempt"
            | "retryCount"
            | "partition"
            | "offset"
            | "brokerMessageId"
            | "producerSendAt"
    )
}
