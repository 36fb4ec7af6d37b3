//! The node is killed at every write and flush of a script: before the call happens, and, for flushes, after it
//! has happened and before anybody is told.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use snavio_store::engine::sqlite::check_integrity;

use super::actors::{Gone, UNFIT, close};
use super::seed::Choices;
use super::{Actors, Tally, Totals, is_long};
use crate::node::{Cast, Launch, Node};
use crate::patience::poll;
use crate::strace::{Attached, FLUSHES, Strace, WRITES};

/// A part of the node's life in which it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scene {
    /// The start that makes the store.
    FirstStart,
    /// A start over a store that was killed.
    Start,
    /// A thread of the running node, during the script.
    Thread(&'static str),
}

const WRITER: Scene = Scene::Thread("snavio-writer");
const CHECKPOINTER: Scene = Scene::Thread("snavio-checkpoint");
const SCENES: [Scene; 4] = [Scene::FirstStart, Scene::Start, WRITER, CHECKPOINTER];

impl Scene {
    /// The calls that count. A start also makes files, and writes secrets into them.
    fn calls(self) -> String {
        match self {
            Self::FirstStart | Self::Start => {
                format!("{WRITES},{FLUSHES},write,mkdir,unlink,rename,link,linkat")
            }
            Self::Thread(_) => format!("{WRITES},{FLUSHES}"),
        }
    }
}

/// A moment at which the node is killed: the n-th call of a name in a scene.
#[derive(Debug, Clone)]
struct Point {
    scene: Scene,
    call: String,
    number: usize,
    /// Not instead of the call, but between its end and the next thing the thread does.
    after: bool,
}

/// QUA-1, PIP-4, PIP-5
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_any_write_or_flush_breaks_no_promise() {
    let mut choices = Choices::new("scripted kills");
    let stage = Stage::prepare().await;
    let mut totals = Totals::default();
    for scene in SCENES {
        let points = stage.points(scene).await;
        let all = points.len();
        let chosen = choose(points, &mut choices);
        println!("scripted kills: {} of {all} points of {scene:?}", chosen.len());
        for point in chosen {
            totals += stage.run(&point).await;
        }
    }
    println!("scripted kills: {totals}");
    totals.assert_kept();
    assert!(totals.kills >= if is_long() { 200 } else { 30 }, "too few kills: {totals}");
}

/// All of them in a long run, and every n-th of a scene otherwise, beginning anywhere.
fn choose(points: Vec<Point>, choices: &mut Choices) -> Vec<Point> {
    const POINTS_PER_SCENE: usize = 20;
    if is_long() {
        return points;
    }
    let stride = points.len().div_ceil(POINTS_PER_SCENE).max(1);
    let first = choices.below(stride as u64) as usize;
    points.into_iter().skip(first).step_by(stride).collect()
}

/// A store that has seen some traffic and was killed, to begin from.
struct Stage {
    template: Node,
    cast: Cast,
}

impl Stage {
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

    fn folder(&self, scene: Scene) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        if scene != Scene::FirstStart {
            let copied = Command::new("cp")
                .arg("-a")
                .arg(self.template.data())
                .arg(folder.path().join("data"))
                .status();
            assert!(copied.expect("cp runs").success());
        }
        folder
    }

    /// Runs the scene undisturbed and counts its calls.
    async fn points(&self, scene: Scene) -> Vec<Point> {
        let folder = self.folder(scene);
        let strace = Strace::of(&scene.calls(), folder.path().join("trace")).option("-y");
        let mut node = match scene {
            Scene::FirstStart | Scene::Start => Node::launch_in(folder, &strace.launch()),
            Scene::Thread(name) => {
                let node = Node::launch_in(folder, &Launch::default());
                let actors = Actors::new(&node, &self.cast, &Arc::default());
                let tracing = strace.attach(&node, name);
                script(&actors).await.expect("an undisturbed node answers");
                if scene == CHECKPOINTER {
                    let moved = || strace.seen().contains("fsync").then_some(());
                    poll("the checkpointer looks", moved);
                }
                drop(tracing);
                node
            }
        };
        node.kill();
        points_of(scene, &strace.seen(), &node.data())
    }

    /// Runs the scene to its sudden end, starts the node again and holds it to account.
    async fn run(&self, point: &Point) -> Totals {
        let folder = self.folder(point.scene);
        let what = if point.after { "delay_exit=60000000" } else { "signal=SIGKILL" };
        let strace = Strace::of(&point.scene.calls(), folder.path().join("trace"))
            .inject(&point.call, &format!("{what}:when={}", point.number));
        let tally = Arc::new(Mutex::new(Tally::default()));
        let mut node = match point.scene {
            Scene::FirstStart | Scene::Start => Node::try_launch_in(folder, &strace.launch()),
            Scene::Thread(name) => {
                let mut node = Node::launch_in(folder, &Launch::default());
                // Before strace: the kill may be the first thing that happens.
                let actors = Actors::new(&node, &self.cast, &tally);
                let tracing = strace.attach(&node, name);
                tokio::join!(script_until_killed(&actors), kill_when_held(&mut node, &strace, tracing));
                node
            }
        };
        let status = node.wait();
        assert_eq!(status.signal(), Some(9), "the kill did not happen at {point:?}: {}", node.said());
        tally.lock().expect("nobody panics with the books open").killed();

        node.restart(&Launch::default());
        if point.scene == Scene::FirstStart {
            try_out(&mut node, &tally).await;
        } else {
            Actors::new(&node, &self.cast, &tally).account().await;
        }
        let damage = check_integrity(&node.data()).expect("the store can be checked");
        assert_eq!(damage, Vec::<String>::new(), "after {point:?}");
        close(tally)
    }
}

/// A store that was killed while it was made works like any other.
async fn try_out(node: &mut Node, tally: &Arc<Mutex<Tally>>) {
    let cast = node.cast().await;
    script(&Actors::new(node, &cast, tally)).await.expect("a healed node answers");
    // Nothing is leased after a start.
    node.kill();
    node.restart(&Launch::default());
    Actors::new(node, &cast, tally).account().await;
}

/// What an undisturbed run showed, as moments to kill at.
fn points_of(scene: Scene, seen: &str, data: &Path) -> Vec<Point> {
    let data = data.display().to_string();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut points = Vec::new();
    for (call, rest) in seen.lines().filter_map(|line| line.split_once('(')) {
        let number = counts.entry(call).or_default();
        *number += 1;
        // Words to the terminal and to other threads are no part of the store.
        if !rest.contains(&data) {
            continue;
        }
        let point = Point { scene, call: call.to_owned(), number: *number, after: false };
        if matches!(scene, Scene::Thread(_)) && FLUSHES.split(',').any(|it| it == call) {
            points.push(Point { after: true, ..point.clone() });
        }
        points.push(point);
    }
    points
}

/// A bit of everything that writes.
async fn script(actors: &Actors) -> Result<(), Gone> {
    for name in ["notify", "pay", "notify", "pay"] {
        actors.send_new(name).await?;
    }
    actors.send_batch("pay", 4).await?;
    for kind in UNFIT {
        actors.send_unfit(kind).await?;
    }
    actors.consume("notify-inbox", 2).await?;
    // Handed out as often as the route allows, and once more: it becomes a dead letter.
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

/// The script, and then more and more messages: some thread has not come to its call yet.
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

/// Waits for the node's end; one whose thread is held after its call is ended here.
async fn kill_when_held(node: &mut Node, strace: &Strace, tracing: Attached) {
    while node.ended().is_none() && !strace.is_holding() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    node.kill_held(tracing);
}
