//! Claims: the record that a message id has been taken up for a destination (CLM-1, CLM-3).

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

/// How a route treats an id that it has seen before (CLM-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "policy", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ClaimPolicy {
    /// At least once, fastest: no claim is made.
    #[default]
    None,
    /// The same id within `keep_seconds` is a duplicate, whatever its content.
    Strict {
        /// How long the id stays taken.
        #[serde(default = "strict_keep_seconds")]
        keep_seconds: u32,
    },
    /// The same id with the same content is a duplicate, with another content a conflict.
    Event {
        /// How long the id stays taken.
        #[serde(default = "event_keep_seconds")]
        keep_seconds: u32,
        /// Whether what the processor answered is kept, and answered again.
        #[serde(default)]
        answers: bool,
    },
    /// For ids that are made of the content: the same id is a duplicate, and there is nothing to compare.
    Seen {
        /// How long the id stays taken.
        #[serde(default = "seen_keep_seconds")]
        keep_seconds: u32,
    },
    /// As `event`, kept for an audit: seven years at least.
    Ledger {
        /// How long the id stays taken.
        #[serde(default = "ledger_keep_seconds")]
        keep_seconds: u32,
        /// Days after which the message and the answer are moved to the archive.
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

    /// How long a claim lives, if one is made.
    pub fn keep(self) -> Option<Duration> {
        match self {
            Self::None => None,
            Self::Strict { keep_seconds }
            | Self::Event { keep_seconds, .. }
            | Self::Seen { keep_seconds }
            | Self::Ledger { keep_seconds, .. } => Some(Duration::from_secs(u64::from(keep_seconds))),
        }
    }

    /// How long it is kept what an id means, where contents are compared.
    pub fn compares(self) -> Option<Duration> {
        match self {
            Self::None | Self::Strict { .. } | Self::Seen { .. } => None,
            Self::Event { .. } | Self::Ledger { .. } => self.keep(),
        }
    }

    /// Whether what a processor answered is kept, and answered again (CLM-3).
    pub fn keeps_answers(self) -> bool {
        match self {
            Self::None | Self::Strict { .. } | Self::Seen { .. } => false,
            Self::Event { answers, .. } => answers,
            Self::Ledger { .. } => true,
        }
    }

    /// How long the message and the answer stay beside the claim before they are moved to the archive (CLM-15).
    pub fn hot(self) -> Option<Duration> {
        match self {
            Self::Ledger { hot_days, .. } => Some(Duration::from_secs(86_400 * u64::from(hot_days))),
            _ => None,
        }
    }

    /// What is wrong with the policy's parameters, with the arithmetic (CLM-15, CLM-20).
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
            return Some("claim.hot_days is at least 1, and not longer than the claim is kept".to_owned());
        }
        let most = if is_audited { bounds::LEDGER_KEEP_MAX } else { bounds::CLAIM_KEEP_MAX };
        (keep > most).then(|| format!("claim.keep_seconds is {}, at most {}", keep.as_secs(), most.as_secs()))
    }
}

/// An id within the sender's tenant (CLM-1).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdKey {
    /// The message's id.
    pub id: MessageId,
    /// The sender's tenant.
    pub tenant: TenantName,
}

/// What an id means, where contents are compared: one content for all destinations (CLM-1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Original {
    /// The service that sent it.
    pub source: ServiceName,
    /// The message that was first.
    pub message: Serial,
    /// What it says.
    pub hash: DomainHash,
    /// From when on the id may mean something else.
    pub expires_at: Timestamp,
}

impl Original {
    /// Whether it still holds.
    pub fn is_live(&self, now: Timestamp) -> bool {
        now < self.expires_at
    }
}

/// A claim's key: the id within the sender's tenant, and the destination (CLM-1).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimKey {
    /// The message's id.
    pub id: MessageId,
    /// The sender's tenant: one tenant can never take or probe another's ids.
    pub tenant: TenantName,
    /// The route, as `tenant/service:name`.
    pub destination: Arc<str>,
}

impl ClaimKey {
    /// Whether the destination is this tenant's.
    pub fn is_owned_by(&self, tenant: &str) -> bool {
        self.destination.strip_prefix(tenant).is_some_and(|rest| rest.starts_with('/'))
    }
}

/// What is known of an id that was taken up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The service that sent it.
    pub source: ServiceName,
    /// The message that won.
    pub message: Serial,
    /// When it was first seen.
    pub first_seen_at: Timestamp,
    /// From when on the id is free again.
    pub expires_at: Timestamp,
    /// From when on the message and the answer belong in the archive.
    pub hot_until: Option<Timestamp>,
    /// What became of it, where that is reported back; it is complete since it was delivered where not.
    pub progress: Option<Box<Progress>>,
}

impl Claim {
    /// Whether the claim still holds: judged by time, whenever its row is deleted (CLM-19). Work that is not ended keeps
    /// it, and doubt that nobody has decided, however long that takes: a second winner would be worse than a late one.
    pub fn is_live(&self, now: Timestamp) -> bool {
        now < self.expires_at || self.status().keeps_claim()
    }

    /// Whether it is kept for an audit: it goes on the record when it goes (CLM-18). Claims from before there was an
    /// archive do not say when they cool; they are known by how long they are kept, which no other policy may.
    pub fn is_audited(&self) -> bool {
        self.hot_until.is_some() || self.expires_at.since(self.first_seen_at) >= bounds::LEDGER_KEEP_MIN
    }

    /// How an attempt moves it on, and what is to be done with its delivery. It is kept for as long as the message may
    /// still be sent again, even where the work took longer than the policy keeps it (CLM-20).
    pub fn finish(&mut self, attempt: &Attempt, ending: &Ending, now: Timestamp) -> Result<Next, Fenced> {
        let next = self.progress.as_mut().ok_or(Fenced)?.finish(attempt, ending, now)?;
        self.prolong(now);
        Ok(next)
    }

    /// The delivery became a dead letter without anybody reporting.
    pub fn buried(&mut self, reason: DeadReason, receives: u32, now: Timestamp) {
        if let Some(progress) = self.progress.as_mut().filter(|it| it.status != Status::Completed) {
            progress.buried(reason, receives, now);
            self.prolong(now);
        }
    }

    /// A person saw that it was done, and says so of what failed for good or is in doubt (CLM-11).
    pub fn settled(&mut self, reference: Option<&str>, now: Timestamp) -> Result<(), Fenced> {
        let progress = self.progress.as_mut().filter(|it| it.status.waits_for_a_person()).ok_or(Fenced)?;
        progress.status = Status::Completed;
        progress.doubted = false;
        progress.reference = reference.map(str::to_owned);
        progress.error = None;
        progress.ended_at = Some(now);
        self.prolong(now);
        Ok(())
    }

    /// Whether it holds for longer than its policy keeps it, because its work ended late.
    pub fn is_prolonged(&self) -> bool {
        let ended_at = self.progress.as_ref().and_then(|it| it.ended_at);
        ended_at.is_some_and(|at| self.expires_at <= self.kept_after(at))
    }

    fn prolong(&mut self, now: Timestamp) {
        if !self.status().keeps_claim() {
            self.expires_at = self.expires_at.max(self.kept_after(now));
        }
    }

    /// Until when the message may still be sent again if its work ended then (CLM-20). No policy may keep its claims for
    /// shorter than the window in force takes, so what it keeps them for is enough; and the longest window always is.
    fn kept_after(&self, ended_at: Timestamp) -> Timestamp {
        let takes = |window: Duration| 2 * window + bounds::CLAIM_KEEP_SLACK;
        let (least, most) = (takes(bounds::REPLAY_WINDOW), takes(bounds::REPLAY_WINDOW_MAX));
        ended_at.plus(self.expires_at.since(self.first_seen_at).clamp(least, most))
    }

    /// Where it stands, as far as was reported.
    pub fn status(&self) -> Status {
        self.progress.as_ref().map_or(Status::Completed, |it| it.status)
    }
}

/// Where a claim stands (CLM-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Taken up, and nothing is reported yet.
    Processing,
    /// Done.
    Completed,
    /// Not done, and without effect.
    Failed {
        /// Whether there is no further attempt unless a person asks for one.
        is_final: bool,
    },
    /// Nobody knows whether it is done: a person must look.
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

    /// Whether the work goes on by itself.
    pub fn is_unended(self) -> bool {
        matches!(self, Self::Processing | Self::Failed { is_final: false })
    }

    /// Whether its claim holds past its time: until the work is ended, or a person has decided what nobody knows (CLM-7).
    pub fn keeps_claim(self) -> bool {
        self.is_unended() || self == Self::InDoubt
    }

    /// Whether only a person moves it on.
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

    /// The word in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Processing => "PROCESSING",
            Self::Completed => "COMPLETED",
            Self::Failed { .. } => "FAILED",
            Self::InDoubt => "IN_DOUBT",
        }
    }

    /// Those that a word stands for.
    pub fn named(word: &str) -> Vec<Self> {
        Self::ALL.into_iter().filter(|it| it.as_str().eq_ignore_ascii_case(word)).collect()
    }

    /// The number in stores; never used for anything else.
    pub fn number(self) -> i16 {
        match self {
            Self::Processing => 0,
            Self::Completed => 1,
            Self::Failed { is_final: false } => 2,
            Self::Failed { is_final: true } => 3,
            Self::InDoubt => 4,
        }
    }

    /// Takes back what [`Status::number`] gave.
    pub fn stored(number: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.number() == number)
    }
}

/// What became of a claim whose work is reported back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The delivery that carries the work.
    pub delivery: Serial,
    /// Where it stands.
    pub status: Status,
    /// The lease that ended last.
    pub fence: Option<Serial>,
    /// How many there were until then.
    pub attempts: u32,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The posting reference.
    pub reference: Option<String>,
    /// What went wrong last, for people; of what is complete, what is missing all the same.
    pub error: Option<String>,
    /// Whether it goes on though nobody knows what came of one of its attempts: that a later one failed does not say then
    /// that nothing was done (CLM-7).
    pub doubted: bool,
}

/// What stands before what went wrong in stores, where it goes on in doubt. No error that is kept has a character of the kind
/// that ends it.
const DOUBTED: &str = "an earlier attempt may have done it;\n";

impl Progress {
    /// Of work that was just handed over.
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

    /// What went wrong, as stores keep it: with the doubt before it.
    pub fn error_text(&self) -> Option<Cow<'_, str>> {
        let error = self.error.as_deref();
        if self.doubted {
            return Some(Cow::Owned(format!("{DOUBTED}{}", error.unwrap_or_default())));
        }
        error.map(Cow::Borrowed)
    }

    /// Takes back what [`Progress::error_text`] gave.
    #[must_use]
    pub fn with_error_text(self, text: Option<String>) -> Self {
        match text.as_deref().and_then(|text| text.strip_prefix(DOUBTED)) {
            Some(error) => Self { doubted: true, error: Some(error.to_owned()), ..self },
            None => Self { error: text, ..self },
        }
    }

    /// How an attempt moves it on, and what is to be done with its delivery (CLM-4, CLM-6, CLM-7). What is complete
    /// stays as it is: whoever comes late is told so.
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
            // Whoever refuses for good has seen the id, and says so of all attempts.
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

    /// Whether this very attempt ended it like this before: its reporter did not hear of it, and tells again.
    pub fn was_ended_by(&self, fence: Serial, ending: &Ending) -> bool {
        let same = match ending {
            Ending::Completed { reference, .. } => {
                self.status == Status::Completed && self.reference == *reference
            }
            Ending::Failed { is_final: true, .. } => matches!(self.status, Status::Failed { .. }),
            // The last attempt's failure is for good, whatever it was told to be, or leaves an earlier one's doubt.
            Ending::Failed { is_final: false, .. } | Ending::Unknown { .. } => {
                matches!(self.status, Status::Failed { .. } | Status::InDoubt)
            }
        };
        same && self.fence == Some(fence)
    }

    /// Whether this very attempt failed like this before, and is to be made again: its pause goes on (CLM-6).
    pub fn waits_after(&self, fence: Serial, ending: &Ending) -> bool {
        let (Ending::Failed { error, is_final: false, .. } | Ending::Unknown { error }) = ending else {
            return false;
        };
        let is_paused = self.status == Status::Failed { is_final: false } && self.fence == Some(fence);
        is_paused && self.error.as_ref().is_some_and(|it| *it == printable(error))
    }

    /// The delivery ended without anybody reporting. Of what was handed out nobody knows then whether it is done.
    pub fn buried(&mut self, reason: DeadReason, receives: u32, now: Timestamp) {
        let was_handed_out = self.was_handed_out(receives);
        self.doubted = false;
        self.status = if was_handed_out { Status::InDoubt } else { Status::Failed { is_final: true } };
        let why = match reason {
            DeadReason::ReceivesExhausted => "it was attempted as often as its route allows",
            DeadReason::RetentionExpired => "nobody took it in time",
            DeadReason::InDoubt => "its worker did not report back in time",
            DeadReason::Purged => "its queue was purged",
            DeadReason::OutOfOrder => "it came after a later one of its entity",
            DeadReason::OrderUnreadable => "its entity or its number cannot be read as its route orders",
            DeadReason::QueueFull => "its queue held as much as it may when it came",
            DeadReason::Conflict | DeadReason::Failed => "it is a dead letter",
        };
        let unknown = if was_handed_out { "; whether it is done is not known" } else { "" };
        let last = self.error.take().map(|last| format!("; last: {last}")).unwrap_or_default();
        let error = format!("{why}{unknown}{last}");
        self.error = Some(error.chars().take(bounds::ERROR_CHARS_MAX).collect());
        self.attempts = self.attempts.max(receives);
        self.ended_at = Some(now);
    }

    /// Whether anybody ever had the work, whose delivery was handed out as often as is said: then it may be done, whatever
    /// became of its delivery since.
    pub fn was_handed_out(&self, receives: u32) -> bool {
        self.attempts.max(receives) > 0
    }

    /// The attempt's time is over without a word from its worker; it is taken up again (CLM-7). What has ended otherwise stays as
    /// it is.
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

    /// A person put the delivery back: it is work again, and whatever was in doubt is decided.
    pub fn reopened(&mut self) {
        self.status = Status::Processing;
        self.doubted = false;
        self.error = None;
        self.ended_at = None;
    }
}

/// What is kept of an error's text.
fn printable(error: &str) -> String {
    let printable = |it: char| if it.is_control() { ' ' } else { it };
    error.chars().map(printable).take(bounds::ERROR_CHARS_MAX).collect()
}

/// An attempt that is to be ended.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// Its lease.
    pub fence: Serial,
    /// Which one it is, counted from one.
    pub number: u32,
    /// How many there may be.
    pub most: u32,
    /// What follows if nobody knows what came of it.
    pub tracking: Tracking,
}

/// The newest lease of a claim's delivery and the status of the claim, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Present {
    /// The fencing token of the newest lease, ended or not.
    pub fence: Option<Serial>,
    /// The status.
    pub status: Status,
}

/// The leases that a delivery can have had, for judging what comes late.
#[derive(Debug, Clone, Copy)]
pub struct Leases {
    /// All are newer than this.
    pub after: Serial,
    /// None is newer than this.
    pub newest: Serial,
    /// How many there were.
    pub attempts: u32,
}

impl Leases {
    /// Whether a late report goes on record: only one of a lease that there can have been, and of all no more than there
    /// were attempts. Made-up ones would fill what is kept for good, and cry wolf (CLM-7).
    pub fn put_on_record(&self, fence: Serial, on_record: u32) -> bool {
        self.after < fence && fence <= self.newest && on_record < self.attempts
    }
}

/// What is to be done with the delivery of an attempt that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is done: the delivery ends.
    Done,
    /// It is handed out again later.
    Again,
    /// It becomes a dead letter.
    Bury(DeadReason),
}

/// The work is somebody else's by now, or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fenced;

pub mod conflict;
pub mod recent;
#[cfg(test)]
mod tests;
