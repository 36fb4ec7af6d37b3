//! The node's memory of signed messages that it has just accepted or is about to commit (PIP-2).

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snavio_model::claim::recent::{Admission, Fingerprint, Fingerprints, Mark, RecentMessages};
use snavio_model::limit::fair::Room;
use snavio_model::message::Message;
use snavio_model::registry::BoundRoute;
use snavio_model::time::Timestamp;
use tokio::sync::watch;

use crate::commit::committer::Settled;

/// Remembers recent messages and messages in flight.
pub(crate) struct Memory {
    state: Mutex<State>,
    hashers: [RandomState; 2],
}

struct State {
    recent: RecentMessages,
    /// The reservations that copies wait for.
    awaited: HashMap<Fingerprint, watch::Sender<Option<Settled>>>,
}

/// The memory's answer to a message.
pub(crate) enum Entry {
    /// Every destination has accepted exactly this message.
    Known,
    /// The first copy is in flight; this copy waits for its commit.
    Copy { message: Fingerprints, first: First },
    /// The memory has no room for another message in flight.
    Full,
    /// The message goes on to its commit. `known` has for each destination whether the destination has
    /// accepted the message; it is empty if none has.
    New { in_flight: InFlight, known: Vec<bool> },
}

/// A message on its way to its commit.
pub(crate) enum InFlight {
    /// The message is reserved, and copies wait for it.
    Reserved(Reservation),
    /// Every destination has claims or knows the message, so that claims decide between copies. The message
    /// is remembered after its commit; `None` if the memory is not asked about it.
    Claimed(Option<Fingerprints>),
}

/// The first of several copies, in flight.
pub(crate) struct First(watch::Receiver<Option<Settled>>);

impl First {
    /// Waits until the first copy ends. Returns its result if it was not accepted.
    pub(crate) async fn end(mut self) -> Option<Settled> {
        self.0.wait_for(Option::is_some).await.ok()?.clone()
    }
}

impl Memory {
    /// Creates a memory that covers the replay window on both sides, for an intake with this room.
    pub(crate) fn new(window: Duration, room: Room, now: Timestamp) -> Arc<Self> {
        let recent = RecentMessages::new(2 * window, room.items_max, now);
        let state = Mutex::new(State { recent, awaited: HashMap::default() });
        Arc::new(Self { state, hashers: Default::default() })
    }

    /// Computes the fingerprints of a message. Only exactly the same signed message has the same
    /// fingerprints. An unsigned message has none, because it may have any content under its id.
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
            uses_memory(route).then(|| Mark {
                fingerprint: fingerprint(&route.destination),
                is_claimed: route.route.claim.keep().is_some(),
            })
        };
        // An empty text for the whole message: no destination has an empty name.
        Fingerprints { each: routes.iter().map(mark).collect(), all: fingerprint("") }
    }

    /// Reserves a message until its commit, unless the message is known or a copy is in flight.
    pub(crate) fn enter(self: &Arc<Self>, message: Fingerprints) -> Entry {
        if message.each.iter().all(Option::is_none) {
            return Entry::New { in_flight: InFlight::Claimed(None), known: Vec::new() };
        }
        let mut state = self.lock();
        match state.recent.admit(&message) {
            Admission::Known => Entry::Known,
            Admission::Full => Entry::Full,
            Admission::Copy => {
                let awaited = state.awaited.entry(message.all);
                let first = awaited.or_insert_with(|| watch::Sender::new(None)).subscribe();
                Entry::Copy { message, first: First(first) }
            }
            Admission::New { known, is_reserved: true } => {
                let reservation = Reservation { memory: Arc::clone(self), message: Some(message) };
                Entry::New { in_flight: InFlight::Reserved(reservation), known }
            }
            Admission::New { known, is_reserved: false } => {
                Entry::New { in_flight: InFlight::Claimed(Some(message)), known }
            }
        }
    }

    /// Remembers messages without reservations after their commits are durable.
    pub(crate) fn remember(&self, messages: &[Fingerprints], now: Timestamp) {
        if !messages.is_empty() {
            let mut state = self.lock();
            messages.iter().for_each(|message| state.recent.remember(message, now));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Ends a reservation and returns the sender for its copies. The copies continue when the sender is
    /// dropped, or get the result with which the message was refused.
    fn release(&mut self, message: &Fingerprints) -> Option<watch::Sender<Option<Settled>>> {
        self.recent.release(message);
        self.awaited.remove(&message.all)
    }
}

/// A reserved message in flight. Dropping the reservation releases the message, so that the next copy is
/// judged.
pub(crate) struct Reservation {
    memory: Arc<Memory>,
    /// `None` after the reservation has ended.
    message: Option<Fingerprints>,
}

impl Reservation {
    /// Remembers the messages of one durable commit.
    pub(crate) fn confirm_all(reservations: Vec<Self>, now: Timestamp) {
        let Some(memory) = reservations.first().map(|first| Arc::clone(&first.memory)) else { return };
        let mut state = memory.lock();
        let messages = reservations.into_iter().filter_map(|mut reservation| reservation.message.take());
        let awaited = messages.filter_map(|message| {
            state.recent.remember(&message, now);
            state.release(&message)
        });
        let awaited: Vec<_> = awaited.collect();
        drop(state);
        drop(awaited);
    }

    /// Releases a message that was not accepted, and returns its result to its copies.
    pub(crate) fn refuse(mut self, settled: &Settled) {
        self.end(Some(settled));
    }

    fn end(&mut self, refused: Option<&Settled>) {
        let message = self.message.take();
        let awaited = message.and_then(|message| self.memory.lock().release(&message));
        if let Some(awaited) = awaited {
            awaited.send_replace(refused.cloned());
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.end(None);
    }
}

/// Whether the memory may answer for a route. Routes that compare content or store responses need the store's
/// answer.
fn uses_memory(route: &BoundRoute) -> bool {
    route.route.claim.compares().is_none() && !route.route.processing.is_tracked()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::committer::Failure;

    fn message() -> Fingerprints {
        let mark = Mark { fingerprint: 1, is_claimed: false };
        Fingerprints { each: vec![Some(mark)], all: 2 }
    }

    fn reserve(memory: &Arc<Memory>) -> Reservation {
        match memory.enter(message()) {
            Entry::New { in_flight: InFlight::Reserved(reservation), .. } => reservation,
            _ => panic!("the message is known or in flight"),
        }
    }

    /// PIP-2, MSG-12
    #[tokio::test]
    async fn end_of_a_reservation_wakes_every_copy() {
        let memory = Memory::new(Duration::from_secs(60), Room::default(), Timestamp(0));
        let lost = Some(Err(Failure::Lost));
        for (is_accepted, expected) in [(false, None), (false, lost), (true, None)] {
            let first = reserve(&memory);
            let copies: Vec<_> = (0..3)
                .map(|_| match memory.enter(message()) {
                    Entry::Copy { first, .. } => Box::pin(first.end()),
                    _ => panic!("the first is in flight"),
                })
                .collect();
            match &expected {
                Some(settled) => first.refuse(settled),
                None if is_accepted => Reservation::confirm_all(vec![first], Timestamp(0)),
                None => drop(first),
            }
            for copy in copies {
                assert_eq!(copy.await, expected);
            }
            assert!(memory.lock().awaited.is_empty());
            assert_eq!(matches!(memory.enter(message()), Entry::Known), is_accepted);
        }
    }
}
