//! Throttled failures: a caller that failed too often within a window is told to wait until its end (PIP-1).
//!
//! Only failures are counted, after verification: a right attempt passes, however often the caller was wrong.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use crate::bounds;
use crate::time::Timestamp;

/// How often a full table is searched for callers to forget.
const SWEEPING: Duration = Duration::from_secs(1);

/// Failures by caller. Bounded: callers past the limit share one count.
#[derive(Debug)]
pub struct Throttle<K> {
    failures_max: u32,
    window: Duration,
    callers_max: usize,
    callers: HashMap<K, Failures>,
    others: Failures,
    swept_at: Timestamp,
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    since: Timestamp,
}

impl Failures {
    const NONE: Self = Self { count: 0, since: Timestamp(i64::MIN) };

    fn is_over(&self, window: Duration, now: Timestamp) -> bool {
        now.since(self.since) >= window
    }
}

impl<K: Hash + Eq> Default for Throttle<K> {
    fn default() -> Self {
        Self::new(bounds::AUTH_FAILURES_MAX, bounds::AUTH_FAILURES_WINDOW, bounds::AUTH_CALLERS_MAX)
    }
}

impl<K: Hash + Eq> Throttle<K> {
    /// At most this many failures in a window, of this many callers.
    pub fn new(failures_max: u32, window: Duration, callers_max: usize) -> Self {
        let (callers, others) = (HashMap::new(), Failures::NONE);
        Self { failures_max, window, callers_max, callers, others, swept_at: Timestamp(i64::MIN) }
    }

    /// Whether there were too many failures, and for how long further ones have to wait.
    pub fn check(&self, caller: &K, now: Timestamp) -> Result<(), Duration> {
        let shared = (self.callers.len() >= self.callers_max).then_some(&self.others);
        match self.callers.get(caller).or(shared) {
            Some(failures) if !failures.is_over(self.window, now) && failures.count >= self.failures_max => {
                Err(self.window - now.since(failures.since))
            }
            _ => Ok(()),
        }
    }

    /// Counts a failure. When there were too many before it, says how long to wait.
    pub fn fail(&mut self, caller: K, now: Timestamp) -> Result<(), Duration> {
        let window = self.window;
        self.sweep(now);
        let failures = if self.callers.len() < self.callers_max || self.callers.contains_key(&caller) {
            self.callers.entry(caller).or_insert(Failures::NONE)
        } else {
            &mut self.others
        };
        if failures.is_over(window, now) {
            *failures = Failures { count: 0, since: now };
        }
        if failures.count >= self.failures_max {
            return Err(window - now.since(failures.since));
        }
        failures.count += 1;
        Ok(())
    }

    /// Forgets those whose window is over, when there is no room left, and not for every failure anew.
    fn sweep(&mut self, now: Timestamp) {
        if self.callers.len() >= self.callers_max && now.since(self.swept_at) >= SWEEPING {
            let window = self.window;
            self.callers.retain(|_, failures| !failures.is_over(window, now));
            self.swept_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1000)
    }

    /// PIP-1
    #[test]
    fn too_many_failures_are_refused_until_the_window_is_over() {
        let mut throttle = Throttle::new(3, WINDOW, 10);
        let wait = |seconds| Err(Duration::from_secs(seconds));
        for (second, who, expected) in [
            (0, "guesser", Ok(())),
            (10, "guesser", Ok(())),
            (20, "guesser", Ok(())),
            (20, "guesser", wait(40)),
            (20, "other", Ok(())),
            (59, "guesser", wait(1)),
            (60, "guesser", Ok(())),
            (61, "guesser", Ok(())),
            (62, "guesser", Ok(())),
            (63, "guesser", wait(57)),
            (63, "other", Ok(())),
        ] {
            assert_eq!(throttle.fail(who, at(second)), expected, "{who} at {second}");
        }
    }

    /// PIP-1
    #[test]
    fn callers_past_the_limit_share_a_count_and_take_no_room() {
        let mut throttle = Throttle::new(3, WINDOW, 100);
        let refused = (0..10_000).filter(|caller| throttle.fail(*caller, at(1)).is_err()).count();
        assert_eq!(refused, 10_000 - 100 - 3);
        assert_eq!(throttle.callers.len(), 100);
        assert!(throttle.fail(5, at(2)).is_ok(), "who is known has a count of its own");
        assert!(throttle.fail(20_000, at(61)).is_ok(), "a window later there is room again");
        assert!(throttle.callers.len() <= 100);
    }
}
