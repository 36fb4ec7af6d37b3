//! The write-ahead log stays short under any load, and grows only as long as somebody reads an old state.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::crash::is_long;
use crate::node::{Cast, Draft, Node, binary, new_id, post_batch, until};

const MIB: u64 = 1024 * 1024;
const LOG_BYTES_MAX: u64 = 100 * MIB;

/// ENG-2
#[tokio::test(flavor = "multi_thread")]
async fn the_log_stays_short_under_load_and_is_short_again_after_a_backup() {
    let (before, beside) = if is_long() { (600 * MIB, 300 * MIB) } else { (160 * MIB, 32 * MIB) };
    let node = Node::start();
    let cast = node.cast().await;
    let load = Load::start(&node, &cast);

    let alone = load.watch(&node, before).await;
    assert!(alone < LOG_BYTES_MAX, "the log grew to {} MiB", alone / MIB);

    let copy = node.folder().join("copy.db");
    let mut backup = Command::new(binary());
    backup.arg("backup").arg("--data").arg(node.data()).arg("--to").arg(&copy);
    let mut backup = backup.stdout(Stdio::null()).spawn().expect("a backup can be started");
    let mut under_backup = 0;
    let ended = until(Duration::from_secs(120), "the backup ends", async || {
        under_backup = under_backup.max(load.watch(&node, 0).await);
        backup.try_wait().expect("the backup can be looked at")
    });
    assert!(ended.await.success());
    assert!(copy.metadata().expect("the copy is there").len() > before / 2);

    // Whatever it grew to beside the backup, it is short again soon.
    let length = || log_length(&node);
    until(Duration::from_secs(30), "the log is short again", async || {
        (length() < LOG_BYTES_MAX).then_some(())
    })
    .await;
    let after = load.watch(&node, beside).await;
    assert!(after < LOG_BYTES_MAX, "the log grew to {} MiB after a backup", after / MIB);
    println!(
        "log length: at most {} MiB under {} MiB of load, {} MiB beside a backup, {} MiB after it",
        alone / MIB,
        before / MIB,
        under_backup / MIB,
        after / MIB
    );
    load.stop().await;
}

fn log_length(node: &Node) -> u64 {
    std::fs::metadata(node.data().join("snavio.db-wal")).map_or(0, |it| it.len())
}

/// Batches sent as fast as the node takes them.
struct Load {
    accepted: Arc<std::sync::atomic::AtomicU64>,
    over: Arc<AtomicBool>,
    senders: tokio::task::JoinSet<()>,
}

impl Load {
    fn start(node: &Node, cast: &Cast) -> Self {
        const MESSAGES: usize = 40;
        const PAYLOAD_BYTES: usize = 64 * 1024;
        let accepted = Arc::<std::sync::atomic::AtomicU64>::default();
        let over = Arc::<AtomicBool>::default();
        let mut senders = tokio::task::JoinSet::new();
        for _ in 0..2 {
            let (client, credentials) = (node.client(&cast.billing), cast.billing.clone());
            let (accepted, over) = (Arc::clone(&accepted), Arc::clone(&over));
            senders.spawn(async move {
                let payload = format!(r#"{{"text":"{}"}}"#, "x".repeat(PAYLOAD_BYTES));
                while !over.load(Ordering::Relaxed) {
                    let draft = || Draft { payload: payload.clone(), ..Draft::new("notify", &new_id()) };
                    let signed: Vec<_> = (0..MESSAGES).map(|_| draft().sign(&credentials)).collect();
                    let results = post_batch(&client, &signed).await.expect("the node answers");
                    let taken = results.iter().filter(|result| result["status"] == 202).count();
                    assert_eq!(taken, MESSAGES, "{:?}", results.first());
                    accepted.fetch_add((taken * PAYLOAD_BYTES) as u64, Ordering::Relaxed);
                }
            });
        }
        Self { accepted, over, senders }
    }

    /// The longest that the log was while so many more bytes were accepted: all of them went through it.
    async fn watch(&self, node: &Node, bytes: u64) -> u64 {
        let end = self.accepted.load(Ordering::Relaxed) + bytes;
        let mut longest = 0;
        until(Duration::from_secs(300), "the load goes through", async || {
            longest = longest.max(log_length(node));
            (self.accepted.load(Ordering::Relaxed) >= end).then_some(())
        })
        .await;
        longest
    }

    async fn stop(self) {
        self.over.store(true, Ordering::Relaxed);
        self.senders.join_all().await;
    }
}
