//! Work with an unknown outcome, and work that ends without a report (CLM-7, CLM-11).

use std::sync::Arc;

use snavio_model::claim::{ClaimPolicy, Status};
use snavio_model::delivery::{DeadReason, ReceiptOutcome};
use snavio_model::id::Serial;
use snavio_model::order::Mode;
use snavio_model::processing::{Processing, ProcessingKind, Retry, UnknownOutcome};
use snavio_model::registry::{BoundRoute, Route};
use snavio_model::settle::Outcome;

use super::eventually;
use super::ordering::{id_of, numbered, ordered};
use super::processing::{book, booking, claim, completed, failed, finish, only, take_up, unknown};
use super::samples::{RECEIVES_MAX, act, at, queue, receipt, receive, settle, settle_one};
use crate::{ClaimFilter, Purged, Received, Redriven, Report, Store};

/// CLM-7: the outcome of a last attempt without a report is unknown, for each `on_unknown_outcome` of the
/// route.
pub async fn work_whose_last_attempt_was_silent_is_in_doubt(store: &Arc<dyn Store>) {
    let mut work = take_up(&**store, "a", 0).await;
    for attempt in 2..=RECEIVES_MAX {
        let now = 60 * i64::from(attempt);
        store.sweep(at(now)).await.expect("the store sweeps");
        work = only(&**store, now).await;
        assert_eq!(work.attempt, attempt);
    }
    let later = 60 * i64::from(RECEIVES_MAX + 1);
    let letters = eventually("it is a dead letter", async || {
        store.sweep(at(later)).await.expect("the store sweeps");
        let letters = store.dead_letters("acme", None, Serial(0), 10).await.expect("they can be listed");
        (!letters.is_empty()).then_some(letters)
    });
    assert_eq!(letters.await[0].letter.reason, DeadReason::ReceivesExhausted);
    assert_eq!(claim(&**store, "a", later).await.status(at(later)), Status::InDoubt);
    let again = settle_one(&**store, "a", &book(), at(later)).await;
    assert!(matches!(again, Outcome::Seen { status: Status::InDoubt, .. }), "{again:?}");
    let back = store.reprocess("acme", work.delivery_id, act("looked", at(later))).await;
    assert_eq!(back.expect("it redrives").back, [work.delivery_id]);
    let work = only(&**store, later).await;
    let done = finish(&**store, completed(receipt(&work), "1"), later).await;
    assert_eq!(done, (ReceiptOutcome::Done, Some(Status::Completed)));
}

/// CLM-7: a failed attempt does not show that an earlier attempt had no effect. A final refusal by the
/// processor does.
pub async fn what_fails_after_an_attempt_that_nobody_knows_of_is_in_doubt(store: &Arc<dyn Store>) {
    let failing = async |mut work: Received, mut now: i64| loop {
        let is_last = work.attempt == RECEIVES_MAX;
        let ended = finish(&**store, failed(receipt(&work), false, now + 1), now).await;
        if is_last {
            return ended;
        }
        now += 1;
        work = only(&**store, now).await;
    };
    let silent = take_up(&**store, "silent", 0).await;
    store.sweep(at(60)).await.expect("the store sweeps");
    let ended = failing(only(&**store, 60).await, 61).await;
    assert_eq!(ended, (ReceiptOutcome::Done, Some(Status::InDoubt)));
    let told = take_up(&**store, "told", 100).await;
    finish(&**store, unknown(receipt(&told)), 101).await;
    let ended = failing(only(&**store, 101).await, 102).await;
    assert_eq!(ended, (ReceiptOutcome::Done, Some(Status::InDoubt)));
    let error = claim(&**store, "told", 200)
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
    let ended = failing(only(&**store, 200).await, 201).await;
    let for_good = (ReceiptOutcome::Done, Some(Status::Failed { is_final: true }));
    assert_eq!(ended, for_good, "a person has decided what was in doubt");

    let refused = take_up(&**store, "refused", 300).await;
    finish(&**store, unknown(receipt(&refused)), 301).await;
    let second = only(&**store, 301).await;
    assert_eq!(finish(&**store, failed(receipt(&second), true, 0), 302).await, for_good);
}

/// CLM-11: on every route a redrive refuses claims whose outcome is unknown, and redrives the others.
pub async fn redrive_leaves_claims_in_doubt(store: &Arc<dyn Store>) {
    for (route, seconds) in [(UnknownOutcome::Retry, 0), (UnknownOutcome::Hold, 100)] {
        let (doubted, failing) = (format!("{route:?} doubted"), format!("{route:?} failing"));
        for id in [&doubted, &failing] {
            settle_one(&**store, id, &booking(route), at(seconds)).await;
        }
        let mut letters = Vec::new();
        for _ in 0..RECEIVES_MAX {
            for work in receive(&**store, "book", 30, at(seconds)).await {
                let is_doubted = work.message.id.as_str() == doubted;
                let report = match is_doubted {
                    true => Report { retry: Retry::At(at(seconds)), ..unknown(receipt(&work)) },
                    false => failed(receipt(&work), true, 0),
                };
                finish(&**store, report, seconds).await;
                letters.push((work.delivery_id, is_doubted));
            }
        }
        letters.sort_unstable();
        letters.dedup();
        let of =
            |wanted| letters.iter().filter(|(_, is)| *is == wanted).map(|(id, _)| *id).collect::<Vec<_>>();
        let (in_doubt, decided) = (of(true), of(false));
        assert_eq!((in_doubt.len(), decided.len()), (1, 1), "{letters:?}");
        assert_eq!(claim(&**store, &doubted, seconds).await.status(at(seconds)), Status::InDoubt);
        let dead = letters.iter().map(|(id, _)| *id).collect();
        let redriven =
            store.redrive("acme", dead, act("all of them", at(seconds))).await.expect("it redrives");
        assert_eq!(redriven, Redriven { back: decided, in_doubt: in_doubt.clone(), ..Redriven::default() });
        assert_eq!(claim(&**store, &doubted, seconds).await.status(at(seconds)), Status::InDoubt);
        let work = only(&**store, seconds).await;
        assert_eq!(work.message.id.as_str(), failing);
        finish(&**store, completed(receipt(&work), "1"), seconds).await;
        let back = store.reprocess("acme", in_doubt[0], act("it was not done", at(seconds))).await;
        assert_eq!(back.expect("it goes back").back, in_doubt);
        let work = only(&**store, seconds).await;
        let done = finish(&**store, completed(receipt(&work), "2"), seconds).await;
        assert_eq!(done, (ReceiptOutcome::Done, Some(Status::Completed)));
    }
}

/// CLM-7: if the store finds no claim, the outcome is still unknown.
pub async fn what_is_held_and_has_no_claim_is_held_all_the_same(store: &Arc<dyn Store>) {
    let held = booking(UnknownOutcome::Hold).route.clone();
    let route = Arc::new(BoundRoute::new(Route { claim: ClaimPolicy::None, ..held }));
    settle_one(&**store, "a", &route, at(0)).await;
    let work = only(&**store, 0).await;
    assert_eq!(finish(&**store, unknown(receipt(&work)), 1).await, (ReceiptOutcome::Done, None));
    assert!(receive(&**store, "book", 30, at(1000)).await.is_empty(), "and never handed out by itself");
    let letters = store.dead_letters("acme", None, Serial(0), 10).await.expect("they can be listed");
    let letters: Vec<_> = letters
        .iter()
        .map(|dead_letter| (dead_letter.letter.delivery.id, dead_letter.letter.reason))
        .collect();
    assert_eq!(letters, [(work.delivery_id, DeadReason::InDoubt)]);
}

/// CLM-7
pub async fn what_nobody_knows_of_is_held_for_a_person_where_the_route_says_so(store: &Arc<dyn Store>) {
    for id in ["told", "silent"] {
        settle_one(&**store, id, &booking(UnknownOutcome::Hold), at(0)).await;
    }
    let works = receive(&**store, "book", 30, at(0)).await;
    let ended = finish(&**store, unknown(receipt(&works[0])), 1).await;
    assert_eq!(ended, (ReceiptOutcome::Done, Some(Status::InDoubt)));
    store.sweep(at(31)).await.expect("the store sweeps");
    for id in ["told", "silent"] {
        let doubted = eventually("it is in doubt", async || {
            let claim = claim(&**store, id, 31).await;
            (claim.status(at(31)) == Status::InDoubt).then_some(claim)
        });
        assert!(doubted.await.claim.progress.is_some_and(|progress| progress.error.is_some()));
    }
    assert!(receive(&**store, "book", 30, at(1000)).await.is_empty(), "and never handed out by itself");
    let filter =
        ClaimFilter { owner: None, service: None, statuses: vec![Status::InDoubt], after: Serial(0) };
    let listed = store.open_claims(&filter, 10, at(31)).await.expect("they can be listed");
    let listed: Vec<_> = listed.iter().map(|claim| claim.key.id.as_str()).collect();
    assert_eq!(listed, ["told", "silent"]);
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
pub async fn a_claim_whose_delivery_ends_says_so(store: &Arc<dyn Store>) {
    settle_one(&**store, "purged", &book(), at(0)).await;
    assert_eq!(store.purge(&queue("book"), act("cleaning", at(1))).await.expect("it purges").deleted, 1);
    let purged = claim(&**store, "purged", 2).await;
    assert_eq!(purged.status(at(2)), Status::Failed { is_final: true });
    let failing = take_up(&**store, "tried", 2).await;
    finish(&**store, failed(receipt(&failing), false, 60), 3).await;
    let working = take_up(&**store, "under way", 3).await;
    let purged = store.purge(&queue("book"), act("cleaning", at(4))).await.expect("it purges");
    assert_eq!(
        purged,
        Purged { deleted: 0, in_doubt: 1, in_progress: 1 },
        "nobody's effect is on its way to nobody"
    );
    let tried = claim(&**store, "tried", 5).await;
    let progress = tried.claim.progress.as_ref().expect("it is followed");
    assert_eq!(
        (tried.status(at(5)), progress.attempts),
        (Status::InDoubt, 1),
        "it may have been done before"
    );
    let back = store.reprocess("acme", failing.delivery_id, act("it was not done", at(5))).await;
    assert_eq!(back.expect("it redrives").back, [failing.delivery_id], "and goes back on somebody's word");
    let done = finish(&**store, completed(receipt(&working), "1"), 6).await;
    assert_eq!(done, (ReceiptOutcome::Done, Some(Status::Completed)));
    settle_one(&**store, "old", &book(), at(2)).await;
    let later = 15 * 86_400;
    let ended = eventually("it ends", async || {
        store.sweep(at(later)).await.expect("the store sweeps");
        let claim = claim(&**store, "old", later).await;
        (claim.status(at(later)) == Status::Failed { is_final: true }).then_some(claim)
    });
    assert!(ended.await.claim.progress.is_some_and(|progress| progress.error.is_some()));
}

/// CLM-7, DLV-2: work that was leased once may be done, also if a person has put it back since.
pub async fn what_was_put_back_and_is_purged_is_a_dead_letter_again(store: &Arc<dyn Store>) {
    let work = take_up(&**store, "a", 0).await;
    finish(&**store, failed(receipt(&work), true, 0), 1).await;
    let redriven = store.redrive("acme", vec![work.delivery_id], act("again", at(2))).await;
    assert_eq!(redriven.expect("it redrives").back, [work.delivery_id]);
    let purged = store.purge(&queue("book"), act("cleaning", at(3))).await.expect("it purges");
    assert_eq!(purged, Purged { deleted: 0, in_doubt: 1, in_progress: 0 });
    assert_eq!(claim(&**store, "a", 4).await.status(at(4)), Status::InDoubt);
    let letters = store.dead_letters("acme", None, Serial(0), 10).await.expect("they can be listed");
    let letters: Vec<_> = letters
        .iter()
        .map(|dead_letter| (dead_letter.letter.delivery.id, dead_letter.letter.reason))
        .collect();
    assert_eq!(letters, [(work.delivery_id, DeadReason::Purged)]);
    let back = store.reprocess("acme", work.delivery_id, act("again", at(5))).await;
    assert_eq!(back.expect("it goes back").back, [work.delivery_id]);
    let again = only(&**store, 5).await;
    let done = finish(&**store, completed(receipt(&again), "1"), 6).await;
    assert_eq!(done, (ReceiptOutcome::Done, Some(Status::Completed)));
}

/// A tracked route of the queue `book` that delivers one message of an entity at a time.
fn booking_in_order() -> Arc<BoundRoute> {
    let route = ordered("book", Mode::Strict, |_| {}).route.clone();
    let processing = Processing::of(ProcessingKind::Tracked);
    Arc::new(BoundRoute::new(Route { processing, claim: book().route.claim, ..route }))
}

/// CLM-7, DLV-2: a purge never deletes a delivery that a worker has leased, whichever comes first.
pub async fn what_is_taken_amid_a_purge_is_not_told_as_failed(store: &Arc<dyn Store>) {
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
                        let done = finish(&*store, completed(receipt(&work), "1"), 0).await;
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
            let status = claim(&**store, &id, 0).await.status(at(0));
            let was_taken = took.iter().any(|(taken, _)| *taken == id);
            let is_right = match status {
                Status::Completed => was_taken,
                Status::Failed { is_final: true } => !was_taken,
                _ => false,
            };
            // A message behind one that was leased when the purge ended is still in the queue.
            let is_there = status == Status::Processing && !was_taken;
            assert!(is_right || is_there, "{id}: {status:?}, taken: {was_taken}");
        }
        taken += took.len();
        purged += deleted;
        store.purge(&queue("book"), act("what is left", at(0))).await.expect("it purges");
    }
    assert!(taken > 0 && purged > 0, "they met: {taken} taken, {purged} purged");
}
