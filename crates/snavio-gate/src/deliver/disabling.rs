//! A receiver that says it is gone (410) is not sent anything any more (DLV-1): a change of the registry, on the record, that
//! every node goes by until somebody enables the route again.

use std::sync::Arc;

use snavio_model::bounds;
use snavio_model::registry::{Author, BoundRoute, Disabled, Entry, Registry, Route, Wish, plan};
use snavio_model::telemetry::push_disabled;
use snavio_model::time::Timestamp;
use snavio_store::StoreError;

use crate::Gate;

/// Who makes these changes, for the changelog.
const WHO: &str = "snavio (push)";
/// How often it is decided anew when somebody else changed the registry meanwhile.
const ATTEMPTS_MAX: usize = 5;

impl Gate {
    /// Pushes nothing by this route any more, if nobody has touched it since its receiver was called.
    pub(crate) async fn disable_push(&self, called: &Arc<BoundRoute>, why: &str) -> Result<(), StoreError> {
        let _turn = self.registry_turn().await;
        for _ in 0..ATTEMPTS_MAX {
            let (registry, now) = (self.registry(), self.clock().now());
            let Some(wish) = disabled(&registry, called, why, now) else { return Ok(()) };
            let author = Author { who: WHO.to_owned(), why: why.to_owned(), at: now };
            let changes = match plan(&registry, vec![wish], &author, self.window()) {
                Ok(changes) => changes,
                Err(problems) => {
                    let problems = problems.join("; ");
                    tracing::error!(route = %called.destination, problems, "a route was not disabled");
                    return Ok(());
                }
            };
            match self.change_registry(changes).await {
                Ok(()) => {
                    tracing::warn!(route = %called.destination, why, "nothing is pushed any more by this route");
                    self.tell_of(push_disabled(&called.route, why, now));
                    metrics::counter!("snavio_push_disabled_total").increment(1);
                    return Ok(());
                }
                Err(StoreError::Stale { .. }) => self.refresh_registry().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn tell_of(&self, record: Option<snavio_model::telemetry::Record>) {
        record.into_iter().for_each(|it| self.tell(it));
    }
}

fn disabled(registry: &Registry, called: &Arc<BoundRoute>, why: &str, now: Timestamp) -> Option<Wish> {
    let bound = registry.destination(&called.destination)?;
    // Somebody gave it another address, disabled it already, or has enabled it since: what was said before that says nothing
    // of it as it is now, and the next call finds out.
    if !Arc::ptr_eq(bound, called) || bound.route.disabled.is_some() {
        return None;
    }
    let route = &bound.route;
    let why = why.chars().take(bounds::REASON_CHARS_MAX).collect();
    let disabled = Some(Box::new(Disabled { at: Some(now), why }));
    let route = Route { disabled, ..route.clone() };
    Some(Wish::Put(if route.events_of.is_some() { Entry::Subscription(route) } else { Entry::Route(route) }))
}
