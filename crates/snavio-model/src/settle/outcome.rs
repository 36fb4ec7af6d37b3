//! What settling comes to: for a message, and for each of its destinations.

use super::Ordered;
use crate::claim::Status;
use crate::delivery::DeadReason;
use crate::id::Serial;
use crate::refusal::{Numbers, Reason};
use crate::time::Timestamp;

/// What became of an intake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The number of its message in the log; nothing if no destination took it.
    pub message: Option<Serial>,
    /// What became of it at each destination, in order.
    pub outcomes: Vec<Outcome>,
    /// How it stood at those destinations that order.
    pub ordered: Vec<Ordered>,
}

impl Settlement {
    /// Of a message that nobody ordered.
    pub fn unordered(message: Option<Serial>, outcomes: Vec<Outcome>) -> Self {
        Self { message, outcomes, ordered: Vec::new() }
    }
}

/// What became of a message at one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Claimed where the route claims, and waiting in the queue.
    Queued {
        /// The delivery's id.
        delivery: Serial,
    },
    /// Claimed, and waiting for those before it in the order of its entity (ORD-3).
    Held {
        /// The delivery's id.
        delivery: Serial,
    },
    /// Claimed, and in the queue behind one of its entity that failed for good (ORD-7).
    Parked {
        /// The delivery's id.
        delivery: Serial,
    },
    /// Late where late ones are left out: claimed and recorded, and not delivered (ORD-3).
    Skipped,
    /// Late where late ones are refused (ORD-3, ORD-4).
    OutOfOrder {
        /// The refusal's word.
        reason: Reason,
        /// How it stands.
        numbers: Numbers,
        /// Whether it is late wherever it goes: it can never be taken then. Where some cannot read its number, they may once
        /// their route reads it right.
        everywhere: bool,
    },
    /// Seen before: nothing was dispatched.
    Duplicate {
        /// When the winner was seen.
        first_seen_at: Timestamp,
    },
    /// Seen before, and what becomes of it is reported back (CLM-5 to CLM-7): nothing was dispatched.
    Seen {
        /// The delivery that carries the work.
        delivery: Serial,
        /// Whether its number was given in this very batch.
        is_new: bool,
        /// Where it stands, as far as was reported.
        status: Status,
        /// When the winner was seen.
        first_seen_at: Timestamp,
        /// Until when the claim holds.
        kept_until: Timestamp,
    },
    /// The id was taken by another service of the tenant (CLM-1).
    Taken,
    /// The id means something else already (CLM-8): nothing was dispatched, and both are on record.
    Conflict {
        /// The conflict's id.
        conflict: Serial,
        /// Whether its number was given in this very batch.
        is_new: bool,
    },
    /// A dead letter from the start: its queue holds as much as it may, and others took the event (PIP-13).
    Buried {
        /// The delivery's id.
        delivery: Serial,
        /// Why.
        reason: DeadReason,
    },
    /// The queue holds as much as it may.
    QueueFull,
    /// The record of the id is damaged: whether it was seen cannot be known.
    Unreadable,
    /// The engine cannot hold a value of the message.
    Unfit,
    /// It waited so long that the claim of an earlier copy may have ended meanwhile (CLM-20).
    TooLate,
    /// What permitted it is too old, or not what the store says now: it must be permitted anew (REG-15).
    Outdated,
}

impl Outcome {
    /// Whether nothing of the message is taken because of it, at any of its destinations.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Queued { .. }
            | Self::Held { .. }
            | Self::Parked { .. }
            | Self::Skipped
            | Self::Duplicate { .. }
            | Self::Seen { .. }
            | Self::Buried { .. } => false,
            Self::OutOfOrder { .. }
            | Self::Taken
            | Self::Conflict { .. }
            | Self::QueueFull
            | Self::Unreadable
            | Self::Unfit
            | Self::TooLate
            | Self::Outdated => true,
        }
    }
}
