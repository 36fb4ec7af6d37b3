//! Retention of claims that are kept for years (CLM-15 to CLM-18): they move to the archive once they are no
//! longer hot, an audited sweep deletes them when they expire, and holds and erasures apply. The tests keep
//! objects in memory; a store does not know where objects are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use snavio_model::archive::hold::Held;
use snavio_model::archive::{Answered, ClaimPointer, Pointer, Record, segment};
use snavio_model::claim::conflict::{ConflictState, Move};
use snavio_model::claim::{IdKey, Status};
use snavio_model::delivery::processing::{Ending, UnknownOutcome};
use snavio_model::hash::DomainHash;
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::TenantName;
use snavio_model::registry::BoundRoute;
use snavio_model::settle::{Intake, Outcome};

use super::processing::{
    answer, completed_report, count_audited, failed_report, finish_one, lease_new, read_claim, tracked_route,
    tracked_route_with, unknown_report,
};
use super::samples::{act, at, intake, queued, receipt, receive, settle, settle_one};
use crate::{Cooled, Erasure, NewHold, NewSegment, Received, Report, Store};

pub(super) const DAY: i64 = 86_400;

/// The objects of an archive by their keys.
pub(super) type ArchiveObjects = BTreeMap<String, Vec<u8>>;

/// Posts a message on day 0 and completes it with answer 1.
pub(super) async fn post_message(store: &dyn Store, id: &str) -> Received {
    let work = lease_new(store, id, 0).await;
    finish_one(store, completed_report(receipt(&work), "1"), 1).await;
    work
}

async fn cooled(store: &dyn Store, day: i64) -> Vec<Record> {
    let Cooled { mut records, mut next } = store.cooled(None, at(day * DAY)).await.expect("it looks");
    while let Some(after) = next {
        let more = store.cooled(Some(after), at(day * DAY)).await.expect("it looks");
        records.extend(more.records);
        next = more.next;
    }
    records
}

/// Writes records as a segment into `objects`, and begins the segment in the store.
async fn write(
    store: &dyn Store,
    objects: &mut ArchiveObjects,
    records: &[Record],
    day: i64,
) -> Vec<(Record, Pointer)> {
    let written = segment::write(records).expect("there is something to write");
    let expires_at =
        records.iter().flat_map(|record| &record.claims).map(|claim| claim.expires_at).max().expect("claims");
    let new = NewSegment { object: written.key.clone(), records: records.len(), expires_at };
    assert!(store.begin_segment(new, at(day * DAY)).await.expect("it begins"));
    objects.insert(written.key, written.text);
    records.iter().cloned().zip(written.pointers).collect()
}

/// Moves everything that has cooled into one segment.
pub(super) async fn archive(store: &dyn Store, objects: &mut ArchiveObjects, day: i64) -> usize {
    let records = cooled(store, day).await;
    if records.is_empty() {
        return 0;
    }
    let written = write(store, objects, &records, day).await;
    store.moved(written, at(day * DAY)).await.expect("it moves")
}

/// Reads the record that a claim points to.
pub(super) async fn read_archived(store: &dyn Store, objects: &ArchiveObjects, id: &str, day: i64) -> Record {
    let claim = read_claim(store, id, day * DAY).await;
    let pointer = claim.pointer().expect("it is archived").expect("it points somewhere").record;
    segment::find(&pointer, &objects[&pointer.object]).expect("it is there")
}

/// A message for `book` with this content.
pub(super) fn with_content(content: u8, id: &str, day: i64) -> Intake {
    let mut intake = intake(id, &tracked_route(), at(day * DAY));
    intake.message.domain_hash = DomainHash([content; 32]);
    intake
}

/// Sends an id again, with the same content and with different content, and returns both outcomes.
async fn again(store: &dyn Store, id: &str, day: i64) -> (Outcome, Outcome) {
    let now = at(day * DAY);
    let same = settle(store, vec![with_content(9, id, day)], now).await[0].outcomes[0];
    let other = settle(store, vec![with_content(7, id, day)], now).await[0].outcomes[0];
    (same, other)
}

async fn erase(store: &dyn Store, id: &str, now: i64) -> Erasure {
    store.erase(&id_key(id), Vec::new(), None, act("asked for", at(now))).await.expect("it answers")
}

pub(super) fn id_key(id: &str) -> IdKey {
    IdKey { id: MessageId::stored(id), tenant: acme() }
}

pub(super) fn acme() -> TenantName {
    TenantName::new("acme").expect("a tenant")
}

pub(super) async fn count_messages(store: &dyn Store) -> usize {
    store.messages("acme", Serial(0), 100).await.expect("messages are read").len()
}

/// CLM-2, CLM-5, CLM-8, CLM-16
pub async fn archived_id_is_still_compared(store: &Arc<dyn Store>) {
    let mut objects = ArchiveObjects::new();
    let work = post_message(&**store, "a").await;
    assert_eq!(archive(&**store, &mut objects, 399).await, 0, "it is hot");
    assert_eq!(store.archive_backlog(at(401 * DAY)).await.expect("it counts"), 1);
    assert_eq!(archive(&**store, &mut objects, 401).await, 1);
    assert_eq!(store.archive_backlog(at(401 * DAY)).await.expect("it counts"), 0);
    assert_eq!(count_messages(&**store).await, 0, "the message moved");
    assert_eq!(store.answer(work.delivery_id).await.expect("it is asked"), None, "and so did the answer");
    for day in [401, 1200, 2519] {
        store.sweep(at(day * DAY)).await.expect("it sweeps");
        let claim = read_claim(&**store, "a", day * DAY).await;
        assert_eq!(claim.hash, Some(work.message.domain_hash));
        assert_eq!(claim.archived_at, Some(at(401 * DAY)));
        let progress = claim.claim.progress.as_ref().expect("it is followed");
        assert_eq!((progress.reference.as_deref(), progress.attempts), (Some("JE-1"), 1));
        let record = read_archived(&**store, &objects, "a", day).await;
        assert_eq!(record.message, *work.message, "every column of it");
        assert_eq!(record.answer("acme/bot:book"), Some(&answer("1")));
        let (same, other) = again(&**store, "a", day).await;
        assert!(matches!(same, Outcome::Seen { status: Status::Completed, .. }), "day {day}: {same:?}");
        assert!(matches!(other, Outcome::Conflict { .. }), "day {day}: {other:?}");
    }
    let conflicts = store.conflicts_of(&id_key("a"), None).await.expect("they are listed");
    assert_eq!((conflicts.len(), conflicts[0].count, conflicts[0].original), (1, 3, message_of(&work)));
}

/// A delivery has the serial after that of its message.
fn message_of(work: &Received) -> Serial {
    Serial(work.delivery_id.0 - 1)
}

/// CLM-18
pub async fn unfinished_or_disputed_claims_stay_hot(store: &Arc<dyn Store>) {
    let later = 401;
    let failing = lease_new(&**store, "failed", 0).await;
    finish_one(&**store, failed_report(receipt(&failing), true, 9), 1).await;
    settle_one(&**store, "doubt", &tracked_route_with(UnknownOutcome::Hold), at(0)).await;
    let doubt = receive(&**store, "book", 30, at(0)).await.remove(0);
    finish_one(&**store, unknown_report(receipt(&doubt)), 1).await;
    post_message(&**store, "disputed").await;
    let (_, other) = again(&**store, "disputed", 0).await;
    assert!(matches!(other, Outcome::Conflict { .. }));
    post_message(&**store, "plain").await;
    settle_one(&**store, "waits", &tracked_route(), at(0)).await;
    assert_eq!(message_ids(&cooled(&**store, later).await), ["plain"]);

    let conflict = store.conflicts_of(&id_key("disputed"), None).await.expect("they are listed")[0].id;
    for state in [ConflictState::Triaged, ConflictState::ResolvedAcceptOriginal] {
        let to = Move { to: state, note: "seen".to_owned(), compensating: None };
        store
            .move_conflict(conflict, to, act("seen", at(2)))
            .await
            .expect("it moves")
            .expect("it is there")
            .expect("it may");
    }
    assert_eq!(message_ids(&cooled(&**store, later).await), ["disputed", "plain"], "once it is resolved");
}

fn message_ids(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| record.message.id.to_string()).collect()
}

/// CLM-18: one archiver crashes after it wrote the object, and two archivers move at the same time.
pub async fn repeated_move_moves_once(store: &Arc<dyn Store>) {
    let mut objects = ArchiveObjects::new();
    for id in ["a", "b"] {
        post_message(&**store, id).await;
    }
    let (one, other) = (cooled(&**store, 401).await, cooled(&**store, 401).await);
    assert_eq!((one.len(), &one), (2, &other));
    let first = write(&**store, &mut objects, &one, 401).await;
    let second = write(&**store, &mut objects, &other, 402).await;
    assert_eq!((&first, objects.len()), (&second, 1), "writing twice is the same object");
    let (first, second) = tokio::join!(store.moved(first, at(401 * DAY)), store.moved(second, at(401 * DAY)));
    assert_eq!(first.expect("it moves") + second.expect("it moves"), 2);
    for id in ["a", "b"] {
        assert_eq!(read_archived(&**store, &objects, id, 402).await.message.id.as_str(), id);
    }
    assert!(cooled(&**store, 402).await.is_empty());
    assert!(
        store.spent_segments("", 10, at(500 * DAY)).await.expect("it looks").is_empty(),
        "it is pointed to"
    );
}

/// CLM-15, CLM-18: an id was sent to two destinations, in one message each.
pub async fn messages_of_one_id_move_separately_and_once(store: &Arc<dyn Store>) {
    let mut objects = ArchiveObjects::new();
    let mut other = tracked_route().route.clone();
    other.name = "note".parse().expect("a name");
    let other = Arc::new(BoundRoute::new(other));
    let mut failing = Vec::new();
    for id in ["a", "b"] {
        post_message(&**store, id).await;
        assert!(queued(settle_one(&**store, id, &other, at(0)).await).is_some(), "it is another message");
        let work = receive(&**store, "book", 30, at(0)).await.remove(0);
        match id {
            "a" => drop(finish_one(&**store, completed_report(receipt(&work), "2"), 1).await),
            _ => {
                finish_one(&**store, failed_report(receipt(&work), true, 9), 1).await;
                failing.push(work.delivery_id);
            }
        }
    }
    let records = cooled(&**store, 401).await;
    let mut moved: Vec<_> =
        records.iter().map(|record| (record.message.id.to_string(), destinations(record))).collect();
    moved.sort();
    let expected = [("a", "acme/bot:book"), ("a", "acme/bot:note"), ("b", "acme/bot:book")]
        .map(|(id, destination)| (id.to_owned(), vec![destination.to_owned()]));
    assert_eq!(moved, expected, "the other message of b has a dead letter");
    assert_eq!(archive(&**store, &mut objects, 401).await, 3);
    assert!(cooled(&**store, 401).await.is_empty());
    assert!(store.loose_segments("", 10).await.expect("it looks").is_empty(), "nothing is left over");
    for delivery in failing {
        let settled = store.settle_claim("acme", delivery, None, act("it was done", at(402 * DAY))).await;
        settled.expect("it settles").expect("it is there").expect("it may");
    }
    assert_eq!(archive(&**store, &mut objects, 403).await, 1);
    for id in ["a", "b"] {
        let claims = store.claims_of(&id_key(id), at(401 * DAY)).await.expect("they are looked up");
        assert_eq!(claims.len(), 2);
        for claim in claims {
            let pointer = claim.pointer().expect("it is archived").expect("it points somewhere").record;
            let record = segment::find(&pointer, &objects[&pointer.object]).expect("it is there");
            assert_eq!(
                (record.number, destinations(&record)),
                (claim.claim.message, vec![claim.key.destination.to_string()])
            );
        }
    }
}

fn destinations(record: &Record) -> Vec<String> {
    record.claims.iter().map(|claim| claim.destination.to_string()).collect()
}

/// CLM-18: the store deletes a message only if it equals the record that its claim will point to.
pub async fn message_that_differs_from_its_record_stays(store: &Arc<dyn Store>) {
    let mut objects = ArchiveObjects::new();
    post_message(&**store, "a").await;
    let mut records = cooled(&**store, 401).await;
    records[0].message.payload = "{}".into();
    let written = write(&**store, &mut objects, &records, 401).await;
    assert_eq!(store.moved(written, at(401 * DAY)).await.expect("it answers"), 0);
    let unwritten = segment::write(&cooled(&**store, 401).await).expect("a segment");
    let records = cooled(&**store, 401).await.into_iter().zip(unwritten.pointers).collect();
    assert_eq!(
        store.moved(records, at(401 * DAY)).await.expect("it answers"),
        0,
        "its segment was not begun"
    );
    assert_eq!(
        (count_messages(&**store).await, read_claim(&**store, "a", 401 * DAY).await.archive),
        (1, None)
    );
}

/// CLM-18: an object that was written and never pointed to, and an object of expired claims.
pub async fn segment_without_pointers_ends(store: &Arc<dyn Store>) {
    let mut objects = ArchiveObjects::new();
    post_message(&**store, "a").await;
    let records = cooled(&**store, 401).await;
    let written = write(&**store, &mut objects, &records, 401).await;
    let object = written[0].1.object.clone();
    assert!(
        store.spent_segments("", 10, at(401 * DAY + 60)).await.expect("it looks").is_empty(),
        "not at once"
    );
    assert_eq!(
        store.spent_segments("", 10, at(403 * DAY)).await.expect("it looks"),
        std::slice::from_ref(&object)
    );
    let expires_at = records[0].claims[0].expires_at;
    let new = NewSegment { object: object.clone(), records: 1, expires_at };
    assert!(!store.begin_segment(new, at(403 * DAY)).await.expect("it answers"), "while it is being deleted");
    assert_eq!(store.moved(written, at(403 * DAY)).await.expect("it answers"), 0, "and nothing points to it");
    store.forget_segment(&object, at(403 * DAY)).await.expect("it forgets");
    assert_eq!(count_audited(&**store, "archive.delete").await, 1);

    assert_eq!(archive(&**store, &mut objects, 404).await, 1);
    assert!(
        store.spent_segments("", 10, at(2557 * DAY + 120)).await.expect("it looks").is_empty(),
        "its claim is there"
    );
    store.sweep(at(2558 * DAY)).await.expect("it sweeps");
    assert_eq!(
        store.spent_segments("", 10, at(2558 * DAY)).await.expect("it looks"),
        std::slice::from_ref(&object)
    );
    store.forget_segment(&object, at(2558 * DAY)).await.expect("it forgets");
    store.forget_segment(&object, at(2558 * DAY)).await.expect("it forgets again");
    assert_eq!(count_audited(&**store, "archive.delete").await, 2);
}

/// CLM-15, CLM-18, CLM-19
pub async fn expired_claim_is_deleted_with_message_and_response(store: &Arc<dyn Store>) {
    let work = post_message(&**store, "a").await;
    post_message(&**store, "b").await;
    let mut objects = ArchiveObjects::new();
    let records = cooled(&**store, 401).await;
    let written = write(&**store, &mut objects, &records[1..], 401).await;
    assert_eq!(store.moved(written, at(401 * DAY)).await.expect("it moves"), 1, "one of them is archived");
    store.sweep(at(2556 * DAY)).await.expect("it sweeps");
    assert_eq!((count_messages(&**store).await, count_audited(&**store, "claims.expire").await), (1, 0));
    store.sweep(at(2558 * DAY)).await.expect("it sweeps");
    assert_eq!(count_messages(&**store).await, 0);
    assert_eq!(store.answer(work.delivery_id).await.expect("it is asked"), None);
    let entries = store.audit(Serial(0), 100).await.expect("the record is read");
    let entry = entries.iter().find(|entry| entry.action == "claims.expire").expect("it is on record");
    assert_eq!((entry.object.as_str(), entry.act.at), ("2 claims", at(2558 * DAY)));
    for words in [r#""a" of acme at acme/bot:book"#, r#""b" of acme"#, "1 messages and 1 answers"] {
        assert!(entry.outcome.contains(words), "{}", entry.outcome);
    }
    assert!(
        queued(settle_one(&**store, "a", &tracked_route(), at(2558 * DAY)).await).is_some(),
        "the id is free"
    );
}

/// CLM-18: this holds also if the id is used again before a sweep has deleted its old claim.
pub async fn reuse_of_an_expired_id_is_audited(store: &Arc<dyn Store>) {
    post_message(&**store, "a").await;
    assert!(queued(settle_one(&**store, "a", &tracked_route(), at(2558 * DAY)).await).is_some());
    let entries = store.audit(Serial(0), 100).await.expect("the record is read");
    let entries: Vec<_> = entries.iter().filter(|entry| entry.action == "claims.expire").collect();
    let outcome = r#"their time was over: "a" of acme at acme/bot:book; with them 1 messages and 1 answers"#;
    assert_eq!(entries.iter().map(|entry| entry.outcome.as_str()).collect::<Vec<_>>(), [outcome]);
    assert_eq!(count_messages(&**store).await, 1, "the old message is gone, the new one is there");
}

/// CLM-18
pub async fn held_records_are_kept_until_the_hold_is_lifted(store: &Arc<dyn Store>) {
    let over = at(2558 * DAY);
    for (id, held) in [
        ("a", Held::Id(MessageId::stored("a"))),
        ("b", Held::Destination("acme/bot:book".into())),
        ("c", Held::Tenant),
    ] {
        let before = count_messages(&**store).await;
        post_message(&**store, id).await;
        let hold = store
            .set_hold(NewHold { tenant: acme(), held }, act("a lawsuit", at(2)))
            .await
            .expect("it holds")
            .expect("there is room");
        let others = Held::Id(MessageId::stored("other"));
        let other = NewHold { tenant: acme(), held: others };
        let other = store.set_hold(other, act("", at(2))).await.expect("it holds").expect("there is room");
        store.sweep(over).await.expect("it sweeps");
        assert_eq!(count_messages(&**store).await, before + 1, "{id} is held");
        let again = settle_one(&**store, id, &tracked_route(), over).await;
        assert_eq!(again, Outcome::Unreadable, "{id} cannot be used again");
        let erasure =
            store.erase(&id_key(id), Vec::new(), None, act("asked for", at(3))).await.expect("it answers");
        assert_eq!(erasure, Erasure::Held(hold.id));
        let lifted = store.lift_hold(hold.id, act("the lawsuit ended", at(4))).await.expect("it lifts");
        assert_eq!(
            lifted.and_then(|hold| hold.lifted).map(|act| act.why).as_deref(),
            Some("the lawsuit ended")
        );
        let again = store.lift_hold(hold.id, act("again", at(5))).await.expect("it answers");
        assert_eq!(again.and_then(|hold| hold.lifted).map(|act| act.at), Some(at(4)), "it was lifted before");
        store.lift_hold(other.id, act("", at(4))).await.expect("it lifts");
        store.sweep(over).await.expect("it sweeps");
        assert_eq!(count_messages(&**store).await, before, "{id} is gone");
    }
    assert_eq!(
        (count_audited(&**store, "hold.set").await, count_audited(&**store, "hold.lift").await),
        (6, 6)
    );
    let all = store.holds(Some("acme"), true, Serial(0), 10).await.expect("they are listed");
    assert_eq!(
        (all.len(), store.holds(None, false, Serial(0), 10).await.expect("they are listed").len()),
        (6, 0)
    );
    assert_eq!(store.hold(all[0].id).await.expect("it is read").as_ref(), Some(&all[0]));
    assert!(store.holds(Some("umbrella"), true, Serial(0), 10).await.expect("they are listed").is_empty());
}

/// CLM-18
pub async fn erased_claim_has_no_content_and_is_compared(store: &Arc<dyn Store>) {
    let work = post_message(&**store, "a").await;
    let (_, other) = again(&**store, "a", 0).await;
    assert!(matches!(other, Outcome::Conflict { .. }));
    assert_eq!(erase(&**store, "a", 5).await, Erasure::Erased { at: at(5), before: false });
    assert_eq!(erase(&**store, "a", 6).await, Erasure::Erased { at: at(5), before: true });
    assert_eq!(count_audited(&**store, "claim.erase").await, 1);
    let message = store.messages("acme", Serial(0), 10).await.expect("it is read").remove(0);
    assert!(message.message.is_erased(), "and it passes its check");
    let kept = store.answer(work.delivery_id).await.expect("it is read").expect("it is there");
    assert!(kept.body.is_empty());
    let claim = read_claim(&**store, "a", 7).await;
    assert_eq!((claim.erased_at, claim.hash), (Some(at(5)), Some(work.message.domain_hash)));
    let conflict = store.conflicts_of(&id_key("a"), None).await.expect("they are listed")[0].id;
    let conflict = store.conflict(conflict).await.expect("it is read").expect("it is there");
    assert!(conflict.conflicting.expect("it is there").message.is_erased(), "the conflicting message too");
    let (same, other) = again(&**store, "a", 1).await;
    assert!(matches!(same, Outcome::Seen { status: Status::Completed, .. }));
    assert!(matches!(other, Outcome::Conflict { .. }));
    let unknown = store.erase(&id_key("nobody"), Vec::new(), None, act("", at(5))).await.expect("it answers");
    assert_eq!(unknown, Erasure::Unknown);
}

/// CLM-18
pub async fn work_in_progress_is_not_erased(store: &Arc<dyn Store>) {
    let work = lease_new(&**store, "a", 0).await;
    assert_eq!(erase(&**store, "a", 5).await, Erasure::Busy);
    finish_one(&**store, failed_report(receipt(&work), true, 9), 1).await;
    assert!(
        matches!(erase(&**store, "a", 5).await, Erasure::Erased { before: false, .. }),
        "once it has ended"
    );
    let dead = store.dead_letters("acme", None, Serial(0), 10).await.expect("they are listed");
    assert!(dead.is_empty(), "nothing is left to redrive");
    let claim = read_claim(&**store, "a", 6).await.claim.progress.expect("it is followed");
    assert_eq!(claim.error.as_deref(), Some("erased"));
}

/// CLM-18
pub async fn erasure_of_an_archived_claim_rewrites_its_segment(store: &Arc<dyn Store>) {
    let mut objects = ArchiveObjects::new();
    for id in ["a", "b"] {
        post_message(&**store, id).await;
    }
    assert_eq!(archive(&**store, &mut objects, 401).await, 2);
    let (old, text) =
        objects.iter().next().map(|(key, text)| (key.clone(), text.clone())).expect("an object");
    let blind =
        store.erase(&id_key("a"), Vec::new(), None, act("", at(402 * DAY))).await.expect("it answers");
    assert_eq!(blind, Erasure::Moved, "the segment must be written again first");
    let records = segment::read(&old, &text).expect("it is read");
    let before = segment::write(&records).expect("a segment").pointers;
    let records: Vec<_> = records
        .into_iter()
        .map(|record| match record.message.id.as_str() {
            "a" => record.erased(at(402 * DAY)),
            _ => record,
        })
        .collect();
    let after = write(&**store, &mut objects, &records, 402).await.into_iter().map(|(_, pointer)| pointer);
    let rewritten: Vec<_> = before.into_iter().zip(after).collect();
    let erasure =
        store.erase(&id_key("a"), rewritten, None, act("asked for", at(402 * DAY))).await.expect("it erases");
    assert_eq!(erasure, Erasure::Erased { at: at(402 * DAY), before: false });
    assert_eq!(
        store.spent_segments("", 10, at(402 * DAY)).await.expect("it looks"),
        std::slice::from_ref(&old)
    );
    objects.remove(&old);
    assert!(read_archived(&**store, &objects, "a", 403).await.message.is_erased());
    let other = read_archived(&**store, &objects, "b", 403).await;
    assert!(!other.message.is_erased());
    assert_eq!(other.answer("acme/bot:book"), Some(&answer("1")));
    let (same, other) = again(&**store, "a", 500).await;
    assert!(matches!(same, Outcome::Seen { status: Status::Completed, .. }));
    assert!(matches!(other, Outcome::Conflict { .. }));
}

/// CLM-18: the store knows the objects that an interrupted move left behind, and those with records that
/// changed meanwhile.
pub async fn partly_pointed_segment_is_loose_until_rewritten(store: &Arc<dyn Store>) {
    let mut objects = ArchiveObjects::new();
    for id in ["a", "b", "c"] {
        post_message(&**store, id).await;
    }
    let records = cooled(&**store, 401).await;
    let written = write(&**store, &mut objects, &records, 401).await;
    let (old, first) = (written[0].1.object.clone(), written[0].1.clone());
    assert!(loose(&**store).await.is_empty(), "an archiver is about to point to it");
    assert_eq!(store.unsettled_segments().await.expect("it counts"), 1);
    assert_eq!(store.moved(written[..1].to_vec(), at(401 * DAY)).await.expect("it moves"), 1);
    assert_eq!(loose(&**store).await, std::slice::from_ref(&old));
    assert!(store.loose_segments(&old, 10).await.expect("it looks").is_empty(), "none comes after it");
    assert_eq!(store.pointed(&old).await.expect("it tells"), std::slice::from_ref(&first));

    let anew = write(&**store, &mut objects, &records[..1], 402).await.remove(0).1;
    assert!(store.repoint(vec![(first, anew.clone())]).await.expect("it points"));
    assert!(loose(&**store).await.is_empty());
    assert_eq!((ending(&**store, &old).await, ending(&**store, &anew.object).await), (true, false));
    let spent = store.spent_segments("", 10, at(401 * DAY)).await.expect("it looks");
    assert_eq!(spent, std::slice::from_ref(&old), "the old one ends at once");
    assert!(store.spent_segments(&old, 10, at(401 * DAY)).await.expect("it looks").is_empty());
    assert_eq!(store.moved(written[1..].to_vec(), at(401 * DAY)).await.expect("it answers"), 0);
    store.forget_segment(&old, at(401 * DAY)).await.expect("it forgets");
    objects.remove(&old);
    assert_eq!(read_archived(&**store, &objects, "a", 402).await.message.id.as_str(), "a");
    assert_eq!(archive(&**store, &mut objects, 402).await, 2, "the others move by themselves");
    assert_eq!(store.unsettled_segments().await.expect("it counts"), 0);
}

async fn loose(store: &dyn Store) -> Vec<String> {
    store.loose_segments("", 10).await.expect("it looks")
}

async fn ending(store: &dyn Store, object: &str) -> bool {
    store.is_ending(object).await.expect("it tells")
}

/// CLM-18: an archiver that rewrites a segment may come too late.
pub async fn repoint_that_leaves_records_behind_is_refused(store: &Arc<dyn Store>) {
    let mut objects = ArchiveObjects::new();
    for id in ["a", "b"] {
        post_message(&**store, id).await;
    }
    let records = cooled(&**store, 401).await;
    let written = write(&**store, &mut objects, &records, 401).await;
    let old: Vec<_> = written.iter().map(|(_, pointer)| pointer.clone()).collect();
    assert_eq!(store.moved(written, at(401 * DAY)).await.expect("it moves"), 2);
    let unbegun = segment::write(&records[..1]).expect("a segment").pointers.remove(0);
    let rewritten = vec![(old[0].clone(), unbegun.clone()), (old[1].clone(), unbegun)];
    assert!(!store.repoint(rewritten).await.expect("it answers"), "not begun");
    let anew = write(&**store, &mut objects, &records[..1], 402).await.remove(0).1;
    let rewritten = vec![(old[0].clone(), anew.clone())];
    assert!(!store.repoint(rewritten).await.expect("it answers"), "b would be left behind");
    let blind =
        store.erase(&id_key("a"), vec![(old[0].clone(), anew.clone())], None, act("", at(402 * DAY))).await;
    assert_eq!(blind.expect("it answers"), Erasure::Moved);
    for id in ["a", "b"] {
        assert_eq!(read_archived(&**store, &objects, id, 402).await.message.id.as_str(), id);
    }
    store.settle_segment(&anew.object, at(402 * DAY)).await.expect("it settles");
    assert_eq!((ending(&**store, &anew.object).await, ending(&**store, &old[0].object).await), (true, false));
    assert!(store.loose_segments("", 10).await.expect("it looks").is_empty());
}

/// CLM-18: one object was written after its row was deleted, and in another no message was as it was written.
pub async fn object_without_pointers_ends_at_once(store: &Arc<dyn Store>) {
    let mut objects = ArchiveObjects::new();
    post_message(&**store, "a").await;
    let records = cooled(&**store, 401).await;
    let written = write(&**store, &mut objects, &records, 401).await;
    let object = written[0].1.object.clone();
    store.erase(&id_key("a"), Vec::new(), None, act("asked for", at(401 * DAY))).await.expect("it erases");
    assert_eq!(store.moved(written.clone(), at(401 * DAY)).await.expect("it answers"), 0);
    assert!(ending(&**store, &object).await);
    store.forget_segment(&object, at(401 * DAY)).await.expect("it forgets");
    assert_eq!(store.moved(written, at(401 * DAY)).await.expect("it answers"), 0);
    assert!(ending(&**store, &object).await, "a late archiver has written it again");
}

/// CLM-17: the claim says whether the archive has a stored response, also after its segment was rewritten.
/// The store need not read the archive.
pub async fn pointer_says_whether_there_is_a_response(store: &Arc<dyn Store>) {
    let mut objects = ArchiveObjects::new();
    post_message(&**store, "a").await;
    let work = lease_new(&**store, "b", 0).await;
    let ending = Ending::Completed { answer: None, reference: Some("JE-b".to_owned()), note: None };
    finish_one(&**store, Report { ending, ..completed_report(receipt(&work), "") }, 1).await;
    assert_eq!(archive(&**store, &mut objects, 401).await, 2);
    let beside = async |id| {
        let pointer = read_claim(&**store, id, 401 * DAY).await.pointer().expect("it is archived");
        pointer.expect("it points somewhere")
    };
    let [a, b] = [beside("a").await, beside("b").await];
    assert_eq!((a.answered, b.answered), (Answered::With(201), Answered::No));
    let records = segment::read(&a.record.object, &objects[&a.record.object]).expect("it is read");
    let anew = write(&**store, &mut objects, &records[..1], 402).await.remove(0).1;
    let other = write(&**store, &mut objects, &records[1..], 402).await.remove(0).1;
    assert!(
        store.repoint(vec![(a.record, anew.clone()), (b.record, other.clone())]).await.expect("it points")
    );
    assert_eq!(beside("a").await, ClaimPointer { record: anew, answered: Answered::With(201) });
    assert_eq!(beside("b").await, ClaimPointer { record: other, answered: Answered::No });
}

/// TEL-4: a reader of telemetry continues from its position although messages before it are gone.
pub async fn telemetry_continues_after_messages_moved(store: &Arc<dyn Store>) {
    let mut objects = ArchiveObjects::new();
    for id in ["a", "b"] {
        post_message(&**store, id).await;
    }
    let page = async |after, limit| store.telemetry("acme", after, limit).await.expect("it is read");
    let first = page(Serial(0), 1).await.remove(0);
    assert_eq!(archive(&**store, &mut objects, 401).await, 2);
    assert!(page(first.number, 10).await.is_empty());
    let now = at(401 * DAY);
    settle_one(&**store, "c", &tracked_route(), now).await;
    assert_eq!(page(first.number, 10).await.len(), 1);
    assert_eq!(page(Serial(0), 10).await.len(), 1);
    assert_eq!(receive(&**store, "book", 30, now.plus(Duration::from_secs(1))).await.len(), 1);
    assert_eq!(store.uses("acme", Serial(i64::MAX), 10).await.expect("they are read").len(), 1);
}
