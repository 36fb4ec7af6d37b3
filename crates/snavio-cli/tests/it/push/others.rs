//! Pushes to a receiver that we did not write: the public Python packages of Standard Webhooks and CloudEvents take our
//! signature and read our events (DLV-1, MSG-4, MSG-6).

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

    /// The line with this member that nobody has asked for yet.
    async fn line(&self, member: &str) -> Value {
        eventually(member, async || {
            let mut lines = self.lines.lock().unwrap();
            let place = lines.iter().position(|it| it.get(member).is_some())?;
            Some(lines.remove(place))
        })
        .await
    }

    async fn knows(&mut self, secret: &str) {
        writeln!(self.secrets, "{secret}").expect("it reads");
        self.line("secret").await;
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
async fn receivers_that_others_wrote_take_our_signature_and_read_our_events() {
    let mut receiver = Receiver::start();
    let port = receiver.line("port").await["port"].clone();
    let to = |path: &str, form: &str| {
        let url = format!("http://127.0.0.1:{port}/{path}");
        hook(&url, &json!({ "processing": { "form": form } }))
    };
    let hooks = Hooks::with(vec![to("native", "native")]).await;
    receiver.knows(&hooks.secrets[PAID].expose()).await;
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
    let taken = receiver.line("webhook_id").await;
    assert_eq!((&taken["signed"], &taken["webhook_id"]), (&json!(true), &json!(id)), "{taken}");
    assert_eq!((&taken["body"]["eventId"], &taken["body"]["data"]), (&json!(id), &data), "{taken}");

    for form in ["cloudevents", "cloudevents_binary"] {
        eventually("nothing waits", async || hooks.is_drained().await).await;
        let (status, put) = hooks.operate(Method::PUT, SUBSCRIPTION, Some(to("events", form))).await;
        assert_eq!(status, 200, "{put}");
        let id = new_id();
        send(&id).await;
        let taken = receiver.line("webhook_id").await;
        assert_eq!(taken["error"], Value::Null, "{form}: {taken}");
        let attributes = &taken["event"]["attributes"];
        for (name, value) in [
            ("id", id.as_str()),
            ("source", "acme/shop"),
            ("type", "order.paid"),
            ("specversion", "1.0"),
            ("subject", "order 7 €"),
            ("time", "2026-11-16 08:30:00+00:00"),
            ("correlationid", "order-7"),
        ] {
            assert_eq!(attributes[name], value, "{form} {name}: {taken}");
        }
        assert_eq!((&taken["event"]["data"], &taken["attempt"]), (&data, &json!("1")), "{form}: {taken}");
    }

    // Who knows another secret takes nothing, and it is sent again.
    let rotate = format!("{SUBSCRIPTION}/push-secret/rotate");
    let (_, made) = hooks.operate(Method::POST, &rotate, Some(json!({}))).await;
    receiver.knows("whsec_c25hdmlvLXRlc3Qtc2VjcmV0LTMyLWJ5dGVzLWxvbmc=").await;
    send(&new_id()).await;
    let refused = receiver.line("webhook_id").await;
    assert!(refused["error"].as_str().unwrap().starts_with("WebhookVerificationError"), "{refused}");
    receiver.knows(made["push_secret"].as_str().unwrap()).await;
    let taken = receiver.line("signed").await;
    assert_eq!((&taken["error"], &taken["webhook_id"]), (&Value::Null, &refused["webhook_id"]), "{taken}");
}

/// An event with data that is no JSON.
fn other(content_type: &str, member: &str, data: &str) -> Value {
    json!({
        "attributes": {
            "id": new_id(), "type": "order.paid", "source": "shop", "datacontenttype": content_type,
            "subject": "order 7", "time": "2026-03-01T08:00:00.25Z", "partitionkey": "order-7", "correlationid": "journey-7",
        },
        member: data,
    })
}

/// What the receiver must have of an event that was sent: all that was said, and who said it.
fn expected(sent: &Value) -> Value {
    let mut attributes = sent["attributes"].clone();
    // Names are known within a tenant; a URI stays as it is, and who vouches for it stands beside it.
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

/// The same of what it got: without what it is told beside.
fn got(taken: &Value, sent: &Value) -> Value {
    let mut event = taken["event"].clone();
    let attributes = event["attributes"].as_object_mut().unwrap_or_else(|| panic!("not read: {taken}"));
    assert_eq!(attributes.remove("specversion"), Some(json!("1.0")));
    let trace = |text: &Value| text.as_str().and_then(|it| it.split('-').nth(1)).map(str::to_owned);
    let had = &sent["attributes"]["traceparent"];
    let has = attributes.remove("traceparent").expect("every delivery has its place in a trace");
    if had.is_string() {
        assert_eq!(trace(&has), trace(had), "one trace");
        attributes.insert("traceparent".to_owned(), had.clone());
    }
    if sent["attributes"]["eventversion"].is_null() {
        attributes.remove("eventversion").expect("the version of its type");
    }
    // As the package prints times.
    let time = attributes["time"].as_str().unwrap().replace(' ', "T");
    attributes["time"] = json!(time.replace("250000", "25").replace("+00:00", "Z"));
    event
}

/// MSG-4, MSG-6, DLV-1: what a public package says reaches a public package, whichever mode it takes on the way.
#[tokio::test]
async fn what_a_foreign_client_sends_a_foreign_receiver_gets() {
    let mut receiver = Receiver::start();
    let port = receiver.line("port").await["port"].clone();
    let url = format!("http://127.0.0.1:{port}/events");
    let in_form = |form: &str| hook(&url, &json!({ "processing": { "form": form } }));
    let hooks = Hooks::with(vec![in_form("cloudevents")]).await;
    receiver.knows(&hooks.secrets[PAID].expose()).await;
    for form in ["cloudevents", "cloudevents_binary"] {
        eventually("nothing waits", async || hooks.is_drained().await).await;
        let (status, put) = hooks.operate(Method::PUT, SUBSCRIPTION, Some(in_form(form))).await;
        assert_eq!(status, 200, "{put}");
        for mode in ["structured", "binary"] {
            let mut events = vec![
                whole(&new_id()),
                other("text/plain", "data", "é <b> \"7\"\n"),
                other("application/xml", "data", "<order n=\"7\"/>"),
            ];
            // The library cannot verify what is no text: the guide says which form is for that.
            if form == "cloudevents" {
                events.push(other("image/png", "data_base64", "/wAB"));
            }
            for event in events {
                let asked =
                    json!({ "url": hooks.node.url(), "token": hooks.token, "mode": mode, "events": [event] });
                let (status, answer) = sent_by_python(&asked);
                assert_eq!(status, 202, "{mode}: {answer}");
                let taken = receiver.line("webhook_id").await;
                assert_eq!(taken["error"], Value::Null, "{mode} to {form}: {taken}");
                assert_eq!(taken["webhook_id"], event["attributes"]["id"], "{mode} to {form}");
                assert_eq!(got(&taken, &event), expected(&event), "{mode} to {form}");
            }
        }
    }
}

/// MSG-4, DLV-1: the guide names what the public library cannot verify, and the form for it.
#[tokio::test]
async fn bytes_that_are_no_text_are_for_the_structured_form() {
    let mut receiver = Receiver::start();
    let port = receiver.line("port").await["port"].clone();
    let url = format!("http://127.0.0.1:{port}/events");
    let in_form = |form: &str| hook(&url, &json!({ "processing": { "form": form } }));
    let hooks = Hooks::with(vec![in_form("cloudevents_binary")]).await;
    receiver.knows(&hooks.secrets[PAID].expose()).await;
    let event = other("image/png", "data_base64", "/wAB");
    let asked = json!({ "url": hooks.node.url(), "token": hooks.token, "mode": "binary", "events": [event] });
    assert_eq!(sent_by_python(&asked).0, 202);
    let refused = receiver.line("webhook_id").await;
    assert!(refused["error"].as_str().unwrap().starts_with("UnicodeDecodeError"), "{refused}");
    assert_eq!(hooks.operate(Method::PUT, SUBSCRIPTION, Some(in_form("cloudevents"))).await.0, 200);
    let taken = receiver.line("signed").await;
    assert_eq!(got(&taken, &event), expected(&event));
}
