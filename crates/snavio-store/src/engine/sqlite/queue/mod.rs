//! What may be received now: an index in memory over table `delivery`, rebuilt at start.
//!
//! A delivery enters after its commit, so nothing is handed out that a crash could take back. Leases live here, and
//! those of deliveries that a claim waits for are kept besides; they and receive counts ride a later commit. What ends
//! leaves at once and is forgotten once that is durable.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use snavio_model::bounds;
use snavio_model::delivery::{DeadReason, Delivery, QueueAttributes, Receipt, ReceiptOutcome, Tracking};
use snavio_model::id::Serial;
use snavio_model::name::QueueKey;
use snavio_model::ordering::{EntityKey, Lane};
use snavio_model::time::Timestamp;
use tokio::sync::Notify;

use super::index::{Ended, Found, Index, Lapsed, Lease, Shown, Slot, State};
use super::lanes::{InLane, Lanes};
use super::numbers::Numbers;
use crate::HeldDelivery;
use crate::record::lease::KeptLease;

/// All queues of the store.
pub(super) struct Queues {
    queues: HashMap<QueueKey, Index>,
    /// Those that must be handed out one after the other: only the first of them is in its index.
    lanes: Lanes,
    depth_max: usize,
    /// Fences are serials: they rise with every lease, over restarts too.
    numbers: Arc<Numbers>,
    /// Fences up to this one were given before the store was opened.
    began: Serial,
}

impl Queues {
    pub(super) fn new(depth_max: usize, numbers: Arc<Numbers>) -> Self {
        let began = numbers.reserve(0);
        Self { queues: HashMap::new(), lanes: Lanes::default(), depth_max, numbers, began }
    }

    fn queue(&mut self, key: &QueueKey) -> &mut Index {
        self.queues.entry(key.clone()).or_default()
    }

    /// Fires when deliveries may have become visible.
    pub(super) fn arrivals(&mut self, key: &QueueKey) -> Arc<Notify> {
        Arc::clone(&self.queue(key).arrivals)
    }

    /// How many more deliveries the queue may take.
    pub(super) fn room(&self, key: &QueueKey) -> usize {
        let held = self.queues.get(key).map_or(0, Index::len) + self.lanes.behind_in(key);
        self.depth_max.saturating_sub(held)
    }

    pub(super) fn len(&self) -> usize {
        self.queues.values().map(Index::len).sum::<usize>() + self.lanes.behind()
    }

    /// Adds a delivery whose commit is durable.
    pub(super) fn add(&mut self, delivery: &Delivery) {
        match &delivery.lane {
            Some(lane) => {
                self.lanes.add(delivery, lane);
                self.step(&lane.key);
            }
            None => self.show(&delivery.queue, Slot::of(delivery)),
        }
    }

    fn show(&mut self, queue: &QueueKey, slot: Slot) {
        let index = self.queue(queue);
        index.add(slot);
        index.arrivals.notify_one();
    }

    /// Lets the next one of a lane into its queue, if its turn has come.
    fn step(&mut self, key: &EntityKey) {
        if let Some(front) = self.lanes.overtaken(key) {
            let (queue, id) = (front.queue.clone(), front.slot.id);
            if self.queue(&queue).withdraw(id) {
                self.lanes.step_back(key);
            }
        }
        if let Some(InLane { queue, slot, .. }) = self.lanes.step(key) {
            self.show(&queue, slot);
        }
    }

    /// Adds a delivery that was there when the store was opened. Of a lane the one comes first that was handed out; the
    /// others follow when all are there.
    pub(super) fn load(&mut self, delivery: &Delivery, lease: &KeptLease) {
        if let Some(lane) = &delivery.lane {
            let was_handed_out = delivery.receives > 0 || lease.fence.is_some();
            if !was_handed_out || !self.lanes.add_in_front(delivery, lane) {
                return self.lanes.add(delivery, lane);
            }
        }
        self.queue(&delivery.queue).load(delivery, lease);
    }

    /// All are there that were when the store was opened: lanes begin, but for what is parked.
    pub(super) fn begin_lanes(&mut self, parked: Vec<(EntityKey, i64)>) {
        for (key, number) in parked {
            self.lanes.park(&key, Some(number));
        }
        for key in self.lanes.keys() {
            self.step(&key);
        }
    }

    /// Lets those of a lane go that waited under these numbers.
    pub(super) fn release_waits(&mut self, released: &[(EntityKey, i64)]) {
        for (key, number) in released {
            self.lanes.release(key, *number);
            self.step(key);
        }
    }

    /// How many deliveries are in a lane.
    pub(super) fn in_lane(&self, key: &EntityKey) -> usize {
        self.lanes.len_of(key)
    }

    /// Keeps later ones of a lane behind a number, or lets them go on.
    pub(super) fn park(&mut self, key: &EntityKey, parked_at: Option<i64>) {
        self.lanes.park(key, parked_at);
        self.step(key);
    }

    /// The lane of a delivery, if later ones are parked behind it when it fails for good.
    pub(super) fn parking_lane(&self, id: Serial) -> Option<Lane> {
        self.lanes.parking_lane(id)
    }

    pub(super) fn receive(
        &mut self,
        key: &QueueKey,
        max: usize,
        visibility: Duration,
        now: Timestamp,
    ) -> Found {
        let numbers = Arc::clone(&self.numbers);
        self.queue(key).receive(max, visibility, now, &numbers)
    }

    /// Hands out one delivery, if it may be handed out now.
    pub(super) fn receive_one(
        &mut self,
        key: &QueueKey,
        id: Serial,
        visibility: Duration,
        now: Timestamp,
    ) -> Option<Lease> {
        let numbers = Arc::clone(&self.numbers);
        self.queue(key).receive_one(id, visibility, now, &numbers)
    }

    /// How a delivery is followed, if it is there.
    pub(super) fn tracking(&self, key: &QueueKey, id: Serial) -> Option<Tracking> {
        let shown = self.queues.get(key).and_then(|index| index.tracking(id));
        let behind = || self.lanes.find_behind(id).filter(|it| it.queue == *key).map(|it| it.slot.tracking);
        shown.or_else(behind)
    }

    /// How often a delivery that is there was handed out, and a number that no lease of it is above.
    pub(super) fn handed_out(&self, key: &QueueKey, id: Serial) -> Option<(u32, Serial)> {
        self.tracking(key, id)?;
        let (receives, newest) = self.queues.get(key).and_then(|it| it.handed_out(id)).unwrap_or_default();
        Some((receives, newest.map_or(self.began, |it| it.max(self.began))))
    }

    /// Takes out what a receipt of the newest lease is about, until it is on record what came of it.
    pub(super) fn take_shown(&mut self, key: &QueueKey, receipt: Receipt) -> Option<Shown> {
        let began = self.began;
        self.queue(key).take_shown(receipt, began)
    }

    /// Puts back what was taken out, to be handed out from then on.
    pub(super) fn resume(&mut self, key: &QueueKey, id: Serial, at: Timestamp) {
        self.queue(key).resume(id, at);
    }

    /// Who holds a delivery until when, or when it is handed out again; searched for in all queues of a tenant.
    pub(super) fn held(&self, tenant: &str, id: Serial) -> Option<HeldDelivery> {
        let of_tenant = self.queues.iter().filter(|(key, _)| key.tenant() == tenant);
        let behind = self.lanes.find_behind(id).filter(|it| it.queue.tenant() == tenant);
        let behind = behind.map(|it| HeldDelivery::Due(it.slot.queued_at));
        of_tenant.into_iter().find_map(|(_, index)| index.held(id)).or(behind)
    }

    /// Who holds a delivery of this queue until when, or when it is handed out again.
    pub(super) fn held_in(&self, key: &QueueKey, id: Serial) -> Option<HeldDelivery> {
        self.queues.get(key).and_then(|index| index.held(id))
    }

    /// The deliveries with a lease that lasts, of those that claims wait for.
    pub(super) fn leased(&self, now: Timestamp) -> HashMap<Serial, HeldDelivery> {
        self.queues.values().flat_map(|index| index.leased(now)).collect()
    }

    /// Takes out some of those whose attempt's time is over, until that is on record.
    pub(super) fn take_lapsed(&mut self, now: Timestamp, limit: usize) -> Vec<(QueueKey, Vec<Lapsed>)> {
        let mut lapsed = Vec::new();
        let mut room = limit;
        for (key, index) in &mut self.queues {
            let of_queue = index.take_lapsed(now, room);
            room -= of_queue.len();
            if !of_queue.is_empty() {
                lapsed.push((key.clone(), of_queue));
            }
        }
        lapsed
    }

    /// Takes back what was not handed out after all, as it was, and says which.
    pub(super) fn take_back(&mut self, key: &QueueKey, leases: Vec<Lease>) -> Vec<Lease> {
        self.queue(key).take_back(leases)
    }

    /// Judges receipts and takes out what they end: the answers, and what is to be deleted before they are given.
    pub(super) fn end(&mut self, key: &QueueKey, receipts: &[Receipt]) -> (Vec<ReceiptOutcome>, Vec<Serial>) {
        let began = self.began;
        let index = self.queue(key);
        let judged = receipts.iter().map(|receipt| index.end(*receipt, began));
        let (outcomes, ids): (Vec<_>, Vec<_>) = judged.unzip();
        (outcomes, ids.into_iter().flatten().collect())
    }

    /// Puts back what could not be ended.
    pub(super) fn put_back(&mut self, key: &QueueKey, ids: &[Serial]) {
        self.queue(key).put_back(ids);
        let lanes: HashSet<_> = ids.iter().filter_map(|id| self.lanes.put_back(*id)).collect();
        lanes.iter().for_each(|lane| self.step(lane));
    }

    /// Forgets what has ended for good.
    pub(super) fn forget(&mut self, key: &QueueKey, ids: &[Serial]) {
        // All leave their lanes before the next of any comes in: it may be one of them.
        let lanes: HashSet<_> = ids.iter().filter_map(|id| self.lanes.ended(*id)).collect();
        self.queue(key).forget(ids);
        lanes.iter().for_each(|lane| self.step(lane));
    }

    /// Leases on: hidden until `visible_at`. Also says what of it is to be kept.
    pub(super) fn extend(
        &mut self,
        key: &QueueKey,
        receipts: &[Receipt],
        visible_at: Timestamp,
    ) -> (Vec<ReceiptOutcome>, Vec<(Tracking, KeptLease)>) {
        let outcomes = self.change(key, receipts, State::Leased(visible_at));
        let done = receipts.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == ReceiptOutcome::Done);
        let index = self.queue(key);
        let kept = done.filter_map(|(receipt, _)| index.kept(receipt.delivery_id)).collect();
        (outcomes, kept)
    }

    /// Gives back: visible for anybody from `visible_at`.
    pub(super) fn release(
        &mut self,
        key: &QueueKey,
        receipts: &[Receipt],
        visible_at: Timestamp,
    ) -> Vec<ReceiptOutcome> {
        let outcomes = self.change(key, receipts, State::Delayed(visible_at));
        self.queue(key).arrivals.notify_one();
        outcomes
    }

    /// Takes back what was handed out for nothing: visible for anybody from `visible_at`, as often handed out as before. Also
    /// says how each stands then.
    pub(super) fn hand_back(
        &mut self,
        key: &QueueKey,
        receipts: &[Receipt],
        visible_at: Timestamp,
    ) -> Vec<(Tracking, KeptLease)> {
        let began = self.began;
        let index = self.queue(key);
        let back = receipts.iter().filter_map(|it| index.hand_back(*it, began, visible_at)).collect();
        index.arrivals.notify_one();
        back
    }

    fn change(&mut self, key: &QueueKey, receipts: &[Receipt], state: State) -> Vec<ReceiptOutcome> {
        let began = self.began;
        let index = self.queue(key);
        receipts.iter().map(|receipt| index.change(*receipt, began, state)).collect()
    }

    /// Takes out some of what has a number up to this one, to be purged, until that is on record.
    pub(super) fn end_up_to(&mut self, key: &QueueKey, up_to: Serial, limit: usize) -> Vec<Ended> {
        let mut ended = self.queue(key).end_up_to(up_to, limit);
        let behind = self.lanes.by_age(key).map(|(_, id)| id).filter(|id| *id <= up_to);
        let behind = behind.take(limit - ended.len()).collect();
        ended.extend(self.end_behind(behind, DeadReason::Purged));
        ended
    }

    /// Takes out some of those that stand behind others, until their end is on record.
    fn end_behind(&mut self, ids: Vec<Serial>, reason: DeadReason) -> Vec<Ended> {
        let ended = |id| self.lanes.begin_end(id).map(|receives| Ended { id, reason, receives });
        ids.into_iter().filter_map(ended).collect()
    }

    /// How many of what has a number up to this one a purge leaves.
    pub(super) fn in_progress(&mut self, key: &QueueKey, up_to: Serial) -> usize {
        self.queue(key).in_progress(up_to)
    }

    /// Ends leases whose time is over, wakes those who wait, and takes out what must become a dead letter.
    pub(super) fn sweep(&mut self, now: Timestamp, limit: usize) -> Vec<(QueueKey, Vec<Ended>)> {
        let mut ended = Vec::new();
        let mut room = limit;
        for (key, index) in &mut self.queues {
            let of_queue = index.end_overdue(now, room);
            if !of_queue.is_empty() {
                room -= of_queue.len();
                ended.push((key.clone(), of_queue));
            }
            if index.may_hand_out() {
                index.arrivals.notify_waiters();
            }
        }
        for key in self.lanes.queues() {
            let of_queue = self.end_overdue_behind(&key, now, room);
            if !of_queue.is_empty() {
                room -= of_queue.len();
                ended.push((key, of_queue));
            }
        }
        ended
    }

    /// Takes out those that stand behind others and that nobody took in time.
    fn end_overdue_behind(&mut self, key: &QueueKey, now: Timestamp, limit: usize) -> Vec<Ended> {
        let is_over = |at: Timestamp| now.since(at) >= bounds::QUEUE_RETENTION;
        let old = self.lanes.by_age(key).take_while(|(at, _)| is_over(*at)).take(limit);
        let old = old.map(|(_, id)| id).collect();
        self.end_behind(old, DeadReason::RetentionExpired)
    }

    pub(super) fn attributes(&mut self, key: &QueueKey, now: Timestamp) -> QueueAttributes {
        let behind = self.lanes.behind_in(key) as u64;
        let oldest = self.lanes.by_age(key).next().map_or(0, |(at, _)| now.since(at).as_secs());
        let shown = self.queue(key).attributes(now);
        let oldest_age_seconds = shown.oldest_age_seconds.max(oldest);
        QueueAttributes { depth: shown.depth + behind, oldest_age_seconds, ..shown }
    }

    pub(super) fn holds_any(&self, key: &QueueKey) -> bool {
        self.queues.get(key).is_some_and(|index| index.len() > 0) || self.lanes.behind_in(key) > 0
    }

    /// The attributes of every queue that holds deliveries.
    pub(super) fn all_attributes(&mut self, now: Timestamp) -> HashMap<QueueKey, QueueAttributes> {
        let holding = self.queues.iter().filter(|(_, index)| index.len() > 0);
        let holding: HashSet<_> = holding.map(|(key, _)| key.clone()).chain(self.lanes.queues()).collect();
        holding.into_iter().map(|key| (key.clone(), self.attributes(&key, now))).collect()
    }
}

#[cfg(test)]
mod tests;
