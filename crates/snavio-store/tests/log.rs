//! The embedded store's write-ahead log, as a killed process leaves it and as it is after damage (QUA-1).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::time::Duration;

use snavio_store::Store;
use snavio_store::conformance::samples::{at, notify, settle_one};
use snavio_store::embedded::{EmbeddedStore, FILE, LogDamage, OpenError, Options, backup, check_integrity};

const LOG: &str = "snavio.db-wal";
const POSITION: &str = "snavio.position";

fn open(folder: &Path) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(&Options::new(folder))
}

/// A store that is in use, with some commits in its log, of which its position file knows.
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

/// The files as a killed process leaves them.
fn copy(from: &Path, to: &Path) {
    for name in [FILE, LOG, POSITION] {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

fn damage(refused: Result<EmbeddedStore, OpenError>) -> LogDamage {
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
        let told = damage(open(copied.path())).to_string();
        assert!(told.contains(word), "{told}");
        assert!(check_integrity(copied.path()).is_err(), "{told}");
        assert!(backup(copied.path(), &other.path().join("copy.db")).is_err(), "{told}");
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
    copy(one.path(), copied.path());
    std::fs::copy(other.path().join(LOG), copied.path().join(LOG)).unwrap();
    let told = damage(open(copied.path()));
    assert!(matches!(told, LogDamage::Other), "{told:?}");
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
    assert!(!folder.path().join(LOG).exists(), "nor does it leave a log");
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
async fn remains_of_a_store_keep_a_new_one_from_being_made() {
    let remains = [
        LOG,
        POSITION,
        "snavio.db.restoring",
        "snapshot.floor",
        "archive/a",
        "claims/identity",
        "recovery-1/a",
    ];
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
    for name in ["platform.key", "operator.token", "snavio.toml", "snavio.db", "snavio.db-journal"] {
        std::fs::write(folder.path().join(name), b"").unwrap();
    }
    std::fs::create_dir(folder.path().join("archive")).unwrap();
    open(folder.path()).unwrap().close().await;
}
