//! Clients that close their connections while their statements wait in the database (QUA-1): the node must
//! recover.

use std::time::Duration;

use snavio_testbed::Postgres;

use crate::engine::Database;
use crate::node::{Draft, Launch, Node, drain, new_id, post};
use crate::patience::eventually;
use crate::raw_wire::{Wire, head, json_request};

/// All connections of a node: two for batches, two for its membership, and four that readers share.
const CONNECTIONS: usize = 8;
const SHARED: usize = 4;
const BATCHES: usize = 2;
const ROUNDS: usize = 3;
/// The number of clients of each kind in a round.
const CLIENTS: usize = 12;
/// The longest time for an answer after the lock is released.
const AT_ONCE: Duration = Duration::from_secs(8);

/// Sessions of the node that wait for another session's lock.
const HANGING: &str = "application_name = 'snavio' AND wait_event_type = 'Lock'";

fn limit_connections() -> Launch {
    Launch::default().set("STORE_CONNECTIONS_MAX", CONNECTIONS).set("STORE_BATCHES_AT_ONCE", BATCHES)
}

/// A session that locks a table exclusively until it is dropped.
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

    /// The number of sessions of the database that match a condition.
    fn sessions(&self, condition: &str) -> usize {
        let count = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND {condition}"
        );
        self.database.ask(&count).parse().unwrap()
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        let end = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND wait_event = 'PgSleep'";
        self.database.ask(end);
        // The session reports its cancelled sleep as an error.
        let _ = self.holding.take().map(std::thread::JoinHandle::join);
    }
}

/// QUA-1, PIP-4, DLV-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_recovers_at_once_after_clients_leave_during_statements() {
    let (database, launch) = (Database::new(), limit_connections());
    let node = Node::over(&database, &launch);
    let cast = node.cast().await;
    let (billing, bot) = (node.client(&cast.billing), node.client(&cast.bot));
    let tokens = (node.token(&cast.billing).await, node.token(&cast.bot).await);
    let (mut accepted, mut unanswered) = (Vec::new(), Vec::new());
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
            unanswered.push(draft);
        }
        let busy = SHARED + BATCHES;
        eventually("all connections hang", async || (lock.sessions(HANGING) >= busy).then_some(())).await;
        drop(wires);
        // Give the node time to notice that the clients left.
        tokio::time::sleep(Duration::from_millis(500)).await;
        drop(lock);
        let draft = Draft::new("pay", &new_id());
        let answered = tokio::time::timeout(AT_ONCE, post(&billing, draft.sign(&cast.billing))).await;
        let (status, answer) = answered.expect("a message is answered at once");
        assert_eq!(status, 202, "{answer}: {}", node.said());
        accepted.push(draft);
    }

    // Leases that reached no client end long before their visibility timeout.
    let mut delivered: Vec<String> = Vec::new();
    eventually("every accepted message is received", async || {
        let received = drain(&bot, "pay-inbox").await;
        delivered.extend(received.iter().map(|delivery| delivery.message.id().unwrap().to_owned()));
        accepted.iter().all(|draft| delivered.contains(&draft.id)).then_some(())
    })
    .await;
    let mut accepted_unanswered = 0;
    for draft in &unanswered {
        let (status, answer) = post(&billing, draft.sign(&cast.billing)).await;
        let is_duplicate = answer["duplicate"] == true;
        assert_eq!(status, if is_duplicate { 200 } else { 202 }, "{answer}");
        accepted_unanswered += usize::from(is_duplicate);
    }
    let rest = drain(&bot, "pay-inbox").await;
    delivered.extend(rest.iter().map(|delivery| delivery.message.id().unwrap().to_owned()));
    delivered.sort();
    let all = delivered.len();
    delivered.dedup();
    assert_eq!(all, delivered.len(), "nothing is delivered twice");
    assert_eq!(all, accepted.len() + unanswered.len(), "nothing is lost");
    assert!(accepted_unanswered > 0, "no client closed its connection after its message was stored");
    println!("{accepted_unanswered} of {} messages of senders that left were accepted", unanswered.len());
}

/// QUA-1: the node does not reuse a connection whose client left while its statement still runs. The next
/// client would wait for the answer to that statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_does_not_wait_behind_statements_of_gone_clients() {
    let (database, launch) = (Database::new(), limit_connections());
    let node = Node::over(&database, &launch);
    let token = node.token(&node.cast().await.bot).await;
    let lock = Lock::on(&database, "delivery").await;
    let mut wires: Vec<_> = (0..SHARED).map(|_| Wire::to(&node)).collect();
    for wire in &mut wires {
        assert!(wire.send(head("GET /v1/queues/pay-inbox", &token, &[])));
    }
    eventually("all connections hang", async || (lock.sessions(HANGING) >= SHARED).then_some(())).await;
    drop(wires);
    let page = tokio::time::timeout(AT_ONCE, node.get("/v1/dead-letters?tenant=acme")).await;
    assert_eq!(page.expect("another table is read at once")["items"], serde_json::json!([]));
}

/// QUA-1, ENG-3: the number of a node's sessions stays within its limit, however many clients leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gone_clients_do_not_exceed_connection_limit() {
    let (database, launch) = (Database::new(), limit_connections());
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
