//! What other nodes do is not told to this one: so it looks, as long as somebody here waits for it. One query for
//! all queues that are waited for, and one for all telemetry, each more often the more there is.

use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use super::client::GenericClient;
use super::pool::sql;
use crate::StoreError;

/// Between two looks while they find something,
const OFTEN: Duration = Duration::from_millis(25);
/// and while they find nothing for long.
const SELDOM: Duration = Duration::from_millis(250);

/// Looks for as long as the store is open, for what has come after a number.
pub(super) async fn watch(inner: Arc<Inner>, mut seen: i64) {
    let mut pause = OFTEN;
    loop {
        tokio::time::sleep(pause).await;
        let found = match inner.pool.within(look(&inner, &mut seen)).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "what others did could not be looked at"
                );
                false
            }
        };
        pause = if found { OFTEN } else { (pause + OFTEN).min(SELDOM) };
    }
}

async fn look(inner: &Inner, seen: &mut i64) -> Result<bool, StoreError> {
    let (queues, tenants) = (inner.arrivals.names(), inner.written.names());
    if queues.is_empty() && tenants.is_empty() {
        return Ok(false);
    }
    let client = inner.pool.get().await?;
    let mut found = false;
    if !queues.is_empty() {
        // The order and the statement's time let the index find one, where a queue is empty and others are not.
        const DUE: &str = "SELECT queue FROM unnest($1::text[]) AS awaited (queue), LATERAL ( \
             SELECT FROM delivery WHERE delivery.queue = awaited.queue \
                 AND visible_at <= (extract(epoch FROM statement_timestamp()) * 1000)::bigint \
                 AND receives < receives_max \
             ORDER BY visible_at, id LIMIT 1) AS due";
        let statement = client.prepare_cached(DUE).await.map_err(sql)?;
        for row in &client.query(&statement, &[&queues]).await.map_err(sql)? {
            inner.arrivals.wake_some(row.try_get(0).map_err(sql)?, 1);
            found = true;
        }
    }
    if !tenants.is_empty() {
        // Whose, and not only that there is something: a tenant's flood costs the readers of others nothing.
        const WRITTEN: &str = "SELECT tenant FROM unnest($1::text[]) AS awaited (tenant) WHERE \
             EXISTS (SELECT FROM message WHERE message.tenant = awaited.tenant AND seq > $2 AND seq <= $3) \
             OR EXISTS (SELECT FROM telemetry WHERE telemetry.tenant = awaited.tenant AND seq > $2 AND seq <= $3)";
        let given = inner.horizon.look(&client).await?;
        if given > *seen {
            let statement = client.prepare_cached(WRITTEN).await.map_err(sql)?;
            let rows = client.query(&statement, &[&tenants, &*seen, &given]).await.map_err(sql)?;
            let woken =
                rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<&str>, _>>().map_err(sql)?;
            inner.written.wake(woken);
            *seen = given;
            found = true;
        }
    }
    Ok(found)
}
