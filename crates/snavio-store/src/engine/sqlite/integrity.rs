//! The integrity check: SQLite's own of the whole file, and the check values of the evidence in it (QUA-1).

use std::path::Path;

use rusqlite::Connection;
use snavio_model::time::Timestamp;

use super::backup::{BackupError, open};
use super::{answer, audit, claim, conflict, entity, hold, known, layout, message, newest_of, original};
use crate::StoreError;

/// Further findings say nothing that these do not; SQLite stops at as many.
const FINDINGS_MAX: usize = 100;

/// What is damaged in a folder's store, if anything.
pub fn check_integrity(folder: &Path) -> Result<Vec<String>, BackupError> {
    let store = open(folder)?;
    findings(&store.connection)
}

/// All that is damaged in a store.
pub(super) fn findings(connection: &Connection) -> Result<Vec<String>, BackupError> {
    let damage = structure(connection)?;
    if !damage.is_empty() {
        return Ok(damage);
    }
    evidence(connection)
}

/// The time of the newest record in a folder's store, if it has any: what a node would compare its clock with.
pub fn newest_at(folder: &Path) -> Result<Option<Timestamp>, BackupError> {
    Ok(newest_of(&open(folder)?.connection)?)
}

/// SQLite's own check of the whole file.
pub(super) fn structure(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare("PRAGMA integrity_check")?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
    let said = rows.collect::<Result<Vec<_>, _>>()?;
    Ok(said.into_iter().filter(|line| line != "ok").collect())
}

/// Said of a store whose rows this version cannot read as they were written.
const NOT_CHECKED: &str = "its records were not checked: it has another version's layout; start a node of this \
     version over it, or check it with the version that wrote it";

/// Evidence that is not as it was written. A store of an older layout is brought up to date first, by its node.
pub(super) fn evidence(connection: &Connection) -> Result<Vec<String>, BackupError> {
    if !layout::is_current(connection)? {
        return Ok(vec![NOT_CHECKED.to_owned()]);
    }
    let mut found = Vec::new();
    let mut note = |damaged: Option<StoreError>| {
        if let Some(error) = damaged
            && found.len() < FINDINGS_MAX
        {
            found.push(error.to_string());
        }
        Ok(())
    };
    message::each(connection, |read| note(read.err()))?;
    claim::each(connection, |read| note(read.err()))?;
    original::each(connection, |read| note(read.err()))?;
    conflict::each(connection, |read| note(read.err()))?;
    answer::each(connection, |read| note(read.err()))?;
    audit::each(connection, |read| note(read.err()))?;
    hold::each(connection, |read| note(read.err()))?;
    entity::each(connection, |read| note(read.err()))?;
    match known::lost(connection)? {
        0 => {}
        lost => found.push(format!("{lost} claims or meanings cannot be found by their ids")),
    }
    Ok(found)
}
