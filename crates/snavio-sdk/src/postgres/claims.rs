//! The consumer's claims in the table `snavio_claim` of `claims.sql`.

use std::time::Duration;

use snavio_model::name::ConsumerName;
use tokio_postgres::error::Severity;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Transaction};

use super::{CLEANUP_ROWS, create, failed};
use crate::Delivery;
use crate::once::{self, BoxError, Once, OnceError, Origin, StoredClaim};

/// Prepares the transaction. For the insertion of the claim only: the wait for another consumer
/// ([`once::WAIT_MAX`]). For the whole transaction: a commit that was answered is on disk, because the
/// consumer acknowledges the delivery after it.
const BEFORE: &str = "SELECT set_config('snavio.lock_timeout', current_setting('lock_timeout'), true),
    set_config('lock_timeout', '30s', true),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
        ELSE current_setting('synchronous_commit') END, true)";
const AFTER: &str = "SELECT set_config('lock_timeout', current_setting('snavio.lock_timeout'), true)";
const _: () = assert!(once::WAIT_MAX.as_secs() == 30);

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
    pub async fn create_table(&self, client: &mut Client) -> Result<(), OnceError> {
        create(client, Self::SQL).await
    }

    /// Runs the effect if no claim for the message exists, and commits it with the claim and its result.
    ///
    /// The effect must do all its work through the transaction and must not end the transaction. If the
    /// effect fails, panics or is dropped, the SDK rolls it back. If another consumer processes the same
    /// message, this call waits for it up to [`once::WAIT_MAX`]. The transaction has the isolation level of
    /// the connection. Under a level stricter than `READ COMMITTED`, a race may end in a database error
    /// instead of a wait.
    pub async fn once(
        &self,
        client: &mut Client,
        delivery: &Delivery,
        effect: impl AsyncFnOnce(&Transaction<'_>) -> Result<Option<String>, BoxError>,
    ) -> Result<Once, OnceError> {
        let origin = Origin::of(&delivery.message)?;
        let transaction = client.transaction().await.map_err(failed)?;
        if !self.claim(&transaction, &origin).await.map_err(failed)? {
            let stored = self.stored_claim(&transaction, &origin).await.map_err(failed)?;
            return origin.judge(stored);
        }
        let result = effect(&transaction).await.map_err(OnceError::Effect)?;
        once::check_result(result.as_deref())?;
        // If the effect ignored a failed statement, this statement fails. The commit would succeed without
        // committing anything.
        if !self.complete(&transaction, &origin, result.as_deref()).await.map_err(failed)? {
            return Err(once::transaction_ended());
        }
        transaction.commit().await.map_err(not_committed)?;
        Ok(Once::Done(result))
    }

    /// Deletes claims older than `kept`, a bounded number of rows in one transaction. `kept` must be at least
    /// [`once::KEPT_MIN`]. Returns the number of deleted claims.
    pub async fn cleanup(&self, client: &Client, kept: Duration) -> Result<u64, OnceError> {
        once::check_kept(kept)?;
        let kept = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
        let delete = "DELETE FROM snavio_claim WHERE (message_id, tenant, consumer) IN
            (SELECT message_id, tenant, consumer FROM snavio_claim
            WHERE consumer = $1 AND done_at < (extract(epoch FROM now()) * 1000)::bigint - $2 LIMIT $3)";
        let mut deleted = 0;
        loop {
            let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
                [(&self.consumer.as_str(), Type::TEXT), (&kept, Type::INT8), (&CLEANUP_ROWS, Type::INT8)];
            let rows = client.execute_typed(delete, &parameters).await.map_err(failed)?;
            deleted += rows;
            if rows < CLEANUP_ROWS.unsigned_abs() {
                return Ok(deleted);
            }
        }
    }

    /// Inserts the claim and returns true if none existed. If several transactions do this at once, one
    /// continues and the others wait for its end.
    async fn claim(&self, transaction: &Transaction<'_>, origin: &Origin) -> Result<bool, Error> {
        let insert = "INSERT INTO snavio_claim (consumer, tenant, message_id, source, hash, done_at)
            VALUES ($1, $2, $3, $4, $5, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
            ON CONFLICT DO NOTHING";
        let insert = async {
            let (consumer, source) = (self.consumer.as_str(), origin.source.as_str());
            let values: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 5] = [
                (&consumer, Type::TEXT),
                (&origin.tenant(), Type::TEXT),
                (&origin.id, Type::TEXT),
                (&source, Type::TEXT),
                (&origin.hash, Type::TEXT),
            ];
            transaction.execute_typed(insert, &values).await
        };
        // In this order, in one round trip.
        let (before, after) = (transaction.batch_execute(BEFORE), transaction.batch_execute(AFTER));
        let ((), rows, ()) = tokio::try_join!(biased; before, insert, after)?;
        Ok(rows == 1)
    }

    async fn stored_claim(
        &self,
        transaction: &Transaction<'_>,
        origin: &Origin,
    ) -> Result<StoredClaim, Error> {
        let select = "SELECT source, hash, result FROM snavio_claim
            WHERE message_id = $1 AND tenant = $2 AND consumer = $3";
        let (tenant, consumer) = (origin.tenant(), self.consumer.as_str());
        let row = transaction
            .query_typed_one(
                select,
                &[(&origin.id, Type::TEXT), (&tenant, Type::TEXT), (&consumer, Type::TEXT)],
            )
            .await?;
        Ok(StoredClaim { source: row.try_get(0)?, hash: row.try_get(1)?, result: row.try_get(2)? })
    }

    /// Stores the result and returns true if the claim still exists.
    async fn complete(
        &self,
        transaction: &Transaction<'_>,
        origin: &Origin,
        result: Option<&str>,
    ) -> Result<bool, Error> {
        let update = "UPDATE snavio_claim SET result = $4
            WHERE message_id = $1 AND tenant = $2 AND consumer = $3";
        let (tenant, consumer) = (origin.tenant(), self.consumer.as_str());
        let values: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 4] =
            [(&origin.id, Type::TEXT), (&tenant, Type::TEXT), (&consumer, Type::TEXT), (&result, Type::TEXT)];
        Ok(transaction.execute_typed(update, &values).await? == 1)
    }
}

/// The error of a failed commit. If the server itself refused the commit, nothing was committed; in every
/// other case the outcome is unknown.
fn not_committed(error: Error) -> OnceError {
    let severity = error.as_db_error().and_then(tokio_postgres::error::DbError::parsed_severity);
    if severity == Some(Severity::Error) { failed(error) } else { OnceError::Unknown(error.into()) }
}
