use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::claim::{Claim, ClaimPolicy, Status};
use crate::delivery::DeadReason;
use crate::delivery::processing::{Processing, ProcessingKind};
use crate::id::{MessageId, Serial};
use crate::message::Message;
use crate::name::QueueKey;
use crate::ordering::{Mode, NumberKind, OnFailure, Placed, Rules};
use crate::refusal::{Numbers, Reason};
use crate::registry::{BoundRoute, Route};
use crate::settle::{self, Settlement};

const TTL: Duration = Duration::from_secs(3600);
const WAIT: Duration = Duration::from_secs(30);

fn at(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1000)
}

fn rules(mode: Mode) -> Rules {
    Rules { mode, ttl: TTL, wait: WAIT, waiting_max: 8, on_failure: OnFailure::Continue }
}

fn route(name: &str) -> Arc<BoundRoute> {
    let text =
        format!(r#"{{"target":"acme/bot","name":"{name}","queue":"{name}","dead_letter_queue":"dead"}}"#);
    let route: Route = serde_json::from_str(&text).unwrap();
    Arc::new(BoundRoute::new(Route { claim: ClaimPolicy::Strict { keep_seconds: 900 }, ..route }))
}

fn tracked(name: &str) -> Arc<BoundRoute> {
    let processing = Processing { kind: ProcessingKind::Tracked, ..Processing::default() };
    Arc::new(BoundRoute::new(Route { processing, ..route(name).route.clone() }))
}

/// A store in memory: it loads everything, and keeps the last delta.
struct MemoryStore {
    working: Working,
    delta: Delta,
}

impl MemoryStore {
    fn new() -> Self {
        Self { working: Working::after(Serial(0)), delta: Delta::default() }
    }

    /// Settles a message alone, in a commit of its own.
    fn send(&mut self, id: &str, number: i64, by: &[(&Arc<BoundRoute>, Mode)], now: Timestamp) -> Settlement {
        self.delta = Delta::default();
        settle::judge(&mut self.working, &intake(id, number, by, now), 0, now, &mut self.delta)
    }

    fn last(&self, name: &str) -> Option<i64> {
        self.working.entities.get(&key(name)).map(|record| record.state.last)
    }
}

fn late_at(number: i64, last: i64, reason: Reason) -> Outcome {
    Outcome::OutOfOrder { reason, numbers: Numbers { number, last }, everywhere: true }
}

fn key(name: &str) -> EntityKey {
    EntityKey::stored(&format!("acme acme/bot:{name} e")).unwrap()
}

fn intake(id: &str, number: i64, by: &[(&Arc<BoundRoute>, Mode)], now: Timestamp) -> Intake {
    let places = by.iter().map(|(route, mode)| {
        let key = EntityKey { scope: Arc::clone(&route.destination), ..key("x") };
        Placed::At(Place { key, number, kind: NumberKind::Sequence, completes: false, rules: rules(*mode) })
    });
    let destinations: Vec<_> = by.iter().map(|(route, _)| Arc::clone(route)).collect();
    let base = settle::tests::intake("acme/billing", 0, &destinations);
    let message = Message { id: MessageId::stored(id), received_at: now, ..base.message };
    Intake { message, places: places.collect(), ..base }
}

fn each_place(intake: &mut Intake, change: impl Fn(&mut Place)) {
    for placed in &mut intake.places {
        if let Placed::At(place) = placed {
            change(place);
        }
    }
}

/// An intake for routes that park.
fn parking_intake(id: &str, number: i64, by: &[(&Arc<BoundRoute>, Mode)]) -> Intake {
    let mut intake = intake(id, number, by, at(0));
    each_place(&mut intake, |place| place.rules.on_failure = OnFailure::Park);
    intake
}

fn claim<'a>(store: &'a MemoryStore, id: &str, name: &str) -> Option<&'a Claim> {
    let destination = format!("acme/bot:{name}");
    let mut claims = store.working.claims.iter();
    claims.find(|(key, _)| key.id.as_str() == id && *key.destination == *destination).map(|(_, claim)| claim)
}

/// ORD-2: a message that is not written does not advance its entity.
#[test]
fn message_without_room_moves_nothing() {
    let mut store = MemoryStore::new();
    let pay = route("pay");
    let by = [(&pay, Mode::Strict)];
    store.send("a", 1, &by, at(0));
    store.working.room.insert(QueueKey::stored("acme/pay"), 0);
    assert_eq!(store.send("b", 2, &by, at(0)).outcomes, [Outcome::QueueFull]);
    assert_eq!((store.last("pay"), store.delta.is_empty()), (Some(1), true));
    store.working.room.insert(QueueKey::stored("acme/pay"), 1);
    let settled = store.send("b", 2, &by, at(0));
    assert_eq!(settled.ordered[0].verdict, Some(Verdict::InOrder), "the first try left nothing");
    assert_eq!(store.delta.entities.len(), 1);
}

/// ORD-4: a message with a claim is a duplicate, whatever arrived since.
#[test]
fn applied_message_is_never_out_of_order() {
    let mut store = MemoryStore::new();
    let pay = route("pay");
    let by = [(&pay, Mode::Strict)];
    for number in 1..=3 {
        store.send(&number.to_string(), number, &by, at(0));
    }
    for number in 1..=3 {
        let settled = store.send(&number.to_string(), number, &by, at(1));
        assert_eq!(settled.outcomes, [Outcome::Duplicate { first_seen_at: at(0) }], "{number}");
        assert!(settled.ordered.is_empty() && store.delta.is_empty());
    }
    // As long as the entity's state is kept, even if claims are otherwise kept for less time.
    let last = at(i64::try_from(TTL.as_secs()).unwrap() - 1);
    for number in 1..=3 {
        let settled = store.send(&number.to_string(), number, &by, last);
        assert_eq!(settled.outcomes, [Outcome::Duplicate { first_seen_at: at(0) }], "{number}");
    }
}

/// ORD-4, CLM-1: each of two types in one scope has its own claim, so one id may stand for a message of each
/// type.
#[test]
fn id_of_two_types_in_a_scope_is_two_messages() {
    for (number, mode, taken) in [
        (2, Mode::Strict, "queued"),
        (2, Mode::Lenient, "queued"),
        (1, Mode::Strict, "conflict"),
        (1, Mode::Lenient, "queued"),
    ] {
        let mut store = MemoryStore::new();
        let (paid, shipped) = (route("paid"), route("shipped"));
        let mut send = |number, route: &Arc<BoundRoute>| {
            let mut intake = intake("order-7", number, &[(route, mode)], at(0));
            each_place(&mut intake, |place| place.key.scope = "acme/bot#orders".into());
            settle::judge(&mut store.working, &intake, 0, at(0), &mut Delta::default()).outcomes[0]
        };
        assert!(matches!(send(1, &paid), Outcome::Queued { .. }));
        let is_taken = match send(number, &shipped) {
            Outcome::Queued { .. } => "queued",
            outcome if outcome == late_at(1, 1, Reason::SequenceConflict) => "conflict",
            outcome => panic!("{outcome:?}"),
        };
        assert_eq!(is_taken, taken, "{number} {mode:?}");
        assert!(matches!(send(1, &paid), Outcome::Duplicate { .. }), "its claim exists");
    }
}

/// ORD-3: no destination accepts the message, so its producer gets a refusal.
#[test]
fn message_late_at_every_destination_is_refused() {
    let mut store = MemoryStore::new();
    let (one, two) = (route("one"), route("two"));
    let by = [(&one, Mode::Strict), (&two, Mode::Strict)];
    store.send("2", 2, &by, at(0));
    store.send("5", 5, &by[1..], at(0));
    let late = store.send("1", 1, &by, at(0));
    let refused = [late_at(1, 2, Reason::OutOfOrder), late_at(1, 5, Reason::OutOfOrder)];
    assert_eq!((late.message, &late.outcomes[..]), (None, &refused[..]));
    assert_eq!(late.ordered.len(), 2, "each counts it");
    assert!(store.delta.is_empty());
    assert!(claim(&store, "1", "one").is_none());
}

/// ORD-5
#[test]
fn closed_entity_refuses_with_its_own_reason() {
    let mut store = MemoryStore::new();
    let pay = route("pay");
    let by = [(&pay, Mode::Strict)];
    let mut closing = intake("4", 4, &by, at(0));
    each_place(&mut closing, |place| place.completes = true);
    settle::judge(&mut store.working, &closing, 0, at(0), &mut Delta::default());
    for number in [3, 4] {
        let late = store.send("late", number, &by, at(0));
        assert_eq!(late.outcomes, [late_at(number, 4, Reason::EntityClosed)]);
    }
}

/// ORD-7, PIP-13: a message that failed for lack of room parks its entity, too.
#[test]
fn message_without_room_parks_its_entity_if_configured() {
    let mut store = MemoryStore::new();
    let (full, other) = (route("full"), route("other"));
    let by = [(&full, Mode::Strict), (&other, Mode::Strict)];
    store.working.room.insert(QueueKey::stored("acme/full"), 1);
    for number in 1..=2 {
        store.delta = Delta::default();
        let intake = parking_intake(&number.to_string(), number, &by);
        settle::judge(&mut store.working, &intake, 0, at(0), &mut store.delta);
    }
    assert_eq!(store.delta.letters.len(), 1);
    let parked = |name| store.delta.entities.get(&key(name)).and_then(|record| record.state.parked_at());
    assert_eq!((parked("full"), parked("other")), (Some(2), None));
    assert_eq!(store.last("full"), Some(1), "the message did not advance its entity");
}

/// ORD-3: a refusal writes nothing of its message, but releases the messages with an expired wait.
#[test]
fn refusal_writes_only_released_messages() {
    let mut store = MemoryStore::new();
    let pay = route("pay");
    let by = [(&pay, Mode::Reorder)];
    assert!(matches!(store.send("1", 1, &by, at(0)).outcomes[0], Outcome::Queued { .. }));
    assert!(matches!(store.send("5", 5, &by, at(0)).outcomes[0], Outcome::Held { .. }));
    assert!(store.delta.deliveries[0].lane.as_ref().unwrap().waits);
    let late = store.send("x", 1, &by, at(1));
    assert_eq!(late.outcomes, [late_at(1, 1, Reason::SequenceConflict)]);
    assert!(store.delta.is_empty());
    let late = store.send("y", 1, &by, at(30));
    assert_eq!(late.outcomes, [late_at(1, 5, Reason::OutOfOrder)]);
    assert_eq!(late.message, None);
    assert_eq!(late.ordered[0].gaps, [3], "the gap before the released message");
    assert_eq!(store.delta.released, [(key("pay"), 5)]);
    assert!(store.delta.messages.is_empty() && !store.delta.is_empty());
    assert_eq!(store.last("pay"), Some(5));
}

/// ORD-3
#[test]
fn skipped_message_is_recorded_claimed_and_complete() {
    let mut store = MemoryStore::new();
    let pay = tracked("pay");
    let by = [(&pay, Mode::Skip)];
    store.send("2", 2, &by, at(0));
    let late = store.send("1", 1, &by, at(0));
    assert_eq!(late.outcomes, [Outcome::Skipped]);
    assert!(late.message.is_some() && store.delta.deliveries.is_empty());
    assert_eq!(claim(&store, "1", "pay").map(Claim::status), Some(Status::Completed));
    assert!(matches!(store.send("1", 1, &by, at(1)).outcomes[0], Outcome::Duplicate { .. }));
}

/// PIP-13, ORD-3
#[test]
fn each_destination_judges_by_its_own_rules() {
    let mut store = MemoryStore::new();
    let (strict, lenient) = (tracked("strict"), route("lenient"));
    let by = [(&strict, Mode::Strict), (&lenient, Mode::Lenient)];
    store.send("2", 2, &by, at(0));
    let late = store.send("1", 1, &by, at(0));
    let Outcome::Buried { delivery, reason: DeadReason::OutOfOrder } = late.outcomes[0] else {
        panic!("{:?}", late.outcomes)
    };
    assert!(matches!(late.outcomes[1], Outcome::Queued { .. }));
    assert_eq!(store.delta.letters.len(), 1);
    assert_eq!(store.delta.letters[0].delivery.id, delivery);
    assert_eq!(claim(&store, "1", "strict").map(Claim::status), Some(Status::Failed { is_final: true }));
    let violations =
        late.ordered.iter().filter(|ordered| ordered.verdict.is_some_and(|verdict| verdict.is_violation()));
    assert_eq!(violations.count(), 2);
}

fn judge_alone(store: &mut MemoryStore, intake: &Intake) -> Settlement {
    settle::judge(&mut store.working, intake, 0, at(0), &mut store.delta)
}
/// PIP-13, ORD-1: an unreadable number makes a dead letter at its destination; the other destinations are
/// unaffected.
#[test]
fn unreadable_position_is_a_dead_letter_there_only() {
    let mut store = MemoryStore::new();
    let (strict, lenient) = (tracked("strict"), route("lenient"));
    let mut event = intake("1", 1, &[(&strict, Mode::Strict), (&lenient, Mode::Lenient)], at(0));
    event.places[0] = Placed::Unreadable;
    store.working.room.insert(QueueKey::stored("acme/lenient"), 0);
    let settled = judge_alone(&mut store, &event);
    assert_eq!(settled.outcomes, [Outcome::QueueFull; 2], "no destination has it, and it may come again");
    store.working.room.insert(QueueKey::stored("acme/lenient"), 1);
    let settled = judge_alone(&mut store, &event);
    assert!(matches!(settled.outcomes[0], Outcome::Buried { reason: DeadReason::OrderUnreadable, .. }));
    assert!(matches!(settled.outcomes[1], Outcome::Queued { .. }));
    assert_eq!((store.last("strict"), store.last("lenient")), (None, Some(1)));
    assert_eq!(store.delta.letters[0].delivery.lane, None);
    assert_eq!(claim(&store, "1", "strict").map(Claim::status), Some(Status::Failed { is_final: true }));
    let again = judge_alone(&mut store, &event);
    let is_refused = again.outcomes.iter().any(Outcome::is_refusal);
    assert!(!is_refused && again.message.is_none(), "{again:?}");
}

/// ORD-2
#[test]
fn damaged_entity_refuses_only_its_own_messages() {
    let mut store = MemoryStore::new();
    store.working.unreadable_entities.insert(key("pay"));
    let (pay, other) = (route("pay"), route("other"));
    assert_eq!(store.send("1", 1, &[(&pay, Mode::Lenient)], at(0)).outcomes, [Outcome::Unreadable]);
    let settled = store.send("2", 1, &[(&other, Mode::Lenient)], at(0));
    assert!(matches!(settled.outcomes[0], Outcome::Queued { .. }));
}

/// ORD-1: a number of another kind passes unordered, and without an ordering key.
#[test]
fn numbers_of_two_kinds_do_not_mix() {
    let mut store = MemoryStore::new();
    let pay = route("pay");
    let by = [(&pay, Mode::Strict)];
    store.send("1", 1, &by, at(0));
    let mut other = intake("2", 0, &by, at(0));
    let Placed::At(place) = &mut other.places[0] else { panic!("{:?}", other.places) };
    place.kind = NumberKind::Time;
    let mut delta = Delta::default();
    let settled = settle::judge(&mut store.working, &other, 0, at(0), &mut delta);
    assert_eq!(settled.ordered[0].verdict, Some(Verdict::Unordered));
    assert_eq!(delta.deliveries[0].lane, None);
}

/// The situation of a message at one destination, before the other destinations are considered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Situation {
    Late,
    Unreadable,
    Full,
    Free,
    LeftOut,
    Claimed,
    /// Its claim has expired, but its entity remembers it.
    Remembered,
}

impl Situation {
    const ALL: [Self; 7] = [
        Self::Late,
        Self::Unreadable,
        Self::Full,
        Self::Free,
        Self::LeftOut,
        Self::Claimed,
        Self::Remembered,
    ];

    fn accepts(self) -> bool {
        matches!(self, Self::Free | Self::LeftOut | Self::Claimed | Self::Remembered)
    }

    /// Prepares the store so that message `m` with number 3 is in this situation at a route.
    fn prepare(self, store: &mut MemoryStore, name: &str, route: &Arc<BoundRoute>) {
        match self {
            Self::Late | Self::LeftOut => drop(store.send("5", 5, &[(route, self.mode())], at(0))),
            Self::Full => drop(store.working.room.insert(QueueKey::stored(&format!("acme/{name}")), 0)),
            Self::Claimed => drop(store.send("m", 3, &[(route, self.mode())], at(0))),
            Self::Remembered => {
                store.send("m", 3, &[(route, self.mode())], at(0));
                store.working.claims.retain(|key, _| *key.destination != *route.destination);
            }
            Self::Unreadable | Self::Free => {}
        }
    }

    fn mode(self) -> Mode {
        if self == Self::LeftOut { Mode::Skip } else { Mode::Strict }
    }

    /// The outcome there if any destination accepts the message.
    fn word(self) -> &'static str {
        match self {
            Self::Late => "out_of_order",
            Self::Unreadable => "order_unreadable",
            Self::Full => "queue_full",
            Self::Free => "queued",
            Self::LeftOut => "skipped",
            Self::Claimed | Self::Remembered => "duplicate",
        }
    }
}

/// All combinations of `length` situations.
fn mixtures(length: usize) -> Vec<Vec<Situation>> {
    (0..length).fold(vec![Vec::new()], |rows, _| {
        rows.iter()
            .flat_map(|row| Situation::ALL.map(|situation| [&row[..], &[situation]].concat()))
            .collect()
    })
}

/// PIP-13, ORD-4: a destination makes a dead letter only if another destination accepts the message. If none
/// does, the message is refused: for lack of room if any destination would have accepted it with room,
/// because the message may succeed later, and otherwise as late.
#[test]
fn message_accepted_nowhere_is_refused_in_any_mixture() {
    for mixture in (1..=3).flat_map(mixtures) {
        // An event that no destination can read is refused before settling.
        if mixture.iter().all(|situation| *situation == Situation::Unreadable) {
            continue;
        }
        let mut store = MemoryStore::new();
        let names = ["one", "two", "three"];
        let routes: Vec<_> = names.iter().map(|name| route(name)).collect();
        let situations = || mixture.iter().zip(&routes);
        for ((situation, route), name) in situations().zip(names) {
            situation.prepare(&mut store, name, route);
        }
        let by: Vec<_> = situations().map(|(situation, route)| (route, situation.mode())).collect();
        let mut event = intake("m", 3, &by, at(0));
        for (place, situation) in event.places.iter_mut().zip(&mixture) {
            if *situation == Situation::Unreadable {
                *place = Placed::Unreadable;
            }
        }
        let mut delta = Delta::default();
        let settled = settle::judge(&mut store.working, &event, 0, at(0), &mut delta);
        let words: Vec<_> = settled.outcomes.iter().map(word).collect();
        if mixture.iter().any(|situation| situation.accepts()) {
            let each: Vec<_> = mixture.iter().map(|situation| situation.word()).collect();
            assert_eq!(words, each, "{mixture:?}");
            continue;
        }
        let refused = if mixture.contains(&Situation::Full) { "full" } else { "late" };
        assert_eq!(words, vec![refused; mixture.len()], "{mixture:?}");
        let is_final = refused == "late" && !mixture.contains(&Situation::Unreadable);
        assert_eq!(settled.outcomes.iter().all(is_late_everywhere), is_final, "{mixture:?}");
        assert!(settled.message.is_none() && delta.is_empty(), "{mixture:?}: nothing of it is written");
    }
}

fn is_late_everywhere(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::OutOfOrder { everywhere: true, .. })
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Queued { .. } => "queued",
        Outcome::Skipped => "skipped",
        Outcome::Duplicate { .. } => "duplicate",
        Outcome::Buried { reason, .. } => reason.as_str(),
        Outcome::QueueFull => "full",
        Outcome::OutOfOrder {
            reason: Reason::OutOfOrder, numbers: Numbers { number: 3, last: 5 }, ..
        } => "late",
        _ => "something else",
    }
}

/// A store in which message 5 waits for the gap after message 1.
fn store_with_waiting(by: &[(&Arc<BoundRoute>, Mode)]) -> MemoryStore {
    let mut store = MemoryStore::new();
    store.send("1", 1, by, at(0));
    store.send("5", 5, by, at(0));
    store
}

fn assert_released(store: &MemoryStore, settled: &Settlement) {
    assert_eq!(store.delta.released, [(key("pay"), 5)], "{settled:?}");
    assert_eq!(settled.ordered.iter().map(|ordered| ordered.gaps.clone()).collect::<Vec<_>>().concat(), [3]);
    assert_eq!(store.last("pay"), Some(5));
}

/// ORD-3, ORD-8: an expired wait ends and its gap is counted, whatever the outcome of the message that
/// triggers this.
#[test]
fn expired_wait_ends_despite_duplicate_or_full_queue() {
    let pay = route("pay");
    let other = route("other");
    let by = [(&pay, Mode::Reorder), (&other, Mode::Lenient)];
    let end = at(30);

    let mut store = store_with_waiting(&by[..1]);
    store.working.claims.clear();
    let settled = store.send("5", 5, &by[..1], end);
    assert!(matches!(settled.outcomes[0], Outcome::Duplicate { .. }));
    assert_released(&store, &settled);

    // A dead letter at one destination does not advance the entity there, and still releases the waiting
    // message.
    let mut store = store_with_waiting(&by[..1]);
    store.working.room.insert(QueueKey::stored("acme/pay"), 0);
    let settled = store.send("8", 8, &by, end);
    assert!(matches!(settled.outcomes[0], Outcome::Buried { reason: DeadReason::QueueFull, .. }));
    assert_released(&store, &settled);
    assert_eq!(settled.ordered[0].verdict, None);

    let mut store = store_with_waiting(&by[..1]);
    store.working.room.insert(QueueKey::stored("acme/pay"), 0);
    let settled = store.send("8", 8, &by[..1], end);
    assert_eq!((settled.message, &settled.outcomes[..]), (None, &[Outcome::QueueFull][..]));
    assert_released(&store, &settled);
}

/// ORD-7: a late message parks nothing, because later messages have passed it; nor does it after a redrive.
#[test]
fn late_message_parks_nothing() {
    let mut store = MemoryStore::new();
    let (strict, lenient) = (route("strict"), route("lenient"));
    let by = [(&strict, Mode::Strict), (&lenient, Mode::Lenient)];
    let mut settled = |id: &str, number| {
        let intake = parking_intake(id, number, &by);
        settle::judge(&mut store.working, &intake, 0, at(0), &mut store.delta).outcomes[0]
    };
    assert!(matches!(settled("2", 2), Outcome::Queued { .. }));
    assert!(matches!(settled("1", 1), Outcome::Buried { reason: DeadReason::OutOfOrder, .. }));
    assert!(matches!(settled("3", 3), Outcome::Queued { .. }), "it is not parked");
    assert_eq!(store.working.entities[&key("strict")].state.parked_at(), None);
    let late = store.delta.letters[0].delivery.lane.as_ref().unwrap();
    assert_eq!((&late.key, late.number, late.parks), (&key("strict"), 1, None));
    assert!(store.delta.deliveries[0].parks(), "other deliveries of its route do");
}

/// ORD-7: the outcome says that a message is parked behind a failed one.
#[test]
fn message_behind_a_failed_one_is_parked() {
    let mut store = MemoryStore::new();
    let pay = route("pay");
    let by = [(&pay, Mode::Reorder)];
    store.send("1", 1, &by, at(0));
    store.working.entities.get_mut(&key("pay")).unwrap().state.failed = vec![1];
    assert!(matches!(store.send("2", 2, &by, at(0)).outcomes[0], Outcome::Parked { .. }));
    assert!(matches!(store.send("4", 4, &by, at(0)).outcomes[0], Outcome::Held { .. }), "it waits first");
}
