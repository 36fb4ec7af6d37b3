//! One event for several subscriptions (PIP-13): the gateway accepts it as a whole, and claims and delivers
//! it for each subscription.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::bounds;
use snavio_model::signature::webhook;
use snavio_model::time::Timestamp;
use snavio_sdk::Credentials;

use crate::node::{Launch, Node, drain, seconds_from_now, verdict};
use crate::patience::eventually;
use crate::wire::{Answered, metric, post_json};

/// `acme/shop` publishes `order.paid` to `acme/ledger`, `acme/mail` and, after its subscription, `zeta/app`.
struct Shop {
    node: Node,
    shop: Credentials,
    ledger: Credentials,
    mail: Credentials,
    app: Credentials,
    token: String,
}

fn subscription(policy: &str) -> Value {
    json!({ "queue": "paid", "dead_letter_queue": "dead", "claim": { "policy": policy } })
}

impl Shop {
    async fn start(launch: &Launch) -> Self {
        let node = Node::launch(launch);
        let services =
            ["acme/shop", "acme/ledger", "acme/mail", "zeta/app"].map(|name| json!({ "name": name }));
        let registry = json!({
            "tenants": [{ "name": "acme" }, { "name": "zeta" }],
            "services": services,
            "event_types": [{ "owner": "acme/shop", "name": "order.paid" }],
            "grants": [{ "source": "zeta/app", "target": "acme/shop", "name": "order.paid" }],
        });
        let [shop, ledger, mail, app] = <[Credentials; 4]>::try_from(node.apply(&registry).await).unwrap();
        let token = node.token(&shop).await;
        let shop = Self { node, shop, ledger, mail, app, token };
        shop.subscribe("acme/ledger", "paid", "ledger").await;
        shop.subscribe("acme/mail", "mails", "event").await;
        shop
    }

    async fn subscribe(&self, target: &str, queue: &str, policy: &str) {
        let mut body = subscription(policy);
        body["queue"] = json!(queue);
        let path = format!("/v1/subscriptions/{target}/acme/shop/order.paid");
        assert!([200, 201].contains(&self.call_as_operator(Method::PUT, &path, body).await.0));
    }

    async fn call_as_operator(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let body = Some(body.to_string().into_bytes());
        verdict(self.node.operator().send(method, path, body, "application/json").await)
    }

    async fn post(&self, id: &str, amount: u32) -> (u16, Vec<(String, String)>) {
        let event = json!({ "eventId": id, "eventType": "order.paid", "data": { "amount": amount } });
        verdicts_of(&Answered::to(post_json(&self.node, "/v1/events", &self.token, event.to_string())).await)
    }

    /// Posts a batch of `order.lost` events.
    async fn post_lost_events(&self, count: usize) -> Answered {
        let events: Vec<_> = (0..count)
            .map(|n| json!({ "eventId": format!("lost-{n}"), "eventType": "order.lost", "data": n }))
            .collect();
        let body = Value::from(events).to_string();
        Answered::to(post_json(&self.node, "/v1/events/batch", &self.token, body)).await
    }

    async fn received(&self, service: &Credentials, queue: &str) -> Vec<String> {
        let deliveries = drain(&self.node.client(service), queue).await;
        deliveries.iter().filter_map(|delivery| delivery.message.id().map(str::to_owned)).collect()
    }
}

/// The status of an answer, and the verdict of each subscription with its service, sorted.
fn verdicts_of(answer: &Answered) -> (u16, Vec<(String, String)>) {
    let document = answer.document();
    let subscriptions = document["subscriptions"].as_array().into_iter().flatten();
    let mut verdicts: Vec<_> = subscriptions
        .map(|subscription| {
            let [destination, verdict] =
                ["destination", "verdict"].map(|name| subscription[name].as_str().unwrap_or_default());
            (destination.split(':').next().unwrap_or_default().to_owned(), verdict.to_owned())
        })
        .collect();
    verdicts.sort_unstable();
    (answer.status, verdicts)
}

/// A signed event that an attacker captured and sends again.
struct Captured {
    id: String,
    event: String,
    at: String,
    signature: String,
}

impl Captured {
    fn of(shop: &Shop, id: &str) -> Self {
        let event = json!({ "eventId": id, "eventType": "order.paid", "data": {} }).to_string();
        let at = Timestamp::parse(&seconds_from_now(0)).unwrap().0.div_euclid(1000);
        let signature = webhook::sign(&shop.shop.secret().unwrap(), id, at, event.as_bytes());
        Self { id: id.to_owned(), event, at: at.to_string(), signature }
    }

    async fn send(&self, shop: &Shop) -> Answered {
        let request = post_json(&shop.node, "/v1/events", &shop.token, self.event.clone())
            .header("webhook-id", &self.id)
            .header("webhook-timestamp", &self.at)
            .header("webhook-signature", &self.signature);
        Answered::to(request).await
    }
}

fn expected_verdicts<const N: usize>(verdicts: [(&str, &str); N]) -> Vec<(String, String)> {
    verdicts.map(|(service, verdict)| (service.to_owned(), verdict.to_owned())).into()
}

/// PIP-13, CLM-1, CLM-8
#[tokio::test]
async fn event_is_delivered_once_to_each_subscription() {
    let shop = Shop::start(&Launch::default()).await;
    let (status, verdicts) = shop.post("e-1", 1).await;
    assert_eq!(
        (status, verdicts),
        (202, expected_verdicts([("acme/ledger", "accepted"), ("acme/mail", "accepted")]))
    );
    let (status, verdicts) = shop.post("e-1", 1).await;
    assert_eq!(
        (status, verdicts),
        (200, expected_verdicts([("acme/ledger", "duplicate"), ("acme/mail", "duplicate")]))
    );
    assert_eq!(
        shop.post("e-1", 2).await,
        (409, Vec::new()),
        "other content is refused for all subscriptions"
    );

    shop.subscribe("zeta/app", "orders", "seen").await;
    let (status, verdicts) = shop.post("e-1", 1).await;
    let expected = [("acme/ledger", "duplicate"), ("acme/mail", "duplicate"), ("zeta/app", "accepted")];
    assert_eq!(
        (status, verdicts),
        (202, expected_verdicts(expected)),
        "the later subscription gets the repeated event"
    );
    assert_eq!(shop.post("e-1", 1).await.0, 200);
    for (service, queue) in [(&shop.ledger, "paid"), (&shop.mail, "mails"), (&shop.app, "orders")] {
        assert_eq!(shop.received(service, queue).await, ["e-1"], "{queue}");
    }
}

/// PIP-13: the memory of recent messages recognizes a signed event, but the gateway still settles it for a
/// subscription made since then.
#[tokio::test]
async fn later_subscriber_gets_a_remembered_event() {
    let shop = Shop::start(&Launch::default()).await;
    shop.subscribe("acme/ledger", "paid", "strict").await;
    shop.subscribe("acme/mail", "mails", "strict").await;
    let captured = Captured::of(&shop, "e-1");
    let send = async || captured.send(&shop).await;
    assert_eq!(send().await.status, 202);
    let again = send().await;
    assert_eq!(
        (again.status, &again.document()["first_seen_at"]),
        (200, &Value::Null),
        "the memory of recent messages answers"
    );
    shop.subscribe("zeta/app", "orders", "strict").await;
    assert_eq!(send().await.status, 202);
    assert_eq!(shop.received(&shop.app, "orders").await, ["e-1"]);
}

/// PIP-13, PIP-2: a subscription without claims gets a captured event once, for every claim policy of the
/// others and every order of the subscriptions.
#[tokio::test]
async fn captured_event_reaches_claimless_subscriptions_once() {
    let shop = Shop::start(&Launch::default()).await;
    for (id, ledger_policy, mail_policy) in [("e-1", "event", "none"), ("e-2", "none", "event")] {
        shop.subscribe("acme/ledger", "paid", ledger_policy).await;
        shop.subscribe("acme/mail", "mails", mail_policy).await;
        let captured = Captured::of(&shop, id);
        assert_eq!(captured.send(&shop).await.status, 202);
        let (status, verdicts) = verdicts_of(&captured.send(&shop).await);
        let expected = expected_verdicts([("acme/ledger", "duplicate"), ("acme/mail", "duplicate")]);
        assert_eq!((status, verdicts), (200, expected), "{id}");

        shop.subscribe("zeta/app", "orders", "none").await;
        let (status, verdicts) = verdicts_of(&captured.send(&shop).await);
        let expected = [("acme/ledger", "duplicate"), ("acme/mail", "duplicate"), ("zeta/app", "accepted")];
        assert_eq!(
            (status, verdicts),
            (202, expected_verdicts(expected)),
            "{id}: only the later subscription"
        );
        assert_eq!(captured.send(&shop).await.status, 200, "{id}");
        for (service, queue) in [(&shop.ledger, "paid"), (&shop.mail, "mails"), (&shop.app, "orders")] {
            assert_eq!(shop.received(service, queue).await, [id], "{queue}");
        }
        let path = "/v1/subscriptions/zeta/app/acme/shop/order.paid";
        assert_eq!(shop.call_as_operator(Method::DELETE, path, json!({})).await.0, 200);
    }
}

/// PIP-13, PIP-2: a subscription without claims gets one of several copies in flight, for every policy of the
/// others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_of_an_event_in_flight_reach_each_subscription_once() {
    let shop = Shop::start(&Launch::default()).await;
    shop.subscribe("acme/ledger", "paid", "none").await;
    shop.subscribe("acme/mail", "mails", "strict").await;
    shop.subscribe("zeta/app", "orders", "event").await;
    for round in 0..5 {
        let id = format!("e-{round}");
        let captured = Captured::of(&shop, &id);
        let answers = join_all((0..50).map(|_| captured.send(&shop))).await;
        let accepted = answers.iter().filter(|answer| answer.status == 202).count();
        let duplicates = answers.iter().filter(|answer| answer.status == 200).count();
        assert_eq!((accepted, duplicates), (1, 49), "{answers:?}");
        for (service, queue) in [(&shop.ledger, "paid"), (&shop.mail, "mails"), (&shop.app, "orders")] {
            assert_eq!(shop.received(service, queue).await, [id.as_str()], "{queue}");
        }
    }
}

/// PIP-13, DLV-5: a full queue does not make the gateway refuse the producer. The missed event becomes a dead
/// letter that can be redriven.
#[tokio::test]
async fn event_missed_by_a_full_queue_can_be_redriven() {
    let settings = vec![("SNAVIO_STORE_QUEUE_DEPTH_MAX".to_owned(), "1".to_owned())];
    let shop = Shop::start(&Launch { settings, ..Launch::default() }).await;
    assert_eq!(shop.post("e-0", 1).await.0, 202);
    assert_eq!(shop.received(&shop.ledger, "paid").await, ["e-0"]);
    // The gateway does not count a queue for every message: it may still accept a few into a full queue.
    let mut sent = 0;
    let missed = eventually("the mails' queue is full", async || {
        sent += 1;
        let id = format!("e-{sent}");
        let (status, verdicts) = shop.post(&id, 1).await;
        shop.received(&shop.ledger, "paid").await;
        (status == 202
            && verdicts == expected_verdicts([("acme/ledger", "accepted"), ("acme/mail", "dead_letter")]))
        .then_some(id)
    })
    .await;
    let (status, verdicts) = shop.post(&missed, 1).await;
    let expected = expected_verdicts([("acme/ledger", "duplicate"), ("acme/mail", "duplicate")]);
    assert_eq!((status, verdicts), (200, expected));
    let letters = shop.node.get("/v1/dead-letters?tenant=acme").await;
    let letter =
        letters["items"].as_array().unwrap().iter().find(|letter| letter["message_id"] == missed.as_str());
    let letter = letter.unwrap_or_else(|| panic!("{letters}"));
    assert_eq!((&letter["reason"], &letter["origin"]), (&json!("queue_full"), &json!("mails")));
    let path = format!("/v1/dead-letters/{}/redrive?tenant=acme", letter["id"]);
    shop.received(&shop.mail, "mails").await;
    eventually("the queue has room again", async || {
        (shop.call_as_operator(Method::POST, &path, json!({ "why": "room" })).await.0 == 200).then_some(())
    })
    .await;
    assert_eq!(shop.received(&shop.mail, "mails").await, [missed]);
}

/// PIP-13, ORD-1: a subscription of another tenant that cannot read its sequence number gets a dead letter,
/// and the other subscriptions get the event.
#[tokio::test]
async fn unreadable_order_affects_only_its_own_subscription() {
    let shop = Shop::start(&Launch::default()).await;
    let mut body = subscription("seen");
    body["order"] = json!({ "entity": "/amount", "number": "/currency", "mode": "strict" });
    body["queue"] = json!("orders");
    let path = "/v1/subscriptions/zeta/app/acme/shop/order.paid";
    assert_eq!(shop.call_as_operator(Method::PUT, path, body).await.0, 201);
    let post = async |id: &str, currency: Value| {
        let data = json!({ "amount": 1, "currency": currency });
        let event = json!({ "eventId": id, "eventType": "order.paid", "data": data }).to_string();
        let answer = Answered::to(post_json(&shop.node, "/v1/events", &shop.token, event)).await;
        (answer.status, answer.document())
    };
    let (status, answer) = post("e-1", json!("EUR")).await;
    assert_eq!(status, 202, "{answer}");
    let verdicts: Vec<_> = answer["subscriptions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|verdict| {
            (
                verdict["destination"].as_str().unwrap().split(':').next().unwrap(),
                &verdict["verdict"],
                &verdict["reason"],
            )
        })
        .collect();
    let accepted = json!("accepted");
    let expected = [
        ("acme/ledger", &accepted, &Value::Null),
        ("acme/mail", &accepted, &Value::Null),
        ("zeta/app", &json!("dead_letter"), &json!("order_unreadable")),
    ];
    assert!(expected.iter().all(|verdict| verdicts.contains(verdict)) && verdicts.len() == 3, "{verdicts:?}");
    assert_eq!(post("e-1", json!("EUR")).await.0, 200);
    assert_eq!(post("e-2", json!(7)).await.0, 202);
    for (service, queue, ids) in [
        (&shop.ledger, "paid", &["e-1", "e-2"][..]),
        (&shop.mail, "mails", &["e-1", "e-2"]),
        (&shop.app, "orders", &["e-2"]),
    ] {
        assert_eq!(shop.received(service, queue).await, ids, "{queue}");
    }
    let letters = shop.node.get("/v1/dead-letters?tenant=zeta").await;
    assert_eq!(
        (&letters["items"][0]["message_id"], &letters["items"][0]["reason"]),
        (&json!("e-1"), &json!("order_unreadable"))
    );
    for target in ["acme/ledger", "acme/mail"] {
        let path = format!("/v1/subscriptions/{target}/acme/shop/order.paid");
        assert_eq!(shop.call_as_operator(Method::DELETE, &path, json!({})).await.0, 200);
    }
    let (status, answer) = post("e-3", json!("EUR")).await;
    assert_eq!(
        (status, &answer["reason"]),
        (400, &json!("invalid_sequence")),
        "no other subscription is left: {answer}"
    );
}

/// PIP-9, PIP-13: an event for many destinations counts as that many messages in a commit, so that it does
/// not delay the messages beside it. The gateway still accepts a batch of such events.
#[tokio::test]
async fn wide_event_batch_is_settled_in_bounded_commits() {
    const SUBSCRIBERS: usize = 300;
    const EVENTS: usize = 40;
    let shop = Shop::start(&Launch::default()).await;
    let services: Vec<_> = (0..SUBSCRIBERS).map(|n| json!({ "name": format!("acme/s{n}") })).collect();
    let subscriptions: Vec<_> = (0..SUBSCRIBERS)
        .map(|n| {
            json!({
                "target": format!("acme/s{n}"), "events_of": "acme/shop", "name": "order.paid",
                "queue": format!("q{}", n % 3), "dead_letter_queue": "dead",
            })
        })
        .collect();
    shop.node.apply(&json!({ "services": services, "subscriptions": subscriptions })).await;
    let before = count_commits(&shop.node).await;
    let events: Vec<_> = (0..EVENTS)
        .map(|n| json!({ "eventId": format!("e-{n}"), "eventType": "order.paid", "data": { "n": n } }))
        .collect();
    let batch = json!(events).to_string();
    let answer = Answered::to(post_json(&shop.node, "/v1/events/batch", &shop.token, batch)).await;
    let document = answer.document();
    let results = document["results"].as_array().unwrap();
    let accepted = results.iter().filter(|result| result["status"] == 202).count();
    assert_eq!((answer.status, accepted), (200, EVENTS), "{}", document["results"][EVENTS - 1]);
    assert!(
        results.iter().all(|result| result["subscriptions"].as_array().unwrap().len() == SUBSCRIBERS + 2)
    );
    let commits = count_commits(&shop.node).await - before;
    assert!(commits >= EVENTS as f64, "each event fills a commit of its own: {commits} commits");
    assert_eq!(shop.received(&shop.ledger, "paid").await.len(), EVENTS);
}

/// The number of settled batches of messages.
async fn count_commits(node: &Node) -> f64 {
    metric(node, "snavio_commit_messages_count").await.unwrap_or_default()
}

/// PIP-9: the answer has a verdict for each subscription of each event, and all verdicts are in memory at
/// once. So a batch has a limit for them, and the gateway checks it before it settles anything.
#[tokio::test]
async fn batch_over_the_destination_limit_is_refused_unsettled() {
    let shop = Shop::start(&Launch::default()).await;
    let wide = 41;
    let services: Vec<_> = (0..wide).map(|n| json!({ "name": format!("acme/s{n}") })).collect();
    let subscriptions: Vec<_> = (0..wide)
        .map(|n| {
            let mut subscription = subscription("event");
            subscription["target"] = json!(format!("acme/s{n}"));
            subscription["events_of"] = json!("acme/shop");
            subscription["name"] = json!("order.lost");
            subscription
        })
        .collect();
    let registry = json!({
        "services": services,
        "event_types": [{ "owner": "acme/shop", "name": "order.lost" }],
        "subscriptions": subscriptions,
    });
    shop.node.apply(&registry).await;
    let too_many = bounds::BATCH_DESTINATIONS_MAX / wide + 1;
    let refused = shop.post_lost_events(too_many).await;
    assert_eq!((refused.status, &refused.document()["reason"]), (413, &json!("too_large")));
    assert!(refused.text.contains("split it"), "{}", refused.text);
    let accepted = shop.post_lost_events(2).await;
    let results = accepted.document()["results"].as_array().unwrap().clone();
    assert_eq!(accepted.status, 200);
    for result in results {
        assert_eq!((&result["status"], &result["duplicate"]), (&json!(202), &Value::Null), "the id is free");
        assert_eq!(result["subscriptions"].as_array().unwrap().len(), wide);
    }
}
