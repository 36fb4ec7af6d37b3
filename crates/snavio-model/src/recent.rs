//! The memory of signed messages that a node has just accepted, or is about to (PIP-2): a copy of one of them, sent
//! again inside the replay window, is not dispatched again.
//!
//! A message is reserved before its commit and remembered after it, so that a copy which arrives between the two is
//! not judged beside it. All of this is per destination: another subscription of an event, or one that is made
//! meanwhile, changes nothing for the others.

use std::time::Duration;

use foldhash::{HashSet, HashSetExt};

use crate::limits;
use crate::time::Timestamp;

/// Identifies one signed message at one destination: a keyed digest made by the caller.
pub type Fingerprint = u128;

/// The fingerprints of one message.
#[derive(Debug, Default, Clone)]
pub struct Fingerprints {
    /// One for each destination, in order; `None` where the memory is not asked.
    pub each: Vec<Option<Mark>>,
    /// One for all destinations together: a message with many is remembered by this one alone.
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
        self.each.iter().flatten().count() <= limits::REMEMBERED_DESTINATIONS_MAX
    }

    /// The fingerprints to reserve: those of destinations without claims.
    pub fn reserved(&self) -> impl Iterator<Item = Fingerprint> + Clone {
        let unclaimed = self.each.iter().flatten().filter(|mark| !mark.is_claimed);
        let is_narrow = self.is_narrow();
        let all = (!is_narrow && unclaimed.clone().next().is_some()).then_some(self.all);
        unclaimed.filter(move |_| is_narrow).map(|mark| mark.fingerprint).chain(all)
    }
}

/// The memory's answer to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// All of its destinations have accepted this very message.
    Known,
    /// A copy waits for its commit under this fingerprint: this message must wait for the end of that reservation.
    Copy(Fingerprint),
    /// As many messages as may be reserved are reserved.
    Full,
    /// It is reserved until it is confirmed or released.
    Reserved {
        /// The destinations that have accepted this very message; empty if none has.
        known: Vec<bool>,
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
        let reserved_max = intake_max.saturating_mul(2).max(limits::RESERVED_MESSAGES_MAX);
        Self::bounded(keep, limits::RECENT_MESSAGES_MAX, reserved_max, now)
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
        let new = message.each.iter().enumerate().filter(|(place, _)| known.get(*place) != Some(&true));
        let unclaimed = new.filter_map(|(_, mark)| *mark).filter(|mark| !mark.is_claimed);
        let find_copy = |mark: Mark| {
            [mark.fingerprint, message.all]
                .into_iter()
                .find(|fingerprint| self.reserved.contains(fingerprint))
        };
        if let Some(copy) = unclaimed.filter_map(find_copy).next() {
            return Admission::Copy(copy);
        }
        if self.reserved.len() + message.reserved().count() > self.reserved_max {
            return Admission::Full;
        }
        self.reserved.extend(message.reserved());
        Admission::Reserved { known }
    }

    /// Ends the reservation of a message, whatever came of it.
    pub fn release(&mut self, message: &Fingerprints) {
        for fingerprint in message.reserved() {
            self.reserved.remove(&fingerprint);
        }
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
