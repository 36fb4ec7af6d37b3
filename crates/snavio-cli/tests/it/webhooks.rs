//! Standard Webhooks headers as the signature of a command (MSG-4).

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use snavio_model::signature::webhook;
use snavio_model::time::Timestamp;

use crate::node::{Cast, Draft, Node, drain, new_id, seconds_from_now};
use crate::wire::{Answered, post_json};

struct Sender {
    node: Node,
    cast: Cast,
    token: String,
}

/// A message with the headers of its request.
#[derive(Clone)]
struct Signed {
    draft: Draft,
    body: String,
    id: String,
    timestamp: String,
    signature: String,
}

impl Sender {
    async fn start() -> Self {
        let node = Node::start();
        let cast = node.cast().await;
        let token = node.token(&cast.billing).await;
        Self { node, cast, token }
    }

    /// A message that only its headers sign; `change` edits the draft and the body first.
    fn signed(&self, change: impl FnOnce(&mut Draft, &mut Value)) -> Signed {
        let mut draft = Draft::new("notify", &new_id());
        let mut value: Value = serde_json::from_slice(&draft.sign(&self.cast.billing)).expect("JSON");
        for member in ["hmac", "version_id"] {
            value["metadata"].as_object_mut().map(|metadata| metadata.remove(member));
        }
        change(&mut draft, &mut value);
        self.with_headers(draft, value.to_string())
    }

    /// A message with its own signature and a signature in the headers.
    fn signed_twice(&self) -> Signed {
        let draft = Draft::new("notify", &new_id());
        let body = String::from_utf8(draft.sign(&self.cast.billing)).expect("text");
        self.with_headers(draft, body)
    }

    fn with_headers(&self, draft: Draft, body: String) -> Signed {
        let seconds = Timestamp::parse(&draft.timestamp).expect("a time").0.div_euclid(1000);
        let secret = self.cast.billing.secret().expect("a secret");
        let signature = webhook::sign(&secret, &draft.id, seconds, body.as_bytes());
        Signed { id: draft.id.clone(), draft, body, timestamp: seconds.to_string(), signature }
    }

    fn request(&self, path: &str, signed: &Signed) -> RequestBuilder {
        let request = post_json(&self.node, path, &self.token, signed.body.clone());
        request
            .header("webhook-id", &signed.id)
            .header("webhook-timestamp", &signed.timestamp)
            .header("webhook-signature", &signed.signature)
    }

    async fn send(&self, signed: &Signed) -> (u16, String) {
        Answered::to(self.request("/v1/commands", signed)).await.refusal()
    }
}

/// MSG-4
#[tokio::test]
async fn headers_sign_a_command_for_existing_libraries() {
    let sender = Sender::start().await;
    let plain = sender.signed(|_, _| {});
    assert_eq!(sender.send(&plain).await.0, 202);
    let upper = Signed {
        id: plain.id.to_uppercase(),
        ..sender.signed(|draft, body| {
            *draft = Draft { id: plain.id.clone(), ..draft.clone() };
            body["metadata"]["id"] = plain.id.clone().into();
        })
    };
    assert_eq!(
        sender.send(&upper).await,
        (401, "hmac_invalid".into()),
        "the signature covers the id as sent"
    );
    assert_eq!(sender.send(&sender.signed_twice()).await.0, 202);
    let several = {
        let signed = sender.signed(|_, _| {});
        let other = webhook::sign(&sender.cast.bot.secret().expect("a secret"), &signed.id, 1, b"");
        Signed { signature: format!("{other} {} v2,unknown", signed.signature), ..signed }
    };
    assert_eq!(sender.send(&several).await.0, 202, "one of several is enough");

    let delivered = drain(&sender.node.client(&sender.cast.bot), "notify-inbox").await;
    assert_eq!(delivered.len(), 3);
    assert_eq!(delivered[0].message.as_command().unwrap().metadata["id"], plain.draft.id.as_str());
    assert_eq!(
        delivered[0].message.as_command().unwrap().metadata["version_id"],
        "hmac-v1",
        "the delivery names the key that signed"
    );
}

/// MSG-4
#[tokio::test]
async fn headers_of_another_message_are_refused() {
    let sender = Sender::start().await;
    let right = sender.signed(|_, _| {});
    let at = |offset: i64| (right.timestamp.parse::<i64>().expect("seconds") + offset).to_string();
    let signed_at = |timestamp: String, id: &str| {
        let seconds = timestamp.parse().expect("seconds");
        let secret = sender.cast.billing.secret().expect("a secret");
        let signature = webhook::sign(&secret, id, seconds, right.body.as_bytes());
        Signed { timestamp, id: id.to_owned(), signature, ..right.clone() }
    };
    let of_bot = {
        let secret = sender.cast.bot.secret().expect("a secret");
        let seconds = right.timestamp.parse().expect("seconds");
        Signed {
            signature: webhook::sign(&secret, &right.id, seconds, right.body.as_bytes()),
            ..right.clone()
        }
    };
    let old = Draft { timestamp: seconds_from_now(-61), ..Draft::new("notify", &new_id()) };
    let old = sender.signed(|draft, body| {
        body["metadata"]["timestamp"] = old.timestamp.clone().into();
        body["metadata"]["id"] = old.id.clone().into();
        *draft = old;
    });
    for (case, signed, status, reason) in [
        ("another id", signed_at(at(0), &new_id()), 401, "hmac_invalid"),
        ("another second", signed_at(at(1), &right.id), 401, "hmac_invalid"),
        (
            "another signature",
            Signed { signature: format!("v1,{}=", "A".repeat(43)), ..right.clone() },
            401,
            "hmac_invalid",
        ),
        ("another service's key", of_bot, 401, "hmac_invalid"),
        ("another body", Signed { body: format!("{} ", right.body), ..right.clone() }, 401, "hmac_invalid"),
        ("not base64", Signed { signature: "v1,???".into(), ..right.clone() }, 401, "hmac_invalid"),
        (
            "an unknown version",
            Signed { signature: right.signature.replace("v1,", "v2,"), ..right.clone() },
            401,
            "hmac_invalid",
        ),
        ("no number", Signed { timestamp: "now".into(), ..right.clone() }, 400, "invalid_timestamp"),
        ("an empty id", Signed { id: String::new(), ..right.clone() }, 400, "invalid_id"),
        ("outside the window", old, 401, "timestamp_out_of_window"),
    ] {
        assert_eq!(sender.send(&signed).await, (status, reason.into()), "{case}");
    }
    for missing in ["webhook-id", "webhook-timestamp"] {
        let request = post_json(&sender.node, "/v1/commands", &sender.token, right.body.clone());
        let request = request.header("webhook-signature", &right.signature);
        let (other, value) = match missing {
            "webhook-id" => ("webhook-timestamp", &right.timestamp),
            _ => ("webhook-id", &right.id),
        };
        let answer = Answered::to(request.header(other, value)).await.refusal();
        assert_eq!(answer, (401, "hmac_missing".into()), "without {missing}");
    }
    assert!(drain(&sender.node.client(&sender.cast.bot), "notify-inbox").await.is_empty());
    assert_eq!(sender.send(&right).await.0, 202, "the unchanged message is accepted");
}

/// MSG-4
#[tokio::test]
async fn two_signatures_must_both_be_valid() {
    let sender = Sender::start().await;
    let both = sender.signed_twice();
    let bad_header = Signed { signature: format!("v1,{}=", "A".repeat(43)), ..both.clone() };
    assert_eq!(sender.send(&bad_header).await, (401, "hmac_invalid".into()));
    let bad_hmac = {
        let mut value: Value = serde_json::from_str(&both.body).expect("JSON");
        value["metadata"]["hmac"] = "ab".repeat(32).into();
        sender.with_headers(both.draft.clone(), value.to_string())
    };
    assert_eq!(sender.send(&bad_hmac).await, (401, "hmac_invalid".into()));
    let unknown_key = {
        let mut value: Value = serde_json::from_str(&both.body).expect("JSON");
        value["metadata"]["version_id"] = "hmac-v9".into();
        sender.with_headers(both.draft.clone(), value.to_string())
    };
    assert_eq!(sender.send(&unknown_key).await, (401, "key_unknown".into()));
    assert_eq!(sender.send(&both).await.0, 202);
}

/// PIP-2, MSG-4
#[tokio::test]
async fn repeated_signed_request_is_duplicate() {
    let sender = Sender::start().await;
    let signed = sender.signed(|_, _| {});
    let first = Answered::to(sender.request("/v1/commands", &signed)).await;
    let second = Answered::to(sender.request("/v1/commands", &signed)).await;
    assert_eq!((first.status, second.status), (202, 200));
    assert_eq!(second.document()["duplicate"], json!(true));
    assert_eq!(drain(&sender.node.client(&sender.cast.bot), "notify-inbox").await.len(), 1);
}

/// MSG-4
#[tokio::test]
async fn batch_of_commands_is_not_signed_by_headers() {
    let sender = Sender::start().await;
    let signed = sender.signed_twice();
    let batch = sender.with_headers(signed.draft.clone(), format!("[{}]", signed.body));
    let answer = Answered::to(sender.request("/v1/commands/batch", &batch)).await;
    assert_eq!(answer.refusal(), (400, "invalid_request".into()));
    assert!(drain(&sender.node.client(&sender.cast.bot), "notify-inbox").await.is_empty());
}
