//! Objects of the archive: table `segment`, keyed by the object; begun, loose, kept and ending.

use std::collections::HashSet;

use snavio_model::archive::Pointer;
use snavio_model::time::Timestamp;
use tokio_postgres::types::ToSql;

use super::client::{Client, GenericClient};
use super::pool::sql;
use crate::StoreError;
use crate::api::archive::{BEGUN_MAX, NewSegment, SegmentRow, count_of, objects_of, records_of, standing};

/// Notes that one is about to be written, unless it is being deleted.
pub(super) async fn begin(
    client: &impl GenericClient,
    segment: &NewSegment,
    now: Timestamp,
) -> Result<bool, StoreError> {
    const BEGIN: &str = "INSERT INTO segment (object, state, begun_at, records, expires_at) VALUES ($1, 0, $2, $3, $4) \
         ON CONFLICT (object) DO UPDATE SET begun_at = greatest(segment.begun_at, excluded.begun_at), \
             expires_at = greatest(segment.expires_at, excluded.expires_at) WHERE segment.state <> 2";
    let records = segment.records as i64;
    let values: [&(dyn ToSql + Sync); 4] = [&segment.object, &now.0, &records, &segment.expires_at.0];
    Ok(client.execute(BEGIN, &values).await.map_err(sql)? == 1)
}

/// Claims point to something in it from now on. False if it is not there to be pointed to.
pub(super) async fn keep(client: &impl GenericClient, object: &str) -> Result<bool, StoreError> {
    const KEEP: &str = "UPDATE segment SET state = 3 WHERE object = $1 AND state <> 2";
    Ok(client.execute(KEEP, &[&object]).await.map_err(sql)? == 1)
}

/// Writes where it stands by how much of it is pointed to, and says so.
async fn settle(client: &mut Client, object: &str) -> Result<i16, StoreError> {
    let transaction = client.transaction().await.map_err(sql)?;
    lock(&transaction, &[object]).await?;
    let state = settle_locked(&transaction, object).await?;
    transaction.commit().await.map_err(sql)?;
    Ok(state)
}

async fn settle_locked(client: &impl GenericClient, object: &str) -> Result<i16, StoreError> {
    const FIND: &str = "SELECT state, records FROM segment WHERE object = $1 AND state <> 2";
    const SETTLE: &str = "UPDATE segment SET state = $2 WHERE object = $1";
    let Some(row) = client.query_opt(FIND, &[&object]).await.map_err(sql)? else { return Ok(2) };
    let (state, records): (i16, i64) = (row.try_get(0).map_err(sql)?, row.try_get(1).map_err(sql)?);
    let stands = standing(count_of(beside(client, object).await?), records);
    if stands != state {
        client.execute(SETTLE, &[&object, &stands]).await.map_err(sql)?;
    }
    Ok(stands)
}

/// The same of one whose object was just written: without a row nobody would know of it.
pub(super) async fn settle_written(
    client: &mut Client,
    object: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    const ADOPT: &str = "INSERT INTO segment (object, state, begun_at, records, expires_at) VALUES ($1, 0, $2, 0, $2) \
         ON CONFLICT (object) DO NOTHING";
    client.execute(ADOPT, &[&object, &now.0]).await.map_err(sql)?;
    settle(client, object).await.map(|_| ())
}

/// Whoever points to something in a segment, or settles one, has its row first: nobody else points to it meanwhile.
pub(super) async fn lock(client: &impl GenericClient, objects: &[&str]) -> Result<(), StoreError> {
    const LOCK: &str = "SELECT object FROM segment WHERE object = ANY ($1) ORDER BY object FOR UPDATE";
    client.query(LOCK, &[&objects]).await.map(|_| ()).map_err(sql)
}

/// What stands beside the claims that point to something in it.
async fn beside(client: &impl GenericClient, object: &str) -> Result<Vec<String>, StoreError> {
    const BESIDE: &str =
        "SELECT archive FROM claim WHERE archive >= $1::text || '#' AND archive < $1::text || '$'";
    let statement = client.prepare_cached(BESIDE).await.map_err(sql)?;
    let rows = client.query(&statement, &[&object]).await.map_err(sql)?;
    rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(sql)
}

/// The records in it that claims point to.
pub(super) async fn pointed(
    client: &impl GenericClient,
    object: &str,
) -> Result<HashSet<Pointer>, StoreError> {
    records_of(beside(client, object).await?)
}

/// Points claims to where their records are now, and the old segments end. False, and nothing is done, if one of the new
/// ones is not there to be pointed to, or something of an old one was left out. All of them are locked.
pub(super) async fn repoint(
    client: &impl GenericClient,
    rewritten: &[(Pointer, Pointer)],
) -> Result<bool, StoreError> {
    // What is said of the answer behind the pointer stays.
    const REPOINT: &str = "UPDATE claim SET archive = moved.new || substr(claim.archive, length(moved.old) + 1) \
         FROM unnest($1::text[], $2::text[]) AS moved (old, new) \
         WHERE claim.archive >= moved.old AND claim.archive < moved.old || ';'";
    let left: HashSet<_> = rewritten.iter().map(|(old, _)| old).collect();
    for object in objects_of(rewritten.iter().map(|(old, _)| old)) {
        if pointed(client, object).await?.iter().any(|it| !left.contains(it)) {
            return Ok(false);
        }
    }
    for object in objects_of(rewritten.iter().map(|(_, new)| new)) {
        if !keep(client, object).await? {
            return Ok(false);
        }
    }
    let (old, new): (Vec<_>, Vec<_>) =
        rewritten.iter().map(|(old, new)| (old.to_string(), new.to_string())).unzip();
    client.execute(REPOINT, &[&old, &new]).await.map_err(sql)?;
    for object in objects_of(rewritten.iter().flat_map(|(old, new)| [old, new])) {
        settle_locked(client, object).await?;
    }
    Ok(true)
}

/// Those that are loose, after a key.
pub(super) async fn loose(client: &mut Client, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
    const LOOSE: &str = "SELECT object FROM segment WHERE state <> 1 AND state = 3 AND object > $1 \
         ORDER BY object LIMIT $2";
    let rows = client.query(LOOSE, &[&after, &(limit as i64)]).await.map_err(sql)?;
    let mut found = Vec::new();
    for row in &rows {
        let object: String = row.try_get(0).map_err(sql)?;
        // Whoever moved them may have been interrupted after the last of them.
        if settle(client, &object).await? == 3 {
            found.push(object);
        }
    }
    Ok(found)
}

/// How many are not settled, or are ending.
pub(super) async fn unsettled(client: &impl GenericClient) -> Result<u64, StoreError> {
    const UNSETTLED: &str = "SELECT count(*) FROM segment WHERE state <> 1";
    let row = client.query_one(UNSETTLED, &[]).await.map_err(sql)?;
    row.try_get::<_, i64>(0).map(i64::unsigned_abs).map_err(sql)
}

pub(super) async fn is_ending(client: &impl GenericClient, object: &str) -> Result<bool, StoreError> {
    const ENDING: &str = "SELECT EXISTS (SELECT FROM segment WHERE object = $1 AND state = 2)";
    client.query_one(ENDING, &[&object]).await.and_then(|row| row.try_get(0)).map_err(sql)
}

/// Those that are ending, after a key, with what begins to end now: nothing points to it, and its time is over. Whoever is
/// about to point to one holds its row.
pub(super) async fn spent(
    client: &impl GenericClient,
    after: &str,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<String>, StoreError> {
    const UNPOINTED: &str =
        "NOT EXISTS (SELECT FROM claim WHERE archive >= object || '#' AND archive < object || '$')";
    let over = format!(
        "UPDATE segment SET state = 2 WHERE object = ANY (ARRAY(SELECT object FROM segment \
         WHERE (expires_at <= $1 OR state <> 1 AND state = 0) AND state <> 2 AND begun_at <= $2 AND {UNPOINTED} \
         LIMIT $3 FOR UPDATE SKIP LOCKED))"
    );
    const ENDING: &str = "SELECT object FROM segment WHERE state <> 1 AND state = 2 AND object > $1 \
         ORDER BY object LIMIT $2";
    let (limit, begun) = (limit as i64, now.minus(BEGUN_MAX).0);
    client.execute(&over, &[&now.0, &begun, &limit]).await.map_err(sql)?;
    let rows = client.query(ENDING, &[&after, &limit]).await.map_err(sql)?;
    rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(sql)
}

/// Deletes the row of one whose object is gone.
pub(super) async fn forget(client: &impl GenericClient, object: &str) -> Result<bool, StoreError> {
    const FORGET: &str = "DELETE FROM segment WHERE object = $1 AND state = 2";
    Ok(client.execute(FORGET, &[&object]).await.map_err(sql)? == 1)
}

/// Writes those of another store.
pub(super) async fn insert(client: &impl GenericClient, segments: &[SegmentRow]) -> Result<(), StoreError> {
    const INSERT: &str = "INSERT INTO segment (object, state, begun_at, records, expires_at) \
         VALUES ($1, $2, $3, $4, $5)";
    let statement = client.prepare_cached(INSERT).await.map_err(sql)?;
    for it in segments {
        let values: [&(dyn ToSql + Sync); 5] =
            [&it.object, &it.state, &it.begun_at, &it.records, &it.expires_at];
        client.execute(&statement, &values).await.map_err(sql)?;
    }
    Ok(())
}
