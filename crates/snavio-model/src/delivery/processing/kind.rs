//! The party that processes messages, and the party that receives them from their queue.

use serde::{Deserialize, Serialize};

/// The party that processes a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ProcessingKind {
    /// A consumer that receives it from the queue. The claim is complete when the message is in the queue.
    Queue,
    /// A consumer that receives it from the queue and reports the outcome, which completes the claim.
    Tracked,
    /// An HTTP endpoint that the gateway calls. Its response is stored with the claim.
    Http,
    /// A worker that begins the claim through the claims API and reports the outcome.
    Reported,
    /// An HTTP endpoint to which the gateway pushes it until the endpoint accepts. The claim is complete when
    /// the message is in the queue (DLV-1).
    Push,
}

impl ProcessingKind {
    /// Whether a claim waits for the outcome of its delivery.
    pub fn is_tracked(self) -> bool {
        !matches!(self, Self::Queue | Self::Push)
    }

    /// Whether the gateway calls an endpoint.
    pub fn is_called(self) -> bool {
        matches!(self, Self::Http | Self::Push)
    }

    /// Whether the gateway pushes to an endpoint until it accepts, and no claim waits for that (DLV-1).
    pub fn is_sent(self) -> bool {
        self.is_called() && !self.is_tracked()
    }

    /// The party that receives its deliveries from the queue.
    pub fn taker(self) -> Taker {
        match self {
            Self::Queue | Self::Tracked => Taker::Consumers,
            Self::Http | Self::Push => Taker::Gateway,
            Self::Reported => Taker::Worker,
        }
    }
}

/// The party that receives deliveries from a queue. No other party may (CLM-9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taker {
    Consumers,
    /// The gateway, which calls an endpoint.
    Gateway,
    /// A worker that begins the claim.
    Worker,
}

impl Taker {
    /// The name of the party in texts for people.
    pub fn told(self) -> &'static str {
        match self {
            Self::Consumers => "consumers",
            Self::Gateway => "the gateway",
            Self::Worker => "whoever begins the claim",
        }
    }
}
