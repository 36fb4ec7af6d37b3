//! Kills and restarts of nodes under load (ENG-7, QUA-1).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use snavio_sdk::Client;
use snavio_testbed::Postgres;

use crate::books::{Tally, command};
use crate::cluster::{Cluster, dispatched_twice, drain, id_of};

const NODES: usize = 4;
const PRODUCERS: usize = 8;
const BATCH: usize = 20;
/// The time between two kills.
const KILL_INTERVAL: Duration = Duration::from_millis(1_500);

/// ENG-7: clients that repeat their requests see only 503s and lost connections, and every acknowledged
/// message is delivered or waits.
#[tokio::test(flavor = "multi_thread")]
async fn killed_nodes_lose_no_acknowledged_message() {
    let kills = if crate::is_long() { 60 } else { 8 };
    let database = Postgres::shared().database().unwrap();
    let mut cluster = Cluster::start(&vec![database.clone(); NODES]).await;
    let tally = Arc::new(Tally::default());
    let done = Arc::new(AtomicBool::new(false));
    // Nodes restart at their old addresses, so the clients stay valid.
    let clients = |make: &dyn Fn(usize) -> Client, first: usize| -> Vec<Client> {
        (0..NODES).map(|n| make((first + n) % NODES)).collect()
    };
    let mut tasks = Vec::new();
    for number in 0..PRODUCERS {
        let producers = clients(&|node| cluster.producer(node), number);
        let (tally, done) = (Arc::clone(&tally), Arc::clone(&done));
        tasks.push(tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                let ids: Vec<_> = (0..BATCH).map(|_| command(None).id.to_string()).collect();
                tally.send(&producers, &ids).await;
            }
        }));
    }
    for number in 0..2 {
        let consumers = clients(&|node| cluster.consumer(node), number);
        let (tally, done) = (Arc::clone(&tally), Arc::clone(&done));
        tasks.push(tokio::spawn(consume(consumers, tally, done)));
    }
    for kill in 0..kills {
        tokio::time::sleep(KILL_INTERVAL).await;
        let before = tally.accepted_count();
        cluster.kill_and_restart(kill % NODES, &database);
        cluster.wait_for_registry(kill % NODES).await;
        assert!(tally.accepted_count() > before || kill == 0, "the other nodes go on");
    }
    done.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    // Deliveries that a killed consumer's request had leased stay in flight until their leases end.
    tally.record_delivered(drain(&cluster.consumer(0)).await);
    let in_flight =
        Postgres::shared().ask(&database, "SELECT message.id FROM delivery JOIN message ON seq = message");
    let waiting: Vec<_> = in_flight.unwrap().lines().map(str::to_owned).collect();
    let waits = waiting.len();
    let returned: Vec<_> = waiting.iter().filter(|id| tally.has_ended(id)).collect();
    assert!(returned.is_empty(), "acknowledged and visible again: {returned:?}");
    tally.record_delivered(waiting);
    let totals = tally.totals();
    println!("{kills} kills, {NODES} nodes: {totals:?}, {waits} of them in flight");
    assert!(totals.lost > 0, "clients noticed no kill");
    assert_eq!((totals.missing, totals.false_duplicates), (0, 0), "{totals:?}");
    assert_eq!(dispatched_twice(&database), 0, "no id was dispatched a second time");
    // A thousand of the ids, sent again, are duplicates.
    let ids = tally.ids();
    let again = Tally::default();
    for chunk in ids.chunks(200).take(5) {
        again.send(&[cluster.producer(1)], chunk).await;
    }
    assert_eq!(again.totals().acknowledged, ids.len().min(1_000));
    assert_eq!(again.accepted_count(), 0, "a repeated id is a duplicate on any node");
    assert_eq!(
        cluster.status(0).await["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| has_recent_heartbeat(entry))
            .count(),
        NODES
    );
}

fn has_recent_heartbeat(node: &serde_json::Value) -> bool {
    node["silent_seconds"].as_f64().unwrap() < 5.0
}

async fn consume(consumers: Vec<Client>, tally: Arc<Tally>, done: Arc<AtomicBool>) {
    for turn in 0.. {
        if done.load(Ordering::Relaxed) {
            return;
        }
        let consumer = &consumers[turn % consumers.len()];
        let visibility = Duration::from_secs(600);
        let received = match consumer.receive("pay-inbox", 10, visibility, Duration::from_secs(1)).await {
            Ok(received) => received,
            Err(error) => {
                tally.record_failure(&error, &[]);
                continue;
            }
        };
        let receipts: Vec<_> = received.iter().map(snavio_sdk::Delivery::receipt).collect();
        if receipts.is_empty() {
            continue;
        }
        // Without an answer the acknowledgement may have taken effect or not. Either way the delivery counts
        // once.
        match consumer.acknowledge("pay-inbox", &receipts).await {
            Ok(_) => tally.record_acknowledged(received.iter().map(id_of)),
            Err(error) => {
                tally.record_failure(&error, &[]);
                tally.record_maybe_delivered(received.iter().map(id_of));
            }
        }
    }
}
