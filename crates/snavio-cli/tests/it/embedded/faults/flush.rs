//! Flushes that fail, and flushes that are slow.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use tokio::task::JoinSet;

use super::{account_after_restart, status};
use crate::embedded::crash::{Actors, Sent};
use crate::node::{Draft, Launch, Node, new_id};
use crate::patience::eventually;
use crate::strace::{FLUSHES, Strace};

const SIGABRT: i32 = 6;

/// PIP-5
#[tokio::test(flavor = "multi_thread")]
async fn failed_flush_ends_process_and_acknowledges_nothing_more() {
    let mut node = Node::start();
    let cast = node.cast().await;
    let tally = Arc::default();
    let actors = Actors::new(&node, &cast, &tally);
    let strace = Strace::of(FLUSHES, node.folder().join("trace")).inject(FLUSHES, "error=EIO:when=8");
    let tracing = strace.attach(&node, "snavio-writer");
    let mut results = Vec::new();
    for _ in 0..30 {
        results.push(actors.send(&Draft::new("pay", &new_id())).await);
    }
    assert_eq!(strace.fired(), 1, "{}", strace.seen());
    assert_eq!(node.wait().signal(), Some(SIGABRT), "{}", node.said());
    assert!(node.said().contains("a flush failed"), "{}", node.said());
    let before = results.iter().take_while(|sent| **sent == Sent::Acknowledged).count();
    assert!(before > 0 && results[before..].iter().all(|sent| *sent == Sent::Unknown), "{results:?}");
    drop((tracing, actors));
    account_after_restart(&mut node, &cast, tally).await;
}

/// PIP-5: if a checkpoint writes pages to a file whose flush fails, the log must not start over.
#[tokio::test(flavor = "multi_thread")]
async fn failed_checkpoint_flush_ends_process() {
    let mut node = Node::start();
    let cast = node.cast().await;
    let tally = Arc::default();
    let actors = Actors::new(&node, &cast, &tally);
    actors.send_new("pay").await.expect("the node answers");
    let strace = Strace::of(FLUSHES, node.folder().join("trace")).inject(FLUSHES, "error=EIO:when=1");
    let tracing = strace.attach(&node, "snavio-checkpoint");
    while actors.send(&Draft::new("pay", &new_id())).await == Sent::Acknowledged {}
    assert_eq!(strace.fired(), 1, "{}", strace.seen());
    assert_eq!(node.wait().signal(), Some(SIGABRT), "{}", node.said());
    drop((tracing, actors));
    account_after_restart(&mut node, &cast, tally).await;
}

/// PIP-5
#[tokio::test(flavor = "multi_thread")]
async fn node_that_cannot_flush_does_not_start() {
    let mut node = Node::start();
    let cast = node.cast().await;
    let tally = Arc::default();
    Actors::new(&node, &cast, &tally).send_new("pay").await.expect("the node answers");
    node.stop();
    let strace = Strace::of(FLUSHES, node.folder().join("trace")).inject(FLUSHES, "error=EIO");
    node.try_restart(&strace.launch());
    assert!(!node.wait().success());
    assert!(strace.fired() > 0 && !node.is_serving());
    account_after_restart(&mut node, &cast, tally).await;
}

/// QUA-1, PIP-9
#[tokio::test(flavor = "multi_thread")]
async fn slow_flush_bounds_intake_and_reads_continue() {
    const FLUSH: Duration = Duration::from_secs(2);
    const ROOM: u64 = 64;
    let mut node = Node::launch(&Launch::default().set("GATE_INTAKE_MESSAGES_MAX", ROOM));
    let cast = node.cast().await;
    let tally = Arc::default();
    let actors = Arc::new(Actors::new(&node, &cast, &tally));
    actors.send_new("pay").await.expect("the node answers");
    let strace = Strace::of(FLUSHES, node.folder().join("trace"));
    let strace = strace.inject(FLUSHES, &format!("delay_enter={}", FLUSH.as_micros()));
    let tracing = strace.attach(&node, "snavio-writer");

    let mut sending = JoinSet::new();
    for _ in 0..400 {
        let actors = Arc::clone(&actors);
        sending.spawn(async move { actors.send(&Draft::new("pay", &new_id())).await });
    }
    let mut refused = 0;
    let mut readings = Vec::new();
    eventually("the flood is refused", async || {
        assert!(status(&node).await["waiting"].as_u64().unwrap() <= ROOM);
        readings.push(read_something(&node, &cast).await);
        while let Some(sent) = sending.try_join_next() {
            match sent.expect("sending ends") {
                Sent::Acknowledged => assert!(strace.fired() >= 1, "it was acknowledged before its flush"),
                Sent::Refused(status, document) => {
                    assert_eq!((status, &document["reason"]), (503, &"overloaded".into()));
                    assert_eq!(
                        (&document["accepted"], &document["retry_after_ms"]),
                        (&false.into(), &1000.into())
                    );
                    refused += 1;
                }
                Sent::Unknown => panic!("the node went away: {}", node.said()),
            }
        }
        (refused > 0 && readings.len() >= 5).then_some(())
    })
    .await;
    // Take the fastest reading, because a busy machine slows down some of them.
    let fastest = readings.iter().min().expect("there were readings");
    assert!(*fastest < FLUSH / 2, "reads do not wait for flushes: {readings:?}");
    assert!(strace.seen().contains("fsync("), "no flush was under way: {}", strace.seen());
    let acknowledged =
        sending.join_all().await.into_iter().filter(|sent| *sent == Sent::Acknowledged).count();
    assert!(strace.fired() >= 1, "no flush was slow: {}", strace.seen());
    println!("slow flushes: {refused}+ refused at once, {acknowledged} acknowledged after their flush");
    drop((tracing, actors));
    node.kill();
    account_after_restart(&mut node, &cast, tally).await;
}

/// Reads from the queue, the store and the registry, and returns the time that this took.
async fn read_something(node: &Node, cast: &crate::node::Cast) -> Duration {
    let began_at = tokio::time::Instant::now();
    let bot = node.client(&cast.bot);
    bot.call(Method::GET, "/v1/queues/pay-inbox", None).await.expect("the queue can be looked at");
    bot.call(Method::GET, "/v1/dead-letters", None).await.expect("dead letters can be listed");
    node.operator().call(Method::GET, "/v1/registry", None).await.expect("the registry can be read");
    began_at.elapsed()
}
