//! A node's memory of signed messages that it has just accepted or is about to accept (PIP-2). A copy that
//! arrives inside the replay window is not dispatched again.
//!
//! The node reserves a message before its commit and remembers it afterwards, so that a copy which arrives
//! between the two is not judged concurrently. A message is remembered per destination: another subscription
//! of an event, or a new one, changes nothing for the others. A message is reserved as a whole, so that an
//! event with many destinations takes no more room than a command.

use std::time::Duration;

use foldhash::{HashSet, HashSetExt};

use crate::bounds;
use crate::time::Timestamp;

/// Identifies one signed message at one destination. The caller computes it as a keyed digest.
pub type Fingerprint = u128;

/// The fingerprints of one message.
#[derive(Debug, Default, Clone)]
pub struct Fingerprints {
    /// One for each destination, in order; `None` for destinations outside the memory.
    pub each: Vec<Option<Mark>>,
    /// One for all destinations together. Reservations use it, and so does the memory for a message with many
    /// destinations.
    pub all: Fingerprint,
}

/// A message at one destination.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    pub fingerprint: Fingerprint,
    /// Whether the destination claims ids. The claim then decides between copies in flight, so the message is
    /// not reserved there.
    pub is_claimed: bool,
}

impl Fingerprints {
    fn is_narrow(&self) -> bool {
        self.each.iter().flatten().count() <= bounds::REMEMBERED_DESTINATIONS_MAX
    }
}

/// The memory's answer to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// All of its destinations have accepted this message.
    Known,
    /// A copy waits for its commit. This message must wait for the end of that reservation.
    Copy,
    /// The limit of reservations is reached.
    Full,
    /// The message goes to its commit.
    New {
        /// For each destination, whether it has accepted this message; empty if none has.
        known: Vec<bool>,
        /// Whether the message is reserved until its release. It is, unless all its new destinations claim
        /// ids.
        is_reserved: bool,
    },
}

/// Two generations of fingerprints, a growing one and one that is dropped next, and the fingerprints of
/// messages that wait for their commit.
#[derive(Debug)]
pub struct RecentMessages {
    keep: Duration,
    entries_max: usize,
    reserved_max: usize,
    reserved: HashSet<Fingerprint>,
    young: HashSet<Fingerprint>,
    old: HashSet<Fingerprint>,
    since: Timestamp,
}

impl RecentMessages {
    /// Creates a memory that keeps each message for at least `keep`, unless it is full. It can reserve as
    /// many messages as an intake of `intake_max` messages has in flight.
    pub fn new(keep: Duration, intake_max: usize, now: Timestamp) -> Self {
        let reserved_max = intake_max.saturating_mul(2).max(bounds::RESERVED_MESSAGES_MAX);
        Self::bounded(keep, bounds::RECENT_MESSAGES_MAX, reserved_max, now)
    }

    fn bounded(keep: Duration, entries_max: usize, reserved_max: usize, now: Timestamp) -> Self {
        let (reserved, young, old) = (HashSet::new(), HashSet::new(), HashSet::new());
        Self { keep, entries_max, reserved_max, reserved, young, old, since: now }
    }

    /// Reserves a message that is neither known nor in flight.
    pub fn admit(&mut self, message: &Fingerprints) -> Admission {
        let is_known = |mark: &Option<Mark>| {
            mark.is_some_and(|mark| self.knows(mark.fingerprint) || self.knows(message.all))
        };
        let known: Vec<_> = match message.each.iter().any(is_known) {
            true => message.each.iter().map(is_known).collect(),
            false => Vec::new(),
        };
        if !known.is_empty() && !known.contains(&false) {
            return Admission::Known;
        }
        let mut new = message.each.iter().enumerate().filter(|(index, _)| known.get(*index) != Some(&true));
        let is_reserved = new.any(|(_, mark)| mark.is_some_and(|mark| !mark.is_claimed));
        if is_reserved && self.reserved.contains(&message.all) {
            return Admission::Copy;
        }
        if is_reserved && self.reserved.len() >= self.reserved_max {
            return Admission::Full;
        }
        if is_reserved {
            self.reserved.insert(message.all);
        }
        Admission::New { known, is_reserved }
    }

    /// Ends a reservation, whether the message was accepted or refused.
    pub fn release(&mut self, message: &Fingerprints) {
        self.reserved.remove(&message.all);
    }

    /// Remembers a message after its durable commit.
    pub fn remember(&mut self, message: &Fingerprints, now: Timestamp) {
        if message.is_narrow() {
            message.each.iter().flatten().for_each(|mark| self.insert(mark.fingerprint, now));
        } else {
            self.insert(message.all, now);
        }
    }

    fn knows(&self, fingerprint: Fingerprint) -> bool {
        self.young.contains(&fingerprint) || self.old.contains(&fingerprint)
    }

    fn insert(&mut self, fingerprint: Fingerprint, now: Timestamp) {
        if now.since(self.since) >= self.keep || self.young.len() >= self.entries_max {
            self.old = std::mem::take(&mut self.young);
            self.since = now;
        }
        self.young.insert(fingerprint);
    }
}

#[cfg(test)]
mod tests;
