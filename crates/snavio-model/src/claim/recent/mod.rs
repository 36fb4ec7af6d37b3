//! The memory of signed messages that a node has just accepted, or is about to (PIP-2): a copy of one of them, sent
//! again inside the replay window, is not dispatched again.
//!
//! A message is reserved before its commit and remembered after it, so that a copy which arrives between the two is
//! not judged beside it. A message is remembered per destination: another subscription of an event, or one that is
//! made meanwhile, changes nothing for the others. It is reserved as a whole, so that an event with many destinations
//! takes no more room than a command.

use std::time::Duration;

use foldhash::{HashSet, HashSetExt};

use crate::bounds;
use crate::time::Timestamp;

/// Identifies one signed message at one destination: a keyed digest made by the caller.
pub type Fingerprint = u128;

/// The fingerprints of one message.
#[derive(Debug, Default, Clone)]
pub struct Fingerprints {
    /// One for each destination, in order; `None` where the memory is not asked.
    pub each: Vec<Option<Mark>>,
    /// One for all destinations together: a message is reserved by it, and one with many is remembered by it alone.
    pub all: Fingerprint,
}

/// A message at one destination.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    /// The fingerprint there.
    pub fingerprint: Fingerprint,
    /// Whether the destination claims ids. The claim then decides between copies in flight, and the message is not
    /// reserved there.
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
    /// All of its destinations have accepted this very message.
    Known,
    /// A copy waits for its commit: this message must wait for the end of that reservation.
    Copy,
    /// As many messages as may be reserved are reserved.
    Full,
    /// It goes to its commit.
    New {
        /// The destinations that have accepted this very message; empty if none has.
        known: Vec<bool>,
        /// Whether it is reserved until it is released: it is unless all others of its destinations claim.
        is_reserved: bool,
    },
}

/// Two generations of fingerprints: one that grows, one that is on its way out. And the fingerprints of messages that
/// wait for their commit.
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
    /// A memory that keeps each message for at least `keep`, unless there are too many of them. It reserves as many as
    /// an intake with room for `intake_max` messages can have in flight.
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
        let mut new = message.each.iter().enumerate().filter(|(place, _)| known.get(*place) != Some(&true));
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

    /// Ends a reservation, whatever came of its message.
    pub fn release(&mut self, message: &Fingerprints) {
        self.reserved.remove(&message.all);
    }

    /// Remembers a message whose commit is durable.
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
