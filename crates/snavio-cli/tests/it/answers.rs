//! Stored responses of processors and workers, and the errors in place of a missing response or reference
//! (CLM-5, CLM-9).

use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::bounds;
use snavio_model::id::MessageId;
use snavio_model::json::Reader;
use snavio_model::name::CommandName;

use crate::engine::Engine;
use crate::node::new_id;
use crate::patience::eventually;
use crate::processing::{Books, http};
use crate::processor::{Processor, Reply};
use crate::shell::Shell;
use crate::wire::{Answered, metric, post_json};

/// CLM-5, CLM-6: the work is done, so the gateway calls the processor only once and makes no dead letter.
#[tokio::test]
async fn oversized_processor_response_still_completes_the_claim() {
    let processor = Processor::start().await;
    let long = format!(r#"{{"glPostingReference":"JE-1","lines":"{}"}}"#, "x".repeat(256 * 1024));
    processor.answers([Reply::new(201, &long).header("Content-Type", "application/json")]);
    let books = Books::set(http(&processor)).await;
    let id = new_id();
    let expected_error = "the processor answered 201 with more than 262144 bytes, which are not kept; so the reference under \
                /glPostingReference is not known";
    for status in [201, 200, 200] {
        let answer = books.send_waiting(&id, 10, Some(30)).await;
        assert_eq!(answer.word(), (status, "COMPLETED"), "{}", answer.text);
        assert_eq!(answer.document["error"], expected_error, "{}", answer.text);
        for member in ["reference", "response", "response_base64", "response_status"] {
            assert!(answer.document.get(member).is_none(), "{member}: {}", answer.text);
        }
    }
    assert_eq!(books.send(&id, 11).await.word(), (409, "conflict"), "the first content is still compared");

    let claim = books.look_up(&id).await["claims"][0].clone();
    assert_eq!((&claim["status"], &claim["attempts"]), (&json!("COMPLETED"), &json!(1)), "{claim}");
    assert_eq!((&claim["error"], claim.get("glPostingReference")), (&json!(expected_error), None), "{claim}");
    let (status, missing) = books.ask(Method::GET, &format!("/v1/claims/{id}/answer"), None).await;
    assert_eq!((status, &missing["detail"]), (404, &json!("no answer is kept of it")), "{missing}");
    let (_, letters) = books.ask(Method::GET, "/v1/dead-letters", None).await;
    let reasons: Vec<_> =
        letters["items"].as_array().unwrap().iter().map(|letter| &letter["reason"]).collect();
    assert_eq!(reasons, ["conflict"], "only the conflict makes a dead letter");
    let failed = metric(&books.node, "events_processed_total{status=\"failed\"}").await;
    assert_eq!(failed.unwrap_or_default(), 0.0);
    assert_eq!(processor.asked().len(), 1);
    assert!(books.node.said().contains("a processor is done, but not all of its answer is kept"));
}

/// CLM-5, CLM-9
#[tokio::test]
async fn response_without_reference_completes_and_reports_it() {
    let processor = Processor::start().await;
    processor.answers([Reply::new(200, r#"{"posted":true}"#).header("Content-Type", "application/json")]);
    let books = Books::set(http(&processor)).await;
    let id = new_id();
    let expected_error = "the processor answered 200 without a reference under /glPostingReference: no text or number of 1 to \
                256 bytes on one line is there";
    for status in [201, 200] {
        let answer = books.send_waiting(&id, 10, Some(30)).await;
        assert_eq!(answer.word(), (status, "COMPLETED"), "{}", answer.text);
        assert_eq!(
            (&answer.document["error"], answer.response()),
            (&json!(expected_error), r#"{"posted":true}"#)
        );
        assert!(answer.document.get("reference").is_none(), "{}", answer.text);
    }
    let claim = books.look_up(&id).await["claims"][0].clone();
    assert_eq!((&claim["status"], &claim["error"]), (&json!("COMPLETED"), &json!(expected_error)), "{claim}");
    let id = new_id();
    let answer = books.send_waiting(&id, 10, Some(30)).await;
    assert_eq!((&answer.document["reference"], answer.document.get("error")), (&json!("JE-1"), None));
    assert_eq!(processor.asked().len(), 2);
}

/// CLM-6: a final failure with an oversized body stays final; the gateway neither keeps nor returns that
/// body.
#[tokio::test]
async fn oversized_processor_refusal_fails_the_claim_for_good() {
    let processor = Processor::start().await;
    processor.answers([Reply::new(422, &"no".repeat(256 * 1024))]);
    let books = Books::set(http(&processor)).await;
    let id = new_id();
    for _ in 0..2 {
        let answer = books.send_waiting(&id, 10, Some(30)).await;
        assert_eq!(answer.word(), (502, "FAILED"), "{}", answer.text);
        let expected_error = "the processor answered 422 with more than 262144 bytes, which are not kept";
        assert_eq!(answer.document["error"], expected_error);
    }
    let (_, letters) = books.ask(Method::GET, "/v1/dead-letters", None).await;
    assert_eq!(letters["items"][0]["reason"], "failed", "{letters}");
    assert_eq!(processor.asked().len(), 1);
}

/// Runs a query with a tool that reads the store directly.
fn query_store(books: &Books, query: &str) -> String {
    match books.node.engine() {
        Engine::Postgres(database) => database.ask(query),
        Engine::Embedded => {
            let file = books.node.engine().data(books.node.folder()).join("snavio.db");
            let asked = Command::new("sqlite3").arg("-readonly").arg(file).arg(query).output().unwrap();
            assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
            String::from_utf8(asked.stdout).unwrap().trim_end().to_owned()
        }
    }
}

/// Waits until lists, look-ups and the SQL view all show this status.
async fn wait_for_status(books: &Books, id: &str, status: &str) {
    eventually(&format!("{id} is {status} everywhere"), async || {
        let mut listed = Vec::new();
        for word in ["processing", "failed", "in_doubt"] {
            let (_, page) = books.ask(Method::GET, &format!("/v1/claims?status={word}"), None).await;
            let claims = page["items"].as_array()?.clone();
            let of_id = claims.iter().filter(|claim| claim["eventId"] == id);
            let shown = of_id.filter(|claim| claim["status"] == word.to_uppercase());
            listed.extend(shown.map(|_| word.to_uppercase()));
        }
        let looked_up = books.look_up(id).await["claims"][0]["status"].clone();
        let query = format!("SELECT status FROM claims WHERE tenant = 'acme' AND event_id = '{id}'");
        let agree = listed == [status] && looked_up == status && query_store(books, &query) == status;
        agree.then_some(())
    })
    .await;
}

/// CLM-2: lists, look-ups and the SQL view show one status.
#[tokio::test]
async fn status_is_the_same_in_lists_lookups_and_sql() {
    let books =
        Books::set(json!({ "kind": "tracked", "backoff_seconds": 1, "backoff_max_seconds": 1 })).await;
    let ids = [new_id(), new_id(), new_id()];
    let [leased, waiting, in_doubt] = &ids;
    assert_eq!(books.send(leased, 10).await.status, 202);
    let first = books.take(60).await;
    wait_for_status(&books, leased, "PROCESSING").await;
    let fail = json!({ "error": "the ledger is closed" });
    assert_eq!(books.report("fail", &first, fail).await.0, 200);
    let again = books.take(60).await;
    assert_eq!((again.delivery_id, again.attempt), (first.delivery_id, 2));
    assert_eq!(books.send(waiting, 10).await.status, 202);
    let work = books.take(60).await;
    let later = json!({ "error": "the ledger is closed", "retry_after_seconds": 600 });
    assert_eq!(books.report("fail", &work, later.clone()).await.0, 200);
    assert_eq!(books.send(in_doubt, 10).await.status, 202);
    let work = books.take(60).await;
    assert_eq!(books.report("fail", &work, later).await.0, 200);
    wait_for_status(&books, leased, "PROCESSING").await;
    wait_for_status(&books, waiting, "FAILED").await;
    let purge = Some(json!({ "why": "a test" }));
    assert_eq!(books.ask(Method::POST, "/v1/queues/paid/purge", purge).await.0, 200);
    wait_for_status(&books, leased, "PROCESSING").await;
    wait_for_status(&books, in_doubt, "IN_DOUBT").await;
}

/// CLM-2: any tool that reads the store can read claims while a node serves it.
#[tokio::test]
async fn auditor_reads_claims_in_sql() {
    let processor = Processor::start().await;
    let books = Books::set(http(&processor)).await;
    let id = new_id();
    let answer = books.send(&id, 10).await;
    assert_eq!(answer.word(), (201, "COMPLETED"), "{}", answer.text);
    let claim = books.look_up(&id).await["claims"][0].clone();
    let query = format!(
        "SELECT destination, status, gl_posting_reference, attempts, domain_payload_hash, hash_version, fence, \
             response_status, length(response_payload), correlation_id, seen, archived_at, deadline \
         FROM claims WHERE tenant = 'acme' AND event_id = '{id}'"
    );
    let shown = query_store(&books, &query);
    let word = |member: &str| match &claim[member] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let [destination, status, reference, attempts, hash, version, fence] = [
        "destination",
        "status",
        "glPostingReference",
        "attempts",
        "domainPayloadHash",
        "hashVersion",
        "fence",
    ]
    .map(word);
    // The store keeps the response unchanged, with the line feed at its end.
    let length = answer.response().len() + 1;
    let correlation_id = answer.document["correlation_id"].as_str().unwrap();
    let expected = format!(
        "{destination}|{status}|{reference}|{attempts}|{hash}|{version}|{fence}|201|{length}|{correlation_id}|1||"
    );
    assert_eq!(shown, expected, "{claim}");
}

/// CLM-9, CLM-5: a reference that is a number keeps the processor's spelling, in answers and on the command
/// line.
#[tokio::test]
async fn numeric_reference_keeps_its_digits() {
    let processor = Processor::start().await;
    let books = Books::set(http(&processor)).await;
    let credentials = serde_json::to_string(&books.shop).unwrap();
    let shell = Shell::at(&books.node);
    let file = shell.write("shop.json", &credentials);
    for number in ["2026.10", "123456789012345678901234567890", "1e3"] {
        let body = format!(r#"{{ "glPostingReference": {number} }}"#);
        processor.answers([Reply::new(201, &body).header("Content-Type", "application/json")]);
        let id = new_id();
        let first = books.send(&id, 10).await;
        assert_eq!((first.word(), &first.document["reference"]), ((201, "COMPLETED"), &json!(number)));
        assert_eq!(books.send(&id, 10).await.document["reference"], number);
        assert_eq!(books.look_up(&id).await["claims"][0]["glPostingReference"], number);
        let event = ["emit", "-c", &file, "--event", "order.paid", "--id", &id, r#"{"amount":10}"#];
        for (more, expected) in [
            (&[][..], format!(r#"response: {{"glPostingReference":{number}}}"#)),
            (&["--output", "json"], format!(r#""response":{{"glPostingReference":{number}}}"#)),
        ] {
            let again = shell.run_words(&[&event[..], more].concat());
            assert_eq!(again.code, Some(0), "{again:?}");
            assert!(again.out.contains(&expected), "{}", again.out);
        }
    }
}

/// CLM-6: the gateway answers every copy of a finally failed message alike, so the client sends it once.
#[tokio::test]
async fn client_does_not_retry_a_final_failure() {
    let processor = Processor::start().await;
    let books = Books::set(http(&processor)).await;
    processor.answers([Reply::new(404, &"x".repeat(300_000))]);
    let id = new_id();
    let failed = books.send(&id, 10).await;
    assert_eq!(failed.word(), (502, "FAILED"), "{}", failed.text);
    let mut event =
        snavio_sdk::Event::new(CommandName::event_type("order.paid").unwrap(), br#"{"amount":10}"#.to_vec());
    event.id = MessageId::event(&id).unwrap();
    let client = books.node.client(&books.shop);
    let refused = client.send_event(&event).await.unwrap_err();
    assert!(refused.is_final_failure() && !refused.is_retryable(), "{refused:?}");
    let count = eventually("the second copy is counted", async || {
        let found = books.look_up(&id).await;
        found["claims"][0]["count"].as_i64().filter(|count| *count > 1)
    });
    assert_eq!(count.await, 2, "one request by each of the two clients");
}

/// PIP-8, MSG-10, CLM-9: lenient JSON readers accept these responses. A strict reader would refuse a whole
/// batch answer because of one of them.
#[tokio::test]
async fn responses_that_strict_readers_refuse_are_base64() {
    let processor = Processor::start().await;
    let deep = format!(
        r#"{{"glPostingReference":"JE-1","a":{}{}}}"#,
        "[".repeat(bounds::JSON_DEPTH_MAX),
        "]".repeat(bounds::JSON_DEPTH_MAX)
    );
    let unfit = [
        deep.as_str(),
        r#"{"glPostingReference":"JE-2","a":1,"a":2}"#,
        r#"{"glPostingReference":"JE-3","a":"\ud800"}"#,
        r#"{"glPostingReference":"JE-4","a":1e9999}"#,
        r#"{"glPostingReference":"JE-5","glPostingReference":"JE-6"}"#,
    ];
    let fit = r#"{"glPostingReference":"JE-7"}"#;
    processor.answers(unfit.iter().chain([&fit]).map(|body| Reply::new(200, body)));
    let books = Books::set(http(&processor)).await;
    let events: Vec<_> = (0..=unfit.len())
        .map(|n| json!({ "eventId": format!("e-{n}"), "eventType": "order.paid", "data": {} }))
        .collect();
    let token = books.node.token(&books.shop).await;
    for replay in [false, true] {
        let batch = json!(events).to_string();
        let answer = Answered::to(post_json(&books.node, "/v1/events/batch", &token, batch)).await;
        let document = read_strictly(&answer);
        let mut answers: Vec<_> = document["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|result| {
                assert_eq!((&result["state"], result["replay"] == true), (&json!("COMPLETED"), replay));
                let encoded = result["response_base64"].as_str().map(|text| STANDARD.decode(text).unwrap());
                let body = match encoded {
                    Some(bytes) => String::from_utf8(bytes).unwrap(),
                    None => format!("plain: {}", result["response"]),
                };
                (body, result["reference"].as_str().unwrap_or_default(), result["error"].as_str())
            })
            .collect();
        answers.sort();
        let repeated = "the processor answered 200 without a reference under /glPostingReference: a member on the \
                        way to it is repeated in its object, and readers differ in which one they take";
        let mut expected: Vec<_> = unfit
            .iter()
            .zip(["JE-1", "JE-2", "JE-3", "JE-4", ""])
            .map(|(body, reference)| {
                let error = reference.is_empty().then_some(repeated);
                ((*body).to_owned(), reference, error)
            })
            .collect();
        expected.push((format!("plain: {fit}"), "JE-7", None));
        expected.sort();
        assert_eq!(answers, expected);
    }
}

/// A response with a reference and arrays that are nested so many levels deep in all.
fn nested_response(levels: usize) -> String {
    let (open, close) = ("[".repeat(levels - 1), "]".repeat(levels - 1));
    format!(r#"{{"glPostingReference":"JE-{levels}","a":{open}{close}}}"#)
}

/// A response with a reference and so many other members.
fn wide_response(reference: &str, members: usize) -> String {
    let members: Vec<_> = (0..members).map(|n| format!(r#""m{n}":{n}"#)).collect();
    format!(r#"{{"glPostingReference":"{reference}",{}}}"#, members.join(","))
}

/// The answer's document, which a strict JSON reader accepts.
fn read_strictly(answer: &Answered) -> Value {
    let mut reader = Reader::new(answer.text.as_bytes()).unwrap();
    assert!(reader.skip().is_ok() && reader.finish().is_ok(), "{}", answer.text);
    answer.document()
}

/// MSG-10: JSON readers count depth and members over the whole answer, not only over the stored response.
#[tokio::test]
async fn responses_over_document_limits_are_base64() {
    let processor = Processor::start().await;
    let mut bodies: Vec<_> = (55..=64).map(nested_response).collect();
    bodies.extend([
        wide_response("JE-1", 6_000),
        wide_response("JE-2", 6_000),
        wide_response("JE-3", 100),
        wide_response("JE-4", 9_990),
    ]);
    processor.answers(bodies.iter().map(|body| Reply::new(200, body)));
    let books = Books::set(http(&processor)).await;
    let token = books.node.token(&books.shop).await;
    let events: Vec<_> = (0..bodies.len())
        .map(|n| json!({ "eventId": format!("e-{n}"), "eventType": "order.paid", "data": {} }))
        .collect();
    for _ in 0..2 {
        let answer =
            Answered::to(post_json(&books.node, "/v1/events/batch", &token, json!(events).to_string()));
        let document = read_strictly(&answer.await);
        let results = document["results"].as_array().unwrap().iter();
        let mut encoded: Vec<_> = results
            .map(|result| {
                (result["reference"].as_str().unwrap().to_owned(), result["response"] == Value::Null)
            })
            .collect();
        encoded.sort();
        let expected: Vec<_> = ["JE-1", "JE-2", "JE-4", "JE-60", "JE-61", "JE-62", "JE-63", "JE-64"].into();
        let is_encoded = encoded.iter().filter(|(_, is_encoded)| *is_encoded).map(|(reference, _)| reference);
        assert_eq!(is_encoded.collect::<Vec<_>>(), expected);
        assert_eq!(encoded.len(), bodies.len());
    }
    // A single answer leaves more depth and members to the response than a batch does.
    for event in &events {
        let answer = Answered::to(post_json(&books.node, "/v1/events", &token, event.to_string())).await;
        let document = read_strictly(&answer);
        let is_plain = document["response"] != Value::Null;
        let reference = document["reference"].as_str().unwrap();
        assert_eq!(is_plain, !matches!(reference, "JE-4" | "JE-60" | "JE-61" | "JE-62" | "JE-63" | "JE-64"));
    }
}

/// PIP-8, MSG-10, CLM-10: the same holds for a worker's response.
#[tokio::test]
async fn worker_response_that_strict_readers_refuse_is_base64() {
    let books = Books::set(json!({ "kind": "tracked" })).await;
    let id = new_id();
    books.send(&id, 10).await;
    let work = books.take(30).await;
    let response = r#"{"total":"1.00","total":"2.00"}"#;
    let (delivery, fence) = (json!(work.delivery_id), json!(work.fence));
    let report = format!(r#"{{"delivery_id":{delivery},"fence":{fence},"response":{response}}}"#);
    let worker = books.worker().authorized().await.unwrap();
    let path = "/v1/claims/order.paid/complete";
    let done = worker.send(Method::POST, path, Some(report.into_bytes()), "application/json").await;
    assert_eq!(done.unwrap().1["outcome"], "done");
    let replay = books.send(&id, 10).await;
    assert_eq!(replay.word(), (200, "COMPLETED"), "{}", replay.text);
    assert!(replay.document.get("response").is_none(), "{}", replay.text);
    assert_eq!(replay.document["response_base64"], STANDARD.encode(response));
    let (_, bytes) =
        worker.exchange(Method::GET, &format!("/v1/claims/{id}/answer"), None, "").await.unwrap();
    assert_eq!(bytes, response.as_bytes(), "the response is unchanged");
}
