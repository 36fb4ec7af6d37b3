//! A node's memory of the signed messages that it has just accepted (PIP-2), one by one for each of their destinations: what
//! one subscription of an event compares, or who has subscribed since, changes nothing for the others.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use snavio_model::message::Message;
use snavio_model::recent::{Fingerprint, RecentMessages};
use snavio_model::registry::BoundRoute;
use snavio_model::time::Timestamp;

/// Destinations that a message is remembered at one by one. One for more is remembered once, at all of them: a few of those
/// would make the node forget everybody's, and who subscribes meanwhile waits for the next.
const NARROW: usize = 16;

/// What a message is remembered by; nothing at all of one that is not signed.
#[derive(Default)]
pub(crate) struct Fingerprints {
    /// At each of its destinations.
    each: Vec<Option<Fingerprint>>,
    /// At all of them.
    all: Fingerprint,
}

impl Fingerprints {
    fn is_narrow(&self) -> bool {
        self.each.iter().flatten().count() <= NARROW
    }
}

/// The memory.
pub(crate) struct Memory {
    recent: Mutex<RecentMessages>,
    hashers: [RandomState; 2],
}

impl Memory {
    /// One that keeps what may be captured and sent again within the replay window.
    pub(crate) fn new(window: Duration, now: Timestamp) -> Self {
        Self { recent: Mutex::new(RecentMessages::new(2 * window, now)), hashers: Default::default() }
    }

    /// Only the very same signed message is known again. What is not signed may say anything under its id.
    pub(crate) fn fingerprints(&self, message: &Message, routes: &[Arc<BoundRoute>]) -> Fingerprints {
        if message.key_version.is_none() {
            return Fingerprints::default();
        }
        let of_message = self.hashers.each_ref().map(|hasher| {
            let mut hasher = hasher.build_hasher();
            (message.tenant.as_str(), message.id.as_str(), &*message.signature).hash(&mut hasher);
            hasher
        });
        let fingerprint = |destination: &str| {
            let [high, low] = of_message.clone().map(|mut hasher| {
                destination.hash(&mut hasher);
                u128::from(hasher.finish())
            });
            high << 64 | low
        };
        let of_route = |route: &Arc<BoundRoute>| asks_memory(route).then(|| fingerprint(&route.destination));
        // No destination has an empty name.
        Fingerprints { each: routes.iter().map(of_route).collect(), all: fingerprint("") }
    }

    /// At which of its destinations a message is known; nothing at all where at none.
    pub(crate) fn known(&self, fingerprints: &Fingerprints) -> Vec<bool> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let Fingerprints { each, all } = fingerprints;
        let is_known = |it: &Option<Fingerprint>| it.is_some_and(|it| recent.knows(it) || recent.knows(*all));
        let is_new = !each.iter().any(is_known);
        if is_new { Vec::new() } else { each.iter().map(is_known).collect() }
    }

    /// Remembers a message whose commit is durable.
    pub(crate) fn remember(&self, fingerprints: &Fingerprints, now: Timestamp) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        match fingerprints.is_narrow() {
            true => fingerprints.each.iter().flatten().for_each(|it| recent.remember(*it, now)),
            false => recent.remember(fingerprints.all, now),
        }
    }
}

/// On routes that compare contents or tell what became of a message, memory answers nothing.
fn asks_memory(route: &BoundRoute) -> bool {
    route.route.claim.compares().is_none() && !route.route.processing.is_tracked()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(each: &[Fingerprint]) -> Fingerprints {
        Fingerprints { each: each.iter().copied().map(Some).collect(), all: 1 }
    }

    /// PIP-2, PIP-13
    #[test]
    fn who_subscribes_later_is_not_known_and_one_for_many_is_remembered_once() {
        let now = Timestamp(0);
        let memory = Memory::new(Duration::from_secs(60), now);
        memory.remember(&of(&[10, 11]), now);
        assert_eq!(memory.known(&of(&[10, 11, 12])), [true, true, false]);
        let many: Vec<_> = (100..100 + NARROW as u128 + 1).collect();
        let mut wide = of(&many);
        wide.all = 2;
        assert!(memory.known(&wide).is_empty());
        memory.remember(&wide, now);
        assert!(memory.known(&wide).iter().all(|it| *it));
        assert!(memory.known(&of(&many)).is_empty(), "nothing is remembered of each");
        // Also when it is for few by now.
        let few = Fingerprints { each: vec![Some(100), None], all: 2 };
        assert_eq!(memory.known(&few), [true, false]);
    }
}
