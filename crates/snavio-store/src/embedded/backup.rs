//! Backup while running, restore, and the integrity check.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rusqlite::Connection;
use snavio_model::id::Serial;
use snavio_model::time::Timestamp;

use super::writer::{Shared, sql};
use super::{FILE, message, meta, take_lock, telemetry};
use crate::StoreError;

/// Keeps the write-ahead log from starting over while a backup reads it.
pub(super) struct PausedRestarts(Arc<Shared>);

impl PausedRestarts {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        shared.restart_paused.store(true, Ordering::Release);
        Self(Arc::clone(shared))
    }
}

impl Drop for PausedRestarts {
    fn drop(&mut self) {
        self.0.restart_paused.store(false, Ordering::Release);
    }
}

/// Copies the store as it is now into a new file, and says how large that is.
pub(super) fn copy(connection: &Connection, from: &Path, to: &Path) -> Result<u64, StoreError> {
    let failed = |why: String| StoreError::Unavailable(why.into());
    if to.exists() {
        return Err(failed(format!("{} exists already", to.display())));
    }
    let text = to.to_str().ok_or_else(|| failed("the backup's path is not text".into()))?;
    let copied = connection.execute("VACUUM INTO ?1", [text]).map_err(sql);
    if copied.is_err() {
        // A half-written copy must not be taken for a backup. It may not exist at all.
        let _ = std::fs::remove_file(to);
    }
    copied?;
    let flushed = std::fs::File::open(to).and_then(|file| file.sync_all());
    flushed.map_err(|error| failed(format!("cannot flush {}: {error}", to.display())))?;
    tracing::info!(from = %from.display(), to = %to.display(), "backup written");
    Ok(std::fs::metadata(to).map_or(0, |it| it.len()))
}

/// SQLite's own check of the whole file, and the check values of the newest evidence.
pub(super) fn integrity(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let mut statement = connection.prepare("PRAGMA integrity_check").map_err(sql)?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).map_err(sql)?;
    let said = rows.collect::<Result<Vec<_>, _>>().map_err(sql)?;
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

/// Why a backup was not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// There is a store already.
    #[error("{0} exists already; move it away first, a restore never overwrites")]
    Exists(PathBuf),
    /// The backup is not a store, or is damaged.
    #[error("{file} cannot be restored: {problem}")]
    Unfit {
        /// The backup.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A file cannot be read or written.
    #[error("cannot copy the backup")]
    Copy(#[from] std::io::Error),
    /// SQLite says no.
    #[error("cannot read the backup")]
    Database(#[from] rusqlite::Error),
}

/// Restores a backup into a data folder without a store. Epoch and registry version are raised past anything
/// that was given out after the backup, as far as one per second goes, so that no number means two things.
pub fn restore(backup: &Path, folder: &Path, now: Timestamp) -> Result<Restored, RestoreError> {
    std::fs::create_dir_all(folder)?;
    let file = folder.join(FILE);
    let _lock = take_lock(folder).map_err(|_| RestoreError::Exists(file.clone()))?;
    if file.exists() {
        return Err(RestoreError::Exists(file));
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

fn raise(file: &Path, backup: &Path, now: Timestamp) -> Result<Restored, RestoreError> {
    let unfit = |problem: String| RestoreError::Unfit { file: backup.to_owned(), problem };
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
