//! The results of settling: for a message, and for each of its destinations.

use super::Ordered;
use crate::claim::Status;
use crate::delivery::DeadReason;
use crate::id::Serial;
use crate::refusal::{Numbers, Reason};
use crate::time::Timestamp;

/// The result for an intake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The number of the message in the log; `None` if no destination accepted it.
    pub message: Option<Serial>,
    /// The outcome at each destination, in order.
    pub outcomes: Vec<Outcome>,
    /// The position at those destinations that order.
    pub ordered: Vec<Ordered>,
}

impl Settlement {
    /// The result for a message without order.
    pub fn unordered(message: Option<Serial>, outcomes: Vec<Outcome>) -> Self {
        Self { message, outcomes, ordered: Vec::new() }
    }
}

/// The result for a message at one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Claimed if the route claims ids, and in the queue.
    Queued { delivery: Serial },
    /// Claimed, and waiting for a gap to fill (ORD-3).
    Held { delivery: Serial },
    /// Claimed, and parked behind a message of its entity that failed for good (ORD-7).
    Parked { delivery: Serial },
    /// Late on a route that skips late messages: claimed and recorded, and not delivered (ORD-3).
    Skipped,
    /// Late on a route that refuses late messages (ORD-3, ORD-4).
    OutOfOrder {
        reason: Reason,
        numbers: Numbers,
        /// Whether it is late at all destinations, and so can never be accepted. A destination that cannot
        /// read its number may accept it after its route is corrected.
        everywhere: bool,
    },
    /// Seen before; nothing was dispatched.
    Duplicate {
        /// The time of the first message with this id.
        first_seen_at: Timestamp,
    },
    /// Seen before on a tracked route (CLM-5 to CLM-7); nothing was dispatched.
    Seen {
        /// The delivery with the work.
        delivery: Serial,
        /// Whether the number of the delivery was assigned in this batch.
        is_new: bool,
        /// The status of the claim.
        status: Status,
        /// The time of the first message with this id.
        first_seen_at: Timestamp,
        /// The expiry of the claim.
        kept_until: Timestamp,
    },
    /// Another service of the tenant has used the id (CLM-1).
    Taken,
    /// The id was used with different content (CLM-8); nothing was dispatched, and both contents are
    /// recorded.
    Conflict {
        conflict: Serial,
        /// Whether the number of the conflict was assigned in this batch.
        is_new: bool,
    },
    /// A dead letter at once: the queue is full, and other destinations accepted the event (PIP-13).
    Buried { delivery: Serial, reason: DeadReason },
    /// The queue is full.
    QueueFull,
    /// The record of the id is damaged, so the gateway cannot know whether it was seen.
    Unreadable,
    /// The storage engine cannot hold a value of the message.
    Unfit,
    /// It waited so long that the claim of an earlier copy may have expired (CLM-20).
    TooLate,
    /// Its permission is too old, or the store's registry has changed. The message must be permitted again
    /// (REG-15).
    Outdated,
}

impl Outcome {
    /// Whether this outcome at one destination refuses the message at all of them.
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
