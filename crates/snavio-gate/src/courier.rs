//! The courier: takes deliveries that an HTTP processor is to be called for from their queues, calls, and reports what
//! came of it (CLM-9). Each queue has a runner of its own with a bounded number of calls under way, so that a processor
//! that is slow or down holds up nobody else's.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use snavio_model::delivery::Receipt;
use snavio_model::limits;
use snavio_model::name::QueueKey;
use snavio_model::processing::{Ending, ProcessingKind};
use snavio_model::registry::{BoundRoute, Registry};
use snavio_store::{Received, Report};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::Gate;

/// How often new routes are looked for.
const LOOKING: Duration = Duration::from_millis(500);
/// How long a runner sleeps when nothing wakes it: deliveries that come due wake nobody on another node.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Between two tries to tell the store what came of a call, growing.
const TELLING: Duration = Duration::from_millis(50);
const TELLING_MAX: Duration = Duration::from_secs(2);
/// Who reports, on the record.
const COURIER: &str = "gateway (courier)";

/// Calls what is outside. What it says is believed: only it knows whether anything was sent.
#[async_trait]
pub trait Processor: Send + Sync {
    /// One attempt.
    async fn call(&self, work: &Received, route: &BoundRoute) -> Ending;
}

/// Keeps a runner for every queue that an HTTP processor is called for, for as long as the gate lives.
pub(crate) async fn run(gate: Arc<Gate>, processor: Arc<dyn Processor>) {
    let mut runners: HashMap<QueueKey, Runner> = HashMap::new();
    let mut known = None;
    loop {
        let registry = gate.registry();
        if known != Some(registry.version()) {
            known = Some(registry.version());
            let deadlines = deadlines(&registry);
            runners.retain(|queue, _| deadlines.contains_key(queue));
            for (queue, deadline) in deadlines {
                let new = || Runner::start(&gate, &processor, queue.clone(), deadline);
                let runner = runners.entry(queue.clone()).or_insert_with(new);
                runner.deadline.store(deadline.as_millis() as u64, Ordering::Relaxed);
            }
        }
        drop(registry);
        tokio::time::sleep(LOOKING).await;
    }
}

/// The queues of HTTP processors, with the time that an attempt may take: the longest of their routes'.
fn deadlines(registry: &Registry) -> HashMap<QueueKey, Duration> {
    let mut deadlines = HashMap::new();
    for route in registry.routes().filter(|it| it.route.processing.kind == ProcessingKind::Http) {
        let deadline: &mut Duration = deadlines.entry(route.queue.clone()).or_default();
        *deadline = route.route.processing.deadline().max(*deadline);
    }
    deadlines
}

struct Runner {
    /// How long an attempt may take, in milliseconds.
    deadline: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Runner {
    fn start(gate: &Arc<Gate>, processor: &Arc<dyn Processor>, queue: QueueKey, deadline: Duration) -> Self {
        let deadline = Arc::new(AtomicU64::new(deadline.as_millis() as u64));
        let (ended, to_be_kept) = mpsc::channel(limits::CALLS_PER_QUEUE_MAX);
        // Both outlive their runner: a call that was begun is heard out, and what came of it is kept.
        gate.calls.spawn(keep(Arc::clone(gate), queue.clone(), to_be_kept));
        let calling = Calling {
            gate: Arc::clone(gate),
            processor: Arc::clone(processor),
            queue,
            deadline: Arc::clone(&deadline),
            places: Arc::new(Semaphore::new(limits::CALLS_PER_QUEUE_MAX)),
            ended,
        };
        Self { deadline, task: tokio::spawn(calling.run()) }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Calling {
    gate: Arc<Gate>,
    processor: Arc<dyn Processor>,
    queue: QueueKey,
    deadline: Arc<AtomicU64>,
    places: Arc<Semaphore>,
    ended: mpsc::Sender<Ended>,
}

/// A call that ended, and keeps its place until the store has taken what came of it.
struct Ended {
    report: Report,
    /// When the attempt's time is over.
    until: Instant,
    _place: OwnedSemaphorePermit,
}

impl Calling {
    fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline.load(Ordering::Relaxed))
    }

    async fn run(self) {
        let this = Arc::new(self);
        let arrivals = this.gate.store().arrivals(&this.queue);
        loop {
            let arrival = arrivals.notified();
            tokio::pin!(arrival);
            arrival.as_mut().enable();
            let Ok(place) = Arc::clone(&this.places).acquire_owned().await else { return };
            let free = this.places.available_permits().min(limits::RECEIVE_MESSAGES_MAX - 1);
            let mut places = vec![place];
            places.extend((0..free).map_while(|_| Arc::clone(&this.places).try_acquire_owned().ok()));
            let works = this.receive(places.len()).await;
            let is_idle = works.is_empty();
            for (work, place) in works.into_iter().zip(places) {
                this.gate.calls.spawn(Arc::clone(&this).attempt(work, place));
            }
            if is_idle {
                let _ = tokio::time::timeout(SLEEP_MAX, arrival).await;
            }
        }
    }

    async fn receive(&self, max: usize) -> Vec<Received> {
        let now = self.gate.clock().now();
        match self.gate.store().receive(&self.queue, max, self.deadline(), now).await {
            Ok(works) => works,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    queue = %self.queue,
                    "work for a processor could not be taken"
                );
                tokio::time::sleep(SLEEP_MAX).await;
                Vec::new()
            }
        }
    }

    /// One attempt.
    async fn attempt(self: Arc<Self>, work: Received, place: OwnedSemaphorePermit) {
        let began = Instant::now();
        let registry = self.gate.registry();
        let destination = work.destination.as_deref().unwrap_or_default();
        let http = registry
            .destination(destination)
            .cloned()
            .filter(|it| it.route.processing.kind == ProcessingKind::Http);
        drop(registry);
        let receipt = Receipt { delivery_id: work.delivery_id, fence: work.fence };
        let report = match http {
            Some(route) => {
                let ending = self.processor.call(&work, &route).await;
                self.gate.meters.processed_in(began.elapsed());
                tell(&work, &ending);
                let retry_after = match &ending {
                    Ending::Failed { retry_after, .. } => *retry_after,
                    _ => None,
                };
                let retry = route.route.processing.retry(retry_after);
                Report { receipt, ending, retry, kept_at: route.keeps_answers_at(), on_record: false }
            }
            // Its route is gone, or is another one now: it is given back, and a dead letter once its attempts are spent.
            None => {
                let later = self.gate.clock().now().plus(Duration::from_secs(60));
                Report::given_back(receipt, later, Some("its route names no processor any more"))
            }
        };
        let ended = Ended { report, until: began + self.deadline(), _place: place };
        let _ = self.ended.send(ended).await;
    }
}

/// Tells the store what came of calls. What ended while it took the last ones goes with one commit.
async fn keep(gate: Arc<Gate>, queue: QueueKey, mut to_be_kept: mpsc::Receiver<Ended>) {
    let mut ended = Vec::new();
    while to_be_kept.recv_many(&mut ended, limits::CALLS_PER_QUEUE_MAX).await > 0 {
        let reports = ended.iter().map(|it| it.report.clone()).collect();
        if gate.finish(&queue, reports, COURIER).await.is_err() {
            // Each by itself: one that the store cannot take keeps no other from being kept.
            let one_by_one = ended.iter().map(|it| keep_one(&gate, &queue, it));
            futures_util::future::join_all(one_by_one).await;
        }
        ended.clear();
    }
}

/// Tells the store what came of one call, until it answers or the attempt's time is over: then the next attempt asks
/// the processor again, under the same id.
async fn keep_one(gate: &Gate, queue: &QueueKey, ended: &Ended) {
    let mut pause = TELLING;
    loop {
        match gate.finish(queue, vec![ended.report.clone()], COURIER).await {
            Ok(_) => return,
            Err(error) if Instant::now() + pause >= ended.until => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "what came of a call could not be kept; it will be called again");
                return;
            }
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (2 * pause).min(TELLING_MAX);
    }
}

fn tell(work: &Received, ending: &Ending) {
    let (id, attempt) = (&work.message.id, work.attempt);
    match ending {
        Ending::Completed { reference, .. } => {
            tracing::debug!(target: "snavio::message", %id, attempt, reference, "a processor is done");
        }
        Ending::Failed { error, is_final, .. } => {
            tracing::warn!(target: "snavio::message", %id, attempt, is_final, error, "a processor refused");
        }
        Ending::Unknown { error } => {
            tracing::warn!(target: "snavio::message", %id, attempt, error, "what a processor did is not known");
        }
    }
}
