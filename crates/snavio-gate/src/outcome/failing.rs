//! Log lines about attempts that failed or timed out (CLM-21): a few lines a second, and then the number of
//! the others. The metrics count all of them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use snavio_model::bounds;
use snavio_model::claim::Status;
use snavio_model::id::Serial;
use snavio_model::name::QueueKey;
use snavio_model::telemetry::lines::Lines;
use snavio_model::time::Timestamp;
use snavio_store::Report;

/// An attempt that its worker reported as failed.
pub(crate) struct FailedAttempt {
    delivery_id: Serial,
    error: String,
}

impl FailedAttempt {
    /// Reads the failure from a report, if it reports one.
    pub(crate) fn from_report(report: &Report) -> Option<Self> {
        let error = report.ending.error()?.chars().take(bounds::ERROR_CHARS_MAX).collect();
        Some(Self { delivery_id: report.receipt.delivery_id, error })
    }
}

/// The limiter of these log lines.
#[derive(Debug, Default)]
pub(crate) struct Failing(Mutex<Lines>);

impl Failing {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs about a number of attempts if the limit permits a line now.
    pub(crate) fn log_limited(&self, about: usize, now: Timestamp, log: impl FnOnce()) {
        self.log_suppressed(now);
        let have_room = self.lines().have_room(about as u64, now);
        if have_room {
            log();
        }
    }

    /// Logs an attempt that a worker reported as failed.
    pub(crate) fn log_reported(
        &self,
        queue: &QueueKey,
        failed: &FailedAttempt,
        status: Status,
        who: &str,
        now: Timestamp,
    ) {
        let FailedAttempt { delivery_id, error } = failed;
        self.log_limited(1, now, || {
            let status = status.as_str();
            tracing::warn!(target: "snavio::message", %queue, %delivery_id, who, status, error, "an attempt failed");
        });
    }

    /// Logs that leases ended without a report.
    pub(crate) fn log_lapsed(&self, attempts: usize, now: Timestamp) {
        if attempts > 0 {
            self.log_limited(attempts, now, || {
                tracing::warn!(target: "snavio::message", attempts, "nobody reported on attempts in time");
            });
        }
    }

    /// Logs the number of attempts without a line, once their second has ended.
    pub(crate) fn log_suppressed(&self, now: Timestamp) {
        let untold = self.lines().take_untold(now);
        if let Some(count) = untold {
            tracing::warn!(target: "snavio::message", count, "more attempts failed: see snavio claims list --status failed");
        }
    }
}
