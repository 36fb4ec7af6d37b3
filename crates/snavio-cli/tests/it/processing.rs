//! Messages whose worker reports the outcome (CLM-4 to CLM-7, CLM-9 to CLM-11), over HTTP.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::id::Serial;
use snavio_sdk::{Client, Credentials, Delivery};

use crate::node::{Launch, Node, new_id, verdict};
use crate::patience::eventually;
use crate::people::issue;
use crate::processor::{Processor, Reply, Reserved};
use crate::shell::Shell;
use crate::wire::{metric, post_json};

pub(crate) const PAID: &str = "acme/ledger:acme/shop:order.paid";

/// A node where `acme/shop` publishes `order.paid` and `acme/ledger` subscribes to it with a given
/// processing. `acme/ledger` also has the route `import`, whose workers begin and report work.
pub(crate) struct Books {
    pub(crate) node: Node,
    pub(crate) shop: Credentials,
    ledger: Credentials,
    token: String,
}

/// An answer with its headers.
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) replayed: bool,
    pub(crate) retry_after: Option<u64>,
    pub(crate) text: String,
    pub(crate) document: Value,
}

impl Told {
    pub(crate) fn word(&self) -> (u16, &str) {
        let word = self.document["reason"].as_str().or(self.document["state"].as_str());
        (self.status, word.unwrap_or_default())
    }

    /// The processor's response in the answer, byte for byte.
    pub(crate) fn response(&self) -> &str {
        let begin = self.text.find("\"response\":").expect("there is a response") + 11;
        let end = self.text[begin..].find('}').expect("it ends") + begin + 1;
        &self.text[begin..end]
    }
}

impl Books {
    pub(crate) async fn set(processing: Value) -> Self {
        Self::with(processing, json!({})).await
    }

    pub(crate) async fn with(processing: Value, more: Value) -> Self {
        Self::launched(&Launch::default().set("OUTGOING_ALLOWED", "127.0.0.0/8"), processing, more).await
    }

    pub(crate) async fn launched(launch: &Launch, processing: Value, more: Value) -> Self {
        let node = Node::launch(launch);
        let mut subscription = json!({
            "target": "acme/ledger", "events_of": "acme/shop", "name": "order.paid", "queue": "paid",
            "dead_letter_queue": "exceptions", "claim": { "policy": "ledger" }, "processing": processing,
        });
        for (name, value) in more.as_object().unwrap() {
            subscription[name] = value.clone();
        }
        let registry = json!({
            "tenants": [{ "name": "acme" }],
            "services": [{ "name": "acme/shop" }, { "name": "acme/ledger" }],
            "event_types": [{ "owner": "acme/shop", "name": "order.paid" }],
            "subscriptions": [subscription],
            "routes": [{
                "target": "acme/ledger", "name": "import", "queue": "imports", "dead_letter_queue": "exceptions",
                "claim": { "policy": "ledger" },
                "processing": { "kind": "reported", "deadline_seconds": 6, "backoff_seconds": 1 },
            }],
        });
        let [shop, ledger] = <[Credentials; 2]>::try_from(node.apply(&registry).await).unwrap();
        let token = node.token(&shop).await;
        Self { node, shop, ledger, token }
    }

    /// Starts the node again on the same store; its process must have ended.
    pub(crate) async fn restart(&mut self, launch: &Launch) {
        self.node.restart(launch);
        self.token = self.node.token(&self.shop).await;
    }

    pub(crate) async fn send(&self, id: &str, amount: u32) -> Told {
        self.send_waiting(id, amount, None).await
    }

    pub(crate) async fn send_waiting(&self, id: &str, amount: u32, wait: Option<u32>) -> Told {
        let event = json!({ "eventId": id, "eventType": "order.paid", "data": { "amount": amount } });
        let mut request = post_json(&self.node, "/v1/events", &self.token, event.to_string());
        if let Some(wait) = wait {
            request = request.header("prefer", format!("respond-async, wait={wait}"));
        }
        let answer = request.send().await.expect("the node answers");
        let replayed = header(&answer, "snavio-replayed") == Some("true");
        let retry_after = header(&answer, "retry-after").and_then(|value| value.parse().ok());
        let status = answer.status().as_u16();
        let text = answer.text().await.expect("the answer is complete");
        let document = serde_json::from_str(&text).expect("it is JSON");
        Told { status, replayed, retry_after, text, document }
    }

    pub(crate) fn worker(&self) -> Client {
        self.node.client(&self.ledger)
    }

    pub(crate) async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let api = self.worker().authorized().await.expect("the service is authenticated");
        let body = body.map(|document| document.to_string().into_bytes());
        verdict(api.send(method, path, body, "application/json").await)
    }

    pub(crate) async fn look_up(&self, id: &str) -> Value {
        let (status, found) = self.ask(Method::GET, &format!("/v1/claims/{id}"), None).await;
        assert_eq!(status, 200, "{found}");
        found
    }

    pub(crate) async fn take(&self, seconds: u64) -> Delivery {
        let (visibility, wait) = (Duration::from_secs(seconds), Duration::from_secs(10));
        let mut received =
            self.worker().receive("paid", 1, visibility, wait).await.expect("it can be received");
        received.pop().expect("there is work")
    }

    pub(crate) async fn report(&self, report: &str, work: &Delivery, more: Value) -> (u16, Value) {
        let mut body = json!({ "delivery_id": work.delivery_id, "fence": work.fence });
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        self.ask(Method::POST, &format!("/v1/claims/order.paid/{report}"), Some(body)).await
    }
}

fn header<'a>(answer: &'a reqwest::Response, name: &str) -> Option<&'a str> {
    answer.headers().get(name).and_then(|value| value.to_str().ok())
}

/// Begins work on the route `import`.
async fn begin_import(books: &Books, id: &str, payload: Value) -> (u16, Value) {
    let body = json!({ "id": id, "payload": payload });
    books.ask(Method::POST, "/v1/claims/import/begin", Some(body)).await
}

/// Reports on work of the route `import`.
async fn report_import(books: &Books, report: &str, begun: &Value, more: Value) -> (u16, Value) {
    let mut body = json!({ "delivery_id": begun["delivery_id"], "fence": begun["fence"] });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    books.ask(Method::POST, &format!("/v1/claims/import/{report}"), Some(body)).await
}

fn count_actions(records: &[Value], action: &str) -> usize {
    records.iter().filter(|record| record["action"] == action).count()
}

pub(crate) fn http(processor: &Processor) -> Value {
    http_at(&processor.url())
}

fn http_at(url: &str) -> Value {
    json!({ "kind": "http", "url": url, "reference": "/glPostingReference" })
}

/// The first three scenarios of the accounting story (CLM-4, CLM-5, CLM-8, CLM-9).
#[tokio::test]
async fn new_event_is_posted_once_and_duplicate_gets_same_bytes() {
    let processor = Processor::start().await;
    let books = Books::set(http(&processor)).await;
    let id = new_id();
    let first = books.send(&id, 10).await;
    assert_eq!(first.word(), (201, "COMPLETED"), "{}", first.text);
    assert_eq!(first.document["reference"], "JE-1");
    assert_eq!(first.document["response_status"], 201);
    assert_eq!(first.response(), "{ \"glPostingReference\":\"JE-1\",\n  \"amount\": 10.00 }", "as it came");
    for _ in 0..2 {
        let again = books.send(&id, 10).await;
        assert_eq!(again.word(), (200, "COMPLETED"), "{}", again.text);
        assert!(again.replayed && again.document["replay"] == true, "{}", again.text);
        assert_eq!(again.response(), first.response());
        assert_eq!(
            (&again.document["reference"], &again.document["response_status"]),
            (&json!("JE-1"), &json!(201))
        );
        for member in ["first_seen_at", "kept_until"] {
            assert_eq!(again.document[member], first.document[member], "{member}");
        }
    }
    assert_eq!(books.send(&id, 11).await.word(), (409, "conflict"));

    let [asked] = <[_; 1]>::try_from(processor.asked()).expect("it was called once");
    assert_eq!(asked.headers["idempotency-key"], id);
    assert_eq!((asked.headers["snavio-attempt"].as_str(), &asked.body["eventId"]), ("1", &json!(id)));
    assert!(asked.headers["snavio-fence"].parse::<i64>().unwrap() > 0);
    assert_eq!(asked.headers["x-correlation-id"], first.document["correlation_id"].as_str().unwrap());

    let (found, claim) = eventually("the repeats are counted", async || {
        let found = books.look_up(&id).await;
        let claim = found["claims"][0].clone();
        (claim["count"] == 3).then_some((found, claim))
    })
    .await;
    assert_eq!((&found["outcome"], found["conflicts"].as_array().unwrap().len()), (&json!("completed"), 1));
    assert_eq!((&claim["destination"], &claim["status"]), (&json!(PAID), &json!("COMPLETED")));
    assert_eq!((&claim["glPostingReference"], &claim["attempts"]), (&json!("JE-1"), &json!(1)));
    let answer = format!("{}/v1/claims/{id}/answer", books.node.url());
    let answer = crate::wire::http(&books.node).get(answer).bearer_auth(&books.token).send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "application/json");
    assert_eq!(answer.text().await.unwrap(), "{ \"glPostingReference\":\"JE-1\",\n  \"amount\": 10.00 }\n");
    assert_eq!(metric(&books.node, "events_processed_total{status=\"new\"}").await, Some(1.0));
    assert_eq!(metric(&books.node, "events_processed_total{status=\"replay\"}").await, Some(2.0));
}

/// CLM-4, CLM-7: of many concurrent identical requests one starts the work. The others get its outcome, or
/// the answer that it is in progress.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_identical_events_are_processed_once() {
    let processor = Processor::start().await;
    processor.takes(Duration::from_millis(300));
    let books = std::sync::Arc::new(Books::set(http(&processor)).await);
    for (wait, waits) in [(None, false), (Some(30), true)] {
        let id = new_id();
        let sending: Vec<_> = (0..200)
            .map(|_| {
                let (books, id) = (std::sync::Arc::clone(&books), id.clone());
                tokio::spawn(async move { books.send_waiting(&id, 10, wait).await })
            })
            .collect();
        let (mut new, mut replays, mut in_progress) = (0, 0, 0);
        let mut reference = None;
        for sent in sending {
            let answer = sent.await.unwrap();
            match answer.word() {
                (201, "COMPLETED") => new += 1,
                (200, "COMPLETED") => replays += 1,
                (409, "in_progress") => {
                    in_progress += 1;
                    assert!(answer.retry_after.is_some(), "{}", answer.text);
                    continue;
                }
                other => panic!("{other:?}: {}", answer.text),
            }
            let answer = answer.document["reference"].clone();
            assert_eq!(reference.get_or_insert(answer.clone()), &answer);
        }
        assert_eq!((new, new + replays + in_progress), (1, 200));
        assert!(!waits || in_progress == 0, "{in_progress} senders that waited had no outcome");
    }
    assert_eq!(processor.asked().len(), 2);
}

/// CLM-4, CLM-8: of many contents under one id one is processed, and no other content gets its response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_contents_of_one_id_are_processed_once() {
    let processor = Processor::start().await;
    processor.takes(Duration::from_millis(300));
    let books = std::sync::Arc::new(Books::set(http(&processor)).await);
    let id = new_id();
    let sending: Vec<_> = (1..=20)
        .map(|amount| {
            let (books, id) = (std::sync::Arc::clone(&books), id.clone());
            tokio::spawn(async move { (amount, books.send_waiting(&id, amount, Some(30)).await) })
        })
        .collect();
    let (mut winners, mut conflicts) = (Vec::new(), 0);
    for sent in sending {
        let (amount, answer) = sent.await.unwrap();
        match answer.word() {
            (201, "COMPLETED") => winners.push((amount, answer.document["reference"].clone())),
            (409, "conflict") => {
                conflicts += 1;
                let answered = ["response", "reference"].map(|member| &answer.document[member]);
                assert_eq!(answered, [&Value::Null; 2], "{}", answer.text);
            }
            other => panic!("{other:?}: {}", answer.text),
        }
    }
    assert_eq!((winners.len(), conflicts), (1, 19));
    let asked = processor.asked();
    assert_eq!(asked.len(), 1);
    let (amount, reference) = &winners[0];
    assert_eq!(
        asked[0].body["data"]["amount"],
        json!(amount),
        "the processor got the content of the accepted event"
    );
    let again = books.send(&id, *amount).await;
    assert_eq!((again.word(), &again.document["reference"]), ((200, "COMPLETED"), reference));
}

/// CLM-6
#[tokio::test]
async fn failed_attempt_is_retried_after_the_processors_delay() {
    let processor = Processor::start().await;
    processor.answers([Reply::new(503, "busy").header("Retry-After", "6")]);
    let books = Books::set(http(&processor)).await;
    let id = new_id();
    let waiting = books.send_waiting(&id, 10, Some(0)).await;
    assert_eq!((waiting.status, &waiting.document["in_progress"]), (202, &json!(true)), "{}", waiting.text);
    assert_eq!(waiting.document["outcome"], format!("/v1/claims/{id}"));
    let failed = eventually("the first attempt failed", async || {
        let found = books.look_up(&id).await;
        (found["outcome"] == "failed").then_some(found)
    })
    .await;
    assert_eq!((&failed["claims"][0]["final"], &failed["claims"][0]["attempts"]), (&json!(false), &json!(1)));
    let early = books.send(&id, 10).await;
    assert_eq!(early.word(), (409, "retry_later"), "{}", early.text);
    assert!(early.retry_after.is_some());
    let done = books.send_waiting(&id, 10, Some(30)).await;
    assert_eq!(done.word(), (200, "COMPLETED"), "{}", done.text);
    let asked = processor.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[1].headers["snavio-attempt"], "2");
    assert!(asked[0].headers["snavio-fence"] < asked[1].headers["snavio-fence"], "the fence rises");
    assert_eq!(asked[0].headers["idempotency-key"], asked[1].headers["idempotency-key"]);
}

/// CLM-6, CLM-11
#[tokio::test]
async fn final_failure_is_replayed_until_a_person_reprocesses_it() {
    let processor = Processor::start().await;
    let no = r#"{"error":"debits and credits differ"}"#;
    processor.answers([Reply::new(422, no).header("Content-Type", "application/json")]);
    let books = Books::set(http(&processor)).await;
    let id = new_id();
    for is_replay in [false, true] {
        let answer = books.send(&id, 10).await;
        assert_eq!(answer.word(), (422, "FAILED"), "{}", answer.text);
        assert_eq!((answer.replayed, answer.response()), (is_replay, no));
    }
    assert_eq!(processor.asked().len(), 1);
    let (_, letters) = books.ask(Method::GET, "/v1/dead-letters", None).await;
    assert_eq!(letters["items"][0]["reason"], "failed", "{letters}");
    let (_, failed) = books.ask(Method::GET, "/v1/claims?status=failed", None).await;
    assert_eq!((&failed["items"][0]["eventId"], &failed["items"][0]["final"]), (&json!(id), &json!(true)));

    let reprocess = format!("/v1/claims/{id}/reprocess");
    let (status, refused) =
        books.ask(Method::POST, &reprocess, Some(json!({ "why": "the accounts are fixed" }))).await;
    assert_eq!(status, 200, "{refused}");
    let done = books.send_waiting(&id, 10, Some(30)).await;
    assert_eq!(done.word(), (200, "COMPLETED"), "{}", done.text);
    let (status, refused) = books.ask(Method::POST, &reprocess, Some(json!({ "why": "again" }))).await;
    assert_eq!((status, &refused["reason"]), (409, &json!("registry_conflict")), "{refused}");
    let audited = books
        .node
        .items("/v1/audit", |actions| actions.iter().any(|action| action["why"] == "the accounts are fixed"));
    audited.await;
}

/// CLM-7, CLM-11
#[tokio::test]
async fn unknown_outcome_is_held_for_a_person() {
    let processor = Processor::start().await;
    processor.answers([Reply::new(201, "{}").after(Duration::from_secs(4))]);
    let mut held = http(&processor);
    (held["on_unknown_outcome"], held["timeout_seconds"], held["deadline_seconds"]) =
        (json!("hold"), json!(1), json!(10));
    let books = Books::set(held).await;
    let id = new_id();
    let answer = books.send(&id, 10).await;
    assert_eq!(answer.word(), (409, "outcome_unknown"), "{}", answer.text);
    let again = books.send(&id, 10).await;
    assert_eq!(again.word(), (409, "outcome_unknown"), "{}", again.text);
    assert!(again.retry_after.is_some());
    let auditor = issue(&books.node, "accounting-ops", "accounting-ops", Some("acme")).await.token;
    let api = books.node.api().with_token(&auditor);
    let (_, doubted) = verdict(api.send(Method::GET, "/v1/claims?status=in_doubt", None, "").await);
    assert_eq!(doubted["items"][0]["eventId"], id, "{doubted}");
    assert!(doubted["items"][0]["error"].as_str().unwrap().contains("may have done it"), "{doubted}");
    assert_eq!(processor.asked().len(), 1, "and nothing is called again by itself");

    let settle = format!("/v1/claims/{id}/settle");
    let bad = json!({ "reference": "JE\n1", "why": "seen in the ledger" });
    assert_eq!(books.ask(Method::POST, &settle, Some(bad)).await.0, 400);
    let seen = json!({ "reference": "JE-7", "why": "seen in the ledger" });
    let (status, settled) = books.ask(Method::POST, &settle, Some(seen.clone())).await;
    assert_eq!((status, &settled["status"]), (200, &json!("COMPLETED")), "{settled}");
    assert_eq!(settled["glPostingReference"], "JE-7", "{settled}");
    let replay = books.send(&id, 10).await;
    assert_eq!((replay.word(), &replay.document["reference"]), ((200, "COMPLETED"), &json!("JE-7")));
    let (status, refused) = books.ask(Method::POST, &settle, Some(seen)).await;
    assert_eq!((status, &refused["reason"]), (409, &json!("registry_conflict")), "{refused}");
    assert_eq!(processor.asked().len(), 1);
    let actions = books.node.items("/v1/audit", |all| count_actions(all, "claim.settle") > 0).await;
    let action = actions.iter().find(|action| action["action"] == "claim.settle").expect("it is on record");
    assert_eq!(action["why"], "seen in the ledger");
    assert!(action["outcome"].as_str().unwrap().contains("JE-7"), "{action}");
}

/// CLM-7, CLM-9: a worker whose lease has ended reports late.
#[tokio::test]
async fn late_consumer_is_fenced_and_stored_response_stays() {
    let books = Books::set(json!({ "kind": "tracked" })).await;
    let id = new_id();
    let sent = books.send(&id, 10).await;
    assert_eq!((sent.status, &sent.document["in_progress"]), (202, &json!(true)), "{}", sent.text);
    assert_eq!(books.send(&id, 10).await.word(), (409, "in_progress"));
    let late_worker = books.take(1).await;
    let second = books.take(60).await;
    assert_eq!((second.delivery_id, second.attempt), (late_worker.delivery_id, 2));
    let answers = [1, 2].map(|n| json!({ "response": { "answer": n }, "reference": format!("JE-{n}") }));
    let (status, done) = books.report("complete", &second, answers[1].clone()).await;
    assert_eq!((status, &done["status"]), (200, &json!("COMPLETED")), "{done}");
    let (status, refused) = books.report("complete", &late_worker, answers[0].clone()).await;
    assert_eq!((status, &refused["reason"]), (409, &json!("fenced")), "{refused}");
    let (status, again) = books.report("complete", &second, answers[1].clone()).await;
    assert_eq!(status, 200, "a worker that lost the first answer repeats its report: {again}");
    let replay = books.send(&id, 10).await;
    assert_eq!((replay.word(), replay.response()), ((200, "COMPLETED"), r#"{"answer":2}"#));
    assert_eq!(replay.document["reference"], "JE-2");

    let actions = books.node.items("/v1/audit", |all| count_actions(all, "claim.fenced") > 0).await;
    let counts = (count_actions(&actions, "claim.lapsed"), count_actions(&actions, "claim.fenced"));
    assert_eq!(counts, (1, 1), "{actions:?}");
    let answer = eventually("the late report has a telemetry record", async || {
        let (_, answer) = books.ask(Method::GET, "/v1/telemetry?type=snavio.claim.fenced", None).await;
        (answer["items"] != json!([])).then_some(answer)
    })
    .await;
    assert_eq!(
        (&answer["items"][0]["severity"], &answer["items"][0]["command_id"]),
        (&json!("critical"), &json!(id))
    );
    assert_eq!(metric(&books.node, "snavio_attempts_fenced_total").await, Some(1.0));
    let lapsed =
        async || metric(&books.node, "snavio_attempts_lapsed_total").await.filter(|count| *count == 1.0);
    eventually("the lapse is counted", lapsed).await;
}

/// CLM-7: the gateway refuses made-up fencing tokens without a record or an alert for each; it still records
/// a late report of a worker.
#[tokio::test]
async fn flood_of_invented_fences_records_one_entry_per_attempt() {
    const FLOOD: i64 = 200;
    let books = Books::set(json!({ "kind": "tracked" })).await;
    books.send(&new_id(), 10).await;
    let work = books.take(60).await;
    assert_eq!(books.report("complete", &work, json!({ "reference": "JE-1" })).await.0, 200);
    let as_if = |fence: i64| Delivery { fence: Serial(fence), ..work.clone() };
    let fences: Vec<_> =
        (1..=FLOOD).chain([i64::MAX]).map(|fence| fence.saturating_add(work.fence.0)).collect();
    // One after another, and many at once.
    for fence in &fences[..20] {
        let (status, answer) = books.report("complete", &as_if(*fence), json!({})).await;
        assert_eq!((status, &answer["reason"]), (409, &json!("fenced")), "{answer}");
    }
    let rest = fences[20..].iter().map(|fence| as_if(*fence)).collect::<Vec<_>>();
    let flooding = rest.iter().map(|work| books.report("complete", work, json!({})));
    for (status, answer) in futures_util::future::join_all(flooding).await {
        assert_eq!((status, &answer["reason"]), (409, &json!("fenced")), "{answer}");
    }
    let recorded = metric(&books.node, "snavio_attempts_fenced_total").await.unwrap_or_default();
    assert!(recorded <= 1.0, "{recorded}: it had one attempt");
    assert_eq!(
        metric(&books.node, "snavio_attempts_fenced_unrecorded_total").await.unwrap_or_default(),
        fences.len() as f64 - recorded,
        "the rest is counted"
    );

    books.send(&new_id(), 11).await;
    let late_worker = books.take(1).await;
    let second = books.take(60).await;
    assert_eq!((second.delivery_id, second.attempt), (late_worker.delivery_id, 2));
    assert_eq!(books.report("complete", &second, json!({ "reference": "JE-2" })).await.0, 200);
    assert_eq!(books.report("complete", &late_worker, json!({ "reference": "JE-3" })).await.0, 409);
    let audited =
        books.node.items("/v1/audit", |all| count_actions(all, "claim.fenced") as f64 == recorded + 1.0);
    let actions = audited.await;
    let of_late_worker =
        actions.iter().filter(|record| record["object"] == late_worker.delivery_id.to_string());
    assert_eq!(of_late_worker.count(), 1, "{actions:?}");
    let answer = books.node.get("/v1/telemetry?type=snavio.claim.fenced&tenant=acme").await;
    assert_eq!(answer["items"].as_array().map(Vec::len), Some(recorded as usize + 1), "{answer}");
}

/// CLM-7, CLM-9
#[tokio::test]
async fn sender_waits_for_consumer_report() {
    let books = Books::set(json!({ "kind": "tracked" })).await;
    let id = new_id();
    let reporting = async {
        let work = books.take(30).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        books.report("complete", &work, json!({ "reference": "JE-1" })).await
    };
    let (sent, reported) = tokio::join!(books.send_waiting(&id, 10, Some(20)), reporting);
    assert_eq!(reported.0, 200, "{}", reported.1);
    assert_eq!(
        (sent.word(), &sent.document["reference"]),
        ((201, "COMPLETED"), &json!("JE-1")),
        "{}",
        sent.text
    );
    // An acknowledgement alone completes the claim, too.
    let id = new_id();
    books.send(&id, 10).await;
    let work = books.take(30).await;
    books.worker().acknowledge("paid", &[work.receipt()]).await.expect("it is acknowledged");
    assert_eq!(books.send(&id, 10).await.word(), (200, "COMPLETED"));
    // A release is a failed attempt.
    let id = new_id();
    books.send(&id, 10).await;
    let work = books.take(30).await;
    let delay = Duration::from_secs(600);
    let why = Some("the period is closed");
    books.worker().release("paid", &[work.receipt()], delay, why).await.expect("the delivery is released");
    let answer = books.send(&id, 10).await;
    assert_eq!(answer.word(), (409, "retry_later"));
    assert_eq!(books.look_up(&id).await["claims"][0]["error"], "the period is closed");
    assert!(answer.retry_after.is_some_and(|seconds| seconds > 500), "{:?}", answer.retry_after);
}

/// CLM-9, CLM-5: senders get the reference and the response of the acknowledgement.
#[tokio::test]
async fn acknowledgement_carries_reference_and_response() {
    let books = Books::set(json!({ "kind": "tracked" })).await;
    let [id, other] = [new_id(), new_id()];
    books.send(&id, 10).await;
    books.send(&other, 10).await;
    let (work, second) = (books.take(30).await, books.take(30).await);
    let ack = async |receipts: &[&Delivery], reference: &str| {
        let receipts: Vec<_> = receipts.iter().map(|delivery| delivery.receipt()).collect();
        let body = json!({ "receipts": receipts, "reference": reference });
        books.ask(Method::POST, "/v1/queues/paid/ack", Some(body)).await
    };
    for (receipts, reference) in
        [(&[&work, &second][..], "JE-1"), (&[&work], ""), (&[&work], "x".repeat(257).as_str())]
    {
        let (status, refused) = ack(receipts, reference).await;
        assert_eq!((status, &refused["reason"]), (400, &json!("invalid_request")), "{refused}");
    }
    assert_eq!(books.look_up(&id).await["outcome"], "in_progress", "nothing of that was taken");

    let response = json!({ "total": "10.00" });
    for _ in 0..2 {
        let done =
            books.worker().acknowledge_with("paid", work.receipt(), Some("JE-1"), Some(&response)).await;
        let done = done.expect("it is acknowledged, also when it is said again");
        assert_eq!(done["results"][0]["outcome"], "done");
    }
    let replay = books.send(&id, 10).await;
    assert_eq!((replay.word(), replay.replayed), ((200, "COMPLETED"), true));
    assert_eq!((replay.response(), &replay.document["reference"]), (r#"{"total":"10.00"}"#, &json!("JE-1")));
    let (status, refused) = ack(&[&work], "JE-2").await;
    assert_eq!((status, &refused["reason"]), (409, &json!("fenced")), "{refused}");
    assert_eq!(books.look_up(&id).await["claims"][0]["glPostingReference"], "JE-1");
}

/// CLM-3, CLM-9: on a queue of several routes, each route's claim policy says whether the response is kept.
#[tokio::test]
async fn response_is_kept_only_under_ledger_policy() {
    let plain = json!({ "claim": { "policy": "event" } });
    let books = Books::with(json!({ "kind": "tracked" }), plain).await;
    let keeping = json!({ "routes": [{
        "target": "acme/ledger", "name": "kept", "queue": "paid", "dead_letter_queue": "exceptions",
        "claim": { "policy": "ledger" }, "processing": { "kind": "tracked" },
    }]});
    books.node.apply(&keeping).await;
    let id = new_id();
    books.send(&id, 10).await;
    let work = books.take(30).await;
    let response = json!({ "total": "10.00" });
    let done = books.worker().acknowledge_with("paid", work.receipt(), Some("JE-1"), Some(&response)).await;
    assert_eq!(done.expect("it is acknowledged")["results"][0]["outcome"], "done");
    let replay = books.send(&id, 10).await;
    assert_eq!((replay.word(), &replay.document["reference"]), ((200, "COMPLETED"), &json!("JE-1")));
    assert!(replay.document.get("response").is_none(), "{}", replay.text);
}

/// CLM-10
#[tokio::test]
async fn worker_begins_extends_fails_and_completes_work() {
    let books = Books::set(json!({ "kind": "tracked" })).await;
    let (status, begun) = begin_import(&books, "batch-7", json!({ "amount": 10 })).await;
    assert_eq!((status, &begun["is_new"], &begun["attempt"]), (201, &json!(true), &json!(1)), "{begun}");
    assert_eq!(books.look_up("batch-7").await["outcome"], "in_progress");
    let (status, other) = begin_import(&books, "batch-7", json!({ "amount": 10 })).await;
    assert_eq!((status, &other["reason"]), (409, &json!("in_progress")), "{other}");
    let (status, other) = begin_import(&books, "batch-7", json!({ "amount": 11 })).await;
    assert_eq!((status, &other["reason"]), (409, &json!("conflict")), "{other}");
    let (status, extended) = report_import(&books, "extend", &begun, json!({ "seconds": 30 })).await;
    assert_eq!(status, 200, "{extended}");
    let (status, failed) = report_import(
        &books,
        "fail",
        &begun,
        json!({ "error": "the disk is full", "retry_after_seconds": 1 }),
    )
    .await;
    assert_eq!((status, &failed["status"]), (200, &json!("FAILED")), "{failed}");
    let (status, second) = eventually("the work is due again", async || {
        let begun = begin_import(&books, "batch-7", json!({ "amount": 10 })).await;
        (begun.0 != 409).then_some(begun)
    })
    .await;
    assert_eq!((status, &second["attempt"]), (201, &json!(2)), "{second}");
    let (status, late) = report_import(&books, "complete", &begun, json!({})).await;
    assert_eq!((status, &late["reason"]), (409, &json!("fenced")), "{late}");
    let (status, done) =
        report_import(&books, "complete", &second, json!({ "response": [1, 2], "reference": "B-7" })).await;
    assert_eq!((status, &done["status"]), (200, &json!("COMPLETED")), "{done}");
    let (status, known) = begin_import(&books, "batch-7", json!({ "amount": 10 })).await;
    assert_eq!(
        (status, &known["is_new"], &known["response"]),
        (200, &json!(false), &json!([1, 2])),
        "{known}"
    );
    assert_eq!(known["reference"], "B-7");

    assert_eq!(books.look_up("nobody-sent-this").await["outcome"], "never_seen");
    let old = "/v1/claims/old?destination=acme/ledger:import&sent_at=2001-01-01T00:00:00Z";
    assert_eq!(books.ask(Method::GET, old, None).await.1["outcome"], "beyond_horizon");
    for (path, body, reason) in [
        ("/v1/claims/nothing/begin", json!({ "id": "x", "payload": 1 }), "not_found"),
        ("/v1/claims/import/begin", json!({ "id": "", "payload": 1 }), "invalid_id"),
        ("/v1/claims/import/complete", json!({ "delivery_id": 1, "fence": 1 }), "not_found"),
        (
            "/v1/claims/import/fail",
            json!({ "delivery_id": 1, "fence": 1, "error": "", "final": true, "unknown": true }),
            "invalid_request",
        ),
    ] {
        let (_, refused) = books.ask(Method::POST, path, Some(body)).await;
        assert_eq!(refused["reason"], reason, "{path}: {refused}");
    }
    assert_eq!(
        books.ask(Method::GET, "/v1/claims?status=completed", None).await.1["reason"],
        "invalid_request"
    );
}

/// PIP-1, CLM-5, CLM-8, CLM-21: begun work is counted and recorded like sent messages, and a banned service
/// begins no work.
#[tokio::test]
async fn begun_work_is_counted_and_recorded_like_messages() {
    let books = Books::set(json!({ "kind": "tracked" })).await;
    let (payload, other) = (json!({ "amount": 10 }), json!({ "amount": 11 }));
    let (status, begun) = begin_import(&books, "batch-8", payload.clone()).await;
    assert_eq!(status, 201, "{begun}");
    assert_eq!(begin_import(&books, "batch-8", other).await.1["reason"], "conflict");
    assert_eq!(begin_import(&books, "batch-8", payload.clone()).await.1["reason"], "in_progress");
    let receipt = json!({ "delivery_id": begun["delivery_id"], "fence": begun["fence"] });
    let (status, done) = books.ask(Method::POST, "/v1/claims/import/complete", Some(receipt)).await;
    assert_eq!(status, 200, "{done}");
    assert_eq!(begin_import(&books, "batch-8", payload.clone()).await.0, 200);
    for (series, count) in [
        ("events_conflicts_total", 1.0),
        (r#"events_processed_total{status="conflict"}"#, 1.0),
        (r#"events_processed_total{status="new"}"#, 1.0),
        (r#"events_processed_total{status="replay"}"#, 1.0),
    ] {
        assert_eq!(metric(&books.node, series).await, Some(count), "{series}");
    }
    eventually("the repeats are counted", async || {
        (books.look_up("batch-8").await["claims"][0]["count"].as_u64() == Some(3)).then_some(())
    })
    .await;

    let set = Shell::at(&books.node).run_words(&["bans", "set", "acme/ledger", "--reason", "floods"]);
    assert_eq!(set.code, Some(0), "{set:?}");
    let (status, refused) = begin_import(&books, "batch-8", payload.clone()).await;
    assert_eq!((status, &refused["reason"]), (403, &json!("banned")), "{refused}");
}

/// CLM-10: if a worker stops without a report, the next worker to begin the id takes over the work.
#[tokio::test]
async fn unreported_work_can_be_begun_again() {
    let books = Books::set(json!({ "kind": "tracked" })).await;
    let (_, first) = begin_import(&books, "batch-8", Value::Null).await;
    let (status, second) = eventually("the lease has ended", async || {
        let begun = begin_import(&books, "batch-8", Value::Null).await;
        (begun.0 != 409).then_some(begun)
    })
    .await;
    assert_eq!((status, &second["attempt"]), (201, &json!(2)), "{second}");
    assert!(second["fence"].as_i64() > first["fence"].as_i64());
    assert_eq!(second["delivery_id"], first["delivery_id"]);
}

/// QUA-6, CLM-9, PIP-9: a processor that is down delays no sender, and is called when it is up again.
#[tokio::test]
async fn processor_that_was_down_is_called_when_up_again() {
    let reserved = Reserved::new();
    let books = Books::set(http_at(&reserved.url())).await;
    let id = new_id();
    let sent = books.send_waiting(&id, 10, Some(1)).await;
    assert_eq!((sent.status, &sent.document["in_progress"]), (202, &json!(true)), "{}", sent.text);
    let claim = eventually("the first attempt failed", async || {
        Some(books.look_up(&id).await["claims"][0].clone()).filter(|claim| claim["error"].is_string())
    })
    .await;
    assert!(claim["error"].as_str().unwrap().contains("nothing was sent"), "{claim}");
    let back = Processor::on(reserved);
    let done = books.send_waiting(&id, 10, Some(60)).await;
    assert_eq!(done.word(), (200, "COMPLETED"), "{}", done.text);
    assert_eq!(back.asked().len(), 1);
}

/// CLM-1, CLM-7, CLM-10: other services can neither read a service's responses nor end its work.
#[tokio::test]
async fn other_services_cannot_read_response_or_end_work() {
    let books = Books::set(json!({ "kind": "tracked" })).await;
    let others = json!({
        "tenants": [{ "name": "acme" }, { "name": "zeta" }],
        "services": [{ "name": "acme/other" }, { "name": "zeta/worker" }],
        "routes": [{
            "target": "zeta/worker", "name": "work", "queue": "work", "dead_letter_queue": "dead",
            "claim": { "policy": "ledger" }, "processing": { "kind": "tracked" },
        }],
    });
    let [other, foreign] = <[Credentials; 2]>::try_from(books.node.apply(&others).await).unwrap();
    let id = new_id();
    books.send(&id, 10).await;
    let work = books.take(60).await;
    let report = json!({ "delivery_id": work.delivery_id, "fence": work.fence, "reference": "stolen" });
    let taken =
        books.node.client(&foreign).call(Method::POST, "/v1/claims/work/complete", Some(&report)).await;
    assert!(taken.unwrap_err().to_string().contains("no such work"), "not even that it is there");
    let answer = json!({ "reference": "JE-1", "response": { "secret": 1 } });
    assert_eq!(books.report("complete", &work, answer).await.0, 200);
    for client in [books.node.client(&other), books.node.client(&foreign)] {
        let seen = client.call(Method::GET, &format!("/v1/claims/{id}?tenant=acme"), None).await;
        assert!(seen.as_ref().map_or(true, |page| page["claims"] == json!([])), "{seen:?}");
        let read = client.call(Method::GET, &format!("/v1/claims/{id}/answer?tenant=acme"), None).await;
        assert!(read.is_err(), "{read:?}");
    }
    let late =
        books.node.client(&foreign).call(Method::POST, "/v1/claims/work/complete", Some(&report)).await;
    assert!(late.is_err());
    assert_eq!(
        metric(&books.node, "snavio_attempts_fenced_total").await,
        Some(0.0),
        "nor is anybody alerted"
    );
    let replay = books.send(&id, 10).await;
    assert_eq!((replay.word(), &replay.document["reference"]), ((200, "COMPLETED"), &json!("JE-1")));
}

/// CLM-9, CLM-20
#[tokio::test]
async fn invalid_processing_is_refused_at_registration() {
    let books = Books::set(json!({ "kind": "tracked" })).await;
    for (claim, processing, queue, says) in [
        ("none", json!({ "kind": "tracked" }), "q", "give the route a claim policy"),
        ("strict", json!({ "kind": "tracked" }), "q", "2 × 60 s + 60 s + 5 × 30 s + 15 s = 345 s"),
        ("ledger", json!({ "kind": "http" }), "q", "processing.url"),
        (
            "ledger",
            json!({ "kind": "http", "url": "http://127.0.0.1/", "timeout_seconds": 40 }),
            "q",
            "before its attempt's deadline",
        ),
        ("ledger", json!({ "kind": "http", "url": "ftp://127.0.0.1/" }), "q", "http"),
        ("ledger", json!({ "kind": "http", "url": "http://10.0.0.1/" }), "q", "outgoing.allowed"),
        ("ledger", json!({ "kind": "tracked", "deadline": 40 }), "q", "deadline"),
        ("ledger", json!({ "kind": "http", "url": "http://127.0.0.1/" }), "paid", "use another queue"),
    ] {
        let route = json!({
            "queue": queue, "dead_letter_queue": "d", "claim": { "policy": claim }, "processing": processing,
        });
        let path = "/v1/routes/acme/ledger/other";
        let body = Some(route.to_string().into_bytes());
        let (status, refused) =
            verdict(books.node.operator().send(Method::PUT, path, body, "application/json").await);
        assert!((400..500).contains(&status), "{route}: {refused}");
        assert!(refused.to_string().contains(says), "{says}: {refused}");
    }
    let imports = books.worker().receive("imports", 1, Duration::from_secs(1), Duration::ZERO).await;
    assert!(imports.unwrap_err().to_string().contains("claims API"));
}
