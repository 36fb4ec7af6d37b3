//! Unknown outcomes (CLM-7, CLM-11): no redrive, purge or restart loses work that may have been done, or
//! repeats it without a person's decision.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::once::{BoxError, OnceError};
use snavio_sdk::{Delivery, Receiver};
use tokio::sync::oneshot;

use crate::consuming::id_of;
use crate::node::{Launch, new_id, verdict};
use crate::patience::eventually;
use crate::processing::{Books, Told, http};
use crate::processor::{Processor, Reply};

/// Posts as the sending service, which does not own the work.
async fn post_as_shop(books: &Books, path: &str, body: Value) -> (u16, Value) {
    let api = books.node.api().with_token(&books.node.token(&books.shop).await);
    verdict(api.send(Method::POST, path, Some(body.to_string().into_bytes()), "application/json").await)
}

async fn first_dead_letter(books: &Books) -> Value {
    eventually("a dead letter is listed", async || {
        let (_, letters) = books.ask(Method::GET, "/v1/dead-letters", None).await;
        letters["items"].as_array()?.first().cloned()
    })
    .await
}

/// CLM-7, CLM-11: only `claims reprocess`, with a note, returns work with an unknown outcome to its queue. A
/// redrive refuses it.
#[tokio::test]
async fn redrive_refuses_claims_with_unknown_outcome() {
    let processor = Processor::start().await;
    processor.answers([Reply::new(500, "{}"), Reply::new(201, r#"{"glPostingReference":"JE-1"}"#)]);
    let mut held = http(&processor);
    held["on_unknown_outcome"] = json!("hold");
    let books = Books::set(held).await;
    let id = new_id();
    let answer = books.send(&id, 10).await;
    assert_eq!(answer.word(), (409, "outcome_unknown"), "a 500 may come after the effect: {}", answer.text);
    let letter = first_dead_letter(&books).await;
    let one = format!("/v1/dead-letters/{}/redrive", letter["id"]);
    let (status, refused) = post_as_shop(&books, &one, json!({})).await;
    assert_eq!((status, &refused["reason"]), (403, &json!("forbidden")), "{refused}");
    let (status, refused) = books.ask(Method::POST, &one, Some(json!({}))).await;
    assert_eq!((status, &refused["reason"]), (409, &json!("outcome_unknown")), "{refused}");
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("snavio claims reprocess") && detail.contains(&id), "{refused}");
    let all = "/v1/queues/exceptions/redrive";
    let (status, refused) = books.ask(Method::POST, all, Some(json!({}))).await;
    assert_eq!((status, &refused["reason"]), (409, &json!("outcome_unknown")), "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("snavio claims settle"), "{refused}");
    assert_eq!(processor.asked().len(), 1);

    let why = json!({ "why": "it is not in the ledger" });
    let (status, reprocessed) =
        books.ask(Method::POST, &format!("/v1/claims/{id}/reprocess"), Some(why)).await;
    assert_eq!(status, 200, "{reprocessed}");
    let replay = eventually("the work is done", async || {
        let replay = books.send(&id, 10).await;
        (replay.status == 200).then_some(replay)
    })
    .await;
    assert_eq!((&replay.document["reference"], processor.asked().len()), (&json!("JE-1"), 2));
}

/// CLM-7, DLV-2: a purge removes only deliveries without an attempt. It reports those with an attempt as in
/// doubt, because their work may be done, and leaves leased ones to their workers.
#[tokio::test]
async fn purge_loses_no_effect_under_way() {
    let books = Books::set(json!({ "kind": "tracked" })).await;
    let (leased, tried, fresh) = (new_id(), new_id(), new_id());
    assert_eq!(books.send(&leased, 10).await.status, 202);
    let work = books.take(600).await;
    assert_eq!(books.send(&tried, 10).await.status, 202);
    let failing = books.take(600).await;
    let more = json!({ "error": "the ledger is closed", "retry_after_seconds": 600 });
    assert_eq!(books.report("fail", &failing, more).await.0, 200);
    assert_eq!(books.send(&fresh, 10).await.status, 202);

    let purge = Some(json!({ "why": "a migration" }));
    let (status, purged) = books.ask(Method::POST, "/v1/queues/paid/purge", purge).await;
    assert_eq!((status, purged), (200, json!({ "purged": 1, "in_doubt": 1, "in_progress": 1 })));
    for (id, expected) in [(&tried, "outcome_unknown"), (&fresh, "FAILED")] {
        let Told { document, .. } = books.send(id, 10).await;
        let word = document["reason"].as_str().or(document["state"].as_str()).unwrap_or_default();
        assert_eq!(word, expected);
    }
    let (status, refused) = books.ask(Method::POST, "/v1/queues/exceptions/redrive", Some(json!({}))).await;
    assert_eq!((status, &refused["reason"]), (409, &json!("outcome_unknown")), "{refused}");
    let why = Some(json!({ "why": "it was not done" }));
    let (status, reprocessed) = books.ask(Method::POST, &format!("/v1/claims/{tried}/reprocess"), why).await;
    assert_eq!(status, 200, "{reprocessed}");
    assert_eq!(books.take(600).await.delivery_id, failing.delivery_id);
    let (status, done) = books.report("complete", &work, json!({ "reference": "JE-1" })).await;
    assert_eq!((status, &done["status"]), (200, &json!("COMPLETED")), "{done}");
}

/// CLM-7: if the last attempt ends without an answer, the gateway reports an unknown outcome to senders, not
/// a failure.
#[tokio::test]
async fn silence_at_the_last_attempt_is_outcome_unknown() {
    let processor = Processor::start().await;
    processor.answers([4, 4].map(|seconds| Reply::new(201, "{}").after(Duration::from_secs(seconds))));
    let mut impatient = http(&processor);
    (impatient["timeout_seconds"], impatient["deadline_seconds"]) = (json!(1), json!(10));
    impatient["backoff_seconds"] = json!(1);
    let books = Books::with(impatient, json!({ "receives_max": 2 })).await;
    let id = new_id();
    books.send(&id, 10).await;
    let answer = eventually("its attempts are used up", async || {
        let answer = books.send(&id, 10).await;
        (answer.word().1 == "outcome_unknown").then_some(answer)
    })
    .await;
    assert_eq!(answer.status, 409, "{}", answer.text);
    assert_eq!(first_dead_letter(&books).await["reason"], "receives_exhausted");
    assert_eq!(processor.asked().len(), 2);

    // Another service that shares the dead-letter queue redrives none of it.
    let refund = json!({ "target": "acme/shop", "name": "refund", "queue": "refunds", "dead_letter_queue": "exceptions" });
    assert!(books.node.apply(&json!({ "routes": [refund] })).await.is_empty());
    let all = "/v1/queues/exceptions/redrive";
    let (status, redriven) = post_as_shop(&books, all, json!({})).await;
    assert_eq!((status, &redriven["redriven"]), (200, &json!(0)), "{redriven}");
    // Also on a route that retries, only `settle` and `reprocess` decide claims with an unknown outcome.
    let one = format!("/v1/dead-letters/{}/redrive", first_dead_letter(&books).await["id"]);
    for path in [one.as_str(), all] {
        let (status, refused) = books.ask(Method::POST, path, Some(json!({ "why": "again" }))).await;
        assert_eq!((status, &refused["reason"]), (409, &json!("outcome_unknown")), "{path}: {refused}");
    }
    assert_eq!(processor.asked().len(), 2, "the processor is not called again");
    let why = Some(json!({ "why": "it is not in the ledger" }));
    let (status, reprocessed) = books.ask(Method::POST, &format!("/v1/claims/{id}/reprocess"), why).await;
    assert_eq!(status, 200, "{reprocessed}");
}

/// CLM-7: after an attempt with an unknown outcome, a temporary failure leaves the outcome unknown. A final
/// failure makes it known.
#[tokio::test]
async fn temporary_failure_after_silence_is_outcome_unknown() {
    let processor = Processor::start().await;
    let books = Books::with(http(&processor), json!({ "receives_max": 2 })).await;
    for (last, word, status) in [(503, "outcome_unknown", "IN_DOUBT"), (422, "FAILED", "FAILED")] {
        processor.answers([Reply::new(502, "{}"), Reply::new(last, "{}")]);
        let id = new_id();
        books.send(&id, 10).await;
        eventually("its attempts are used up", async || {
            let answer = books.send(&id, 10).await;
            (answer.word().1 == word).then_some(())
        })
        .await;
        let claim = books.look_up(&id).await["claims"][0].clone();
        assert_eq!((&claim["status"], &claim["attempts"]), (&json!(status), &json!(2)), "{claim}");
    }
    assert_eq!(processor.asked().len(), 4);
}

/// CLM-7, CLM-10: a consumer that does not know whether its work is done reports that, and so does the SDK's
/// receiver loop.
#[tokio::test]
async fn consumer_reports_an_unknown_outcome() {
    let books = Books::set(json!({ "kind": "tracked", "on_unknown_outcome": "hold" })).await;
    let id = new_id();
    books.send(&id, 10).await;
    let work = books.take(30).await;
    let why = Some("the commit got no answer");
    let answer = books.worker().release_unknown("paid", &[work.receipt()], Duration::ZERO, why).await;
    assert_eq!(answer.expect("the report is accepted")["results"][0]["outcome"], "done");
    assert_eq!(books.send(&id, 10).await.word(), (409, "outcome_unknown"));
    assert_eq!(books.look_up(&id).await["claims"][0]["error"], "the commit got no answer");

    let ids = [new_id(), new_id(), new_id()];
    for id in &ids {
        books.send(id, 10).await;
    }
    let work = {
        let ids = ids.clone();
        move |delivery: Delivery| {
            let index =
                ids.iter().position(|id| *id == id_of(&delivery)).expect("the delivery has one of the ids");
            async move {
                match index {
                    0 => panic!("the consumer panicked during its effect"),
                    1 => Err(BoxError::from(OnceError::Unknown("the connection is gone".into()))),
                    _ => Err::<(), _>(BoxError::from("it was rolled back")),
                }
            }
        }
    };
    let receiver = Receiver::new(Arc::new(books.worker()), "paid".parse().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let run = tokio::spawn(async move { receiver.run(work, async { stopped.await.unwrap_or(()) }).await });
    for (id, outcome) in ids.iter().zip(["in_doubt", "in_doubt", "failed"]) {
        eventually("the outcome is reported", async || {
            (books.look_up(id).await["outcome"] == outcome).then_some(())
        })
        .await;
    }
    stop.send(()).unwrap();
    run.await.unwrap().unwrap();
}

/// ENG-7, CLM-7: a node that stops waits for the answers of its processors, for as long as a request may
/// take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_node_waits_for_its_processors() {
    let processor = Processor::start().await;
    processor.answers([Reply::new(201, r#"{"glPostingReference":"JE-1"}"#).after(Duration::from_secs(12))]);
    let mut books = Books::set(http(&processor)).await;
    let id = new_id();
    assert_eq!(books.send_waiting(&id, 10, Some(1)).await.status, 202);
    eventually("the processor is called", async || (processor.asked().len() == 1).then_some(())).await;
    books.node.stop();
    books.restart(&Launch::default().set("OUTGOING_ALLOWED", "127.0.0.0/8")).await;
    let replay = books.send(&id, 10).await;
    assert_eq!((replay.word(), &replay.document["reference"]), ((200, "COMPLETED"), &json!("JE-1")));
    assert_eq!(processor.asked().len(), 1, "the processor is not called again");
}
