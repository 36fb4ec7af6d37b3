//! A database that is away for a while (QUA-1, ENG-7).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use snavio_testbed::Postgres;

use crate::books::{Books, command};
use crate::cluster::{Cluster, drain};
use crate::proxy::{self, Faults};

/// How long the database is away.
const AWAY: Duration = Duration::from_secs(20);
const PRODUCERS: usize = 8;
const BATCH: usize = 10;
/// What a node may take up while the database is away.
const GROWTH_BYTES_MAX: u64 = 24 << 20;

/// Producers that send until they are told to stop.
fn produce(
    cluster: &Cluster,
    books: &Arc<Books>,
    done: &Arc<AtomicBool>,
) -> Vec<tokio::task::JoinHandle<()>> {
    let produce = |_| {
        let (producers, books, done) = ([cluster.producer(0)], Arc::clone(books), Arc::clone(done));
        tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                let ids: Vec<_> = (0..BATCH).map(|_| command(None).id.to_string()).collect();
                books.send(&producers, &ids).await;
            }
        })
    };
    (0..PRODUCERS).map(produce).collect()
}

/// Waits until more is acknowledged than was, for as long as a node may take to recover (QUA-3), and says how long it
/// took.
async fn recovered(books: &Books, before: usize) -> Duration {
    let asked = tokio::time::Instant::now();
    let going_on = async {
        while books.acknowledged() <= before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), going_on).await.expect("it goes on within 30 s");
    asked.elapsed()
}

/// QUA-1: a database that keeps its connections and says nothing is given up in time, and used again when it speaks.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_says_nothing_is_not_waited_for_without_end() {
    const FROZEN: Duration = Duration::from_secs(15);
    let server = Postgres::shared();
    let faults = Arc::new(Faults::default());
    let port = proxy::start(server.port(), Arc::clone(&faults)).await;
    let through = server.database().unwrap().replace(&server.port().to_string(), &port.to_string());
    let cluster = Cluster::start(&[through]).await;
    let (books, done) = (Arc::new(Books::default()), Arc::new(AtomicBool::new(false)));
    let producing = produce(&cluster, &books, &done);
    tokio::time::sleep(Duration::from_secs(1)).await;
    faults.frozen.store(true, Ordering::Relaxed);
    tokio::time::sleep(FROZEN).await;
    let (unavailable, meanwhile) = (books.unavailable(), books.acknowledged());
    faults.frozen.store(false, Ordering::Relaxed);
    let took = recovered(&books, meanwhile).await;
    let after = books.acknowledged();
    done.store(true, Ordering::Relaxed);
    for producer in producing {
        producer.await.unwrap();
    }
    books.delivered(drain(&cluster.consumer(0)).await);
    let totals = books.close();
    println!("silent for {FROZEN:?}: {unavailable} answers of 503, {took:?} to go on; {totals:?}");
    assert!(unavailable > 0, "requests are answered while the database says nothing");
    assert!(after > meanwhile, "it goes on by itself: {}", cluster.said(0));
    assert_eq!((totals.missing, totals.twice, totals.false_duplicates), (0, 0, 0), "{totals:?}");
}

/// A node whose database is away tells what it knows itself, leaves out what only the database knows, and says so.
async fn tells_what_it_can(cluster: &Cluster) {
    let text = cluster.metrics(0).await;
    let refused = r#"snavio_commands_total{verdict="refused",path="",reason="unavailable"}"#;
    assert!(text.contains(refused) && text.contains("snavio_requests_in_flight "), "{text}");
    assert!(!text.contains("snavio_queue_depth"), "what queues hold is not known: {text}");
    assert!(cluster.said(0).contains("/metrics leaves them out"), "{}", cluster.said(0));
}

/// Figures of queues are there again once they are counted anew, which happens every five seconds at most.
async fn counts_queues_again(cluster: &Cluster) {
    let depth = r#"snavio_queue_depth{tenant="acme",queue="pay-inbox"} "#;
    let counted = async {
        while !cluster.metrics(0).await.contains(depth) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), counted).await.expect("queues are counted again");
}

/// ENG-7, PIP-9, TEL-8: 503 meanwhile, figures told, memory flat, and then it goes on by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_for_20_seconds_is_waited_for() {
    let server = Postgres::start(&[]).unwrap();
    let mut cluster = Cluster::start(&[server.database().unwrap()]).await;
    let books = Arc::new(Books::default());
    let done = Arc::new(AtomicBool::new(false));
    let producing = produce(&cluster, &books, &done);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (before, bytes) = (books.acknowledged(), cluster.nodes[0].resident_bytes());
    assert!(before > 0, "it takes messages at first");
    tokio::task::block_in_place(|| server.stop()).unwrap();
    let mut most = bytes;
    for _ in 0..AWAY.as_secs() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        most = most.max(cluster.nodes[0].resident_bytes());
    }
    let (unavailable, grown) = (books.unavailable(), most - bytes);
    let ready = reqwest::get(format!("{}/readyz", cluster.nodes[0].url())).await.unwrap().status();
    tells_what_it_can(&cluster).await;
    let meanwhile = books.acknowledged();
    tokio::task::block_in_place(|| server.resume()).unwrap();
    let took = recovered(&books, meanwhile).await;
    let after = books.acknowledged();
    counts_queues_again(&cluster).await;
    done.store(true, Ordering::Relaxed);
    for producer in producing {
        producer.await.unwrap();
    }
    books.delivered(drain(&cluster.consumer(0)).await);
    let totals = books.close();
    println!(
        "away for {AWAY:?}: {unavailable} answers of 503, memory {} KiB more, {took:?} to go on; {totals:?}",
        grown / 1024
    );
    assert!(unavailable > 0, "the fault was noticed");
    assert_eq!(ready, 503);
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes more while the database was away");
    assert!(after > meanwhile, "it goes on by itself: {}", cluster.said(0));
    assert!(cluster.nodes[0].is_running());
    assert_eq!((totals.missing, totals.twice, totals.false_duplicates), (0, 0, 0), "{totals:?}");
}
