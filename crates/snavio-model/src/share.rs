//! How many of a node's calls one target may have under way (DLV-4), so that those that hang leave places for those that do
//! not.
//!
//! Half of the places are divided: every target has its part of them, one at least, whatever the others do. The other half is
//! for whoever needs more, and nobody takes more of that than is left: one that hangs has half of it at most. No count of who
//! is slow is kept, and there is nothing to tune.

use crate::limits::{CALLS_MAX, CALLS_PER_QUEUE_MAX};

/// The half that is divided, and the half that is common.
const HALF: usize = CALLS_MAX / 2;

/// Places, by where they come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Places {
    /// Of the target's own part.
    pub own: usize,
    /// Of those that are for all.
    pub common: usize,
}

impl Places {
    /// All of them.
    pub fn count(self) -> usize {
        self.own + self.common
    }
}

/// The places that a target may take beside those that it has, at most so many, while all of so many targets have taken these.
pub fn may_take(has: Places, most: usize, taken: Places, targets: usize) -> Places {
    let most = most.min(CALLS_PER_QUEUE_MAX.saturating_sub(has.count()));
    let part = (HALF / targets.max(1)).clamp(1, CALLS_PER_QUEUE_MAX);
    // Parts get smaller as targets come: those that have more of old leave less to be had, but never nothing.
    let left = HALF.saturating_sub(taken.own).max(usize::from(has.own == 0));
    let own = part.saturating_sub(has.own).min(left).min(most);
    // With n more it has has.common + n of them, and free - n are left.
    let free = HALF.saturating_sub(taken.common);
    let more = free.saturating_sub(has.common).div_ceil(2);
    Places { own, common: more.min(most - own) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets targets whose calls never end take what they may, one after the other, until none may any more.
    fn hold(hanging: usize, targets: usize) -> Vec<Places> {
        let mut held = vec![Places::default(); hanging];
        loop {
            let before = held.clone();
            for place in 0..hanging {
                let more = may_take(held[place], CALLS_PER_QUEUE_MAX, all(&held), targets);
                held[place].own += more.own;
                held[place].common += more.common;
            }
            if held == before {
                return held;
            }
        }
    }

    fn all(held: &[Places]) -> Places {
        let sum = |sum: Places, it: &Places| Places { own: sum.own + it.own, common: sum.common + it.common };
        held.iter().fold(Places::default(), sum)
    }

    /// DLV-4
    #[test]
    fn targets_that_hang_leave_every_other_its_part() {
        for targets in [2, 9, 16, 50, 201] {
            let held = hold(targets - 1, targets);
            let left = may_take(Places::default(), CALLS_PER_QUEUE_MAX, all(&held), targets).count();
            let part = (HALF / targets).clamp(1, CALLS_PER_QUEUE_MAX);
            assert!(left >= part, "{targets}: {left} left of a part of {part}");
            assert!(held.iter().all(|it| it.count() <= CALLS_PER_QUEUE_MAX));
            assert!(all(&held).count() <= CALLS_MAX, "{targets}: {:?}", all(&held));
        }
    }

    /// DLV-4: one of fifty that is dead is not noticed by the rest.
    #[test]
    fn one_that_hangs_takes_nothing_that_others_would_miss() {
        let held = hold(1, 50);
        assert_eq!(held[0].count(), CALLS_PER_QUEUE_MAX);
        let left = may_take(Places::default(), CALLS_PER_QUEUE_MAX, held[0], 50);
        assert_eq!(left.count(), CALLS_PER_QUEUE_MAX);
    }

    /// DLV-4
    #[test]
    fn every_target_may_have_one_call_however_many_hang() {
        let held = hold(10 * CALLS_MAX, 10 * CALLS_MAX);
        assert!(held.iter().all(|it| it.own == 1));
        assert!(all(&held).count() <= HALF + held.len());
        let more = may_take(Places { own: 1, common: 0 }, 10, all(&held), 10 * CALLS_MAX);
        assert_eq!(more.count(), 0, "and no second one");
    }

    /// DLV-4
    #[test]
    fn no_more_is_taken_than_is_asked_for() {
        let part = Places { own: 10, common: 0 };
        assert_eq!(may_take(Places::default(), 3, Places::default(), 50), Places { own: 3, common: 0 });
        assert_eq!(may_take(part, 3, part, 50), Places { own: 0, common: 3 });
        let full = Places { own: 10, common: 54 };
        assert_eq!(may_take(full, 3, full, 50).count(), 0);
    }

    /// DLV-4: targets that come one by one find smaller parts, and the bound holds all the same.
    #[test]
    fn targets_that_come_late_find_a_place_within_the_bound() {
        let mut held: Vec<Places> = Vec::new();
        for targets in 1..=300 {
            let first = may_take(Places::default(), CALLS_PER_QUEUE_MAX, all(&held), targets);
            assert!(first.count() >= 1, "{targets}");
            held.push(first);
        }
        assert!(all(&held).count() <= CALLS_MAX + held.len(), "{:?}", all(&held));
    }
}
