//! Order per entity over HTTP (ORD-1 to ORD-8): events of builds with sequence numbers, and services that
//! subscribe to them with an order.

mod changes;
mod faults;
mod nodes;
mod random;
mod stands;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::{Client, Credentials, Delivery};

use crate::node::{Launch, Node, verdict};
use crate::wire::{Answered, post_json};

/// `acme/ci` publishes `build` and `done`. Each test registers the subscriptions with their orders.
struct BuildsFixture {
    node: Node,
    launch: Launch,
    ci: Credentials,
    /// Credentials of the subscribing services, by their short names, which are also their queues' names.
    subscribers: BTreeMap<&'static str, Credentials>,
    token: String,
}

/// An order by `/buildId` and `/eventSequence` with further settings.
fn order(further: Value) -> Value {
    let mut order = json!({ "entity": "/buildId", "number": "/eventSequence" });
    for (name, value) in further.as_object().into_iter().flatten() {
        order[name] = value.clone();
    }
    order
}

impl BuildsFixture {
    async fn start(launch: Launch) -> Self {
        Self::on(Node::launch(&launch), launch).await
    }

    async fn on(node: Node, launch: Launch) -> Self {
        let names = ["ci", "deploy", "strict", "lenient", "reorder"];
        let types = ["build", "done"].map(|name| json!({ "owner": "acme/ci", "name": name }));
        let registry = json!({
            "tenants": [{ "name": "acme" }],
            "services": names.map(|name| json!({ "name": format!("acme/{name}") })),
            "event_types": types,
        });
        let mut credentials = node.apply(&registry).await.into_iter();
        let ci = credentials.next().unwrap();
        let subscribers = names.into_iter().skip(1).zip(credentials).collect();
        let token = node.token(&ci).await;
        Self { node, launch, ci, subscribers, token }
    }

    /// Subscribes a service to an event type, with a queue of the service's short name.
    async fn subscribe(&self, service: &str, name: &str, order: &Value, further: Value) -> (u16, Value) {
        let mut body = json!({
            "queue": service, "dead_letter_queue": "dead", "claim": { "policy": "strict" },
            "receives_max": 2, "order": order,
        });
        for (name, value) in further.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        let path = format!("/v1/subscriptions/acme/{service}/acme/ci/{name}");
        self.call_as_operator(Method::PUT, &path, body).await
    }

    async fn call_as_operator(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let body = Some(body.to_string().into_bytes());
        verdict(self.node.operator().send(method, path, body, "application/json").await)
    }

    /// Sends an event of a build; `number` is JSON text.
    async fn send(&self, id: &str, name: &str, build: &str, number: &str) -> (u16, Value) {
        let event = format!(
            r#"{{"eventId":"{id}","eventType":"{name}","data":{{"buildId":"{build}","eventSequence":{number}}}}}"#
        );
        let answer = Answered::to(post_json(&self.node, "/v1/events", &self.token, event)).await;
        (answer.status, answer.document())
    }

    /// Sends a `build` event with an id of build and number.
    async fn send_build(&self, build: &str, number: i64) -> (u16, Value) {
        self.send(&format!("{build}-{number}"), "build", build, &number.to_string()).await
    }

    fn client(&self, queue: &str) -> Client {
        self.node.client(&self.subscribers[queue])
    }

    async fn receive(&self, queue: &str) -> Vec<Delivery> {
        let client = self.client(queue);
        client.receive(queue, 10, Duration::from_secs(30), Duration::ZERO).await.unwrap()
    }

    async fn acknowledge(&self, queue: &str, deliveries: &[Delivery]) {
        let receipts: Vec<_> = deliveries.iter().map(Delivery::receipt).collect();
        self.client(queue).acknowledge(queue, &receipts).await.unwrap();
    }
}

fn ids(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().filter_map(|delivery| delivery.message.id().map(str::to_owned)).collect()
}

fn status_and_reason(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["reason"].as_str().unwrap_or_default())
}
