//! The slow stage: settles messages against the store in a durable commit that many messages share (PIP-3 to
//! PIP-5).

use snavio_model::refusal::{Reason, Refusal};
use snavio_model::settle::{Ordered, Outcome, Settlement};

use crate::commit::committer::{Committer, Failure, Settled, Submission};
use crate::commit::ticket::Held;

/// Submits intakes to the committer, at most one request's portion at a time, and waits for their commits.
/// `held` is dropped after the last commit.
pub(crate) async fn settle(
    submissions: Vec<Submission>,
    committer: &Committer,
    held: Held,
) -> Vec<SettledMessage> {
    let mut portions = portions(submissions, committer.portion());
    let last = portions.pop().unwrap_or_default();
    let mut all = Vec::new();
    for portion in portions {
        all.extend(committer.settle(portion, Box::new(())).await.into_iter().map(SettledMessage::from));
    }
    all.extend(committer.settle(last, held).await.into_iter().map(SettledMessage::from));
    all
}

/// Splits intakes, in their order, into portions that count as at most `max` messages. A larger message is a
/// portion of its own.
fn portions(submissions: Vec<Submission>, max: usize) -> Vec<Vec<Submission>> {
    let (mut portions, mut portion, mut items) = (Vec::new(), Vec::new(), 0);
    for submission in submissions {
        let size = submission.intake.size().items;
        if !portion.is_empty() && items + size > max {
            portions.push(std::mem::take(&mut portion));
            items = 0;
        }
        items += size;
        portion.push(submission);
    }
    portions.push(portion);
    portions
}

/// The result of a message, and its position in the order of its entities, also if it was refused.
pub(crate) struct SettledMessage {
    pub(crate) judged: Result<Settlement, Refusal>,
    pub(crate) ordered: Vec<Ordered>,
}

impl From<Settled> for SettledMessage {
    fn from(settled: Settled) -> Self {
        let ordered = settled.as_ref().map_or_else(|_| Vec::new(), |settlement| settlement.ordered.clone());
        Self { ordered, judged: judged(settled) }
    }
}

/// The refusal that follows from a settlement, if any.
pub(crate) fn judged(settled: Settled) -> Result<Settlement, Refusal> {
    let settlement = settled.map_err(|failure| match failure {
        Failure::Full => Refusal::new(Reason::Overloaded, "too many messages wait for their commit"),
        Failure::Store => Refusal::new(Reason::Unavailable, "the store cannot take messages now"),
        Failure::Lost => Refusal::lost("the store gave no answer"),
    })?;
    // A message is refused as a whole or not at all (PIP-13).
    let refusal = settlement.outcomes.iter().find(|outcome| outcome.is_refusal());
    let (reason, detail) = match refusal {
        Some(
            Outcome::Queued { .. }
            | Outcome::Held { .. }
            | Outcome::Parked { .. }
            | Outcome::Skipped
            | Outcome::Buried { .. }
            | Outcome::Duplicate { .. }
            | Outcome::Seen { .. },
        )
        | None => return Ok(settlement),
        Some(Outcome::OutOfOrder { reason, numbers, everywhere }) => {
            let detail = match reason {
                Reason::SequenceConflict => "another message of its entity has its number",
                Reason::EntityClosed => "its entity is closed, and its number is not above the last one",
                _ => "its number is below the last one of its entity",
            };
            let (numbers, is_for_good) = (Some(Box::new(*numbers)), *everywhere);
            return Err(Refusal { numbers, is_for_good, ..Refusal::new(*reason, detail) });
        }
        Some(Outcome::QueueFull) => (Reason::Overloaded, "the route's queue is full"),
        Some(Outcome::TooLate) => (Reason::Overloaded, "the message waited too long for its commit"),
        Some(Outcome::Taken) => {
            (Reason::Conflict, "another service of the tenant has used this id on this route")
        }
        Some(Outcome::Conflict { conflict, .. }) => {
            let detail = format!("this id was already used with different content (conflict {conflict})");
            return Err(Refusal { conflict: Some(*conflict), ..Refusal::new(Reason::Conflict, detail) });
        }
        Some(Outcome::Unfit) => (Reason::Malformed, "the message has a character that the store cannot keep"),
        Some(Outcome::Outdated) => {
            (Reason::Unavailable, "the registry data that permitted the message was too old at its commit")
        }
        Some(Outcome::Unreadable) => {
            (Reason::Unavailable, "the record of this id is damaged; operators are alerted")
        }
    };
    let outdated = matches!(refusal, Some(Outcome::Outdated));
    Err(Refusal { outdated, ..Refusal::new(reason, detail) })
}

#[cfg(test)]
mod tests {
    use snavio_model::delivery::DeadReason;
    use snavio_model::id::Serial;
    use snavio_model::refusal::Numbers;
    use snavio_model::time::Timestamp;

    use super::*;

    /// PIP-4, CLM-20, MSG-12
    #[test]
    fn settlement_maps_to_its_refusal() {
        let outcome = |outcome| Ok(Settlement::unordered(None, vec![outcome]));
        let late = |reason| {
            let numbers = Numbers { number: 1, last: 2 };
            outcome(Outcome::OutOfOrder { reason, numbers, everywhere: true })
        };
        for (settled, reason, in_doubt) in [
            (outcome(Outcome::Queued { delivery: Serial(1) }), None, false),
            (outcome(Outcome::Duplicate { first_seen_at: Timestamp(0) }), None, false),
            (outcome(Outcome::Buried { delivery: Serial(1), reason: DeadReason::QueueFull }), None, false),
            (outcome(Outcome::Held { delivery: Serial(1) }), None, false),
            (outcome(Outcome::Parked { delivery: Serial(1) }), None, false),
            (outcome(Outcome::Skipped), None, false),
            (late(Reason::OutOfOrder), Some(Reason::OutOfOrder), false),
            (late(Reason::SequenceConflict), Some(Reason::SequenceConflict), false),
            (late(Reason::EntityClosed), Some(Reason::EntityClosed), false),
            (outcome(Outcome::Taken), Some(Reason::Conflict), false),
            (outcome(Outcome::Conflict { conflict: Serial(1), is_new: true }), Some(Reason::Conflict), false),
            (outcome(Outcome::QueueFull), Some(Reason::Overloaded), false),
            (outcome(Outcome::TooLate), Some(Reason::Overloaded), false),
            (outcome(Outcome::Unfit), Some(Reason::Malformed), false),
            (outcome(Outcome::Outdated), Some(Reason::Unavailable), false),
            (outcome(Outcome::Unreadable), Some(Reason::Unavailable), false),
            (Err(Failure::Full), Some(Reason::Overloaded), false),
            (Err(Failure::Store), Some(Reason::Unavailable), false),
            (Err(Failure::Lost), Some(Reason::Unavailable), true),
        ] {
            let refusal = judged(settled.clone()).err();
            let refusal = refusal.map(|refusal| (refusal.reason, refusal.in_doubt));
            assert_eq!(refusal, reason.map(|reason| (reason, in_doubt)), "{settled:?}");
        }
    }
}
