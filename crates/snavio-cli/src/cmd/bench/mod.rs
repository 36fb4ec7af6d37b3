//! `snavio bench`: what a node does per second, what it costs, and how that compares with its peers.

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
use crate::Ended;
use crate::output::Output;

/// Messages of a round at most: a bound on the bench's memory and on the time that signing takes.
const MESSAGES_MAX: usize = 4_000_000;
/// A round must be over while its signatures hold.
const SECONDS_MAX: f64 = 20.0;

/// Measure a node: throughput, latency, messages per flush, processor time; alone and against its peers.
///
/// Starts a node on a temporary store in a process of its own, and loads it over the loopback. Without a part
/// (--without-store, --against, --fleet, --consume-alone, --fairness, --memory, --idle-connections, --registry, --onboarding, --ledger, --events, --push) it measures
/// ingest for every combination of --routes, --batch and --connections.
///
/// Example: snavio bench --routes strict --batch 1 --connections 64 --rounds 5
///
/// Example: snavio bench --fleet 1,4
#[derive(Args)]
pub(crate) struct Bench {
    /// Claim policies of the routes to send to [default: none,strict].
    #[arg(long, value_enum, value_delimiter = ',')]
    routes: Option<Vec<Policy>>,
    /// Messages per request [default: 1,10,100].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=500))]
    batch: Option<Vec<u16>>,
    /// Requests in flight, each on a connection of its own [default: 1,64,512].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: Option<Vec<u16>>,
    /// Seconds of each round [default: 5].
    #[arg(long)]
    seconds: Option<f64>,
    /// Rounds of each figure; where there are several contestants they take turns [default: 5].
    #[arg(long)]
    rounds: Option<usize>,
    /// Random ids (UUIDv4) instead of time-ordered ones (UUIDv7).
    #[arg(long)]
    random_ids: bool,
    /// Time-ordered and random ids beside each other.
    #[arg(long, conflicts_with = "random_ids")]
    both_ids: bool,
    /// Bytes of each payload.
    #[arg(long, default_value_t = 400)]
    payload_bytes: usize,
    /// Messages of one round at most: a round ends when they are used up.
    #[arg(long, default_value_t = MESSAGES_MAX)]
    messages: usize,
    /// Put so many strict claims into the store first.
    #[arg(long, default_value_t = 0)]
    preload: usize,
    /// Consume beside the load, and acknowledge.
    #[arg(long)]
    consume: bool,
    /// Part: receive and acknowledge with nothing beside, with 1, 4, 16 and 64 consumers.
    #[arg(long)]
    consume_alone: bool,
    /// Part: beside the same server without a store; one by one with 64 in flight unless told otherwise.
    #[arg(long)]
    without_store: bool,
    /// Part: against these peers, which are installed if missing and started on free ports.
    #[arg(long, value_enum, value_delimiter = ',')]
    against: Vec<Peer>,
    /// Part: fleets of so many nodes over one PostgreSQL, which is installed if missing and started on a free port,
    /// beside bare inserts into it by pgbench; strict, one by one and in batches of 100, with 64 in flight over all
    /// nodes unless told otherwise.
    #[arg(long, value_name = "NODES", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=16))]
    fleet: Vec<u16>,
    /// Part: what a flooding tenant does to a calm one.
    #[arg(long)]
    fairness: bool,
    /// Part: the server's memory under full load for so many seconds.
    #[arg(long)]
    memory: Option<u64>,
    /// Part: the server's memory with so many connections that do nothing.
    #[arg(long)]
    idle_connections: Option<usize>,
    /// Part, alone: a registry of so many grants. What a snapshot of it weighs, what a cold start takes with it and
    /// without, what a refresh costs, and what commands cost beside a small registry's.
    #[arg(long, value_name = "GRANTS")]
    registry: Option<usize>,
    /// Part, alone: how long it takes from a grant until its first command is delivered, with one node and with two.
    #[arg(long)]
    onboarding: bool,
    /// Part, alone: a ledger route with --preload claims in it, on both engines. New messages, replays and conflicts a
    /// second, posts through an HTTP processor and replays of its answers, and how the store grows.
    #[arg(long)]
    ledger: bool,
    /// With --ledger: this engine only.
    #[arg(long, value_enum, requires = "ledger")]
    engine: Option<ledger::Engine>,
    /// Part, alone: events with 1, 3 and 10 subscriptions, and with each mode of ordering, on both engines.
    #[arg(long)]
    events: bool,
    /// Part, alone: HTTP push to 50 receivers. Pushes a second, and the latency of 49 of them while one is dead beside
    /// that while all are alive.
    #[arg(long)]
    push: bool,
    /// Ingest with both kinds of ids, consuming alone, without a store, all peers and fairness. Leaves out memory, idle
    /// connections and fleets unless they are asked for beside it, and the parts that run alone. Takes half an hour.
    #[arg(long)]
    full: bool,
    /// A short run of most parts, to see that everything works. Its figures mean little.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Print the tables as Markdown.
    #[arg(long)]
    markdown: bool,
    /// Load this node instead of a new one.
    #[arg(long)]
    url: Option<String>,
    /// The operator's token for --url; without it, the token file is read.
    #[arg(long, env = "SNAVIO_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The file with the operator's token.
    #[arg(long, default_value = "./snavio-data/operator.token")]
    token_file: PathBuf,
    /// The process of the node at --url, if it is on this machine: tells its processor time and memory.
    #[arg(long)]
    server_pid: Option<u32>,
    /// Run a node without a store (the bench starts it by itself).
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
            let stock = ledger::Stock { preload: self.preload, ids: self.ids(), engine: self.engine };
            return ledger::run(&stock, self.rounds.unwrap_or(3).max(1), self.pacing()?, output).await;
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

    /// Every combination of what was asked for, or of these.
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
            return Err(Failure::new(format!("--seconds must be 0.05 to {SECONDS_MAX}")));
        }
        let messages_max = self.messages.clamp(1, MESSAGES_MAX);
        Ok(Pacing { time: Duration::from_secs_f64(seconds), payload_bytes: self.payload_bytes, messages_max })
    }

    fn node(&self) -> Result<Option<(Api, Option<u32>)>, Failure> {
        let Some(url) = &self.url else { return Ok(None) };
        let token = match &self.token {
            Some(token) => token.clone(),
            None => std::fs::read_to_string(&self.token_file).map_err(|error| {
                Failure::of(
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

    /// The same server over a store that keeps nothing.
    async fn serve(&self) -> Ended {
        let flag = |name: &str, value: Option<String>| value.map(|value| (name.to_owned(), value));
        let flags = [
            flag("server.listen", self.listen.clone()),
            flag("store.url", self.data.as_ref().map(|folder| format!("embedded:{folder}"))),
            flag("store.relaxed", Some("true".to_owned())),
        ];
        let flags = flags.into_iter().flatten().collect();
        let config = Config::load(&Sources { file: None, environment: std::env::vars().collect(), flags })?;
        let node = Node::start_over(Arc::new(null_store::NullStore::default()), &config, true).await?;
        let stop = super::serve::StopSignals::listen()?;
        super::serve::say(&format!("snavio without a store is serving http://{}\n", node.address()));
        stop.wait().await;
        node.stop().await;
        Ok(())
    }
}

/// The command for the report, without the token if one was given in it.
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

/// A bench that is told to end takes its servers with it.
async fn end_when_told() {
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
    fn a_report_does_not_tell_the_token() {
        let line = |text: &str| command_line(text.split(' ').map(str::to_owned));
        assert_eq!(line("snavio bench --token secret --quick"), "snavio bench --token … --quick");
        assert_eq!(line("snavio bench --token=secret --quick"), "snavio bench --token=… --quick");
        assert_eq!(line("snavio bench --token-file x"), "snavio bench --token-file x");
    }
}
