//! Overload is refused early, per tenant and in total, and never what ends work already begun.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::node::{Draft, Launch, Node, new_id, post, verdict};
use crate::patience::eventually;
use crate::raw_wire::Wire;

fn poll(token: &str) -> String {
    let body = r#"{"wait_seconds":20}"#;
    format!(
        "POST /v1/queues/notify-inbox/receive HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn hold(node: &Node, token: &str, count: usize) -> Vec<Wire> {
    let polls = (0..count).map(|_| {
        let mut wire = Wire::to(node);
        wire.send(poll(token));
        wire
    });
    let polls = polls.collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    polls
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
    for credentials in credentials.iter().chain([&cast.bot]) {
        let mut wire = Wire::to(&node);
        let token = node.token(credentials).await;
        wire.send(format!("GET /v1/telemetry?wait_seconds=20&after=9223372036854775806 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"));
        waiting.push(wire);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let get = |path: &str| Wire::to(&node).ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    assert_eq!(get("/docs").refusal(), (503, "overloaded".into()));
    assert_eq!(get("/livez").status, 200);
    assert_eq!(get("/readyz").status, 200);
    drop(waiting);
    let freed = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        get("/docs").status == 200
    });
    assert!(freed, "requests that ended make room");
}

const BATCH: usize = 4 * 1024 * 1024;

/// A batch request, whose body is not sent yet.
fn batch(token: &str, length: usize) -> String {
    format!(
        "POST /v1/commands/batch HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
}

async fn bytes_in_memory(node: &Node) -> usize {
    let text = node.operator().exchange(Method::GET, "/metrics", None, "").await.unwrap().1;
    let text = String::from_utf8(text.to_vec()).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("snavio_body_bytes_in_flight "));
    line.unwrap().parse().unwrap()
}

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
        wire.send(batch(&token, BATCH));
    }
    assert_eq!(Wire::to(&node).ask(format!("{}[]", batch(&token, 2))).status, 200, "announced is not sent");

    announced[0].send(vec![b' '; BATCH - 100]);
    let arrived = async || (bytes_in_memory(&node).await >= BATCH - 100).then_some(());
    eventually("the body is in memory", arrived).await;
    let answer = Wire::to(&node).ask(format!("{}{}", batch(&token, 200), " ".repeat(200)));
    assert_eq!(answer.refusal(), (503, "overloaded".into()));
    // Acknowledgements and tokens of the same tenant, and everything of another, go on.
    let bot = node.client(&cast.bot);
    let receipts = json!({ "receipts": [{ "delivery_id": 1, "fence": 1 }] });
    bot.call(Method::POST, "/v1/queues/pay-inbox/ack", Some(&receipts)).await.expect("an answer");
    let zeta = node.token(&zeta).await;
    assert_eq!(Wire::to(&node).ask(format!("{}[]{}", batch(&zeta, 200), " ".repeat(198))).status, 200);
    drop(announced);
    let freed = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        Wire::to(&node).ask(format!("{}[]{}", batch(&token, 200), " ".repeat(198))).status == 200
    });
    assert!(freed, "a body that is gone makes room");
}
