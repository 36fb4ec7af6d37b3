//! A consumer whose database is SQLite: effects once ([`Claims`]), and the seen-store ([`seen`]).
//!
//! Calls block, as SQLite does. [`Database::run`] makes them from async code, on a thread that may wait.

mod claims;
mod database;
pub mod seen;

pub use claims::Claims;
pub use database::Database;
/// The version that the library was built with.
pub use rusqlite;

use crate::once::OnceError;

/// Rows that one transaction deletes: others write in between.
const CLEANUP_ROWS: usize = snavio_model::bounds::SWEEP_ROWS_MAX;

fn failed(error: rusqlite::Error) -> OnceError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseBusy) => OnceError::Busy(error.into()),
        _ => OnceError::Database(error.into()),
    }
}

/// Deletes by a statement that takes at most [`CLEANUP_ROWS`], until nothing is left to delete, and counts.
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
