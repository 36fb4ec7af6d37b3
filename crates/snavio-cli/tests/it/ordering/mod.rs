//! Order per entity from outside (ORD-1 to ORD-8): builds whose events are numbered, and services that want them in order.

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

/// `acme/ci` publishes `build` and `done`; who wants them in which order is registered by each test.
struct Builds {
    node: Node,
    launch: Launch,
    ci: Credentials,
    /// Of those who subscribe, by their queues, which have their names.
    subscribers: BTreeMap<&'static str, Credentials>,
    token: String,
}

/// Order by `/buildId` and `/eventSequence`, and further settings.
fn order(further: Value) -> Value {
    let mut order = json!({ "entity": "/buildId", "number": "/eventSequence" });
    for (name, value) in further.as_object().into_iter().flatten() {
        order[name] = value.clone();
    }
    order
}

impl Builds {
    async fn set(launch: Launch) -> Self {
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

    /// Subscribes a service to a type, into a queue of the service's short name.
    async fn subscribe(&self, service: &str, name: &str, order: &Value, further: Value) -> (u16, Value) {
        let mut body = json!({
            "queue": service, "dead_letter_queue": "dead", "claim": { "policy": "strict" },
            "receives_max": 2, "order": order,
        });
        for (name, value) in further.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        let path = format!("/v1/subscriptions/acme/{service}/acme/ci/{name}");
        self.operate(Method::PUT, &path, body).await
    }

    async fn operate(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let body = Some(body.to_string().into_bytes());
        verdict(self.node.operator().send(method, path, body, "application/json").await)
    }

    /// Sends an event of a build with its number, as it is written.
    async fn send(&self, id: &str, name: &str, build: &str, number: &str) -> (u16, Value) {
        let event = format!(
            r#"{{"eventId":"{id}","eventType":"{name}","data":{{"buildId":"{build}","eventSequence":{number}}}}}"#
        );
        let answer = Answered::to(post_json(&self.node, "/v1/events", &self.token, event)).await;
        (answer.status, answer.document())
    }

    async fn sent(&self, build: &str, number: i64) -> (u16, Value) {
        self.send(&format!("{build}-{number}"), "build", build, &number.to_string()).await
    }

    fn client(&self, queue: &str) -> Client {
        self.node.client(&self.subscribers[queue])
    }

    async fn receive(&self, queue: &str) -> Vec<Delivery> {
        let client = self.client(queue);
        client.receive(queue, 10, Duration::from_secs(30), Duration::ZERO).await.unwrap()
    }

    async fn end(&self, queue: &str, deliveries: &[Delivery]) {
        let receipts: Vec<_> = deliveries.iter().map(Delivery::receipt).collect();
        self.client(queue).acknowledge(queue, &receipts).await.unwrap();
    }
}

fn ids(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().filter_map(|it| it.message.id().map(str::to_owned)).collect()
}

fn reason(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["reason"].as_str().unwrap_or_default())
}
