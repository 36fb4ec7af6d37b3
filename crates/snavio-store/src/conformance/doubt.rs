//! Work with an unknown outcome, and work that ends without a report (CLM-7, CLM-11).

use std::sync::Arc;

use snavio_model::claim::{ClaimPolicy, Status};
use snavio_model::delivery::processing::{Processing, ProcessingKind, Retry, UnknownOutcome};
use snavio_model::delivery::{DeadReason, ReceiptOutcome};
use snavio_model::id::Serial;
use snavio_model::ordering::Mode;
use snavio_model::registry::{BoundRoute, Route};
use snavio_model::settle::Outcome;

use super::eventually;
use super::ordering::{id_of, numbered, ordered};
use super::processing::{
    completed_report, failed_report, finish_one, lease_new, read_claim, receive_one, tracked_route,
    tracked_route_with, unknown_report,
};
use super::samples::{RECEIVES_MAX, act, at, queue, receipt, receive, settle, settle_one};
use crate::{ClaimFilter, Purged, Received, Redriven, Report, Store};

/// CLM-7: the outcome of a last attempt without a report is unknown, for each `on_unknown_outcome` of the
/// route.
pub async fn silent_last_attempt_has_an_unknown_outcome(store: &Arc<dyn Store>) {
    let mut work = lease_new(&**store, "a", 0).await;
    for attempt in 2..=RECEIVES_MAX {
        let now = 60 * i64::from(attempt);
        store.sweep(at(now)).await.expect("the store sweeps");
        work = receive_one(&**store, now).await;
        assert_eq!(work.attempt, attempt);
    }
    let later = 60 * i64::from(RECEIVES_MAX + 1);
    let letters = eventually("it is a dead letter", async || {
        store.sweep(at(later)).await.expect("the store sweeps");
        let letters = store.dead_letters("acme", None, Serial(0), 10).await.expect("they can be listed");
        (!letters.is_empty()).then_some(letters)
    });
    assert_eq!(letters.await[0].letter.reason, DeadReason::ReceivesExhausted);
    assert_eq!(read_claim(&**store, "a", later).await.status(at(later)), Status::InDoubt);
    let again = settle_one(&**store, "a", &tracked_route(), at(later)).await;
    assert!(matches!(again, Outcome::Seen { status: Status::InDoubt, .. }), "{again:?}");
    let back = store.reprocess("acme", work.delivery_id, act("looked", at(later))).await;
    assert_eq!(back.expect("it redrives").back, [work.delivery_id]);
    let work = receive_one(&**store, later).await;
    let done = finish_one(&**store, completed_report(receipt(&work), "1"), later).await;
    assert_eq!(done, (ReceiptOutcome::Done, Some(Status::Completed)));
}

/// CLM-7: a failed attempt does not show that an earlier attempt had no effect. A final refusal by the
/// processor does.
pub async fn failure_after_an_unknown_outcome_stays_unknown(store: &Arc<dyn Store>) {
    let failing = async |mut work: Received, mut now: i64| loop {
        let is_last = work.attempt == RECEIVES_MAX;
        let ended = finish_one(&**store, failed_report(receipt(&work), false, now + 1), now).await;
        if is_last {
            return ended;
        }
        now += 1;
        work = receive_one(&**store, now).await;
    };
    let silent = lease_new(&**store, "silent", 0).await;
    store.sweep(at(60)).await.expect("the store sweeps");
    let ended = failing(receive_one(&**store, 60).await, 61).await;
    assert_eq!(ended, (ReceiptOutcome::Done, Some(Status::InDoubt)));
    let reported = lease_new(&**store, "reported", 100).await;
    finish_one(&**store, unknown_report(receipt(&reported)), 101).await;
    let ended = failing(receive_one(&**store, 101).await, 102).await;
    assert_eq!(ended, (ReceiptOutcome::Done, Some(Status::InDoubt)));
    let error = read_claim(&**store, "reported", 200)
        .await
        .claim
        .progress
        .and_then(|progress| progress.error)
        .expect("it says why");
    assert_eq!(error, "an earlier attempt may have done it; last: no");
    let filter =
        ClaimFilter { owner: None, service: None, statuses: vec![Status::InDoubt], after: Serial(0) };
    let listed = store.open_claims(&filter, 10, at(200)).await.expect("they can be listed");
    assert_eq!(listed.len(), 2);

    let back = store.reprocess("acme", silent.delivery_id, act("it was not done", at(200))).await;
    assert_eq!(back.expect("it redrives").back, [silent.delivery_id]);
    let ended = failing(receive_one(&**store, 200).await, 201).await;
    let for_good = (ReceiptOutcome::Done, Some(Status::Failed { is_final: true }));
    assert_eq!(ended, for_good, "a person has decided the unknown outcome");

    let refused = lease_new(&**store, "refused", 300).await;
    finish_one(&**store, unknown_report(receipt(&refused)), 301).await;
    let second = receive_one(&**store, 301).await;
    assert_eq!(finish_one(&**store, failed_report(receipt(&second), true, 0), 302).await, for_good);
}

/// CLM-11: on every route a redrive refuses claims with an unknown outcome, and redrives the others.
pub async fn redrive_refuses_claims_with_unknown_outcome(store: &Arc<dyn Store>) {
    for (route, seconds) in [(UnknownOutcome::Retry, 0), (UnknownOutcome::Hold, 100)] {
        let (doubted, failing) = (format!("{route:?} doubted"), format!("{route:?} failing"));
        for id in [&doubted, &failing] {
            settle_one(&**store, id, &tracked_route_with(route), at(seconds)).await;
        }
        let mut letters = Vec::new();
        for _ in 0..RECEIVES_MAX {
            for work in receive(&**store, "book", 30, at(seconds)).await {
                let is_doubted = work.message.id.as_str() == doubted;
                let report = match is_doubted {
                    true => Report { retry: Retry::At(at(seconds)), ..unknown_report(receipt(&work)) },
                    false => failed_report(receipt(&work), true, 0),
                };
                finish_one(&**store, report, seconds).await;
                letters.push((work.delivery_id, is_doubted));
            }
        }
        letters.sort_unstable();
        letters.dedup();
        let of =
            |wanted| letters.iter().filter(|(_, is)| *is == wanted).map(|(id, _)| *id).collect::<Vec<_>>();
        let (in_doubt, decided) = (of(true), of(false));
        assert_eq!((in_doubt.len(), decided.len()), (1, 1), "{letters:?}");
        assert_eq!(read_claim(&**store, &doubted, seconds).await.status(at(seconds)), Status::InDoubt);
        let dead = letters.iter().map(|(id, _)| *id).collect();
        let redriven =
            store.redrive("acme", dead, act("all of them", at(seconds))).await.expect("it redrives");
        assert_eq!(redriven, Redriven { back: decided, in_doubt: in_doubt.clone(), ..Redriven::default() });
        assert_eq!(read_claim(&**store, &doubted, seconds).await.status(at(seconds)), Status::InDoubt);
        let work = receive_one(&**store, seconds).await;
        assert_eq!(work.message.id.as_str(), failing);
        finish_one(&**store, completed_report(receipt(&work), "1"), seconds).await;
        let back = store.reprocess("acme", in_doubt[0], act("it was not done", at(seconds))).await;
        assert_eq!(back.expect("it goes back").back, in_doubt);
        let work = receive_one(&**store, seconds).await;
        let done = finish_one(&**store, completed_report(receipt(&work), "2"), seconds).await;
        assert_eq!(done, (ReceiptOutcome::Done, Some(Status::Completed)));
    }
}

/// CLM-7: if the store finds no claim, the outcome is still unknown.
pub async fn held_delivery_without_a_claim_stays_held(store: &Arc<dyn Store>) {
    let held = tracked_route_with(UnknownOutcome::Hold).route.clone();
    let route = Arc::new(BoundRoute::new(Route { claim: ClaimPolicy::None, ..held }));
    settle_one(&**store, "a", &route, at(0)).await;
    let work = receive_one(&**store, 0).await;
    assert_eq!(finish_one(&**store, unknown_report(receipt(&work)), 1).await, (ReceiptOutcome::Done, None));
    assert!(receive(&**store, "book", 30, at(1000)).await.is_empty(), "and never handed out by itself");
    let letters = store.dead_letters("acme", None, Serial(0), 10).await.expect("they can be listed");
    let letters: Vec<_> = letters
        .iter()
        .map(|dead_letter| (dead_letter.letter.delivery.id, dead_letter.letter.reason))
        .collect();
    assert_eq!(letters, [(work.delivery_id, DeadReason::InDoubt)]);
}

/// CLM-7
pub async fn unknown_outcome_is_held_if_the_route_says_so(store: &Arc<dyn Store>) {
    for id in ["reported", "silent"] {
        settle_one(&**store, id, &tracked_route_with(UnknownOutcome::Hold), at(0)).await;
    }
    let works = receive(&**store, "book", 30, at(0)).await;
    let ended = finish_one(&**store, unknown_report(receipt(&works[0])), 1).await;
    assert_eq!(ended, (ReceiptOutcome::Done, Some(Status::InDoubt)));
    store.sweep(at(31)).await.expect("the store sweeps");
    for id in ["reported", "silent"] {
        let doubted = eventually("it is in doubt", async || {
            let claim = read_claim(&**store, id, 31).await;
            (claim.status(at(31)) == Status::InDoubt).then_some(claim)
        });
        assert!(doubted.await.claim.progress.is_some_and(|progress| progress.error.is_some()));
    }
    assert!(receive(&**store, "book", 30, at(1000)).await.is_empty(), "and never handed out by itself");
    let filter =
        ClaimFilter { owner: None, service: None, statuses: vec![Status::InDoubt], after: Serial(0) };
    let listed = store.open_claims(&filter, 10, at(31)).await.expect("they can be listed");
    let listed: Vec<_> = listed.iter().map(|claim| claim.key.id.as_str()).collect();
    assert_eq!(listed, ["reported", "silent"]);
    let letters = store.dead_letters("acme", None, Serial(0), 10).await.expect("they can be listed");
    assert!(
        letters.iter().all(|dead_letter| dead_letter.letter.reason == DeadReason::InDoubt),
        "{letters:?}"
    );
    let dead_letter_queue = &letters[0].letter.delivery.dead_letter_queue;
    let origins = store.dead_letter_origins(dead_letter_queue, Serial(0), 10).await;
    assert!(origins.expect("they can be listed").is_empty(), "a redrive of the queue leaves them aside");
    let in_doubt = store.dead_letters_in_doubt(dead_letter_queue).await.expect("they can be counted");
    assert_eq!(in_doubt, [(Arc::from("acme/bot:book"), 2)]);
    let ids: Vec<_> = letters.iter().map(|listed| listed.letter.delivery.id).collect();
    let redriven = store.redrive("acme", ids.clone(), act("all", at(40))).await.expect("it redrives");
    assert_eq!(redriven, Redriven { in_doubt: ids, ..Redriven::default() });
}

/// CLM-11: if a delivery is purged or never received, its claim does not stay in progress.
pub async fn claim_ends_with_its_delivery(store: &Arc<dyn Store>) {
    settle_one(&**store, "purged", &tracked_route(), at(0)).await;
    assert_eq!(store.purge(&queue("book"), act("cleaning", at(1))).await.expect("it purges").deleted, 1);
    let purged = read_claim(&**store, "purged", 2).await;
    assert_eq!(purged.status(at(2)), Status::Failed { is_final: true });
    let failing = lease_new(&**store, "tried", 2).await;
    finish_one(&**store, failed_report(receipt(&failing), false, 60), 3).await;
    let working = lease_new(&**store, "under way", 3).await;
    let purged = store.purge(&queue("book"), act("cleaning", at(4))).await.expect("it purges");
    assert_eq!(
        purged,
        Purged { deleted: 0, in_doubt: 1, in_progress: 1 },
        "only the leased delivery is under way"
    );
    let tried = read_claim(&**store, "tried", 5).await;
    let progress = tried.claim.progress.as_ref().expect("it is followed");
    assert_eq!(
        (tried.status(at(5)), progress.attempts),
        (Status::InDoubt, 1),
        "it may have been done before"
    );
    let back = store.reprocess("acme", failing.delivery_id, act("it was not done", at(5))).await;
    assert_eq!(back.expect("it redrives").back, [failing.delivery_id], "and a person may redrive it");
    let done = finish_one(&**store, completed_report(receipt(&working), "1"), 6).await;
    assert_eq!(done, (ReceiptOutcome::Done, Some(Status::Completed)));
    settle_one(&**store, "old", &tracked_route(), at(2)).await;
    let later = 15 * 86_400;
    let ended = eventually("it ends", async || {
        store.sweep(at(later)).await.expect("the store sweeps");
        let claim = read_claim(&**store, "old", later).await;
        (claim.status(at(later)) == Status::Failed { is_final: true }).then_some(claim)
    });
    assert!(ended.await.claim.progress.is_some_and(|progress| progress.error.is_some()));
}

/// CLM-7, DLV-2: work that was leased once may be done, also if a person has redriven it since.
pub async fn redriven_delivery_becomes_a_dead_letter_when_purged(store: &Arc<dyn Store>) {
    let work = lease_new(&**store, "a", 0).await;
    finish_one(&**store, failed_report(receipt(&work), true, 0), 1).await;
    let redriven = store.redrive("acme", vec![work.delivery_id], act("again", at(2))).await;
    assert_eq!(redriven.expect("it redrives").back, [work.delivery_id]);
    let purged = store.purge(&queue("book"), act("cleaning", at(3))).await.expect("it purges");
    assert_eq!(purged, Purged { deleted: 0, in_doubt: 1, in_progress: 0 });
    assert_eq!(read_claim(&**store, "a", 4).await.status(at(4)), Status::InDoubt);
    let letters = store.dead_letters("acme", None, Serial(0), 10).await.expect("they can be listed");
    let letters: Vec<_> = letters
        .iter()
        .map(|dead_letter| (dead_letter.letter.delivery.id, dead_letter.letter.reason))
        .collect();
    assert_eq!(letters, [(work.delivery_id, DeadReason::Purged)]);
    let back = store.reprocess("acme", work.delivery_id, act("again", at(5))).await;
    assert_eq!(back.expect("it goes back").back, [work.delivery_id]);
    let again = receive_one(&**store, 5).await;
    let done = finish_one(&**store, completed_report(receipt(&again), "1"), 6).await;
    assert_eq!(done, (ReceiptOutcome::Done, Some(Status::Completed)));
}

/// A tracked route of the queue `book` that delivers one message of an entity at a time.
fn booking_in_order() -> Arc<BoundRoute> {
    let route = ordered("book", Mode::Strict, |_| {}).route.clone();
    let processing = Processing::of(ProcessingKind::Tracked);
    Arc::new(BoundRoute::new(Route { processing, claim: tracked_route().route.claim, ..route }))
}

/// CLM-7, DLV-2: a purge never deletes tracked work that a worker has leased, in any order of the two.
pub async fn work_leased_during_a_purge_is_not_failed(store: &Arc<dyn Store>) {
    const NUMBERS: i64 = 6;
    let route = booking_in_order();
    let (mut taken, mut purged) = (0, 0);
    for round in 0..40 {
        let entities = [0, 1].map(|n| format!("{round}-{n}"));
        let all = entities.iter().flat_map(|entity| (1..=NUMBERS).map(move |number| (entity, number)));
        let one = |(entity, number): (&String, i64)| {
            numbered(&id_of(entity, number), entity, number, std::slice::from_ref(&route), at(0))
        };
        settle(&**store, all.clone().map(one).collect(), at(0)).await;
        let takes = {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let mut ids = Vec::new();
                for _ in 0..NUMBERS {
                    for work in receive(&*store, "book", 30, at(0)).await {
                        let done = finish_one(&*store, completed_report(receipt(&work), "1"), 0).await;
                        ids.push((work.message.id.as_str().to_owned(), done));
                    }
                }
                ids
            })
        };
        let purges = {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                for _ in 0..round % 5 {
                    tokio::task::yield_now().await;
                }
                store.purge(&queue("book"), act("a test", at(0))).await.expect("it purges").deleted
            })
        };
        let (took, deleted) = (takes.await.expect("it takes"), purges.await.expect("it purges"));
        for (id, done) in &took {
            assert_eq!(done, &(ReceiptOutcome::Done, Some(Status::Completed)), "{id}");
        }
        for (entity, number) in all {
            let id = id_of(entity, number);
            let status = read_claim(&**store, &id, 0).await.status(at(0));
            let was_taken = took.iter().any(|(taken, _)| *taken == id);
            let is_right = match status {
                Status::Completed => was_taken,
                Status::Failed { is_final: true } => !was_taken,
                _ => false,
            };
            // If the first delivery was leased when the purge ended, those behind it are still in the queue.
            let is_there = status == Status::Processing && !was_taken;
            assert!(is_right || is_there, "{id}: {status:?}, taken: {was_taken}");
        }
        taken += took.len();
        purged += deleted;
        store.purge(&queue("book"), act("clean up", at(0))).await.expect("it purges");
    }
    assert!(taken > 0 && purged > 0, "they met: {taken} taken, {purged} purged");
}
