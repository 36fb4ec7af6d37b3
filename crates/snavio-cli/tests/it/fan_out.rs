//! One event for several subscriptions (PIP-13): taken as a whole, claimed and delivered at each.

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

/// `acme/shop` publishes `order.paid` to `acme/ledger`, `acme/mail` and, once it is subscribed, `zeta/app`.
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
    async fn set(launch: &Launch) -> Self {
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
        assert!([200, 201].contains(&self.operate(Method::PUT, &path, body).await.0));
    }

    async fn operate(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let body = Some(body.to_string().into_bytes());
        verdict(self.node.operator().send(method, path, body, "application/json").await)
    }

    async fn post(&self, id: &str, amount: u32) -> (u16, Vec<(String, String)>) {
        let event = json!({ "eventId": id, "eventType": "order.paid", "data": { "amount": amount } });
        Self::told(&Answered::to(post_json(&self.node, "/v1/events", &self.token, event.to_string())).await)
    }

    /// The status, and the verdicts of the subscriptions by their service.
    fn told(answer: &Answered) -> (u16, Vec<(String, String)>) {
        let document = answer.document();
        let told = |it: &Value| {
            let text = |name: &str| it[name].as_str().unwrap_or_default().to_owned();
            (text("destination").split(':').next().unwrap_or_default().to_owned(), text("verdict"))
        };
        let mut told: Vec<_> = document["subscriptions"].as_array().into_iter().flatten().map(told).collect();
        told.sort_unstable();
        (answer.status, told)
    }

    async fn received(&self, who: &Credentials, queue: &str) -> Vec<String> {
        let deliveries = drain(&self.node.client(who), queue).await;
        deliveries.iter().filter_map(|it| it.message.id().map(str::to_owned)).collect()
    }
}

/// A signed event, as somebody on the way would send it again.
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

fn verdicts<const N: usize>(told: [(&str, &str); N]) -> Vec<(String, String)> {
    told.map(|(service, verdict)| (service.to_owned(), verdict.to_owned())).into()
}

/// PIP-13, CLM-1, CLM-8
#[tokio::test]
async fn an_event_is_delivered_once_to_each_that_is_subscribed() {
    let shop = Shop::set(&Launch::default()).await;
    let (status, told) = shop.post("e-1", 1).await;
    assert_eq!((status, told), (202, verdicts([("acme/ledger", "accepted"), ("acme/mail", "accepted")])));
    let (status, told) = shop.post("e-1", 1).await;
    assert_eq!((status, told), (200, verdicts([("acme/ledger", "duplicate"), ("acme/mail", "duplicate")])));
    assert_eq!(shop.post("e-1", 2).await, (409, Vec::new()), "another content is refused as a whole");

    shop.subscribe("zeta/app", "orders", "seen").await;
    let (status, told) = shop.post("e-1", 1).await;
    let expected = [("acme/ledger", "duplicate"), ("acme/mail", "duplicate"), ("zeta/app", "accepted")];
    assert_eq!((status, told), (202, verdicts(expected)), "who came later gets what is sent again");
    assert_eq!(shop.post("e-1", 1).await.0, 200);
    for (who, queue) in [(&shop.ledger, "paid"), (&shop.mail, "mails"), (&shop.app, "orders")] {
        assert_eq!(shop.received(who, queue).await, ["e-1"], "{queue}");
    }
}

/// PIP-13: a signed event that memory would know again is judged anew for whoever subscribed since.
#[tokio::test]
async fn one_that_subscribes_later_is_not_forgotten_by_memory() {
    let shop = Shop::set(&Launch::default()).await;
    shop.subscribe("acme/ledger", "paid", "strict").await;
    shop.subscribe("acme/mail", "mails", "strict").await;
    let captured = Captured::of(&shop, "e-1");
    let send = async || captured.send(&shop).await;
    assert_eq!(send().await.status, 202);
    let again = send().await;
    assert_eq!((again.status, &again.document()["first_seen_at"]), (200, &Value::Null), "memory knows it");
    shop.subscribe("zeta/app", "orders", "strict").await;
    assert_eq!(send().await.status, 202);
    assert_eq!(shop.received(&shop.app, "orders").await, ["e-1"]);
}

/// PIP-13, PIP-2: whoever claims nothing gets a captured event once, whatever the others compare and in whatever order they are
/// subscribed.
#[tokio::test]
async fn a_captured_event_comes_once_to_whoever_claims_nothing() {
    let shop = Shop::set(&Launch::default()).await;
    for (id, of_ledger, of_mail) in [("e-1", "event", "none"), ("e-2", "none", "event")] {
        shop.subscribe("acme/ledger", "paid", of_ledger).await;
        shop.subscribe("acme/mail", "mails", of_mail).await;
        let captured = Captured::of(&shop, id);
        assert_eq!(captured.send(&shop).await.status, 202);
        let (status, told) = Shop::told(&captured.send(&shop).await);
        let expected = verdicts([("acme/ledger", "duplicate"), ("acme/mail", "duplicate")]);
        assert_eq!((status, told), (200, expected), "{id}");

        shop.subscribe("zeta/app", "orders", "none").await;
        let (status, told) = Shop::told(&captured.send(&shop).await);
        let expected = [("acme/ledger", "duplicate"), ("acme/mail", "duplicate"), ("zeta/app", "accepted")];
        assert_eq!((status, told), (202, verdicts(expected)), "{id}: only who came since");
        assert_eq!(captured.send(&shop).await.status, 200, "{id}");
        for (who, queue) in [(&shop.ledger, "paid"), (&shop.mail, "mails"), (&shop.app, "orders")] {
            assert_eq!(shop.received(who, queue).await, [id], "{queue}");
        }
        let path = "/v1/subscriptions/zeta/app/acme/shop/order.paid";
        assert_eq!(shop.operate(Method::DELETE, path, json!({})).await.0, 200);
    }
}

/// PIP-13, PIP-2: whatever the others do with copies, a subscription without claims gets one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_of_an_event_in_flight_reach_each_subscription_once() {
    let shop = Shop::set(&Launch::default()).await;
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
        for (who, queue) in [(&shop.ledger, "paid"), (&shop.mail, "mails"), (&shop.app, "orders")] {
            assert_eq!(shop.received(who, queue).await, [id.as_str()], "{queue}");
        }
    }
}

/// PIP-13, DLV-5: a full queue does not refuse the producer, and what it missed can be put back.
#[tokio::test]
async fn a_full_queue_misses_an_event_that_others_take_until_it_is_put_back() {
    let settings = vec![("SNAVIO_STORE_QUEUE_DEPTH_MAX".to_owned(), "1".to_owned())];
    let shop = Shop::set(&Launch { settings, ..Launch::default() }).await;
    assert_eq!(shop.post("e-0", 1).await.0, 202);
    assert_eq!(shop.received(&shop.ledger, "paid").await, ["e-0"]);
    // A queue is not counted for every message: the first ones after may still find room.
    let mut sent = 0;
    let missed = eventually("the mails' queue is full", async || {
        sent += 1;
        let id = format!("e-{sent}");
        let (status, told) = shop.post(&id, 1).await;
        shop.received(&shop.ledger, "paid").await;
        (status == 202 && told == verdicts([("acme/ledger", "accepted"), ("acme/mail", "dead_letter")]))
            .then_some(id)
    })
    .await;
    let (status, told) = shop.post(&missed, 1).await;
    let expected = verdicts([("acme/ledger", "duplicate"), ("acme/mail", "duplicate")]);
    assert_eq!((status, told), (200, expected));
    let letters = shop.node.get("/v1/dead-letters?tenant=acme").await;
    let letter = letters["items"].as_array().unwrap().iter().find(|it| it["message_id"] == missed.as_str());
    let letter = letter.unwrap_or_else(|| panic!("{letters}"));
    assert_eq!((&letter["reason"], &letter["origin"]), (&json!("queue_full"), &json!("mails")));
    let path = format!("/v1/dead-letters/{}/redrive?tenant=acme", letter["id"]);
    shop.received(&shop.mail, "mails").await;
    eventually("there is room again", async || {
        (shop.operate(Method::POST, &path, json!({ "why": "room" })).await.0 == 200).then_some(())
    })
    .await;
    assert_eq!(shop.received(&shop.mail, "mails").await, [missed]);
}

/// PIP-13, ORD-1: where another tenant looks for a number is its own affair.
#[tokio::test]
async fn a_subscription_that_cannot_read_the_order_takes_the_event_from_nobody() {
    let shop = Shop::set(&Launch::default()).await;
    let mut body = subscription("seen");
    body["order"] = json!({ "entity": "/amount", "number": "/currency", "mode": "strict" });
    body["queue"] = json!("orders");
    let path = "/v1/subscriptions/zeta/app/acme/shop/order.paid";
    assert_eq!(shop.operate(Method::PUT, path, body).await.0, 201);
    let post = async |id: &str, currency: Value| {
        let data = json!({ "amount": 1, "currency": currency });
        let event = json!({ "eventId": id, "eventType": "order.paid", "data": data }).to_string();
        let answer = Answered::to(post_json(&shop.node, "/v1/events", &shop.token, event)).await;
        (answer.status, answer.document())
    };
    let (status, answer) = post("e-1", json!("EUR")).await;
    assert_eq!(status, 202, "{answer}");
    let told: Vec<_> = answer["subscriptions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            (it["destination"].as_str().unwrap().split(':').next().unwrap(), &it["verdict"], &it["reason"])
        })
        .collect();
    let accepted = json!("accepted");
    let expected = [
        ("acme/ledger", &accepted, &Value::Null),
        ("acme/mail", &accepted, &Value::Null),
        ("zeta/app", &json!("dead_letter"), &json!("order_unreadable")),
    ];
    assert!(expected.iter().all(|it| told.contains(it)) && told.len() == 3, "{told:?}");
    assert_eq!(post("e-1", json!("EUR")).await.0, 200);
    assert_eq!(post("e-2", json!(7)).await.0, 202);
    for (who, queue, ids) in [
        (&shop.ledger, "paid", &["e-1", "e-2"][..]),
        (&shop.mail, "mails", &["e-1", "e-2"]),
        (&shop.app, "orders", &["e-2"]),
    ] {
        assert_eq!(shop.received(who, queue).await, ids, "{queue}");
    }
    let letters = shop.node.get("/v1/dead-letters?tenant=zeta").await;
    assert_eq!(
        (&letters["items"][0]["message_id"], &letters["items"][0]["reason"]),
        (&json!("e-1"), &json!("order_unreadable"))
    );
    for target in ["acme/ledger", "acme/mail"] {
        let path = format!("/v1/subscriptions/{target}/acme/shop/order.paid");
        assert_eq!(shop.operate(Method::DELETE, &path, json!({})).await.0, 200);
    }
    let (status, answer) = post("e-3", json!("EUR")).await;
    assert_eq!(
        (status, &answer["reason"]),
        (400, &json!("invalid_sequence")),
        "nobody else is there: {answer}"
    );
}

/// PIP-9, PIP-13: an event for many is as much as many, for whoever waits beside it; a batch of them is taken all the same.
#[tokio::test]
async fn a_batch_of_events_for_many_is_settled_in_commits_of_a_bounded_size() {
    const SUBSCRIBERS: usize = 300;
    const EVENTS: usize = 40;
    let shop = Shop::set(&Launch::default()).await;
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
    let before = commits(&shop.node).await;
    let event =
        |n: usize| json!({ "eventId": format!("e-{n}"), "eventType": "order.paid", "data": { "n": n } });
    let batch = json!((0..EVENTS).map(event).collect::<Vec<_>>()).to_string();
    let answer = Answered::to(post_json(&shop.node, "/v1/events/batch", &shop.token, batch)).await;
    let document = answer.document();
    let results = document["results"].as_array().unwrap();
    let taken = results.iter().filter(|it| it["status"] == 202).count();
    assert_eq!((answer.status, taken), (200, EVENTS), "{}", document["results"][EVENTS - 1]);
    assert!(results.iter().all(|it| it["subscriptions"].as_array().unwrap().len() == SUBSCRIBERS + 2));
    let commits = commits(&shop.node).await - before;
    assert!(commits >= EVENTS as f64, "each is more than a commit takes with others: {commits} commits");
    assert_eq!(shop.received(&shop.ledger, "paid").await.len(), EVENTS);
}

/// How many batches of messages were settled.
async fn commits(node: &Node) -> f64 {
    metric(node, "snavio_commit_messages_count").await.unwrap_or_default()
}

/// PIP-9: every event is answered with a verdict for each subscription, and all of them are in memory at once.
#[tokio::test]
async fn a_batch_for_too_many_subscriptions_in_all_is_refused_before_anything_is_settled() {
    let shop = Shop::set(&Launch::default()).await;
    let wide = 41;
    let services: Vec<_> = (0..wide).map(|n| json!({ "name": format!("acme/s{n}") })).collect();
    let subscribed = |n: usize| {
        let mut subscription = subscription("event");
        subscription["target"] = json!(format!("acme/s{n}"));
        subscription["events_of"] = json!("acme/shop");
        subscription["name"] = json!("order.lost");
        subscription
    };
    let registry = json!({
        "services": services,
        "event_types": [{ "owner": "acme/shop", "name": "order.lost" }],
        "subscriptions": (0..wide).map(subscribed).collect::<Vec<_>>(),
    });
    shop.node.apply(&registry).await;
    let event = |n: usize| json!({ "eventId": format!("lost-{n}"), "eventType": "order.lost", "data": n });
    let batch = async |count: usize| {
        let events: Vec<_> = (0..count).map(event).collect();
        let body = Value::from(events).to_string();
        Answered::to(post_json(&shop.node, "/v1/events/batch", &shop.token, body)).await
    };
    let too_many = bounds::BATCH_DESTINATIONS_MAX / wide + 1;
    let refused = batch(too_many).await;
    assert_eq!((refused.status, &refused.document()["reason"]), (413, &json!("too_large")));
    assert!(refused.text.contains("split it"), "{}", refused.text);
    let taken = batch(2).await;
    let results = taken.document()["results"].as_array().unwrap().clone();
    assert_eq!(taken.status, 200);
    for result in results {
        assert_eq!((&result["status"], &result["duplicate"]), (&json!(202), &Value::Null), "it is new");
        assert_eq!(result["subscriptions"].as_array().unwrap().len(), wide);
    }
}
