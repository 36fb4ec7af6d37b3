//! The checkpointer: a thread that moves committed pages from the write-ahead log into the database file, off
//! the commit path, and asks the writer to start the log over once it has caught up and the log is long.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use super::position::PositionFile;
use super::writer::{Shared, lock, sql};

/// Past this length, the log is started over as soon as the checkpointer has caught up.
const RESTART_PAST_BYTES: u64 = 32 * 1024 * 1024;
/// What a log that was started over keeps of its file: room for the usual, so that it is not cut and grown again.
pub(super) const KEPT_BYTES: i64 = 64 * 1024 * 1024;
const _: () = assert!(KEPT_BYTES.unsigned_abs() > RESTART_PAST_BYTES);
/// Shorter than this, a look is not worth its flushes.
const WORTH_A_LOOK_BYTES: u64 = 4 * 1024 * 1024;
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Checkpointer {
    stop: Arc<AtomicBool>,
    pub(super) wal_bytes: Arc<AtomicU64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Checkpointer {
    pub(super) fn start(
        connection: Connection,
        wal: PathBuf,
        shared: Arc<Shared>,
        position: Arc<PositionFile>,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let wal_bytes = Arc::new(AtomicU64::new(0));
        let (stopped, bytes) = (Arc::clone(&stop), Arc::clone(&wal_bytes));
        let thread = std::thread::Builder::new().name("snavio-checkpoint".into()).spawn(move || {
            let mut commits_seen = u64::MAX;
            while !stopped.load(Ordering::Acquire) {
                std::thread::park_timeout(PAUSE);
                let commits = shared.commits.load(Ordering::Relaxed);
                bytes.store(length(&wal), Ordering::Relaxed);
                if commits != commits_seen && look(&connection, &shared, &position) {
                    commits_seen = commits;
                }
            }
        })?;
        Ok(Self { stop, wal_bytes, thread: Mutex::new(Some(thread)) })
    }

    pub(super) fn close(&self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = lock(&self.thread).take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("checkpoint thread ended in a panic");
            }
        }
    }
}

fn length(wal: &Path) -> u64 {
    std::fs::metadata(wal).map_or(0, |it| it.len())
}

/// False where another checkpoint was in the way.
fn look(connection: &Connection, shared: &Shared, position: &PositionFile) -> bool {
    const FRAME_BYTES: u64 = 4096 + 24;
    match position.record_checkpoint(connection).map_err(sql) {
        Ok(None) => return false,
        Ok(Some((in_log, moved))) => {
            let behind = in_log.saturating_sub(moved) * FRAME_BYTES;
            if in_log * FRAME_BYTES > RESTART_PAST_BYTES && behind < WORTH_A_LOOK_BYTES {
                shared.restart_wanted.store(true, Ordering::Release);
            }
        }
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "checkpoint failed; the log grows meanwhile"
            );
        }
    }
    true
}
