//! Concurrent sends of the same ids to several nodes (CLM-4, ENG-7).

use snavio_testbed::Postgres;

use crate::books::{Tally, command};
use crate::cluster::{Cluster, dispatched_twice, drain};

const NODES: usize = 8;
const IDS: usize = 10_000;
/// The number of ids in one request.
const BATCH: usize = 100;

/// CLM-4, ENG-7: every id is sent to two to eight nodes at the same time, in different orders.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_ids_raced_by_eight_nodes_dispatch_once() {
    let database = Postgres::shared().database().unwrap();
    let cluster = Cluster::start(&vec![database.clone(); NODES]).await;
    let tally = Tally::default();
    let ids: Vec<_> = (0..IDS).map(|_| command(None).id.to_string()).collect();
    let mut racing = Vec::new();
    for (group, ids) in ids.chunks(BATCH).enumerate() {
        for racer in 0..2 + group % (NODES - 1) {
            // Each request starts with another id, so that the requests meet in every order.
            let mut order = ids.to_vec();
            order.rotate_left(racer * BATCH / NODES);
            racing.push((cluster.producer((group + racer) % NODES), order));
        }
    }
    let requests = racing.len();
    let tally = std::sync::Arc::new(tally);
    let tasks: Vec<_> = racing
        .into_iter()
        .map(|(producer, order)| {
            let tally = std::sync::Arc::clone(&tally);
            tokio::spawn(async move { tally.send(&[producer], &order).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    tally.record_delivered(drain(&cluster.consumer(0)).await);
    let totals = tally.totals();
    println!("{NODES} nodes, {requests} requests of {BATCH} at once: {totals:?}");
    assert_eq!(
        (totals.ids, totals.acknowledged, totals.delivered),
        (IDS, IDS, IDS),
        "every id is accepted and delivered"
    );
    assert_eq!((totals.missing, totals.twice), (0, 0), "no id is delivered twice");
    assert_eq!(dispatched_twice(&database), 0);
    assert_eq!(tally.accepted_count(), IDS, "each id has one answer that it is accepted");
}
