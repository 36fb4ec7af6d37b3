//! What ids mean: table `original`, keyed by id and tenant.
//!
//! `check_value` is the CRC-32 of every other column but the message's number, plus that number (QUA-1).

use foldhash::{HashMap, HashMapExt};
use snavio_model::claim::{IdKey, Original};
use snavio_model::hash::{DomainHash, HASH_VERSION};
use snavio_model::id::Serial;
use snavio_model::limits;
use snavio_model::name::ServiceName;
use snavio_model::settle::{self, Intake, Known};
use snavio_model::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::client::GenericClient;
use super::pool::{Trouble, sql};
use crate::StoreError;
use crate::evidence::{alert, of_original};

/// Columns, to be written by one statement.
#[derive(Default)]
pub(super) struct Columns<'a> {
    id: Vec<&'a str>,
    tenant: Vec<&'a str>,
    source: Vec<&'a str>,
    message: Vec<i64>,
    hash: Vec<&'a [u8]>,
    expires_at: Vec<i64>,
    check: Vec<i64>,
}

impl<'a> Columns<'a> {
    pub(super) fn push(&mut self, key: &'a IdKey, original: &'a Original) {
        self.id.push(key.id.as_str());
        self.tenant.push(key.tenant.as_str());
        self.source.push(original.source.as_str());
        self.message.push(original.message.0);
        self.hash.push(&original.hash.0);
        self.expires_at.push(original.expires_at.0);
        self.check.push(of_original(key, original));
    }

    /// In the order of the statement's parameters.
    pub(super) fn values(&self) -> [&(dyn ToSql + Sync); 7] {
        [&self.id, &self.tenant, &self.source, &self.message, &self.hash, &self.expires_at, &self.check]
    }
}

/// A part of a statement that writes them, with numbers counted from `base`; its parameters begin with this one.
pub(super) fn insertion(first: usize, from: &str, base: &str) -> String {
    let at = |place: usize| first + place;
    format!(
        "INSERT INTO original (id, tenant, source, message, hash_version, hash, expires_at, check_value) \
         SELECT id, tenant, source, {base} + message, {HASH_VERSION}, hash, expires_at, \
             check_value + {base} + message \
         FROM {from} unnest(${}::text[], ${}::text[], ${}::text[], ${}::bigint[], ${}::bytea[], ${}::bigint[], \
             ${}::bigint[]) AS new (id, tenant, source, message, hash, expires_at, check_value) \
         ORDER BY id COLLATE \"C\", tenant COLLATE \"C\"",
        at(0),
        at(1),
        at(2),
        at(3),
        at(4),
        at(5),
        at(6)
    )
}

/// Writes those whose messages have their numbers already.
pub(super) async fn insert(
    client: &impl GenericClient,
    originals: &[(IdKey, Original)],
) -> Result<(), StoreError> {
    let mut columns = Columns::default();
    originals.iter().for_each(|(key, original)| columns.push(key, original));
    let statement = client.prepare_cached(&insertion(1, "", "0")).await.map_err(sql)?;
    client.execute(&statement, &columns.values()).await.map(|_| ()).map_err(sql)
}

/// Reads what the ids of a batch mean, where contents are compared, and clears away what does not count any more.
pub(super) async fn find(
    client: &impl GenericClient,
    batch: &[Intake],
    now: Timestamp,
) -> Result<HashMap<IdKey, Option<Known>>, Trouble> {
    const FIND: &str = "SELECT key.place, source, message, hash, expires_at, check_value, hash_version \
         FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS key (id, tenant, place) \
         JOIN original USING (id, tenant)";
    let mut found = HashMap::new();
    let keys: Vec<_> = batch.iter().filter_map(settle::id_key).collect();
    if keys.is_empty() {
        return Ok(found);
    }
    let (ids, tenants): (Vec<_>, Vec<_>) = keys.iter().map(|it| (it.id.as_str(), it.tenant.as_str())).unzip();
    let statement = client.prepare_cached(FIND).await.map_err(Trouble::of)?;
    let rows = client.query(&statement, &[&ids, &tenants]).await.map_err(Trouble::of)?;
    let (mut over_ids, mut over_tenants) = (Vec::new(), Vec::new());
    for row in &rows {
        let place: i64 = row.try_get(0).map_err(Trouble::of)?;
        let Some(key) = usize::try_from(place - 1).ok().and_then(|place| keys.get(place)) else { continue };
        match read(row, key).map_err(Trouble::of)? {
            Some(original) if !original.is_live(now) => {
                over_ids.push(key.id.as_str());
                over_tenants.push(key.tenant.as_str());
            }
            Some(original) => {
                found.insert(key.clone(), Some(Known { original, is_new: false }));
            }
            None => {
                alert(&StoreError::Damaged { what: "original", key: key.id.to_string() });
                found.insert(key.clone(), None);
            }
        }
    }
    if !over_ids.is_empty() {
        const CLEAR: &str = "DELETE FROM original WHERE ctid = ANY (ARRAY( \
             SELECT original.ctid FROM original JOIN unnest($1::text[], $2::text[]) AS key (id, tenant) \
                 USING (id, tenant) \
             WHERE original.expires_at <= $3 AND NOT EXISTS (SELECT FROM claim WHERE claim.id = original.id \
                 AND claim.tenant = original.tenant AND claim.hot_until IS NOT NULL) \
             FOR UPDATE OF original SKIP LOCKED))";
        const KEPT: &str = "SELECT DISTINCT key.place FROM unnest($1::text[], $2::text[]) WITH ORDINALITY \
                 AS key (id, tenant, place) JOIN claim USING (id, tenant) WHERE claim.hot_until IS NOT NULL";
        let statement = client.prepare_cached(CLEAR).await.map_err(Trouble::of)?;
        client.execute(&statement, &[&over_ids, &over_tenants, &now.0]).await.map_err(Trouble::of)?;
        // A claim that is kept for an audit is still there: until it is swept the id cannot mean anything else.
        let statement = client.prepare_cached(KEPT).await.map_err(Trouble::of)?;
        for row in client.query(&statement, &[&over_ids, &over_tenants]).await.map_err(Trouble::of)? {
            let place: i64 = row.try_get(0).map_err(Trouble::of)?;
            let id = usize::try_from(place - 1)
                .ok()
                .and_then(|place| over_ids.get(place).zip(over_tenants.get(place)));
            let key = keys.iter().find(|key| id == Some((&key.id.as_str(), &key.tenant.as_str())));
            found.extend(key.map(|key| (key.clone(), None)));
        }
    }
    Ok(found)
}

/// What ids mean, whether their time is over or not; damaged ones are told of and left out.
pub(super) async fn of_ids(
    client: &impl GenericClient,
    ids: &[IdKey],
) -> Result<HashMap<IdKey, Original>, StoreError> {
    const OF_IDS: &str = "SELECT key.place, source, message, hash, expires_at, check_value, hash_version \
         FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS key (id, tenant, place) \
         JOIN original USING (id, tenant)";
    let (names, tenants): (Vec<_>, Vec<_>) =
        ids.iter().map(|it| (it.id.as_str(), it.tenant.as_str())).unzip();
    let statement = client.prepare_cached(OF_IDS).await.map_err(sql)?;
    let mut found = HashMap::new();
    for row in &client.query(&statement, &[&names, &tenants]).await.map_err(sql)? {
        let place: i64 = row.try_get(0).map_err(sql)?;
        let Some(key) = usize::try_from(place - 1).ok().and_then(|place| ids.get(place)) else { continue };
        match read(row, key).map_err(sql)? {
            Some(original) => drop(found.insert(key.clone(), original)),
            None => alert(&StoreError::Damaged { what: "original", key: key.id.to_string() }),
        }
    }
    Ok(found)
}

/// Reads a row's columns; nothing if it is not as it was written.
fn read(row: &Row, key: &IdKey) -> Result<Option<Original>, tokio_postgres::Error> {
    let Ok(source) = ServiceName::new(row.try_get(1)?) else { return Ok(None) };
    let (hash, version): (&[u8], i32) = (row.try_get(3)?, row.try_get(6)?);
    let hash = hash.try_into().ok().filter(|_| version == i32::from(HASH_VERSION));
    let Some(hash) = hash.map(DomainHash) else { return Ok(None) };
    let (message, expires_at) = (Serial(row.try_get(2)?), Timestamp(row.try_get(4)?));
    let original = Original { source, message, hash, expires_at };
    let check = of_original(key, &original).wrapping_add(original.message.0);
    Ok((check == row.try_get::<_, i64>(5)?).then_some(original))
}

/// Deletes up to `limit` whose time is over; those that somebody is at are left for the next time, and those of claims
/// that are kept for an audit for as long as these are there.
pub(super) async fn sweep(
    client: &impl GenericClient,
    now: Timestamp,
    limit: usize,
) -> Result<usize, StoreError> {
    const SWEEP: &str = "DELETE FROM original WHERE ctid = ANY (ARRAY( \
         SELECT ctid FROM original WHERE expires_at <= $1 AND NOT EXISTS (SELECT FROM claim \
             WHERE claim.id = original.id AND claim.tenant = original.tenant AND claim.hot_until IS NOT NULL) \
         ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))";
    let statement = client.prepare_cached(SWEEP).await.map_err(sql)?;
    let before = now.minus(limits::CLAIM_KEEP_SLACK);
    let swept = client.execute(&statement, &[&before.0, &(limit as i64)]).await.map_err(sql)?;
    Ok(usize::try_from(swept).unwrap_or(usize::MAX))
}
