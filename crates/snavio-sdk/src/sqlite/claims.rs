//! Claims in the table `snavio_claim`, as `claims.sql` makes it.

use std::time::Duration;

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params};
use snavio_model::name::ConsumerName;

use super::{CLEANUP_ROWS, delete_all, failed};
use crate::Delivery;
use crate::client::now;
use crate::once::{self, BoxError, Claimed, Once, OnceError, Origin, WAIT_MAX};

/// `PRAGMA synchronous` at which a commit is on the disk when it returns, in every journal mode.
const SYNCHRONOUS_EXTRA: i64 = 3;

/// The claims of one consumer. Several may share a database; each has a name of its own.
#[derive(Debug, Clone)]
pub struct Claims {
    consumer: ConsumerName,
}

impl Claims {
    /// The statements that make the table, for consumers who make their tables themselves.
    pub const SQL: &str = include_str!("claims.sql");

    /// The claims of a consumer by its name, which stays the same over restarts and releases.
    pub fn of(consumer: ConsumerName) -> Self {
        Self { consumer }
    }

    /// Makes the table where it is missing.
    pub fn create_table(&self, connection: &Connection) -> Result<(), OnceError> {
        connection.busy_timeout(WAIT_MAX).map_err(failed)?;
        connection.execute_batch(Self::SQL).map_err(failed)
    }

    /// Runs the effect if the message was not done before, and commits it with the claim and the result it leaves.
    ///
    /// The effect must do all its work through the transaction, and must not end it. If it fails or panics, it is
    /// rolled back. The transaction holds the database's only write lock: others wait for up to [`WAIT_MAX`]. What is
    /// acknowledged must be on the disk, so a connection whose `synchronous` is less than `EXTRA` is set to that.
    pub fn once(
        &self,
        connection: &mut Connection,
        delivery: &Delivery,
        effect: impl FnOnce(&Transaction<'_>) -> Result<Option<String>, BoxError>,
    ) -> Result<Once, OnceError> {
        let origin = Origin::of(&delivery.message)?;
        let transaction = begin(connection).map_err(failed)?;
        if !self.claim(&transaction, &origin).map_err(failed)? {
            let there = self.claimed(&transaction, &origin).map_err(failed)?;
            return origin.judge(there);
        }
        let result = effect(&transaction).map_err(OnceError::Effect)?;
        once::check_result(result.as_deref())?;
        // Some errors end a transaction by themselves, and an effect may have passed over one of them.
        if transaction.is_autocommit()
            || !self.complete(&transaction, &origin, result.as_deref()).map_err(failed)?
        {
            return Err(once::left());
        }
        transaction.commit().map_err(not_committed)?;
        Ok(Once::Done(result))
    }

    /// Forgets what was done longer ago than `kept`, which must be at least [`once::KEPT_MIN`], a bounded number of
    /// rows at a time. Says how many.
    pub fn cleanup(&self, connection: &Connection, kept: Duration) -> Result<usize, OnceError> {
        once::check_kept(kept)?;
        let (before, consumer) = (now().minus(kept).0, self.consumer.as_str());
        let delete = "DELETE FROM snavio_claim WHERE (message_id, tenant, consumer) IN
            (SELECT message_id, tenant, consumer FROM snavio_claim WHERE consumer = ?1 AND done_at < ?2 LIMIT ?3)";
        delete_all(|| connection.execute(delete, params![consumer, before, CLEANUP_ROWS as i64]))
    }

    /// Inserts the claim; says whether there was none.
    fn claim(&self, transaction: &Transaction<'_>, origin: &Origin) -> rusqlite::Result<bool> {
        let insert = "INSERT INTO snavio_claim (consumer, tenant, message_id, source, hash, done_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING";
        let (consumer, source) = (self.consumer.as_str(), origin.source.as_str());
        let mut insert = transaction.prepare_cached(insert)?;
        let rows =
            insert.execute(params![consumer, origin.tenant(), origin.id, source, origin.hash, now().0])?;
        Ok(rows == 1)
    }

    fn claimed(&self, transaction: &Transaction<'_>, origin: &Origin) -> rusqlite::Result<Claimed> {
        let select = "SELECT source, hash, result FROM snavio_claim
            WHERE message_id = ?1 AND tenant = ?2 AND consumer = ?3";
        let key = params![origin.id, origin.tenant(), self.consumer.as_str()];
        transaction
            .prepare_cached(select)?
            .query_row(key, |row| Ok(Claimed { source: row.get(0)?, hash: row.get(1)?, result: row.get(2)? }))
    }

    /// Stores the result; says whether the claim is still there.
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

/// Begins with the write lock, on a connection that is as it must be.
fn begin(connection: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    connection.busy_timeout(WAIT_MAX)?;
    if !connection.is_autocommit() {
        // Left behind by a rollback that failed.
        connection.execute_batch("ROLLBACK")?;
    }
    let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
    if synchronous < SYNCHRONOUS_EXTRA {
        connection.pragma_update(None, "synchronous", SYNCHRONOUS_EXTRA)?;
    }
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

/// A commit that was refused was rolled back; of any other failure, a disk's above all, nobody knows.
fn not_committed(error: rusqlite::Error) -> OnceError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::ConstraintViolation) => failed(error),
        _ => OnceError::Unknown(error.into()),
    }
}
