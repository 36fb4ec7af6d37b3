//! The suite on SQLite, and tests of SQLite alone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use snavio_sdk::Delivery;
use snavio_sdk::once::{BoxError, Once, OnceError};
use snavio_sdk::sqlite::rusqlite::{self, Connection, Transaction};
use snavio_sdk::sqlite::{Claims, Database};

use crate::consumer::{AfterWrite, Consumer, delivery, describe};
use crate::suite::suite;

suite!(Sqlite);

/// A file in a temporary folder.
#[derive(Clone)]
pub(crate) struct Sqlite {
    claims: Claims,
    pub(crate) path: PathBuf,
    _folder: Option<Arc<tempfile::TempDir>>,
}

impl Sqlite {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { claims: Claims::of("mailer".parse().unwrap()), path, _folder: None }
    }

    pub(crate) fn connection(&self) -> Connection {
        let connection = Connection::open(&self.path).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        connection
    }
}

impl Consumer for Sqlite {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("consumer.db");
        let consumer = Self { _folder: Some(Arc::new(folder)), ..Self::at(path) };
        consumer.claims.create_table(&consumer.connection()).unwrap();
        consumer.run("CREATE TABLE effect (message TEXT NOT NULL)").await;
        consumer
    }

    fn named(&self, name: &str) -> Self {
        Self { claims: Claims::of(name.parse().unwrap()), ..self.clone() }
    }

    fn once(
        &self,
        delivery: Delivery,
        then: AfterWrite,
    ) -> impl Future<Output = Result<Once, OnceError>> + Send + 'static {
        let (claims, database) = (self.claims.clone(), Database::open(&self.path).unwrap());
        async move {
            database
                .run(move |connection: &mut Connection| {
                    claims.once(connection, &delivery, |transaction| effect(transaction, &delivery, then))
                })
                .await
        }
    }

    async fn effects(&self) -> i64 {
        self.connection().query_row("SELECT count(*) FROM effect", [], |row| row.get(0)).unwrap()
    }

    async fn run(&self, sql: &str) {
        self.connection().execute_batch(sql).unwrap();
    }

    async fn cleanup(&self, days: u64) -> Result<u64, OnceError> {
        let kept = Duration::from_secs(days * 86_400);
        self.claims.cleanup(&self.connection(), kept).map(|rows| rows as u64)
    }
}

fn effect(
    transaction: &Transaction<'_>,
    delivery: &Delivery,
    then: AfterWrite,
) -> Result<Option<String>, BoxError> {
    let id = delivery.message.id();
    transaction.execute("INSERT INTO effect (message) VALUES (?1)", [id])?;
    match then {
        AfterWrite::Return(result) => return Ok(result),
        AfterWrite::Fail => return Err("no such account".into()),
        AfterWrite::Panic => panic!("the effect panics"),
        AfterWrite::IgnoreError => {
            let ignored = transaction.execute("INSERT OR ROLLBACK INTO effect VALUES (NULL)", []);
            assert!(ignored.is_err());
        }
        AfterWrite::RollBack => transaction.execute_batch("ROLLBACK")?,
    }
    Ok(None)
}

/// CLM-10
#[tokio::test]
async fn commit_is_synchronous_on_any_connection() {
    let consumer = Sqlite::new().await;
    let mut connection = consumer.connection();
    connection.execute_batch("PRAGMA journal_mode = wal; PRAGMA synchronous = normal").unwrap();
    let synchronous = |connection: &Connection| -> i64 {
        connection.query_row("PRAGMA synchronous", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(synchronous(&connection), 1);
    consumer.claims.once(&mut connection, &delivery("id-1"), |_| Ok(None)).unwrap();
    assert_eq!(synchronous(&connection), 3);
}

/// CLM-10
#[tokio::test]
async fn open_transaction_is_rolled_back_and_not_joined() {
    let consumer = Sqlite::new().await;
    let mut connection = consumer.connection();
    connection.execute_batch("BEGIN; INSERT INTO effect VALUES ('of nobody')").unwrap();
    let leave = |transaction: &Transaction<'_>| {
        let effects: i64 = transaction.query_row("SELECT count(*) FROM effect", [], |row| row.get(0))?;
        Ok(Some(effects.to_string()))
    };
    let once = consumer.claims.once(&mut connection, &delivery("id-1"), leave).unwrap();
    assert_eq!(once, Once::Done(Some("0".into())));
}

/// CLM-10
#[tokio::test]
async fn lock_of_another_connection_is_reported_busy() {
    let consumer = Sqlite::new().await;
    let mut holder = consumer.connection();
    let held = holder.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let mut connection = consumer.connection();
    // The library does the waiting. This test checks the error at its end, so it does not wait.
    connection.execute_batch("PRAGMA busy_timeout = 0").unwrap();
    let busy = consumer.claims.cleanup(&connection, Duration::from_secs(30 * 86_400));
    assert!(matches!(busy, Err(OnceError::Busy(_))), "{busy:?}");
    drop(held);
    assert!(consumer.claims.once(&mut connection, &delivery("id-1"), |_| Ok(None)).is_ok());
}

/// CLM-10
#[tokio::test]
async fn refused_commit_is_known_to_have_failed() {
    let consumer = Sqlite::new().await;
    consumer.run("CREATE TABLE known (message TEXT PRIMARY KEY)").await;
    consumer.run("DROP TABLE effect").await;
    consumer.run("CREATE TABLE effect (message TEXT REFERENCES known DEFERRABLE INITIALLY DEFERRED)").await;
    let mut connection = consumer.connection();
    connection.execute_batch("PRAGMA foreign_keys = on").unwrap();
    let message = delivery("id-1");
    let refused = consumer.claims.once(&mut connection, &message, |transaction| {
        effect(transaction, &message, AfterWrite::Return(None))
    });
    assert!(matches!(refused, Err(OnceError::Database(_))), "{}", describe(&refused));
    assert_eq!(consumer.effects().await, 0);
    let again = consumer.claims.once(&mut connection, &delivery("id-1"), |_| Ok(None)).unwrap();
    assert_eq!(again, Once::Done(None));
}
