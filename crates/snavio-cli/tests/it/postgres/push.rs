//! What waits for a receiver that is dead is bounded by its queue, as nearly as this engine counts it.

use std::time::Duration;

use serde_json::json;

use crate::engine::Database;
use crate::node::Node;
use crate::patience::{eventually, within};
use crate::processor::{Processor, Reserved};
use crate::push::{Hooks, hook, ids, launch};

const DEPTH_MAX: u64 = 10;
/// What is sent between two counts of a queue: so few that one that is alive always has room.
const BURST: u64 = 8;
const BURSTS: u64 = 3;
/// A count is good for a second.
const NEXT_COUNT: Duration = Duration::from_millis(1200);

/// DLV-4, PIP-13: a queue holds no more than it may and what comes in between two counts, and that is nobody else's affair.
#[tokio::test]
async fn a_dead_receivers_backlog_is_bounded_and_the_others_get_everything() {
    let reserved = Reserved::new();
    let alive = Processor::start().await;
    // Only a full queue makes dead letters: what is between two counts is counted once.
    let dead =
        hook(&reserved.url(), &json!({ "target": "acme/dead", "queue": "dead-hook", "receives_max": 100 }));
    let node = Node::over(&Database::new(), &launch().set("STORE_QUEUE_DEPTH_MAX", DEPTH_MAX));
    let hooks = Hooks::on(node, vec![hook(&alive.url(), &json!({})), dead]).await;
    let mut sent = Vec::new();
    for _ in 0..BURSTS {
        sent.extend(hooks.sends(u32::try_from(BURST).unwrap()).await);
        eventually("they are taken", async || hooks.is_drained().await).await;
        tokio::time::sleep(NEXT_COUNT).await;
    }
    let all = BURSTS * BURST;
    let mut came: Vec<_> = ids(&alive.asked()).into_iter().map(str::to_owned).collect();
    came.sort_unstable();
    sent.sort_unstable();
    assert_eq!(came, sent, "each once");
    let waiting = async || {
        let queue = hooks.node.get("/v1/queues/dead-hook?tenant=acme").await;
        ["depth", "in_flight", "delayed"].iter().map(|it| queue[it].as_u64().unwrap()).sum::<u64>()
    };
    let letters = async || hooks.dead_letters().await.len() as u64;
    assert_eq!(waiting().await + letters().await, all, "each is somewhere");
    assert!(waiting().await <= DEPTH_MAX + BURST, "{}", waiting().await);
    assert!(hooks.dead_letters().await.iter().any(|it| it["reason"] == "queue_full"));
    let back = Processor::on(reserved);
    within(Duration::from_secs(60), "it drains", async || (waiting().await == 0).then_some(())).await;
    assert_eq!(back.asked().len() as u64 + letters().await, all);
}
