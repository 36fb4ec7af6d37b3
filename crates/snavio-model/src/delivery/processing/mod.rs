//! Processing: what is done with a message once it is taken up, and what may come of it (CLM-6, CLM-7, CLM-9).
//!
//! A route says how ([`Processing`]); an attempt ends in an [`Ending`]; [`Retry`] says when the next one is due. What an ending means for the claim is judged in [`crate::claim`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::claim::Next;
use crate::delivery::breaker::Presence;
use crate::delivery::{DeadReason, Tracking};
use crate::id::Serial;
use crate::time::Timestamp;

mod answer;
mod kind;

pub use answer::{Answer, is_reference};
pub use kind::{ProcessingKind, Taker};

/// How what is sent by a route is processed, and how attempts follow each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Processing {
    /// By whom.
    pub kind: ProcessingKind,
    /// Where an HTTP processor is called, or messages are pushed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// In which form messages are pushed.
    #[serde(default, skip_serializing_if = "PushForm::is_default")]
    pub form: PushForm,
    /// Where in the answer the posting reference is, as a JSON pointer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// How long a call may take; shorter than the deadline.
    #[serde(default = "timeout_default")]
    pub timeout_seconds: u32,
    /// For how long an attempt is in progress before it counts as failed; the worker can ask for more.
    #[serde(default = "deadline_default")]
    pub deadline_seconds: u32,
    /// What follows an attempt whose outcome is unknown.
    #[serde(default)]
    pub on_unknown_outcome: UnknownOutcome,
    /// The pause after the first failed attempt; it doubles with each further one.
    #[serde(default = "backoff_default")]
    pub backoff_seconds: u32,
    /// The longest pause.
    #[serde(default = "backoff_max_default")]
    pub backoff_max_seconds: u32,
}

/// In which form messages are pushed (DLV-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum PushForm {
    /// As consumers get it.
    #[default]
    Native,
    /// As a CloudEvent in structured mode; events only.
    Cloudevents,
    /// As a CloudEvent in binary mode; events only.
    CloudeventsBinary,
}

impl PushForm {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::Native
    }
}

/// What follows an attempt whose outcome is unknown (CLM-7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum UnknownOutcome {
    /// The next attempt: the processor must know by the id what it has done.
    #[default]
    Retry,
    /// Nothing, until a person has looked.
    Hold,
}

fn timeout_default() -> u32 {
    20
}

fn deadline_default() -> u32 {
    30
}

fn backoff_default() -> u32 {
    1
}

fn backoff_max_default() -> u32 {
    60
}

impl Default for Processing {
    fn default() -> Self {
        Self::of(ProcessingKind::Queue)
    }
}

impl Processing {
    /// Of a kind, with its default parameters.
    pub fn of(kind: ProcessingKind) -> Self {
        Self {
            kind,
            url: None,
            form: PushForm::default(),
            reference: None,
            timeout_seconds: timeout_default(),
            deadline_seconds: deadline_default(),
            on_unknown_outcome: UnknownOutcome::default(),
            backoff_seconds: backoff_default(),
            backoff_max_seconds: backoff_max_default(),
        }
    }

    /// By an HTTP endpoint.
    pub fn http(url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..Self::of(ProcessingKind::Http) }
    }

    /// By being pushed to an HTTP endpoint.
    pub fn push(url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..Self::of(ProcessingKind::Push) }
    }

    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a claim waits for what becomes of its delivery.
    pub fn is_tracked(&self) -> bool {
        self.kind.is_tracked()
    }

    /// How its deliveries are followed.
    pub fn tracking(&self) -> Tracking {
        match self.on_unknown_outcome {
            _ if !self.is_tracked() => Tracking::Plain,
            UnknownOutcome::Retry => Tracking::Retry,
            UnknownOutcome::Hold => Tracking::Hold,
        }
    }

    /// For how long an attempt is in progress before it counts as failed.
    pub fn deadline(&self) -> Duration {
        Duration::from_secs(u64::from(self.deadline_seconds))
    }

    /// How long a call may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(u64::from(self.timeout_seconds))
    }

    /// How long a call may take whose lease ends after so long: what came of it must be on record before. None if too little
    /// of its time is left for a call to be worth an attempt.
    pub fn call_time(&self, left: Duration) -> Option<Duration> {
        let time = self.timeout().min(left.saturating_sub(bounds::CALL_LEASE_MARGIN));
        (2 * time >= self.timeout()).then_some(time)
    }

    /// When an attempt that failed is followed by the next, if the processor wants that at a certain time at the
    /// earliest.
    pub fn retry(&self, at_least: Option<Duration>) -> Retry {
        let [first, longest] =
            [self.backoff_seconds, self.backoff_max_seconds].map(|it| Duration::from_secs(it.into()));
        Retry::Backoff { first, longest, at_least: at_least.unwrap_or_default() }
    }

    fn longest_delay(&self, attempt: u32) -> Duration {
        let doubled = u64::from(self.backoff_seconds) << attempt.saturating_sub(1).min(31);
        Duration::from_secs(doubled.min(u64::from(self.backoff_max_seconds)))
    }

    /// How long all attempts take at most, with the pauses between (CLM-20): what is reported back may take up to its
    /// deadline each time, and a push ends with its call. None that somebody takes from a queue are the route's own.
    pub fn longest(&self, attempts: u32) -> Attempts {
        let each = match self.kind {
            ProcessingKind::Queue => return Attempts::default(),
            ProcessingKind::Push => self.timeout(),
            ProcessingKind::Tracked | ProcessingKind::Http | ProcessingKind::Reported => self.deadline(),
        };
        let pauses = (1..attempts).map(|attempt| self.longest_delay(attempt)).sum();
        Attempts { count: attempts, each, pauses }
    }

    /// What is wrong with the parameters, if anything.
    pub fn problem(&self) -> Option<String> {
        let is_called = self.kind.is_called();
        let within = |what: &str, value: u32, most: u32| {
            (!(1..=most).contains(&value)).then(|| format!("processing.{what} is {value}, not 1 to {most}"))
        };
        let pointer = self.reference.as_deref();
        if is_called != self.url.is_some() {
            return Some("processing.url is for the kinds http and push, and needed there".to_owned());
        }
        if self.kind != ProcessingKind::Push && self.form != PushForm::Native {
            return Some("processing.form is for the kind push".to_owned());
        }
        if self.kind.is_sent() && (pointer.is_some() || self.on_unknown_outcome != UnknownOutcome::Retry) {
            let what = "processing.reference and on_unknown_outcome are of kinds whose outcome is kept";
            return Some(format!("{what}: what is pushed is sent again until it is taken"));
        }
        if let Some(pointer) =
            pointer.filter(|it| !it.starts_with('/') || it.len() > bounds::POINTER_BYTES_MAX)
        {
            return Some(format!(
                "processing.reference is no JSON pointer: {pointer:?} (for example /reference)"
            ));
        }
        if is_called && self.timeout_seconds >= self.deadline_seconds {
            return Some(format!(
                "processing.timeout_seconds is {}, but a call must end before its attempt's deadline: {} s",
                self.timeout_seconds, self.deadline_seconds
            ));
        }
        within("deadline_seconds", self.deadline_seconds, bounds::DEADLINE_SECONDS_MAX)
            .or_else(|| within("timeout_seconds", self.timeout_seconds, bounds::DEADLINE_SECONDS_MAX))
            .or_else(|| within("backoff_seconds", self.backoff_seconds, bounds::BACKOFF_SECONDS_MAX))
            .or_else(|| within("backoff_max_seconds", self.backoff_max_seconds, bounds::BACKOFF_SECONDS_MAX))
    }
}

/// All attempts of a route at one message, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attempts {
    /// How many.
    pub count: u32,
    /// How long each may take.
    pub each: Duration,
    /// All pauses between them.
    pub pauses: Duration,
}

impl Attempts {
    /// How long they take at most.
    pub fn total(&self) -> Duration {
        self.each * self.count + self.pauses
    }
}

impl std::fmt::Display for Attempts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} × {} s + {} s", self.count, self.each.as_secs(), self.pauses.as_secs())
    }
}

/// When an attempt that failed is followed by the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// At this time.
    At(Timestamp),
    /// After a pause that doubles with each attempt.
    Backoff {
        /// The first pause.
        first: Duration,
        /// The longest.
        longest: Duration,
        /// What the processor asked for.
        at_least: Duration,
    },
}

impl Retry {
    /// When the attempt after this one, counted from one, is due. A pause lies anywhere in its upper half, so that
    /// deliveries that failed together do not come back together; for one attempt it is always the same.
    pub fn due(self, attempt: u32, delivery: Serial, now: Timestamp) -> Timestamp {
        let (first, longest, at_least) = match self {
            Self::At(at) => return at,
            Self::Backoff { first, longest, at_least } => (first, longest, at_least),
        };
        let full =
            first.saturating_mul(1 << attempt.saturating_sub(1).min(31)).min(longest).as_millis() as u64;
        // Numbers that follow each other are spread over all of the range.
        let spread = (delivery.0 as u64 ^ u64::from(attempt)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let pause = Duration::from_millis(full / 2 + spread % (full - full / 2 + 1));
        now.plus(pause.max(at_least))
    }
}

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It is done.
    Completed {
        /// What the processor answered, if it answered anything.
        answer: Option<Answer>,
        /// The posting reference.
        reference: Option<String>,
        /// What is missing all the same, for people.
        note: Option<String>,
    },
    /// It is not done, and had no effect.
    Failed {
        /// What went wrong, for people.
        error: String,
        /// Whether another attempt would end the same way.
        is_final: bool,
        /// What the processor answered, if it answered anything.
        answer: Option<Answer>,
        /// When the processor wants the next attempt, at the earliest.
        retry_after: Option<Duration>,
    },
    /// Nobody knows whether it is done.
    Unknown {
        /// What is known, for people.
        error: String,
    },
}

/// What came of calling somebody outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    /// Of the attempt.
    pub ending: Ending,
    /// Of whom was called.
    pub presence: Presence,
}

impl Ending {
    /// What is to be done with a delivery that no claim waits for, or whose claim cannot be found: that does not make known
    /// what nobody knows (CLM-7).
    pub fn without_claim(&self, tracking: Tracking) -> Next {
        match self {
            Self::Completed { .. } => Next::Done,
            Self::Failed { is_final: true, .. } => Next::Bury(DeadReason::Failed),
            Self::Unknown { .. } if tracking == Tracking::Hold => Next::Bury(DeadReason::InDoubt),
            Self::Failed { .. } | Self::Unknown { .. } => Next::Again,
        }
    }

    /// What an HTTP processor's answer means: done for 2xx; to be tried again for 408, 425, 429 and 5xx; anything else
    /// would be answered the same way again. A gateway between may have passed the request on: what it says with 502
    /// and 504 is not known to have had no effect. Nor is any other 5xx where what nobody knows of is held for a person, but
    /// for one that says with 503 when to come back: a processor may fail after its effect, and so may what stands before
    /// it. The status says so also of an answer that is none here because it is too long to be kept.
    pub fn of_http(
        status: u16,
        answer: Option<Answer>,
        pointer: Option<&str>,
        retry_after: Option<Duration>,
        on_unknown_outcome: UnknownOutcome,
    ) -> Self {
        let mut error = format!("the processor answered {status}");
        if answer.is_none() {
            error += &format!(" with more than {} bytes, which are not kept", bounds::ANSWER_BYTES_MAX);
        }
        match status {
            200..=299 => Self::done(error, answer, pointer),
            502 | 504 => Self::Unknown { error },
            500..=599
                if on_unknown_outcome == UnknownOutcome::Hold
                    && !(status == 503 && retry_after.is_some()) =>
            {
                Self::Unknown { error }
            }
            // Somebody is at it still: who says when to come back does not mean for good.
            409 if retry_after.is_some() => Self::Failed { error, is_final: false, answer, retry_after },
            408 | 425 | 429 | 500..=599 => Self::Failed { error, is_final: false, answer, retry_after },
            _ => Self::Failed { error, is_final: true, answer, retry_after: None },
        }
    }

    /// What a receiver's answer to a push means (DLV-4): done for 2xx, and tried again for everything else. Only time or a
    /// person can say that it never will be taken.
    pub fn of_push(status: u16, retry_after: Option<Duration>) -> Self {
        if (200..=299).contains(&status) {
            return Self::Completed { answer: None, reference: None, note: None };
        }
        let error = match status {
            300..=399 => format!("the receiver answered {status}, a redirect, and those are not followed"),
            410 => "the receiver answered 410: it wants no more".to_owned(),
            _ => format!("the receiver answered {status}"),
        };
        Self::Failed { error, is_final: false, answer: None, retry_after }
    }

    /// What went wrong, if anything did.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Completed { .. } => None,
            Self::Failed { error, .. } | Self::Unknown { error } => Some(error),
        }
    }

    /// The same where nobody was asked in this attempt: of those before it, only who was asked can say that they did nothing,
    /// so that it is for good is not for the gateway to say (CLM-7).
    #[must_use]
    pub fn unasked(self, attempt: u32) -> Self {
        match self {
            Self::Failed { error, is_final: true, answer, retry_after } if attempt > 1 => {
                Self::Failed { error, is_final: false, answer, retry_after }
            }
            other => other,
        }
    }

    /// The same for an attempt that no other follows.
    #[must_use]
    pub fn last(self) -> Self {
        match self {
            Self::Completed { .. } => self,
            Self::Failed { error, answer, .. } => {
                Self::Failed { error, is_final: true, answer, retry_after: None }
            }
            Self::Unknown { error } => {
                Self::Failed { error, is_final: true, answer: None, retry_after: None }
            }
        }
    }

    /// Done, though what is to be kept of it may be missing: it would be missing after another attempt, too.
    fn done(told: String, answer: Option<Answer>, pointer: Option<&str>) -> Self {
        let (reference, note) = match (&answer, pointer) {
            (Some(_), None) => (None, None),
            (None, None) => (None, Some(told)),
            (None, Some(pointer)) => {
                (None, Some(format!("{told}; so the reference under {pointer} is not known")))
            }
            (Some(answer), Some(pointer)) => match answer.reference(pointer) {
                Ok(reference) => (Some(reference), None),
                Err(why) => (None, Some(format!("{told} without a reference under {pointer}: {why}"))),
            },
        };
        Self::Completed { answer, reference, note }
    }
}

#[cfg(test)]
mod tests;
