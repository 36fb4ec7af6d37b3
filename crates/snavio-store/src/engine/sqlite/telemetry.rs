//! Telemetry: table `telemetry`, keyed by tenant and serial. `snavio.command.delivered` is not written here: it
//! is read off the message log, whose numbers come from the same source, so that the two merge in order.

use std::ops::ControlFlow;

use rusqlite::{Connection, Row, params};
use snavio_model::bounds;
use snavio_model::claim::IdKey;
use snavio_model::id::Serial;
use snavio_model::name::{ServiceName, TenantName};
use snavio_model::telemetry::{self, DROPPED, Record, StoredRecord};
use snavio_model::time::Timestamp;

use super::writer::{Transaction, sql};
use super::{check, message};
use crate::{StoreError, ToldOf};

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
    let mut room = limit;
    message::each_of_tenant(connection, tenant, after, |logged| {
        records.push(logged.delivered());
        room = room.saturating_sub(1);
        if room == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
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
         WHERE tenant = ?1 AND seq > ?2 ORDER BY seq";
    let mut statement = connection.prepare_cached(PAGE).map_err(sql)?;
    let mut rows = statement.query(params![tenant, after.0]).map_err(sql)?;
    check::page(&mut rows, limit, read)
}

/// What is written of an id among a tenant's newest `most` records, newest first.
pub(super) fn told_of(connection: &Connection, id: &IdKey, most: usize) -> Result<ToldOf, StoreError> {
    const NEWEST: &str =
        "SELECT seq, kind, at, source, body FROM telemetry WHERE tenant = ?1 ORDER BY seq DESC";
    let name = ToldOf::name(id);
    let mut statement = connection.prepare_cached(NEWEST).map_err(sql)?;
    let mut rows = statement.query([id.tenant.as_str()]).map_err(sql)?;
    let (mut told, mut looked_at) = (ToldOf::default(), 0);
    while let Some(row) = rows.next().map_err(sql)? {
        if looked_at == most || told.records.len() == bounds::PAGE_MAX {
            return Ok(ToldOf { is_part: true, ..told });
        }
        looked_at += 1;
        let body = row.get_ref(4).ok().and_then(|it| it.as_str().ok());
        if body.is_some_and(|body| body.contains(&name)) {
            told.records.extend(check::usable(read(row))?);
        }
    }
    Ok(told)
}

/// Hands out all records with their tenants, in the order of both.
pub(super) fn each(
    connection: &Connection,
    take: impl FnMut(Result<(String, StoredRecord), StoreError>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    const ALL: &str = "SELECT seq, kind, at, source, body, tenant FROM telemetry ORDER BY tenant, seq";
    let of_tenant = |row: &Row<'_>| {
        let record = read(row)?;
        let tenant =
            row.get(5).map_err(|error| check::unreadable(error, "telemetry record", record.number))?;
        Ok((tenant, record))
    };
    check::each(connection, ALL, of_tenant, take)
}

fn read(row: &Row<'_>) -> Result<StoredRecord, StoreError> {
    let number = Serial(row.get(0).map_err(sql)?);
    let fields = fields(row).map_err(|error| check::unreadable(error, "telemetry record", number))?;
    fields.ok_or_else(|| StoreError::Damaged { what: "telemetry record", key: number.to_string() })
}

/// Reads a row's columns; nothing if its body is none that this store could have written.
fn fields(row: &Row<'_>) -> rusqlite::Result<Option<StoredRecord>> {
    let (number, kind, at, source) = (Serial(row.get(0)?), row.get(1)?, Timestamp(row.get(2)?), row.get(3)?);
    let body = serde_json::from_str(row.get_ref(4)?.as_str()?).ok();
    Ok(body.map(|body| StoredRecord { number, kind, at, source, body }))
}

/// Deletes up to `limit` records that have aged out, and leaves a record of it with each tenant. Looks at no
/// more than `limit` tenants and goes on after `cursor`, where the sweep before it ended.
pub(super) fn sweep(
    transaction: &mut Transaction<'_>,
    cursor: &mut String,
    now: Timestamp,
    limit: usize,
) -> Result<usize, StoreError> {
    let horizon = now.minus(bounds::TELEMETRY_RETENTION);
    let mut deleted = 0;
    for _ in 0..limit {
        let Some(tenant) = tenant_after(transaction.connection, cursor).map_err(sql)? else {
            cursor.clear();
            break;
        };
        let aged = aged(transaction.connection, &tenant, horizon, limit - deleted).map_err(sql)?;
        deleted += aged.count;
        drop_aged(transaction, &tenant, aged, now)?;
        if deleted >= limit {
            // There may be more of this one.
            break;
        }
        *cursor = tenant;
    }
    Ok(deleted)
}

/// A tenant's first records, as far as they are from before the horizon.
#[derive(Default)]
struct Aged {
    count: usize,
    /// Those that a reader missed. That others were dropped is no news again when it is dropped itself.
    missed: u64,
    oldest: Option<Timestamp>,
    last: Option<Serial>,
}

fn aged(connection: &Connection, tenant: &str, horizon: Timestamp, limit: usize) -> rusqlite::Result<Aged> {
    const FIRST: &str = "SELECT seq, at, kind FROM telemetry WHERE tenant = ?1 ORDER BY seq LIMIT ?2";
    let mut statement = connection.prepare_cached(FIRST)?;
    let mut rows = statement.query(params![tenant, limit as i64])?;
    let mut aged = Aged::default();
    while let Some(row) = rows.next()? {
        let at = Timestamp(row.get(1)?);
        if at >= horizon {
            break;
        }
        aged.count += 1;
        aged.missed += u64::from(row.get_ref(2)?.as_bytes()? != DROPPED.as_bytes());
        aged.oldest = aged.oldest.or(Some(at));
        aged.last = Some(Serial(row.get(0)?));
    }
    Ok(aged)
}

fn drop_aged(
    transaction: &mut Transaction<'_>,
    tenant: &str,
    aged: Aged,
    now: Timestamp,
) -> Result<(), StoreError> {
    const DROP: &str = "DELETE FROM telemetry WHERE tenant = ?1 AND seq <= ?2";
    let (Some(last), Some(oldest)) = (aged.last, aged.oldest) else { return Ok(()) };
    let dropped = transaction.connection.prepare_cached(DROP).and_then(|mut it| it.execute((tenant, last.0)));
    dropped.map_err(sql)?;
    transaction.dirty = true;
    match TenantName::new(tenant) {
        Ok(tenant) if aged.missed > 0 => {
            append(transaction, &[telemetry::dropped(tenant, aged.missed, "aged_out", oldest, now)])
        }
        _ => Ok(()),
    }
}

/// The next tenant that has telemetry, found by skipping over the records of the one before.
fn tenant_after(connection: &Connection, after: &str) -> rusqlite::Result<Option<String>> {
    let mut next = connection.prepare_cached("SELECT min(tenant) FROM telemetry WHERE tenant > ?1")?;
    next.query_row([after], |row| row.get(0))
}

/// When the newest record was written: each tenant's last one is looked at, and no other.
pub(super) fn newest_at(connection: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    const LAST: &str = "SELECT at FROM telemetry WHERE tenant = ?1 ORDER BY seq DESC LIMIT 1";
    let mut last = connection.prepare(LAST)?;
    let mut newest = None;
    let mut tenant = String::new();
    while let Some(next) = tenant_after(connection, &tenant)? {
        newest = newest.max(Some(last.query_row([&next], |row| row.get(0).map(Timestamp))?));
        tenant = next;
    }
    Ok(newest)
}
