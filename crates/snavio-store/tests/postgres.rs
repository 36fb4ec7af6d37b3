//! The PostgreSQL backend does what every backend must.

use std::sync::Arc;

use async_trait::async_trait;
use snavio_store::conformance::Backend;
use snavio_store::conformance::processing::take_up;
use snavio_store::conformance::samples::{at, receive};
use snavio_store::postgres::{Options, PostgresStore};
use snavio_store::{Ledger, Store};
use snavio_testbed::Postgres;

struct Database(String);

#[async_trait]
impl Backend for Database {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(PostgresStore::open(&Options::new(&self.0)).await.expect("the store opens"))
    }

    fn is_shared(&self) -> bool {
        true
    }
}

snavio_store::conformance!(Database(Postgres::shared().database().expect("a database can be made")));

/// CLM-7: what else is swept, and fails, keeps no overdue work from its next attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overdue_work_is_taken_up_again_though_other_sweeping_fails() {
    for table in ["original", "telemetry", "batch"] {
        let url = Postgres::shared().database().expect("a database can be made");
        let store = PostgresStore::open(&Options::new(&url)).await.expect("the store opens");
        let work = take_up(&store, "a", 0).await;
        let away = format!("ALTER TABLE {table} RENAME TO put_away");
        Postgres::shared().ask(&url, &away).expect("the table can be renamed");
        assert!(store.sweep(at(31)).await.is_err(), "{table}");
        let again = receive(&store, "book", 30, at(32)).await;
        assert_eq!((again.len(), again[0].attempt), (1, 2), "{table}");
        assert!(again[0].fence > work.fence);
        store.close().await;
    }
}
