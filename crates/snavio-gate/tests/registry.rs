//! The registry that a gate keeps in memory, over a real store.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::Duration;

use snavio_gate::{Gate, Settings};
use snavio_model::registry::{Change, Entry, Sealed, Unseal};
use snavio_model::signing::Secret;
use snavio_model::time::Timestamp;
use snavio_servers::Postgres;
use snavio_store::Store;
use snavio_store::embedded::{self, EmbeddedStore};
use snavio_store::postgres::{self, PostgresStore};

const NOON: Timestamp = Timestamp(1_800_000_000_000);

struct NoKeys;

impl Unseal for NoKeys {
    fn unseal(&self, _: &Sealed) -> Option<Secret> {
        None
    }
}

/// REG-18
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_somebody_else_made_takes_effect_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    follows(Arc::new(EmbeddedStore::open(&embedded::Options::new(folder.path())).unwrap())).await;
}

/// REG-18, ENG-7
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_another_node_may_have_made_takes_effect_by_itself() {
    let url = Postgres::shared().database().unwrap();
    follows(Arc::new(PostgresStore::open(&postgres::Options::new(url)).await.unwrap())).await;
}

async fn follows(store: Arc<dyn Store>) {
    let started = Gate::start(Settings::default(), Arc::clone(&store), Arc::new(NOON), Arc::new(NoKeys));
    let gate = started.await.unwrap();
    assert!(gate.registry().tenant("acme").is_none());
    let tenant = Entry::Tenant(serde_json::from_str(r#"{"name":"acme"}"#).unwrap());
    let (who, why) = ("operator".into(), "made elsewhere".into());
    let change =
        Change { version: 1, at: NOON, who, why, key: tenant.key(), before: None, after: Some(tenant) };
    store.apply(vec![change]).await.unwrap();
    let seen = async {
        while gate.registry().tenant("acme").is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), seen).await.expect("the gate follows its store");
    gate.stop().await;
}
