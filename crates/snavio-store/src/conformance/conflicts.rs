//! Conflicts: an id never has two contents. If different content comes under an id, both contents are on
//! record (CLM-1, CLM-8, CLM-12).

use std::sync::Arc;

use bytes::Bytes;
use snavio_model::claim::{ClaimPolicy, IdKey, Status};
use snavio_model::conflict::{Conflict, ConflictState, Immovable, Move};
use snavio_model::delivery::DeadReason;
use snavio_model::hash::DomainHash;
use snavio_model::id::{MessageId, Serial};
use snavio_model::limits;
use snavio_model::message::{Message, Path};
use snavio_model::processing::{Processing, ProcessingKind};
use snavio_model::registry::{BoundRoute, Route};
use snavio_model::settle::{Intake, Outcome};
use snavio_model::time::Timestamp;

use super::processing::{completed, failed, finish};
use super::samples::{at, ids, intake, intake_of, queued, receipt, receive, route, settle, settle_one};
use crate::{Act, Erasure, Store};

fn post() -> Arc<BoundRoute> {
    route("post", ClaimPolicy::ledger())
}

/// A message of this id whose content depends on `content`.
fn saying(what: u8, id: &str, now: Timestamp) -> Intake {
    let it = intake(id, &post(), now);
    let payload = Bytes::from(format!(r#"{{"amount":{what}}}"#));
    Intake { message: Message { domain_hash: DomainHash([what; 32]), payload, ..it.message }, ..it }
}

fn conflict_of(outcome: Outcome) -> Serial {
    match outcome {
        Outcome::Conflict { conflict, .. } => conflict,
        other => panic!("{other:?}"),
    }
}

async fn settle_saying(store: &dyn Store, what: u8, id: &str, now: Timestamp) -> Outcome {
    settle(store, vec![saying(what, id, now)], now).await[0].outcomes[0]
}

/// CLM-8: in one batch and over batches. Conflict record, dead letter, audit entry and alert are one commit.
pub async fn both_contents_are_on_record_and_the_first_stands(store: &Arc<dyn Store>) {
    let batch = vec![saying(1, "a", at(0)), saying(2, "a", at(0)), saying(1, "a", at(0))];
    let settled = settle(&**store, batch, at(0)).await;
    assert!(queued(settled[0].outcomes[0]).is_some());
    let first = conflict_of(settled[1].outcomes[0]);
    assert_eq!(settled[2].outcomes[0], Outcome::Duplicate { first_seen_at: at(0) });
    let again = conflict_of(settle_saying(&**store, 2, "a", at(5)).await);
    assert_eq!(again, first, "the same content again is the same conflict");
    let other = conflict_of(settle_saying(&**store, 3, "a", at(6)).await);
    assert_eq!(settle_saying(&**store, 1, "a", at(7)).await, Outcome::Duplicate { first_seen_at: at(0) });

    let listed = store.conflicts(Some("acme"), None, Serial(0), 10).await.expect("they are listed");
    let told: Vec<_> = listed
        .iter()
        .map(|conflict| (conflict.id, conflict.hash.0[0], conflict.place, conflict.count))
        .collect();
    assert_eq!(told, [(first, 2, 1, 2), (other, 3, 2, 1)]);
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
    let told: Vec<_> = letters
        .iter()
        .map(|dead_letter| (dead_letter.letter.delivery.id, dead_letter.letter.reason))
        .collect();
    let refs = [listed[0].dead_letter, listed[1].dead_letter].map(|id| (id, DeadReason::Conflict));
    assert_eq!(told, refs);
    let deeds = store.audit(Serial(0), 10).await.expect("it is read");
    let opened: Vec<_> = deeds.iter().filter(|entry| entry.action == "conflict.open").collect();
    assert_eq!(
        opened.iter().map(|entry| entry.object.clone()).collect::<Vec<_>>(),
        [first, other].map(|conflict| conflict.to_string())
    );
    let records = store.telemetry("acme", Serial(0), 100).await.expect("it is read");
    let count = |kind: &str| records.iter().filter(|record| record.kind == kind).count();
    assert_eq!((count("snavio.claim.conflict"), count("snavio.command.delivered")), (2, 1));
    // The store dispatches no conflicting content, also not after a redrive.
    assert_eq!(ids(&receive(&**store, "post", 30, at(9)).await), ["a"]);
    let act = Act { who: "anna".into(), why: String::new(), at: at(9) };
    let dead = letters.iter().map(|dead_letter| dead_letter.letter.delivery.id).collect();
    let redriven = store.redrive("acme", dead, act).await.expect("it answers");
    assert!(redriven.back.is_empty(), "{redriven:?}");
    let uses = store.uses("acme", Serial(i64::MAX), 10).await.expect("it is read");
    assert_eq!(uses.len(), 1, "what was not dispatched was no use of a permission");
}

/// CLM-1: all destinations share one content, in any order of arrival. Another service cannot use the id.
pub async fn an_id_means_one_thing_wherever_it_goes(store: &Arc<dyn Store>) {
    let book = route("book", ClaimPolicy::Event { keep_seconds: 86_400, answers: false });
    settle_saying(&**store, 1, "a", at(0)).await;
    let to_book = |what: u8| {
        let it = saying(what, "a", at(1));
        Intake { destinations: vec![Arc::clone(&book)], ..it }
    };
    let settled = settle(&**store, vec![to_book(2), to_book(1), to_book(1)], at(1)).await;
    conflict_of(settled[0].outcomes[0]);
    assert!(queued(settled[1].outcomes[0]).is_some(), "{settled:?}");
    assert_eq!(settled[2].outcomes[0], Outcome::Duplicate { first_seen_at: at(1) });
    let by_shop = |what: u8| {
        let (other, says) = (intake_of("acme/shop", "a", &[post()], at(2)), saying(what, "a", at(2)).message);
        let message = Message { domain_hash: says.domain_hash, payload: says.payload, ..other.message };
        Intake { message, ..other }
    };
    let settled = settle(&**store, vec![by_shop(1), by_shop(3), by_shop(3)], at(2)).await;
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
pub async fn of_many_racing_contents_one_wins_and_the_others_are_conflicts(store: &Arc<dyn Store>) {
    let tasks: Vec<_> = (1..=20)
        .map(|what| {
            let store = Arc::clone(store);
            tokio::spawn(async move { settle_saying(&*store, what, "a", at(0)).await })
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
pub async fn a_conflict_is_triaged_and_resolved_once(store: &Arc<dyn Store>) {
    settle_saying(&**store, 1, "a", at(0)).await;
    let id = conflict_of(settle_saying(&**store, 2, "a", at(0)).await);
    let act = |who: &str| Act { who: who.to_owned(), why: "looked at".to_owned(), at: at(9) };
    let to = |to, compensating: Option<&str>| Move {
        to,
        note: "looked at".to_owned(),
        compensating: compensating.map(MessageId::stored),
    };
    let moved = async |to, who: &str| store.move_conflict(id, to, act(who)).await.expect("the store answers");
    let early = moved(to(ConflictState::ResolvedAcceptOriginal, None), "anna").await.expect("it is there");
    assert!(matches!(early, Err(Immovable::State { .. })), "{early:?}");
    moved(to(ConflictState::Triaged, None), "anna").await.expect("it is there").expect("it moves");
    let (one, other) = tokio::join!(
        moved(to(ConflictState::ResolvedAcceptOriginal, None), "anna"),
        moved(to(ConflictState::ResolvedAcceptNew, Some("b")), "ben"),
    );
    let won = [&one, &other].iter().filter(|moved| matches!(moved, Some(Ok(_)))).count();
    assert_eq!(won, 1, "{one:?} {other:?}");
    assert_eq!(store.open_conflicts().await.expect("they are counted"), 0);
    assert!(
        store
            .move_conflict(Serial(1), to(ConflictState::Triaged, None), act("x"))
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
pub async fn of_conflicts_that_name_one_reversal_at_once_one_does(store: &Arc<dyn Store>) {
    let act = Act { who: "anna".to_owned(), why: "looked at".to_owned(), at: at(9) };
    let to = |to, compensating: Option<&str>| Move {
        to,
        note: "looked at".to_owned(),
        compensating: compensating.map(MessageId::stored),
    };
    let mut conflicts = Vec::new();
    for id in (0..10).map(|number| format!("id-{number}")) {
        settle_saying(&**store, 1, &id, at(0)).await;
        let conflict = conflict_of(settle_saying(&**store, 2, &id, at(0)).await);
        let triaged = store.move_conflict(conflict, to(ConflictState::Triaged, None), act.clone()).await;
        triaged.expect("the store answers").expect("it is there").expect("it moves");
        conflicts.push(conflict);
    }
    let begin = Arc::new(tokio::sync::Barrier::new(conflicts.len()));
    let movers = conflicts.iter().map(|conflict| {
        let (store, begin, act, conflict) = (Arc::clone(store), Arc::clone(&begin), act.clone(), *conflict);
        let to = to(ConflictState::ResolvedAcceptNew, Some("reversal"));
        tokio::spawn(async move {
            begin.wait().await;
            store.move_conflict(conflict, to, act).await.expect("the store answers").expect("it is there")
        })
    });
    let movers: Vec<_> = movers.collect();
    let (mut won, mut told) = (Vec::new(), Vec::new());
    for mover in movers {
        match mover.await.expect("no task panics") {
            Ok(moved) => won.push(moved.id),
            Err(Immovable::Named(other)) => told.push(other),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(won.len(), 1, "{won:?}");
    assert_eq!(told, vec![won[0]; conflicts.len() - 1], "each is told which one");
    assert_eq!(store.open_conflicts().await.expect("they are counted"), 9);
}

/// CLM-15, CLM-19: the id is compared for seven years, and free when they end. If a conflict is about the id,
/// its original stays for as long as the conflict is kept.
pub async fn an_id_of_the_ledger_is_known_for_seven_years(store: &Arc<dyn Store>) {
    const DAY: i64 = 86_400;
    settle_saying(&**store, 1, "a", at(0)).await;
    settle_saying(&**store, 1, "b", at(0)).await;
    for day in [401, 2519] {
        let now = at(day * DAY);
        store.sweep(now).await.expect("it sweeps");
        assert_eq!(settle_saying(&**store, 1, "a", now).await, Outcome::Duplicate { first_seen_at: at(0) });
        conflict_of(settle_saying(&**store, 2, "a", now).await);
    }
    let over = at(2558 * DAY);
    assert!(
        queued(settle_saying(&**store, 2, "b", over).await).is_some(),
        "it means something else from now on"
    );
    conflict_of(settle_saying(&**store, 1, "b", at(2559 * DAY)).await);
    assert_eq!(settle_saying(&**store, 2, "a", over).await, Outcome::Unreadable, "a conflict is about it");
    store.sweep(at(9000 * DAY)).await.expect("it sweeps");
    assert_eq!(
        store.conflicts(None, None, Serial(0), 10).await.expect("they are listed").len(),
        2,
        "conflicts stay"
    );
}

/// CLM-8: an id has expired and has conflicts from before, and then two contents come at once.
pub async fn an_id_that_is_free_again_has_its_conflicts_after_those_from_before(store: &Arc<dyn Store>) {
    let event = route("note", ClaimPolicy::Event { keep_seconds: 86_400, answers: false });
    let sent = |what: u8, now| Intake { destinations: vec![Arc::clone(&event)], ..saying(what, "a", now) };
    for (day, place) in [(0, 1), (2, 2), (4, 3)] {
        let now = at(day * 86_400);
        let settled = settle(&**store, vec![sent(1, now), sent(2, now)], now).await;
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
pub async fn each_tenant_that_must_decide_has_its_own_conflict(store: &Arc<dyn Store>) {
    let send = async |what, to: &Arc<BoundRoute>| {
        let sent = Intake { destinations: vec![Arc::clone(to)], ..saying(what, "a", at(1)) };
        settle(&**store, vec![sent], at(1)).await[0].outcomes[0]
    };
    assert!(queued(send(1, &zeta()).await).is_some());
    for what in 2..=120 {
        conflict_of(send(what, &post()).await);
    }
    let (second, other) = (conflict_of(send(2, &zeta()).await), conflict_of(send(200, &zeta()).await));
    assert_eq!(conflict_of(send(2, &zeta()).await), second);
    let listed =
        async |owner| store.conflicts(Some(owner), None, Serial(0), 200).await.expect("they are listed");
    let of_zeta = listed("zeta").await;
    let told: Vec<_> = of_zeta
        .iter()
        .map(|conflict| (conflict.id, conflict.hash.0[0], conflict.place, conflict.count))
        .collect();
    assert_eq!(told, [(second, 2, 101, 2), (other, 200, 102, 1)]);
    let of_acme = listed("acme").await;
    assert_eq!((of_acme.len(), of_acme.iter().map(|conflict| conflict.count).sum::<u64>()), (100, 119));
    let letters = store.dead_letters("zeta", None, Serial(0), 10).await.expect("they are listed");
    assert_eq!(letters.len(), 2);
    let id = IdKey { id: MessageId::stored("a"), tenant: "acme".parse().expect("a tenant") };
    let act = Act { who: "anna".into(), why: "asked for".into(), at: at(2) };
    let erased = store.erase(&id, Vec::new(), Some("acme"), act).await.expect("it answers");
    assert_eq!(erased, Erasure::Disputed(second));
}

/// CLM-8: a conflict of an event is one commit, with one record for each tenant that compares content.
pub async fn a_conflict_of_an_event_for_many_is_told_to_each_tenant(store: &Arc<dyn Store>) {
    let book = route("book", ClaimPolicy::ledger());
    let all = vec![post(), book, zeta(), route("notify", ClaimPolicy::None)];
    let sent = |what| Intake { destinations: all.clone(), ..saying(what, "a", at(1)) };
    let settled = settle(&**store, vec![sent(1)], at(1)).await;
    assert!(settled[0].outcomes.iter().all(|outcome| queued(*outcome).is_some()), "{settled:?}");
    let settled = settle(&**store, vec![sent(2), sent(2), sent(3)], at(1)).await;
    assert_eq!(settled[0].outcomes, [settled[0].outcomes[0]; 4], "the answer names one of them");
    let again = conflict_of(settle(&**store, vec![sent(2)], at(2)).await[0].outcomes[0]);
    assert_eq!(again, conflict_of(settled[0].outcomes[0]));

    for owner in ["acme", "zeta"] {
        let listed = store.conflicts(Some(owner), None, Serial(0), 10).await.expect("they are listed");
        let told: Vec<_> = listed.iter().map(|conflict| (conflict.hash.0[0], conflict.count)).collect();
        assert_eq!(told, [(2, 3), (3, 1)], "{owner}: one record for all of its destinations");
        let letters = store.dead_letters(owner, None, Serial(0), 10).await.expect("they are listed");
        let of: Vec<_> = letters.iter().map(|dead_letter| dead_letter.letter.conflict()).collect();
        assert_eq!(of, listed.iter().map(|conflict| Some(conflict.id)).collect::<Vec<_>>());
        for (conflict, letter) in listed.iter().zip(&letters) {
            assert_eq!(letter.letter.delivery.id, conflict.dead_letter);
            let stored = store.conflict(conflict.id).await.expect("it is read").expect("it is there");
            let says = stored.conflicting.expect("what it says is kept").message;
            let whole = store.dead_letter(owner, conflict.dead_letter).await.expect("it is read");
            let kept = whole.expect("it is there").message;
            assert_eq!((says.domain_hash, says.payload), (conflict.hash, kept.payload));
        }
        let records = store.telemetry(owner, Serial(0), 100).await.expect("it is read");
        assert_eq!(
            records.iter().filter(|record| record.kind == "snavio.claim.conflict").count(),
            2,
            "{owner}"
        );
        // Each tenant decides for itself.
        let to = Move { to: ConflictState::Triaged, note: "seen".to_owned(), compensating: None };
        let act = Act { who: "anna".into(), why: "seen".into(), at: at(2) };
        let moved = store.move_conflict(listed[0].id, to, act).await.expect("it moves");
        assert_eq!(moved.expect("it is there").expect("it may").owner.as_str(), owner);
    }
    let deeds = store.audit(Serial(0), 50).await.expect("it is read");
    assert_eq!(deeds.iter().filter(|entry| entry.action == "conflict.open").count(), 4);
    assert_eq!(store.open_conflicts().await.expect("they are counted"), 4);
}

/// CLM-8, PIP-13: the event goes to the highest number of subscriptions, each of another tenant.
pub async fn as_many_tenants_as_may_subscribe_are_told(store: &Arc<dyn Store>) {
    let of = |at: usize| {
        let target = format!("t{at}/gl").parse().expect("a service");
        Arc::new(BoundRoute::new(Route { target, ..post().route.clone() }))
    };
    let all: Vec<_> = (0..limits::SUBSCRIPTIONS_PER_TYPE_MAX).map(of).collect();
    let sent = |what| Intake { destinations: all.clone(), ..saying(what, "a", at(1)) };
    assert!(queued(settle(&**store, vec![sent(1)], at(1)).await[0].outcomes[0]).is_some());
    conflict_of(settle(&**store, vec![sent(2)], at(1)).await[0].outcomes[999]);
    assert_eq!(store.open_conflicts().await.expect("they are counted"), 1000);
    let last = store.conflicts(Some("t999"), None, Serial(0), 10).await.expect("they are listed");
    let stored = store.conflict(last[0].id).await.expect("it is read").expect("it is there");
    assert_eq!(stored.conflicting.map(|logged| logged.message.domain_hash.0[0]), Some(2));
    conflict_of(settle(&**store, vec![sent(3)], at(1)).await[0].outcomes[0]);
    let id = IdKey { id: MessageId::stored("a"), tenant: "acme".parse().expect("a tenant") };
    let all = store.conflicts_of(&id, None).await.expect("they are listed");
    assert_eq!((all.len(), all[999].place), (1000, 1000), "a page of them");
    let of_last = store.conflicts_of(&id, Some("t999")).await.expect("they are listed");
    assert_eq!(of_last.iter().map(|conflict| conflict.hash.0[0]).collect::<Vec<_>>(), [2, 3]);
    // The cap on records is reached: new contents count on the last record, and known contents count on their
    // own.
    for (what, count) in [(4, [1, 2]), (2, [2, 2]), (4, [2, 3])] {
        conflict_of(settle(&**store, vec![sent(what)], at(2)).await[0].outcomes[0]);
        let of_last = store.conflicts_of(&id, Some("t999")).await.expect("they are listed");
        assert_eq!(of_last.iter().map(|conflict| conflict.count).collect::<Vec<_>>(), count, "{what}");
    }
    assert_eq!(store.open_conflicts().await.expect("they are counted"), 2000);
}

/// CLM-8: a decision about an id does not apply to a later id record of the same id.
pub async fn another_meaning_of_an_id_has_conflicts_of_its_own(store: &Arc<dyn Store>) {
    let event = route("note", ClaimPolicy::Event { keep_seconds: 86_400, answers: false });
    let send = async |what, now| {
        let sent = Intake { destinations: vec![Arc::clone(&event)], ..saying(what, "a", at(now)) };
        settle(&**store, vec![sent], at(now)).await[0].outcomes[0]
    };
    send(1, 0).await;
    let before = conflict_of(send(2, 1).await);
    for state in [ConflictState::Triaged, ConflictState::ResolvedAcceptOriginal] {
        let to = Move { to: state, note: "seen".to_owned(), compensating: None };
        let act = Act { who: "anna".into(), why: "seen".into(), at: at(2) };
        let moved = store.move_conflict(before, to, act).await.expect("it moves");
        moved.expect("it is there").expect("it may");
    }
    assert!(queued(send(3, 86_400).await).is_some(), "it is free");
    let since = conflict_of(send(2, 86_401).await);
    let stored = store.conflict(since).await.expect("it is read").expect("it is there");
    assert_ne!(since, before);
    let Conflict { state, original_hash, place, .. } = stored.conflict;
    assert_eq!((state, original_hash.0[0], place), (ConflictState::Open, 3, 2));
    assert_eq!(store.open_conflicts().await.expect("they are counted"), 1);
}

/// CLM-8, TEL-4: messages that were never dispatched do not hold up a reader of telemetry.
pub async fn conflicts_do_not_hide_what_comes_after_them(store: &Arc<dyn Store>) {
    settle_saying(&**store, 1, "a", at(0)).await;
    let batch = (2..=30).map(|what| saying(what, "a", at(1))).collect();
    settle(&**store, batch, at(1)).await;
    settle_saying(&**store, 1, "b", at(2)).await;
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
pub async fn a_policy_that_is_tightened_compares_with_what_was_taken_before(store: &Arc<dyn Store>) {
    let strict = route("post", ClaimPolicy::Strict { keep_seconds: 86_400 });
    let first = Intake { destinations: vec![strict], ..saying(1, "a", at(0)) };
    settle(&**store, vec![first], at(0)).await;
    assert_eq!(settle_saying(&**store, 1, "a", at(1)).await, Outcome::Duplicate { first_seen_at: at(0) });
    conflict_of(settle_saying(&**store, 2, "a", at(1)).await);
}

/// CLM-8, CLM-20: the work waits for longer than its id record was to be kept. Its content is still compared,
/// before and after a sweep.
pub async fn an_id_means_what_it_did_while_its_work_goes_on(store: &Arc<dyn Store>) {
    let event = |name| route(name, ClaimPolicy::Event { keep_seconds: 1_000, answers: true });
    let processing = Processing::of(ProcessingKind::Tracked);
    let book = Arc::new(BoundRoute::new(Route { processing, ..event("book").route.clone() }));
    let sent = |what, id, now, route: &Arc<BoundRoute>| Intake {
        destinations: vec![Arc::clone(route)],
        ..saying(what, id, at(now))
    };
    for id in ["a", "b"] {
        settle(&**store, vec![sent(1, id, 0, &book)], at(0)).await;
    }
    let later = 3 * 86_400;
    for id in ["a", "b"] {
        let batch = vec![sent(1, id, later, &book), sent(2, id, later, &book)];
        let foreseen = store.foresee(batch[1].clone(), at(later)).await.expect("it foresees");
        assert!(matches!(foreseen.outcomes[0], Outcome::Conflict { .. }), "{foreseen:?}");
        let settled = settle(&**store, batch, at(later)).await;
        assert!(matches!(settled[0].outcomes[0], Outcome::Seen { status: Status::Processing, .. }));
        conflict_of(settled[1].outcomes[0]);
        // The id has no other content at another destination either.
        let elsewhere = settle(&**store, vec![sent(3, id, later, &event("note"))], at(later)).await;
        conflict_of(elsewhere[0].outcomes[0]);
        store.sweep(at(later)).await.expect("it sweeps");
    }
    let same = settle(&**store, vec![sent(1, "a", later, &event("note"))], at(later)).await;
    assert!(queued(same[0].outcomes[0]).is_some(), "{same:?}");
}

/// CLM-1, CLM-5, CLM-8: a claim that outlives the retention of its id record never answers for different
/// content.
pub async fn an_id_means_what_it_did_while_a_claim_answers_for_it(store: &Arc<dyn Store>) {
    let event = |name| route(name, ClaimPolicy::Event { keep_seconds: 1_000, answers: true });
    let (note, processing) = (event("note"), Processing::of(ProcessingKind::Tracked));
    let book = Arc::new(BoundRoute::new(Route { processing, ..event("book").route.clone() }));
    let send = async |what, id, now, route: &Arc<BoundRoute>| {
        let sent = Intake { destinations: vec![Arc::clone(route)], ..saying(what, id, at(now)) };
        settle(&**store, vec![sent], at(now)).await[0].outcomes[0]
    };
    for id in ["swept", "not swept", "put back"] {
        assert!(queued(send(1, id, 0, &book).await).is_some());
        let work = receive(&**store, "book", 3600, at(0)).await.remove(0);
        let report = match id {
            "put back" => failed(receipt(&work), true, 0),
            _ => completed(receipt(&work), "1"),
        };
        // The work ends late, so its claim is kept until second 2500.
        finish(&**store, report, 1_500).await;
        if id == "not swept" {
            conflict_of(send(2, id, 1_600, &note).await);
            continue;
        }
        store.sweep(at(1_600)).await.expect("it sweeps");
        let later = if id == "swept" { 1_600 } else { 2_600 };
        if id == "put back" {
            let act = Act { who: "anna".into(), why: "mended".into(), at: at(1_601) };
            let redriven = store.redrive("acme", vec![work.delivery_id], act).await.expect("it answers");
            assert_eq!(redriven.back, [work.delivery_id]);
        }
        conflict_of(send(2, id, later, &note).await);
        conflict_of(send(2, id, later, &book).await);
        let same = send(1, id, later, &book).await;
        assert!(matches!(same, Outcome::Seen { .. }), "{id}: {same:?}");
    }
    assert!(queued(send(2, "swept", 2_700, &note).await).is_some(), "nobody answers for it any more");
}

/// CLM-8, CLM-15: the destination that accepted an id last decides how long its id record is kept.
pub async fn an_id_means_what_it_did_for_as_long_as_any_keeps_it(store: &Arc<dyn Store>) {
    let event = route("note", ClaimPolicy::Event { keep_seconds: 86_400, answers: false });
    let noted = Intake { destinations: vec![event], ..saying(1, "a", at(0)) };
    assert!(queued(settle(&**store, vec![noted.clone()], at(0)).await[0].outcomes[0]).is_some());
    // Two batches at once, one with the message twice: on some engines these race.
    let (one, other) = tokio::join!(
        settle(&**store, vec![saying(1, "a", at(60)), saying(1, "a", at(60))], at(60)),
        settle(&**store, vec![saying(1, "a", at(60))], at(60))
    );
    let outcomes: Vec<_> = one.iter().chain(&other).map(|settlement| settlement.outcomes[0]).collect();
    assert_eq!(outcomes.iter().filter(|outcome| queued(**outcome).is_some()).count(), 1, "{outcomes:?}");
    for days in [2, 2000] {
        let now = at(days * 86_400);
        store.sweep(now).await.expect("it sweeps");
        assert_eq!(settle_saying(&**store, 1, "a", now).await, Outcome::Duplicate { first_seen_at: at(60) });
        conflict_of(settle_saying(&**store, 2, "a", now).await);
    }
    let stored = store.conflicts(None, None, Serial(0), 10).await.expect("they are listed");
    let stored = store.conflict(stored[0].id).await.expect("it is read").expect("it is there");
    let first = stored.original.expect("it is there").message;
    assert_eq!(first.received_at, noted.message.received_at, "the first stands");
}
