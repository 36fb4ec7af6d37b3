//! A wall clock that was set back while the node was down.

use std::process::Command;
use std::time::Duration;

use reqwest::Method;

use crate::node::{Draft, Launch, Node, new_id, post};

/// QUA-1
#[tokio::test(flavor = "multi_thread")]
async fn a_store_from_the_future_needs_a_persons_word() {
    let mut node = Node::start();
    let cast = node.cast().await;
    let draft = Draft::new("pay", &new_id());
    assert_eq!(post(&node.client(&cast.billing), draft.sign(&cast.billing)).await.0, 202);
    node.stop();

    set_last_commit_ahead(&node, Duration::from_secs(3500));
    node.restart(&Launch::default());
    node.stop();

    set_last_commit_ahead(&node, Duration::from_secs(3700));
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
