//! The measurements of a node: one cell of the matrix at a time, round by round.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::consume::Consume;
use super::fleet::FleetDatabase;
use super::http::Ingest;
use super::load::{self, Load, LoadResult, Wire};
use super::machine::LoadWatch;
use super::messages::{Ids, Signer};
use super::node::{BenchTenant, Policy, StoreMode, Target};
use super::round::{Round, divide};
use crate::cmd::Failure;

/// The most messages of the warm-up. It is not part of the figures; its rate tells how many messages a round
/// needs.
const WARM_UP_MESSAGES: usize = 60_000;
const WARM_UP: Duration = Duration::from_millis(700);
/// The factor for additional messages, so that a round does not run out of them if it is faster than the one
/// before.
const HEADROOM: f64 = 1.4;
/// Connections that consume during a load.
const CONSUMERS: usize = 4;
/// Messages in a request that fills a store: the largest batch.
const FILL_BATCH: usize = 500;
const FILL_CONNECTIONS: usize = 4;
/// The most messages that a fill prepares at once: a bound on memory.
const FILL_MESSAGES: usize = 50_000;
/// The longest time for these messages: they must arrive while their signatures are valid.
const FILL_TIME: Duration = Duration::from_secs(50);

/// One combination of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) policy: Policy,
    pub(super) batch: usize,
    pub(super) connections: usize,
    pub(super) ids: Ids,
    pub(super) consume: bool,
}

impl Cell {
    pub(super) fn name(&self) -> String {
        let batch =
            if self.batch == 1 { "one by one".to_owned() } else { format!("batches of {}", self.batch) };
        let consume = if self.consume { ", consumed" } else { "" };
        let (policy, ids) = (self.policy.name(), self.ids.name());
        let connections = self.connections;
        format!("{policy}, {batch}, {connections} in flight, {ids} ids{consume}")
    }
}

/// The length and the messages of the rounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pacing {
    pub(super) time: Duration,
    pub(super) payload_bytes: usize,
    /// The most messages that a round prepares: a bound on memory and on signing time.
    pub(super) messages_max: usize,
}

/// Sends load to a node, as the services of one tenant.
pub(super) struct Driver {
    pub(super) target: Target,
    tenant: BenchTenant,
    pub(super) pacing: Pacing,
    /// The database of the nodes, if the driver measures it too.
    database: Option<FleetDatabase>,
    /// The highest rate of each cell so far, in messages a second.
    rates: Vec<(Cell, f64)>,
}

impl Driver {
    pub(super) async fn start(mode: StoreMode, pacing: Pacing) -> Result<Self, Failure> {
        Self::over(Target::start(mode)?, pacing).await
    }

    pub(super) async fn over(target: Target, pacing: Pacing) -> Result<Self, Failure> {
        let tenant = target.register_tenant().await?;
        Ok(Self { target, tenant, pacing, database: None, rates: Vec::new() })
    }

    /// Measures the database too.
    pub(super) fn with_database(self, database: FleetDatabase) -> Self {
        Self { database: Some(database), ..self }
    }

    pub(super) fn tenant(&self) -> &BenchTenant {
        &self.tenant
    }

    fn signer(&self, policy: Policy) -> Result<Signer, Failure> {
        self.signer_of(&self.tenant, policy)
    }

    /// A signer for the services of a tenant.
    pub(super) fn signer_of(&self, tenant: &BenchTenant, policy: Policy) -> Result<Signer, Failure> {
        let target = tenant.worker.source.as_str();
        Signer::new(&tenant.producer, target, policy.command(), self.pacing.payload_bytes)
    }

    /// Measures one round.
    pub(super) async fn round(&mut self, cell: &Cell) -> Result<Round, Failure> {
        let per_second = match self.rates.iter().find(|(measured, _)| measured == cell) {
            Some((_, per_second)) => *per_second,
            None => self.warm_up(cell).await?,
        };
        let time = self.pacing.time;
        let wanted = per_second * HEADROOM * time.as_secs_f64() + (cell.connections * cell.batch) as f64;
        let ingest = self.ingest(cell, wanted as usize, per_second).await?;
        let counts_before = self.target.read_counts().await?;
        let database_before = FleetDatabase::read_totals(self.database.as_ref()).await?;
        let (used_before, watch) = (self.target.processor_time(), LoadWatch::start());
        let consumers = self.start_consumers(cell).await?;
        let (result, _) = run_load(self.load(cell.connections, time), ingest).await?;
        let consumed = match consumers {
            Some(consumers) => Some(consumers.end().await?),
            None => None,
        };
        let mut round = Round::from_load(&result);
        round.busy = watch.busy();
        round.server_micros_per_message = self.server_micros_per_message(used_before, round.messages);
        let database_after = FleetDatabase::read_totals(self.database.as_ref()).await?;
        let counts = self.target.read_counts().await?.since(counts_before);
        round.messages_per_flush = divide(counts.messages as f64, counts.commits);
        round.settled = Some(counts.messages);
        if let Some((after, before)) = database_after.zip(database_before) {
            let used = after.processor.saturating_sub(before.processor);
            round.database_micros_per_message = divide(used.as_secs_f64() * 1e6, round.messages);
            round.statements_per_message = divide((after.calls - before.calls) as f64, counts.messages);
            round.round_trips_per_message = divide(counts.round_trips as f64, counts.messages);
        }
        round.consumed_per_second =
            consumed.map(|consumed| consumed.tally.accepted as f64 / consumed.elapsed.as_secs_f64());
        self.record_rate(cell, round.messages as f64 / round.seconds);
        Ok(round)
    }

    /// Processor time of the nodes since `used_before`, for each message.
    fn server_micros_per_message(&self, used_before: Option<Duration>, messages: u64) -> Option<f64> {
        let used = self.target.processor_time()?.saturating_sub(used_before?);
        divide(used.as_secs_f64() * 1e6, messages)
    }

    async fn warm_up(&self, cell: &Cell) -> Result<f64, Failure> {
        let ingest = self.ingest(cell, WARM_UP_MESSAGES, 50_000.0).await?;
        let load = self.load(cell.connections, WARM_UP.min(self.pacing.time));
        let (result, _) = run_load(load, ingest).await?;
        Ok((result.tally.answered() as f64 / result.elapsed.as_secs_f64()).max(100.0))
    }

    fn record_rate(&mut self, cell: &Cell, per_second: f64) {
        match self.rates.iter_mut().find(|(measured, _)| measured == cell) {
            Some((_, highest)) => *highest = highest.max(per_second),
            None => self.rates.push((*cell, per_second)),
        }
    }

    pub(super) fn load(&self, connections: usize, time: Duration) -> Load {
        Load { addresses: self.target.addresses(), connections, time, pace: None, stop: None }
    }

    async fn ingest(&self, cell: &Cell, count: usize, per_second: f64) -> Result<Ingest, Failure> {
        // Only whole batches, and at least one for each connection.
        let count = count.min(self.pacing.messages_max).max(cell.batch * cell.connections);
        let count = count.div_ceil(cell.batch) * cell.batch;
        let (signer, ids) = (self.signer(cell.policy)?, cell.ids);
        let token = self.target.token(&self.tenant.producer).await?;
        let stock = run_blocking(move || signer.prepare(count, ids, per_second)).await??;
        Ok(Ingest::new(stock, cell.batch, &self.target.host, &token))
    }

    async fn start_consumers(&self, cell: &Cell) -> Result<Option<Consumers>, Failure> {
        if !cell.consume {
            return Ok(None);
        }
        let token = self.target.token(&self.tenant.worker).await?;
        let wire = Consume::new(cell.policy.queue(), &self.target.host, &token, CONSUMERS, false);
        let stop = Arc::new(AtomicBool::new(false));
        let mut load = self.load(CONSUMERS, self.pacing.time + Duration::from_secs(20));
        load.stop = Some(Arc::clone(&stop));
        Ok(Some(Consumers { stop, running: tokio::spawn(run_load(load, wire)) }))
    }

    /// Consumes the deliveries in the queue of a route, until it is empty or the time of a round has passed.
    pub(super) async fn consume(&self, policy: Policy, connections: usize) -> Result<Round, Failure> {
        let token = self.target.token(&self.tenant.worker).await?;
        let wire = Consume::new(policy.queue(), &self.target.host, &token, connections, true);
        let counts_before = self.target.read_counts().await?;
        let (used_before, watch) = (self.target.processor_time(), LoadWatch::start());
        let (result, _) = run_load(self.load(connections, self.pacing.time), wire).await?;
        let mut round = Round::from_load(&result);
        round.busy = watch.busy();
        round.server_micros_per_message = self.server_micros_per_message(used_before, round.messages);
        let commits = self.target.read_counts().await?.since(counts_before).commits;
        round.messages_per_flush = divide(round.accepted as f64, commits);
        Ok(round)
    }

    /// Puts `count` messages into the store, and reports the number of messages after each portion.
    pub(super) async fn fill(
        &self,
        policy: Policy,
        ids: Ids,
        count: usize,
        mut progress: impl FnMut(usize),
    ) -> Result<(), Failure> {
        let mut done = 0;
        while done < count {
            let portion = FILL_MESSAGES.min(count - done);
            let batch = FILL_BATCH.min(portion);
            let cell = Cell { policy, batch, connections: FILL_CONNECTIONS, ids, consume: false };
            let signer = self.signer(policy)?;
            let token = self.target.token(&self.tenant.producer).await?;
            let portion = portion.div_ceil(batch) * batch;
            let stock = run_blocking(move || signer.prepare(portion, ids, 50_000.0)).await??;
            let ingest = Ingest::new(stock, cell.batch, &self.target.host, &token);
            let (result, _) = run_load(self.load(cell.connections, FILL_TIME), ingest).await?;
            if result.tally.accepted != portion as u64 {
                return Err(Failure::new(format!(
                    "the node accepted {} of {portion} messages that were to fill its store: {:?}",
                    result.tally.accepted, result.tally
                )));
            }
            done += portion;
            progress(done);
        }
        Ok(())
    }
}

/// Consumers that run during a load.
struct Consumers {
    stop: Arc<AtomicBool>,
    running: tokio::task::JoinHandle<Result<(LoadResult, Consume), Failure>>,
}

impl Consumers {
    async fn end(self) -> Result<LoadResult, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.running.await.map_err(|error| Failure::caused_by("the consumers failed", &error))?;
        ended.map(|(result, _)| result)
    }
}

/// Runs a load on a separate thread.
pub(super) async fn run_load<W: Wire + 'static>(load: Load, mut wire: W) -> Result<(LoadResult, W), Failure> {
    let result = run_blocking(move || load::run(&load, &mut wire).map(|result| (result, wire))).await?;
    result.map_err(|error| Failure::caused_by("cannot run the load", &error))
}

/// Runs blocking work or a long computation on a thread outside the runtime.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Failure::caused_by("a thread of the bench failed", &error))
}
