//! The data folder before SQLite opens anything in it: who has it, whether a store may be made in it, and whether its log is
//! whole. SQLite's recovery would start a damaged log over.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::FILE;
use super::position::{self, LogDamage, POSITION_FILE, Position};
use super::wal::{self, Scan};
use crate::StoreError;
use crate::files::{self, beside};

pub(super) const LOCK_FILE: &str = "snavio.lock";
/// Where a recovery keeps what was there before: folders beside the store.
pub(super) const RECOVERY_PREFIX: &str = "recovery-";

/// Why a store did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the folder.
    #[error("{0} is in use by another process; stop it, or choose another data folder")]
    InUse(PathBuf),
    /// A new store would overwrite what is left of one.
    #[error(
        "{file} is missing or empty, and {remains} beside it may be all that is left of a store: put {file} back, or restore a backup into another folder (snavio restore), or move what is left away to begin a new store"
    )]
    Remains {
        /// The database file.
        file: PathBuf,
        /// The files and folders found.
        remains: String,
    },
    /// Acknowledged commits are missing.
    #[error(
        "{log} is {damage}; nothing was changed: run snavio recover --data {folder}, which copies all files first"
    )]
    Log {
        /// The folder.
        folder: PathBuf,
        /// The log.
        log: PathBuf,
        /// Its damage.
        damage: LogDamage,
    },
    /// The store is elsewhere.
    #[error(
        "the store in {folder} was moved to {to}: what is sent there would be taken here a second time; delete {mark} to use it all the same"
    )]
    Moved {
        /// The folder.
        folder: PathBuf,
        /// The database that has it.
        to: String,
        /// The file that says so.
        mark: PathBuf,
    },
    /// The folder cannot be used.
    #[error("cannot use data folder {folder}")]
    Folder {
        /// Which one.
        folder: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file was written by a newer version, or a migration failed.
    #[error("cannot bring {0} to this version's layout")]
    Migration(PathBuf, #[source] super::layout::MigrateError),
    /// SQLite says no.
    #[error("cannot open {0}")]
    Database(PathBuf, #[source] rusqlite::Error),
    /// Another program reads an old state of the store.
    #[error(
        "another program reads {0}, so its log cannot be moved into it; nothing is lost: close that program and start again"
    )]
    LogInUse(PathBuf),
    /// What waits in it cannot be read.
    #[error("cannot read what waits in {0}")]
    Read(PathBuf, #[source] StoreError),
    /// The epochs are used up.
    #[error("the store has used up its epochs")]
    Epochs,
}

/// Locks on a folder, for as long as this lives. It must outlive all connections to the database: closing a descriptor of
/// its file drops the locks that SQLite has on it in this process.
pub(super) struct FolderLock(Vec<File>);

impl FolderLock {
    /// For whoever writes. The lock file is made where it is missing, the database file is not.
    pub(super) fn exclusive(folder: &Path) -> Result<Self, OpenError> {
        let cannot = |source| OpenError::Folder { folder: folder.to_owned(), source };
        let lock_file = files::open_file(&folder.join(LOCK_FILE)).map_err(cannot)?;
        take(folder, lock_file.try_lock())?;
        let mut lock = Self(vec![lock_file]);
        lock.add_database(folder)?;
        Ok(lock)
    }

    /// Makes an empty database file where there is none, and locks it. SQLite takes it for a new database, and gives its log
    /// the same mode.
    pub(super) fn make_database(&mut self, folder: &Path) -> Result<(), OpenError> {
        let made = files::open_file(&folder.join(FILE));
        // Closed again before SQLite opens it.
        drop(made.map_err(|source| OpenError::Folder { folder: folder.to_owned(), source })?);
        self.add_database(folder)
    }

    /// Locks the database file too, if it is there: a lock file can be deleted under a node.
    fn add_database(&mut self, folder: &Path) -> Result<(), OpenError> {
        let is_locked = self.0.len() > 1;
        if !is_locked && let Some(database) = existing(folder, FILE)? {
            take(folder, database.try_lock())?;
            self.0.push(database);
        }
        Ok(())
    }

    /// Lets others have the folder, and keeps the descriptors.
    pub(super) fn release(&self) -> io::Result<()> {
        self.0.iter().try_for_each(File::unlock)
    }

    /// For whoever only reads; nothing where a node has the folder. Leaves the folder as it is.
    fn shared(folder: &Path) -> Result<Option<Self>, OpenError> {
        let mut lock = Self(Vec::new());
        // In this order: a descriptor of the database of a store that this process has open must not be closed.
        for name in [LOCK_FILE, FILE] {
            let Some(file) = existing(folder, name)? else { continue };
            match take(folder, file.try_lock_shared()) {
                Ok(()) => lock.0.push(file),
                Err(OpenError::InUse(_)) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(lock))
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // A process that was forked a moment ago has the descriptors too, and would keep the locks until it has gone on.
        let _ = self.release();
    }
}

fn existing(folder: &Path, name: &str) -> Result<Option<File>, OpenError> {
    match File::open(folder.join(name)) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(OpenError::Folder { folder: folder.to_owned(), source }),
    }
}

fn take(folder: &Path, taken: Result<(), TryLockError>) -> Result<(), OpenError> {
    taken.map_err(|error| match error {
        TryLockError::WouldBlock => OpenError::InUse(folder.to_owned()),
        TryLockError::Error(source) => OpenError::Folder { folder: folder.to_owned(), source },
    })
}

/// Refuses a folder whose database file is missing or empty beside something that a store left there: a new one would
/// overwrite it. Files of keys and settings do not count, nor what is left of a first start that was interrupted.
pub fn check_remains(folder: &Path) -> Result<(), OpenError> {
    let cannot = |source| OpenError::Folder { folder: folder.to_owned(), source };
    let length = |name: &str| std::fs::metadata(folder.join(name)).map(|file| file.len()).ok();
    if length(FILE).is_some_and(|bytes| bytes > 0) {
        return Ok(());
    }
    let is_filled = |name: &String| length(name).is_some_and(|bytes| bytes > 0);
    let known = [format!("{FILE}-wal"), format!("{FILE}.restoring"), POSITION_FILE.to_owned()];
    let mut remains: Vec<String> = known.into_iter().filter(is_filled).collect();
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(cannot)?,
    };
    for entry in entries {
        let entry = entry.map_err(cannot)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_of_a_store = name.starts_with(RECOVERY_PREFIX) || BESIDE_A_STORE.contains(&name.as_str());
        // An operator may have prepared a folder for an archive.
        let is_empty = std::fs::read_dir(entry.path()).is_ok_and(|mut within| within.next().is_none());
        if is_of_a_store && !is_empty {
            remains.push(name);
        }
    }
    // Without a database file, no first start can have left these.
    let journals = ["-shm", "-journal"].map(|ending| format!("{FILE}{ending}"));
    if length(FILE).is_none() {
        remains.extend(journals.into_iter().filter(|name| length(name).is_some()));
    }
    if remains.is_empty() {
        return Ok(());
    }
    remains.sort();
    Err(OpenError::Remains { file: folder.join(FILE), remains: remains.join(", ") })
}

/// What only a node with a store makes here: folders of an archive.
const BESIDE_A_STORE: [&str; 2] = ["claims", "archive"];

/// Where a folder's log is.
pub(super) fn wal_of(folder: &Path) -> PathBuf {
    beside(&folder.join(FILE), "-wal")
}

/// Reads a folder's log, and what is known of it.
pub(super) fn scan(folder: &Path) -> Result<(Scan, Option<Position>), OpenError> {
    let cannot = |source| OpenError::Folder { folder: folder.to_owned(), source };
    let scan = match File::open(wal_of(folder)) {
        Ok(mut log) => wal::scan(&mut log).map_err(cannot)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Scan::default(),
        Err(error) => return Err(cannot(error)),
    };
    Ok((scan, position::read(folder).map_err(cannot)?))
}

/// Refuses a log that lacks acknowledged commits. No process may write to it meanwhile.
pub(super) fn check_log(folder: &Path) -> Result<Scan, OpenError> {
    let (scan, position) = scan(folder)?;
    let Some(damage) = position::judge(&scan, position) else { return Ok(scan) };
    if matches!(position, Some(Position::Running { is_flushed: false, .. })) {
        // Nothing was promised of these commits (PIP-12).
        tracing::warn!(%damage, "the write-ahead log lacks commits that were not flushed");
        return Ok(scan);
    }
    Err(OpenError::Log { folder: folder.to_owned(), log: wal_of(folder), damage })
}

/// Refuses what a node would refuse, unless one has the folder. The lock keeps nodes away.
pub(super) fn check_to_read(folder: &Path) -> Result<Option<FolderLock>, OpenError> {
    let lock = FolderLock::shared(folder)?;
    if lock.is_some() {
        check_log(folder)?;
    }
    Ok(lock)
}
