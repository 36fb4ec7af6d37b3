//! Moving everything from an embedded store into an empty database (ENG-3, ENG-7).
//!
//! The one engine reads, row by row and each checked, the other writes page by page in one transaction: until it is
//! committed the database stays empty, so a move that was cut short is begun again and nothing of it is left.

use std::path::Path;

use snavio_model::archive::hold::Hold;
use snavio_model::claim::conflict::Conflict;
use snavio_model::claim::{Claim, ClaimKey, IdKey, Original};
use snavio_model::delivery::processing::Answer;
use snavio_model::delivery::{DeadLetter, Delivery};
use snavio_model::id::Serial;
use snavio_model::ordering::{EntityKey, EntityRecord};
use snavio_model::registry::{Entry, LoggedChange, Seal};
use snavio_model::telemetry::StoredRecord;
use tokio::sync::mpsc;

use crate::api::archive::{Aside, SegmentRow};
use crate::engine::postgres::Incoming;
use crate::engine::sqlite::{BackupError, Outgoing};
use crate::engine::{postgres, sqlite};
use crate::record::lease::KeptLease;
use crate::{AuditEntry, LoggedMessage, StoreError};

/// Pages that wait to be written: reading and writing go side by side, and no more than this is held.
const PAGES_AHEAD: usize = 2;

/// A part of a store on its way, small enough to be held as a whole.
pub(crate) enum Page {
    /// Comes first: what the new store must go on from.
    Head {
        above: Serial,
        registry_version: i64,
        entries: Vec<Entry>,
    },
    /// As they are written: their seals are over the text.
    Changes(Vec<LoggedChange>),
    Seals(Vec<Seal>),
    /// Each with the version of its hash.
    Messages(Vec<(LoggedMessage, u16)>),
    Claims(Vec<(ClaimKey, Claim)>),
    /// What claims have besides: where they are in the archive, how often they came again.
    Asides(Vec<Aside>),
    Originals(Vec<(IdKey, Original)>),
    Conflicts(Vec<Conflict>),
    Answers(Vec<(Serial, Answer)>),
    /// Each with its lease, which says nothing where no claim waits for it.
    Deliveries(Vec<(Delivery, KeptLease)>),
    DeadLetters(Vec<DeadLetter>),
    /// Each with its tenant.
    Telemetry(Vec<(String, StoredRecord)>),
    Audit(Vec<AuditEntry>),
    /// What is known of entities.
    Entities(Vec<(EntityKey, EntityRecord)>),
    Holds(Vec<Hold>),
    Segments(Vec<SegmentRow>),
    Pins(Vec<(String, String)>),
    Notes(Vec<(String, String)>),
    /// Comes last, and says what was left out: without it the store was not read to its end.
    End {
        damaged: Vec<String>,
    },
}

/// What went over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moved {
    /// The registry's version.
    pub registry_version: i64,
    /// Everything that is registered.
    pub registry_entries: u64,
    /// Changes that led to it.
    pub registry_changes: u64,
    /// Seals over them.
    pub seals: u64,
    /// Messages of the log.
    pub messages: u64,
    /// Ids that are taken.
    pub claims: u64,
    /// Ids that were used for two contents.
    pub conflicts: u64,
    /// Deliveries that wait.
    pub deliveries: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// Telemetry records, besides those that are read off the log.
    pub telemetry: u64,
    /// What people did, the move not counted.
    pub audit: u64,
    /// Above this number are those that the database gives.
    pub numbers_above: i64,
    /// What was damaged and left out.
    pub damaged: Vec<String>,
}

/// Why nothing was moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The embedded store cannot be had, or read.
    #[error("cannot read the embedded store")]
    From(#[from] BackupError),
    /// The database cannot be opened.
    #[error("cannot open the database")]
    To(#[from] postgres::OpenError),
    /// There is something in the database.
    #[error("the database has rows in {0} already; a store is moved into an empty one")]
    NotEmpty(&'static str),
    /// Somebody uses it.
    #[error("node {0} serves over the database; stop it first")]
    Served(String),
    /// The store's numbers come too near to their end.
    #[error("the embedded store has used up its epochs")]
    Epochs,
    /// A row cannot be read as it was written.
    #[error("nothing was moved; snavio doctor names all that is damaged, and --skip-damaged moves the rest")]
    Damaged(#[source] StoreError),
    /// A row that nothing may do without cannot be read as it was written.
    #[error(
        "nothing was moved: the registry and holds cannot be left out, and one of them is damaged; restore the newest sound \
         backup, or have it mended"
    )]
    Needed(#[source] StoreError),
    /// Whether the last step was taken is not known.
    #[error(
        "the database gave no answer to the commit: it has all of the store, or nothing; move again, it refuses if it has"
    )]
    Unanswered(#[source] StoreError),
    /// Everything was moved, and the folder does not say so.
    #[error(
        "everything was moved, but the old folder could not be marked: put it away, nothing may serve over it"
    )]
    Unmarked(#[source] std::io::Error),
    /// Nothing was moved.
    #[error("nothing was moved")]
    Store(#[from] StoreError),
}

/// Moves the store of a folder into an empty database. What is damaged stops it, or is left out and told. The
/// folder keeps its store, marked so that no node serves over it; nobody must serve over either meanwhile.
pub async fn move_store(
    folder: &Path,
    to: &postgres::Options,
    skip_damaged: bool,
) -> Result<Moved, MoveError> {
    let from = folder.to_owned();
    let outgoing = blocking(move || Outgoing::open(&from)).await??;
    let mut incoming = Incoming::open(to).await?;
    let (sender, pages) = mpsc::channel(PAGES_AHEAD);
    let reading = blocking(move || {
        let read =
            outgoing.read(skip_damaged, |page| sender.blocking_send(page).map_err(|_| StoreError::Closed));
        // The folder is ours until the database has everything.
        (outgoing, read)
    });
    let reading = tokio::spawn(reading);
    let written = incoming.write(&folder.display().to_string(), pages).await;
    let (_outgoing, read) =
        reading.await.map_err(|error| MoveError::Store(StoreError::Unavailable(Box::new(error))))??;
    if matches!(written, Ok(_) | Err(MoveError::Unanswered(_))) {
        sqlite::mark_as_moved(folder, &postgres::place(to)?).map_err(MoveError::Unmarked)?;
    }
    match (read, written) {
        // Who writes notices only that no more pages came; who read knows why.
        (Err(error), Err(MoveError::Store(StoreError::Closed))) => Err(error),
        (_, written) => written,
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| StoreError::Unavailable(Box::new(error)))
}
