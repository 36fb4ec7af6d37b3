//! The clocks of the bench. Other code gets the time as an argument; a benchmark has to read it.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use snavio_model::time::Timestamp;

/// The monotonic time, for measuring.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures by the monotonic clock")]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// The wall clock time, for signing.
#[expect(clippy::disallowed_methods, reason = "a producer signs with the machine's clock")]
pub(super) fn wall() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Processor time that the calling thread has used.
pub(super) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
