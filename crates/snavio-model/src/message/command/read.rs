//! Reads a command in one pass over its bytes, without the registry.
//!
//! If the document is not strict JSON, that is the reason of its refusal. Other faults are collected during
//! the pass (`form.rs`).

use std::borrow::Cow;

use super::COMMAND_TYPE;
use crate::hash::DomainHash;
use crate::id::MessageId;
use crate::json::{Fault, Kind, Reader};
use crate::message::form::{Form, is_of_replay, missing};
use crate::message::payload::Payload;
use crate::message::trace::CorrelationId;
use crate::name::{CommandName, KeyVersion, ServiceName, TargetText};
use crate::refusal::{Reason, Refusal, Refused, Subject};
use crate::signature::signing::{InvalidSignature, Signature, SigningText};
use crate::time::Timestamp;

/// A command of valid form. Its sender is not known yet, nor whether its signature is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandEnvelope<'a> {
    /// In lower case.
    pub id: MessageId,
    /// The signing time.
    pub timestamp: Timestamp,
    /// The signing time as sent. The signature covers this text.
    pub timestamp_text: Cow<'a, str>,
    /// The version of the signing key. Absent if the request's headers carry the signature.
    pub version_id: Option<KeyVersion>,
    /// The signature. An unreadable one stays here, so that the pipeline refuses it as `hmac_invalid` in its
    /// order.
    pub hmac: Option<Result<Signature, InvalidSignature>>,
    pub correlation_id: Option<CorrelationId>,
    /// As sent.
    pub target: TargetText,
    pub name: CommandName,
    pub payload: Payload<'a>,
}

impl<'a> CommandEnvelope<'a> {
    /// Reads a command.
    pub fn parse(body: &'a [u8]) -> Result<Self, Refused> {
        let mut draft = Draft::default();
        let read = draft.read(body);
        draft.finish(read)
    }

    /// The text that the signature must cover if `source` sent this command under the key `version_id`.
    pub fn signing_text<'s>(
        &'s self,
        version_id: &'s KeyVersion,
        source: &'s ServiceName,
    ) -> SigningText<'s> {
        SigningText {
            version_id,
            id: &self.id,
            timestamp: &self.timestamp_text,
            source,
            target: &self.target,
            name: &self.name,
            payload_sha256: self.payload.sha256(),
        }
    }

    /// The content hash, with the whole payload and the target's full name.
    pub fn domain_hash(&self, target: &ServiceName) -> DomainHash {
        DomainHash::of_command(target, &self.name, self.payload.canonical())
    }
}

/// The members that were read so far.
#[derive(Default)]
struct Draft<'a> {
    has_type: bool,
    id: Option<MessageId>,
    timestamp: Option<(Timestamp, Cow<'a, str>)>,
    version_id: Option<KeyVersion>,
    hmac: Option<Result<Signature, InvalidSignature>>,
    correlation_id: Option<CorrelationId>,
    target: Option<TargetText>,
    name: Option<CommandName>,
    payload: Option<Payload<'a>>,
    form: Form,
    /// The pipeline refuses it after all other faults of form (PIP-1).
    source_present: bool,
}

/// The parts of the document.
impl<'a> Draft<'a> {
    fn read(&mut self, body: &'a [u8]) -> Result<(), Fault> {
        let mut reader = Reader::new(body)?;
        self.object(&mut reader, "the message", |draft, reader, member| match member {
            "metadata" => draft.object(reader, "metadata", Self::metadata),
            "command" => draft.object(reader, "command", Self::command),
            _ => draft.form.refuse_unknown(reader, "the message", member),
        })?;
        reader.finish()
    }

    /// Reads an object member by member. A value of another kind is a fault.
    fn object(
        &mut self,
        reader: &mut Reader<'a>,
        place: &str,
        read: impl Fn(&mut Self, &mut Reader<'a>, &str) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if reader.kind()? != Kind::Object {
            self.form.add_fault(Reason::Malformed, || format!("{place} must be an object"));
            return reader.skip().map(drop);
        }
        let mut object = reader.object()?;
        while let Some(member) = reader.member(&mut object)? {
            read(self, reader, &member)?;
        }
        Ok(())
    }

    fn metadata(&mut self, reader: &mut Reader<'a>, member: &str) -> Result<(), Fault> {
        match member {
            "id" => self.id(reader),
            "timestamp" => self.timestamp(reader),
            "type" => self.message_type(reader),
            "version_id" => {
                self.version_id = self.form.read_name(reader, "metadata.version_id", KeyVersion::new)?;
                Ok(())
            }
            "hmac" => self.hmac(reader),
            "correlation_id" => {
                self.correlation_id = self.form.read_correlation_id(reader, "metadata.correlation_id")?;
                Ok(())
            }
            _ => self.unknown(reader, "metadata", member),
        }
    }

    fn command(&mut self, reader: &mut Reader<'a>, member: &str) -> Result<(), Fault> {
        match member {
            "target" => {
                self.target = self.form.read_name(reader, "command.target", TargetText::new)?;
                Ok(())
            }
            "name" => {
                self.name = self.form.read_name(reader, "command.name", CommandName::new)?;
                Ok(())
            }
            "payload" => {
                self.payload = Some(Payload::read(reader)?);
                Ok(())
            }
            "source" => {
                self.source_present = true;
                reader.skip().map(drop)
            }
            _ => self.unknown(reader, "command", member),
        }
    }
}

/// The members of the document.
impl<'a> Draft<'a> {
    fn id(&mut self, reader: &mut Reader<'a>) -> Result<(), Fault> {
        if let Some(text) = self.form.read_text(reader, "metadata.id", Reason::Malformed)? {
            self.id = MessageId::uuid(&text);
            if self.id.is_none() {
                self.form.add_fault(Reason::InvalidId, || {
                    "metadata.id must be a hyphenated UUID that is not nil".into()
                });
            }
        }
        Ok(())
    }

    fn timestamp(&mut self, reader: &mut Reader<'a>) -> Result<(), Fault> {
        if let Some(text) = self.form.read_text(reader, "metadata.timestamp", Reason::InvalidTimestamp)? {
            self.timestamp = Timestamp::parse(&text).map(|at| (at, text));
            if self.timestamp.is_none() {
                let form = "metadata.timestamp must be RFC 3339 with T and an offset, without a leap second";
                self.form.add_fault(Reason::InvalidTimestamp, || form.into());
            }
        }
        Ok(())
    }

    fn message_type(&mut self, reader: &mut Reader<'a>) -> Result<(), Fault> {
        if let Some(text) = self.form.read_text(reader, "metadata.type", Reason::Malformed)? {
            self.has_type = true;
            if text != COMMAND_TYPE {
                self.form.add_fault(Reason::Malformed, || format!("metadata.type must be {COMMAND_TYPE}"));
            }
        }
        Ok(())
    }

    fn hmac(&mut self, reader: &mut Reader<'a>) -> Result<(), Fault> {
        let text = self.form.read_text(reader, "metadata.hmac", Reason::Malformed)?;
        self.hmac = text.map(|text| Signature::parse(&text));
        Ok(())
    }

    /// Refuses a member that no producer may send.
    fn unknown(&mut self, reader: &mut Reader<'a>, place: &str, member: &str) -> Result<(), Fault> {
        if is_of_replay(member) {
            return self.form.refuse_reserved(reader, &format!("{place}.{member}"));
        }
        self.form.refuse_unknown(reader, place, member)
    }
}

/// The end of the document.
impl<'a> Draft<'a> {
    fn finish(self, read: Result<(), Fault>) -> Result<CommandEnvelope<'a>, Refused> {
        let (id, name, correlation) = (self.id.clone(), self.name.clone(), self.correlation_id.clone());
        let envelope = read.map_err(Refusal::from).and_then(|()| self.envelope());
        envelope.map_err(|refusal| Refused {
            subject: Box::new(Subject { id, name, correlation, ..Subject::default() }),
            refusal,
        })
    }

    fn envelope(self) -> Result<CommandEnvelope<'a>, Refusal> {
        self.form.into_result()?;
        if !self.has_type {
            return Err(missing("metadata.type"));
        }
        let (timestamp, timestamp_text) = self.timestamp.ok_or_else(|| missing("metadata.timestamp"))?;
        let envelope = CommandEnvelope {
            id: self.id.ok_or_else(|| missing("metadata.id"))?,
            timestamp,
            timestamp_text,
            version_id: self.version_id,
            hmac: self.hmac,
            correlation_id: self.correlation_id,
            target: self.target.ok_or_else(|| missing("command.target"))?,
            name: self.name.ok_or_else(|| missing("command.name"))?,
            payload: self.payload.ok_or_else(|| missing("command.payload"))?,
        };
        if self.source_present {
            let detail = "command.source must not be sent: the gateway sets it";
            return Err(Refusal::new(Reason::SourcePresent, detail));
        }
        Ok(envelope)
    }
}
