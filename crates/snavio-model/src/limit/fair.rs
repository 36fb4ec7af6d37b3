//! Fair queueing at the intake: the work of each tenant waits in a bounded queue of its own, and batches take
//! from these queues in turn by bytes (PIP-9).
//!
//! Deficit round robin: each turn gives a tenant a quantum of bytes. If no free item is left in its queue,
//! the rest of the quantum is lost. If its next item is larger than the rest, the tenant keeps the rest for
//! its next turn. No tenant can hold more than its part of the room.

use std::collections::VecDeque;

use foldhash::{HashMap, HashMapExt};

use crate::bounds;
use crate::name::TenantName;

/// Bytes that a tenant may put into a batch in each turn.
const QUANTUM_BYTES: usize = 16 * 1024;

/// Items at the front of a tenant's queue that later items may pass, because they are not free. Taking a
/// batch examines at most as many.
const SKIPPED_MAX: usize = 64;
/// The limit of the sum of their counts: an event is examined once for each of its destinations.
const SKIPPED_SIZE_MAX: usize = 256;

/// The bounds of a [`FairQueue`].
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Items of all tenants together.
    pub items_max: usize,
    /// Bytes of all tenants together.
    pub bytes_max: usize,
    /// One tenant may hold one part in this many.
    pub tenant_part: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            items_max: bounds::INTAKE_MESSAGES_MAX,
            bytes_max: bounds::INTAKE_BYTES_MAX,
            tenant_part: bounds::TENANT_PART,
        }
    }
}

/// The room that an item takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Size {
    /// The number of items that it counts as.
    pub items: usize,
    pub bytes: usize,
}

impl Size {
    fn plus(self, other: Self) -> Self {
        Self { items: self.items + other.items, bytes: self.bytes + other.bytes }
    }

    /// Whether a room with this much taken has no space for an item of the size `added`.
    fn is_full_for(self, added: Self, items_max: usize, bytes_max: usize) -> bool {
        let after = self.plus(added);
        let is_past = self.items > 0 && after.items > items_max;
        is_past || self.items >= items_max || after.bytes > bytes_max
    }

    fn minus(self, other: Self) -> Self {
        Self { items: self.items - other.items, bytes: self.bytes - other.bytes }
    }
}

/// Items that wait, each in the queue of its tenant.
#[derive(Debug)]
pub struct FairQueue<T> {
    room: Room,
    count: usize,
    taken: Size,
    queues: HashMap<TenantName, TenantQueue<T>>,
    turns: VecDeque<TenantName>,
    /// The number of batches so far.
    batches: u64,
}

#[derive(Debug)]
struct TenantQueue<T> {
    waiting: VecDeque<(Size, T)>,
    /// Its first items that were not free while the current batch was taken.
    skipped: Vec<(Size, T)>,
    taken: Size,
    deficit: usize,
    /// The last batch that took an item of this queue.
    served_in: u64,
}

impl<T> FairQueue<T> {
    /// An empty queue with these bounds.
    pub fn new(room: Room) -> Self {
        let (queues, turns) = (HashMap::new(), VecDeque::new());
        Self { room, count: 0, taken: Size::default(), queues, turns, batches: 0 }
    }

    /// Adds an item, or returns it if the tenant's part or the whole room is full. An item that counts as
    /// more than the whole room waits alone.
    pub fn push(&mut self, tenant: &TenantName, size: Size, item: T) -> Result<(), T> {
        let Room { items_max, bytes_max, tenant_part } = self.room;
        if self.taken.is_full_for(size, items_max, bytes_max) {
            return Err(item);
        }
        match self.queues.get_mut(tenant) {
            None => {
                self.queues.insert(tenant.clone(), TenantQueue::of(size, item));
                self.turns.push_back(tenant.clone());
            }
            Some(tenant_queue) => {
                let part = tenant_part.max(1);
                if tenant_queue.taken.is_full_for(size, items_max / part, bytes_max / part) {
                    return Err(item);
                }
                tenant_queue.waiting.push_back((size, item));
                tenant_queue.taken = tenant_queue.taken.plus(size);
            }
        }
        self.count += 1;
        self.taken = self.taken.plus(size);
        Ok(())
    }

    /// Takes the next batch: at least one item if any waits, and at most `items_max` items and `bytes_max`
    /// bytes.
    pub fn take(&mut self, items_max: usize, bytes_max: usize) -> Vec<T> {
        self.take_free(items_max, bytes_max, |_| true)
    }

    /// As [`FairQueue::take`], of free items only. An item that is not free keeps its place, and later items
    /// of its tenant may pass it, up to a limit. `is_free` gets the items of a tenant in their order, so that
    /// it can hold back an item that must not pass an earlier one.
    pub fn take_free(
        &mut self,
        items_max: usize,
        bytes_max: usize,
        mut is_free: impl FnMut(&T) -> bool,
    ) -> Vec<T> {
        let most = Size { items: items_max, bytes: bytes_max };
        self.batches += 1;
        let mut batch = Batch { number: self.batches, items: Vec::new(), taken: Size::default(), most };
        let (mut stopped, mut with_skipped) = (Vec::new(), Vec::new());
        while !batch.is_full() {
            let Some(tenant) = self.turns.pop_front() else { break };
            let Some(tenant_queue) = self.queues.get_mut(&tenant) else { continue };
            let had_skipped = !tenant_queue.skipped.is_empty();
            let served = tenant_queue.serve(&mut batch, &mut is_free);
            if !had_skipped && !tenant_queue.skipped.is_empty() {
                with_skipped.push(tenant.clone());
            }
            match served {
                TurnEnd::Empty => drop(self.queues.remove(&tenant)),
                TurnEnd::Stopped => stopped.push(tenant),
                // Otherwise busy tenants would begin the next batch again, and a large item might never fit.
                TurnEnd::KeepsTurn => self.turns.push_front(tenant),
                TurnEnd::InPart => self.turns.push_back(tenant),
            }
        }
        for tenant in with_skipped {
            self.queues.get_mut(&tenant).into_iter().for_each(TenantQueue::restore_skipped);
        }
        // A tenant that was not served keeps its turn until its items are free.
        for tenant in stopped.into_iter().rev() {
            match self.queues.get(&tenant).is_some_and(|tenant_queue| tenant_queue.served_in == batch.number)
            {
                true => self.turns.push_back(tenant),
                false => self.turns.push_front(tenant),
            }
        }
        self.count -= batch.items.len();
        self.taken = self.taken.minus(batch.taken);
        batch.items
    }

    /// The number of waiting items.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no item waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

struct Batch<T> {
    number: u64,
    items: Vec<T>,
    taken: Size,
    most: Size,
}

impl<T> Batch<T> {
    fn is_full(&self) -> bool {
        self.taken.items >= self.most.items || self.taken.bytes >= self.most.bytes
    }

    fn fits(&self, size: Size) -> bool {
        let after = self.taken.plus(size);
        self.items.is_empty() || after.items <= self.most.items && after.bytes <= self.most.bytes
    }
}

/// The end of a tenant's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnEnd {
    /// No item waits any more.
    Empty,
    /// No item within the limit is free.
    Stopped,
    /// The batch is full, because the tenant's first item does not fit. The tenant keeps its turn.
    KeepsTurn,
    /// More items wait.
    InPart,
}

impl<T> TenantQueue<T> {
    fn of(size: Size, item: T) -> Self {
        let waiting = VecDeque::from([(size, item)]);
        Self { waiting, skipped: Vec::new(), taken: size, deficit: 0, served_in: 0 }
    }

    fn serve(&mut self, batch: &mut Batch<T>, mut is_free: impl FnMut(&T) -> bool) -> TurnEnd {
        self.deficit += QUANTUM_BYTES;
        let before = batch.items.len();
        while let Some(&(size, ref item)) = self.waiting.front() {
            let skipped: usize = self.skipped.iter().map(|(size, _)| size.items).sum();
            if self.skipped.len() >= SKIPPED_MAX || skipped >= SKIPPED_SIZE_MAX {
                break;
            }
            if !is_free(item) {
                self.skipped.extend(self.waiting.pop_front());
                continue;
            }
            if size.bytes > self.deficit {
                return TurnEnd::InPart;
            }
            if !batch.fits(size) {
                batch.most.bytes = batch.taken.bytes;
                let is_first = batch.items.len() == before;
                return if is_first { TurnEnd::KeepsTurn } else { TurnEnd::InPart };
            }
            let Some((size, item)) = self.waiting.pop_front() else { break };
            self.deficit -= size.bytes;
            self.taken = self.taken.minus(size);
            self.served_in = batch.number;
            batch.taken = batch.taken.plus(size);
            batch.items.push(item);
        }
        self.deficit = 0;
        if self.skipped.is_empty() { TurnEnd::Empty } else { TurnEnd::Stopped }
    }

    /// Puts the skipped items back to the front, in their order.
    fn restore_skipped(&mut self) {
        self.skipped.drain(..).rev().for_each(|entry| self.waiting.push_front(entry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantName {
        TenantName::new(name).unwrap()
    }

    /// One item of this many bytes.
    fn one(bytes: usize) -> Size {
        Size { items: 1, bytes }
    }

    fn fill_with_busy_items(queue: &mut FairQueue<&str>) {
        while queue.push(&tenant("busy"), one(500), "busy").is_ok() {}
    }

    fn room(items_max: usize) -> Room {
        Room { items_max, bytes_max: usize::MAX / 8, tenant_part: 4 }
    }

    /// PIP-9
    #[test]
    fn flood_holds_at_most_a_quarter_of_the_room() {
        let mut queue = FairQueue::new(room(100));
        let taken = (0..200).filter(|n| queue.push(&tenant("flood"), one(100), *n).is_ok()).count();
        assert_eq!(taken, 25);
        assert!(queue.push(&tenant("calm"), one(100), 0).is_ok());
    }

    /// PIP-9
    #[test]
    fn bytes_are_bounded_per_tenant_and_in_total() {
        let mut queue = FairQueue::new(Room { items_max: 1000, bytes_max: 4000, tenant_part: 4 });
        assert!(queue.push(&tenant("a"), one(600), 1).is_ok());
        assert_eq!(queue.push(&tenant("a"), one(600), 2), Err(2));
        for name in ["b", "c", "d"] {
            assert!(queue.push(&tenant(name), one(1000), 3).is_ok());
        }
        assert_eq!(queue.push(&tenant("e"), one(1000), 4), Err(4));
        assert!(queue.push(&tenant("e"), one(400), 5).is_ok());
    }

    /// PIP-9
    #[test]
    fn calm_tenant_is_in_the_next_batch_during_a_flood() {
        let mut queue = FairQueue::new(room(10_000));
        for n in 0..2_000 {
            queue.push(&tenant("flood"), one(1000), ("flood", n)).unwrap();
        }
        queue.push(&tenant("calm"), one(1000), ("calm", 0)).unwrap();
        let batch = queue.take(256, 1 << 20);
        assert_eq!(batch.len(), 256);
        assert!(batch.contains(&("calm", 0)));
    }

    /// PIP-9
    #[test]
    fn two_busy_tenants_share_by_bytes_not_by_messages() {
        let mut queue = FairQueue::new(room(100_000));
        for n in 0..4_000 {
            queue.push(&tenant("small"), one(500), ("small", n)).unwrap();
            queue.push(&tenant("large"), one(5_000), ("large", n)).unwrap();
        }
        let (mut small, mut large) = (0, 0);
        for _ in 0..20 {
            for (who, _) in queue.take(1_000, 200_000) {
                if who == "small" { small += 500 } else { large += 5_000 }
            }
        }
        let ratio = f64::from(small) / f64::from(large);
        assert!((0.8..1.25).contains(&ratio), "small got {small} bytes, large {large}");
    }

    /// PIP-9, PIP-13: an event for many destinations counts as many items.
    #[test]
    fn wide_item_takes_the_room_of_many_items() {
        let mut queue = FairQueue::new(room(100));
        let many = |items| Size { items, bytes: 10 };
        let taken = (0..20).filter(|n| queue.push(&tenant("wide"), many(10), ("wide", *n)).is_ok()).count();
        assert_eq!((taken, queue.len()), (2, 2), "its part is 25 items");
        for n in 0..10 {
            queue.push(&tenant("calm"), one(10), ("calm", n)).unwrap();
        }
        let mut batches = Vec::new();
        while !queue.is_empty() {
            batches.push(queue.take(15, 1000).len());
        }
        assert_eq!(
            batches,
            [1, 10, 1],
            "two wide items never share a batch, and the calm tenant is between them"
        );
        queue.push(&tenant("wide"), many(1000), ("wide", 0)).unwrap();
        assert!(
            queue.push(&tenant("calm"), one(10), ("calm", 0)).is_err(),
            "the wide item has the whole room"
        );
        assert_eq!(queue.take(15, 1000), [("wide", 0)], "and a batch of its own");
        queue.push(&tenant("calm"), one(10), ("calm", 0)).unwrap();
        assert!(queue.push(&tenant("wide"), many(1000), ("wide", 0)).is_err(), "now it does not fit");
    }

    /// PIP-9, PIP-13
    #[test]
    fn wide_items_are_taken_beside_a_busy_tenant() {
        let mut queue = FairQueue::new(room(10_000));
        fill_with_busy_items(&mut queue);
        queue.push(&tenant("wide"), Size { items: 300, bytes: 5 * QUANTUM_BYTES }, "wide").unwrap();
        let mut has_wide = Vec::new();
        for _ in 0..40 {
            let batch = queue.take(256, 1 << 20);
            fill_with_busy_items(&mut queue);
            has_wide.push(batch.contains(&"wide"));
            // A wide item after every wide item still leaves batches for the other tenant.
            let _ = queue.push(&tenant("wide"), Size { items: 300, bytes: 10 }, "wide");
        }
        let wide = has_wide.iter().filter(|is_wide| **is_wide).count();
        assert!((5..=20).contains(&wide), "{has_wide:?}");
    }

    /// PIP-9, ORD-3
    #[test]
    fn busy_item_keeps_its_place_while_others_pass() {
        let mut queue = FairQueue::new(room(100));
        for (name, item) in [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("b", 5), ("a", 2)] {
            queue.push(&tenant(name), one(10), item).unwrap();
        }
        assert_eq!(queue.take_free(10, 1000, |item| *item != 2), [1, 4, 3, 5]);
        assert!(queue.take_free(10, 1000, |item| *item != 2).is_empty());
        queue.push(&tenant("a"), one(10), 6).unwrap();
        assert_eq!(queue.take_free(10, 1000, |item| *item != 2), [6]);
        assert_eq!((queue.len(), queue.take(10, 1000)), (2, vec![2, 2]));
        assert!(queue.is_empty() && queue.queues.is_empty());
    }

    /// PIP-9, ORD-3: a batch examines a limited number of items, and skipped items keep their place and their
    /// order.
    #[test]
    fn queue_stops_at_the_limit_of_skipped_items() {
        let mut queue = FairQueue::new(room(10_000));
        for item in 0..2 * SKIPPED_MAX {
            queue.push(&tenant("a"), one(10), ("busy", item)).unwrap();
        }
        queue.push(&tenant("a"), one(10), ("free", 0)).unwrap();
        let mut asked = 0;
        let taken = queue.take_free(1000, 100_000, |(kind, _)| {
            asked += 1;
            *kind == "free"
        });
        assert_eq!((taken, asked), (Vec::new(), SKIPPED_MAX));
        let all = queue.take(1000, 100_000);
        assert!(all.iter().map(|(_, item)| *item).take(2 * SKIPPED_MAX).eq(0..2 * SKIPPED_MAX), "{all:?}");
    }

    /// PIP-9: a tenant with an item that is not free does not always come first with its other items.
    #[test]
    fn stopped_queue_gets_no_extra_turns() {
        let mut queue = FairQueue::new(room(100_000));
        queue.push(&tenant("a"), one(10), ("a", false)).unwrap();
        for _ in 0..1000 {
            queue.push(&tenant("b"), one(QUANTUM_BYTES), ("b", true)).unwrap();
            queue.push(&tenant("c"), one(QUANTUM_BYTES), ("c", true)).unwrap();
        }
        let (mut count, mut has_one) = (0, false);
        for _ in 0..300 {
            // At each turn of the tenant one of its items is free, and a batch has room for one item.
            if !has_one {
                queue.push(&tenant("a"), one(QUANTUM_BYTES), ("a", true)).unwrap();
            }
            let batch = queue.take_free(1, 1 << 20, |(_, is_free)| *is_free);
            has_one = !batch.contains(&("a", true));
            count += usize::from(!has_one);
        }
        assert!((90..=110).contains(&count), "{count} of 300 batches with three busy tenants");
    }

    #[test]
    fn item_larger_than_the_batch_is_taken_alone() {
        let mut queue = FairQueue::new(room(100));
        queue.push(&tenant("a"), one(900_000), 1).unwrap();
        queue.push(&tenant("a"), one(10), 2).unwrap();
        assert_eq!(queue.take(10, 1000), [1]);
        assert_eq!(queue.take(10, 1000), [2]);
        assert!(queue.is_empty());
    }

    proptest::proptest! {
        /// PIP-9
        #[test]
        fn every_item_is_taken_once_in_its_tenants_order(
            pushes in proptest::collection::vec((0usize..5, 1usize..40_000), 0..300),
            items_max in 1usize..50,
        ) {
            let mut queue = FairQueue::new(room(10_000));
            for (n, (who, bytes)) in pushes.iter().enumerate() {
                queue.push(&tenant(&format!("t{who}")), one(*bytes), (*who, n)).unwrap();
            }
            let mut last = [None; 5];
            let mut count = 0;
            while !queue.is_empty() {
                let batch = queue.take(items_max, 100_000);
                proptest::prop_assert!(!batch.is_empty() && batch.len() <= items_max);
                for (who, n) in batch {
                    proptest::prop_assert!(last[who].is_none_or(|before| before < n));
                    last[who] = Some(n);
                    count += 1;
                }
            }
            proptest::prop_assert_eq!(count, pushes.len());
        }

        /// PIP-9, ORD-3: as the committer takes items while some entities are busy.
        #[test]
        fn order_within_an_entity_is_kept_when_items_pass(
            pushes in proptest::collection::vec((0usize..3, 0u8..6), 0..300),
            busy in proptest::collection::vec(proptest::collection::hash_set(0u8..6, 0..4), 1..20),
            items_max in 1usize..50,
        ) {
            let mut queue = FairQueue::new(room(10_000));
            for (n, (who, entity)) in pushes.iter().enumerate() {
                queue.push(&tenant(&format!("t{who}")), one(1000), (*who, *entity, n)).unwrap();
            }
            let mut last = std::collections::HashMap::new();
            let mut count = 0;
            for round in 0.. {
                // In the end no entity is busy.
                let is_busy = |entity: &u8| busy.get(round).is_some_and(|entities| entities.contains(entity));
                let batch = queue.take_free(items_max, 100_000, |(_, entity, _)| !is_busy(entity));
                for (who, entity, n) in batch {
                    proptest::prop_assert!(!is_busy(&entity));
                    let before = last.insert((who, entity), n);
                    proptest::prop_assert!(before.is_none_or(|before| before < n));
                    count += 1;
                }
                if round >= busy.len() && queue.is_empty() {
                    break;
                }
            }
            proptest::prop_assert_eq!(count, pushes.len());
            proptest::prop_assert_eq!(queue.taken, Size::default());
            proptest::prop_assert!(queue.queues.is_empty());
        }
    }
}
