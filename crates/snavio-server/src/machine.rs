//! The one file that asks the machine for dates and randomness; how long something takes is measured by tokio's clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use snavio_model::time::{Clock, Timestamp};

/// A clock that never runs backwards: anchored once, then counted by the monotonic clock.
///
/// The anchor is the later of the wall clock and the last committed time, so that a wall clock that was set
/// back while the node was down expires nothing early and gives no time twice.
#[derive(Debug)]
pub struct MachineClock {
    anchor: Timestamp,
    since: Instant,
}

impl MachineClock {
    /// Anchors a clock.
    #[expect(clippy::disallowed_methods, reason = "this is the file that asks")]
    pub fn after(last_committed_at: Timestamp) -> Self {
        Self { anchor: wall().max(last_committed_at), since: Instant::now() }
    }

    /// Anchors a clock at the wall, whatever was committed: a person said that the wall is right.
    #[expect(clippy::disallowed_methods, reason = "this is the file that asks")]
    pub(crate) fn at_wall() -> Self {
        Self { anchor: wall(), since: Instant::now() }
    }

    /// How far the wall clock is from this clock.
    pub fn distance_from_wall(&self) -> Duration {
        self.now().skew(wall())
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        self.anchor.plus(self.since.elapsed())
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
