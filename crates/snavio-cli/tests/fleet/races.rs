//! Who wins when several nodes are sent the same ids at once (CLM-4, ENG-7).

use snavio_testbed::Postgres;

use crate::books::{Books, command};
use crate::cluster::{Cluster, dispatched_twice, drain};

const NODES: usize = 8;
const IDS: usize = 10_000;
/// Ids of one request.
const BATCH: usize = 100;

/// CLM-4, ENG-7: every id is sent to two to eight nodes at the same time, in different orders.
#[tokio::test(flavor = "multi_thread")]
async fn of_ten_thousand_ids_raced_by_eight_nodes_each_has_one_winner() {
    let database = Postgres::shared().database().unwrap();
    let cluster = Cluster::start(&vec![database.clone(); NODES]).await;
    let books = Books::default();
    let ids: Vec<_> = (0..IDS).map(|_| command(None).id.to_string()).collect();
    let mut racing = Vec::new();
    for (group, ids) in ids.chunks(BATCH).enumerate() {
        for racer in 0..2 + group % (NODES - 1) {
            // Each begins elsewhere, so that they meet in every order.
            let mut order = ids.to_vec();
            order.rotate_left(racer * BATCH / NODES);
            racing.push((cluster.producer((group + racer) % NODES), order));
        }
    }
    let requests = racing.len();
    let books = std::sync::Arc::new(books);
    let tasks: Vec<_> = racing
        .into_iter()
        .map(|(producer, order)| {
            let books = std::sync::Arc::clone(&books);
            tokio::spawn(async move { books.send(&[producer], &order).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    books.delivered(drain(&cluster.consumer(0)).await);
    let totals = books.close();
    println!("{NODES} nodes, {requests} requests of {BATCH} at once: {totals:?}");
    assert_eq!((totals.ids, totals.acknowledged, totals.delivered), (IDS, IDS, IDS), "never none");
    assert_eq!((totals.missing, totals.twice), (0, 0), "never two");
    assert_eq!(dispatched_twice(&database), 0);
    assert_eq!(books.acknowledged(), IDS, "each has one that is told so");
}
