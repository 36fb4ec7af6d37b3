//! Order under random traffic: many producers, many entities, numbers out of order, repeated and missing, and
//! kills of the node. The order of first receives shows whether order was kept (ORD-2, ORD-3).
//!
//! One consumer for each queue takes one answer after the other and notes the deliveries as they arrive.
//! Nodes keep no record of receives except the count in each delivery (`attempt`), which tells how many
//! deliveries were noted at their first receive. The others were leased before to a request that a kill cut
//! off, so no consumer had seen them: such a delivery comes again before any other of its entity. If a node
//! leases a higher number of the entity instead, the consumer meets that first and the run fails. A record in
//! the nodes would show only one thing more: a delivery that was leased too early, to a request that was cut
//! off.

mod outlived;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use snavio_model::bounds;
use snavio_sdk::{Client, Delivery};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{BuildsFixture, order};
use crate::embedded::crash::{Choices, is_long};
use crate::engine::Database;
use crate::node::{Launch, Node};
use crate::patience::{eventually, within};
use crate::wire::metric;

struct Size {
    entities: u64,
    numbers: i64,
    kills: usize,
    /// The wait for gaps in runs with kills. Without kills no wait ends, so that the test can judge all
    /// messages again.
    wait_seconds: u32,
}

const SHORT: Size = Size { entities: 12, numbers: 20, kills: 5, wait_seconds: 3 };
const LONG: Size = Size { entities: 200, numbers: 60, kills: 100, wait_seconds: 60 };
const PRODUCERS: usize = 6;
/// Low enough to be reached behind each number that is left out, and by messages that arrive far out of
/// order.
const WAITING_MAX: usize = 3;
/// The queues of the services that subscribe to `build`, named like the mode of their order.
const BUILD_QUEUES: [&str; 3] = ["strict", "lenient", "reorder"];
/// The queue of the only service that subscribes to `done`.
const DONE_QUEUE: &str = "deploy";
/// The number of requests that must be under way before a kill.
const CUT_MIN: usize = 3;
/// The rounds in which producers send the plan for further entities until the last kill. The limit bounds the
/// number of deliveries, however long the kills take. After the limit producers repeat the last round.
const ROUNDS_MAX: u64 = 4;

/// The time limit of a whole phase on a busy machine.
fn phase_limit() -> Duration {
    Duration::from_secs(if is_long() { 1800 } else { 300 })
}

/// The entity and sequence number of an event.
type EventKey = (u64, i64);

/// The messages in the order in which they are sent: nearly in order, with repeats, and with some numbers
/// left out.
fn plan(size: &Size, choices: &mut Choices) -> Vec<EventKey> {
    let mut sent: Vec<(u64, EventKey)> = Vec::new();
    for entity in 0..size.entities {
        for number in 0..size.numbers {
            if choices.once_in(15) {
                continue;
            }
            let copies = 1 + u64::from(choices.once_in(8));
            for _ in 0..copies {
                let position = number.unsigned_abs() * 10 + choices.below(40);
                sent.push((position, (entity, number)));
            }
        }
    }
    sent.sort_unstable();
    sent.into_iter().map(|(_, event)| event).collect()
}

/// The numbers that the plan left out. The test sends them last and lowest first, so that no message waits in
/// the end.
fn left_out(size: &Size, sent: &[EventKey]) -> Vec<EventKey> {
    let sent: BTreeSet<_> = sent.iter().copied().collect();
    let all = (0..size.entities).flat_map(|entity| (0..size.numbers).map(move |number| (entity, number)));
    all.filter(|event| !sent.contains(event)).collect()
}

/// The first receives of each queue in their order: delivery id and event.
type FirstReceives = BTreeMap<&'static str, Vec<(i64, EventKey)>>;

/// The address of a running node, and clients of it. A restart changes the address.
#[derive(Clone)]
struct NodeConnection {
    url: String,
    token: String,
    clients: Arc<BTreeMap<&'static str, Client>>,
}

/// The current connections to all nodes.
#[derive(Clone)]
struct NodeConnections(Vec<watch::Receiver<NodeConnection>>);

impl NodeConnections {
    /// The connection to one of the nodes, in rotation.
    fn at(&self, turn: usize) -> NodeConnection {
        self.0[turn % self.0.len()].borrow().clone()
    }
}

impl BuildsFixture {
    async fn connect(&self, node: &Node) -> NodeConnection {
        let queues = BUILD_QUEUES.into_iter().chain([DONE_QUEUE]);
        let clients = queues.map(|queue| (queue, node.client(&self.subscribers[queue])));
        let clients = Arc::new(clients.collect());
        NodeConnection { url: node.url().to_owned(), token: node.token(&self.ci).await, clients }
    }

    async fn subscribe_all(&self, wait_seconds: u32) {
        let subscriptions = BUILD_QUEUES
            .map(|queue| (queue, "build", queue))
            .into_iter()
            .chain([(DONE_QUEUE, "done", "strict")]);
        for (queue, name, mode) in subscriptions {
            let settings =
                order(json!({ "mode": mode, "wait_seconds": wait_seconds, "waiting_max": WAITING_MAX }));
            let (status, answer) =
                self.subscribe(queue, name, &settings, json!({ "receives_max": 1000 })).await;
            assert_eq!(status, 201, "{answer}");
        }
    }
}

fn id(name: &str, (entity, number): EventKey) -> String {
    format!("{name}-{entity}-{number}")
}

fn parse_id(id: &str) -> EventKey {
    let mut parts = id.split('-').skip(1);
    (parts.next().unwrap().parse().unwrap(), parts.next().unwrap().parse().unwrap())
}

/// Counts of the producers' requests that are under way or were cut off.
struct Traffic {
    http: reqwest::Client,
    /// The time limit of an answer; after it the request is sent again.
    answer_max: Duration,
    under_way: AtomicUsize,
    /// Requests that were sent and had no answer because the process had ended.
    cut: AtomicUsize,
    /// Whether the last kill has happened.
    is_calm: AtomicBool,
}

impl Traffic {
    fn new(kills: usize) -> Arc<Self> {
        // A connection for each request: an idle connection would also fail at the kill, without a request
        // under way.
        let http = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
        // A running node has judged a message even if its answer is late, so a repeat would be a duplicate.
        let answer_max = if kills == 0 { phase_limit() } else { Duration::from_secs(20) };
        let (under_way, cut) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { http, answer_max, under_way, cut, is_calm: AtomicBool::new(kills == 0) })
    }
}

/// Sends an event until it is answered, and returns status and document.
async fn send(
    connections: &NodeConnections,
    traffic: &Traffic,
    name: &str,
    event_key: EventKey,
) -> (u16, Value) {
    let event = json!({
        "eventId": id(name, event_key), "eventType": name,
        "data": { "buildId": event_key.0.to_string(), "eventSequence": event_key.1 },
    });
    for turn in event_key.1.unsigned_abs() as usize.. {
        let NodeConnection { url, token, .. } = connections.at(turn);
        let request = traffic.http.post(format!("{url}/v1/events")).bearer_auth(token).json(&event);
        traffic.under_way.fetch_add(1, Ordering::SeqCst);
        let answered = async {
            let answer = request.timeout(traffic.answer_max).send().await?;
            Ok::<_, reqwest::Error>((answer.status().as_u16(), answer.json::<Value>().await?))
        };
        let answered = answered.await;
        traffic.under_way.fetch_sub(1, Ordering::SeqCst);
        match answered {
            Ok((status @ (200 | 202 | 409), document)) => return (status, document),
            Ok((status, document)) => assert!(matches!(status, 401 | 503), "{status} {document}"),
            Err(error) => {
                let is_cut = !error.is_connect() && !error.is_timeout();
                traffic.cut.fetch_add(usize::from(is_cut), Ordering::SeqCst);
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    unreachable!("it is sent until it is answered")
}

/// The answers to both events of a number: `build`, which goes to several subscriptions, and `done`, which
/// goes to one.
struct EventAnswers {
    event: EventKey,
    build: Value,
    done: (u16, Value),
}

/// Sends its part of the plan, and then the same numbers of other entities until the last kill.
async fn produce(
    connections: NodeConnections,
    part: Vec<EventKey>,
    entities: u64,
    traffic: Arc<Traffic>,
) -> Vec<EventAnswers> {
    let mut answers = Vec::new();
    for round in 0.. {
        for (entity, number) in &part {
            if round > 0 {
                if traffic.is_calm.load(Ordering::SeqCst) {
                    return answers;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let event = (entity + round.min(ROUNDS_MAX) * entities, *number);
            let sending = ["build", "done"].map(|name| send(&connections, &traffic, name, event));
            let [build, done] = sending;
            let ((status, build), done) = tokio::join!(build, done);
            assert_ne!(status, 409, "lenient order takes all: {build}");
            answers.push(EventAnswers { event, build, done });
        }
        if traffic.is_calm.load(Ordering::SeqCst) {
            break;
        }
    }
    answers
}

/// Receives deliveries and notes those that were not seen before. One in ten batches is not acknowledged and
/// comes again.
async fn consume(
    queue: &'static str,
    connections: NodeConnections,
    received_first: Arc<Mutex<FirstReceives>>,
    is_finished: Arc<AtomicBool>,
    firsts: Arc<AtomicUsize>,
    mut choices: Choices,
) {
    let mut seen = BTreeSet::new();
    for turn in 0.. {
        if is_finished.load(Ordering::Relaxed) {
            break;
        }
        let NodeConnection { clients, .. } = connections.at(turn);
        let client = &clients[queue];
        let received = client.receive(queue, 10, Duration::from_secs(1), Duration::from_millis(200)).await;
        let Ok(deliveries) = received else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        for delivery in &deliveries {
            let event = parse_id(delivery.message.id().unwrap());
            if seen.insert(event) {
                firsts.fetch_add(usize::from(delivery.attempt == 1), Ordering::Relaxed);
                let new = (delivery.delivery_id.0, event);
                received_first.lock().unwrap().entry(queue).or_default().push(new);
            }
        }
        if !choices.once_in(10) {
            let receipts: Vec<_> = deliveries.iter().map(Delivery::receipt).collect();
            let _ = client.acknowledge(queue, &receipts).await;
        }
    }
}

/// The results of a run.
struct Run {
    builds: BuildsFixture,
    all: BTreeSet<EventKey>,
    answers: Vec<EventAnswers>,
    received_first: FirstReceives,
    refused: DeadLetters,
    cut: usize,
    /// The logs of the nodes.
    logs: String,
}

/// The launch options of the nodes; each gap is a line of the log.
fn launch() -> Launch {
    Launch::default().set("LOG_FILTER", "warn,snavio::order=info")
}

async fn run(name: &str, kills: usize, size: &Size) -> Run {
    run_on(BuildsFixture::start(launch()).await, false, name, kills, size).await
}

/// Runs over the given node and, if `has_other`, over a second node of the same store.
async fn run_on(mut builds: BuildsFixture, has_other: bool, name: &str, kills: usize, size: &Size) -> Run {
    let mut choices = Choices::new(name);
    let wait_seconds = if kills == 0 { bounds::ORDER_WAIT_SECONDS_MAX } else { size.wait_seconds };
    builds.subscribe_all(wait_seconds).await;
    let sent = plan(size, &mut choices);
    let mut other = has_other.then(|| Node::over(builds.node.engine().database(), &builds.launch));
    let mut channels = vec![watch::channel(builds.connect(&builds.node).await)];
    if let Some(other) = &other {
        channels.push(watch::channel(builds.connect(other).await));
    }
    let (senders, connections): (Vec<_>, Vec<_>) = channels.into_iter().unzip();
    let connections = NodeConnections(connections);
    let (received_first, is_finished) =
        (Arc::new(Mutex::new(FirstReceives::new())), Arc::new(AtomicBool::new(false)));
    let firsts = Arc::new(AtomicUsize::new(0));
    let mut consumers = JoinSet::new();
    for queue in BUILD_QUEUES.into_iter().chain([DONE_QUEUE]) {
        let (received_first, is_finished) = (Arc::clone(&received_first), Arc::clone(&is_finished));
        consumers.spawn(consume(
            queue,
            connections.clone(),
            received_first,
            is_finished,
            Arc::clone(&firsts),
            choices.split(),
        ));
    }
    let (mut producers, traffic) = (JoinSet::new(), Traffic::new(kills));
    for producer in 0..PRODUCERS {
        let mine = sent.iter().skip(producer).step_by(PRODUCERS).copied().collect();
        producers.spawn(produce(connections.clone(), mine, size.entities, Arc::clone(&traffic)));
    }
    for kill in 0..kills {
        tokio::time::sleep(Duration::from_millis(100 + choices.below(300))).await;
        eventually("much is under way", async || {
            let ended = producers.try_join_next().map(Result::unwrap);
            assert!(ended.is_none(), "a producer ended before the last kill");
            (traffic.under_way.load(Ordering::SeqCst) >= CUT_MIN).then_some(())
        })
        .await;
        let victim = kill % senders.len();
        let launch = builds.launch.clone();
        let node = if victim == 0 { &mut builds.node } else { other.as_mut().expect("there are two") };
        node.kill();
        node.restart(&launch);
        let node = if victim == 0 { &builds.node } else { other.as_ref().expect("there are two") };
        senders[victim].send_replace(builds.connect(node).await);
    }
    traffic.is_calm.store(true, Ordering::SeqCst);
    let answers = timeout(phase_limit(), producers.join_all()).await.expect("all is answered");
    let mut answers: Vec<_> = answers.into_iter().flatten().collect();
    if kills == 0 {
        let rest = produce(connections, left_out(size, &sent), size.entities, Arc::clone(&traffic));
        answers.extend(timeout(phase_limit(), rest).await.expect("the rest is answered"));
    }
    let all: BTreeSet<_> = answers.iter().map(|answers| answers.event).collect();
    let refused_done = refused_done_events(&answers).len();
    let refused = within(phase_limit(), "all are received or refused", async || {
        let ended = consumers.try_join_next().map(Result::unwrap);
        assert!(ended.is_none(), "a consumer ended before all came");
        let refused = dead_letters(&builds).await;
        let received_first = received_first.lock().unwrap();
        let count = |queue: &str| received_first.get(queue).map_or(0, Vec::len);
        let is_all = |queue: &&str| count(queue) + refused.get(*queue).map_or(0, Vec::len) >= all.len();
        (BUILD_QUEUES.iter().all(is_all) && count(DONE_QUEUE) + refused_done >= all.len()).then_some(refused)
    })
    .await;
    is_finished.store(true, Ordering::Relaxed);
    timeout(phase_limit(), consumers.join_all()).await.expect("consumers end");
    let received_first = received_first.lock().unwrap().clone();
    let cut = traffic.cut.load(Ordering::SeqCst);
    let logs = other.iter().map(Node::said).fold(builds.node.said(), |logs, log| logs + &log);
    let (noted, firsts) =
        (received_first.values().map(Vec::len).sum::<usize>(), firsts.load(Ordering::Relaxed));
    println!(
        "{name}: {} events for each of 4 queues, {noted} deliveries, {firsts} noted at their first receive, {} late of strict, {cut} \
         requests cut by {kills} kills",
        all.len(),
        refused.get("strict").map_or(0, Vec::len),
    );
    Run { builds, all, answers, received_first, refused, cut, logs }
}

/// The `done` events that the only subscription refused.
fn refused_done_events(answers: &[EventAnswers]) -> BTreeSet<EventKey> {
    answers.iter().filter(|answer| answer.done.0 == 409).map(|answer| answer.event).collect()
}

/// The refused messages of each subscription: the delivery id that each would have had, and its event.
type DeadLetters = BTreeMap<String, Vec<(i64, EventKey)>>;

async fn dead_letters(builds: &BuildsFixture) -> DeadLetters {
    let (mut all, mut after) = (DeadLetters::new(), 0);
    loop {
        let page = builds.node.get(&format!("/v1/dead-letters?tenant=acme&after={after}&limit=1000")).await;
        let items = page["items"].as_array().cloned().unwrap_or_default();
        let Some(last) = items.last() else { return all };
        after = last["id"].as_i64().unwrap();
        for letter in &items {
            assert_eq!(letter["reason"], json!("out_of_order"), "{letter}");
            let queue = letter["route"].as_str().unwrap().split(['/', ':']).nth(1).unwrap();
            let refused = (letter["id"].as_i64().unwrap(), parse_id(letter["message_id"].as_str().unwrap()));
            all.entry(queue.to_owned()).or_default().push(refused);
        }
    }
}

/// Strict and reorder never deliver a lower number after a higher one. No mode loses a message, and none
/// refuses a message that is not late.
fn check(run: &Run) {
    let mut refused = run.refused.clone();
    for queue in BUILD_QUEUES {
        let refused = refused.entry(queue.to_owned()).or_default();
        check_received(queue, run, &refused.iter().map(|(_, event)| *event).collect());
        check_judged(queue, &run.received_first[queue], refused);
        assert!(queue != "lenient" || refused.is_empty());
    }
    let (strict, reorder) = (refused["strict"].len(), refused["reorder"].len());
    assert!(strict > 0, "no message was late: the plan has too little disorder");
    assert!(reorder < strict, "reorder refused {reorder}, not fewer than strict with {strict}");

    let refused = refused_done_events(&run.answers);
    assert!(!refused.is_empty(), "no message was late: the plan has too little disorder");
    check_received(DONE_QUEUE, run, &refused);
    let received_first: BTreeSet<_> =
        run.received_first[DONE_QUEUE].iter().map(|(_, event)| *event).collect();
    for EventAnswers { event, done: (_, answer), .. } in
        run.answers.iter().filter(|answers| answers.done.0 == 409)
    {
        assert_eq!((&answer["reason"], &answer["number"]), (&json!("out_of_order"), &json!(event.1)));
        let last = answer["last"].as_i64().unwrap();
        assert!(
            event.1 < last && received_first.contains(&(event.0, last)),
            "{answer} for a message that is not late"
        );
    }
}

fn check_received(queue: &str, run: &Run, refused: &BTreeSet<EventKey>) {
    let mut last: BTreeMap<u64, i64> = BTreeMap::new();
    for (_, (entity, number)) in &run.received_first[queue] {
        let before = last.insert(*entity, *number);
        let in_order = before.is_none_or(|before| before < *number);
        assert!(in_order || queue == "lenient", "{queue}: {number} of {entity} after {before:?}");
    }
    let received_first: BTreeSet<_> = run.received_first[queue].iter().map(|(_, event)| *event).collect();
    assert!(received_first.is_disjoint(refused), "{queue}: a refused message is not delivered");
    let ended: BTreeSet<_> = received_first.union(refused).copied().collect();
    assert_eq!(ended, run.all, "{queue}: each message is delivered or refused");
}

/// Checks the judgements in the order in which the store made them, which is the order of delivery ids: a
/// refused message is below one that was accepted before it, and in strict order every such message is
/// refused.
fn check_judged(queue: &str, received_first: &[(i64, EventKey)], refused: &[(i64, EventKey)]) {
    let taken = received_first.iter().map(|(delivery, event)| (*delivery, *event, true));
    let mut judged: Vec<_> =
        taken.chain(refused.iter().map(|(delivery, event)| (*delivery, *event, false))).collect();
    judged.sort_unstable();
    let mut highest: BTreeMap<u64, i64> = BTreeMap::new();
    for (_, (entity, number), is_taken) in judged {
        let before = highest.get(&entity).copied();
        let is_late = before.is_some_and(|before| number < before);
        assert!(is_taken || is_late, "{queue}: {number} of {entity} is refused after {before:?}");
        assert!(queue != "strict" || is_taken != is_late, "{number} of {entity} is taken after {before:?}");
        highest.insert(entity, before.unwrap_or(number).max(number));
    }
}

/// The expected state of one entity by ORD-3 and ORD-4, as long as no wait ends.
#[derive(Default)]
struct ExpectedEntity {
    last: Option<i64>,
    waiting: BTreeSet<i64>,
}

/// The expected counts of a subscription.
#[derive(Debug, Default, PartialEq, Eq)]
struct ExpectedCounts {
    late: u32,
    gaps: u32,
    /// The number of times that more messages waited than `waiting_max`.
    overflows: u32,
}

impl ExpectedEntity {
    fn judge(&mut self, mode: &str, number: i64, counted: &mut ExpectedCounts) -> &'static str {
        match self.last {
            Some(last) if number <= last => {
                counted.late += 1;
                return if mode == "lenient" { "accepted" } else { "dead_letter" };
            }
            Some(last) if number > last + 1 && mode == "reorder" => {}
            _ => {
                self.move_to(number, counted);
                return "accepted";
            }
        }
        self.waiting.insert(number);
        if self.waiting.len() > WAITING_MAX {
            counted.overflows += 1;
            let lowest = self.waiting.pop_first().unwrap();
            self.move_to(lowest, counted);
        }
        if self.waiting.contains(&number) { "waiting" } else { "accepted" }
    }

    /// Moves on to a number, and to the messages that wait right behind it.
    fn move_to(&mut self, number: i64, counted: &mut ExpectedCounts) {
        counted.gaps += u32::from(self.last.is_some_and(|last| number > last + 1));
        self.last = Some(number);
        if self.waiting.remove(&(number + 1)) {
            self.move_to(number + 1, counted);
        }
    }
}

/// Judges all answers of a subscription again, in the order in which the store did, and compares each
/// verdict.
fn compare(queue: &str, run: &Run) -> ExpectedCounts {
    let judged = run.answers.iter().filter_map(|answers| {
        let each = answers.build["subscriptions"].as_array()?;
        let verdict = each.iter().find(|one| one["destination"].as_str().unwrap().contains(queue))?;
        Some((verdict["delivery_id"].as_i64()?, answers.event, verdict["verdict"].as_str()?.to_owned()))
    });
    let mut judged: Vec<_> = judged.collect();
    judged.sort_unstable();
    assert_eq!(judged.len(), run.all.len(), "{queue}: each message was judged once");
    let (mut entities, mut counted) = (BTreeMap::<u64, ExpectedEntity>::new(), ExpectedCounts::default());
    for (_, (entity, number), verdict) in judged {
        let expected = entities.entry(entity).or_default().judge(queue, number, &mut counted);
        assert_eq!(verdict, expected, "{queue}: {number} of {entity}");
    }
    assert!(entities.values().all(|entity| entity.waiting.is_empty()), "{queue}: every gap is filled");
    counted
}

/// Waits until a metric of a subscription has this value.
async fn wait_for_count(run: &Run, metric_name: &str, queue: &str, name: &str, count: u32) {
    let series = format!(r#"{metric_name}{{route="acme/{queue}:acme/ci:{name}"}}"#);
    eventually(&format!("{count} of {series}"), async || {
        metric(&run.builds.node, &series).await.filter(|value| *value == f64::from(count))
    })
    .await;
}

/// ORD-3, ORD-4, ORD-8: random order, repeats, missing numbers and concurrent producers.
#[tokio::test(flavor = "multi_thread")]
async fn order_is_kept_under_random_traffic() {
    let run = run("ordering", 0, if is_long() { &LONG } else { &SHORT }).await;
    check(&run);
    outlived::check(&run).await;
    let late = run.answers.iter().filter(|answers| answers.done.0 == 409).count();
    wait_for_count(&run, "event_order_violations_total", DONE_QUEUE, "done", u32::try_from(late).unwrap())
        .await;
    for queue in BUILD_QUEUES {
        let counted = compare(queue, &run);
        wait_for_count(&run, "event_order_violations_total", queue, "build", counted.late).await;
        wait_for_count(&run, "event_sequence_gaps_total", queue, "build", counted.gaps).await;
        assert_eq!(
            counted.overflows > 0,
            queue == "reorder",
            "only reorder has more waiting messages than it may"
        );
    }
}

/// ORD-2, ORD-3, QUA-1
#[tokio::test(flavor = "multi_thread")]
async fn order_is_kept_over_kills_of_one_node() {
    let size = if is_long() { LONG } else { SHORT };
    let run = run("ordering over kills", size.kills, &size).await;
    check(&run);
    outlived::check(&run).await;
    assert!(run.cut > 0, "no kill met a request on its way");
}

/// ORD-2, ORD-3, ENG-7: the same traffic through two nodes of one database, which are killed in turn.
#[tokio::test(flavor = "multi_thread")]
async fn order_is_kept_over_kills_of_two_nodes() {
    let size = if is_long() { LONG } else { SHORT };
    let builds = BuildsFixture::on(Node::over(&Database::new(), &launch()), launch()).await;
    let run = run_on(builds, true, "ordering over two nodes", size.kills, &size).await;
    check(&run);
    outlived::check(&run).await;
    assert!(run.cut > 0, "no kill met a request on its way");
}
