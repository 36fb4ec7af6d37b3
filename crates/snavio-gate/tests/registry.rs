//! The registry that a gate keeps in memory, over a real store.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use snavio_gate::{Arrival, Form, Gate, Settings, Wait};
use snavio_model::message::MessageKind;
use snavio_model::refusal::Reason;
use snavio_model::registry::{Change, Entry, Sealed, Unseal};
use snavio_model::signature::signing::Secret;
use snavio_model::time::{Clock, Timestamp};
use snavio_store::Store;
use snavio_store::engine::postgres::PostgresStore;
use snavio_store::engine::sqlite::EmbeddedStore;
use snavio_store::engine::{postgres, sqlite};
use snavio_testbed::Postgres;

const NOON: Timestamp = Timestamp(1_800_000_000_000);

/// A clock that starts at noon and runs.
struct RunningClock(tokio::time::Instant);

impl Clock for RunningClock {
    fn now(&self) -> Timestamp {
        NOON.plus(self.0.elapsed())
    }
}

fn running_clock() -> Arc<dyn Clock> {
    Arc::new(RunningClock(tokio::time::Instant::now()))
}

struct NoKeys;

impl Unseal for NoKeys {
    fn unseal(&self, _: &Sealed) -> Option<Secret> {
        None
    }
}

/// REG-18
#[tokio::test(flavor = "multi_thread")]
async fn change_by_another_process_takes_effect() {
    let folder = tempfile::tempdir().unwrap();
    expect_change_followed(Arc::new(EmbeddedStore::open(&sqlite::Options::new(folder.path())).unwrap()))
        .await;
}

/// REG-18, ENG-7
#[tokio::test(flavor = "multi_thread")]
async fn change_by_another_node_takes_effect() {
    let url = Postgres::shared().database().unwrap();
    expect_change_followed(Arc::new(PostgresStore::open(&postgres::Options::new(url)).await.unwrap())).await;
}

async fn expect_change_followed(store: Arc<dyn Store>) {
    let started = Gate::start(Settings::default(), Arc::clone(&store), Arc::new(NOON), Arc::new(NoKeys));
    let gate = started.await.unwrap();
    assert!(gate.registry().tenant("acme").is_none());
    let tenant = Entry::Tenant(serde_json::from_str(r#"{"name":"acme"}"#).unwrap());
    let (who, why) = ("operator".into(), "made elsewhere".into());
    let change =
        Change { version: 1, at: NOON, who, why, key: tenant.key(), before: None, after: Some(tenant) };
    store.apply(vec![change]).await.unwrap();
    let seen = async {
        while gate.registry().tenant("acme").is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), seen).await.expect("the gate follows its store");
    gate.stop().await;
}

/// REG-18
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_change_is_reported_and_stops_intake() {
    let folder = tempfile::tempdir().unwrap();
    let open = || EmbeddedStore::open(&sqlite::Options::new(folder.path())).unwrap();
    open().close().await;
    let unreadable = [("tenant", r#"{"kind":"tenant","name":"acme","mood":"new"}"#), ("mood", "{}")];
    for (kind, entry) in unreadable {
        let file = folder.path().join(sqlite::FILE);
        run(&file, "DELETE FROM registry_change");
        run(
            &file,
            &format!("INSERT INTO registry_change VALUES (1, 0, '', '', '{kind}', 'acme', NULL, '{entry}')"),
        );
        let store: Arc<dyn Store> = Arc::new(open());
        let gate = Gate::start(Settings::default(), store, running_clock(), Arc::new(NoKeys)).await.unwrap();
        let problem = wait_for(async || gate.registry_problem()).await;
        assert!(problem.starts_with("registry change 1 is damaged"), "{problem}");
        assert_ne!(refused(&gate).await, Reason::Unavailable, "the registry is still fresh enough");
        wait_for(async || (refused(&gate).await == Reason::Unavailable).then_some(())).await;
        gate.stop().await;
    }
}

async fn wait_for<T>(mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            match ask().await {
                Some(answer) => return answer,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), asking).await.expect("an answer comes in time")
}

/// Returns the reason that a gate with an empty registry gives for its refusal.
async fn refused(gate: &Gate) -> Reason {
    let arrival = Arrival {
        kind: MessageKind::Command,
        form: Form::Native,
        source: "acme/billing".parse().unwrap(),
        body: "{}".into(),
        webhook: None,
        vouched: None,
        correlation: None,
        traceparent: None,
        received_at: NOON,
        random: [0; 40],
    };
    let refused = gate.accept(arrival, Wait::Usual, ()).await.unwrap_err();
    assert!(refused.subject.correlation.is_some(), "MSG-11: every refusal has a correlation id");
    refused.refusal.reason
}

/// Writes a row that no node of this version writes.
fn run(file: &Path, statement: &str) {
    let done = Command::new("sqlite3").arg(file).arg(statement).output();
    let done = done.expect("this test needs sqlite3: run ./test, which installs it");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
