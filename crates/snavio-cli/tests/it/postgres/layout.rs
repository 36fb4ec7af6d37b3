//! Changes of the database's layout under running nodes (ENG-3): a node continues over a layout that still
//! serves it, and otherwise ends with a message. Nodes that start at once make the layout once.

use std::time::Duration;

use serde_json::json;

use crate::engine::Database;
use crate::node::{Cast, Draft, Launch, Node, drain, new_id, post};

/// Checks that the node accepts a message, detects its duplicate, and delivers it to its consumer.
async fn assert_node_works(node: &Node, cast: &Cast) {
    let (billing, bot) = (node.client(&cast.billing), node.client(&cast.bot));
    let draft = Draft::new("pay", &new_id());
    let (status, answer) = post(&billing, draft.sign(&cast.billing)).await;
    assert_eq!(status, 202, "{answer}: {}", node.said());
    let (status, answer) = post(&billing, draft.sign(&cast.billing)).await;
    assert_eq!((status, &answer["duplicate"]), (200, &json!(true)), "{answer}");
    let delivered = drain(&bot, "pay-inbox").await;
    assert_eq!(delivered.len(), 1, "{}", node.said());
}

/// ENG-3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_continues_on_compatible_layout_and_ends_on_incompatible() {
    let database = Database::new();
    let mut node = Node::over(&database, &Launch::default());
    let cast = node.cast().await;
    assert_node_works(&node, &cast).await;

    // A migration of a newer version whose tables both versions can use.
    let tables =
        ["message", "claim", "delivery", "dead_letter", "telemetry", "audit", "batch", "node", "lease"];
    let columns: String = tables.map(|table| format!("ALTER TABLE {table} ADD COLUMN newer text;")).concat();
    let known_layout: i32 = database.ask("SELECT version FROM layout").parse().unwrap();
    let (newer, newest) = (known_layout + 1, known_layout + 2);
    database.ask(&format!("{columns} UPDATE layout SET version = {newer}"));
    for _ in 0..8 {
        assert_node_works(&node, &cast).await;
        // Longer than a node takes to notice the new layout.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    // A delivery that becomes a dead letter changes every one of these tables.
    let (billing, bot) = (node.client(&cast.billing), node.client(&cast.bot));
    post(&billing, Draft::new("pay", &new_id()).sign(&cast.billing)).await;
    for _ in 0..3 {
        let got = bot.receive("pay-inbox", 1, Duration::ZERO, Duration::from_secs(5)).await.unwrap();
        assert_eq!(got.len(), 1, "{}", node.said());
    }
    crate::patience::eventually("a dead letter", async || {
        let dead = node.get("/v1/dead-letters?tenant=acme").await;
        (!dead["items"].as_array()?.is_empty()).then_some(())
    })
    .await;
    let second = Node::over(&database, &Launch::default());
    assert_node_works(&second, &cast).await;
    drop(second);

    database.ask(&format!("UPDATE layout SET oldest_reader = {newer}, version = {newest}"));
    let ended = tokio::task::block_in_place(|| node.wait());
    assert_eq!(ended.code(), Some(1), "{}", node.said());
    let log = node.said();
    let layouts = [format!("layout {newest}"), format!("from layout {newer} on")];
    assert!(layouts.iter().all(|layout| log.contains(layout)), "{log}");
    assert!(log.contains("upgrade this one"), "{log}");
    let nodes = database.ask("SELECT count(*) FROM node WHERE NOT draining");
    assert!(["0", "1"].contains(&nodes.as_str()), "at most the killed node is still listed: {nodes}");
    let refusal = Node::refused(&database, &Launch::default()).said();
    let advice = format!("serves nodes from layout {newer} on; this one knows {known_layout}: upgrade it");
    assert!(refusal.contains(&advice), "{refusal}");
}

/// ENG-3, ENG-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_starting_at_once_over_empty_database_all_serve() {
    let database = Database::new().with_secrets();
    let starting: Vec<_> = (0..3).map(|_| Node::spawn_over(&database, &Launch::default())).collect();
    let nodes: Vec<_> = starting.into_iter().map(Node::settled).collect();
    let cast = nodes[0].cast().await;
    for node in &nodes {
        let status = node.get("/v1/status").await;
        assert_eq!(status["nodes"].as_array().map(Vec::len), Some(3), "{status}: {}", node.said());
        crate::patience::eventually("every node has the current registry", async || {
            let status = node.get("/v1/status").await;
            (status["registry_lag"] == 0 && status["registry_version"].as_i64()? > 0).then_some(())
        })
        .await;
        assert_node_works(node, &cast).await;
    }
    let made =
        database.ask("SELECT count(*), count(DISTINCT version), max(version) FROM refinery_schema_history");
    let layout = database.ask("SELECT version FROM layout");
    assert_eq!(made, format!("{layout}|{layout}|{layout}"), "each migration once");
}

/// ENG-3: a node that must wait logs the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_waiting_for_migration_logs_it() {
    const MIGRATING: i64 = 0x736e_6176_696f_0001;
    let database = Database::new();
    let hold_lock = format!("SELECT pg_advisory_lock({MIGRATING}); SELECT pg_sleep(3)");
    let holding = std::thread::spawn({
        let database = database.clone();
        move || database.ask(&hold_lock)
    });
    let is_held = "SELECT count(*) FROM pg_locks, pg_database WHERE locktype = 'advisory' AND pg_locks.database = pg_database.oid AND datname = current_database()";
    crate::patience::poll("the lock is held", || (database.ask(is_held) == "1").then_some(()));
    let node = Node::over(&database, &Launch::default());
    assert!(node.said().contains("waiting for a migration or a move by another process"), "{}", node.said());
    holding.join().unwrap();
}

/// ENG-3: a server that accepts connections and does not answer is treated as unreachable.
#[test]
fn silent_database_is_given_up_at_start() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://x:hidden-word@{}/x", silent.local_addr().unwrap());
    let refusal = Node::refused(&Database::at(url), &Launch::default()).said();
    assert!(refusal.contains("the database did not answer for 5 s"), "{refusal}");
    assert!(!refusal.contains("hidden-word"), "{refusal}");
}
