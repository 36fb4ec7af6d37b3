//! A node under test: the real binary on a free port, in a temporary folder. Dropping a `Node` ends the
//! process.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::id::MessageId;
use snavio_model::message::command::NewCommand;
use snavio_model::name::{CommandName, ServiceName, TargetText};
use snavio_model::telemetry::is_sampled;
use snavio_model::time::Timestamp;
use snavio_sdk::{Api, ApiError, Client, Credentials, Delivery};
use snavio_testbed::Serving;

use crate::engine::{Database, Engine};
use crate::patience::poll;
use crate::strace::Attached;

/// Options of a node's start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Launch {
    /// A program and its arguments to run the node under, for example strace.
    pub(crate) under: Vec<String>,
    /// Settings, as environment variables.
    pub(crate) settings: Vec<(String, String)>,
    /// Further arguments of `snavio serve`.
    pub(crate) arguments: Vec<String>,
}

impl Launch {
    pub(crate) fn under(words: Vec<String>) -> Self {
        Self { under: words, ..Self::default() }
    }

    /// Adds one setting; `name` is the environment variable without the prefix `SNAVIO_`.
    pub(crate) fn set(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.push((format!("SNAVIO_{name}"), value.to_string()));
        self
    }
}

/// A node, its folder, and the engine under it.
pub(crate) struct Node {
    folder: tempfile::TempDir,
    engine: Engine,
    process: Serving,
}

pub(crate) fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_snavio")
}

impl Node {
    /// Starts a node on a new store.
    pub(crate) fn start() -> Self {
        Self::launch(&Launch::default())
    }

    /// Starts a node on a new store with the given options.
    pub(crate) fn launch(launch: &Launch) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        Self::launch_in(folder, launch)
    }

    /// Starts a node on a new store, or on the embedded one in the folder.
    pub(crate) fn launch_in(folder: tempfile::TempDir, launch: &Launch) -> Self {
        let mut node = Self::try_launch_in(folder, launch);
        node.expect_serving();
        node
    }

    /// Starts a node that may end before it serves.
    pub(crate) fn try_launch_in(folder: tempfile::TempDir, launch: &Launch) -> Self {
        Self::spawn(Engine::chosen(), folder, launch).settled()
    }

    /// Starts a node over a database, on either engine under test.
    pub(crate) fn over(database: &Database, launch: &Launch) -> Self {
        let mut node = Self::spawn_over(database, launch).settled();
        node.expect_serving();
        node
    }

    /// Starts a node over a database that it must refuse to serve, and returns the node after its process has
    /// ended.
    pub(crate) fn refused(database: &Database, launch: &Launch) -> Self {
        let mut node = Self::spawn_over(database, launch).settled();
        assert!(node.process.url().is_none(), "the node serves");
        assert_eq!(node.wait().code(), Some(1), "{}", node.said());
        node
    }

    /// Starts a node over a database, without waiting for it to serve.
    pub(crate) fn spawn_over(database: &Database, launch: &Launch) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        Self::spawn(Engine::Postgres(database.clone()), folder, launch)
    }

    fn spawn(engine: Engine, folder: tempfile::TempDir, launch: &Launch) -> Self {
        let process = spawn(folder.path(), &engine, launch);
        Self { folder, engine, process }
    }

    /// Waits until the node serves or has ended.
    pub(crate) fn settled(mut self) -> Self {
        self.process.settle();
        self
    }

    /// Whether the node has begun to serve and has not ended.
    pub(crate) fn is_serving(&mut self) -> bool {
        self.process.url().is_some() && self.ended().is_none()
    }

    pub(crate) fn expect_serving(&mut self) {
        assert!(
            self.process.url().is_some(),
            "the node does not serve ({:?}): {}",
            self.ended(),
            self.said()
        );
    }

    /// Kills the process without a stop. A process cannot tell this from a power cut.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("the node can be killed");
        self.wait();
    }

    /// Kills a node while strace holds one of its threads. The thread dies only after strace lets it go.
    pub(crate) fn kill_held(&mut self, tracing: Attached) {
        self.process.kill().expect("the node can be killed");
        drop(tracing);
        self.wait();
    }

    /// Starts the node again on the same store; its process must have ended.
    pub(crate) fn restart(&mut self, launch: &Launch) {
        self.try_restart(launch);
        self.expect_serving();
    }

    /// Starts the node again on the same store; it may refuse to serve.
    pub(crate) fn try_restart(&mut self, launch: &Launch) {
        self.process = spawn(self.folder.path(), &self.engine, launch);
        self.process.settle();
    }

    /// Stops the node with the signal that an operator sends, and expects a clean exit.
    pub(crate) fn stop(&mut self) {
        self.process.tell_to_stop().expect("the node can be told");
        let status = self.wait();
        assert!(status.success(), "{status}: {}", self.said());
    }

    /// Waits for the process to end, for as long as a node may take to stop.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.process.wait().expect("the node ends")
    }

    /// The standard error of all starts of this node.
    pub(crate) fn said(&self) -> String {
        self.process.said()
    }

    /// The standard output; the process must have ended.
    pub(crate) fn printed(&mut self) -> String {
        self.process.printed()
    }

    /// The exit status, if the process has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.ended().expect("the node can be looked at")
    }

    /// The process id, for signals.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends a signal by its name, for example TERM.
    pub(crate) fn signal(&self, name: &str) {
        send_signal(self.pid(), name);
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The embedded store's folder. Another engine has none, so a test that reads the folder belongs to the
    /// module `embedded`.
    pub(crate) fn data(&self) -> PathBuf {
        self.engine.data(self.folder.path())
    }

    /// The data folder as the running node sees it. The node may have a mount of its own there.
    pub(crate) fn data_within(&self) -> PathBuf {
        self.within(&self.data())
    }

    /// The path of a platform secret, for example `platform.key`.
    pub(crate) fn secret(&self, name: &str) -> PathBuf {
        self.engine.secrets(self.folder.path()).join(name)
    }

    fn within(&self, path: &Path) -> PathBuf {
        let below = path.strip_prefix("/").expect("temporary folders have full paths");
        PathBuf::from(format!("/proc/{}/root", self.pid())).join(below)
    }

    /// The id of the node's thread with this name. The kernel keeps 15 characters of a name. A thread names
    /// itself, so the name may appear late.
    pub(crate) fn thread(&self, name: &str) -> u32 {
        let short = &name[..name.len().min(15)];
        let named = |entry: std::fs::DirEntry| {
            let comm = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            (comm.trim_end() == short).then(|| entry.file_name().to_str()?.parse().ok())?
        };
        poll(&format!("a thread is called {name}"), || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("the node runs");
            tasks.filter_map(Result::ok).find_map(named)
        })
    }

    /// A folder for the test's own files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn url(&self) -> &str {
        self.process.url().expect("the node serves")
    }

    pub(crate) fn api(&self) -> Api {
        Api::new(self.url(), None).expect("a client can be made")
    }

    pub(crate) fn operator(&self) -> Api {
        self.api().with_token(&self.operator_token())
    }

    /// Gets a path's document as the operator.
    pub(crate) async fn get(&self, path: &str) -> Value {
        self.operator().call(Method::GET, path, None).await.expect("the node answers")
    }

    /// Lists items until `has_all` holds: on PostgreSQL a list ends before the first number whose transaction
    /// is open.
    pub(crate) async fn items(&self, path: &str, has_all: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        crate::patience::eventually(path, async || {
            let items = self.get(path).await["items"].as_array().expect("a list").clone();
            has_all(&items).then_some(items)
        })
        .await
    }

    pub(crate) fn operator_token(&self) -> String {
        let token = std::fs::read_to_string(self.within(&self.secret("operator.token")));
        token.expect("the token was made").trim().to_owned()
    }

    pub(crate) fn client(&self, credentials: &Credentials) -> Client {
        Client::new(self.api(), credentials.clone()).expect("a client can be made")
    }

    /// An access token of a service.
    pub(crate) async fn token(&self, credentials: &Credentials) -> String {
        let Credentials { client_id, client_secret, .. } = credentials;
        let form =
            format!("grant_type=client_credentials&client_id={client_id}&client_secret={client_secret}");
        let form_type = "application/x-www-form-urlencoded";
        let answer = self.api().send(Method::POST, "/v1/token", Some(form.into_bytes()), form_type).await;
        answer.expect("the service is authenticated").1["access_token"].as_str().expect("a token").to_owned()
    }

    /// Applies a registry file and returns the credentials of the new services.
    pub(crate) async fn apply(&self, registry: &Value) -> Vec<Credentials> {
        let answer = self.operator().call(Method::POST, "/v1/registry/apply", Some(registry)).await;
        let answer = answer.expect("the registry takes the file");
        serde_json::from_value(answer["credentials"].clone()).expect("credentials are as documented")
    }

    /// Registers the services of most tests: `acme/billing` may send `notify` (no claims) and `pay` (policy
    /// `strict`) to `acme/bot`.
    pub(crate) async fn cast(&self) -> Cast {
        let route = |name: &str, policy: &str| {
            json!({
                "target": "acme/bot", "name": name, "queue": format!("{name}-inbox"),
                "dead_letter_queue": "bot-dead", "claim": { "policy": policy }, "receives_max": 3,
            })
        };
        let grants = ["notify", "pay", "lost"]
            .map(|name| json!({ "source": "acme/billing", "target": "acme/bot", "name": name }));
        let registry = json!({
            "tenants": [{ "name": "acme" }],
            "services": [{ "name": "acme/billing" }, { "name": "acme/bot" }],
            "routes": [route("notify", "none"), route("pay", "strict")],
            "grants": grants,
        });
        let mut credentials = self.apply(&registry).await;
        let bot = credentials.pop().expect("two services were made");
        let billing = credentials.pop().expect("two services were made");
        Cast { billing, bot }
    }
}

/// The credentials of the services that `Node::cast` registers.
pub(crate) struct Cast {
    pub(crate) billing: Credentials,
    pub(crate) bot: Credentials,
}

/// Sends a signal by its name to a process.
pub(crate) fn send_signal(pid: u32, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status();
    assert!(sent.expect("kill runs").success());
}

/// Starts the process. The node's folder has one log for all its starts.
fn spawn(folder: &Path, engine: &Engine, launch: &Launch) -> Serving {
    let mut words = launch.under.clone();
    words.push(binary().to_owned());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg("serve").arg("--listen").arg("127.0.0.1:0");
    engine.tell(&mut command, folder);
    command.args(&launch.arguments).current_dir(folder);
    // Tests cause hundreds of refusals, and each is a line of the log at the default level.
    command.env("SNAVIO_LOG_FILTER", "warn");
    command.envs(launch.settings.iter().cloned());
    let started = Serving::spawn(&mut command, &folder.join("stderr.log"));
    started.unwrap_or_else(|error| panic!("{} cannot be started: {error}", words[0]))
}

/// An unsigned message; a test changes its members and signs it before it sends it.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) id: String,
    pub(crate) target: String,
    pub(crate) name: String,
    pub(crate) payload: String,
    pub(crate) timestamp: String,
}

impl Draft {
    /// A message from `acme/billing` to `acme/bot` with a small payload.
    pub(crate) fn new(name: &str, id: &str) -> Self {
        Self {
            id: id.to_owned(),
            target: "acme/bot".to_owned(),
            name: name.to_owned(),
            payload: r#"{"user":"u-1"}"#.to_owned(),
            timestamp: seconds_from_now(0),
        }
    }

    /// Signs the message and returns the body to send.
    pub(crate) fn sign(&self, credentials: &Credentials) -> Vec<u8> {
        let target: TargetText = self.target.parse().expect("a target");
        let name: CommandName = self.name.parse().expect("a name");
        let source: ServiceName = credentials.source.clone();
        let id = MessageId::uuid(&self.id).expect("an id");
        let command = NewCommand {
            id: &id,
            timestamp: &self.timestamp,
            version_id: &credentials.hmac_version,
            source: &source,
            target: &target,
            name: &name,
            payload: self.payload.as_bytes(),
            correlation_id: None,
        };
        command.sign(&credentials.secret().expect("a secret")).expect("the message can be signed")
    }
}

/// A new time-ordered id, of a message without a sample of its clock: one in a hundred would have a record more.
pub(crate) fn new_id() -> String {
    let mut ids = std::iter::repeat_with(|| MessageId::stored(&uuid::Uuid::now_v7().to_string()));
    let id = ids.find(|id| !is_sampled(id)).unwrap();
    id.as_str().to_owned()
}

/// A time in RFC 3339, `seconds` from now.
#[expect(clippy::disallowed_methods, reason = "a producer signs with the machine's clock")]
pub(crate) fn seconds_from_now(seconds: i64) -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    Timestamp(i64::try_from(since.as_millis()).expect("not that late") + seconds * 1000).to_string()
}

/// Status and document of an answer, also of a refusal. Panics if there is no answer.
pub(crate) fn verdict(ended: Result<(u16, Value), ApiError>) -> (u16, Value) {
    match ended {
        Ok(answer) => answer,
        Err(ApiError::Refused { status, document, .. }) => (status, document),
        Err(error) => panic!("no answer: {error:?}"),
    }
}

/// Sends a body to `/v1/commands` as a service.
pub(crate) async fn post(client: &Client, body: Vec<u8>) -> (u16, Value) {
    let api = client.authorized().await.expect("the service is authenticated");
    verdict(api.send(Method::POST, "/v1/commands", Some(body), "application/json").await)
}

/// Sends signed messages in one batch; each has its own result.
pub(crate) async fn post_batch(client: &Client, signed: &[Vec<u8>]) -> Result<Vec<Value>, ApiError> {
    let body = [&b"["[..], &signed.join(&b','), b"]"].concat();
    let api = client.authorized().await?;
    let (_, answer) = api.send(Method::POST, "/v1/commands/batch", Some(body), "application/json").await?;
    Ok(answer["results"].as_array().expect("a batch has results").clone())
}

/// Receives and acknowledges until the queue has no visible delivery, and returns all deliveries.
pub(crate) async fn drain(client: &Client, queue: &str) -> Vec<Delivery> {
    let mut all = Vec::new();
    loop {
        let received = client.receive(queue, 10, Duration::from_secs(30), Duration::ZERO).await;
        let received = received.expect("the queue can be received from");
        if received.is_empty() {
            return all;
        }
        let receipts: Vec<_> = received.iter().map(Delivery::receipt).collect();
        client.acknowledge(queue, &receipts).await.expect("deliveries can be acknowledged");
        all.extend(received);
    }
}
