//! Reading rows that may be damaged (QUA-1).

use std::fmt::Display;

use rusqlite::{Connection, Row, Rows};

use super::writer::sql;
use crate::StoreError;
pub(super) use crate::record::check_value::{Check, alert, usable};

/// What it means that a row cannot be read: SQLite's own failure is the store's, anything else the row's. A text
/// that is none or a number out of range must not look like a store that is down, nor take its neighbours along.
pub(super) fn unreadable(error: rusqlite::Error, what: &'static str, key: impl Display) -> StoreError {
    match error {
        rusqlite::Error::SqliteFailure(..) => sql(error),
        _ => StoreError::Damaged { what, key: key.to_string() },
    }
}

/// Up to `limit` rows that can be used. Damaged ones do not count, or a page of nothing else would end a list.
pub(super) fn page<T>(
    rows: &mut Rows<'_>,
    limit: usize,
    mut read: impl FnMut(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut found = Vec::new();
    while found.len() < limit
        && let Some(row) = rows.next().map_err(sql)?
    {
        found.extend(usable(read(row))?);
    }
    Ok(found)
}

/// Reads every row there is, and hands out one by one what it is, or that it is damaged, until told to stop.
pub(super) fn each<T>(
    connection: &Connection,
    query: &str,
    read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
    mut take: impl FnMut(Result<T, StoreError>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare(query).map_err(sql)?;
    let mut rows = statement.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        take(read(row))?;
    }
    Ok(())
}
