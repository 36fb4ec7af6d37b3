//! Whose turn it is: of the deliveries of a lane one is in front, and those behind it are visible at no time (ORD-3, ORD-7).
//! So whoever receives meets none of them, however many there are.
//!
//! Turns pass under the locks of their entities, which are taken before deliveries, dead letters and claims are locked: so
//! do all, or they would wait for each other in a circle.

use futures_util::future::join;
use snavio_model::claim::IdKey;
use snavio_model::id::Serial;
use snavio_model::name::QueueKey;
use snavio_model::ordering::EntityKey;
use tokio_postgres::Row;

use super::client::GenericClient;
use super::pool::{Trouble, sql};
use crate::StoreError;
use crate::api::archive::DESTINATIONS_MAX;

/// When those are visible that stand behind others.
pub(super) const BEHIND: i64 = i64::MAX;

/// Entities that one transaction locks at most: the server has room for some thousands, of everybody's.
pub(super) const LOCKED_MAX: usize = 256;

/// Keeps the entities of some deliveries from others until the transaction ends.
pub(super) async fn lock(client: &impl GenericClient, deliveries: &[Serial]) -> Result<(), StoreError> {
    lock_in(client, "delivery", deliveries).await
}

/// The same of dead letters.
pub(super) async fn lock_letters(client: &impl GenericClient, letters: &[Serial]) -> Result<(), StoreError> {
    lock_in(client, "dead_letter", letters).await
}

/// The same of the dead letters that park their lanes and are of messages under an id: of its claims, its conflicts and its
/// meaning.
pub(super) async fn lock_letters_of(client: &impl GenericClient, id: &IdKey) -> Result<(), StoreError> {
    let lock = format!(
        "WITH kept AS (SELECT message FROM claim WHERE id = $1 AND tenant = $2 \
             UNION SELECT message FROM original WHERE id = $1 AND tenant = $2 \
             UNION SELECT unnest(ARRAY[seq, original]) FROM conflict WHERE event_id = $1 AND tenant = $2) \
         SELECT pg_advisory_xact_lock(key) FROM ( \
             SELECT DISTINCT hashtextextended(lane, 7) AS key FROM kept JOIN dead_letter AS letter \
                 ON letter.id > kept.message AND letter.id <= kept.message + {DESTINATIONS_MAX} \
                 AND letter.message = kept.message \
             WHERE lane IS NOT NULL AND lane_parks IS NOT NULL ORDER BY key OFFSET 0) AS keys"
    );
    client.query(&lock, &[&id.id.as_str(), &id.tenant.as_str()]).await.map(|_| ()).map_err(sql)
}

async fn lock_in(client: &impl GenericClient, table: &str, ids: &[Serial]) -> Result<(), StoreError> {
    if ids.is_empty() {
        return Ok(());
    }
    let lock = format!(
        "SELECT pg_advisory_xact_lock(key) FROM ( \
             SELECT DISTINCT hashtextextended(lane, 7) AS key FROM {table} WHERE id = ANY ($1) AND lane IS NOT NULL \
             ORDER BY key OFFSET 0) AS keys"
    );
    let ids: Vec<_> = ids.iter().map(|it| it.0).collect();
    let statement = client.prepare_cached(&lock).await.map_err(sql)?;
    client.query(&statement, &[&ids]).await.map(|_| ()).map_err(sql)
}

/// Brings the next one of each lane in front whose turn has come: the lowest that does not wait, unless one is in front that
/// was handed out, or the lane is parked before it. Says in which queues. Their entities are locked.
pub(super) async fn pass_on<'a>(
    client: &impl GenericClient,
    lanes: impl Iterator<Item = &'a EntityKey>,
) -> Result<Vec<QueueKey>, Trouble> {
    let mut lanes: Vec<_> = lanes.map(EntityKey::to_text).collect();
    lanes.sort_unstable();
    lanes.dedup();
    if lanes.is_empty() {
        return Ok(Vec::new());
    }
    let [step_back, pass_on] = pass_on_queries();
    let flight = client.flight(&[&step_back, &pass_on]).await.map_err(Trouble::of)?;
    let (stepped_back, queues) = join(
        async {
            let statement = flight.prepare_cached(&step_back).await?;
            flight.execute(&statement, &[&lanes]).await
        },
        async {
            let statement = flight.prepare_cached(&pass_on).await?;
            flight.query(&statement, &[&lanes]).await
        },
    )
    .await;
    stepped_back.map_err(Trouble::of)?;
    let queue = |row: &Row| row.try_get(0).map(QueueKey::stored);
    queues.map_err(Trouble::of)?.iter().map(queue).collect::<Result<_, _>>().map_err(Trouble::of)
}

/// The statements of [`pass_on`].
pub(super) fn pass_on_queries() -> [String; 2] {
    // A lower one that comes takes the place of one that nobody has had yet.
    let step_back = format!(
        "UPDATE delivery SET visible_at = {BEHIND} WHERE lane IS NOT NULL AND lane = ANY ($1) \
             AND visible_at < {BEHIND} AND receives = 0 \
             AND EXISTS (SELECT FROM delivery AS lower WHERE lower.lane IS NOT NULL AND lower.lane = delivery.lane \
                 AND NOT lower.waits AND (lower.lane_number, lower.id) < (delivery.lane_number, delivery.id))"
    );
    let pass_on = format!(
        "UPDATE delivery SET visible_at = delivery.queued_at \
         FROM unnest($1::text[]) AS passing (lane), LATERAL ( \
             SELECT id, lane_number FROM delivery AS behind WHERE behind.lane IS NOT NULL \
                 AND behind.lane = passing.lane AND NOT behind.waits \
             ORDER BY behind.lane_number, behind.id LIMIT 1) AS next \
         WHERE delivery.id = next.id \
             AND NOT EXISTS (SELECT FROM delivery AS front WHERE front.lane IS NOT NULL \
                 AND front.lane = passing.lane AND front.visible_at < {BEHIND}) \
             AND NOT EXISTS (SELECT FROM entity WHERE entity.lane = passing.lane \
                 AND entity.parked_at < next.lane_number) \
         RETURNING delivery.queue"
    );
    [step_back, pass_on]
}

/// Begins the lanes of a store that was taken over. Nobody else is there.
pub(super) async fn begin(client: &impl GenericClient) -> Result<(), StoreError> {
    let handed_out = format!(
        "UPDATE delivery SET visible_at = queued_at WHERE lane IS NOT NULL AND receives > 0 AND visible_at = {BEHIND}"
    );
    client.execute(&handed_out, &[]).await.map_err(sql)?;
    let lanes =
        client.query("SELECT DISTINCT lane FROM delivery WHERE lane IS NOT NULL", &[]).await.map_err(sql)?;
    let key = |row: &Row| row.try_get::<_, &str>(0).map(EntityKey::stored);
    let lanes = lanes.iter().map(key).collect::<Result<Vec<_>, _>>().map_err(sql)?;
    pass_on(client, lanes.iter().flatten()).await.map(|_| ()).map_err(Trouble::into_error)
}
