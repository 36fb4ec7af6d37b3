//! Support for consumers with SQLite: one effect for each message ([`Claims`]), and the seen-store
//! ([`seen`]).
//!
//! The functions block, as SQLite does. From async code, call them through [`Database::run`].

mod claims;
mod database;
pub mod seen;

pub use claims::Claims;
pub use database::Database;
/// The version of the driver that the SDK uses.
pub use rusqlite;

use crate::once::OnceError;

/// Rows that one transaction deletes at most, so that other writers can run in between.
const CLEANUP_ROWS: usize = snavio_model::bounds::SWEEP_ROWS_MAX;

fn failed(error: rusqlite::Error) -> OnceError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseBusy) => OnceError::Busy(error.into()),
        _ => OnceError::Database(error.into()),
    }
}

/// Repeats a statement that deletes at most [`CLEANUP_ROWS`] rows until no row is left. Returns the number of
/// deleted rows.
fn delete_all(mut delete: impl FnMut() -> rusqlite::Result<usize>) -> Result<usize, OnceError> {
    let mut deleted = 0;
    loop {
        let rows = delete().map_err(failed)?;
        deleted += rows;
        if rows < CLEANUP_ROWS {
            return Ok(deleted);
        }
    }
}
