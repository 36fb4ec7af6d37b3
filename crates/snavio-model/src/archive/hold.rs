//! Legal holds: what is under one is neither deleted nor erased until it is lifted (CLM-18).

use std::sync::Arc;

use crate::claim::ClaimKey;
use crate::id::{MessageId, Serial};
use crate::name::TenantName;
use crate::time::Timestamp;

/// What a hold is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// Everything under one id of a tenant.
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
    /// Whether it keeps a claim, with its message and its answer, from being deleted and erased.
    pub fn covers(&self, key: &ClaimKey) -> bool {
        let is_owner = key.destination.split('/').next() == Some(self.tenant.as_str());
        self.lifted.is_none()
            && match &self.held {
                Held::Id(id) => *id == key.id && self.tenant == key.tenant,
                Held::Destination(destination) => *destination == key.destination,
                Held::Tenant => self.tenant == key.tenant || is_owner,
            }
    }

    /// The words for what it is on, in the record.
    pub fn object(&self) -> String {
        match &self.held {
            Held::Id(id) => format!("{id} of {}", self.tenant),
            Held::Destination(destination) => destination.to_string(),
            Held::Tenant => self.tenant.to_string(),
        }
    }
}
