//! Kills at every write and flush of a script: before the call happens and, for flushes, also after the call
//! and before the node answers.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use snavio_store::engine::sqlite::check_integrity;

use super::actors::{NoAnswer, UNFIT, close};
use super::seed::Choices;
use super::{Actors, Tally, Totals, is_long};
use crate::node::{Cast, Launch, Node};
use crate::patience::poll;
use crate::strace::{Attached, FLUSHES, Strace, WRITES};

/// A phase of the node in which it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The start that makes the store.
    FirstStart,
    /// A start over the store of a killed node.
    Start,
    /// One thread of the running node, during the script.
    Thread(&'static str),
}

const WRITER: Phase = Phase::Thread("snavio-writer");
const CHECKPOINTER: Phase = Phase::Thread("snavio-checkpoint");
const PHASES: [Phase; 4] = [Phase::FirstStart, Phase::Start, WRITER, CHECKPOINTER];

impl Phase {
    /// The calls at which the node is killed. A start also makes files and writes secrets into them.
    fn calls(self) -> String {
        match self {
            Self::FirstStart | Self::Start => {
                format!("{WRITES},{FLUSHES},write,mkdir,unlink,rename,link,linkat")
            }
            Self::Thread(_) => format!("{WRITES},{FLUSHES}"),
        }
    }
}

/// A moment of a kill: the n-th call of this name in a phase.
#[derive(Debug, Clone)]
struct KillPoint {
    phase: Phase,
    call: String,
    number: usize,
    /// Kill after the call has ended and before the thread does anything else, instead of before the call.
    after: bool,
}

/// QUA-1, PIP-4, PIP-5
#[tokio::test(flavor = "multi_thread")]
async fn kill_at_any_write_or_flush_breaks_no_promise() {
    let mut choices = Choices::new("scripted kills");
    let starting_point = StartingPoint::prepare().await;
    let mut totals = Totals::default();
    for phase in PHASES {
        let kill_points = starting_point.kill_points(phase).await;
        let all = kill_points.len();
        let chosen = choose(kill_points, &mut choices);
        println!("scripted kills: {} of {all} points of {phase:?}", chosen.len());
        for point in chosen {
            totals += starting_point.run(&point).await;
        }
    }
    println!("scripted kills: {totals}");
    totals.assert_kept();
    assert!(totals.kills >= if is_long() { 200 } else { 30 }, "too few kills: {totals}");
}

/// All points in a long run. In a short run every n-th point of a phase, with a random first one.
fn choose(kill_points: Vec<KillPoint>, choices: &mut Choices) -> Vec<KillPoint> {
    const POINTS_PER_PHASE: usize = 20;
    if is_long() {
        return kill_points;
    }
    let stride = kill_points.len().div_ceil(POINTS_PER_PHASE).max(1);
    let first = choices.below(stride as u64) as usize;
    kill_points.into_iter().skip(first).step_by(stride).collect()
}

/// The store of a killed node with some traffic, as the starting point of each run.
struct StartingPoint {
    template: Node,
    cast: Cast,
}

impl StartingPoint {
    async fn prepare() -> Self {
        let mut template = Node::start();
        let cast = template.cast().await;
        let tally = Arc::default();
        let actors = Actors::new(&template, &cast, &tally);
        actors.send_new("notify").await.expect("the node answers");
        actors.consume("notify-inbox", 1).await.expect("the node answers");
        template.kill();
        Self { template, cast }
    }

    fn folder(&self, phase: Phase) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        if phase != Phase::FirstStart {
            let copied = Command::new("cp")
                .arg("-a")
                .arg(self.template.data())
                .arg(folder.path().join("data"))
                .status();
            assert!(copied.expect("cp runs").success());
        }
        folder
    }

    /// Runs the phase without a kill and lists its calls.
    async fn kill_points(&self, phase: Phase) -> Vec<KillPoint> {
        let folder = self.folder(phase);
        let strace = Strace::of(&phase.calls(), folder.path().join("trace")).option("-y");
        let mut node = match phase {
            Phase::FirstStart | Phase::Start => Node::launch_in(folder, &strace.launch()),
            Phase::Thread(name) => {
                let node = Node::launch_in(folder, &Launch::default());
                let actors = Actors::new(&node, &self.cast, &Arc::default());
                let tracing = strace.attach(&node, name);
                script(&actors).await.expect("an undisturbed node answers");
                if phase == CHECKPOINTER {
                    let has_flushed = || strace.seen().contains("fsync").then_some(());
                    poll("the checkpointer flushes", has_flushed);
                }
                drop(tracing);
                node
            }
        };
        node.kill();
        find_kill_points(phase, &strace.seen(), &node.data())
    }

    /// Runs the phase up to the kill, starts the node again and checks the tally.
    async fn run(&self, point: &KillPoint) -> Totals {
        let folder = self.folder(point.phase);
        let fault = if point.after { "delay_exit=60000000" } else { "signal=SIGKILL" };
        let strace = Strace::of(&point.phase.calls(), folder.path().join("trace"))
            .inject(&point.call, &format!("{fault}:when={}", point.number));
        let tally = Arc::new(Mutex::new(Tally::default()));
        let mut node = match point.phase {
            Phase::FirstStart | Phase::Start => Node::try_launch_in(folder, &strace.launch()),
            Phase::Thread(name) => {
                let mut node = Node::launch_in(folder, &Launch::default());
                // Connect before strace is attached, because the kill may be the first thing that happens.
                let actors = Actors::new(&node, &self.cast, &tally);
                let tracing = strace.attach(&node, name);
                tokio::join!(script_until_killed(&actors), kill_when_held(&mut node, &strace, tracing));
                node
            }
        };
        let status = node.wait();
        assert_eq!(status.signal(), Some(9), "the kill did not happen at {point:?}: {}", node.said());
        tally.lock().expect("the tally's lock is not poisoned").killed();

        node.restart(&Launch::default());
        if point.phase == Phase::FirstStart {
            check_first_start(&mut node, &tally).await;
        } else {
            Actors::new(&node, &self.cast, &tally).account().await;
        }
        let damage = check_integrity(&node.data()).expect("the store can be checked");
        assert_eq!(damage, Vec::<String>::new(), "after {point:?}");
        close(tally)
    }
}

/// Checks that a store whose first start was killed works like any other.
async fn check_first_start(node: &mut Node, tally: &Arc<Mutex<Tally>>) {
    let cast = node.cast().await;
    script(&Actors::new(node, &cast, tally)).await.expect("a restarted node answers");
    // After a restart the embedded store has no leases.
    node.kill();
    node.restart(&Launch::default());
    Actors::new(node, &cast, tally).account().await;
}

/// The kill points in the trace of a run without a kill.
fn find_kill_points(phase: Phase, seen: &str, data: &Path) -> Vec<KillPoint> {
    let data = data.display().to_string();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut kill_points = Vec::new();
    for (call, rest) in seen.lines().filter_map(|line| line.split_once('(')) {
        let number = counts.entry(call).or_default();
        *number += 1;
        // Skip writes to the terminal and to other threads: they are not part of the store.
        if !rest.contains(&data) {
            continue;
        }
        let point = KillPoint { phase, call: call.to_owned(), number: *number, after: false };
        if matches!(phase, Phase::Thread(_)) && FLUSHES.split(',').any(|flush| flush == call) {
            kill_points.push(KillPoint { after: true, ..point.clone() });
        }
        kill_points.push(point);
    }
    kill_points
}

/// Does something of every kind that writes to the store.
async fn script(actors: &Actors) -> Result<(), NoAnswer> {
    for name in ["notify", "pay", "notify", "pay"] {
        actors.send_new(name).await?;
    }
    actors.send_batch("pay", 4).await?;
    for kind in UNFIT {
        actors.send_unfit(kind).await?;
    }
    actors.consume("notify-inbox", 2).await?;
    // Received as often as the route allows, and once more, so that it becomes a dead letter.
    for _ in 0..4 {
        actors.receive("pay-inbox", 1, Duration::ZERO, Duration::ZERO).await?;
    }
    actors.register_extra().await?;
    actors.send_new("extra").await?;
    actors.consume("pay-inbox", 2).await?;
    actors.redrive().await?;
    actors.consume("extra-inbox", 1).await?;
    Ok(())
}

/// Runs the script, and then sends messages until the node is killed: a thread may not have reached its call
/// yet.
async fn script_until_killed(actors: &Actors) {
    const MESSAGES_MAX: usize = 5_000;
    if script(actors).await.is_err() {
        return;
    }
    for _ in 0..MESSAGES_MAX {
        if actors.send_new("notify").await.is_err() {
            return;
        }
    }
}

/// Waits for the node's end. If the kill point is after a call, strace holds the thread there, and this kills
/// the node.
async fn kill_when_held(node: &mut Node, strace: &Strace, tracing: Attached) {
    while node.ended().is_none() && !strace.is_holding() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    node.kill_held(tracing);
}
