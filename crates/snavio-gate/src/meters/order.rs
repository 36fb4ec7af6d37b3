//! What is told of order: how messages stood, and what was let go without those before it (ORD-8). The entity is in the log
//! and never in a label.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};
use snavio_model::order::{Place, Placed, Verdict};
use snavio_model::registry::BoundRoute;
use snavio_model::settle::Ordered;
use snavio_store::WaitEnded;

use super::series::Series;
use crate::answer::Answer;

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
}

impl OfRoute {
    fn of(route: &str) -> Self {
        Self {
            violations: counter!("event_order_violations_total", "route" => route.to_owned()),
            gaps: counter!("event_sequence_gaps_total", "route" => route.to_owned()),
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
