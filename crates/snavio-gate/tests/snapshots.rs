//! Snapshots over a real store and a real folder: entries that are left out, the history that counts, and the
//! age of a snapshot.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use snavio_gate::{Gate, Loaded, Settings, SnapshotKeys, Snapshots};
use snavio_model::id::Serial;
use snavio_model::registry::snapshot::{Manifest, latest_key, verify};
use snavio_model::registry::{Change, Entry, Sealed, Unseal};
use snavio_model::signature::ed25519::{SigningKey, VerifyingKey};
use snavio_model::signature::signing::Secret;
use snavio_model::time::Timestamp;
use snavio_store::Store;
use snavio_store::engine::sqlite::{EmbeddedStore, Options};
use snavio_store::objects::{Objects, Place};

const NOON: Timestamp = Timestamp(1_800_000_000_000);

struct NoKeys;

impl Unseal for NoKeys {
    fn unseal(&self, _: &Sealed) -> Option<Secret> {
        None
    }
}

/// Keys made from seeds. The first key signs.
struct Seeds(Vec<u8>);

impl Seeds {
    fn keys(&self) -> impl Iterator<Item = SigningKey> {
        self.0.iter().map(|seed| SigningKey::from_seed(&[*seed; 32]))
    }
}

impl SnapshotKeys for Seeds {
    fn signing(&self) -> SigningKey {
        self.keys().next().unwrap()
    }

    fn verifying(&self) -> Vec<VerifyingKey> {
        self.keys().map(|key| key.verifying()).collect()
    }
}

fn store(folder: &Path) -> Arc<dyn Store> {
    Arc::new(EmbeddedStore::open(&Options::new(folder)).unwrap())
}

fn snapshots(folder: &Path) -> Snapshots {
    let place = Place { url: format!("file://{}/snapshots", folder.display()), options: Vec::new() };
    Snapshots {
        objects: Objects::open(&place).unwrap(),
        keys: Arc::new(Seeds(vec![1])),
        environment: "prod".to_owned(),
        interval: Duration::from_secs(1),
        ttl: Duration::from_secs(3600),
        bytes_max: 1 << 20,
        floor_file: folder.join("floor"),
    }
}

async fn register(store: &dyn Store, why: &str, entries: &[&str]) {
    let first = store.version().await.unwrap() + 1;
    let change = |(version, text): (i64, &&str)| {
        let entry: Entry = serde_json::from_str(text).unwrap();
        let (who, why) = ("operator".to_owned(), why.to_owned());
        Change { version, at: NOON, who, why, key: entry.key(), before: None, after: Some(entry) }
    };
    store.apply((first..).zip(entries).map(change).collect()).await.unwrap();
}

/// Starts a gate that writes a snapshot of the store, and returns the manifest.
async fn write_snapshot(store: &Arc<dyn Store>, folder: &Path) -> Manifest {
    let gate =
        Gate::start(Settings::default(), Arc::clone(store), Arc::new(NOON), Arc::new(NoKeys)).await.unwrap();
    gate.write_snapshots(Arc::new(snapshots(folder)));
    let version = store.version().await.unwrap();
    let there = snapshots(folder);
    let manifest = async {
        loop {
            if let Some(found) = there.objects.get(latest_key(), 1 << 20).await.unwrap() {
                let manifest = verify(&found.bytes, &there.keys.verifying()[0]).unwrap();
                if manifest.version_id == version {
                    return manifest;
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), manifest).await.expect("a snapshot is written")
}

async fn load(store: &Arc<dyn Store>, folder: &Path, now: Timestamp) -> Option<Loaded> {
    snapshots(folder).load(&**store, &now, &NoKeys).await
}

const ACME: [&str; 3] = [
    r#"{"kind":"tenant","name":"acme"}"#,
    r#"{"kind":"service","name":"acme/bot"}"#,
    r#"{"kind":"route","target":"acme/bot","name":"pay","queue":"q","dead_letter_queue":"d"}"#,
];

/// REG-20, REG-23
#[tokio::test(flavor = "multi_thread")]
async fn snapshot_has_the_entries_and_age_of_its_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("data"));
    register(&*store, "", &ACME).await;
    let manifest = write_snapshot(&store, folder.path()).await;
    assert_eq!((manifest.version_id, manifest.generated_at, manifest.entries()), (3, NOON, 3));
    let loaded = load(&store, folder.path(), NOON.plus(Duration::from_secs(30))).await.expect("it is good");
    let whole = Loaded::from_store(&*store, &NOON, &NoKeys).await.unwrap();
    assert!(loaded.registry.entries().eq(whole.registry.entries()));
    assert_eq!(loaded.registry.version(), 3);
    assert_eq!(loaded.current_at, NOON, "it is as old as its registry");
}

/// REG-23
#[tokio::test(flavor = "multi_thread")]
async fn snapshot_from_a_fast_clock_is_dated_now() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("data"));
    register(&*store, "", &ACME).await;
    assert_eq!(write_snapshot(&store, folder.path()).await.generated_at, NOON);
    let now = NOON.minus(Duration::from_secs(60));
    let loaded = load(&store, folder.path(), now).await.expect("so far ahead it may be");
    assert_eq!(loaded.current_at, now);
}

/// REG-13, REG-21
#[tokio::test(flavor = "multi_thread")]
async fn snapshot_is_valid_only_under_platform_keys() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("data"));
    register(&*store, "", &ACME).await;
    write_snapshot(&store, folder.path()).await;
    for (known, is_good) in [(vec![1], true), (vec![2, 1], true), (vec![2], false), (vec![2, 3], false)] {
        let snapshots = Snapshots { keys: Arc::new(Seeds(known.clone())), ..snapshots(folder.path()) };
        let loaded = snapshots.load(&*store, &NOON, &NoKeys).await;
        assert_eq!(loaded.is_some(), is_good, "by a node that knows {known:?}");
    }
}

/// REG-22
#[tokio::test(flavor = "multi_thread")]
async fn snapshot_leaves_out_a_failing_tenant_and_reports_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("data"));
    register(&*store, "", &ACME).await;
    // A registry file could not bring this about.
    let long = format!(r#"{{"kind":"tenant","name":"zeta","contact":"{}"}}"#, "x".repeat(100_000));
    let grant_to_acme = r#"{"kind":"grant","source":"zeta/bot","target":"acme/bot","name":"pay"}"#;
    register(&*store, "", &[&long, r#"{"kind":"service","name":"zeta/bot"}"#, grant_to_acme]).await;
    let manifest = write_snapshot(&store, folder.path()).await;
    assert_eq!((manifest.left_out, manifest.objects.len()), (vec!["zeta".to_owned()], 3));
    let kinds: Vec<_> =
        manifest.objects.iter().map(|object| (object.kind.as_str(), object.entries)).collect();
    assert_eq!(kinds, [("tenant", 1), ("service", 1), ("route", 1)]);
    assert!(load(&store, folder.path(), NOON).await.is_none(), "a node must not go by half of it");
    let reported = async {
        loop {
            let records = store.telemetry("zeta", Serial(0), 10).await.unwrap();
            if let Some(record) = records.first() {
                return record.clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let record =
        tokio::time::timeout(Duration::from_secs(20), reported).await.expect("the tenant gets a record");
    assert_eq!(record.kind, "snavio.snapshot.left_out");
    assert!(store.telemetry("acme", Serial(0), 10).await.unwrap().is_empty());
}

/// REG-21
#[tokio::test(flavor = "multi_thread")]
async fn snapshot_of_another_history_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let one = store(&folder.path().join("one"));
    register(&*one, "made", &ACME).await;
    write_snapshot(&one, folder.path()).await;
    let behind = store(&folder.path().join("behind"));
    register(&*behind, "made", &ACME[..2]).await;
    assert!(load(&behind, folder.path(), NOON).await.is_none(), "the store was never there");
    let other = store(&folder.path().join("other"));
    register(&*other, "made otherwise", &ACME).await;
    register(&*other, "and more", &[r#"{"kind":"tenant","name":"zeta"}"#]).await;
    assert!(load(&other, folder.path(), NOON).await.is_none(), "it came there another way");
    assert!(load(&one, folder.path(), NOON).await.is_some());
}
