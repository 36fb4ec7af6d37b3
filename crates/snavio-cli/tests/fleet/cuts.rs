//! A network between node and database that cuts, delays and swallows (QUA-1, ENG-7).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use snavio_testbed::Postgres;

use crate::books::{Books, command};
use crate::cluster::{Cluster, dispatched_twice, drain};
use crate::proxy::{self, FAULTS, Faults};

const NODES: usize = 2;
/// Producers at the same time.
const PRODUCERS: usize = 8;
/// Ids of one request.
const BATCH: usize = 20;

/// QUA-1, CLM-4: nothing is dispatched twice, nothing acknowledged is lost, and nobody is told that a message was
/// there before when it was not.
#[tokio::test(flavor = "multi_thread")]
async fn statements_whose_answer_is_lost_are_settled_once() {
    let rounds = if crate::is_long() { 1_500 } else { 150 };
    let server = Postgres::shared();
    let database = server.database().unwrap();
    let faults = Arc::new(Faults::default());
    let port = proxy::start(server.port(), Arc::clone(&faults)).await;
    let through = database.replace(&server.port().to_string(), &port.to_string());
    let cluster = Arc::new(Cluster::start(&vec![through; NODES]).await);
    faults.one_in.store(5, Ordering::Relaxed);
    let books = Arc::new(Books::default());
    let producing: Vec<_> = (0..PRODUCERS)
        .map(|number| {
            let (cluster, books) = (Arc::clone(&cluster), Arc::clone(&books));
            tokio::spawn(async move {
                // Tries again at the other node, as a client behind a balancer does.
                let producers: Vec<_> = (0..NODES).map(|n| cluster.producer((number + n) % NODES)).collect();
                for _ in 0..rounds / PRODUCERS {
                    let ids: Vec<_> = (0..BATCH).map(|_| command(None).id.to_string()).collect();
                    books.send(&producers, &ids).await;
                }
            })
        })
        .collect();
    for producer in producing {
        producer.await.unwrap();
    }
    faults.one_in.store(0, Ordering::Relaxed);
    books.delivered(drain(&cluster.consumer(0)).await);
    let totals = books.close();
    println!("faults {FAULTS:?} fired {:?} times: {totals:?}", faults.fired());
    assert!(faults.fired().iter().all(|count| *count >= 3), "every fault fired: {:?}", faults.fired());
    assert_eq!(totals.acknowledged, rounds / PRODUCERS * PRODUCERS * BATCH);
    assert_eq!((totals.missing, totals.twice, totals.false_duplicates), (0, 0, 0), "{totals:?}");
    // A batch whose answer was lost is known again by its node: only who was told that nothing is known hears otherwise.
    let not_told = totals.ids - books.acknowledged();
    assert!(not_told as u64 <= totals.unavailable, "{not_told} ids were never answered with yes: {totals:?}");
    assert_eq!(dispatched_twice(&database), 0);
}
