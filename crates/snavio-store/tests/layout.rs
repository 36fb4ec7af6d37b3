//! The embedded store's file: brought up to date once, refused when it is from the future or in use.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use snavio_model::id::Serial;
use snavio_model::settle::Outcome;
use snavio_store::conformance::samples::{at, notify, queued, settle_one};
use snavio_store::embedded::{EmbeddedStore, FILE, OpenError, Options, backup, check_integrity, restore};
use snavio_store::{Durability, Journal, Store};

fn open(folder: &Path) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(&Options::new(folder))
}

fn layout(folder: &Path) -> Vec<(String, String)> {
    let connection = rusqlite::Connection::open(folder.join(FILE)).unwrap();
    let mut statement =
        connection.prepare("SELECT name, coalesce(sql, '') FROM sqlite_schema ORDER BY name").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// ENG-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migrations_run_once_and_opening_again_changes_nothing_but_the_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    let (first, epoch) = (layout(folder.path()), store.figures().epoch);
    store.close().await;
    drop(store);
    let store = open(folder.path()).unwrap();
    assert_eq!(layout(folder.path()), first);
    assert!(store.figures().epoch > epoch);
    store.close().await;
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_from_the_future_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path()).unwrap().close().await;
    let file = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    let newer = "INSERT INTO refinery_schema_history (version, name, applied_on, checksum) \
         SELECT version + 1, 'tomorrow', applied_on, '1' FROM refinery_schema_history";
    file.execute(newer, []).unwrap();
    let epoch = || file.query_row("SELECT value FROM meta WHERE key = 'epoch'", [], |it| it.get::<_, i64>(0));
    let before = epoch().unwrap();
    let refused = open(folder.path()).map(|_| ()).unwrap_err();
    assert!(matches!(refused, OpenError::Migration(..)), "{refused:?}");
    assert_eq!(epoch().unwrap(), before);
}

/// ENG-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_belongs_to_one_store_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    assert!(matches!(open(folder.path()).map(|_| ()).unwrap_err(), OpenError::InUse(_)));
    store.close().await;
    drop(store);
    open(folder.path()).unwrap().close().await;
}

/// PIP-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_does_not_flush_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(&Options { flush: false, ..Options::new(folder.path()) }).unwrap();
    assert!(matches!(store.durability(), Durability::Relaxed(_)));
    store.close().await;
    drop(store);
    let store = open(folder.path()).unwrap();
    assert_eq!(store.durability(), Durability::Durable);
    store.close().await;
}

/// PIP-4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_is_an_answer_and_leaves_no_message() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(&Options { queue_depth_max: 2, ..Options::new(folder.path()) }).unwrap();
    for id in ["a", "b"] {
        assert!(queued(settle_one(&store, id, &notify(), at(0)).await).is_some());
    }
    assert_eq!(settle_one(&store, "c", &notify(), at(0)).await, Outcome::QueueFull);
    assert_eq!(store.messages("acme", Serial(0), 10).await.unwrap().len(), 2);
    store.close().await;
}

/// ENG-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_running_store_is_restored_above_every_number_given_since() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(folder.path()).unwrap();
    settle_one(&store, "kept", &notify(), at(0)).await;
    let copy = other.path().join("copy.db");
    backup(folder.path(), &copy).unwrap();
    let later = queued(settle_one(&store, "later", &notify(), at(1)).await);
    store.close().await;

    let restored = restore(&copy, &other.path().join("data"), at(60)).unwrap();
    assert_eq!(restored.newest_at, at(0));
    assert!(restored.epoch > store.figures().epoch);
    assert!(check_integrity(&other.path().join("data")).unwrap().is_empty());
    let store = open(&other.path().join("data")).unwrap();
    let messages = store.messages("acme", Serial(0), 10).await.unwrap();
    assert_eq!(messages.iter().map(|it| it.message.id.as_str()).collect::<Vec<_>>(), ["kept"]);
    assert!(queued(settle_one(&store, "new", &notify(), at(2)).await) > later, "no number means two things");
    store.close().await;
}
