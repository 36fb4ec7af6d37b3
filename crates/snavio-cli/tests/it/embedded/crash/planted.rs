//! The kill tests detect a node that answers before it commits.

use std::sync::{Arc, Mutex};

use super::actors::close;
use super::{Actors, Sent, Tally, Totals};
use crate::node::{Draft, Launch, Node, new_id};
use crate::patience::poll;
use crate::strace::{Strace, WRITES};

/// QUA-2
#[cfg_attr(not(feature = "plant"), ignore = "needs --features snavio-cli/plant, as ./test runs it")]
#[tokio::test(flavor = "multi_thread")]
async fn kill_detects_answer_before_commit() {
    let totals = kill_before_first_write(Some("acknowledge-before-commit")).await;
    println!("planted acknowledge-before-commit: {totals}");
    assert_eq!(
        (totals.acknowledged, totals.lost),
        (1, 1),
        "the planted bug went unnoticed: {:?}",
        totals.broken
    );
}

/// PIP-5
#[tokio::test(flavor = "multi_thread")]
async fn unwritten_message_is_not_acknowledged() {
    let totals = kill_before_first_write(None).await;
    assert_eq!((totals.acknowledged, totals.lost), (0, 0), "{:?}", totals.broken);
    totals.assert_kept();
}

/// Sends a message to a node whose writes strace delays, and kills the node before the first write.
async fn kill_before_first_write(plant: Option<&str>) -> Totals {
    let mut node = Node::start();
    let cast = node.cast().await;
    node.stop();
    let launch = Launch::default();
    node.restart(&plant.map_or(launch.clone(), |plant| launch.set("PLANT", plant)));
    let tally = Arc::new(Mutex::new(Tally::default()));
    let actors = Actors::new(&node, &cast, &tally);
    actors.consume("pay-inbox", 1).await.expect("the node answers");
    let strace = Strace::of(WRITES, node.folder().join("trace")).inject(WRITES, "delay_enter=30000000");
    let tracing = strace.attach(&node, "snavio-writer");

    let sending = tokio::spawn(async move { actors.send(&Draft::new("pay", &new_id())).await });
    let has_begun = || strace.seen().contains("pwrite64(").then_some(());
    poll("the writer begins its first write", has_begun);
    if plant.is_some() {
        // With the planted bug the node answers before the write.
        poll("the planted bug answers", || sending.is_finished().then_some(()));
    }
    node.kill_held(tracing);
    let sent = sending.await.expect("sending ends");
    assert_eq!(sent, if plant.is_some() { Sent::Acknowledged } else { Sent::Unknown });
    tally.lock().expect("the tally's lock is not poisoned").killed();

    node.restart(&Launch::default());
    Actors::new(&node, &cast, &tally).account().await;
    close(tally)
}
