//! Keys of entries: the kind, and the name within the kind.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::entry::destination;
use crate::adapter::Adapter;
use crate::name::{AdapterName, CommandName, GrantedName, KeyVersion, ServiceName, TenantName};

/// The kind of an entry. Stores keep its word ([`Kind::as_str`]), which is never reused.
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
    EventType,
    Grant,
    Subscription,
    PushSecret,
    PersonalToken,
    GrantRequest,
    Issuer,
    Workload,
    Ban,
    Adapter,
}

impl Kind {
    /// All kinds, each after the kinds that it refers to.
    pub const ALL: [Self; 15] = [
        Self::Tenant,
        Self::Service,
        Self::Key,
        Self::Client,
        Self::Route,
        Self::EventType,
        Self::Grant,
        Self::Subscription,
        Self::PushSecret,
        Self::PersonalToken,
        Self::GrantRequest,
        Self::Issuer,
        Self::Workload,
        Self::Ban,
        Self::Adapter,
    ];

    /// The word for the kind in stores and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Service => "service",
            Self::Key => "key",
            Self::Client => "client",
            Self::Route => "route",
            Self::EventType => "event_type",
            Self::Grant => "grant",
            Self::Subscription => "subscription",
            Self::PushSecret => "push_secret",
            Self::PersonalToken => "personal_token",
            Self::GrantRequest => "grant_request",
            Self::Issuer => "issuer",
            Self::Workload => "workload",
            Self::Ban => "ban",
            Self::Adapter => "adapter",
        }
    }

    /// Reads the word of [`Kind::as_str`].
    pub fn stored(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// The key of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EntryKey {
    pub kind: Kind,
    /// The name within the kind.
    pub name: String,
}

impl EntryKey {
    /// The key of the tenant with this name.
    pub fn tenant(name: &TenantName) -> Self {
        Self { kind: Kind::Tenant, name: name.to_string() }
    }

    /// The key of the service with this name.
    pub fn service(name: &ServiceName) -> Self {
        Self { kind: Kind::Service, name: name.to_string() }
    }

    /// The key of the route for this target and name.
    pub fn route(target: &ServiceName, name: &CommandName) -> Self {
        Self { kind: Kind::Route, name: destination(target, name).to_string() }
    }

    /// The key of a service's event type.
    pub fn event_type(owner: &ServiceName, name: &CommandName) -> Self {
        Self { kind: Kind::EventType, name: destination(owner, name).to_string() }
    }

    /// The key of a service's subscription to a publisher's event type.
    pub fn subscription(target: &ServiceName, publisher: &ServiceName, name: &CommandName) -> Self {
        Self { kind: Kind::Subscription, name: format!("{target}:{publisher}:{name}") }
    }

    /// The key of the secret that signs pushes to this destination.
    pub fn push_secret(destination: &str) -> Self {
        Self { kind: Kind::PushSecret, name: destination.to_owned() }
    }

    /// The key of the grant for this source, target and name.
    pub fn grant(source: &ServiceName, target: &ServiceName, name: &GrantedName) -> Self {
        Self { kind: Kind::Grant, name: format!("{source}>{target}:{name}") }
    }

    /// The key of a version of a service's HMAC secret.
    pub fn key(service: &ServiceName, version: &KeyVersion) -> Self {
        Self { kind: Kind::Key, name: format!("{service}:{version}") }
    }

    /// The key of the OAuth client with this id.
    pub fn client(id: &str) -> Self {
        Self { kind: Kind::Client, name: id.to_owned() }
    }

    /// The key of the personal token with this id.
    pub fn personal_token(id: &str) -> Self {
        Self { kind: Kind::PersonalToken, name: id.to_owned() }
    }

    /// The key of the grant request for this source, target and name.
    pub fn grant_request(source: &ServiceName, target: &ServiceName, name: &GrantedName) -> Self {
        Self { kind: Kind::GrantRequest, ..Self::grant(source, target, name) }
    }

    /// The key of the issuer with this name.
    pub fn issuer(issuer: &str) -> Self {
        Self { kind: Kind::Issuer, name: issuer.to_owned() }
    }

    /// The key of the workload with this issuer and subject.
    pub fn workload(issuer: &str, subject: &str) -> Self {
        Self { kind: Kind::Workload, name: format!("{issuer} {subject}") }
    }

    /// The key of an adapter: the tenant of its service, and its name.
    pub fn adapter(adapter: &Adapter) -> Self {
        Self::adapter_of(adapter.service.tenant(), &adapter.name)
    }

    /// The key of the adapter with this name in a tenant.
    pub fn adapter_of(tenant: &str, name: &AdapterName) -> Self {
        Self { kind: Kind::Adapter, name: format!("{tenant}/{name}") }
    }

    /// The key of the ban on this source.
    pub fn ban(source: &ServiceName) -> Self {
        Self { kind: Kind::Ban, name: source.to_string() }
    }
}

impl fmt::Display for EntryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.name)
    }
}
