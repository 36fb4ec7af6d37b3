//! What became of a message at one destination, as its sender reads it (PIP-13).

use http::StatusCode;
use serde::Serialize;
use snavio_gate::{Reached, Standing, Verdict};
use snavio_model::claim::Status;
use snavio_model::id::MessageId;
use snavio_model::percent::in_url;
use snavio_model::refusal::Reason;
use snavio_model::time::Timestamp;
use utoipa::ToSchema;

use super::processed::{AnswerDocument, Processed, processed};

/// What became of an event at one of its subscriptions.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Subscribed {
    /// The subscription: `tenant/service:publisher:type`.
    destination: String,
    /// `accepted`, `waiting` (accepted, and waits for those before it in its entity), `parked` (accepted, and queues behind
    /// one of its entity that failed for good), `duplicate`, `processed` (its work is complete), `skipped` (late where late ones are left out),
    /// `unanswered` (there is no answer of it) or `dead_letter`.
    verdict: &'static str,
    /// `false` where the subscription orders by entity, and the event has no entity or no number that counts there.
    #[serde(skip_serializing_if = "Option::is_none")]
    ordered: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_seen_at: Option<String>,
    /// Where to ask what became of it, while it is being processed.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    /// Why there is no answer yet, or why it was left out or is a dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// What became of it, where that is known.
    #[serde(flatten)]
    processed: Option<Processed>,
}

impl Subscribed {
    pub(super) fn answer(&mut self) -> Option<&mut AnswerDocument> {
        self.processed.as_mut().map(Processed::answer)
    }

    /// The only one: what became of it there is what became of the event, and is not said twice.
    pub(super) fn alone(id: &MessageId, reached: &Reached) -> Self {
        let (first_seen_at, outcome, processed) = (None, None, None);
        Self { first_seen_at, outcome, processed, ..Self::new(id, reached) }
    }

    pub(super) fn new(id: &MessageId, reached: &Reached) -> Self {
        let told = Told::of(id, reached);
        let (verdict, reason) = match &reached.verdict {
            Verdict::Accepted { standing: Standing::Free, .. } => ("accepted", None),
            Verdict::Accepted { standing: Standing::Waiting, .. } => ("waiting", None),
            Verdict::Accepted { standing: Standing::Parked, .. } => ("parked", None),
            Verdict::Duplicate { .. } => ("duplicate", None),
            Verdict::Followed(followed) if followed.status == Status::Completed => ("processed", None),
            Verdict::Followed(_) => ("accepted", None),
            Verdict::Skipped => ("skipped", Some(Reason::OutOfOrder.code())),
            Verdict::Unanswered { refusal, .. } => ("unanswered", Some(refusal.reason.code())),
            Verdict::Buried { reason, .. } => ("dead_letter", Some(reason.as_str())),
        };
        Self {
            destination: reached.destination.to_string(),
            verdict,
            ordered: reached.passes_unordered.then_some(false),
            delivery_id: told.delivery_id,
            first_seen_at: told.first_seen_at,
            outcome: told.outcome,
            reason,
            processed: told.processed,
        }
    }
}

/// What is told of a destination.
pub(super) struct Told {
    pub(super) status: StatusCode,
    pub(super) delivery_id: Option<i64>,
    pub(super) first_seen_at: Option<String>,
    pub(super) outcome: Option<String>,
    pub(super) processed: Option<Processed>,
}

impl Told {
    pub(super) fn of(id: &MessageId, reached: &Reached) -> Self {
        let first_seen_at = first_seen_at(&reached.verdict).map(|at| at.to_string());
        let told = Self {
            status: StatusCode::ACCEPTED,
            delivery_id: None,
            first_seen_at,
            outcome: None,
            processed: None,
        };
        match &reached.verdict {
            Verdict::Accepted { delivery, .. } => {
                let is_followed = reached.processing.is_tracked();
                let outcome = is_followed.then(|| format!("/v1/claims/{}", in_url(id.as_str())));
                Self { delivery_id: Some(delivery.0), outcome, ..told }
            }
            Verdict::Buried { delivery, .. } => Self { delivery_id: Some(delivery.0), ..told },
            Verdict::Followed(followed) => {
                let (status, processed) = processed(followed);
                Self { status, delivery_id: Some(followed.delivery.0), processed: Some(processed), ..told }
            }
            Verdict::Skipped | Verdict::Duplicate { .. } | Verdict::Unanswered { .. } => {
                Self { status: StatusCode::OK, ..told }
            }
        }
    }
}

/// When a message was first seen that was sent before.
pub(super) fn first_seen_at(verdict: &Verdict) -> Option<Timestamp> {
    match verdict {
        Verdict::Duplicate { first_seen_at } => *first_seen_at,
        Verdict::Followed(followed) => Some(followed.first_seen_at),
        Verdict::Accepted { .. } | Verdict::Skipped | Verdict::Unanswered { .. } | Verdict::Buried { .. } => {
            None
        }
    }
}
