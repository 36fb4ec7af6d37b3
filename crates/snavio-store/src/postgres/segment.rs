//! Objects of the archive: table `segment`, keyed by the object; begun, kept and ending.

use snavio_model::time::Timestamp;
use tokio_postgres::types::ToSql;

use super::client::GenericClient;
use super::pool::sql;
use crate::StoreError;
use crate::archive::{BEGUN_MAX, NewSegment, SegmentRow};

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

/// Claims point to it from now on. False if it is not there to be pointed to.
pub(super) async fn keep(client: &impl GenericClient, object: &str) -> Result<bool, StoreError> {
    const KEEP: &str = "UPDATE segment SET state = 1 WHERE object = $1 AND state <> 2";
    Ok(client.execute(KEEP, &[&object]).await.map_err(sql)? == 1)
}

/// Nothing points to it any more.
pub(super) async fn end(client: &impl GenericClient, object: &str) -> Result<(), StoreError> {
    const END: &str = "UPDATE segment SET state = 2 WHERE object = $1";
    client.execute(END, &[&object]).await.map(|_| ()).map_err(sql)
}

/// Those that are ending, with what begins to end now: nothing points to it, and its time is over. Whoever is about to
/// point to one holds its row.
pub(super) async fn spent(
    client: &impl GenericClient,
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
    const ENDING: &str =
        "SELECT object FROM segment WHERE state <> 1 AND state = 2 ORDER BY begun_at LIMIT $1";
    let (limit, begun) = (limit as i64, now.minus(BEGUN_MAX).0);
    client.execute(&over, &[&now.0, &begun, &limit]).await.map_err(sql)?;
    let rows = client.query(ENDING, &[&limit]).await.map_err(sql)?;
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
