//! Snapshots: the registry at one version, as objects in a storage that others may write to, and a signed
//! manifest with their digests (REG-20). A node checks everything that it reads, and each kind of fault has
//! its own name (REG-21).

mod entries;
mod manifest;
mod object;

use std::fmt;

use sha2::{Digest as _, Sha256};

pub use entries::{Scope, read_entries, write_entry};
pub use manifest::{Manifest, Object, Standard, latest_key, publish, verify};
pub use object::{OBJECT_HEADER_BYTES_MAX, header, judge_object, object_key, version_of_key};

use crate::registry::Change;
use crate::time::Timestamp;

/// The reason that a node does not use a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Another platform signed the manifest, or it was changed afterwards.
    WrongSignature,
    /// The digest of an object differs from the manifest.
    WrongDigest { key: String },
    /// The version is older than the highest version that this node has used.
    RolledBack {
        version: i64,
        /// The highest version that this node has used.
        floor: i64,
    },
    /// The snapshot belongs to another environment.
    OtherEnvironment {
        /// The environment of the snapshot.
        named: String,
    },
    /// The snapshot is too old.
    Expired { generated_at: Timestamp },
    /// A part of the snapshot exceeds its limit.
    Oversized { what: String },
    /// The snapshot cannot be parsed.
    Malformed { what: String },
    /// An object has another version than the manifest.
    Mixed { key: String },
    /// An object is shorter than the manifest states.
    Truncated { key: String },
    /// An object does not exist.
    Missing { key: String },
    /// The snapshot omits the entries of these tenants.
    Incomplete { tenants: Vec<String> },
    /// The store was never in the state of the snapshot.
    OtherHistory { version: i64 },
}

impl Fault {
    /// The value of `cause` in metrics and logs.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::WrongSignature => "wrong_signature",
            Self::WrongDigest { .. } => "wrong_digest",
            Self::RolledBack { .. } => "rolled_back",
            Self::OtherEnvironment { .. } => "other_environment",
            Self::Expired { .. } => "expired",
            Self::Oversized { .. } => "oversized",
            Self::Malformed { .. } => "malformed",
            Self::Mixed { .. } => "mixed",
            Self::Truncated { .. } => "truncated",
            Self::Missing { .. } => "missing",
            Self::Incomplete { .. } => "incomplete",
            Self::OtherHistory { .. } => "other_history",
        }
    }

    fn malformed(what: impl Into<String>) -> Self {
        Self::Malformed { what: what.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongSignature => f.write_str("its signature is not from this platform"),
            Self::WrongDigest { key } => write!(f, "the digest of {key} differs from the manifest"),
            Self::RolledBack { version, floor } => {
                write!(f, "its version {version} is older than version {floor}, which was used before")
            }
            Self::OtherEnvironment { named } => write!(f, "it belongs to the environment {named:?}"),
            Self::Expired { generated_at } => write!(f, "it has expired: it was made at {generated_at}"),
            Self::Oversized { what } => write!(f, "{what}"),
            Self::Malformed { what } => write!(f, "it is malformed: {what}"),
            Self::Mixed { key } => write!(f, "{key} has another version than the manifest"),
            Self::Truncated { key } => write!(f, "{key} is shorter than the manifest states"),
            Self::Missing { key } => write!(f, "{key} does not exist"),
            Self::Incomplete { tenants } => {
                write!(f, "it omits the entries of {}", tenants.join(", "))
            }
            Self::OtherHistory { version } => {
                write!(f, "the store never had the state of version {version} that it contains")
            }
        }
    }
}

impl std::error::Error for Fault {}

/// A digest that distinguishes a change from any other change with its version. A store that was restored to
/// an earlier state may assign a version twice.
pub fn trail(change: &Change) -> String {
    let (version, at) = (change.version.to_string(), change.at.0.to_string());
    let key = change.key.to_string();
    let mut hasher = Sha256::new();
    for part in [&version, &at, &change.who, &change.why, &key] {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hex::encode(&hasher.finalize()[..16])
}

#[cfg(test)]
mod tests;
