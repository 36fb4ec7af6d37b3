use serde_json::{Value, json};
use snavio_model::adapter::{Adapter, ForeignSecret, Preset, WebhookRequest};
use snavio_model::id::MessageId;
use snavio_model::message::command::NewCommand;
use snavio_model::registry::{Entry, EventType, Key, Sealed, Service, Tenant, Unseal};
use snavio_model::signature::signing::Secret;
use snavio_model::signature::webhook;

use super::*;

const WINDOW: Duration = Duration::from_secs(60);
const ID: &str = "0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f";
const SIGNED_AT: &str = "2026-11-15T08:30:00Z";

struct OneSecret;

impl Unseal for OneSecret {
    fn unseal(&self, _: &Sealed) -> Option<Secret> {
        Some(secret())
    }

    fn unseal_text(&self, sealed: &Sealed) -> Option<ForeignSecret> {
        ForeignSecret::new(&sealed.0).ok()
    }
}

fn secret() -> Secret {
    Secret::from_bytes([7; 32])
}

fn registry(suspended: bool) -> Registry {
    let mut registry = Registry::default();
    let service: ServiceName = "acme/billing".parse().unwrap();
    let key = Key {
        service: service.clone(),
        version: "hmac-v1".parse().unwrap(),
        secret: Sealed(String::new()),
        created_at: Timestamp(0),
        expires_at: None,
        revoked_at: None,
    };
    let entries = vec![
        Entry::Tenant(Tenant { name: "acme".parse().unwrap(), contact: None, suspended }),
        Entry::Service(Service::new(service)),
        Entry::Key(key),
    ];
    registry.fill(entries, &OneSecret);
    registry
}

fn message() -> Vec<u8> {
    let command = NewCommand {
        id: &MessageId::uuid(ID).unwrap(),
        timestamp: SIGNED_AT,
        version_id: &"hmac-v1".parse().unwrap(),
        source: &"acme/billing".parse().unwrap(),
        target: &"bot".parse().unwrap(),
        name: &"notify".parse().unwrap(),
        payload: br#"{"a": 1.0}"#,
        correlation_id: None,
    };
    command.sign(&secret()).unwrap()
}

/// The message without its `hmac`, as clients of Standard Webhooks send it.
fn unsigned() -> Vec<u8> {
    let text = String::from_utf8(message()).unwrap();
    let start = text.find(r#","hmac":"#).unwrap();
    let end = start + r#","hmac":"#.len() + 66;
    format!("{}{}", &text[..start], &text[end..]).into_bytes()
}

fn arrive(body: Vec<u8>, millis_later: i64) -> Arrival {
    let signed_at = Timestamp::parse(SIGNED_AT).unwrap();
    Arrival {
        kind: MessageKind::Command,
        form: Form::Native,
        source: "acme/billing".parse().unwrap(),
        body: body.into(),
        webhook: None,
        vouched: None,
        correlation: None,
        traceparent: None,
        received_at: Timestamp(signed_at.0 + millis_later),
        random: [3; 40],
    }
}

fn refusal(arrival: Arrival, suspended: bool) -> Option<Reason> {
    check(&arrival, &registry(suspended), WINDOW).err().map(|refused| refused.refusal.reason)
}

/// PIP-1
#[test]
fn window_is_sixty_seconds_and_precedes_signature() {
    let out = Some(Reason::TimestampOutOfWindow);
    for (millis, reason) in
        [(0, None), (60_000, None), (-60_000, None), (60_001, out), (-60_001, out), (61_000, out)]
    {
        assert_eq!(refusal(arrive(message(), millis), false), reason, "{millis} ms");
    }
    let forged = String::from_utf8(message()).unwrap().replace("1.0", "2.0").into_bytes();
    assert_eq!(refusal(arrive(forged.clone(), 61_000), false), out);
    assert_eq!(refusal(arrive(forged, 0), false), Some(Reason::HmacInvalid));
}

/// PIP-1
#[test]
fn suspension_is_checked_after_form_only() {
    let with_source = String::from_utf8(message()).unwrap().replace(r#""name":"#, r#""source":"x","name":"#);
    for (body, millis, active, suspended) in [
        (b"{".to_vec(), 0, Some(Reason::Malformed), Reason::Malformed),
        (with_source.into_bytes(), 0, Some(Reason::SourcePresent), Reason::Suspended),
        (message(), 90_000, Some(Reason::TimestampOutOfWindow), Reason::Suspended),
        (message(), 0, None, Reason::Suspended),
    ] {
        assert_eq!(refusal(arrive(body.clone(), millis), false), active);
        assert_eq!(refusal(arrive(body, millis), true), Some(suspended));
    }
}

/// MSG-4
#[test]
fn webhook_signature_replaces_hmac_and_both_must_be_valid() {
    let seconds = Timestamp::parse(SIGNED_AT).unwrap().0 / 1000;
    let signed = |body: &[u8], id: &str, at: i64| {
        let header = webhook::sign(&secret(), id, at, body);
        WebhookSignature::parse(id, &at.to_string(), &header).unwrap()
    };
    let other_id = "0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e70";
    for (body, headers, reason) in [
        (unsigned(), None, Some(Reason::HmacMissing)),
        (unsigned(), Some((unsigned(), ID, seconds)), None),
        (message(), Some((message(), ID, seconds)), None),
        (message(), Some((unsigned(), ID, seconds)), Some(Reason::HmacInvalid)),
        (unsigned(), Some((unsigned(), other_id, seconds)), Some(Reason::HmacInvalid)),
        (unsigned(), Some((unsigned(), ID, seconds + 1)), Some(Reason::HmacInvalid)),
    ] {
        let webhook = headers.map(|(over, id, at)| Ok(signed(&over, id, at)));
        let arrival = Arrival { webhook, ..arrive(body, 0) };
        assert_eq!(refusal(arrival, false), reason);
    }
}

/// PIP-2, MSG-4
#[test]
fn valid_webhook_signature_is_recorded_among_invalid_ones() {
    let seconds = Timestamp::parse(SIGNED_AT).unwrap().0 / 1000;
    let header = webhook::sign(&secret(), ID, seconds, &unsigned());
    let junk = webhook::sign(&Secret::from_bytes([9; 32]), ID, seconds, &unsigned());
    let headers = [header.clone(), format!("{junk} {header} v2,x"), format!("{header} {junk} {header}")];
    let [alone, among_others, repeated] = headers.map(|header| {
        let webhook = WebhookSignature::parse(ID, &seconds.to_string(), &header);
        let arrival = Arrival { webhook: Some(webhook), ..arrive(unsigned(), 0) };
        check(&arrival, &registry(false), WINDOW).unwrap().into_parts().0.signature
    });
    assert_eq!(among_others, alone);
    assert_eq!(repeated, alone);
}

/// PIP-1
#[test]
fn unreadable_webhook_headers_are_refused_in_signature_step() {
    for (body, millis, is_suspended, reason) in [
        (b"{".to_vec(), 0, false, Reason::Malformed),
        (unsigned(), 0, true, Reason::Suspended),
        (unsigned(), 61_000, false, Reason::TimestampOutOfWindow),
        (unsigned(), 0, false, Reason::InvalidTimestamp),
    ] {
        let unreadable = Some(WebhookSignature::parse(ID, "now", "v1,x"));
        let arrival = Arrival { webhook: unreadable, ..arrive(body, millis) };
        assert_eq!(refusal(arrival, is_suspended), Some(reason));
    }
}

/// MSG-11
#[test]
fn refusal_has_correlation_id_and_trace() {
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    fn journey_of(arrival: Arrival) -> (String, String) {
        let subject = check(&arrival, &registry(false), WINDOW).unwrap_err().subject;
        (subject.correlation.unwrap().to_string(), subject.traceparent.unwrap().to_string())
    }
    let named = |body: &str, millis| Arrival {
        correlation: CorrelationId::new("of the request"),
        traceparent: Traceparent::parse(trace),
        ..arrive(body.as_bytes().to_vec(), millis)
    };
    let text = String::from_utf8(message()).unwrap();
    let with_own = text.replace(r#"{"id":"#, r#"{"correlation_id":"its own","id":"#);
    assert_eq!(journey_of(named("{", 0)), ("of the request".into(), trace.into()));
    assert_eq!(journey_of(named(&with_own, 90_000)), ("its own".into(), trace.into()));
    assert_eq!(journey_of(named(&with_own.replace("snavio.command-sent", "x"), 0)).0, "its own");
    let (correlation, made) = journey_of(arrive(b"{".to_vec(), 0));
    assert_eq!(correlation, "03".repeat(16));
    assert!(Traceparent::parse(&made).is_some());
}

/// MSG-2, MSG-11
#[test]
fn authentic_message_has_source_and_correlation_id() {
    let authentic = check(&arrive(message(), 5), &registry(false), WINDOW).unwrap();
    let (message, signed_at) = authentic.into_parts();
    assert_eq!((message.source.as_str(), message.target.as_str()), ("acme/billing", "acme/bot"));
    assert_eq!((&*message.signed_target, &*message.sent_at), ("bot", SIGNED_AT));
    assert_eq!(&message.payload[..], br#"{"a": 1.0}"#);
    assert_eq!(message.correlation.as_str(), "03".repeat(16));
    assert_eq!(message.received_at.since(signed_at.unwrap()), Duration::from_millis(5));
}

const SECONDS: i64 = 1_794_731_400;

fn event(body: &str, millis_later: i64) -> Arrival {
    Arrival { kind: MessageKind::Event, ..arrive(body.as_bytes().to_vec(), millis_later) }
}

/// An event, signed by the request's headers.
fn signed_event(body: &str, id: &str, key: &Secret, millis_later: i64) -> Arrival {
    let header = webhook::sign(key, id, SECONDS, body.as_bytes());
    let webhook = WebhookSignature::parse(id, &SECONDS.to_string(), &header);
    Arrival { webhook: Some(webhook), ..event(body, millis_later) }
}

fn registry_of_events(signed_events: bool) -> Registry {
    let mut registry = registry(false);
    let billing: ServiceName = "acme/billing".parse().unwrap();
    registry.put(Entry::Service(Service { signed_events, ..Service::new(billing.clone()) }), &OneSecret);
    let version = "3.2".parse().unwrap();
    let event_type = EventType { owner: billing, name: "order.paid".parse().unwrap(), version };
    registry.put(Entry::EventType(event_type), &OneSecret);
    registry
}

const EVENT: &str = r#"{"eventId":"e-1","eventType":"order.paid","data":{"a": 1.0}}"#;

/// MSG-5, MSG-11
#[test]
fn minimal_event_is_completed() {
    let registry = registry_of_events(false);
    let (message, signed_at) = check(&event(EVENT, 5), &registry, WINDOW).unwrap().into_parts();
    assert_eq!((message.source.as_str(), message.target.as_str()), ("acme/billing", "acme/billing"));
    assert_eq!((message.id.as_str(), message.name.as_str()), ("e-1", "order.paid"));
    assert_eq!((message.key_version.as_ref(), &*message.signature, signed_at), (None, "", None));
    assert_eq!(&message.payload[..], br#"{"a": 1.0}"#);
    assert_eq!(message.correlation.as_str(), "03".repeat(16));
    let own = message.event.unwrap();
    assert_eq!((own.version.as_str(), own.metadata.as_deref()), ("3.2", None), "the type's version");
    assert_eq!(own.timestamp, message.received_at.to_string());
}

/// MSG-5
#[test]
fn event_values_are_kept_and_timestamp_may_be_old() {
    let body = r#"{"eventId":"e-1","eventType":"order.paid","payload":1,"source":"billing","version":"1.1",
        "timestamp":"1999-01-01T00:00:00+01:00","metadata":{ "b":1 },"correlationId":"its own"}"#;
    let registry = registry_of_events(false);
    let (message, _) = check(&event(body, 0), &registry, WINDOW).unwrap().into_parts();
    let own = message.event.unwrap();
    assert_eq!((own.version.as_str(), own.metadata.as_deref()), ("1.1", Some(r#"{ "b":1 }"#)));
    assert_eq!(own.timestamp, "1999-01-01T00:00:00+01:00");
    assert_eq!(message.correlation.as_str(), "its own");
}

/// MSG-5, REG-8, PIP-1
#[test]
fn event_source_must_be_its_own_sender() {
    let registry = registry_of_events(false);
    for (source, reason) in [
        ("acme/billing", None),
        ("billing", None),
        ("acme/bot", Some(Reason::SourcePresent)),
        ("bot", Some(Reason::SourcePresent)),
        ("zeta/billing", Some(Reason::SourcePresent)),
    ] {
        let body = EVENT.replacen('{', &format!(r#"{{"source":"{source}","#), 1);
        let refused = check(&event(&body, 0), &registry, WINDOW).err();
        assert_eq!(refused.map(|refused| refused.refusal.reason), reason, "{source}");
    }
    let suspended = self::registry(true);
    let foreign = EVENT.replacen('{', r#"{"source":"acme/bot","#, 1);
    for (body, reason) in
        [(foreign.as_str(), Reason::Suspended), (EVENT, Reason::Suspended), ("{", Reason::Malformed)]
    {
        let refused = check(&event(body, 0), &suspended, WINDOW).unwrap_err();
        assert_eq!((refused.refusal.reason, refused.subject.kind), (reason, MessageKind::Event));
    }
}

/// MSG-4, PIP-1
#[test]
fn event_signature_is_checked_and_required_by_service() {
    let (own, other) = (secret(), Secret::from_bytes([9; 32]));
    let [now, late, too_late, too_early] =
        [0, 60_000, 61_000, -61_000].map(|millis| signed_event(EVENT, "e-1", &own, millis));
    let altered = Arrival { body: EVENT.replace("1.0", "2.0").into(), ..now.clone() };
    for (arrival, free, required) in [
        (event(EVENT, 0), None, Some(Reason::HmacMissing)),
        (now, None, None),
        (late, None, None),
        (too_late, Some(Reason::TimestampOutOfWindow), Some(Reason::TimestampOutOfWindow)),
        (too_early, Some(Reason::TimestampOutOfWindow), Some(Reason::TimestampOutOfWindow)),
        (altered, Some(Reason::HmacInvalid), Some(Reason::HmacInvalid)),
        (signed_event(EVENT, "e-2", &own, 0), Some(Reason::HmacInvalid), Some(Reason::HmacInvalid)),
        (signed_event(EVENT, "e-1", &other, 0), Some(Reason::HmacInvalid), Some(Reason::HmacInvalid)),
        (
            signed_event(EVENT, "e-1", &other, 61_000),
            Some(Reason::TimestampOutOfWindow),
            Some(Reason::TimestampOutOfWindow),
        ),
    ] {
        for (signed_events, reason) in [(false, free), (true, required)] {
            let refused = check(&arrival, &registry_of_events(signed_events), WINDOW).err();
            assert_eq!(refused.map(|refused| refused.refusal.reason), reason, "{signed_events} {arrival:?}");
        }
    }
    let (message, signed_at) =
        check(&signed_event(EVENT, "e-1", &own, 5), &registry_of_events(true), WINDOW).unwrap().into_parts();
    assert_eq!(signed_at, Some(Timestamp(SECONDS * 1000)));
    assert_eq!((message.key_text(), &*message.sent_at), ("hmac-v1", "1794731400"));
    assert!(message.signature.starts_with("webhook "));
}

/// MSG-4
#[test]
fn batch_signature_covers_all_events_while_key_is_valid() {
    let registry = registry_of_events(true);
    let batch = format!("[{EVENT}]");
    let source: ServiceName = "acme/billing".parse().unwrap();
    let vouch = |body: &str, millis: i64| {
        let webhook = WebhookSignature::parse(
            "batch-1",
            &SECONDS.to_string(),
            &webhook::sign(&secret(), "batch-1", SECONDS, batch.as_bytes()),
        );
        let received_at = Timestamp(SECONDS * 1000 + millis);
        Vouched::check(&webhook.unwrap(), body.as_bytes(), &source, &registry, received_at, WINDOW)
    };
    assert_eq!(vouch("[]", 0).unwrap_err().reason, Reason::HmacInvalid);
    assert_eq!(vouch(&batch, 61_000).unwrap_err().reason, Reason::TimestampOutOfWindow);
    let arrival = Arrival { vouched: Some(vouch(&batch, 0).unwrap()), ..event(EVENT, 0) };
    let (message, _) = check(&arrival, &registry, WINDOW).unwrap().into_parts();
    assert_eq!(message.key_text(), "hmac-v1");
    let mut later = registry.clone();
    let key = registry.entries().find(|entry| matches!(entry, Entry::Key(_))).cloned();
    let Some(Entry::Key(key)) = key else { panic!("there is a key") };
    later.put(Entry::Key(Key { revoked_at: Some(Timestamp(1)), ..key }), &OneSecret);
    assert_eq!(check(&arrival, &later, WINDOW).unwrap_err().refusal.reason, Reason::KeyExpired);
}

mod cloud_events {
    use super::*;

    const STRUCTURED: &str = r#"{"specversion":"1.0","id":"e-1","type":"order.paid","source":"billing","correlationid":"its own","data":{"a": 1.0}}"#;

    fn structured(body: &str) -> Arrival {
        Arrival { form: Form::Structured, ..event(body, 0) }
    }

    fn binary(arrival: Arrival, source: &str, content_type: &str) -> Arrival {
        let headers = [
            ("ce-specversion", "1.0"),
            ("ce-id", "e-1"),
            ("ce-type", "order.paid"),
            ("ce-source", source),
            ("content-type", content_type),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Arrival { form: Form::Binary(Arc::new(headers)), ..arrival }
    }

    /// MSG-6, MSG-9
    #[test]
    fn cloud_event_equals_native_event() {
        let registry = registry_of_events(false);
        let native = check(&event(EVENT, 0), &registry, WINDOW).unwrap().into_parts().0;
        for (arrival, payload, is_part) in [
            (structured(STRUCTURED), r#"{"a": 1.0}"#, true),
            (binary(event(r#"{"a":1}"#, 0), "billing", "application/json"), r#"{"a":1}"#, true),
            (binary(event("a b", 0), "billing", "text/plain"), r#""a b""#, false),
            (binary(event("", 0), "billing", "text/plain"), r#""""#, false),
            (binary(event("", 0), "billing", "application/json"), "null", false),
        ] {
            let (message, _) = check(&arrival, &registry, WINDOW).unwrap().into_parts();
            assert_eq!(&message.payload[..], payload.as_bytes());
            assert_eq!(
                (&message.id, &message.name, &message.source),
                (&native.id, &native.name, &native.source)
            );
            assert_eq!(message.domain_hash == native.domain_hash, is_part, "{payload}");
            assert_eq!(arrival.body.as_ptr_range().contains(&message.payload.as_ptr()), is_part, "{payload}");
        }
        let (message, _) = check(&structured(STRUCTURED), &registry, WINDOW).unwrap().into_parts();
        assert_eq!(message.correlation.as_str(), "its own");
        assert_eq!(message.event.unwrap().version.as_str(), "3.2", "the type's version");
    }

    /// MSG-6, MSG-11, PIP-1
    #[test]
    fn event_form_precedes_suspension_and_source_follows() {
        let foreign = STRUCTURED.replace("billing", "bot");
        for (arrival, active, suspended) in [
            (structured(&foreign), Reason::SourcePresent, Reason::Suspended),
            (binary(event("1", 0), "acme/bot", "application/json"), Reason::SourcePresent, Reason::Suspended),
            (structured(&STRUCTURED.replace("1.0\",", "0.3\",")), Reason::Malformed, Reason::Malformed),
        ] {
            let refused = check(&arrival, &registry_of_events(false), WINDOW).unwrap_err();
            assert_eq!(refused.refusal.reason, active);
            assert_eq!(refused.subject.id.map(|id| id.to_string()).as_deref(), Some("e-1"), "it is named");
            assert_eq!(check(&arrival, &registry(true), WINDOW).unwrap_err().refusal.reason, suspended);
        }
    }

    /// MSG-4, MSG-6
    #[test]
    fn partial_signature_is_refused_for_services_with_signed_events() {
        let [own_id, other_id] = ["e-1", "e-2"]
            .map(|id| binary(signed_event("1", id, &secret(), 0), "billing", "application/json"));
        let whole = Arrival { form: Form::Structured, ..signed_event(STRUCTURED, "e-1", &secret(), 0) };
        let (free, required) = (registry_of_events(false), registry_of_events(true));
        fn evidence(arrival: &Arrival, registry: &Registry) -> Result<String, Reason> {
            let message =
                check(arrival, registry, WINDOW).map(|authentic| authentic.into_parts().0.signature);
            message
                .map(|signature| signature.split(' ').next().unwrap().to_owned())
                .map_err(|refused| refused.refusal.reason)
        }
        assert_eq!(evidence(&whole, &required).as_deref(), Ok("webhook"));
        assert_eq!(evidence(&own_id, &free).as_deref(), Ok("webhook-body"));
        assert_eq!(evidence(&other_id, &free), Err(Reason::HmacInvalid));
        assert_eq!(evidence(&own_id, &required), Err(Reason::HmacMissing));
    }
}

/// An adapter of `acme/billing` whose provider signs the body, with the external id there or in a header.
fn signing_adapter(external_id: Value) -> Adapter {
    let adapter = json!({
        "name": "bot", "service": "acme/billing", "source": "bot", "event_type": "order.paid",
        "external_id": [external_id], "id": "external",
        "verification": { "scheme": "hmac", "header": "x-signature" }, "secrets": [HOOK_SECRET],
    });
    serde_json::from_value(adapter).unwrap()
}

const HOOK_SECRET: &str = "the bot's own secret";

fn vouched(registry: &Registry, headers: &[(&str, &str)]) -> Result<Vouched, Refusal> {
    let request = WebhookRequest { headers, body: br#"{"update_id":7}"# };
    Vouched::check_webhook(registry.adapter("acme", "bot").unwrap(), &request, Timestamp(SECONDS * 1000))
}

/// HMAC-SHA256 of `{"update_id":7}` under [`HOOK_SECRET`].
const HOOK_SIGNATURE: &str = "4328ae58528af9756759e7c49b3114ecff56cb39b290df5d096633d8097f27a3";

/// MSG-4, MSG-7
#[test]
fn adapter_evidence_counts_as_signature_while_adapter_exists() {
    let mut registry = registry_of_events(true);
    let adapter = signing_adapter(json!({ "pointer": "/update_id" }));
    registry.put(Entry::Adapter(Box::new(adapter.clone())), &OneSecret);
    let wrong = vouched(&registry, &[("x-signature", &"0".repeat(64))]);
    assert_eq!(wrong.unwrap_err().reason, Reason::Unauthenticated);
    let vouched = vouched(&registry, &[("x-signature", HOOK_SIGNATURE)]).unwrap();
    let arrival = Arrival { vouched: Some(vouched), ..event(EVENT, 0) };
    let (message, signed_at) = check(&arrival, &registry, WINDOW).unwrap().into_parts();
    assert_eq!((message.key_version.as_ref(), signed_at), (None, None));
    assert_eq!(*message.signature, *format!("adapter acme/bot {HOOK_SIGNATURE}"));
    assert_eq!(message.adapter(), Some("acme/bot"));
    // An adapter that is changed, removed or another service's no longer verifies this event.
    let mut later = registry.clone();
    let changed = Adapter { source: "tg".to_owned(), ..adapter };
    later.put(Entry::Adapter(Box::new(changed)), &OneSecret);
    for registry in [later, registry_of_events(true)] {
        let refused = check(&arrival, &registry, WINDOW).unwrap_err();
        assert_eq!(refused.refusal.reason, Reason::Unauthenticated);
    }
}

/// MSG-4, MSG-7: a party that saw one request of such a provider could forge others.
#[test]
fn adapter_evidence_without_full_coverage_is_no_signature() {
    let secrets = vec![Sealed(HOOK_SECRET.to_owned())];
    let telegram = Preset::Telegram.adapter("bot".parse().unwrap(), "acme/billing".parse().unwrap(), secrets);
    for (adapter, header, evidence) in [
        (telegram, ("x-telegram-bot-api-secret-token", HOOK_SECRET), "adapter-secret acme/bot".to_owned()),
        (
            signing_adapter(json!({ "header": "x-delivery" })),
            ("x-signature", HOOK_SIGNATURE),
            format!("adapter-body acme/bot {HOOK_SIGNATURE}"),
        ),
    ] {
        let [required, free] = [true, false].map(|signed| {
            let mut registry = registry_of_events(signed);
            registry.put(Entry::Adapter(Box::new(adapter.clone())), &OneSecret);
            registry
        });
        let vouched = vouched(&required, &[header, ("x-delivery", "any")]).unwrap();
        let arrival = Arrival { vouched: Some(vouched), ..event(EVENT, 0) };
        let refused = check(&arrival, &required, WINDOW).unwrap_err().refusal;
        assert_eq!(refused.reason, Reason::HmacMissing);
        assert!(refused.detail.ends_with("for a service without signed_events"), "{}", refused.detail);
        let (message, _) = check(&arrival, &free, WINDOW).unwrap().into_parts();
        assert_eq!((&*message.signature, message.adapter()), (evidence.as_str(), Some("acme/bot")));
    }
}
