//! The PostgreSQL backend does what every backend must.

use std::sync::Arc;

use async_trait::async_trait;
use snavio_model::archive::hold::Held;
use snavio_store::conformance::Backend;
use snavio_store::conformance::processing::take_up;
use snavio_store::conformance::samples::{act, at, pay, receive, settle_one};
use snavio_store::postgres::{Options, PostgresStore};
use snavio_store::{Archive, Ledger, NewHold, Store};
use snavio_testbed::Postgres;

struct Database(String);

#[async_trait]
impl Backend for Database {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(PostgresStore::open(&Options::new(&self.0)).await.expect("the store opens"))
    }

    fn is_shared(&self) -> bool {
        true
    }
}

snavio_store::conformance!(Database(Postgres::shared().database().expect("a database can be made")));

/// CLM-7: what else is swept, and fails, keeps no overdue work from its next attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overdue_work_is_taken_up_again_though_other_sweeping_fails() {
    for table in ["original", "telemetry", "batch"] {
        let url = Postgres::shared().database().expect("a database can be made");
        let store = PostgresStore::open(&Options::new(&url)).await.expect("the store opens");
        let work = take_up(&store, "a", 0).await;
        let away = format!("ALTER TABLE {table} RENAME TO put_away");
        Postgres::shared().ask(&url, &away).expect("the table can be renamed");
        assert!(store.sweep(at(31)).await.is_err(), "{table}");
        let again = receive(&store, "book", 30, at(32)).await;
        assert_eq!((again.len(), again[0].attempt), (1, 2), "{table}");
        assert!(again[0].fence > work.fence);
        store.close().await;
    }
}

/// CLM-18: what is held when somebody was told so is not deleted: a hold waits for a sweep that began before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_waits_for_what_is_being_deleted() {
    let url = Postgres::shared().database().expect("a database can be made");
    let store = Arc::new(PostgresStore::open(&Options::new(&url)).await.expect("the store opens"));
    settle_one(&*store, "a", &pay(), at(0)).await;
    let (locker, connection) =
        tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("it connects");
    tokio::spawn(connection);
    locker.batch_execute("BEGIN; LOCK TABLE claim IN ACCESS EXCLUSIVE MODE").await.expect("it locks");
    let waiting = async || {
        const WAITING: &str = "SELECT count(*) FROM pg_locks WHERE NOT granted \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        locker.query_one(WAITING, &[]).await.expect("it answers").get::<_, i64>(0)
    };
    let wait_for = async |count: i64| {
        let until = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
        while waiting().await < count && tokio::time::Instant::now() < until {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(waiting().await, count, "so many wait");
    };
    let sweeping = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.sweep(at(4_000)).await }
    });
    wait_for(1).await;
    let holding = tokio::spawn({
        let store = Arc::clone(&store);
        let tenant = "acme".parse().expect("a tenant");
        async move { store.set_hold(NewHold { tenant, held: Held::Tenant }, act("a lawsuit", at(2))).await }
    });
    wait_for(2).await;
    assert!(!holding.is_finished());
    locker.batch_execute("ROLLBACK").await.expect("it lets go");
    assert_eq!(sweeping.await.expect("it ends").expect("it sweeps").claims, 1);
    assert!(holding.await.expect("it ends").expect("it answers").is_some());
    store.close().await;
}

/// ORD-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_no_room_is_not_passed() {
    let url = Postgres::shared().database().expect("a database can be made");
    let options = Options { queue_depth_max: 2, ..Options::new(&url) };
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(&options).await.expect("the store opens"));
    snavio_store::conformance::parking::what_has_no_room_is_not_passed(&store).await;
    store.close().await;
}
