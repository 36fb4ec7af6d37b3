//! Deliveries: a message on its way to one destination, its leases, and what ends it (DLV-2, DLV-3).

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

/// A message waiting in a queue. Its id stays the same over attempts and redrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its id.
    pub id: Serial,
    /// The message it carries.
    pub message: Serial,
    /// The route it came by.
    pub destination: Arc<str>,
    /// The queue it waits in.
    pub queue: QueueKey,
    /// Where it goes when it cannot be processed.
    pub dead_letter_queue: QueueKey,
    /// When it was enqueued.
    pub queued_at: Timestamp,
    /// How often it was handed out.
    pub receives: u32,
    /// How often it may be.
    pub receives_max: u32,
    /// Whether a claim waits for what becomes of it.
    pub tracking: Tracking,
    /// The lane it is in, where one message of an entity is handed out at a time.
    pub lane: Option<Box<Lane>>,
}

/// Whether a claim waits for what becomes of a delivery, and what follows an attempt of which nobody knows (CLM-7, CLM-9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tracking {
    /// It is complete when it is enqueued.
    #[default]
    Plain,
    /// It is handed out again.
    Retry,
    /// It is held for a person. Such a delivery is handed out only once that is on stable storage.
    Hold,
}

impl Tracking {
    /// The number in stores; never used for anything else.
    pub fn number(self) -> i16 {
        match self {
            Self::Plain => 0,
            Self::Retry => 1,
            Self::Hold => 2,
        }
    }

    /// Takes back what [`Tracking::number`] gave.
    pub fn stored(number: i16) -> Self {
        match number {
            0 => Self::Plain,
            2 => Self::Hold,
            _ => Self::Retry,
        }
    }

    /// Whether a claim waits for it.
    pub fn is_tracked(self) -> bool {
        self != Self::Plain
    }
}

impl Delivery {
    /// Whether later ones of its entity stay behind it when it fails for good (ORD-7).
    pub fn parks(&self) -> bool {
        self.lane.as_ref().is_some_and(|it| it.parks.is_some())
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

    /// Why the delivery must not be handed out again, if so.
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

/// What a consumer must show to end or extend a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Receipt {
    /// The delivery.
    pub delivery_id: Serial,
    /// The fence it was handed out under.
    pub fence: Serial,
}

/// The answer to a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ReceiptOutcome {
    /// Done, and durable.
    Done,
    /// There is no such delivery any more: acknowledged before, dead-lettered or purged.
    Gone,
    /// It is not the newest lease: the work is somebody else's now.
    Fenced,
}

/// Judges a receipt for a delivery that is there. Of the leases given since the store was opened only the newest
/// counts. Where none was, an acknowledgement from before a restart stands, if it can be one: fences are numbered
/// after their deliveries, and `began` is where those of this start begin. One lease of that time may be on record; a
/// later one may have been given that is not.
pub fn check_receipt(receipt: Receipt, newest: Option<Serial>, began: Serial) -> ReceiptOutcome {
    let stands = match newest {
        Some(fence) if fence > began => receipt.fence == fence,
        Some(fence) => fence <= receipt.fence && receipt.fence <= began,
        None => receipt.delivery_id < receipt.fence && receipt.fence <= began,
    };
    if stands { ReceiptOutcome::Done } else { ReceiptOutcome::Fenced }
}

/// Why a delivery became a dead letter. Later capabilities add reasons, not tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum DeadReason {
    /// Handed out as often as its route allows, and never acknowledged.
    ReceivesExhausted,
    /// Nobody took it in time.
    RetentionExpired,
    /// Its id means something else already: it is never put back (CLM-8).
    Conflict,
    /// Its processor refused it for good (CLM-6).
    Failed,
    /// Nobody knows whether it is done, and its route holds it for a person (CLM-7).
    InDoubt,
    /// Its queue was purged while a claim waited for it.
    Purged,
    /// It came after a later one of its entity, at a subscription that refuses that (ORD-3).
    OutOfOrder,
    /// Its queue held as much as it may when the event came, and others took it (PIP-13).
    QueueFull,
    /// Its entity or its number cannot be read as its subscription orders, and others took the event (PIP-13).
    OrderUnreadable,
}

impl DeadReason {
    /// The word in answers and stores.
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

    /// Takes back what [`DeadReason::as_str`] gave.
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
        all.into_iter().find(|it| it.as_str() == text)
    }
}

/// A delivery that could not be processed, kept with its reason and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The delivery as it ended.
    pub delivery: Delivery,
    /// Why.
    pub reason: DeadReason,
    /// What went wrong with its last attempt, where somebody said so (DLV-4).
    pub error: Option<String>,
    /// When.
    pub dead_at: Timestamp,
}

impl DeadLetter {
    /// One that nobody said anything about.
    pub fn new(delivery: Delivery, reason: DeadReason, dead_at: Timestamp) -> Self {
        Self { delivery, reason, error: None, dead_at }
    }

    /// The conflict that it is the evidence of (CLM-8): its number is the one before the dead letter's.
    pub fn conflict(&self) -> Option<Serial> {
        (self.reason == DeadReason::Conflict).then(|| Serial(self.delivery.id.0 - 1))
    }

    /// With what went wrong last, if anything did.
    #[must_use]
    pub fn after(self, ending: &Ending) -> Self {
        let printable = |it: char| if it.is_control() { ' ' } else { it };
        let short = |error: &str| error.chars().map(printable).take(bounds::ERROR_CHARS_MAX).collect();
        Self { error: ending.error().map(short), ..self }
    }

    /// Why, as stores keep it: the reason's word, and what went wrong behind it.
    pub fn reason_text(&self) -> String {
        match &self.error {
            Some(error) => format!("{}{REASON_END}{error}", self.reason.as_str()),
            None => self.reason.as_str().to_owned(),
        }
    }

    /// Takes back what [`DeadLetter::reason_text`] gave.
    pub fn stored_reason(text: &str) -> Option<(DeadReason, Option<String>)> {
        let (word, error) = match text.split_once(REASON_END) {
            Some((word, error)) => (word, Some(error.to_owned())),
            None => (text, None),
        };
        Some((DeadReason::stored(word)?, error))
    }
}

/// What is between a reason's word and what went wrong, in stores.
const REASON_END: &str = ": ";

/// What is known of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueAttributes {
    /// Deliveries that may be received now.
    pub depth: u64,
    /// Deliveries handed out and not yet ended.
    pub in_flight: u64,
    /// Deliveries that a consumer gave back for later.
    pub delayed: u64,
    /// How long the oldest has been waiting.
    pub oldest_age_seconds: u64,
    /// Dead letters that gathered here.
    pub dead_letters: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DLV-4
    #[test]
    fn what_went_wrong_last_is_kept_behind_the_reason() {
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
        let told = plain.clone().after(&Ending::Unknown { error: "lost: it may have done it".to_owned() });
        assert_eq!(told.reason_text(), "failed: lost: it may have done it");
        for letter in [plain.clone(), told] {
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
    fn an_acknowledgement_stands_under_the_newest_lease_or_one_from_before_the_start() {
        let receipt = Receipt { delivery_id: Serial(5), fence: Serial(10) };
        for (newest, began, outcome) in [
            (Some(Serial(10)), Serial(0), ReceiptOutcome::Done),
            (Some(Serial(11)), Serial(0), ReceiptOutcome::Fenced),
            (Some(Serial(9)), Serial(0), ReceiptOutcome::Fenced),
            (None, Serial(10), ReceiptOutcome::Done),
            (None, Serial(9), ReceiptOutcome::Fenced),
            // On record from before the start: it counts, and so does one after it whose record was lost.
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
