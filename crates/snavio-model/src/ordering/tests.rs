//! Order per entity: the cases of ORD-1 to ORD-7 as tables, and properties of arbitrary traffic.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;

use super::position::{Marks, Position};
use super::*;
use crate::bounds;
use crate::hash::DomainHash;
use crate::id::MessageId;
use crate::json::Pointer;
use crate::message::Message;
use crate::message::event::EventEnvelope;
use crate::message::trace::{CorrelationId, Traceparent};
use crate::name::{CommandName, ServiceName, TenantName};
use crate::refusal::{Reason, Refusal};
use crate::registry::Route;
use crate::time::Timestamp;

const NOW: Timestamp = Timestamp(1_794_731_400_000);

fn pointer(text: &str) -> Pointer {
    Pointer::new(text).unwrap()
}

fn by_pointers() -> Order {
    Order::by(pointer("/buildId"), pointer("/eventSequence"))
}

fn rules(mode: Mode) -> Rules {
    Order { mode: Some(mode), ..by_pointers() }.rules(&OrderDefaults::default()).unwrap()
}

fn id(text: &str) -> MessageId {
    MessageId::stored(text)
}

fn message(payload: &str, metadata: Option<&str>) -> Message {
    let shop = ServiceName::new("acme/shop").unwrap();
    let envelope = EventEnvelope {
        version: "1.0".parse().unwrap(),
        timestamp: "2026-11-15T08:30:00.123456Z".to_owned(),
        metadata: metadata.map(str::to_owned),
    };
    Message {
        tenant: TenantName::new("acme").unwrap(),
        id: id("m"),
        source: shop.clone(),
        target: shop,
        name: CommandName::new("build.progress").unwrap(),
        signed_target: "".into(),
        sent_at: "".into(),
        key_version: None,
        signature: "".into(),
        correlation: CorrelationId::new("c").unwrap(),
        traceparent: Traceparent::from_random([7; 24]),
        received_at: NOW,
        registry_version: 1,
        domain_hash: DomainHash([0; 32]),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        event: Some(Arc::new(envelope)),
    }
}

fn find_position(order: &Order, message: &Message) -> Result<Option<Position>, Refusal> {
    order.position(&Marks::of(message, [order].into_iter()))
}

fn position(order: &Order, payload: &str, metadata: Option<&str>) -> Result<Option<(String, i64)>, Refusal> {
    Ok(find_position(order, &message(payload, metadata))?.map(|found| (found.entity, found.number)))
}

/// ORD-1
#[test]
fn sequence_number_is_whole_and_exact() {
    for (sent, number) in [
        ("0", Ok(Some(0))),
        ("7", Ok(Some(7))),
        ("\"7\"", Ok(Some(7))),
        ("\"0007\"", Ok(Some(7))),
        ("\"000\"", Ok(Some(0))),
        ("7.0", Ok(Some(7))),
        ("1e3", Ok(Some(1000))),
        ("-0", Ok(Some(0))),
        ("9007199254740993", Ok(Some(9_007_199_254_740_993))),
        ("9223372036854775807", Ok(Some(i64::MAX))),
        ("\"9223372036854775807\"", Ok(Some(i64::MAX))),
        ("null", Ok(None)),
        ("9223372036854775808", Err(())),
        ("\"9223372036854775808\"", Err(())),
        ("1e30", Err(())),
        ("-1", Err(())),
        ("\"-1\"", Err(())),
        ("7.5", Err(())),
        ("\"7.0\"", Err(())),
        ("\"1e3\"", Err(())),
        ("\"+7\"", Err(())),
        ("\" 7\"", Err(())),
        ("\"\"", Err(())),
        ("\"x\"", Err(())),
        ("true", Err(())),
        ("[7]", Err(())),
        ("{}", Err(())),
    ] {
        let read = position(&by_pointers(), &format!(r#"{{"buildId":"b","eventSequence":{sent}}}"#), None);
        let read = read.map(|found| found.map(|(_, number)| number)).map_err(|refusal| {
            assert_eq!(
                refusal.to_string(),
                "invalid_sequence: the number in the payload at /eventSequence must be whole, 0 to 9223372036854775807, or the same as text"
            );
        });
        assert_eq!(read, number, "{sent}");
    }
    assert_eq!(position(&by_pointers(), r#"{"buildId":"b"}"#, None), Ok(None));
}

/// ORD-1
#[test]
fn entity_is_text_or_whole_number() {
    let longest = format!("{:?}", "x".repeat(256));
    for (sent, entity) in [
        ("\"b 1\"", Some("b 1")),
        ("\"\"", Some("")),
        ("7", Some("7")),
        ("\"7\"", Some("7")),
        ("-7.0", Some("-7")),
        (longest.as_str(), Some(&longest[1..257])),
        ("7.5", None),
        ("null", None),
        ("true", None),
        ("[]", None),
        ("{}", None),
    ] {
        let read =
            position(&by_pointers(), &format!(r#"{{"buildId":{sent},"eventSequence":1}}"#), None).unwrap();
        assert_eq!(read.map(|found| found.0).as_deref(), entity, "{sent}");
    }
    assert_eq!(position(&by_pointers(), r#"{"eventSequence":-1}"#, None), Ok(None));
    assert_eq!(position(&by_pointers(), "7", None), Ok(None));
    let long = format!(r#"{{"buildId":"{}","eventSequence":1}}"#, "x".repeat(257));
    assert_eq!(
        position(&by_pointers(), &long, None).unwrap_err().to_string(),
        "malformed: the entity in the payload at /buildId must be at most 256 bytes"
    );
}

fn kept_metadata(text: &str) -> String {
    format!(r#"{{"userId":"u","cloudevents":{text}}}"#)
}

/// ORD-1, MSG-6
#[test]
fn cloudevents_are_ordered_by_their_extensions() {
    let order = Order::by_extensions();
    for (metadata, read) in [
        (Some(kept_metadata(r#"{"partitionkey":"k","sequence":"0012"}"#)), Ok(Some(("k".to_owned(), 12)))),
        (Some(kept_metadata(r#"{"partitionkey":"k","sequence":12}"#)), Ok(Some(("k".to_owned(), 12)))),
        (Some(kept_metadata(r#"{"partitionkey":"k"}"#)), Ok(None)),
        (Some(kept_metadata(r#"{"sequence":"12"}"#)), Ok(None)),
        (Some("{}".to_owned()), Ok(None)),
        (None, Ok(None)),
        (Some(kept_metadata(r#"{"partitionkey":"k","sequence":"x"}"#)), Err(())),
    ] {
        let found = position(&order, "{}", metadata.as_deref()).map_err(|refusal| {
            assert!(refusal.detail.starts_with("the number in the extension sequence must be whole"));
        });
        assert_eq!(found, read, "{metadata:?}");
    }
}

fn numbered_route(n: usize, order: Option<Order>) -> Route {
    let text =
        format!(r#"{{"target":"acme/s{n}","name":"build.progress","queue":"q","dead_letter_queue":"d"}}"#);
    Route { order: order.map(Box::new), ..serde_json::from_str(&text).unwrap() }
}

fn order_by(entity: &str, number: &str) -> Order {
    Order::by(pointer(entity), pointer(number))
}

/// ORD-1, PIP-13: each destination gets the result that it would get alone.
#[test]
fn position_is_found_for_many_destinations_at_once() {
    let orders = [
        Some(by_pointers()),
        None,
        Some(Order::by_extensions()),
        Some(order_by("/a", "/a/b")),
        Some(order_by("/a/b", "/a/c/1")),
        Some(order_by("/a/c/0", "/eventSequence")),
        Some(Order { number: None, ..by_pointers() }),
        Some(Order { enabled: Some(false), ..by_pointers() }),
        Some(order_by("/nothing", "/buildId")),
        Some(order_by("/buildId", "/buildId")),
    ];
    let routes: Vec<_> = (0..).zip(orders).map(|(n, order)| numbered_route(n, order)).collect();
    let kept = r#"{"cloudevents":{"partitionkey":"k","sequence":"12"}}"#;
    let sent = message(r#"{"buildId":"b","eventSequence":7,"a":{"b":"x","c":["e",3]}}"#, Some(kept));
    let defaults = OrderDefaults::default();
    let found = Place::find_each(&sent, routes.iter(), &defaults);
    let alone: Vec<_> = routes.iter().map(|route| Place::find(&sent, route, &defaults)).collect();
    let places = found.iter().map(|found| found.clone().map(|placed| placed.place().cloned()));
    assert_eq!(places.collect::<Vec<_>>(), alone);
    let words = found.iter().map(|found| match found {
        Ok(Placed::At(place)) => place.number.to_string(),
        Ok(Placed::Unordered) => "not ordered".to_owned(),
        Ok(Placed::Unmarked) => "unmarked".to_owned(),
        Ok(Placed::Unreadable) | Err(_) => "unreadable".to_owned(),
    });
    let words: Vec<_> = words.collect();
    let (free, unmarked) = ("not ordered", "unmarked");
    assert_eq!(words, ["7", free, "12", unmarked, "3", "7", "12", free, unmarked, "unreadable"]);
}

/// ORD-1
#[test]
fn timestamp_is_a_number_only_if_the_route_agrees() {
    let order = Order { timestamp_as_number: true, ..by_pointers() };
    let without = message(r#"{"buildId":"b"}"#, None);
    let read = find_position(&order, &without).unwrap().unwrap();
    assert_eq!((read.number, read.kind), (1_794_731_400_123, NumberKind::Time));
    assert_eq!(find_position(&by_pointers(), &without), Ok(None));
    let with = message(r#"{"buildId":"b","eventSequence":7}"#, None);
    assert_eq!(find_position(&order, &with).unwrap().unwrap().kind, NumberKind::Sequence);
    let command = Message { event: None, sent_at: "2026-11-15T08:30:00Z".into(), ..without };
    assert_eq!(find_position(&order, &command).unwrap().unwrap().number, 1_794_731_400_000);
    // Numbers of both kinds are never compared: the first message of an entity determines the kind.
    let mut run = Run::new(rules(Mode::Strict));
    run.send(7, "a");
    let other = id("b");
    let arrival = Arrival { kind: NumberKind::Time, ..arrival(&other, 3) };
    let judged = judge(run.state.clone(), &arrival, &run.rules, NOW);
    assert_eq!((judged.verdict, judged.action), (Verdict::Unordered, Action::Deliver));
    assert_eq!(judged.state, run.state);
}

fn mode_of(order: &Order, defaults: &OrderDefaults) -> Option<Mode> {
    order.rules(defaults).map(|rules| rules.mode)
}

/// ORD-3
#[test]
fn unset_members_take_the_platforms_settings() {
    let usual = OrderDefaults::default();
    assert_eq!(usual, OrderDefaults { enabled: true, strict: false, ttl: Duration::from_secs(86_400) });
    let order = by_pointers();
    assert_eq!(mode_of(&order, &usual), Some(Mode::Lenient));
    assert_eq!(mode_of(&order, &OrderDefaults { strict: true, ..usual }), Some(Mode::Strict));
    assert_eq!(mode_of(&order, &OrderDefaults { enabled: false, ..usual }), None);
    let own = Order { enabled: Some(true), mode: Some(Mode::Skip), ttl_seconds: Some(60), ..order };
    let rules = own.rules(&OrderDefaults { enabled: false, strict: true, ..usual }).unwrap();
    assert_eq!((rules.mode, rules.ttl), (Mode::Skip, Duration::from_secs(60)));
    let off = Order { enabled: Some(false), ..own };
    assert_eq!(off.rules(&usual), None);
}

/// ORD-3, ORD-7
#[test]
fn unworkable_order_is_refused_with_a_reason() {
    let good = Order { mode: Some(Mode::Reorder), ..by_pointers() };
    assert_eq!(good.problem(), None);
    let parks = Order { on_failure: OnFailure::Park, ..good.clone() };
    assert_eq!(parks.problem(), None);
    for (wrong, expected) in [
        (
            Order { timestamp_as_number: true, ..good.clone() },
            "order.timestamp_as_number is not for the mode reorder: every message would wait",
        ),
        (
            Order { mode: Some(Mode::Lenient), ..parks.clone() },
            "order.on_failure park needs the mode strict or reorder: only these lease one message of an entity at a time, and the route must set order.mode itself",
        ),
        (
            Order { mode: None, ..parks.clone() },
            "order.on_failure park needs the mode strict or reorder: only these lease one message of an entity at a time, and the route must set order.mode itself",
        ),
        (Order { wait_seconds: 0, ..good.clone() }, "order.wait_seconds is 0, not 1 to 3600"),
        (Order { waiting_max: 257, ..good.clone() }, "order.waiting_max is 257, not 1 to 256"),
        (Order { ttl_seconds: Some(0), ..good.clone() }, "order.ttl_seconds is 0, not 1 to 34560000"),
        (
            Order { entity: Some(pointer(&format!("/{}", "x".repeat(256)))), ..good.clone() },
            "order: a pointer has at most 256 bytes",
        ),
        (
            Order { completion: vec!["done".parse().unwrap(); 17], ..good.clone() },
            "order.completion has at most 16 types",
        ),
    ] {
        assert_eq!(wrong.problem().as_deref(), Some(expected));
    }
    let text = json!({"entity": "/buildId", "number": "/eventSequence", "mode": "reorder"});
    assert_eq!(serde_json::from_value::<Order>(text).unwrap(), good);
    assert_eq!(serde_json::from_str::<Order>("{}").unwrap(), Order::by_extensions());
}

fn arrival(id: &MessageId, number: i64) -> Arrival<'_> {
    Arrival { id, number, kind: NumberKind::Sequence, completes: false, applied: false, among: None }
}

/// Messages of one entity in sequence.
struct Run {
    rules: Rules,
    now: Timestamp,
    state: Option<EntityState>,
    /// Numbers in the order of their delivery.
    delivered: Vec<i64>,
    /// Waiting numbers, with their time of arrival.
    held: BTreeMap<i64, Timestamp>,
    applied: BTreeSet<String>,
    /// Numbers of the messages that complete the entity.
    completions: BTreeSet<i64>,
    /// The destination, if several destinations count the entity.
    among: Option<&'static str>,
}

impl Run {
    fn new(rules: Rules) -> Self {
        Self {
            rules,
            now: NOW,
            state: None,
            delivered: Vec::new(),
            held: BTreeMap::new(),
            applied: BTreeSet::new(),
            completions: BTreeSet::new(),
            among: None,
        }
    }

    /// Messages to one of several destinations that count the entity.
    fn among(destination: &'static str, mode: Mode) -> Self {
        Self { among: Some(destination), ..Self::new(rules(mode)) }
    }

    fn send(&mut self, number: i64, name: &str) -> Judged {
        let key = format!("{name}{number}");
        let id = id(&key);
        let applied = self.applied.contains(&key);
        let completes = self.completions.contains(&number);
        let arrival = Arrival { completes, applied, among: self.among, ..arrival(&id, number) };
        let judged = judge(self.state.take(), &arrival, &self.rules, self.now);
        self.release(&judged.before);
        match judged.action {
            Action::Deliver => {
                self.delivered.push(number);
                self.applied.insert(key);
            }
            Action::Hold => {
                self.held.insert(number, self.now);
                self.applied.insert(key);
            }
            Action::Skip | Action::Duplicate | Action::Refuse(_) => {}
        }
        self.release(&judged.after);
        self.state.clone_from(&judged.state);
        judged
    }

    fn release(&mut self, released: &[Released]) {
        for message in released {
            let came_at = self.held.remove(&message.number).expect("only waiting messages are released");
            assert!(self.now.since(came_at) <= self.rules.wait, "it waited too long");
            self.delivered.push(message.number);
        }
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now = self.now.plus(Duration::from_secs(1));
            if let Some(state) = self.state.take() {
                let (state, released) = end_waits(state, &self.rules, self.now);
                self.state = Some(state);
                self.release(&released);
            }
        }
    }

    fn verdict(&mut self, number: i64) -> Verdict {
        self.send(number, "m").verdict
    }

    fn state(&self) -> &EntityState {
        self.state.as_ref().unwrap()
    }

    fn last(&self) -> i64 {
        self.state().last
    }
}

/// ORD-4
#[test]
fn first_message_passes_and_next_are_in_order() {
    for mode in [Mode::Lenient, Mode::Skip, Mode::Strict, Mode::Reorder] {
        let mut run = Run::new(rules(mode));
        assert_eq!(run.verdict(5), Verdict::First);
        assert_eq!(run.verdict(6), Verdict::InOrder);
        assert_eq!(run.verdict(7), Verdict::InOrder);
        assert_eq!((run.last(), run.delivered.as_slice()), (7, &[5, 6, 7][..]), "{mode:?}");
        assert!(run.state().gaps.is_empty());
    }
}

/// ORD-2, ORD-3, ORD-4
#[test]
fn late_message_never_lowers_the_last_number() {
    for (mode, action) in [
        (Mode::Lenient, Action::Deliver),
        (Mode::Skip, Action::Skip),
        (Mode::Strict, Action::Refuse(Reason::OutOfOrder)),
        (Mode::Reorder, Action::Refuse(Reason::OutOfOrder)),
    ] {
        let mut run = Run::new(rules(mode));
        run.send(5, "m");
        let before = run.state.clone();
        run.now = run.now.plus(Duration::from_secs(60));
        let judged = run.send(3, "m");
        assert_eq!(judged.verdict, Verdict::Late { last: 5, was_missing: false }, "{mode:?}");
        assert_eq!((judged.action, judged.verdict.distance(3)), (action, 2), "{mode:?}");
        assert!(judged.verdict.is_violation());
        assert_eq!(run.state, before, "a late message renews nothing");
    }
}

/// ORD-4
#[test]
fn equal_number_is_duplicate_late_or_conflict() {
    for (mode, verdict, action) in [
        (Mode::Lenient, Verdict::Late { last: 5, was_missing: false }, Action::Deliver),
        (Mode::Skip, Verdict::Late { last: 5, was_missing: false }, Action::Skip),
        (Mode::Strict, Verdict::SequenceConflict { last: 5 }, Action::Refuse(Reason::SequenceConflict)),
        (Mode::Reorder, Verdict::SequenceConflict { last: 5 }, Action::Refuse(Reason::SequenceConflict)),
    ] {
        let mut run = Run::new(rules(mode));
        run.send(5, "m");
        let same = judge(run.state.clone(), &arrival(&id("m5"), 5), &run.rules, run.now);
        assert_eq!((same.verdict, same.action), (Verdict::Duplicate, Action::Duplicate), "{mode:?}");
        let other = run.send(5, "other");
        assert_eq!((other.verdict, other.action), (verdict, action), "{mode:?}");
        assert_eq!(run.last(), 5);
    }
}

/// ORD-4, CLM-1: the gateway never delivers a message that it calls a duplicate.
#[test]
fn same_id_alone_makes_no_duplicate() {
    const LATE: Action = Action::Refuse(Reason::OutOfOrder);
    const TAKEN: Action = Action::Refuse(Reason::SequenceConflict);
    for (mode, number, is_same, action) in [
        // The last message, at the same destination and at another one of the scope.
        (Mode::Strict, 5, true, Action::Duplicate),
        (Mode::Reorder, 5, true, Action::Duplicate),
        (Mode::Strict, 5, false, TAKEN),
        (Mode::Reorder, 5, false, TAKEN),
        (Mode::Lenient, 5, false, Action::Deliver),
        (Mode::Skip, 5, false, Action::Skip),
        // The same id with another number is judged by that number, even at the same destination: its claim
        // has expired.
        (Mode::Strict, 6, true, Action::Deliver),
        (Mode::Strict, 6, false, Action::Deliver),
        (Mode::Reorder, 6, false, Action::Deliver),
        (Mode::Reorder, 7, false, Action::Hold),
        (Mode::Lenient, 9, false, Action::Deliver),
        (Mode::Skip, 6, false, Action::Deliver),
        (Mode::Strict, 4, true, LATE),
        (Mode::Strict, 4, false, LATE),
        (Mode::Lenient, 4, false, Action::Deliver),
    ] {
        let mut run = Run::among("acme/bot:one", mode);
        run.send(5, "m");
        let again = id("m5");
        let among = Some(if is_same { "acme/bot:one" } else { "acme/bot:two" });
        let again = Arrival { among, ..arrival(&again, number) };
        let judged = judge(run.state.clone(), &again, &run.rules, run.now);
        assert_eq!(judged.action, action, "{mode:?} {number} {is_same}");
    }
    // The same for a message that waits.
    for (number, is_same, action) in [
        (8, true, Action::Duplicate),
        (8, false, TAKEN),
        (9, true, Action::Hold),
        (9, false, Action::Hold),
        (6, false, Action::Deliver),
    ] {
        let mut run = Run::among("acme/bot:one", Mode::Reorder);
        [5, 8].into_iter().for_each(|number| drop(run.send(number, "m")));
        let again = id("m8");
        let among = Some(if is_same { "acme/bot:one" } else { "acme/bot:two" });
        let again = Arrival { among, ..arrival(&again, number) };
        let judged = judge(run.state.clone(), &again, &run.rules, run.now);
        assert_eq!(judged.action, action, "{number} {is_same}");
    }
}

/// ORD-4, ORD-6: no count states more than the gateway knows.
#[test]
fn untracked_gaps_are_counted_apart() {
    let mut run = Run::new(rules(Mode::Lenient));
    (0..=40).for_each(|number| drop(run.send(2 * number, "m")));
    let known =
        |run: &Run| (run.state().gaps.open().len(), run.state().gaps.missing(), run.state().gaps.untracked());
    assert_eq!(known(&run), (32, 32, 8));
    // Numbers of forgotten gaps arrive, and change no count. Then those of tracked gaps arrive, and none is
    // missing.
    (0..8).for_each(|number| drop(run.send(2 * number + 1, "m")));
    assert_eq!(known(&run), (32, 32, 8));
    (8..40).for_each(|number| drop(run.send(2 * number + 1, "m")));
    assert_eq!(known(&run), (0, 0, 8));
}

fn with_order(route: &Route, order: &Option<Order>) -> Route {
    Route { order: order.clone().map(Box::new), ..route.clone() }
}

/// ORD-3, ORD-6: only leasing one at a time, the scope and the entity pointer determine the ordering keys.
#[test]
fn ordering_keys_change_with_scope_entity_or_mode() {
    let usual = OrderDefaults::default();
    let text = json!({"target": "acme/bot", "name": "build", "queue": "builds", "dead_letter_queue": "dead"});
    let plain: Route = serde_json::from_value(text).unwrap();
    let strict = Order { mode: Some(Mode::Strict), ..by_pointers() };
    let scoped = Order { scope: Some("builds".parse().unwrap()), ..strict.clone() };
    let is_same = |one: &Option<Order>, other: &Option<Order>, defaults: &OrderDefaults| {
        Lanes::of(&with_order(&plain, one), defaults) == Lanes::of(&with_order(&plain, other), defaults)
    };
    for (other, same) in [
        (Some(Order { mode: Some(Mode::Reorder), ..strict.clone() }), true),
        (Some(Order { ttl_seconds: Some(60), on_failure: OnFailure::Park, ..strict.clone() }), true),
        (Some(Order { number: Some(pointer("/n")), ..strict.clone() }), true),
        (Some(Order { mode: Some(Mode::Lenient), ..strict.clone() }), false),
        (Some(Order { mode: None, ..strict.clone() }), false),
        (Some(Order { enabled: Some(false), ..strict.clone() }), false),
        (Some(Order { entity: Some(pointer("/orderId")), ..strict.clone() }), false),
        (Some(scoped.clone()), false),
        (None, false),
    ] {
        assert_eq!(is_same(&Some(strict.clone()), &other, &usual), same, "{other:?}");
    }
    let by_default = Some(Order { mode: None, ..strict.clone() });
    assert!(is_same(&Some(strict), &by_default, &OrderDefaults { strict: true, ..usual }));
    // Without ordering keys, no setting changes them.
    let lenient = Order { mode: Some(Mode::Lenient), ..scoped };
    assert!(is_same(&None, &Some(lenient), &usual));
}

/// ORD-4
#[test]
fn applied_message_is_a_duplicate_however_late() {
    let mut run = Run::new(rules(Mode::Strict));
    (1..=9).for_each(|number| drop(run.send(number, "m")));
    for number in [1, 5, 9] {
        assert_eq!(run.verdict(number), Verdict::Duplicate);
    }
    // Even without a state of its entity: it does not begin the entity again.
    let first = id("m1");
    let applied = Arrival { applied: true, ..arrival(&first, 1) };
    let judged = judge(None, &applied, &run.rules, run.now);
    assert_eq!((judged.verdict, judged.state), (Verdict::Duplicate, None));
}

/// ORD-4
#[test]
fn gaps_are_measured_tracked_and_closed() {
    let mut run = Run::new(rules(Mode::Lenient));
    assert_eq!(run.verdict(2), Verdict::First);
    assert_eq!(run.verdict(5), Verdict::Gap { size: 2 });
    assert_eq!(run.verdict(9), Verdict::Gap { size: 3 });
    assert_eq!(run.state().gaps.open(), [Gap { from: 3, to: 4 }, Gap { from: 6, to: 8 }]);
    assert_eq!(run.verdict(7), Verdict::Late { last: 9, was_missing: true });
    assert_eq!(
        run.state().gaps.open(),
        [Gap { from: 3, to: 4 }, Gap { from: 6, to: 6 }, Gap { from: 8, to: 8 }]
    );
    assert_eq!(run.verdict(3), Verdict::Late { last: 9, was_missing: true });
    assert_eq!(run.state().gaps.missing(), 3);
    [4, 6, 8].into_iter().for_each(|number| drop(run.send(number, "m")));
    assert!(run.state().gaps.is_empty());
    assert_eq!(run.last(), 9);
    let farthest = run.send(i64::MAX, "m");
    assert_eq!(farthest.verdict, Verdict::Gap { size: i64::MAX as u64 - 10 });
    assert_eq!(run.verdict(0), Verdict::Late { last: i64::MAX, was_missing: false });
}

/// ORD-4
#[test]
fn strict_refuses_fillers_and_keeps_the_gap_open() {
    let mut run = Run::new(rules(Mode::Strict));
    [1, 4].into_iter().for_each(|number| drop(run.send(number, "m")));
    assert_eq!(run.verdict(2), Verdict::Late { last: 4, was_missing: true });
    assert_eq!(run.state().gaps.missing(), 2);
}

/// ORD-2
#[test]
fn entity_without_advance_expires() {
    let mut run = Run::new(Rules { ttl: Duration::from_secs(10), ..rules(Mode::Strict) });
    run.send(5, "m");
    run.now = run.now.plus(Duration::from_secs(9));
    run.send(4, "m");
    assert_eq!(run.verdict(6), Verdict::InOrder);
    run.now = run.now.plus(Duration::from_secs(9));
    assert_eq!(run.verdict(5), Verdict::Duplicate);
    run.now = run.now.plus(Duration::from_secs(1));
    assert_eq!(run.verdict(1), Verdict::First);
}

/// ORD-5
#[test]
fn completion_closes_entity_against_late_messages() {
    for mode in [Mode::Lenient, Mode::Skip, Mode::Strict, Mode::Reorder] {
        let mut run = Run::new(rules(mode));
        run.completions.insert(3);
        [1, 2].into_iter().for_each(|number| drop(run.send(number, "m")));
        let judged = run.send(3, "m");
        assert!(judged.closes && run.state().closed && run.state().gaps.is_empty(), "{mode:?}");
        let late = run.send(1, "other");
        assert_eq!(late.verdict, Verdict::Late { last: 3, was_missing: false }, "{mode:?}");
        // A message above the completion is not late: the entity goes on.
        assert_eq!(run.verdict(4), Verdict::InOrder, "{mode:?}");
        assert!(!run.state().closed);
    }
    // A completion behind a gap, and one as the very first message.
    let mut run = Run::new(rules(Mode::Lenient));
    run.completions.insert(7);
    [1, 7].into_iter().for_each(|number| drop(run.send(number, "m")));
    assert!(run.state().closed && run.state().gaps.is_empty());
    let mut run = Run::new(rules(Mode::Lenient));
    run.completions.insert(7);
    assert!(run.send(7, "m").closes && run.state().closed);
    assert_eq!(run.verdict(1), Verdict::Late { last: 7, was_missing: false });
    // A late completion closes the entity in modes that process late messages, and only in those.
    for (mode, closes) in [(Mode::Lenient, true), (Mode::Skip, false), (Mode::Strict, false)] {
        let mut run = Run::new(rules(mode));
        run.completions.insert(2);
        [1, 3].into_iter().for_each(|number| drop(run.send(number, "m")));
        assert_eq!(run.send(2, "m").closes, closes, "{mode:?}");
        assert_eq!((run.state().closed, run.last()), (closes, 3), "{mode:?}");
    }
}

/// ORD-3
#[test]
fn reorder_holds_messages_until_the_gap_fills() {
    let mut run = Run::new(rules(Mode::Reorder));
    run.send(1, "m");
    let held = run.send(3, "m");
    let until = NOW.plus(run.rules.wait);
    assert_eq!((held.verdict, held.action), (Verdict::Waits { until }, Action::Hold));
    assert_eq!((run.state().last, run.state().wait_ends_at()), (1, Some(until)));
    run.send(4, "m");
    run.send(6, "m");
    let again = judge(run.state.clone(), &arrival(&id("m4"), 4), &run.rules, run.now);
    assert_eq!(again.verdict, Verdict::Duplicate, "it waits already");
    assert_eq!(again.state, run.state);
    // ORD-8: the last number differs from the number of the waiting message.
    let taken = run.send(4, "other");
    assert_eq!(taken.action, Action::Refuse(Reason::SequenceConflict));
    assert_eq!((taken.verdict, taken.verdict.distance(4)), (Verdict::SequenceConflict { last: 1 }, 3));
    let filling = run.send(2, "m");
    assert_eq!(filling.verdict, Verdict::InOrder);
    assert_eq!(filling.after.iter().map(|message| message.number).collect::<Vec<_>>(), [3, 4]);
    assert_eq!((run.delivered.as_slice(), run.last()), (&[1, 2, 3, 4][..], 4));
    assert!(run.state().gaps.is_empty());
    assert_eq!(run.state().waiting.len(), 1);
}

/// ORD-3
#[test]
fn expired_wait_releases_in_order_and_records_the_gap() {
    let mut run = Run::new(Rules { wait: Duration::from_secs(10), ..rules(Mode::Reorder) });
    run.send(1, "m");
    run.send(5, "m");
    run.pass(5);
    run.send(4, "m");
    run.send(8, "m");
    run.pass(4);
    assert_eq!(run.delivered, [1]);
    // Message 5 arrived first and has waited long enough. Message 4 below it goes first; 8 above it still
    // waits.
    run.pass(1);
    assert_eq!(run.delivered, [1, 4, 5]);
    assert_eq!(run.state().gaps.open(), [Gap { from: 2, to: 3 }]);
    let late = run.send(3, "m");
    assert_eq!(late.verdict, Verdict::Late { last: 5, was_missing: true });
    assert_eq!(late.action, Action::Refuse(Reason::OutOfOrder));
    run.pass(5);
    assert_eq!((run.delivered.as_slice(), run.held.len()), (&[1, 4, 5, 8][..], 0));
    assert_eq!(run.state().gaps.missing(), 4);
}

/// ORD-3
#[test]
fn expired_wait_ends_before_the_next_judgement() {
    let mut run = Run::new(Rules { wait: Duration::from_secs(10), ..rules(Mode::Reorder) });
    run.send(1, "m");
    run.send(3, "m");
    run.now = run.now.plus(Duration::from_secs(10));
    let judged = run.send(2, "m");
    assert_eq!(judged.before, [Released { number: 3, id: id("m3"), gap: 1 }]);
    assert_eq!(judged.action, Action::Refuse(Reason::OutOfOrder));
    assert_eq!(run.delivered, [1, 3]);
}

/// ORD-3
#[test]
fn excess_waiting_messages_release_the_lowest() {
    let mut run = Run::new(Rules { waiting_max: 2, ..rules(Mode::Reorder) });
    [1, 5, 9].into_iter().for_each(|number| drop(run.send(number, "m")));
    // The new message is above all others: the lowest one is released.
    let judged = run.send(12, "m");
    assert_eq!(judged.before, [Released { number: 5, id: id("m5"), gap: 3 }]);
    assert_eq!(judged.action, Action::Hold);
    // The new message is the lowest: it is delivered itself, followed by the message that waited directly
    // behind it.
    let judged = run.send(8, "m");
    assert_eq!((judged.verdict, judged.action), (Verdict::Gap { size: 2 }, Action::Deliver));
    assert_eq!(judged.after, [Released { number: 9, id: id("m9"), gap: 0 }]);
    assert_eq!(run.delivered, [1, 5, 8, 9]);
    // The new message follows the lowest ones directly: all are delivered.
    let mut run = Run::new(Rules { waiting_max: 2, ..rules(Mode::Reorder) });
    [1, 5, 6].into_iter().for_each(|number| drop(run.send(number, "m")));
    let judged = run.send(7, "m");
    assert_eq!((judged.verdict, judged.action), (Verdict::InOrder, Action::Deliver));
    assert_eq!(run.delivered, [1, 5, 6, 7]);
}

/// ORD-3, ORD-5
#[test]
fn waiting_messages_are_never_lost() {
    // When the route no longer reorders,
    let mut run = Run::new(rules(Mode::Reorder));
    [1, 5, 7].into_iter().for_each(|number| drop(run.send(number, "m")));
    run.rules = rules(Mode::Strict);
    assert_eq!(run.send(6, "m").action, Action::Refuse(Reason::OutOfOrder));
    assert_eq!(run.delivered, [1, 5, 7]);
    // when the state of the entity would expire,
    let short = Rules { ttl: Duration::from_secs(5), wait: Duration::from_secs(10), ..rules(Mode::Reorder) };
    let mut run = Run::new(short);
    [1, 5].into_iter().for_each(|number| drop(run.send(number, "m")));
    run.now = run.now.plus(Duration::from_secs(9));
    assert_eq!(run.verdict(2), Verdict::InOrder);
    run.pass(1);
    assert_eq!(run.delivered, [1, 2, 5]);
    // when a person resets the entity,
    let mut run = Run::new(rules(Mode::Reorder));
    [1, 5, 3].into_iter().for_each(|number| drop(run.send(number, "m")));
    let released = run.state.take().unwrap().reset();
    assert_eq!(released.iter().map(|message| message.number).collect::<Vec<_>>(), [3, 5]);
    // and when a completion before it closes the entity.
    let mut run = Run::new(rules(Mode::Reorder));
    run.completions.insert(3);
    [1, 3, 4, 6].into_iter().for_each(|number| drop(run.send(number, "m")));
    run.send(2, "m");
    assert_eq!(run.delivered, [1, 2, 3, 4]);
    run.pass(30);
    assert_eq!(run.delivered, [1, 2, 3, 4, 6]);
}

fn fail_message(
    state: Option<EntityState>,
    number: i64,
    rules: &Rules,
) -> (Option<EntityState>, AfterFailure) {
    EntityState::failed(state, number, NumberKind::Sequence, &id(&format!("m{number}")), rules, NOW)
}

/// ORD-7
#[test]
fn entity_is_parked_until_failure_is_fixed_or_skipped() {
    let goes_on = rules(Mode::Strict);
    let parks = Rules { on_failure: OnFailure::Park, ..goes_on };
    let mut run = Run::new(parks);
    (1..=3).for_each(|number| drop(run.send(number, "m")));
    let (state, after) = fail_message(run.state.clone(), 2, &goes_on);
    assert_eq!((state, after), (run.state.clone(), AfterFailure::GoesOn));
    let (state, after) = fail_message(run.state.take(), 2, &parks);
    assert_eq!(after, AfterFailure::Parks);
    let state = state.unwrap();
    for (number, is_held) in [(1, false), (2, false), (3, true), (4, true)] {
        assert_eq!(state.holds_back(number), is_held, "{number}");
    }
    // Later messages are accepted and judged as usual, however long the entity is parked.
    run.state = Some(state);
    run.now = run.now.plus(Duration::from_secs(30 * 86_400));
    assert_eq!(run.verdict(4), Verdict::InOrder);
    let state = run.state.take().unwrap();
    assert_eq!(state.clone().unparked(3, &parks, run.now), Err(NotParked));
    let state = state.unparked(2, &parks, run.now).unwrap();
    assert!(!state.holds_back(3) && state.last == 4);
    assert_eq!(state.unparked(2, &parks, run.now), Err(NotParked));
    // An entity without a state is parked as well.
    let (state, after) = fail_message(None, 2, &parks);
    assert_eq!(after, AfterFailure::Parks);
    assert!(state.unwrap().holds_back(3));
}

/// ORD-7: messages that fail while the entity is parked park it again after the first one is fixed.
#[test]
fn entity_is_parked_at_its_lowest_failure() {
    let parks = Rules { on_failure: OnFailure::Park, ..rules(Mode::Strict) };
    let fail = |state, number| fail_message(state, number, &parks).0;
    let state = [4, 1, 6, 4].into_iter().fold(None, fail).unwrap();
    assert_eq!(state.parked_at(), Some(1));
    let state = state.unparked(1, &parks, NOW).unwrap();
    assert_eq!(state.parked_at(), Some(4));
    // A person may settle a later failure first.
    let state = state.unparked(6, &parks, NOW).unwrap();
    assert_eq!(state.unparked(4, &parks, NOW).unwrap().parked_at(), None);
    // Past the tracking limit, the highest failure still parks later messages.
    let most = i64::try_from(bounds::ORDER_FAILED_MAX).unwrap();
    let state = (1..=most + 20).fold(None, fail).unwrap();
    assert_eq!(state.failed.len(), bounds::ORDER_FAILED_MAX);
    assert_eq!((state.failed[0], state.failed.last()), (1, Some(&(most + 20))));
}

fn text(state: &EntityState) -> String {
    serde_json::to_string(state).unwrap()
}

fn stored(text: &str) -> Option<EntityState> {
    serde_json::from_str(text).ok()
}

/// ORD-2, ORD-6
#[test]
fn stored_entity_is_read_back() {
    let mut run = Run::new(rules(Mode::Reorder));
    run.completions.insert(7);
    [1, 5, 7].into_iter().for_each(|number| drop(run.send(number, "m")));
    run.pass(30);
    run.send(12, "m");
    let state = EntityState { failed: vec![5, 9], ..run.state().clone() };
    assert_eq!(stored(&text(&state)), Some(state.clone()));
    let record = EntityRecord { state, rules: rules(Mode::Reorder) };
    assert_eq!(EntityRecord::stored(&record.to_text()), Some(record));
    let key =
        EntityKey { tenant: "acme".parse().unwrap(), scope: "acme/bot:pay".into(), entity: "a b  c".into() };
    assert_eq!(EntityKey::stored(&key.to_text()), Some(key.clone()));
    assert_eq!(key.owner(), "acme");
    let plain =
        EntityState { waiting: Vec::new(), closed: false, gaps: Gaps::default(), ..run.state().clone() };
    assert_eq!(text(&plain), r#"{"last":7,"last_id":"m7","kind":"sequence","expires_at":1794817830000}"#);
    for other in ["", "{}", r#"{"last":7,"last_id":"m7","kind":"sequence","expires_at":1,"x":1}"#] {
        assert_eq!(stored(other), None, "{other}");
    }
}

fn is_bounded(run: &Run) -> bool {
    run.state.as_ref().is_none_or(|state| {
        state.gaps.open().len() <= bounds::ORDER_GAPS_MAX && state.waiting.len() <= run.rules.waiting_max
    })
}

fn is_rising(numbers: &[i64]) -> bool {
    numbers.windows(2).all(|pair| pair[0] < pair[1])
}

/// Permutations, duplicates, losses, numbers shared by two messages, and pauses between messages.
fn traffic() -> impl Strategy<Value = Vec<(i64, &'static str, u64)>> {
    let name = prop_oneof![9 => Just("m"), 1 => Just("other")];
    proptest::collection::vec((0..40i64, name, prop_oneof![3 => Just(0), 1 => 1..6u64]), 1..120)
}

proptest! {
    /// ORD-3, ORD-4
    #[test]
    fn strict_delivers_rising_numbers_only(traffic in traffic()) {
        let mut run = Run::new(rules(Mode::Strict));
        for (number, name, pause) in traffic {
            run.pass(pause);
            let highest = run.delivered.last().copied();
            let is_known = run.applied.contains(&format!("{name}{number}"));
            let judged = run.send(number, name);
            let expected = match highest {
                _ if is_known => Action::Duplicate,
                Some(highest) if number == highest => Action::Refuse(Reason::SequenceConflict),
                Some(highest) if number < highest => Action::Refuse(Reason::OutOfOrder),
                _ => Action::Deliver,
            };
            prop_assert_eq!(judged.action, expected);
            prop_assert!(is_rising(&run.delivered) && is_bounded(&run));
        }
    }

    /// ORD-3, ORD-4
    #[test]
    fn lenient_delivers_all_and_counts_correctly(traffic in traffic()) {
        let mut run = Run::new(rules(Mode::Lenient));
        let (mut late, mut gaps) = (0, 0);
        let (mut expected_late, mut expected_gaps) = (0, 0);
        for (number, name, pause) in traffic {
            run.pass(pause);
            let highest = run.delivered.iter().max().copied();
            let is_known = run.applied.contains(&format!("{name}{number}"));
            let judged = run.send(number, name);
            prop_assert_eq!(judged.action, if is_known { Action::Duplicate } else { Action::Deliver });
            late += u32::from(judged.verdict.is_violation());
            gaps += u64::from(matches!(judged.verdict, Verdict::Gap { .. }));
            if let Some(highest) = highest.filter(|_| !is_known) {
                expected_late += u32::from(number <= highest);
                expected_gaps += u64::from(number > highest + 1);
            }
            let (first, highest) = (run.delivered[0], *run.delivered.iter().max().unwrap());
            let missing = (first..highest).filter(|number| !run.delivered.contains(number)).count() as u64;
            prop_assert_eq!(run.state().gaps.missing(), missing);
            prop_assert_eq!(run.last(), highest);
            prop_assert!(is_bounded(&run));
        }
        prop_assert_eq!((late, gaps), (expected_late, expected_gaps));
    }

    /// ORD-3
    #[test]
    fn skip_delivers_exactly_the_rising_numbers(traffic in traffic()) {
        let mut run = Run::new(rules(Mode::Skip));
        for (number, name, pause) in traffic {
            run.pass(pause);
            let highest = run.delivered.last().copied();
            let is_known = run.applied.contains(&format!("{name}{number}"));
            let judged = run.send(number, name);
            let is_late = highest.is_some_and(|highest| number <= highest);
            // The claim of a skipped message knows it too; this test judges it again.
            let expected = if is_known { Action::Duplicate } else if is_late { Action::Skip } else { Action::Deliver };
            prop_assert_eq!(judged.action, expected);
            prop_assert!(is_rising(&run.delivered) && is_bounded(&run));
        }
    }

    /// ORD-3, ORD-4
    #[test]
    fn reorder_delivers_all_it_accepted_in_order(traffic in traffic(), waiting_max in 1..12usize, wait in 1..8u64) {
        let wait = Duration::from_secs(wait);
        let mut run = Run::new(Rules { waiting_max, wait, ..rules(Mode::Reorder) });
        let mut taken = BTreeSet::new();
        for (number, name, pause) in traffic {
            run.pass(pause);
            let judged = run.send(number, name);
            if matches!(judged.action, Action::Deliver | Action::Hold) {
                prop_assert!(taken.insert(number));
            }
            prop_assert!(is_rising(&run.delivered) && is_bounded(&run));
        }
        run.pass(8);
        prop_assert!(run.held.is_empty() && is_rising(&run.delivered));
        prop_assert_eq!(run.delivered.iter().copied().collect::<BTreeSet<_>>(), taken);
    }

    /// ORD-3
    #[test]
    fn reorder_refuses_nothing_within_its_bounds(
        shifts in proptest::collection::vec(0..8usize, 1..80),
        repeats in proptest::collection::vec(any::<bool>(), 80),
    ) {
        let mut run = Run::new(Rules { waiting_max: 8, ..rules(Mode::Reorder) });
        run.send(0, "m");
        // Every message arrives at most eight places away from its own.
        let mut order: Vec<_> = shifts.iter().enumerate().map(|(place, shift)| (place + shift, place)).collect();
        order.sort_unstable();
        for (place, (_, number)) in order.iter().enumerate() {
            let number = i64::try_from(*number).unwrap() + 1;
            let judged = run.send(number, "m");
            prop_assert!(matches!(judged.action, Action::Deliver | Action::Hold), "{:?}", judged);
            if repeats[place] {
                prop_assert_eq!(run.send(number, "m").action, Action::Duplicate);
            }
        }
        let all: Vec<_> = (0..=i64::try_from(shifts.len()).unwrap()).collect();
        prop_assert_eq!(&run.delivered, &all);
        prop_assert!(run.state().gaps.is_empty());
    }

    /// ORD-2, QUA-4
    #[test]
    fn state_stays_bounded_under_any_traffic(
        numbers in proptest::collection::vec(prop_oneof![0..200i64, 0..=i64::MAX, Just(i64::MAX)], 1..400),
        mode in prop_oneof![Just(Mode::Lenient), Just(Mode::Skip), Just(Mode::Strict), Just(Mode::Reorder)],
    ) {
        let mut run = Run::new(rules(mode));
        for number in numbers {
            run.send(number, "m");
            prop_assert!(is_bounded(&run));
            prop_assert!(stored(&text(run.state())).is_some());
        }
    }
}
