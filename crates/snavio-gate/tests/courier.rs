//! The courier over a real store, on a clock that the test sets: when and how often it calls a target, and
//! which deliveries wait (DLV-1, DLV-4).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use snavio_gate::{Attempt, Gate, Processor, Settings};
use snavio_model::breaker::{Presence, State};
use snavio_model::claim::{ClaimPolicy, IdKey, Status};
use snavio_model::delivery::DeadReason;
use snavio_model::id::{MessageId, Serial};
use snavio_model::limits;
use snavio_model::processing::{Called, Ending, Processing};
use snavio_model::registry::{
    Author, BoundRoute, Disabled, Entry, PushSecret, Route, Sealed, Service, Tenant, Unseal, Wish, plan,
};
use snavio_model::signing::Secret;
use snavio_model::time::{Clock, Timestamp};
use snavio_store::Store;
use snavio_store::conformance::samples::{self, at, queue};
use snavio_store::embedded::{EmbeddedStore, Options};
use tokio::sync::Notify;

struct Hands(AtomicI64);

impl Hands {
    fn pass(&self, time: Duration) {
        self.0.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::Relaxed);
    }
}

impl Clock for Hands {
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

/// How a target answers a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Takes,
    FindsNoPlace,
    IsDown,
    AsksFor(Duration),
    Hangs,
    HangsAndTakes,
    IsGone,
    HangsAndIsGone,
}

/// The targets by queue: how they answer, and which calls they got.
#[derive(Default)]
struct Outside {
    does: Mutex<HashMap<String, Does>>,
    asked: Mutex<Vec<(String, u32, Timestamp)>>,
    /// The timeout of each call.
    timeouts: Mutex<Vec<Duration>>,
    let_go: Notify,
}

impl Outside {
    fn set(&self, name: &str, does: Does) {
        self.does.lock().unwrap().insert(name.to_owned(), does);
    }

    fn asked(&self, name: &str) -> Vec<(u32, Timestamp)> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|(queue, ..)| queue == name).map(|(_, attempt, at)| (*attempt, *at)).collect()
    }
}

#[async_trait]
impl Processor for Outside {
    async fn call(&self, attempt: Attempt<'_>) -> Called {
        let name = attempt.route.route.queue.to_string();
        let does = self.does.lock().unwrap().get(&name).copied().unwrap_or(Does::Takes);
        self.asked.lock().unwrap().push((name.clone(), attempt.work.attempt, attempt.now));
        self.timeouts.lock().unwrap().push(attempt.timeout);
        let latest = attempt.now.plus(attempt.timeout + limits::CALL_LEASE_MARGIN);
        assert!(latest <= attempt.work.visible_at, "a call outlasts its lease");
        let failed =
            |retry_after| Ending::Failed { error: "no".into(), is_final: false, answer: None, retry_after };
        match does {
            Does::Takes => taken(),
            Does::HangsAndTakes => {
                self.let_go.notified().await;
                taken()
            }
            Does::FindsNoPlace => Called { ending: failed(None), presence: Presence::Crowded },
            Does::IsDown => Called { ending: failed(None), presence: Presence::SILENT },
            Does::AsksFor(time) => Called { ending: failed(Some(time)), presence: Presence::Up },
            Does::Hangs => {
                self.let_go.notified().await;
                Called { ending: failed(None), presence: Presence::SILENT }
            }
            Does::IsGone => gone(),
            Does::HangsAndIsGone => {
                self.let_go.notified().await;
                gone()
            }
        }
    }
}

fn taken() -> Called {
    let ending = Ending::Completed { answer: None, reference: None, note: None };
    Called { ending, presence: Presence::Up }
}

fn gone() -> Called {
    Called { ending: Ending::of_push(410, None), presence: Presence::Gone }
}

struct Stage {
    _folder: tempfile::TempDir,
    gate: Arc<Gate>,
    clock: Arc<Hands>,
    outside: Arc<Outside>,
    routes: Vec<Arc<BoundRoute>>,
}

impl Stage {
    /// Starts a gate with a push route and a queue for each name.
    async fn set(names: &[String], receives_max: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&Options::new(folder.path())).unwrap());
        let clock = Arc::new(Hands(AtomicI64::new(at(0).0)));
        let shared: Arc<dyn Clock> = Arc::<Hands>::clone(&clock);
        let gate = Gate::start(Settings::default(), store, shared, Arc::new(OneSecret)).await.unwrap();
        let outside = Arc::<Outside>::default();
        gate.call_processors(Arc::<Outside>::clone(&outside));
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
        let stage = Self { _folder: folder, gate, clock, outside, routes };
        stage.make(wishes).await;
        stage
    }

    async fn make(&self, wishes: Vec<Wish>) {
        let author = Author { who: "operator".into(), why: String::new(), at: self.clock.now() };
        let changes = plan(&self.gate.registry(), wishes, &author, self.gate.window()).unwrap();
        self.gate.change_registry(changes).await.unwrap();
    }

    /// Disables the route at this index, or enables it again.
    async fn turn(&self, place: usize, on: bool) {
        let disabled = Disabled { at: Some(self.clock.now()), why: "moving house".to_owned() };
        let disabled = (!on).then(|| Box::new(disabled));
        let route = Route { disabled, ..self.routes[place].route.clone() };
        self.make(vec![Wish::Put(Entry::Route(route))]).await;
    }

    async fn buried(&self) -> usize {
        self.gate.store().dead_letters("acme", None, Serial(0), 1000).await.unwrap().len()
    }

    async fn queue(&self, place: usize, count: usize) {
        let now = self.clock.now();
        let intake =
            |number| samples::intake(&format!("{place}-{number}-{}", now.0), &self.routes[place], now);
        samples::settle(&**self.gate.store(), (0..count).map(intake).collect(), now).await;
    }

    async fn holds(&self, name: &str) -> u64 {
        let held = self.gate.store().attributes(&queue(name), self.clock.now()).await.unwrap();
        held.depth + held.in_flight + held.delayed
    }

    /// Advances the clock in steps until `ask` has an answer.
    async fn until<T>(&self, what: &str, step: Duration, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
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
            .unwrap_or_else(|_| panic!("never came about: {what}"))
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
async fn who_asks_for_an_hour_is_called_after_an_hour_and_pauses_double_otherwise() {
    let stage = Stage::set(&["busy".to_owned()], 9).await;
    stage.outside.set("busy", Does::AsksFor(Duration::from_secs(3600)));
    stage.queue(0, 1).await;
    let asked = |count: usize| (stage.outside.asked("busy").len() >= count).then_some(());
    stage.until("the first call", Duration::ZERO, async || asked(1)).await;
    stage.outside.set("busy", Does::AsksFor(Duration::ZERO));
    stage.until("the second", Duration::from_secs(60), async || asked(2)).await;
    for count in 3..=6 {
        stage.until("the next", Duration::from_millis(100), async || asked(count)).await;
    }
    let calls = stage.outside.asked("busy");
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
    stage.outside.set("busy", Does::Takes);
    stage
        .until("it is taken", Duration::from_secs(1), async || (stage.holds("busy").await == 0).then_some(()))
        .await;
    stage.gate.stop().await;
}

/// DLV-4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_target_is_down_what_waits_loses_no_attempts() {
    let stage = Stage::set(&["down".to_owned()], 3).await;
    stage.outside.set("down", Does::IsDown);
    stage.queue(0, 200).await;
    let state = || stage.gate.target(&queue("down")).unwrap();
    let opened = stage.until("it is left alone", Duration::ZERO, async || {
        let state = stage.gate.target(&queue("down"))?;
        (state.breaker == State::Open && state.calls == 0).then_some(state)
    });
    let opened = opened.await;
    assert!(opened.failures >= limits::BREAKER_FAILURES && opened.probes_at.is_some(), "{opened:?}");
    let before = stage.outside.asked("down").len();
    assert!(before <= limits::CALLS_PER_QUEUE_MAX, "{before} calls found out what a few could have");
    // Each probe is one call, and the pauses between probes grow.
    stage
        .until("it was probed", Duration::from_millis(200), async || {
            (stage.outside.asked("down").len() >= before + 4).then_some(())
        })
        .await;
    let probes: Vec<_> = stage.outside.asked("down")[before..].iter().map(|call| call.1).collect();
    let pauses: Vec<_> = probes.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    for (pause, at_least) in pauses.iter().zip([1, 2, 4].map(Duration::from_secs)) {
        assert!(*pause >= at_least, "{pauses:?}");
    }
    assert_eq!(stage.holds("down").await, 200, "nothing was lost, nothing buried");
    stage.outside.set("down", Does::Takes);
    stage
        .until("it drains", Duration::from_millis(200), async || {
            (stage.holds("down").await == 0).then_some(())
        })
        .await;
    assert_eq!((state().breaker, state().failures), (State::Closed, 0));
    let letters = stage.gate.store().dead_letters("acme", None, Serial(0), 1000).await.unwrap();
    assert!(letters.is_empty(), "{} were given up", letters.len());
    stage.gate.stop().await;
}

/// DLV-4: a delivery that the courier had no capacity to call for was not attempted, and it does not count
/// against the target's endpoint health.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_finds_no_place_loses_no_attempts_and_is_not_asked_for_all_the_time() {
    let stage = Stage::set(&["crowded".to_owned()], 2).await;
    stage.outside.set("crowded", Does::FindsNoPlace);
    stage.queue(0, 200).await;
    let asked = || stage.outside.asked("crowded");
    stage
        .until("all that were under way are over", Duration::ZERO, async || {
            let calls = stage.gate.target(&queue("crowded"))?.calls;
            (calls == 0 && asked().len() >= limits::BREAKER_FAILURES as usize).then_some(())
        })
        .await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let before = asked().len();
    assert!(before <= 2 * limits::CALLS_PER_QUEUE_MAX, "{before} calls found out what a few could have");
    stage
        .until("there was no place for some time", Duration::from_millis(200), async || {
            (asked().len() >= before + 4).then_some(())
        })
        .await;
    let probes: Vec<_> = asked()[before..].iter().map(|call| call.1).collect();
    let pauses: Vec<_> = probes.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    for (pause, at_least) in pauses.iter().zip([1, 2, 4].map(Duration::from_secs)) {
        assert!(*pause >= at_least, "{pauses:?}");
    }
    let state = stage.gate.target(&queue("crowded")).unwrap();
    assert_eq!((state.breaker, state.failures), (State::Closed, 0));
    assert!(state.crowded_until.is_some(), "and it is said why nothing is called: {state:?}");
    stage.outside.set("crowded", Does::Takes);
    stage
        .until("it drains", Duration::from_millis(200), async || {
            (stage.holds("crowded").await == 0).then_some(())
        })
        .await;
    assert!(asked().iter().all(|call| call.0 == 1), "each is at its first attempt still");
    let letters = stage.gate.store().dead_letters("acme", None, Serial(0), 1000).await.unwrap();
    assert!(letters.is_empty(), "{} were given up", letters.len());
    stage.gate.stop().await;
}

/// DLV-4: forty-nine hanging targets use up their own shares of calls, and not the share of the fiftieth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn targets_that_hang_hold_up_nobody_else() {
    let names: Vec<_> = (0..50).map(|place| format!("hook-{place}")).collect();
    let stage = Stage::set(&names, 9).await;
    for name in &names[1..] {
        stage.outside.set(name, Does::Hangs);
    }
    for place in 1..50 {
        stage.queue(place, 100).await;
    }
    let under_way = || {
        names[1..]
            .iter()
            .filter_map(|name| stage.gate.target(&queue(name)))
            .map(|target| target.calls)
            .sum::<usize>()
    };
    let mut held = 0;
    stage
        .until("they have all that they get", Duration::ZERO, async || {
            let before = std::mem::replace(&mut held, under_way());
            // The number is final if a second look finds no more. It comes later than any runner sleeps.
            tokio::time::sleep(Duration::from_millis(1200)).await;
            (before == held && held == under_way() && held > 49).then_some(())
        })
        .await;
    assert!(held <= limits::CALLS_MAX, "{held} calls hang");
    let most =
        names[1..].iter().filter_map(|name| stage.gate.target(&queue(name))).map(|target| target.calls).max();
    assert!(most <= Some(limits::CALLS_PER_QUEUE_MAX), "{most:?}");
    // The courier leases no delivery that it does not call for.
    let mut leased = 0;
    for name in &names[1..] {
        leased += stage.gate.store().attributes(&queue(name), stage.clock.now()).await.unwrap().in_flight;
    }
    assert_eq!(leased, held as u64);
    stage.queue(0, 500).await;
    stage
        .until("the fiftieth drains", Duration::ZERO, async || {
            (stage.holds("hook-0").await == 0).then_some(())
        })
        .await;
    assert_eq!(stage.outside.asked("hook-0").len(), 500);
    assert_eq!(under_way(), held, "while all others hang");
    stage.outside.does.lock().unwrap().clear();
    stage
        .until("and so do the others", Duration::from_secs(1), async || {
            stage.outside.let_go.notify_waiters();
            for name in &names[1..] {
                if stage.holds(name).await > 0 {
                    return None;
                }
            }
            Some(())
        })
        .await;
    stage.gate.stop().await;
}

/// DLV-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_gone_disables_its_route_and_what_waits_is_sent_once_it_is_enabled() {
    let stage = Stage::set(&["gone".to_owned()], 9).await;
    stage.outside.set("gone", Does::IsGone);
    stage.queue(0, 1).await;
    let disabled = stage.until("it is disabled", Duration::ZERO, async || {
        stage.gate.registry().destination("acme/bot:gone").unwrap().route.disabled.clone()
    });
    assert_eq!(disabled.await.why, "the receiver answered 410: it wants no more");
    stage
        .until("nobody runs for it", Duration::ZERO, async || {
            stage.gate.target(&queue("gone")).is_none().then_some(())
        })
        .await;
    stage.queue(0, 20).await;
    stage.outside.set("gone", Does::Takes);
    assert_eq!((stage.holds("gone").await, stage.outside.asked("gone").len()), (21, 1));
    stage.make(vec![Wish::Put(Entry::Route(stage.routes[0].route.clone()))]).await;
    stage
        .until("all are taken", Duration::from_millis(200), async || {
            (stage.holds("gone").await == 0).then_some(())
        })
        .await;
    assert_eq!(stage.outside.asked("gone").len(), 22);
    stage.gate.stop().await;
}

/// DLV-4: deliveries that wait behind calls under way, when an operator disables their route, were not
/// attempted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_when_its_route_is_disabled_spends_no_attempt() {
    let stage = Stage::set(&["moving".to_owned()], 1).await;
    let asked = || stage.outside.asked("moving");
    let calls = || stage.gate.target(&queue("moving")).map(|target| target.calls);
    stage.outside.set("moving", Does::HangsAndTakes);
    stage.queue(0, 500).await;
    let most = limits::CALLS_PER_QUEUE_MAX;
    stage
        .until("as many as may be are called", Duration::ZERO, async || (asked().len() == most).then_some(()))
        .await;
    stage.outside.set("moving", Does::Takes);
    stage.turn(0, false).await;
    let held = async || stage.gate.store().attributes(&queue("moving"), stage.clock.now()).await.unwrap();
    let left = stage.until("those are heard out, and nobody runs for it", Duration::ZERO, async || {
        stage.outside.let_go.notify_waiters();
        let held = held().await;
        (calls().is_none() && held.in_flight == 0).then_some(held)
    });
    let left = left.await;
    assert_eq!((left.depth, left.delayed), (500 - most as u64, 0), "nobody took what waits, to give it back");
    assert_eq!((asked().len(), stage.buried().await), (most, 0));
    stage.turn(0, true).await;
    stage
        .until("all others are taken", Duration::from_millis(20), async || {
            (stage.holds("moving").await == 0).then_some(())
        })
        .await;
    assert_eq!((asked().len(), stage.buried().await), (500, 0));
    assert!(asked().iter().all(|call| call.0 == 1), "each at its first attempt");
    stage.gate.stop().await;
}

/// DLV-4: nor were deliveries that the courier had already leased and not yet called for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_that_is_disabled_and_enabled_all_the_time_loses_nothing() {
    let stage = Stage::set(&["moving".to_owned()], 1).await;
    stage.queue(0, 3000).await;
    stage
        .until("all are taken", Duration::from_millis(20), async || {
            stage.turn(0, false).await;
            stage.turn(0, true).await;
            (stage.holds("moving").await == 0).then_some(())
        })
        .await;
    let asked = stage.outside.asked("moving");
    assert_eq!((asked.len(), stage.buried().await), (3000, 0));
    assert!(asked.iter().all(|call| call.0 == 1), "each at its first attempt");
    stage.gate.stop().await;
}

/// DLV-4: a change of the route's number of attempts does not affect deliveries that are already in the
/// queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_has_the_last_error_also_when_its_route_has_changed() {
    for attempts in [1, 9] {
        let stage = Stage::set(&["busy".to_owned()], 3).await;
        stage.outside.set("busy", Does::AsksFor(Duration::from_secs(3600)));
        stage.queue(0, 1).await;
        // The clock stands still while a call is under way. Otherwise its lease would end.
        let has_ended = |count: usize| {
            let under_way = stage.gate.target(&queue("busy")).map(|target| target.calls);
            (stage.outside.asked("busy").len() == count && under_way == Some(0)).then_some(())
        };
        stage.until("the first call", Duration::ZERO, async || has_ended(1)).await;
        stage.make(vec![Wish::Put(Entry::Route(pushed("busy", attempts).route.clone()))]).await;
        for next in [2, 3] {
            stage.clock.pass(Duration::from_secs(3600));
            stage.until("the next call", Duration::ZERO, async || has_ended(next)).await;
        }
        let letter = stage.until("it is given up", Duration::ZERO, async || {
            stage.gate.store().dead_letters("acme", None, Serial(0), 9).await.unwrap().pop()
        });
        let letter = letter.await.letter;
        let told = (letter.reason, letter.error.as_deref(), letter.delivery.receives);
        assert_eq!(told, (DeadReason::Failed, Some("no"), 3), "{attempts}");
        stage.gate.stop().await;
    }
}

/// DLV-1: a 410 from before a person enabled the route does not disable it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_was_gone_before_its_route_was_enabled_does_not_disable_it_again() {
    let stage = Stage::set(&["late".to_owned()], 9).await;
    stage.outside.set("late", Does::HangsAndIsGone);
    stage.queue(0, 1).await;
    let asked = |count: usize| (stage.outside.asked("late").len() >= count).then_some(());
    stage.until("it is called", Duration::ZERO, async || asked(1)).await;
    stage.turn(0, false).await;
    stage.turn(0, true).await;
    stage.outside.set("late", Does::Takes);
    stage
        .until("it is taken", Duration::from_secs(1), async || {
            stage.outside.let_go.notify_waiters();
            (stage.holds("late").await == 0).then_some(())
        })
        .await;
    assert_eq!(stage.outside.asked("late").len(), 2);
    assert_eq!(stage.gate.registry().destination("acme/bot:late").unwrap().route.disabled, None);
    stage.gate.stop().await;
}

/// DLV-1, DLV-4: a missing secret costs no attempt and does not count against the receiver's endpoint health.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_there_is_no_secret_for_waits_until_there_is_one() {
    let stage = Stage::set(&["bare".to_owned()], 1).await;
    let is_called = || stage.gate.target(&queue("bare")).is_some();
    stage.until("somebody runs for it", Duration::ZERO, async || is_called().then_some(())).await;
    stage.make(vec![Wish::Remove(secret(&stage.routes[0]).key())]).await;
    stage.until("nobody does any more", Duration::ZERO, async || (!is_called()).then_some(())).await;
    stage.queue(0, 3).await;
    stage.clock.pass(Duration::from_secs(3600));
    let made_at = stage.clock.now();
    stage.make(vec![Wish::Put(secret(&stage.routes[0]))]).await;
    stage
        .until("all are taken", Duration::from_secs(1), async || {
            (stage.holds("bare").await == 0).then_some(())
        })
        .await;
    let asked = stage.outside.asked("bare");
    assert!(asked.iter().all(|(attempt, at)| *attempt == 1 && *at >= made_at), "{asked:?}");
    assert_eq!(asked.len(), 3, "none was given up");
    stage.gate.stop().await;
}

/// CLM-7, DLV-4: a node can be delayed between leasing and calling. It never calls for longer than its lease
/// lasts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_outlasts_its_lease() {
    let stage = Stage::set(&["slow".to_owned()], 1000).await;
    let usual = stage.routes[0].route.processing.timeout();
    let clock = Arc::clone(&stage.clock);
    let racing = tokio::spawn(async move {
        loop {
            clock.pass(Duration::from_secs(4));
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
    });
    stage
        .until("calls have less than their time", Duration::ZERO, async || {
            stage.queue(0, 20).await;
            let timeouts = stage.outside.timeouts.lock().unwrap().clone();
            assert!(
                timeouts.iter().all(|timeout| 2 * *timeout >= usual),
                "too little to be worth an attempt: {timeouts:?}"
            );
            timeouts.iter().any(|timeout| *timeout < usual).then_some(())
        })
        .await;
    racing.abort();
    stage
        .until("all are taken", Duration::from_secs(1), async || {
            (stage.holds("slow").await == 0).then_some(())
        })
        .await;
    assert_eq!(stage.buried().await, 0);
    stage.gate.stop().await;
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
async fn what_came_by_a_route_that_is_not_known_here_yet_spends_no_attempt() {
    let stage = Stage::set(&[], 1).await;
    let [known, new] = ["known", "new"].map(|name| processed(name, "shared"));
    stage.make(vec![Wish::Put(Entry::Route(known.route.clone()))]).await;
    let now = stage.clock.now();
    let mut intake = samples::intake("early", &new, now);
    intake.message.registry_version = stage.gate.registry().version() + 1;
    samples::settle(&**stage.gate.store(), vec![intake], now).await;
    stage
        .until("it is looked at, and given back", Duration::ZERO, async || {
            let held = stage.gate.store().attributes(&queue("shared"), stage.clock.now()).await.unwrap();
            (held.delayed == 1).then_some(())
        })
        .await;
    stage.make(vec![Wish::Put(Entry::Route(new.route.clone()))]).await;
    stage
        .until("it is done", Duration::from_secs(1), async || {
            (stage.holds("shared").await == 0).then_some(())
        })
        .await;
    let asked: Vec<_> = stage.outside.asked("shared").iter().map(|call| call.0).collect();
    assert_eq!((asked, stage.buried().await), (vec![1], 0), "at its first attempt");
    stage.gate.stop().await;
}

/// CLM-7: a route that is removed does not reveal the effect of an earlier attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_be_done_is_in_doubt_when_its_route_names_nobody_any_more() {
    let stage = Stage::set(&[], 1).await;
    let [known, gone] = ["known", "gone"].map(|name| processed(name, "shared"));
    let gone = Arc::new(BoundRoute::new(Route { receives_max: 2, ..gone.route.clone() }));
    let now = stage.clock.now();
    let mut intake = samples::intake("a", &gone, now);
    intake.message.registry_version = stage.gate.registry().version();
    samples::settle(&**stage.gate.store(), vec![intake], now).await;
    let taken = samples::receive(&**stage.gate.store(), "shared", 30, now).await;
    assert_eq!(taken.len(), 1);
    stage.clock.pass(Duration::from_secs(60));
    stage.gate.store().sweep(stage.clock.now()).await.unwrap();
    stage.make(vec![Wish::Put(Entry::Route(known.route.clone()))]).await;
    let letter = stage.until("it is given up", Duration::from_secs(1), async || {
        stage.gate.store().dead_letters("acme", None, Serial(0), 9).await.unwrap().pop()
    });
    assert_eq!(letter.await.letter.reason, DeadReason::ReceivesExhausted);
    let id = IdKey { id: MessageId::stored("a"), tenant: "acme".parse().unwrap() };
    let claims = stage.gate.store().claims_of(&id, stage.clock.now()).await.unwrap();
    assert_eq!(claims[0].claim.status(), Status::InDoubt);
    assert!(stage.outside.asked("shared").is_empty());
    stage.gate.stop().await;
}

/// ENG-7, DLV-4: a node that leaves starts no more calls, and waits for its calls under way for as long as it
/// may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_takes_nothing_more_and_hears_out_its_calls() {
    let stage = Stage::set(&["slow".to_owned()], 1).await;
    let asked = || stage.outside.asked("slow").len();
    stage.outside.set("slow", Does::HangsAndTakes);
    stage.queue(0, 100).await;
    let most = limits::CALLS_PER_QUEUE_MAX;
    stage
        .until("as many as may be are called", Duration::ZERO, async || (asked() == most).then_some(()))
        .await;
    let ending = {
        let gate = Arc::clone(&stage.gate);
        tokio::spawn(async move { gate.end_calls(Duration::from_secs(600)).await })
    };
    let is_over = async || {
        stage.outside.let_go.notify_waiters();
        ending.is_finished().then_some(())
    };
    stage.until("they are heard out", Duration::ZERO, is_over).await;
    assert_eq!((asked(), stage.holds("slow").await, stage.buried().await), (most, 100 - most as u64, 0));
    let left = stage.gate.store().attributes(&queue("slow"), stage.clock.now()).await.unwrap();
    assert_eq!(left.in_flight, 0, "nothing is leased that nobody is called for");
    stage.gate.stop().await;
}

/// DLV-4: it does not wait for longer than that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_gives_up_calls_that_do_not_end() {
    let stage = Stage::set(&["hung".to_owned()], 1).await;
    stage.outside.set("hung", Does::Hangs);
    stage.queue(0, 100).await;
    let most = limits::CALLS_PER_QUEUE_MAX;
    let asked = || stage.outside.asked("hung").len();
    stage
        .until("as many as may be are called", Duration::ZERO, async || (asked() == most).then_some(()))
        .await;
    stage.gate.end_calls(Duration::from_millis(100)).await;
    stage
        .until("nobody waits for them any more", Duration::ZERO, async || {
            stage.gate.target(&queue("hung")).is_none_or(|target| target.calls == 0).then_some(())
        })
        .await;
    let left = stage.gate.store().attributes(&queue("hung"), stage.clock.now()).await.unwrap();
    assert_eq!((asked(), left.in_flight), (most, most as u64), "their leases end by themselves");
    stage.gate.stop().await;
}
