//! The registry: table `registry_entry` is the state, `registry_change` the append-only log that led to it.

use async_trait::async_trait;
use rusqlite::{Connection, Row, params};
use snavio_model::registry::{Change, Entry, EntryKey, LoggedChange, Seal};
use snavio_model::time::Timestamp;

use super::check::unreadable;
use super::writer::{Transaction, Urgency, sql};
use super::{EmbeddedStore, meta, seal};
use crate::{RegistryLog, StoreError};

#[async_trait]
impl RegistryLog for EmbeddedStore {
    async fn version(&self) -> Result<i64, StoreError> {
        self.readers.run(version).await
    }

    async fn was_registered(&self, key: &EntryKey) -> Result<bool, StoreError> {
        const EVER: &str = "SELECT EXISTS (SELECT 1 FROM registry_change WHERE kind = ?1 AND name = ?2)";
        let key = key.clone();
        let ask = move |connection: &Connection| {
            let values = (key.kind.as_str(), &key.name);
            connection
                .prepare_cached(EVER)
                .and_then(|mut it| it.query_row(values, |row| row.get(0)))
                .map_err(sql)
        };
        self.readers.run(ask).await
    }

    async fn load(&self) -> Result<(i64, Vec<Entry>), StoreError> {
        self.readers.run(load).await
    }

    async fn apply(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        let apply = move |transaction: &mut Transaction<'_>| apply(transaction, &changes);
        self.writer.run(Urgency::Ordinary, apply).await
    }

    async fn logged_since(&self, version: i64, limit: usize) -> Result<Vec<LoggedChange>, StoreError> {
        self.readers.run(move |connection| logged_since(connection, version, limit)).await
    }

    async fn seal(&self, seal: Seal) -> Result<(), StoreError> {
        let append = move |transaction: &mut Transaction<'_>| seal::append(transaction, &seal);
        self.writer.run(Urgency::Ordinary, append).await
    }

    async fn seals(&self, after: i64, limit: usize) -> Result<Vec<Seal>, StoreError> {
        self.readers.run(move |connection| seal::page(connection, after, limit)).await
    }

    async fn last_seal(&self) -> Result<Option<Seal>, StoreError> {
        self.readers.run(seal::last).await
    }
}

pub(super) fn version(connection: &Connection) -> Result<i64, StoreError> {
    meta::get(connection, "registry_version").map_err(sql)
}

pub(super) fn load(connection: &Connection) -> Result<(i64, Vec<Entry>), StoreError> {
    let version = meta::get(connection, "registry_version").map_err(sql)?;
    let mut statement = connection.prepare("SELECT kind, name, body FROM registry_entry").map_err(sql)?;
    let mut rows = statement.query([]).map_err(sql)?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        let (kind, name): (String, String) = (row.get(0).map_err(sql)?, row.get(1).map_err(sql)?);
        let body: String = row.get(2).map_err(sql)?;
        let damaged = |_| StoreError::Damaged { what: "registry entry", key: format!("{kind} {name}") };
        entries.push(serde_json::from_str(&body).map_err(damaged)?);
    }
    Ok((version, entries))
}

pub(super) fn apply(transaction: &mut Transaction<'_>, changes: &[Change]) -> Result<(), StoreError> {
    let Some(last) = changes.last() else { return Ok(()) };
    let connection = transaction.connection;
    let based_on = changes[0].version - 1;
    if meta::get(connection, "registry_version").map_err(sql)? != based_on {
        return Err(StoreError::Stale { based_on });
    }
    for change in changes {
        log(connection, change)?;
        set(connection, change)?;
    }
    meta::set(connection, "registry_version", last.version).map_err(sql)?;
    transaction.dirty = true;
    Ok(())
}

fn log(connection: &Connection, change: &Change) -> Result<(), StoreError> {
    const INSERT: &str = "INSERT INTO registry_change (version, at, who, why, kind, name, before, after) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let it = LoggedChange::of(change).map_err(unwritable)?;
    let values = params![it.version, it.at.0, it.who, it.why, it.kind, it.name, it.before, it.after];
    connection.prepare_cached(INSERT).and_then(|mut it| it.execute(values)).map(|_| ()).map_err(sql)
}

fn set(connection: &Connection, change: &Change) -> Result<(), StoreError> {
    let (kind, name) = (change.key.kind.as_str(), &change.key.name);
    let done = match text(change.after.as_ref())? {
        Some(body) => connection
            .prepare_cached("INSERT OR REPLACE INTO registry_entry (kind, name, body) VALUES (?1, ?2, ?3)")
            .and_then(|mut it| it.execute(params![kind, name, body])),
        None => connection
            .prepare_cached("DELETE FROM registry_entry WHERE kind = ?1 AND name = ?2")
            .and_then(|mut it| it.execute(params![kind, name])),
    };
    done.map(|_| ()).map_err(sql)
}

pub(super) fn logged_since(
    connection: &Connection,
    version: i64,
    limit: usize,
) -> Result<Vec<LoggedChange>, StoreError> {
    const PAGE: &str = "SELECT version, at, who, why, kind, name, before, after FROM registry_change \
         WHERE version > ?1 ORDER BY version LIMIT ?2";
    let mut statement = connection.prepare_cached(PAGE).map_err(sql)?;
    let mut rows = statement.query(params![version, limit as i64]).map_err(sql)?;
    let mut changes = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        let version: i64 = row.get(0).map_err(sql)?;
        changes.push(read(row).map_err(|error| unreadable(error, "registry change", version))?);
    }
    Ok(changes)
}

fn read(row: &Row<'_>) -> rusqlite::Result<LoggedChange> {
    Ok(LoggedChange {
        version: row.get(0)?,
        at: Timestamp(row.get(1)?),
        who: row.get(2)?,
        why: row.get(3)?,
        kind: row.get(4)?,
        name: row.get(5)?,
        before: row.get(6)?,
        after: row.get(7)?,
    })
}

fn text(entry: Option<&Entry>) -> Result<Option<String>, StoreError> {
    entry.map(|entry| serde_json::to_string(entry).map_err(unwritable)).transpose()
}

fn unwritable(error: serde_json::Error) -> StoreError {
    StoreError::Unavailable(Box::new(error))
}
