//! Builds a registry: entry by entry, and change by change.

use std::sync::Arc;

use super::{
    BoundRoute, Change, Entry, EntryKey, LiveAdapter, LiveKey, Registry, Route, Service, ServiceView, Shared,
    Unseal,
};
use crate::name::{ServiceName, TenantName};

impl Registry {
    /// Adds loaded entries, each after the entries that it refers to.
    pub fn fill(&mut self, mut entries: Vec<Entry>, unseal: &dyn Unseal) {
        entries.sort_by_cached_key(Entry::key);
        for entry in entries {
            self.put(entry, unseal);
        }
    }

    /// Returns the registry after these changes, in their order.
    pub fn with(&self, changes: &[Change], unseal: &dyn Unseal) -> Self {
        let mut next = self.clone();
        for change in changes {
            match &change.after {
                Some(entry) => next.put(entry.clone(), unseal),
                None => next.remove(&change.key),
            }
            next.version = change.version;
        }
        next
    }

    /// Adds an entry, or replaces the one with its key.
    pub fn put(&mut self, entry: Entry, unseal: &dyn Unseal) {
        let entry = Arc::new(entry);
        self.entries.insert(entry.key(), Arc::clone(&entry));
        match entry.as_ref() {
            Entry::Tenant(tenant) => {
                self.tenants.insert(tenant.name.clone(), Arc::new(tenant.clone()));
            }
            Entry::Service(service) => self.put_service(service),
            Entry::Client(client) => {
                self.clients.insert(client.id.clone(), Arc::new(client.clone()));
            }
            Entry::Route(route) => self.change_service(&route.target, |view| {
                view.routes.insert(route.name.clone(), Arc::new(BoundRoute::new(route.clone())));
            }),
            Entry::EventType(event_type) => self.change_service(&event_type.owner, |view| {
                view.event_types.insert(event_type.name.clone(), Arc::new(event_type.clone()));
            }),
            Entry::Subscription(route) => self.put_subscription(route),
            Entry::Grant(grant) => self.change_service(&grant.target, |view| {
                let of_name = view.grants.entry(grant.name.clone()).or_default();
                of_name.insert(grant.source.clone(), Arc::new(grant.clone()));
            }),
            Entry::Key(key) => self.change_service(&key.service, |view| {
                view.keys.retain(|live| live.version != key.version);
                if let Some(secret) = unseal.unseal(&key.secret) {
                    let (version, created_at, ends_at) = (key.version.clone(), key.created_at, key.ends_at());
                    view.keys.push(Arc::new(LiveKey { version, secret, created_at, ends_at }));
                    view.keys.sort_by_key(|live| live.age());
                }
            }),
            Entry::PushSecret(secret) => {
                self.push_secrets.remove(&secret.destination);
                if let Some(live) = secret.open(unseal) {
                    self.push_secrets.insert(secret.destination.clone(), Arc::new(live));
                }
            }
            Entry::PersonalToken(token) => {
                self.personal_tokens.insert(token.id.clone(), Arc::new(token.clone()));
            }
            Entry::Ban(ban) => {
                self.bans.insert(ban.source.clone(), Arc::new(ban.clone()));
            }
            Entry::Adapter(adapter) => {
                let live = LiveAdapter::open(adapter, unseal);
                self.adapters.insert(live.name(), Arc::new(live));
            }
            Entry::GrantRequest(_) | Entry::Issuer(_) | Entry::Workload(_) => {}
        }
    }

    fn put_service(&mut self, service: &Service) {
        let Ok(tenant) = TenantName::new(service.name.tenant()) else { return };
        let view = self.services.entry(service.name.clone()).or_insert_with(|| {
            Arc::new(ServiceView {
                name: service.name.clone(),
                tenant,
                signed_events: service.signed_events,
                keys: Vec::new(),
                routes: Shared::default(),
                subscriptions: Shared::default(),
                event_types: Shared::default(),
                grants: Shared::default(),
            })
        });
        if view.signed_events != service.signed_events {
            Arc::make_mut(view).signed_events = service.signed_events;
        }
    }

    fn put_subscription(&mut self, route: &Route) {
        let Some(publisher) = &route.events_of else { return };
        let bound = Arc::new(BoundRoute::new(route.clone()));
        let of_publisher = self.subscriptions.entry(publisher.clone()).or_default();
        let of_type = of_publisher.entry(route.name.clone()).or_default();
        of_type.retain(|other| other.destination != bound.destination);
        of_type.push(Arc::clone(&bound));
        self.change_service(&route.target, |view| {
            view.subscriptions.insert(Arc::clone(&bound.destination), bound);
        });
    }

    fn remove_subscription(&mut self, route: &Route) {
        let Some(publisher) = &route.events_of else { return };
        let destination = route.destination();
        if let Some(of_publisher) = self.subscriptions.get_mut(publisher) {
            if let Some(of_type) = of_publisher.get_mut(&route.name) {
                of_type.retain(|other| other.destination != destination);
            }
            if of_publisher.get(&route.name).is_some_and(Vec::is_empty) {
                of_publisher.remove(&route.name);
            }
            if of_publisher.is_empty() {
                self.subscriptions.remove(publisher);
            }
        }
        self.change_service(&route.target, |view| {
            view.subscriptions.remove(&destination);
        });
    }

    pub(super) fn remove(&mut self, key: &EntryKey) {
        let Some(entry) = self.entries.remove(key) else { return };
        match entry.as_ref() {
            Entry::Tenant(tenant) => {
                self.tenants.remove(&tenant.name);
            }
            Entry::Service(service) => {
                self.services.remove(&service.name);
            }
            Entry::Client(client) => {
                self.clients.remove(&client.id);
            }
            Entry::Route(route) => self.change_service(&route.target, |view| {
                view.routes.remove(&route.name);
            }),
            Entry::EventType(event_type) => self.change_service(&event_type.owner, |view| {
                view.event_types.remove(&event_type.name);
            }),
            Entry::Subscription(route) => self.remove_subscription(route),
            Entry::Grant(grant) => self.change_service(&grant.target, |view| {
                if let Some(of_name) = view.grants.get_mut(&grant.name) {
                    of_name.remove(&grant.source);
                }
            }),
            Entry::Key(key) => self.change_service(&key.service, |view| {
                view.keys.retain(|live| live.version != key.version);
            }),
            Entry::PushSecret(secret) => {
                self.push_secrets.remove(&secret.destination);
            }
            Entry::PersonalToken(token) => {
                self.personal_tokens.remove(&token.id);
            }
            Entry::Ban(ban) => {
                self.bans.remove(&ban.source);
            }
            Entry::Adapter(_) => {
                self.adapters.remove(&key.name);
            }
            Entry::GrantRequest(_) | Entry::Issuer(_) | Entry::Workload(_) => {}
        }
    }

    fn change_service(&mut self, name: &ServiceName, change: impl FnOnce(&mut ServiceView)) {
        if let Some(view) = self.services.get_mut(name) {
            change(Arc::make_mut(view));
        }
    }
}
