//! Deliveries: messages on their way to one destination, their leases, and their ends (DLV-2, DLV-3).

pub mod breaker;
pub mod processing;
pub mod share;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::delivery::processing::Ending;
use crate::id::Serial;
use crate::name::QueueKey;
use crate::ordering::Lane;
use crate::registry::BoundRoute;
use crate::time::Timestamp;

/// A message in a queue. The id of the delivery stays the same over attempts and redrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub id: Serial,
    /// The serial of its message.
    pub message: Serial,
    /// The route or subscription that it came by.
    pub destination: Arc<str>,
    pub queue: QueueKey,
    pub dead_letter_queue: QueueKey,
    pub queued_at: Timestamp,
    /// The number of leases so far.
    pub receives: u32,
    /// The largest number of leases.
    pub receives_max: u32,
    pub tracking: Tracking,
    /// Its ordering key, on routes that deliver one message of an entity at a time.
    pub lane: Option<Box<Lane>>,
}

/// Whether a claim waits for the outcome of a delivery, and the rule for an attempt with an unknown outcome
/// (CLM-7, CLM-9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tracking {
    /// No claim waits: the work is complete when the delivery is enqueued.
    #[default]
    Plain,
    /// The delivery becomes visible again.
    Retry,
    /// A person decides. A worker gets such a delivery only once its lease is on stable storage.
    Hold,
}

impl Tracking {
    /// The number in stores. A number never gets another meaning.
    pub fn number(self) -> i16 {
        match self {
            Self::Plain => 0,
            Self::Retry => 1,
            Self::Hold => 2,
        }
    }

    /// The tracking with this number in stores.
    pub fn stored(number: i16) -> Self {
        match number {
            0 => Self::Plain,
            2 => Self::Hold,
            _ => Self::Retry,
        }
    }

    /// Whether a claim waits for the outcome.
    pub fn is_tracked(self) -> bool {
        self != Self::Plain
    }
}

impl Delivery {
    /// Whether later deliveries of its entity park behind it if it fails for good (ORD-7).
    pub fn parks(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| lane.parks.is_some())
    }

    /// A new delivery of `message` by `route`.
    pub fn new(id: Serial, message: Serial, route: &BoundRoute, now: Timestamp) -> Self {
        Self {
            id,
            message,
            destination: Arc::clone(&route.destination),
            queue: route.queue.clone(),
            dead_letter_queue: route.dead_letter_queue.clone(),
            queued_at: now,
            receives: 0,
            receives_max: route.route.receives_max,
            tracking: route.route.processing.tracking(),
            lane: None,
        }
    }

    /// The reason why no worker may lease the delivery again, if there is one.
    pub fn end_of(
        receives: u32,
        receives_max: u32,
        queued_at: Timestamp,
        now: Timestamp,
    ) -> Option<DeadReason> {
        if receives >= receives_max {
            return Some(DeadReason::ReceivesExhausted);
        }
        (now.since(queued_at) >= bounds::QUEUE_RETENTION).then_some(DeadReason::RetentionExpired)
    }
}

/// A receipt handle: a consumer shows it to end or extend a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Receipt {
    pub delivery_id: Serial,
    /// The fencing token of the lease.
    pub fence: Serial,
}

/// The answer to a receipt handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ReceiptOutcome {
    /// Done, and durable.
    Done,
    /// There is no such delivery any more: it was acknowledged before, became a dead letter, or was purged.
    Gone,
    /// This is not the newest lease: another worker has the delivery.
    Fenced,
}

/// Judges the receipt handle of an existing delivery. Among the leases since the store was opened, only the
/// newest counts.
///
/// If there is none, an acknowledgement under a lease from before the restart counts, if that lease can have
/// existed: fencing tokens have higher numbers than their deliveries, and those of this start are above
/// `began`. The store may have a record of one such lease; a later one can exist without a record.
pub fn check_receipt(receipt: Receipt, newest: Option<Serial>, began: Serial) -> ReceiptOutcome {
    let stands = match newest {
        Some(fence) if fence > began => receipt.fence == fence,
        Some(fence) => fence <= receipt.fence && receipt.fence <= began,
        None => receipt.delivery_id < receipt.fence && receipt.fence <= began,
    };
    if stands { ReceiptOutcome::Done } else { ReceiptOutcome::Fenced }
}

/// Why a delivery became a dead letter. Later features add reasons, not tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum DeadReason {
    /// Workers leased it as often as its route allows, and none acknowledged it.
    ReceivesExhausted,
    /// Its retention in the queue ended.
    RetentionExpired,
    /// Its id was already used with other content. It is never put back (CLM-8).
    Conflict,
    /// Its processor refused it for good (CLM-6).
    Failed,
    /// Its outcome is unknown, and its route holds it for a person (CLM-7).
    InDoubt,
    /// Its queue was purged while a claim waited for it.
    Purged,
    /// It came after a later message of its entity, at a subscription that refuses late messages (ORD-3).
    OutOfOrder,
    /// Its queue was full when the event came, and other subscriptions accepted the event (PIP-13).
    QueueFull,
    /// Its entity or sequence number cannot be read by the subscription's ordering settings, and other
    /// subscriptions accepted the event (PIP-13).
    OrderUnreadable,
}

impl DeadReason {
    /// The name in responses and stores.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReceivesExhausted => "receives_exhausted",
            Self::RetentionExpired => "retention_expired",
            Self::Conflict => "conflict",
            Self::Failed => "failed",
            Self::InDoubt => "in_doubt",
            Self::Purged => "purged",
            Self::OutOfOrder => "out_of_order",
            Self::QueueFull => "queue_full",
            Self::OrderUnreadable => "order_unreadable",
        }
    }

    /// The reason with this name in stores.
    pub fn stored(text: &str) -> Option<Self> {
        let all = [
            Self::ReceivesExhausted,
            Self::RetentionExpired,
            Self::Conflict,
            Self::Failed,
            Self::InDoubt,
            Self::Purged,
            Self::OutOfOrder,
            Self::QueueFull,
            Self::OrderUnreadable,
        ];
        all.into_iter().find(|reason| reason.as_str() == text)
    }
}

/// A delivery that could not be processed, kept with its reason and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The delivery as it ended.
    pub delivery: Delivery,
    pub reason: DeadReason,
    /// The error of its last attempt, if one was reported (DLV-4).
    pub error: Option<String>,
    pub dead_at: Timestamp,
}

impl DeadLetter {
    /// A dead letter without an error.
    pub fn new(delivery: Delivery, reason: DeadReason, dead_at: Timestamp) -> Self {
        Self { delivery, reason, error: None, dead_at }
    }

    /// The conflict that it is the evidence of (CLM-8). The conflict has the number before the delivery's.
    pub fn conflict(&self) -> Option<Serial> {
        (self.reason == DeadReason::Conflict).then(|| Serial(self.delivery.id.0 - 1))
    }

    /// Adds the error of the last attempt, if there was one.
    #[must_use]
    pub fn after(self, ending: &Ending) -> Self {
        let printable = |char: char| if char.is_control() { ' ' } else { char };
        let short = |error: &str| error.chars().map(printable).take(bounds::ERROR_CHARS_MAX).collect();
        Self { error: ending.error().map(short), ..self }
    }

    /// The text in stores: the name of the reason, and the error after it.
    pub fn reason_text(&self) -> String {
        match &self.error {
            Some(error) => format!("{}{REASON_END}{error}", self.reason.as_str()),
            None => self.reason.as_str().to_owned(),
        }
    }

    /// Reads the text that [`DeadLetter::reason_text`] returned.
    pub fn stored_reason(text: &str) -> Option<(DeadReason, Option<String>)> {
        let (word, error) = match text.split_once(REASON_END) {
            Some((word, error)) => (word, Some(error.to_owned())),
            None => (text, None),
        };
        Some((DeadReason::stored(word)?, error))
    }
}

/// Separates the name of the reason from the error in stores.
const REASON_END: &str = ": ";

/// The attributes of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueAttributes {
    /// Deliveries that workers can receive now.
    pub depth: u64,
    /// Deliveries under a lease.
    pub in_flight: u64,
    /// Deliveries that a consumer released for later.
    pub delayed: u64,
    /// The time for which the oldest delivery has been waiting.
    pub oldest_age_seconds: u64,
    /// Dead letters in this queue.
    pub dead_letters: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DLV-4
    #[test]
    fn last_error_is_kept_behind_the_reason() {
        let delivery = Delivery {
            id: Serial(1),
            message: Serial(0),
            destination: "acme/bot:pay".into(),
            queue: QueueKey::stored("acme/in"),
            dead_letter_queue: QueueKey::stored("acme/dead"),
            queued_at: Timestamp(0),
            receives: 5,
            receives_max: 5,
            tracking: Tracking::Plain,
            lane: None,
        };
        let plain = DeadLetter::new(delivery, DeadReason::Failed, Timestamp(7));
        assert_eq!(plain.reason_text(), "failed");
        let failed = plain.clone().after(&Ending::Unknown { error: "lost: it may have done it".to_owned() });
        assert_eq!(failed.reason_text(), "failed: lost: it may have done it");
        for letter in [plain.clone(), failed] {
            let stored = DeadLetter::stored_reason(&letter.reason_text());
            assert_eq!(stored, Some((letter.reason, letter.error)));
        }
        let long = plain.after(&Ending::Unknown { error: "ä".repeat(9_999) });
        assert_eq!(long.error.unwrap().chars().count(), bounds::ERROR_CHARS_MAX);
        for unfit in ["", "lost", "lost: failed", "failedx"] {
            assert_eq!(DeadLetter::stored_reason(unfit), None, "{unfit}");
        }
    }

    /// DLV-3
    #[test]
    fn acknowledgement_counts_under_newest_or_pre_restart_lease() {
        let receipt = Receipt { delivery_id: Serial(5), fence: Serial(10) };
        for (newest, began, outcome) in [
            (Some(Serial(10)), Serial(0), ReceiptOutcome::Done),
            (Some(Serial(11)), Serial(0), ReceiptOutcome::Fenced),
            (Some(Serial(9)), Serial(0), ReceiptOutcome::Fenced),
            (None, Serial(10), ReceiptOutcome::Done),
            (None, Serial(9), ReceiptOutcome::Fenced),
            // A recorded lease from before the start counts, and so does a later one without a record.
            (Some(Serial(10)), Serial(20), ReceiptOutcome::Done),
            (Some(Serial(9)), Serial(20), ReceiptOutcome::Done),
            (Some(Serial(11)), Serial(20), ReceiptOutcome::Fenced),
            (Some(Serial(9)), Serial(9), ReceiptOutcome::Fenced),
        ] {
            assert_eq!(check_receipt(receipt, newest, began), outcome, "{newest:?} {began:?}");
        }
        let before_itself = Receipt { delivery_id: Serial(10), fence: Serial(10) };
        assert_eq!(check_receipt(before_itself, None, Serial(99)), ReceiptOutcome::Fenced);
    }
}
