//! What may be moved to the archive, and why the rest stays (CLM-15, CLM-16, CLM-18).

use crate::bounds;
use crate::claim::{Claim, Status};
use crate::time::Timestamp;

/// Who still needs a message where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needed {
    /// It waits in a queue, or somebody works on it.
    pub by_delivery: bool,
    /// It is a dead letter that a person may put back.
    pub by_dead_letter: bool,
    /// Somebody has yet to decide what its id means.
    pub by_conflict: bool,
    /// Its hash is in no other row: without it contents could not be compared.
    pub by_its_hash: bool,
}

/// Why a message stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stays {
    /// Its time beside the claim is not over, or its telemetry may still be read off it.
    Hot,
    /// Work on it has not ended, or nobody knows whether it has.
    Unfinished,
    /// Somebody needs it.
    Needed,
}

/// Why a message stays, if it does: judged by all claims that it won, of whatever policy. Decides and touches nothing.
pub fn stays(received_at: Timestamp, claims: &[Claim], needed: Needed, now: Timestamp) -> Option<Stays> {
    let is_hot = |it: &Claim| it.hot_until.is_some_and(|until| now < until);
    let is_unread = now < received_at.plus(bounds::TELEMETRY_RETENTION);
    let is_kept = claims.iter().any(|it| it.hot_until.is_some());
    if !is_kept || is_unread || claims.iter().any(is_hot) {
        return Some(Stays::Hot);
    }
    let has_ended = |it: &Claim| matches!(it.status(), Status::Completed | Status::Failed { is_final: true });
    if !claims.iter().all(has_ended) {
        return Some(Stays::Unfinished);
    }
    let Needed { by_delivery, by_dead_letter, by_conflict, by_its_hash } = needed;
    (by_delivery || by_dead_letter || by_conflict || by_its_hash).then_some(Stays::Needed)
}
