//! Limits how often an action happens for each of many keys.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use crate::time::Timestamp;

/// Remembers when an action last happened, for a bounded number of keys. A full memory forgets old keys first
/// and then all: an action may then happen once more, and never less.
#[derive(Debug)]
pub struct Seldom<K> {
    every: Duration,
    most: usize,
    last: HashMap<K, Timestamp>,
}

impl<K: Eq + Hash> Seldom<K> {
    /// Allows one action per key in this time, for this many keys.
    pub fn new(every: Duration, most: usize) -> Self {
        Self { every, most, last: HashMap::new() }
    }

    /// Whether the action has not happened recently.
    pub fn is_due(&self, key: &K, now: Timestamp) -> bool {
        self.last.get(key).is_none_or(|last| now.since(*last) >= self.every)
    }

    /// Records that the action happened.
    pub fn done(&mut self, key: K, now: Timestamp) {
        if self.last.len() >= self.most {
            let every = self.every;
            self.last.retain(|_, last| now.since(*last) < every);
            if self.last.len() >= self.most {
                self.last.clear();
            }
        }
        self.last.insert(key, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REG-12
    #[test]
    fn action_is_limited_per_key_in_bounded_memory() {
        let at = |seconds: i64| Timestamp(seconds * 1000);
        let mut seldom = Seldom::new(Duration::from_secs(60), 2);
        assert!(seldom.is_due(&"a", at(0)));
        seldom.done("a", at(0));
        for (key, seconds, due) in [("a", 0, false), ("a", 59, false), ("b", 59, true), ("a", 60, true)] {
            assert_eq!(seldom.is_due(&key, at(seconds)), due, "{key} {seconds}");
        }
        seldom.done("b", at(30));
        seldom.done("c", at(61));
        assert!(
            seldom.is_due(&"a", at(61)) && !seldom.is_due(&"b", at(61)),
            "the oldest was forgotten first"
        );
        seldom.done("d", at(62));
        assert!(seldom.is_due(&"b", at(62)) && !seldom.is_due(&"d", at(62)));
    }
}
