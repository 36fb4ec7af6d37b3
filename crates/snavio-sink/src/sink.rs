//! What every sink does (DLV-1): one attempt at handing a message to somebody outside, and what came of it.
//!
//! A sink keeps nothing between attempts and decides nothing about a message: when it is tried again, how often, and how many
//! are under way at once is the caller's business. What it must hold to is the suite in [`conformance`](crate::conformance).

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use snavio_model::delivery::processing::{Called, UnknownOutcome};
use snavio_model::id::{MessageId, Serial};
use snavio_model::message::trace::{CorrelationId, Traceparent};
use snavio_model::name::ServiceName;

use crate::guard::GuardError;

/// One attempt.
#[derive(Debug, Clone)]
pub struct Call {
    /// Where.
    pub url: String,
    /// Whose destination that is: what calls have in common is divided by tenants.
    pub target: ServiceName,
    /// How long it may take, from the first step to the last byte of the answer.
    pub timeout: Duration,
    /// Where in the answer the posting reference is, as a JSON pointer.
    pub reference: Option<String>,
    /// What follows if nobody knows what came of it.
    pub on_unknown_outcome: UnknownOutcome,
    /// The message's id: by it the other side knows what it has done.
    pub message_id: MessageId,
    /// Who sent it: the id is unique only within this one's tenant.
    pub source: ServiceName,
    /// Rises with every attempt.
    pub fence: Serial,
    /// The same over attempts.
    pub delivery_id: Serial,
    /// Which attempt this is, counted from one.
    pub attempt: u32,
    /// The journey of the message,
    pub correlation: CorrelationId,
    /// and its place in a trace.
    pub traceparent: Traceparent,
    /// What the body is, and what else goes with it: a signature, attributes of an event. Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The message.
    pub body: Bytes,
}

/// Hands messages to somebody outside.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Whether an address may be used, as far as can be told before its name is resolved; if not, why.
    fn check(&self, address: &str) -> Result<(), GuardError>;

    /// Makes one attempt, within its time, and says what came of it. Only the sink knows whether anything was sent: what it
    /// says is believed.
    async fn send(&self, call: Call) -> Called;
}
