//! Snapshots of the registry in a folder: a node starts from one, and refuses each kind of damaged snapshot
//! with its own reason (REG-20 to REG-23).

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Method;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use crate::node::{Cast, Draft, Launch, Node, new_id, post};
use crate::patience::eventually;
use crate::wire::metrics;

const READ: &str = "the registry was read from a snapshot";

/// A folder of snapshots, shared by the nodes that write and read them.
struct SnapshotFolder(tempfile::TempDir);

impl SnapshotFolder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Settings of a node that writes a snapshot every second.
    fn launch(&self) -> Launch {
        Launch::default()
            .set("SNAPSHOT_URL", format!("file://{}", self.path().display()))
            .set("SNAPSHOT_ENVIRONMENT", "prod")
            .set("SNAPSHOT_INTERVAL_SECONDS", 1)
            .set("LOG_FILTER", "info")
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("snapshots")
    }

    fn latest(&self) -> PathBuf {
        self.path().join("registry/latest.json")
    }

    fn manifest(&self) -> Option<Value> {
        let text = std::fs::read(self.latest()).ok()?;
        Some(serde_json::from_slice::<Value>(&text).ok()?["manifest"].clone())
    }

    /// The size of all objects that the manifest names, in bytes.
    fn bytes(&self) -> u64 {
        let manifest = self.manifest().unwrap();
        manifest["objects"].as_array().unwrap().iter().map(|object| object["bytes"].as_u64().unwrap()).sum()
    }

    fn version(&self) -> i64 {
        self.manifest().and_then(|manifest| manifest["version_id"].as_i64()).unwrap_or(-1)
    }

    /// The path of the object of this kind.
    fn object(&self, kind: &str) -> PathBuf {
        let manifest = self.manifest().unwrap();
        let objects = manifest["objects"].as_array().unwrap();
        let object =
            objects.iter().find(|object| object["kind"] == kind).expect("the kind is in the snapshot");
        self.path().join(object["key"].as_str().unwrap())
    }

    /// Waits until the snapshot has the registry's current version, and returns it.
    async fn wait_until_current(&self, node: &Node) -> i64 {
        let version = registry_version(node).await;
        eventually("the snapshot is written", async || (self.version() == version).then_some(version)).await
    }

    fn copy_to(&self, other: &Path) {
        copy(&self.path(), other);
    }

    fn restore(&self, saved: &Path) {
        std::fs::remove_dir_all(self.path()).unwrap();
        copy(saved, &self.path());
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn edit(file: PathBuf, change: &dyn Fn(Vec<u8>) -> Vec<u8>) {
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(file, change(bytes)).unwrap();
}

fn cut_in_half(bytes: Vec<u8>) -> Vec<u8> {
    bytes[..bytes.len() / 2].to_vec()
}

fn flip_last_bit(mut bytes: Vec<u8>) -> Vec<u8> {
    *bytes.last_mut().unwrap() ^= 1;
    bytes
}

/// Changes the signed environment of a manifest.
fn change_environment(bytes: Vec<u8>) -> Vec<u8> {
    String::from_utf8(bytes).unwrap().replace("prod", "prox").into_bytes()
}

async fn registry_version(node: &Node) -> i64 {
    metrics(node).await["snavio_registry_version"] as i64
}

async fn load_failures(node: &Node, cause: &str) -> f64 {
    let series = format!("snavio_snapshot_load_failures_total{{cause=\"{cause}\"}}");
    metrics(node).await.get(&series).copied().unwrap_or(0.0)
}

async fn send_pay(node: &Node, cast: &Cast) -> u16 {
    post(&node.client(&cast.billing), Draft::new("pay", &new_id()).sign(&cast.billing)).await.0
}

async fn change_contact(node: &Node, contact: &str) {
    let tenant = json!({ "tenants": [{ "name": "acme", "contact": contact }] });
    node.apply(&tenant).await;
}

/// The part of the log after `before`, an earlier value of the log.
fn log_since(node: &Node, before: &str) -> String {
    node.said()[before.len()..].to_owned()
}

/// REG-20, REG-23
#[tokio::test]
async fn node_starts_from_snapshot_and_reads_later_changes() {
    let folder = SnapshotFolder::new();
    let mut node = Node::launch(&folder.launch());
    let cast = node.cast().await;
    let version = folder.wait_until_current(&node).await;
    node.kill();
    let names: Vec<_> = folder.manifest().unwrap()["objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| object["kind"].clone())
        .collect();
    assert_eq!(names, ["tenant", "service", "key", "client", "route", "grant"]);

    // A node that writes no snapshots changes the registry.
    node.restart(&Launch::default());
    let grant = "/v1/grants?source=acme/billing&target=acme/bot&name=notify";
    node.operator().call(Method::DELETE, grant, None).await.unwrap();
    node.kill();
    assert_eq!(folder.version(), version);

    let before = node.said();
    node.restart(&folder.launch());
    assert!(log_since(&node, &before).contains(READ), "{}", node.said());
    assert_eq!(send_pay(&node, &cast).await, 202);
    let notify = Draft::new("notify", &new_id()).sign(&cast.billing);
    assert_eq!(
        post(&node.client(&cast.billing), notify).await.1["reason"],
        "acl-deny",
        "the difference is read"
    );
    node.kill();

    let before = node.said();
    node.restart(&folder.launch().set("SNAPSHOT_PRELOAD", false));
    assert!(!log_since(&node, &before).contains(READ), "it was told to load from the store");
    assert_eq!(send_pay(&node, &cast).await, 202);
}

/// REG-21
#[tokio::test]
async fn damaged_snapshot_is_refused_with_reason_and_node_starts() {
    let folder = SnapshotFolder::new();
    let mut node = Node::launch(&folder.launch());
    let cast = node.cast().await;
    let older = folder.wait_until_current(&node).await;
    let kept = tempfile::tempdir().unwrap();
    folder.copy_to(&kept.path().join("older"));
    change_contact(&node, "ops@acme.example").await;
    assert!(folder.wait_until_current(&node).await > older);
    node.kill();
    // A start that verifies the newer snapshot raises the floor, below which snapshots are refused as rolled
    // back.
    node.restart(&folder.launch());
    node.kill();
    folder.copy_to(&kept.path().join("newer"));

    let older_object = {
        let older = SnapshotFolder(tempfile::tempdir_in(kept.path()).unwrap());
        copy(&kept.path().join("older"), &older.path());
        std::fs::read(older.object("grant")).unwrap()
    };
    let launch = || folder.launch().set("SNAPSHOT_INTERVAL_SECONDS", 60);
    type Tampering<'a> = Box<dyn Fn() + 'a>;
    let cases: [(&str, Tampering<'_>, Launch); 9] = [
        ("wrong_signature", Box::new(|| edit(folder.latest(), &change_environment)), launch()),
        ("malformed", Box::new(|| edit(folder.latest(), &cut_in_half)), launch()),
        ("wrong_digest", Box::new(|| edit(folder.object("grant"), &flip_last_bit)), launch()),
        ("truncated", Box::new(|| edit(folder.object("grant"), &cut_in_half)), launch()),
        ("mixed", Box::new(|| edit(folder.object("grant"), &|_| older_object.clone())), launch()),
        ("missing", Box::new(|| std::fs::remove_file(folder.object("grant")).unwrap()), launch()),
        ("rolled_back", Box::new(|| folder.restore(&kept.path().join("older"))), launch()),
        ("other_environment", Box::new(|| ()), launch().set("SNAPSHOT_ENVIRONMENT", "test")),
        ("oversized", Box::new(|| ()), launch().set("SNAPSHOT_BYTES_MAX", 100)),
    ];
    for (cause, tamper, launch) in cases {
        folder.restore(&kept.path().join("newer"));
        tamper();
        let before = node.said();
        node.restart(&launch);
        let log = log_since(&node, &before);
        assert!(log.contains("a snapshot is refused") && log.contains(cause), "{cause}: {log}");
        assert!(!log.contains(READ), "{cause}: {log}");
        assert!(load_failures(&node, cause).await >= 1.0, "{cause}");
        assert_eq!(send_pay(&node, &cast).await, 202, "{cause}: it was loaded from the store");
        node.kill();
    }
    folder.restore(&kept.path().join("newer"));
    let before = node.said();
    node.restart(&launch());
    assert!(log_since(&node, &before).contains(READ), "the undamaged snapshot is still accepted");
}

/// REG-21
#[tokio::test]
async fn expired_snapshot_is_refused() {
    let folder = SnapshotFolder::new();
    let mut node = Node::launch(&folder.launch().set("SNAPSHOT_TTL_SECONDS", 1));
    let cast = node.cast().await;
    folder.wait_until_current(&node).await;
    node.kill();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    node.restart(&folder.launch());
    assert_eq!(load_failures(&node, "expired").await, 1.0);
    assert_eq!(send_pay(&node, &cast).await, 202);
}

/// REG-21
#[tokio::test]
async fn running_node_detects_and_rewrites_damaged_snapshot() {
    let folder = SnapshotFolder::new();
    let node = Node::launch(&folder.launch());
    let cast = node.cast().await;
    folder.wait_until_current(&node).await;
    let good = std::fs::read(folder.latest()).unwrap();

    let forged = String::from_utf8(good).unwrap().replace("prod", "prox");
    std::fs::write(folder.latest(), forged).unwrap();
    eventually("the failure is counted", async || {
        (load_failures(&node, "wrong_signature").await > 0.0).then_some(())
    })
    .await;
    eventually("the snapshot is rewritten", async || {
        (folder.manifest()?["environment"] == "prod").then_some(())
    })
    .await;

    std::fs::write(folder.object("grant"), "x").unwrap();
    eventually("the failure is counted", async || {
        (load_failures(&node, "truncated").await > 0.0).then_some(())
    })
    .await;
    eventually("the snapshot is rewritten", async || {
        (std::fs::read(folder.object("grant")).ok()?.len() > 1).then_some(())
    })
    .await;
    assert_eq!(send_pay(&node, &cast).await, 202);
}

/// REG-20
#[tokio::test]
async fn killed_writer_leaves_previous_snapshot() {
    let folder = SnapshotFolder::new();
    let mut node = Node::launch(&folder.launch());
    let cast = node.cast().await;
    let version = folder.wait_until_current(&node).await;
    let lock = std::fs::File::options().write(true).open(folder.path().join("registry.lock")).unwrap();
    eventually("the lock is free", async || flock(&lock, FlockOperation::NonBlockingLockExclusive).ok())
        .await;
    change_contact(&node, "ops@acme.example").await;
    let next = folder.path().join(format!("registry/{}", version + 1));
    eventually("the objects are written", async || {
        let objects = std::fs::read_dir(&next).ok()?.count();
        (objects == 6).then_some(())
    })
    .await;
    node.kill();
    assert_eq!(folder.version(), version);
    drop(lock);

    let before = node.said();
    node.restart(&folder.launch());
    assert!(log_since(&node, &before).contains(READ), "{}", node.said());
    assert_eq!(send_pay(&node, &cast).await, 202);
    assert_eq!(folder.wait_until_current(&node).await, version + 1);
}

/// REG-22
#[tokio::test]
async fn oversized_snapshot_is_reported_and_last_one_stays() {
    let folder = SnapshotFolder::new();
    let mut node = Node::launch(&folder.launch());
    let cast = node.cast().await;
    let version = folder.wait_until_current(&node).await;
    node.kill();
    node.restart(&folder.launch().set("SNAPSHOT_BYTES_MAX", 100));
    change_contact(&node, "ops@acme.example").await;
    let series = "snavio_snapshot_write_failures_total{cause=\"too_large\"}";
    eventually("the failure is counted", async || {
        metrics(&node).await.get(series).copied().filter(|count| *count > 0.0)
    })
    .await;
    assert!(node.said().contains("snavio.snapshot.too_large"), "{}", node.said());
    assert_eq!(folder.version(), version);
    assert_eq!(send_pay(&node, &cast).await, 202);
    node.kill();
    node.restart(&folder.launch().set("SNAPSHOT_BYTES_MAX", folder.bytes() * 11 / 10));
    eventually("the node warns", async || node.said().contains("close to the bytes").then_some(())).await;
}

/// REG-20
#[tokio::test]
async fn old_versions_are_removed_and_every_write_is_measured() {
    let folder = SnapshotFolder::new();
    let node = Node::launch(&folder.launch());
    node.cast().await;
    for n in 0..5 {
        change_contact(&node, &format!("ops-{n}@acme.example")).await;
        folder.wait_until_current(&node).await;
    }
    eventually("three stay", async || {
        let all = std::fs::read_dir(folder.path().join("registry")).unwrap().map(Result::unwrap);
        (all.filter(|entry| entry.path().is_dir()).count() == 3).then_some(())
    })
    .await;
    let now = metrics(&node).await;
    assert!(now["snavio_snapshots_written_total"] >= 5.0);
    assert_eq!(now["snavio_snapshot_write_seconds_count"], now["snavio_snapshots_written_total"]);
    assert_eq!(now["snavio_snapshot_bytes"], folder.bytes() as f64);
    let before = folder.manifest().unwrap()["generated_at"].clone();
    eventually("the snapshot is renewed", async || {
        (folder.manifest()?["generated_at"] != before).then_some(())
    })
    .await;
}

/// REG-13, REG-20
#[tokio::test]
async fn snapshot_holds_no_secret() {
    let folder = SnapshotFolder::new();
    let node = Node::launch(&folder.launch());
    let cast = node.cast().await;
    folder.wait_until_current(&node).await;
    let key = std::fs::read(folder.object("key")).unwrap();
    let header = key.iter().position(|byte| *byte == b'\n').unwrap();
    let lines = zstd::bulk::decompress(&key[header + 1..], 1 << 20).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    assert_eq!(lines.lines().count(), 2);
    let document = serde_json::to_value(&cast.billing).unwrap();
    for (name, secret) in document.as_object().unwrap() {
        if name.contains("secret") {
            assert!(!lines.contains(secret.as_str().unwrap()), "{name}");
        }
    }
    assert!(lines.contains("\"secret\":\"v2."), "the secret is encrypted: {lines}");
}
