//! The courier leases the deliveries that the gateway passes to an HTTP endpoint, calls the endpoint, and
//! reports the outcome to the store. Endpoints are HTTP processors (CLM-9) and receivers of pushes (DLV-1).
//!
//! Each queue has its own runner with a bounded number of calls in flight. A runner takes no more of the
//! node's calls than its share (`targets.rs`), so that a slow or failed target delays only its own queue.
//! While a circuit breaker is open, the runner leases nothing for its target, so that waiting deliveries lose
//! no attempt. A delivery also loses no attempt if the node has no place for its call, or if its route is no
//! longer called when its turn comes.

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
use crate::deliver::targets::{CallPlace, Target};

/// The interval at which the courier looks for new routes.
const ROUTES_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The longest sleep of an idle runner. A runner must look by itself, because a delivery that becomes due on
/// another node wakes no runner here.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// The pause between two attempts to report an outcome to the store. It grows up to `REPORT_PAUSE_MAX`.
const REPORT_PAUSE: Duration = Duration::from_millis(50);
const REPORT_PAUSE_MAX: Duration = Duration::from_secs(2);
/// The time that a delivery stays invisible after it was leased and not called.
const UNTRIED_PAUSE: Duration = Duration::from_secs(1);
/// The reporter's name on the record.
const COURIER: &str = "gateway (courier)";

/// One attempt at a delivery.
pub struct Attempt<'a> {
    pub work: &'a Received,
    pub route: &'a BoundRoute,
    /// The secret that signs a push.
    pub secret: Option<Arc<LivePushSecret>>,
    pub now: Timestamp,
    /// The limit of the call. It ends before the lease ends.
    pub timeout: Duration,
}

/// Calls an outside endpoint. Only the implementation knows whether it sent anything, so the courier trusts
/// its outcome.
#[async_trait]
pub trait Processor: Send + Sync {
    /// Makes one attempt and returns its outcome.
    async fn call(&self, attempt: Attempt<'_>) -> Called;
}

/// Keeps a runner for every queue with deliveries for an endpoint. Ends after the gate begins to leave and
/// all runners have ended.
pub(crate) async fn run(gate: Arc<Gate>, processor: Arc<dyn Processor>) {
    let mut runners: HashMap<QueueKey, Runner> = HashMap::new();
    let mut version = None;
    loop {
        let registry = gate.registry();
        if version != Some(registry.version()) {
            version = Some(registry.version());
            let called = called_queues(&registry);
            runners.retain(|queue, _| called.contains_key(queue));
            // Register all targets before the first runner starts, because the shares depend on their number.
            let targets: Vec<_> = called
                .iter()
                .map(|(queue, called)| (queue, called, gate.targets.target_of(queue, &called.urls)))
                .collect();
            for (queue, called, target) in targets {
                match runners.get(queue) {
                    Some(runner) => runner.update(called),
                    None => {
                        let runner = Runner::start(&gate, &processor, target, queue.clone(), called);
                        runners.insert(queue.clone(), runner);
                    }
                }
            }
        }
        drop(registry);
        if gate.leaving.run_until_cancelled(tokio::time::sleep(ROUTES_POLL_INTERVAL)).await.is_none() {
            break;
        }
    }
    for runner in runners.values_mut() {
        // The runner releases or calls the deliveries that it leased last.
        let _ = (&mut runner.task).await;
    }
}

/// A queue with deliveries for an endpoint.
#[derive(Default)]
struct CalledQueue<'a> {
    config: QueueConfig,
    urls: BTreeSet<&'a str>,
}

/// The part of the registry that a runner needs about the routes of its queue.
#[derive(Debug, Clone, Default)]
struct QueueConfig {
    /// The longest time that an attempt of any of the routes may take.
    deadline: Duration,
    destinations: Vec<Arc<str>>,
}

/// Collects the queues that the gateway calls an endpoint for.
fn called_queues(registry: &Registry) -> HashMap<QueueKey, CalledQueue<'_>> {
    let mut queues: HashMap<_, CalledQueue<'_>> = HashMap::new();
    for bound in registry.routes().filter(|route| registry.calls(route)) {
        let processing = &bound.route.processing;
        let queue = queues.entry(bound.queue.clone()).or_default();
        queue.config.deadline = processing.deadline().max(queue.config.deadline);
        queue.config.destinations.push(Arc::clone(&bound.destination));
        queue.urls.extend(processing.url.as_deref());
    }
    queues
}

struct Runner {
    gate: Arc<Gate>,
    queue: QueueKey,
    config: Arc<ArcSwap<QueueConfig>>,
    task: JoinHandle<()>,
}

impl Runner {
    fn start(
        gate: &Arc<Gate>,
        processor: &Arc<dyn Processor>,
        target: Arc<Target>,
        queue: QueueKey,
        called: &CalledQueue<'_>,
    ) -> Self {
        let config = Arc::new(ArcSwap::from_pointee(called.config.clone()));
        let (ended, ended_calls) = mpsc::channel(bounds::CALLS_PER_QUEUE_MAX);
        // The reporting task and its calls outlive the runner: a call that has begun runs to its end, and its
        // outcome is reported.
        gate.calls.spawn(report_ended_calls(Arc::clone(gate), queue.clone(), ended_calls));
        let caller = QueueCaller {
            gate: Arc::clone(gate),
            processor: Arc::clone(processor),
            target,
            queue: queue.clone(),
            config: Arc::clone(&config),
            ended,
        };
        Self { gate: Arc::clone(gate), queue, config, task: gate.calls.spawn(caller.run()) }
    }
}

impl Runner {
    /// Updates the runner to the current routes.
    fn update(&self, called: &CalledQueue<'_>) {
        self.config.store(Arc::new(called.config.clone()));
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.task.abort();
        self.gate.targets.forget(&self.queue);
    }
}

struct QueueCaller {
    gate: Arc<Gate>,
    processor: Arc<dyn Processor>,
    target: Arc<Target>,
    queue: QueueKey,
    config: Arc<ArcSwap<QueueConfig>>,
    ended: mpsc::Sender<EndedCall>,
}

/// A call that has ended. It holds its place until the store has its outcome.
struct EndedCall {
    outcome: CallOutcome,
    /// The end of the lease.
    until: Instant,
    _place: CallPlace,
}

/// The outcome of a call.
enum CallOutcome {
    /// The attempt ended; the report has its outcome.
    Report(Report),
    /// No call was made. The delivery becomes visible again without losing an attempt.
    NotCalled(Receipt),
}

/// The decision about a delivery, by the current registry.
enum CallDecision {
    /// Call the endpoint of this route. A push is signed with the secret.
    Call(Arc<BoundRoute>, Option<Arc<LivePushSecret>>),
    /// Do not call now: the route is disabled, lacks its secret, or is not known on this node yet.
    Later,
    /// No endpoint exists: the route is removed or is another kind now.
    NoEndpoint,
}

impl QueueCaller {
    fn deadline(&self) -> Duration {
        self.config.load().deadline
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
            let Some(places) = leaving.run_until_cancelled(this.take_places()).await else { break };
            let works = if this.has_called_route() { this.receive(places.len()).await } else { Vec::new() };
            let is_idle = works.is_empty();
            if !is_idle {
                this.target.begin_call(this.deadline(), this.now());
            }
            // Places without a delivery are released here.
            for (work, place) in works.into_iter().zip(places) {
                this.gate.calls.spawn(Arc::clone(&this).attempt(work, place));
            }
            if is_idle {
                let _ = leaving.run_until_cancelled(tokio::time::timeout(SLEEP_MAX, arrival)).await;
            }
        }
    }

    /// Whether any route of this queue is called, by the current registry. The runner itself ends only some
    /// time after its last route was disabled. Without this check it would lease and release every waiting
    /// delivery until then.
    fn has_called_route(&self) -> bool {
        let (registry, config) = (self.gate.registry(), self.config.load());
        let mut routes =
            config.destinations.iter().filter_map(|destination| registry.destination(destination));
        routes.any(|route| registry.calls(route))
    }

    /// Waits until the breaker and the shares permit calls, and takes places for them. A delivery is leased
    /// only if its call can begin at once.
    async fn take_places(&self) -> Vec<CallPlace> {
        loop {
            let (freed, breaker_changed) =
                (self.gate.targets.freed().notified(), self.target.breaker_changed.notified());
            tokio::pin!(freed, breaker_changed);
            freed.as_mut().enable();
            breaker_changed.as_mut().enable();
            let now = self.now();
            let most = match self.target.allows(now) {
                Allowed::All => bounds::RECEIVE_MESSAGES_MAX,
                Allowed::Probe => 1,
                Allowed::NotBefore(until) => {
                    let _ = tokio::time::timeout(until.since(now).min(SLEEP_MAX), breaker_changed).await;
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
                    "deliveries for an endpoint could not be leased"
                );
                tokio::time::sleep(SLEEP_MAX).await;
                Vec::new()
            }
        }
    }

    /// Runs one attempt. A gate that stops gives its calls up, and then their outcomes are unknown.
    async fn attempt(self: Arc<Self>, work: Received, place: CallPlace) {
        let until = Instant::now() + work.visible_at.since(self.now());
        if let Some(outcome) = self.gate.calls_given_up.run_until_cancelled(self.process(&work)).await {
            let ended = EndedCall { outcome, until, _place: place };
            let _ = self.ended.send(ended).await;
        }
    }

    async fn process(&self, work: &Received) -> CallOutcome {
        let receipt = Receipt { delivery_id: work.delivery_id, fence: work.fence };
        match self.decide(work) {
            CallDecision::Call(route, secret) => self.call(work, receipt, &route, secret).await,
            // No attempt was made. The delivery waits until a person enables the route or sets its secret.
            CallDecision::Later => {
                self.record_presence(Presence::Unasked);
                CallOutcome::NotCalled(receipt)
            }
            // The delivery is released with a delay. It becomes a dead letter once its attempts are used up.
            CallDecision::NoEndpoint => {
                self.record_presence(Presence::Unasked);
                let later = self.now().plus(Duration::from_secs(60));
                let back = Report::given_back(receipt, later, Some("its route names no processor any more"));
                // No endpoint was called. On a tracked route the claim decides by the outcomes of the earlier
                // attempts.
                let is_tracked = work.tracking.is_tracked();
                let ending = if is_tracked { back.ending } else { mark_if_last(work, back.ending) };
                CallOutcome::Report(Report { ending, ..back })
            }
        }
    }

    /// Decides whether to call an endpoint for a delivery, and by which of its routes.
    fn decide(&self, work: &Received) -> CallDecision {
        let registry = self.gate.registry();
        if self.gate.leaving.is_cancelled() {
            return CallDecision::Later;
        }
        // A delivery may come from another route that used this queue before. The gateway does not send it by
        // the queue's current route.
        let route = work.destination.as_ref().and_then(|destination| registry.destination(destination));
        match route.filter(|route| route.route.processing.kind.is_called()) {
            // Another node has a newer registry; this node will have it in a moment.
            None if registry.version() < work.message.registry_version => CallDecision::Later,
            None => CallDecision::NoEndpoint,
            Some(route) if !registry.calls(route) => CallDecision::Later,
            Some(route) => {
                CallDecision::Call(Arc::clone(route), registry.push_secret(&route.destination).cloned())
            }
        }
    }

    async fn call(
        &self,
        work: &Received,
        receipt: Receipt,
        route: &Arc<BoundRoute>,
        secret: Option<Arc<LivePushSecret>>,
    ) -> CallOutcome {
        let (began, now, processing) = (Instant::now(), self.now(), &route.route.processing);
        // The delivery waited too long after its lease began. The endpoint would have too little time and
        // could still work on it after the lease.
        let Some(timeout) = processing.call_time(work.visible_at.since(now)) else {
            self.record_presence(Presence::Unasked);
            return CallOutcome::NotCalled(receipt);
        };
        let Called { ending, presence } =
            self.processor.call(Attempt { work, route, secret, now, timeout }).await;
        self.record_presence(presence);
        let is_tracked = processing.is_tracked();
        let ending = if presence == Presence::Unasked { ending.unasked(work.attempt) } else { ending };
        if presence == Presence::Crowded {
            self.log_crowded(work, &ending);
            return CallOutcome::NotCalled(receipt);
        }
        if is_tracked {
            self.gate.meters.processed_in(began.elapsed());
        } else {
            self.gate.meters.pushed(ending.error().is_none(), began.elapsed());
        }
        self.log_outcome(work, &ending, is_tracked);
        let retry_after = match &ending {
            Ending::Failed { retry_after, .. } => *retry_after,
            _ => None,
        };
        let retry = processing.retry(retry_after);
        // On tracked routes the claim decides about a retry. On all other routes it is decided here.
        if is_tracked {
            let kept_at = route.keeps_answers_at();
            return CallOutcome::Report(Report {
                receipt,
                ending,
                retry,
                kept_at,
                on_record: OnRecord::default(),
            });
        }
        if presence == Presence::Gone
            && let Err(error) = self.gate.disable_push(route, ending.error().unwrap_or_default()).await
        {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, route = %route.destination, "a route could not be disabled; its receiver will be called again");
        }
        let retry = Retry::At(retry.due(work.attempt, work.delivery_id, self.now()));
        let ending = mark_if_last(work, ending);
        CallOutcome::Report(Report {
            receipt,
            ending,
            retry,
            kept_at: Vec::new(),
            on_record: OnRecord::default(),
        })
    }

    fn log_crowded(&self, work: &Received, ending: &Ending) {
        let (id, queue, why) = (&work.message.id, &self.queue, ending.error());
        self.gate.failing.log_limited(1, self.now(), || {
            tracing::warn!(target: "snavio::message", %id, %queue, why, "no free place for the call; the delivery waits");
        });
    }

    fn log_outcome(&self, work: &Received, ending: &Ending, is_tracked: bool) {
        let (id, attempt) = (&work.message.id, work.attempt);
        let whom = if is_tracked { "processor" } else { "receiver" };
        match ending {
            Ending::Completed { reference, .. } => {
                tracing::debug!(target: "snavio::message", %id, attempt, reference, whom, "endpoint completed the delivery");
            }
            Ending::Failed { error, is_final, .. } => self.gate.failing.log_limited(1, self.now(), || {
                tracing::warn!(target: "snavio::message", %id, attempt, is_final, error, whom, "endpoint refused the delivery");
            }),
            Ending::Unknown { error } => self.gate.failing.log_limited(1, self.now(), || {
                tracing::warn!(target: "snavio::message", %id, attempt, error, whom, "outcome of the call is unknown");
            }),
        }
    }

    /// Passes the outcome of a call to the target's circuit breaker.
    fn record_presence(&self, presence: Presence) {
        let queue = &self.queue;
        match self.target.end_call(presence, self.now()) {
            Some(Turn::Opened(until)) => {
                metrics::counter!("snavio_target_breaks_total").increment(1);
                tracing::warn!(%queue, %until, "a target is down, and left alone for a while");
            }
            Some(Turn::Closed) => tracing::info!(%queue, "a target is up again"),
            None => {}
        }
    }
}

/// Marks the outcome of the last attempt as final, so that the dead letter has its error. The maximum number
/// of attempts was fixed when the message was queued; later changes of the route do not count.
fn mark_if_last(work: &Received, ending: Ending) -> Ending {
    if work.attempt >= work.attempts_max { ending.last() } else { ending }
}

/// Reports the outcomes of ended calls to the store. Calls that end while the store takes a report go
/// together into the next commit.
async fn report_ended_calls(gate: Arc<Gate>, queue: QueueKey, mut ended_calls: mpsc::Receiver<EndedCall>) {
    let mut ended = Vec::new();
    while ended_calls.recv_many(&mut ended, bounds::CALLS_PER_QUEUE_MAX).await > 0 {
        if report_all(&gate, &queue, &ended).await.is_err() {
            // Report each one alone, so that a report that the store cannot take does not block the others.
            let one_by_one = ended.iter().map(|call| report_with_retries(&gate, &queue, call));
            futures_util::future::join_all(one_by_one).await;
        }
        ended.clear();
    }
}

/// Reports the outcomes of some calls. A repeated report changes nothing.
async fn report_all(gate: &Gate, queue: &QueueKey, ended: &[EndedCall]) -> Result<(), StoreError> {
    let (mut reports, mut back) = (Vec::new(), Vec::new());
    for call in ended {
        match &call.outcome {
            CallOutcome::Report(report) => reports.push(report.clone()),
            CallOutcome::NotCalled(receipt) => back.push(*receipt),
        }
    }
    if !back.is_empty() {
        gate.store().take_back(queue, back, gate.clock().now().plus(UNTRIED_PAUSE)).await?;
    }
    if !reports.is_empty() {
        gate.finish_logged(queue, reports, COURIER).await?;
    }
    Ok(())
}

/// Reports the outcome of one call until the store answers or the lease ends. After that the next attempt
/// calls the endpoint again under the same id.
async fn report_with_retries(gate: &Gate, queue: &QueueKey, ended: &EndedCall) {
    let mut pause = REPORT_PAUSE;
    loop {
        match report_all(gate, queue, std::slice::from_ref(ended)).await {
            Ok(()) => return,
            Err(error) if Instant::now() + pause >= ended.until => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    "the outcome of a call could not be stored; the endpoint will be called again"
                );
                return;
            }
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (2 * pause).min(REPORT_PAUSE_MAX);
    }
}
