//! A message that passed the shield, as it is stored, delivered and answered.

use std::sync::Arc;

use bytes::Bytes;

use crate::hash::DomainHash;
use crate::id::MessageId;
use crate::name::{CommandName, KeyVersion, ServiceName, TenantName};
use crate::refusal::Subject;
use crate::time::Timestamp;
use crate::trace::{CorrelationId, Traceparent};

/// Who sent what to whom, with the evidence: written once, pointed to by claims and deliveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The sender's tenant: the space its ids live in.
    pub tenant: TenantName,
    /// The producer's id.
    pub id: MessageId,
    /// The authenticated sender.
    pub source: ServiceName,
    /// The service it is for.
    pub target: ServiceName,
    /// The command.
    pub name: CommandName,
    /// The target as the producer wrote and signed it.
    pub signed_target: Arc<str>,
    /// The signing time as the producer wrote and signed it.
    pub sent_at: Arc<str>,
    /// The key it was signed with.
    pub key_version: KeyVersion,
    /// The signature that held, in hex: of MSG-3, or behind the word `webhook` that of Standard Webhooks.
    pub signature: Arc<str>,
    /// Shows the whole journey.
    pub correlation: CorrelationId,
    /// The W3C trace it belongs to.
    pub traceparent: Traceparent,
    /// When the gateway took it.
    pub received_at: Timestamp,
    /// The registry it was judged by.
    pub registry_version: i64,
    /// The hash of its business content.
    pub domain_hash: DomainHash,
    /// The payload's bytes as they came.
    pub payload: Bytes,
}

impl Message {
    /// What reports name it by.
    pub fn subject(&self) -> Box<Subject> {
        Box::new(Subject {
            id: Some(self.id.clone()),
            target: Some(self.target.clone()),
            name: Some(self.name.clone()),
            correlation: Some(self.correlation.clone()),
            traceparent: Some(self.traceparent.clone()),
        })
    }

    /// What the message takes up in queues and batches.
    pub fn bytes(&self) -> usize {
        self.payload.len() + 512
    }
}

/// How a message was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Path {
    /// From memory alone.
    Fast,
    /// Against the store.
    Slow,
    /// Not dispatched at all: its id means something else already, and it is kept as evidence (CLM-8).
    Conflict,
}

impl Path {
    /// The word in answers, telemetry and stores.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Slow => "slow",
            Self::Conflict => "conflict",
        }
    }

    /// Takes back what [`Path::as_str`] gave.
    pub fn stored(text: &str) -> Self {
        match text {
            "fast" => Self::Fast,
            "conflict" => Self::Conflict,
            _ => Self::Slow,
        }
    }
}
