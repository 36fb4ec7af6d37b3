//! Changes of the registry. The changelog is append-only and records author, time, note, and the entry before
//! and after (REG-5).

use serde::{Deserialize, Serialize};

use super::entry::Entry;
use super::key::EntryKey;
use crate::time::Timestamp;

/// One change in the changelog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The version of the registry after the change.
    pub version: i64,
    pub at: Timestamp,
    /// The author.
    pub who: String,
    /// The note of the author.
    pub why: String,
    pub key: EntryKey,
    /// The entry before the change; `None` if it was added.
    pub before: Option<Entry>,
    /// The entry after the change; `None` if it was removed.
    pub after: Option<Entry>,
}

/// A requested change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// Add the entry, or replace the existing one.
    Put(Entry),
    /// Remove the entry.
    Remove(EntryKey),
}

impl Wish {
    /// The key of the entry.
    pub fn key(&self) -> EntryKey {
        match self {
            Self::Put(entry) => entry.key(),
            Self::Remove(key) => key.clone(),
        }
    }
}

/// The author of a change, with time and note.
#[derive(Debug, Clone)]
pub struct Author {
    /// The person or principal.
    pub who: String,
    /// The note.
    pub why: String,
    pub at: Timestamp,
}
