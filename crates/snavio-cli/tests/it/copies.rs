//! Copies of one signed message that are in flight together (PIP-2): one is dispatched, on routes without claims too.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::Value;
use snavio_model::bounds;
use snavio_sdk::Client;

use crate::node::{Cast, Draft, Launch, Node, drain, new_id, post, post_batch};
use crate::patience::eventually;
use crate::wire::metric;

struct Scene {
    node: Node,
    cast: Cast,
    billing: Client,
}

impl Scene {
    async fn launch(launch: &Launch) -> Self {
        let node = Node::launch(launch);
        let cast = node.cast().await;
        let billing = node.client(&cast.billing);
        billing.authorized().await.expect("the service is authenticated");
        Self { node, cast, billing }
    }

    /// A signed message for the route without claims.
    fn captured(&self) -> Vec<u8> {
        Draft::new("notify", &new_id()).sign(&self.cast.billing)
    }

    async fn batch(&self, entries: &[Vec<u8>]) -> BTreeMap<u64, usize> {
        count(post_batch(&self.billing, entries).await.expect("the batch is answered"))
    }

    async fn stream(&self, entries: &[Vec<u8>]) -> BTreeMap<u64, usize> {
        let api = self.billing.authorized().await.expect("the service is authenticated");
        let (body, path) = (entries.join(&b'\n'), "/v1/commands/batch");
        let answer = api.exchange(Method::POST, path, Some(body), "application/x-ndjson").await;
        let answer = String::from_utf8(answer.expect("the stream is answered").1).expect("answers are text");
        count(answer.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect())
    }

    async fn requests(&self, entries: &[Vec<u8>]) -> BTreeMap<u64, usize> {
        let sent = entries.iter().map(async |body| {
            let (status, mut answer) = post(&self.billing, body.clone()).await;
            answer["status"] = status.into();
            answer
        });
        count(join_all(sent).await)
    }

    async fn delivered(&self) -> usize {
        drain(&self.node.client(&self.cast.bot), "notify-inbox").await.len()
    }
}

/// The number of answers by their status. An answer of 200 must be that of a duplicate.
fn count(answers: Vec<Value>) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for answer in answers {
        let status = answer["status"].as_u64().expect("each answer has its status");
        assert_eq!(status == 200, answer["duplicate"] == true, "{answer}");
        *counts.entry(status).or_default() += 1;
    }
    counts
}

fn one_of(copies: usize) -> BTreeMap<u64, usize> {
    BTreeMap::from([(202, 1), (200, copies - 1)])
}

/// PIP-2, PIP-8
#[tokio::test]
async fn copies_in_one_batch_are_dispatched_once() {
    let scene = Scene::launch(&Launch::default()).await;
    let copies = bounds::BATCH_MESSAGES_MAX;
    assert_eq!(scene.batch(&vec![scene.captured(); copies]).await, one_of(copies));
    assert_eq!(scene.delivered().await, 1);
}

/// PIP-2, PIP-8
#[tokio::test]
async fn copies_in_one_stream_are_dispatched_once() {
    let scene = Scene::launch(&Launch::default()).await;
    let copies = bounds::STREAM_IN_FLIGHT_MAX;
    assert_eq!(scene.stream(&vec![scene.captured(); copies]).await, one_of(copies));
    assert_eq!(scene.delivered().await, 1);
}

/// PIP-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_in_parallel_requests_are_dispatched_once() {
    let scene = Scene::launch(&Launch::default()).await;
    for _ in 0..10 {
        assert_eq!(scene.requests(&vec![scene.captured(); 50]).await, one_of(50));
        assert_eq!(scene.delivered().await, 1);
    }
}

/// PIP-2: two batches that hold the same messages in opposite order wait for each other's and never for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crossing_batches_and_streams_end_and_dispatch_once() {
    let scene = Scene::launch(&Launch::default()).await;
    for _ in 0..5 {
        let messages: Vec<_> = (0..100).map(|_| scene.captured()).collect();
        let reversed: Vec<_> = messages.iter().rev().cloned().collect();
        let all = [scene.batch(&messages), scene.batch(&reversed)];
        let streams = [scene.stream(&messages), scene.stream(&reversed)];
        let (batches, streams) = tokio::join!(join_all(all), join_all(streams));
        let mut sum = BTreeMap::new();
        for (status, count) in batches.into_iter().chain(streams).flatten() {
            *sum.entry(status).or_default() += count;
        }
        assert_eq!(sum, BTreeMap::from([(202, 100), (200, 300)]));
        assert_eq!(scene.delivered().await, 100);
    }
}

/// PIP-2, PIP-4: copies of a refused message are judged themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_first_leaves_its_copies_to_be_judged() {
    // The message must stay within the window while it is sent again and again, also on a busy machine.
    let launch = Launch::default().set("STORE_QUEUE_DEPTH_MAX", 1).set("GATE_REPLAY_WINDOW_SECONDS", 120);
    let scene = Scene::launch(&launch).await;
    // The depth is counted now and then over PostgreSQL: the queue is full once a message is refused.
    let full = async || (post(&scene.billing, scene.captured()).await.0 == 503).then_some(());
    eventually("the queue is full", full).await;
    let captured = scene.captured();
    let copies = vec![captured.clone(); bounds::BATCH_MESSAGES_MAX];
    let settled = async || metric(&scene.node, r#"snavio_settle_seconds_count{path="fast"}"#).await;
    let before = settled().await.expect("messages were settled");
    assert_eq!(scene.batch(&copies).await, BTreeMap::from([(503, bounds::BATCH_MESSAGES_MAX)]));
    let judged = settled().await.expect("messages were settled") - before;
    assert!((1.0..=1.0 + bounds::COPY_ROUNDS_MAX as f64).contains(&judged), "{judged} were judged");
    let (batch, lines, requests) = tokio::join!(
        scene.batch(&copies),
        scene.stream(&copies[..bounds::STREAM_IN_FLIGHT_MAX]),
        scene.requests(&copies[..50]),
    );
    assert_eq!(batch, BTreeMap::from([(503, bounds::BATCH_MESSAGES_MAX)]));
    assert_eq!(lines, BTreeMap::from([(503, bounds::STREAM_IN_FLIGHT_MAX)]));
    assert_eq!(requests, BTreeMap::from([(503, 50)]));

    scene.delivered().await;
    let accepted = async || {
        let answers = scene.batch(&copies).await;
        answers.contains_key(&202).then_some(answers)
    };
    let answers = eventually("the queue has room", accepted).await;
    assert_eq!((answers[&202], answers.contains_key(&200)), (1, true), "{answers:?}");
    assert_eq!(scene.batch(&[captured]).await, BTreeMap::from([(200, 1)]));
    assert_eq!(scene.delivered().await, 1);
}
