//! The registry as the dispatch path reads it: all entries in memory, by name, at one version.

pub mod age;
mod building;
mod chain;
mod change;
mod entry;
mod evidence;
mod horizon;
mod identity;
mod key;
mod live_adapter;
mod nearest;
mod past;
mod plan;
mod push;
mod revocation;
mod rotation;
mod service;
pub mod snapshot;
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
pub use horizon::{Horizons, Involved};
pub use identity::{GrantRequest, Issuer, KeySet, PersonalToken, Role, Workload};
pub use key::{EntryKey, Kind};
pub use live_adapter::LiveAdapter;
pub use past::{Differences, Rollback};
pub use plan::plan;
pub use push::{Disabled, LivePushSecret, PushSecret};
pub use revocation::{Revocation, Revoked, Used};
pub use rotation::{KeyRevocation, KeyRing, KeyState, NewKey, version};
pub use service::{BoundRoute, LiveKey, ServiceView};
pub(crate) use soundness::problems_alone;
pub use verify::{Fault, Verified, Verifier, verify};

use crate::adapter::ForeignSecret;
use crate::delivery::processing::ProcessingKind;
use crate::name::{CommandName, QueueKey, ServiceName, TenantName};
use crate::signature::signing::Secret;
use crate::time::Timestamp;

/// A map with structural sharing: a copy that differs in one entry shares the rest, so a change costs the
/// same in a registry of any size.
type Shared<K, V> = GenericHashMap<K, V, foldhash::fast::RandomState, DefaultSharedPtr>;

/// Decrypts sealed secrets. Implemented outside this crate, because the model does not know the platform key.
pub trait Unseal: Send + Sync {
    /// Decrypts a secret; `None` if it was sealed under another key or is damaged.
    fn unseal(&self, sealed: &Sealed) -> Option<Secret>;

    /// Decrypts a provider's secret in the same way. The default is for nodes and tests without adapters.
    fn unseal_text(&self, _sealed: &Sealed) -> Option<ForeignSecret> {
        None
    }
}

/// Makes secrets of new keys, which no person sees. Implemented outside this crate, because the model does
/// not know the platform key.
pub trait NewSecrets: Send + Sync {
    /// A new secret, sealed.
    fn new_secret(&self) -> Sealed;
}

/// All entries at one version, with the views for look-ups on the dispatch path.
///
/// A change copies only the parts that it affects (REG-16).
#[derive(Debug, Clone, Default)]
pub struct Registry {
    version: i64,
    entries: OrdMap<EntryKey, Arc<Entry>>,
    tenants: Shared<TenantName, Arc<Tenant>>,
    services: Shared<ServiceName, Arc<ServiceView>>,
    /// By publisher and type. Neither needs to exist, because a subscription to another tenant's events may
    /// outlive both.
    subscriptions: Shared<ServiceName, Shared<CommandName, Vec<Arc<BoundRoute>>>>,
    push_secrets: Shared<String, Arc<LivePushSecret>>,
    clients: Shared<String, Arc<Client>>,
    personal_tokens: Shared<String, Arc<PersonalToken>>,
    bans: Shared<ServiceName, Arc<Ban>>,
    adapters: Shared<String, Arc<LiveAdapter>>,
}

impl Registry {
    /// The version, which rises by one with every change.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// Sets the version of a registry that was loaded as a whole.
    pub fn at_version(self, version: i64) -> Self {
        Self { version, ..self }
    }

    /// The entry with this key.
    pub fn get(&self, key: &EntryKey) -> Option<&Entry> {
        self.entries.get(key).map(Arc::as_ref)
    }

    /// All entries, ordered by kind and name.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().map(Arc::as_ref)
    }

    /// The entries after this key, ordered by kind and name; all entries without a key.
    pub fn entries_after(&self, after: Option<&EntryKey>) -> impl Iterator<Item = &Entry> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.entries.range::<_, EntryKey>((start, Bound::Unbounded)).map(|(_, entry)| entry.as_ref())
    }

    /// The number of entries.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// All entries of a kind, ordered by name.
    pub fn entries_of(&self, kind: Kind) -> impl Iterator<Item = &Entry> {
        let first = EntryKey { kind, name: String::new() };
        self.entries
            .range::<_, EntryKey>(first..)
            .take_while(move |(key, _)| key.kind == kind)
            .map(|(_, entry)| entry.as_ref())
    }

    /// The tenant with this name.
    pub fn tenant(&self, name: &str) -> Option<&Arc<Tenant>> {
        self.tenants.get(name)
    }

    /// The service with this full name.
    pub fn service(&self, name: &str) -> Option<&Arc<ServiceView>> {
        self.services.get(name)
    }

    /// The route or subscription of a destination.
    pub fn destination(&self, destination: &str) -> Option<&Arc<BoundRoute>> {
        let (target, name) = destination.split_once(':')?;
        let view = self.service(target)?;
        view.routes.get(name).or_else(|| view.subscriptions.get(destination))
    }

    pub fn services(&self) -> impl Iterator<Item = &ServiceView> {
        self.services.values().map(Arc::as_ref)
    }

    /// All routes and subscriptions of all services.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<BoundRoute>> {
        self.services().flat_map(|view| view.routes().chain(view.subscriptions()))
    }

    /// The subscriptions to a publisher's event type, with or without a grant.
    pub fn subscriptions_to(&self, publisher: &ServiceName, name: &CommandName) -> &[Arc<BoundRoute>] {
        let of_name = self.subscriptions.get(publisher).and_then(|of_publisher| of_publisher.get(name));
        of_name.map_or(&[], Vec::as_slice)
    }

    /// The number of subscriptions of the publisher's most subscribed event type.
    pub fn widest(&self, publisher: &ServiceName) -> usize {
        let of_publisher = self.subscriptions.get(publisher).into_iter().flat_map(|types| types.values());
        of_publisher.map(Vec::len).max().unwrap_or(0)
    }

    /// All queues and dead-letter queues of routes. A queue of several routes occurs several times.
    pub fn queues(&self) -> impl Iterator<Item = &QueueKey> {
        self.routes().flat_map(|route| route.queues())
    }

    /// The subscriptions that receive a publisher's event type at this time: unexpired ones, with the grant
    /// if they belong to another tenant, which needs one (PIP-13).
    pub fn subscribed(
        &self,
        publisher: &ServiceView,
        name: &CommandName,
        at: Timestamp,
    ) -> Vec<(Option<Arc<Grant>>, Arc<BoundRoute>)> {
        let subscriptions = self.subscriptions_to(&publisher.name, name).iter();
        let permitted = subscriptions.filter_map(|bound| {
            let has_expired = bound.route.expires_at.is_some_and(|end| at >= end);
            let grant = publisher.event_grant(&bound.route.target, name, at);
            let grant = match bound.route.foreign_publisher() {
                Some(_) => Some(Arc::clone(grant?)),
                None => None,
            };
            (!has_expired).then(|| (grant, Arc::clone(bound)))
        });
        permitted.collect()
    }

    /// The secret that signs pushes to a destination, if it could be decrypted.
    pub fn push_secret(&self, destination: &str) -> Option<&Arc<LivePushSecret>> {
        self.push_secrets.get(destination)
    }

    /// Whether a route pushes but has no usable secret to sign with.
    pub fn lacks_push_secret(&self, route: &BoundRoute) -> bool {
        route.route.processing.kind == ProcessingKind::Push && self.push_secret(&route.destination).is_none()
    }

    /// Whether the gateway currently calls an endpoint for a route. It does not while the route is disabled
    /// or lacks a push secret; deliveries that wait meanwhile were not tried (DLV-4).
    pub fn calls(&self, route: &BoundRoute) -> bool {
        let is_called = route.route.processing.kind.is_called();
        is_called && route.route.disabled.is_none() && !self.lacks_push_secret(route)
    }

    /// The OAuth client with this id.
    pub fn client(&self, id: &str) -> Option<&Arc<Client>> {
        self.clients.get(id)
    }

    /// The personal token with this id.
    pub fn personal_token(&self, id: &str) -> Option<&Arc<PersonalToken>> {
        self.personal_tokens.get(id)
    }

    /// The ban on this source, if it is in force.
    pub fn ban(&self, source: &ServiceName, at: Timestamp) -> Option<&Arc<Ban>> {
        self.bans.get(source).filter(|ban| ban.until.is_none_or(|until| at < until))
    }

    /// The trusted issuer with this name.
    pub fn issuer(&self, name: &str) -> Option<&Issuer> {
        match self.get(&EntryKey::issuer(name))? {
            Entry::Issuer(issuer) => Some(issuer),
            _ => None,
        }
    }

    /// The workload with this issuer and subject.
    pub fn workload(&self, issuer: &str, subject: &str) -> Option<&Workload> {
        match self.get(&EntryKey::workload(issuer, subject))? {
            Entry::Workload(workload) => Some(workload),
            _ => None,
        }
    }

    /// The grant requests of a tenant's services.
    pub fn requests_of(&self, tenant: &str) -> impl Iterator<Item = &Entry> {
        let beginning = format!("{tenant}/");
        let first = EntryKey { kind: Kind::GrantRequest, name: beginning.clone() };
        let is_its = move |key: &EntryKey| key.kind == Kind::GrantRequest && key.name.starts_with(&beginning);
        self.entries
            .range::<_, EntryKey>(first..)
            .take_while(move |(key, _)| is_its(key))
            .map(|(_, entry)| entry.as_ref())
    }

    /// Registered keys with secrets that could not be decrypted, so that they cannot be used.
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

    /// The routes with a claim retention that is too short for this replay window (CLM-20).
    pub fn problems(&self, window: Duration) -> Vec<String> {
        let mut problems: Vec<_> = self
            .routes()
            .filter_map(|bound| {
                let problem = bound.route.claim_problem(window)?;
                Some(format!("{}: {problem}", bound.route.key()))
            })
            .collect();
        problems.sort();
        problems
    }
}

#[cfg(test)]
mod tests;
