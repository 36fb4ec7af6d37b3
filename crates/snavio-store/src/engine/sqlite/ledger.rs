//! Settling on SQLite: loads what the judgement needs, lets the model judge, writes what it leaves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use foldhash::HashSet;
use rusqlite::Connection;
use snavio_model::claim::{Claim, ClaimKey};
use snavio_model::id::Serial;
use snavio_model::settle::{self, Delta, Intake, Known, Settlement, Working};
use snavio_model::telemetry::dead_lettered;
use snavio_model::time::Timestamp;

use super::check::usable;
use super::queue::Queues;
use super::writer::{Job, Transaction, lock, sql};
use super::{
    claim, conflict, dead_letter, delivery, entity, hold, message, meta, original, retention, telemetry,
};
use crate::engine::conflict_log::tell_conflicts;
use crate::engine::expiry::{Meaning, is_held, keep_back};
use crate::engine::notifiers::Waiting;
use crate::{Settled, StoreError};

/// One batch on its way through the writer.
pub(super) struct Settle {
    pub(super) batch: Vec<Intake>,
    pub(super) now: Timestamp,
    pub(super) queues: Arc<Mutex<Queues>>,
    pub(super) settled: Arc<AtomicU64>,
    pub(super) written: Arc<Waiting>,
    pub(super) result: (Vec<Settlement>, Delta),
    pub(super) done: Settled,
}

impl Job for Settle {
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        let mut working = self.load(transaction)?;
        let over = over(transaction.connection, &self.batch, &mut working, self.now)?;
        let mut delta = Delta::default();
        let mut settlements = Vec::with_capacity(self.batch.len());
        for (place, intake) in self.batch.iter().enumerate() {
            settlements.push(settle::judge(&mut working, intake, place, self.now, &mut delta));
        }
        if !over.is_empty() {
            let new: HashSet<_> = delta.claims.iter().map(|(key, _)| key).collect();
            for key in over.iter().filter(|key| new.contains(key)) {
                retention::make_way(transaction, key, self.now)?;
            }
        }
        self.write(transaction, &delta).map_err(sql)?;
        if delta.has_conflicts() {
            conflict::record(transaction, &delta.conflicts, &delta.repeats, self.now)?;
        }
        for (letter, message) in delta.letters(&self.batch) {
            dead_letter::insert(transaction.connection, letter).map_err(sql)?;
            telemetry::append(transaction, &[dead_lettered(message, letter)])?;
        }
        transaction.dirty |= !delta.is_empty();
        self.result = (settlements, delta);
        Ok(())
    }

    fn committed(self: Box<Self>) {
        let (settlements, delta) = self.result;
        if !delta.is_empty() {
            self.settled.fetch_add(delta.messages.len() as u64, Ordering::Relaxed);
            let mut queues = lock(&self.queues);
            // Settling parks, and lets nothing go on.
            for (key, record) in delta.entities.iter().filter(|(_, it)| it.state.parked_at().is_some()) {
                queues.park(key, record.state.parked_at());
            }
            for delivery in &delta.deliveries {
                queues.add(delivery);
            }
            queues.release_waits(&delta.released);
            drop(queues);
            tell_conflicts(delta.conflicts.iter().map(|it| &it.conflict));
            self.written.wake(delta.conflicts.iter().map(|it| it.conflict.owner.as_str()));
            let messages = delta.messages.iter().map(|(_, place)| &self.batch[*place].message);
            self.written.wake(messages.map(|message| message.tenant.as_str()));
        }
        (self.done)(Ok(settlements));
    }

    fn failed(self: Box<Self>, error: StoreError) {
        (self.done)(Err(error));
    }
}

/// What settling a message would come to, by the claims and the queues as they are.
pub(super) fn foresee(
    connection: &Connection,
    queues: &Mutex<Queues>,
    intake: &Intake,
    now: Timestamp,
) -> Result<Settlement, StoreError> {
    let mut working = Working::after(Serial(0));
    working.registry_version = Some(intake.message.registry_version);
    let batch = std::slice::from_ref(intake);
    load(connection, batch, queues, &mut working, now)?;
    over(connection, batch, &mut working, now)?;
    Ok(settle::judge(&mut working, intake, 0, now, &mut Delta::default()))
}

/// Loads claims and room for a batch.
fn load(
    connection: &Connection,
    batch: &[Intake],
    queues: &Mutex<Queues>,
    working: &mut Working,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut find = claim::Find::prepare(connection).map_err(sql)?;
    for intake in batch {
        for key in settle::keys(intake) {
            match find.run(&key) {
                Ok(Some(claim)) => {
                    working.claims.insert(key, claim);
                }
                Ok(None) => {}
                // Only the message that asks for this claim is refused, not its neighbours.
                Err(damaged @ StoreError::Damaged { .. }) => {
                    super::check::alert(&damaged);
                    working.unreadable.insert(key);
                }
                Err(error) => return Err(error),
            }
        }
    }
    load_meanings(connection, batch, working, now)?;
    load_entities(connection, batch, working)?;
    // Only now that the disk was asked: who receives waits for this lock.
    let queues = lock(queues);
    for route in batch.iter().flat_map(|intake| &intake.destinations) {
        if !working.room.contains_key(&route.queue) {
            working.room.insert(route.queue.clone(), queues.room(&route.queue));
        }
    }
    drop(queues);
    Ok(())
}

/// Loads what ids mean where contents are compared, and which conflicts there are under those that mean something else.
fn load_meanings(
    connection: &Connection,
    batch: &[Intake],
    working: &mut Working,
    now: Timestamp,
) -> Result<(), StoreError> {
    load_originals(connection, batch, working)?;
    for (key, claim) in settle::unmeant(batch, &working.claims, &working.originals, now) {
        let first = message::find_usable(connection, claim.message)?;
        let known = first.map(|it| Known::by_claim(&claim, it.message.domain_hash));
        working.originals.insert(key, known);
    }
    for key in settle::disputed(batch, &working.originals) {
        let known = working.originals.get(&key).and_then(Option::as_ref);
        let recorded = conflict::recorded(connection, &key, known.map(|it| it.original.message))?;
        working.conflicts.insert(key, recorded);
    }
    Ok(())
}

/// Loads what is known of the entities of the batch. Nobody else writes meanwhile.
fn load_entities(connection: &Connection, batch: &[Intake], working: &mut Working) -> Result<(), StoreError> {
    for key in batch.iter().flat_map(Intake::entities) {
        if working.entities.contains_key(key) {
            continue;
        }
        match entity::find(connection, key) {
            Ok(found) => working.entities.extend(found.map(|it| (key.clone(), it))),
            Err(damaged @ StoreError::Damaged { .. }) => {
                super::check::alert(&damaged);
                working.unreadable_entities.insert(key.clone());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn load_originals(
    connection: &Connection,
    batch: &[Intake],
    working: &mut Working,
) -> Result<(), StoreError> {
    for intake in batch {
        let Some(key) = settle::id_key(intake) else { continue };
        if !working.originals.contains_key(&key) {
            match original::find(connection, &key) {
                Ok(Some(original)) => {
                    working.originals.insert(key.clone(), Some(Known { original, is_new: false }));
                }
                Ok(None) => {}
                Err(damaged @ StoreError::Damaged { .. }) => {
                    super::check::alert(&damaged);
                    working.originals.insert(key.clone(), None);
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Claims whose time is over, but which nobody has deleted yet. An id that is held, or that a conflict is about, cannot be
/// used again; one under which work goes on elsewhere means what it did.
fn over(
    connection: &Connection,
    batch: &[Intake],
    working: &mut Working,
    now: Timestamp,
) -> Result<Vec<ClaimKey>, StoreError> {
    let over = working.claims.iter().filter(|(_, claim)| !claim.is_live(now));
    let over: Vec<_> = over.map(|(key, _)| key.clone()).collect();
    let ids = settle::over(batch, &working.claims, &working.originals, now);
    if over.is_empty() && ids.is_empty() {
        return Ok(over);
    }
    let holds = usable(hold::in_force(connection))?;
    let named = batch.iter().flat_map(settle::keys).collect();
    for id in ids {
        let meaning = usable(claim::of_id(connection, &id))?
            .map_or(Meaning::Kept, |claims| Meaning::by_others(&claims, &named, holds.as_ref(), now));
        match meaning {
            Meaning::Free => {}
            Meaning::Counts => drop(working.claimed.insert(id)),
            Meaning::Kept => drop(working.originals.insert(id, None)),
        }
    }
    for key in &over {
        let is_audited = working.claims.get(key).is_some_and(Claim::is_audited);
        let is_needed = || retention::is_needed(connection, key, now).map_err(sql);
        if is_held(holds.as_ref(), key) || is_audited && is_needed()? {
            keep_back(key, &mut working.unreadable, &mut working.originals, now);
        }
    }
    Ok(over)
}

impl Settle {
    fn load(&self, transaction: &Transaction<'_>) -> Result<Working, StoreError> {
        let most: usize = self.batch.iter().map(Intake::numbers_max).sum();
        let mut working = Working::after(transaction.numbers.reserve(most));
        if self.batch.iter().any(Intake::asks_registry) {
            let version = meta::get(transaction.connection, "registry_version").map_err(sql)?;
            working.registry_version = Some(version);
        }
        load(transaction.connection, &self.batch, &self.queues, &mut working, self.now)?;
        Ok(working)
    }

    fn write(&self, transaction: &Transaction<'_>, delta: &Delta) -> rusqlite::Result<()> {
        let connection = transaction.connection;
        let mut insert = message::Insert::prepare(connection)?;
        for (number, place) in &delta.messages {
            let intake = &self.batch[*place];
            let path = delta.path_of(*number, intake.path);
            let head = message::Head { number: *number, path, settled_at: self.now };
            insert.run(head, &intake.message)?;
        }
        let mut put = claim::Put::prepare(connection)?;
        for (key, claim) in &delta.claims {
            put.run(key, claim)?;
        }
        for (key, original) in delta.originals.iter().chain(&delta.lengthened) {
            original::put(connection, key, original)?;
        }
        let mut enqueue = delivery::Insert::prepare(connection)?;
        for delivery in &delta.deliveries {
            enqueue.run(delivery)?;
        }
        for (key, record) in &delta.entities {
            entity::put(connection, key, record)?;
        }
        for (key, number) in &delta.released {
            delivery::release(connection, key, *number)?;
        }
        Ok(())
    }
}
