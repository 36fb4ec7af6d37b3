//! Conflicts: an id never has two contents. If different content comes under an id, both contents are on
//! record (CLM-1, CLM-8, CLM-12).

use std::sync::Arc;

use bytes::Bytes;
use snavio_model::bounds;
use snavio_model::claim::conflict::{Conflict, ConflictState, Immovable, Move};
use snavio_model::claim::{ClaimPolicy, IdKey, Status};
use snavio_model::delivery::DeadReason;
use snavio_model::delivery::processing::{Processing, ProcessingKind};
use snavio_model::hash::DomainHash;
use snavio_model::id::{MessageId, Serial};
use snavio_model::message::{Message, Path};
use snavio_model::registry::{BoundRoute, Route};
use snavio_model::settle::{Intake, Outcome};
use snavio_model::time::Timestamp;

use super::processing::{completed_report, failed_report, finish_one};
use super::samples::{at, ids, intake, intake_of, queued, receipt, receive, route, settle, settle_one};
use crate::{Act, Erasure, Store};

fn post() -> Arc<BoundRoute> {
    route("post", ClaimPolicy::ledger())
}

/// A message with this id and content.
fn with_content(content: u8, id: &str, now: Timestamp) -> Intake {
    let intake = intake(id, &post(), now);
    let payload = Bytes::from(format!(r#"{{"amount":{content}}}"#));
    let message = Message { domain_hash: DomainHash([content; 32]), payload, ..intake.message };
    Intake { message, ..intake }
}

/// The same for these destinations.
fn with_content_to(content: u8, id: &str, now: Timestamp, routes: &[Arc<BoundRoute>]) -> Intake {
    Intake { destinations: routes.to_vec(), ..with_content(content, id, now) }
}

fn conflict_of(outcome: Outcome) -> Serial {
    match outcome {
        Outcome::Conflict { conflict, .. } => conflict,
        other => panic!("{other:?}"),
    }
}

async fn settle_content(store: &dyn Store, content: u8, id: &str, now: Timestamp) -> Outcome {
    settle(store, vec![with_content(content, id, now)], now).await[0].outcomes[0]
}

async fn settle_content_to(
    store: &dyn Store,
    content: u8,
    id: &str,
    now: i64,
    route: &Arc<BoundRoute>,
) -> Outcome {
    let intake = with_content_to(content, id, at(now), std::slice::from_ref(route));
    settle(store, vec![intake], at(now)).await[0].outcomes[0]
}

fn act(who: &str, note: &str, now: i64) -> Act {
    Act { who: who.to_owned(), why: note.to_owned(), at: at(now) }
}

fn move_to(to: ConflictState, compensating: Option<&str>) -> Move {
    Move { to, note: "looked at".to_owned(), compensating: compensating.map(MessageId::stored) }
}

async fn move_conflict(
    store: &Arc<dyn Store>,
    id: Serial,
    to: Move,
    who: &str,
) -> Option<Result<Conflict, Immovable>> {
    store.move_conflict(id, to, act(who, "looked at", 9)).await.expect("the store answers")
}

/// A route that keeps ids for a day and compares their content.
fn note() -> Arc<BoundRoute> {
    route("note", ClaimPolicy::Event { keep_seconds: 86_400, answers: false })
}

/// A route that keeps ids for 1,000 seconds, compares their content and stores responses.
fn event_route(name: &str) -> Arc<BoundRoute> {
    route(name, ClaimPolicy::Event { keep_seconds: 1_000, answers: true })
}

/// The tracked route `book` of the same policy.
fn tracked_event_route() -> Arc<BoundRoute> {
    let processing = Processing::of(ProcessingKind::Tracked);
    Arc::new(BoundRoute::new(Route { processing, ..event_route("book").route.clone() }))
}

/// CLM-8: in one batch and over batches. Conflict record, dead letter, audit entry and alert are one commit.
pub async fn both_contents_are_on_record_and_the_first_stands(store: &Arc<dyn Store>) {
    let batch = vec![with_content(1, "a", at(0)), with_content(2, "a", at(0)), with_content(1, "a", at(0))];
    let settled = settle(&**store, batch, at(0)).await;
    assert!(queued(settled[0].outcomes[0]).is_some());
    let first = conflict_of(settled[1].outcomes[0]);
    assert_eq!(settled[2].outcomes[0], Outcome::Duplicate { first_seen_at: at(0) });
    let again = conflict_of(settle_content(&**store, 2, "a", at(5)).await);
    assert_eq!(again, first, "the same content again is the same conflict");
    let other = conflict_of(settle_content(&**store, 3, "a", at(6)).await);
    assert_eq!(settle_content(&**store, 1, "a", at(7)).await, Outcome::Duplicate { first_seen_at: at(0) });

    let listed = store.conflicts(Some("acme"), None, Serial(0), 10).await.expect("they are listed");
    let shown: Vec<_> = listed
        .iter()
        .map(|conflict| (conflict.id, conflict.hash.0[0], conflict.place, conflict.count))
        .collect();
    assert_eq!(shown, [(first, 2, 1, 2), (other, 3, 2, 1)]);
    assert_eq!(listed[0].last_seen_at, at(5));
    assert!(store.conflicts(Some("zeta"), None, Serial(0), 10).await.expect("they are listed").is_empty());
    assert_eq!(store.open_conflicts().await.expect("they are counted"), 2);
    let stored = store.conflict(first).await.expect("it is read").expect("it is there");
    let says =
        |logged: &Option<crate::LoggedMessage>| logged.as_ref().map(|logged| logged.message.payload.clone());
    assert_eq!(says(&stored.original).as_deref(), Some(&br#"{"amount":1}"#[..]));
    assert_eq!(says(&stored.conflicting).as_deref(), Some(&br#"{"amount":2}"#[..]));
    assert_eq!((stored.original.map(|logged| logged.path), stored.of_source), (Some(Path::Slow), 3));

    let letters = store.dead_letters("acme", None, Serial(0), 10).await.expect("they are listed");
    let shown: Vec<_> = letters
        .iter()
        .map(|dead_letter| (dead_letter.letter.delivery.id, dead_letter.letter.reason))
        .collect();
    let refs = [listed[0].dead_letter, listed[1].dead_letter].map(|id| (id, DeadReason::Conflict));
    assert_eq!(shown, refs);
    let deeds = store.audit(Serial(0), 10).await.expect("it is read");
    let opened: Vec<_> = deeds.iter().filter(|entry| entry.action == "conflict.open").collect();
    assert_eq!(
        opened.iter().map(|entry| entry.object.clone()).collect::<Vec<_>>(),
        [first, other].map(|conflict| conflict.to_string())
    );
    let records = store.telemetry("acme", Serial(0), 100).await.expect("it is read");
    let [conflicts, delivered] = ["snavio.claim.conflict", "snavio.command.delivered"]
        .map(|kind| records.iter().filter(|record| record.kind == kind).count());
    assert_eq!((conflicts, delivered), (2, 1));
    // The store dispatches no conflicting content, also not after a redrive.
    assert_eq!(ids(&receive(&**store, "post", 30, at(9)).await), ["a"]);
    let dead = letters.iter().map(|dead_letter| dead_letter.letter.delivery.id).collect();
    let redriven = store.redrive("acme", dead, act("anna", "", 9)).await.expect("it answers");
    assert!(redriven.back.is_empty(), "{redriven:?}");
    let uses = store.uses("acme", Serial(i64::MAX), 10).await.expect("it is read");
    assert_eq!(uses.len(), 1, "only the dispatched message used a permission");
}

/// CLM-1: all destinations share one content, in any order of arrival. Another service cannot use the id.
pub async fn an_id_means_one_thing_wherever_it_goes(store: &Arc<dyn Store>) {
    let book = [route("book", ClaimPolicy::Event { keep_seconds: 86_400, answers: false })];
    settle_content(&**store, 1, "a", at(0)).await;
    let batch = [2, 1, 1].map(|content| with_content_to(content, "a", at(1), &book));
    let settled = settle(&**store, batch.to_vec(), at(1)).await;
    conflict_of(settled[0].outcomes[0]);
    assert!(queued(settled[1].outcomes[0]).is_some(), "{settled:?}");
    assert_eq!(settled[2].outcomes[0], Outcome::Duplicate { first_seen_at: at(1) });
    let by_shop = [1, 3, 3].map(|content| {
        let own = with_content(content, "a", at(2)).message;
        let other = intake_of("acme/shop", "a", &[post()], at(2));
        let message = Message { domain_hash: own.domain_hash, payload: own.payload, ..other.message };
        Intake { message, ..other }
    });
    let settled = settle(&**store, by_shop.to_vec(), at(2)).await;
    assert_eq!(settled[0].outcomes[0], Outcome::Taken);
    let conflict = conflict_of(settled[1].outcomes[0]);
    assert_eq!(conflict_of(settled[2].outcomes[0]), conflict);
    let stored = store.conflict(conflict).await.expect("it is read").expect("it is there");
    assert_eq!((stored.conflict.source.as_str(), stored.conflict.count), ("acme/shop", 2));
    assert_eq!(
        stored.conflicting.map(|logged| logged.message.source.to_string()).as_deref(),
        Some("acme/shop")
    );
    // Policies that do not compare content dispatch it.
    assert!(queued(settle_one(&**store, "a", &super::samples::pay(), at(2)).await).is_some());
}

/// CLM-8: 20 different contents come under one id at once. One is dispatched, and 19 are conflicts.
pub async fn racing_contents_have_one_winner_and_19_conflicts(store: &Arc<dyn Store>) {
    let tasks: Vec<_> = (1..=20)
        .map(|content| {
            let store = Arc::clone(store);
            tokio::spawn(async move { settle_content(&*store, content, "a", at(0)).await })
        })
        .collect();
    let (mut won, mut conflicts) = (0, Vec::new());
    for task in tasks {
        match task.await.expect("no task panics") {
            Outcome::Queued { .. } => won += 1,
            outcome => conflicts.push(conflict_of(outcome)),
        }
    }
    conflicts.sort_unstable();
    conflicts.dedup();
    assert_eq!((won, conflicts.len()), (1, 19));
    let listed = store.conflicts(None, None, Serial(0), 100).await.expect("they are listed");
    let mut places: Vec<_> = listed.iter().map(|conflict| conflict.place).collect();
    places.sort_unstable();
    assert_eq!(places, (1..=19).collect::<Vec<u32>>(), "each has a place of its own");
}

/// CLM-12, CLM-13: only the moves of the contract are possible, and each is audited. If two people resolve at
/// once, one wins.
pub async fn conflict_is_triaged_and_resolved_once(store: &Arc<dyn Store>) {
    settle_content(&**store, 1, "a", at(0)).await;
    let id = conflict_of(settle_content(&**store, 2, "a", at(0)).await);
    let early = move_conflict(store, id, move_to(ConflictState::ResolvedAcceptOriginal, None), "anna")
        .await
        .expect("it is there");
    assert!(matches!(early, Err(Immovable::State { .. })), "{early:?}");
    move_conflict(store, id, move_to(ConflictState::Triaged, None), "anna")
        .await
        .expect("it is there")
        .expect("it moves");
    let (one, other) = tokio::join!(
        move_conflict(store, id, move_to(ConflictState::ResolvedAcceptOriginal, None), "anna"),
        move_conflict(store, id, move_to(ConflictState::ResolvedAcceptNew, Some("b")), "ben"),
    );
    let won = [&one, &other].iter().filter(|moved| matches!(moved, Some(Ok(_)))).count();
    assert_eq!(won, 1, "{one:?} {other:?}");
    assert_eq!(store.open_conflicts().await.expect("they are counted"), 0);
    assert!(
        store
            .move_conflict(Serial(1), move_to(ConflictState::Triaged, None), act("x", "looked at", 9))
            .await
            .expect("it answers")
            .is_none()
    );
    let deeds = store.audit(Serial(0), 10).await.expect("it is read");
    let moves: Vec<_> = deeds
        .iter()
        .filter(|entry| entry.action == "conflict.move")
        .map(|entry| entry.outcome.as_str())
        .collect();
    assert_eq!((moves.len(), moves[0]), (2, "TRIAGED"));
    let resolved = store.conflict(id).await.expect("it is read").expect("it is there").conflict;
    assert_eq!(resolved.notes.lines().count(), 2, "{}", resolved.notes);
    let open =
        store.conflicts(None, Some(ConflictState::Open), Serial(0), 10).await.expect("they are listed");
    assert!(open.is_empty());
}

/// CLM-13: a reversal corrects one posting, also if several people name it at the same moment.
pub async fn racing_conflicts_cannot_share_a_reversal(store: &Arc<dyn Store>) {
    let act = act("anna", "looked at", 9);
    let mut conflicts = Vec::new();
    for id in (0..10).map(|number| format!("id-{number}")) {
        settle_content(&**store, 1, &id, at(0)).await;
        let conflict = conflict_of(settle_content(&**store, 2, &id, at(0)).await);
        let triaged = store.move_conflict(conflict, move_to(ConflictState::Triaged, None), act.clone()).await;
        triaged.expect("the store answers").expect("it is there").expect("it moves");
        conflicts.push(conflict);
    }
    let begin = Arc::new(tokio::sync::Barrier::new(conflicts.len()));
    let movers = conflicts.iter().map(|conflict| {
        let (store, begin, act, conflict) = (Arc::clone(store), Arc::clone(&begin), act.clone(), *conflict);
        let to = move_to(ConflictState::ResolvedAcceptNew, Some("reversal"));
        tokio::spawn(async move {
            begin.wait().await;
            store.move_conflict(conflict, to, act).await.expect("the store answers").expect("it is there")
        })
    });
    let movers: Vec<_> = movers.collect();
    let (mut won, mut refused) = (Vec::new(), Vec::new());
    for mover in movers {
        match mover.await.expect("no task panics") {
            Ok(moved) => won.push(moved.id),
            Err(Immovable::Named(other)) => refused.push(other),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(won.len(), 1, "{won:?}");
    assert_eq!(refused, vec![won[0]; conflicts.len() - 1], "each refusal names the winner");
    assert_eq!(store.open_conflicts().await.expect("they are counted"), 9);
}

/// CLM-15, CLM-19: the id is compared for seven years, and free when they end. If a conflict is about the id,
/// its original stays for as long as the conflict is kept.
pub async fn ledger_id_is_known_for_seven_years(store: &Arc<dyn Store>) {
    const DAY: i64 = 86_400;
    settle_content(&**store, 1, "a", at(0)).await;
    settle_content(&**store, 1, "b", at(0)).await;
    for day in [401, 2519] {
        let now = at(day * DAY);
        store.sweep(now).await.expect("it sweeps");
        assert_eq!(settle_content(&**store, 1, "a", now).await, Outcome::Duplicate { first_seen_at: at(0) });
        conflict_of(settle_content(&**store, 2, "a", now).await);
    }
    let over = at(2558 * DAY);
    assert!(queued(settle_content(&**store, 2, "b", over).await).is_some(), "the id is free");
    conflict_of(settle_content(&**store, 1, "b", at(2559 * DAY)).await);
    assert_eq!(settle_content(&**store, 2, "a", over).await, Outcome::Unreadable, "a conflict is about it");
    store.sweep(at(9000 * DAY)).await.expect("it sweeps");
    assert_eq!(
        store.conflicts(None, None, Serial(0), 10).await.expect("they are listed").len(),
        2,
        "conflicts stay"
    );
}

/// CLM-8: an id has expired and has conflicts from before, and then two contents come at once.
pub async fn conflicts_of_a_reused_id_follow_earlier_ones(store: &Arc<dyn Store>) {
    let note = [note()];
    for (day, place) in [(0, 1), (2, 2), (4, 3)] {
        let now = at(day * 86_400);
        let settled =
            settle(&**store, [1, 2].map(|content| with_content_to(content, "a", now, &note)).to_vec(), now)
                .await;
        assert!(queued(settled[0].outcomes[0]).is_some(), "{settled:?}");
        let conflict = conflict_of(settled[1].outcomes[0]);
        let stored = store.conflict(conflict).await.expect("it is read").expect("it is there");
        assert_eq!(stored.conflict.place, place, "{stored:?}");
    }
    let listed = store.conflicts(None, None, Serial(0), 10).await.expect("they are listed");
    assert_eq!(listed.iter().map(|conflict| conflict.count).sum::<u64>(), 3);
}

/// A ledger route of another tenant.
fn zeta() -> Arc<BoundRoute> {
    let target = "zeta/gl".parse().expect("a service");
    Arc::new(BoundRoute::new(Route { target, ..post().route.clone() }))
}

/// CLM-8, CLM-18: a sender has many conflicts with itself. Each tenant that must decide still gets a record
/// of its own.
pub async fn each_deciding_tenant_has_its_own_conflict(store: &Arc<dyn Store>) {
    let (post, zeta) = (post(), zeta());
    assert!(queued(settle_content_to(&**store, 1, "a", 1, &zeta).await).is_some());
    for content in 2..=120 {
        conflict_of(settle_content_to(&**store, content, "a", 1, &post).await);
    }
    let (second, other) = (
        conflict_of(settle_content_to(&**store, 2, "a", 1, &zeta).await),
        conflict_of(settle_content_to(&**store, 200, "a", 1, &zeta).await),
    );
    assert_eq!(conflict_of(settle_content_to(&**store, 2, "a", 1, &zeta).await), second);
    let of_zeta = store.conflicts(Some("zeta"), None, Serial(0), 200).await.expect("they are listed");
    let shown: Vec<_> = of_zeta
        .iter()
        .map(|conflict| (conflict.id, conflict.hash.0[0], conflict.place, conflict.count))
        .collect();
    assert_eq!(shown, [(second, 2, 101, 2), (other, 200, 102, 1)]);
    let of_acme = store.conflicts(Some("acme"), None, Serial(0), 200).await.expect("they are listed");
    assert_eq!((of_acme.len(), of_acme.iter().map(|conflict| conflict.count).sum::<u64>()), (100, 119));
    let letters = store.dead_letters("zeta", None, Serial(0), 10).await.expect("they are listed");
    assert_eq!(letters.len(), 2);
    let id = IdKey { id: MessageId::stored("a"), tenant: "acme".parse().expect("a tenant") };
    let act = act("anna", "asked for", 2);
    let erased = store.erase(&id, Vec::new(), Some("acme"), act).await.expect("it answers");
    assert_eq!(erased, Erasure::Disputed(second));
}

/// CLM-8: a conflict of an event is one commit, with one record for each tenant that compares content.
pub async fn event_conflict_is_recorded_for_each_tenant(store: &Arc<dyn Store>) {
    let book = route("book", ClaimPolicy::ledger());
    let all = vec![post(), book, zeta(), route("notify", ClaimPolicy::None)];
    let event = |content| with_content_to(content, "a", at(1), &all);
    let settled = settle(&**store, vec![event(1)], at(1)).await;
    assert!(settled[0].outcomes.iter().all(|outcome| queued(*outcome).is_some()), "{settled:?}");
    let settled = settle(&**store, vec![event(2), event(2), event(3)], at(1)).await;
    assert_eq!(settled[0].outcomes, [settled[0].outcomes[0]; 4], "the answer names one of them");
    let again = conflict_of(settle(&**store, vec![event(2)], at(2)).await[0].outcomes[0]);
    assert_eq!(again, conflict_of(settled[0].outcomes[0]));

    for owner in ["acme", "zeta"] {
        let listed = store.conflicts(Some(owner), None, Serial(0), 10).await.expect("they are listed");
        let shown: Vec<_> = listed.iter().map(|conflict| (conflict.hash.0[0], conflict.count)).collect();
        assert_eq!(shown, [(2, 3), (3, 1)], "{owner}: one record for all of its destinations");
        let letters = store.dead_letters(owner, None, Serial(0), 10).await.expect("they are listed");
        let named: Vec<_> = letters.iter().map(|dead_letter| dead_letter.letter.conflict()).collect();
        assert_eq!(named, listed.iter().map(|conflict| Some(conflict.id)).collect::<Vec<_>>());
        for (conflict, letter) in listed.iter().zip(&letters) {
            assert_eq!(letter.letter.delivery.id, conflict.dead_letter);
            let stored = store.conflict(conflict.id).await.expect("it is read").expect("it is there");
            let conflicting = stored.conflicting.expect("its content is kept").message;
            let whole = store.dead_letter(owner, conflict.dead_letter).await.expect("it is read");
            let kept = whole.expect("it is there").message;
            assert_eq!((conflicting.domain_hash, conflicting.payload), (conflict.hash, kept.payload));
        }
        let records = store.telemetry(owner, Serial(0), 100).await.expect("it is read");
        assert_eq!(
            records.iter().filter(|record| record.kind == "snavio.claim.conflict").count(),
            2,
            "{owner}"
        );
        // Each tenant decides for itself.
        let to = move_to(ConflictState::Triaged, None);
        let moved = store.move_conflict(listed[0].id, to, act("anna", "seen", 2)).await.expect("it moves");
        assert_eq!(moved.expect("it is there").expect("it may").owner.as_str(), owner);
    }
    let deeds = store.audit(Serial(0), 50).await.expect("it is read");
    assert_eq!(deeds.iter().filter(|entry| entry.action == "conflict.open").count(), 4);
    assert_eq!(store.open_conflicts().await.expect("they are counted"), 4);
}

/// CLM-8, PIP-13: the event goes to the highest number of subscriptions, each of another tenant.
pub async fn event_conflict_is_recorded_for_1000_tenants(store: &Arc<dyn Store>) {
    let subscriptions = (0..bounds::SUBSCRIPTIONS_PER_TYPE_MAX).map(|number| {
        let target = format!("t{number}/gl").parse().expect("a service");
        Arc::new(BoundRoute::new(Route { target, ..post().route.clone() }))
    });
    let subscriptions: Vec<_> = subscriptions.collect();
    let event = |content| with_content_to(content, "a", at(1), &subscriptions);
    assert!(queued(settle(&**store, vec![event(1)], at(1)).await[0].outcomes[0]).is_some());
    conflict_of(settle(&**store, vec![event(2)], at(1)).await[0].outcomes[999]);
    assert_eq!(store.open_conflicts().await.expect("they are counted"), 1000);
    let last = store.conflicts(Some("t999"), None, Serial(0), 10).await.expect("they are listed");
    let stored = store.conflict(last[0].id).await.expect("it is read").expect("it is there");
    assert_eq!(stored.conflicting.map(|logged| logged.message.domain_hash.0[0]), Some(2));
    conflict_of(settle(&**store, vec![event(3)], at(1)).await[0].outcomes[0]);
    let id = IdKey { id: MessageId::stored("a"), tenant: "acme".parse().expect("a tenant") };
    let all = store.conflicts_of(&id, None).await.expect("they are listed");
    assert_eq!((all.len(), all[999].place), (1000, 1000), "a page of them");
    let of_last = store.conflicts_of(&id, Some("t999")).await.expect("they are listed");
    assert_eq!(of_last.iter().map(|conflict| conflict.hash.0[0]).collect::<Vec<_>>(), [2, 3]);
    // The cap on records is reached: new contents count on the last record, and known contents count on their
    // own.
    for (content, count) in [(4, [1, 2]), (2, [2, 2]), (4, [2, 3])] {
        conflict_of(settle(&**store, vec![event(content)], at(2)).await[0].outcomes[0]);
        let of_last = store.conflicts_of(&id, Some("t999")).await.expect("they are listed");
        assert_eq!(of_last.iter().map(|conflict| conflict.count).collect::<Vec<_>>(), count, "{content}");
    }
    assert_eq!(store.open_conflicts().await.expect("they are counted"), 2000);
}

/// CLM-8: a decision about an id does not apply to a later id record of the same id.
pub async fn later_id_record_has_its_own_conflicts(store: &Arc<dyn Store>) {
    let note = note();
    settle_content_to(&**store, 1, "a", 0, &note).await;
    let before = conflict_of(settle_content_to(&**store, 2, "a", 1, &note).await);
    for state in [ConflictState::Triaged, ConflictState::ResolvedAcceptOriginal] {
        let moved = store
            .move_conflict(before, move_to(state, None), act("anna", "seen", 2))
            .await
            .expect("it moves");
        moved.expect("it is there").expect("it may");
    }
    assert!(queued(settle_content_to(&**store, 3, "a", 86_400, &note).await).is_some(), "it is free");
    let since = conflict_of(settle_content_to(&**store, 2, "a", 86_401, &note).await);
    let stored = store.conflict(since).await.expect("it is read").expect("it is there");
    assert_ne!(since, before);
    let Conflict { state, original_hash, place, .. } = stored.conflict;
    assert_eq!((state, original_hash.0[0], place), (ConflictState::Open, 3, 2));
    assert_eq!(store.open_conflicts().await.expect("they are counted"), 1);
}

/// CLM-8, TEL-4: messages that were never dispatched do not hold up a reader of telemetry.
pub async fn conflicts_do_not_hide_what_comes_after_them(store: &Arc<dyn Store>) {
    settle_content(&**store, 1, "a", at(0)).await;
    let batch = (2..=30).map(|content| with_content(content, "a", at(1))).collect();
    settle(&**store, batch, at(1)).await;
    settle_content(&**store, 1, "b", at(2)).await;
    let (mut after, mut delivered) = (Serial(0), 0);
    loop {
        let page = store.telemetry("acme", after, 5).await.expect("it is read");
        let Some(last) = page.last() else { break };
        after = last.number;
        delivered += page.iter().filter(|record| record.kind == "snavio.command.delivered").count();
    }
    assert_eq!(delivered, 2);
    assert_eq!(store.messages("acme", Serial(0), 100).await.expect("it is read").len(), 2);
}

/// CLM-8: a route that begins to compare content also compares with ids that it accepted before.
pub async fn tightened_policy_compares_with_earlier_messages(store: &Arc<dyn Store>) {
    let strict = route("post", ClaimPolicy::Strict { keep_seconds: 86_400 });
    settle_content_to(&**store, 1, "a", 0, &strict).await;
    assert_eq!(settle_content(&**store, 1, "a", at(1)).await, Outcome::Duplicate { first_seen_at: at(0) });
    conflict_of(settle_content(&**store, 2, "a", at(1)).await);
}

/// CLM-8, CLM-20: the work waits for longer than its id record was to be kept. Its content is still compared,
/// before and after a sweep.
pub async fn id_keeps_its_content_while_work_continues(store: &Arc<dyn Store>) {
    let (note, book) = (event_route("note"), [tracked_event_route()]);
    for id in ["a", "b"] {
        settle_content_to(&**store, 1, id, 0, &book[0]).await;
    }
    let later = 3 * 86_400;
    for id in ["a", "b"] {
        let batch = [1, 2].map(|content| with_content_to(content, id, at(later), &book)).to_vec();
        let foreseen = store.foresee(batch[1].clone(), at(later)).await.expect("it foresees");
        assert!(matches!(foreseen.outcomes[0], Outcome::Conflict { .. }), "{foreseen:?}");
        let settled = settle(&**store, batch, at(later)).await;
        assert!(matches!(settled[0].outcomes[0], Outcome::Seen { status: Status::Processing, .. }));
        conflict_of(settled[1].outcomes[0]);
        // The id has no other content at another destination either.
        conflict_of(settle_content_to(&**store, 3, id, later, &note).await);
        store.sweep(at(later)).await.expect("it sweeps");
    }
    let same = settle_content_to(&**store, 1, "a", later, &note).await;
    assert!(queued(same).is_some(), "{same:?}");
}

/// CLM-1, CLM-5, CLM-8: a claim that outlives the retention of its id record never answers for different
/// content.
pub async fn id_keeps_its_content_while_a_claim_answers(store: &Arc<dyn Store>) {
    let (note, book) = (event_route("note"), tracked_event_route());
    for id in ["swept", "not swept", "put back"] {
        assert!(queued(settle_content_to(&**store, 1, id, 0, &book).await).is_some());
        let work = receive(&**store, "book", 3600, at(0)).await.remove(0);
        let report = match id {
            "put back" => failed_report(receipt(&work), true, 0),
            _ => completed_report(receipt(&work), "1"),
        };
        // The work ends late, so its claim is kept until second 2500.
        finish_one(&**store, report, 1_500).await;
        if id == "not swept" {
            conflict_of(settle_content_to(&**store, 2, id, 1_600, &note).await);
            continue;
        }
        store.sweep(at(1_600)).await.expect("it sweeps");
        let later = if id == "swept" { 1_600 } else { 2_600 };
        if id == "put back" {
            let act = act("anna", "fixed", 1_601);
            let redriven = store.redrive("acme", vec![work.delivery_id], act).await.expect("it answers");
            assert_eq!(redriven.back, [work.delivery_id]);
        }
        conflict_of(settle_content_to(&**store, 2, id, later, &note).await);
        conflict_of(settle_content_to(&**store, 2, id, later, &book).await);
        let same = settle_content_to(&**store, 1, id, later, &book).await;
        assert!(matches!(same, Outcome::Seen { .. }), "{id}: {same:?}");
    }
    assert!(
        queued(settle_content_to(&**store, 2, "swept", 2_700, &note).await).is_some(),
        "no claim answers for the id any more"
    );
}

/// CLM-8, CLM-15: the destination that accepted an id last decides how long its id record is kept.
pub async fn id_keeps_its_content_while_any_destination_keeps_it(store: &Arc<dyn Store>) {
    let noted = with_content_to(1, "a", at(0), &[note()]);
    assert!(queued(settle(&**store, vec![noted.clone()], at(0)).await[0].outcomes[0]).is_some());
    // Two batches at once, one with the message twice: on some engines these race.
    let (one, other) = tokio::join!(
        settle(&**store, vec![with_content(1, "a", at(60)), with_content(1, "a", at(60))], at(60)),
        settle(&**store, vec![with_content(1, "a", at(60))], at(60))
    );
    let outcomes: Vec<_> = one.iter().chain(&other).map(|settlement| settlement.outcomes[0]).collect();
    assert_eq!(outcomes.iter().filter(|outcome| queued(**outcome).is_some()).count(), 1, "{outcomes:?}");
    for days in [2, 2000] {
        let now = at(days * 86_400);
        store.sweep(now).await.expect("it sweeps");
        assert_eq!(settle_content(&**store, 1, "a", now).await, Outcome::Duplicate { first_seen_at: at(60) });
        conflict_of(settle_content(&**store, 2, "a", now).await);
    }
    let stored = store.conflicts(None, None, Serial(0), 10).await.expect("they are listed");
    let stored = store.conflict(stored[0].id).await.expect("it is read").expect("it is there");
    let first = stored.original.expect("it is there").message;
    assert_eq!(first.received_at, noted.message.received_at, "the first stands");
}
