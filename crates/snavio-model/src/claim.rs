//! Claims: the record that a message id has been taken up for a destination (CLM-1, CLM-3).

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::hash::DomainHash;
use crate::id::{MessageId, Serial};
use crate::limits;
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
}

impl Claim {
    /// Whether the claim still holds: judged by time, whenever its row is deleted (CLM-19).
    pub fn is_live(&self, now: Timestamp) -> bool {
        now < self.expires_at
    }
}

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
