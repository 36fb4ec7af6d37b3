//! Log lines of a node during an outage of its database (TEL-8).

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use snavio_testbed::Postgres;

use crate::engine::Database;
use crate::node::{Draft, Launch, Node, new_id, post};
use crate::patience::eventually;

/// The length of the outage.
const OUTAGE: Duration = Duration::from_secs(10);

/// Whether a line is a refusal or the count of repeated refusals.
fn is_refusal(line: &Value) -> bool {
    let cause = line["fields"]["cause"].as_str().unwrap_or_default();
    line["fields"]["message"] == "refused" || cause.starts_with("refused tenant=acme: unavailable")
}

/// The number of events that a line stands for.
fn count(line: &Value) -> u64 {
    line["fields"]["count"].as_u64().unwrap_or(1)
}

/// TEL-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_writes_one_line_per_cause_and_second() {
    let server = Postgres::start(&[]).unwrap();
    let database = Database::at(server.database().unwrap());
    let launch = Launch::default().set("LOG_FORMAT", "json").set("LOG_FILTER", "info");
    let node = Node::over(&database, &launch);
    let cast = node.cast().await;
    let (billing, bot) = (node.client(&cast.billing), node.client(&cast.bot));
    assert_eq!(post(&billing, Draft::new("pay", &new_id()).sign(&cast.billing)).await.0, 202);
    let before = node.said().lines().count();

    server.stop().unwrap();
    let end = tokio::time::Instant::now() + OUTAGE;
    let send = async || {
        let mut refused = 0_u64;
        while tokio::time::Instant::now() < end {
            let (status, _) = post(&billing, Draft::new("pay", &new_id()).sign(&cast.billing)).await;
            refused += u64::from(status == 503);
        }
        refused
    };
    let receiving = async {
        while tokio::time::Instant::now() < end {
            let _ = bot.call(reqwest::Method::POST, "/v1/queues/pay-inbox/receive", None).await;
        }
    };
    let (a, b, c, d, ()) = tokio::join!(send(), send(), send(), send(), receiving);
    let refused = a + b + c + d;
    assert!(refused > 100, "the outage refused only {refused} messages");
    server.resume().unwrap();
    eventually("the node takes messages again", async || {
        (post(&billing, Draft::new("pay", &new_id()).sign(&cast.billing)).await.0 == 202).then_some(())
    })
    .await;

    let lines = || -> Vec<Value> {
        let log = node.said();
        let lines = log.lines().skip(before).filter_map(|line| serde_json::from_str(line).ok());
        lines.collect()
    };
    eventually("each refusal is a line or in a count", async || {
        let all: u64 = lines().iter().filter(|line| is_refusal(line)).map(count).sum();
        (all >= refused).then_some(())
    })
    .await;

    let lines = lines();
    let mut lines_per_second: BTreeMap<(String, String), u32> = BTreeMap::new();
    for line in &lines {
        let fields = &line["fields"];
        let second = line["timestamp"].as_str().unwrap()[..19].to_owned();
        let cause = if fields["count"].is_u64() && fields["cause"].is_string() {
            fields["cause"].to_string()
        } else {
            let objects = ["task", "queue", "route", "tenant"].map(|name| fields[name].to_string());
            let objects = objects.join(" ");
            format!("{}: {objects} {}{}", fields["message"], fields["error"], fields["cause"])
        };
        *lines_per_second.entry((second, cause)).or_default() += 1;
    }
    let sources = lines.iter().filter_map(|line| line["fields"]["error"].as_str());
    let with_sources = sources.filter(|error| error.starts_with("store is unavailable: ")).count();
    assert!(with_sources > 0, "errors are written with their sources");
    // Two lines that are a second apart by the node's clock may have the same second in their timestamps.
    let most = lines_per_second.iter().max_by_key(|(_, count)| **count).unwrap();
    assert!(*most.1 <= 2, "{most:?}");
    let all: u64 = lines.iter().map(count).sum();
    println!("{refused} refused; {} lines for {all}", lines.len());
    assert!(lines.len() < 400, "{} lines", lines.len());
}
