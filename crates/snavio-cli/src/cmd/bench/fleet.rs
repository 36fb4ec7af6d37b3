//! The fleet part: nodes over one PostgreSQL, compared with bare inserts into the same server.

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
use super::scenario::{Cell, Driver, Pacing, run_blocking};
use crate::cmd::Failure;

/// Settings in addition to the usual ones: a count of statements, and enough memory and connections for
/// fleets.
const SETTINGS: [&str; 3] =
    ["shared_preload_libraries=pg_stat_statements", "shared_buffers=512MB", "max_connections=800"];
/// The database of the bare inserts.
const BARE: &str = "bare";

/// The database of a fleet, on its server.
pub(super) struct FleetDatabase {
    server: Arc<Database>,
    database: String,
}

/// The totals of a database so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct DatabaseTotals {
    /// Processor time of all processes of the server.
    pub(super) processor: Duration,
    /// Statements in this database alone, including `BEGIN` and `COMMIT`.
    pub(super) calls: u64,
}

impl FleetDatabase {
    /// Reads the totals over a connection to another database, so that the query itself is not counted.
    pub(super) async fn read_totals(database: Option<&Self>) -> Result<Option<DatabaseTotals>, Failure> {
        let Some(Self { server, database }) = database else { return Ok(None) };
        let calls = format!(
            "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements \
             WHERE dbid = (SELECT oid FROM pg_database WHERE datname = '{database}')"
        );
        let calls = server.query("postgres", calls).await?.parse()?;
        Ok(Some(DatabaseTotals { processor: server.processor_time(), calls }))
    }
}

/// Measures fleets of these sizes in these cells, and bare inserts one by one and in batches of the same
/// size.
pub(super) async fn measure(
    sizes: &[usize],
    cells: &[Cell],
    pacing: Pacing,
    rounds: usize,
    progress: fn(&str, &Round),
) -> Result<Comparison, Failure> {
    let server = Arc::new(Database::start(&SETTINGS).await?);
    server.query("postgres", "CREATE EXTENSION pg_stat_statements").await?;
    server.make(BARE).await?;
    server.query(BARE, TABLE).await?;
    let mut fleets = Vec::new();
    for size in sizes {
        let driver = Arc::new(Mutex::new(start(*size, &server, pacing).await?));
        for cell in cells {
            fleets.push(Fleet::new(*size, *cell, &driver, server.settings()).await?);
        }
    }
    let inserts: BTreeSet<_> =
        fleets.iter().flat_map(|fleet| fleet.compared_inserts.iter().copied()).collect();
    let bare = |(batch, clients): (usize, usize)| {
        let inserts = Inserts { payload: payload(pacing.payload_bytes), batch, clients };
        BareInserts { server: Arc::clone(&server), inserts, time: pacing.time }
    };
    let mut bares: Vec<_> = inserts.into_iter().map(bare).collect();
    let mut contestants: Vec<&mut dyn Contestant> = Vec::new();
    contestants.extend(fleets.iter_mut().map(|fleet| fleet as &mut dyn Contestant));
    contestants.extend(bares.iter_mut().map(|bare| bare as &mut dyn Contestant));
    let contestants = alternate(&mut contestants, rounds, progress).await?;
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
    let target = run_blocking(move || Target::start_fleet(size, &url)).await??;
    let database = FleetDatabase { server: Arc::clone(server), database };
    Ok(Driver::over(target, pacing).await?.with_database(database))
}

/// The ratios of each fleet to the inserts it is compared with, and to the first fleet in the same cell.
fn ratios(fleets: &[Fleet], bares: &[BareInserts], contestants: &[Rounds]) -> Vec<Ratio> {
    let (ours, theirs) = contestants.split_at(fleets.len());
    let mut ratios = Vec::new();
    for (index, (fleet, rounds)) in fleets.iter().zip(ours).enumerate() {
        let compared = bares
            .iter()
            .zip(theirs)
            .filter(|(bare, _)| fleet.compared_inserts.contains(&(bare.inserts.batch, bare.inserts.clients)));
        ratios.extend(compared.map(|(_, theirs)| Ratio::of(rounds, theirs, None)));
        let first = fleets[..index].iter().position(|earlier| earlier.cell == fleet.cell);
        ratios.extend(first.map(|first| Ratio::of(rounds, &ours[first], None)));
    }
    ratios
}

/// A fleet in one cell. The cells of a fleet share its driver.
struct Fleet {
    size: usize,
    cell: Cell,
    driver: Arc<Mutex<Driver>>,
    settings: String,
    /// Rows in a statement and number of clients of the inserts to compare with.
    compared_inserts: BTreeSet<(usize, usize)>,
}

impl Fleet {
    /// A cell with single messages runs a round first. It is also compared with inserts in batches of as many
    /// rows as its commits have messages.
    async fn new(
        size: usize,
        cell: Cell,
        driver: &Arc<Mutex<Driver>>,
        settings: String,
    ) -> Result<Self, Failure> {
        let compared_inserts = BTreeSet::from([(cell.batch, cell.connections)]);
        let mut fleet = Self { size, cell, driver: Arc::clone(driver), settings, compared_inserts };
        if cell.batch == 1 {
            let average = fleet.round().await?.messages_per_flush.unwrap_or(1.0);
            fleet.compared_inserts.insert(((average.round() as usize).max(1), cell.connections));
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

/// Inserts into the server without Snavio.
struct BareInserts {
    server: Arc<Database>,
    inserts: Inserts,
    time: Duration,
}

#[async_trait]
impl Contestant for BareInserts {
    fn what(&self) -> String {
        format!("PostgreSQL, {}, {} connections", self.inserts.name(), self.inserts.clients)
    }

    fn how(&self) -> String {
        "the same server, another database: uuid primary key and a text payload, ON CONFLICT DO NOTHING; driven by pgbench -M prepared".to_owned()
    }

    /// The server of bare inserts is the database: its processor time is that of the database.
    async fn round(&mut self) -> Result<Round, Failure> {
        let mut round = self.inserts.round(&self.server, BARE, self.time).await?;
        round.database_micros_per_message = round.server_micros_per_message.take();
        Ok(round)
    }
}
