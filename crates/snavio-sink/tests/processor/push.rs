//! HTTP push: the request that a receiver gets, and how the sink judges its answer (DLV-1, DLV-4).

use snavio_model::delivery::breaker::Presence;
use snavio_model::delivery::processing::{Called, Ending};
use snavio_sink::{Call, HttpPush, Network, Sink};

use crate::server::{Server, ServerAction};
use crate::{call, summary};

/// A push sink that may call this machine.
fn push() -> HttpPush {
    HttpPush::new(&[Network::parse("127.0.0.0/8").unwrap()]).unwrap()
}

/// A call with the headers of a signature.
fn signed(url: &str) -> Call {
    let mut call = call(url);
    let headers = [("webhook-timestamp", "1794731400"), ("webhook-signature", "v1,xyz"), ("ce-id", "7")];
    call.headers.extend(headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
    call
}

/// DLV-1
#[tokio::test]
async fn push_carries_message_signature_and_ids() {
    let mut server = Server::start(ServerAction::answer("204 Taken", "", "")).await;
    let called = push().send(signed(&server.url())).await;
    let done = Ending::Completed { answer: None, reference: None, note: None };
    assert_eq!(called, Called { ending: done, presence: Presence::Up });
    let request = server.request().await;
    let mut lines: Vec<_> = request.head.lines().collect();
    assert_eq!(lines.remove(0), "POST /post?x=1 HTTP/1.1");
    lines.sort_unstable();
    let host = format!("host: {}", server.address);
    assert_eq!(
        lines,
        [
            "accept: */*",
            "ce-id: 7",
            "content-length: 18",
            "content-type: application/json",
            &host,
            "snavio-attempt: 3",
            "snavio-delivery-id: 268435456",
            "snavio-fence: 268435457",
            "snavio-source: acme/shop",
            "traceparent: 00-07070707070707070707070707070707-0707070707070707-01",
            "webhook-id: 0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f",
            "webhook-signature: v1,xyz",
            "webhook-timestamp: 1794731400",
            "x-correlation-id: order 7",
        ]
    );
    assert_eq!(request.bytes, br#"{"amount":"10.00"}"#);
}

/// DLV-4
#[tokio::test]
async fn status_decides_acceptance_and_endpoint_health() {
    for (statuses, word, presence) in [
        (&[200, 202, 204][..], "done", Presence::Up),
        (&[400, 401, 403, 404, 409, 422, 500], "again", Presence::Up),
        (&[429, 502, 503, 504], "again", Presence::SILENT),
        (&[410], "again", Presence::Gone),
    ] {
        for status in statuses {
            let server = Server::start(ServerAction::answer(&format!("{status} X"), "", "")).await;
            let called = push().send(signed(&server.url())).await;
            assert!(summary(&called).starts_with(word), "{status}: {called:?}");
            assert_eq!(called.presence, presence, "{status}");
        }
    }
}

/// QUA-6: the sink reports a redirect as a redirect, also one to an address that it must not call.
#[tokio::test]
async fn redirect_is_a_failure_and_not_followed() {
    let other = Server::start(ServerAction::answer("200 OK", "", "{}")).await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("Location: {}\r\n", other.url());
        let server = Server::start(ServerAction::answer(&format!("{status} There"), &location, "")).await;
        let expected =
            format!("again: the receiver answered {status}, a redirect, and those are not followed");
        assert_eq!(summary(&push().send(signed(&server.url())).await), expected);
    }
    assert_eq!(other.connections(), 0);
}

/// DLV-4: the status alone says that the receiver has accepted the message, also if the rest of the answer is
/// lost.
#[tokio::test]
async fn accepted_push_is_done_despite_a_lost_answer() {
    let begun = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nthank";
    let server = Server::start(ServerAction::RespondAndReset(begun.to_owned())).await;
    let called = push().send(signed(&server.url())).await;
    assert!(matches!(called.ending, Ending::Completed { .. }), "{called:?}");
}

/// DLV-4: a handshake for each push would cost more than the push.
#[tokio::test]
async fn consecutive_pushes_share_a_connection() {
    let push = push();
    let mut server = Server::start(ServerAction::answer("200 OK", "", "thank you")).await;
    for _ in 0..5 {
        push.send(signed(&server.url())).await;
        server.request().await;
    }
    assert_eq!(server.connections(), 1);
}

/// CLM-1
#[tokio::test]
async fn id_unfit_for_a_header_is_not_sent() {
    let server = Server::start(ServerAction::answer("200 OK", "", "")).await;
    for (id, expected) in [
        (" id-1", "final: the message's id begins or ends with a space, which no Webhook-Id can carry"),
        ("id\r\nx: y", "final: the message's id cannot be told in a header"),
    ] {
        let mut call = signed(&server.url());
        call.message_id = snavio_model::id::MessageId::stored(id);
        assert_eq!(summary(&push().send(call).await), expected);
    }
    assert_eq!(server.connections(), 0);
}
