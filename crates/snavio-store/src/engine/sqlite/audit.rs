//! What people did: table `audit`, append-only, numbered by serial.
//!
//! `check_value` covers every other column, as in the message log.

use async_trait::async_trait;
use rusqlite::{Connection, Row, params};
use snavio_model::id::Serial;
use snavio_model::time::Timestamp;

use super::EmbeddedStore;
use super::check::{self, Check, unreadable};
use super::writer::{Transaction, Urgency, sql};
use crate::{Act, Audit, AuditEntry, Deed, StoreError};

const COLUMNS: &str = "seq, at, who, why, action, object, outcome, check_value";

#[async_trait]
impl Audit for EmbeddedStore {
    async fn put_on_record(&self, act: Act, deed: Deed) -> Result<(), StoreError> {
        let Deed { action, object, outcome } = deed;
        let put =
            move |transaction: &mut Transaction<'_>| append(transaction, action, &object, &act, &outcome);
        self.writer.run(Urgency::Ordinary, put).await
    }
}

pub(super) fn append(
    transaction: &mut Transaction<'_>,
    action: &str,
    object: &str,
    act: &Act,
    outcome: &str,
) -> Result<(), StoreError> {
    let entry = AuditEntry {
        number: transaction.numbers.next(),
        action: action.to_owned(),
        object: object.to_owned(),
        act: act.clone(),
        outcome: outcome.to_owned(),
    };
    insert(transaction.connection, &entry).map_err(sql)?;
    transaction.dirty = true;
    Ok(())
}

pub(super) fn insert(connection: &Connection, entry: &AuditEntry) -> rusqlite::Result<()> {
    const INSERT: &str = "INSERT INTO audit (seq, at, who, why, action, object, outcome, check_value) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let act = &entry.act;
    let values = params![
        entry.number.0,
        act.at.0,
        act.who,
        act.why,
        entry.action,
        entry.object,
        entry.outcome,
        check_value(entry),
    ];
    connection.prepare_cached(INSERT)?.execute(values).map(|_| ())
}

pub(super) fn page(
    connection: &Connection,
    after: Serial,
    limit: usize,
) -> Result<Vec<AuditEntry>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM audit WHERE seq > ?1 ORDER BY seq");
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let mut rows = statement.query([after.0]).map_err(sql)?;
    check::page(&mut rows, limit, read)
}

/// Hands out all entries in the order of their numbers.
pub(super) fn each(
    connection: &Connection,
    take: impl FnMut(Result<AuditEntry, StoreError>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    check::each(connection, &format!("SELECT {COLUMNS} FROM audit ORDER BY seq"), read, take)
}

fn read(row: &Row<'_>) -> Result<AuditEntry, StoreError> {
    let number = Serial(row.get(0).map_err(sql)?);
    let (entry, check) = fields(row).map_err(|error| unreadable(error, "audit entry", number))?;
    if check != check_value(&entry) {
        return Err(StoreError::Damaged { what: "audit entry", key: number.to_string() });
    }
    Ok(entry)
}

fn fields(row: &Row<'_>) -> rusqlite::Result<(AuditEntry, i64)> {
    let entry = AuditEntry {
        number: Serial(row.get(0)?),
        act: Act { at: Timestamp(row.get(1)?), who: row.get(2)?, why: row.get(3)? },
        action: row.get(4)?,
        object: row.get(5)?,
        outcome: row.get(6)?,
    };
    Ok((entry, row.get(7)?))
}

fn check_value(entry: &AuditEntry) -> i64 {
    let mut check = Check::default();
    check.number(entry.number.0);
    check.number(entry.act.at.0);
    for text in [&entry.act.who, &entry.act.why, &entry.action, &entry.object, &entry.outcome] {
        check.bytes(text.as_bytes());
    }
    check.value()
}
