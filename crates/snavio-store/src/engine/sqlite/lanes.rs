//! Lanes in memory: of the deliveries of one entity at most one is in its queue's index, the others stand behind it here
//! (ORD-3). The lowest number comes first; one that was handed out stays in front until it has ended.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use snavio_model::delivery::Delivery;
use snavio_model::id::Serial;
use snavio_model::name::QueueKey;
use snavio_model::ordering::{EntityKey, Lane, NumberKind};
use snavio_model::time::Timestamp;

use super::index::Slot;

/// All lanes of the store.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: HashMap<Arc<EntityKey>, OneLane>,
    /// The lane of each delivery that is in one, in front or behind, and its number there.
    of: HashMap<Serial, (Arc<EntityKey>, i64)>,
    /// Those that stand behind, by queue and age.
    behind: HashMap<QueueKey, BTreeSet<(Timestamp, Serial)>>,
}

/// What is kept of a delivery in a lane, of which there may be as many as queues hold. Whose lane it is and its number there
/// are kept once for it, and its lane's name once for all of them.
#[derive(Debug, Clone)]
pub(super) struct InLane {
    pub(super) slot: Slot,
    pub(super) queue: QueueKey,
    kind: NumberKind,
    parks: Option<Duration>,
    waits: bool,
}

impl InLane {
    fn of(delivery: &Delivery, lane: &Lane) -> Self {
        let &Lane { kind, parks, waits, .. } = lane;
        Self { slot: Slot::of(delivery), queue: delivery.queue.clone(), kind, parks, waits }
    }
}

#[derive(Default)]
struct OneLane {
    /// The one that is in its queue's index, or on its way out of it, and its number.
    front: Option<(i64, InLane)>,
    /// The others, by their numbers.
    behind: BTreeMap<(i64, Serial), InLane>,
    /// Those of the others whose end is being committed; they come back if the commit fails, and until then nothing
    /// passes them.
    leaving: BTreeMap<(i64, Serial), InLane>,
    /// The number that failed for good: those above it stay.
    parked_at: Option<i64>,
}

impl OneLane {
    /// The next one to be handed out.
    fn next(&self) -> Option<(i64, Serial)> {
        // However many queue behind a parked one, they are not looked at; of those that wait there are few.
        let highest = (self.parked_at.unwrap_or(i64::MAX), Serial(i64::MAX));
        let highest = self.leaving.keys().next().map_or(highest, |leaving| highest.min(*leaving));
        self.behind.range(..=highest).find(|(_, it)| !it.waits).map(|(key, _)| *key)
    }

    fn find_behind(&self, number: i64, id: Serial) -> Option<&InLane> {
        self.behind.get(&(number, id)).or_else(|| self.leaving.get(&(number, id)))
    }

    fn is_in_front(&self, id: Serial) -> bool {
        self.front.as_ref().is_some_and(|(_, it)| it.slot.id == id)
    }

    fn is_idle(&self) -> bool {
        self.front.is_none() && self.behind.is_empty() && self.leaving.is_empty() && self.parked_at.is_none()
    }
}

impl Lanes {
    /// Adds a delivery behind all others of its lane.
    pub(super) fn add(&mut self, delivery: &Delivery, lane: &Lane) {
        let key = self.name(&lane.key);
        self.of.insert(delivery.id, (Arc::clone(&key), lane.number));
        let one = self.lanes.entry(key).or_default();
        Self::put_behind(&mut self.behind, one, InLane::of(delivery, lane), lane.number);
    }

    /// A lane's name, which all in it share.
    fn name(&self, key: &EntityKey) -> Arc<EntityKey> {
        let there = self.lanes.get_key_value(key).map(|(name, _)| Arc::clone(name));
        there.unwrap_or_else(|| Arc::new(key.clone()))
    }

    fn put_behind(
        behind: &mut HashMap<QueueKey, BTreeSet<(Timestamp, Serial)>>,
        one: &mut OneLane,
        it: InLane,
        number: i64,
    ) {
        let Slot { id, queued_at, .. } = it.slot;
        behind.entry(it.queue.clone()).or_default().insert((queued_at, id));
        one.behind.insert((number, id), it);
    }

    /// Puts a delivery in front of its lane that somebody may have already; false if somebody has another one.
    pub(super) fn add_in_front(&mut self, delivery: &Delivery, lane: &Lane) -> bool {
        let key = self.name(&lane.key);
        let one = self.lanes.entry(Arc::clone(&key)).or_default();
        let is_free = one.front.is_none();
        if is_free {
            one.front = Some((lane.number, InLane::of(delivery, lane)));
            self.of.insert(delivery.id, (key, lane.number));
        }
        is_free
    }

    /// The one in front that a lower one has come behind, if it was never handed out: the two may change places.
    pub(super) fn overtaken(&self, key: &EntityKey) -> Option<&InLane> {
        let one = self.lanes.get(key)?;
        let (number, front) = one.front.as_ref()?;
        (one.next()? < (*number, front.slot.id)).then_some(front)
    }

    /// Takes back the one in front, which its index has let go.
    pub(super) fn step_back(&mut self, key: &EntityKey) {
        let Some(one) = self.lanes.get_mut(key) else { return };
        let Some((number, front)) = one.front.take() else { return };
        Self::put_behind(&mut self.behind, one, front, number);
    }

    /// The delivery that comes in front of a lane now, if the place is free.
    pub(super) fn step(&mut self, key: &EntityKey) -> Option<InLane> {
        let one = self.lanes.get_mut(key)?;
        let next = if one.front.is_none() { one.next() } else { None };
        let it = next.and_then(|next| Some((next.0, one.behind.remove(&next)?)));
        if let Some((_, front)) = &it {
            one.front.clone_from(&it);
            self.leave(&front.queue, front.slot);
        } else if one.is_idle() {
            self.lanes.remove(key);
        }
        it.map(|(_, it)| it)
    }

    fn leave(&mut self, queue: &QueueKey, Slot { id, queued_at, .. }: Slot) {
        if let Some(of_queue) = self.behind.get_mut(queue) {
            of_queue.remove(&(queued_at, id));
            if of_queue.is_empty() {
                self.behind.remove(queue);
            }
        }
    }

    /// Forgets a delivery that has ended, and says whose lane it was in.
    pub(super) fn ended(&mut self, id: Serial) -> Option<Arc<EntityKey>> {
        let (key, number) = self.of.remove(&id)?;
        let one = self.lanes.get_mut(&key)?;
        if one.is_in_front(id) {
            one.front = None;
            return Some(key);
        }
        if one.leaving.remove(&(number, id)).is_none()
            && let Some(it) = one.behind.remove(&(number, id))
        {
            self.leave(&it.queue, it.slot);
        }
        Some(key)
    }

    /// Takes out one that stands behind others, until its end is on record, and says how often it was handed out.
    pub(super) fn begin_end(&mut self, id: Serial) -> Option<u32> {
        let (key, number) = self.of.get(&id)?;
        let one = self.lanes.get_mut(key)?;
        let it = one.behind.remove(&(*number, id))?;
        let (queue, slot) = (it.queue.clone(), it.slot);
        one.leaving.insert((*number, id), it);
        self.leave(&queue, slot);
        Some(slot.receives)
    }

    /// Puts back what could not be ended, and says in whose lane.
    pub(super) fn put_back(&mut self, id: Serial) -> Option<Arc<EntityKey>> {
        let (key, number) = self.of.get(&id)?;
        let one = self.lanes.get_mut(key)?;
        let it = one.leaving.remove(&(*number, id))?;
        Self::put_behind(&mut self.behind, one, it, *number);
        Some(Arc::clone(key))
    }

    /// One that waited may go.
    pub(super) fn release(&mut self, key: &EntityKey, number: i64) {
        let Some(one) = self.lanes.get_mut(key) else { return };
        let all = (number, Serial(i64::MIN))..=(number, Serial(i64::MAX));
        for (_, it) in one.behind.range_mut(all.clone()).chain(one.leaving.range_mut(all)) {
            it.waits = false;
        }
    }

    /// Later ones stay behind a number from now on, or go on again.
    pub(super) fn park(&mut self, key: &EntityKey, parked_at: Option<i64>) {
        let key = self.name(key);
        self.lanes.entry(key).or_default().parked_at = parked_at;
    }

    /// How many are in a lane, in front or behind.
    pub(super) fn len_of(&self, key: &EntityKey) -> usize {
        let len = |one: &OneLane| one.behind.len() + one.leaving.len() + usize::from(one.front.is_some());
        self.lanes.get(key).map_or(0, len)
    }

    pub(super) fn keys(&self) -> Vec<Arc<EntityKey>> {
        self.lanes.keys().cloned().collect()
    }

    /// Whether no delivery is in a lane.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// The lane of a delivery, if later ones are parked behind it when it fails for good.
    pub(super) fn parking_lane(&self, id: Serial) -> Option<Lane> {
        let (key, number) = self.of.get(&id)?;
        let one = self.lanes.get(key)?;
        let front = one.front.as_ref().map(|(_, it)| it).filter(|it| it.slot.id == id);
        let &InLane { kind, parks, waits, .. } = front.or_else(|| one.find_behind(*number, id))?;
        let lane = Lane { key: EntityKey::clone(key), number: *number, kind, parks, waits };
        parks.map(|_| lane)
    }

    /// A delivery that stands behind others, or is on its way out from there.
    pub(super) fn find_behind(&self, id: Serial) -> Option<&InLane> {
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
    use snavio_model::delivery::Tracking;

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
        lanes.add(&it, &lane);
    }

    fn step(lanes: &mut Lanes) -> Option<i64> {
        lanes.step(&key()).map(|it| 100 - it.slot.id.0)
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
            assert_eq!(lanes.ended(front).as_deref(), Some(&key()));
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
        assert_eq!((lanes.put_back(Serial(98)).as_deref(), step(&mut lanes)), (Some(&key()), Some(2)));
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
        assert_eq!(lanes.overtaken(&key()).map(|it| it.slot.id), Some(Serial(94)));
        lanes.step_back(&key());
        assert_eq!(step(&mut lanes), Some(5));
    }

    /// ORD-3: an entity's name, which may be as long as 256 bytes, is kept once for all that are in its lane.
    #[test]
    fn a_lane_keeps_its_name_once() {
        let mut lanes = Lanes::default();
        (1..=50).for_each(|number| add(&mut lanes, number, false));
        step(&mut lanes);
        let name = lanes.keys().remove(0);
        assert_eq!(Arc::strong_count(&name), 1 + 1 + 50, "here, at the lane and at each of its deliveries");
        assert!(size_of::<InLane>() <= 96, "{}", size_of::<InLane>());
    }
}
