//! What is known of entities, over the tables `entity` and `delivery` (ORD-6).

use async_trait::async_trait;
use snavio_model::limits;
use snavio_model::name::QueueKey;
use snavio_model::order::{EntityKey, EntityRecord, EntityState, NotParked, end_waits};
use snavio_model::time::Timestamp;

use super::client::Transaction;
use super::pool::{Trouble, sql};
use super::{PostgresStore, audit, delivery, entity, lane};
use crate::entities::{reset, skipped};
use crate::evidence::{alert, usable};
use crate::{Act, Entities, Reset, StoreError, WaitEnded};

/// Entities whose waits are ended in one transaction: they are kept from others meanwhile.
const AT_ONCE: usize = limits::SWEEP_ROWS_MAX / 8;

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

    async fn end_waits(&self, now: Timestamp) -> Result<Vec<WaitEnded>, StoreError> {
        self.within(self.end_some_waits(now)).await
    }
}

impl PostgresStore {
    async fn end_some_waits(&self, now: Timestamp) -> Result<Vec<WaitEnded>, StoreError> {
        let mut client = self.inner.pool.get_kept().await?;
        let overdue = entity::overdue(&client, now, AT_ONCE).await?;
        if overdue.is_empty() {
            return Ok(Vec::new());
        }
        let transaction = client.transaction().await.map_err(sql)?;
        entity::lock(&transaction, overdue.iter()).await.map_err(Trouble::into_error)?;
        let mut ended = Vec::new();
        for key in &overdue {
            let Some(record) = usable(entity::find_one(&transaction, key).await)?.flatten() else {
                continue;
            };
            let (state, over) = end_waits(record.state, &record.rules, now);
            put(&transaction, key, &EntityRecord { state, ..record }).await?;
            let numbers: Vec<_> = over.iter().map(|it| (key.clone(), it.number)).collect();
            let let_go = release(&transaction, &numbers).await?;
            ended.extend(over.into_iter().map(|it| {
                let of = let_go.iter().find(|found| found.number == it.number);
                let destination = of.map(|found| found.destination.clone());
                WaitEnded { key: key.clone(), destination, number: it.number, gap: it.gap }
            }));
        }
        let queues = pass_on(&transaction, overdue.iter()).await?;
        transaction.commit().await.map_err(sql)?;
        self.wake(&queues);
        Ok(ended)
    }

    fn wake(&self, queues: &[QueueKey]) {
        queues.iter().for_each(|it| self.inner.arrivals.wake_some(it.as_str(), 1));
    }
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

async fn release(
    transaction: &Transaction<'_>,
    released: &[(EntityKey, i64)],
) -> Result<Vec<delivery::Released>, StoreError> {
    delivery::release(transaction, released).await.map_err(Trouble::into_error)
}
