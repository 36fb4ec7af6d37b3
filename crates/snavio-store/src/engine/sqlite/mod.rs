//! The embedded engine: one SQLite file in write-ahead mode, one writer, group commit (ENG-2).

mod answer;
mod archive;
mod audit;
mod backup;
mod changelog;
mod check;
mod checkpoint;
mod claim;
mod claims;
mod clock;
mod conflict;
mod dead_letter;
mod delivery;
mod entities;
mod entity;
mod erase;
mod finish;
mod fleet;
mod folder;
mod handing;
mod hold;
mod index;
mod integrity;
mod known;
mod lanes;
mod layout;
mod lease;
mod ledger;
mod message;
mod meta;
mod moved;
mod numbers;
mod original;
mod outgoing;
mod park;
mod position;
mod queue;
mod queue_jobs;
mod readers;
mod recover;
mod registry;
mod retention;
mod seal;
mod segment;
#[cfg(test)]
mod statements;
mod telemetry;
mod through;
mod wal;
mod writer;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use snavio_model::bounds;
use snavio_model::claim::IdKey;
use snavio_model::delivery::{QueueAttributes, Receipt, ReceiptOutcome};
use snavio_model::id::Serial;
use snavio_model::name::QueueKey;
use snavio_model::settle::{Delta, Intake, Settlement};
use snavio_model::telemetry::{Record, StoredRecord};
use snavio_model::time::Timestamp;
use tokio::sync::{Notify, oneshot};

pub use backup::{BackupError, Restored, backup, restore, take_over_archive};
pub use changelog::Changelog;
use clock::{keep_sweep_time, newest_of};
use folder::FolderLock;
pub use folder::{OpenError, check_remains};
use index::Ended;
pub use integrity::{check_integrity, newest_at};
pub use moved::check_not_moved;
pub(crate) use moved::mark as mark_as_moved;
use numbers::Numbers;
pub(crate) use outgoing::Outgoing;
pub use position::LogDamage;
use position::PositionFile;
use queue::Queues;
use queue_jobs::{Bury, Purge, PutBack};
use readers::Readers;
pub use recover::{Contents, Kept, Recovered, Recovery};
use writer::{Transaction, Urgency, Writer, lock, sql};

use crate::engine::expiry::{Looked, Walks};
use crate::engine::notifiers::Waiting;
use crate::{
    Act, Anchor, AuditEntry, DeadLetterOrigin, Durability, Figures, Journal, Ledger, ListedDeadLetter,
    LoggedMessage, OwnFigures, Purged, Queue, Received, Redrive, Redriven, RegistryLog, Settled, Store,
    StoreError, StoredDeadLetter, Swept, ToldOf, Use, files,
};

/// The database file within the data folder.
pub const FILE: &str = "snavio.db";

/// How long a node waits for readers when it starts its log over. Nobody else writes.
const RESTART_WAIT: Duration = Duration::from_millis(50);
/// How long a start, or a command, waits for readers that hold the log.
const READERS_WAIT: Duration = Duration::from_secs(5);

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
        Self { folder: folder.into(), flush: true, queue_depth_max: bounds::QUEUE_DEPTH_MAX, plant: None }
    }

    fn flushes(&self) -> bool {
        self.flush && self.plant != Some(Plant::SkipFlush)
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

/// The store of a single node.
pub struct EmbeddedStore {
    durability: Durability,
    last_committed_at: Timestamp,
    epoch: i64,
    numbers: Arc<Numbers>,
    writer: Writer,
    checkpointer: checkpoint::Checkpointer,
    readers: Readers,
    reading_through: through::Through,
    queues: Arc<Mutex<Queues>>,
    settled: Arc<AtomicU64>,
    written: Arc<Waiting>,
    only_node: fleet::OnlyNode,
    /// The tenant whose telemetry was swept last, and how far claims were looked through.
    swept: Mutex<(String, Walks)>,
}

impl EmbeddedStore {
    /// Puts dead letters back into the queues they came from.
    async fn put_back(
        &self,
        tenant: &str,
        dead: Vec<Serial>,
        which: Redrive,
        act: Act,
    ) -> Result<Redriven, StoreError> {
        let (reply, answer) = oneshot::channel();
        let (tenant, queues) = (tenant.to_owned(), Arc::clone(&self.queues));
        let (back, left) = (Vec::new(), Redriven::default());
        self.writer.submit(
            Urgency::Ordinary,
            Box::new(PutBack { tenant, dead, which, act, queues, back, left, reply }),
        );
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Opens or makes the store in its folder, begins a new epoch and rebuilds what is kept in memory.
    pub fn open(options: &Options) -> Result<Self, OpenError> {
        let folder = |source| OpenError::Folder { folder: options.folder.clone(), source };
        files::make_folder(&options.folder).map_err(folder)?;
        let mut lock = FolderLock::exclusive(&options.folder)?;
        check_not_moved(&options.folder)?;
        check_remains(&options.folder)?;
        let file = options.folder.join(FILE);
        lock.make_database(&options.folder)?;
        let scan = folder::check_log(&options.folder)?;
        let database = |error| OpenError::Database(file.clone(), error);

        let mut connection = connect(&file, options).map_err(database)?;
        let position = PositionFile::open(&options.folder, options.flushes()).map_err(folder)?;
        position.expect_new_log().map_err(folder)?;
        if scan.commits_behind > 0 {
            // The end of an interrupted commit stays in the log, and the next one would make two.
            connection.busy_timeout(READERS_WAIT).map_err(database)?;
            if !position.start_log_over(&connection).map_err(database)?.map_err(folder)? {
                return Err(OpenError::LogInUse(file));
            }
            connection.busy_timeout(RESTART_WAIT).map_err(database)?;
        }
        known::offer_digest(&connection).map_err(database)?;
        layout::migrate(&mut connection).map_err(|error| OpenError::Migration(file.clone(), error))?;
        let epoch = begin_epoch(&connection).map_err(database)?;
        if epoch > Serial::EPOCH_MAX {
            return Err(OpenError::Epochs);
        }
        // SQLite makes the log's file, and does not look whether flushing its folder failed; without its name the
        // log would be lost with the power, and all that was acknowledged in it.
        files::flush_folder(&options.folder).map_err(folder)?;
        position.begin(&connection).map_err(database)?.map_err(folder)?;
        if let Some(recovered) = fleet::note(&connection, recover::NOTE).map_err(database)? {
            tracing::warn!(%recovered, "this store was recovered from a damaged log");
        }
        let position = Arc::new(position);
        let last_committed_at = newest_of(&connection).map_err(database)?.unwrap_or(Timestamp(0));

        let numbers = Arc::new(Numbers::of_epoch(epoch));
        let mut queues = Queues::new(options.queue_depth_max, Arc::clone(&numbers));
        let unread = |error| OpenError::Read(file.clone(), error);
        delivery::all(&connection, |delivery, lease| queues.load(&delivery, &lease)).map_err(unread)?;
        queues.begin_lanes(entity::parked(&connection).map_err(unread)?);

        let read_only = || {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let mut connection = Connection::open_with_flags(&file, flags)?;
            configure(&mut connection)?;
            connection.busy_timeout(Duration::from_secs(5))?;
            known::offer_digest(&connection)?;
            Ok(connection)
        };
        let readers = Readers::open(read_only).map_err(database)?;
        let checkpointing = connect(&file, options).map_err(database)?;
        let durability = durability(&connection, options).map_err(database)?;
        let guard = writer::Guard { position: Arc::clone(&position), lock };
        let writer = Writer::start(connection, Arc::clone(&numbers), options.plant, guard).map_err(folder)?;
        let wal = options.folder.join(format!("{FILE}-wal"));
        let shared = Arc::clone(&writer.shared);
        let checkpointer =
            checkpoint::Checkpointer::start(checkpointing, wal, shared, position).map_err(folder)?;
        Ok(Self {
            durability,
            last_committed_at,
            epoch,
            numbers,
            writer,
            checkpointer,
            readers,
            reading_through: through::Through::default(),
            queues: Arc::new(Mutex::new(queues)),
            settled: Arc::default(),
            written: Arc::default(),
            only_node: fleet::OnlyNode::default(),
            swept: Mutex::default(),
        })
    }

    /// The writer is the last to go, and its connection moves the log into the database.
    fn end_threads(&self) {
        self.checkpointer.close();
        self.writer.close();
    }

    /// Makes dead letters of deliveries that `Queues` has taken out already. The answer need not be waited for.
    fn bury(
        &self,
        queue: &QueueKey,
        ended: Vec<Ended>,
        now: Timestamp,
    ) -> oneshot::Receiver<Result<(), StoreError>> {
        let (reply, answer) = oneshot::channel();
        let (queues, written) = (Arc::clone(&self.queues), Arc::clone(&self.written));
        let (records, parked) = (Vec::new(), Vec::new());
        let job = Bury { queue: queue.clone(), ended, now, queues, written, records, parked, reply };
        self.writer.submit(Urgency::Completion, Box::new(job));
        answer
    }

    /// Purges what `Queues` has taken out already, and says what that came to.
    async fn purge_some(&self, queue: &QueueKey, ended: Vec<Ended>, act: Act) -> Result<Purged, StoreError> {
        let (reply, answer) = oneshot::channel();
        let (queues, written) = (Arc::clone(&self.queues), Arc::clone(&self.written));
        let (purged, records, parked) = (Purged::default(), Vec::new(), Vec::new());
        let job = Purge { queue: queue.clone(), ended, act, queues, written, purged, records, parked, reply };
        self.writer.submit(Urgency::Ordinary, Box::new(job));
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}

/// What holds for every connection. A statement's plan is made once, without a look at bound values: with one SQLite
/// parses it again whenever they change, which in a cached statement is at every use. Closing a connection leaves the log
/// as it is: the next start would miss a log that `snavio.position` still knows of.
fn configure(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    keep_log(connection, true)?;
    #[cfg(test)]
    statements::watch(connection)?;
    Ok(())
}

/// Whether the last connection leaves the log as it is when it closes, instead of moving it into the database and deleting
/// it. It may delete the log only after `snavio.position` says `clean`.
fn keep_log(connection: &Connection, keep: bool) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep)?;
    Ok(())
}

/// A connection that may write: the writer's, or the checkpointer's.
fn connect(file: &Path, options: &Options) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open(file)?;
    configure(&mut connection)?;
    connection.busy_timeout(RESTART_WAIT)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", if options.flushes() { "full" } else { "off" })?;
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
            written: Arc::clone(&self.written),
            result: (Vec::new(), Delta::default()),
            done,
        };
        self.writer.submit(Urgency::Ordinary, Box::new(job));
    }

    fn batches_at_once(&self) -> usize {
        1
    }

    async fn foresee(&self, intake: Intake, now: Timestamp) -> Result<Settlement, StoreError> {
        let queues = Arc::clone(&self.queues);
        self.readers.run(move |connection| ledger::foresee(connection, &queues, &intake, now)).await
    }

    async fn record(&self, records: Vec<Record>) -> Result<(), StoreError> {
        let records = Arc::new(records);
        let appended = Arc::clone(&records);
        let append = move |transaction: &mut Transaction<'_>| telemetry::append(transaction, &appended);
        self.writer.run(Urgency::Ordinary, append).await?;
        self.written.wake(records.iter().map(|record| record.tenant.as_str()));
        Ok(())
    }

    async fn sweep(&self, now: Timestamp) -> Result<Swept, StoreError> {
        const MOST: usize = bounds::SWEEP_ROWS_MAX;
        let late = lock(&self.queues).take_lapsed(now, MOST);
        let lapsed = late.iter().map(|(_, lapsed)| lapsed.len()).sum();
        let late: Vec<_> = late.into_iter().flat_map(|(queue, it)| self.lapse(&queue, it, now)).collect();
        let ended = lock(&self.queues).sweep(now, MOST);
        let dead_letters = ended.iter().map(|(_, ended)| ended.len()).sum();
        let burials = ended.into_iter().map(|(queue, ended)| self.bury(&queue, ended, now));
        let burials: Vec<_> = late.into_iter().chain(burials).collect();
        let from = lock(&self.swept).clone();
        let sweep = move |transaction: &mut Transaction<'_>| {
            let (mut cursor, mut walks) = from.clone();
            let Looked { deleted: claims, is_behind } = retention::sweep(transaction, &mut walks, now, MOST)?;
            let telemetry = telemetry::sweep(transaction, &mut cursor, now, MOST)?;
            let entities = entity::sweep(transaction.connection, now, MOST).map_err(sql)?;
            transaction.dirty |= entities > 0;
            let has_deleted = claims > 0 || telemetry > 0 || entities > 0;
            keep_sweep_time(transaction, now, has_deleted).map_err(sql)?;
            let swept = Swept { claims, telemetry, dead_letters, lapsed, entities, forgotten: 0, is_behind };
            Ok((swept, (cursor, walks)))
        };
        let (swept, up_to) = self.writer.run(Urgency::Ordinary, sweep).await?;
        *lock(&self.swept) = up_to;
        // What could not be buried would be found again at once.
        for buried in burials {
            buried.await.unwrap_or(Err(StoreError::Closed))?;
        }
        Ok(swept)
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
        if !found.ended.is_empty() {
            drop(self.bury(queue, found.ended, now));
        }
        if found.leases.is_empty() {
            return Ok(Vec::new());
        }
        self.hand_out(queue, found.leases).await
    }

    fn arrivals(&self, queue: &QueueKey) -> Arc<Notify> {
        lock(&self.queues).arrivals(queue)
    }

    async fn extend(
        &self,
        queue: &QueueKey,
        receipts: Vec<Receipt>,
        visibility: Duration,
        now: Timestamp,
    ) -> Result<Vec<ReceiptOutcome>, StoreError> {
        self.lease_on(queue, &receipts, now.plus(visibility)).await
    }

    async fn take_back(
        &self,
        queue: &QueueKey,
        receipts: Vec<Receipt>,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        self.hand_back(queue, &receipts, until).await
    }

    async fn purge(&self, queue: &QueueKey, act: Act) -> Result<Purged, StoreError> {
        // What comes later stays, or a purge amid traffic would never end.
        let up_to = self.numbers.next();
        let mut purged = Purged::default();
        loop {
            let ended = lock(&self.queues).end_up_to(queue, up_to, bounds::SWEEP_ROWS_MAX);
            let is_last = ended.len() < bounds::SWEEP_ROWS_MAX;
            let some = self.purge_some(queue, ended, act.clone()).await?;
            purged.deleted += some.deleted;
            purged.in_doubt += some.in_doubt;
            if is_last {
                purged.in_progress = lock(&self.queues).in_progress(queue, up_to) as u64;
                return Ok(purged);
            }
        }
    }

    async fn redrive(&self, tenant: &str, dead: Vec<Serial>, act: Act) -> Result<Redriven, StoreError> {
        self.put_back(tenant, dead, Redrive::Decided, act).await
    }

    async fn reprocess(&self, tenant: &str, dead: Serial, act: Act) -> Result<Redriven, StoreError> {
        self.put_back(tenant, vec![dead], Redrive::Any, act).await
    }

    async fn attributes(&self, queue: &QueueKey, now: Timestamp) -> Result<QueueAttributes, StoreError> {
        let attributes = lock(&self.queues).attributes(queue, now);
        let key = queue.clone();
        let dead_letters = self.readers.run(move |it| dead_letter::count(it, &key).map_err(sql)).await?;
        Ok(QueueAttributes { dead_letters, ..attributes })
    }

    async fn holds_any(&self, queue: &QueueKey) -> Result<bool, StoreError> {
        if lock(&self.queues).holds_any(queue) {
            return Ok(true);
        }
        let key = queue.clone();
        self.readers.run(move |it| dead_letter::any(it, &key).map_err(sql)).await
    }

    async fn destinations(&self, queue: &QueueKey) -> Result<BTreeSet<String>, StoreError> {
        // Most queues that are asked about hold nothing.
        if !lock(&self.queues).holds_any(queue) {
            return Ok(BTreeSet::new());
        }
        let key = queue.clone();
        self.readers.run(move |it| delivery::destinations(it, &key).map_err(sql)).await
    }

    async fn all_attributes(&self, now: Timestamp) -> Result<Vec<(QueueKey, QueueAttributes)>, StoreError> {
        let dead_letters = self.readers.run(dead_letter::counts).await?;
        let mut all = lock(&self.queues).all_attributes(now);
        for (queue, dead_letters) in dead_letters {
            all.entry(queue).or_default().dead_letters = dead_letters;
        }
        Ok(all.into_iter().collect())
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

    async fn message(&self, tenant: &str, number: Serial) -> Result<Option<LoggedMessage>, StoreError> {
        let found = self.readers.run(move |connection| message::find(connection, number)).await?;
        Ok(found.filter(|it| it.message.source.tenant() == tenant))
    }

    async fn uses(&self, tenant: &str, before: Serial, limit: usize) -> Result<Vec<Use>, StoreError> {
        let tenant = tenant.to_owned();
        self.readers.run(move |connection| message::uses(connection, &tenant, before, limit)).await
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

    async fn told_of(&self, id: &IdKey, most: usize) -> Result<ToldOf, StoreError> {
        let id = id.clone();
        self.readers.run(move |connection| telemetry::told_of(connection, &id, most)).await
    }

    fn telemetry_written(&self, tenant: &str) -> Arc<Notify> {
        self.written.of(tenant)
    }

    async fn dead_letters(
        &self,
        tenant: &str,
        queue: Option<&QueueKey>,
        after: Serial,
        limit: usize,
    ) -> Result<Vec<ListedDeadLetter>, StoreError> {
        let (tenant, queue) = (tenant.to_owned(), queue.cloned());
        let page = move |it: &Connection| dead_letter::page(it, &tenant, queue.as_ref(), after, limit);
        self.readers.run(page).await
    }

    async fn dead_letter_origins(
        &self,
        queue: &QueueKey,
        after: Serial,
        limit: usize,
    ) -> Result<Vec<DeadLetterOrigin>, StoreError> {
        let queue = queue.clone();
        self.readers.run(move |connection| dead_letter::origins(connection, &queue, after, limit)).await
    }

    async fn dead_letters_in_doubt(&self, queue: &QueueKey) -> Result<Vec<(Arc<str>, usize)>, StoreError> {
        let queue = queue.clone();
        self.readers.run(move |connection| dead_letter::in_doubt(connection, &queue)).await
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
    fn anchor(&self) -> Anchor {
        Anchor::NotBefore(self.last_committed_at)
    }

    fn engine(&self) -> &'static str {
        "embedded"
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
            round_trips: 0,
            own: Some(OwnFigures {
                wal_bytes: self.checkpointer.wal_bytes.load(Ordering::Relaxed),
                deliveries: lock(&self.queues).len() as u64,
                epoch: self.epoch,
            }),
        }
    }

    async fn close(&self) {
        self.readers.close().await;
        // Joining threads blocks; closing happens once, at the end.
        tokio::task::block_in_place(|| self.end_threads());
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.readers.let_go();
        self.end_threads();
    }
}
