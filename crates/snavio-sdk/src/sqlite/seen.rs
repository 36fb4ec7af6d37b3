//! The seen-store of the Python reference: the table `seen_events`. An existing table of the Python reference
//! works, too.
//!
//! Check, effect and mark are three separate steps here. A crash after the effect and before the mark makes
//! the effect run again. If that matters, use [`Claims::once`](super::Claims::once), or call these functions
//! in the transaction of the effect.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::{CLEANUP_ROWS, delete_all, failed};
use crate::once::{OnceError, check_id, seen_text};

/// The statements that create the table.
pub const SQL: &str = include_str!("seen.sql");

/// Creates the table and its index by age if they do not exist.
pub fn create_table(connection: &Connection) -> Result<(), OnceError> {
    connection.execute_batch(SQL).map_err(failed)
}

/// Returns true if the event is marked as seen.
pub fn is_duplicate(connection: &Connection, event_id: &str) -> Result<bool, OnceError> {
    let select = "SELECT 1 FROM seen_events WHERE event_id = ?1";
    let found = connection.query_row(select, [check_id(event_id)?], |_| Ok(())).optional();
    Ok(found.map_err(failed)?.is_some())
}

/// Reads all marked events of a database file, each with the time at which it was first seen, as the table
/// has it. Opens the file read-only.
pub fn read_all(file: &Path) -> Result<Vec<(String, String)>, OnceError> {
    let connection =
        Connection::open_with_flags(file, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    let select = "SELECT event_id, first_seen_ts FROM seen_events ORDER BY event_id";
    let mut statement = connection.prepare(select).map_err(failed)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

/// Marks the event as seen now. Returns true if this is the first time; of several concurrent calls one
/// returns true.
pub fn mark_seen(connection: &Connection, event_id: &str) -> Result<bool, OnceError> {
    let (event_id, seen) = (check_id(event_id)?, seen_text(Duration::ZERO));
    let insert = "INSERT INTO seen_events (event_id, first_seen_ts, last_seen_ts) VALUES (?1, ?2, ?2)
        ON CONFLICT DO NOTHING";
    if connection.execute(insert, params![event_id, seen]).map_err(failed)? == 1 {
        return Ok(true);
    }
    let update = "UPDATE seen_events SET last_seen_ts = ?2 WHERE event_id = ?1";
    connection.execute(update, params![event_id, seen]).map_err(failed)?;
    Ok(false)
}

/// Deletes events that were last seen longer ago than `older_than`, a bounded number of rows at a time.
/// Returns the number of deleted events.
pub fn cleanup(connection: &Connection, older_than: Duration) -> Result<usize, OnceError> {
    let before = seen_text(older_than);
    let delete = "DELETE FROM seen_events WHERE event_id IN
        (SELECT event_id FROM seen_events WHERE last_seen_ts < ?1 LIMIT ?2)";
    delete_all(|| connection.execute(delete, params![before, CLEANUP_ROWS as i64]))
}
