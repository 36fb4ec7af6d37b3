//! The registry: table `registry_entry` is the state, `registry_change` the append-only log that led to it.

use rusqlite::{Connection, Row, params};
use snavio_model::registry::{Change, Entry, EntryKey, Kind};
use snavio_model::time::Timestamp;

use super::meta;
use super::writer::{Transaction, sql};
use crate::StoreError;

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
    let values = params![
        change.version,
        change.at.0,
        change.who,
        change.why,
        change.key.kind.as_str(),
        change.key.name,
        text(change.before.as_ref())?,
        text(change.after.as_ref())?,
    ];
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

pub(super) fn changes_since(
    connection: &Connection,
    version: i64,
    limit: usize,
) -> Result<Vec<Change>, StoreError> {
    const PAGE: &str = "SELECT version, at, who, why, kind, name, before, after FROM registry_change \
         WHERE version > ?1 ORDER BY version LIMIT ?2";
    let mut statement = connection.prepare_cached(PAGE).map_err(sql)?;
    let mut rows = statement.query(params![version, limit as i64]).map_err(sql)?;
    let mut changes = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        changes.push(read(row)?);
    }
    Ok(changes)
}

fn read(row: &Row<'_>) -> Result<Change, StoreError> {
    let version: i64 = row.get(0).map_err(sql)?;
    let kind: String = row.get(4).map_err(sql)?;
    let damaged = || StoreError::Damaged { what: "registry change", key: version.to_string() };
    let kind = Kind::stored(&kind).ok_or_else(damaged)?;
    let entry = |column: usize| -> Result<Option<Entry>, StoreError> {
        let body: Option<String> = row.get(column).map_err(sql)?;
        body.map(|body| serde_json::from_str(&body).map_err(|_| damaged())).transpose()
    };
    Ok(Change {
        version,
        at: Timestamp(row.get(1).map_err(sql)?),
        who: row.get(2).map_err(sql)?,
        why: row.get(3).map_err(sql)?,
        key: EntryKey { kind, name: row.get(5).map_err(sql)? },
        before: entry(6)?,
        after: entry(7)?,
    })
}

fn text(entry: Option<&Entry>) -> Result<Option<String>, StoreError> {
    entry.map(|entry| serde_json::to_string(entry).map_err(unwritable)).transpose()
}

fn unwritable(error: serde_json::Error) -> StoreError {
    StoreError::Unavailable(Box::new(error))
}
