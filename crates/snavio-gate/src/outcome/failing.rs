//! Attempts that failed or lapsed, in the log (CLM-21): a few lines in a second, and the number of the rest. They are
//! counted all the same.

use std::sync::{Mutex, MutexGuard, PoisonError};

use snavio_model::bounds;
use snavio_model::claim::Status;
use snavio_model::id::Serial;
use snavio_model::name::QueueKey;
use snavio_model::telemetry::lines::Lines;
use snavio_model::time::Timestamp;
use snavio_store::Report;

/// An attempt that its worker says failed.
pub(crate) struct Failed {
    delivery_id: Serial,
    error: String,
}

impl Failed {
    /// By a report, if that says so.
    pub(crate) fn by(report: &Report) -> Option<Self> {
        let error = report.ending.error()?.chars().take(bounds::ERROR_CHARS_MAX).collect();
        Some(Self { delivery_id: report.receipt.delivery_id, error })
    }
}

/// What the log has room for.
#[derive(Debug, Default)]
pub(crate) struct Failing(Mutex<Lines>);

impl Failing {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says something about so many, if there is room.
    pub(crate) fn tell(&self, about: usize, now: Timestamp, say: impl FnOnce()) {
        self.tell_of_more(now);
        let have_room = self.lines().have_room(about as u64, now);
        if have_room {
            say();
        }
    }

    /// Somebody said that an attempt failed, and that counts.
    pub(crate) fn reported(
        &self,
        queue: &QueueKey,
        failed: &Failed,
        status: Status,
        who: &str,
        now: Timestamp,
    ) {
        let Failed { delivery_id, error } = failed;
        self.tell(1, now, || {
            let status = status.as_str();
            tracing::warn!(target: "snavio::message", %queue, %delivery_id, who, status, error, "an attempt failed");
        });
    }

    /// Nobody reported on some in time.
    pub(crate) fn lapsed(&self, attempts: usize, now: Timestamp) {
        if attempts > 0 {
            self.tell(attempts, now, || {
                tracing::warn!(target: "snavio::message", attempts, "nobody reported on attempts in time");
            });
        }
    }

    /// Says how many had no line, once their second is over.
    pub(crate) fn tell_of_more(&self, now: Timestamp) {
        let untold = self.lines().take_untold(now);
        if let Some(count) = untold {
            tracing::warn!(target: "snavio::message", count, "more attempts failed: see snavio claims list --status failed");
        }
    }
}
