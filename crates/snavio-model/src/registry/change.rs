//! Changes of the registry: append-only, each with who, when, why, before and after (REG-5).

use serde::{Deserialize, Serialize};

use super::entry::Entry;
use super::key::EntryKey;
use crate::time::Timestamp;

/// One change as the changelog keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The registry's version once it was made.
    pub version: i64,
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub who: String,
    /// For what reason.
    pub why: String,
    /// Which entry.
    pub key: EntryKey,
    /// What it was; nothing if it was added.
    pub before: Option<Entry>,
    /// What it became; nothing if it was removed.
    pub after: Option<Entry>,
}

/// What somebody wants to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// This entry shall be as given.
    Put(Entry),
    /// This entry shall not be.
    Remove(EntryKey),
}

impl Wish {
    /// The entry that it is about.
    pub fn key(&self) -> EntryKey {
        match self {
            Self::Put(entry) => entry.key(),
            Self::Remove(key) => key.clone(),
        }
    }
}

/// Who makes a change, when and why.
#[derive(Debug, Clone)]
pub struct Author {
    /// The person or principal.
    pub who: String,
    /// Their reason.
    pub why: String,
    /// The time of the change.
    pub at: Timestamp,
}
