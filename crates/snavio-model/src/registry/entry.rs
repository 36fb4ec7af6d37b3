//! What is registered: tenants, services, routes, grants, keys and clients, each a plain record (REG-1).

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::claim::ClaimPolicy;
use crate::limits;
use crate::name::{CommandName, KeyVersion, QueueName, ServiceName, TenantName};
use crate::time::Timestamp;

/// One registered thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = RegistryEntry))]
pub enum Entry {
    /// An owner of services.
    Tenant(Tenant),
    /// A source or target of messages.
    Service(Service),
    /// Where a command goes and how it is treated.
    Route(Route),
    /// Permission to send a command.
    Grant(Grant),
    /// A version of a service's HMAC secret.
    Key(Key),
    /// A service's OAuth client.
    Client(Client),
}

/// The owner of services.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tenant {
    /// Its name.
    pub name: TenantName,
    /// Where to reach its people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contact: Option<String>,
    /// A suspended tenant's messages are refused.
    #[serde(default)]
    pub suspended: bool,
}

/// A message source or target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Service {
    /// Its full name.
    pub name: ServiceName,
    /// What it is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// How quickly a revoked permission must act (REG-15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Profile {
    /// Seconds: delete-user, revoke-token.
    Critical,
    /// Half a minute: update-profile, notify-user.
    #[default]
    Moderate,
    /// Two minutes: metrics-upload, ping-check.
    Low,
}

/// Which path a message may take (PIP-7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum DispatchMode {
    /// Decided in memory where memory can decide.
    #[default]
    Adaptive,
    /// Everything takes the slow path.
    ColdOnly,
}

/// `(target, name)` → a queue, and how messages to it are treated (REG-2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Route {
    /// The service that takes the command.
    pub target: ServiceName,
    /// The command.
    pub name: CommandName,
    /// The queue it goes to, in the target's tenant.
    pub queue: QueueName,
    /// Where its dead letters gather, in the target's tenant.
    pub dead_letter_queue: QueueName,
    /// How repeats are treated.
    #[serde(default)]
    pub claim: ClaimPolicy,
    /// Which path its messages may take.
    #[serde(default)]
    pub dispatch: DispatchMode,
    /// How quickly a revoked grant must act.
    #[serde(default)]
    pub profile: Profile,
    /// Receives before a delivery becomes a dead letter.
    #[serde(default = "receives_default")]
    pub receives_max: u32,
    /// How quickly consumers are expected to drain the queue.
    #[serde(default = "drain_default")]
    pub expected_drain_seconds: u32,
}

fn receives_default() -> u32 {
    limits::RECEIVES_DEFAULT
}

fn drain_default() -> u32 {
    300
}

impl Route {
    /// The destination that claims and deliveries name: `tenant/service:name`.
    pub fn destination(&self) -> Arc<str> {
        destination(&self.target, &self.name)
    }
}

fn destination(target: &ServiceName, name: &CommandName) -> Arc<str> {
    format!("{target}:{name}").into()
}

/// Permission for `(source, target, name)`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grant {
    /// Who may send.
    pub source: ServiceName,
    /// To whom.
    pub target: ServiceName,
    /// Which command.
    pub name: CommandName,
}

/// A secret encrypted under the platform key (REG-13): text that only the platform can open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sealed(pub String);

/// One version of a service's HMAC secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Key {
    /// Whose key it is.
    pub service: ServiceName,
    /// Its name in messages.
    pub version: KeyVersion,
    /// The secret, encrypted.
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub secret: Sealed,
    /// When it was made.
    pub created_at: Timestamp,
}

/// An OAuth client that speaks for one service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Client {
    /// Its public id.
    pub id: String,
    /// The service it speaks for.
    pub service: ServiceName,
    /// A keyed hash of its secret, in hex (REG-7).
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub secret_hash: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// What kind of thing an entry is. Stores keep its word ([`Kind::as_str`]), which is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is the entry of the same name")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Kind {
    Tenant,
    Service,
    Key,
    Client,
    Route,
    Grant,
}

impl Kind {
    /// All kinds, each after what it refers to.
    pub const ALL: [Self; 6] =
        [Self::Tenant, Self::Service, Self::Key, Self::Client, Self::Route, Self::Grant];

    /// The word for it in stores and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Service => "service",
            Self::Key => "key",
            Self::Client => "client",
            Self::Route => "route",
            Self::Grant => "grant",
        }
    }

    /// Takes back what [`Kind::as_str`] gave.
    pub fn stored(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// What an entry is found by.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EntryKey {
    /// What kind of thing.
    pub kind: Kind,
    /// Its name within the kind.
    pub name: String,
}

impl EntryKey {
    /// The tenant of this name.
    pub fn tenant(name: &TenantName) -> Self {
        Self { kind: Kind::Tenant, name: name.to_string() }
    }

    /// The service of this name.
    pub fn service(name: &ServiceName) -> Self {
        Self { kind: Kind::Service, name: name.to_string() }
    }

    /// The route of this target and name.
    pub fn route(target: &ServiceName, name: &CommandName) -> Self {
        Self { kind: Kind::Route, name: destination(target, name).to_string() }
    }

    /// The grant for this source, target and name.
    pub fn grant(source: &ServiceName, target: &ServiceName, name: &CommandName) -> Self {
        Self { kind: Kind::Grant, name: format!("{source}>{target}:{name}") }
    }

    /// The key version of this service.
    pub fn key(service: &ServiceName, version: &KeyVersion) -> Self {
        Self { kind: Kind::Key, name: format!("{service}:{version}") }
    }

    /// The client of this id.
    pub fn client(id: &str) -> Self {
        Self { kind: Kind::Client, name: id.to_owned() }
    }
}

impl fmt::Display for EntryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.name)
    }
}

impl Entry {
    /// What the entry is found by.
    pub fn key(&self) -> EntryKey {
        match self {
            Self::Tenant(tenant) => EntryKey::tenant(&tenant.name),
            Self::Service(service) => EntryKey::service(&service.name),
            Self::Route(route) => EntryKey::route(&route.target, &route.name),
            Self::Grant(grant) => EntryKey::grant(&grant.source, &grant.target, &grant.name),
            Self::Key(key) => EntryKey::key(&key.service, &key.version),
            Self::Client(client) => EntryKey::client(&client.id),
        }
    }

    /// The tenant that owns the entry: a grant belongs to the target's owner, who gives it.
    pub fn owner(&self) -> &str {
        match self {
            Self::Tenant(tenant) => tenant.name.as_str(),
            Self::Service(service) => service.name.tenant(),
            Self::Route(route) => route.target.tenant(),
            Self::Grant(grant) => grant.target.tenant(),
            Self::Key(key) => key.service.tenant(),
            Self::Client(client) => client.service.tenant(),
        }
    }
}
