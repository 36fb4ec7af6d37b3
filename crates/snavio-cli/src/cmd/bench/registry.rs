//! The registry part: the size of a snapshot of a large registry, cold starts with and without it, the cost
//! of refreshes, and the cost of commands compared with a small registry.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use snavio_model::bounds::REGISTRY_CHANGES_MAX;
use snavio_model::name::{CommandName, ServiceName};
use snavio_model::registry::{Change, Entry, Grant};
use snavio_sdk::Api;
use snavio_store::engine::sqlite::{EmbeddedStore, Options};
use snavio_store::{RegistryLog, Store};

use tokio::sync::Mutex;

use super::contest::{Contestant, alternate};
use super::messages::Ids;
use super::node::{Policy, QUEUE_DEPTH_MAX, Target};
use super::process::ServerProcess;
use super::round::{Round, Rounds, Spread};
use super::scenario::{Cell, Driver, Pacing};
use super::{clock, machine};
use crate::CommandResult;
use crate::cmd::Failure;
use crate::output::Output;

/// The number of tenants.
const TENANTS: usize = 100;
/// The number of services of a tenant. Every service is a source, and a target with one route.
const SERVICES: usize = 10;
const ALL_SERVICES: usize = TENANTS * SERVICES;
/// The time over which refreshes are measured while the registry does not change.
const QUIET: Duration = Duration::from_secs(10);
/// The number of single changes over which refreshes are measured afterwards.
const CHANGES: usize = 200;
/// The longest time until the first snapshot is complete.
const SNAPSHOT_MAX: Duration = Duration::from_secs(300);

/// Fills a store, waits for a snapshot of it, and measures nodes over it.
pub(super) async fn run(grants: usize, rounds: usize, pacing: Pacing, output: Output) -> CommandResult {
    let folder = tempfile::Builder::new().prefix("snavio-bench-").tempdir()?;
    let large = NodeFolder::make(&folder.path().join("large"))?;
    let small = NodeFolder::make(&folder.path().join("small"))?;
    register_routes(&large).await?;
    register_routes(&small).await?;
    let began = clock::now();
    fill(&large.data, grants).await?;
    let fill_seconds = began.elapsed().as_secs_f64();
    let (manifest, write_seconds) = large.write_snapshot(grants).await?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        with.push(large.cold_start(true)?);
        without.push(large.cold_start(false)?);
    }
    let rows = vec![summary("with a snapshot", &with), summary("from the store", &without)];
    let usage = measure_usage([("small", &small), ("large", &large)], rounds, pacing).await?;
    let document = json!({
        "grants": grants,
        "store_filled_seconds": fill_seconds,
        "snapshot_written_seconds": write_seconds,
        "snapshot": snapshot_sizes(&manifest),
        "cold_start": rows,
        "refresh": usage.refreshes,
        "commands": usage.commands,
        "commands_large_to_small": usage.ratios,
    });
    output.print_rows(&document, &rows, &["start", "seconds_median", "seconds", "resident_mib"]);
    if output == Output::Table {
        let kinds = document["snapshot"]["kinds"].as_array().cloned().unwrap_or_default();
        output.print_rows(
            &document,
            &kinds,
            &["kind", "entries", "bytes", "bytes_per_entry", "text_bytes_per_entry"],
        );
        let refresh =
            ["registry", "version", "nothing_changed_micros", "one_changed_micros", "change_call_ms"];
        output.print_rows(&document, &usage.refreshes, &refresh);
        let commands = ["what", "per_second", "p50_ms", "p99_ms", "server_micros"];
        output.print_rows(&document, &usage.commands, &commands);
        output.print_rows(&document, &usage.ratios, &["cell", "large_to_small"]);
    }
    Ok(())
}

/// The duration of a cold start, and the memory of the node after it.
struct ColdStart {
    seconds: f64,
    resident_mib: f64,
}

fn summary(name: &str, starts: &[ColdStart]) -> Value {
    let seconds = starts.iter().map(|start| (start.seconds * 1000.0).round() / 1000.0);
    let mut seconds: Vec<_> = seconds.collect();
    seconds.sort_by(f64::total_cmp);
    let resident = starts.iter().map(|start| start.resident_mib).fold(0.0, f64::max);
    json!({
        "start": name, "seconds_median": seconds[seconds.len() / 2], "seconds": seconds,
        "resident_mib": resident.round(),
    })
}

/// The data folder of a node and the folder of its snapshots.
struct NodeFolder {
    data: PathBuf,
    snapshots: PathBuf,
}

impl NodeFolder {
    fn make(folder: &Path) -> Result<Self, Failure> {
        let made = Self { data: folder.join("data"), snapshots: folder.join("snapshots") };
        std::fs::create_dir_all(&made.data)?;
        Ok(made)
    }

    fn operator(&self, url: &str) -> Result<Api, Failure> {
        let token = std::fs::read_to_string(self.data.join(snavio_server::OPERATOR_TOKEN_FILE))?;
        Ok(Api::new(url, None)?.with_token(token.trim()))
    }

    fn command(&self, snapshots: bool, preload: bool) -> Result<Command, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&self.data);
        command.env("SNAVIO_LOG_FILTER", "error").env("SNAVIO_STORE_QUEUE_DEPTH_MAX", QUEUE_DEPTH_MAX);
        if snapshots {
            command.env("SNAVIO_SNAPSHOT_URL", format!("file://{}", self.snapshots.display()));
            command.env("SNAVIO_SNAPSHOT_ENVIRONMENT", "bench");
            command.env("SNAVIO_SNAPSHOT_PRELOAD", preload.to_string());
        }
        Ok(command)
    }

    fn start(&self, snapshots: bool, preload: bool) -> Result<(ServerProcess, String), Failure> {
        let (running, url) =
            ServerProcess::start_and_read(&mut self.command(snapshots, preload)?, " is serving ")?;
        Ok((running.with_end_signal(Signal::TERM), url))
    }

    /// Measures the time from the start of the process until it serves.
    fn cold_start(&self, preload: bool) -> Result<ColdStart, Failure> {
        let began = clock::now();
        let (node, _) = self.start(true, preload)?;
        let seconds = began.elapsed().as_secs_f64();
        let resident = machine::resident_bytes(node.pid()).unwrap_or(0);
        Ok(ColdStart { seconds, resident_mib: resident as f64 / f64::from(1 << 20) })
    }

    /// Runs a node until its snapshot contains all grants. Returns the manifest and the seconds since the
    /// start.
    async fn write_snapshot(&self, grants: usize) -> Result<(Value, f64), Failure> {
        let (_node, _) = self.start(true, false)?;
        let began = clock::now();
        loop {
            if let Ok(text) = std::fs::read_to_string(self.snapshots.join("registry/latest.json")) {
                let latest: Value = serde_json::from_str(&text)?;
                if count_entries(&latest["manifest"]) > grants as u64 {
                    return Ok((latest["manifest"].clone(), began.elapsed().as_secs_f64()));
                }
            }
            if began.elapsed() > SNAPSHOT_MAX {
                return Err(Failure::new(format!(
                    "the node wrote no snapshot with all {grants} grants within {} s",
                    SNAPSHOT_MAX.as_secs()
                )));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The cost of refreshes and commands, as table rows.
struct UsageFigures {
    refreshes: Vec<Value>,
    commands: Vec<Value>,
    ratios: Vec<Value>,
}

/// Measures two nodes that run at the same time and differ only in their registry.
async fn measure_usage(
    folders: [(&'static str, &NodeFolder); 2],
    rounds: usize,
    pacing: Pacing,
) -> Result<UsageFigures, Failure> {
    let (mut nodes, mut refreshes, mut drivers) = (Vec::new(), Vec::new(), Vec::new());
    for (name, folder) in folders {
        let (node, url) = folder.start(false, false)?;
        refreshes.push(measure_refreshes(name, &folder.operator(&url)?).await?);
        let target = Target::running(folder.operator(&url)?, Some(node.pid()))?;
        drivers.push((name, Arc::new(Mutex::new(Driver::over(target, pacing).await?))));
        nodes.push(node);
    }
    let mut cells = Vec::new();
    for connections in [1, 64] {
        let cell = Cell { policy: Policy::Strict, batch: 1, connections, ids: Ids::Ordered, consume: false };
        cells.extend(drivers.iter().map(|(name, driver)| RegistryContestant {
            name,
            driver: Arc::clone(driver),
            cell,
        }));
    }
    let mut contestants: Vec<_> = cells.iter_mut().map(|cell| cell as &mut dyn Contestant).collect();
    let measured = alternate(&mut contestants, rounds, |_, _| {}).await?;
    let commands = measured.iter().map(command_row).collect();
    let ratios = measured.chunks(2).zip([1, 64]).map(|(pair, connections)| {
        let (small, large) = (&pair[0].rounds, &pair[1].rounds);
        let p50 = ratio_text(large, small, |round| round.latency_micros.p50 as f64);
        let rate = ratio_text(large, small, |round| round.per_second);
        json!({ "cell": format!("{connections} in flight"), "large_to_small": format!("p50 {p50}, per second {rate}") })
    });
    let ratios = ratios.collect();
    Ok(UsageFigures { refreshes, commands, ratios })
}

fn command_row(rounds: &Rounds) -> Value {
    let millis = |micros: u64| (micros as f64 / 10.0).round() / 100.0;
    json!({
        "what": rounds.what, "per_second": rounds.per_second.median.round(),
        "p50_ms": millis(rounds.latency_micros.p50), "p99_ms": millis(rounds.latency_micros.p99),
        "server_micros": rounds.server_micros_per_message.map(|micros| (micros * 10.0).round() / 10.0),
    })
}

/// The ratio of a figure with the large registry to the same figure with the small one, round by round.
fn ratio_text(large: &[Round], small: &[Round], figure: fn(&Round) -> f64) -> String {
    let pairs = large.iter().zip(small);
    let ratio = Spread::of(pairs.map(|(large, small)| figure(large) / figure(small))).unwrap_or_default();
    format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.least, ratio.most)
}

/// Commands to the node with one of the registries.
struct RegistryContestant {
    name: &'static str,
    driver: Arc<Mutex<Driver>>,
    cell: Cell,
}

#[async_trait]
impl Contestant for RegistryContestant {
    fn what(&self) -> String {
        format!("{} registry, {}", self.name, self.cell.name())
    }

    fn how(&self) -> String {
        String::new()
    }

    async fn round(&mut self) -> Result<Round, Failure> {
        self.driver.lock().await.round(&self.cell).await
    }
}

/// Measures the time of a refresh without changes and of a refresh with one change.
async fn measure_refreshes(name: &str, operator: &Api) -> Result<Value, Failure> {
    let before = read_refreshes(operator).await?;
    tokio::time::sleep(QUIET).await;
    let quiet = read_refreshes(operator).await?;
    let mut calls = Vec::new();
    for number in 0..CHANGES {
        let grant =
            json!({ "source": service(1), "target": service(2), "name": format!("changed-{number}") });
        let began = clock::now();
        operator.call(Method::PUT, "/v1/grants", Some(&grant)).await?;
        calls.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let changed = read_refreshes(operator).await?;
    let calls = Spread::of(calls.into_iter()).unwrap_or_default();
    let version = operator.call(Method::GET, "/v1/status", None).await?["registry_version"].take();
    Ok(json!({
        "registry": name,
        "version": version,
        "nothing_changed_micros": quiet.since(before),
        "one_changed_micros": changed.since(quiet),
        "change_call_ms": format!("{:.2} ({:.2}–{:.2})", calls.median, calls.least, calls.most),
    }))
}

/// The number of refreshes so far and their total time.
#[derive(Clone, Copy, Default)]
struct RefreshTotals {
    count: f64,
    seconds: f64,
}

impl RefreshTotals {
    /// The mean time of a refresh since then, in microseconds.
    fn since(self, before: Self) -> f64 {
        ((self.seconds - before.seconds) / (self.count - before.count).max(1.0) * 1e7).round() / 10.0
    }
}

async fn read_refreshes(operator: &Api) -> Result<RefreshTotals, Failure> {
    let (_, bytes) = operator.exchange(Method::GET, "/metrics", None, "").await?;
    let text = String::from_utf8_lossy(&bytes);
    let sum = |metric: &str| {
        let lines = text.lines().filter(|line| line.starts_with(metric));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    Ok(RefreshTotals {
        count: sum("snavio_cache_refresh_seconds_count"),
        seconds: sum("snavio_cache_refresh_seconds_sum"),
    })
}

fn objects(manifest: &Value) -> impl Iterator<Item = &Value> {
    manifest["objects"].as_array().into_iter().flatten()
}

fn count_entries(manifest: &Value) -> u64 {
    objects(manifest).filter_map(|object| object["entries"].as_u64()).sum()
}

/// The size of a snapshot, in total and by kind of entry.
fn snapshot_sizes(manifest: &Value) -> Value {
    let kinds = objects(manifest).map(|object| object["kind"].as_str().unwrap_or_default().to_owned());
    let mut kinds: Vec<String> = kinds.collect();
    kinds.dedup();
    let kinds: Vec<_> = kinds.iter().map(|kind| kind_sizes(manifest, kind)).collect();
    let bytes: u64 = objects(manifest).filter_map(|object| object["bytes"].as_u64()).sum();
    json!({ "bytes": bytes, "objects": objects(manifest).count(), "kinds": kinds })
}

fn kind_sizes(manifest: &Value, kind: &str) -> Value {
    let sum = |member: &str| -> u64 {
        let of_kind = objects(manifest).filter(|object| object["kind"] == kind);
        of_kind.filter_map(|object| object[member].as_u64()).sum()
    };
    let (entries, bytes, text_bytes) = (sum("entries"), sum("bytes"), sum("text_bytes"));
    json!({
        "kind": kind, "entries": entries, "bytes": bytes,
        "bytes_per_entry": per_entry(bytes, entries), "text_bytes_per_entry": per_entry(text_bytes, entries),
    })
}

fn per_entry(bytes: u64, entries: u64) -> f64 {
    (bytes as f64 * 10.0 / entries.max(1) as f64).round() / 10.0
}

fn tenant(number: usize) -> String {
    format!("tenant-{:03}", number % TENANTS)
}

/// A name that differs from others like the names that people give. Numbered names would compress too well.
fn service(number: usize) -> String {
    let index = number % ALL_SERVICES;
    let letters = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    format!("{}/{letters:08x}-{}", tenant(number), index / TENANTS)
}

/// Registers tenants, services with their keys and clients, and routes, over the API.
async fn register_routes(folder: &NodeFolder) -> Result<(), Failure> {
    let (_node, url) = folder.start(false, false)?;
    let operator = folder.operator(&url)?;
    let registry = json!({
        "tenants": (0..TENANTS).map(|number| json!({ "name": tenant(number) })).collect::<Vec<_>>(),
        "services": (0..ALL_SERVICES).map(|number| json!({ "name": service(number) })).collect::<Vec<_>>(),
        "routes": (0..ALL_SERVICES).map(route).collect::<Vec<_>>(),
        "why": "snavio bench",
    });
    operator.call(Method::POST, "/v1/registry/apply", Some(&registry)).await?;
    Ok(())
}

fn route(number: usize) -> Value {
    json!({
        "target": service(number), "name": "update-profile", "queue": format!("orders-{number}"),
        "dead_letter_queue": "dead", "claim": { "policy": "strict" },
    })
}

/// Writes grants, as registry changes, directly into the store. The node over it must have ended.
async fn fill(data: &Path, grants: usize) -> Result<(), Failure> {
    let store = EmbeddedStore::open(&Options::new(data))?;
    let first = store.version().await? + 1;
    let mut numbers = (0..grants).zip(first..).peekable();
    while numbers.peek().is_some() {
        let changes =
            numbers.by_ref().take(REGISTRY_CHANGES_MAX).map(|(number, version)| change(number, version));
        store.apply(changes.collect::<Result<_, _>>()?).await?;
    }
    store.close().await;
    Ok(())
}

/// The change with grant `number`. The grants permit every source to send one command to every target, then a
/// second command, and so on.
fn change(number: usize, version: i64) -> Result<Change, Failure> {
    let command = match number / (ALL_SERVICES * ALL_SERVICES) {
        0 => "update-profile".to_owned(),
        more => format!("update-profile-{more}"),
    };
    let name = CommandName::new(&command)?;
    let (source, target) = (service(number), service(number / ALL_SERVICES));
    let grant = Entry::Grant(Grant::new(ServiceName::new(&source)?, ServiceName::new(&target)?, name));
    let (who, why) = ("operator".to_owned(), "snavio bench".to_owned());
    Ok(Change { version, at: clock::wall(), who, why, key: grant.key(), before: None, after: Some(grant) })
}
