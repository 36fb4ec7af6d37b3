//! The state of an entity. It is bounded, and its layout is the JSON that stores keep.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::config::Order;
use super::gaps::Gaps;
use super::position::NumberKind;
use crate::id::MessageId;
use crate::name::TenantName;
use crate::registry::Route;
use crate::time::Timestamp;

/// The key of an entity's state (ORD-2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntityKey {
    /// The sender's tenant: messages of other tenants do not count.
    pub tenant: TenantName,
    /// The destination, or the scope under which several routes of a target count together.
    pub scope: Arc<str>,
    pub entity: String,
}

impl EntityKey {
    /// The key of an entity at a route. A scope of several routes reads `tenant/service#scope`, which no
    /// destination can.
    pub fn new(tenant: &TenantName, route: &Route, order: &Order, entity: &str) -> Self {
        let scope = match &order.scope {
            Some(scope) => format!("{}#{scope}", route.target).into(),
            None => route.destination(),
        };
        Self { tenant: tenant.clone(), scope, entity: entity.to_owned() }
    }

    /// The tenant that owns the route.
    pub fn owner(&self) -> &str {
        self.scope.split('/').next().unwrap_or_default()
    }

    /// The key as one text. Names and destinations have no spaces.
    pub fn to_text(&self) -> String {
        format!("{} {} {}", self.tenant, self.scope, self.entity)
    }

    /// Reads the text of [`EntityKey::to_text`]; `None` for any other text.
    pub fn stored(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ');
        let (tenant, scope, entity) = (parts.next()?, parts.next()?, parts.next()?);
        let tenant = TenantName::new(tenant).ok()?;
        Some(Self { tenant, scope: scope.into(), entity: entity.to_owned() })
    }
}

/// The state of an entity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntityState {
    /// The highest number that was processed.
    pub last: i64,
    /// The message with that number.
    pub last_id: MessageId,
    /// The destination of that message, if several destinations count the entity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_among: Option<Box<str>>,
    pub kind: NumberKind,
    /// Missing numbers below the last one.
    #[serde(default, skip_serializing_if = "Gaps::is_empty")]
    pub gaps: Gaps,
    /// Messages that wait for a gap to fill, lowest number first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Waiting>,
    /// Whether a completion was processed, and no message since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
    /// Numbers that failed for good on a route that parks, lowest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<i64>,
    /// Time at which the state expires. Only an advance moves it.
    pub expires_at: Timestamp,
}

/// A message that waits for a gap to fill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiting {
    pub number: i64,
    pub id: MessageId,
    /// Its destination, if several destinations count the entity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub among: Option<Box<str>>,
    /// End of the wait.
    pub until: Timestamp,
    /// Whether it closes its entity.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub completes: bool,
}

/// A message that waited and is to be delivered now, after the earlier ones in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    pub number: i64,
    pub id: MessageId,
    /// Count of missing numbers before it that the entity no longer waits for.
    pub gap: u64,
}

impl EntityState {
    /// Whether the state is still valid. A state with waiting or parked messages never expires, because these
    /// depend on it.
    pub fn is_live(&self, now: Timestamp) -> bool {
        now < self.expires_at || !self.waiting.is_empty() || !self.failed.is_empty()
    }

    /// The lowest number that failed for good. Later ones are parked behind it.
    pub fn parked_at(&self) -> Option<i64> {
        self.failed.first().copied()
    }

    /// The end of the first wait, if any message waits.
    pub fn wait_ends_at(&self) -> Option<Timestamp> {
        self.waiting.iter().map(|waiting| waiting.until).min()
    }

    /// Forgets the entity (ORD-6). Returns the waiting messages, which are to be delivered in order.
    pub fn reset(self) -> Vec<Released> {
        let release = |waiting: Waiting| Released { number: waiting.number, id: waiting.id, gap: 0 };
        self.waiting.into_iter().map(release).collect()
    }
}
