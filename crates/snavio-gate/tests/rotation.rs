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
use snavio_model::signing::Secret;
use snavio_model::time::{Clock, Timestamp};
use snavio_store::Store;
use snavio_store::embedded::{self, EmbeddedStore};
use snavio_store::postgres::{self, PostgresStore};
use snavio_testbed::Postgres;

const NOON: Timestamp = Timestamp(1_800_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);

struct Hands(AtomicI64);

impl Hands {
    fn at_noon() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(NOON.0)))
    }

    fn pass(&self, time: Duration) {
        self.0.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::Relaxed);
    }
}

impl Clock for Hands {
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

async fn gate(store: Arc<dyn Store>, clock: &Arc<Hands>, node: &str) -> Arc<Gate> {
    let settings = Settings { node: node.to_owned(), ..Settings::default() };
    let clock: Arc<dyn Clock> = Arc::<Hands>::clone(clock);
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
    make(gate, wishes).await;
}

async fn make(gate: &Gate, wishes: Vec<Wish>) {
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
    Arc::new(EmbeddedStore::open(&embedded::Options::new(folder.path())).unwrap())
}

/// REG-10
#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_rotated_once_when_its_days_are_over_and_ends_after_the_overlap() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::at_noon();
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
async fn keys_of_a_suspended_tenant_wait_until_it_is_let_in_again() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::at_noon();
    let gate = gate(embedded(&folder), &clock, "one").await;
    register(&gate, std::iter::once("acme/bot".to_owned())).await;
    make(&gate, vec![acme(true)]).await;
    let seal = Counted::default();
    clock.pass(DAY * 60);
    assert_eq!(gate.rotate_due_keys(&seal).await.unwrap(), 0);
    assert_eq!(keys(&gate), "hmac-v1 Current");
    make(&gate, vec![acme(false)]).await;
    assert_eq!(gate.rotate_due_keys(&seal).await.unwrap(), 1);
    assert_eq!(keys(&gate), "hmac-v1 Previous, hmac-v2 Current", "with the whole overlap to learn of it");
    gate.stop().await;
}

/// REG-10
#[tokio::test(flavor = "multi_thread")]
async fn many_keys_that_are_due_at_once_are_all_rotated() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::at_noon();
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
async fn of_two_nodes_over_one_database_one_rotates() {
    let url = Postgres::shared().database().unwrap();
    let open = async || {
        let store = PostgresStore::open(&postgres::Options::new(url.clone())).await.unwrap();
        Arc::new(store) as Arc<dyn Store>
    };
    let clock = Hands::at_noon();
    let nodes = [gate(open().await, &clock, "one").await, gate(open().await, &clock, "two").await];
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
    let leading = async || {
        let mut leads = Vec::new();
        for node in ["one", "two"] {
            leads.push(nodes[0].store().lead("rotator", node, DAY).await.unwrap());
        }
        leads.iter().filter(|leads| **leads).count()
    };
    assert_eq!(leading().await, 1);
    for node in nodes {
        node.stop().await;
    }
}

async fn told(gate: &Gate) -> Vec<(String, String, Option<String>)> {
    let records = gate.store().telemetry("acme", Serial(0), 100).await.unwrap();
    let text = |body: &serde_json::Map<_, serde_json::Value>, name: &str| {
        body.get(name)?.as_str().map(str::to_owned)
    };
    let row = |record: &snavio_model::telemetry::StoredRecord| {
        let polled = text(&record.body, "time_of_last_config_poll");
        (record.kind.clone(), text(&record.body, "version_id").unwrap_or_default(), polled)
    };
    records.iter().map(row).collect()
}

/// REG-12
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_does_not_poll_is_told_once_that_its_key_ends() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::at_noon();
    let gate = gate(embedded(&folder), &clock, "one").await;
    register(&gate, std::iter::once("acme/bot".to_owned())).await;
    clock.pass(DAY * 30);
    gate.rotate_due_keys(&Counted::default()).await.unwrap();
    clock.pass(DAY * 5 - Duration::from_secs(1));
    gate.report_ending_keys().await.unwrap();
    assert!(told(&gate).await.is_empty(), "more than 48 hours are left");
    let polled = clock.now();
    gate.note_poll(&bot(), polled).await.unwrap();
    clock.pass(DAY - Duration::from_secs(1));
    gate.report_ending_keys().await.unwrap();
    assert!(told(&gate).await.is_empty(), "the owner polled within 24 hours");
    clock.pass(Duration::from_secs(1));
    for _ in 0..2 {
        gate.report_ending_keys().await.unwrap();
    }
    let kind = "snavio.secret.key_expiry_imminent".to_owned();
    assert_eq!(told(&gate).await, [(kind, "hmac-v1".to_owned(), Some(polled.to_string()))]);
    gate.stop().await;
}

/// Registers `acme/bot` with an overlap of one day, and rotates its key at once.
async fn register_and_rotate(gate: &Gate) {
    register(gate, std::iter::once("acme/bot".to_owned())).await;
    let service = Service { key_overlap_days: Some(1), ..Service::new(bot()) };
    make(gate, vec![Wish::Put(Entry::Service(service))]).await;
    let registry = gate.registry();
    let ring = KeyRing::of(&registry, &bot()).unwrap();
    make(gate, ring.rotate(Sealed("101".to_owned()), gate.clock().now()).wishes).await;
}

async fn unregister(gate: &Gate) {
    let registry = gate.registry();
    let keys = KeyRing::of(&registry, &bot()).unwrap();
    let keys = keys.keys().iter().map(|key| Wish::Remove(EntryKey::key(&key.service, &key.version)));
    make(gate, keys.chain([Wish::Remove(EntryKey::service(&bot()))]).collect()).await;
}

/// REG-12, REG-24: the new service inherits neither the reports to its predecessor nor the predecessor's last
/// poll.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_registered_again_is_told_of_its_own_key() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::at_noon();
    let gate = gate(embedded(&folder), &clock, "one").await;
    let kind = || ("snavio.secret.key_expiry_imminent".to_owned(), "hmac-v1".to_owned(), None);
    register_and_rotate(&gate).await;
    gate.report_ending_keys().await.unwrap();
    assert_eq!(told(&gate).await, [kind()]);
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
    assert_eq!(told(&gate).await, [kind(), kind()], "once more, and once");
    gate.stop().await;
}

/// REG-24, ENG-7
#[tokio::test(flavor = "multi_thread")]
async fn what_is_noted_of_former_services_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    forgets(embedded(&folder)).await;
    let url = Postgres::shared().database().unwrap();
    forgets(Arc::new(PostgresStore::open(&postgres::Options::new(url)).await.unwrap())).await;
}

async fn forgets(store: Arc<dyn Store>) {
    let gate = gate(store, &Hands::at_noon(), "one").await;
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
