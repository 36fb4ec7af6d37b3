//! The registry as the dispatch path reads it: everything in memory, by name, at one version.

mod chain;
mod change;
mod entry;
mod evidence;
mod horizon;
mod identity;
mod key;
mod live_adapter;
mod past;
mod plan;
mod push;
mod revocation;
mod rotation;
mod soundness;
mod verify;

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use imbl::shared_ptr::DefaultSharedPtr;
use imbl::{GenericHashMap, OrdMap};

pub use chain::{Digest, PublicKey, Seal, SealingKey, Signer, Skipped};
pub use change::{Author, Change, Wish};
pub use entry::{
    Acl, Ban, Client, DispatchMode, Entry, EventType, Grant, Key, Profile, Route, Sealed, Service, Tenant,
    event_type_of,
};
pub use evidence::{EntryEvidence, Evidence, LoggedChange, SECRET_MEMBERS};
pub use horizon::Horizons;
pub use identity::{GrantRequest, Issuer, KeySet, PersonalToken, Role, Workload};
pub use key::{EntryKey, Kind};
pub use live_adapter::LiveAdapter;
pub use past::{Differences, Rollback};
pub use plan::plan;
pub use push::{Disabled, LivePushSecret, PushSecret};
pub use revocation::{Revocation, Revoked, Used};
pub use rotation::{KeyRevocation, KeyRing, KeyState, NewKey, version};
pub(crate) use soundness::problems_alone;
pub use verify::{Fault, Verified, Verifier, verify};

use crate::adapter::ForeignSecret;
use crate::name::{CommandName, GrantedName, KeyVersion, QueueKey, ServiceName, TenantName};
use crate::processing::ProcessingKind;
use crate::signing::Secret;
use crate::time::Timestamp;

/// A map of which a copy that differs in one entry shares the rest: a change costs the same in a registry of any size.
type Shared<K, V> = GenericHashMap<K, V, foldhash::fast::RandomState, DefaultSharedPtr>;

/// Opens sealed secrets. The platform key is not the model's to know.
pub trait Unseal: Send + Sync {
    /// The secret, or nothing if it was sealed under another key or is damaged.
    fn unseal(&self, sealed: &Sealed) -> Option<Secret>;

    /// A provider's secret, in the same way. Whoever has no adapters opens none.
    fn unseal_text(&self, _sealed: &Sealed) -> Option<ForeignSecret> {
        None
    }
}

/// Makes secrets of keys that nobody is shown. The platform key is not the model's to know.
pub trait NewSecrets: Send + Sync {
    /// A new secret, sealed.
    fn new_secret(&self) -> Sealed;
}

/// All entries at one version, with the views that the dispatch path looks things up in.
///
/// A change copies only what it touches (REG-16).
#[derive(Debug, Clone, Default)]
pub struct Registry {
    version: i64,
    entries: OrdMap<EntryKey, Arc<Entry>>,
    tenants: Shared<TenantName, Arc<Tenant>>,
    services: Shared<ServiceName, Arc<ServiceView>>,
    /// By publisher and type, whether or not these are there: a subscription to another tenant's events may outlive both.
    subscriptions: Shared<ServiceName, Shared<CommandName, Vec<Arc<BoundRoute>>>>,
    push_secrets: Shared<String, Arc<LivePushSecret>>,
    clients: Shared<String, Arc<Client>>,
    personal_tokens: Shared<String, Arc<PersonalToken>>,
    bans: Shared<ServiceName, Arc<Ban>>,
    adapters: Shared<String, Arc<LiveAdapter>>,
}

/// A service with all that is looked up through it.
#[derive(Debug, Clone)]
pub struct ServiceView {
    /// Its name.
    pub name: ServiceName,
    /// Its tenant.
    pub tenant: TenantName,
    /// Whether its events must be signed (MSG-4).
    pub signed_events: bool,
    keys: Vec<Arc<LiveKey>>,
    routes: Shared<CommandName, Arc<BoundRoute>>,
    subscriptions: Shared<Arc<str>, Arc<BoundRoute>>,
    event_types: Shared<CommandName, Arc<EventType>>,
    grants: Shared<GrantedName, Shared<ServiceName, Arc<Grant>>>,
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

impl Registry {
    /// The version: it grows by one with every change.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// Sets the version of a registry that was loaded as a whole.
    pub fn at_version(self, version: i64) -> Self {
        Self { version, ..self }
    }

    /// The entry under this key.
    pub fn get(&self, key: &EntryKey) -> Option<&Entry> {
        self.entries.get(key).map(Arc::as_ref)
    }

    /// All entries, ordered by kind and name.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().map(Arc::as_ref)
    }

    /// The entries after this key, ordered by kind and name; all of them without one.
    pub fn entries_after(&self, after: Option<&EntryKey>) -> impl Iterator<Item = &Entry> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.entries.range::<_, EntryKey>((start, Bound::Unbounded)).map(|(_, entry)| entry.as_ref())
    }

    /// How many entries there are.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// All entries of a kind, ordered by name.
    pub fn entries_of(&self, kind: Kind) -> impl Iterator<Item = &Entry> {
        let first = EntryKey { kind, name: String::new() };
        self.entries
            .range::<_, EntryKey>(first..)
            .take_while(move |(key, _)| key.kind == kind)
            .map(|(_, it)| it.as_ref())
    }

    /// The tenant of this name.
    pub fn tenant(&self, name: &str) -> Option<&Arc<Tenant>> {
        self.tenants.get(name)
    }

    /// The service of this full name.
    pub fn service(&self, name: &str) -> Option<&Arc<ServiceView>> {
        self.services.get(name)
    }

    /// The route or subscription of a destination that claims and deliveries name.
    pub fn destination(&self, destination: &str) -> Option<&Arc<BoundRoute>> {
        let (target, name) = destination.split_once(':')?;
        let view = self.service(target)?;
        view.routes.get(name).or_else(|| view.subscriptions.get(destination))
    }

    /// All services.
    pub fn services(&self) -> impl Iterator<Item = &ServiceView> {
        self.services.values().map(Arc::as_ref)
    }

    /// All routes and subscriptions, of whatever service.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<BoundRoute>> {
        self.services().flat_map(|view| view.routes().chain(view.subscriptions()))
    }

    /// The subscriptions to a publisher's events of a type, whether or not they may have them.
    pub fn subscriptions_to(&self, publisher: &ServiceName, name: &CommandName) -> &[Arc<BoundRoute>] {
        let of_name = self.subscriptions.get(publisher).and_then(|of_publisher| of_publisher.get(name));
        of_name.map_or(&[], Vec::as_slice)
    }

    /// How many subscriptions that type of a publisher has which has the most.
    pub fn widest(&self, publisher: &ServiceName) -> usize {
        let of_publisher = self.subscriptions.get(publisher).into_iter().flat_map(|it| it.values());
        of_publisher.map(Vec::len).max().unwrap_or(0)
    }

    /// Every queue that a route names, dead-letter queues too; one that several name comes several times.
    pub fn queues(&self) -> impl Iterator<Item = &QueueKey> {
        self.routes().flat_map(|route| route.queues())
    }

    /// Who gets a publisher's events of a type now: subscriptions that have not ended, each with the grant that one of
    /// another tenant needs and has (PIP-13).
    pub fn subscribed(
        &self,
        publisher: &ServiceView,
        name: &CommandName,
        at: Timestamp,
    ) -> Vec<(Option<Arc<Grant>>, Arc<BoundRoute>)> {
        let permitted = |it: &Arc<BoundRoute>| {
            let is_over = it.route.expires_at.is_some_and(|end| at >= end);
            let grant = publisher.event_grant(&it.route.target, name, at);
            let grant = match it.route.foreign_publisher() {
                Some(_) => Some(Arc::clone(grant?)),
                None => None,
            };
            (!is_over).then(|| (grant, Arc::clone(it)))
        };
        self.subscriptions_to(&publisher.name, name).iter().filter_map(permitted).collect()
    }

    /// What is pushed to a destination is signed with, if it could be opened.
    pub fn push_secret(&self, destination: &str) -> Option<&Arc<LivePushSecret>> {
        self.push_secrets.get(destination)
    }

    /// Whether a route pushes, and there is nothing to sign that with.
    pub fn lacks_push_secret(&self, route: &BoundRoute) -> bool {
        route.route.processing.kind == ProcessingKind::Push && self.push_secret(&route.destination).is_none()
    }

    /// Whether somebody is called for what comes by a route, as things are: not while it is disabled, nor while there is
    /// nothing to sign a push with. What waits meanwhile was not tried (DLV-4).
    pub fn calls(&self, route: &BoundRoute) -> bool {
        let is_called = route.route.processing.kind.is_called();
        is_called && route.route.disabled.is_none() && !self.lacks_push_secret(route)
    }

    /// The client of this id.
    pub fn client(&self, id: &str) -> Option<&Arc<Client>> {
        self.clients.get(id)
    }

    /// The personal token of this id.
    pub fn personal_token(&self, id: &str) -> Option<&Arc<PersonalToken>> {
        self.personal_tokens.get(id)
    }

    /// The ban of this source, if one is in force.
    pub fn ban(&self, source: &ServiceName, at: Timestamp) -> Option<&Arc<Ban>> {
        self.bans.get(source).filter(|ban| ban.until.is_none_or(|until| at < until))
    }

    /// The trusted issuer of this name.
    pub fn issuer(&self, name: &str) -> Option<&Issuer> {
        match self.get(&EntryKey::issuer(name))? {
            Entry::Issuer(issuer) => Some(issuer),
            _ => None,
        }
    }

    /// The workload that an issuer calls so.
    pub fn workload(&self, issuer: &str, subject: &str) -> Option<&Workload> {
        match self.get(&EntryKey::workload(issuer, subject))? {
            Entry::Workload(workload) => Some(workload),
            _ => None,
        }
    }

    /// The requests for grants that a tenant's services made.
    pub fn requests_of(&self, tenant: &str) -> impl Iterator<Item = &Entry> {
        let beginning = format!("{tenant}/");
        let first = EntryKey { kind: Kind::GrantRequest, name: beginning.clone() };
        let is_its = move |key: &EntryKey| key.kind == Kind::GrantRequest && key.name.starts_with(&beginning);
        self.entries
            .range::<_, EntryKey>(first..)
            .take_while(move |(key, _)| is_its(key))
            .map(|(_, it)| it.as_ref())
    }

    /// Keys that are registered and cannot be used, because their secrets did not open.
    pub fn unopened_keys(&self) -> impl Iterator<Item = &Key> {
        let keys = self.entries().filter_map(|entry| match entry {
            Entry::Key(key) => Some(key),
            _ => None,
        });
        let is_live = |key: &&Key| {
            self.service(key.service.as_str()).is_some_and(|view| view.key(&key.version).is_some())
        };
        keys.filter(move |key| !is_live(key))
    }

    /// What does not hold together any more now that the replay window is this long (CLM-20).
    pub fn problems(&self, window: Duration) -> Vec<String> {
        let problem = |route: &Arc<BoundRoute>| {
            let problem = route.route.claim_problem(window)?;
            Some(format!("{}: {problem}", route.route.key()))
        };
        let mut problems: Vec<_> = self.routes().filter_map(problem).collect();
        problems.sort();
        problems
    }

    /// Adds entries that were loaded as a whole, each after what it refers to.
    pub fn fill(&mut self, mut entries: Vec<Entry>, unseal: &dyn Unseal) {
        entries.sort_by_cached_key(Entry::key);
        for entry in entries {
            self.put(entry, unseal);
        }
    }

    /// The registry with these changes made, in their order.
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

    /// Adds or replaces an entry.
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
            Entry::EventType(it) => self.change_service(&it.owner, |view| {
                view.event_types.insert(it.name.clone(), Arc::new(it.clone()));
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
            Entry::PushSecret(it) => {
                self.push_secrets.remove(&it.destination);
                if let Some(live) = it.open(unseal) {
                    self.push_secrets.insert(it.destination.clone(), Arc::new(live));
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
        of_type.retain(|it| it.destination != bound.destination);
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
                of_type.retain(|it| it.destination != destination);
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

    fn remove(&mut self, key: &EntryKey) {
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
            Entry::EventType(it) => self.change_service(&it.owner, |view| {
                view.event_types.remove(&it.name);
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
            Entry::PushSecret(it) => {
                self.push_secrets.remove(&it.destination);
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

#[cfg(test)]
mod tests;
