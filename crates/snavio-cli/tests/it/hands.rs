//! A queue serves only one kind of processing: consumers, the gateway for a processor, or services that begin
//! their own claims (CLM-9). A change of the kind neither loses a waiting delivery nor gives it to the wrong
//! party (REG-24).

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::node::{Draft, new_id, post, verdict};
use crate::patience::eventually;
use crate::processing::{Books, http};
use crate::processor::{Processor, Reply};
use crate::wire::metric;

const SUBSCRIPTION: &str = "/v1/subscriptions/acme/ledger/acme/shop/order.paid";
const OTHER: &str = "/v1/routes/acme/ledger/other";

async fn call_as_operator(books: &Books, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
    let body = body.map(|body| body.to_string().into_bytes());
    verdict(books.node.operator().send(method, path, body, "application/json").await)
}

fn tracked() -> Value {
    json!({ "kind": "tracked" })
}

/// The settings that a route and a subscription share.
fn entry(queue: &str, processing: &Value) -> Value {
    json!({
        "queue": queue, "dead_letter_queue": "exceptions", "claim": { "policy": "ledger" },
        "processing": processing,
    })
}

/// The ledger's route `other` in a registry file.
fn other_route(queue: &str, processing: &Value) -> Value {
    let mut route = entry(queue, processing);
    (route["target"], route["name"]) = (json!("acme/ledger"), json!("other"));
    route
}

/// The ledger's subscription in a registry file.
fn paid_subscription(queue: &str, processing: &Value) -> Value {
    let mut subscription = entry(queue, processing);
    (subscription["target"], subscription["events_of"], subscription["name"]) =
        (json!("acme/ledger"), json!("acme/shop"), json!("order.paid"));
    subscription
}

async fn put(books: &Books, path: &str, queue: &str, processing: &Value) -> (u16, Value) {
    call_as_operator(books, Method::PUT, path, Some(entry(queue, processing))).await
}

async fn apply(books: &Books, file: Value) -> (u16, Value) {
    call_as_operator(books, Method::POST, "/v1/registry/apply", Some(file)).await
}

#[track_caller]
fn assert_refused((status, answer): (u16, Value), expected: &str) {
    assert_eq!((status, &answer["reason"]), (409, &json!("registry_conflict")), "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains(expected), "{expected}: {answer}");
}

/// CLM-9
#[tokio::test]
async fn queue_serves_a_single_kind_of_processing() {
    let processor = Processor::start().await;
    let called = http(&processor);
    let books = Books::set(called.clone()).await;
    let (subscription_worker, import_worker) = (
        "the gateway for subscription acme/ledger:acme/shop:order.paid",
        "whoever begins the claim for route acme/ledger:import",
    );
    let (plain, reported) = (json!({ "kind": "queue" }), json!({ "kind": "reported" }));
    for (processing, queue, worker, present_worker) in [
        (&plain, "paid", "consumers", subscription_worker),
        (&tracked(), "paid", "consumers", subscription_worker),
        (&reported, "paid", "whoever begins the claim", subscription_worker),
        (&plain, "imports", "consumers", import_worker),
        (&tracked(), "imports", "consumers", import_worker),
        (&called, "imports", "the gateway", import_worker),
    ] {
        let expected = format!(
            "route acme/ledger:other: queue {queue} is taken from by {worker}, and by {present_worker}: use another queue"
        );
        assert_refused(put(&books, OTHER, queue, processing).await, &expected);
    }
    let mut second = other_route("both", &tracked());
    second["name"] = json!("second");
    let both = json!({ "routes": [other_route("both", &called), second] });
    let refused = apply(&books, both).await;
    assert_refused(refused.clone(), "route acme/ledger:other: queue both is");
    assert_refused(refused, "route acme/ledger:second: queue both is");
    let received = books.worker().receive("paid", 1, Duration::from_secs(1), Duration::ZERO).await;
    let expected = "what waits here is processed by the gateway, or begun through the claims API";
    assert!(received.unwrap_err().to_string().contains(expected));

    let elsewhere = json!({
        "tenants": [{ "name": "zeta" }], "services": [{ "name": "zeta/worker" }],
        "routes": [{ "target": "zeta/worker", "name": "work", "queue": "paid", "dead_letter_queue": "dead" }],
    });
    books.node.apply(&elsewhere).await;
    // Two routes of one kind share a queue, and can then only change their kind together.
    assert_eq!(put(&books, OTHER, "paid", &called).await.0, 201);
    let expected = "queue paid is taken from by consumers, and by the gateway for route acme/ledger:other";
    assert_refused(put(&books, SUBSCRIPTION, "paid", &tracked()).await, expected);
    let file = json!({ "routes": [other_route("paid", &tracked())], "subscriptions": [paid_subscription("paid", &tracked())] });
    let (status, applied) = apply(&books, file).await;
    assert_eq!(status, 200, "{applied}");
    let received = books.worker().receive("paid", 1, Duration::from_secs(1), Duration::ZERO).await;
    assert!(received.expect("consumers can receive from the queue").is_empty());
}

/// CLM-9, REG-24
#[tokio::test]
async fn processor_finishes_its_queue_before_consumers_take_over() {
    let processor = Processor::start().await;
    processor.answers(["6", "6"].map(|seconds| Reply::new(503, "busy").header("Retry-After", seconds)));
    let called = http(&processor);
    let books = Books::set(called.clone()).await;
    let ids = [new_id(), new_id()];
    for id in &ids {
        books.send_waiting(id, 10, Some(0)).await;
    }
    let taken_over = "subscription acme/ledger:acme/shop:order.paid: who takes from its queue paid would be \
                      another, and it still holds something; let it be consumed first, or use another queue";
    assert_refused(put(&books, SUBSCRIPTION, "paid", &tracked()).await, taken_over);
    let left = "no other route names its queue paid, which still holds 2 deliveries; let them be consumed, or \
                purge it, first";
    assert_refused(call_as_operator(&books, Method::DELETE, SUBSCRIPTION, None).await, left);
    assert_refused(put(&books, SUBSCRIPTION, "elsewhere", &called).await, left);
    // A file that replaces the route by another one is refused, too.
    let replacement = json!({ "routes": [other_route("paid", &tracked())], "subscriptions": [paid_subscription("elsewhere", &called)] });
    let expected = "route acme/ledger:other: who takes from its queue paid would be another";
    assert_refused(apply(&books, replacement.clone()).await, expected);
    for id in &ids {
        let done = books.send_waiting(id, 10, Some(30)).await;
        assert_eq!(done.word(), (200, "COMPLETED"), "{}", done.text);
        assert!(done.document["reference"].as_str().unwrap().starts_with("JE-"), "{}", done.text);
    }
    assert_eq!(processor.asked().len(), 4);

    assert_eq!(put(&books, SUBSCRIPTION, "paid", &tracked()).await.0, 200);
    // The courier looks every half second for the targets that it calls. A delivery that it leases before
    // then is released with a delay of a minute.
    let calls = r#"snavio_target_calls{tenant="acme",queue="paid"}"#;
    eventually("the courier has stopped calling", async || {
        metric(&books.node, calls).await.is_none().then_some(())
    })
    .await;
    let id = new_id();
    books.send(&id, 10).await;
    let work = books.take(30).await;
    let (status, done) = books.report("complete", &work, json!({ "reference": "by hand" })).await;
    assert_eq!((status, &done["status"]), (200, &json!("COMPLETED")), "{done}");
    assert_eq!(books.send(&id, 10).await.document["reference"], "by hand");
    assert_eq!(processor.asked().len(), 4, "the processor is no longer called");
}

/// CLM-9, REG-24
#[tokio::test]
async fn consumers_finish_their_queue_before_a_processor_takes_over() {
    let processor = Processor::start().await;
    let called = http(&processor);
    let books = Books::set(tracked()).await;
    let ids = [new_id(), new_id()];
    for id in &ids {
        books.send(id, 10).await;
    }
    let taken_over = "who takes from its queue paid would be another, and it still holds something";
    for _ in &ids {
        assert_refused(put(&books, SUBSCRIPTION, "paid", &called).await, taken_over);
        let work = books.take(30).await;
        assert_refused(put(&books, SUBSCRIPTION, "paid", &called).await, taken_over);
        assert_eq!(books.report("complete", &work, json!({ "reference": "by hand" })).await.0, 200);
    }
    let waiting = tokio::spawn({
        let worker = books.worker();
        async move { worker.receive("paid", 1, Duration::from_secs(30), Duration::from_secs(20)).await }
    });
    // The time lets the request reach the queue, where it waits.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished());
    assert_eq!(put(&books, SUBSCRIPTION, "paid", &called).await.0, 200);
    let id = new_id();
    let done = books.send_waiting(&id, 10, Some(30)).await;
    assert_eq!(done.word(), (201, "COMPLETED"), "{}", done.text);
    assert_eq!(done.document["reference"], "JE-1");
    let waited = waiting.await.unwrap().unwrap_err().to_string();
    assert!(waited.contains("what waits here is processed by the gateway"), "{waited}");
    let asked = processor.asked();
    assert_eq!((asked.len(), asked[0].headers["idempotency-key"].as_str()), (1, id.as_str()));
    for id in &ids {
        assert_eq!(books.send(id, 10).await.document["reference"], "by hand");
    }
}

/// CLM-9, CLM-11: a removed route's deliveries, on a queue that another route still uses, become dead
/// letters. An operator can reprocess them once the route is registered again.
#[tokio::test]
async fn deliveries_of_a_removed_route_become_dead_letters() {
    let (processor, neighbour) = (Processor::start().await, Processor::start().await);
    processor.answers([Reply::new(503, "busy").header("Retry-After", "6")]);
    let books = Books::with(http(&processor), json!({ "receives_max": 2 })).await;
    assert_eq!(put(&books, OTHER, "paid", &http(&neighbour)).await.0, 201);
    let id = new_id();
    books.send_waiting(&id, 10, Some(0)).await;
    eventually("the first attempt failed", async || {
        (books.look_up(&id).await["outcome"] == "failed").then_some(())
    })
    .await;
    let (status, removed) = call_as_operator(&books, Method::DELETE, SUBSCRIPTION, None).await;
    assert_eq!(status, 200, "{removed}");
    let claim = eventually("its attempts are spent", async || {
        let claim = books.look_up(&id).await["claims"][0].clone();
        (claim["final"] == true).then_some(claim)
    })
    .await;
    assert_eq!((&claim["status"], &claim["attempts"]), (&json!("FAILED"), &json!(2)), "{claim}");
    assert_eq!(claim["error"], "its route names no processor any more");
    let (_, letters) = books.ask(Method::GET, "/v1/dead-letters", None).await;
    assert_eq!(letters["items"][0]["reason"], "receives_exhausted", "{letters}");
    assert_eq!(
        (processor.asked().len(), neighbour.asked().len()),
        (1, 0),
        "the other processor is not called"
    );

    let restored = json!({ "subscriptions": [paid_subscription("paid", &http(&processor))] });
    assert_eq!(apply(&books, restored).await.0, 200);
    let reprocess = format!("/v1/claims/{id}/reprocess");
    let why = json!({ "why": "the subscription is back" });
    assert_eq!(books.ask(Method::POST, &reprocess, Some(why)).await.0, 200);
    let done = books.send_waiting(&id, 10, Some(30)).await;
    assert_eq!((done.word(), &done.document["reference"]), ((200, "COMPLETED"), &json!("JE-1")));
    assert_eq!((processor.asked().len(), neighbour.asked().len()), (2, 0));
}

/// CLM-9, CLM-10: on a `reported` route only its own service begins work. The gateway refuses messages for
/// it, and a refused message makes no claim.
#[tokio::test]
async fn reported_route_accepts_no_messages() {
    let books = Books::set(tracked()).await;
    let grants = json!({ "grants": [{ "source": "acme/shop", "target": "acme/ledger", "name": "import" }] });
    books.node.apply(&grants).await;
    let id = new_id();
    let send = async || {
        let draft = Draft { target: "acme/ledger".to_owned(), ..Draft::new("import", &id) };
        let (status, refused) = post(&books.node.client(&books.shop), draft.sign(&books.shop)).await;
        assert_eq!((status, &refused["reason"]), (404, &json!("route-missing")), "{refused}");
        let expected =
            "the target begins this work by itself, through the claims API, and takes no messages for it";
        assert_eq!(
            (&refused["detail"], &refused["accepted"]),
            (&json!(expected), &json!(false)),
            "{refused}"
        );
    };
    let call_claim = async |action: &str, body: Value| {
        books.ask(Method::POST, &format!("/v1/claims/import/{action}"), Some(body)).await
    };
    let beginning = json!({ "id": id, "payload": { "user": "u-1" } });
    send().await;
    assert_eq!(books.look_up(&id).await["outcome"], "never_seen");
    let (status, begun) = call_claim("begin", beginning.clone()).await;
    assert_eq!((status, &begun["is_new"], &begun["attempt"]), (201, &json!(true), &json!(1)), "{begun}");
    send().await;
    let report = json!({ "delivery_id": begun["delivery_id"], "fence": begun["fence"], "reference": "B-1" });
    let (status, done) = call_claim("complete", report).await;
    assert_eq!((status, &done["status"]), (200, &json!("COMPLETED")), "{done}");
    send().await;
    let (status, known) = call_claim("begin", beginning).await;
    assert_eq!(
        (status, &known["is_new"], &known["reference"]),
        (200, &json!(false), &json!("B-1")),
        "{known}"
    );

    let subscribed = put(&books, SUBSCRIPTION, "reports", &json!({ "kind": "reported" })).await;
    assert_refused(subscribed, "processing.kind reported is for work that its service begins by itself");
}
