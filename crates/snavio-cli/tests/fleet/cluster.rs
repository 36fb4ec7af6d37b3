//! Several nodes of the real binary over one database.

use std::path::Path;
use std::process::{Command, ExitStatus};

use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::{Api, Client, Credentials, Delivery};
use snavio_testbed::Serving;

pub(crate) struct Node {
    process: Serving,
}

/// Environment variables with settings.
type Settings = &'static [(&'static str, &'static str)];

/// All nodes over a database.
pub(crate) struct Cluster {
    folder: tempfile::TempDir,
    settings: Settings,
    pub(crate) nodes: Vec<Node>,
    pub(crate) billing: Option<Credentials>,
    pub(crate) bot: Option<Credentials>,
}

impl Cluster {
    /// Starts nodes, each with a database URL of its own, and registers the services.
    pub(crate) async fn start(stores: &[String]) -> Self {
        Self::start_with(stores, &[]).await
    }

    /// Starts nodes with further settings.
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
            self.wait_for_registry(node).await;
        }
    }

    /// Waits until a node has read the registry.
    pub(crate) async fn wait_for_registry(&self, node: usize) {
        let operator = self.operator(node);
        let asking = async {
            loop {
                let status = operator.call(Method::GET, "/v1/status", None).await;
                if status.is_ok_and(|status| status["registry_version"].as_i64() > Some(0)) {
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

    /// The status that a node shows, including the list of nodes.
    pub(crate) async fn status(&self, node: usize) -> Value {
        self.operator(node).call(Method::GET, "/v1/status", None).await.unwrap()
    }

    /// The text of a node's `/metrics`. The limit of 10 s is the default of Prometheus.
    pub(crate) async fn metrics(&self, node: usize) -> String {
        let operator = self.operator(node);
        let scrape = operator.exchange(Method::GET, "/metrics", None, "");
        let scrape = tokio::time::timeout(std::time::Duration::from_secs(10), scrape).await;
        let (_, text) = scrape.expect("metrics are shown within 10 s").expect("metrics are shown");
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

    /// Kills a node's process without a stop, like a power cut.
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].process.kill().unwrap();
    }

    /// Kills a node and starts it again at the same address.
    pub(crate) fn kill_and_restart(&mut self, node: usize, store: &str) {
        self.kill(node);
        self.restart(node, store);
    }

    /// Sends a node the stop signal.
    pub(crate) fn tell_to_stop(&self, node: usize) {
        self.nodes[node].process.tell_to_stop().unwrap();
    }

    /// Waits for the end of a node and starts it again at the same address.
    pub(crate) fn restart(&mut self, node: usize, store: &str) -> ExitStatus {
        let ended = self.nodes[node].process.wait().unwrap();
        let port = self.nodes[node].port();
        self.nodes[node] = Node::start(self.folder.path(), node, store, port, self.settings);
        ended
    }

    /// The standard error of a node.
    pub(crate) fn log(&self, node: usize) -> String {
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

    /// Resident memory of the process in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.process.pid())).unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.process.ended().unwrap().is_none()
    }
}

/// Receives and acknowledges until the queue has no visible delivery, and returns the message ids.
pub(crate) async fn drain(consumer: &Client) -> Vec<String> {
    let mut ids = Vec::new();
    loop {
        let visibility = std::time::Duration::from_secs(600);
        let received =
            consumer.receive("pay-inbox", 10, visibility, std::time::Duration::ZERO).await.unwrap();
        if received.is_empty() {
            return ids;
        }
        let receipts: Vec<_> = received.iter().map(Delivery::receipt).collect();
        consumer.acknowledge("pay-inbox", &receipts).await.unwrap();
        ids.extend(received.iter().map(id_of));
    }
}

pub(crate) fn id_of(delivery: &Delivery) -> String {
    delivery.message.id().unwrap().to_owned()
}

/// The number of messages in a database that were dispatched more than once.
pub(crate) fn dispatched_twice(database: &str) -> usize {
    let server = snavio_testbed::Postgres::shared();
    let twice = "SELECT count(*) FROM (SELECT id FROM message GROUP BY id HAVING count(*) > 1) AS twice";
    server.ask(database, twice).unwrap().parse().unwrap()
}
