//! Leases of tracked work over a restart: a worker keeps its lease until the lease ends (CLM-7, ENG-1).

use std::sync::Arc;
use std::time::Duration;

use snavio_model::claim::Status;
use snavio_model::delivery::processing::UnknownOutcome;
use snavio_model::delivery::{DeadReason, Receipt, ReceiptOutcome};
use snavio_model::id::Serial;

use super::processing::{
    answer, completed_report, count_audited, failed_report, finish_one, read_claim, tracked_route_with,
};
use super::samples::{at, ids, queue, receipt, receive, settle_one};
use super::{Backend, eventually, give_up_after};
use crate::{HeldDelivery, Received, Store};

const DONE: (ReceiptOutcome, Option<Status>) = (ReceiptOutcome::Done, Some(Status::Completed));

async fn reopen(backend: &dyn Backend, store: Arc<dyn Store>) -> Arc<dyn Store> {
    store.close().await;
    drop(store);
    backend.open().await
}

/// Two messages on one route, both leased at second 0 for this many seconds.
async fn lease_two(store: &dyn Store, on_unknown_outcome: UnknownOutcome, seconds: u64) -> [Received; 2] {
    for id in ["a", "b"] {
        settle_one(store, id, &tracked_route_with(on_unknown_outcome), at(0)).await;
    }
    let works = receive(store, "book", seconds, at(0)).await;
    assert_eq!(ids(&works), ["a", "b"]);
    works.try_into().expect("two of them")
}

async fn lapsed(store: &dyn Store, now: i64) -> usize {
    store.sweep(at(now)).await.expect("the store sweeps").lapsed
}

async fn extend(store: &dyn Store, receipt: Receipt, seconds: u64, now: i64) -> ReceiptOutcome {
    let longer = Duration::from_secs(seconds);
    store.extend(&queue("book"), vec![receipt], longer, at(now)).await.expect("the store extends")[0]
}

/// Asserts that no other worker gets the delivery, and that its claim is in progress under this very lease.
async fn expect_still_leased(store: &dyn Store, id: &str, work: &Received, until: i64, now: i64) {
    assert_eq!(lapsed(store, now).await, 0, "{id} at {now}");
    assert_eq!(ids(&receive(store, "book", 30, at(now)).await), [""; 0], "{id} at {now}");
    let claim = read_claim(store, id, now).await;
    assert_eq!(claim.status(at(now)), Status::Processing, "{id} at {now}");
    let lease = HeldDelivery::Leased { fence: work.fence, attempt: work.attempt, until: at(until) };
    assert_eq!(claim.held, Some(lease), "{id} at {now}");
}

async fn expect_unknown_outcome(store: &dyn Store, id: &str, now: i64) {
    eventually("it is in doubt", async || {
        store.sweep(at(now)).await.expect("the store sweeps");
        (read_claim(store, id, now).await.status(at(now)) == Status::InDoubt).then_some(())
    })
    .await;
}

/// CLM-7: two workers never have the work at once. A report in time counts. Work without a report is leased
/// again only after its deadline.
pub async fn work_is_not_leased_again_before_its_deadline(backend: &dyn Backend) {
    let store = backend.open().await;
    let [reported, silent] = lease_two(&*store, UnknownOutcome::Retry, 30).await;
    let store = reopen(backend, store).await;
    expect_still_leased(&*store, "a", &reported, 30, 1).await;
    let store = reopen(backend, store).await;
    expect_still_leased(&*store, "b", &silent, 30, 20).await;
    assert_eq!(finish_one(&*store, completed_report(receipt(&reported), "1"), 29).await, DONE);
    assert_eq!(store.answer(reported.delivery_id).await.expect("it can be read"), Some(answer("1")));

    assert!(receive(&*store, "book", 30, at(31)).await.is_empty(), "not before it is on record");
    assert_eq!(lapsed(&*store, 31).await, 1);
    assert_eq!(count_audited(&*store, "claim.lapsed").await, 1);
    let again = receive(&*store, "book", 30, at(32)).await;
    assert_eq!((ids(&again), again[0].attempt), (vec!["b"], 2));
    assert!(again[0].fence > silent.fence);
    assert_eq!(
        finish_one(&*store, completed_report(receipt(&silent), "1"), 33).await.0,
        ReceiptOutcome::Fenced
    );
    assert_eq!(finish_one(&*store, completed_report(receipt(&again[0]), "2"), 34).await, DONE);
    store.close().await;
}

/// CLM-7: where the route holds unknown outcomes, the deadline of the work itself decides.
pub async fn outcome_is_unknown_only_after_a_long_deadline(backend: &dyn Backend) {
    let store = backend.open().await;
    let [reported, silent] = lease_two(&*store, UnknownOutcome::Hold, 600).await;
    let store = reopen(backend, store).await;
    expect_still_leased(&*store, "a", &reported, 600, 1).await;
    expect_still_leased(&*store, "b", &silent, 600, 32).await;
    expect_still_leased(&*store, "b", &silent, 600, 599).await;
    assert_eq!(finish_one(&*store, completed_report(receipt(&reported), "1"), 599).await, DONE);
    expect_unknown_outcome(&*store, "b", 600).await;
    let letters = store.dead_letters("acme", None, Serial(0), 10).await.expect("they can be listed");
    assert_eq!(
        letters.iter().map(|dead_letter| dead_letter.letter.reason).collect::<Vec<_>>(),
        [DeadReason::InDoubt]
    );
    store.close().await;
}

/// CLM-7: an extension counts after a restart too, and the last one decides.
pub async fn extension_outlives_a_restart(backend: &dyn Backend) {
    for on_unknown_outcome in [UnknownOutcome::Retry, UnknownOutcome::Hold] {
        let store = backend.open().await;
        let name = format!("{on_unknown_outcome:?}");
        settle_one(&*store, &name, &tracked_route_with(on_unknown_outcome), at(0)).await;
        let work = receive(&*store, "book", 30, at(0)).await.remove(0);
        for (seconds, now) in [(500, 10), (100, 20)] {
            assert_eq!(extend(&*store, receipt(&work), seconds, now).await, ReceiptOutcome::Done);
        }
        let store = reopen(backend, store).await;
        expect_still_leased(&*store, &name, &work, 120, 31).await;
        assert_eq!(extend(&*store, receipt(&work), 100, 119).await, ReceiptOutcome::Done, "and again");
        let store = reopen(backend, store).await;
        expect_still_leased(&*store, &name, &work, 219, 218).await;
        match on_unknown_outcome {
            UnknownOutcome::Hold => expect_unknown_outcome(&*store, &name, 219).await,
            UnknownOutcome::Retry => {
                assert_eq!(lapsed(&*store, 219).await, 1);
                let again = receive(&*store, "book", 30, at(219)).await.remove(0);
                assert_eq!(extend(&*store, receipt(&work), 30, 220).await, ReceiptOutcome::Fenced);
                assert_eq!(finish_one(&*store, completed_report(receipt(&again), "2"), 221).await, DONE);
            }
        }
        store.close().await;
    }
}

/// CLM-6: a restart does not shorten the pause between two attempts.
pub async fn retry_pause_outlives_a_restart(backend: &dyn Backend) {
    let store = backend.open().await;
    let [work, last] = lease_two(&*store, UnknownOutcome::Hold, 30).await;
    finish_one(&*store, failed_report(receipt(&work), false, 300), 1).await;
    assert_eq!(finish_one(&*store, completed_report(receipt(&last), "1"), 1).await, DONE);
    let store = reopen(backend, store).await;
    assert_eq!(lapsed(&*store, 299).await, 0);
    assert!(receive(&*store, "book", 30, at(299)).await.is_empty());
    let waiting = read_claim(&*store, "a", 299).await;
    assert_eq!(waiting.status(at(299)), Status::Failed { is_final: false });
    assert_eq!(waiting.held, Some(HeldDelivery::Due(at(300))));
    let again = receive(&*store, "book", 30, at(300)).await;
    assert_eq!((ids(&again), again[0].attempt), (vec!["a"], 2));
    store.close().await;
}

/// CLM-7: if the lease of work lapsed before a restart, the work is free after it. A late report counts until
/// another worker leases the work.
pub async fn lapsed_work_is_free_after_a_restart(backend: &dyn Backend) {
    let store = backend.open().await;
    let [late, silent] = lease_two(&*store, UnknownOutcome::Retry, 30).await;
    assert_eq!(lapsed(&*store, 31).await, 2);
    let store = reopen(backend, store).await;
    assert_eq!(finish_one(&*store, completed_report(receipt(&late), "1"), 32).await, DONE);
    let again = receive(&*store, "book", 30, at(32)).await;
    assert_eq!((ids(&again), again[0].attempt), (vec!["b"], 2));
    assert!(again[0].fence > silent.fence);
    assert_eq!(count_audited(&*store, "claim.lapsed").await, 2, "each is on the record once");
    store.close().await;
}

/// CLM-7: a late worker does not take the work from the worker that has it.
pub async fn late_worker_frees_nothing_after_a_restart(backend: &dyn Backend) {
    let store = backend.open().await;
    let [zombie, _] = lease_two(&*store, UnknownOutcome::Retry, 30).await;
    assert_eq!(lapsed(&*store, 31).await, 2);
    let second = receive(&*store, "book", 30, at(32)).await.remove(0);
    assert_eq!(second.delivery_id, zombie.delivery_id);
    let store = reopen(backend, store).await;
    assert_eq!(
        finish_one(&*store, completed_report(receipt(&zombie), "1"), 33).await.0,
        ReceiptOutcome::Fenced
    );
    // A report of failure agrees with the record of that attempt.
    assert_eq!(
        finish_one(&*store, failed_report(receipt(&zombie), false, 0), 33).await.0,
        ReceiptOutcome::Done
    );
    assert_eq!(extend(&*store, receipt(&zombie), 0, 33).await, ReceiptOutcome::Fenced);
    expect_still_leased(&*store, "a", &second, 62, 34).await;
    assert_eq!(finish_one(&*store, completed_report(receipt(&second), "2"), 61).await, DONE);
    store.close().await;
}

/// CLM-7: work that was leased for a caller that hung up belongs to no worker, also after a restart.
pub async fn undelivered_work_is_free_after_a_restart(backend: &dyn Backend) {
    for wakes in 0.. {
        let store = backend.open().await;
        let name = format!("id-{wakes}");
        settle_one(&*store, &name, &tracked_route_with(UnknownOutcome::Hold), at(0)).await;
        let got = give_up_after(wakes, receive(&*store, "book", 600, at(0))).await;
        if got.is_none() {
            eventually("it is there again", async || {
                let waiting = store.attributes(&queue("book"), at(0)).await.expect("the store answers").depth;
                (waiting == 1).then_some(())
            })
            .await;
        }
        let store = reopen(backend, store).await;
        let works = match got {
            Some(works) => works,
            None => receive(&*store, "book", 600, at(1)).await,
        };
        assert_eq!((ids(&works), works[0].attempt), (vec![name.as_str()], 1), "after {wakes} wakes");
        assert_eq!(finish_one(&*store, completed_report(receipt(&works[0]), "1"), 2).await, DONE);
        store.close().await;
        if works[0].visible_at == at(600) {
            break;
        }
    }
}
