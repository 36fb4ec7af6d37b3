//! Legal holds, and deletion of records without a hold: nothing under a hold is deleted under any policy, and
//! every deletion is audited by name (CLM-15, CLM-18).

use std::sync::Arc;

use snavio_model::archive::hold::{Held, Hold};
use snavio_model::bounds;
use snavio_model::claim::conflict::{ConflictState, Move};
use snavio_model::claim::{Claim, ClaimKey, ClaimPolicy};
use snavio_model::delivery::processing::{Processing, ProcessingKind};
use snavio_model::hash::DomainHash;
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::TenantName;
use snavio_model::registry::{BoundRoute, Route};
use snavio_model::settle::{Intake, Outcome};
use snavio_model::time::Timestamp;

use super::archive::{
    ArchiveObjects, DAY, acme, archive, count_messages, id_key, post_message, read_archived, with_content,
};
use super::processing::{
    answer, completed_report, count_audited, failed_report, finish_one, lease_new, tracked_route,
};
use super::samples::{
    acknowledge, act, at, intake, intake_of, pay, queue, queued, receipt, receive, route, settle, settle_one,
};
use crate::{Erasure, HeldBack, NewHold, Redriven, Store};

async fn set_hold(store: &dyn Store, tenant: TenantName, held: Held) -> Option<Hold> {
    store.set_hold(NewHold { tenant, held }, act("a lawsuit", at(2))).await.expect("the store answers")
}

async fn lift_hold(store: &dyn Store, hold: &Hold) {
    store
        .lift_hold(hold.id, act("the lawsuit ended", at(3)))
        .await
        .expect("the store answers")
        .expect("it is there");
}

/// A tracked route with short-lived claims.
fn tracked(claim: ClaimPolicy) -> Arc<BoundRoute> {
    let processing = Processing::of(ProcessingKind::Tracked);
    Arc::new(BoundRoute::new(Route { processing, ..route("book", claim).route.clone() }))
}

/// CLM-18: a hold applies to every record, not only to records kept for an audit.
pub async fn short_lived_claims_are_held_too(store: &Arc<dyn Store>) {
    let event = tracked(ClaimPolicy::Event { keep_seconds: 86_400, answers: true });
    assert!(queued(settle_one(&**store, "event", &event, at(0)).await).is_some());
    let work = receive(&**store, "book", 30, at(0)).await.remove(0);
    finish_one(&**store, completed_report(receipt(&work), "1"), 1).await;
    let seen = route("seen", ClaimPolicy::Seen { keep_seconds: 86_400 });
    let others = [("strict", pay()), ("seen", seen), ("event", event)];
    for (id, route) in &others[..2] {
        assert!(queued(settle_one(&**store, id, route, at(0)).await).is_some());
    }
    let held = set_hold(&**store, acme(), Held::Tenant).await.expect("there is room");
    let later = at(40 * DAY);
    for _ in 0..3 {
        assert_eq!(store.sweep(later).await.expect("it sweeps").claims, 0);
    }
    for (id, route) in &others {
        let again = settle_one(&**store, id, route, later).await;
        assert_eq!(again, Outcome::Unreadable, "{id} cannot be used again");
        let foreseen = store.foresee(intake(id, route, later), later).await.expect("it foresees");
        assert_eq!(foreseen.outcomes, [Outcome::Unreadable], "{id}");
    }
    assert_eq!(store.answer(work.delivery_id).await.expect("it is read"), Some(answer("1")));
    // A record without the hold is deleted although it comes after held ones.
    let zeta = intake_of("zeta/billing", "other", &[elsewhere()], at(50 * DAY));
    settle(&**store, vec![zeta], at(50 * DAY)).await;
    assert_eq!(store.sweep(at(60 * DAY)).await.expect("it sweeps").claims, 1);

    lift_hold(&**store, &held).await;
    assert_eq!(store.sweep(at(60 * DAY)).await.expect("it sweeps").claims, 3);
    assert_eq!(store.answer(work.delivery_id).await.expect("it is read"), None);
    for (id, route) in &others {
        assert!(queued(settle_one(&**store, id, route, at(60 * DAY)).await).is_some(), "{id} is free");
    }
}

/// CLM-18, CLM-19: a sweep visits a bounded number of rows, continues after held rows, and deletes them once
/// their hold is lifted.
pub async fn sweep_continues_past_held_claims(store: &Arc<dyn Store>) {
    const HELD: usize = bounds::SWEEP_ROWS_MAX + 100;
    for part in (0..HELD).collect::<Vec<_>>().chunks(700) {
        let batch = part.iter().map(|n| intake(&n.to_string(), &pay(), at(0))).collect();
        settle(&**store, batch, at(0)).await;
    }
    let zeta = intake_of("zeta/billing", "other", &[elsewhere()], at(1));
    settle(&**store, vec![zeta], at(1)).await;
    let held = set_hold(&**store, acme(), Held::Tenant).await.expect("there is room");
    let later = at(DAY);
    let (mut swept, mut partial) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let round = store.sweep(later).await.expect("it sweeps");
        swept.push(round.claims);
        partial.push(round.is_partial());
    }
    assert_eq!(partial, [true, false, false, false], "it goes on at once, though nothing was deleted");
    assert_eq!(swept, [0, 1, 0, 0], "all that is held ends at one moment, and the other behind it");
    lift_hold(&**store, &held).await;
    let swept =
        [store.sweep(later).await, store.sweep(later).await].map(|swept| swept.expect("it sweeps").claims);
    assert_eq!(swept, [bounds::SWEEP_ROWS_MAX, 100]);
}

/// A route of another tenant.
fn elsewhere() -> Arc<BoundRoute> {
    let target = "zeta/bot".parse().expect("a service");
    let route = Route { target, ..pay().route.clone() };
    Arc::new(BoundRoute::new(route))
}

/// CLM-18: neither another attempt nor a decision by a person destroys a held record.
pub async fn held_response_survives_redrive_and_settle(store: &Arc<dyn Store>) {
    let work = lease_new(&**store, "a", 0).await;
    finish_one(&**store, failed_report(receipt(&work), true, 0), 1).await;
    let held =
        set_hold(&**store, acme(), Held::Destination("acme/bot:book".into())).await.expect("there is room");
    let id = work.delivery_id;
    assert_eq!(redrive(&**store, id).await, Redriven { held: vec![id], ..Redriven::default() });
    let settled = store.settle_claim("acme", id, None, act("seen", at(3))).await.expect("it answers");
    assert_eq!(settled, Some(Err(HeldBack)));
    assert_eq!(store.answer(id).await.expect("it is read"), Some(answer("no")));
    lift_hold(&**store, &held).await;
    assert_eq!(redrive(&**store, id).await, Redriven { back: vec![id], ..Redriven::default() });
}

async fn redrive(store: &dyn Store, id: Serial) -> Redriven {
    store.redrive("acme", vec![id], act("fixed", at(3))).await.expect("it answers")
}

/// CLM-10, CLM-18
pub async fn import_does_not_replace_held_claims(store: &Arc<dyn Store>) {
    let seen = route("seen", ClaimPolicy::Seen { keep_seconds: 86_400 });
    settle_one(&**store, "a", &seen, at(0)).await;
    let held = set_hold(&**store, acme(), Held::Id(MessageId::stored("a"))).await.expect("there is room");
    let destination = Arc::clone(&seen.destination);
    let key = ClaimKey { id: MessageId::stored("a"), tenant: acme(), destination };
    let claim = Claim {
        source: "acme/billing".parse().expect("a service"),
        message: Serial(0),
        first_seen_at: at(9 * DAY),
        expires_at: at(11 * DAY),
        hot_until: None,
        progress: None,
    };
    let import = async || {
        let claims = vec![(key.clone(), claim.clone())];
        store.import(claims, act("moving", at(10 * DAY))).await.expect("it answers")
    };
    assert_eq!(import().await, 0);
    lift_hold(&**store, &held).await;
    assert_eq!(import().await, 1);
}

/// CLM-18: a dry run only reads.
pub async fn dry_run_deletes_nothing(store: &Arc<dyn Store>) {
    post_message(&**store, "a").await;
    let later = at(2558 * DAY);
    for content in [9, 7] {
        let foreseen = store.foresee(with_content(content, "a", 2558), later).await.expect("it foresees");
        assert!(queued(foreseen.outcomes[0]).is_some(), "{foreseen:?}");
    }
    assert_eq!((count_messages(&**store).await, count_audited(&**store, "claims.expire").await), (1, 0));
}

/// CLM-15, CLM-18: claims of layouts before the archive have no mark that they are kept for an audit.
pub async fn claims_from_before_the_archive_are_audited(store: &Arc<dyn Store>) {
    let years = u32::try_from(2557 * DAY).expect("seven years");
    let old = route("post", ClaimPolicy::Event { keep_seconds: years, answers: false });
    for id in ["swept", "used again"] {
        assert!(queued(settle_one(&**store, id, &old, at(0)).await).is_some());
        let work = receive(&**store, "post", 30, at(0)).await.remove(0);
        acknowledge(&**store, &queue("post"), vec![receipt(&work)]).await.expect("it ends");
    }
    assert!(queued(settle_one(&**store, "used again", &old, at(2558 * DAY)).await).is_some());
    assert_eq!((count_audited(&**store, "claims.expire").await, count_messages(&**store).await), (1, 2));
    store.sweep(at(2558 * DAY)).await.expect("it sweeps");
    assert_eq!((count_audited(&**store, "claims.expire").await, count_messages(&**store).await), (2, 1));
}

/// CLM-15: a conflict is kept for seven years from its own time, and so is its original.
pub async fn conflict_keeps_its_original_for_seven_years(store: &Arc<dyn Store>) {
    post_message(&**store, "a").await;
    let now = at(2000 * DAY);
    let Outcome::Conflict { conflict, .. } =
        settle(&**store, vec![with_content(7, "a", 2000)], now).await[0].outcomes[0]
    else {
        panic!("it is a conflict")
    };
    for state in [ConflictState::Triaged, ConflictState::ResolvedAcceptOriginal] {
        move_conflict(&**store, conflict, state, now).await;
    }
    for (day, is_there) in [(2558, true), (4556, true), (4558, false)] {
        store.sweep(at(day * DAY)).await.expect("it sweeps");
        let stored = store.conflict(conflict).await.expect("it is read").expect("it is there");
        assert_eq!(stored.original.is_some(), is_there, "on day {day}");
    }
    assert_eq!(count_audited(&**store, "claims.expire").await, 1);
}

/// CLM-15, CLM-16, CLM-18: a sender that uses an id again after it expired does not destroy the original of a
/// conflict.
pub async fn disputed_id_is_not_reused(store: &Arc<dyn Store>) {
    let mut objects = ArchiveObjects::new();
    post_message(&**store, "a").await;
    assert_eq!(archive(&**store, &mut objects, 401).await, 1);
    let now = at(2000 * DAY);
    let settled = settle(&**store, vec![with_content(7, "a", 2000)], now).await[0].outcomes[0];
    let Outcome::Conflict { conflict, .. } = settled else { panic!("{settled:?}") };
    let over = at(2558 * DAY);
    store.sweep(over).await.expect("it sweeps");
    for content in [9, 7, 5] {
        let foreseen = store.foresee(with_content(content, "a", 2558), over).await.expect("it foresees");
        assert_eq!(foreseen.outcomes, [Outcome::Unreadable], "content {content}");
        let again = settle(&**store, vec![with_content(content, "a", 2558)], over).await[0].outcomes[0];
        assert_eq!(again, Outcome::Unreadable, "content {content}");
    }
    assert!(store.spent_segments("", 10, at(2600 * DAY)).await.expect("it looks").is_empty());
    assert_eq!(read_archived(&**store, &objects, "a", 2000).await.message.domain_hash, DomainHash([9; 32]));
    for state in [ConflictState::Triaged, ConflictState::ResolvedAcceptOriginal] {
        move_conflict(&**store, conflict, state, over).await;
    }
    let again = settle(&**store, vec![with_content(7, "a", 4558)], at(4558 * DAY)).await[0].outcomes[0];
    assert!(queued(again).is_some(), "the conflict has expired too: {again:?}");
    assert_eq!(store.spent_segments("", 10, at(4558 * DAY)).await.expect("it looks").len(), 1);
}

/// CLM-8, CLM-14, CLM-15: while another destination keeps the id record, its original stays readable,
/// although the first claim has expired.
pub async fn original_stays_while_its_id_record_is_kept(store: &Arc<dyn Store>) {
    let post = route("post", ClaimPolicy::ledger());
    let mut objects = ArchiveObjects::new();
    post_message(&**store, "archived").await;
    assert_eq!(archive(&**store, &mut objects, 401).await, 1);
    let ids = ["archived", "hot", "undisputed"];
    for id in &ids[1..] {
        post_message(&**store, id).await;
    }
    let day = 2200;
    let batch = ids.iter().map(|id| with_content_to(9, id, day, &post)).collect();
    let settled = settle(&**store, batch, at(day * DAY)).await;
    assert!(settled.iter().all(|settlement| queued(settlement.outcomes[0]).is_some()), "{settled:?}");
    store.purge(&post.queue, act("done", at(day * DAY))).await.expect("it purges");
    store.sweep(at(2558 * DAY)).await.expect("it sweeps");
    for id in ids {
        assert_eq!(count_claims(&**store, id).await, 2, "{id}");
    }
    let now = at(2900 * DAY);
    let batch = ["archived", "hot"].map(|id| with_content_to(7, id, 2900, &post)).to_vec();
    for settled in settle(&**store, batch, now).await {
        let Outcome::Conflict { conflict, .. } = settled.outcomes[0] else { panic!("{settled:?}") };
        let stored = store.conflict(conflict).await.expect("it is read").expect("it is there");
        let is_archived = stored.conflict.event_id.as_str() == "archived";
        assert_eq!(stored.original.is_none(), is_archived, "{stored:?}");
    }
    assert!(store.spent_segments("", 10, now).await.expect("it looks").is_empty());
    // The content is still compared at the destination of the expired claim, and no new claim replaces it.
    let same = settle(&**store, vec![with_content(9, "undisputed", 2900)], now).await[0].outcomes[0];
    let other = settle(&**store, vec![with_content(5, "hot", 2900)], now).await[0].outcomes[0];
    assert_eq!(same, Outcome::Unreadable);
    assert!(matches!(other, Outcome::Conflict { .. }), "{other:?}");
    for day in [4760, 4761] {
        store.sweep(at(day * DAY)).await.expect("it sweeps");
    }
    assert_eq!((count_claims(&**store, "undisputed").await, count_claims(&**store, "hot").await), (0, 1));
}

async fn count_claims(store: &dyn Store, id: &str) -> usize {
    store.claims_of(&id_key(id), at(0)).await.expect("they are read").len()
}

/// A message of `book` with this content, for another route.
fn with_content_to(content: u8, id: &str, day: i64, route: &Arc<BoundRoute>) -> Intake {
    Intake { destinations: vec![Arc::clone(route)], ..with_content(content, id, day) }
}

/// CLM-18: a held claim may be of a policy without an audit, while another claim of its message is kept for
/// one.
pub async fn held_claim_keeps_its_archived_message(store: &Arc<dyn Store>) {
    let note = route("note", ClaimPolicy::Event { keep_seconds: 86_400, answers: false });
    let sent = Intake { destinations: vec![tracked_route(), note], ..with_content(9, "a", 0) };
    settle(&**store, vec![sent], at(0)).await;
    let work = receive(&**store, "book", 30, at(0)).await.remove(0);
    finish_one(&**store, completed_report(receipt(&work), "1"), 1).await;
    let noted = receive(&**store, "note", 30, at(0)).await.remove(0);
    acknowledge(&**store, &queue("note"), vec![receipt(&noted)]).await.expect("it ends");
    let held =
        set_hold(&**store, acme(), Held::Destination("acme/bot:note".into())).await.expect("there is room");
    let mut objects = ArchiveObjects::new();
    assert_eq!(archive(&**store, &mut objects, 401).await, 1);
    for day in [2558, 2559] {
        store.sweep(at(day * DAY)).await.expect("it sweeps");
        assert!(store.spent_segments("", 10, at(day * DAY)).await.expect("it looks").is_empty());
    }
    lift_hold(&**store, &held).await;
    for day in [2560, 2561] {
        store.sweep(at(day * DAY)).await.expect("it sweeps");
    }
    assert_eq!(store.spent_segments("", 10, at(2561 * DAY)).await.expect("it looks").len(), 1);
}

/// CLM-18: settling deletes an expired claim only if a new claim replaces it. A refused message does not
/// replace it.
pub async fn refused_message_deletes_nothing(store: &Arc<dyn Store>) {
    post_message(&**store, "a").await;
    let over = at(2558 * DAY);
    assert!(queued(settle_one(&**store, "live", &pay(), over).await).is_some());
    let mut late = with_content(9, "a", 2558);
    late.message.received_at = at(2558 * DAY - 100);
    let settled = settle(&**store, vec![intake("live", &pay(), over), late], over).await;
    assert_eq!(settled[1].outcomes, [Outcome::TooLate]);
    assert_eq!(count_audited(&**store, "claims.expire").await, 0);
    let claims = store.claims_of(&id_key("a"), at(0)).await.expect("it is read");
    assert_eq!(claims.len(), 1, "it is still there");
}

/// CLM-18: the audit log names every deleted claim, in entries of readable length.
pub async fn every_deleted_claim_is_audited_by_name(store: &Arc<dyn Store>) {
    let ids: Vec<_> = (0..150).map(|n| format!("{n:03}-{}", "x".repeat(100))).collect();
    let batch = ids.iter().map(|id| intake(id, &tracked_route(), at(0))).collect();
    settle(&**store, batch, at(0)).await;
    store.purge(&queue("book"), act("over", at(1))).await.expect("it purges");
    assert!(store.sweep(at(2558 * DAY)).await.expect("it sweeps").claims >= 150);
    let entries = store.audit(Serial(0), 1000).await.expect("the record is read");
    let entries: Vec<_> = entries.iter().filter(|entry| entry.action == "claims.expire").collect();
    assert!(
        entries.len() > 1 && entries.iter().all(|entry| entry.outcome.len() < 10_000),
        "{}",
        entries.len()
    );
    for id in &ids {
        let name = format!("{id:?} of acme at acme/bot:book");
        assert_eq!(entries.iter().filter(|entry| entry.outcome.contains(&name)).count(), 1, "{id}");
    }
    let counted = entries.iter().filter_map(|entry| entry.object.split(' ').next()?.parse::<usize>().ok());
    assert_eq!(counted.sum::<usize>(), 150);
}

/// CLM-18: a tenant that received a message can hold it by its id, even if another tenant sent it. A tenant
/// that did not receive it cannot.
pub async fn recipient_can_hold_an_id(store: &Arc<dyn Store>) {
    const UUID: &str = "7c0f4c6e-0d3c-4c58-9f52-0a2f6f8d7a11";
    let post = zeta_ledger();
    for id in ["a", UUID] {
        assert!(!is_concerned(store, "zeta", id).await && !is_concerned(store, "acme", id).await, "{id}");
        settle(&**store, vec![with_content_to(9, id, 0, &post)], at(0)).await;
        store.purge(&post.queue, act("done", at(1))).await.expect("it purges");
        for (name, expected) in [("acme", true), ("zeta", true), ("zet", false), ("umbrella", false)] {
            assert_eq!(is_concerned(store, name, id).await, expected, "{name} {id}");
        }
        let [umbrella, zeta] = ["umbrella", "zeta"].map(|name| TenantName::new(name).expect("a tenant"));
        set_hold(&**store, umbrella, Held::Id(MessageId::stored(id))).await.expect("there is room");
        let held = set_hold(&**store, zeta, Held::Id(MessageId::stored(id))).await.expect("there is room");
        assert_eq!(erase(store, id, Some("acme")).await, Erasure::Held(held.id), "{id}");
        for day in [2558, 2559] {
            store.sweep(at(day * DAY)).await.expect("it sweeps");
        }
        let key = id_key(id);
        assert_eq!(store.claims_of(&key, at(0)).await.expect("it is read").len(), 1, "{id} is held");
        lift_hold(&**store, &held).await;
        let erased = Erasure::Erased { at: at(5), before: false };
        assert_eq!(erase(store, id, Some("acme")).await, erased, "{id}");
        store.sweep(at(2559 * DAY)).await.expect("it sweeps");
        assert!(store.claims_of(&key, at(0)).await.expect("it is read").is_empty(), "{id} goes");
        assert!(!is_concerned(store, "zeta", id).await, "{id}");
    }
}

/// A ledger route of the tenant zeta.
fn zeta_ledger() -> Arc<BoundRoute> {
    let target = "zeta/gl".parse().expect("a service");
    let post = route("post", ClaimPolicy::ledger());
    Arc::new(BoundRoute::new(Route { target, ..post.route.clone() }))
}

async fn is_concerned(store: &Arc<dyn Store>, tenant: &str, id: &str) -> bool {
    store.is_concerned(tenant, &MessageId::stored(id)).await.expect("it looks")
}

async fn erase(store: &Arc<dyn Store>, id: &str, decides_for: Option<&str>) -> Erasure {
    let erased = store.erase(&id_key(id), Vec::new(), decides_for, act("asked for", at(5))).await;
    erased.expect("it answers")
}

/// CLM-18: the holds of one tenant leave room for another tenant's.
pub async fn holds_of_a_tenant_are_bounded(store: &Arc<dyn Store>) {
    let id = |n: usize| Held::Id(MessageId::stored(&n.to_string()));
    let first = set_hold(&**store, acme(), id(0)).await.expect("there is room");
    for n in 1..bounds::HOLDS_PER_TENANT_MAX {
        set_hold(&**store, acme(), id(n)).await.expect("there is room");
    }
    assert_eq!(set_hold(&**store, acme(), Held::Tenant).await, None);
    let zeta = TenantName::new("zeta").expect("a tenant");
    assert!(set_hold(&**store, zeta, Held::Tenant).await.is_some());
    lift_hold(&**store, &first).await;
    assert!(set_hold(&**store, acme(), Held::Tenant).await.is_some());
}

/// CLM-18: a tenant that sent two contents cannot destroy the evidence that another tenant needs for its
/// decision.
pub async fn evidence_of_another_tenants_conflict_is_not_erased(store: &Arc<dyn Store>) {
    let post = zeta_ledger();
    let contents = [1, 2].map(|content| with_content_to(content, "a", 0, &post));
    let settled = settle(&**store, contents.to_vec(), at(0)).await;
    let Outcome::Conflict { conflict, .. } = settled[1].outcomes[0] else { panic!("it is a conflict") };
    store.purge(&post.queue, act("done", at(1))).await.expect("it purges");
    assert_eq!(erase(store, "a", Some("acme")).await, Erasure::Disputed(conflict));
    move_conflict(&**store, conflict, ConflictState::Triaged, at(4)).await;
    assert_eq!(erase(store, "a", Some("acme")).await, Erasure::Disputed(conflict));
    let stored = store.conflict(conflict).await.expect("it is read").expect("it is there");
    let both =
        [stored.original, stored.conflicting].map(|logged| logged.expect("it is there").message.is_erased());
    assert_eq!((both, count_erased_records(&**store, "zeta").await), ([false; 2], 0));
    // A tenant that may resolve the conflict may also erase its evidence afterwards.
    move_conflict(&**store, conflict, ConflictState::ResolvedAcceptOriginal, at(4)).await;
    assert_eq!(erase(store, "a", Some("acme")).await, Erasure::Erased { at: at(5), before: false });
    assert_eq!(count_erased_records(&**store, "zeta").await, 1, "the recipient gets a record");
    assert_eq!(count_erased_records(&**store, "acme").await, 0);

    for (id, decides_for) in [("b", Some("zeta")), ("c", None)] {
        let contents = [1, 2].map(|content| with_content_to(content, id, 0, &post));
        settle(&**store, contents.to_vec(), at(0)).await;
        store.purge(&post.queue, act("done", at(1))).await.expect("it purges");
        let erased = store.erase(&id_key(id), Vec::new(), decides_for, act("asked for", at(6))).await;
        assert_eq!(erased.expect("it answers"), Erasure::Erased { at: at(6), before: false }, "{id}");
    }
}

async fn count_erased_records(store: &dyn Store, tenant: &str) -> usize {
    let records = store.telemetry(tenant, Serial(0), 100).await.expect("it is read");
    records.iter().filter(|record| record.kind == "snavio.claim.erased").count()
}

async fn move_conflict(store: &dyn Store, conflict: Serial, state: ConflictState, now: Timestamp) {
    let to = Move { to: state, note: "seen".to_owned(), compensating: None };
    let moved = store.move_conflict(conflict, to, act("seen", now)).await.expect("it moves");
    moved.expect("it is there").expect("it may");
}
