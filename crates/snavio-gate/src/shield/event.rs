//! The shield's checks of an event (MSG-4, MSG-5): its timestamp is content, and it is signed by the request or not at all.

use std::sync::Arc;
use std::time::Duration;

use snavio_model::event::{EventEnvelope, NativeEvent};
use snavio_model::message::{Message, MessageKind};
use snavio_model::name::{KeyVersion, ServiceName};
use snavio_model::refusal::{Reason, Refusal, Refused, Subject};
use snavio_model::registry::{Registry, ServiceView};
use snavio_model::time::Timestamp;
use snavio_model::trace::Journey;
use snavio_model::webhook::WebhookSignature;

use super::{Arrival, Authentic, begin, check_source, check_window, service, verify};

/// A batch of events that its sender signed as a whole (MSG-4): only [`Vouched::check`] can make one.
#[derive(Debug, Clone)]
pub struct Vouched(Evidence);

/// What shows that an event is its sender's.
#[derive(Debug, Clone)]
struct Evidence {
    key_version: KeyVersion,
    signature: Arc<str>,
    signed_at: Timestamp,
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
        Evidence::check(webhook, body, source, received_at, window).map(Self)
    }

    /// A key may have been taken back since.
    fn check_again(&self, source: &ServiceView, received_at: Timestamp) -> Result<Evidence, Refusal> {
        let key = source.key(&self.0.key_version).filter(|key| key.is_good(received_at));
        let ended = || Refusal::new(Reason::KeyExpired, "the batch's key is not accepted any more");
        key.map(|_| self.0.clone()).ok_or_else(ended)
    }
}

impl Evidence {
    fn check(
        webhook: &WebhookSignature,
        body: &[u8],
        source: &ServiceView,
        received_at: Timestamp,
        window: Duration,
    ) -> Result<Self, Refusal> {
        let signed_at = Timestamp(webhook.timestamp.saturating_mul(1000));
        check_window(signed_at, received_at, window)?;
        let (key_version, signature) = verify(webhook, body, received_at, source)?;
        Ok(Self { key_version, signature, signed_at })
    }
}

type Parsed<'a> = Result<NativeEvent<'a>, Refused>;

/// Checks an event against the registry. Nothing is asked of a store.
pub(super) fn check(arrival: &Arrival, registry: &Registry, window: Duration) -> Result<Authentic, Refused> {
    let parsed = NativeEvent::parse(&arrival.body);
    let journey = journey(&parsed, arrival);
    let judged = judge(&parsed, arrival, registry, window, &journey);
    judged.map_err(|refusal| Refused { subject: named(parsed, journey, arrival), refusal })
}

/// The names of an event that was not judged.
pub(super) fn subject(arrival: &Arrival) -> Box<Subject> {
    let parsed = NativeEvent::parse(&arrival.body);
    let journey = journey(&parsed, arrival);
    named(parsed, journey, arrival)
}

/// MSG-11
fn journey(parsed: &Parsed<'_>, arrival: &Arrival) -> Journey {
    let said = match parsed {
        Ok(event) => &event.correlation_id,
        Err(refused) => &refused.subject.correlation,
    };
    begin(said.clone(), arrival)
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
    let event = parsed.as_ref().map_err(|refused| refused.refusal.clone())?;
    check_source(registry, &arrival.source, arrival.received_at)?;
    check_own(event, &arrival.source)?;
    let source = service(registry, &arrival.source)?;
    let evidence = check_signature(event, arrival, source, window)?;
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

/// MSG-4: an event is signed by the request it came with, by that of its batch, or, where its service need not sign,
/// not at all.
fn check_signature(
    event: &NativeEvent<'_>,
    arrival: &Arrival,
    source: &ServiceView,
    window: Duration,
) -> Result<Option<Evidence>, Refusal> {
    let received_at = arrival.received_at;
    match (&arrival.webhook, &arrival.vouched) {
        (Some(Err(refusal)), _) => Err(refusal.clone()),
        (Some(Ok(webhook)), _) => {
            let evidence = Evidence::check(webhook, &arrival.body, source, received_at, window)?;
            if !webhook.is_for(&event.id) {
                return Err(Refusal::new(Reason::HmacInvalid, "webhook-id is not the event's id"));
            }
            Ok(Some(evidence))
        }
        (None, Some(vouched)) => vouched.check_again(source, received_at).map(Some),
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
    let signed_at = evidence.as_ref().map(|it| it.signed_at);
    let (key_version, signature) = evidence.map(|it| (it.key_version, it.signature)).unzip();
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
        signature: signature.unwrap_or_default(),
        correlation,
        traceparent,
        received_at: arrival.received_at,
        registry_version: registry.version(),
        domain_hash: event.domain_hash(),
        payload: arrival.body.slice_ref(event.data.raw()),
        event: Some(Arc::new(envelope)),
    };
    Authentic { message, signed_at }
}
