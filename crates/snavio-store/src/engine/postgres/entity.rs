//! What is known of entities whose messages are ordered: table `entity`, keyed by tenant, scope and entity as one text (ORD-2).
//!
//! A state is read, judged and written under a lock of its key that lasts as long as the transaction: an entity that is not
//! there yet has no row to lock. Whoever needs several takes them in the order of their locks.

use foldhash::{HashMap, HashSet};
use snavio_model::ordering::{EntityKey, EntityRecord};
use snavio_model::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::client::GenericClient;
use super::pool::{Trouble, sql};
use crate::StoreError;
use crate::record::check_value::{alert, of_entity};

/// Keeps entities from others: whoever needs several takes them in one order.
pub(super) const LOCK: &str = "SELECT pg_advisory_xact_lock(key) FROM ( \
     SELECT DISTINCT hashtextextended(lane, 7) AS key FROM unnest($1::text[]) AS lane ORDER BY key OFFSET 0) AS keys";
/// Reads what is known of entities.
pub(super) const FIND: &str = "SELECT lane, body, check_value FROM entity WHERE lane = ANY ($1)";
/// Writes what is known of entities.
pub(super) const PUT: &str = "INSERT INTO entity (lane, body, expires_at, wait_ends_at, parked_at, check_value) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) \
     ON CONFLICT (lane) DO UPDATE SET body = excluded.body, expires_at = excluded.expires_at, \
         wait_ends_at = excluded.wait_ends_at, parked_at = excluded.parked_at, check_value = excluded.check_value";

/// What was found under some keys.
#[derive(Default)]
pub(super) struct Found {
    pub(super) records: HashMap<EntityKey, EntityRecord>,
    /// Those that cannot be trusted.
    pub(super) unreadable: HashSet<EntityKey>,
}

/// Keeps entities from others until the transaction ends.
pub(super) async fn lock<'a>(
    client: &impl GenericClient,
    keys: impl Iterator<Item = &'a EntityKey>,
) -> Result<(), Trouble> {
    let lanes: Vec<_> = keys.map(EntityKey::to_text).collect();
    let statement = client.prepare_cached(LOCK).await.map_err(Trouble::of)?;
    client.query(&statement, &[&lanes]).await.map(|_| ()).map_err(Trouble::of)
}

/// What is known of entities; what is damaged is told of.
pub(super) async fn find<'a>(
    client: &impl GenericClient,
    keys: impl Iterator<Item = &'a EntityKey>,
) -> Result<Found, Trouble> {
    let lanes: Vec<_> = keys.map(EntityKey::to_text).collect();
    let mut found = Found::default();
    if lanes.is_empty() {
        return Ok(found);
    }
    let statement = client.prepare_cached(FIND).await.map_err(Trouble::of)?;
    for row in &client.query(&statement, &[&lanes]).await.map_err(Trouble::of)? {
        match read(row) {
            Ok((key, record)) => drop(found.records.insert(key, record)),
            Err(damaged @ StoreError::Damaged { .. }) => {
                alert(&damaged);
                let key = EntityKey::stored(row.try_get(0).map_err(Trouble::of)?);
                found.unreadable.extend(key);
            }
            Err(error) => return Err(Trouble::Refused(error)),
        }
    }
    Ok(found)
}

/// What is known of an entity.
pub(super) async fn find_one(
    client: &impl GenericClient,
    key: &EntityKey,
) -> Result<Option<EntityRecord>, StoreError> {
    const FIND: &str = "SELECT lane, body, check_value FROM entity WHERE lane = $1";
    let statement = client.prepare_cached(FIND).await.map_err(sql)?;
    let row = client.query_opt(&statement, &[&key.to_text()]).await.map_err(sql)?;
    Ok(row.as_ref().map(read).transpose()?.map(|(_, record)| record))
}

/// Writes what is known of entities from now on.
pub(super) async fn put<'a>(
    client: &impl GenericClient,
    entities: impl Iterator<Item = (&'a EntityKey, &'a EntityRecord)>,
) -> Result<(), Trouble> {
    let entities: Vec<_> = entities.collect();
    if entities.is_empty() {
        return Ok(());
    }
    let lanes: Vec<_> = entities.iter().map(|(key, _)| key.to_text()).collect();
    let bodies: Vec<_> = entities.iter().map(|(_, it)| it.to_text()).collect();
    let ends: Vec<_> = entities.iter().map(|(_, it)| it.state.expires_at.0).collect();
    let waits: Vec<_> = entities.iter().map(|(_, it)| it.state.wait_ends_at().map(|at| at.0)).collect();
    let parked: Vec<_> = entities.iter().map(|(_, it)| it.state.parked_at()).collect();
    let checks: Vec<_> = entities.iter().zip(&bodies).map(|((key, _), body)| of_entity(key, body)).collect();
    let values: [&(dyn ToSql + Sync); 6] = [&lanes, &bodies, &ends, &waits, &parked, &checks];
    let statement = client.prepare_cached(PUT).await.map_err(Trouble::of)?;
    client.execute(&statement, &values).await.map(|_| ()).map_err(Trouble::of)
}

/// Parks one behind a number of which nothing else can be read.
pub(super) async fn park_unread(
    client: &impl GenericClient,
    key: &EntityKey,
    number: i64,
) -> Result<(), StoreError> {
    const PARK: &str = "UPDATE entity SET parked_at = least(parked_at, $2) WHERE lane = $1";
    let statement = client.prepare_cached(PARK).await.map_err(sql)?;
    client.execute(&statement, &[&key.to_text(), &number]).await.map(|_| ()).map_err(sql)
}

pub(super) async fn delete(client: &impl GenericClient, key: &EntityKey) -> Result<(), StoreError> {
    let statement = client.prepare_cached("DELETE FROM entity WHERE lane = $1").await.map_err(sql)?;
    client.execute(&statement, &[&key.to_text()]).await.map(|_| ()).map_err(sql)
}

/// Some of those in which a wait is over, by their keys only: they are to be read under their locks.
pub(super) async fn overdue(
    client: &impl GenericClient,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<EntityKey>, StoreError> {
    const OVERDUE: &str = "SELECT lane FROM entity WHERE wait_ends_at <= $1 ORDER BY wait_ends_at LIMIT $2";
    let statement = client.prepare_cached(OVERDUE).await.map_err(sql)?;
    let rows = client.query(&statement, &[&now.0, &(limit as i64)]).await.map_err(sql)?;
    let lanes =
        rows.iter().map(|row| row.try_get::<_, &str>(0)).collect::<Result<Vec<_>, _>>().map_err(sql)?;
    Ok(lanes.into_iter().filter_map(EntityKey::stored).collect())
}

/// Deletes some of those of which nothing is known any more, and says how many.
pub(super) async fn sweep(
    client: &impl GenericClient,
    now: Timestamp,
    limit: usize,
) -> Result<usize, StoreError> {
    // Whoever goes on with one meanwhile has written it anew: then the row is not what was found.
    const SWEEP: &str = "DELETE FROM entity WHERE lane = ANY (ARRAY( \
             SELECT lane FROM entity WHERE expires_at <= $1 AND wait_ends_at IS NULL AND parked_at IS NULL \
             ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)) \
         AND expires_at <= $1 AND wait_ends_at IS NULL AND parked_at IS NULL";
    let statement = client.prepare_cached(SWEEP).await.map_err(sql)?;
    let swept = client.execute(&statement, &[&now.0, &(limit as i64)]).await.map_err(sql)?;
    Ok(usize::try_from(swept).unwrap_or(usize::MAX))
}

fn read(row: &Row) -> Result<(EntityKey, EntityRecord), StoreError> {
    let (lane, body): (&str, &str) = (row.try_get(0).map_err(sql)?, row.try_get(1).map_err(sql)?);
    let damaged = || StoreError::Damaged { what: "entity", key: lane.to_owned() };
    let key = EntityKey::stored(lane).ok_or_else(damaged)?;
    let check: i64 = row.try_get(2).map_err(sql)?;
    let record = EntityRecord::stored(body).filter(|_| check == of_entity(&key, body));
    Ok((key, record.ok_or_else(damaged)?))
}

#[cfg(test)]
mod tests {
    use snavio_model::ordering::Mode;
    use snavio_model::settle::Outcome;
    use snavio_testbed::Postgres;

    use super::*;
    use crate::Store;
    use crate::conformance::ordering::{numbered, ordered};
    use crate::conformance::samples::{at, settle};
    use crate::engine::postgres::{Options, PostgresStore};

    /// ORD-2, ENG-7: a node that vanishes between two statements leaves its entities before what waits for them is given up.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_a_vanished_node_kept_is_settled_by_the_others() {
        let url = Postgres::shared().database().expect("PostgreSQL starts");
        let open = async || PostgresStore::open(&Options::new(url.as_str())).await.expect("it opens");
        let (vanished, other) = (open().await, open().await);
        let batch = vec![numbered("e-1", "e", 1, &[ordered("strict", Mode::Strict, |_| {})], at(0))];
        let mut client = vanished.inner.pool.get_kept().await.expect("it connects");
        let transaction = client.transaction().await.expect("it begins");
        lock(&transaction, batch[0].entities()).await.expect("it locks");
        let settled = settle(&other, batch, at(0)).await;
        assert!(matches!(settled[0].outcomes[..], [Outcome::Queued { .. }]), "{settled:?}");
        assert!(transaction.commit().await.is_err(), "the server has ended it, not we");
        drop(client);
        vanished.close().await;
        other.close().await;
    }
}
