//! Permissions as one table: each case with the verdict that its sender gets (REG-2, REG-12, REG-15).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use snavio_gate::{Arrival, Form, Gate, Settings, Wait};
use snavio_model::id::MessageId;
use snavio_model::message::MessageKind;
use snavio_model::message::command::NewCommand;
use snavio_model::name::{QueueKey, QueueName, ServiceName};
use snavio_model::registry::{Author, Entry, Profile, Sealed, Unseal, Wish, plan};
use snavio_model::signature::signing::Secret;
use snavio_model::time::{Clock, Timestamp};
use snavio_store::Store;
use snavio_store::engine::postgres::PostgresStore;
use snavio_store::engine::sqlite::EmbeddedStore;
use snavio_store::engine::{postgres, sqlite};
use snavio_testbed::Postgres;

const NOON: Timestamp = Timestamp(1_800_000_000_000);

struct ManualClock(AtomicI64);

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

struct OneSecret;

impl Unseal for OneSecret {
    fn unseal(&self, _: &Sealed) -> Option<Secret> {
        Some(Secret::from_bytes([7; 32]))
    }
}

fn after(seconds: u64) -> Timestamp {
    NOON.plus(Duration::from_secs(seconds))
}

fn billing() -> ServiceName {
    "acme/billing".parse().unwrap()
}

/// A gate that reads its store only when it must.
struct Fixture {
    gate: Arc<Gate>,
    clock: Arc<ManualClock>,
}

impl Fixture {
    /// Starts a gate on which `acme/billing` may send `pay` to `zeta/bot`. The target has the routes `pay`,
    /// `refund` and the critical `erase`.
    async fn start(store: Arc<dyn Store>) -> Self {
        let clock = Arc::new(ManualClock(AtomicI64::new(NOON.0)));
        let settings = Settings { follow_every: Duration::from_secs(3600), ..Settings::default() };
        let gate =
            Gate::start(settings, store, Arc::clone(&clock) as Arc<dyn Clock>, Arc::new(OneSecret)).await;
        let fixture = Self { gate: gate.unwrap(), clock };
        let entries = [
            tenant("acme", false),
            tenant("zeta", false),
            entry(json!({ "kind": "service", "name": "acme/billing" })),
            entry(json!({ "kind": "service", "name": "acme/bot" })),
            entry(json!({ "kind": "service", "name": "zeta/bot" })),
            key(None),
            route("acme/bot", "pay", "moderate", None),
            route("zeta/bot", "pay", "moderate", None),
            route("zeta/bot", "refund", "moderate", None),
            route("zeta/bot", "erase", "critical", None),
            grant("zeta/bot", "pay", None),
        ];
        fixture.apply(entries.into_iter().map(Wish::Put).collect()).await;
        fixture
    }

    async fn apply(&self, wishes: Vec<Wish>) {
        let author = Author { who: "operator".into(), why: String::new(), at: self.clock.now() };
        let changes = plan(&self.gate.registry(), wishes, &author, self.gate.window()).unwrap();
        self.gate.change_registry(changes).await.unwrap();
    }

    /// Sends a command of `acme/billing` at this time, and returns its verdict.
    async fn verdict(&self, target: &str, name: &str, at: Timestamp) -> &'static str {
        let ended = self.gate.accept(self.arrival(target, name, at), Wait::Usual, ()).await;
        ended.map_or_else(|refused| refused.refusal.reason.code(), |_| "accepted")
    }

    /// Returns a command of `acme/billing` that arrives at this time.
    fn arrival(&self, target: &str, name: &str, at: Timestamp) -> Arrival {
        self.clock.0.store(at.0, Ordering::SeqCst);
        let command = NewCommand {
            id: &MessageId::uuid(&uuid::Uuid::now_v7().to_string()).unwrap(),
            timestamp: &at.to_string(),
            version_id: &"hmac-v1".parse().unwrap(),
            source: &billing(),
            target: &target.parse().unwrap(),
            name: &name.parse().unwrap(),
            payload: b"{}",
            correlation_id: None,
        };
        Arrival {
            kind: MessageKind::Command,
            form: Form::Native,
            source: billing(),
            body: command.sign(&Secret::from_bytes([7; 32])).unwrap().into(),
            webhook: None,
            vouched: None,
            correlation: None,
            traceparent: None,
            received_at: at,
            random: [3; 40],
        }
    }
}

fn entry(document: serde_json::Value) -> Entry {
    serde_json::from_value(document).unwrap()
}

fn tenant(name: &str, suspended: bool) -> Entry {
    entry(json!({ "kind": "tenant", "name": name, "suspended": suspended }))
}

fn key(revoked_at: Option<Timestamp>) -> Entry {
    entry(json!({
        "kind": "key", "service": "acme/billing", "version": "hmac-v1", "secret": "sealed",
        "created_at": NOON, "revoked_at": revoked_at,
    }))
}

fn route(target: &str, name: &str, profile: &str, ends: Option<Timestamp>) -> Entry {
    entry(json!({
        "kind": "route", "target": target, "name": name, "queue": "q", "dead_letter_queue": "d",
        "profile": profile, "expires_at": ends.map(|at| at.to_string()),
    }))
}

fn grant(target: &str, name: &str, ends: Option<Timestamp>) -> Entry {
    entry(json!({
        "kind": "grant", "source": "acme/billing", "target": target, "name": name,
        "expires_at": ends.map(|at| at.to_string()),
    }))
}

fn ban(until: Option<Timestamp>) -> Entry {
    entry(json!({ "kind": "ban", "source": "acme/billing", "until": until.map(|at| at.to_string()) }))
}

fn put(entry: Entry) -> Vec<Wish> {
    vec![Wish::Put(entry)]
}

fn remove(entry: Entry) -> Vec<Wish> {
    vec![Wish::Remove(entry.key())]
}

/// REG-2, REG-12, PIP-2: each case has the change at noon, the command a second later, and the verdict.
#[tokio::test(flavor = "multi_thread")]
async fn each_permission_case_has_its_verdict() {
    let (ended, ends) = (Some(after(1)), Some(after(2)));
    let zeta = "zeta/bot";
    let cases = [
        ("another tenant's target, with a grant", vec![], zeta, "pay", "accepted"),
        ("another tenant's target, without a grant", vec![], zeta, "refund", "acl-deny"),
        ("another tenant's target that is not there", vec![], "zeta/nobody", "pay", "acl-deny"),
        ("the own tenant's target, without a grant", vec![], "acme/bot", "pay", "acl-deny"),
        ("the own tenant's target, granted", put(grant("acme/bot", "pay", None)), "bot", "pay", "accepted"),
        ("a grant that ends later", put(grant(zeta, "pay", ends)), zeta, "pay", "accepted"),
        ("a grant that has ended", put(grant(zeta, "pay", ended)), zeta, "pay", "acl-deny"),
        ("a grant that was revoked", remove(grant(zeta, "pay", None)), zeta, "pay", "acl-deny"),
        ("a route that ends later", put(route(zeta, "pay", "low", ends)), zeta, "pay", "accepted"),
        ("a route that has ended", put(route(zeta, "pay", "low", ended)), zeta, "pay", "route-missing"),
        ("a route that was removed", remove(route(zeta, "pay", "low", None)), zeta, "pay", "route-missing"),
        ("a route that never was", put(grant(zeta, "lost", None)), zeta, "lost", "route-missing"),
        ("a key that was revoked", put(key(Some(NOON))), zeta, "pay", "key_expired"),
        ("a ban without an end", put(ban(None)), zeta, "pay", "banned"),
        ("a ban that has not ended", put(ban(ends)), zeta, "pay", "banned"),
        ("a ban that has ended", put(ban(ended)), zeta, "pay", "accepted"),
        ("the sender's tenant is suspended", put(tenant("acme", true)), zeta, "pay", "suspended"),
        ("a grant for all", put(grant(zeta, "*", None)), zeta, "refund", "accepted"),
        ("a grant for all, and no route", put(grant(zeta, "*", None)), zeta, "lost", "route-missing"),
        ("a grant for all that has ended", put(grant(zeta, "*", ended)), zeta, "refund", "acl-deny"),
        ("a grant for all, on a critical route", put(grant(zeta, "*", None)), zeta, "erase", "acl-deny"),
        ("a critical route's own grant", put(grant(zeta, "erase", None)), zeta, "erase", "accepted"),
    ];
    for (case, wishes, target, name, verdict) in cases {
        let folder = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(&sqlite::Options::new(folder.path())).unwrap();
        let fixture = Fixture::start(Arc::new(store)).await;
        fixture.apply(wishes).await;
        assert_eq!(fixture.verdict(target, name, after(1)).await, verdict, "{case}");
        fixture.gate.stop().await;
    }
}

/// REG-14, REG-15: the age of the registry up to which the gate decides about messages, while it cannot read
/// the store's changes. The age is the same for all profiles, because every message depends on a key and on
/// the bans.
#[tokio::test(flavor = "multi_thread")]
async fn expired_registry_decides_nothing_on_any_profile() {
    const FRESH: Duration = Duration::from_millis(1_999);
    const STALE: Duration = Duration::from_millis(3_999);
    const EXPIRED: Duration = Duration::from_millis(4_999);
    const DROPPED: Duration = Duration::from_millis(5_000);
    let ages = [(FRESH, "accepted"), (STALE, "accepted"), (EXPIRED, "unavailable"), (DROPPED, "unavailable")];
    for profile in [Profile::Critical, Profile::Moderate, Profile::Low] {
        let url = Postgres::shared().database().unwrap();
        let store = PostgresStore::open(&postgres::Options::new(&url)).await.unwrap();
        let fixture = Fixture::start(Arc::new(store)).await;
        let of_profile = serde_json::to_value(profile).unwrap();
        let of_profile = route("zeta/bot", "pay", of_profile.as_str().unwrap(), None);
        fixture.apply(vec![Wish::Put(of_profile)]).await;
        // A row that no node of this version writes or can read.
        let next = fixture.gate.registry().version() + 1;
        let unreadable =
            format!("INSERT INTO registry_change VALUES ({next}, 0, '', '', 'mood', 'new', NULL, '{{}}')");
        Postgres::shared().ask(&url, &unreadable).unwrap();
        for (age, verdict) in ages {
            let judged = fixture.verdict("zeta/bot", "pay", NOON.plus(age)).await;
            assert_eq!(judged, verdict, "{profile:?} after {age:?}");
        }
        Postgres::shared().ask(&url, &format!("DELETE FROM registry_change WHERE version = {next}")).unwrap();
        let judged = fixture.verdict("zeta/bot", "pay", NOON.plus(DROPPED)).await;
        assert_eq!(judged, "accepted", "{profile:?}: the store is asked first, and answers");
        fixture.gate.stop().await;
    }
}

/// PIP-2, PIP-5: if the sender stops waiting, its commit continues, and copies of its message wait for that
/// commit.
#[tokio::test(flavor = "multi_thread")]
async fn sender_that_stops_waiting_leaves_one_dispatch() {
    const ROUNDS: usize = 50;
    let folder = tempfile::tempdir().unwrap();
    let embedded = EmbeddedStore::open(&sqlite::Options::new(folder.path())).unwrap();
    let url = Postgres::shared().database().unwrap();
    let postgres = PostgresStore::open(&postgres::Options::new(&url)).await.unwrap();
    for store in [Arc::new(embedded) as Arc<dyn Store>, Arc::new(postgres)] {
        let fixture = Fixture::start(Arc::clone(&store)).await;
        let mut in_flight = 0;
        for _ in 0..ROUNDS {
            let arrival = fixture.arrival("zeta/bot", "pay", after(1));
            let send = || fixture.gate.accept(arrival.clone(), Wait::Usual, ());
            let mut first = Box::pin(send());
            in_flight += usize::from(futures_util::poll!(&mut first).is_pending());
            drop(first);
            for copy in join_all([send(), send(), send()]).await {
                assert!(copy.is_ok(), "{copy:?}");
            }
        }
        assert!(in_flight > 0, "no sender stopped waiting for its commit");
        let queue = QueueKey::new("zeta", &QueueName::new("q").unwrap());
        let attributes = store.attributes(&queue, fixture.clock.now()).await.unwrap();
        assert_eq!(attributes.depth, ROUNDS as u64, "{attributes:?}");
        fixture.gate.stop().await;
    }
}

/// PIP-2, PIP-5: copies wait together for a database that does not answer, not one after another.
#[tokio::test(flavor = "multi_thread")]
async fn copies_of_an_unsettled_message_end_together() {
    const COPIES: usize = 20;
    // It is longer than the store tries to settle one batch, and much shorter than that time for each copy.
    const TOGETHER: Duration = Duration::from_secs(40);
    let server = Arc::new(Postgres::start(&[]).unwrap());
    let url = server.database().unwrap();
    let store = PostgresStore::open(&postgres::Options::new(&url)).await.unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let fixture = Fixture::start(Arc::clone(&store)).await;
    let arrival = fixture.arrival("zeta/bot", "pay", after(1));
    let send = async || fixture.gate.accept_all(vec![arrival.clone(); COPIES], Wait::Usual, ()).await;

    let (locking, at) = (Arc::clone(&server), url.clone());
    let lock = "BEGIN; LOCK TABLE message IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(600)";
    let holding = std::thread::spawn(move || locking.ask(&at, lock));
    let sleeping = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
    while server.ask(&url, &format!("SELECT count(*) {sleeping}")).unwrap() != "1" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let asked = tokio::time::Instant::now();
    for ended in send().await {
        assert_eq!(ended.unwrap_err().refusal.reason.code(), "unavailable");
    }
    assert!(asked.elapsed() < TOGETHER, "{:?}", asked.elapsed());

    server.ask(&url, &format!("SELECT pg_cancel_backend(pid) {sleeping}")).unwrap();
    assert!(holding.join().unwrap().is_err(), "the lock was held until now");
    let taken = send().await.into_iter().map(|ended| usize::from(ended.unwrap().taken_by().is_some()));
    assert!(taken.sum::<usize>() <= 1);
    let queue = QueueKey::new("zeta", &QueueName::new("q").unwrap());
    let attributes = store.attributes(&queue, fixture.clock.now()).await.unwrap();
    assert_eq!(attributes.depth, 1, "{attributes:?}");
    fixture.gate.stop().await;
}
