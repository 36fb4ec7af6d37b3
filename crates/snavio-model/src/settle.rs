//! Settling: the one judgement of the data plane, as load, judge, store.
//!
//! [`keys`] says what must be read, [`judge`] decides a batch in order on one working set, so that two messages
//! with one id in the same batch see each other, and leaves in a [`Delta`] what must be written. A backend only
//! loads, locks and writes; it decides nothing.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use std::sync::Arc;

use crate::claim::{Claim, ClaimKey};
use crate::delivery::Delivery;
use crate::id::Serial;
use crate::limits;
use crate::message::{Message, Path};
use crate::name::QueueKey;
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
    /// The id was taken by another service of the tenant (CLM-1).
    Taken,
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
    /// How many more deliveries each queue of the batch may take.
    pub room: HashMap<QueueKey, usize>,
    /// The store's registry version, where an intake asks for it.
    pub registry_version: Option<i64>,
    /// The last number given.
    pub last: Serial,
}

/// What a batch leaves to be written.
#[derive(Debug, Default)]
pub struct Delta {
    /// Messages, as their number and their place in the batch.
    pub messages: Vec<(Serial, usize)>,
    /// Claims that are new, or replace an expired one.
    pub claims: Vec<(ClaimKey, Claim)>,
    /// Deliveries to enqueue.
    pub deliveries: Vec<Delivery>,
}

impl Delta {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
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
    let mut message = None;
    let mut outcomes = Vec::with_capacity(intake.destinations.len());
    for route in &intake.destinations {
        let key = route.route.claim.keep().map(|keep| (claim_key(&intake.message, route), keep));
        let seen = key.as_ref().and_then(|(key, _)| check_claim(working, intake, key, now));
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
        if let Some((key, keep)) = key {
            let source = intake.message.source.clone();
            let claim = Claim { source, message: number, first_seen_at: now, expires_at: now.plus(keep) };
            working.claims.insert(key.clone(), claim.clone());
            delta.claims.push((key, claim));
        }
        let delivery = working.number();
        delta.deliveries.push(Delivery::new(delivery, number, route, now));
        outcomes.push(Outcome::Queued { delivery });
    }
    Settlement { message, outcomes }
}

/// REG-15: nothing is written by a permission that may have been taken back too long ago.
fn is_outdated(working: &Working, intake: &Intake, now: Timestamp) -> bool {
    let is_permitted_by = |version| version == intake.message.registry_version;
    now >= intake.good_until
        || intake.asks_registry() && !working.registry_version.is_some_and(is_permitted_by)
}

/// CLM-4: of any number of racing messages, the first one judged wins and the rest follow it.
fn check_claim(working: &Working, intake: &Intake, key: &ClaimKey, now: Timestamp) -> Option<Outcome> {
    if working.unreadable.contains(key) {
        return Some(Outcome::Unreadable);
    }
    match working.claims.get(key).filter(|claim| claim.is_live(now)) {
        Some(claim) if claim.source == intake.message.source => {
            Some(Outcome::Duplicate { first_seen_at: claim.first_seen_at })
        }
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
