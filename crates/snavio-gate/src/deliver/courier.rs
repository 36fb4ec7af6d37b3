//! The courier: takes deliveries that somebody outside is to be called for from their queues, calls, and reports what came of
//! it: HTTP processors (CLM-9) and receivers of pushes (DLV-1). Each queue has a runner of its own with a bounded number of
//! calls under way, and no more of all calls than its share (`targets.rs`), so that a target that is slow or down holds up
//! nobody else's. One that is down is left alone for a while, and meanwhile nothing is taken for it: what waits loses no attempt.
//! Nor does what there was no place to call for, or what is called for no more when its turn comes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use snavio_model::bounds;
use snavio_model::delivery::Receipt;
use snavio_model::delivery::breaker::{Allowed, Presence, Turn};
use snavio_model::delivery::processing::{Called, Ending, Retry};
use snavio_model::name::QueueKey;
use snavio_model::registry::{BoundRoute, LivePushSecret, Registry};
use snavio_model::time::Timestamp;
use snavio_store::{OnRecord, Received, Report, StoreError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::Gate;
use crate::deliver::targets::{Place, Target};

/// How often new routes are looked for.
const LOOKING: Duration = Duration::from_millis(500);
/// How long a runner sleeps when nothing wakes it: deliveries that come due wake nobody on another node.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Between two tries to tell the store what came of a call, growing.
const TELLING: Duration = Duration::from_millis(50);
const TELLING_MAX: Duration = Duration::from_secs(2);
/// For how long a delivery is left alone that was not called for.
const UNTRIED_PAUSE: Duration = Duration::from_secs(1);
/// Who reports, on the record.
const COURIER: &str = "gateway (courier)";

/// One attempt at a delivery.
pub struct Attempt<'a> {
    /// The delivery.
    pub work: &'a Received,
    /// Its route.
    pub route: &'a BoundRoute,
    /// What a push is signed with.
    pub secret: Option<Arc<LivePushSecret>>,
    /// When.
    pub now: Timestamp,
    /// How long it may take: its lease does not end before.
    pub timeout: Duration,
}

/// Calls what is outside. What it says is believed: only it knows whether anything was sent.
#[async_trait]
pub trait Processor: Send + Sync {
    /// One attempt.
    async fn call(&self, attempt: Attempt<'_>) -> Called;
}

/// Keeps a runner for every queue that somebody is called for, until the gate leaves; ends when they have.
pub(crate) async fn run(gate: Arc<Gate>, processor: Arc<dyn Processor>) {
    let mut runners: HashMap<QueueKey, Runner> = HashMap::new();
    let mut known = None;
    loop {
        let registry = gate.registry();
        if known != Some(registry.version()) {
            known = Some(registry.version());
            let called = called(&registry);
            runners.retain(|queue, _| called.contains_key(queue));
            // All of them are known before the first is called: each has its part of the places then.
            let target = |queue: &QueueKey, it: &Queue<'_>| gate.targets.of(queue, &it.urls);
            let targets: Vec<_> = called.iter().map(|(queue, it)| (queue, it, target(queue, it))).collect();
            for (queue, of_queue, target) in targets {
                match runners.get(queue) {
                    Some(runner) => runner.follow(of_queue),
                    None => {
                        let runner = Runner::start(&gate, &processor, target, queue.clone(), of_queue);
                        runners.insert(queue.clone(), runner);
                    }
                }
            }
        }
        drop(registry);
        if gate.leaving.run_until_cancelled(tokio::time::sleep(LOOKING)).await.is_none() {
            break;
        }
    }
    for runner in runners.values_mut() {
        // Whatever it took last goes back, or is being called for.
        let _ = (&mut runner.task).await;
    }
}

/// A queue that somebody is called for.
#[derive(Default)]
struct Queue<'a> {
    known: Known,
    urls: BTreeSet<&'a str>,
}

/// What a runner must know of its queue's routes.
#[derive(Debug, Clone, Default)]
struct Known {
    /// The time that an attempt may take: the longest of them.
    deadline: Duration,
    destinations: Vec<Arc<str>>,
}

/// The queues that somebody is called for.
fn called(registry: &Registry) -> HashMap<QueueKey, Queue<'_>> {
    let mut queues: HashMap<_, Queue<'_>> = HashMap::new();
    for bound in registry.routes().filter(|it| registry.calls(it)) {
        let processing = &bound.route.processing;
        let queue = queues.entry(bound.queue.clone()).or_default();
        queue.known.deadline = processing.deadline().max(queue.known.deadline);
        queue.known.destinations.push(Arc::clone(&bound.destination));
        queue.urls.extend(processing.url.as_deref());
    }
    queues
}

struct Runner {
    gate: Arc<Gate>,
    queue: QueueKey,
    known: Arc<ArcSwap<Known>>,
    task: JoinHandle<()>,
}

impl Runner {
    fn start(
        gate: &Arc<Gate>,
        processor: &Arc<dyn Processor>,
        target: Arc<Target>,
        queue: QueueKey,
        of_queue: &Queue<'_>,
    ) -> Self {
        let known = Arc::new(ArcSwap::from_pointee(of_queue.known.clone()));
        let (ended, to_be_kept) = mpsc::channel(bounds::CALLS_PER_QUEUE_MAX);
        // Both outlive their runner: a call that was begun is heard out, and what came of it is kept.
        gate.calls.spawn(keep(Arc::clone(gate), queue.clone(), to_be_kept));
        let calling = Calling {
            gate: Arc::clone(gate),
            processor: Arc::clone(processor),
            target,
            queue: queue.clone(),
            known: Arc::clone(&known),
            ended,
        };
        Self { gate: Arc::clone(gate), queue, known, task: gate.calls.spawn(calling.run()) }
    }
}

impl Runner {
    /// Goes by what the routes say now.
    fn follow(&self, of_queue: &Queue<'_>) {
        self.known.store(Arc::new(of_queue.known.clone()));
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.task.abort();
        self.gate.targets.forget(&self.queue);
    }
}

struct Calling {
    gate: Arc<Gate>,
    processor: Arc<dyn Processor>,
    target: Arc<Target>,
    queue: QueueKey,
    known: Arc<ArcSwap<Known>>,
    ended: mpsc::Sender<Ended>,
}

/// A call that ended, and keeps its place until the store has taken what came of it.
struct Ended {
    came: Came,
    /// When the attempt's time is over.
    until: Instant,
    _place: Place,
}

/// What came of a call.
enum Came {
    /// An attempt.
    Report(Report),
    /// Nothing: it was not called for, and the delivery goes back as it was.
    Nothing(Receipt),
}

/// Who is called for a delivery, by the registry as it is.
enum Whom {
    /// Somebody, by this route, and what a push is signed with.
    Of(Arc<BoundRoute>, Option<Arc<LivePushSecret>>),
    /// Nobody for now: its route is disabled, has lost its secret, or is not known here yet.
    NotNow,
    /// Nobody: its route is gone, or is another one by now.
    Nobody,
}

impl Calling {
    fn deadline(&self) -> Duration {
        self.known.load().deadline
    }

    fn now(&self) -> Timestamp {
        self.gate.clock().now()
    }

    async fn run(self) {
        let this = Arc::new(self);
        let arrivals = this.gate.store().arrivals(&this.queue);
        let leaving = &this.gate.leaving;
        while !leaving.is_cancelled() {
            let arrival = arrivals.notified();
            tokio::pin!(arrival);
            arrival.as_mut().enable();
            let Some(places) = leaving.run_until_cancelled(this.places()).await else { break };
            let works = if this.is_on() { this.receive(places.len()).await } else { Vec::new() };
            let is_idle = works.is_empty();
            if !is_idle {
                this.target.begun(this.deadline(), this.now());
            }
            // Places that nothing was found for are free at once.
            for (work, place) in works.into_iter().zip(places) {
                this.gate.calls.spawn(Arc::clone(&this).attempt(work, place));
            }
            if is_idle {
                let _ = leaving.run_until_cancelled(tokio::time::timeout(SLEEP_MAX, arrival)).await;
            }
        }
    }

    /// Whether anybody is called for this queue, as the registry is now: a runner ends only some time after its last route
    /// was disabled, and would take and give back all that waits meanwhile.
    fn is_on(&self) -> bool {
        let (registry, known) = (self.gate.registry(), self.known.load());
        let mut routes = known.destinations.iter().filter_map(|it| registry.destination(it));
        routes.any(|it| registry.calls(it))
    }

    /// Waits until calls may be made, and takes places for them: nothing is leased that cannot be called for at once.
    async fn places(&self) -> Vec<Place> {
        loop {
            let (freed, turned) = (self.gate.targets.freed().notified(), self.target.turned.notified());
            tokio::pin!(freed, turned);
            freed.as_mut().enable();
            turned.as_mut().enable();
            let now = self.now();
            let most = match self.target.allows(now) {
                Allowed::All => bounds::RECEIVE_MESSAGES_MAX,
                Allowed::Probe => 1,
                Allowed::NotBefore(until) => {
                    let _ = tokio::time::timeout(until.since(now).min(SLEEP_MAX), turned).await;
                    continue;
                }
            };
            let places = self.gate.targets.take(&self.target, most);
            if !places.is_empty() {
                return places;
            }
            let _ = tokio::time::timeout(SLEEP_MAX, freed).await;
        }
    }

    async fn receive(&self, max: usize) -> Vec<Received> {
        match self.gate.store().receive(&self.queue, max, self.deadline(), self.now()).await {
            Ok(works) => works,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    queue = %self.queue,
                    "work that somebody is called for could not be taken"
                );
                tokio::time::sleep(SLEEP_MAX).await;
                Vec::new()
            }
        }
    }

    /// One attempt, given up with the calls of a gate that ends: then nobody knows what came of it.
    async fn attempt(self: Arc<Self>, work: Received, place: Place) {
        let until = Instant::now() + work.visible_at.since(self.now());
        if let Some(came) = self.gate.calls_given_up.run_until_cancelled(self.come_of(&work)).await {
            let ended = Ended { came, until, _place: place };
            let _ = self.ended.send(ended).await;
        }
    }

    async fn come_of(&self, work: &Received) -> Came {
        let receipt = Receipt { delivery_id: work.delivery_id, fence: work.fence };
        match self.whom(work) {
            Whom::Of(route, secret) => self.call(work, receipt, &route, secret).await,
            // It was not tried: it waits as it was until somebody enables its route, or makes it a secret.
            Whom::NotNow => {
                self.note(Presence::Unasked);
                Came::Nothing(receipt)
            }
            // It is given back, and a dead letter once its attempts are spent.
            Whom::Nobody => {
                self.note(Presence::Unasked);
                let later = self.now().plus(Duration::from_secs(60));
                let back = Report::given_back(receipt, later, Some("its route names no processor any more"));
                // Nobody was asked: what became of the attempts before is for the claim to say.
                let is_tracked = work.tracking.is_tracked();
                let ending = if is_tracked { back.ending } else { if_last(work, back.ending) };
                Came::Report(Report { ending, ..back })
            }
        }
    }

    /// Who is called for a delivery.
    fn whom(&self, work: &Received) -> Whom {
        let registry = self.gate.registry();
        if self.gate.leaving.is_cancelled() {
            return Whom::NotNow;
        }
        // Of what was queued by another route before this one had the queue, too: it is not this one's to send.
        let route = work.destination.as_ref().and_then(|it| registry.destination(it));
        match route.filter(|it| it.route.processing.kind.is_called()) {
            // Another node knows more: here it is known in a moment.
            None if registry.version() < work.message.registry_version => Whom::NotNow,
            None => Whom::Nobody,
            Some(route) if !registry.calls(route) => Whom::NotNow,
            Some(route) => Whom::Of(Arc::clone(route), registry.push_secret(&route.destination).cloned()),
        }
    }

    async fn call(
        &self,
        work: &Received,
        receipt: Receipt,
        route: &Arc<BoundRoute>,
        secret: Option<Arc<LivePushSecret>>,
    ) -> Came {
        let (began, now, processing) = (Instant::now(), self.now(), &route.route.processing);
        // It was held up since it was leased: whom it is for would have no time, and might be at it past the lease.
        let Some(timeout) = processing.call_time(work.visible_at.since(now)) else {
            self.note(Presence::Unasked);
            return Came::Nothing(receipt);
        };
        let Called { ending, presence } =
            self.processor.call(Attempt { work, route, secret, now, timeout }).await;
        self.note(presence);
        let is_tracked = processing.is_tracked();
        let ending = if presence == Presence::Unasked { ending.unasked(work.attempt) } else { ending };
        if presence == Presence::Crowded {
            self.tell_of_crowd(work, &ending);
            return Came::Nothing(receipt);
        }
        if is_tracked {
            self.gate.meters.processed_in(began.elapsed());
        } else {
            self.gate.meters.pushed(ending.error().is_none(), began.elapsed());
        }
        self.tell(work, &ending, is_tracked);
        let retry_after = match &ending {
            Ending::Failed { retry_after, .. } => *retry_after,
            _ => None,
        };
        let retry = processing.retry(retry_after);
        // What follows an attempt that a claim waits for is decided with its claim; of all others it is decided here.
        if is_tracked {
            let kept_at = route.keeps_answers_at();
            return Came::Report(Report { receipt, ending, retry, kept_at, on_record: OnRecord::default() });
        }
        if presence == Presence::Gone
            && let Err(error) = self.gate.disable_push(route, ending.error().unwrap_or_default()).await
        {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, route = %route.destination, "a route was not disabled; its receiver is asked again");
        }
        let retry = Retry::At(retry.due(work.attempt, work.delivery_id, self.now()));
        let ending = if_last(work, ending);
        Came::Report(Report { receipt, ending, retry, kept_at: Vec::new(), on_record: OnRecord::default() })
    }

    fn tell_of_crowd(&self, work: &Received, ending: &Ending) {
        let (id, queue, why) = (&work.message.id, &self.queue, ending.error());
        self.gate.failing.tell(1, self.now(), || {
            tracing::warn!(target: "snavio::message", %id, %queue, why, "it was not called for, and waits");
        });
    }

    fn tell(&self, work: &Received, ending: &Ending, is_tracked: bool) {
        let (id, attempt) = (&work.message.id, work.attempt);
        let whom = if is_tracked { "processor" } else { "receiver" };
        match ending {
            Ending::Completed { reference, .. } => {
                tracing::debug!(target: "snavio::message", %id, attempt, reference, whom, "it is done");
            }
            Ending::Failed { error, is_final, .. } => self.gate.failing.tell(1, self.now(), || {
                tracing::warn!(target: "snavio::message", %id, attempt, is_final, error, whom, "it was refused");
            }),
            Ending::Unknown { error } => self.gate.failing.tell(1, self.now(), || {
                tracing::warn!(target: "snavio::message", %id, attempt, error, whom, "what was done is not known");
            }),
        }
    }

    /// Takes to heart what a call told of its target.
    fn note(&self, presence: Presence) {
        let queue = &self.queue;
        match self.target.ended(presence, self.now()) {
            Some(Turn::Opened(until)) => {
                metrics::counter!("snavio_target_breaks_total").increment(1);
                tracing::warn!(%queue, %until, "a target is down, and left alone for a while");
            }
            Some(Turn::Closed) => tracing::info!(%queue, "a target is there again"),
            None => {}
        }
    }
}

/// The last attempt ends with what went wrong: whoever looks at the dead letter finds it there. Which is the last was said
/// when the message was queued, whatever its route says by now.
fn if_last(work: &Received, ending: Ending) -> Ending {
    if work.attempt >= work.attempts_max { ending.last() } else { ending }
}

/// Tells the store what came of calls. What ended while it took the last ones goes with one commit.
async fn keep(gate: Arc<Gate>, queue: QueueKey, mut to_be_kept: mpsc::Receiver<Ended>) {
    let mut ended = Vec::new();
    while to_be_kept.recv_many(&mut ended, bounds::CALLS_PER_QUEUE_MAX).await > 0 {
        if keep_all(&gate, &queue, &ended).await.is_err() {
            // Each by itself: one that the store cannot take keeps no other from being kept.
            let one_by_one = ended.iter().map(|it| keep_one(&gate, &queue, it));
            futures_util::future::join_all(one_by_one).await;
        }
        ended.clear();
    }
}

/// Tells the store what came of some calls. Told again it changes nothing.
async fn keep_all(gate: &Gate, queue: &QueueKey, ended: &[Ended]) -> Result<(), StoreError> {
    let (mut reports, mut back) = (Vec::new(), Vec::new());
    for it in ended {
        match &it.came {
            Came::Report(report) => reports.push(report.clone()),
            Came::Nothing(receipt) => back.push(*receipt),
        }
    }
    if !back.is_empty() {
        gate.store().take_back(queue, back, gate.clock().now().plus(UNTRIED_PAUSE)).await?;
    }
    if !reports.is_empty() {
        gate.finish_told(queue, reports, COURIER).await?;
    }
    Ok(())
}

/// Tells the store what came of one call, until it answers or the attempt's time is over: then the next attempt asks
/// again, under the same id.
async fn keep_one(gate: &Gate, queue: &QueueKey, ended: &Ended) {
    let mut pause = TELLING;
    loop {
        match keep_all(gate, queue, std::slice::from_ref(ended)).await {
            Ok(()) => return,
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
