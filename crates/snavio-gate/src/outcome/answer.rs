//! The answer to a message that was not refused, with a verdict for each destination (PIP-13).

use std::sync::Arc;

use snavio_model::delivery::DeadReason;
use snavio_model::delivery::processing::ProcessingKind;
use snavio_model::id::{MessageId, Serial};
use snavio_model::message::trace::{CorrelationId, Traceparent};
use snavio_model::message::{Message, MessageKind, Path};
use snavio_model::name::{CommandName, ServiceName};
use snavio_model::refusal::{Refusal, Subject};
use snavio_model::registry::BoundRoute;
use snavio_model::settle::Outcome;
use snavio_model::time::Timestamp;

use crate::outcome::follow::Followed;

/// The verdict for a message at one destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Committed and queued.
    Accepted {
        /// The path that the message took.
        path: Path,
        /// The id of the delivery.
        delivery: Serial,
        /// Whether a consumer can receive it now.
        standing: Standing,
    },
    /// Seen before; nothing was dispatched.
    Duplicate {
        /// The time of the first message with this id, if it is known.
        first_seen_at: Option<Timestamp>,
    },
    /// The outcome is known: the work ended now, or the message is a duplicate.
    Followed(Box<Followed>),
    /// An event with several subscriptions, and this one has no response yet.
    Unanswered {
        refusal: Refusal,
        /// Whether the message is a duplicate.
        is_replay: bool,
    },
    /// Late in the order of its entity: recorded, and not delivered (ORD-3).
    Skipped,
    /// Committed as a dead letter.
    Buried {
        /// The id of the delivery.
        delivery: Serial,
        reason: DeadReason,
    },
}

/// When an accepted message becomes visible to consumers (ORD-3, ORD-7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Visible now.
    Free,
    /// Visible when the missing messages of its entity have come, or when its wait ends.
    Waiting,
    /// Visible when the failed message of its entity is fixed or skipped.
    Parked,
}

impl Verdict {
    /// The verdict of an outcome, or `None` if the outcome refuses the message.
    pub(crate) fn of(outcome: Outcome, path: Path) -> Option<Self> {
        Some(match outcome {
            Outcome::Queued { delivery } => Self::Accepted { path, delivery, standing: Standing::Free },
            Outcome::Held { delivery } => Self::Accepted { path, delivery, standing: Standing::Waiting },
            Outcome::Parked { delivery } => Self::Accepted { path, delivery, standing: Standing::Parked },
            Outcome::Skipped => Self::Skipped,
            Outcome::Buried { delivery, reason } => Self::Buried { delivery, reason },
            Outcome::Duplicate { first_seen_at } => Self::Duplicate { first_seen_at: Some(first_seen_at) },
            Outcome::Seen { delivery, status, first_seen_at, kept_until, .. } => {
                Self::Followed(Box::new(Followed::seen(delivery, status, first_seen_at, kept_until)))
            }
            Outcome::OutOfOrder { .. }
            | Outcome::Taken
            | Outcome::Conflict { .. }
            | Outcome::QueueFull
            | Outcome::Unreadable
            | Outcome::TooLate
            | Outcome::Outdated
            | Outcome::Unfit => return None,
        })
    }

    /// The path, if the message was accepted now and is not a duplicate.
    pub fn taken_by(&self) -> Option<Path> {
        match self {
            Self::Accepted { path, .. } => Some(*path),
            Self::Buried { .. } | Self::Skipped => Some(Path::Slow),
            Self::Followed(followed) => (!followed.is_replay).then_some(Path::Slow),
            Self::Unanswered { is_replay, .. } => (!is_replay).then_some(Path::Slow),
            Self::Duplicate { .. } => None,
        }
    }
}

/// A destination of a message, with the verdict there.
#[derive(Debug, Clone)]
pub struct Reached {
    /// The destination's name in claims and deliveries.
    pub destination: Arc<str>,
    /// The kind of processing.
    pub processing: ProcessingKind,
    /// The claim policy of the route.
    pub dedupe_mode: &'static str,
    pub verdict: Verdict,
    /// Whether the route is ordered and accepted the message without an order, because the message has no
    /// entity or no number that counts there (ORD-1).
    pub passes_unordered: bool,
}

/// The answer to a message that was not refused.
#[derive(Debug, Clone)]
pub struct Answer {
    pub id: MessageId,
    pub correlation: CorrelationId,
    pub traceparent: Traceparent,
    pub kind: MessageKind,
    /// The target of a command, or the publisher of an event.
    pub target: ServiceName,
    /// The command's name or the event type.
    pub name: CommandName,
    /// The destinations: one for a command, one for each subscription for an event.
    pub reached: Vec<Reached>,
}

impl Answer {
    /// The answer to a message that all these destinations accepted before.
    pub(crate) fn known(message: &Message, routes: &[Arc<BoundRoute>]) -> Self {
        let reached = |route: &Arc<BoundRoute>| Reached {
            destination: Arc::clone(&route.destination),
            processing: route.route.processing.kind,
            dedupe_mode: route.route.claim.name(),
            verdict: Verdict::Duplicate { first_seen_at: None },
            passes_unordered: false,
        };
        Self {
            id: message.id.clone(),
            correlation: message.correlation.clone(),
            traceparent: message.traceparent.clone(),
            kind: message.kind(),
            target: message.target.clone(),
            name: message.name.clone(),
            reached: routes.iter().map(reached).collect(),
        }
    }

    /// The same answer with this verdict at every destination.
    pub(crate) fn with(mut self, verdict: Verdict) -> Self {
        self.reached.iter_mut().for_each(|reached| reached.verdict = verdict.clone());
        self
    }

    /// The same answer, with these destinations marked as ordered and passed without an order.
    pub(crate) fn passing_unordered(mut self, destinations: &[usize]) -> Self {
        for at in destinations {
            if let Some(reached) = self.reached.get_mut(*at) {
                reached.passes_unordered = reached.verdict.taken_by().is_some();
            }
        }
        self
    }

    /// The path, if any destination accepted the message now and not before.
    pub fn taken_by(&self) -> Option<Path> {
        self.reached.iter().find_map(|reached| reached.verdict.taken_by())
    }

    /// Whether the message is new and late at all its destinations: it is recorded and not delivered (ORD-3).
    pub fn is_left_out(&self) -> bool {
        let mut verdicts = self.reached.iter().map(|reached| &reached.verdict);
        self.taken_by().is_some()
            && verdicts.all(|verdict| *verdict == Verdict::Skipped || verdict.taken_by().is_none())
    }

    pub(crate) fn subject(&self) -> Subject {
        Subject {
            kind: self.kind,
            id: Some(self.id.clone()),
            target: Some(self.target.clone()),
            name: Some(self.name.clone()),
            correlation: Some(self.correlation.clone()),
            traceparent: Some(self.traceparent.clone()),
        }
    }
}
