//! Many producers, entities and numbers out of order, repeated and lost, and a node that is killed: the first hand-overs
//! tell whether order was kept (ORD-2, ORD-3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use snavio_sdk::{Client, Delivery};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Builds, order};
use crate::embedded::crash::{Choices, is_long};
use crate::node::Launch;
use crate::patience::within;
use crate::wire::metric;

struct Size {
    entities: u64,
    numbers: i64,
    kills: usize,
}

const SHORT: Size = Size { entities: 12, numbers: 20, kills: 5 };
const LONG: Size = Size { entities: 200, numbers: 60, kills: 100 };
const PRODUCERS: usize = 6;
const QUEUES: [&str; 3] = ["strict", "lenient", "reorder"];

/// An event: its entity and number.
type Numbered = (u64, i64);

/// What is sent, in the order in which it is: nearly in order, with repeats, and with some that never come.
fn plan(size: &Size, choices: &mut Choices) -> (Vec<Numbered>, BTreeSet<Numbered>) {
    let mut sent: Vec<(u64, Numbered)> = Vec::new();
    for entity in 0..size.entities {
        for number in 0..size.numbers {
            if choices.once_in(15) {
                continue;
            }
            let copies = 1 + u64::from(choices.once_in(8));
            for _ in 0..copies {
                let place = number.unsigned_abs() * 10 + choices.below(40);
                sent.push((place, (entity, number)));
            }
        }
    }
    sent.sort_unstable();
    let sent: Vec<_> = sent.into_iter().map(|(_, it)| it).collect();
    let all = sent.iter().copied().collect();
    (sent, all)
}

/// First hand-overs of each queue, in their order.
type HandedOver = Arc<Mutex<BTreeMap<&'static str, Vec<Numbered>>>>;

/// Where a node is at the moment.
#[derive(Clone)]
struct Life {
    url: String,
    token: String,
    clients: Arc<BTreeMap<&'static str, Client>>,
}

impl Builds {
    fn life(&self) -> Life {
        let clients = Arc::new(QUEUES.map(|queue| (queue, self.client(queue))).into());
        Life { url: self.node.url().to_owned(), token: self.token.clone(), clients }
    }

    async fn subscribe_all(&self) {
        for queue in QUEUES {
            let of = order(json!({ "mode": queue, "wait_seconds": 2, "waiting_max": 8 }));
            let (status, answer) = self.subscribe(queue, "build", &of, json!({ "receives_max": 1000 })).await;
            assert_eq!(status, 201, "{answer}");
        }
    }
}

fn id((entity, number): Numbered) -> String {
    format!("{entity}-{number}")
}

/// Sends one until it is answered, and says how it stood at the subscriptions.
async fn send(life: &watch::Receiver<Life>, it: Numbered) -> Value {
    let event = json!({
        "eventId": id(it), "eventType": "build",
        "data": { "buildId": it.0.to_string(), "eventSequence": it.1 },
    });
    let http = reqwest::Client::new();
    loop {
        let Life { url, token, .. } = life.borrow().clone();
        let request = http.post(format!("{url}/v1/events")).bearer_auth(token).json(&event);
        if let Ok(answer) = request.timeout(Duration::from_secs(20)).send().await {
            let status = answer.status().as_u16();
            if let Ok(document) = answer.json::<Value>().await
                && matches!(status, 200 | 202)
            {
                return document;
            }
            assert!(matches!(status, 200 | 202 | 401 | 503), "{status}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn produce(life: watch::Receiver<Life>, mine: Vec<Numbered>) -> Vec<(Numbered, Value)> {
    let mut answers = Vec::new();
    for it in mine {
        answers.push((it, send(&life, it).await));
    }
    answers
}

/// Takes what comes, and notes what was not seen before. One that is not acknowledged comes again.
async fn consume(
    queue: &'static str,
    life: watch::Receiver<Life>,
    handed: HandedOver,
    over: Arc<AtomicBool>,
    mut choices: Choices,
) {
    let mut seen = BTreeSet::new();
    while !over.load(Ordering::Relaxed) {
        let clients = Arc::clone(&life.borrow().clients);
        let client = &clients[queue];
        let received = client.receive(queue, 10, Duration::from_secs(2), Duration::from_millis(200)).await;
        let Ok(deliveries) = received else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        for it in deliveries.iter().filter_map(|it| it.message.id()) {
            let (entity, number) = it.split_once('-').unwrap();
            let it = (entity.parse().unwrap(), number.parse().unwrap());
            if seen.insert(it) {
                handed.lock().unwrap().entry(queue).or_default().push(it);
            }
        }
        if !choices.once_in(10) {
            let receipts: Vec<_> = deliveries.iter().map(Delivery::receipt).collect();
            let _ = client.acknowledge(queue, &receipts).await;
        }
    }
}

/// Runs it all, and gives the answers and the hand-overs, with what was sent.
struct Run {
    builds: Builds,
    all: BTreeSet<Numbered>,
    answers: Vec<(Numbered, Value)>,
    handed: BTreeMap<&'static str, Vec<Numbered>>,
}

async fn run(what: &str, kills: usize, size: &Size) -> Run {
    let mut choices = Choices::new(what);
    let mut builds = Builds::set(Launch::default()).await;
    builds.subscribe_all().await;
    let (sent, all) = plan(size, &mut choices);
    let (lives, life) = watch::channel(builds.life());
    let (handed, over) = (HandedOver::default(), Arc::new(AtomicBool::new(false)));
    let mut consumers = JoinSet::new();
    for queue in QUEUES {
        consumers.spawn(consume(
            queue,
            life.clone(),
            Arc::clone(&handed),
            Arc::clone(&over),
            choices.split(),
        ));
    }
    let mut producers = JoinSet::new();
    for place in 0..PRODUCERS {
        let mine = sent.iter().skip(place).step_by(PRODUCERS).copied().collect();
        producers.spawn(produce(life.clone(), mine));
    }
    for _ in 0..kills {
        tokio::time::sleep(Duration::from_millis(100 + choices.below(300))).await;
        builds.node.kill();
        builds.node.restart(&builds.launch.clone());
        builds.token = builds.node.token(&builds.ci).await;
        lives.send_replace(builds.life());
    }
    let mut answers = Vec::new();
    while let Some(of) = producers.join_next().await {
        answers.extend(of.unwrap());
    }
    let dead = async || dead_letters(&builds).await;
    let patience = Duration::from_secs(if is_long() { 900 } else { 60 });
    within(patience, "all are handed over or refused", async || {
        let refused = dead().await;
        let handed = handed.lock().unwrap();
        let count = |queue: &str| {
            handed.get(queue).map_or(0, Vec::len) + refused.iter().filter(|(of, _)| of == queue).count()
        };
        QUEUES.iter().all(|queue| count(queue) >= all.len()).then_some(())
    })
    .await;
    over.store(true, Ordering::Relaxed);
    while let Some(left) = consumers.join_next().await {
        left.unwrap();
    }
    let handed = handed.lock().unwrap().clone();
    Run { builds, all, answers, handed }
}

/// What was refused at each subscription.
async fn dead_letters(builds: &Builds) -> Vec<(String, String)> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = builds.node.get(&format!("/v1/dead-letters?tenant=acme&after={after}&limit=1000")).await;
        let items = page["items"].as_array().cloned().unwrap_or_default();
        let Some(last) = items.last() else { return all };
        after = last["id"].as_i64().unwrap();
        for it in &items {
            assert_eq!(it["reason"], json!("out_of_order"), "{it}");
            let queue = it["route"].as_str().unwrap().split(['/', ':']).nth(1).unwrap();
            all.push((queue.to_owned(), it["message_id"].as_str().unwrap().to_owned()));
        }
    }
}

/// Strict and reorder never hand over a lower number after a higher one; nothing is lost in any mode.
async fn check(run: &Run) {
    let refused = dead_letters(&run.builds).await;
    for queue in QUEUES {
        let handed = &run.handed[queue];
        let mut last: BTreeMap<u64, i64> = BTreeMap::new();
        for (entity, number) in handed {
            let before = last.insert(*entity, *number);
            let in_order = before.is_none_or(|before| before < *number);
            assert!(in_order || queue == "lenient", "{queue}: {number} of {entity} after {before:?}");
        }
        let of_queue = refused.iter().filter(|(of, _)| of == queue).map(|(_, id)| id.clone());
        let refused: BTreeSet<_> = of_queue.collect();
        let handed: BTreeSet<_> = handed.iter().map(|it| id(*it)).collect();
        assert!(handed.is_disjoint(&refused), "{queue}: what was refused is not handed over");
        let all: BTreeSet<_> = run.all.iter().map(|it| id(*it)).collect();
        let ended: BTreeSet<_> = handed.union(&refused).cloned().collect();
        assert_eq!(ended, all, "{queue}: each is handed over or refused");
        assert!(queue != "lenient" || refused.is_empty());
    }
    let strict = refused.iter().filter(|(queue, _)| queue == "strict").count();
    assert!(strict > 0, "nothing came late: the plan is too tame");
    let reorder = refused.iter().filter(|(queue, _)| queue == "reorder").count();
    assert!(reorder < strict, "waiting saved nothing: {reorder} of {strict}");
}

/// ORD-3, ORD-4, ORD-8: permutations, repeats, losses and racing producers.
#[tokio::test(flavor = "multi_thread")]
async fn order_is_kept_whatever_comes_in_which_order() {
    let size = if is_long() { LONG } else { SHORT };
    let run = run("ordering", 0, &size).await;
    check(&run).await;
    // As the store judged them: in the order of their deliveries, those below the highest so far are late.
    let mut judged: Vec<_> = run
        .answers
        .iter()
        .filter_map(|(it, answer)| {
            let of = answer["subscriptions"]
                .as_array()?
                .iter()
                .find(|it| it["destination"].as_str().unwrap().contains("lenient"))?;
            (of["verdict"] == "accepted").then(|| (of["delivery_id"].as_i64().unwrap(), *it))
        })
        .collect();
    judged.sort_unstable();
    assert_eq!(judged.len(), run.all.len(), "each was accepted once");
    let mut highest: BTreeMap<u64, i64> = BTreeMap::new();
    let mut late = 0;
    for (_, (entity, number)) in judged {
        let last = highest.entry(entity).or_insert(number);
        late += u32::from(number < *last);
        *last = number.max(*last);
    }
    let series = r#"event_order_violations_total{route="acme/lenient:acme/ci:build"}"#;
    assert_eq!(metric(&run.builds.node, series).await, Some(f64::from(late)));
}

/// ORD-2, ORD-3, QUA-1
#[tokio::test(flavor = "multi_thread")]
async fn order_is_kept_over_kills_of_the_node() {
    let size = if is_long() { LONG } else { SHORT };
    let run = run("ordering over kills", size.kills, &size).await;
    check(&run).await;
}
