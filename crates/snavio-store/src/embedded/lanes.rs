//! Lanes in memory: of the deliveries of one entity at most one is in its queue's index, the others stand behind it here
//! (ORD-3). The lowest number comes first; one that was handed out stays in front until it has ended.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use snavio_model::delivery::Delivery;
use snavio_model::id::Serial;
use snavio_model::name::QueueKey;
use snavio_model::order::{EntityKey, Lane};
use snavio_model::time::Timestamp;

/// All lanes of the store.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: HashMap<EntityKey, OneLane>,
    /// The lane of each delivery that is in one, in front or behind, and its number there.
    of: HashMap<Serial, (EntityKey, i64)>,
    /// Those that stand behind, by queue and age.
    behind: HashMap<QueueKey, BTreeSet<(Timestamp, Serial)>>,
}

#[derive(Default)]
struct OneLane {
    /// The one that is in its queue's index, or on its way out of it.
    front: Option<Delivery>,
    /// The others, by their numbers.
    behind: BTreeMap<(i64, Serial), Delivery>,
    /// Those of the others whose end is being committed; they come back if the commit fails, and until then nothing
    /// passes them.
    leaving: BTreeMap<(i64, Serial), Delivery>,
    /// The number that failed for good: those above it stay.
    parked_at: Option<i64>,
}

impl OneLane {
    /// The next one to be handed out.
    fn next(&self) -> Option<(i64, Serial)> {
        let waits = |it: &Delivery| it.lane.as_ref().is_some_and(|lane| lane.waits);
        // However many queue behind a parked one, they are not looked at; of those that wait there are few.
        let highest = (self.parked_at.unwrap_or(i64::MAX), Serial(i64::MAX));
        let highest = self.leaving.keys().next().map_or(highest, |leaving| highest.min(*leaving));
        self.behind.range(..=highest).find(|(_, it)| !waits(it)).map(|(key, _)| *key)
    }

    fn find_behind(&self, number: i64, id: Serial) -> Option<&Delivery> {
        self.behind.get(&(number, id)).or_else(|| self.leaving.get(&(number, id)))
    }

    fn is_idle(&self) -> bool {
        self.front.is_none() && self.behind.is_empty() && self.leaving.is_empty() && self.parked_at.is_none()
    }
}

impl Lanes {
    /// Adds a delivery behind all others of its lane.
    pub(super) fn add(&mut self, delivery: Delivery, lane: &Lane) {
        self.of.insert(delivery.id, (lane.key.clone(), lane.number));
        let one = self.lanes.entry(lane.key.clone()).or_default();
        Self::put_behind(&mut self.behind, one, delivery, lane.number);
    }

    fn put_behind(
        behind: &mut HashMap<QueueKey, BTreeSet<(Timestamp, Serial)>>,
        one: &mut OneLane,
        delivery: Delivery,
        number: i64,
    ) {
        behind.entry(delivery.queue.clone()).or_default().insert((delivery.queued_at, delivery.id));
        one.behind.insert((number, delivery.id), delivery);
    }

    /// Puts a delivery in front of its lane that somebody may have already; false if somebody has another one.
    pub(super) fn add_in_front(&mut self, delivery: &Delivery, lane: &Lane) -> bool {
        let one = self.lanes.entry(lane.key.clone()).or_default();
        let is_free = one.front.is_none();
        if is_free {
            self.of.insert(delivery.id, (lane.key.clone(), lane.number));
            one.front = Some(delivery.clone());
        }
        is_free
    }

    /// The one in front that a lower one has come behind, if it was never handed out: the two may change places.
    pub(super) fn overtaken(&self, key: &EntityKey) -> Option<&Delivery> {
        let one = self.lanes.get(key)?;
        let front = one.front.as_ref()?;
        let number = front.lane.as_ref()?.number;
        (one.next()? < (number, front.id)).then_some(front)
    }

    /// Takes back the one in front, which its index has let go.
    pub(super) fn step_back(&mut self, key: &EntityKey) {
        let Some(one) = self.lanes.get_mut(key) else { return };
        let Some(front) = one.front.take() else { return };
        let number = front.lane.as_ref().map_or(0, |it| it.number);
        Self::put_behind(&mut self.behind, one, front, number);
    }

    /// The delivery that comes in front of a lane now, if the place is free.
    pub(super) fn step(&mut self, key: &EntityKey) -> Option<Delivery> {
        let one = self.lanes.get_mut(key)?;
        let next = if one.front.is_none() { one.next() } else { None };
        let delivery = next.and_then(|next| one.behind.remove(&next));
        if let Some(delivery) = &delivery {
            one.front = Some(delivery.clone());
            self.leave(&delivery.queue, delivery.queued_at, delivery.id);
        } else if one.is_idle() {
            self.lanes.remove(key);
        }
        delivery
    }

    fn leave(&mut self, queue: &QueueKey, queued_at: Timestamp, id: Serial) {
        if let Some(of_queue) = self.behind.get_mut(queue) {
            of_queue.remove(&(queued_at, id));
            if of_queue.is_empty() {
                self.behind.remove(queue);
            }
        }
    }

    /// Forgets a delivery that has ended, and says whose lane it was in.
    pub(super) fn ended(&mut self, id: Serial) -> Option<EntityKey> {
        let (key, number) = self.of.remove(&id)?;
        let one = self.lanes.get_mut(&key)?;
        if one.front.as_ref().is_some_and(|it| it.id == id) {
            one.front = None;
            return Some(key);
        }
        if one.leaving.remove(&(number, id)).is_none()
            && let Some(delivery) = one.behind.remove(&(number, id))
        {
            self.leave(&delivery.queue, delivery.queued_at, id);
        }
        Some(key)
    }

    /// Takes out one that stands behind others, until its end is on record, and says how often it was handed out.
    pub(super) fn begin_end(&mut self, id: Serial) -> Option<u32> {
        let (key, number) = self.of.get(&id)?;
        let one = self.lanes.get_mut(key)?;
        let delivery = one.behind.remove(&(*number, id))?;
        let (queue, queued_at, receives) = (delivery.queue.clone(), delivery.queued_at, delivery.receives);
        one.leaving.insert((*number, id), delivery);
        self.leave(&queue, queued_at, id);
        Some(receives)
    }

    /// Puts back what could not be ended, and says in whose lane.
    pub(super) fn put_back(&mut self, id: Serial) -> Option<EntityKey> {
        let (key, number) = self.of.get(&id)?;
        let one = self.lanes.get_mut(key)?;
        let delivery = one.leaving.remove(&(*number, id))?;
        Self::put_behind(&mut self.behind, one, delivery, *number);
        Some(key.clone())
    }

    /// One that waited may go.
    pub(super) fn release(&mut self, key: &EntityKey, number: i64) {
        let Some(one) = self.lanes.get_mut(key) else { return };
        let all = (number, Serial(i64::MIN))..=(number, Serial(i64::MAX));
        for (_, delivery) in one.behind.range_mut(all.clone()).chain(one.leaving.range_mut(all)) {
            if let Some(lane) = &mut delivery.lane {
                lane.waits = false;
            }
        }
    }

    /// Later ones stay behind a number from now on, or go on again.
    pub(super) fn park(&mut self, key: &EntityKey, parked_at: Option<i64>) {
        self.lanes.entry(key.clone()).or_default().parked_at = parked_at;
    }

    /// How many are in a lane, in front or behind.
    pub(super) fn len_of(&self, key: &EntityKey) -> usize {
        let len = |one: &OneLane| one.behind.len() + one.leaving.len() + usize::from(one.front.is_some());
        self.lanes.get(key).map_or(0, len)
    }

    pub(super) fn keys(&self) -> Vec<EntityKey> {
        self.lanes.keys().cloned().collect()
    }

    /// Whether no delivery is in a lane.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// The lane of a delivery.
    pub(super) fn lane_of(&self, id: Serial) -> Option<&Lane> {
        self.find(id).and_then(|it| it.lane.as_deref())
    }

    /// A delivery that is in a lane.
    fn find(&self, id: Serial) -> Option<&Delivery> {
        let (key, number) = self.of.get(&id)?;
        let one = self.lanes.get(key)?;
        one.front.as_ref().filter(|it| it.id == id).or_else(|| one.find_behind(*number, id))
    }

    /// A delivery that stands behind others, or is on its way out from there.
    pub(super) fn find_behind(&self, id: Serial) -> Option<&Delivery> {
        let (key, number) = self.of.get(&id)?;
        self.lanes.get(key)?.find_behind(*number, id)
    }

    /// How many stand behind others in a queue.
    pub(super) fn behind_in(&self, queue: &QueueKey) -> usize {
        self.behind.get(queue).map_or(0, BTreeSet::len)
    }

    pub(super) fn behind(&self) -> usize {
        self.behind.values().map(BTreeSet::len).sum()
    }

    /// Queues in which any stand behind others.
    pub(super) fn queues(&self) -> Vec<QueueKey> {
        self.behind.keys().cloned().collect()
    }

    /// Those that stand behind others in a queue, oldest first.
    pub(super) fn by_age(&self, queue: &QueueKey) -> impl Iterator<Item = (Timestamp, Serial)> {
        self.behind.get(queue).into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use snavio_model::delivery::Tracking;
    use snavio_model::order::NumberKind;

    use super::*;

    fn key() -> EntityKey {
        EntityKey::stored("acme acme/bot:pay order-1").unwrap()
    }

    fn delivery(number: i64, waits: bool) -> Delivery {
        let parks = Some(Duration::from_secs(60));
        Delivery {
            id: Serial(100 - number),
            message: Serial(1),
            destination: "acme/bot:pay".into(),
            queue: QueueKey::stored("acme/pay"),
            dead_letter_queue: QueueKey::stored("acme/dead"),
            queued_at: Timestamp(number),
            receives: 0,
            receives_max: 3,
            tracking: Tracking::Plain,
            lane: Some(Box::new(Lane { key: key(), number, kind: NumberKind::Sequence, parks, waits })),
        }
    }

    fn add(lanes: &mut Lanes, number: i64, waits: bool) {
        let it = delivery(number, waits);
        let lane = it.lane.clone().unwrap();
        lanes.add(it, &lane);
    }

    fn step(lanes: &mut Lanes) -> Option<i64> {
        lanes.step(&key()).and_then(|it| it.lane).map(|it| it.number)
    }

    /// ORD-3
    #[test]
    fn one_of_a_lane_is_in_front_and_the_lowest_is_next() {
        let mut lanes = Lanes::default();
        [3, 1, 2].into_iter().for_each(|number| add(&mut lanes, number, false));
        assert_eq!((step(&mut lanes), step(&mut lanes)), (Some(1), None));
        assert_eq!(lanes.behind_in(&QueueKey::stored("acme/pay")), 2);
        for next in [Some(2), Some(3), None] {
            let front = Serial(100 - next.map_or(3, |it| it - 1));
            assert_eq!(lanes.ended(front), Some(key()));
            assert_eq!(step(&mut lanes), next);
        }
        assert!(lanes.is_empty() && lanes.keys().is_empty(), "nothing is left of a lane that is empty");
    }

    /// ORD-3
    #[test]
    fn what_waits_stays_until_it_is_released() {
        let mut lanes = Lanes::default();
        add(&mut lanes, 5, true);
        assert_eq!(step(&mut lanes), None);
        lanes.release(&key(), 5);
        assert_eq!(step(&mut lanes), Some(5));
    }

    /// ORD-7
    #[test]
    fn behind_a_parked_number_nothing_goes_on_but_it_may_itself() {
        let mut lanes = Lanes::default();
        lanes.park(&key(), Some(4));
        add(&mut lanes, 5, false);
        assert_eq!(step(&mut lanes), None);
        add(&mut lanes, 4, false);
        assert_eq!(step(&mut lanes), Some(4));
        lanes.park(&key(), None);
        lanes.ended(Serial(96));
        assert_eq!(step(&mut lanes), Some(5));
    }

    /// ORD-7: what comes is not paid for by a look at all that queues, which would be billions of looks here.
    #[test]
    fn a_long_lane_that_is_parked_is_not_walked() {
        let mut lanes = Lanes::default();
        lanes.park(&key(), Some(0));
        for number in 1..=100_000 {
            add(&mut lanes, number, false);
            assert!(lanes.overtaken(&key()).is_none() && lanes.step(&key()).is_none());
        }
        for number in 1..=100_000 {
            lanes.ended(Serial(100 - number));
        }
        assert!(lanes.is_empty());
    }

    /// ORD-3
    #[test]
    fn nothing_passes_one_whose_end_is_not_on_record() {
        let mut lanes = Lanes::default();
        [1, 2, 3].into_iter().for_each(|number| add(&mut lanes, number, false));
        assert_eq!(step(&mut lanes), Some(1));
        assert_eq!(
            (lanes.begin_end(Serial(98)), lanes.begin_end(Serial(99))),
            (Some(0), None),
            "1 is in front"
        );
        lanes.ended(Serial(99));
        assert_eq!((step(&mut lanes), lanes.len_of(&key())), (None, 2));
        assert_eq!((lanes.put_back(Serial(98)), step(&mut lanes)), (Some(key()), Some(2)));
        assert_eq!(lanes.begin_end(Serial(97)), Some(0));
        lanes.ended(Serial(98));
        lanes.ended(Serial(97));
        assert_eq!(step(&mut lanes), None);
        assert!(lanes.is_empty() && lanes.keys().is_empty() && lanes.queues().is_empty());
    }

    /// ORD-3
    #[test]
    fn a_lower_one_overtakes_what_was_not_handed_out() {
        let mut lanes = Lanes::default();
        add(&mut lanes, 6, false);
        assert_eq!(step(&mut lanes), Some(6));
        assert!(lanes.overtaken(&key()).is_none());
        add(&mut lanes, 5, false);
        assert_eq!(lanes.overtaken(&key()).map(|it| it.id), Some(Serial(94)));
        lanes.step_back(&key());
        assert_eq!(step(&mut lanes), Some(5));
    }
}
