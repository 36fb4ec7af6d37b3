//! CloudEvents on their way: read in every mode, carried as native events, and written again.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use crate::bounds::JSON_MEMBERS_MAX;
use crate::id::MessageId;
use crate::message::event::EventEnvelope;
use crate::message::trace::{CorrelationId, Traceparent};
use crate::message::{Message, MessageKind};
use crate::name::{CommandName, EventVersion, ServiceName, TargetText, TenantName};
use crate::refusal::{Reason, Refused};
use crate::time::Timestamp;

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn shop() -> ServiceName {
    ServiceName::new("acme/shop").unwrap()
}

/// An event with every attribute that has a meaning, and extensions.
fn whole() -> Json {
    json!({
        "specversion": "1.0",
        "id": "A234-1234",
        "source": "https://shop.example/acme/shop/orders?x=1",
        "type": "order.paid",
        "time": "2019-04-05T17:31:00.5+01:00",
        "subject": "order 7, \"é\"",
        "dataschema": "https://schemas.example/order/1",
        "datacontenttype": "application/json; charset=utf-8",
        "sequence": "0007",
        "partitionkey": "k 1",
        "traceparent": TRACE,
        "tracestate": "a=b",
        "correlationid": "c-1",
        "eventversion": "2.1",
        "snaviometadata": r#"{"userId":"u-1"}"#,
        "sampledrate": 30,
        "urgent": true,
        "data": {"order": 7},
    })
}

fn least() -> Json {
    json!({"specversion": "1.0", "id": "1", "source": "shop", "type": "T"})
}

fn with(base: Json, member: &str, value: Json) -> Vec<u8> {
    let mut event = base;
    event[member] = value;
    event.to_string().into_bytes()
}

fn refusal_of(body: impl AsRef<[u8]>) -> Refused {
    CloudEvent::structured(body.as_ref()).unwrap_err()
}

fn refusal_text(body: impl AsRef<[u8]>) -> String {
    refusal_of(body).refusal.to_string()
}

/// The message for an event, as the shield makes it.
fn message(event: &CloudEvent<'_>, own: &ServiceName) -> Message {
    let native = event.native(own).unwrap();
    let envelope = EventEnvelope {
        version: native.version.clone().unwrap_or_default(),
        timestamp: native.timestamp.as_deref().unwrap_or("2026-11-15T08:30:00.000Z").to_owned(),
        metadata: native.metadata.map(str::to_owned),
    };
    Message {
        tenant: TenantName::new(own.tenant()).unwrap(),
        id: native.id.clone(),
        source: own.clone(),
        target: own.clone(),
        name: native.event_type.clone(),
        signed_target: "".into(),
        sent_at: "".into(),
        key_version: None,
        signature: "".into(),
        correlation: native.correlation_id.clone().unwrap_or_else(|| CorrelationId::new("stamped").unwrap()),
        traceparent: event.traceparent.clone().unwrap_or_else(|| Traceparent::from_random([7; 24])),
        received_at: Timestamp(0),
        registry_version: 1,
        domain_hash: native.domain_hash(),
        payload: Bytes::copy_from_slice(native.data.raw()),
        event: Some(Arc::new(envelope)),
    }
}

/// The event as a consumer receives it. Both modes must have the same content.
fn delivered(body: &[u8], own: &ServiceName) -> Json {
    let event = CloudEvent::structured(body).unwrap();
    let message = message(&event, own);
    let out = CloudEvent::of(&message).unwrap();
    let structured = out.to_structured();
    let again = CloudEvent::structured(&structured).unwrap();
    let binary = out.to_binary().unwrap();
    let headers = binary.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let by_headers = CloudEvent::binary(headers, &binary.body).unwrap();
    assert_eq!((by_headers.data.kind(), by_headers.data.bytes()), (again.data.kind(), again.data.bytes()));
    assert_eq!(by_headers.native(own).unwrap().domain_hash(), message.domain_hash);
    assert_eq!(again.native(own).unwrap().domain_hash(), message.domain_hash);
    serde_json::from_slice(&structured).unwrap()
}

/// MSG-6
#[test]
fn cloudevent_becomes_a_native_event_with_every_member() {
    let body = whole().to_string();
    let event = CloudEvent::structured(body.as_bytes()).unwrap();
    let native = event.native(&shop()).unwrap();
    assert_eq!((native.id.as_str(), native.event_type.as_str()), ("A234-1234", "order.paid"));
    assert_eq!(native.source.as_ref().map(TargetText::as_str), Some("acme/shop"));
    assert_eq!(native.timestamp.as_deref(), Some("2019-04-05T17:31:00.5+01:00"));
    assert_eq!(native.version.as_ref().map(EventVersion::as_str), Some("2.1"));
    assert_eq!(native.correlation_id, CorrelationId::new("c-1"));
    assert_eq!(event.traceparent, Traceparent::parse(TRACE));
    assert_eq!(native.data.raw(), br#"{"order":7}"#);
    let metadata: Json = serde_json::from_str(native.metadata.unwrap()).unwrap();
    let kept = json!({
        "datacontenttype": "application/json; charset=utf-8",
        "dataschema": "https://schemas.example/order/1",
        "partitionkey": "k 1",
        "sampledrate": 30,
        "sequence": "0007",
        "source": "https://shop.example/acme/shop/orders?x=1",
        "subject": "order 7, \"é\"",
        "tracestate": "a=b",
        "urgent": true,
    });
    assert_eq!(metadata, json!({"userId": "u-1", "cloudevents": kept}));
}

/// MSG-6
#[test]
fn delivered_event_has_every_attribute_that_was_sent() {
    let mut expected = whole();
    expected["snaviosource"] = json!("acme/shop");
    assert_eq!(delivered(whole().to_string().as_bytes(), &shop()), expected);
}

/// MSG-6, MSG-11
#[test]
fn minimal_event_is_delivered_with_the_gateway_defaults() {
    let expected = json!({
        "specversion": "1.0",
        "id": "1",
        "source": "acme/shop",
        "type": "T",
        "time": "2026-11-15T08:30:00.000Z",
        "correlationid": "stamped",
        "traceparent": Traceparent::from_random([7; 24]).as_str(),
        "eventversion": "1.0",
    });
    assert_eq!(delivered(least().to_string().as_bytes(), &shop()), expected);
}

/// MSG-6
#[test]
fn data_of_every_kind_survives() {
    let octets = "application/octet-stream";
    for (content_type, member, value, out) in [
        (None, "data", json!({"a": [1, null]}), ("data", json!({"a": [1, null]}))),
        (None, "data", json!(null), ("data", json!(null))),
        (None, "data", json!("text"), ("data", json!("text"))),
        (None, "data_base64", json!("AAH/"), ("data_base64", json!("AAH/"))),
        (Some("text/plain"), "data", json!("a\n\"é\""), ("data", json!("a\n\"é\""))),
        (Some("text/plain"), "data_base64", json!("w6k="), ("data", json!("é"))),
        (Some("text/plain"), "data_base64", json!("/w=="), ("data_base64", json!("/w=="))),
        (Some("application/xml"), "data", json!("<a/>"), ("data", json!("<a/>"))),
        (Some(octets), "data_base64", json!("AAH/"), ("data_base64", json!("AAH/"))),
        (Some(octets), "data", json!("é"), ("data_base64", json!("w6k="))),
        (Some("application/json"), "data_base64", json!("eyJhIjogMX0="), ("data", json!({"a": 1}))),
    ] {
        let mut event = least();
        event[member] = value;
        if let Some(content_type) = content_type {
            event["datacontenttype"] = json!(content_type);
        }
        let delivered = delivered(event.to_string().as_bytes(), &shop());
        assert_eq!(delivered.get(out.0), Some(&out.1), "{event}");
        assert_eq!(delivered.get("datacontenttype"), event.get("datacontenttype"), "{event}");
        let other = if out.0 == "data" { "data_base64" } else { "data" };
        assert_eq!(delivered.get(other), None, "{event}");
    }
}

/// MSG-6, MSG-10
#[test]
fn data_too_large_as_json_is_refused() {
    let text = "\u{1}".repeat(crate::bounds::BODY_BYTES_MAX / 5);
    let headers = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-type", "T"), ("ce-source", "shop")];
    let headers = headers.into_iter().chain([("content-type", "text/plain")]);
    let event = CloudEvent::binary(headers, text.as_bytes()).unwrap();
    assert_eq!(event.native(&shop()).unwrap_err().reason, Reason::TooLarge);
}

/// MSG-6, MSG-9
#[test]
fn hash_is_the_same_in_every_mode_without_attributes() {
    for (content_type, member, value, body) in [
        ("application/json", "data", json!({"a": 1}), &b"{ \"a\" : 1.0 }"[..]),
        ("application/json", "data_base64", json!("eyJhIjoxfQ=="), br#"{"a":1}"#),
        ("text/plain", "data", json!("é"), "é".as_bytes()),
        ("text/plain", "data_base64", json!("w6k="), "é".as_bytes()),
        ("image/png", "data_base64", json!("iVBO"), b"\x89PN"),
        ("text/plain", "data", json!(""), b""),
        ("text/plain", "data_base64", json!(""), b""),
        ("image/png", "data_base64", json!(""), b""),
        ("application/json", "other", json!("no data"), b""),
    ] {
        let mut structured = least();
        structured[member] = value;
        structured["datacontenttype"] = json!(content_type);
        let text = structured.to_string();
        let one = CloudEvent::structured(text.as_bytes()).unwrap();
        let headers = [
            ("CE-SpecVersion", "1.0"),
            ("ce-id", "1"),
            ("ce-source", "shop"),
            ("ce-type", "T"),
            ("ce-subject", "other"),
            ("Content-Type", content_type),
        ];
        let other = CloudEvent::binary(headers, body).unwrap();
        let [one, other] = [&one, &other].map(|event| event.native(&shop()).unwrap().domain_hash());
        assert_eq!(one, other, "{structured}");
    }
}

/// MSG-6
#[test]
fn binary_mode_is_read_from_headers_and_body() {
    let headers = [
        ("host", "gateway"),
        ("CE-SpecVersion", "1.0"),
        ("ce-id", "A 1"),
        ("ce-source", "/acme/shop"),
        ("ce-type", "order.paid"),
        ("ce-time", "2019-04-05T17:31:00Z"),
        ("ce-subject", "Euro%20%E2%82%AC"),
        ("ce-sequence", "7"),
        ("ce-flag", "\"true\""),
        ("content-type", "application/json"),
    ];
    let event = CloudEvent::binary(headers, b"{\"a\": 1}").unwrap();
    assert_eq!((event.id.as_str(), event.source.as_str()), ("A 1", "/acme/shop"));
    assert_eq!(event.attributes["subject"].as_text(), Some("Euro €"));
    assert_eq!(event.attributes["flag"].as_text(), Some("true"));
    assert_eq!(event.native(&shop()).unwrap().data.raw(), b"{\"a\": 1}");

    // Libraries send JSON without a content type, and events without data.
    let without = &headers[..headers.len() - 1];
    let event = CloudEvent::binary(without.iter().copied(), b"[1]").unwrap();
    assert_eq!((event.data.kind(), event.data.json()), (DataKind::Json, &b"[1]"[..]));
    let event = CloudEvent::binary(headers, b"").unwrap();
    assert_eq!((event.data.kind(), event.data.json()), (DataKind::None, &b"null"[..]));
}

/// MSG-6
#[test]
fn empty_data_and_absent_data_stay_distinct() {
    for (content_type, member) in [("text/plain", "data"), ("image/png", "data_base64")] {
        let mut event = least();
        event["datacontenttype"] = json!(content_type);
        event[member] = json!("");
        assert_eq!(delivered(event.to_string().as_bytes(), &shop())[member], json!(""), "in both modes");
        let without = with(least(), "datacontenttype", json!(content_type));
        let message = message(&CloudEvent::structured(&without).unwrap(), &shop());
        let out = CloudEvent::of(&message).unwrap();
        assert_eq!(out.data.kind(), DataKind::None);
        assert_eq!(out.to_binary(), None, "an empty body of this type would be data");
    }
}

/// MSG-6, MSG-10, QUA-4
#[test]
fn wrong_headers_are_refused_by_name() {
    let least = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "shop"), ("ce-type", "T")];
    for (header, body, expected) in [
        (("ce-id", "2"), "", "duplicate_member: a header of the event came twice"),
        (
            ("ce-datacontenttype", "text/plain"),
            "",
            "malformed: ce-datacontenttype must not be sent: the content-type header says it",
        ),
        (
            ("ce-subject", "é"),
            "",
            "malformed: the header ce-subject must be written as printable ASCII, all else percent-encoded in UTF-8",
        ),
        (
            ("ce-subject", "%zz"),
            "",
            "malformed: the header ce-subject must be written as printable ASCII, all else percent-encoded in UTF-8",
        ),
        (
            ("ce-subject", "a%0Ab"),
            "",
            "malformed: subject must be text without control characters, a whole number of 32 bits, true or false",
        ),
        (
            ("ce-my_ext", "x"),
            "",
            "malformed: my_ext is not an attribute: attribute names must be 1 to 64 of a-z 0-9",
        ),
        (
            ("ce-", "x"),
            "",
            "malformed: an attribute has an invalid name: attribute names must be 1 to 64 of a-z 0-9",
        ),
        (
            ("content-type", "json"),
            "",
            "malformed: datacontenttype must be a media type (RFC 2046), such as application/json",
        ),
        (("ce-data", "x"), "", "malformed: data is not an attribute: in binary mode it is the body"),
        (("x-other", "x"), "hello", "malformed: data: unexpected character at byte 0"),
        (
            ("content-type", "application/json"),
            "{\"a\":1,\"a\":1}",
            "duplicate_member: data: repeated member name at byte 7",
        ),
    ] {
        let headers = least.into_iter().chain([header]);
        let refused = CloudEvent::binary(headers, body.as_bytes()).unwrap_err();
        assert_eq!(refused.refusal.to_string(), expected);
        assert_eq!(refused.subject.id, MessageId::event(if header.0 == "ce-id" { "2" } else { "1" }));
    }
    let only = |name: &str| least.into_iter().filter(move |(header, _)| *header != name).collect::<Vec<_>>();
    for name in ["specversion", "id", "source", "type"] {
        let refused = CloudEvent::binary(only(&format!("ce-{name}")), b"").unwrap_err();
        assert_eq!(refused.refusal.to_string(), format!("malformed: {name} is missing"));
    }
}

/// MSG-6, MSG-10, MSG-13, QUA-4
#[test]
fn wrong_attribute_is_refused_by_name() {
    let value = "must be text without control characters, a whole number of 32 bits, true or false";
    let source = "malformed: source must be a URI reference (RFC 3986) that is not empty";
    let uri =
        "malformed: dataschema must be an absolute URI (RFC 3986), such as https://schemas.example/order/1";
    let media = "malformed: datacontenttype must be a media type (RFC 2046), such as application/json";
    let charset = "malformed: datacontenttype must not name another charset than utf-8 or us-ascii for JSON";
    let time = "invalid_timestamp: time must be RFC 3339 with T and an offset, without a leap second";
    let id = "invalid_id: id must be 1 to 128 printable ASCII characters, without a space at either end";
    let name = "attribute names must be 1 to 64 of a-z 0-9";
    for (attribute, sent, expected) in [
        ("specversion", json!("0.3"), "malformed: specversion must be 1.0".to_owned()),
        ("specversion", json!(1), "malformed: specversion must be text".to_owned()),
        ("id", json!(""), id.to_owned()),
        ("id", json!("é"), id.to_owned()),
        ("id", json!("e-1 "), id.to_owned()),
        ("id", json!(" e-1"), id.to_owned()),
        ("id", json!(7), "malformed: id must be text".to_owned()),
        ("source", json!(""), source.to_owned()),
        ("source", json!("a b"), source.to_owned()),
        ("source", json!(true), "malformed: source must be text".to_owned()),
        (
            "type",
            json!("com.example/paid"),
            "invalid_name: type: an event type must be 1 to 128 of A-Z a-z 0-9 . _ - beginning with a letter or digit".to_owned(),
        ),
        ("time", json!("2019-04-05"), time.to_owned()),
        ("time", json!("2019-04-05T23:59:60Z"), time.to_owned()),
        ("subject", json!(""), "malformed: subject must be text that is not empty".to_owned()),
        ("subject", json!(7), "malformed: subject must be text that is not empty".to_owned()),
        ("dataschema", json!("order/1"), uri.to_owned()),
        ("datacontenttype", json!("json"), media.to_owned()),
        ("datacontenttype", json!("application/json; charset=utf-16"), charset.to_owned()),
        ("datacontenttype", json!("Application/vnd.acme+JSON;CHARSET=\"ISO-8859-1\""), charset.to_owned()),
        ("datacontenttype", json!("text/plain\r\nx: y"), format!("malformed: datacontenttype {value}")),
        ("correlationid", json!(""), "malformed: correlationid must be 1 to 128 printable ASCII characters".to_owned()),
        (
            "eventversion",
            json!("2"),
            "malformed: eventversion: a version must be major.minor, whole numbers of up to 5 digits without leading zeros".to_owned(),
        ),
        (
            "snaviometadata",
            json!("{\"cloudevents\":{}}"),
            "malformed: snaviometadata must be a JSON object as text, without a member cloudevents".to_owned(),
        ),
        ("ext", json!({"a": 1}), format!("malformed: ext {value}")),
        ("ext", json!([]), format!("malformed: ext {value}")),
        ("ext", json!(1.5), format!("malformed: ext {value}")),
        ("ext", json!(2_147_483_648_i64), format!("malformed: ext {value}")),
        ("ext", json!("a\u{7}"), format!("malformed: ext {value}")),
        ("myExt", json!("x"), format!("malformed: myExt is not an attribute: {name}")),
        ("my-ext", json!("x"), format!("malformed: an attribute has an invalid name: {name}")),
        ("<img>", json!("x"), format!("malformed: an attribute has an invalid name: {name}")),
        ("data_base64", json!("AA"), "malformed: data_base64 must be base64 (RFC 4648, section 4) with its padding".to_owned()),
        ("data_base64", json!(7), "malformed: data_base64 must be a string".to_owned()),
        ("data_base64", json!(null), "malformed: data_base64 must be a string".to_owned()),
    ] {
        assert_eq!(refusal_text(with(least(), attribute, sent)), expected, "{attribute}");
    }
    assert_eq!(
        refusal_text(with(whole(), "data_base64", json!("AA=="))),
        "malformed: data and data_base64 exclude each other: send one of them"
    );
    assert_eq!(
        refusal_text(with(whole(), "datacontenttype", json!("text/plain"))),
        "malformed: data must be a string where datacontenttype is not JSON; send bytes as data_base64"
    );
    for name in ["specversion", "id", "source", "type"] {
        let null = with(least(), name, json!(null));
        assert_eq!(refusal_text(null), format!("malformed: {name} is missing"));
    }
    let mut many = least();
    (0..65).for_each(|number| many[format!("ext{number}")] = json!("x"));
    assert_eq!(refusal_text(many.to_string()), "malformed: an event may have 64 extensions at most");
}

/// MSG-10
#[test]
fn ambiguous_json_is_refused_in_every_place() {
    let text = whole().to_string();
    for (body, reason) in [
        (text.replacen('{', r#"{"id":"x","#, 1), Reason::DuplicateMember),
        (text.replace(r#"{"order":"#, r#"{"order":1,"order":"#), Reason::DuplicateMember),
        (text.replace("7}", "1e9999}"), Reason::NumberRange),
        (format!("{text} x"), Reason::Malformed),
        ("[]".to_owned(), Reason::Malformed),
        (String::new(), Reason::Malformed),
    ] {
        assert_eq!(refusal_of(&body).refusal.reason, reason, "{body}");
    }
    assert_eq!(refusal_text("[]"), "malformed: the event must be an object");
}

/// MSG-12
#[test]
fn refusal_has_the_ids_that_were_read() {
    let subject = refusal_of(with(whole(), "time", json!("x"))).subject;
    assert_eq!((subject.kind, subject.id), (MessageKind::Event, MessageId::event("A234-1234")));
    assert_eq!(subject.name, CommandName::event_type("order.paid").ok());
    assert_eq!(
        (subject.correlation, subject.traceparent),
        (CorrelationId::new("c-1"), Traceparent::parse(TRACE))
    );
}

/// MSG-5, MSG-6
#[test]
fn source_of_another_service_is_refused_and_never_delivered() {
    let body = with(least(), "source", json!("/acme/billing"));
    let event = CloudEvent::structured(&body).unwrap();
    let refusal = event.native(&shop()).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "source_present: source must name the sending service: acme/shop, or a URI with a path that begins with it, such as https://example.com/acme/shop"
    );
    // A native event may have such metadata.
    let body = least().to_string();
    let event = CloudEvent::structured(body.as_bytes()).unwrap();
    let mut message = message(&event, &shop());
    let kept = r#"{"cloudevents":{"source":"/acme/billing","snaviosource":"acme/billing","subject":"s"}}"#;
    let envelope =
        EventEnvelope { metadata: Some(kept.to_owned()), ..(**message.event.as_ref().unwrap()).clone() };
    message.event = Some(Arc::new(envelope));
    let out: Json = serde_json::from_slice(&CloudEvent::of(&message).unwrap().to_structured()).unwrap();
    assert_eq!((&out["source"], &out["subject"]), (&json!("acme/shop"), &json!("s")));
    assert_eq!(out.get("snaviosource"), None);
}

/// MSG-6
#[test]
fn delivered_content_type_fits_the_data() {
    let body = least().to_string();
    let event = CloudEvent::structured(body.as_bytes()).unwrap();
    let mut message = message(&event, &shop());
    // A producer of native events may write any metadata.
    for (payload, kept, content_type) in [
        ("{}", json!({"datacontenttype": "application/vnd.a+json"}), Some("application/vnd.a+json")),
        ("{}", json!({"datacontenttype": "text/plain"}), None),
        ("\"a\"", json!({"datacontenttype": "text/plain", "data": "text"}), Some("text/plain")),
        ("\"a\"", json!({"datacontenttype": "application/json", "data": "text"}), None),
        ("null", json!({"datacontenttype": "text/plain", "data": "none"}), Some("text/plain")),
    ] {
        let metadata = Some(json!({"cloudevents": kept}).to_string());
        let envelope = EventEnvelope { metadata, ..(**message.event.as_ref().unwrap()).clone() };
        (message.event, message.payload) = (Some(Arc::new(envelope)), Bytes::from_static(payload.as_bytes()));
        let out = CloudEvent::of(&message).unwrap();
        assert_eq!(out.content_type(), content_type, "{payload} {kept}");
        assert!(CloudEvent::structured(&out.to_structured()).is_ok());
    }
}

/// MSG-6
#[test]
fn attributes_of_another_gateway_are_dropped() {
    let mut event = least();
    event["snaviosource"] = json!("other/shop");
    event["snavioattempt"] = json!(7);
    let text = event.to_string();
    let event = CloudEvent::structured(text.as_bytes()).unwrap();
    assert!(event.attributes.is_empty());
    assert_eq!(event.native(&shop()).unwrap().metadata, Some(r#"{"cloudevents":{"data":"none"}}"#));
}

/// MSG-6
#[test]
fn command_and_oversized_event_have_no_binary_form() {
    let body = with(least(), "subject", json!("é".repeat(2_000)));
    let event = CloudEvent::structured(&body).unwrap();
    let mut message = message(&event, &shop());
    let out = CloudEvent::of(&message).unwrap();
    assert_eq!(out.to_binary(), None);
    assert_eq!(CloudEvent::structured(&out.to_structured()).unwrap().attributes, event.attributes);
    message.event = None;
    assert_eq!(CloudEvent::of(&message), None);
}

/// MSG-6, PIP-8
#[test]
fn batch_is_split_into_its_events() {
    let body = format!("[{}, {{\"id\":}}, {}]", least(), whole());
    let events = batch(body.as_bytes(), 10).unwrap();
    let read: Vec<_> = events.iter().map(|event| CloudEvent::structured(event).is_ok()).collect();
    assert_eq!(read, [true, false, true]);
    assert_eq!(batch(b"[]", 10).unwrap().len(), 0);
    assert_eq!(batch(b"{}", 10).unwrap_err().reason, Reason::Malformed);
}

fn text() -> impl Strategy<Value = String> {
    // Printable characters, quotes, spaces, percent signs, other scripts, and characters outside the first
    // plane.
    proptest::string::string_regex("[ -~éß€漢😀%\"]{1,12}").unwrap()
}

fn extension() -> impl Strategy<Value = Json> {
    prop_oneof![
        text().prop_map(Json::from),
        any::<i32>().prop_map(Json::from),
        any::<bool>().prop_map(Json::from)
    ]
}

prop_compose! {
    fn any_event()(
        id in "[!-~]{1,20}",
        source in prop_oneof![Just("acme/shop"), Just("urn:acme:shop"), Just("https://x.example/acme/shop?q=%20#f")],
        subject in proptest::option::of(text()),
        extensions in proptest::collection::btree_map("x[a-z0-9]{1,8}", extension(), 0..6),
        content in prop_oneof![
            (Just(None), Just("data"), proptest::collection::vec(text(), 0..3).prop_map(|texts| json!({"a": texts}))),
            (Just(Some("text/plain")), Just("data"), text().prop_map(Json::from)),
            (Just(Some("a/b")), Just("data_base64"), Just(json!("AAECAwQ="))),
            (Just(None), Just("ignored"), Just(json!(null))),
        ],
    ) -> Json {
        let mut event = json!({"specversion": "1.0", "id": id, "source": source, "type": "T", "time": "2019-04-05T17:31:00Z", "correlationid": "c", "traceparent": TRACE, "eventversion": "1.0"});
        if let Some(subject) = subject { event["subject"] = subject.into(); }
        extensions.into_iter().for_each(|(name, value)| event[name] = value);
        let (content_type, member, value) = content;
        if let Some(content_type) = content_type { event["datacontenttype"] = content_type.into(); }
        if member != "ignored" { event[member] = value; }
        event
    }
}

proptest! {
    /// MSG-6
    #[test]
    fn any_event_is_delivered_as_it_was_sent(event in any_event()) {
        let mut expected = event.clone();
        let id = MessageId::event(event["id"].as_str().unwrap()).unwrap();
        expected["id"] = id.as_str().into();
        if event["source"] != "acme/shop" {
            expected["snaviosource"] = "acme/shop".into();
        }
        prop_assert_eq!(delivered(event.to_string().as_bytes(), &shop()), expected);
    }

    /// QUA-4
    #[test]
    fn no_bytes_make_the_readers_panic(body in proptest::collection::vec(any::<u8>(), 0..256), name: String, value: String) {
        let _ = CloudEvent::structured(&body);
        let _ = CloudEvent::binary([("ce-id", value.as_str()), (name.as_str(), value.as_str())], &body);
    }

    /// QUA-4
    #[test]
    fn no_edit_of_an_event_makes_the_reader_panic(at in 0..800usize, byte in any::<u8>()) {
        let mut body = whole().to_string().into_bytes();
        let at = at % body.len();
        body[at] = byte;
        if let Ok(event) = CloudEvent::structured(&body) {
            let _ = event.native(&shop());
        }
    }
}

/// MSG-6, MSG-10: metadata and attributes are stored as one document, which the gateway must read again on
/// delivery.
#[test]
fn metadata_too_large_with_its_attributes_is_refused() {
    let event = |members: usize| {
        let members: Vec<_> = (0..members).map(|n| format!("\"m{n}\":0")).collect();
        let metadata = format!("{{{}}}", members.join(","));
        let mut event = with(least(), "snaviometadata", json!(metadata));
        event.truncate(event.len() - 1);
        event.extend_from_slice(br#","subject":"s","partitionkey":"k"}"#);
        event
    };
    // The member for the attributes, the two attributes, and the entry for absent data.
    let fits = event(JSON_MEMBERS_MAX - 4);
    let message = message(&CloudEvent::structured(&fits).unwrap(), &shop());
    let delivered: Json = serde_json::from_slice(&CloudEvent::of(&message).unwrap().to_structured()).unwrap();
    assert_eq!((&delivered["subject"], &delivered["partitionkey"]), (&json!("s"), &json!("k")));
    assert_eq!(
        refusal_text(event(JSON_MEMBERS_MAX - 3)),
        "malformed: snaviometadata and the event's other attributes together: too many members"
    );
}
