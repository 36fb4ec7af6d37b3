//! Nodes that are restarted one after the other under load (ENG-7).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reqwest::StatusCode;
use snavio_sdk::Client;
use snavio_testbed::Postgres;

use crate::books::{Books, command};
use crate::cluster::{Cluster, dispatched_twice, drain};

const NODES: usize = 3;
const PRODUCERS: usize = 6;
const BATCH: usize = 10;
/// Between two requests of a producer.
const PAUSE: Duration = Duration::from_millis(20);
/// Between two restarts.
const LIFE: Duration = Duration::from_millis(500);

/// ENG-7: clients that go by `/readyz`, as those behind a load balancer do, do not notice.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_say_in_time_that_they_leave_are_missed_by_nobody() {
    let database = Postgres::shared().database().unwrap();
    let stores = vec![database.clone(); NODES];
    let mut cluster = Cluster::start_with(&stores, &[("SNAVIO_SERVER_LEAVE_SECONDS", "4")]).await;
    let (books, done) = (Arc::new(Books::default()), Arc::new(AtomicBool::new(false)));
    let producing: Vec<_> = (0..PRODUCERS)
        .map(|number| {
            let nodes = (0..NODES)
                .map(|node| (cluster.nodes[node].url().to_owned(), cluster.producer(node)))
                .collect();
            tokio::spawn(produce(number, nodes, Arc::clone(&books), Arc::clone(&done)))
        })
        .collect();
    for node in 0..NODES {
        tokio::time::sleep(LIFE).await;
        let before = books.acknowledged();
        cluster.tell_to_stop(node);
        says_that_it_leaves(&cluster, node).await;
        let ended = tokio::task::block_in_place(|| cluster.restart(node, &database));
        assert!(ended.success(), "{ended}: {}", cluster.said(node));
        assert!(books.acknowledged() > before, "the others go on");
    }
    tokio::time::sleep(LIFE).await;
    done.store(true, Ordering::Relaxed);
    for producer in producing {
        producer.await.unwrap();
    }
    books.delivered(drain(&cluster.consumer(0)).await);
    let totals = books.close();
    println!("{NODES} restarts: {totals:?}");
    assert_eq!((totals.unavailable, totals.lost), (0, 0), "{totals:?}");
    assert_eq!((totals.missing, totals.twice, totals.false_duplicates), (0, 0, 0), "{totals:?}");
    assert_eq!(dispatched_twice(&database), 0);
}

/// It is not ready, the others hear of it, it asks nobody to stay, and it serves.
async fn says_that_it_leaves(cluster: &Cluster, node: usize) {
    let ready = format!("{}/readyz", cluster.nodes[node].url());
    let leaving = async {
        loop {
            let answer = reqwest::get(&ready).await.unwrap();
            if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let answer = tokio::time::timeout(Duration::from_secs(4), leaving).await.unwrap();
    assert_eq!(answer.headers()["connection"], "close");
    let said = answer.text().await.unwrap();
    assert!(said.contains("draining"), "{said}");
    let own = cluster.status(node).await;
    assert_eq!(own["draining"], true, "{own}");
    let asking = async {
        loop {
            let status = cluster.status((node + 1) % NODES).await;
            if status["nodes"].as_array().unwrap().iter().any(|it| it["draining"] == true) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(4), asking).await.expect("the others hear that it leaves");
}

/// Sends to the next node that says it is ready, until told to stop.
async fn produce(first: usize, nodes: Vec<(String, Client)>, books: Arc<Books>, done: Arc<AtomicBool>) {
    for turn in first.. {
        if done.load(Ordering::Relaxed) {
            return;
        }
        let (url, producer) = &nodes[turn % nodes.len()];
        let ready = reqwest::get(format!("{url}/readyz")).await;
        if ready.is_ok_and(|it| it.status() == StatusCode::OK) {
            let ids: Vec<_> = (0..BATCH).map(|_| command(None).id.to_string()).collect();
            books.send(std::slice::from_ref(producer), &ids).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}
