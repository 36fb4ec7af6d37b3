//! Restarts of nodes, one after the other, under load (ENG-7).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reqwest::StatusCode;
use snavio_sdk::Client;
use snavio_testbed::Postgres;

use crate::books::{Tally, command};
use crate::cluster::{Cluster, dispatched_twice, drain};

const NODES: usize = 3;
const PRODUCERS: usize = 6;
const BATCH: usize = 10;
/// The pause between two requests of a producer.
const PAUSE: Duration = Duration::from_millis(20);
/// The time between two restarts.
const RESTART_INTERVAL: Duration = Duration::from_millis(500);

/// ENG-7: clients that check `/readyz`, like those behind a load balancer, see no failed request.
#[tokio::test(flavor = "multi_thread")]
async fn announced_restarts_cause_no_failed_requests() {
    let database = Postgres::shared().database().unwrap();
    let stores = vec![database.clone(); NODES];
    let mut cluster = Cluster::start_with(&stores, &[("SNAVIO_SERVER_LEAVE_SECONDS", "4")]).await;
    let (tally, done) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
    let producing: Vec<_> = (0..PRODUCERS)
        .map(|number| {
            let nodes = (0..NODES)
                .map(|node| (cluster.nodes[node].url().to_owned(), cluster.producer(node)))
                .collect();
            tokio::spawn(produce(number, nodes, Arc::clone(&tally), Arc::clone(&done)))
        })
        .collect();
    for node in 0..NODES {
        tokio::time::sleep(RESTART_INTERVAL).await;
        let before = tally.accepted_count();
        cluster.tell_to_stop(node);
        assert_node_is_leaving(&cluster, node).await;
        let ended = tokio::task::block_in_place(|| cluster.restart(node, &database));
        assert!(ended.success(), "{ended}: {}", cluster.log(node));
        assert!(tally.accepted_count() > before, "the other nodes go on");
    }
    tokio::time::sleep(RESTART_INTERVAL).await;
    done.store(true, Ordering::Relaxed);
    for producer in producing {
        producer.await.unwrap();
    }
    tally.record_delivered(drain(&cluster.consumer(0)).await);
    let totals = tally.totals();
    println!("{NODES} restarts: {totals:?}");
    assert_eq!((totals.unavailable, totals.lost), (0, 0), "{totals:?}");
    assert_eq!((totals.missing, totals.twice, totals.false_duplicates), (0, 0, 0), "{totals:?}");
    assert_eq!(dispatched_twice(&database), 0);
}

/// Checks that a leaving node is not ready, closes connections after its answers, still serves, and that the
/// other nodes see that it drains.
async fn assert_node_is_leaving(cluster: &Cluster, node: usize) {
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
    let text = answer.text().await.unwrap();
    assert!(text.contains("draining"), "{text}");
    let own = cluster.status(node).await;
    assert_eq!(own["draining"], true, "{own}");
    let asking = async {
        loop {
            let status = cluster.status((node + 1) % NODES).await;
            if status["nodes"].as_array().unwrap().iter().any(|entry| entry["draining"] == true) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(4), asking).await.expect("the other nodes see that it drains");
}

/// Sends to the next node that is ready, until `done`.
async fn produce(first: usize, nodes: Vec<(String, Client)>, tally: Arc<Tally>, done: Arc<AtomicBool>) {
    for turn in first.. {
        if done.load(Ordering::Relaxed) {
            return;
        }
        let (url, producer) = &nodes[turn % nodes.len()];
        let ready = reqwest::get(format!("{url}/readyz")).await;
        if ready.is_ok_and(|answer| answer.status() == StatusCode::OK) {
            let ids: Vec<_> = (0..BATCH).map(|_| command(None).id.to_string()).collect();
            tally.send(std::slice::from_ref(producer), &ids).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}
