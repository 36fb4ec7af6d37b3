//! Settling: the one judgement of the data plane, as load, judge, store.
//!
//! [`keys`] lists the claims to read. [`judge`] decides a batch in order on one working set, so that two
//! messages of a batch with the same id see each other. It collects the writes in a [`Delta`]. A backend only
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

use conflicting::check_content;
pub use delta::{Delta, NewConflict};
pub use intake::Intake;
pub use meaning::{compares, disputed, id_key, over, unmeant};
use meaning::{create_id_record, extend_id_record, find_id_record};
pub use ordering::Ordered;
pub use outcome::{Outcome, Settlement};
use taking::{Acceptance, Plan, plan_destination};
pub use working::{Known, Recorded, Working};

use crate::bounds;
use crate::claim::{Claim, ClaimKey};
use crate::message::Message;
use crate::name::QueueKey;
use crate::registry::BoundRoute;
use crate::time::Timestamp;

/// The claims that a backend must load before it can judge the intake.
pub fn keys(intake: &Intake) -> impl Iterator<Item = ClaimKey> {
    let claiming = intake.destinations.iter().filter(|route| route.route.claim.keep().is_some());
    claiming.map(|route| claim_key(&intake.message, route))
}

/// A claim in force at one of the intake's destinations.
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

/// Judges the intake at position `place` of a batch.
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
    let known = match find_id_record(working, intake, now) {
        Ok(known) => known,
        Err(outcome) => return all(outcome),
    };
    let mismatch = known.as_ref().and_then(|known| check_content(working, intake, place, now, delta, known));
    if let Some(outcome) = mismatch {
        return all(outcome);
    }
    let plans: Vec<_> =
        (0..intake.destinations.len()).map(|at| plan_destination(working, intake, at, now, delta)).collect();
    // PIP-13: either all destinations accept the message, or none does.
    if let Some(refusal) = plans.iter().find_map(Plan::refusal) {
        return all(refusal);
    }
    let rooms: Vec<_> = intake
        .destinations
        .iter()
        .zip(&plans)
        .map(|(route, plan)| plan.wants_room() && take_room(working, &route.queue))
        .collect();
    // A message that a destination accepted before is not refused now: that destination is independent of
    // another's full queue.
    if let Some(refusal) = ordering::refuse_unaccepted(&plans, &rooms, now, working, delta) {
        return refusal;
    }
    let message = plans.iter().any(Plan::is_new).then(|| working.next_number());
    message.into_iter().for_each(|number| delta.messages.push((number, place)));
    let mut acceptance = Acceptance { intake, message, compared_for: None, now, ordered: Vec::new() };
    let outcomes = plans.into_iter().zip(rooms).enumerate();
    let outcomes = outcomes
        .map(|(at, (plan, has_room))| acceptance.execute(at, plan, has_room, working, delta))
        .collect();
    let Acceptance { compared_for, ordered, .. } = acceptance;
    match (message, known) {
        (Some(_), Some(known)) => extend_id_record(working, intake, known, compared_for, now, delta),
        (Some(number), None) => create_id_record(working, intake, number, now, delta),
        (None, _) => {}
    }
    Settlement { message, outcomes, ordered }
}

/// REG-15: whether the permission of the message is too old to act on, because it may have been revoked.
fn is_outdated(working: &Working, intake: &Intake, now: Timestamp) -> bool {
    let is_permitted_by = |version| version == intake.message.registry_version;
    now >= intake.good_until
        || intake.asks_registry() && !working.registry_version.is_some_and(is_permitted_by)
}

/// The outcome at a destination with an existing claim; `None` if the message is new there. CLM-4: of racing
/// messages with one id, the first one judged wins, and the others are its duplicates.
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
        // A claim has expired at its exact end. So a wait of exactly the slack is already too long.
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
