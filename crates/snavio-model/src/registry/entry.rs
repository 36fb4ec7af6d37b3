//! The entries of the registry: tenants, services, routes, event types, subscriptions, grants, keys, clients,
//! adapters and bans, each a plain record (REG-1).

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::identity::{GrantRequest, Issuer, PersonalToken, Workload};
use super::key::{EntryKey, Kind};
use super::push::{Disabled, PushSecret};
use crate::adapter::Adapter;
use crate::bounds;
use crate::claim::ClaimPolicy;
use crate::delivery::processing::{Processing, ProcessingKind};
use crate::name::{CommandName, EventVersion, GrantedName, KeyVersion, QueueName, ServiceName, TenantName};
use crate::ordering::Order;
use crate::time::Timestamp;

/// One entry of the registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = RegistryEntry))]
pub enum Entry {
    /// An owner of services.
    Tenant(Tenant),
    /// A source or target of messages.
    Service(Service),
    /// The queue and treatment of a command.
    Route(Route),
    /// An event type that a service publishes.
    EventType(EventType),
    /// Permission to send a command, or to subscribe to another tenant's events.
    Grant(Grant),
    /// A subscription of a service to events: a route with a publisher.
    Subscription(Route),
    /// The secret that signs pushes to a destination.
    PushSecret(PushSecret),
    /// A version of a service's HMAC secret.
    Key(Key),
    /// A service's OAuth client.
    Client(Client),
    /// A personal token, with its role.
    PersonalToken(PersonalToken),
    /// The request of a producer for a grant.
    GrantRequest(GrantRequest),
    /// A platform that attests the identities of workloads.
    Issuer(Issuer),
    /// The service of a workload.
    Workload(Workload),
    /// An excluded source.
    Ban(Ban),
    /// An adapter for a provider's webhooks. Boxed, because it is much larger than the other variants.
    Adapter(Box<Adapter>),
}

/// The owner of services.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tenant {
    pub name: TenantName,
    /// How to reach its people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contact: Option<String>,
    /// The gateway refuses the messages of a suspended tenant.
    #[serde(default)]
    pub suspended: bool,
}

/// A message source or target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Service {
    /// The full name.
    pub name: ServiceName,
    /// A description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Days between two keys (REG-10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_days: Option<u32>,
    /// Days for which the previous key is accepted beside the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_overlap_days: Option<u32>,
    /// Whether its events must be signed (MSG-4). Commands must always be signed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub signed_events: bool,
}

/// Defaults are not written, so that documents of earlier versions keep their text and their seals.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Service {
    /// A service with default settings.
    pub fn new(name: ServiceName) -> Self {
        Self { name, description: None, key_days: None, key_overlap_days: None, signed_events: false }
    }

    /// Days between two keys, or the default.
    pub fn key_days(&self) -> u32 {
        self.key_days.unwrap_or(bounds::KEY_DAYS)
    }

    /// Days for which the previous key is accepted, or the default.
    pub fn key_overlap_days(&self) -> u32 {
        self.key_overlap_days.unwrap_or(bounds::KEY_OVERLAP_DAYS)
    }
}

/// The sensitivity of a permission: the time until its revocation must act (REG-15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
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

/// The path that a message may take (PIP-7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum DispatchMode {
    /// Decide in memory if possible.
    #[default]
    Adaptive,
    /// Decide every message against the store.
    ColdOnly,
}

/// An event type. Only its owner publishes it (PIP-13).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventType {
    /// The service that publishes it.
    pub owner: ServiceName,
    /// The name within that service.
    pub name: CommandName,
    /// The version of events that state none.
    #[serde(default)]
    pub version: EventVersion,
}

/// Maps `(target, name)` to a queue and sets the treatment of its messages (REG-2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Route {
    /// The service that accepts the command, or subscribes to the events.
    pub target: ServiceName,
    /// The command, or the event type.
    pub name: CommandName,
    /// The publisher, for a subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events_of: Option<ServiceName>,
    /// The queue of the deliveries, in the target's tenant.
    pub queue: QueueName,
    /// The queue of the dead letters, in the target's tenant.
    pub dead_letter_queue: QueueName,
    /// The treatment of repeated ids.
    #[serde(default)]
    pub claim: ClaimPolicy,
    /// The processing of the messages, and the sequence of attempts.
    #[serde(default, skip_serializing_if = "Processing::is_default")]
    pub processing: Processing,
    /// The path that its messages may take.
    #[serde(default)]
    pub dispatch: DispatchMode,
    /// The time until a revoked grant must act.
    #[serde(default)]
    pub profile: Profile,
    /// Number of receives before a delivery becomes a dead letter.
    #[serde(default = "receives_default")]
    pub receives_max: u32,
    /// Time in which consumers are expected to drain the queue, in seconds.
    #[serde(default = "drain_default")]
    pub expected_drain_seconds: u32,
    /// The order of its messages (ORD-1); without it they are not ordered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Box<Order>>,
    /// Whether the registry in memory may decide on permission (REG-15).
    #[serde(default, skip_serializing_if = "Acl::is_default")]
    pub acl: Acl,
    /// End of an ephemeral route.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::time::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub expires_at: Option<Timestamp>,
    /// Set while pushes are disabled, with time and note. Deliveries wait in the queue meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Box<Disabled>>,
}

/// The registry that decides on a route's grants (REG-15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Acl {
    /// The registry in memory, up to the age that the profile allows.
    #[default]
    Cached,
    /// The store's registry, inside the commit of every message.
    Always,
}

impl Acl {
    fn is_default(&self) -> bool {
        *self == Self::Cached
    }
}

fn receives_default() -> u32 {
    bounds::RECEIVES_DEFAULT
}

fn drain_default() -> u32 {
    300
}

impl Route {
    /// The problem of its claim retention, if any, with the arithmetic (CLM-15, CLM-20).
    pub(super) fn claim_problem(&self, window: Duration) -> Option<String> {
        self.claim.problem(window, self.processing.longest(self.receives_max))
    }

    /// The first problem of its ordering, if any (ORD-1).
    pub(super) fn order_problem(&self) -> Option<String> {
        let order = self.order.as_ref()?;
        if self.claim == ClaimPolicy::None {
            return Some(
                "order requires claims, to tell duplicates from late messages: give the route a claim policy"
                    .to_owned(),
            );
        }
        if self.processing.kind == ProcessingKind::Reported {
            return Some(
                "order is not for processing.kind reported: its service begins that work by itself"
                    .to_owned(),
            );
        }
        if order.scope.is_none() && order.completion.iter().any(|name| *name != self.name) {
            return Some(format!(
                "order.completion has types that this route never receives: give {} and their routes the same scope",
                self.name
            ));
        }
        order.problem()
    }

    /// The destination in claims and deliveries: `tenant/service:name`, or
    /// `tenant/service:publisher-tenant/publisher:type` for a subscription.
    pub fn destination(&self) -> Arc<str> {
        match &self.events_of {
            Some(publisher) => format!("{}:{publisher}:{}", self.target, self.name).into(),
            None => destination(&self.target, &self.name),
        }
    }

    /// The key of the entry, as a route or as a subscription.
    pub fn key(&self) -> EntryKey {
        let kind = if self.events_of.is_some() { Kind::Subscription } else { Kind::Route };
        EntryKey { kind, name: self.destination().to_string() }
    }

    /// The publisher, if it belongs to another tenant. A subscription to its events needs a grant (PIP-13).
    pub fn foreign_publisher(&self) -> Option<&ServiceName> {
        self.events_of.as_ref().filter(|publisher| publisher.tenant() != self.target.tenant())
    }
}

/// The event type in the destination of a subscription; `None` for the destination of a route. Names have no
/// colons.
pub fn event_type_of(destination: &str) -> Option<&str> {
    let (_, address) = destination.split_once(':')?;
    address.split_once(':').map(|(_, name)| name)
}

pub(super) fn destination(target: &ServiceName, name: &CommandName) -> Arc<str> {
    format!("{target}:{name}").into()
}

/// Permission for `(source, target, name)`: to send the command, or to subscribe to the event type with that
/// name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grant {
    /// The service that may send or subscribe.
    pub source: ServiceName,
    /// The target or publisher.
    pub target: ServiceName,
    /// The command or event type; `*` stands for all commands except those of critical routes.
    pub name: GrantedName,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::time::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub expires_at: Option<Timestamp>,
    /// The sensitivity of the grant, if it is stricter than its route's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

impl Grant {
    /// A grant without expiry.
    pub fn new(source: ServiceName, target: ServiceName, name: impl Into<GrantedName>) -> Self {
        Self { source, target, name: name.into(), expires_at: None, profile: None }
    }
}

/// A secret encrypted under the platform key (REG-13). Only the platform can decrypt the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sealed(pub String);

/// One version of a service's HMAC secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Key {
    /// The service that signs with it.
    pub service: ServiceName,
    /// The version in messages.
    pub version: KeyVersion,
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub secret: Sealed,
    pub created_at: Timestamp,
    /// The planned end, set when the next key is made (REG-10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Time of its revocation (REG-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

impl Key {
    /// The time from which the gateway no longer accepts it, if known.
    pub fn ends_at(&self) -> Option<Timestamp> {
        self.expires_at.into_iter().chain(self.revoked_at).min()
    }
}

/// An OAuth client that acts for one service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Client {
    /// The public id.
    pub id: String,
    /// The service that it acts for.
    pub service: ServiceName,
    /// A keyed hash of the secret, in hex (REG-7).
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub secret_hash: String,
    pub created_at: Timestamp,
}

/// An operator's exclusion of a source (LIM-7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ban {
    /// The service with refused messages.
    pub source: ServiceName,
    /// The note of the operator.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::time::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub until: Option<Timestamp>,
}

impl Entry {
    /// The key of the entry.
    pub fn key(&self) -> EntryKey {
        match self {
            Self::Tenant(tenant) => EntryKey::tenant(&tenant.name),
            Self::Service(service) => EntryKey::service(&service.name),
            Self::Route(route) => EntryKey::route(&route.target, &route.name),
            Self::EventType(event_type) => EntryKey::event_type(&event_type.owner, &event_type.name),
            Self::Subscription(route) => {
                EntryKey { kind: Kind::Subscription, name: route.destination().to_string() }
            }
            Self::Grant(grant) => EntryKey::grant(&grant.source, &grant.target, &grant.name),
            Self::PushSecret(secret) => EntryKey::push_secret(&secret.destination),
            Self::Key(key) => EntryKey::key(&key.service, &key.version),
            Self::Client(client) => EntryKey::client(&client.id),
            Self::PersonalToken(token) => EntryKey::personal_token(&token.id),
            Self::GrantRequest(request) => {
                EntryKey::grant_request(&request.source, &request.target, &request.name)
            }
            Self::Issuer(issuer) => EntryKey::issuer(&issuer.issuer),
            Self::Workload(workload) => EntryKey::workload(&workload.issuer, &workload.subject),
            Self::Ban(ban) => EntryKey::ban(&ban.source),
            Self::Adapter(adapter) => EntryKey::adapter(adapter),
        }
    }

    /// The tenant that owns the entry; empty for the platform. A grant belongs to the owner of its target.
    pub fn owner(&self) -> &str {
        match self {
            Self::Tenant(tenant) => tenant.name.as_str(),
            Self::Service(service) => service.name.tenant(),
            Self::Route(route) | Self::Subscription(route) => route.target.tenant(),
            Self::EventType(event_type) => event_type.owner.tenant(),
            Self::Grant(grant) => grant.target.tenant(),
            Self::PushSecret(secret) => secret.owner(),
            Self::Key(key) => key.service.tenant(),
            Self::Client(client) => client.service.tenant(),
            Self::PersonalToken(token) => token.tenant.as_ref().map_or("", TenantName::as_str),
            Self::GrantRequest(request) => request.target.tenant(),
            Self::Workload(workload) => workload.service.tenant(),
            Self::Adapter(adapter) => adapter.service.tenant(),
            Self::Issuer(_) | Self::Ban(_) => "",
        }
    }
}
