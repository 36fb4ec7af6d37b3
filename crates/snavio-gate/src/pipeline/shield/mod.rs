//! The shield: cheap checks in memory, in the order of PIP-1. What passes is authentic.

mod event;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use snavio_model::message::command::CommandEnvelope;
use snavio_model::message::trace::{CorrelationId, Journey, Traceparent};
use snavio_model::message::{Message, MessageKind};
use snavio_model::name::{KeyVersion, ServiceName};
use snavio_model::refusal::{Reason, Refusal, Refused, Skew, Subject};
use snavio_model::registry::{LiveKey, Registry, ServiceView};
use snavio_model::signature::signing::Signature;
use snavio_model::signature::webhook::WebhookSignature;
use snavio_model::time::Timestamp;

use crate::pipeline::dry_run::Steps;
pub use event::Vouched;

/// How a message is written in its request.
#[derive(Debug, Clone, Default)]
pub enum Form {
    /// In the form of its own that its kind has, as the body.
    #[default]
    Native,
    /// A CloudEvent in structured mode: all of it as the body.
    Structured,
    /// A CloudEvent in binary mode: its attributes in these headers, its data as the body.
    Binary(Arc<[(String, String)]>),
}

/// A request with one message, from a caller who proved which service it is.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// What it was sent as.
    pub kind: MessageKind,
    /// How it is written.
    pub form: Form,
    /// The authenticated service.
    pub source: ServiceName,
    /// The message's bytes.
    pub body: Bytes,
    /// Standard Webhooks headers, where the request has them (MSG-4). Those that cannot be read are refused in
    /// their turn, with the signature (PIP-1).
    pub webhook: Option<Result<WebhookSignature, Refusal>>,
    /// The signature of a batch of events that holds for all of it.
    pub vouched: Option<Vouched>,
    /// The journey the request says it belongs to; what the message says goes before it.
    pub correlation: Option<CorrelationId>,
    /// The trace the request belongs to.
    pub traceparent: Option<Traceparent>,
    /// When the request was taken.
    pub received_at: Timestamp,
    /// Random bytes for the ids that are generated at entry (MSG-11).
    pub random: [u8; 40],
}

/// Form, age and signature hold: only [`check`] can make one.
#[derive(Debug)]
pub(crate) struct Authentic {
    message: Message,
    signed_at: Option<Timestamp>,
}

impl Authentic {
    /// The message, and its signing time if it is signed.
    pub(crate) fn into_parts(self) -> (Message, Option<Timestamp>) {
        (self.message, self.signed_at)
    }
}

/// Checks an arrival against the registry. Nothing is asked of a store.
pub(crate) fn check(arrival: &Arrival, registry: &Registry, window: Duration) -> Result<Authentic, Refused> {
    match arrival.kind {
        MessageKind::Command => check_command(arrival, registry, window),
        MessageKind::Event => event::check(arrival, registry, window),
    }
}

fn check_command(arrival: &Arrival, registry: &Registry, window: Duration) -> Result<Authentic, Refused> {
    let parsed = CommandEnvelope::parse(&arrival.body);
    let journey = journey(&parsed, arrival);
    let judged = judge(&parsed, arrival, registry, window, &journey);
    judged
        .map_err(|refusal| Refused { subject: subject(parsed, journey, registry, &arrival.source), refusal })
}

/// The same check by check, each noted, up to the first that refuses. Whoever is trusted need not sign.
pub(crate) fn walk(
    arrival: &Arrival,
    registry: &Registry,
    window: Duration,
    trusted: bool,
    steps: &mut Steps,
) -> Option<Authentic> {
    const SHIELD: &str = "shield";
    let parsed = CommandEnvelope::parse(&arrival.body);
    let journey = journey(&parsed, arrival);
    let wrong = parsed.as_ref().err().map(|refused| refused.refusal.clone());
    let (names_source, wrong) = match wrong {
        Some(refusal) if refusal.reason == Reason::SourcePresent => (Some(refusal), None),
        other => (None, other),
    };
    let is_form = wrong.map_or_else(|| Ok("it has the form of a command".to_owned()), Err);
    steps.note(SHIELD, "form", is_form)?;
    let sender = check_source(registry, &arrival.source, arrival.received_at);
    steps.note(
        SHIELD,
        "sender",
        sender.map(|()| format!("{} is neither suspended nor banned", arrival.source)),
    )?;
    if let Some(refusal) = names_source {
        steps.note(SHIELD, "source", Err(refusal))?;
    }
    let envelope = parsed.ok()?;
    let in_window = check_window(envelope.timestamp, arrival.received_at, window);
    steps.note(
        SHIELD,
        "window",
        in_window.map(|()| format!("signed within {} s of now", window.as_secs())),
    )?;
    let source = match service(registry, &arrival.source) {
        Ok(source) => source,
        Err(refusal) => {
            steps.note(SHIELD, "sender", Err(refusal))?;
            return None;
        }
    };
    let evidence = match check_signature(&envelope, arrival, source) {
        Ok(evidence) => {
            steps.note(SHIELD, "signature", Ok(format!("it holds under {}", evidence.0)))?;
            evidence
        }
        Err(refusal) if trusted && refusal.reason == Reason::HmacMissing => {
            steps.skip(SHIELD, "signature", "the message is not signed, and need not be here");
            (KeyVersion::new("none").ok()?, "".into())
        }
        Err(refusal) => {
            steps.note(SHIELD, "signature", Err(refusal))?;
            return None;
        }
    };
    match authentic(&envelope, arrival, registry, source, evidence, &journey) {
        Ok(authentic) => Some(authentic),
        Err(refusal) => {
            steps.note(SHIELD, "target", Err(refusal))?;
            None
        }
    }
}

/// Refuses an arrival that was not judged, under the names it has.
pub(crate) fn refuse(arrival: &Arrival, registry: &Registry, refusal: Refusal) -> Refused {
    let subject = match arrival.kind {
        MessageKind::Command => {
            let parsed = CommandEnvelope::parse(&arrival.body);
            let journey = journey(&parsed, arrival);
            subject(parsed, journey, registry, &arrival.source)
        }
        MessageKind::Event => event::subject(arrival),
    };
    Refused { subject, refusal }
}

type Parsed<'a> = Result<CommandEnvelope<'a>, Refused>;

/// MSG-11: taken from the message or the request, else generated here, before anything is refused.
fn journey(parsed: &Parsed<'_>, arrival: &Arrival) -> Journey {
    let said = match parsed {
        Ok(envelope) => &envelope.correlation_id,
        Err(refused) => &refused.subject.correlation,
    };
    begin(said.clone(), None, arrival)
}

fn begin(said: Option<CorrelationId>, traced: Option<Traceparent>, arrival: &Arrival) -> Journey {
    let correlation = said.or_else(|| arrival.correlation.clone());
    Journey::begin(correlation, traced.or_else(|| arrival.traceparent.clone()), arrival.random)
}

fn subject(parsed: Parsed<'_>, journey: Journey, registry: &Registry, source: &ServiceName) -> Box<Subject> {
    let known = match parsed {
        Ok(envelope) => {
            let tenant = registry.service(source.as_str()).map(|view| &view.tenant);
            let target =
                tenant.and_then(|tenant| ServiceName::resolve(envelope.target.as_str(), tenant).ok());
            Subject { id: Some(envelope.id), target, name: Some(envelope.name), ..Subject::default() }
        }
        Err(refused) => *refused.subject,
    };
    let on = Subject::on(MessageKind::Command, journey);
    Box::new(Subject { id: known.id, target: known.target, name: known.name, ..on })
}

fn judge(
    parsed: &Parsed<'_>,
    arrival: &Arrival,
    registry: &Registry,
    window: Duration,
    journey: &Journey,
) -> Result<Authentic, Refusal> {
    match (parsed, check_source(registry, &arrival.source, arrival.received_at)) {
        // What is wrong with the form comes first, except for the one check that follows suspension.
        (Err(wrong), _) if wrong.refusal.reason != Reason::SourcePresent => Err(wrong.refusal.clone()),
        (_, Err(refusal)) => Err(refusal),
        (Err(wrong), Ok(())) => Err(wrong.refusal.clone()),
        (Ok(envelope), Ok(())) => authenticate(envelope, arrival, registry, window, journey),
    }
}

/// Neither is its tenant suspended, nor is it banned itself.
pub(crate) fn check_source(registry: &Registry, source: &ServiceName, at: Timestamp) -> Result<(), Refusal> {
    match registry.tenant(source.tenant()) {
        Some(tenant) if !tenant.suspended => match registry.ban(source, at) {
            Some(_) => Err(Refusal::new(Reason::Banned, "the source is banned")),
            None => Ok(()),
        },
        Some(_) => Err(Refusal::new(Reason::Suspended, "the tenant is suspended")),
        None => Err(Refusal::new(Reason::Unauthenticated, "the tenant is not registered any more")),
    }
}

fn authenticate(
    envelope: &CommandEnvelope<'_>,
    arrival: &Arrival,
    registry: &Registry,
    window: Duration,
    journey: &Journey,
) -> Result<Authentic, Refusal> {
    check_window(envelope.timestamp, arrival.received_at, window)?;
    let source = service(registry, &arrival.source)?;
    let evidence = check_signature(envelope, arrival, source)?;
    authentic(envelope, arrival, registry, source, evidence, journey)
}

fn service<'a>(registry: &'a Registry, name: &ServiceName) -> Result<&'a Arc<ServiceView>, Refusal> {
    let gone = || Refusal::new(Reason::Unauthenticated, "the service is not registered any more");
    registry.service(name.as_str()).ok_or_else(gone)
}

/// The message that holds, with what it was found to hold by.
fn authentic(
    envelope: &CommandEnvelope<'_>,
    arrival: &Arrival,
    registry: &Registry,
    source: &ServiceView,
    (key_version, signature): (KeyVersion, Arc<str>),
    journey: &Journey,
) -> Result<Authentic, Refusal> {
    let target = ServiceName::resolve(envelope.target.as_str(), &source.tenant);
    let target = target.map_err(|invalid| Refusal::new(Reason::InvalidName, invalid.to_string()))?;
    let payload = arrival.body.slice_ref(envelope.payload.raw());
    let Journey { correlation, traceparent } = journey.clone();
    let message = Message {
        tenant: source.tenant.clone(),
        id: envelope.id.clone(),
        source: source.name.clone(),
        domain_hash: envelope.domain_hash(&target),
        target,
        name: envelope.name.clone(),
        signed_target: envelope.target.as_str().into(),
        sent_at: envelope.timestamp_text.as_ref().into(),
        key_version: Some(key_version),
        signature,
        correlation,
        traceparent,
        received_at: arrival.received_at,
        registry_version: registry.version(),
        payload,
        event: None,
    };
    Ok(Authentic { message, signed_at: Some(envelope.timestamp) })
}

/// PIP-1: the window comes before the signature, and is checked once, here.
fn check_window(signed_at: Timestamp, received_at: Timestamp, window: Duration) -> Result<(), Refusal> {
    if received_at.skew(signed_at) <= window {
        return Ok(());
    }
    let detail = format!("the message was not signed within {} s of its receipt", window.as_secs());
    let skew = Some(Skew { sent_at: signed_at, received_at });
    Err(Refusal { skew, ..Refusal::new(Reason::TimestampOutOfWindow, detail) })
}

/// Which key signed the message, and the signature as it came. Where both kinds are present both must hold.
fn check_signature(
    envelope: &CommandEnvelope<'_>,
    arrival: &Arrival,
    source: &ServiceView,
) -> Result<(KeyVersion, Arc<str>), Refusal> {
    let by_header = match &arrival.webhook {
        Some(Ok(webhook)) => Some(check_webhook(webhook, envelope, arrival, source)?),
        Some(Err(refusal)) => return Err(refusal.clone()),
        None => None,
    };
    let by_hmac = match &envelope.hmac {
        Some(signature) => {
            let invalid =
                || Refusal::new(Reason::HmacInvalid, "metadata.hmac must be 64 lower-case hex digits");
            let signature = signature.as_ref().map_err(|_| invalid())?;
            let unknown =
                || Refusal::new(Reason::KeyUnknown, "metadata.version_id names no key of this service");
            let version = envelope.version_id.as_ref().ok_or_else(unknown)?;
            let key = source.key(version).ok_or_else(unknown)?;
            if !key.is_good(arrival.received_at) {
                let detail = "metadata.version_id names a key that is not accepted any more";
                return Err(Refusal::new(Reason::KeyExpired, detail));
            }
            let text = envelope.signing_text(&key.version, &source.name);
            if !text.verify(&key.secret, signature) {
                let detail = "metadata.hmac is not the signature of this message under this key";
                return Err(Refusal::new(Reason::HmacInvalid, detail));
            }
            Some((key.version.clone(), signature.to_text()))
        }
        None => None,
    };
    let missing =
        || Refusal::new(Reason::HmacMissing, "metadata.hmac is missing, and no webhook-signature was sent");
    by_hmac.or(by_header).ok_or_else(missing)
}

/// MSG-4: over the raw body, for this very message, under any live key of the service.
fn check_webhook(
    webhook: &WebhookSignature,
    envelope: &CommandEnvelope<'_>,
    arrival: &Arrival,
    source: &ServiceView,
) -> Result<(KeyVersion, Arc<str>), Refusal> {
    let invalid = |detail: &'static str| Refusal::new(Reason::HmacInvalid, detail);
    if !webhook.is_for(&envelope.id) {
        return Err(invalid("webhook-id is not the message's id"));
    }
    if !webhook.is_at(envelope.timestamp) {
        return Err(invalid("webhook-timestamp is not the message's timestamp"));
    }
    let (version, signature) = verify(webhook, &arrival.body, arrival.received_at, source)?;
    Ok((version, format!("webhook {signature}").into()))
}

/// The key of the service that signed a body, and the signature that held.
fn verify<'a>(
    webhook: &WebhookSignature,
    body: &[u8],
    received_at: Timestamp,
    source: &'a ServiceView,
) -> Result<(KeyVersion, Signature), Refusal> {
    let invalid = |detail: &'static str| Refusal::new(Reason::HmacInvalid, detail);
    let verified = |key: &'a Arc<LiveKey>| Some((key, webhook.verify(&key.secret, body)?));
    let none = || invalid("webhook-signature does not match under any key of this service");
    let (key, signature) = source.keys().iter().rev().find_map(verified).ok_or_else(none)?;
    if !key.is_good(received_at) {
        return Err(Refusal::new(
            Reason::KeyExpired,
            "webhook-signature is of a key that is not accepted any more",
        ));
    }
    Ok((key.version.clone(), signature))
}

#[cfg(test)]
mod tests;
