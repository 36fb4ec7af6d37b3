//! An order that is changed while deliveries are there.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Builds, ids, order, reason};
use crate::node::Launch;

impl Builds {
    /// Changes how `build` is ordered for `acme/deploy`, by a request and as a file would.
    async fn reorder(&self, order: &Value) -> (u16, Value) {
        let subscription = json!({
            "target": "acme/deploy", "events_of": "acme/ci", "name": "build", "queue": "deploy",
            "dead_letter_queue": "dead", "claim": { "policy": "strict" }, "receives_max": 2, "order": order,
        });
        let file = json!({ "subscriptions": [subscription], "dry_run": true });
        let planned = self.operate(Method::POST, "/v1/registry/apply", file).await;
        let put = self.subscribe("deploy", "build", order, json!({})).await;
        assert_eq!((planned.0, reason(&planned)), (put.0, reason(&put)), "{} and {}", planned.1, put.1);
        put
    }
}

fn is_refused((status, answer): (u16, Value)) {
    assert_eq!(reason(&(status, answer.clone())), (409, "registry_conflict"), "{answer}");
    let says = "subscription acme/deploy:acme/ci:build: its queue deploy still holds deliveries of it";
    assert!(answer["detail"].as_str().unwrap().contains(says), "{answer}");
}

/// ORD-3, REG-24: what is there and what comes would be two orders beside each other.
#[tokio::test]
async fn what_decides_lanes_is_not_changed_while_deliveries_are_there() {
    let builds = Builds::set(Launch::default()).await;
    let strict = order(json!({ "mode": "strict" }));
    assert_eq!(builds.subscribe("deploy", "build", &strict, json!({})).await.0, 201);
    for number in 1..=3 {
        assert_eq!(builds.sent("b", number).await.0, 202);
    }
    let scoped = order(json!({ "mode": "strict", "scope": "builds" }));
    let others = [scoped.clone(), order(json!({ "mode": "strict", "entity": "/orderId" }))];
    for other in &others {
        is_refused(builds.reorder(other).await);
    }
    // What decides no lane may change, and what comes then queues behind what is there.
    let parks = order(json!({ "mode": "reorder", "on_failure": "park", "ttl_seconds": 60 }));
    assert_eq!(builds.reorder(&parks).await.0, 200);
    assert_eq!(builds.sent("b", 4).await.0, 202);
    for number in 1..=4 {
        let received = builds.receive("deploy").await;
        assert_eq!(ids(&received), [format!("b-{number}")]);
        // What is in flight is there, too.
        is_refused(builds.reorder(&scoped).await);
        builds.end("deploy", &received).await;
    }
    assert_eq!(builds.reorder(&scoped).await.0, 200);
    for number in 5..=6 {
        assert_eq!(builds.sent("b", number).await.0, 202);
    }
    assert_eq!(ids(&builds.receive("deploy").await), ["b-5"]);
    // Whoever gives up that one is handed out at a time need not wait for an empty queue.
    for free in [order(json!({ "mode": "lenient" })), order(json!({ "mode": "strict", "enabled": false }))] {
        assert_eq!(builds.reorder(&free).await.0, 200);
    }
}

/// ORD-3, REG-24: what came in no lane would be handed out all at once.
#[tokio::test]
async fn one_at_a_time_begins_with_an_empty_queue() {
    let builds = Builds::set(Launch::default()).await;
    let lenient = order(json!({ "mode": "lenient" }));
    for name in ["build", "done"] {
        assert_eq!(builds.subscribe("deploy", name, &lenient, json!({})).await.0, 201);
    }
    for number in 1..=3 {
        assert_eq!(builds.sent("b", number).await.0, 202);
    }
    let strict = order(json!({ "mode": "strict" }));
    is_refused(builds.reorder(&strict).await);
    // Where there are no lanes, none is changed.
    assert_eq!(builds.reorder(&order(json!({ "mode": "skip", "scope": "builds" }))).await.0, 200);
    let received = builds.receive("deploy").await;
    assert_eq!(ids(&received), ["b-1", "b-2", "b-3"]);
    builds.end("deploy", &received).await;
    // Another subscription's deliveries in the same queue are in nobody's way.
    assert_eq!(builds.send("end", "done", "b", "4").await.0, 202);
    assert_eq!(builds.reorder(&strict).await.0, 200);
}
