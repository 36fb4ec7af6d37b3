//! The configuration as written: one struct per section, the same names as in `default.toml`.

use serde::Deserialize;
use zeroize::Zeroizing;

#[derive(Deserialize)]
pub(super) struct Raw {
    pub(super) server: Server,
    pub(super) admin: Admin,
    pub(super) store: Store,
    pub(super) gate: Gate,
    pub(super) order: Order,
    pub(super) snapshot: Snapshot,
    pub(super) archive: Archive,
    pub(super) keys: Keys,
    pub(super) platform: Platform,
    pub(super) outgoing: Outgoing,
    pub(super) log: Log,
}

#[derive(Debug, Deserialize)]
pub(super) struct Server {
    pub(super) listen: String,
    pub(super) hosts: Vec<String>,
    pub(super) tls_cert: String,
    pub(super) tls_key: String,
    pub(super) tls_client_ca: String,
    pub(super) connections_max: usize,
    pub(super) requests_max: usize,
    pub(super) bodies_bytes_max: usize,
    pub(super) header_timeout_seconds: usize,
    pub(super) body_timeout_seconds: usize,
    pub(super) leave_seconds: usize,
    pub(super) drain_seconds: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct Admin {
    pub(super) listen: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Store {
    pub(super) url: String,
    pub(super) ca_file: String,
    pub(super) connections_max: usize,
    pub(super) batches_at_once: usize,
    pub(super) flush: bool,
    pub(super) relaxed: bool,
    pub(super) queue_depth_max: usize,
    pub(super) disk_free_bytes_min: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Gate {
    pub(super) replay_window_seconds: usize,
    pub(super) dispatch: String,
    pub(super) route_fresh_seconds: usize,
    pub(super) route_stale_seconds: usize,
    pub(super) body_bytes_max: usize,
    pub(super) intake_messages_max: usize,
    pub(super) intake_bytes_max: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct Order {
    pub(super) enabled: bool,
    pub(super) strict: bool,
    pub(super) ttl_hours: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct Snapshot {
    pub(super) url: String,
    pub(super) environment: String,
    pub(super) preload: bool,
    pub(super) interval_seconds: usize,
    pub(super) ttl_seconds: usize,
    pub(super) bytes_max: u64,
    pub(super) region: String,
    pub(super) endpoint: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Archive {
    pub(super) url: String,
    pub(super) region: String,
    pub(super) endpoint: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Keys {
    pub(super) rotate: bool,
}

// Not shown: it may hold keys.
#[derive(Deserialize)]
pub(super) struct Platform {
    pub(super) key: Zeroizing<String>,
    pub(super) key_file: String,
    pub(super) second_key: Zeroizing<String>,
    pub(super) second_key_file: String,
    pub(super) operator_token_file: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Outgoing {
    pub(super) allowed: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Log {
    pub(super) filter: String,
    pub(super) format: String,
}
