//! Objects of the archive: table `segment`, keyed by the object; begun, loose, kept and ending.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, params};
use snavio_model::archive::Pointer;
use snavio_model::time::Timestamp;

use super::writer::sql;
use crate::StoreError;
use crate::api::archive::{BEGUN_MAX, NewSegment, SegmentRow, count_of, objects_of, records_of, standing};

/// Notes that one is about to be written, unless it is being deleted.
pub(super) fn begin(connection: &Connection, segment: &NewSegment, now: Timestamp) -> rusqlite::Result<bool> {
    const BEGIN: &str = "INSERT INTO segment (object, state, begun_at, records, expires_at) \
         VALUES (?1, 0, ?2, ?3, ?4) \
         ON CONFLICT (object) DO UPDATE SET begun_at = max(begun_at, excluded.begun_at), \
             expires_at = max(expires_at, excluded.expires_at) WHERE state <> 2";
    let values = params![segment.object, now.0, segment.records as i64, segment.expires_at.0];
    Ok(connection.prepare_cached(BEGIN)?.execute(values)? == 1)
}

/// Claims point to something in it from now on. False if it is not there to be pointed to.
pub(super) fn keep(connection: &Connection, object: &str) -> rusqlite::Result<bool> {
    const KEEP: &str = "UPDATE segment SET state = 3 WHERE object = ?1 AND state <> 2";
    Ok(connection.prepare_cached(KEEP)?.execute([object])? == 1)
}

/// Writes where it stands by how much of it is pointed to, and says so.
pub(super) fn settle(connection: &Connection, object: &str) -> rusqlite::Result<i16> {
    const FIND: &str = "SELECT state, records FROM segment WHERE object = ?1 AND state <> 2";
    const SETTLE: &str = "UPDATE segment SET state = ?2 WHERE object = ?1";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i16>(0)?, row.get(1)?));
    let found = connection.prepare_cached(FIND)?.query_row([object], read).optional()?;
    let Some((state, records)) = found else { return Ok(2) };
    let stands = standing(count_of(beside(connection, object)?), records);
    if stands != state {
        connection.prepare_cached(SETTLE)?.execute(params![object, stands])?;
    }
    Ok(stands)
}

/// The same of one whose object was just written: without a row nobody would know of it.
pub(super) fn settle_written(connection: &Connection, object: &str, now: Timestamp) -> rusqlite::Result<()> {
    const ADOPT: &str = "INSERT INTO segment (object, state, begun_at, records, expires_at) VALUES (?1, 0, ?2, 0, ?2) \
         ON CONFLICT (object) DO NOTHING";
    connection.prepare_cached(ADOPT)?.execute(params![object, now.0])?;
    settle(connection, object).map(|_| ())
}

/// What stands beside the claims that point to something in it.
fn beside(connection: &Connection, object: &str) -> rusqlite::Result<Vec<String>> {
    const BESIDE: &str = "SELECT archive FROM claim WHERE archive >= ?1 || '#' AND archive < ?1 || '$'";
    connection.prepare_cached(BESIDE)?.query_map([object], |row| row.get(0))?.collect()
}

/// The records in it that claims point to.
pub(super) fn pointed(connection: &Connection, object: &str) -> Result<HashSet<Pointer>, StoreError> {
    records_of(beside(connection, object).map_err(sql)?)
}

/// Points claims to where their records are now, and the old segments end. False, and nothing is done, if one of the new
/// ones is not there to be pointed to, or something of an old one was left out.
pub(super) fn repoint(connection: &Connection, rewritten: &[(Pointer, Pointer)]) -> Result<bool, StoreError> {
    let old: HashSet<_> = rewritten.iter().map(|(old, _)| old).collect();
    for object in objects_of(rewritten.iter().map(|(old, _)| old)) {
        if pointed(connection, object)?.iter().any(|it| !old.contains(it)) {
            return Ok(false);
        }
    }
    for object in objects_of(rewritten.iter().map(|(_, new)| new)) {
        if !keep(connection, object).map_err(sql)? {
            return Ok(false);
        }
    }
    let write = || {
        for (old, new) in rewritten {
            repoint_one(connection, old, new)?;
        }
        for object in objects_of(rewritten.iter().flat_map(|(old, new)| [old, new])) {
            settle(connection, object)?;
        }
        Ok(true)
    };
    write().map_err(sql)
}

/// What is said of the answer behind the pointer stays.
fn repoint_one(connection: &Connection, old: &Pointer, new: &Pointer) -> rusqlite::Result<()> {
    const REPOINT: &str = "UPDATE claim SET archive = ?2 || substr(archive, length(?1) + 1) \
         WHERE archive >= ?1 AND archive < ?1 || ';'";
    connection.prepare_cached(REPOINT)?.execute([old.to_string(), new.to_string()]).map(|_| ())
}

/// Those that are loose, after a key.
pub(super) fn loose(connection: &Connection, after: &str, limit: usize) -> rusqlite::Result<Vec<String>> {
    const LOOSE: &str = "SELECT object FROM segment WHERE state <> 1 AND state = 3 AND object > ?1 \
         ORDER BY object LIMIT ?2";
    let mut statement = connection.prepare_cached(LOOSE)?;
    let rows = statement.query_map(params![after, limit as i64], |row| row.get(0))?;
    let mut found = Vec::new();
    for object in rows.collect::<Result<Vec<String>, _>>()? {
        // Whoever moved them may have been interrupted after the last of them.
        if settle(connection, &object)? == 3 {
            found.push(object);
        }
    }
    Ok(found)
}

/// How many are not settled, or are ending.
pub(super) fn unsettled(connection: &Connection) -> rusqlite::Result<u64> {
    const UNSETTLED: &str = "SELECT count(*) FROM segment WHERE state <> 1";
    connection.prepare_cached(UNSETTLED)?.query_row([], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
}

pub(super) fn is_ending(connection: &Connection, object: &str) -> rusqlite::Result<bool> {
    const ENDING: &str = "SELECT EXISTS (SELECT 1 FROM segment WHERE object = ?1 AND state = 2)";
    connection.prepare_cached(ENDING)?.query_row([object], |row| row.get(0))
}

/// Those that are ending, after a key, with what begins to end now: nothing points to it, and its time is over.
pub(super) fn spent(
    connection: &Connection,
    after: &str,
    limit: usize,
    now: Timestamp,
) -> rusqlite::Result<(usize, Vec<String>)> {
    const UNPOINTED: &str =
        "NOT EXISTS (SELECT 1 FROM claim WHERE archive >= object || '#' AND archive < object || '$')";
    let over = format!(
        "UPDATE segment SET state = 2 WHERE object IN (SELECT object FROM segment \
         WHERE expires_at <= ?1 AND state <> 2 AND begun_at <= ?2 AND {UNPOINTED} ORDER BY expires_at LIMIT ?3)"
    );
    let left = format!(
        "UPDATE segment SET state = 2 WHERE object IN (SELECT object FROM segment \
         WHERE state <> 1 AND state = 0 AND begun_at <= ?1 AND {UNPOINTED} LIMIT ?2)"
    );
    const ENDING: &str = "SELECT object FROM segment WHERE state <> 1 AND state = 2 AND object > ?1 \
         ORDER BY object LIMIT ?2";
    let (limit, begun) = (limit as i64, now.minus(BEGUN_MAX).0);
    let mut ended = connection.prepare_cached(&over)?.execute((now.0, begun, limit))?;
    ended += connection.prepare_cached(&left)?.execute((begun, limit))?;
    let mut statement = connection.prepare_cached(ENDING)?;
    let objects = statement.query_map(params![after, limit], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok((ended, objects))
}

/// Deletes the row of one whose object is gone.
pub(super) fn forget(connection: &Connection, object: &str) -> rusqlite::Result<bool> {
    const FORGET: &str = "DELETE FROM segment WHERE object = ?1 AND state = 2";
    Ok(connection.prepare_cached(FORGET)?.execute([object])? == 1)
}

/// All of them, as they are.
pub(super) fn all(connection: &Connection) -> rusqlite::Result<Vec<SegmentRow>> {
    const ALL: &str = "SELECT object, state, begun_at, records, expires_at FROM segment ORDER BY object";
    let mut statement = connection.prepare(ALL)?;
    let rows = statement.query_map([], |row| {
        Ok(SegmentRow {
            object: row.get(0)?,
            state: row.get(1)?,
            begun_at: row.get(2)?,
            records: row.get(3)?,
            expires_at: row.get(4)?,
        })
    })?;
    rows.collect()
}
