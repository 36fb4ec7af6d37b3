//! Processing of messages and the outcome of attempts (CLM-6, CLM-7, CLM-9).
//!
//! A route sets the parameters ([`Processing`]). An attempt ends in an [`Ending`], and [`Retry`] determines
//! the time of the next one. [`crate::claim`] judges the effect of an ending on the claim.

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

/// How the messages of a route are processed, and how attempts follow each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Processing {
    /// The party that processes the messages.
    pub kind: ProcessingKind,
    /// URL of the HTTP processor or of the receiver of pushes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The form in which messages are pushed.
    #[serde(default, skip_serializing_if = "PushForm::is_default")]
    pub form: PushForm,
    /// JSON pointer to the reference in the processor's response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Longest duration of a call, in seconds; shorter than the deadline.
    #[serde(default = "timeout_default")]
    pub timeout_seconds: u32,
    /// Duration of an attempt in seconds after which it counts as failed. The worker can extend it.
    #[serde(default = "deadline_default")]
    pub deadline_seconds: u32,
    /// The treatment of an attempt whose outcome is unknown.
    #[serde(default)]
    pub on_unknown_outcome: UnknownOutcome,
    /// Pause after the first failed attempt, in seconds. It doubles with each further one.
    #[serde(default = "backoff_default")]
    pub backoff_seconds: u32,
    /// Longest pause between two attempts, in seconds.
    #[serde(default = "backoff_max_default")]
    pub backoff_max_seconds: u32,
}

/// The form in which messages are pushed (DLV-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum PushForm {
    /// The form that consumers receive.
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

/// The treatment of an attempt whose outcome is unknown (CLM-7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum UnknownOutcome {
    /// Make the next attempt. The processor must recognize the id of work that it has done.
    #[default]
    Retry,
    /// Hold the claim until a person has settled it.
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
    /// Processing of a kind with its default parameters.
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

    /// Processing by an HTTP endpoint.
    pub fn http(url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..Self::of(ProcessingKind::Http) }
    }

    /// Delivery by a push to an HTTP endpoint.
    pub fn push(url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..Self::of(ProcessingKind::Push) }
    }

    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a claim waits for the outcome of its delivery.
    pub fn is_tracked(&self) -> bool {
        self.kind.is_tracked()
    }

    /// The tracking of its deliveries.
    pub fn tracking(&self) -> Tracking {
        match self.on_unknown_outcome {
            _ if !self.is_tracked() => Tracking::Plain,
            UnknownOutcome::Retry => Tracking::Retry,
            UnknownOutcome::Hold => Tracking::Hold,
        }
    }

    /// Duration of an attempt after which it counts as failed.
    pub fn deadline(&self) -> Duration {
        Duration::from_secs(u64::from(self.deadline_seconds))
    }

    /// Longest duration of a call.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(u64::from(self.timeout_seconds))
    }

    /// Time for a call under a lease with `left` remaining: the node must commit the outcome before the lease
    /// ends. `None` if less than half of the configured timeout is left, which is not worth an attempt.
    pub fn call_time(&self, left: Duration) -> Option<Duration> {
        let time = self.timeout().min(left.saturating_sub(bounds::CALL_LEASE_MARGIN));
        (2 * time >= self.timeout()).then_some(time)
    }

    /// The time of the next attempt after a failed one. The processor may ask for a shortest pause.
    pub fn retry(&self, at_least: Option<Duration>) -> Retry {
        let [first, longest] = [self.backoff_seconds, self.backoff_max_seconds]
            .map(|seconds| Duration::from_secs(seconds.into()));
        Retry::Backoff { first, longest, at_least: at_least.unwrap_or_default() }
    }

    fn longest_delay(&self, attempt: u32) -> Duration {
        let doubled = u64::from(self.backoff_seconds) << attempt.saturating_sub(1).min(31);
        Duration::from_secs(doubled.min(u64::from(self.backoff_max_seconds)))
    }

    /// Longest duration of all attempts with their pauses (CLM-20). A reported attempt may take up to its
    /// deadline, and a push ends with its call. A `queue` route has no attempts of its own, because its
    /// consumers do not report.
    pub fn longest(&self, attempts: u32) -> Attempts {
        let each = match self.kind {
            ProcessingKind::Queue => return Attempts::default(),
            ProcessingKind::Push => self.timeout(),
            ProcessingKind::Tracked | ProcessingKind::Http | ProcessingKind::Reported => self.deadline(),
        };
        let pauses = (1..attempts).map(|attempt| self.longest_delay(attempt)).sum();
        Attempts { count: attempts, each, pauses }
    }

    /// The first problem of the parameters, if any.
    pub fn problem(&self) -> Option<String> {
        let is_called = self.kind.is_called();
        let pointer = self.reference.as_deref();
        if is_called != self.url.is_some() {
            return Some(
                "processing.url is required for the kinds http and push, and not allowed for others"
                    .to_owned(),
            );
        }
        if self.kind != ProcessingKind::Push && self.form != PushForm::Native {
            return Some("processing.form is allowed only for the kind push".to_owned());
        }
        if self.kind.is_sent() && (pointer.is_some() || self.on_unknown_outcome != UnknownOutcome::Retry) {
            let settings =
                "processing.reference and processing.on_unknown_outcome are not allowed for the kind push";
            return Some(format!("{settings}: the gateway pushes again until the receiver accepts"));
        }
        if let Some(pointer) =
            pointer.filter(|text| !text.starts_with('/') || text.len() > bounds::POINTER_BYTES_MAX)
        {
            return Some(format!(
                "processing.reference must be a JSON pointer of at most {} bytes, for example /reference, not {pointer:?}",
                bounds::POINTER_BYTES_MAX
            ));
        }
        if is_called && self.timeout_seconds >= self.deadline_seconds {
            return Some(format!(
                "processing.timeout_seconds is {}, but a call must end before its attempt's deadline: {} s",
                self.timeout_seconds, self.deadline_seconds
            ));
        }
        range_problem("deadline_seconds", self.deadline_seconds, bounds::DEADLINE_SECONDS_MAX)
            .or_else(|| range_problem("timeout_seconds", self.timeout_seconds, bounds::DEADLINE_SECONDS_MAX))
            .or_else(|| range_problem("backoff_seconds", self.backoff_seconds, bounds::BACKOFF_SECONDS_MAX))
            .or_else(|| {
                range_problem("backoff_max_seconds", self.backoff_max_seconds, bounds::BACKOFF_SECONDS_MAX)
            })
    }
}

/// The problem of a parameter that is not within 1 to `most`.
fn range_problem(parameter: &str, value: u32, most: u32) -> Option<String> {
    (!(1..=most).contains(&value)).then(|| format!("processing.{parameter} is {value}, not 1 to {most}"))
}

/// All attempts of a route to process one message, in sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attempts {
    pub count: u32,
    /// Longest duration of one attempt.
    pub each: Duration,
    /// Sum of the pauses between attempts.
    pub pauses: Duration,
}

impl Attempts {
    /// Longest duration of all attempts with their pauses.
    pub fn total(&self) -> Duration {
        self.each * self.count + self.pauses
    }
}

impl std::fmt::Display for Attempts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} × {} s + {} s", self.count, self.each.as_secs(), self.pauses.as_secs())
    }
}

/// The time of the next attempt after a failed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    At(Timestamp),
    /// After a pause that doubles with each attempt.
    Backoff {
        first: Duration,
        longest: Duration,
        /// The shortest pause that the processor asked for.
        at_least: Duration,
    },
}

impl Retry {
    /// The time of the attempt after attempt number `attempt` (from one). The pause lies in its upper half,
    /// at a point that depends on delivery and attempt: deliveries that failed together do not return
    /// together, and repeated computations agree.
    pub fn due(self, attempt: u32, delivery: Serial, now: Timestamp) -> Timestamp {
        let (first, longest, at_least) = match self {
            Self::At(at) => return at,
            Self::Backoff { first, longest, at_least } => (first, longest, at_least),
        };
        let full =
            first.saturating_mul(1 << attempt.saturating_sub(1).min(31)).min(longest).as_millis() as u64;
        // The multiplication spreads consecutive delivery ids over the whole range.
        let spread = (delivery.0 as u64 ^ u64::from(attempt)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let pause = Duration::from_millis(full / 2 + spread % (full - full / 2 + 1));
        now.plus(pause.max(at_least))
    }
}

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The work is done.
    Completed {
        /// The processor's response, if any.
        answer: Option<Answer>,
        /// The reference of the result in the target's system.
        reference: Option<String>,
        /// The missing parts of a completed result, for people.
        note: Option<String>,
    },
    /// The work is not done and had no effect.
    Failed {
        /// The cause, for people.
        error: String,
        /// Whether another attempt would end the same way.
        is_final: bool,
        /// The processor's response, if any.
        answer: Option<Answer>,
        /// The shortest pause that the processor asked for.
        retry_after: Option<Duration>,
    },
    /// The outcome is unknown.
    Unknown {
        /// The known facts, for people.
        error: String,
    },
}

/// The result of a call to an outside endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    /// The outcome of the attempt.
    pub ending: Ending,
    /// The presence of the endpoint, for the circuit breaker.
    pub presence: Presence,
}

impl Ending {
    /// The next action for a delivery that no claim waits for, or whose claim is missing. A missing claim
    /// does not make an unknown outcome known (CLM-7).
    pub fn without_claim(&self, tracking: Tracking) -> Next {
        match self {
            Self::Completed { .. } => Next::Done,
            Self::Failed { is_final: true, .. } => Next::Bury(DeadReason::Failed),
            Self::Unknown { .. } if tracking == Tracking::Hold => Next::Bury(DeadReason::InDoubt),
            Self::Failed { .. } | Self::Unknown { .. } => Next::Again,
        }
    }

    /// The meaning of an HTTP processor's response:
    ///
    /// - 2xx: done.
    /// - 408, 425, 429 and 5xx: failed, to be tried again.
    /// - 502 and 504: unknown, because a proxy may have forwarded the request.
    /// - Any other 5xx on a route that holds unknown outcomes: unknown, because a processor, or a proxy
    ///   before it, may fail after the effect. A 503 with `Retry-After` counts as failed.
    /// - Everything else: failed for good, because the processor would answer the same way again.
    ///
    /// The status also decides for a response that is too long to be kept (`answer` is `None`).
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
            200..=299 => Self::completed(error, answer, pointer),
            502 | 504 => Self::Unknown { error },
            500..=599
                if on_unknown_outcome == UnknownOutcome::Hold
                    && !(status == 503 && retry_after.is_some()) =>
            {
                Self::Unknown { error }
            }
            // The processor still works on it: `Retry-After` shows that the refusal is not final.
            409 if retry_after.is_some() => Self::Failed { error, is_final: false, answer, retry_after },
            408 | 425 | 429 | 500..=599 => Self::Failed { error, is_final: false, answer, retry_after },
            _ => Self::Failed { error, is_final: true, answer, retry_after: None },
        }
    }

    /// The meaning of a receiver's response to a push (DLV-4): done for 2xx, tried again for everything else.
    /// Only time or a person can decide that a receiver will never accept a message.
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

    /// The error of an attempt that is not completed.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Completed { .. } => None,
            Self::Failed { error, .. } | Self::Unknown { error } => Some(error),
        }
    }

    /// The ending of an attempt that made no call. After an earlier attempt it is not final, because only the
    /// processor knows whether that one had an effect (CLM-7).
    #[must_use]
    pub fn unasked(self, attempt: u32) -> Self {
        match self {
            Self::Failed { error, is_final: true, answer, retry_after } if attempt > 1 => {
                Self::Failed { error, is_final: false, answer, retry_after }
            }
            other => other,
        }
    }

    /// The ending of the last attempt: a failure is final, and an unknown outcome becomes a final failure.
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

    /// Completed, even if the reference is missing: another attempt would not supply it. `status_text` begins
    /// the note.
    fn completed(status_text: String, answer: Option<Answer>, pointer: Option<&str>) -> Self {
        let (reference, note) = match (&answer, pointer) {
            (Some(_), None) => (None, None),
            (None, None) => (None, Some(status_text)),
            (None, Some(pointer)) => {
                (None, Some(format!("{status_text}; so the reference under {pointer} is not known")))
            }
            (Some(answer), Some(pointer)) => match answer.reference(pointer) {
                Ok(reference) => (Some(reference), None),
                Err(error) => {
                    (None, Some(format!("{status_text} without a reference under {pointer}: {error}")))
                }
            },
        };
        Self::Completed { answer, reference, note }
    }
}

#[cfg(test)]
mod tests;
