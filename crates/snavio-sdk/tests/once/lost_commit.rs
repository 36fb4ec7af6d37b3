//! A connection to PostgreSQL that is cut around the commit: after it, so that the answer is lost, or before
//! it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use snavio_sdk::once::{Once, OnceError};
use snavio_testbed::Postgres;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::consumer::{AfterWrite, Consumer, delivery, describe};
use crate::on_postgres::OnPostgres;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// The proxy passes the commit on, and swallows its answer.
    After,
    /// The proxy does not pass the commit on.
    Before,
}

/// CLM-10
#[tokio::test]
async fn lost_commit_answer_is_unknown_and_then_found() {
    let again = retry_after_cut(Cut::After).await;
    assert_eq!(again, Once::DoneBefore(Some("of the first attempt".into())));
}

/// CLM-10
#[tokio::test]
async fn lost_commit_is_unknown_and_then_repeated() {
    let again = retry_after_cut(Cut::Before).await;
    assert_eq!(again, Once::Done(Some("of the second attempt".into())));
}

/// Runs an effect through a connection that is cut, then through an intact one, and returns the result of the
/// second call.
async fn retry_after_cut(cut: Cut) -> Once {
    let consumer = OnPostgres::new().await;
    let fired = Arc::new(AtomicUsize::new(0));
    let port = proxy(cut, Arc::clone(&fired)).await;
    let whole = format!(":{}/", Postgres::shared().port());
    let through = OnPostgres::at(consumer.url.replace(&whole, &format!(":{port}/")));
    assert_ne!(through.url, consumer.url);

    let lost = through.once(delivery("id-1"), AfterWrite::returning("of the first attempt")).await;
    assert_eq!(fired.load(Ordering::SeqCst), 1, "the connection was cut");
    assert!(matches!(lost, Err(OnceError::Unknown(_))), "{}", describe(&lost));
    assert!(
        describe(&lost).starts_with("whether it was committed is unknown; deliver it again: "),
        "{}",
        describe(&lost)
    );
    let again =
        consumer.once(delivery("id-1"), AfterWrite::returning("of the second attempt")).await.unwrap();
    assert_eq!(consumer.effects().await, 1);
    again
}

/// Starts a proxy to the shared server that cuts its connection around the first commit.
async fn proxy(cut: Cut, fired: Arc<AtomicUsize>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (consumer, _) = listener.accept().await.unwrap();
        let database = TcpStream::connect(("127.0.0.1", Postgres::shared().port())).await.unwrap();
        // When it ends, the proxy closes both connections.
        pass(consumer, database, cut, &fired).await.unwrap();
    });
    port
}

async fn pass(
    mut consumer: TcpStream,
    mut database: TcpStream,
    cut: Cut,
    fired: &AtomicUsize,
) -> std::io::Result<()> {
    let (mut asked, mut answered) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        tokio::select! {
            count = consumer.read(&mut asked) => {
                let asked = &asked[..count?];
                let commits = asked.windows(6).any(|word| word == b"COMMIT");
                if commits && cut == Cut::Before {
                    fired.fetch_add(1, Ordering::SeqCst);
                    return Ok(());
                }
                database.write_all(asked).await?;
                if commits {
                    let answer = database.read(&mut answered).await?;
                    assert!(answered[..answer].windows(6).any(|word| word == b"COMMIT"), "it was committed");
                    fired.fetch_add(1, Ordering::SeqCst);
                    return Ok(());
                }
            }
            count = database.read(&mut answered) => consumer.write_all(&answered[..count?]).await?,
        }
    }
}
