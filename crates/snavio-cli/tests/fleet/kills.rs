//! Nodes that are killed under load and come back (ENG-7, QUA-1).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use snavio_sdk::Client;
use snavio_testbed::Postgres;

use crate::books::{Books, command};
use crate::cluster::{Cluster, dispatched_twice, drain, id_of};

const NODES: usize = 4;
const PRODUCERS: usize = 8;
const BATCH: usize = 20;
/// Between two kills.
const LIFE: Duration = Duration::from_millis(1_500);

/// ENG-7: clients that try again see nothing but 503s and lost connections, and what was acknowledged is delivered or
/// waits.
#[tokio::test(flavor = "multi_thread")]
async fn killed_nodes_lose_nothing_that_was_acknowledged() {
    let kills = if crate::is_long() { 60 } else { 8 };
    let database = Postgres::shared().database().unwrap();
    let mut cluster = Cluster::start(&vec![database.clone(); NODES]).await;
    let books = Arc::new(Books::default());
    let done = Arc::new(AtomicBool::new(false));
    // Nodes come back under their old addresses, so clients last.
    let clients = |of: &dyn Fn(usize) -> Client, first: usize| -> Vec<Client> {
        (0..NODES).map(|n| of((first + n) % NODES)).collect()
    };
    let mut tasks = Vec::new();
    for number in 0..PRODUCERS {
        let producers = clients(&|node| cluster.producer(node), number);
        let (books, done) = (Arc::clone(&books), Arc::clone(&done));
        tasks.push(tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                let ids: Vec<_> = (0..BATCH).map(|_| command(None).id.to_string()).collect();
                books.send(&producers, &ids).await;
            }
        }));
    }
    for number in 0..2 {
        let consumers = clients(&|node| cluster.consumer(node), number);
        let (books, done) = (Arc::clone(&books), Arc::clone(&done));
        tasks.push(tokio::spawn(consume(consumers, books, done)));
    }
    for kill in 0..kills {
        tokio::time::sleep(LIFE).await;
        let before = books.acknowledged();
        cluster.kill_and_restart(kill % NODES, &database);
        cluster.knows_the_cast(kill % NODES).await;
        assert!(books.acknowledged() > before || kill == 0, "the others go on");
    }
    done.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    // What a killed consumer's request had leased is there again when the leases end; until then it waits.
    books.delivered(drain(&cluster.consumer(0)).await);
    let in_flight =
        Postgres::shared().ask(&database, "SELECT message.id FROM delivery JOIN message ON seq = message");
    let waiting: Vec<_> = in_flight.unwrap().lines().map(str::to_owned).collect();
    let waits = waiting.len();
    let back: Vec<_> = waiting.iter().filter(|id| books.has_ended(id)).collect();
    assert!(back.is_empty(), "acknowledged, and there again: {back:?}");
    books.delivered(waiting);
    let totals = books.close();
    println!("{kills} kills, {NODES} nodes: {totals:?}, of which {waits} in flight");
    assert!(totals.lost > 0, "killing a node was noticed");
    assert_eq!((totals.missing, totals.false_duplicates), (0, 0), "{totals:?}");
    assert_eq!(dispatched_twice(&database), 0, "no id was dispatched a second time");
    // A thousand of them are known for what they are.
    let ids = books.ids();
    let again = Books::default();
    for some in ids.chunks(200).take(5) {
        again.send(&[cluster.producer(1)], some).await;
    }
    assert_eq!(again.close().acknowledged, ids.len().min(1_000));
    assert_eq!(again.acknowledged(), 0, "what was sent before is a duplicate on any node");
    assert_eq!(
        cluster.status(0).await["nodes"].as_array().unwrap().iter().filter(|it| is_heard(it)).count(),
        NODES
    );
}

fn is_heard(node: &serde_json::Value) -> bool {
    node["silent_seconds"].as_f64().unwrap() < 5.0
}

async fn consume(consumers: Vec<Client>, books: Arc<Books>, done: Arc<AtomicBool>) {
    for turn in 0.. {
        if done.load(Ordering::Relaxed) {
            return;
        }
        let consumer = &consumers[turn % consumers.len()];
        let visibility = Duration::from_secs(600);
        let received = match consumer.receive("pay-inbox", 10, visibility, Duration::from_secs(1)).await {
            Ok(received) => received,
            Err(error) => {
                books.failed(&error, &[]);
                continue;
            }
        };
        let receipts: Vec<_> = received.iter().map(snavio_sdk::Delivery::receipt).collect();
        if receipts.is_empty() {
            continue;
        }
        // Without an answer it may have ended or not: it is counted once either way, when it is seen to be gone.
        match consumer.acknowledge("pay-inbox", &receipts).await {
            Ok(_) => books.ended(received.iter().map(id_of)),
            Err(error) => {
                books.failed(&error, &[]);
                books.maybe_delivered(received.iter().map(id_of));
            }
        }
    }
}
