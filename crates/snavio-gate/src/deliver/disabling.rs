//! Disables the route of a receiver that answers 410 Gone (DLV-1). This is a change of the registry, so that
//! every node stops pushing until a person enables the route again.

use std::sync::Arc;

use snavio_model::bounds;
use snavio_model::registry::{Author, BoundRoute, Disabled, Entry, Registry, Route, Wish, plan};
use snavio_model::telemetry::push_disabled;
use snavio_model::time::Timestamp;
use snavio_store::StoreError;

use crate::Gate;

/// The author of these changes in the changelog.
const WHO: &str = "snavio (push)";
/// The number of times that the change is planned again after a concurrent change of the registry.
const ATTEMPTS_MAX: usize = 5;

impl Gate {
    /// Disables the route, unless it was changed after its receiver was called.
    pub(crate) async fn disable_push(&self, called: &Arc<BoundRoute>, why: &str) -> Result<(), StoreError> {
        let _turn = self.registry_turn().await;
        for _ in 0..ATTEMPTS_MAX {
            let (registry, now) = (self.registry(), self.clock().now());
            let Some(wish) = disable_wish(&registry, called, why, now) else { return Ok(()) };
            let author = Author { who: WHO.to_owned(), why: why.to_owned(), at: now };
            let changes = match plan(&registry, vec![wish], &author, self.window()) {
                Ok(changes) => changes,
                Err(problems) => {
                    let problems = problems.join("; ");
                    tracing::error!(route = %called.destination, problems, "a route could not be disabled");
                    return Ok(());
                }
            };
            match self.change_registry(changes).await {
                Ok(()) => {
                    tracing::warn!(route = %called.destination, why, "a route is disabled because its receiver is gone");
                    let record = push_disabled(&called.route, why, now);
                    record.into_iter().for_each(|record| self.record_telemetry(record));
                    metrics::counter!("snavio_push_disabled_total").increment(1);
                    return Ok(());
                }
                Err(StoreError::Stale { .. }) => self.refresh_registry().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn disable_wish(registry: &Registry, called: &Arc<BoundRoute>, why: &str, now: Timestamp) -> Option<Wish> {
    let bound = registry.destination(&called.destination)?;
    // The route has another address now, is disabled already, or was enabled again. The 410 does not apply to
    // it as it is now, and the next call will show its state.
    if !Arc::ptr_eq(bound, called) || bound.route.disabled.is_some() {
        return None;
    }
    let route = &bound.route;
    let why = why.chars().take(bounds::REASON_CHARS_MAX).collect();
    let disabled = Some(Box::new(Disabled { at: Some(now), why }));
    let route = Route { disabled, ..route.clone() };
    Some(Wish::Put(if route.events_of.is_some() { Entry::Subscription(route) } else { Entry::Route(route) }))
}
