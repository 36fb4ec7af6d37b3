//! Writes a signed command, for clients.

use super::COMMAND_TYPE;
use crate::id::MessageId;
use crate::json::write_string;
use crate::message::payload::Payload;
use crate::message::trace::CorrelationId;
use crate::name::{CommandName, KeyVersion, ServiceName, TargetText};
use crate::refusal::{Reason, Refusal};
use crate::signature::signing::{Secret, Signature, SigningText};
use crate::time::Timestamp;

/// A command that a client is about to send.
#[derive(Debug, Clone, Copy)]
pub struct NewCommand<'a> {
    /// A UUID, the same on every retry.
    pub id: &'a MessageId,
    /// The signing time in RFC 3339, renewed on every retry.
    pub timestamp: &'a str,
    pub version_id: &'a KeyVersion,
    /// The client's own full name. The signature covers it, and the command does not contain it.
    pub source: &'a ServiceName,
    pub target: &'a TargetText,
    pub name: &'a CommandName,
    /// JSON, sent byte for byte.
    pub payload: &'a [u8],
    pub correlation_id: Option<&'a CorrelationId>,
}

impl NewCommand<'_> {
    /// The whole message as JSON, signed under `secret`.
    pub fn sign(&self, secret: &Secret) -> Result<Vec<u8>, Refusal> {
        Ok(self.write(self.signing_text()?.sign(secret)))
    }

    /// The text that the signature covers. It makes the checks of the gateway first.
    pub fn signing_text(&self) -> Result<SigningText<'_>, Refusal> {
        if MessageId::uuid(self.id.as_str()).as_ref() != Some(self.id) {
            return Err(Refusal::new(Reason::InvalidId, "the id must be a hyphenated UUID that is not nil"));
        }
        if Timestamp::parse(self.timestamp).is_none() {
            return Err(Refusal::new(Reason::InvalidTimestamp, "the timestamp must be RFC 3339"));
        }
        Ok(SigningText {
            version_id: self.version_id,
            id: self.id,
            timestamp: self.timestamp,
            source: self.source,
            target: self.target,
            name: self.name,
            payload_sha256: Payload::parse(self.payload)?.sha256(),
        })
    }

    fn write(&self, signature: Signature) -> Vec<u8> {
        let hmac = signature.to_string();
        let metadata = [
            ("id", Some(self.id.as_str())),
            ("timestamp", Some(self.timestamp)),
            ("type", Some(COMMAND_TYPE)),
            ("version_id", Some(self.version_id.as_str())),
            ("hmac", Some(&hmac)),
            ("correlation_id", self.correlation_id.map(CorrelationId::as_str)),
        ];
        let mut out = Vec::with_capacity(512 + self.payload.len());
        out.extend_from_slice(br#"{"metadata":{"#);
        write_members(&mut out, &metadata);
        out.extend_from_slice(br#"},"command":{"#);
        write_members(
            &mut out,
            &[("target", Some(self.target.as_str())), ("name", Some(self.name.as_str()))],
        );
        out.extend_from_slice(br#","payload":"#);
        out.extend_from_slice(self.payload);
        out.extend_from_slice(b"}}");
        out
    }
}

fn write_members(out: &mut Vec<u8>, members: &[(&str, Option<&str>)]) {
    let first = out.len();
    for (name, value) in members.iter().filter_map(|(name, value)| Some((name, (*value)?))) {
        if out.len() > first {
            out.push(b',');
        }
        write_string(out, name);
        out.push(b':');
        write_string(out, value);
    }
}
