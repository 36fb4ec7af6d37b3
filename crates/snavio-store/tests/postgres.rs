//! The PostgreSQL backend does what every backend must.

use std::sync::Arc;

use async_trait::async_trait;
use snavio_store::Store;
use snavio_store::conformance::Backend;
use snavio_store::postgres::{Options, PostgresStore};
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
