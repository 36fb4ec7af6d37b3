//! Who takes from a queue: consumers, the gateway for a processor, or whoever begins a claim, and one of them only
//! (CLM-9). What waits when a route changes hands is neither lost nor taken by the wrong one (REG-24). From outside.

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

async fn operate(books: &Books, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
    let body = body.map(|it| it.to_string().into_bytes());
    verdict(books.node.operator().send(method, path, body, "application/json").await)
}

fn tracked() -> Value {
    json!({ "kind": "tracked" })
}

fn entry(queue: &str, processing: &Value) -> Value {
    json!({
        "queue": queue, "dead_letter_queue": "exceptions", "claim": { "policy": "ledger" },
        "processing": processing,
    })
}

/// The route `other` of the ledger, for a file.
fn other(queue: &str, processing: &Value) -> Value {
    let mut route = entry(queue, processing);
    (route["target"], route["name"]) = (json!("acme/ledger"), json!("other"));
    route
}

/// The subscription of the ledger, for a file.
fn paid(queue: &str, processing: &Value) -> Value {
    let mut route = entry(queue, processing);
    (route["target"], route["events_of"], route["name"]) =
        (json!("acme/ledger"), json!("acme/shop"), json!("order.paid"));
    route
}

async fn put(books: &Books, path: &str, queue: &str, processing: &Value) -> (u16, Value) {
    operate(books, Method::PUT, path, Some(entry(queue, processing))).await
}

async fn apply(books: &Books, file: Value) -> (u16, Value) {
    operate(books, Method::POST, "/v1/registry/apply", Some(file)).await
}

#[track_caller]
fn is_refused((status, answer): (u16, Value), says: &str) {
    assert_eq!((status, &answer["reason"]), (409, &json!("registry_conflict")), "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains(says), "{says}: {answer}");
}

/// CLM-9
#[tokio::test]
async fn a_queue_is_taken_from_by_consumers_the_gateway_or_a_worker_and_by_one_of_them_only() {
    let processor = Processor::start().await;
    let called = http(&processor);
    let books = Books::set(called.clone()).await;
    let (subscribed, imported) = (
        "the gateway for subscription acme/ledger:acme/shop:order.paid",
        "whoever begins the claim for route acme/ledger:import",
    );
    let (plain, reported) = (json!({ "kind": "queue" }), json!({ "kind": "reported" }));
    for (processing, queue, by, and_by) in [
        (&plain, "paid", "consumers", subscribed),
        (&tracked(), "paid", "consumers", subscribed),
        (&reported, "paid", "whoever begins the claim", subscribed),
        (&plain, "imports", "consumers", imported),
        (&tracked(), "imports", "consumers", imported),
        (&called, "imports", "the gateway", imported),
    ] {
        let says = format!(
            "route acme/ledger:other: queue {queue} is taken from by {by}, and by {and_by}: use another queue"
        );
        is_refused(put(&books, OTHER, queue, processing).await, &says);
    }
    let mut second = other("both", &tracked());
    second["name"] = json!("second");
    let both = json!({ "routes": [other("both", &called), second] });
    let (one, other_one) =
        ("route acme/ledger:other: queue both is", "route acme/ledger:second: queue both is");
    let refused = apply(&books, both).await;
    is_refused(refused.clone(), one);
    is_refused(refused, other_one);
    let received = books.worker().receive("paid", 1, Duration::from_secs(1), Duration::ZERO).await;
    let says = "what waits here is processed by the gateway, or begun through the claims API";
    assert!(received.unwrap_err().to_string().contains(says));

    let elsewhere = json!({
        "tenants": [{ "name": "zeta" }], "services": [{ "name": "zeta/worker" }],
        "routes": [{ "target": "zeta/worker", "name": "work", "queue": "paid", "dead_letter_queue": "dead" }],
    });
    books.node.apply(&elsewhere).await;
    // Two of a kind share, and then change hands together or not at all.
    assert_eq!(put(&books, OTHER, "paid", &called).await.0, 201);
    let says = "queue paid is taken from by consumers, and by the gateway for route acme/ledger:other";
    is_refused(put(&books, SUBSCRIPTION, "paid", &tracked()).await, says);
    let file = json!({ "routes": [other("paid", &tracked())], "subscriptions": [paid("paid", &tracked())] });
    let (status, applied) = apply(&books, file).await;
    assert_eq!(status, 200, "{applied}");
    let received = books.worker().receive("paid", 1, Duration::from_secs(1), Duration::ZERO).await;
    assert!(received.expect("it is the consumers' now").is_empty());
}

/// CLM-9, REG-24
#[tokio::test]
async fn what_waits_for_a_processor_is_called_for_before_consumers_take_over() {
    let processor = Processor::start().await;
    let busy = || Reply::new(503, "busy").header("Retry-After", "6");
    processor.answers([busy(), busy()]);
    let called = http(&processor);
    let books = Books::set(called.clone()).await;
    let ids = [new_id(), new_id()];
    for id in &ids {
        books.send_waiting(id, 10, Some(0)).await;
    }
    let taken_over = "subscription acme/ledger:acme/shop:order.paid: who takes from its queue paid would be \
                      another, and it still holds something; let it be consumed first, or use another queue";
    is_refused(put(&books, SUBSCRIPTION, "paid", &tracked()).await, taken_over);
    let left = "no other route names its queue paid, which still holds 2 deliveries; let them be consumed, or \
                purge it, first";
    is_refused(operate(&books, Method::DELETE, SUBSCRIPTION, None).await, left);
    is_refused(put(&books, SUBSCRIPTION, "elsewhere", &called).await, left);
    // Nor by another route that comes in its place.
    let replaced =
        json!({ "routes": [other("paid", &tracked())], "subscriptions": [paid("elsewhere", &called)] });
    let says = "route acme/ledger:other: who takes from its queue paid would be another";
    is_refused(apply(&books, replaced.clone()).await, says);
    for id in &ids {
        let done = books.send_waiting(id, 10, Some(30)).await;
        assert_eq!(done.word(), (200, "COMPLETED"), "{}", done.text);
        assert!(done.document["reference"].as_str().unwrap().starts_with("JE-"), "{}", done.text);
    }
    assert_eq!(processor.asked().len(), 4);

    assert_eq!(put(&books, SUBSCRIPTION, "paid", &tracked()).await.0, 200);
    // The courier looks every half second for whom it calls; what it takes until then it gives back for a minute.
    let calls = r#"snavio_target_calls{tenant="acme",queue="paid"}"#;
    let nobody = async || metric(&books.node, calls).await.is_none().then_some(());
    eventually("nobody is called", nobody).await;
    let id = new_id();
    books.send(&id, 10).await;
    let work = books.take(30).await;
    let (status, done) = books.report("complete", &work, json!({ "reference": "by hand" })).await;
    assert_eq!((status, &done["status"]), (200, &json!("COMPLETED")), "{done}");
    assert_eq!(books.send(&id, 10).await.document["reference"], "by hand");
    assert_eq!(processor.asked().len(), 4, "the processor is not called any more");
}

/// CLM-9, REG-24
#[tokio::test]
async fn what_waits_for_consumers_is_not_called_for_and_those_who_wait_get_nothing_more() {
    let processor = Processor::start().await;
    let called = http(&processor);
    let books = Books::set(tracked()).await;
    let ids = [new_id(), new_id()];
    for id in &ids {
        books.send(id, 10).await;
    }
    let taken_over = "who takes from its queue paid would be another, and it still holds something";
    for _ in &ids {
        is_refused(put(&books, SUBSCRIPTION, "paid", &called).await, taken_over);
        let work = books.take(30).await;
        is_refused(put(&books, SUBSCRIPTION, "paid", &called).await, taken_over);
        assert_eq!(books.report("complete", &work, json!({ "reference": "by hand" })).await.0, 200);
    }
    let waiting = tokio::spawn({
        let worker = books.worker();
        async move { worker.receive("paid", 1, Duration::from_secs(30), Duration::from_secs(20)).await }
    });
    // It waits once its question has come as far as the queue.
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

/// CLM-9, CLM-11: on a queue that another route keeps, what waits for a route that is gone ends as a dead letter, and is
/// done once the route is there again.
#[tokio::test]
async fn what_waits_for_a_route_that_is_gone_is_not_called_for_and_ends_on_record() {
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
    let (status, gone) = operate(&books, Method::DELETE, SUBSCRIPTION, None).await;
    assert_eq!(status, 200, "{gone}");
    let claim = eventually("its attempts are spent", async || {
        let claim = books.look_up(&id).await["claims"][0].clone();
        (claim["final"] == true).then_some(claim)
    })
    .await;
    assert_eq!((&claim["status"], &claim["attempts"]), (&json!("FAILED"), &json!(2)), "{claim}");
    assert_eq!(claim["error"], "its route names no processor any more");
    let (_, letters) = books.ask(Method::GET, "/v1/dead-letters", None).await;
    assert_eq!(letters["items"][0]["reason"], "receives_exhausted", "{letters}");
    assert_eq!((processor.asked().len(), neighbour.asked().len()), (1, 0), "nobody else is called for it");

    let again = json!({ "subscriptions": [paid("paid", &http(&processor))] });
    assert_eq!(apply(&books, again).await.0, 200);
    let reprocess = format!("/v1/claims/{id}/reprocess");
    let why = json!({ "why": "the subscription is back" });
    assert_eq!(books.ask(Method::POST, &reprocess, Some(why)).await.0, 200);
    let done = books.send_waiting(&id, 10, Some(30)).await;
    assert_eq!((done.word(), &done.document["reference"]), ((200, "COMPLETED"), &json!("JE-1")));
    assert_eq!((processor.asked().len(), neighbour.asked().len()), (2, 0));
}

/// CLM-9, CLM-10: such work is begun by its service, and takes no messages; a refused one claims nothing.
#[tokio::test]
async fn a_route_whose_work_is_begun_by_its_service_takes_no_messages() {
    let books = Books::set(tracked()).await;
    let grants = json!({ "grants": [{ "source": "acme/shop", "target": "acme/ledger", "name": "import" }] });
    books.node.apply(&grants).await;
    let id = new_id();
    let send = async || {
        let draft = Draft { target: "acme/ledger".to_owned(), ..Draft::new("import", &id) };
        let (status, refused) = post(&books.node.client(&books.shop), draft.sign(&books.shop)).await;
        assert_eq!((status, &refused["reason"]), (404, &json!("route-missing")), "{refused}");
        let says =
            "the target begins this work by itself, through the claims API, and takes no messages for it";
        assert_eq!((&refused["detail"], &refused["accepted"]), (&json!(says), &json!(false)), "{refused}");
    };
    let work = async |how: &str, body: Value| {
        books.ask(Method::POST, &format!("/v1/claims/import/{how}"), Some(body)).await
    };
    let beginning = json!({ "id": id, "payload": { "user": "u-1" } });
    send().await;
    assert_eq!(books.look_up(&id).await["outcome"], "never_seen");
    let (status, begun) = work("begin", beginning.clone()).await;
    assert_eq!((status, &begun["is_new"], &begun["attempt"]), (201, &json!(true), &json!(1)), "{begun}");
    send().await;
    let report = json!({ "delivery_id": begun["delivery_id"], "fence": begun["fence"], "reference": "B-1" });
    let (status, done) = work("complete", report).await;
    assert_eq!((status, &done["status"]), (200, &json!("COMPLETED")), "{done}");
    send().await;
    let (status, known) = work("begin", beginning).await;
    assert_eq!(
        (status, &known["is_new"], &known["reference"]),
        (200, &json!(false), &json!("B-1")),
        "{known}"
    );

    let subscribed = put(&books, SUBSCRIPTION, "reports", &json!({ "kind": "reported" })).await;
    is_refused(subscribed, "processing.kind reported is for work that its service begins by itself");
}
