//! `snavio bench`: measures the throughput, latency and cost of a node, and compares it with other systems.

mod clock;
mod consume;
mod contest;
mod database;
mod events;
mod fairness;
mod fleet;
mod http;
mod install;
mod latency;
mod ledger;
mod load;
mod machine;
mod memory;
mod messages;
mod node;
mod null_store;
mod onboarding;
mod peers;
mod pgbench;
mod plan;
mod process;
mod push;
mod registry;
mod report;
mod round;
mod scenario;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use snavio_sdk::Api;
use snavio_server::Node;
use snavio_server::config::{Config, Sources};

use self::messages::Ids;
use self::node::Policy;
use self::peers::Peer;
use self::plan::Plan;
use self::report::Style;
use self::scenario::{Cell, Pacing};
use super::Failure;
use crate::CommandResult;
use crate::output::Output;

/// The most messages of a round: a bound on the memory of the bench and on the time for signing.
const MESSAGES_MAX: usize = 4_000_000;
/// The longest round. The messages are signed before it, and it must end while the signatures are valid.
const SECONDS_MAX: f64 = 20.0;

/// Measure a node: throughput, latency, messages per flush and processor time.
///
/// The command starts a node on a temporary store, in another process, and loads it over the loopback
/// interface. Without a part it measures ingest for each combination of --routes, --batch and --connections.
/// The options below that begin with "Part" select parts.
#[derive(Args)]
#[command(after_help = "Example: snavio bench --quick
Example: snavio bench --routes strict --batch 1 --connections 64 --rounds 5
Example: snavio bench --fleet 1,4
Example: snavio bench --against redis,postgres --markdown")]
pub(crate) struct Bench {
    /// The claim policies of the routes to send to [default: none,strict].
    #[arg(long, value_enum, value_delimiter = ',')]
    routes: Option<Vec<Policy>>,
    /// The number of messages in a request [default: 1,10,100].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=500))]
    batch: Option<Vec<u16>>,
    /// The number of requests in flight, each on its own connection [default: 1,64,512].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: Option<Vec<u16>>,
    /// The length of a round in seconds, 0.05 to 20 [default: 5].
    #[arg(long)]
    seconds: Option<f64>,
    /// The number of rounds for each figure; several contestants alternate [default: 5].
    #[arg(long)]
    rounds: Option<usize>,
    /// Use random ids (UUIDv4) instead of time-ordered ones (UUIDv7).
    #[arg(long)]
    random_ids: bool,
    /// Measure time-ordered and random ids.
    #[arg(long, conflicts_with = "random_ids")]
    both_ids: bool,
    /// The size of a payload in bytes.
    #[arg(long, default_value_t = 400)]
    payload_bytes: usize,
    /// The maximum number of messages in a round: the round ends when they are used up.
    #[arg(long, default_value_t = MESSAGES_MAX)]
    messages: usize,
    /// The number of strict claims to put into the store first.
    #[arg(long, default_value_t = 0)]
    preload: usize,
    /// Receive and acknowledge deliveries during the load.
    #[arg(long)]
    consume: bool,
    /// Part: receive and acknowledge without other load, with 1, 4, 16 and 64 consumers.
    #[arg(long)]
    consume_alone: bool,
    /// Part: compare with the same server without a store [default: one by one, 64 in flight].
    #[arg(long)]
    without_store: bool,
    /// Part: compare with other systems; the bench installs them if needed and starts them on free ports.
    #[arg(long, value_enum, value_delimiter = ',')]
    against: Vec<Peer>,
    /// Part: compare fleets of these sizes over one PostgreSQL with bare inserts into it by pgbench.
    ///
    /// The bench installs PostgreSQL if needed and starts it on a free port. By default it sends to a strict
    /// route, one by one and in batches of 100, with 64 requests in flight over all nodes.
    #[arg(long, value_name = "NODES", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=16))]
    fleet: Vec<u16>,
    /// Part: measure the latency of a calm tenant while another tenant floods the node.
    #[arg(long)]
    fairness: bool,
    /// Part: measure the memory of the server under full load for this many seconds.
    #[arg(long, value_name = "SECONDS")]
    memory: Option<u64>,
    /// Part: measure the memory of the server with this many idle connections.
    #[arg(long, value_name = "COUNT")]
    idle_connections: Option<usize>,
    /// Part, runs alone: measure a registry with this many grants.
    ///
    /// It measures the size of a snapshot, cold starts with and without it, the cost of a refresh, and the
    /// cost of commands compared with a small registry.
    #[arg(long, value_name = "GRANTS")]
    registry: Option<usize>,
    /// Part, runs alone: measure the time from a grant to the delivery of its first command, on one and on
    /// two nodes.
    #[arg(long)]
    onboarding: bool,
    /// Part, runs alone: measure a ledger route on both engines, with --preload claims in the store.
    ///
    /// It measures new messages, duplicates and conflicts a second, messages through an HTTP processor and
    /// duplicates of these, and the growth of the store.
    #[arg(long)]
    ledger: bool,
    /// Measure only this engine with --ledger.
    #[arg(long, value_enum, requires = "ledger")]
    engine: Option<ledger::Engine>,
    /// Part, runs alone: measure events with 1, 3 and 10 subscriptions and in each ordering mode, on both
    /// engines.
    #[arg(long)]
    events: bool,
    /// Part, runs alone: measure HTTP push to 50 receivers.
    ///
    /// It measures pushes a second, and the latency of 49 receivers while one is dead, compared with all
    /// alive.
    #[arg(long)]
    push: bool,
    /// Measure ingest with both kinds of ids, --consume-alone, --without-store, --against all and --fairness.
    ///
    /// It takes half an hour. Add --memory, --idle-connections and --fleet to include these. The parts that
    /// run alone are not included.
    #[arg(long)]
    full: bool,
    /// Run most parts briefly, to check that they work; the figures mean little.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Print the tables as Markdown.
    #[arg(long)]
    markdown: bool,
    /// The address of a running node to load instead of a new one.
    #[arg(long, help_heading = "Connection")]
    url: Option<String>,
    /// The operator's token for --url; without it, the command reads the token file.
    #[arg(long, help_heading = "Connection", env = "SNAVIO_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The file with the operator's token.
    #[arg(long, help_heading = "Connection", default_value = "./snavio-data/operator.token")]
    token_file: PathBuf,
    /// The process id of the node at --url, if it runs on this machine, to measure its processor time and
    /// memory.
    #[arg(long, help_heading = "Connection")]
    server_pid: Option<u32>,
    /// Run a node without a store. The bench itself starts it.
    #[arg(long, hide = true)]
    serve_without_store: bool,
    #[arg(long, hide = true)]
    listen: Option<String>,
    #[arg(long, hide = true)]
    data: Option<String>,
}

impl Bench {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        if self.serve_without_store {
            return self.serve().await;
        }
        tokio::spawn(end_on_signal());
        if let Some(grants) = self.registry {
            return registry::run(grants, self.rounds.unwrap_or(3).max(1), self.pacing()?, output).await;
        }
        if self.onboarding {
            return onboarding::run(self.rounds.unwrap_or(20).max(1), output).await;
        }
        if self.push {
            return push::run(self.rounds.unwrap_or(3).max(1), self.pacing()?, output).await;
        }
        if self.ledger {
            let options = ledger::Options { preload: self.preload, ids: self.ids(), engine: self.engine };
            return ledger::run(&options, self.rounds.unwrap_or(3).max(1), self.pacing()?, output).await;
        }
        if self.events {
            return events::run(self.rounds.unwrap_or(3).max(1), self.pacing()?, output).await;
        }
        let plan = self.plan()?;
        let report = plan.run().await?;
        report.print(match (output, self.markdown) {
            (Output::Json, _) => Style::Json,
            (Output::Table, true) => Style::Markdown,
            (Output::Table, false) => Style::Text,
        })
    }

    fn plan(&self) -> Result<Plan, Failure> {
        let (all, quick) = (self.full, self.quick);
        let against = if all && self.against.is_empty() { Peer::ALL.to_vec() } else { self.against.clone() };
        let without_store = self.without_store || all || quick;
        let consume_alone = self.consume_alone || all || quick;
        let fairness = self.fairness || all || quick;
        let parts =
            without_store || consume_alone || fairness || !against.is_empty() || !self.fleet.is_empty();
        let parts = parts || self.memory.is_some() || self.idle_connections.is_some();
        let ingest = !parts || all || quick;
        Ok(Plan {
            command: command_line(std::env::args()),
            node: self.node()?,
            pacing: self.pacing()?,
            rounds: self.rounds.unwrap_or(if quick { 1 } else { 5 }).max(1),
            preload: self.preload,
            ids: self.ids(),
            ingest: if ingest { self.ingest_cells() } else { Vec::new() },
            consume: match (consume_alone, quick) {
                (false, _) => Vec::new(),
                (true, true) => vec![4],
                (true, false) => vec![1, 4, 16, 64],
            },
            consume_messages: self.messages.min(if quick { 10_000 } else { 200_000 }),
            without_store: if without_store {
                self.cells(&[Policy::Strict], &[1], &[64])
            } else {
                Vec::new()
            },
            against,
            fleet: self.fleet.iter().map(|nodes| usize::from(*nodes)).collect(),
            fleet_cells: self.cells(&[Policy::Strict], &[1, 100], &[64]),
            fairness,
            memory: self.memory.map(Duration::from_secs),
            idle_connections: self.idle_connections,
        })
    }

    fn ingest_cells(&self) -> Vec<Cell> {
        let policies = [Policy::None, Policy::Strict];
        if self.quick {
            self.cells(&policies, &[1, 10], &[1, 16])
        } else {
            self.cells(&policies, &[1, 10, 100], &[1, 64, 512])
        }
    }

    /// Every combination of the policies, batches and connections of the options. Each of these arguments is
    /// used if its option was not given.
    fn cells(&self, policies: &[Policy], batches: &[u16], connections: &[u16]) -> Vec<Cell> {
        let policies = self.routes.as_deref().unwrap_or(policies);
        let batches = self.batch.as_deref().unwrap_or(batches);
        let connections = self.connections.as_deref().unwrap_or(connections);
        let mut cells = Vec::new();
        for ids in self.ids() {
            for policy in policies {
                for batch in batches {
                    cells.extend(connections.iter().map(|connections| Cell {
                        policy: *policy,
                        batch: usize::from(*batch),
                        connections: usize::from(*connections),
                        ids,
                        consume: self.consume,
                    }));
                }
            }
        }
        cells
    }

    fn ids(&self) -> Vec<Ids> {
        match (self.both_ids || self.full, self.random_ids) {
            (true, _) => vec![Ids::Ordered, Ids::Random],
            (false, true) => vec![Ids::Random],
            (false, false) => vec![Ids::Ordered],
        }
    }

    fn pacing(&self) -> Result<Pacing, Failure> {
        let seconds = self.seconds.unwrap_or(if self.quick { 0.5 } else { 5.0 });
        if !(0.05..=SECONDS_MAX).contains(&seconds) {
            return Err(Failure::new(format!("--seconds is {seconds}; it must be 0.05 to {SECONDS_MAX}")));
        }
        let messages_max = self.messages.clamp(1, MESSAGES_MAX);
        Ok(Pacing { time: Duration::from_secs_f64(seconds), payload_bytes: self.payload_bytes, messages_max })
    }

    fn node(&self) -> Result<Option<(Api, Option<u32>)>, Failure> {
        let Some(url) = &self.url else { return Ok(None) };
        let token = match &self.token {
            Some(token) => token.clone(),
            None => std::fs::read_to_string(&self.token_file).map_err(|error| {
                Failure::caused_by(
                    format!(
                        "no operator token: give --token, or name its file with --token-file (tried {})",
                        self.token_file.display()
                    ),
                    &error,
                )
            })?,
        };
        Ok(Some((Api::new(url, None)?.with_token(token.trim()), self.server_pid)))
    }

    /// Runs the server over a store that keeps nothing.
    async fn serve(&self) -> CommandResult {
        let flags = [
            ("server.listen", self.listen.clone()),
            ("store.url", self.data.as_ref().map(|folder| format!("embedded:{folder}"))),
            ("store.relaxed", Some("true".to_owned())),
        ];
        let flags = flags.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        let config = Config::load(&Sources { file: None, environment: std::env::vars().collect(), flags })?;
        let node = Node::start_over(Arc::new(null_store::NullStore::default()), &config, true).await?;
        let stop = super::serve::StopSignals::listen()?;
        super::serve::print_if_read(&format!(
            "snavio without a store is serving http://{}\n",
            node.address()
        ));
        stop.wait().await;
        node.stop().await;
        Ok(())
    }
}

/// The command line for the report. It hides the value of --token.
fn command_line(arguments: impl Iterator<Item = String>) -> String {
    let mut secret_next = false;
    let shown =
        arguments.map(|argument| match (std::mem::take(&mut secret_next), argument.split_once('=')) {
            (true, _) => "…".to_owned(),
            (false, Some(("--token", _))) => "--token=…".to_owned(),
            _ => {
                secret_next = argument == "--token";
                argument
            }
        });
    shown.collect::<Vec<_>>().join(" ")
}

/// Ends the servers and the bench when a signal stops the bench.
async fn end_on_signal() {
    if let Ok(stop) = super::serve::StopSignals::listen() {
        stop.wait().await;
        process::end_all();
        std::process::exit(130);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_hides_the_token() {
        for (given, shown) in [
            ("snavio bench --token secret --quick", "snavio bench --token … --quick"),
            ("snavio bench --token=secret --quick", "snavio bench --token=… --quick"),
            ("snavio bench --token-file x", "snavio bench --token-file x"),
        ] {
            assert_eq!(command_line(given.split(' ').map(str::to_owned)), shown);
        }
    }
}
