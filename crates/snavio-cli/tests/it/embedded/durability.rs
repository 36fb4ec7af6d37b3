//! Relaxed durability, and a disk that is nearly full.

use reqwest::Method;

use crate::health::readiness;
use crate::node::{Draft, Launch, Node, new_id, post, verdict};
use crate::wire::http;

/// TEL-9
#[tokio::test]
async fn low_disk_space_fails_readiness_and_not_liveness() {
    let node = Node::launch(&Launch::default().set("STORE_DISK_FREE_BYTES_MIN", i64::MAX));
    let (status, document) = readiness(&node).await;
    assert_eq!((status, &document["ready"]), (503, &false.into()));
    assert!(document["checks"]["disk"].as_str().unwrap().contains("bytes are free"));
    assert_eq!(http(&node).get(format!("{}/livez", node.url())).send().await.unwrap().status(), 200);
}

/// PIP-12
#[tokio::test]
async fn relaxed_node_says_so_in_health_and_every_answer() {
    let node = Node::launch(&Launch::default().set("STORE_FLUSH", false).set("STORE_RELAXED", true));
    assert_eq!(readiness(&node).await.1["durability"], "relaxed");
    let cast = node.cast().await;
    let billing = node.client(&cast.billing);
    let message = Draft::new("notify", &new_id()).sign(&cast.billing);
    assert_eq!(post(&billing, message).await.1["durability"], "relaxed");
    let batch = [b"[".to_vec(), Draft::new("notify", &new_id()).sign(&cast.billing), b"]".to_vec()].concat();
    let api = billing.authorized().await.unwrap();
    let sent = api.send(Method::POST, "/v1/commands/batch", Some(batch), "application/json").await;
    assert_eq!(verdict(sent).1["results"][0]["durability"], "relaxed");
}

/// PIP-12
#[test]
fn node_without_flushes_needs_relaxed_mode_to_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = Node::try_launch_in(folder, &Launch::default().set("STORE_FLUSH", false));
    assert_eq!(node.wait().code(), Some(1));
    assert!(node.said().contains("set store.relaxed = true"), "{}", node.said());
}
