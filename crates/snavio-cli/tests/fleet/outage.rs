//! A database that is away for a while (QUA-1, ENG-7).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use snavio_servers::Postgres;

use crate::books::{Books, command};
use crate::cluster::{Cluster, drain};

/// How long the database is away.
const AWAY: Duration = Duration::from_secs(20);
const PRODUCERS: usize = 8;
const BATCH: usize = 10;
/// What a node may take up while the database is away.
const GROWTH_BYTES_MAX: u64 = 24 << 20;

/// ENG-7, PIP-9: 503 meanwhile, memory flat, and then it goes on by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_for_20_seconds_is_waited_for() {
    let server = Postgres::start(&[]).unwrap();
    let mut cluster = Cluster::start(&[server.database().unwrap()]).await;
    let books = Arc::new(Books::default());
    let done = Arc::new(AtomicBool::new(false));
    let producing: Vec<_> = (0..PRODUCERS)
        .map(|_| {
            let (producer, books, done) = (cluster.producer(0), Arc::clone(&books), Arc::clone(&done));
            tokio::spawn(async move {
                let producers = [producer];
                while !done.load(Ordering::Relaxed) {
                    let ids: Vec<_> = (0..BATCH).map(|_| command(None).id.to_string()).collect();
                    books.send(&producers, &ids).await;
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (before, bytes) = (books.acknowledged(), cluster.nodes[0].resident_bytes());
    assert!(before > 0, "it takes messages at first");
    tokio::task::block_in_place(|| server.stop()).unwrap();
    tokio::time::sleep(AWAY).await;
    let (unavailable, grown) = (books.unavailable(), cluster.nodes[0].resident_bytes().saturating_sub(bytes));
    let ready = reqwest::get(format!("{}/readyz", cluster.nodes[0].url())).await.unwrap().status();
    let meanwhile = books.acknowledged();
    tokio::task::block_in_place(|| server.resume()).unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = books.acknowledged();
    done.store(true, Ordering::Relaxed);
    for producer in producing {
        producer.await.unwrap();
    }
    books.delivered(drain(&cluster.consumer(0)).await);
    let totals = books.close();
    println!(
        "away for {AWAY:?}: {unavailable} answers of 503, memory {} KiB more, then {} acknowledged; {totals:?}",
        grown / 1024,
        after - meanwhile
    );
    assert!(unavailable > 0, "the fault was noticed");
    assert_eq!(ready, 503);
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes more while the database was away");
    assert!(after > meanwhile, "it goes on by itself: {}", cluster.said(0));
    assert!(cluster.nodes[0].is_running());
    assert_eq!((totals.missing, totals.twice, totals.false_duplicates), (0, 0, 0), "{totals:?}");
}
