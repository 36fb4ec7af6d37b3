use snavio_model::command::NewCommand;
use snavio_model::id::MessageId;
use snavio_model::registry::{Entry, Key, Sealed, Service, Tenant, Unseal};
use snavio_model::signing::Secret;
use snavio_model::webhook;

use super::*;

const WINDOW: Duration = Duration::from_secs(60);
const ID: &str = "0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f";
const SIGNED_AT: &str = "2026-11-15T08:30:00Z";

struct OneSecret;

impl Unseal for OneSecret {
    fn unseal(&self, _: &Sealed) -> Option<Secret> {
        Some(secret())
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
        source: "acme/billing".parse().unwrap(),
        body: body.into(),
        webhook: None,
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
fn the_window_is_sixty_seconds_either_way_and_comes_before_the_signature() {
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
fn suspension_comes_after_the_form_and_before_everything_else() {
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
fn a_webhook_signature_stands_in_for_the_hmac_and_both_must_hold_where_both_are() {
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
fn a_webhooks_signature_is_the_one_that_holds_whatever_else_was_sent_beside_it() {
    let seconds = Timestamp::parse(SIGNED_AT).unwrap().0 / 1000;
    let header = webhook::sign(&secret(), ID, seconds, &unsigned());
    let junk = webhook::sign(&Secret::from_bytes([9; 32]), ID, seconds, &unsigned());
    let signature = |header: &str| {
        let webhook = WebhookSignature::parse(ID, &seconds.to_string(), header);
        let arrival = Arrival { webhook: Some(webhook), ..arrive(unsigned(), 0) };
        check(&arrival, &registry(false), WINDOW).unwrap().into_parts().0.signature
    };
    let alone = signature(&header);
    assert_eq!(signature(&format!("{junk} {header} v2,x")), alone);
    assert_eq!(signature(&format!("{header} {junk} {header}")), alone);
}

/// PIP-1
#[test]
fn webhook_headers_that_cannot_be_read_are_refused_with_the_signature_and_not_before() {
    let unreadable = || Some(WebhookSignature::parse(ID, "now", "v1,x"));
    let arrive = |body: Vec<u8>, millis| Arrival { webhook: unreadable(), ..arrive(body, millis) };
    assert_eq!(refusal(arrive(b"{".to_vec(), 0), false), Some(Reason::Malformed));
    assert_eq!(refusal(arrive(unsigned(), 0), true), Some(Reason::Suspended));
    assert_eq!(refusal(arrive(unsigned(), 61_000), false), Some(Reason::TimestampOutOfWindow));
    assert_eq!(refusal(arrive(unsigned(), 0), false), Some(Reason::InvalidTimestamp));
}

/// MSG-11
#[test]
fn a_refusal_can_be_followed_like_any_message() {
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let told = |arrival: Arrival| {
        let subject = check(&arrival, &registry(false), WINDOW).unwrap_err().subject;
        (subject.correlation.unwrap().to_string(), subject.traceparent.unwrap().to_string())
    };
    let named = |body: &str, millis| Arrival {
        correlation: CorrelationId::new("of the request"),
        traceparent: Traceparent::parse(trace),
        ..arrive(body.as_bytes().to_vec(), millis)
    };
    let text = String::from_utf8(message()).unwrap();
    let with_own = text.replace(r#"{"id":"#, r#"{"correlation_id":"its own","id":"#);
    assert_eq!(told(named("{", 0)), ("of the request".into(), trace.into()));
    assert_eq!(told(named(&with_own, 90_000)), ("its own".into(), trace.into()));
    assert_eq!(told(named(&with_own.replace("snavio.command-sent", "x"), 0)).0, "its own");
    let (correlation, made) = told(arrive(b"{".to_vec(), 0));
    assert_eq!(correlation, "03".repeat(16));
    assert!(Traceparent::parse(&made).is_some());
}

/// MSG-2, MSG-11
#[test]
fn what_passes_says_who_sent_it_and_can_be_followed() {
    let authentic = check(&arrive(message(), 5), &registry(false), WINDOW).unwrap();
    let (message, signed_at) = authentic.into_parts();
    assert_eq!((message.source.as_str(), message.target.as_str()), ("acme/billing", "acme/bot"));
    assert_eq!((&*message.signed_target, &*message.sent_at), ("bot", SIGNED_AT));
    assert_eq!(&message.payload[..], br#"{"a": 1.0}"#);
    assert_eq!(message.correlation.as_str(), "03".repeat(16));
    assert_eq!(message.received_at.since(signed_at), Duration::from_millis(5));
}
