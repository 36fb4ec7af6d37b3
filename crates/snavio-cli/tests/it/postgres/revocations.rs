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

/// REG-12, LIM-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ban_set_through_one_node_stops_the_other() {
    let database = Database::new();
    let one = Node::over(&database, &Launch::default());
    let cast = one.cast().await;
    let other = Node::over(&database, &Launch::default());
    let billing = other.client(&cast.billing);
    let ban = json!({ "reason": "floods" });
    one.operator().call(Method::PUT, "/v1/bans/acme/billing", Some(&ban)).await.unwrap();
    eventually("the other node refuses", async || {
        let (status, answer) = post(&billing, Draft::new("pay", &new_id()).sign(&cast.billing)).await;
        (status == 403 && answer["reason"] == "banned").then_some(())
    })
    .await;
}
