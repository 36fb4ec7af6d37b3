//! The slow stage: settled against the store, in one durable commit shared with others (PIP-3 to PIP-5).

use std::time::Duration;

use snavio_model::refusal::{Reason, Refusal};
use snavio_model::settle::{Intake, Outcome, Settlement};

use crate::committer::{Committer, Failure, Settled};
use crate::ticket::Held;

/// When to come back after an overload or an outage.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Hands the intakes to the committer and waits for their commits; holds something until they are there.
pub(crate) async fn settle(
    intakes: Vec<Intake>,
    committer: &Committer,
    held: Held,
) -> Vec<Result<Settlement, Refusal>> {
    committer.settle(intakes, held).await.into_iter().map(judged).collect()
}

fn judged(settled: Settled) -> Result<Settlement, Refusal> {
    let settlement = settled.map_err(|failure| match failure {
        Failure::Full => {
            Refusal::retry(Reason::Overloaded, RETRY_AFTER, "too many messages wait for their commit")
        }
        Failure::Store => {
            Refusal::retry(Reason::Unavailable, RETRY_AFTER, "the store cannot take messages at the moment")
        }
    })?;
    match settlement.outcomes.first() {
        Some(Outcome::QueueFull) => {
            Err(Refusal::retry(Reason::Overloaded, RETRY_AFTER, "the route's queue holds as much as it may"))
        }
        Some(Outcome::Taken) => Err(Refusal::new(
            Reason::Conflict,
            "another service of the tenant has used this id on this route",
        )),
        Some(Outcome::Unreadable) => Err(Refusal::retry(
            Reason::Unavailable,
            RETRY_AFTER,
            "the record of this id is damaged; operators are alerted",
        )),
        Some(Outcome::TooLate) => {
            Err(Refusal::retry(Reason::Overloaded, RETRY_AFTER, "the message waited too long for its commit"))
        }
        _ => Ok(settlement),
    }
}
