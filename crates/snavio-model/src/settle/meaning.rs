//! What an id means: one content for all destinations that compare contents, for as long as any of them keeps it (CLM-1).

use std::time::Duration;

use foldhash::{HashMap, HashSet, HashSetExt};

use super::{Delta, Intake, Known, Outcome, Working, live_claim};
use crate::claim::{Claim, ClaimKey, IdKey, Original};
use crate::id::Serial;
use crate::message::Message;
use crate::time::Timestamp;

/// How long it is kept what the intake's id means, if any of its destinations compares contents.
pub fn compares(intake: &Intake) -> Option<Duration> {
    intake.destinations.iter().filter_map(|route| route.route.claim.compares()).max()
}

/// Ids of a batch that are claimed, and of which it is not known what they mean though contents are compared now: their
/// route did not compare before, or their work has outlived what they meant. Their meaning is that of their claim's
/// message.
pub fn unmeant(
    batch: &[Intake],
    claims: &HashMap<ClaimKey, Claim>,
    originals: &HashMap<IdKey, Option<Known>>,
    now: Timestamp,
) -> Vec<(IdKey, Claim)> {
    let unmeant = |intake: &Intake| {
        let key = id_key(intake).filter(|key| !originals.contains_key(key))?;
        Some((key, live_claim(claims, intake, now)?.clone()))
    };
    batch.iter().filter_map(unmeant).collect()
}

/// Ids of a batch whose meaning is over: none of its destinations has a claim under it that holds.
pub fn over(
    batch: &[Intake],
    claims: &HashMap<ClaimKey, Claim>,
    originals: &HashMap<IdKey, Option<Known>>,
    now: Timestamp,
) -> Vec<IdKey> {
    if originals.is_empty() {
        return Vec::new();
    }
    let over = |intake: &Intake| {
        let key = id_key(intake)?;
        let known = originals.get(&key)?.as_ref()?;
        (!counts(known, claims, intake, now)).then_some(key)
    };
    batch.iter().filter_map(over).collect()
}

/// Ids of a batch under which conflicts may be met: those that mean something else, and those that come more than once.
/// What is recorded under them must be read before the batch can be judged.
pub fn disputed(batch: &[Intake], originals: &HashMap<IdKey, Option<Known>>) -> HashSet<IdKey> {
    let (mut met, mut disputed) = (HashSet::new(), HashSet::new());
    for intake in batch {
        let Some(key) = id_key(intake) else { continue };
        let says_the_same = |it: &Known| it.original.hash == intake.message.domain_hash;
        let means_more = originals.get(&key).is_some_and(|it| !it.as_ref().is_some_and(says_the_same));
        if !met.insert(key.clone()) || means_more {
            disputed.insert(key);
        }
    }
    disputed
}

/// The id of an intake whose content is compared.
pub fn id_key(intake: &Intake) -> Option<IdKey> {
    let Message { id, tenant, .. } = &intake.message;
    compares(intake).map(|_| IdKey { id: id.clone(), tenant: tenant.clone() })
}

/// What the intake's id means, where contents are compared: for its time, and for as long as a claim holds that was made
/// under it. Work that waits longer than its id was to mean anything is still that work's.
pub(super) fn known(working: &Working, intake: &Intake, now: Timestamp) -> Result<Option<Known>, Outcome> {
    let Some(key) = id_key(intake) else { return Ok(None) };
    let known = match working.originals.get(&key) {
        None => return Ok(None),
        Some(known) => known.as_ref().ok_or(Outcome::Unreadable)?,
    };
    let counts = working.claimed.contains(&key) || counts(known, &working.claims, intake, now);
    Ok(counts.then(|| known.clone()))
}

fn counts(known: &Known, claims: &HashMap<ClaimKey, Claim>, intake: &Intake, now: Timestamp) -> bool {
    known.original.is_live(now) || live_claim(claims, intake, now).is_some()
}

/// What an id means once a message with it was dispatched.
pub(super) fn give_meaning(
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

/// What an id means already lasts as long as the last destination that took it up keeps it: it says the same.
pub(super) fn lengthen_meaning(
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
    match written.iter_mut().find(|(it, _)| *it == key) {
        Some((_, original)) => *original = known.original.clone(),
        None => written.push((key.clone(), known.original.clone())),
    }
    working.originals.insert(key, Some(known));
}
