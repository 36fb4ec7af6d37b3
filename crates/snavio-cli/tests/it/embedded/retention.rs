//! A store in which the retention of a ledger was lowered by hand.

use serde_json::json;

use crate::node::{Launch, Node};

/// CLM-15
#[tokio::test]
async fn node_refuses_store_with_ledger_retention_below_seven_years() {
    let mut node = Node::start();
    let registry = json!({
        "tenants": [{ "name": "acme" }],
        "services": [{ "name": "acme/ledger" }],
        "routes": [{
            "target": "acme/ledger", "name": "post", "queue": "entries", "dead_letter_queue": "dead",
            "claim": { "policy": "ledger" },
        }],
    });
    node.apply(&registry).await;
    node.stop();
    let file = node.data().join("snavio.db");
    let change =
        "UPDATE registry_entry SET body = replace(body, '220924800', '31536000') WHERE kind = 'route'";
    let store = snavio_sdk::sqlite::rusqlite::Connection::open(file).unwrap();
    assert_eq!(store.execute(change, []).unwrap(), 1);
    drop(store);
    node.try_restart(&Launch::default());
    assert_eq!(node.wait().code(), Some(1));
    let log = node.said();
    assert!(log.contains("route acme/ledger:post"), "{log}");
    assert!(log.contains("2557 days × 86400 s = 220924800 s"), "{log}");
}
