//! Order over PostgreSQL, where a node settles several batches at once and other nodes do, too.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use snavio_model::bounds;
use tokio::task::JoinSet;

use super::{Builds, order};
use crate::engine::Database;
use crate::node::{Launch, Node};
use crate::patience::{eventually, within};
use crate::wire::{Answered, http, post_json};

async fn builds() -> Builds {
    Builds::on(Node::over(&Database::new(), &Launch::default()), Launch::default()).await
}

fn event(build: &str, number: usize) -> Value {
    json!({ "eventId": format!("{build}-{number}"), "eventType": "build",
        "data": { "buildId": build, "eventSequence": number } })
}

/// ORD-3, ORD-4: what a producer sends in order is settled in order, in however many batches.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_batch_or_stream_in_order_nothing_is_refused() {
    let builds = builds().await;
    let of = order(json!({ "mode": "strict" }));
    assert_eq!(builds.subscribe("deploy", "build", &of, json!({})).await.0, 201);
    let count = bounds::BATCH_MESSAGES_MAX;
    for round in 0..5 {
        let entries: Vec<_> = (1..=count).map(|number| event(&format!("batch{round}"), number)).collect();
        let body = json!(entries).to_string();
        let answer = Answered::to(post_json(&builds.node, "/v1/events/batch", &builds.token, body)).await;
        let results = answer.document()["results"].as_array().cloned().unwrap();
        assert_eq!(results.len(), count);
        let refused = results.iter().find(|it| it["status"] != json!(202));
        assert!(refused.is_none(), "{refused:?}");

        let lines: String =
            (1..=count).map(|number| format!("{}\n", event(&format!("stream{round}"), number))).collect();
        let request = http(&builds.node).post(format!("{}/v1/events/batch", builds.node.url()));
        let request = request.bearer_auth(&builds.token).header("content-type", "application/x-ndjson");
        let answer = Answered::to(request.body(lines)).await;
        assert_eq!(answer.text.lines().count(), count);
        let is_taken = |line: &&str| serde_json::from_str::<Value>(line).unwrap()["status"] == json!(202);
        let refused = answer.text.lines().find(|line| !is_taken(line));
        assert!(refused.is_none(), "{refused:?}");
        for build in ["batch", "stream"] {
            let path = format!("/v1/entities/{build}{round}?destination=acme/deploy:acme/ci:build");
            let known = builds.node.get(&path).await;
            assert_eq!((&known["last"], &known["missing"]), (&json!(count), &json!(0)));
        }
    }
}

/// ORD-2, ORD-3, ENG-7: a node that is killed takes nothing of the order with it.
#[tokio::test(flavor = "multi_thread")]
async fn order_is_kept_when_one_of_two_nodes_is_killed() {
    const NUMBERS: i64 = 60;
    let mut builds = builds().await;
    let of = order(json!({ "mode": "strict" }));
    let further = json!({ "receives_max": 1000 });
    assert_eq!(builds.subscribe("deploy", "build", &of, further).await.0, 201);
    let other = Node::over(builds.node.engine().database(), &Launch::default());
    let token = other.token(&builds.ci).await;
    let is_known = async || {
        let (status, _) = answer(&other, &token, event("first", 1)).await?;
        (status == 202 || status == 200).then_some(())
    };
    eventually("the other has the subscription", is_known).await;
    let consumer = tokio::spawn({
        let client = other.client(&builds.subscribers["deploy"]);
        async move {
            let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
            while order.len() < usize::try_from(NUMBERS).unwrap() {
                let received =
                    client.receive("deploy", 10, Duration::from_secs(2), Duration::from_millis(200));
                let Ok(deliveries) = received.await else { continue };
                for id in deliveries.iter().filter_map(|it| it.message.id()).filter(|id| id.starts_with("b-"))
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
            // In the midst of a message of its own, which is then sent to the other, and of many of other builds.
            let traffic = Traffic::through(&builds);
            traffic.is_under_way().await;
            let sending = answer(&builds.node, &builds.token, event("b", number.unsigned_abs() as usize));
            let _ = tokio::time::timeout(Duration::from_millis(2), sending).await;
            builds.node.kill();
            assert!(traffic.cut().await > 0, "the kill met no request on its way");
        }
        let through = if number < NUMBERS / 2 && number % 2 == 0 {
            (&builds.node, &builds.token)
        } else {
            (&other, &token)
        };
        let taken = async || {
            let (status, answer) =
                answer(through.0, through.1, event("b", number.unsigned_abs() as usize)).await?;
            assert!(matches!(status, 200 | 202 | 503), "{status} {answer}");
            (status != 503).then_some(())
        };
        within(Duration::from_secs(30), "it is taken", taken).await;
    }
    let order = tokio::time::timeout(Duration::from_secs(60), consumer).await.expect("all come").unwrap();
    let expected: Vec<_> = (1..=NUMBERS).map(|number| format!("b-{number}")).collect();
    assert_eq!(order, expected);
}

/// Producers that send to a node one event after the other until it is gone.
struct Traffic {
    producers: JoinSet<bool>,
    answered: Arc<AtomicUsize>,
}

impl Traffic {
    const PRODUCERS: usize = 8;

    fn through(builds: &Builds) -> Self {
        let (mut producers, answered) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
        for build in 0..Self::PRODUCERS {
            // A connection for each request: one that is kept fails for a kill that met nothing on its way.
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
        eventually("they are at it", async || many().then_some(())).await;
    }

    /// How many had a request on its way when the node was gone.
    async fn cut(self) -> usize {
        self.producers.join_all().await.into_iter().filter(|is_cut| *is_cut).count()
    }
}

/// What a node answers, if it does.
async fn answer(node: &Node, token: &str, event: Value) -> Option<(u16, Value)> {
    let answer = post_json(node, "/v1/events", token, event.to_string()).send().await.ok()?;
    Some((answer.status().as_u16(), answer.json().await.ok()?))
}
