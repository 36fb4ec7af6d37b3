//! Consuming over HTTP (DLV-2, DLV-3): the behaviour that SQS consumers rely on, and isolation between owners
//! of queues.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::ApiError;

use crate::consumer::Consumer;
use crate::engine::Engine;
use crate::node::{Cast, Draft, Launch, Node, new_id, post};
use crate::patience::eventually;

/// A node with the usual services, and the consumer of `notify-inbox`.
pub(crate) struct Scene {
    pub(crate) node: Node,
    pub(crate) cast: Cast,
    pub(crate) bot: Consumer,
}

impl Scene {
    pub(crate) async fn set() -> Self {
        let node = Node::start();
        let cast = node.cast().await;
        let bot = Consumer::new(&node, &cast.bot, "notify-inbox");
        Self { node, cast, bot }
    }

    /// Sends one message and returns its id.
    pub(crate) async fn send(&self, name: &str) -> String {
        let draft = Draft::new(name, &new_id());
        let billing = self.node.client(&self.cast.billing);
        assert_eq!(post(&billing, draft.sign(&self.cast.billing)).await.0, 202);
        draft.id
    }

    /// Receives a message as often as its route allows, so that the next receive makes it a dead letter.
    pub(crate) async fn exhaust(&self) -> Value {
        let mut ended = Value::Null;
        for attempt in 1..=3 {
            let received = self.bot.receive_one(0).await;
            assert_eq!(received.attempt, attempt);
            ended = json!(received.delivery_id);
        }
        assert!(self.bot.receive(0).await.is_empty(), "the fourth receive returns nothing");
        eventually("a dead letter", async || {
            let page = self.dead_letters("").await;
            page["items"].as_array()?.iter().find(|letter| letter["id"] == ended).cloned()
        })
        .await
    }

    pub(crate) async fn dead_letters(&self, query: &str) -> Value {
        self.bot.send(Method::GET, &format!("/v1/dead-letters{query}"), None).await.1
    }
}

/// DLV-2
#[tokio::test]
async fn long_poll_wakes_only_for_its_own_queue() {
    let scene = Scene::set().await;
    let (node, bot) = (&scene.node, &scene.cast.bot);
    let notify = Consumer::new(node, bot, "notify-inbox");
    let pay = Consumer::new(node, bot, "pay-inbox");
    let other = tokio::spawn(async move { pay.wait(30, 2).await });
    let waiting = tokio::spawn(async move { notify.wait(30, 20).await });
    // Both polls wait once the node has seen their tokens. A message that arrives earlier would be received
    // as well.
    let id = scene.send("notify").await;
    let woken = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    let woken = woken.expect("woken long before its time").expect("no panic");
    assert_eq!(woken[0].message.as_command().unwrap().metadata["id"], id.as_str());
    assert!(other.await.expect("no panic").is_empty());
}

/// DLV-2
#[tokio::test]
async fn long_polls_share_arrivals_without_repeats() {
    let scene = Scene::set().await;
    let polls: Vec<_> = (0..5)
        .map(|_| {
            let bot = Consumer::new(&scene.node, &scene.cast.bot, "notify-inbox");
            let one =
                async move { bot.client.receive("notify-inbox", 1, MINUTE, Duration::from_secs(20)).await };
            tokio::spawn(one)
        })
        .collect();
    let mut sent = Vec::new();
    for _ in 0..5 {
        sent.push(scene.send("notify").await);
    }
    let mut received = Vec::new();
    for poll in polls {
        let got = tokio::time::timeout(Duration::from_secs(10), poll).await.expect("each is woken");
        let got = got.expect("no panic").expect("an answer");
        received.extend(got.iter().map(|delivery| delivery.message.id().unwrap_or_default().to_owned()));
    }
    received.sort();
    sent.sort();
    assert_eq!(received, sent);
}

const MINUTE: Duration = Duration::from_secs(60);

/// DLV-2, DLV-3
#[tokio::test]
async fn lapsed_lease_returns_same_delivery_under_higher_fence() {
    let scene = Scene::set().await;
    let id = scene.send("notify").await;
    let first = scene.bot.receive_one(4).await;
    assert!(scene.bot.receive(1).await.is_empty(), "hidden");
    let back = scene.bot.wait(60, 10).await;
    assert_eq!((first.attempt, back[0].attempt), (1, 2));
    assert_eq!(back[0].delivery_id, first.delivery_id);
    assert!(back[0].fence > first.fence);
    assert_eq!(back[0].message.as_command().unwrap().metadata["id"], id.as_str());
    assert_eq!(
        back[0].message.as_command().unwrap().metadata["traceparent"],
        first.message.as_command().unwrap().metadata["traceparent"]
    );
    assert_eq!(
        back[0].message.as_command().unwrap().metadata["correlation_id"],
        first.message.as_command().unwrap().metadata["correlation_id"]
    );

    assert_eq!(scene.bot.ack(&first).await, (409, "fenced".into()));
    assert_eq!(scene.bot.ack(&back[0]).await, (200, "done".into()));
    assert_eq!(scene.bot.ack(&back[0]).await, (200, "gone".into()));
}

/// DLV-2
#[tokio::test]
async fn extension_hides_delivery_and_release_returns_it() {
    let scene = Scene::set().await;
    scene.send("notify").await;
    let delivery = scene.bot.receive_one(1).await;
    let extended = scene.bot.outcome("extend", &delivery, json!({ "visibility_seconds": 600 })).await;
    assert_eq!(extended, (200, "done".into()));
    assert!(scene.bot.wait(30, 2).await.is_empty(), "still hidden after its first visibility");

    let released = scene.bot.outcome("release", &delivery, json!({ "delay_seconds": 600 })).await;
    assert_eq!(released, (200, "done".into()));
    let attributes = scene.bot.attributes().await;
    assert_eq!((&attributes["delayed"], &attributes["in_flight"]), (&json!(1), &json!(0)));
    assert!(scene.bot.receive(30).await.is_empty(), "delayed");

    assert_eq!(scene.bot.outcome("release", &delivery, json!({})).await, (200, "done".into()));
    let again = scene.bot.receive_one(30).await;
    assert_eq!((again.delivery_id, again.attempt), (delivery.delivery_id, 2));
    let late = scene.bot.outcome("extend", &delivery, json!({ "visibility_seconds": 600 })).await;
    assert_eq!(late, (409, "fenced".into()));
}

/// DLV-2
#[tokio::test]
async fn released_delivery_wakes_long_poll_after_its_delay() {
    let scene = Scene::set().await;
    scene.send("notify").await;
    let delivery = scene.bot.receive_one(600).await;
    scene.bot.outcome("release", &delivery, json!({ "delay_seconds": 4 })).await;
    assert!(scene.bot.receive(30).await.is_empty());
    let woken = tokio::time::timeout(Duration::from_secs(10), scene.bot.wait(30, 20)).await;
    assert_eq!(woken.expect("woken long before its time")[0].delivery_id, delivery.delivery_id);
}

/// DLV-2, DLV-5
#[tokio::test]
async fn unacknowledged_delivery_becomes_dead_letter_with_reason_and_origin() {
    let scene = Scene::set().await;
    let id = scene.send("notify").await;
    let neighbour = scene.send("pay").await;
    let letter = scene.exhaust().await;
    assert_eq!(letter["reason"], "receives_exhausted");
    assert_eq!(letter["queue"], "bot-dead");
    assert_eq!(letter["origin"], "notify-inbox");
    assert_eq!(letter["route"], "acme/bot:notify");
    assert_eq!(letter["attempts"], 3);
    assert_eq!(letter["message_id"], id.as_str());
    assert_eq!(letter["source"], "acme/billing");
    assert!(letter["message"].is_i64() && letter["dead_at"].is_string() && letter["queued_at"].is_string());

    let (status, shown) = scene.show(&letter["id"]).await;
    assert_eq!((status, &shown["content"]["command"]["payload"]), (200, &json!({ "user": "u-1" })));
    assert_eq!(shown["content"]["command"]["source"], "acme/billing");
    assert_eq!(scene.dead_letters("?queue=bot-dead").await["items"][0], letter);
    assert_eq!(scene.dead_letters("?queue=other").await["reason"], "not_found");
    assert_eq!(scene.dead_letters(&format!("?after={}", letter["id"])).await["items"], json!([]));
    let dead = Consumer::new(&scene.node, &scene.cast.bot, "bot-dead");
    assert_eq!(dead.attributes().await["dead_letters"], 1);
    assert_eq!(scene.bot.attributes().await["depth"], 0);

    let pay = Consumer::new(&scene.node, &scene.cast.bot, "pay-inbox");
    assert_eq!(
        pay.receive_one(30).await.message.as_command().unwrap().metadata["id"],
        neighbour.as_str(),
        "its neighbour goes on"
    );
}

impl Scene {
    async fn show(&self, id: &Value) -> (u16, Value) {
        self.bot.send(Method::GET, &format!("/v1/dead-letters/{id}"), None).await
    }
}

/// DLV-2, DLV-3
#[tokio::test]
async fn redriven_dead_letter_keeps_delivery_id_and_restarts_counts() {
    let scene = Scene::set().await;
    scene.send("notify").await;
    let last = {
        let first = scene.bot.receive_one(0).await;
        let (second, third) = (scene.bot.receive_one(0).await, scene.bot.receive_one(0).await);
        assert!(first.fence < second.fence && second.fence < third.fence);
        assert!(scene.bot.receive(0).await.is_empty());
        third
    };
    let letter = eventually("a dead letter", async || {
        scene.dead_letters("").await["items"].as_array().and_then(|items| items.first().cloned())
    })
    .await;
    let path = format!("/v1/dead-letters/{}/redrive", letter["id"]);
    let redriven = scene.bot.send(Method::POST, &path, Some(json!({ "why": "fixed" }))).await;
    assert_eq!((redriven.0, &redriven.1["redriven"]), (200, &json!(1)));
    assert_eq!(scene.show(&letter["id"]).await.0, 404, "it is no dead letter any more");
    assert_eq!(scene.bot.send(Method::POST, &path, Some(json!({}))).await.0, 404, "nor can it be twice");

    let again = scene.bot.receive_one(0).await;
    assert_eq!((again.delivery_id, again.attempt), (last.delivery_id, 1));
    assert!(again.fence > last.fence);
    assert_eq!(scene.bot.ack(&last).await, (409, "fenced".into()), "the earlier worker reports late");
    for attempt in 2..=3 {
        assert_eq!(scene.bot.receive_one(0).await.attempt, attempt);
    }
    assert!(scene.bot.receive(0).await.is_empty(), "its receives are used up again");
}

/// DLV-2, DLV-5
#[tokio::test]
async fn queue_redrive_and_purge_are_in_audit_log() {
    let mut scene = Scene::set().await;
    for _ in 0..2 {
        scene.send("notify").await;
        scene.exhaust().await;
    }
    let dead = Consumer::new(&scene.node, &scene.cast.bot, "bot-dead");
    let redriven = dead.act("redrive", json!({ "why": "fixed" })).await;
    assert_eq!(redriven, (200, json!({ "redriven": 2, "more": false })));
    assert_eq!(scene.bot.attributes().await["depth"], 2);

    let leased = scene.bot.wait(600, 0).await;
    assert_eq!(
        scene.bot.act("purge", json!({ "why": "a test" })).await,
        (200, json!({ "purged": 2, "in_doubt": 0, "in_progress": 0 }))
    );
    assert!(scene.bot.receive(0).await.is_empty());
    assert_eq!(scene.bot.ack(&leased[0]).await, (200, "gone".into()));
    let attributes = scene.bot.attributes().await;
    assert_eq!((&attributes["depth"], &attributes["in_flight"]), (&json!(0), &json!(0)));

    scene.node.kill();
    let store = scene.node.engine().open(scene.node.folder()).await;
    let audit = store.audit(snavio_model::id::Serial(0), 10).await.expect("the record can be read");
    let actions: Vec<_> =
        audit.iter().map(|record| (record.action.as_str(), record.act.why.as_str())).collect();
    let redrive = ("dead_letter.redrive", "fixed");
    assert_eq!(actions, [redrive, redrive, ("queue.purge", "a test")]);
    assert!(audit.iter().all(|record| record.act.who.starts_with("acme/bot (snavcl_")), "{audit:?}");
    assert_eq!(
        (audit[2].object.as_str(), audit[2].outcome.as_str()),
        ("acme/notify-inbox", "2 deliveries deleted")
    );
}

/// REG-24
#[tokio::test]
async fn redrive_needs_a_queue_that_a_route_names() {
    let scene = Scene::set().await;
    scene.send("notify").await;
    scene.exhaust().await;
    let letter = scene.dead_letters("").await["items"][0]["id"].clone();
    let moved = json!({ "queue": "elsewhere", "dead_letter_queue": "bot-dead" });
    let put = scene.node.operator().call(Method::PUT, "/v1/routes/acme/bot/notify", Some(&moved)).await;
    put.expect("the route can name another queue");
    let path = format!("/v1/dead-letters/{letter}/redrive");
    let one = scene.bot.send(Method::POST, &path, Some(json!({ "why": "fixed" }))).await;
    assert_eq!((one.0, &one.1["reason"]), (409, &json!("registry_conflict")), "{one:?}");
    let dead = Consumer::new(&scene.node, &scene.cast.bot, "bot-dead");
    let all = dead.act("redrive", json!({ "why": "fixed" })).await;
    assert_eq!((all.0, &all.1["reason"]), (409, &json!("registry_conflict")), "{all:?}");
    assert_eq!(scene.show(&letter).await.0, 200, "it is a dead letter still");
}

/// DLV-2
#[tokio::test]
async fn attributes_count_visible_leased_and_delayed_deliveries() {
    let scene = Scene::set().await;
    for _ in 0..4 {
        scene.send("notify").await;
    }
    let client = &scene.bot.client;
    let leased = client.receive("notify-inbox", 3, MINUTE, Duration::ZERO).await.expect("an answer");
    assert_eq!(leased.len(), 3);
    scene.bot.ack(&leased[0]).await;
    scene.bot.outcome("release", &leased[1], json!({ "delay_seconds": 600 })).await;
    let attributes = scene.bot.attributes().await;
    let expected = json!({
        "queue": "notify-inbox", "tenant": "acme", "depth": 1, "in_flight": 1, "delayed": 1,
        "oldest_age_seconds": attributes["oldest_age_seconds"], "dead_letters": 0,
    });
    assert_eq!(attributes, expected);
    assert!(attributes["oldest_age_seconds"].as_u64().is_some_and(|age| age < 60));
}

/// DLV-3
#[tokio::test]
async fn receipt_survives_restart_until_newer_lease() {
    let mut scene = Scene::set().await;
    for _ in 0..2 {
        scene.send("notify").await;
    }
    // On the embedded store the leases end with the node. On PostgreSQL they outlive it.
    let lease_seconds = if matches!(scene.node.engine(), Engine::Embedded) { 600 } else { 2 };
    let before = scene.bot.receive(lease_seconds).await;
    scene.node.kill();
    scene.node.restart(&Launch::default());
    let bot = Consumer::new(&scene.node, &scene.cast.bot, "notify-inbox");
    assert_eq!(bot.ack(&before[0]).await, (200, "done".into()));

    let again = eventually("the delivery is visible again", async || bot.receive(600).await.pop()).await;
    assert_eq!(again.delivery_id, before[1].delivery_id);
    assert!(again.fence > before[1].fence, "fences rise over restarts");
    assert_eq!(bot.ack(&before[1]).await, (409, "fenced".into()));
    assert_eq!(bot.ack(&again).await, (200, "done".into()));
}

/// DLV-2
#[tokio::test]
async fn receive_counts_survive_a_restart() {
    let mut scene = Scene::set().await;
    scene.send("notify").await;
    scene.bot.receive_one(0).await;
    scene.bot.receive_one(0).await;
    // Receive counts ride a later commit; this message causes one.
    scene.send("pay").await;
    scene.node.kill();
    scene.node.restart(&Launch::default());
    let bot = Consumer::new(&scene.node, &scene.cast.bot, "notify-inbox");
    assert_eq!(bot.receive_one(0).await.attempt, 3);
    assert!(bot.receive(0).await.is_empty());
}

/// Takes the detail out of the refusal of an unknown queue. It names only the nearest of the caller's own
/// queues, whether or not the queue exists for another owner.
fn take_detail((status, mut refused): (u16, Value)) -> (u16, Value, Value) {
    let detail = refused["detail"].take();
    assert!(detail.as_str().unwrap().starts_with("there is no such queue"), "{detail}");
    (status, refused, detail)
}

/// QUA-5
#[tokio::test]
async fn foreign_queue_answers_like_missing_queue() {
    let scene = Scene::set().await;
    let other = json!({
        "tenants": [{ "name": "zeta" }],
        "services": [{ "name": "zeta/bot" }],
        "routes": [{ "target": "zeta/bot", "name": "ping", "queue": "zeta-inbox", "dead_letter_queue": "zeta-dead" }],
    });
    let zeta = scene.node.apply(&other).await.remove(0);
    scene.send("notify").await;
    let letter = scene.exhaust().await;

    let foreign_consumers = [
        (Consumer::new(&scene.node, &zeta, ""), ["notify-inbox", "bot-dead"]),
        (Consumer::new(&scene.node, &scene.cast.bot, ""), ["zeta-inbox", "zeta-dead"]),
        // Another service of the same tenant.
        (Consumer::new(&scene.node, &scene.cast.billing, ""), ["notify-inbox", "pay-inbox"]),
    ];
    let receipts = json!({ "receipts": [{ "delivery_id": 1, "fence": 1 }] });
    for (foreign_consumer, queues) in &foreign_consumers {
        for (method, action, body) in [
            (Method::GET, "", None),
            (Method::POST, "/receive", Some(json!({}))),
            (Method::POST, "/ack", Some(receipts.clone())),
            (Method::POST, "/extend", Some(receipts.clone())),
            (Method::POST, "/release", Some(receipts.clone())),
            (Method::POST, "/purge", Some(json!({}))),
            (Method::POST, "/redrive", Some(json!({}))),
        ] {
            let ask = async |queue: &str| {
                foreign_consumer
                    .send(method.clone(), &format!("/v1/queues/{queue}{action}"), body.clone())
                    .await
            };
            let (status, missing, _) = take_detail(ask("no-such-queue-7f").await);
            assert_eq!((status, &missing["reason"]), (404, &json!("not_found")), "{action}");
            for queue in queues {
                let (status, refused, detail) = take_detail(ask(queue).await);
                assert_eq!((status, &refused), (404, &missing), "{action} on {queue}");
                assert!(!detail.to_string().contains(queue), "{action} on {queue}: {detail}");
            }
        }
    }

    let foreign_consumer = &foreign_consumers[0].0;
    let show =
        async |id: &Value| foreign_consumer.send(Method::GET, &format!("/v1/dead-letters/{id}"), None).await;
    assert_eq!(show(&letter["id"]).await, show(&json!(7)).await);
    assert_eq!(show(&letter["id"]).await.0, 404);
    let redrive = async |id: &Value| {
        foreign_consumer.send(Method::POST, &format!("/v1/dead-letters/{id}/redrive"), Some(json!({}))).await
    };
    assert_eq!(redrive(&letter["id"]).await, redrive(&json!(7)).await);
    for query in ["", "?queue=bot-dead", "?tenant=acme", "?tenant=acme&queue=bot-dead"] {
        let (status, listed) =
            foreign_consumer.send(Method::GET, &format!("/v1/dead-letters{query}"), None).await;
        let nothing = status == 404 || listed["items"] == json!([]);
        assert!(nothing, "{query}: {status} {listed}");
    }
}

/// MSG-12
#[tokio::test]
async fn invalid_request_names_the_invalid_member() {
    let scene = Scene::set().await;
    let none = json!({ "receipts": [] });
    let many = json!({ "receipts": vec![json!({ "delivery_id": 1, "fence": 1 }); 501] });
    for (action, body, word) in [
        ("receive", json!({ "max": 0 }), "max"),
        ("receive", json!({ "max": 11 }), "max"),
        ("receive", json!({ "wait_seconds": 21 }), "wait_seconds"),
        ("receive", json!({ "visibility_seconds": 43_201 }), "visibility_seconds"),
        ("receive", json!({ "visability_seconds": 1 }), "visability_seconds"),
        ("ack", none.clone(), "receipts"),
        ("ack", many, "receipts"),
        ("ack", json!({}), "receipts"),
        ("purge", json!({ "why": "a\0b" }), "control characters"),
        ("redrive", json!({ "why": "x".repeat(1001) }), "too long"),
        (
            "release",
            json!({ "receipts": [{ "delivery_id": 1, "fence": 1 }], "delay_seconds": 43_201 }),
            "delay_seconds",
        ),
    ] {
        let (status, problem) = scene.bot.act(action, body).await;
        assert_eq!(
            (status, &problem["reason"]),
            (400, &json!("invalid_request")),
            "{action} {word}: {problem}"
        );
        assert!(
            problem["detail"].as_str().is_some_and(|detail| detail.contains(word)),
            "{action} {word}: {problem}"
        );
    }
    for path in [
        "/v1/dead-letters/abc",
        "/v1/dead-letters?after=abc",
        "/v1/telemetry?after=abc",
        "/v1/telemetry?limit=-1",
    ] {
        let (status, problem) = scene.bot.send(Method::GET, path, None).await;
        assert_eq!((status, &problem["reason"]), (400, &json!("invalid_request")), "{path}: {problem}");
    }
    let tenant =
        scene.node.operator().call(Method::PUT, "/v1/tenants/acme?why=a%00b", Some(&json!({}))).await;
    assert!(matches!(&tenant, Err(ApiError::Refused { status: 400, .. })), "{tenant:?}");
}
