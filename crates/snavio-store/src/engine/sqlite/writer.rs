//! The one writer: a thread that owns the writing connection and commits whatever waits in one transaction.
//!
//! Many jobs share a flush (PIP-5). A job is answered only after its commit has returned, which with
//! `synchronous=FULL` means flushed. A failed flush ends the process: what the page cache says afterwards cannot
//! be trusted, so nothing after it may be acknowledged.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rusqlite::{Connection, ErrorCode};
use tokio::sync::oneshot;

use super::folder::FolderLock;
use super::numbers::Numbers;
use super::position::PositionFile;
use super::{Plant, keep_log};
use crate::StoreError;

/// Jobs that share one transaction. Each is bounded by itself, so the transaction is.
const JOBS_PER_COMMIT_MAX: usize = 64;
/// Jobs that may wait; callers bound their own work, so this is never met in practice.
const JOBS_WAITING_MAX: usize = 100_000;

/// What a job works with inside its transaction.
pub(super) struct Transaction<'a> {
    /// The connection, inside an open transaction.
    pub(super) connection: &'a Connection,
    /// Where serials come from.
    pub(super) numbers: &'a Numbers,
    /// Set by a job that wrote: without it there is nothing to flush.
    pub(super) dirty: bool,
}

/// Work for the writer.
pub(super) trait Job: Send {
    /// Whether it needs what is kept in memory to be as of this very moment: it shares its commit with nobody then, since
    /// what others do in it is in memory only afterwards.
    fn is_alone(&self) -> bool {
        false
    }
    /// Does the work inside the transaction. May be run again if a job that shared the transaction failed.
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError>;
    /// The transaction is durable: change what is kept in memory and answer.
    fn committed(self: Box<Self>);
    /// Nothing was written: answer so.
    fn failed(self: Box<Self>, error: StoreError);
}

/// Which jobs go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// Completions: never behind intake.
    Completion,
    /// Everything else.
    Ordinary,
}

#[derive(Default)]
struct Inbox {
    completions: VecDeque<Box<dyn Job>>,
    ordinary: VecDeque<Box<dyn Job>>,
    /// The thread sleeps: only then is waking it worth its system call.
    asleep: bool,
    closed: bool,
}

/// What the writer shares with the rest of the store.
#[derive(Default)]
pub(super) struct Shared {
    inbox: Mutex<Inbox>,
    arrived: Condvar,
    /// Set by the checkpointer when it has caught up and the log is long: start the log over.
    pub(super) restart_wanted: AtomicBool,
    /// Commits so far.
    pub(super) commits: AtomicU64,
}

/// A handle to the writer thread.
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(
        connection: Connection,
        numbers: Arc<Numbers>,
        plant: Option<Plant>,
        guard: Guard,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let writing = Loop {
            connection,
            committed_epoch: numbers.epoch_to_commit(),
            numbers,
            plant,
            shared: Arc::clone(&shared),
            guard,
        };
        let thread = std::thread::Builder::new().name("snavio-writer".into()).spawn(move || writing.run())?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Hands over a job without waiting for it.
    pub(super) fn submit(&self, urgency: Urgency, job: Box<dyn Job>) {
        if let Err((job, error)) = self.enqueue(urgency, job) {
            job.failed(error);
        }
    }

    fn enqueue(&self, urgency: Urgency, job: Box<dyn Job>) -> Result<(), (Box<dyn Job>, StoreError)> {
        let mut inbox = lock(&self.shared.inbox);
        if inbox.closed {
            return Err((job, StoreError::Closed));
        }
        let line = match urgency {
            Urgency::Completion => &mut inbox.completions,
            Urgency::Ordinary => &mut inbox.ordinary,
        };
        if line.len() >= JOBS_WAITING_MAX {
            return Err((job, StoreError::Unavailable("too many jobs wait for the writer".into())));
        }
        line.push_back(job);
        let asleep = std::mem::take(&mut inbox.asleep);
        drop(inbox);
        if asleep {
            self.shared.arrived.notify_one();
        }
        Ok(())
    }

    /// Runs `work` in a transaction and answers once it is durable.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        urgency: Urgency,
        work: impl FnMut(&mut Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.submit(urgency, Box::new(Simple { work, result: None, reply }));
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Finishes what waits and ends the thread. May be called twice.
    pub(super) fn close(&self) {
        lock(&self.shared.inbox).closed = true;
        self.shared.arrived.notify_one();
        let thread = lock(&self.thread).take();
        // The last to let go of a store may be a job's answer, on this very thread: it ends when it is through.
        if let Some(thread) = thread.filter(|it| it.thread().id() != std::thread::current().id()) {
            // It cannot have panicked: that ends the process.
            let _ = thread.join();
        }
    }
}

/// A job that is one closure.
struct Simple<T, F> {
    work: F,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send, F> Job for Simple<T, F>
where
    F: FnMut(&mut Transaction<'_>) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        self.result = Some((self.work)(transaction)?);
        Ok(())
    }

    fn committed(self: Box<Self>) {
        // A caller that went away does not need its answer.
        let _ = self.reply.send(self.result.ok_or(StoreError::Closed));
    }

    fn failed(self: Box<Self>, error: StoreError) {
        let _ = self.reply.send(Err(error));
    }
}

/// Without its writer the store would take jobs that nobody ever answers.
struct EndsProcessOnPanic;

impl Drop for EndsProcessOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("snavio: the store's writer panicked; ending the process");
            std::process::abort();
        }
    }
}

struct Loop {
    connection: Connection,
    numbers: Arc<Numbers>,
    committed_epoch: i64,
    plant: Option<Plant>,
    shared: Arc<Shared>,
    guard: Guard,
}

/// Resources that outlive the writing connection.
pub(super) struct Guard {
    /// Says in the end that all is in the database.
    pub(super) position: Arc<PositionFile>,
    /// The folder is this process's for as long as anything may still be written.
    pub(super) lock: FolderLock,
}

impl Loop {
    fn run(mut self) {
        let _watch = EndsProcessOnPanic;
        while let Some(jobs) = self.next_jobs() {
            self.commit_in_order(jobs);
            self.restart_log_if_wanted();
        }
        self.end();
    }

    /// Moves all into the database file and lets go of it. What fails leaves the log, which the next start reads.
    fn end(self) {
        let Self { connection, guard, .. } = self;
        let ended = guard.position.end(&connection).map_err(sql);
        let is_clean = matches!(ended, Ok(Ok(true)));
        match ended {
            Ok(Ok(true)) => {
                if let Err(error) = keep_log(&connection, false) {
                    tracing::warn!(%error, "the log was moved into the database, but not deleted");
                }
            }
            Ok(Ok(false)) => tracing::info!("a reader holds the log; the next start reads it"),
            Ok(Err(error)) => tracing::warn!(%error, "the log's position was not written"),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the log was not moved into the database"
                );
            }
        }
        drop(connection);
        if is_clean && let Err(error) = guard.position.forget_deleted_log() {
            tracing::warn!(%error, "the log's position was not written");
        }
        drop(guard.lock);
    }

    /// Waits for work; nothing means that the store is closing and all is done.
    fn next_jobs(&self) -> Option<Vec<Box<dyn Job>>> {
        let mut inbox = lock(&self.shared.inbox);
        loop {
            if !inbox.completions.is_empty() || !inbox.ordinary.is_empty() {
                let mut jobs: Vec<_> = drain(&mut inbox.completions, JOBS_PER_COMMIT_MAX);
                let room = JOBS_PER_COMMIT_MAX - jobs.len();
                jobs.extend(drain(&mut inbox.ordinary, room.max(1)));
                return Some(jobs);
            }
            if inbox.closed {
                return None;
            }
            inbox.asleep = true;
            inbox = self.shared.arrived.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// In one commit but for those that want one of their own.
    fn commit_in_order(&mut self, jobs: Vec<Box<dyn Job>>) {
        let mut together = Vec::with_capacity(jobs.len());
        for job in jobs {
            if job.is_alone() {
                self.commit_together(std::mem::take(&mut together));
                self.commit_together(vec![job]);
            } else {
                together.push(job);
            }
        }
        self.commit_together(together);
    }

    fn commit_together(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        if jobs.is_empty() {
            return;
        }
        match self.attempt(&mut jobs) {
            Ok(()) => {
                for job in jobs {
                    job.committed();
                }
            }
            Err(error) if jobs.len() == 1 || is_of_the_disk(&error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, jobs = jobs.len(), "commit failed");
                fail_all(jobs, error);
            }
            // One job's fault must not be its neighbours': each gets a transaction of its own.
            Err(_) => {
                for job in jobs {
                    self.commit_together(vec![job]);
                }
            }
        }
    }

    fn attempt(&mut self, jobs: &mut Vec<Box<dyn Job>>) -> Result<(), StoreError> {
        self.connection.prepare_cached("BEGIN IMMEDIATE").and_then(|mut s| s.execute([])).map_err(sql)?;
        let ran = self.run_jobs(jobs);
        if self.plant == Some(Plant::AcknowledgeBeforeCommit) && ran.is_ok() {
            for job in jobs.drain(..) {
                job.committed();
            }
        }
        let done = ran.and_then(|written| self.finish(written));
        if done.is_err() && !self.connection.is_autocommit() {
            let rolled_back = self.connection.execute_batch("ROLLBACK");
            if let Err(error) = rolled_back {
                tracing::error!(error = &error as &dyn std::error::Error, "rollback failed");
                std::process::abort();
            }
        }
        done
    }

    fn run_jobs(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<Option<i64>, StoreError> {
        let mut transaction =
            Transaction { connection: &self.connection, numbers: &self.numbers, dirty: false };
        for job in jobs {
            job.run(&mut transaction)?;
        }
        let dirty = transaction.dirty;
        let epoch = self.numbers.epoch_to_commit();
        if dirty && epoch > self.committed_epoch {
            super::meta::set(&self.connection, "epoch", epoch).map_err(sql)?;
        }
        Ok(dirty.then_some(epoch))
    }

    /// Commits what was written, and with it the epoch; nothing written is nothing to flush.
    fn finish(&mut self, written: Option<i64>) -> Result<(), StoreError> {
        let end = if written.is_some() { "COMMIT" } else { "ROLLBACK" };
        let ended = self.connection.prepare_cached(end).and_then(|mut s| s.execute([]));
        ended.map_err(sql)?;
        if let Some(epoch) = written {
            self.committed_epoch = epoch;
            self.shared.commits.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Between two batches, when the checkpointer has caught up: readers are few and short, so this waits for
    /// hardly anything, and the next commit writes at the log's beginning again.
    fn restart_log_if_wanted(&self) {
        if !self.shared.restart_wanted.swap(false, Ordering::AcqRel) {
            return;
        }
        let restarted =
            self.connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get::<_, i64>(0));
        match restarted {
            Ok(0) => {}
            Ok(_) => tracing::debug!("a reader kept the write-ahead log from starting over"),
            Err(error) => {
                let error = sql(error);
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "write-ahead log was not started over"
                );
            }
        }
    }
}

fn drain(line: &mut VecDeque<Box<dyn Job>>, most: usize) -> Vec<Box<dyn Job>> {
    let count = line.len().min(most);
    line.drain(..count).collect()
}

fn fail_all(jobs: Vec<Box<dyn Job>>, error: StoreError) {
    let text = error.to_string();
    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    let mut jobs = jobs.into_iter();
    if let Some(job) = jobs.next() {
        job.failed(error);
    }
    for job in jobs {
        job.failed(StoreError::Unavailable(format!("{text}: {cause}").into()));
    }
}

fn is_of_the_disk(error: &StoreError) -> bool {
    let StoreError::Unavailable(cause) = error else { return false };
    let code = cause.downcast_ref::<rusqlite::Error>().and_then(rusqlite::Error::sqlite_error_code);
    matches!(code, Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::CannotOpen))
}

/// Turns SQLite's word into the store's, and ends the process if it was about a flush.
pub(super) fn sql(error: rusqlite::Error) -> StoreError {
    const FLUSH_FAILED: [i32; 2] = [rusqlite::ffi::SQLITE_IOERR_FSYNC, rusqlite::ffi::SQLITE_IOERR_DIR_FSYNC];
    if let rusqlite::Error::SqliteFailure(failure, _) = &error
        && FLUSH_FAILED.contains(&failure.extended_code)
    {
        tracing::error!(error = &error as &dyn std::error::Error, "a flush failed: ending the process");
        eprintln!(
            "snavio: a flush failed ({error}); ending the process, because nothing after it can be promised"
        );
        std::process::abort();
    }
    StoreError::Unavailable(Box::new(error))
}

/// A lock whose holder panicked is taken all the same: everything under these locks is valid between statements.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
