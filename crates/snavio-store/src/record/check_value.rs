//! The check value of evidence rows: CRC-32 over their columns, each preceded by its length (QUA-1). Every engine
//! keeps it, so that a row that is not as it was written is noticed when it is read, whoever changed it.

use std::sync::Arc;

use snavio_model::claim::conflict::Conflict;
use snavio_model::claim::{Claim, ClaimKey, IdKey, Original, Status};
use snavio_model::delivery::Receipt;
use snavio_model::delivery::processing::Answer;
use snavio_model::id::{MessageId, Serial};
use snavio_model::message::event::EventEnvelope;
use snavio_model::message::{Message, Path};
use snavio_model::name::{InvalidName, KeyVersion};
use snavio_model::ordering::EntityKey;
use snavio_model::telemetry::{self, Record};
use snavio_model::time::Timestamp;

use crate::{Act, Deed, HeldDelivery, StoreError};

/// Room for the columns of a usual row.
const ROW_BYTES: usize = 2048;

/// Gathers columns in order. They are put side by side first: many small pieces cost more than one copy.
pub(crate) struct Check(Vec<u8>);

impl Default for Check {
    fn default() -> Self {
        Self(Vec::with_capacity(ROW_BYTES))
    }
}

impl Check {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as i64);
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn number(&mut self, number: i64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// What a claim has besides the usual, but for the number of its delivery; nothing of one that has nothing, as all
    /// had once.
    pub(crate) fn progress(&mut self, claim: &Claim) {
        if claim.hot_until.is_none() && claim.progress.is_none() {
            return;
        }
        self.number(claim.hot_until.map_or(-1, |it| it.0));
        let Some(progress) = &claim.progress else { return };
        self.number(i64::from(progress.status.number()));
        self.number(progress.fence.map_or(-1, |it| it.0));
        self.number(i64::from(progress.attempts));
        self.number(progress.ended_at.map_or(-1, |it| it.0));
        self.bytes(progress.reference.as_deref().unwrap_or_default().as_bytes());
        self.bytes(progress.error_text().unwrap_or_default().as_bytes());
    }

    /// All of a message but its number.
    pub(crate) fn message(
        &mut self,
        message: &Message,
        path: Path,
        settled_at: Timestamp,
        hash_version: u16,
    ) {
        for text in [
            message.tenant.as_str(),
            message.id.as_str(),
            message.source.as_str(),
            message.target.as_str(),
            message.name.as_str(),
            &message.signed_target,
            &message.sent_at,
            message.key_text(),
            &message.signature,
            message.correlation.as_str(),
            message.traceparent.as_str(),
        ] {
            self.bytes(text.as_bytes());
        }
        self.number(message.received_at.0);
        self.number(message.registry_version);
        self.number(i64::from(hash_version));
        self.bytes(&message.domain_hash.0);
        self.bytes(path.as_str().as_bytes());
        self.number(settled_at.0);
        self.bytes(&message.payload);
        // Rows of commands, and those of the time before events, have none.
        if let Some(event) = &message.event {
            self.bytes(event.to_text().as_bytes());
        }
    }

    pub(crate) fn value(self) -> i64 {
        i64::from(crc32fast::hash(&self.0))
    }
}

/// The key of a stored message; none of one that is not signed.
pub(crate) fn key_version(text: &str) -> Result<Option<KeyVersion>, InvalidName> {
    (!text.is_empty()).then(|| KeyVersion::new(text)).transpose()
}

/// What a stored message has as an event; nothing at all of a text that no store has written.
pub(crate) fn event(text: Option<&str>) -> Option<Option<Arc<EventEnvelope>>> {
    match text {
        Some(text) => EventEnvelope::stored(text).map(|event| Some(Arc::new(event))),
        None => Some(None),
    }
}

/// What was read, if it can be used; what is damaged is told of.
pub(crate) fn usable<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Err(damaged @ StoreError::Damaged { .. }) => {
            alert(&damaged);
            Ok(None)
        }
        read => read.map(Some),
    }
}

/// Says loudly that a record is damaged; what needs it is refused, and the rest goes on.
pub(crate) fn alert(error: &StoreError) {
    tracing::error!(error = error as &dyn std::error::Error, "a stored record is damaged: run snavio doctor");
}

/// The check value of what an id means, but for the number of its message, which is added to it.
pub(crate) fn of_original(key: &IdKey, original: &Original) -> i64 {
    let mut check = Check::default();
    for text in [key.id.as_str(), key.tenant.as_str(), original.source.as_str()] {
        check.bytes(text.as_bytes());
    }
    check.bytes(&original.hash.0);
    check.number(original.expires_at.0);
    check.value()
}

/// The check value of what is known of an entity.
pub(crate) fn of_entity(key: &EntityKey, body: &str) -> i64 {
    let mut check = Check::default();
    for text in [key.tenant.as_str(), &key.scope, &key.entity, body] {
        check.bytes(text.as_bytes());
    }
    check.value()
}

/// The check value of a conflict: of everything but how often and when last it was met.
pub(crate) fn of_conflict(conflict: &Conflict) -> i64 {
    let mut check = Check::default();
    let compensating = conflict.compensating.as_ref().map_or("", MessageId::as_str);
    for text in [
        conflict.tenant.as_str(),
        conflict.owner.as_str(),
        conflict.event_id.as_str(),
        &conflict.destination,
        conflict.source.as_str(),
        conflict.state.as_str(),
        &conflict.notes,
        compensating,
    ] {
        check.bytes(text.as_bytes());
    }
    check.bytes(&conflict.original_hash.0);
    check.bytes(&conflict.hash.0);
    for number in [
        conflict.id.0,
        i64::from(conflict.place),
        conflict.original.0,
        conflict.dead_letter.0,
        conflict.flagged_at.0,
    ] {
        check.number(number);
    }
    check.value()
}

/// What a new conflict leaves besides itself and its dead letter: for the record, and for its owner (CLM-8).
pub(crate) fn opened(conflict: &Conflict) -> (Act, Deed, Record) {
    let act = Act { who: "gateway".to_owned(), why: String::new(), at: conflict.flagged_at };
    let outcome = format!(
        "{} of {} means two things: {} and {}",
        conflict.event_id, conflict.tenant, conflict.original_hash, conflict.hash
    );
    let deed = Deed { action: "conflict.open", object: conflict.id.to_string(), outcome };
    (act, deed, telemetry::conflict(conflict))
}

/// The check value of an answer.
pub(crate) fn of_answer(delivery: Serial, answer: &Answer) -> i64 {
    let mut check = Check::default();
    check.number(delivery.0);
    check.number(i64::from(answer.status));
    check.bytes(answer.content_type.as_deref().unwrap_or_default().as_bytes());
    check.bytes(&answer.body);
    check.value()
}

/// The audit entry and the telemetry record of a report under a lease that is over (CLM-7). `held` is the present lease of
/// the delivery, where the queue still has it.
pub(crate) fn fenced(
    (key, claim): &(ClaimKey, Claim),
    held: Option<HeldDelivery>,
    receipt: Receipt,
    who: &str,
    at: Timestamp,
) -> (Act, Deed, Option<Record>) {
    let act = Act { who: who.to_owned(), why: String::new(), at };
    let present = HeldDelivery::present(held, claim, at);
    let newest = present.fence.map_or_else(|| "unknown".to_owned(), |fence| fence.to_string());
    let outcome = format!(
        "{} of {} at {} is {}; the report has fence {}, the newest is {newest}",
        key.id,
        key.tenant,
        key.destination,
        present.status.as_str(),
        receipt.fence
    );
    let deed = Deed { action: "claim.fenced", object: receipt.delivery_id.to_string(), outcome };
    (act, deed, telemetry::fenced(key, &claim.source, receipt, present, at))
}

/// What an attempt leaves whose time is over: for the record (CLM-7).
pub(crate) fn lapsed(key: &ClaimKey, claim: &Claim, at: Timestamp) -> (Act, Deed) {
    let act = Act { who: "gateway".to_owned(), why: String::new(), at };
    let attempts = claim.progress.as_ref().map_or(0, |it| it.attempts);
    let outcome = format!("{} of {}: attempt {attempts} did not report back in time", key.id, key.tenant);
    (act, Deed { action: "claim.lapsed", object: key.destination.to_string(), outcome })
}

/// What is on the record of work that a person says was done.
pub(crate) fn settled(key: &ClaimKey, before: Status, reference: Option<&str>) -> Deed {
    let reference = reference.map(|it| format!(", reference {it}")).unwrap_or_default();
    let outcome = format!("{} of {}: it was {}, and is done{reference}", key.id, key.tenant, before.as_str());
    Deed { action: "claim.settle", object: key.destination.to_string(), outcome }
}

/// What is on the record of claims that were taken over.
pub(crate) fn imported(claims: &[(ClaimKey, Claim)], taken_over: usize) -> Deed {
    let object = claims.first().map(|(key, _)| format!("{} of {}", key.destination, key.tenant));
    let outcome = format!("{taken_over} of {} ids taken over", claims.len());
    Deed { action: "claims.import", object: object.unwrap_or_default(), outcome }
}
