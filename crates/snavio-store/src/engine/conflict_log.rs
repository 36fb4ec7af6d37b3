//! New conflicts in the log (CLM-21): the first of a second each in a line of its own, the rest as a number, so that
//! whoever uses many ids twice does not fill it. Record, alert, audit and metric are kept of each of them all the same.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use snavio_model::claim::conflict::Conflict;
use snavio_model::telemetry::lines::Lines;
use snavio_model::time::Timestamp;

/// The log is the process's, and so is this.
static LINES: LazyLock<Mutex<Lines>> = LazyLock::new(Mutex::default);

fn lines() -> MutexGuard<'static, Lines> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says that conflicts are on record now.
pub(crate) fn tell_conflicts<'a>(conflicts: impl Iterator<Item = &'a Conflict>) {
    for conflict in conflicts {
        tell_of_more_conflicts(conflict.flagged_at);
        if !lines().have_room(1, conflict.flagged_at) {
            continue;
        }
        tracing::error!(
            event_id = %conflict.event_id, conflict_id = %conflict.id, source = %conflict.source,
            original_hash = %conflict.original_hash, conflicting_hash = %conflict.hash,
            "an id was used for two contents"
        );
    }
}

/// Says how many new conflicts had no line of their own, once their second is over. To be called now and then: the last
/// of a flood are followed by none that could say so.
pub fn tell_of_more_conflicts(now: Timestamp) {
    if let Some(count) = lines().take_untold(now) {
        tracing::error!(count, "more ids were used for two contents: see snavio conflicts list");
    }
}
