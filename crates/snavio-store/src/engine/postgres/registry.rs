//! The registry: table `registry_entry` is the state, `registry_change` the append-only log that led to it. Changes
//! wait for each other at the one row of `registry_version`.

use std::collections::BTreeMap;

use async_trait::async_trait;
use snavio_model::registry::{Change, Entry, EntryKey, LoggedChange, Seal};
use snavio_model::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::client::{GenericClient, Transaction};
use super::pool::{sql, unavailable};
use super::{PostgresStore, seal};
use crate::{RegistryLog, StoreError};

/// Reads the version.
pub(super) const VERSION: &str = "SELECT version FROM registry_version";

#[async_trait]
impl RegistryLog for PostgresStore {
    async fn version(&self) -> Result<i64, StoreError> {
        self.within(async { version(&self.inner.pool.get_kept().await?).await }).await
    }

    async fn was_registered(&self, key: &EntryKey) -> Result<bool, StoreError> {
        const EVER: &str = "SELECT EXISTS (SELECT FROM registry_change WHERE kind = $1 AND name = $2)";
        let work = async {
            let values: [&(dyn ToSql + Sync); 2] = [&key.kind.as_str(), &key.name];
            let row = self.client().await?.query_one(EVER, &values).await;
            row.and_then(|row| row.try_get(0)).map_err(sql)
        };
        self.within(work).await
    }

    async fn load(&self) -> Result<(i64, Vec<Entry>), StoreError> {
        let work = async {
            let mut client = self.client().await?;
            load(&client.one_state().await.map_err(sql)?).await
        };
        self.within(work).await
    }

    async fn apply(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        let work = async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await.map_err(sql)?;
            apply(&transaction, &changes).await?;
            transaction.commit().await.map_err(sql)
        };
        self.within(work).await
    }

    async fn logged_since(&self, version: i64, limit: usize) -> Result<Vec<LoggedChange>, StoreError> {
        // By a connection of those kept: what is revoked must not wait behind readers.
        let client = self.inner.pool.get_kept();
        self.within(async { logged_since(&client.await?, version, limit).await }).await
    }

    async fn seal(&self, seal: Seal) -> Result<(), StoreError> {
        self.within(async { seal::append(&self.client().await?, &seal).await }).await
    }

    async fn seals(&self, after: i64, limit: usize) -> Result<Vec<Seal>, StoreError> {
        self.within(async { seal::page(&self.client().await?, after, limit).await }).await
    }

    async fn last_seal(&self) -> Result<Option<Seal>, StoreError> {
        self.within(async { seal::last(&self.client().await?).await }).await
    }
}

pub(super) async fn version(client: &impl GenericClient) -> Result<i64, StoreError> {
    let statement = client.prepare_cached(VERSION).await.map_err(sql)?;
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
    // Batches that hang on the version share its row, one after the other without an end: the table's lock is given
    // in turn, and readers pass.
    transaction.batch_execute("LOCK TABLE registry_version IN EXCLUSIVE MODE").await.map_err(sql)?;
    let locked = "SELECT version FROM registry_version FOR UPDATE";
    let now: i64 = transaction.query_one(locked, &[]).await.and_then(|row| row.try_get(0)).map_err(sql)?;
    if now != based_on {
        return Err(StoreError::Stale { based_on });
    }
    let written: Vec<_> =
        changes.iter().map(LoggedChange::of).collect::<Result<_, _>>().map_err(unavailable)?;
    log(transaction, &written).await?;
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

pub(super) async fn log(transaction: &Transaction<'_>, changes: &[LoggedChange]) -> Result<(), StoreError> {
    const LOG: &str = "INSERT INTO registry_change (version, at, who, why, kind, name, before, after) \
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], \
             $7::text[], $8::text[])";
    let versions: Vec<_> = changes.iter().map(|it| it.version).collect();
    let times: Vec<_> = changes.iter().map(|it| it.at.0).collect();
    let who: Vec<_> = changes.iter().map(|it| &it.who).collect();
    let why: Vec<_> = changes.iter().map(|it| &it.why).collect();
    let kinds: Vec<_> = changes.iter().map(|it| &it.kind).collect();
    let names: Vec<_> = changes.iter().map(|it| &it.name).collect();
    let before: Vec<_> = changes.iter().map(|it| it.before.as_deref()).collect();
    let after: Vec<_> = changes.iter().map(|it| it.after.as_deref()).collect();
    let values: [&(dyn ToSql + Sync); 8] = [&versions, &times, &who, &why, &kinds, &names, &before, &after];
    transaction.execute(LOG, &values).await.map(|_| ()).map_err(sql)
}

pub(super) async fn logged_since(
    client: &impl GenericClient,
    version: i64,
    limit: usize,
) -> Result<Vec<LoggedChange>, StoreError> {
    const PAGE: &str = "SELECT version, at, who, why, kind, name, before, after FROM registry_change \
         WHERE version > $1 ORDER BY version LIMIT $2";
    let statement = client.prepare_cached(PAGE).await.map_err(sql)?;
    let rows = client.query(&statement, &[&version, &(limit as i64)]).await.map_err(sql)?;
    rows.iter().map(read).collect::<Result<_, _>>().map_err(sql)
}

fn read(row: &Row) -> Result<LoggedChange, tokio_postgres::Error> {
    Ok(LoggedChange {
        version: row.try_get(0)?,
        at: Timestamp(row.try_get(1)?),
        who: row.try_get(2)?,
        why: row.try_get(3)?,
        kind: row.try_get(4)?,
        name: row.try_get(5)?,
        before: row.try_get(6)?,
        after: row.try_get(7)?,
    })
}

fn text(entry: Option<&Entry>) -> Result<Option<String>, StoreError> {
    entry.map(|entry| serde_json::to_string(entry).map_err(unavailable)).transpose()
}
