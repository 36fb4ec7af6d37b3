//! The changelog and its chain, read beside a running node or without one; nothing is written.

use std::path::Path;

use snavio_model::registry::{LoggedChange, Seal, Skipped};

use super::backup::{BackupError, Beside, open};
use super::writer::sql;
use super::{FILE, fleet, layout, registry, seal};
use crate::StoreError;

/// A folder's changelog.
pub struct Changelog(Beside);

impl Changelog {
    /// Opens it as it is. A store of another version's layout is brought up to date first, by its node.
    pub fn open(folder: &Path) -> Result<Self, BackupError> {
        let store = open(folder)?;
        if !layout::is_current(&store.connection)? {
            let problem = "it has another version's layout; start a node of this version over it first";
            return Err(BackupError::Unfit { file: folder.join(FILE), problem: problem.to_owned() });
        }
        Ok(Self(store))
    }

    /// The registry's version.
    pub fn version(&self) -> Result<i64, StoreError> {
        registry::version(&self.0.connection)
    }

    /// The versions that restores skipped.
    pub fn skipped(&self) -> Result<Vec<Skipped>, StoreError> {
        let notes = fleet::notes(&self.0.connection, Skipped::NOTES).map_err(sql)?;
        Ok(notes.iter().filter_map(|(name, value)| Skipped::of_note(name, value)).collect())
    }

    /// The seals after a number, oldest first.
    pub fn seals(&self, after: i64, limit: usize) -> Result<Vec<Seal>, StoreError> {
        seal::page(&self.0.connection, after, limit)
    }

    /// The changes after a version as they are written, oldest first.
    pub fn logged_since(&self, version: i64, limit: usize) -> Result<Vec<LoggedChange>, StoreError> {
        registry::logged_since(&self.0.connection, version, limit)
    }
}
