//! Limits log lines about events that may come in floods (CLM-21): the first of each second get a line, and
//! the rest are counted.

use std::time::Duration;

use crate::bounds;
use crate::limit::throttle::Throttle;
use crate::time::Timestamp;

const SECOND: Duration = Duration::from_secs(1);

/// Allows [`bounds::FLOOD_LINES_MAX`] log lines a second and counts the events without a line.
#[derive(Debug)]
pub struct Lines {
    written: Throttle<()>,
    unreported: u64,
}

impl Default for Lines {
    fn default() -> Self {
        Self { written: Throttle::new(bounds::FLOOD_LINES_MAX, SECOND, 1), unreported: 0 }
    }
}

impl Lines {
    /// Returns whether the caller may write one more line; otherwise counts the `about` events of that line.
    pub fn have_room(&mut self, about: u64, now: Timestamp) -> bool {
        let have_room = self.written.fail((), now).is_ok();
        self.unreported += if have_room { 0 } else { about };
        have_room
    }

    /// Returns the number of events without a line, once their second has ended.
    pub fn take_untold(&mut self, now: Timestamp) -> Option<u64> {
        let is_due = self.unreported > 0 && self.written.check(&(), now).is_ok();
        is_due.then(|| std::mem::take(&mut self.unreported))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLM-21
    #[test]
    fn first_events_of_a_second_get_lines() {
        let mut lines = Lines::default();
        let mut send = |count: usize, now: i64| {
            let now = Timestamp(now);
            let unreported = lines.take_untold(now);
            ((0..count).filter(|_| lines.have_room(1, now)).count(), unreported)
        };
        for (now, count, expected) in [
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
            assert_eq!(send(count, now), expected, "{count} at {now}");
        }
    }

    /// CLM-21
    #[test]
    fn suppressed_line_counts_all_its_events() {
        let mut lines = Lines::default();
        let had = (0..12).filter(|_| lines.have_room(7, Timestamp(0))).count();
        assert_eq!((had, lines.take_untold(Timestamp(1000))), (10, Some(14)));
    }
}
