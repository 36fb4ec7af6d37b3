//! A network between node and database that cuts, delays and drops statements (QUA-1, ENG-7).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use snavio_testbed::Postgres;

use crate::books::{Tally, command};
use crate::cluster::{Cluster, dispatched_twice, drain};
use crate::proxy::{self, FAULTS, Faults};

const NODES: usize = 2;
/// The number of concurrent producers.
const PRODUCERS: usize = 8;
/// The number of ids in one request.
const BATCH: usize = 20;

/// QUA-1, CLM-4: no message is dispatched twice, no acknowledged one is lost, and no new message is called a
/// duplicate.
#[tokio::test(flavor = "multi_thread")]
async fn statements_with_lost_answer_are_settled_once() {
    let rounds = if crate::is_long() { 1_500 } else { 150 };
    let server = Postgres::shared();
    let database = server.database().unwrap();
    let faults = Arc::new(Faults::default());
    let port = proxy::start(server.port(), Arc::clone(&faults)).await;
    let through = database.replace(&server.port().to_string(), &port.to_string());
    let cluster = Arc::new(Cluster::start(&vec![through; NODES]).await);
    faults.one_in.store(5, Ordering::Relaxed);
    let tally = Arc::new(Tally::default());
    let producing: Vec<_> = (0..PRODUCERS)
        .map(|number| {
            let (cluster, tally) = (Arc::clone(&cluster), Arc::clone(&tally));
            tokio::spawn(async move {
                // The producer repeats a request at the other node, like a client behind a load balancer.
                let producers: Vec<_> = (0..NODES).map(|n| cluster.producer((number + n) % NODES)).collect();
                for _ in 0..rounds / PRODUCERS {
                    let ids: Vec<_> = (0..BATCH).map(|_| command(None).id.to_string()).collect();
                    tally.send(&producers, &ids).await;
                }
            })
        })
        .collect();
    for producer in producing {
        producer.await.unwrap();
    }
    faults.one_in.store(0, Ordering::Relaxed);
    tally.record_delivered(drain(&cluster.consumer(0)).await);
    let totals = tally.totals();
    println!("faults {FAULTS:?} fired {:?} times: {totals:?}", faults.fired());
    assert!(faults.fired().iter().all(|count| *count >= 3), "every fault fired: {:?}", faults.fired());
    assert_eq!(totals.acknowledged, rounds / PRODUCERS * PRODUCERS * BATCH);
    assert_eq!((totals.missing, totals.twice, totals.false_duplicates), (0, 0, 0), "{totals:?}");
    // A node recognises a batch whose answer was lost. Only an id with a 503 may be answered as a duplicate
    // without an earlier acceptance.
    let never_accepted = totals.ids - tally.accepted_count();
    assert!(
        never_accepted as u64 <= totals.unavailable,
        "{never_accepted} ids were never answered as accepted: {totals:?}"
    );
    assert_eq!(dispatched_twice(&database), 0);
}
