//! The embedded backend passes the suite of every backend.

use std::sync::Arc;

use async_trait::async_trait;
use snavio_store::Store;
use snavio_store::conformance::Backend;
use snavio_store::engine::sqlite::{EmbeddedStore, FILE, Options};

struct Embedded(tempfile::TempDir);

#[async_trait]
impl Backend for Embedded {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(EmbeddedStore::open(&Options::new(self.0.path())).expect("the store opens"))
    }

    fn claim_rows(&self) -> usize {
        let file = rusqlite::Connection::open(self.0.path().join(FILE)).expect("it can be read");
        let count = "SELECT (SELECT count(*) FROM claim) + (SELECT count(*) FROM original) + (SELECT count(*) FROM known_id)";
        let counted: i64 = file.query_row(count, [], |row| row.get(0)).expect("they can be counted");
        usize::try_from(counted).expect("it is no less than none")
    }

    fn rows_of_a_claim(&self) -> usize {
        2
    }
}

snavio_store::conformance!(Embedded(tempfile::tempdir().expect("a temporary folder can be made")));

/// ORD-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_do_not_pass_one_without_room() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let options = Options { queue_depth_max: 2, ..Options::new(folder.path()) };
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&options).expect("the store opens"));
    snavio_store::conformance::parking::messages_do_not_pass_one_without_room(&store).await;
    store.close().await;
}

/// ORD-3, ORD-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_message_goes_out_despite_a_full_queue() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let options = Options { queue_depth_max: 2, ..Options::new(folder.path()) };
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&options).expect("the store opens"));
    snavio_store::conformance::parking::waiting_message_goes_out_despite_a_full_queue(&store).await;
    store.close().await;
}
