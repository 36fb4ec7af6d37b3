//! The nodes of a store: agreed facts, membership, and tasks that one node does for all (ENG-7). A store with
//! a single node grants that node every task.

pub use super::ordering::racing_nodes_never_advance_from_one_state;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use snavio_model::claim::ClaimKey;
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::TenantName;
use snavio_model::telemetry::Record;

use super::processing::{read_claim, tracked_route};
use super::samples::{at, intake, settle};
use super::{Backend, eventually};
use crate::{NodeState, Store};

const HOUR: Duration = Duration::from_secs(3600);

/// The store as two nodes open it. If only one node can have it open, both are the same.
async fn open_two(backend: &dyn Backend) -> [Arc<dyn Store>; 2] {
    let one = backend.open().await;
    let other = if backend.is_shared() { backend.open().await } else { Arc::clone(&one) };
    [one, other]
}

async fn close(stores: [Arc<dyn Store>; 2]) {
    for store in stores {
        store.close().await;
    }
}

fn node(id: &str, started: i64) -> NodeState {
    NodeState {
        id: id.to_owned(),
        started_at: at(started),
        now: at(started),
        address: format!("{id}.example:8080"),
        software: "1.2.3".to_owned(),
        registry_version: 7,
        waiting: 3,
        draining: false,
    }
}

async fn lead(store: &dyn Store, task: &str, node: &str, term: Duration) -> bool {
    store.lead(task, node, term).await.expect("the store answers")
}

/// ENG-7
pub async fn first_pin_wins(backend: &dyn Backend) {
    let stores = open_two(backend).await;
    assert_eq!(stores[0].pinned("key").await.expect("the store answers"), None);
    let pinning = (0..8).map(|n| {
        let store = Arc::clone(&stores[n % 2]);
        tokio::spawn(async move { store.pin("key", &format!("value {n}")).await.expect("the store pins") })
    });
    let mut pinned_values = Vec::new();
    for pinned in pinning.collect::<Vec<_>>() {
        pinned_values.push(pinned.await.expect("no task panics"));
    }
    assert!(pinned_values.iter().all(|pinned| *pinned == pinned_values[0]), "{pinned_values:?}");
    assert_eq!(stores[0].pinned("key").await.expect("the store answers").as_ref(), pinned_values.first());
    let first = pinned_values[0].clone();
    for (from, done) in [("value x", false), (first.as_str(), true), (first.as_str(), false)] {
        let repinned = stores[1].repin("key", from, "on purpose").await.expect("the store answers");
        assert_eq!(repinned, done, "{from}: only the present value is replaced");
    }
    assert_eq!(stores[0].pin("key", &first).await.expect("the store answers"), "on purpose");
    assert!(!stores[0].repin("nothing", "", "x").await.expect("the store answers"));
    assert_eq!(stores[1].pin("other", "another").await.expect("the store pins"), "another");
    close(stores).await;
    let store = backend.open().await;
    assert_eq!(store.pin("key", "later").await.expect("the store pins"), "on purpose", "for ever");
    store.close().await;
}

/// ENG-7
pub async fn last_note_counts_with_its_records(backend: &dyn Backend) {
    let stores = open_two(backend).await;
    let [one, other] = &stores;
    assert_eq!(read_note(&**one, "polled/acme/bot").await, None);
    for (name, value, records) in [
        ("polled/acme/bot", "1", vec![]),
        ("polled/acme/bot", "2", vec![record("noted", "a"), record("noted", "b")]),
        ("polled/acme/a b☃", "3", vec![]),
        ("pollen", "4", vec![]),
    ] {
        one.set_note(name, value, records).await.expect("the store notes");
    }
    assert_eq!(read_note(&**other, "polled/acme/bot").await.as_deref(), Some("2"));
    let polled = other.notes("polled/").await.expect("the store answers");
    let pairs = [("polled/acme/a b☃", "3"), ("polled/acme/bot", "2")];
    assert_eq!(polled, pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    close(stores).await;
    let store = backend.open().await;
    let telemetry = store.telemetry("acme", Serial(0), 10).await.expect("the store answers");
    assert_eq!(telemetry.iter().map(|record| record.body["text"].clone()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(read_note(&*store, "pollen").await.as_deref(), Some("4"));
    store.close().await;
}

async fn read_note(store: &dyn Store, name: &str) -> Option<String> {
    store.note(name).await.expect("the store answers")
}

fn record(kind: &'static str, text: &str) -> Record {
    Record {
        tenant: "acme".parse().expect("a tenant"),
        kind,
        at: at(0),
        source: None,
        body: [("text".to_owned(), text.into())].into_iter().collect(),
    }
}

/// ENG-7: a record that must be written once is written in the same commit as the step that it reports.
pub async fn racing_note_moves_have_one_winner(backend: &dyn Backend) {
    const RACERS: usize = 8;
    let stores = open_two(backend).await;
    for (from, to) in [(None, "1"), (Some("1"), "2"), (Some("2"), "3")] {
        let moving = (0..RACERS).map(|n| {
            let store = Arc::clone(&stores[n % 2]);
            tokio::spawn(async move { store.move_note("step", from, to, vec![record("moved", "")]).await })
        });
        let mut landed = 0;
        for moved in moving.collect::<Vec<_>>() {
            landed += usize::from(moved.await.expect("no task panics").expect("the store answers"));
        }
        assert_eq!(landed, 1, "from {from:?} to {to}");
    }
    assert!(
        !stores[0].move_note("step", None, "9", vec![record("moved", "")]).await.expect("the store answers")
    );
    assert_eq!(stores[0].note("step").await.expect("the store answers").as_deref(), Some("3"));
    assert_eq!(stores[0].telemetry("acme", Serial(0), 100).await.expect("the store answers").len(), 3);
    close(stores).await;
}

/// ENG-7, REG-24
pub async fn note_is_removed_only_at_its_expected_value(backend: &dyn Backend) {
    let stores = open_two(backend).await;
    let [one, other] = &stores;
    for name in ["b", "a", "c"] {
        one.set_note(name, "1", Vec::new()).await.expect("the store notes");
    }
    let after = async |name: &str, limit: usize| {
        let notes = other.notes_after(name, limit).await.expect("the store answers");
        notes.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        (after("", 2).await, after("b", 2).await, after("c", 2).await),
        ("a=1 b=1".into(), "c=1".into(), String::new())
    );
    other.set_note("b", "2", Vec::new()).await.expect("the store notes");
    for (name, value, done) in [("b", "1", false), ("a", "1", true), ("a", "1", false), ("d", "", false)] {
        let removed = one.remove_note(name, value).await.expect("the store answers");
        assert_eq!(removed, done, "{name} as {value}");
    }
    assert_eq!(after("", 9).await, "b=2 c=1");
    close(stores).await;
    let store = backend.open().await;
    assert_eq!(store.note("a").await.expect("the store answers"), None, "for ever");
    store.close().await;
}

/// ENG-7, TEL-9
pub async fn node_is_known_from_announce_to_leave(backend: &dyn Backend) {
    let stores = open_two(backend).await;
    let [one, other] = &stores;
    assert!(one.nodes().await.expect("nodes can be listed").is_empty());
    let first = node("first", 1);
    assert_eq!(one.announce(&first).await.expect("the store answers").outdated, None);
    assert!(lead(&**one, "sweeper", "first", HOUR).await);
    let seen = other.nodes().await.expect("nodes can be listed");
    assert_eq!((seen.len(), &seen[0].state, &seen[0].leads[..]), (1, &first, &["sweeper".to_owned()][..]));
    assert!(seen[0].silent_for < Duration::from_secs(20), "{seen:?}");

    let later = NodeState { registry_version: 8, waiting: 0, draining: true, ..first };
    one.announce(&later).await.expect("the store answers");
    if backend.is_shared() {
        other.announce(&node("elder", 0)).await.expect("the store answers");
    }
    let seen = other.nodes().await.expect("nodes can be listed");
    let states: Vec<_> = seen.into_iter().map(|node| node.state).collect();
    let elder = backend.is_shared().then(|| node("elder", 0));
    assert_eq!(states, elder.iter().cloned().chain([later]).collect::<Vec<_>>(), "by when they started");

    one.leave("first").await.expect("the store answers");
    let left = other.nodes().await.expect("nodes can be listed");
    assert_eq!(left.into_iter().map(|node| node.state).collect::<Vec<_>>(), Vec::from_iter(elder));
    close(stores).await;
}

/// ENG-7
pub async fn task_has_one_leader(backend: &dyn Backend) {
    const NODES: usize = 12;
    let stores = open_two(backend).await;
    let mut leader = None;
    for _ in 0..3 {
        let asking = (0..NODES).map(|n| {
            let store = Arc::clone(&stores[n % 2]);
            tokio::spawn(async move { lead(&*store, "sweeper", &format!("node {n}"), HOUR).await })
        });
        let mut leads = Vec::new();
        for (n, asked) in asking.collect::<Vec<_>>().into_iter().enumerate() {
            leads.extend(asked.await.expect("no task panics").then_some(n));
        }
        if backend.is_shared() {
            assert_eq!(leads.len(), 1);
            assert_eq!(*leader.get_or_insert(leads[0]), leads[0], "it stays with the one that has it");
        } else {
            assert_eq!(leads.len(), NODES);
        }
    }
    assert!(lead(&*stores[0], "another task", "node 1", HOUR).await, "a task is led for itself");
    close(stores).await;
}

/// ENG-7: a node that disappears without leaving keeps its task until the end of its term at most.
pub async fn task_is_free_after_its_term(backend: &dyn Backend) {
    let stores = open_two(backend).await;
    let [one, other] = &stores;
    assert!(lead(&**one, "sweeper", "first", HOUR).await);
    assert_eq!(lead(&**other, "sweeper", "second", HOUR).await, !backend.is_shared());
    // The newest term counts, and it is short.
    assert!(lead(&**one, "sweeper", "first", Duration::from_millis(50)).await);
    eventually("the task is free", async || lead(&**other, "sweeper", "second", HOUR).await.then_some(()))
        .await;
    assert_eq!(lead(&**one, "sweeper", "first", HOUR).await, !backend.is_shared(), "it is the other's now");
    close(stores).await;
}

/// ENG-7
pub async fn task_is_free_after_its_node_left(backend: &dyn Backend) {
    let stores = open_two(backend).await;
    let [one, other] = &stores;
    for task in ["sweeper", "auditor"] {
        assert!(lead(&**one, task, "first", HOUR).await);
        assert_eq!(lead(&**other, task, "second", HOUR).await, !backend.is_shared());
    }
    one.leave("first").await.expect("the store answers");
    for task in ["sweeper", "auditor"] {
        assert!(lead(&**other, task, "second", HOUR).await, "{task}");
    }
    close(stores).await;
}

/// CLM-5: two nodes count repeats of the same ids at the same time, in opposite orders. Neither waits for a
/// row of the other, and no repeat is lost.
pub async fn concurrent_counts_of_repeats_add_up(backend: &dyn Backend) {
    const IDS: usize = 200;
    const ROUNDS: u64 = 30;
    let stores = open_two(backend).await;
    let batch = (0..IDS).map(|id| intake(&format!("id-{id}"), &tracked_route(), at(0))).collect();
    settle(&*stores[0], batch, at(0)).await;
    let (counting, both) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let count = async |store: &dyn Store, keys: Vec<ClaimKey>, now: i64| {
        let seen = keys.into_iter().map(|key| (key, 1, at(now))).collect();
        if counting.fetch_add(1, Ordering::SeqCst) > 0 {
            both.fetch_add(1, Ordering::SeqCst);
        }
        let counted = store.seen_again(seen).await;
        counting.fetch_sub(1, Ordering::SeqCst);
        counted.expect("neither fails because of the other");
    };
    let keys: Vec<_> = (0..IDS).map(|id| book_key(&format!("id-{id}"))).collect();
    let reversed: Vec<_> = keys.iter().rev().cloned().collect();
    for round in 1..=ROUNDS {
        let now = round as i64;
        tokio::join!(count(&*stores[0], keys.clone(), now), count(&*stores[1], reversed.clone(), now));
    }
    assert_eq!(both.load(Ordering::SeqCst), ROUNDS as usize, "both counted in every round");
    for id in 0..IDS {
        let seen = read_claim(&*stores[1], &format!("id-{id}"), 0).await;
        assert_eq!((seen.repeats, seen.last_seen_at), (2 * ROUNDS, Some(at(ROUNDS as i64))), "id-{id}");
    }
    close(stores).await;
}

fn book_key(id: &str) -> ClaimKey {
    let tenant = TenantName::new("acme").expect("a tenant");
    ClaimKey { id: MessageId::stored(id), tenant, destination: Arc::clone(&tracked_route().destination) }
}
