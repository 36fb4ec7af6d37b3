//! Tests of the endings that the sink derives from the answers of a processor.

use snavio_model::bounds::ANSWER_BYTES_MAX;
use snavio_model::delivery::processing::Ending;
use snavio_sink::Sink;
use tokio::time::Instant;

use crate::server::{Server, ServerAction};
use crate::{AMPLE, call, processor, summary};

/// CLM-9
#[tokio::test]
async fn call_carries_message_id_and_fencing_token() {
    let mut server = Server::start(ServerAction::answer("201 Created", "", r#"{"reference":"JE-7"}"#)).await;
    assert_eq!(summary(&processor().send(call(&server.url())).await), "done 201 JE-7");
    let request = server.request().await;
    let mut lines: Vec<_> = request.head.lines().collect();
    assert_eq!(lines.remove(0), "POST /post?x=1 HTTP/1.1");
    lines.sort_unstable();
    let host = format!("host: {}", server.address);
    assert_eq!(
        lines,
        [
            "accept: */*",
            "content-length: 18",
            "content-type: application/json",
            &host,
            "idempotency-key: 0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f",
            "snavio-attempt: 3",
            "snavio-delivery-id: 268435456",
            "snavio-fence: 268435457",
            "snavio-source: acme/shop",
            "traceparent: 00-07070707070707070707070707070707-0707070707070707-01",
            "x-correlation-id: order 7",
        ]
    );
    assert_eq!(request.body, r#"{"amount":"10.00"}"#);
}

/// CLM-5, CLM-9
#[tokio::test]
async fn answer_is_kept_byte_for_byte() {
    let body = "{ \"reference\" : \"JE-7\",\n \"amount\": 10.00 }\n";
    let server =
        Server::start(ServerAction::answer("200 OK", "Content-Type: application/vnd.gl+json\r\n", body))
            .await;
    let Ending::Completed { answer: Some(answer), .. } = processor().send(call(&server.url())).await.ending
    else {
        panic!("it was answered");
    };
    assert_eq!((answer.status, &answer.body[..]), (200, body.as_bytes()));
    assert_eq!(answer.content_type.as_deref(), Some("application/vnd.gl+json"));
}

/// CLM-6, CLM-7
#[tokio::test]
async fn status_decides_done_retry_or_final() {
    let processor = processor();
    for (statuses, word) in [
        (&[200, 201, 202, 204, 299][..], "done"),
        (&[408, 425, 429, 500, 501, 503, 599], "again"),
        (&[502, 504], "unknown"),
        (&[300, 301, 304, 400, 401, 403, 404, 409, 410, 418, 422, 451], "final"),
    ] {
        for status in statuses {
            let mut server = Server::start(ServerAction::answer(&format!("{status} X"), "", "")).await;
            let summary = summary(&processor.send(call(&server.url())).await);
            assert!(
                summary.starts_with(word) && summary.contains(&status.to_string()),
                "{status}: {summary}"
            );
            assert!(word == "done" || word == "unknown" || summary.ends_with("answer kept"), "{summary}");
            server.request().await;
            assert!(server.is_quiet(), "{status}: one call is one request");
        }
    }
}

/// CLM-6
#[tokio::test]
async fn retry_after_of_the_processor_is_kept() {
    let processor = processor();
    let date = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    for (headers, expected) in [
        ("Retry-After: 17\r\n".to_owned(), "again: the processor answered 503, answer kept, after 17s"),
        (
            format!("{date}Retry-After: Sun, 06 Nov 1994 08:51:37 GMT\r\n"),
            "again: the processor answered 503, answer kept, after 120s",
        ),
        ("Retry-After: soon\r\n".to_owned(), "again: the processor answered 503, answer kept"),
    ] {
        let server = Server::start(ServerAction::answer("503 Busy", &headers, "")).await;
        assert_eq!(summary(&processor.send(call(&server.url())).await), expected);
    }
}

/// QUA-6
#[tokio::test]
async fn redirect_is_an_answer_and_not_followed() {
    let processor = processor();
    let mut other = Server::start(ServerAction::answer("200 OK", "", "{}")).await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("Location: {}\r\n", other.url());
        let mut server = Server::start(ServerAction::answer(&format!("{status} There"), &location, "")).await;
        let expected = format!("final: the processor answered {status}, answer kept");
        assert_eq!(summary(&processor.send(call(&server.url())).await), expected);
        server.request().await;
    }
    assert!(other.is_quiet() && other.connections() == 0);
}

/// The beginning of a chunked answer that is one byte too long.
fn too_long(status: &str, headers: &str) -> String {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Transfer-Encoding: chunked\r\n\r\n");
    let longest = "x".repeat(ANSWER_BYTES_MAX);
    format!("{head}{:x}\r\n{longest}\r\n1\r\nx\r\n", longest.len())
}

/// CLM-5, CLM-9: the effect has happened, and a second attempt would get an answer of the same length.
#[tokio::test]
async fn success_with_an_overlong_answer_is_done() {
    let processor = processor();
    let longest = "x".repeat(ANSWER_BYTES_MAX);
    let server = Server::start(ServerAction::answer("200 OK", "", &longest)).await;
    let kept = processor.send(call(&server.url())).await.ending;
    assert!(matches!(&kept, Ending::Completed { answer: Some(it), .. } if it.body == longest), "{kept:?}");

    let whole = format!("{}0\r\n\r\n", too_long("200 OK", ""));
    for action in [ServerAction::answer("200 OK", "", &format!("{longest}x")), ServerAction::Respond(whole)] {
        let mut server = Server::start(action).await;
        let note = "the processor answered 200 with more than 262144 bytes, which are not kept; so the reference \
                    under /reference is not known";
        let done = Ending::Completed { answer: None, reference: None, note: Some(note.to_owned()) };
        assert_eq!(processor.send(call(&server.url())).await.ending, done);
        server.request().await;
        assert!(server.is_quiet(), "one call is one request");
    }
}

/// CLM-6, CLM-7: the status of a failure counts too, for an answer of any length.
#[tokio::test]
async fn status_counts_for_overlong_answers() {
    let processor = processor();
    for (status, headers, expected) in [
        ("422 No", "", "final: the processor answered 422 {}"),
        ("503 Busy", "Retry-After: 17\r\n", "again: the processor answered 503 {}, after 17s"),
        ("504 Late", "", "unknown: the processor answered 504 {}"),
    ] {
        let server = Server::start(ServerAction::Respond(too_long(status, headers))).await;
        let expected = expected.replace("{}", "with more than 262144 bytes, which are not kept");
        assert_eq!(summary(&processor.send(call(&server.url())).await), expected);
    }
}

/// QUA-6: the sink reads no more than it keeps, and does not wait for the rest.
#[tokio::test]
async fn endless_answer_is_hung_up_on() {
    let processor = processor();
    // The server sends the length and then nothing. The sink has nothing to wait for.
    let silent = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", ANSWER_BYTES_MAX + 1);
    // The server sends one byte too many, and never ends.
    for action in [
        ServerAction::Respond(silent),
        ServerAction::Respond(too_long("200 OK", "")),
        ServerAction::RespondEndlessly("200 OK"),
    ] {
        let mut server = Server::start(action).await;
        let began = Instant::now();
        let done = processor.send(call(&server.url())).await.ending;
        assert!(matches!(done, Ending::Completed { answer: None, note: Some(_), .. }), "{done:?}");
        assert!(began.elapsed() < AMPLE / 2, "it waited");
        server.request().await;
    }
    let server = Server::start(ServerAction::RespondEndlessly("200 OK")).await;
    processor.send(call(&server.url())).await;
    let poured = server.poured().await;
    assert!(poured < 64 * ANSWER_BYTES_MAX, "no more than the buffers of two machines: {poured} bytes");
}

/// CLM-9: the effect has happened without a reference, and another attempt would not yield one.
#[tokio::test]
async fn success_without_a_reference_has_a_note() {
    let without = "the processor answered 200 without a reference under /reference: no text or number of 1 to 256 \
                   bytes on one line is there";
    for body in ["", "{}", "JE-7", r#"{"reference":""}"#, r#"{"reference":["JE-7"]}"#] {
        let server = Server::start(ServerAction::answer("200 OK", "", body)).await;
        let done = processor().send(call(&server.url())).await.ending;
        let Ending::Completed { answer: Some(answer), reference: None, note: Some(note) } = done else {
            panic!("{body}: {done:?}");
        };
        assert_eq!((answer.body, note.as_str()), (body.into(), without));
    }
    let server = Server::start(ServerAction::answer("200 OK", "", "{}")).await;
    let mut unasked = call(&server.url());
    unasked.reference = None;
    let done = processor().send(unasked).await.ending;
    assert!(matches!(&done, Ending::Completed { answer: Some(_), note: None, .. }), "{done:?}");
}

/// CLM-9: a handshake for each call would cost more than the call.
#[tokio::test]
async fn consecutive_calls_share_a_connection() {
    let processor = processor();
    let mut server = Server::start(ServerAction::answer("200 OK", "", "{}")).await;
    for _ in 0..5 {
        assert_eq!(summary(&processor.send(call(&server.url())).await), "done 200 -");
        server.request().await;
    }
    assert_eq!(server.connections(), 1);
}

/// CLM-1: a reader of a header strips spaces from its ends, so two ids would become one.
#[tokio::test]
async fn id_unfit_for_a_header_is_not_sent() {
    let mut server = Server::start(ServerAction::answer("200 OK", "", "{}")).await;
    for (id, expected) in [
        (" id-1", "final: the message's id begins or ends with a space, which no Idempotency-Key can carry"),
        ("id-1 ", "final: the message's id begins or ends with a space, which no Idempotency-Key can carry"),
        ("id\r\nSnavio-Fence: 9", "final: the message's id cannot be told in a header"),
    ] {
        let mut call = call(&server.url());
        call.message_id = snavio_model::id::MessageId::stored(id);
        assert_eq!(summary(&processor().send(call).await), expected);
    }
    assert!(server.is_quiet());
}
