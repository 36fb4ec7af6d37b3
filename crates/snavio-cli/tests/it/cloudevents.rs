//! CloudEvents over HTTP (MSG-6), sent by a third-party client and signed by a third-party library (MSG-4).

use std::io::Write as _;
use std::process::Stdio;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use snavio_sdk::DeliveredEvent;
use snavio_testbed::python;

use crate::events::Shop;
use crate::wire::{Answered, http, metric};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// An event with every attribute that a CloudEvent may have.
pub(crate) fn whole(id: &str) -> Value {
    json!({
        "attributes": {
            "id": id, "type": "order.paid", "source": "https://shop.example/acme/shop/tills/7",
            "time": "2026-03-01T08:00:00Z", "subject": "Ordre n° 7 \"é\" 100%",
            "dataschema": "https://schemas.example/order/1", "datacontenttype": "application/json",
            "sequence": "7", "partitionkey": "order-7", "traceparent": TRACE, "correlationid": "journey-7",
            "eventversion": "3.4", "sampled": "true",
        },
        "data": { "amount": 10, "note": "é\u{1}", "lines": [1, 2] },
    })
}

fn with(mut event: Value, attribute: &str, value: &str) -> Value {
    event["attributes"][attribute] = json!(value);
    event
}

impl Shop {
    /// The input of the Python client.
    fn python_input(&self, mode: &str, events: &[Value]) -> Value {
        json!({ "url": self.node.url(), "token": self.token, "mode": mode, "events": events })
    }

    /// Sends events with the Python client, and returns the answer.
    fn python(&self, mode: &str, events: &[Value]) -> (u16, Value) {
        sent_by_python(&self.python_input(mode, events))
    }

    /// Sends events with the Python client, signed under the shop's secret.
    fn python_signed(&self, mode: &str, events: &[Value], webhook_id: &str) -> (u16, Value) {
        let mut input = self.python_input(mode, events);
        input["secret"] = json!(self.shop.hmac_secret);
        input["webhook_id"] = json!(webhook_id);
        sent_by_python(&input)
    }

    /// Sends a request with any headers.
    async fn post_raw(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answered {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
        }
        let request = http(&self.node).post(format!("{}{path}", self.node.url()));
        Answered::to(request.bearer_auth(&self.token).headers(map).body(body.to_vec())).await
    }
}

/// Makes and sends events with the public Python package, and returns the answer.
pub(crate) fn sent_by_python(asked: &Value) -> (u16, Value) {
    let mut client = python()
        .args(["-c", include_str!("cloudevents.py")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    client.stdin.take().unwrap().write_all(asked.to_string().as_bytes()).unwrap();
    let ended = client.wait_with_output().unwrap();
    assert!(ended.status.success(), "the client failed");
    serde_json::from_slice(&ended.stdout).unwrap()
}

fn metadata(event: &DeliveredEvent) -> Value {
    serde_json::from_str(event.metadata.as_ref().unwrap().get()).unwrap()
}

/// MSG-6, MSG-9, MSG-11
#[tokio::test]
async fn third_party_client_sends_whole_events_in_all_modes() {
    let shop = Shop::start().await;
    let (status, answer) = shop.python("structured", &[whole("e-1")]);
    assert_eq!((status, &answer["id"], &answer["correlation_id"]), (202, &json!("e-1"), &json!("journey-7")));
    let (status, answer) = shop.python("binary", &[whole("e-1")]);
    assert_eq!(
        (status, &answer["duplicate"]),
        (200, &json!(true)),
        "the same event in another mode: {answer}"
    );
    let (status, answer) = shop.python("binary", &[whole("e-2")]);
    assert_eq!(status, 202, "{answer}");
    let foreign = with(whole("e-4"), "source", "https://shop.example/acme/ledger");
    let mut changed = whole("e-2");
    changed["data"]["amount"] = json!(11);
    let (status, answer) = shop
        .python("batch", &[whole("e-2"), whole("e-3"), foreign, changed, with(whole("e-5"), "type", "a b")]);
    let results = answer["results"].as_array().unwrap();
    let statuses: Vec<_> = results.iter().map(|result| result["status"].as_u64().unwrap()).collect();
    assert_eq!((status, &statuses[..]), (200, &[200, 202, 400, 409, 400][..]), "{answer}");
    assert_eq!(
        (&results[2]["reason"], &results[4]["reason"]),
        (&json!("source_present"), &json!("invalid_name"))
    );

    let delivered = shop.delivered().await;
    let ids: Vec<_> = delivered.iter().map(|event| event.event_id.as_str()).collect();
    assert_eq!(ids, ["e-1", "e-2", "e-3"]);
    for event in &delivered {
        assert_eq!((event.event_type.as_str(), event.source.as_str()), ("order.paid", "acme/shop"));
        assert_eq!((event.version.as_str(), event.correlation_id.as_str()), ("3.4", "journey-7"));
        assert_eq!(event.timestamp, "2026-03-01T08:00:00Z");
        assert_eq!(event.traceparent.split('-').nth(1), TRACE.split('-').nth(1), "one trace");
        let data: Value = serde_json::from_str(event.data.get()).unwrap();
        assert_eq!(data, whole("")["data"]);
        assert_eq!(
            metadata(event),
            json!({ "cloudevents": {
                "datacontenttype": "application/json", "dataschema": "https://schemas.example/order/1",
                "partitionkey": "order-7", "sampled": "true", "sequence": "7",
                "source": "https://shop.example/acme/shop/tills/7", "subject": "Ordre n° 7 \"é\" 100%",
            }})
        );
    }
    assert_eq!(metric(&shop.node, "snavio_foreign_source_total").await, Some(1.0));
}

/// MSG-6
#[tokio::test]
async fn text_bytes_and_no_data_map_alike_in_all_modes() {
    let shop = Shop::start().await;
    let event = |id: &str, content_type: &str| {
        let attributes =
            json!({ "id": id, "type": "order.paid", "source": "shop", "datacontenttype": content_type });
        json!({ "attributes": attributes })
    };
    let mut text = event("text", "text/plain");
    text["data"] = json!("é <b>");
    let mut bytes = event("bytes", "image/png");
    bytes["data_base64"] = json!("/wAB");
    let mut without_data = event("none", "application/json");
    without_data["attributes"].as_object_mut().unwrap().remove("datacontenttype");
    for event in [&text, &bytes, &without_data] {
        assert_eq!(shop.python("structured", std::slice::from_ref(event)).0, 202, "{event}");
        let (status, answer) = shop.python("binary", std::slice::from_ref(event));
        assert_eq!((status, &answer["duplicate"]), (200, &json!(true)), "{event} {answer}");
    }
    let delivered = shop.delivered().await;
    let mapped: Vec<_> = delivered.iter().map(|event| (event.data.get(), metadata(event))).collect();
    assert_eq!(
        mapped,
        [
            ("\"é <b>\"", json!({ "cloudevents": { "datacontenttype": "text/plain", "data": "text" }})),
            (
                r#"{"data_base64":"/wAB"}"#,
                json!({ "cloudevents": { "datacontenttype": "image/png", "data": "base64" }})
            ),
            ("null", json!({ "cloudevents": { "data": "none" }})),
        ]
    );
}

/// MSG-4, MSG-6
#[tokio::test]
async fn third_party_signatures_are_accepted_where_required() {
    let shop = Shop::with_settings(json!({ "signed_events": true })).await;
    assert_eq!(shop.python("structured", &[whole("e-1")]).1["reason"], "hmac_missing");
    let (status, answer) = shop.python_signed("structured", &[whole("e-1")], "e-1");
    assert_eq!(status, 202, "{answer}");
    let (status, answer) = shop.python_signed("structured", &[whole("e-2")], "e-1");
    assert_eq!((status, &answer["reason"]), (401, &json!("hmac_invalid")), "signed for another id");
    let (status, answer) = shop.python_signed("batch", &[whole("e-1"), whole("e-3")], "batch-1");
    assert_eq!(status, 200, "{answer}");
    assert_eq!(
        (&answer["results"][0]["status"], &answer["results"][1]["status"]),
        (&json!(200), &json!(202))
    );
    let (status, answer) = shop.python_signed("binary", &[whole("e-4")], "e-4");
    assert_eq!((status, &answer["reason"]), (401, &json!("hmac_missing")), "headers are not covered");
    assert!(answer["detail"].as_str().unwrap().contains("structured mode"), "{answer}");
    assert_eq!(shop.delivered().await.len(), 2);
}

/// MSG-4, MSG-6
#[tokio::test]
async fn optional_binary_mode_signature_covers_id_and_data() {
    let shop = Shop::start().await;
    let (status, answer) = shop.python_signed("binary", &[whole("e-1")], "e-1");
    assert_eq!(status, 202, "{answer}");
    let (status, answer) = shop.python_signed("binary", &[whole("e-2")], "e-1");
    assert_eq!((status, &answer["reason"]), (401, &json!("hmac_invalid")));
    assert_eq!(answer["detail"], "webhook-id is not the event's id");
    assert_eq!(shop.delivered().await.len(), 1);
}

/// MSG-6, QUA-7
#[tokio::test]
async fn ambiguous_requests_are_refused() {
    let shop = Shop::start().await;
    let structured = ("content-type", "application/cloudevents+json");
    let batch = ("content-type", "application/cloudevents-batch+json");
    let json = ("content-type", "application/json");
    let json_utf16 = ("content-type", "application/json; charset=utf-16");
    let structured_utf16 = ("content-type", "application/cloudevents+json; charset=utf-16");
    let batch_utf16 = ("content-type", "application/cloudevents-batch+json; charset=\"UTF-16\"");
    let ce = [("ce-specversion", "1.0"), ("ce-id", "e-1"), ("ce-type", "order.paid"), ("ce-source", "shop")];
    let binary = |others: &[(&'static str, &'static str)]| [&ce[..], others].concat();
    let body = br#"{"specversion":"1.0","id":"e-1","type":"order.paid","source":"shop"}"#;
    let native = br#"{"eventId":"e-1","eventType":"order.paid","data":1}"#;
    let text = String::from_utf8_lossy(body);
    let spaced = text.replace("e-1", "e-1 ").into_bytes();
    let utf16_data = r#","datacontenttype":"application/json; charset=utf-16","data":1}"#;
    let utf16_data = text.replace('}', utf16_data).into_bytes();
    let (one, many) = ("/v1/events", "/v1/events/batch");
    for (path, headers, body, status, reason) in [
        (one, vec![structured, json], &body[..], 400, "invalid_request"),
        (one, vec![structured, ("ce-id", "e-1")], body, 400, "invalid_request"),
        (one, vec![structured, ("ce-sequence", "9")], body, 400, "invalid_request"),
        (many, vec![batch, ("ce-id", "e-1")], b"[]", 400, "invalid_request"),
        (one, binary(&[json, ("ce-id", "e-2")]), b"1", 400, "duplicate_member"),
        (one, binary(&[json, ("ce-subject", "a"), ("CE-Subject", "a")]), b"1", 400, "duplicate_member"),
        (one, binary(&[json, ("ce-datacontenttype", "text/plain")]), b"1", 400, "malformed"),
        (one, binary(&[json, ("ce-subject", "é")]), b"1", 400, "malformed"),
        (one, binary(&[json, ("ce-subject", "%zz")]), b"1", 400, "malformed"),
        (one, binary(&[json]), br#"{"a":1,"a":2}"#, 400, "duplicate_member"),
        (one, binary(&[json, ("content-encoding", "gzip")]), b"1", 415, "unsupported_media_type"),
        (one, vec![json, ce[1], ce[2]], native, 400, "malformed"),
        (one, vec![json, ce[0], ce[1], ce[2]], b"1", 400, "malformed"),
        (one, vec![json], body, 400, "unknown_field"),
        (one, vec![structured], native, 400, "malformed"),
        (one, vec![batch], b"[]", 415, "unsupported_media_type"),
        (many, vec![structured], body, 415, "unsupported_media_type"),
        (one, vec![structured_utf16], body, 415, "unsupported_media_type"),
        (many, vec![batch_utf16], b"[]", 415, "unsupported_media_type"),
        (one, binary(&[json_utf16]), b"1", 415, "unsupported_media_type"),
        (one, vec![json_utf16], native, 415, "unsupported_media_type"),
        (one, vec![structured], &spaced, 400, "invalid_id"),
        (one, vec![json], br#"{"eventId":" e-1","eventType":"order.paid","data":1}"#, 400, "invalid_id"),
        (one, vec![structured], &utf16_data, 400, "malformed"),
        (many, binary(&[json]), b"[]", 415, "unsupported_media_type"),
        (one, vec![("content-type", "application/cloudevents+avro")], body, 415, "unsupported_media_type"),
        ("/v1/commands", vec![structured], body, 415, "unsupported_media_type"),
    ] {
        let answer = shop.post_raw(path, &headers, body).await;
        assert_eq!(answer.refusal(), (status, reason.to_owned()), "{headers:?}: {}", answer.text);
    }
    assert!(shop.delivered().await.is_empty(), "the gateway accepted none of them");
    assert_eq!(shop.post_raw(one, &binary(&[json]), b"1").await.status, 202);
}
