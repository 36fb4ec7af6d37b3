//! The shield: cheap checks in memory, in the order of PIP-1. A message that passes is authentic.

mod event;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use snavio_model::message::command::CommandEnvelope;
use snavio_model::message::trace::{CorrelationId, Journey, Traceparent};
use snavio_model::message::{Message, MessageKind};
use snavio_model::name::{KeyVersion, ServiceName};
use snavio_model::refusal::{Reason, Refusal, Refused, Skew, Subject};
use snavio_model::registry::{Registry, ServiceView};
use snavio_model::signature::signing::Signature;
use snavio_model::signature::webhook::WebhookSignature;
use snavio_model::time::Timestamp;

use crate::pipeline::dry_run::Steps;
pub use event::Vouched;

/// The format of a message in its request.
#[derive(Debug, Clone, Default)]
pub enum Form {
    /// The native form of a command or event, as the body.
    #[default]
    Native,
    /// A CloudEvent in structured mode: all of it is in the body.
    Structured,
    /// A CloudEvent in binary mode: its attributes are in these headers, and its data is the body.
    Binary(Arc<[(String, String)]>),
}

/// A request with one message, from an authenticated service.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// Whether the request sends a command or an event.
    pub kind: MessageKind,
    pub form: Form,
    /// The authenticated service.
    pub source: ServiceName,
    /// The bytes of the message.
    pub body: Bytes,
    /// Standard Webhooks headers, if the request has them (MSG-4). Unreadable headers are refused in the
    /// signature step and not earlier (PIP-1).
    pub webhook: Option<Result<WebhookSignature, Refusal>>,
    /// The verified signature of the batch that contains this event.
    pub vouched: Option<Vouched>,
    /// The correlation id of the request. The message's own correlation id takes precedence.
    pub correlation: Option<CorrelationId>,
    /// The trace context of the request.
    pub traceparent: Option<Traceparent>,
    /// The time of receipt.
    pub received_at: Timestamp,
    /// Random bytes for generated ids (MSG-11).
    pub random: [u8; 40],
}

/// A message with a valid form, age and signature. Only [`check`] makes one.
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

/// Checks an arrival against the registry, without asking the store.
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

/// Runs the same checks as [`check`] and records each one, up to the first refusal. A `trusted` caller need
/// not sign.
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
    let invalid = parsed.as_ref().err().map(|refused| refused.refusal.clone());
    let (names_source, invalid) = match invalid {
        Some(refusal) if refusal.reason == Reason::SourcePresent => (Some(refusal), None),
        other => (None, other),
    };
    let form = invalid.map_or_else(|| Ok("it has the form of a command".to_owned()), Err);
    steps.record(SHIELD, "form", form)?;
    let sender = check_source(registry, &arrival.source, arrival.received_at);
    steps.record(
        SHIELD,
        "sender",
        sender.map(|()| format!("{} is neither suspended nor banned", arrival.source)),
    )?;
    if let Some(refusal) = names_source {
        steps.record(SHIELD, "source", Err(refusal))?;
    }
    let envelope = parsed.ok()?;
    let in_window = check_window(envelope.timestamp, arrival.received_at, window);
    steps.record(
        SHIELD,
        "window",
        in_window.map(|()| format!("signed within {} s of now", window.as_secs())),
    )?;
    let source = match service(registry, &arrival.source) {
        Ok(source) => source,
        Err(refusal) => {
            steps.record(SHIELD, "sender", Err(refusal))?;
            return None;
        }
    };
    let evidence = match check_signature(&envelope, arrival, source) {
        Ok(evidence) => {
            steps.record(SHIELD, "signature", Ok(format!("it holds under {}", evidence.0)))?;
            evidence
        }
        Err(refusal) if trusted && refusal.reason == Reason::HmacMissing => {
            steps.skip(SHIELD, "signature", "the message is not signed, and need not be here");
            (KeyVersion::new("none").ok()?, "".into())
        }
        Err(refusal) => {
            steps.record(SHIELD, "signature", Err(refusal))?;
            return None;
        }
    };
    match authentic(&envelope, arrival, registry, source, evidence, &journey) {
        Ok(authentic) => Some(authentic),
        Err(refusal) => {
            steps.record(SHIELD, "target", Err(refusal))?;
            None
        }
    }
}

/// Refuses an arrival that was not judged, with the names that its message has.
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

/// MSG-11: the correlation id and trace context come from the message or the request, or are generated here,
/// before any refusal.
fn journey(parsed: &Parsed<'_>, arrival: &Arrival) -> Journey {
    let own = match parsed {
        Ok(envelope) => &envelope.correlation_id,
        Err(refused) => &refused.subject.correlation,
    };
    begin(own.clone(), None, arrival)
}

fn begin(own: Option<CorrelationId>, own_trace: Option<Traceparent>, arrival: &Arrival) -> Journey {
    let correlation = own.or_else(|| arrival.correlation.clone());
    Journey::begin(correlation, own_trace.or_else(|| arrival.traceparent.clone()), arrival.random)
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
        // An invalid form is refused first, except for `source` in the message, which is checked after
        // suspension and ban.
        (Err(refused), _) if refused.refusal.reason != Reason::SourcePresent => Err(refused.refusal.clone()),
        (_, Err(refusal)) => Err(refusal),
        (Err(refused), Ok(())) => Err(refused.refusal.clone()),
        (Ok(envelope), Ok(())) => authenticate(envelope, arrival, registry, window, journey),
    }
}

/// Checks that the source's tenant is not suspended and the source is not banned.
pub(crate) fn check_source(registry: &Registry, source: &ServiceName, at: Timestamp) -> Result<(), Refusal> {
    match registry.tenant(source.tenant()) {
        Some(tenant) if !tenant.suspended => match registry.ban(source, at) {
            Some(_) => Err(Refusal::new(Reason::Banned, "the source is banned")),
            None => Ok(()),
        },
        Some(_) => Err(Refusal::new(Reason::Suspended, "the tenant is suspended")),
        None => Err(Refusal::new(Reason::Unauthenticated, "the tenant is no longer registered")),
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
    registry
        .service(name.as_str())
        .ok_or_else(|| Refusal::new(Reason::Unauthenticated, "the service is no longer registered"))
}

fn invalid_signature(detail: &'static str) -> Refusal {
    Refusal::new(Reason::HmacInvalid, detail)
}

/// The authenticated message, with the evidence of its signature.
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

/// PIP-1: the replay window is checked before the signature, once, here.
fn check_window(signed_at: Timestamp, received_at: Timestamp, window: Duration) -> Result<(), Refusal> {
    if received_at.skew(signed_at) <= window {
        return Ok(());
    }
    let detail = format!("the message was not signed within {} s of its receipt", window.as_secs());
    let skew = Some(Skew { sent_at: signed_at, received_at });
    Err(Refusal { skew, ..Refusal::new(Reason::TimestampOutOfWindow, detail) })
}

/// Returns the key that signed the message, and the signature as it was sent. If both kinds of signature are
/// present, both must be valid.
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
                let detail = "metadata.version_id names a key that has expired or was revoked";
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

/// MSG-4: the signature covers the raw body and must be for this message, under any valid key of the
/// service.
fn check_webhook(
    webhook: &WebhookSignature,
    envelope: &CommandEnvelope<'_>,
    arrival: &Arrival,
    source: &ServiceView,
) -> Result<(KeyVersion, Arc<str>), Refusal> {
    if !webhook.is_for(&envelope.id) {
        return Err(invalid_signature("webhook-id is not the message's id"));
    }
    if !webhook.is_at(envelope.timestamp) {
        return Err(invalid_signature("webhook-timestamp is not the message's timestamp"));
    }
    let (version, signature) = verify(webhook, &arrival.body, arrival.received_at, source)?;
    Ok((version, format!("webhook {signature}").into()))
}

/// Finds the key of the service that signed a body, and the signature that was valid.
fn verify(
    webhook: &WebhookSignature,
    body: &[u8],
    received_at: Timestamp,
    source: &ServiceView,
) -> Result<(KeyVersion, Signature), Refusal> {
    let keys = source.keys().iter().rev();
    let mut verified = keys.filter_map(|key| Some((key, webhook.verify(&key.secret, body)?)));
    let (key, signature) = verified
        .next()
        .ok_or_else(|| invalid_signature("webhook-signature does not match under any key of this service"))?;
    if !key.is_good(received_at) {
        return Err(Refusal::new(
            Reason::KeyExpired,
            "webhook-signature uses a key that has expired or was revoked",
        ));
    }
    Ok((key.version.clone(), signature))
}

#[cfg(test)]
mod tests;
