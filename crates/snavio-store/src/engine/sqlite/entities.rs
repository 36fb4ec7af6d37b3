//! What is known of entities, over the table `entity` and the lanes in memory (ORD-6).

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::Connection;
use snavio_model::bounds;
use snavio_model::ordering::{EntityKey, EntityRecord, EntityState, NotParked, end_waits};
use snavio_model::time::Timestamp;
use tokio::sync::oneshot;

use super::writer::{Job, Transaction, Urgency, lock, sql};
use super::{EmbeddedStore, Queues, audit, check, delivery, entity, erase};
use crate::api::entities::{reset, skipped};
use crate::{Act, Entities, Reset, StoreError, WaitEnded, WaitsEnded};

#[async_trait]
impl Entities for EmbeddedStore {
    async fn entity(&self, key: &EntityKey, now: Timestamp) -> Result<Option<EntityRecord>, StoreError> {
        let key = key.clone();
        let found = self.readers.run(move |connection| entity::find(connection, &key)).await?;
        Ok(found.filter(|it| it.state.is_live(now)))
    }

    async fn reset_entity(&self, key: &EntityKey, force: bool, act: Act) -> Result<Reset, StoreError> {
        let (of, queues) = (key.clone(), Arc::clone(&self.queues));
        let forget = move |transaction: &mut Transaction<'_>| {
            let connection = transaction.connection;
            let state = match entity::find(connection, &of) {
                Ok(None) => return Ok((Reset::Unknown, Vec::new())),
                Ok(Some(it)) if !it.state.is_live(act.at) => return Ok((Reset::Unknown, Vec::new())),
                Ok(Some(it)) => Some(it.state),
                Err(damaged @ StoreError::Damaged { .. }) => {
                    check::alert(&damaged);
                    None
                }
                Err(error) => return Err(error),
            };
            let deliveries = lock(&queues).in_lane(&of);
            if deliveries > 0 && !force {
                return Ok((Reset::Busy { deliveries: deliveries as u64 }, Vec::new()));
            }
            // Its name may be personal: nothing of it stays in the file.
            erase::overwriting(connection, || entity::delete(connection, &of).map_err(sql))?;
            let released = delivery::release_all(connection, &of).map_err(sql)?;
            let deed = reset(&of, state.as_ref());
            audit::append(transaction, deed.action, &deed.object, &act, &deed.outcome)?;
            let released = released.into_iter().map(|number| (of.clone(), number)).collect();
            Ok((state.map_or(Reset::Damaged, Reset::Forgotten), released))
        };
        let key = key.clone();
        self.change_lanes(forget, move |queues, reset| {
            if matches!(reset, Reset::Forgotten(_) | Reset::Damaged) {
                queues.park(&key, None);
            }
        })
        .await
    }

    async fn skip_parked(
        &self,
        key: &EntityKey,
        number: i64,
        act: Act,
    ) -> Result<Option<Result<EntityState, NotParked>>, StoreError> {
        let of = key.clone();
        let skip = move |transaction: &mut Transaction<'_>| {
            let Some(record) = entity::find(transaction.connection, &of)? else {
                return Ok((None, Vec::new()));
            };
            let state = match record.state.unparked(number, &record.rules, act.at) {
                Ok(state) => state,
                Err(not) => return Ok((Some(Err(not)), Vec::new())),
            };
            let record = EntityRecord { state, ..record };
            entity::put(transaction.connection, &of, &record).map_err(sql)?;
            let deed = skipped(&of, number);
            audit::append(transaction, deed.action, &deed.object, &act, &deed.outcome)?;
            Ok((Some(Ok(record.state)), Vec::new()))
        };
        let key = key.clone();
        self.change_lanes(skip, move |queues, skipped: &Option<Result<EntityState, NotParked>>| {
            if let Some(Ok(state)) = skipped {
                queues.park(&key, state.parked_at());
            }
        })
        .await
    }

    async fn end_waits(&self, now: Timestamp) -> Result<WaitsEnded, StoreError> {
        let is_any = move |connection: &Connection| Ok(!entity::overdue(connection, now, 1)?.is_empty());
        if !self.readers.run(is_any).await? {
            return Ok(WaitsEnded::default());
        }
        let end = move |transaction: &mut Transaction<'_>| {
            let mut ended = Vec::new();
            let overdue = entity::overdue(transaction.connection, now, bounds::SWEEP_ROWS_MAX)?;
            let is_partial = overdue.len() == bounds::SWEEP_ROWS_MAX;
            for (key, record) in overdue {
                let (state, released) = end_waits(record.state, &record.rules, now);
                let record = EntityRecord { state, ..record };
                entity::put(transaction.connection, &key, &record).map_err(sql)?;
                transaction.dirty = true;
                for it in released {
                    let destination =
                        delivery::release(transaction.connection, &key, it.number).map_err(sql)?;
                    ended.push(WaitEnded { key: key.clone(), destination, number: it.number, gap: it.gap });
                }
            }
            let released = ended.iter().map(|it: &WaitEnded| (it.key.clone(), it.number)).collect();
            Ok((WaitsEnded { ended, is_partial }, released))
        };
        self.change_lanes(end, |_, _| {}).await
    }
}

/// What a change of entities comes to, with the deliveries that it lets go.
type Changed<T> = (T, Vec<(EntityKey, i64)>);

impl EmbeddedStore {
    /// Changes entities in a commit, and then the lanes in memory, before anybody else's commit does.
    pub(super) async fn change_lanes<T: Send + 'static>(
        &self,
        change: impl FnMut(&mut Transaction<'_>) -> Result<Changed<T>, StoreError> + Send + 'static,
        then: impl FnOnce(&mut Queues, &T) + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job = ChangeLanes { change, changed: None, then, queues: Arc::clone(&self.queues), reply };
        self.writer.submit(Urgency::Ordinary, Box::new(job));
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}

struct ChangeLanes<T, C, F> {
    change: C,
    changed: Option<Changed<T>>,
    then: F,
    queues: Arc<std::sync::Mutex<Queues>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, C, F> Job for ChangeLanes<T, C, F>
where
    T: Send,
    C: FnMut(&mut Transaction<'_>) -> Result<Changed<T>, StoreError> + Send,
    F: FnOnce(&mut Queues, &T) + Send,
{
    /// Whether anything of a lane waits is known in memory.
    fn is_alone(&self) -> bool {
        true
    }

    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        self.changed = Some((self.change)(transaction)?);
        Ok(())
    }

    fn committed(self: Box<Self>) {
        let Some((changed, released)) = self.changed else {
            return drop(self.reply.send(Err(StoreError::Closed)));
        };
        let mut queues = lock(&self.queues);
        (self.then)(&mut queues, &changed);
        queues.release_waits(&released);
        drop(queues);
        let _ = self.reply.send(Ok(changed));
    }

    fn failed(self: Box<Self>, error: StoreError) {
        let _ = self.reply.send(Err(error));
    }
}
