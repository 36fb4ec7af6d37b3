//! A node's memory of the signed messages that it has just accepted, or is about to (PIP-2).

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snavio_model::fair::Room;
use snavio_model::message::Message;
use snavio_model::recent::{Admission, Fingerprint, Fingerprints, Mark, RecentMessages};
use snavio_model::registry::BoundRoute;
use snavio_model::time::Timestamp;
use tokio_util::sync::CancellationToken;

/// The memory.
pub(crate) struct Memory {
    state: Mutex<State>,
    hashers: [RandomState; 2],
}

struct State {
    recent: RecentMessages,
    /// Reservations that copies wait for, each with the end of it.
    awaited: HashMap<Fingerprint, CancellationToken>,
}

/// The memory's answer to a message.
pub(crate) enum Entry {
    /// All of its destinations have accepted this very message.
    Known,
    /// A copy waits for its commit, and `first_ended` is cancelled after that.
    Copy { message: Fingerprints, first_ended: CancellationToken },
    /// The memory has no room for another message in flight.
    Full,
    /// It is reserved, and these destinations know it; empty if none does.
    Reserved { reservation: Reservation, known: Vec<bool> },
}

impl Memory {
    /// A memory that covers the replay window on both sides, for an intake with this room.
    pub(crate) fn new(window: Duration, room: Room, now: Timestamp) -> Arc<Self> {
        let recent = RecentMessages::new(2 * window, room.items_max, now);
        let state = Mutex::new(State { recent, awaited: HashMap::default() });
        Arc::new(Self { state, hashers: Default::default() })
    }

    /// Only the very same signed message has the same fingerprints. An unsigned one may say anything under its id, and
    /// has none.
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
        let mark = |route: &Arc<BoundRoute>| {
            asks_memory(route).then(|| Mark {
                fingerprint: fingerprint(&route.destination),
                is_claimed: route.route.claim.keep().is_some(),
            })
        };
        // No destination has an empty name.
        Fingerprints { each: routes.iter().map(mark).collect(), all: fingerprint("") }
    }

    /// Reserves a message until its commit, unless it is known or a copy of it is in flight.
    pub(crate) fn enter(self: &Arc<Self>, message: Fingerprints) -> Entry {
        if message.each.iter().all(Option::is_none) {
            let nothing = Reservation { memory: Arc::clone(self), message: Fingerprints::default() };
            return Entry::Reserved { reservation: nothing, known: Vec::new() };
        }
        let mut state = self.lock();
        match state.recent.admit(&message) {
            Admission::Known => Entry::Known,
            Admission::Full => Entry::Full,
            Admission::Copy(first) => {
                let first_ended = state.awaited.entry(first).or_default().clone();
                Entry::Copy { message, first_ended }
            }
            Admission::Reserved { known } => {
                let reservation = Reservation { memory: Arc::clone(self), message };
                Entry::Reserved { reservation, known }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, message: &Fingerprints, accepted_at: Option<Timestamp>) {
        let mut state = self.lock();
        if let Some(at) = accepted_at {
            state.recent.remember(message, at);
        }
        state.recent.release(message);
        if state.awaited.is_empty() {
            return;
        }
        let ended: Vec<_> =
            message.reserved().filter_map(|fingerprint| state.awaited.remove(&fingerprint)).collect();
        drop(state);
        ended.iter().for_each(CancellationToken::cancel);
    }
}

/// A message in flight. Dropping it releases the message, and the next copy is judged.
pub(crate) struct Reservation {
    memory: Arc<Memory>,
    message: Fingerprints,
}

impl Reservation {
    /// Remembers the message: its commit is durable.
    pub(crate) fn confirm(mut self, now: Timestamp) {
        let message = std::mem::take(&mut self.message);
        self.memory.end(&message, Some(now));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.message.each.is_empty() {
            self.memory.end(&self.message, None);
        }
    }
}

/// Routes that compare contents or store responses need the store's answer.
fn asks_memory(route: &BoundRoute) -> bool {
    route.route.claim.compares().is_none() && !route.route.processing.is_tracked()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Fingerprints {
        let mark = Mark { fingerprint: 1, is_claimed: false };
        Fingerprints { each: vec![Some(mark)], all: 2 }
    }

    fn reserve(memory: &Arc<Memory>) -> Reservation {
        match memory.enter(message()) {
            Entry::Reserved { reservation, .. } => reservation,
            _ => panic!("the message is known or in flight"),
        }
    }

    /// PIP-2
    #[tokio::test]
    async fn end_of_a_reservation_wakes_every_copy() {
        let memory = Memory::new(Duration::from_secs(60), Room::default(), Timestamp(0));
        for is_accepted in [false, true] {
            let first = reserve(&memory);
            let copies: Vec<_> = (0..3)
                .map(|_| match memory.enter(message()) {
                    Entry::Copy { first_ended, .. } => first_ended,
                    _ => panic!("the first is in flight"),
                })
                .collect();
            assert!(copies.iter().all(|first_ended| !first_ended.is_cancelled()));
            match is_accepted {
                true => first.confirm(Timestamp(0)),
                false => drop(first),
            }
            for first_ended in copies {
                first_ended.cancelled().await;
            }
            assert!(memory.lock().awaited.is_empty());
            assert_eq!(matches!(memory.enter(message()), Entry::Known), is_accepted);
        }
    }
}
