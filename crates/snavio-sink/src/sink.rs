//! The interface of a sink (DLV-1): it makes one attempt to deliver a message to an outside party and returns
//! the outcome.
//!
//! A sink keeps nothing between attempts and decides nothing about a message. The caller decides when and how
//! often an attempt is repeated, and how many calls are in flight. The suite in
//! [`conformance`](crate::conformance) is the contract of a sink.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use snavio_model::delivery::processing::{Called, UnknownOutcome};
use snavio_model::id::{MessageId, Serial};
use snavio_model::message::trace::{CorrelationId, Traceparent};
use snavio_model::name::ServiceName;

use crate::guard::GuardError;

/// One attempt to deliver a message.
#[derive(Debug, Clone)]
pub struct Call {
    pub url: String,
    /// The service that owns the destination. Shared resources of calls are divided by its tenant.
    pub target: ServiceName,
    /// The limit for the whole attempt, from its first step to the last byte of the response.
    pub timeout: Duration,
    /// JSON pointer to the posting reference in the response.
    pub reference: Option<String>,
    /// The route's policy for an attempt with an unknown outcome.
    pub on_unknown_outcome: UnknownOutcome,
    /// The message's id. The other side deduplicates by it.
    pub message_id: MessageId,
    /// The producer. The message id is unique only within the producer's tenant.
    pub source: ServiceName,
    /// The fencing token; it rises with every attempt.
    pub fence: Serial,
    /// Stays the same over all attempts.
    pub delivery_id: Serial,
    /// The number of this attempt, counted from 1.
    pub attempt: u32,
    pub correlation: CorrelationId,
    pub traceparent: Traceparent,
    /// The kind's own headers: content type, signature, attributes of an event. Names are in lower case.
    pub headers: Vec<(String, String)>,
    /// The message's bytes.
    pub body: Bytes,
}

/// Delivers messages to one kind of outside destination.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Checks whether an address may be used, as far as this can be judged before its name is resolved.
    fn check(&self, address: &str) -> Result<(), GuardError>;

    /// Makes one attempt within `call.timeout` and returns its outcome. Only the sink knows whether it sent
    /// anything, so the caller trusts the outcome.
    async fn send(&self, call: Call) -> Called;
}
