//! A circuit breaker (DLV-4): whether a target is called now, by what came of the calls before.
//!
//! | state | what may be called | goes on |
//! | --- | --- | --- |
//! | closed | everything | open after [`BREAKER_FAILURES`](limits::BREAKER_FAILURES) calls in a row that found it down |
//! | open | nothing, until its pause is over | probing, when a probe begins |
//! | probing | nothing beside the one probe | closed when it finds the target up, open for longer when not |
//!
//! Calls that were under way when it opened end later. One that finds the target up closes it: whoever answers is there.

use std::time::Duration;

use serde::Serialize;

use crate::bounds::{BREAKER_FAILURES, BREAKER_PAUSE, BREAKER_PAUSE_MAX};
use crate::time::Timestamp;

/// What a call tells of its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It is there, whatever it answered.
    Up,
    /// It cannot be reached, does not answer, or says that it can take nothing now.
    Down {
        /// For how long it asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// It says that it is gone for good.
    Gone,
    /// Nothing: it was not called, for a reason that is not its own.
    Unasked,
    /// Nothing: it was not called, since there was no place here for what that takes. The attempt is none.
    Crowded,
}

impl Presence {
    /// By an answer's status: 429, 502, 503 and 504 are of a target that can take nothing now. A 500 may be about the
    /// message: a few that its receiver stumbles over must not stop all others.
    pub fn of_status(status: u16, retry_after: Option<Duration>) -> Self {
        match status {
            429 | 502..=504 => Self::Down { retry_after },
            _ => Self::Up,
        }
    }

    /// The same call, as it tells of the places here that it takes.
    pub fn of_room(self) -> Self {
        match self {
            Self::Crowded => Self::SILENT,
            Self::Unasked => Self::Unasked,
            Self::Up | Self::Down { .. } | Self::Gone => Self::Up,
        }
    }

    /// Without an answer.
    pub const SILENT: Self = Self::Down { retry_after: None };
}

/// How a breaker stands, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = BreakerState))]
pub enum State {
    /// Its target is called.
    Closed,
    /// It is left alone.
    Open,
    /// One call finds out whether it is there again.
    HalfOpen,
}

impl State {
    /// The word for it in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// What may be called now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    /// Everything.
    All,
    /// One probe.
    Probe,
    /// Nothing until then.
    NotBefore(Timestamp),
}

impl Allowed {
    /// What both allow.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::NotBefore(one), Self::NotBefore(two)) => Self::NotBefore(one.max(two)),
            (Self::NotBefore(until), _) | (_, Self::NotBefore(until)) => Self::NotBefore(until),
            (Self::Probe, _) | (_, Self::Probe) => Self::Probe,
            (Self::All, Self::All) => Self::All,
        }
    }
}

/// What a call changed, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Nothing is called until then.
    Opened(Timestamp),
    /// Everything is called again.
    Closed,
}

/// The breaker of one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Breaker {
    /// Calls in a row that found it down.
    failures: u32,
    /// How often it opened in a row.
    opened: u32,
    at: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum At {
    #[default]
    Closed,
    Open {
        until: Timestamp,
    },
    Probing {
        /// When the probe is given up.
        until: Timestamp,
    },
}

impl Breaker {
    /// How it stands.
    pub fn state(&self) -> State {
        match self.at {
            At::Closed => State::Closed,
            At::Open { .. } => State::Open,
            At::Probing { .. } => State::HalfOpen,
        }
    }

    /// Calls in a row that found the target down.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// When a probe may begin, while nothing else may.
    pub fn probes_at(&self) -> Option<Timestamp> {
        match self.at {
            At::Closed => None,
            At::Open { until } | At::Probing { until } => Some(until),
        }
    }

    /// What may be called now.
    pub fn allows(&self, now: Timestamp) -> Allowed {
        match self.probes_at() {
            None => Allowed::All,
            Some(until) if now < until => Allowed::NotBefore(until),
            Some(_) => Allowed::Probe,
        }
    }

    /// A call begins, which may take that long.
    pub fn begun(&mut self, deadline: Duration, now: Timestamp) {
        if self.allows(now) == Allowed::Probe {
            self.at = At::Probing { until: now.plus(deadline) };
        }
    }

    /// A call has ended. Pauses lie anywhere in their upper half, by `seed`, so that targets that went down together are
    /// not all asked together.
    pub fn ended(&mut self, presence: Presence, seed: u64, now: Timestamp) -> Option<Turn> {
        let retry_after = match presence {
            Presence::Up => {
                let was_closed = self.at == At::Closed;
                *self = Self::default();
                return (!was_closed).then_some(Turn::Closed);
            }
            // Whether it is called at all any more is for somebody else to say, who may need a moment.
            Presence::Gone => {
                let until = now.plus(BREAKER_PAUSE_MAX);
                self.at = At::Open { until };
                return Some(Turn::Opened(until));
            }
            // The probe was none: the next one may be.
            Presence::Unasked | Presence::Crowded => {
                if let At::Probing { .. } = self.at {
                    self.at = At::Open { until: now };
                }
                return None;
            }
            Presence::Down { retry_after } => retry_after,
        };
        self.failures = self.failures.saturating_add(1);
        let opens = match self.at {
            At::Closed => self.failures >= BREAKER_FAILURES,
            // Of a call that was under way before.
            At::Open { .. } => false,
            At::Probing { .. } => true,
        };
        opens.then(|| {
            let until =
                now.plus(self.pause(seed).max(retry_after.unwrap_or_default().min(BREAKER_PAUSE_MAX)));
            self.opened = self.opened.saturating_add(1);
            self.at = At::Open { until };
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

    /// One that has just opened, and until when.
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
    fn calls_in_a_row_that_find_it_down_open_it_and_one_that_does_not_begins_anew() {
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
    fn one_probe_decides_and_nothing_is_called_beside_it() {
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
        // A probe of which nothing was ever heard is followed by another.
        assert_eq!(breaker.allows(at(given_up)), Allowed::Probe);
    }

    /// DLV-4
    #[test]
    fn calls_from_before_it_opened_close_it_or_change_nothing() {
        let (breaker, until) = open(0);
        let mut late = breaker;
        assert_eq!(late.ended(DOWN, 1, at(10)), None);
        assert_eq!(late.probes_at(), Some(at(until)), "the pause is as long as it was");
        let mut early = breaker;
        assert_eq!(early.ended(Presence::Up, 1, at(10)), Some(Turn::Closed));
        assert_eq!(early.allows(at(10)), Allowed::All);
    }

    /// DLV-4
    #[test]
    fn pauses_double_up_to_the_longest_are_spread_and_heed_what_was_asked_for() {
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
        let longest = [1, 2, 4, 8, 16, 32, 60, 60, 60, 60].map(|it| it * 1000);
        for seed in 0..100 {
            for (pause, longest) in pauses(seed, None).into_iter().zip(longest) {
                assert!((longest / 2..=longest).contains(&pause), "{pause} of {longest}");
            }
        }
        let firsts: std::collections::BTreeSet<_> = (0..100).map(|seed| pauses(seed, None)[6]).collect();
        assert!(firsts.len() > 50, "{firsts:?}");
        assert!(pauses(1, Some(Duration::from_secs(20)))[..4].iter().all(|it| *it == 20_000));
        assert!(
            pauses(1, Some(Duration::from_secs(86_400))).iter().all(|it| *it == 60_000),
            "but not forever"
        );
    }

    /// DLV-1
    #[test]
    fn one_that_is_gone_is_left_alone_at_once() {
        let mut breaker = Breaker::default();
        assert_eq!(breaker.ended(Presence::Gone, 1, at(7)), Some(Turn::Opened(at(60_007))));
        assert_eq!(breaker.allows(at(60_006)), Allowed::NotBefore(at(60_007)));
    }

    /// DLV-4
    #[test]
    fn a_status_says_whether_its_target_can_take_more() {
        for (statuses, is_up) in [
            (&[200, 204, 301, 400, 401, 404, 409, 410, 422, 500, 501][..], true),
            (&[429, 502, 503, 504], false),
        ] {
            for status in statuses {
                assert_eq!(Presence::of_status(*status, None) == Presence::Up, is_up, "{status}");
            }
        }
    }

    /// DLV-4: what was not sent tells nothing of whom it was for.
    #[test]
    fn a_call_that_was_not_made_changes_nothing_and_is_no_probe() {
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
