//! New conflicts in the log (CLM-21): the first of a second each in a line of its own, the rest as a number, so that
//! whoever uses many ids twice does not fill it. Record, alert, audit and metric are kept of each of them all the same.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snavio_model::conflict::Conflict;
use snavio_model::limits;
use snavio_model::throttle::Throttle;
use snavio_model::time::Timestamp;

const SECOND: Duration = Duration::from_secs(1);

/// The log is the process's, and so is this.
static LINES: LazyLock<Mutex<Lines>> = LazyLock::new(Mutex::default);

fn lines() -> MutexGuard<'static, Lines> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says that conflicts are on record now.
pub(crate) fn tell_conflicts<'a>(conflicts: impl Iterator<Item = &'a Conflict>) {
    for conflict in conflicts {
        tell_of_more_conflicts(conflict.flagged_at);
        if !lines().has_room(conflict.flagged_at) {
            continue;
        }
        tracing::error!(
            event_id = %conflict.event_id, conflict_id = %conflict.id, source = %conflict.source,
            original_hash = %conflict.original_hash, conflicting_hash = %conflict.hash,
            "an id was used for two contents"
        );
    }
}

/// Says how many new conflicts had no line of their own, once their second is over. To be called now and then: the last
/// of a flood are followed by none that could say so.
pub fn tell_of_more_conflicts(now: Timestamp) {
    if let Some(count) = lines().take_untold(now) {
        tracing::error!(count, "more ids were used for two contents: see snavio conflicts list");
    }
}

/// How many had a line in this second, and how many had none.
struct Lines {
    told: Throttle<()>,
    untold: u64,
}

impl Default for Lines {
    fn default() -> Self {
        Self { told: Throttle::new(limits::CONFLICT_LINES_MAX, SECOND, 1), untold: 0 }
    }
}

impl Lines {
    /// Whether one more has a line of its own.
    fn has_room(&mut self, now: Timestamp) -> bool {
        let has_room = self.told.fail((), now).is_ok();
        self.untold += u64::from(!has_room);
        has_room
    }

    /// How many had none, if their second is over.
    fn take_untold(&mut self, now: Timestamp) -> Option<u64> {
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
            ((0..count).filter(|_| lines.has_room(now)).count(), untold)
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
}
