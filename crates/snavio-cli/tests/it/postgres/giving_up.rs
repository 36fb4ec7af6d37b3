//! Clients that give up while the database keeps their statements waiting (QUA-1: the node stays well, whoever left).

use std::time::Duration;

use snavio_testbed::Postgres;

use crate::engine::Database;
use crate::node::{Draft, Launch, Node, drain, new_id, post};
use crate::patience::eventually;
use crate::raw_wire::{Wire, head, json_request};

/// All of a node: two for batches, two for what keeps it a member, and those that readers share.
const CONNECTIONS: usize = 8;
const SHARED: usize = 4;
const BATCHES: usize = 2;
const ROUNDS: usize = 3;
/// Clients of each kind in a round.
const CLIENTS: usize = 12;
/// What a node may take to answer once nothing is in its way.
const AT_ONCE: Duration = Duration::from_secs(8);

/// Sessions of the node that wait for somebody's lock.
const HANGING: &str = "application_name = 'snavio' AND wait_event_type = 'Lock'";

fn few_connections() -> Launch {
    Launch::default().set("STORE_CONNECTIONS_MAX", CONNECTIONS).set("STORE_BATCHES_AT_ONCE", BATCHES)
}

/// A session that keeps everybody else from a table until it is dropped.
struct Lock<'a> {
    database: &'a Database,
    holding: Option<std::thread::JoinHandle<std::io::Result<String>>>,
}

impl<'a> Lock<'a> {
    async fn on(database: &'a Database, table: &str) -> Self {
        let hold = format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(60)");
        let url = database.url.clone();
        let holding = Some(std::thread::spawn(move || Postgres::shared().ask(&url, &hold)));
        let lock = Self { database, holding };
        eventually("the lock is held", async || (lock.sessions("wait_event = 'PgSleep'") == 1).then_some(()))
            .await;
        lock
    }

    /// How many sessions of the database are as described.
    fn sessions(&self, which: &str) -> usize {
        let count =
            format!("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND {which}");
        self.database.ask(&count).parse().unwrap()
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        let end = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND wait_event = 'PgSleep'";
        self.database.ask(end);
        // Its sleep was cut short, which it takes for a failure.
        let _ = self.holding.take().map(std::thread::JoinHandle::join);
    }
}

/// QUA-1, PIP-4, DLV-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_clients_gave_up_in_the_middle_of_statements_goes_on_at_once() {
    let (database, launch) = (Database::new(), few_connections());
    let node = Node::over(&database, &launch);
    let cast = node.cast().await;
    let (billing, bot) = (node.client(&cast.billing), node.client(&cast.bot));
    let tokens = (node.token(&cast.billing).await, node.token(&cast.bot).await);
    let (mut accepted, mut unsure) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let draft = Draft::new("pay", &new_id());
        assert_eq!(post(&billing, draft.sign(&cast.billing)).await.0, 202);
        accepted.push(draft);
    }

    for _ in 0..ROUNDS {
        let lock = Lock::on(&database, "delivery").await;
        let mut wires = Vec::new();
        for _ in 0..CLIENTS {
            let draft = Draft::new("pay", &new_id());
            let send = json_request("/v1/commands", &tokens.0, &draft.sign(&cast.billing));
            let receive = br#"{"max":10,"visibility_seconds":600}"#;
            let receive = json_request("/v1/queues/pay-inbox/receive", &tokens.1, receive);
            let look = head("GET /v1/queues/pay-inbox", &tokens.1, &[]).into_bytes();
            for request in [send, receive, look] {
                let mut wire = Wire::to(&node);
                assert!(wire.send(request));
                wires.push(wire);
            }
            unsure.push(draft);
        }
        let busy = SHARED + BATCHES;
        eventually("all connections hang", async || (lock.sessions(HANGING) >= busy).then_some(())).await;
        drop(wires);
        // Long enough for the node to notice that they left.
        tokio::time::sleep(Duration::from_millis(500)).await;
        drop(lock);
        let draft = Draft::new("pay", &new_id());
        let answered = tokio::time::timeout(AT_ONCE, post(&billing, draft.sign(&cast.billing))).await;
        let (status, answer) = answered.expect("a message is answered at once");
        assert_eq!(status, 202, "{answer}: {}", node.said());
        accepted.push(draft);
    }

    // What was handed to nobody is there again long before its lease would have ended.
    let mut delivered: Vec<String> = Vec::new();
    eventually("everything that was acknowledged is received", async || {
        let some = drain(&bot, "pay-inbox").await;
        delivered.extend(some.iter().map(|it| it.message.id().unwrap().to_owned()));
        accepted.iter().all(|draft| delivered.contains(&draft.id)).then_some(())
    })
    .await;
    let mut there = 0;
    for draft in &unsure {
        let (status, answer) = post(&billing, draft.sign(&cast.billing)).await;
        let known = answer["duplicate"] == true;
        assert_eq!(status, if known { 200 } else { 202 }, "{answer}");
        there += usize::from(known);
    }
    let rest = drain(&bot, "pay-inbox").await;
    delivered.extend(rest.iter().map(|it| it.message.id().unwrap().to_owned()));
    delivered.sort();
    let all = delivered.len();
    delivered.dedup();
    assert_eq!(all, delivered.len(), "nothing is delivered twice");
    assert_eq!(all, accepted.len() + unsure.len(), "nothing is lost");
    assert!(there > 0, "nobody gave up late enough");
    println!("giving up: {there} of {} messages whose senders left were taken", unsure.len());
}

/// QUA-1: a connection whose client left is not handed to the next one, who would wait for another's answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_something_else_does_not_wait_behind_those_who_gave_up() {
    let (database, launch) = (Database::new(), few_connections());
    let node = Node::over(&database, &launch);
    let token = node.token(&node.cast().await.bot).await;
    let lock = Lock::on(&database, "delivery").await;
    let mut wires: Vec<_> = (0..SHARED).map(|_| Wire::to(&node)).collect();
    for wire in &mut wires {
        assert!(wire.send(head("GET /v1/queues/pay-inbox", &token, &[])));
    }
    eventually("all connections hang", async || (lock.sessions(HANGING) >= SHARED).then_some(())).await;
    drop(wires);
    let asked = tokio::time::timeout(AT_ONCE, node.get("/v1/dead-letters?tenant=acme")).await;
    assert_eq!(asked.expect("another table is read at once")["items"], serde_json::json!([]));
}

/// QUA-1, ENG-3: however many give up, the server has no more sessions of a node than it may have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_give_up_cannot_make_a_node_pass_its_connections() {
    let (database, launch) = (Database::new(), few_connections());
    let node = Node::over(&database, &launch);
    let token = node.token(&node.cast().await.bot).await;
    let lock = Lock::on(&database, "delivery").await;
    for _ in 0..100 {
        let mut wire = Wire::to(&node);
        assert!(wire.send(head("GET /v1/queues/pay-inbox", &token, &[])));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let sessions = lock.sessions("application_name = 'snavio'");
    assert!(sessions <= CONNECTIONS, "{sessions} sessions, where {CONNECTIONS} are allowed");
}

/// TEL-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clean_stop_waits_for_telemetry_that_is_being_written() {
    let database = Database::new();
    let mut node = Node::over(&database, &Launch::default());
    let cast = node.cast().await;
    let draft = Draft::new("lost", &new_id());
    let lock = Lock::on(&database, "telemetry").await;
    assert_eq!(post(&node.client(&cast.billing), draft.sign(&cast.billing)).await.0, 404);
    eventually("a write waits for the lock", async || (lock.sessions(HANGING) > 0).then_some(())).await;
    node.signal("TERM");
    // Longer than a node without requests needs to end its tasks.
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(lock);
    eventually("the node's end", async || node.ended()).await;
    let records = format!("SELECT count(*) FROM telemetry WHERE body LIKE '%{}%'", draft.id);
    assert_eq!(database.ask(&records), "1");
}
