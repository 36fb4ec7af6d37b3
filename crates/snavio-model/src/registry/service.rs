//! A service with all that is looked up through it: its keys, routes, subscriptions, event types and grants.

use std::sync::Arc;

use super::{EventType, Grant, Profile, Route, Shared};
use crate::name::{CommandName, GrantedName, KeyVersion, QueueKey, ServiceName, TenantName};
use crate::signature::signing::Secret;
use crate::time::Timestamp;

/// A service with all that is looked up through it.
#[derive(Debug, Clone)]
pub struct ServiceView {
    /// Its name.
    pub name: ServiceName,
    /// Its tenant.
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
    /// The key to sign with: the newest that is accepted.
    pub fn current_key(&self, at: Timestamp) -> Option<&Arc<LiveKey>> {
        self.keys.iter().rfind(|key| key.is_good(at))
    }

    /// The key of this version.
    pub fn key(&self, version: &KeyVersion) -> Option<&Arc<LiveKey>> {
        self.keys.iter().find(|key| key.version == *version)
    }

    /// All keys, oldest first, those that have ended too.
    pub fn keys(&self) -> &[Arc<LiveKey>] {
        &self.keys
    }

    /// The route for a command to this service, until it ends.
    pub fn route(&self, name: &CommandName, at: Timestamp) -> Option<&Arc<BoundRoute>> {
        self.routes.get(name).filter(|it| it.route.expires_at.is_none_or(|end| at < end))
    }

    /// Its event type of this name.
    pub fn event_type(&self, name: &CommandName) -> Option<&Arc<EventType>> {
        self.event_types.get(name)
    }

    /// What it publishes.
    pub fn event_types(&self) -> impl Iterator<Item = &Arc<EventType>> {
        self.event_types.values()
    }

    /// Its subscriptions to others' events and its own.
    pub fn subscriptions(&self) -> impl Iterator<Item = &Arc<BoundRoute>> {
        self.subscriptions.values()
    }

    /// Everything that was granted on this service.
    pub fn grants(&self) -> impl Iterator<Item = &Arc<Grant>> {
        self.grants.values().flat_map(|of_name| of_name.values())
    }

    /// All routes to this service.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<BoundRoute>> {
        self.routes.values()
    }

    /// The grant for `source` to send `name` to this service, until it ends: its own, or that for all names, which
    /// is none for a critical route.
    pub fn grant(&self, source: &ServiceName, name: &CommandName, at: Timestamp) -> Option<&Arc<Grant>> {
        let find = |name: &str| self.grant_of(source, name, at);
        let is_critical = || self.routes.get(name).is_some_and(|it| it.route.profile == Profile::Critical);
        find(name.as_str()).or_else(|| find(GrantedName::ALL).filter(|_| !is_critical()))
    }

    /// The grant for a service of another tenant to subscribe to this service's events of a type, until it ends: one by
    /// its name, because `*` means all commands (REG-2).
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
        grant.filter(|it| it.expires_at.is_none_or(|end| at < end))
    }
}

/// A key whose secret is open.
#[derive(Debug)]
pub struct LiveKey {
    /// Its name in messages.
    pub version: KeyVersion,
    /// The secret itself.
    pub secret: Secret,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it is not accepted any more, if that is known.
    pub ends_at: Option<Timestamp>,
}

impl LiveKey {
    /// Whether what it signs is accepted.
    pub fn is_good(&self, at: Timestamp) -> bool {
        self.ends_at.is_none_or(|end| at < end)
    }
}

/// A route with the texts that every message to it needs, made once.
#[derive(Debug, PartialEq, Eq)]
pub struct BoundRoute {
    /// The route as registered.
    pub route: Route,
    /// Its destination in claims and deliveries.
    pub destination: Arc<str>,
    /// Its queue, with the tenant.
    pub queue: QueueKey,
    /// Its dead-letter queue, with the tenant.
    pub dead_letter_queue: QueueKey,
}

impl BoundRoute {
    /// Binds a route.
    pub fn new(route: Route) -> Self {
        let tenant = route.target.tenant();
        Self {
            destination: route.destination(),
            queue: QueueKey::new(tenant, &route.queue),
            dead_letter_queue: QueueKey::new(tenant, &route.dead_letter_queue),
            route,
        }
    }

    /// The queues that it names.
    pub fn queues(&self) -> [&QueueKey; 2] {
        [&self.queue, &self.dead_letter_queue]
    }

    /// Its destination, if the claims there keep what was answered.
    pub fn keeps_answers_at(&self) -> Vec<Arc<str>> {
        let keeps = self.route.claim.keeps_answers();
        keeps.then(|| Arc::clone(&self.destination)).into_iter().collect()
    }
}
