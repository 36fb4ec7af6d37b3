//! A message that passed the shield, as it is stored, delivered and answered.

pub mod command;
pub mod event;
pub(crate) mod form;
pub mod payload;
pub mod trace;

use std::sync::Arc;

use bytes::Bytes;

use crate::adapter::EVIDENCE;
use crate::hash::DomainHash;
use crate::id::MessageId;
use crate::message::event::EventEnvelope;
use crate::message::trace::{CorrelationId, Traceparent};
use crate::name::{CommandName, KeyVersion, ServiceName, TenantName};
use crate::refusal::Subject;
use crate::time::Timestamp;

/// What kind of message something is: the two are written, signed and addressed differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MessageKind {
    /// For one target, which is to do something.
    #[default]
    Command,
    /// For whoever subscribed: something has happened.
    Event,
}

/// Who sent what to whom, with the evidence: written once, pointed to by claims and deliveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The sender's tenant: the space its ids live in.
    pub tenant: TenantName,
    /// The producer's id.
    pub id: MessageId,
    /// The authenticated sender.
    pub source: ServiceName,
    /// The service it is for; of an event its publisher, whose type it is.
    pub target: ServiceName,
    /// The command, or the event's type.
    pub name: CommandName,
    /// The target as the producer wrote and signed it; empty for an event.
    pub signed_target: Arc<str>,
    /// The signing time as the producer wrote and signed it; empty for what is not signed.
    pub sent_at: Arc<str>,
    /// The key it was signed with; none for an event that is not signed (MSG-4).
    pub key_version: Option<KeyVersion>,
    /// The signature that held, in hex: of MSG-3, or behind the word `webhook` that of Standard Webhooks, and behind
    /// `webhook-body` one that covers the id and the data of an event only (MSG-6). Of an event that
    /// an adapter made: the word `adapter`, or `adapter-body` or `adapter-secret` where its provider did not sign all of the
    /// event, its name, and what its provider signed with (MSG-7). Empty for what is not signed.
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
    /// What an event has besides; nothing of a command.
    pub event: Option<Arc<EventEnvelope>>,
}

impl Message {
    /// What kind of message it is.
    pub fn kind(&self) -> MessageKind {
        if self.event.is_some() { MessageKind::Event } else { MessageKind::Command }
    }

    /// The adapter that made an event of somebody's webhook, `tenant/name` (MSG-7).
    pub fn adapter(&self) -> Option<&str> {
        let mut words = self.signature.split(' ');
        words.next().filter(|it| EVIDENCE.contains(it)).and_then(|_| words.next())
    }

    /// The name of the key it was signed with, as stores keep it: empty without one.
    pub fn key_text(&self) -> &str {
        self.key_version.as_ref().map_or("", KeyVersion::as_str)
    }

    /// What reports name it by.
    pub fn subject(&self) -> Box<Subject> {
        Box::new(Subject {
            kind: self.kind(),
            id: Some(self.id.clone()),
            target: Some(self.target.clone()),
            name: Some(self.name.clone()),
            correlation: Some(self.correlation.clone()),
            traceparent: Some(self.traceparent.clone()),
        })
    }

    /// What the message takes up in queues and batches.
    pub fn bytes(&self) -> usize {
        self.content_bytes() + 512
    }

    /// The same without what its producer wrote into it (CLM-18): its names, its hash and its times stay.
    pub fn erased(self) -> Self {
        let bare = |event: Arc<EventEnvelope>| Arc::new(EventEnvelope { metadata: None, ..(*event).clone() });
        Self { payload: Bytes::new(), event: self.event.map(bare), ..self }
    }

    /// Whether what it said was destroyed: no payload that was sent is empty.
    pub fn is_erased(&self) -> bool {
        self.payload.is_empty()
    }

    /// How much its producer has written into it: the payload, and an event's metadata.
    pub fn content_bytes(&self) -> usize {
        self.payload.len() + self.event.as_ref().map_or(0, |event| event.bytes())
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
