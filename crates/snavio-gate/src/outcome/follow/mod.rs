//! What becomes of messages whose work is reported back: reports are taken here, and waited for (CLM-4 to CLM-7).
//!
//! Whoever waits is woken by a report that this node takes, and looks by itself now and then: another node may have
//! taken it.

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
use crate::outcome::failing::Failed;

mod late;

use late::LateReports;

/// How soon somebody who waits looks by itself; then ever later, up to the longest.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_MAX: Duration = Duration::from_secs(1);
/// When to ask again about what a person must decide.
const DOUBT_ASKED_AGAIN: Duration = Duration::from_secs(60);
/// When to ask again for what is in the archive while that is down.
const ARCHIVE_ASKED_AGAIN: Duration = Duration::from_secs(30);

/// For how long a sender waits for what becomes of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wait {
    /// As is usual: for an HTTP processor's first answer, for nothing else.
    #[default]
    Usual,
    /// For as long as it says.
    For(Duration),
    /// Not at all, nor for what became of it before: whoever sent it is told only that it is here.
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

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// Whether it was sent before, and nothing ran now.
    pub is_replay: bool,
    /// The delivery that carried the work.
    pub delivery: Serial,
    /// Where it stands.
    pub status: Status,
    /// When it was first seen.
    pub first_seen_at: Timestamp,
    /// Until when this is known.
    pub kept_until: Timestamp,
    /// The posting reference.
    pub reference: Option<String>,
    /// What went wrong.
    pub error: Option<String>,
    /// What the processor answered, where that is kept.
    pub answer: Option<Stored>,
    /// Whether what it said was destroyed (CLM-18).
    pub is_erased: bool,
}

impl Followed {
    /// One that was sent before.
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

/// A delivery whose end somebody waits for.
#[derive(Default)]
struct Awaited {
    notify: Arc<Notify>,
    waiters: usize,
}

/// Who waits for which delivery, and which ids came again.
pub(crate) struct Following {
    waiting: Mutex<HashMap<Serial, Awaited>>,
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

    /// One who waited does so no more.
    fn forget(&self, delivery: Serial) {
        let mut waiting = lock(&self.waiting);
        if let Entry::Occupied(mut awaited) = waiting.entry(delivery) {
            awaited.get_mut().waiters -= 1;
            if awaited.get().waiters == 0 {
                awaited.remove();
            }
        }
    }

    /// Notes that an id came again; past the bound it is not counted, which costs a count and nothing else.
    fn came_again(&self, key: ClaimKey, at: Timestamp) {
        let mut repeats = lock(&self.repeats);
        if repeats.len() < bounds::REPEATS_GATHERED_MAX || repeats.contains_key(&key) {
            let (count, last) = repeats.entry(key).or_insert((0, at));
            *count += 1;
            *last = at.max(*last);
        }
    }
}

/// Somebody who waits, however that ends.
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

fn is_over(status: Status) -> bool {
    matches!(status, Status::Completed | Status::Failed { is_final: true } | Status::InDoubt)
}

/// CLM-17: only what is in the archive waits for it.
pub(crate) fn unreadable(trouble: &Trouble) -> Refusal {
    match trouble {
        Trouble::Store(_) => Refusal::new(Reason::Unavailable, "the stored answer cannot be read now"),
        _ => {
            let detail = "the stored answer is in the archive, which cannot be read now";
            Refusal::retry(Reason::Unavailable, ARCHIVE_ASKED_AGAIN, detail)
        }
    }
}

impl Gate {
    /// Takes reports of somebody who is called so on attempts of a queue's deliveries.
    pub async fn finish(
        &self,
        queue: &QueueKey,
        reports: Vec<Report>,
        who: &str,
    ) -> Result<Vec<Finished>, StoreError> {
        let failed: Vec<_> = reports.iter().map(Failed::by).collect();
        let finished = self.finish_told(queue, reports, who).await?;
        for (failed, finished) in failed.into_iter().zip(&finished) {
            let failed = failed.filter(|_| finished.outcome == ReceiptOutcome::Done && !finished.told_before);
            if let Some((failed, status)) = failed.zip(finished.status) {
                self.failing.reported(queue, &failed, status, who, self.clock().now());
            }
        }
        Ok(finished)
    }

    /// The same, where the log has what failed already.
    pub(crate) async fn finish_told(
        &self,
        queue: &QueueKey,
        reports: Vec<Report>,
        who: &str,
    ) -> Result<Vec<Finished>, StoreError> {
        let receipts: Vec<_> = reports.iter().map(|it| it.receipt).collect();
        let (under_way, on_record) = self.following.late.begin(&receipts);
        let known = reports.into_iter().zip(on_record);
        let reports = known.map(|(it, on_record)| Report { on_record, ..it }).collect();
        let finished = self.store().finish(queue, reports, who, self.clock().now()).await?;
        under_way.ended(receipts.iter().zip(&finished));
        for (receipt, finished) in receipts.iter().zip(&finished) {
            self.meters.finished(finished);
            self.following.wake(receipt.delivery_id);
        }
        Ok(finished)
    }

    /// Takes answers on to what became of their messages, where that is reported back.
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
        // Most messages are on their way, and nobody waits for more.
        let is_on_its_way = |it: &Reached| {
            matches!(it.verdict, Verdict::Accepted { .. }) && wait.first(it.processing).is_zero()
        };
        if answer.reached.iter().all(is_on_its_way) {
            return Ok(answer);
        }
        let Ok(tenant) = TenantName::new(source.tenant()) else { return Ok(answer) };
        let id = IdKey { id: answer.id.clone(), tenant };
        let following = answer.reached.iter().map(|it| self.follow_one(&id, it, wait));
        let mut followed = futures_util::future::join_all(following).await;
        if let [Err(refusal)] = &mut followed[..] {
            let refusal = refusal.clone();
            return Err(Refused { subject: Box::new(answer.subject()), refusal });
        }
        // An event is accepted as a whole: one that has no answer yet takes nothing from the others (PIP-13).
        let told = |(it, verdict): (&Reached, Result<Verdict, Refusal>)| Reached {
            verdict: verdict.unwrap_or_else(|refusal| Verdict::Unanswered {
                refusal,
                is_replay: it.verdict.taken_by().is_none(),
            }),
            ..it.clone()
        };
        let reached = answer.reached.iter().zip(followed).map(told).collect();
        Ok(Answer { reached, ..answer })
    }

    async fn follow_one(&self, id: &IdKey, reached: &Reached, wait: Wait) -> Result<Verdict, Refusal> {
        let unchanged = || Ok(reached.verdict.clone());
        let (delivery, is_replay, for_time) = match &reached.verdict {
            Verdict::Accepted { delivery, .. } => (*delivery, false, wait.first(reached.processing)),
            Verdict::Duplicate { first_seen_at: Some(_) } => {
                self.came_again(id, &reached.destination);
                return unchanged();
            }
            Verdict::Duplicate { .. }
            | Verdict::Skipped
            | Verdict::Buried { .. }
            | Verdict::Unanswered { .. } => {
                return unchanged();
            }
            Verdict::Followed(seen) => {
                self.came_again(id, &reached.destination);
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
            // Its time is over since it was judged, or it was not.
            Ok(None) => return Err(Refusal::lost("the claim is not there any more")),
            Err(error) if is_replay => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a claim could not be looked up");
                return Err(Refusal::new(Reason::Unavailable, "the store cannot answer now"));
            }
            // It is on its way all the same.
            Err(_) => return unchanged(),
        };
        let status = claim.status(self.clock().now());
        if !is_over(status) && !is_replay {
            return unchanged();
        }
        // Nor is there an answer to the first sender where nobody knows it.
        if let Some(refusal) = self.not_yet(&claim, status) {
            return Err(refusal);
        }
        let told = self.told(claim, delivery, is_replay).await.map_err(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "an answer could not be read");
            unreadable(&error)
        })?;
        Ok(Verdict::Followed(Box::new(told)))
    }

    /// Counts that an id came again (CLM-5).
    pub(crate) fn came_again(&self, id: &IdKey, destination: &Arc<str>) {
        let IdKey { id, tenant } = id.clone();
        let key = ClaimKey { id, tenant, destination: Arc::clone(destination) };
        self.following.came_again(key, self.clock().now());
    }

    /// What became of a claim, waited for up to a time. One that was made just now is looked at only once there is word
    /// of it, or none for a while.
    pub(crate) async fn outcome_of(
        &self,
        id: &IdKey,
        destination: &str,
        delivery: Serial,
        wait: Duration,
        is_old: bool,
    ) -> Result<Option<StoredClaim>, StoreError> {
        let deadline = Instant::now() + wait;
        // Where too many wait already, nobody else does.
        let place = self.following.places.try_acquire();
        let waiter = self.following.wait_for(delivery);
        let mut look = LOOK;
        if !is_old && place.is_ok() {
            let _ =
                tokio::time::timeout_at(deadline.min(Instant::now() + look), waiter.notify.notified()).await;
        }
        let found = loop {
            let report = waiter.notify.notified();
            tokio::pin!(report);
            report.as_mut().enable();
            let claims = self.store().claims_of(id, self.clock().now()).await?;
            // Another message may have the id by now, once the first one's claim was over.
            let is_its =
                |it: &StoredClaim| it.claim.progress.as_ref().is_some_and(|it| it.delivery == delivery);
            let claim = claims.into_iter().find(|it| *it.key.destination == *destination && is_its(it));
            let is_over = claim.as_ref().is_none_or(|it| is_over(it.claim.status()));
            let now = Instant::now();
            if is_over || now >= deadline || place.is_err() {
                break claim;
            }
            let _ = tokio::time::timeout_at(deadline.min(now + look), report).await;
            look = (2 * look).min(LOOK_MAX);
        };
        Ok(found)
    }

    /// Why there is no answer yet to somebody who sent it again, if so.
    pub(crate) fn not_yet(&self, claim: &StoredClaim, status: Status) -> Option<Refusal> {
        let now = self.clock().now();
        let until = |at: Timestamp| at.since(now).max(Duration::from_secs(1));
        match (status, claim.held) {
            (Status::Processing, Some(HeldDelivery::Leased { until: end, .. })) => {
                Some(Refusal::retry(Reason::InProgress, until(end), "the same message is being processed"))
            }
            (Status::Processing, _) => {
                let detail = "the same message waits to be processed";
                Some(Refusal::retry(Reason::InProgress, Duration::from_secs(1), detail))
            }
            (Status::Failed { is_final: false }, held) => {
                let due = match held {
                    Some(HeldDelivery::Due(at)) => until(at),
                    _ => Duration::from_secs(1),
                };
                Some(Refusal::retry(Reason::RetryLater, due, "the message failed and is tried again"))
            }
            (Status::InDoubt, _) => {
                let detail = "nobody knows whether the message was processed; it is held for a person";
                Some(Refusal::retry(Reason::OutcomeUnknown, DOUBT_ASKED_AGAIN, detail))
            }
            (Status::Completed | Status::Failed { is_final: true }, _) => None,
        }
    }

    pub(crate) async fn told(
        &self,
        claim: StoredClaim,
        delivery: Serial,
        is_replay: bool,
    ) -> Result<Followed, Trouble> {
        let answer = self.answer_of(&claim, delivery).await?;
        let is_erased = claim.erased_at.is_some();
        let claim = claim.claim;
        let status = claim.status();
        let progress = claim.progress.map(|it| *it);
        let (reference, error) = progress.map(|it| (it.reference, it.error)).unwrap_or_default();
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

    /// Writes how often ids came again.
    pub(crate) async fn write_repeats(&self) {
        let repeats = std::mem::take(&mut *lock(&self.following.repeats));
        if repeats.is_empty() {
            return;
        }
        let seen = repeats.into_iter().map(|(key, (count, at))| (key, count, at)).collect();
        if let Err(error) = self.store().seen_again(seen).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "how often ids came again was not counted"
            );
        }
    }
}

#[cfg(test)]
mod tests;
