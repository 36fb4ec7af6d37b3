//! HTTP push (DLV-1, DLV-4, MSG-4, QUA-6): pushes are signed, repeated until the receiver acknowledges, and
//! paused while the receiver is down.

mod gone;
mod others;

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::signature::signing::Secret;
use snavio_model::signature::webhook::WebhookSignature;
use snavio_sdk::Credentials;

use crate::node::{Draft, Launch, Node, new_id, post, verdict};
use crate::patience::{eventually, within};
use crate::processor::{Asked, Processor, Reply, Reserved};
use crate::shell::Shell;
use crate::wire::{metric, post_json};

/// A node where `acme/shop` publishes `order.paid`, which is pushed to `acme/ledger` of the same tenant.
pub(crate) struct Hooks {
    pub(crate) node: Node,
    pub(crate) shop: Credentials,
    token: String,
    /// The secrets that sign pushes, by destination.
    pub(crate) secrets: BTreeMap<String, Secret>,
}

pub(crate) const PAID: &str = "acme/ledger:acme/shop:order.paid";
const SUBSCRIPTION: &str = "/v1/subscriptions/acme/ledger/acme/shop/order.paid";

/// A subscription that pushes to a URL, with the members of `more` in addition.
pub(crate) fn hook(url: &str, more: &Value) -> Value {
    let mut subscription = json!({
        "target": "acme/ledger", "events_of": "acme/shop", "name": "order.paid", "queue": "paid",
        "dead_letter_queue": "exceptions", "claim": { "policy": "event" },
        "processing": { "kind": "push", "url": url, "backoff_seconds": 1 },
    });
    for (name, value) in more.as_object().unwrap() {
        match value.as_object() {
            Some(members) => {
                members.iter().for_each(|(member, value)| subscription[name][member] = value.clone());
            }
            None => subscription[name] = value.clone(),
        }
    }
    subscription
}

pub(crate) fn launch() -> Launch {
    Launch::default().set("OUTGOING_ALLOWED", "127.0.0.0/8")
}

impl Hooks {
    pub(crate) async fn to(receiver: &Processor) -> Self {
        Self::with(vec![hook(&receiver.url(), &json!({}))]).await
    }

    pub(crate) async fn with(subscriptions: Vec<Value>) -> Self {
        Self::on(Node::launch(&launch()), subscriptions).await
    }

    pub(crate) async fn on(node: Node, subscriptions: Vec<Value>) -> Self {
        let services: std::collections::BTreeSet<_> = subscriptions
            .iter()
            .map(|subscription| subscription["target"].as_str().unwrap().to_owned())
            .collect();
        let services = services.iter().map(|service| json!({ "name": service }));
        let services: Vec<_> = [json!({ "name": "acme/shop" })].into_iter().chain(services).collect();
        let registry = json!({
            "tenants": [{ "name": "acme" }],
            "services": services,
            "event_types": [{ "owner": "acme/shop", "name": "order.paid" }],
            "subscriptions": subscriptions,
        });
        let applied = node.operator().call(Method::POST, "/v1/registry/apply", Some(&registry)).await;
        let applied = applied.expect("the registry takes the file");
        let made = applied["push_secrets"].as_array().unwrap().iter();
        let secrets = made.map(|made| {
            let secret = Secret::parse(made["push_secret"].as_str().unwrap()).expect("libraries can read it");
            (made["destination"].as_str().unwrap().to_owned(), secret)
        });
        let secrets = secrets.collect();
        let shop: Credentials = serde_json::from_value(applied["credentials"][0].clone()).unwrap();
        let token = node.token(&shop).await;
        Self { node, shop, token, secrets }
    }

    pub(crate) async fn send(&self, id: &str, amount: u32) -> (u16, Value) {
        let event = json!({ "eventId": id, "eventType": "order.paid", "data": { "amount": amount } });
        let answer = post_json(&self.node, "/v1/events", &self.token, event.to_string()).send().await;
        let answer = answer.expect("the node answers");
        (answer.status().as_u16(), answer.json().await.expect("it is JSON"))
    }

    pub(crate) async fn sends(&self, count: u32) -> Vec<String> {
        let ids: Vec<_> = (0..count).map(|_| new_id()).collect();
        for id in &ids {
            assert_eq!(self.send(id, 10).await.0, 202);
        }
        ids
    }

    async fn call_as_operator(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let body = body.map(|document| document.to_string().into_bytes());
        verdict(self.node.operator().send(method, path, body, "application/json").await)
    }

    async fn queue(&self) -> Value {
        self.node.get("/v1/queues/paid?tenant=acme").await
    }

    /// Returns `Some` once no delivery of the queue is visible, leased or delayed.
    pub(crate) async fn is_drained(&self) -> Option<()> {
        let queue = self.queue().await;
        let left = ["depth", "in_flight", "delayed"].map(|member| queue[member].as_u64().unwrap());
        (left == [0, 0, 0]).then_some(())
    }

    pub(crate) async fn dead_letters(&self) -> Vec<Value> {
        let page = self.node.get("/v1/dead-letters?tenant=acme").await;
        page["items"].as_array().unwrap().clone()
    }
}

pub(crate) fn ids(requests: &[Asked]) -> Vec<&str> {
    requests.iter().map(|request| request.headers["webhook-id"].as_str()).collect()
}

fn is_signed(request: &Asked, secret: &Secret) -> bool {
    let [id, timestamp, signature] =
        ["webhook-id", "webhook-timestamp", "webhook-signature"].map(|name| request.headers[name].as_str());
    let signed = WebhookSignature::parse(id, timestamp, signature);
    signed.expect("the headers are right").verify(secret, &request.raw).is_some()
}

/// DLV-1, MSG-4
#[tokio::test]
async fn push_is_message_signed_with_destinations_secret() {
    let receiver = Processor::start().await;
    let hooks = Hooks::to(&receiver).await;
    let id = new_id();
    let (status, accepted) = hooks.send(&id, 10).await;
    assert_eq!(
        (status, &accepted["in_progress"]),
        (202, &Value::Null),
        "a queued push is complete for the sender: {accepted}"
    );
    let pushed = eventually("the event is pushed", async || receiver.asked().first().cloned()).await;
    assert_eq!((&pushed.body["eventId"], &pushed.body["data"]["amount"]), (&json!(id), &json!(10)));
    assert_eq!(
        (pushed.headers["webhook-id"].as_str(), pushed.headers["snavio-attempt"].as_str()),
        (&*id, "1")
    );
    assert_eq!(pushed.headers["snavio-delivery-id"], accepted["delivery_id"].to_string());
    assert!(is_signed(&pushed, &hooks.secrets[PAID]));
    assert!(
        !is_signed(&pushed, &hooks.shop.secret().unwrap()),
        "a push is not signed with a key of a service"
    );
    eventually("the push is acknowledged", async || hooks.is_drained().await).await;
    let (_, again) = hooks.send(&id, 10).await;
    assert_eq!(again["duplicate"], true, "{again}");
    assert_eq!(receiver.asked().len(), 1);

    let shown = [SUBSCRIPTION, "/v1/registry?kind=push_secret&limit=10", "/v1/registry/changes?since=0"];
    for path in shown {
        let text = hooks.node.get(path).await.to_string();
        assert!(!text.contains("whsec_") && !text.contains("\"secret\""), "{path}: {text}");
    }
    let (status, put) =
        hooks.call_as_operator(Method::PUT, SUBSCRIPTION, Some(hook(&receiver.url(), &json!({})))).await;
    assert_eq!((status, &put["push_secret"]), (200, &Value::Null), "the secret is shown once: {put}");
}

/// MSG-4, DLV-1
#[tokio::test]
async fn both_secrets_sign_during_rotation() {
    let receiver = Processor::start().await;
    let hooks = Hooks::to(&receiver).await;
    let rotate = format!("{SUBSCRIPTION}/push-secret/rotate");
    let (status, made) =
        hooks.call_as_operator(Method::POST, &rotate, Some(json!({ "why": "exercise" }))).await;
    assert_eq!((status, &made["destination"]), (201, &json!(PAID)), "{made}");
    let next = Secret::parse(made["push_secret"].as_str().unwrap()).unwrap();
    hooks.sends(1).await;
    let pushed = eventually("the message is pushed", async || receiver.asked().first().cloned()).await;
    assert!(is_signed(&pushed, &hooks.secrets[PAID]) && is_signed(&pushed, &next), "{:?}", pushed.headers);
    assert_eq!(pushed.headers["webhook-signature"].split(' ').count(), 2);

    let printed = Shell::at(&hooks.node).run(&format!("--output json push rotate {PAID}")).json();
    let third = Secret::parse(printed["push_secret"].as_str().unwrap()).unwrap();
    hooks.sends(1).await;
    let pushed = eventually("the second one, too", async || receiver.asked().get(1).cloned()).await;
    assert!(
        is_signed(&pushed, &next) && is_signed(&pushed, &third) && !is_signed(&pushed, &hooks.secrets[PAID])
    );
}

/// DLV-4: the gateway waits as long as the receiver asks, keeps one delivery id, and takes only a 2xx as
/// acknowledgement.
#[tokio::test]
async fn retry_after_of_receiver_is_respected() {
    let (receiver, elsewhere) = (Processor::start().await, Processor::start().await);
    receiver.answers([
        Reply::new(503, "busy").header("Retry-After", "3"),
        Reply::new(302, "").header("Location", &elsewhere.url()),
    ]);
    let hooks = Hooks::to(&receiver).await;
    let began = tokio::time::Instant::now();
    hooks.sends(1).await;
    eventually("the first attempt", async || (!receiver.asked().is_empty()).then_some(())).await;
    eventually("the second", async || (receiver.asked().len() >= 2).then_some(())).await;
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
    eventually("the third attempt is acknowledged", async || hooks.is_drained().await).await;
    let pushed = receiver.asked();
    let values =
        |header: &str| pushed.iter().map(|request| request.headers[header].clone()).collect::<Vec<_>>();
    assert_eq!(values("snavio-attempt"), ["1", "2", "3"]);
    let deliveries = values("snavio-delivery-id");
    assert!(deliveries.iter().all(|id| *id == deliveries[0]), "{deliveries:?}");
    assert!(
        pushed.iter().all(|request| is_signed(request, &hooks.secrets[PAID])),
        "each is signed with its own time"
    );
    assert_eq!(elsewhere.asked().len(), 0, "redirects are not followed");
}

/// DLV-1, DLV-4, PIP-13: a failing receiver of one subscription does not affect the others.
#[tokio::test]
async fn only_failing_subscription_is_called_again() {
    let receivers = [Processor::start().await, Processor::start().await, Processor::start().await];
    receivers[2].answers([Reply::new(503, "busy"), Reply::new(503, "busy")]);
    let names = ["one", "two", "three"];
    let subscriptions = names.iter().zip(&receivers).map(|(name, receiver)| {
        hook(&receiver.url(), &json!({ "target": format!("acme/{name}"), "queue": name }))
    });
    let hooks = Hooks::with(subscriptions.collect()).await;
    assert_eq!(hooks.secrets.len(), 3, "each destination has a secret of its own");
    let id = new_id();
    let (status, accepted) = hooks.send(&id, 10).await;
    assert_eq!((status, accepted["subscriptions"].as_array().unwrap().len()), (202, 3), "{accepted}");
    eventually("all have acknowledged it", async || {
        for name in names {
            let queue = hooks.node.get(&format!("/v1/queues/{name}?tenant=acme")).await;
            if ["depth", "in_flight", "delayed"].iter().any(|member| queue[member] != 0) {
                return None;
            }
        }
        Some(())
    })
    .await;
    let (status, again) = hooks.send(&id, 10).await;
    assert_eq!((status, &again["duplicate"]), (200, &json!(true)), "{again}");
    let counts = receivers.each_ref().map(|receiver| receiver.asked().len());
    assert_eq!(counts, [1, 1, 3], "a duplicate adds no push");
    let pushed = receivers[2].asked();
    let delivery = &pushed[0].headers["snavio-delivery-id"];
    assert!(pushed.iter().all(|request| request.headers["snavio-delivery-id"] == *delivery), "{pushed:?}");
    assert!(
        pushed.iter().all(|request| is_signed(request, &hooks.secrets["acme/three:acme/shop:order.paid"]))
    );
    assert!(!is_signed(&pushed[0], &hooks.secrets["acme/one:acme/shop:order.paid"]));
}

/// DLV-4
#[tokio::test]
async fn unacknowledged_push_becomes_dead_letter_with_last_error() {
    let receiver = Processor::start().await;
    receiver.answers([Reply::new(500, "no"), Reply::new(301, "elsewhere"), Reply::new(422, "no")]);
    let hooks = Hooks::with(vec![hook(&receiver.url(), &json!({ "receives_max": 3 }))]).await;
    let [id] = <[String; 1]>::try_from(hooks.sends(1).await).unwrap();
    let letter = eventually("all attempts are used", async || hooks.dead_letters().await.pop()).await;
    assert_eq!((&letter["message_id"], &letter["attempts"]), (&json!(id), &json!(3)), "{letter}");
    assert_eq!(
        (&letter["reason"], &letter["error"]),
        (&json!("failed"), &json!("the receiver answered 422"))
    );
    let shown = hooks.node.get(&format!("/v1/dead-letters/{}?tenant=acme", letter["id"])).await;
    assert_eq!(shown["error"], letter["error"]);
    assert_eq!(receiver.asked().len(), 3);
    // After a redrive the message is pushed again under the same ids.
    let redrive = format!("/v1/dead-letters/{}/redrive?tenant=acme", letter["id"]);
    assert_eq!(hooks.call_as_operator(Method::POST, &redrive, Some(json!({ "why": "fixed" }))).await.0, 200);
    eventually("the push is acknowledged", async || hooks.is_drained().await).await;
    let pushed = receiver.asked();
    assert_eq!(pushed[3].headers["snavio-delivery-id"], pushed[0].headers["snavio-delivery-id"]);
}

/// DLV-1
#[tokio::test]
async fn gone_receiver_is_not_called_until_enabled() {
    let receiver = Processor::start().await;
    receiver.answers([Reply::new(410, "gone")]);
    let hooks = Hooks::to(&receiver).await;
    let first = hooks.sends(1).await;
    let disabled = eventually("the subscription is disabled", async || {
        let route = hooks.node.get(SUBSCRIPTION).await;
        route["disabled"].as_object().is_some().then(|| route["disabled"].clone())
    })
    .await;
    assert_eq!(disabled["why"], "the receiver answered 410: it wants no more", "{disabled}");
    let changes = hooks.node.get("/v1/registry/changes?since=0&limit=1000").await;
    let change = changes["items"].as_array().unwrap().last().unwrap();
    assert_eq!(change["who"], "snavio (push)", "{change}");
    let record = eventually("the disabling is recorded", async || {
        let page = hooks.node.get("/v1/telemetry?tenant=acme&type=snavio.route.disabled").await;
        page["items"].as_array().and_then(|items| items.first()).cloned()
    })
    .await;
    assert_eq!(record["destination"], PAID, "{record}");

    // Messages wait meanwhile, also over a restart, and an unchanged file does not enable the subscription.
    let second = hooks.sends(2).await;
    let mut hooks = hooks;
    hooks.node.stop();
    hooks.node.restart(&launch());
    let again = json!({ "subscriptions": [hook(&receiver.url(), &json!({}))] });
    hooks.node.apply(&again).await;
    let queue = eventually("all of them wait", async || {
        let queue = hooks.queue().await;
        let waiting = queue["depth"].as_u64().unwrap() + queue["delayed"].as_u64().unwrap();
        (waiting == 3).then_some(queue)
    })
    .await;
    assert_eq!(queue["target"]["disabled"]["why"], disabled["why"], "{queue}");
    assert_eq!(receiver.asked().len(), 1);

    let shell = Shell::at(&hooks.node);
    let status = shell.run(&format!("--output json push status {PAID}")).json();
    assert_eq!((&status["kind"], &status["disabled"]["why"]), (&json!("push"), &disabled["why"]), "{status}");
    let enabled = shell.run(&format!("push enable {PAID} --why repaired"));
    assert_eq!(enabled.code, Some(0), "{enabled:?}");
    eventually("all pushes are acknowledged", async || hooks.is_drained().await).await;
    let pushed = receiver.asked();
    let mut acknowledged = ids(&pushed[1..]);
    acknowledged.sort_unstable();
    let mut sent: Vec<_> = first.iter().chain(&second).map(String::as_str).collect();
    sent.sort_unstable();
    assert_eq!(acknowledged, sent);
    assert!(hooks.dead_letters().await.is_empty());
}

/// DLV-4: deliveries that wait when a person disables their route were not attempted and lose no attempts.
#[tokio::test]
async fn disabling_route_with_backlog_makes_no_dead_letters() {
    for order in [None, Some(json!({ "entity": "/order", "number": "/n", "mode": "strict" }))] {
        let receiver = Processor::start().await;
        receiver.takes(Duration::from_millis(100));
        let mut on = hook(&receiver.url(), &json!({ "receives_max": 1 }));
        if let Some(order) = &order {
            on["order"] = order.clone();
        }
        let mut off = on.clone();
        off["disabled"] = json!({ "why": "migration" });
        let hooks = Hooks::with(vec![off.clone()]).await;
        let put = async |subscription: &Value| {
            let (status, answer) =
                hooks.call_as_operator(Method::PUT, SUBSCRIPTION, Some(subscription.clone())).await;
            assert_eq!(status, 200, "{answer}");
        };
        for batch in 0..10 {
            let events = (0..100).map(|n| {
                json!({ "eventId": format!("e-{batch}-{n:02}"), "eventType": "order.paid",
                    "data": { "order": n, "n": batch + 1 } })
            });
            let events = Value::from_iter(events).to_string();
            let sent = post_json(&hooks.node, "/v1/events/batch", &hooks.token, events).send().await;
            assert_eq!(sent.unwrap().status().as_u16(), 200);
        }
        put(&on).await;
        eventually("some are pushed", async || (!receiver.asked().is_empty()).then_some(())).await;
        put(&off).await;
        let queue = eventually("calls under way have ended, and the queue has no runner", async || {
            let queue = hooks.queue().await;
            (queue["in_flight"] == 0 && queue["target"]["calls"] == 0).then_some(queue)
        })
        .await;
        let waiting = queue["depth"].as_u64().unwrap() + queue["delayed"].as_u64().unwrap();
        assert_eq!(hooks.dead_letters().await, [] as [Value; 0], "{order:?}");
        assert_eq!(waiting + receiver.asked().len() as u64, 1000, "{queue}");
        receiver.takes(Duration::ZERO);
        put(&on).await;
        within(Duration::from_secs(120), "all pushes are acknowledged", async || hooks.is_drained().await)
            .await;
        assert_eq!(hooks.dead_letters().await, [] as [Value; 0], "{order:?}");
        let pushed = receiver.asked();
        assert!(pushed.iter().all(|request| request.headers["snavio-attempt"] == "1"), "{order:?}");
        let acknowledged: std::collections::BTreeSet<_> = ids(&pushed).into_iter().collect();
        assert_eq!((acknowledged.len(), pushed.len()), (1000, 1000), "each once: {order:?}");
    }
}

/// DLV-4: while a receiver is down, waiting deliveries lose no attempts, and all are delivered when it is up
/// again.
#[tokio::test]
async fn backlog_of_dead_receiver_drains_when_it_returns() {
    let reserved = Reserved::new();
    let mut hooks = Hooks::with(vec![hook(&reserved.url(), &json!({ "receives_max": 10 }))]).await;
    let sent = hooks.sends(100).await;
    let queue = eventually("the circuit breaker is open", async || {
        let queue = hooks.queue().await;
        (queue["target"]["breaker"] == "open").then_some(queue)
    })
    .await;
    assert!(queue["target"]["failures"].as_u64().unwrap() >= 5, "{queue}");
    assert!(queue["target"]["probes_at"].is_string(), "{queue}");
    let breaker = r#"snavio_target_breaker{tenant="acme",queue="paid"}"#;
    eventually("the metric shows the open breaker", async || {
        metric(&hooks.node, breaker).await.filter(|value| *value == 2.0)
    })
    .await;
    assert!(metric(&hooks.node, "snavio_target_breaks_total").await >= Some(1.0));
    assert!(hooks.node.said().contains("a target is down, and left alone for a while"));
    hooks.node.kill();
    hooks.node.restart(&launch());
    let receiver = Processor::on(reserved);
    within(Duration::from_secs(60), "it drains", async || hooks.is_drained().await).await;
    let pushed = receiver.asked();
    let acknowledged: std::collections::BTreeSet<_> = ids(&pushed).into_iter().collect();
    assert_eq!(acknowledged, sent.iter().map(String::as_str).collect(), "each is acknowledged");
    let attempts = pushed.iter().map(|request| request.headers["snavio-attempt"].parse::<u32>().unwrap());
    assert!(attempts.max() < Some(10), "waiting costs no attempts");
    assert!(hooks.dead_letters().await.is_empty());
    let queue = hooks.queue().await;
    assert_eq!((&queue["target"]["breaker"], &queue["target"]["failures"]), (&json!("closed"), &json!(0)));
}

/// DLV-1: commands are pushed in the form in which consumers get them, and in no other.
#[tokio::test]
async fn commands_are_pushed_in_their_native_form_only() {
    let receiver = Processor::start().await;
    let node = Node::launch(&launch());
    let cast = node.cast().await;
    let put = async |form: &str| {
        let route = json!({
            "queue": "hooks", "dead_letter_queue": "bot-dead",
            "processing": { "kind": "push", "url": receiver.url(), "form": form },
        });
        let body = Some(route.to_string().into_bytes());
        let path = "/v1/routes/acme/bot/hooked";
        verdict(node.operator().send(Method::PUT, path, body, "application/json").await)
    };
    let (status, refused) = put("cloudevents").await;
    assert_eq!((status, &refused["reason"]), (409, &json!("registry_conflict")), "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("a command is no event"), "{refused}");
    let (status, made) = put("native").await;
    assert_eq!(status, 201, "{made}");
    let secret = Secret::parse(made["push_secret"].as_str().unwrap()).unwrap();
    let grant = json!({ "grants": [{ "source": "acme/billing", "target": "acme/bot", "name": "hooked" }] });
    node.apply(&grant).await;
    let id = new_id();
    assert_eq!(post(&node.client(&cast.billing), Draft::new("hooked", &id).sign(&cast.billing)).await.0, 202);
    let pushed = eventually("the message is pushed", async || receiver.asked().first().cloned()).await;
    assert_eq!(
        (&pushed.body["metadata"]["id"], &pushed.body["command"]["source"]),
        (&json!(id), &json!("acme/billing"))
    );
    assert!(is_signed(&pushed, &secret));
    // A push ends only when its acknowledgement is stored. Until then the queue has work, and the route
    // stays.
    let gone = eventually("the route can be removed", async || {
        let path = "/v1/routes/acme/bot/hooked";
        let gone = verdict(node.operator().send(Method::DELETE, path, None, "").await);
        (gone.1["reason"] != "registry_conflict").then_some(gone)
    })
    .await;
    assert_eq!(
        gone.1["removed"],
        json!(["route acme/bot:hooked", "push_secret acme/bot:hooked"]),
        "{}",
        gone.1
    );
}

/// DLV-1, REG-4
#[tokio::test]
async fn apply_returns_secret_once_and_prune_removes_it() {
    let node = Node::launch(&launch());
    let shell = Shell::at(&node);
    let [with_push, without] =
        [json!([hook("http://127.0.0.1:9/", &json!({}))]), json!([])].map(|subscriptions| {
            let services = [json!({ "name": "acme/shop" }), json!({ "name": "acme/ledger" })];
            json!({
                "tenants": [{ "name": "acme" }], "services": services, "subscriptions": subscriptions,
                "event_types": [{ "owner": "acme/shop", "name": "order.paid" }],
            })
        });
    let pushed = shell.write("pushed.json", &with_push.to_string());
    let apply = format!("--output json apply -f {pushed} --credentials-dir {}", shell.path("kept"));
    let applied = shell.run(&apply).json();
    assert_eq!(applied["push_secrets"], json!([]), "the secret is in its file: {applied}");
    let saved =
        std::fs::read_to_string(shell.path("kept/push/acme/ledger/acme/shop/order.paid.json")).unwrap();
    let saved: Value = serde_json::from_str(&saved).unwrap();
    assert_eq!(saved["destination"], PAID);
    assert!(Secret::parse(saved["push_secret"].as_str().unwrap()).is_ok());
    assert_eq!(shell.run(&apply).json()["changes"], json!([]), "the same file changes nothing");
    let empty = shell.write("empty.json", &without.to_string());
    let pruned = shell.run(&format!("--output json apply -f {empty} --prune")).json();
    let removed: Vec<_> =
        pruned["changes"].as_array().unwrap().iter().map(|change| change["kind"].as_str().unwrap()).collect();
    assert_eq!(removed, ["subscription", "push_secret"], "{pruned}");
}

/// QUA-6: a private address is refused at registration, and a name that resolves to one is refused at the
/// call.
#[tokio::test]
async fn push_to_private_address_is_refused() {
    let receiver = Processor::start().await;
    let by_name = format!("https://localhost:{}/", receiver.port());
    let node = Node::start();
    let hooks = Hooks::on(node, vec![hook(&by_name, &json!({ "receives_max": 1 }))]).await;
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "user@example.com",
    ] {
        let url = format!("https://{host}:{}/", receiver.port());
        let (status, refused) =
            hooks.call_as_operator(Method::PUT, SUBSCRIPTION, Some(hook(&url, &json!({})))).await;
        assert_eq!((status, &refused["reason"]), (409, &json!("registry_conflict")), "{host}: {refused}");
        assert!(refused["detail"].as_str().unwrap().contains("processing.url"), "{host}: {refused}");
    }
    hooks.sends(1).await;
    let letter =
        eventually("the message becomes a dead letter", async || hooks.dead_letters().await.pop()).await;
    let error = letter["error"].as_str().unwrap();
    assert!(error.starts_with("the receiver may not be called: its name stands for an address"), "{error}");
    assert!(receiver.asked().is_empty());
}

/// DLV-1, REG-5: the secret of a removed route is gone and does not come back with the route.
#[tokio::test]
async fn restored_route_has_new_secret() {
    let receiver = Processor::start().await;
    let hooks = Hooks::to(&receiver).await;
    let version = hooks.node.get("/v1/registry?limit=1").await["version"].clone();
    assert_eq!(hooks.call_as_operator(Method::DELETE, SUBSCRIPTION, None).await.0, 200);
    let [plan, rollback] =
        [true, false].map(|dry_run| json!({ "version": version, "why": "oops", "dry_run": dry_run }));
    let (status, plan) = hooks.call_as_operator(Method::POST, "/v1/registry/rollback", Some(plan)).await;
    assert_eq!((status, &plan["push_secrets"]), (200, &Value::Null), "a dry run makes no secret: {plan}");
    let (status, made) = hooks.call_as_operator(Method::POST, "/v1/registry/rollback", Some(rollback)).await;
    assert_eq!((status, &made["push_secrets"][0]["destination"]), (200, &json!(PAID)), "{made}");
    let secret = Secret::parse(made["push_secrets"][0]["push_secret"].as_str().unwrap()).unwrap();
    assert_eq!(hooks.queue().await["target"]["problem"], Value::Null);
    hooks.sends(1).await;
    let pushed = eventually("the message is pushed", async || receiver.asked().first().cloned()).await;
    assert!(is_signed(&pushed, &secret) && !is_signed(&pushed, &hooks.secrets[PAID]));
}

/// ORD-3: one message of an entity is pushed at a time, lowest first, and a failed push is repeated before
/// later ones.
#[tokio::test]
async fn ordered_pushes_arrive_one_at_a_time() {
    let receiver = Processor::start().await;
    receiver.answers([Reply::new(201, ""), Reply::new(503, "busy")]);
    receiver.takes(Duration::from_millis(30));
    let order = json!({ "entity": "/order", "number": "/n", "mode": "strict" });
    let hooks = Hooks::with(vec![hook(&receiver.url(), &json!({ "order": order }))]).await;
    for number in 1..=5 {
        for entity in ["a", "b"] {
            let event = json!({ "eventId": format!("{entity}-{number}"), "eventType": "order.paid",
                "data": { "order": entity, "n": number } });
            let answer = post_json(&hooks.node, "/v1/events", &hooks.token, event.to_string()).send().await;
            assert_eq!(answer.unwrap().status().as_u16(), 202);
        }
    }
    eventually("all are pushed", async || hooks.is_drained().await).await;
    let pushed = receiver.asked();
    assert_eq!(pushed.len(), 11, "one push is repeated");
    for entity in ["a", "b"] {
        let of_entity = pushed.iter().filter(|request| request.body["data"]["order"] == *entity);
        let mut numbers: Vec<_> =
            of_entity.map(|request| request.body["data"]["n"].as_i64().unwrap()).collect();
        numbers.dedup();
        assert_eq!(numbers, [1, 2, 3, 4, 5], "{entity}");
    }
}
