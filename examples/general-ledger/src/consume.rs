//! The ledger as a consumer of a queue of the gateway.
//!
//! `Claims::once` stores its claim in the transaction of the journal entry. Its result is the posting
//! reference. The receiver reports the reference with the acknowledgement, and if the route is `tracked`, the
//! gateway returns it to producers. If a message is not a valid entry, the receiver releases its delivery;
//! after the last attempt it is a dead letter, where a person sees it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use snavio_sdk::once::{BoxError, Once, OnceError, WAIT_MAX};
use snavio_sdk::sqlite::rusqlite::{Connection, Transaction};
use snavio_sdk::sqlite::{Claims, Database};
use snavio_sdk::{Api, Client, Delivery, Receiver};

use crate::entry::Entry;
use crate::ledger;
use crate::message::Message;

/// Consumes until the process gets an interrupt.
pub(crate) async fn consume(
    gateway: &str,
    queue: &str,
    credentials: &Path,
    database: &Path,
    lease: Duration,
) -> Result<(), BoxError> {
    let credentials = serde_json::from_slice(&std::fs::read(credentials)?)?;
    let client = Arc::new(Client::new(Api::new(gateway, None)?, credentials)?);
    let claims = Claims::of("general-ledger".parse()?);
    let books = ledger::open(database, WAIT_MAX)?;
    claims.create_table(&books)?;
    let books = Database::over(books);

    let work = move |delivery: Delivery| {
        let (claims, books) = (claims.clone(), books.clone());
        // The receiver acknowledges with the result of `once`, the reference.
        async move { books.run(move |books| post_once(&claims, books, &delivery)).await }
    };
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    println!("general-ledger is consuming {queue}");
    Ok(Receiver::new(client, queue.parse()?).visibility(lease).run(work, stop).await?)
}

/// Posts the entry of a message once, even if it is delivered several times. The claim keeps the reference.
fn post_once(claims: &Claims, books: &mut Connection, delivery: &Delivery) -> Result<Once, OnceError> {
    let once = claims.once(books, delivery, |transaction| post(transaction, delivery))?;
    tracing::info!(delivery = %delivery.delivery_id, reference = once.result(), "posted");
    Ok(once)
}

fn post(transaction: &Transaction<'_>, delivery: &Delivery) -> Result<Option<String>, BoxError> {
    let message = Message::of(&delivery.message).ok_or("the delivery has no valid command or event")?;
    let entry = Entry::read(message.payload)?;
    Ok(Some(ledger::post(transaction, &message.tenant, &message.id, &entry)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::trial_balance;

    /// CLM-10
    #[test]
    fn redelivered_entry_is_not_posted_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("books.db");
        let mut books = ledger::open(&path, WAIT_MAX).unwrap();
        let claims = Claims::of("general-ledger".parse().unwrap());
        claims.create_table(&books).unwrap();
        let delivery = |id: &str, credit: &str| -> Delivery {
            let lines =
                json!([{ "account": "1200", "debit": "10.00" }, { "account": "8400", "credit": credit }]);
            let payload = json!({ "postingDate": "2026-11-15", "currency": "EUR", "lines": lines });
            let command =
                json!({ "source": "acme/shop", "target": "acme/gl", "name": "post", "payload": payload });
            let message = json!({ "metadata": { "id": id }, "command": command });
            let delivery = json!({ "delivery_id": 1, "fence": 2, "attempt": 1, "message": message });
            serde_json::from_str(&delivery.to_string()).unwrap()
        };
        let reference = Some("JE-2026-000001".to_owned());
        let mut post = |delivery| post_once(&claims, &mut books, &delivery);
        assert_eq!(post(delivery("id-1", "10.00")).unwrap(), Once::Done(reference.clone()));
        assert_eq!(post(delivery("id-1", "10.00")).unwrap(), Once::DoneBefore(reference));
        let unbalanced = post(delivery("id-2", "10.01"));
        assert!(matches!(unbalanced, Err(OnceError::Effect(_))), "{unbalanced:?}");
        let next = Once::Done(Some("JE-2026-000002".to_owned()));
        assert_eq!(post(delivery("id-2", "10.00")).unwrap(), next, "the rolled back entry left no gap");
        let balance = trial_balance::read(&path).unwrap();
        assert_eq!((balance.entries, balance.problems.as_slice()), (2, &[][..]));
    }
}
