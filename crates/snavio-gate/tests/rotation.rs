//! Key rotation on schedule, over real stores. The test sets the clock (REG-10, REG-12).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::time::Duration;

use snavio_gate::{Gate, ServiceNote, Settings};
use snavio_model::id::Serial;
use snavio_model::name::ServiceName;
use snavio_model::registry::{
    Author, Entry, EntryKey, Key, KeyRing, NewSecrets, Sealed, Service, Tenant, Unseal, Wish, plan, version,
};
use snavio_model::signature::signing::Secret;
use snavio_model::telemetry::StoredRecord;
use snavio_model::time::{Clock, Timestamp};
use snavio_store::Store;
use snavio_store::engine::postgres::PostgresStore;
use snavio_store::engine::sqlite::EmbeddedStore;
use snavio_store::engine::{postgres, sqlite};
use snavio_testbed::Postgres;

const NOON: Timestamp = Timestamp(1_800_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);

struct ManualClock(AtomicI64);

impl ManualClock {
    fn at_noon() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(NOON.0)))
    }

    fn pass(&self, time: Duration) {
        self.0.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

/// Secrets that are numbered in the order in which they are made.
#[derive(Default)]
struct Counted(AtomicU8);

impl NewSecrets for Counted {
    fn new_secret(&self) -> Sealed {
        Sealed(self.0.fetch_add(1, Ordering::Relaxed).to_string())
    }
}

impl Unseal for Counted {
    fn unseal(&self, sealed: &Sealed) -> Option<Secret> {
        sealed.0.parse().ok().map(|byte| Secret::from_bytes([byte; 32]))
    }
}

async fn gate(store: Arc<dyn Store>, clock: &Arc<ManualClock>, node: &str) -> Arc<Gate> {
    let settings = Settings { node: node.to_owned(), ..Settings::default() };
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
    Gate::start(settings, store, clock, Arc::new(Counted::default())).await.unwrap()
}

fn bot() -> ServiceName {
    "acme/bot".parse().unwrap()
}

/// Puts the tenant, suspended or not.
fn acme(suspended: bool) -> Wish {
    Wish::Put(Entry::Tenant(Tenant { name: "acme".parse().unwrap(), contact: None, suspended }))
}

/// Registers services of one tenant, each with a key that is created now.
async fn register(gate: &Gate, names: impl Iterator<Item = String>) {
    let mut wishes = vec![acme(false)];
    let now = gate.clock().now();
    for name in names {
        let service: ServiceName = name.parse().unwrap();
        wishes.push(Wish::Put(Entry::Service(Service::new(service.clone()))));
        let (version, secret) = (version(1), Sealed("100".to_owned()));
        let key = Key { service, version, secret, created_at: now, expires_at: None, revoked_at: None };
        wishes.push(Wish::Put(Entry::Key(key)));
    }
    apply(gate, wishes).await;
}

async fn apply(gate: &Gate, wishes: Vec<Wish>) {
    let author = Author { who: "operator".into(), why: String::new(), at: gate.clock().now() };
    let changes = plan(&gate.registry(), wishes, &author, gate.window()).unwrap();
    gate.change_registry(changes).await.unwrap();
}

/// Returns the keys of `acme/bot` with their states: `hmac-v1 Previous, hmac-v2 Current`.
fn keys(gate: &Gate) -> String {
    let registry = gate.registry();
    let ring = KeyRing::of(&registry, &bot()).unwrap();
    let now = gate.clock().now();
    let shown = ring.keys().iter().map(|key| format!("{} {:?}", key.version, ring.state(key, now)));
    shown.collect::<Vec<_>>().join(", ")
}

fn embedded(folder: &tempfile::TempDir) -> Arc<dyn Store> {
    Arc::new(EmbeddedStore::open(&sqlite::Options::new(folder.path())).unwrap())
}

async fn open_database(url: &str) -> Arc<dyn Store> {
    Arc::new(PostgresStore::open(&postgres::Options::new(url)).await.unwrap())
}

/// REG-10
#[tokio::test(flavor = "multi_thread")]
async fn key_is_rotated_once_and_ends_after_the_overlap() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at_noon();
    let gate = gate(embedded(&folder), &clock, "one").await;
    register(&gate, std::iter::once("acme/bot".to_owned())).await;
    let seal = Counted::default();
    clock.pass(DAY * 30 - Duration::from_secs(1));
    assert_eq!(gate.rotate_due_keys(&seal).await.unwrap(), 0, "not yet");
    clock.pass(Duration::from_secs(1));
    assert_eq!(gate.rotate_due_keys(&seal).await.unwrap(), 1);
    assert_eq!(gate.rotate_due_keys(&seal).await.unwrap(), 0, "once");
    assert_eq!(keys(&gate), "hmac-v1 Previous, hmac-v2 Current");
    clock.pass(DAY * 7 - Duration::from_secs(1));
    assert_eq!(keys(&gate), "hmac-v1 Previous, hmac-v2 Current");
    clock.pass(Duration::from_secs(1));
    assert_eq!(keys(&gate), "hmac-v1 Ended, hmac-v2 Current");
    let changes = gate.store().changes_since(0, 100).await.unwrap();
    let last = changes.last().unwrap();
    assert_eq!((last.who.as_str(), last.at), ("snavio (rotation)", NOON.plus(DAY * 30)));
    gate.stop().await;
}

/// REG-10
#[tokio::test(flavor = "multi_thread")]
async fn keys_of_a_suspended_tenant_are_not_rotated() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at_noon();
    let gate = gate(embedded(&folder), &clock, "one").await;
    register(&gate, std::iter::once("acme/bot".to_owned())).await;
    apply(&gate, vec![acme(true)]).await;
    let seal = Counted::default();
    clock.pass(DAY * 60);
    assert_eq!(gate.rotate_due_keys(&seal).await.unwrap(), 0);
    assert_eq!(keys(&gate), "hmac-v1 Current");
    apply(&gate, vec![acme(false)]).await;
    assert_eq!(gate.rotate_due_keys(&seal).await.unwrap(), 1);
    assert_eq!(keys(&gate), "hmac-v1 Previous, hmac-v2 Current", "with the whole overlap to learn of it");
    gate.stop().await;
}

/// REG-10
#[tokio::test(flavor = "multi_thread")]
async fn all_due_keys_are_rotated() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at_noon();
    let gate = gate(embedded(&folder), &clock, "one").await;
    register(&gate, (0..230).map(|n| format!("acme/s{n}"))).await;
    clock.pass(DAY * 31);
    assert_eq!(gate.rotate_due_keys(&Counted::default()).await.unwrap(), 230);
    let registry = gate.registry();
    assert!(KeyRing::all(&registry).iter().all(|ring| ring.keys().len() == 2));
    gate.stop().await;
}

/// REG-10, ENG-7
#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_rotate_a_key_once() {
    let url = Postgres::shared().database().unwrap();
    let clock = ManualClock::at_noon();
    let nodes = [
        gate(open_database(&url).await, &clock, "one").await,
        gate(open_database(&url).await, &clock, "two").await,
    ];
    register(&nodes[0], std::iter::once("acme/bot".to_owned())).await;
    nodes[1].refresh_registry().await.unwrap();
    clock.pass(DAY * 30);
    // One of them rotates, even if both believe that they lead.
    let rotating = nodes.each_ref().map(|node| {
        let node = Arc::clone(node);
        tokio::spawn(async move { node.rotate_due_keys(&Counted::default()).await.unwrap() })
    });
    let mut made = 0;
    for rotated in rotating {
        made += rotated.await.unwrap();
    }
    assert_eq!(made, 1);
    // One of the two background tasks rotates for both nodes.
    clock.pass(DAY * 30);
    nodes.iter().for_each(|node| node.look_after_keys(Some(Arc::new(Counted::default()))));
    let rotated = async {
        while nodes.iter().any(|node| keys(node) != "hmac-v1 Ended, hmac-v2 Previous, hmac-v3 Current") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), rotated).await.expect("both nodes know the new key");
    let mut leaders = 0;
    for node in ["one", "two"] {
        leaders += usize::from(nodes[0].store().lead("rotator", node, DAY).await.unwrap());
    }
    assert_eq!(leaders, 1);
    for node in nodes {
        node.stop().await;
    }
}

/// Returns the telemetry of `acme`: kind, key version and time of the last poll.
async fn reports(gate: &Gate) -> Vec<(String, String, Option<String>)> {
    let records = gate.store().telemetry("acme", Serial(0), 100).await.unwrap();
    let rows = records.iter().map(|record| {
        let version = text(record, "version_id").unwrap_or_default();
        (record.kind.clone(), version, text(record, "time_of_last_config_poll"))
    });
    rows.collect()
}

fn text(record: &StoredRecord, name: &str) -> Option<String> {
    record.body.get(name)?.as_str().map(str::to_owned)
}

/// REG-12
#[tokio::test(flavor = "multi_thread")]
async fn owner_that_does_not_poll_is_warned_once() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at_noon();
    let gate = gate(embedded(&folder), &clock, "one").await;
    register(&gate, std::iter::once("acme/bot".to_owned())).await;
    clock.pass(DAY * 30);
    gate.rotate_due_keys(&Counted::default()).await.unwrap();
    clock.pass(DAY * 5 - Duration::from_secs(1));
    gate.report_ending_keys().await.unwrap();
    assert!(reports(&gate).await.is_empty(), "more than 48 hours are left");
    let polled = clock.now();
    gate.note_poll(&bot(), polled).await.unwrap();
    clock.pass(DAY - Duration::from_secs(1));
    gate.report_ending_keys().await.unwrap();
    assert!(reports(&gate).await.is_empty(), "the owner polled within 24 hours");
    clock.pass(Duration::from_secs(1));
    for _ in 0..2 {
        gate.report_ending_keys().await.unwrap();
    }
    let kind = "snavio.secret.key_expiry_imminent".to_owned();
    assert_eq!(reports(&gate).await, [(kind, "hmac-v1".to_owned(), Some(polled.to_string()))]);
    gate.stop().await;
}

/// Registers `acme/bot` with an overlap of one day, and rotates its key at once.
async fn register_and_rotate(gate: &Gate) {
    register(gate, std::iter::once("acme/bot".to_owned())).await;
    let service = Service { key_overlap_days: Some(1), ..Service::new(bot()) };
    apply(gate, vec![Wish::Put(Entry::Service(service))]).await;
    let registry = gate.registry();
    let ring = KeyRing::of(&registry, &bot()).unwrap();
    apply(gate, ring.rotate(Sealed("101".to_owned()), gate.clock().now()).wishes).await;
}

async fn unregister(gate: &Gate) {
    let registry = gate.registry();
    let keys = KeyRing::of(&registry, &bot()).unwrap();
    let keys = keys.keys().iter().map(|key| Wish::Remove(EntryKey::key(&key.service, &key.version)));
    apply(gate, keys.chain([Wish::Remove(EntryKey::service(&bot()))]).collect()).await;
}

/// REG-12, REG-24: the new service inherits neither the reports to its predecessor nor the predecessor's last
/// poll.
#[tokio::test(flavor = "multi_thread")]
async fn service_registered_again_gets_its_own_warning() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at_noon();
    let gate = gate(embedded(&folder), &clock, "one").await;
    let report = ("snavio.secret.key_expiry_imminent".to_owned(), "hmac-v1".to_owned(), None);
    register_and_rotate(&gate).await;
    gate.report_ending_keys().await.unwrap();
    assert_eq!(reports(&gate).await, std::slice::from_ref(&report));
    clock.pass(Duration::from_secs(1));
    gate.note_poll(&bot(), clock.now()).await.unwrap();
    assert_eq!(gate.last_poll(&bot()).await.unwrap(), Some(clock.now()));
    unregister(&gate).await;
    clock.pass(Duration::from_secs(3600));
    register_and_rotate(&gate).await;
    assert_eq!(gate.last_poll(&bot()).await.unwrap(), None, "it has not polled yet");
    for _ in 0..2 {
        gate.report_ending_keys().await.unwrap();
    }
    assert_eq!(reports(&gate).await, [report.clone(), report], "once more, and once");
    gate.stop().await;
}

/// REG-24, ENG-7
#[tokio::test(flavor = "multi_thread")]
async fn notes_on_former_services_are_deleted() {
    let folder = tempfile::tempdir().unwrap();
    expect_notes_deleted(embedded(&folder)).await;
    let url = Postgres::shared().database().unwrap();
    expect_notes_deleted(Arc::new(PostgresStore::open(&postgres::Options::new(url)).await.unwrap())).await;
}

async fn expect_notes_deleted(store: Arc<dyn Store>) {
    let gate = gate(store, &ManualClock::at_noon(), "one").await;
    register(&gate, ["acme/bot", "acme/stays"].into_iter().map(str::to_owned)).await;
    let stays: ServiceName = "acme/stays".parse().unwrap();
    for service in [&bot(), &stays] {
        for note in [ServiceNote::Ending, ServiceNote::Polled, ServiceNote::Signed] {
            gate.store().set_note(&note.of(service), "noted", Vec::new()).await.unwrap();
        }
    }
    gate.store().set_note("revoked/acme/bot", "of something else", Vec::new()).await.unwrap();
    let names = async || {
        let notes = gate.store().notes_after("", 1000).await.unwrap();
        let acme = notes.into_iter().map(|(name, _)| name).filter(|name| name.contains("acme/"));
        acme.collect::<Vec<_>>()
    };
    let all = names().await;
    assert_eq!(gate.forget_services("").await.unwrap(), "", "there is one page");
    assert_eq!(names().await, all, "both are registered");
    unregister(&gate).await;
    gate.forget_services("").await.unwrap();
    let kept = ["ending/acme/stays", "polled/acme/stays", "revoked/acme/bot", "signed/acme/stays"];
    assert_eq!(names().await, kept);
    // The background task forgets it too, on the node that looks after the keys.
    gate.store().set_note(&ServiceNote::Polled.of(&bot()), "too late", Vec::new()).await.unwrap();
    gate.look_after_keys(None);
    let forgotten = async {
        while names().await != kept {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), forgotten).await.expect("it is forgotten");
    gate.stop().await;
}
