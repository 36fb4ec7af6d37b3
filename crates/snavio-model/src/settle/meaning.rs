//! Id records: one id has one content at all destinations that compare content, as long as any of them keeps
//! it (CLM-1).

use std::time::Duration;

use foldhash::{HashMap, HashSet, HashSetExt};

use super::{Delta, Intake, Known, Outcome, Working, live_claim};
use crate::claim::{Claim, ClaimKey, IdKey, Original};
use crate::id::Serial;
use crate::message::Message;
use crate::time::Timestamp;

/// The longest retention of the id record among the intake's destinations; `None` if no destination compares
/// content.
pub fn compares(intake: &Intake) -> Option<Duration> {
    intake.destinations.iter().filter_map(|route| route.route.claim.compares()).max()
}

/// Ids of a batch with a claim but without an id record, although their content is compared now: their route
/// did not compare before, or their work outlived the record. The message of the claim then supplies the
/// content.
pub fn unmeant(
    batch: &[Intake],
    claims: &HashMap<ClaimKey, Claim>,
    originals: &HashMap<IdKey, Option<Known>>,
    now: Timestamp,
) -> Vec<(IdKey, Claim)> {
    let missing = batch.iter().filter_map(|intake| {
        let key = id_key(intake).filter(|key| !originals.contains_key(key))?;
        Some((key, live_claim(claims, intake, now)?.clone()))
    });
    missing.collect()
}

/// Ids of a batch with an expired id record, under which none of the intake's destinations has a claim in
/// force.
pub fn over(
    batch: &[Intake],
    claims: &HashMap<ClaimKey, Claim>,
    originals: &HashMap<IdKey, Option<Known>>,
    now: Timestamp,
) -> Vec<IdKey> {
    if originals.is_empty() {
        return Vec::new();
    }
    let expired = batch.iter().filter_map(|intake| {
        let key = id_key(intake)?;
        let known = originals.get(&key)?.as_ref()?;
        (!is_in_force(known, claims, intake, now)).then_some(key)
    });
    expired.collect()
}

/// Ids of a batch under which conflicts may occur: ids with other content, and ids that occur more than once.
/// A backend must load their recorded conflicts before it can judge the batch.
pub fn disputed(batch: &[Intake], originals: &HashMap<IdKey, Option<Known>>) -> HashSet<IdKey> {
    let (mut seen, mut disputed) = (HashSet::new(), HashSet::new());
    for intake in batch {
        let Some(key) = id_key(intake) else { continue };
        let has_same_content = |known: &Known| known.original.hash == intake.message.domain_hash;
        let may_differ =
            originals.get(&key).is_some_and(|known| !known.as_ref().is_some_and(has_same_content));
        if !seen.insert(key.clone()) || may_differ {
            disputed.insert(key);
        }
    }
    disputed
}

/// The key of the intake's id record; `None` if its content is not compared.
pub fn id_key(intake: &Intake) -> Option<IdKey> {
    let Message { id, tenant, .. } = &intake.message;
    compares(intake).map(|_| IdKey { id: id.clone(), tenant: tenant.clone() })
}

/// The id record of the intake, if its content is compared. The record is in force until it expires, and as
/// long as a claim under it is in force: an id stays bound to its content while its work waits.
pub(super) fn find_id_record(
    working: &Working,
    intake: &Intake,
    now: Timestamp,
) -> Result<Option<Known>, Outcome> {
    let Some(key) = id_key(intake) else { return Ok(None) };
    let known = match working.originals.get(&key) {
        None => return Ok(None),
        Some(known) => known.as_ref().ok_or(Outcome::Unreadable)?,
    };
    let counts = working.claimed.contains(&key) || is_in_force(known, &working.claims, intake, now);
    Ok(counts.then(|| known.clone()))
}

fn is_in_force(known: &Known, claims: &HashMap<ClaimKey, Claim>, intake: &Intake, now: Timestamp) -> bool {
    known.original.is_live(now) || live_claim(claims, intake, now).is_some()
}

/// Creates the id record of a dispatched message.
pub(super) fn create_id_record(
    working: &mut Working,
    intake: &Intake,
    message: Serial,
    now: Timestamp,
    delta: &mut Delta,
) {
    let Some((key, keep)) = id_key(intake).zip(compares(intake)) else { return };
    let Message { source, domain_hash, .. } = &intake.message;
    let original =
        Original { source: source.clone(), message, hash: *domain_hash, expires_at: now.plus(keep) };
    working.originals.insert(key.clone(), Some(Known { original: original.clone(), is_new: true }));
    delta.originals.push((key, original));
}

/// Extends the id record to the retention of the last destination that claimed the id with the same content.
pub(super) fn extend_id_record(
    working: &mut Working,
    intake: &Intake,
    known: Known,
    keep: Option<Duration>,
    now: Timestamp,
    delta: &mut Delta,
) {
    let Some((key, keep)) = id_key(intake).zip(keep) else { return };
    let expires_at = now.plus(keep);
    if known.original.expires_at >= expires_at {
        return;
    }
    let known = Known { original: Original { expires_at, ..known.original }, ..known };
    let written = if known.is_new { &mut delta.originals } else { &mut delta.lengthened };
    match written.iter_mut().find(|(other, _)| *other == key) {
        Some((_, original)) => *original = known.original.clone(),
        None => written.push((key.clone(), known.original.clone())),
    }
    working.originals.insert(key, Some(known));
}
