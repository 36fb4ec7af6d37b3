//! Support for consumers with PostgreSQL: one effect for each message ([`Claims`]), and the seen-store
//! ([`seen`]).
//!
//! The functions take a connection of the consumer, or of its pool.

mod claims;
pub mod seen;

pub use claims::Claims;
/// The version of the driver that the SDK uses.
pub use tokio_postgres;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::once::OnceError;

/// Rows that one transaction deletes at most, so that other writers can run in between.
const CLEANUP_ROWS: i64 = snavio_model::bounds::SWEEP_ROWS_MAX as i64;

fn failed(error: tokio_postgres::Error) -> OnceError {
    match error.code() {
        Some(&SqlState::LOCK_NOT_AVAILABLE) => OnceError::Busy(error.into()),
        _ => OnceError::Database(error.into()),
    }
}

/// Creates a table. Concurrent calls wait for each other, because `IF NOT EXISTS` alone would fail in a race.
async fn create(client: &mut Client, sql: &str) -> Result<(), OnceError> {
    let transaction = client.transaction().await.map_err(failed)?;
    let lock = "SELECT pg_advisory_xact_lock(hashtext('snavio consumer tables'))";
    transaction.batch_execute(lock).await.map_err(failed)?;
    transaction.batch_execute(sql).await.map_err(failed)?;
    transaction.commit().await.map_err(failed)
}
