//! The whole path of a command, and the durability of accepted commands over a kill.

use reqwest::Method;
use serde_json::{Value, json};

use crate::node::{Draft, Launch, Node, drain, new_id, post};
use crate::patience::eventually;
use crate::wire::{Answered, metric, post_json};

/// PIP-5
#[tokio::test]
async fn signed_command_travels_from_producer_to_consumer() {
    let node = Node::start();
    let cast = node.cast().await;
    let (billing, bot) = (node.client(&cast.billing), node.client(&cast.bot));
    let draft = Draft::new("notify", &new_id());
    let (status, answer) = post(&billing, draft.sign(&cast.billing)).await;
    assert_eq!((status, answer["path"].as_str()), (202, Some("fast")));

    let deliveries = drain(&bot, "notify-inbox").await;
    assert_eq!(deliveries.len(), 1);
    assert_eq!(deliveries[0].message.as_command().unwrap().metadata["id"], draft.id.as_str());
    assert_eq!(
        deliveries[0].message.as_command().unwrap().command.get(),
        r#"{"source":"acme/billing","target":"acme/bot","name":"notify","payload":{"user":"u-1"}}"#
    );
    assert!(drain(&bot, "notify-inbox").await.is_empty());
}

/// QUA-1
#[tokio::test]
async fn accepted_commands_survive_a_kill() {
    let mut node = Node::start();
    let cast = node.cast().await;
    let drafts: Vec<_> = (0..20).map(|_| Draft::new("pay", &new_id())).collect();
    let billing = node.client(&cast.billing);
    for draft in &drafts {
        assert_eq!(post(&billing, draft.sign(&cast.billing)).await.0, 202);
    }
    node.kill();
    node.restart(&Launch::default());

    let billing = node.client(&cast.billing);
    for draft in &drafts {
        let (status, answer) = post(&billing, draft.sign(&cast.billing)).await;
        assert_eq!((status, &answer["duplicate"]), (200, &true.into()));
    }
    let delivered = drain(&node.client(&cast.bot), "pay-inbox").await;
    let ids: Vec<_> = delivered.iter().map(|delivery| delivery.message.id().unwrap()).collect();
    let sent: Vec<_> = drafts.iter().map(|draft| draft.id.as_str()).collect();
    assert_eq!(ids, sent);
}

/// PIP-7
#[tokio::test]
async fn cold_only_node_and_route_take_slow_path() {
    let cold = Node::launch(&Launch::default().set("GATE_DISPATCH", "cold-only"));
    let cast = cold.cast().await;
    let sent = post(&cold.client(&cast.billing), Draft::new("notify", &new_id()).sign(&cast.billing)).await;
    assert_eq!((sent.0, sent.1["path"].as_str()), (202, Some("slow")));

    let node = Node::start();
    let cast = node.cast().await;
    let route = json!({ "queue": "notify-inbox", "dead_letter_queue": "bot-dead", "dispatch": "cold-only" });
    let path = "/v1/routes/acme/bot/notify";
    node.operator().call(Method::PUT, path, Some(&route)).await.expect("the route is changed");
    let sent = post(&node.client(&cast.billing), Draft::new("notify", &new_id()).sign(&cast.billing)).await;
    assert_eq!((sent.0, sent.1["path"].as_str()), (202, Some("slow")));
    assert_eq!(metric(&node, r#"snavio_escalations_total{reason="cold_only"}"#).await, Some(1.0));
}

/// MSG-11
#[tokio::test]
async fn correlation_id_is_in_answer_delivery_telemetry_and_log() {
    let node = Node::launch(&Launch::default().set("LOG_FILTER", "info"));
    let cast = node.cast().await;
    let token = node.token(&cast.billing).await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let send = async |body: Vec<u8>| {
        let request = post_json(&node, "/v1/commands", &token, body);
        Answered::to(request.header("x-correlation-id", "order-7").header("traceparent", trace))
            .await
            .document()
    };
    assert_eq!(send(Draft::new("notify", &new_id()).sign(&cast.billing)).await["correlation_id"], "order-7");
    let refused = send(b"{".to_vec()).await;
    assert_eq!((&refused["correlation_id"], &refused["traceparent"]), (&json!("order-7"), &json!(trace)));
    let delivered = drain(&node.client(&cast.bot), "notify-inbox").await;
    assert_eq!(delivered[0].message.as_command().unwrap().metadata["correlation_id"], "order-7");
    let records = eventually("telemetry has a record of each message", async || {
        let page =
            node.client(&cast.billing).call(Method::GET, "/v1/telemetry", None).await.expect("telemetry");
        // The node may add a record of a clock sample; the test ignores it.
        let is_sample = |record: &&Value| record["type"] == "snavio.telemetry.skew_sample";
        let items: Vec<_> =
            page["items"].as_array()?.iter().filter(|record| !is_sample(record)).cloned().collect();
        (items.len() == 2).then_some(items)
    });
    for record in records.await {
        assert_eq!((&record["correlation_id"], &record["traceparent"]), (&json!("order-7"), &json!(trace)));
    }
    let log = node.said();
    let line = log.lines().find(|line| line.contains("refused")).expect("a refusal is logged");
    assert!(line.contains("order-7") && line.contains(trace), "{line}");
    assert!(!log.contains('\u{1b}'), "no colours in a file: {log}");
}
