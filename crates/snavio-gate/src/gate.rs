//! The pipeline, and the state that its stages read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use snavio_model::bounds::NEAREST_REFUSALS_MAX;
use snavio_model::id::MessageId;
use snavio_model::limit::fair::Room;
use snavio_model::message::Message;
use snavio_model::message::trace::{CorrelationId, Traceparent};
use snavio_model::name::{QueueKey, ServiceName};
use snavio_model::ordering::{OrderDefaults, Place};
use snavio_model::refusal::{Reason, Refusal, Refused, Subject};
use snavio_model::registry::age::{AgeLimits, Phase};
use snavio_model::registry::{DispatchMode, Registry, Route, Unseal};
use snavio_model::telemetry;
use snavio_model::time::{Clock, Timestamp};
use snavio_store::{Store, StoreError, WaitsEnded};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::archive::{self, Archive};
use crate::commit::committer::Committer;
use crate::commit::ticket::Held;
use crate::deliver::courier;
use crate::deliver::courier::Processor;
use crate::deliver::targets::{TargetState, Targets};
use crate::outcome::answer::{Answer, Reached, Verdict};
use crate::outcome::failing::Failing;
use crate::outcome::follow::{Following, Wait};
use crate::outcome::gathering::Gathering;
use crate::outcome::meters::{Meters, OrderMeters};
use crate::pipeline::memory::Memory;
use crate::pipeline::shield::Arrival;
use crate::pipeline::wrong_signatures::WrongSignatures;
use crate::pipeline::{fast, shield};
use crate::registry::currency::Currency;
use crate::registry::loaded::Loaded;
use crate::registry::past::KeptSince;
use crate::registry::refreshing::too_old;
use crate::registry::snapshot;
use crate::registry::snapshot::Snapshots;
use crate::task::legacy_keys::LegacyKeys;
use crate::task::revocations::Auditing;
use crate::task::sealer::Sealing;
use crate::task::{legacy_keys, revocations, sweeper};

mod rounds;

use rounds::PermittedMessage;

/// The time that `stop` waits for calls in flight, unless the caller has ended them before.
const CALLS_END_MAX: Duration = Duration::from_secs(10);
/// The number of times that a message is permitted again because the registry changed before its commit.
const REPERMIT_MAX: usize = 3;

fn is_outdated(ended: &Result<Answer, Refused>) -> bool {
    ended.as_ref().is_err_and(|refused| refused.refusal.outdated)
}

/// The settings of the pipeline.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The replay window: the most that the signed time and the time of receipt may differ (PIP-1).
    pub window: Duration,
    /// The path that messages may take on this node (PIP-7).
    pub dispatch: DispatchMode,
    /// The limits of the intake.
    pub room: Room,
    /// The node's name, unique among the nodes of its store.
    pub node: String,
    /// The age limits of routes in memory (REG-14).
    pub route_ages: AgeLimits,
    /// The amount by which this node shortens its age limits, in thousandths (REG-14). It spreads the
    /// refreshes of nodes.
    pub age_jitter: u32,
    /// The interval at which the node asks the store for changes of the registry.
    pub follow_every: Duration,
    /// The order policy of routes that do not set one (ORD-3).
    pub order: OrderDefaults,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window: snavio_model::bounds::REPLAY_WINDOW,
            dispatch: DispatchMode::default(),
            room: Room::default(),
            node: String::new(),
            route_ages: AgeLimits::of_routes(),
            age_jitter: 0,
            follow_every: Duration::from_secs(1),
            order: OrderDefaults::default(),
        }
    }
}

/// The gateway without its HTTP interface.
pub struct Gate {
    pub(crate) settings: Settings,
    pub(crate) registry: ArcSwap<Registry>,
    pub(crate) currency: Currency,
    pub(crate) unseal: Arc<dyn Unseal>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) committer: Committer,
    memory: Arc<Memory>,
    gathering: Gathering,
    /// Held while gathered records are written, so that `stop` waits for a write in progress.
    writing_gathered: tokio::sync::Mutex<()>,
    legacy_keys: LegacyKeys,
    wrong_signatures: WrongSignatures,
    pub(crate) meters: Meters,
    ordering: OrderMeters,
    pub(crate) following: Following,
    pub(crate) failing: Failing,
    pub(crate) archive: OnceLock<Arc<Archive>>,
    /// The calls in flight to processors and receivers, and the runners that make them.
    pub(crate) calls: TaskTracker,
    /// Cancelled when no new call may begin.
    pub(crate) leaving: CancellationToken,
    /// Cancelled when the calls in flight are given up.
    pub(crate) calls_given_up: CancellationToken,
    pub(crate) targets: Arc<Targets>,
    tasks: Mutex<Vec<tokio::task::JoinHandle<()>>>,
    pub(crate) changing: tokio::sync::Mutex<()>,
    pub(crate) refreshing: tokio::sync::Mutex<()>,
    pub(crate) wanted: tokio::sync::Notify,
    sweeps_held: AtomicBool,
    pub(crate) sealing: Sealing,
    pub(crate) auditing: Auditing,
    pub(crate) kept_since: KeptSince,
}

impl Gate {
    /// Loads the registry, and starts the committer and the background tasks.
    pub async fn start(
        settings: Settings,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        unseal: Arc<dyn Unseal>,
    ) -> Result<Arc<Self>, StoreError> {
        let loaded = Loaded::from_store(&*store, &*clock, &*unseal).await?;
        Ok(Self::start_with(loaded, settings, store, clock, unseal).await)
    }

    /// Starts with a registry that is already loaded, and reads the changes since then from the store.
    pub async fn start_with(
        loaded: Loaded,
        settings: Settings,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        unseal: Arc<dyn Unseal>,
    ) -> Arc<Self> {
        let currency = Currency::new(loaded.current_at, settings.route_ages, settings.age_jitter);
        let committer = Committer::new(Arc::clone(&store), Arc::clone(&clock), settings.room);
        let memory = Memory::new(settings.window, settings.room, clock.now());
        let gate = Arc::new(Self {
            settings,
            registry: ArcSwap::from_pointee(loaded.registry),
            currency,
            unseal,
            store,
            clock,
            committer,
            memory,
            gathering: Gathering::default(),
            writing_gathered: tokio::sync::Mutex::default(),
            legacy_keys: LegacyKeys::default(),
            wrong_signatures: WrongSignatures::default(),
            meters: Meters::default(),
            ordering: OrderMeters::default(),
            following: Following::default(),
            kept_since: KeptSince::default(),
            failing: Failing::default(),
            archive: OnceLock::new(),
            calls: TaskTracker::new(),
            leaving: CancellationToken::new(),
            calls_given_up: CancellationToken::new(),
            targets: Arc::default(),
            tasks: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            refreshing: tokio::sync::Mutex::default(),
            wanted: tokio::sync::Notify::new(),
            sweeps_held: AtomicBool::default(),
            sealing: Sealing::default(),
            auditing: Auditing::default(),
        });
        if let Err(error) = gate.refresh_registry().await {
            // `follow_registry` tries again. Until then the registry keeps its age, and its age limits apply.
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "changes of the registry could not be read"
            );
        }
        let tasks = [
            tokio::spawn(sweeper::write_gathered(Arc::clone(&gate))),
            tokio::spawn(sweeper::sweep(Arc::clone(&gate))),
            tokio::spawn(sweeper::follow_registry(Arc::clone(&gate))),
            tokio::spawn(revocations::audit(Arc::clone(&gate))),
            tokio::spawn(legacy_keys::report_uses(Arc::clone(&gate))),
        ];
        tasks.into_iter().for_each(|task| gate.add_task(task));
        gate
    }

    /// From now on, writes snapshots of the registry while this node leads the task (REG-20).
    pub fn write_snapshots(self: &Arc<Self>, snapshots: Arc<Snapshots>) {
        self.add_task(tokio::spawn(snapshot::write_snapshots(Arc::clone(self), snapshots)));
    }

    /// From now on, reads the archive, and moves cooled records there while this node leads the task
    /// (CLM-18).
    pub fn use_archive(self: &Arc<Self>, archive: Arc<Archive>) {
        if self.archive.set(archive).is_ok() {
            self.add_task(tokio::spawn(archive::archive(Arc::clone(self))));
        }
    }

    /// From now on, calls HTTP processors and receivers of pushes through `processor`.
    pub fn call_processors(self: &Arc<Self>, processor: Arc<dyn Processor>) {
        self.calls.spawn(courier::run(Arc::clone(self), processor));
    }

    /// Leases no further deliveries for outside calls. Other nodes, or the next process, call for them.
    pub fn begin_no_more_calls(&self) {
        self.leaving.cancel();
    }

    /// Begins no further calls and waits for those in flight, at most `within`. The outcomes of calls that
    /// are given up then are unknown.
    pub async fn end_calls(&self, within: Duration) {
        self.begin_no_more_calls();
        self.calls.close();
        if tokio::time::timeout(within, self.calls.wait()).await.is_err() {
            tracing::warn!(calls = self.targets.calls(), "calls without a response in time are given up");
        }
        self.calls_given_up.cancel();
    }

    /// The state of the target that this node calls for a queue, if there is one.
    pub fn target(&self, queue: &QueueKey) -> Option<TargetState> {
        self.targets.state(queue)
    }

    /// Adds a telemetry record to those that wait for a commit.
    pub(crate) fn record_telemetry(&self, record: telemetry::Record) {
        self.gathering.add(record);
    }

    /// Adds a background task that ends with the gate.
    pub(crate) fn add_task(&self, task: tokio::task::JoinHandle<()>) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }

    /// Takes one message from its arrival to its outcome. `held` is dropped when the message's commit is
    /// done.
    pub async fn accept(
        &self,
        arrival: Arrival,
        wait: Wait,
        held: impl Send + 'static,
    ) -> Result<Answer, Refused> {
        let ended = self.accept_all(vec![arrival], wait, held).await.pop();
        ended.unwrap_or_else(|| Err(Refusal::lost("the message was not judged").into()))
    }

    /// Takes the messages of one request, each to its own outcome, in their order. `held` is dropped when
    /// their commits are done.
    pub async fn accept_all(
        &self,
        arrivals: Vec<Arrival>,
        wait: Wait,
        held: impl Send + 'static,
    ) -> Vec<Result<Answer, Refused>> {
        let mut ended = self.accept_once(&arrivals, Box::new(held)).await;
        for _ in 0..REPERMIT_MAX {
            let outdated: Vec<_> = (0..ended.len()).filter(|place| is_outdated(&ended[*place])).collect();
            if outdated.is_empty() || self.refresh_registry().await.is_err() {
                break;
            }
            let again: Vec<_> = outdated.iter().map(|place| arrivals[*place].clone()).collect();
            for (place, anew) in outdated.into_iter().zip(self.accept_once(&again, Box::new(())).await) {
                ended[place] = anew;
            }
        }
        let sources = arrivals.iter().map(|arrival| &arrival.source);
        let ended = self.follow_all(sources.zip(ended), wait).await;
        for (arrival, ended) in arrivals.iter().zip(&ended) {
            self.report(&arrival.source, arrival.received_at, ended);
        }
        ended
    }

    /// Takes messages through the stages once, by the current registry.
    async fn accept_once(&self, arrivals: &[Arrival], held: Held) -> Vec<Result<Answer, Refused>> {
        let senders = self.refresh_if_needed().await;
        let registry = self.registry.load_full();
        let mut denied = 0;
        let begin = |arrival| {
            let begun = match senders {
                Phase::Fresh | Phase::Stale => self.begin(arrival, &registry, denied < NEAREST_REFUSALS_MAX),
                Phase::Expired | Phase::Dropped => Err(shield::refuse(arrival, &registry, too_old())),
            };
            let refused = begun.as_ref().err();
            denied += usize::from(refused.is_some_and(|refused| refused.refusal.reason == Reason::AclDeny));
            begun
        };
        let begun: Vec<_> = arrivals.iter().map(begin).collect();
        drop(registry);
        self.settle_all(begun, held).await
    }

    /// Refuses a message that could not be parsed, and reports it like any other arrival.
    pub fn refuse(&self, source: &ServiceName, at: Timestamp, subject: Subject, refusal: Refusal) -> Refused {
        let refused = Refused { subject: Box::new(subject), refusal };
        self.report(source, at, &Err(refused.clone()));
        refused
    }

    /// The stages that decide in memory.
    fn begin(
        &self,
        arrival: &Arrival,
        registry: &Registry,
        names_nearest: bool,
    ) -> Result<PermittedMessage, Refused> {
        let authentic = shield::check(arrival, registry, self.settings.window) // no I/O
            .map_err(|Refused { subject, refusal }| {
                let refusal = self.throttle_signature(&arrival.source, refusal, arrival.received_at);
                Refused { subject, refusal }
            })?;
        let Settings { dispatch, order, .. } = &self.settings;
        let permitted = fast::permit(authentic, registry, &self.currency, *dispatch, order, names_nearest)?; // no I/O
        self.meters.used(&self.currency, permitted.caches(), self.clock.now());
        let (message, routes) = (permitted.message(), permitted.routes());
        let answer = Answer::known(message, routes);
        routes.iter().for_each(|route| self.meters.routed(route));
        self.legacy_keys.record(message, registry);
        let fingerprints = self.memory.fingerprints(message, routes);
        let signed_at = permitted.signed_at();
        let skew = signed_at.and_then(|at| telemetry::skew(permitted.message(), at, self.settings.window));
        let escalation = permitted.escalation();
        Ok(PermittedMessage { answer, intake: permitted.into_intake(), fingerprints, escalation, skew })
    }

    /// Counts a wrong signature of a source with a valid token. Above a rate, the refusal gets a time for the
    /// retry.
    pub fn throttle_signature(&self, source: &ServiceName, refusal: Refusal, at: Timestamp) -> Refusal {
        self.wrong_signatures.throttle(source, refusal, at)
    }

    /// Every arrival ends here exactly once: in metrics, in the log, and in its tenant's telemetry. Accepted
    /// messages are not added to the telemetry here, because it is read from the message log.
    pub(crate) fn report(&self, source: &ServiceName, at: Timestamp, ended: &Result<Answer, Refused>) {
        match ended {
            Ok(answer) => self.report_taken(source, at, answer),
            Err(Refused { subject, refusal }) => {
                let reason = refusal.reason.code();
                self.meters.refused(subject.kind, refusal.reason);
                if refusal.conflict.is_some() {
                    self.meters.conflict();
                }
                let id = subject.id.as_ref().map_or("", MessageId::as_str);
                let correlation = subject.correlation.as_ref().map_or("", CorrelationId::as_str);
                let traceparent = subject.traceparent.as_ref().map_or("", Traceparent::as_str);
                // For a message that may have been accepted, this line may be the only trace, so such lines
                // are never limited.
                if refusal.reason.contract().status == 503 && !refusal.in_doubt {
                    // The node is at fault and refuses all messages, so the field `cause` limits the lines of
                    // each tenant.
                    let tenant = source.tenant();
                    tracing::info!(target: "snavio::message", %source, %tenant, id, correlation, traceparent, reason, cause = reason, "refused");
                } else {
                    tracing::info!(target: "snavio::message", %source, id, correlation, traceparent, reason, "refused");
                }
                let record = telemetry::refused(source, subject, refusal, at);
                record.into_iter().for_each(|record| self.gathering.add(record));
            }
        }
    }

    fn report_taken(&self, source: &ServiceName, at: Timestamp, answer: &Answer) {
        let Answer { id, correlation, traceparent, kind, .. } = answer;
        // Without a report on its outcome, a message is complete when it is in its queue.
        let is_complete = |reached: &&Reached| {
            matches!(reached.verdict, Verdict::Accepted { .. })
                && !reached.processing.is_tracked()
                && reached.dedupe_mode != "none"
        };
        answer.reached.iter().filter(is_complete).for_each(|_| self.meters.processed());
        match answer.taken_by() {
            Some(path) => {
                self.meters.accepted(*kind, path);
                let path = path.as_str();
                tracing::debug!(target: "snavio::message", %source, %id, %correlation, %traceparent, path, "accepted");
            }
            None => {
                self.meters.duplicate(*kind);
                tracing::debug!(target: "snavio::message", %source, %id, %correlation, %traceparent, "duplicate");
                let dedupe_mode = answer.reached.first().map_or("none", |reached| reached.dedupe_mode);
                let record = telemetry::duplicate(source, &answer.subject(), dedupe_mode, at);
                record.into_iter().for_each(|record| self.gathering.add(record));
            }
        }
        for reached in &answer.reached {
            if let Verdict::Followed(followed) = &reached.verdict
                && !followed.is_replay
            {
                let (status, destination) = (followed.status.as_str(), &reached.destination);
                tracing::info!(target: "snavio::message", %source, %id, %correlation, %traceparent, %destination, status, "processed");
            }
        }
    }

    /// Creates the counters of registered routes, up to a bound. Call it before metrics are shown.
    pub fn begin_route_counters(&self) {
        let registry = self.registry();
        if self.meters.needs_route_counters(registry.version()) {
            self.meters.create_route_counters(registry.routes());
            self.ordering.create_route_counters(registry.routes());
        }
    }

    /// The number of conflicts that this node has recorded since its start.
    pub fn conflicts_recorded(&self) -> u64 {
        self.meters.conflicts_recorded()
    }

    pub(crate) fn legacy_keys(&self) -> &LegacyKeys {
        &self.legacy_keys
    }

    /// The current registry.
    pub fn registry(&self) -> Arc<Registry> {
        self.registry.load_full()
    }

    /// The store of the pipeline.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The clock of the pipeline.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The replay window.
    pub fn window(&self) -> Duration {
        self.settings.window
    }

    /// The order policy of routes that do not set one (ORD-3).
    pub fn order_defaults(&self) -> &OrderDefaults {
        &self.settings.order
    }

    /// The position of a message in the order of its entity at a route; `None` if the message passes
    /// unordered there.
    pub fn place(&self, message: &Message, route: &Route) -> Option<Place> {
        Place::find(message, route, &self.settings.order).ok().flatten()
    }

    pub(crate) fn dispatch(&self) -> DispatchMode {
        self.settings.dispatch
    }

    pub(crate) fn follow_every(&self) -> Duration {
        self.settings.follow_every
    }

    /// The number of messages that wait for their commit.
    pub fn waiting(&self) -> usize {
        self.committer.waiting()
    }

    /// Writes gathered records. Records that cannot be written are counted and dropped, because observability
    /// fails open.
    pub(crate) async fn write_gathered(&self) {
        let _writing = self.writing_gathered.lock().await;
        self.write_repeats().await;
        snavio_store::tell_of_more_conflicts(self.clock.now());
        self.failing.log_suppressed(self.clock.now());
        let records = self.gathering.take();
        if records.is_empty() {
            return;
        }
        let count = records.len() as u64;
        if let Err(error) = self.store.record(records).await {
            metrics::counter!("snavio_telemetry_dropped_total").increment(count);
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                count,
                "telemetry of refusals was dropped"
            );
        }
    }

    /// Whether this node leads a task that one node does for all (ENG-7). `term` is the length of the
    /// leadership without renewal.
    pub(crate) async fn leads(&self, task: &str, term: Duration) -> bool {
        self.store.lead(task, &self.settings.node, term).await.unwrap_or_else(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                task,
                "leadership of a task could not be read"
            );
            false
        })
    }

    /// Suspends or resumes the expiry sweep. With a clock that cannot be trusted, a node would expire claims
    /// that other nodes still use.
    pub fn hold_sweeps(&self, hold: bool) {
        if self.sweeps_held.swap(hold, Ordering::Relaxed) != hold {
            tracing::warn!(hold, "expiry sweeps were suspended or resumed because of this node's clock");
        }
    }

    pub(crate) fn holds_sweeps(&self) -> bool {
        self.sweeps_held.load(Ordering::Relaxed)
    }

    /// Ends expired waits (ORD-3), a bounded number. Returns true if there may be more.
    pub(crate) async fn end_waits(&self) -> bool {
        match self.store.end_waits(self.clock.now()).await {
            Ok(WaitsEnded { ended, is_partial }) => {
                self.ordering.waited(&ended);
                is_partial
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "expired waits could not be ended");
                false
            }
        }
    }

    /// Runs one bounded expiry sweep. Returns true if there may be more to do.
    pub(crate) async fn sweep(&self) -> bool {
        match self.store.sweep(self.clock.now()).await {
            Ok(swept) => {
                self.meters.lapsed(swept.lapsed);
                self.failing.log_lapsed(swept.lapsed, self.clock.now());
                swept.is_partial()
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "sweep failed");
                false
            }
        }
    }

    /// Stops the gate: ends the calls, settles waiting messages, writes gathered records, seals the
    /// changelog, gives up leadership and closes the store.
    pub async fn stop(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        self.end_calls(CALLS_END_MAX).await;
        tokio::task::block_in_place(|| self.committer.close());
        self.write_gathered().await;
        // The suppressed lines of the current second: no later call would log them.
        snavio_store::tell_of_more_conflicts(Timestamp(i64::MAX));
        self.failing.log_suppressed(Timestamp(i64::MAX));
        self.sealing.round(self).await;
        if let Err(error) = self.store.leave(&self.settings.node).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "this node could not give up its leadership in the store"
            );
        }
        self.store.close().await;
    }
}
