//! Legal holds: the store neither deletes nor erases a record under a hold until a person lifts the hold
//! (CLM-18).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::claim::ClaimKey;
use crate::id::{MessageId, Serial};
use crate::name::TenantName;
use crate::time::Timestamp;

/// The scope of a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// All messages under one id that the tenant sent, or received from any sender.
    Id(MessageId),
    /// All messages to one destination of the tenant, from any sender.
    Destination(Arc<str>),
    /// All messages that the tenant sent or received.
    Tenant,
}

/// A legal hold, with the person who set it and the note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    pub id: Serial,
    /// The tenant of the records that the hold covers.
    pub tenant: TenantName,
    pub held: Held,
    pub who: String,
    pub why: String,
    pub at: Timestamp,
    /// Set once a person has lifted the hold.
    pub lifted: Option<Lifted>,
}

/// The record that a person lifted a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifted {
    pub who: String,
    pub why: String,
    pub at: Timestamp,
}

impl Hold {
    /// The object of the hold, as the audit log names it.
    pub fn object(&self) -> String {
        match &self.held {
            Held::Id(id) => format!("{id} of {}", self.tenant),
            Held::Destination(destination) => destination.to_string(),
            Held::Tenant => self.tenant.to_string(),
        }
    }
}

/// All holds in force, indexed by tenant for look-ups of any number of claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InForce {
    tenants: BTreeMap<String, TenantHolds>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct TenantHolds {
    all: Option<Serial>,
    ids: BTreeMap<String, Serial>,
    destinations: BTreeMap<String, Serial>,
}

impl TenantHolds {
    fn is_within(&self, others: &Self) -> bool {
        let Self { all, ids, destinations } = others;
        all.is_some()
            || self.all.is_none()
                && self.ids.keys().all(|id| ids.contains_key(id))
                && self.destinations.keys().all(|name| destinations.contains_key(name))
    }

    fn on_id(&self, id: &str) -> Option<Serial> {
        self.ids.get(id).copied().or(self.all)
    }
}

impl InForce {
    /// Indexes the holds in force; lifted holds are ignored.
    pub fn of(holds: impl IntoIterator<Item = Hold>) -> Self {
        let mut active = Self::default();
        for hold in holds.into_iter().filter(|hold| hold.lifted.is_none()) {
            let of_tenant = active.tenants.entry(hold.tenant.to_string()).or_default();
            match &hold.held {
                Held::Id(id) => drop(of_tenant.ids.insert(id.to_string(), hold.id)),
                Held::Destination(name) => drop(of_tenant.destinations.insert(name.to_string(), hold.id)),
                Held::Tenant => of_tenant.all = Some(hold.id),
            }
        }
        active
    }

    /// Whether no hold is in force.
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// Whether the other holds cover every record that these holds cover.
    pub fn is_within(&self, others: &Self) -> bool {
        self.tenants
            .iter()
            .all(|(tenant, held)| others.tenants.get(tenant).is_some_and(|others| held.is_within(others)))
    }

    /// The hold that protects a claim, its message and its response from deletion and erasure, if any. It is
    /// a hold of the sender's tenant on the sent message, or of the destination's tenant on the received one.
    pub fn on(&self, id: &str, tenant: &str, destination: &str) -> Option<Serial> {
        let sender = self.tenants.get(tenant);
        sender.and_then(|sender| sender.on_id(id)).or_else(|| {
            let owner = self.tenants.get(destination.split('/').next()?)?;
            owner.destinations.get(destination).copied().or_else(|| owner.on_id(id))
        })
    }

    /// As [`InForce::on`], by the key of the claim.
    pub fn on_claim(&self, key: &ClaimKey) -> Option<Serial> {
        self.on(key.id.as_str(), key.tenant.as_str(), &key.destination)
    }
}
