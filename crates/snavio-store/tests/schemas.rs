//! Stores of every released layout, kept as dumps in `schemas`. The program migrates each of them and
//! continues with the delivery that waits in it (ENG-2, ENG-3).
//!
//! A new migration needs a dump of its layout, of a store in which the message `old` waits. Open the dump
//! before it with the new program, and write it out with `sqlite3 snavio.db .dump` or `pg_dump --no-owner
//! --no-privileges --inserts` (without the lines that begin with a backslash).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};

use snavio_model::archive::hold::Held;
use snavio_model::claim::{ClaimPolicy, IdKey};
use snavio_model::delivery::ReceiptOutcome;
use snavio_model::delivery::processing::UnknownOutcome;
use snavio_model::id::{MessageId, Serial};
use snavio_model::registry::Entry;
use snavio_model::settle::Outcome;
use snavio_store::conformance::samples::{
    acknowledge, act, at, ids, pay, queue, queued, receipt, receive, route, settle_one,
};
use snavio_store::engine::postgres::PostgresStore;
use snavio_store::engine::sqlite::{EmbeddedStore, FILE, check_integrity};
use snavio_store::engine::{postgres, sqlite};
use snavio_store::{NewHold, Store};
use snavio_testbed::Postgres;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Lists the versions of an engine's migrations.
fn versions(engine: &str) -> Vec<u32> {
    let files = std::fs::read_dir(
        here("src/engine").join(if engine == "embedded" { "sqlite" } else { engine }).join("migrations"),
    )
    .unwrap();
    let version = |file: std::fs::DirEntry| {
        let name = file.file_name().into_string().unwrap();
        name.strip_prefix('V').and_then(|it| it.split_once("__")).unwrap().0.parse().unwrap()
    };
    let mut versions: Vec<_> = files.map(|file| version(file.unwrap())).collect();
    versions.sort_unstable();
    versions
}

fn dump(engine: &str, version: u32) -> String {
    let file = here("tests/schemas").join(format!("{engine}-v{version}.sql"));
    let missing = |error| {
        panic!("layout {version} has no dump, {} ({error}); see above how it is made", file.display())
    };
    std::fs::read_to_string(&file).unwrap_or_else(missing)
}

/// Asserts that the waiting delivery is received, the claim is known, and new messages come after both.
async fn goes_on(store: &dyn Store) {
    let old = store.messages("acme", Serial(0), 10).await.unwrap();
    assert_eq!(old.iter().map(|it| it.message.id.as_str()).collect::<Vec<_>>(), ["old"]);
    let audit = store.audit(Serial(0), 10).await.unwrap();
    assert_eq!(audit.iter().map(|it| it.act.why.as_str()).collect::<Vec<_>>(), ["naïve ☃"]);
    assert_eq!(settle_one(store, "old", &pay(), at(1)).await, Outcome::Duplicate { first_seen_at: at(0) });
    let new = queued(settle_one(store, "new", &pay(), at(1)).await).unwrap();
    assert!(new > audit[0].number, "{new} after {audit:?}");
    let received = receive(store, "pay", 30, at(1)).await;
    assert_eq!(ids(&received), ["old", "new"]);
    assert_eq!(received[0].attempt, 2, "receives count on");
    let done = acknowledge(store, &queue("pay"), received.iter().map(receipt).collect()).await.unwrap();
    assert_eq!(done, [ReceiptOutcome::Done, ReceiptOutcome::Done]);
}

fn embedded_layout(folder: &Path) -> Vec<(String, String)> {
    let connection = rusqlite::Connection::open(folder.join(FILE)).unwrap();
    let mut statement =
        connection.prepare("SELECT name, coalesce(sql, '') FROM sqlite_schema ORDER BY name").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let mut layout: Vec<_> = rows.map(Result::unwrap).collect();
    // The checksum of each migration when it ran. The next release refuses a migration that changed
    // afterwards.
    let history = "SELECT name, checksum FROM refinery_schema_history ORDER BY version";
    let mut statement = connection.prepare(history).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    layout.extend(rows.map(Result::unwrap));
    layout
}

/// ENG-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_embedded_store_of_every_layout_is_brought_up_to_date_and_goes_on() {
    let fresh = tempfile::tempdir().unwrap();
    EmbeddedStore::open(&sqlite::Options::new(fresh.path())).unwrap().close().await;
    for version in versions("embedded") {
        let folder = tempfile::tempdir().unwrap();
        let file = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
        file.execute_batch(&dump("embedded", version)).unwrap();
        drop(file);
        let store = EmbeddedStore::open(&sqlite::Options::new(folder.path())).unwrap();
        goes_on(&store).await;
        store.close().await;
        assert_eq!(check_integrity(folder.path()).unwrap(), Vec::<String>::new(), "layout {version}");
        assert_eq!(embedded_layout(folder.path()), embedded_layout(fresh.path()), "layout {version}");
    }
}

fn postgres_layout(url: &str) -> String {
    let columns = "SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name \
         FROM information_schema.columns WHERE table_schema = 'public' ORDER BY table_name, column_name";
    let indexes = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexname";
    let sequences = "SELECT sequencename, start_value, min_value, max_value, increment_by, cache_size \
         FROM pg_sequences ORDER BY sequencename";
    let views = "SELECT viewname, definition FROM pg_views WHERE schemaname = 'public' ORDER BY viewname";
    let layout = "SELECT version, oldest_reader FROM layout";
    // The checksum of each migration when it ran. The next release refuses a migration that changed
    // afterwards.
    let history = "SELECT version, name, checksum FROM refinery_schema_history ORDER BY version";
    let parts = [columns, indexes, sequences, views, layout, history]
        .map(|it| Postgres::shared().ask(url, it).unwrap());
    parts.join("\n")
}

/// ENG-3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_every_layout_is_brought_up_to_date_and_goes_on() {
    let server = Postgres::shared();
    let fresh = server.database().unwrap();
    PostgresStore::open(&postgres::Options::new(&fresh)).await.unwrap().close().await;
    for version in versions("postgres") {
        let url = server.database().unwrap();
        server.ask(&url, &dump("postgres", version)).unwrap();
        let store = PostgresStore::open(&postgres::Options::new(&url)).await.unwrap();
        goes_on(&store).await;
        store.close().await;
        assert_eq!(postgres_layout(&url), postgres_layout(&fresh), "layout {version}");
    }
}

/// CLM-7: entries and changes are sealed as they were written, so the registry reads them under their old
/// names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registry_with_old_name_of_setting_is_loaded() {
    let mut held = route("pay", ClaimPolicy::None).route.clone();
    held.processing.on_unknown_outcome = UnknownOutcome::Hold;
    let entry = Entry::Route(held);
    let body = serde_json::to_string(&entry).unwrap().replace("on_unknown_outcome", "in_doubt");
    assert!(body.contains(r#""in_doubt":"hold""#), "{body}");
    let name = entry.key().name;
    let register = |set_version: &str| {
        format!(
            "INSERT INTO registry_entry (kind, name, body) VALUES ('route', '{name}', '{body}'); \
             INSERT INTO registry_change (version, at, who, why, kind, name, after) \
             VALUES (1, 1, 'x', '', 'route', '{name}', '{body}'); {set_version}"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let file = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    file.execute_batch(&dump("embedded", 12)).unwrap();
    file.execute_batch(&register("UPDATE meta SET value = 1 WHERE key = 'registry_version'")).unwrap();
    drop(file);
    let embedded = EmbeddedStore::open(&sqlite::Options::new(folder.path())).unwrap();
    let url = Postgres::shared().database().unwrap();
    Postgres::shared().ask(&url, &dump("postgres", 7)).unwrap();
    Postgres::shared().ask(&url, &register("UPDATE registry_version SET version = 1")).unwrap();
    let postgres = PostgresStore::open(&postgres::Options::new(&url)).await.unwrap();
    for store in [&embedded as &dyn Store, &postgres] {
        assert_eq!(store.load().await.unwrap(), (1, vec![entry.clone()]));
        let changes = store.changes_since(0, 10).await.unwrap();
        assert_eq!(changes[0].after.as_ref(), Some(&entry));
    }
    embedded.close().await;
    postgres.close().await;
}

/// Selects the content hash that the view shows for claims of one id at two destinations, of two archived
/// messages.
const ARCHIVED: &str = "SELECT count(domain_payload_hash) FROM claims WHERE event_id = 'a'";

/// CLM-2, CLM-16: every claim of an id shows the id record, whichever of its messages came first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_view_says_what_an_archived_claim_means() {
    let folder = tempfile::tempdir().unwrap();
    let url = Postgres::shared().database().unwrap();
    let embedded = EmbeddedStore::open(&sqlite::Options::new(folder.path())).unwrap();
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
    let told: i64 = file.query_row(ARCHIVED, [], |row| row.get(0)).unwrap();
    Postgres::shared().ask(&url, "DELETE FROM message").unwrap();
    assert_eq!((told, Postgres::shared().ask(&url, ARCHIVED).unwrap().trim()), (2, "2"));
}

/// A store that was restored to version 0, changed (version 5), and restored to that version.
const RESTORED: &str = "INSERT INTO registry_change (version, at, who, why, kind, name) VALUES (5, 1, 'x', '', 'tenant', 'acme');";
const SKIPPED: [(&str, &str); 2] = [("registry/skipped/1", "4"), ("registry/skipped/6", "9")];

/// REG-5: before the chain existed, the store did not note the versions that a restore skipped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_restores_skipped_before_there_was_a_chain_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let file = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    file.execute_batch(&dump("embedded", 1)).unwrap();
    file.execute_batch(
        "DELETE FROM registry_change; UPDATE meta SET value = 9 WHERE key = 'registry_version'",
    )
    .unwrap();
    file.execute_batch(RESTORED).unwrap();
    drop(file);
    let embedded = EmbeddedStore::open(&sqlite::Options::new(folder.path())).unwrap();
    let url = Postgres::shared().database().unwrap();
    Postgres::shared().ask(&url, &dump("postgres", 1)).unwrap();
    let raise = format!("DELETE FROM registry_change; UPDATE registry_version SET version = 9; {RESTORED}");
    Postgres::shared().ask(&url, &raise).unwrap();
    let postgres = PostgresStore::open(&postgres::Options::new(&url)).await.unwrap();
    for store in [&embedded as &dyn Store, &postgres] {
        let notes = store.notes("registry/skipped/").await.unwrap();
        assert_eq!(notes, SKIPPED.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    embedded.close().await;
    postgres.close().await;
}

/// A claim of the policy `ledger` as layouts before the archive wrote it: kept for seven years, without a
/// time at which it cools.
fn ledger_claim(check_value: i64) -> String {
    format!(
        "INSERT INTO claim (id, tenant, destination, source, message, first_seen_at, expires_at, check_value) \
         VALUES ('ledger-1', 'acme', 'acme/bot:post', 'acme/billing', 7, 1794731400000, 2015656200000, {check_value});"
    )
}

/// CLM-15, CLM-18: such a claim can be held, and its deletion is audited.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ledger_claims_of_before_the_archive_are_kept_for_an_audit() {
    let folder = tempfile::tempdir().unwrap();
    let file = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    file.execute_batch(&dump("embedded", 5)).unwrap();
    file.execute_batch(&ledger_claim(346712418)).unwrap();
    drop(file);
    let embedded = EmbeddedStore::open(&sqlite::Options::new(folder.path())).unwrap();
    let url = Postgres::shared().database().unwrap();
    Postgres::shared().ask(&url, &dump("postgres", 4)).unwrap();
    Postgres::shared().ask(&url, &ledger_claim(902015896)).unwrap();
    let postgres = PostgresStore::open(&postgres::Options::new(&url)).await.unwrap();
    for store in [&embedded as &dyn Store, &postgres] {
        let id = IdKey { id: MessageId::stored("ledger-1"), tenant: "acme".parse().unwrap() };
        assert_eq!(store.claims_of(&id, at(0)).await.unwrap().len(), 1, "it is as it was written");
        let expired = async || {
            let entries = store.audit(Serial(0), 100).await.unwrap();
            entries.iter().filter(|it| it.outcome.contains("\"ledger-1\" of acme at acme/bot:post")).count()
        };
        let hold = NewHold { tenant: id.tenant.clone(), held: Held::Tenant };
        let hold = store.set_hold(hold, act("a lawsuit", at(1))).await.unwrap().unwrap();
        let over = at(2558 * 86_400);
        store.sweep(over).await.unwrap();
        assert_eq!(expired().await, 0);
        store.lift_hold(hold.id, act("it is over", at(2))).await.unwrap();
        store.sweep(over).await.unwrap();
        assert_eq!(expired().await, 1);
    }
    embedded.close().await;
    postgres.close().await;
}
