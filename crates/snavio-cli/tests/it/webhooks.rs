//! Standard Webhooks headers as the signature of a command (MSG-4).

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use snavio_model::signature::webhook;
use snavio_model::time::Timestamp;

use crate::node::{Cast, Draft, Node, drain, new_id, seconds_from_now};
use crate::wire::{Answered, post_json};

struct Scene {
    node: Node,
    cast: Cast,
    token: String,
}

/// A message and the headers it is sent with.
#[derive(Clone)]
struct Signed {
    draft: Draft,
    body: String,
    id: String,
    timestamp: String,
    signature: String,
}

impl Scene {
    async fn set() -> Self {
        let node = Node::start();
        let cast = node.cast().await;
        let token = node.token(&cast.billing).await;
        Self { node, cast, token }
    }

    /// A message signed by its headers alone.
    fn signed(&self, change: impl FnOnce(&mut Draft, &mut Value)) -> Signed {
        let mut draft = Draft::new("notify", &new_id());
        let mut value: Value = serde_json::from_slice(&draft.sign(&self.cast.billing)).expect("JSON");
        for member in ["hmac", "version_id"] {
            value["metadata"].as_object_mut().map(|metadata| metadata.remove(member));
        }
        change(&mut draft, &mut value);
        self.with_headers(draft, value.to_string())
    }

    /// A message with its own signature, and the headers' too.
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
    let scene = Scene::set().await;
    let plain = scene.signed(|_, _| {});
    assert_eq!(scene.send(&plain).await.0, 202);
    let upper = Signed {
        id: plain.id.to_uppercase(),
        ..scene.signed(|draft, it| {
            *draft = Draft { id: plain.id.clone(), ..draft.clone() };
            it["metadata"]["id"] = plain.id.clone().into();
        })
    };
    assert_eq!(scene.send(&upper).await, (401, "hmac_invalid".into()), "the signature covers the id as sent");
    assert_eq!(scene.send(&scene.signed_twice()).await.0, 202);
    let several = {
        let signed = scene.signed(|_, _| {});
        let other = webhook::sign(&scene.cast.bot.secret().expect("a secret"), &signed.id, 1, b"");
        Signed { signature: format!("{other} {} v2,unknown", signed.signature), ..signed }
    };
    assert_eq!(scene.send(&several).await.0, 202, "one of several is enough");

    let delivered = drain(&scene.node.client(&scene.cast.bot), "notify-inbox").await;
    assert_eq!(delivered.len(), 3);
    assert_eq!(delivered[0].message.as_command().unwrap().metadata["id"], plain.draft.id.as_str());
    assert_eq!(
        delivered[0].message.as_command().unwrap().metadata["version_id"],
        "hmac-v1",
        "the key that signed is known"
    );
}

/// MSG-4
#[tokio::test]
async fn headers_that_are_not_this_messages_are_refused() {
    let scene = Scene::set().await;
    let right = scene.signed(|_, _| {});
    let at = |offset: i64| (right.timestamp.parse::<i64>().expect("seconds") + offset).to_string();
    let signed_at = |timestamp: String, id: &str| {
        let seconds = timestamp.parse().expect("seconds");
        let secret = scene.cast.billing.secret().expect("a secret");
        let signature = webhook::sign(&secret, id, seconds, right.body.as_bytes());
        Signed { timestamp, id: id.to_owned(), signature, ..right.clone() }
    };
    let of_bot = {
        let secret = scene.cast.bot.secret().expect("a secret");
        let seconds = right.timestamp.parse().expect("seconds");
        Signed {
            signature: webhook::sign(&secret, &right.id, seconds, right.body.as_bytes()),
            ..right.clone()
        }
    };
    let old = Draft { timestamp: seconds_from_now(-61), ..Draft::new("notify", &new_id()) };
    let old = scene.signed(|draft, it| {
        it["metadata"]["timestamp"] = old.timestamp.clone().into();
        it["metadata"]["id"] = old.id.clone().into();
        *draft = old;
    });
    for (what, signed, status, reason) in [
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
        assert_eq!(scene.send(&signed).await, (status, reason.into()), "{what}");
    }
    for missing in ["webhook-id", "webhook-timestamp"] {
        let request = post_json(&scene.node, "/v1/commands", &scene.token, right.body.clone());
        let request = request.header("webhook-signature", &right.signature);
        let (other, value) = match missing {
            "webhook-id" => ("webhook-timestamp", &right.timestamp),
            _ => ("webhook-id", &right.id),
        };
        let answer = Answered::to(request.header(other, value)).await.refusal();
        assert_eq!(answer, (401, "hmac_missing".into()), "without {missing}");
    }
    assert!(drain(&scene.node.client(&scene.cast.bot), "notify-inbox").await.is_empty());
    assert_eq!(scene.send(&right).await.0, 202, "the very same, with all of it right");
}

/// MSG-4
#[tokio::test]
async fn where_both_kinds_of_signature_are_present_both_must_hold() {
    let scene = Scene::set().await;
    let both = scene.signed_twice();
    let bad_header = Signed { signature: format!("v1,{}=", "A".repeat(43)), ..both.clone() };
    assert_eq!(scene.send(&bad_header).await, (401, "hmac_invalid".into()));
    let bad_hmac = {
        let mut value: Value = serde_json::from_str(&both.body).expect("JSON");
        value["metadata"]["hmac"] = "ab".repeat(32).into();
        scene.with_headers(both.draft.clone(), value.to_string())
    };
    assert_eq!(scene.send(&bad_hmac).await, (401, "hmac_invalid".into()));
    let unknown_key = {
        let mut value: Value = serde_json::from_str(&both.body).expect("JSON");
        value["metadata"]["version_id"] = "hmac-v9".into();
        scene.with_headers(both.draft.clone(), value.to_string())
    };
    assert_eq!(scene.send(&unknown_key).await, (401, "key_unknown".into()));
    assert_eq!(scene.send(&both).await.0, 202);
}

/// PIP-2, MSG-4
#[tokio::test]
async fn the_same_signed_request_again_goes_nowhere() {
    let scene = Scene::set().await;
    let signed = scene.signed(|_, _| {});
    let first = Answered::to(scene.request("/v1/commands", &signed)).await;
    let second = Answered::to(scene.request("/v1/commands", &signed)).await;
    assert_eq!((first.status, second.status), (202, 200));
    assert_eq!(second.document()["duplicate"], json!(true));
    assert_eq!(drain(&scene.node.client(&scene.cast.bot), "notify-inbox").await.len(), 1);
}

/// MSG-4
#[tokio::test]
async fn a_batch_of_commands_is_not_signed_by_headers() {
    let scene = Scene::set().await;
    let signed = scene.signed_twice();
    let batch = scene.with_headers(signed.draft.clone(), format!("[{}]", signed.body));
    let answer = Answered::to(scene.request("/v1/commands/batch", &batch)).await;
    assert_eq!(answer.refusal(), (400, "invalid_request".into()));
    assert!(drain(&scene.node.client(&scene.cast.bot), "notify-inbox").await.is_empty());
}
