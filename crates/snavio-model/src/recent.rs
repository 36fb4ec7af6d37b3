//! The memory of messages that a node has just accepted (PIP-2): the very same signed message, captured and
//! sent again inside the window, goes nowhere. It is a shortcut; nothing relies on it to be complete.

use std::time::Duration;

use foldhash::{HashSet, HashSetExt};

use crate::limits;
use crate::time::Timestamp;

/// What identifies one signed message to one destination: a keyed digest made by the caller.
pub type Fingerprint = u128;

/// Two generations of fingerprints: one that grows, one that is on its way out.
#[derive(Debug)]
pub struct RecentMessages {
    keep: Duration,
    entries_max: usize,
    young: HashSet<Fingerprint>,
    old: HashSet<Fingerprint>,
    since: Timestamp,
}

impl RecentMessages {
    /// A memory that keeps each message for at least `keep`, unless there are too many of them.
    pub fn new(keep: Duration, now: Timestamp) -> Self {
        Self::bounded(keep, limits::RECENT_MESSAGES_MAX, now)
    }

    fn bounded(keep: Duration, entries_max: usize, now: Timestamp) -> Self {
        Self { keep, entries_max, young: HashSet::new(), old: HashSet::new(), since: now }
    }

    /// Whether this very message was accepted a short while ago.
    pub fn knows(&self, message: Fingerprint) -> bool {
        self.young.contains(&message) || self.old.contains(&message)
    }

    /// Remembers a message whose commit is durable.
    pub fn remember(&mut self, message: Fingerprint, now: Timestamp) {
        if now.since(self.since) >= self.keep || self.young.len() >= self.entries_max {
            self.old = std::mem::take(&mut self.young);
            self.since = now;
        }
        self.young.insert(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: Duration = Duration::from_secs(120);

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1000)
    }

    /// PIP-2
    #[test]
    fn a_message_is_known_for_the_whole_window_and_forgotten_later() {
        let mut recent = RecentMessages::new(KEEP, at(0));
        recent.remember(1, at(10));
        recent.remember(2, at(129));
        assert!(recent.knows(1) && recent.knows(2));
        recent.remember(3, at(260));
        assert!(!recent.knows(1), "older than the window and a generation");
        assert!(recent.knows(2) && recent.knows(3));
    }

    /// PIP-2
    #[test]
    fn it_never_holds_more_than_two_generations() {
        let mut recent = RecentMessages::bounded(KEEP, 100, at(0));
        for n in 0..10_000 {
            recent.remember(n, at(1));
        }
        assert!(recent.young.len() + recent.old.len() <= 200);
        assert!(recent.knows(9_999));
    }
}
