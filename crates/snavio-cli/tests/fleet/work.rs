//! Reports that get lost, and workers that stall or die, over a network that cuts connections (CLM-4, CLM-7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::{ApiError, Client, Command, Delivery};
use snavio_testbed::Postgres;

use crate::cluster::{Cluster, id_of};
use crate::proxy::{self, FAULTS, Faults};

const NODES: usize = 2;
const WORKERS: usize = 6;
/// The deadline of an attempt, after which its lease ends.
const DEADLINE: Duration = Duration::from_secs(2);

/// The answers to workers: the accepted references of each id, and the number of fenced reports.
#[derive(Default)]
struct WorkerReports {
    accepted_references: Mutex<BTreeMap<String, BTreeSet<String>>>,
    fenced: AtomicUsize,
    stalled: AtomicUsize,
    died: AtomicUsize,
}

/// Two reports never win, and no claim stays without a worker for longer than its deadline and one sweep.
#[tokio::test(flavor = "multi_thread")]
async fn single_report_wins_and_no_work_is_left() {
    let count = if crate::is_long() { 2_000 } else { 120 };
    let server = Postgres::shared();
    let database = server.database().unwrap();
    let faults = Arc::new(Faults::default());
    let port = proxy::start(server.port(), Arc::clone(&faults)).await;
    let through = database.replace(&server.port().to_string(), &port.to_string());
    let cluster = Arc::new(Cluster::start(&vec![through; NODES]).await);
    register(&cluster).await;
    faults.at_commits.store(true, Ordering::Relaxed);
    faults.one_in.store(5, Ordering::Relaxed);
    let reports = Arc::new(WorkerReports::default());
    let working: Vec<_> = (0..WORKERS)
        .map(|number| {
            let (client, reports) = (cluster.consumer(number % NODES), Arc::clone(&reports));
            tokio::spawn(async move { work(number, &client, &reports).await })
        })
        .collect();
    let ids: Vec<_> = (0..count).map(|_| uuid::Uuid::now_v7().to_string()).collect();
    let producer = cluster.producer(0);
    for id in &ids {
        while send(&producer, id).await.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let finished_count = || reports.accepted_references.lock().unwrap().len();
    until("nearly all are done", || finished_count() * 10 >= ids.len() * 9).await;
    faults.one_in.store(0, Ordering::Relaxed);
    until("all are done", || finished_count() == ids.len()).await;
    working.iter().for_each(tokio::task::JoinHandle::abort);

    let consumer = cluster.consumer(0);
    let accepted_references = reports.accepted_references.lock().unwrap().clone();
    for id in &ids {
        let found = consumer.call(Method::GET, &format!("/v1/claims/{id}"), None).await.unwrap();
        let claim = &found["claims"][0];
        assert_eq!((&found["outcome"], found["claims"].as_array().unwrap().len()), (&json!("completed"), 1));
        let reference = claim["glPostingReference"].as_str().unwrap().to_owned();
        assert_eq!(
            accepted_references[id],
            BTreeSet::from([reference]),
            "one report wins, and the claim has its reference: {claim}"
        );
    }
    let remaining = "SELECT (SELECT count(*) FROM delivery WHERE queue = 'acme/book'), \
         (SELECT count(*) FROM claim WHERE status <> 1 AND destination = 'acme/bot:book')";
    assert_eq!(server.ask(&database, remaining).unwrap().trim(), "0|0");
    let [fenced, stalled, died] =
        [&reports.fenced, &reports.stalled, &reports.died].map(|counter| counter.load(Ordering::Relaxed));
    println!(
        "faults {FAULTS:?} fired {:?}; {} ids, stalled {stalled}, died {died}, fenced {fenced}",
        faults.fired(),
        ids.len()
    );
    assert!(faults.fired().iter().all(|count| *count >= 3), "every fault fired: {:?}", faults.fired());
    assert!(stalled > 0 && died > 0 && fenced > 0, "stalled {stalled}, died {died}, fenced {fenced}");
}

/// CLM-7: the worker with the lease dies, and the node that ran the expiry sweep dies too.
#[tokio::test(flavor = "multi_thread")]
async fn work_of_dead_worker_is_retried_despite_dead_sweeper() {
    let database = Postgres::shared().database().unwrap();
    let mut cluster = Cluster::start(&vec![database.clone(); NODES]).await;
    register(&cluster).await;
    let id = uuid::Uuid::now_v7().to_string();
    assert!(send(&cluster.producer(0), &id).await.is_some());
    let leader = loop {
        match sweeper(&cluster, 0).await {
            Some(node) => break node,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let remaining = cluster.consumer(1 - leader);
    let receive =
        async || remaining.receive("book", 1, DEADLINE, Duration::from_secs(1)).await.unwrap().pop();
    let first = receive().await.expect("the delivery is visible");
    cluster.kill(leader);
    let again = async {
        loop {
            if let Some(work) = receive().await {
                break work;
            }
        }
    };
    let again =
        tokio::time::timeout(Duration::from_secs(60), again).await.expect("the delivery is visible again");
    assert_eq!((id_of(&again), again.delivery_id), (id, first.delivery_id));
    assert!(again.fence > first.fence);
    assert_eq!(sweeper(&cluster, 1 - leader).await, Some(1 - leader));
}

/// The node that runs the expiry sweep, according to the status of one node.
async fn sweeper(cluster: &Cluster, asked: usize) -> Option<usize> {
    let status = cluster.status(asked).await;
    let leads = |node: &&Value| node["leads"].as_array().unwrap().contains(&json!("sweeper"));
    let leader = status["nodes"].as_array().unwrap().iter().find(leads)?;
    let address = leader["address"].as_str().unwrap();
    Some(
        cluster
            .nodes
            .iter()
            .position(|node| node.url().ends_with(address))
            .expect("the leader is one of the nodes"),
    )
}

async fn until(condition: &str, is_so: impl Fn() -> bool) {
    let asking = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let patience = Duration::from_secs(if crate::is_long() { 1800 } else { 240 });
    tokio::time::timeout(patience, asking).await.unwrap_or_else(|_| panic!("never: {condition}"));
}

async fn register(cluster: &Cluster) {
    let route = json!({
        "queue": "book", "dead_letter_queue": "bot-dead", "claim": { "policy": "ledger" }, "receives_max": 1000,
        "processing": { "kind": "tracked", "deadline_seconds": DEADLINE.as_secs(), "backoff_seconds": 1 },
    });
    let grant = json!({ "source": "acme/billing", "target": "acme/bot", "name": "book" });
    let operator = cluster.operator(0);
    operator.call(Method::PUT, "/v1/routes/acme/bot/book", Some(&route)).await.unwrap();
    operator.call(Method::PUT, "/v1/grants", Some(&grant)).await.unwrap();
    for node in 0..NODES {
        while cluster.status(node).await["registry_lag"] != 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Sends a command; returns `Some` if it is certainly accepted.
async fn send(producer: &Client, id: &str) -> Option<Value> {
    // Large enough that its statement meets the network's faults.
    let payload = json!({ "note": "n".repeat(4_000) }).to_string().into_bytes();
    let mut command = Command::new("acme/bot".parse().unwrap(), "book".parse().unwrap(), payload);
    command.id = snavio_model::id::MessageId::uuid(id).unwrap();
    match producer.send_once(&command).await {
        Ok(answer) => Some(json!(format!("{answer:?}"))),
        // The command is being processed, so it was accepted.
        Err(ApiError::Refused { reason, .. }) if reason == "in_progress" || reason == "retry_later" => {
            Some(json!(null))
        }
        Err(_) => None,
    }
}

/// Stalls until another worker has taken over the work, or ten deadlines have passed.
async fn be_overtaken(client: &Client, work: &Delivery) {
    let path = format!("/v1/claims/{}", id_of(work));
    let overtaken = async {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let found = client.call(Method::GET, &path, None).await.unwrap_or_default();
            if found["claims"][0]["fence"].as_i64().is_some_and(|fence| fence > work.fence.0) {
                break;
            }
        }
    };
    let _timed_out = tokio::time::timeout(10 * DEADLINE, overtaken).await;
}

/// Receives work and reports. Now and then it stalls past its deadline first, or never reports.
async fn work(number: usize, client: &Client, reports: &WorkerReports) {
    for round in 0.. {
        let received = client.receive("book", 1, DEADLINE, Duration::from_secs(1)).await.unwrap_or_default();
        let Some(work) = received.into_iter().next() else { continue };
        match (number + round) % 12 {
            3 => {
                reports.stalled.fetch_add(1, Ordering::Relaxed);
                be_overtaken(client, &work).await;
            }
            7 => {
                reports.died.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            _ => {}
        }
        let reference = format!("{number}-{round}");
        let report = json!({
            "delivery_id": work.delivery_id, "fence": work.fence, "reference": reference, "response": { "by": reference },
        });
        // A worker without an answer repeats its report.
        for _ in 0..50 {
            match client.call(Method::POST, "/v1/claims/book/complete", Some(&report)).await {
                Ok(_) => {
                    reports
                        .accepted_references
                        .lock()
                        .unwrap()
                        .entry(id_of(&work))
                        .or_default()
                        .insert(reference);
                    break;
                }
                Err(ApiError::Refused { reason, .. }) if reason == "fenced" => {
                    reports.fenced.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}
