//! Lines of a log about what may come in floods (CLM-21): the first of a second each have one, the rest are a number.

use std::time::Duration;

use crate::bounds;
use crate::limit::throttle::Throttle;
use crate::time::Timestamp;

const SECOND: Duration = Duration::from_secs(1);

/// How many had a line in this second, and how many had none.
#[derive(Debug)]
pub struct Lines {
    told: Throttle<()>,
    untold: u64,
}

impl Default for Lines {
    fn default() -> Self {
        Self { told: Throttle::new(bounds::FLOOD_LINES_MAX, SECOND, 1), untold: 0 }
    }
}

impl Lines {
    /// Whether there is one more line, for as many as it would be about.
    pub fn have_room(&mut self, about: u64, now: Timestamp) -> bool {
        let have_room = self.told.fail((), now).is_ok();
        self.untold += if have_room { 0 } else { about };
        have_room
    }

    /// How many had none, if their second is over.
    pub fn take_untold(&mut self, now: Timestamp) -> Option<u64> {
        let is_due = self.untold > 0 && self.told.check(&(), now).is_ok();
        is_due.then(|| std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLM-21
    #[test]
    fn the_first_of_a_second_have_lines_and_the_rest_are_a_number() {
        let mut lines = Lines::default();
        let mut met = |count: usize, now: i64| {
            let now = Timestamp(now);
            let untold = lines.take_untold(now);
            ((0..count).filter(|_| lines.have_room(1, now)).count(), untold)
        };
        for (now, count, told) in [
            (0, 1, (1, None)),
            (500, 8, (8, None)),
            (900, 5000, (1, None)),
            (999, 0, (0, None)),
            (1000, 0, (0, Some(4999))),
            (1001, 10, (10, None)),
            (2000, 3, (0, None)),
            (2001, 1, (1, Some(3))),
            (60_000, 2, (2, None)),
        ] {
            assert_eq!(met(count, now), told, "{count} at {now}");
        }
    }

    /// CLM-21
    #[test]
    fn what_one_line_would_have_been_about_is_counted() {
        let mut lines = Lines::default();
        let had = (0..12).filter(|_| lines.have_room(7, Timestamp(0))).count();
        assert_eq!((had, lines.take_untold(Timestamp(1000))), (10, Some(14)));
    }
}
