//! The committer: requests hand in their intakes, and whatever waits is settled together, in turns by tenant.
//!
//! No timer and no thread: whoever hands in while nothing is under way begins a batch, and the end of a batch
//! begins the next with what has come meanwhile. One batch at a time: what came first is settled first.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use metrics::{Histogram, histogram};
use snavio_model::fair::{FairQueue, Room};
use snavio_model::limits;
use snavio_model::settle::{Intake, Settlement};
use snavio_model::time::Clock;
use snavio_store::{Store, StoreError};

use crate::ticket::{Answers, Ticket};

/// Why an intake was not settled. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The tenant's part of the room, or the whole of it, is full.
    Full,
    /// The store said no, or is closing.
    Store,
}

/// What became of an intake.
pub(crate) type Settled = Result<Settlement, Failure>;

struct Waiting {
    intake: Intake,
    reply: Reply,
}

/// The place of an intake among those it was handed in with.
struct Reply {
    ticket: Arc<Ticket<Settled>>,
    place: usize,
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
}

struct Intakes {
    queue: FairQueue<Waiting>,
    /// A batch is with the store; its end takes the next.
    under_way: bool,
    closed: bool,
}

impl Committer {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, room: Room) -> Self {
        let intakes = Mutex::new(Intakes { queue: FairQueue::new(room), under_way: false, closed: false });
        let messages_per_batch = histogram!("snavio_commit_messages");
        Self(Arc::new(Shared { store, clock, intakes, idle: Condvar::new(), messages_per_batch }))
    }

    /// Hands in intakes in their order; the answers come when each has its commit, or cannot have one.
    pub(crate) fn settle(&self, intakes: Vec<Intake>) -> Answers<Settled> {
        let (ticket, answers) = Ticket::for_answers(intakes.len());
        let mut refused = Vec::new();
        let mut line = self.0.lock();
        for (place, intake) in intakes.into_iter().enumerate() {
            let reply = Reply { ticket: Arc::clone(&ticket), place };
            if line.closed {
                refused.push((reply, Failure::Store));
                continue;
            }
            let tenant = intake.message.tenant.clone();
            let bytes = intake.message.bytes();
            if let Err(Waiting { reply, .. }) = line.queue.push(&tenant, bytes, Waiting { intake, reply }) {
                refused.push((reply, Failure::Full));
            }
        }
        let begins = !line.under_way && !line.queue.is_empty();
        line.under_way |= begins;
        drop(line);
        for (reply, failure) in refused {
            reply.ticket.answer(reply.place, Err(failure));
        }
        if begins {
            self.0.settle_batches();
        }
        answers
    }

    /// Messages that wait for a batch.
    pub(crate) fn waiting(&self) -> usize {
        self.0.lock().queue.len()
    }

    /// Takes nothing more, and returns when all that waited is settled.
    pub(crate) fn close(&self) {
        let mut line = self.0.lock();
        line.closed = true;
        while line.under_way {
            line = self.0.idle.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Intakes> {
        self.intakes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands one batch to the store; its end begins the next. A store may answer before it returns: then this
    /// goes on by itself, for else each batch would stand on the stack of the one before.
    fn settle_batches(self: &Arc<Self>) {
        while let Some(batch) = self.next_batch() {
            let (intakes, replies): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|waiting| (waiting.intake, waiting.reply)).unzip();
            self.messages_per_batch.record(intakes.len() as f64);
            let second = Arc::new(AtomicBool::new(false));
            let (shared, is_second) = (Arc::clone(self), Arc::clone(&second));
            let done = move |settled| {
                answer(settled, replies);
                if is_second.swap(true, Ordering::AcqRel) {
                    shared.settle_batches();
                }
            };
            self.store.settle(intakes, self.clock.now(), Box::new(done));
            if !second.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }

    fn next_batch(&self) -> Option<Vec<Waiting>> {
        let mut intakes = self.lock();
        if intakes.queue.is_empty() {
            intakes.under_way = false;
            self.idle.notify_all();
            return None;
        }
        Some(intakes.queue.take(limits::COMMIT_MESSAGES_MAX, limits::COMMIT_BYTES_MAX))
    }
}

fn answer(settled: Result<Vec<Settlement>, StoreError>, replies: Vec<Reply>) {
    match settled {
        Ok(settlements) => {
            for (Reply { ticket, place }, settlement) in replies.into_iter().zip(settlements) {
                ticket.answer(place, Ok(settlement));
            }
        }
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                messages = replies.len(),
                "batch not settled"
            );
            for Reply { ticket, place } in replies {
                ticket.answer(place, Err(Failure::Store));
            }
        }
    }
}
