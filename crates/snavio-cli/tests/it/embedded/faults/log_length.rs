//! The write-ahead log stays short under any load. It grows only while a reader holds an old state of
//! the database.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::embedded::crash::is_long;
use crate::node::{Cast, Draft, Node, binary, new_id, post_batch, send_signal};
use crate::patience::{eventually, within};

const MIB: u64 = 1024 * 1024;
const LOG_BYTES_MAX: u64 = 100 * MIB;

/// ENG-2
#[tokio::test(flavor = "multi_thread")]
async fn log_stays_short_under_load_and_after_slow_backup() {
    let (before, after) = if is_long() { (800 * MIB, 400 * MIB) } else { (160 * MIB, 64 * MIB) };
    let node = Node::start();
    let cast = node.cast().await;
    let load = Load::start(&node, &cast);
    let alone = load.watch(&node, before).await;
    assert!(alone < LOG_BYTES_MAX, "the log grew to {} MiB", alone / MIB);

    // A backup reads one state of the database to its end. The log cannot start over until then.
    let copy = node.folder().join("copy.db");
    let mut backup = start_backup(&node, &copy);
    let partial = node.folder().join(format!("copy.db.{}.partial", backup.id()));
    eventually("the backup begins", async || partial.exists().then_some(())).await;
    send_signal(backup.id(), "STOP");
    let beside = load.watch(&node, LOG_BYTES_MAX).await;
    assert!(beside > LOG_BYTES_MAX, "the backup ended too soon: {} MiB", beside / MIB);
    assert!(!copy.exists(), "half a copy must not look like a backup");
    send_signal(backup.id(), "CONT");
    let ended = within(Duration::from_secs(120), "the backup ends", async || {
        backup.try_wait().expect("the backup's status can be read")
    });
    assert!(ended.await.success());
    assert!(copy.metadata().expect("the copy is there").len() > before / 2);

    eventually("the log is short again", async || (log_length(&node) < LOG_BYTES_MAX).then_some(())).await;
    let again = load.watch(&node, after).await;
    assert!(again < LOG_BYTES_MAX, "the log grew to {} MiB after a backup", again / MIB);
    let accepted = load.stop().await;
    println!(
        "log length: {} MiB accepted; at most {} MiB, {} MiB beside a backup that was held up, {} MiB after it",
        accepted / MIB,
        alone / MIB,
        beside / MIB,
        again / MIB
    );
}

fn start_backup(node: &Node, copy: &Path) -> Child {
    let mut backup = Command::new(binary());
    backup.arg("backup").arg("--data").arg(node.data()).arg("--to").arg(copy);
    backup.stdout(Stdio::null()).spawn().expect("a backup can be started")
}

fn log_length(node: &Node) -> u64 {
    std::fs::metadata(node.data().join("snavio.db-wal")).map_or(0, |metadata| metadata.len())
}

/// Producers of batches that send as fast as the node accepts.
struct Load {
    accepted: Arc<AtomicU64>,
    is_finished: Arc<AtomicBool>,
    senders: tokio::task::JoinSet<()>,
}

impl Load {
    fn start(node: &Node, cast: &Cast) -> Self {
        const MESSAGES: usize = 40;
        const PAYLOAD_BYTES: usize = 64 * 1024;
        let accepted = Arc::<AtomicU64>::default();
        let is_finished = Arc::<AtomicBool>::default();
        let mut senders = tokio::task::JoinSet::new();
        for _ in 0..2 {
            let (client, credentials) = (node.client(&cast.billing), cast.billing.clone());
            let (accepted, is_finished) = (Arc::clone(&accepted), Arc::clone(&is_finished));
            senders.spawn(async move {
                let payload = format!(r#"{{"text":"{}"}}"#, "x".repeat(PAYLOAD_BYTES));
                while !is_finished.load(Ordering::Relaxed) {
                    let draft = || Draft { payload: payload.clone(), ..Draft::new("notify", &new_id()) };
                    let signed: Vec<_> = (0..MESSAGES).map(|_| draft().sign(&credentials)).collect();
                    let results = post_batch(&client, &signed).await.expect("the node answers");
                    let accepted_now = results.iter().filter(|result| result["status"] == 202).count();
                    assert_eq!(accepted_now, MESSAGES, "{:?}", results.first());
                    accepted.fetch_add((accepted_now * PAYLOAD_BYTES) as u64, Ordering::Relaxed);
                }
            });
        }
        Self { accepted, is_finished, senders }
    }

    /// The greatest length of the log while `bytes` more payload bytes were accepted, which all went through
    /// the log.
    async fn watch(&self, node: &Node, bytes: u64) -> u64 {
        let end = self.accepted.load(Ordering::Relaxed) + bytes;
        let mut longest = 0;
        within(Duration::from_secs(300), "the node accepts the load", async || {
            longest = longest.max(log_length(node));
            (self.accepted.load(Ordering::Relaxed) >= end).then_some(())
        })
        .await;
        longest
    }

    /// Stops the producers and returns the accepted payload bytes.
    async fn stop(self) -> u64 {
        self.is_finished.store(true, Ordering::Relaxed);
        self.senders.join_all().await;
        self.accepted.load(Ordering::Relaxed)
    }
}
