//! Metrics and log lines about ordering: the positions of messages, and messages that were released before a
//! gap filled (ORD-8). The entity is in the log and never in a label.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};
use snavio_model::bounds::UNORDERED_LOG_INTERVAL;
use snavio_model::ordering::{Place, Placed, Verdict};
use snavio_model::registry::BoundRoute;
use snavio_model::settle::Ordered;
use snavio_store::WaitEnded;
use tokio::time::Instant;

use super::series::Series;
use crate::outcome::answer::Answer;

/// The counters of ordering.
pub(crate) struct OrderMeters {
    gap_sizes: Histogram,
    validation_seconds: Histogram,
    routes: Series<RouteMeters>,
}

#[derive(Clone)]
struct RouteMeters {
    violations: Counter,
    gaps: Counter,
    unordered: Counter,
    unlogged: Arc<Mutex<Unlogged>>,
}

/// Messages that passed unordered and are not in a log line yet.
#[derive(Default)]
struct Unlogged {
    count: u64,
    logged_at: Option<Instant>,
}

impl Unlogged {
    /// Counts one more message. Returns the number that a log line is about, if one is due.
    fn add(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.logged_at.is_some_and(|at| now.duration_since(at) < UNORDERED_LOG_INTERVAL) {
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

impl RouteMeters {
    fn of(route: &str) -> Self {
        Self {
            violations: counter!("event_order_violations_total", "route" => route.to_owned()),
            gaps: counter!("event_sequence_gaps_total", "route" => route.to_owned()),
            unordered: counter!("event_unordered_total", "route" => route.to_owned()),
            unlogged: Arc::default(),
        }
    }
}

impl Default for OrderMeters {
    fn default() -> Self {
        Self {
            gap_sizes: histogram!("event_sequence_gap_size"),
            validation_seconds: histogram!("sequence_validation_duration_seconds"),
            routes: Series::new(RouteMeters::of("other")),
        }
    }
}

impl OrderMeters {
    /// Creates the counters of ordered routes.
    pub(crate) fn create_route_counters<'a>(&self, routes: impl Iterator<Item = &'a Arc<BoundRoute>>) {
        let ordered = routes.filter(|route| route.route.order.is_some());
        self.routes.create(ordered.map(|route| (&route.destination, || RouteMeters::of(&route.destination))));
    }

    /// Records the positions of a message at its ordered destinations.
    pub(crate) fn record(&self, answer: &Answer, places: &[Placed], ordered: &[Ordered], took: Duration) {
        for position in ordered {
            let destination = position.destination;
            let Some((place, reached)) =
                places.get(destination).and_then(Placed::place).zip(answer.reached.get(destination))
            else {
                continue;
            };
            let route = &reached.destination;
            self.validation_seconds.record(took);
            position.gaps.iter().for_each(|size| self.gap(route, *size));
            let Some(verdict) = position.verdict else { continue };
            if verdict.is_violation() {
                self.count(route, |meters| meters.violations.increment(1));
                log_violation(answer, route, place, &verdict);
            } else if let Verdict::Gap { size } = verdict {
                let (number, entity) = (place.number, &place.key.entity);
                let Answer { id, correlation, .. } = answer;
                tracing::info!(target: "snavio::order", %route, entity, %id, %correlation, number, missing = size, "a gap");
            }
        }
    }

    /// Counts a message at the ordered routes that accepted it without an order. Logs one line a minute for
    /// each route.
    pub(crate) fn passed_unordered(&self, answer: &Answer) {
        for reached in answer.reached.iter().filter(|reached| reached.passes_unordered) {
            let route = &reached.destination;
            let mut due = None;
            self.count(route, |counters| {
                counters.unordered.increment(1);
                let mut unlogged = counters.unlogged.lock().unwrap_or_else(PoisonError::into_inner);
                due = unlogged.add(Instant::now());
            });
            if let Some(messages) = due {
                let Answer { id, correlation, .. } = answer;
                tracing::warn!(target: "snavio::order", %route, %id, %correlation, messages, "messages without an entity or without a valid number pass an ordered route unordered");
            }
        }
    }

    /// Records messages that were released before the missing messages came.
    pub(crate) fn waited(&self, ended: &[WaitEnded]) {
        for WaitEnded { key, destination, number, gap } in ended.iter().filter(|wait| wait.gap > 0) {
            let route = destination.as_ref().unwrap_or(&key.scope);
            self.gap(route, *gap);
            let entity = &key.entity;
            tracing::warn!(target: "snavio::order", %route, entity, number, missing = gap, "a wait for missing messages ended, and the message is delivered");
        }
    }

    fn gap(&self, route: &Arc<str>, size: u64) {
        self.count(route, |meters| meters.gaps.increment(1));
        // A size above the exact range of a float may be rounded.
        self.gap_sizes.record(size as f64);
    }

    fn count(&self, route: &Arc<str>, count: impl FnOnce(&RouteMeters)) {
        self.routes.count(route, || RouteMeters::of(route), count);
    }
}

fn log_violation(answer: &Answer, route: &str, place: &Place, verdict: &Verdict) {
    let (number, entity) = (place.number, &place.key.entity);
    let Answer { id, correlation, .. } = answer;
    let distance = verdict.distance(number);
    match verdict {
        Verdict::Late { last, was_missing } => {
            tracing::warn!(target: "snavio::order", %route, entity, %id, %correlation, number, last, distance, was_missing, "a late message");
        }
        Verdict::SequenceConflict { last } => {
            tracing::warn!(target: "snavio::order", %route, entity, %id, %correlation, number, last, distance, "a number that another message has");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ORD-1
    #[test]
    fn unordered_messages_are_logged_once_a_minute() {
        let mut unlogged = Unlogged::default();
        let began = Instant::now();
        let lines = [0, 1, 59, 60, 61, 200].map(|second| unlogged.add(began + Duration::from_secs(second)));
        assert_eq!(lines, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
