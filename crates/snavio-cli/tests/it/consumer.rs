//! A consumer of one queue, with every call that a consumer can make.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::{Client, Credentials, Delivery};

use crate::node::{Node, verdict};

/// A service and one of its queues.
pub(crate) struct Consumer {
    pub(crate) client: Client,
    queue: String,
}

impl Consumer {
    pub(crate) fn new(node: &Node, credentials: &Credentials, queue: &str) -> Self {
        Self { client: node.client(credentials), queue: queue.to_owned() }
    }

    /// Receives without waiting.
    pub(crate) async fn receive(&self, visibility_seconds: u64) -> Vec<Delivery> {
        self.wait(visibility_seconds, 0).await
    }

    /// Receives, and waits for the first delivery.
    pub(crate) async fn wait(&self, visibility_seconds: u64, wait_seconds: u64) -> Vec<Delivery> {
        let (visibility, wait) = (Duration::from_secs(visibility_seconds), Duration::from_secs(wait_seconds));
        self.client.receive(&self.queue, 10, visibility, wait).await.expect("the queue can be received from")
    }

    /// Receives exactly one delivery.
    pub(crate) async fn receive_one(&self, visibility_seconds: u64) -> Delivery {
        let [one] = <[_; 1]>::try_from(self.receive(visibility_seconds).await).expect("one delivery");
        one
    }

    /// Calls an action of the queue, and returns status and answer.
    pub(crate) async fn act(&self, action: &str, body: Value) -> (u16, Value) {
        let path = format!("/v1/queues/{}/{action}", self.queue);
        self.send(Method::POST, &path, Some(body)).await
    }

    /// Calls an action for one delivery, and returns the status and its outcome: `done`, `gone` or `fenced`.
    pub(crate) async fn outcome(&self, action: &str, delivery: &Delivery, more: Value) -> (u16, String) {
        let mut body = more;
        body["receipts"] = json!([delivery.receipt()]);
        let (status, answer) = self.act(action, body).await;
        (status, answer["results"][0]["outcome"].as_str().unwrap_or_default().to_owned())
    }

    pub(crate) async fn ack(&self, delivery: &Delivery) -> (u16, String) {
        self.outcome("ack", delivery, json!({})).await
    }

    pub(crate) async fn attributes(&self) -> Value {
        self.send(Method::GET, &format!("/v1/queues/{}", self.queue), None).await.1
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let api = self.client.authorized().await.expect("the service is authenticated");
        let body = body.map(|body| body.to_string().into_bytes());
        verdict(api.send(method, path, body, "application/json").await)
    }
}
