//! Claims: the idempotency records of message ids at their destinations (CLM-1, CLM-3).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::delivery::processing::{Attempts, Ending};
use crate::delivery::{DeadReason, Tracking};
use crate::hash::DomainHash;
use crate::id::{MessageId, Serial};
use crate::name::{ServiceName, TenantName};
use crate::time::Timestamp;

/// The treatment of an id that a route has seen before (CLM-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "policy", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ClaimPolicy {
    /// At least once and fastest: the gateway makes no claim.
    #[default]
    None,
    /// The same id within `keep_seconds` is a duplicate. Content is not compared.
    Strict {
        /// The retention of the claim, in seconds.
        #[serde(default = "strict_keep_seconds")]
        keep_seconds: u32,
    },
    /// The same id with the same content is a duplicate, with other content a conflict.
    Event {
        /// The retention of the claim, in seconds.
        #[serde(default = "event_keep_seconds")]
        keep_seconds: u32,
        /// Whether the gateway keeps the processor's response and returns it to duplicates.
        #[serde(default)]
        answers: bool,
    },
    /// For ids derived from content: the same id is a duplicate, and there is nothing to compare.
    Seen {
        /// The retention of the claim, in seconds.
        #[serde(default = "seen_keep_seconds")]
        keep_seconds: u32,
    },
    /// As `event`, kept for audits: at least seven years.
    Ledger {
        /// The retention of the claim, in seconds.
        #[serde(default = "ledger_keep_seconds")]
        keep_seconds: u32,
        /// Days after which message and response move to the archive.
        #[serde(default = "hot_days")]
        hot_days: u32,
    },
}

fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

fn strict_keep_seconds() -> u32 {
    seconds(bounds::STRICT_KEEP)
}

fn event_keep_seconds() -> u32 {
    seconds(bounds::EVENT_KEEP)
}

fn seen_keep_seconds() -> u32 {
    seconds(bounds::SEEN_KEEP)
}

fn hot_days() -> u32 {
    bounds::HOT_DAYS
}

fn ledger_keep_seconds() -> u32 {
    seconds(bounds::LEDGER_KEEP_MIN)
}

impl ClaimPolicy {
    /// `strict` with its default parameters.
    pub fn strict() -> Self {
        Self::Strict { keep_seconds: strict_keep_seconds() }
    }

    /// `ledger` with its default parameters.
    pub fn ledger() -> Self {
        Self::Ledger { keep_seconds: ledger_keep_seconds(), hot_days: hot_days() }
    }

    /// The policy's name in the contract.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Strict { .. } => "strict",
            Self::Event { .. } => "event",
            Self::Seen { .. } => "seen",
            Self::Ledger { .. } => "ledger",
        }
    }

    /// The retention of a claim, if the policy makes one.
    pub fn keep(self) -> Option<Duration> {
        match self {
            Self::None => None,
            Self::Strict { keep_seconds }
            | Self::Event { keep_seconds, .. }
            | Self::Seen { keep_seconds }
            | Self::Ledger { keep_seconds, .. } => Some(Duration::from_secs(u64::from(keep_seconds))),
        }
    }

    /// The retention of the id record, if the policy compares content.
    pub fn compares(self) -> Option<Duration> {
        match self {
            Self::None | Self::Strict { .. } | Self::Seen { .. } => None,
            Self::Event { .. } | Self::Ledger { .. } => self.keep(),
        }
    }

    /// Whether the gateway keeps a processor's response and returns it to duplicates (CLM-3).
    pub fn keeps_answers(self) -> bool {
        match self {
            Self::None | Self::Strict { .. } | Self::Seen { .. } => false,
            Self::Event { answers, .. } => answers,
            Self::Ledger { .. } => true,
        }
    }

    /// The time for which message and response stay in the store before they move to the archive (CLM-15).
    pub fn hot(self) -> Option<Duration> {
        match self {
            Self::Ledger { hot_days, .. } => Some(Duration::from_secs(86_400 * u64::from(hot_days))),
            _ => None,
        }
    }

    /// The parameter that breaks a rule, with the arithmetic (CLM-15, CLM-20).
    pub fn problem(self, window: Duration, retries: Attempts) -> Option<String> {
        let keep = self.keep()?;
        let least = 2 * window + bounds::CLAIM_KEEP_SLACK + retries.total();
        if keep < least {
            let (and, plus) = match retries.count {
                0 => (" and a wait for the commit", String::new()),
                _ => (
                    ", a wait for the commit and the route's own attempts with their pauses",
                    format!(" + {retries}"),
                ),
            };
            return Some(format!(
                "claim.keep_seconds is {}, but a claim must outlive twice the replay window{and}: 2 × {} s + {} s{plus} = {} s",
                keep.as_secs(),
                window.as_secs(),
                bounds::CLAIM_KEEP_SLACK.as_secs(),
                least.as_secs()
            ));
        }
        let is_audited = matches!(self, Self::Ledger { .. });
        if is_audited && keep < bounds::LEDGER_KEEP_MIN {
            let (days, seconds) =
                (bounds::LEDGER_KEEP_MIN.as_secs() / 86_400, bounds::LEDGER_KEEP_MIN.as_secs());
            return Some(format!(
                "claim.keep_seconds is {}, but ledger claims are kept for seven years at least: {days} days × 86400 s = {seconds} s",
                keep.as_secs(),
            ));
        }
        if self.hot().is_some_and(|hot| hot.is_zero() || hot > keep) {
            return Some(
                "claim.hot_days must be at least 1 and at most as long as the claim is kept".to_owned(),
            );
        }
        let most = if is_audited { bounds::LEDGER_KEEP_MAX } else { bounds::CLAIM_KEEP_MAX };
        (keep > most).then(|| {
            format!("claim.keep_seconds is {}, but the maximum is {}", keep.as_secs(), most.as_secs())
        })
    }
}

/// An id within the sender's tenant (CLM-1).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdKey {
    pub id: MessageId,
    /// The sender's tenant.
    pub tenant: TenantName,
}

/// An id record: the content that an id stands for within its tenant, on routes that compare content. It is
/// one content for all destinations (CLM-1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Original {
    pub source: ServiceName,
    /// The first message with the id.
    pub message: Serial,
    pub hash: DomainHash,
    /// When the record expires. The id may then have other content.
    pub expires_at: Timestamp,
}

impl Original {
    /// Whether the record has not expired.
    pub fn is_live(&self, now: Timestamp) -> bool {
        now < self.expires_at
    }
}

/// The key of a claim: the id within the sender's tenant, and the destination (CLM-1).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimKey {
    pub id: MessageId,
    /// The sender's tenant: one tenant can never take or probe another's ids.
    pub tenant: TenantName,
    /// The route, as `tenant/service:name`.
    pub destination: Arc<str>,
}

impl ClaimKey {
    /// Whether the destination belongs to this tenant.
    pub fn is_owned_by(&self, tenant: &str) -> bool {
        self.destination.strip_prefix(tenant).is_some_and(|rest| rest.starts_with('/'))
    }
}

/// The idempotency record of a message id at one destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The service that sent the message.
    pub source: ServiceName,
    /// The message that won the claim.
    pub message: Serial,
    pub first_seen_at: Timestamp,
    /// When the claim expires. The id is then free again.
    pub expires_at: Timestamp,
    /// When message and response move to the archive, under a policy that archives them.
    pub hot_until: Option<Timestamp>,
    /// The progress of the work, if its outcome is reported. Without it the claim is complete since delivery.
    pub progress: Option<Box<Progress>>,
}

impl Claim {
    /// Whether the claim is in force. Time decides, not the deletion of its row (CLM-19). Unfinished work and
    /// an unknown outcome that no person has decided keep it for any time: a second winner would be worse
    /// than a late one.
    pub fn is_live(&self, now: Timestamp) -> bool {
        now < self.expires_at || self.status().keeps_claim()
    }

    /// Whether the claim is kept for audits, so that its end goes on the record (CLM-18). Claims from before
    /// the archive existed have no `hot_until`. Their retention identifies them, because no other policy may
    /// keep claims for that long.
    pub fn is_audited(&self) -> bool {
        self.hot_until.is_some() || self.expires_at.since(self.first_seen_at) >= bounds::LEDGER_KEEP_MIN
    }

    /// Records the end of an attempt, and returns the next step for its delivery. The claim is kept for as
    /// long as the message may be sent again, even if the work took longer than the policy keeps claims
    /// (CLM-20).
    pub fn finish(&mut self, attempt: &Attempt, ending: &Ending, now: Timestamp) -> Result<Next, Fenced> {
        let next = self.progress.as_mut().ok_or(Fenced)?.finish(attempt, ending, now)?;
        self.prolong(now);
        Ok(next)
    }

    /// Records that the delivery became a dead letter without a report.
    pub fn buried(&mut self, reason: DeadReason, receives: u32, now: Timestamp) {
        if let Some(progress) = self.progress.as_mut().filter(|progress| progress.status != Status::Completed)
        {
            progress.buried(reason, receives, now);
            self.prolong(now);
        }
    }

    /// Records that a person saw the work done. The work has failed for good, or its outcome is unknown
    /// (CLM-11).
    pub fn settled(&mut self, reference: Option<&str>, now: Timestamp) -> Result<(), Fenced> {
        let progress =
            self.progress.as_mut().filter(|progress| progress.status.waits_for_a_person()).ok_or(Fenced)?;
        progress.status = Status::Completed;
        progress.doubted = false;
        progress.reference = reference.map(str::to_owned);
        progress.error = None;
        progress.ended_at = Some(now);
        self.prolong(now);
        Ok(())
    }

    /// Whether the claim is kept for longer than its policy says, because its work ended late.
    pub fn is_prolonged(&self) -> bool {
        let ended_at = self.progress.as_ref().and_then(|progress| progress.ended_at);
        ended_at.is_some_and(|at| self.expires_at <= self.kept_after(at))
    }

    fn prolong(&mut self, now: Timestamp) {
        if !self.status().keeps_claim() {
            self.expires_at = self.expires_at.max(self.kept_after(now));
        }
    }

    /// The time until which the message may be sent again, if its work ended at `ended_at` (CLM-20).
    ///
    /// No policy may keep claims for a shorter time than the replay window in force requires, so its own
    /// retention suffices. The retention that the longest window requires always suffices.
    fn kept_after(&self, ended_at: Timestamp) -> Timestamp {
        let least = keep_required_by(bounds::REPLAY_WINDOW);
        let most = keep_required_by(bounds::REPLAY_WINDOW_MAX);
        ended_at.plus(self.expires_at.since(self.first_seen_at).clamp(least, most))
    }

    /// The status by the reports so far. Without progress the claim is complete.
    pub fn status(&self) -> Status {
        self.progress.as_ref().map_or(Status::Completed, |progress| progress.status)
    }
}

/// The retention that a claim needs after the end of its work, under a replay window (CLM-20).
fn keep_required_by(window: Duration) -> Duration {
    2 * window + bounds::CLAIM_KEEP_SLACK
}

/// The status of a claim (CLM-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// In progress; no attempt has reported its end.
    Processing,
    Completed,
    /// The work is not done and has had no effect.
    Failed {
        /// Whether there is no further attempt unless a person asks for one.
        is_final: bool,
    },
    /// The outcome is unknown: a person must decide.
    InDoubt,
}

impl Status {
    const ALL: [Self; 5] = [
        Self::Processing,
        Self::Completed,
        Self::Failed { is_final: false },
        Self::Failed { is_final: true },
        Self::InDoubt,
    ];

    /// Whether the work still continues without a person.
    pub fn is_unended(self) -> bool {
        matches!(self, Self::Processing | Self::Failed { is_final: false })
    }

    /// Whether the claim stays in force after its retention: until the work has ended, or a person has
    /// decided an unknown outcome (CLM-7).
    pub fn keeps_claim(self) -> bool {
        self.is_unended() || self == Self::InDoubt
    }

    /// Whether only a person can change the status.
    pub fn waits_for_a_person(self) -> bool {
        matches!(self, Self::Failed { is_final: true } | Self::InDoubt)
    }

    /// The status while a worker holds the lease of the delivery: an attempt after a failure is in progress.
    #[must_use]
    pub fn while_leased(self) -> Self {
        match self {
            Self::Failed { is_final: false } => Self::Processing,
            status => status,
        }
    }

    /// The name in responses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Processing => "PROCESSING",
            Self::Completed => "COMPLETED",
            Self::Failed { .. } => "FAILED",
            Self::InDoubt => "IN_DOUBT",
        }
    }

    /// All statuses with this name.
    pub fn named(word: &str) -> Vec<Self> {
        Self::ALL.into_iter().filter(|status| status.as_str().eq_ignore_ascii_case(word)).collect()
    }

    /// The number in stores. A number never gets another meaning.
    pub fn number(self) -> i16 {
        match self {
            Self::Processing => 0,
            Self::Completed => 1,
            Self::Failed { is_final: false } => 2,
            Self::Failed { is_final: true } => 3,
            Self::InDoubt => 4,
        }
    }

    /// The status with this number, as [`Status::number`] returned it.
    pub fn stored(number: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.number() == number)
    }
}

/// The progress of work under a claim, if its outcome is reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The delivery that carries the work.
    pub delivery: Serial,
    pub status: Status,
    /// The fencing token of the lease that ended last.
    pub fence: Option<Serial>,
    /// The number of attempts up to that lease.
    pub attempts: u32,
    /// When the last attempt ended.
    pub ended_at: Option<Timestamp>,
    /// The id of the result in the target's system.
    pub reference: Option<String>,
    /// The last error, for people. On completed work it says which part is missing.
    pub error: Option<String>,
    /// Whether the work continues although the outcome of an attempt is unknown. A later failure then does
    /// not show that nothing was done (CLM-7).
    pub doubted: bool,
}

/// Stores put this text before the error while the outcome of an earlier attempt is unknown. Its last
/// character never occurs in a stored error ([`printable`]).
const DOUBTED: &str = "an earlier attempt may have done it;\n";

impl Progress {
    /// The progress of work that was just enqueued.
    pub fn new(delivery: Serial) -> Self {
        Self {
            delivery,
            status: Status::Processing,
            fence: None,
            attempts: 0,
            ended_at: None,
            reference: None,
            error: None,
            doubted: false,
        }
    }

    /// The error as stores keep it, after `DOUBTED` if the outcome of an earlier attempt is unknown.
    pub fn error_text(&self) -> Option<Cow<'_, str>> {
        let error = self.error.as_deref();
        if self.doubted {
            return Some(Cow::Owned(format!("{DOUBTED}{}", error.unwrap_or_default())));
        }
        error.map(Cow::Borrowed)
    }

    /// Reads the text that [`Progress::error_text`] returned.
    #[must_use]
    pub fn with_error_text(self, text: Option<String>) -> Self {
        match text.as_deref().and_then(|text| text.strip_prefix(DOUBTED)) {
            Some(error) => Self { doubted: true, error: Some(error.to_owned()), ..self },
            None => Self { error: text, ..self },
        }
    }

    /// Records the end of an attempt, and returns the next step for its delivery (CLM-4, CLM-6, CLM-7). Ended
    /// work stays as it is, and a late report is fenced.
    pub fn finish(&mut self, attempt: &Attempt, ending: &Ending, now: Timestamp) -> Result<Next, Fenced> {
        if matches!(self.status, Status::Completed | Status::Failed { is_final: true } | Status::InDoubt) {
            return Err(Fenced);
        }
        let is_last = attempt.number >= attempt.most;
        let is_unknown = matches!(ending, Ending::Unknown { .. });
        let was_doubted = std::mem::replace(&mut self.doubted, false);
        let (status, next, error) = match ending {
            Ending::Completed { reference, note, .. } => {
                self.reference.clone_from(reference);
                (Status::Completed, Next::Done, note.clone())
            }
            Ending::Unknown { error } if attempt.tracking == Tracking::Hold => {
                (Status::InDoubt, Next::Bury(DeadReason::InDoubt), Some(error.clone()))
            }
            // A worker that refuses for good has seen the id. Its refusal covers all attempts.
            Ending::Failed { is_final: true, error, .. } => {
                (Status::Failed { is_final: true }, Next::Bury(DeadReason::Failed), Some(error.clone()))
            }
            Ending::Failed { error, .. } | Ending::Unknown { error } if !is_last => {
                self.doubted = was_doubted || is_unknown;
                (Status::Failed { is_final: false }, Next::Again, Some(error.clone()))
            }
            Ending::Failed { error, .. } | Ending::Unknown { error } => {
                let (status, error) = match (is_unknown, was_doubted) {
                    (false, false) => (Status::Failed { is_final: true }, error.clone()),
                    (true, _) => (Status::InDoubt, error.clone()),
                    (false, true) => (Status::InDoubt, format!("{DOUBTED}last: {error}")),
                };
                (status, Next::Bury(DeadReason::ReceivesExhausted), Some(error))
            }
        };
        self.status = status;
        self.error = error.as_deref().map(printable);
        self.fence = Some(attempt.fence);
        self.attempts = attempt.number;
        self.ended_at = Some(now);
        Ok(next)
    }

    /// Whether this attempt has reported the same ending before: the reporter did not receive the answer and
    /// reports again.
    pub fn was_ended_by(&self, fence: Serial, ending: &Ending) -> bool {
        let same = match ending {
            Ending::Completed { reference, .. } => {
                self.status == Status::Completed && self.reference == *reference
            }
            Ending::Failed { is_final: true, .. } => matches!(self.status, Status::Failed { .. }),
            // The failure of the last attempt is final, even if it was reported as retryable, or the outcome
            // of an earlier attempt stays unknown.
            Ending::Failed { is_final: false, .. } | Ending::Unknown { .. } => {
                matches!(self.status, Status::Failed { .. } | Status::InDoubt)
            }
        };
        same && self.fence == Some(fence)
    }

    /// Whether this attempt has reported the same failure before and waits for a retry. Its pause then
    /// continues (CLM-6).
    pub fn waits_after(&self, fence: Serial, ending: &Ending) -> bool {
        let (Ending::Failed { error, is_final: false, .. } | Ending::Unknown { error }) = ending else {
            return false;
        };
        let is_paused = self.status == Status::Failed { is_final: false } && self.fence == Some(fence);
        is_paused && self.error.as_ref().is_some_and(|last| *last == printable(error))
    }

    /// Records that the delivery ended without a report. The outcome is unknown if a worker ever leased it.
    pub fn buried(&mut self, reason: DeadReason, receives: u32, now: Timestamp) {
        let was_handed_out = self.was_handed_out(receives);
        self.doubted = false;
        self.status = if was_handed_out { Status::InDoubt } else { Status::Failed { is_final: true } };
        let cause = match reason {
            DeadReason::ReceivesExhausted => "all attempts that its route allows were used",
            DeadReason::RetentionExpired => "its retention in the queue ended",
            DeadReason::InDoubt => "its worker did not report back in time",
            DeadReason::Purged => "its queue was purged",
            DeadReason::OutOfOrder => "it came after a later message of its entity",
            DeadReason::OrderUnreadable => {
                "its entity or sequence number cannot be read by the route's ordering settings"
            }
            DeadReason::QueueFull => "its queue was full when it came",
            DeadReason::Conflict | DeadReason::Failed => "it is a dead letter",
        };
        let unknown = if was_handed_out { "; its outcome is unknown" } else { "" };
        let last = self.error.take().map(|last| format!("; last: {last}")).unwrap_or_default();
        let error = format!("{cause}{unknown}{last}");
        self.error = Some(error.chars().take(bounds::ERROR_CHARS_MAX).collect());
        self.attempts = self.attempts.max(receives);
        self.ended_at = Some(now);
    }

    /// Whether a worker ever leased the work, by `receives` of its delivery or by the attempts on record. The
    /// work may then be done, even if its delivery ended in another way.
    pub fn was_handed_out(&self, receives: u32) -> bool {
        self.attempts.max(receives) > 0
    }

    /// Records that the lease of an attempt ended without a report. The work is attempted again (CLM-7). Work
    /// that has ended stays as it is.
    pub fn lapsed(&mut self, fence: Option<Serial>, attempts: u32, now: Timestamp) {
        if !self.status.is_unended() {
            return;
        }
        self.status = Status::Failed { is_final: false };
        self.doubted = true;
        self.fence = fence.or(self.fence);
        self.attempts = attempts;
        self.error = Some("its worker did not report back in time".to_owned());
        self.ended_at = Some(now);
    }

    /// Records that a person put the delivery back. The work starts anew, and an unknown outcome counts as
    /// decided.
    pub fn reopened(&mut self) {
        self.status = Status::Processing;
        self.doubted = false;
        self.error = None;
        self.ended_at = None;
    }
}

/// The part of an error's text that is stored: no control characters, and a limited length.
fn printable(error: &str) -> String {
    let printable = error.chars().map(|char| if char.is_control() { ' ' } else { char });
    printable.take(bounds::ERROR_CHARS_MAX).collect()
}

/// An attempt that ends now.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// The fencing token of its lease.
    pub fence: Serial,
    /// Its number, from one.
    pub number: u32,
    /// The largest number of attempts.
    pub most: u32,
    /// The rule of the route for an unknown outcome.
    pub tracking: Tracking,
}

/// The newest lease of a claim's delivery and the status of the claim, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Present {
    /// The fencing token of the newest lease, ended or not.
    pub fence: Option<Serial>,
    pub status: Status,
}

/// The leases that a delivery can have had, to judge late reports.
#[derive(Debug, Clone, Copy)]
pub struct Leases {
    /// Every fencing token of the delivery is above this one.
    pub after: Serial,
    /// No fencing token of the delivery is above this one.
    pub newest: Serial,
    /// The number of leases.
    pub attempts: u32,
}

impl Leases {
    /// Whether a late report goes on record: only one of a lease that can have existed, and in total no more
    /// than attempts. Invented reports would fill permanent records and raise false alerts (CLM-7).
    pub fn put_on_record(&self, fence: Serial, on_record: u32) -> bool {
        self.after < fence && fence <= self.newest && on_record < self.attempts
    }
}

/// The next step for the delivery of an attempt that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The work is done: the delivery ends.
    Done,
    /// The delivery becomes visible again after a pause.
    Again,
    /// The delivery becomes a dead letter.
    Bury(DeadReason),
}

/// A newer lease exists, or the work has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fenced;

pub mod conflict;
pub mod recent;
#[cfg(test)]
mod tests;
