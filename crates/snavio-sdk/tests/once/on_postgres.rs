//! The suite on PostgreSQL, and tests of PostgreSQL alone.

use std::time::Duration;

use snavio_sdk::Delivery;
use snavio_sdk::once::{BoxError, Once, OnceError};
use snavio_sdk::postgres::Claims;
use snavio_sdk::postgres::tokio_postgres::{Client, NoTls, Transaction, connect};
use snavio_testbed::Postgres;
use tokio::sync::oneshot;

use crate::consumer::{AfterWrite, Consumer, delivery, describe};
use crate::suite::suite;

suite!(OnPostgres);

/// A database of the shared server.
#[derive(Clone)]
pub(crate) struct OnPostgres {
    pub(crate) claims: Claims,
    pub(crate) url: String,
}

impl OnPostgres {
    pub(crate) fn at(url: String) -> Self {
        Self { claims: Claims::of("mailer".parse().unwrap()), url }
    }

    pub(crate) async fn connection(&self) -> Client {
        let (client, connection) = connect(&self.url, NoTls).await.unwrap();
        // The task ends with the client, or when the connection is cut.
        tokio::spawn(connection);
        client
    }
}

impl Consumer for OnPostgres {
    async fn new() -> Self {
        let consumer = Self::at(Postgres::shared().database().unwrap());
        consumer.claims.create_table(&mut consumer.connection().await).await.unwrap();
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
        let consumer = self.clone();
        async move {
            let mut client = consumer.connection().await;
            consumer
                .claims
                .once(&mut client, &delivery, async |transaction: &Transaction<'_>| {
                    effect(transaction, &delivery, then).await
                })
                .await
        }
    }

    async fn effects(&self) -> i64 {
        let row = self.connection().await.query_one("SELECT count(*) FROM effect", &[]).await;
        row.unwrap().get(0)
    }

    async fn run(&self, sql: &str) {
        self.connection().await.batch_execute(sql).await.unwrap();
    }

    async fn cleanup(&self, days: u64) -> Result<u64, OnceError> {
        self.claims.cleanup(&self.connection().await, Duration::from_secs(days * 86_400)).await
    }
}

pub(crate) async fn effect(
    transaction: &Transaction<'_>,
    delivery: &Delivery,
    then: AfterWrite,
) -> Result<Option<String>, BoxError> {
    let id = delivery.message.id();
    transaction.execute("INSERT INTO effect (message) VALUES ($1)", &[&id]).await?;
    match then {
        AfterWrite::Return(result) => return Ok(result),
        AfterWrite::Fail => return Err("no such account".into()),
        AfterWrite::Panic => panic!("the effect panics"),
        AfterWrite::IgnoreError => {
            let ignored = transaction.execute("INSERT INTO effect VALUES (NULL)", &[]).await;
            assert!(ignored.is_err());
        }
        AfterWrite::RollBack => transaction.batch_execute("ROLLBACK").await?,
    }
    Ok(None)
}

/// CLM-10
#[tokio::test]
async fn effect_keeps_its_lock_timeout_and_commits_synchronously() {
    let consumer = OnPostgres::new().await;
    let mut client = consumer.connection().await;
    client.batch_execute("SET lock_timeout = '7s'; SET synchronous_commit = off").await.unwrap();
    let settings = "SELECT current_setting('lock_timeout') || ' ' || current_setting('synchronous_commit')";
    let read_settings = async |transaction: &Transaction<'_>| {
        Ok(Some(transaction.query_one(settings, &[]).await?.get::<_, String>(0)))
    };
    let once = consumer.claims.once(&mut client, &delivery("id-1"), read_settings).await.unwrap();
    assert_eq!(once.result(), Some("7s on"));
    let after: String = client.query_one(settings, &[]).await.unwrap().get(0);
    assert_eq!(after, "7s off", "the connection is the consumer's again");
}

/// CLM-10
#[tokio::test]
async fn waiting_consumer_takes_over_after_a_disconnect() {
    let consumer = OnPostgres::new().await;
    let mut client = consumer.connection().await;
    let (began, begun) = oneshot::channel();
    let zombie = {
        let consumer = consumer.clone();
        let hanging = async move |transaction: &Transaction<'_>| {
            effect(transaction, &delivery("id-1"), AfterWrite::returning("of the zombie")).await?;
            let pid: i32 = transaction.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
            began.send(pid).map_err(|_| "nobody waits")?;
            transaction.execute("SELECT pg_sleep(60)", &[]).await?;
            Ok(None)
        };
        tokio::spawn(async move { consumer.claims.once(&mut client, &delivery("id-1"), hanging).await })
    };
    let pid = begun.await.unwrap();
    let other = tokio::spawn(consumer.once(delivery("id-1"), AfterWrite::returning("of the other")));
    let postgres = Postgres::shared();
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND wait_event_type = 'Lock' AND query LIKE 'INSERT INTO snavio_claim%'";
    let looking = async {
        while postgres.ask(&consumer.url, waits).unwrap() != "1" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), looking).await.expect("the other one waits");
    assert_eq!(postgres.ask(&consumer.url, &format!("SELECT pg_terminate_backend({pid})")).unwrap(), "t");
    let zombie = zombie.await.unwrap();
    assert!(matches!(zombie, Err(OnceError::Effect(_))), "{}", describe(&zombie));
    assert_eq!(other.await.unwrap().unwrap(), Once::Done(Some("of the other".into())));
    assert_eq!(consumer.effects().await, 1);
}

/// CLM-10
#[tokio::test]
async fn refused_commit_is_known_to_have_failed() {
    let consumer = OnPostgres::new().await;
    consumer.run("ALTER TABLE effect ADD UNIQUE (message) DEFERRABLE INITIALLY DEFERRED").await;
    consumer.run("INSERT INTO effect VALUES ('id-1')").await;
    let refused = consumer.once(delivery("id-1"), AfterWrite::Return(None)).await;
    assert!(matches!(refused, Err(OnceError::Database(_))), "{}", describe(&refused));
    assert_eq!(consumer.effects().await, 1);
}

/// CLM-10
#[tokio::test]
async fn abandoned_call_is_rolled_back() {
    let consumer = OnPostgres::new().await;
    let mut client = consumer.connection().await;
    let message = delivery("id-1");
    let call = consumer.claims.once(&mut client, &message, async |transaction: &Transaction<'_>| {
        effect(transaction, &delivery("id-1"), AfterWrite::Return(None)).await?;
        std::future::pending().await
    });
    assert!(tokio::time::timeout(Duration::from_millis(500), call).await.is_err());
    let again = consumer.once(delivery("id-1"), AfterWrite::Return(None)).await.unwrap();
    assert_eq!((again, consumer.effects().await), (Once::Done(None), 1));
}

/// CLM-10
#[tokio::test]
async fn consumers_that_start_together_create_the_tables() {
    let consumer = OnPostgres::at(Postgres::shared().database().unwrap());
    let starts = (0..8).map(|_| {
        let consumer = consumer.clone();
        tokio::spawn(async move { consumer.claims.create_table(&mut consumer.connection().await).await })
    });
    for start in starts.collect::<Vec<_>>() {
        start.await.unwrap().unwrap();
    }
}
