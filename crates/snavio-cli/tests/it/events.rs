//! Native events (MSG-4, MSG-5, PIP-13): the service that owns an event type publishes it, and the gateway
//! delivers it to every subscription.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::signature::webhook;
use snavio_model::time::Timestamp;
use snavio_sdk::{Credentials, DeliveredEvent, Delivery, Event};

use crate::node::{Launch, Node, drain, new_id, seconds_from_now, verdict};
use crate::patience::eventually;
use crate::people::issue;
use crate::shell::Shell;
use crate::wire::{Answered, http, metric, post_json};

/// `acme/shop` publishes `order.paid` to `acme/ledger`, and `order.lost` without a subscription. `zeta/app`
/// belongs to another tenant.
pub(crate) struct Shop {
    pub(crate) node: Node,
    pub(crate) shop: Credentials,
    pub(crate) ledger: Credentials,
    app: Credentials,
    pub(crate) token: String,
}

const TYPES: &str = "/v1/event-types/acme/shop";

fn subscription(target: &str, name: &str, queue: &str) -> Value {
    json!({
        "target": target, "events_of": "acme/shop", "name": name, "queue": queue, "dead_letter_queue": "dead",
        "claim": { "policy": "ledger" },
    })
}

fn event(id: &str, amount: u32) -> Value {
    json!({ "eventId": id, "eventType": "order.paid", "data": { "amount": amount } })
}

impl Shop {
    pub(crate) async fn start() -> Self {
        Self::with_settings(json!({})).await
    }

    /// With these settings of service `acme/shop`.
    pub(crate) async fn with_settings(mut settings: Value) -> Self {
        let node = Node::start();
        settings["name"] = json!("acme/shop");
        let registry = json!({
            "tenants": [{ "name": "acme" }, { "name": "zeta" }],
            "services": [settings, { "name": "acme/ledger" }, { "name": "zeta/app" }],
            "event_types": [
                { "owner": "acme/shop", "name": "order.paid", "version": "2.1" },
                { "owner": "acme/shop", "name": "order.lost" },
                { "owner": "acme/ledger", "name": "posted" },
            ],
            "subscriptions": [subscription("acme/ledger", "order.paid", "paid")],
        });
        let [shop, ledger, app] = <[Credentials; 3]>::try_from(node.apply(&registry).await).unwrap();
        let token = node.token(&shop).await;
        Self { node, shop, ledger, app, token }
    }

    pub(crate) async fn post(&self, event: &Value) -> (u16, Value) {
        self.post_text(event.to_string()).await
    }

    async fn post_text(&self, body: String) -> (u16, Value) {
        let answer = Answered::to(post_json(&self.node, "/v1/events", &self.token, body)).await;
        (answer.status, answer.document())
    }

    /// Sends with the headers of Standard Webhooks, signed some seconds from now.
    async fn post_signed(
        &self,
        path: &str,
        id: &str,
        body: String,
        by: &Credentials,
        seconds: i64,
    ) -> Answered {
        let at = Timestamp::parse(&seconds_from_now(seconds)).unwrap().0.div_euclid(1000);
        let signature = webhook::sign(&by.secret().unwrap(), id, at, body.as_bytes());
        let request = post_json(&self.node, path, &self.token, body)
            .header("webhook-id", id)
            .header("webhook-timestamp", at.to_string())
            .header("webhook-signature", signature);
        Answered::to(request).await
    }

    async fn refusal(&self, event: &Value) -> (u16, String) {
        let (status, answer) = self.post(event).await;
        (status, answer["reason"].as_str().unwrap_or_default().to_owned())
    }

    pub(crate) async fn delivered(&self) -> Vec<DeliveredEvent> {
        let deliveries = drain(&self.node.client(&self.ledger), "paid").await;
        deliveries
            .iter()
            .map(|delivery| delivery.message.as_event().expect("it is an event").clone())
            .collect()
    }

    pub(crate) async fn call_as_operator(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let body = body.map(|body| body.to_string().into_bytes());
        verdict(self.node.operator().send(method, path, body, "application/json").await)
    }

    /// Waits for the first telemetry record of a type that the service sees.
    pub(crate) async fn first_record(&self, service: &Credentials, kind: &str) -> Value {
        let path = format!("/v1/telemetry?type={kind}");
        let client = self.node.client(service);
        eventually(kind, async || {
            let page = client.call(Method::GET, &path, None).await.expect("telemetry can be read");
            page["items"].as_array().and_then(|items| items.first()).cloned()
        })
        .await
    }
}

/// MSG-5, MSG-10, MSG-11, TEL-1
#[tokio::test]
async fn event_is_delivered_in_native_form_with_defaults() {
    let shop = Shop::start().await;
    let least = r#"{"eventId":"Order 7","eventType":"order.paid","payload":{ "amount": 10.00 }}"#;
    let (status, answer) = shop.post_text(least.to_owned()).await;
    assert_eq!(
        (status, &answer["id"], &answer["path"]),
        (202, &json!("Order 7"), &json!("slow")),
        "{answer}"
    );
    let id = new_id();
    let whole = json!({
        "eventId": id.to_uppercase(), "eventType": "order.paid", "correlationId": "journey-1",
        "timestamp": "1999-12-31T23:00:00.5+01:00", "version": "3.0", "source": "shop", "data": [1],
        "metadata": { "userId": "u-1" }, "traceId": "t", "retryCount": 4,
    });
    assert_eq!(shop.post(&whole).await.0, 202);
    let [first, second] = <[DeliveredEvent; 2]>::try_from(shop.delivered().await).unwrap();
    assert_eq!((first.event_id.as_str(), first.event_type.as_str()), ("Order 7", "order.paid"));
    assert_eq!((first.version.as_str(), first.source.as_str()), ("2.1", "acme/shop"));
    assert_eq!(first.data.get(), r#"{ "amount": 10.00 }"#, "the data is unchanged");
    assert_eq!((&first.timestamp, &first.metadata.is_none()), (&first.received_at, &true));
    assert_eq!(json!(first.correlation_id), answer["correlation_id"]);
    assert_eq!((second.event_id, second.correlation_id.as_str()), (id, "journey-1"));
    assert_eq!(second.timestamp, "1999-12-31T23:00:00.5+01:00");
    assert_eq!((second.version.as_str(), second.source.as_str()), ("3.0", "acme/shop"));
    assert_eq!(second.metadata.unwrap().get(), r#"{"userId":"u-1"}"#);
    let record = shop.first_record(&shop.shop, "snavio.event.delivered").await;
    assert_eq!(
        (&record["event_id"], &record["event_type"], &record["source"]),
        (&json!("Order 7"), &json!("order.paid"), &json!("acme/shop"))
    );
    assert!(record.get("command_id").is_none() && record.get("target").is_none(), "{record}");
    let accepted = r#"snavio_events_total{verdict="accepted",path="slow",reason=""}"#;
    assert_eq!(metric(&shop.node, accepted).await, Some(2.0));
}

/// CLM-5, CLM-8, CLM-14, MSG-9
#[tokio::test]
async fn repeated_event_is_duplicate_and_changed_content_a_conflict() {
    let shop = Shop::start().await;
    assert_eq!(shop.post(&event("e-1", 10)).await.0, 202);
    let mut again = event("e-1", 10);
    again["metadata"] = json!({ "requestId": "r-2" });
    again["correlationId"] = json!("another journey");
    again["data"] = json!({ "amount": 10.0 });
    let (status, answer) = shop.post(&again).await;
    assert_eq!((status, &answer["duplicate"]), (200, &json!(true)), "{answer}");
    let (status, answer) = shop.post(&event("e-1", 11)).await;
    assert_eq!((status, &answer["reason"]), (409, &json!("conflict")), "{answer}");
    let deliveries = shop.delivered().await;
    assert_eq!(deliveries.len(), 1, "delivered once");

    let conflict = answer["conflict_id"].as_i64().unwrap();
    let books =
        shop.node.api().with_token(&issue(&shop.node, "Ada", "accounting-ops", Some("acme")).await.token);
    let shown = books.call(Method::GET, &format!("/v1/conflicts/{conflict}"), None).await.unwrap();
    assert_eq!(shown["destination"], "acme/ledger:acme/shop:order.paid");
    assert_eq!(
        (&shown["original"]["eventId"], &shown["original"]["data"]),
        (&json!("e-1"), &json!({ "amount": 10 }))
    );
    assert_eq!(shown["conflicting"]["data"], json!({ "amount": 11 }));
    assert_eq!(shown["differences"][0]["pointer"], "/amount");
    let letters = shop.node.client(&shop.ledger).call(Method::GET, "/v1/dead-letters", None).await.unwrap();
    let letter = letters["items"][0]["id"].as_i64().unwrap();
    let letter = format!("/v1/dead-letters/{letter}");
    let letter = shop.node.client(&shop.ledger).call(Method::GET, &letter, None).await.unwrap();
    assert_eq!(letter["content"]["eventType"], "order.paid", "{letter}");
    let duplicate = shop.first_record(&shop.shop, "snavio.event.duplicate").await;
    assert_eq!((&duplicate["event_id"], &duplicate["dedupe_mode"]), (&json!("e-1"), &json!("ledger")));
    let record = shop.first_record(&shop.ledger, "snavio.claim.conflict").await;
    assert_eq!((&record["event_id"], &record["event_type"]), (&json!("e-1"), &json!("order.paid")));
}

/// MSG-5, PIP-13, PIP-14, REG-8
#[tokio::test]
async fn service_publishes_only_its_own_registered_types() {
    let shop = Shop::start().await;
    for (member, value, status, reason) in [
        ("eventType", json!("order.unknown"), 403, "acl-deny"),
        ("eventType", json!("posted"), 403, "acl-deny"),
        ("eventType", json!("order.lost"), 404, "route-missing"),
        ("source", json!("acme/ledger"), 400, "source_present"),
        ("source", json!("zeta/shop"), 400, "source_present"),
        ("source", json!("Shop"), 400, "invalid_name"),
        ("hmac", json!("x"), 400, "unknown_field"),
        ("replayed", json!(true), 400, "reserved_field"),
        ("payload", json!(1), 400, "malformed"),
        ("version", json!("1"), 400, "malformed"),
        ("eventId", json!(""), 400, "invalid_id"),
        ("eventType", json!("a b"), 400, "invalid_name"),
        ("timestamp", json!("today"), 400, "invalid_timestamp"),
    ] {
        let mut event = event(&new_id(), 1);
        event[member] = value;
        assert_eq!(shop.refusal(&event).await, (status, reason.to_owned()), "{event}");
    }
    let twice = r#"{"eventId":"x","eventId":"y","eventType":"order.paid","data":1}"#;
    assert_eq!(shop.post_text(twice.to_owned()).await.1["reason"], "duplicate_member");
    assert!(shop.delivered().await.is_empty());
    let failed = shop.first_record(&shop.shop, "snavio.event.failed").await;
    assert_eq!((&failed["reason"], &failed["event_type"]), (&json!("acl-deny"), &json!("order.unknown")));
    shop.first_record(&shop.shop, "snavio.event.invalid").await;
    assert_eq!(metric(&shop.node, "snavio_foreign_source_total").await, Some(2.0));
    shop.node.items("/v1/audit", |all| all.iter().any(|action| action["action"] == "event.send")).await;
}

/// PIP-13, REG-8, QUA-5
#[tokio::test]
async fn foreign_subscription_needs_a_grant_at_registration_and_use() {
    let shop = Shop::start().await;
    let path = "/v1/subscriptions/zeta/app/acme/shop/order.lost";
    let admin =
        shop.node.api().with_token(&issue(&shop.node, "Zoe", "tenant-admin", Some("zeta")).await.token);
    let body = json!({ "queue": "lost", "dead_letter_queue": "dead" });
    let subscribe = async |path: &str| {
        let body = body.to_string().into_bytes();
        verdict(admin.send(Method::PUT, path, Some(body), "application/json").await)
    };
    let (status, answer) = subscribe(path).await;
    assert_eq!((status, &answer["reason"]), (409, &json!("registry_conflict")));
    let detail = answer["detail"].as_str().unwrap();
    assert!(detail.contains("acme/shop has not granted its events order.lost to zeta/app"), "{detail}");
    let unknown = subscribe("/v1/subscriptions/zeta/app/acme/none/order.lost").await.1;
    assert_eq!(
        unknown["detail"].as_str().unwrap().replace("none", "shop"),
        detail,
        "the answer does not reveal whether the source exists"
    );

    let grant = json!({ "source": "zeta/app", "target": "acme/shop", "name": "order.lost" });
    assert_eq!(shop.call_as_operator(Method::PUT, "/v1/grants", Some(grant.clone())).await.0, 201);
    let (status, shown) = subscribe(path).await;
    assert_eq!(
        (status, &shown["kind"], &shown["events_of"]),
        (201, &json!("subscription"), &json!("acme/shop"))
    );
    let mut lost = event("lost-1", 1);
    lost["eventType"] = json!("order.lost");
    assert_eq!(shop.post(&lost).await.0, 202);
    let received = drain(&shop.node.client(&shop.app), "lost").await;
    assert_eq!(received.iter().map(|delivery| delivery.message.id()).collect::<Vec<_>>(), [Some("lost-1")]);

    assert_eq!(shop.call_as_operator(Method::DELETE, "/v1/grants", Some(grant.clone())).await.0, 200);
    lost["eventId"] = json!("lost-2");
    assert_eq!(shop.refusal(&lost).await, (404, "route-missing".to_owned()));
    assert_eq!(shop.call_as_operator(Method::PUT, "/v1/grants", Some(grant)).await.0, 201);
    assert_eq!(shop.post(&lost).await.0, 202, "a refused event left no claim");
}

/// CLM-8, CLM-14, QUA-5: a conflict under an event's id does not show the event to a tenant that subscribed
/// after it.
#[tokio::test]
async fn later_subscriber_does_not_see_earlier_events() {
    let shop = Shop::start().await;
    assert_eq!(shop.post(&event("order-1", 1471147114)).await.0, 202);
    let grant = json!({ "source": "zeta/app", "target": "acme/shop", "name": "order.paid" });
    assert_eq!(shop.call_as_operator(Method::PUT, "/v1/grants", Some(grant)).await.0, 201);
    shop.node.apply(&json!({ "subscriptions": [subscription("zeta/app", "order.paid", "bought")] })).await;
    let (status, answer) = shop.post(&event("order-1", 1)).await;
    assert_eq!(status, 409, "{answer}");
    for (tenant, is_shown) in [("acme", true), ("zeta", false)] {
        let token = issue(&shop.node, tenant, "accounting-ops", Some(tenant)).await.token;
        let books = shop.node.api().with_token(&token);
        let conflict = eventually("the conflict is listed", async || {
            let (_, page) = verdict(books.send(Method::GET, "/v1/conflicts", None, "").await);
            page["items"][0]["conflictId"].as_i64()
        });
        let path = format!("/v1/conflicts/{}", conflict.await);
        let (status, whole) = verdict(books.send(Method::GET, &path, None, "").await);
        assert_eq!((status, whole.to_string().contains("1471147114")), (200, is_shown), "{tenant}: {whole}");
        assert_eq!(whole["differences"].as_array().map(Vec::len), Some(usize::from(is_shown)), "{whole}");
        assert_eq!(whole["conflicting"]["data"]["amount"], 1, "{whole}");
    }
}

/// REG-1, REG-4, REG-24, PIP-13
#[tokio::test]
async fn types_and_subscriptions_are_registered_like_everything_else() {
    let shop = Shop::start().await;
    let of_type = format!("{TYPES}/order.sent");
    let (status, shown) =
        shop.call_as_operator(Method::PUT, &of_type, Some(json!({ "version": "1.2" }))).await;
    let expected =
        json!({ "kind": "event_type", "owner": "acme/shop", "name": "order.sent", "version": "1.2" });
    assert_eq!((status, &shown), (201, &expected));
    assert_eq!(shop.call_as_operator(Method::GET, &of_type, None).await, (200, expected));
    assert_eq!(
        shop.call_as_operator(Method::PUT, &of_type, Some(json!({}))).await.1["version"],
        "1.0",
        "by default"
    );
    let (status, answer) =
        shop.call_as_operator(Method::PUT, &of_type, Some(json!({ "version": "1" }))).await;
    assert_eq!((status, &answer["reason"]), (400, &json!("invalid_request")), "{answer}");

    let own = "/v1/subscriptions/acme/ledger/acme/shop/order.paid";
    assert_eq!(shop.call_as_operator(Method::GET, own, None).await.1["queue"], "paid");
    let second = json!({ "queue": "mine", "dead_letter_queue": "dead" });
    let (status, answer) = shop
        .call_as_operator(Method::PUT, "/v1/subscriptions/acme/shop/acme/shop/order.none", Some(second))
        .await;
    assert_eq!(status, 409);
    assert!(answer["detail"].as_str().unwrap().contains("order.none is not registered"), "{answer}");
    let contradiction = json!({ "queue": "q", "dead_letter_queue": "d", "events_of": "acme/ledger" });
    assert_eq!(shop.call_as_operator(Method::PUT, own, Some(contradiction)).await.0, 400);

    let (status, answer) = shop.call_as_operator(Method::DELETE, &format!("{TYPES}/order.paid"), None).await;
    assert_eq!(status, 409, "{answer}");
    assert_eq!(shop.post(&event("e-1", 1)).await.0, 202);
    let (status, answer) = shop.call_as_operator(Method::DELETE, own, None).await;
    assert_eq!(status, 409, "the deliveries in its queue would be stranded: {answer}");
    assert_eq!(shop.delivered().await.len(), 1);
    assert_eq!(shop.call_as_operator(Method::DELETE, own, None).await.0, 200);
    assert_eq!(shop.refusal(&event("e-2", 1)).await, (404, "route-missing".to_owned()));
    assert_eq!(shop.call_as_operator(Method::DELETE, &format!("{TYPES}/order.paid"), None).await.0, 200);
    assert_eq!(shop.refusal(&event("e-2", 1)).await, (403, "acl-deny".to_owned()));

    let version = shop.node.get("/v1/registry?limit=1").await["version"].as_i64().unwrap();
    let back = json!({ "version": version - 2, "why": "they are needed" });
    assert_eq!(shop.call_as_operator(Method::POST, "/v1/registry/rollback", Some(back)).await.0, 200);
    assert_eq!(shop.post(&event("e-2", 1)).await.0, 202, "type and subscription are restored");
}

/// The statuses of a batch's entries.
fn result_statuses(answer: &Answered) -> Vec<Value> {
    let results = answer.document()["results"].as_array().cloned().unwrap_or_default();
    results.into_iter().map(|result| result["status"].clone()).collect()
}

/// MSG-4, PIP-1
#[tokio::test]
async fn required_signature_missing_or_wrong_is_refused() {
    let shop = Shop::with_settings(json!({ "signed_events": true })).await;
    assert_eq!(shop.refusal(&event("e-1", 1)).await, (401, "hmac_missing".to_owned()));
    for (id, by, seconds, status, reason) in [
        ("e-1", &shop.ledger, 0, 401, "hmac_invalid"),
        ("e-2", &shop.shop, 0, 401, "hmac_invalid"),
        ("e-1", &shop.shop, -90, 401, "timestamp_out_of_window"),
        ("e-1", &shop.shop, 90, 401, "timestamp_out_of_window"),
        ("e-1", &shop.shop, 0, 202, ""),
    ] {
        let body = event("e-1", 1).to_string();
        let answer = shop.post_signed("/v1/events", id, body, by, seconds).await;
        assert_eq!(answer.refusal(), (status, reason.to_owned()), "{id} {seconds}");
    }
    assert_eq!(shop.delivered().await.len(), 1);

    let batch = || format!("[{},{}]", event("e-3", 1), event("e-4", 1));
    let unsigned = Answered::to(post_json(&shop.node, "/v1/events/batch", &shop.token, batch())).await;
    assert_eq!(result_statuses(&unsigned), [401, 401]);
    let forged = shop.post_signed("/v1/events/batch", "batch-1", batch(), &shop.ledger, 0).await;
    assert_eq!(forged.refusal(), (401, "hmac_invalid".to_owned()));
    let late = shop.post_signed("/v1/events/batch", "batch-1", batch(), &shop.shop, -90).await;
    assert_eq!(late.refusal(), (401, "timestamp_out_of_window".to_owned()));
    let signed = shop.post_signed("/v1/events/batch", "batch-1", batch(), &shop.shop, 0).await;
    assert_eq!(result_statuses(&signed), [202, 202], "{}", signed.text);

    assert_eq!(shop.node.get("/v1/tenants/acme/services/shop").await["signed_events"], true);
    assert_eq!(
        shop.call_as_operator(Method::PUT, "/v1/tenants/acme/services/shop", Some(json!({}))).await.0,
        200
    );
    assert_eq!(shop.post(&event("e-5", 1)).await.0, 202, "a signature is no longer required");
    let forged = shop.post_signed("/v1/events", "e-6", event("e-6", 1).to_string(), &shop.ledger, 0).await;
    assert_eq!(forged.refusal(), (401, "hmac_invalid".to_owned()), "an optional signature must be valid");
}

/// PIP-8, MSG-10
#[tokio::test]
async fn bad_event_in_a_batch_affects_no_other() {
    let shop = Shop::start().await;
    let entries =
        [event("e-1", 1), json!({ "eventId": "e-2" }), event("e-1", 1), event("e-3", 1), event("e-1", 2)];
    let body = json!(entries).to_string();
    let answer = Answered::to(post_json(&shop.node, "/v1/events/batch", &shop.token, body)).await;
    let results = answer.document()["results"].as_array().cloned().unwrap();
    let verdicts: Vec<_> =
        results.iter().map(|result| (result["status"].clone(), result["id"].clone())).collect();
    let expected = [(202, "e-1"), (400, "e-2"), (200, "e-1"), (202, "e-3"), (409, "e-1")];
    assert_eq!(verdicts, expected.map(|(status, id)| (json!(status), json!(id))));
    let lines = format!("{}\n{{\n{}\n", event("e-4", 1), event("e-5", 1));
    let url = format!("{}/v1/events/batch", shop.node.url());
    let request = http(&shop.node).post(url).bearer_auth(&shop.token);
    let answer = Answered::to(request.header("content-type", "application/x-ndjson").body(lines)).await;
    let statuses: Vec<_> = answer
        .text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["status"].clone())
        .collect();
    assert_eq!(statuses, [202, 400, 202]);
    // The gateway settles the lines of a stream concurrently, so their order may change.
    let mut delivered: Vec<_> = shop.delivered().await.into_iter().map(|event| event.event_id).collect();
    delivered.sort_unstable();
    assert_eq!(delivered, ["e-1", "e-3", "e-4", "e-5"]);
}

/// PIP-2: the memory of recent messages recognizes only signed events as copies.
#[tokio::test]
async fn claimless_route_recognizes_signed_but_not_unsigned_copies() {
    let shop = Shop::start().await;
    let mut claimless = subscription("acme/ledger", "order.paid", "paid");
    claimless["claim"] = json!({ "policy": "none" });
    let path = "/v1/subscriptions/acme/ledger/acme/shop/order.paid";
    assert_eq!(shop.call_as_operator(Method::PUT, path, Some(claimless)).await.0, 200);
    for amount in [1, 1, 2] {
        assert_eq!(shop.post(&event("e-1", amount)).await.0, 202);
    }
    assert_eq!(shop.delivered().await.len(), 3);
    let at = Timestamp::parse(&seconds_from_now(0)).unwrap().0.div_euclid(1000);
    let body = event("e-2", 1).to_string();
    let signature = webhook::sign(&shop.shop.secret().unwrap(), "e-2", at, body.as_bytes());
    for status in [202, 200] {
        let request = post_json(&shop.node, "/v1/events", &shop.token, body.clone())
            .header("webhook-id", "e-2")
            .header("webhook-timestamp", at.to_string())
            .header("webhook-signature", &signature);
        assert_eq!(Answered::to(request).await.status, status);
    }
}

/// INT-1, CLM-10
#[tokio::test]
async fn clients_and_the_command_line_send_events() {
    let shop = Shop::with_settings(json!({ "signed_events": true })).await;
    let mut sent = Event::new("order.paid".parse().unwrap(), br#"{"amount":1}"#.to_vec());
    sent.metadata = Some(br#"{"userId":"u-1"}"#.to_vec());
    let client = shop.node.client(&shop.shop);
    assert_eq!(client.send_event(&sent).await.unwrap().status, 202);
    assert_eq!(client.send_event(&sent).await.unwrap().status, 200, "a retry is a duplicate");

    let shell = Shell::at(&shop.node);
    let file = shell.write("shop.json", &serde_json::to_string(&shop.shop).unwrap());
    let words = [
        "emit",
        "-c",
        &file,
        "--event",
        "order.paid",
        "--id",
        "Order 8",
        r#"{"amount":8}"#,
        "--event-version",
        "1.1",
        "--metadata",
        "{}",
        "--timestamp",
        "2020-01-01T00:00:00Z",
        "--output",
        "json",
    ];
    let ended = shell.run_words(&words);
    assert_eq!((ended.code, &ended.json()["id"]), (Some(0), &json!("Order 8")), "{ended:?}");
    for wrong in [
        ["emit", "-c", &file, "--event", "order.paid"].as_slice(),
        &["emit", "-c", &file, "--event", "order.paid", "{}", "--target", "acme/ledger"],
        &["emit", "-c", &file, "{}"],
        &["emit", "-c", &file, "--event", "order.paid", "{}", "--id", "é"],
    ] {
        assert_eq!(shell.run_words(wrong).code, Some(2), "{wrong:?}");
    }
    let [first, second] = <[DeliveredEvent; 2]>::try_from(shop.delivered().await).unwrap();
    assert_eq!(
        (first.event_id.as_str(), first.metadata.unwrap().get()),
        (sent.id.as_str(), r#"{"userId":"u-1"}"#)
    );
    assert_eq!((second.event_id.as_str(), second.version.as_str()), ("Order 8", "1.1"));
    let rows = shell.run("get subscriptions --output json").json();
    assert_eq!(rows[0]["events_of"], "acme/shop");
    assert_eq!(shell.run("get event-types --output json").json().as_array().unwrap().len(), 3);

    let ledger = shell.write("ledger.json", &serde_json::to_string(&shop.ledger).unwrap());
    assert_eq!(
        client.send_event(&Event::new("order.paid".parse().unwrap(), b"3".to_vec())).await.unwrap().status,
        202
    );
    let received = shell.run_words(&["receive", "-c", &ledger, "paid", "--output", "json"]).json();
    assert_eq!(
        (&received[0]["event"], &received[0]["source"]),
        (&json!("order.paid 3"), &json!("acme/shop"))
    );
}

/// QUA-1, DLV-3
#[tokio::test]
async fn event_outlives_its_node() {
    let mut shop = Shop::start().await;
    assert_eq!(shop.post(&event("e-1", 1)).await.0, 202);
    shop.node.kill();
    shop.node.restart(&Launch::default());
    assert_eq!(shop.post(&event("e-1", 1)).await.0, 200, "its claim survives the restart");
    let ledger = shop.node.client(&shop.ledger);
    let received: Vec<Delivery> =
        ledger.receive("paid", 10, Duration::from_secs(30), Duration::from_secs(5)).await.unwrap();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].message.as_event().unwrap().data.get(), r#"{"amount":1}"#);
}
