//! What is known of an entity. All of it is bounded; the layout is the JSON that stores keep.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::config::Order;
use super::gaps::Gaps;
use super::position::NumberKind;
use crate::id::MessageId;
use crate::name::TenantName;
use crate::registry::Route;
use crate::time::Timestamp;

/// What the state of an entity is found by (ORD-2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntityKey {
    /// The sender's tenant: nobody else's messages count.
    pub tenant: TenantName,
    /// The route, or what several of one target count together as.
    pub scope: Arc<str>,
    /// The entity.
    pub entity: String,
}

impl EntityKey {
    /// Of an entity by a route. A scope of several routes is `tenant/service#scope`: no destination reads so.
    pub fn new(tenant: &TenantName, route: &Route, order: &Order, entity: &str) -> Self {
        let scope = match &order.scope {
            Some(scope) => format!("{}#{scope}", route.target).into(),
            None => route.destination(),
        };
        Self { tenant: tenant.clone(), scope, entity: entity.to_owned() }
    }

    /// The tenant whose messages these are.
    pub fn owner(&self) -> &str {
        self.scope.split('/').next().unwrap_or_default()
    }

    /// As one text. Neither names nor destinations have a space.
    pub fn to_text(&self) -> String {
        format!("{} {} {}", self.tenant, self.scope, self.entity)
    }

    /// Takes back what [`EntityKey::to_text`] gave; nothing of another text.
    pub fn stored(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ');
        let (tenant, scope, entity) = (parts.next()?, parts.next()?, parts.next()?);
        let tenant = TenantName::new(tenant).ok()?;
        Some(Self { tenant, scope: scope.into(), entity: entity.to_owned() })
    }
}

/// What is known of an entity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntityState {
    /// The highest number that was processed.
    pub last: i64,
    /// The message that had it.
    pub last_id: MessageId,
    /// Its destination, where several count the entity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_among: Option<Box<str>>,
    /// What its numbers count.
    pub kind: NumberKind,
    /// Numbers below the last that have not come.
    #[serde(default, skip_serializing_if = "Gaps::is_empty")]
    pub gaps: Gaps,
    /// Messages that wait for those before them, lowest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Waiting>,
    /// Whether its completion was processed, and nothing since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
    /// Numbers that failed for good where later ones queue behind them, lowest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<i64>,
    /// From when on nothing is known of it; only going on moves that.
    pub expires_at: Timestamp,
}

/// A message that waits for those before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiting {
    /// Its number.
    pub number: i64,
    /// The message.
    pub id: MessageId,
    /// Its destination, where several count the entity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub among: Option<Box<str>>,
    /// Until when it waits.
    pub until: Timestamp,
    /// Whether its entity is closed after it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub completes: bool,
}

/// A message that has waited and is to be handed over now, after those before it in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    /// Its number.
    pub number: i64,
    /// The message.
    pub id: MessageId,
    /// How many numbers before it were given up.
    pub gap: u64,
}

impl EntityState {
    /// Whether anything is known still. What waits or is parked is never forgotten: messages hang on it.
    pub fn is_live(&self, now: Timestamp) -> bool {
        now < self.expires_at || !self.waiting.is_empty() || !self.failed.is_empty()
    }

    /// The number that later ones queue behind, if it is parked: the lowest that failed for good.
    pub fn parked_at(&self) -> Option<i64> {
        self.failed.first().copied()
    }

    /// When the first wait ends, if any message waits.
    pub fn wait_ends_at(&self) -> Option<Timestamp> {
        self.waiting.iter().map(|it| it.until).min()
    }

    /// Forgets the entity (ORD-6). What waits for it is to be handed over, in order.
    pub fn reset(self) -> Vec<Released> {
        let release = |it: Waiting| Released { number: it.number, id: it.id, gap: 0 };
        self.waiting.into_iter().map(release).collect()
    }
}
