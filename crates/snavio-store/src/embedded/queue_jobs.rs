//! What the writer does for queues: count receives, end deliveries, bury them, purge, redrive.
//!
//! Each job changes the table inside its transaction and the index in memory once that is durable.

use std::sync::{Arc, Mutex};

use snavio_model::delivery::{DeadLetter, DeadReason, Delivery};
use snavio_model::id::Serial;
use snavio_model::name::QueueKey;
use snavio_model::telemetry::dead_lettered;
use snavio_model::time::Timestamp;
use tokio::sync::{Notify, oneshot};

use super::queue::{Queues, Taken};
use super::writer::{Job, Transaction, lock, sql};
use super::{audit, dead_letter, delivery, message, telemetry};
use crate::{Act, StoreError};

/// Receive counts on their way to the table; nobody waits for them.
pub(super) struct CountReceives(pub(super) Vec<(Serial, u32)>);

impl Job for CountReceives {
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        for (id, receives) in &self.0 {
            delivery::set_receives(transaction.connection, *id, *receives).map_err(sql)?;
        }
        transaction.dirty = true;
        Ok(())
    }

    fn committed(self: Box<Self>) {}

    fn failed(self: Box<Self>, error: StoreError) {
        tracing::warn!(error = &error as &dyn std::error::Error, "receive counts were not kept");
    }
}

pub(super) struct Acknowledge {
    pub(super) queue: QueueKey,
    pub(super) taken: Vec<Taken>,
    pub(super) queues: Arc<Mutex<Queues>>,
    pub(super) reply: oneshot::Sender<Result<(), StoreError>>,
}

impl Job for Acknowledge {
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        for taken in &self.taken {
            delivery::delete(transaction.connection, taken.id()).map_err(sql)?;
        }
        transaction.dirty = true;
        Ok(())
    }

    fn committed(self: Box<Self>) {
        let _ = self.reply.send(Ok(()));
    }

    fn failed(self: Box<Self>, error: StoreError) {
        lock(&self.queues).put_back(&self.queue, &self.taken);
        let _ = self.reply.send(Err(error));
    }
}

/// Deliveries that become dead letters, with a record for the sender of each message.
pub(super) struct Bury {
    pub(super) queue: QueueKey,
    pub(super) ended: Vec<(Taken, DeadReason)>,
    pub(super) now: Timestamp,
    pub(super) queues: Arc<Mutex<Queues>>,
    pub(super) written: Arc<Notify>,
}

impl Job for Bury {
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        for (taken, reason) in &self.ended {
            let id = taken.id();
            let Some(delivery) = delivery::find(transaction.connection, id).map_err(sql)? else { continue };
            let letter = DeadLetter { delivery, reason: *reason, dead_at: self.now };
            delivery::delete(transaction.connection, id).map_err(sql)?;
            dead_letter::insert(transaction.connection, &letter).map_err(sql)?;
            let message = message::find_usable(transaction.connection, letter.delivery.message)?;
            let record = message.map(|logged| dead_lettered(&logged.message, &letter));
            telemetry::append(transaction, record.as_slice())?;
            transaction.dirty = true;
        }
        Ok(())
    }

    fn committed(self: Box<Self>) {
        self.written.notify_waiters();
    }

    fn failed(self: Box<Self>, error: StoreError) {
        // They are still deliveries, and end again at the next sweep.
        let taken: Vec<_> = self.ended.iter().map(|(taken, _)| *taken).collect();
        lock(&self.queues).put_back(&self.queue, &taken);
        tracing::warn!(error = &error as &dyn std::error::Error, "dead letters were not written");
    }
}

/// Everything that waits or is in flight in a queue, deleted up to a number: what comes later stays.
pub(super) struct Purge {
    pub(super) queue: QueueKey,
    pub(super) act: Act,
    pub(super) queues: Arc<Mutex<Queues>>,
    pub(super) deleted: u64,
    pub(super) up_to: Serial,
    pub(super) reply: oneshot::Sender<Result<u64, StoreError>>,
}

impl Job for Purge {
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        self.up_to = transaction.numbers.next();
        let deleted = delivery::delete_queue(transaction.connection, &self.queue, self.up_to).map_err(sql)?;
        self.deleted = deleted as u64;
        let outcome = format!("{deleted} deliveries deleted");
        audit::append(transaction, "queue.purge", self.queue.as_str(), &self.act, &outcome)
    }

    fn committed(self: Box<Self>) {
        lock(&self.queues).purge(&self.queue, self.up_to);
        let _ = self.reply.send(Ok(self.deleted));
    }

    fn failed(self: Box<Self>, error: StoreError) {
        let _ = self.reply.send(Err(error));
    }
}

pub(super) struct Redrive {
    pub(super) tenant: String,
    pub(super) dead: Vec<Serial>,
    pub(super) act: Act,
    pub(super) queues: Arc<Mutex<Queues>>,
    pub(super) back: Vec<Delivery>,
    pub(super) reply: oneshot::Sender<Result<Vec<Serial>, StoreError>>,
}

impl Job for Redrive {
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        self.back.clear();
        for id in &self.dead {
            let Some(letter) = dead_letter::find(transaction.connection, &self.tenant, *id)? else {
                continue;
            };
            let mut delivery = letter.delivery;
            delivery.receives = 0;
            delivery.queued_at = self.act.at;
            dead_letter::delete(transaction.connection, *id).map_err(sql)?;
            delivery::Insert::prepare(transaction.connection)
                .and_then(|mut it| it.run(&delivery))
                .map_err(sql)?;
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
        let _ = self.reply.send(Ok(self.back.iter().map(|delivery| delivery.id).collect()));
    }

    fn failed(self: Box<Self>, error: StoreError) {
        let _ = self.reply.send(Err(error));
    }
}
