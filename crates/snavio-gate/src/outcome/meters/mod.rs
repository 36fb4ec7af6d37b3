//! The pipeline's counters. They are looked up once, so that a message does not pay for building labels
//! (TEL-8).
//!
//! Labels are reasons, paths, verdicts and the names of registered routes. A message cannot choose any of
//! them, and there is a bound as well (`series.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};
use snavio_model::claim::Status;
use snavio_model::delivery::ReceiptOutcome;
use snavio_model::message::{MessageKind, Path};
use snavio_model::refusal::Reason;
use snavio_model::registry::age::{Cache, Phase};
use snavio_model::registry::{BoundRoute, Profile};
use snavio_model::time::Timestamp;
use snavio_store::Finished;

use crate::pipeline::fast::Escalation;
use crate::registry::currency::Currency;

mod order;
mod series;

pub(crate) use order::OrderMeters;
use series::Series;

/// The counters of all messages.
pub(crate) struct Meters {
    commands: Verdicts,
    events: Verdicts,
    duplicates_prevented: Counter,
    processed: Counter,
    replays: Counter,
    failures: Counter,
    lapsed: Counter,
    fenced: Counter,
    fenced_off_record: Counter,
    conflicts: Counter,
    conflicting: Counter,
    /// The number of conflicts that this node has recorded.
    conflicts_recorded: AtomicU64,
    /// The registry version up to which routes have counters, plus one.
    begun: AtomicI64,
    processing_seconds: Histogram,
    push_seconds: [Histogram; 2],
    strict: Counter,
    signature_failures: Counter,
    misroutes: Counter,
    dedupe_required: Counter,
    cold_only: Counter,
    settle_fast_seconds: Histogram,
    settle_slow_seconds: Histogram,
    /// For each cache, by phase.
    uses: [[Counter; 4]; 4],
    age_seconds: Histogram,
    refresh_seconds: [Histogram; 2],
    routes: Series<Counter>,
}

/// The verdicts of one kind of message.
struct Verdicts {
    accepted_fast: Counter,
    accepted_slow: Counter,
    duplicates: Counter,
    refused: Vec<Counter>,
}

impl Verdicts {
    fn of(kind: MessageKind) -> Self {
        let verdict = |verdict: &'static str, path: &'static str, reason: &'static str| {
            let name = match kind {
                MessageKind::Command => "snavio_commands_total",
                MessageKind::Event => "snavio_events_total",
            };
            counter!(name, "verdict" => verdict, "path" => path, "reason" => reason)
        };
        Self {
            accepted_fast: verdict("accepted", Path::Fast.as_str(), ""),
            accepted_slow: verdict("accepted", Path::Slow.as_str(), ""),
            duplicates: verdict("duplicate", "", ""),
            refused: Reason::ALL.iter().map(|reason| verdict("refused", "", reason.code())).collect(),
        }
    }
}

fn processed(status: &'static str) -> Counter {
    counter!("events_processed_total", "status" => status)
}

fn of_route(target: &str, name: &str) -> Counter {
    counter!("snavio_route_commands_total", "target" => target.to_owned(), "name" => name.to_owned())
}

fn counter_of(route: &BoundRoute) -> Counter {
    of_route(route.route.target.as_str(), route.route.name.as_str())
}

fn escalation(reason: Escalation) -> Counter {
    counter!("snavio_escalations_total", "reason" => reason.as_str())
}

/// Each cache once. The profile of grants has no series of its own.
const CACHES: [Cache; 4] = [Cache::Routes, Cache::Grants(Profile::Moderate), Cache::Keys, Cache::Bans];

/// The index of a cache's counters.
fn place(cache: Cache) -> usize {
    match cache {
        Cache::Routes => 0,
        Cache::Grants(_) => 1,
        Cache::Keys => 2,
        Cache::Bans => 3,
    }
}

fn uses(cache: Cache) -> [Counter; 4] {
    let phases = [Phase::Fresh, Phase::Stale, Phase::Expired, Phase::Dropped];
    phases.map(
        |phase| counter!("snavio_cache_uses_total", "cache" => cache.as_str(), "phase" => phase.as_str()),
    )
}

impl Default for Meters {
    fn default() -> Self {
        Self {
            commands: Verdicts::of(MessageKind::Command),
            events: Verdicts::of(MessageKind::Event),
            duplicates_prevented: counter!("snavio_duplicates_prevented_total"),
            processed: processed("new"),
            replays: processed("replay"),
            failures: processed("failed"),
            lapsed: counter!("snavio_attempts_lapsed_total"),
            fenced: counter!("snavio_attempts_fenced_total"),
            fenced_off_record: counter!("snavio_attempts_fenced_unrecorded_total"),
            conflicts: counter!("events_conflicts_total"),
            conflicting: processed("conflict"),
            conflicts_recorded: AtomicU64::new(0),
            begun: AtomicI64::new(0),
            processing_seconds: histogram!("events_processing_latency_seconds"),
            push_seconds: ["failed", "taken"]
                .map(|outcome| histogram!("snavio_push_seconds", "outcome" => outcome)),
            strict: counter!("snavio_strict_commands_total"),
            signature_failures: counter!("snavio_signature_failures_total"),
            misroutes: counter!("snavio_misroutes_total"),
            dedupe_required: escalation(Escalation::DedupeRequired),
            cold_only: escalation(Escalation::ColdOnly),
            settle_fast_seconds: histogram!("snavio_settle_seconds", "path" => Path::Fast.as_str()),
            settle_slow_seconds: histogram!("snavio_settle_seconds", "path" => Path::Slow.as_str()),
            uses: CACHES.map(uses),
            age_seconds: histogram!("snavio_cache_age_seconds"),
            refresh_seconds: ["failed", "succeeded"]
                .map(|outcome| histogram!("snavio_cache_refresh_seconds", "outcome" => outcome)),
            routes: Series::new(of_route("other", "other")),
        }
    }
}

impl Meters {
    fn of(&self, kind: MessageKind) -> &Verdicts {
        match kind {
            MessageKind::Command => &self.commands,
            MessageKind::Event => &self.events,
        }
    }

    pub(crate) fn accepted(&self, kind: MessageKind, path: Path) {
        match path {
            Path::Fast => self.of(kind).accepted_fast.increment(1),
            Path::Slow | Path::Conflict => self.of(kind).accepted_slow.increment(1),
        }
    }

    /// Records the time from the submission of a message to the store until its answer.
    pub(crate) fn settled(&self, path: Path, time: Duration) {
        match path {
            Path::Fast => self.settle_fast_seconds.record(time),
            Path::Slow | Path::Conflict => self.settle_slow_seconds.record(time),
        }
    }

    /// Counts a duplicate.
    pub(crate) fn duplicate(&self, kind: MessageKind) {
        self.of(kind).duplicates.increment(1);
        self.replays.increment(1);
        self.duplicates_prevented.increment(1);
    }

    /// Counts the result of a report on an attempt (CLM-21).
    pub(crate) fn finished(&self, finished: &Finished) {
        if finished.told_before {
            return;
        }
        match (finished.outcome, finished.status) {
            (ReceiptOutcome::Fenced, Some(_)) if finished.put_on_record => self.fenced.increment(1),
            (ReceiptOutcome::Fenced, Some(_)) => self.fenced_off_record.increment(1),
            (ReceiptOutcome::Done, Some(Status::Completed)) => self.processed.increment(1),
            (ReceiptOutcome::Done, Some(_)) => self.failures.increment(1),
            _ => {}
        }
    }

    /// Counts a conflict: the message's id stands for other content.
    pub(crate) fn conflict(&self) {
        self.conflicts.increment(1);
        self.conflicting.increment(1);
        self.conflicts_recorded.fetch_add(1, Ordering::Release);
    }

    /// Whether routes of this registry version may lack counters. Returns true once for each version.
    pub(crate) fn needs_route_counters(&self, version: i64) -> bool {
        self.begun.swap(version + 1, Ordering::Relaxed) != version + 1
    }

    pub(crate) fn conflicts_recorded(&self) -> u64 {
        self.conflicts_recorded.load(Ordering::Acquire)
    }

    /// Counts a message that is complete.
    pub(crate) fn processed(&self) {
        self.processed.increment(1);
    }

    /// Records the duration of a processor's call.
    pub(crate) fn processed_in(&self, time: Duration) {
        self.processing_seconds.record(time);
    }

    /// Records the duration of a push, and whether the receiver accepted it.
    pub(crate) fn pushed(&self, is_taken: bool, time: Duration) {
        self.push_seconds[usize::from(is_taken)].record(time);
    }

    /// Counts attempts with a lease that ended without a report.
    pub(crate) fn lapsed(&self, attempts: usize) {
        self.lapsed.increment(attempts as u64);
        self.failures.increment(attempts as u64);
    }

    pub(crate) fn refused(&self, kind: MessageKind, reason: Reason) {
        if let Some(counter) = self.of(kind).refused.get(reason as usize) {
            counter.increment(1);
        }
        if reason.is_of_signature() || reason == Reason::SignatureThrottled {
            self.signature_failures.increment(1);
        }
        if reason == Reason::RouteMissing {
            self.misroutes.increment(1);
        }
    }

    /// Counts the use of cached data by its age (REG-19).
    pub(crate) fn used(&self, currency: &Currency, caches: &[Cache], now: Timestamp) {
        for cache in caches {
            self.uses[place(*cache)][currency.phase(*cache, now) as usize].increment(1);
        }
        self.age_seconds.record(currency.age(now));
    }

    /// Records a refresh of the registry (REG-19).
    pub(crate) fn refreshed(&self, succeeded: bool, time: Duration) {
        self.refresh_seconds[usize::from(succeeded)].record(time);
    }

    /// Counts a message that escalates to the slow path.
    pub(crate) fn escalated(&self, reason: Escalation) {
        match reason {
            Escalation::DedupeRequired => self.dedupe_required.increment(1),
            Escalation::ColdOnly => self.cold_only.increment(1),
        }
    }

    /// Creates the counters of routes, so that PromQL's `increase` does not miss the first message of each
    /// route.
    pub(crate) fn create_route_counters<'a>(&self, routes: impl Iterator<Item = &'a Arc<BoundRoute>>) {
        self.routes.create(routes.map(|route| (&route.destination, || counter_of(route))));
    }

    /// Counts a message that is permitted on a route.
    pub(crate) fn routed(&self, route: &BoundRoute) {
        if route.route.claim.keep().is_some() {
            self.strict.increment(1);
        }
        self.routes.count(&route.destination, || counter_of(route), |counter| counter.increment(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REG-19
    #[test]
    fn every_cache_has_its_own_counters() {
        for (at, cache) in CACHES.into_iter().enumerate() {
            assert_eq!(place(cache), at);
        }
    }

    /// TEL-8
    #[test]
    fn every_reason_has_its_own_counter() {
        for (place, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, place);
        }
    }
}
