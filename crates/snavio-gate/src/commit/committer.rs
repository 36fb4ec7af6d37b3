//! The committer gathers the intakes of many requests and settles them in batches, fairly between tenants.
//!
//! It has no timer and no thread. A request that submits intakes while no batch is in flight starts a batch.
//! The end of a batch starts the next one with the intakes that came meanwhile. The store says how many
//! batches may be in flight. With one batch at a time, intakes are settled in the order in which they came.
//! For the messages of an ordered entity this order holds in any case: an entity is in at most one batch at a
//! time (ORD-3).

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use metrics::{Histogram, histogram};
use snavio_model::bounds;
use snavio_model::claim::IdKey;
use snavio_model::limit::fair::{FairQueue, Room};
use snavio_model::ordering::EntityKey;
use snavio_model::settle::{Intake, Settlement};
use snavio_model::time::Clock;
use snavio_store::{Store, StoreError};

use crate::commit::ticket::{Answers, Held, Ticket};
use crate::pipeline::memory::Reservation;

/// Why an intake was not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The tenant's share of the intake, or the whole intake, is full. Nothing was written.
    Full,
    /// The store refused or is closing. Nothing was written.
    Store,
    /// The store dropped the batch without an answer. The batch may have been written (MSG-12).
    Lost,
}

/// The result for one intake.
pub(crate) type Settled = Result<Settlement, Failure>;

/// An intake and its reservation in the node's memory. The reservation ends before the result is returned.
pub(crate) struct Submission {
    pub(crate) intake: Intake,
    /// `None` if the message is not reserved.
    pub(crate) reservation: Option<Reservation>,
}

struct WaitingIntake {
    intake: Intake,
    reply: Reply,
}

/// Returns the result of one intake to its request.
struct Reply {
    ticket: Arc<Ticket<Settled>>,
    place: usize,
    reservation: Option<Reservation>,
}

impl Reply {
    /// Ends the reservation of a message that was not accepted, and returns the result.
    fn answer(self, settled: Settled) {
        let Self { ticket, place, reservation } = self;
        if let Some(reservation) = reservation {
            reservation.refuse(&settled);
        }
        ticket.answer(place, settled);
    }
}

/// Settles the intakes of many requests in batches.
pub(crate) struct Committer(Arc<Shared>);

struct Shared {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    intakes: Mutex<Intakes>,
    /// Notified when no batch is in flight any more.
    idle: Condvar,
    messages_per_batch: Histogram,
    portion: usize,
}

struct Intakes {
    queue: FairQueue<WaitingIntake>,
    /// The number of batches that the store is settling. The end of each one takes the next.
    under_way: usize,
    /// The ordered entities of the batches in flight. An entity's next message is taken after the batch with
    /// its previous one has ended.
    entities: HashSet<EntityKey>,
    closed: bool,
}

fn id_key(intake: &Intake) -> IdKey {
    IdKey { id: intake.message.id.clone(), tenant: intake.message.tenant.clone() }
}

impl Intakes {
    /// Takes the next batch of intakes that may be settled beside the batches in flight. The batch is empty
    /// if every waiting intake must wait for them.
    ///
    /// A message of an entity in flight is passed over. Later messages with an entity or an id of a passed
    /// message are passed over, too, because the content that an id stands for is decided by the first
    /// message with that id.
    fn take(&mut self) -> Vec<WaitingIntake> {
        let Self { queue, entities, .. } = self;
        let mut passed: HashSet<EntityKey> = HashSet::new();
        let mut passed_ids: HashSet<IdKey> = HashSet::new();
        let is_free = |WaitingIntake { intake, .. }: &WaitingIntake| {
            let is_free = !intake.entities().any(|key| entities.contains(key) || passed.contains(key))
                && (passed_ids.is_empty() || !passed_ids.contains(&id_key(intake)));
            if !is_free {
                passed_ids.insert(id_key(intake));
                let new: Vec<_> = intake.entities().filter(|key| !passed.contains(*key)).cloned().collect();
                passed.extend(new);
            }
            is_free
        };
        let batch = queue.take_free(bounds::COMMIT_MESSAGES_MAX, bounds::COMMIT_BYTES_MAX, is_free);
        entities.extend(batch.iter().flat_map(|waiting| waiting.intake.entities()).cloned());
        batch
    }
}

impl Committer {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, room: Room) -> Self {
        let intakes = Mutex::new(Intakes {
            queue: FairQueue::new(room),
            under_way: 0,
            entities: HashSet::default(),
            closed: false,
        });
        let messages_per_batch = histogram!("snavio_commit_messages");
        let portion = (room.items_max / room.tenant_part.max(1) / 2).max(bounds::BATCH_MESSAGES_MAX);
        Self(Arc::new(Shared { store, clock, intakes, idle: Condvar::new(), messages_per_batch, portion }))
    }

    /// Submits intakes in their order. Each result comes after the commit of its intake, or when it cannot be
    /// committed. `held` is dropped after the last result.
    pub(crate) fn settle(&self, submissions: Vec<Submission>, held: Held) -> Answers<Settled> {
        let (ticket, answers) = Ticket::for_answers(submissions.len(), held);
        let mut refused = Vec::new();
        let mut intakes = self.0.lock();
        for (place, Submission { intake, reservation }) in submissions.into_iter().enumerate() {
            let reply = Reply { ticket: Arc::clone(&ticket), place, reservation };
            if intakes.closed {
                refused.push((reply, Failure::Store));
                continue;
            }
            let tenant = intake.message.tenant.clone();
            let size = intake.size();
            if let Err(WaitingIntake { reply, .. }) =
                intakes.queue.push(&tenant, size, WaitingIntake { intake, reply })
            {
                refused.push((reply, Failure::Full));
            }
        }
        drop(intakes);
        for (reply, failure) in refused {
            reply.answer(Err(failure));
        }
        self.0.start_batches();
        answers
    }

    /// The number of messages that one request submits at a time; an event counts once for each destination.
    /// It is half of the tenant's share, because a large request of events with many destinations would
    /// otherwise be refused because of its own size.
    pub(crate) fn portion(&self) -> usize {
        self.0.portion
    }

    /// The number of messages that wait for a batch.
    pub(crate) fn waiting(&self) -> usize {
        self.0.lock().queue.len()
    }

    /// Refuses new intakes, and returns when all waiting intakes are settled.
    pub(crate) fn close(&self) {
        let mut intakes = self.0.lock();
        intakes.closed = true;
        while intakes.under_way > 0 {
            intakes = self.0.idle.wait(intakes).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Intakes> {
        self.intakes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts batches while the store permits another one and intakes wait.
    fn start_batches(self: &Arc<Self>) {
        while let Some(batch) = self.start_batch() {
            self.settle_batches(Some(batch));
        }
    }

    fn start_batch(&self) -> Option<Vec<WaitingIntake>> {
        let mut intakes = self.lock();
        if intakes.under_way >= self.store.batches_at_once() {
            return None;
        }
        let batch = Some(intakes.take()).filter(|batch| !batch.is_empty());
        intakes.under_way += usize::from(batch.is_some());
        batch
    }

    /// Passes one batch to the store; the end of the batch starts the next one. A store may answer before
    /// `settle` returns. In this case the loop continues here, because a recursive call would add a stack
    /// frame for each batch.
    fn settle_batches(self: &Arc<Self>, mut next: Option<Vec<WaitingIntake>>) {
        while let Some(batch) = next {
            let (intakes, replies): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|waiting| (waiting.intake, waiting.reply)).unzip();
            self.messages_per_batch.record(intakes.len() as f64);
            let has_first_event = Arc::new(AtomicBool::new(false));
            let entities = intakes.iter().flat_map(Intake::entities).cloned().collect();
            let mut batch = Batch {
                shared: Arc::clone(self),
                has_first_event: Arc::clone(&has_first_event),
                replies,
                entities,
            };
            self.store.settle(intakes, self.clock.now(), Box::new(move |settled| batch.answer(settled)));
            if !has_first_event.swap(true, Ordering::AcqRel) {
                return;
            }
            next = self.next_batch();
        }
    }

    /// Takes the batch that follows an ended one.
    fn next_batch(&self) -> Option<Vec<WaitingIntake>> {
        let mut intakes = self.lock();
        let batch = intakes.take();
        if batch.is_empty() {
            // The remaining intakes, if any, wait for another batch in flight.
            intakes.under_way -= 1;
            self.idle.notify_all();
            return None;
        }
        Some(batch)
    }
}

/// A batch that the store is settling. Its end starts the next one, even if the store drops it.
struct Batch {
    shared: Arc<Shared>,
    /// The next batch starts after two events: the store's answer, and the return of `settle`. True after the
    /// first of them.
    has_first_event: Arc<AtomicBool>,
    replies: Vec<Reply>,
    /// The ordered entities of its messages.
    entities: Vec<EntityKey>,
}

impl Batch {
    fn answer(&mut self, settled: Result<Vec<Settlement>, StoreError>) {
        match settled {
            Ok(settlements) => {
                let answered = settlements.len().min(self.replies.len());
                let accepted = self.replies.iter_mut().zip(&settlements);
                let accepted = accepted.filter(|(_, settlement)| settlement.message.is_some());
                let confirmed: Vec<_> = accepted.filter_map(|(reply, _)| reply.reservation.take()).collect();
                Reservation::confirm_all(confirmed, self.shared.clock.now());
                for (reply, settlement) in self.replies.drain(..answered).zip(settlements) {
                    reply.answer(Ok(settlement));
                }
            }
            Err(error) => {
                let messages = self.replies.len();
                tracing::warn!(error = &error as &dyn std::error::Error, messages, "batch not settled");
                let is_lost = matches!(error, StoreError::Lost(_));
                self.fail(if is_lost { Failure::Lost } else { Failure::Store });
            }
        }
    }

    /// Fails all replies that have no result yet.
    fn fail(&mut self, failure: Failure) {
        for reply in self.replies.drain(..) {
            reply.answer(Err(failure));
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.fail(Failure::Lost);
        let mut intakes = self.shared.lock();
        for key in &self.entities {
            intakes.entities.remove(key);
        }
        drop(intakes);
        if self.has_first_event.swap(true, Ordering::AcqRel) {
            self.shared.settle_batches(self.shared.next_batch());
            self.shared.start_batches();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use snavio_model::claim::recent::{Fingerprints, Mark};
    use snavio_model::id::Serial;
    use snavio_model::ordering::Mode;
    use snavio_model::time::Timestamp;
    use snavio_store::conformance::ordering::{numbered, ordered};
    use snavio_store::engine::sqlite::{EmbeddedStore, Options};

    use super::*;
    use crate::pipeline::memory::{Entry, InFlight, Memory};

    /// A batch of two intakes in the store, and their results.
    fn batch(committer: &Committer) -> (Batch, crate::commit::ticket::Answers<Settled>) {
        committer.0.lock().under_way = 1;
        let (ticket, answers) = Ticket::for_answers(2, Box::new(()));
        let replies =
            [0, 1].map(|place| Reply { ticket: Arc::clone(&ticket), place, reservation: None }).into();
        let has_first_event = Arc::new(AtomicBool::new(true));
        (Batch { shared: Arc::clone(&committer.0), has_first_event, replies, entities: Vec::new() }, answers)
    }

    /// PIP-5, MSG-12
    #[tokio::test(flavor = "multi_thread")]
    async fn lost_batch_fails_its_intakes_and_blocks_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(EmbeddedStore::open(&Options::new(folder.path())).unwrap());
        let committer = Committer::new(store, Arc::new(Timestamp(0)), Room::default());
        let (forgotten, answers) = batch(&committer);
        drop(forgotten);
        assert_eq!(answers.await, [Err(Failure::Lost), Err(Failure::Lost)]);

        let (mut refused, answers) = batch(&committer);
        refused.answer(Err(StoreError::Closed));
        drop(refused);
        assert_eq!(answers.await, [Err(Failure::Store), Err(Failure::Store)]);

        let (mut half, answers) = batch(&committer);
        let settlement = Settlement::unordered(None, Vec::new());
        half.answer(Ok(vec![settlement.clone()]));
        drop(half);
        assert_eq!(answers.await, [Ok(settlement), Err(Failure::Lost)]);
        committer.close();
    }

    /// PIP-2, PIP-5, MSG-12
    #[tokio::test(flavor = "multi_thread")]
    async fn copies_learn_every_end_of_a_batch() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(EmbeddedStore::open(&Options::new(folder.path())).unwrap());
        let committer = Committer::new(store, Arc::new(Timestamp(0)), Room::default());
        let memory = Memory::new(Duration::from_secs(60), Room::default(), Timestamp(0));
        let settlement = |message| Settlement::unordered(message, Vec::new());
        let refused = settlement(None);
        let ends = [
            (None, Some(Err(Failure::Lost))),
            (Some(Err(StoreError::Closed)), Some(Err(Failure::Store))),
            (Some(Ok(vec![refused.clone(), refused.clone()])), Some(Ok(refused.clone()))),
            (Some(Ok(vec![settlement(Some(Serial(1))), refused])), None),
        ];
        for (answer, expected) in ends {
            fn message() -> Fingerprints {
                Fingerprints { each: vec![Some(Mark { fingerprint: 1, is_claimed: false })], all: 2 }
            }
            let Entry::New { in_flight: InFlight::Reserved(first), .. } = memory.enter(message()) else {
                panic!("expected a new message");
            };
            let (mut batch, answers) = batch(&committer);
            batch.replies[0].reservation = Some(first);
            let Entry::Copy { first, .. } = memory.enter(message()) else { panic!("expected a copy") };
            answer.into_iter().for_each(|answer| batch.answer(answer));
            drop(batch);
            assert_eq!(first.end().await, expected);
            assert_eq!(answers.await.len(), 2);
            assert_eq!(matches!(memory.enter(message()), Entry::Known), expected.is_none());
        }
        committer.close();
    }

    /// ORD-3, PIP-9: the ordered messages of one subscriber do not delay other messages of their publisher.
    #[test]
    fn message_of_busy_entity_waits_with_its_successors() {
        let (one, other) = (ordered("one", Mode::Strict, |_| {}), ordered("other", Mode::Strict, |_| {}));
        let both = [Arc::clone(&one), Arc::clone(&other)];
        let at = Timestamp(0);
        let mut intakes = Intakes {
            queue: FairQueue::new(Room::default()),
            under_way: 1,
            entities: numbered("0", "e", 0, &both[..1], at).entities().cloned().collect(),
            closed: false,
        };
        let (ticket, _answers) = Ticket::for_answers(6, Box::new(()));
        let waiting = [
            numbered("busy", "e", 1, &both, at),
            numbered("behind it at the other", "e", 2, &both[1..], at),
            numbered("of another entity", "f", 1, &both, at),
            Intake { places: Vec::new(), ..numbered("unordered", "e", 1, &both, at) },
            numbered("busy, too", "e", 3, &both[..1], at),
            numbered("busy", "g", 1, &both, at),
        ];
        for (place, intake) in waiting.into_iter().enumerate() {
            let (tenant, size) = (intake.message.tenant.clone(), intake.size());
            let reply = Reply { ticket: Arc::clone(&ticket), place, reservation: None };
            assert!(intakes.queue.push(&tenant, size, WaitingIntake { intake, reply }).is_ok());
        }
        let mut take = || -> Vec<_> {
            intakes.take().iter().map(|waiting| waiting.intake.message.id.to_string()).collect()
        };
        assert_eq!(take(), ["of another entity", "unordered"]);
        assert!(take().is_empty());
        intakes.entities.clear();
        let rest: Vec<_> =
            intakes.take().iter().map(|waiting| waiting.intake.message.id.to_string()).collect();
        assert_eq!(
            rest,
            ["busy", "behind it at the other", "busy, too", "busy"],
            "the first message decides the content of an id"
        );
    }
}
