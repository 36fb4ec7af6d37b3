//! Liveness, readiness and status (TEL-9).

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use snavio_model::identity::permission::Permission;
use snavio_model::registry::Signer as _;
use snavio_store::{Anchor, Durability, NodeSeen, StoreError, files};
use utoipa::ToSchema;

use super::answer::json;
use super::problem::COME_BACK_AFTER;
use super::{App, Problem, Shared};
use crate::principal::Principal;

/// Whether the process is there at all.
#[utoipa::path(get, path = "/livez", tag = "health", security(()),
    responses((status = 200, content_type = "text/plain", body = String)))]
pub(super) async fn live() -> &'static str {
    "ok\n"
}

/// Whether the node takes messages.
#[derive(Serialize, ToSchema)]
pub(super) struct Readiness {
    ready: bool,
    /// `durable`, or `relaxed` when an acknowledged message may be lost in a crash.
    durability: &'static str,
    /// Each check: `ok`, or what is wrong.
    #[schema(value_type = BTreeMap<String, String>)]
    checks: BTreeMap<&'static str, String>,
}

/// Whether the node takes messages, and if not, why.
#[utoipa::path(get, path = "/readyz", tag = "health", security(()),
    responses((status = 200, body = Readiness), (status = 503, body = Readiness, description = "Not ready")))]
pub(super) async fn ready(State(app): State<Shared>) -> Response {
    let checks = checks(&app).await;
    let ready = checks.iter().all(|check| check.problem.is_none());
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let told = checks.into_iter().map(|check| (check.name, check.problem.unwrap_or_else(|| "ok".to_owned())));
    let durability = if app.relaxed { "relaxed" } else { "durable" };
    let mut response = json(status, &Readiness { ready, durability, checks: told.collect() });
    if !ready {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(COME_BACK_AFTER.as_secs()));
    }
    response
}

/// One thing that must be right.
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) problem: Option<String>,
}

/// How long the store may take to answer: who asks for health does not wait for long.
const PING_MAX: Duration = Duration::from_secs(2);

/// Everything that must be right for messages to be taken.
pub(super) async fn checks(app: &App) -> Vec<Check> {
    let asked = tokio::time::timeout(PING_MAX, app.gate.store().ping()).await;
    let store = match asked {
        Ok(answer) => answer.err().map(|error| error.to_string()),
        Err(_) => Some(format!("the store does not answer within {} s", PING_MAX.as_secs())),
    };
    let clock = app.clock.is_away_from_wall().then(|| {
        let seconds = app.clock.distance_from_wall().as_secs();
        format!("the wall clock is {seconds} s away from the node's time")
    });
    let draining = app.is_draining().then(|| "the node is stopping".to_owned());
    vec![
        Check { name: "store", problem: store },
        Check { name: "registry", problem: app.gate.registry_problem() },
        Check { name: "clock", problem: clock },
        Check { name: "disk", problem: disk(app) },
        Check { name: "draining", problem: draining },
    ]
}

fn disk(app: &App) -> Option<String> {
    // Where no room is asked for, there may be no folder either: a database is elsewhere.
    if app.disk_free_bytes_min == 0 {
        return None;
    }
    match files::free_bytes(&app.data_folder) {
        Ok(free) if free >= app.disk_free_bytes_min => None,
        Ok(free) => Some(format!("{free} bytes are free, {} must be", app.disk_free_bytes_min)),
        Err(error) => Some(format!("the free space cannot be told: {error}")),
    }
}

/// Versions, figures and lags of a node.
#[derive(Serialize, ToSchema)]
pub(super) struct Status {
    version: &'static str,
    started_at: String,
    uptime_seconds: u64,
    store: StoreStatus,
    /// The registry's version in this node's memory.
    registry_version: i64,
    /// How many changes the store is ahead of it.
    registry_lag: i64,
    chain: ChainStatus,
    /// The nodes over this store, this one included.
    nodes: Vec<NodeStatus>,
    /// Messages that wait for their commit.
    waiting: usize,
    /// How far the wall clock is from the node's time.
    clock_distance_ms: u64,
    disk_free_bytes: Option<u64>,
    draining: bool,
}

/// The engine.
#[derive(Serialize, ToSchema)]
pub(super) struct StoreStatus {
    engine: &'static str,
    durability: String,
    /// Grows with every start; of an embedded store.
    epoch: Option<i64>,
    /// Since the start.
    commits: u64,
    /// Since the start.
    messages: u64,
    /// Statements sent to a database and awaited, since the start; none on the embedded store.
    round_trips: u64,
    /// Of an embedded store.
    wal_bytes: Option<u64>,
    /// Deliveries that wait or are in flight; of an embedded store.
    deliveries: Option<u64>,
    /// Of the newest message or telemetry record when the store was opened: the node's time began no earlier. Not
    /// where the node goes by the engine's time.
    newest_at_start: Option<String>,
}

/// The chain over the registry's changelog. Note its head elsewhere: `snavio audit verify --head` finds out whether
/// it was cut off or rewritten since.
#[derive(Serialize, ToSchema)]
pub(super) struct ChainStatus {
    /// How many there are.
    seals: i64,
    /// Of the last seal.
    head: Option<String>,
    /// The last change that is sealed.
    sealed_version: i64,
    /// Changes that are not sealed yet.
    unsealed: i64,
    /// What this node's seals are verified with.
    public_key: String,
    /// Why this node does not seal, if so.
    problem: Option<String>,
}

/// A node of the store, as the store knows it.
#[derive(Serialize, ToSchema)]
pub(super) struct NodeStatus {
    id: String,
    address: String,
    version: String,
    started_at: String,
    /// Since it was last heard of.
    silent_seconds: f64,
    /// The registry's version in its memory.
    registry_version: i64,
    /// How many changes the store was ahead of it when it was last heard of.
    registry_lag: i64,
    /// Messages that wait for their commit there.
    waiting: u64,
    draining: bool,
    /// What it does for all of them.
    leads: Vec<String>,
}

/// Versions, figures and lags, for operators and auditors of all.
#[utoipa::path(get, path = "/v1/status", tag = "health", responses((status = 200, body = Status)))]
pub(super) async fn status(State(app): State<Shared>, principal: Principal) -> Result<Response, Problem> {
    principal.may(Permission::Read)?;
    Ok(json(StatusCode::OK, &document(&app).await?))
}

/// The same for the admin listener.
pub(super) async fn open_status(State(app): State<Shared>) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, &document(&app).await?))
}

async fn document(app: &App) -> Result<Status, StoreError> {
    let store = app.gate.store();
    let registry_version = app.gate.registry().version();
    let stored = store.version().await?;
    let nodes = store.nodes().await?.into_iter().map(|seen| node_status(seen, stored)).collect();
    Ok(Status {
        version: env!("CARGO_PKG_VERSION"),
        started_at: app.started_at.to_string(),
        uptime_seconds: app.uptime().as_secs(),
        store: store_status(app),
        registry_version,
        registry_lag: stored.saturating_sub(registry_version).max(0),
        chain: chain_status(app, stored).await?,
        nodes,
        waiting: app.gate.waiting(),
        clock_distance_ms: app.clock.distance_from_wall().as_millis() as u64,
        disk_free_bytes: files::free_bytes(&app.data_folder).ok(),
        draining: app.is_draining(),
    })
}

async fn chain_status(app: &App, stored: i64) -> Result<ChainStatus, StoreError> {
    let last = app.gate.store().last_seal().await?;
    let sealed_version = last.as_ref().map_or(0, |seal| seal.last_version);
    Ok(ChainStatus {
        seals: last.as_ref().map_or(0, |seal| seal.number),
        head: last.map(|seal| hex::encode(seal.head)),
        sealed_version,
        unsealed: stored.saturating_sub(sealed_version).max(0),
        public_key: app.platform.public_key().to_string(),
        problem: app.gate.sealing_problem(),
    })
}

fn node_status(seen: NodeSeen, stored: i64) -> NodeStatus {
    let NodeSeen { state, silent_for, leads } = seen;
    NodeStatus {
        id: state.id,
        address: state.address,
        version: state.software,
        started_at: state.started_at.to_string(),
        silent_seconds: silent_for.as_secs_f64(),
        registry_version: state.registry_version,
        registry_lag: stored.saturating_sub(state.registry_version).max(0),
        waiting: state.waiting,
        draining: state.draining,
        leads,
    }
}

fn store_status(app: &App) -> StoreStatus {
    let store = app.gate.store();
    let figures = store.figures();
    StoreStatus {
        engine: store.engine(),
        durability: match store.durability() {
            Durability::Durable => "durable".to_owned(),
            Durability::Relaxed(why) => format!("relaxed: {why}"),
        },
        epoch: figures.own.map(|own| own.epoch),
        commits: figures.commits,
        messages: figures.messages,
        round_trips: figures.round_trips,
        wal_bytes: figures.own.map(|own| own.wal_bytes),
        deliveries: figures.own.map(|own| own.deliveries),
        newest_at_start: match store.anchor() {
            Anchor::NotBefore(newest) => Some(newest.to_string()),
            Anchor::At(_) => None,
        },
    }
}
