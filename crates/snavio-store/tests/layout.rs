//! The file of the embedded store: the node migrates it once, and refuses it if it is of a newer version or
//! in use.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use snavio_model::claim::ClaimPolicy;
use snavio_model::id::Serial;
use snavio_model::settle::Outcome;
use snavio_store::conformance::samples::{
    RECEIVES_MAX, act, at, notify, queue, queued, receive, route, settle_one,
};
use snavio_store::engine::postgres::{self, PostgresStore};
use snavio_store::engine::sqlite::{
    BackupError, EmbeddedStore, FILE, OpenError, Options, backup, check_integrity, newest_at, restore,
};
use snavio_store::{Durability, Journal, Ledger, Queue, Redriven, Store};
use snavio_testbed::Postgres;

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
    let (first, epoch) = (layout(folder.path()), store.figures().own.unwrap().epoch);
    store.close().await;
    drop(store);
    let store = open(folder.path()).unwrap();
    assert_eq!(layout(folder.path()), first);
    assert!(store.figures().own.unwrap().epoch > epoch);
    store.close().await;
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_from_the_future_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path()).unwrap().close().await;
    let file = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    let newer = "INSERT INTO refinery_schema_history (version, name, applied_on, checksum) \
         SELECT max(version) + 1, 'tomorrow', applied_on, '1' FROM refinery_schema_history";
    file.execute(newer, []).unwrap();
    let epoch = || file.query_row("SELECT value FROM meta WHERE key = 'epoch'", [], |it| it.get::<_, i64>(0));
    let before = epoch().unwrap();
    let refused = open(folder.path()).map(|_| ()).unwrap_err();
    assert!(matches!(refused, OpenError::Migration(..)), "{refused:?}");
    let text = std::error::Error::source(&refused).map(ToString::to_string).unwrap_or_default();
    assert!(text.contains("the store has layout 2") && text.contains("upgrade Snavio"), "{refused}: {text}");
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

/// PIP-9, DLV-5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_stays_one_while_its_queue_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(&Options { queue_depth_max: 2, ..Options::new(folder.path()) }).unwrap();
    for id in ["a", "b"] {
        settle_one(&store, id, &notify(), at(0)).await;
    }
    for _ in 0..RECEIVES_MAX {
        receive(&store, "notify", 0, at(0)).await;
    }
    assert_eq!(store.sweep(at(0)).await.unwrap().dead_letters, 2);
    settle_one(&store, "c", &notify(), at(1)).await;
    let dead = dead_letters(&store).await;
    let redriven = store.redrive("acme", dead.clone(), act("mended", at(1))).await.unwrap();
    assert_eq!(redriven, Redriven { back: vec![dead[0]], full: vec![dead[1]], ..Redriven::default() });
    assert_eq!(dead_letters(&store).await, [dead[1]]);
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

    let restored = restore(&copy, &other.path().join("data"), false, at(60)).unwrap();
    assert_eq!(restored.newest_at, at(0));
    assert!(restored.epoch > store.figures().own.unwrap().epoch);
    assert!(check_integrity(&other.path().join("data")).unwrap().is_empty());
    let store = open(&other.path().join("data")).unwrap();
    let messages = store.messages("acme", Serial(0), 10).await.unwrap();
    assert_eq!(messages.iter().map(|it| it.message.id.as_str()).collect::<Vec<_>>(), ["kept"]);
    assert!(queued(settle_one(&store, "new", &notify(), at(2)).await) > later, "no number means two things");
    store.close().await;
}

/// Makes a folder with a stopped store, and a backup of the store.
async fn stopped_with_backup() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("old")).unwrap();
    settle_one(&store, "kept", &notify(), at(0)).await;
    store.close().await;
    let copy = folder.path().join("copy.db");
    backup(&folder.path().join("old"), &copy).unwrap();
    (folder, copy)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// ENG-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_stopped_is_all_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    settle_one(&store, "a", &notify(), at(0)).await;
    store.messages("acme", Serial(0), 10).await.unwrap();
    store.close().await;
    assert_eq!(
        names(folder.path()),
        [FILE, "snavio.lock", "snavio.position"],
        "no log is left that a copy of the file would miss"
    );
}

/// ENG-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_let_go_without_a_word_is_all_in_its_file_too() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    settle_one(&store, "a", &notify(), at(0)).await;
    store.messages("acme", Serial(0), 10).await.unwrap();
    drop(store);
    assert_eq!(names(folder.path()), [FILE, "snavio.lock", "snavio.position"]);
    assert_eq!(newest_at(folder.path()).unwrap(), Some(at(0)));
}

/// ENG-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_let_go_ends_its_threads_before_the_folder_is_free() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let store = open(folder.path()).unwrap();
        settle_one(&store, &format!("id-{round}"), &notify(), at(0)).await;
    }
    let store = open(folder.path()).unwrap();
    assert_eq!(store.messages("acme", Serial(0), 10).await.unwrap().len(), 3);
    store.close().await;
}

/// ENG-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_appears_whole_or_not_at_all() {
    let (folder, _) = stopped_with_backup().await;
    assert_eq!(names(folder.path()), ["copy.db", "old"], "nothing is left beside it");
    let nowhere = backup(&folder.path().join("old"), &folder.path().join("none/copy.db"));
    assert!(nowhere.is_err());
    let again = backup(&folder.path().join("old"), &folder.path().join("copy.db")).unwrap_err();
    assert!(matches!(again, BackupError::Exists(_)), "{again:?}");
    // The name of a dangling link is taken, although a check before the copy finds no file.
    std::os::unix::fs::symlink("nowhere", folder.path().join("late.db")).unwrap();
    let late = backup(&folder.path().join("old"), &folder.path().join("late.db")).unwrap_err();
    assert!(matches!(late, BackupError::Exists(_)), "{late:?}");
    assert_eq!(names(folder.path()), ["copy.db", "late.db", "old"], "no half is left, and nothing replaced");
}

/// ENG-2, QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_is_refused_beside_a_log_whose_store_is_gone() {
    let (folder, copy) = stopped_with_backup().await;
    for left in ["snavio.db-wal", "snavio.db-shm", "snavio.db-journal"] {
        let data = folder.path().join(format!("with {left}"));
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join(left), b"pages that were acknowledged").unwrap();
        let refused = restore(&copy, &data, false, at(60)).unwrap_err();
        assert!(matches!(&refused, BackupError::LeftOver(it) if *it == data.join(left)), "{refused:?}");
        assert!(refused.to_string().contains(left), "{refused}");
        assert!(!data.join(FILE).exists());
    }
}

/// ENG-2, QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_that_was_killed_leaves_nothing_that_the_next_one_takes_in() {
    let (folder, copy) = stopped_with_backup().await;
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    // The log of a real store, under the name that SQLite looks for.
    let other = open(&folder.path().join("other")).unwrap();
    settle_one(&other, "foreign", &notify(), at(0)).await;
    for ending in ["", "-wal", "-shm"] {
        let from = folder.path().join(format!("other/{FILE}{ending}"));
        std::fs::copy(from, data.join(format!("{FILE}.restoring{ending}"))).unwrap();
    }
    restore(&copy, &data, false, at(60)).unwrap();
    let store = open(&data).unwrap();
    let messages = store.messages("acme", Serial(0), 10).await.unwrap();
    assert_eq!(messages.iter().map(|it| it.message.id.as_str()).collect::<Vec<_>>(), ["kept"]);
    store.close().await;
    assert_eq!(names(&data), [FILE, "snavio.lock", "snavio.position"]);
}

/// ENG-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_stores_file_is_not_taken_for_a_backup() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    settle_one(&store, "in the log", &notify(), at(0)).await;
    let refused = restore(&folder.path().join(FILE), &folder.path().join("data"), false, at(60)).unwrap_err();
    assert!(
        matches!(&refused, BackupError::Unfit { problem, .. } if problem.contains("-wal")),
        "{refused:?}"
    );
    let busy = restore(&folder.path().join(FILE), folder.path(), false, at(60)).unwrap_err();
    assert!(matches!(busy, BackupError::Folder(OpenError::InUse(_))), "{busy:?}");
    store.close().await;
}

/// Counts the content hashes that the view shows for the claims of one id at two destinations.
const ARCHIVED: &str = "SELECT count(domain_payload_hash) FROM claims WHERE event_id = 'a'";

/// CLM-2, CLM-16: the view shows the content hash of each claim of an id, whichever of its messages came first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn view_shows_content_hash_of_archived_claims() {
    let folder = tempfile::tempdir().unwrap();
    let url = Postgres::shared().database().unwrap();
    let embedded = open(folder.path()).unwrap();
    let postgres = PostgresStore::open(&postgres::Options::new(&url)).await.unwrap();
    for store in [&embedded as &dyn Store, &postgres] {
        for destination in ["post", "copy"] {
            let ledger = route(destination, ClaimPolicy::ledger());
            assert!(queued(settle_one(store, "a", &ledger, at(0)).await).is_some());
        }
        store.close().await;
    }
    let file = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    file.execute_batch("DELETE FROM message").unwrap();
    let shown: i64 = file.query_row(ARCHIVED, [], |row| row.get(0)).unwrap();
    Postgres::shared().ask(&url, "DELETE FROM message").unwrap();
    assert_eq!((shown, Postgres::shared().ask(&url, ARCHIVED).unwrap().trim()), (2, "2"));
}

async fn dead_letters(store: &EmbeddedStore) -> Vec<Serial> {
    let origins = store.dead_letter_origins(&queue("dead"), Serial(0), 10).await.unwrap();
    origins.into_iter().map(|it| it.id).collect()
}
