//! Telemetry: table `telemetry`, keyed by tenant and serial. `snavio.command.delivered` is not written here: it
//! is read off the message log, whose numbers come from the same source, so that the two merge in order.

use rusqlite::{Connection, Row, params};
use snavio_model::id::Serial;
use snavio_model::name::{ServiceName, TenantName};
use snavio_model::telemetry::{self, DELIVERED, Record, StoredRecord};
use snavio_model::time::Timestamp;

use super::message;
use super::writer::{Transaction, sql};
use crate::StoreError;

pub(super) fn append(transaction: &mut Transaction<'_>, records: &[Record]) -> Result<(), StoreError> {
    const INSERT: &str =
        "INSERT INTO telemetry (tenant, seq, kind, at, source, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    for record in records {
        let number = transaction.numbers.next();
        let body = serde_json::to_string(&record.body).unwrap_or_default();
        let source = record.source.as_ref().map(ServiceName::as_str);
        let values = params![record.tenant.as_str(), number.0, record.kind, record.at.0, source, body];
        let mut statement = transaction.connection.prepare_cached(INSERT).map_err(sql)?;
        statement.execute(values).map_err(sql)?;
        transaction.dirty = true;
    }
    Ok(())
}

/// A tenant's records after a number: those written here and those read off the message log, in order.
pub(super) fn page(
    connection: &Connection,
    tenant: &str,
    after: Serial,
    limit: usize,
) -> Result<Vec<StoredRecord>, StoreError> {
    let mut records = written(connection, tenant, after, limit)?;
    let messages = message::of_tenant(connection, tenant, after, limit)?;
    records.extend(messages.into_iter().map(|logged| StoredRecord {
        number: logged.number,
        kind: DELIVERED.to_owned(),
        at: logged.message.received_at,
        source: Some(logged.message.source.to_string()),
        body: telemetry::delivered(&logged.message, logged.path, logged.settled_at),
    }));
    records.sort_by_key(|record| record.number);
    records.truncate(limit);
    Ok(records)
}

fn written(
    connection: &Connection,
    tenant: &str,
    after: Serial,
    limit: usize,
) -> Result<Vec<StoredRecord>, StoreError> {
    const PAGE: &str = "SELECT seq, kind, at, source, body FROM telemetry \
         WHERE tenant = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
    let mut statement = connection.prepare_cached(PAGE).map_err(sql)?;
    let rows = statement.query_map(params![tenant, after.0, limit as i64], read).map_err(sql)?;
    rows.map(|row| row.map_err(sql)).collect()
}

fn read(row: &Row<'_>) -> rusqlite::Result<StoredRecord> {
    let body: String = row.get(4)?;
    Ok(StoredRecord {
        number: Serial(row.get(0)?),
        kind: row.get(1)?,
        at: Timestamp(row.get(2)?),
        source: row.get(3)?,
        body: serde_json::from_str(&body).unwrap_or_default(),
    })
}

/// Deletes up to `limit` records from before `horizon`, and leaves a record of it with each tenant.
pub(super) fn sweep(
    transaction: &mut Transaction<'_>,
    horizon: Timestamp,
    now: Timestamp,
    limit: usize,
) -> Result<usize, StoreError> {
    let mut deleted = 0;
    for tenant in tenants(transaction.connection).map_err(sql)? {
        let room = limit.saturating_sub(deleted);
        if room == 0 {
            break;
        }
        let oldest = oldest(transaction.connection, &tenant).map_err(sql)?;
        let Some(oldest) = oldest.filter(|oldest| *oldest < horizon) else { continue };
        const SWEEP: &str = "DELETE FROM telemetry WHERE (tenant, seq) IN \
             (SELECT tenant, seq FROM telemetry WHERE tenant = ?1 AND at < ?2 ORDER BY seq LIMIT ?3)";
        let mut statement = transaction.connection.prepare_cached(SWEEP).map_err(sql)?;
        let count = statement.execute(params![tenant, horizon.0, room as i64]).map_err(sql)?;
        drop(statement);
        deleted += count;
        if let Ok(tenant) = TenantName::new(&tenant) {
            append(transaction, &[telemetry::dropped(tenant, count as u64, "aged_out", oldest, now)])?;
        }
    }
    Ok(deleted)
}

/// Tenants that have telemetry, found by skipping from one to the next.
fn tenants(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut next = connection.prepare_cached("SELECT min(tenant) FROM telemetry WHERE tenant > ?1")?;
    let mut found: Vec<String> = Vec::new();
    loop {
        let after = found.last().map_or("", String::as_str);
        match next.query_row([after], |row| row.get::<_, Option<String>>(0))? {
            Some(tenant) => found.push(tenant),
            None => return Ok(found),
        }
    }
}

fn oldest(connection: &Connection, tenant: &str) -> rusqlite::Result<Option<Timestamp>> {
    let mut first =
        connection.prepare_cached("SELECT at FROM telemetry WHERE tenant = ?1 ORDER BY seq LIMIT 1")?;
    let mut rows = first.query([tenant])?;
    rows.next()?.map(|row| row.get(0).map(Timestamp)).transpose()
}

/// When the newest record was written.
pub(super) fn newest_at(connection: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    connection
        .query_row("SELECT max(at) FROM telemetry", [], |row| row.get::<_, Option<i64>>(0))
        .map(|at| at.map(Timestamp))
}
