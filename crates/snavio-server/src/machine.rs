//! The one file that asks the machine for dates and randomness; how long something takes is measured by tokio's clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use snavio_model::time::{Clock, Timestamp};

/// A clock that never runs backwards: anchored once, then counted by the monotonic clock.
///
/// Where a store has no time of its own, the anchor is the later of the wall clock and the last committed time, so
/// that a wall clock that was set back while the node was down expires nothing early and gives no time twice. Where
/// many nodes share an engine they go by the engine's time, and follow it as their clocks drift apart.
#[derive(Debug)]
pub struct MachineClock {
    anchor: Timestamp,
    since: Instant,
    /// How far it was moved since, in milliseconds.
    moved: AtomicI64,
    /// The latest time it told, where it may have been moved back.
    told: AtomicI64,
    /// How far from the wall clock a person has accepted it to be.
    accepted: Duration,
}

/// A node's time further than this from the wall clock is nothing to go by without a person's word (QUA-1).
pub const CLOCK_DISTANCE_MAX: Duration = Duration::from_secs(30);

/// How far a clock is moved at once towards the engine's: a jump over there is no jump here.
const MOVED_MAX_MS: i64 = 100;
/// A distance from the engine's time that people should hear of.
const DISTANCE_MAX_MS: i64 = 1_000;

impl MachineClock {
    /// Anchors a clock at a time.
    #[expect(clippy::disallowed_methods, reason = "this is the file that asks")]
    pub fn at(anchor: Timestamp) -> Self {
        Self {
            anchor,
            since: Instant::now(),
            moved: AtomicI64::new(0),
            told: AtomicI64::new(i64::MIN),
            accepted: Duration::ZERO,
        }
    }

    /// Anchors a clock at the wall, but not before a time.
    pub fn after(last_committed_at: Timestamp) -> Self {
        Self::at(wall().max(last_committed_at))
    }

    /// Takes its distance from the wall clock as it is now for right.
    pub(crate) fn accepted(self) -> Self {
        Self { accepted: self.distance_from_wall(), ..self }
    }

    /// Moves it towards the engine's time, a little at a time, and never back over what it told.
    pub(crate) fn follow(&self, engine: Timestamp) {
        let now = self.counted();
        self.told.fetch_max(now.0, Ordering::Relaxed);
        let distance = engine.0.saturating_sub(now.0);
        if distance.abs() > DISTANCE_MAX_MS {
            tracing::warn!(
                distance_ms = distance,
                "this node's time is away from the database's, and follows"
            );
        }
        self.moved.fetch_add(distance.clamp(-MOVED_MAX_MS, MOVED_MAX_MS), Ordering::Relaxed);
    }

    /// How far the wall clock is from this clock.
    pub fn distance_from_wall(&self) -> Duration {
        self.now().skew(wall())
    }

    /// Whether that is too far.
    pub(crate) fn is_away_from_wall(&self) -> bool {
        self.distance_from_wall() > CLOCK_DISTANCE_MAX + self.accepted
    }

    fn counted(&self) -> Timestamp {
        Timestamp(self.anchor.plus(self.since.elapsed()).0 + self.moved.load(Ordering::Relaxed))
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        self.counted().max(Timestamp(self.told.load(Ordering::Relaxed)))
    }
}

/// What the wall clock says.
#[expect(clippy::disallowed_methods, reason = "this is the file that asks")]
pub(crate) fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Random bytes from the operating system.
#[expect(clippy::disallowed_methods, reason = "this is the file that asks")]
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if let Err(error) = getrandom::fill(&mut bytes) {
        // Without randomness no secret can be made; going on would make guessable ones.
        eprintln!("snavio: the operating system gives no random bytes ({error}); ending the process");
        std::process::abort();
    }
    bytes
}

/// Random bytes that need not be secret (correlation and trace ids): a keyed counter, because a system call per
/// message would cost more than the message's signature.
pub(crate) fn unpredictable() -> [u8; 40] {
    use std::cell::RefCell;
    use std::hash::{BuildHasher, RandomState};

    thread_local! {
        static STATE: RefCell<(RandomState, u64)> = RefCell::new((RandomState::new(), 0));
    }
    STATE.with_borrow_mut(|(keyed, counter)| {
        let mut bytes = [0; 40];
        for chunk in bytes.chunks_exact_mut(8) {
            *counter += 1;
            chunk.copy_from_slice(&keyed.hash_one(*counter).to_le_bytes());
        }
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// QUA-1, ENG-7
    #[test]
    fn a_clock_follows_the_engine_in_small_steps_and_never_back() {
        let clock = MachineClock::at(Timestamp(1_000_000));
        let hour = 3_600_000;
        clock.follow(Timestamp(1_000_000 + hour));
        assert!(clock.now() < Timestamp(1_000_000 + hour / 2), "a jump expires nothing");
        for _ in 0..50 {
            let before = clock.now();
            clock.follow(Timestamp(500_000));
            assert!(clock.now() >= before);
        }
        for _ in 0..hour {
            clock.follow(Timestamp(1_000_000 + hour));
        }
        assert!(clock.now() >= Timestamp(1_000_000 + hour), "but it gets there");
    }

    /// QUA-1
    #[test]
    fn a_clock_is_away_from_the_wall_unless_a_person_accepted_that() {
        let hour = Duration::from_secs(3600);
        assert!(!MachineClock::at(wall()).is_away_from_wall());
        for time in [wall().plus(hour), wall().minus(hour)] {
            assert!(MachineClock::at(time).is_away_from_wall());
            assert!(!MachineClock::at(time).accepted().is_away_from_wall());
        }
    }
}
