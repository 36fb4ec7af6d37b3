//! Kills the gateway and the general ledger again and again while events come in. In the end the journal
//! holds each event once, and every sender got the reference that the event has there (CLM-4, CLM-5, CLM-7,
//! CLM-9, QUA-1).
//!
//! The tests cover both forms, an HTTP processor and a consumer with a tracked route, on both engines.
//! `TEST_LONG=1` runs 500 kills each; `TEST_SEED` repeats the random choices of a run.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use snavio_sdk::sqlite::rusqlite::Connection;
use snavio_sdk::{Api, Credentials};
use snavio_testbed::{Postgres, Serving};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Each sender waits for its own event. With this number, every kill meets senders at every step.
const SENDERS: usize = 24;
/// The pause between two tries of one event.
const PAUSE: Duration = Duration::from_millis(40);
/// The limit for one event, with kills. Leases, sweeps and a sweeper's term fit into it several times.
const ANSWERED_WITHIN: Duration = Duration::from_secs(120);
/// The number of starts that may fail because another process has the port.
const STARTS_MAX: usize = 100;

/// CLM-9
#[tokio::test(flavor = "multi_thread")]
async fn processor_under_fire_posts_each_event_once() {
    let store = Store::Embedded;
    under_fire(Form::Processor, store, kills(40)).await;
}

/// CLM-9
#[tokio::test(flavor = "multi_thread")]
async fn processor_under_fire_posts_each_event_once_over_postgres() {
    let store = Store::Postgres(Postgres::shared().database().unwrap());
    under_fire(Form::Processor, store, kills(20)).await;
}

/// CLM-9, CLM-10
#[tokio::test(flavor = "multi_thread")]
async fn consumer_under_fire_posts_each_event_once() {
    let store = Store::Embedded;
    under_fire(Form::Consumer, store, kills(40)).await;
}

/// CLM-9, CLM-10
#[tokio::test(flavor = "multi_thread")]
async fn consumer_under_fire_posts_each_event_once_over_postgres() {
    let store = Store::Postgres(Postgres::shared().database().unwrap());
    under_fire(Form::Consumer, store, kills(20)).await;
}

fn kills(usual: usize) -> usize {
    let is_long = std::env::var("TEST_LONG").is_ok_and(|long| long == "1");
    if is_long { 500 } else { usual }
}

async fn under_fire(form: Form, store: Store, kills: usize) {
    let case = format!("{form:?} over {}", store.name());
    let mut choices = Choices::new(&case);
    let fixture = Fixture::start(form, store).await;
    let senders = Arc::new(Senders::new(&fixture));
    let mut sending = JoinSet::new();
    for _ in 0..SENDERS {
        sending.spawn(Arc::clone(&senders).send_all());
    }
    let (mut gateway, mut ledger) = (fixture.gateway(), fixture.ledger());
    let (mut gateway_kills, mut ledger_kills) = (0, 0);
    for kill in 0..kills {
        senders.wait_for_completion().await;
        tokio::time::sleep(Duration::from_millis(choices.below(250))).await;
        // The kills alternate between the two processes, and sometimes meet both at once.
        let (is_both, is_gateway) = (choices.below(8) == 0, kill % 2 == 0);
        if is_both || is_gateway {
            gateway.kill_running();
        }
        if is_both || !is_gateway {
            ledger.kill_running();
        }
        gateway_kills += usize::from(is_both || is_gateway);
        ledger_kills += usize::from(is_both || !is_gateway);
        if is_both || is_gateway {
            gateway = fixture.gateway();
        }
        if is_both || !is_gateway {
            ledger = fixture.ledger();
        }
    }
    senders.is_closing.store(true, Ordering::SeqCst);
    let answers: BTreeMap<String, String> = sending.join_all().await.into_iter().flatten().collect();

    let (journal, lost) = (fixture.journal(), senders.lost.load(Ordering::SeqCst));
    let entries = journal.len();
    let references: BTreeMap<_, _> = journal.into_iter().collect();
    let mut attempts = Attempts::default();
    for (id, answer) in &answers {
        let reference = references.get(id).unwrap_or_else(|| panic!("{id} was answered and is not posted"));
        attempts.add(&senders.expect_completed(id, reference).await);
        assert_eq!(&senders.replayed(id).await, answer, "{id}: the same bytes as the first time");
    }
    let (events, twice) = (answers.len(), entries - references.len());
    println!(
        "{case}: kills {kills} (gateway {gateway_kills}, ledger {ledger_kills}), events {events}, connections lost {lost}, \
         attempts {}, attempted again {}, entries {entries}, twice {twice}",
        attempts.all, attempts.again
    );
    assert_eq!((entries, twice), (events, 0), "no more and no fewer");
    assert_eq!(fixture.trial_balance(), events);
    assert!(lost > 0, "kills met requests");
    assert!(attempts.again > 0, "kills met attempts");
    let said = gateway.said() + &ledger.said();
    assert!(!said.contains("panicked"), "{said}");
}

/// The way in which the ledger gets its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The gateway calls the ledger.
    Processor,
    /// The ledger receives events from a queue, and reports back.
    Consumer,
}

impl Form {
    /// Returns the processing settings of the ledger's subscription. After a kill the next attempt follows
    /// soon.
    fn processing(self, ledger: u16) -> Value {
        match self {
            Self::Processor => json!({
                "kind": "http", "url": format!("http://127.0.0.1:{ledger}/journal-entries"),
                "reference": "/glPostingReference", "timeout_seconds": 1, "deadline_seconds": 2,
                "backoff_seconds": 1, "backoff_max_seconds": 1,
            }),
            Self::Consumer => json!({ "kind": "tracked", "deadline_seconds": 3, "backoff_max_seconds": 1 }),
        }
    }
}

enum Store {
    Embedded,
    Postgres(String),
}

impl Store {
    fn name(&self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Postgres(_) => "postgres",
        }
    }
}

/// The environment of both processes. After a kill they come back with the same ports and files.
struct Fixture {
    folder: TempDir,
    form: Form,
    store: Store,
    ports: [u16; 2],
    token: String,
}

impl Fixture {
    /// Registers tenant, services and subscription, and stops the gateway again.
    async fn start(form: Form, store: Store) -> Self {
        // The process has one provider. A second call returns an error and uses the first provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let ports = [(); 2].map(|()| snavio_testbed::free_port().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let mut fixture = Self { folder, form, store, ports, token: String::new() };
        let gateway = fixture.gateway();
        let operator = std::fs::read_to_string(fixture.path("operator.token")).unwrap();
        let operator = Api::new(gateway.url(), None).unwrap().with_token(operator.trim());
        let registry = json!({
            "tenants": [{ "name": "acme" }],
            "services": [{ "name": "acme/shop" }, { "name": "acme/general-ledger" }],
            "event_types": [{ "owner": "acme/shop", "name": "sold" }],
            "subscriptions": [{
                "target": "acme/general-ledger", "events_of": "acme/shop", "name": "sold", "queue": "entries",
                "dead_letter_queue": "entry-exceptions", "claim": { "policy": "ledger" }, "receives_max": 100,
                "processing": form.processing(fixture.ports[1]),
            }],
        });
        let applied = operator.call(Method::POST, "/v1/registry/apply", Some(&registry)).await.unwrap();
        let [shop, ledger]: [Credentials; 2] =
            serde_json::from_value(applied["credentials"].clone()).unwrap();
        std::fs::write(fixture.path("ledger.json"), serde_json::to_vec(&ledger).unwrap()).unwrap();
        let form = format!(
            "grant_type=client_credentials&client_id={}&client_secret={}",
            shop.client_id, shop.client_secret
        );
        let form_type = "application/x-www-form-urlencoded";
        let api = Api::new(gateway.url(), None).unwrap();
        let (_, token) =
            api.send(Method::POST, "/v1/token", Some(form.into_bytes()), form_type).await.unwrap();
        fixture.token = token["access_token"].as_str().unwrap().to_owned();
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts the gateway, and waits until it serves.
    fn gateway(&self) -> ServerProcess {
        let listen = format!("127.0.0.1:{}", self.ports[0]);
        let start = || {
            let mut command = Command::new(snavio());
            command.args(["serve", "--listen", &listen]);
            match &self.store {
                Store::Embedded => command.arg("--data").arg(self.path("data")),
                Store::Postgres(url) => command.args(["--store", url]),
            };
            command.env("SNAVIO_PLATFORM_KEY_FILE", self.path("platform.key"));
            command.env("SNAVIO_PLATFORM_OPERATOR_TOKEN_FILE", self.path("operator.token"));
            command.env("SNAVIO_OUTGOING_ALLOWED", "127.0.0.1").env("SNAVIO_LOG_FILTER", "warn");
            command
        };
        ServerProcess::serving(start, &self.path("gateway.log"))
    }

    /// Starts the ledger. If the ledger serves, waits until it does.
    fn ledger(&self) -> ServerProcess {
        let log = self.path("ledger.log");
        match self.form {
            Form::Processor => {
                let listen = format!("127.0.0.1:{}", self.ports[1]);
                let start = || {
                    let mut command = self.ledger_command("serve");
                    command.args(["--listen", &listen]);
                    command
                };
                ServerProcess::serving(start, &log)
            }
            Form::Consumer => {
                let mut command = self.ledger_command("consume");
                command.args(["--gateway", &format!("http://127.0.0.1:{}", self.ports[0])]);
                command.args(["--queue", "entries", "--lease-seconds", "3"]);
                command.arg("--credentials").arg(self.path("ledger.json"));
                ServerProcess(Serving::spawn(&mut command, &log).unwrap())
            }
        }
    }

    fn ledger_command(&self, name: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_general-ledger"));
        command.arg(name).arg("--database").arg(self.path("books.db"));
        command
    }

    /// Returns the event and the reference of each posted entry.
    fn journal(&self) -> Vec<(String, String)> {
        let books = Connection::open(self.path("books.db")).unwrap();
        let mut select = books.prepare("SELECT message_id, reference FROM journal_entry").unwrap();
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    /// Returns the number of entries in the trial balance, after the balance reports no fault.
    fn trial_balance(&self) -> usize {
        let output = self.ledger_command("trial-balance").output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}");
        said.lines().find_map(|line| line.strip_prefix("entries: ")).unwrap().parse().unwrap()
    }
}

/// Returns the path of the gateway's binary. A test of the workspace builds it beside the ledger's; otherwise
/// this function builds it once.
fn snavio() -> &'static Path {
    static BINARY: std::sync::LazyLock<PathBuf> = std::sync::LazyLock::new(|| {
        let binary = Path::new(env!("CARGO_BIN_EXE_general-ledger")).with_file_name("snavio");
        if !binary.exists() {
            let built = Command::new(env!("CARGO")).args(["build", "-p", "snavio-cli"]).status();
            assert!(built.unwrap().success(), "the gateway is built");
        }
        binary
    });
    &BINARY
}

/// A process that is killed like `kill -9` when it is dropped.
struct ServerProcess(Serving);

impl ServerProcess {
    /// Starts the process until it serves. While it is down, an outgoing connection of another process may
    /// take its port.
    fn serving(start: impl Fn() -> Command, log: &Path) -> Self {
        let before = std::fs::read_to_string(log).unwrap_or_default().len();
        for _ in 0..STARTS_MAX {
            let mut serving = Serving::spawn(&mut start(), log).unwrap();
            serving.settle();
            if serving.url().is_some() {
                return Self(serving);
            }
            let said = serving.said();
            let said = said.get(before..).unwrap_or_default();
            assert!(said.to_lowercase().contains("in use"), "it does not serve: {said}");
            std::thread::sleep(PAUSE);
        }
        panic!("its port is never free");
    }

    fn url(&self) -> &str {
        self.0.url().unwrap()
    }

    fn said(&self) -> String {
        self.0.said()
    }

    /// Kills the process. It must still be running.
    fn kill_running(&mut self) {
        assert!(self.0.ended().unwrap().is_none(), "it ended by itself: {}", self.said());
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Senders that send events until they are told to close. Each event is sent until it is complete.
struct Senders {
    http: reqwest::Client,
    gateway: String,
    token: String,
    form: Form,
    begun: AtomicUsize,
    completed: AtomicUsize,
    lost: AtomicUsize,
    is_closing: AtomicBool,
}

struct Answer {
    status: StatusCode,
    is_replay: bool,
    text: String,
    document: Value,
}

/// Builds a client with a connection for each request. A request that waits for the connection of another
/// request can wait for ever if a kill closes all connections. This happened: such a request had no socket at
/// all while the gateway came and went.
fn http() -> reqwest::Client {
    let builder = reqwest::Client::builder().pool_max_idle_per_host(0);
    builder.timeout(Duration::from_secs(30)).build().unwrap()
}

impl Senders {
    fn new(fixture: &Fixture) -> Self {
        Self {
            http: http(),
            gateway: format!("http://127.0.0.1:{}", fixture.ports[0]),
            token: fixture.token.clone(),
            form: fixture.form,
            begun: AtomicUsize::new(0),
            completed: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            is_closing: AtomicBool::new(false),
        }
    }

    /// Waits until the next event is complete, because then both processes are at work. Gives up after a
    /// second, because a kill can delay all senders.
    async fn wait_for_completion(&self) {
        let (before, patience) =
            (self.completed.load(Ordering::SeqCst), Instant::now() + Duration::from_secs(1));
        while self.completed.load(Ordering::SeqCst) == before && Instant::now() < patience {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Returns each event with the answer that its sender got.
    async fn send_all(self: Arc<Self>) -> Vec<(String, String)> {
        let mut answers = Vec::new();
        while !self.is_closing.load(Ordering::SeqCst) {
            let id = format!("sale-{}", self.begun.fetch_add(1, Ordering::SeqCst));
            let answer = tokio::time::timeout(ANSWERED_WITHIN, self.send_until_complete(&id)).await;
            answers.push((id.clone(), answer.unwrap_or_else(|_| panic!("{id} is never complete"))));
            self.completed.fetch_add(1, Ordering::SeqCst);
        }
        answers
    }

    /// Sends an event until it is answered as complete, and returns the answer.
    async fn send_until_complete(&self, id: &str) -> String {
        let mut is_taken = false;
        loop {
            if is_taken && self.form == Form::Consumer {
                self.await_completion(id).await;
            }
            let Some(answered) = self.post(id).await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let Answer { status, document, text, .. } = &answered;
            match (status.as_u16(), document["reason"].as_str()) {
                (201, None) if !is_taken && !answered.is_replay => return answered.without_replay_mark(),
                (200, None) if answered.is_replay => return answered.without_replay_mark(),
                (202, None) if !is_taken => {
                    assert_eq!(document["in_progress"], true, "{text}");
                    is_taken = true;
                }
                (409, Some("in_progress" | "retry_later")) => is_taken = true,
                (503, _) => {}
                _ => panic!("{id} is answered {status}: {text}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Looks up an accepted event until its ledger has reported back.
    async fn await_completion(&self, id: &str) {
        loop {
            if let Some(found) = self.look_up(id).await {
                match found["outcome"].as_str() {
                    Some("completed") => return,
                    Some("in_progress" | "failed") => {}
                    _ => panic!("{id} was taken: {found}"),
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn post(&self, id: &str) -> Option<Answer> {
        let amount = format!("{}.{:02}", id.len(), id.bytes().map(u32::from).sum::<u32>() % 100);
        // Each event has a correlation id of its own, so that its answers are equal byte by byte.
        let event = json!({
            "eventId": id, "eventType": "sold", "correlationId": id,
            "data": {
                "postingDate": "2026-11-15", "currency": "EUR",
                "lines": [{ "account": "1200", "debit": amount }, { "account": "8400", "credit": amount }],
            },
        });
        let request = self.http.post(format!("{}/v1/events", self.gateway));
        let request = request.header("content-type", "application/json").body(event.to_string());
        self.request(request).await
    }

    async fn look_up(&self, id: &str) -> Option<Value> {
        let answered = self.request(self.http.get(format!("{}/v1/claims/{id}", self.gateway))).await?;
        (answered.status == StatusCode::OK).then_some(answered.document)
    }

    /// Returns `None` if a kill came in between.
    async fn request(&self, request: reqwest::RequestBuilder) -> Option<Answer> {
        let answered = async {
            let answer = request.bearer_auth(&self.token).send().await?;
            let is_replay = answer.headers().get("snavio-replayed").is_some_and(|value| value == "true");
            let status = answer.status();
            let text = answer.text().await?;
            let document = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}: {text}"));
            Ok::<_, reqwest::Error>(Answer { status, is_replay, text, document })
        };
        match answered.await {
            Ok(answered) => Some(answered),
            Err(error) => {
                assert!(!error.is_timeout(), "no answer, and no end: {error}");
                self.lost.fetch_add(usize::from(!error.is_connect()), Ordering::SeqCst);
                None
            }
        }
    }

    /// Returns the claim of an event, and checks that it is complete with this reference.
    async fn expect_completed(&self, id: &str, reference: &str) -> Value {
        let found = self.look_up(id).await.unwrap();
        let claim = &found["claims"][0];
        let shown = (&found["outcome"], &claim["status"], &claim["glPostingReference"]);
        assert_eq!(shown, (&json!("completed"), &json!("COMPLETED"), &json!(reference)), "{id}: {found}");
        claim.clone()
    }

    async fn replayed(&self, id: &str) -> String {
        let answered = self.post(id).await.unwrap();
        assert_eq!((answered.status, answered.is_replay), (StatusCode::OK, true), "{}", answered.text);
        answered.without_replay_mark()
    }
}

impl Answer {
    /// Returns the whole answer without its replay mark.
    fn without_replay_mark(&self) -> String {
        assert_eq!(self.document["state"], "COMPLETED", "{}", self.text);
        assert!(self.document["reference"].is_string(), "{}", self.text);
        self.text.replacen(r#""replay":true,"#, "", 1)
    }
}

/// The number of attempts over all events.
#[derive(Default)]
struct Attempts {
    all: u64,
    /// Events with more than one attempt.
    again: usize,
}

impl Attempts {
    fn add(&mut self, claim: &Value) {
        let attempts = claim["attempts"].as_u64().unwrap();
        self.all += attempts;
        self.again += usize::from(attempts > 1);
    }
}

/// SplitMix64: random choices that one printed seed repeats.
struct Choices(u64);

impl Choices {
    fn new(case: &str) -> Self {
        let given = std::env::var("TEST_SEED").ok().map(|text| text.parse().unwrap());
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(case) % 1_000_000_000);
        println!("{case}: TEST_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
