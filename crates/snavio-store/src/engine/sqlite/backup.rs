//! Backup while running, and restore. They work on the files, beside a running node or
//! without one: a backup is one read transaction, which at worst keeps the write-ahead log from starting over
//! while it lasts.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use snavio_model::id::Serial;
use snavio_model::registry::Skipped;
use snavio_model::time::Timestamp;

use super::folder::{self, FolderLock};
use super::position::{self, PositionFile};
use super::{
    FILE, OpenError, READERS_WAIT, audit, check_not_moved, fleet, integrity, keep_log, known, layout, meta,
    newest_of,
};
use crate::files::{self, beside, flush_folder, folder_of};
use crate::{ARCHIVE_UNCONFIRMED, Act, AuditEntry, StoreError};

/// Copies the store as it is now into a new file, and says how large that is. The name appears only once all of
/// the copy is on stable storage.
pub fn backup(folder: &Path, to: &Path) -> Result<u64, BackupError> {
    if to.exists() {
        return Err(BackupError::Exists(to.to_owned()));
    }
    check_not_moved(folder).map_err(BackupError::Moved)?;
    let store = open(folder)?;
    check_room(folder, to)?;
    // With the process id: two backups to one name must not take each other's halves for their own.
    let partial = beside(to, &format!(".{}.partial", std::process::id()));
    let written =
        copy_into(&store.connection, &partial).and_then(|bytes| publish(&partial, to).map(|()| bytes));
    if written.is_err() {
        // A copy that did not get its name must not be taken for a backup. It may not exist at all.
        let _ = std::fs::remove_file(&partial);
    }
    written
}

/// Gives a file its name, on stable storage, unless somebody else took that name meanwhile.
fn publish(partial: &Path, to: &Path) -> Result<(), BackupError> {
    let named = match renameat_with(CWD, partial, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system can refuse to replace; those have links, which never do.
        Err(Errno::INVAL | Errno::NOSYS) => {
            std::fs::hard_link(partial, to).and_then(|()| std::fs::remove_file(partial))
        }
        renamed => renamed.map_err(Into::into),
    };
    named.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => BackupError::Exists(to.to_owned()),
        _ => cannot("write", to)(error),
    })?;
    let folder = folder_of(to);
    flush_folder(folder).map_err(cannot("flush", folder))
}

fn copy_into(connection: &Connection, file: &Path) -> Result<u64, BackupError> {
    let text = file.to_str().ok_or_else(|| BackupError::Unfit {
        file: file.to_owned(),
        problem: "its path is not text".to_owned(),
    })?;
    let copy = files::make_file(file).map_err(cannot("write", file))?;
    connection.execute("VACUUM INTO ?1", [text])?;
    copy.sync_all().map_err(cannot("flush", file))?;
    Ok(copy.metadata().map_err(cannot("read", file))?.len())
}

/// What SQLite may have left beside a database file: committed pages that are not in it, or its way back.
fn sidecars(file: &Path) -> impl Iterator<Item = PathBuf> {
    ["-wal", "-shm", "-journal"].into_iter().map(|ending| beside(file, ending))
}

/// A connection of a process beside the node, or without one. Closing it leaves the log as it is.
pub(super) struct Beside {
    pub(super) connection: Connection,
    /// Let go of, but not closed: see [`FolderLock`].
    _lock: Option<FolderLock>,
}

/// Opens the store for reading. A damaged one is refused before SQLite sees it, and nothing is changed.
pub(super) fn open(folder: &Path) -> Result<Beside, BackupError> {
    let lock = folder::check_to_read(folder).map_err(BackupError::Folder)?;
    let connection = connect(folder)?;
    // Reads the log: from here on SQLite's own locks suffice, and a node may start.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    if let Some(lock) = &lock {
        lock.release().map_err(cannot("unlock", folder))?;
    }
    Ok(Beside { connection, _lock: lock })
}

/// A store that this process has for itself, to change it.
pub(super) struct Exclusive {
    pub(super) connection: Connection,
    position: PositionFile,
    file: PathBuf,
    _lock: FolderLock,
}

impl Exclusive {
    pub(super) fn open(folder: &Path) -> Result<Self, BackupError> {
        check_is_there(folder)?;
        let lock = FolderLock::exclusive(folder).map_err(BackupError::Folder)?;
        folder::check_log(folder).map_err(BackupError::Folder)?;
        let store = Self::over(folder, lock)?;
        store.position.expect_new_log().map_err(cannot("write", folder))?;
        Ok(store)
    }

    /// Over a log that is known to be whole, or is given up.
    pub(super) fn over(folder: &Path, lock: FolderLock) -> Result<Self, BackupError> {
        let connection = connect(folder)?;
        let position = PositionFile::open(folder, true).map_err(cannot("write", folder))?;
        Ok(Self { connection, position, file: folder.join(FILE), _lock: lock })
    }

    /// Leaves all in the database file, and nothing in the log.
    pub(super) fn close(self) -> Result<(), BackupError> {
        let file = Path::new(position::POSITION_FILE);
        if !self.position.start_log_over(&self.connection)?.map_err(cannot("write", file))? {
            return Err(BackupError::LogInUse(self.file));
        }
        Ok(keep_log(&self.connection, false)?)
    }
}

/// Refuses a folder without a database, before anything is made in it.
pub(super) fn check_is_there(folder: &Path) -> Result<(), BackupError> {
    folder::check_remains(folder).map_err(BackupError::Folder)?;
    let file = folder.join(FILE);
    match file.exists() {
        true => Ok(()),
        false => Err(BackupError::Unfit { file, problem: "there is no store".to_owned() }),
    }
}

fn connect(folder: &Path) -> Result<Connection, BackupError> {
    check_is_there(folder)?;
    let mut connection = Connection::open_with_flags(folder.join(FILE), OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    super::configure(&mut connection)?;
    connection.busy_timeout(READERS_WAIT)?;
    // Only a node ends its log. A node may start, and be killed, while this connection is open.
    keep_log(&connection, true)?;
    Ok(connection)
}

fn check_room(folder: &Path, to: &Path) -> Result<(), BackupError> {
    let needed: u64 = [FILE.to_owned(), format!("{FILE}-wal")]
        .iter()
        .map(|name| std::fs::metadata(folder.join(name)).map_or(0, |it| it.len()))
        .sum();
    let free = files::free_bytes(folder_of(to)).map_err(cannot("write", to))?;
    if free < needed {
        return Err(BackupError::NoRoom { needed, free });
    }
    Ok(())
}

/// What a restore did, and what it cannot have done.
#[derive(Debug, Clone)]
pub struct Restored {
    /// The newest commit that the backup contains.
    pub newest_at: Timestamp,
    /// The epoch from which the store goes on.
    pub epoch: i64,
    /// The registry version from which the store goes on.
    pub registry_version: i64,
    /// Records in it that are damaged: the store goes on without them.
    pub damaged: Vec<String>,
}

/// Why a backup was not made, checked or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is a file already.
    #[error("{0} exists already; move it away first, nothing is overwritten")]
    Exists(PathBuf),
    /// A store's log without its store: restoring beside it would mix the two.
    #[error("{0} is there without its store; it may hold what was acknowledged: move it away first")]
    LeftOver(PathBuf),
    /// The folder is in use, or cannot be used.
    #[error("cannot have the data folder for itself")]
    Folder(#[source] OpenError),
    /// The store is elsewhere, and so is what must be copied.
    #[error("there is nothing to back up")]
    Moved(#[source] OpenError),
    /// The backup is not a store, or is damaged.
    #[error("{file} cannot be used: {problem}")]
    Unfit {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The disk is too full for a copy.
    #[error("a copy needs {needed} bytes, and only {free} are free")]
    NoRoom {
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// Another program reads an old state of the store.
    #[error(
        "another program reads {0}, so its log cannot be moved into it; the change is written, but the store may be refused until that program is closed and the command repeated"
    )]
    LogInUse(PathBuf),
    /// A file cannot be read, written or flushed.
    #[error("cannot {what} {file}")]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// SQLite says no.
    #[error("cannot read a store")]
    Database(#[from] rusqlite::Error),
    /// So does the store.
    #[error("cannot read a store's records")]
    Store(#[from] StoreError),
}

pub(super) fn cannot(what: &'static str, file: &Path) -> impl FnOnce(std::io::Error) -> BackupError {
    move |source| BackupError::File { what, file: file.to_owned(), source }
}

/// A restored registry goes on so far above its version: more than anybody changes between a backup and its restore.
const VERSIONS_SKIPPED: i64 = 1_000_000;

/// Restores a backup into a data folder without a store. Epoch and registry version are raised past anything
/// that was given out after the backup, so that no number means two things: the epoch by one per second, the version by
/// a million. Unless it takes the archive over, it leaves that alone: the store it is a copy of may still be in use, and
/// each would delete what only the other points to.
pub fn restore(
    backup: &Path,
    folder: &Path,
    takes_over_archive: bool,
    now: Timestamp,
) -> Result<Restored, BackupError> {
    files::make_folder(folder).map_err(cannot("make", folder))?;
    let file = folder.join(FILE);
    let _lock = FolderLock::exclusive(folder).map_err(BackupError::Folder)?;
    if file.exists() {
        return Err(BackupError::Exists(file));
    }
    if let Some(left) = sidecars(&file).find(|it| it.exists()) {
        return Err(BackupError::LeftOver(left));
    }
    let partial = beside(&file, ".restoring");
    // What a restore left that was killed: its log would be played into this copy.
    remove(&partial).map_err(cannot("remove", &partial))?;
    let restored = copy_whole(backup, &partial).and_then(|()| {
        let restored = raise(&partial, backup, takes_over_archive, now)?;
        std::fs::File::open(&partial).and_then(|it| it.sync_all()).map_err(cannot("flush", &partial))?;
        // Of the store that was here before.
        files::write_whole(&folder.join(position::POSITION_FILE), b"").map_err(cannot("write", folder))?;
        publish(&partial, &file).map(|()| restored)
    });
    if restored.is_err() {
        // Leave nothing that looks like a store; the next restore would clear it away too.
        let _ = remove(&partial);
    }
    restored
}

/// A file with its log beside it is not all of a store.
fn copy_whole(backup: &Path, to: &Path) -> Result<(), BackupError> {
    let is_filled = |file: &PathBuf| std::fs::metadata(file).is_ok_and(|file| file.len() > 0);
    // The index (-shm) holds no content.
    let mut logs = ["-wal", "-journal"].into_iter().map(|ending| beside(backup, ending));
    if let Some(log) = logs.find(is_filled) {
        let problem = format!("{} beside it belongs to it; make a copy with snavio backup", log.display());
        return Err(BackupError::Unfit { file: backup.to_owned(), problem });
    }
    let mut from = std::fs::File::open(backup).map_err(cannot("read", backup))?;
    let mut copy = files::make_file(to).map_err(cannot("write", to))?;
    std::io::copy(&mut from, &mut copy).map_err(cannot("write", to))?;
    Ok(())
}

/// Removes a database file and all that belongs to it.
fn remove(file: &Path) -> std::io::Result<()> {
    for file in sidecars(file).chain([file.to_owned()]) {
        match std::fs::remove_file(file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Says of a restored store that the one it is a copy of is gone for good, so that the archive is its alone; false if
/// nobody doubted it. No node may serve over it meanwhile.
pub fn take_over_archive(folder: &Path, now: Timestamp) -> Result<bool, BackupError> {
    let mut store = Exclusive::open(folder)?;
    let connection = &mut store.connection;
    check_not_moved(folder).map_err(BackupError::Moved)?;
    let unfit = |problem: String| BackupError::Unfit { file: folder.join(FILE), problem };
    meta::get(connection, "epoch").map_err(|_| unfit("it is not a Snavio store".to_owned()))?;
    known::offer_digest(connection)?;
    layout::migrate(connection).map_err(|error| unfit(error.to_string()))?;
    let transaction = connection.transaction()?;
    if !fleet::forget_note(&transaction, ARCHIVE_UNCONFIRMED)? {
        return Ok(false);
    }
    // A number of an epoch that no node has used or will use: the next one begins the epoch after it.
    let epoch = meta::get(&transaction, "epoch")? + 1;
    meta::set(&transaction, "epoch", epoch)?;
    let entry = AuditEntry {
        number: Serial::first_of(epoch),
        action: "archive.take_over".to_owned(),
        object: folder.display().to_string(),
        act: Act { who: "operator".to_owned(), why: String::new(), at: now },
        outcome: ALONE.to_owned(),
    };
    audit::insert(&transaction, &entry)?;
    transaction.commit()?;
    store.close()?;
    Ok(true)
}

/// What the record says of who took over an archive.
const ALONE: &str = "the archive is this store's alone";

fn raise(
    file: &Path,
    backup: &Path,
    takes_over_archive: bool,
    now: Timestamp,
) -> Result<Restored, BackupError> {
    let unfit = |problem: String| BackupError::Unfit { file: backup.to_owned(), problem };
    let mut connection = Connection::open(file)?;
    super::configure(&mut connection)?;
    let damage = integrity::structure(&connection).map_err(|error| unfit(error.to_string()))?;
    if let Some(first) = damage.first() {
        return Err(unfit(first.clone()));
    }
    meta::get(&connection, "epoch").map_err(|_| unfit("it is not a Snavio store".into()))?;
    // Only now that it is one of ours: a foreign file must not become a store by being given our tables.
    known::offer_digest(&connection)?;
    layout::migrate(&mut connection).map_err(|error| unfit(error.to_string()))?;
    let damaged = integrity::evidence(&connection)?;
    let Raised { epoch, registry_version, newest_at } = raise_numbers(&connection, now)?;
    let archive = match takes_over_archive {
        true => fleet::forget_note(&connection, ARCHIVE_UNCONFIRMED).map(|_| ALONE)?,
        false => fleet::write_note(&connection, ARCHIVE_UNCONFIRMED, &now.to_string())
            .map(|()| "the archive is left alone")?,
    };
    let entry = AuditEntry {
        number: Serial::first_of(epoch),
        action: "store.restore".to_owned(),
        object: backup.display().to_string(),
        act: Act { who: "operator".to_owned(), why: String::new(), at: now },
        outcome: format!(
            "newest commit {newest_at}, epoch {epoch}, registry version {registry_version}; {archive}"
        ),
    };
    audit::insert(&connection, &entry)?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(Restored { newest_at, epoch, registry_version, damaged })
}

/// The numbers from which a store goes on.
pub(super) struct Raised {
    pub(super) epoch: i64,
    registry_version: i64,
    newest_at: Timestamp,
}

/// Raises epoch and registry version past what may have been given out since a store's newest commit, so that no number
/// means two things.
pub(super) fn raise_numbers(connection: &Connection, now: Timestamp) -> rusqlite::Result<Raised> {
    let epoch = meta::get(connection, "epoch")?;
    let version = meta::get(connection, "registry_version")?;
    let newest_at = newest_of(connection)?.unwrap_or(Timestamp(0));
    let age_seconds = if newest_at.0 == 0 { 0 } else { now.since(newest_at).as_secs() };
    let past = i64::try_from(age_seconds).unwrap_or(i64::MAX / 2).clamp(1000, Serial::EPOCH_MAX / 16);
    meta::set(connection, "epoch", epoch + past)?;
    let skipped = Skipped { first: version + 1, last: version + VERSIONS_SKIPPED };
    meta::set(connection, "registry_version", skipped.last)?;
    let (name, value) = skipped.note();
    fleet::write_note(connection, &name, &value)?;
    Ok(Raised { epoch: epoch + past, registry_version: skipped.last, newest_at })
}
