//! What is told of order: how messages stood, and what was let go without those before it (ORD-8). The entity is in the log
//! and never in a label.

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

/// What is counted of order.
pub(crate) struct OrderMeters {
    gap_sizes: Histogram,
    validation_seconds: Histogram,
    routes: Series<OfRoute>,
}

#[derive(Clone)]
struct OfRoute {
    violations: Counter,
    gaps: Counter,
    unordered: Counter,
    unlogged: Arc<Mutex<Unlogged>>,
}

/// Messages that passed unordered, and are in no line of the log yet.
#[derive(Default)]
struct Unlogged {
    count: u64,
    logged_at: Option<Instant>,
}

impl Unlogged {
    /// One more; how many a line of the log is about, where one is due.
    fn add(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.logged_at.is_some_and(|at| now.duration_since(at) < UNORDERED_LOG_INTERVAL) {
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

impl OfRoute {
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
            routes: Series::new(OfRoute::of("other")),
        }
    }
}

impl OrderMeters {
    /// Makes the counters of those routes whose messages are ordered.
    pub(crate) fn begin<'a>(&self, routes: impl Iterator<Item = &'a Arc<BoundRoute>>) {
        let ordered = routes.filter(|route| route.route.order.is_some());
        self.routes.begin(ordered.map(|route| (&route.destination, || OfRoute::of(&route.destination))));
    }

    /// Tells how a message stood at those of its destinations that order.
    pub(crate) fn told(&self, answer: &Answer, places: &[Placed], ordered: &[Ordered], took: Duration) {
        for it in ordered {
            let Some((place, reached)) =
                places.get(it.destination).and_then(Placed::place).zip(answer.reached.get(it.destination))
            else {
                continue;
            };
            let route = &reached.destination;
            self.validation_seconds.record(took);
            it.gaps.iter().for_each(|size| self.gap(route, *size));
            let Some(verdict) = it.verdict else { continue };
            if verdict.is_violation() {
                self.count(route, |it| it.violations.increment(1));
                log_violation(answer, route, place, &verdict);
            } else if let Verdict::Gap { size } = verdict {
                let (number, entity) = (place.number, &place.key.entity);
                let Answer { id, correlation, .. } = answer;
                tracing::info!(target: "snavio::order", %route, entity, %id, %correlation, number, missing = size, "a gap");
            }
        }
    }

    /// Counts a message at the routes that order and took it without an order; logs one line a minute for each route.
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
                tracing::warn!(target: "snavio::order", %route, %id, %correlation, messages, "messages without an entity, or without a number that counts there, pass an ordered route unordered");
            }
        }
    }

    /// Tells what was let go without those before it.
    pub(crate) fn waited(&self, ended: &[WaitEnded]) {
        for WaitEnded { key, destination, number, gap } in ended.iter().filter(|it| it.gap > 0) {
            let route = destination.as_ref().unwrap_or(&key.scope);
            self.gap(route, *gap);
            let entity = &key.entity;
            tracing::warn!(target: "snavio::order", %route, entity, number, missing = gap, "a message waited long enough for those before it");
        }
    }

    fn gap(&self, route: &Arc<str>, size: u64) {
        self.count(route, |it| it.gaps.increment(1));
        // A size past what a float holds exactly is as good as any other of that size.
        self.gap_sizes.record(size as f64);
    }

    fn count(&self, route: &Arc<str>, count: impl FnOnce(&OfRoute)) {
        self.routes.count(route, || OfRoute::of(route), count);
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
