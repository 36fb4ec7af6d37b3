//! The committer: requests hand in their intakes, and whatever waits is settled together, in turns by tenant.
//!
//! No timer and no thread: whoever hands in while nothing is under way begins a batch, and the end of a batch
//! begins the next with what has come meanwhile. As many batches at a time as the store says it can use; where it is
//! one, what came first is settled first. Of an entity whose messages are ordered that is so in any case: none of them is
//! in two batches at a time (ORD-3).

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

/// Why an intake was not settled, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The tenant's part of the room, or the whole of it, is full. Nothing was written.
    Full,
    /// The store said no, or is closing. Nothing was written.
    Store,
    /// The store let go of the batch without a word: it may have been written (MSG-12).
    Lost,
}

/// What became of an intake.
pub(crate) type Settled = Result<Settlement, Failure>;

/// An intake and its reservation in the node's memory, which ends before the answer is given.
pub(crate) struct Submission {
    pub(crate) intake: Intake,
    /// Nothing where the message is not reserved.
    pub(crate) reservation: Option<Reservation>,
}

struct Waiting {
    intake: Intake,
    reply: Reply,
}

/// The place of an intake among those it was handed in with.
struct Reply {
    ticket: Arc<Ticket<Settled>>,
    place: usize,
    reservation: Option<Reservation>,
}

impl Reply {
    /// Ends the reservation of what was not accepted, and gives the answer.
    fn answer(self, settled: Settled) {
        let Self { ticket, place, reservation } = self;
        if let Some(reservation) = reservation {
            reservation.refuse(&settled);
        }
        ticket.answer(place, settled);
    }
}

/// Takes intakes from many requests.
pub(crate) struct Committer(Arc<Shared>);

struct Shared {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    intakes: Mutex<Intakes>,
    /// Fires when nothing is under way any more.
    idle: Condvar,
    messages_per_batch: Histogram,
    portion: usize,
}

struct Intakes {
    queue: FairQueue<Waiting>,
    /// Batches that are with the store; the end of each takes the next.
    under_way: usize,
    /// The entities of their messages: the next one of an entity is taken once those before it are settled.
    entities: HashSet<EntityKey>,
    closed: bool,
}

impl Intakes {
    /// Takes what may be settled beside the batches that are under way; nothing if all of it must wait for them. What is of
    /// an entity of theirs steps aside, and all that is of an entity, or has the id, of what has stepped aside before it: what
    /// an id means is what came first under it.
    fn take(&mut self) -> Vec<Waiting> {
        let Self { queue, entities, .. } = self;
        let mut passed: HashSet<EntityKey> = HashSet::new();
        let mut passed_ids: HashSet<IdKey> = HashSet::new();
        let id_of = |it: &Intake| IdKey { id: it.message.id.clone(), tenant: it.message.tenant.clone() };
        let is_free = |it: &Waiting| {
            let is_free = !it.intake.entities().any(|key| entities.contains(key) || passed.contains(key))
                && (passed_ids.is_empty() || !passed_ids.contains(&id_of(&it.intake)));
            if !is_free {
                passed_ids.insert(id_of(&it.intake));
                let new: Vec<_> =
                    it.intake.entities().filter(|key| !passed.contains(*key)).cloned().collect();
                passed.extend(new);
            }
            is_free
        };
        let batch = queue.take_free(bounds::COMMIT_MESSAGES_MAX, bounds::COMMIT_BYTES_MAX, is_free);
        entities.extend(batch.iter().flat_map(|it| it.intake.entities()).cloned());
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

    /// Hands in intakes in their order; the answers come when each has its commit, or cannot have one, and until
    /// then something is held.
    pub(crate) fn settle(&self, submissions: Vec<Submission>, held: Held) -> Answers<Settled> {
        let (ticket, answers) = Ticket::for_answers(submissions.len(), held);
        let mut refused = Vec::new();
        let mut line = self.0.lock();
        for (place, Submission { intake, reservation }) in submissions.into_iter().enumerate() {
            let reply = Reply { ticket: Arc::clone(&ticket), place, reservation };
            if line.closed {
                refused.push((reply, Failure::Store));
                continue;
            }
            let tenant = intake.message.tenant.clone();
            let size = intake.size();
            if let Err(Waiting { reply, .. }) = line.queue.push(&tenant, size, Waiting { intake, reply }) {
                refused.push((reply, Failure::Full));
            }
        }
        drop(line);
        for (reply, failure) in refused {
            reply.answer(Err(failure));
        }
        self.0.begin_batches();
        answers
    }

    /// As much as one request hands in at a time, an event counting once for each destination: half of its tenant's part, or
    /// one large request of events for many would be refused for its own sake.
    pub(crate) fn portion(&self) -> usize {
        self.0.portion
    }

    /// Messages that wait for a batch.
    pub(crate) fn waiting(&self) -> usize {
        self.0.lock().queue.len()
    }

    /// Takes nothing more, and returns when all that waited is settled.
    pub(crate) fn close(&self) {
        let mut line = self.0.lock();
        line.closed = true;
        while line.under_way > 0 {
            line = self.0.idle.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Intakes> {
        self.intakes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins as many batches as may be under way, and as there are.
    fn begin_batches(self: &Arc<Self>) {
        while let Some(batch) = self.begin() {
            self.settle_batches(Some(batch));
        }
    }

    fn begin(&self) -> Option<Vec<Waiting>> {
        let mut intakes = self.lock();
        if intakes.under_way >= self.store.batches_at_once() {
            return None;
        }
        let batch = Some(intakes.take()).filter(|it| !it.is_empty());
        intakes.under_way += usize::from(batch.is_some());
        batch
    }

    /// Hands one batch to the store; its end begins the next. A store may answer before it returns: then this
    /// goes on by itself, for else each batch would stand on the stack of the one before.
    fn settle_batches(self: &Arc<Self>, mut next: Option<Vec<Waiting>>) {
        while let Some(batch) = next {
            let (intakes, replies): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|waiting| (waiting.intake, waiting.reply)).unzip();
            self.messages_per_batch.record(intakes.len() as f64);
            let second = Arc::new(AtomicBool::new(false));
            let entities = intakes.iter().flat_map(Intake::entities).cloned().collect();
            let mut batch =
                Batch { shared: Arc::clone(self), second: Arc::clone(&second), replies, entities };
            self.store.settle(intakes, self.clock.now(), Box::new(move |settled| batch.answer(settled)));
            if !second.swap(true, Ordering::AcqRel) {
                return;
            }
            next = self.next_batch();
        }
    }

    /// What follows a batch that has ended.
    fn next_batch(&self) -> Option<Vec<Waiting>> {
        let mut intakes = self.lock();
        let batch = intakes.take();
        if batch.is_empty() {
            // What is left, if anything, waits for another one that is under way.
            intakes.under_way -= 1;
            self.idle.notify_all();
            return None;
        }
        Some(batch)
    }
}

/// A batch that is with the store. Its end, however it comes, begins the next.
struct Batch {
    shared: Arc<Shared>,
    /// Whether the other of the two has happened: the store's answer, and its return from being asked.
    second: Arc<AtomicBool>,
    replies: Vec<Reply>,
    /// Those of its messages.
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
                let in_doubt = matches!(error, StoreError::Lost(_));
                self.fail(if in_doubt { Failure::Lost } else { Failure::Store });
            }
        }
    }

    /// Answers all that are not answered yet.
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
        if self.second.swap(true, Ordering::AcqRel) {
            self.shared.settle_batches(self.shared.next_batch());
            self.shared.begin_batches();
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

    /// A batch of two that is with the store, and where its answers are waited for.
    fn batch(committer: &Committer) -> (Batch, crate::commit::ticket::Answers<Settled>) {
        committer.0.lock().under_way = 1;
        let (ticket, answers) = Ticket::for_answers(2, Box::new(()));
        let replies =
            [0, 1].map(|place| Reply { ticket: Arc::clone(&ticket), place, reservation: None }).into();
        let second = Arc::new(AtomicBool::new(true));
        (Batch { shared: Arc::clone(&committer.0), second, replies, entities: Vec::new() }, answers)
    }

    /// PIP-5, MSG-12
    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_not_known_of_a_batch_is_not_told_and_holds_up_no_other() {
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
    async fn copies_hear_of_every_end_of_a_batch() {
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
        for (answer, told) in ends {
            let mark = Some(Mark { fingerprint: 1, is_claimed: false });
            let message = || Fingerprints { each: vec![mark], all: 2 };
            let Entry::New { in_flight: InFlight::Reserved(first), .. } = memory.enter(message()) else {
                panic!("it is not in flight");
            };
            let (mut batch, answers) = batch(&committer);
            batch.replies[0].reservation = Some(first);
            let Entry::Copy { first, .. } = memory.enter(message()) else { panic!("it is in flight") };
            answer.into_iter().for_each(|answer| batch.answer(answer));
            drop(batch);
            assert_eq!(first.end().await, told);
            assert_eq!(answers.await.len(), 2);
            assert_eq!(matches!(memory.enter(message()), Entry::Known), told.is_none());
        }
        committer.close();
    }

    /// ORD-3, PIP-9: what one subscriber counts together holds up nothing else of its publisher.
    #[test]
    fn what_is_of_a_busy_entity_steps_aside_with_all_that_must_not_pass_it() {
        let (one, other) = (ordered("one", Mode::Strict, |_| {}), ordered("other", Mode::Strict, |_| {}));
        let both = [Arc::clone(&one), Arc::clone(&other)];
        let at = Timestamp(0);
        let mut line = Intakes {
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
            assert!(line.queue.push(&tenant, size, Waiting { intake, reply }).is_ok());
        }
        let mut take =
            || -> Vec<_> { line.take().iter().map(|it| it.intake.message.id.to_string()).collect() };
        assert_eq!(take(), ["of another entity", "unordered"]);
        assert!(take().is_empty());
        line.entities.clear();
        let rest: Vec<_> = line.take().iter().map(|it| it.intake.message.id.to_string()).collect();
        assert_eq!(rest, ["busy", "behind it at the other", "busy, too", "busy"], "an id is what came first");
    }
}
