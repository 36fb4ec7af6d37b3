//! A consumer whose database is PostgreSQL: effects once ([`Claims`]), and the seen-store ([`seen`]).
//!
//! Calls take a connection of the consumer's, or of its pool.

mod claims;
pub mod seen;

pub use claims::Claims;
/// The version that the library was built with.
pub use tokio_postgres;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::once::OnceError;

/// Rows that one transaction deletes: others write in between.
const CLEANUP_ROWS: i64 = snavio_model::bounds::SWEEP_ROWS_MAX as i64;

fn failed(error: tokio_postgres::Error) -> OnceError {
    match error.code() {
        Some(&SqlState::LOCK_NOT_AVAILABLE) => OnceError::Busy(error.into()),
        _ => OnceError::Database(error.into()),
    }
}

/// Makes a table. Of several that try at once each waits for the one before: `IF NOT EXISTS` alone would fail.
async fn create(client: &mut Client, sql: &str) -> Result<(), OnceError> {
    let transaction = client.transaction().await.map_err(failed)?;
    let lock = "SELECT pg_advisory_xact_lock(hashtext('snavio consumer tables'))";
    transaction.batch_execute(lock).await.map_err(failed)?;
    transaction.batch_execute(sql).await.map_err(failed)?;
    transaction.commit().await.map_err(failed)
}
