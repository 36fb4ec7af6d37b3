//! The seen-store on both databases, over a table as the Python reference creates it.

use std::time::Duration;

use snavio_sdk::once::OnceError;
use snavio_sdk::{postgres, sqlite};
use snavio_testbed::Postgres;

use crate::consumer::Consumer;
use crate::on_postgres::OnPostgres;
use crate::on_sqlite::Sqlite;

/// The reference's table, with rows as the reference writes them, and many old ones.
const REFERENCE: &str = "
    CREATE TABLE seen_events (event_id TEXT PRIMARY KEY, first_seen_ts TEXT NOT NULL, last_seen_ts TEXT NOT NULL);
    INSERT INTO seen_events VALUES
        ('old', '2025-10-08T09:00:00.123456+00:00', '2025-10-08T09:00:00.123456+00:00'),
        ('whole second', '2025-10-08T09:00:00+00:00', '2025-10-08T09:00:00+00:00'),
        ('seen again', '2025-10-08T09:00:00+00:00', '2025-10-08T09:00:00+00:00');
    INSERT INTO seen_events
        WITH RECURSIVE many (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM many WHERE n < 4500)
        SELECT 'many-' || n, '2025-10-08T09:00:00+00:00', '2025-10-08T09:00:00+00:00' FROM many;";
const MONTH: Duration = Duration::from_secs(30 * 86_400);
const AGAIN: &str =
    "SELECT first_seen_ts || ' ' || (last_seen_ts > '2026') FROM seen_events WHERE event_id = ";

/// CLM-10
#[tokio::test]
async fn reference_table_works_unchanged_in_sqlite() {
    use sqlite::seen::{cleanup, create_table, is_duplicate, mark_seen};

    let consumer = Sqlite::new().await;
    let connection = consumer.connection();
    connection.execute_batch(REFERENCE).unwrap();
    create_table(&connection).unwrap();
    assert!(is_duplicate(&connection, "old").unwrap());
    assert!(!is_duplicate(&connection, "new").unwrap());
    assert!(mark_seen(&connection, "new").unwrap());
    assert!(is_duplicate(&connection, "new").unwrap());
    assert!(!mark_seen(&connection, "new").unwrap());
    assert!(!mark_seen(&connection, "seen again").unwrap());
    let again = connection.query_row(&format!("{AGAIN} 'seen again'"), [], |row| row.get::<_, String>(0));
    assert_eq!(again.unwrap(), "2025-10-08T09:00:00+00:00 1", "the first time stays, the last one moves");

    assert_eq!(cleanup(&connection, MONTH).unwrap(), 4502);
    assert!(!is_duplicate(&connection, "old").unwrap());
    assert!(is_duplicate(&connection, "new").unwrap() && is_duplicate(&connection, "seen again").unwrap());
    assert!(matches!(mark_seen(&connection, "\0"), Err(OnceError::Unfit(_))));
}

/// CLM-10
#[tokio::test]
async fn reference_table_works_unchanged_in_postgresql() {
    use postgres::seen::{cleanup, create_table, is_duplicate, mark_seen};

    let consumer = OnPostgres::new().await;
    let mut client = consumer.connection().await;
    consumer.run(REFERENCE).await;
    create_table(&mut client).await.unwrap();
    assert!(is_duplicate(&client, "old").await.unwrap());
    assert!(!is_duplicate(&client, "new").await.unwrap());
    assert!(mark_seen(&client, "new").await.unwrap());
    assert!(is_duplicate(&client, "new").await.unwrap());
    assert!(!mark_seen(&client, "new").await.unwrap());
    assert!(!mark_seen(&client, "seen again").await.unwrap());
    let again = Postgres::shared().ask(&consumer.url, &format!("{AGAIN} 'seen again'")).unwrap();
    assert_eq!(again, "2025-10-08T09:00:00+00:00 true", "the first time stays, the last one moves");

    assert_eq!(cleanup(&client, MONTH).await.unwrap(), 4502);
    assert!(!is_duplicate(&client, "old").await.unwrap());
    assert!(
        is_duplicate(&client, "new").await.unwrap() && is_duplicate(&client, "seen again").await.unwrap()
    );
    assert!(matches!(mark_seen(&client, "\0").await, Err(OnceError::Unfit(_))));

    let transaction = client.transaction().await.unwrap();
    assert!(mark_seen(&transaction, "with its effect").await.unwrap());
    transaction.rollback().await.unwrap();
    assert!(
        !is_duplicate(&client, "with its effect").await.unwrap(),
        "marked in the effect's own transaction"
    );
}

/// CLM-10
#[tokio::test]
async fn racing_marks_have_one_first() {
    let consumer = OnPostgres::new().await;
    postgres::seen::create_table(&mut consumer.connection().await).await.unwrap();
    let marks = (0..20).map(|_| {
        let consumer = consumer.clone();
        tokio::spawn(
            async move { postgres::seen::mark_seen(&consumer.connection().await, "e").await.unwrap() },
        )
    });
    let mut first = 0;
    for mark in marks.collect::<Vec<_>>() {
        first += usize::from(mark.await.unwrap());
    }
    assert_eq!(first, 1);
}
