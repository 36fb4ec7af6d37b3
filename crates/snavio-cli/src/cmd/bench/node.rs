//! The node under load: a child process on a temporary store, or a node that is already running.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::{Api, Credentials};

use super::process::ServerProcess;
use super::{clock, machine};
use crate::cmd::Failure;

/// The time for which the bench's strict route keeps its claims: 30 days, the maximum for a route, so that no
/// claim expires during the bench.
const KEEP_SECONDS: u32 = 30 * 86_400;
/// Deliveries without a consumer accumulate. This setting disables the depth limit that protects a real node.
pub(super) const QUEUE_DEPTH_MAX: &str = "1000000000";
/// The longest time in which a node follows a change on another node.
const SYNC_MAX: Duration = Duration::from_secs(10);

/// The store of the node under load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreMode {
    /// The embedded store, as in production.
    Embedded,
    /// The same server over a store that keeps nothing.
    Null,
}

/// The system under load: one node, or several over one store.
pub(super) struct Target {
    /// The address of the first node.
    pub(super) address: SocketAddr,
    pub(super) host: String,
    nodes: Vec<Node>,
    folder: Option<tempfile::TempDir>,
}

struct Node {
    operator: Api,
    address: SocketAddr,
    pid: Option<u32>,
    _process: Option<ServerProcess>,
}

impl Target {
    /// Starts this program as a node, in another process.
    pub(super) fn start(mode: StoreMode) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("snavio-bench-").tempdir()?;
        let data = folder.path().join("data");
        std::fs::create_dir(&data)?;
        let mut command = Command::new(std::env::current_exe()?);
        match mode {
            StoreMode::Embedded => command.arg("serve"),
            StoreMode::Null => command.args(["bench", "--serve-without-store"]),
        };
        command.args(["--listen", "127.0.0.1:0", "--data"]).arg(&data);
        let node = Node::start(&mut command, &data)?;
        Self::of(vec![node], Some(folder))
    }

    /// Starts nodes over a database, all with the same platform key and the same operator token.
    pub(super) fn start_fleet(size: usize, database: &str) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("snavio-bench-").tempdir()?;
        let nodes = (0..size).map(|_| Node::start_over_database(database, folder.path()));
        let nodes = nodes.collect::<Result<_, _>>()?;
        Self::of(nodes, Some(folder))
    }

    fn of(nodes: Vec<Node>, folder: Option<tempfile::TempDir>) -> Result<Self, Failure> {
        let first = nodes.first().ok_or_else(|| Failure::new("a fleet needs at least one node"))?;
        let (host, address) = resolve(first.operator.base())?;
        Ok(Self { address, host, nodes, folder })
    }

    /// A node that is already running. Its processor time and memory are measured only with a process id.
    pub(super) fn running(operator: Api, pid: Option<u32>) -> Result<Self, Failure> {
        let (_, address) = resolve(operator.base())?;
        Self::of(vec![Node { operator, address, pid, _process: None }], None)
    }

    /// The size of the files of the embedded store, if there is one.
    pub(super) fn store_bytes(&self) -> Option<u64> {
        let data = self.folder.as_ref()?.path().join("data");
        let files = std::fs::read_dir(data).ok()?.filter_map(Result::ok);
        let store = files.filter(|file| file.file_name().to_string_lossy().starts_with("snavio.db"));
        Some(store.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum())
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.address).collect()
    }

    /// Processor time of all nodes together; none if the process id of one of them is unknown.
    pub(super) fn processor_time(&self) -> Option<Duration> {
        self.nodes.iter().map(|node| machine::processor_time(node.pid?)).sum()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.nodes.iter().find_map(|node| node.pid)
    }

    /// The operator's connection to each node.
    pub(super) fn operators(&self) -> Vec<&Api> {
        self.nodes.iter().map(|node| &node.operator).collect()
    }

    fn operator(&self) -> &Api {
        &self.nodes[0].operator
    }

    /// The sums of the stores' counts over all nodes.
    pub(super) async fn read_counts(&self) -> Result<StoreCounts, Failure> {
        let mut sum = StoreCounts::default();
        for node in &self.nodes {
            let status = node.operator.call(Method::GET, "/v1/status", None).await?;
            let count = |name: &str| status["store"][name].as_u64().unwrap_or(0);
            sum.commits += count("commits");
            sum.messages += count("messages");
            sum.round_trips += count("round_trips");
        }
        Ok(sum)
    }

    /// Waits until every node has the newest version of the registry.
    pub(super) async fn wait_for_sync(&self) -> Result<(), Failure> {
        let until = clock::now() + SYNC_MAX;
        for node in &self.nodes {
            while node.operator.call(Method::GET, "/v1/status", None).await?["registry_lag"] != 0 {
                if clock::now() > until {
                    return Err(Failure::new(format!(
                        "the node at {} does not have the newest registry version after {} s",
                        node.address,
                        SYNC_MAX.as_secs()
                    )));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }

    /// Registers a new tenant with a producer, a worker and a route for each claim policy.
    pub(super) async fn register_tenant(&self) -> Result<BenchTenant, Failure> {
        let tenant = format!("bench-{:08x}", u32::from_le_bytes(snavio_server::random()));
        let (producer, worker) = (format!("{tenant}/producer"), format!("{tenant}/worker"));
        let routes = Policy::ALL.map(|policy| {
            json!({
                "target": worker, "name": policy.command(), "queue": policy.queue(),
                "dead_letter_queue": "dead", "claim": policy.claim(), "receives_max": 1000,
            })
        });
        let grants = Policy::ALL
            .map(|policy| json!({ "source": producer, "target": worker, "name": policy.command() }));
        let registry = json!({
            "tenants": [{ "name": tenant }],
            "services": [{ "name": producer }, { "name": worker }],
            "routes": routes,
            "grants": grants,
            "why": "snavio bench",
        });
        let answer = self.operator().call(Method::POST, "/v1/registry/apply", Some(&registry)).await?;
        self.wait_for_sync().await?;
        let credentials: Vec<Credentials> = serde_json::from_value(answer["credentials"].clone())?;
        let [producer, worker] = <[_; 2]>::try_from(credentials)
            .map_err(|_| Failure::new("the node did not return the credentials of two services"))?;
        Ok(BenchTenant { producer, worker })
    }

    /// Gets an access token for a service.
    pub(super) async fn token(&self, credentials: &Credentials) -> Result<String, Failure> {
        let form = format!(
            "grant_type=client_credentials&client_id={}&client_secret={}",
            credentials.client_id, credentials.client_secret
        );
        let content_type = "application/x-www-form-urlencoded";
        let body = Some(form.into_bytes());
        let api = Api::new(self.operator().base(), None)?;
        let (_, answer) = api.send(Method::POST, "/v1/token", body, content_type).await?;
        let token = answer["access_token"].as_str();
        let token = token.ok_or_else(|| Failure::new("the node's response contains no access_token"))?;
        Ok(token.to_owned())
    }
}

impl Node {
    /// Starts a node over a database, with its platform key and operator token in the folder `keys`.
    fn start_over_database(database: &str, keys: &Path) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--listen", "127.0.0.1:0", "--store", database]).current_dir(keys);
        command.env("SNAVIO_PLATFORM_KEY_FILE", keys.join("platform.key"));
        command.env("SNAVIO_PLATFORM_OPERATOR_TOKEN_FILE", keys.join(snavio_server::OPERATOR_TOKEN_FILE));
        Self::start(&mut command, keys)
    }

    /// Starts a node whose operator token is in `folder`.
    fn start(command: &mut Command, folder: &Path) -> Result<Self, Failure> {
        command.env("SNAVIO_STORE_QUEUE_DEPTH_MAX", QUEUE_DEPTH_MAX).env("SNAVIO_LOG_FILTER", "error");
        // The processors and receivers of the bench are on this machine.
        command.env("SNAVIO_OUTGOING_ALLOWED", "127.0.0.0/8");
        let (process, url) = ServerProcess::start_and_read(command, " is serving ")?;
        let token = std::fs::read_to_string(folder.join(snavio_server::OPERATOR_TOKEN_FILE))?;
        let operator = Api::new(&url, None)?.with_token(token.trim());
        let (_, address) = resolve(&url)?;
        Ok(Self { operator, address, pid: Some(process.pid()), _process: Some(process) })
    }
}

/// The counts of a store since its start.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StoreCounts {
    pub(super) commits: u64,
    pub(super) messages: u64,
    pub(super) round_trips: u64,
}

impl StoreCounts {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            commits: self.commits - before.commits,
            messages: self.messages - before.messages,
            round_trips: self.round_trips - before.round_trips,
        }
    }
}

/// A tenant of the bench, with the credentials of its services.
pub(super) struct BenchTenant {
    pub(super) producer: Credentials,
    pub(super) worker: Credentials,
}

/// The claim policy of the route under load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Policy {
    /// The gateway keeps no claims.
    None,
    /// The gateway keeps a claim for each id.
    Strict,
    /// The gateway keeps a claim for each id, with its content, for seven years.
    Ledger,
}

impl Policy {
    const ALL: [Self; 3] = [Self::None, Self::Strict, Self::Ledger];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Strict => "strict",
            Self::Ledger => "ledger",
        }
    }

    pub(super) fn command(self) -> &'static str {
        match self {
            Self::None => "note",
            Self::Strict => "order",
            Self::Ledger => "entry",
        }
    }

    pub(super) fn queue(self) -> &'static str {
        match self {
            Self::None => "notes",
            Self::Strict => "orders",
            Self::Ledger => "entries",
        }
    }

    fn claim(self) -> Value {
        match self {
            Self::None => json!({ "policy": "none" }),
            Self::Strict => json!({ "policy": "strict", "keep_seconds": KEEP_SECONDS }),
            Self::Ledger => json!({ "policy": "ledger" }),
        }
    }
}

fn resolve(url: &str) -> Result<(String, SocketAddr), Failure> {
    let host = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
    let host = host.ok_or_else(|| Failure::new(format!("{url} is not http://host:port")))?;
    let found = host.to_socket_addrs().ok().and_then(|mut found| found.next());
    let address = found.ok_or_else(|| Failure::new(format!("{url} is not http://host:port")))?;
    Ok((host.to_owned(), address))
}
