//! Throttles callers with many failures: after too many in a window, a caller must wait until its end
//! (PIP-1).
//!
//! Only failures are counted, after verification. A correct attempt passes, however often the caller failed
//! before.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use crate::bounds;
use crate::time::Timestamp;

/// Shortest time between two searches of a full table for expired windows.
const SWEEPING: Duration = Duration::from_secs(1);

/// Failure counts by caller. Callers past the limit share one count.
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

    fn has_expired(&self, window: Duration, now: Timestamp) -> bool {
        now.since(self.since) >= window
    }
}

impl<K: Hash + Eq> Default for Throttle<K> {
    fn default() -> Self {
        Self::new(bounds::AUTH_FAILURES_MAX, bounds::AUTH_FAILURES_WINDOW, bounds::AUTH_CALLERS_MAX)
    }
}

impl<K: Hash + Eq> Throttle<K> {
    /// Allows this many failures in a window, for this many callers.
    pub fn new(failures_max: u32, window: Duration, callers_max: usize) -> Self {
        let (callers, others) = (HashMap::new(), Failures::NONE);
        Self { failures_max, window, callers_max, callers, others, swept_at: Timestamp(i64::MIN) }
    }

    /// Returns the remaining wait, if the caller has failed too often.
    pub fn check(&self, caller: &K, now: Timestamp) -> Result<(), Duration> {
        let shared = (self.callers.len() >= self.callers_max).then_some(&self.others);
        match self.callers.get(caller).or(shared) {
            Some(failures)
                if !failures.has_expired(self.window, now) && failures.count >= self.failures_max =>
            {
                Err(self.window - now.since(failures.since))
            }
            _ => Ok(()),
        }
    }

    /// Counts a failure. Returns the remaining wait, if the caller had failed too often before.
    pub fn fail(&mut self, caller: K, now: Timestamp) -> Result<(), Duration> {
        let window = self.window;
        self.sweep(now);
        let failures = if self.callers.len() < self.callers_max || self.callers.contains_key(&caller) {
            self.callers.entry(caller).or_insert(Failures::NONE)
        } else {
            &mut self.others
        };
        if failures.has_expired(window, now) {
            *failures = Failures { count: 0, since: now };
        }
        if failures.count >= self.failures_max {
            return Err(window - now.since(failures.since));
        }
        failures.count += 1;
        Ok(())
    }

    /// Forgets callers with an expired window, if the table is full, and not at every failure.
    fn sweep(&mut self, now: Timestamp) {
        if self.callers.len() >= self.callers_max && now.since(self.swept_at) >= SWEEPING {
            let window = self.window;
            self.callers.retain(|_, failures| !failures.has_expired(window, now));
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
    fn too_many_failures_are_refused_until_the_window_ends() {
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
    fn callers_past_the_limit_share_a_count() {
        let mut throttle = Throttle::new(3, WINDOW, 100);
        let refused = (0..10_000).filter(|caller| throttle.fail(*caller, at(1)).is_err()).count();
        assert_eq!(refused, 10_000 - 100 - 3);
        assert_eq!(throttle.callers.len(), 100);
        assert!(throttle.fail(5, at(2)).is_ok(), "a counted caller keeps its own count");
        assert!(throttle.fail(20_000, at(61)).is_ok(), "a window later there is room again");
        assert!(throttle.callers.len() <= 100);
    }
}
