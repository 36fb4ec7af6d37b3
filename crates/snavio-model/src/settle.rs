//! Settling: the one judgement of the data plane, as load, judge, store.
//!
//! [`keys`] says what must be read, [`judge`] decides a batch in order on one working set, so that two messages
//! with one id in the same batch see each other, and leaves in a [`Delta`] what must be written. A backend only
//! loads, locks and writes; it decides nothing.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use std::sync::Arc;

use crate::claim::{Claim, ClaimKey, IdKey, Original, Progress, Status};
use crate::conflict::{Conflict, ConflictState};
use crate::delivery::{DeadLetter, DeadReason, Delivery};
use crate::hash::DomainHash;
use crate::id::Serial;
use crate::limits;
use crate::message::{Message, Path};
use crate::name::{QueueKey, TenantName};
use crate::registry::{Acl, BoundRoute};
use crate::time::Timestamp;

/// A message that may be dispatched, and where to.
#[derive(Debug, Clone)]
pub struct Intake {
    /// The message.
    pub message: Message,
    /// How it got here.
    pub path: Path,
    /// Its destinations: each has its own claim and delivery.
    pub destinations: Vec<Arc<BoundRoute>>,
    /// Until when what permitted it may be acted on (REG-15).
    pub good_until: Timestamp,
}

impl Intake {
    /// Whether the registry that permitted it must still be the store's when it is written (`acl: always`, REG-15).
    pub fn asks_registry(&self) -> bool {
        self.destinations.iter().any(|route| route.route.acl == Acl::Always)
    }
}

/// What became of an intake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The number of its message in the log; nothing if no destination took it.
    pub message: Option<Serial>,
    /// What became of it at each destination, in order.
    pub outcomes: Vec<Outcome>,
}

/// What became of a message at one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Claimed where the route claims, and waiting in the queue.
    Queued {
        /// The delivery's id.
        delivery: Serial,
    },
    /// Seen before: nothing was dispatched.
    Duplicate {
        /// When the winner was seen.
        first_seen_at: Timestamp,
    },
    /// Seen before, and what becomes of it is reported back (CLM-5 to CLM-7): nothing was dispatched.
    Seen {
        /// The delivery that carries the work.
        delivery: Serial,
        /// Whether its number was given in this very batch.
        is_new: bool,
        /// Where it stands, as far as was reported.
        status: Status,
        /// When the winner was seen.
        first_seen_at: Timestamp,
        /// Until when the claim holds.
        kept_until: Timestamp,
    },
    /// The id was taken by another service of the tenant (CLM-1).
    Taken,
    /// The id means something else already (CLM-8): nothing was dispatched, and both are on record.
    Conflict {
        /// The conflict's id.
        conflict: Serial,
        /// Whether its number was given in this very batch.
        is_new: bool,
    },
    /// The queue holds as much as it may.
    QueueFull,
    /// The record of the id is damaged: whether it was seen cannot be known.
    Unreadable,
    /// The engine cannot hold a value of the message.
    Unfit,
    /// It waited so long that the claim of an earlier copy may have ended meanwhile (CLM-20).
    TooLate,
    /// What permitted it is too old, or not what the store says now: it must be permitted anew (REG-15).
    Outdated,
}

/// What a backend loads for a batch, and judge changes as it goes along.
#[derive(Debug)]
pub struct Working {
    /// The claims found under the keys of the batch.
    pub claims: HashMap<ClaimKey, Claim>,
    /// Claims that are there but cannot be trusted: what needs them is refused.
    pub unreadable: HashSet<ClaimKey>,
    /// What the ids of the batch mean, where contents are compared; nothing of one that cannot be trusted.
    pub originals: HashMap<IdKey, Option<Known>>,
    /// The conflicts that are recorded under ids of the batch, in their order.
    pub conflicts: HashMap<IdKey, Vec<Recorded>>,
    /// How many more deliveries each queue of the batch may take.
    pub room: HashMap<QueueKey, usize>,
    /// The store's registry version, where an intake asks for it.
    pub registry_version: Option<i64>,
    /// The last number given.
    pub last: Serial,
}

/// What an id means.
#[derive(Debug, Clone)]
pub struct Known {
    /// What was first.
    pub original: Original,
    /// Whether it is of this very batch.
    pub is_new: bool,
}

impl Known {
    /// Of an id that was taken while contents were not compared: what its claim's message says.
    pub fn by_claim(claim: &Claim, hash: DomainHash) -> Self {
        let (source, message, expires_at) = (claim.source.clone(), claim.message, claim.expires_at);
        Self { original: Original { source, message, hash, expires_at }, is_new: false }
    }
}

/// A conflict that is on record.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Its id.
    pub conflict: Serial,
    /// What its message says.
    pub hash: DomainHash,
    /// Its place among the delta's, if it is of this very batch.
    pub new: Option<usize>,
}

/// A conflict to be recorded, with the dead letter that carries its message.
#[derive(Debug, Clone)]
pub struct NewConflict {
    /// The conflict.
    pub conflict: Conflict,
    /// Whether its original's number was given in this very batch, as its own were.
    pub is_original_new: bool,
    /// The dead letter.
    pub letter: DeadLetter,
}

/// What a batch leaves to be written.
#[derive(Debug, Default)]
pub struct Delta {
    /// Messages, as their number and their place in the batch.
    pub messages: Vec<(Serial, usize)>,
    /// Claims that are new, or replace an expired one.
    pub claims: Vec<(ClaimKey, Claim)>,
    /// What ids mean from now on.
    pub originals: Vec<(IdKey, Original)>,
    /// Deliveries to enqueue.
    pub deliveries: Vec<Delivery>,
    /// Conflicts to record.
    pub conflicts: Vec<NewConflict>,
    /// Conflicts that were recorded before, once for each time that they were met again.
    pub repeats: Vec<Serial>,
}

impl Delta {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.repeats.is_empty()
    }

    /// How a message was decided that is written under this number.
    pub fn path_of(&self, number: Serial, path: Path) -> Path {
        let is_conflict = self.conflicts.iter().any(|it| it.conflict.id == number);
        if is_conflict { Path::Conflict } else { path }
    }

    /// Whether anything but dispatching was decided.
    pub fn has_conflicts(&self) -> bool {
        !self.conflicts.is_empty() || !self.repeats.is_empty()
    }
}

/// How long it is kept what the intake's id means, if any of its destinations compares contents.
pub fn compares(intake: &Intake) -> Option<std::time::Duration> {
    intake.destinations.iter().filter_map(|route| route.route.claim.compares()).max()
}

/// Ids of a batch that are claimed, and of which it is not known what they mean though contents are compared now: their
/// route did not compare before. Their meaning is that of their claim's message.
pub fn unmeant(
    batch: &[Intake],
    claims: &HashMap<ClaimKey, Claim>,
    originals: &HashMap<IdKey, Option<Known>>,
) -> Vec<(IdKey, Claim)> {
    let unmeant = |intake: &Intake| {
        let key = id_key(intake).filter(|key| !originals.contains_key(key))?;
        let claim = keys(intake).find_map(|key| claims.get(&key).cloned())?;
        Some((key, claim))
    };
    batch.iter().filter_map(unmeant).collect()
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

/// The claims that must be read before the intake can be judged.
pub fn keys(intake: &Intake) -> impl Iterator<Item = ClaimKey> {
    let claiming = intake.destinations.iter().filter(|route| route.route.claim.keep().is_some());
    claiming.map(|route| claim_key(&intake.message, route))
}

fn claim_key(message: &Message, route: &BoundRoute) -> ClaimKey {
    ClaimKey {
        id: message.id.clone(),
        tenant: message.tenant.clone(),
        destination: Arc::clone(&route.destination),
    }
}

impl Working {
    /// An empty working set that numbers on from `last`.
    pub fn after(last: Serial) -> Self {
        Self {
            claims: HashMap::new(),
            unreadable: HashSet::new(),
            originals: HashMap::new(),
            conflicts: HashMap::new(),
            room: HashMap::new(),
            registry_version: None,
            last,
        }
    }

    fn number(&mut self) -> Serial {
        self.last = self.last.next();
        self.last
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
    if is_outdated(working, intake, now) {
        return Settlement { message: None, outcomes: vec![Outcome::Outdated; intake.destinations.len()] };
    }
    if let Some(outcome) = check_meaning(working, intake, place, now, delta) {
        return Settlement { message: None, outcomes: vec![outcome; intake.destinations.len()] };
    }
    let mut message = None;
    let mut outcomes = Vec::with_capacity(intake.destinations.len());
    for route in &intake.destinations {
        let key = route.route.claim.keep().map(|keep| (claim_key(&intake.message, route), keep));
        let seen = key.as_ref().and_then(|(key, _)| check_claim(working, intake, key, now, delta));
        if let Some(outcome) = seen {
            outcomes.push(outcome);
            continue;
        }
        if !take_room(working, &route.queue) {
            outcomes.push(Outcome::QueueFull);
            continue;
        }
        let number = *message.get_or_insert_with(|| {
            let number = working.number();
            delta.messages.push((number, place));
            number
        });
        let delivery = working.number();
        if let Some((key, keep)) = key {
            let claim = Claim {
                source: intake.message.source.clone(),
                message: number,
                first_seen_at: now,
                expires_at: now.plus(keep),
                hot_until: route.route.claim.hot().map(|hot| now.plus(hot)),
                progress: route.route.processing.is_tracked().then(|| Box::new(Progress::new(delivery))),
            };
            working.claims.insert(key.clone(), claim.clone());
            delta.claims.push((key, claim));
        }
        delta.deliveries.push(Delivery::new(delivery, number, route, now));
        outcomes.push(Outcome::Queued { delivery });
    }
    if let Some(number) = message {
        give_meaning(working, intake, number, now, delta);
    }
    Settlement { message, outcomes }
}

/// CLM-8: an id that means something else already. The first record is never altered.
fn check_meaning(
    working: &mut Working,
    intake: &Intake,
    place: usize,
    now: Timestamp,
    delta: &mut Delta,
) -> Option<Outcome> {
    let key = id_key(intake)?;
    let known = match working.originals.get(&key)? {
        None => return Some(Outcome::Unreadable),
        Some(known) if !known.original.is_live(now) => return None,
        Some(known) => known.clone(),
    };
    if known.original.source != intake.message.source {
        return Some(Outcome::Taken);
    }
    (known.original.hash != intake.message.domain_hash)
        .then(|| conflict(working, intake, place, now, delta, (key, known)))
}

fn conflict(
    working: &mut Working,
    intake: &Intake,
    place: usize,
    now: Timestamp,
    delta: &mut Delta,
    (key, known): (IdKey, Known),
) -> Outcome {
    let recorded = working.conflicts.entry(key.clone()).or_default();
    let is_full = recorded.len() >= limits::CONFLICTS_PER_ID_MAX;
    let again = recorded.iter().find(|it| it.hash == intake.message.domain_hash);
    if let Some(again) = again.or_else(|| recorded.last().filter(|_| is_full)) {
        let (conflict, is_new) = (again.conflict, again.new.is_some());
        match again.new.and_then(|new| delta.conflicts.get_mut(new)) {
            Some(new) => new.conflict.count += 1,
            None => delta.repeats.push(conflict),
        }
        return Outcome::Conflict { conflict, is_new };
    }
    // Whoever compares has a destination.
    let Some(route) = intake.destinations.iter().find(|route| route.route.claim.compares().is_some()) else {
        return Outcome::Unreadable;
    };
    let Ok(owner) = TenantName::new(route.route.target.tenant()) else { return Outcome::Unreadable };
    let of_id = recorded.len();
    let (number, dead_letter) = (working.number(), working.number());
    let Known { original, is_new } = known;
    let hash = intake.message.domain_hash;
    let new = Recorded { conflict: number, hash, new: Some(delta.conflicts.len()) };
    working.conflicts.entry(key.clone()).or_default().push(new);
    delta.messages.push((number, place));
    delta.conflicts.push(NewConflict {
        conflict: Conflict {
            id: number,
            place: u32::try_from(of_id + 1).unwrap_or(u32::MAX),
            tenant: key.tenant,
            owner,
            event_id: key.id,
            destination: Arc::clone(&route.destination),
            source: intake.message.source.clone(),
            original: original.message,
            original_hash: original.hash,
            hash,
            dead_letter,
            flagged_at: now,
            last_seen_at: now,
            count: 1,
            state: ConflictState::Open,
            notes: String::new(),
            compensating: None,
        },
        is_original_new: is_new,
        letter: DeadLetter {
            delivery: Delivery::new(dead_letter, number, route, now),
            reason: DeadReason::Conflict,
            dead_at: now,
        },
    });
    Outcome::Conflict { conflict: number, is_new: true }
}

/// What an id means once a message with it was dispatched.
fn give_meaning(working: &mut Working, intake: &Intake, message: Serial, now: Timestamp, delta: &mut Delta) {
    let Some((key, keep)) = id_key(intake).zip(compares(intake)) else { return };
    // One that another destination gave stays: it says the same.
    if working.originals.get(&key).is_some_and(|it| it.as_ref().is_some_and(|it| it.original.is_live(now))) {
        return;
    }
    let Message { source, domain_hash, .. } = &intake.message;
    let original =
        Original { source: source.clone(), message, hash: *domain_hash, expires_at: now.plus(keep) };
    working.originals.insert(key.clone(), Some(Known { original: original.clone(), is_new: true }));
    delta.originals.push((key, original));
}

/// REG-15: nothing is written by a permission that may have been taken back too long ago.
fn is_outdated(working: &Working, intake: &Intake, now: Timestamp) -> bool {
    let is_permitted_by = |version| version == intake.message.registry_version;
    now >= intake.good_until
        || intake.asks_registry() && !working.registry_version.is_some_and(is_permitted_by)
}

/// CLM-4: of any number of racing messages, the first one judged wins and the rest follow it.
fn check_claim(
    working: &Working,
    intake: &Intake,
    key: &ClaimKey,
    now: Timestamp,
    delta: &Delta,
) -> Option<Outcome> {
    if working.unreadable.contains(key) {
        return Some(Outcome::Unreadable);
    }
    match working.claims.get(key).filter(|claim| claim.is_live(now)) {
        Some(claim) if claim.source == intake.message.source => Some(match &claim.progress {
            None => Outcome::Duplicate { first_seen_at: claim.first_seen_at },
            Some(progress) => Outcome::Seen {
                delivery: progress.delivery,
                is_new: delta.claims.iter().any(|(new, _)| new == key),
                status: progress.status,
                first_seen_at: claim.first_seen_at,
                kept_until: claim.expires_at,
            },
        }),
        Some(_) => Some(Outcome::Taken),
        // A claim is over at its very end, so the wait that it was made to outlast is too long at its own.
        None => {
            (now.since(intake.message.received_at) >= limits::CLAIM_KEEP_SLACK).then_some(Outcome::TooLate)
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
