//! The source of serials: one counter for everything the store numbers, in memory, above a committed epoch.
//!
//! The store commits an epoch that lies one ahead of the one in use, so that a counter that runs over is in
//! reserved ground already, whenever the next commit comes.

use std::sync::atomic::{AtomicI64, Ordering};

use snavio_model::id::Serial;

/// Gives serials.
pub(super) struct Numbers(AtomicI64);

impl Numbers {
    /// Numbers of an epoch, from its beginning.
    pub(super) fn of_epoch(epoch: i64) -> Self {
        Self(AtomicI64::new(Serial::first_of(epoch).0))
    }

    /// The next serial.
    pub(super) fn next(&self) -> Serial {
        self.reserve(1).next()
    }

    /// Reserves `count` serials: those after the one returned.
    pub(super) fn reserve(&self, count: usize) -> Serial {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        Serial(self.0.fetch_add(count, Ordering::Relaxed))
    }

    /// The newest serial so far.
    pub(super) fn newest(&self) -> Serial {
        Serial(self.0.load(Ordering::Relaxed))
    }

    /// The epoch that must be committed for the numbers given so far, and a whole epoch more, to be safe.
    pub(super) fn epoch_to_commit(&self) -> i64 {
        Serial(self.0.load(Ordering::Relaxed)).epoch() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_runs_over_asks_for_the_next_epoch_to_be_committed() {
        let numbers = Numbers::of_epoch(5);
        assert_eq!(numbers.next(), Serial::first_of(5).next());
        assert_eq!(numbers.epoch_to_commit(), 6);
        numbers.reserve((1 << Serial::COUNTER_BITS) - 1);
        assert_eq!(numbers.epoch_to_commit(), 7);
        assert!(numbers.next() > Serial::first_of(6));
    }
}
