//! Settling: the one judgement of the data plane, as load, judge, store.
//!
//! [`keys`] says what must be read, [`judge`] decides a batch in order on one working set, so that two messages
//! with one id in the same batch see each other, and leaves in a [`Delta`] what must be written. A backend only
//! loads, locks and writes; it decides nothing.

use std::sync::Arc;

use foldhash::HashMap;

mod conflicting;
mod delta;
mod intake;
mod meaning;
mod ordering;
mod outcome;
mod taking;
mod working;

use conflicting::check_meaning;
pub use delta::{Delta, NewConflict};
pub use intake::Intake;
pub use meaning::{compares, disputed, id_key, over, unmeant};
use meaning::{give_meaning, known, lengthen_meaning};
pub use ordering::Ordered;
pub use outcome::{Outcome, Settlement};
use taking::{Taking, Way, way};
pub use working::{Known, Recorded, Working};

use crate::bounds;
use crate::claim::{Claim, ClaimKey};
use crate::message::Message;
use crate::name::QueueKey;
use crate::registry::BoundRoute;
use crate::time::Timestamp;

/// The claims that must be read before the intake can be judged.
pub fn keys(intake: &Intake) -> impl Iterator<Item = ClaimKey> {
    let claiming = intake.destinations.iter().filter(|route| route.route.claim.keep().is_some());
    claiming.map(|route| claim_key(&intake.message, route))
}

/// A claim that holds at one of the intake's destinations.
pub fn live_claim<'a>(
    claims: &'a HashMap<ClaimKey, Claim>,
    intake: &Intake,
    now: Timestamp,
) -> Option<&'a Claim> {
    keys(intake).find_map(|key| claims.get(&key).filter(|claim| claim.is_live(now)))
}

fn claim_key(message: &Message, route: &BoundRoute) -> ClaimKey {
    ClaimKey {
        id: message.id.clone(),
        tenant: message.tenant.clone(),
        destination: Arc::clone(&route.destination),
    }
}

/// Judges the intake at `place` of a batch.
pub fn judge(
    working: &mut Working,
    intake: &Intake,
    place: usize,
    now: Timestamp,
    delta: &mut Delta,
) -> Settlement {
    let all = |outcome| Settlement::unordered(None, vec![outcome; intake.destinations.len()]);
    if is_outdated(working, intake, now) {
        return all(Outcome::Outdated);
    }
    let known = match known(working, intake, now) {
        Ok(known) => known,
        Err(outcome) => return all(outcome),
    };
    let meant = known.as_ref().and_then(|it| check_meaning(working, intake, place, now, delta, it));
    if let Some(outcome) = meant {
        return all(outcome);
    }
    let ways: Vec<_> =
        (0..intake.destinations.len()).map(|at| way(working, intake, at, now, delta)).collect();
    // PIP-13: it is taken as a whole, or not at all.
    if let Some(refusal) = ways.iter().find_map(Way::refusal) {
        return all(refusal);
    }
    let rooms: Vec<_> = intake
        .destinations
        .iter()
        .zip(&ways)
        .map(|(route, way)| way.wants_room() && take_room(working, &route.queue))
        .collect();
    // What was taken before is not refused now: who has it already knows nothing of another's full queue.
    if let Some(refusal) = ordering::refuse(&ways, &rooms, now, working, delta) {
        return refusal;
    }
    let message = ways.iter().any(Way::is_new).then(|| working.number());
    message.into_iter().for_each(|number| delta.messages.push((number, place)));
    let mut taking = Taking { intake, message, meant_for: None, now, ordered: Vec::new() };
    let outcomes = ways.into_iter().zip(rooms).enumerate();
    let outcomes =
        outcomes.map(|(at, (way, has_room))| taking.go(at, way, has_room, working, delta)).collect();
    let Taking { meant_for, ordered, .. } = taking;
    match (message, known) {
        (Some(_), Some(known)) => lengthen_meaning(working, intake, known, meant_for, now, delta),
        (Some(number), None) => give_meaning(working, intake, number, now, delta),
        (None, _) => {}
    }
    Settlement { message, outcomes, ordered }
}

/// REG-15: nothing is written by a permission that may have been taken back too long ago.
fn is_outdated(working: &Working, intake: &Intake, now: Timestamp) -> bool {
    let is_permitted_by = |version| version == intake.message.registry_version;
    now >= intake.good_until
        || intake.asks_registry() && !working.registry_version.is_some_and(is_permitted_by)
}

/// What is known of a message at a destination already; nothing if it is new there. CLM-4: of any number of racing
/// messages, the first one judged wins and the rest follow it.
fn check_claim(
    working: &Working,
    intake: &Intake,
    route: &BoundRoute,
    now: Timestamp,
    delta: &Delta,
) -> Option<Outcome> {
    route.route.claim.keep()?;
    let key = claim_key(&intake.message, route);
    if working.unreadable.contains(&key) {
        return Some(Outcome::Unreadable);
    }
    match working.claims.get(&key).filter(|claim| claim.is_live(now)) {
        Some(claim) if claim.source == intake.message.source => Some(match &claim.progress {
            None => Outcome::Duplicate { first_seen_at: claim.first_seen_at },
            Some(progress) => Outcome::Seen {
                delivery: progress.delivery,
                is_new: delta.claims.iter().any(|(new, _)| *new == key),
                status: progress.status,
                first_seen_at: claim.first_seen_at,
                kept_until: claim.expires_at,
            },
        }),
        Some(_) => Some(Outcome::Taken),
        // A claim is over at its very end, so the wait that it was made to outlast is too long at its own.
        None => {
            (now.since(intake.message.received_at) >= bounds::CLAIM_KEEP_SLACK).then_some(Outcome::TooLate)
        }
    }
}

fn take_room(working: &mut Working, queue: &QueueKey) -> bool {
    match working.room.get_mut(queue) {
        Some(0) => false,
        Some(room) => {
            *room -= 1;
            true
        }
        None => true,
    }
}

#[cfg(test)]
mod tests;
