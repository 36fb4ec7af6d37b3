//! Nodes under test: the real binary, several times, over one database.

use std::path::Path;
use std::process::{Command, ExitStatus};

use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::{Api, Client, Credentials, Delivery};
use snavio_testbed::Serving;

/// One node.
pub(crate) struct Node {
    process: Serving,
}

/// Variables that set something.
type Settings = &'static [(&'static str, &'static str)];

/// All nodes of a database.
pub(crate) struct Cluster {
    folder: tempfile::TempDir,
    settings: Settings,
    pub(crate) nodes: Vec<Node>,
    pub(crate) billing: Option<Credentials>,
    pub(crate) bot: Option<Credentials>,
}

impl Cluster {
    /// Starts nodes, each over the database by a URL of its own, and registers the usual cast.
    pub(crate) async fn start(stores: &[String]) -> Self {
        Self::start_with(stores, &[]).await
    }

    /// Starts nodes that are told more than where their database is.
    pub(crate) async fn start_with(stores: &[String], settings: Settings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let start = |(n, store): (usize, &String)| Node::start(folder.path(), n, store, 0, settings);
        let nodes = stores.iter().enumerate().map(start).collect();
        let mut cluster = Self { folder, settings, nodes, billing: None, bot: None };
        cluster.register().await;
        cluster
    }

    async fn register(&mut self) {
        let route = json!({
            "target": "acme/bot", "name": "pay", "queue": "pay-inbox", "dead_letter_queue": "bot-dead",
            "claim": { "policy": "strict", "keep_seconds": 3600 }, "receives_max": 1000,
        });
        let registry = json!({
            "tenants": [{ "name": "acme" }],
            "services": [{ "name": "acme/billing" }, { "name": "acme/bot" }],
            "routes": [route],
            "grants": [{ "source": "acme/billing", "target": "acme/bot", "name": "pay" }],
        });
        let operator = self.operator(0);
        let answer = operator.call(Method::POST, "/v1/registry/apply", Some(&registry)).await.unwrap();
        let mut credentials: Vec<Credentials> =
            serde_json::from_value(answer["credentials"].clone()).unwrap();
        self.bot = credentials.pop();
        self.billing = credentials.pop();
        for node in 0..self.nodes.len() {
            self.knows_the_cast(node).await;
        }
    }

    /// Waits until a node has read the registry.
    pub(crate) async fn knows_the_cast(&self, node: usize) {
        let operator = self.operator(node);
        let asking = async {
            loop {
                let status = operator.call(Method::GET, "/v1/status", None).await;
                if status.is_ok_and(|it| it["registry_version"].as_i64() > Some(0)) {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), asking).await.unwrap();
    }

    pub(crate) fn operator(&self, node: usize) -> Api {
        let token = std::fs::read_to_string(self.folder.path().join("operator.token")).unwrap();
        Api::new(self.nodes[node].url(), None).unwrap().with_token(token.trim())
    }

    /// What a node says about the fleet.
    pub(crate) async fn status(&self, node: usize) -> Value {
        self.operator(node).call(Method::GET, "/v1/status", None).await.unwrap()
    }

    /// What a node shows at `/metrics`, for as long as Prometheus waits when nothing else is said.
    pub(crate) async fn metrics(&self, node: usize) -> String {
        let operator = self.operator(node);
        let asked = operator.exchange(Method::GET, "/metrics", None, "");
        let asked = tokio::time::timeout(std::time::Duration::from_secs(10), asked).await;
        let (_, text) = asked.expect("figures are told within 10 s").expect("figures are told");
        String::from_utf8(text).unwrap()
    }

    pub(crate) fn producer(&self, node: usize) -> Client {
        self.client(node, self.billing.as_ref())
    }

    pub(crate) fn consumer(&self, node: usize) -> Client {
        self.client(node, self.bot.as_ref())
    }

    fn client(&self, node: usize, credentials: Option<&Credentials>) -> Client {
        Client::new(Api::new(self.nodes[node].url(), None).unwrap(), credentials.unwrap().clone()).unwrap()
    }

    /// Kills a node as a power cut would.
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].process.kill().unwrap();
    }

    /// Does so, and starts it again where it was.
    pub(crate) fn kill_and_restart(&mut self, node: usize, store: &str) {
        self.kill(node);
        self.restart(node, store);
    }

    /// Tells a node to stop.
    pub(crate) fn tell_to_stop(&self, node: usize) {
        self.nodes[node].process.tell_to_stop().unwrap();
    }

    /// Waits for the end of a node, and starts it again where it was.
    pub(crate) fn restart(&mut self, node: usize, store: &str) -> ExitStatus {
        let ended = self.nodes[node].process.wait().unwrap();
        let port = self.nodes[node].port();
        self.nodes[node] = Node::start(self.folder.path(), node, store, port, self.settings);
        ended
    }

    /// What a node wrote to its standard error.
    pub(crate) fn said(&self, node: usize) -> String {
        self.nodes[node].process.said()
    }
}

impl Node {
    fn start(folder: &Path, number: usize, store: &str, port: u16, settings: Settings) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_snavio"));
        command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--store", store]);
        command.env("SNAVIO_LOG_FILTER", "warn").envs(settings.iter().copied());
        command.env("SNAVIO_PLATFORM_KEY_FILE", folder.join("platform.key"));
        command.env("SNAVIO_PLATFORM_OPERATOR_TOKEN_FILE", folder.join("operator.token"));
        let mut process = Serving::spawn(&mut command, &folder.join(format!("{number}.log"))).unwrap();
        process.settle();
        assert!(process.url().is_some(), "node {number} does not serve: {}", process.said());
        Self { process }
    }

    pub(crate) fn url(&self) -> &str {
        self.process.url().unwrap()
    }

    fn port(&self) -> u16 {
        self.url().rsplit(':').next().unwrap().parse().unwrap()
    }

    /// Bytes of memory that the process has.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.process.pid())).unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.process.ended().unwrap().is_none()
    }
}

/// Takes everything that can be received from the queue now, and gives back the ids.
pub(crate) async fn drain(consumer: &Client) -> Vec<String> {
    let mut ids = Vec::new();
    loop {
        let visibility = std::time::Duration::from_secs(600);
        let some = consumer.receive("pay-inbox", 10, visibility, std::time::Duration::ZERO).await.unwrap();
        if some.is_empty() {
            return ids;
        }
        let receipts: Vec<_> = some.iter().map(Delivery::receipt).collect();
        consumer.acknowledge("pay-inbox", &receipts).await.unwrap();
        ids.extend(some.iter().map(id_of));
    }
}

/// The id of a delivery's message.
pub(crate) fn id_of(delivery: &Delivery) -> String {
    delivery.message.id().unwrap().to_owned()
}

/// How many messages in a database were dispatched more than once.
pub(crate) fn dispatched_twice(database: &str) -> usize {
    let server = snavio_testbed::Postgres::shared();
    let twice = "SELECT count(*) FROM (SELECT id FROM message GROUP BY id HAVING count(*) > 1) AS twice";
    server.ask(database, twice).unwrap().parse().unwrap()
}
