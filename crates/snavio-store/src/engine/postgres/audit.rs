//! What people did: table `audit`, append-only.
//!
//! `check_value` is the CRC-32 of every other column but the number, plus the number (QUA-1).

use async_trait::async_trait;
use snavio_model::id::Serial;
use snavio_model::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::PostgresStore;
use super::client::GenericClient;
use super::horizon::{BLOCK, BLOCK_NUMBERS};
use super::pool::sql;
use crate::record::check_value::{Check, usable};
use crate::{Act, Audit, AuditEntry, Deed, StoreError};

#[async_trait]
impl Audit for PostgresStore {
    async fn put_on_record(&self, act: Act, deed: Deed) -> Result<(), StoreError> {
        self.within(async { append(&self.client().await?, &act, &[deed]).await }).await
    }
}

pub(super) async fn append(client: &impl GenericClient, act: &Act, deeds: &[Deed]) -> Result<(), StoreError> {
    let insert = format!(
        "WITH block AS MATERIALIZED ({BLOCK}) \
         INSERT INTO audit (seq, at, who, why, action, object, outcome, check_value) \
         SELECT base + place, $1, $2, $3, action, object, outcome, check_value + base + place \
         FROM block, unnest($4::text[], $5::text[], $6::text[], $7::bigint[]) WITH ORDINALITY \
             AS new (action, object, outcome, check_value, place)"
    );
    let statement = client.prepare_cached(&insert).await.map_err(sql)?;
    for deeds in deeds.chunks(BLOCK_NUMBERS - 1) {
        let actions: Vec<_> = deeds.iter().map(|it| it.action).collect();
        let objects: Vec<_> = deeds.iter().map(|it| it.object.as_str()).collect();
        let outcomes: Vec<_> = deeds.iter().map(|it| it.outcome.as_str()).collect();
        let checks: Vec<_> =
            deeds.iter().map(|it| check_value(act, it.action, &it.object, &it.outcome)).collect();
        let values: [&(dyn ToSql + Sync); 7] =
            [&act.at.0, &act.who, &act.why, &actions, &objects, &outcomes, &checks];
        client.execute(&statement, &values).await.map_err(sql)?;
    }
    Ok(())
}

/// Writes entries that have their numbers already.
pub(super) async fn insert(client: &impl GenericClient, entries: &[AuditEntry]) -> Result<(), StoreError> {
    const INSERT: &str = "INSERT INTO audit (seq, at, who, why, action, object, outcome, check_value) \
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], \
             $7::text[], $8::bigint[])";
    let numbers: Vec<_> = entries.iter().map(|it| it.number.0).collect();
    let times: Vec<_> = entries.iter().map(|it| it.act.at.0).collect();
    let who: Vec<_> = entries.iter().map(|it| it.act.who.as_str()).collect();
    let why: Vec<_> = entries.iter().map(|it| it.act.why.as_str()).collect();
    let actions: Vec<_> = entries.iter().map(|it| it.action.as_str()).collect();
    let objects: Vec<_> = entries.iter().map(|it| it.object.as_str()).collect();
    let outcomes: Vec<_> = entries.iter().map(|it| it.outcome.as_str()).collect();
    let check = |it: &AuditEntry| check_value(&it.act, &it.action, &it.object, &it.outcome) + it.number.0;
    let checks: Vec<_> = entries.iter().map(check).collect();
    let values: [&(dyn ToSql + Sync); 8] =
        [&numbers, &times, &who, &why, &actions, &objects, &outcomes, &checks];
    let statement = client.prepare_cached(INSERT).await.map_err(sql)?;
    client.execute(&statement, &values).await.map(|_| ()).map_err(sql)
}

/// Entries after a number and up to another; damaged ones are told of, left out and not counted.
pub(super) async fn page(
    client: &impl GenericClient,
    after: Serial,
    up_to: i64,
    limit: usize,
) -> Result<Vec<AuditEntry>, StoreError> {
    const PAGE: &str = "SELECT seq, at, who, why, action, object, outcome, check_value FROM audit \
         WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3";
    let statement = client.prepare_cached(PAGE).await.map_err(sql)?;
    let mut after = after.0;
    let mut found = Vec::new();
    while found.len() < limit {
        let most = (limit - found.len()) as i64;
        let rows = client.query(&statement, &[&after, &up_to, &most]).await.map_err(sql)?;
        let Some(last) = rows.last() else { break };
        after = last.try_get(0).map_err(sql)?;
        for row in &rows {
            found.extend(usable(read(row))?);
        }
        if (rows.len() as i64) < most {
            break;
        }
    }
    Ok(found)
}

fn read(row: &Row) -> Result<AuditEntry, StoreError> {
    let (entry, check) = fields(row).map_err(sql)?;
    let computed = check_value(&entry.act, &entry.action, &entry.object, &entry.outcome);
    if check != computed.wrapping_add(entry.number.0) {
        return Err(StoreError::Damaged { what: "audit entry", key: entry.number.to_string() });
    }
    Ok(entry)
}

fn fields(row: &Row) -> Result<(AuditEntry, i64), tokio_postgres::Error> {
    let entry = AuditEntry {
        number: Serial(row.try_get(0)?),
        act: Act { at: Timestamp(row.try_get(1)?), who: row.try_get(2)?, why: row.try_get(3)? },
        action: row.try_get(4)?,
        object: row.try_get(5)?,
        outcome: row.try_get(6)?,
    };
    Ok((entry, row.try_get(7)?))
}

pub(super) fn check_value(act: &Act, action: &str, object: &str, outcome: &str) -> i64 {
    let mut check = Check::default();
    check.number(act.at.0);
    for text in [&act.who, &act.why, action, object, outcome] {
        check.bytes(text.as_bytes());
    }
    check.value()
}
