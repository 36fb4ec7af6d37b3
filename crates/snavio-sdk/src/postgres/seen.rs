//! The seen-store of the Python reference: the table `seen_events`. An existing table of the Python reference
//! works, too.
//!
//! Check, effect and mark are three separate steps here. A crash after the effect and before the mark makes
//! the effect run again. If that matters, use [`Claims::once`](super::Claims::once), or call these functions
//! in the transaction of the effect.

use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient};

use super::{CLEANUP_ROWS, create, failed};
use crate::once::{OnceError, check_id, seen_text};

/// The statements that create the table.
pub const SQL: &str = include_str!("seen.sql");

/// Creates the table and its index by age if they do not exist.
pub async fn create_table(client: &mut Client) -> Result<(), OnceError> {
    create(client, SQL).await
}

/// Returns true if the event is marked as seen.
pub async fn is_duplicate(client: &impl GenericClient, event_id: &str) -> Result<bool, OnceError> {
    let select = "SELECT 1 FROM seen_events WHERE event_id = $1";
    let found = client.query_typed(select, &[(&check_id(event_id)?, Type::TEXT)]).await;
    Ok(!found.map_err(failed)?.is_empty())
}

/// Marks the event as seen now. Returns true if this is the first time; of several concurrent calls one
/// returns true.
pub async fn mark_seen(client: &impl GenericClient, event_id: &str) -> Result<bool, OnceError> {
    let (event_id, seen) = (check_id(event_id)?, seen_text(Duration::ZERO));
    let insert = "INSERT INTO seen_events (event_id, first_seen_ts, last_seen_ts) VALUES ($1, $2, $2)
        ON CONFLICT DO NOTHING RETURNING 1";
    let update = "UPDATE seen_events SET last_seen_ts = $2 WHERE event_id = $1";
    let inserted = client.query_typed(insert, &[(&event_id, Type::TEXT), (&seen, Type::TEXT)]).await;
    if !inserted.map_err(failed)?.is_empty() {
        return Ok(true);
    }
    client.query_typed(update, &[(&event_id, Type::TEXT), (&seen, Type::TEXT)]).await.map_err(failed)?;
    Ok(false)
}

/// Deletes events that were last seen longer ago than `older_than`, a bounded number of rows at a time.
/// Returns the number of deleted events.
pub async fn cleanup(client: &impl GenericClient, older_than: Duration) -> Result<u64, OnceError> {
    let before = seen_text(older_than);
    let delete = "DELETE FROM seen_events WHERE event_id IN
        (SELECT event_id FROM seen_events WHERE last_seen_ts < $1 LIMIT $2) RETURNING 1";
    let mut deleted = 0;
    loop {
        let rows = client.query_typed(delete, &[(&before, Type::TEXT), (&CLEANUP_ROWS, Type::INT8)]).await;
        let rows = rows.map_err(failed)?.len() as u64;
        deleted += rows;
        if rows < CLEANUP_ROWS.unsigned_abs() {
            return Ok(deleted);
        }
    }
}
