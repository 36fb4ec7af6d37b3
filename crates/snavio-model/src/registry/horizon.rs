//! How far back it can be known what a tenant sent (CLM-10, CLM-19).

use std::time::Duration;

use super::{BoundRoute, Registry, ServiceView};
use crate::name::GrantedName;

impl Registry {
    /// The shortest time for which claims are kept on what services of a tenant send: by routes to their own tenant, by those
    /// of others that they are granted, and by subscriptions to their events. What is older may have been and be gone.
    /// Nothing if no claim is made of anything.
    pub fn shortest_keep(&self, tenant: &str) -> Option<Duration> {
        let keeps = self.services().flat_map(|view| {
            let routes = view.routes().filter(|it| is_sent_by(tenant, view, it));
            let subscriptions = view.subscriptions().filter(|it| is_published_by(tenant, it));
            routes.chain(subscriptions).filter_map(|it| it.route.claim.keep()).min()
        });
        keeps.min()
    }
}

fn is_sent_by(tenant: &str, view: &ServiceView, route: &BoundRoute) -> bool {
    let is_granted = |name: &str| {
        view.grants.get(name).is_some_and(|of_name| of_name.keys().any(|it| it.tenant() == tenant))
    };
    view.name.tenant() == tenant || is_granted(route.route.name.as_str()) || is_granted(GrantedName::ALL)
}

fn is_published_by(tenant: &str, route: &BoundRoute) -> bool {
    route.route.events_of.as_ref().is_some_and(|it| it.tenant() == tenant)
}
