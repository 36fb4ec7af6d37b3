//! The form of a native event, member by member.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::hash::DomainHash;
use crate::id::MessageId;
use crate::message::MessageKind;
use crate::message::trace::CorrelationId;
use crate::name::{CommandName, EventVersion, TargetText};
use crate::refusal::{Reason, Refused};

const ID: &str = "0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f";

fn event() -> Value {
    json!({
        "eventId": ID,
        "eventType": "order.paid",
        "correlationId": "c-1",
        "timestamp": "2019-11-15T09:30:00.5+01:00",
        "version": "2.1",
        "source": "acme/shop",
        "data": {"order": 7},
        "metadata": {"userId": "u-1"},
    })
}

fn with(member: &str, value: impl Into<Value>) -> String {
    let mut event = event();
    event[member] = value.into();
    event.to_string()
}

fn without(member: &str) -> String {
    let mut event = event();
    event.as_object_mut().unwrap().remove(member);
    event.to_string()
}

fn refusal_of(body: impl AsRef<[u8]>) -> Refused {
    NativeEvent::parse(body.as_ref()).unwrap_err()
}

fn refusal_text(body: impl AsRef<[u8]>) -> String {
    refusal_of(body).refusal.to_string()
}

/// MSG-5
#[test]
fn event_is_read_with_all_its_members() {
    let body = event().to_string();
    let read = NativeEvent::parse(body.as_bytes()).unwrap();
    assert_eq!((read.id.as_str(), read.event_type.as_str()), (ID, "order.paid"));
    assert_eq!(read.correlation_id, CorrelationId::new("c-1"));
    assert_eq!(read.timestamp.as_deref(), Some("2019-11-15T09:30:00.5+01:00"));
    assert_eq!(read.version, EventVersion::new("2.1").ok());
    assert_eq!(read.source, TargetText::new("acme/shop").ok());
    assert_eq!(read.data.raw(), br#"{"order":7}"#);
    assert_eq!(read.metadata, Some(r#"{"userId":"u-1"}"#));
}

/// MSG-5
#[test]
fn minimal_event_has_id_type_and_data_by_either_name() {
    for name in ["data", "payload"] {
        let body = format!(r#"{{"eventType":"T","{name}":[1.0],"eventId":"x 1"}}"#);
        let read = NativeEvent::parse(body.as_bytes()).unwrap();
        assert_eq!((read.id.as_str(), read.data.raw()), ("x 1", &b"[1.0]"[..]));
        assert_eq!((read.correlation_id, read.timestamp, read.version), (None, None, None));
        assert_eq!((read.source, read.metadata), (None, None));
    }
    for member in ["eventId", "eventType", "data"] {
        assert_eq!(refusal_text(without(member)), format!("malformed: {member} is missing"));
    }
}

/// MSG-5
#[test]
fn uuid_is_kept_in_lower_case_and_other_ids_unchanged() {
    for (id, kept) in [(ID.to_uppercase().as_str(), ID), ("Order-7", "Order-7")] {
        let body = with("eventId", id);
        assert_eq!(NativeEvent::parse(body.as_bytes()).unwrap().id.as_str(), kept);
    }
}

/// MSG-9
#[test]
fn hash_covers_type_and_payload_only() {
    let expected = DomainHash::of_event("order.paid", br#"{"order":7}"#);
    let hash = |body: String| NativeEvent::parse(body.as_bytes()).unwrap().domain_hash();
    let same = [
        event().to_string(),
        with("eventId", "other"),
        with("correlationId", "c-2"),
        with("metadata", json!({"userId": "u-2"})),
        with("version", "9.9"),
        with("retryCount", 3),
        without("timestamp"),
        without("data").replacen('{', r#"{"payload": { "order" : 7.0 },"#, 1),
    ];
    for body in same {
        assert_eq!(hash(body.clone()), expected, "{body}");
    }
    assert_ne!(hash(with("eventType", "order.Paid")), expected);
    assert_ne!(hash(with("data", json!({"order": 8}))), expected);
}

/// MSG-9
#[test]
fn transport_members_are_accepted_and_dropped() {
    for member in [
        "traceId",
        "spanId",
        "receivedAt",
        "deliveryAttempt",
        "retryCount",
        "partition",
        "offset",
        "brokerMessageId",
        "producerSendAt",
    ] {
        for value in [json!(1), json!("x"), json!(null), json!({"a": [1]})] {
            let body = with(member, value);
            assert!(NativeEvent::parse(body.as_bytes()).is_ok(), "{body}");
        }
    }
}

/// MSG-5, MSG-10, MSG-13, QUA-4
#[test]
fn wrong_member_is_refused_by_name() {
    let timestamp =
        "invalid_timestamp: timestamp must be RFC 3339 with T and an offset, without a leap second";
    let id = "invalid_id: eventId must be 1 to 128 printable ASCII characters, without a space at either end";
    let version = "malformed: version: a version must be major.minor, whole numbers of up to 5 digits without leading zeros";
    let event_type = "invalid_name: eventType: an event type must be 1 to 128 of A-Z a-z 0-9 . _ - beginning with a letter or digit";
    let correlation = "malformed: correlationId must be 1 to 128 printable ASCII characters";
    for (member, value, expected) in [
        ("eventId", json!(7), "malformed: eventId must be a string"),
        ("eventId", json!(""), id),
        ("eventId", json!("é"), id),
        ("eventId", json!("a\nb"), id),
        ("eventId", json!("x".repeat(129)), id),
        ("eventType", json!(null), "malformed: eventType must be a string"),
        ("eventType", json!("order paid"), event_type),
        ("eventType", json!("acme/shop:order.paid"), event_type),
        ("eventType", json!("x".repeat(129)), event_type),
        ("correlationId", json!(1), "malformed: correlationId must be a string"),
        ("correlationId", json!(""), correlation),
        ("correlationId", json!("x".repeat(129)), correlation),
        ("timestamp", json!(1_794_731_400), "invalid_timestamp: timestamp must be a string"),
        ("timestamp", json!("2026-11-15 08:30:00Z"), timestamp),
        ("timestamp", json!("2026-11-15T23:59:60Z"), timestamp),
        ("timestamp", json!("2026-11-15T08:30:00"), timestamp),
        ("version", json!(1.0), "malformed: version must be a string"),
        ("version", json!("1"), version),
        ("version", json!("01.0"), version),
        ("source", json!(["acme/shop"]), "malformed: source must be a string"),
        (
            "source",
            json!("Acme/shop"),
            "invalid_name: source: a target must be tenant/service or service, each 1 to 63 of a-z 0-9 . _ - beginning with a letter or digit",
        ),
        (
            "payload",
            json!({"order": 7}),
            "malformed: data and payload are two names of one member: send one of them",
        ),
        ("metadata", json!("u-1"), "malformed: metadata must be an object"),
        ("metadata", json!([]), "malformed: metadata must be an object"),
        ("metadata", json!(null), "malformed: metadata must be an object"),
        ("replayed", json!(true), "reserved_field: replayed is set by the platform only"),
        ("replay_id", json!(1), "reserved_field: replay_id is set by the platform only"),
        ("replay_reason", json!(""), "reserved_field: replay_reason is set by the platform only"),
        ("eventid", json!("x"), "unknown_field: the event has no member eventid"),
        ("hmac", json!("x"), "unknown_field: the event has no member hmac"),
        ("traceparent", json!("x"), "unknown_field: the event has no member traceparent"),
        ("<img onerror=x>", json!(1), "unknown_field: a member of the event is unknown"),
        ("", json!(1), "unknown_field: a member of the event is unknown"),
    ] {
        assert_eq!(refusal_text(with(member, value)), expected, "{member}");
    }
}

/// MSG-10
#[test]
fn ambiguous_json_is_refused_in_every_place() {
    let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
    for (body, reason) in [
        (event().to_string().replacen('{', r#"{"eventId":"x","#, 1), Reason::DuplicateMember),
        (event().to_string().replace(r#"{"userId":"#, r#"{"userId":1,"userId":"#), Reason::DuplicateMember),
        (event().to_string().replace(r#"{"order":"#, r#"{"order":1,"order":"#), Reason::DuplicateMember),
        (with("traceId", 0).replace(r#""traceId":0"#, r#""traceId":{"a":1,"a":1}"#), Reason::DuplicateMember),
        (event().to_string().replace("7}", "1e9999}"), Reason::NumberRange),
        (event().to_string().replace(r#"{"order":7}"#, &deep), Reason::TooDeep),
        (event().to_string().replace(r#"{"userId":"u-1"}"#, &deep), Reason::TooDeep),
        (event().to_string().replace("u-1", "\\u0000"), Reason::Malformed),
        (format!("{} x", event()), Reason::Malformed),
        ("[]".to_owned(), Reason::Malformed),
        ("{".to_owned(), Reason::Malformed),
        (String::new(), Reason::Malformed),
    ] {
        assert_eq!(refusal_of(&body).refusal.reason, reason, "{body}");
    }
    assert_eq!(refusal_text("[]"), "malformed: the event must be an object");
}

/// MSG-12
#[test]
fn refusal_has_the_ids_that_were_read() {
    let subject = refusal_of(with("version", "x")).subject;
    assert_eq!(subject.kind, MessageKind::Event);
    assert_eq!(subject.id.as_ref().map(MessageId::as_str), Some(ID));
    assert_eq!(subject.name.as_ref().map(CommandName::as_str), Some("order.paid"));
    assert_eq!(subject.correlation, CorrelationId::new("c-1"));
}

/// MSG-5
#[test]
fn gateway_reads_a_written_event() {
    let (id, event_type) = (MessageId::event("Order \"7\"").unwrap(), "order.paid".parse().unwrap());
    let (version, correlation) = ("2.1".parse().unwrap(), CorrelationId::new("c\\1").unwrap());
    let least = NewEvent {
        id: &id,
        event_type: &event_type,
        timestamp: None,
        version: None,
        data: b"{ \"order\": 7 }",
        metadata: None,
        correlation_id: None,
    };
    let whole = NewEvent {
        timestamp: Some("2019-11-15T08:30:00Z"),
        version: Some(&version),
        metadata: Some(b"{ }"),
        correlation_id: Some(&correlation),
        ..least
    };
    for new in [least, whole] {
        let body = new.write().unwrap();
        let read = NativeEvent::parse(&body).unwrap();
        assert_eq!((&read.id, &read.event_type, read.data.raw()), (&id, &event_type, new.data));
        assert_eq!((read.timestamp.as_deref(), read.version.as_ref()), (new.timestamp, new.version));
        assert_eq!(read.metadata.map(str::as_bytes), new.metadata);
        assert_eq!(read.correlation_id.as_ref(), new.correlation_id);
    }
    for wrong in [
        NewEvent { data: b"{", ..least },
        NewEvent { data: b"1,\"hmac\":2", ..least },
        NewEvent { timestamp: Some("yesterday"), ..least },
        NewEvent { metadata: Some(b"1"), ..least },
    ] {
        assert!(wrong.write().is_err(), "{wrong:?}");
    }
}

proptest! {
    /// QUA-4
    #[test]
    fn no_bytes_make_the_reader_panic(body in proptest::collection::vec(any::<u8>(), 0..512)) {
        let _ = NativeEvent::parse(&body);
    }

    /// QUA-4
    #[test]
    fn no_edit_of_an_event_makes_the_reader_panic(at in 0..300usize, byte in any::<u8>()) {
        let mut body = event().to_string().into_bytes();
        let at = at % body.len();
        body[at] = byte;
        let _ = NativeEvent::parse(&body);
    }
}
