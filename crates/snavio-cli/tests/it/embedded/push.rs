//! What waits for a receiver that is dead is bounded by its queue, of which this engine knows the depth exactly.

use std::time::Duration;

use serde_json::json;

use crate::node::Node;
use crate::patience::{eventually, within};
use crate::processor::{Processor, Reserved};
use crate::push::{Hooks, hook, ids, launch};

/// DLV-4, PIP-13: what waits for one that is dead is bounded by its queue, and is nobody else's affair.
#[tokio::test]
async fn a_dead_receivers_backlog_is_bounded_and_the_others_get_everything() {
    let reserved = Reserved::new();
    let alive = Processor::start().await;
    // Only a full queue makes dead letters: what is between two counts is counted once.
    let dead =
        hook(&reserved.url(), &json!({ "target": "acme/dead", "queue": "dead-hook", "receives_max": 100 }));
    let node = Node::launch(&launch().set("STORE_QUEUE_DEPTH_MAX", 10));
    let hooks = Hooks::on(node, vec![hook(&alive.url(), &json!({})), dead]).await;
    let mut sent = Vec::new();
    while sent.len() < 40 {
        // The one that is alive has room again as soon as it was called.
        sent.extend(hooks.sends(1).await);
        eventually("it is taken", async || hooks.is_drained().await).await;
    }
    assert_eq!(ids(&alive.asked()), sent, "in their order, each once");
    let waiting = async || {
        let queue = hooks.node.get("/v1/queues/dead-hook?tenant=acme").await;
        ["depth", "in_flight", "delayed"].iter().map(|it| queue[it].as_u64().unwrap()).sum::<u64>()
    };
    let letters = async || hooks.dead_letters().await.len() as u64;
    assert_eq!(waiting().await + letters().await, 40, "each is somewhere");
    assert!(
        waiting().await <= 10 && hooks.dead_letters().await.iter().any(|it| it["reason"] == "queue_full")
    );
    let back = Processor::on(reserved);
    within(Duration::from_secs(60), "it drains", async || (waiting().await == 0).then_some(())).await;
    assert_eq!(back.asked().len() as u64 + letters().await, 40);
}
