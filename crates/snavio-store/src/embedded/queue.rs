//! What may be received now: an index in memory over table `delivery`, rebuilt at start.
//!
//! A delivery enters after its commit, so nothing is handed out that a crash could take back. Leases live here, and
//! those of deliveries that a claim waits for are kept besides; they and receive counts ride a later commit. What ends
//! leaves at once and is forgotten once that is durable.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use snavio_model::delivery::{DeadReason, Delivery, QueueAttributes, Receipt, ReceiptOutcome, Tracking};
use snavio_model::id::Serial;
use snavio_model::limits;
use snavio_model::name::QueueKey;
use snavio_model::order::{EntityKey, Lane};
use snavio_model::time::Timestamp;
use tokio::sync::Notify;

use super::index::{Ended, Found, Index, Lapsed, Lease, Shown, State};
use super::lanes::Lanes;
use super::numbers::Numbers;
use crate::HeldDelivery;
use crate::lease::KeptLease;

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
                self.lanes.add(delivery.clone(), lane);
                self.step(&lane.key);
            }
            None => self.show(delivery),
        }
    }

    fn show(&mut self, delivery: &Delivery) {
        let index = self.queue(&delivery.queue);
        index.add(delivery);
        index.arrivals.notify_one();
    }

    /// Lets the next one of a lane into its queue, if its turn has come.
    fn step(&mut self, key: &EntityKey) {
        if let Some(front) = self.lanes.overtaken(key) {
            let (queue, id) = (front.queue.clone(), front.id);
            if self.queue(&queue).withdraw(id) {
                self.lanes.step_back(key);
            }
        }
        if let Some(delivery) = self.lanes.step(key) {
            self.show(&delivery);
        }
    }

    /// Adds a delivery that was there when the store was opened. Of a lane the one comes first that was handed out; the
    /// others follow when all are there.
    pub(super) fn load(&mut self, delivery: &Delivery, lease: &KeptLease) {
        if let Some(lane) = &delivery.lane {
            let was_handed_out = delivery.receives > 0 || lease.fence.is_some();
            if !was_handed_out || !self.lanes.add_in_front(delivery, lane) {
                return self.lanes.add(delivery.clone(), lane);
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
        self.lanes.lane_of(id).filter(|it| it.parks.is_some()).cloned()
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
        let behind = || self.lanes.find_behind(id).filter(|it| it.queue == *key).map(|it| it.tracking);
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
        let behind = behind.map(|it| HeldDelivery::Due(it.queued_at));
        of_tenant.into_iter().find_map(|(_, index)| index.held(id)).or(behind)
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

    /// Takes out some of what has a number up to this one, to be deleted.
    pub(super) fn end_up_to(&mut self, key: &QueueKey, up_to: Serial, limit: usize) -> Vec<Serial> {
        let mut ids = self.queue(key).end_up_to(up_to, limit);
        let behind = self.lanes.by_age(key).map(|(_, id)| id).filter(|id| *id <= up_to);
        ids.extend(behind.take(limit - ids.len()));
        ids
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
            let of_queue = self.overdue_behind(&key, now, room);
            if !of_queue.is_empty() {
                room -= of_queue.len();
                ended.push((key, of_queue));
            }
        }
        ended
    }

    /// Those that stand behind others and that nobody took in time. They stay here until their end is durable.
    fn overdue_behind(&self, key: &QueueKey, now: Timestamp, limit: usize) -> Vec<Ended> {
        let is_over = |at: Timestamp| now.since(at) >= limits::QUEUE_RETENTION;
        let old = self.lanes.by_age(key).take_while(|(at, _)| is_over(*at)).take(limit);
        let ended = |(_, id)| {
            let receives = self.lanes.find_behind(id)?.receives;
            Some(Ended { id, reason: DeadReason::RetentionExpired, receives })
        };
        old.filter_map(ended).collect()
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
mod tests {
    use super::*;
    use crate::lease::Held;

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
            tracking: Tracking::Plain,
            lane: None,
        }
    }

    fn queues(ids: impl IntoIterator<Item = i64>) -> Queues {
        let mut queues = Queues::new(1000, Arc::new(Numbers::of_epoch(1)));
        for id in ids {
            queues.add(&delivery(id));
        }
        queues
    }

    fn load(queues: &mut Queues, delivery: Delivery, (held, until): (Option<Held>, Option<i64>)) {
        let fence = until.map(|_| Serial(500));
        let (receives, visible_at) = (delivery.receives, until.map(at));
        queues.load(&delivery, &KeptLease { delivery: delivery.id, receives, fence, held, visible_at });
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
        assert_eq!(queues.end(&key(), &[receipt(&first)]).0, [ReceiptOutcome::Fenced]);
        assert_eq!(queues.end(&key(), &[receipt(&second)]).0, [ReceiptOutcome::Done]);
        assert_eq!(queues.end(&key(), &[receipt(&second)]).0, [ReceiptOutcome::Gone]);
    }

    /// DLV-3
    #[test]
    fn only_a_receipt_that_was_given_out_ends_a_delivery() {
        let mut queues = queues([1, 2]);
        let began = queues.began;
        let lease = queues.receive(&key(), 1, VISIBILITY, at(0)).leases[0];
        let forged = Receipt { fence: Serial(lease.fence.0 + 1), ..receipt(&lease) };
        assert_eq!(queues.end(&key(), &[forged]).0, [ReceiptOutcome::Fenced]);
        for fence in [began.next(), Serial(2), Serial(1)] {
            let forged = Receipt { delivery_id: Serial(2), fence };
            assert_eq!(queues.end(&key(), &[forged]).0, [ReceiptOutcome::Fenced], "{fence}");
        }
        assert_eq!(queues.end(&key(), &[receipt(&lease)]).0, [ReceiptOutcome::Done]);
    }

    /// DLV-3: what is told to be gone is gone for good.
    #[test]
    fn a_second_receipt_is_answered_by_a_commit_of_its_own() {
        let mut queues = queues([1]);
        let lease = receive(&mut queues, 0)[0];
        let (first, second) =
            (queues.end(&key(), &[receipt(&lease)]), queues.end(&key(), &[receipt(&lease)]));
        assert_eq!(first, (vec![ReceiptOutcome::Done], vec![Serial(1)]));
        assert_eq!(second, (vec![ReceiptOutcome::Gone], vec![Serial(1)]), "it is deleted again");
        // The first fails, the second is durable: it stays gone.
        queues.put_back(&key(), &first.1);
        queues.forget(&key(), &second.1);
        assert!(receive(&mut queues, 60).is_empty());
    }

    /// DLV-2
    #[test]
    fn what_is_not_handed_out_after_all_is_as_it_was() {
        let mut queues = queues([1, 2]);
        let first = receive(&mut queues, 0);
        let second = receive(&mut queues, 30);
        assert_eq!(second.len(), 2);
        queues.take_back(&key(), second.clone());
        assert_eq!(
            queues.end(&key(), &[receipt(&first[0])]).0,
            [ReceiptOutcome::Done],
            "its fence stands again"
        );
        let third = receive(&mut queues, 30);
        assert_eq!((third.len(), third[0].attempt), (1, 2), "and no attempt is spent");
        assert_eq!(queues.take_back(&key(), second), []);
        assert!(receive(&mut queues, 31).is_empty(), "what was leased since is not taken back");
    }

    /// DLV-2
    #[test]
    fn a_purge_takes_what_was_there_in_bounded_steps() {
        let mut queues = queues(1..=9);
        let lease = queues.receive(&key(), 2, VISIBILITY, at(0)).leases[0];
        let acknowledged = queues.end(&key(), &[receipt(&lease)]).1;
        let mut purged = Vec::new();
        loop {
            let some = queues.end_up_to(&key(), Serial(8), 3);
            if some.is_empty() {
                break;
            }
            assert!(some.len() <= 3);
            queues.forget(&key(), &some);
            purged.extend(some.iter().map(|id| id.0));
        }
        assert_eq!(purged, [1, 2, 3, 4, 5, 6, 7, 8]);
        // An acknowledgement that fails once the purge is durable brings nothing back.
        queues.put_back(&key(), &acknowledged);
        let left: Vec<_> = receive(&mut queues, 60).iter().map(|lease| lease.delivery.0).collect();
        assert_eq!(left, [9]);
    }

    /// DLV-2
    #[test]
    fn the_last_attempt_from_before_a_restart_has_a_leases_time_to_end_well() {
        let seconds = i64::try_from(limits::VISIBILITY_DEFAULT.as_secs()).unwrap();
        let mut queues = queues([]);
        for id in [1, 2] {
            load(&mut queues, Delivery { receives: 2, ..delivery(id) }, (None, None));
        }
        assert!(queues.sweep(at(1000), 10).is_empty());
        assert!(receive(&mut queues, 1000).is_empty(), "nor is it handed out");
        let old = Receipt { delivery_id: Serial(1), fence: Serial(500) };
        assert_eq!(queues.end(&key(), &[old]).0, [ReceiptOutcome::Done]);
        assert!(queues.sweep(at(1000 + seconds - 1), 10).is_empty());
        assert_eq!(queues.sweep(at(1000 + seconds), 10)[0].1.len(), 1);
    }

    /// CLM-7
    #[test]
    fn a_lease_that_is_on_record_lasts_as_long_as_it_did() {
        let tracked = |id| Delivery { tracking: Tracking::Retry, receives: 1, ..delivery(id) };
        let mut queues = queues([]);
        load(&mut queues, tracked(1), (Some(Held::Leased), Some(1100)));
        load(&mut queues, tracked(2), (Some(Held::Delayed), Some(1050)));
        // Handed out before leases were kept: it has the usual time.
        load(&mut queues, tracked(3), (Some(Held::Leased), None));
        assert!(receive(&mut queues, 1000).is_empty());
        let lease = HeldDelivery::Leased { fence: Serial(500), attempt: 1, until: at(1100) };
        assert_eq!(queues.held("acme", Serial(1)), Some(lease));
        let lapsed = |queues: &mut Queues, now| {
            let lapsed = queues.take_lapsed(at(now), 10);
            lapsed.iter().flat_map(|(_, it)| it).map(|it| (it.id.0, it.fence)).collect::<Vec<_>>()
        };
        assert_eq!(lapsed(&mut queues, 1029), []);
        assert_eq!(lapsed(&mut queues, 1030), [(3, None)]);
        assert!(receive(&mut queues, 1049).is_empty());
        let second = receive(&mut queues, 1050)[0];
        assert_eq!((second.delivery, second.attempt), (Serial(2), 2));
        assert_eq!(lapsed(&mut queues, 1100), [(2, Some(second.fence)), (1, Some(Serial(500)))]);
    }

    /// CLM-7
    #[test]
    fn a_receipt_from_before_a_restart_is_judged_by_the_lease_on_record() {
        let mut queues = queues([]);
        let tracked = Delivery { tracking: Tracking::Retry, receives: 1, ..delivery(1) };
        load(&mut queues, tracked, (Some(Held::Leased), Some(1100)));
        let shown = |queues: &mut Queues, fence| {
            queues.take_shown(&key(), Receipt { delivery_id: Serial(1), fence: Serial(fence) })
        };
        assert_eq!(shown(&mut queues, 499), None, "that one was over");
        assert!(shown(&mut queues, 500).is_some_and(|it| !it.is_old));
        queues.put_back(&key(), &[Serial(1)]);
        assert!(shown(&mut queues, 501).is_some_and(|it| it.is_old), "the record of a later one may be lost");
        queues.put_back(&key(), &[Serial(1)]);
        let extending = Receipt { delivery_id: Serial(1), fence: Serial(501) };
        let (outcomes, kept) = queues.extend(&key(), &[extending], at(2000));
        assert_eq!((outcomes, kept[0].1.fence), (vec![ReceiptOutcome::Done], Some(Serial(501))));
        assert_eq!(shown(&mut queues, 500), None, "it was not the last");
    }

    fn is_woken(arrivals: &Notify) -> bool {
        let notified = std::pin::pin!(arrivals.notified());
        notified.enable()
    }

    /// DLV-2
    #[test]
    fn a_wake_up_is_passed_on_only_when_there_is_more_to_hand_out() {
        let most = i64::try_from(limits::QUEUE_IN_FLIGHT_MAX).unwrap();
        let mut queues = queues(1..=most + 2);
        let arrivals = queues.arrivals(&key());
        assert!(is_woken(&arrivals));
        queues.receive(&key(), 1, VISIBILITY, at(0));
        assert!(is_woken(&arrivals), "there is more");
        let leases = queues.receive(&key(), limits::QUEUE_IN_FLIGHT_MAX, VISIBILITY, at(0)).leases;
        assert_eq!(leases.len(), limits::QUEUE_IN_FLIGHT_MAX - 1);
        assert!(!is_woken(&arrivals), "there is more, and it may not be handed out");
        assert!(receive(&mut queues, 1).is_empty());
        assert!(!is_woken(&arrivals), "or those who wait would wake each other for nothing");
        queues.end(&key(), &[receipt(&leases[0])]);
        assert!(is_woken(&arrivals), "now it may");
    }

    /// DLV-2
    #[test]
    fn a_receive_ends_a_bounded_number() {
        let past = 15 * 86_400;
        let most = limits::SWEEP_ROWS_MAX;
        let mut queues = queues(1..=i64::try_from(most).unwrap() + 5);
        let arrivals = queues.arrivals(&key());
        assert_eq!(queues.receive(&key(), 10, VISIBILITY, at(past)).ended.len(), most);
        assert!(is_woken(&arrivals), "the next one goes on");
        assert_eq!(queues.receive(&key(), 10, VISIBILITY, at(past)).ended.len(), 5);
    }

    /// DLV-2
    #[test]
    fn extension_keeps_it_hidden_and_release_gives_it_back_after_its_delay() {
        let mut queues = queues([1]);
        let lease = receive(&mut queues, 0)[0];
        let extended = queues.extend(&key(), &[receipt(&lease)], at(100));
        assert_eq!(extended, (vec![ReceiptOutcome::Done], vec![]), "and nothing of it is kept");
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
        assert_eq!(found.ended, [1, 2].map(|id| Ended { id: Serial(id), reason, receives: 2 }));
    }

    /// DLV-2
    #[test]
    fn what_nobody_takes_ends_with_its_retention() {
        let mut queues = queues([1, 2]);
        let almost = 14 * 86_400 - 1;
        assert!(queues.sweep(at(almost), 10).is_empty());
        let ended = queues.sweep(at(almost + 1), 1);
        let first = Ended { id: Serial(1), reason: DeadReason::RetentionExpired, receives: 0 };
        assert_eq!(ended, [(key(), vec![first])]);
        assert_eq!(queues.len(), 1);
    }

    /// DLV-3
    #[test]
    fn an_acknowledgement_from_before_a_restart_ends_the_delivery() {
        let mut queues = queues([1, 2, 3]);
        let old = Receipt { delivery_id: Serial(2), fence: Serial(500) };
        assert_eq!(queues.end(&key(), &[old]).0, [ReceiptOutcome::Done]);
        let rest: Vec<_> = receive(&mut queues, 0).iter().map(|lease| lease.delivery.0).collect();
        assert_eq!(rest, [1, 3]);
        assert_eq!(queues.len(), 2);
    }

    #[test]
    fn what_could_not_be_ended_comes_back() {
        let mut queues = queues([1]);
        let lease = receive(&mut queues, 0)[0];
        let (_, taken) = queues.end(&key(), &[receipt(&lease)]);
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
        queues.end(&key(), &[receipt(&lease)]);
        assert_eq!(queues.room(&key()), 1);
    }
}
