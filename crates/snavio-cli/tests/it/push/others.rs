//! Pushes to a receiver that we did not write: the public Python packages of Standard Webhooks and CloudEvents take our
//! signature and read our events (DLV-1, MSG-4, MSG-6).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};

use reqwest::Method;
use serde_json::{Value, json};
use snavio_testbed::python;

use super::{Hooks, PAID, SUBSCRIPTION, hook};
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
