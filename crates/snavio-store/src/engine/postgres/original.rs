//! What ids mean: table `original`, keyed by id and tenant.
//!
//! `check_value` is the CRC-32 of every other column but the message's number, plus that number (QUA-1).

use foldhash::{HashMap, HashMapExt};
use snavio_model::archive::hold::InForce;
use snavio_model::bounds;
use snavio_model::claim::{IdKey, Original};
use snavio_model::hash::{DomainHash, HASH_VERSION};
use snavio_model::id::Serial;
use snavio_model::name::ServiceName;
use snavio_model::settle::{self, Intake, Known};
use snavio_model::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::client::GenericClient;
use super::pool::{Trouble, sql};
use crate::StoreError;
use crate::engine::expiry::{Walk, keeps_meaning};
use crate::record::check_value::{alert, of_original};

/// Reads what ids mean.
pub(super) const FIND: &str = "SELECT key.place, source, message, hash, expires_at, check_value, hash_version \
     FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS key (id, tenant, place) \
     JOIN original USING (id, tenant)";

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

/// Makes what ids mean last longer, or writes it where it was known by a claim alone. Whatever else they mean by now
/// stands: then the batch must be judged again.
pub(super) async fn lengthen(
    client: &impl GenericClient,
    lengthened: &[(IdKey, Original)],
) -> Result<(), Trouble> {
    const LENGTHEN: &str = "ON CONFLICT (id, tenant) DO UPDATE \
             SET expires_at = excluded.expires_at, check_value = excluded.check_value \
         WHERE original.message = excluded.message AND original.expires_at < excluded.expires_at";
    if lengthened.is_empty() {
        return Ok(());
    }
    let mut columns = Columns::default();
    lengthened.iter().for_each(|(key, original)| columns.push(key, original));
    let lengthen = format!("{} {LENGTHEN}", insertion(1, "", "0"));
    let statement = client.prepare_cached(&lengthen).await.map_err(Trouble::of)?;
    let done = client.execute(&statement, &columns.values()).await.map_err(Trouble::of)?;
    if done == lengthened.len() as u64 { Ok(()) } else { Err(Trouble::Taken) }
}

/// Reads what the ids of a batch mean, where contents are compared, whether their time is over or not.
pub(super) async fn find(
    client: &impl GenericClient,
    batch: &[Intake],
) -> Result<HashMap<IdKey, Option<Known>>, Trouble> {
    let mut found = HashMap::new();
    let keys: Vec<_> = batch.iter().filter_map(settle::id_key).collect();
    if keys.is_empty() {
        return Ok(found);
    }
    let (ids, tenants): (Vec<_>, Vec<_>) = keys.iter().map(|it| (it.id.as_str(), it.tenant.as_str())).unzip();
    let statement = client.prepare_cached(FIND).await.map_err(Trouble::of)?;
    let rows = client.query(&statement, &[&ids, &tenants]).await.map_err(Trouble::of)?;
    for row in &rows {
        let place: i64 = row.try_get(0).map_err(Trouble::of)?;
        let Some(key) = usize::try_from(place - 1).ok().and_then(|place| keys.get(place)) else { continue };
        let original = read(row, key).map_err(Trouble::of)?;
        if original.is_none() {
            alert(&StoreError::Damaged { what: "original", key: key.id.to_string() });
        }
        found.insert(key.clone(), original.map(|original| Known { original, is_new: false }));
    }
    Ok(found)
}

/// Deletes what ids mean whose time is over, so that it is in nobody's way; what somebody is at is cleared by them.
pub(super) async fn clear(
    client: &impl GenericClient,
    over: &[IdKey],
    now: Timestamp,
) -> Result<(), Trouble> {
    const CLEAR: &str = "DELETE FROM original WHERE ctid = ANY (ARRAY( \
         SELECT original.ctid FROM original JOIN unnest($1::text[], $2::text[]) AS key (id, tenant) \
             USING (id, tenant) \
         WHERE original.expires_at <= $3 FOR UPDATE OF original SKIP LOCKED))";
    let (ids, tenants): (Vec<_>, Vec<_>) = over.iter().map(|it| (it.id.as_str(), it.tenant.as_str())).unzip();
    let statement = client.prepare_cached(CLEAR).await.map_err(Trouble::of)?;
    client.execute(&statement, &[&ids, &tenants, &now.0]).await.map(|_| ()).map_err(Trouble::of)
}

/// What ids mean, whether their time is over or not; damaged ones are told of and left out.
pub(super) async fn of_ids(
    client: &impl GenericClient,
    ids: &[IdKey],
) -> Result<HashMap<IdKey, Original>, StoreError> {
    let (names, tenants): (Vec<_>, Vec<_>) =
        ids.iter().map(|it| (it.id.as_str(), it.tenant.as_str())).unzip();
    let statement = client.prepare_cached(FIND).await.map_err(sql)?;
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

/// Looks at up to `limit` whose time is over, where it was before, and deletes them; those that somebody is at are left
/// for another time, and those of claims that need them or are held. Within a transaction.
pub(super) async fn sweep(
    client: &impl GenericClient,
    walk: &mut Walk,
    holds: &InForce,
    now: Timestamp,
    limit: usize,
) -> Result<usize, StoreError> {
    // Where something is held, every claim that is still there is.
    let keeps = match holds.is_empty() {
        true => keeps_meaning("$2"),
        false => "true".to_owned(),
    };
    let over = format!(
        "SELECT id, tenant, expires_at, EXISTS (SELECT FROM claim WHERE claim.id = original.id \
             AND claim.tenant = original.tenant AND {keeps}) \
         FROM original WHERE expires_at >= $1 AND expires_at <= $2 ORDER BY expires_at LIMIT $3 OFFSET $4 \
         FOR UPDATE SKIP LOCKED"
    );
    const DELETE: &str = "DELETE FROM original USING unnest($1::text[], $2::text[]) AS old (id, tenant) \
         WHERE original.id = old.id AND original.tenant = old.tenant";
    let before = now.minus(bounds::CLAIM_KEEP_SLACK);
    let (from, behind) = walk.from(holds, now);
    let statement = client.prepare_cached(&over).await.map_err(sql)?;
    let values: [&(dyn ToSql + Sync); 4] = [&from, &before.0, &(limit as i64), &behind];
    let rows = client.query(&statement, &values).await.map_err(sql)?;
    let (mut passed, mut ids, mut tenants) = (Vec::new(), Vec::new(), Vec::new());
    for row in &rows {
        let (expires_at, stays): (i64, bool) = (row.try_get(2).map_err(sql)?, row.try_get(3).map_err(sql)?);
        passed.push((expires_at, stays));
        if !stays {
            ids.push(row.try_get::<_, &str>(0).map_err(sql)?);
            tenants.push(row.try_get::<_, &str>(1).map_err(sql)?);
        }
    }
    walk.passed(passed, limit);
    if !ids.is_empty() {
        let statement = client.prepare_cached(DELETE).await.map_err(sql)?;
        client.execute(&statement, &[&ids, &tenants]).await.map_err(sql)?;
    }
    Ok(ids.len())
}
