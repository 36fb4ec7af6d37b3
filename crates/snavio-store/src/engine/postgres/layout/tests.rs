use refinery::Migration;
use snavio_testbed::Postgres;

use super::super::{Options, PostgresStore, pool};
use super::*;

/// ENG-3
#[test]
fn a_newer_layout_is_worked_with_as_long_as_it_serves_this_program() {
    assert_eq!(verdict(LAYOUT, LAYOUT), None);
    assert_eq!(verdict(LAYOUT + 7, LAYOUT), None);
    assert!(verdict(LAYOUT + 7, LAYOUT + 1).is_some_and(|why| why.contains("upgrade")));
}

#[test]
fn the_newest_migration_is_the_layout() {
    let newest = runner().get_migrations().iter().map(Migration::version).max();
    assert_eq!(newest, Some(LAYOUT));
}

/// What a program of the next version would bring.
fn next(oldest_reader: i32) -> Moves {
    let to = LAYOUT + 1;
    let name = format!("V{to}__next");
    let change = format!("ALTER TABLE message ADD COLUMN newer text; UPDATE layout SET version = {to}");
    let mut all = runner().get_migrations().clone();
    all.push(Migration::unapplied(&name, &change).expect("it has a name"));
    Moves { runner: Runner::new(&all), to, oldest_reader }
}

/// A database of this layout, and connections to it.
async fn database() -> (String, [Client; 2]) {
    let url = Postgres::shared().database().expect("PostgreSQL starts");
    let options = Options::new(url.as_str());
    PostgresStore::open(&options).await.expect("it opens");
    let connect = async || pool::connect(&options).await.expect("it connects");
    (url, [connect().await, connect().await])
}

async fn layout(client: &Client) -> (i32, i32) {
    let row = client.query_one("SELECT version, oldest_reader FROM layout", &[]).await.expect("it answers");
    (row.get(0), row.get(1))
}

async fn until(client: &Client, question: &str) {
    let asked = async {
        while !client.query_one(question, &[]).await.expect("it answers").get::<_, bool>(0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), asked)
        .await
        .unwrap_or_else(|_| panic!("never: {question}"));
}

/// ENG-3: a reader in a long transaction holds up the migration, and the migration holds up nobody for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_must_wait_lets_others_pass_and_comes_back() {
    let (url, [reader, watcher]) = database().await;
    reader.batch_execute("BEGIN; SELECT FROM message").await.expect("it reads");
    let migrating = tokio::spawn(async move {
        let mut client = pool::connect(&Options::new(url.as_str())).await.expect("it connects");
        next(OLDEST_READER).make(&mut client, Duration::from_secs(30)).await
    });
    const WAITS: &str =
        "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'message'::regclass AND NOT granted)";
    until(&watcher, WAITS).await;
    // Behind it, until it steps aside.
    watcher.batch_execute("SELECT count(*) FROM message").await.expect("it reads too");
    assert_eq!(layout(&watcher).await, (LAYOUT, OLDEST_READER));
    reader.batch_execute("COMMIT").await.expect("it ends");
    migrating.await.expect("it ends").expect("it migrates");
    assert_eq!(layout(&watcher).await, (LAYOUT + 1, OLDEST_READER));
}

/// ENG-3: a node that the new layout does not serve is told, and waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_does_not_serve_a_node_waits_until_it_has_left() {
    let (url, [mut client, watcher]) = database().await;
    let announce = format!(
        "INSERT INTO node (id, address, software, registry_version, waiting, draining, started_at, layout) \
         VALUES ('n', '10.0.0.7:8080', '0', 0, 0, false, 0, {LAYOUT})"
    );
    watcher.batch_execute(&announce).await.expect("it is there");
    let refused = next(LAYOUT + 1).make(&mut client, Duration::from_millis(50)).await;
    assert!(matches!(&refused, Err(OpenError::Layout(why)) if why.contains("10.0.0.7:8080")), "{refused:?}");
    assert_eq!(layout(&watcher).await, (LAYOUT, OLDEST_READER), "nothing was changed");
    drop(client);

    let migrating = tokio::spawn(async move {
        let mut client = pool::connect(&Options::new(url.as_str())).await.expect("it connects");
        next(LAYOUT + 1).make(&mut client, Duration::from_secs(30)).await
    });
    until(&watcher, &format!("SELECT oldest_reader = {} FROM layout", LAYOUT + 1)).await;
    let block = watcher.query_one(super::super::BLOCK, &[]).await.expect_err("it writes nothing any more");
    assert!(format!("{block:?}").contains("serves nodes from layout"), "{block:?}");
    assert_eq!(layout(&watcher).await, (LAYOUT, LAYOUT + 1), "told, and not migrated while it is there");
    watcher.batch_execute("DELETE FROM node").await.expect("it leaves");
    migrating.await.expect("it ends").expect("it migrates");
    assert_eq!(layout(&watcher).await, (LAYOUT + 1, LAYOUT + 1));
}

/// ENG-3: one that was told to leave by a node that then died is waited for all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_layout_that_was_announced_and_not_made_is_waited_for_again() {
    let (_, [mut client, watcher]) = database().await;
    let left_behind = format!(
        "UPDATE layout SET oldest_reader = {}; INSERT INTO node (id, address, software, registry_version, waiting, \
         draining, started_at, layout) VALUES ('n', '10.0.0.7:8080', '0', 0, 0, false, 0, {LAYOUT})",
        LAYOUT + 1
    );
    watcher.batch_execute(&left_behind).await.expect("it was told");
    let refused = next(LAYOUT + 1).make(&mut client, Duration::from_millis(50)).await;
    assert!(matches!(&refused, Err(OpenError::Layout(why)) if why.contains("10.0.0.7:8080")), "{refused:?}");
}

/// ENG-3: a node that knows only an older layout is told to leave, also where the layout itself does not change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_older_layouts_are_not_served() {
    let (url, [mut client, watcher]) = database().await;
    assert_eq!(layout(&watcher).await, (LAYOUT, OLDEST_READER), "from the first start on");
    let older = OLDEST_READER - 1;
    assert!(verdict_for(older, LAYOUT, OLDEST_READER).is_some_and(|reason| reason.contains("upgrade")));
    let as_before = format!(
        "UPDATE layout SET oldest_reader = {older}; \
         INSERT INTO node (id, address, software, registry_version, waiting, draining, started_at, layout) \
         VALUES ('n', '10.0.0.7:8080', '0', 0, 0, false, 0, {older})"
    );
    watcher.batch_execute(&as_before).await.expect("an older node runs");
    let same = || Moves { runner: runner(), to: LAYOUT, oldest_reader: OLDEST_READER };
    let refused = same().make(&mut client, Duration::from_millis(50)).await;
    assert!(matches!(&refused, Err(OpenError::Layout(why)) if why.contains("10.0.0.7:8080")), "{refused:?}");
    watcher.batch_execute("DELETE FROM node").await.expect("it leaves");
    drop(client);
    let mut client = pool::connect(&Options::new(url.as_str())).await.expect("it connects");
    same().make(&mut client, Duration::from_secs(5)).await.expect("it is served");
    assert_eq!(layout(&watcher).await, (LAYOUT, OLDEST_READER));
}
