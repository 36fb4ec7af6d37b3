//! Configuration in two steps: as written (`raw.rs`), and as usable (here). All problems are told at once.

mod place;
mod raw;
mod snapshot;
mod sources;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use snavio_model::bounds;
use snavio_model::limit::fair::Room;
use snavio_model::ordering::OrderDefaults;
use snavio_model::registry::DispatchMode;
use snavio_model::registry::age::AgeLimits;
use snavio_sink::Network;
use snavio_store::engine::postgres;
use snavio_store::objects::Place;
use zeroize::Zeroizing;

use crate::host::Hosts;
use crate::platform::{OPERATOR_TOKEN_FILE, PLATFORM_KEY_FILE};
use crate::platform_key::KeySource;
pub use snapshot::SnapshotConfig;
use sources::without_password;
pub use sources::{CLIENT_VARIABLES, Sources};

/// Where a node over a database keeps the platform's secrets, unless it is told otherwise.
const DATA_FOLDER: &str = "./snavio-data";

/// The default configuration, with every setting explained.
pub const DEFAULT: &str = include_str!("default.toml");

/// A configuration that can be used.
#[derive(Debug, Clone)]
pub struct Config {
    /// The HTTP server.
    pub server: ServerConfig,
    /// Where metrics and status need no token.
    pub admin_listen: Option<SocketAddr>,
    /// The engine.
    pub store: StoreConfig,
    /// Where the node keeps files of its own.
    pub data_folder: PathBuf,
    /// Whether to serve over an engine that cannot keep its promise.
    pub relaxed: bool,
    /// Free bytes of the data folder's disk below which the node is not ready.
    pub disk_free_bytes_min: u64,
    /// Deliveries that one queue may hold.
    pub queue_depth_max: usize,
    /// The pipeline.
    pub gate: snavio_gate::Settings,
    /// The largest message.
    pub body_bytes_max: usize,
    /// Snapshots of the registry, if there are any.
    pub snapshot: Option<SnapshotConfig>,
    /// Where what is kept for years is moved to, if anywhere.
    pub archive: Option<Place>,
    /// Whether keys are renewed on schedule.
    pub rotate_keys: bool,
    /// The platform key, and another that may be known beside it.
    pub platform_keys: Vec<KeySource>,
    /// The operator token's file.
    pub operator_token_file: PathBuf,
    /// Addresses that may be called though they are not public.
    pub outgoing_allowed: Vec<Network>,
    /// What is logged.
    pub log_filter: String,
    /// Whether logs are JSON.
    pub log_json: bool,
}

/// Which engine, and how it is opened.
#[derive(Debug, Clone)]
pub enum StoreConfig {
    /// Files in the data folder.
    Embedded {
        /// Whether commits are flushed.
        flush: bool,
    },
    /// A database that other nodes may share.
    Postgres {
        /// Where it is.
        url: postgres::Url,
        /// Certificates to trust.
        ca_file: Option<PathBuf>,
        /// Connections of this node.
        connections_max: usize,
        /// Commits under way at the same time.
        batches_at_once: usize,
    },
}

/// Settings of the HTTP server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Host names it answers to.
    pub(crate) hosts: Hosts,
    /// Certificate chain and key.
    pub tls: Option<TlsConfig>,
    /// Connections at the same time.
    pub connections_max: usize,
    /// Requests at the same time.
    pub requests_max: usize,
    /// Bytes of bodies at the same time.
    pub bodies_bytes_max: usize,
    /// Time for headers.
    pub header_timeout: Duration,
    /// Time for each part of a body.
    pub body_timeout: Duration,
    /// Time for others to see that the node is about to stop.
    pub leave: Duration,
    /// Time for requests under way at a stop.
    pub drain: Duration,
}

/// Files for TLS.
#[derive(Debug, Clone)]
pub struct TlsConfig {
    /// Certificate chain.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
    /// Who may sign client certificates.
    pub client_ca: Option<PathBuf>,
}

/// What is wrong with a configuration: one line per problem.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct ConfigProblems(pub Vec<String>);

impl Config {
    /// Reads the configuration from its sources.
    pub fn load(sources: &Sources) -> Result<Self, ConfigProblems> {
        let table = sources.merge()?;
        let raw: raw::Raw = table
            .try_into()
            .map_err(|error: toml::de::Error| ConfigProblems(vec![error.message().to_owned()]))?;
        let mut config = Self::check(raw)?;
        let places = config.snapshot.iter_mut().map(|it| &mut it.place).chain(&mut config.archive);
        places.for_each(|place| place::know_environment(place, &sources.environment));
        Ok(config)
    }

    fn check(raw: raw::Raw) -> Result<Self, ConfigProblems> {
        let mut problems = Vec::new();
        let (store, data_folder) = store(&raw.store, &mut problems);
        let snapshot = snapshot::usable(&raw.snapshot, &mut problems);
        let archive = (!raw.archive.url.is_empty()).then(|| {
            let raw::Archive { url, region, endpoint } = &raw.archive;
            place::usable("archive", url, region, endpoint, &mut problems)
        });
        let mut within = |name: &str, value: usize, least: usize, most: usize| {
            if !(least..=most).contains(&value) {
                problems.push(format!("{name} is {value}; use {least} to {most}"));
            }
        };
        within("gate.body_bytes_max", raw.gate.body_bytes_max, 1024, bounds::BODY_BYTES_MAX);
        let window_max = bounds::REPLAY_WINDOW_MAX.as_secs() as usize;
        within("gate.replay_window_seconds", raw.gate.replay_window_seconds, 1, window_max);
        within("gate.route_stale_seconds", raw.gate.route_stale_seconds, 2, 600);
        within("gate.route_fresh_seconds", raw.gate.route_fresh_seconds, 1, raw.gate.route_stale_seconds);
        within("gate.intake_messages_max", raw.gate.intake_messages_max, 4, 10_000_000);
        within("gate.intake_bytes_max", raw.gate.intake_bytes_max, 4 << 20, 64 << 30);
        within("order.ttl_hours", raw.order.ttl_hours, 1, (bounds::ORDER_TTL_MAX.as_secs() / 3600) as usize);
        within("store.connections_max", raw.store.connections_max, 2, 1_000);
        within("store.batches_at_once", raw.store.batches_at_once, 1, 16);
        within("store.queue_depth_max", raw.store.queue_depth_max, 1, 1_000_000_000);
        within("server.connections_max", raw.server.connections_max, 1, 1_000_000);
        within("server.requests_max", raw.server.requests_max, 4, 10_000_000);
        // One tenant's part must hold a batch.
        let bodies_min = bounds::BATCH_BYTES_MAX * bounds::TENANT_PART;
        within("server.bodies_bytes_max", raw.server.bodies_bytes_max, bodies_min, 64 << 30);
        within("server.header_timeout_seconds", raw.server.header_timeout_seconds, 1, 3600);
        within("server.body_timeout_seconds", raw.server.body_timeout_seconds, 1, 3600);
        within("server.leave_seconds", raw.server.leave_seconds, 0, 3600);
        within("server.drain_seconds", raw.server.drain_seconds, 0, 3600);
        let listen = address("server.listen", &raw.server.listen, &mut problems);
        let admin_listen = match raw.admin.listen.as_str() {
            "" => None,
            text => address("admin.listen", text, &mut problems),
        };
        if let (Some(api), Some(admin)) = (listen, admin_listen)
            && overlap(api, admin)
        {
            problems.push(format!(
                "admin.listen is {admin} and server.listen is {api}: one port of one address; give one of them another port"
            ));
        }
        let dispatch = match raw.gate.dispatch.as_str() {
            "adaptive" => DispatchMode::Adaptive,
            "cold-only" => DispatchMode::ColdOnly,
            other => {
                problems.push(format!("gate.dispatch is {other:?}; use \"adaptive\" or \"cold-only\""));
                DispatchMode::Adaptive
            }
        };
        if !matches!(raw.log.format.as_str(), "text" | "json") {
            problems.push(format!("log.format is {:?}; use \"text\" or \"json\"", raw.log.format));
        }
        for (key, file, name) in [
            (&raw.platform.key, &raw.platform.key_file, "platform.key"),
            (&raw.platform.second_key, &raw.platform.second_key_file, "platform.second_key"),
        ] {
            if !key.is_empty() && !file.is_empty() {
                problems.push(format!("{name} and {name}_file are given; give one of them"));
            }
        }
        let tls = tls(&raw.server, &mut problems);
        let hosts = Hosts::new(&raw.server.hosts).unwrap_or_else(|name| {
            problems.push(format!("server.hosts holds {name:?}; use a host name, or name:port"));
            Hosts::default()
        });
        let mut outgoing_allowed = Vec::new();
        for text in &raw.outgoing.allowed {
            match Network::parse(text) {
                Some(network) => outgoing_allowed.push(network),
                None => {
                    problems.push(format!("outgoing.allowed holds {text:?}; use 10.1.0.0/16, or an address"));
                }
            }
        }
        let (Some(listen), true) = (listen, problems.is_empty()) else {
            return Err(ConfigProblems(problems));
        };
        let in_folder = |text: &str, name: &str| match text {
            "" => data_folder.join(name),
            text => PathBuf::from(text),
        };
        Ok(Self {
            platform_keys: platform_keys(&raw.platform, data_folder.join(PLATFORM_KEY_FILE)),
            operator_token_file: in_folder(&raw.platform.operator_token_file, OPERATOR_TOKEN_FILE),
            server: ServerConfig {
                listen,
                hosts,
                tls,
                connections_max: raw.server.connections_max,
                requests_max: raw.server.requests_max,
                bodies_bytes_max: raw.server.bodies_bytes_max,
                header_timeout: Duration::from_secs(raw.server.header_timeout_seconds as u64),
                body_timeout: Duration::from_secs(raw.server.body_timeout_seconds as u64),
                leave: Duration::from_secs(raw.server.leave_seconds as u64),
                drain: Duration::from_secs(raw.server.drain_seconds as u64),
            },
            admin_listen,
            outgoing_allowed,
            store,
            relaxed: raw.store.relaxed,
            disk_free_bytes_min: raw.store.disk_free_bytes_min,
            queue_depth_max: raw.store.queue_depth_max,
            gate: snavio_gate::Settings {
                window: Duration::from_secs(raw.gate.replay_window_seconds as u64),
                dispatch,
                room: Room {
                    items_max: raw.gate.intake_messages_max,
                    bytes_max: raw.gate.intake_bytes_max,
                    tenant_part: bounds::TENANT_PART,
                },
                node: String::new(),
                route_ages: AgeLimits {
                    fresh: Duration::from_secs(raw.gate.route_fresh_seconds as u64),
                    stale: Duration::from_secs(raw.gate.route_stale_seconds as u64),
                    ..AgeLimits::of_routes()
                },
                order: OrderDefaults {
                    enabled: raw.order.enabled,
                    strict: raw.order.strict,
                    ttl: Duration::from_secs(raw.order.ttl_hours as u64 * 3600),
                },
                ..snavio_gate::Settings::default()
            },
            body_bytes_max: raw.gate.body_bytes_max,
            snapshot,
            archive,
            rotate_keys: raw.keys.rotate,
            log_filter: raw.log.filter,
            log_json: raw.log.format == "json",
            data_folder,
        })
    }
}

/// The engine, and the folder for the node's own files.
fn store(raw: &raw::Store, problems: &mut Vec<String>) -> (StoreConfig, PathBuf) {
    if raw.url.starts_with("postgres://") || raw.url.starts_with("postgresql://") {
        let ca_file = (!raw.ca_file.is_empty()).then(|| PathBuf::from(&raw.ca_file));
        let (connections_max, batches_at_once) = (raw.connections_max, raw.batches_at_once);
        // Two for heartbeat, leases, registry and sweeps, one for receives, acknowledgements and readers.
        let least = batches_at_once.saturating_add(3);
        if connections_max < least {
            problems.push(format!(
                "store.connections_max is {connections_max}; use at least {least}, three more than store.batches_at_once"
            ));
        }
        let store =
            StoreConfig::Postgres { url: raw.url.clone().into(), ca_file, connections_max, batches_at_once };
        return (store, DATA_FOLDER.into());
    }
    let folder = raw.url.strip_prefix("embedded:").filter(|folder| !folder.is_empty());
    if folder.is_none() {
        problems.push(format!(
            "store.url is {:?}; use embedded:<data folder> or postgres://user:password@host:port/database",
            without_password(&raw.url)
        ));
    }
    (StoreConfig::Embedded { flush: raw.flush }, folder.unwrap_or_default().into())
}

/// The platform key and, where one is given, the second.
fn platform_keys(raw: &raw::Platform, default: PathBuf) -> Vec<KeySource> {
    let source = |name, text: &Zeroizing<String>, file: &str| match (text.is_empty(), file.is_empty()) {
        (false, _) => Some(KeySource::Setting { name, text: text.clone() }),
        (true, false) => Some(KeySource::File(file.into())),
        (true, true) => None,
    };
    let first = source("platform.key", &raw.key, &raw.key_file).unwrap_or(KeySource::File(default));
    let second = source("platform.second_key", &raw.second_key, &raw.second_key_file);
    std::iter::once(first).chain(second).collect()
}

fn address(name: &str, text: &str, problems: &mut Vec<String>) -> Option<SocketAddr> {
    let parsed = text.parse().ok();
    if parsed.is_none() {
        problems.push(format!("{name} is {text:?}; use address:port, for example 127.0.0.1:8080"));
    }
    parsed
}

/// Whether two listeners would share a port. Binding does not tell: both may bind before either listens.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let [one_ip, other_ip] = [one, other].map(|address| address.ip().to_canonical());
    let is_shared = one_ip == other_ip || one_ip.is_unspecified() || other_ip.is_unspecified();
    is_shared && one.port() == other.port() && one.port() != 0
}

fn tls(server: &raw::Server, problems: &mut Vec<String>) -> Option<TlsConfig> {
    match (server.tls_cert.as_str(), server.tls_key.as_str()) {
        ("", "") if server.tls_client_ca.is_empty() => None,
        (cert, key) if !cert.is_empty() && !key.is_empty() => {
            let client_ca = (!server.tls_client_ca.is_empty()).then(|| PathBuf::from(&server.tls_client_ca));
            Some(TlsConfig { cert: cert.into(), key: key.into(), client_ca })
        }
        _ => {
            problems.push("server.tls_cert and server.tls_key go together".to_owned());
            None
        }
    }
}

#[cfg(test)]
mod tests;
