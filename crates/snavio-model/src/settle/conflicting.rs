//! An id that means something else already (CLM-8): a record for each tenant that must decide, and one message for all of
//! them. The first record is never altered.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use std::sync::Arc;

use super::{Delta, Intake, Known, NewConflict, Outcome, Recorded, Working, id_key};
use crate::bounds;
use crate::claim::IdKey;
use crate::claim::conflict::{Conflict, ConflictState, Dispute};
use crate::delivery::{DeadLetter, DeadReason, Delivery};
use crate::id::Serial;
use crate::name::TenantName;
use crate::registry::BoundRoute;
use crate::time::Timestamp;

/// What follows from what an id means; nothing if the intake says just that, and it is its sender's.
pub(super) fn check_meaning(
    working: &mut Working,
    intake: &Intake,
    place: usize,
    now: Timestamp,
    delta: &mut Delta,
    known: &Known,
) -> Option<Outcome> {
    if known.original.hash != intake.message.domain_hash {
        return Some(conflict(working, intake, place, now, delta, known));
    }
    // CLM-1: nobody is told what another service was answered.
    (known.original.source != intake.message.source).then_some(Outcome::Taken)
}

/// Records it for each tenant that must decide, and answers with the first one's.
fn conflict(
    working: &mut Working,
    intake: &Intake,
    place: usize,
    now: Timestamp,
    delta: &mut Delta,
    known: &Known,
) -> Outcome {
    // Whoever compares has a destination.
    let Some(key) = id_key(intake) else { return Outcome::Unreadable };
    let recorded = working.conflicts.remove(&key).unwrap_or_default();
    let mut by_owner: HashMap<_, Vec<_>> = HashMap::new();
    for it in &recorded {
        by_owner.entry(it.dispute.as_ref().map(|it| &it.owner)).or_default().push(it);
    }
    let meeting = Meeting { intake, key: &key, known, now };
    let (mut first, mut message, mut new) = (None, None, Vec::new());
    let mut place_of_id = recorded.last().map_or(0, |it| it.place);
    for (owner, route) in deciders(intake) {
        let dispute = meeting.dispute(owner);
        let of_owner = by_owner.get(&Some(&dispute.owner)).map_or(&[][..], Vec::as_slice);
        let is_full = recorded.len() + new.len() >= bounds::CONFLICTS_OF_ID_MAX;
        if let Some(again) = met_again(of_owner, &dispute, is_full) {
            first.get_or_insert(count(again, delta));
            continue;
        }
        place_of_id += 1;
        let (number, dead_letter) = (working.number(), working.number());
        let conflict = meeting.record((number, dead_letter), place_of_id, &dispute.owner, route);
        first.get_or_insert(Outcome::Conflict { conflict: number, is_new: true });
        let message = *message.get_or_insert(number);
        let letter =
            DeadLetter::new(Delivery::new(dead_letter, message, route, now), DeadReason::Conflict, now);
        let at = Some(delta.conflicts.len());
        new.push(Recorded { conflict: number, place: place_of_id, dispute: Some(dispute), new: at });
        delta.conflicts.push(NewConflict { conflict, is_original_new: known.is_new, letter });
    }
    delta.messages.extend(message.map(|number| (number, place)));
    working.conflicts.insert(key, recorded.into_iter().chain(new).collect());
    first.unwrap_or(Outcome::Unreadable)
}

/// A content that meets another one under its id.
struct Meeting<'a> {
    intake: &'a Intake,
    key: &'a IdKey,
    known: &'a Known,
    now: Timestamp,
}

impl Meeting<'_> {
    fn dispute(&self, owner: TenantName) -> Dispute {
        let Known { original, is_new } = self.known;
        let hash = self.intake.message.domain_hash;
        Dispute { original: original.message, is_original_new: *is_new, owner, hash }
    }

    fn record(
        &self,
        (id, dead_letter): (Serial, Serial),
        place: u32,
        owner: &TenantName,
        route: &BoundRoute,
    ) -> Conflict {
        Conflict {
            id,
            place,
            tenant: self.key.tenant.clone(),
            owner: owner.clone(),
            event_id: self.key.id.clone(),
            destination: Arc::clone(&route.destination),
            source: self.intake.message.source.clone(),
            original: self.known.original.message,
            original_hash: self.known.original.hash,
            hash: self.intake.message.domain_hash,
            dead_letter,
            flagged_at: self.now,
            last_seen_at: self.now,
            count: 1,
            state: ConflictState::Open,
            notes: String::new(),
            compensating: None,
        }
    }
}

/// Each tenant with a destination that compares, and the first of those.
fn deciders(intake: &Intake) -> Vec<(TenantName, &Arc<BoundRoute>)> {
    let mut met = HashSet::new();
    let comparing = intake.destinations.iter().filter(|route| route.route.claim.compares().is_some());
    let owned =
        comparing.filter_map(|route| Some((TenantName::new(route.route.target.tenant()).ok()?, route)));
    owned.filter(|(owner, _)| met.insert(owner.clone())).collect()
}

fn count(again: &Recorded, delta: &mut Delta) -> Outcome {
    let (conflict, is_new) = (again.conflict, again.new.is_some());
    match again.new.and_then(|new| delta.conflicts.get_mut(new)) {
        Some(new) => new.conflict.count += 1,
        None => delta.repeats.push(conflict),
    }
    Outcome::Conflict { conflict, is_new }
}

/// The record that a conflict adds to: the same one's, or the last one's where there are as many as there may be of the tenant,
/// or of all.
fn met_again<'a>(recorded: &[&'a Recorded], dispute: &Dispute, is_full: bool) -> Option<&'a Recorded> {
    let beside = || {
        let is_beside = |it: &&Recorded| it.dispute.as_ref().is_some_and(|it| it.is_beside(dispute));
        recorded.iter().copied().filter(is_beside)
    };
    let same = beside().find(|it| it.dispute.as_ref() == Some(dispute));
    let most = if is_full { 1 } else { bounds::CONFLICTS_PER_ID_MAX };
    same.or_else(|| beside().next_back().filter(|_| beside().count() >= most))
}
