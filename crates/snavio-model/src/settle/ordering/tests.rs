use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::claim::{Claim, ClaimKey, ClaimPolicy, Status};
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

/// A store in memory: it loads all that it has, and keeps what is left to be written.
struct Kept {
    working: Working,
    delta: Delta,
}

impl Kept {
    fn new() -> Self {
        Self { working: Working::after(Serial(0)), delta: Delta::default() }
    }

    /// Settles a message alone, in a commit of its own.
    fn send(&mut self, id: &str, number: i64, by: &[(&Arc<BoundRoute>, Mode)], now: Timestamp) -> Settlement {
        self.delta = Delta::default();
        settle::judge(&mut self.working, &intake(id, number, by, now), 0, now, &mut self.delta)
    }

    fn last(&self, name: &str) -> Option<i64> {
        self.working.entities.get(&key(name)).map(|it| it.state.last)
    }
}

fn late_at(number: i64, last: i64, reason: Reason) -> Outcome {
    Outcome::OutOfOrder { reason, numbers: Numbers { number, last }, everywhere: true }
}

fn key(name: &str) -> EntityKey {
    EntityKey::stored(&format!("acme acme/bot:{name} e")).unwrap()
}

fn intake(id: &str, number: i64, by: &[(&Arc<BoundRoute>, Mode)], now: Timestamp) -> Intake {
    let place = |(route, mode): &(&Arc<BoundRoute>, Mode)| {
        let key = EntityKey { scope: Arc::clone(&route.destination), ..key("x") };
        Placed::At(Place { key, number, kind: NumberKind::Sequence, completes: false, rules: rules(*mode) })
    };
    let destinations: Vec<_> = by.iter().map(|(route, _)| Arc::clone(route)).collect();
    let it = settle::tests::intake("acme/billing", 0, &destinations);
    let message = Message { id: MessageId::stored(id), received_at: now, ..it.message };
    Intake { message, places: by.iter().map(place).collect(), ..it }
}

fn each_place(intake: &mut Intake, change: impl Fn(&mut Place)) {
    for placed in &mut intake.places {
        if let Placed::At(place) = placed {
            change(place);
        }
    }
}

fn claim<'a>(kept: &'a Kept, id: &str, name: &str) -> Option<&'a Claim> {
    let of = |it: &&ClaimKey| it.id.as_str() == id && *it.destination == *format!("acme/bot:{name}");
    kept.working.claims.iter().find(|(key, _)| of(key)).map(|(_, claim)| claim)
}

/// ORD-2: what is not written has not moved its entity on.
#[test]
fn a_message_without_room_moves_nothing() {
    let mut kept = Kept::new();
    let pay = route("pay");
    let by = [(&pay, Mode::Strict)];
    kept.send("a", 1, &by, at(0));
    kept.working.room.insert(QueueKey::stored("acme/pay"), 0);
    assert_eq!(kept.send("b", 2, &by, at(0)).outcomes, [Outcome::QueueFull]);
    assert_eq!((kept.last("pay"), kept.delta.is_empty()), (Some(1), true));
    kept.working.room.insert(QueueKey::stored("acme/pay"), 1);
    let settled = kept.send("b", 2, &by, at(0));
    assert_eq!(settled.ordered[0].verdict, Some(Verdict::InOrder), "nothing of the first try is left");
    assert_eq!(kept.delta.entities.len(), 1);
}

/// ORD-4: what its claim knows is a duplicate, whatever came since.
#[test]
fn what_was_applied_is_never_out_of_order() {
    let mut kept = Kept::new();
    let pay = route("pay");
    let by = [(&pay, Mode::Strict)];
    for number in 1..=3 {
        kept.send(&number.to_string(), number, &by, at(0));
    }
    for number in 1..=3 {
        let settled = kept.send(&number.to_string(), number, &by, at(1));
        assert_eq!(settled.outcomes, [Outcome::Duplicate { first_seen_at: at(0) }], "{number}");
        assert!(settled.ordered.is_empty() && kept.delta.is_empty());
    }
    // For as long as the entity is remembered, however short its claims are kept elsewhere.
    let last = at(i64::try_from(TTL.as_secs()).unwrap() - 1);
    for number in 1..=3 {
        let settled = kept.send(&number.to_string(), number, &by, last);
        assert_eq!(settled.outcomes, [Outcome::Duplicate { first_seen_at: at(0) }], "{number}");
    }
}

/// ORD-4, CLM-1: of two types that count together each has its own claim, so one id may be a message of both.
#[test]
fn one_id_of_two_types_of_a_scope_is_two_messages() {
    for (number, mode, taken) in [
        (2, Mode::Strict, "queued"),
        (2, Mode::Lenient, "queued"),
        (1, Mode::Strict, "conflict"),
        (1, Mode::Lenient, "queued"),
    ] {
        let mut kept = Kept::new();
        let (paid, shipped) = (route("paid"), route("shipped"));
        let mut send = |number, route: &Arc<BoundRoute>| {
            let mut it = intake("order-7", number, &[(route, mode)], at(0));
            each_place(&mut it, |it| it.key.scope = "acme/bot#orders".into());
            settle::judge(&mut kept.working, &it, 0, at(0), &mut Delta::default()).outcomes[0]
        };
        assert!(matches!(send(1, &paid), Outcome::Queued { .. }));
        let is_taken = match send(number, &shipped) {
            Outcome::Queued { .. } => "queued",
            outcome if outcome == late_at(1, 1, Reason::SequenceConflict) => "conflict",
            outcome => panic!("{outcome:?}"),
        };
        assert_eq!(is_taken, taken, "{number} {mode:?}");
        assert!(matches!(send(1, &paid), Outcome::Duplicate { .. }), "its claim knows it");
    }
}

/// ORD-3: nobody takes it, so its producer is told.
#[test]
fn what_is_late_at_every_destination_is_refused() {
    let mut kept = Kept::new();
    let (one, two) = (route("one"), route("two"));
    let by = [(&one, Mode::Strict), (&two, Mode::Strict)];
    kept.send("2", 2, &by, at(0));
    kept.send("5", 5, &by[1..], at(0));
    let late = kept.send("1", 1, &by, at(0));
    let refused = [late_at(1, 2, Reason::OutOfOrder), late_at(1, 5, Reason::OutOfOrder)];
    assert_eq!((late.message, &late.outcomes[..]), (None, &refused[..]));
    assert_eq!(late.ordered.len(), 2, "each counts it");
    assert!(kept.delta.is_empty());
    assert!(claim(&kept, "1", "one").is_none());
}

/// ORD-5
#[test]
fn a_closed_entity_refuses_by_its_own_word() {
    let mut kept = Kept::new();
    let pay = route("pay");
    let by = [(&pay, Mode::Strict)];
    let mut closing = intake("4", 4, &by, at(0));
    each_place(&mut closing, |it| it.completes = true);
    settle::judge(&mut kept.working, &closing, 0, at(0), &mut Delta::default());
    for number in [3, 4] {
        let late = kept.send("late", number, &by, at(0));
        assert_eq!(late.outcomes, [late_at(number, 4, Reason::EntityClosed)]);
    }
}

/// ORD-7, PIP-13: what fails for want of room is not passed either.
#[test]
fn what_has_no_room_parks_its_entity_where_the_route_says_so() {
    let mut kept = Kept::new();
    let (full, other) = (route("full"), route("other"));
    let by = [(&full, Mode::Strict), (&other, Mode::Strict)];
    let parking = |id: &str, number| {
        let mut it = intake(id, number, &by, at(0));
        each_place(&mut it, |it| it.rules.on_failure = OnFailure::Park);
        it
    };
    kept.working.room.insert(QueueKey::stored("acme/full"), 1);
    for number in 1..=2 {
        kept.delta = Delta::default();
        let it = parking(&number.to_string(), number);
        settle::judge(&mut kept.working, &it, 0, at(0), &mut kept.delta);
    }
    assert_eq!(kept.delta.letters.len(), 1);
    let parked = |name| kept.delta.entities.get(&key(name)).and_then(|it| it.state.parked_at());
    assert_eq!((parked("full"), parked("other")), (Some(2), None));
    assert_eq!(kept.last("full"), Some(1), "it has not come");
}

/// ORD-3: a refusal writes nothing of its message, but what had waited long enough goes out with it.
#[test]
fn a_refusal_leaves_only_what_was_released() {
    let mut kept = Kept::new();
    let pay = route("pay");
    let by = [(&pay, Mode::Reorder)];
    assert!(matches!(kept.send("1", 1, &by, at(0)).outcomes[0], Outcome::Queued { .. }));
    assert!(matches!(kept.send("5", 5, &by, at(0)).outcomes[0], Outcome::Held { .. }));
    assert!(kept.delta.deliveries[0].lane.as_ref().unwrap().waits);
    let late = kept.send("x", 1, &by, at(1));
    assert_eq!(late.outcomes, [late_at(1, 1, Reason::SequenceConflict)]);
    assert!(kept.delta.is_empty());
    let late = kept.send("y", 1, &by, at(30));
    assert_eq!(late.outcomes, [late_at(1, 5, Reason::OutOfOrder)]);
    assert_eq!(late.message, None);
    assert_eq!(late.ordered[0].gaps, [3], "the gap before what was let go");
    assert_eq!(kept.delta.released, [(key("pay"), 5)]);
    assert!(kept.delta.messages.is_empty() && !kept.delta.is_empty());
    assert_eq!(kept.last("pay"), Some(5));
}

/// ORD-3
#[test]
fn what_is_skipped_is_recorded_and_claimed_and_complete() {
    let mut kept = Kept::new();
    let pay = tracked("pay");
    let by = [(&pay, Mode::Skip)];
    kept.send("2", 2, &by, at(0));
    let late = kept.send("1", 1, &by, at(0));
    assert_eq!(late.outcomes, [Outcome::Skipped]);
    assert!(late.message.is_some() && kept.delta.deliveries.is_empty());
    assert_eq!(claim(&kept, "1", "pay").map(Claim::status), Some(Status::Completed));
    assert!(matches!(kept.send("1", 1, &by, at(1)).outcomes[0], Outcome::Duplicate { .. }));
}

/// PIP-13, ORD-3
#[test]
fn of_several_destinations_each_judges_by_its_own_rules() {
    let mut kept = Kept::new();
    let (strict, lenient) = (tracked("strict"), route("lenient"));
    let by = [(&strict, Mode::Strict), (&lenient, Mode::Lenient)];
    kept.send("2", 2, &by, at(0));
    let late = kept.send("1", 1, &by, at(0));
    let Outcome::Buried { delivery, reason: DeadReason::OutOfOrder } = late.outcomes[0] else {
        panic!("{:?}", late.outcomes)
    };
    assert!(matches!(late.outcomes[1], Outcome::Queued { .. }));
    assert_eq!(kept.delta.letters.len(), 1);
    assert_eq!(kept.delta.letters[0].delivery.id, delivery);
    assert_eq!(claim(&kept, "1", "strict").map(Claim::status), Some(Status::Failed { is_final: true }));
    assert_eq!(late.ordered.iter().filter(|it| it.verdict.is_some_and(|it| it.is_violation())).count(), 2);
}

/// PIP-13, ORD-1: where a number cannot be read the event is a dead letter, and what others have of it is theirs.
#[test]
fn a_place_that_cannot_be_read_is_a_dead_letter_there_and_nothing_elsewhere() {
    let mut kept = Kept::new();
    let (strict, lenient) = (tracked("strict"), route("lenient"));
    let mut event = intake("1", 1, &[(&strict, Mode::Strict), (&lenient, Mode::Lenient)], at(0));
    event.places[0] = Placed::Unreadable;
    let judge = |kept: &mut Kept| settle::judge(&mut kept.working, &event, 0, at(0), &mut kept.delta);
    kept.working.room.insert(QueueKey::stored("acme/lenient"), 0);
    assert_eq!(judge(&mut kept).outcomes, [Outcome::QueueFull; 2], "nobody has it, and it may come again");
    kept.working.room.insert(QueueKey::stored("acme/lenient"), 1);
    let settled = judge(&mut kept);
    assert!(matches!(settled.outcomes[0], Outcome::Buried { reason: DeadReason::OrderUnreadable, .. }));
    assert!(matches!(settled.outcomes[1], Outcome::Queued { .. }));
    assert_eq!((kept.last("strict"), kept.last("lenient")), (None, Some(1)));
    assert_eq!(kept.delta.letters[0].delivery.lane, None);
    assert_eq!(claim(&kept, "1", "strict").map(Claim::status), Some(Status::Failed { is_final: true }));
    let again = judge(&mut kept);
    assert!(again.outcomes.iter().all(|it| !it.is_refusal()) && again.message.is_none(), "{again:?}");
}

/// ORD-2
#[test]
fn what_cannot_be_trusted_of_an_entity_refuses_its_messages_only() {
    let mut kept = Kept::new();
    kept.working.unreadable_entities.insert(key("pay"));
    let (pay, other) = (route("pay"), route("other"));
    assert_eq!(kept.send("1", 1, &[(&pay, Mode::Lenient)], at(0)).outcomes, [Outcome::Unreadable]);
    let settled = kept.send("2", 1, &[(&other, Mode::Lenient)], at(0));
    assert!(matches!(settled.outcomes[0], Outcome::Queued { .. }));
}

/// ORD-1: a number that counts something else passes unordered, and in no lane.
#[test]
fn numbers_of_two_kinds_do_not_mix() {
    let mut kept = Kept::new();
    let pay = route("pay");
    let by = [(&pay, Mode::Strict)];
    kept.send("1", 1, &by, at(0));
    let mut other = intake("2", 0, &by, at(0));
    let Placed::At(place) = &mut other.places[0] else { panic!("{:?}", other.places) };
    place.kind = NumberKind::Time;
    let mut delta = Delta::default();
    let settled = settle::judge(&mut kept.working, &other, 0, at(0), &mut delta);
    assert_eq!(settled.ordered[0].verdict, Some(Verdict::Unordered));
    assert_eq!(delta.deliveries[0].lane, None);
}

/// How a message stands at one destination, before the others are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    Late,
    Unreadable,
    Full,
    Free,
    LeftOut,
    Claimed,
    /// Its claim is over, and its entity remembers it.
    Remembered,
}

impl Stand {
    const ALL: [Self; 7] = [
        Self::Late,
        Self::Unreadable,
        Self::Full,
        Self::Free,
        Self::LeftOut,
        Self::Claimed,
        Self::Remembered,
    ];

    fn takes(self) -> bool {
        matches!(self, Self::Free | Self::LeftOut | Self::Claimed | Self::Remembered)
    }

    /// Brings it about that message `m` with number 3 stands so at a route.
    fn prepare(self, kept: &mut Kept, name: &str, route: &Arc<BoundRoute>) {
        match self {
            Self::Late | Self::LeftOut => drop(kept.send("5", 5, &[(route, self.mode())], at(0))),
            Self::Full => drop(kept.working.room.insert(QueueKey::stored(&format!("acme/{name}")), 0)),
            Self::Claimed => drop(kept.send("m", 3, &[(route, self.mode())], at(0))),
            Self::Remembered => {
                kept.send("m", 3, &[(route, self.mode())], at(0));
                kept.working.claims.retain(|key, _| *key.destination != *route.destination);
            }
            Self::Unreadable | Self::Free => {}
        }
    }

    fn mode(self) -> Mode {
        if self == Self::LeftOut { Mode::Skip } else { Mode::Strict }
    }

    /// What becomes of the message there if any takes it.
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

/// Every row of so many of them.
fn mixtures(length: usize) -> Vec<Vec<Stand>> {
    (0..length).fold(vec![Vec::new()], |rows, _| {
        let longer = |row: &Vec<Stand>| Stand::ALL.map(|it| [&row[..], &[it]].concat());
        rows.iter().flat_map(longer).collect()
    })
}

/// PIP-13, ORD-4: a dead letter only while another one takes it. What nobody takes is refused: for want of room if any would
/// have had it, for then it may come again, and else as late.
#[test]
fn what_nobody_takes_is_refused_whatever_the_mixture() {
    for mixture in (1..=3).flat_map(mixtures) {
        // Those are refused before there is anything to settle.
        if mixture.iter().all(|it| *it == Stand::Unreadable) {
            continue;
        }
        let mut kept = Kept::new();
        let names = ["one", "two", "three"];
        let routes: Vec<_> = names.iter().map(|name| route(name)).collect();
        let stands = || mixture.iter().zip(&routes);
        stands().zip(names).for_each(|((stand, route), name)| stand.prepare(&mut kept, name, route));
        let by: Vec<_> = stands().map(|(stand, route)| (route, stand.mode())).collect();
        let mut event = intake("m", 3, &by, at(0));
        for (place, stand) in event.places.iter_mut().zip(&mixture) {
            if *stand == Stand::Unreadable {
                *place = Placed::Unreadable;
            }
        }
        let mut delta = Delta::default();
        let settled = settle::judge(&mut kept.working, &event, 0, at(0), &mut delta);
        let words: Vec<_> = settled.outcomes.iter().map(word).collect();
        if mixture.iter().any(|it| it.takes()) {
            let each: Vec<_> = mixture.iter().map(|it| it.word()).collect();
            assert_eq!(words, each, "{mixture:?}");
            continue;
        }
        let refused = if mixture.contains(&Stand::Full) { "full" } else { "late" };
        assert_eq!(words, vec![refused; mixture.len()], "{mixture:?}");
        let is_for_good = |it: &Outcome| matches!(it, Outcome::OutOfOrder { everywhere: true, .. });
        let never = refused == "late" && !mixture.contains(&Stand::Unreadable);
        assert_eq!(settled.outcomes.iter().all(is_for_good), never, "{mixture:?}");
        assert!(settled.message.is_none() && delta.is_empty(), "{mixture:?}: nothing of it is written");
    }
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

/// ORD-3, ORD-8: whatever becomes of the message that finds it, a wait that is over ends, and its gap is counted.
#[test]
fn what_waited_long_enough_goes_out_with_a_duplicate_and_past_a_full_queue() {
    let pay = route("pay");
    let other = route("other");
    let by = [(&pay, Mode::Reorder), (&other, Mode::Lenient)];
    let waiting = || {
        let mut kept = Kept::new();
        kept.send("1", 1, &by[..1], at(0));
        kept.send("5", 5, &by[..1], at(0));
        kept
    };
    let over = at(30);
    let let_go = |kept: &Kept, settled: &Settlement| {
        assert_eq!(kept.delta.released, [(key("pay"), 5)], "{settled:?}");
        assert_eq!(settled.ordered.iter().map(|it| it.gaps.clone()).collect::<Vec<_>>().concat(), [3]);
        assert_eq!(kept.last("pay"), Some(5));
    };

    let mut kept = waiting();
    kept.working.claims.clear();
    let settled = kept.send("5", 5, &by[..1], over);
    assert!(matches!(settled.outcomes[0], Outcome::Duplicate { .. }));
    let_go(&kept, &settled);

    // A dead letter at one, which has not come there and lets go what waited all the same.
    let mut kept = waiting();
    kept.working.room.insert(QueueKey::stored("acme/pay"), 0);
    let settled = kept.send("8", 8, &by, over);
    assert!(matches!(settled.outcomes[0], Outcome::Buried { reason: DeadReason::QueueFull, .. }));
    let_go(&kept, &settled);
    assert_eq!(settled.ordered[0].verdict, None);

    let mut kept = waiting();
    kept.working.room.insert(QueueKey::stored("acme/pay"), 0);
    let settled = kept.send("8", 8, &by[..1], over);
    assert_eq!((settled.message, &settled.outcomes[..]), (None, &[Outcome::QueueFull][..]));
    let_go(&kept, &settled);
}

/// ORD-7: nothing queues behind a late one, since later ones have passed it; nor once it is put back, in its entity's lane.
#[test]
fn what_is_late_parks_nothing() {
    let mut kept = Kept::new();
    let (strict, lenient) = (route("strict"), route("lenient"));
    let by = [(&strict, Mode::Strict), (&lenient, Mode::Lenient)];
    let mut settled = |id: &str, number| {
        let mut it = intake(id, number, &by, at(0));
        each_place(&mut it, |it| it.rules.on_failure = OnFailure::Park);
        settle::judge(&mut kept.working, &it, 0, at(0), &mut kept.delta).outcomes[0]
    };
    assert!(matches!(settled("2", 2), Outcome::Queued { .. }));
    assert!(matches!(settled("1", 1), Outcome::Buried { reason: DeadReason::OutOfOrder, .. }));
    assert!(matches!(settled("3", 3), Outcome::Queued { .. }), "it is not parked");
    assert_eq!(kept.working.entities[&key("strict")].state.parked_at(), None);
    let late = kept.delta.letters[0].delivery.lane.as_ref().unwrap();
    assert_eq!((&late.key, late.number, late.parks), (&key("strict"), 1, None));
    assert!(kept.delta.deliveries[0].parks(), "others of its route do");
}

/// ORD-7: what queues behind one that failed is told so.
#[test]
fn what_queues_behind_one_that_failed_is_parked() {
    let mut kept = Kept::new();
    let pay = route("pay");
    let by = [(&pay, Mode::Reorder)];
    kept.send("1", 1, &by, at(0));
    kept.working.entities.get_mut(&key("pay")).unwrap().state.failed = vec![1];
    assert!(matches!(kept.send("2", 2, &by, at(0)).outcomes[0], Outcome::Parked { .. }));
    assert!(matches!(kept.send("4", 4, &by, at(0)).outcomes[0], Outcome::Held { .. }), "it waits first");
}
