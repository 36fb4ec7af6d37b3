//! A wall clock that was set back while the node was down.

use std::process::Command;
use std::time::Duration;

use reqwest::Method;
use serde_json::Value;
use snavio_model::time::Timestamp;
use snavio_store::engine::sqlite::{EmbeddedStore, Options};
use snavio_store::{Ledger, Store};

use crate::node::{Draft, Launch, Node, new_id, post};
use crate::patience::poll;
use crate::shell::Shell;

/// QUA-1
#[tokio::test(flavor = "multi_thread")]
async fn a_store_from_the_future_needs_a_persons_word() {
    let mut node = Node::start();
    let cast = node.cast().await;
    let draft = Draft::new("pay", &new_id());
    assert_eq!(post(&node.client(&cast.billing), draft.sign(&cast.billing)).await.0, 202);
    node.stop();

    set_last_commit_ahead(&node, Duration::from_secs(3500));
    assert_eq!(doctor_on_the_clock(&node)["result"], "ok");
    node.restart(&Launch::default());
    node.stop();

    set_last_commit_ahead(&node, Duration::from_secs(3700));
    let finding = doctor_on_the_clock(&node);
    assert!(finding["result"].to_string().contains("ahead of this machine's clock"), "{finding}");
    assert_eq!(finding["mend"], "set the clock, or start with --accept-clock");
    node.try_restart(&Launch::default());
    assert_eq!(node.wait().code(), Some(1));
    let said = node.said();
    assert!(said.contains("set the clock, or start with --accept-clock"), "{said}");

    let accepting = Launch { arguments: vec!["--accept-clock".to_owned()], ..Launch::default() };
    node.restart(&accepting);
    let draft = Draft::new("pay", &new_id());
    let (status, answer) = post(&node.client(&cast.billing), draft.sign(&cast.billing)).await;
    assert_eq!(status, 202, "what is signed now is in its window: {answer}");
    let ready = node.api().call(Method::GET, "/readyz", None).await.expect("an answer");
    assert_eq!(ready["checks"]["clock"], "ok");
    assert!(node.said().contains("the wall clock is behind the store's last commit"), "{}", node.said());
}

/// CLM-7, QUA-1: by the right time, the claims that such a sweep deleted would still refuse a duplicate.
#[tokio::test(flavor = "multi_thread")]
async fn sweep_by_a_clock_ahead_needs_accept_clock_afterwards() {
    let mut node = Node::start();
    let cast = node.cast().await;
    let draft = Draft::new("pay", &new_id());
    assert_eq!(post(&node.client(&cast.billing), draft.sign(&cast.billing)).await.0, 202);
    node.stop();

    let sweep_ahead = async |hours: u64| {
        let store = EmbeddedStore::open(&Options::new(node.data())).expect("the store opens");
        let ahead = now().plus(Duration::from_secs(hours * 3600));
        let swept = store.sweep(ahead).await.expect("the store sweeps");
        store.close().await;
        swept.claims
    };
    assert_eq!(sweep_ahead(2).await, 1, "the claim is deleted");
    let finding = doctor_on_the_clock(&node);
    assert_eq!(finding["mend"], "set the clock, or start with --accept-clock", "{finding}");
    node.try_restart(&Launch::default());
    assert_eq!(node.wait().code(), Some(1));
    assert!(node.said().contains("--accept-clock"), "{}", node.said());

    let accepting = Launch { arguments: vec!["--accept-clock".to_owned()], ..Launch::default() };
    node.restart(&accepting);
    let taken_back = || (swept_at(&node) <= now().0).then_some(());
    poll("a sweep by the accepted clock takes its place", taken_back);
    node.stop();
    node.restart(&Launch::default());
    node.stop();
}

#[expect(clippy::disallowed_methods, reason = "the store is swept as by another clock than this one")]
fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    Timestamp(i64::try_from(since.as_millis()).expect("not that late"))
}

/// When a store was swept last, in milliseconds.
fn swept_at(node: &Node) -> i64 {
    let asked = Command::new("sqlite3")
        .arg("-readonly")
        .arg(node.data().join("snavio.db"))
        .arg("SELECT value FROM note WHERE name = 'sweep/at'")
        .output();
    let asked = asked.expect("this test needs sqlite3: run ./test, which installs it");
    String::from_utf8_lossy(&asked.stdout).trim().parse().expect("a time")
}

/// What doctor says of the clock of a node that is down.
fn doctor_on_the_clock(node: &Node) -> Value {
    let findings = Shell::new().run(&format!("doctor --data {} --output json", node.data().display())).json();
    let found = findings.as_array().into_iter().flatten().find(|it| it["check"] == "clock");
    found.cloned().unwrap_or_else(|| panic!("no finding about the clock in {findings}"))
}

/// As if the wall clock had been ahead when the newest message came, and is right now.
fn set_last_commit_ahead(node: &Node, ahead: Duration) {
    let change = format!(
        "UPDATE message SET received_at = unixepoch() * 1000 + {} WHERE seq = (SELECT max(seq) FROM message); \
         SELECT changes();",
        ahead.as_millis()
    );
    let done = Command::new("sqlite3").arg(node.data().join("snavio.db")).arg(change).output();
    let done = done.expect("this test needs sqlite3: run ./test, which installs it");
    assert_eq!(
        String::from_utf8_lossy(&done.stdout).trim(),
        "1",
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}
