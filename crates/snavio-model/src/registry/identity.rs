//! Identities of people and workloads, and grant requests (REG-7 to REG-9).

use serde::{Deserialize, Serialize};

use crate::name::{GrantedName, ServiceName, TenantName};
use crate::time::Timestamp;

/// The permissions of a person (REG-9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Role {
    /// Runs the platform and may do everything, for every tenant.
    Operator,
    /// Manages the entries of a tenant.
    TenantAdmin,
    /// Reads the entries and messages of a tenant.
    TenantViewer,
    /// Reads the entries of a tenant, and repairs the delivery of its messages.
    AccountingOps,
    /// Reads everything in its scope, including the audit log, and changes nothing.
    Auditor,
}

impl Role {
    pub const ALL: [Self; 5] =
        [Self::Operator, Self::TenantAdmin, Self::TenantViewer, Self::AccountingOps, Self::Auditor];

    /// The word for the role.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::TenantAdmin => "tenant-admin",
            Self::TenantViewer => "tenant-viewer",
            Self::AccountingOps => "accounting-ops",
            Self::Auditor => "auditor",
        }
    }

    /// Whether a holder of the role must belong to one tenant.
    pub fn is_of_a_tenant(self) -> bool {
        matches!(self, Self::TenantAdmin | Self::TenantViewer | Self::AccountingOps)
    }
}

/// A token that an operator issued to a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PersonalToken {
    /// The public part of the token.
    pub id: String,
    /// The name of the person in the audit log.
    pub person: String,
    /// The permissions of the person.
    pub role: Role,
    /// The tenant of the role. Operators and platform-wide auditors have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantName>,
    /// A keyed hash of the token, in hex.
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub secret_hash: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// The request of a producer for a grant, waiting for the target's owner (REG-8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrantRequest {
    /// The service that asks for permission.
    pub source: ServiceName,
    /// The target of the grant.
    pub target: ServiceName,
    /// The name of the grant.
    pub name: GrantedName,
    /// The purpose, in the producer's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub purpose: String,
    /// The requesting person. The target's tenant sees the name of the requesting tenant instead.
    pub asked_by: String,
    pub asked_at: Timestamp,
}

impl GrantRequest {
    /// Whether the target belongs to another tenant. The requester must not learn whether such a service
    /// exists, so a request to a missing one waits like any other.
    pub fn is_abroad(&self) -> bool {
        self.source.tenant() != self.target.tenant()
    }
}

/// The location of an issuer's public keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum KeySet {
    /// A file on every node.
    File(String),
    /// A URL that every node can reach.
    Url(String),
}

/// A trusted issuer of workload identities (REG-7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Issuer {
    /// The name of the issuer, as in its tokens (`iss`).
    pub issuer: String,
    /// The audience that its tokens must have (`aud`).
    pub audience: String,
    pub keys: KeySet,
}

/// A workload of a trusted issuer, and the service that it acts for (REG-7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Workload {
    /// The name of the issuer.
    pub issuer: String,
    /// The name of the workload, as in the issuer's tokens (`sub`).
    pub subject: String,
    pub service: ServiceName,
}
