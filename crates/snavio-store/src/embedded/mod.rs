//! The embedded engine: one SQLite file in write-ahead mode, one writer, group commit (ENG-2).

mod audit;
mod backup;
mod check;
mod checkpoint;
mod claim;
mod dead_letter;
mod delivery;
mod ledger;
mod message;
mod meta;
mod numbers;
mod queue;
mod queue_jobs;
mod readers;
mod registry;
mod telemetry;
mod writer;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OpenFlags};
use snavio_model::delivery::{DeadReason, QueueAttributes, Receipt, ReceiptOutcome};
use snavio_model::id::Serial;
use snavio_model::limits;
use snavio_model::name::QueueKey;
use snavio_model::registry::{Change, Entry};
use snavio_model::settle::{Delta, Intake};
use snavio_model::telemetry::{Record, StoredRecord};
use snavio_model::time::Timestamp;
use tokio::sync::{Notify, oneshot};

pub use backup::{BackupError, Restored, backup, check_integrity, restore};
use numbers::Numbers;
use queue::{Queues, Taken};
use queue_jobs::{Acknowledge, Bury, CountReceives, Purge, Redrive};
use readers::Readers;
use writer::{Transaction, Urgency, Writer, lock, sql};

use crate::{
    Act, AuditEntry, Durability, Figures, Journal, Ledger, LoggedMessage, Queue, Received, RegistryLog,
    Settled, Store, StoreError, StoredDeadLetter, Swept,
};

mod migrations {
    refinery::embed_migrations!("src/embedded/migrations");
}

/// The database file within the data folder.
pub const FILE: &str = "snavio.db";
const LOCK_FILE: &str = "snavio.lock";

/// How the store is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// The data folder; it belongs to one process.
    pub folder: PathBuf,
    /// Whether every commit is flushed. Without it a 2xx is no promise (PIP-12).
    pub flush: bool,
    /// Deliveries that one queue may hold.
    pub queue_depth_max: usize,
    /// A bug to plant, for tests that must notice it.
    pub plant: Option<Plant>,
}

impl Options {
    /// The usual settings for a folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), flush: true, queue_depth_max: limits::QUEUE_DEPTH_MAX, plant: None }
    }
}

/// Bugs that a test build can be told to have, to prove that the tests would notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// Answers before the commit.
    AcknowledgeBeforeCommit,
    /// Commits without a flush, and says otherwise.
    SkipFlush,
}

/// Why a store did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the folder.
    #[error("{0} is in use by another process; stop it, or choose another data folder")]
    InUse(PathBuf),
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
    Migration(PathBuf, #[source] refinery::Error),
    /// SQLite says no.
    #[error("cannot open {0}")]
    Database(PathBuf, #[source] rusqlite::Error),
    /// The epochs are used up.
    #[error("the store has used up its epochs")]
    Epochs,
}

/// The store of a single node.
pub struct EmbeddedStore {
    durability: Durability,
    last_committed_at: Timestamp,
    epoch: i64,
    writer: Writer,
    checkpointer: checkpoint::Checkpointer,
    readers: Readers,
    queues: Arc<Mutex<Queues>>,
    settled: Arc<AtomicU64>,
    telemetry_written: Arc<Notify>,
    /// Held for as long as the store is open.
    _lock: File,
}

impl EmbeddedStore {
    /// Opens or makes the store in its folder, begins a new epoch and rebuilds what is kept in memory.
    pub fn open(options: &Options) -> Result<Self, OpenError> {
        let folder = |source| OpenError::Folder { folder: options.folder.clone(), source };
        std::fs::create_dir_all(&options.folder).map_err(folder)?;
        let lock = take_lock(&options.folder)?;
        let file = options.folder.join(FILE);
        let database = |error| OpenError::Database(file.clone(), error);

        let mut connection = connect(&file, options).map_err(database)?;
        // One transaction for the layout and the note that it was made: a kill in between must leave neither.
        migrations::migrations::runner()
            .set_grouped(true)
            .run(&mut connection)
            .map_err(|error| OpenError::Migration(file.clone(), error))?;
        let epoch = begin_epoch(&connection).map_err(database)?;
        if epoch > Serial::EPOCH_MAX {
            return Err(OpenError::Epochs);
        }
        // SQLite makes the log's file, and does not look whether flushing its folder failed; without its name the
        // log would be lost with the power, and all that was acknowledged in it.
        File::open(&options.folder).and_then(|it| it.sync_all()).map_err(folder)?;
        let newest = [message::newest_at(&connection), telemetry::newest_at(&connection)];
        let [messages_at, telemetry_at] = newest.map(|at| at.map_err(database));
        let last_committed_at = messages_at?.max(telemetry_at?).unwrap_or(Timestamp(0));

        let numbers = Arc::new(Numbers::of_epoch(epoch));
        let mut queues = Queues::new(options.queue_depth_max, Arc::clone(&numbers));
        delivery::all(&connection, |delivery| queues.add(&delivery)).map_err(database)?;

        let read_only = || {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(&file, flags)?;
            connection.busy_timeout(Duration::from_secs(5))?;
            Ok(connection)
        };
        let readers = Readers::open(read_only).map_err(database)?;
        let checkpointing = connect(&file, options).map_err(database)?;
        let durability = durability(&connection, options).map_err(database)?;
        let writer = Writer::start(connection, numbers, options.plant).map_err(folder)?;
        let wal = options.folder.join(format!("{FILE}-wal"));
        let checkpointer = checkpoint::Checkpointer::start(checkpointing, wal, Arc::clone(&writer.shared))
            .map_err(folder)?;
        Ok(Self {
            durability,
            last_committed_at,
            epoch,
            writer,
            checkpointer,
            readers,
            queues: Arc::new(Mutex::new(queues)),
            settled: Arc::default(),
            telemetry_written: Arc::default(),
            _lock: lock,
        })
    }

    /// Makes dead letters of deliveries that `Queues` has taken out already.
    fn bury(&self, queue: &QueueKey, ended: Vec<(Taken, DeadReason)>, now: Timestamp) {
        if !ended.is_empty() {
            let (written, queues) = (Arc::clone(&self.telemetry_written), Arc::clone(&self.queues));
            let job = Bury { queue: queue.clone(), ended, now, queues, written };
            self.writer.submit(Urgency::Completion, Box::new(job));
        }
    }
}

fn take_lock(folder: &Path) -> Result<File, OpenError> {
    let path = folder.join(LOCK_FILE);
    let opened = File::options().create(true).truncate(false).write(true).open(&path);
    let lock = opened.map_err(|source| OpenError::Folder { folder: folder.to_owned(), source })?;
    lock.try_lock().map_err(|_| OpenError::InUse(folder.to_owned()))?;
    Ok(lock)
}

/// A connection that may write: the writer's, or the checkpointer's.
fn connect(file: &Path, options: &Options) -> rusqlite::Result<Connection> {
    let connection = Connection::open(file)?;
    // Nobody else writes; this only bounds how long starting the log over waits for readers.
    connection.busy_timeout(Duration::from_millis(50))?;
    connection.set_prepared_statement_cache_capacity(64);
    let flushes = options.flush && options.plant != Some(Plant::SkipFlush);
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", if flushes { "full" } else { "off" })?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    // A log that grew beside a backup gives its room back when it is started over.
    connection.pragma_update(None, "journal_size_limit", checkpoint::KEPT_BYTES)?;
    // A small cache on purpose: whenever a tree's pages were rebalanced, a commit walks over all slots of the
    // cache, and the operating system caches the file as well.
    connection.pragma_update(None, "cache_size", -8 * 1024)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    Ok(connection)
}

/// PIP-12: asks the engine itself what it does, rather than trusting what was set.
fn durability(connection: &Connection, options: &Options) -> rusqlite::Result<Durability> {
    const FULL: i64 = 2;
    let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
    let journal: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    if options.plant == Some(Plant::SkipFlush) {
        return Ok(Durability::Durable);
    }
    if journal != "wal" {
        return Ok(Durability::Relaxed(format!("journal_mode is {journal}, not wal")));
    }
    if synchronous < FULL {
        return Ok(Durability::Relaxed(format!(
            "synchronous is {synchronous}, below full: commits are not flushed"
        )));
    }
    Ok(Durability::Durable)
}

/// The epoch after the committed one; committed is from now on the one after it (see `numbers.rs`).
fn begin_epoch(connection: &Connection) -> rusqlite::Result<i64> {
    let epoch = meta::get(connection, "epoch")? + 1;
    meta::set(connection, "epoch", epoch + 1)?;
    Ok(epoch)
}

#[async_trait]
impl Ledger for EmbeddedStore {
    fn settle(&self, batch: Vec<Intake>, now: Timestamp, done: Settled) {
        let job = ledger::Settle {
            batch,
            now,
            queues: Arc::clone(&self.queues),
            settled: Arc::clone(&self.settled),
            telemetry_written: Arc::clone(&self.telemetry_written),
            result: (Vec::new(), Delta::default()),
            done,
        };
        self.writer.submit(Urgency::Ordinary, Box::new(job));
    }

    async fn record(&self, records: Vec<Record>) -> Result<(), StoreError> {
        let append = move |transaction: &mut Transaction<'_>| telemetry::append(transaction, &records);
        self.writer.run(Urgency::Ordinary, append).await?;
        self.telemetry_written.notify_waiters();
        Ok(())
    }

    async fn sweep(&self, now: Timestamp) -> Result<Swept, StoreError> {
        const MOST: usize = limits::SWEEP_ROWS_MAX;
        let ended = lock(&self.queues).sweep(now, MOST);
        let dead_letters = ended.iter().map(|(_, ended)| ended.len()).sum();
        for (queue, ended) in ended {
            self.bury(&queue, ended, now);
        }
        let sweep = move |transaction: &mut Transaction<'_>| {
            let claims = claim::sweep(transaction.connection, now, MOST).map_err(sql)?;
            let horizon = now.minus(limits::TELEMETRY_RETENTION);
            let telemetry = telemetry::sweep(transaction, horizon, now, MOST)?;
            transaction.dirty |= claims + telemetry > 0;
            Ok(Swept { claims, telemetry, dead_letters })
        };
        self.writer.run(Urgency::Ordinary, sweep).await
    }
}

#[async_trait]
impl Queue for EmbeddedStore {
    async fn receive(
        &self,
        queue: &QueueKey,
        max: usize,
        visibility: Duration,
        now: Timestamp,
    ) -> Result<Vec<Received>, StoreError> {
        let found = lock(&self.queues).receive(queue, max, visibility, now);
        self.bury(queue, found.ended, now);
        if found.leases.is_empty() {
            return Ok(Vec::new());
        }
        let counts = found.leases.iter().map(|lease| (lease.delivery, lease.attempt)).collect();
        self.writer.submit(Urgency::Completion, Box::new(CountReceives(counts)));
        self.readers.run(move |connection| read_leases(connection, &found.leases)).await
    }

    fn arrivals(&self, queue: &QueueKey) -> Arc<Notify> {
        lock(&self.queues).arrivals(queue)
    }

    async fn acknowledge(
        &self,
        queue: &QueueKey,
        receipts: Vec<Receipt>,
    ) -> Result<Vec<ReceiptOutcome>, StoreError> {
        let (outcomes, taken) = lock(&self.queues).take(queue, &receipts);
        if !taken.is_empty() {
            let (reply, answer) = oneshot::channel();
            let queues = Arc::clone(&self.queues);
            let job = Acknowledge { queue: queue.clone(), taken, queues, reply };
            self.writer.submit(Urgency::Completion, Box::new(job));
            answer.await.unwrap_or(Err(StoreError::Closed))?;
        }
        Ok(outcomes)
    }

    async fn extend(
        &self,
        queue: &QueueKey,
        receipts: Vec<Receipt>,
        visibility: Duration,
        now: Timestamp,
    ) -> Result<Vec<ReceiptOutcome>, StoreError> {
        Ok(lock(&self.queues).extend(queue, &receipts, now.plus(visibility)))
    }

    async fn release(
        &self,
        queue: &QueueKey,
        receipts: Vec<Receipt>,
        delay: Duration,
        now: Timestamp,
    ) -> Result<Vec<ReceiptOutcome>, StoreError> {
        Ok(lock(&self.queues).release(queue, &receipts, now.plus(delay)))
    }

    async fn purge(&self, queue: &QueueKey, act: Act) -> Result<u64, StoreError> {
        let (reply, answer) = oneshot::channel();
        let (queue, queues) = (queue.clone(), Arc::clone(&self.queues));
        let job = Purge { queue, act, queues, deleted: 0, up_to: Serial(0), reply };
        self.writer.submit(Urgency::Ordinary, Box::new(job));
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    async fn redrive(&self, tenant: &str, dead: Vec<Serial>, act: Act) -> Result<Vec<Serial>, StoreError> {
        let (reply, answer) = oneshot::channel();
        let queues = Arc::clone(&self.queues);
        let job = Redrive { tenant: tenant.to_owned(), dead, act, queues, back: Vec::new(), reply };
        self.writer.submit(Urgency::Ordinary, Box::new(job));
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    async fn attributes(&self, queue: &QueueKey, now: Timestamp) -> Result<QueueAttributes, StoreError> {
        let attributes = lock(&self.queues).attributes(queue, now);
        let key = queue.clone();
        let dead_letters = self.readers.run(move |it| dead_letter::count(it, &key).map_err(sql)).await?;
        Ok(QueueAttributes { dead_letters, ..attributes })
    }
}

fn read_leases(connection: &Connection, leases: &[queue::Lease]) -> Result<Vec<Received>, StoreError> {
    let mut received = Vec::with_capacity(leases.len());
    for lease in leases {
        // One whose message is damaged is not handed out; it ends as a dead letter after its receives.
        let Some(logged) = message::find_usable(connection, lease.message)? else { continue };
        received.push(Received {
            delivery_id: lease.delivery,
            fence: lease.fence,
            attempt: lease.attempt,
            queued_at: lease.queued_at,
            visible_at: lease.visible_at,
            message: Arc::new(logged.message),
        });
    }
    Ok(received)
}

#[async_trait]
impl RegistryLog for EmbeddedStore {
    async fn version(&self) -> Result<i64, StoreError> {
        self.readers.run(|connection| meta::get(connection, "registry_version").map_err(sql)).await
    }

    async fn load(&self) -> Result<(i64, Vec<Entry>), StoreError> {
        self.readers.run(registry::load).await
    }

    async fn apply(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        let apply = move |transaction: &mut Transaction<'_>| registry::apply(transaction, &changes);
        self.writer.run(Urgency::Ordinary, apply).await
    }

    async fn changes_since(&self, version: i64, limit: usize) -> Result<Vec<Change>, StoreError> {
        self.readers.run(move |connection| registry::changes_since(connection, version, limit)).await
    }
}

#[async_trait]
impl Journal for EmbeddedStore {
    async fn messages(
        &self,
        tenant: &str,
        after: Serial,
        limit: usize,
    ) -> Result<Vec<LoggedMessage>, StoreError> {
        let tenant = tenant.to_owned();
        self.readers.run(move |connection| message::of_tenant(connection, &tenant, after, limit)).await
    }

    async fn telemetry(
        &self,
        tenant: &str,
        after: Serial,
        limit: usize,
    ) -> Result<Vec<StoredRecord>, StoreError> {
        let tenant = tenant.to_owned();
        self.readers.run(move |connection| telemetry::page(connection, &tenant, after, limit)).await
    }

    fn telemetry_written(&self) -> Arc<Notify> {
        Arc::clone(&self.telemetry_written)
    }

    async fn dead_letters(
        &self,
        tenant: &str,
        queue: Option<&QueueKey>,
        after: Serial,
        limit: usize,
    ) -> Result<Vec<StoredDeadLetter>, StoreError> {
        let (tenant, queue) = (tenant.to_owned(), queue.cloned());
        let page = move |it: &Connection| dead_letter::page(it, &tenant, queue.as_ref(), after, limit);
        self.readers.run(page).await
    }

    async fn dead_letter(&self, tenant: &str, id: Serial) -> Result<Option<StoredDeadLetter>, StoreError> {
        let tenant = tenant.to_owned();
        let find = move |connection: &Connection| {
            let letter = dead_letter::find(connection, &tenant, id)?;
            letter.map(|letter| dead_letter::with_message(connection, letter)).transpose()
        };
        self.readers.run(find).await
    }

    async fn audit(&self, after: Serial, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        self.readers.run(move |connection| audit::page(connection, after, limit)).await
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    fn last_committed_at(&self) -> Timestamp {
        self.last_committed_at
    }

    fn durability(&self) -> Durability {
        self.durability.clone()
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.version().await.map(|_| ())
    }

    fn figures(&self) -> Figures {
        Figures {
            commits: self.writer.shared.commits.load(Ordering::Relaxed),
            messages: self.settled.load(Ordering::Relaxed),
            wal_bytes: self.checkpointer.wal_bytes.load(Ordering::Relaxed),
            deliveries: lock(&self.queues).len() as u64,
            epoch: self.epoch,
        }
    }

    async fn close(&self) {
        // Joining threads blocks; closing happens once, at the end.
        tokio::task::block_in_place(|| {
            self.writer.close();
            self.checkpointer.close();
            self.readers.close();
        });
    }
}
