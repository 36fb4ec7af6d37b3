//! The node under load: a child process on a temporary store, or one that runs already.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::{Api, Credentials};

use super::process::Running;
use super::{clock, machine};
use crate::cmd::Failure;

/// Claims of the bench's strict route stay until the end: 30 days, the most that a route may ask for.
const KEEP_SECONDS: u32 = 30 * 86_400;
/// Deliveries that nobody consumes pile up; the bench must not meet the limit that protects a real node.
pub(super) const QUEUE_DEPTH_MAX: &str = "1000000000";
/// How long a node may take to learn what another was told.
const IN_STEP_MAX: Duration = Duration::from_secs(10);

/// What a node under load keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeps {
    /// Everything, as in production.
    Everything,
    /// Nothing: the same server without a store.
    Nothing,
}

/// What is under load: a node, or several over one store.
pub(super) struct Target {
    /// Of the first node, which is asked for what all of them know.
    pub(super) address: SocketAddr,
    pub(super) host: String,
    nodes: Vec<Node>,
    folder: Option<tempfile::TempDir>,
}

struct Node {
    operator: Api,
    address: SocketAddr,
    pid: Option<u32>,
    _process: Option<Running>,
}

impl Target {
    /// Starts a node of this very program in a process of its own.
    pub(super) fn start(keeps: Keeps) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("snavio-bench-").tempdir()?;
        let data = folder.path().join("data");
        std::fs::create_dir(&data)?;
        let mut command = Command::new(std::env::current_exe()?);
        match keeps {
            Keeps::Everything => command.arg("serve"),
            Keeps::Nothing => command.args(["bench", "--serve-without-store"]),
        };
        command.args(["--listen", "127.0.0.1:0", "--data"]).arg(&data);
        let node = Node::start(&mut command, &data)?;
        Self::of(vec![node], Some(folder))
    }

    /// Starts so many nodes over a database, with one platform key and one operator's token.
    pub(super) fn start_fleet(size: usize, database: &str) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("snavio-bench-").tempdir()?;
        let keys = folder.path();
        let start = |_| {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["serve", "--listen", "127.0.0.1:0", "--store", database]).current_dir(keys);
            command.env("SNAVIO_PLATFORM_KEY_FILE", keys.join("platform.key"));
            command.env("SNAVIO_PLATFORM_OPERATOR_TOKEN_FILE", keys.join(snavio_server::OPERATOR_TOKEN_FILE));
            Node::start(&mut command, keys)
        };
        let nodes = (0..size).map(start).collect::<Result<_, _>>()?;
        Self::of(nodes, Some(folder))
    }

    fn of(nodes: Vec<Node>, folder: Option<tempfile::TempDir>) -> Result<Self, Failure> {
        let first = nodes.first().ok_or_else(|| Failure::new("a fleet without nodes"))?;
        let (host, address) = resolve(first.operator.base())?;
        Ok(Self { address, host, nodes, folder })
    }

    /// A node that runs already. Its process is only known if it is on this machine and was named.
    pub(super) fn running(operator: Api, pid: Option<u32>) -> Result<Self, Failure> {
        let (_, address) = resolve(operator.base())?;
        Self::of(vec![Node { operator, address, pid, _process: None }], None)
    }

    /// Bytes of the embedded store's files, if it has any.
    pub(super) fn store_bytes(&self) -> Option<u64> {
        let data = self.folder.as_ref()?.path().join("data");
        let files = std::fs::read_dir(data).ok()?.filter_map(Result::ok);
        let store = files.filter(|it| it.file_name().to_string_lossy().starts_with("snavio.db"));
        Some(store.filter_map(|it| it.metadata().ok()).map(|it| it.len()).sum())
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.address).collect()
    }

    /// Of all nodes together.
    pub(super) fn processor_time(&self) -> Option<Duration> {
        self.nodes.iter().map(|node| machine::processor_time(node.pid?)).sum()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.nodes.iter().find_map(|node| node.pid)
    }

    /// The operator at each node.
    pub(super) fn operators(&self) -> Vec<&Api> {
        self.nodes.iter().map(|node| &node.operator).collect()
    }

    fn operator(&self) -> &Api {
        &self.nodes[0].operator
    }

    /// What all nodes together have done so far.
    pub(super) async fn figures(&self) -> Result<Figures, Failure> {
        let mut sum = Figures::default();
        for node in &self.nodes {
            let status = node.operator.call(Method::GET, "/v1/status", None).await?;
            let figure = |name: &str| status["store"][name].as_u64().unwrap_or(0);
            sum.commits += figure("commits");
            sum.messages += figure("messages");
            sum.round_trips += figure("round_trips");
        }
        Ok(sum)
    }

    /// Waits until every node knows the registry's newest version.
    pub(super) async fn in_step(&self) -> Result<(), Failure> {
        let until = clock::now() + IN_STEP_MAX;
        for node in &self.nodes {
            while node.operator.call(Method::GET, "/v1/status", None).await?["registry_lag"] != 0 {
                if clock::now() > until {
                    return Err(Failure::new("a node does not learn what another was told"));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }

    /// Registers a tenant of its own, with a producer, a worker and a route per claim policy.
    pub(super) async fn cast(&self) -> Result<Cast, Failure> {
        let tenant = format!("bench-{:08x}", u32::from_le_bytes(snavio_server::random()));
        let (producer, worker) = (format!("{tenant}/producer"), format!("{tenant}/worker"));
        let route = |policy: Policy| {
            json!({
                "target": worker, "name": policy.command(), "queue": policy.queue(),
                "dead_letter_queue": "dead", "claim": policy.claim(), "receives_max": 1000,
            })
        };
        let grant =
            |policy: Policy| json!({ "source": producer, "target": worker, "name": policy.command() });
        let registry = json!({
            "tenants": [{ "name": tenant }],
            "services": [{ "name": producer }, { "name": worker }],
            "routes": Policy::ALL.map(route),
            "grants": Policy::ALL.map(grant),
            "why": "snavio bench",
        });
        let answer = self.operator().call(Method::POST, "/v1/registry/apply", Some(&registry)).await?;
        self.in_step().await?;
        let credentials: Vec<Credentials> = serde_json::from_value(answer["credentials"].clone())?;
        let [producer, worker] = <[_; 2]>::try_from(credentials)
            .map_err(|_| Failure::new("the node did not answer with the credentials of two services"))?;
        Ok(Cast { producer, worker })
    }

    /// A token of a service.
    pub(super) async fn token(&self, credentials: &Credentials) -> Result<String, Failure> {
        let form = format!(
            "grant_type=client_credentials&client_id={}&client_secret={}",
            credentials.client_id, credentials.client_secret
        );
        let content_type = "application/x-www-form-urlencoded";
        let body = Some(form.into_bytes());
        let anybody = Api::new(self.operator().base(), None)?;
        let (_, answer) = anybody.send(Method::POST, "/v1/token", body, content_type).await?;
        let token = answer["access_token"].as_str();
        Ok(token.ok_or_else(|| Failure::new("the node gave no token"))?.to_owned())
    }
}

impl Node {
    /// Starts a node that keeps its operator's token in a folder.
    fn start(command: &mut Command, folder: &Path) -> Result<Self, Failure> {
        command.env("SNAVIO_STORE_QUEUE_DEPTH_MAX", QUEUE_DEPTH_MAX).env("SNAVIO_LOG_FILTER", "error");
        // Processors of the bench are on this machine.
        command.env("SNAVIO_OUTGOING_ALLOWED", "127.0.0.0/8");
        let (process, url) = Running::start_and_read(command, " is serving ")?;
        let token = std::fs::read_to_string(folder.join(snavio_server::OPERATOR_TOKEN_FILE))?;
        let operator = Api::new(&url, None)?.with_token(token.trim());
        let (_, address) = resolve(&url)?;
        Ok(Self { operator, address, pid: Some(process.pid()), _process: Some(process) })
    }
}

/// What a store says it has done since its start.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Figures {
    pub(super) commits: u64,
    pub(super) messages: u64,
    pub(super) round_trips: u64,
}

impl Figures {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            commits: self.commits - before.commits,
            messages: self.messages - before.messages,
            round_trips: self.round_trips - before.round_trips,
        }
    }
}

/// Who takes part.
pub(super) struct Cast {
    pub(super) producer: Credentials,
    pub(super) worker: Credentials,
}

/// How the route under load treats repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Policy {
    /// No claim.
    None,
    /// A claim per id.
    Strict,
    /// A claim per id with its content, for seven years.
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
