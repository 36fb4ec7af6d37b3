//! What the writer does for queues: keep leases and counts, bury deliveries, purge, redrive.
//!
//! Each job changes the table inside its transaction and the index in memory once that is durable.

use std::sync::{Arc, Mutex};

use snavio_model::delivery::{DeadLetter, DeadReason, Delivery};
use snavio_model::id::Serial;
use snavio_model::name::QueueKey;
use snavio_model::telemetry::{Record, dead_lettered};
use snavio_model::time::Timestamp;
use tokio::sync::oneshot;

use super::check::usable;
use super::index::Ended;
use super::park::{self, Parked};
use super::queue::Queues;
use super::writer::{Job, Transaction, lock, sql};
use super::{audit, dead_letter, delivery, finish, lease, message, telemetry};
use crate::engine::notifiers::Waiting;
use crate::record::lease::KeptLease;
use crate::{Act, Purged, Redrive, Redriven, StoreError};

/// Leases on their way to the table; who hands out what may be handed out only once waits for that.
#[derive(Default)]
pub(super) struct KeepLeases {
    /// How often those were handed out that no claim waits for: nothing else is kept of them.
    pub(super) counts: Vec<(Serial, u32)>,
    /// And how often, of those that were taken back.
    pub(super) counts_back: Vec<(Serial, u32)>,
    /// How the others stand, each with the fence that this is about.
    pub(super) leases: Vec<(Serial, KeptLease)>,
    pub(super) reply: Option<oneshot::Sender<Result<(), StoreError>>>,
}

impl Job for KeepLeases {
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        for (id, receives) in &self.counts {
            delivery::count_receives(transaction.connection, *id, *receives).map_err(sql)?;
        }
        for (id, receives) in &self.counts_back {
            delivery::count_back(transaction.connection, *id, *receives).map_err(sql)?;
        }
        for (under, lease) in &self.leases {
            lease::put(transaction.connection, lease, *under).map_err(sql)?;
        }
        transaction.dirty = true;
        Ok(())
    }

    fn committed(self: Box<Self>) {
        if let Some(reply) = self.reply {
            let _ = reply.send(Ok(()));
        }
    }

    fn failed(self: Box<Self>, error: StoreError) {
        tracing::warn!(error = &error as &dyn std::error::Error, "leases and receive counts were not kept");
        if let Some(reply) = self.reply {
            let _ = reply.send(Err(error));
        }
    }
}

/// Deliveries that become dead letters, with a record for the sender of each message.
pub(super) struct Bury {
    pub(super) queue: QueueKey,
    pub(super) ended: Vec<Ended>,
    pub(super) now: Timestamp,
    pub(super) queues: Arc<Mutex<Queues>>,
    pub(super) written: Arc<Waiting>,
    pub(super) records: Vec<Record>,
    pub(super) parked: Vec<Parked>,
    pub(super) reply: oneshot::Sender<Result<(), StoreError>>,
}

impl Bury {
    fn ids(&self) -> Vec<Serial> {
        self.ended.iter().map(|ended| ended.id).collect()
    }
}

impl Job for Bury {
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        self.records.clear();
        self.parked.clear();
        for ended in &self.ended {
            // A damaged row is told of and left where it is, as at a start.
            let Some(delivery) = find(transaction, ended)? else { continue };
            let letter = DeadLetter::new(delivery, ended.reason, self.now);
            let (record, parked) = bury(transaction, &letter)?;
            self.records.extend(record);
            self.parked.extend(parked);
        }
        telemetry::append(transaction, &self.records)
    }

    fn committed(self: Box<Self>) {
        let mut queues = lock(&self.queues);
        self.parked.iter().for_each(|(key, at)| queues.park(key, *at));
        queues.forget(&self.queue, &self.ids());
        drop(queues);
        self.written.wake(self.records.iter().map(|record| record.tenant.as_str()));
        let _ = self.reply.send(Ok(()));
    }

    fn failed(self: Box<Self>, error: StoreError) {
        // They are still deliveries, and end again at the next sweep.
        lock(&self.queues).put_back(&self.queue, &self.ids());
        tracing::warn!(error = &error as &dyn std::error::Error, "dead letters were not written");
        let _ = self.reply.send(Err(error));
    }
}

/// A delivery that ends, as often handed out as is known in memory.
fn find(transaction: &Transaction<'_>, ended: &Ended) -> Result<Option<Delivery>, StoreError> {
    let found = usable(delivery::find(transaction.connection, ended.id))?.flatten();
    Ok(found.map(|delivery| Delivery { receives: ended.receives, ..delivery }))
}

/// Makes a delivery a dead letter: what its sender is told, and where its entity stays from now on.
fn bury(
    transaction: &mut Transaction<'_>,
    letter: &DeadLetter,
) -> Result<(Option<Record>, Option<Parked>), StoreError> {
    let (delivery, now) = (&letter.delivery, letter.dead_at);
    delivery::delete(transaction.connection, delivery.id).map_err(sql)?;
    dead_letter::insert(transaction.connection, letter).map_err(sql)?;
    if delivery.tracking.is_tracked() {
        finish::buried(transaction, delivery, letter.reason, now)?;
    }
    let message = message::find_usable(transaction.connection, delivery.message)?;
    let (lane, id) = (delivery.lane.as_deref(), message.as_ref().map(|it| &it.message.id));
    let parked = park::failed(transaction, lane, id, now)?;
    transaction.dirty = true;
    Ok((message.map(|logged| dead_lettered(&logged.message, letter)), parked))
}

/// Some of what waits in a queue or is in flight there, deleted, with its line on the record. What was tried, and a claim
/// waits for, may be done: it becomes a dead letter.
pub(super) struct Purge {
    pub(super) queue: QueueKey,
    pub(super) ended: Vec<Ended>,
    pub(super) act: Act,
    pub(super) queues: Arc<Mutex<Queues>>,
    pub(super) written: Arc<Waiting>,
    pub(super) purged: Purged,
    pub(super) records: Vec<Record>,
    pub(super) parked: Vec<Parked>,
    pub(super) reply: oneshot::Sender<Result<Purged, StoreError>>,
}

impl Purge {
    fn ids(&self) -> Vec<Serial> {
        self.ended.iter().map(|ended| ended.id).collect()
    }

    /// Deletes one that nobody tried.
    fn delete(
        &mut self,
        transaction: &mut Transaction<'_>,
        delivery: Option<&Delivery>,
        id: Serial,
    ) -> Result<(), StoreError> {
        if let Some(delivery) = delivery.filter(|it| it.tracking.is_tracked()) {
            finish::buried(transaction, delivery, DeadReason::Purged, self.act.at)?;
        }
        // There is nothing to be mended any more.
        let lane = delivery.and_then(|it| it.lane.as_deref());
        self.parked.extend(park::done(transaction, lane, self.act.at)?);
        self.purged.deleted += u64::from(delivery::delete(transaction.connection, id).map_err(sql)?);
        Ok(())
    }
}

impl Job for Purge {
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        self.purged = Purged::default();
        self.records.clear();
        self.parked.clear();
        for ended in self.ended.clone() {
            match find(transaction, &ended)? {
                Some(delivery) if finish::was_tried(transaction, &delivery)? => {
                    let letter = DeadLetter::new(delivery, ended.reason, self.act.at);
                    let (record, parked) = bury(transaction, &letter)?;
                    self.purged.in_doubt += 1;
                    self.records.extend(record);
                    self.parked.extend(parked);
                }
                found => self.delete(transaction, found.as_ref(), ended.id)?,
            }
        }
        telemetry::append(transaction, &self.records)?;
        let outcome = self.purged.outcome();
        audit::append(transaction, "queue.purge", self.queue.as_str(), &self.act, &outcome)
    }

    fn committed(self: Box<Self>) {
        let mut queues = lock(&self.queues);
        self.parked.iter().for_each(|(key, at)| queues.park(key, *at));
        queues.forget(&self.queue, &self.ids());
        drop(queues);
        self.written.wake(self.records.iter().map(|record| record.tenant.as_str()));
        let _ = self.reply.send(Ok(self.purged));
    }

    fn failed(self: Box<Self>, error: StoreError) {
        lock(&self.queues).put_back(&self.queue, &self.ids());
        let _ = self.reply.send(Err(error));
    }
}

pub(super) struct PutBack {
    pub(super) tenant: String,
    pub(super) dead: Vec<Serial>,
    pub(super) which: Redrive,
    pub(super) act: Act,
    pub(super) queues: Arc<Mutex<Queues>>,
    pub(super) back: Vec<Delivery>,
    /// What stays a dead letter.
    pub(super) left: Redriven,
    pub(super) reply: oneshot::Sender<Result<Redriven, StoreError>>,
}

impl PutBack {
    /// Whether the queue takes one more, those that go back with this commit included.
    fn has_room(&self, queue: &QueueKey) -> bool {
        let back = self.back.iter().filter(|delivery| delivery.queue == *queue).count();
        lock(&self.queues).room(queue) > back
    }
}

impl Job for PutBack {
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        self.back.clear();
        self.left = Redriven::default();
        for id in self.dead.clone() {
            let found = usable(dead_letter::find(transaction.connection, &self.tenant, id))?.flatten();
            // What conflicts with what was dispatched before is evidence, and never dispatched itself (CLM-8).
            let Some(letter) = found.filter(|it| it.reason != DeadReason::Conflict) else { continue };
            if self.which == Redrive::Decided && finish::is_in_doubt(transaction, id)? {
                self.left.in_doubt.push(id);
                continue;
            }
            if letter.delivery.tracking.is_tracked() && finish::is_held(transaction, id)? {
                self.left.held.push(id);
                continue;
            }
            if !self.has_room(&letter.delivery.queue) {
                self.left.full.push(id);
                continue;
            }
            let delivery = Delivery { receives: 0, queued_at: self.act.at, ..letter.delivery };
            dead_letter::delete(transaction.connection, id).map_err(sql)?;
            delivery::Insert::prepare(transaction.connection)
                .and_then(|mut it| it.run(&delivery))
                .map_err(sql)?;
            if delivery.tracking.is_tracked() {
                finish::reopened(transaction, delivery.id)?;
            }
            let object = format!("{} {}", delivery.dead_letter_queue, delivery.id);
            audit::append(transaction, "dead_letter.redrive", &object, &self.act, delivery.queue.as_str())?;
            self.back.push(delivery);
        }
        Ok(())
    }

    fn committed(self: Box<Self>) {
        let mut queues = lock(&self.queues);
        for delivery in &self.back {
            queues.add(delivery);
        }
        drop(queues);
        let back = self.back.iter().map(|delivery| delivery.id).collect();
        let _ = self.reply.send(Ok(Redriven { back, ..self.left }));
    }

    fn failed(self: Box<Self>, error: StoreError) {
        let _ = self.reply.send(Err(error));
    }
}
