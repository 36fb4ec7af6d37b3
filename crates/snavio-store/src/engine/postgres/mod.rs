//! The engine of a fleet: PostgreSQL 15 or later, and any number of nodes over it (ENG-3, ENG-7).
//!
//! Nothing of a node's memory is needed for correctness: claims, deliveries, leases and numbers are rows and
//! sequences, and a node that is killed leaves nothing that another must clean up.

mod answer;
mod archive;
mod audit;
mod changelog;
mod claim;
mod claims;
mod client;
mod conflict;
mod dead_letter;
mod delivery;
mod entities;
mod entity;
mod erase;
mod examine;
mod finish;
mod fleet;
mod hold;
mod horizon;
mod incoming;
mod lane;
mod layout;
mod message;
mod met;
mod original;
mod park;
mod pool;
mod promise;
mod redrive;
mod registry;
mod retention;
mod room;
mod seal;
mod segment;
mod settle;
mod telemetry;
mod version;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use snavio_model::bounds;
use snavio_model::claim::IdKey;
use snavio_model::delivery::{QueueAttributes, Receipt, ReceiptOutcome};
use snavio_model::id::Serial;
use snavio_model::name::QueueKey;
use snavio_model::settle::{Intake, Settlement};
use snavio_model::telemetry::{Record, StoredRecord};
use snavio_model::time::Timestamp;
use tokio::sync::{Notify, oneshot};
use tokio_util::task::TaskTracker;

pub use changelog::Changelog;
use client::{Client, GenericClient};
use delivery::{Ask, Which};
pub use examine::{Examined, examine};
use horizon::{BLOCK, Horizon};
pub(crate) use incoming::Incoming;
pub(crate) use pool::place;
use pool::{Pool, sql};
use promise::fitness;
use room::Rooms;
use settle::{Nonces, ReadFirst};
use version::Version;

use crate::engine::expiry::{Looked, Walks};
use crate::engine::notifiers::Waiting;
use crate::{
    Act, Anchor, AuditEntry, DeadLetterOrigin, Durability, Figures, Journal, Ledger, ListedDeadLetter,
    LoggedMessage, Purged, Queue, Received, Redrive, Redriven, RegistryLog, Settled, Store, StoreError,
    StoredDeadLetter, Swept, ToldOf, Use,
};

/// Where a database is: `postgres://user:password@host:port/database`. It may hold a password, so it is not shown.
#[derive(Clone)]
pub struct Url(String);

impl From<String> for Url {
    fn from(url: String) -> Self {
        Self(url)
    }
}

impl From<&String> for Url {
    fn from(url: &String) -> Self {
        Self(url.clone())
    }
}

impl From<&str> for Url {
    fn from(url: &str) -> Self {
        Self(url.to_owned())
    }
}

impl std::fmt::Debug for Url {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Url(…)")
    }
}

/// How the store is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the database is.
    pub url: Url,
    /// Certificates to trust; with them, connections are encrypted.
    pub ca_file: Option<PathBuf>,
    /// Connections that this node may have.
    pub connections_max: usize,
    /// Batches that this node has under way at once.
    pub batches_at_once: usize,
    /// Deliveries that one queue may hold.
    pub queue_depth_max: usize,
}

impl Options {
    /// The usual settings for a database.
    pub fn new(url: impl Into<Url>) -> Self {
        Self {
            url: url.into(),
            ca_file: None,
            connections_max: 16,
            batches_at_once: 2,
            queue_depth_max: bounds::QUEUE_DEPTH_MAX,
        }
    }
}

/// Why a store did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The settings cannot be used.
    #[error("{0}")]
    Options(String),
    /// The URL cannot be read. What is in it stays unsaid: it may hold a password.
    #[error("store.url is no URL of a database")]
    Url(#[source] tokio_postgres::Error),
    /// The database does not answer, or says no.
    #[error("the database cannot be used")]
    Database(#[from] tokio_postgres::Error),
    /// Somebody takes the connection, and says nothing.
    #[error("the database did not answer for {} s", .0.as_secs())]
    Silent(Duration),
    /// The server is of a version before the oldest one that can be used.
    #[error("the server is PostgreSQL {is}; {oldest} or later is needed")]
    Old {
        /// Its version.
        is: String,
        /// The oldest major version.
        oldest: i32,
    },
    /// A migration would have had to wait for too long.
    #[error(
        "others hold locks that bringing the database to this version's layout needs; pg_locks and pg_stat_activity say who"
    )]
    HeldUp(#[source] refinery::Error),
    /// A migration failed.
    #[error("cannot bring the database to this version's layout; the node's role must own the tables")]
    Migration(#[from] refinery::Error),
    /// The layout is none for this program.
    #[error("{0}")]
    Layout(String),
    /// The store did not answer.
    #[error("the database cannot be read")]
    Store(#[from] StoreError),
}

/// The store of a fleet, as one node sees it.
pub struct PostgresStore {
    inner: Arc<Inner>,
    durability: Durability,
    anchor: Timestamp,
    batches_at_once: usize,
    watch: tokio::task::JoinHandle<()>,
}

/// What the store's tasks share.
struct Inner {
    pool: Pool,
    nonces: Nonces,
    read_first: ReadFirst,
    /// The statement that writes a batch.
    write: String,
    rooms: Rooms,
    horizon: Horizon,
    /// Who waits for deliveries, by queue.
    arrivals: Waiting,
    /// Who waits for telemetry, by tenant.
    written: Waiting,
    commits: AtomicU64,
    settled: AtomicU64,
    /// Work that goes on when its caller has gone.
    under_way: TaskTracker,
    /// How far claims whose time is over were looked through.
    walks: Mutex<Walks>,
}

impl Inner {
    fn walks(&self) -> MutexGuard<'_, Walks> {
        self.walks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PostgresStore {
    /// Connects, and brings the database to this version's layout if it is not there yet.
    pub async fn open(options: &Options) -> Result<Self, OpenError> {
        let mut client = pool::connect(options).await?;
        client.batch_execute(pool::KEPT_ALIVE).await?;
        Version::ask(&client).await?.verdict()?;
        layout::migrate(&mut client).await?;
        let durability = fitness(&client).await?.durability;
        const START: &str =
            "SELECT gen_random_uuid(), (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
        let start = client.query_one(START, &[]).await?;
        let inner = Arc::new(Inner {
            pool: Pool::new(options, durability == Durability::Durable)?,
            nonces: Nonces::new(start.try_get(0)?),
            read_first: ReadFirst::default(),
            write: settle::statement(),
            rooms: Rooms::new(options.queue_depth_max),
            horizon: Horizon::default(),
            arrivals: Waiting::default(),
            written: Waiting::default(),
            commits: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            under_way: TaskTracker::new(),
            walks: Mutex::default(),
        });
        // Before anybody waits: what comes later is looked for.
        let seen = inner.horizon.look(&inner.pool.get().await?).await?;
        let watch = tokio::spawn(watch::watch(Arc::clone(&inner), seen));
        let anchor = Timestamp(start.try_get(1)?);
        Ok(Self { inner, durability, anchor, batches_at_once: options.batches_at_once, watch })
    }

    async fn client(&self) -> Result<Client, StoreError> {
        self.inner.pool.get().await
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.inner.pool.within(work).await
    }

    /// One bounded sweep.
    async fn sweep_some(&self, now: Timestamp) -> Result<Swept, StoreError> {
        const MOST: usize = bounds::SWEEP_ROWS_MAX;
        let mut client = self.inner.pool.get_kept().await?;
        let lapsed = self.lapse(&mut client, now, MOST).await?;
        let mut walks = self.inner.walks().clone();
        let looked = retention::sweep(&mut client, &mut walks, now, MOST).await?;
        let Looked { deleted: claims, is_behind } = looked;
        *self.inner.walks() = walks;
        let (dead_letters, buried) = dead_letter::bury(&mut client, now, MOST).await?;
        let transaction = client.transaction().await.map_err(sql)?;
        let horizon = now.minus(bounds::TELEMETRY_RETENTION);
        let (telemetry, dropped) = telemetry::sweep(&transaction, horizon, now, MOST).await?;
        telemetry::append(&transaction, &dropped).await?;
        transaction.commit().await.map_err(sql)?;
        self.inner.written.wake(buried.iter().chain(&dropped).map(|record| record.tenant.as_str()));
        let entities = entity::sweep(&client, now, MOST).await?;
        let forgotten = settle::forget_old(&client, MOST).await?;
        fleet::forget_silent(&client).await?;
        Ok(Swept { claims, telemetry, dead_letters, lapsed, entities, forgotten, is_behind })
    }

    /// Ends attempts whose time is over, in a transaction of their own and before anything else is swept: whoever waits
    /// for their next attempt waits for nothing else (CLM-7).
    async fn lapse(&self, client: &mut Client, now: Timestamp, limit: usize) -> Result<usize, StoreError> {
        let transaction = client.transaction().await.map_err(sql)?;
        let (lapsed, told) = finish::lapse(&transaction, now, limit).await?;
        telemetry::append(&transaction, &told).await?;
        transaction.commit().await.map_err(sql)?;
        self.inner.written.wake(told.iter().map(|record| record.tenant.as_str()));
        Ok(lapsed)
    }

    /// Leases deliveries to whoever asks.
    async fn lease(
        &self,
        queue: &QueueKey,
        which: Which,
        visibility: Duration,
        now: Timestamp,
    ) -> Result<Vec<Received>, StoreError> {
        let (reply, answer) = oneshot::channel();
        let (inner, queue) = (Arc::clone(&self.inner), queue.clone());
        // Not on the caller's task: who hangs up must not leave deliveries leased to nobody.
        self.inner.under_way.spawn(async move {
            let received = inner.pool.within(receive(&inner, &queue, which, visibility, now)).await;
            let Err(Ok(leased)) = reply.send(received) else { return };
            let receipt = |it: &Received| Receipt { delivery_id: it.delivery_id, fence: it.fence };
            let leased: Vec<_> = leased.iter().map(receipt).collect();
            if let Err(error) = inner.pool.within(take_back(&inner, &queue, &leased, now)).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "deliveries of a receive that was given up stay hidden until their lease ends"
                );
            }
        });
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    async fn present(
        &self,
        queue: &QueueKey,
        receipts: Vec<Receipt>,
        ask: Ask,
    ) -> Result<Vec<ReceiptOutcome>, StoreError> {
        let work = async { delivery::present(&self.client().await?, queue, &receipts, ask).await };
        let outcomes = self.within(work).await?;
        self.inner.commits.fetch_add(1, Ordering::Relaxed);
        Ok(outcomes)
    }
}

#[async_trait]
impl Ledger for PostgresStore {
    fn settle(&self, batch: Vec<Intake>, now: Timestamp, done: Settled) {
        let inner = Arc::clone(&self.inner);
        self.inner.under_way.spawn(async move {
            let settled = settle::settle(&inner, &batch, now).await;
            done(settled);
        });
    }

    fn batches_at_once(&self) -> usize {
        self.batches_at_once
    }

    async fn foresee(&self, intake: Intake, now: Timestamp) -> Result<Settlement, StoreError> {
        self.within(settle::foresee(&self.inner, intake, now)).await
    }

    async fn record(&self, records: Vec<Record>) -> Result<(), StoreError> {
        self.within(async { telemetry::append(&self.client().await?, &records).await }).await?;
        self.inner.commits.fetch_add(1, Ordering::Relaxed);
        self.inner.written.wake(records.iter().map(|record| record.tenant.as_str()));
        Ok(())
    }

    async fn sweep(&self, now: Timestamp) -> Result<Swept, StoreError> {
        self.within(self.sweep_some(now)).await
    }
}

#[async_trait]
impl Queue for PostgresStore {
    async fn receive(
        &self,
        queue: &QueueKey,
        max: usize,
        visibility: Duration,
        now: Timestamp,
    ) -> Result<Vec<Received>, StoreError> {
        self.lease(queue, Which::Next(max), visibility, now).await
    }

    fn arrivals(&self, queue: &QueueKey) -> Arc<Notify> {
        self.inner.arrivals.of(queue.as_str())
    }

    async fn extend(
        &self,
        queue: &QueueKey,
        receipts: Vec<Receipt>,
        visibility: Duration,
        now: Timestamp,
    ) -> Result<Vec<ReceiptOutcome>, StoreError> {
        self.present(queue, receipts, Ask::Extend(now.plus(visibility))).await
    }

    async fn take_back(
        &self,
        queue: &QueueKey,
        receipts: Vec<Receipt>,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        self.within(take_back(&self.inner, queue, &receipts, until)).await
    }

    async fn purge(&self, queue: &QueueKey, act: Act) -> Result<Purged, StoreError> {
        // What comes later stays, or a purge amid traffic would never end.
        let number = async {
            let row = self.client().await?.query_one(BLOCK, &[]).await;
            row.and_then(|row| row.try_get(0)).map(Serial).map_err(sql)
        };
        let up_to = self.within(number).await?;
        let mut purged = Purged::default();
        loop {
            let purging = async { delivery::purge_some(&mut self.client().await?, queue, up_to, &act).await };
            let (some, is_partial) = self.within(purging).await?;
            self.inner.rooms.forget(queue);
            purged.deleted += some.deleted;
            purged.in_doubt += some.in_doubt;
            if !is_partial {
                let counting = async { delivery::in_progress(&self.client().await?, queue, up_to).await };
                purged.in_progress = self.within(counting).await?;
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
        let work = async {
            let client = self.client().await?;
            let dead_letters = dead_letter::count(&client, queue).await?;
            Ok(QueueAttributes { dead_letters, ..delivery::attributes(&client, queue, now).await? })
        };
        self.within(work).await
    }

    async fn holds_any(&self, queue: &QueueKey) -> Result<bool, StoreError> {
        let work = async {
            let client = self.client().await?;
            Ok(delivery::any(&client, queue).await? || dead_letter::any(&client, queue).await?)
        };
        self.within(work).await
    }

    async fn destinations(&self, queue: &QueueKey) -> Result<BTreeSet<String>, StoreError> {
        let work = async { delivery::destinations(&self.client().await?, queue).await };
        self.within(work).await
    }

    async fn all_attributes(&self, now: Timestamp) -> Result<Vec<(QueueKey, QueueAttributes)>, StoreError> {
        let work = async {
            let client = self.client().await?;
            let mut all: BTreeMap<_, _> = delivery::all_attributes(&client, now).await?.into_iter().collect();
            for (queue, count) in dead_letter::counts(&client).await? {
                all.entry(queue).or_default().dead_letters = count;
            }
            Ok(all.into_iter().collect())
        };
        self.within(work).await
    }
}

async fn receive(
    inner: &Inner,
    queue: &QueueKey,
    which: Which,
    visibility: Duration,
    now: Timestamp,
) -> Result<Vec<Received>, StoreError> {
    let client = inner.pool.get().await?;
    if inner.rooms.is_full_in_flight(&client, queue).await? {
        return Ok(Vec::new());
    }
    let received = delivery::receive(&client, queue, which, visibility, now).await?;
    if matches!(which, Which::Next(max) if received.len() == max) {
        // Others may be waiting for what this call left.
        inner.arrivals.wake_some(queue.as_str(), 1);
    }
    if !received.is_empty() {
        inner.commits.fetch_add(1, Ordering::Relaxed);
    }
    Ok(received)
}

async fn take_back(
    inner: &Inner,
    queue: &QueueKey,
    leased: &[Receipt],
    until: Timestamp,
) -> Result<(), StoreError> {
    if leased.is_empty() {
        return Ok(());
    }
    delivery::take_back(&inner.pool.get().await?, queue, leased, until).await?;
    inner.arrivals.wake_some(queue.as_str(), leased.len());
    Ok(())
}

#[async_trait]
impl Journal for PostgresStore {
    async fn messages(
        &self,
        tenant: &str,
        after: Serial,
        limit: usize,
    ) -> Result<Vec<LoggedMessage>, StoreError> {
        let work = async {
            let client = self.client().await?;
            let up_to = self.inner.horizon.look(&client).await?;
            Ok(message::page(&client, tenant, after, up_to, limit).await?.messages)
        };
        self.within(work).await
    }

    async fn message(&self, tenant: &str, number: Serial) -> Result<Option<LoggedMessage>, StoreError> {
        let found = self.within(async { message::find_intact(&self.client().await?, number).await }).await?;
        Ok(found.filter(|it| it.message.source.tenant() == tenant))
    }

    async fn uses(&self, tenant: &str, before: Serial, limit: usize) -> Result<Vec<Use>, StoreError> {
        self.within(async { message::uses(&self.client().await?, tenant, before, limit).await }).await
    }

    async fn telemetry(
        &self,
        tenant: &str,
        after: Serial,
        limit: usize,
    ) -> Result<Vec<StoredRecord>, StoreError> {
        let work = async {
            let client = self.client().await?;
            let up_to = self.inner.horizon.look(&client).await?;
            telemetry::page(&client, tenant, after, up_to, limit).await
        };
        self.within(work).await
    }

    async fn told_of(&self, id: &IdKey, most: usize) -> Result<ToldOf, StoreError> {
        self.within(async { telemetry::told_of(&self.client().await?, id, most).await }).await
    }

    fn telemetry_written(&self, tenant: &str) -> Arc<Notify> {
        self.inner.written.of(tenant)
    }

    async fn dead_letters(
        &self,
        tenant: &str,
        queue: Option<&QueueKey>,
        after: Serial,
        limit: usize,
    ) -> Result<Vec<ListedDeadLetter>, StoreError> {
        self.within(async { dead_letter::page(&self.client().await?, tenant, queue, after, limit).await })
            .await
    }

    async fn dead_letter_origins(
        &self,
        queue: &QueueKey,
        after: Serial,
        limit: usize,
    ) -> Result<Vec<DeadLetterOrigin>, StoreError> {
        self.within(async { dead_letter::origins(&self.client().await?, queue, after, limit).await }).await
    }

    async fn dead_letters_in_doubt(&self, queue: &QueueKey) -> Result<Vec<(Arc<str>, usize)>, StoreError> {
        self.within(async { dead_letter::in_doubt(&self.client().await?, queue).await }).await
    }

    async fn dead_letter(&self, tenant: &str, id: Serial) -> Result<Option<StoredDeadLetter>, StoreError> {
        self.within(async { dead_letter::find(&self.client().await?, tenant, id).await }).await
    }

    async fn audit(&self, after: Serial, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        let work = async {
            let client = self.client().await?;
            let up_to = self.inner.horizon.look(&client).await?;
            audit::page(&client, after, up_to, limit).await
        };
        self.within(work).await
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn anchor(&self) -> Anchor {
        Anchor::At(self.anchor)
    }

    fn engine(&self) -> &'static str {
        "postgres"
    }

    fn durability(&self) -> Durability {
        self.durability.clone()
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.version().await.map(|_| ())
    }

    fn figures(&self) -> Figures {
        Figures {
            commits: self.inner.commits.load(Ordering::Relaxed),
            messages: self.inner.settled.load(Ordering::Relaxed),
            round_trips: self.inner.pool.round_trips(),
            own: None,
        }
    }

    async fn close(&self) {
        self.watch.abort();
        self.inner.under_way.close();
        self.inner.under_way.wait().await;
        self.inner.pool.close();
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.watch.abort();
    }
}
