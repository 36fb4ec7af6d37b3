//! `snavio doctor` checks the same conditions that a node on PostgreSQL would meet.

use serde_json::Value;

use crate::engine::Database;
use crate::node::{Launch, Node};
use crate::shell::Shell;

/// The findings of `snavio doctor` about a database.
fn findings(database: &str, settings: &[(&'static str, String)]) -> Value {
    let free = snavio_testbed::free_port().unwrap();
    let listen = ("SNAVIO_SERVER_LISTEN", format!("127.0.0.1:{free}"));
    let shell =
        settings.iter().chain([&listen]).fold(Shell::new(), |shell, (name, value)| shell.with(name, value));
    let ended = shell.run(&format!("doctor --store {database} --output json"));
    assert!(!ended.out.contains("hidden-word") && !ended.err.contains("hidden-word"), "{ended:?}");
    ended.json()
}

fn result_of<'f>(findings: &'f Value, check: &str) -> &'f str {
    let found = findings.as_array().unwrap().iter().find(|finding| finding["check"] == check);
    found.unwrap_or_else(|| panic!("no finding about {check} in {findings}"))["result"].as_str().unwrap()
}

/// Command line (10-interfaces), ENG-3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_queries_database_and_changes_nothing() {
    let database = Database::new().with_secrets();
    let before = findings(&database.url, &database.settings());
    assert!(result_of(&before, "store").starts_with("ok: PostgreSQL "), "{before}");
    assert_eq!(result_of(&before, "layout"), "ok: no tables yet; the first node makes them");
    assert_eq!(database.ask("SELECT to_regclass('layout') IS NULL"), "t");

    drop(Node::over(&database, &Launch::default()));
    let fine = findings(&database.url, &database.settings());
    let layout = format!("ok: layout {}", database.ask("SELECT version FROM layout"));
    for (check, result) in [
        ("layout", layout.as_str()),
        ("durability", "ok"),
        ("platform key", "ok: the fleet's"),
        ("clock", "ok"),
        ("secrets", "ok"),
    ] {
        assert_eq!(result_of(&fine, check), result, "{fine}");
    }
    assert!(!fine.to_string().contains("disk"), "the disk is the database's: {fine}");

    let another = findings(&database.url, &Database::at("").with_secrets().settings());
    assert!(result_of(&another, "platform key").contains("another platform key"), "{another}");
    let missing = findings(&database.url, &[]);
    assert!(result_of(&missing, "platform key").contains("is missing"), "{missing}");
}

/// Command line (10-interfaces), ENG-3
#[test]
fn doctor_explains_unusable_database() {
    let database = Database::new();
    let name = database.url.rsplit('/').next().unwrap();
    let role = format!("doctor_{name}");
    database.ask(&format!("CREATE ROLE {role} LOGIN PASSWORD 'hidden-word'"));
    let as_role = database.url.replace("postgres@", &format!("{role}:hidden-word@"));
    let found = findings(&as_role, &[]);
    assert!(result_of(&found, "layout").contains("may not make any"), "{found}");

    drop(Node::over(&database, &Launch::default()));
    let denied = findings(&as_role, &[]);
    let denial = result_of(&denied, "layout");
    assert!(denial.contains(&format!("role {role} may not use")) && denial.contains("serial"), "{denied}");
    database.ask(&format!("GRANT SELECT ON layout TO {role}"));
    assert!(result_of(&findings(&as_role, &[]), "layout").contains("message, claim"));

    let set = format!("ALTER DATABASE {name} SET synchronous_commit = off");
    database.ask(&set);
    let relaxed = findings(&database.url, &[]);
    assert!(result_of(&relaxed, "durability").contains("synchronous_commit is off"), "{relaxed}");

    let next = 1 + database.ask("SELECT version FROM layout").parse::<i32>().unwrap();
    database.ask(&format!("UPDATE layout SET version = {next}, oldest_reader = {next}"));
    let newer = findings(&database.url, &[]);
    assert!(result_of(&newer, "layout").contains(&format!("from layout {next} on")), "{newer}");

    let away = snavio_testbed::free_port().unwrap();
    let nobody = findings(&format!("postgres://x:hidden-word@127.0.0.1:{away}/x"), &[]);
    assert!(result_of(&nobody, "store").contains("refused"), "{nobody}");
}
