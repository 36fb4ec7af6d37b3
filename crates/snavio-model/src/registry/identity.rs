//! Who people and workloads are, and what they ask for (REG-7 to REG-9).

use serde::{Deserialize, Serialize};

use crate::name::{GrantedName, ServiceName, TenantName};
use crate::time::Timestamp;

/// What a person may do (REG-9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Role {
    /// Runs the platform: everything, for every tenant.
    Operator,
    /// Manages what a tenant owns.
    TenantAdmin,
    /// Sees what a tenant owns.
    TenantViewer,
    /// Sees what a tenant owns, and mends what went wrong with its messages.
    AccountingOps,
    /// Sees everything of its scope, the record of who did what included, and changes nothing.
    Auditor,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 5] =
        [Self::Operator, Self::TenantAdmin, Self::TenantViewer, Self::AccountingOps, Self::Auditor];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::TenantAdmin => "tenant-admin",
            Self::TenantViewer => "tenant-viewer",
            Self::AccountingOps => "accounting-ops",
            Self::Auditor => "auditor",
        }
    }

    /// Whether it is held for one tenant.
    pub fn is_of_a_tenant(self) -> bool {
        matches!(self, Self::TenantAdmin | Self::TenantViewer | Self::AccountingOps)
    }
}

/// A token that an operator gave to a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PersonalToken {
    /// Its public part.
    pub id: String,
    /// Whose it is: the name under which deeds go on the record.
    pub person: String,
    /// What the person may do,
    pub role: Role,
    /// and for which tenant; an operator and an auditor may be there for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantName>,
    /// A keyed hash of the token, in hex.
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub secret_hash: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// A producer's wish for a grant, which waits for the target's owner (REG-8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrantRequest {
    /// Who would like to send.
    pub source: ServiceName,
    /// To whom.
    pub target: ServiceName,
    /// Which command.
    pub name: GrantedName,
    /// For what, in the producer's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub purpose: String,
    /// Who asked; another tenant is shown which tenant it was.
    pub asked_by: String,
    /// When.
    pub asked_at: Timestamp,
}

impl GrantRequest {
    /// Whether it is for a service of another tenant. Whether there is one is not the asker's to learn: a request for
    /// one that is not there waits like any other.
    pub fn is_abroad(&self) -> bool {
        self.source.tenant() != self.target.tenant()
    }
}

/// Where an issuer's public keys are found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum KeySet {
    /// In a file on every node.
    File(String),
    /// Under a URL that every node can reach.
    Url(String),
}

/// A trusted issuer of workload identities (REG-7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Issuer {
    /// Its name, as its tokens say it (`iss`).
    pub issuer: String,
    /// Whom its tokens must be meant for (`aud`).
    pub audience: String,
    /// Its public keys.
    pub keys: KeySet,
}

/// A workload of a trusted issuer, and the service that it speaks for (REG-7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Workload {
    /// The issuer's name.
    pub issuer: String,
    /// The workload's name, as the issuer's tokens say it (`sub`).
    pub subject: String,
    /// The service.
    pub service: ServiceName,
}
