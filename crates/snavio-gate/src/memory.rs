//! A node's memory of the signed messages that it has just accepted (PIP-2), one by one for each of their destinations: what
//! one subscription of an event compares, or who has subscribed since, changes nothing for the others.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use snavio_model::message::Message;
use snavio_model::recent::{Fingerprint, RecentMessages};
use snavio_model::registry::BoundRoute;
use snavio_model::time::Timestamp;

/// What a message is remembered by at each of its destinations; nothing at all of one that is not signed.
pub(crate) type Fingerprints = Vec<Option<Fingerprint>>;

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
            return Vec::new();
        }
        let of_message = self.hashers.each_ref().map(|hasher| {
            let mut hasher = hasher.build_hasher();
            (message.tenant.as_str(), message.id.as_str(), &*message.signature).hash(&mut hasher);
            hasher
        });
        let fingerprint = |route: &BoundRoute| {
            let [high, low] = of_message.clone().map(|mut hasher| {
                route.destination.hash(&mut hasher);
                u128::from(hasher.finish())
            });
            high << 64 | low
        };
        routes.iter().map(|route| asks_memory(route).then(|| fingerprint(route))).collect()
    }

    /// At which of its destinations a message is known; nothing at all where at none.
    pub(crate) fn known(&self, fingerprints: &Fingerprints) -> Vec<bool> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = |it: &Option<Fingerprint>| it.is_some_and(|it| recent.knows(it));
        let is_new = !fingerprints.iter().any(is_known);
        if is_new { Vec::new() } else { fingerprints.iter().map(is_known).collect() }
    }

    /// Remembers a message whose commit is durable.
    pub(crate) fn remember(&self, fingerprints: &Fingerprints, now: Timestamp) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        fingerprints.iter().flatten().for_each(|it| recent.remember(*it, now));
    }
}

/// On routes that compare contents or tell what became of a message, memory answers nothing.
fn asks_memory(route: &BoundRoute) -> bool {
    route.route.claim.compares().is_none() && !route.route.processing.is_tracked()
}
