//! A consumer that posts entries in PostgreSQL: `ledger <node> <credentials.json> <queue> <postgres://…>`.

use std::sync::Arc;

use serde::Deserialize;
use snavio_sdk::once::{BoxError, Once};
use snavio_sdk::postgres::Claims;
use snavio_sdk::postgres::tokio_postgres::{self, NoTls, Transaction};
use snavio_sdk::{Api, Client, Delivery, Receiver};

#[derive(Deserialize)]
struct Pay {
    account: String,
    cents: i64,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = |name: &str| arguments.next().ok_or(format!("{name} is missing"));
    let (node, credentials) = (argument("the node's address")?, argument("the credentials file")?);
    let (queue, url) = (argument("the queue")?, argument("the database's URL")?);

    let credentials = serde_json::from_slice(&std::fs::read(credentials)?)?;
    let client = Arc::new(Client::new(Api::new(&node, None)?, credentials)?);
    let claims = Claims::of("ledger".parse()?);
    let mut database = connect(&url).await?;
    claims.create_table(&mut database).await?;
    database.batch_execute("CREATE TABLE IF NOT EXISTS entry (account text, cents bigint)").await?;

    let work = move |delivery: Delivery| {
        let (claims, url) = (claims.clone(), url.clone());
        async move { pay(&claims, &url, &delivery).await }
    };
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    Ok(Receiver::new(client, queue.parse()?).run(work, stop).await?)
}

/// Has one effect for each message, even if the gateway delivers it several times. A real consumer takes the
/// connection from its pool.
async fn pay(claims: &Claims, url: &str, delivery: &Delivery) -> Result<Once, BoxError> {
    let mut database = connect(url).await?;
    let effect = async |transaction: &Transaction<'_>| post_entry(transaction, delivery).await;
    Ok(claims.once(&mut database, delivery, effect).await?)
}

/// The effect. Later deliveries of the same message get its result.
async fn post_entry(transaction: &Transaction<'_>, delivery: &Delivery) -> Result<Option<String>, BoxError> {
    let Pay { account, cents } = delivery.message.payload()?;
    transaction.execute("INSERT INTO entry VALUES ($1, $2)", &[&account, &cents]).await?;
    Ok(Some(format!("posted to {account}")))
}

async fn connect(url: &str) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // The task ends with the client, and the client's calls return the errors of the connection.
    tokio::spawn(connection);
    Ok(client)
}
