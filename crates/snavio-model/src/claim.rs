//! Claims: the record that a message id has been taken up for a destination (CLM-1, CLM-3).

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::delivery::{DeadReason, Tracking};
use crate::hash::DomainHash;
use crate::id::{MessageId, Serial};
use crate::limits;
use crate::name::{ServiceName, TenantName};
use crate::processing::Ending;
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
    seconds(limits::STRICT_KEEP)
}

fn event_keep_seconds() -> u32 {
    seconds(limits::EVENT_KEEP)
}

fn seen_keep_seconds() -> u32 {
    seconds(limits::SEEN_KEEP)
}

fn hot_days() -> u32 {
    limits::HOT_DAYS
}

fn ledger_keep_seconds() -> u32 {
    seconds(limits::LEDGER_KEEP_MIN)
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
    pub fn problem(self, window: Duration, retries: Duration) -> Option<String> {
        let keep = self.keep()?;
        let least = 2 * window + limits::CLAIM_KEEP_SLACK + retries;
        if keep < least {
            let (and, plus) = match retries.as_secs() {
                0 => (" and a wait for the commit", String::new()),
                seconds => {
                    (", a wait for the commit and the route's own attempts", format!(" + {seconds} s"))
                }
            };
            return Some(format!(
                "claim.keep_seconds is {}, but a claim must outlive twice the replay window{and}: 2 × {} s + {} s{plus} = {} s",
                keep.as_secs(),
                window.as_secs(),
                limits::CLAIM_KEEP_SLACK.as_secs(),
                least.as_secs()
            ));
        }
        let is_audited = matches!(self, Self::Ledger { .. });
        if is_audited && keep < limits::LEDGER_KEEP_MIN {
            let (days, seconds) =
                (limits::LEDGER_KEEP_MIN.as_secs() / 86_400, limits::LEDGER_KEEP_MIN.as_secs());
            return Some(format!(
                "claim.keep_seconds is {}, but ledger claims are kept for seven years at least: {days} days × 86400 s = {seconds} s",
                keep.as_secs(),
            ));
        }
        if self.hot().is_some_and(|hot| hot.is_zero() || hot > keep) {
            return Some("claim.hot_days is at least 1, and not longer than the claim is kept".to_owned());
        }
        let most = if is_audited { limits::LEDGER_KEEP_MAX } else { limits::CLAIM_KEEP_MAX };
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
    /// it, however long that takes: a second winner would be worse than a late one.
    pub fn is_live(&self, now: Timestamp) -> bool {
        now < self.expires_at || self.status().is_unended()
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

    fn prolong(&mut self, now: Timestamp) {
        let least = now.plus(2 * limits::REPLAY_WINDOW + limits::CLAIM_KEEP_SLACK);
        if !self.status().is_unended() {
            self.expires_at = self.expires_at.max(least);
        }
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
    /// What went wrong last, for people.
    pub error: Option<String>,
}

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
        }
    }

    /// How an attempt moves it on, and what is to be done with its delivery (CLM-4, CLM-6, CLM-7). What is complete
    /// stays as it is: whoever comes late is told so.
    pub fn finish(&mut self, attempt: &Attempt, ending: &Ending, now: Timestamp) -> Result<Next, Fenced> {
        if matches!(self.status, Status::Completed | Status::Failed { is_final: true } | Status::InDoubt) {
            return Err(Fenced);
        }
        let (status, next, error) = match ending {
            Ending::Completed { reference, .. } => {
                self.reference.clone_from(reference);
                (Status::Completed, Next::Done, None)
            }
            Ending::Unknown { error } if attempt.tracking == Tracking::Hold => {
                (Status::InDoubt, Next::Bury(DeadReason::InDoubt), Some(error))
            }
            Ending::Failed { is_final: true, error, .. } => {
                (Status::Failed { is_final: true }, Next::Bury(DeadReason::Failed), Some(error))
            }
            Ending::Failed { error, .. } | Ending::Unknown { error } => {
                let is_last = attempt.number >= attempt.most;
                let bury = Next::Bury(DeadReason::ReceivesExhausted);
                let next = if is_last { bury } else { Next::Again };
                (Status::Failed { is_final: is_last }, next, Some(error))
            }
        };
        self.status = status;
        let printable = |it: char| if it.is_control() { ' ' } else { it };
        self.error = error.map(|error| error.chars().map(printable).take(limits::ERROR_CHARS_MAX).collect());
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
            // The last attempt's failure is for good, whatever it was told to be.
            Ending::Failed { .. } => matches!(self.status, Status::Failed { .. }),
            Ending::Unknown { .. } => matches!(self.status, Status::Failed { .. } | Status::InDoubt),
        };
        same && self.fence == Some(fence)
    }

    /// The delivery became a dead letter without anybody reporting.
    pub fn buried(&mut self, reason: DeadReason, receives: u32, now: Timestamp) {
        self.status = match reason {
            DeadReason::InDoubt => Status::InDoubt,
            _ => Status::Failed { is_final: true },
        };
        let why = match reason {
            DeadReason::ReceivesExhausted => "it was attempted as often as its route allows",
            DeadReason::RetentionExpired => "nobody took it in time",
            DeadReason::InDoubt => "its worker did not report back in time; whether it is done is not known",
            DeadReason::Purged => "its queue was purged",
            DeadReason::Conflict | DeadReason::Failed => "it is a dead letter",
        };
        let last = self.error.take().filter(|_| reason == DeadReason::ReceivesExhausted);
        let error = last.map_or_else(|| why.to_owned(), |last| format!("{why}; last: {last}"));
        self.error = Some(error.chars().take(limits::ERROR_CHARS_MAX).collect());
        self.attempts = self.attempts.max(receives);
        self.ended_at = Some(now);
    }

    /// The attempt's time is over without a word from its worker; it is taken up again (CLM-7).
    pub fn lapsed(&mut self, fence: Option<Serial>, attempts: u32, now: Timestamp) {
        self.status = Status::Failed { is_final: false };
        self.fence = fence.or(self.fence);
        self.attempts = attempts;
        self.error = Some("its worker did not report back in time".to_owned());
        self.ended_at = Some(now);
    }

    /// A person put the delivery back: it is work again.
    pub fn reopened(&mut self) {
        self.status = Status::Processing;
        self.error = None;
        self.ended_at = None;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// CLM-20
    #[test]
    fn a_claim_must_outlive_twice_the_window() {
        let window = Duration::from_secs(60);
        for (keep_seconds, right) in
            [(179, false), (180, true), (300, true), (400 * 86_400, true), (400 * 86_400 + 1, false)]
        {
            let problem = ClaimPolicy::Strict { keep_seconds }.problem(window, Duration::ZERO);
            assert_eq!(problem.is_none(), right, "{keep_seconds}: {problem:?}");
        }
        let problem = ClaimPolicy::strict().problem(Duration::from_secs(121), Duration::ZERO);
        assert_eq!(
            problem.as_deref(),
            Some(
                "claim.keep_seconds is 300, but a claim must outlive twice the replay window and a wait for the commit: 2 × 121 s + 60 s = 302 s"
            )
        );
    }

    /// CLM-20
    #[test]
    fn a_claim_must_outlive_the_attempts_of_its_route() {
        let problem = ClaimPolicy::strict().problem(Duration::from_secs(60), Duration::from_secs(157));
        assert_eq!(
            problem.as_deref(),
            Some(
                "claim.keep_seconds is 300, but a claim must outlive twice the replay window, a wait for the commit and the route's own attempts: 2 × 60 s + 60 s + 157 s = 337 s"
            )
        );
    }

    /// CLM-15
    #[test]
    fn ledger_claims_are_kept_for_seven_years_at_least() {
        const DAY: u32 = 86_400;
        for (keep_seconds, right) in [
            (300, false),
            (2557 * DAY - 1, false),
            (2557 * DAY, true),
            (36_525 * DAY, true),
            (36_526 * DAY, false),
        ] {
            let problem = ClaimPolicy::Ledger { keep_seconds, hot_days: 400 }
                .problem(Duration::from_secs(60), Duration::ZERO);
            assert_eq!(problem.is_none(), right, "{keep_seconds}: {problem:?}");
        }
        let ledger = |keep_seconds, hot_days| {
            let policy = ClaimPolicy::Ledger { keep_seconds, hot_days };
            policy.problem(Duration::from_secs(60), Duration::ZERO)
        };
        let problem = ledger(365 * DAY, 400).unwrap();
        assert!(problem.ends_with("2557 days × 86400 s = 220924800 s"), "{problem}");
        for (hot_days, right) in [(0, false), (1, true), (2557, true), (2558, false)] {
            assert_eq!(ledger(2557 * DAY, hot_days).is_none(), right, "{hot_days}");
        }
    }

    fn attempt(fence: i64, number: u32, tracking: Tracking) -> Attempt {
        Attempt { fence: Serial(fence), number, most: 3, tracking }
    }

    fn completed(reference: &str) -> Ending {
        Ending::Completed { answer: None, reference: Some(reference.to_owned()) }
    }

    fn failed(is_final: bool) -> Ending {
        Ending::Failed { error: "no".to_owned(), is_final, answer: None, retry_after: None }
    }

    fn unknown() -> Ending {
        Ending::Unknown { error: "silence".to_owned() }
    }

    /// CLM-4, CLM-6, CLM-7
    #[test]
    fn every_ending_leads_somewhere() {
        use Tracking::{Hold, Retry};
        let (again, for_good) = (Status::Failed { is_final: false }, Status::Failed { is_final: true });
        for (ending, number, tracking, status, next) in [
            (completed("JE-1"), 1, Retry, Status::Completed, Next::Done),
            (completed("JE-1"), 3, Hold, Status::Completed, Next::Done),
            (failed(false), 1, Retry, again, Next::Again),
            (failed(false), 2, Hold, again, Next::Again),
            (failed(false), 3, Retry, for_good, Next::Bury(DeadReason::ReceivesExhausted)),
            (failed(true), 1, Retry, for_good, Next::Bury(DeadReason::Failed)),
            (unknown(), 1, Retry, again, Next::Again),
            (unknown(), 3, Retry, for_good, Next::Bury(DeadReason::ReceivesExhausted)),
            (unknown(), 1, Hold, Status::InDoubt, Next::Bury(DeadReason::InDoubt)),
        ] {
            let mut progress = Progress::new(Serial(7));
            let led = progress.finish(&attempt(9, number, tracking), &ending, Timestamp(5)).unwrap();
            let told = (progress.status, led, progress.fence, progress.attempts, progress.ended_at);
            assert_eq!(told, (status, next, Some(Serial(9)), number, Some(Timestamp(5))), "{ending:?}");
        }
    }

    /// CLM-7: the stored answer never changes once it is there.
    #[test]
    fn who_comes_late_is_fenced_and_changes_nothing() {
        for first in [completed("JE-2"), failed(true)] {
            let mut progress = Progress::new(Serial(7));
            progress.finish(&attempt(9, 2, Tracking::Retry), &first, Timestamp(5)).unwrap();
            let before = progress.clone();
            for late in [completed("JE-1"), failed(false), failed(true), unknown()] {
                let late = progress.finish(&attempt(8, 1, Tracking::Retry), &late, Timestamp(6));
                assert_eq!((late, &progress), (Err(Fenced), &before));
            }
        }
    }

    /// CLM-4
    #[test]
    fn whoever_tells_again_what_it_told_before_is_recognised() {
        let mut progress = Progress::new(Serial(7));
        progress.finish(&attempt(9, 1, Tracking::Retry), &completed("JE-1"), Timestamp(5)).unwrap();
        assert!(progress.was_ended_by(Serial(9), &completed("JE-1")));
        assert!(!progress.was_ended_by(Serial(9), &completed("JE-2")));
        assert!(!progress.was_ended_by(Serial(8), &completed("JE-1")));
        assert!(!progress.was_ended_by(Serial(9), &failed(true)));
    }

    fn claim(expires_at: i64) -> Claim {
        Claim {
            source: "acme/billing".parse().unwrap(),
            message: Serial(6),
            first_seen_at: Timestamp(0),
            expires_at: Timestamp(expires_at),
            hot_until: None,
            progress: Some(Box::new(Progress::new(Serial(7)))),
        }
    }

    /// CLM-20: a second winner would be worse than a late one.
    #[test]
    fn unfinished_work_keeps_its_claim_and_finished_work_for_as_long_as_it_may_be_sent_again() {
        let late = Timestamp(1_000_000);
        for (ending, status) in [(completed("JE-1"), "COMPLETED"), (failed(true), "FAILED")] {
            let mut claim = claim(1000);
            assert!(claim.is_live(late), "it is in progress");
            claim.finish(&attempt(9, 1, Tracking::Retry), &failed(false), late).unwrap();
            assert!(claim.is_live(late), "it is tried again");
            claim.finish(&attempt(10, 2, Tracking::Retry), &ending, late).unwrap();
            assert_eq!(claim.status().as_str(), status);
            let kept = late.plus(2 * limits::REPLAY_WINDOW + limits::CLAIM_KEEP_SLACK);
            assert_eq!(claim.expires_at, kept);
            assert!(!claim.is_live(kept));
        }
        let mut buried = claim(1000);
        buried.buried(DeadReason::RetentionExpired, 3, late);
        assert!(buried.is_live(late) && !buried.is_live(Timestamp(late.0 * 2)));
        let mut long = claim(i64::MAX);
        long.finish(&attempt(9, 1, Tracking::Retry), &completed("JE-1"), late).unwrap();
        assert_eq!(long.expires_at, Timestamp(i64::MAX), "and never for shorter than its policy says");
    }

    /// CLM-4: the last attempt's failure is for good, whatever it was told to be; telling it again is no news.
    #[test]
    fn a_last_failure_that_is_told_again_is_recognised() {
        for ending in [failed(false), unknown()] {
            let mut progress = Progress::new(Serial(7));
            progress.finish(&attempt(9, 3, Tracking::Retry), &ending, Timestamp(5)).unwrap();
            assert_eq!(progress.status, Status::Failed { is_final: true });
            assert!(progress.was_ended_by(Serial(9), &ending), "{ending:?}");
        }
    }

    /// QUA-1: what an engine cannot hold would make the end of work impossible to report.
    #[test]
    fn errors_are_kept_printable_and_short() {
        let mut progress = Progress::new(Serial(7));
        let error = format!("a\u{0}b{}", "c".repeat(1000));
        let ending = Ending::Failed { error, is_final: false, answer: None, retry_after: None };
        progress.finish(&attempt(9, 1, Tracking::Retry), &ending, Timestamp(5)).unwrap();
        let kept = progress.error.unwrap();
        assert!(kept.starts_with("a bc") && kept.len() == limits::ERROR_CHARS_MAX, "{kept}");
    }

    /// CLM-1
    #[test]
    fn a_destination_is_its_own_tenants() {
        let key = |destination: &str| ClaimKey {
            id: MessageId::stored("id"),
            tenant: TenantName::new("zeta").unwrap(),
            destination: destination.into(),
        };
        for (destination, owned) in [("acme/bot:pay", true), ("acm/bot:pay", false), ("acmes/bot:pay", false)]
        {
            assert_eq!(key(destination).is_owned_by("acme"), owned, "{destination}");
        }
    }

    /// CLM-2
    #[test]
    fn a_status_has_one_number_and_its_word() {
        for status in Status::ALL {
            assert_eq!(Status::stored(status.number()), Some(status));
            assert!(Status::named(status.as_str()).contains(&status));
        }
        assert_eq!(Status::stored(5), None);
        assert_eq!(Status::named("failed").len(), 2);
    }

    /// CLM-3
    #[test]
    fn policies_read_as_the_contract_names_them() {
        let read = |text| serde_json::from_str::<ClaimPolicy>(text);
        assert_eq!(read(r#"{"policy":"none"}"#).unwrap(), ClaimPolicy::None);
        assert_eq!(read(r#"{"policy":"strict"}"#).unwrap(), ClaimPolicy::Strict { keep_seconds: 300 });
        for (name, keep, compares) in [
            ("strict", 300, false),
            ("event", 86_400, true),
            ("seen", 2_592_000, false),
            ("ledger", 220_924_800, true),
        ] {
            let text = format!(r#"{{"policy":"{name}"}}"#);
            let policy: ClaimPolicy = serde_json::from_str(&text).unwrap();
            let told = (policy.name(), policy.keep().unwrap().as_secs(), policy.compares().is_some());
            assert_eq!(told, (name, keep, compares));
            assert_eq!(policy.problem(limits::REPLAY_WINDOW, Duration::ZERO), None);
        }
        assert!(read(r#"{"policy":"strict","keep":1}"#).is_err());
    }
}
