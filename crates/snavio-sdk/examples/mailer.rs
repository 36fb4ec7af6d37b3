//! A consumer with SQLite: `mailer <node> <credentials.json> <queue> <database>`.
//!
//! The effect is a row in an outbox table. A separate program sends the mails of the outbox, because a sent
//! mail cannot be rolled back.

use std::sync::Arc;

use serde::Deserialize;
use snavio_sdk::once::{BoxError, Once, OnceError};
use snavio_sdk::sqlite::rusqlite::{Connection, Transaction};
use snavio_sdk::sqlite::{Claims, Database};
use snavio_sdk::{Api, Client, Delivery, Receiver};

#[derive(Deserialize)]
struct Notify {
    user: String,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = |name: &str| arguments.next().ok_or(format!("{name} is missing"));
    let (node, credentials) = (argument("the node's address")?, argument("the credentials file")?);
    let (queue, path) = (argument("the queue")?, argument("the database file")?);

    let credentials = serde_json::from_slice(&std::fs::read(credentials)?)?;
    let client = Arc::new(Client::new(Api::new(&node, None)?, credentials)?);
    let (claims, database) = (Claims::of("mailer".parse()?), Database::open(path)?);
    prepare(&claims, &database).await?;

    let work = move |delivery: Delivery| {
        let (claims, database) = (claims.clone(), database.clone());
        async move { notify(claims, database, delivery).await }
    };
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    Ok(Receiver::new(client, queue.parse()?).run(work, stop).await?)
}

async fn prepare(claims: &Claims, database: &Database) -> Result<(), OnceError> {
    let claims = claims.clone();
    let outbox = "CREATE TABLE IF NOT EXISTS outbox (mail INTEGER PRIMARY KEY, recipient TEXT NOT NULL)";
    let work = move |connection: &mut Connection| {
        claims.create_table(connection)?;
        connection.execute_batch(outbox).map_err(|error| OnceError::Database(error.into()))
    };
    database.run(work).await
}

/// Has one effect for each message, even if the gateway delivers it several times.
async fn notify(claims: Claims, database: Database, delivery: Delivery) -> Result<Once, OnceError> {
    let work = move |connection: &mut Connection| {
        claims.once(connection, &delivery, |transaction| put_into_outbox(transaction, &delivery))
    };
    database.run(work).await
}

/// The effect. Later deliveries of the same message get its result.
fn put_into_outbox(transaction: &Transaction<'_>, delivery: &Delivery) -> Result<Option<String>, BoxError> {
    let message: Notify = delivery.message.payload()?;
    transaction.execute("INSERT INTO outbox (recipient) VALUES (?1)", [&message.user])?;
    Ok(Some(format!("mail {}", transaction.last_insert_rowid())))
}
