//! By whom messages are processed, and who takes them from their queue.

use serde::{Deserialize, Serialize};

/// By whom a message is processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ProcessingKind {
    /// By whoever takes it from the queue: the claim is complete when it is there.
    Queue,
    /// By whoever takes it from the queue and reports back: the claim is complete then.
    Tracked,
    /// By an HTTP endpoint that this gateway calls; its answer is the claim's.
    Http,
    /// By whoever begins the claim through the claims API, and reports back.
    Reported,
    /// By an HTTP endpoint that this gateway pushes it to, again until it is taken: the claim is complete when it is in the
    /// queue (DLV-1).
    Push,
}

impl ProcessingKind {
    /// Whether a claim waits for what becomes of its delivery.
    pub fn is_tracked(self) -> bool {
        !matches!(self, Self::Queue | Self::Push)
    }

    /// Whether the gateway calls somebody for it.
    pub fn is_called(self) -> bool {
        matches!(self, Self::Http | Self::Push)
    }

    /// Whether the gateway sends it to somebody until it is taken, and no claim waits for that (DLV-1).
    pub fn is_sent(self) -> bool {
        self.is_called() && !self.is_tracked()
    }

    /// Who takes it from its queue.
    pub fn taker(self) -> Taker {
        match self {
            Self::Queue | Self::Tracked => Taker::Consumers,
            Self::Http | Self::Push => Taker::Gateway,
            Self::Reported => Taker::Worker,
        }
    }
}

/// Who takes from a queue what is processed so: what is one's is nobody else's (CLM-9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taker {
    /// Whoever consumes it.
    Consumers,
    /// The gateway, which calls somebody with it.
    Gateway,
    /// Whoever begins the claim.
    Worker,
}

impl Taker {
    /// For people.
    pub fn told(self) -> &'static str {
        match self {
            Self::Consumers => "consumers",
            Self::Gateway => "the gateway",
            Self::Worker => "whoever begins the claim",
        }
    }
}
