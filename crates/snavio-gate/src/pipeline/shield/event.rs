//! The shield's checks of an event (MSG-4, MSG-5, MSG-6): it may come in its native form or as a CloudEvent, its timestamp
//! is content, and it is signed by the request or not at all.

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

/// Events that somebody vouched for before they were looked at one by one: a batch that its sender signed as a whole
/// (MSG-4), or a webhook that its provider showed to be its own (MSG-7). Only a check can make one.
#[derive(Debug, Clone)]
pub struct Vouched(Voucher, Evidence);

/// Who vouched.
#[derive(Debug, Clone)]
enum Voucher {
    Key(KeyVersion),
    Adapter(Arc<LiveAdapter>),
}

/// What shows that an event is its sender's.
#[derive(Debug, Clone)]
struct Evidence {
    /// None where an adapter shows it.
    key_version: Option<KeyVersion>,
    signature: Arc<str>,
    signed_at: Option<Timestamp>,
}

impl Vouched {
    /// Checks age and signature of a whole batch, once for all that is in it.
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
        Ok(Self(Voucher::Key(key), evidence))
    }

    /// Checks that a request is from an adapter's provider. The adapter's word counts as its service's signature where the
    /// provider signs all that the event is.
    pub(crate) fn by_adapter(
        adapter: &Arc<LiveAdapter>,
        request: &WebhookRequest<'_>,
        received_at: Timestamp,
    ) -> Result<Self, Refusal> {
        let verified = adapter.adapter.verification.verify(request, &adapter.secrets, received_at)?;
        let signature = format!("{} {} {}", adapter.adapter.evidence(), adapter.name(), verified.signature);
        let (signature, signed_at) = (signature.trim_end().into(), verified.signed_at);
        Ok(Self(Voucher::Adapter(Arc::clone(adapter)), Evidence { key_version: None, signature, signed_at }))
    }

    /// A key or an adapter may have been taken back since.
    fn check_again(
        &self,
        source: &ServiceView,
        registry: &Registry,
        received_at: Timestamp,
    ) -> Result<Evidence, Refusal> {
        let (holds, ended) = match &self.0 {
            Voucher::Key(version) => (
                source.key(version).is_some_and(|key| key.is_good(received_at)),
                Refusal::new(Reason::KeyExpired, "the batch's key is not accepted any more"),
            ),
            Voucher::Adapter(adapter) => (
                adapter.adapter.service == source.name && adapter.is_in(registry),
                Refusal::new(Reason::Unauthenticated, "the adapter was changed meanwhile; send it again"),
            ),
        };
        if !holds {
            return Err(ended);
        }
        if let Voucher::Adapter(adapter) = &self.0
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

/// Checks an event against the registry. Nothing is asked of a store.
pub(super) fn check(arrival: &Arrival, registry: &Registry, window: Duration) -> Result<Authentic, Refused> {
    read(arrival, |parsed, journey| {
        let judged = judge(&parsed, arrival, registry, window, &journey);
        judged.map_err(|refusal| Refused { subject: named(parsed, journey, arrival), refusal })
    })
}

/// The names of an event that was not judged.
pub(super) fn subject(arrival: &Arrival) -> Box<Subject> {
    read(arrival, |parsed, journey| named(parsed, journey, arrival))
}

/// Reads an event as the native one that it is, in whatever form it came, and its journey (MSG-11): what the event says
/// goes before what the request says.
fn read<T>(arrival: &Arrival, act: impl FnOnce(Parsed<'_>, Journey) -> T) -> T {
    let cloud_event = match &arrival.form {
        Form::Native => {
            let parsed = NativeEvent::parse(&arrival.body);
            let said = match &parsed {
                Ok(event) => event.correlation_id.clone(),
                Err(refused) => refused.subject.correlation.clone(),
            };
            return act(parsed, begin(said, None, arrival));
        }
        Form::Structured => CloudEvent::structured(&arrival.body),
        Form::Binary(headers) => {
            let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            CloudEvent::binary(headers, &arrival.body)
        }
    };
    let said = match &cloud_event {
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
    act(parsed, begin(said.0, said.1, arrival))
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
        // What is wrong with the form comes first, except for whose it says to be, which follows suspension.
        (Err(wrong), _) if wrong.refusal.reason != Reason::SourcePresent => {
            return Err(wrong.refusal.clone());
        }
        (_, Err(refusal)) => return Err(refusal),
        (Err(wrong), Ok(())) => return Err(wrong.refusal.clone()),
        (Ok(event), Ok(())) => event,
    };
    check_own(event, &arrival.source)?;
    let source = service(registry, &arrival.source)?;
    let evidence = check_signature(event, arrival, registry, source, window)?;
    Ok(authentic(event, arrival, registry, source, evidence, journey))
}

/// MSG-5, REG-8: whoever says who it is says the truth.
fn check_own(event: &NativeEvent<'_>, own: &ServiceName) -> Result<(), Refusal> {
    match &event.source {
        Some(said) if said.as_str() != own.as_str() && said.as_str() != own.service() => {
            Err(Refusal::new(Reason::SourcePresent, "source is not the sender's own name"))
        }
        _ => Ok(()),
    }
}

/// MSG-4, MSG-7: an event is signed by the request it came with, by that of its batch, by its provider's as its adapter
/// knows it, or, where its service need not sign, not at all.
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
        // Whoever is in between could make another type of it, and of money another's.
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
        (None, Some(vouched)) => vouched.check_again(source, registry, received_at).map(Some),
        (None, None) if source.signed_events => {
            let detail = "events of this service must be signed, and no webhook-signature was sent";
            Err(Refusal::new(Reason::HmacMissing, detail))
        }
        (None, None) => Ok(None),
    }
}

/// The message that holds, with what it was found to hold by.
fn authentic(
    event: &NativeEvent<'_>,
    arrival: &Arrival,
    registry: &Registry,
    source: &ServiceView,
    evidence: Option<Evidence>,
    journey: &Journey,
) -> Authentic {
    let Journey { correlation, traceparent } = journey.clone();
    // A type that is not there is refused by the next stage.
    let version = || source.event_type(&event.event_type).map(|it| it.version.clone()).unwrap_or_default();
    let received = || arrival.received_at.to_string();
    let envelope = EventEnvelope {
        version: event.version.clone().unwrap_or_else(version),
        timestamp: event.timestamp.as_ref().map_or_else(received, |text| text.clone().into_owned()),
        metadata: event.metadata.map(str::to_owned),
    };
    let (key_version, signature, signed_at) =
        evidence.map_or((None, "".into(), None), |it| (it.key_version, it.signature, it.signed_at));
    let message = Message {
        tenant: source.tenant.clone(),
        id: event.id.clone(),
        source: source.name.clone(),
        target: source.name.clone(),
        name: event.event_type.clone(),
        signed_target: "".into(),
        // As it was signed: in seconds.
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
    // A provider's clock is held against its adapter's tolerance, not against the window of senders.
    let signed_at = signed_at.filter(|_| message.key_version.is_some());
    Authentic { message, signed_at }
}

/// The payload's bytes: a part of the body, or, where it was decoded or made, bytes of its own.
fn payload(body: &Bytes, raw: &[u8]) -> Bytes {
    let (whole, part) = (body.as_ptr_range(), raw.as_ptr_range());
    let is_part = whole.start <= part.start && part.end <= whole.end;
    if is_part { body.slice_ref(raw) } else { Bytes::copy_from_slice(raw) }
}
