//! Legal holds: what is under one is neither deleted nor erased until it is lifted (CLM-18).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::claim::ClaimKey;
use crate::id::{MessageId, Serial};
use crate::name::TenantName;
use crate::time::Timestamp;

/// What a hold is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// Everything under one id that a tenant sent, or was sent by whomever.
    Id(MessageId),
    /// Everything that went to one destination of a tenant, whoever sent it.
    Destination(Arc<str>),
    /// Everything that a tenant sent, or was sent.
    Tenant,
}

/// A hold: who keeps what, why, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Its number.
    pub id: Serial,
    /// Whose things it is on: the tenant whose id, or destination, it is.
    pub tenant: TenantName,
    /// On what of it.
    pub held: Held,
    /// Who set it.
    pub who: String,
    /// Why.
    pub why: String,
    /// When.
    pub at: Timestamp,
    /// Who lifted it and when, if somebody did.
    pub lifted: Option<Lifted>,
}

/// That a hold is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifted {
    /// Who lifted it.
    pub who: String,
    /// Why.
    pub why: String,
    /// When.
    pub at: Timestamp,
}

impl Hold {
    /// The words for what it is on, in the record.
    pub fn object(&self) -> String {
        match &self.held {
            Held::Id(id) => format!("{id} of {}", self.tenant),
            Held::Destination(destination) => destination.to_string(),
            Held::Tenant => self.tenant.to_string(),
        }
    }
}

/// All holds that are in force, to be asked about any number of claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InForce {
    tenants: BTreeMap<String, OfTenant>,
}

/// The holds of one tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct OfTenant {
    all: Option<Serial>,
    ids: BTreeMap<String, Serial>,
    destinations: BTreeMap<String, Serial>,
}

impl OfTenant {
    fn is_within(&self, others: &Self) -> bool {
        let Self { all, ids, destinations } = others;
        all.is_some()
            || self.all.is_none()
                && self.ids.keys().all(|id| ids.contains_key(id))
                && self.destinations.keys().all(|name| destinations.contains_key(name))
    }
}

impl InForce {
    /// Of some holds, those that are in force.
    pub fn of(holds: impl IntoIterator<Item = Hold>) -> Self {
        let mut it = Self::default();
        for hold in holds.into_iter().filter(|hold| hold.lifted.is_none()) {
            let of_tenant = it.tenants.entry(hold.tenant.to_string()).or_default();
            match &hold.held {
                Held::Id(id) => drop(of_tenant.ids.insert(id.to_string(), hold.id)),
                Held::Destination(name) => drop(of_tenant.destinations.insert(name.to_string(), hold.id)),
                Held::Tenant => of_tenant.all = Some(hold.id),
            }
        }
        it
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// Whether whatever is held by these is held by others too.
    pub fn is_within(&self, others: &Self) -> bool {
        self.tenants
            .iter()
            .all(|(tenant, held)| others.tenants.get(tenant).is_some_and(|it| held.is_within(it)))
    }

    /// The hold that keeps a claim, with its message and its answer, from being deleted and erased: one on what the
    /// sender's tenant sent, or on what the destination's was sent.
    pub fn on(&self, id: &str, tenant: &str, destination: &str) -> Option<Serial> {
        let of = |tenant: &str| self.tenants.get(tenant);
        let on_id = |it: &OfTenant| it.ids.get(id).copied().or(it.all);
        let of_owner = || {
            let owner = of(destination.split('/').next()?)?;
            owner.destinations.get(destination).copied().or_else(|| on_id(owner))
        };
        of(tenant).and_then(on_id).or_else(of_owner)
    }

    /// The hold on a claim, if there is one.
    pub fn on_claim(&self, key: &ClaimKey) -> Option<Serial> {
        self.on(key.id.as_str(), key.tenant.as_str(), &key.destination)
    }
}
