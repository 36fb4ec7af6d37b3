//! The chain over the registry's changes: table `seal`, append-only, numbered from 1 without a gap. What it holds is
//! the model's to judge.

use snavio_model::registry::Seal;
use snavio_model::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::client::GenericClient;
use super::pool::sql;
use crate::StoreError;

const COLUMNS: &str = "number, first_version, last_version, at, head, signature";

/// Adds a seal after the last one. Of two at once, each with the same number, one is told that it was too late.
pub(super) async fn append(client: &impl GenericClient, seal: &Seal) -> Result<(), StoreError> {
    let insert = format!(
        "INSERT INTO seal ({COLUMNS}) SELECT $1::bigint, $2::bigint, $3::bigint, $4::bigint, \
             $5::bytea, $6::bytea \
         WHERE NOT EXISTS (SELECT FROM seal WHERE number >= $1) \
             AND CASE WHEN $1 = 1 THEN $2 = 1 \
                 ELSE EXISTS (SELECT FROM seal WHERE number = $1 - 1 AND last_version = $2 - 1) END \
         ON CONFLICT (number) DO NOTHING"
    );
    let values: [&(dyn ToSql + Sync); 6] =
        [&seal.number, &seal.first_version, &seal.last_version, &seal.at.0, &seal.head, &seal.signature];
    let statement = client.prepare_cached(&insert).await.map_err(sql)?;
    match client.execute(&statement, &values).await.map_err(sql)? {
        0 => Err(StoreError::Stale { based_on: seal.first_version - 1 }),
        _ => Ok(()),
    }
}

/// Writes seals of another store.
pub(super) async fn insert(client: &impl GenericClient, seals: &[Seal]) -> Result<(), StoreError> {
    let insert = format!(
        "INSERT INTO seal ({COLUMNS}) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], \
             $4::bigint[], $5::bytea[], $6::bytea[])"
    );
    let numbers: Vec<_> = seals.iter().map(|it| it.number).collect();
    let first: Vec<_> = seals.iter().map(|it| it.first_version).collect();
    let last: Vec<_> = seals.iter().map(|it| it.last_version).collect();
    let times: Vec<_> = seals.iter().map(|it| it.at.0).collect();
    let heads: Vec<_> = seals.iter().map(|it| &it.head).collect();
    let signatures: Vec<_> = seals.iter().map(|it| &it.signature).collect();
    let values: [&(dyn ToSql + Sync); 6] = [&numbers, &first, &last, &times, &heads, &signatures];
    client.execute(&insert, &values).await.map(|_| ()).map_err(sql)
}

pub(super) async fn page(
    client: &impl GenericClient,
    after: i64,
    limit: usize,
) -> Result<Vec<Seal>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM seal WHERE number > $1 ORDER BY number LIMIT $2");
    let statement = client.prepare_cached(&query).await.map_err(sql)?;
    let rows = client.query(&statement, &[&after, &(limit as i64)]).await.map_err(sql)?;
    rows.iter().map(read).collect::<Result<_, _>>().map_err(sql)
}

pub(super) async fn last(client: &impl GenericClient) -> Result<Option<Seal>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM seal ORDER BY number DESC LIMIT 1");
    let statement = client.prepare_cached(&query).await.map_err(sql)?;
    let row = client.query_opt(&statement, &[]).await.map_err(sql)?;
    row.as_ref().map(read).transpose().map_err(sql)
}

fn read(row: &Row) -> Result<Seal, tokio_postgres::Error> {
    Ok(Seal {
        number: row.try_get(0)?,
        first_version: row.try_get(1)?,
        last_version: row.try_get(2)?,
        at: Timestamp(row.try_get(3)?),
        head: row.try_get(4)?,
        signature: row.try_get(5)?,
    })
}
