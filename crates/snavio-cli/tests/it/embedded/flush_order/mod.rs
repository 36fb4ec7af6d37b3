//! PIP-5 in the node's system calls: the node writes a message, flushes it, and only then answers.

mod trace;

use std::collections::{BTreeMap, HashSet};

use crate::node::{Cast, Draft, Node, new_id, post};
use crate::patience::poll;
use crate::strace::{FLUSHES, Strace, WRITES};
use trace::{Call, parse};

/// The number of concurrent producers.
const CONCURRENCY: usize = 8;
/// The number of messages of each producer.
const MESSAGES_EACH: usize = 20;

/// PIP-5
#[tokio::test(flavor = "multi_thread")]
async fn every_message_is_flushed_before_it_is_answered() {
    let (ids, calls) = run_traced(None).await;
    assert!(ids.len() >= 100, "only {} messages were accepted", ids.len());
    assert_eq!(find_early_answers(&calls, &ids), Vec::<String>::new());
    println!("flush order: {} messages, each flushed before it was answered", ids.len());
}

/// PIP-5
#[test]
fn parent_of_new_data_folder_is_flushed() {
    let folder = tempfile::tempdir().unwrap();
    let above = folder.path().canonicalize().unwrap();
    let strace = Strace::of(FLUSHES, above.join("trace")).option("-f").option("-y");
    let mut node = Node::launch_in(folder, &strace.launch());
    for flushed in [node.data(), above] {
        poll(&format!("{} is flushed", flushed.display()), || {
            let calls = parse(&strace.seen());
            calls
                .iter()
                .any(|call| call.succeeded() && call.file() == flushed.to_string_lossy())
                .then_some(())
        });
    }
    node.stop();
}

/// QUA-2
#[cfg_attr(not(feature = "plant"), ignore = "needs --features snavio-cli/plant, as ./test runs it")]
#[tokio::test(flavor = "multi_thread")]
async fn trace_shows_answer_before_commit() {
    let (ids, calls) = run_traced(Some("acknowledge-before-commit")).await;
    let early = find_early_answers(&calls, &ids);
    println!("planted acknowledge-before-commit: {} of {} answers too early", early.len(), ids.len());
    assert!(early.len() > ids.len() / 2, "the planted bug went unnoticed: {} of {}", early.len(), ids.len());
}

/// QUA-2
#[cfg_attr(not(feature = "plant"), ignore = "needs --features snavio-cli/plant, as ./test runs it")]
#[tokio::test(flavor = "multi_thread")]
async fn trace_shows_commit_without_flush() {
    let (ids, calls) = run_traced(Some("skip-flush")).await;
    let early = find_early_answers(&calls, &ids);
    println!("planted skip-flush: {} of {} answers too early", early.len(), ids.len());
    assert_eq!(early.len(), ids.len(), "the planted bug went unnoticed");
}

/// Sends messages on the strict route to a traced node. Returns the accepted ids and the node's calls.
async fn run_traced(plant: Option<&str>) -> (HashSet<String>, Vec<Call>) {
    // Register the services without the planted bug, which would break the registration too.
    let mut node = Node::start();
    let cast = node.cast().await;
    node.stop();
    let calls = format!("{WRITES},{FLUSHES},write,writev,sendto,sendmsg");
    let mut strace = Strace::of(&calls, node.folder().join("trace"));
    // Trace whole pages as text: the store keeps ids as text.
    for option in ["-f", "--seccomp-bpf", "-y", "-s", "65536"] {
        strace = strace.option(option);
    }
    node.restart(&match plant {
        None => strace.launch(),
        // A slow flush makes the order of calls unambiguous.
        Some(plant) => strace.clone().inject(FLUSHES, "delay_enter=10000").launch().set("PLANT", plant),
    });
    let ids = send_concurrently(&node, &cast).await;
    node.stop();
    let seen = poll("strace writes the end of the trace", || {
        Some(strace.seen()).filter(|seen| has_ended(seen, node.pid()))
    });
    (ids, parse(&seen))
}

/// Whether the trace has the end of the process.
fn has_ended(seen: &str, pid: u32) -> bool {
    seen.lines().rev().take(50).any(|line| {
        line.split_once(' ').is_some_and(|(thread, rest)| {
            thread == pid.to_string() && rest.trim_start().starts_with("+++ exited")
        })
    })
}

async fn send_concurrently(node: &Node, cast: &Cast) -> HashSet<String> {
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

/// Whether the call is one of the names, succeeded, and was on the write-ahead log.
fn is_on_log(call: &Call, names: &str) -> bool {
    names.split(',').any(|name| name == call.name) && call.file().ends_with("-wal") && call.succeeded()
}

fn is_on_socket(call: &Call) -> bool {
    call.file().starts_with("socket:") || call.file().starts_with("TCP")
}

/// The ids whose answer was sent too early: no flush of the write-ahead log began after the id's write had
/// returned and itself returned before the answer began.
fn find_early_answers(calls: &[Call], ids: &HashSet<String>) -> Vec<String> {
    let written = first_calls_with(calls.iter().filter(|call| is_on_log(call, WRITES)), ids);
    let answered = first_calls_with(calls.iter().filter(|call| is_on_socket(call)), ids);
    let flushes: Vec<_> = calls.iter().filter(|call| is_on_log(call, FLUSHES)).collect();
    let in_order = |id: &String| {
        let answer = answered.get(id).unwrap_or_else(|| panic!("the trace does not show the answer to {id}"));
        let Some(write) = written.get(id).and_then(|write| write.returned) else { return false };
        flushes.iter().any(|flush| {
            flush.begun > write && flush.returned.is_some_and(|returned| returned < answer.begun)
        })
    };
    ids.iter().filter(|id| !in_order(id)).cloned().collect()
}

/// The first of the calls that contains each id.
fn first_calls_with<'c>(
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

/// All parts of a text with the shape of an id: 36 bytes whose ninth byte is the first hyphen.
fn ids_in(text: &str) -> impl Iterator<Item = &str> {
    let hyphens = text.match_indices('-');
    hyphens.filter_map(|(position, _)| text.get(position.checked_sub(8)?..position + 28))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0190b5a4-0000-7000-8000-000000000001";

    fn early(lines: &[&str]) -> usize {
        let trace = lines.join("\n").replace("ID", ID);
        find_early_answers(&parse(&trace), &HashSet::from([ID.to_owned()])).len()
    }

    const WRITE: &str = r#"1 pwrite64(3</d/x-wal>, "\0ID\0", 38, 0) = 38"#;
    const FLUSH: &str = "1 fsync(3</d/x-wal>) = 0";
    const ANSWER: &str = r#"2 sendto(9<socket:[1]>, "ID", 36) = 36"#;

    #[test]
    fn write_flush_answer_is_the_only_accepted_order() {
        assert_eq!(early(&[WRITE, FLUSH, ANSWER]), 0);
        assert_eq!(early(&[FLUSH, WRITE, ANSWER]), 1, "the flush came before the write");
        assert_eq!(early(&[WRITE, ANSWER, FLUSH]), 1, "the answer did not wait");
        assert_eq!(early(&[ANSWER, WRITE, FLUSH]), 1, "the write came after the answer");
        assert_eq!(early(&[ANSWER]), 1, "the message was never written");
    }

    #[test]
    fn only_completed_flush_of_log_counts() {
        let begun = "1 fsync(3</d/x-wal> <unfinished ...>";
        let resumed = "1 <... fsync resumed>) = 0";
        assert_eq!(early(&[WRITE, begun, ANSWER, resumed]), 1);
        assert_eq!(early(&[WRITE, begun, resumed, ANSWER]), 0);
        assert_eq!(early(&[begun, WRITE, resumed, ANSWER]), 1, "the flush began before the write");
        assert_eq!(early(&[WRITE, "1 fsync(3</d/x>) = 0", ANSWER]), 1, "the flush was of another file");
        assert_eq!(early(&[WRITE, "1 fsync(3</d/x-wal>) = -1 EIO (I/O error)", ANSWER]), 1);
    }
}
