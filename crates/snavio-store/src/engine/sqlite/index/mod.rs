//! One queue's deliveries in memory, each in the place that says what may happen to it next.
//!
//! Deliveries never handed out wait in `fresh` in the order of their numbers and cost a few words each; the others
//! are in `known`, with the newest fence given for them, and in one of five sets by their state. Whatever is
//! looked for is at the front of one of these, so that no call walks over all of a queue.

mod purging;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use snavio_model::bounds;
use snavio_model::delivery::{
    DeadReason, Delivery, QueueAttributes, Receipt, ReceiptOutcome, Tracking, check_receipt,
};
use snavio_model::id::Serial;
use snavio_model::time::Timestamp;
use tokio::sync::Notify;

use super::numbers::Numbers;
use crate::HeldDelivery;
use crate::record::lease::{Held, KeptLease};

/// How far the order of numbers may be from the order of time in `fresh`: commits overlap a little.
const FRESH_DISORDER_MAX: Duration = Duration::from_secs(60);
/// The end of a lease from before a restart that is not on record, until the first call that says what time it is.
const NOT_DATED: Timestamp = Timestamp(i64::MAX);

/// A delivery handed out, before its message is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) delivery: Serial,
    pub(super) message: Serial,
    pub(super) fence: Serial,
    pub(super) attempt: u32,
    pub(super) attempts_max: u32,
    pub(super) queued_at: Timestamp,
    pub(super) visible_at: Timestamp,
    pub(super) tracking: Tracking,
    /// What it was before, should it not be handed out after all.
    before: Known,
}

/// A delivery that ends, why, and how often it was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) id: Serial,
    pub(super) reason: DeadReason,
    pub(super) receives: u32,
}

/// An attempt whose time is over without a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lapsed {
    pub(super) id: Serial,
    pub(super) fence: Option<Serial>,
    pub(super) attempts: u32,
    pub(super) tracking: Tracking,
}

/// What a receipt of the newest lease is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) attempts: u32,
    pub(super) attempts_max: u32,
    /// Whether it was not given back since.
    pub(super) is_leased: bool,
    /// Whether it was handed out before the store was opened, and it is not on record that this lease was the last.
    pub(super) is_old: bool,
}

/// What a receive found: leases to hand out, and deliveries that must become dead letters instead.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) leases: Vec<Lease>,
    pub(super) ended: Vec<Ended>,
}

#[derive(Default)]
pub(super) struct Index {
    /// The first is never a hole.
    fresh: VecDeque<Fresh>,
    /// How many of `fresh` were taken out of the middle.
    holes: usize,
    known: BTreeMap<Serial, Known>,
    /// Deliveries of `known` by when they were enqueued.
    by_age: BTreeSet<(Timestamp, Serial)>,
    /// Deliveries of `known` that may be handed out, by since when.
    waiting: BTreeSet<(Timestamp, Serial)>,
    /// Deliveries of `known` that nobody holds and that were handed out as often as may be.
    spent: BTreeSet<(Timestamp, Serial)>,
    /// Deliveries of `known` that were given back for later, by when.
    delayed: BTreeSet<(Timestamp, Serial)>,
    /// Deliveries of `known` that are leased, by when the lease ends.
    leased: BTreeSet<(Timestamp, Serial)>,
    /// Deliveries of `known` that a claim waits for, and whose lease is over: they are handed out again once that is
    /// on record.
    lapsed: BTreeSet<(Timestamp, Serial)>,
    /// Deliveries taken out while their end is being committed; they come back if the commit fails.
    ending: BTreeMap<Serial, Known>,
    pub(super) arrivals: Arc<Notify>,
}

#[derive(Clone, Copy)]
struct Fresh {
    slot: Slot,
    hole: bool,
}

/// The part of a delivery that deciding needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) id: Serial,
    message: Serial,
    pub(super) queued_at: Timestamp,
    pub(super) receives: u32,
    receives_max: u32,
    pub(super) tracking: Tracking,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    slot: Slot,
    fence: Option<Serial>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Visible since.
    Waiting(Timestamp),
    /// Given back, and visible from.
    Delayed(Timestamp),
    /// Hidden until.
    Leased(Timestamp),
    /// The lease is over since, and a claim must be told.
    Lapsed(Timestamp),
}

impl Known {
    /// One that was not handed out in this epoch.
    fn fresh(slot: Slot) -> Self {
        Self { slot, fence: None, state: State::Waiting(slot.queued_at) }
    }

    /// Whether somebody is at it, and a claim waits for what comes of that.
    fn is_in_progress(&self) -> bool {
        self.slot.tracking.is_tracked() && matches!(self.state, State::Leased(_))
    }

    /// What is kept of it, if a claim waits for it.
    fn kept(&self) -> KeptLease {
        let (held, at) = match self.state {
            State::Leased(until) | State::Lapsed(until) => (Some(Held::Leased), until),
            State::Delayed(at) => (Some(Held::Delayed), at),
            State::Waiting(since) => (None, since),
        };
        let Slot { id, receives, .. } = self.slot;
        let visible_at = Some(at).filter(|at| *at != NOT_DATED);
        KeptLease { delivery: id, receives, fence: self.fence, held, visible_at }
    }
}

impl Lease {
    /// What is kept of it, if a claim waits for the delivery.
    pub(super) fn kept(&self) -> KeptLease {
        KeptLease {
            delivery: self.delivery,
            receives: self.attempt,
            fence: Some(self.fence),
            held: Some(Held::Leased),
            visible_at: Some(self.visible_at),
        }
    }

    /// What was kept before it.
    pub(super) fn kept_before(&self) -> KeptLease {
        self.before.kept()
    }
}

impl Slot {
    pub(super) fn of(delivery: &Delivery) -> Self {
        Self {
            id: delivery.id,
            message: delivery.message,
            queued_at: delivery.queued_at,
            receives: delivery.receives,
            receives_max: delivery.receives_max,
            tracking: delivery.tracking,
        }
    }

    fn is_spent(&self) -> bool {
        self.receives >= self.receives_max
    }

    fn ended(&self, now: Timestamp) -> Option<Ended> {
        let reason = Delivery::end_of(self.receives, self.receives_max, self.queued_at, now)?;
        Some(Ended { id: self.id, reason, receives: self.receives })
    }
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.fresh.len() - self.holes + self.known.len()
    }

    /// Adds a delivery whose commit is durable.
    pub(super) fn add(&mut self, slot: Slot) {
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

    /// Adds a delivery that was there when the store was opened. One that a claim waits for is as it was left: who
    /// held it still does (CLM-7). Of the others somebody may still work on the last attempt, and that receipt
    /// stands: it gets a lease's time before it ends.
    pub(super) fn load(&mut self, delivery: &Delivery, lease: &KeptLease) {
        let slot = Slot::of(delivery);
        let state = match (lease.held, lease.visible_at) {
            (Some(Held::Leased), until) if slot.tracking.is_tracked() => {
                State::Leased(until.unwrap_or(NOT_DATED))
            }
            (_, Some(at)) if slot.tracking.is_tracked() => State::Delayed(at),
            _ if slot.is_spent() => State::Leased(NOT_DATED),
            _ => return self.add(slot),
        };
        self.keep(Known { slot, fence: lease.fence, state });
    }

    pub(super) fn receive(
        &mut self,
        max: usize,
        visibility: Duration,
        now: Timestamp,
        numbers: &Numbers,
    ) -> Found {
        self.advance(now);
        let mut found = Found { leases: Vec::new(), ended: self.end_spent(bounds::SWEEP_ROWS_MAX) };
        while found.leases.len() < max && found.ended.len() < bounds::SWEEP_ROWS_MAX && !self.is_full() {
            let Some(known) = self.next() else { break };
            match known.slot.ended(now) {
                Some(ended) => {
                    self.ending.insert(ended.id, known);
                    found.ended.push(ended);
                }
                None => found.leases.push(self.lease(known, numbers.next(), now.plus(visibility))),
            }
        }
        let left_some = found.leases.len() == max || found.ended.len() == bounds::SWEEP_ROWS_MAX;
        if left_some && self.may_hand_out() {
            // Others may be waiting for what this call left.
            self.arrivals.notify_one();
        }
        found
    }

    /// Hands out one delivery, if it may be handed out now.
    pub(super) fn receive_one(
        &mut self,
        id: Serial,
        visibility: Duration,
        now: Timestamp,
        numbers: &Numbers,
    ) -> Option<Lease> {
        self.advance(now);
        let is_waiting = match self.known.get(&id) {
            Some(known) => matches!(known.state, State::Waiting(_)) && known.slot.ended(now).is_none(),
            None => self.place_of(id).is_some(),
        };
        let known = is_waiting.then(|| self.take(id)).flatten()?;
        Some(self.lease(known, numbers.next(), now.plus(visibility)))
    }

    /// Takes out a delivery that was never handed out, and says whether it was there.
    pub(super) fn withdraw(&mut self, id: Serial) -> bool {
        let is_new = match self.known.get(&id) {
            Some(known) => matches!(known.state, State::Waiting(_)) && known.slot.receives == 0,
            None => self.place_of(id).is_some(),
        };
        is_new && self.take(id).is_some()
    }

    /// Who holds a delivery until when, or when it is handed out again.
    pub(super) fn held(&self, id: Serial) -> Option<HeldDelivery> {
        let Some(known) = self.known.get(&id).or_else(|| self.ending.get(&id)) else {
            let place = self.place_of(id)?;
            return self.fresh.get(place).map(|it| HeldDelivery::Due(it.slot.queued_at));
        };
        Some(match (known.state, known.fence) {
            // Until it is on record that an attempt lapsed, its claim knows only older fences.
            (State::Leased(until) | State::Lapsed(until), Some(fence)) => {
                HeldDelivery::Leased { fence, attempt: known.slot.receives, until }
            }
            (State::Waiting(at) | State::Delayed(at) | State::Lapsed(at) | State::Leased(at), _) => {
                HeldDelivery::Due(at)
            }
        })
    }

    /// The deliveries with a lease that lasts, of those that claims wait for; reports on some may be on their way.
    pub(super) fn leased(&self, now: Timestamp) -> impl Iterator<Item = (Serial, HeldDelivery)> {
        let lasting = self.leased.range((now.plus(Duration::from_millis(1)), Serial(i64::MIN))..);
        let ids = lasting.map(|(_, id)| *id).chain(self.ending.keys().copied());
        let tracked = ids.filter(|id| self.tracking(*id).is_some_and(Tracking::is_tracked));
        tracked.filter_map(move |id| match self.held(id)? {
            held @ HeldDelivery::Leased { until, .. } if now < until => Some((id, held)),
            _ => None,
        })
    }

    /// How a delivery is followed, if it is there.
    pub(super) fn tracking(&self, id: Serial) -> Option<Tracking> {
        let known = self.known.get(&id).or_else(|| self.ending.get(&id)).map(|it| it.slot);
        let fresh = || self.place_of(id).and_then(|place| self.fresh.get(place)).map(|it| it.slot);
        known.or_else(fresh).map(|slot| slot.tracking)
    }

    /// How often a delivery was handed out, if it is there, and the newest lease of it that is known.
    pub(super) fn handed_out(&self, id: Serial) -> Option<(u32, Option<Serial>)> {
        let known = self.known.get(&id).or_else(|| self.ending.get(&id))?;
        Some((known.slot.receives, known.fence))
    }

    /// Takes out what a receipt of the newest lease is about, until it is on record what came of it.
    pub(super) fn take_shown(&mut self, receipt: Receipt, began: Serial) -> Option<Shown> {
        let (id, was_full) = (receipt.delivery_id, self.is_full());
        if self.judge(receipt, began) != ReceiptOutcome::Done || !self.begin_end(id) {
            return None;
        }
        if was_full && !self.is_full() {
            self.arrivals.notify_one();
        }
        self.ending.get(&id).map(|known| Shown {
            // A receipt from before a restart may be of an attempt whose count was not kept.
            attempts: known.slot.receives.max(1),
            attempts_max: known.slot.receives_max,
            is_leased: matches!(known.state, State::Leased(_) | State::Lapsed(_)),
            is_old: known.fence != Some(receipt.fence),
        })
    }

    /// Puts back what was taken out, to be handed out from then on.
    pub(super) fn resume(&mut self, id: Serial, at: Timestamp) {
        if let Some(known) = self.ending.remove(&id) {
            self.keep(Known { state: State::Delayed(at), ..known });
            self.arrivals.notify_one();
        }
    }

    /// Takes out some of those whose attempt's time is over, until that is on record.
    pub(super) fn take_lapsed(&mut self, now: Timestamp, limit: usize) -> Vec<Lapsed> {
        self.advance(now);
        let some: Vec<_> = self.lapsed.iter().take(limit).map(|(_, id)| *id).collect();
        let take = |id: Serial| {
            let known = self.take(id)?;
            self.ending.insert(id, known);
            let Slot { receives, tracking, .. } = known.slot;
            Some(Lapsed { id, fence: known.fence, attempts: receives, tracking })
        };
        some.into_iter().filter_map(take).collect()
    }

    /// Takes back what was not handed out after all, as it was, and says which.
    pub(super) fn take_back(&mut self, leases: Vec<Lease>) -> Vec<Lease> {
        let take_back = |lease: &Lease| {
            let unchanged = self.known.get(&lease.delivery).is_some_and(|it| it.fence == Some(lease.fence));
            let is_back = unchanged && self.take(lease.delivery).is_some();
            if is_back {
                self.keep(lease.before);
            }
            is_back
        };
        let back = leases.into_iter().filter(take_back).collect();
        self.arrivals.notify_one();
        back
    }

    /// Takes back what is handed out under this receipt, hidden until then and as often handed out as before, and says how it
    /// stands.
    pub(super) fn hand_back(
        &mut self,
        receipt: Receipt,
        began: Serial,
        visible_at: Timestamp,
    ) -> Option<(Tracking, KeptLease)> {
        let id = receipt.delivery_id;
        if self.judge(receipt, began) != ReceiptOutcome::Done {
            return None;
        }
        let there = self.known.get(&id)?;
        match there.state {
            State::Leased(_) => {}
            // Told again: it may not be on record yet.
            State::Delayed(_) | State::Waiting(_) => return Some((there.slot.tracking, there.kept())),
            State::Lapsed(_) => return None,
        }
        let known = self.take(id)?;
        let slot = Slot { receives: known.slot.receives.saturating_sub(1), ..known.slot };
        let back = Known { slot, fence: Some(receipt.fence), state: State::Delayed(visible_at) };
        self.keep(back);
        Some((slot.tracking, back.kept()))
    }

    /// Judges a receipt and takes out what it ends. The id is to be deleted also where the end is under way
    /// already: only a commit of one's own can say that it is gone.
    pub(super) fn end(&mut self, receipt: Receipt, began: Serial) -> (ReceiptOutcome, Option<Serial>) {
        let id = receipt.delivery_id;
        let was_full = self.is_full();
        let answer = match self.judge(receipt, began) {
            ReceiptOutcome::Done if self.ending.contains_key(&id) => (ReceiptOutcome::Gone, Some(id)),
            ReceiptOutcome::Done if self.begin_end(id) => (ReceiptOutcome::Done, Some(id)),
            ReceiptOutcome::Done => (ReceiptOutcome::Gone, None),
            other => (other, None),
        };
        if was_full && !self.is_full() {
            self.arrivals.notify_one();
        }
        answer
    }

    /// Puts back what could not be ended.
    pub(super) fn put_back(&mut self, ids: &[Serial]) {
        for id in ids {
            if let Some(known) = self.ending.remove(id) {
                self.keep(known);
            }
        }
        self.arrivals.notify_one();
    }

    /// Forgets what has ended for good, also where another's failure had put it back.
    pub(super) fn forget(&mut self, ids: &[Serial]) {
        for id in ids {
            if self.ending.remove(id).is_none() {
                self.take(*id);
            }
        }
    }

    pub(super) fn change(&mut self, receipt: Receipt, began: Serial, state: State) -> ReceiptOutcome {
        match self.judge(receipt, began) {
            ReceiptOutcome::Done => match self.take(receipt.delivery_id) {
                Some(known) => {
                    self.keep(Known { state, fence: Some(receipt.fence), ..known });
                    ReceiptOutcome::Done
                }
                None => ReceiptOutcome::Gone,
            },
            other => other,
        }
    }

    /// How a delivery stands that a claim waits for, to be kept.
    pub(super) fn kept(&self, id: Serial) -> Option<(Tracking, KeptLease)> {
        let known = self.known.get(&id).filter(|it| it.slot.tracking.is_tracked())?;
        Some((known.slot.tracking, known.kept()))
    }

    /// Takes out what must become a dead letter.
    pub(super) fn end_overdue(&mut self, now: Timestamp, limit: usize) -> Vec<Ended> {
        self.advance(now);
        let mut ended = self.end_spent(limit);
        let is_over = |at: Timestamp| now.since(at) >= bounds::QUEUE_RETENTION;
        let known = self.by_age.iter().take_while(|(at, _)| is_over(*at));
        let known = known.filter_map(|(_, id)| self.known.get(id));
        let known = known.filter(|it| matches!(it.state, State::Waiting(_))).map(|it| it.slot);
        // `fresh` is ordered by age: the first that has not ended ends the search.
        let fresh = self.fresh.iter().filter(|it| !it.hole).map(|it| it.slot);
        let fresh = fresh.take_while(|it| is_over(it.queued_at));
        let old = known.chain(fresh).filter_map(|slot| slot.ended(now));
        let old: Vec<_> = old.take(limit - ended.len()).collect();
        ended.extend(old.into_iter().filter(|it| self.begin_end(it.id)));
        ended
    }

    /// Whether a receive would hand something out.
    pub(super) fn may_hand_out(&self) -> bool {
        let is_some_visible = !self.fresh.is_empty() || !self.waiting.is_empty();
        is_some_visible && !self.is_full()
    }

    pub(super) fn attributes(&mut self, now: Timestamp) -> QueueAttributes {
        self.advance(now);
        let known = self.by_age.first().map(|(at, _)| *at);
        let fresh = self.fresh.front().map(|fresh| fresh.slot.queued_at);
        let oldest = known.into_iter().chain(fresh).min();
        QueueAttributes {
            depth: (self.len() - self.leased.len() - self.delayed.len()) as u64,
            in_flight: self.leased.len() as u64,
            delayed: self.delayed.len() as u64,
            oldest_age_seconds: oldest.map_or(0, |oldest| now.since(oldest).as_secs()),
            dead_letters: 0,
        }
    }

    fn is_full(&self) -> bool {
        self.leased.len() >= bounds::QUEUE_IN_FLIGHT_MAX
    }

    /// Makes visible whatever has become so: each delivery once per lease or delay.
    fn advance(&mut self, now: Timestamp) {
        while let Some(&(NOT_DATED, id)) = self.leased.last() {
            self.move_to(id, State::Leased(now.plus(bounds::VISIBILITY_DEFAULT)));
        }
        while let Some(&(until, id)) = self.leased.first().filter(|(until, _)| *until <= now) {
            let is_tracked = self.known.get(&id).is_some_and(|it| it.slot.tracking.is_tracked());
            self.move_to(id, if is_tracked { State::Lapsed(until) } else { State::Waiting(until) });
        }
        while let Some(&(at, id)) = self.delayed.first().filter(|(at, _)| *at <= now) {
            self.move_to(id, State::Waiting(at));
        }
    }

    fn move_to(&mut self, id: Serial, state: State) {
        if let Some(known) = self.take(id) {
            self.keep(Known { state, ..known });
        }
    }

    fn keep(&mut self, known: Known) {
        let id = known.slot.id;
        let (set, at) = self.set_of(&known);
        set.insert((at, id));
        self.by_age.insert((known.slot.queued_at, id));
        self.known.insert(id, known);
    }

    fn take(&mut self, id: Serial) -> Option<Known> {
        if let Some(known) = self.known.remove(&id) {
            let (set, at) = self.set_of(&known);
            set.remove(&(at, id));
            self.by_age.remove(&(known.slot.queued_at, id));
            return Some(known);
        }
        let fresh = self.place_of(id).and_then(|place| self.fresh.get_mut(place))?;
        fresh.hole = true;
        let slot = fresh.slot;
        self.holes += 1;
        self.drop_holes();
        Some(Known::fresh(slot))
    }

    fn set_of(&mut self, known: &Known) -> (&mut BTreeSet<(Timestamp, Serial)>, Timestamp) {
        match known.state {
            State::Waiting(since) if known.slot.is_spent() => (&mut self.spent, since),
            State::Waiting(since) => (&mut self.waiting, since),
            State::Delayed(at) => (&mut self.delayed, at),
            State::Leased(until) => (&mut self.leased, until),
            State::Lapsed(since) => (&mut self.lapsed, since),
        }
    }

    /// Where in `fresh` a delivery is.
    fn place_of(&self, id: Serial) -> Option<usize> {
        let place = self.fresh.binary_search_by_key(&id, |fresh| fresh.slot.id).ok()?;
        self.fresh.get(place).filter(|fresh| !fresh.hole).map(|_| place)
    }

    fn drop_holes(&mut self) {
        while self.fresh.front().is_some_and(|fresh| fresh.hole) {
            self.fresh.pop_front();
            self.holes -= 1;
        }
    }

    fn judge(&self, receipt: Receipt, began: Serial) -> ReceiptOutcome {
        let id = receipt.delivery_id;
        let newest = match self.known.get(&id).or_else(|| self.ending.get(&id)) {
            Some(known) => known.fence,
            None if self.place_of(id).is_some() => None,
            None => return ReceiptOutcome::Gone,
        };
        check_receipt(receipt, newest, began)
    }

    fn begin_end(&mut self, id: Serial) -> bool {
        let taken = self.take(id);
        self.ending.extend(taken.map(|known| (id, known)));
        taken.is_some()
    }

    fn end_spent(&mut self, limit: usize) -> Vec<Ended> {
        let mut ended = Vec::new();
        while ended.len() < limit
            && let Some(&(_, id)) = self.spent.first()
            && let Some(known) = self.take(id)
        {
            let reason = DeadReason::ReceivesExhausted;
            ended.push(Ended { id, reason, receives: known.slot.receives });
            self.ending.insert(id, known);
        }
        ended
    }

    /// The next delivery to hand out: those given back first, they are the older ones.
    fn next(&mut self) -> Option<Known> {
        if let Some(&(_, id)) = self.waiting.first() {
            return self.take(id);
        }
        let fresh = self.fresh.pop_front()?;
        self.drop_holes();
        Some(Known::fresh(fresh.slot))
    }

    fn lease(&mut self, before: Known, fence: Serial, until: Timestamp) -> Lease {
        let slot = Slot { receives: before.slot.receives + 1, ..before.slot };
        self.keep(Known { slot, fence: Some(fence), state: State::Leased(until) });
        Lease {
            delivery: slot.id,
            message: slot.message,
            fence,
            attempt: slot.receives,
            attempts_max: slot.receives_max,
            queued_at: slot.queued_at,
            visible_at: until,
            tracking: slot.tracking,
            before,
        }
    }
}
