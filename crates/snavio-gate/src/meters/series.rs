//! Counters of each route, with a bound: routes may be registered and removed without end.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use snavio_model::limits::METRIC_SERIES_MAX;

/// What is counted of each route by its destination, and of all those for which there was no room.
pub(super) struct Series<C> {
    routes: ArcSwap<HashMap<Arc<str>, C>>,
    other: C,
}

impl<C: Clone> Series<C> {
    /// None yet; `other` counts those past the bound.
    pub(super) fn new(other: C) -> Self {
        Self { routes: ArcSwap::default(), other }
    }

    /// Counts with the counters of a route, which are made when it comes for the first time.
    pub(super) fn count(&self, destination: &Arc<str>, make: impl FnOnce() -> C, count: impl FnOnce(&C)) {
        let routes = self.routes.load();
        match routes.get(destination) {
            Some(counters) => count(counters),
            // Nothing is made that there is no room for: the recorder would show it for ever.
            None if routes.len() + 1 >= METRIC_SERIES_MAX => count(&self.other),
            None => count(&self.add(destination, make())),
        }
    }

    fn add(&self, destination: &Arc<str>, made: C) -> C {
        let mut counters = made.clone();
        self.routes.rcu(|routes| {
            // Whoever came first has made them already, or taken the last room.
            match routes.get(destination) {
                Some(there) => counters = there.clone(),
                None if routes.len() + 1 >= METRIC_SERIES_MAX => counters = self.other.clone(),
                None => {
                    counters = made.clone();
                    let mut routes = HashMap::clone(routes);
                    routes.insert(Arc::clone(destination), made.clone());
                    return Arc::new(routes);
                }
            }
            Arc::clone(routes)
        });
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// QUA-9
    #[test]
    fn routes_past_the_bound_share_what_counts_them() {
        let series = Series::new("other".to_owned());
        let of = |n: usize| {
            let destination: Arc<str> = format!("acme/bot:n{n}").into();
            let mut counted = String::new();
            series.count(&destination, || format!("n{n}"), |it| counted.clone_from(it));
            counted
        };
        for n in 0..METRIC_SERIES_MAX - 1 {
            assert_eq!(of(n), format!("n{n}"));
        }
        assert_eq!(of(METRIC_SERIES_MAX), "other");
        assert_eq!(of(0), "n0");
    }
}
