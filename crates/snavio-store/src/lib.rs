//! Durable state behind ten interfaces, cut by what the domain needs (ENG-1).
//!
//! [`Ledger`] is the data plane, [`Queue`] hands out deliveries, [`Claims`] is what becomes of them, [`Conflicts`] what
//! was meant otherwise, [`Entities`] how far entities are, [`Archive`] what is kept for years, [`RegistryLog`] is the control plane,
//! [`Journal`] reads what happened, [`Audit`] takes down what somebody did, [`Fleet`] is what nodes over one store know
//! of each other. A backend implements all of them over one engine, because a claim, its delivery and their telemetry commit together. Nothing is judged
//! here: that is `snavio_model::settle`.

pub(crate) mod api;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod engine;
pub mod files;
pub mod objects;
pub(crate) mod record;
mod transfer;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use snavio_model::bounds;
use snavio_model::claim::IdKey;
use snavio_model::claim::conflict::{Conflict, ConflictState, Immovable, Move};
use snavio_model::delivery::{DeadLetter, QueueAttributes, Receipt, ReceiptOutcome, Tracking};
use snavio_model::id::{MessageId, Serial};
use snavio_model::message::trace::CorrelationId;
use snavio_model::message::{Message, MessageKind, Path};
use snavio_model::name::{CommandName, KeyVersion, QueueKey, ServiceName};
use snavio_model::registry::{Change, Entry, EntryKey, LoggedChange, Seal};
use snavio_model::settle::{Intake, Settlement};
use snavio_model::telemetry::{self, Record, StoredRecord};
use snavio_model::time::Timestamp;
use tokio::sync::Notify;

pub use crate::api::archive::{
    ARCHIVE_UNCONFIRMED, Archive, Cooled, CooledUpTo, Erasure, NewHold, NewSegment,
};
pub use crate::api::claims::{
    ClaimFilter, ClaimLookUp, Claims, Finished, HeldBack, HeldDelivery, OnRecord, Report, StoredClaim,
};
pub use crate::api::entities::{Entities, Reset, WaitEnded, WaitsEnded};
pub use crate::api::fleet::{Fleet, Heard, NodeSeen, NodeState};
pub use crate::engine::conflict_log::tell_of_more_conflicts;
pub use crate::transfer::{MoveError, Moved, move_store};

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written; asking again later may help.
    #[error("store is unavailable")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Whether it was written is not known: the engine was asked and did not answer.
    #[error("store gave no answer")]
    Lost(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The registry moved on since it was read: read it again and decide anew.
    #[error("registry has changed since version {based_on}")]
    Stale {
        /// The version the change was based on.
        based_on: i64,
    },
    /// A stored record fails its check value or cannot be read at all: it is not used (QUA-1).
    #[error("{what} {key} is damaged: it is not as it was written")]
    Damaged {
        /// What kind of record.
        what: &'static str,
        /// Which one.
        key: String,
    },
    /// So much of this is done at once, and no more: ask again later.
    #[error("{0}")]
    Overloaded(&'static str),
    /// The store is closing.
    #[error("store is closing")]
    Closed,
}

/// Told once what became of a batch, on whatever thread finished it, and quick about it. A callback and not a
/// future: the thread that committed answers the requests itself, without waking another to do it.
pub type Settled = Box<dyn FnOnce(Result<Vec<Settlement>, StoreError>) + Send>;

/// The data plane.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Claims and enqueues each message, in one commit for the batch. Duplicate and full are answers, not
    /// errors. When `done` is told, what it is told is on stable storage.
    /// Fewer settlements than messages mean that of the rest nothing is known.
    fn settle(&self, batch: Vec<Intake>, now: Timestamp, done: Settled);

    /// How many batches may usefully be under way at once; those with one id never should be.
    fn batches_at_once(&self) -> usize;

    /// What settling a message would come to now, without doing it. Nothing is asked of the registry.
    async fn foresee(&self, intake: Intake, now: Timestamp) -> Result<Settlement, StoreError>;

    /// Writes telemetry that belongs to no other commit.
    async fn record(&self, records: Vec<Record>) -> Result<(), StoreError>;

    /// Deletes a bounded number of rows whose time is over, and says how many.
    async fn sweep(&self, now: Timestamp) -> Result<Swept, StoreError>;
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Expired claims.
    pub claims: usize,
    /// Unread telemetry that aged out.
    pub telemetry: usize,
    /// Deliveries that ended, to become dead letters.
    pub dead_letters: usize,
    /// Attempts whose worker did not report back in time (CLM-7).
    pub lapsed: usize,
    /// Entities of which nothing is known any more (ORD-2).
    pub entities: usize,
    /// What the engine kept for itself, and nobody can be asking for any more.
    pub forgotten: usize,
    /// Whether there is more to look at: what stays is passed too.
    pub is_behind: bool,
}

impl Swept {
    /// Whether there may be more to sweep.
    pub fn is_partial(&self) -> bool {
        let most = self.claims.max(self.telemetry).max(self.dead_letters);
        let most = most.max(self.lapsed).max(self.forgotten).max(self.entities);
        most >= bounds::SWEEP_ROWS_MAX || self.is_behind
    }
}

/// A delivery as it is handed to a consumer.
#[derive(Debug, Clone)]
pub struct Received {
    /// The delivery.
    pub delivery_id: Serial,
    /// Rises with every lease of the delivery.
    pub fence: Serial,
    /// How often it has been handed out, this time included.
    pub attempt: u32,
    /// How often it is handed out at most: what its route said when it was queued.
    pub attempts_max: u32,
    /// Whether a claim waits for what becomes of it: what its route said then, too.
    pub tracking: Tracking,
    /// When it was enqueued.
    pub queued_at: Timestamp,
    /// Until when nobody else gets it.
    pub visible_at: Timestamp,
    /// The destination, if its record can be read.
    pub destination: Option<Arc<str>>,
    /// The message.
    pub message: Arc<Message>,
}

/// The embedded queues: their rows commit with the claims.
#[async_trait]
pub trait Queue: Send + Sync {
    /// Hands out up to `max` deliveries, hidden from others for `visibility`. Never waits for any to arrive.
    async fn receive(
        &self,
        queue: &QueueKey,
        max: usize,
        visibility: Duration,
        now: Timestamp,
    ) -> Result<Vec<Received>, StoreError>;

    /// Fires when a delivery may have become visible in the queue.
    fn arrivals(&self, queue: &QueueKey) -> Arc<Notify>;

    /// Hides deliveries for `visibility` from now.
    async fn extend(
        &self,
        queue: &QueueKey,
        receipts: Vec<Receipt>,
        visibility: Duration,
        now: Timestamp,
    ) -> Result<Vec<ReceiptOutcome>, StoreError>;

    /// Takes back deliveries that were handed out for attempts that were not made, and hides them until then: it has cost them
    /// nothing (DLV-4). Of others, or told again, it changes nothing.
    async fn take_back(
        &self,
        queue: &QueueKey,
        receipts: Vec<Receipt>,
        until: Timestamp,
    ) -> Result<(), StoreError>;

    /// Deletes everything that waits or is in flight, in bounded commits, and says how much. What comes in meanwhile
    /// stays, and so does what a claim waits for and somebody is at: an effect on its way would be nobody's. What was tried
    /// before, and a claim waits for, becomes a dead letter, since it may be done.
    async fn purge(&self, queue: &QueueKey, act: Act) -> Result<Purged, StoreError>;

    /// Puts dead letters back into the queues they came from, under their old ids, receive counts at zero; but none whose
    /// claim is in doubt (CLM-11).
    async fn redrive(&self, tenant: &str, dead: Vec<Serial>, act: Act) -> Result<Redriven, StoreError>;

    /// Puts the dead letter of one claim back, also where the claim is in doubt: a person has looked (CLM-11).
    async fn reprocess(&self, tenant: &str, dead: Serial, act: Act) -> Result<Redriven, StoreError>;

    /// Depth, in flight, delayed, age.
    async fn attributes(&self, queue: &QueueKey, now: Timestamp) -> Result<QueueAttributes, StoreError>;

    /// Whether anything waits, is in flight or gathered as a dead letter in the queue; nothing is counted.
    async fn holds_any(&self, queue: &QueueKey) -> Result<bool, StoreError>;

    /// The routes and subscriptions whose deliveries wait or are in flight in the queue, as claims name them.
    async fn destinations(&self, queue: &QueueKey) -> Result<BTreeSet<String>, StoreError>;

    /// The attributes of every queue that holds anything, in no order.
    async fn all_attributes(&self, now: Timestamp) -> Result<Vec<(QueueKey, QueueAttributes)>, StoreError>;
}

/// What a redrive did with the dead letters it found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Redriven {
    /// Those that wait in their queues again.
    pub back: Vec<Serial>,
    /// Those that are dead letters still, because their queue has no room for them.
    pub full: Vec<Serial>,
    /// Those that are dead letters still, because a hold is on what their last attempt answered (CLM-18).
    pub held: Vec<Serial>,
    /// Those that are dead letters still, because their claims are in doubt (CLM-11).
    pub in_doubt: Vec<Serial>,
}

/// Which dead letters go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Redrive {
    /// Those whose claims are not in doubt.
    Decided,
    /// All.
    Any,
}

/// Something a person did: goes on the record with what it did.
#[derive(Debug, Clone)]
pub struct Act {
    /// Who.
    pub who: String,
    /// Why.
    pub why: String,
    /// When.
    pub at: Timestamp,
}

/// The control plane: the registry's state and its append-only log.
#[async_trait]
pub trait RegistryLog: Send + Sync {
    /// The version, without reading anything else.
    async fn version(&self) -> Result<i64, StoreError>;

    /// Whether something was ever registered under this name.
    async fn was_registered(&self, key: &EntryKey) -> Result<bool, StoreError>;

    /// All entries, and the version they are at.
    async fn load(&self) -> Result<(i64, Vec<Entry>), StoreError>;

    /// Makes the changes in one commit, if the registry is still at the version before the first of them.
    async fn apply(&self, changes: Vec<Change>) -> Result<(), StoreError>;

    /// The changes after a version as they are written, oldest first.
    async fn logged_since(&self, version: i64, limit: usize) -> Result<Vec<LoggedChange>, StoreError>;

    /// The changes after a version, oldest first.
    async fn changes_since(&self, version: i64, limit: usize) -> Result<Vec<Change>, StoreError> {
        let damaged =
            |version: i64| StoreError::Damaged { what: "registry change", key: version.to_string() };
        let logged = self.logged_since(version, limit).await?;
        logged.iter().map(|it| it.read().ok_or_else(|| damaged(it.version))).collect()
    }

    /// Adds the next seal of the chain over the changes. One that does not follow the last is refused as stale:
    /// somebody else has sealed since.
    async fn seal(&self, seal: Seal) -> Result<(), StoreError>;

    /// The seals after a number, oldest first.
    async fn seals(&self, after: i64, limit: usize) -> Result<Vec<Seal>, StoreError>;

    /// The last seal of the chain.
    async fn last_seal(&self) -> Result<Option<Seal>, StoreError>;
}

/// A message as it is read back from the log.
#[derive(Debug, Clone)]
pub struct LoggedMessage {
    /// Its number.
    pub number: Serial,
    /// How it was decided.
    pub path: Path,
    /// When it was settled.
    pub settled_at: Timestamp,
    /// The message.
    pub message: Message,
}

impl LoggedMessage {
    /// Its telemetry, which is not written again but read off the log.
    pub(crate) fn delivered(&self) -> StoredRecord {
        StoredRecord {
            number: self.number,
            kind: telemetry::delivered_kind(&self.message).to_owned(),
            at: self.message.received_at,
            source: Some(self.message.source.to_string()),
            body: telemetry::delivered(&self.message, self.path, self.settled_at),
        }
    }
}

/// That a message was dispatched: by which permission, and not what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The number of the message.
    pub number: Serial,
    /// What kind of message it is.
    pub kind: MessageKind,
    /// Its id.
    pub id: MessageId,
    /// Who sent it.
    pub source: ServiceName,
    /// To whom.
    pub target: ServiceName,
    /// Which command, or event type.
    pub name: CommandName,
    /// The key it was signed with, if it was.
    pub key_version: Option<KeyVersion>,
    /// What it belongs to.
    pub correlation: CorrelationId,
    /// The registry it was judged by.
    pub registry_version: i64,
    /// When it was settled.
    pub settled_at: Timestamp,
}

/// What telemetry tells of an id.
#[derive(Debug, Clone, Default)]
pub struct ToldOf {
    /// Newest first; some of them may only mention it.
    pub records: Vec<StoredRecord>,
    /// Whether there are records that were not looked at.
    pub is_part: bool,
}

impl ToldOf {
    /// The id as it stands in a record.
    pub(crate) fn name(id: &IdKey) -> String {
        serde_json::Value::from(id.id.as_str()).to_string()
    }
}

/// A dead letter with its message.
#[derive(Debug, Clone)]
pub struct StoredDeadLetter {
    /// The dead letter; its id is its delivery's.
    pub letter: DeadLetter,
    /// The message it carries.
    pub message: Message,
}

/// A dead letter in a list: with what identifies its message, and without its content.
#[derive(Debug, Clone)]
pub struct ListedDeadLetter {
    /// The dead letter; its id is its delivery's.
    pub letter: DeadLetter,
    /// The id of the message it carries.
    pub message_id: MessageId,
    /// Who sent it.
    pub source: ServiceName,
    /// What it belongs to.
    pub correlation: CorrelationId,
}

/// What somebody did, as it is read back.
#[derive(Debug, Clone)]
pub struct AuditEntry {
    /// Its number.
    pub number: Serial,
    /// What was done, for example `queue.purge`.
    pub action: String,
    /// To what.
    pub object: String,
    /// Who, why, when.
    pub act: Act,
    /// What came of it.
    pub outcome: String,
}

/// Ids that were used for two contents (CLM-8, CLM-12).
#[async_trait]
pub trait Conflicts: Send + Sync {
    /// Conflicts after a number, of one owner or of all, in one state or in any.
    async fn conflicts(
        &self,
        owner: Option<&str>,
        state: Option<ConflictState>,
        after: Serial,
        limit: usize,
    ) -> Result<Vec<Conflict>, StoreError>;

    /// One with both of its messages.
    async fn conflict(&self, id: Serial) -> Result<Option<StoredConflict>, StoreError>;

    /// Those under an id, of one owner or of all, in their order: the first thousand.
    async fn conflicts_of(&self, id: &IdKey, owner: Option<&str>) -> Result<Vec<Conflict>, StoreError>;

    /// The conflicts of an id, whichever tenant sent it, by the senders and parties that are asked for; a party decides the
    /// conflict where it owns the destination. [`bounds::PAGE_MAX`] at most.
    async fn conflicts_under(&self, asked: &ClaimLookUp) -> Result<Vec<Conflict>, StoreError>;

    /// Moves one on, on the record. Of two at once one wins, and the other is told where it stands now; of two that name one
    /// reversal, too.
    async fn move_conflict(
        &self,
        id: Serial,
        to: Move,
        act: Act,
    ) -> Result<Option<Result<Conflict, Immovable>>, StoreError>;

    /// How many nobody has resolved yet.
    async fn open_conflicts(&self) -> Result<u64, StoreError>;
}

/// A conflict with both of its messages.
#[derive(Debug, Clone)]
pub struct StoredConflict {
    /// The conflict.
    pub conflict: Conflict,
    /// What was first, if it can be read.
    pub original: Option<LoggedMessage>,
    /// What came under the same id, if it can be read.
    pub conflicting: Option<LoggedMessage>,
    /// How often its producer has caused conflicts of the same owner.
    pub of_source: u64,
}

/// Where a dead letter came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterOrigin {
    /// The dead letter.
    pub id: Serial,
    /// The queue that it was in.
    pub queue: QueueKey,
    /// The route or subscription that it was for.
    pub destination: Arc<str>,
}

/// What a purge came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purged {
    /// How much was deleted.
    pub deleted: u64,
    /// How much was tried before, and is a dead letter now.
    pub in_doubt: u64,
    /// How much somebody is at, and stays.
    pub in_progress: u64,
}

impl Purged {
    /// What the record says came of it.
    pub(crate) fn outcome(&self) -> String {
        let Self { deleted, in_doubt, .. } = self;
        let doubts = if *in_doubt > 0 { format!(", {in_doubt} in doubt") } else { String::new() };
        format!("{deleted} deliveries deleted{doubts}")
    }
}

/// What was done, to what, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deed {
    /// What was done, for example `queue.purge`.
    pub action: &'static str,
    /// To what.
    pub object: String,
    /// What came of it.
    pub outcome: String,
}

/// Takes down what somebody did, where that is no part of another commit.
#[async_trait]
pub trait Audit: Send + Sync {
    /// Durable when it returns.
    async fn put_on_record(&self, act: Act, deed: Deed) -> Result<(), StoreError>;
}

/// Reads what happened. Every call is one bounded query that sees one state of the store. Lists page by number;
/// what is damaged is told of, left out and not counted, so that it never stands in the way of the rest.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Messages of a tenant after a number, oldest first, up to a number and [`bounds::PAGE_BYTES_MAX`] of payload:
    /// only an empty page is the end.
    async fn messages(
        &self,
        tenant: &str,
        after: Serial,
        limit: usize,
    ) -> Result<Vec<LoggedMessage>, StoreError>;

    /// One message of a tenant, by its number. A damaged one is an error.
    async fn message(&self, tenant: &str, number: Serial) -> Result<Option<LoggedMessage>, StoreError>;

    /// What a tenant's services sent before a number, newest first; what cannot be read is left out.
    async fn uses(&self, tenant: &str, before: Serial, limit: usize) -> Result<Vec<Use>, StoreError>;

    /// Telemetry of a tenant after a number, oldest first; deliveries are read off the message log.
    async fn telemetry(
        &self,
        tenant: &str,
        after: Serial,
        limit: usize,
    ) -> Result<Vec<StoredRecord>, StoreError>;

    /// What is written in telemetry of an id, newest first, among the newest `most` records of its tenant. What is read off
    /// the message log is not looked at: a claim leads to its message.
    async fn told_of(&self, id: &IdKey, most: usize) -> Result<ToldOf, StoreError>;

    /// Fires when telemetry of the tenant may have been written.
    fn telemetry_written(&self, tenant: &str) -> Arc<Notify>;

    /// Dead letters of a tenant after an id, oldest first, of all its dead-letter queues or one.
    async fn dead_letters(
        &self,
        tenant: &str,
        queue: Option<&QueueKey>,
        after: Serial,
        limit: usize,
    ) -> Result<Vec<ListedDeadLetter>, StoreError>;

    /// The dead letters in a dead-letter queue after a number, oldest first, each with where it came from, but for those
    /// that go back on a person's word alone, each by itself: conflicts, and what is in doubt. Their messages are not asked.
    async fn dead_letter_origins(
        &self,
        queue: &QueueKey,
        after: Serial,
        limit: usize,
    ) -> Result<Vec<DeadLetterOrigin>, StoreError>;

    /// How many dead letters in a dead-letter queue have claims that are in doubt, by destination: they are none of
    /// [`Journal::dead_letter_origins`].
    async fn dead_letters_in_doubt(&self, queue: &QueueKey) -> Result<Vec<(Arc<str>, usize)>, StoreError>;

    /// One dead letter of a tenant.
    async fn dead_letter(&self, tenant: &str, id: Serial) -> Result<Option<StoredDeadLetter>, StoreError>;

    /// What people did, after a number, oldest first.
    async fn audit(&self, after: Serial, limit: usize) -> Result<Vec<AuditEntry>, StoreError>;
}

/// Everything a node needs of its engine.
#[async_trait]
pub trait Store:
    Ledger + Queue + RegistryLog + Journal + Audit + Claims + Conflicts + Entities + Archive + Fleet
{
    /// Where a node's clock starts.
    fn anchor(&self) -> Anchor;

    /// The engine's name.
    fn engine(&self) -> &'static str;

    /// Whether the engine can keep the promise of a 2xx (PIP-12), and if not, why.
    fn durability(&self) -> Durability;

    /// Whether the store answers, for readiness.
    async fn ping(&self) -> Result<(), StoreError>;

    /// Figures for status and metrics.
    fn figures(&self) -> Figures;

    /// Finishes what is under way and lets go of the files.
    async fn close(&self);
}

/// Where a node's clock starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// At the wall clock's time, but not before the newest message or telemetry record when the store was opened.
    NotBefore(Timestamp),
    /// At the engine's time, which all its nodes go by.
    At(Timestamp),
}

/// Whether acknowledged means on stable storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Durability {
    /// Every commit is flushed before it is answered.
    Durable,
    /// It is not, for this reason.
    Relaxed(String),
}

/// Running figures of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Commits made since the start: each is one flush.
    pub commits: u64,
    /// Messages settled since the start.
    pub messages: u64,
    /// Statements sent to another process and awaited since the start; none where the engine is in this one.
    pub round_trips: u64,
    /// What only an engine in this process knows of itself.
    pub own: Option<OwnFigures>,
}

/// Running figures of an engine in this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnFigures {
    /// Bytes of the write-ahead log.
    pub wal_bytes: u64,
    /// Deliveries that wait or are in flight.
    pub deliveries: u64,
    /// The store's epoch.
    pub epoch: i64,
}
