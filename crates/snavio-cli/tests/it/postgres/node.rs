//! A node over a PostgreSQL database: the real binary in a folder of its own, ended when dropped.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::{Api, Client, Credentials};

use crate::node::{Cast, binary};
use crate::patience::poll;

/// The secrets that all nodes of a fleet have: kept in a folder, found by each.
pub(crate) struct Secrets(tempfile::TempDir);

impl Secrets {
    /// As an operator would make them before the first of several nodes is started.
    pub(crate) fn new() -> Self {
        let secrets = Self(tempfile::tempdir().unwrap());
        let random = || STANDARD.encode([(); 2].map(|()| uuid::Uuid::now_v7().into_bytes()).concat());
        for (name, prefix) in [("platform.key", ""), ("operator.token", "snavop_")] {
            let path = secrets.path(name);
            std::fs::write(&path, format!("{prefix}{}\n", random())).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        }
        secrets
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        settings_of(self.0.path())
    }

    pub(crate) fn token(&self) -> String {
        std::fs::read_to_string(self.path("operator.token")).unwrap().trim().to_owned()
    }
}

/// The settings that name the secrets in a folder.
pub(crate) fn settings_of(folder: &Path) -> Vec<(&'static str, String)> {
    let path = |name: &str| folder.join(name).display().to_string();
    vec![
        ("SNAVIO_PLATFORM_KEY_FILE", path("platform.key")),
        ("SNAVIO_PLATFORM_OPERATOR_TOKEN_FILE", path("operator.token")),
    ]
}

/// A node that may have ended before it served.
pub(crate) struct DatabaseNode {
    folder: tempfile::TempDir,
    child: Child,
    url: Option<String>,
}

impl DatabaseNode {
    /// Starts a node over a database, without waiting for it to serve.
    pub(crate) fn spawn(database: &str, settings: &[(&str, String)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let stderr = std::fs::File::create(folder.path().join("stderr.log")).unwrap();
        let mut command = Command::new(binary());
        command.args(["serve", "--listen", "127.0.0.1:0", "--store", database]).current_dir(folder.path());
        command.env("SNAVIO_LOG_FILTER", "warn").envs(settings.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        Self { child: command.spawn().unwrap(), folder, url: None }
    }

    /// Waits until it serves, or has ended.
    pub(crate) fn settled(mut self) -> Self {
        let lines = BufReader::new(self.child.stdout.take().unwrap()).lines();
        let said =
            lines.map_while(Result::ok).find_map(|line| Some(line.split_once(" is serving ")?.1.to_owned()));
        self.url = said;
        self
    }

    /// Starts a node that must serve.
    pub(crate) fn start(database: &str, settings: &[(&str, String)]) -> Self {
        let node = Self::spawn(database, settings).settled();
        assert!(node.url.is_some(), "the node does not serve: {}", node.said());
        node
    }

    /// Starts a node that must refuse to serve, and gives back why.
    pub(crate) fn refusal(database: &str, settings: &[(&str, String)]) -> String {
        let mut node = Self::spawn(database, settings).settled();
        assert_eq!(node.url, None, "the node serves");
        assert_eq!(node.wait().code(), Some(1), "{}", node.said());
        node.said()
    }

    /// Waits for the process to end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        poll("the node ends", || self.child.try_wait().unwrap())
    }

    /// What it wrote to its standard error.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stderr.log")).unwrap()
    }

    pub(crate) fn api(&self) -> Api {
        Api::new(self.url.as_deref().expect("the node serves"), None).unwrap()
    }

    /// A path's document, as the operator sees it.
    pub(crate) async fn get(&self, token: &str, path: &str) -> Value {
        self.api().with_token(token).call(Method::GET, path, None).await.unwrap()
    }

    pub(crate) fn client(&self, credentials: &Credentials) -> Client {
        Client::new(self.api(), credentials.clone()).unwrap()
    }

    /// `acme/billing` may send `pay` (strict) to `acme/bot`.
    pub(crate) async fn cast(&self, token: &str) -> Cast {
        let registry = json!({
            "tenants": [{ "name": "acme" }],
            "services": [{ "name": "acme/billing" }, { "name": "acme/bot" }],
            "routes": [{
                "target": "acme/bot", "name": "pay", "queue": "pay-inbox", "dead_letter_queue": "bot-dead",
                "claim": { "policy": "strict" }, "receives_max": 3,
            }],
            "grants": [{ "source": "acme/billing", "target": "acme/bot", "name": "pay" }],
        });
        let operator = self.api().with_token(token);
        let answer = operator.call(Method::POST, "/v1/registry/apply", Some(&registry)).await.unwrap();
        let mut made: Vec<Credentials> = serde_json::from_value(answer["credentials"].clone()).unwrap();
        let bot = made.pop().unwrap();
        Cast { billing: made.pop().unwrap(), bot }
    }
}

impl Drop for DatabaseNode {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
