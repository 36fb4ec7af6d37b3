//! Reports about processed messages, and the senders that wait for an outcome (CLM-4 to CLM-7).
//!
//! A report that this node takes wakes the waiting senders. A waiting sender also polls the store, because
//! another node may have taken the report.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snavio_model::bounds;
use snavio_model::claim::{ClaimKey, IdKey, Status};
use snavio_model::delivery::ReceiptOutcome;
use snavio_model::delivery::processing::{Answer as Stored, ProcessingKind};
use snavio_model::id::Serial;
use snavio_model::name::{QueueKey, ServiceName, TenantName};
use snavio_model::refusal::{Reason, Refusal, Refused};
use snavio_model::time::Timestamp;
use snavio_store::{Finished, HeldDelivery, Report, StoreError, StoredClaim};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::archive::Trouble;
use crate::gate::Gate;
use crate::outcome::answer::{Answer, Reached, Verdict};
use crate::outcome::failing::FailedAttempt;

mod late;

use late::LateReports;

/// The pause between two polls of a waiting sender. It doubles up to `POLL_MAX`.
const POLL: Duration = Duration::from_millis(50);
const POLL_MAX: Duration = Duration::from_secs(1);
/// The `Retry-After` of a message whose outcome a person must decide.
const UNKNOWN_RETRY_AFTER: Duration = Duration::from_secs(60);
/// The `Retry-After` of a stored response in an archive that is down.
const ARCHIVE_RETRY_AFTER: Duration = Duration::from_secs(30);

/// The time that a sender waits for the outcome of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wait {
    /// The default: waits for the first response of an HTTP processor, and for nothing else.
    #[default]
    Usual,
    /// Waits for this time.
    For(Duration),
    /// Never waits, and returns no earlier outcome either: the sender learns only that the gateway has the
    /// message.
    Never,
}

impl Wait {
    fn first(self, kind: ProcessingKind) -> Duration {
        match (self, kind) {
            (Self::For(wait), ProcessingKind::Http | ProcessingKind::Tracked) => wait.min(bounds::FOLLOW_MAX),
            (Self::Usual, ProcessingKind::Http) => bounds::FOLLOW_USUAL,
            (Self::Never | Self::Usual | Self::For(_), _) => Duration::ZERO,
        }
    }

    fn again(self) -> Duration {
        match self {
            Self::Usual | Self::Never => Duration::ZERO,
            Self::For(wait) => wait.min(bounds::FOLLOW_MAX),
        }
    }
}

/// The outcome of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// True if the message is a duplicate and nothing ran now.
    pub is_replay: bool,
    pub delivery: Serial,
    pub status: Status,
    pub first_seen_at: Timestamp,
    /// The time until which the claim is kept.
    pub kept_until: Timestamp,
    pub reference: Option<String>,
    pub error: Option<String>,
    /// The processor's response, if the claim keeps it.
    pub answer: Option<Stored>,
    /// Whether the response was erased (CLM-18).
    pub is_erased: bool,
}

impl Followed {
    /// The outcome of a duplicate.
    pub(crate) fn seen(
        delivery: Serial,
        status: Status,
        first_seen_at: Timestamp,
        kept_until: Timestamp,
    ) -> Self {
        let (reference, error, answer) = (None, None, None);
        let (is_replay, is_erased) = (true, false);
        Self { is_replay, delivery, status, first_seen_at, kept_until, reference, error, answer, is_erased }
    }
}

/// A delivery with waiting senders.
#[derive(Default)]
struct AwaitedDelivery {
    notify: Arc<Notify>,
    waiters: usize,
}

/// The senders that wait for deliveries, and the counts of repeated ids.
pub(crate) struct Following {
    waiting: Mutex<HashMap<Serial, AwaitedDelivery>>,
    places: Semaphore,
    repeats: Mutex<HashMap<ClaimKey, (u64, Timestamp)>>,
    late: LateReports,
}

impl Default for Following {
    fn default() -> Self {
        let places = Semaphore::new(bounds::FOLLOWERS_MAX);
        Self { waiting: Mutex::default(), places, repeats: Mutex::default(), late: LateReports::default() }
    }
}

impl Following {
    fn wait_for(&self, delivery: Serial) -> Waiter<'_> {
        let mut waiting = lock(&self.waiting);
        let awaited = waiting.entry(delivery).or_default();
        awaited.waiters += 1;
        Waiter { following: self, delivery, notify: Arc::clone(&awaited.notify) }
    }

    fn wake(&self, delivery: Serial) {
        if let Some(awaited) = lock(&self.waiting).get(&delivery) {
            awaited.notify.notify_waiters();
        }
    }

    /// Removes a sender that no longer waits.
    fn forget(&self, delivery: Serial) {
        let mut waiting = lock(&self.waiting);
        if let Entry::Occupied(mut awaited) = waiting.entry(delivery) {
            awaited.get_mut().waiters -= 1;
            if awaited.get().waiters == 0 {
                awaited.remove();
            }
        }
    }

    /// Counts a repeated id. Above the bound of different ids it counts no new one; that loses only a count.
    fn count_repeat(&self, key: ClaimKey, at: Timestamp) {
        let mut repeats = lock(&self.repeats);
        if repeats.len() < bounds::REPEATS_GATHERED_MAX || repeats.contains_key(&key) {
            let (count, last) = repeats.entry(key).or_insert((0, at));
            *count += 1;
            *last = at.max(*last);
        }
    }
}

/// A waiting sender. Dropping it ends the wait.
struct Waiter<'a> {
    following: &'a Following,
    delivery: Serial,
    notify: Arc<Notify>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.following.forget(self.delivery);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn has_ended(status: Status) -> bool {
    matches!(status, Status::Completed | Status::Failed { is_final: true } | Status::InDoubt)
}

/// CLM-17: only stored responses in the archive depend on the archive.
pub(crate) fn unreadable(trouble: &Trouble) -> Refusal {
    match trouble {
        Trouble::Store(_) => Refusal::new(Reason::Unavailable, "the stored response cannot be read now"),
        _ => {
            let detail = "the stored response is in the archive, which cannot be read now";
            Refusal::retry(Reason::Unavailable, ARCHIVE_RETRY_AFTER, detail)
        }
    }
}

impl Gate {
    /// Takes reports about attempts at deliveries of a queue. `who` is the reporter's name.
    pub async fn finish(
        &self,
        queue: &QueueKey,
        reports: Vec<Report>,
        who: &str,
    ) -> Result<Vec<Finished>, StoreError> {
        let failed: Vec<_> = reports.iter().map(FailedAttempt::from_report).collect();
        let finished = self.finish_logged(queue, reports, who).await?;
        for (failed, finished) in failed.into_iter().zip(&finished) {
            let failed = failed.filter(|_| finished.outcome == ReceiptOutcome::Done && !finished.told_before);
            if let Some((failed, status)) = failed.zip(finished.status) {
                self.failing.log_reported(queue, &failed, status, who, self.clock().now());
            }
        }
        Ok(finished)
    }

    /// Like [`Gate::finish`], for a caller that has logged its failures already.
    pub(crate) async fn finish_logged(
        &self,
        queue: &QueueKey,
        reports: Vec<Report>,
        who: &str,
    ) -> Result<Vec<Finished>, StoreError> {
        let receipts: Vec<_> = reports.iter().map(|report| report.receipt).collect();
        let (under_way, on_record) = self.following.late.begin(&receipts);
        let known = reports.into_iter().zip(on_record);
        let reports = known.map(|(report, on_record)| Report { on_record, ..report }).collect();
        let finished = self.store().finish(queue, reports, who, self.clock().now()).await?;
        under_way.ended(receipts.iter().zip(&finished));
        for (receipt, finished) in receipts.iter().zip(&finished) {
            self.meters.finished(finished);
            self.following.wake(receipt.delivery_id);
        }
        Ok(finished)
    }

    /// Adds to each response the outcome of its message, if a processor or consumer reports outcomes on its
    /// route.
    pub(crate) async fn follow_all<'a>(
        &self,
        ended: impl Iterator<Item = (&'a ServiceName, Result<Answer, Refused>)>,
        wait: Wait,
    ) -> Vec<Result<Answer, Refused>> {
        let following = ended.map(|(source, ended)| async move {
            match ended {
                Ok(answer) => self.follow(source, answer, wait).await,
                refused => refused,
            }
        });
        futures_util::future::join_all(following).await
    }

    async fn follow(&self, source: &ServiceName, answer: Answer, wait: Wait) -> Result<Answer, Refused> {
        // The common case: the messages are accepted and no sender waits.
        let is_accepted_without_wait = answer.reached.iter().all(|reached| {
            matches!(reached.verdict, Verdict::Accepted { .. }) && wait.first(reached.processing).is_zero()
        });
        if is_accepted_without_wait {
            return Ok(answer);
        }
        let Ok(tenant) = TenantName::new(source.tenant()) else { return Ok(answer) };
        let id = IdKey { id: answer.id.clone(), tenant };
        let following = answer.reached.iter().map(|reached| self.follow_one(&id, reached, wait));
        let mut followed = futures_util::future::join_all(following).await;
        if let [Err(refusal)] = &mut followed[..] {
            let refusal = refusal.clone();
            return Err(Refused { subject: Box::new(answer.subject()), refusal });
        }
        // An event is accepted as a whole. A destination without a response yet must not hide the responses
        // of the others (PIP-13).
        let reached = answer.reached.iter().zip(followed).map(|(reached, verdict)| Reached {
            verdict: verdict.unwrap_or_else(|refusal| Verdict::Unanswered {
                refusal,
                is_replay: reached.verdict.taken_by().is_none(),
            }),
            ..reached.clone()
        });
        let reached = reached.collect();
        Ok(Answer { reached, ..answer })
    }

    async fn follow_one(&self, id: &IdKey, reached: &Reached, wait: Wait) -> Result<Verdict, Refusal> {
        let unchanged = || Ok(reached.verdict.clone());
        let (delivery, is_replay, for_time) = match &reached.verdict {
            Verdict::Accepted { delivery, .. } => (*delivery, false, wait.first(reached.processing)),
            Verdict::Duplicate { first_seen_at: Some(_) } => {
                self.count_repeat(id, &reached.destination);
                return unchanged();
            }
            Verdict::Duplicate { .. }
            | Verdict::Skipped
            | Verdict::Buried { .. }
            | Verdict::Unanswered { .. } => {
                return unchanged();
            }
            Verdict::Followed(seen) => {
                self.count_repeat(id, &reached.destination);
                if wait == Wait::Never {
                    return unchanged();
                }
                (seen.delivery, true, wait.again())
            }
        };
        if !is_replay && for_time.is_zero() {
            return unchanged();
        }
        let claim = match self.outcome_of(id, &reached.destination, delivery, for_time, is_replay).await {
            Ok(Some(claim)) => claim,
            // The claim expired since it was judged, or it was never made.
            Ok(None) => return Err(Refusal::lost("the claim has expired")),
            Err(error) if is_replay => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a claim could not be read");
                return Err(Refusal::new(Reason::Unavailable, "the store cannot answer now"));
            }
            // The message is accepted in any case.
            Err(_) => return unchanged(),
        };
        let status = claim.status(self.clock().now());
        if !has_ended(status) && !is_replay {
            return unchanged();
        }
        // If the outcome is unknown, the first sender gets no response either.
        if let Some(refusal) = self.pending_refusal(&claim, status) {
            return Err(refusal);
        }
        let followed = self.read_outcome(claim, delivery, is_replay).await.map_err(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "a stored response could not be read");
            unreadable(&error)
        })?;
        Ok(Verdict::Followed(Box::new(followed)))
    }

    /// Counts a repeated id (CLM-5).
    pub(crate) fn count_repeat(&self, id: &IdKey, destination: &Arc<str>) {
        let IdKey { id, tenant } = id.clone();
        let key = ClaimKey { id, tenant, destination: Arc::clone(destination) };
        self.following.count_repeat(key, self.clock().now());
    }

    /// Waits up to a time for the outcome of a claim. A claim that was made just now is first read after a
    /// report about it, or after a short pause.
    pub(crate) async fn outcome_of(
        &self,
        id: &IdKey,
        destination: &str,
        delivery: Serial,
        wait: Duration,
        is_old: bool,
    ) -> Result<Option<StoredClaim>, StoreError> {
        let deadline = Instant::now() + wait;
        // If too many senders wait already, this one does not wait.
        let place = self.following.places.try_acquire();
        let waiter = self.following.wait_for(delivery);
        let mut pause = POLL;
        if !is_old && place.is_ok() {
            let _ =
                tokio::time::timeout_at(deadline.min(Instant::now() + pause), waiter.notify.notified()).await;
        }
        let found = loop {
            let report = waiter.notify.notified();
            tokio::pin!(report);
            report.as_mut().enable();
            let claims = self.store().claims_of(id, self.clock().now()).await?;
            // Another message may have the id now, after the first claim expired.
            let claim = claims.into_iter().find(|stored| {
                let progress = stored.claim.progress.as_ref();
                *stored.key.destination == *destination
                    && progress.is_some_and(|progress| progress.delivery == delivery)
            });
            let has_ended = claim.as_ref().is_none_or(|stored| has_ended(stored.claim.status()));
            let now = Instant::now();
            if has_ended || now >= deadline || place.is_err() {
                break claim;
            }
            let _ = tokio::time::timeout_at(deadline.min(now + pause), report).await;
            pause = (2 * pause).min(POLL_MAX);
        };
        Ok(found)
    }

    /// The refusal of a repeated message that has no outcome yet, if so.
    pub(crate) fn pending_refusal(&self, claim: &StoredClaim, status: Status) -> Option<Refusal> {
        let now = self.clock().now();
        let until = |at: Timestamp| at.since(now).max(Duration::from_secs(1));
        match (status, claim.held) {
            (Status::Processing, Some(HeldDelivery::Leased { until: end, .. })) => {
                Some(Refusal::retry(Reason::InProgress, until(end), "the same message is being processed"))
            }
            (Status::Processing, _) => {
                let detail = "the same message waits for processing";
                Some(Refusal::retry(Reason::InProgress, Duration::from_secs(1), detail))
            }
            (Status::Failed { is_final: false }, held) => {
                let due = match held {
                    Some(HeldDelivery::Due(at)) => until(at),
                    _ => Duration::from_secs(1),
                };
                Some(Refusal::retry(Reason::RetryLater, due, "the message failed and will be retried"))
            }
            (Status::InDoubt, _) => {
                let detail = "the outcome of the message is unknown; it is held for a person";
                Some(Refusal::retry(Reason::OutcomeUnknown, UNKNOWN_RETRY_AFTER, detail))
            }
            (Status::Completed | Status::Failed { is_final: true }, _) => None,
        }
    }

    pub(crate) async fn read_outcome(
        &self,
        claim: StoredClaim,
        delivery: Serial,
        is_replay: bool,
    ) -> Result<Followed, Trouble> {
        let answer = self.answer_of(&claim, delivery).await?;
        let is_erased = claim.erased_at.is_some();
        let claim = claim.claim;
        let status = claim.status();
        let progress = claim.progress.map(|progress| *progress);
        let (reference, error) =
            progress.map(|progress| (progress.reference, progress.error)).unwrap_or_default();
        Ok(Followed {
            is_replay,
            delivery,
            status,
            first_seen_at: claim.first_seen_at,
            kept_until: claim.expires_at,
            reference,
            error,
            answer,
            is_erased,
        })
    }

    /// Writes the counts of repeated ids.
    pub(crate) async fn write_repeats(&self) {
        let repeats = std::mem::take(&mut *lock(&self.following.repeats));
        if repeats.is_empty() {
            return;
        }
        let seen = repeats.into_iter().map(|(key, (count, at))| (key, count, at)).collect();
        if let Err(error) = self.store().seen_again(seen).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the counts of repeated ids could not be written"
            );
        }
    }
}

#[cfg(test)]
mod tests;
