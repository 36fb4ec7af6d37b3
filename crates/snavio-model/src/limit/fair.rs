//! Fair intake: work of many tenants waits in bounded lines of their own and is taken in turns by size (PIP-9).
//!
//! Deficit round robin: a tenant's turn gives it a quantum of bytes; what it does not use up with waiting work
//! it loses, what a large item still needs it keeps. No tenant can hold more than its part of the room.

use std::collections::VecDeque;

use foldhash::{HashMap, HashMapExt};

use crate::bounds;
use crate::name::TenantName;

/// Bytes a tenant may put into a batch per turn.
const QUANTUM_BYTES: usize = 16 * 1024;

/// Items of a line that others behind them may pass. Whoever hands in looks at as many.
const PASSED_MAX: usize = 64;
/// As how many they may count: an event is looked at once for each of its destinations.
const PASSED_SIZE_MAX: usize = 256;

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
            items_max: bounds::INTAKE_MESSAGES_MAX,
            bytes_max: bounds::INTAKE_BYTES_MAX,
            tenant_part: bounds::TENANT_PART,
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
    /// Batches that were taken.
    batches: u64,
}

#[derive(Debug)]
struct Line<T> {
    waiting: VecDeque<(Size, T)>,
    /// Those of its first that have stepped aside while a batch is taken.
    aside: Vec<(Size, T)>,
    taken: Size,
    deficit: usize,
    /// The last batch that it put something into.
    served_in: u64,
}

impl<T> FairQueue<T> {
    /// An empty queue with these bounds.
    pub fn new(room: Room) -> Self {
        let (lines, turns) = (HashMap::new(), VecDeque::new());
        Self { room, count: 0, taken: Size::default(), lines, turns, batches: 0 }
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
                self.lines.insert(tenant.clone(), Line::of(size, item));
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
        self.take_free(items_max, bytes_max, |_| true)
    }

    /// The same of what is free to be taken. An item that is not steps aside and keeps its place, and others of its line
    /// pass it, up to so many. Whether an item is free is asked in the order of its line, so that whoever is asked can say no
    /// to what must not pass those before it.
    pub fn take_free(
        &mut self,
        items_max: usize,
        bytes_max: usize,
        mut is_free: impl FnMut(&T) -> bool,
    ) -> Vec<T> {
        let most = Size { items: items_max, bytes: bytes_max };
        self.batches += 1;
        let mut batch = Batch { number: self.batches, items: Vec::new(), taken: Size::default(), most };
        let (mut stopped, mut passed) = (Vec::new(), Vec::new());
        while !batch.is_full() {
            let Some(tenant) = self.turns.pop_front() else { break };
            let Some(line) = self.lines.get_mut(&tenant) else { continue };
            let had_passed = !line.aside.is_empty();
            let served = line.serve(&mut batch, &mut is_free);
            if !had_passed && !line.aside.is_empty() {
                passed.push(tenant.clone());
            }
            match served {
                Served::Empty => drop(self.lines.remove(&tenant)),
                Served::Stopped => stopped.push(tenant),
                // Or one that is large would find the next batch begun by others again, for as long as they are busy.
                Served::KeepsTurn => self.turns.push_front(tenant),
                Served::InPart => self.turns.push_back(tenant),
            }
        }
        for tenant in passed {
            self.lines.get_mut(&tenant).into_iter().for_each(Line::step_back);
        }
        // It is the turn of those still, once they are free, that were not served.
        for tenant in stopped.into_iter().rev() {
            match self.lines.get(&tenant).is_some_and(|line| line.served_in == batch.number) {
                true => self.turns.push_back(tenant),
                false => self.turns.push_front(tenant),
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

/// How a line's turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Served {
    /// Nothing waits in it any more.
    Empty,
    /// What waits in it is not free, as far as is looked.
    Stopped,
    /// The batch is closed because its first one does not fit: its turn is still to come.
    KeepsTurn,
    /// More waits in it.
    InPart,
}

impl<T> Line<T> {
    fn of(size: Size, item: T) -> Self {
        let waiting = VecDeque::from([(size, item)]);
        Self { waiting, aside: Vec::new(), taken: size, deficit: 0, served_in: 0 }
    }

    fn serve(&mut self, batch: &mut Batch<T>, mut is_free: impl FnMut(&T) -> bool) -> Served {
        self.deficit += QUANTUM_BYTES;
        let before = batch.items.len();
        while let Some(&(size, ref item)) = self.waiting.front() {
            let aside: usize = self.aside.iter().map(|(size, _)| size.items).sum();
            if self.aside.len() >= PASSED_MAX || aside >= PASSED_SIZE_MAX {
                break;
            }
            if !is_free(item) {
                self.aside.extend(self.waiting.pop_front());
                continue;
            }
            if size.bytes > self.deficit {
                return Served::InPart;
            }
            if !batch.fits(size) {
                batch.most.bytes = batch.taken.bytes;
                let is_first = batch.items.len() == before;
                return if is_first { Served::KeepsTurn } else { Served::InPart };
            }
            let Some((size, item)) = self.waiting.pop_front() else { break };
            self.deficit -= size.bytes;
            self.taken = self.taken.minus(size);
            self.served_in = batch.number;
            batch.taken = batch.taken.plus(size);
            batch.items.push(item);
        }
        self.deficit = 0;
        if self.aside.is_empty() { Served::Empty } else { Served::Stopped }
    }

    /// What has stepped aside is the first again.
    fn step_back(&mut self) {
        self.aside.drain(..).rev().for_each(|it| self.waiting.push_front(it));
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

    /// PIP-9, PIP-13
    #[test]
    fn what_counts_as_many_comes_through_beside_one_who_is_always_busy() {
        let mut queue = FairQueue::new(room(10_000));
        let more = |queue: &mut FairQueue<&str>| {
            while queue.push(&tenant("busy"), one(500), "busy").is_ok() {}
        };
        more(&mut queue);
        queue.push(&tenant("wide"), Size { items: 300, bytes: 5 * QUANTUM_BYTES }, "wide").unwrap();
        let mut came = Vec::new();
        for _ in 0..40 {
            let batch = queue.take(256, 1 << 20);
            more(&mut queue);
            came.push(batch.contains(&"wide"));
            // And one of those after the other leaves batches for others.
            let _ = queue.push(&tenant("wide"), Size { items: 300, bytes: 10 }, "wide");
        }
        let wide = came.iter().filter(|it| **it).count();
        assert!((5..=20).contains(&wide), "{came:?}");
    }

    /// PIP-9, ORD-3
    #[test]
    fn what_is_not_free_steps_aside_and_others_of_its_line_pass() {
        let mut queue = FairQueue::new(room(100));
        for (name, item) in [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("b", 5), ("a", 2)] {
            queue.push(&tenant(name), one(10), item).unwrap();
        }
        assert_eq!(queue.take_free(10, 1000, |item| *item != 2), [1, 4, 3, 5]);
        assert!(queue.take_free(10, 1000, |item| *item != 2).is_empty());
        queue.push(&tenant("a"), one(10), 6).unwrap();
        assert_eq!(queue.take_free(10, 1000, |item| *item != 2), [6]);
        assert_eq!((queue.len(), queue.take(10, 1000)), (2, vec![2, 2]));
        assert!(queue.is_empty() && queue.lines.is_empty());
    }

    /// PIP-9, ORD-3: no more than so many are looked at, and what is passed keeps its place and its order.
    #[test]
    fn a_line_stops_behind_as_many_as_may_be_passed() {
        let mut queue = FairQueue::new(room(10_000));
        for item in 0..2 * PASSED_MAX {
            queue.push(&tenant("a"), one(10), ("busy", item)).unwrap();
        }
        queue.push(&tenant("a"), one(10), ("free", 0)).unwrap();
        let mut asked = 0;
        let taken = queue.take_free(1000, 100_000, |(what, _)| {
            asked += 1;
            *what == "free"
        });
        assert_eq!((taken, asked), (Vec::new(), PASSED_MAX));
        let all = queue.take(1000, 100_000);
        assert!(all.iter().map(|(_, item)| *item).take(2 * PASSED_MAX).eq(0..2 * PASSED_MAX), "{all:?}");
    }

    /// PIP-9: who has something that is not free does not come first with the rest for ever.
    #[test]
    fn a_line_that_stops_has_no_more_turns_than_others() {
        let mut queue = FairQueue::new(room(100_000));
        queue.push(&tenant("a"), one(10), ("a", false)).unwrap();
        for _ in 0..1000 {
            queue.push(&tenant("b"), one(QUANTUM_BYTES), ("b", true)).unwrap();
            queue.push(&tenant("c"), one(QUANTUM_BYTES), ("c", true)).unwrap();
        }
        let (mut count, mut has_one) = (0, false);
        for _ in 0..300 {
            // One of its own is free whenever its turn comes, and a batch has room for one.
            if !has_one {
                queue.push(&tenant("a"), one(QUANTUM_BYTES), ("a", true)).unwrap();
            }
            let batch = queue.take_free(1, 1 << 20, |(_, is_free)| *is_free);
            has_one = !batch.contains(&("a", true));
            count += usize::from(!has_one);
        }
        assert!((90..=110).contains(&count), "{count} of 300 with three who want to");
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

        /// PIP-9, ORD-3: as the committer asks, of entities of which one or the other is busy.
        #[test]
        fn whoever_passes_whom_the_order_within_an_entity_is_kept(
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
                // In the end nothing is busy.
                let is_busy = |entity: &u8| busy.get(round).is_some_and(|it| it.contains(entity));
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
            proptest::prop_assert!(queue.lines.is_empty());
        }
    }
}
