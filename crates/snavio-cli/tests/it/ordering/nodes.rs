//! Order over PostgreSQL, where one node settles several batches at once, and several nodes share the store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use snavio_model::bounds;
use tokio::task::JoinSet;

use super::{BuildsFixture, order};
use crate::engine::Database;
use crate::node::{Launch, Node};
use crate::patience::{eventually, within};
use crate::wire::{Answered, http, post_json};

async fn builds() -> BuildsFixture {
    BuildsFixture::on(Node::over(&Database::new(), &Launch::default()), Launch::default()).await
}

fn event(build: &str, number: usize) -> Value {
    json!({ "eventId": format!("{build}-{number}"), "eventType": "build",
        "data": { "buildId": build, "eventSequence": number } })
}

/// ORD-3, ORD-4: the gateway settles a producer's messages in the order of sending, over any number of
/// batches.
#[tokio::test(flavor = "multi_thread")]
async fn ordered_batch_or_stream_has_no_refusals() {
    let builds = builds().await;
    let settings = order(json!({ "mode": "strict" }));
    assert_eq!(builds.subscribe("deploy", "build", &settings, json!({})).await.0, 201);
    let count = bounds::BATCH_MESSAGES_MAX;
    for round in 0..5 {
        let entries: Vec<_> = (1..=count).map(|number| event(&format!("batch{round}"), number)).collect();
        let body = json!(entries).to_string();
        let answer = Answered::to(post_json(&builds.node, "/v1/events/batch", &builds.token, body)).await;
        let results = answer.document()["results"].as_array().cloned().unwrap();
        assert_eq!(results.len(), count);
        let refused = results.iter().find(|result| result["status"] != json!(202));
        assert!(refused.is_none(), "{refused:?}");

        let lines: String =
            (1..=count).map(|number| format!("{}\n", event(&format!("stream{round}"), number))).collect();
        let request = http(&builds.node).post(format!("{}/v1/events/batch", builds.node.url()));
        let request = request.bearer_auth(&builds.token).header("content-type", "application/x-ndjson");
        let answer = Answered::to(request.body(lines)).await;
        assert_eq!(answer.text.lines().count(), count);
        let refused = answer
            .text
            .lines()
            .find(|line| serde_json::from_str::<Value>(line).unwrap()["status"] != json!(202));
        assert!(refused.is_none(), "{refused:?}");
        for build in ["batch", "stream"] {
            let path = format!("/v1/entities/{build}{round}?destination=acme/deploy:acme/ci:build");
            let entity = builds.node.get(&path).await;
            assert_eq!((&entity["last"], &entity["missing"]), (&json!(count), &json!(0)));
        }
    }
}

/// ORD-2, ORD-3, ENG-7: the kill of one node loses no state of the order.
#[tokio::test(flavor = "multi_thread")]
async fn order_is_kept_over_kill_of_one_node() {
    const NUMBERS: i64 = 60;
    let mut builds = builds().await;
    let settings = order(json!({ "mode": "strict" }));
    let further = json!({ "receives_max": 1000 });
    assert_eq!(builds.subscribe("deploy", "build", &settings, further).await.0, 201);
    let other = Node::over(builds.node.engine().database(), &Launch::default());
    let token = other.token(&builds.ci).await;
    eventually("the other node has the subscription", async || {
        let (status, _) = answer(&other, &token, event("first", 1)).await?;
        (status == 202 || status == 200).then_some(())
    })
    .await;
    let consumer = tokio::spawn({
        let client = other.client(&builds.subscribers["deploy"]);
        async move {
            let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
            while order.len() < usize::try_from(NUMBERS).unwrap() {
                let received =
                    client.receive("deploy", 10, Duration::from_secs(2), Duration::from_millis(200));
                let Ok(deliveries) = received.await else { continue };
                for id in deliveries
                    .iter()
                    .filter_map(|delivery| delivery.message.id())
                    .filter(|id| id.starts_with("b-"))
                {
                    if seen.insert(id.to_owned()) {
                        order.push(id.to_owned());
                    }
                }
                let receipts: Vec<_> = deliveries.iter().map(snavio_sdk::Delivery::receipt).collect();
                let _ = client.acknowledge("deploy", &receipts).await;
            }
            order
        }
    });
    for number in 1..=NUMBERS {
        if number == NUMBERS / 2 {
            // The kill cuts off a message of this build, which the test then sends to the other node, and
            // messages of other builds.
            let traffic = Traffic::through(&builds);
            traffic.is_under_way().await;
            let sending = answer(&builds.node, &builds.token, event("b", number.unsigned_abs() as usize));
            let _ = tokio::time::timeout(Duration::from_millis(2), sending).await;
            builds.node.kill();
            assert!(traffic.cut().await > 0, "the kill met no request on its way");
        }
        let node_and_token = if number < NUMBERS / 2 && number % 2 == 0 {
            (&builds.node, &builds.token)
        } else {
            (&other, &token)
        };
        let taken = async || {
            let (status, answer) =
                answer(node_and_token.0, node_and_token.1, event("b", number.unsigned_abs() as usize))
                    .await?;
            assert!(matches!(status, 200 | 202 | 503), "{status} {answer}");
            (status != 503).then_some(())
        };
        within(Duration::from_secs(30), "the message is accepted", taken).await;
    }
    let order = tokio::time::timeout(Duration::from_secs(60), consumer).await.expect("all come").unwrap();
    let expected: Vec<_> = (1..=NUMBERS).map(|number| format!("b-{number}")).collect();
    assert_eq!(order, expected);
}

/// Producers that send one event after the other to a node until its process has ended.
struct Traffic {
    producers: JoinSet<bool>,
    answered: Arc<AtomicUsize>,
}

impl Traffic {
    const PRODUCERS: usize = 8;

    fn through(builds: &BuildsFixture) -> Self {
        let (mut producers, answered) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
        for build in 0..Self::PRODUCERS {
            // A connection for each request: an idle connection would also fail at the kill, without a
            // request under way.
            let http = reqwest::Client::builder().pool_max_idle_per_host(0).timeout(Duration::from_secs(40));
            let http = http.build().unwrap();
            let answered = Arc::clone(&answered);
            let (url, token) = (format!("{}/v1/events", builds.node.url()), builds.token.clone());
            producers.spawn(async move {
                for number in 1.. {
                    let event = event(&format!("traffic{build}"), number);
                    let sent = http.post(&url).bearer_auth(&token).json(&event).send().await;
                    match sent {
                        Ok(_) => answered.fetch_add(1, Ordering::SeqCst),
                        Err(error) => return !error.is_connect() && !error.is_timeout(),
                    };
                }
                false
            });
        }
        Self { producers, answered }
    }

    async fn is_under_way(&self) {
        let many = || self.answered.load(Ordering::SeqCst) > 2 * Self::PRODUCERS;
        eventually("the producers are sending", async || many().then_some(())).await;
    }

    /// The number of producers that had a request under way when the process ended.
    async fn cut(self) -> usize {
        self.producers.join_all().await.into_iter().filter(|is_cut| *is_cut).count()
    }
}

/// The node's answer, if there is one.
async fn answer(node: &Node, token: &str, event: Value) -> Option<(u16, Value)> {
    let answer = post_json(node, "/v1/events", token, event.to_string()).send().await.ok()?;
    Some((answer.status().as_u16(), answer.json().await.ok()?))
}
