//! PIP-5, seen in the node's system calls: a message is written, flushed, and only then answered.

mod trace;

use std::collections::{BTreeMap, HashSet};

use crate::node::{Cast, Draft, Node, new_id, post};
use crate::patience::poll;
use crate::strace::{FLUSHES, Strace, WRITES};
use trace::{Call, parse};

/// Producers that send at the same time.
const CONCURRENCY: usize = 8;
/// What each of them sends.
const MESSAGES_EACH: usize = 20;

/// PIP-5
#[tokio::test(flavor = "multi_thread")]
async fn every_message_is_flushed_before_it_is_answered() {
    let (ids, calls) = traced_run(None).await;
    assert!(ids.len() >= 100, "only {} messages were accepted", ids.len());
    assert_eq!(answered_too_early(&calls, &ids), Vec::<String>::new());
    println!("flush order: {} messages, each flushed before it was answered", ids.len());
}

/// PIP-5
#[test]
fn a_folder_that_was_made_has_its_name_flushed_too() {
    let folder = tempfile::tempdir().unwrap();
    let above = folder.path().canonicalize().unwrap();
    let strace = Strace::of(FLUSHES, above.join("trace")).option("-f").option("-y");
    let mut node = Node::launch_in(folder, &strace.launch());
    for flushed in [node.data(), above] {
        let of_it = |call: &Call| call.succeeded() && call.file() == flushed.to_string_lossy();
        let seen = || parse(&strace.seen()).iter().any(of_it).then_some(());
        poll(&format!("{} is flushed", flushed.display()), seen);
    }
    node.stop();
}

/// QUA-2
#[cfg_attr(not(feature = "plant"), ignore = "needs --features snavio-cli/plant, as ./test runs it")]
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_before_the_commit_is_noticed() {
    let (ids, calls) = traced_run(Some("acknowledge-before-commit")).await;
    let early = answered_too_early(&calls, &ids);
    println!("planted acknowledge-before-commit: {} of {} answers too early", early.len(), ids.len());
    assert!(early.len() > ids.len() / 2, "the planted bug went unnoticed: {} of {}", early.len(), ids.len());
}

/// QUA-2
#[cfg_attr(not(feature = "plant"), ignore = "needs --features snavio-cli/plant, as ./test runs it")]
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_without_a_flush_is_noticed() {
    let (ids, calls) = traced_run(Some("skip-flush")).await;
    let early = answered_too_early(&calls, &ids);
    println!("planted skip-flush: {} of {} answers too early", early.len(), ids.len());
    assert_eq!(early.len(), ids.len(), "the planted bug went unnoticed");
}

/// Sends on the strict route to a traced node; says which messages were accepted and what the node did.
async fn traced_run(plant: Option<&str>) -> (HashSet<String>, Vec<Call>) {
    // A planted bug would spoil the registration too.
    let mut node = Node::start();
    let cast = node.cast().await;
    node.stop();
    let calls = format!("{WRITES},{FLUSHES},write,writev,sendto,sendmsg");
    let mut strace = Strace::of(&calls, node.folder().join("trace"));
    // Whole pages as text: ids are stored as they are written.
    for option in ["-f", "--seccomp-bpf", "-y", "-s", "65536"] {
        strace = strace.option(option);
    }
    node.restart(&match plant {
        None => strace.launch(),
        // A flush that takes its time, as on a slow disk, leaves no doubt about what came first.
        Some(plant) => strace.clone().inject(FLUSHES, "delay_enter=10000").launch().set("PLANT", plant),
    });
    let ids = send_from_many(&node, &cast).await;
    node.stop();
    let whole = || Some(strace.seen()).filter(|seen| ended(seen, node.pid()));
    let seen = poll("strace writes the rest", whole);
    (ids, parse(&seen))
}

/// Whether the trace shows the process's end.
fn ended(seen: &str, pid: u32) -> bool {
    seen.lines().rev().take(50).any(|line| {
        line.split_once(' ').is_some_and(|(thread, rest)| {
            thread == pid.to_string() && rest.trim_start().starts_with("+++ exited")
        })
    })
}

async fn send_from_many(node: &Node, cast: &Cast) -> HashSet<String> {
    let mut producers = tokio::task::JoinSet::new();
    for _ in 0..CONCURRENCY {
        let (client, credentials) = (node.client(&cast.billing), cast.billing.clone());
        producers.spawn(async move {
            let mut accepted = Vec::new();
            for _ in 0..MESSAGES_EACH {
                let draft = Draft::new("pay", &new_id());
                let (status, _) = post(&client, draft.sign(&credentials)).await;
                accepted.extend((status == 202).then_some(draft.id));
            }
            accepted
        });
    }
    producers.join_all().await.into_iter().flatten().collect()
}

/// Ids that were answered although no flush of the write-ahead log had begun after their write and returned
/// before their answer.
fn answered_too_early(calls: &[Call], ids: &HashSet<String>) -> Vec<String> {
    let is_log = |call: &&Call| call.file().ends_with("-wal") && call.succeeded();
    let is_flush = |call: &&Call| FLUSHES.split(',').any(|it| it == call.name);
    let is_write = |call: &&Call| WRITES.split(',').any(|it| it == call.name);
    let is_answer = |call: &&Call| call.file().starts_with("socket:") || call.file().starts_with("TCP");
    let written = first_with(calls.iter().filter(is_write).filter(is_log), ids);
    let answered = first_with(calls.iter().filter(is_answer), ids);
    let flushes: Vec<_> = calls.iter().filter(is_flush).filter(is_log).collect();
    let in_order = |id: &String| {
        let answer = answered.get(id).unwrap_or_else(|| panic!("the trace does not show the answer to {id}"));
        let Some(write) = written.get(id).and_then(|write| write.returned) else { return false };
        flushes.iter().any(|flush| flush.begun > write && flush.returned.is_some_and(|it| it < answer.begun))
    };
    ids.iter().filter(|id| !in_order(id)).cloned().collect()
}

/// For each id, the first of the calls that holds it.
fn first_with<'c>(
    calls: impl Iterator<Item = &'c Call>,
    ids: &HashSet<String>,
) -> BTreeMap<String, &'c Call> {
    let mut first = BTreeMap::new();
    for call in calls {
        for id in ids_in(&call.text).filter(|id| ids.contains(*id)) {
            first.entry(id.to_owned()).or_insert(call);
        }
    }
    first
}

/// Whatever has the shape of an id: 36 bytes, of which the ninth is the first hyphen.
fn ids_in(text: &str) -> impl Iterator<Item = &str> {
    let hyphens = text.match_indices('-');
    hyphens.filter_map(|(place, _)| text.get(place.checked_sub(8)?..place + 28))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0190b5a4-0000-7000-8000-000000000001";

    fn early(lines: &[&str]) -> usize {
        let trace = lines.join("\n").replace("ID", ID);
        answered_too_early(&parse(&trace), &HashSet::from([ID.to_owned()])).len()
    }

    const WRITE: &str = r#"1 pwrite64(3</d/x-wal>, "\0ID\0", 38, 0) = 38"#;
    const FLUSH: &str = "1 fsync(3</d/x-wal>) = 0";
    const ANSWER: &str = r#"2 sendto(9<socket:[1]>, "ID", 36) = 36"#;

    #[test]
    fn the_order_is_write_flush_answer() {
        assert_eq!(early(&[WRITE, FLUSH, ANSWER]), 0);
        assert_eq!(early(&[FLUSH, WRITE, ANSWER]), 1, "the flush was of something else");
        assert_eq!(early(&[WRITE, ANSWER, FLUSH]), 1, "the answer did not wait");
        assert_eq!(early(&[ANSWER, WRITE, FLUSH]), 1, "nothing was there yet");
        assert_eq!(early(&[ANSWER]), 1, "nothing was ever there");
    }

    #[test]
    fn only_a_flush_of_the_log_that_has_returned_counts() {
        let begun = "1 fsync(3</d/x-wal> <unfinished ...>";
        let resumed = "1 <... fsync resumed>) = 0";
        assert_eq!(early(&[WRITE, begun, ANSWER, resumed]), 1);
        assert_eq!(early(&[WRITE, begun, resumed, ANSWER]), 0);
        assert_eq!(early(&[begun, WRITE, resumed, ANSWER]), 1, "it began before the write");
        assert_eq!(early(&[WRITE, "1 fsync(3</d/x>) = 0", ANSWER]), 1, "it was of another file");
        assert_eq!(early(&[WRITE, "1 fsync(3</d/x-wal>) = -1 EIO (I/O error)", ANSWER]), 1);
    }
}
