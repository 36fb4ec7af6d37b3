//! A full disk: a small file system for the node alone, which the test fills and empties.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Method;

use super::account_after_restart;
use crate::embedded::crash::{Actors, Sent, Tally};
use crate::node::{Draft, Launch, Node, new_id, post};
use crate::patience::{eventually, poll};
use crate::strace::{Strace, WRITES};

/// QUA-1, QUA-4, PIP-4
#[tokio::test(flavor = "multi_thread")]
async fn full_disk_refuses_messages_and_node_recovers() {
    let mut node = start_on_small_disk();
    let cast = node.cast().await;
    let tally: Arc<Mutex<Tally>> = Arc::default();
    let actors = Actors::new(&node, &cast, &tally);
    for _ in 0..5 {
        actors.send_new("pay").await.expect("the node answers");
    }
    let filler = fill(&node);

    // The log may find room in its own file for a while. Wait until messages are refused over several
    // checkpoints.
    let mut refused_in_a_row = 0;
    let refused = eventually("the disk is too full for a message", async || {
        let payload = format!(r#"{{"text":"{}"}}"#, "x".repeat(50_000));
        let draft = Draft { payload, ..Draft::new("pay", &new_id()) };
        match actors.send(&draft).await {
            Sent::Acknowledged => refused_in_a_row = 0,
            Sent::Unknown => panic!("the node went away: {}", node.said()),
            Sent::Refused(..) if refused_in_a_row < 10 => {
                refused_in_a_row += 1;
                tokio::time::sleep(Duration::from_millis(60)).await;
            }
            Sent::Refused(status, document) => return Some((draft, status, document)),
        }
        None
    })
    .await;
    let (draft, code, document) = refused;
    assert_eq!((code, &document["reason"]), (503, &"unavailable".into()), "{document}");
    assert_eq!((&document["accepted"], &document["retry_after_ms"]), (&false.into(), &1000.into()));
    assert!(has_retry_after(&node, &cast, &draft).await, "the refusal has Retry-After");

    // Reads and receives continue.
    let bot = node.client(&cast.bot);
    let queue =
        bot.call(Method::GET, "/v1/queues/pay-inbox", None).await.expect("the queue can be looked at");
    assert!(queue["depth"].as_u64().unwrap() >= 5, "{queue}");
    let received = actors.receive("pay-inbox", 1, Duration::from_secs(600), Duration::ZERO).await;
    assert_eq!(received.expect("the node answers").len(), 1);
    assert!(matches!(actors.send(&draft).await, Sent::Refused(503, _)), "it is still full");

    std::fs::remove_file(filler).expect("the filler can be removed");
    let billing = node.client(&cast.billing);
    let (code, answer) = eventually("the node recovers by itself", async || {
        Some(post(&billing, draft.sign(&cast.billing)).await).filter(|(code, _)| *code != 503)
    })
    .await;
    assert_eq!(
        (code, &answer["duplicate"]),
        (202, &serde_json::Value::Null),
        "the refused message left no claim"
    );
    actors.tally().acknowledged(&draft.id, true, false);

    // The small disk ends with the process, so move the store before the tally is checked.
    drop(actors);
    kill_and_keep_store(&mut node);
    account_after_restart(&mut node, &cast, tally).await;
}

/// QUA-1, DLV-2
#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_is_written_once_full_disk_has_room() {
    let node = Node::start();
    let cast = node.cast().await;
    let actors = Actors::new(&node, &cast, &Arc::default());
    actors.send_new("pay").await.expect("the node answers");
    let receive = async || {
        let received = actors.receive("pay-inbox", 1, Duration::ZERO, Duration::ZERO).await;
        received.expect("the node answers").len()
    };
    for _ in 0..3 {
        assert_eq!(receive().await, 1);
    }
    let strace = Strace::of(WRITES, node.folder().join("trace")).inject(WRITES, "error=ENOSPC");
    let tracing = strace.attach(&node, "snavio-writer");
    assert_eq!(receive().await, 0, "the receives of its route are used up");
    let has_failed = || node.said().contains("dead letters were not written").then_some(());
    poll("the dead letter cannot be written", has_failed);
    assert!(strace.fired() > 0);
    drop(tracing);
    eventually("the dead letter is written by itself", async || {
        let letters =
            node.client(&cast.bot).call(Method::GET, "/v1/dead-letters", None).await.expect("a list");
        letters["items"].as_array().filter(|items| items.len() == 1).map(|_| ())
    })
    .await;
}

/// Starts a node whose data folder is a file system of 16 MiB in memory, mounted where only the node sees it.
/// This needs no privileges if users may have namespaces, and root otherwise.
fn start_on_small_disk() -> Node {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("a folder can be made");
    let unshare = ["-Urm", "-m"].into_iter().find(|namespaces| {
        let mut tried = Command::new("unshare");
        tried.args([namespaces, "mount", "-t", "tmpfs", "tmpfs"]).arg(&data);
        tried.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    });
    let unshare =
        unshare.expect("this test needs a mount namespace: allow user namespaces, or run it as root");
    let mount = format!("mount -t tmpfs -o size=16m tmpfs '{}' && exec \"$@\"", data.display());
    let words = ["unshare", unshare, "sh", "-c", &mount, "sh"].map(str::to_owned);
    Node::launch_in(folder, &Launch::under(words.into()))
}

/// Fills the disk with a file and returns its path.
fn fill(node: &Node) -> std::path::PathBuf {
    let path = node.data_within().join("filler");
    let mut file = std::fs::File::create(&path).expect("a file can be made on the small disk");
    let mut chunk = 1024 * 1024;
    while chunk > 0 {
        match file.write(&vec![0; chunk]) {
            Ok(written) if written > 0 => {}
            _ => chunk /= 2,
        }
    }
    path
}

async fn has_retry_after(node: &Node, cast: &crate::node::Cast, draft: &Draft) -> bool {
    let api = node.client(&cast.billing).authorized().await.expect("the service is authenticated");
    let sent =
        api.send(Method::POST, "/v1/commands", Some(draft.sign(&cast.billing)), "application/json").await;
    matches!(sent, Err(error) if error.retry_after() == Some(Duration::from_secs(1)))
}

/// Copies the store from the small disk to the real one while the process still holds the small one, then
/// kills it.
fn kill_and_keep_store(node: &mut Node) {
    node.signal("STOP");
    let copied = Command::new("cp").arg("-a").arg(node.data_within()).arg(node.folder()).status();
    assert!(copied.expect("cp runs").success());
    node.kill();
}
