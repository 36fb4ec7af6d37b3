//! Leases of tracked work in the embedded store's file: the row when the worker gets its lease, and the fate
//! of leases without a row.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::time::Duration;

use snavio_model::claim::Status;
use snavio_model::delivery::ReceiptOutcome;
use snavio_model::delivery::processing::UnknownOutcome;
use snavio_store::conformance::processing::{completed_report, finish_one, read_claim, tracked_route_with};
use snavio_store::conformance::samples::{at, ids, notify, queue, receipt, receive, settle_one};
use snavio_store::engine::sqlite::{EmbeddedStore, FILE, Options, backup, check_integrity, restore};
use snavio_store::{Ledger, Queue, Received, Store};

fn open(folder: &Path) -> EmbeddedStore {
    EmbeddedStore::open(&Options::new(folder)).unwrap()
}

/// Settles a message and leases its work at second 0 for this many seconds.
async fn lease_message(
    store: &EmbeddedStore,
    id: &str,
    on_unknown_outcome: UnknownOutcome,
    seconds: u64,
) -> Received {
    settle_one(store, id, &tracked_route_with(on_unknown_outcome), at(0)).await;
    receive(store, "book", seconds, at(0)).await.remove(0)
}

/// Reads the lease of the only delivery from its row.
fn read_lease(folder: &Path) -> (Option<String>, Option<i64>, Option<i64>) {
    let file = rusqlite::Connection::open(folder.join(FILE)).unwrap();
    let lease = "SELECT held, visible_at, fence FROM delivery";
    file.query_row(lease, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap()
}

/// CLM-7: where a person must decide about a lapsed lease, a worker gets a lease only once a crash can no
/// longer undo it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_of_a_holding_route_is_stored_before_returned() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let work = lease_message(&store, "a", UnknownOutcome::Hold, 600).await;
    let leased_until = |until| (Some("leased".to_owned()), Some(at(until).0), Some(work.fence.0));
    assert_eq!(read_lease(folder.path()), leased_until(600));
    for seconds in 1..20 {
        let longer = Duration::from_secs(seconds);
        let extended = store.extend(&queue("book"), vec![receipt(&work)], longer, at(600)).await.unwrap();
        assert_eq!(extended, [ReceiptOutcome::Done]);
        assert_eq!(read_lease(folder.path()), leased_until(600 + i64::try_from(seconds).unwrap()));
    }
    store.close().await;
}

/// DLV-2: deliveries without a claim cause no commits for leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_without_a_claim_is_in_memory_only() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    settle_one(&store, "a", &notify(), at(0)).await;
    let lease = receive(&store, "notify", 600, at(0)).await.remove(0);
    // This commit follows the commit of the receive count.
    settle_one(&store, "b", &tracked_route_with(UnknownOutcome::Hold), at(0)).await;
    let commits = store.figures().commits;
    for now in 0..20 {
        let longer = Duration::from_secs(600);
        let extended = store.extend(&queue("notify"), vec![receipt(&lease)], longer, at(now)).await.unwrap();
        assert_eq!(extended, [ReceiptOutcome::Done]);
    }
    store.close().await;
    assert_eq!(store.figures().commits, commits);
    assert_eq!(read_lease(folder.path()), (None, None, None));
    drop(store);
    let store = open(folder.path());
    assert_eq!(ids(&receive(&store, "notify", 30, at(1)).await), ["a"], "and is handed out at once");
    store.close().await;
}

/// Restores the copy, like a crash that lost everything since then, and opens the store.
async fn restore_copy(copy: &Path, store: EmbeddedStore, folder: &Path) -> EmbeddedStore {
    store.close().await;
    restore(copy, folder, false, at(60)).unwrap();
    assert_eq!(check_integrity(folder).unwrap(), Vec::<String>::new());
    open(folder)
}

/// CLM-7: a lease counts although its row was lost: its worker's report counts, and a report under an earlier
/// lease does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_with_a_lost_row_counts_until_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("old"));
    let zombie = lease_message(&store, "a", UnknownOutcome::Retry, 30).await;
    assert_eq!(store.sweep(at(31)).await.unwrap().lapsed, 1);
    let copy = folder.path().join("copy.db");
    backup(&folder.path().join("old"), &copy).unwrap();
    let lost = receive(&store, "book", 600, at(32)).await.remove(0);
    let store = restore_copy(&copy, store, &folder.path().join("new")).await;
    assert_eq!(
        finish_one(&store, completed_report(receipt(&lost), "2"), 33).await.1,
        Some(Status::Completed)
    );
    assert_eq!(
        finish_one(&store, completed_report(receipt(&zombie), "1"), 34).await.0,
        ReceiptOutcome::Fenced
    );
    store.close().await;
}

/// ENG-2, CLM-7: a restored store has the leases at the time of its copy, and they end when they would have
/// ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_store_has_the_leases_of_its_copy() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("old"));
    let work = lease_message(&store, "a", UnknownOutcome::Hold, 600).await;
    let copy = folder.path().join("copy.db");
    backup(&folder.path().join("old"), &copy).unwrap();
    let store = restore_copy(&copy, store, &folder.path().join("new")).await;
    assert_eq!(store.sweep(at(599)).await.unwrap().lapsed, 0);
    assert!(receive(&store, "book", 30, at(599)).await.is_empty());
    assert_eq!(
        finish_one(&store, completed_report(receipt(&work), "1"), 599).await.1,
        Some(Status::Completed)
    );
    store.close().await;
}

/// CLM-7, DLV-4: a delivery that was given back without an attempt belongs to no worker, also after a
/// restart. Its outcome is not unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unattempted_work_is_not_unknown_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let work = lease_message(&store, "a", UnknownOutcome::Hold, 600).await;
    store.take_back(&queue("book"), vec![receipt(&work)], at(10)).await.unwrap();
    assert_eq!(read_claim(&store, "a", 1).await.status(at(1)), Status::Processing);
    store.close().await;
    drop(store);
    let store = open(folder.path());
    assert_eq!(store.sweep(at(601)).await.unwrap().lapsed, 0);
    let again = receive(&store, "book", 30, at(601)).await;
    assert_eq!((ids(&again), again[0].attempt), (vec!["a"], 1));
    assert_eq!(
        finish_one(&store, completed_report(receipt(&again[0]), "1"), 602).await.1,
        Some(Status::Completed)
    );
    store.close().await;
}

/// DLV-4: a delivery that was given back without an attempt has spent none, also if it has no claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unattempted_delivery_spends_no_attempt_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    settle_one(&store, "a", &notify(), at(0)).await;
    for again in 0..3 {
        let lease = receive(&store, "notify", 600, at(again)).await.remove(0);
        assert_eq!(lease.attempt, 1);
        store.take_back(&queue("notify"), vec![receipt(&lease)], at(again + 1)).await.unwrap();
        store.close().await;
        drop(store);
        store = open(folder.path());
    }
    store.close().await;
}
