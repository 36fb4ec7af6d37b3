//! The committer: requests hand in their intake, lanes take what waits in turns by tenant and settle it in one
//! commit each. No timer: a lane that is free takes whatever is there.

use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

use snavio_model::fair::{FairQueue, Room};
use snavio_model::limits;
use snavio_model::settle::{Intake, Settlement};
use snavio_model::time::Clock;
use snavio_store::Store;
use tokio::sync::oneshot;

/// Lanes per node: while one waits for its flush, the other gathers.
const LANES: usize = 2;

/// Why an intake was not settled. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The tenant's part of the room, or the whole of it, is full.
    Full,
    /// The store said no, or is closing.
    Store,
}

struct Waiting {
    intake: Intake,
    reply: oneshot::Sender<Result<Settlement, Failure>>,
}

struct Shared {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    intake: Mutex<Intakes>,
    arrived: Condvar,
    /// Held from taking a batch until the store has it: what came first is settled first.
    turn: Mutex<()>,
}

struct Intakes {
    queue: FairQueue<Waiting>,
    /// Lanes that sleep: only then is waking one worth its system call.
    asleep: usize,
    closed: bool,
}

/// Takes intakes from many requests.
pub(crate) struct Committer {
    shared: Arc<Shared>,
    lanes: Mutex<Vec<JoinHandle<()>>>,
}

impl Committer {
    /// Starts the lanes: threads of their own, so that a busy runtime does not delay a commit.
    pub(crate) fn start(store: Arc<dyn Store>, clock: Arc<dyn Clock>, room: Room) -> std::io::Result<Self> {
        let intake = Mutex::new(Intakes { queue: FairQueue::new(room), asleep: 0, closed: false });
        let shared =
            Arc::new(Shared { store, clock, intake, arrived: Condvar::new(), turn: Mutex::default() });
        let runtime = tokio::runtime::Handle::current();
        let lanes = (0..LANES).map(|lane| {
            let (shared, runtime) = (Arc::clone(&shared), runtime.clone());
            let name = format!("snavio-lane-{lane}");
            std::thread::Builder::new().name(name).spawn(move || shared.run(&runtime))
        });
        let lanes = lanes.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { shared, lanes: Mutex::new(lanes) })
    }

    /// Waits for the intake's own commit.
    pub(crate) async fn settle(&self, intake: Intake) -> Result<Settlement, Failure> {
        let (reply, answer) = oneshot::channel();
        self.enqueue(Waiting { intake, reply })?;
        answer.await.unwrap_or(Err(Failure::Store))
    }

    fn enqueue(&self, waiting: Waiting) -> Result<(), Failure> {
        let mut intake = self.shared.lock();
        if intake.closed {
            return Err(Failure::Store);
        }
        let tenant = waiting.intake.message.tenant.clone();
        let bytes = waiting.intake.message.bytes();
        intake.queue.push(&tenant, bytes, waiting).map_err(|_| Failure::Full)?;
        let asleep = intake.asleep > 0;
        drop(intake);
        if asleep {
            self.shared.arrived.notify_one();
        }
        Ok(())
    }

    /// Messages that wait for a lane.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.lock().queue.len()
    }

    /// Settles what waits, takes nothing more, and ends the lanes.
    pub(crate) fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.arrived.notify_all();
        let lanes = std::mem::take(&mut *self.lanes.lock().unwrap_or_else(PoisonError::into_inner));
        for lane in lanes {
            if lane.join().is_err() {
                tracing::error!("a committer lane ended in a panic");
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Intakes> {
        self.intake.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, runtime: &tokio::runtime::Handle) {
        while let Some((settling, replies)) = self.begin(runtime) {
            answer(runtime.block_on(settling), replies);
        }
    }

    /// Takes the next batch and hands it to the store, one lane after the other: two messages with one id, or
    /// for one queue, must not overtake each other on their way.
    fn begin(&self, runtime: &tokio::runtime::Handle) -> Option<(Settling<'_>, Vec<Reply>)> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let batch = self.next_batch()?;
        let (intakes, replies): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|waiting| (waiting.intake, waiting.reply)).unzip();
        metrics::histogram!("snavio_commit_messages").record(intakes.len() as f64);
        let mut settling = self.store.settle(intakes, self.clock.now());
        // A future does nothing before its first poll, and that is what hands the batch over.
        let _runtime = runtime.enter();
        match settling.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(settled) => Some((Box::pin(std::future::ready(settled)), replies)),
            Poll::Pending => Some((settling, replies)),
        }
    }

    fn next_batch(&self) -> Option<Vec<Waiting>> {
        let mut intake = self.lock();
        loop {
            if !intake.queue.is_empty() {
                return Some(intake.queue.take(limits::COMMIT_MESSAGES_MAX, limits::COMMIT_BYTES_MAX));
            }
            if intake.closed {
                return None;
            }
            intake.asleep += 1;
            intake = self.arrived.wait(intake).unwrap_or_else(PoisonError::into_inner);
            intake.asleep -= 1;
        }
    }
}

type Reply = oneshot::Sender<Result<Settlement, Failure>>;
type Settling<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Settlement>, snavio_store::StoreError>> + Send + 'a>>;

fn answer(settled: Result<Vec<Settlement>, snavio_store::StoreError>, replies: Vec<Reply>) {
    match settled {
        Ok(settlements) => {
            for (reply, settlement) in replies.into_iter().zip(settlements) {
                // A request that went away does not need its answer; its message is committed all the same.
                let _ = reply.send(Ok(settlement));
            }
        }
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                messages = replies.len(),
                "batch not settled"
            );
            for reply in replies {
                let _ = reply.send(Err(Failure::Store));
            }
        }
    }
}
