//! A circuit breaker (DLV-4): decides from the results of earlier calls whether the gateway may call a target
//! now.
//!
//! | state | permitted calls | next state |
//! | --- | --- | --- |
//! | closed | all | open, after [`BREAKER_FAILURES`](bounds::BREAKER_FAILURES) calls in a row found the target down |
//! | open | none until the pause ends | half-open, when a probe begins |
//! | half-open | only the probe | closed if the probe finds the target up, else open for a longer pause |
//!
//! Calls that were under way when the breaker opened end later. If one of them finds the target up, the
//! breaker closes: a target that answers is up.

use std::time::Duration;

use serde::Serialize;

use crate::bounds::{BREAKER_FAILURES, BREAKER_PAUSE, BREAKER_PAUSE_MAX};
use crate::time::Timestamp;

/// The state of a target, as one call shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It answered. The content of the answer does not matter.
    Up,
    /// It cannot be reached, does not answer, or reports that it accepts nothing now.
    Down {
        /// The pause that the target asks for.
        retry_after: Option<Duration>,
    },
    /// It reports that it is gone for good.
    Gone,
    /// Unknown: the gateway did not call the target, for a cause outside the target.
    Unasked,
    /// Unknown: the node had no capacity for the call. It does not count as an attempt.
    Crowded,
}

impl Presence {
    /// Judges the status code of an answer. 429, 502, 503 and 504 mean that the target accepts nothing now. A
    /// 500 may concern one message: a few messages that the receiver cannot process must not stop all others.
    pub fn of_status(status: u16, retry_after: Option<Duration>) -> Self {
        match status {
            429 | 502..=504 => Self::Down { retry_after },
            _ => Self::Up,
        }
    }

    /// The same call, as the result for the capacity of this node: only a call without capacity counts as
    /// down.
    pub fn of_room(self) -> Self {
        match self {
            Self::Crowded => Self::SILENT,
            Self::Unasked => Self::Unasked,
            Self::Up | Self::Down { .. } | Self::Gone => Self::Up,
        }
    }

    /// A target that did not answer.
    pub const SILENT: Self = Self::Down { retry_after: None };
}

/// The state of a breaker, as responses and metrics name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = BreakerState))]
pub enum State {
    /// The gateway calls the target.
    Closed,
    /// The gateway does not call the target.
    Open,
    /// One probe tests whether the target is up again.
    HalfOpen,
}

impl State {
    /// The name in responses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// The calls that a breaker permits now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    All,
    Probe,
    /// No call before this time.
    NotBefore(Timestamp),
}

impl Allowed {
    /// The calls that both permit.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::NotBefore(one), Self::NotBefore(two)) => Self::NotBefore(one.max(two)),
            (Self::NotBefore(until), _) | (_, Self::NotBefore(until)) => Self::NotBefore(until),
            (Self::Probe, _) | (_, Self::Probe) => Self::Probe,
            (Self::All, Self::All) => Self::All,
        }
    }
}

/// A change of state that a call caused, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// No call is permitted before this time.
    Opened(Timestamp),
    Closed,
}

/// The breaker of one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Breaker {
    /// Calls in a row that found the target down.
    failures: u32,
    /// The number of times that it opened since it was last closed.
    opened: u32,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Closed,
    Open {
        until: Timestamp,
    },
    HalfOpen {
        /// When the gateway gives up on the probe.
        until: Timestamp,
    },
}

impl Breaker {
    /// The state as responses name it.
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Closed => State::Closed,
            Phase::Open { .. } => State::Open,
            Phase::HalfOpen { .. } => State::HalfOpen,
        }
    }

    /// Calls in a row that found the target down.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// When the next probe may begin, unless the breaker is closed.
    pub fn probes_at(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Closed => None,
            Phase::Open { until } | Phase::HalfOpen { until } => Some(until),
        }
    }

    /// The calls that the breaker permits now.
    pub fn allows(&self, now: Timestamp) -> Allowed {
        match self.probes_at() {
            None => Allowed::All,
            Some(until) if now < until => Allowed::NotBefore(until),
            Some(_) => Allowed::Probe,
        }
    }

    /// Records the start of a call that takes at most `deadline`.
    pub fn begun(&mut self, deadline: Duration, now: Timestamp) {
        if self.allows(now) == Allowed::Probe {
            self.phase = Phase::HalfOpen { until: now.plus(deadline) };
        }
    }

    /// Records the end of a call. `seed` places each pause anywhere in the upper half of its range, so that
    /// the gateway does not probe all targets at once that failed together.
    pub fn ended(&mut self, presence: Presence, seed: u64, now: Timestamp) -> Option<Turn> {
        let retry_after = match presence {
            Presence::Up => {
                let was_closed = self.phase == Phase::Closed;
                *self = Self::default();
                return (!was_closed).then_some(Turn::Closed);
            }
            // Another part decides whether the route stays enabled (DLV-1), and may need a moment.
            Presence::Gone => {
                let until = now.plus(BREAKER_PAUSE_MAX);
                self.phase = Phase::Open { until };
                return Some(Turn::Opened(until));
            }
            // The probe did not call the target, so that another probe may begin at once.
            Presence::Unasked | Presence::Crowded => {
                if let Phase::HalfOpen { .. } = self.phase {
                    self.phase = Phase::Open { until: now };
                }
                return None;
            }
            Presence::Down { retry_after } => retry_after,
        };
        self.failures = self.failures.saturating_add(1);
        let opens = match self.phase {
            Phase::Closed => self.failures >= BREAKER_FAILURES,
            // The call began before the breaker opened.
            Phase::Open { .. } => false,
            Phase::HalfOpen { .. } => true,
        };
        opens.then(|| {
            let until =
                now.plus(self.pause(seed).max(retry_after.unwrap_or_default().min(BREAKER_PAUSE_MAX)));
            self.opened = self.opened.saturating_add(1);
            self.phase = Phase::Open { until };
            Turn::Opened(until)
        })
    }

    fn pause(&self, seed: u64) -> Duration {
        let full =
            BREAKER_PAUSE.saturating_mul(1 << self.opened.min(16)).min(BREAKER_PAUSE_MAX).as_millis() as u64;
        let spread = (seed ^ u64::from(self.opened)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        Duration::from_millis(full / 2 + spread % (full - full / 2 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(30);
    const DOWN: Presence = Presence::SILENT;

    fn at(ms: i64) -> Timestamp {
        Timestamp(ms)
    }

    /// A breaker that has just opened, and the end of its pause.
    fn open(now: i64) -> (Breaker, i64) {
        let mut breaker = Breaker::default();
        for _ in 1..BREAKER_FAILURES {
            assert_eq!(breaker.ended(DOWN, 1, at(now)), None);
        }
        let Some(Turn::Opened(until)) = breaker.ended(DOWN, 1, at(now)) else { panic!("{breaker:?}") };
        (breaker, until.0)
    }

    /// DLV-4
    #[test]
    fn failures_in_a_row_open_it_and_a_success_resets() {
        let mut breaker = Breaker::default();
        for _ in 0..3 {
            for _ in 1..BREAKER_FAILURES {
                assert_eq!(breaker.ended(DOWN, 1, at(0)), None);
                assert_eq!(breaker.allows(at(0)), Allowed::All);
            }
            assert_eq!(breaker.ended(Presence::Up, 1, at(0)), None);
        }
        let (breaker, until) = open(0);
        assert_eq!((breaker.state(), breaker.failures()), (State::Open, BREAKER_FAILURES));
        assert_eq!(breaker.allows(at(until - 1)), Allowed::NotBefore(at(until)));
        assert_eq!(breaker.allows(at(until)), Allowed::Probe);
    }

    /// DLV-4
    #[test]
    fn single_probe_decides_and_other_calls_wait() {
        let (mut breaker, until) = open(0);
        breaker.begun(DEADLINE, at(until));
        assert_eq!(breaker.state(), State::HalfOpen);
        let given_up = until + 30_000;
        assert_eq!(breaker.allows(at(until + 1)), Allowed::NotBefore(at(given_up)));
        let mut closed = breaker;
        assert_eq!(closed.ended(Presence::Up, 1, at(until + 5)), Some(Turn::Closed));
        assert_eq!(closed, Breaker::default());
        let mut again = breaker;
        assert!(matches!(again.ended(DOWN, 1, at(until + 5)), Some(Turn::Opened(_))));
        assert_eq!(again.state(), State::Open);
        // After a probe that never reported, another one may begin.
        assert_eq!(breaker.allows(at(given_up)), Allowed::Probe);
    }

    /// DLV-4
    #[test]
    fn earlier_calls_close_it_or_change_nothing() {
        let (breaker, until) = open(0);
        let mut late = breaker;
        assert_eq!(late.ended(DOWN, 1, at(10)), None);
        assert_eq!(late.probes_at(), Some(at(until)), "the pause is unchanged");
        let mut early = breaker;
        assert_eq!(early.ended(Presence::Up, 1, at(10)), Some(Turn::Closed));
        assert_eq!(early.allows(at(10)), Allowed::All);
    }

    /// DLV-4
    #[test]
    fn pauses_double_up_to_a_limit_and_respect_retry_after() {
        let pauses = |seed: u64, retry_after: Option<Duration>| {
            let (mut breaker, mut now) = (Breaker::default(), 0);
            let mut pauses = Vec::new();
            while pauses.len() < 10 {
                if let Some(Turn::Opened(until)) =
                    breaker.ended(Presence::Down { retry_after }, seed, at(now))
                {
                    pauses.push(until.0 - now);
                    now = until.0;
                    breaker.begun(DEADLINE, at(now));
                }
            }
            pauses
        };
        let longest = [1, 2, 4, 8, 16, 32, 60, 60, 60, 60].map(|seconds| seconds * 1000);
        for seed in 0..100 {
            for (pause, longest) in pauses(seed, None).into_iter().zip(longest) {
                assert!((longest / 2..=longest).contains(&pause), "{pause} of {longest}");
            }
        }
        let firsts: std::collections::BTreeSet<_> = (0..100).map(|seed| pauses(seed, None)[6]).collect();
        assert!(firsts.len() > 50, "{firsts:?}");
        assert!(pauses(1, Some(Duration::from_secs(20)))[..4].iter().all(|pause| *pause == 20_000));
        assert!(
            pauses(1, Some(Duration::from_secs(86_400))).iter().all(|pause| *pause == 60_000),
            "up to the longest pause"
        );
    }

    /// DLV-1
    #[test]
    fn gone_target_opens_it_at_once() {
        let mut breaker = Breaker::default();
        assert_eq!(breaker.ended(Presence::Gone, 1, at(7)), Some(Turn::Opened(at(60_007))));
        assert_eq!(breaker.allows(at(60_006)), Allowed::NotBefore(at(60_007)));
    }

    /// DLV-4
    #[test]
    fn status_code_decides_whether_the_target_is_up() {
        for (statuses, is_up) in [
            (&[200, 204, 301, 400, 401, 404, 409, 410, 422, 500, 501][..], true),
            (&[429, 502, 503, 504], false),
        ] {
            for status in statuses {
                assert_eq!(Presence::of_status(*status, None) == Presence::Up, is_up, "{status}");
            }
        }
    }

    /// DLV-4: a call that was not made shows nothing about its target.
    #[test]
    fn unmade_call_changes_nothing_and_is_no_probe() {
        let mut closed = Breaker::default();
        closed.ended(DOWN, 1, at(0));
        let before = closed;
        assert_eq!((closed.ended(Presence::Unasked, 1, at(1)), closed), (None, before));
        let (mut breaker, until) = open(0);
        breaker.begun(DEADLINE, at(until));
        assert_eq!(breaker.ended(Presence::Unasked, 1, at(until)), None);
        assert_eq!((breaker.state(), breaker.allows(at(until))), (State::Open, Allowed::Probe));
    }
}
