//! The plan of a bench: its parts, and the code that runs them.

use std::time::Duration;

use super::contest::{Comparison, Contestant, NodeContestant, Ratio, alternate};
use super::machine::Machine;
use super::messages::Ids;
use super::node::{Policy, StoreMode, Target};
use super::peers::Peer;
use super::peers::nats::{JetStream, Sync};
use super::peers::postgres::Postgres;
use super::peers::redis::{Flush, Redis};
use super::report::{Report, Settings};
use super::round::{Round, Rounds};
use super::scenario::{Cell, Driver, Pacing};
use super::{fairness, fleet, memory};
use crate::cmd::Failure;
use crate::output::print_error;

/// Requests in flight in the comparisons with single messages.
const IN_FLIGHT: usize = 64;
/// Messages in a request in the comparison with batches.
const BATCH: usize = 100;

/// The parts of a bench and their settings.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) command: String,
    /// A running node to load, with its process id if known; without it the bench starts a node.
    pub(super) node: Option<(snavio_sdk::Api, Option<u32>)>,
    pub(super) pacing: Pacing,
    pub(super) rounds: usize,
    /// The number of claims to put into the store first.
    pub(super) preload: usize,
    pub(super) ids: Vec<Ids>,
    /// The cells of ingest without a comparison.
    pub(super) ingest: Vec<Cell>,
    /// The numbers of connections that consume without other load.
    pub(super) consume: Vec<usize>,
    /// Messages to consume in each round.
    pub(super) consume_messages: usize,
    /// The cells to compare with the same server without a store.
    pub(super) without_store: Vec<Cell>,
    pub(super) against: Vec<Peer>,
    /// The sizes of fleets over one PostgreSQL.
    pub(super) fleet: Vec<usize>,
    /// The cells to measure each fleet in.
    pub(super) fleet_cells: Vec<Cell>,
    pub(super) fairness: bool,
    pub(super) memory: Option<Duration>,
    pub(super) idle_connections: Option<usize>,
}

impl Plan {
    /// Runs all parts of the plan.
    pub(super) async fn run(&self) -> Result<Report, Failure> {
        // This must come before the start of any server: servers inherit the limit.
        let connections = self.idle_connections.unwrap_or(0).max(1000);
        memory::allow_connections(connections)?;
        let machine = Machine::inspect(&std::env::temp_dir())?;
        let mut comparisons = Vec::new();
        let ingest = self.measure_ingest().await?;
        let consume = self.measure_consume().await?;
        for cell in &self.without_store {
            comparisons.push(self.compare_without_store(*cell).await?);
        }
        for (ids, peer) in self.ids.iter().flat_map(|ids| self.against.iter().map(move |peer| (*ids, *peer)))
        {
            comparisons.extend(self.compare_with(peer, ids).await?);
        }
        if !self.fleet.is_empty() {
            let (sizes, cells) = (&self.fleet, &self.fleet_cells);
            comparisons.push(fleet::measure(sizes, cells, self.pacing, self.rounds, print_progress).await?);
        }
        let fairness = match self.fairness {
            true => Some(fairness::measure(&self.node().await?, self.rounds, self.pacing.time).await?),
            false => None,
        };
        let memory = match self.memory {
            Some(time) => Some(memory::measure_over_time(&mut self.node().await?, time).await?),
            None => None,
        };
        let idle_connections = match self.idle_connections {
            Some(count) => Some(memory::measure_idle_connections(&self.node().await?, count).await?),
            None => None,
        };
        let settings = self.settings();
        Ok(Report { machine, settings, ingest, consume, comparisons, fairness, memory, idle_connections })
    }

    fn settings(&self) -> Settings {
        Settings {
            command: self.command.clone(),
            version: env!("CARGO_PKG_VERSION"),
            optimised: !cfg!(debug_assertions),
            seconds: self.pacing.time.as_secs_f64(),
            rounds: self.rounds,
            payload_bytes: self.pacing.payload_bytes,
            preloaded: self.preload,
        }
    }

    /// A new node with an empty store, or the running node.
    async fn node(&self) -> Result<Driver, Failure> {
        match &self.node {
            Some((operator, pid)) => {
                Driver::over(Target::running(operator.clone(), *pid)?, self.pacing).await
            }
            None => Driver::start(StoreMode::Embedded, self.pacing).await,
        }
    }

    /// A node whose store contains `preload` claims.
    async fn filled_node(&self, ids: Ids) -> Result<Driver, Failure> {
        let driver = self.node().await?;
        let progress =
            |done| print_error(format_args!("filling the store: {done} of {} claims", self.preload));
        driver.fill(Policy::Strict, ids, self.preload, progress).await?;
        Ok(driver)
    }

    /// Measures each cell on a new node. Cells with the same ids share a node if it has to be filled first.
    async fn measure_ingest(&self) -> Result<Vec<Rounds>, Failure> {
        let mut measured = Vec::new();
        let mut filled: Option<(Ids, Driver)> = None;
        for cell in &self.ingest {
            let reused = filled.take().filter(|(ids, _)| self.preload > 0 && *ids == cell.ids);
            let driver = match reused {
                Some((_, driver)) => driver,
                None => self.filled_node(cell.ids).await?,
            };
            let mut ours = NodeContestant { driver, cell: *cell, prefix: "", how: String::new() };
            measured.extend(alternate(&mut [&mut ours], self.rounds, print_progress).await?);
            filled = Some((cell.ids, ours.driver));
        }
        Ok(measured)
    }

    async fn measure_consume(&self) -> Result<Vec<Rounds>, Failure> {
        let mut measured = Vec::new();
        for connections in &self.consume {
            let driver = self.node().await?;
            let what = format!("{connections} consumers");
            let mut rounds = Vec::new();
            for _ in 0..self.rounds {
                driver.fill(Policy::None, Ids::Ordered, self.consume_messages, |_| {}).await?;
                let round = driver.consume(Policy::None, *connections).await?;
                print_progress(&what, &round);
                rounds.push(round);
            }
            measured.push(Rounds::of(what, String::new(), rounds));
        }
        Ok(measured)
    }

    async fn ours(&self, cell: Cell) -> Result<NodeContestant, Failure> {
        let driver = self.filled_node(cell.ids).await?;
        let how = "HTTP, bearer token, HMAC, grant, claim, queue; SQLite WAL, synchronous FULL, flushed before \
                   the answer; driven by our client";
        Ok(NodeContestant { driver, cell, prefix: "Snavio, ", how: how.to_owned() })
    }

    async fn compare_without_store(&self, cell: Cell) -> Result<Comparison, Failure> {
        let mut ours = self.ours(cell).await?;
        let driver = Driver::start(StoreMode::Null, self.pacing).await?;
        let how = "the same server over a store that keeps nothing; driven by our client".to_owned();
        let mut bare = NodeContestant { driver, cell, prefix: "without a store, ", how };
        let contestants = alternate(&mut [&mut ours, &mut bare], self.rounds, print_progress).await?;
        let wanted = (cell.batch == 1 && cell.connections == IN_FLIGHT).then_some(0.7);
        let ratios = vec![Ratio::of(&contestants[0], &contestants[1], wanted)];
        Ok(Comparison { title: "With and without a store".to_owned(), contestants, ratios })
    }

    fn one_by_one(ids: Ids) -> Cell {
        Cell { policy: Policy::Strict, batch: 1, connections: IN_FLIGHT, ids, consume: false }
    }

    async fn compare_with(&self, peer: Peer, ids: Ids) -> Result<Vec<Comparison>, Failure> {
        let (bytes, time) = (self.pacing.payload_bytes, self.pacing.time);
        let one_by_one = Self::one_by_one(ids);
        match peer {
            Peer::Redis => {
                let mut always = Redis::start(Flush::Always, ids, bytes, IN_FLIGHT, time).await?;
                let mut relaxed = Redis::start(Flush::EverySecond, ids, bytes, IN_FLIGHT, time).await?;
                let mut ours = self.ours(one_by_one).await?;
                let contest: &mut [&mut dyn Contestant] = &mut [&mut ours, &mut always, &mut relaxed];
                Ok(vec![self.compare("Against Redis", contest, &[Some(1.0), None]).await?])
            }
            Peer::Nats => {
                let mut always = JetStream::start(Sync::Always, ids, bytes, IN_FLIGHT, time).await?;
                let mut relaxed = JetStream::start(Sync::Default, ids, bytes, IN_FLIGHT, time).await?;
                let mut ours = self.ours(one_by_one).await?;
                let contest: &mut [&mut dyn Contestant] = &mut [&mut ours, &mut always, &mut relaxed];
                Ok(vec![self.compare("Against NATS JetStream", contest, &[Some(5.0), None]).await?])
            }
            Peer::Postgres => {
                let single = self.compare_with_single_inserts(ids).await?;
                Ok(vec![single, self.compare_with_batched_inserts(ids).await?])
            }
        }
    }

    async fn compare_with_single_inserts(&self, ids: Ids) -> Result<Comparison, Failure> {
        let (bytes, time) = (self.pacing.payload_bytes, self.pacing.time);
        let mut theirs = Postgres::start(ids, bytes, 1, IN_FLIGHT, time).await?;
        let mut ours = self.ours(Self::one_by_one(ids)).await?;
        let contest: &mut [&mut dyn Contestant] = &mut [&mut ours, &mut theirs];
        self.compare("Against PostgreSQL, one by one", contest, &[Some(2.0)]).await
    }

    /// PostgreSQL gets one connection; Snavio has the same number of requests in flight as in the other
    /// comparisons.
    async fn compare_with_batched_inserts(&self, ids: Ids) -> Result<Comparison, Failure> {
        let (bytes, time) = (self.pacing.payload_bytes, self.pacing.time);
        let mut theirs = Postgres::start(ids, bytes, BATCH, 1, time).await?;
        let mut ours = self.ours(Cell { batch: BATCH, ..Self::one_by_one(ids) }).await?;
        let contest: &mut [&mut dyn Contestant] = &mut [&mut ours, &mut theirs];
        self.compare("Against PostgreSQL, in batches", contest, &[Some(1.0)]).await
    }

    /// Compares the first contestant, which is Snavio, with each of the others.
    async fn compare(
        &self,
        title: &str,
        contest: &mut [&mut dyn Contestant],
        wanted: &[Option<f64>],
    ) -> Result<Comparison, Failure> {
        let contestants = alternate(contest, self.rounds, print_progress).await?;
        let ratios = contestants[1..].iter().zip(wanted);
        let ratios = ratios.map(|(theirs, wanted)| Ratio::of(&contestants[0], theirs, *wanted)).collect();
        Ok(Comparison { title: title.to_owned(), contestants, ratios })
    }
}

/// Prints a round to standard error, apart from the report.
fn print_progress(what: &str, round: &Round) {
    print_error(format_args!(
        "{what}: {:.0} a second, p99 {:.2} ms, others kept the machine {:.0} % busy",
        round.per_second,
        round.latency_micros.p99 as f64 / 1000.0,
        round.busy.others_percent
    ));
}
