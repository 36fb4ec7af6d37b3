//! `snavio bench`: what a node does per second, what it costs, and how that compares with its peers.

mod clock;
mod consume;
mod http;
mod latency;
mod load;
mod machine;
mod messages;
mod node;
mod null_store;
mod process;
mod report;
mod round;
mod scenario;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use snavio_server::Node;
use snavio_server::config::{Config, Sources};

use self::machine::Machine;
use self::messages::Ids;
use self::node::{Keeps, Policy};
use self::report::Report;
use self::round::Rounds;
use self::scenario::{Cell, Driver, Pacing};
use super::Failure;
use crate::Ended;
use crate::output::Output;

/// Measure a node: throughput, latency, messages per flush and processor time.
///
/// Example: snavio bench --routes strict --batch 1 --connections 64 --rounds 5
#[derive(Args)]
pub(crate) struct Bench {
    /// Claim policies of the routes to send to.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["none", "strict"])]
    routes: Vec<Policy>,
    /// Messages per request.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 100])]
    batch: Vec<usize>,
    /// Requests in flight, each on a connection of its own.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64, 512])]
    connections: Vec<usize>,
    /// Seconds of each round.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Rounds of each figure.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Use random ids (UUIDv4) instead of time-ordered ones (UUIDv7).
    #[arg(long)]
    random_ids: bool,
    /// Bytes of each payload.
    #[arg(long, default_value_t = 400)]
    payload_bytes: usize,
    /// Messages of one round at most: a round ends when they are used up.
    #[arg(long, default_value_t = 2_000_000)]
    messages: usize,
    /// Run a node without a store (used by the bench itself).
    #[arg(long, hide = true)]
    serve_without_store: bool,
    #[arg(long, hide = true)]
    listen: Option<String>,
    #[arg(long, hide = true)]
    data: Option<String>,
}

impl Bench {
    pub(crate) async fn run(self, output: Output) -> Ended {
        if self.serve_without_store {
            return self.serve().await;
        }
        tokio::spawn(end_when_told());
        let report = self.measure().await?;
        report.print(output)
    }

    async fn measure(&self) -> Result<Report, Failure> {
        let machine = Machine::look(&std::env::temp_dir())?;
        let mut cells = Vec::new();
        for cell in self.cells() {
            let mut driver = Driver::start(Keeps::Everything, self.pacing()).await?;
            let mut rounds = Vec::new();
            for _ in 0..self.rounds {
                rounds.push(driver.round(&cell).await?);
            }
            cells.push(Rounds::of(cell.name(), String::new(), rounds));
        }
        Ok(Report { machine, cells })
    }

    fn cells(&self) -> Vec<Cell> {
        let ids = if self.random_ids { Ids::Random } else { Ids::Ordered };
        let mut cells = Vec::new();
        for policy in &self.routes {
            for batch in &self.batch {
                for connections in &self.connections {
                    let (policy, batch, connections) = (*policy, *batch, *connections);
                    cells.push(Cell { policy, batch, connections, ids, consume: false });
                }
            }
        }
        cells
    }

    fn pacing(&self) -> Pacing {
        Pacing {
            time: Duration::from_secs_f64(self.seconds),
            payload_bytes: self.payload_bytes,
            messages_max: self.messages,
        }
    }

    /// The same server over a store that keeps nothing.
    async fn serve(&self) -> Ended {
        let flags = [("server.listen", &self.listen), ("store.url", &None)];
        let mut flags: Vec<(String, String)> = flags
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)))
            .collect();
        flags.extend(self.data.iter().map(|folder| ("store.url".to_owned(), format!("embedded:{folder}"))));
        flags.push(("store.relaxed".to_owned(), "true".to_owned()));
        let config = Config::load(&Sources { file: None, environment: std::env::vars().collect(), flags })?;
        let node = Node::start_over(Arc::new(null_store::NullStore::default()), &config, true).await?;
        super::serve::say(&format!("snavio without a store is serving http://{}\n", node.address()));
        super::serve::wait_for_stop().await?;
        node.stop().await;
        Ok(())
    }
}

/// A bench that is told to end takes its servers with it.
async fn end_when_told() {
    if super::serve::wait_for_stop().await.is_ok() {
        process::end_all();
        std::process::exit(130);
    }
}
