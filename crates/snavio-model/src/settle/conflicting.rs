//! Conflicts of an id with different content (CLM-8): one record for each tenant that must resolve it, and
//! one stored message for all of them. A conflict never changes the first message or its id record.

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

/// Compares an intake with the id record. Returns an outcome if the content differs or another service owns
/// the id.
pub(super) fn check_content(
    working: &mut Working,
    intake: &Intake,
    place: usize,
    now: Timestamp,
    delta: &mut Delta,
    known: &Known,
) -> Option<Outcome> {
    if known.original.hash != intake.message.domain_hash {
        return Some(record_conflict(working, intake, place, now, delta, known));
    }
    // CLM-1: a service never sees the answer that another service got.
    (known.original.source != intake.message.source).then_some(Outcome::Taken)
}

/// Records the conflict for each tenant that must resolve it. Returns the outcome of the first one.
fn record_conflict(
    working: &mut Working,
    intake: &Intake,
    place: usize,
    now: Timestamp,
    delta: &mut Delta,
    known: &Known,
) -> Outcome {
    // An intake has a destination if its content is compared.
    let Some(key) = id_key(intake) else { return Outcome::Unreadable };
    let recorded = working.conflicts.remove(&key).unwrap_or_default();
    let mut by_owner: HashMap<_, Vec<_>> = HashMap::new();
    for conflict in &recorded {
        by_owner.entry(conflict.dispute.as_ref().map(|dispute| &dispute.owner)).or_default().push(conflict);
    }
    let mismatch = Mismatch { intake, key: &key, known, now };
    let (mut first, mut message, mut new) = (None, None, Vec::new());
    let mut place_of_id = recorded.last().map_or(0, |conflict| conflict.place);
    for (owner, route) in resolving_tenants(intake) {
        let dispute = mismatch.dispute(owner);
        let of_owner = by_owner.get(&Some(&dispute.owner)).map_or(&[][..], Vec::as_slice);
        let is_full = recorded.len() + new.len() >= bounds::CONFLICTS_OF_ID_MAX;
        if let Some(existing) = matching_record(of_owner, &dispute, is_full) {
            first.get_or_insert(count_again(existing, delta));
            continue;
        }
        place_of_id += 1;
        let (number, dead_letter) = (working.next_number(), working.next_number());
        let conflict = mismatch.record((number, dead_letter), place_of_id, &dispute.owner, route);
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

/// A message with content that differs from the id record.
struct Mismatch<'a> {
    intake: &'a Intake,
    key: &'a IdKey,
    known: &'a Known,
    now: Timestamp,
}

impl Mismatch<'_> {
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

/// Each tenant with a destination that compares content, and the first such destination.
fn resolving_tenants(intake: &Intake) -> Vec<(TenantName, &Arc<BoundRoute>)> {
    let mut found = HashSet::new();
    let comparing = intake.destinations.iter().filter(|route| route.route.claim.compares().is_some());
    let owned =
        comparing.filter_map(|route| Some((TenantName::new(route.route.target.tenant()).ok()?, route)));
    owned.filter(|(owner, _)| found.insert(owner.clone())).collect()
}

/// Counts a conflict on its existing record.
fn count_again(existing: &Recorded, delta: &mut Delta) -> Outcome {
    let (conflict, is_new) = (existing.conflict, existing.new.is_some());
    match existing.new.and_then(|new| delta.conflicts.get_mut(new)) {
        Some(new) => new.conflict.count += 1,
        None => delta.repeats.push(conflict),
    }
    Outcome::Conflict { conflict, is_new }
}

/// The existing record to which a conflict is added: the record of the same dispute. Once the tenant's limit
/// or the limit of the id is reached, it is the tenant's last record.
fn matching_record<'a>(recorded: &[&'a Recorded], dispute: &Dispute, is_full: bool) -> Option<&'a Recorded> {
    let beside = || {
        let is_beside =
            |conflict: &&Recorded| conflict.dispute.as_ref().is_some_and(|other| other.is_beside(dispute));
        recorded.iter().copied().filter(is_beside)
    };
    let same = beside().find(|conflict| conflict.dispute.as_ref() == Some(dispute));
    let most = if is_full { 1 } else { bounds::CONFLICTS_PER_ID_MAX };
    same.or_else(|| beside().next_back().filter(|_| beside().count() >= most))
}
