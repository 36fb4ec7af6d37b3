//! What may be received now: an index in memory over table `delivery`, rebuilt at start.
//!
//! A delivery enters after its commit, so nothing is handed out that a crash could take back. Leases live here
//! only; receive counts ride a later commit. Deliveries never handed out wait in `fresh` in the order of their
//! numbers and cost a few words each; the others are in `known`, with the newest fence given for them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use snavio_model::delivery::{DeadReason, Delivery, QueueAttributes, Receipt, ReceiptOutcome, check_receipt};
use snavio_model::id::Serial;
use snavio_model::limits;
use snavio_model::name::QueueKey;
use snavio_model::time::Timestamp;
use tokio::sync::Notify;

use super::numbers::Numbers;

/// How far the order of numbers may be from the order of time in `fresh`: commits overlap a little.
const FRESH_DISORDER_MAX: Duration = Duration::from_secs(60);

/// All queues of the store.
pub(super) struct Queues {
    queues: HashMap<QueueKey, Index>,
    depth_max: usize,
    /// Fences are serials: they rise with every lease, over restarts too.
    numbers: Arc<Numbers>,
}

/// A delivery handed out, before its message is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) delivery: Serial,
    pub(super) message: Serial,
    pub(super) fence: Serial,
    pub(super) attempt: u32,
    pub(super) queued_at: Timestamp,
    pub(super) visible_at: Timestamp,
}

/// What a receive found: leases to hand out, and deliveries that must become dead letters instead.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) leases: Vec<Lease>,
    pub(super) ended: Vec<(Taken, DeadReason)>,
}

#[derive(Default)]
struct Index {
    fresh: VecDeque<Fresh>,
    /// How many of `fresh` were taken out of the middle.
    holes: usize,
    known: HashMap<Serial, Known>,
    /// Deliveries of `known` that wait, by when they become visible.
    waiting: BTreeSet<(Timestamp, Serial)>,
    /// Deliveries of `known` that are leased, by when the lease ends.
    leased: BTreeSet<(Timestamp, Serial)>,
    arrivals: Arc<Notify>,
}

#[derive(Clone, Copy)]
struct Fresh {
    slot: Slot,
    hole: bool,
}

/// The part of a delivery that deciding needs.
#[derive(Debug, Clone, Copy)]
struct Slot {
    id: Serial,
    message: Serial,
    queued_at: Timestamp,
    receives: u32,
    receives_max: u32,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    slot: Slot,
    fence: Option<Serial>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting(Timestamp),
    Leased(Timestamp),
}

impl Known {
    /// One that was not handed out in this epoch.
    fn fresh(slot: Slot) -> Self {
        Self { slot, fence: None, state: State::Waiting(slot.queued_at) }
    }
}

impl Slot {
    fn of(delivery: &Delivery) -> Self {
        Self {
            id: delivery.id,
            message: delivery.message,
            queued_at: delivery.queued_at,
            receives: delivery.receives,
            receives_max: delivery.receives_max,
        }
    }

    fn ended(&self, now: Timestamp) -> Option<DeadReason> {
        Delivery::end_of(self.receives, self.receives_max, self.queued_at, now)
    }
}

/// A delivery taken out while its end is being committed; it comes back if the commit fails.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken(Known);

impl Taken {
    pub(super) fn id(&self) -> Serial {
        self.0.slot.id
    }
}

impl Queues {
    pub(super) fn new(depth_max: usize, numbers: Arc<Numbers>) -> Self {
        Self { queues: HashMap::new(), depth_max, numbers }
    }

    fn queue(&mut self, key: &QueueKey) -> &mut Index {
        if !self.queues.contains_key(key) {
            self.queues.insert(key.clone(), Index::default());
        }
        self.queues.entry(key.clone()).or_default()
    }

    /// Fires when deliveries may have become visible.
    pub(super) fn arrivals(&mut self, key: &QueueKey) -> Arc<Notify> {
        Arc::clone(&self.queue(key).arrivals)
    }

    /// How many more deliveries the queue may take.
    pub(super) fn room(&self, key: &QueueKey) -> usize {
        self.depth_max.saturating_sub(self.queues.get(key).map_or(0, Index::len))
    }

    pub(super) fn len(&self) -> usize {
        self.queues.values().map(Index::len).sum()
    }

    /// Adds a delivery whose commit is durable.
    pub(super) fn add(&mut self, delivery: &Delivery) {
        let index = self.queue(&delivery.queue);
        index.add(Slot::of(delivery));
        index.arrivals.notify_one();
    }

    pub(super) fn receive(
        &mut self,
        key: &QueueKey,
        max: usize,
        visibility: Duration,
        now: Timestamp,
    ) -> Found {
        let numbers = Arc::clone(&self.numbers);
        let index = self.queue(key);
        index.end_leases(now);
        let mut found = Found::default();
        let in_flight_max = limits::QUEUE_IN_FLIGHT_MAX;
        while found.leases.len() < max && index.leased.len() < in_flight_max {
            let Some(known) = index.next(now) else { break };
            if let Some(reason) = known.slot.ended(now) {
                found.ended.push((Taken(known), reason));
                continue;
            }
            found.leases.push(index.lease(known.slot, numbers.next(), now.plus(visibility)));
        }
        if !index.is_quiet(now) {
            // Others may be waiting for what this call left.
            index.arrivals.notify_one();
        }
        found
    }

    /// Judges receipts and takes out what they end.
    pub(super) fn take(&mut self, key: &QueueKey, receipts: &[Receipt]) -> (Vec<ReceiptOutcome>, Vec<Taken>) {
        let index = self.queue(key);
        let mut taken = Vec::new();
        let outcomes = receipts.iter().map(|receipt| match index.judge(*receipt) {
            ReceiptOutcome::Done => match index.take(receipt.delivery_id) {
                Some(known) => {
                    taken.push(Taken(known));
                    ReceiptOutcome::Done
                }
                None => ReceiptOutcome::Gone,
            },
            other => other,
        });
        (outcomes.collect(), taken)
    }

    /// Puts back what could not be ended.
    pub(super) fn put_back(&mut self, key: &QueueKey, taken: &[Taken]) {
        let index = self.queue(key);
        for Taken(known) in taken {
            index.keep(*known);
        }
        index.arrivals.notify_one();
    }

    /// Leases on: hidden until `visible_at`.
    pub(super) fn extend(
        &mut self,
        key: &QueueKey,
        receipts: &[Receipt],
        visible_at: Timestamp,
    ) -> Vec<ReceiptOutcome> {
        self.change(key, receipts, State::Leased(visible_at))
    }

    /// Gives back: visible for anybody from `visible_at`.
    pub(super) fn release(
        &mut self,
        key: &QueueKey,
        receipts: &[Receipt],
        visible_at: Timestamp,
    ) -> Vec<ReceiptOutcome> {
        let outcomes = self.change(key, receipts, State::Waiting(visible_at));
        self.queue(key).arrivals.notify_one();
        outcomes
    }

    fn change(&mut self, key: &QueueKey, receipts: &[Receipt], state: State) -> Vec<ReceiptOutcome> {
        let index = self.queue(key);
        let change = |receipt: &Receipt| match index.judge(*receipt) {
            ReceiptOutcome::Done => match index.take(receipt.delivery_id) {
                Some(known) => {
                    index.keep(Known { state, ..known });
                    ReceiptOutcome::Done
                }
                None => ReceiptOutcome::Gone,
            },
            other => other,
        };
        receipts.iter().map(change).collect()
    }

    /// Takes everything up to a number out of a queue.
    pub(super) fn purge(&mut self, key: &QueueKey, up_to: Serial) {
        let index = self.queue(key);
        let known: Vec<_> = index.known.keys().copied().filter(|id| *id <= up_to).collect();
        for id in known {
            index.take(id);
        }
        while index.fresh.front().is_some_and(|fresh| fresh.slot.id <= up_to) {
            index.holes -= usize::from(index.fresh.pop_front().is_some_and(|fresh| fresh.hole));
        }
    }

    /// Ends leases whose time is over, wakes those who wait, and takes out what must become a dead letter.
    pub(super) fn sweep(
        &mut self,
        now: Timestamp,
        limit: usize,
    ) -> Vec<(QueueKey, Vec<(Taken, DeadReason)>)> {
        let mut ended = Vec::new();
        let mut room = limit;
        for (key, index) in &mut self.queues {
            index.end_leases(now);
            let of_queue = index.take_ended(now, room);
            room -= of_queue.len();
            ended.push((key.clone(), of_queue));
            if !index.is_quiet(now) {
                index.arrivals.notify_waiters();
            }
        }
        ended
    }

    pub(super) fn attributes(&mut self, key: &QueueKey, now: Timestamp) -> QueueAttributes {
        let index = self.queue(key);
        index.end_leases(now);
        index.attributes(now)
    }
}

impl Index {
    fn len(&self) -> usize {
        self.fresh.len() - self.holes + self.known.len()
    }

    fn add(&mut self, slot: Slot) {
        // A redriven delivery has an old number and is young. `fresh` is searched by number and swept by age,
        // so such a one, or after a restart those behind it, go elsewhere.
        let is_next = |last: &Fresh| {
            last.slot.id < slot.id && last.slot.queued_at <= slot.queued_at.plus(FRESH_DISORDER_MAX)
        };
        if self.fresh.back().is_none_or(is_next) && slot.receives == 0 {
            self.fresh.push_back(Fresh { slot, hole: false });
        } else {
            self.keep(Known::fresh(slot));
        }
    }

    fn keep(&mut self, known: Known) {
        let id = known.slot.id;
        match known.state {
            State::Waiting(at) => self.waiting.insert((at, id)),
            State::Leased(until) => self.leased.insert((until, id)),
        };
        self.known.insert(id, known);
    }

    fn take(&mut self, id: Serial) -> Option<Known> {
        if let Some(known) = self.known.remove(&id) {
            match known.state {
                State::Waiting(at) => self.waiting.remove(&(at, id)),
                State::Leased(until) => self.leased.remove(&(until, id)),
            };
            return Some(known);
        }
        let place = self.fresh.binary_search_by_key(&id, |fresh| fresh.slot.id).ok()?;
        let fresh = self.fresh.get_mut(place).filter(|fresh| !fresh.hole)?;
        fresh.hole = true;
        let slot = fresh.slot;
        self.holes += 1;
        Some(Known::fresh(slot))
    }

    fn judge(&self, receipt: Receipt) -> ReceiptOutcome {
        check_receipt(receipt, self.known.get(&receipt.delivery_id).and_then(|known| known.fence))
    }

    /// The next delivery to hand out: those given back first, they are the older ones.
    fn next(&mut self, now: Timestamp) -> Option<Known> {
        if let Some(&(at, id)) = self.waiting.first()
            && at <= now
        {
            return self.take(id);
        }
        while let Some(fresh) = self.fresh.pop_front() {
            if !fresh.hole {
                return Some(Known::fresh(fresh.slot));
            }
            self.holes -= 1;
        }
        None
    }

    fn lease(&mut self, slot: Slot, fence: Serial, until: Timestamp) -> Lease {
        let slot = Slot { receives: slot.receives + 1, ..slot };
        self.keep(Known { slot, fence: Some(fence), state: State::Leased(until) });
        Lease {
            delivery: slot.id,
            message: slot.message,
            fence,
            attempt: slot.receives,
            queued_at: slot.queued_at,
            visible_at: until,
        }
    }

    fn end_leases(&mut self, now: Timestamp) {
        while let Some(&(until, id)) = self.leased.first() {
            if until > now {
                return;
            }
            let Some(known) = self.take(id) else { return };
            self.keep(Known { state: State::Waiting(until), ..known });
        }
    }

    /// Nothing is visible now.
    fn is_quiet(&self, now: Timestamp) -> bool {
        self.fresh.len() == self.holes && self.waiting.first().is_none_or(|(at, _)| *at > now)
    }

    fn take_ended(&mut self, now: Timestamp, limit: usize) -> Vec<(Taken, DeadReason)> {
        let visible = self.waiting.range(..(now, Serial(i64::MAX)));
        let known = visible.filter_map(|(_, id)| Some((*id, self.known.get(id)?.slot.ended(now)?)));
        // `fresh` is ordered by age: the first that has not ended ends the search.
        let fresh = self.fresh.iter().filter(|fresh| !fresh.hole);
        let fresh = fresh.map_while(|fresh| fresh.slot.ended(now).map(|reason| (fresh.slot.id, reason)));
        let ended: Vec<_> = known.chain(fresh).take(limit).collect();
        ended.into_iter().filter_map(|(id, reason)| Some((Taken(self.take(id)?), reason))).collect()
    }

    fn attributes(&self, now: Timestamp) -> QueueAttributes {
        let delayed = self.waiting.range((now, Serial(i64::MAX))..).count();
        let known = self.known.values().map(|known| known.slot.queued_at);
        let fresh = self.fresh.iter().find(|fresh| !fresh.hole).map(|fresh| fresh.slot.queued_at);
        let oldest = known.chain(fresh).min();
        QueueAttributes {
            depth: (self.len() - self.leased.len() - delayed) as u64,
            in_flight: self.leased.len() as u64,
            delayed: delayed as u64,
            oldest_age_seconds: oldest.map_or(0, |oldest| now.since(oldest).as_secs()),
            dead_letters: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VISIBILITY: Duration = Duration::from_secs(30);

    fn key() -> QueueKey {
        QueueKey::stored("acme/in")
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1000)
    }

    fn delivery(id: i64) -> Delivery {
        Delivery {
            id: Serial(id),
            message: Serial(id - 1),
            destination: "acme/bot:notify".into(),
            queue: key(),
            dead_letter_queue: QueueKey::stored("acme/dead"),
            queued_at: at(0),
            receives: 0,
            receives_max: 2,
        }
    }

    fn queues(ids: impl IntoIterator<Item = i64>) -> Queues {
        let mut queues = Queues::new(1000, Arc::new(Numbers::of_epoch(1)));
        for id in ids {
            queues.add(&delivery(id));
        }
        queues
    }

    fn receive(queues: &mut Queues, now: i64) -> Vec<Lease> {
        queues.receive(&key(), 10, VISIBILITY, at(now)).leases
    }

    fn receipt(lease: &Lease) -> Receipt {
        Receipt { delivery_id: lease.delivery, fence: lease.fence }
    }

    /// DLV-2
    #[test]
    fn a_received_delivery_is_hidden_until_its_visibility_ends_and_comes_back_under_a_higher_fence() {
        let mut queues = queues([1]);
        let first = receive(&mut queues, 0)[0];
        assert!(receive(&mut queues, 29).is_empty());
        let second = receive(&mut queues, 30)[0];
        assert_eq!((first.attempt, second.attempt), (1, 2));
        assert_eq!(first.delivery, second.delivery);
        assert!(second.fence > first.fence);
        assert_eq!(queues.take(&key(), &[receipt(&first)]).0, [ReceiptOutcome::Fenced]);
        assert_eq!(queues.take(&key(), &[receipt(&second)]).0, [ReceiptOutcome::Done]);
        assert_eq!(queues.take(&key(), &[receipt(&second)]).0, [ReceiptOutcome::Gone]);
    }

    /// DLV-2
    #[test]
    fn extension_keeps_it_hidden_and_release_gives_it_back_after_its_delay() {
        let mut queues = queues([1]);
        let lease = receive(&mut queues, 0)[0];
        assert_eq!(queues.extend(&key(), &[receipt(&lease)], at(100)), [ReceiptOutcome::Done]);
        assert!(receive(&mut queues, 99).is_empty());
        assert_eq!(queues.release(&key(), &[receipt(&lease)], at(110)), [ReceiptOutcome::Done]);
        let attributes = queues.attributes(&key(), at(105));
        assert_eq!((attributes.depth, attributes.in_flight, attributes.delayed), (0, 0, 1));
        assert!(receive(&mut queues, 109).is_empty());
        assert_eq!(receive(&mut queues, 110).len(), 1);
    }

    /// DLV-2
    #[test]
    fn after_its_receives_it_is_ended_instead_of_handed_out() {
        let mut queues = queues([1, 2]);
        receive(&mut queues, 0);
        receive(&mut queues, 30);
        let found = queues.receive(&key(), 10, VISIBILITY, at(60));
        assert!(found.leases.is_empty());
        let reason = DeadReason::ReceivesExhausted;
        let ended: Vec<_> = found.ended.iter().map(|(taken, why)| (taken.id(), *why)).collect();
        assert_eq!(ended, [(Serial(1), reason), (Serial(2), reason)]);
    }

    /// DLV-2
    #[test]
    fn what_nobody_takes_ends_with_its_retention() {
        let mut queues = queues([1, 2]);
        let almost = 14 * 86_400 - 1;
        assert!(queues.sweep(at(almost), 10)[0].1.is_empty());
        let ended = queues.sweep(at(almost + 1), 1);
        let (queue, taken) = &ended[0];
        assert_eq!((queue, taken.len()), (&key(), 1));
        assert_eq!((taken[0].0.id(), taken[0].1), (Serial(1), DeadReason::RetentionExpired));
        assert_eq!(queues.len(), 1);
    }

    /// DLV-3
    #[test]
    fn an_acknowledgement_from_before_a_restart_ends_the_delivery() {
        let mut queues = queues([1, 2, 3]);
        let old = Receipt { delivery_id: Serial(2), fence: Serial(500) };
        assert_eq!(queues.take(&key(), &[old]).0, [ReceiptOutcome::Done]);
        let rest: Vec<_> = receive(&mut queues, 0).iter().map(|lease| lease.delivery.0).collect();
        assert_eq!(rest, [1, 3]);
        assert_eq!(queues.len(), 2);
    }

    #[test]
    fn what_could_not_be_ended_comes_back() {
        let mut queues = queues([1]);
        let lease = receive(&mut queues, 0)[0];
        let (_, taken) = queues.take(&key(), &[receipt(&lease)]);
        assert_eq!(queues.len(), 0);
        queues.put_back(&key(), &taken);
        assert_eq!(receive(&mut queues, 30).len(), 1);
    }

    #[test]
    fn a_full_queue_has_no_room_and_gains_it_back() {
        let mut queues = Queues::new(2, Arc::new(Numbers::of_epoch(1)));
        queues.add(&delivery(1));
        queues.add(&delivery(2));
        assert_eq!(queues.room(&key()), 0);
        let lease = receive(&mut queues, 0)[0];
        assert_eq!(queues.room(&key()), 0, "what is in flight still counts");
        queues.take(&key(), &[receipt(&lease)]);
        assert_eq!(queues.room(&key()), 1);
    }
}
