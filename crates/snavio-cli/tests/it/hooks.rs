//! Webhooks of providers (MSG-7): requests in the form of Telegram, Google Calendar, GitHub and Stripe,
//! signed as their documentation says, and each sent twice.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use ring::hmac;
use serde_json::{Value, json};
use snavio_model::bounds;
use snavio_model::signature::webhook;
use snavio_sdk::DeliveredEvent;
use snavio_testbed::python;

use crate::events::Shop;
use crate::node::{seconds_from_now, verdict};
use crate::patience::eventually;
use crate::people::issue;
use crate::wire::{Answered, http, metric};

const TELEGRAM: &str = r#"{"update_id":901234567,"message":{"message_id":11,"from":{"id":42,"is_bot":false,"first_name":"Zoë"},"chat":{"id":42,"type":"private"},"date":1794731390,"text":"Bonjour 😀"}}"#;
const GITHUB: &str =
    r#"{"ref":"refs/heads/main","repository":{"id":186853002,"full_name":"octo/hello"},"commits":[]}"#;
const STRIPE: &str = r#"{"id":"evt_1NG8Du2eZvKYlo2C","object":"event","created":1794731300,"data":{"object":{"id":"ch_3","amount":1099}},"livemode":false,"pending_webhooks":2,"type":"charge.succeeded"}"#;
const SECRET: &str = "a secret of the provider's";

type Headers = Vec<(&'static str, String)>;

/// A provider's preset, the type of its events, and a valid request.
struct Provider {
    preset: &'static str,
    event_type: &'static str,
    body: &'static str,
    headers: fn(&str, &str) -> Headers,
}

fn hex_hmac(secret: &str, text: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    hmac::sign(&key, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The Unix time, in seconds, so many seconds from now.
fn seconds(from_now: i64) -> i64 {
    snavio_model::time::Timestamp::parse(&seconds_from_now(from_now)).unwrap().0.div_euclid(1000)
}

fn stripe_at(secret: &str, body: &str, from_now: i64) -> Headers {
    let at = seconds(from_now);
    let signature = format!("t={at},v1={},v0=0000", hex_hmac(secret, &format!("{at}.{body}")));
    vec![("Stripe-Signature", signature), ("content-type", "application/json; charset=utf-8".into())]
}

const PROVIDERS: [Provider; 4] = [
    Provider {
        preset: "telegram",
        event_type: "telegram.update",
        body: TELEGRAM,
        headers: |secret, _| {
            vec![
                ("X-Telegram-Bot-Api-Secret-Token", secret.to_owned()),
                ("content-type", "application/json".into()),
            ]
        },
    },
    Provider {
        preset: "google-calendar",
        event_type: "google-calendar.notification",
        body: "",
        headers: |secret, _| {
            [
                ("X-Goog-Channel-ID", "4ba78bf0-6a47-11e2-bcfd-0800200c9a66"),
                ("X-Goog-Channel-Token", secret),
                ("X-Goog-Channel-Expiration", "Sun, 15 Nov 2026 17:00:00 GMT"),
                ("X-Goog-Resource-ID", "ret08u3rv24htgh289g"),
                ("X-Goog-Resource-URI", "https://calendar.example/v3/calendars/my_calendar/events"),
                ("X-Goog-Resource-State", "exists"),
                ("X-Goog-Message-Number", "10"),
            ]
            .map(|(name, value)| (name, value.to_owned()))
            .into()
        },
    },
    Provider {
        preset: "github",
        event_type: "github.event",
        body: GITHUB,
        headers: |secret, body| {
            vec![
                ("X-Hub-Signature-256", format!("sha256={}", hex_hmac(secret, body))),
                ("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958".into()),
                ("X-GitHub-Event", "push".into()),
                ("content-type", "application/json".into()),
            ]
        },
    },
    Provider {
        preset: "stripe",
        event_type: "stripe.event",
        body: STRIPE,
        headers: |secret, body| stripe_at(secret, body, 0),
    },
];

impl Shop {
    /// A shop with an adapter for each provider, under its preset's name. The ledger subscribes to all their
    /// events.
    async fn with_adapters(settings: Value) -> Self {
        let shop = Self::with_settings(settings).await;
        let types: Vec<_> = PROVIDERS
            .iter()
            .map(|provider| json!({ "owner": "acme/shop", "name": provider.event_type }))
            .collect();
        let subscriptions: Vec<_> = PROVIDERS
            .iter()
            .map(|provider| {
                json!({
                    "target": "acme/ledger", "events_of": "acme/shop", "name": provider.event_type, "queue": "paid",
                    "dead_letter_queue": "dead", "claim": { "policy": "ledger" },
                })
            })
            .collect();
        shop.node.apply(&json!({ "event_types": types, "subscriptions": subscriptions })).await;
        for provider in &PROVIDERS {
            let settings = json!({ "preset": provider.preset, "service": "acme/shop", "secrets": [SECRET] });
            let (status, answer) = shop.put_adapter(provider.preset, settings).await;
            assert_eq!(status, 201, "{answer}");
        }
        shop
    }

    async fn put_adapter(&self, name: &str, body: Value) -> (u16, Value) {
        self.call_as_operator(Method::PUT, &format!("/v1/adapters/acme/{name}"), Some(body)).await
    }

    async fn post_hook(&self, adapter: &str, headers: &Headers, body: &str) -> Answered {
        let url = format!("{}/v1/hooks/{adapter}", self.node.url());
        let request = http(&self.node).post(url).body(body.to_owned());
        Answered::to(headers.iter().fold(request, |request, (name, value)| request.header(*name, value)))
            .await
    }

    /// Posts a Stripe event with this id and creation time. Its amount has decimals, so that the amount is
    /// not a valid sequence number.
    async fn post_charge(&self, id: &str, created: &str) -> (u16, Value) {
        let body = STRIPE.replace("evt_1NG8Du2eZvKYlo2C", id).replace("1794731300", created);
        let body = body.replace("1099", "10.99");
        let answer = self.post_hook("acme/stripe", &stripe_at(SECRET, &body, 0), &body).await;
        (answer.status, answer.document())
    }

    /// Posts a signed body to the Stripe adapter, and returns its refusal.
    async fn stripe_refusal(&self, body: &str) -> (u16, String) {
        self.post_hook("acme/stripe", &stripe_at(SECRET, body, 0), body).await.refusal()
    }

    /// Posts a Stripe event with this id, signed under this secret, and returns the status.
    async fn post_stripe_under(&self, secret: &str, id: &str) -> u16 {
        let body = STRIPE.replace("evt_1NG8Du2eZvKYlo2C", id);
        self.post_hook("acme/stripe", &stripe_at(secret, &body, 0), &body).await.status
    }

    /// Posts a signed Stripe event to an adapter, and returns the status and the event's id.
    async fn post_stripe_to(&self, name: &str, body: &str) -> (u16, String) {
        let answer = self.post_hook(&format!("acme/{name}"), &stripe_at(SECRET, body, 0), body).await;
        (answer.status, answer.document()["id"].as_str().unwrap_or_default().to_owned())
    }

    /// Registers a Stripe adapter of a service, with or without a prefix for its ids.
    async fn put_stripe(&self, name: &str, service: &str, prefix: Option<&str>) {
        let event_type = if service == "acme/shop" { "order.paid" } else { "posted" };
        let mut settings = json!({
            "preset": "stripe", "service": service, "event_type": event_type, "secrets": [SECRET],
        });
        if let Some(prefix) = prefix {
            settings["id_prefix"] = json!(prefix);
        }
        let (status, answer) = self.put_adapter(name, settings).await;
        assert!(status < 300, "{answer}");
    }

    /// Posts a captured GitHub request with another delivery id in its header.
    async fn post_captured(&self, delivery: &str) -> Answered {
        let mut headers = (PROVIDERS[2].headers)(SECRET, GITHUB);
        headers[1].1 = delivery.to_owned();
        self.post_hook("acme/github", &headers, GITHUB).await
    }

    /// Posts a request of Standard Webhooks with one id, signed for another, and returns status and reason.
    async fn post_svix(&self, id: &str, signed_id: &str, from_now: i64) -> (u16, String) {
        let (at, body) = (seconds(from_now), r#"{"amount":10}"#);
        let signature = webhook::sign(&self.shop.secret().unwrap(), signed_id, at, body.as_bytes());
        let headers = vec![
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", at.to_string()),
            ("webhook-signature", format!("v1,{} {signature}", "A".repeat(43) + "=")),
        ];
        let answer = self.post_hook("acme/svix", &headers, body).await;
        (answer.status, answer.document()["reason"].as_str().unwrap_or_default().to_owned())
    }

    /// Posts the provider's valid request.
    async fn post_valid(&self, provider: &Provider) -> (u16, Value) {
        let headers = (provider.headers)(SECRET, provider.body);
        let answer = self.post_hook(&format!("acme/{}", provider.preset), &headers, provider.body).await;
        (answer.status, answer.document())
    }
}

/// The settings of a Stripe adapter of `acme/shop` with these secrets.
fn stripe_adapter(secrets: Value) -> Value {
    json!({ "preset": "stripe", "service": "acme/shop", "secrets": secrets })
}

fn data(event: &DeliveredEvent) -> Value {
    serde_json::from_str(event.data.get()).unwrap()
}

/// The id that the Python reference derives from a source, an external id and the data.
pub(crate) fn python_id(source: &str, external_id: &str, data: &str) -> String {
    let script = "import hashlib, json, sys\n\
        source, external, data = sys.argv[1:]\n\
        normalized = json.dumps(json.loads(data), sort_keys=True)\n\
        print(hashlib.sha256(f'{source}:{external}:{normalized}'.encode()).hexdigest(), end='')";
    let ended = python().args(["-c", script, source, external_id, data]).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).unwrap()
}

/// MSG-7, ORD-4: the gateway answers a permanently late webhook so that the provider does not retry it for
/// days.
#[tokio::test]
async fn permanently_late_webhook_is_answered_without_provoking_retries() {
    let shop = Shop::with_adapters(json!({})).await;
    let body = json!({
        "queue": "paid", "dead_letter_queue": "dead", "claim": { "policy": "ledger" },
        "order": { "entity": "/data/object/id", "number": "/created", "mode": "strict" },
    });
    let path = "/v1/subscriptions/acme/ledger/acme/shop/stripe.event";
    let (status, answer) = shop.call_as_operator(Method::PUT, path, Some(body)).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(shop.post_charge("evt_7", "7").await, (202, json!({ "accepted": true, "id": "evt_7" })));
    for (id, number, reason) in [("evt_6", "6", "out_of_order"), ("evt_other", "7", "sequence_conflict")] {
        let refusal = json!({ "accepted": false, "id": id, "reason": reason });
        assert_eq!(shop.post_charge(id, number).await, (200, refusal.clone()));
        assert_eq!(shop.post_charge(id, number).await, (200, refusal), "a retry has no effect");
    }
    assert_eq!(shop.post_charge("evt_8", "8").await.0, 202);
    // A subscription that cannot read the number may be corrected, so the provider must keep retrying.
    let unreadable = json!({
        "queue": "blind", "dead_letter_queue": "dead", "claim": { "policy": "ledger" },
        "order": { "entity": "/data/object/id", "number": "/data/object/amount", "mode": "strict" },
    });
    let path = "/v1/subscriptions/acme/shop/acme/shop/stripe.event";
    let (status, answer) = shop.call_as_operator(Method::PUT, path, Some(unreadable)).await;
    assert_eq!(status, 201, "{answer}");
    let (status, refused) = shop.post_charge("evt_5", "5").await;
    assert_eq!((status, &refused["reason"]), (409, &json!("out_of_order")), "{refused}");
    let delivered = shop.delivered().await;
    let ids: Vec<_> = delivered.iter().map(|event| event.event_id.as_str()).collect();
    assert_eq!(ids, ["evt_7", "evt_8"]);
}

/// MSG-7, MSG-9, TEL-1
#[tokio::test]
async fn provider_retry_has_a_single_effect() {
    let shop = Shop::with_adapters(json!({})).await;
    for provider in &PROVIDERS {
        let (status, answer) = shop.post_valid(provider).await;
        assert_eq!(status, 202, "{}: {answer}", provider.preset);
        let (status, answer) = shop.post_valid(provider).await;
        assert_eq!((status, &answer["duplicate"]), (200, &json!(true)), "{}: {answer}", provider.preset);
    }
    // Stripe decreases `pending_webhooks` as its other endpoints confirm.
    let again = STRIPE.replace("\"pending_webhooks\":2", "\"pending_webhooks\":1");
    let answer = shop.post_hook("acme/stripe", &stripe_at(SECRET, &again, 0), &again).await;
    assert_eq!((answer.status, &answer.document()["duplicate"]), (200, &json!(true)));
    let changed = STRIPE.replace("1099", "1098");
    let answer = shop.post_hook("acme/stripe", &stripe_at(SECRET, &changed, 0), &changed).await;
    let conflict = json!({ "accepted": false, "id": "evt_1NG8Du2eZvKYlo2C", "reason": "conflict" });
    assert_eq!((answer.status, answer.document()), (200, conflict.clone()), "one id, another amount");
    let again = shop.post_hook("acme/stripe", &stripe_at(SECRET, &changed, 0), &changed).await;
    assert_eq!((again.status, again.document()), (200, conflict), "a retry has no effect");
    let record = shop.first_record(&shop.ledger, "snavio.claim.conflict").await;
    assert_eq!(record["event_id"], "evt_1NG8Du2eZvKYlo2C");

    let delivered = shop.delivered().await;
    let [telegram, calendar, github, stripe] = <[DeliveredEvent; 4]>::try_from(delivered).unwrap();
    assert_eq!(telegram.event_id, python_id("telegram", "901234567", TELEGRAM));
    assert_eq!((telegram.event_type.as_str(), telegram.source.as_str()), ("telegram.update", "acme/shop"));
    assert_eq!(data(&telegram)["message"]["text"], "Bonjour 😀");
    let external_id = "4ba78bf0-6a47-11e2-bcfd-0800200c9a66:10";
    assert_eq!(calendar.event_id, python_id("gcal", external_id, calendar.data.get()));
    assert_eq!(data(&calendar)["resourceState"], "exists");
    assert!(!calendar.data.get().contains(SECRET));
    assert_eq!(github.event_id, "72d3162e-cc78-11e3-81ab-4c9367dc0958");
    assert_eq!(github.metadata.as_ref().unwrap().get(), r#"{"githubEvent":"push"}"#);
    assert_eq!(
        (stripe.event_id.as_str(), stripe.timestamp.as_str()),
        ("evt_1NG8Du2eZvKYlo2C", "2026-11-15T08:28:20.000Z")
    );
    assert_eq!(data(&stripe).get("pending_webhooks"), None);

    let record = shop.first_record(&shop.shop, "snavio.event.delivered").await;
    assert_eq!(
        (&record["adapter"], &record["event_type"]),
        (&json!("acme/telegram"), &json!("telegram.update"))
    );
    let record = shop.first_record(&shop.shop, "snavio.event.duplicate").await;
    assert_eq!(record["event_type"], "telegram.update");
}

/// Status and document of a refusal, without the members that differ in every answer.
fn problem_of(answer: &Answered) -> (u16, Value) {
    let mut document = answer.document();
    document
        .as_object_mut()
        .unwrap()
        .retain(|name, _| !["instance", "correlation_id", "traceparent"].contains(&name.as_str()));
    (answer.status, document)
}

/// MSG-7, QUA-5
#[tokio::test]
async fn unverified_request_learns_nothing_and_has_no_effect() {
    let shop = Shop::with_adapters(json!({})).await;
    let unknown_adapter = shop.post_hook("acme/nothing", &vec![], "{}").await;
    assert_eq!(unknown_adapter.refusal(), (401, "unauthenticated".to_owned()), "{}", unknown_adapter.text);
    for provider in &PROVIDERS {
        let adapter = format!("acme/{}", provider.preset);
        let Provider { headers, body, .. } = provider;
        let wrong = headers("another secret", body);
        let altered = format!("{body} ");
        let mut twice = headers(SECRET, body);
        let once = headers(SECRET, body).into_iter();
        twice.extend(once.filter(|(name, _)| *name != "content-type"));
        let mut cases = vec![(wrong, *body), (vec![], *body), (twice, *body)];
        if ["github", "stripe"].contains(&provider.preset) {
            cases.push((headers(SECRET, body), &altered));
        }
        for (headers, body) in cases {
            let answer = shop.post_hook(&adapter, &headers, body).await;
            assert_eq!(problem_of(&answer), problem_of(&unknown_adapter), "{adapter} {headers:?}");
        }
    }
    let foreign = shop.post_hook("zeta/stripe", &stripe_at(SECRET, STRIPE, 0), STRIPE).await;
    assert_eq!(problem_of(&foreign), problem_of(&unknown_adapter), "another tenant has no such adapter");
    for from_now in [-301, 301] {
        let stale = shop.post_hook("acme/stripe", &stripe_at(SECRET, STRIPE, from_now * 2), STRIPE).await;
        assert_eq!(stale.refusal(), (401, "timestamp_out_of_window".to_owned()), "{}", stale.text);
    }
    assert!(shop.delivered().await.is_empty(), "no event was accepted");
    assert!(metric(&shop.node, "snavio_auth_failures_total").await.unwrap() >= 15.0);
    assert_eq!(shop.post_valid(&PROVIDERS[3]).await.0, 202, "a valid request is still accepted");
}

/// MSG-7, MSG-10
#[tokio::test]
async fn verified_body_must_be_an_event() {
    let shop = Shop::with_adapters(json!({})).await;
    assert_eq!(shop.stripe_refusal("{").await, (400, "malformed".to_owned()));
    assert_eq!(shop.stripe_refusal("{}").await, (400, "malformed".to_owned()), "no id");
    let twice = shop.stripe_refusal(r#"{"id":"a","id":"b"}"#).await;
    assert_eq!(twice, (400, "duplicate_member".to_owned()));
    let large = format!(r#"{{"id":"e","text":"{}"}}"#, "x".repeat(300 * 1024));
    assert_eq!(shop.stripe_refusal(&large).await, (413, "too_large".to_owned()));
    let invalid = shop.first_record(&shop.shop, "snavio.event.invalid").await;
    assert_eq!(invalid["source"], "acme/shop");
    shop.node.apply(&json!({ "tenants": [{ "name": "acme", "suspended": true }] })).await;
    assert_eq!(shop.stripe_refusal(STRIPE).await, (403, "suspended".to_owned()));
    shop.node.apply(&json!({ "tenants": [{ "name": "acme", "suspended": false }] })).await;
    assert_eq!(shop.post_valid(&PROVIDERS[3]).await.0, 202);
}

/// MSG-7, REG-13
#[tokio::test]
async fn secrets_rotate_with_overlap_and_are_never_shown() {
    let shop = Shop::with_adapters(json!({})).await;
    let next = "the provider's next secret";
    assert_eq!(shop.post_stripe_under(next, "evt_1").await, 401);
    assert_eq!(shop.put_adapter("stripe", stripe_adapter(json!([next, SECRET]))).await.0, 200);
    assert_eq!(shop.post_stripe_under(next, "evt_1").await, 202);
    assert_eq!(shop.post_stripe_under(SECRET, "evt_2").await, 202);
    assert_eq!(shop.put_adapter("stripe", stripe_adapter(json!([next]))).await.0, 200);
    assert_eq!(shop.post_stripe_under(next, "evt_3").await, 202);
    assert_eq!(shop.post_stripe_under(SECRET, "evt_4").await, 401);
    let before = shop.node.get("/v1/registry/changes?limit=1000").await["next"].clone();
    let without_secrets = json!({ "preset": "stripe", "service": "acme/shop" });
    for same in [without_secrets, stripe_adapter(json!([next]))] {
        assert_eq!(shop.put_adapter("stripe", same).await.0, 200);
    }
    let after = shop.node.get("/v1/registry/changes?limit=1000").await;
    assert_eq!(after["next"], before, "the same settings change nothing");
    let (status, shown) = shop.call_as_operator(Method::GET, "/v1/adapters/acme/stripe", None).await;
    assert_eq!(
        (status, &shown["kind"], &shown["event_type"]),
        (200, &json!("adapter"), &json!("stripe.event"))
    );
    let evidence = shop.node.get("/v1/registry/evidence").await;
    let registry = shop.node.get("/v1/registry?kind=adapter").await;
    for document in [shown, after, evidence, registry] {
        let text = document.to_string();
        assert!(text.contains("stripe") && !text.contains("secrets") && !text.contains("v2."), "{text}");
    }
    assert_eq!(shop.call_as_operator(Method::DELETE, "/v1/adapters/acme/stripe", None).await.0, 200);
    assert_eq!(shop.post_stripe_under(next, "evt_5").await, 401);
}

/// MSG-7, REG-1
#[tokio::test]
async fn unusable_adapter_is_not_registered() {
    let shop = Shop::start().await;
    shop.node.apply(&json!({ "event_types": [{ "owner": "acme/shop", "name": "stripe.event" }] })).await;
    let secrets_expected = "an adapter has 1 to 4 secrets";
    let preset_expected = "preset must be telegram, google-calendar, github or stripe";
    for (member, value, status, expected) in [
        ("service", json!("acme/none"), 409, "service acme/none is not registered"),
        ("service", json!("zeta/app"), 400, "service must be one of the path's tenant"),
        ("secrets", json!([]), 409, secrets_expected),
        ("secrets", Value::Null, 409, secrets_expected),
        ("secrets", json!(["fifteen letters"]), 400, "a secret must be 16 to 512 printable ASCII characters"),
        ("secrets", json!("text"), 400, "secrets must be a list of texts"),
        ("preset", json!("paypal"), 400, preset_expected),
        ("event_type", json!("unknown"), 409, "event_type acme/shop:unknown is not registered"),
        ("source", json!("a:b"), 409, "source: must be 1 to 64 printable ASCII characters"),
        ("verification", json!({ "scheme": "standard_webhooks" }), 400, "whsec_ and the base64"),
        ("sealed", json!(["v2.x.y"]), 400, "unknown field"),
        ("name", json!("other"), 400, "the body's name is not that of the path"),
    ] {
        let mut body = stripe_adapter(json!([SECRET]));
        if value.is_null() {
            body.as_object_mut().unwrap().remove(member);
        } else {
            body[member] = value;
        }
        let (actual, answer) = shop.put_adapter("stripe", body.clone()).await;
        assert_eq!(actual, status, "{body} {answer}");
        assert!(answer["detail"].as_str().unwrap().contains(expected), "{answer}");
        assert!(!answer.to_string().contains(SECRET), "{answer}");
    }
    let good = stripe_adapter(json!([SECRET]));
    assert_eq!(shop.put_adapter("stripe", good.clone()).await.0, 201);
    let (status, answer) =
        shop.call_as_operator(Method::DELETE, "/v1/event-types/acme/shop/stripe.event", None).await;
    assert_eq!(status, 409, "{answer}");
    assert!(
        answer["detail"].as_str().unwrap().contains("while adapter acme/stripe is registered"),
        "{answer}"
    );
    let viewer =
        shop.node.api().with_token(&issue(&shop.node, "Vi", "tenant-viewer", Some("acme")).await.token);
    let body = good.to_string().into_bytes();
    let put =
        verdict(viewer.send(Method::PUT, "/v1/adapters/acme/stripe", Some(body), "application/json").await);
    assert_eq!(put.0, 403);
}

/// MSG-7, CLM-6: the provider learns only that the gateway has its event. The outcome belongs to the
/// subscribers, during the work and after it.
#[tokio::test]
async fn provider_learns_acceptance_but_no_outcome() {
    let shop = Shop::start().await;
    let registry = json!({
        "event_types": [{ "owner": "acme/shop", "name": "stripe.event" }],
        "subscriptions": [{
            "target": "acme/ledger", "events_of": "acme/shop", "name": "stripe.event", "queue": "work",
            "dead_letter_queue": "dead", "claim": { "policy": "ledger" }, "processing": { "kind": "tracked" },
        }],
    });
    shop.node.apply(&registry).await;
    let settings = json!({ "preset": "stripe", "service": "acme/shop", "secrets": [SECRET] });
    assert_eq!(shop.put_adapter("stripe", settings).await.0, 201);
    let id = "evt_1NG8Du2eZvKYlo2C";
    let duplicate = (200, json!({ "accepted": true, "id": id, "duplicate": true }));
    assert_eq!(shop.post_valid(&PROVIDERS[3]).await, (202, json!({ "accepted": true, "id": id })));
    assert_eq!(shop.post_valid(&PROVIDERS[3]).await, duplicate, "the event waits");
    let worker = shop.node.client(&shop.ledger);
    let mut work = worker.receive("work", 1, Duration::from_secs(60), Duration::from_secs(10)).await.unwrap();
    let work = work.pop().unwrap();
    assert_eq!(shop.post_valid(&PROVIDERS[3]).await, duplicate, "a worker has leased it");
    let done = json!({
        "delivery_id": work.delivery_id, "fence": work.fence, "response": { "secret": 1 }, "reference": "JE-1",
    });
    let api = worker.authorized().await.unwrap();
    let body = Some(done.to_string().into_bytes());
    let path = "/v1/claims/stripe.event/complete";
    assert_eq!(verdict(api.send(Method::POST, path, body, "application/json").await).0, 200);
    assert_eq!(shop.post_valid(&PROVIDERS[3]).await, duplicate, "the work is done");
    let claims = format!("/v1/claims/{id}");
    eventually("the repeats are counted", async || {
        let found = worker.call(Method::GET, &claims, None).await.unwrap();
        (found["claims"][0]["count"] == 4).then_some(())
    })
    .await;
}

/// MSG-7, MSG-10
#[tokio::test]
async fn member_data_needs_a_valid_whole_body() {
    let shop = Shop::start().await;
    let settings = json!({
        "service": "acme/shop", "source": "till", "event_type": "order.paid", "id": "external",
        "external_id": [{ "pointer": "/sale" }], "data": "members",
        "members": { "amount": { "pointer": "/total/amount" }, "till": { "header": "X-Till" } },
        "verification": { "scheme": "hmac", "header": "X-Signature" }, "secrets": [SECRET],
    });
    let (status, answer) = shop.put_adapter("till", settings).await;
    assert_eq!(status, 201, "{answer}");
    let send = async |body: &str| {
        let headers = vec![("X-Signature", hex_hmac(SECRET, body)), ("X-Till", "7".to_owned())];
        shop.post_hook("acme/till", &headers, body).await
    };
    for (body, refusal) in [
        (r#"{"sale":"s-1","total":{"amount":1,"amount":100000}}"#, (400, "duplicate_member".to_owned())),
        (r#"{"sale":"s-1","total":{"amount":1}} x"#, (400, "malformed".to_owned())),
        (r#"{"sale":"s-1","total":{"amount":1},"#, (400, "malformed".to_owned())),
    ] {
        assert_eq!(send(body).await.refusal(), refusal, "{body}");
    }
    assert_eq!(send(r#"{"sale":"s-1","total":{"amount":1.50},"more":[]}"#).await.status, 202);
    let [sale] = <[DeliveredEvent; 1]>::try_from(shop.delivered().await).unwrap();
    assert_eq!((sale.event_id.as_str(), sale.data.get()), ("s-1", r#"{"amount":1.50,"till":"7"}"#));
}

/// MSG-4, MSG-7: if the signature does not cover the id, an attacker can send a captured request under
/// another id, as another event.
#[tokio::test]
async fn signed_events_need_a_signature_over_the_whole_event() {
    let shop = Shop::with_adapters(json!({})).await;
    assert_eq!(shop.post_captured("d-1").await.status, 202);
    assert_eq!(shop.post_captured("d-2").await.status, 202, "only an unsigned header has the id");
    shop.node.apply(&json!({ "services": [{ "name": "acme/shop", "signed_events": true }] })).await;
    for provider in &PROVIDERS[..3] {
        let (status, answer) = shop.post_valid(provider).await;
        assert_eq!((status, &answer["reason"]), (401, &json!("hmac_missing")), "{}", provider.preset);
        let settings = json!({ "preset": provider.preset, "service": "acme/shop", "secrets": [SECRET] });
        let (status, answer) = shop.put_adapter(provider.preset, settings).await;
        assert_eq!(status, 409, "{answer}");
        let detail = answer["detail"].as_str().unwrap();
        assert!(
            detail.contains("events of acme/shop must be signed, and ") && detail.contains("its provider"),
            "{detail}"
        );
    }
    assert_eq!(shop.post_captured("d-3").await.refusal(), (401, "hmac_missing".to_owned()));
    assert_eq!(shop.post_valid(&PROVIDERS[3]).await.0, 202, "Stripe signs the whole event");
    assert_eq!(shop.delivered().await.len(), 3);
}

/// MSG-7, CLM-20
#[tokio::test]
async fn claim_retention_shorter_than_adapter_tolerance_is_refused() {
    let shop = Shop::start().await;
    let [tolerant, tight, too_tolerant] = [3600, 120, 121].map(|tolerance| {
        json!({
            "preset": "stripe", "service": "acme/shop", "event_type": "order.lost", "secrets": [SECRET],
            "verification": { "scheme": "stripe", "tolerance_seconds": tolerance },
        })
    });
    let path = "/v1/subscriptions/acme/ledger/acme/shop/order.lost";
    let strict = json!({
        "queue": "lost", "dead_letter_queue": "dead", "claim": { "policy": "strict", "keep_seconds": 300 },
    });
    assert_eq!(shop.put_adapter("stripe", tolerant).await.0, 201);
    let (status, answer) = shop.call_as_operator(Method::PUT, path, Some(strict.clone())).await;
    assert_eq!(status, 409, "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains("2 × 3600 s + 60 s = 7260 s"), "{answer}");
    assert_eq!(shop.put_adapter("stripe", tight).await.0, 200);
    assert_eq!(shop.call_as_operator(Method::PUT, path, Some(strict)).await.0, 201);
    let (status, answer) = shop.put_adapter("stripe", too_tolerant).await;
    assert_eq!(status, 409, "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains("2 × 121 s + 60 s = 302 s"), "{answer}");
}

/// PIP-1, MSG-7
#[tokio::test]
async fn guessed_secrets_are_throttled_without_locking_out_providers() {
    let shop = Shop::with_adapters(json!({})).await;
    let telegram = &PROVIDERS[0];
    assert_eq!(shop.post_valid(telegram).await.0, 202);
    for n in 0..bounds::AUTH_FAILURES_MAX {
        let headers = (telegram.headers)(&format!("a guessed secret, number {n}"), TELEGRAM);
        assert_eq!(shop.post_hook("acme/telegram", &headers, TELEGRAM).await.status, 401);
    }
    // Behind a proxy all clients share one address, so a valid request must still be accepted.
    assert_eq!(shop.post_valid(telegram).await.0, 200);
    let guess = (telegram.headers)("another guessed secret", TELEGRAM);
    assert_eq!(
        shop.post_hook("acme/telegram", &guess, TELEGRAM).await.refusal(),
        (429, "auth_throttled".to_owned())
    );
    let unknown_adapter = shop.post_hook("acme/nothing", &vec![], "{}").await;
    assert_eq!(
        unknown_adapter.refusal(),
        (429, "auth_throttled".to_owned()),
        "the answer does not reveal whether the adapter exists"
    );
    for provider in &PROVIDERS[1..] {
        assert_eq!(shop.post_valid(provider).await.0, 202, "{}", provider.preset);
    }
    let stripe = &PROVIDERS[3];
    for _ in 0..=bounds::AUTH_FAILURES_MAX {
        shop.post_hook("acme/stripe", &(stripe.headers)("a secret of another's", STRIPE), STRIPE).await;
    }
    assert_eq!(
        shop.post_valid(stripe).await.0,
        200,
        "wrong signatures are not throttled, because a signature cannot be guessed"
    );
}

/// MSG-7, CLM-1: a provider sends an event to each of its endpoints under the same id. A prefix for each
/// adapter keeps the two apart.
#[tokio::test]
async fn id_prefixes_separate_an_event_of_two_adapters() {
    let shop = Shop::start().await;

    let posted = json!({
        "target": "acme/ledger", "events_of": "acme/ledger", "name": "posted", "queue": "paid",
        "dead_letter_queue": "dead", "claim": { "policy": "ledger" },
    });
    shop.node.apply(&json!({ "subscriptions": [posted] })).await;
    let other_version = STRIPE.replace("\"livemode\":false", "\"livemode\":false,\"api\":2");
    // Without prefixes the first adapter's event takes the id, and other content through the second one is a
    // conflict.
    shop.put_stripe("one", "acme/shop", None).await;
    shop.put_stripe("two", "acme/ledger", None).await;
    assert_eq!(shop.post_stripe_to("one", STRIPE).await, (202, "evt_1NG8Du2eZvKYlo2C".to_owned()));
    let answer = shop.post_hook("acme/two", &stripe_at(SECRET, &other_version, 0), &other_version).await;
    let (accepted, reason) = (answer.document()["accepted"].clone(), answer.document()["reason"].clone());
    assert_eq!((answer.status, accepted, reason), (200, json!(false), json!("conflict")));
    shop.put_stripe("one", "acme/shop", Some("shop:")).await;
    shop.put_stripe("two", "acme/ledger", Some("ledger:")).await;
    for status in [202, 200] {
        let first = shop.post_stripe_to("one", STRIPE).await;
        assert_eq!(first, (status, "shop:evt_1NG8Du2eZvKYlo2C".to_owned()));
        let second = shop.post_stripe_to("two", &other_version).await;
        assert_eq!(second, (status, "ledger:evt_1NG8Du2eZvKYlo2C".to_owned()));
    }
    assert_eq!(shop.delivered().await.len(), 3);
}

/// MSG-7, MSG-4: the signature of Standard Webhooks covers the id, the time and the body.
#[tokio::test]
async fn standard_webhooks_provider_signs_its_whole_event() {
    let shop = Shop::with_settings(json!({ "signed_events": true })).await;
    let secret = shop.shop.hmac_secret.clone();
    let settings = json!({
        "service": "acme/shop", "source": "svix", "event_type": "order.paid", "id": "external",
        "external_id": [{ "header": "webhook-id" }], "timestamp": { "header": "webhook-timestamp" },
        "verification": { "scheme": "standard_webhooks", "tolerance_seconds": 120 }, "secrets": [secret],
    });
    assert_eq!(shop.put_adapter("svix", settings).await.0, 201);
    assert_eq!(shop.post_svix("msg_1", "msg_1", 0).await.0, 202);
    let retry = shop.post_svix("msg_1", "msg_1", 10).await;
    assert_eq!(retry.0, 200, "a retry with a new signature is a duplicate");
    let other = shop.post_svix("msg_2", "msg_1", 0).await;
    assert_eq!(other, (401, "unauthenticated".to_owned()), "the signature of another message");
    let late = shop.post_svix("msg_3", "msg_3", -240).await;
    assert_eq!(late, (401, "timestamp_out_of_window".to_owned()));
    let [event] = <[DeliveredEvent; 1]>::try_from(shop.delivered().await).unwrap();
    assert_eq!((event.event_id.as_str(), data(&event)), ("msg_1", json!({ "amount": 10 })));
    assert!(event.timestamp.ends_with(".000Z"), "the signed time has whole seconds: {}", event.timestamp);
}

/// MSG-7
#[tokio::test]
async fn adapter_reads_base64_signature_and_type_suffix() {
    let shop = Shop::start().await;
    let settings = json!({
        "service": "acme/shop", "source": "ci", "event_type": "order",
        "event_type_suffix": { "pointer": "/kind" }, "external_id": [{ "pointer": "/build/id" }],
        "verification": { "scheme": "hmac", "header": "X-Signature", "prefix": "v0=", "encoding": "base64" },
        "secrets": ["the provider's older secret", SECRET],
    });
    assert_eq!(shop.put_adapter("ci", settings).await.0, 201);
    let send = async |body: &str, prefix: &str| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
        let signature = STANDARD.encode(hmac::sign(&key, body.as_bytes()));
        shop.post_hook("acme/ci", &vec![("x-signature", format!("{prefix}{signature}"))], body).await
    };
    let paid = r#"{"kind":"paid","build":{"id":7}}"#;
    assert_eq!(send(paid, "v0=").await.status, 202);
    assert_eq!(send(paid, "v0=").await.status, 200);
    assert_eq!(send(paid, "").await.refusal(), (401, "unauthenticated".to_owned()));
    for (kind, status, reason) in
        [("lost", 404, "route-missing"), ("none", 403, "acl-deny"), ("a b", 400, "invalid_name")]
    {
        let body = paid.replace("paid", kind).replace('7', "8");
        assert_eq!(send(&body, "v0=").await.refusal(), (status, reason.to_owned()));
    }
    let [event] = <[DeliveredEvent; 1]>::try_from(shop.delivered().await).unwrap();
    assert_eq!((event.event_type.as_str(), event.event_id), ("order.paid", python_id("ci", "7", paid)));
}

/// MSG-7: the requests by which a provider first tests the endpoint.
#[tokio::test]
async fn initial_provider_requests_are_ordinary_events() {
    let shop = Shop::with_adapters(json!({})).await;
    let [_, calendar, github, _] = &PROVIDERS;
    let mut sync = (calendar.headers)(SECRET, "");
    for (name, value) in &mut sync {
        match *name {
            "X-Goog-Resource-State" => *value = "sync".to_owned(),
            "X-Goog-Message-Number" => *value = "1".to_owned(),
            _ => {}
        }
    }
    let zen =
        r#"{"zen":"Design for failure.","hook_id":292430182,"hook":{"type":"Repository","events":["push"]}}"#;
    let mut ping = (github.headers)(SECRET, zen);
    ping[1].1 = "0b989ba4-242f-11e5-81e1-c7b6966d2516".to_owned();
    ping[2].1 = "ping".to_owned();
    for status in [202, 200] {
        assert_eq!(shop.post_hook("acme/google-calendar", &sync, "").await.status, status);
        assert_eq!(shop.post_hook("acme/github", &ping, zen).await.status, status);
    }
    assert_eq!(shop.post_valid(calendar).await.0, 202, "the first notification is another event");
    let [first, pinged, next] = <[DeliveredEvent; 3]>::try_from(shop.delivered().await).unwrap();
    assert_eq!(
        (&data(&first)["resourceState"], &data(&first)["messageNumber"]),
        (&json!("sync"), &json!("1"))
    );
    assert_eq!(
        (data(&pinged)["zen"].as_str(), pinged.metadata.unwrap().get()),
        (Some("Design for failure."), r#"{"githubEvent":"ping"}"#)
    );
    assert_eq!(data(&next)["resourceState"], "exists");
}
