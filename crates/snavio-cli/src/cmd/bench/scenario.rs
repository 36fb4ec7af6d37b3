//! What is measured on a node: a cell of the matrix at a time, round by round.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::consume::Consume;
use super::fleet::Engine;
use super::http::Ingest;
use super::load::{self, Load, Ran, Wire};
use super::machine::Watch;
use super::messages::{Ids, Signer};
use super::node::{Cast, Keeps, Policy, Target};
use super::round::{Round, per};
use crate::cmd::Failure;

/// Messages of the first, unmeasured stretch, which tells how many a round needs.
const WARM_UP_MESSAGES: usize = 60_000;
const WARM_UP: Duration = Duration::from_millis(700);
/// A round that goes faster than the one before it must not run out of messages at once.
const HEADROOM: f64 = 1.4;
/// Connections that consume beside a load.
const CONSUMERS: usize = 4;
/// How a store is filled: the largest batches, over a few connections, a bounded number prepared at once.
const FILL_BATCH: usize = 500;
const FILL_CONNECTIONS: usize = 4;
const FILL_MESSAGES: usize = 50_000;
/// A portion of a fill must be over while its signatures hold.
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

/// How rounds are run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pacing {
    pub(super) time: Duration,
    pub(super) payload_bytes: usize,
    /// Messages that one round may have prepared: a bound on memory and on signing time.
    pub(super) messages_max: usize,
}

/// A node, who takes part, and how quick the last rounds were.
pub(super) struct Driver {
    pub(super) target: Target,
    cast: Cast,
    pub(super) pacing: Pacing,
    /// The database below the nodes, if it is one of its own.
    engine: Option<Engine>,
    paces: Vec<(Cell, f64)>,
}

impl Driver {
    pub(super) async fn start(keeps: Keeps, pacing: Pacing) -> Result<Self, Failure> {
        Self::over(Target::start(keeps)?, pacing).await
    }

    pub(super) async fn over(target: Target, pacing: Pacing) -> Result<Self, Failure> {
        let cast = target.cast().await?;
        Ok(Self { target, cast, pacing, engine: None, paces: Vec::new() })
    }

    /// Tells what the database did as well.
    pub(super) fn with_engine(self, engine: Engine) -> Self {
        Self { engine: Some(engine), ..self }
    }

    pub(super) fn cast(&self) -> &Cast {
        &self.cast
    }

    fn signer(&self, policy: Policy) -> Result<Signer, Failure> {
        self.signer_of(&self.cast, policy)
    }

    /// Signs for another tenant's services.
    pub(super) fn signer_of(&self, cast: &Cast, policy: Policy) -> Result<Signer, Failure> {
        let target = cast.worker.source.as_str();
        Signer::new(&cast.producer, target, policy.command(), self.pacing.payload_bytes)
    }

    /// Measures one round.
    pub(super) async fn round(&mut self, cell: &Cell) -> Result<Round, Failure> {
        let per_second = match self.paces.iter().find(|(known, _)| known == cell) {
            Some((_, per_second)) => *per_second,
            None => self.warm_up(cell).await?,
        };
        let time = self.pacing.time;
        let wanted = per_second * HEADROOM * time.as_secs_f64() + (cell.connections * cell.batch) as f64;
        let ingest = self.ingest(cell, wanted as usize, per_second).await?;
        let before = self.target.figures().await?;
        let engine = Engine::look(self.engine.as_ref()).await?;
        let (used, watch) = (self.target.processor_time(), Watch::start());
        let consumers = self.consumers(cell).await?;
        let (ran, _) = run_apart(self.load(cell.connections, time), ingest).await?;
        let consumed = match consumers {
            Some(consumers) => Some(consumers.end().await?),
            None => None,
        };
        let mut round = Round::of(&ran);
        round.busy = watch.busy();
        let used = used.zip(self.target.processor_time()).map(|(before, after)| after.saturating_sub(before));
        round.server_micros_per_message = used.and_then(|it| per(it.as_secs_f64() * 1e6, round.messages));
        let engine = Engine::look(self.engine.as_ref()).await?.zip(engine);
        let did = self.target.figures().await?.since(before);
        round.messages_per_flush = per(did.messages as f64, did.commits);
        round.settled = Some(did.messages);
        if let Some((after, before)) = engine {
            let used = after.processor.saturating_sub(before.processor);
            round.database_micros_per_message = per(used.as_secs_f64() * 1e6, round.messages);
            round.statements_per_message = per((after.calls - before.calls) as f64, did.messages);
            round.round_trips_per_message = per(did.round_trips as f64, did.messages);
        }
        round.consumed_per_second =
            consumed.map(|consumed| consumed.tally.accepted as f64 / consumed.elapsed.as_secs_f64());
        self.learn(cell, round.messages as f64 / round.seconds);
        Ok(round)
    }

    async fn warm_up(&self, cell: &Cell) -> Result<f64, Failure> {
        let ingest = self.ingest(cell, WARM_UP_MESSAGES, 50_000.0).await?;
        let (ran, _) = run_apart(self.load(cell.connections, WARM_UP.min(self.pacing.time)), ingest).await?;
        Ok((ran.tally.answered() as f64 / ran.elapsed.as_secs_f64()).max(100.0))
    }

    fn learn(&mut self, cell: &Cell, per_second: f64) {
        match self.paces.iter_mut().find(|(known, _)| known == cell) {
            Some((_, known)) => *known = known.max(per_second),
            None => self.paces.push((*cell, per_second)),
        }
    }

    pub(super) fn load(&self, connections: usize, time: Duration) -> Load {
        Load { addresses: self.target.addresses(), connections, time, pace: None, stop: None }
    }

    async fn ingest(&self, cell: &Cell, count: usize, per_second: f64) -> Result<Ingest, Failure> {
        // Whole batches, and at least one for each connection.
        let count = count.min(self.pacing.messages_max).max(cell.batch * cell.connections);
        let count = count.div_ceil(cell.batch) * cell.batch;
        let (signer, ids) = (self.signer(cell.policy)?, cell.ids);
        let token = self.target.token(&self.cast.producer).await?;
        let stock = apart(move || signer.prepare(count, ids, per_second)).await??;
        Ok(Ingest::new(stock, cell.batch, &self.target.host, &token))
    }

    async fn consumers(&self, cell: &Cell) -> Result<Option<Consumers>, Failure> {
        if !cell.consume {
            return Ok(None);
        }
        let token = self.target.token(&self.cast.worker).await?;
        let wire = Consume::new(cell.policy.queue(), &self.target.host, &token, CONSUMERS, false);
        let stop = Arc::new(AtomicBool::new(false));
        let mut load = self.load(CONSUMERS, self.pacing.time + Duration::from_secs(20));
        load.stop = Some(Arc::clone(&stop));
        Ok(Some(Consumers { stop, running: tokio::spawn(run_apart(load, wire)) }))
    }

    /// Consumes what waits in a route's queue, until it is empty or the round's time is over.
    pub(super) async fn consume(&self, policy: Policy, connections: usize) -> Result<Round, Failure> {
        let token = self.target.token(&self.cast.worker).await?;
        let wire = Consume::new(policy.queue(), &self.target.host, &token, connections, true);
        let (before, used, watch) =
            (self.target.figures().await?, self.target.processor_time(), Watch::start());
        let (ran, _) = run_apart(self.load(connections, self.pacing.time), wire).await?;
        let mut round = Round::of(&ran);
        round.busy = watch.busy();
        let used = used.zip(self.target.processor_time()).map(|(before, after)| after.saturating_sub(before));
        round.server_micros_per_message = used.and_then(|it| per(it.as_secs_f64() * 1e6, round.messages));
        let commits = self.target.figures().await?.since(before).commits;
        round.messages_per_flush = per(round.accepted as f64, commits);
        Ok(round)
    }

    /// Puts so many messages into the store, and says how it goes.
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
            let token = self.target.token(&self.cast.producer).await?;
            let portion = portion.div_ceil(batch) * batch;
            let stock = apart(move || signer.prepare(portion, ids, 50_000.0)).await??;
            let ingest = Ingest::new(stock, cell.batch, &self.target.host, &token);
            let (ran, _) = run_apart(self.load(cell.connections, FILL_TIME), ingest).await?;
            if ran.tally.accepted != portion as u64 {
                return Err(Failure::new(format!("the store could not be filled: {:?}", ran.tally)));
            }
            done += portion;
            progress(done);
        }
        Ok(())
    }
}

struct Consumers {
    stop: Arc<AtomicBool>,
    running: tokio::task::JoinHandle<Result<(Ran, Consume), Failure>>,
}

impl Consumers {
    async fn end(self) -> Result<Ran, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.running.await.map_err(|error| Failure::of("the consumers failed", &error))?;
        ended.map(|(ran, _)| ran)
    }
}

/// Runs a load on a thread of its own.
pub(super) async fn run_apart<W: Wire + 'static>(load: Load, mut wire: W) -> Result<(Ran, W), Failure> {
    let ran = apart(move || load::run(&load, &mut wire).map(|ran| (ran, wire))).await?;
    ran.map_err(|error| Failure::of("the load could not be run", &error))
}

/// Runs something that blocks or computes away from the runtime.
pub(super) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Failure::of("a thread of the bench failed", &error))
}
