//! The node refuses overload early, per tenant and in total. It never refuses requests that end work already
//! begun.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::node::{Draft, Launch, Node, new_id, post, verdict};
use crate::patience::eventually;
use crate::raw_wire::{Answer, Wire, head, json_head, json_request};
use crate::wire::metric;

fn poll(token: &str) -> Vec<u8> {
    json_request("/v1/queues/notify-inbox/receive", token, br#"{"wait_seconds":20}"#)
}

/// Opens `count` requests that wait, which use up the tenant's concurrency limit.
async fn occupy_places(node: &Node, token: &str, count: usize) -> Vec<Wire> {
    let polls = (0..count).map(|_| {
        let mut wire = Wire::to(node);
        wire.send(poll(token));
        wire
    });
    let polls = polls.collect();
    wait_for_requests_under_way(node, count).await;
    polls
}

/// Waits until `count` requests are under way besides the one that reads the metric. The metric needs no
/// place of the tenant: a probe with a place of its own could displace one of the requests.
async fn wait_for_requests_under_way(node: &Node, count: usize) {
    eventually("the requests are under way", async || {
        let in_flight = metric(node, "snavio_requests_in_flight").await;
        (in_flight == Some(count as f64 + 1.0)).then_some(())
    })
    .await;
}

/// A request without a token.
fn get(node: &Node, path: &str) -> Answer {
    Wire::to(node).ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
}

/// Opens a request that waits for telemetry.
fn wait_for_telemetry(node: &Node, token: &str) -> Wire {
    let mut wire = Wire::to(node);
    wire.send(head("GET /v1/telemetry?wait_seconds=20&after=9223372036854775806", token, &[]));
    wire
}

fn send_batch(node: &Node, token: &str, body: &str) -> Answer {
    Wire::to(node).ask(json_request(PATH, token, body.as_bytes()))
}

/// Waits until bodies have at least so many bytes in memory.
async fn wait_for_body_bytes(node: &Node, bytes: usize) {
    eventually("the bodies are in memory", async || {
        let in_flight = metric(node, "snavio_body_bytes_in_flight").await;
        in_flight.filter(|in_flight| *in_flight >= bytes as f64)
    })
    .await;
}

/// PIP-9
#[tokio::test]
async fn tenant_may_have_a_quarter_of_requests_under_way() {
    let node = Node::launch(&Launch::default().set("SERVER_REQUESTS_MAX", 16));
    let cast = node.cast().await;
    let (bot, billing) = (node.client(&cast.bot), node.client(&cast.billing));
    post(&billing, Draft::new("pay", &new_id()).sign(&cast.billing)).await;
    let taken = bot.receive("pay-inbox", 1, Duration::from_secs(30), Duration::ZERO).await.unwrap();
    let other = json!({ "tenants": [{ "name": "zeta" }], "services": [{ "name": "zeta/bot" }] });
    let zeta = node.apply(&other).await.remove(0);
    let token = node.token(&cast.bot).await;
    let held = occupy_places(&node, &token, 4).await;

    let answer = Wire::to(&node).ask(poll(&token));
    assert_eq!(answer.refusal(), (503, "overloaded".into()));
    assert_eq!(answer.header("retry-after"), Some("1"));
    let (status, problem) = post(&billing, Draft::new("pay", &new_id()).sign(&cast.billing)).await;
    assert_eq!(
        (status, problem["reason"].as_str(), problem["accepted"].as_bool()),
        (503, Some("overloaded"), Some(false))
    );
    // The consumer can end work that it has begun, and other tenants are not affected.
    bot.acknowledge("pay-inbox", &[taken[0].receipt()]).await.expect("acknowledgements are not refused");
    let zeta = node.client(&zeta).authorized().await.unwrap();
    assert_eq!(verdict(zeta.send(Method::GET, "/v1/telemetry", None, "").await).0, 200);
    drop(held);
}

/// PIP-9
#[tokio::test]
async fn requests_over_total_are_refused_and_health_checks_answer() {
    let node = Node::launch(&Launch::default().set("SERVER_REQUESTS_MAX", 4));
    let cast = node.cast().await;
    let more: Vec<_> = ["t1", "t2", "t3"].map(|name| json!({ "name": name })).into();
    let services: Vec<_> = ["t1", "t2", "t3"].map(|name| json!({ "name": format!("{name}/s") })).into();
    let mut waiting = Vec::new();
    let credentials = node.apply(&json!({ "tenants": more, "services": services })).await;
    let last = node.token(&cast.bot).await;
    for credentials in &credentials {
        let token = node.token(credentials).await;
        waiting.push(wait_for_telemetry(&node, &token));
    }
    wait_for_requests_under_way(&node, 3).await;
    // The probe itself may occupy the last place when the last request arrives. That request is then sent
    // again.
    let refused = eventually("all places are taken", async || {
        waiting.push(wait_for_telemetry(&node, &last));
        Some(get(&node, "/docs")).filter(|answer| answer.status == 503)
    });
    assert_eq!(refused.await.refusal(), (503, "overloaded".into()));
    assert_eq!(get(&node, "/livez").status, 200);
    assert_eq!(get(&node, "/readyz").status, 200);
    drop(waiting);
    eventually("requests that ended make room", async || (get(&node, "/docs").status == 200).then_some(()))
        .await;
}

const BATCH: usize = 4 * 1024 * 1024;

const PATH: &str = "/v1/commands/batch";

/// PIP-9
#[tokio::test]
async fn announced_body_takes_no_room_and_sent_body_does() {
    let node = Node::launch(&Launch::default().set("SERVER_BODIES_BYTES_MAX", 4 * BATCH));
    let cast = node.cast().await;
    let other = json!({ "tenants": [{ "name": "zeta" }], "services": [{ "name": "zeta/bot" }] });
    let zeta = node.apply(&other).await.remove(0);
    let token = node.token(&cast.billing).await;
    let mut announced: Vec<_> = (0..8).map(|_| Wire::to(&node)).collect();
    for wire in &mut announced {
        wire.send(json_head(PATH, &token, BATCH));
    }
    assert_eq!(send_batch(&node, &token, "[]").status, 200, "announced is not sent");

    announced[0].send(vec![b' '; BATCH - 100]);
    wait_for_body_bytes(&node, BATCH - 100).await;
    assert_eq!(send_batch(&node, &token, &" ".repeat(200)).refusal(), (503, "overloaded".into()));
    // Acknowledgements and token requests of the same tenant, and all requests of another tenant, are
    // accepted.
    let bot = node.client(&cast.bot);
    let receipts = json!({ "receipts": [{ "delivery_id": 1, "fence": 1 }] });
    bot.call(Method::POST, "/v1/queues/pay-inbox/ack", Some(&receipts)).await.expect("an answer");
    let zeta = node.token(&zeta).await;
    let large = format!("[]{}", " ".repeat(198));
    assert_eq!(send_batch(&node, &zeta, &large).status, 200);
    drop(announced);
    eventually("a body that is gone makes room", async || {
        (send_batch(&node, &token, &large).status == 200).then_some(())
    })
    .await;
}

/// PIP-9, MSG-7: a stranger without a token can send a webhook and stall its body.
#[tokio::test]
async fn unauthenticated_webhook_bodies_have_their_own_share() {
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
    // Bodies that fill a quarter of the memory. Some of the paths end like those that end work on other
    // routes.
    let paths = ["/v1/hooks/x/y", "/v1/hooks/x/ack", "/v1/hooks/x/complete", "/v1/hooks/x/extend"];
    let stalled: Vec<_> = paths.iter().cycle().take(BATCH / PART).map(|path| stall(path)).collect();
    wait_for_body_bytes(&node, stalled.len() * PART).await;
    for path in paths {
        let more = json_request(path, "nobody", " ".repeat(PART).as_bytes());
        assert_eq!(Wire::to(&node).ask(more).refusal(), (503, "overloaded".into()), "{path}");
    }
    let large = format!("[]{}", " ".repeat(BATCH - 100));
    assert_eq!(send_batch(&node, &token, &large).status, 200, "an authenticated caller has room");
    drop(stalled);
    let ask = || Wire::to(&node).ask(json_request("/v1/hooks/x/y", "nobody", b"{}")).status;
    eventually("webhooks have room again", async || (ask() == 401).then_some(())).await;
}
