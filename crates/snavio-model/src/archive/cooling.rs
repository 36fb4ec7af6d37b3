//! Which messages may move to the archive, and why others stay (CLM-15, CLM-16, CLM-18).

use crate::bounds;
use crate::claim::{Claim, Status};
use crate::time::Timestamp;

/// The records that still need a message in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needed {
    /// It waits in a queue, or a worker has leased it.
    pub by_delivery: bool,
    /// An operator may redrive it.
    pub by_dead_letter: bool,
    /// A person has yet to resolve a conflict about its id.
    pub by_conflict: bool,
    /// No other row has its hash. Without it contents could not be compared.
    pub by_its_hash: bool,
}

/// Why a message stays in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stays {
    /// Its hot period has not ended, or telemetry may still read it.
    Hot,
    /// Work on it has not ended, or its outcome is unknown.
    Unfinished,
    /// [`Needed`] names the record that needs it.
    Needed,
}

/// The reason why a message stays, if any. It judges all claims that the message won, of any policy, and
/// changes nothing.
pub fn stays(received_at: Timestamp, claims: &[Claim], needed: Needed, now: Timestamp) -> Option<Stays> {
    let is_hot = |claim: &Claim| claim.hot_until.is_some_and(|until| now < until);
    let is_unread = now < received_at.plus(bounds::TELEMETRY_RETENTION);
    let is_kept = claims.iter().any(|claim| claim.hot_until.is_some());
    if !is_kept || is_unread || claims.iter().any(is_hot) {
        return Some(Stays::Hot);
    }
    let has_ended =
        |claim: &Claim| matches!(claim.status(), Status::Completed | Status::Failed { is_final: true });
    if !claims.iter().all(has_ended) {
        return Some(Stays::Unfinished);
    }
    let Needed { by_delivery, by_dead_letter, by_conflict, by_its_hash } = needed;
    (by_delivery || by_dead_letter || by_conflict || by_its_hash).then_some(Stays::Needed)
}
