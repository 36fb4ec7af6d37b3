//! Pushes to a receiver of third parties: the public Python packages of Standard Webhooks and CloudEvents
//! verify our signatures and read our events (DLV-1, MSG-4, MSG-6).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};

use reqwest::Method;
use serde_json::{Value, json};
use snavio_testbed::python;

use super::{Hooks, PAID, SUBSCRIPTION, hook};
use crate::cloudevents::{sent_by_python, whole};
use crate::node::new_id;
use crate::patience::eventually;
use crate::wire::post_json;

struct Receiver {
    process: Child,
    secrets: ChildStdin,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Receiver {
    fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/push/receiver.py");
        let mut command = python();
        command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("Python can be started");
        let (secrets, printed) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let lines = Arc::<Mutex<Vec<Value>>>::default();
        let read = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in BufReader::new(printed).lines().map_while(Result::ok) {
                read.lock().unwrap().push(serde_json::from_str(&line).expect("it prints JSON"));
            }
        });
        Self { process, secrets, lines }
    }

    /// Waits for a line of the receiver with this member, and removes it.
    async fn take_line(&self, member: &str) -> Value {
        eventually(member, async || {
            let mut lines = self.lines.lock().unwrap();
            let index = lines.iter().position(|line| line.get(member).is_some())?;
            Some(lines.remove(index))
        })
        .await
    }

    async fn set_secret(&mut self, secret: &str) {
        writeln!(self.secrets, "{secret}").expect("the receiver reads");
        self.take_line("secret").await;
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// DLV-1, MSG-4, MSG-6
#[tokio::test]
async fn third_party_receivers_verify_signatures_and_read_events() {
    let mut receiver = Receiver::start();
    let port = receiver.take_line("port").await["port"].clone();
    let url = format!("http://127.0.0.1:{port}");
    let hooks = Hooks::with(vec![hook_in_form(&format!("{url}/native"), "native")]).await;
    receiver.set_secret(&hooks.secrets[PAID].expose()).await;
    let data = json!({ "amount": "10.00", "note": "grüße 😀 \"%\"", "items": [1, { "a": null }] });
    let metadata = json!({ "cloudevents": { "subject": "order 7 €", "sampled": true } });
    let send = async |id: &str| {
        let event = json!({ "eventId": id, "eventType": "order.paid", "data": data, "metadata": metadata,
            "timestamp": "2026-11-16T08:30:00Z", "correlationId": "order-7" });
        let sent =
            post_json(&hooks.node, "/v1/events", &hooks.token, event.to_string()).send().await.unwrap();
        assert_eq!(sent.status().as_u16(), 202);
    };
    let id = new_id();
    send(&id).await;
    let received = receiver.take_line("webhook_id").await;
    assert_eq!((&received["signed"], &received["webhook_id"]), (&json!(true), &json!(id)), "{received}");
    assert_eq!((&received["body"]["eventId"], &received["body"]["data"]), (&json!(id), &data), "{received}");

    for form in ["cloudevents", "cloudevents_binary"] {
        eventually("the queue is drained", async || hooks.is_drained().await).await;
        let (status, put) = hooks
            .call_as_operator(Method::PUT, SUBSCRIPTION, Some(hook_in_form(&format!("{url}/events"), form)))
            .await;
        assert_eq!(status, 200, "{put}");
        let id = new_id();
        send(&id).await;
        let received = receiver.take_line("webhook_id").await;
        assert_eq!(received["error"], Value::Null, "{form}: {received}");
        let attributes = &received["event"]["attributes"];
        for (name, value) in [
            ("id", id.as_str()),
            ("source", "acme/shop"),
            ("type", "order.paid"),
            ("specversion", "1.0"),
            ("subject", "order 7 €"),
            ("time", "2026-11-16 08:30:00+00:00"),
            ("correlationid", "order-7"),
        ] {
            assert_eq!(attributes[name], value, "{form} {name}: {received}");
        }
        assert_eq!(
            (&received["event"]["data"], &received["attempt"]),
            (&data, &json!("1")),
            "{form}: {received}"
        );
    }

    // A receiver with another secret refuses the push, and the gateway repeats it.
    let rotate = format!("{SUBSCRIPTION}/push-secret/rotate");
    let (_, made) = hooks.call_as_operator(Method::POST, &rotate, Some(json!({}))).await;
    receiver.set_secret("whsec_c25hdmlvLXRlc3Qtc2VjcmV0LTMyLWJ5dGVzLWxvbmc=").await;
    send(&new_id()).await;
    let refused = receiver.take_line("webhook_id").await;
    assert!(refused["error"].as_str().unwrap().starts_with("WebhookVerificationError"), "{refused}");
    receiver.set_secret(made["push_secret"].as_str().unwrap()).await;
    let received = receiver.take_line("signed").await;
    assert_eq!(
        (&received["error"], &received["webhook_id"]),
        (&Value::Null, &refused["webhook_id"]),
        "{received}"
    );
}

/// A subscription that pushes events in this form.
fn hook_in_form(url: &str, form: &str) -> Value {
    hook(url, &json!({ "processing": { "form": form } }))
}

/// The trace id of a `traceparent`.
fn trace_id(traceparent: &Value) -> Option<&str> {
    traceparent.as_str()?.split('-').nth(1)
}

/// An event with data that is not JSON.
fn event_with_data(content_type: &str, member: &str, data: &str) -> Value {
    json!({
        "attributes": {
            "id": new_id(), "type": "order.paid", "source": "shop", "datacontenttype": content_type,
            "subject": "order 7", "time": "2026-03-01T08:00:00.25Z", "partitionkey": "order-7", "correlationid": "journey-7",
        },
        member: data,
    })
}

/// The event that the receiver must get: everything in the sent event, and the service that sent it.
fn expected_event(sent: &Value) -> Value {
    let mut attributes = sent["attributes"].clone();
    // A name is qualified by its tenant. A URI stays as it is, and `snaviosource` names the service beside
    // it.
    if attributes["source"] == "shop" {
        attributes["source"] = json!("acme/shop");
    } else {
        attributes["snaviosource"] = json!("acme/shop");
    }
    let data = match sent.get("data_base64") {
        Some(bytes) => json!({ "bytes": bytes }),
        None => sent["data"].clone(),
    };
    json!({ "attributes": attributes, "data": data })
}

/// The received event without the attributes that the gateway adds.
fn received_event(received: &Value, sent: &Value) -> Value {
    let mut event = received["event"].clone();
    let attributes = event["attributes"].as_object_mut().unwrap_or_else(|| panic!("not read: {received}"));
    assert_eq!(attributes.remove("specversion"), Some(json!("1.0")));
    let had = &sent["attributes"]["traceparent"];
    let has = attributes.remove("traceparent").expect("every delivery has its place in a trace");
    if had.is_string() {
        assert_eq!(trace_id(&has), trace_id(had), "one trace");
        attributes.insert("traceparent".to_owned(), had.clone());
    }
    if sent["attributes"]["eventversion"].is_null() {
        attributes.remove("eventversion").expect("the version of its type");
    }
    // The package prints times in this form.
    let time = attributes["time"].as_str().unwrap().replace(' ', "T");
    attributes["time"] = json!(time.replace("250000", "25").replace("+00:00", "Z"));
    event
}

/// MSG-4, MSG-6, DLV-1: the content of a public client's event reaches a public receiver in every form of
/// delivery.
#[tokio::test]
async fn event_of_third_party_client_reaches_third_party_receiver() {
    let mut receiver = Receiver::start();
    let port = receiver.take_line("port").await["port"].clone();
    let url = format!("http://127.0.0.1:{port}/events");
    let hooks = Hooks::with(vec![hook_in_form(&url, "cloudevents")]).await;
    receiver.set_secret(&hooks.secrets[PAID].expose()).await;
    for form in ["cloudevents", "cloudevents_binary"] {
        eventually("the queue is drained", async || hooks.is_drained().await).await;
        let (status, put) =
            hooks.call_as_operator(Method::PUT, SUBSCRIPTION, Some(hook_in_form(&url, form))).await;
        assert_eq!(status, 200, "{put}");
        for mode in ["structured", "binary"] {
            let mut events = vec![
                whole(&new_id()),
                event_with_data("text/plain", "data", "é <b> \"7\"\n"),
                event_with_data("application/xml", "data", "<order n=\"7\"/>"),
            ];
            // The library cannot verify binary bodies: the guide names the form to use.
            if form == "cloudevents" {
                events.push(event_with_data("image/png", "data_base64", "/wAB"));
            }
            for event in events {
                let request =
                    json!({ "url": hooks.node.url(), "token": hooks.token, "mode": mode, "events": [event] });
                let (status, answer) = sent_by_python(&request);
                assert_eq!(status, 202, "{mode}: {answer}");
                let received = receiver.take_line("webhook_id").await;
                assert_eq!(received["error"], Value::Null, "{mode} to {form}: {received}");
                assert_eq!(received["webhook_id"], event["attributes"]["id"], "{mode} to {form}");
                assert_eq!(received_event(&received, &event), expected_event(&event), "{mode} to {form}");
            }
        }
    }
}

/// MSG-4, DLV-1: the guide names the bodies that the public library cannot verify, and the form to use.
#[tokio::test]
async fn binary_data_needs_structured_form() {
    let mut receiver = Receiver::start();
    let port = receiver.take_line("port").await["port"].clone();
    let url = format!("http://127.0.0.1:{port}/events");
    let hooks = Hooks::with(vec![hook_in_form(&url, "cloudevents_binary")]).await;
    receiver.set_secret(&hooks.secrets[PAID].expose()).await;
    let event = event_with_data("image/png", "data_base64", "/wAB");
    let request =
        json!({ "url": hooks.node.url(), "token": hooks.token, "mode": "binary", "events": [event] });
    assert_eq!(sent_by_python(&request).0, 202);
    let refused = receiver.take_line("webhook_id").await;
    assert!(refused["error"].as_str().unwrap().starts_with("UnicodeDecodeError"), "{refused}");
    assert_eq!(
        hooks.call_as_operator(Method::PUT, SUBSCRIPTION, Some(hook_in_form(&url, "cloudevents"))).await.0,
        200
    );
    let received = receiver.take_line("signed").await;
    assert_eq!(received_event(&received, &event), expected_event(&event));
}
