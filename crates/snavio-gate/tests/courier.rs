//! The courier over a real store, on a clock that the test sets: when and how often it calls a target, and
//! which deliveries wait (DLV-1, DLV-4).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use snavio_gate::{Attempt, Gate, Processor, Settings};
use snavio_model::bounds;
use snavio_model::claim::{ClaimPolicy, IdKey, Status};
use snavio_model::delivery::breaker::{Presence, State};
use snavio_model::delivery::processing::{Called, Ending, Processing};
use snavio_model::delivery::{DeadReason, QueueAttributes};
use snavio_model::id::{MessageId, Serial};
use snavio_model::registry::{
    Author, BoundRoute, Disabled, Entry, PushSecret, Route, Sealed, Service, Tenant, Unseal, Wish, plan,
};
use snavio_model::signature::signing::Secret;
use snavio_model::time::{Clock, Timestamp};
use snavio_store::Store;
use snavio_store::conformance::samples::{self, at, queue};
use snavio_store::engine::sqlite::{EmbeddedStore, Options};
use tokio::sync::Notify;

struct ManualClock(AtomicI64);

impl ManualClock {
    fn pass(&self, time: Duration) {
        self.0.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

struct OneSecret;

impl Unseal for OneSecret {
    fn unseal(&self, _: &Sealed) -> Option<Secret> {
        Some(Secret::from_bytes([7; 32]))
    }
}

fn secret(route: &BoundRoute) -> Entry {
    Entry::PushSecret(PushSecret::new(&route.destination, Sealed("v1.AAAA".to_owned()), at(0)))
}

/// The answer of a target to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Accepts,
    HasNoCapacity,
    IsDown,
    AsksToWait(Duration),
    Hangs,
    HangsAndAccepts,
    IsGone,
    HangsAndIsGone,
}

/// The targets by queue: how they answer, and which calls they got.
#[derive(Default)]
struct FakeTargets {
    behaviours: Mutex<HashMap<String, Behaviour>>,
    calls: Mutex<Vec<(String, u32, Timestamp)>>,
    /// The timeout of each call.
    timeouts: Mutex<Vec<Duration>>,
    released: Notify,
}

impl FakeTargets {
    fn set(&self, name: &str, behaviour: Behaviour) {
        self.behaviours.lock().unwrap().insert(name.to_owned(), behaviour);
    }

    fn calls(&self, name: &str) -> Vec<(u32, Timestamp)> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|(queue, ..)| queue == name).map(|(_, attempt, at)| (*attempt, *at)).collect()
    }
}

#[async_trait]
impl Processor for FakeTargets {
    async fn call(&self, attempt: Attempt<'_>) -> Called {
        let name = attempt.route.route.queue.to_string();
        let behaviour = self.behaviours.lock().unwrap().get(&name).copied().unwrap_or(Behaviour::Accepts);
        self.calls.lock().unwrap().push((name.clone(), attempt.work.attempt, attempt.now));
        self.timeouts.lock().unwrap().push(attempt.timeout);
        let latest = attempt.now.plus(attempt.timeout + bounds::CALL_LEASE_MARGIN);
        assert!(latest <= attempt.work.visible_at, "a call outlasts its lease");
        let failed =
            |retry_after| Ending::Failed { error: "no".into(), is_final: false, answer: None, retry_after };
        match behaviour {
            Behaviour::Accepts => accepted(),
            Behaviour::HangsAndAccepts => {
                self.released.notified().await;
                accepted()
            }
            Behaviour::HasNoCapacity => Called { ending: failed(None), presence: Presence::Crowded },
            Behaviour::IsDown => Called { ending: failed(None), presence: Presence::SILENT },
            Behaviour::AsksToWait(time) => Called { ending: failed(Some(time)), presence: Presence::Up },
            Behaviour::Hangs => {
                self.released.notified().await;
                Called { ending: failed(None), presence: Presence::SILENT }
            }
            Behaviour::IsGone => gone(),
            Behaviour::HangsAndIsGone => {
                self.released.notified().await;
                gone()
            }
        }
    }
}

fn accepted() -> Called {
    let ending = Ending::Completed { answer: None, reference: None, note: None };
    Called { ending, presence: Presence::Up }
}

fn gone() -> Called {
    Called { ending: Ending::of_push(410, None), presence: Presence::Gone }
}

struct Fixture {
    _folder: tempfile::TempDir,
    gate: Arc<Gate>,
    clock: Arc<ManualClock>,
    targets: Arc<FakeTargets>,
    routes: Vec<Arc<BoundRoute>>,
}

impl Fixture {
    /// Starts a gate with a push route and a queue for each name.
    async fn start(names: &[String], receives_max: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&Options::new(folder.path())).unwrap());
        let clock = Arc::new(ManualClock(AtomicI64::new(at(0).0)));
        let shared: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
        let gate = Gate::start(Settings::default(), store, shared, Arc::new(OneSecret)).await.unwrap();
        let targets = Arc::<FakeTargets>::default();
        gate.call_processors(Arc::<FakeTargets>::clone(&targets));
        let routes: Vec<_> = names.iter().map(|name| pushed(name, receives_max)).collect();
        let mut wishes = vec![
            Wish::Put(Entry::Tenant(Tenant {
                name: "acme".parse().unwrap(),
                contact: None,
                suspended: false,
            })),
            Wish::Put(Entry::Service(Service::new("acme/bot".parse().unwrap()))),
        ];
        wishes.extend(routes.iter().map(|route| Wish::Put(Entry::Route(route.route.clone()))));
        wishes.extend(routes.iter().map(|route| Wish::Put(secret(route))));
        let fixture = Self { _folder: folder, gate, clock, targets, routes };
        fixture.apply(wishes).await;
        fixture
    }

    async fn apply(&self, wishes: Vec<Wish>) {
        let author = Author { who: "operator".into(), why: String::new(), at: self.clock.now() };
        let changes = plan(&self.gate.registry(), wishes, &author, self.gate.window()).unwrap();
        self.gate.change_registry(changes).await.unwrap();
    }

    /// Disables the route at this index, or enables it again.
    async fn set_enabled(&self, index: usize, on: bool) {
        let disabled = Disabled { at: Some(self.clock.now()), why: "moving house".to_owned() };
        let disabled = (!on).then(|| Box::new(disabled));
        let route = Route { disabled, ..self.routes[index].route.clone() };
        self.apply(vec![Wish::Put(Entry::Route(route))]).await;
    }

    async fn count_dead_letters(&self) -> usize {
        self.gate.store().dead_letters("acme", None, Serial(0), 1000).await.unwrap().len()
    }

    async fn enqueue(&self, index: usize, count: usize) {
        let now = self.clock.now();
        let intake =
            |number| samples::intake(&format!("{index}-{number}-{}", now.0), &self.routes[index], now);
        samples::settle(&**self.gate.store(), (0..count).map(intake).collect(), now).await;
    }

    async fn count_deliveries(&self, name: &str) -> u64 {
        let attributes = self.attributes(name).await;
        attributes.depth + attributes.in_flight + attributes.delayed
    }

    async fn attributes(&self, name: &str) -> QueueAttributes {
        self.gate.store().attributes(&queue(name), self.clock.now()).await.unwrap()
    }

    /// Returns a value once the target has got at least this many calls.
    fn has_calls(&self, name: &str, count: usize) -> Option<()> {
        (self.targets.calls(name).len() >= count).then_some(())
    }

    /// Returns a value once the target has got this many calls and all of them have ended.
    fn has_ended_calls(&self, name: &str, count: usize) -> Option<()> {
        let under_way = self.gate.target(&queue(name)).map(|target| target.calls);
        (self.targets.calls(name).len() == count && under_way == Some(0)).then_some(())
    }

    /// Advances the clock in steps until `ask` has an answer.
    async fn until<T>(&self, condition: &str, step: Duration, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
        let asking = async {
            loop {
                if let Some(answer) = ask().await {
                    return answer;
                }
                self.clock.pass(step);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(240), asking)
            .await
            .unwrap_or_else(|_| panic!("timed out before: {condition}"))
    }
}

fn pushed(name: &str, receives_max: u32) -> Arc<BoundRoute> {
    let mut route = samples::route(name, ClaimPolicy::None).route.clone();
    route.processing = Processing::push(format!("https://{name}.example/"));
    route.receives_max = receives_max;
    Arc::new(BoundRoute::new(route))
}

/// DLV-4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_is_honoured_and_pauses_double() {
    let fixture = Fixture::start(&["busy".to_owned()], 9).await;
    fixture.targets.set("busy", Behaviour::AsksToWait(Duration::from_secs(3600)));
    fixture.enqueue(0, 1).await;
    fixture.until("the first call", Duration::ZERO, async || fixture.has_calls("busy", 1)).await;
    fixture.targets.set("busy", Behaviour::AsksToWait(Duration::ZERO));
    fixture.until("the second", Duration::from_secs(60), async || fixture.has_calls("busy", 2)).await;
    for count in 3..=6 {
        fixture
            .until("the next", Duration::from_millis(100), async || fixture.has_calls("busy", count))
            .await;
    }
    let calls = fixture.targets.calls("busy");
    let pauses: Vec<_> = calls.windows(2).map(|pair| pair[1].1.since(pair[0].1)).collect();
    assert!(pauses[0] >= Duration::from_secs(3600), "{pauses:?}");
    for (pause, at_least) in pauses[1..].iter().zip([1, 2, 4, 8].map(Duration::from_secs)) {
        assert!(*pause >= at_least, "{pauses:?}");
    }
    assert_eq!(
        calls.iter().map(|call| call.0).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6],
        "each attempt counts"
    );
    fixture.targets.set("busy", Behaviour::Accepts);
    fixture
        .until("it is taken", Duration::from_secs(1), async || {
            (fixture.count_deliveries("busy").await == 0).then_some(())
        })
        .await;
    fixture.gate.stop().await;
}

/// DLV-4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn target_that_is_down_costs_no_attempts() {
    let fixture = Fixture::start(&["down".to_owned()], 3).await;
    fixture.targets.set("down", Behaviour::IsDown);
    fixture.enqueue(0, 200).await;
    let opened = fixture.until("the circuit breaker is open", Duration::ZERO, async || {
        let state = fixture.gate.target(&queue("down"))?;
        (state.breaker == State::Open && state.calls == 0).then_some(state)
    });
    let opened = opened.await;
    assert!(opened.failures >= bounds::BREAKER_FAILURES && opened.probes_at.is_some(), "{opened:?}");
    let before = fixture.targets.calls("down").len();
    assert!(before <= bounds::CALLS_PER_QUEUE_MAX, "too many calls before the pause: {before}");
    // Each probe is one call, and the pauses between probes grow.
    fixture
        .until("it was probed", Duration::from_millis(200), async || {
            (fixture.targets.calls("down").len() >= before + 4).then_some(())
        })
        .await;
    let probes: Vec<_> = fixture.targets.calls("down")[before..].iter().map(|call| call.1).collect();
    let pauses: Vec<_> = probes.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    for (pause, at_least) in pauses.iter().zip([1, 2, 4].map(Duration::from_secs)) {
        assert!(*pause >= at_least, "{pauses:?}");
    }
    assert_eq!(fixture.count_deliveries("down").await, 200, "nothing was lost or made a dead letter");
    fixture.targets.set("down", Behaviour::Accepts);
    fixture
        .until("it drains", Duration::from_millis(200), async || {
            (fixture.count_deliveries("down").await == 0).then_some(())
        })
        .await;
    let state = fixture.gate.target(&queue("down")).unwrap();
    assert_eq!((state.breaker, state.failures), (State::Closed, 0));
    let letters = fixture.gate.store().dead_letters("acme", None, Serial(0), 1000).await.unwrap();
    assert!(letters.is_empty(), "{} were given up", letters.len());
    fixture.gate.stop().await;
}

/// DLV-4: a delivery that the courier had no capacity to call for was not attempted, and it does not count
/// against the target's endpoint health.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lack_of_capacity_costs_no_attempts_and_pauses_calls() {
    let fixture = Fixture::start(&["crowded".to_owned()], 2).await;
    fixture.targets.set("crowded", Behaviour::HasNoCapacity);
    fixture.enqueue(0, 200).await;
    fixture
        .until("all calls under way have ended", Duration::ZERO, async || {
            let calls = fixture.gate.target(&queue("crowded"))?.calls;
            (calls == 0 && fixture.targets.calls("crowded").len() >= bounds::BREAKER_FAILURES as usize)
                .then_some(())
        })
        .await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let before = fixture.targets.calls("crowded").len();
    assert!(before <= 2 * bounds::CALLS_PER_QUEUE_MAX, "too many calls before the pause: {before}");
    fixture
        .until("there was no capacity for some time", Duration::from_millis(200), async || {
            (fixture.targets.calls("crowded").len() >= before + 4).then_some(())
        })
        .await;
    let probes: Vec<_> = fixture.targets.calls("crowded")[before..].iter().map(|call| call.1).collect();
    let pauses: Vec<_> = probes.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    for (pause, at_least) in pauses.iter().zip([1, 2, 4].map(Duration::from_secs)) {
        assert!(*pause >= at_least, "{pauses:?}");
    }
    let state = fixture.gate.target(&queue("crowded")).unwrap();
    assert_eq!((state.breaker, state.failures), (State::Closed, 0));
    assert!(state.crowded_until.is_some(), "the state has the reason: {state:?}");
    fixture.targets.set("crowded", Behaviour::Accepts);
    fixture
        .until("it drains", Duration::from_millis(200), async || {
            (fixture.count_deliveries("crowded").await == 0).then_some(())
        })
        .await;
    assert!(
        fixture.targets.calls("crowded").iter().all(|call| call.0 == 1),
        "each is at its first attempt still"
    );
    let letters = fixture.gate.store().dead_letters("acme", None, Serial(0), 1000).await.unwrap();
    assert!(letters.is_empty(), "{} were given up", letters.len());
    fixture.gate.stop().await;
}

/// DLV-4: forty-nine hanging targets use up their own shares of calls, and not the share of the fiftieth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_targets_do_not_delay_others() {
    let names: Vec<_> = (0..50).map(|index| format!("hook-{index}")).collect();
    let fixture = Fixture::start(&names, 9).await;
    for name in &names[1..] {
        fixture.targets.set(name, Behaviour::Hangs);
    }
    for index in 1..50 {
        fixture.enqueue(index, 100).await;
    }
    let under_way = || {
        names[1..]
            .iter()
            .filter_map(|name| fixture.gate.target(&queue(name)))
            .map(|target| target.calls)
            .sum::<usize>()
    };
    let mut held = 0;
    fixture
        .until("the limit of calls is reached", Duration::ZERO, async || {
            let before = std::mem::replace(&mut held, under_way());
            // The number is final if a second look finds no more. It comes later than any runner sleeps.
            tokio::time::sleep(Duration::from_millis(1200)).await;
            (before == held && held == under_way() && held > 49).then_some(())
        })
        .await;
    assert!(held <= bounds::CALLS_MAX, "{held} calls hang");
    let most = names[1..]
        .iter()
        .filter_map(|name| fixture.gate.target(&queue(name)))
        .map(|target| target.calls)
        .max();
    assert!(most <= Some(bounds::CALLS_PER_QUEUE_MAX), "{most:?}");
    // The courier leases no delivery that it does not call for.
    let mut leased = 0;
    for name in &names[1..] {
        leased += fixture.gate.store().attributes(&queue(name), fixture.clock.now()).await.unwrap().in_flight;
    }
    assert_eq!(leased, held as u64);
    fixture.enqueue(0, 500).await;
    fixture
        .until("the fiftieth drains", Duration::ZERO, async || {
            (fixture.count_deliveries("hook-0").await == 0).then_some(())
        })
        .await;
    assert_eq!(fixture.targets.calls("hook-0").len(), 500);
    assert_eq!(under_way(), held, "while all others hang");
    fixture.targets.behaviours.lock().unwrap().clear();
    fixture
        .until("and so do the others", Duration::from_secs(1), async || {
            fixture.targets.released.notify_waiters();
            for name in &names[1..] {
                if fixture.count_deliveries(name).await > 0 {
                    return None;
                }
            }
            Some(())
        })
        .await;
    fixture.gate.stop().await;
}

/// DLV-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gone_receiver_disables_its_route_until_enabled() {
    let fixture = Fixture::start(&["gone".to_owned()], 9).await;
    fixture.targets.set("gone", Behaviour::IsGone);
    fixture.enqueue(0, 1).await;
    let disabled = fixture.until("it is disabled", Duration::ZERO, async || {
        fixture.gate.registry().destination("acme/bot:gone").unwrap().route.disabled.clone()
    });
    assert_eq!(disabled.await.why, "the receiver answered 410: it wants no more");
    fixture
        .until("no runner serves the queue", Duration::ZERO, async || {
            fixture.gate.target(&queue("gone")).is_none().then_some(())
        })
        .await;
    fixture.enqueue(0, 20).await;
    fixture.targets.set("gone", Behaviour::Accepts);
    assert_eq!((fixture.count_deliveries("gone").await, fixture.targets.calls("gone").len()), (21, 1));
    fixture.apply(vec![Wish::Put(Entry::Route(fixture.routes[0].route.clone()))]).await;
    fixture
        .until("all are taken", Duration::from_millis(200), async || {
            (fixture.count_deliveries("gone").await == 0).then_some(())
        })
        .await;
    assert_eq!(fixture.targets.calls("gone").len(), 22);
    fixture.gate.stop().await;
}

/// DLV-4: deliveries that wait behind calls under way, when an operator disables their route, were not
/// attempted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disabled_route_costs_waiting_deliveries_no_attempt() {
    let fixture = Fixture::start(&["moving".to_owned()], 1).await;
    fixture.targets.set("moving", Behaviour::HangsAndAccepts);
    fixture.enqueue(0, 500).await;
    let most = bounds::CALLS_PER_QUEUE_MAX;
    fixture
        .until("the limit of calls is reached", Duration::ZERO, async || {
            (fixture.targets.calls("moving").len() == most).then_some(())
        })
        .await;
    fixture.targets.set("moving", Behaviour::Accepts);
    fixture.set_enabled(0, false).await;
    let left = fixture.until("the calls have ended, and no runner is left", Duration::ZERO, async || {
        fixture.targets.released.notify_waiters();
        let held = fixture.attributes("moving").await;
        (fixture.gate.target(&queue("moving")).is_none() && held.in_flight == 0).then_some(held)
    });
    let left = left.await;
    assert_eq!((left.depth, left.delayed), (500 - most as u64, 0), "waiting deliveries were not leased");
    assert_eq!((fixture.targets.calls("moving").len(), fixture.count_dead_letters().await), (most, 0));
    fixture.set_enabled(0, true).await;
    fixture
        .until("all others are taken", Duration::from_millis(20), async || {
            (fixture.count_deliveries("moving").await == 0).then_some(())
        })
        .await;
    assert_eq!((fixture.targets.calls("moving").len(), fixture.count_dead_letters().await), (500, 0));
    assert!(fixture.targets.calls("moving").iter().all(|call| call.0 == 1), "each at its first attempt");
    fixture.gate.stop().await;
}

/// DLV-4: nor were deliveries that the courier had already leased and not yet called for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn route_toggled_repeatedly_loses_nothing() {
    let fixture = Fixture::start(&["moving".to_owned()], 1).await;
    fixture.enqueue(0, 3000).await;
    fixture
        .until("all are taken", Duration::from_millis(20), async || {
            fixture.set_enabled(0, false).await;
            fixture.set_enabled(0, true).await;
            (fixture.count_deliveries("moving").await == 0).then_some(())
        })
        .await;
    let asked = fixture.targets.calls("moving");
    assert_eq!((asked.len(), fixture.count_dead_letters().await), (3000, 0));
    assert!(asked.iter().all(|call| call.0 == 1), "each at its first attempt");
    fixture.gate.stop().await;
}

/// DLV-4: a change of the route's number of attempts does not affect deliveries that are already in the
/// queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letter_has_the_last_error_after_a_route_change() {
    for attempts in [1, 9] {
        let fixture = Fixture::start(&["busy".to_owned()], 3).await;
        fixture.targets.set("busy", Behaviour::AsksToWait(Duration::from_secs(3600)));
        fixture.enqueue(0, 1).await;
        // The clock stands still while a call is under way. Otherwise its lease would end.
        fixture.until("the first call", Duration::ZERO, async || fixture.has_ended_calls("busy", 1)).await;
        fixture.apply(vec![Wish::Put(Entry::Route(pushed("busy", attempts).route.clone()))]).await;
        for next in [2, 3] {
            fixture.clock.pass(Duration::from_secs(3600));
            fixture
                .until("the next call", Duration::ZERO, async || fixture.has_ended_calls("busy", next))
                .await;
        }
        let letter = fixture.until("it is given up", Duration::ZERO, async || {
            fixture.gate.store().dead_letters("acme", None, Serial(0), 9).await.unwrap().pop()
        });
        let letter = letter.await.letter;
        let shown = (letter.reason, letter.error.as_deref(), letter.delivery.receives);
        assert_eq!(shown, (DeadReason::Failed, Some("no"), 3), "{attempts}");
        fixture.gate.stop().await;
    }
}

/// DLV-1: a 410 from before a person enabled the route does not disable it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_410_does_not_disable_an_enabled_route() {
    let fixture = Fixture::start(&["late".to_owned()], 9).await;
    fixture.targets.set("late", Behaviour::HangsAndIsGone);
    fixture.enqueue(0, 1).await;
    fixture.until("it is called", Duration::ZERO, async || fixture.has_calls("late", 1)).await;
    fixture.set_enabled(0, false).await;
    fixture.set_enabled(0, true).await;
    fixture.targets.set("late", Behaviour::Accepts);
    fixture
        .until("it is taken", Duration::from_secs(1), async || {
            fixture.targets.released.notify_waiters();
            (fixture.count_deliveries("late").await == 0).then_some(())
        })
        .await;
    assert_eq!(fixture.targets.calls("late").len(), 2);
    assert_eq!(fixture.gate.registry().destination("acme/bot:late").unwrap().route.disabled, None);
    fixture.gate.stop().await;
}

/// DLV-1, DLV-4: a missing secret costs no attempt and does not count against the receiver's endpoint health.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_without_a_secret_waits_for_one() {
    let fixture = Fixture::start(&["bare".to_owned()], 1).await;
    fixture
        .until("a runner serves the queue", Duration::ZERO, async || {
            fixture.gate.target(&queue("bare")).is_some().then_some(())
        })
        .await;
    fixture.apply(vec![Wish::Remove(secret(&fixture.routes[0]).key())]).await;
    fixture
        .until("no runner serves the queue", Duration::ZERO, async || {
            fixture.gate.target(&queue("bare")).is_none().then_some(())
        })
        .await;
    fixture.enqueue(0, 3).await;
    fixture.clock.pass(Duration::from_secs(3600));
    let made_at = fixture.clock.now();
    fixture.apply(vec![Wish::Put(secret(&fixture.routes[0]))]).await;
    fixture
        .until("all are taken", Duration::from_secs(1), async || {
            (fixture.count_deliveries("bare").await == 0).then_some(())
        })
        .await;
    let asked = fixture.targets.calls("bare");
    assert!(asked.iter().all(|(attempt, at)| *attempt == 1 && *at >= made_at), "{asked:?}");
    assert_eq!(asked.len(), 3, "none was given up");
    fixture.gate.stop().await;
}

/// CLM-7, DLV-4: a node can be delayed between leasing and calling. It never calls for longer than its lease
/// lasts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_outlasts_its_lease() {
    let fixture = Fixture::start(&["slow".to_owned()], 1000).await;
    let usual = fixture.routes[0].route.processing.timeout();
    let clock = Arc::clone(&fixture.clock);
    let racing = tokio::spawn(async move {
        loop {
            clock.pass(Duration::from_secs(4));
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
    });
    fixture
        .until("calls have less than their time", Duration::ZERO, async || {
            fixture.enqueue(0, 20).await;
            let timeouts = fixture.targets.timeouts.lock().unwrap().clone();
            assert!(
                timeouts.iter().all(|timeout| 2 * *timeout >= usual),
                "too little to be worth an attempt: {timeouts:?}"
            );
            timeouts.iter().any(|timeout| *timeout < usual).then_some(())
        })
        .await;
    racing.abort();
    fixture
        .until("all are taken", Duration::from_secs(1), async || {
            (fixture.count_deliveries("slow").await == 0).then_some(())
        })
        .await;
    assert_eq!(fixture.count_dead_letters().await, 0);
    fixture.gate.stop().await;
}

/// An HTTP route with this queue.
fn processed(name: &str, queue: &str) -> Arc<BoundRoute> {
    let mut route = samples::route(name, ClaimPolicy::ledger()).route.clone();
    route.processing = Processing::http("https://gl.example/");
    route.queue = queue.parse().unwrap();
    Arc::new(BoundRoute::new(route))
}

/// DLV-4: if a node does not know a route yet that another node knows, it does not count an attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn route_unknown_to_this_node_costs_no_attempt() {
    let fixture = Fixture::start(&[], 1).await;
    let [known, new] = ["known", "new"].map(|name| processed(name, "shared"));
    fixture.apply(vec![Wish::Put(Entry::Route(known.route.clone()))]).await;
    let now = fixture.clock.now();
    let mut intake = samples::intake("early", &new, now);
    intake.message.registry_version = fixture.gate.registry().version() + 1;
    samples::settle(&**fixture.gate.store(), vec![intake], now).await;
    fixture
        .until("it is looked at, and given back", Duration::ZERO, async || {
            let held = fixture.gate.store().attributes(&queue("shared"), fixture.clock.now()).await.unwrap();
            (held.delayed == 1).then_some(())
        })
        .await;
    fixture.apply(vec![Wish::Put(Entry::Route(new.route.clone()))]).await;
    fixture
        .until("it is done", Duration::from_secs(1), async || {
            (fixture.count_deliveries("shared").await == 0).then_some(())
        })
        .await;
    let asked: Vec<_> = fixture.targets.calls("shared").iter().map(|call| call.0).collect();
    assert_eq!((asked, fixture.count_dead_letters().await), (vec![1], 0), "at its first attempt");
    fixture.gate.stop().await;
}

/// CLM-7: a route that is removed does not reveal the effect of an earlier attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_route_leaves_the_outcome_unknown() {
    let fixture = Fixture::start(&[], 1).await;
    let [known, gone] = ["known", "gone"].map(|name| processed(name, "shared"));
    let gone = Arc::new(BoundRoute::new(Route { receives_max: 2, ..gone.route.clone() }));
    let now = fixture.clock.now();
    let mut intake = samples::intake("a", &gone, now);
    intake.message.registry_version = fixture.gate.registry().version();
    samples::settle(&**fixture.gate.store(), vec![intake], now).await;
    let taken = samples::receive(&**fixture.gate.store(), "shared", 30, now).await;
    assert_eq!(taken.len(), 1);
    fixture.clock.pass(Duration::from_secs(60));
    fixture.gate.store().sweep(fixture.clock.now()).await.unwrap();
    fixture.apply(vec![Wish::Put(Entry::Route(known.route.clone()))]).await;
    let letter = fixture.until("it is given up", Duration::from_secs(1), async || {
        fixture.gate.store().dead_letters("acme", None, Serial(0), 9).await.unwrap().pop()
    });
    assert_eq!(letter.await.letter.reason, DeadReason::ReceivesExhausted);
    let id = IdKey { id: MessageId::stored("a"), tenant: "acme".parse().unwrap() };
    let claims = fixture.gate.store().claims_of(&id, fixture.clock.now()).await.unwrap();
    assert_eq!(claims[0].claim.status(), Status::InDoubt);
    assert!(fixture.targets.calls("shared").is_empty());
    fixture.gate.stop().await;
}

/// ENG-7, DLV-4: a node that leaves starts no more calls, and waits for its calls under way for as long as it
/// may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_node_finishes_its_calls() {
    let fixture = Fixture::start(&["slow".to_owned()], 1).await;
    fixture.targets.set("slow", Behaviour::HangsAndAccepts);
    fixture.enqueue(0, 100).await;
    let most = bounds::CALLS_PER_QUEUE_MAX;
    fixture
        .until("the limit of calls is reached", Duration::ZERO, async || {
            (fixture.targets.calls("slow").len() == most).then_some(())
        })
        .await;
    let ending = {
        let gate = Arc::clone(&fixture.gate);
        tokio::spawn(async move { gate.end_calls(Duration::from_secs(600)).await })
    };
    fixture
        .until("the calls have ended", Duration::ZERO, async || {
            fixture.targets.released.notify_waiters();
            ending.is_finished().then_some(())
        })
        .await;
    assert_eq!(
        (
            fixture.targets.calls("slow").len(),
            fixture.count_deliveries("slow").await,
            fixture.count_dead_letters().await
        ),
        (most, 100 - most as u64, 0)
    );
    let left = fixture.gate.store().attributes(&queue("slow"), fixture.clock.now()).await.unwrap();
    assert_eq!(left.in_flight, 0, "no delivery is leased without a call");
    fixture.gate.stop().await;
}

/// DLV-4: it does not wait for longer than that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_node_drops_calls_that_hang() {
    let fixture = Fixture::start(&["hung".to_owned()], 1).await;
    fixture.targets.set("hung", Behaviour::Hangs);
    fixture.enqueue(0, 100).await;
    let most = bounds::CALLS_PER_QUEUE_MAX;
    fixture
        .until("the limit of calls is reached", Duration::ZERO, async || {
            (fixture.targets.calls("hung").len() == most).then_some(())
        })
        .await;
    fixture.gate.end_calls(Duration::from_millis(100)).await;
    fixture
        .until("no call is under way", Duration::ZERO, async || {
            fixture.gate.target(&queue("hung")).is_none_or(|target| target.calls == 0).then_some(())
        })
        .await;
    let left = fixture.gate.store().attributes(&queue("hung"), fixture.clock.now()).await.unwrap();
    assert_eq!(
        (fixture.targets.calls("hung").len(), left.in_flight),
        (most, most as u64),
        "their leases end by themselves"
    );
    fixture.gate.stop().await;
}
