//! What is registered: tenants, services, routes, event types, subscriptions, grants, keys, clients, adapters and bans, each a
//! plain record (REG-1).

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
    /// What a service publishes.
    EventType(EventType),
    /// Permission to send a command, or to subscribe to another tenant's events.
    Grant(Grant),
    /// Where a service gets events, and how they are treated: a route that says whose they are.
    Subscription(Route),
    /// What is pushed to a destination is signed with.
    PushSecret(PushSecret),
    /// A version of a service's HMAC secret.
    Key(Key),
    /// A service's OAuth client.
    Client(Client),
    /// A person's token, with what it is good for.
    PersonalToken(PersonalToken),
    /// A grant that a producer would like to have.
    GrantRequest(GrantRequest),
    /// Somebody whose word on workloads is taken.
    Issuer(Issuer),
    /// Which service a workload is.
    Workload(Workload),
    /// A source that is shut out.
    Ban(Ban),
    /// What makes events of a provider's webhooks. By itself, because it is larger than all others.
    Adapter(Box<Adapter>),
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
    /// Days between two of its keys (REG-10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_days: Option<u32>,
    /// Days for which a key is accepted beside the one after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_overlap_days: Option<u32>,
    /// Whether its events must be signed (MSG-4); its commands always are.
    #[serde(default, skip_serializing_if = "is_false")]
    pub signed_events: bool,
}

/// What is usual is not said, so that documents of the time before read and seal the same.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Service {
    /// A service with the usual settings.
    pub fn new(name: ServiceName) -> Self {
        Self { name, description: None, key_days: None, key_overlap_days: None, signed_events: false }
    }

    /// Days between two of its keys.
    pub fn key_days(&self) -> u32 {
        self.key_days.unwrap_or(bounds::KEY_DAYS)
    }

    /// Days for which a key is accepted beside the one after it.
    pub fn key_overlap_days(&self) -> u32 {
        self.key_overlap_days.unwrap_or(bounds::KEY_OVERLAP_DAYS)
    }
}

/// How quickly a revoked permission must act (REG-15).
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

/// What a service publishes; nobody else does (PIP-13).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventType {
    /// The service that publishes it.
    pub owner: ServiceName,
    /// Its name within that service.
    pub name: CommandName,
    /// The version of events that do not say theirs.
    #[serde(default)]
    pub version: EventVersion,
}

/// `(target, name)` → a queue, and how messages to it are treated (REG-2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Route {
    /// The service that takes the command, or subscribes to the events.
    pub target: ServiceName,
    /// The command, or the event type.
    pub name: CommandName,
    /// Of a subscription: the service whose events it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events_of: Option<ServiceName>,
    /// The queue it goes to, in the target's tenant.
    pub queue: QueueName,
    /// Where its dead letters gather, in the target's tenant.
    pub dead_letter_queue: QueueName,
    /// How repeats are treated.
    #[serde(default)]
    pub claim: ClaimPolicy,
    /// By whom it is processed, and how attempts follow each other.
    #[serde(default, skip_serializing_if = "Processing::is_default")]
    pub processing: Processing,
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
    /// How its messages are ordered, if they are (ORD-1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Box<Order>>,
    /// Whether the registry in memory may decide who may send (REG-15).
    #[serde(default, skip_serializing_if = "Acl::is_default")]
    pub acl: Acl,
    /// When an ephemeral route ends.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::time::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub expires_at: Option<Timestamp>,
    /// Of a push: since when nothing is sent any more, and why. What comes waits in the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Box<Disabled>>,
}

/// By what a route's grants are judged (REG-15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Acl {
    /// By the registry in memory, as old as the profile allows.
    #[default]
    Cached,
    /// By the store's, inside the commit of every message.
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
    /// What is wrong with how long its claims are kept, with the arithmetic (CLM-15, CLM-20).
    pub(super) fn claim_problem(&self, window: Duration) -> Option<String> {
        self.claim.problem(window, self.processing.longest(self.receives_max))
    }

    /// What is wrong with how its messages are ordered, if anything (ORD-1).
    pub(super) fn order_problem(&self) -> Option<String> {
        let order = self.order.as_ref()?;
        if self.claim == ClaimPolicy::None {
            return Some(
                "order: what was seen is told from what is late by its claim: give the route a claim policy"
                    .to_owned(),
            );
        }
        if self.processing.kind == ProcessingKind::Reported {
            return Some(
                "order is for messages that are sent, not for work that its service begins by itself"
                    .to_owned(),
            );
        }
        if order.scope.is_none() && order.completion.iter().any(|it| *it != self.name) {
            return Some(format!(
                "order.completion names types that this route never gets: give {} and their routes one scope",
                self.name
            ));
        }
        order.problem()
    }

    /// The destination that claims and deliveries name: `tenant/service:name`, of a subscription
    /// `tenant/service:publisher-tenant/publisher:type`.
    pub fn destination(&self) -> Arc<str> {
        match &self.events_of {
            Some(publisher) => format!("{}:{publisher}:{}", self.target, self.name).into(),
            None => destination(&self.target, &self.name),
        }
    }

    /// What it is registered under, as a route or as a subscription.
    pub fn key(&self) -> EntryKey {
        let kind = if self.events_of.is_some() { Kind::Subscription } else { Kind::Route };
        EntryKey { kind, name: self.destination().to_string() }
    }

    /// The publisher of another tenant, whose permission a subscription to its events needs (PIP-13).
    pub fn foreign_publisher(&self) -> Option<&ServiceName> {
        self.events_of.as_ref().filter(|publisher| publisher.tenant() != self.target.tenant())
    }
}

/// The event type within the destination of a subscription; none within that of a route. Names hold no colon.
pub fn event_type_of(destination: &str) -> Option<&str> {
    let (_, address) = destination.split_once(':')?;
    address.split_once(':').map(|(_, name)| name)
}

pub(super) fn destination(target: &ServiceName, name: &CommandName) -> Arc<str> {
    format!("{target}:{name}").into()
}

/// Permission for `(source, target, name)`: to send the command, and to subscribe to the event type of that name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grant {
    /// Who may send, or subscribe.
    pub source: ServiceName,
    /// To whom.
    pub target: ServiceName,
    /// Which command or event type; `*` for all commands, but for those of critical routes.
    pub name: GrantedName,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::time::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub expires_at: Option<Timestamp>,
    /// How quickly its end must act, if more quickly than its route says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

impl Grant {
    /// A grant without an end.
    pub fn new(source: ServiceName, target: ServiceName, name: impl Into<GrantedName>) -> Self {
        Self { source, target, name: name.into(), expires_at: None, profile: None }
    }
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
    /// When it ends: set when the next one is made (REG-10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was found to be compromised (REG-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

impl Key {
    /// When it is not accepted any more, if that is known.
    pub fn ends_at(&self) -> Option<Timestamp> {
        self.expires_at.into_iter().chain(self.revoked_at).min()
    }
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

/// A source that is shut out by an operator (LIM-7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ban {
    /// The service whose messages are refused.
    pub source: ServiceName,
    /// For what reason, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::time::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub until: Option<Timestamp>,
}

impl Entry {
    /// What the entry is found by.
    pub fn key(&self) -> EntryKey {
        match self {
            Self::Tenant(tenant) => EntryKey::tenant(&tenant.name),
            Self::Service(service) => EntryKey::service(&service.name),
            Self::Route(route) => EntryKey::route(&route.target, &route.name),
            Self::EventType(it) => EntryKey::event_type(&it.owner, &it.name),
            Self::Subscription(route) => {
                EntryKey { kind: Kind::Subscription, name: route.destination().to_string() }
            }
            Self::Grant(grant) => EntryKey::grant(&grant.source, &grant.target, &grant.name),
            Self::PushSecret(it) => EntryKey::push_secret(&it.destination),
            Self::Key(key) => EntryKey::key(&key.service, &key.version),
            Self::Client(client) => EntryKey::client(&client.id),
            Self::PersonalToken(token) => EntryKey::personal_token(&token.id),
            Self::GrantRequest(it) => EntryKey::grant_request(&it.source, &it.target, &it.name),
            Self::Issuer(issuer) => EntryKey::issuer(&issuer.issuer),
            Self::Workload(workload) => EntryKey::workload(&workload.issuer, &workload.subject),
            Self::Ban(ban) => EntryKey::ban(&ban.source),
            Self::Adapter(adapter) => EntryKey::adapter(adapter),
        }
    }

    /// The tenant that owns the entry, none for the platform's: a grant belongs to the target's owner, who gives it.
    pub fn owner(&self) -> &str {
        match self {
            Self::Tenant(tenant) => tenant.name.as_str(),
            Self::Service(service) => service.name.tenant(),
            Self::Route(route) | Self::Subscription(route) => route.target.tenant(),
            Self::EventType(it) => it.owner.tenant(),
            Self::Grant(grant) => grant.target.tenant(),
            Self::PushSecret(it) => it.owner(),
            Self::Key(key) => key.service.tenant(),
            Self::Client(client) => client.service.tenant(),
            Self::PersonalToken(token) => token.tenant.as_ref().map_or("", TenantName::as_str),
            Self::GrantRequest(it) => it.target.tenant(),
            Self::Workload(workload) => workload.service.tenant(),
            Self::Adapter(adapter) => adapter.service.tenant(),
            Self::Issuer(_) | Self::Ban(_) => "",
        }
    }
}
