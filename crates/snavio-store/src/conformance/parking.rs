//! Messages parked behind a failed one, and ordering keys with purged, erased or expired messages (ORD-3,
//! ORD-7).

use std::sync::Arc;

use snavio_model::bounds;
use snavio_model::claim::IdKey;
use snavio_model::delivery::DeadReason;
use snavio_model::delivery::processing::{Processing, ProcessingKind};
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::TenantName;
use snavio_model::ordering::{Mode, NotParked, OnFailure, Placed};
use snavio_model::registry::{BoundRoute, Route};
use snavio_model::settle::Outcome;

use super::eventually;
use super::ordering::{
    WAIT, acknowledge_all, entity_key, exhaust_receives, id_of, numbered, numbers, ordered, parking,
    read_state, send, strict, verdict_name,
};
use super::samples::{act, at, queue, receipt, receive, settle};
use crate::api::archive::Erasure;
use crate::{Purged, Report, Store};

/// ORD-3: a purge deletes the deliveries of an ordering key, the first as well as those behind it.
pub async fn purged_ordered_messages_are_not_delivered(store: &Arc<dyn Store>) {
    let strict = strict();
    for number in 1..=4 {
        send(&**store, "e", number, &strict, at(0)).await;
    }
    assert_eq!(
        store.purge(&queue("strict"), act("of no use", at(1))).await.expect("it is purged").deleted,
        4
    );
    assert!(receive(&**store, "strict", 30, at(2)).await.is_empty());
    let attributes = store.attributes(&queue("strict"), at(2)).await.expect("they can be read");
    assert_eq!((attributes.depth, attributes.in_flight), (0, 0));
    for number in 5..=6 {
        send(&**store, "e", number, &strict, at(3)).await;
    }
    assert_eq!(acknowledge_all(&**store, "strict", at(3)).await, [5, 6]);
}

/// ORD-7: if a redriven message fails again, no message passes a message that failed meanwhile.
pub async fn messages_do_not_pass_an_earlier_failure(store: &Arc<dyn Store>) {
    let parking = parking();
    for number in 1..=5 {
        send(&**store, "e", number, &parking, at(0)).await;
    }
    let of = entity_key("parking", "e");
    let first = exhaust_receives(&**store, "parking", 1, at(0)).await;
    store.skip_parked(&of, 1, act("later", at(1))).await.expect("it is skipped");
    exhaust_receives(&**store, "parking", 2, at(2)).await;
    store.redrive("acme", vec![first], act("again", at(3))).await.expect("it is put back");
    exhaust_receives(&**store, "parking", 1, at(3)).await;
    assert_eq!(read_state(&**store, "parking", "e", at(3)).await.map(|state| state.failed), Some(vec![1, 2]));
    store.skip_parked(&of, 1, act("of no use", at(4))).await.expect("it is skipped");
    assert!(receive(&**store, "parking", 30, at(4)).await.is_empty(), "2 is a dead letter still");
    store.skip_parked(&of, 2, act("of no use", at(5))).await.expect("it is skipped");
    assert_eq!(acknowledge_all(&**store, "parking", at(5)).await, [3, 4, 5]);
}

/// ORD-7: messages behind the failed one have failed too if they expire in the queue.
pub async fn messages_do_not_pass_expired_deliveries(store: &Arc<dyn Store>) {
    let parking = parking();
    for number in 1..=3 {
        send(&**store, "e", number, &parking, at(0)).await;
    }
    let dead = exhaust_receives(&**store, "parking", 1, at(0)).await;
    let days = i64::try_from(bounds::QUEUE_RETENTION.as_secs()).expect("days");
    send(&**store, "e", 4, &parking, at(days - 1)).await;
    eventually("they are dead letters", async || {
        store.sweep(at(days)).await.expect("the store sweeps");
        let known = read_state(&**store, "parking", "e", at(days)).await?;
        (known.failed == [1, 2, 3]).then_some(())
    })
    .await;
    store.redrive("acme", vec![dead], act("fixed", at(days))).await.expect("it is put back");
    assert_eq!(acknowledge_all(&**store, "parking", at(days)).await, [1], "not past those that failed");
    let of = entity_key("parking", "e");
    for number in [2, 3] {
        store.skip_parked(&of, number, act("of no use", at(days))).await.expect("it is skipped");
    }
    assert_eq!(acknowledge_all(&**store, "parking", at(days)).await, [4]);
}

/// ORD-7: no message is parked behind a message that a person cannot redrive.
pub async fn purged_or_erased_message_parks_nothing(store: &Arc<dyn Store>) {
    let parking = parking();
    for number in 1..=2 {
        send(&**store, "e", number, &parking, at(0)).await;
    }
    exhaust_receives(&**store, "parking", 1, at(0)).await;
    let id = IdKey { id: MessageId::stored("e-1"), tenant: TenantName::new("acme").expect("a name") };
    let erased = store.erase(&id, Vec::new(), None, act("asked for", at(1))).await.expect("it answers");
    assert_eq!(erased, Erasure::Erased { at: at(1), before: false });
    assert_eq!(read_state(&**store, "parking", "e", at(1)).await.and_then(|state| state.parked_at()), None);
    assert_eq!(acknowledge_all(&**store, "parking", at(1)).await, [2]);

    for number in 3..=5 {
        send(&**store, "e", number, &parking, at(2)).await;
    }
    let dead = exhaust_receives(&**store, "parking", 3, at(2)).await;
    store.redrive("acme", vec![dead], act("again", at(3))).await.expect("it is put back");
    assert_eq!(
        store.purge(&queue("parking"), act("of no use", at(4))).await.expect("it is purged").deleted,
        3
    );
    assert_eq!(read_state(&**store, "parking", "e", at(4)).await.and_then(|state| state.parked_at()), None);
    send(&**store, "e", 6, &parking, at(5)).await;
    assert_eq!(acknowledge_all(&**store, "parking", at(5)).await, [6]);
}

/// ORD-7, PIP-13: a message that failed because its queue was full is not passed. The store's queues hold two
/// deliveries.
pub async fn messages_do_not_pass_one_without_room(store: &Arc<dyn Store>) {
    let full = ordered("full", Mode::Strict, |order| order.on_failure = OnFailure::Park);
    let routes = [full.clone(), ordered("other", Mode::Lenient, |_| {})];
    for number in 1..=2 {
        assert_eq!(verdict_name(&send(&**store, "e", number, &full, at(0)).await), "queued");
    }
    let third = numbered(&id_of("e", 3), "e", 3, &routes, at(0));
    let settled = settle(&**store, vec![third], at(0)).await.remove(0);
    let Outcome::Buried { delivery, reason: DeadReason::QueueFull } = settled.outcomes[0] else {
        panic!("{settled:?}")
    };
    assert_eq!(acknowledge_all(&**store, "full", at(1)).await, [1, 2]);
    eventually("there is room", async || {
        let again = send(&**store, "e", 4, &full, at(1)).await;
        (verdict_name(&again) == "parked").then_some(())
    })
    .await;
    assert!(receive(&**store, "full", 30, at(2)).await.is_empty(), "it queues behind the failed message");
    store.redrive("acme", vec![delivery], act("there is room", at(3))).await.expect("it is put back");
    assert_eq!(acknowledge_all(&**store, "full", at(3)).await, [3, 4]);
}

/// ORD-3, ORD-8: a message goes out after its wait has ended, although the queue is full for the message that
/// ends the wait. The store's queues hold two deliveries.
pub async fn waiting_message_goes_out_despite_a_full_queue(store: &Arc<dyn Store>) {
    let full = ordered("full", Mode::Reorder, |_| {});
    let routes = [full.clone(), ordered("other", Mode::Lenient, |_| {})];
    for (number, verdict) in [(1, "queued"), (5, "held")] {
        assert_eq!(verdict_name(&send(&**store, "e", number, &full, at(0)).await), verdict);
    }
    let over = at(i64::from(WAIT));
    let event = numbered(&id_of("e", 8), "e", 8, &routes, over);
    let settled = settle(&**store, vec![event], over).await.remove(0);
    assert!(
        matches!(settled.outcomes[0], Outcome::Buried { reason: DeadReason::QueueFull, .. }),
        "{settled:?}"
    );
    assert_eq!(settled.ordered.iter().flat_map(|judged| judged.gaps.clone()).collect::<Vec<_>>(), [3]);
    assert_eq!(acknowledge_all(&**store, "full", over).await, [1, 5]);
    assert_eq!(
        read_state(&**store, "full", "e", over).await.map(|state| state.last),
        Some(5),
        "8 has not come"
    );
}

/// PIP-13, ORD-4: an event becomes a dead letter at one destination only if another destination accepts it.
pub async fn event_that_no_destination_accepts_is_refused(store: &Arc<dyn Store>) {
    let strict = strict();
    send(&**store, "e", 5, &strict, at(0)).await;
    let mut event = numbered(&id_of("e", 4), "e", 4, &[parking(), strict], at(0));
    event.places[0] = Placed::Unreadable;
    let settled = settle(&**store, vec![event], at(0)).await.remove(0);
    assert_eq!((verdict_name(&settled), settled.message), ("out_of_order", None));
    assert!(settled.outcomes.iter().all(Outcome::is_refusal), "{settled:?}");
    let letters = store.dead_letters("acme", None, Serial(0), 10).await.expect("they can be listed");
    assert!(letters.is_empty());
}

/// Sends an event that is late at one destination, which gets a dead letter, and that another destination
/// accepts.
async fn late(store: &dyn Store, id: &str, entity: &str, number: i64) -> Serial {
    let routes = [parking(), ordered("other", Mode::Lenient, |_| {})];
    let settled = settle(store, vec![numbered(id, entity, number, &routes, at(1))], at(1)).await.remove(0);
    match settled.outcomes[0] {
        Outcome::Buried { delivery, reason: DeadReason::OutOfOrder } => delivery,
        outcome => panic!("{outcome:?}"),
    }
}

/// ORD-7: later messages have passed a message that came late. After a redrive it parks nothing when it fails
/// again. When it is done, it frees no message that is parked behind another message of its number.
pub async fn late_message_neither_parks_nor_frees(store: &Arc<dyn Store>) {
    let parking = parking();
    for number in 1..=3 {
        send(&**store, "e", number, &parking, at(0)).await;
    }
    assert_eq!(acknowledge_all(&**store, "parking", at(0)).await, [1, 2, 3]);
    let fails = late(&**store, "late-2", "e", 2).await;
    store.redrive("acme", vec![fails], act("again", at(2))).await.expect("it is put back");
    assert_eq!(exhaust_receives(&**store, "parking", 2, at(2)).await, fails);
    assert_eq!(read_state(&**store, "parking", "e", at(2)).await.and_then(|state| state.parked_at()), None);
    assert_eq!(verdict_name(&send(&**store, "e", 4, &parking, at(2)).await), "queued");
    assert_eq!(acknowledge_all(&**store, "parking", at(2)).await, [4]);

    for number in 1..=3 {
        send(&**store, "f", number, &parking, at(3)).await;
    }
    let dead = exhaust_receives(&**store, "parking", 1, at(3)).await;
    let done = late(&**store, "late-1", "f", 1).await;
    store.redrive("acme", vec![done], act("again", at(4))).await.expect("it is put back");
    assert_eq!(acknowledge_all(&**store, "parking", at(4)).await, [1]);
    assert_eq!(
        read_state(&**store, "parking", "f", at(4)).await.and_then(|state| state.parked_at()),
        Some(1)
    );
    assert_eq!(verdict_name(&send(&**store, "f", 4, &parking, at(4)).await), "parked");
    store.redrive("acme", vec![dead], act("fixed", at(5))).await.expect("it is put back");
    assert_eq!(acknowledge_all(&**store, "parking", at(5)).await, [1, 2, 3, 4]);
}

/// ORD-7, DLV-2: this holds also for deliveries without a claim.
pub async fn messages_do_not_pass_a_purged_attempted_one(store: &Arc<dyn Store>) {
    let parking = parking();
    for number in 1..=3 {
        send(&**store, "e", number, &parking, at(0)).await;
    }
    let tried = receive(&**store, "parking", 0, at(0)).await.remove(0);
    let purged = store.purge(&queue("parking"), act("cleaning", at(1))).await.expect("it is purged");
    assert_eq!(purged, Purged { deleted: 2, in_doubt: 1, in_progress: 0 });
    assert_eq!(
        read_state(&**store, "parking", "e", at(1)).await.and_then(|state| state.parked_at()),
        Some(1)
    );
    assert_eq!(verdict_name(&send(&**store, "e", 4, &parking, at(2)).await), "parked");
    assert!(receive(&**store, "parking", 30, at(2)).await.is_empty(), "it queues behind it");
    let back = store.redrive("acme", vec![tried.delivery_id], act("fixed", at(3))).await;
    assert_eq!(back.expect("it is put back").back, [tried.delivery_id]);
    assert_eq!(acknowledge_all(&**store, "parking", at(3)).await, [1, 4]);
}

/// ORD-7: a person may skip the failed message, and the audit log says so.
pub async fn skip_of_a_failed_message_is_audited(store: &Arc<dyn Store>) {
    let parking = parking();
    for number in 1..=2 {
        send(&**store, "e", number, &parking, at(0)).await;
    }
    exhaust_receives(&**store, "parking", 1, at(0)).await;
    let of = entity_key("parking", "e");
    let skipped = store.skip_parked(&of, 2, act("no", at(1))).await.expect("it can be asked");
    assert_eq!(skipped, Some(Err(NotParked)));
    let unknown = store.skip_parked(&entity_key("parking", "nobody"), 1, act("no", at(1))).await;
    assert_eq!(unknown.expect("it can be asked"), None);
    assert!(receive(&**store, "parking", 30, at(1)).await.is_empty());
    let skipped = store.skip_parked(&of, 1, act("it is of no use", at(1))).await.expect("it is skipped");
    assert_eq!(skipped.and_then(Result::ok).map(|state| state.parked_at()), Some(None));
    assert_eq!(acknowledge_all(&**store, "parking", at(2)).await, [2]);
    let audit = store.audit(Serial(0), 10).await.expect("the record can be read");
    let entry = audit.last().expect("it is on the record");
    assert_eq!((entry.action.as_str(), entry.act.why.as_str()), ("entity.skip", "it is of no use"));
}

/// ORD-7: tracked work parks its entity when it is refused for good. The entity goes on when a person settles
/// the claim.
pub async fn refused_work_parks_until_its_claim_is_settled(store: &Arc<dyn Store>) {
    let route = parking().route.clone();
    let tracked = Processing { kind: ProcessingKind::Tracked, ..Processing::default() };
    let route = Arc::new(BoundRoute::new(Route { processing: tracked, ..route }));
    for number in 1..=2 {
        assert_eq!(verdict_name(&send(&**store, "e", number, &route, at(0)).await), "queued");
    }
    let first = receive(&**store, "parking", 30, at(0)).await;
    assert_eq!(numbers(&first), [1]);
    let ending = snavio_model::delivery::processing::Ending::Failed {
        error: "no".to_owned(),
        is_final: true,
        answer: None,
        retry_after: None,
    };
    let report = Report { ending, ..Report::done(receipt(&first[0])) };
    store.finish(&queue("parking"), vec![report], "acme/bot", at(1)).await.expect("it is reported");
    assert!(receive(&**store, "parking", 30, at(2)).await.is_empty());
    let settled = store.settle_claim("acme", first[0].delivery_id, None, act("seen to", at(3))).await;
    assert!(settled.expect("it can be settled").is_some());
    assert_eq!(acknowledge_all(&**store, "parking", at(4)).await, [2]);
}
