//! Fleets: nodes over one PostgreSQL, beside bare inserts into the same server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;

use super::contest::{Comparison, Contestant, Ratio, alternate};
use super::database::Database;
use super::messages::payload;
use super::node::Target;
use super::pgbench::{Inserts, TABLE};
use super::round::{Round, Rounds};
use super::scenario::{Cell, Driver, Pacing, apart};
use crate::cmd::Failure;

/// Settings of the server besides the usual ones: what counts statements, and room for fleets and their tables.
const SETTINGS: [&str; 3] =
    ["shared_preload_libraries=pg_stat_statements", "shared_buffers=512MB", "max_connections=800"];
/// The database of the bare inserts.
const BARE: &str = "bare";

/// A database as its server sees it.
pub(super) struct Engine {
    server: Arc<Database>,
    database: String,
}

/// What a database has done so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    /// Of all processes of the server.
    pub(super) processor: Duration,
    /// Statements in this database alone, `BEGIN` and `COMMIT` included.
    pub(super) calls: u64,
}

impl Engine {
    /// Looks from another database, so that looking is not counted.
    pub(super) async fn look(engine: Option<&Self>) -> Result<Option<Done>, Failure> {
        let Some(Self { server, database }) = engine else { return Ok(None) };
        let calls = format!(
            "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements \
             WHERE dbid = (SELECT oid FROM pg_database WHERE datname = '{database}')"
        );
        let calls = server.ask("postgres", calls).await?.parse()?;
        Ok(Some(Done { processor: server.processor_time(), calls }))
    }
}

/// Measures fleets of these sizes in these cells, and bare inserts one by one and in batches as large as theirs.
pub(super) async fn measure(
    sizes: &[usize],
    cells: &[Cell],
    pacing: Pacing,
    rounds: usize,
    tell: fn(&str, &Round),
) -> Result<Comparison, Failure> {
    let server = Arc::new(Database::start(&SETTINGS).await?);
    server.ask("postgres", "CREATE EXTENSION pg_stat_statements").await?;
    server.make(BARE).await?;
    server.ask(BARE, TABLE).await?;
    let mut fleets = Vec::new();
    for size in sizes {
        let driver = Arc::new(Mutex::new(start(*size, &server, pacing).await?));
        for cell in cells {
            fleets.push(Fleet::new(*size, *cell, &driver, server.settings()).await?);
        }
    }
    let inserts: BTreeSet<_> = fleets.iter().flat_map(|fleet| fleet.beside.iter().copied()).collect();
    let bare = |(batch, clients): (usize, usize)| {
        let inserts = Inserts { payload: payload(pacing.payload_bytes), batch, clients };
        Bare { server: Arc::clone(&server), inserts, time: pacing.time }
    };
    let mut bares: Vec<_> = inserts.into_iter().map(bare).collect();
    let mut turns: Vec<&mut dyn Contestant> = Vec::new();
    turns.extend(fleets.iter_mut().map(|it| it as &mut dyn Contestant));
    turns.extend(bares.iter_mut().map(|it| it as &mut dyn Contestant));
    let contestants = alternate(&mut turns, rounds, tell).await?;
    let ratios = ratios(&fleets, &bares, &contestants);
    Ok(Comparison {
        title: "Nodes over PostgreSQL, and bare inserts into it".to_owned(),
        contestants,
        ratios,
    })
}

async fn start(size: usize, server: &Arc<Database>, pacing: Pacing) -> Result<Driver, Failure> {
    let database = format!("fleet_of_{size}");
    server.make(&database).await?;
    let url = server.url(&database);
    let target = apart(move || Target::start_fleet(size, &url)).await??;
    let engine = Engine { server: Arc::clone(server), database };
    Ok(Driver::over(target, pacing).await?.with_engine(engine))
}

/// Each fleet to the inserts it is measured beside, and to the first fleet in the same cell.
fn ratios(fleets: &[Fleet], bares: &[Bare], contestants: &[Rounds]) -> Vec<Ratio> {
    let (ours, theirs) = contestants.split_at(fleets.len());
    let mut ratios = Vec::new();
    for (place, (fleet, rounds)) in fleets.iter().zip(ours).enumerate() {
        let beside = |bare: &Bare| fleet.beside.contains(&(bare.inserts.batch, bare.inserts.clients));
        let beside = bares.iter().zip(theirs).filter(|(bare, _)| beside(bare));
        ratios.extend(beside.map(|(_, theirs)| Ratio::of(rounds, theirs, None)));
        let first = fleets[..place].iter().position(|it| it.cell == fleet.cell);
        ratios.extend(first.map(|first| Ratio::of(rounds, &ours[first], None)));
    }
    ratios
}

/// A fleet in one cell; the driver is shared with its other cells.
struct Fleet {
    size: usize,
    cell: Cell,
    driver: Arc<Mutex<Driver>>,
    settings: String,
    /// Rows and clients of the inserts that it is measured beside.
    beside: BTreeSet<(usize, usize)>,
}

impl Fleet {
    /// One that sends one by one runs a round first, to know how many messages its commits hold.
    async fn new(
        size: usize,
        cell: Cell,
        driver: &Arc<Mutex<Driver>>,
        settings: String,
    ) -> Result<Self, Failure> {
        let beside = BTreeSet::from([(cell.batch, cell.connections)]);
        let mut fleet = Self { size, cell, driver: Arc::clone(driver), settings, beside };
        if cell.batch == 1 {
            let average = fleet.round().await?.messages_per_flush.unwrap_or(1.0);
            fleet.beside.insert(((average.round() as usize).max(1), cell.connections));
        }
        Ok(fleet)
    }
}

#[async_trait]
impl Contestant for Fleet {
    fn what(&self) -> String {
        let nodes = if self.size == 1 { "node" } else { "nodes" };
        format!("{} {nodes}, {}", self.size, self.cell.name())
    }

    fn how(&self) -> String {
        format!(
            "HTTP, bearer token, HMAC, grant, claim, queue; connections spread over the nodes; PostgreSQL with {}; driven by our client",
            self.settings
        )
    }

    async fn round(&mut self) -> Result<Round, Failure> {
        self.driver.lock().await.round(&self.cell).await
    }
}

/// Inserts with nothing before the server.
struct Bare {
    server: Arc<Database>,
    inserts: Inserts,
    time: Duration,
}

#[async_trait]
impl Contestant for Bare {
    fn what(&self) -> String {
        format!("PostgreSQL, {}, {} connections", self.inserts.name(), self.inserts.clients)
    }

    fn how(&self) -> String {
        "the same server, another database: uuid primary key and a text payload, ON CONFLICT DO NOTHING; driven by pgbench -M prepared".to_owned()
    }

    /// Its server is the database, so that is where its processor time stands.
    async fn round(&mut self) -> Result<Round, Failure> {
        let mut round = self.inserts.round(&self.server, BARE, self.time).await?;
        round.database_micros_per_message = round.server_micros_per_message.take();
        Ok(round)
    }
}
