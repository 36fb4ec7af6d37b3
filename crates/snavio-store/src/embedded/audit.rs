//! What people did: table `audit`, append-only, numbered by serial.

use rusqlite::{Connection, params};
use snavio_model::id::Serial;
use snavio_model::time::Timestamp;

use super::writer::{Transaction, sql};
use crate::{Act, AuditEntry, StoreError};

pub(super) fn append(
    transaction: &mut Transaction<'_>,
    action: &str,
    object: &str,
    act: &Act,
    outcome: &str,
) -> Result<(), StoreError> {
    const INSERT: &str = "INSERT INTO audit (seq, at, who, why, action, object, outcome) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let number = transaction.numbers.next();
    let values = params![number.0, act.at.0, act.who, act.why, action, object, outcome];
    transaction.connection.prepare_cached(INSERT).and_then(|mut it| it.execute(values)).map_err(sql)?;
    transaction.dirty = true;
    Ok(())
}

pub(super) fn page(
    connection: &Connection,
    after: Serial,
    limit: usize,
) -> Result<Vec<AuditEntry>, StoreError> {
    const PAGE: &str = "SELECT seq, at, who, why, action, object, outcome FROM audit \
         WHERE seq > ?1 ORDER BY seq LIMIT ?2";
    let mut statement = connection.prepare_cached(PAGE).map_err(sql)?;
    let rows = statement.query_map(params![after.0, limit as i64], |row| {
        Ok(AuditEntry {
            number: Serial(row.get(0)?),
            act: Act { at: Timestamp(row.get(1)?), who: row.get(2)?, why: row.get(3)? },
            action: row.get(4)?,
            object: row.get(5)?,
            outcome: row.get(6)?,
        })
    });
    rows.map_err(sql)?.map(|row| row.map_err(sql)).collect()
}
