//! Copies of one signed message that are in flight at the same time (PIP-2): the gateway dispatches one of
//! them, on routes without claims too.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::Value;
use snavio_model::bounds;
use snavio_sdk::Client;

use crate::node::{Cast, Draft, Launch, Node, drain, new_id, post, post_batch};
use crate::patience::eventually;
use crate::wire::metric;

struct Fixture {
    node: Node,
    cast: Cast,
    billing: Client,
}

impl Fixture {
    async fn launch(launch: &Launch) -> Self {
        let node = Node::launch(launch);
        let cast = node.cast().await;
        let billing = node.client(&cast.billing);
        billing.authorized().await.expect("the service is authenticated");
        Self { node, cast, billing }
    }

    /// A signed message for the route without claims.
    fn signed_message(&self) -> Vec<u8> {
        Draft::new("notify", &new_id()).sign(&self.cast.billing)
    }

    async fn batch(&self, entries: &[Vec<u8>]) -> BTreeMap<u64, usize> {
        count_statuses(post_batch(&self.billing, entries).await.expect("the batch is answered"))
    }

    async fn stream(&self, entries: &[Vec<u8>]) -> BTreeMap<u64, usize> {
        let api = self.billing.authorized().await.expect("the service is authenticated");
        let (body, path) = (entries.join(&b'\n'), "/v1/commands/batch");
        let answer = api.exchange(Method::POST, path, Some(body), "application/x-ndjson").await;
        let answer = String::from_utf8(answer.expect("the stream is answered").1).expect("answers are text");
        count_statuses(
            answer.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect(),
        )
    }

    async fn requests(&self, entries: &[Vec<u8>]) -> BTreeMap<u64, usize> {
        let sent = entries.iter().map(async |body| {
            let (status, mut answer) = post(&self.billing, body.clone()).await;
            answer["status"] = status.into();
            answer
        });
        count_statuses(join_all(sent).await)
    }

    async fn delivered(&self) -> usize {
        drain(&self.node.client(&self.cast.bot), "notify-inbox").await.len()
    }
}

/// The number of answers by status. Asserts that an answer is a duplicate exactly if its status is 200.
fn count_statuses(answers: Vec<Value>) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for answer in answers {
        let status = answer["status"].as_u64().expect("each answer has its status");
        assert_eq!(status == 200, answer["duplicate"] == true, "{answer}");
        *counts.entry(status).or_default() += 1;
    }
    counts
}

/// The statuses of copies of which the gateway accepts one.
fn accepted_once(copies: usize) -> BTreeMap<u64, usize> {
    BTreeMap::from([(202, 1), (200, copies - 1)])
}

/// PIP-2, PIP-8
#[tokio::test]
async fn copies_in_one_batch_are_dispatched_once() {
    let fixture = Fixture::launch(&Launch::default()).await;
    let copies = bounds::BATCH_MESSAGES_MAX;
    assert_eq!(fixture.batch(&vec![fixture.signed_message(); copies]).await, accepted_once(copies));
    assert_eq!(fixture.delivered().await, 1);
}

/// PIP-2, PIP-8
#[tokio::test]
async fn copies_in_one_stream_are_dispatched_once() {
    let fixture = Fixture::launch(&Launch::default()).await;
    let copies = bounds::STREAM_IN_FLIGHT_MAX;
    assert_eq!(fixture.stream(&vec![fixture.signed_message(); copies]).await, accepted_once(copies));
    assert_eq!(fixture.delivered().await, 1);
}

/// PIP-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_in_parallel_requests_are_dispatched_once() {
    let fixture = Fixture::launch(&Launch::default()).await;
    for _ in 0..10 {
        assert_eq!(fixture.requests(&vec![fixture.signed_message(); 50]).await, accepted_once(50));
        assert_eq!(fixture.delivered().await, 1);
    }
}

/// PIP-2: two batches with the same messages in opposite order wait for each other's messages, but never
/// deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crossing_batches_and_streams_end_and_dispatch_once() {
    let fixture = Fixture::launch(&Launch::default()).await;
    for _ in 0..5 {
        let messages: Vec<_> = (0..100).map(|_| fixture.signed_message()).collect();
        let reversed: Vec<_> = messages.iter().rev().cloned().collect();
        let all = [fixture.batch(&messages), fixture.batch(&reversed)];
        let streams = [fixture.stream(&messages), fixture.stream(&reversed)];
        let (batches, streams) = tokio::join!(join_all(all), join_all(streams));
        let mut sum = BTreeMap::new();
        for (status, count) in batches.into_iter().chain(streams).flatten() {
            *sum.entry(status).or_default() += count;
        }
        assert_eq!(sum, BTreeMap::from([(202, 100), (200, 300)]));
        assert_eq!(fixture.delivered().await, 100);
    }
}

/// PIP-2, PIP-4: the refusal of a message does not decide about its copies. The gateway judges them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_of_a_refused_message_are_judged_themselves() {
    // The message must stay within the replay window while the test repeats it, also on a busy machine.
    let launch = Launch::default().set("STORE_QUEUE_DEPTH_MAX", 1).set("GATE_REPLAY_WINDOW_SECONDS", 120);
    let fixture = Fixture::launch(&launch).await;
    // On PostgreSQL a node counts a queue's depth only from time to time: the queue is full once it refuses a
    // message.
    eventually("the queue is full", async || {
        (post(&fixture.billing, fixture.signed_message()).await.0 == 503).then_some(())
    })
    .await;
    let captured = fixture.signed_message();
    let copies = vec![captured.clone(); bounds::BATCH_MESSAGES_MAX];
    let settled = async || metric(&fixture.node, r#"snavio_settle_seconds_count{path="fast"}"#).await;
    let before = settled().await.expect("messages were settled");
    assert_eq!(fixture.batch(&copies).await, BTreeMap::from([(503, bounds::BATCH_MESSAGES_MAX)]));
    let judged = settled().await.expect("messages were settled") - before;
    assert!((1.0..=1.0 + bounds::COPY_ROUNDS_MAX as f64).contains(&judged), "{judged} were judged");
    let (batch, lines, requests) = tokio::join!(
        fixture.batch(&copies),
        fixture.stream(&copies[..bounds::STREAM_IN_FLIGHT_MAX]),
        fixture.requests(&copies[..50]),
    );
    assert_eq!(batch, BTreeMap::from([(503, bounds::BATCH_MESSAGES_MAX)]));
    assert_eq!(lines, BTreeMap::from([(503, bounds::STREAM_IN_FLIGHT_MAX)]));
    assert_eq!(requests, BTreeMap::from([(503, 50)]));

    fixture.delivered().await;
    let answers = eventually("the queue has room", async || {
        let answers = fixture.batch(&copies).await;
        answers.contains_key(&202).then_some(answers)
    })
    .await;
    assert_eq!((answers[&202], answers.contains_key(&200)), (1, true), "{answers:?}");
    assert_eq!(fixture.batch(&[captured]).await, BTreeMap::from([(200, 1)]));
    assert_eq!(fixture.delivered().await, 1);
}
