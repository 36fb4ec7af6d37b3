//! The chain over the registry's changes: table `seal`, append-only, numbered from 1 without a gap. What it holds is
//! the model's to judge.

use rusqlite::{Connection, OptionalExtension, Row, params};
use snavio_model::registry::Seal;
use snavio_model::time::Timestamp;

use super::check::unreadable;
use super::writer::{Transaction, sql};
use crate::StoreError;

const COLUMNS: &str = "number, first_version, last_version, at, head, signature";

pub(super) fn append(transaction: &mut Transaction<'_>, seal: &Seal) -> Result<(), StoreError> {
    let last = last(transaction.connection)?;
    let next = last.map_or((1, 1), |last| (last.number + 1, last.last_version + 1));
    if (seal.number, seal.first_version) != next {
        return Err(StoreError::Stale { based_on: seal.first_version - 1 });
    }
    const INSERT: &str = "INSERT INTO seal (number, first_version, last_version, at, head, signature) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let values =
        params![seal.number, seal.first_version, seal.last_version, seal.at.0, seal.head, seal.signature];
    transaction.connection.prepare_cached(INSERT).and_then(|mut it| it.execute(values)).map_err(sql)?;
    transaction.dirty = true;
    Ok(())
}

pub(super) fn page(connection: &Connection, after: i64, limit: usize) -> Result<Vec<Seal>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM seal WHERE number > ?1 ORDER BY number LIMIT ?2");
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let rows = statement.query_map(params![after, limit as i64], read).map_err(sql)?;
    rows.map(|row| row.map_err(|error| unreadable(error, "seal after", after))).collect()
}

pub(super) fn last(connection: &Connection) -> Result<Option<Seal>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM seal ORDER BY number DESC LIMIT 1");
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    statement.query_row([], read).optional().map_err(|error| unreadable(error, "seal", "the last"))
}

fn read(row: &Row<'_>) -> rusqlite::Result<Seal> {
    Ok(Seal {
        number: row.get(0)?,
        first_version: row.get(1)?,
        last_version: row.get(2)?,
        at: Timestamp(row.get(3)?),
        head: row.get(4)?,
        signature: row.get(5)?,
    })
}
