//! The PostgreSQL backend passes the suite of every backend.

use std::sync::Arc;

use async_trait::async_trait;
use snavio_model::archive::hold::Held;
use snavio_model::delivery::ReceiptOutcome;
use snavio_model::delivery::processing::Ending;
use snavio_model::message::Message;
use snavio_model::ordering::{Mode, OnFailure};
use snavio_model::registry::{Acl, BoundRoute, Route};
use snavio_model::settle::{Intake, Outcome};
use snavio_store::conformance::Backend;
use snavio_store::conformance::ordering::{numbered, ordered};
use snavio_store::conformance::processing::lease_new;
use snavio_store::conformance::samples::{act, at, pay, queue, receipt, receive, settle, settle_one};
use snavio_store::engine::postgres::{Options, PostgresStore};
use snavio_store::{Archive, Claims, Ledger, NewHold, Report, Store};
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

    fn claim_rows(&self) -> usize {
        let count = "SELECT (SELECT count(*) FROM claim) + (SELECT count(*) FROM original)";
        let counted = Postgres::shared().ask(&self.0, count).expect("they can be counted");
        counted.trim().parse().expect("it is a number")
    }
}

snavio_store::conformance!(Database(Postgres::shared().database().expect("a database can be made")));

/// CLM-7: if another part of a sweep fails, overdue work still gets its next attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overdue_work_is_retried_although_another_sweep_fails() {
    for table in ["original", "telemetry", "batch"] {
        let url = Postgres::shared().database().expect("a database can be made");
        let store = PostgresStore::open(&Options::new(&url)).await.expect("the store opens");
        let work = lease_new(&store, "a", 0).await;
        let away = format!("ALTER TABLE {table} RENAME TO put_away");
        Postgres::shared().ask(&url, &away).expect("the table can be renamed");
        assert!(store.sweep(at(31)).await.is_err(), "{table}");
        let again = receive(&store, "book", 30, at(32)).await;
        assert_eq!((again.len(), again[0].attempt), (1, 2), "{table}");
        assert!(again[0].fence > work.fence);
        store.close().await;
    }
}

/// CLM-18: once a hold is confirmed, its records are not deleted. So the hold waits for a sweep that began
/// before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_waits_for_a_running_sweep() {
    let url = Postgres::shared().database().expect("a database can be made");
    let store = Arc::new(PostgresStore::open(&Options::new(&url)).await.expect("the store opens"));
    settle_one(&*store, "a", &pay(), at(0)).await;
    let (locker, connection) =
        tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("it connects");
    tokio::spawn(connection);
    locker.batch_execute("BEGIN; LOCK TABLE claim IN ACCESS EXCLUSIVE MODE").await.expect("it locks");
    let sweeping = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.sweep(at(4_000)).await }
    });
    expect_waiting(&locker, 1).await;
    let holding = tokio::spawn({
        let store = Arc::clone(&store);
        let tenant = "acme".parse().expect("a tenant");
        async move { store.set_hold(NewHold { tenant, held: Held::Tenant }, act("a lawsuit", at(2))).await }
    });
    expect_waiting(&locker, 2).await;
    assert!(!holding.is_finished());
    locker.batch_execute("ROLLBACK").await.expect("it lets go");
    assert_eq!(sweeping.await.expect("it ends").expect("it sweeps").claims, 1);
    assert!(holding.await.expect("it ends").expect("it answers").is_some());
    store.close().await;
}

/// Waits until this many sessions wait for locks of the database.
async fn expect_waiting(locker: &tokio_postgres::Client, count: i64) {
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    while count_waiting(locker).await < count && tokio::time::Instant::now() < until {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(count_waiting(locker).await, count, "so many wait");
}

async fn count_waiting(locker: &tokio_postgres::Client) -> i64 {
    const WAITING: &str = "SELECT count(*) FROM pg_locks WHERE NOT granted \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    locker.query_one(WAITING, &[]).await.expect("it answers").get(0)
}

/// ORD-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_do_not_pass_one_without_room() {
    let url = Postgres::shared().database().expect("a database can be made");
    let options = Options { queue_depth_max: 2, ..Options::new(&url) };
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(&options).await.expect("the store opens"));
    snavio_store::conformance::parking::messages_do_not_pass_one_without_room(&store).await;
    store.close().await;
}

/// ORD-3, ORD-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_message_goes_out_despite_a_full_queue() {
    let url = Postgres::shared().database().expect("a database can be made");
    let options = Options { queue_depth_max: 2, ..Options::new(&url) };
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(&options).await.expect("the store opens"));
    snavio_store::conformance::parking::waiting_message_goes_out_despite_a_full_queue(&store).await;
    store.close().await;
}

/// ORD-7, ENG-7: a report on several entities takes their locks in one order, which does not depend on the
/// results.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_locks_entities_in_order() {
    let url = Postgres::shared().database().expect("a database can be made");
    let store = Arc::new(PostgresStore::open(&Options::new(&url)).await.expect("the store opens"));
    let (locker, connection) =
        tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("it connects");
    tokio::spawn(connection);
    let (mut done, mut fails) = ("e", "f");
    if lock_number(&locker, done).await < lock_number(&locker, fails).await {
        (done, fails) = (fails, done);
    }
    let parking = ordered("parking", Mode::Strict, |order| order.on_failure = OnFailure::Park);
    let routes = [parking];
    let batch = [done, fails].map(|entity| numbered(&format!("{entity}-1"), entity, 1, &routes, at(0)));
    settle(&*store, batch.into(), at(0)).await;
    let received = receive(&*store, "parking", 30, at(0)).await;
    let failed = Ending::Failed { error: "no".into(), is_final: true, answer: None, retry_after: None };
    let reports = received.iter().map(|delivery| {
        let is_done = delivery.message.id.as_str().starts_with(done);
        let report = Report::done(receipt(delivery));
        if is_done { report } else { Report { ending: failed.clone(), ..report } }
    });
    let reports: Vec<_> = reports.collect();
    assert_eq!(reports.len(), 2);
    let (first, second) = (lock_number(&locker, fails).await, lock_number(&locker, done).await);
    locker.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({first})")).await.expect("it locks");
    let finishing = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.finish(&queue("parking"), reports, "acme/bot", at(1)).await }
    });
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        const WAITING: &str = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory' \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        let waiting: i64 = locker.query_one(WAITING, &[]).await.expect("it answers").get(0);
        if waiting == 1 {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "the report waits for the lock");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let free =
        locker.query_one("SELECT pg_try_advisory_xact_lock($1)", &[&second]).await.expect("it answers");
    assert!(free.get::<_, bool>(0), "a batch with both entities would deadlock");
    locker.batch_execute("ROLLBACK").await.expect("it lets go");
    let finished = finishing.await.expect("it ends").expect("it is reported");
    assert!(finished.iter().all(|finished| finished.outcome == ReceiptOutcome::Done));
    store.close().await;
}

/// The number of the advisory lock of an entity of the route `parking`.
async fn lock_number(locker: &tokio_postgres::Client, entity: &str) -> i64 {
    let ordering_key = format!("acme acme/bot:parking {entity}");
    let row = locker.query_one("SELECT hashtextextended($1::text, 7)", &[&ordering_key]).await;
    row.expect("it answers").get(0)
}

/// ORD-2: statements about entities travel together. A batch with ordered messages takes four round trips:
/// begin, lock and read, write, commit. Their number does not depend on the number of entities, or on the
/// messages that the batch frees or holds back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordered_batch_takes_four_round_trips() {
    let url = Postgres::shared().database().expect("a database can be made");
    let store = PostgresStore::open(&Options::new(&url)).await.expect("the store opens");
    for mode in [Mode::Lenient, Mode::Skip, Mode::Strict, Mode::Reorder] {
        let routes = [ordered(&format!("{mode:?}").to_lowercase(), mode, |_| {})];
        // The first batch counts the queue, the third is ahead of a gap, and the fourth fills it or is late.
        for (index, number) in [1, 2, 4, 3].into_iter().enumerate() {
            let batch = (0..20).map(|entity| {
                let entity = format!("e{entity}");
                numbered(&format!("{mode:?}-{entity}-{number}"), &entity, number, &routes, at(0))
            });
            let before = store.figures().round_trips;
            settle(&store, batch.collect(), at(0)).await;
            let round_trips = store.figures().round_trips - before;
            let expected = match (index, mode) {
                (0, _) => 5,
                // The messages are refused, and nothing is written.
                (3, Mode::Strict) => 2,
                _ => 4,
            };
            assert_eq!(round_trips, expected, "{mode:?}, {number}");
        }
    }
    store.close().await;
}

/// ORD-2, CLM-20: a message that depends on the registry, and was permitted by an older version, is not
/// written. The statements behind it are sent at the same time, and still do not advance its entity.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unwritten_message_advances_no_entity() {
    let url = Postgres::shared().database().expect("a database can be made");
    let store = Arc::new(PostgresStore::open(&Options::new(&url)).await.expect("the store opens"));
    let strict = ordered("strict", Mode::Strict, |_| {});
    let always = BoundRoute::new(Route { acl: Acl::Always, ..strict.route.clone() });
    let routes = [Arc::new(always)];
    let [first, second] = [1, 2].map(|number| {
        let intake = numbered(&format!("e-{number}"), "e", number, &routes, at(0));
        Intake { message: Message { registry_version: 0, ..intake.message }, ..intake }
    });
    Postgres::shared().ask(&url, "UPDATE registry_version SET version = 0").expect("it can be set");
    assert!(matches!(settle(&*store, vec![first], at(0)).await[0].outcomes[..], [Outcome::Queued { .. }]));
    // The writer waits for the table lock. Meanwhile the registry changes that the batch has already read.
    let (locker, connection) =
        tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("it connects");
    tokio::spawn(connection);
    locker.batch_execute("BEGIN; LOCK TABLE registry_version IN EXCLUSIVE MODE").await.expect("it locks");
    let settling = tokio::spawn({
        let (store, batch) = (Arc::clone(&store), vec![second]);
        async move { settle(&*store, batch, at(0)).await }
    });
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        const WAITING: &str = "SELECT count(*) FROM pg_locks WHERE NOT granted \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        let waiting: i64 = locker.query_one(WAITING, &[]).await.expect("it answers").get(0);
        if waiting == 1 {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "the batch waits to be written");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    locker.batch_execute("UPDATE registry_version SET version = 1; COMMIT").await.expect("it changes");
    assert_eq!(settling.await.expect("it ends")[0].outcomes, [Outcome::Outdated]);
    let known = "SELECT body::json -> 'state' ->> 'last' FROM entity";
    assert_eq!(Postgres::shared().ask(&url, known).expect("it answers").trim(), "1");
    store.close().await;
}

/// ORD-3, ORD-7: a search for due deliveries finds at most the first delivery of an ordering key, however
/// many are behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deliveries_behind_another_are_not_due() {
    let url = Postgres::shared().database().expect("a database can be made");
    let store = PostgresStore::open(&Options::new(&url)).await.expect("the store opens");
    let routes = [ordered("parking", Mode::Strict, |order| order.on_failure = OnFailure::Park)];
    let batch = (1..=50).map(|number| numbered(&format!("e-{number}"), "e", number, &routes, at(0)));
    settle(&store, batch.collect(), at(0)).await;
    let due = |now: i64| {
        let due =
            format!("SELECT count(*) FROM delivery WHERE queue = 'acme/parking' AND visible_at <= {now}");
        Postgres::shared().ask(&url, &due).expect("it answers").trim().to_owned()
    };
    assert_eq!(due(at(1).0), "1");
    let first = receive(&store, "parking", 30, at(1)).await;
    assert_eq!(due(at(2).0), "0", "it is out");
    let failed = Ending::Failed { error: "no".into(), is_final: true, answer: None, retry_after: None };
    let report = Report { ending: failed, ..Report::done(receipt(&first[0])) };
    store.finish(&queue("parking"), vec![report], "acme/bot", at(2)).await.expect("it is reported");
    assert_eq!(due(at(3).0), "0", "they are parked");
    store.close().await;
}

/// CLM-19: a sweep finds expired claims by an index. The index leaves out claims that do not expire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweep_reads_only_expired_claims() {
    let server = Postgres::shared();
    let url = server.database().unwrap();
    PostgresStore::open(&Options::new(&url)).await.unwrap().close().await;
    let plan = "SET enable_seqscan = off; SET enable_bitmapscan = off; EXPLAIN SELECT ctid FROM claim \
         WHERE expires_at <= 1 AND NOT (claim.status IN (0, 2, 4)) ORDER BY expires_at LIMIT 9 FOR UPDATE SKIP LOCKED";
    let plan = server.ask(&url, plan).unwrap();
    assert!(plan.contains("Index Scan using claim_by_expiry"), "{plan}");
}
