//! Backup while running, restore, and the integrity check. They work on the files, beside a running node or
//! without one: a backup is one read transaction, which at worst keeps the write-ahead log from starting over
//! while it lasts.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use snavio_model::id::Serial;
use snavio_model::time::Timestamp;

use super::{FILE, message, meta, take_lock, telemetry};

/// Copies the store as it is now into a new file, and says how large that is.
pub fn backup(folder: &Path, to: &Path) -> Result<u64, BackupError> {
    if to.exists() {
        return Err(BackupError::Exists(to.to_owned()));
    }
    let connection = open(folder)?;
    check_room(folder, to)?;
    let text = to.to_str().ok_or_else(|| BackupError::Unfit {
        file: to.to_owned(),
        problem: "its path is not text".to_owned(),
    })?;
    let copied = connection.execute("VACUUM INTO ?1", [text]);
    if copied.is_err() {
        // A half-written copy must not be taken for a backup. It may not exist at all.
        let _ = std::fs::remove_file(to);
    }
    copied?;
    let file = std::fs::File::open(to)?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
}

fn open(folder: &Path) -> Result<Connection, BackupError> {
    let file = folder.join(FILE);
    if !file.exists() {
        return Err(BackupError::Unfit { file, problem: "there is no store".to_owned() });
    }
    let connection = Connection::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(connection)
}

fn check_room(folder: &Path, to: &Path) -> Result<(), BackupError> {
    let needed: u64 = [FILE.to_owned(), format!("{FILE}-wal")]
        .iter()
        .map(|name| std::fs::metadata(folder.join(name)).map_or(0, |it| it.len()))
        .sum();
    let target = to.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let space = rustix::fs::statvfs(target).map_err(std::io::Error::from)?;
    let free = space.f_bavail * space.f_frsize;
    if free < needed {
        return Err(BackupError::NoRoom { needed, free });
    }
    Ok(())
}

/// What is damaged in a folder's store, if anything: SQLite's own check of the whole file.
pub fn check_integrity(folder: &Path) -> Result<Vec<String>, BackupError> {
    Ok(integrity(&open(folder)?)?)
}

fn integrity(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare("PRAGMA integrity_check")?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
    let said = rows.collect::<Result<Vec<_>, _>>()?;
    Ok(said.into_iter().filter(|line| line != "ok").collect())
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
}

/// Why a backup was not made, checked or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is a file already.
    #[error("{0} exists already; move it away first, nothing is overwritten")]
    Exists(PathBuf),
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
    /// A file cannot be read or written.
    #[error("cannot copy a file")]
    Copy(#[from] std::io::Error),
    /// SQLite says no.
    #[error("cannot read a store")]
    Database(#[from] rusqlite::Error),
}

/// Restores a backup into a data folder without a store. Epoch and registry version are raised past anything
/// that was given out after the backup, as far as one per second goes, so that no number means two things.
pub fn restore(backup: &Path, folder: &Path, now: Timestamp) -> Result<Restored, BackupError> {
    std::fs::create_dir_all(folder)?;
    let file = folder.join(FILE);
    let _lock = take_lock(folder).map_err(|_| BackupError::Exists(file.clone()))?;
    if file.exists() {
        return Err(BackupError::Exists(file));
    }
    let partial = folder.join(format!("{FILE}.restoring"));
    std::fs::copy(backup, &partial)?;
    let restored = raise(&partial, backup, now);
    if restored.is_err() {
        // Leave nothing that looks like a store.
        let _ = std::fs::remove_file(&partial);
    }
    let restored = restored?;
    std::fs::File::open(&partial)?.sync_all()?;
    std::fs::rename(&partial, &file)?;
    std::fs::File::open(folder)?.sync_all()?;
    Ok(restored)
}

fn raise(file: &Path, backup: &Path, now: Timestamp) -> Result<Restored, BackupError> {
    let unfit = |problem: String| BackupError::Unfit { file: backup.to_owned(), problem };
    let connection = Connection::open(file)?;
    let damage = integrity(&connection).map_err(|error| unfit(error.to_string()))?;
    if let Some(first) = damage.first() {
        return Err(unfit(first.clone()));
    }
    let epoch = meta::get(&connection, "epoch").map_err(|_| unfit("it is not a Snavio store".into()))?;
    let version = meta::get(&connection, "registry_version")?;
    let newest_at = message::newest_at(&connection)?.max(telemetry::newest_at(&connection)?);
    let newest_at = newest_at.unwrap_or(Timestamp(0));
    let age_seconds = if newest_at.0 == 0 { 0 } else { now.since(newest_at).as_secs() };
    let past = i64::try_from(age_seconds).unwrap_or(i64::MAX / 2).clamp(1000, Serial::EPOCH_MAX / 16);
    meta::set(&connection, "epoch", epoch + past)?;
    meta::set(&connection, "registry_version", version + past)?;
    connection.execute(
        "INSERT INTO audit (seq, at, who, why, action, object, outcome) VALUES (?1, ?2, 'operator', '', 'store.restore', ?3, ?4)",
        (
            Serial::first_of(epoch + past).0,
            now.0,
            backup.display().to_string(),
            format!("newest commit {newest_at}, epoch {}, registry version {}", epoch + past, version + past),
        ),
    )?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(Restored { newest_at, epoch: epoch + past, registry_version: version + past })
}
