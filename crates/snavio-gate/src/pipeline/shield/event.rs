//! The shield's checks of events (MSG-4, MSG-5, MSG-6). An event comes in its native form or as a CloudEvent.
//! Its timestamp is content and has no replay window. The request signs it, or it is not signed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use snavio_model::adapter::{UNSIGNED_ADVICE, WebhookRequest};
use snavio_model::cloudevents::CloudEvent;
use snavio_model::message::event::{EventEnvelope, NativeEvent};
use snavio_model::message::trace::Journey;
use snavio_model::message::{Message, MessageKind};
use snavio_model::name::{KeyVersion, ServiceName};
use snavio_model::refusal::{Reason, Refusal, Refused, Subject};
use snavio_model::registry::{LiveAdapter, Registry, ServiceView};
use snavio_model::signature::webhook::WebhookSignature;
use snavio_model::time::Timestamp;

use super::{Arrival, Authentic, Form, begin, check_source, check_window, service, verify};

/// The proof for events that were verified before they are judged one by one: a batch that its sender signed
/// as a whole (MSG-4), or a provider's verified webhook (MSG-7). Only a check makes one.
#[derive(Debug, Clone)]
pub struct Vouched(Verifier, Evidence);

/// The verifier of the proof.
#[derive(Debug, Clone)]
enum Verifier {
    Key(KeyVersion),
    Adapter(Arc<LiveAdapter>),
}

/// The evidence that an event is its sender's.
#[derive(Debug, Clone)]
struct Evidence {
    /// `None` if an adapter verified the event.
    key_version: Option<KeyVersion>,
    signature: Arc<str>,
    signed_at: Option<Timestamp>,
}

impl Vouched {
    /// Checks the age and signature of a whole batch, once for all its events.
    pub(crate) fn check(
        webhook: &WebhookSignature,
        body: &[u8],
        source: &ServiceName,
        registry: &Registry,
        received_at: Timestamp,
        window: Duration,
    ) -> Result<Self, Refusal> {
        let source = service(registry, source)?;
        let (key, evidence) = Evidence::check(webhook, body, "webhook", source, received_at, window)?;
        Ok(Self(Verifier::Key(key), evidence))
    }

    /// Checks that a request is from an adapter's provider. The adapter's evidence counts as the service's
    /// signature if the provider signs the whole event.
    pub(crate) fn check_webhook(
        adapter: &Arc<LiveAdapter>,
        request: &WebhookRequest<'_>,
        received_at: Timestamp,
    ) -> Result<Self, Refusal> {
        let verified = adapter.adapter.verification.verify(request, &adapter.secrets, received_at)?;
        let signature = format!("{} {} {}", adapter.adapter.evidence(), adapter.name(), verified.signature);
        let (signature, signed_at) = (signature.trim_end().into(), verified.signed_at);
        Ok(Self(Verifier::Adapter(Arc::clone(adapter)), Evidence { key_version: None, signature, signed_at }))
    }

    /// Checks that the key or the adapter is still valid: it may have been revoked since.
    fn recheck(
        &self,
        source: &ServiceView,
        registry: &Registry,
        received_at: Timestamp,
    ) -> Result<Evidence, Refusal> {
        let (is_valid, refusal) = match &self.0 {
            Verifier::Key(version) => (
                source.key(version).is_some_and(|key| key.is_good(received_at)),
                Refusal::new(Reason::KeyExpired, "the batch's key has expired or was revoked"),
            ),
            Verifier::Adapter(adapter) => (
                adapter.adapter.service == source.name && adapter.is_in(registry),
                Refusal::new(Reason::Unauthenticated, "the adapter was changed meanwhile; send it again"),
            ),
        };
        if !is_valid {
            return Err(refusal);
        }
        if let Verifier::Adapter(adapter) = &self.0
            && source.signed_events
            && let Some(unsigned) = adapter.adapter.unsigned()
        {
            let detail = format!("events of this service must be signed, and {unsigned}: {UNSIGNED_ADVICE}");
            return Err(Refusal::new(Reason::HmacMissing, detail));
        }
        Ok(self.1.clone())
    }
}

impl Evidence {
    fn check(
        webhook: &WebhookSignature,
        body: &[u8],
        covers: &str,
        source: &ServiceView,
        received_at: Timestamp,
        window: Duration,
    ) -> Result<(KeyVersion, Self), Refusal> {
        let signed_at = Timestamp(webhook.timestamp.saturating_mul(1000));
        check_window(signed_at, received_at, window)?;
        let (key, signature) = verify(webhook, body, received_at, source)?;
        let signature = format!("{covers} {signature}").into();
        Ok((key.clone(), Self { key_version: Some(key), signature, signed_at: Some(signed_at) }))
    }
}

type Parsed<'a> = Result<NativeEvent<'a>, Refused>;

/// Checks an event against the registry, without asking the store.
pub(super) fn check(arrival: &Arrival, registry: &Registry, window: Duration) -> Result<Authentic, Refused> {
    read(arrival, |parsed, journey| {
        let judged = judge(&parsed, arrival, registry, window, &journey);
        judged.map_err(|refusal| Refused { subject: named(parsed, journey, arrival), refusal })
    })
}

/// The subject of an event that was not judged.
pub(super) fn subject(arrival: &Arrival) -> Box<Subject> {
    read(arrival, |parsed, journey| named(parsed, journey, arrival))
}

/// Parses an event in any form as a native event, with its correlation id and trace context (MSG-11). The
/// event's own values take precedence over the request's.
fn read<T>(arrival: &Arrival, act: impl FnOnce(Parsed<'_>, Journey) -> T) -> T {
    let cloud_event = match &arrival.form {
        Form::Native => {
            let parsed = NativeEvent::parse(&arrival.body);
            let own = match &parsed {
                Ok(event) => event.correlation_id.clone(),
                Err(refused) => refused.subject.correlation.clone(),
            };
            return act(parsed, begin(own, None, arrival));
        }
        Form::Structured => CloudEvent::structured(&arrival.body),
        Form::Binary(headers) => {
            let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            CloudEvent::binary(headers, &arrival.body)
        }
    };
    let own = match &cloud_event {
        Ok(event) => (event.correlation_id.clone(), event.traceparent.clone()),
        Err(refused) => (refused.subject.correlation.clone(), refused.subject.traceparent.clone()),
    };
    let parsed = match &cloud_event {
        Ok(event) => event.native(&arrival.source).map_err(|refusal| {
            let (id, name) = (Some(event.id.clone()), Some(event.event_type.clone()));
            Refused { subject: Box::new(Subject { id, name, ..Subject::default() }), refusal }
        }),
        Err(refused) => Err(refused.clone()),
    };
    act(parsed, begin(own.0, own.1, arrival))
}

fn named(parsed: Parsed<'_>, journey: Journey, arrival: &Arrival) -> Box<Subject> {
    let (id, name) = match parsed {
        Ok(event) => (Some(event.id), Some(event.event_type)),
        Err(refused) => (refused.subject.id, refused.subject.name),
    };
    let target = Some(arrival.source.clone());
    Box::new(Subject { id, name, target, ..Subject::on(MessageKind::Event, journey) })
}

fn judge(
    parsed: &Parsed<'_>,
    arrival: &Arrival,
    registry: &Registry,
    window: Duration,
    journey: &Journey,
) -> Result<Authentic, Refusal> {
    let event = match (parsed, check_source(registry, &arrival.source, arrival.received_at)) {
        // An invalid form is refused first, except for the event's `source`, which is checked after
        // suspension and ban.
        (Err(refused), _) if refused.refusal.reason != Reason::SourcePresent => {
            return Err(refused.refusal.clone());
        }
        (_, Err(refusal)) => return Err(refusal),
        (Err(refused), Ok(())) => return Err(refused.refusal.clone()),
        (Ok(event), Ok(())) => event,
    };
    check_own_source(event, &arrival.source)?;
    let source = service(registry, &arrival.source)?;
    let evidence = check_signature(event, arrival, registry, source, window)?;
    Ok(authentic(event, arrival, registry, source, evidence, journey))
}

/// MSG-5, REG-8: an event with a `source` must name its own sender.
fn check_own_source(event: &NativeEvent<'_>, sender: &ServiceName) -> Result<(), Refusal> {
    match &event.source {
        Some(source) if source.as_str() != sender.as_str() && source.as_str() != sender.service() => {
            Err(Refusal::new(Reason::SourcePresent, "source is not the sender's own name"))
        }
        _ => Ok(()),
    }
}

/// MSG-4, MSG-7: an event is signed by its request, by its batch, or by its provider as its adapter verified.
/// It may be unsigned if its service does not require signatures.
fn check_signature(
    event: &NativeEvent<'_>,
    arrival: &Arrival,
    registry: &Registry,
    source: &ServiceView,
    window: Duration,
) -> Result<Option<Evidence>, Refusal> {
    let received_at = arrival.received_at;
    let is_in_headers = matches!(arrival.form, Form::Binary(_));
    if is_in_headers && source.signed_events {
        // An intermediary could change the attributes in the headers: the event's type, or the party that an
        // amount belongs to.
        let detail = "events of this service must be signed, and a signature covers the body only: send the event in structured mode, not with its attributes in headers";
        return Err(Refusal::new(Reason::HmacMissing, detail));
    }
    let covers = if is_in_headers { "webhook-body" } else { "webhook" };
    match (&arrival.webhook, &arrival.vouched) {
        (Some(Err(refusal)), _) => Err(refusal.clone()),
        (Some(Ok(webhook)), _) => {
            let (_, evidence) = Evidence::check(webhook, &arrival.body, covers, source, received_at, window)?;
            if !webhook.is_for(&event.id) {
                return Err(Refusal::new(Reason::HmacInvalid, "webhook-id is not the event's id"));
            }
            Ok(Some(evidence))
        }
        (None, Some(vouched)) => vouched.recheck(source, registry, received_at).map(Some),
        (None, None) if source.signed_events => {
            let detail = "events of this service must be signed, and no webhook-signature was sent";
            Err(Refusal::new(Reason::HmacMissing, detail))
        }
        (None, None) => Ok(None),
    }
}

/// The authenticated message, with the evidence of its signature.
fn authentic(
    event: &NativeEvent<'_>,
    arrival: &Arrival,
    registry: &Registry,
    source: &ServiceView,
    evidence: Option<Evidence>,
    journey: &Journey,
) -> Authentic {
    let Journey { correlation, traceparent } = journey.clone();
    // The next stage refuses an event type that is not registered.
    let version = || {
        source.event_type(&event.event_type).map(|event_type| event_type.version.clone()).unwrap_or_default()
    };
    let received = || arrival.received_at.to_string();
    let envelope = EventEnvelope {
        version: event.version.clone().unwrap_or_else(version),
        timestamp: event.timestamp.as_ref().map_or_else(received, |text| text.clone().into_owned()),
        metadata: event.metadata.map(str::to_owned),
    };
    let (key_version, signature, signed_at) = evidence.map_or((None, "".into(), None), |evidence| {
        (evidence.key_version, evidence.signature, evidence.signed_at)
    });
    let message = Message {
        tenant: source.tenant.clone(),
        id: event.id.clone(),
        source: source.name.clone(),
        target: source.name.clone(),
        name: event.event_type.clone(),
        signed_target: "".into(),
        // In seconds, as it was signed.
        sent_at: signed_at.map(|at| (at.0 / 1000).to_string()).unwrap_or_default().into(),
        key_version,
        signature,
        correlation,
        traceparent,
        received_at: arrival.received_at,
        registry_version: registry.version(),
        domain_hash: event.domain_hash(),
        payload: payload(&arrival.body, event.data.raw()),
        event: Some(Arc::new(envelope)),
    };
    // The clock of a provider is checked by its adapter's tolerance and not by the senders' replay window.
    let signed_at = signed_at.filter(|_| message.key_version.is_some());
    Authentic { message, signed_at }
}

/// The bytes of the payload: a slice of the body, or a copy if the payload was decoded or generated.
fn payload(body: &Bytes, raw: &[u8]) -> Bytes {
    let (whole, part) = (body.as_ptr_range(), raw.as_ptr_range());
    let is_part = whole.start <= part.start && part.end <= whole.end;
    if is_part { body.slice_ref(raw) } else { Bytes::copy_from_slice(raw) }
}
