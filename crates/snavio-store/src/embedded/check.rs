//! The check value of evidence rows: CRC-32 over their columns, each preceded by its length (QUA-1).

use std::fmt::Display;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, Rows};

use super::writer::sql;
use crate::StoreError;

/// What it means that a row cannot be read: SQLite's own failure is the store's, anything else the row's. A text
/// that is none or a number out of range must not look like a store that is down, nor take its neighbours along.
pub(super) fn unreadable(error: rusqlite::Error, what: &'static str, key: impl Display) -> StoreError {
    match error {
        rusqlite::Error::SqliteFailure(..) => sql(error),
        _ => StoreError::Damaged { what, key: key.to_string() },
    }
}

/// What was read, if it can be used; what is damaged is told of.
pub(super) fn usable<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Err(damaged @ StoreError::Damaged { .. }) => {
            alert(&damaged);
            Ok(None)
        }
        read => read.map(Some),
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

/// Reads every row there is, one by one, and hands out what is damaged.
pub(super) fn all<T>(
    connection: &Connection,
    query: &str,
    read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
    mut damaged: impl FnMut(StoreError),
) -> Result<(), StoreError> {
    let mut statement = connection.prepare(query).map_err(sql)?;
    let mut rows = statement.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        read(row).err().map(&mut damaged);
    }
    Ok(())
}

/// Says loudly that a record is damaged; what needs it is refused, and the rest goes on.
pub(super) fn alert(error: &StoreError) {
    tracing::error!(error = error as &dyn std::error::Error, "a stored record is damaged: run snavio doctor");
}

/// Room for the columns of a usual row.
const ROW_BYTES: usize = 2048;

/// Gathers columns in order. They are put side by side first: many small pieces cost more than one copy.
pub(super) struct Check(Vec<u8>);

impl Default for Check {
    fn default() -> Self {
        Self(Vec::with_capacity(ROW_BYTES))
    }
}

impl Check {
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as i64);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn number(&mut self, number: i64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// A column as it is stored; nothing has no place in evidence.
    pub(super) fn column(&mut self, column: ValueRef<'_>) {
        match column {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => self.bytes(bytes),
            ValueRef::Integer(number) => self.number(number),
            ValueRef::Real(_) | ValueRef::Null => {}
        }
    }

    pub(super) fn value(self) -> i64 {
        i64::from(crc32fast::hash(&self.0))
    }
}
