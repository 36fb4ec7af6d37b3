//! A record as JSON: every column of the message, and the responses. Bytes are base64, so that they read back
//! unchanged.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::{ArchivedClaim, Record};
use crate::delivery::processing::Answer;
use crate::hash::DomainHash;
use crate::id::{MessageId, Serial};
use crate::message::event::EventEnvelope;
use crate::message::trace::{CorrelationId, Traceparent};
use crate::message::{Message, Path};
use crate::name::{CommandName, KeyVersion, ServiceName, TenantName};
use crate::time::Timestamp;

/// The columns of a message, named as in the stores.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    seq: i64,
    tenant: String,
    id: String,
    source: String,
    target: String,
    name: String,
    signed_target: String,
    sent_at: String,
    key_version: String,
    signature: String,
    correlation_id: String,
    traceparent: String,
    received_at: i64,
    settled_at: i64,
    registry_version: i64,
    hash_version: u16,
    domain_hash: String,
    path: String,
    payload_base64: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    claims: Vec<ClaimDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    erased_at: Option<i64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimDocument {
    destination: String,
    expires_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delivery: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<AnswerDocument>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerDocument {
    status: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    body_base64: String,
}

/// The record as one line of JSON, without the line feed.
pub(super) fn write(record: &Record) -> String {
    let message = &record.message;
    let document = Document {
        seq: record.number.0,
        tenant: message.tenant.to_string(),
        id: message.id.to_string(),
        source: message.source.to_string(),
        target: message.target.to_string(),
        name: message.name.to_string(),
        signed_target: message.signed_target.to_string(),
        sent_at: message.sent_at.to_string(),
        key_version: message.key_text().to_owned(),
        signature: message.signature.to_string(),
        correlation_id: message.correlation.as_str().to_owned(),
        traceparent: message.traceparent.as_str().to_owned(),
        received_at: message.received_at.0,
        settled_at: record.settled_at.0,
        registry_version: message.registry_version,
        hash_version: record.hash_version,
        domain_hash: hex::encode(message.domain_hash.0),
        path: record.path.as_str().to_owned(),
        payload_base64: STANDARD.encode(&message.payload),
        event: message.event.as_ref().map(|event| event.to_text()),
        claims: record.claims.iter().map(written_claim).collect(),
        erased_at: record.erased_at.map(|at| at.0),
    };
    // A document of texts and numbers always serializes.
    serde_json::to_string(&document).unwrap_or_default()
}

fn written_claim(claim: &ArchivedClaim) -> ClaimDocument {
    let answer = claim.answer.as_ref().map(|answer| AnswerDocument {
        status: answer.status,
        content_type: answer.content_type.clone(),
        body_base64: STANDARD.encode(&answer.body),
    });
    ClaimDocument {
        destination: claim.destination.to_string(),
        expires_at: claim.expires_at.0,
        delivery: claim.delivery.map(|delivery| delivery.0),
        answer,
    }
}

/// Reads the text that [`write`] returned. Any other text gives `None`.
pub(super) fn read(text: &str) -> Option<Record> {
    let document: Document = serde_json::from_str(text).ok()?;
    let mut hash = [0; 32];
    hex::decode_to_slice(&document.domain_hash, &mut hash).ok()?;
    let key_version = match document.key_version.as_str() {
        "" => None,
        text => Some(KeyVersion::new(text).ok()?),
    };
    let event = match &document.event {
        Some(text) => Some(EventEnvelope::stored(text)?.into()),
        None => None,
    };
    let message = Message {
        tenant: TenantName::new(&document.tenant).ok()?,
        id: MessageId::stored(&document.id),
        source: ServiceName::new(&document.source).ok()?,
        target: ServiceName::new(&document.target).ok()?,
        name: CommandName::new(&document.name).ok()?,
        signed_target: document.signed_target.into(),
        sent_at: document.sent_at.into(),
        key_version,
        signature: document.signature.into(),
        correlation: CorrelationId::new(&document.correlation_id)?,
        traceparent: Traceparent::parse(&document.traceparent)?,
        received_at: Timestamp(document.received_at),
        registry_version: document.registry_version,
        domain_hash: DomainHash(hash),
        payload: STANDARD.decode(&document.payload_base64).ok()?.into(),
        event,
    };
    Some(Record {
        number: Serial(document.seq),
        path: Path::stored(&document.path),
        settled_at: Timestamp(document.settled_at),
        hash_version: document.hash_version,
        message,
        claims: document.claims.into_iter().map(read_claim).collect::<Option<_>>()?,
        erased_at: document.erased_at.map(Timestamp),
    })
}

fn read_claim(claim: ClaimDocument) -> Option<ArchivedClaim> {
    let answer = match claim.answer {
        Some(answer) => {
            let body = STANDARD.decode(&answer.body_base64).ok()?.into();
            Some(Answer { status: answer.status, content_type: answer.content_type, body })
        }
        None => None,
    };
    let (destination, expires_at) = (claim.destination.into(), Timestamp(claim.expires_at));
    Some(ArchivedClaim { destination, expires_at, delivery: claim.delivery.map(Serial), answer })
}
