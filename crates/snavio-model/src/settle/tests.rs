use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::claim::conflict::Conflict;
use crate::claim::{ClaimPolicy, IdKey, Original, Status};
use crate::delivery::processing::{Attempts, Processing, ProcessingKind};
use crate::delivery::{DeadLetter, DeadReason, Delivery};
use crate::hash::DomainHash;
use crate::id::{MessageId, Serial};
use crate::message::Path;
use crate::message::trace::{CorrelationId, Traceparent};
use crate::name::{QueueName, ServiceName, TenantName};
use crate::registry::{Acl, DispatchMode, Profile, Route};

mod conflicting;
mod known;

const KEEP_SECONDS: u32 = 300;

fn at(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1000)
}

fn route(name: &str, claim: ClaimPolicy) -> Arc<BoundRoute> {
    Arc::new(BoundRoute::new(Route {
        target: "acme/bot".parse().unwrap(),
        name: name.parse().unwrap(),
        events_of: None,
        queue: QueueName::new(name).unwrap(),
        dead_letter_queue: QueueName::new("dead").unwrap(),
        claim,
        dispatch: DispatchMode::Adaptive,
        profile: Profile::Moderate,
        processing: Default::default(),
        receives_max: 5,
        expected_drain_seconds: 300,
        order: None,
        acl: Acl::Cached,
        expires_at: None,
        disabled: None,
    }))
}

fn pay() -> Arc<BoundRoute> {
    route("pay", ClaimPolicy::Strict { keep_seconds: KEEP_SECONDS })
}

fn refund() -> Arc<BoundRoute> {
    route("refund", ClaimPolicy::Strict { keep_seconds: 2 * KEEP_SECONDS })
}

fn notify() -> Arc<BoundRoute> {
    route("notify", ClaimPolicy::None)
}

pub(super) fn intake(source: &str, id: u8, destinations: &[Arc<BoundRoute>]) -> Intake {
    let source: ServiceName = source.parse().unwrap();
    let message = Message {
        tenant: TenantName::new(source.tenant()).unwrap(),
        id: MessageId::stored(&format!("id-{id}")),
        source,
        target: "acme/bot".parse().unwrap(),
        name: "pay".parse().unwrap(),
        signed_target: "acme/bot".into(),
        sent_at: "2026-11-15T08:30:00Z".into(),
        key_version: "hmac-v1".parse().ok(),
        signature: "ab".into(),
        correlation: CorrelationId::from_random([1; 16]),
        traceparent: Traceparent::from_random([1; 24]),
        received_at: at(0),
        registry_version: 1,
        domain_hash: DomainHash([0; 32]),
        payload: Bytes::from_static(b"{}"),
        event: None,
    };
    let (places, known, good_until) = (Vec::new(), Vec::new(), Timestamp(i64::MAX));
    Intake { message, path: Path::Slow, destinations: destinations.to_vec(), places, known, good_until }
}

/// A backend in memory: it loads, judges, and keeps the writes.
struct Backend {
    claims: HashMap<ClaimKey, Claim>,
    queued: HashMap<QueueKey, usize>,
    depth_max: usize,
    last: Serial,
    messages: Vec<Serial>,
    deliveries: Vec<Delivery>,
    originals: HashMap<IdKey, Original>,
    conflicts: Vec<Conflict>,
    letters: Vec<DeadLetter>,
}

impl Backend {
    fn new() -> Self {
        Self::of_depth(usize::MAX)
    }

    fn of_depth(depth_max: usize) -> Self {
        Self {
            claims: HashMap::new(),
            queued: HashMap::new(),
            depth_max,
            last: Serial(100),
            messages: Vec::new(),
            deliveries: Vec::new(),
            originals: HashMap::new(),
            conflicts: Vec::new(),
            letters: Vec::new(),
        }
    }

    /// Settles messages that were received just now.
    fn settle(&mut self, batch: &[Intake], now: Timestamp) -> Vec<Settlement> {
        self.settle_after(Duration::ZERO, batch, now)
    }

    /// Settles messages that have waited for this long.
    fn settle_after(&mut self, waited: Duration, batch: &[Intake], now: Timestamp) -> Vec<Settlement> {
        let mut batch = batch.to_vec();
        batch.iter_mut().for_each(|intake| intake.message.received_at = now.minus(waited));
        let mut working = Working::after(self.last);
        for intake in &batch {
            for key in keys(intake) {
                working.claims.extend(self.claims.get(&key).map(|claim| (key.clone(), claim.clone())));
            }
            if let Some(key) = id_key(intake) {
                let known = self.originals.get(&key).cloned();
                let known = known.map(|original| Some(Known { original, is_new: false }));
                working.originals.extend(known.map(|known| (key, known)));
            }
            for route in &intake.destinations {
                let room = self.depth_max - self.queued.get(&route.queue).unwrap_or(&0);
                working.room.insert(route.queue.clone(), room);
            }
        }
        for key in disputed(&batch, &working.originals) {
            let of_id =
                self.conflicts.iter().filter(|other| other.event_id == key.id && other.tenant == key.tenant);
            let recorded = of_id.map(|other| {
                let (conflict, place, dispute) = (other.id, other.place, Some(other.dispute()));
                Recorded { conflict, place, dispute, new: None }
            });
            let recorded = recorded.collect();
            working.conflicts.insert(key, recorded);
        }
        let mut delta = Delta::default();
        let judged = batch
            .iter()
            .enumerate()
            .map(|(place, intake)| judge(&mut working, intake, place, now, &mut delta))
            .collect();
        self.last = working.last;
        self.claims.extend(delta.claims);
        self.originals.extend(delta.originals);
        self.originals.extend(delta.lengthened);
        for NewConflict { conflict, letter, .. } in delta.conflicts {
            self.conflicts.push(conflict);
            self.letters.push(letter);
        }
        for repeat in delta.repeats {
            self.conflicts.iter_mut().find(|conflict| conflict.id == repeat).unwrap().count += 1;
        }
        self.letters.extend(delta.letters);
        self.messages.extend(delta.messages.iter().map(|(number, _)| *number));
        for delivery in &delta.deliveries {
            *self.queued.entry(delivery.queue.clone()).or_default() += 1;
        }
        self.deliveries.extend(delta.deliveries);
        judged
    }

    /// Settles a batch, and returns the outcomes as words.
    fn outcomes(&mut self, batch: &[Intake], now: Timestamp) -> Vec<Vec<&'static str>> {
        let settled = self.settle(batch, now).into_iter();
        settled.map(|settlement| settlement.outcomes.iter().map(word).collect()).collect()
    }
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Queued { .. } => "queued",
        Outcome::Held { .. } => "held",
        Outcome::Parked { .. } => "parked",
        Outcome::Skipped => "skipped",
        Outcome::OutOfOrder { .. } => "out_of_order",
        Outcome::Duplicate { .. } => "duplicate",
        Outcome::Taken => "taken",
        Outcome::Conflict { .. } => "conflict",
        Outcome::QueueFull => "full",
        Outcome::Buried { .. } => "buried",
        Outcome::Unreadable => "unreadable",
        Outcome::TooLate => "too late",
        Outcome::Unfit => "unfit",
        Outcome::Outdated => "outdated",
        Outcome::Seen { .. } => "seen",
    }
}

/// REG-15
#[test]
fn permission_must_be_current_at_the_commit() {
    let always = Arc::new(BoundRoute::new(Route { acl: Acl::Always, ..pay().route.clone() }));
    let judged = |route: &Arc<BoundRoute>, now, registry_version| {
        let intake = Intake { good_until: at(5), ..intake("acme/billing", 1, std::slice::from_ref(route)) };
        let mut working = Working::after(Serial(0));
        working.registry_version = registry_version;
        let mut delta = Delta::default();
        let settlement = judge(&mut working, &intake, 0, now, &mut delta);
        (word(&settlement.outcomes[0]), delta.is_empty())
    };
    for (route, now, version, outcome) in [
        (pay(), at(4), None, "queued"),
        (pay(), at(5), None, "outdated"),
        (always.clone(), at(4), Some(1), "queued"),
        (always.clone(), at(4), Some(2), "outdated"),
        (always.clone(), at(4), None, "outdated"),
        (always, at(5), Some(1), "outdated"),
    ] {
        assert_eq!(judged(&route, now, version), (outcome, outcome == "outdated"));
    }
}

/// CLM-4
#[test]
fn first_of_an_id_in_a_batch_wins() {
    let mut backend = Backend::new();
    let batch = [1, 2, 1, 1, 2].map(|id| intake("acme/billing", id, &[pay()]));
    let outcomes = backend.outcomes(&batch, at(0)).concat();
    assert_eq!(outcomes, ["queued", "queued", "duplicate", "duplicate", "duplicate"]);
    assert_eq!((backend.messages.len(), backend.deliveries.len(), backend.claims.len()), (2, 2, 2));
}

/// CLM-4
#[test]
fn duplicate_returns_first_seen_time_and_writes_nothing() {
    let mut backend = Backend::new();
    backend.settle(&[intake("acme/billing", 1, &[pay()])], at(7));
    let before = backend.last;
    let again = backend.settle(&[intake("acme/billing", 1, &[pay()])], at(9));
    assert_eq!(again[0].outcomes, [Outcome::Duplicate { first_seen_at: at(7) }]);
    assert_eq!((again[0].message, backend.last), (None, before), "no number is used up");
}

/// CLM-19
#[test]
fn claim_ends_by_time_even_if_its_row_remains() {
    let keep = i64::from(KEEP_SECONDS);
    let mut backend = Backend::new();
    for (now, outcome) in [(0, "queued"), (keep - 1, "duplicate"), (keep, "queued"), (keep + 1, "duplicate")]
    {
        assert_eq!(backend.outcomes(&[intake("acme/billing", 1, &[pay()])], at(now)).concat(), [outcome]);
    }
    let claim = backend.claims.values().next().unwrap();
    assert_eq!((claim.first_seen_at, claim.expires_at), (at(keep), at(2 * keep)), "replaced, not kept");
}

/// CLM-3
#[test]
fn route_without_claims_accepts_every_repeat() {
    let mut backend = Backend::new();
    let batch = [1, 1, 1].map(|id| intake("acme/billing", id, &[notify()]));
    assert_eq!(backend.outcomes(&batch, at(0)).concat(), ["queued"; 3]);
    assert!(backend.claims.is_empty());
    assert_eq!(keys(&batch[0]).count(), 0, "nothing is asked of the store");
}

/// CLM-1
#[test]
fn claim_belongs_to_tenant_and_names_its_service() {
    let mut backend = Backend::new();
    let batch = ["acme/billing", "acme/shop", "zeta/billing", "acme/billing", "zeta/billing"]
        .map(|source| intake(source, 1, &[pay()]));
    let outcomes = backend.outcomes(&batch, at(0)).concat();
    assert_eq!(outcomes, ["queued", "taken", "queued", "duplicate", "duplicate"]);
    let late = backend.outcomes(&[intake("acme/shop", 1, &[pay()])], at(i64::from(KEEP_SECONDS)));
    assert_eq!(late.concat(), ["queued"], "any service of the tenant can use an id after its claim expires");
}

/// CLM-1, PIP-13
#[test]
fn each_destination_has_its_own_claim_and_delivery() {
    let mut backend = Backend::new();
    backend.settle(&[intake("acme/billing", 1, &[pay()])], at(0));
    let outcomes = backend.outcomes(&[intake("acme/billing", 1, &[pay(), refund(), notify()])], at(1));
    assert_eq!(outcomes, [["duplicate", "queued", "queued"]]);
    assert_eq!(backend.messages.len(), 2, "written once for all of its destinations");
    let of_second: Vec<_> =
        backend.deliveries[1..].iter().map(|delivery| (delivery.message, delivery.queue.as_str())).collect();
    let number = backend.messages[1];
    assert_eq!(of_second, [(number, "acme/refund"), (number, "acme/notify")]);
}

/// PIP-4
#[test]
fn full_queue_leaves_no_claim_and_no_message() {
    let mut backend = Backend::of_depth(1);
    let batch = [1, 2].map(|id| intake("acme/billing", id, &[pay()]));
    assert_eq!(backend.outcomes(&batch, at(0)).concat(), ["queued", "full"]);
    assert_eq!((backend.claims.len(), backend.messages.len()), (1, 1));
    backend.queued.clear();
    assert_eq!(backend.outcomes(&batch, at(1)).concat(), ["duplicate", "queued"], "judged again");
}

/// PIP-13: if other destinations accepted the event, a full queue makes a dead letter. The event is refused
/// only if no destination newly accepts it.
#[test]
fn full_queue_among_several_gets_a_dead_letter() {
    let mut backend = Backend::of_depth(1);
    backend.settle(&[intake("acme/billing", 1, &[pay()])], at(0));
    let event = intake("acme/billing", 2, &[pay(), refund()]);
    assert_eq!(backend.outcomes(std::slice::from_ref(&event), at(0)), [["buried", "queued"]]);
    let letter = &backend.letters[0];
    assert_eq!((letter.reason, letter.delivery.queue.as_str()), (DeadReason::QueueFull, "acme/pay"));
    assert_eq!(letter.delivery.message, backend.messages[1], "its message is stored");
    assert_eq!(backend.outcomes(&[event], at(1)), [["duplicate", "duplicate"]]);
    let nobody = intake("acme/billing", 3, &[pay(), refund()]);
    assert_eq!(backend.outcomes(&[nobody], at(1)), [["full", "full"]]);
    let taken_before = intake("acme/billing", 1, &[pay(), refund()]);
    assert_eq!(backend.outcomes(&[taken_before], at(1)), [["duplicate", "buried"]]);
    assert_eq!((backend.messages.len(), backend.letters.len()), (3, 2));
}

/// PIP-13, CLM-6: work that a full queue did not accept has failed for good, until a redrive.
#[test]
fn work_refused_by_a_full_queue_has_failed() {
    let mut backend = Backend::of_depth(1);
    let tracked = {
        let mut route = pay().route.clone();
        route.processing = Processing::of(ProcessingKind::Tracked);
        Arc::new(BoundRoute::new(route))
    };
    backend.settle(&[intake("acme/billing", 1, &[Arc::clone(&tracked)])], at(0));
    let settled = backend.settle(&[intake("acme/billing", 2, &[tracked, refund()])], at(0));
    let key = backend.claims.keys().find(|key| key.id.as_str() == "id-2" && key.destination.ends_with("pay"));
    let progress = backend.claims[key.unwrap()].progress.clone().unwrap();
    assert_eq!(progress.status, Status::Failed { is_final: true });
    assert_eq!(
        settled[0].outcomes[0],
        Outcome::Buried { delivery: progress.delivery, reason: DeadReason::QueueFull }
    );
}

/// PIP-13: either all destinations accept the message, or none does.
#[test]
fn event_unreadable_at_one_destination_is_refused() {
    let mut working = Working::after(Serial(0));
    let event = intake("acme/billing", 1, &[pay(), refund()]);
    working.unreadable.extend(keys(&event).take(1));
    let mut delta = Delta::default();
    let settled = judge(&mut working, &event, 0, at(0), &mut delta);
    assert_eq!(settled.outcomes, [Outcome::Unreadable; 2]);
    assert!(delta.is_empty() && delta.claims.is_empty() && delta.deliveries.is_empty());
}

/// QUA-1
#[test]
fn damaged_claim_refuses_its_own_id_only() {
    let mut working = Working::after(Serial(0));
    let (damaged, whole) = (intake("acme/billing", 1, &[pay()]), intake("acme/billing", 2, &[pay()]));
    working.unreadable.extend(keys(&damaged));
    let mut delta = Delta::default();
    let outcome = judge(&mut working, &damaged, 0, at(0), &mut delta).outcomes;
    assert_eq!(outcome, [Outcome::Unreadable]);
    assert!(delta.is_empty() && delta.claims.is_empty() && delta.deliveries.is_empty());
    assert!(matches!(
        judge(&mut working, &whole, 1, at(0), &mut delta).outcomes[..],
        [Outcome::Queued { .. }]
    ));
}

/// CLM-20
#[test]
fn message_waiting_past_the_slack_is_refused() {
    let slack = bounds::CLAIM_KEEP_SLACK;
    let moment = Duration::from_millis(1);
    for (waited, destination, outcome) in [
        (Duration::ZERO, pay(), "queued"),
        (slack - moment, pay(), "queued"),
        (slack, pay(), "too late"),
        (slack + moment, pay(), "too late"),
        (2 * slack, notify(), "queued"),
    ] {
        let mut backend = Backend::new();
        let settled = backend.settle_after(waited, &[intake("acme/billing", 1, &[destination])], at(1000));
        assert_eq!(word(&settled[0].outcomes[0]), outcome, "{waited:?}");
        let written = (backend.messages.len(), backend.deliveries.len());
        assert_eq!(written, if outcome == "queued" { (1, 1) } else { (0, 0) }, "{waited:?}");
        assert!(outcome == "queued" || backend.claims.is_empty(), "{waited:?}");
    }
    let mut backend = Backend::new();
    backend.settle(&[intake("acme/billing", 1, &[pay()])], at(0));
    let late = backend.settle_after(slack, &[intake("acme/billing", 1, &[pay()])], at(60));
    assert_eq!(late[0].outcomes, [Outcome::Duplicate { first_seen_at: at(0) }], "its claim still exists");
    let both = backend.settle_after(slack, &[intake("acme/billing", 2, &[pay(), notify()])], at(60));
    assert_eq!(both[0].outcomes, [Outcome::TooLate; 2], "all destinations accept it, or none does");
}

/// CLM-20: the first message comes as early as possible and its copy as late as possible, and both wait as
/// long as possible.
#[test]
fn shortest_claim_outlasts_every_copy() {
    let window = Duration::from_secs(60);
    let keep = 2 * window + bounds::CLAIM_KEEP_SLACK;
    let keep_seconds = u32::try_from(keep.as_secs()).unwrap();
    let claim = ClaimPolicy::Strict { keep_seconds };
    assert_eq!(claim.problem(window, Attempts::default()), None);
    let batch = [intake("acme/billing", 1, &[route("pay", claim)])];
    let mut backend = Backend::new();
    let signed_at = at(1000);
    backend.settle(&batch, signed_at.minus(window));
    for waited in (0..=bounds::CLAIM_KEEP_SLACK.as_secs() + 1).map(Duration::from_secs) {
        let copy = backend.settle_after(waited, &batch, signed_at.plus(window + waited));
        assert!(!matches!(copy[0].outcomes[0], Outcome::Queued { .. }), "{waited:?}: {copy:?}");
    }
}

/// One message of a generated history.
#[derive(Debug, Clone)]
struct Sent {
    source: &'static str,
    id: u8,
    routes: Vec<usize>,
}

impl Sent {
    fn intake(&self) -> Intake {
        let all = [pay(), refund(), notify()];
        let routes: Vec<_> = self.routes.iter().map(|route| Arc::clone(&all[*route])).collect();
        intake(self.source, self.id, &routes)
    }
}

fn sent() -> impl Strategy<Value = Sent> {
    let source = prop::sample::select(vec!["acme/billing", "acme/shop", "zeta/billing"]);
    let routes = prop::sample::subsequence(vec![0, 1, 2], 1..=3);
    (source, 0..4u8, routes).prop_map(|(source, id, routes)| Sent { source, id, routes })
}

fn post() -> Arc<BoundRoute> {
    route("post", ClaimPolicy::ledger())
}

/// The intake with content number `what`.
fn saying(what: u8, intake: Intake) -> Intake {
    let message = Message { domain_hash: DomainHash([what; 32]), ..intake.message };
    Intake { message, ..intake }
}

fn post_saying(what: u8, id: u8) -> Intake {
    saying(what, intake("acme/billing", id, &[post()]))
}

fn saying_to(what: u8, routes: &[&Arc<BoundRoute>]) -> Intake {
    let routes: Vec<_> = routes.iter().map(|route| Arc::clone(route)).collect();
    saying(what, intake("acme/billing", 1, &routes))
}

fn at_years(years: f64) -> Timestamp {
    at((years * 365.25 * 86_400.0) as i64)
}

/// CLM-5, CLM-8, CLM-1
#[test]
fn compared_id_never_has_two_contents() {
    let mut backend = Backend::new();
    // In one batch, and in later ones.
    let batch = [
        post_saying(1, 1),
        post_saying(2, 1),
        post_saying(1, 1),
        post_saying(2, 1),
        post_saying(3, 1),
        post_saying(1, 2),
    ];
    let words = backend.outcomes(&batch, at(0));
    assert_eq!(words.concat(), ["queued", "conflict", "duplicate", "conflict", "conflict", "queued"]);
    let later = [post_saying(2, 1), post_saying(4, 1), post_saying(1, 1)];
    assert_eq!(backend.outcomes(&later, at(9)).concat(), ["conflict", "conflict", "duplicate"]);
    let records: Vec<_> = backend
        .conflicts
        .iter()
        .map(|conflict| (conflict.hash.0[0], conflict.place, conflict.count))
        .collect();
    assert_eq!(records, [(2, 1, 3), (3, 2, 1), (4, 3, 1)], "one counted record for each content");
    let first = backend.deliveries[0].message;
    for (conflict, letter) in backend.conflicts.iter().zip(&backend.letters) {
        assert_eq!(
            (conflict.original, conflict.original_hash.0[0]),
            (first, 1),
            "the original never changes"
        );
        assert_eq!((letter.reason, letter.delivery.message), (DeadReason::Conflict, conflict.id));
        assert_eq!(letter.delivery.id, conflict.dead_letter);
        assert!(backend.messages.contains(&conflict.id), "the conflicting message is stored");
    }
    assert_eq!(backend.deliveries.len(), 2, "no conflicting message is dispatched");
    // Another service of the tenant cannot use the id; another tenant has its own ids.
    let others = [saying(1, intake("acme/shop", 1, &[post()])), saying(9, intake("zeta/shop", 1, &[post()]))];
    assert_eq!(backend.outcomes(&others, at(9)).concat(), ["taken", "queued"]);
    // Another destination with the same id must get the same content.
    let elsewhere = route("book", ClaimPolicy::Event { keep_seconds: 86_400, answers: false });
    let other = [7, 1, 1].map(|what| saying_to(what, &[&elsewhere]));
    assert_eq!(backend.outcomes(&other, at(9)).concat(), ["conflict", "queued", "duplicate"]);
    // Policies that do not compare content cause no conflicts and detect none.
    assert_eq!(
        backend.outcomes(&[saying(8, intake("acme/billing", 1, &[pay()]))], at(9)).concat(),
        ["queued"]
    );
}

/// CLM-15, CLM-19
#[test]
fn ledger_id_is_known_for_seven_years() {
    let mut backend = Backend::new();
    let [one, two] = [1, 2].map(|what| post_saying(what, 1));
    assert_eq!(backend.outcomes(std::slice::from_ref(&one), at(0)).concat(), ["queued"]);
    let both = [one.clone(), two.clone()];
    assert_eq!(backend.outcomes(&both, at_years(6.9)).concat(), ["duplicate", "conflict"]);
    assert_eq!(backend.outcomes(&[two], at_years(7.1)).concat(), ["queued"], "the id has new content");
    assert_eq!(backend.outcomes(&[one], at_years(7.2)).concat(), ["conflict"]);
}

/// CLM-8, CLM-20: work may wait longer than the retention of its id record.
#[test]
fn id_keeps_its_content_while_its_work_waits() {
    let mut route =
        route("book", ClaimPolicy::Event { keep_seconds: KEEP_SECONDS, answers: true }).route.clone();
    route.processing = Processing::of(ProcessingKind::Tracked);
    let book = Arc::new(BoundRoute::new(route));
    let sent = |source, what| saying(what, intake(source, 1, &[Arc::clone(&book)]));
    let again = [sent("acme/billing", 1), sent("acme/billing", 2), sent("acme/shop", 1)];
    let mut backend = Backend::new();
    assert_eq!(backend.outcomes(&again[..1], at(0)).concat(), ["queued"]);
    let days = 3 * 86_400;
    assert_eq!(backend.outcomes(&again, at(days)).concat(), ["seen", "conflict", "taken"]);
    let claim = backend.claims.values_mut().next().unwrap();
    claim.progress.as_mut().unwrap().status = Status::Completed;
    assert_eq!(
        backend.outcomes(&again[1..2], at(days)).concat(),
        ["queued"],
        "the id is free after the work"
    );
}

/// CLM-8, CLM-15: the destination that claimed the id last can extend the id record.
#[test]
fn id_keeps_its_content_for_its_longest_destination() {
    let event = route("note", ClaimPolicy::Event { keep_seconds: 86_400, answers: false });
    let year = 365 * 86_400;
    // Claimed later; in the same batch; later by a destination that does not compare.
    for (first, second, is_longer) in [
        (vec![saying_to(1, &[&event])], vec![saying_to(1, &[&post()])], true),
        (vec![saying_to(1, &[&event]), saying_to(1, &[&event, &post()])], vec![], true),
        (
            vec![saying_to(1, &[&event])],
            vec![saying_to(1, &[&event, &notify()]), saying_to(1, &[&pay()])],
            false,
        ),
    ] {
        let mut backend = Backend::new();
        backend.settle(&first, at(0));
        backend.settle(&second, at(3600));
        let original = backend.originals.values().next().unwrap();
        assert_eq!((original.message, original.hash.0[0]), (backend.messages[0], 1), "the first remains");
        assert_eq!(original.is_live(at(6 * year)), is_longer);
        if is_longer {
            let later = [saying_to(2, &[&post()]), saying_to(2, &[&event]), saying_to(1, &[&post()])];
            assert_eq!(
                backend.outcomes(&later, at(6 * year)).concat(),
                ["conflict", "conflict", "duplicate"]
            );
        }
    }
}

/// An intake with the content hash of this number.
fn with_content(what: u16) -> Intake {
    let mut hash = [0; 32];
    hash[..2].copy_from_slice(&what.to_be_bytes());
    let base = intake("acme/billing", 1, &[post()]);
    Intake { message: Message { domain_hash: DomainHash(hash), ..base.message }, ..base }
}

/// CLM-8: 10,000 different contents under one id.
#[test]
fn conflict_flood_of_one_id_is_capped_and_counted() {
    let mut backend = Backend::new();
    backend.settle(&[with_content(0)], at(0));
    for part in (1..=10_000).collect::<Vec<u16>>().chunks(256) {
        let batch: Vec<_> = part.iter().map(|what| with_content(*what)).collect();
        assert!(backend.outcomes(&batch, at(1)).concat().iter().all(|word| *word == "conflict"));
    }
    assert_eq!((backend.conflicts.len(), backend.letters.len(), backend.messages.len()), (100, 100, 101));
    assert_eq!(backend.conflicts.iter().map(|conflict| conflict.count).sum::<u64>(), 10_000);
}

proptest! {
    /// CLM-4, CLM-19: in any history and any batches, an id is queued at most once while its claim is in
    /// force, and again as soon as the claim has expired.
    #[test]
    fn id_is_queued_once_within_its_claim(
        history in prop::collection::vec((0..400i64, prop::collection::vec(sent(), 1..6)), 1..25),
    ) {
        let mut backend = Backend::new();
        let mut ends: HashMap<ClaimKey, Timestamp> = HashMap::new();
        let mut now = at(0);
        for (pause, batch) in history {
            now = now.plus(Duration::from_secs(pause.unsigned_abs()));
            let batch: Vec<_> = batch.iter().map(Sent::intake).collect();
            for (intake, settlement) in batch.iter().zip(backend.settle(&batch, now)) {
                // PIP-13
                if settlement.outcomes.iter().any(Outcome::is_refusal) {
                    prop_assert!(settlement.outcomes.iter().all(Outcome::is_refusal));
                    continue;
                }
                for (route, outcome) in intake.destinations.iter().zip(settlement.outcomes) {
                    let queued = matches!(outcome, Outcome::Queued { .. });
                    let Some(keep) = route.route.claim.keep() else {
                        prop_assert!(queued);
                        continue;
                    };
                    let end = ends.entry(claim_key(&intake.message, route)).or_insert(at(0));
                    prop_assert_eq!(queued, now >= *end, "{:?} {}", outcome, route.destination);
                    if queued {
                        *end = now.plus(keep);
                    }
                }
            }
        }
    }

    /// PIP-5: the division of messages into commits does not change their outcomes.
    #[test]
    fn batch_division_does_not_change_outcomes(
        history in prop::collection::vec(sent(), 1..30),
        cuts in prop::collection::vec(0..30usize, 0..6),
        depth_max in 1..12usize,
    ) {
        let batch: Vec<_> = history.iter().map(Sent::intake).collect();
        let (mut whole, mut split) = (Backend::of_depth(depth_max), Backend::of_depth(depth_max));
        let expected = whole.settle(&batch, at(0));
        let mut cuts: Vec<_> = cuts.into_iter().filter(|cut| *cut < batch.len()).collect();
        cuts.extend([0, batch.len()]);
        cuts.sort_unstable();
        let parts = cuts.windows(2).flat_map(|cut| split.settle(&batch[cut[0]..cut[1]], at(0)));
        prop_assert_eq!(parts.collect::<Vec<_>>(), expected);
        prop_assert_eq!(split.claims, whole.claims);
        prop_assert_eq!(split.deliveries, whole.deliveries);
    }

    /// DLV-3: numbers rise and are unique, and every delivery points to a written message.
    #[test]
    fn numbers_rise_and_are_unique(history in prop::collection::vec(sent(), 1..30)) {
        let mut backend = Backend::new();
        let batch: Vec<_> = history.iter().map(Sent::intake).collect();
        backend.settle(&batch, at(0));
        let mut numbers: Vec<_> = backend.messages.clone();
        numbers.extend(backend.deliveries.iter().map(|delivery| delivery.id));
        let assigned = numbers.len();
        numbers.sort();
        numbers.dedup();
        prop_assert_eq!(numbers.len(), assigned);
        prop_assert!(backend.deliveries.is_sorted_by_key(|delivery| delivery.id));
        for delivery in &backend.deliveries {
            prop_assert!(delivery.message < delivery.id && backend.messages.contains(&delivery.message));
        }
    }
}
