//! A snapshot: the registry at one version, as objects in a storage that others may write to, and a signed manifest
//! that names them by digest (REG-20). Everything that is read is judged first; what is wrong has one name each (REG-21).

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

/// Why a snapshot is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The manifest was not signed by this platform, or was changed since.
    WrongSignature,
    /// An object is not the one that the manifest names.
    WrongDigest {
        /// Which.
        key: String,
    },
    /// It is of an older version than one that was seen before.
    RolledBack {
        /// Its version.
        version: i64,
        /// The version that was seen.
        floor: i64,
    },
    /// It belongs elsewhere.
    OtherEnvironment {
        /// The environment that it names.
        named: String,
    },
    /// It is too old.
    Expired {
        /// When it was made.
        generated_at: Timestamp,
    },
    /// Something in it is larger than it may be.
    Oversized {
        /// What.
        what: String,
    },
    /// It does not read as a snapshot.
    Malformed {
        /// What is wrong.
        what: String,
    },
    /// An object is of another version than the manifest.
    Mixed {
        /// Which.
        key: String,
    },
    /// An object is shorter than the manifest says.
    Truncated {
        /// Which.
        key: String,
    },
    /// An object is not there.
    Missing {
        /// Which.
        key: String,
    },
    /// Entries of these tenants were left out of it.
    Incomplete {
        /// Whose.
        tenants: Vec<String>,
    },
    /// The store never was in the state that it shows.
    OtherHistory {
        /// Its version.
        version: i64,
    },
}

impl Fault {
    /// The word for it in metrics and logs.
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
            Self::WrongSignature => f.write_str("its signature is not this platform's"),
            Self::WrongDigest { key } => write!(f, "{key} is not the object that the manifest names"),
            Self::RolledBack { version, floor } => {
                write!(f, "it is of version {version}, and version {floor} was seen before")
            }
            Self::OtherEnvironment { named } => write!(f, "it is of the environment {named:?}"),
            Self::Expired { generated_at } => write!(f, "it was made at {generated_at}, too long ago"),
            Self::Oversized { what } => write!(f, "{what}"),
            Self::Malformed { what } => write!(f, "it does not read as a snapshot: {what}"),
            Self::Mixed { key } => write!(f, "{key} is of another version than the manifest"),
            Self::Truncated { key } => write!(f, "{key} is shorter than the manifest says"),
            Self::Missing { key } => write!(f, "{key} is not there"),
            Self::Incomplete { tenants } => {
                write!(f, "entries of {} were left out of it", tenants.join(", "))
            }
            Self::OtherHistory { version } => {
                write!(f, "the store never was at the version {version} that it shows")
            }
        }
    }
}

impl std::error::Error for Fault {}

/// What tells a change from any other of its version: a store that was restored to an earlier state may give a
/// version twice.
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
