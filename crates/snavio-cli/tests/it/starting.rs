//! Files and messages of a node that starts or refuses to start.

use crate::engine::Engine;
use crate::node::{Launch, Node};

/// TEL-8
#[test]
fn first_start_logs_no_migrations() {
    let mut node = Node::launch(&Launch::default().set("LOG_FILTER", "info"));
    node.stop();
    let log = node.said();
    assert!(log.contains("stopping") && !log.contains("migration") && !log.contains("refinery"), "{log}");
}

/// Runs a statement on the store of a node whose process has ended.
fn change_store(node: &Node, statement: &str) {
    match node.engine() {
        Engine::Embedded => {
            let file = node.data().join("snavio.db");
            snavio_sdk::sqlite::rusqlite::Connection::open(file).unwrap().execute_batch(statement).unwrap();
        }
        // A node on PostgreSQL reads the history of migrations only if the layout version says that one may
        // be missing.
        Engine::Postgres(database) => {
            database.ask(&format!("{statement}; UPDATE layout SET version = version - 1"));
        }
    }
}

/// ENG-3
#[test]
fn damaged_migration_history_ends_in_a_message() {
    for damage in [
        "UPDATE refinery_schema_history SET applied_on = 'yesterday' WHERE version = 1",
        "UPDATE refinery_schema_history SET applied_on = '' WHERE version = 1",
        "UPDATE refinery_schema_history SET applied_on = NULL WHERE version = 1",
        "UPDATE refinery_schema_history SET checksum = 'x' WHERE version = 1",
        "UPDATE refinery_schema_history SET checksum = NULL WHERE version = 1",
        "UPDATE refinery_schema_history SET name = NULL WHERE version = 1",
        "UPDATE refinery_schema_history SET checksum = '1' WHERE version = 1",
        "DELETE FROM refinery_schema_history WHERE version = 1",
        "DELETE FROM refinery_schema_history",
        "DROP TABLE refinery_schema_history",
        "ALTER TABLE refinery_schema_history RENAME COLUMN checksum TO checks",
    ] {
        let mut node = Node::start();
        node.stop();
        change_store(&node, damage);
        node.try_restart(&Launch::default());
        assert_eq!(node.wait().code(), Some(1), "{damage}: {}", node.said());
        let log = node.said();
        assert!(!log.contains("panicked"), "{damage}: {log}");
        let texts = ["history of migrations", "this version's layout", "unreleased build of Snavio"];
        assert!(texts.iter().any(|text| log.contains(text)), "{damage}: {log}");
    }
}
