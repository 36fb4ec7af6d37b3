//! Outages of the database (QUA-1, ENG-7).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use snavio_testbed::Postgres;

use crate::books::{Tally, command};
use crate::cluster::{Cluster, drain};
use crate::proxy::{self, Faults};

/// The length of the outage.
const OUTAGE: Duration = Duration::from_secs(20);
const PRODUCERS: usize = 8;
const BATCH: usize = 10;
/// The limit of a node's memory growth during the outage.
const GROWTH_BYTES_MAX: u64 = 24 << 20;

/// Starts producers that send until `done`.
fn produce(
    cluster: &Cluster,
    tally: &Arc<Tally>,
    done: &Arc<AtomicBool>,
) -> Vec<tokio::task::JoinHandle<()>> {
    let produce = |_| {
        let (producers, tally, done) = ([cluster.producer(0)], Arc::clone(tally), Arc::clone(done));
        tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                let ids: Vec<_> = (0..BATCH).map(|_| command(None).id.to_string()).collect();
                tally.send(&producers, &ids).await;
            }
        })
    };
    (0..PRODUCERS).map(produce).collect()
}

/// Waits until more messages are accepted than before, within the time that a node may take to recover
/// (QUA-3). Returns the time that it took.
async fn wait_for_recovery(tally: &Tally, before: usize) -> Duration {
    let started_at = tokio::time::Instant::now();
    let going_on = async {
        while tally.accepted_count() <= before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), going_on)
        .await
        .expect("the node accepts messages within 30 s");
    started_at.elapsed()
}

/// QUA-1: the node gives up in time on a database that keeps connections open without an answer, and uses it
/// again later.
#[tokio::test(flavor = "multi_thread")]
async fn silent_database_is_given_up_and_used_again() {
    const FROZEN: Duration = Duration::from_secs(15);
    let server = Postgres::shared();
    let faults = Arc::new(Faults::default());
    let port = proxy::start(server.port(), Arc::clone(&faults)).await;
    let through = server.database().unwrap().replace(&server.port().to_string(), &port.to_string());
    let cluster = Cluster::start(&[through]).await;
    let (tally, done) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
    let producing = produce(&cluster, &tally, &done);
    tokio::time::sleep(Duration::from_secs(1)).await;
    faults.frozen.store(true, Ordering::Relaxed);
    tokio::time::sleep(FROZEN).await;
    let (unavailable, meanwhile) = (tally.unavailable_count(), tally.accepted_count());
    faults.frozen.store(false, Ordering::Relaxed);
    let took = wait_for_recovery(&tally, meanwhile).await;
    let after = tally.accepted_count();
    done.store(true, Ordering::Relaxed);
    for producer in producing {
        producer.await.unwrap();
    }
    tally.record_delivered(drain(&cluster.consumer(0)).await);
    let totals = tally.totals();
    println!("silent for {FROZEN:?}: {unavailable} answers of 503, {took:?} to go on; {totals:?}");
    assert!(unavailable > 0, "no request was refused while the database was silent");
    assert!(after > meanwhile, "the node accepts messages again: {}", cluster.log(0));
    assert_eq!((totals.missing, totals.twice, totals.false_duplicates), (0, 0, 0), "{totals:?}");
}

/// Checks that a node during an outage shows the metrics that it knows, and leaves out those of the database
/// with a log line.
async fn assert_partial_metrics(cluster: &Cluster) {
    let text = cluster.metrics(0).await;
    let refused = r#"snavio_commands_total{verdict="refused",path="",reason="unavailable"}"#;
    assert!(text.contains(refused) && text.contains("snavio_requests_in_flight "), "{text}");
    assert!(!text.contains("snavio_queue_depth"), "queue depths are unknown during an outage: {text}");
    assert!(cluster.log(0).contains("/metrics leaves them out"), "{}", cluster.log(0));
}

/// Waits until the metrics of queues are there again. A node counts queues at most every five seconds.
async fn wait_for_queue_metrics(cluster: &Cluster) {
    let depth = r#"snavio_queue_depth{tenant="acme",queue="pay-inbox"} "#;
    let counted = async {
        while !cluster.metrics(0).await.contains(depth) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), counted).await.expect("queues are counted again");
}

/// ENG-7, PIP-9, TEL-8: during the outage the node answers 503, shows metrics and keeps its memory flat.
/// Afterwards it continues without help.
#[tokio::test(flavor = "multi_thread")]
async fn node_recovers_from_database_outage_of_20_seconds() {
    let server = Postgres::start(&[]).unwrap();
    let mut cluster = Cluster::start(&[server.database().unwrap()]).await;
    let tally = Arc::new(Tally::default());
    let done = Arc::new(AtomicBool::new(false));
    let producing = produce(&cluster, &tally, &done);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (before, bytes) = (tally.accepted_count(), cluster.nodes[0].resident_bytes());
    assert!(before > 0, "the node accepts messages at first");
    tokio::task::block_in_place(|| server.stop()).unwrap();
    let mut most = bytes;
    for _ in 0..OUTAGE.as_secs() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        most = most.max(cluster.nodes[0].resident_bytes());
    }
    let (unavailable, grown) = (tally.unavailable_count(), most - bytes);
    let ready = reqwest::get(format!("{}/readyz", cluster.nodes[0].url())).await.unwrap().status();
    assert_partial_metrics(&cluster).await;
    let meanwhile = tally.accepted_count();
    tokio::task::block_in_place(|| server.resume()).unwrap();
    let took = wait_for_recovery(&tally, meanwhile).await;
    let after = tally.accepted_count();
    wait_for_queue_metrics(&cluster).await;
    done.store(true, Ordering::Relaxed);
    for producer in producing {
        producer.await.unwrap();
    }
    tally.record_delivered(drain(&cluster.consumer(0)).await);
    let totals = tally.totals();
    println!(
        "away for {OUTAGE:?}: {unavailable} answers of 503, memory {} KiB more, {took:?} to go on; {totals:?}",
        grown / 1024
    );
    assert!(unavailable > 0, "no request was refused during the outage");
    assert_eq!(ready, 503);
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes more while the database was away");
    assert!(after > meanwhile, "the node accepts messages again: {}", cluster.log(0));
    assert!(cluster.nodes[0].is_running());
    assert_eq!((totals.missing, totals.twice, totals.false_duplicates), (0, 0, 0), "{totals:?}");
}
