//! Telemetry: table `telemetry`, keyed by tenant and number. `snavio.command.delivered` is not written here: it is
//! read off the message log, whose numbers come from the same source, so that the two merge in order.

use std::collections::BTreeMap;

use snavio_model::bounds;
use snavio_model::claim::IdKey;
use snavio_model::id::Serial;
use snavio_model::name::{ServiceName, TenantName};
use snavio_model::telemetry::{self, DROPPED, Record, StoredRecord};
use snavio_model::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::client::GenericClient;
use super::horizon::{BLOCK, BLOCK_NUMBERS};
use super::message;
use super::pool::sql;
use crate::record::check_value::usable;
use crate::{StoreError, ToldOf};

pub(super) async fn append(client: &impl GenericClient, records: &[Record]) -> Result<(), StoreError> {
    if records.is_empty() {
        return Ok(());
    }
    let insert = format!(
        "WITH block AS MATERIALIZED ({BLOCK}) \
         INSERT INTO telemetry (tenant, seq, kind, at, source, body) \
         SELECT tenant, base + place, kind, at, source, body \
         FROM block, unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[]) WITH ORDINALITY \
             AS new (tenant, kind, at, source, body, place)"
    );
    let statement = client.prepare_cached(&insert).await.map_err(sql)?;
    for records in records.chunks(BLOCK_NUMBERS - 1) {
        let tenants: Vec<_> = records.iter().map(|it| it.tenant.as_str()).collect();
        let kinds: Vec<_> = records.iter().map(|it| it.kind).collect();
        let times: Vec<_> = records.iter().map(|it| it.at.0).collect();
        let sources: Vec<_> = records.iter().map(|it| it.source.as_ref().map(ServiceName::as_str)).collect();
        let bodies: Vec<_> =
            records.iter().map(|it| serde_json::to_string(&it.body).unwrap_or_default()).collect();
        let values: [&(dyn ToSql + Sync); 5] = [&tenants, &kinds, &times, &sources, &bodies];
        client.execute(&statement, &values).await.map_err(sql)?;
    }
    Ok(())
}

/// Writes records that have their numbers already, each with its tenant.
pub(super) async fn insert(
    client: &impl GenericClient,
    records: &[(String, StoredRecord)],
) -> Result<(), StoreError> {
    const INSERT: &str = "INSERT INTO telemetry (tenant, seq, kind, at, source, body) \
         SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::text[], $6::text[])";
    let tenants: Vec<_> = records.iter().map(|(tenant, _)| tenant.as_str()).collect();
    let numbers: Vec<_> = records.iter().map(|(_, it)| it.number.0).collect();
    let kinds: Vec<_> = records.iter().map(|(_, it)| it.kind.as_str()).collect();
    let times: Vec<_> = records.iter().map(|(_, it)| it.at.0).collect();
    let sources: Vec<_> = records.iter().map(|(_, it)| it.source.as_deref()).collect();
    let bodies: Vec<_> =
        records.iter().map(|(_, it)| serde_json::to_string(&it.body).unwrap_or_default()).collect();
    let values: [&(dyn ToSql + Sync); 6] = [&tenants, &numbers, &kinds, &times, &sources, &bodies];
    let statement = client.prepare_cached(INSERT).await.map_err(sql)?;
    client.execute(&statement, &values).await.map(|_| ()).map_err(sql)
}

/// A tenant's records after a number and up to another: those written here and those read off the message log, in
/// order.
pub(super) async fn page(
    client: &impl GenericClient,
    tenant: &str,
    after: Serial,
    up_to: i64,
    limit: usize,
) -> Result<Vec<StoredRecord>, StoreError> {
    let log = message::page(client, tenant, after, up_to, limit).await?;
    let mut records = written(client, tenant, after, log.complete_to, limit).await?;
    records.extend(log.messages.iter().map(crate::LoggedMessage::delivered));
    records.sort_by_key(|record| record.number);
    records.truncate(limit);
    Ok(records)
}

async fn written(
    client: &impl GenericClient,
    tenant: &str,
    after: Serial,
    up_to: i64,
    limit: usize,
) -> Result<Vec<StoredRecord>, StoreError> {
    const PAGE: &str = "SELECT seq, kind, at, source, body FROM telemetry \
         WHERE tenant = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4";
    let statement = client.prepare_cached(PAGE).await.map_err(sql)?;
    let mut after = after.0;
    let mut records = Vec::new();
    while records.len() < limit {
        let most = (limit - records.len()) as i64;
        let rows = client.query(&statement, &[&tenant, &after, &up_to, &most]).await.map_err(sql)?;
        let Some(last) = rows.last() else { break };
        after = last.try_get(0).map_err(sql)?;
        for row in &rows {
            records.extend(usable(read(row))?);
        }
        if (rows.len() as i64) < most {
            break;
        }
    }
    Ok(records)
}

/// What is written of an id among a tenant's newest `most` records, newest first.
pub(super) async fn told_of(
    client: &impl GenericClient,
    id: &IdKey,
    most: usize,
) -> Result<ToldOf, StoreError> {
    const TOLD: &str = "WITH newest AS MATERIALIZED (SELECT seq, kind, at, source, body FROM telemetry \
             WHERE tenant = $1 ORDER BY seq DESC LIMIT $2::bigint + 1) \
         SELECT seq, kind, at, source, body, (SELECT count(*) FROM newest) > $2::bigint \
         FROM (SELECT * FROM newest ORDER BY seq DESC LIMIT $2::bigint) AS looked_at \
         WHERE strpos(body, $3) > 0 OR seq = (SELECT max(seq) FROM newest) ORDER BY seq DESC LIMIT $4";
    let (name, limit) = (ToldOf::name(id), bounds::PAGE_MAX as i64);
    let statement = client.prepare_cached(TOLD).await.map_err(sql)?;
    let values: [&(dyn ToSql + Sync); 4] = [&id.tenant.as_str(), &(most as i64), &name, &limit];
    let rows = client.query(&statement, &values).await.map_err(sql)?;
    let mut told = ToldOf::default();
    for row in &rows {
        told.is_part |= row.try_get::<_, bool>(5).map_err(sql)?;
        told.records.extend(usable(read(row))?);
    }
    told.is_part |= rows.len() == bounds::PAGE_MAX;
    Ok(told)
}

fn read(row: &Row) -> Result<StoredRecord, StoreError> {
    let number = Serial(row.try_get(0).map_err(sql)?);
    let damaged = |_| StoreError::Damaged { what: "telemetry record", key: number.to_string() };
    let body = serde_json::from_str(row.try_get(4).map_err(sql)?).map_err(damaged)?;
    let (kind, source) = (row.try_get(1).map_err(sql)?, row.try_get(3).map_err(sql)?);
    Ok(StoredRecord { number, kind, at: Timestamp(row.try_get(2).map_err(sql)?), source, body })
}

/// Deletes up to `limit` records from before `horizon`, and leaves a record of it with each tenant. Within a
/// transaction. That others were dropped is no news again when it is dropped itself.
pub(super) async fn sweep(
    client: &impl GenericClient,
    horizon: Timestamp,
    now: Timestamp,
    limit: usize,
) -> Result<(usize, Vec<Record>), StoreError> {
    const SWEEP: &str = "DELETE FROM telemetry WHERE ctid = ANY (ARRAY( \
             SELECT ctid FROM telemetry WHERE at < $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)) \
         RETURNING tenant, at, kind";
    let statement = client.prepare_cached(SWEEP).await.map_err(sql)?;
    let rows = client.query(&statement, &[&horizon.0, &(limit as i64)]).await.map_err(sql)?;
    let mut missed: BTreeMap<String, (u64, i64)> = BTreeMap::new();
    for row in &rows {
        let (at, kind): (i64, &str) = (row.try_get(1).map_err(sql)?, row.try_get(2).map_err(sql)?);
        if kind != DROPPED {
            let of_tenant = missed.entry(row.try_get(0).map_err(sql)?).or_insert((0, at));
            *of_tenant = (of_tenant.0 + 1, of_tenant.1.min(at));
        }
    }
    let told = missed.into_iter().filter_map(|(tenant, (count, oldest))| {
        let tenant = TenantName::new(&tenant).ok()?;
        Some(telemetry::dropped(tenant, count, "aged_out", Timestamp(oldest), now))
    });
    Ok((rows.len(), told.collect()))
}
