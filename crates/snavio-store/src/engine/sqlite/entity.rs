//! What is known of entities whose messages are ordered: table `entity`, keyed by tenant, scope and entity (ORD-2).

use rusqlite::{Connection, Row, params};
use snavio_model::name::TenantName;
use snavio_model::ordering::{EntityKey, EntityRecord};
use snavio_model::time::Timestamp;

use super::check::{self, unreadable, usable};
use super::writer::sql;
use crate::StoreError;
use crate::record::check_value::of_entity;

const COLUMNS: &str = "tenant, scope, entity, body, check_value";
const KEY: &str = "tenant = ?1 AND scope = ?2 AND entity = ?3";

pub(super) fn find(connection: &Connection, key: &EntityKey) -> Result<Option<EntityRecord>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM entity WHERE {KEY}");
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let mut rows = statement.query((key.tenant.as_str(), &*key.scope, &key.entity)).map_err(sql)?;
    Ok(rows.next().map_err(sql)?.map(read).transpose()?.map(|(_, record)| record))
}

/// Writes what is known of an entity from now on.
pub(super) fn put(connection: &Connection, key: &EntityKey, record: &EntityRecord) -> rusqlite::Result<()> {
    const PUT: &str = "INSERT OR REPLACE INTO entity \
         (tenant, scope, entity, body, expires_at, wait_ends_at, parked_at, check_value) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let body = record.to_text();
    let values = params![
        key.tenant.as_str(),
        key.scope,
        key.entity,
        body,
        record.state.expires_at.0,
        record.state.wait_ends_at().map(|it| it.0),
        record.state.parked_at(),
        of_entity(key, &body),
    ];
    connection.prepare_cached(PUT)?.execute(values).map(|_| ())
}

pub(super) fn delete(connection: &Connection, key: &EntityKey) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(&format!("DELETE FROM entity WHERE {KEY}"))?;
    statement.execute((key.tenant.as_str(), &*key.scope, &key.entity)).map(|_| ())
}

/// Hands out all of them in the order of their keys.
pub(super) fn each(
    connection: &Connection,
    take: impl FnMut(Result<(EntityKey, EntityRecord), StoreError>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let query = format!("SELECT {COLUMNS} FROM entity ORDER BY tenant, scope, entity");
    check::each(connection, &query, read, take)
}

/// Parks one behind a number of which nothing else can be read, and says where it is parked now.
pub(super) fn park_unread(connection: &Connection, key: &EntityKey, number: i64) -> rusqlite::Result<i64> {
    let park = format!(
        "UPDATE entity SET parked_at = min(coalesce(parked_at, ?4), ?4) WHERE {KEY} RETURNING parked_at"
    );
    let values = params![key.tenant.as_str(), key.scope, key.entity, number];
    connection.prepare_cached(&park)?.query_row(values, |row| row.get(0))
}

/// Those that are parked. Damaged ones are told of, and are parked by what stands beside their state: whatever else is behind
/// them, it must not go on.
pub(super) fn parked(connection: &Connection) -> Result<Vec<(EntityKey, i64)>, StoreError> {
    let query = format!("SELECT {COLUMNS}, parked_at FROM entity WHERE parked_at IS NOT NULL");
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let mut rows = statement.query([]).map_err(sql)?;
    let parked = |row: &Row<'_>| match usable(read(row))? {
        Some((key, it)) => Ok(it.state.parked_at().map(|at| (key, at))),
        None => Ok(key(row).ok().flatten().zip(row.get(5).ok())),
    };
    Ok(check::page(&mut rows, usize::MAX, parked)?.into_iter().flatten().collect())
}

/// Some of those in which a wait is over; damaged ones are told of and left out.
pub(super) fn overdue(
    connection: &Connection,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<(EntityKey, EntityRecord)>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM entity WHERE wait_ends_at <= ?1 ORDER BY wait_ends_at");
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let mut rows = statement.query([now.0]).map_err(sql)?;
    check::page(&mut rows, limit, read)
}

/// Deletes some of those of which nothing is known any more, and says how many.
pub(super) fn sweep(connection: &Connection, now: Timestamp, limit: usize) -> rusqlite::Result<usize> {
    const SWEEP: &str = "DELETE FROM entity WHERE (tenant, scope, entity) IN ( \
         SELECT tenant, scope, entity FROM entity WHERE expires_at <= ?1 AND wait_ends_at IS NULL AND parked_at IS NULL \
         ORDER BY expires_at LIMIT ?2)";
    connection.prepare_cached(SWEEP)?.execute(params![now.0, limit as i64])
}

fn read(row: &Row<'_>) -> Result<(EntityKey, EntityRecord), StoreError> {
    let name = row.get_ref(2).map_err(sql)?;
    let name = String::from_utf8_lossy(name.as_bytes().unwrap_or_default()).into_owned();
    let damaged = || StoreError::Damaged { what: "entity", key: name.clone() };
    let fields = fields(row).map_err(|error| unreadable(error, "entity", &name))?;
    fields.ok_or_else(damaged)
}

fn key(row: &Row<'_>) -> rusqlite::Result<Option<EntityKey>> {
    let Ok(tenant) = TenantName::new(row.get_ref(0)?.as_str()?) else { return Ok(None) };
    Ok(Some(EntityKey { tenant, scope: row.get_ref(1)?.as_str()?.into(), entity: row.get(2)? }))
}

fn fields(row: &Row<'_>) -> rusqlite::Result<Option<(EntityKey, EntityRecord)>> {
    let Some(key) = key(row)? else { return Ok(None) };
    let body = row.get_ref(3)?.as_str()?;
    let record = EntityRecord::stored(body).filter(|_| row.get(4) == Ok(of_entity(&key, body)));
    Ok(record.map(|record| (key, record)))
}
