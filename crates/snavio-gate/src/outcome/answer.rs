//! What became of a message that was not refused, at each of its destinations (PIP-13).

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

/// What became of a message at one destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Durable, and on its way.
    Accepted {
        /// How it was decided.
        path: Path,
        /// Its delivery.
        delivery: Serial,
        /// Whether it is handed out as soon as anybody asks.
        standing: Standing,
    },
    /// Seen before: nothing was dispatched.
    Duplicate {
        /// When it was first seen, where that is known.
        first_seen_at: Option<Timestamp>,
    },
    /// What became of it is known: now, or since it was sent before.
    Followed(Box<Followed>),
    /// It was sent to several, and there is no answer of this one.
    Unanswered {
        /// Why.
        refusal: Refusal,
        /// Whether it was sent before.
        is_replay: bool,
    },
    /// Late in the order of its entity: durable, and left out (ORD-3).
    Skipped,
    /// Durable, and a dead letter.
    Buried {
        /// Its delivery.
        delivery: Serial,
        /// Why.
        reason: DeadReason,
    },
}

/// When a message is handed out that was taken (ORD-3, ORD-7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// When it is its turn in its queue.
    Free,
    /// When those before it in its entity have come, or its wait is over.
    Waiting,
    /// When one of its entity that failed for good is mended or skipped.
    Parked,
}

impl Verdict {
    /// What an outcome means; nothing of one that refuses the message.
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

    /// How it was decided, if it was taken now and not before.
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

/// A destination that a message was for, and what became of it there.
#[derive(Debug, Clone)]
pub struct Reached {
    /// The destination in claims and deliveries.
    pub destination: Arc<str>,
    /// By whom it is processed.
    pub processing: ProcessingKind,
    /// How its route treats repeats.
    pub dedupe_mode: &'static str,
    /// What became of it.
    pub verdict: Verdict,
    /// Whether its route orders, and took it without an order: it has no entity, or no number that counts there (ORD-1).
    pub passes_unordered: bool,
}

/// The answer to a message that was not refused.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The message's id.
    pub id: MessageId,
    /// Its correlation id.
    pub correlation: CorrelationId,
    /// Its trace.
    pub traceparent: Traceparent,
    /// What kind of message it is.
    pub kind: MessageKind,
    /// The service it is for; of an event its publisher.
    pub target: ServiceName,
    /// The command, or the event's type.
    pub name: CommandName,
    /// Its destinations: one of a command, one for each subscription of an event.
    pub reached: Vec<Reached>,
}

impl Answer {
    /// To a message that is known to have been accepted before by all of these.
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

    /// The same, where this became of it at each destination.
    pub(crate) fn with(mut self, verdict: Verdict) -> Self {
        self.reached.iter_mut().for_each(|it| it.verdict = verdict.clone());
        self
    }

    /// The same, which these destinations order and took without an order.
    pub(crate) fn passing_unordered(mut self, destinations: &[usize]) -> Self {
        for at in destinations {
            if let Some(reached) = self.reached.get_mut(*at) {
                reached.passes_unordered = reached.verdict.taken_by().is_some();
            }
        }
        self
    }

    /// How it was decided, if any of its destinations took it now and not before.
    pub fn taken_by(&self) -> Option<Path> {
        self.reached.iter().find_map(|it| it.verdict.taken_by())
    }

    /// Whether it is new, and late wherever it is: recorded, and nothing comes of it (ORD-3).
    pub fn is_left_out(&self) -> bool {
        let is_nothing = |it: &Reached| it.verdict == Verdict::Skipped || it.verdict.taken_by().is_none();
        self.taken_by().is_some() && self.reached.iter().all(is_nothing)
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
