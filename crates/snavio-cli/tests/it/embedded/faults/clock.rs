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
async fn store_ahead_of_clock_needs_accept_clock() {
    let mut node = Node::start();
    let cast = node.cast().await;
    let draft = Draft::new("pay", &new_id());
    assert_eq!(post(&node.client(&cast.billing), draft.sign(&cast.billing)).await.0, 202);
    node.stop();

    set_last_commit_ahead(&node, Duration::from_secs(3500));
    assert_eq!(clock_finding(&node)["result"], "ok");
    node.restart(&Launch::default());
    node.stop();

    set_last_commit_ahead(&node, Duration::from_secs(3700));
    let finding = clock_finding(&node);
    assert!(finding["result"].to_string().contains("ahead of this machine's clock"), "{finding}");
    assert_eq!(finding["mend"], "set the clock, or start with --accept-clock");
    node.try_restart(&Launch::default());
    assert_eq!(node.wait().code(), Some(1));
    let log = node.said();
    assert!(log.contains("set the clock, or start with --accept-clock"), "{log}");

    let accepting = Launch { arguments: vec!["--accept-clock".to_owned()], ..Launch::default() };
    node.restart(&accepting);
    let draft = Draft::new("pay", &new_id());
    let (status, answer) = post(&node.client(&cast.billing), draft.sign(&cast.billing)).await;
    assert_eq!(status, 202, "a message that is signed now is in the replay window: {answer}");
    let ready = node.api().call(Method::GET, "/readyz", None).await.expect("an answer");
    assert_eq!(ready["checks"]["clock"], "ok");
    assert!(node.said().contains("the wall clock is behind the store's last commit"), "{}", node.said());
}

/// CLM-7, QUA-1: a sweep by a clock that is ahead deletes claims that should still refuse duplicates.
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
    let finding = clock_finding(&node);
    assert_eq!(finding["mend"], "set the clock, or start with --accept-clock", "{finding}");
    node.try_restart(&Launch::default());
    assert_eq!(node.wait().code(), Some(1));
    assert!(node.said().contains("--accept-clock"), "{}", node.said());

    let accepting = Launch { arguments: vec!["--accept-clock".to_owned()], ..Launch::default() };
    node.restart(&accepting);
    let is_replaced = || (swept_at(&node) <= now().0).then_some(());
    poll("a sweep by the accepted clock replaces the recorded time", is_replaced);
    node.stop();
    node.restart(&Launch::default());
    node.stop();
}

#[expect(clippy::disallowed_methods, reason = "the store is swept as by another clock than this one")]
fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    Timestamp(i64::try_from(since.as_millis()).expect("not that late"))
}

/// The time of the store's last expiry sweep, in milliseconds since 1970.
fn swept_at(node: &Node) -> i64 {
    let query = Command::new("sqlite3")
        .arg("-readonly")
        .arg(node.data().join("snavio.db"))
        .arg("SELECT value FROM note WHERE name = 'sweep/at'")
        .output();
    let query = query.expect("this test needs sqlite3: run ./test, which installs it");
    String::from_utf8_lossy(&query.stdout).trim().parse().expect("a time")
}

/// The finding of `snavio doctor` about the clock of a stopped node.
fn clock_finding(node: &Node) -> Value {
    let findings = Shell::new().run(&format!("doctor --data {} --output json", node.data().display())).json();
    let found = findings.as_array().into_iter().flatten().find(|finding| finding["check"] == "clock");
    found.cloned().unwrap_or_else(|| panic!("no finding about the clock in {findings}"))
}

/// Changes the time of the newest message, as if the wall clock had been ahead when it arrived and were right
/// now.
fn set_last_commit_ahead(node: &Node, ahead: Duration) {
    let change = format!(
        "UPDATE message SET received_at = unixepoch() * 1000 + {} WHERE seq = (SELECT max(seq) FROM message); \
         SELECT changes();",
        ahead.as_millis()
    );
    let query = Command::new("sqlite3").arg(node.data().join("snavio.db")).arg(change).output();
    let query = query.expect("this test needs sqlite3: run ./test, which installs it");
    assert_eq!(
        String::from_utf8_lossy(&query.stdout).trim(),
        "1",
        "{}",
        String::from_utf8_lossy(&query.stderr)
    );
}
