//! Clients that close their connection in the middle of a request.

use std::time::Duration;

use reqwest::Method;
use serde_json::Value;

use crate::node::{Draft, Node, drain, new_id, post};
use crate::patience::eventually;
use crate::raw_wire::{Wire, json_head};

/// PIP-4, PIP-5
#[tokio::test(flavor = "multi_thread")]
async fn disconnected_client_leaves_a_whole_message_or_none() {
    let node = Node::start();
    let cast = node.cast().await;
    let token = node.token(&cast.billing).await;
    let mut whole = Vec::new();
    let mut half = Vec::new();
    for round in 0..40 {
        let draft = Draft::new("pay", &new_id());
        let body = draft.sign(&cast.billing);
        let head = json_head("/v1/commands", &token, body.len());
        let is_whole = round % 2 == 0;
        let part = if is_whole { &body[..] } else { &body[..body.len() / 2] };
        // The connection closes at the end of the statement, before the client reads the answer.
        assert!(Wire::to(&node).send([head.as_bytes(), part].concat()));
        if is_whole { whole.push(draft) } else { half.push(draft) }
    }
    wait_until_quiet(&node).await;

    let delivered: Vec<_> = drain(&node.client(&cast.bot), "pay-inbox").await;
    let delivered: Vec<_> = delivered.iter().map(|delivery| delivery.message.id().unwrap()).collect();
    let billing = node.client(&cast.billing);
    let mut taken = 0;
    for draft in whole.iter().chain(&half) {
        let copies = delivered.iter().filter(|id| **id == draft.id).count();
        let (status, answer) = post(&billing, draft.sign(&cast.billing)).await;
        let is_duplicate = answer["duplicate"] == true;
        assert_eq!(
            (copies, status),
            if is_duplicate { (1, 200) } else { (0, 202) },
            "{}: {answer}",
            draft.id
        );
        taken += copies;
    }
    assert!(taken > 0, "every connection closed before its message was accepted");
    assert!(half.iter().all(|draft| !delivered.contains(&&*draft.id)), "half a message was accepted");
    println!(
        "closed connections: {taken} of {} whole messages were accepted, and none of {} halves",
        whole.len(),
        half.len()
    );
}

/// Waits until no message is in the intake and the store made no commit for 300 ms.
async fn wait_until_quiet(node: &Node) {
    let mut last = Value::Null;
    eventually("the node is idle", async || {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = node.operator().call(Method::GET, "/v1/status", None).await.expect("the node answers");
        let is_quiet = now["waiting"] == 0 && now["store"]["commits"] == last;
        last = now["store"]["commits"].clone();
        is_quiet.then_some(())
    })
    .await;
}
