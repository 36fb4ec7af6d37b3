//! The view of a service, with its keys, routes, subscriptions, event types and grants.

use std::sync::Arc;

use super::{EventType, Grant, Profile, Route, Shared};
use crate::name::{CommandName, GrantedName, KeyVersion, QueueKey, ServiceName, TenantName};
use crate::signature::signing::Secret;
use crate::time::Timestamp;

/// A service with everything that is looked up through it.
#[derive(Debug, Clone)]
pub struct ServiceView {
    pub name: ServiceName,
    pub tenant: TenantName,
    /// Whether its events must be signed (MSG-4).
    pub signed_events: bool,
    pub(super) keys: Vec<Arc<LiveKey>>,
    pub(super) routes: Shared<CommandName, Arc<BoundRoute>>,
    pub(super) subscriptions: Shared<Arc<str>, Arc<BoundRoute>>,
    pub(super) event_types: Shared<CommandName, Arc<EventType>>,
    pub(super) grants: Shared<GrantedName, Shared<ServiceName, Arc<Grant>>>,
}

impl ServiceView {
    /// The key to sign with: the newest one that is accepted.
    pub fn current_key(&self, at: Timestamp) -> Option<&Arc<LiveKey>> {
        self.keys.iter().rfind(|key| key.is_good(at))
    }

    /// The key with this version.
    pub fn key(&self, version: &KeyVersion) -> Option<&Arc<LiveKey>> {
        self.keys.iter().find(|key| key.version == *version)
    }

    /// All keys, oldest first, including ended ones.
    pub fn keys(&self) -> &[Arc<LiveKey>] {
        &self.keys
    }

    /// The route for a command to this service, unless it has expired.
    pub fn route(&self, name: &CommandName, at: Timestamp) -> Option<&Arc<BoundRoute>> {
        self.routes.get(name).filter(|bound| bound.route.expires_at.is_none_or(|end| at < end))
    }

    /// The event type with this name.
    pub fn event_type(&self, name: &CommandName) -> Option<&Arc<EventType>> {
        self.event_types.get(name)
    }

    /// The event types that it publishes.
    pub fn event_types(&self) -> impl Iterator<Item = &Arc<EventType>> {
        self.event_types.values()
    }

    /// Its subscriptions, to its own events and to those of others.
    pub fn subscriptions(&self) -> impl Iterator<Item = &Arc<BoundRoute>> {
        self.subscriptions.values()
    }

    /// All grants with this service as target.
    pub fn grants(&self) -> impl Iterator<Item = &Arc<Grant>> {
        self.grants.values().flat_map(|of_name| of_name.values())
    }

    /// All routes to this service.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<BoundRoute>> {
        self.routes.values()
    }

    /// The unexpired grant for `source` to send `name` to this service: the grant for the name, or the one
    /// for all names, which does not cover critical routes.
    pub fn grant(&self, source: &ServiceName, name: &CommandName, at: Timestamp) -> Option<&Arc<Grant>> {
        let find = |name: &str| self.grant_of(source, name, at);
        let is_critical =
            || self.routes.get(name).is_some_and(|bound| bound.route.profile == Profile::Critical);
        find(name.as_str()).or_else(|| find(GrantedName::ALL).filter(|_| !is_critical()))
    }

    /// The unexpired grant for a service of another tenant to subscribe to an event type of this service.
    /// Only a grant with the type's name counts, because `*` stands for commands (REG-2).
    pub fn event_grant(
        &self,
        source: &ServiceName,
        name: &CommandName,
        at: Timestamp,
    ) -> Option<&Arc<Grant>> {
        self.grant_of(source, name.as_str(), at)
    }

    fn grant_of(&self, source: &ServiceName, name: &str, at: Timestamp) -> Option<&Arc<Grant>> {
        let grant = self.grants.get(name)?.get(source);
        grant.filter(|grant| grant.expires_at.is_none_or(|end| at < end))
    }
}

/// A key with its decrypted secret.
#[derive(Debug)]
pub struct LiveKey {
    /// The version in messages.
    pub version: KeyVersion,
    /// The decrypted secret.
    pub secret: Secret,
    pub created_at: Timestamp,
    /// The time from which the gateway no longer accepts it, if known.
    pub ends_at: Option<Timestamp>,
}

impl LiveKey {
    /// Whether the gateway accepts its signatures at this time.
    pub fn is_good(&self, at: Timestamp) -> bool {
        self.ends_at.is_none_or(|end| at < end)
    }
}

/// A route with the texts that every message to it needs, computed once.
#[derive(Debug, PartialEq, Eq)]
pub struct BoundRoute {
    pub route: Route,
    /// The destination in claims and deliveries.
    pub destination: Arc<str>,
    /// The queue, with its tenant.
    pub queue: QueueKey,
    /// The dead-letter queue, with its tenant.
    pub dead_letter_queue: QueueKey,
}

impl BoundRoute {
    /// Computes the texts of a route.
    pub fn new(route: Route) -> Self {
        let tenant = route.target.tenant();
        Self {
            destination: route.destination(),
            queue: QueueKey::new(tenant, &route.queue),
            dead_letter_queue: QueueKey::new(tenant, &route.dead_letter_queue),
            route,
        }
    }

    /// The queue and the dead-letter queue.
    pub fn queues(&self) -> [&QueueKey; 2] {
        [&self.queue, &self.dead_letter_queue]
    }

    /// The destination in a list, if its claims keep responses; otherwise an empty list.
    pub fn keeps_answers_at(&self) -> Vec<Arc<str>> {
        let keeps = self.route.claim.keeps_answers();
        keeps.then(|| Arc::clone(&self.destination)).into_iter().collect()
    }
}
