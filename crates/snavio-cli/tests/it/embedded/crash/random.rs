//! Kills at random moments under load: producers repeat each message until it is answered, consumers
//! acknowledge, and some messages are invalid and must not be delivered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::actors::{UNFIT, close};
use super::seed::Choices;
use super::{Actors, Sent, Tally, is_long};
use crate::node::{Draft, Launch, Node, new_id};

/// The number of events that a run needs to count.
struct Size {
    kills: usize,
    acknowledged: usize,
}

const SHORT: Size = Size { kills: 15, acknowledged: 500 };
const LONG: Size = Size { kills: 500, acknowledged: 100_000 };

const PRODUCERS: usize = 6;
const CONSUMERS_PER_QUEUE: usize = 2;
/// The longest time between two kills, in milliseconds.
const PAUSE_MS_MAX: u64 = 400;

/// QUA-1, PIP-4, PIP-5
#[tokio::test(flavor = "multi_thread")]
async fn random_kill_under_load_breaks_no_promise() {
    let size = if is_long() { LONG } else { SHORT };
    let mut choices = Choices::new("random kills");
    let tally = Arc::new(Mutex::new(Tally::default()));
    let mut node = Node::start();
    let cast = node.cast().await;
    let (actors_sender, actors) = watch::channel(Arc::new(Actors::new(&node, &cast, &tally)));
    let is_finished = Arc::new(AtomicBool::new(false));

    let mut tasks = JoinSet::new();
    for _ in 0..PRODUCERS {
        tasks.spawn(produce(actors.clone(), Arc::clone(&is_finished), choices.split()));
    }
    for queue in ["notify-inbox", "pay-inbox"].repeat(CONSUMERS_PER_QUEUE) {
        tasks.spawn(consume(queue, actors.clone(), Arc::clone(&is_finished), choices.split()));
    }
    for kills in 0.. {
        let acknowledged = tally.lock().expect("the tally's lock is not poisoned").acknowledged_so_far();
        if kills >= size.kills && acknowledged >= size.acknowledged || kills >= 6 * size.kills {
            break;
        }
        // After enough kills the pauses grow, so that enough messages are acknowledged on a slow machine,
        // too.
        let more = 5 * usize::saturating_sub(kills, size.kills) as u64;
        tokio::time::sleep(Duration::from_millis(choices.below(PAUSE_MS_MAX) + more)).await;
        node.kill();
        tally.lock().expect("the tally's lock is not poisoned").killed();
        node.restart(&Launch::default());
        actors_sender.send_replace(Arc::new(Actors::new(&node, &cast, &tally)));
    }
    is_finished.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no actor had an unexpected answer");
    }

    // After a restart the embedded store has no leases.
    node.kill();
    node.restart(&Launch::default());
    drop((actors_sender, actors));
    Actors::new(&node, &cast, &tally).account().await;
    let totals = close(tally);
    println!("random kills: {totals}");
    totals.assert_kept();
    assert!(
        totals.kills >= size.kills && totals.acknowledged >= size.acknowledged,
        "too few kills or messages: {totals}"
    );
    assert!(totals.refused > 0, "nothing was refused: {totals}");
}

/// Sends one message after the other, and repeats each under its id until it is answered. Some are given up
/// while their outcome is unknown.
async fn produce(actors: watch::Receiver<Arc<Actors>>, is_finished: Arc<AtomicBool>, mut choices: Choices) {
    while !is_finished.load(Ordering::Relaxed) {
        if choices.once_in(8) {
            let kind = UNFIT[choices.below(UNFIT.len() as u64) as usize];
            let actors = current(&actors);
            // Without an answer the message still counts as one that must never be delivered.
            let _ = actors.send_unfit(kind).await;
            continue;
        }
        let draft = Draft::new(if choices.once_in(2) { "pay" } else { "notify" }, &new_id());
        loop {
            let actors = current(&actors);
            match actors.send(&draft).await {
                Sent::Acknowledged => break,
                Sent::Unknown if choices.once_in(10) => break,
                Sent::Unknown => tokio::time::sleep(Duration::from_millis(10)).await,
                Sent::Refused(503, _) => tokio::time::sleep(Duration::from_millis(10)).await,
                Sent::Refused(status, document) => panic!("a good message was refused: {status} {document}"),
            }
        }
    }
}

/// Receives and acknowledges. Some deliveries are left, and the restarted node makes them visible again.
async fn consume(
    queue: &'static str,
    actors: watch::Receiver<Arc<Actors>>,
    is_finished: Arc<AtomicBool>,
    mut choices: Choices,
) {
    const VISIBILITY: Duration = Duration::from_secs(600);
    while !is_finished.load(Ordering::Relaxed) {
        let actors = current(&actors);
        let received = actors.receive(queue, 10, VISIBILITY, Duration::from_secs(1)).await;
        let Ok(deliveries) = received else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        if !choices.once_in(20) {
            // Without an answer the deliveries may come again.
            let _ = actors.acknowledge(queue, &deliveries).await;
        }
    }
}

fn current(actors: &watch::Receiver<Arc<Actors>>) -> Arc<Actors> {
    Arc::clone(&actors.borrow())
}
