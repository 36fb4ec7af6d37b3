//! The registry as the dispatch path reads it: everything in memory, by name, at one version.

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
}

#[cfg(test)]
mod tests;
