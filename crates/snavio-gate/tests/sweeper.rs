//! When a gate runs the expiry sweep for all nodes, over a real store.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::Duration;

use snavio_gate::{Gate, Settings};
use snavio_model::registry::{Sealed, Unseal};
use snavio_model::signature::signing::Secret;
use snavio_model::time::Timestamp;
use snavio_store::engine::sqlite::{EmbeddedStore, Options};
use snavio_store::{NodeState, Store};

const NOON: Timestamp = Timestamp(1_800_000_000_000);

struct NoKeys;

impl Unseal for NoKeys {
    fn unseal(&self, _: &Sealed) -> Option<Secret> {
        None
    }
}

/// QUA-1, ENG-7
#[tokio::test(flavor = "multi_thread")]
async fn node_with_held_sweeps_does_not_lead_them() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&Options::new(folder.path())).unwrap());
    let gate = Gate::start(Settings::default(), Arc::clone(&store), Arc::new(NOON), Arc::new(NoKeys));
    let gate = gate.await.unwrap();
    gate.hold_sweeps(true);
    tokio::time::sleep(Duration::from_millis(200)).await;
    // A node that announces itself anew leads no task yet.
    store.leave("").await.unwrap();
    store.announce(&node()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(leads(&*store).await, [""; 0], "a node whose time does not hold does not ask to lead");

    gate.hold_sweeps(false);
    let sweeps = async {
        while !leads(&*store).await.contains(&"sweeper".to_owned()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), sweeps).await.expect("the gate sweeps again");
    gate.stop().await;
}

async fn leads(store: &dyn Store) -> Vec<String> {
    store.nodes().await.unwrap().into_iter().flat_map(|node| node.leads).collect()
}

fn node() -> NodeState {
    NodeState {
        id: String::new(),
        started_at: NOON,
        now: NOON,
        address: String::new(),
        software: String::new(),
        registry_version: 0,
        waiting: 0,
        draining: false,
    }
}
