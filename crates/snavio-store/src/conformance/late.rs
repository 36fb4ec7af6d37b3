//! Reports that come late or twice have the same result on every engine (CLM-4, CLM-7).

use std::sync::Arc;

use snavio_model::claim::{ClaimPolicy, Status};
use snavio_model::delivery::ReceiptOutcome;
use snavio_model::id::Serial;
use snavio_model::registry::{BoundRoute, Route};

use super::processing::{
    completed_report, count_audited, failed_report, finish_one, lease_new, receive_one, tracked_route,
};
use super::samples::{at, queue, receipt, settle_one};
use crate::{Finished, OnRecord, Report, Store};

async fn finish_all(store: &dyn Store, reports: Vec<Report>, now: i64) -> Vec<Finished> {
    store.finish(&queue("book"), reports, "acme/bot", at(now)).await.expect("the store finishes")
}

/// CLM-4: the second report of one call is judged by the state that the first has left.
pub async fn repeated_report_in_one_call_is_recognised(store: &Arc<dyn Store>) {
    let (done, status) = (ReceiptOutcome::Done, Some(Status::Completed));
    let work = lease_new(&**store, "done", 0).await;
    let twice = vec![completed_report(receipt(&work), "1"), completed_report(receipt(&work), "1")];
    assert_eq!(
        finish_all(&**store, twice, 1).await,
        [Finished::new(done, status), Finished::before(done, status)]
    );

    let work = lease_new(&**store, "again", 2).await;
    let status = Some(Status::Failed { is_final: false });
    let twice = vec![failed_report(receipt(&work), false, 9), failed_report(receipt(&work), false, 99)];
    assert_eq!(
        finish_all(&**store, twice, 3).await,
        [Finished::new(done, status), Finished::before(done, status)]
    );
    assert_eq!(receive_one(&**store, 9).await.attempt, 2, "its pause is the first one's");

    let work = lease_new(&**store, "both", 10).await;
    let both = vec![completed_report(receipt(&work), "1"), failed_report(receipt(&work), true, 0)];
    let [first, second] = finish_all(&**store, both, 11).await[..] else { panic!("there were two reports") };
    assert_eq!((first.outcome, first.status), (done, Some(Status::Completed)));
    assert_eq!((second.outcome, second.status), (ReceiptOutcome::Fenced, Some(Status::Completed)));
    assert_eq!((second.put_on_record, count_audited(&**store, "claim.fenced").await), (true, 1));
}

/// CLM-7: a late report takes nothing from the newest report of its call. No more late reports go on record
/// than the delivery had attempts.
pub async fn newest_report_counts_beside_late_ones(store: &Arc<dyn Store>) {
    let zombie = lease_new(&**store, "a", 0).await;
    store.sweep(at(31)).await.expect("the store sweeps");
    let second = receive_one(&**store, 32).await;
    let late = completed_report(receipt(&zombie), "1");
    let reports = vec![late.clone(), completed_report(receipt(&second), "2"), late.clone(), late];
    let finished = finish_all(&**store, reports, 33).await;
    let outcomes: Vec<_> =
        finished.iter().map(|finished| (finished.outcome, finished.put_on_record)).collect();
    let fenced = ReceiptOutcome::Fenced;
    let expected = [(fenced, true), (ReceiptOutcome::Done, false), (fenced, true), (fenced, false)];
    assert_eq!(outcomes, expected);
    let status = finish_one(&**store, completed_report(receipt(&second), "2"), 34).await;
    assert_eq!(status, (ReceiptOutcome::Done, Some(Status::Completed)));
}

/// CLM-7, DLV-3
pub async fn report_without_a_claim_is_judged_by_its_delivery(store: &Arc<dyn Store>) {
    let route =
        Arc::new(BoundRoute::new(Route { claim: ClaimPolicy::None, ..tracked_route().route.clone() }));
    settle_one(&**store, "a", &route, at(0)).await;
    let zombie = receive_one(&**store, 0).await;
    store.sweep(at(31)).await.expect("the store sweeps");
    let second = receive_one(&**store, 32).await;
    let late = completed_report(receipt(&zombie), "1");
    assert_eq!(
        finish_one(&**store, late.clone(), 33).await,
        (ReceiptOutcome::Fenced, None),
        "another worker has it"
    );
    let twice = vec![completed_report(receipt(&second), "2"), completed_report(receipt(&second), "2")];
    let [first, again] = finish_all(&**store, twice, 34).await[..] else { panic!("there were two reports") };
    assert_eq!((first.outcome, again.outcome), (ReceiptOutcome::Done, ReceiptOutcome::Gone));
    assert_eq!(finish_one(&**store, late, 35).await, (ReceiptOutcome::Gone, None), "the delivery has ended");
}

/// CLM-7, TEL-1
pub async fn fenced_record_shows_the_present_lease(store: &Arc<dyn Store>) {
    let zombie = lease_new(&**store, "a", 0).await;
    store.sweep(at(31)).await.expect("the store sweeps");
    let second = receive_one(&**store, 32).await;
    let late = || Report { on_record: OnRecord::Others(0), ..completed_report(receipt(&zombie), "1") };
    let newest = async || {
        let records = store.telemetry("acme", Serial(0), 1000).await.expect("telemetry can be read");
        let fenced =
            records.iter().rfind(|record| record.kind == "snavio.claim.fenced").expect("one is on record");
        let audit = store.audit(Serial(0), 1000).await.expect("the record can be read");
        let outcome = audit.last().expect("one is on record").outcome.clone();
        let status = fenced.body["status"].as_str().expect("a status").to_owned();
        assert!(outcome.contains(&format!("is {status};")), "{outcome}");
        let (fence, newest) = (fenced.body["fence"].as_i64(), fenced.body["newest_fence"].as_i64());
        assert_eq!((fence, newest), (Some(zombie.fence.0), Some(second.fence.0)), "{fenced:?}");
        status
    };
    finish_all(&**store, vec![late()], 33).await;
    assert_eq!(newest().await, "PROCESSING", "another worker has it");
    finish_all(&**store, vec![late(), failed_report(receipt(&second), false, 99)], 34).await;
    assert_eq!(newest().await, "PROCESSING", "it came before the failure of its call");
    finish_all(&**store, vec![late()], 35).await;
    assert_eq!(newest().await, "FAILED", "and this one after it");

    let work = lease_new(&**store, "b", 40).await;
    store.sweep(at(71)).await.expect("the store sweeps");
    let third = receive_one(&**store, 72).await;
    let both = vec![failed_report(receipt(&third), false, 99), completed_report(receipt(&work), "1")];
    finish_all(&**store, both, 73).await;
    let audit = store.audit(Serial(0), 1000).await.expect("the record can be read");
    assert!(audit.last().expect("one is on record").outcome.contains("is FAILED;"), "{audit:?}");
}
