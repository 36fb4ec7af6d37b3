//! A message that passed the shield, as the gateway stores and delivers it.

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

/// Command or event: the two are written, signed and addressed differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MessageKind {
    /// Addressed to one target.
    #[default]
    Command,
    /// Addressed to every subscription of its type.
    Event,
}

/// A message with the evidence of its sender. The store writes it once; claims and deliveries point to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The sender's tenant, within which message ids are unique.
    pub tenant: TenantName,
    pub id: MessageId,
    pub source: ServiceName,
    /// The target of a command. For an event: its publisher, which owns the type.
    pub target: ServiceName,
    /// The name of the command, or the event type.
    pub name: CommandName,
    /// The target as the producer wrote and signed it; empty for an event.
    pub signed_target: Arc<str>,
    /// The signing time as the producer wrote and signed it; empty for an unsigned message.
    pub sent_at: Arc<str>,
    /// The key that signed it; `None` for an unsigned event (MSG-4).
    pub key_version: Option<KeyVersion>,
    /// The evidence of the sender; empty for an unsigned message. One of:
    ///
    /// - the verified signature in hex (MSG-3);
    /// - `webhook` and the signature of Standard Webhooks, or `webhook-body` and a signature that covers only
    ///   the id and the data of an event (MSG-6);
    /// - for an event that an adapter made (MSG-7): the word `adapter` (or `adapter-body` or `adapter-secret`
    ///   if the provider did not sign all of the event), the adapter's name, and the provider's signature or
    ///   proof.
    pub signature: Arc<str>,
    pub correlation: CorrelationId,
    pub traceparent: Traceparent,
    pub received_at: Timestamp,
    /// Version of the registry that the judgement used.
    pub registry_version: i64,
    /// Hash of the business content.
    pub domain_hash: DomainHash,
    /// The bytes of the payload as received.
    pub payload: Bytes,
    /// The further content of an event; `None` for a command.
    pub event: Option<Arc<EventEnvelope>>,
}

impl Message {
    pub fn kind(&self) -> MessageKind {
        if self.event.is_some() { MessageKind::Event } else { MessageKind::Command }
    }

    /// The adapter that made the event from a provider's webhook, `tenant/name` (MSG-7).
    pub fn adapter(&self) -> Option<&str> {
        let mut words = self.signature.split(' ');
        words.next().filter(|word| EVIDENCE.contains(word)).and_then(|_| words.next())
    }

    /// The version of the signing key as stores keep it: empty for an unsigned message.
    pub fn key_text(&self) -> &str {
        self.key_version.as_ref().map_or("", KeyVersion::as_str)
    }

    /// The identification of the message in reports and refusals.
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

    /// Approximate bytes of the message in queues and batches.
    pub fn bytes(&self) -> usize {
        self.content_bytes() + 512
    }

    /// The message without its producer's content (CLM-18). Names, hash and times stay.
    pub fn erased(self) -> Self {
        let bare = |event: Arc<EventEnvelope>| Arc::new(EventEnvelope { metadata: None, ..(*event).clone() });
        Self { payload: Bytes::new(), event: self.event.map(bare), ..self }
    }

    /// Whether its content was erased. No accepted payload is empty.
    pub fn is_erased(&self) -> bool {
        self.payload.is_empty()
    }

    /// Bytes of the producer's content: the payload, and the metadata of an event.
    pub fn content_bytes(&self) -> usize {
        self.payload.len() + self.event.as_ref().map_or(0, |event| event.bytes())
    }
}

/// How the gateway decided a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Path {
    /// From memory alone.
    Fast,
    /// Against the store.
    Slow,
    /// Not dispatched: its id was already used with different content. The message is kept as evidence
    /// (CLM-8).
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

    /// Reads the text of [`Path::as_str`].
    pub fn stored(text: &str) -> Self {
        match text {
            "fast" => Self::Fast,
            "conflict" => Self::Conflict,
            _ => Self::Slow,
        }
    }
}
