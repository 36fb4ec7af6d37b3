//! The backlog of a receiver that is down is bounded by its queue. The embedded engine knows a queue's depth
//! exactly.

use std::time::Duration;

use serde_json::json;

use crate::node::Node;
use crate::patience::{eventually, within};
use crate::processor::{Processor, Reserved};
use crate::push::{Hooks, hook, ids, launch};

/// DLV-4, PIP-13: the queue bounds the backlog of a receiver that is down, and other receivers are not
/// affected.
#[tokio::test]
async fn backlog_of_dead_receiver_is_bounded_and_others_get_everything() {
    let reserved = Reserved::new();
    let alive = Processor::start().await;
    // `receives_max` is high, so that only the full queue makes dead letters. So no delivery moves while the
    // test counts first the queue and then the dead letters.
    let dead =
        hook(&reserved.url(), &json!({ "target": "acme/dead", "queue": "dead-hook", "receives_max": 100 }));
    let node = Node::launch(&launch().set("STORE_QUEUE_DEPTH_MAX", 10));
    let hooks = Hooks::on(node, vec![hook(&alive.url(), &json!({})), dead]).await;
    let mut sent = Vec::new();
    while sent.len() < 40 {
        // The queue of the running receiver has room again after each call.
        sent.extend(hooks.sends(1).await);
        eventually("the message is pushed", async || hooks.is_drained().await).await;
    }
    assert_eq!(ids(&alive.asked()), sent, "in their order, each once");
    let waiting = async || {
        let queue = hooks.node.get("/v1/queues/dead-hook?tenant=acme").await;
        ["depth", "in_flight", "delayed"].iter().map(|member| queue[member].as_u64().unwrap()).sum::<u64>()
    };
    let letters = async || hooks.dead_letters().await.len() as u64;
    assert_eq!(waiting().await + letters().await, 40, "each message waits or is a dead letter");
    assert!(
        waiting().await <= 10
            && hooks.dead_letters().await.iter().any(|letter| letter["reason"] == "queue_full")
    );
    let back = Processor::on(reserved);
    within(Duration::from_secs(60), "it drains", async || (waiting().await == 0).then_some(())).await;
    assert_eq!(back.asked().len() as u64 + letters().await, 40);
}
