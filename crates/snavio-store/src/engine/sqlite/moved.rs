//! The mark in a data folder whose store was moved away: a node over it would take messages that others have taken.

use std::io;
use std::path::{Path, PathBuf};

use super::OpenError;
use crate::files;

/// Says where the store is now.
const MARK: &str = "moved-to";

/// Marks a folder.
pub(crate) fn mark(folder: &Path, to: &str) -> io::Result<()> {
    files::write_whole(&folder.join(MARK), format!("{to}\n").as_bytes())
}

/// Refuses a folder whose store is elsewhere.
pub fn check_not_moved(folder: &Path) -> Result<(), OpenError> {
    let mark: PathBuf = folder.join(MARK);
    match std::fs::read_to_string(&mark) {
        Ok(to) => Err(OpenError::Moved { folder: folder.to_owned(), to: to.trim().to_owned(), mark }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(OpenError::Folder { folder: folder.to_owned(), source }),
    }
}
