//! Snapshots of the registry in object storage (REG-20 to REG-23): one node writes them for all, and a node that
//! starts reads the newest instead of every entry of the store.

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

/// Who signs snapshots: the platform, whose key may be another one while nodes run (REG-13).
pub trait SnapshotKeys: Send + Sync {
    /// The key in force.
    fn signing(&self) -> SigningKey;

    /// All that are known here: what any of them signed is the platform's.
    fn verifying(&self) -> Vec<VerifyingKey>;
}

/// Snapshots in one place.
pub struct Snapshots {
    /// Where they are.
    pub objects: Objects,
    /// What they are signed with, asked at each one.
    pub keys: Arc<dyn SnapshotKeys>,
    /// Whose registry it is that they show.
    pub environment: String,
    /// How often one is written.
    pub interval: Duration,
    /// How long one may be read after it was made.
    pub ttl: Duration,
    /// Bytes of one at most.
    pub bytes_max: u64,
    /// Where this node keeps the highest version that it has verified.
    pub floor_file: PathBuf,
}

impl Snapshots {
    /// What a published manifest says, if this platform says it, by whichever of its keys.
    fn verify(&self, published: &[u8]) -> Result<Manifest, Fault> {
        let verified = self.keys.verifying().into_iter().map(|key| verify(published, &key));
        let mut verified = verified.filter(|it| !matches!(it, Err(Fault::WrongSignature)));
        verified.next().unwrap_or(Err(Fault::WrongSignature))
    }
}

/// Why a snapshot was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// What is there is not good.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The storage did not do what it was asked.
    #[error(transparent)]
    Objects(ObjectsError),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file of the highest version cannot be used.
    #[error("{0}; if it is damaged, remove it")]
    Floor(String),
    /// It took too long.
    #[error("reading it took longer than {} s", .0.as_secs())]
    Slow(Duration),
    /// It would be larger than it may be.
    #[error(
        "it would have {bytes} bytes or more, and may have {bytes_max}: raise snapshot.bytes_max on every node"
    )]
    TooLarge {
        /// How many it has.
        bytes: u64,
        /// How many it may have.
        bytes_max: u64,
    },
    /// What is there is ahead of the store.
    #[error(
        "the snapshot there is of version {there}, and the store is at {own}; if this store took another's place, remove registry/latest.json"
    )]
    Ahead {
        /// The version there.
        there: i64,
        /// The store's.
        own: i64,
    },
    /// A task of this program ended before its time.
    #[error("the work on it was not finished")]
    Unfinished,
}

impl Trouble {
    /// The word for it in metrics and logs.
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

/// All causes, as [`Trouble::cause`] gives them.
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

/// Says that a snapshot was not used, and counts it by its cause (REG-21).
fn refuse(trouble: &Trouble) {
    let cause = trouble.cause();
    debug_assert!(TROUBLE_CAUSES.contains(&cause), "{cause} is missing in TROUBLE_CAUSES");
    metrics::counter!("snavio_snapshot_load_failures_total", "cause" => cause).increment(1);
    tracing::warn!(cause, error = trouble as &dyn std::error::Error, "a snapshot is refused");
}
