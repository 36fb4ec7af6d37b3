//! A store that keeps only the registry, in memory. It measures the cost of the server without a real store.
//!
//! It makes no decisions and keeps no promises: every message is accepted. Only the bench starts a node over
//! it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use snavio_model::archive::hold::Hold;
use snavio_model::archive::{self, Pointer};
use snavio_model::claim::conflict::{Conflict, ConflictState, Immovable, Move};
use snavio_model::claim::{Claim, ClaimKey, IdKey, Status};
use snavio_model::delivery::processing::Answer;
use snavio_model::delivery::{QueueAttributes, Receipt, ReceiptOutcome};
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::QueueKey;
use snavio_model::ordering::{EntityKey, EntityRecord, EntityState, NotParked};
use snavio_model::registry::{Change, Entry, EntryKey, LoggedChange, Seal};
use snavio_model::settle::{Intake, Outcome, Settlement};
use snavio_model::telemetry::{Record, StoredRecord};
use snavio_model::time::Timestamp;
use snavio_store::{
    Act, Anchor, Archive, Audit, AuditEntry, ClaimFilter, ClaimLookUp, Claims, Conflicts, Cooled, CooledUpTo,
    DeadLetterOrigin, Deed, Durability, Entities, Erasure, Figures, Finished, Fleet, Heard, HeldBack,
    Journal, Ledger, ListedDeadLetter, LoggedMessage, NewHold, NewSegment, NodeSeen, NodeState, Purged,
    Queue, Received, Redriven, RegistryLog, Report, Reset, Settled, Store, StoreError, StoredClaim,
    StoredConflict, StoredDeadLetter, Swept, ToldOf, Use, WaitsEnded,
};
use tokio::sync::Notify;

/// Keeps the changes of the registry in memory, and nothing else.
#[derive(Default)]
pub(super) struct NullStore {
    changes: Mutex<Vec<Change>>,
    seals: Mutex<Vec<Seal>>,
    last: AtomicI64,
    batches: AtomicU64,
    messages: AtomicU64,
    never: Arc<Notify>,
}

impl NullStore {
    fn changes(&self) -> std::sync::MutexGuard<'_, Vec<Change>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settlement(&self, intake: &Intake) -> Settlement {
        let number = || Serial(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        let outcomes = intake.destinations.iter().map(|_| Outcome::Queued { delivery: number() });
        let outcomes = outcomes.collect();
        Settlement::unordered(Some(number()), outcomes)
    }
}

#[async_trait]
impl Ledger for NullStore {
    fn settle(&self, batch: Vec<Intake>, _: Timestamp, done: Settled) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.messages.fetch_add(batch.len() as u64, Ordering::Relaxed);
        done(Ok(batch.iter().map(|intake| self.settlement(intake)).collect()));
    }

    fn batches_at_once(&self) -> usize {
        1
    }

    async fn foresee(&self, intake: Intake, _: Timestamp) -> Result<Settlement, StoreError> {
        Ok(Settlement::unordered(None, vec![Outcome::TooLate; intake.destinations.len()]))
    }

    async fn record(&self, _: Vec<Record>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn sweep(&self, _: Timestamp) -> Result<Swept, StoreError> {
        Ok(Swept::default())
    }
}

#[async_trait]
impl Queue for NullStore {
    async fn receive(
        &self,
        _: &QueueKey,
        _: usize,
        _: Duration,
        _: Timestamp,
    ) -> Result<Vec<Received>, StoreError> {
        Ok(Vec::new())
    }

    fn arrivals(&self, _: &QueueKey) -> Arc<Notify> {
        Arc::clone(&self.never)
    }

    async fn extend(
        &self,
        _: &QueueKey,
        receipts: Vec<Receipt>,
        _: Duration,
        _: Timestamp,
    ) -> Result<Vec<ReceiptOutcome>, StoreError> {
        Ok(vec![ReceiptOutcome::Gone; receipts.len()])
    }

    async fn take_back(&self, _: &QueueKey, _: Vec<Receipt>, _: Timestamp) -> Result<(), StoreError> {
        Ok(())
    }

    async fn purge(&self, _: &QueueKey, _: Act) -> Result<Purged, StoreError> {
        Ok(Purged::default())
    }

    async fn redrive(&self, _: &str, _: Vec<Serial>, _: Act) -> Result<Redriven, StoreError> {
        Ok(Redriven::default())
    }

    async fn reprocess(&self, _: &str, _: Serial, _: Act) -> Result<Redriven, StoreError> {
        Ok(Redriven::default())
    }

    async fn attributes(&self, _: &QueueKey, _: Timestamp) -> Result<QueueAttributes, StoreError> {
        Ok(QueueAttributes::default())
    }

    async fn holds_any(&self, _: &QueueKey) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn destinations(&self, _: &QueueKey) -> Result<BTreeSet<String>, StoreError> {
        Ok(BTreeSet::new())
    }

    async fn all_attributes(&self, _: Timestamp) -> Result<Vec<(QueueKey, QueueAttributes)>, StoreError> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl Claims for NullStore {
    async fn finish(
        &self,
        _: &QueueKey,
        reports: Vec<Report>,
        _: &str,
        _: Timestamp,
    ) -> Result<Vec<Finished>, StoreError> {
        Ok(vec![Finished::new(ReceiptOutcome::Gone, None); reports.len()])
    }

    async fn take(
        &self,
        _: &QueueKey,
        _: Serial,
        _: Duration,
        _: Timestamp,
    ) -> Result<Option<Received>, StoreError> {
        Ok(None)
    }

    async fn has_claims(&self, _: &str) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn is_concerned(&self, _: &str, _: &MessageId) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn claims_under(&self, _: &ClaimLookUp, _: Timestamp) -> Result<Vec<StoredClaim>, StoreError> {
        Ok(Vec::new())
    }

    async fn claims_of(&self, _: &IdKey, _: Timestamp) -> Result<Vec<StoredClaim>, StoreError> {
        Ok(Vec::new())
    }

    async fn open_claims(
        &self,
        _: &ClaimFilter,
        _: usize,
        _: Timestamp,
    ) -> Result<Vec<StoredClaim>, StoreError> {
        Ok(Vec::new())
    }

    async fn answer(&self, _: Serial) -> Result<Option<Answer>, StoreError> {
        Ok(None)
    }

    async fn import(&self, _: Vec<(ClaimKey, Claim)>, _: Act) -> Result<usize, StoreError> {
        Ok(0)
    }

    async fn settle_claim(
        &self,
        _: &str,
        _: Serial,
        _: Option<String>,
        _: Act,
    ) -> Result<Option<Result<Status, HeldBack>>, StoreError> {
        Ok(None)
    }

    async fn seen_again(&self, _: Vec<(ClaimKey, u64, Timestamp)>) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl RegistryLog for NullStore {
    async fn version(&self) -> Result<i64, StoreError> {
        Ok(self.changes().last().map_or(0, |change| change.version))
    }

    async fn was_registered(&self, key: &EntryKey) -> Result<bool, StoreError> {
        Ok(self.changes().iter().any(|change| change.key == *key))
    }

    async fn load(&self) -> Result<(i64, Vec<Entry>), StoreError> {
        Ok((0, Vec::new()))
    }

    async fn apply(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        let mut log = self.changes();
        let version = log.last().map_or(0, |change| change.version);
        match changes.first() {
            Some(first) if first.version != version + 1 => {
                Err(StoreError::Stale { based_on: first.version - 1 })
            }
            _ => {
                log.extend(changes);
                Ok(())
            }
        }
    }

    async fn logged_since(&self, version: i64, limit: usize) -> Result<Vec<LoggedChange>, StoreError> {
        let log = self.changes();
        let since = log.iter().filter(|change| change.version > version).take(limit);
        let logged: Result<_, _> = since.map(LoggedChange::of).collect();
        logged.map_err(|error| StoreError::Unavailable(Box::new(error)))
    }

    async fn seal(&self, seal: Seal) -> Result<(), StoreError> {
        self.seals.lock().unwrap_or_else(PoisonError::into_inner).push(seal);
        Ok(())
    }

    async fn seals(&self, after: i64, limit: usize) -> Result<Vec<Seal>, StoreError> {
        let seals = self.seals.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(seals.iter().filter(|seal| seal.number > after).take(limit).cloned().collect())
    }

    async fn last_seal(&self) -> Result<Option<Seal>, StoreError> {
        Ok(self.seals.lock().unwrap_or_else(PoisonError::into_inner).last().cloned())
    }
}

#[async_trait]
impl Journal for NullStore {
    async fn messages(&self, _: &str, _: Serial, _: usize) -> Result<Vec<LoggedMessage>, StoreError> {
        Ok(Vec::new())
    }

    async fn message(&self, _: &str, _: Serial) -> Result<Option<LoggedMessage>, StoreError> {
        Ok(None)
    }

    async fn uses(&self, _: &str, _: Serial, _: usize) -> Result<Vec<Use>, StoreError> {
        Ok(Vec::new())
    }

    async fn telemetry(&self, _: &str, _: Serial, _: usize) -> Result<Vec<StoredRecord>, StoreError> {
        Ok(Vec::new())
    }

    async fn told_of(&self, _: &IdKey, _: usize) -> Result<ToldOf, StoreError> {
        Ok(ToldOf::default())
    }

    fn telemetry_written(&self, _: &str) -> Arc<Notify> {
        Arc::clone(&self.never)
    }

    async fn dead_letters(
        &self,
        _: &str,
        _: Option<&QueueKey>,
        _: Serial,
        _: usize,
    ) -> Result<Vec<ListedDeadLetter>, StoreError> {
        Ok(Vec::new())
    }

    async fn dead_letter_origins(
        &self,
        _: &QueueKey,
        _: Serial,
        _: usize,
    ) -> Result<Vec<DeadLetterOrigin>, StoreError> {
        Ok(Vec::new())
    }

    async fn dead_letters_in_doubt(&self, _: &QueueKey) -> Result<Vec<(Arc<str>, usize)>, StoreError> {
        Ok(Vec::new())
    }

    async fn dead_letter(&self, _: &str, _: Serial) -> Result<Option<StoredDeadLetter>, StoreError> {
        Ok(None)
    }

    async fn audit(&self, _: Serial, _: usize) -> Result<Vec<AuditEntry>, StoreError> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl Audit for NullStore {
    async fn put_on_record(&self, _: Act, _: Deed) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl Fleet for NullStore {
    async fn pin(&self, _: &str, value: &str) -> Result<String, StoreError> {
        Ok(value.to_owned())
    }

    async fn pinned(&self, _: &str) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    async fn repin(&self, _: &str, _: &str, _: &str) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn note(&self, _: &str) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    async fn notes(&self, _: &str) -> Result<Vec<(String, String)>, StoreError> {
        Ok(Vec::new())
    }

    async fn notes_after(&self, _: &str, _: usize) -> Result<Vec<(String, String)>, StoreError> {
        Ok(Vec::new())
    }

    async fn set_note(&self, _: &str, _: &str, _: Vec<Record>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn move_note(&self, _: &str, _: Option<&str>, _: &str, _: Vec<Record>) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn remove_note(&self, _: &str, _: &str) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn announce(&self, _: &NodeState) -> Result<Heard, StoreError> {
        Ok(Heard::default())
    }

    async fn nodes(&self) -> Result<Vec<NodeSeen>, StoreError> {
        Ok(Vec::new())
    }

    async fn leave(&self, _: &str) -> Result<(), StoreError> {
        Ok(())
    }

    async fn lead(&self, _: &str, _: &str, _: Duration) -> Result<bool, StoreError> {
        Ok(true)
    }
}

#[async_trait]
impl Entities for NullStore {
    async fn entity(&self, _: &EntityKey, _: Timestamp) -> Result<Option<EntityRecord>, StoreError> {
        Ok(None)
    }

    async fn reset_entity(&self, _: &EntityKey, _: bool, _: Act) -> Result<Reset, StoreError> {
        Ok(Reset::Unknown)
    }

    async fn skip_parked(
        &self,
        _: &EntityKey,
        _: i64,
        _: Act,
    ) -> Result<Option<Result<EntityState, NotParked>>, StoreError> {
        Ok(None)
    }

    async fn end_waits(&self, _: Timestamp) -> Result<WaitsEnded, StoreError> {
        Ok(WaitsEnded::default())
    }
}

#[async_trait]
impl Conflicts for NullStore {
    async fn conflicts(
        &self,
        _: Option<&str>,
        _: Option<ConflictState>,
        _: Serial,
        _: usize,
    ) -> Result<Vec<Conflict>, StoreError> {
        Ok(Vec::new())
    }

    async fn conflict(&self, _: Serial) -> Result<Option<StoredConflict>, StoreError> {
        Ok(None)
    }

    async fn conflicts_under(&self, _: &ClaimLookUp) -> Result<Vec<Conflict>, StoreError> {
        Ok(Vec::new())
    }

    async fn conflicts_of(&self, _: &IdKey, _: Option<&str>) -> Result<Vec<Conflict>, StoreError> {
        Ok(Vec::new())
    }

    async fn move_conflict(
        &self,
        _: Serial,
        _: Move,
        _: Act,
    ) -> Result<Option<Result<Conflict, Immovable>>, StoreError> {
        Ok(None)
    }

    async fn open_conflicts(&self) -> Result<u64, StoreError> {
        Ok(0)
    }
}

#[async_trait]
impl Archive for NullStore {
    async fn cooled(&self, _: Option<CooledUpTo>, _: Timestamp) -> Result<Cooled, StoreError> {
        Ok(Cooled::default())
    }

    async fn begin_segment(&self, _: NewSegment, _: Timestamp) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn moved(&self, _: Vec<(archive::Record, Pointer)>, _: Timestamp) -> Result<usize, StoreError> {
        Ok(0)
    }

    async fn archive_backlog(&self, _: Timestamp) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn loose_segments(&self, _: &str, _: usize) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    async fn settle_segment(&self, _: &str, _: Timestamp) -> Result<(), StoreError> {
        Ok(())
    }

    async fn pointed(&self, _: &str) -> Result<Vec<Pointer>, StoreError> {
        Ok(Vec::new())
    }

    async fn repoint(&self, _: Vec<(Pointer, Pointer)>) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn spent_segments(&self, _: &str, _: usize, _: Timestamp) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    async fn is_ending(&self, _: &str) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn unsettled_segments(&self) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn forget_segment(&self, _: &str, _: Timestamp) -> Result<(), StoreError> {
        Ok(())
    }

    async fn erase(
        &self,
        _: &IdKey,
        _: Vec<(Pointer, Pointer)>,
        _: Option<&str>,
        _: Act,
    ) -> Result<Erasure, StoreError> {
        Ok(Erasure::Unknown)
    }

    async fn set_hold(&self, _: NewHold, _: Act) -> Result<Option<Hold>, StoreError> {
        Err(StoreError::Unavailable("this store keeps nothing".into()))
    }

    async fn holds(&self, _: Option<&str>, _: bool, _: Serial, _: usize) -> Result<Vec<Hold>, StoreError> {
        Ok(Vec::new())
    }

    async fn hold(&self, _: Serial) -> Result<Option<Hold>, StoreError> {
        Ok(None)
    }

    async fn lift_hold(&self, _: Serial, _: Act) -> Result<Option<Hold>, StoreError> {
        Ok(None)
    }
}

#[async_trait]
impl Store for NullStore {
    fn anchor(&self) -> Anchor {
        Anchor::NotBefore(Timestamp(0))
    }

    fn engine(&self) -> &'static str {
        "none"
    }

    fn durability(&self) -> Durability {
        Durability::Relaxed("this store keeps nothing; it is only for measurements".into())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn figures(&self) -> Figures {
        Figures {
            commits: self.batches.load(Ordering::Relaxed),
            messages: self.messages.load(Ordering::Relaxed),
            ..Figures::default()
        }
    }

    async fn close(&self) {}
}
