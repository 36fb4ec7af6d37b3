//! Counters of each route, with a bound: routes may be registered and removed without end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use snavio_model::bounds::{METRIC_SERIES_MAX, METRIC_SERIES_PER_TENANT_MAX};

/// The counters of each route by its destination, and those that all routes past the bounds share. The recorder shows a
/// series for as long as the process runs: those of removed routes stay.
pub(super) struct Series<C> {
    routes: ArcSwap<Routes<C>>,
    /// Held while routes are added.
    adding: Mutex<()>,
    other: C,
}

#[derive(Clone)]
struct Routes<C> {
    counters: HashMap<Arc<str>, C>,
    of_tenants: HashMap<Box<str>, usize>,
}

impl<C> Routes<C> {
    fn has_room(&self, tenant: &str) -> bool {
        self.counters.len() + 1 < METRIC_SERIES_MAX
            && self.of_tenants.get(tenant).is_none_or(|count| *count < METRIC_SERIES_PER_TENANT_MAX)
    }
}

/// The tenant of a destination, which begins with its name.
fn tenant(destination: &str) -> &str {
    destination.split_once('/').map_or(destination, |(tenant, _)| tenant)
}

impl<C: Clone> Series<C> {
    /// None yet; `other` counts those past the bounds.
    pub(super) fn new(other: C) -> Self {
        let routes = Routes { counters: HashMap::new(), of_tenants: HashMap::new() };
        Self { routes: ArcSwap::from_pointee(routes), adding: Mutex::default(), other }
    }

    /// Counts with the counters of a route, which are made when it comes for the first time.
    pub(super) fn count(&self, destination: &Arc<str>, make: impl Fn() -> C, count: impl FnOnce(&C)) {
        let routes = self.routes.load();
        if let Some(counters) = routes.counters.get(destination) {
            return count(counters);
        }
        if routes.has_room(tenant(destination)) {
            self.begin([(destination, make)].into_iter());
        }
        count(self.routes.load().counters.get(destination).unwrap_or(&self.other));
    }

    /// Makes the counters of all these routes for which there is room.
    pub(super) fn begin<'a, F: Fn() -> C>(&self, routes: impl Iterator<Item = (&'a Arc<str>, F)>) {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.routes.load_full();
        for (destination, make) in routes {
            // Nothing is made for which there is no room: the recorder would show it for ever.
            if !all.counters.contains_key(destination) && all.has_room(tenant(destination)) {
                // Copies once: then it is this function's alone.
                let all = Arc::make_mut(&mut all);
                all.counters.insert(Arc::clone(destination), make());
                *all.of_tenants.entry(tenant(destination).into()).or_default() += 1;
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
        let begin = || {
            let make = || {
                made.set(made.get() + 1);
                "made".to_owned()
            };
            series.begin(routes.iter().map(|route| (route, make)));
        };
        begin();
        let first = series.routes.load_full();
        begin();
        assert_eq!(made.get(), METRIC_SERIES_PER_TENANT_MAX + 1);
        assert!(Arc::ptr_eq(&first, &series.routes.load_full()), "nothing is copied when nothing is new");
        assert_eq!(counted(&series, &route("zenith", 0)), "made");
    }
}
