//! Ordering by entity (ORD-2 to ORD-7): judged in one step with the claim, delivered one at a time, and kept
//! over a restart.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use snavio_model::bounds;
use snavio_model::claim::ClaimPolicy;
use snavio_model::delivery::DeadReason;
use snavio_model::id::Serial;
use snavio_model::json::Pointer;
use snavio_model::message::Message;
use snavio_model::name::ServiceName;
use snavio_model::ordering::{
    EntityKey, EntityState, Mode, OnFailure, Order, OrderDefaults, Place, Placed, Verdict,
};
use snavio_model::registry::{BoundRoute, Route};
use snavio_model::settle::{Intake, Outcome, Settlement};
use snavio_model::time::Timestamp;

use super::samples::{
    KEEP_SECONDS, RECEIVES_MAX, acknowledge, act, at, event_intake, intake, queue, receipt, receive, route,
    settle,
};
use super::{Backend, eventually};
use crate::{Received, Report, Store, WaitEnded, WaitsEnded};

/// The time to live of an entity of these routes, in seconds.
const TTL: u32 = 3600;
/// The longest wait of a message for a gap to fill, in seconds.
pub(super) const WAIT: u32 = 30;

fn pointer(text: &str) -> Pointer {
    Pointer::try_from(text.to_owned()).expect("a pointer")
}

/// A route that orders by `/order` and `/number`, with a queue of the same name.
pub fn ordered(name: &str, mode: Mode, change: impl FnOnce(&mut Order)) -> Arc<BoundRoute> {
    let mut order = Order::by(pointer("/order"), pointer("/number"));
    order.mode = Some(mode);
    order.ttl_seconds = Some(TTL);
    order.wait_seconds = WAIT;
    order.completion = vec!["close".parse().expect("a name")];
    change(&mut order);
    let plain = route(name, ClaimPolicy::Strict { keep_seconds: KEEP_SECONDS }).route.clone();
    Arc::new(BoundRoute::new(Route { order: Some(Box::new(order)), ..plain }))
}

pub(super) fn strict() -> Arc<BoundRoute> {
    ordered("strict", Mode::Strict, |_| {})
}

pub(super) fn parking() -> Arc<BoundRoute> {
    ordered("parking", Mode::Strict, |order| order.on_failure = OnFailure::Park)
}

/// A message of an entity with this number, for routes that may order it.
pub fn numbered(id: &str, entity: &str, number: i64, routes: &[Arc<BoundRoute>], now: Timestamp) -> Intake {
    let intake = intake(id, &routes[0], now);
    let payload = Bytes::from(format!(r#"{{"order":"{entity}","number":{number}}}"#));
    let message = Message { payload, ..intake.message };
    placed(Intake { message, destinations: routes.to_vec(), ..intake })
}

/// Sets the positions of a message, one for each destination.
pub(super) fn placed(intake: Intake) -> Intake {
    // As the gate does: where one of several destinations cannot read the position, it gets a dead letter.
    let places = intake.destinations.iter().map(|route| {
        let place = Place::find(&intake.message, &route.route, &OrderDefaults::default());
        place.map_or(Placed::Unreadable, Placed::from)
    });
    let places = places.collect();
    Intake { places, ..intake }
}

pub(super) fn id_of(entity: &str, number: i64) -> String {
    format!("{entity}-{number}")
}

pub(super) async fn send(
    store: &dyn Store,
    entity: &str,
    number: i64,
    route: &Arc<BoundRoute>,
    now: Timestamp,
) -> Settlement {
    let id = id_of(entity, number);
    send_as(store, &id, entity, number, route, now).await
}

pub(super) async fn send_as(
    store: &dyn Store,
    id: &str,
    entity: &str,
    number: i64,
    route: &Arc<BoundRoute>,
    now: Timestamp,
) -> Settlement {
    let batch = vec![numbered(id, entity, number, std::slice::from_ref(route), now)];
    settle(store, batch, now).await.remove(0)
}

pub(super) fn verdict_name(settlement: &Settlement) -> &'static str {
    match settlement.outcomes[0] {
        Outcome::Queued { .. } => "queued",
        Outcome::Held { .. } => "held",
        Outcome::Parked { .. } => "parked",
        Outcome::Skipped => "skipped",
        Outcome::Duplicate { .. } => "duplicate",
        Outcome::OutOfOrder { reason, .. } => reason.code(),
        _ => "something else",
    }
}

pub(super) fn entity_key(name: &str, entity: &str) -> EntityKey {
    EntityKey::stored(&format!("acme acme/bot:{name} {entity}")).expect("a key")
}

pub(super) async fn read_state(
    store: &dyn Store,
    name: &str,
    entity: &str,
    now: Timestamp,
) -> Option<EntityState> {
    store.entity(&entity_key(name, entity), now).await.expect("it can be read").map(|entity| entity.state)
}

pub(super) fn numbers(received: &[Received]) -> Vec<i64> {
    received.iter().map(number_of).collect()
}

fn number_of(delivery: &Received) -> i64 {
    let id = delivery.message.id.as_str();
    let number = id.rsplit('-').next().and_then(|number| number.parse().ok());
    number.expect("an id that ends with its number")
}

/// Receives and acknowledges, and returns the numbers.
pub(super) async fn receive_and_acknowledge(store: &dyn Store, name: &str, now: Timestamp) -> Vec<i64> {
    let received = receive(store, name, 30, now).await;
    let receipts = received.iter().map(receipt).collect();
    acknowledge(store, &queue(name), receipts).await.expect("the store acknowledges");
    numbers(&received)
}

/// Receives and acknowledges until the queue is empty, and returns the numbers in order.
pub(super) async fn acknowledge_all(store: &dyn Store, name: &str, now: Timestamp) -> Vec<i64> {
    let mut all = Vec::new();
    loop {
        let some = receive_and_acknowledge(store, name, now).await;
        if some.is_empty() {
            return all;
        }
        all.extend(some);
    }
}

/// ORD-3, ORD-4: the first number, the next, a repeat, a gap, a late number, and the number of another
/// message.
pub async fn strict_refuses_what_is_late_and_knows_repeats(store: &Arc<dyn Store>) {
    let strict = strict();
    for (number, id, verdict) in [
        (1, "e-1", "queued"),
        (2, "e-2", "queued"),
        (1, "e-1", "duplicate"),
        (2, "e-2", "duplicate"),
        (2, "other", "sequence_conflict"),
        (5, "e-5", "queued"),
        (4, "e-4", "out_of_order"),
        (1, "again-1", "out_of_order"),
        (5, "e-5", "duplicate"),
    ] {
        let settled = send_as(&**store, id, "e", number, &strict, at(0)).await;
        assert_eq!(verdict_name(&settled), verdict, "{id}");
        assert_eq!(settled.message.is_some(), verdict == "queued", "{id}: nothing is written of the others");
    }
    let gap = send(&**store, "e", 8, &strict, at(1)).await;
    assert_eq!(
        (gap.ordered[0].verdict, &gap.ordered[0].gaps[..]),
        (Some(Verdict::Gap { size: 2 }), &[2][..])
    );
    let state = read_state(&**store, "strict", "e", at(1)).await.expect("it is known");
    assert_eq!((state.last, state.gaps.missing()), (8, 4));
    // A refusal leaves nothing behind: the same id may come again in order, for another entity.
    assert_eq!(verdict_name(&send_as(&**store, "again-1", "f", 1, &strict, at(1)).await), "queued");
    let log = store.messages("acme", Serial(0), 100).await.expect("the log can be read");
    assert_eq!(log.len(), 5);
    assert_eq!(acknowledge_all(&**store, "strict", at(2)).await.len(), 5);
}

/// ORD-3: `lenient` delivers late messages, and `skip` only records them.
pub async fn lenient_delivers_and_skip_records_late_messages(store: &Arc<dyn Store>) {
    let lenient = ordered("lenient", Mode::Lenient, |_| {});
    for (number, verdict) in [(1, "queued"), (4, "queued"), (2, "queued"), (3, "queued"), (2, "duplicate")] {
        assert_eq!(verdict_name(&send(&**store, "e", number, &lenient, at(0)).await), verdict, "{number}");
    }
    let known = read_state(&**store, "lenient", "e", at(0)).await.expect("it is known");
    assert_eq!((known.last, known.gaps.missing()), (4, 0), "the gap closed");
    assert_eq!(
        receive_and_acknowledge(&**store, "lenient", at(0)).await,
        [1, 4, 2, 3],
        "as they came, and together"
    );

    let skip = ordered("skip", Mode::Skip, |_| {});
    for (number, verdict) in [(1, "queued"), (3, "queued"), (2, "skipped"), (2, "duplicate")] {
        let settled = send_as(&**store, &format!("s-{number}"), "s", number, &skip, at(0)).await;
        assert_eq!(verdict_name(&settled), verdict, "{number}");
    }
    assert_eq!(receive_and_acknowledge(&**store, "skip", at(0)).await, [1, 3]);
    let log = store.messages("acme", Serial(0), 100).await.expect("the log can be read");
    assert_eq!(log.len(), 7, "the skipped message is on record");
}

/// ORD-3
pub async fn what_is_ahead_waits_until_the_gap_fills(store: &Arc<dyn Store>) {
    let reorder = ordered("reorder", Mode::Reorder, |_| {});
    for (number, verdict) in [(1, "queued"), (4, "held"), (3, "held"), (4, "duplicate")] {
        assert_eq!(verdict_name(&send(&**store, "e", number, &reorder, at(0)).await), verdict, "{number}");
    }
    assert_eq!(receive_and_acknowledge(&**store, "reorder", at(0)).await, [1]);
    assert!(
        receive_and_acknowledge(&**store, "reorder", at(3600)).await.is_empty(),
        "time alone hands nothing out"
    );
    assert_eq!(verdict_name(&send(&**store, "e", 2, &reorder, at(1)).await), "queued");
    assert_eq!(acknowledge_all(&**store, "reorder", at(1)).await, [2, 3, 4]);
    // The same in one batch, in any order.
    let batch = [11, 13, 12, 10]
        .map(|number| numbered(&id_of("f", number), "f", number, &[Arc::clone(&reorder)], at(2)));
    let settled = settle(&**store, batch.to_vec(), at(2)).await;
    assert_eq!(
        settled.iter().map(verdict_name).collect::<Vec<_>>(),
        ["queued", "held", "queued", "out_of_order"]
    );
    assert_eq!(acknowledge_all(&**store, "reorder", at(2)).await, [11, 12, 13]);
}

/// ORD-3: when a wait ends, the waiting messages go out under the entity's own lock, and the gap is recorded.
pub async fn ended_wait_delivers_in_order_and_records_the_gap(store: &Arc<dyn Store>) {
    let reorder = ordered("reorder", Mode::Reorder, |_| {});
    for number in [1, 5, 3] {
        send(&**store, "e", number, &reorder, at(0)).await;
    }
    assert_eq!(receive_and_acknowledge(&**store, "reorder", at(0)).await, [1]);
    assert_eq!(end_waits(&**store, i64::from(WAIT) - 1).await, WaitsEnded::default());
    let ended = [3, 5].map(|number| WaitEnded {
        key: entity_key("reorder", "e"),
        destination: Some("acme/bot:reorder".into()),
        number,
        gap: 1,
    });
    let both = WaitsEnded { ended: ended.to_vec(), is_partial: false };
    assert_eq!(end_waits(&**store, i64::from(WAIT)).await, both);
    assert_eq!(acknowledge_all(&**store, "reorder", at(31)).await, [3, 5]);
    assert_eq!(
        verdict_name(&send(&**store, "e", 4, &reorder, at(32)).await),
        "out_of_order",
        "it was given up"
    );
    let state = read_state(&**store, "reorder", "e", at(32)).await.expect("it is known");
    assert_eq!((state.last, state.gaps.missing()), (5, 2));
    assert_eq!(end_waits(&**store, 99).await, WaitsEnded::default());
}

async fn end_waits(store: &dyn Store, now: i64) -> WaitsEnded {
    store.end_waits(at(now)).await.expect("waits can be ended")
}

/// ORD-3: if more entities have waits than one call visits, the call reports that there are more.
pub async fn waits_end_for_any_number_of_entities(store: &Arc<dyn Store>) {
    const ENTITIES: usize = bounds::SWEEP_ROWS_MAX + 1;
    let reorder = [ordered("reorder", Mode::Reorder, |_| {})];
    let first = (0..ENTITIES).map(|entity| (format!("e{entity}"), 1));
    let ahead = (0..ENTITIES).map(|entity| (format!("e{entity}"), 3));
    let all: Vec<_> = first.chain(ahead).collect();
    for some in all.chunks(bounds::COMMIT_MESSAGES_MAX) {
        let batch = some
            .iter()
            .map(|(entity, number)| numbered(&id_of(entity, *number), entity, *number, &reorder, at(0)));
        settle(&**store, batch.collect(), at(0)).await;
    }
    let (mut rounds, mut freed) = (0, HashSet::new());
    loop {
        let WaitsEnded { ended, is_partial } = store.end_waits(at(99)).await.expect("waits can be ended");
        rounds += 1;
        for wait in ended {
            assert_eq!(
                (wait.destination.as_deref(), wait.number, wait.gap),
                (Some("acme/bot:reorder"), 3, 1)
            );
            assert!(freed.insert(wait.key), "each once");
        }
        if !is_partial {
            break;
        }
    }
    assert!(rounds > 1 && freed.len() == ENTITIES, "{} in {rounds} rounds", freed.len());
}

/// ORD-3
pub async fn one_message_of_an_entity_is_handed_out_at_a_time(store: &Arc<dyn Store>) {
    let strict = strict();
    for number in 1..=3 {
        send(&**store, "e", number, &strict, at(0)).await;
    }
    send(&**store, "f", 1, &strict, at(0)).await;
    let first = receive(&**store, "strict", 30, at(0)).await;
    assert_eq!(numbers(&first), [1, 1], "one of each entity");
    assert!(receive(&**store, "strict", 30, at(1)).await.is_empty());
    let e = first.iter().find(|delivery| delivery.message.id.as_str() == "e-1").expect("it was handed out");
    // The message is released with a delay, and no later message overtakes it.
    let back = Report::given_back(receipt(e), at(20), None);
    store.finish(&queue("strict"), vec![back], "acme/bot", at(1)).await.expect("it can be given back");
    assert!(receive(&**store, "strict", 30, at(2)).await.is_empty());
    let again = receive(&**store, "strict", 30, at(20)).await;
    assert_eq!((numbers(&again), again[0].delivery_id), (vec![1], e.delivery_id), "the same one again");
    acknowledge(&**store, &queue("strict"), vec![receipt(&again[0])]).await.expect("it is acknowledged");
    // A lapsed lease makes the same message visible again.
    let second = receive(&**store, "strict", 5, at(21)).await;
    assert_eq!(numbers(&second), [2]);
    assert!(receive(&**store, "strict", 5, at(22)).await.is_empty());
    let lapsed: Vec<_> = receive(&**store, "strict", 30, at(26)).await;
    assert_eq!((numbers(&lapsed), lapsed[0].attempt), (vec![2], 2));
    acknowledge(&**store, &queue("strict"), vec![receipt(&lapsed[0])]).await.expect("it is acknowledged");
    let third = receive(&**store, "strict", 30, at(60)).await;
    assert_eq!(third.iter().filter(|delivery| delivery.message.id.as_str() == "e-3").count(), 1);
}

/// Receives a delivery until it is a dead letter.
pub(super) async fn exhaust_receives(store: &dyn Store, name: &str, number: i64, now: Timestamp) -> Serial {
    let mut delivery = None;
    for _ in 0..RECEIVES_MAX {
        let received = receive(store, name, 0, now).await;
        assert_eq!(numbers(&received), [number]);
        delivery = Some(received[0].delivery_id);
    }
    eventually("a dead letter", async || {
        store.sweep(now).await.expect("the store sweeps");
        let letters = store.dead_letters("acme", None, Serial(0), 10).await.expect("they can be listed");
        letters.iter().any(|dead_letter| Some(dead_letter.letter.delivery.id) == delivery).then_some(())
    })
    .await;
    delivery.expect("it was handed out")
}

/// ORD-7: on a route with `continue`, later messages go on.
pub async fn later_messages_continue_after_a_final_failure(store: &Arc<dyn Store>) {
    let strict = strict();
    for number in 1..=2 {
        send(&**store, "e", number, &strict, at(0)).await;
    }
    exhaust_receives(&**store, "strict", 1, at(0)).await;
    assert_eq!(acknowledge_all(&**store, "strict", at(1)).await, [2]);
}

/// ORD-7: later messages queue behind the failed one, and go on in order once it is fixed or skipped.
pub async fn entity_is_parked_until_the_failure_is_fixed(store: &Arc<dyn Store>) {
    let parking = parking();
    for number in 1..=3 {
        send(&**store, "e", number, &parking, at(0)).await;
    }
    send(&**store, "f", 1, &parking, at(0)).await;
    let free = receive(&**store, "parking", 30, at(0)).await;
    let f: Vec<_> =
        free.iter().filter(|delivery| delivery.message.id.as_str() == "f-1").map(receipt).collect();
    acknowledge(&**store, &queue("parking"), f).await.expect("another entity goes on");
    let dead = exhaust_from(&**store, "parking", &free, at(31)).await;
    assert!(receive(&**store, "parking", 30, at(40)).await.is_empty());
    assert_eq!(verdict_name(&send(&**store, "e", 4, &parking, at(41)).await), "parked");
    assert!(receive(&**store, "parking", 30, at(42)).await.is_empty(), "they queue behind it");
    let known = read_state(&**store, "parking", "e", at(42)).await.expect("it is known");
    assert_eq!((known.parked_at(), known.last), (Some(1), 4));
    let later = at(42 + 2 * i64::from(TTL));
    store.sweep(later).await.expect("the store sweeps");
    assert!(read_state(&**store, "parking", "e", later).await.is_some(), "a parked entity is not forgotten");

    let redriven = store.redrive("acme", vec![dead], act("fixed", at(43))).await.expect("it is redriven");
    assert_eq!(redriven.back, [dead]);
    assert_eq!(acknowledge_all(&**store, "parking", at(43)).await, [1, 2, 3, 4]);
    let known = read_state(&**store, "parking", "e", at(44)).await.expect("it is known");
    assert_eq!(known.parked_at(), None);
}

/// Does the same for a delivery that is leased already, and returns its id.
async fn exhaust_from(store: &dyn Store, name: &str, out: &[Received], now: Timestamp) -> Serial {
    let delivery = out[0].delivery_id;
    for _ in 1..RECEIVES_MAX {
        assert_eq!(receive(store, name, 0, now).await.len(), 1);
    }
    eventually("a dead letter", async || {
        store.sweep(now).await.expect("the store sweeps");
        store.dead_letter("acme", delivery).await.expect("it can be read").map(|_| ())
    })
    .await;
    delivery
}

/// ORD-2, ORD-5: a closed entity leaves a mark until its time to live ends.
pub async fn completed_entity_is_closed_until_its_time_to_live_ends(store: &Arc<dyn Store>) {
    let strict = strict();
    send(&**store, "e", 1, &strict, at(0)).await;
    let closing = numbered("e-2", "e", 2, &[Arc::clone(&strict)], at(1));
    let name = "close".parse().expect("a name");
    let closing = placed(Intake { message: Message { name, ..closing.message }, ..closing });
    assert_eq!(verdict_name(&settle(&**store, vec![closing], at(1)).await[0]), "queued");
    let known = read_state(&**store, "strict", "e", at(1)).await.expect("a mark is left");
    assert!(known.closed);
    assert_eq!(verdict_name(&send_as(&**store, "late", "e", 1, &strict, at(2)).await), "entity_closed");
    let over = at(1 + i64::from(TTL));
    assert!(read_state(&**store, "strict", "e", over).await.is_none());
    let swept = store.sweep(over).await.expect("the store sweeps");
    assert_eq!(swept.entities, 1);
    assert_eq!(verdict_name(&send_as(&**store, "anew", "e", 1, &strict, over).await), "queued");
}

/// PIP-13, ORD-3: each subscription judges by its own rules. If one of them refuses the event, the others
/// still get it.
pub async fn late_event_is_a_dead_letter_only_where_refused(store: &Arc<dyn Store>) {
    let routes = [subscription("strict", Mode::Strict), subscription("lenient", Mode::Lenient)];
    let event = |number: i64| {
        let intake = event_intake(&id_of("e", number), &routes[0], at(0));
        let payload = Bytes::from(format!(r#"{{"order":"e","number":{number}}}"#));
        let message = Message { payload, ..intake.message };
        placed(Intake { message, destinations: routes.to_vec(), ..intake })
    };
    let settled = settle(&**store, vec![event(2), event(1)], at(0)).await;
    let Outcome::Buried { delivery, reason: DeadReason::OutOfOrder } = settled[1].outcomes[0] else {
        panic!("{:?}", settled[1].outcomes)
    };
    assert!(matches!(settled[1].outcomes[1], Outcome::Queued { .. }));
    assert_eq!(settled[1].ordered.len(), 2);
    assert_eq!(receive_and_acknowledge(&**store, "lenient", at(0)).await, [2, 1]);
    assert_eq!(receive_and_acknowledge(&**store, "strict", at(0)).await, [2]);
    let letter = store.dead_letter("acme", delivery).await.expect("it can be read").expect("it is there");
    assert_eq!(letter.letter.reason, DeadReason::OutOfOrder);
    let again = settle(&**store, vec![event(1)], at(1)).await;
    assert!(
        again[0].outcomes.iter().all(|outcome| matches!(outcome, Outcome::Duplicate { .. })),
        "{again:?}"
    );
    assert_eq!(again[0].message, None);
}

/// A subscription of `acme/bot` to the events of `acme/billing`.
fn subscription(name: &str, mode: Mode) -> Arc<BoundRoute> {
    let publisher: Option<ServiceName> = "acme/billing".parse().ok();
    let route = ordered(name, mode, |_| {}).route.clone();
    Arc::new(BoundRoute::new(Route { events_of: publisher, ..route }))
}

/// PIP-13, ORD-1: a subscription that cannot read the number gets a dead letter, and the other subscriptions
/// get the event.
pub async fn unreadable_event_is_a_dead_letter_only_there(store: &Arc<dyn Store>) {
    let publisher: Option<ServiceName> = "acme/billing".parse().ok();
    let route =
        ordered("strict", Mode::Strict, |order| order.number = Some(pointer("/currency"))).route.clone();
    let strict = Arc::new(BoundRoute::new(Route { events_of: publisher.clone(), ..route }));
    let plain = route_of_subscription(publisher);
    let intake = event_intake("e-1", &strict, at(0));
    let payload = Bytes::from(r#"{"order":"e","number":1,"currency":"EUR"}"#);
    let message = Message { payload, ..intake.message };
    let event = placed(Intake { message, destinations: vec![strict, plain], ..intake });
    let settled = settle(&**store, vec![event.clone()], at(0)).await;
    let Outcome::Buried { delivery, reason: DeadReason::OrderUnreadable } = settled[0].outcomes[0] else {
        panic!("{:?}", settled[0].outcomes)
    };
    assert!(matches!(settled[0].outcomes[1], Outcome::Queued { .. }));
    let letter = store.dead_letter("acme", delivery).await.expect("it can be read").expect("it is there");
    assert_eq!(letter.letter.reason, DeadReason::OrderUnreadable);
    let again = settle(&**store, vec![event], at(1)).await;
    assert!(
        again[0].outcomes.iter().all(|outcome| matches!(outcome, Outcome::Duplicate { .. })),
        "{again:?}"
    );
}

/// A subscription that does not order.
fn route_of_subscription(events_of: Option<ServiceName>) -> Arc<BoundRoute> {
    let plain = route("plain", ClaimPolicy::Strict { keep_seconds: KEEP_SECONDS }).route.clone();
    Arc::new(BoundRoute::new(Route { events_of, ..plain }))
}

/// ORD-2: the dry run uses the store's own judgement, so it reports a late message before the message is
/// sent.
pub async fn dry_run_advances_no_entity(store: &Arc<dyn Store>) {
    let strict = strict();
    send(&**store, "e", 5, &strict, at(0)).await;
    for (number, verdict) in [(6, "queued"), (4, "out_of_order"), (6, "queued")] {
        let intake = numbered("x", "e", number, &[Arc::clone(&strict)], at(1));
        assert_eq!(verdict_name(&store.foresee(intake, at(1)).await.expect("it can be foreseen")), verdict);
    }
    assert_eq!(read_state(&**store, "strict", "e", at(1)).await.map(|state| state.last), Some(5));
}

/// ORD-4: an ordered route keeps its claims for the time to live of the entity, although its policy keeps
/// them for a shorter time.
pub async fn applied_message_is_a_duplicate_while_its_entity_lives(store: &Arc<dyn Store>) {
    let strict = strict();
    for number in 1..=3 {
        send(&**store, "e", number, &strict, at(0)).await;
    }
    let later = i64::from(TTL) - 1;
    const { assert!(TTL > 2 * KEEP_SECONDS) };
    for now in [later / 2, later] {
        store.sweep(at(now)).await.expect("the store sweeps");
        for number in 1..=3 {
            assert_eq!(
                verdict_name(&send(&**store, "e", number, &strict, at(now)).await),
                "duplicate",
                "{number}"
            );
        }
    }
}

/// ORD-2: two messages never advance from the same state, on one node or on two.
pub async fn racing_nodes_never_advance_from_one_state(backend: &dyn Backend) {
    const EACH: i64 = 30;
    let first = backend.open().await;
    let second = if backend.is_shared() { backend.open().await } else { Arc::clone(&first) };
    let strict = strict();
    let racing = (0..6).map(|task: i64| {
        let (store, strict) = (Arc::clone(if task % 2 == 0 { &first } else { &second }), Arc::clone(&strict));
        tokio::spawn(async move {
            let mut taken = Vec::new();
            for step in 0..EACH {
                // All tasks send the same numbers, each under an id of its own. The store may accept one
                // message of each number.
                let (id, entity) = (format!("{task}-{step}"), format!("e{}", step % 3));
                let settled = send_as(&*store, &id, &entity, step / 3, &strict, at(0)).await;
                if verdict_name(&settled) == "queued" {
                    taken.push((entity, step / 3));
                }
            }
            taken
        })
    });
    let mut taken = Vec::new();
    for task in racing.collect::<Vec<_>>() {
        taken.extend(task.await.expect("no task fails"));
    }
    taken.sort();
    let unique = taken.len();
    taken.dedup();
    assert_eq!(taken.len(), unique, "two of one number were taken");
    for entity in ["e0", "e1", "e2"] {
        assert_eq!(
            read_state(&*first, "strict", entity, at(0)).await.map(|state| state.last),
            Some(EACH / 3 - 1)
        );
        assert!(taken.contains(&(entity.to_owned(), EACH / 3 - 1)));
    }
    assert_eq!(hand_out_in_race(&first, &second, unique).await, unique);
    first.close().await;
    if backend.is_shared() {
        second.close().await;
    }
}

/// Receives everything through two nodes at once, and asserts that the numbers of each entity rise.
async fn hand_out_in_race(first: &Arc<dyn Store>, second: &Arc<dyn Store>, count: usize) -> usize {
    let last: Arc<std::sync::Mutex<std::collections::HashMap<String, i64>>> = Arc::default();
    let total = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let racing = (0..4).map(|task| {
        let (store, last, total) =
            (Arc::clone(if task % 2 == 0 { first } else { second }), Arc::clone(&last), Arc::clone(&total));
        tokio::spawn(async move {
            while total.load(std::sync::atomic::Ordering::SeqCst) < count {
                let received = receive(&*store, "strict", 3600, at(1)).await;
                for delivery in &received {
                    let payload: serde_json::Value =
                        serde_json::from_slice(&delivery.message.payload).expect("a payload");
                    let (entity, number) =
                        (payload["order"].to_string(), payload["number"].as_i64().expect("a number"));
                    let before = last.lock().expect("a lock").insert(entity.clone(), number);
                    assert!(before.is_none_or(|before| before < number), "{entity}: {before:?}, {number}");
                }
                let receipts = received.iter().map(receipt).collect();
                let ended = acknowledge(&*store, &queue("strict"), receipts).await.expect("it ends");
                total.fetch_add(ended.len(), std::sync::atomic::Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    });
    for task in racing.collect::<Vec<_>>() {
        tokio::time::timeout(super::DEADLINE, task)
            .await
            .expect("all are handed out")
            .expect("no task fails");
    }
    total.load(std::sync::atomic::Ordering::SeqCst)
}

/// ORD-2, ORD-3, ORD-7: states, ordering keys, waits and parking outlive a restart.
pub async fn order_outlives_a_restart(backend: &dyn Backend) {
    let store = backend.open().await;
    let (strict, parking) = (strict(), parking());
    let reorder = ordered("reorder", Mode::Reorder, |_| {});
    for number in 1..=3 {
        send(&*store, "e", number, &strict, at(0)).await;
        send_as(&*store, &format!("p-{number}"), "p", number, &parking, at(0)).await;
    }
    for number in [1, 3, 4] {
        send_as(&*store, &format!("r-{number}"), "r", number, &reorder, at(0)).await;
    }
    let dead = exhaust_receives(&*store, "parking", 1, at(0)).await;
    assert_eq!(receive_and_acknowledge(&*store, "strict", at(0)).await, [1]);
    store.close().await;
    drop(store);

    let store = backend.open().await;
    assert_eq!(verdict_name(&send_as(&*store, "late", "e", 2, &strict, at(1)).await), "out_of_order");
    assert_eq!(verdict_name(&send(&*store, "e", 2, &strict, at(1)).await), "duplicate");
    let second = receive(&*store, "strict", 30, at(1)).await;
    assert_eq!(numbers(&second), [2], "one at a time, lowest first");
    assert_eq!(receive_and_acknowledge(&*store, "reorder", at(1)).await, [1]);
    assert!(receive_and_acknowledge(&*store, "reorder", at(1)).await.is_empty(), "they wait still");
    assert_eq!(verdict_name(&send_as(&*store, "r-2", "r", 2, &reorder, at(2)).await), "queued");
    assert_eq!(acknowledge_all(&*store, "reorder", at(2)).await, [2, 3, 4]);
    assert!(receive(&*store, "parking", 30, at(2)).await.is_empty(), "it is parked still");
    store.redrive("acme", vec![dead], act("fixed", at(3))).await.expect("it is redriven");
    assert_eq!(acknowledge_all(&*store, "parking", at(3)).await, [1, 2, 3]);
    store.close().await;
}
