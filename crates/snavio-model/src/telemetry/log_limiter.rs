//! Limits repeated log lines: each cause has one line at once, and then at most one line a second with a
//! count. A retry loop, or thousands of clients that retry, must not fill the disk with one failure.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use crate::bounds;

/// The causes of the last second. `S` identifies a place in the code that logs; a cause is a text logged
/// there.
#[derive(Debug)]
pub struct LogLimiter<S> {
    sites: HashMap<S, HashMap<String, Cause>>,
}

#[derive(Debug)]
struct Cause {
    /// Time of the last line, on the caller's monotonic clock.
    logged_at: Duration,
    /// Lines suppressed since then.
    suppressed: u64,
}

/// The number of suppressed lines of a cause.
#[derive(Debug, PartialEq, Eq)]
pub struct Repeated<S> {
    /// The place in the code that logs.
    pub site: S,
    pub cause: String,
    pub count: u64,
}

impl<S> Default for LogLimiter<S> {
    fn default() -> Self {
        Self { sites: HashMap::new() }
    }
}

impl<S: Hash + Eq + Clone> LogLimiter<S> {
    /// Returns whether to write the line now; otherwise counts it. A place has a bounded number of causes,
    /// and those past the bound share one.
    pub fn admit(&mut self, site: &S, cause: &str, now: Duration) -> bool {
        if !self.sites.contains_key(site) {
            self.sites.insert(site.clone(), HashMap::new());
        }
        let Some(causes) = self.sites.get_mut(site) else { return true };
        let is_full = causes.len() >= bounds::LOG_CAUSES_MAX && !causes.contains_key(cause);
        let cause = if is_full { bounds::LOG_OTHER_CAUSES } else { cause };
        match causes.get_mut(cause) {
            Some(known)
                if known.suppressed == 0 && now.saturating_sub(known.logged_at) >= bounds::LOG_LINE_EVERY =>
            {
                known.logged_at = now;
                true
            }
            Some(known) => {
                known.suppressed += 1;
                false
            }
            None => {
                causes.insert(cause.to_owned(), Cause { logged_at: now, suppressed: 0 });
                true
            }
        }
    }

    /// Returns the counts of causes whose last line is a second old, and forgets causes that did not recur
    /// since. Call it several times a second, and once with [`Duration::MAX`] at the end.
    pub fn due(&mut self, now: Duration) -> Vec<Repeated<S>> {
        let mut due = Vec::new();
        for (site, causes) in &mut self.sites {
            causes.retain(|cause, known| {
                if now.saturating_sub(known.logged_at) < bounds::LOG_LINE_EVERY {
                    return true;
                }
                if known.suppressed == 0 {
                    return false;
                }
                due.push(Repeated { site: site.clone(), cause: cause.clone(), count: known.suppressed });
                (known.logged_at, known.suppressed) = (now, 0);
                true
            });
        }
        self.sites.retain(|_, causes| !causes.is_empty());
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn repeated(cause: &str, count: u64) -> Repeated<u8> {
        Repeated { site: 1, cause: cause.to_owned(), count }
    }

    /// TEL-8
    #[test]
    fn cause_has_one_line_then_counts() {
        let mut limiter = LogLimiter::default();
        assert!(limiter.admit(&1, "away", at(0)));
        assert!(limiter.admit(&1, "full", at(0)), "another cause of the same place");
        assert!(limiter.admit(&2, "away", at(0)), "the same text of another place");
        for millis in 1..=1500 {
            assert!(!limiter.admit(&1, "away", at(millis)));
        }
        assert_eq!(limiter.due(at(999)), []);
        assert_eq!(limiter.due(at(1500)), [repeated("away", 1500)]);
        assert!(!limiter.admit(&1, "away", at(2400)), "the count was its line of this second");
        assert_eq!(limiter.due(at(2499)), []);
        assert_eq!(limiter.due(at(2500)), [repeated("away", 1)]);
        assert_eq!(limiter.due(at(3500)), []);
        assert!(limiter.sites.is_empty(), "a cause that does not recur is forgotten");
        assert!(limiter.admit(&1, "away", at(3501)), "and has a line at once when it comes again");
    }

    /// TEL-8
    #[test]
    fn rare_lines_are_all_written() {
        let mut limiter = LogLimiter::default();
        for seconds in 0..10 {
            assert!(limiter.admit(&1, "away", at(seconds * 1000)));
        }
        assert_eq!(limiter.due(Duration::MAX), []);
    }

    /// TEL-8
    #[test]
    fn causes_past_the_bound_share_a_count() {
        let mut limiter = LogLimiter::default();
        let written = (0..10_000).filter(|n| limiter.admit(&1, &n.to_string(), at(0))).count();
        assert_eq!(written, bounds::LOG_CAUSES_MAX + 1);
        assert_eq!(limiter.sites[&1].len(), bounds::LOG_CAUSES_MAX + 1);
        let shared = repeated(bounds::LOG_OTHER_CAUSES, (10_000 - written) as u64);
        assert_eq!(limiter.due(at(1000)), [shared]);
        assert_eq!(limiter.due(Duration::MAX), []);
    }
}
