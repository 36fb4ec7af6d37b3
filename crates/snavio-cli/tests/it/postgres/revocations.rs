//! Two real nodes over one database: what is taken back through one stops the other, and what slipped through is told
//! of (REG-12, REG-15, REG-17).

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use snavio_testbed::Postgres;

use crate::engine::Database;
use crate::node::{Cast, Draft, Launch, Node, new_id, post};
use crate::patience::{eventually, within};

const LATE: &str = "snavio.command.executed_after_acl_revoked";

/// Takes a grant back through one node, sends through the other until that refuses, and says how many came through.
async fn slip_through(one: &Node, other: &Node, cast: &Cast) -> usize {
    let billing = other.client(&cast.billing);
    let send = async || post(&billing, Draft::new("pay", &new_id()).sign(&cast.billing)).await;
    assert_eq!(send().await.0, 202);
    let grant = "/v1/grants?source=acme/billing&target=acme/bot&name=pay";
    one.operator().call(Method::DELETE, grant, None).await.unwrap();
    let revoked = tokio::time::Instant::now();
    let mut slipped = 0;
    let refusal = loop {
        match send().await {
            (202, _) => slipped += 1,
            (_, answer) => break answer,
        }
    };
    let after = revoked.elapsed();
    println!("a grant taken back elsewhere acted after {after:?}; {slipped} commands slipped through");
    assert_eq!(refusal["reason"], "acl-deny", "{refusal}");
    slipped
}

/// What a node tells of as late. Every page: the records lie behind all others, however many this machine sends.
async fn told(node: &Node) -> Vec<Value> {
    let (mut records, mut after) = (Vec::new(), 0);
    loop {
        let page = node.get(&format!("/v1/telemetry?tenant=acme&limit=1000&type={LATE}&after={after}")).await;
        records.extend(page["items"].as_array().unwrap().iter().cloned());
        let next = page["next"].as_i64().unwrap();
        if next == after {
            return records;
        }
        after = next;
    }
}

/// REG-15, REG-17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_one_node_takes_back_stops_the_other_and_what_slipped_through_is_told_once() {
    let database = Database::new();
    let one = Node::over(&database, &Launch::default());
    let cast = one.cast().await;
    let other = Node::over(&database, &Launch::default());
    let slipped = slip_through(&one, &other, &cast).await;
    if slipped > 0 {
        eventually("what slipped through is told of", async || {
            (told(&one).await.len() == slipped).then_some(())
        })
        .await;
    }
    // A while in which both nodes audit again.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let told = told(&one).await;
    assert_eq!(told.len(), slipped, "each once: {told:?}");
    for record in &told {
        assert!(record["stale_duration_seconds"].as_f64().unwrap() <= 5.0, "{record}");
        assert_eq!(record["revoked"], "grant", "{record}");
    }
}

/// REG-17: killed in the middle of the telling, and once more right after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_slipped_through_is_told_once_whoever_crashes_when() {
    let database = Database::new();
    let mut one = Node::over(&database, &Launch::default());
    let cast = one.cast().await;
    let mut other = Node::over(&database, &Launch::default());
    let mut slipped = 0;
    while slipped == 0 {
        // A node may happen to look right after the change; then there is nothing to tell, and the next try.
        slipped = slip_through(&one, &other, &cast).await;
        if slipped == 0 {
            one.cast().await;
        }
    }
    // Nobody can write telemetry: whoever tells is held up between the note that it has told and the records.
    let url = database.url.clone();
    let blocking = std::thread::spawn(move || {
        let block = "BEGIN; LOCK TABLE telemetry IN SHARE MODE; SELECT pg_sleep(120)";
        Postgres::shared().ask(&url, block)
    });
    const IN_THE_MIDDLE: &str = "SELECT count(*) FROM pg_locks AS waits JOIN pg_locks AS wrote USING (pid) \
         WHERE NOT waits.granted AND waits.relation = 'telemetry'::regclass \
         AND wrote.relation = 'note'::regclass AND wrote.mode = 'RowExclusiveLock'";
    within(Duration::from_secs(60), "somebody is in the middle of telling", async || {
        (database.ask(IN_THE_MIDDLE) != "0").then_some(())
    })
    .await;
    one.kill();
    other.kill();
    const UNBLOCK: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE query LIKE '%pg_sleep(120)' AND datname = current_database() AND pid <> pg_backend_pid()";
    assert_eq!(database.ask(UNBLOCK), "t", "the lock was held until now");
    assert!(blocking.join().unwrap().is_err(), "and is gone");

    one.restart(&Launch::default());
    other.restart(&Launch::default());
    assert_eq!(told(&one).await.len(), 0, "nothing of what was begun is there");
    within(Duration::from_secs(60), "all of it is told", async || {
        (told(&one).await.len() == slipped).then_some(())
    })
    .await;
    let auditor = "SELECT node FROM lease WHERE task = 'auditor'";
    let before = database.ask(auditor);
    one.kill();
    other.kill();
    one.restart(&Launch::default());
    within(Duration::from_secs(60), "somebody else audits", async || {
        (database.ask(auditor) != before).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(told(&one).await.len(), slipped, "and nothing again");
}

/// How long what was taken back may still act anywhere, by contract; it is a second as a rule.
const ACTS_WITHIN: Duration = Duration::from_secs(5);

/// Takes something back through one node while another is sent to without a pause, on a critical route. That one must
/// have taken messages before, and refuse them for this reason before the time of the contract is over.
async fn stops_the_other(what: &str, method: Method, path: &str, body: Option<Value>, reason: &str) {
    let database = Database::new();
    let one = Node::over(&database, &Launch::default());
    let cast = one.cast().await;
    let erase = json!({
        "target": "acme/bot", "name": "erase", "queue": "erase-inbox", "dead_letter_queue": "bot-dead",
        "profile": "critical",
    });
    let grant = json!({ "source": "acme/billing", "target": "acme/bot", "name": "erase" });
    one.apply(&json!({ "routes": [erase], "grants": [grant] })).await;
    let other = Node::over(&database, &Launch::default());
    let billing = other.client(&cast.billing);
    let send = async || post(&billing, Draft::new("erase", &new_id()).sign(&cast.billing)).await;
    assert_eq!(send().await.0, 202, "{what}: as long as nothing is taken back");

    let sending = async {
        let mut accepted = 0;
        let mut last_accepted_at = None;
        loop {
            // When it was sent: a busy machine may keep its answer for long.
            let sent_at = tokio::time::Instant::now();
            match send().await {
                (202, _) => (accepted, last_accepted_at) = (accepted + 1, Some(sent_at)),
                (_, refusal) => return (accepted, refusal, last_accepted_at),
            }
        }
    };
    let taking_back = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        // Before it is asked for: it is in force from some moment after this one.
        let asked_at = tokio::time::Instant::now();
        one.operator().call(method, path, body.as_ref()).await.unwrap();
        asked_at
    };
    let both = async { tokio::join!(sending, taking_back) };
    let ((accepted, refusal, last_accepted_at), asked_at) =
        tokio::time::timeout(Duration::from_secs(60), both).await.expect("it is refused at last");
    let last_accepted_at = last_accepted_at.expect("the other node accepts commands before");
    let after = last_accepted_at.saturating_duration_since(asked_at);
    println!("{what} acted elsewhere after {after:?}; {accepted} commands were accepted until then");
    assert_eq!(refusal["reason"], reason, "{what}: {refusal}");
    assert!(after < ACTS_WITHIN, "{what}: {after:?}");
}

/// REG-15
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_on_a_critical_route_that_one_node_takes_back_stops_the_other_within_five_seconds() {
    let grant = "/v1/grants?source=acme/billing&target=acme/bot&name=erase";
    stops_the_other("a grant taken back", Method::DELETE, grant, None, "acl-deny").await;
}

/// REG-12, REG-15
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_one_node_revokes_stops_the_other_within_five_seconds() {
    let key = "/v1/tenants/acme/services/billing/keys/hmac-v1/revoke";
    let why = Some(json!({ "why": "it was seen" }));
    stops_the_other("a revoked key", Method::POST, key, why, "key_expired").await;
}

/// REG-12, REG-15, LIM-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ban_set_through_one_node_stops_the_other_within_five_seconds() {
    let ban = Some(json!({ "reason": "floods" }));
    stops_the_other("a ban", Method::PUT, "/v1/bans/acme/billing", ban, "banned").await;
}
