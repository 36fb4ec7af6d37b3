//! Changes of an order while its queue holds deliveries.

use reqwest::Method;
use serde_json::{Value, json};

use super::{BuildsFixture, ids, order, status_and_reason};
use crate::node::Launch;

impl BuildsFixture {
    /// Changes the order of `acme/deploy`'s subscription to `build`. A dry run of the same change in a file
    /// must give the same verdict.
    async fn change_order(&self, order: &Value) -> (u16, Value) {
        let subscription = json!({
            "target": "acme/deploy", "events_of": "acme/ci", "name": "build", "queue": "deploy",
            "dead_letter_queue": "dead", "claim": { "policy": "strict" }, "receives_max": 2, "order": order,
        });
        let file = json!({ "subscriptions": [subscription], "dry_run": true });
        let planned = self.call_as_operator(Method::POST, "/v1/registry/apply", file).await;
        let put = self.subscribe("deploy", "build", order, json!({})).await;
        assert_eq!(
            (planned.0, status_and_reason(&planned)),
            (put.0, status_and_reason(&put)),
            "{} and {}",
            planned.1,
            put.1
        );
        put
    }
}

fn assert_refused((status, answer): (u16, Value)) {
    assert_eq!(status_and_reason(&(status, answer.clone())), (409, "registry_conflict"), "{answer}");
    let expected = "subscription acme/deploy:acme/ci:build: its queue deploy still holds deliveries of it";
    assert!(answer["detail"].as_str().unwrap().contains(expected), "{answer}");
}

/// ORD-3, REG-24: with the change, deliveries in the queue and later ones would follow two different orders.
#[tokio::test]
async fn ordering_key_is_not_changed_while_queue_holds_deliveries() {
    let builds = BuildsFixture::start(Launch::default()).await;
    let strict = order(json!({ "mode": "strict" }));
    assert_eq!(builds.subscribe("deploy", "build", &strict, json!({})).await.0, 201);
    for number in 1..=3 {
        assert_eq!(builds.send_build("b", number).await.0, 202);
    }
    let scoped = order(json!({ "mode": "strict", "scope": "builds" }));
    let others = [scoped.clone(), order(json!({ "mode": "strict", "entity": "/orderId" }))];
    for other in &others {
        assert_refused(builds.change_order(other).await);
    }
    // A change that keeps the ordering keys is accepted; later messages queue behind the deliveries that are
    // there.
    let parks = order(json!({ "mode": "reorder", "on_failure": "park", "ttl_seconds": 60 }));
    assert_eq!(builds.change_order(&parks).await.0, 200);
    assert_eq!(builds.send_build("b", 4).await.0, 202);
    for number in 1..=4 {
        let received = builds.receive("deploy").await;
        assert_eq!(ids(&received), [format!("b-{number}")]);
        // A leased delivery also counts as held by the queue.
        assert_refused(builds.change_order(&scoped).await);
        builds.acknowledge("deploy", &received).await;
    }
    assert_eq!(builds.change_order(&scoped).await.0, 200);
    for number in 5..=6 {
        assert_eq!(builds.send_build("b", number).await.0, 202);
    }
    assert_eq!(ids(&builds.receive("deploy").await), ["b-5"]);
    // A change to a mode without one-at-a-time delivery needs no empty queue.
    for free in [order(json!({ "mode": "lenient" })), order(json!({ "mode": "strict", "enabled": false }))] {
        assert_eq!(builds.change_order(&free).await.0, 200);
    }
}

/// ORD-3, REG-24: the deliveries that are there have no ordering key, so consumers could lease them all at
/// once.
#[tokio::test]
async fn single_delivery_order_starts_with_empty_queue() {
    let builds = BuildsFixture::start(Launch::default()).await;
    let lenient = order(json!({ "mode": "lenient" }));
    for name in ["build", "done"] {
        assert_eq!(builds.subscribe("deploy", name, &lenient, json!({})).await.0, 201);
    }
    for number in 1..=3 {
        assert_eq!(builds.send_build("b", number).await.0, 202);
    }
    let strict = order(json!({ "mode": "strict" }));
    assert_refused(builds.change_order(&strict).await);
    // Lenient and skip have no ordering keys, so the scope may change.
    assert_eq!(builds.change_order(&order(json!({ "mode": "skip", "scope": "builds" }))).await.0, 200);
    let received = builds.receive("deploy").await;
    assert_eq!(ids(&received), ["b-1", "b-2", "b-3"]);
    builds.acknowledge("deploy", &received).await;
    // Deliveries of another subscription in the same queue do not prevent the change.
    assert_eq!(builds.send("end", "done", "b", "4").await.0, 202);
    assert_eq!(builds.change_order(&strict).await.0, 200);
}
