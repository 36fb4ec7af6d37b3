//! The database's layout moves on under running nodes (ENG-3): one that it still serves goes on, one that it does
//! not leaves and says so. Nodes that come at once make it once.

use std::time::Duration;

use serde_json::json;

use crate::engine::Database;
use crate::node::{Cast, Draft, Launch, Node, drain, new_id, post};

/// A message comes through, its copy is known, and its consumer ends it.
async fn works(node: &Node, cast: &Cast) {
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
async fn a_node_goes_on_over_a_newer_layout_that_serves_it_and_leaves_one_that_does_not() {
    let database = Database::new();
    let mut node = Node::over(&database, &Launch::default());
    let cast = node.cast().await;
    works(&node, &cast).await;

    // What a newer version's migration would do that its nodes and these can share.
    let tables =
        ["message", "claim", "delivery", "dead_letter", "telemetry", "audit", "batch", "node", "lease"];
    let columns: String = tables.map(|table| format!("ALTER TABLE {table} ADD COLUMN newer text;")).concat();
    let knows: i32 = database.ask("SELECT version FROM layout").parse().unwrap();
    let (newer, newest) = (knows + 1, knows + 2);
    database.ask(&format!("{columns} UPDATE layout SET version = {newer}"));
    for _ in 0..8 {
        works(&node, &cast).await;
        // Longer than it takes a node to hear of the layout.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    // A delivery that nobody ends before it is dead goes through every table there is.
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
    works(&second, &cast).await;
    drop(second);

    database.ask(&format!("UPDATE layout SET oldest_reader = {newer}, version = {newest}"));
    let ended = tokio::task::block_in_place(|| node.wait());
    assert_eq!(ended.code(), Some(1), "{}", node.said());
    let said = node.said();
    let layouts = [format!("layout {newest}"), format!("from layout {newer} on")];
    assert!(layouts.iter().all(|it| said.contains(it)), "{said}");
    assert!(said.contains("upgrade this one"), "{said}");
    let nodes = database.ask("SELECT count(*) FROM node WHERE NOT draining");
    assert!(["0", "1"].contains(&nodes.as_str()), "only the one that was killed is still listed: {nodes}");
    let refusal = Node::refused(&database, &Launch::default()).said();
    let told = format!("serves nodes from layout {newer} on; this one knows {knows}: upgrade it");
    assert!(refusal.contains(&told), "{refusal}");
}

/// ENG-3, ENG-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_at_once_over_an_empty_database_all_serve() {
    let database = Database::new().with_secrets();
    let starting: Vec<_> = (0..3).map(|_| Node::spawn_over(&database, &Launch::default())).collect();
    let nodes: Vec<_> = starting.into_iter().map(Node::settled).collect();
    let cast = nodes[0].cast().await;
    for node in &nodes {
        let status = node.get("/v1/status").await;
        assert_eq!(status["nodes"].as_array().map(Vec::len), Some(3), "{status}: {}", node.said());
        crate::patience::eventually("what was registered is known to all", async || {
            let status = node.get("/v1/status").await;
            (status["registry_lag"] == 0 && status["registry_version"].as_i64()? > 0).then_some(())
        })
        .await;
        works(node, &cast).await;
    }
    let made =
        database.ask("SELECT count(*), count(DISTINCT version), max(version) FROM refinery_schema_history");
    let layout = database.ask("SELECT version FROM layout");
    assert_eq!(made, format!("{layout}|{layout}|{layout}"), "each migration once");
}

/// ENG-3: a node that must wait says for what.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_waits_for_a_migration_says_so() {
    const MIGRATING: i64 = 0x736e_6176_696f_0001;
    let database = Database::new();
    let held = format!("SELECT pg_advisory_lock({MIGRATING}); SELECT pg_sleep(3)");
    let holding = std::thread::spawn({
        let database = database.clone();
        move || database.ask(&held)
    });
    let is_held = "SELECT count(*) FROM pg_locks, pg_database WHERE locktype = 'advisory' AND pg_locks.database = pg_database.oid AND datname = current_database()";
    crate::patience::poll("the lock is held", || (database.ask(is_held) == "1").then_some(()));
    let node = Node::over(&database, &Launch::default());
    assert!(node.said().contains("waiting for a migration or a move by another process"), "{}", node.said());
    holding.join().unwrap();
}

/// ENG-3: what takes connections and says nothing is no database.
#[test]
fn a_database_that_says_nothing_is_given_up_at_start() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://x:hidden-word@{}/x", silent.local_addr().unwrap());
    let refusal = Node::refused(&Database::at(url), &Launch::default()).said();
    assert!(refusal.contains("the database did not answer for 5 s"), "{refusal}");
    assert!(!refusal.contains("hidden-word"), "{refusal}");
}
