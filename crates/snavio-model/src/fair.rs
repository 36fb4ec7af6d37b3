//! Fair intake: work of many tenants waits in bounded lines of their own and is taken in turns by size (PIP-9).
//!
//! Deficit round robin: a tenant's turn gives it a quantum of bytes; what it does not use up with waiting work
//! it loses, what a large item still needs it keeps. No tenant can hold more than its part of the room.

use std::collections::VecDeque;

use foldhash::{HashMap, HashMapExt};

use crate::limits;
use crate::name::TenantName;

/// Bytes a tenant may put into a batch per turn.
const QUANTUM_BYTES: usize = 16 * 1024;

/// Bounds of a [`FairQueue`].
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
            items_max: limits::INTAKE_MESSAGES_MAX,
            bytes_max: limits::INTAKE_BYTES_MAX,
            tenant_part: limits::TENANT_PART,
        }
    }
}

/// How much of the room an item takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Size {
    /// As how many items it counts.
    pub items: usize,
    /// Its bytes.
    pub bytes: usize,
}

impl Size {
    fn plus(self, other: Self) -> Self {
        Self { items: self.items + other.items, bytes: self.bytes + other.bytes }
    }

    fn minus(self, other: Self) -> Self {
        Self { items: self.items - other.items, bytes: self.bytes - other.bytes }
    }
}

/// Items that wait, each in its tenant's line.
#[derive(Debug)]
pub struct FairQueue<T> {
    room: Room,
    count: usize,
    taken: Size,
    lines: HashMap<TenantName, Line<T>>,
    turns: VecDeque<TenantName>,
}

#[derive(Debug)]
struct Line<T> {
    waiting: VecDeque<(Size, T)>,
    taken: Size,
    deficit: usize,
}

impl<T> FairQueue<T> {
    /// An empty queue with these bounds.
    pub fn new(room: Room) -> Self {
        Self { room, count: 0, taken: Size::default(), lines: HashMap::new(), turns: VecDeque::new() }
    }

    /// Lets the item wait, or gives it back when its tenant's part or the whole room is full. One that counts as more items
    /// than there is room for at all waits alone.
    pub fn push(&mut self, tenant: &TenantName, size: Size, item: T) -> Result<(), T> {
        let Room { items_max, bytes_max, tenant_part } = self.room;
        let is_full = |taken: Size, items_max: usize, bytes_max: usize| {
            let after = taken.plus(size);
            let is_past = taken.items > 0 && after.items > items_max;
            is_past || taken.items >= items_max || after.bytes > bytes_max
        };
        if is_full(self.taken, items_max, bytes_max) {
            return Err(item);
        }
        match self.lines.get_mut(tenant) {
            None => {
                let waiting = VecDeque::from([(size, item)]);
                self.lines.insert(tenant.clone(), Line { waiting, taken: size, deficit: 0 });
                self.turns.push_back(tenant.clone());
            }
            Some(line) => {
                let part = tenant_part.max(1);
                if is_full(line.taken, items_max / part, bytes_max / part) {
                    return Err(item);
                }
                line.waiting.push_back((size, item));
                line.taken = line.taken.plus(size);
            }
        }
        self.count += 1;
        self.taken = self.taken.plus(size);
        Ok(())
    }

    /// Takes the next batch: at least one item if any waits, at most these many items and bytes.
    pub fn take(&mut self, items_max: usize, bytes_max: usize) -> Vec<T> {
        let most = Size { items: items_max, bytes: bytes_max };
        let mut batch = Batch { items: Vec::new(), taken: Size::default(), most };
        while !batch.is_full() {
            let Some(tenant) = self.turns.pop_front() else { break };
            let Some(line) = self.lines.get_mut(&tenant) else { continue };
            line.serve(&mut batch);
            if line.waiting.is_empty() {
                self.lines.remove(&tenant);
            } else {
                self.turns.push_back(tenant);
            }
        }
        self.count -= batch.items.len();
        self.taken = self.taken.minus(batch.taken);
        batch.items
    }

    /// Items that wait.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

struct Batch<T> {
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

impl<T> Line<T> {
    fn serve(&mut self, batch: &mut Batch<T>) {
        self.deficit += QUANTUM_BYTES;
        while let Some(&(size, _)) = self.waiting.front() {
            if size.bytes > self.deficit {
                return;
            }
            if !batch.fits(size) {
                // The batch is closed; the tenant's turn was not its fault.
                batch.most.bytes = batch.taken.bytes;
                return;
            }
            let Some((size, item)) = self.waiting.pop_front() else { return };
            self.deficit -= size.bytes;
            self.taken = self.taken.minus(size);
            batch.taken = batch.taken.plus(size);
            batch.items.push(item);
        }
        self.deficit = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantName {
        TenantName::new(name).unwrap()
    }

    /// One item of so many bytes.
    fn one(bytes: usize) -> Size {
        Size { items: 1, bytes }
    }

    fn room(items_max: usize) -> Room {
        Room { items_max, bytes_max: usize::MAX / 8, tenant_part: 4 }
    }

    /// PIP-9
    #[test]
    fn a_flood_holds_a_quarter_of_the_room_and_no_more() {
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
    fn a_calm_tenant_rides_in_the_next_batch_whatever_waits_before_it() {
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

    /// PIP-9, PIP-13: an event for many is as much as many.
    #[test]
    fn what_counts_as_many_items_takes_the_room_and_the_batch_of_many() {
        let mut queue = FairQueue::new(room(100));
        let many = |items| Size { items, bytes: 10 };
        let taken = (0..20).filter(|n| queue.push(&tenant("wide"), many(10), ("wide", *n)).is_ok()).count();
        assert_eq!((taken, queue.len()), (2, 2), "25 are its part");
        for n in 0..10 {
            queue.push(&tenant("calm"), one(10), ("calm", n)).unwrap();
        }
        let mut batches = Vec::new();
        while !queue.is_empty() {
            batches.push(queue.take(15, 1000).len());
        }
        assert_eq!(batches, [1, 10, 1], "no two of ten share one, and who is calm comes between them");
        queue.push(&tenant("wide"), many(1000), ("wide", 0)).unwrap();
        assert!(queue.push(&tenant("calm"), one(10), ("calm", 0)).is_err(), "it has all of the room");
        assert_eq!(queue.take(15, 1000), [("wide", 0)], "and a batch of its own");
        queue.push(&tenant("calm"), one(10), ("calm", 0)).unwrap();
        assert!(queue.push(&tenant("wide"), many(1000), ("wide", 0)).is_err(), "now it does not fit");
    }

    #[test]
    fn one_item_is_taken_even_when_it_is_larger_than_the_batch() {
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
        fn everything_pushed_is_taken_once_in_its_tenants_order(
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
    }
}
