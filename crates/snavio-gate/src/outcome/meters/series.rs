//! Counters for each route, with a bound, because routes can be registered and removed without end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use snavio_model::bounds::{METRIC_SERIES_MAX, METRIC_SERIES_PER_TENANT_MAX};

/// The counters of each route by its destination, and the counters that all routes above the bounds share.
/// The recorder shows a series for as long as the process runs, so that the series of removed routes stay.
pub(super) struct Series<C> {
    routes: ArcSwap<Routes<C>>,
    /// Held while routes are added.
    adding: Mutex<()>,
    other: C,
}

#[derive(Clone)]
struct Routes<C> {
    counters: HashMap<Arc<str>, C>,
    tenant_counts: HashMap<Box<str>, usize>,
}

impl<C> Routes<C> {
    fn has_room(&self, tenant: &str) -> bool {
        self.counters.len() + 1 < METRIC_SERIES_MAX
            && self.tenant_counts.get(tenant).is_none_or(|count| *count < METRIC_SERIES_PER_TENANT_MAX)
    }
}

/// The tenant of a destination, which is its first part.
fn tenant(destination: &str) -> &str {
    destination.split_once('/').map_or(destination, |(tenant, _)| tenant)
}

impl<C: Clone> Series<C> {
    /// Creates an empty set; `other` counts the routes above the bounds.
    pub(super) fn new(other: C) -> Self {
        let routes = Routes { counters: HashMap::new(), tenant_counts: HashMap::new() };
        Self { routes: ArcSwap::from_pointee(routes), adding: Mutex::default(), other }
    }

    /// Counts with the counters of a route, which are created on its first message.
    pub(super) fn count(&self, destination: &Arc<str>, make: impl Fn() -> C, count: impl FnOnce(&C)) {
        let routes = self.routes.load();
        if let Some(counters) = routes.counters.get(destination) {
            return count(counters);
        }
        if routes.has_room(tenant(destination)) {
            self.create([(destination, make)].into_iter());
        }
        count(self.routes.load().counters.get(destination).unwrap_or(&self.other));
    }

    /// Creates the counters of all these routes for which there is room.
    pub(super) fn create<'a, F: Fn() -> C>(&self, routes: impl Iterator<Item = (&'a Arc<str>, F)>) {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.routes.load_full();
        for (destination, make) in routes {
            // Create nothing without room: the recorder would show the series until the process ends.
            if !all.counters.contains_key(destination) && all.has_room(tenant(destination)) {
                // Copies once; after that this function owns the copy.
                let all = Arc::make_mut(&mut all);
                all.counters.insert(Arc::clone(destination), make());
                *all.tenant_counts.entry(tenant(destination).into()).or_default() += 1;
            }
        }
        self.routes.store(all);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn route(tenant: &str, n: usize) -> Arc<str> {
        format!("{tenant}/bot:n{n}").into()
    }

    fn counted(series: &Series<String>, destination: &Arc<str>) -> String {
        let mut counted = String::new();
        series.count(destination, || destination.to_string(), |counter| counted.clone_from(counter));
        counted
    }

    /// QUA-9
    #[test]
    fn routes_past_the_bounds_share_one_series() {
        let series = Series::new("other".to_owned());
        for n in 0..METRIC_SERIES_PER_TENANT_MAX {
            assert_eq!(counted(&series, &route("acme", n)), &*route("acme", n));
        }
        assert_eq!(counted(&series, &route("acme", METRIC_SERIES_PER_TENANT_MAX)), "other");
        assert_eq!(counted(&series, &route("zenith", 0)), "zenith/bot:n0", "another tenant has room");
        for n in 0..METRIC_SERIES_MAX {
            counted(&series, &route(&format!("t{n}"), n));
        }
        assert_eq!(series.routes.load().counters.len(), METRIC_SERIES_MAX - 1);
        assert_eq!(counted(&series, &route("late", 0)), "other");
        assert_eq!(counted(&series, &route("acme", 0)), "acme/bot:n0");
    }

    /// QUA-9
    #[test]
    fn registered_routes_are_added_at_once() {
        let series = Series::new("other".to_owned());
        let made = Cell::new(0);
        let routes: Vec<_> = (0..2 * METRIC_SERIES_PER_TENANT_MAX)
            .map(|n| route("acme", n))
            .chain([route("zenith", 0)])
            .collect();
        let create_all = || {
            let make = || {
                made.set(made.get() + 1);
                "made".to_owned()
            };
            series.create(routes.iter().map(|route| (route, make)));
        };
        create_all();
        let first = series.routes.load_full();
        create_all();
        assert_eq!(made.get(), METRIC_SERIES_PER_TENANT_MAX + 1);
        assert!(Arc::ptr_eq(&first, &series.routes.load_full()), "nothing is copied when nothing is new");
        assert_eq!(counted(&series, &route("zenith", 0)), "made");
    }
}
