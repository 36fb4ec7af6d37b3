//! Clients that hang up in the middle.

use std::time::Duration;

use reqwest::Method;
use serde_json::Value;

use crate::node::{Draft, Node, drain, new_id, post};
use crate::patience::eventually;
use crate::raw_wire::{Wire, json_head};

/// PIP-4, PIP-5
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_leaves_a_whole_message_or_none() {
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
        // Hung up at the end of the statement, without reading.
        assert!(Wire::to(&node).send([head.as_bytes(), part].concat()));
        if is_whole { whole.push(draft) } else { half.push(draft) }
    }
    wait_until_quiet(&node).await;

    let delivered: Vec<_> = drain(&node.client(&cast.bot), "pay-inbox").await;
    let delivered: Vec<_> = delivered.iter().map(|it| it.message.id().unwrap()).collect();
    let billing = node.client(&cast.billing);
    let mut there = 0;
    for draft in whole.iter().chain(&half) {
        let copies = delivered.iter().filter(|id| **id == draft.id).count();
        let (status, answer) = post(&billing, draft.sign(&cast.billing)).await;
        let known = answer["duplicate"] == true;
        assert_eq!((copies, status), if known { (1, 200) } else { (0, 202) }, "{}: {answer}", draft.id);
        there += copies;
    }
    assert!(there > 0, "nobody hung up late enough");
    assert!(half.iter().all(|draft| !delivered.contains(&&*draft.id)), "half a message was taken");
    println!(
        "hanging up: {there} of {} whole messages were taken, of {} halves none",
        whole.len(),
        half.len()
    );
}

/// Nothing waits and nothing was committed between two looks.
async fn wait_until_quiet(node: &Node) {
    let mut last = Value::Null;
    eventually("the dust settles", async || {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = node.operator().call(Method::GET, "/v1/status", None).await.expect("the node answers");
        let quiet = now["waiting"] == 0 && now["store"]["commits"] == last;
        last = now["store"]["commits"].clone();
        quiet.then_some(())
    })
    .await;
}
