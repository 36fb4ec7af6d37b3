//! The time that a start compares the wall clock with: the newest that the store was changed by.

use rusqlite::Connection;
use snavio_model::time::Timestamp;

use super::writer::Transaction;
use super::{fleet, message, telemetry};

/// The time of the newest message or telemetry record, or of the last sweep: by an earlier time, a claim that it deleted would
/// still count.
pub(super) fn newest_of(connection: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    Ok(message::newest_at(connection)?.max(telemetry::newest_at(connection)?).max(swept_at(connection)?))
}

/// Note of the last sweep that deleted something, in milliseconds.
const SWEPT_AT_NOTE: &str = "sweep/at";

/// Nothing in a store of an older layout, which has no notes.
fn swept_at(connection: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    if !connection.table_exists(None, "note")? {
        return Ok(None);
    }
    Ok(fleet::note(connection, SWEPT_AT_NOTE)?.and_then(|at| at.parse().ok()).map(Timestamp))
}

/// Takes down when something was deleted because its time was over. A sweep at an earlier time, after a person has accepted
/// the wall clock, counts instead.
pub(super) fn keep_sweep_time(
    transaction: &mut Transaction<'_>,
    now: Timestamp,
    has_deleted: bool,
) -> rusqlite::Result<()> {
    if has_deleted || swept_at(transaction.connection)?.is_some_and(|at| at > now) {
        fleet::write_note(transaction.connection, SWEPT_AT_NOTE, &now.0.to_string())?;
        transaction.dirty = true;
    }
    Ok(())
}
