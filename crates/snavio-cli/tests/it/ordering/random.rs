//! Many producers, entities and numbers out of order, repeated and lost, and a node that is killed: the first hand-overs
//! tell whether order was kept (ORD-2, ORD-3).
//!
//! They are noted where they arrive, at one consumer for each queue that takes one answer after the other. Nodes have no record of
//! hand-overs but a count for each delivery (`attempt`), which says how many were noted at their very first. Of the others, each
//! reached nobody before, because a kill cut it off: it comes again before any other of its entity, and if a higher one was handed
//! out instead, the consumer meets that first, and the run fails. So a record of the nodes would show more of one thing only: of
//! what was handed out too early, and to nobody.

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

use super::{Builds, order};
use crate::embedded::crash::{Choices, is_long};
use crate::engine::Database;
use crate::node::{Launch, Node};
use crate::patience::{eventually, within};
use crate::wire::metric;

struct Size {
    entities: u64,
    numbers: i64,
    kills: usize,
    /// Where the node is killed; else no wait ends, so that all can be judged a second time.
    wait_seconds: u32,
}

const SHORT: Size = Size { entities: 12, numbers: 20, kills: 5, wait_seconds: 3 };
const LONG: Size = Size { entities: 200, numbers: 60, kills: 100, wait_seconds: 60 };
const PRODUCERS: usize = 6;
/// So few that it is met: behind each number that is left out, and by what travels far.
const WAITING_MAX: usize = 3;
/// Those who take `build` together, each by the mode of its name, and the only one that takes `done`.
const TOGETHER: [&str; 3] = ["strict", "lenient", "reorder"];
const ALONE: &str = "deploy";
/// What is under way when a node is killed, at least.
const CUT_MIN: usize = 3;
/// How often producers send the same of further entities until the last kill, which bounds what is to be handed over however
/// long the kills take. After that they repeat themselves.
const ROUNDS_MAX: u64 = 4;

/// How long all of it may take on a busy machine.
fn patience() -> Duration {
    Duration::from_secs(if is_long() { 1800 } else { 300 })
}

/// An event: its entity and number.
type Numbered = (u64, i64);

/// What is sent, in the order in which it is: nearly in order, with repeats, and with some left out.
fn plan(size: &Size, choices: &mut Choices) -> Vec<Numbered> {
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
    sent.into_iter().map(|(_, it)| it).collect()
}

/// What was left out of the plan: it comes last, lowest first, so that nothing waits any more.
fn left_out(size: &Size, sent: &[Numbered]) -> Vec<Numbered> {
    let sent: BTreeSet<_> = sent.iter().copied().collect();
    let all = (0..size.entities).flat_map(|entity| (0..size.numbers).map(move |number| (entity, number)));
    all.filter(|it| !sent.contains(it)).collect()
}

/// First hand-overs of each queue, in their order, by their deliveries.
type HandedOver = BTreeMap<&'static str, Vec<(i64, Numbered)>>;

/// Where a node is at the moment.
#[derive(Clone)]
struct Life {
    url: String,
    token: String,
    clients: Arc<BTreeMap<&'static str, Client>>,
}

/// Where all nodes are.
#[derive(Clone)]
struct Lives(Vec<watch::Receiver<Life>>);

impl Lives {
    /// Where one of them is; each has its turn.
    fn at(&self, turn: usize) -> Life {
        self.0[turn % self.0.len()].borrow().clone()
    }
}

impl Builds {
    async fn life(&self, node: &Node) -> Life {
        let queues = TOGETHER.into_iter().chain([ALONE]);
        let client = |queue: &str| node.client(&self.subscribers[queue]);
        let clients = Arc::new(queues.map(|queue| (queue, client(queue))).collect());
        Life { url: node.url().to_owned(), token: node.token(&self.ci).await, clients }
    }

    async fn subscribe_all(&self, wait_seconds: u32) {
        let by = TOGETHER.map(|queue| (queue, "build", queue)).into_iter().chain([(ALONE, "done", "strict")]);
        for (queue, name, mode) in by {
            let of = order(json!({ "mode": mode, "wait_seconds": wait_seconds, "waiting_max": WAITING_MAX }));
            let (status, answer) = self.subscribe(queue, name, &of, json!({ "receives_max": 1000 })).await;
            assert_eq!(status, 201, "{answer}");
        }
    }
}

fn id(name: &str, (entity, number): Numbered) -> String {
    format!("{name}-{entity}-{number}")
}

fn numbered(id: &str) -> Numbered {
    let mut parts = id.split('-').skip(1);
    (parts.next().unwrap().parse().unwrap(), parts.next().unwrap().parse().unwrap())
}

/// What producers have under way, and what was cut off.
struct Traffic {
    http: reqwest::Client,
    /// How long an answer may take before its request is sent again.
    answer_max: Duration,
    under_way: AtomicUsize,
    /// Requests that were sent, and had no answer because the node was gone.
    cut: AtomicUsize,
    /// Whether the last kill is over.
    is_calm: AtomicBool,
}

impl Traffic {
    fn new(kills: usize) -> Arc<Self> {
        // A connection for each request: one that is kept fails for a kill that met nothing on its way.
        let http = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
        // A node that lives has judged what it answers late, and would call it a duplicate the second time.
        let answer_max = if kills == 0 { patience() } else { Duration::from_secs(20) };
        let (under_way, cut) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { http, answer_max, under_way, cut, is_calm: AtomicBool::new(kills == 0) })
    }
}

/// Sends one until it is answered, and says how.
async fn send(lives: &Lives, traffic: &Traffic, name: &str, it: Numbered) -> (u16, Value) {
    let event = json!({
        "eventId": id(name, it), "eventType": name,
        "data": { "buildId": it.0.to_string(), "eventSequence": it.1 },
    });
    for turn in it.1.unsigned_abs() as usize.. {
        let Life { url, token, .. } = lives.at(turn);
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

/// How both events of a number were answered: the one for several, and the one for one only.
struct Answers {
    it: Numbered,
    build: Value,
    done: (u16, Value),
}

/// Sends all of its part, and then the same of other entities, until nobody is killed any more.
async fn produce(lives: Lives, mine: Vec<Numbered>, entities: u64, traffic: Arc<Traffic>) -> Vec<Answers> {
    let mut answers = Vec::new();
    for round in 0.. {
        for (entity, number) in &mine {
            if round > 0 {
                if traffic.is_calm.load(Ordering::SeqCst) {
                    return answers;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let it = (entity + round.min(ROUNDS_MAX) * entities, *number);
            let send = |name| send(&lives, &traffic, name, it);
            let ((status, build), done) = tokio::join!(send("build"), send("done"));
            assert_ne!(status, 409, "lenient order takes all: {build}");
            answers.push(Answers { it, build, done });
        }
        if traffic.is_calm.load(Ordering::SeqCst) {
            break;
        }
    }
    answers
}

/// Takes what comes, and notes what was not seen before. One that is not acknowledged comes again.
async fn consume(
    queue: &'static str,
    lives: Lives,
    handed: Arc<Mutex<HandedOver>>,
    over: Arc<AtomicBool>,
    firsts: Arc<AtomicUsize>,
    mut choices: Choices,
) {
    let mut seen = BTreeSet::new();
    for turn in 0.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let Life { clients, .. } = lives.at(turn);
        let client = &clients[queue];
        let received = client.receive(queue, 10, Duration::from_secs(1), Duration::from_millis(200)).await;
        let Ok(deliveries) = received else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        for delivery in &deliveries {
            let it = numbered(delivery.message.id().unwrap());
            if seen.insert(it) {
                firsts.fetch_add(usize::from(delivery.attempt == 1), Ordering::Relaxed);
                let new = (delivery.delivery_id.0, it);
                handed.lock().unwrap().entry(queue).or_default().push(new);
            }
        }
        if !choices.once_in(10) {
            let receipts: Vec<_> = deliveries.iter().map(Delivery::receipt).collect();
            let _ = client.acknowledge(queue, &receipts).await;
        }
    }
}

/// What became of it all.
struct Run {
    builds: Builds,
    all: BTreeSet<Numbered>,
    answers: Vec<Answers>,
    handed: HandedOver,
    refused: DeadLetters,
    cut: usize,
    /// What the nodes wrote to their logs.
    said: String,
}

/// Each gap is a line of the log.
fn launch() -> Launch {
    Launch::default().set("LOG_FILTER", "warn,snavio::order=info")
}

async fn run(what: &str, kills: usize, size: &Size) -> Run {
    run_on(Builds::set(launch()).await, false, what, kills, size).await
}

/// On the node that there is, and on another one of the same store where that is asked for.
async fn run_on(mut builds: Builds, has_other: bool, what: &str, kills: usize, size: &Size) -> Run {
    let mut choices = Choices::new(what);
    let wait_seconds = if kills == 0 { bounds::ORDER_WAIT_SECONDS_MAX } else { size.wait_seconds };
    builds.subscribe_all(wait_seconds).await;
    let sent = plan(size, &mut choices);
    let mut other = has_other.then(|| Node::over(builds.node.engine().database(), &builds.launch));
    let mut channels = vec![watch::channel(builds.life(&builds.node).await)];
    if let Some(other) = &other {
        channels.push(watch::channel(builds.life(other).await));
    }
    let (told, lives): (Vec<_>, Vec<_>) = channels.into_iter().unzip();
    let lives = Lives(lives);
    let (handed, over) = (Arc::new(Mutex::new(HandedOver::new())), Arc::new(AtomicBool::new(false)));
    let firsts = Arc::new(AtomicUsize::new(0));
    let mut consumers = JoinSet::new();
    for queue in TOGETHER.into_iter().chain([ALONE]) {
        let (handed, over) = (Arc::clone(&handed), Arc::clone(&over));
        consumers.spawn(consume(queue, lives.clone(), handed, over, Arc::clone(&firsts), choices.split()));
    }
    let (mut producers, traffic) = (JoinSet::new(), Traffic::new(kills));
    for place in 0..PRODUCERS {
        let mine = sent.iter().skip(place).step_by(PRODUCERS).copied().collect();
        producers.spawn(produce(lives.clone(), mine, size.entities, Arc::clone(&traffic)));
    }
    for kill in 0..kills {
        tokio::time::sleep(Duration::from_millis(100 + choices.below(300))).await;
        eventually("much is under way", async || {
            let ended = producers.try_join_next().map(Result::unwrap);
            assert!(ended.is_none(), "a producer ended before the last kill");
            (traffic.under_way.load(Ordering::SeqCst) >= CUT_MIN).then_some(())
        })
        .await;
        let victim = kill % told.len();
        let launch = builds.launch.clone();
        let node = if victim == 0 { &mut builds.node } else { other.as_mut().expect("there are two") };
        node.kill();
        node.restart(&launch);
        let node = if victim == 0 { &builds.node } else { other.as_ref().expect("there are two") };
        told[victim].send_replace(builds.life(node).await);
    }
    traffic.is_calm.store(true, Ordering::SeqCst);
    let answers = timeout(patience(), producers.join_all()).await.expect("all is answered");
    let mut answers: Vec<_> = answers.into_iter().flatten().collect();
    if kills == 0 {
        let rest = produce(lives, left_out(size, &sent), size.entities, Arc::clone(&traffic));
        answers.extend(timeout(patience(), rest).await.expect("the rest is answered"));
    }
    let all: BTreeSet<_> = answers.iter().map(|it| it.it).collect();
    let alone = refused_alone(&answers).len();
    let refused = within(patience(), "all are handed over or refused", async || {
        let ended = consumers.try_join_next().map(Result::unwrap);
        assert!(ended.is_none(), "a consumer ended before all came");
        let refused = dead_letters(&builds).await;
        let handed = handed.lock().unwrap();
        let count = |queue: &str| handed.get(queue).map_or(0, Vec::len);
        let is_all = |queue: &&str| count(queue) + refused.get(*queue).map_or(0, Vec::len) >= all.len();
        (TOGETHER.iter().all(is_all) && count(ALONE) + alone >= all.len()).then_some(refused)
    })
    .await;
    over.store(true, Ordering::Relaxed);
    timeout(patience(), consumers.join_all()).await.expect("consumers end");
    let handed = handed.lock().unwrap().clone();
    let cut = traffic.cut.load(Ordering::SeqCst);
    let said = other.iter().map(Node::said).fold(builds.node.said(), |said, other| said + &other);
    let (noted, firsts) = (handed.values().map(Vec::len).sum::<usize>(), firsts.load(Ordering::Relaxed));
    println!(
        "{what}: {} events for each of 4 queues, {noted} hand-overs, {firsts} noted at their first, {} late of strict, {cut} \
         requests cut by {kills} kills",
        all.len(),
        refused.get("strict").map_or(0, Vec::len),
    );
    Run { builds, all, answers, handed, refused, cut, said }
}

/// What the only subscription to its type refused.
fn refused_alone(answers: &[Answers]) -> BTreeSet<Numbered> {
    answers.iter().filter(|it| it.done.0 == 409).map(|it| it.it).collect()
}

/// What was refused at each subscription, by the deliveries that it would have had.
type DeadLetters = BTreeMap<String, Vec<(i64, Numbered)>>;

async fn dead_letters(builds: &Builds) -> DeadLetters {
    let (mut all, mut after) = (DeadLetters::new(), 0);
    loop {
        let page = builds.node.get(&format!("/v1/dead-letters?tenant=acme&after={after}&limit=1000")).await;
        let items = page["items"].as_array().cloned().unwrap_or_default();
        let Some(last) = items.last() else { return all };
        after = last["id"].as_i64().unwrap();
        for it in &items {
            assert_eq!(it["reason"], json!("out_of_order"), "{it}");
            let queue = it["route"].as_str().unwrap().split(['/', ':']).nth(1).unwrap();
            let refused = (it["id"].as_i64().unwrap(), numbered(it["message_id"].as_str().unwrap()));
            all.entry(queue.to_owned()).or_default().push(refused);
        }
    }
}

/// Strict and reorder never hand over a lower number after a higher one; nothing is lost in any mode, and nothing is refused
/// that is not late.
fn check(run: &Run) {
    let mut refused = run.refused.clone();
    for queue in TOGETHER {
        let refused = refused.entry(queue.to_owned()).or_default();
        check_handed(queue, run, &refused.iter().map(|(_, it)| *it).collect());
        check_judged(queue, &run.handed[queue], refused);
        assert!(queue != "lenient" || refused.is_empty());
    }
    let (strict, reorder) = (refused["strict"].len(), refused["reorder"].len());
    assert!(strict > 0, "nothing came late: the plan is too tame");
    assert!(reorder < strict, "waiting saved nothing: {reorder} of {strict}");

    let refused = refused_alone(&run.answers);
    assert!(!refused.is_empty(), "nothing came late: the plan is too tame");
    check_handed(ALONE, run, &refused);
    let handed: BTreeSet<_> = run.handed[ALONE].iter().map(|(_, it)| *it).collect();
    for Answers { it, done: (_, answer), .. } in run.answers.iter().filter(|it| it.done.0 == 409) {
        assert_eq!((&answer["reason"], &answer["number"]), (&json!("out_of_order"), &json!(it.1)));
        let last = answer["last"].as_i64().unwrap();
        assert!(it.1 < last && handed.contains(&(it.0, last)), "{answer} of what is not late");
    }
}

fn check_handed(queue: &str, run: &Run, refused: &BTreeSet<Numbered>) {
    let mut last: BTreeMap<u64, i64> = BTreeMap::new();
    for (_, (entity, number)) in &run.handed[queue] {
        let before = last.insert(*entity, *number);
        let in_order = before.is_none_or(|before| before < *number);
        assert!(in_order || queue == "lenient", "{queue}: {number} of {entity} after {before:?}");
    }
    let handed: BTreeSet<_> = run.handed[queue].iter().map(|(_, it)| *it).collect();
    assert!(handed.is_disjoint(refused), "{queue}: what was refused is not handed over");
    let ended: BTreeSet<_> = handed.union(refused).copied().collect();
    assert_eq!(ended, run.all, "{queue}: each is handed over or refused");
}

/// As the store judged them, which is in the order of their deliveries: what is refused is below one that was taken before
/// it, and in strict order nothing else is.
fn check_judged(queue: &str, handed: &[(i64, Numbered)], refused: &[(i64, Numbered)]) {
    let taken = handed.iter().map(|(delivery, it)| (*delivery, *it, true));
    let mut judged: Vec<_> =
        taken.chain(refused.iter().map(|(delivery, it)| (*delivery, *it, false))).collect();
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

/// What ORD-3 and ORD-4 say of one entity, as long as no wait ends.
#[derive(Default)]
struct Told {
    last: Option<i64>,
    waiting: BTreeSet<i64>,
}

/// What is counted of a subscription.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    late: u32,
    gaps: u32,
    /// How often more waited than may.
    overflows: u32,
}

impl Told {
    fn judge(&mut self, mode: &str, number: i64, counted: &mut Counted) -> &'static str {
        match self.last {
            Some(last) if number <= last => {
                counted.late += 1;
                return if mode == "lenient" { "accepted" } else { "dead_letter" };
            }
            Some(last) if number > last + 1 && mode == "reorder" => {}
            _ => {
                self.go_on(number, counted);
                return "accepted";
            }
        }
        self.waiting.insert(number);
        if self.waiting.len() > WAITING_MAX {
            counted.overflows += 1;
            let lowest = self.waiting.pop_first().unwrap();
            self.go_on(lowest, counted);
        }
        if self.waiting.contains(&number) { "waiting" } else { "accepted" }
    }

    /// Goes on to a number, and to what waits right behind it.
    fn go_on(&mut self, number: i64, counted: &mut Counted) {
        counted.gaps += u32::from(self.last.is_some_and(|last| number > last + 1));
        self.last = Some(number);
        if self.waiting.remove(&(number + 1)) {
            self.go_on(number + 1, counted);
        }
    }
}

/// Judges all answers of a subscription anew, in the order in which the store did, and compares each word.
fn compare(queue: &str, run: &Run) -> Counted {
    let of_queue = |it: &Answers| {
        let each = it.build["subscriptions"].as_array()?;
        let of = each.iter().find(|it| it["destination"].as_str().unwrap().contains(queue))?;
        Some((of["delivery_id"].as_i64()?, it.it, of["verdict"].as_str()?.to_owned()))
    };
    let mut judged: Vec<_> = run.answers.iter().filter_map(of_queue).collect();
    judged.sort_unstable();
    assert_eq!(judged.len(), run.all.len(), "{queue}: each was judged once");
    let (mut told, mut counted) = (BTreeMap::<u64, Told>::new(), Counted::default());
    for (_, (entity, number), verdict) in judged {
        let word = told.entry(entity).or_default().judge(queue, number, &mut counted);
        assert_eq!(verdict, word, "{queue}: {number} of {entity}");
    }
    assert!(told.values().all(|it| it.waiting.is_empty()), "{queue}: all that was missing came");
    counted
}

/// ORD-3, ORD-4, ORD-8: permutations, repeats, losses and racing producers.
#[tokio::test(flavor = "multi_thread")]
async fn order_is_kept_whatever_comes_in_which_order() {
    let run = run("ordering", 0, if is_long() { &LONG } else { &SHORT }).await;
    check(&run);
    outlived::check(&run).await;
    let counts = async |what: &str, queue: &str, name: &str, count: u32| {
        let series = format!(r#"{what}{{route="acme/{queue}:acme/ci:{name}"}}"#);
        eventually(&format!("{count} of {series}"), async || {
            metric(&run.builds.node, &series).await.filter(|it| *it == f64::from(count))
        })
        .await;
    };
    let late = run.answers.iter().filter(|it| it.done.0 == 409).count();
    counts("event_order_violations_total", ALONE, "done", u32::try_from(late).unwrap()).await;
    for queue in TOGETHER {
        let counted = compare(queue, &run);
        counts("event_order_violations_total", queue, "build", counted.late).await;
        counts("event_sequence_gaps_total", queue, "build", counted.gaps).await;
        assert_eq!(counted.overflows > 0, queue == "reorder", "as many waited as may, and one more");
    }
}

/// ORD-2, ORD-3, QUA-1
#[tokio::test(flavor = "multi_thread")]
async fn order_is_kept_over_kills_of_the_node() {
    let size = if is_long() { LONG } else { SHORT };
    let run = run("ordering over kills", size.kills, &size).await;
    check(&run);
    outlived::check(&run).await;
    assert!(run.cut > 0, "no kill met a request on its way");
}

/// ORD-2, ORD-3, ENG-7: all of it through two nodes of one database, each of which is killed in turn.
#[tokio::test(flavor = "multi_thread")]
async fn order_is_kept_over_kills_of_either_node() {
    let size = if is_long() { LONG } else { SHORT };
    let builds = Builds::on(Node::over(&Database::new(), &launch()), launch()).await;
    let run = run_on(builds, true, "ordering over two nodes", size.kills, &size).await;
    check(&run);
    outlived::check(&run).await;
    assert!(run.cut > 0, "no kill met a request on its way");
}
