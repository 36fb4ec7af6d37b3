//! What is known of entities, over the tables `entity` and `delivery` (ORD-6).

use async_trait::async_trait;
use foldhash::HashMap;
use futures_util::future::{join, join3};
use snavio_model::bounds;
use snavio_model::name::QueueKey;
use snavio_model::ordering::{EntityKey, EntityRecord, EntityState, NotParked, Released, end_waits};
use snavio_model::time::Timestamp;

use super::client::{GenericClient, Transaction};
use super::pool::{Trouble, sql};
use super::{PostgresStore, audit, delivery, entity, lane};
use crate::api::entities::{reset, skipped};
use crate::record::check_value::alert;
use crate::{Act, Entities, Reset, StoreError, WaitEnded, WaitsEnded};

/// Entities whose waits are ended in one transaction: they are kept from others meanwhile.
const AT_ONCE: usize = bounds::SWEEP_ROWS_MAX / 8;

#[async_trait]
impl Entities for PostgresStore {
    async fn entity(&self, key: &EntityKey, now: Timestamp) -> Result<Option<EntityRecord>, StoreError> {
        let found = self.within(async { entity::find_one(&self.client().await?, key).await }).await?;
        Ok(found.filter(|it| it.state.is_live(now)))
    }

    async fn reset_entity(&self, key: &EntityKey, force: bool, act: Act) -> Result<Reset, StoreError> {
        let work = async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await.map_err(sql)?;
            lock(&transaction, key).await?;
            let state = match entity::find_one(&transaction, key).await {
                Ok(None) => return Ok(Reset::Unknown),
                Ok(Some(it)) if !it.state.is_live(act.at) => return Ok(Reset::Unknown),
                Ok(Some(it)) => Some(it.state),
                Err(damaged @ StoreError::Damaged { .. }) => {
                    alert(&damaged);
                    None
                }
                Err(error) => return Err(error),
            };
            let deliveries = delivery::in_lane(&transaction, key).await?;
            if deliveries > 0 && !force {
                return Ok(Reset::Busy { deliveries });
            }
            entity::delete(&transaction, key).await?;
            delivery::release_all(&transaction, key).await?;
            let queues = pass_on(&transaction, std::iter::once(key)).await?;
            audit::append(&transaction, &act, &[reset(key, state.as_ref())]).await?;
            transaction.commit().await.map_err(sql)?;
            self.wake(&queues);
            Ok(state.map_or(Reset::Damaged, Reset::Forgotten))
        };
        self.within(work).await
    }

    async fn skip_parked(
        &self,
        key: &EntityKey,
        number: i64,
        act: Act,
    ) -> Result<Option<Result<EntityState, NotParked>>, StoreError> {
        let work = async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await.map_err(sql)?;
            lock(&transaction, key).await?;
            let Some(record) = entity::find_one(&transaction, key).await? else { return Ok(None) };
            let state = match record.state.unparked(number, &record.rules, act.at) {
                Ok(state) => state,
                Err(not) => return Ok(Some(Err(not))),
            };
            let record = EntityRecord { state, ..record };
            put(&transaction, key, &record).await?;
            let queues = pass_on(&transaction, std::iter::once(key)).await?;
            audit::append(&transaction, &act, &[skipped(key, number)]).await?;
            transaction.commit().await.map_err(sql)?;
            self.wake(&queues);
            Ok(Some(Ok(record.state)))
        };
        self.within(work).await
    }

    async fn end_waits(&self, now: Timestamp) -> Result<WaitsEnded, StoreError> {
        self.within(self.end_some_waits(now)).await
    }
}

impl PostgresStore {
    async fn end_some_waits(&self, now: Timestamp) -> Result<WaitsEnded, StoreError> {
        let mut client = self.inner.pool.get_kept().await?;
        let overdue = entity::overdue(&client, now, AT_ONCE).await?;
        if overdue.is_empty() {
            return Ok(WaitsEnded::default());
        }
        let transaction = client.transaction().await.map_err(sql)?;
        let mut found = lock_and_find(&transaction, &overdue).await.map_err(Trouble::into_error)?;
        // Those that are damaged stay overdue: by them alone there is nothing to go on with.
        let is_partial = overdue.len() == AT_ONCE && found.unreadable.len() < AT_ONCE;
        let (mut after, mut ended) = (Vec::new(), Vec::new());
        for key in overdue {
            let Some(record) = found.records.remove(&key) else { continue };
            let (state, over) = end_waits(record.state, &record.rules, now);
            let of = |it: Released| WaitEnded {
                key: key.clone(),
                destination: None,
                number: it.number,
                gap: it.gap,
            };
            ended.extend(over.into_iter().map(of));
            after.push((key, EntityRecord { state, ..record }));
        }
        let (let_go, queues) =
            put_and_release(&transaction, &after, &ended).await.map_err(Trouble::into_error)?;
        transaction.commit().await.map_err(sql)?;
        self.wake(&queues);
        let let_go: HashMap<_, _> =
            let_go.into_iter().map(|it| ((it.lane, it.number), it.destination)).collect();
        for it in &mut ended {
            it.destination = let_go.get(&(it.key.to_text(), it.number)).cloned();
        }
        Ok(WaitsEnded { ended, is_partial })
    }

    fn wake(&self, queues: &[QueueKey]) {
        queues.iter().for_each(|it| self.inner.arrivals.wake_some(it.as_str(), 1));
    }
}

/// Keeps entities from others and reads what is known of them, in one flight.
async fn lock_and_find(transaction: &Transaction<'_>, keys: &[EntityKey]) -> Result<entity::Found, Trouble> {
    let flight = transaction.flight(&[entity::LOCK, entity::FIND]).await.map_err(Trouble::of)?;
    let (locked, found) = join(entity::lock(&flight, keys.iter()), entity::find(&flight, keys.iter())).await;
    locked?;
    found
}

/// Writes what is known of entities, lets go what waited and passes their turns on, in one flight. Says what was let go, and
/// in which queues turns have passed.
async fn put_and_release(
    transaction: &Transaction<'_>,
    entities: &[(EntityKey, EntityRecord)],
    ended: &[WaitEnded],
) -> Result<(Vec<delivery::Released>, Vec<QueueKey>), Trouble> {
    let released: Vec<_> = ended.iter().map(|it| (it.key.clone(), it.number)).collect();
    let [step_back, pass_on] = lane::pass_on_queries();
    let queries = [entity::PUT, delivery::RELEASE, &step_back, &pass_on];
    let flight = transaction.flight(&queries).await.map_err(Trouble::of)?;
    let (put, let_go, queues) = join3(
        entity::put(&flight, entities.iter().map(|(key, record)| (key, record))),
        delivery::release(&flight, &released),
        lane::pass_on(&flight, entities.iter().map(|(key, _)| key)),
    )
    .await;
    put?;
    Ok((let_go?, queues?))
}

async fn lock(transaction: &Transaction<'_>, key: &EntityKey) -> Result<(), StoreError> {
    entity::lock(transaction, std::iter::once(key)).await.map_err(Trouble::into_error)
}

async fn put(
    transaction: &Transaction<'_>,
    key: &EntityKey,
    record: &EntityRecord,
) -> Result<(), StoreError> {
    entity::put(transaction, std::iter::once((key, record))).await.map_err(Trouble::into_error)
}

async fn pass_on<'a>(
    transaction: &Transaction<'_>,
    lanes: impl Iterator<Item = &'a EntityKey>,
) -> Result<Vec<QueueKey>, StoreError> {
    lane::pass_on(transaction, lanes).await.map_err(Trouble::into_error)
}
