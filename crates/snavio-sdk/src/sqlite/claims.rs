//! The consumer's claims in the table `snavio_claim` of `claims.sql`.

use std::time::Duration;

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params};
use snavio_model::name::ConsumerName;

use super::{CLEANUP_ROWS, delete_all, failed};
use crate::Delivery;
use crate::client::now;
use crate::once::{self, BoxError, Once, OnceError, Origin, StoredClaim, WAIT_MAX};

/// The `PRAGMA synchronous` level at which a returned commit is on disk, in every journal mode.
const SYNCHRONOUS_EXTRA: i64 = 3;

/// The claims of one consumer. Several consumers may share a database if their names differ.
#[derive(Debug, Clone)]
pub struct Claims {
    consumer: ConsumerName,
}

impl Claims {
    /// The statements that create the table, for programs that create their tables themselves.
    pub const SQL: &str = include_str!("claims.sql");

    /// The claims of the consumer with this name. The name must stay the same over restarts and releases.
    pub fn of(consumer: ConsumerName) -> Self {
        Self { consumer }
    }

    /// Creates the table if it does not exist.
    pub fn create_table(&self, connection: &Connection) -> Result<(), OnceError> {
        connection.busy_timeout(WAIT_MAX).map_err(failed)?;
        connection.execute_batch(Self::SQL).map_err(failed)
    }

    /// Runs the effect if no claim for the message exists, and commits it with the claim and its result.
    ///
    /// The effect must do all its work through the transaction and must not end the transaction. If the
    /// effect fails or panics, the SDK rolls it back. The transaction holds the database's only write lock;
    /// other writers wait up to [`WAIT_MAX`]. The commit must be on disk before the acknowledgement. So if
    /// the connection's `synchronous` level is lower than `EXTRA`, this call sets it to `EXTRA`.
    pub fn once(
        &self,
        connection: &mut Connection,
        delivery: &Delivery,
        effect: impl FnOnce(&Transaction<'_>) -> Result<Option<String>, BoxError>,
    ) -> Result<Once, OnceError> {
        let origin = Origin::of(&delivery.message)?;
        let transaction = begin(connection).map_err(failed)?;
        if !self.claim(&transaction, &origin).map_err(failed)? {
            let stored = self.stored_claim(&transaction, &origin).map_err(failed)?;
            return origin.judge(stored);
        }
        let result = effect(&transaction).map_err(OnceError::Effect)?;
        once::check_result(result.as_deref())?;
        // Some errors end a transaction by themselves, and the effect may have ignored one of them.
        if transaction.is_autocommit()
            || !self.complete(&transaction, &origin, result.as_deref()).map_err(failed)?
        {
            return Err(once::transaction_ended());
        }
        transaction.commit().map_err(not_committed)?;
        Ok(Once::Done(result))
    }

    /// Deletes claims older than `kept`, a bounded number of rows in one transaction. `kept` must be at least
    /// [`once::KEPT_MIN`]. Returns the number of deleted claims.
    pub fn cleanup(&self, connection: &Connection, kept: Duration) -> Result<usize, OnceError> {
        once::check_kept(kept)?;
        let (before, consumer) = (now().minus(kept).0, self.consumer.as_str());
        let delete = "DELETE FROM snavio_claim WHERE (message_id, tenant, consumer) IN
            (SELECT message_id, tenant, consumer FROM snavio_claim WHERE consumer = ?1 AND done_at < ?2 LIMIT ?3)";
        delete_all(|| connection.execute(delete, params![consumer, before, CLEANUP_ROWS as i64]))
    }

    /// Inserts the claim and returns true if none existed.
    fn claim(&self, transaction: &Transaction<'_>, origin: &Origin) -> rusqlite::Result<bool> {
        let insert = "INSERT INTO snavio_claim (consumer, tenant, message_id, source, hash, done_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING";
        let (consumer, source) = (self.consumer.as_str(), origin.source.as_str());
        let mut insert = transaction.prepare_cached(insert)?;
        let rows =
            insert.execute(params![consumer, origin.tenant(), origin.id, source, origin.hash, now().0])?;
        Ok(rows == 1)
    }

    fn stored_claim(&self, transaction: &Transaction<'_>, origin: &Origin) -> rusqlite::Result<StoredClaim> {
        let select = "SELECT source, hash, result FROM snavio_claim
            WHERE message_id = ?1 AND tenant = ?2 AND consumer = ?3";
        let key = params![origin.id, origin.tenant(), self.consumer.as_str()];
        transaction.prepare_cached(select)?.query_row(key, |row| {
            Ok(StoredClaim { source: row.get(0)?, hash: row.get(1)?, result: row.get(2)? })
        })
    }

    /// Stores the result and returns true if the claim still exists.
    fn complete(
        &self,
        transaction: &Transaction<'_>,
        origin: &Origin,
        result: Option<&str>,
    ) -> rusqlite::Result<bool> {
        let update = "UPDATE snavio_claim SET result = ?4
            WHERE message_id = ?1 AND tenant = ?2 AND consumer = ?3";
        let (tenant, consumer) = (origin.tenant(), self.consumer.as_str());
        let rows =
            transaction.prepare_cached(update)?.execute(params![origin.id, tenant, consumer, result])?;
        Ok(rows == 1)
    }
}

/// Begins a transaction with the write lock, and first sets the connection up for it.
fn begin(connection: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    connection.busy_timeout(WAIT_MAX)?;
    if !connection.is_autocommit() {
        // A rollback that failed left a transaction open.
        connection.execute_batch("ROLLBACK")?;
    }
    let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
    if synchronous < SYNCHRONOUS_EXTRA {
        connection.pragma_update(None, "synchronous", SYNCHRONOUS_EXTRA)?;
    }
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

/// The error of a failed commit. If SQLite refused the commit, it rolled the transaction back; in every other
/// case, above all a disk error, the outcome is unknown.
fn not_committed(error: rusqlite::Error) -> OnceError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::ConstraintViolation) => failed(error),
        _ => OnceError::Unknown(error.into()),
    }
}
