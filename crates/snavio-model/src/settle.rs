//! Settling: the one judgement of the data plane, as load, judge, store.
//!
//! [`keys`] says what must be read, [`judge`] decides a batch in order on one working set, so that two messages
//! with one id in the same batch see each other, and leaves in a [`Delta`] what must be written. A backend only
//! loads, locks and writes; it decides nothing.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

mod conflicting;
mod ordering;
mod taking;

use conflicting::check_meaning;
pub use ordering::Ordered;
use taking::{Taking, Way, way};

use crate::claim::{Claim, ClaimKey, IdKey, Original, Status};
use crate::conflict::{Conflict, Dispute};
use crate::delivery::{DeadLetter, DeadReason, Delivery};
use crate::fair::Size;
use crate::hash::DomainHash;
use crate::id::Serial;
use crate::limits;
use crate::message::{Message, Path};
use crate::name::QueueKey;
use crate::order::{EntityKey, EntityRecord, Placed};
use crate::refusal::{Numbers, Reason};
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
    /// Where it stands in the order of its entity at each destination; nothing at all where none is ordered.
    pub places: Vec<Placed>,
    /// At which destinations its node has accepted this very message already (PIP-2); nothing at all where at none.
    pub known: Vec<bool>,
    /// Until when what permitted it may be acted on (REG-15).
    pub good_until: Timestamp,
}

impl Intake {
    /// Whether the registry that permitted it must still be the store's when it is written (`acl: always`, REG-15).
    pub fn asks_registry(&self) -> bool {
        self.destinations.iter().any(|route| route.route.acl == Acl::Always)
    }

    /// How much of the room for what waits it takes: an event for many is as much as many.
    pub fn size(&self) -> Size {
        let items = self.destinations.len().max(1);
        Size { items, bytes: self.message.bytes() + (items - 1) * limits::DELIVERY_BYTES }
    }

    /// How many numbers judging it may give out: one for its message and one for each delivery; of a conflict one for the
    /// record and one for the dead letter of each tenant that must decide.
    pub fn numbers_max(&self) -> usize {
        let destinations = self.destinations.len();
        (1 + destinations).max(2 * destinations)
    }

    /// The entities whose states must be read, and kept from others, before it can be judged (ORD-2).
    pub fn entities(&self) -> impl Iterator<Item = &EntityKey> {
        self.places.iter().filter_map(Placed::place).map(|place| &place.key)
    }
}

/// What became of an intake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The number of its message in the log; nothing if no destination took it.
    pub message: Option<Serial>,
    /// What became of it at each destination, in order.
    pub outcomes: Vec<Outcome>,
    /// How it stood at those destinations that order.
    pub ordered: Vec<Ordered>,
}

impl Settlement {
    /// Of a message that nobody ordered.
    pub fn unordered(message: Option<Serial>, outcomes: Vec<Outcome>) -> Self {
        Self { message, outcomes, ordered: Vec::new() }
    }
}

/// What became of a message at one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Claimed where the route claims, and waiting in the queue.
    Queued {
        /// The delivery's id.
        delivery: Serial,
    },
    /// Claimed, and waiting for those before it in the order of its entity (ORD-3).
    Held {
        /// The delivery's id.
        delivery: Serial,
    },
    /// Claimed, and in the queue behind one of its entity that failed for good (ORD-7).
    Parked {
        /// The delivery's id.
        delivery: Serial,
    },
    /// Late where late ones are left out: claimed and recorded, and not delivered (ORD-3).
    Skipped,
    /// Late where late ones are refused (ORD-3, ORD-4).
    OutOfOrder {
        /// The refusal's word.
        reason: Reason,
        /// How it stands.
        numbers: Numbers,
        /// Whether it is late wherever it goes: it can never be taken then. Where some cannot read its number, they may once
        /// their route reads it right.
        everywhere: bool,
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
    /// A dead letter from the start: its queue holds as much as it may, and others took the event (PIP-13).
    Buried {
        /// The delivery's id.
        delivery: Serial,
        /// Why.
        reason: DeadReason,
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

impl Outcome {
    /// Whether nothing of the message is taken because of it, at any of its destinations.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Queued { .. }
            | Self::Held { .. }
            | Self::Parked { .. }
            | Self::Skipped
            | Self::Duplicate { .. }
            | Self::Seen { .. }
            | Self::Buried { .. } => false,
            Self::OutOfOrder { .. }
            | Self::Taken
            | Self::Conflict { .. }
            | Self::QueueFull
            | Self::Unreadable
            | Self::Unfit
            | Self::TooLate
            | Self::Outdated => true,
        }
    }
}

/// What a backend loads for a batch, and judge changes as it goes along.
#[derive(Debug)]
pub struct Working {
    /// The claims found under the keys of the batch.
    pub claims: HashMap<ClaimKey, Claim>,
    /// Claims that are there but cannot be trusted: what needs them is refused.
    pub unreadable: HashSet<ClaimKey>,
    /// Ids of the batch under which work goes on at destinations that it does not name: they mean what they did.
    pub claimed: HashSet<IdKey>,
    /// What the ids of the batch mean, where contents are compared; nothing of one that cannot be trusted.
    pub originals: HashMap<IdKey, Option<Known>>,
    /// The conflicts that are recorded under ids of the batch, in their order.
    pub conflicts: HashMap<IdKey, Vec<Recorded>>,
    /// What is known of the entities of the batch.
    pub entities: HashMap<EntityKey, EntityRecord>,
    /// Entities whose records cannot be trusted.
    pub unreadable_entities: HashSet<EntityKey>,
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
    /// Its place among those of its id.
    pub place: u32,
    /// What it is about; nothing of one that is damaged.
    pub dispute: Option<Dispute>,
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
    /// The dead letter. Its message is the conflict's own number, or that of the first one if several were made of one.
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
    /// What ids meant before, and mean for longer: another destination has taken them up since.
    pub lengthened: Vec<(IdKey, Original)>,
    /// Deliveries to enqueue.
    pub deliveries: Vec<Delivery>,
    /// Deliveries that are dead letters from the start.
    pub letters: Vec<DeadLetter>,
    /// Conflicts to record.
    pub conflicts: Vec<NewConflict>,
    /// Conflicts that were recorded before, once for each time that they were met again.
    pub repeats: Vec<Serial>,
    /// What is known of entities from now on.
    pub entities: BTreeMap<EntityKey, EntityRecord>,
    /// Deliveries that waited and may be handed out now, by their lane and number.
    pub released: Vec<(EntityKey, i64)>,
}

impl Delta {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.repeats.is_empty() && self.entities.is_empty()
    }

    /// How a message was decided that is written under this number.
    pub fn path_of(&self, number: Serial, path: Path) -> Path {
        let is_conflict = self.conflicts.iter().any(|it| it.conflict.id == number);
        if is_conflict { Path::Conflict } else { path }
    }

    /// The dead letters among them, each with its message.
    pub fn letters<'a>(&'a self, batch: &'a [Intake]) -> impl Iterator<Item = (&'a DeadLetter, &'a Message)> {
        let of = |letter: &'a DeadLetter| {
            let written = self.messages.iter().find(|(number, _)| *number == letter.delivery.message);
            written.and_then(|(_, place)| batch.get(*place)).map(|intake| (letter, &intake.message))
        };
        self.letters.iter().filter_map(of)
    }

    /// Whether anything but dispatching was decided.
    pub fn has_conflicts(&self) -> bool {
        !self.conflicts.is_empty() || !self.repeats.is_empty()
    }
}

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

impl Working {
    /// An empty working set that numbers on from `last`.
    pub fn after(last: Serial) -> Self {
        Self {
            claims: HashMap::new(),
            unreadable: HashSet::new(),
            claimed: HashSet::new(),
            originals: HashMap::new(),
            conflicts: HashMap::new(),
            entities: HashMap::new(),
            unreadable_entities: HashSet::new(),
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

/// What the intake's id means, where contents are compared: for its time, and for as long as a claim holds that was made
/// under it. Work that waits longer than its id was to mean anything is still that work's.
fn known(working: &Working, intake: &Intake, now: Timestamp) -> Result<Option<Known>, Outcome> {
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
fn give_meaning(working: &mut Working, intake: &Intake, message: Serial, now: Timestamp, delta: &mut Delta) {
    let Some((key, keep)) = id_key(intake).zip(compares(intake)) else { return };
    let Message { source, domain_hash, .. } = &intake.message;
    let original =
        Original { source: source.clone(), message, hash: *domain_hash, expires_at: now.plus(keep) };
    working.originals.insert(key.clone(), Some(Known { original: original.clone(), is_new: true }));
    delta.originals.push((key, original));
}

/// What an id means already lasts as long as the last destination that took it up keeps it: it says the same.
fn lengthen_meaning(
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
