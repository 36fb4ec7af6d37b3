//! The pipeline on one screen, and the state it reads.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use snavio_model::age::{AgeLimits, Phase};
use snavio_model::fair::Room;
use snavio_model::message::{Message, MessageKind, Path};
use snavio_model::name::{CommandName, ServiceName};
use snavio_model::processing::ProcessingKind;
use snavio_model::recent::{Fingerprint, RecentMessages};
use snavio_model::refusal::{Refusal, Refused, Subject};
use snavio_model::registry::{BoundRoute, DispatchMode, Registry, Unseal};
use snavio_model::settle::{Intake, Outcome, Settlement};
use snavio_model::telemetry;
use snavio_model::time::{Clock, Timestamp};
use snavio_model::trace::{CorrelationId, Traceparent};
use snavio_model::{id::MessageId, id::Serial};
use snavio_store::{Store, StoreError};
use tokio_util::task::TaskTracker;

use crate::archive::{self, Archive};
use crate::committer::Committer;
use crate::courier::Processor;
use crate::currency::Currency;
use crate::follow::{Followed, Following, Wait};
use crate::gathering::Gathering;
use crate::legacy_keys::{self, LegacyKeys};
use crate::loaded::Loaded;
use crate::meters::Meters;
use crate::refreshing::too_old;
use crate::revocations::Auditing;
use crate::sealer::Sealing;
use crate::shield::Arrival;
use crate::snapshot::Snapshots;
use crate::ticket::Held;
use crate::{courier, fast, revocations, shield, slow, snapshot, sweeper};

/// How long calls of processors have to end when the gate stops.
const CALLS_END_MAX: Duration = Duration::from_secs(10);
/// How often a message is permitted anew because the registry changed before its commit.
const PERMITTED_ANEW_MAX: usize = 3;

/// PIP-2: on routes that compare contents or tell what became of a message, memory answers nothing.
fn asks_memory(route: &BoundRoute) -> bool {
    route.route.claim.compares().is_none() && !route.route.processing.is_tracked()
}

fn is_outdated(ended: &Result<Answer, Refused>) -> bool {
    ended.as_ref().is_err_and(|refused| refused.refusal.outdated)
}

/// What the pipeline is told at start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How far signing and receipt may be apart (PIP-1).
    pub window: Duration,
    /// Which path messages may take on this node (PIP-7).
    pub dispatch: DispatchMode,
    /// Room for messages that wait for their commit.
    pub room: Room,
    /// The node's name among those of its store.
    pub node: String,
    /// How old routes may be in memory (REG-14).
    pub route_ages: AgeLimits,
    /// How much this node shortens the ages of what it has in memory, in thousandths (REG-14).
    pub age_jitter: u32,
    /// How often the store is asked for changes of the registry.
    pub follow_every: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window: snavio_model::limits::REPLAY_WINDOW,
            dispatch: DispatchMode::default(),
            room: Room::default(),
            node: String::new(),
            route_ages: AgeLimits::of_routes(),
            age_jitter: 0,
            follow_every: Duration::from_secs(1),
        }
    }
}

/// What became of a message that was not refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Durable, and on its way.
    Accepted {
        /// How it was decided.
        path: Path,
        /// Its delivery.
        delivery: Serial,
    },
    /// Seen before: nothing was dispatched.
    Duplicate {
        /// When it was first seen, where that is known.
        first_seen_at: Option<Timestamp>,
    },
    /// What became of it is known: now, or since it was sent before.
    Followed(Box<Followed>),
}

/// The answer to a message that was not refused.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The message's id.
    pub id: MessageId,
    /// Its correlation id.
    pub correlation: CorrelationId,
    /// Its trace.
    pub traceparent: Traceparent,
    /// What kind of message it is.
    pub kind: MessageKind,
    /// The service it is for; of an event its publisher.
    pub target: ServiceName,
    /// The command, or the event's type.
    pub name: CommandName,
    /// Its destination in claims and deliveries.
    pub destination: Arc<str>,
    /// By whom it is processed.
    pub processing: ProcessingKind,
    /// How its route treats repeats.
    pub dedupe_mode: &'static str,
    /// What became of it.
    pub verdict: Verdict,
}

impl Answer {
    pub(crate) fn subject(&self) -> Subject {
        Subject {
            kind: self.kind,
            id: Some(self.id.clone()),
            target: Some(self.target.clone()),
            name: Some(self.name.clone()),
            correlation: Some(self.correlation.clone()),
            traceparent: Some(self.traceparent.clone()),
        }
    }
}

/// A message that passed all that memory can check.
enum Begun {
    /// The very same message was accepted a short while ago.
    Known(Answer),
    /// Its intake is on its way to the store.
    Handed(Handed),
}

/// What is needed of a message once the store has answered.
struct Handed {
    answer: Answer,
    /// What it is remembered by; nothing of what is not signed.
    fingerprint: Option<Fingerprint>,
    path: Path,
    skew: Option<telemetry::Record>,
}

/// The gateway without its HTTP.
pub struct Gate {
    pub(crate) settings: Settings,
    pub(crate) registry: ArcSwap<Registry>,
    pub(crate) currency: Currency,
    pub(crate) unseal: Arc<dyn Unseal>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) committer: Committer,
    recent: Mutex<RecentMessages>,
    hashers: [std::hash::RandomState; 2],
    gathering: Gathering,
    legacy_keys: LegacyKeys,
    pub(crate) meters: Meters,
    pub(crate) following: Following,
    pub(crate) archive: OnceLock<Arc<Archive>>,
    /// Calls of processors that are under way.
    pub(crate) calls: TaskTracker,
    tasks: Mutex<Vec<tokio::task::JoinHandle<()>>>,
    pub(crate) changing: tokio::sync::Mutex<()>,
    pub(crate) refreshing: tokio::sync::Mutex<()>,
    pub(crate) wanted: tokio::sync::Notify,
    sweeps_held: AtomicBool,
    pub(crate) sealing: Sealing,
    pub(crate) auditing: Auditing,
}

impl Gate {
    /// Loads the registry and starts the committer and the tasks.
    pub async fn start(
        settings: Settings,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        unseal: Arc<dyn Unseal>,
    ) -> Result<Arc<Self>, StoreError> {
        let loaded = Loaded::from_store(&*store, &*clock, &*unseal).await?;
        Ok(Self::start_with(loaded, settings, store, clock, unseal).await)
    }

    /// Starts with a registry that was loaded before, and brings it up to the store's version by the difference.
    pub async fn start_with(
        loaded: Loaded,
        settings: Settings,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        unseal: Arc<dyn Unseal>,
    ) -> Arc<Self> {
        let currency = Currency::new(loaded.current_at, settings.route_ages, settings.age_jitter);
        let committer = Committer::new(Arc::clone(&store), Arc::clone(&clock), settings.room);
        let recent = RecentMessages::new(2 * settings.window, clock.now());
        let gate = Arc::new(Self {
            settings,
            registry: ArcSwap::from_pointee(loaded.registry),
            currency,
            unseal,
            store,
            clock,
            committer,
            recent: Mutex::new(recent),
            hashers: Default::default(),
            gathering: Gathering::default(),
            legacy_keys: LegacyKeys::default(),
            meters: Meters::default(),
            following: Following::default(),
            archive: OnceLock::new(),
            calls: TaskTracker::new(),
            tasks: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            refreshing: tokio::sync::Mutex::default(),
            wanted: tokio::sync::Notify::new(),
            sweeps_held: AtomicBool::default(),
            sealing: Sealing::default(),
            auditing: Auditing::default(),
        });
        if let Err(error) = gate.refresh_registry().await {
            // `follow_registry` asks again; until then the registry is as old as it is.
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the registry's changes could not be read"
            );
        }
        let tasks = [
            tokio::spawn(sweeper::write_gathered(Arc::clone(&gate))),
            tokio::spawn(sweeper::sweep(Arc::clone(&gate))),
            tokio::spawn(sweeper::follow_registry(Arc::clone(&gate))),
            tokio::spawn(revocations::audit(Arc::clone(&gate))),
            tokio::spawn(legacy_keys::tell(Arc::clone(&gate))),
        ];
        tasks.into_iter().for_each(|task| gate.keep(task));
        gate
    }

    /// Writes snapshots of the registry from now on, when this node is the one that does (REG-20).
    pub fn write_snapshots(self: &Arc<Self>, snapshots: Arc<Snapshots>) {
        self.keep(tokio::spawn(snapshot::write_snapshots(Arc::clone(self), snapshots)));
    }

    /// Reads the archive from now on, and moves what has cooled there when this node is the one that does (CLM-18).
    pub fn use_archive(self: &Arc<Self>, archive: Arc<Archive>) {
        if self.archive.set(archive).is_ok() {
            self.keep(tokio::spawn(archive::archive(Arc::clone(self))));
        }
    }

    /// Calls HTTP processors from now on, through this.
    pub fn call_processors(self: &Arc<Self>, processor: Arc<dyn Processor>) {
        self.keep(tokio::spawn(courier::run(Arc::clone(self), processor)));
    }

    /// Puts a record among those that wait for a commit.
    pub(crate) fn tell(&self, record: telemetry::Record) {
        self.gathering.add(record);
    }

    /// Takes a task that ends with the gate.
    pub(crate) fn keep(&self, task: tokio::task::JoinHandle<()>) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }

    /// Takes a message from its arrival to its one outcome. What is held is let go when its commit is done.
    pub async fn accept(
        &self,
        arrival: Arrival,
        wait: Wait,
        held: impl Send + 'static,
    ) -> Result<Answer, Refused> {
        let gone = || Refusal::lost("the message was not judged").into();
        self.accept_all(vec![arrival], wait, held).await.pop().unwrap_or_else(|| Err(gone()))
    }

    /// Takes messages that came together, each to its own outcome, in their order.
    pub async fn accept_all(
        &self,
        arrivals: Vec<Arrival>,
        wait: Wait,
        held: impl Send + 'static,
    ) -> Vec<Result<Answer, Refused>> {
        let mut ended = self.accept_once(&arrivals, Box::new(held)).await;
        for _ in 0..PERMITTED_ANEW_MAX {
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

    /// Takes messages through the stages once, by the registry as it is.
    async fn accept_once(&self, arrivals: &[Arrival], held: Held) -> Vec<Result<Answer, Refused>> {
        let senders = self.renewed().await;
        let registry = self.registry.load_full();
        let mut intakes = Vec::with_capacity(arrivals.len());
        let begin = |arrival| match senders {
            Phase::Fresh | Phase::Stale => self.begin(arrival, &registry, &mut intakes),
            Phase::Expired | Phase::Dropped => Err(shield::refuse(arrival, &registry, too_old())),
        };
        let begun: Vec<_> = arrivals.iter().map(begin).collect();
        drop(registry);
        let handed_over = tokio::time::Instant::now();
        let settled = slow::settle(intakes, &self.committer, held); // one durable write
        let mut settled = settled.await.into_iter();
        let waited = handed_over.elapsed();
        let end = |begun: Result<Begun, Refused>| match begun {
            Ok(Begun::Known(answer)) => Ok(answer),
            Ok(Begun::Handed(handed)) => {
                self.meters.settled(handed.path, waited);
                self.end(handed, settled.next())
            }
            Err(refused) => Err(refused),
        };
        begun.into_iter().map(end).collect()
    }

    /// Refuses what could not even be read, on the record like any other arrival.
    pub fn refuse(&self, source: &ServiceName, at: Timestamp, subject: Subject, refusal: Refusal) -> Refused {
        let refused = Refused { subject: Box::new(subject), refusal };
        self.report(source, at, &Err(refused.clone()));
        refused
    }

    /// Everything that memory can decide.
    fn begin(
        &self,
        arrival: &Arrival,
        registry: &Registry,
        intakes: &mut Vec<Intake>,
    ) -> Result<Begun, Refused> {
        let authentic = shield::check(arrival, registry, self.settings.window)?; // no I/O
        let permitted = fast::permit(authentic, registry, &self.currency, self.settings.dispatch)?; // no I/O
        self.meters.used(&self.currency, permitted.caches(), self.clock.now());
        let answer = Answer {
            id: permitted.message().id.clone(),
            correlation: permitted.message().correlation.clone(),
            traceparent: permitted.message().traceparent.clone(),
            kind: permitted.message().kind(),
            target: permitted.message().target.clone(),
            name: permitted.message().name.clone(),
            destination: Arc::clone(&permitted.route().destination),
            processing: permitted.route().route.processing.kind,
            dedupe_mode: permitted.route().route.claim.name(),
            verdict: Verdict::Duplicate { first_seen_at: None },
        };
        self.meters.routed(permitted.route());
        self.legacy_keys.notice(permitted.message(), registry);
        let fingerprint = self.fingerprint(permitted.message(), &permitted.route().destination);
        if fingerprint.is_some_and(|it| asks_memory(permitted.route()) && self.recent().knows(it)) {
            return Ok(Begun::Known(answer));
        }
        if let Some(reason) = permitted.escalation() {
            self.meters.escalated(reason);
        }
        let skew = |at| telemetry::skew(permitted.message(), at, self.settings.window);
        let skew = permitted.signed_at().and_then(skew);
        let intake = permitted.into_intake();
        let path = intake.path;
        intakes.push(intake);
        Ok(Begun::Handed(Handed { answer, fingerprint, path, skew }))
    }

    /// What the store's word means for a message.
    fn end(&self, handed: Handed, settled: Option<Result<Settlement, Refusal>>) -> Result<Answer, Refused> {
        let Handed { answer, fingerprint, path, skew } = handed;
        let lost = || Err(Refusal::lost("the store gave no answer"));
        let settlement = settled
            .unwrap_or_else(lost)
            .map_err(|refusal| Refused { subject: Box::new(answer.subject()), refusal })?;
        let verdict = match settlement.outcomes.first() {
            Some(Outcome::Queued { delivery }) => {
                fingerprint.into_iter().for_each(|it| self.recent().remember(it, self.clock.now()));
                skew.into_iter().for_each(|record| self.gathering.add(record));
                Verdict::Accepted { path, delivery: *delivery }
            }
            Some(Outcome::Duplicate { first_seen_at }) => {
                Verdict::Duplicate { first_seen_at: Some(*first_seen_at) }
            }
            Some(Outcome::Seen { delivery, status, first_seen_at, kept_until, .. }) => {
                let (first_seen_at, kept_until) = (*first_seen_at, *kept_until);
                Verdict::Followed(Box::new(Followed::seen(*delivery, *status, first_seen_at, kept_until)))
            }
            // Refused by `slow` already.
            Some(
                Outcome::Taken
                | Outcome::Conflict { .. }
                | Outcome::QueueFull
                | Outcome::Unreadable
                | Outcome::TooLate
                | Outcome::Outdated
                | Outcome::Unfit,
            )
            | None => {
                let refusal = Refusal::lost("the store gave no outcome");
                return Err(Refused { subject: Box::new(answer.subject()), refusal });
            }
        };
        Ok(Answer { verdict, ..answer })
    }

    /// Every arrival ends here, once: in metrics, in the log and, but for what the message log tells itself, in
    /// its tenant's telemetry.
    fn report(&self, source: &ServiceName, at: Timestamp, ended: &Result<Answer, Refused>) {
        match ended {
            Ok(Answer {
                id,
                correlation,
                traceparent,
                kind,
                processing,
                dedupe_mode,
                verdict: Verdict::Accepted { path, .. },
                ..
            }) => {
                self.meters.accepted(*kind, *path);
                // It is complete since it is in its queue.
                if *processing == ProcessingKind::Queue && *dedupe_mode != "none" {
                    self.meters.processed();
                }
                let path = path.as_str();
                tracing::debug!(target: "snavio::message", %source, %id, %correlation, %traceparent, path, "accepted");
            }
            Ok(Answer {
                id, correlation, traceparent, kind, verdict: Verdict::Followed(followed), ..
            }) if !followed.is_replay => {
                let status = followed.status.as_str();
                self.meters.accepted(*kind, Path::Slow);
                tracing::info!(target: "snavio::message", %source, %id, %correlation, %traceparent, status, "processed");
            }
            Ok(answer) => {
                let Answer { id, correlation, traceparent, .. } = answer;
                self.meters.duplicate(answer.kind);
                tracing::debug!(target: "snavio::message", %source, %id, %correlation, %traceparent, "duplicate");
                let record = telemetry::duplicate(source, &answer.subject(), answer.dedupe_mode, at);
                record.into_iter().for_each(|record| self.gathering.add(record));
            }
            Err(Refused { subject, refusal }) => {
                let reason = refusal.reason.code();
                self.meters.refused(subject.kind, refusal.reason);
                if refusal.conflict.is_some() {
                    self.meters.conflict();
                }
                let id = subject.id.as_ref().map_or("", MessageId::as_str);
                let correlation = subject.correlation.as_ref().map_or("", CorrelationId::as_str);
                let traceparent = subject.traceparent.as_ref().map_or("", Traceparent::as_str);
                tracing::info!(target: "snavio::message", %source, id, correlation, traceparent, reason, "refused");
                let record = telemetry::refused(source, subject, refusal, at);
                record.into_iter().for_each(|record| self.gathering.add(record));
            }
        }
    }

    /// PIP-2: only the very same signed message is known again from memory. What is not signed may say anything under its
    /// id.
    fn fingerprint(&self, message: &Message, destination: &str) -> Option<Fingerprint> {
        message.key_version.as_ref()?;
        let key = (message.tenant.as_str(), message.id.as_str(), destination, &*message.signature);
        let [high, low] = self.hashers.each_ref().map(|hasher| u128::from(hasher.hash_one(key)));
        Some(high << 64 | low)
    }

    fn recent(&self) -> std::sync::MutexGuard<'_, RecentMessages> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn legacy_keys(&self) -> &LegacyKeys {
        &self.legacy_keys
    }

    /// The registry as it is now.
    pub fn registry(&self) -> Arc<Registry> {
        self.registry.load_full()
    }

    /// The store behind the pipeline.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The pipeline's clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The replay window in force.
    pub fn window(&self) -> Duration {
        self.settings.window
    }

    pub(crate) fn dispatch(&self) -> DispatchMode {
        self.settings.dispatch
    }

    pub(crate) fn follow_every(&self) -> Duration {
        self.settings.follow_every
    }

    /// Messages that wait for a commit.
    pub fn waiting(&self) -> usize {
        self.committer.waiting()
    }

    /// Writes what was gathered; what cannot be written is counted and dropped (observability fails open).
    pub(crate) async fn write_gathered(&self) {
        self.write_repeats().await;
        snavio_store::tell_of_more_conflicts(self.clock.now());
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

    /// Whether this node does a task that one node does for all (ENG-7).
    pub(crate) async fn leads(&self, task: &str, term: Duration) -> bool {
        self.store.lead(task, &self.settings.node, term).await.unwrap_or_else(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, task, "who leads could not be asked");
            false
        })
    }

    /// Sweeps nothing from now on, or does again: by a time that is not to be trusted a node would end claims that
    /// others still go by.
    pub fn hold_sweeps(&self, hold: bool) {
        if self.sweeps_held.swap(hold, Ordering::Relaxed) != hold {
            tracing::warn!(hold, "whether this node sweeps hangs on its clock, and has changed");
        }
    }

    pub(crate) fn holds_sweeps(&self) -> bool {
        self.sweeps_held.load(Ordering::Relaxed)
    }

    /// One bounded sweep; true when there may be more to do.
    pub(crate) async fn sweep(&self) -> bool {
        match self.store.sweep(self.clock.now()).await {
            Ok(swept) => {
                self.meters.lapsed(swept.lapsed);
                swept.is_partial()
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "sweep failed");
                false
            }
        }
    }

    /// Finishes what is under way, writes what was gathered, seals what was changed, hands on what it led and closes the store.
    pub async fn stop(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        self.calls.close();
        if tokio::time::timeout(CALLS_END_MAX, self.calls.wait()).await.is_err() {
            tracing::warn!(calls = self.calls.len(), "processors are called that have not answered yet");
        }
        tokio::task::block_in_place(|| self.committer.close());
        self.write_gathered().await;
        // Whatever of its second is left: nobody says it later.
        snavio_store::tell_of_more_conflicts(Timestamp(i64::MAX));
        self.sealing.round(self).await;
        if let Err(error) = self.store.leave(&self.settings.node).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the store was not told that this node leaves"
            );
        }
        self.store.close().await;
    }
}
