//! How the sink turns the answers of a processor into endings.

use snavio_model::limits::ANSWER_BYTES_MAX;
use snavio_model::processing::Ending;
use snavio_sink::Sink;
use tokio::time::Instant;

use crate::server::{Act, Server};
use crate::{AMPLE, call, processor, told};

/// CLM-9
#[tokio::test]
async fn a_call_carries_the_message_its_id_and_its_fence() {
    let mut server = Server::start(Act::answer("201 Created", "", r#"{"reference":"JE-7"}"#)).await;
    assert_eq!(told(&processor().send(call(&server.url())).await), "done 201 JE-7");
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
async fn an_answer_is_kept_byte_for_byte() {
    let body = "{ \"reference\" : \"JE-7\",\n \"amount\": 10.00 }\n";
    let server =
        Server::start(Act::answer("200 OK", "Content-Type: application/vnd.gl+json\r\n", body)).await;
    let Ending::Completed { answer: Some(answer), .. } = processor().send(call(&server.url())).await.ending
    else {
        panic!("it was answered");
    };
    assert_eq!((answer.status, &answer.body[..]), (200, body.as_bytes()));
    assert_eq!(answer.content_type.as_deref(), Some("application/vnd.gl+json"));
}

/// CLM-6, CLM-7
#[tokio::test]
async fn a_status_says_whether_it_is_done_tried_again_or_final() {
    let processor = processor();
    for (statuses, word) in [
        (&[200, 201, 202, 204, 299][..], "done"),
        (&[408, 425, 429, 500, 501, 503, 599], "again"),
        (&[502, 504], "unknown"),
        (&[300, 301, 304, 400, 401, 403, 404, 409, 410, 418, 422, 451], "final"),
    ] {
        for status in statuses {
            let mut server = Server::start(Act::answer(&format!("{status} X"), "", "")).await;
            let told = told(&processor.send(call(&server.url())).await);
            assert!(told.starts_with(word) && told.contains(&status.to_string()), "{status}: {told}");
            assert!(word == "done" || word == "unknown" || told.ends_with("answer kept"), "{told}");
            server.request().await;
            assert!(server.is_quiet(), "{status}: one call is one request");
        }
    }
}

/// CLM-6
#[tokio::test]
async fn a_processor_may_ask_for_time() {
    let processor = processor();
    let date = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    for (headers, says) in [
        ("Retry-After: 17\r\n".to_owned(), "again: the processor answered 503, answer kept, after 17s"),
        (
            format!("{date}Retry-After: Sun, 06 Nov 1994 08:51:37 GMT\r\n"),
            "again: the processor answered 503, answer kept, after 120s",
        ),
        ("Retry-After: soon\r\n".to_owned(), "again: the processor answered 503, answer kept"),
    ] {
        let server = Server::start(Act::answer("503 Busy", &headers, "")).await;
        assert_eq!(told(&processor.send(call(&server.url())).await), says);
    }
}

/// QUA-6
#[tokio::test]
async fn a_redirect_is_an_answer_and_not_followed() {
    let processor = processor();
    let mut other = Server::start(Act::answer("200 OK", "", "{}")).await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("Location: {}\r\n", other.url());
        let mut server = Server::start(Act::answer(&format!("{status} There"), &location, "")).await;
        let says = format!("final: the processor answered {status}, answer kept");
        assert_eq!(told(&processor.send(call(&server.url())).await), says);
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
async fn what_is_done_is_done_however_long_the_answer() {
    let processor = processor();
    let longest = "x".repeat(ANSWER_BYTES_MAX);
    let server = Server::start(Act::answer("200 OK", "", &longest)).await;
    let kept = processor.send(call(&server.url())).await.ending;
    assert!(matches!(&kept, Ending::Completed { answer: Some(it), .. } if it.body == longest), "{kept:?}");

    let whole = format!("{}0\r\n\r\n", too_long("200 OK", ""));
    for act in [Act::answer("200 OK", "", &format!("{longest}x")), Act::Say(whole)] {
        let mut server = Server::start(act).await;
        let note = "the processor answered 200 with more than 262144 bytes, which are not kept; so the reference \
                    under /reference is not known";
        let done = Ending::Completed { answer: None, reference: None, note: Some(note.to_owned()) };
        assert_eq!(processor.send(call(&server.url())).await.ending, done);
        server.request().await;
        assert!(server.is_quiet(), "one call is one request");
    }
}

/// CLM-6, CLM-7: the status of a failure counts too, whatever the length of its answer.
#[tokio::test]
async fn a_status_counts_however_long_the_answer() {
    let processor = processor();
    for (status, headers, says) in [
        ("422 No", "", "final: the processor answered 422 {}"),
        ("503 Busy", "Retry-After: 17\r\n", "again: the processor answered 503 {}, after 17s"),
        ("504 Late", "", "unknown: the processor answered 504 {}"),
    ] {
        let server = Server::start(Act::Say(too_long(status, headers))).await;
        let says = says.replace("{}", "with more than 262144 bytes, which are not kept");
        assert_eq!(told(&processor.send(call(&server.url())).await), says);
    }
}

/// QUA-6: the sink reads no more than it keeps, and does not wait for the rest.
#[tokio::test]
async fn an_answer_without_an_end_is_hung_up_on() {
    let processor = processor();
    // The server sends the length and then nothing. The sink has nothing to wait for.
    let silent = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", ANSWER_BYTES_MAX + 1);
    // The server sends one byte too many, and never ends.
    for act in [Act::Say(silent), Act::Say(too_long("200 OK", "")), Act::Pour("200 OK")] {
        let mut server = Server::start(act).await;
        let began = Instant::now();
        let done = processor.send(call(&server.url())).await.ending;
        assert!(matches!(done, Ending::Completed { answer: None, note: Some(_), .. }), "{done:?}");
        assert!(began.elapsed() < AMPLE / 2, "it waited");
        server.request().await;
    }
    let server = Server::start(Act::Pour("200 OK")).await;
    processor.send(call(&server.url())).await;
    let poured = server.poured().await;
    assert!(poured < 64 * ANSWER_BYTES_MAX, "what the two machines hold, and not {poured} bytes");
}

/// CLM-9: the effect has happened without a reference, and another attempt would not yield one.
#[tokio::test]
async fn what_is_done_without_a_reference_is_done_and_says_so() {
    let without = "the processor answered 200 without a reference under /reference: no text or number of 1 to 256 \
                   bytes on one line is there";
    for body in ["", "{}", "JE-7", r#"{"reference":""}"#, r#"{"reference":["JE-7"]}"#] {
        let server = Server::start(Act::answer("200 OK", "", body)).await;
        let done = processor().send(call(&server.url())).await.ending;
        let Ending::Completed { answer: Some(answer), reference: None, note: Some(note) } = done else {
            panic!("{body}: {done:?}");
        };
        assert_eq!((answer.body, note.as_str()), (body.into(), without));
    }
    let server = Server::start(Act::answer("200 OK", "", "{}")).await;
    let mut unasked = call(&server.url());
    unasked.reference = None;
    let done = processor().send(unasked).await.ending;
    assert!(matches!(&done, Ending::Completed { answer: Some(_), note: None, .. }), "{done:?}");
}

/// CLM-9: a handshake for each call would cost more than the call.
#[tokio::test]
async fn calls_that_follow_each_other_share_a_connection() {
    let processor = processor();
    let mut server = Server::start(Act::answer("200 OK", "", "{}")).await;
    for _ in 0..5 {
        assert_eq!(told(&processor.send(call(&server.url())).await), "done 200 -");
        server.request().await;
    }
    assert_eq!(server.connections(), 1);
}

/// CLM-1: a reader of a header strips spaces from its ends, so two ids would become one.
#[tokio::test]
async fn an_id_that_a_header_cannot_carry_is_not_sent_as_another() {
    let mut server = Server::start(Act::answer("200 OK", "", "{}")).await;
    for (id, says) in [
        (" id-1", "final: the message's id begins or ends with a space, which no Idempotency-Key can carry"),
        ("id-1 ", "final: the message's id begins or ends with a space, which no Idempotency-Key can carry"),
        ("id\r\nSnavio-Fence: 9", "final: the message's id cannot be told in a header"),
    ] {
        let mut call = call(&server.url());
        call.message_id = snavio_model::id::MessageId::stored(id);
        assert_eq!(told(&processor().send(call).await), says);
    }
    assert!(server.is_quiet());
}
