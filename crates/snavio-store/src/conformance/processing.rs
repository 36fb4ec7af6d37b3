//! Claims of tracked work: completed once, failed and tried again, fenced, or with an unknown outcome (CLM-2,
//! CLM-4 to CLM-7, CLM-9, CLM-11).

use std::sync::Arc;
use std::time::Duration;

use snavio_model::claim::{Claim, ClaimKey, ClaimPolicy, IdKey, Status};
use snavio_model::delivery::processing::{Answer, Ending, Processing, ProcessingKind, Retry, UnknownOutcome};
use snavio_model::delivery::{DeadReason, Receipt, ReceiptOutcome};
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::TenantName;
use snavio_model::registry::{BoundRoute, Route};
use snavio_model::settle::Outcome;

use super::samples::{RECEIVES_MAX, act, at, queue, queued, receipt, receive, route, settle_one};
use super::{Backend, eventually};
use crate::{ClaimFilter, Finished, HeldDelivery, OnRecord, Received, Report, Store, StoredClaim};

/// A tracked route that retries unknown outcomes.
pub fn tracked_route() -> Arc<BoundRoute> {
    tracked_route_with(UnknownOutcome::Retry)
}

/// A tracked route with this setting for unknown outcomes.
pub fn tracked_route_with(on_unknown_outcome: UnknownOutcome) -> Arc<BoundRoute> {
    let mut route = route("book", ClaimPolicy::ledger()).route.clone();
    route.processing = Processing { on_unknown_outcome, ..Processing::of(ProcessingKind::Tracked) };
    Arc::new(BoundRoute::new(route))
}

pub(super) fn answer(body: &str) -> Answer {
    let content_type = Some("application/json".to_owned());
    Answer { status: 201, content_type, body: body.to_owned().into() }
}

/// The destinations that store responses.
fn kept_at() -> Vec<Arc<str>> {
    vec!["acme/bot:book".into()]
}

/// A report that the work is done, with this answer.
pub fn completed_report(receipt: Receipt, body: &str) -> Report {
    let reference = Some(format!("JE-{body}"));
    let ending = Ending::Completed { answer: Some(answer(body)), reference, note: None };
    Report { receipt, ending, retry: Retry::At(at(0)), kept_at: kept_at(), on_record: OnRecord::default() }
}

/// A report that the work failed, and when it is due again.
pub fn failed_report(receipt: Receipt, is_final: bool, retry_at: i64) -> Report {
    let error = "no".to_owned();
    let ending = Ending::Failed { error, is_final, answer: Some(answer("no")), retry_after: None };
    Report {
        receipt,
        ending,
        retry: Retry::At(at(retry_at)),
        kept_at: kept_at(),
        on_record: OnRecord::default(),
    }
}

pub(super) fn unknown_report(receipt: Receipt) -> Report {
    let ending = Ending::Unknown { error: "silence".to_owned() };
    Report { receipt, ending, retry: Retry::At(at(0)), kept_at: kept_at(), on_record: OnRecord::default() }
}

/// Reports, and returns the result.
pub async fn finish_one(store: &dyn Store, report: Report, now: i64) -> (ReceiptOutcome, Option<Status>) {
    let finished = store.finish(&queue("book"), vec![report], "acme/bot", at(now)).await;
    let Finished { outcome, status, .. } = finished.expect("the store finishes")[0];
    (outcome, status)
}

/// Reads the only claim of an id.
pub async fn read_claim(store: &dyn Store, id: &str, now: i64) -> StoredClaim {
    let key = IdKey { id: MessageId::stored(id), tenant: TenantName::new("acme").expect("a tenant") };
    let mut found = store.claims_of(&key, at(now)).await.expect("claims can be looked up");
    assert_eq!(found.len(), 1, "{id}");
    found.remove(0)
}

/// Settles a new message and leases its work for thirty seconds.
pub async fn lease_new(store: &dyn Store, id: &str, now: i64) -> Received {
    assert!(queued(settle_one(store, id, &tracked_route(), at(now)).await).is_some());
    receive_one(store, now).await
}

pub(super) async fn receive_one(store: &dyn Store, now: i64) -> Received {
    let mut received = receive(store, "book", 30, at(now)).await;
    assert_eq!(received.len(), 1, "at {now}");
    received.remove(0)
}

pub(super) async fn count_audited(store: &dyn Store, action: &str) -> usize {
    let entries = store.audit(Serial(0), 1000).await.expect("the record can be read");
    entries.iter().filter(|entry| entry.action == action).count()
}

async fn count_records(store: &dyn Store, kind: &str) -> usize {
    let records = store.telemetry("acme", Serial(0), 1000).await.expect("telemetry can be read");
    records.iter().filter(|record| record.kind == kind).count()
}

/// CLM-2, CLM-4, CLM-5, CLM-9
pub async fn what_is_reported_done_is_complete_and_answered_again(store: &Arc<dyn Store>) {
    let work = lease_new(&**store, "a", 0).await;
    assert_eq!(work.destination.as_deref(), Some("acme/bot:book"));
    let taken = read_claim(&**store, "a", 1).await;
    assert_eq!(taken.status(at(1)), Status::Processing);
    let lease = HeldDelivery::Leased { fence: work.fence, attempt: 1, until: at(30) };
    assert_eq!(taken.held, Some(lease));
    let done = finish_one(&**store, completed_report(receipt(&work), "1"), 2).await;
    assert_eq!(done, (ReceiptOutcome::Done, Some(Status::Completed)));

    let claim = read_claim(&**store, "a", 3).await;
    let progress = claim.claim.progress.as_ref().expect("it is followed");
    assert_eq!((progress.status, progress.attempts, progress.ended_at), (Status::Completed, 1, Some(at(2))));
    assert_eq!((progress.reference.as_deref(), progress.fence), (Some("JE-1"), Some(work.fence)));
    assert_eq!(claim.hash, Some(work.message.domain_hash));
    assert_eq!(claim.correlation.as_ref(), Some(&work.message.correlation));
    assert_eq!(claim.held, None);
    let kept = store.answer(work.delivery_id).await.expect("answers can be read");
    assert_eq!(kept, Some(answer("1")));
    let again = settle_one(&**store, "a", &tracked_route(), at(4)).await;
    let seen = Outcome::Seen {
        delivery: work.delivery_id,
        is_new: false,
        status: Status::Completed,
        first_seen_at: at(0),
        kept_until: claim.claim.expires_at,
    };
    assert_eq!(again, seen);
    assert!(receive(&**store, "book", 30, at(1000)).await.is_empty(), "nothing is handed out again");
}

/// CLM-3
pub async fn an_answer_is_kept_where_the_route_says_so(store: &Arc<dyn Store>) {
    let policy = ClaimPolicy::Event { keep_seconds: 86_400, answers: true };
    let route = BoundRoute::new(Route { claim: policy, ..tracked_route().route.clone() });
    settle_one(&**store, "a", &Arc::new(route), at(0)).await;
    let work = receive_one(&**store, 0).await;
    let elsewhere =
        Report { kept_at: vec!["acme/bot:other".into()], ..completed_report(receipt(&work), "1") };
    assert_eq!(finish_one(&**store, elsewhere, 1).await, (ReceiptOutcome::Done, Some(Status::Completed)));
    assert_eq!(store.answer(work.delivery_id).await.expect("answers can be read"), None);
    let progress = read_claim(&**store, "a", 2).await.claim.progress.expect("it is followed");
    assert_eq!(progress.reference.as_deref(), Some("JE-1"), "the reference is, always");
}

/// CLM-5: the stored response of an audited claim does not depend on the route's setting at the time of the
/// report.
pub async fn audited_claim_keeps_its_response_on_any_route(store: &Arc<dyn Store>) {
    let work = lease_new(&**store, "a", 0).await;
    let nowhere = Report { kept_at: Vec::new(), ..completed_report(receipt(&work), "1") };
    assert_eq!(finish_one(&**store, nowhere, 1).await, (ReceiptOutcome::Done, Some(Status::Completed)));
    let kept = store.answer(work.delivery_id).await.expect("answers can be read");
    assert_eq!(kept, Some(answer("1")));
}

/// CLM-6: the worker that releases the work may give a reason.
pub async fn release_reason_is_in_the_claim(store: &Arc<dyn Store>) {
    let mut work = lease_new(&**store, "a", 0).await;
    for (why, expected) in [(None, "it was given back"), (Some("no account 1200"), "no account 1200")] {
        let back = Report::given_back(receipt(&work), at(1), why);
        let ended = finish_one(&**store, back, 1).await;
        assert_eq!(ended, (ReceiptOutcome::Done, Some(Status::Failed { is_final: false })));
        let progress = read_claim(&**store, "a", 1).await.claim.progress.expect("it is followed");
        assert_eq!(progress.error.as_deref(), Some(expected));
        work = receive_one(&**store, 2).await;
    }
}

/// CLM-7: worker A stalls past its deadline, worker B completes with answer 2, and A comes back with answer
/// 1.
pub async fn late_worker_is_fenced_and_recorded(store: &Arc<dyn Store>) {
    let zombie = lease_new(&**store, "a", 0).await;
    assert!(receive(&**store, "book", 30, at(31)).await.is_empty(), "not before it is on record");
    let swept = store.sweep(at(31)).await.expect("the store sweeps");
    assert_eq!(swept.lapsed, 1);
    let lapsed = read_claim(&**store, "a", 31).await;
    assert_eq!(lapsed.status(at(31)), Status::Failed { is_final: false });
    assert_eq!(count_audited(&**store, "claim.lapsed").await, 1);

    let second = receive_one(&**store, 32).await;
    assert!(second.fence > zombie.fence);
    assert_eq!((second.delivery_id, second.attempt), (zombie.delivery_id, 2));
    assert_eq!(
        read_claim(&**store, "a", 33).await.status(at(33)),
        Status::Processing,
        "it is taken up again"
    );
    let early = finish_one(&**store, completed_report(receipt(&zombie), "1"), 33).await;
    assert_eq!(early.0, ReceiptOutcome::Fenced, "while the other worker has it");
    let done = finish_one(&**store, completed_report(receipt(&second), "2"), 34).await;
    assert_eq!(done, (ReceiptOutcome::Done, Some(Status::Completed)));
    for report in [completed_report(receipt(&zombie), "1"), failed_report(receipt(&zombie), true, 99)] {
        let late = finish_one(&**store, report, 35).await;
        assert_eq!(late, (ReceiptOutcome::Fenced, Some(Status::Completed)));
    }
    assert_eq!(store.answer(second.delivery_id).await.expect("it can be read"), Some(answer("2")));
    let claim = read_claim(&**store, "a", 36).await.claim.progress.expect("it is followed");
    assert_eq!((claim.reference.as_deref(), claim.fence), (Some("JE-2"), Some(second.fence)));
    assert_eq!(count_audited(&**store, "claim.fenced").await, 3);
    assert_eq!(count_records(&**store, "snavio.claim.fenced").await, 3);
}

/// CLM-7: invented fencing tokens fill no permanent record. Tokens that can have been issued go on record,
/// but no more of them than there were attempts.
pub async fn invented_fencing_tokens_are_not_recorded(store: &Arc<dyn Store>) {
    let other = lease_new(&**store, "other", 0).await;
    finish_one(&**store, completed_report(receipt(&other), "0"), 0).await;
    let zombie = lease_new(&**store, "a", 0).await;
    store.sweep(at(31)).await.expect("the store sweeps");
    let second = receive_one(&**store, 32).await;
    let late = async |fence: i64, on_record: OnRecord| {
        let receipt = Receipt { delivery_id: second.delivery_id, fence: Serial(fence) };
        let report = Report { on_record, ..completed_report(receipt, "1") };
        let finished = store.finish(&queue("book"), vec![report], "acme/bot", at(33)).await;
        let finished = finished.expect("it finishes").remove(0);
        assert_eq!(finished.outcome, ReceiptOutcome::Fenced);
        finished.put_on_record
    };
    let none = OnRecord::default();
    for fence in [0, -1, second.fence.0 + 1, i64::MAX] {
        assert!(!late(fence, none).await, "{fence}");
    }
    assert!(!late(zombie.fence.0, OnRecord::This).await, "it is on record");
    assert!(!late(zombie.fence.0, OnRecord::Others(2)).await, "no more attempts were made");
    assert_eq!(count_audited(&**store, "claim.fenced").await, 0);
    assert!(late(zombie.fence.0, OnRecord::Others(1)).await);
    finish_one(&**store, completed_report(receipt(&second), "2"), 34).await;
    for fence in [0, -1, 1 << 52, i64::MAX] {
        assert!(!late(fence, none).await, "{fence}, after the end");
    }
    let fences = [zombie.fence.0].into_iter().chain(zombie.fence.0 - 50..=second.fence.0);
    let flood: Vec<_> = fences
        .map(|fence| completed_report(Receipt { fence: Serial(fence), ..receipt(&zombie) }, "1"))
        .collect();
    let flooded = store.finish(&queue("book"), flood, "acme/bot", at(35)).await.expect("it finishes");
    let counted = flooded.iter().filter(|finished| finished.put_on_record).count();
    assert!((1..=2).contains(&counted), "no more than attempts, also in one call: {counted}");
    assert_eq!(count_audited(&**store, "claim.fenced").await, 1 + counted);
    assert_eq!(count_records(&**store, "snavio.claim.fenced").await, 1 + counted);
    let waiting = settle_one(&**store, "waits", &tracked_route(), at(36)).await;
    let waits = queued(waiting).expect("it is queued");
    let report = completed_report(Receipt { delivery_id: waits, fence: second.fence }, "1");
    let finished = store.finish(&queue("book"), vec![report], "acme/bot", at(36)).await.expect("it finishes");
    assert_eq!(
        (finished[0].outcome, finished[0].put_on_record),
        (ReceiptOutcome::Fenced, false),
        "it was never leased"
    );
}

/// CLM-4: a worker that got no answer to its report sends it again, and gets the answer.
pub async fn a_report_whose_answer_was_lost_is_recognised(store: &Arc<dyn Store>) {
    let work = lease_new(&**store, "a", 0).await;
    for told_before in [false, true, true] {
        let finished = store
            .finish(&queue("book"), vec![completed_report(receipt(&work), "1")], "acme/bot", at(1))
            .await;
        let (outcome, status) = (ReceiptOutcome::Done, Some(Status::Completed));
        assert_eq!(
            finished.expect("the store finishes"),
            [Finished { told_before, ..Finished::new(outcome, status) }]
        );
    }
    let failing = lease_new(&**store, "b", 1).await;
    for told_before in [false, true] {
        let finished = store
            .finish(&queue("book"), vec![failed_report(receipt(&failing), true, 0)], "acme/bot", at(1))
            .await;
        let (outcome, status) = (ReceiptOutcome::Done, Some(Status::Failed { is_final: true }));
        assert_eq!(
            finished.expect("the store finishes"),
            [Finished { told_before, ..Finished::new(outcome, status) }]
        );
    }
    let pausing = lease_new(&**store, "c", 1).await;
    for (retry_at, told_before) in [(60, false), (90, true)] {
        let report = failed_report(receipt(&pausing), false, retry_at);
        let finished = store.finish(&queue("book"), vec![report], "acme/bot", at(1)).await;
        let (outcome, status) = (ReceiptOutcome::Done, Some(Status::Failed { is_final: false }));
        assert_eq!(
            finished.expect("the store finishes"),
            [Finished { told_before, ..Finished::new(outcome, status) }]
        );
        assert_eq!(
            read_claim(&**store, "c", 2).await.held,
            Some(HeldDelivery::Due(at(60))),
            "its pause goes on"
        );
    }
    let longer = Duration::from_secs(600);
    let extended = store.extend(&queue("book"), vec![receipt(&pausing)], longer, at(2)).await;
    assert_eq!(extended.expect("the store extends"), [ReceiptOutcome::Done], "from before it was given back");
    let report = failed_report(receipt(&pausing), false, 90);
    let finished = store.finish(&queue("book"), vec![report], "acme/bot", at(3)).await;
    assert!(finished.expect("the store finishes")[0].told_before);
    let held = read_claim(&**store, "c", 4).await.held;
    assert_eq!(held, Some(HeldDelivery::Due(at(90))), "the released delivery is due at its new time");
    assert_eq!(
        finish_one(&**store, completed_report(receipt(&work), "2"), 1).await.0,
        ReceiptOutcome::Fenced
    );
    assert_eq!(store.answer(work.delivery_id).await.expect("it can be read"), Some(answer("1")));
}

/// CLM-7: after its deadline and one sweep, a claim no longer belongs to a silent worker. Before that it
/// does.
pub async fn silent_worker_loses_its_claim_at_the_next_sweep(store: &Arc<dyn Store>) {
    for taken_at in 0..20 {
        lease_new(&**store, &format!("work-{taken_at}"), taken_at).await;
    }
    for now in [31, 40, 48] {
        store.sweep(at(now)).await.expect("the store sweeps");
        for taken_at in 0..20 {
            let claim = read_claim(&**store, &format!("work-{taken_at}"), now).await;
            let status = claim.claim.status();
            match claim.held {
                Some(HeldDelivery::Leased { until, .. }) => {
                    assert_eq!((until, status), (at(taken_at + 30), Status::Processing));
                    assert!(taken_at + 30 > now, "{taken_at} at {now}");
                }
                held => {
                    assert_eq!(status, Status::Failed { is_final: false }, "{taken_at} at {now}: {held:?}");
                    assert!(taken_at + 30 <= now, "{taken_at} at {now}");
                }
            }
        }
    }
}

/// CLM-7
pub async fn late_report_counts_until_the_next_lease(store: &Arc<dyn Store>) {
    let work = lease_new(&**store, "a", 0).await;
    store.sweep(at(40)).await.expect("the store sweeps");
    let done = finish_one(&**store, completed_report(receipt(&work), "1"), 41).await;
    assert_eq!(done, (ReceiptOutcome::Done, Some(Status::Completed)));
    assert!(receive(&**store, "book", 30, at(50)).await.is_empty());
}

/// CLM-6
pub async fn what_failed_is_tried_again_when_it_is_due_and_then_a_dead_letter(store: &Arc<dyn Store>) {
    let mut now = 0;
    let mut work = lease_new(&**store, "a", now).await;
    for attempt in 1..RECEIVES_MAX {
        assert_eq!(work.attempt, attempt);
        let ended = finish_one(&**store, failed_report(receipt(&work), false, now + 60), now + 1).await;
        assert_eq!(ended, (ReceiptOutcome::Done, Some(Status::Failed { is_final: false })));
        let claim = read_claim(&**store, "a", now + 1).await;
        assert_eq!(claim.held, Some(HeldDelivery::Due(at(now + 60))));
        assert!(receive(&**store, "book", 30, at(now + 59)).await.is_empty());
        now += 60;
        work = receive_one(&**store, now).await;
    }
    let ended = finish_one(&**store, failed_report(receipt(&work), false, now + 60), now + 1).await;
    assert_eq!(ended, (ReceiptOutcome::Done, Some(Status::Failed { is_final: true })));
    let letters = store.dead_letters("acme", None, Serial(0), 10).await.expect("they can be listed");
    assert_eq!(letters[0].letter.reason, DeadReason::ReceivesExhausted);
    assert_eq!(letters[0].letter.delivery.receives, RECEIVES_MAX);
    assert!(receive(&**store, "book", 30, at(now + 1000)).await.is_empty());
}

/// CLM-6, CLM-11
pub async fn final_failure_stands_until_a_person_redrives_it(store: &Arc<dyn Store>) {
    let work = lease_new(&**store, "a", 0).await;
    let ended = finish_one(&**store, failed_report(receipt(&work), true, 0), 1).await;
    assert_eq!(ended, (ReceiptOutcome::Done, Some(Status::Failed { is_final: true })));
    assert_eq!(store.answer(work.delivery_id).await.expect("it can be read"), Some(answer("no")));
    let again = settle_one(&**store, "a", &tracked_route(), at(2)).await;
    assert!(matches!(again, Outcome::Seen { status: Status::Failed { is_final: true }, .. }), "{again:?}");
    let letters = store.dead_letters("acme", None, Serial(0), 10).await.expect("they can be listed");
    assert_eq!(letters[0].letter.reason, DeadReason::Failed);

    let back = store.redrive("acme", vec![work.delivery_id], act("fixed", at(3))).await.expect("it redrives");
    assert_eq!(back.back, [work.delivery_id]);
    assert_eq!(read_claim(&**store, "a", 4).await.status(at(4)), Status::Processing);
    let second = receive_one(&**store, 5).await;
    assert!(second.fence > work.fence);
    let done = finish_one(&**store, completed_report(receipt(&second), "2"), 6).await;
    assert_eq!(done, (ReceiptOutcome::Done, Some(Status::Completed)));
    assert_eq!(store.answer(work.delivery_id).await.expect("it can be read"), Some(answer("2")));
}

/// CLM-11
pub async fn claim_settled_by_a_person_is_completed(store: &Arc<dyn Store>) {
    let work = lease_new(&**store, "a", 0).await;
    assert_eq!(
        settle_claim(store, "acme", work.delivery_id, 1).await,
        Some(Status::Processing),
        "a worker has it"
    );
    let refused = finish_one(&**store, failed_report(receipt(&work), true, 0), 1).await;
    assert_eq!(refused.1, Some(Status::Failed { is_final: true }));
    assert_eq!(settle_claim(store, "globex", work.delivery_id, 2).await, None, "it is no other tenant's");
    assert_eq!(settle_claim(store, "acme", work.delivery_id, 2).await, Some(Status::Completed));

    let progress = read_claim(&**store, "a", 3).await.claim.progress.expect("it is followed");
    assert_eq!((progress.reference.as_deref(), progress.error), (Some("JE-9"), None));
    assert_eq!(progress.ended_at, Some(at(2)));
    assert_eq!(store.answer(work.delivery_id).await.expect("answers can be read"), None, "it said no");
    let letters = store.dead_letters("acme", None, Serial(0), 10).await.expect("they can be listed");
    assert!(letters.is_empty(), "{letters:?}");
    let late = finish_one(&**store, completed_report(receipt(&work), "1"), 4).await;
    assert_eq!(late, (ReceiptOutcome::Fenced, Some(Status::Completed)));
    assert_eq!(settle_claim(store, "acme", work.delivery_id, 5).await, Some(Status::Completed));
    assert_eq!(count_audited(&**store, "claim.settle").await, 1, "and it is settled once");
}

async fn settle_claim(store: &Arc<dyn Store>, owner: &str, delivery: Serial, now: i64) -> Option<Status> {
    let reference = Some("JE-9".to_owned());
    let settled = store.settle_claim(owner, delivery, reference, act("seen", at(now))).await;
    settled.expect("the store settles").map(|status| status.expect("nothing is held"))
}

/// CLM-7, CLM-6
pub async fn unknown_outcome_is_retried_by_default(store: &Arc<dyn Store>) {
    let work = lease_new(&**store, "a", 0).await;
    let ended = finish_one(&**store, unknown_report(receipt(&work)), 1).await;
    assert_eq!(ended, (ReceiptOutcome::Done, Some(Status::Failed { is_final: false })));
    assert_eq!(receive_one(&**store, 2).await.attempt, 2);
}

/// CLM-10
pub async fn delivery_is_leased_by_its_id_once(store: &Arc<dyn Store>) {
    let first = queued(settle_one(&**store, "a", &tracked_route(), at(0)).await).expect("it is queued");
    let second = queued(settle_one(&**store, "b", &tracked_route(), at(0)).await).expect("it is queued");
    let take = async |id, now| {
        let taken = store.take(&queue("book"), id, Duration::from_secs(30), at(now)).await;
        taken.expect("the store hands out")
    };
    let work = take(second, 1).await.expect("it waits");
    assert_eq!((work.message.id.as_str(), work.attempt), ("b", 1));
    assert!(take(second, 2).await.is_none(), "it is in progress");
    assert!(take(Serial(second.0 + 500), 2).await.is_none(), "there is none");
    store.sweep(at(40)).await.expect("the store sweeps");
    let again = take(second, 41).await.expect("its lease has ended");
    assert!(again.fence > work.fence);
    assert_eq!(take(first, 41).await.expect("it waits").message.id.as_str(), "a");
}

/// CLM-5
pub async fn ids_that_come_again_are_counted(store: &Arc<dyn Store>) {
    settle_one(&**store, "a", &tracked_route(), at(0)).await;
    let key = read_claim(&**store, "a", 0).await.key;
    for (repeats, now) in [(3, 20), (1, 10)] {
        store.seen_again(vec![(key.clone(), repeats, at(now))]).await.expect("they are counted");
    }
    let seen = read_claim(&**store, "a", 30).await;
    assert_eq!((seen.repeats, seen.last_seen_at), (4, Some(at(20))));
}

/// CLM-10: the store takes over claims of ids that were seen elsewhere, and does not change its own claims.
pub async fn claims_are_imported_once(store: &Arc<dyn Store>) {
    let seen = route("seen", ClaimPolicy::Seen { keep_seconds: 86_400 });
    settle_one(&**store, "here", &seen, at(0)).await;
    let claim = Claim {
        source: "acme/billing".parse().expect("a service"),
        message: Serial(0),
        first_seen_at: at(-500),
        expires_at: at(80_000),
        hot_until: None,
        progress: None,
    };
    let claims = ["here", "there"].map(|id| {
        let key = ClaimKey {
            id: MessageId::stored(id),
            tenant: TenantName::new("acme").expect("a tenant"),
            destination: Arc::clone(&seen.destination),
        };
        (key, claim.clone())
    });
    for (taken_over, now) in [(1, 1), (0, 2)] {
        let imported = store.import(claims.to_vec(), act("moving", at(now))).await;
        assert_eq!(imported.expect("the store takes them over"), taken_over);
    }
    let again = settle_one(&**store, "there", &seen, at(3)).await;
    assert_eq!(again, Outcome::Duplicate { first_seen_at: at(-500) });
    assert_eq!(settle_one(&**store, "here", &seen, at(3)).await, Outcome::Duplicate { first_seen_at: at(0) });
    let free = settle_one(&**store, "there", &seen, at(80_001)).await;
    assert!(queued(free).is_some(), "it has expired: {free:?}");
    assert_eq!(count_audited(&**store, "claims.import").await, 2);
}

/// CLM-5, CLM-6: the answer of a failed attempt is not stored as the answer of a successful one.
pub async fn response_of_a_failed_attempt_is_not_stored(store: &Arc<dyn Store>) {
    let work = lease_new(&**store, "a", 0).await;
    finish_one(&**store, failed_report(receipt(&work), false, 1), 1).await;
    assert_eq!(store.answer(work.delivery_id).await.expect("it can be read"), None);
    let second = receive_one(&**store, 2).await;
    finish_one(&**store, failed_report(receipt(&second), true, 0), 3).await;
    assert_eq!(store.answer(work.delivery_id).await.expect("it can be read"), Some(answer("no")));
    store.redrive("acme", vec![work.delivery_id], act("fixed", at(4))).await.expect("it redrives");
    assert_eq!(store.answer(work.delivery_id).await.expect("it can be read"), None);
    let third = receive_one(&**store, 5).await;
    let done = finish_one(&**store, Report::done(receipt(&third)), 6).await;
    assert_eq!(done, (ReceiptOutcome::Done, Some(Status::Completed)));
    assert_eq!(store.answer(work.delivery_id).await.expect("it can be read"), None);
}

/// CLM-20: work that takes longer than its claim is kept never has two winners.
pub async fn claim_outlives_its_work(store: &Arc<dyn Store>) {
    let mut route = route("book", ClaimPolicy::Strict { keep_seconds: 300 }).route.clone();
    route.processing = Processing::of(ProcessingKind::Tracked);
    let short = Arc::new(BoundRoute::new(route));
    settle_one(&**store, "a", &short, at(0)).await;
    let work = receive(&**store, "book", 3600, at(0)).await.remove(0);
    store.sweep(at(1000)).await.expect("the store sweeps");
    let again = settle_one(&**store, "a", &short, at(1000)).await;
    assert!(matches!(again, Outcome::Seen { status: Status::Processing, .. }), "{again:?}");
    let done = finish_one(&**store, completed_report(receipt(&work), "1"), 1001).await;
    assert_eq!(done, (ReceiptOutcome::Done, Some(Status::Completed)));
    store.sweep(at(1100)).await.expect("the store sweeps");
    let again = settle_one(&**store, "a", &short, at(1100)).await;
    assert!(matches!(again, Outcome::Seen { status: Status::Completed, .. }), "{again:?}");
    store.sweep(at(1300)).await.expect("the store sweeps");
    let again = settle_one(&**store, "a", &short, at(1300)).await;
    assert!(matches!(again, Outcome::Seen { status: Status::Completed, .. }), "{again:?}");
    assert!(queued(settle_one(&**store, "a", &short, at(1301)).await).is_some(), "then it is free");
}

/// CLM-7, CLM-19: if a claim with an unknown outcome expired, the effect could happen twice.
pub async fn claim_with_unknown_outcome_does_not_expire(store: &Arc<dyn Store>) {
    let mut route = route("book", ClaimPolicy::Strict { keep_seconds: 181 }).route.clone();
    route.processing =
        Processing { on_unknown_outcome: UnknownOutcome::Hold, ..Processing::of(ProcessingKind::Tracked) };
    route.receives_max = 1;
    let short = Arc::new(BoundRoute::new(route));
    for id in ["done", "undone"] {
        settle_one(&**store, id, &short, at(0)).await;
    }
    let works = receive(&**store, "book", 1, at(0)).await;
    let year = 365 * 86_400;
    for id in ["done", "undone"] {
        eventually("it is in doubt", async || {
            Some(status_after_sweep(store, &short, id, 2).await).filter(|status| *status == Status::InDoubt)
        })
        .await;
    }
    for now in [190, 2000, year] {
        for id in ["done", "undone"] {
            assert_eq!(status_after_sweep(store, &short, id, now).await, Status::InDoubt, "{id} at {now}");
        }
        assert!(receive(&**store, "book", 1, at(now)).await.is_empty(), "at {now}");
    }
    let filter =
        ClaimFilter { owner: None, service: None, statuses: vec![Status::InDoubt], after: Serial(0) };
    assert_eq!(store.open_claims(&filter, 10, at(year)).await.expect("they can be listed").len(), 2);

    let settled = store.settle_claim("acme", delivery_of(&works, "done"), None, act("seen", at(year))).await;
    assert_eq!(settled.expect("the store settles"), Some(Ok(Status::Completed)));
    let redriven = store.reprocess("acme", delivery_of(&works, "undone"), act("not done", at(year))).await;
    redriven.expect("it is put back");
    let work = receive(&**store, "book", 30, at(year)).await.remove(0);
    finish_one(&**store, completed_report(receipt(&work), "1"), year + 1).await;
    for id in ["done", "undone"] {
        let status = status_after_sweep(store, &short, id, year + 180).await;
        assert_eq!(status, Status::Completed, "{id}: as usual from then on");
    }
    for id in ["done", "undone"] {
        store.sweep(at(year + 300)).await.expect("the store sweeps");
        assert!(
            queued(settle_one(&**store, id, &short, at(year + 300)).await).is_some(),
            "{id}: then it is free"
        );
    }
}

fn delivery_of(received: &[Received], id: &str) -> Serial {
    received.iter().find(|delivery| delivery.message.id.as_str() == id).expect("it came").delivery_id
}

/// Sweeps, and returns the status with which an id is seen again.
async fn status_after_sweep(store: &Arc<dyn Store>, route: &Arc<BoundRoute>, id: &str, now: i64) -> Status {
    store.sweep(at(now)).await.expect("the store sweeps");
    match settle_one(&**store, id, route, at(now)).await {
        Outcome::Seen { status, .. } => status,
        other => panic!("{id} at {now}: {other:?}"),
    }
}

/// CLM-7, CLM-1: a report with a delivery id of another tenant reveals nothing and changes nothing.
pub async fn report_on_another_tenants_work_finds_nothing(store: &Arc<dyn Store>) {
    let work = lease_new(&**store, "a", 0).await;
    let elsewhere = snavio_model::name::QueueKey::stored("zeta/book");
    for report in [completed_report(receipt(&work), "1"), failed_report(receipt(&work), true, 0)] {
        let finished =
            store.finish(&elsewhere, vec![report], "zeta/worker", at(1)).await.expect("it answers");
        assert_eq!(finished[0], Finished::new(ReceiptOutcome::Gone, None));
    }
    assert_eq!(count_audited(&**store, "claim.fenced").await, 0);
    let done = finish_one(&**store, completed_report(receipt(&work), "1"), 2).await;
    assert_eq!(done, (ReceiptOutcome::Done, Some(Status::Completed)));
}

/// CLM-7, ENG-1: a late worker is fenced, also with a restart in between.
pub async fn late_worker_is_fenced_after_a_restart(backend: &dyn Backend) {
    let store = backend.open().await;
    let zombie = lease_new(&*store, "a", 0).await;
    store.sweep(at(31)).await.expect("the store sweeps");
    let second = receive_one(&*store, 32).await;
    store.close().await;

    let store = backend.open().await;
    let early = finish_one(&*store, completed_report(receipt(&zombie), "1"), 33).await;
    assert_eq!(early.0, ReceiptOutcome::Fenced);
    let done = finish_one(&*store, completed_report(receipt(&second), "2"), 34).await;
    assert_eq!(done, (ReceiptOutcome::Done, Some(Status::Completed)));
    assert_eq!(store.answer(second.delivery_id).await.expect("it can be read"), Some(answer("2")));
    store.close().await;
}

/// CLM-7, ENG-1: work that was leased before a restart and must not be leased twice stays leased. A report
/// from before the restart counts.
pub async fn work_outlives_a_restart(backend: &dyn Backend) {
    let store = backend.open().await;
    for id in ["reported", "silent"] {
        settle_one(&*store, id, &tracked_route_with(UnknownOutcome::Hold), at(0)).await;
    }
    let works = receive(&*store, "book", 30, at(0)).await;
    let done = lease_new(&*store, "done", 0).await;
    finish_one(&*store, completed_report(receipt(&done), "1"), 1).await;
    store.close().await;

    let store = backend.open().await;
    assert!(receive(&*store, "book", 30, at(2)).await.is_empty());
    assert_eq!(store.answer(done.delivery_id).await.expect("it can be read"), Some(answer("1")));
    let finished = finish_one(&*store, completed_report(receipt(&works[0]), "1"), 3).await;
    assert_eq!(finished, (ReceiptOutcome::Done, Some(Status::Completed)));
    eventually("it is in doubt", async || {
        store.sweep(at(100)).await.expect("the store sweeps");
        let claim = read_claim(&*store, "silent", 100).await;
        (claim.status(at(100)) == Status::InDoubt).then_some(())
    })
    .await;
    store.close().await;
}
