//! The node under load: a child process on a temporary store, or one that runs already.

use std::net::{SocketAddr, ToSocketAddrs};
use std::process::Command;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::{Api, Credentials};

use super::machine;
use super::process::Running;
use crate::cmd::Failure;

/// Claims of the bench's strict route stay until the end: 30 days, the most that a route may ask for.
const KEEP_SECONDS: u32 = 30 * 86_400;
/// Deliveries that nobody consumes pile up; the bench must not meet the limit that protects a real node.
const QUEUE_DEPTH_MAX: &str = "1000000000";

/// What a node under load keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeps {
    /// Everything, as in production.
    Everything,
    /// Nothing: the same server without a store.
    Nothing,
}

/// A node under load.
pub(super) struct Target {
    operator: Api,
    pub(super) address: SocketAddr,
    pub(super) host: String,
    pid: Option<u32>,
    _process: Option<Running>,
    _folder: Option<tempfile::TempDir>,
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
        command.env("SNAVIO_STORE_QUEUE_DEPTH_MAX", QUEUE_DEPTH_MAX).env("SNAVIO_LOG_FILTER", "error");
        let (process, url) = Running::start_and_read(&mut command, " is serving ")?;
        let token = std::fs::read_to_string(data.join(snavio_server::OPERATOR_TOKEN_FILE))?;
        let operator = Api::new(&url, None)?.with_token(token.trim());
        let (host, address) = resolve(&url)?;
        let pid = Some(process.pid());
        Ok(Self { operator, address, host, pid, _process: Some(process), _folder: Some(folder) })
    }

    /// A node that runs already. Its process is only known if it is on this machine and was named.
    pub(super) fn running(operator: Api, pid: Option<u32>) -> Result<Self, Failure> {
        let (host, address) = resolve(operator.base())?;
        Ok(Self { operator, address, host, pid, _process: None, _folder: None })
    }

    pub(super) fn processor_time(&self) -> Option<Duration> {
        machine::processor_time(self.pid?)
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Commits and messages so far.
    pub(super) async fn figures(&self) -> Result<(u64, u64), Failure> {
        let status = self.operator.call(Method::GET, "/v1/status", None).await?;
        let figure = |name: &str| status["store"][name].as_u64().unwrap_or(0);
        Ok((figure("commits"), figure("messages")))
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
        let answer = self.operator.call(Method::POST, "/v1/registry/apply", Some(&registry)).await?;
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
        let anybody = Api::new(self.operator.base(), None)?;
        let (_, answer) = anybody.send(Method::POST, "/v1/token", body, content_type).await?;
        let token = answer["access_token"].as_str();
        Ok(token.ok_or_else(|| Failure::new("the node gave no token"))?.to_owned())
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
}

impl Policy {
    const ALL: [Self; 2] = [Self::None, Self::Strict];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Strict => "strict",
        }
    }

    pub(super) fn command(self) -> &'static str {
        match self {
            Self::None => "note",
            Self::Strict => "order",
        }
    }

    pub(super) fn queue(self) -> &'static str {
        match self {
            Self::None => "notes",
            Self::Strict => "orders",
        }
    }

    fn claim(self) -> Value {
        match self {
            Self::None => json!({ "policy": "none" }),
            Self::Strict => json!({ "policy": "strict", "keep_seconds": KEEP_SECONDS }),
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
