//! Overload is refused early, per tenant and in total, and never what ends work already begun.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::node::{Draft, Launch, Node, new_id, post, verdict};
use crate::patience::eventually;
use crate::raw_wire::{Wire, head, json_head, json_request};
use crate::wire::metric;

fn poll(token: &str) -> Vec<u8> {
    json_request("/v1/queues/notify-inbox/receive", token, br#"{"wait_seconds":20}"#)
}

/// Takes so many places of a tenant, which are all that it has.
async fn hold(node: &Node, token: &str, count: usize) -> Vec<Wire> {
    let polls = (0..count).map(|_| {
        let mut wire = Wire::to(node);
        wire.send(poll(token));
        wire
    });
    let polls = polls.collect();
    under_way(node, count).await;
    polls
}

/// Waits until so many requests are under way, besides the one that asks. A probe that took a place itself would
/// take it from one of them.
async fn under_way(node: &Node, count: usize) {
    let there = async || metric(node, "snavio_requests_in_flight").await == Some(count as f64 + 1.0);
    eventually("the requests are under way", async || there().await.then_some(())).await;
}

/// PIP-9
#[tokio::test]
async fn one_tenant_may_have_a_quarter_of_the_requests_under_way() {
    let node = Node::launch(&Launch::default().set("SERVER_REQUESTS_MAX", 16));
    let cast = node.cast().await;
    let (bot, billing) = (node.client(&cast.bot), node.client(&cast.billing));
    post(&billing, Draft::new("pay", &new_id()).sign(&cast.billing)).await;
    let taken = bot.receive("pay-inbox", 1, Duration::from_secs(30), Duration::ZERO).await.unwrap();
    let other = json!({ "tenants": [{ "name": "zeta" }], "services": [{ "name": "zeta/bot" }] });
    let zeta = node.apply(&other).await.remove(0);
    let token = node.token(&cast.bot).await;
    let held = hold(&node, &token, 4).await;

    let answer = Wire::to(&node).ask(poll(&token));
    assert_eq!(answer.refusal(), (503, "overloaded".into()));
    assert_eq!(answer.header("retry-after"), Some("1"));
    let (status, problem) = post(&billing, Draft::new("pay", &new_id()).sign(&cast.billing)).await;
    assert_eq!(
        (status, problem["reason"].as_str(), problem["accepted"].as_bool()),
        (503, Some("overloaded"), Some(false))
    );
    // Work that was begun may be ended, and other tenants go on.
    bot.acknowledge("pay-inbox", &[taken[0].receipt()]).await.expect("acknowledgements are not refused");
    let zeta = node.client(&zeta).authorized().await.unwrap();
    assert_eq!(verdict(zeta.send(Method::GET, "/v1/telemetry", None, "").await).0, 200);
    drop(held);
}

/// PIP-9
#[tokio::test]
async fn requests_past_the_total_are_told_to_come_back_and_health_goes_on() {
    let node = Node::launch(&Launch::default().set("SERVER_REQUESTS_MAX", 4));
    let cast = node.cast().await;
    let more: Vec<_> = ["t1", "t2", "t3"].map(|name| json!({ "name": name })).into();
    let services: Vec<_> = ["t1", "t2", "t3"].map(|name| json!({ "name": format!("{name}/s") })).into();
    let mut waiting = Vec::new();
    let credentials = node.apply(&json!({ "tenants": more, "services": services })).await;
    let last = node.token(&cast.bot).await;
    let wait = |token: &str| {
        let mut wire = Wire::to(&node);
        wire.send(head("GET /v1/telemetry?wait_seconds=20&after=9223372036854775806", token, &[]));
        wire
    };
    for credentials in &credentials {
        let token = node.token(credentials).await;
        waiting.push(wait(&token));
    }
    under_way(&node, 3).await;
    let get = |path: &str| Wire::to(&node).ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    // Whoever asks for the last place may be in the way of whoever is to have it: then that one comes again.
    let full = async || {
        waiting.push(wait(&last));
        Some(get("/docs")).filter(|answer| answer.status == 503)
    };
    assert_eq!(eventually("all places are taken", full).await.refusal(), (503, "overloaded".into()));
    assert_eq!(get("/livez").status, 200);
    assert_eq!(get("/readyz").status, 200);
    drop(waiting);
    let freed = async || (get("/docs").status == 200).then_some(());
    eventually("requests that ended make room", freed).await;
}

const BATCH: usize = 4 * 1024 * 1024;

const PATH: &str = "/v1/commands/batch";

/// PIP-9
#[tokio::test]
async fn what_a_tenant_announces_takes_no_room_and_what_it_sends_takes_its_own() {
    let node = Node::launch(&Launch::default().set("SERVER_BODIES_BYTES_MAX", 4 * BATCH));
    let cast = node.cast().await;
    let other = json!({ "tenants": [{ "name": "zeta" }], "services": [{ "name": "zeta/bot" }] });
    let zeta = node.apply(&other).await.remove(0);
    let token = node.token(&cast.billing).await;
    let mut announced: Vec<_> = (0..8).map(|_| Wire::to(&node)).collect();
    for wire in &mut announced {
        wire.send(json_head(PATH, &token, BATCH));
    }
    let send = |token: &str, body: &str| Wire::to(&node).ask(json_request(PATH, token, body.as_bytes()));
    assert_eq!(send(&token, "[]").status, 200, "announced is not sent");

    announced[0].send(vec![b' '; BATCH - 100]);
    let in_memory = async || metric(&node, "snavio_body_bytes_in_flight").await;
    let arrived = async || in_memory().await.filter(|bytes| *bytes >= (BATCH - 100) as f64);
    eventually("the body is in memory", arrived).await;
    assert_eq!(send(&token, &" ".repeat(200)).refusal(), (503, "overloaded".into()));
    // Acknowledgements and tokens of the same tenant, and everything of another, go on.
    let bot = node.client(&cast.bot);
    let receipts = json!({ "receipts": [{ "delivery_id": 1, "fence": 1 }] });
    bot.call(Method::POST, "/v1/queues/pay-inbox/ack", Some(&receipts)).await.expect("an answer");
    let zeta = node.token(&zeta).await;
    let large = format!("[]{}", " ".repeat(198));
    assert_eq!(send(&zeta, &large).status, 200);
    drop(announced);
    let freed = async || (send(&token, &large).status == 200).then_some(());
    eventually("a body that is gone makes room", freed).await;
}

/// PIP-9, MSG-7: anybody can send a webhook, and keep its body waiting.
#[tokio::test]
async fn bodies_of_strangers_webhooks_have_a_share_of_their_own() {
    const PART: usize = 262_000;
    let node = Node::launch(&Launch::default().set("SERVER_BODIES_BYTES_MAX", 4 * BATCH));
    let cast = node.cast().await;
    let token = node.token(&cast.billing).await;
    let stall = |path: &str| {
        let mut wire = Wire::to(&node);
        wire.send(json_head(path, "nobody", PART + 1));
        wire.send(vec![b' '; PART]);
        wire
    };
    // As many as a quarter has room for, and what would end work in another place among them.
    let paths = ["/v1/hooks/x/y", "/v1/hooks/x/ack", "/v1/hooks/x/complete", "/v1/hooks/x/extend"];
    let stalled: Vec<_> = paths.iter().cycle().take(BATCH / PART).map(|path| stall(path)).collect();
    let full = (stalled.len() * PART) as f64;
    let in_memory = async || metric(&node, "snavio_body_bytes_in_flight").await;
    eventually("the bodies are in memory", async || in_memory().await.filter(|bytes| *bytes >= full)).await;
    for path in paths {
        let more = json_request(path, "nobody", " ".repeat(PART).as_bytes());
        assert_eq!(Wire::to(&node).ask(more).refusal(), (503, "overloaded".into()), "{path}");
    }
    let large = format!("[]{}", " ".repeat(BATCH - 100));
    let sent = Wire::to(&node).ask(json_request(PATH, &token, large.as_bytes()));
    assert_eq!(sent.status, 200, "who is known has room");
    drop(stalled);
    let ask = || Wire::to(&node).ask(json_request("/v1/hooks/x/y", "nobody", b"{}")).status;
    eventually("webhooks have room again", async || (ask() == 401).then_some(())).await;
}
