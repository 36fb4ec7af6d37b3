//! A node: opens the store, starts the pipeline, serves HTTP, and stops in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::service::TowerToHyperService;
use snavio_gate::{Archive, Gate, Loaded, Snapshots};
use snavio_model::bounds;
use snavio_model::registry::age::JITTER_MAX;
use snavio_model::registry::{NewSecrets, Registry, Sealed};
use snavio_model::time::{Clock, Timestamp};
use snavio_store::engine::postgres;
use snavio_store::engine::postgres::PostgresStore;
use snavio_store::engine::sqlite::{EmbeddedStore, OpenError, Options, Plant};
use snavio_store::objects::{Objects, ObjectsError};
use snavio_store::{Anchor, Durability, NodeSeen, Store, StoreError};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, SnapshotConfig, StoreConfig};
use crate::door::Door;
use crate::failures::Failures;
use crate::http::{self, App, QueueFigures, SharedCount};
use crate::key_sets::KeySets;
use crate::listener::Listener;
use crate::load::{Bounded, Load};
use crate::machine::{CLOCK_DISTANCE_MAX, MachineClock, random, wall};
use crate::member::Member;
use crate::overreach::Overreach;
use crate::platform::{Pinned, Platform, PlatformError};
use crate::platform_key::KeySource;
use crate::polls::Polls;
use crate::principal::Sessions;
use crate::processor::Calls;
use crate::recorder::{keep_up, recorder};
use crate::tls::{self, TlsError};

/// A node that was heard of within this time is taken to run.
pub(crate) const HEARD_LATELY: Duration = Duration::from_secs(10);
/// A wall clock that is further behind the last commit than this needs a person's word.
pub const CLOCK_BEHIND_MAX: Duration = Duration::from_secs(3600);

/// Connections that the system accepts before the node does.
const ACCEPT_BACKLOG: u32 = 1024;
/// How long a node that stops waits for what it is just saying of itself.
const LAST_WORD_MAX: Duration = Duration::from_secs(5);

/// Where a node keeps the highest version of a snapshot that it has verified, within the data folder.
const SNAPSHOT_FLOOR_FILE: &str = "snapshot.floor";

/// Under which name the store keeps the platform key's fingerprint.
pub const PLATFORM_KEY_PIN: &str = "platform_key";
/// And the key of keyed hashes, sealed, once it does not come from the platform key any more.
pub(crate) const HASH_KEY_PIN: &str = "hash_key";
/// How the notes begin that say which keys a node knows, where they are two.
pub(crate) const KNOWS_NOTE: &str = "knows/";

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store did not open.
    #[error("cannot open the store")]
    Open(#[from] OpenError),
    /// The database cannot be used.
    #[error("cannot open the store")]
    Postgres(#[from] postgres::OpenError),
    /// The store did not answer.
    #[error("cannot read the store")]
    Store(#[from] StoreError),
    /// The platform's secrets cannot be used.
    #[error("cannot use the platform's secrets")]
    Platform(#[from] PlatformError),
    /// The address is taken, or not ours.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// The place of snapshots cannot be used.
    #[error("cannot use snapshot.url")]
    Snapshots(#[from] ObjectsError),
    /// Certificate and key cannot be used.
    #[error("cannot serve TLS")]
    Tls(#[from] TlsError),
    /// The client for outgoing calls cannot be made.
    #[error("cannot make outgoing calls: {0}")]
    Outgoing(String),
    /// PIP-12.
    #[error(
        "the store cannot keep the promise of a 2xx: {0}; set store.relaxed = true to serve all the same"
    )]
    NotDurable(String),
    /// CLM-20.
    #[error(
        "the registry does not go with gate.replay_window_seconds: {0}; shorten the window, start, and change the routes first"
    )]
    Registry(String),
    /// QUA-1.
    #[error(
        "the wall clock says {wall}, but the store was last written at {last}; set the clock, or start with --accept-clock"
    )]
    Clock {
        /// Now, by the wall clock.
        wall: Timestamp,
        /// The last commit.
        last: Timestamp,
    },
    /// QUA-1, ENG-7: by a time that is far ahead, claims would end that other nodes still go by.
    #[error(
        "the wall clock says {wall}, but the database's says {engine}; set the one that is wrong, or, when no other node runs, start with --accept-clock, which goes by the database's"
    )]
    EngineClock {
        /// Now, by the wall clock.
        wall: Timestamp,
        /// Now, by the database's.
        engine: Timestamp,
    },
    /// QUA-1, ENG-7.
    #[error(
        "it is {others} by the node on {node}, which runs, but {engine} by the database's clock; set the database's clock, or stop the other nodes and start with --accept-clock"
    )]
    OtherClock {
        /// Where a node listens that goes by another time.
        node: String,
        /// Now, by that node.
        others: Timestamp,
        /// Now, by the database's.
        engine: Timestamp,
    },
}

/// A running node.
pub struct Node {
    app: Arc<App>,
    address: SocketAddr,
    stop: CancellationToken,
    serving: Vec<tokio::task::JoinHandle<()>>,
    heartbeat: tokio::task::JoinHandle<()>,
    outdated: CancellationToken,
    leaving: CancellationToken,
    leave: Duration,
    drain: Duration,
}

impl Node {
    /// Starts a node.
    pub async fn start(
        config: &Config,
        accept_clock: bool,
        plant: Option<Plant>,
    ) -> Result<Self, StartError> {
        // Before the store: an address that is taken must leave no store behind.
        let listeners = Listeners::open(config)?;
        let store = open(config, plant).await?;
        Self::start_on(listeners, store, config, accept_clock).await
    }

    /// Starts a node over a store that is open already.
    pub async fn start_over(
        store: Arc<dyn Store>,
        config: &Config,
        accept_clock: bool,
    ) -> Result<Self, StartError> {
        Self::start_on(Listeners::open(config)?, store, config, accept_clock).await
    }

    async fn start_on(
        listeners: Listeners,
        store: Arc<dyn Store>,
        config: &Config,
        accept_clock: bool,
    ) -> Result<Self, StartError> {
        check_durability(&*store, config.relaxed)?;
        let clock = Arc::new(clock(store.anchor(), accept_clock)?);
        if !accept_clock && let Anchor::At(engine) = store.anchor() {
            check_others(engine, &store.nodes().await?)?;
        }
        // First of all: what counts before there is a recorder counts for nothing.
        let metrics = recorder();
        let key_sets = KeySets::new(&config.outgoing_allowed)
            .map_err(|error| StartError::Outgoing(error.to_string()))?;
        let processors =
            Calls::new(&config.outgoing_allowed).map_err(|error| StartError::Outgoing(error.to_string()))?;
        let tls = config.server.tls.as_ref().map(tls::acceptor).transpose()?;
        let pinned = pinned(&*store).await?;
        let platform = Platform::open(&config.platform_keys, &config.operator_token_file, &pinned)?;
        let platform = Arc::new(platform);
        let started_at = clock.now();
        let load = Arc::new(Load::new(config.server.requests_max, config.server.bodies_bytes_max));
        let shared_clock: Arc<dyn Clock> = Arc::<MachineClock>::clone(&clock);
        let unseal = Arc::<Platform>::clone(&platform);
        let relaxed = matches!(store.durability(), Durability::Relaxed(_));
        let node = hex::encode(random::<6>());
        let age_jitter = u32::from_le_bytes(random()) % (JITTER_MAX + 1);
        let settings = snavio_gate::Settings { node: node.clone(), age_jitter, ..config.gate.clone() };
        let snapshots = config.snapshot.as_ref().map(|it| snapshots(it, config, &platform)).transpose()?;
        let archive = config.archive.as_ref().map(Objects::open).transpose()?;
        let preloaded = match (&snapshots, &config.snapshot) {
            (Some(snapshots), Some(SnapshotConfig { preload: true, .. })) => {
                snapshots.load(&*store, &*clock, &*unseal).await
            }
            _ => None,
        };
        let loaded = match preloaded {
            Some(loaded) => loaded,
            None => Loaded::from_store(&*store, &*clock, &*unseal).await?,
        };
        let gate = Gate::start_with(loaded, settings, store, shared_clock, unseal).await;
        let checked = match check_registry(&gate.registry(), config) {
            Ok(()) => check_key(&**gate.store(), &platform, config).await,
            problem => problem,
        };
        if let Err(error) = checked {
            gate.stop().await;
            return Err(error);
        }
        // Not before the key is known to be the store's.
        gate.seal_with(Arc::<Platform>::clone(&platform));
        if let Some(snapshots) = snapshots {
            gate.write_snapshots(Arc::new(snapshots));
        }
        if let Some(archive) = archive {
            gate.use_archive(Arc::new(Archive::new(archive, hex::encode(random::<16>()))));
        }
        let processors = Arc::new(processors);
        gate.call_processors(Arc::<Calls>::clone(&processors));
        gate.look_after_keys(
            config.rotate_keys.then(|| Arc::<Platform>::clone(&platform) as Arc<dyn NewSecrets>),
        );
        let stop = CancellationToken::new();
        let draining = CancellationToken::new();
        let app = Arc::new(App {
            gate,
            platform,
            sessions: Sessions::new(
                config.server.requests_max / bounds::TENANT_PART,
                config.server.bodies_bytes_max / bounds::TENANT_PART,
            ),
            load: Arc::clone(&load),
            hook_bodies: Bounded::new(config.server.bodies_bytes_max / bounds::TENANT_PART),
            failures: Failures::default(),
            polls: Polls::default(),
            overreach: Overreach::default(),
            key_sets,
            processors,
            clock,
            body_bytes_max: config.body_bytes_max,
            relaxed,
            metrics: metrics.clone(),
            queue_figures: QueueFigures::default(),
            open_conflicts: SharedCount::default(),
            body_timeout: config.server.body_timeout,
            data_folder: config.data_folder.clone(),
            // A database has its own disk, and its own operators.
            disk_free_bytes_min: match config.store {
                StoreConfig::Embedded { .. } => config.disk_free_bytes_min,
                StoreConfig::Postgres { .. } => 0,
            },
            started_at,
            node,
            draining: draining.clone(),
            stopping: stop.clone(),
        });
        let address = listeners.api.local_addr().unwrap_or(config.server.listen);
        let door = |router, load| {
            Arc::new(Door {
                router: TowerToHyperService::new(router),
                load,
                hosts: config.server.hosts.clone(),
                body_timeout: config.server.body_timeout,
                draining: draining.clone(),
            })
        };
        let listener = Listener {
            door: door(http::router(Arc::clone(&app)), load),
            connections: Arc::new(Semaphore::new(config.server.connections_max)),
            tls,
            header_timeout: config.server.header_timeout,
            drain: config.server.drain,
            stopping: stop.clone(),
        };
        tokio::spawn(keep_up(metrics, stop.clone()));
        let mut serving = vec![tokio::spawn(listener.clone().run(listeners.api))];
        if let Some(socket) = listeners.admin {
            let own = Arc::new(Load::new(bounds::ADMIN_CONNECTIONS_MAX, bounds::BATCH_BYTES_MAX));
            let door = door(http::admin_router(Arc::clone(&app)), own);
            // Few and local: its connections must not wait for those of the API, nor need its certificate.
            let connections = Arc::new(Semaphore::new(bounds::ADMIN_CONNECTIONS_MAX));
            let listener = Listener { door, connections, tls: None, ..listener };
            serving.push(tokio::spawn(listener.run(socket)));
        }
        tell_what_it_knows(&app).await;
        let leaving = CancellationToken::new();
        let outdated = CancellationToken::new();
        let member =
            Member { app: Arc::clone(&app), address, outdated: outdated.clone(), leaving: leaving.clone() };
        // Before it says that it serves: whoever asks for the nodes then finds it.
        member.announce().await;
        let heartbeat = tokio::spawn(member.keep_announcing());
        let (leave, drain) = (config.server.leave, config.server.drain);
        Ok(Self { app, address, stop, serving, heartbeat, outdated, leaving, leave, drain })
    }

    /// Returns when the node cannot go on with its store, which others have brought to a newer layout.
    pub async fn outdated(&self) {
        self.outdated.cancelled().await;
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Says that it leaves and serves on until others have seen it, then takes no more, finishes what is under way,
    /// and closes the store.
    pub async fn stop(self) {
        self.app.draining.cancel();
        self.app.gate.begin_no_more_calls();
        // A node that cannot go on with its store has nothing to serve meanwhile.
        if !self.outdated.is_cancelled() {
            tokio::time::sleep(self.leave).await;
        }
        self.stop.cancel();
        let served = async {
            for task in self.serving {
                let _ = tokio::time::timeout(self.drain + Duration::from_secs(1), task).await;
            }
        };
        tokio::join!(served, self.app.gate.end_calls(self.drain));
        self.leaving.cancel();
        let _ = tokio::time::timeout(LAST_WORD_MAX, self.heartbeat).await;
        self.app.gate.stop().await;
    }
}

/// The node's clock.
fn clock(anchor: Anchor, accepted: bool) -> Result<MachineClock, StartError> {
    let wall = wall();
    let clock = MachineClock::at(first_time(anchor, wall, accepted)?);
    match anchor {
        Anchor::NotBefore(last) if last > wall => {
            let seconds = last.since(wall).as_secs();
            tracing::warn!(seconds, %last, accepted, "the wall clock is behind the store's last commit");
        }
        Anchor::At(engine) if engine.skew(wall) > CLOCK_DISTANCE_MAX => {
            tracing::warn!(%wall, %engine, accepted, "the wall clock is away from the database's");
        }
        _ => {}
    }
    Ok(if accepted { clock.accepted() } else { clock })
}

/// Where a node's time begins. A wall clock that was set back while the node was down is waited for up to an hour;
/// one that is away from the engine's makes one of the two wrong. Past that the node does not start, unless a person
/// accepts the wall clock, or the engine's where there is one, which then counts.
fn first_time(anchor: Anchor, wall: Timestamp, accepted: bool) -> Result<Timestamp, StartError> {
    match anchor {
        Anchor::NotBefore(_) if accepted => Ok(wall),
        Anchor::NotBefore(last) if last.since(wall) > CLOCK_BEHIND_MAX => {
            Err(StartError::Clock { wall, last })
        }
        Anchor::NotBefore(last) => Ok(wall.max(last)),
        Anchor::At(engine) if engine.skew(wall) > CLOCK_DISTANCE_MAX && !accepted => {
            Err(StartError::EngineClock { wall, engine })
        }
        Anchor::At(engine) => Ok(engine),
    }
}

/// Nodes that run go by the time they began with, whatever the engine's clock did since: one that starts must not
/// begin with another.
fn check_others(engine: Timestamp, nodes: &[NodeSeen]) -> Result<(), StartError> {
    for node in nodes.iter().filter(|node| node.silent_for < HEARD_LATELY) {
        let others = node.state.now.plus(node.silent_for);
        if others.skew(engine) > CLOCK_DISTANCE_MAX {
            return Err(StartError::OtherClock { node: node.state.address.clone(), others, engine });
        }
    }
    Ok(())
}

/// Where snapshots are, and how they are made.
fn snapshots(
    snapshot: &SnapshotConfig,
    config: &Config,
    platform: &Arc<Platform>,
) -> Result<Snapshots, StartError> {
    Ok(Snapshots {
        objects: Objects::open(&snapshot.place)?,
        keys: Arc::<Platform>::clone(platform),
        environment: snapshot.environment.clone(),
        interval: snapshot.interval,
        ttl: snapshot.ttl,
        bytes_max: snapshot.bytes_max,
        floor_file: config.data_folder.join(SNAPSHOT_FLOOR_FILE),
    })
}

/// Opens the engine that the configuration names.
async fn open(config: &Config, plant: Option<Plant>) -> Result<Arc<dyn Store>, StartError> {
    let queue_depth_max = config.queue_depth_max;
    Ok(match config.store.clone() {
        StoreConfig::Embedded { flush } => {
            let folder = config.data_folder.clone();
            Arc::new(EmbeddedStore::open(&Options { folder, flush, queue_depth_max, plant })?)
        }
        StoreConfig::Postgres { url, ca_file, connections_max, batches_at_once } => {
            let options =
                postgres::Options { url, ca_file, connections_max, batches_at_once, queue_depth_max };
            Arc::new(PostgresStore::open(&options).await?)
        }
    })
}

/// What the store says of its platform's secrets.
async fn pinned(store: &dyn Store) -> Result<Pinned, StoreError> {
    let platform_key = store.pinned(PLATFORM_KEY_PIN).await?;
    let is_new = platform_key.is_none() && store.changes_since(0, 1).await?.is_empty();
    Ok(Pinned { is_new, platform_key, hash_key: store.pinned(HASH_KEY_PIN).await?.map(Sealed) })
}

/// REG-13: a platform key is put in force only once every node that runs has said that it knows it.
async fn tell_what_it_knows(app: &App) {
    let known = app.platform.known();
    if known.len() < 2 {
        return;
    }
    let note = format!("{KNOWS_NOTE}{}", app.node);
    if let Err(error) = app.gate.store().set_note(&note, &known.join(" "), Vec::new()).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the store was not told which platform keys this node knows"
        );
    }
}

/// ENG-7: all nodes of a store have one platform key, and a token or a secret of one is good with all of them.
async fn check_key(store: &dyn Store, platform: &Platform, config: &Config) -> Result<(), StartError> {
    let own = platform.fingerprint();
    let pinned = store.pin(PLATFORM_KEY_PIN, own).await?;
    if pinned == own {
        return Ok(());
    }
    Err(PlatformError::Another { file: key_name(config), pinned, own: own.to_owned() }.into())
}

fn key_name(config: &Config) -> std::path::PathBuf {
    config.platform_keys.first().map(KeySource::name).unwrap_or_default()
}

/// What was registered must still hold together under this configuration.
fn check_registry(registry: &Registry, config: &Config) -> Result<(), StartError> {
    if let Some(key) = registry.unopened_keys().next() {
        let (file, key) = (key_name(config), format!("{} of {}", key.version, key.service));
        return Err(PlatformError::Foreign { file, key }.into());
    }
    match registry.problems(config.gate.window) {
        problems if problems.is_empty() => Ok(()),
        problems => Err(StartError::Registry(problems.join("; "))),
    }
}

fn check_durability(store: &dyn Store, relaxed: bool) -> Result<(), StartError> {
    match store.durability() {
        Durability::Durable => Ok(()),
        Durability::Relaxed(why) if relaxed => {
            tracing::warn!(why, "serving relaxed: an acknowledged message may be lost in a crash");
            Ok(())
        }
        Durability::Relaxed(why) => Err(StartError::NotDurable(why)),
    }
}

/// The listeners of a node. They listen before the store opens: only then are the addresses this node's alone (several
/// sockets can be bound to one address while none listens), and a node that is refused here has made no store. Clients
/// that come before the node serves wait in the backlog; if the start fails, their connections are reset.
struct Listeners {
    api: TcpListener,
    admin: Option<TcpListener>,
}

impl Listeners {
    fn open(config: &Config) -> Result<Self, StartError> {
        let admin = config.admin_listen.map(listen).transpose()?;
        Ok(Self { api: listen(config.server.listen)?, admin })
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    let listening = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Connections of a node before that still end must not keep this one from its address.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(ACCEPT_BACKLOG)
    };
    listening().map_err(|error| StartError::Listen(address, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp(1_800_000_000_000);

    /// QUA-1, ENG-7
    #[test]
    fn a_node_does_not_begin_with_another_time_than_those_that_run() {
        let seen = |now: Timestamp, silent: u64| NodeSeen {
            state: snavio_store::NodeState {
                id: "n".to_owned(),
                started_at: NOON,
                now,
                address: "10.0.0.7:8080".to_owned(),
                software: String::new(),
                registry_version: 0,
                waiting: 0,
                draining: false,
            },
            silent_for: Duration::from_secs(silent),
            leads: Vec::new(),
        };
        let behind = |seconds| NOON.minus(Duration::from_secs(seconds));
        for (node, fits) in [
            (seen(NOON, 0), true),
            (seen(behind(9), 9), true),
            (seen(behind(39), 9), true),
            (seen(behind(40), 9), false),
            (seen(NOON.plus(Duration::from_secs(31)), 0), false),
            (seen(behind(86_400), 10), true),
        ] {
            let checked = check_others(NOON, &[seen(NOON, 1), node.clone()]);
            assert_eq!(checked.is_ok(), fits, "{node:?}: {checked:?}");
        }
    }

    /// QUA-1
    #[test]
    fn a_nodes_time_begins_where_it_is_safe_or_where_a_person_says() {
        let (ahead, behind) = (|s| NOON.plus(Duration::from_secs(s)), |s| NOON.minus(Duration::from_secs(s)));
        let cases = [
            (Anchor::NotBefore(behind(9000)), Some(NOON), NOON),
            (Anchor::NotBefore(ahead(3600)), Some(ahead(3600)), NOON),
            (Anchor::NotBefore(ahead(3601)), None, NOON),
            (Anchor::At(NOON), Some(NOON), NOON),
            (Anchor::At(ahead(30)), Some(ahead(30)), ahead(30)),
            (Anchor::At(behind(30)), Some(behind(30)), behind(30)),
            (Anchor::At(ahead(31)), None, ahead(31)),
            (Anchor::At(behind(31)), None, behind(31)),
        ];
        for (anchor, unasked, accepted) in cases {
            assert_eq!(first_time(anchor, NOON, false).ok(), unasked, "{anchor:?}");
            assert_eq!(first_time(anchor, NOON, true).ok(), Some(accepted), "{anchor:?}");
        }
    }
}
