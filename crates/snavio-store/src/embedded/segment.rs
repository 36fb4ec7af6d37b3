//! Objects of the archive: table `segment`, keyed by the object; begun, kept and ending.

use rusqlite::{Connection, params};
use snavio_model::time::Timestamp;

use crate::archive::{BEGUN_MAX, NewSegment, SegmentRow};

/// Notes that one is about to be written, unless it is being deleted.
pub(super) fn begin(connection: &Connection, segment: &NewSegment, now: Timestamp) -> rusqlite::Result<bool> {
    const BEGIN: &str = "INSERT INTO segment (object, state, begun_at, records, expires_at) \
         VALUES (?1, 0, ?2, ?3, ?4) \
         ON CONFLICT (object) DO UPDATE SET begun_at = max(begun_at, excluded.begun_at), \
             expires_at = max(expires_at, excluded.expires_at) WHERE state <> 2";
    let values = params![segment.object, now.0, segment.records as i64, segment.expires_at.0];
    Ok(connection.prepare_cached(BEGIN)?.execute(values)? == 1)
}

/// Claims point to it from now on. False if it is not there to be pointed to.
pub(super) fn keep(connection: &Connection, object: &str) -> rusqlite::Result<bool> {
    const KEEP: &str = "UPDATE segment SET state = 1 WHERE object = ?1 AND state <> 2";
    Ok(connection.prepare_cached(KEEP)?.execute([object])? == 1)
}

/// Nothing points to it any more.
pub(super) fn end(connection: &Connection, object: &str) -> rusqlite::Result<()> {
    const END: &str = "UPDATE segment SET state = 2 WHERE object = ?1";
    connection.prepare_cached(END)?.execute([object]).map(|_| ())
}

/// Those that are ending, with what begins to end now: nothing points to it, and its time is over.
pub(super) fn spent(
    connection: &Connection,
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
    const ENDING: &str =
        "SELECT object FROM segment WHERE state <> 1 AND state = 2 ORDER BY begun_at LIMIT ?1";
    let (limit, begun) = (limit as i64, now.minus(BEGUN_MAX).0);
    let mut ended = connection.prepare_cached(&over)?.execute((now.0, begun, limit))?;
    ended += connection.prepare_cached(&left)?.execute((begun, limit))?;
    let mut statement = connection.prepare_cached(ENDING)?;
    let objects = statement.query_map([limit], |row| row.get(0))?.collect::<Result<_, _>>()?;
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
