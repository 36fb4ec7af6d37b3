//! Snapshots of the registry in object storage (REG-20 to REG-23). One node writes them for all nodes. A
//! starting node reads the newest snapshot instead of every entry of the store.

mod floor;
mod pack;
mod reader;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use snavio_model::registry::snapshot::{Fault, Manifest, verify};
use snavio_model::signature::ed25519::{SigningKey, VerifyingKey};
use snavio_store::StoreError;
use snavio_store::objects::{Objects, ObjectsError};

pub(crate) use writer::write_snapshots;

/// The platform's keys for snapshots. They may change while nodes run (REG-13).
pub trait SnapshotKeys: Send + Sync {
    /// The key that signs now.
    fn signing(&self) -> SigningKey;

    /// All known keys. A snapshot with a signature of any of them is the platform's.
    fn verifying(&self) -> Vec<VerifyingKey>;
}

/// The snapshots in one object storage.
pub struct Snapshots {
    /// The object storage.
    pub objects: Objects,
    /// The signing keys, read anew for each snapshot.
    pub keys: Arc<dyn SnapshotKeys>,
    /// The environment whose registry the snapshots show.
    pub environment: String,
    /// The interval of snapshots.
    pub interval: Duration,
    /// The time that a snapshot may be read after it was made.
    pub ttl: Duration,
    /// The largest size of a snapshot.
    pub bytes_max: u64,
    /// The file with the highest version that this node has verified.
    pub floor_file: PathBuf,
}

impl Snapshots {
    /// Verifies a published manifest against the platform's keys.
    fn verify(&self, published: &[u8]) -> Result<Manifest, Fault> {
        let verified = self.keys.verifying().into_iter().map(|key| verify(published, &key));
        let mut verified = verified.filter(|manifest| !matches!(manifest, Err(Fault::WrongSignature)));
        verified.next().unwrap_or(Err(Fault::WrongSignature))
    }
}

/// Why a snapshot was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The snapshot is invalid.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The object storage failed.
    #[error(transparent)]
    Objects(ObjectsError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file with the highest verified version cannot be used.
    #[error("{0}; if it is damaged, remove it")]
    Floor(String),
    /// Reading took too long.
    #[error("reading the snapshot took longer than {} s", .0.as_secs())]
    Slow(Duration),
    /// The snapshot would be larger than the limit.
    #[error(
        "the snapshot would have at least {bytes} bytes, and the limit is {bytes_max}: raise snapshot.bytes_max on every node"
    )]
    TooLarge { bytes: u64, bytes_max: u64 },
    /// The snapshot in the storage is ahead of the store.
    #[error(
        "the stored snapshot has version {there}, and the store has version {own}; if this store replaced another one, remove registry/latest.json"
    )]
    Ahead {
        /// The snapshot's version.
        there: i64,
        /// The store's version.
        own: i64,
    },
    /// A background task of this process ended early.
    #[error("a background task ended early; try again")]
    Unfinished,
}

impl Trouble {
    /// The cause in metrics and logs.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Fault(fault) => fault.cause(),
            Self::Objects(ObjectsError::Changed { .. }) => "changed",
            Self::Objects(_) => "unreachable",
            Self::Store(_) => "store",
            Self::Floor(_) => "floor",
            Self::Slow(_) => "slow",
            Self::TooLarge { .. } => "too_large",
            Self::Ahead { .. } => "ahead",
            Self::Unfinished => "unfinished",
        }
    }
}

impl From<ObjectsError> for Trouble {
    fn from(error: ObjectsError) -> Self {
        match error {
            ObjectsError::TooLarge { .. } => Fault::Oversized { what: error.to_string() }.into(),
            error => Self::Objects(error),
        }
    }
}

/// All causes that [`Trouble::cause`] returns.
pub const TROUBLE_CAUSES: [&str; 20] = [
    "ahead",
    "changed",
    "expired",
    "floor",
    "incomplete",
    "malformed",
    "missing",
    "mixed",
    "other_environment",
    "other_history",
    "oversized",
    "rolled_back",
    "slow",
    "store",
    "too_large",
    "truncated",
    "unfinished",
    "unreachable",
    "wrong_digest",
    "wrong_signature",
];

/// Logs that a snapshot was not used, and counts it by its cause (REG-21).
fn report_refused(trouble: &Trouble) {
    let cause = trouble.cause();
    debug_assert!(TROUBLE_CAUSES.contains(&cause), "{cause} is missing in TROUBLE_CAUSES");
    metrics::counter!("snavio_snapshot_load_failures_total", "cause" => cause).increment(1);
    tracing::warn!(cause, error = trouble as &dyn std::error::Error, "a snapshot is refused");
}
