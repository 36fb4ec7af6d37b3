//! The registry: table `registry_entry` is the state, `registry_change` the append-only log that led to it. Changes
//! wait for each other at the one row of `registry_version`.

use std::collections::BTreeMap;

use snavio_model::registry::{Change, Entry, EntryKey, Kind};
use snavio_model::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::client::{GenericClient, Transaction};
use super::pool::{sql, unavailable};
use crate::StoreError;

pub(super) async fn version(client: &impl GenericClient) -> Result<i64, StoreError> {
    let statement = client.prepare_cached("SELECT version FROM registry_version").await.map_err(sql)?;
    client.query_one(&statement, &[]).await.and_then(|row| row.try_get(0)).map_err(sql)
}

/// All entries and their version, of one state: the transaction's.
pub(super) async fn load(client: &impl GenericClient) -> Result<(i64, Vec<Entry>), StoreError> {
    let version = version(client).await?;
    let rows = client.query("SELECT kind, name, body FROM registry_entry", &[]).await.map_err(sql)?;
    let read = |row: &Row| -> Result<Entry, StoreError> {
        let (kind, name): (&str, &str) = (row.try_get(0).map_err(sql)?, row.try_get(1).map_err(sql)?);
        let damaged = |_| StoreError::Damaged { what: "registry entry", key: format!("{kind} {name}") };
        serde_json::from_str(row.try_get(2).map_err(sql)?).map_err(damaged)
    };
    Ok((version, rows.iter().map(read).collect::<Result<_, _>>()?))
}

pub(super) async fn apply(transaction: &Transaction<'_>, changes: &[Change]) -> Result<(), StoreError> {
    let (Some(first), Some(last)) = (changes.first(), changes.last()) else { return Ok(()) };
    let based_on = first.version - 1;
    let locked = "SELECT version FROM registry_version FOR UPDATE";
    let now: i64 = transaction.query_one(locked, &[]).await.and_then(|row| row.try_get(0)).map_err(sql)?;
    if now != based_on {
        return Err(StoreError::Stale { based_on });
    }
    log(transaction, changes).await?;
    put(transaction, changes).await?;
    let set = "UPDATE registry_version SET version = $1";
    transaction.execute(set, &[&last.version]).await.map(|_| ()).map_err(sql)
}

/// Makes the entries what the last change of each says.
async fn put(transaction: &Transaction<'_>, changes: &[Change]) -> Result<(), StoreError> {
    const SET: &str = "INSERT INTO registry_entry (kind, name, body) \
         SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) \
         ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body";
    const REMOVE: &str = "DELETE FROM registry_entry USING unnest($1::text[], $2::text[]) AS gone (kind, name) \
         WHERE registry_entry.kind = gone.kind AND registry_entry.name = gone.name";
    let last: BTreeMap<_, _> =
        changes.iter().map(|it| ((it.key.kind.as_str(), it.key.name.as_str()), it)).collect();
    let (mut set, mut gone) = ((Vec::new(), Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    for ((kind, name), change) in last {
        match text(change.after.as_ref())? {
            Some(body) => {
                set.0.push(kind);
                set.1.push(name);
                set.2.push(body);
            }
            None => {
                gone.0.push(kind);
                gone.1.push(name);
            }
        }
    }
    transaction.execute(SET, &[&set.0, &set.1, &set.2]).await.map_err(sql)?;
    transaction.execute(REMOVE, &[&gone.0, &gone.1]).await.map(|_| ()).map_err(sql)
}

/// Makes a registry that has nothing yet what another was.
pub(super) async fn fill(
    transaction: &Transaction<'_>,
    version: i64,
    entries: &[Entry],
) -> Result<(), StoreError> {
    const FILL: &str = "INSERT INTO registry_entry (kind, name, body) \
         SELECT * FROM unnest($1::text[], $2::text[], $3::text[])";
    let keys: Vec<_> = entries.iter().map(Entry::key).collect();
    let kinds: Vec<_> = keys.iter().map(|key| key.kind.as_str()).collect();
    let names: Vec<_> = keys.iter().map(|key| key.name.as_str()).collect();
    let bodies: Vec<_> = entries.iter().map(|it| text(Some(it))).collect::<Result<_, _>>()?;
    transaction.execute(FILL, &[&kinds, &names, &bodies]).await.map_err(sql)?;
    let set = "UPDATE registry_version SET version = $1";
    transaction.execute(set, &[&version]).await.map(|_| ()).map_err(sql)
}

pub(super) async fn log(transaction: &Transaction<'_>, changes: &[Change]) -> Result<(), StoreError> {
    const LOG: &str = "INSERT INTO registry_change (version, at, who, why, kind, name, before, after) \
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], \
             $7::text[], $8::text[])";
    let versions: Vec<_> = changes.iter().map(|it| it.version).collect();
    let times: Vec<_> = changes.iter().map(|it| it.at.0).collect();
    let who: Vec<_> = changes.iter().map(|it| it.who.as_str()).collect();
    let why: Vec<_> = changes.iter().map(|it| it.why.as_str()).collect();
    let kinds: Vec<_> = changes.iter().map(|it| it.key.kind.as_str()).collect();
    let names: Vec<_> = changes.iter().map(|it| it.key.name.as_str()).collect();
    let before: Vec<_> = changes.iter().map(|it| text(it.before.as_ref())).collect::<Result<_, _>>()?;
    let after: Vec<_> = changes.iter().map(|it| text(it.after.as_ref())).collect::<Result<_, _>>()?;
    let values: [&(dyn ToSql + Sync); 8] = [&versions, &times, &who, &why, &kinds, &names, &before, &after];
    transaction.execute(LOG, &values).await.map(|_| ()).map_err(sql)
}

pub(super) async fn changes_since(
    client: &impl GenericClient,
    version: i64,
    limit: usize,
) -> Result<Vec<Change>, StoreError> {
    const PAGE: &str = "SELECT version, at, who, why, kind, name, before, after FROM registry_change \
         WHERE version > $1 ORDER BY version LIMIT $2";
    let statement = client.prepare_cached(PAGE).await.map_err(sql)?;
    let rows = client.query(&statement, &[&version, &(limit as i64)]).await.map_err(sql)?;
    rows.iter().map(read).collect()
}

fn read(row: &Row) -> Result<Change, StoreError> {
    let version: i64 = row.try_get(0).map_err(sql)?;
    let damaged = || StoreError::Damaged { what: "registry change", key: version.to_string() };
    let kind = Kind::stored(row.try_get(4).map_err(sql)?).ok_or_else(damaged)?;
    let entry = |column: usize| -> Result<Option<Entry>, StoreError> {
        let body: Option<&str> = row.try_get(column).map_err(sql)?;
        body.map(|body| serde_json::from_str(body).map_err(|_| damaged())).transpose()
    };
    Ok(Change {
        version,
        at: Timestamp(row.try_get(1).map_err(sql)?),
        who: row.try_get(2).map_err(sql)?,
        why: row.try_get(3).map_err(sql)?,
        key: EntryKey { kind, name: row.try_get(5).map_err(sql)? },
        before: entry(6)?,
        after: entry(7)?,
    })
}

fn text(entry: Option<&Entry>) -> Result<Option<String>, StoreError> {
    entry.map(|entry| serde_json::to_string(entry).map_err(unavailable)).transpose()
}
