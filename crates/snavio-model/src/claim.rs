//! Claims: the record that a message id has been taken up for a destination (CLM-1, CLM-3).

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{MessageId, Serial};
use crate::limits;
use crate::name::{ServiceName, TenantName};
use crate::time::Timestamp;

/// How a route treats an id that it has seen before.
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
}

fn strict_keep_seconds() -> u32 {
    u32::try_from(limits::STRICT_KEEP.as_secs()).unwrap_or(u32::MAX)
}

impl ClaimPolicy {
    /// `strict` with its default parameters.
    pub fn strict() -> Self {
        Self::Strict { keep_seconds: strict_keep_seconds() }
    }

    /// The policy's name in the contract.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Strict { .. } => "strict",
        }
    }

    /// How long a claim lives, if one is made.
    pub fn keep(self) -> Option<Duration> {
        match self {
            Self::None => None,
            Self::Strict { keep_seconds } => Some(Duration::from_secs(u64::from(keep_seconds))),
        }
    }

    /// What is wrong with the policy's parameters, with the arithmetic (CLM-20).
    pub fn problem(self, window: Duration) -> Option<String> {
        let keep = self.keep()?;
        let least = 2 * window + limits::CLAIM_KEEP_SLACK;
        if keep < least {
            return Some(format!(
                "claim.keep_seconds is {}, but a claim must outlive twice the replay window and a wait for the commit: 2 × {} s + {} s = {} s",
                keep.as_secs(),
                window.as_secs(),
                limits::CLAIM_KEEP_SLACK.as_secs(),
                least.as_secs()
            ));
        }
        (keep > limits::CLAIM_KEEP_MAX).then(|| {
            format!("claim.keep_seconds is {}, at most {}", keep.as_secs(), limits::CLAIM_KEEP_MAX.as_secs())
        })
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
            [(179, false), (180, true), (300, true), (30 * 86_400, true), (30 * 86_400 + 1, false)]
        {
            let problem = ClaimPolicy::Strict { keep_seconds }.problem(window);
            assert_eq!(problem.is_none(), right, "{keep_seconds}: {problem:?}");
        }
        let problem = ClaimPolicy::strict().problem(Duration::from_secs(121));
        assert_eq!(
            problem.as_deref(),
            Some(
                "claim.keep_seconds is 300, but a claim must outlive twice the replay window and a wait for the commit: 2 × 121 s + 60 s = 302 s"
            )
        );
    }

    /// CLM-3
    #[test]
    fn policies_read_as_the_contract_names_them() {
        let read = |text| serde_json::from_str::<ClaimPolicy>(text);
        assert_eq!(read(r#"{"policy":"none"}"#).unwrap(), ClaimPolicy::None);
        assert_eq!(read(r#"{"policy":"strict"}"#).unwrap(), ClaimPolicy::Strict { keep_seconds: 300 });
        assert!(read(r#"{"policy":"strict","keep":1}"#).is_err());
    }
}
