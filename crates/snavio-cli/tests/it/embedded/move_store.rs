//! The move of an embedded store into a database (ENG-3, ENG-7): its records are there, and clients see only
//! a pause.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use snavio_sdk::{ApiError, Delivery};

use crate::audit::sealed;
use crate::engine::Database;
use crate::node::{Draft, Launch, Node, drain, new_id, post};
use crate::shell::Shell;

/// ENG-3, CLM-4, DLV-3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_moved_store_continue() {
    let mut node = Node::start();
    let cast = node.cast().await;
    let billing = node.client(&cast.billing);
    let drafts: Vec<_> = (0..5).map(|_| Draft::new("pay", &new_id())).collect();
    for draft in &drafts {
        let (status, answer) = post(&billing, draft.sign(&cast.billing)).await;
        assert_eq!(status, 202, "{answer}");
    }
    let bot = node.client(&cast.bot);
    let leased = bot.receive("pay-inbox", 1, Duration::from_secs(60), Duration::ZERO).await.unwrap();
    let leased: Vec<_> = leased.iter().map(Delivery::receipt).collect();

    let shell = Shell::new();
    let database = Database::new();
    let to = database.url.replace("postgres@", "postgres:hidden-word@");
    let line = format!("move-store --from embedded:{} --to {to} --output json", node.data().display());
    let busy = shell.run(&line);
    assert_eq!(busy.code, Some(1), "{busy:?}");
    assert!(busy.err.contains("in use by another process"), "{busy:?}");
    node.stop();
    let moved = shell.run(&line);
    assert_eq!(moved.code, Some(0), "{moved:?}");
    let moved = moved.json();
    assert_eq!(
        (&moved["messages"], &moved["claims"], &moved["deliveries"]),
        (&json!(5), &json!(5), &json!(5))
    );
    assert_eq!(moved["damaged"], json!([]));
    let again = shell.run(&line);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.err.contains("empty"), "{again:?}");

    assert_old_folder_is_guarded(&shell, &node.data(), &database.url);
    let missing = Node::refused(&database, &Launch::default()).said();
    assert!(missing.contains("platform.key is missing"), "{missing}");
    let key = Launch::default().set("PLATFORM_KEY_FILE", node.secret("platform.key").display());
    let fleet = Node::over(&database, &key);
    let (billing, bot) = (fleet.client(&cast.billing), fleet.client(&cast.bot));
    let (status, answer) = post(&billing, drafts[0].sign(&cast.billing)).await;
    assert_eq!((status, &answer["duplicate"]), (200, &json!(true)), "{answer}");
    let fenced = bot.acknowledge("pay-inbox", &leased).await.unwrap_err();
    assert!(matches!(&fenced, ApiError::Refused { reason, .. } if reason == "fenced"), "{fenced:?}");
    let (status, answer) = post(&billing, Draft::new("pay", &new_id()).sign(&cast.billing)).await;
    assert_eq!(status, 202, "{answer}");
    assert!(answer["delivery_id"].as_i64() > moved["numbers_above"].as_i64(), "{answer} after {moved}");
    assert_eq!(drain(&bot, "pay-inbox").await.len(), 6);
}

/// REG-5, ENG-3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seal_chain_continues_in_database() {
    let mut node = Node::start();
    node.cast().await;
    let noted = sealed(&node).await;
    let text = |name: &str| noted[name].as_str().unwrap().to_owned();
    let flags = format!("--head {} --public-key {}", text("head"), text("public_key"));
    node.stop();
    let (shell, database) = (Shell::new(), Database::new());
    let line = format!("move-store --from embedded:{} --to {}", node.data().display(), database.url);
    let moved = shell.run(&format!("{line} --output json"));
    assert_eq!(moved.json()["seals"], noted["seals"], "{moved:?}");
    let found = shell.run(&format!("audit verify --store {} {flags}", database.url));
    assert_eq!(found.code, Some(0), "{found:?}");
    let key = Launch::default().set("PLATFORM_KEY_FILE", node.secret("platform.key").display());
    let fleet = Node::over(&database, &key);
    fleet.apply(&json!({ "tenants": [{ "name": "later" }] })).await;
    assert!(sealed(&fleet).await["seals"].as_i64() > noted["seals"].as_i64());
    let found = Shell::at(&fleet).run(&format!("audit verify {flags}"));
    assert_eq!(found.code, Some(0), "{found:?}");
}

/// Checks that no command uses the old store until an operator removes the mark.
fn assert_old_folder_is_guarded(shell: &Shell, folder: &Path, database: &str) {
    let name = database.rsplit('/').next().unwrap();
    let mark = folder.join("moved-to");
    let to = std::fs::read_to_string(&mark).unwrap();
    assert!(to.contains(name) && to.contains("127.0.0.1") && !to.contains("hidden-word"), "{to}");
    let data = folder.display();
    for line in [
        format!("serve --data {data} --listen 127.0.0.1:0"),
        format!("backup --data {data} --to {}", shell.path("late.db")),
    ] {
        let refused = shell.run(&line);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.contains(to.trim()), "{refused:?}");
        assert!(refused.err.contains(&format!("delete {}", mark.display())), "{refused:?}");
    }
    let found = shell.run(&format!("doctor --data {data} --output json")).out;
    assert!(found.contains("was moved to"), "{found}");
    std::fs::remove_file(&mark).unwrap();
    let copied = shell.run(&format!("backup --data {data} --to {}", shell.path("old.db")));
    assert_eq!(copied.code, Some(0), "{copied:?}");
}

/// ENG-3
#[test]
fn move_needs_valid_source_and_target() {
    let shell = Shell::new();
    for (line, code, words) in [
        ("move-store --from ./data --to postgres://x@127.0.0.1:1/x", 2, "use embedded:<data folder>"),
        ("move-store --from embedded:./data", 2, "no database is named"),
        ("move-store --from embedded:./data --to postgres://x@127.0.0.1:1/x", 1, "there is no store"),
        ("move-store --from embedded:./data --to mysql://x", 1, "store.url"),
    ] {
        let ended = shell.run(line);
        assert_eq!(ended.code, Some(code), "{line}: {ended:?}");
        assert!(ended.err.contains(words), "{line}: {ended:?}");
    }
}
