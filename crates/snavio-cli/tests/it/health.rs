//! A node's health and status endpoints, its admin listener, and its orderly stop.

use std::time::Duration;

use reqwest::Method;
use serde_json::Value;

use crate::engine::Engine;
use crate::node::{Launch, Node, verdict};
use crate::patience::eventually;
use crate::raw_wire::{Wire, head, json_request};
use crate::wire::{http, metric};

/// Status and document of `/readyz`.
pub(crate) async fn readiness(node: &Node) -> (u16, Value) {
    let answer = http(node).get(format!("{}/readyz", node.url())).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// TEL-9
#[tokio::test]
async fn healthy_node_is_live_and_ready() {
    let node = Node::start();
    assert_eq!(http(&node).get(format!("{}/livez", node.url())).send().await.unwrap().status(), 200);
    let (status, document) = readiness(&node).await;
    assert_eq!((status, &document["ready"]), (200, &true.into()));
    for check in ["store", "registry", "clock", "disk", "draining"] {
        assert_eq!(document["checks"][check], "ok");
    }
    assert_eq!(document["durability"], "durable");
}

/// PIP-12
#[tokio::test]
async fn node_that_may_be_relaxed_reports_durable() {
    let node = Node::launch(&Launch::default().set("STORE_RELAXED", true));
    assert_eq!(readiness(&node).await.1["durability"], "durable");
    let status = node.operator().call(Method::GET, "/v1/status", None).await.unwrap();
    assert_eq!(status["store"]["durability"], "durable");
}

/// TEL-9
#[tokio::test]
async fn status_shows_versions_and_lags_to_operators_only() {
    let node = Node::start();
    let cast = node.cast().await;
    let status = node.operator().call(Method::GET, "/v1/status", None).await.unwrap();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["registry_lag"], 0);
    for member in ["uptime_seconds", "registry_version", "waiting", "clock_distance_ms"] {
        assert!(status[member].is_number(), "{member} is missing");
    }
    // Free disk space and the time at start are facts of the embedded store only.
    let embedded = matches!(node.engine(), Engine::Embedded);
    assert_eq!(status["disk_free_bytes"].is_number(), embedded);
    assert_eq!(status["store"]["newest_at_start"].is_string(), embedded);
    let bot = node.client(&cast.bot).authorized().await.unwrap();
    assert_eq!(verdict(bot.send(Method::GET, "/v1/status", None, "").await).0, 403);
}

/// TEL-8
#[tokio::test]
async fn admin_listener_needs_no_token_and_answers_with_problems() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let admin = format!("127.0.0.1:{port}");
    let node = Node::launch(&Launch::default().set("ADMIN_LISTEN", &admin));
    assert!(
        node.api().send(Method::GET, "/metrics", None, "").await.is_err(),
        "the other listener needs a token"
    );
    let client = http(&node);
    for path in ["/metrics", "/v1/status", "/readyz", "/livez"] {
        assert_eq!(client.get(format!("http://{admin}{path}")).send().await.unwrap().status(), 200, "{path}");
    }
    for (method, path, status) in [(Method::POST, "/metrics", 405), (Method::GET, "/v1/tenants", 404)] {
        let answer = client.request(method, format!("http://{admin}{path}")).send().await.unwrap();
        assert_eq!(answer.status(), status);
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
    }
}

/// DLV-2
#[tokio::test]
async fn waiting_requests_are_answered_when_the_node_stops() {
    let mut node = Node::start();
    let cast = node.cast().await;
    let token = node.token(&cast.bot).await;
    let mut receiving = Wire::to(&node);
    let body = br#"{"wait_seconds":20}"#;
    receiving.send(json_request("/v1/queues/notify-inbox/receive", &token, body));
    let mut polling = Wire::to(&node);
    polling.send(head("GET /v1/telemetry?wait_seconds=20", &token, &[]));
    let mut streaming = Wire::to(&node);
    streaming.send(head("GET /v1/telemetry", &token, &["Accept: text/event-stream"]));
    let mut idle = Wire::to(&node);
    idle.ask("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let _silent = Wire::to(&node);
    // The three requests above, and the request for the metric itself.
    eventually("all three requests wait", async || {
        (metric(&node, "snavio_requests_in_flight").await == Some(4.0)).then_some(())
    })
    .await;

    node.signal("TERM");
    let ended = async {
        while node.ended().is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(15), ended)
        .await
        .expect("the node stops without waiting out polls");
    assert_eq!(receiving.answer().json()["deliveries"], serde_json::json!([]));
    assert_eq!(polling.answer().json()["items"], serde_json::json!([]));
    let stream = streaming.answer();
    assert_eq!((stream.status, stream.header("content-type")), (200, Some("text/event-stream")));
}
