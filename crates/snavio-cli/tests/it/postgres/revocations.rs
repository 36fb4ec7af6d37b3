//! Two real nodes over one database: what is taken back through one stops the other, and what slipped through is told
//! of (REG-12, REG-15, REG-17).

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::engine::Database;
use crate::node::{Draft, Launch, Node, new_id, post};
use crate::patience::eventually;

/// REG-15, REG-17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_one_node_takes_back_stops_the_other_and_what_slipped_through_is_told_once() {
    let database = Database::new();
    let one = Node::over(&database, &Launch::default());
    let cast = one.cast().await;
    let other = Node::over(&database, &Launch::default());
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
    println!(
        "a grant taken back elsewhere acted after {:?}; {slipped} commands slipped through",
        revoked.elapsed()
    );
    assert_eq!(refusal["reason"], "acl-deny", "{refusal}");

    // However fast this machine sends: every page, as the records of what slipped through lie behind all others.
    let told = async || -> Vec<Value> {
        let (mut records, mut after) = (Vec::new(), 0);
        loop {
            let late = "snavio.command.executed_after_acl_revoked";
            let page =
                one.get(&format!("/v1/telemetry?tenant=acme&limit=1000&type={late}&after={after}")).await;
            records.extend(page["items"].as_array().unwrap().iter().cloned());
            let next = page["next"].as_i64().unwrap();
            if next == after {
                return records;
            }
            after = next;
        }
    };
    if slipped > 0 {
        eventually("what slipped through is told of", async || (told().await.len() == slipped).then_some(()))
            .await;
    }
    // A while in which both nodes audit again.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let told = told().await;
    assert_eq!(told.len(), slipped, "each once: {told:?}");
    for record in &told {
        assert!(record["stale_duration_seconds"].as_f64().unwrap() <= 5.0, "{record}");
        assert_eq!(record["revoked"], "grant", "{record}");
    }
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
