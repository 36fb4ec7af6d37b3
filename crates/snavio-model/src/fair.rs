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

/// Items that wait, each in its tenant's line.
#[derive(Debug)]
pub struct FairQueue<T> {
    room: Room,
    items: usize,
    bytes: usize,
    lines: HashMap<TenantName, Line<T>>,
    turns: VecDeque<TenantName>,
}

#[derive(Debug)]
struct Line<T> {
    waiting: VecDeque<(usize, T)>,
    bytes: usize,
    deficit: usize,
}

impl<T> FairQueue<T> {
    /// An empty queue with these bounds.
    pub fn new(room: Room) -> Self {
        Self { room, items: 0, bytes: 0, lines: HashMap::new(), turns: VecDeque::new() }
    }

    /// Lets the item wait, or gives it back when its tenant's part or the whole room is full.
    pub fn push(&mut self, tenant: &TenantName, bytes: usize, item: T) -> Result<(), T> {
        if self.items >= self.room.items_max || self.bytes + bytes > self.room.bytes_max {
            return Err(item);
        }
        match self.lines.get_mut(tenant) {
            None => {
                let waiting = VecDeque::from([(bytes, item)]);
                self.lines.insert(tenant.clone(), Line { waiting, bytes, deficit: 0 });
                self.turns.push_back(tenant.clone());
            }
            Some(line) => {
                let part = self.room.tenant_part.max(1);
                let full = line.waiting.len() >= self.room.items_max / part
                    || line.bytes + bytes > self.room.bytes_max / part;
                if full {
                    return Err(item);
                }
                line.waiting.push_back((bytes, item));
                line.bytes += bytes;
            }
        }
        self.items += 1;
        self.bytes += bytes;
        Ok(())
    }

    /// Takes the next batch: at least one item if any waits, at most these many items and bytes.
    pub fn take(&mut self, items_max: usize, bytes_max: usize) -> Vec<T> {
        self.take_free(items_max, bytes_max, |_| true)
    }

    /// The same of what is free to be taken: a line stops before an item that is not, so that nothing behind it comes
    /// before it.
    pub fn take_free(&mut self, items_max: usize, bytes_max: usize, is_free: impl Fn(&T) -> bool) -> Vec<T> {
        let mut batch = Batch { items: Vec::new(), bytes: 0, items_max, bytes_max };
        let mut stopped = Vec::new();
        while !batch.is_full() {
            let Some(tenant) = self.turns.pop_front() else { break };
            let Some(line) = self.lines.get_mut(&tenant) else { continue };
            line.serve(&mut batch, &is_free);
            match line.waiting.front() {
                None => drop(self.lines.remove(&tenant)),
                Some((_, item)) if !is_free(item) => stopped.push(tenant),
                Some(_) => self.turns.push_back(tenant),
            }
        }
        // It is their turn still, once they are free.
        stopped.into_iter().rev().for_each(|tenant| self.turns.push_front(tenant));
        self.items -= batch.items.len();
        self.bytes -= batch.bytes;
        batch.items
    }

    /// Items that wait.
    pub fn len(&self) -> usize {
        self.items
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }
}

struct Batch<T> {
    items: Vec<T>,
    bytes: usize,
    items_max: usize,
    bytes_max: usize,
}

impl<T> Batch<T> {
    fn is_full(&self) -> bool {
        self.items.len() >= self.items_max || self.bytes >= self.bytes_max
    }

    fn fits(&self, bytes: usize) -> bool {
        self.items.is_empty() || (self.items.len() < self.items_max && self.bytes + bytes <= self.bytes_max)
    }
}

impl<T> Line<T> {
    fn serve(&mut self, batch: &mut Batch<T>, is_free: impl Fn(&T) -> bool) {
        self.deficit += QUANTUM_BYTES;
        while let Some(&(bytes, ref item)) = self.waiting.front() {
            if !is_free(item) {
                break;
            }
            if bytes > self.deficit {
                return;
            }
            if !batch.fits(bytes) {
                // The batch is closed; the tenant's turn was not its fault.
                batch.bytes_max = batch.bytes;
                return;
            }
            let Some((bytes, item)) = self.waiting.pop_front() else { return };
            self.deficit -= bytes;
            self.bytes -= bytes;
            batch.bytes += bytes;
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

    fn room(items_max: usize) -> Room {
        Room { items_max, bytes_max: usize::MAX / 8, tenant_part: 4 }
    }

    /// PIP-9
    #[test]
    fn a_flood_holds_a_quarter_of_the_room_and_no_more() {
        let mut queue = FairQueue::new(room(100));
        let taken = (0..200).filter(|n| queue.push(&tenant("flood"), 100, *n).is_ok()).count();
        assert_eq!(taken, 25);
        assert!(queue.push(&tenant("calm"), 100, 0).is_ok());
    }

    /// PIP-9
    #[test]
    fn bytes_are_bounded_per_tenant_and_in_total() {
        let mut queue = FairQueue::new(Room { items_max: 1000, bytes_max: 4000, tenant_part: 4 });
        assert!(queue.push(&tenant("a"), 600, 1).is_ok());
        assert_eq!(queue.push(&tenant("a"), 600, 2), Err(2));
        for name in ["b", "c", "d"] {
            assert!(queue.push(&tenant(name), 1000, 3).is_ok());
        }
        assert_eq!(queue.push(&tenant("e"), 1000, 4), Err(4));
        assert!(queue.push(&tenant("e"), 400, 5).is_ok());
    }

    /// PIP-9
    #[test]
    fn a_calm_tenant_rides_in_the_next_batch_whatever_waits_before_it() {
        let mut queue = FairQueue::new(room(10_000));
        for n in 0..2_000 {
            queue.push(&tenant("flood"), 1000, ("flood", n)).unwrap();
        }
        queue.push(&tenant("calm"), 1000, ("calm", 0)).unwrap();
        let batch = queue.take(256, 1 << 20);
        assert_eq!(batch.len(), 256);
        assert!(batch.contains(&("calm", 0)));
    }

    /// PIP-9
    #[test]
    fn two_busy_tenants_share_by_bytes_not_by_messages() {
        let mut queue = FairQueue::new(room(100_000));
        for n in 0..4_000 {
            queue.push(&tenant("small"), 500, ("small", n)).unwrap();
            queue.push(&tenant("large"), 5_000, ("large", n)).unwrap();
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

    /// PIP-9, ORD-3
    #[test]
    fn a_line_stops_before_what_is_not_free_and_others_go_on() {
        let mut queue = FairQueue::new(room(100));
        for (name, item) in [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("b", 5)] {
            queue.push(&tenant(name), 10, item).unwrap();
        }
        assert_eq!(queue.take_free(10, 1000, |item| *item != 2), [1, 3, 5]);
        assert!(queue.take_free(10, 1000, |item| *item != 2).is_empty());
        assert_eq!((queue.len(), queue.take(10, 1000)), (2, vec![2, 4]));
    }

    #[test]
    fn one_item_is_taken_even_when_it_is_larger_than_the_batch() {
        let mut queue = FairQueue::new(room(100));
        queue.push(&tenant("a"), 900_000, 1).unwrap();
        queue.push(&tenant("a"), 10, 2).unwrap();
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
                queue.push(&tenant(&format!("t{who}")), *bytes, (*who, n)).unwrap();
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
