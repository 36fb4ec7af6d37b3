//! The backlog of a receiver that is down is bounded by its queue, as exactly as the PostgreSQL engine counts
//! it.

use std::time::Duration;

use serde_json::json;

use crate::engine::Database;
use crate::node::Node;
use crate::patience::{eventually, within};
use crate::processor::{Processor, Reserved};
use crate::push::{Hooks, hook, ids, launch};

const DEPTH_MAX: u64 = 10;
/// The number of messages between two counts of a queue, so few that the queue of a running receiver always
/// has room.
const BURST: u64 = 8;
const BURSTS: u64 = 3;
/// Longer than the second for which a count is used.
const NEXT_COUNT: Duration = Duration::from_millis(1200);

/// DLV-4, PIP-13: a queue holds at most its limit and the messages between two counts, and other receivers
/// are not affected.
#[tokio::test]
async fn backlog_of_dead_receiver_is_bounded_and_others_get_everything() {
    let reserved = Reserved::new();
    let alive = Processor::start().await;
    // `receives_max` is high, so that only the full queue makes dead letters. So no delivery moves while the
    // test counts first the queue and then the dead letters.
    let dead =
        hook(&reserved.url(), &json!({ "target": "acme/dead", "queue": "dead-hook", "receives_max": 100 }));
    let node = Node::over(&Database::new(), &launch().set("STORE_QUEUE_DEPTH_MAX", DEPTH_MAX));
    let hooks = Hooks::on(node, vec![hook(&alive.url(), &json!({})), dead]).await;
    let mut sent = Vec::new();
    for _ in 0..BURSTS {
        sent.extend(hooks.sends(u32::try_from(BURST).unwrap()).await);
        eventually("the messages are pushed", async || hooks.is_drained().await).await;
        tokio::time::sleep(NEXT_COUNT).await;
    }
    let all = BURSTS * BURST;
    let mut received: Vec<_> = ids(&alive.asked()).into_iter().map(str::to_owned).collect();
    received.sort_unstable();
    sent.sort_unstable();
    assert_eq!(received, sent, "each once");
    let waiting = async || {
        let queue = hooks.node.get("/v1/queues/dead-hook?tenant=acme").await;
        ["depth", "in_flight", "delayed"].iter().map(|member| queue[member].as_u64().unwrap()).sum::<u64>()
    };
    let letters = async || hooks.dead_letters().await.len() as u64;
    assert_eq!(waiting().await + letters().await, all, "each message waits or is a dead letter");
    assert!(waiting().await <= DEPTH_MAX + BURST, "{}", waiting().await);
    assert!(hooks.dead_letters().await.iter().any(|letter| letter["reason"] == "queue_full"));
    let back = Processor::on(reserved);
    within(Duration::from_secs(60), "it drains", async || (waiting().await == 0).then_some(())).await;
    assert_eq!(back.asked().len() as u64 + letters().await, all);
}
