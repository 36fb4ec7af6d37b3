//! The embedded store's write-ahead log, after a kill and after damage (QUA-1).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use snavio_store::conformance::samples::{at, notify, settle_one};
use snavio_store::engine::sqlite::{
    Changelog, EmbeddedStore, FILE, Kept, LogDamage, OpenError, Options, Recovery, backup, check_integrity,
    restore, take_over_archive,
};
use snavio_store::{Act, Store};

const LOG: &str = "snavio.db-wal";
const POSITION: &str = "snavio.position";

fn open(folder: &Path) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(&Options::new(folder))
}

/// Opens a store with some commits in its log, and waits until its position file covers them.
async fn in_use(folder: &Path) -> EmbeddedStore {
    let store = open(folder).unwrap();
    for number in 0..20 {
        settle_one(&store, &format!("id-{number}"), &notify(), at(number)).await;
    }
    for _ in 0..3000 {
        let log = std::fs::read(folder.join(LOG)).unwrap();
        let salts: String = log[16..24].iter().map(|byte| format!("{byte:02x}")).collect();
        let position = std::fs::read_to_string(folder.join(POSITION)).unwrap();
        let frames = position.split_whitespace().nth(2).map(|frames| frames.parse::<u64>().unwrap());
        if position.contains(&salts) && frames > Some(1) {
            return store;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the position was not written");
}

/// Opens a connection like another program's. It leaves the log as it is when it closes.
fn connection(folder: &Path) -> Connection {
    let connection = Connection::open(folder.join(FILE)).unwrap();
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    connection.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
    connection
}

fn operator() -> Act {
    Act { who: "operator".to_owned(), why: String::new(), at: at(1) }
}

/// Copies the files as a killed process leaves them.
fn copy(from: &Path, to: &Path) {
    for name in [FILE, LOG, POSITION] {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

fn damage_of(refused: Result<EmbeddedStore, OpenError>) -> LogDamage {
    match refused.map(|_| ()) {
        Err(OpenError::Log { damage, .. }) => damage,
        other => panic!("not refused for its log: {other:?}"),
    }
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_that_lacks_flushed_commits_is_refused() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = in_use(folder.path()).await;
    let log = std::fs::read(folder.path().join(LOG)).unwrap();
    let cases: [(&str, Option<Vec<u8>>); 5] = [
        ("missing", None),
        ("missing", Some(Vec::new())),
        ("cut short", Some(log[..32 + 4120].to_vec())),
        ("cut short", Some(log[..32].to_vec())),
        ("damaged at byte 0", Some(vec![0; log.len()])),
    ];
    for (word, left) in cases {
        let copied = tempfile::tempdir().unwrap();
        copy(folder.path(), copied.path());
        match left {
            None => std::fs::remove_file(copied.path().join(LOG)).unwrap(),
            Some(bytes) => std::fs::write(copied.path().join(LOG), bytes).unwrap(),
        }
        let damage = damage_of(open(copied.path())).to_string();
        assert!(damage.contains(word), "{damage}");
        assert!(check_integrity(copied.path()).is_err(), "{damage}");
        assert!(backup(copied.path(), &other.path().join("copy.db")).is_err(), "{damage}");
    }
    let copied = tempfile::tempdir().unwrap();
    copy(folder.path(), copied.path());
    open(copied.path()).unwrap().close().await;
    store.close().await;
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_of_another_store_is_refused() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (first, second) = (in_use(one.path()).await, in_use(other.path()).await);
    let copied = tempfile::tempdir().unwrap();
    // Salts rise with each start of a log. Only the log with the lower salts can never be the node's own next
    // one.
    let [first_salt, second_salt] = [&one, &other].map(|folder| {
        let log = std::fs::read(folder.path().join(LOG)).unwrap();
        u32::from_be_bytes(log[16..20].try_into().unwrap())
    });
    let is_lower = second_salt.wrapping_sub(first_salt) >= 1 << 31;
    let (store, log) = if is_lower { (one.path(), other.path()) } else { (other.path(), one.path()) };
    copy(store, copied.path());
    std::fs::copy(log.join(LOG), copied.path().join(LOG)).unwrap();
    let found = damage_of(open(copied.path()));
    assert!(matches!(found, LogDamage::Other), "{found:?}");

    let foreign = std::fs::read(copied.path().join(LOG)).unwrap();
    let recovery = Recovery::prepare(copied.path(), at(1)).unwrap().unwrap();
    assert_eq!((&recovery.all, recovery.readable.is_sound()), (&None, true), "the foreign log is not read");
    assert!(std::fs::read(recovery.copies.join(LOG)).unwrap() == foreign, "it is kept as it was found");
    recovery.apply(Kept::Readable, operator()).unwrap();
    open(copied.path()).unwrap().close().await;
    first.close().await;
    second.close().await;
}

/// ENG-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clean_stop_needs_no_log() {
    let folder = tempfile::tempdir().unwrap();
    in_use(folder.path()).await.close().await;
    assert!(!folder.path().join(LOG).exists());
    assert!(std::fs::read_to_string(folder.path().join(POSITION)).unwrap().starts_with("clean"));
    let before = std::fs::read(folder.path().join(FILE)).unwrap();
    assert_eq!(check_integrity(folder.path()).unwrap(), Vec::<String>::new());
    assert!(before == std::fs::read(folder.path().join(FILE)).unwrap(), "the check changes nothing");
    let log = std::fs::metadata(folder.path().join(LOG));
    assert!(log.map_or(0, |log| log.len()) == 0, "nor does it leave a filled log");
    open(folder.path()).unwrap().close().await;
}

/// PIP-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_were_not_flushed_may_be_missing() {
    let (folder, copied) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let relaxed = |folder: &Path| Options { flush: false, ..Options::new(folder) };
    let store = EmbeddedStore::open(&relaxed(folder.path())).unwrap();
    settle_one(&store, "a", &notify(), at(0)).await;
    copy(folder.path(), copied.path());
    std::fs::remove_file(copied.path().join(LOG)).unwrap();
    EmbeddedStore::open(&relaxed(copied.path())).unwrap().close().await;
    store.close().await;
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remains_of_a_store_prevent_a_new_one() {
    let remains = [LOG, POSITION, "snavio.db.restoring", "archive/a", "claims/identity", "recovery-1/a"];
    for (name, is_empty) in remains.into_iter().flat_map(|name| [(name, false), (name, true)]) {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(name);
        std::fs::create_dir_all(left.parent().unwrap()).unwrap();
        std::fs::write(&left, b"left").unwrap();
        if is_empty {
            std::fs::write(folder.path().join(FILE), b"").unwrap();
        }
        let refused = open(folder.path()).map(|_| ()).unwrap_err();
        let OpenError::Remains { remains, .. } = &refused else { panic!("{name}: {refused:?}") };
        assert!(name.starts_with(remains.as_str()), "{name}: {remains}");
        assert_eq!(std::fs::read(&left).unwrap(), b"left");
    }
    let folder = tempfile::tempdir().unwrap();
    for name in
        ["platform.key", "operator.token", "snavio.toml", "snavio.db", "snavio.db-journal", "snapshot.floor"]
    {
        std::fs::write(folder.path().join(name), b"").unwrap();
    }
    std::fs::create_dir(folder.path().join("archive")).unwrap();
    open(folder.path()).unwrap().close().await;
}

/// QUA-1: the open fails because the store is of a newer version, or its history of migrations is damaged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_open_keeps_the_log() {
    let (folder, copied) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = in_use(folder.path()).await;
    copy(folder.path(), copied.path());
    store.close().await;
    let insert = "INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
                  VALUES (9999, 'later', 'no time', 'no sum')";
    connection(copied.path()).execute_batch(insert).unwrap();
    let refused = open(copied.path()).map(|_| ()).unwrap_err();
    assert!(matches!(refused, OpenError::Migration(..)), "{refused:?}");
    let delete = "DELETE FROM refinery_schema_history WHERE version = 9999";
    connection(copied.path()).execute_batch(delete).unwrap();
    open(copied.path()).unwrap().close().await;
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_keeps_the_log_of_a_node_killed_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    in_use(folder.path()).await.close().await;
    let beside = Changelog::open(folder.path()).unwrap();
    connection(folder.path()).execute_batch("CREATE TABLE of_a_killed_node (n INTEGER)").unwrap();
    let log = std::fs::read(folder.path().join(LOG)).unwrap();
    assert!(log.len() > 4096);
    drop(beside);
    assert!(std::fs::read(folder.path().join(LOG)).unwrap() == log);
}

/// ENG-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_reports_a_reader_that_holds_the_log() {
    let (first, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    in_use(first.path()).await.close().await;
    let copy = first.path().join("copy.db");
    backup(first.path(), &copy).unwrap();
    restore(&copy, folder.path(), false, at(1)).unwrap();
    open(folder.path()).unwrap().close().await;
    let reader = connection(folder.path());
    reader.execute_batch("BEGIN").unwrap();
    reader.query_row("SELECT count(*) FROM claim", [], |_| Ok(())).unwrap();
    let refused = take_over_archive(folder.path(), at(2)).unwrap_err().to_string();
    assert!(refused.contains("another program reads"), "{refused}");
    drop(reader);
    take_over_archive(folder.path(), at(3)).unwrap();
    open(folder.path()).unwrap().close().await;
}

/// QUA-1: another program that keeps the database open keeps the log too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_left_by_a_clean_stop_is_judged() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = in_use(folder.path()).await;
    let idle = connection(folder.path());
    idle.query_row("SELECT count(*) FROM claim", [], |_| Ok(())).unwrap();
    store.close().await;
    let log = std::fs::read(folder.path().join(LOG)).unwrap();
    assert!(std::fs::read_to_string(folder.path().join(POSITION)).unwrap().starts_with("clean"));
    let mut older = log.clone();
    // This changes the first salt, so the checksum of the header no longer fits.
    older[19] ^= 1;
    let cases: [(&str, Option<Vec<u8>>); 4] = [
        ("", Some(log.clone())),
        ("", None),
        ("cut short", Some(log[..32 + 4120].to_vec())),
        ("damaged", Some(older)),
    ];
    for (word, left) in cases {
        let copied = tempfile::tempdir().unwrap();
        copy(folder.path(), copied.path());
        match left {
            None => std::fs::remove_file(copied.path().join(LOG)).unwrap(),
            Some(bytes) => std::fs::write(copied.path().join(LOG), bytes).unwrap(),
        }
        if !word.is_empty() {
            let found = damage_of(open(copied.path())).to_string();
            assert!(found.contains(word), "{found}");
            let recovery = Recovery::prepare(copied.path(), at(1)).unwrap().unwrap();
            assert_eq!(recovery.contents(Kept::Readable).unwrap().messages, 20, "the database has all");
            assert_eq!(recovery.advice(), Some(Kept::Readable));
            recovery.apply(Kept::Readable, operator()).unwrap();
        }
        open(copied.path()).unwrap().close().await;
    }
    drop((idle, other));
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_recovery_of_readable_commits_can_be_repeated() {
    let (folder, copied) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = in_use(folder.path()).await;
    // Returns the salts of the log's newest start, and the number of its frames.
    let frames = |folder: &Path| {
        let log = std::fs::read(folder.join(LOG)).unwrap();
        let salts = log[16..24].to_vec();
        let frames = log[32..].chunks_exact(4120).take_while(|frame| frame[8..16] == salts).count();
        (salts, frames)
    };
    // The open reader keeps any checkpoint from moving later frames.
    let reader = connection(folder.path());
    reader.execute_batch("BEGIN").unwrap();
    reader.query_row("SELECT count(*) FROM claim", [], |_| Ok(())).unwrap();
    let before = frames(folder.path());
    for number in 20..30 {
        settle_one(&store, &format!("id-{number}"), &notify(), at(number)).await;
    }
    copy(folder.path(), copied.path());
    drop(reader);
    store.close().await;
    let after = frames(copied.path());
    let first = if after.0 == before.0 { before.1 } else { 0 };
    let log = copied.path().join(LOG);
    let mut bytes = std::fs::read(&log).unwrap();
    let middle = (first + after.1) / 2;
    bytes[32 + middle * 4120 + 1000] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let recovery = Recovery::prepare(copied.path(), at(1)).unwrap().unwrap();
    let readable = recovery.readable.clone();
    assert!(readable.is_sound(), "{readable:?}");
    assert!(recovery.all.as_ref().unwrap().messages > readable.messages);
    // A folder in place of the index makes the recovery fail just before SQLite opens the store.
    let index = copied.path().join("snavio.db-shm");
    std::fs::create_dir(&index).unwrap();
    recovery.apply(Kept::Readable, operator()).unwrap_err();
    std::fs::remove_dir(&index).unwrap();
    let again = Recovery::prepare(copied.path(), at(2)).unwrap().unwrap();
    assert_eq!((&again.readable, &again.all), (&readable, &Some(readable.clone())));
    again.apply(Kept::Readable, operator()).unwrap();
    open(copied.path()).unwrap().close().await;
}
