//! Two nodes over one database: a revocation on one node stops the other, and commands that were accepted
//! after it are reported (REG-12, REG-15, REG-17).

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use snavio_testbed::Postgres;

use crate::engine::Database;
use crate::node::{Cast, Draft, Launch, Node, new_id, post};
use crate::patience::{eventually, within};

const LATE: &str = "snavio.command.executed_after_acl_revoked";

/// Revokes a grant on one node and sends to the other until it refuses. Returns the number of commands
/// accepted meanwhile.
async fn revoke_and_count_late(one: &Node, other: &Node, cast: &Cast) -> usize {
    let billing = other.client(&cast.billing);
    let send = async || post(&billing, Draft::new("pay", &new_id()).sign(&cast.billing)).await;
    assert_eq!(send().await.0, 202);
    let grant = "/v1/grants?source=acme/billing&target=acme/bot&name=pay";
    one.operator().call(Method::DELETE, grant, None).await.unwrap();
    let revoked = tokio::time::Instant::now();
    let mut late = 0;
    let refusal = loop {
        match send().await {
            (202, _) => late += 1,
            (_, answer) => break answer,
        }
    };
    let after = revoked.elapsed();
    println!("a grant that another node revoked acted after {after:?}; {late} late commands");
    assert_eq!(refusal["reason"], "acl-deny", "{refusal}");
    late
}

/// The records about late commands. Reads every page, because these records come after all others of the
/// tenant.
async fn late_records(node: &Node) -> Vec<Value> {
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
async fn revoked_grant_stops_other_node_and_late_commands_are_recorded() {
    let database = Database::new();
    let one = Node::over(&database, &Launch::default());
    let cast = one.cast().await;
    let other = Node::over(&database, &Launch::default());
    let late = revoke_and_count_late(&one, &other, &cast).await;
    if late > 0 {
        eventually("every late command is recorded", async || {
            (late_records(&one).await.len() == late).then_some(())
        })
        .await;
    }
    // Give both nodes time to audit again.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let late_records = late_records(&one).await;
    assert_eq!(late_records.len(), late, "each late command has one record: {late_records:?}");
    for record in &late_records {
        assert!(record["stale_duration_seconds"].as_f64().unwrap() <= 5.0, "{record}");
        assert_eq!(record["revoked"], "grant", "{record}");
    }
}

/// REG-17: the nodes are killed while they record late commands, and once more right after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_commands_are_recorded_once_over_crashes() {
    let database = Database::new();
    let mut one = Node::over(&database, &Launch::default());
    let cast = one.cast().await;
    let mut other = Node::over(&database, &Launch::default());
    let mut late = 0;
    while late == 0 {
        // A node may see the change at once, so that no command is late. Then try again.
        late = revoke_and_count_late(&one, &other, &cast).await;
        if late == 0 {
            one.cast().await;
        }
    }
    // Block writes of telemetry, so that the auditing node waits between its note of progress and the
    // records.
    let url = database.url.clone();
    let blocking = std::thread::spawn(move || {
        let block = "BEGIN; LOCK TABLE telemetry IN SHARE MODE; SELECT pg_sleep(120)";
        Postgres::shared().ask(&url, block)
    });
    const IN_THE_MIDDLE: &str = "SELECT count(*) FROM pg_locks AS waits JOIN pg_locks AS wrote USING (pid) \
         WHERE NOT waits.granted AND waits.relation = 'telemetry'::regclass \
         AND wrote.relation = 'note'::regclass AND wrote.mode = 'RowExclusiveLock'";
    within(Duration::from_secs(60), "a node is in the middle of recording", async || {
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
    assert_eq!(late_records(&one).await.len(), 0, "the interrupted records were rolled back");
    within(Duration::from_secs(60), "every late command is recorded", async || {
        (late_records(&one).await.len() == late).then_some(())
    })
    .await;
    let auditor = "SELECT node FROM lease WHERE task = 'auditor'";
    let before = database.ask(auditor);
    one.kill();
    other.kill();
    one.restart(&Launch::default());
    within(Duration::from_secs(60), "another process is the auditor", async || {
        (database.ask(auditor) != before).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(late_records(&one).await.len(), late, "no command is recorded twice");
}

/// The longest time by contract in which a revoked permission may still act on any node. Usually it is a
/// second.
const ACTS_WITHIN: Duration = Duration::from_secs(5);

/// Makes a revoking change on one node, while a producer sends to the other without pause, on a critical
/// route. The other node must accept messages before the change, and refuse them with the given reason within
/// the contract's time.
async fn assert_change_stops_other_node(
    name: &str,
    method: Method,
    path: &str,
    body: Option<Value>,
    reason: &str,
) {
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
    assert_eq!(send().await.0, 202, "{name}: before the change");

    let sending = async {
        let mut accepted = 0;
        let mut last_accepted_at = None;
        loop {
            // Take the time of sending, because a busy machine may delay the answer for long.
            let sent_at = tokio::time::Instant::now();
            match send().await {
                (202, _) => (accepted, last_accepted_at) = (accepted + 1, Some(sent_at)),
                (_, refusal) => return (accepted, refusal, last_accepted_at),
            }
        }
    };
    let changing = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        // Take the time before the request: the change is in force some time after this.
        let asked_at = tokio::time::Instant::now();
        one.operator().call(method, path, body.as_ref()).await.unwrap();
        asked_at
    };
    let both = async { tokio::join!(sending, changing) };
    let ((accepted, refusal, last_accepted_at), asked_at) =
        tokio::time::timeout(Duration::from_secs(60), both).await.expect("the other node refuses in the end");
    let last_accepted_at = last_accepted_at.expect("the other node accepts commands before");
    let after = last_accepted_at.saturating_duration_since(asked_at);
    println!("{name} acted elsewhere after {after:?}; {accepted} commands were accepted until then");
    assert_eq!(refusal["reason"], reason, "{name}: {refusal}");
    assert!(after < ACTS_WITHIN, "{name}: {after:?}");
}

/// REG-15
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_critical_grant_stops_other_node_within_five_seconds() {
    let grant = "/v1/grants?source=acme/billing&target=acme/bot&name=erase";
    assert_change_stops_other_node("a revoked grant", Method::DELETE, grant, None, "acl-deny").await;
}

/// REG-12, REG-15
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_key_stops_other_node_within_five_seconds() {
    let key = "/v1/tenants/acme/services/billing/keys/hmac-v1/revoke";
    let why = Some(json!({ "why": "it was seen" }));
    assert_change_stops_other_node("a revoked key", Method::POST, key, why, "key_expired").await;
}

/// REG-12, REG-15, LIM-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ban_stops_other_node_within_five_seconds() {
    let ban = Some(json!({ "reason": "floods" }));
    assert_change_stops_other_node("a ban", Method::PUT, "/v1/bans/acme/billing", ban, "banned").await;
}
