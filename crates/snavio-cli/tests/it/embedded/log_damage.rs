//! A write-ahead log that was damaged, deleted or separated from its database: a node must not serve over it
//! and silently drop acknowledged commits (QUA-1).

use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, Stdio};

use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::id::Serial;
use snavio_model::time::Timestamp;
use snavio_sdk::sqlite::rusqlite::config::DbConfig;
use snavio_sdk::sqlite::rusqlite::{Connection, OpenFlags};
use snavio_store::engine::sqlite::{EmbeddedStore, Kept, OpenError, Options, Recovery};
use snavio_store::{Act, Journal, Store};

use super::crash::{Choices, is_long};
use crate::node::{Draft, Launch, Node, binary, new_id, post};
use crate::shell::Shell;

/// Returns a killed node and the ids that it acknowledged, in order.
async fn killed_node(messages: usize) -> (Node, Vec<String>) {
    let mut node = Node::start();
    let cast = node.cast().await;
    let billing = node.client(&cast.billing);
    let reader = open_log_reader(&node.data());
    let mut acknowledged = Vec::new();
    for number in 0..messages {
        let draft = Draft::new(if number % 2 == 0 { "pay" } else { "notify" }, &new_id());
        assert_eq!(post(&billing, draft.sign(&cast.billing)).await.0, 202);
        acknowledged.push(draft.id);
        if number == messages / 2 {
            let grant = json!({ "source": "acme/billing", "target": "acme/bot", "name": "lost" });
            let revoked = node.operator().call(Method::DELETE, "/v1/grants", Some(&grant)).await;
            revoked.expect("the grant is revoked");
        }
    }
    node.kill();
    drop(reader);
    (node, acknowledged)
}

/// Opens a reader that keeps the log from starting over, so that all later commits stay in it on any machine.
fn open_log_reader(data: &Path) -> Connection {
    let file = data.join("snavio.db");
    let reader =
        Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("the store opens");
    // Without this setting SQLite would remove the log when the last connection closes.
    reader.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).expect("a setting");
    reader.execute_batch("BEGIN; SELECT count(*) FROM message").expect("the store can be read");
    reader
}

fn copy_of(data: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let copied = Command::new("cp").arg("-a").arg(data).arg(folder.path().join("data")).status();
    assert!(copied.expect("cp runs").success());
    folder
}

fn flip(file: &Path, bit: u64) {
    let mut bytes = std::fs::read(file).expect("the log can be read");
    bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    std::fs::write(file, bytes).expect("the log can be written");
}

/// The ids of all messages in a store. Closes the store.
async fn ids_in(store: EmbeddedStore) -> HashSet<String> {
    let (mut ids, mut after) = (HashSet::new(), Serial(0));
    loop {
        let page = store.messages("acme", after, 1000).await.expect("the store can be read");
        let Some(last) = page.last() else { break };
        after = last.number;
        ids.extend(page.iter().map(|logged| logged.message.id.as_str().to_owned()));
    }
    store.close().await;
    ids
}

fn open(data: &Path) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(&Options::new(data))
}

fn missing(acknowledged: &[String], ids: &HashSet<String>) -> Vec<usize> {
    (0..acknowledged.len()).filter(|number| !ids.contains(&acknowledged[*number])).collect()
}

/// Counts of the results for the damaged logs of one killed node.
#[derive(Debug, Default)]
struct Outcomes {
    refused: usize,
    served: usize,
    recovered_all: usize,
    recovered_readable: usize,
    unusable: usize,
}

impl Outcomes {
    /// Damages a copy of a killed node's log and opens it. Without a refusal no acknowledged message may be
    /// missing, except that of the last commit: damage to it looks like a commit that was under way.
    async fn try_damage(
        &mut self,
        data: &Path,
        acknowledged: &[String],
        case: &str,
        damage: impl Fn(&mut [u8]),
    ) {
        let folder = copy_of(data);
        let data = folder.path().join("data");
        let log = data.join("snavio.db-wal");
        let mut bytes = std::fs::read(&log).expect("the log can be read");
        damage(&mut bytes);
        std::fs::write(&log, bytes).expect("the log can be written");
        let is_whole = |missing: &[usize]| missing.is_empty() || missing == [acknowledged.len() - 1];
        match open(&data) {
            Ok(store) => {
                self.served += 1;
                let missing = missing(acknowledged, &ids_in(store).await);
                assert!(is_whole(&missing), "{case}: {missing:?} are lost");
                return;
            }
            Err(error @ OpenError::Log { .. }) => {
                assert!(error.to_string().contains("snavio recover"), "{error}");
            }
            Err(error) => panic!("{case}: {error:?}"),
        }
        self.refused += 1;
        let act = Act { who: "operator".to_owned(), why: String::new(), at: Timestamp(1) };
        let recovery = Recovery::prepare(&data, act.at).expect("the folder can be read").expect("damage");
        let Some(kept) = recovery.advice() else {
            self.unusable += 1;
            return;
        };
        let answer = recovery.contents(kept).expect("the recovery lists the kept content").clone();
        recovery.apply(kept, act).expect("the store can be recovered");
        let ids = ids_in(open(&data).expect("it opens")).await;
        assert_eq!(ids.len() as i64, answer.messages, "{case}");
        if kept == Kept::Readable || !answer.lost_pages.is_empty() {
            self.recovered_readable += 1;
            return;
        }
        self.recovered_all += 1;
        let missing = missing(acknowledged, &ids);
        assert!(is_whole(&missing), "{case}: {missing:?} are lost");
    }
}

/// QUA-1
#[tokio::test(flavor = "multi_thread")]
async fn flipped_bit_in_the_log_is_refused_or_harmless() {
    let flips = if is_long() { 200 } else { 20 };
    let mut choices = Choices::new("flipped bits");
    let (node, acknowledged) = killed_node(150).await;
    let bits = std::fs::metadata(node.data().join("snavio.db-wal")).expect("a log").len() * 8;
    let mut outcomes = Outcomes::default();
    for _ in 0..flips {
        let bit = choices.below(bits);
        let (data, case) = (node.data(), format!("bit {bit}"));
        let damaged = outcomes.try_damage(&data, &acknowledged, &case, |bytes| {
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        });
        damaged.await;
    }
    println!("flipped bits: {flips} in {} bytes: {outcomes:?}", bits / 8);
    assert!(outcomes.refused > flips / 2, "the damage went unnoticed: {outcomes:?}");
}

/// QUA-1
#[tokio::test(flavor = "multi_thread")]
async fn overwritten_sector_in_the_log_is_refused_or_harmless() {
    const SECTOR: u64 = 512;
    let times = if is_long() { 100 } else { 10 };
    let mut choices = Choices::new("overwritten sectors");
    let (node, acknowledged) = killed_node(150).await;
    let sectors = std::fs::metadata(node.data().join("snavio.db-wal")).expect("a log").len() / SECTOR;
    let mut outcomes = Outcomes::default();
    for _ in 0..times {
        let at = (choices.below(sectors) * SECTOR) as usize;
        let (data, case) = (node.data(), format!("sector at {at}"));
        let damaged = outcomes.try_damage(&data, &acknowledged, &case, |bytes| {
            bytes[at..at + SECTOR as usize].fill(0x5a);
        });
        damaged.await;
    }
    println!("overwritten sectors: {times}: {outcomes:?}");
    assert!(outcomes.refused > times / 2, "the damage went unnoticed: {outcomes:?}");
}

/// QUA-1, command line (10-interfaces)
#[tokio::test(flavor = "multi_thread")]
async fn damaged_log_is_named_by_every_opener_until_recovered() {
    let (mut node, acknowledged) = killed_node(30).await;
    let data = node.data();
    let log = data.join("snavio.db-wal");
    // The first page of the second frame.
    flip(&log, (32 + 4120 + 24 + 1000) * 8);
    let before = [log.clone(), data.join("snavio.db")].map(|file| std::fs::read(file).expect("a file"));

    let shell = Shell::new();
    let data_argument = data.display();
    for line in [
        format!("doctor --data {data_argument} --output json"),
        format!("backup --data {data_argument} --to {}", shell.path("copy.db")),
        format!("restore --takes-over-archive --data {data_argument}"),
        format!("audit verify --data {data_argument}"),
        format!("move-store --from embedded:{data_argument} --to postgres://nobody@127.0.0.1:1/none"),
        format!("recover --data {data_argument}"),
    ] {
        let ended = shell.run(&line);
        let output = format!("{}{}", ended.out, ended.err);
        assert!(ended.code != Some(0) && output.contains("damaged at byte 4152"), "{line}: {ended:?}");
    }
    node.try_restart(&Launch::default());
    assert_eq!(node.wait().code(), Some(1));
    let output = node.said();
    assert!(output.contains("damaged at byte 4152") && output.contains("snavio recover --data"), "{output}");
    let after = [log, data.join("snavio.db")].map(|file| std::fs::read(file).expect("a file"));
    assert!(before == after, "no file was changed");
    let mut names =
        std::fs::read_dir(&data).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    assert!(
        names.all(|name| !name.to_string_lossy().starts_with("recovery-")),
        "nothing is copied without the command recover"
    );

    let recovered = shell.run(&format!("recover --data {data_argument} --yes --output json"));
    assert_eq!(recovered.code, Some(0), "{recovered:?}");
    let answer = recovered.json();
    assert_eq!((&answer["keep"], &answer["all"]["messages"]), (&json!("all"), &json!(30)), "{answer}");
    let copied = std::fs::read(Path::new(answer["copies"].as_str().expect("a folder")).join("snavio.db-wal"));
    assert!(copied.expect("a copy") == before[0], "the copy of the log is unchanged");
    node.restart(&Launch::default());
    node.items("/v1/audit", |items| items.iter().any(|item| item["action"] == "store.recover")).await;
    assert!(node.said().contains("this store was recovered from a damaged log"), "{}", node.said());
    node.stop();
    let ids = ids_in(open(&data).expect("it opens")).await;
    assert_eq!(missing(&acknowledged, &ids), Vec::<usize>::new());
    let again = shell.run(&format!("recover --data {data_argument} --output json"));
    assert_eq!((again.code, &again.json()["damage"]), (Some(0), &Value::Null), "{again:?}");
}

/// QUA-1: an emptied log, like that after a clean stop, is refused too.
#[tokio::test(flavor = "multi_thread")]
async fn deleted_log_is_refused_after_an_unclean_end() {
    let (node, _) = killed_node(10).await;
    for case in ["deleted", "emptied"] {
        let folder = copy_of(&node.data());
        let data = folder.path().join("data");
        let log = data.join("snavio.db-wal");
        match case {
            "deleted" => std::fs::remove_file(log).expect("a log"),
            _ => std::fs::write(log, b"").expect("a log"),
        }
        let refused = open(&data).map(|_| ()).expect_err(case);
        assert!(matches!(refused, OpenError::Log { .. }), "{case}: {refused:?}");
        let answer = Shell::new().run(&format!("doctor --data {} --output json", data.display()));
        assert!(answer.code == Some(1) && answer.out.contains("snavio recover"), "{case}: {answer:?}");
        let recovered = Shell::new().run(&format!("recover --data {} --yes", data.display()));
        if recovered.code == Some(0) {
            assert!(recovered.out.contains("may lie between two commits"), "{case}: {recovered:?}");
            open(&data).expect(case).close().await;
        } else {
            // The node was killed during a checkpoint, so without its log the database mixes two states.
            assert!(recovered.err.contains("restore the last backup"), "{case}: {recovered:?}");
        }
    }
}

/// QUA-1
#[tokio::test(flavor = "multi_thread")]
async fn store_is_not_made_over_the_remains_of_another() {
    let (mut node, _) = killed_node(5).await;
    let data = node.data();
    let log = std::fs::read(data.join("snavio.db-wal")).expect("a log");
    let database = std::fs::read(data.join("snavio.db")).expect("a database");
    for is_empty in [false, true] {
        if is_empty {
            std::fs::write(data.join("snavio.db"), b"").expect("it can be written");
        } else {
            std::fs::remove_file(data.join("snavio.db")).expect("it can be removed");
        }
        node.try_restart(&Launch::default());
        assert_eq!(node.wait().code(), Some(1));
        assert!(node.said().contains("snavio.db-wal"), "{}", node.said());
        let answer = Shell::new().run(&format!("doctor --data {} --output json", data.display()));
        assert!(answer.code == Some(1) && answer.out.contains("is missing or empty"), "{answer:?}");
        assert!(std::fs::read(data.join("snavio.db-wal")).expect("a log") == log, "it is untouched");
    }
    std::fs::write(data.join("snavio.db"), database).expect("it can be written");
    node.restart(&Launch::default());
    node.stop();
    std::fs::remove_file(data.join("snavio.db")).expect("it can be removed");
    node.try_restart(&Launch::default());
    assert_eq!(node.wait().code(), Some(1), "a missing database is refused after a clean stop too");
    assert!(node.said().contains("snavio.position"), "{}", node.said());
}

/// REG-13: an interrupted first start can be repeated.
#[tokio::test(flavor = "multi_thread")]
async fn store_is_made_beside_a_key_alone() {
    let mut first = Node::start();
    first.stop();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("a folder can be made");
    for secret in ["platform.key", "operator.token"] {
        std::fs::copy(first.data().join(secret), data.join(secret)).expect("a secret");
    }
    std::fs::write(data.join("snavio.db"), b"").expect("it can be written");
    std::fs::write(data.join("snavio.lock"), b"").expect("it can be written");
    Node::launch_in(folder, &Launch::default()).stop();
}

/// ENG-2
#[tokio::test(flavor = "multi_thread")]
async fn second_process_is_refused_without_the_lock_file() {
    let node = Node::start();
    node.cast().await;
    std::fs::remove_file(node.data().join("snavio.lock")).expect("there is a lock file");
    let second = Command::new(binary())
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(node.data())
        .stdin(Stdio::null())
        .output()
        .expect("a second process can be started");
    let output = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{output}");
    assert!(output.contains("is in use by another process"), "{output}");
    let backup = Shell::new();
    let copied =
        backup.run(&format!("backup --data {} --to {}", node.data().display(), backup.path("copy.db")));
    assert_eq!(copied.code, Some(0), "{copied:?}");
}
