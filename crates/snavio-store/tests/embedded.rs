//! The embedded backend does what every backend must.

use std::sync::Arc;

use async_trait::async_trait;
use snavio_store::Store;
use snavio_store::conformance::Backend;
use snavio_store::embedded::{EmbeddedStore, Options};

struct Embedded(tempfile::TempDir);

#[async_trait]
impl Backend for Embedded {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(EmbeddedStore::open(&Options::new(self.0.path())).expect("the store opens"))
    }
}

snavio_store::conformance!(Embedded(tempfile::tempdir().expect("a temporary folder can be made")));
