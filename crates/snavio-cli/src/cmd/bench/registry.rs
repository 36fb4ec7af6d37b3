//! A large registry: what a snapshot of it weighs, how long a node takes to start with it and without, what refreshes
//! cost, and whether commands take longer than with a small one.

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
use super::process::Running;
use super::round::{Round, Spread};
use super::scenario::{Cell, Driver, Pacing};
use super::{clock, machine};
use crate::Ended;
use crate::cmd::Failure;
use crate::output::Output;

/// Tenants, and services of each: every service is a source, and a target with one route.
const TENANTS: usize = 100;
const SERVICES: usize = 10;
const ALL_SERVICES: usize = TENANTS * SERVICES;
/// How long refreshes are watched that find nothing,
const QUIET: Duration = Duration::from_secs(10);
/// and changes made one by one afterwards.
const CHANGES: usize = 200;
/// How long the first snapshot may take.
const WRITTEN_MAX: Duration = Duration::from_secs(300);

/// Fills a store, has a snapshot written, and starts nodes over it.
pub(super) async fn run(grants: usize, rounds: usize, pacing: Pacing, output: Output) -> Ended {
    let folder = tempfile::Builder::new().prefix("snavio-bench-").tempdir()?;
    let (place, small) =
        (Place::make(&folder.path().join("large"))?, Place::make(&folder.path().join("small"))?);
    register(&place).await?;
    register(&small).await?;
    let began = clock::now();
    fill(&place.data, grants).await?;
    let fill_seconds = began.elapsed().as_secs_f64();
    let (manifest, write_seconds) = place.snapshot(grants).await?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        with.push(place.cold_start(true)?);
        without.push(place.cold_start(false)?);
    }
    let rows = vec![summary("with a snapshot", &with), summary("from the store", &without)];
    let in_use = in_use([("small", &small), ("large", &place)], rounds, pacing).await?;
    let document = json!({
        "grants": grants,
        "store_filled_seconds": fill_seconds,
        "snapshot_written_seconds": write_seconds,
        "snapshot": weights(&manifest),
        "cold_start": rows,
        "refresh": in_use.refreshes,
        "commands": in_use.commands,
        "commands_large_to_small": in_use.ratios,
    });
    output.rows(&document, &rows, &["start", "seconds_median", "seconds", "resident_mib"]);
    if output == Output::Table {
        let kinds = document["snapshot"]["kinds"].as_array().cloned().unwrap_or_default();
        output.rows(
            &document,
            &kinds,
            &["kind", "entries", "bytes", "bytes_per_entry", "text_bytes_per_entry"],
        );
        let refresh =
            ["registry", "version", "nothing_changed_micros", "one_changed_micros", "change_call_ms"];
        output.rows(&document, &in_use.refreshes, &refresh);
        let commands = ["what", "per_second", "p50_ms", "p99_ms", "server_micros"];
        output.rows(&document, &in_use.commands, &commands);
        output.rows(&document, &in_use.ratios, &["cell", "large_to_small"]);
    }
    Ok(())
}

/// How long a start took, and what the node had in memory then.
struct Start {
    seconds: f64,
    resident_mib: f64,
}

fn summary(name: &str, starts: &[Start]) -> Value {
    let mut seconds: Vec<_> = starts.iter().map(|it| (it.seconds * 1000.0).round() / 1000.0).collect();
    seconds.sort_by(f64::total_cmp);
    let resident = starts.iter().map(|it| it.resident_mib).fold(0.0, f64::max);
    json!({ "start": name, "seconds_median": seconds[seconds.len() / 2], "seconds": seconds, "resident_mib": resident.round() })
}

struct Place {
    data: PathBuf,
    snapshots: PathBuf,
}

impl Place {
    fn make(folder: &Path) -> Result<Self, Failure> {
        let place = Self { data: folder.join("data"), snapshots: folder.join("snapshots") };
        std::fs::create_dir_all(&place.data)?;
        Ok(place)
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

    fn start(&self, snapshots: bool, preload: bool) -> Result<(Running, String), Failure> {
        let (running, url) = Running::start_and_read(&mut self.command(snapshots, preload)?, " is serving ")?;
        Ok((running.ended_by(Signal::TERM), url))
    }

    /// From the start of the process until it serves.
    fn cold_start(&self, preload: bool) -> Result<Start, Failure> {
        let began = clock::now();
        let (node, _) = self.start(true, preload)?;
        let seconds = began.elapsed().as_secs_f64();
        let resident = machine::resident_bytes(node.pid()).unwrap_or(0);
        Ok(Start { seconds, resident_mib: resident as f64 / f64::from(1 << 20) })
    }

    /// Has a node write a snapshot that holds everything, and tells how long it took after the start.
    async fn snapshot(&self, grants: usize) -> Result<(Value, f64), Failure> {
        let (_node, _) = self.start(true, false)?;
        let began = clock::now();
        loop {
            if let Ok(text) = std::fs::read_to_string(self.snapshots.join("registry/latest.json")) {
                let latest: Value = serde_json::from_str(&text)?;
                if entries(&latest["manifest"]) > grants as u64 {
                    return Ok((latest["manifest"].clone(), began.elapsed().as_secs_f64()));
                }
            }
            if began.elapsed() > WRITTEN_MAX {
                return Err(Failure::new("no snapshot was written"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// What a registry costs while it is used.
struct InUse {
    refreshes: Vec<Value>,
    commands: Vec<Value>,
    ratios: Vec<Value>,
}

/// Nodes beside each other, which differ by their registry alone.
async fn in_use(
    places: [(&'static str, &Place); 2],
    rounds: usize,
    pacing: Pacing,
) -> Result<InUse, Failure> {
    let (mut nodes, mut refreshes, mut drivers) = (Vec::new(), Vec::new(), Vec::new());
    for (name, place) in places {
        let (node, url) = place.start(false, false)?;
        refreshes.push(refreshes_of(name, &place.operator(&url)?).await?);
        let target = Target::running(place.operator(&url)?, Some(node.pid()))?;
        drivers.push((name, Arc::new(Mutex::new(Driver::over(target, pacing).await?))));
        nodes.push(node);
    }
    let mut cells = Vec::new();
    for connections in [1, 64] {
        let cell = Cell { policy: Policy::Strict, batch: 1, connections, ids: Ids::Ordered, consume: false };
        cells.extend(drivers.iter().map(|(name, driver)| OneOf { name, driver: Arc::clone(driver), cell }));
    }
    let mut turns: Vec<_> = cells.iter_mut().map(|it| it as &mut dyn Contestant).collect();
    let measured = alternate(&mut turns, rounds, |_, _| {}).await?;
    let millis = |micros: f64| (micros / 10.0).round() / 100.0;
    let commands = measured.iter().map(|it| {
        json!({
            "what": it.what, "per_second": it.per_second.median.round(),
            "p50_ms": millis(it.latency_micros.p50 as f64), "p99_ms": millis(it.latency_micros.p99 as f64),
            "server_micros": it.server_micros_per_message.map(|micros| (micros * 10.0).round() / 10.0),
        })
    });
    let ratios = measured.chunks(2).zip([1, 64]).map(|(pair, connections)| {
        let ratio = |of: fn(&Round) -> f64| {
            let pairs = pair[1].rounds.iter().zip(&pair[0].rounds);
            Spread::of(pairs.map(|(large, small)| of(large) / of(small))).unwrap_or_default()
        };
        let told = |it: Spread| format!("{:.2} ({:.2}–{:.2})", it.median, it.least, it.most);
        let p50 = told(ratio(|round| round.latency_micros.p50 as f64));
        let rate = told(ratio(|round| round.per_second));
        json!({ "cell": format!("{connections} in flight"), "large_to_small": format!("p50 {p50}, per second {rate}") })
    });
    Ok(InUse { refreshes, commands: commands.collect(), ratios: ratios.collect() })
}

/// Whatever is measured of one of the registries.
struct OneOf {
    name: &'static str,
    driver: Arc<Mutex<Driver>>,
    cell: Cell,
}

#[async_trait]
impl Contestant for OneOf {
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

/// What asking the store for changes costs, when there are none and when there is one.
async fn refreshes_of(name: &str, operator: &Api) -> Result<Value, Failure> {
    let before = refreshed(operator).await?;
    tokio::time::sleep(QUIET).await;
    let quiet = refreshed(operator).await?;
    let mut calls = Vec::new();
    for number in 0..CHANGES {
        let grant =
            json!({ "source": service(1), "target": service(2), "name": format!("changed-{number}") });
        let began = clock::now();
        operator.call(Method::PUT, "/v1/grants", Some(&grant)).await?;
        calls.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let changed = refreshed(operator).await?;
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

/// Refreshes so far, and the seconds they took.
#[derive(Clone, Copy, Default)]
struct Refreshed {
    count: f64,
    seconds: f64,
}

impl Refreshed {
    /// Microseconds of one since then.
    fn since(self, before: Self) -> f64 {
        ((self.seconds - before.seconds) / (self.count - before.count).max(1.0) * 1e7).round() / 10.0
    }
}

async fn refreshed(operator: &Api) -> Result<Refreshed, Failure> {
    let (_, bytes) = operator.exchange(Method::GET, "/metrics", None, "").await?;
    let text = String::from_utf8_lossy(&bytes);
    let sum = |metric: &str| {
        let lines = text.lines().filter(|line| line.starts_with(metric));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    Ok(Refreshed {
        count: sum("snavio_cache_refresh_seconds_count"),
        seconds: sum("snavio_cache_refresh_seconds_sum"),
    })
}

fn objects(manifest: &Value) -> impl Iterator<Item = &Value> {
    manifest["objects"].as_array().into_iter().flatten()
}

fn entries(manifest: &Value) -> u64 {
    objects(manifest).filter_map(|object| object["entries"].as_u64()).sum()
}

/// Bytes by kind of entry.
fn weights(manifest: &Value) -> Value {
    let mut kinds: Vec<String> =
        objects(manifest).map(|it| it["kind"].as_str().unwrap_or_default().to_owned()).collect();
    kinds.dedup();
    let sum = |kind: &str, member: &str| -> u64 {
        objects(manifest).filter(|it| it["kind"] == kind).filter_map(|it| it[member].as_u64()).sum()
    };
    let per_entry = |bytes: u64, entries: u64| (bytes as f64 * 10.0 / entries.max(1) as f64).round() / 10.0;
    let weight = |kind: &String| {
        let (entries, bytes, text) = (sum(kind, "entries"), sum(kind, "bytes"), sum(kind, "text_bytes"));
        json!({
            "kind": kind, "entries": entries, "bytes": bytes,
            "bytes_per_entry": per_entry(bytes, entries), "text_bytes_per_entry": per_entry(text, entries),
        })
    };
    let bytes: u64 = objects(manifest).filter_map(|it| it["bytes"].as_u64()).sum();
    json!({ "bytes": bytes, "objects": objects(manifest).count(), "kinds": kinds.iter().map(weight).collect::<Vec<_>>() })
}

fn tenant(number: usize) -> String {
    format!("tenant-{:03}", number % TENANTS)
}

/// Names as different as those that people give: numbered ones would pack to nothing.
fn service(number: usize) -> String {
    let place = number % ALL_SERVICES;
    let letters = (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    format!("{}/{letters:08x}-{}", tenant(number), place / TENANTS)
}

/// Registers tenants, services with their keys and clients, and routes, as an operator would.
async fn register(place: &Place) -> Result<(), Failure> {
    let (_node, url) = place.start(false, false)?;
    let operator = place.operator(&url)?;
    let route = |number| {
        json!({
            "target": service(number), "name": "update-profile", "queue": format!("orders-{number}"),
            "dead_letter_queue": "dead", "claim": { "policy": "strict" },
        })
    };
    let registry = json!({
        "tenants": (0..TENANTS).map(|it| json!({ "name": tenant(it) })).collect::<Vec<_>>(),
        "services": (0..ALL_SERVICES).map(|it| json!({ "name": service(it) })).collect::<Vec<_>>(),
        "routes": (0..ALL_SERVICES).map(route).collect::<Vec<_>>(),
        "why": "snavio bench",
    });
    operator.call(Method::POST, "/v1/registry/apply", Some(&registry)).await?;
    Ok(())
}

/// Puts grants into the store of a node that has ended, as changes like any other.
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

/// The grant of a number: every source may send to every target, then another command.
fn change(number: usize, version: i64) -> Result<Change, Failure> {
    let unfit = |text: String| Failure::new(format!("{text} is no name"));
    let named = |text: String| ServiceName::new(&text).map_err(|_| unfit(text));
    let command = match number / (ALL_SERVICES * ALL_SERVICES) {
        0 => "update-profile".to_owned(),
        more => format!("update-profile-{more}"),
    };
    let name = CommandName::new(&command).map_err(|_| unfit(command))?;
    let (source, target) = (service(number), service(number / ALL_SERVICES));
    let grant = Entry::Grant(Grant::new(named(source)?, named(target)?, name));
    let (who, why) = ("operator".to_owned(), "snavio bench".to_owned());
    Ok(Change { version, at: clock::wall(), who, why, key: grant.key(), before: None, after: Some(grant) })
}
