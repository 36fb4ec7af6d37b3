//! The node is killed at random moments under load: producers that send again until they are answered, a
//! consumer that acknowledges, and now and then a message that must not pass.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::actors::{UNFIT, close};
use super::seed::Choices;
use super::{Actors, Sent, Tally, is_long};
use crate::node::{Draft, Launch, Node, new_id};

/// How much must have happened for a run to count.
struct Size {
    kills: usize,
    acknowledged: usize,
}

const SHORT: Size = Size { kills: 15, acknowledged: 500 };
const LONG: Size = Size { kills: 500, acknowledged: 100_000 };

const PRODUCERS: usize = 6;
const CONSUMERS_PER_QUEUE: usize = 2;
/// The longest a node may live, in milliseconds.
const LIFE_MS_MAX: u64 = 400;

/// QUA-1, PIP-4, PIP-5
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_any_moment_under_load_breaks_no_promise() {
    let size = if is_long() { LONG } else { SHORT };
    let mut choices = Choices::new("random kills");
    let tally = Arc::new(Mutex::new(Tally::default()));
    let mut node = Node::start();
    let cast = node.cast().await;
    let (lives, life) = watch::channel(Arc::new(Actors::new(&node, &cast, &tally)));
    let over = Arc::new(AtomicBool::new(false));

    let mut crowd = JoinSet::new();
    for _ in 0..PRODUCERS {
        crowd.spawn(produce(life.clone(), Arc::clone(&over), choices.split()));
    }
    for queue in ["notify-inbox", "pay-inbox"].repeat(CONSUMERS_PER_QUEUE) {
        crowd.spawn(consume(queue, life.clone(), Arc::clone(&over), choices.split()));
    }
    for kills in 0.. {
        let acknowledged = tally.lock().expect("nobody panics with the books open").acknowledged_so_far();
        if kills >= size.kills && acknowledged >= size.acknowledged || kills >= 6 * size.kills {
            break;
        }
        // Longer ones once enough have been cut short, so that enough is acknowledged on a slow machine, too.
        let more = 5 * usize::saturating_sub(kills, size.kills) as u64;
        tokio::time::sleep(Duration::from_millis(choices.below(LIFE_MS_MAX) + more)).await;
        node.kill();
        tally.lock().expect("nobody panics with the books open").killed();
        node.restart(&Launch::default());
        lives.send_replace(Arc::new(Actors::new(&node, &cast, &tally)));
    }
    over.store(true, Ordering::Relaxed);
    while let Some(left) = crowd.join_next().await {
        left.expect("nobody was told anything unexpected");
    }

    // Healed: nothing is leased after a start.
    node.kill();
    node.restart(&Launch::default());
    drop((lives, life));
    Actors::new(&node, &cast, &tally).account().await;
    let totals = close(tally);
    println!("random kills: {totals}");
    totals.assert_kept();
    assert!(totals.kills >= size.kills && totals.acknowledged >= size.acknowledged, "too little: {totals}");
    assert!(totals.refused > 0, "nothing was refused: {totals}");
}

/// Sends one message after the other, each again and again under its id until it is answered; some are given
/// up on while nobody knows what became of them.
async fn produce(life: watch::Receiver<Arc<Actors>>, over: Arc<AtomicBool>, mut choices: Choices) {
    while !over.load(Ordering::Relaxed) {
        if choices.once_in(8) {
            let kind = UNFIT[choices.below(UNFIT.len() as u64) as usize];
            let actors = current(&life);
            // Without an answer it stays among those that must not arrive.
            let _ = actors.send_unfit(kind).await;
            continue;
        }
        let draft = Draft::new(if choices.once_in(2) { "pay" } else { "notify" }, &new_id());
        loop {
            let actors = current(&life);
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

/// Receives and acknowledges, but for some deliveries, which the next life hands out again.
async fn consume(
    queue: &'static str,
    life: watch::Receiver<Arc<Actors>>,
    over: Arc<AtomicBool>,
    mut choices: Choices,
) {
    const VISIBILITY: Duration = Duration::from_secs(600);
    while !over.load(Ordering::Relaxed) {
        let actors = current(&life);
        let received = actors.receive(queue, 10, VISIBILITY, Duration::from_secs(1)).await;
        let Ok(deliveries) = received else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        if !choices.once_in(20) {
            // Without an answer it may come again.
            let _ = actors.acknowledge(queue, &deliveries).await;
        }
    }
}

fn current(life: &watch::Receiver<Arc<Actors>>) -> Arc<Actors> {
    Arc::clone(&life.borrow())
}
