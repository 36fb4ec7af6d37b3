//! Closing and opening again: the store keeps everything, and never gives out a serial twice (QUA-1, DLV-3).

pub use super::ordering::order_outlives_a_restart;
pub use super::processing::{late_worker_is_fenced_after_a_restart, work_outlives_a_restart};
use std::sync::Arc;

use snavio_model::bounds;
use snavio_model::delivery::ReceiptOutcome;
use snavio_model::id::Serial;
use snavio_model::refusal::{Reason, Refusal, Subject};
use snavio_model::registry::{Change, Entry, Tenant};
use snavio_model::settle::Outcome;
use snavio_model::telemetry::refused;

use super::samples::{
    KEEP_SECONDS, RECEIVES_MAX, acknowledge, act, at, event_intake, ids, message, notify, pay, queue, queued,
    receipt, receive, settle, settle_one,
};
use super::{Backend, eventually};
use crate::{Anchor, Store};

async fn reopen(backend: &dyn Backend, store: Arc<dyn Store>) -> Arc<dyn Store> {
    store.close().await;
    drop(store);
    backend.open().await
}

async fn fill(store: &dyn Store) {
    let tenant =
        Entry::Tenant(Tenant { name: "acme".parse().expect("a tenant"), contact: None, suspended: true });
    let (who, why) = ("operator".to_owned(), "a test".to_owned());
    let change =
        Change { version: 1, at: at(0), who, why, key: tenant.key(), before: None, after: Some(tenant) };
    store.apply(vec![change]).await.expect("the registry takes the change");
    settle_one(store, "dead", &notify(), at(0)).await;
    for _ in 0..4 {
        receive(store, "notify", 0, at(0)).await;
    }
    eventually("a dead letter", async || {
        store.sweep(at(0)).await.expect("the store sweeps");
        let letters = store.dead_letters("acme", None, Serial(0), 10).await.expect("they can be listed");
        letters.first().map(|_| ())
    })
    .await;
    settle_one(store, "waits", &notify(), at(1)).await;
    settle_one(store, "done", &pay(), at(2)).await;
    let done = receive(store, "pay", 30, at(2)).await;
    acknowledge(store, &queue("pay"), vec![receipt(&done[0])]).await.expect("the store acknowledges");
    let source = "acme/billing".parse().expect("a service");
    let record = refused(&source, &Subject::default(), &Refusal::new(Reason::AclDeny, ""), at(9));
    store.record(record.into_iter().collect()).await.expect("it is recorded");
    store.purge(&queue("nobody"), act("a test", at(3))).await.expect("the store purges");
}

/// QUA-1
pub async fn everything_is_kept(backend: &dyn Backend) {
    let store = backend.open().await;
    fill(&*store).await;
    let before = read_all(&*store).await;
    let store = reopen(backend, store).await;
    assert_eq!(read_all(&*store).await, before);
    if let Anchor::NotBefore(last) = store.anchor() {
        assert_eq!(last, at(9), "time goes on from the last commit");
    }
    let waiting = receive(&*store, "notify", 30, at(10)).await;
    assert_eq!(ids(&waiting), ["waits"]);
    assert_eq!(*waiting[0].message, message("acme/billing", "waits", at(1)));
    assert!(receive(&*store, "pay", 30, at(100)).await.is_empty(), "the acknowledged delivery is gone");
    store.close().await;
}

/// Reads everything that can be read, as text.
async fn read_all(store: &dyn Store) -> String {
    let registry = store.load().await.expect("the registry can be read");
    let changes = store.changes_since(0, 100).await.expect("the changelog can be read");
    let messages = store.messages("acme", Serial(0), 100).await.expect("messages can be read");
    let telemetry = store.telemetry("acme", Serial(0), 100).await.expect("telemetry can be read");
    let dead = store.dead_letters("acme", None, Serial(0), 100).await.expect("they can be listed");
    let audit = store.audit(Serial(0), 100).await.expect("the record can be read");
    assert!(!changes.is_empty() && messages.len() == 3 && telemetry.len() == 5);
    assert!(dead.len() == 1 && audit.len() == 1);
    format!("{registry:?}\n{changes:?}\n{messages:?}\n{telemetry:?}\n{dead:?}\n{audit:?}")
}

/// DLV-3
pub async fn serials_and_fencing_tokens_rise(backend: &dyn Backend) {
    let mut store = backend.open().await;
    let mut last = (None, Serial(0));
    for round in 0..4 {
        let delivery = queued(settle_one(&*store, &format!("id-{round}"), &notify(), at(0)).await);
        assert!(delivery > last.0, "{delivery:?} after {last:?}");
        let received = receive(&*store, "notify", 0, at(0)).await;
        let lowest = received.iter().map(|delivery| delivery.fence).min().expect("deliveries are there");
        assert!(lowest > last.1, "{lowest:?} after {last:?}");
        let highest = received.iter().map(|delivery| delivery.fence).max().expect("deliveries are there");
        last = (delivery, highest);
        store = reopen(backend, store).await;
    }
    store.close().await;
}

/// CLM-4, CLM-19
pub async fn claims_outlive_a_restart(backend: &dyn Backend) {
    let store = backend.open().await;
    settle_one(&*store, "a", &pay(), at(0)).await;
    let store = reopen(backend, store).await;
    let again = settle_one(&*store, "a", &pay(), at(1)).await;
    assert_eq!(again, Outcome::Duplicate { first_seen_at: at(0) });
    let store = reopen(backend, store).await;
    assert!(queued(settle_one(&*store, "a", &pay(), at(i64::from(KEEP_SECONDS))).await).is_some());
    store.close().await;
}

/// DLV-3
pub async fn receipt_from_before_a_restart_counts(backend: &dyn Backend) {
    let store = backend.open().await;
    for id in ["a", "b"] {
        settle_one(&*store, id, &notify(), at(0)).await;
    }
    let before = receive(&*store, "notify", 600, at(0)).await;
    let store = reopen(backend, store).await;
    let first = acknowledge(&*store, &queue("notify"), vec![receipt(&before[0])]).await;
    assert_eq!(first.expect("the store answers"), [ReceiptOutcome::Done]);
    if backend.is_shared() {
        assert!(receive(&*store, "notify", 600, at(599)).await.is_empty(), "it is still leased");
    }
    let when = if backend.is_shared() { 600 } else { 0 };
    let again = receive(&*store, "notify", 600, at(when)).await;
    assert_eq!((ids(&again), again[0].attempt), (vec!["b"], 2), "counts do not end with the process");
    let late = acknowledge(&*store, &queue("notify"), vec![receipt(&before[1])]).await;
    assert_eq!(late.expect("the store answers"), [ReceiptOutcome::Fenced]);
    store.close().await;
}

/// DLV-2, DLV-3: a restart must not make a dead letter of work that a worker is about to finish.
pub async fn last_attempt_outlives_a_restart(backend: &dyn Backend) {
    let store = backend.open().await;
    for id in ["a", "b"] {
        settle_one(&*store, id, &notify(), at(0)).await;
    }
    for _ in 1..RECEIVES_MAX {
        receive(&*store, "notify", 0, at(0)).await;
    }
    let last = receive(&*store, "notify", 600, at(0)).await;
    assert_eq!((last.len(), last[0].attempt), (2, RECEIVES_MAX));
    let store = reopen(backend, store).await;
    assert_eq!(store.sweep(at(1)).await.expect("the store sweeps").dead_letters, 0);
    assert!(receive(&*store, "notify", 30, at(1)).await.is_empty(), "it has had its attempts");
    let done = acknowledge(&*store, &queue("notify"), vec![receipt(&last[0])]).await;
    assert_eq!(done.expect("the store acknowledges"), [ReceiptOutcome::Done]);
    assert_eq!(store.sweep(at(601)).await.expect("the store sweeps").dead_letters, 1);
    store.close().await;
}

/// DLV-2: the age of a redriven delivery begins anew, although its serial is old. The age of older deliveries
/// behind it does not.
pub async fn redriven_delivery_does_not_keep_older_ones(backend: &dyn Backend) {
    let store = backend.open().await;
    settle_one(&*store, "redriven", &notify(), at(0)).await;
    for _ in 0..4 {
        receive(&*store, "notify", 0, at(0)).await;
    }
    let dead = eventually("a dead letter", async || {
        store.sweep(at(0)).await.expect("the store sweeps");
        let letters = store.dead_letters("acme", None, Serial(0), 10).await.expect("they can be listed");
        letters.first().map(|dead_letter| dead_letter.letter.delivery.id)
    })
    .await;
    settle_one(&*store, "elder", &notify(), at(0)).await;
    store.redrive("acme", vec![dead], act("fixed", at(1000))).await.expect("the store redrives");
    let store = reopen(backend, store).await;
    let retention = i64::try_from(bounds::QUEUE_RETENTION.as_secs()).expect("two weeks");
    let swept = store.sweep(at(retention)).await.expect("the store sweeps");
    assert_eq!(swept.dead_letters, 1);
    assert_eq!(ids(&receive(&*store, "notify", 30, at(retention)).await), ["redriven"]);
    store.close().await;
}

/// MSG-5
pub async fn event_outlives_a_restart(backend: &impl Backend) {
    let store = backend.open().await;
    let intake = event_intake("a", &notify(), at(0));
    settle(&*store, vec![intake.clone()], at(0)).await;
    store.close().await;
    let store = backend.open().await;
    let received = receive(&*store, "notify", 30, at(0)).await;
    assert_eq!(
        received.iter().map(|delivery| (*delivery.message).clone()).collect::<Vec<_>>(),
        [intake.message]
    );
    store.close().await;
}
