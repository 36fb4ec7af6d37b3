//! Telemetry records: facts about messages and configuration, for the tenant that they concern (TEL-1).

pub mod lines;
pub mod log_limiter;
pub mod seldom;

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::bounds;
use crate::claim::conflict::Conflict;
use crate::claim::{ClaimKey, IdKey, Present};
use crate::delivery::{DeadLetter, Receipt};
use crate::id::{MessageId, Serial};
use crate::message::trace::{CorrelationId, Traceparent};
use crate::message::{Message, MessageKind, Path};
use crate::name::{ServiceName, TenantName};
use crate::refusal::{Refusal, Report, Skew, Subject};
use crate::registry::{Key, Revocation, Route, Used, event_type_of};
use crate::time::Timestamp;

/// All types of records.
pub const TYPES: [&str; 19] = [
    "snavio.command.delivered",
    "snavio.command.invalid",
    "snavio.command.failed",
    "snavio.command.duplicate",
    "snavio.event.delivered",
    "snavio.event.invalid",
    "snavio.event.failed",
    "snavio.event.duplicate",
    "snavio.telemetry.skew_near_limit",
    "snavio.telemetry.skew_sample",
    DROPPED,
    "snavio.claim.conflict",
    "snavio.claim.fenced",
    "snavio.claim.erased",
    "snavio.command.executed_after_acl_revoked",
    "snavio.secret.legacy_key_used",
    "snavio.secret.key_expiry_imminent",
    "snavio.route.disabled",
    "snavio.snapshot.left_out",
];

/// One record of a tenant's telemetry.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub tenant: TenantName,
    /// The type of the record, for example `snavio.command.invalid`.
    pub kind: &'static str,
    pub at: Timestamp,
    /// The service that the record is about, as a source of messages.
    pub source: Option<ServiceName>,
    /// The members of the record that have no field here.
    pub body: Map<String, Value>,
}

/// A record as a store returns it, with its number.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRecord {
    /// Rises with every record of a tenant.
    pub number: Serial,
    pub kind: String,
    pub at: Timestamp,
    pub source: Option<String>,
    /// The members of the record that have no field here.
    pub body: Map<String, Value>,
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => Map::new(),
    }
}

/// The types of records about messages (TEL-1).
struct Kinds {
    delivered: &'static str,
    invalid: &'static str,
    failed: &'static str,
    duplicate: &'static str,
}

impl Kinds {
    const fn of(kind: MessageKind) -> Self {
        match kind {
            MessageKind::Command => Self {
                delivered: "snavio.command.delivered",
                invalid: "snavio.command.invalid",
                failed: "snavio.command.failed",
                duplicate: "snavio.command.duplicate",
            },
            MessageKind::Event => Self {
                delivered: "snavio.event.delivered",
                invalid: "snavio.event.invalid",
                failed: "snavio.event.failed",
                duplicate: "snavio.event.duplicate",
            },
        }
    }
}

/// The members that identify a message: target and command for a command, the type for an event.
fn identity_members(
    kind: MessageKind,
    id: impl Serialize,
    target: impl Serialize,
    name: impl Serialize,
) -> Map<String, Value> {
    members(match kind {
        MessageKind::Command => json!({ "command_id": id, "target": target, "command.name": name }),
        MessageKind::Event => json!({ "event_id": id, "event_type": name }),
    })
}

/// The members of a record of type [`delivered_kind`], from the message log.
pub fn delivered(message: &Message, path: Path, settled_at: Timestamp) -> Map<String, Value> {
    let mut body = message_members(&message.source, &message.subject());
    body.extend(members(json!({
        "path": path.as_str(),
        "dispatch_latency_ms": settled_at.since(message.received_at).as_millis() as u64,
        "replay": false,
    })));
    if let Some(adapter) = message.adapter() {
        body.insert("adapter".into(), adapter.into());
    }
    body
}

/// The type of the record with the members of [`delivered`].
pub fn delivered_kind(message: &Message) -> &'static str {
    Kinds::of(message.kind()).delivered
}

/// The record of a refused message; `None` for refusals that are not reported (PIP-14).
pub fn refused(source: &ServiceName, subject: &Subject, refusal: &Refusal, at: Timestamp) -> Option<Record> {
    let kinds = Kinds::of(subject.kind);
    let kind = match refusal.reason.contract().report {
        Report::Invalid => kinds.invalid,
        Report::Failed => kinds.failed,
        Report::Nothing => return None,
    };
    let mut body = message_members(source, subject);
    body.insert("reason".into(), refusal.reason.code().into());
    if let Some(after) = refusal.retry_after {
        body.insert("retry_after_ms".into(), json!(after.as_millis() as u64));
    }
    if let Some(skew) = refusal.skew {
        body.extend(skew_members(skew));
    }
    record(source, kind, at, body)
}

/// The record of a duplicate on a strict route.
pub fn duplicate(
    source: &ServiceName,
    subject: &Subject,
    dedupe_mode: &str,
    at: Timestamp,
) -> Option<Record> {
    let mut body = message_members(source, subject);
    body.insert("dedupe_mode".into(), dedupe_mode.into());
    record(source, Kinds::of(subject.kind).duplicate, at, body)
}

/// The record of a conflict, for the tenant that must resolve it (CLM-8).
pub fn conflict(conflict: &Conflict) -> Record {
    let event_type = event_type_of(&conflict.destination);
    let kind = if event_type.is_some() { MessageKind::Event } else { MessageKind::Command };
    let mut body = identity_members(kind, &conflict.event_id, Value::Null, event_type);
    body.extend(members(json!({
        "source": conflict.source,
        "destination": &*conflict.destination,
        "conflict_id": conflict.id,
        "original_hash": conflict.original_hash.to_string(),
        "conflicting_hash": conflict.hash.to_string(),
        "severity": "critical",
    })));
    let (tenant, source) = (conflict.owner.clone(), Some(conflict.source.clone()));
    Record { tenant, kind: "snavio.claim.conflict", at: conflict.flagged_at, source, body }
}

/// The record of a late report, for the target's tenant, with the current lease and status (CLM-7).
pub fn fenced(
    key: &ClaimKey,
    source: &ServiceName,
    receipt: Receipt,
    present: Present,
    at: Timestamp,
) -> Option<Record> {
    let owner = key.destination.split('/').next().and_then(|tenant| TenantName::new(tenant).ok())?;
    let body = members(json!({
        "command_id": key.id,
        "source": source,
        "destination": &*key.destination,
        "delivery_id": receipt.delivery_id,
        "fence": receipt.fence,
        "newest_fence": present.fence,
        "status": present.status.as_str(),
        "severity": "critical",
    }));
    Some(Record { tenant: owner, kind: "snavio.claim.fenced", at, source: Some(source.clone()), body })
}

/// The record of an erasure, for the recipient of the erased message (CLM-18).
pub fn erased(id: &IdKey, destination: &str, at: Timestamp) -> Option<Record> {
    let owner = destination.split('/').next().and_then(|tenant| TenantName::new(tenant).ok())?;
    let event_type = event_type_of(destination);
    let kind = if event_type.is_some() { MessageKind::Event } else { MessageKind::Command };
    let mut body = identity_members(kind, &id.id, Value::Null, event_type);
    body.extend(members(json!({ "tenant": id.tenant, "destination": destination })));
    Some(Record { tenant: owner, kind: "snavio.claim.erased", at, source: None, body })
}

/// A message that was sent by a permission after its revocation.
#[derive(Debug, Clone, Copy)]
pub struct Late<'a> {
    pub id: &'a MessageId,
    pub correlation: &'a CorrelationId,
    /// The permission that the message used.
    pub used: Used<'a>,
    /// The count of further such messages without a record of their own.
    pub more: usize,
}

/// The record of such a message, for the tenant that the revocation concerns (REG-17).
pub fn executed_after_revoked(revocation: &Revocation, late: &Late<'_>, at: Timestamp) -> Option<Record> {
    let tenant = revocation.told_to(late.used);
    let Late { id, correlation, used: late, more } = *late;
    let mut body = identity_members(late.kind, id, late.target, late.name);
    body.extend(members(json!({
        "source": late.source,
        "correlation_id": correlation.as_str(),
        "and_more": (more > 0).then_some(more),
        "revoked": revocation.what.as_str(),
        "acl_revocation_timestamp": revocation.at.to_string(),
        "stale_duration_seconds": revocation.stale_for(late.settled_at).as_secs_f64(),
        "registry_version": late.registry_version,
        "revoked_in_version": revocation.version,
    })));
    let tenant = TenantName::new(tenant).ok()?;
    let source = Some(late.source.clone());
    Some(Record { tenant, kind: "snavio.command.executed_after_acl_revoked", at, source, body })
}

/// The record of an accepted message's skew: a warning near the limit, otherwise a sample of about 1 %.
pub fn skew(message: &Message, sent_at: Timestamp, window: Duration) -> Option<Record> {
    let skew = Skew { sent_at, received_at: message.received_at };
    let distance = skew.received_at.skew(skew.sent_at).as_millis() as u64;
    let near = distance * 100 >= window.as_millis() as u64 * bounds::SKEW_NEAR_LIMIT_PERCENT;
    let kind = if near {
        "snavio.telemetry.skew_near_limit"
    } else if is_sampled(&message.id) {
        "snavio.telemetry.skew_sample"
    } else {
        return None;
    };
    let mut body = message_members(&message.source, &message.subject());
    body.extend(skew_members(skew));
    record(&message.source, kind, message.received_at, body)
}

/// The type of the record of [`dropped`].
pub const DROPPED: &str = "snavio.telemetry.dropped";

/// The record that unread telemetry of a tenant was dropped.
pub fn dropped(tenant: TenantName, count: u64, reason: &str, oldest: Timestamp, at: Timestamp) -> Record {
    let body = members(json!({
        "tenant": tenant,
        "dropped_events": count,
        "reason": reason,
        "queue_age_seconds": at.since(oldest).as_secs(),
        "last_received_at": oldest.to_string(),
    }));
    Record { tenant, kind: DROPPED, at, source: None, body }
}

/// The record that the snapshots of the registry omit a tenant's entries (REG-22).
pub fn left_out(tenant: TenantName, why: &str, at: Timestamp) -> Record {
    let body = members(json!({ "tenant": tenant, "reason": why }));
    Record { tenant, kind: "snavio.snapshot.left_out", at, source: None, body }
}

/// The record that a delivery became a dead letter, for the sender of its message.
pub fn dead_lettered(message: &Message, letter: &DeadLetter) -> Record {
    let mut body = message_members(&message.source, &message.subject());
    body.extend(members(json!({
        "reason": "delivery-failure",
        "dead_letter_reason": letter.reason.as_str(),
        "delivery_id": letter.delivery.id,
        "attempts": letter.delivery.receives,
    })));
    Record {
        tenant: message.tenant.clone(),
        kind: Kinds::of(message.kind()).failed,
        at: letter.dead_at,
        source: Some(message.source.clone()),
        body,
    }
}

/// The record that a message was accepted under a key that is not its sender's current one (REG-12).
pub fn legacy_key_used(message: &Message) -> Option<Record> {
    let mut body = message_members(&message.source, &message.subject());
    body.insert("version_id".into(), message.key_text().into());
    record(&message.source, "snavio.secret.legacy_key_used", message.received_at, body)
}

/// The record that a key ends soon and its owner seems unaware of the new one (REG-12).
pub fn key_expiry_imminent(key: &Key, at: Timestamp) -> Option<Record> {
    let body = members(json!({
        "source": key.service,
        "version_id": key.version,
        "ends_at": key.ends_at().map(|end| end.to_string()),
    }));
    record(&key.service, "snavio.secret.key_expiry_imminent", at, body)
}

/// The record that the gateway stopped pushing by a route, for the target's tenant (DLV-1).
pub fn push_disabled(route: &Route, why: &str, at: Timestamp) -> Option<Record> {
    let body = members(json!({
        "target": route.target,
        "destination": &*route.destination(),
        "queue": route.queue,
        "reason": why,
    }));
    let tenant = TenantName::new(route.target.tenant()).ok()?;
    Some(Record { tenant, kind: "snavio.route.disabled", at, source: None, body })
}

impl Record {
    /// Adds the time at which the owner of the key last polled its configuration, if ever.
    #[must_use]
    pub fn with_last_poll(mut self, polled_at: Option<Timestamp>) -> Self {
        let text = polled_at.map(|at| at.to_string().into());
        self.body.extend(text.map(|text| ("time_of_last_config_poll".to_owned(), text)));
        self
    }
}

/// Whether the clock of a message is sampled: about one message in a hundred, chosen by the id so that every node
/// chooses the same.
pub fn is_sampled(id: &MessageId) -> bool {
    let sum = id.as_str().bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    sum.is_multiple_of(100)
}

fn message_members(source: &ServiceName, subject: &Subject) -> Map<String, Value> {
    let mut body = identity_members(subject.kind, &subject.id, &subject.target, &subject.name);
    body.extend(members(json!({
        "source": source,
        "correlation_id": subject.correlation.as_ref().map(CorrelationId::as_str),
        "traceparent": subject.traceparent.as_ref().map(Traceparent::as_str),
    })));
    body
}

fn skew_members(skew: Skew) -> Map<String, Value> {
    members(json!({
        "skew_seconds": skew.received_at.skew(skew.sent_at).as_millis() as f64 / 1000.0,
        "sent_at": skew.sent_at.to_string(),
        "received_at": skew.received_at.to_string(),
    }))
}

fn record(
    source: &ServiceName,
    kind: &'static str,
    at: Timestamp,
    body: Map<String, Value>,
) -> Option<Record> {
    let tenant = TenantName::new(source.tenant()).ok()?;
    Some(Record { tenant, kind, at, source: Some(source.clone()), body })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TEL-1
    #[test]
    fn every_type_of_record_is_listed() {
        let code = include_str!("telemetry.rs").split("#[cfg(test)]").next().expect("the code");
        let (list, code) = code.split_once("\n];\n").expect("the list is first");
        let mut made: Vec<_> = code.split('"').filter(|word| word.starts_with("snavio.")).collect();
        let mut listed = TYPES.to_vec();
        assert!(listed.iter().all(|word| list.contains(*word) || *word == DROPPED));
        made.sort_unstable();
        made.dedup();
        listed.sort_unstable();
        assert_eq!(made, listed);
    }
}
