//! What is kept of a processor's answer, and what is said where something is missing (CLM-5, CLM-9), from outside.

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

/// CLM-5, CLM-6: it is done, so it is called for once, and nothing of it is a dead letter.
#[tokio::test]
async fn what_a_processor_has_done_is_complete_however_long_its_answer() {
    let processor = Processor::start().await;
    let long = format!(r#"{{"glPostingReference":"JE-1","lines":"{}"}}"#, "x".repeat(256 * 1024));
    processor.answers([Reply::new(201, &long).header("Content-Type", "application/json")]);
    let books = Books::set(http(&processor)).await;
    let id = new_id();
    let says = "the processor answered 201 with more than 262144 bytes, which are not kept; so the reference under \
                /glPostingReference is not known";
    for status in [201, 200, 200] {
        let told = books.send_waiting(&id, 10, Some(30)).await;
        assert_eq!(told.word(), (status, "COMPLETED"), "{}", told.text);
        assert_eq!(told.document["error"], says, "{}", told.text);
        for member in ["reference", "response", "response_base64", "response_status"] {
            assert!(told.document.get(member).is_none(), "{member}: {}", told.text);
        }
    }
    assert_eq!(books.send(&id, 11).await.word(), (409, "conflict"), "it is known what it said");

    let claim = books.look_up(&id).await["claims"][0].clone();
    assert_eq!((&claim["status"], &claim["attempts"]), (&json!("COMPLETED"), &json!(1)), "{claim}");
    assert_eq!((&claim["error"], claim.get("glPostingReference")), (&json!(says), None), "{claim}");
    let (status, nothing) = books.ask(Method::GET, &format!("/v1/claims/{id}/answer"), None).await;
    assert_eq!((status, &nothing["detail"]), (404, &json!("no answer is kept of it")), "{nothing}");
    let (_, letters) = books.ask(Method::GET, "/v1/dead-letters", None).await;
    let reasons: Vec<_> = letters["items"].as_array().unwrap().iter().map(|it| &it["reason"]).collect();
    assert_eq!(reasons, ["conflict"], "nothing but that");
    let failed = metric(&books.node, "events_processed_total{status=\"failed\"}").await;
    assert_eq!(failed.unwrap_or_default(), 0.0);
    assert_eq!(processor.asked().len(), 1);
    assert!(books.node.said().contains("a processor is done, but not all of its answer is kept"));
}

/// CLM-5, CLM-9
#[tokio::test]
async fn what_a_processor_has_done_without_a_reference_is_complete_and_says_so() {
    let processor = Processor::start().await;
    processor.answers([Reply::new(200, r#"{"posted":true}"#).header("Content-Type", "application/json")]);
    let books = Books::set(http(&processor)).await;
    let id = new_id();
    let says = "the processor answered 200 without a reference under /glPostingReference: no text or number of 1 to \
                256 bytes on one line is there";
    for status in [201, 200] {
        let told = books.send_waiting(&id, 10, Some(30)).await;
        assert_eq!(told.word(), (status, "COMPLETED"), "{}", told.text);
        assert_eq!((&told.document["error"], told.response()), (&json!(says), r#"{"posted":true}"#));
        assert!(told.document.get("reference").is_none(), "{}", told.text);
    }
    let claim = books.look_up(&id).await["claims"][0].clone();
    assert_eq!((&claim["status"], &claim["error"]), (&json!("COMPLETED"), &json!(says)), "{claim}");
    let id = new_id();
    let told = books.send_waiting(&id, 10, Some(30)).await;
    assert_eq!((&told.document["reference"], told.document.get("error")), (&json!("JE-1"), None));
    assert_eq!(processor.asked().len(), 2);
}

/// CLM-6: a failure for good is one however long its answer; what is not kept is not answered.
#[tokio::test]
async fn what_a_processor_refused_at_length_is_refused_for_good() {
    let processor = Processor::start().await;
    processor.answers([Reply::new(422, &"no".repeat(256 * 1024))]);
    let books = Books::set(http(&processor)).await;
    let id = new_id();
    for _ in 0..2 {
        let told = books.send_waiting(&id, 10, Some(30)).await;
        assert_eq!(told.word(), (502, "FAILED"), "{}", told.text);
        let says = "the processor answered 422 with more than 262144 bytes, which are not kept";
        assert_eq!(told.document["error"], says);
    }
    let (_, letters) = books.ask(Method::GET, "/v1/dead-letters", None).await;
    assert_eq!(letters["items"][0]["reason"], "failed", "{letters}");
    assert_eq!(processor.asked().len(), 1);
}

/// What a tool that reads the store answers.
fn in_sql(books: &Books, query: &str) -> String {
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

/// CLM-2: lists, look-ups and the SQL view show one status.
#[tokio::test]
async fn status_is_the_same_in_lists_lookups_and_sql() {
    let books =
        Books::set(json!({ "kind": "tracked", "backoff_seconds": 1, "backoff_max_seconds": 1 })).await;
    let ids = [new_id(), new_id(), new_id()];
    let [taken_up, waiting, in_doubt] = &ids;
    let shows = async |id: &str, status: &str| {
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
            let agree = listed == [status] && looked_up == status && in_sql(&books, &query) == status;
            agree.then_some(())
        })
        .await;
    };
    assert_eq!(books.send(taken_up, 10).await.status, 202);
    let first = books.take(60).await;
    shows(taken_up, "PROCESSING").await;
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
    shows(taken_up, "PROCESSING").await;
    shows(waiting, "FAILED").await;
    let purge = Some(json!({ "why": "a test" }));
    assert_eq!(books.ask(Method::POST, "/v1/queues/paid/purge", purge).await.0, 200);
    shows(taken_up, "PROCESSING").await;
    shows(in_doubt, "IN_DOUBT").await;
}

/// CLM-2: with any tool that reads the store, while a node serves over it.
#[tokio::test]
async fn an_auditor_reads_claims_in_sql() {
    let processor = Processor::start().await;
    let books = Books::set(http(&processor)).await;
    let id = new_id();
    let told = books.send(&id, 10).await;
    assert_eq!(told.word(), (201, "COMPLETED"), "{}", told.text);
    let claim = books.look_up(&id).await["claims"][0].clone();
    let query = format!(
        "SELECT destination, status, gl_posting_reference, attempts, domain_payload_hash, hash_version, fence, \
             response_status, length(response_payload), correlation_id, seen, archived_at, deadline \
         FROM claims WHERE tenant = 'acme' AND event_id = '{id}'"
    );
    let shown = in_sql(&books, &query);
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
    // As it came, with the line feed at its end.
    let (length, journey) = (told.response().len() + 1, told.document["correlation_id"].as_str().unwrap());
    let expected = format!(
        "{destination}|{status}|{reference}|{attempts}|{hash}|{version}|{fence}|201|{length}|{journey}|1||"
    );
    assert_eq!(shown, expected, "{claim}");
}

/// CLM-9, CLM-5: a number is the reference as the processor wrote it, and so is everything that people are shown.
#[tokio::test]
async fn a_numeric_reference_keeps_its_digits() {
    let processor = Processor::start().await;
    let books = Books::set(http(&processor)).await;
    let credentials = serde_json::to_string(&books.shop).unwrap();
    let shell = Shell::at(&books.node);
    let file = shell.write("shop.json", &credentials);
    for number in ["2026.10", "123456789012345678901234567890", "1e3"] {
        let said = format!(r#"{{ "glPostingReference": {number} }}"#);
        processor.answers([Reply::new(201, &said).header("Content-Type", "application/json")]);
        let id = new_id();
        let first = books.send(&id, 10).await;
        assert_eq!((first.word(), &first.document["reference"]), ((201, "COMPLETED"), &json!(number)));
        assert_eq!(books.send(&id, 10).await.document["reference"], number);
        assert_eq!(books.look_up(&id).await["claims"][0]["glPostingReference"], number);
        let event = ["emit", "-c", &file, "--event", "order.paid", "--id", &id, r#"{"amount":10}"#];
        for (more, sought) in [
            (&[][..], format!(r#"response: {{"glPostingReference":{number}}}"#)),
            (&["--output", "json"], format!(r#""response":{{"glPostingReference":{number}}}"#)),
        ] {
            let again = shell.run_words(&[&event[..], more].concat());
            assert_eq!(again.code, Some(0), "{again:?}");
            assert!(again.out.contains(&sought), "{}", again.out);
        }
    }
}

/// CLM-6: what failed for good is answered the same however often it is sent, so it is sent once.
#[tokio::test]
async fn a_client_does_not_send_again_what_has_failed_for_good() {
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
    let count = eventually("it is counted", async || {
        let found = books.look_up(&id).await;
        found["claims"][0]["count"].as_i64().filter(|it| *it > 1)
    });
    assert_eq!(count.await, 2, "once by each");
}

/// PIP-8, MSG-10, CLM-9: general readers take these answers, and strict ones would refuse a whole batch for one of them.
#[tokio::test]
async fn answers_that_strict_readers_refuse_come_in_base64() {
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
        let mut reader = Reader::new(answer.text.as_bytes()).unwrap();
        assert!(reader.skip().is_ok() && reader.finish().is_ok(), "{}", answer.text);
        let document = answer.document();
        let mut answers: Vec<_> = document["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|result| {
                assert_eq!((&result["state"], result["replay"] == true), (&json!("COMPLETED"), replay));
                let encoded = result["response_base64"].as_str().map(|text| STANDARD.decode(text).unwrap());
                let body = match encoded {
                    Some(bytes) => String::from_utf8(bytes).unwrap(),
                    None => format!("as it is: {}", result["response"]),
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
        expected.push((format!("as it is: {fit}"), "JE-7", None));
        expected.sort();
        assert_eq!(answers, expected);
    }
}

/// MSG-10: readers count levels and members of the whole document.
#[tokio::test]
async fn answers_leave_room_for_their_document() {
    let processor = Processor::start().await;
    let nested = |levels: usize| {
        let (open, close) = ("[".repeat(levels - 1), "]".repeat(levels - 1));
        format!(r#"{{"glPostingReference":"JE-{levels}","a":{open}{close}}}"#)
    };
    let large = |reference: &str, members: usize| {
        let members: Vec<_> = (0..members).map(|n| format!(r#""m{n}":{n}"#)).collect();
        format!(r#"{{"glPostingReference":"{reference}",{}}}"#, members.join(","))
    };
    let mut bodies: Vec<_> = (55..=64).map(nested).collect();
    bodies.extend([large("JE-1", 6_000), large("JE-2", 6_000), large("JE-3", 100), large("JE-4", 9_990)]);
    processor.answers(bodies.iter().map(|body| Reply::new(200, body)));
    let books = Books::set(http(&processor)).await;
    let token = books.node.token(&books.shop).await;
    let event = |n: usize| json!({ "eventId": format!("e-{n}"), "eventType": "order.paid", "data": {} });
    let events: Vec<_> = (0..bodies.len()).map(event).collect();
    let strict = |answer: &Answered| {
        let mut reader = Reader::new(answer.text.as_bytes()).unwrap();
        assert!(reader.skip().is_ok() && reader.finish().is_ok(), "{}", answer.text);
        answer.document()
    };
    for _ in 0..2 {
        let answer =
            Answered::to(post_json(&books.node, "/v1/events/batch", &token, json!(events).to_string()));
        let document = strict(&answer.await);
        let of = |result: &Value| {
            (result["reference"].as_str().unwrap().to_owned(), result["response"] == Value::Null)
        };
        let mut encoded: Vec<_> = document["results"].as_array().unwrap().iter().map(of).collect();
        encoded.sort();
        let expected: Vec<_> = ["JE-1", "JE-2", "JE-4", "JE-60", "JE-61", "JE-62", "JE-63", "JE-64"].into();
        let is_encoded = encoded.iter().filter(|(_, is_encoded)| *is_encoded).map(|(reference, _)| reference);
        assert_eq!(is_encoded.collect::<Vec<_>>(), expected);
        assert_eq!(encoded.len(), bodies.len());
    }
    // Alone it has the whole room.
    for event in &events {
        let answer = Answered::to(post_json(&books.node, "/v1/events", &token, event.to_string())).await;
        let document = strict(&answer);
        let is_plain = document["response"] != Value::Null;
        let reference = document["reference"].as_str().unwrap();
        assert_eq!(is_plain, !matches!(reference, "JE-4" | "JE-60" | "JE-61" | "JE-62" | "JE-63" | "JE-64"));
    }
}

/// PIP-8, MSG-10, CLM-10: a worker's answer, too.
#[tokio::test]
async fn workers_answer_that_strict_readers_refuse_comes_in_base64() {
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
    assert_eq!(bytes, response.as_bytes(), "the bytes themselves");
}
