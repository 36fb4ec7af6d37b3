//! Backup beside a running node, and restore (ENG-2): the content of a backup, the restore's message about
//! missing content, and serials that are never used twice.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::Client;

use crate::audit::whole_after_a_restore;
use crate::node::{Draft, Launch, Node, drain, new_id, post, seconds_from_now};
use crate::patience::eventually;
use crate::shell::Shell;

async fn send_pay(client: &Client, cast: &crate::node::Cast) -> (String, i64) {
    let draft = Draft::new("pay", &new_id());
    let (status, answer) = post(client, draft.sign(&cast.billing)).await;
    assert_eq!(status, 202, "{answer}");
    (draft.id, answer["delivery_id"].as_i64().expect("a delivery id"))
}

async fn status(node: &Node) -> Value {
    node.operator().call(Method::GET, "/v1/status", None).await.expect("the node answers")
}

/// ENG-2, DLV-3, REG-5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_under_load_restores_fully_and_reuses_no_serial() {
    let node = Node::start();
    let cast = Arc::new(node.cast().await);
    let billing = Arc::new(node.client(&cast.billing));
    let mut before = Vec::new();
    for _ in 0..10 {
        before.push(send_pay(&billing, &cast).await.0);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn({
        let (billing, cast, stop) = (Arc::clone(&billing), Arc::clone(&cast), Arc::clone(&stop));
        async move {
            let mut sent = Vec::new();
            while !stop.load(Ordering::Relaxed) || sent.is_empty() {
                sent.push(send_pay(&billing, &cast).await);
            }
            sent
        }
    });
    let shell = Shell::new();
    let (data, copy) = (node.data().display().to_string(), shell.path("copy.db"));
    let made = shell.run(&format!("backup --data {data} --to {copy} --output json"));
    stop.store(true, Ordering::Relaxed);
    let mut sent = load.await.expect("no panic");
    assert_eq!(made.code, Some(0), "{}", made.err);
    assert!(made.json()["bytes"].as_u64().is_some_and(|bytes| bytes > 0));
    let existing = shell.run(&format!("backup --data {data} --to {copy}"));
    assert_eq!((existing.code, existing.err.contains("exists already")), (Some(1), true));
    sent.push(send_pay(&billing, &cast).await);
    let old = status(&node).await;

    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let data = folder.path().join("data");
    let restored = shell.run(&format!("restore --from {copy} --data {} --output json", data.display()));
    assert_eq!(restored.code, Some(0), "{}", restored.err);
    let restored = restored.json();
    for file in ["platform.key", "operator.token"] {
        std::fs::copy(node.data().join(file), data.join(file)).expect("the secrets are moved by hand");
    }
    let found = shell.run(&format!("audit verify --data {} --output json", data.display()));
    assert_eq!(found.code, Some(0), "before any node was started over it: {found:?}");
    let skipped = found.json()["skipped"][0].clone();
    assert_eq!(skipped["last"], restored["registry_version"], "{skipped}");
    let other = Node::launch_in(folder, &Launch::default());
    let new = status(&other).await;
    assert!(new["store"]["epoch"].as_i64() > old["store"]["epoch"].as_i64(), "{new} after {old}");
    assert!(new["registry_version"].as_i64() > old["registry_version"].as_i64());
    assert!(restored["epoch"].as_i64() > old["store"]["epoch"].as_i64(), "{restored}");
    assert_eq!(restored["registry_version"], new["registry_version"]);

    let billing = other.client(&cast.billing);
    let retry = Draft { timestamp: seconds_from_now(1), ..Draft::new("pay", &before[0]) };
    let (code, answer) = post(&billing, retry.sign(&cast.billing)).await;
    assert_eq!((code, &answer["duplicate"]), (200, &json!(true)), "claims are there");
    let given: HashSet<_> = sent.iter().map(|(_, delivery)| *delivery).collect();
    let mut fresh = Vec::new();
    for _ in 0..5 {
        let (id, delivery) = send_pay(&billing, &cast).await;
        assert!(
            !given.contains(&delivery) && given.iter().all(|number| *number < delivery),
            "{delivery} was given before"
        );
        fresh.push(id);
    }
    let delivered = drain(&other.client(&cast.bot), "pay-inbox").await;
    let ids: HashSet<_> = delivered.iter().filter_map(|delivery| delivery.message.id()).collect();
    assert!(
        before.iter().chain(&fresh).all(|id| ids.contains(id.as_str())),
        "every message from before the backup is delivered"
    );
    let known: HashSet<_> =
        before.iter().chain(&fresh).chain(sent.iter().map(|(id, _)| id)).map(String::as_str).collect();
    assert!(
        ids.is_subset(&known) && delivered.len() == ids.len(),
        "only known messages are delivered, each once"
    );
    for delivery in &delivered {
        let id = delivery.message.id().unwrap_or_default();
        if let Some((sent, _)) = sent.iter().find(|(_, number)| *number == delivery.delivery_id.0) {
            assert_eq!(sent, id, "a delivery id means the same message as before");
        }
    }
    let (code, _) = crate::node::verdict(
        other
            .operator()
            .send(Method::PUT, "/v1/tenants/acme", Some(b"{\"contact\":\"x\"}".to_vec()), "application/json")
            .await,
    );
    assert_eq!(code, 200, "the registry accepts changes after its raised version");
    whole_after_a_restore(&other, &skipped).await;
}

/// ENG-2
#[tokio::test]
async fn restore_lists_what_a_backup_cannot_contain() {
    let node = Node::start();
    let cast = node.cast().await;
    send_pay(&node.client(&cast.billing), &cast).await;
    let shell = Shell::new();
    let copy = shell.path("copy.db");
    shell.run(&format!("backup --data {} --to {copy}", node.data().display()));
    let message = shell.run(&format!("restore --from {copy} --data restored")).out;
    for word in [
        "newest_commit",
        "What happened after",
        "delivered again",
        "dispatched anew",
        "registry changes",
        "holds set since then are not in force",
        "what was erased since then is there again",
        "nothing is moved, rewritten or deleted there",
        "snavio restore --takes-over-archive --data restored",
        "platform.key",
    ] {
        assert!(message.contains(word), "{word} is missing in:\n{message}");
    }
}

/// CLM-18, ENG-2: of two stores over one archive each would delete objects that only the other refers to. So
/// a restored store does not use the archive until an operator says that it is its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_store_leaves_archive_alone_until_take_over() {
    const WARNING: &str = "nothing is moved, rewritten or deleted in the archive";
    let archive = tempfile::tempdir().expect("a temporary folder can be made");
    let launch = Launch::default().set("ARCHIVE_URL", format!("file://{}", archive.path().display()));
    let node = Node::launch(&launch);
    let shell = Shell::new();
    let copy = shell.path("copy.db");
    let made = shell.run(&format!("backup --data {} --to {copy}", node.data().display()));
    assert_eq!(made.code, Some(0), "{made:?}");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let data = folder.path().join("data").display().to_string();
    let restored = shell.run(&format!("restore --from {copy} --data {data} --output json"));
    assert_eq!((restored.code, &restored.json()["takes_over_archive"]), (Some(0), &json!(false)));
    for file in ["platform.key", "operator.token"] {
        let to = folder.path().join("data").join(file);
        std::fs::copy(node.data().join(file), to).expect("the secrets are moved by hand");
    }
    let mut other = Node::launch_in(folder, &launch);
    eventually("the node reports that it does not use the archive", async || {
        other.said().contains(WARNING).then_some(())
    })
    .await;
    let running = shell.run(&format!("restore --takes-over-archive --data {data}"));
    assert!(running.code == Some(1) && running.err.contains("is in use"), "{running:?}");
    other.stop();
    for was_doubted in [true, false] {
        let taken_over = shell.run(&format!("restore --takes-over-archive --data {data} --output json"));
        assert_eq!(
            (taken_over.code, &taken_over.json()["was_doubted"]),
            (Some(0), &json!(was_doubted)),
            "{taken_over:?}"
        );
    }
    let warnings = other.said().matches(WARNING).count();
    other.restart(&launch);
    // The archiver checks at its start. If it may use the archive, the missing warning is the only trace of
    // that.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert!(other.said().matches(WARNING).count() <= warnings, "{}", other.said());
    let has_take_over = |items: &[Value]| items.iter().any(|action| action["action"] == "archive.take_over");
    other.items("/v1/audit", has_take_over).await;
    let neither = shell.run(&format!("restore --data {data}"));
    assert_eq!(neither.code, Some(2), "{neither:?}");
}

/// ENG-2
#[tokio::test]
async fn restore_overwrites_nothing_and_refuses_damaged_backups() {
    let node = Node::start();
    node.cast().await;
    let shell = Shell::new();
    let copy = shell.path("copy.db");
    shell.run(&format!("backup --data {} --to {copy}", node.data().display()));
    let running = shell.run(&format!("restore --from {copy} --data {}", node.data().display()));
    assert_eq!((running.code, running.err.contains("is in use")), (Some(1), true), "{}", running.err);
    assert_eq!(shell.run(&format!("restore --from {copy} --data restored")).code, Some(0));
    let twice = shell.run(&format!("restore --from {copy} --data restored"));
    assert_eq!((twice.code, twice.err.contains("exists already")), (Some(1), true), "{}", twice.err);

    let whole = std::fs::read(&copy).expect("the backup can be read");
    let mut torn = whole.clone();
    torn.truncate(whole.len() / 2);
    let mut overwritten = whole.clone();
    overwritten[4096..6 * 4096].fill(0xff);
    let no_store = b"only a text, and not a short one".to_vec();
    for (case, bytes) in
        [("torn", torn), ("overwritten", overwritten), ("text", no_store), ("empty", Vec::new())]
    {
        let file = shell.path(case);
        std::fs::write(&file, bytes).expect("a file can be written");
        let folder = shell.folder.path().join(format!("from-{case}"));
        let refused = shell.run(&format!("restore --from {file} --data {}", folder.display()));
        assert_eq!(refused.code, Some(1), "{case}: {refused:?}");
        assert!(!folder.join("snavio.db").exists(), "{case}: no file that looks like a store is left");
    }
}

/// ENG-2
#[tokio::test]
async fn store_and_copies_are_readable_only_by_owner() {
    use std::os::unix::fs::PermissionsExt;

    let careless = ["sh", "-c", "umask 022; exec \"$0\" \"$@\""].map(str::to_owned).to_vec();
    let node = Node::launch(&Launch::under(careless));
    let cast = node.cast().await;
    send_pay(&node.client(&cast.billing), &cast).await;
    let shell = Shell::new();
    let copy = shell.path("copy.db");
    shell.run(&format!("backup --data {} --to {copy}", node.data().display()));
    // A copy may become readable for all on its way; the store that is restored from it is not.
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o644)).unwrap();
    let second = shell.path("second.db");
    shell.run(&format!("backup --data {} --to {second}", node.data().display()));
    let restored = shell.folder.path().join("restored");
    shell.run(&format!("restore --from {copy} --data {}", restored.display()));
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for folder in [node.data(), restored.clone()] {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
    }
    let live =
        ["snavio.db", "snavio.db-wal", "snavio.db-shm", "snavio.lock"].map(|file| node.data().join(file));
    for file in live.iter().chain([&second.into(), &restored.join("snavio.db")]) {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
}

/// Command line (10-interfaces)
#[test]
fn failed_backup_and_restore_name_the_file() {
    let node = Node::start();
    let shell = Shell::new();
    let ended = shell.run(&format!("backup --data {} --to /nonexist/b.db", node.data().display()));
    assert_eq!((ended.code, ended.err.contains("cannot write /nonexist/b.db")), (Some(1), true), "{ended:?}");
    let ended = shell.run("restore --from nope.db --data here");
    assert_eq!((ended.code, ended.err.contains("cannot read nope.db")), (Some(1), true), "{ended:?}");
}
