//! Faults of a call, and whether the processor may still have done the work (CLM-7).

use std::time::Duration;

use snavio_sink::Sink;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::server::{Server, ServerAction};
use crate::{call, processor, summary};

/// The timeout of calls that must time out.
const SHORT: Duration = Duration::from_millis(300);

/// CLM-7
#[tokio::test]
async fn unanswered_call_has_an_unknown_outcome() {
    let mut server = Server::start(ServerAction::Hang).await;
    let mut hanging = call(&server.url());
    hanging.timeout = SHORT;
    let expected = "unknown: the processor did not answer within 300ms; it may have done it";
    assert_eq!(summary(&processor().send(hanging).await), expected);
    assert_eq!(server.request().await.body, r#"{"amount":"10.00"}"#, "it was read");
}

/// CLM-7: the request is in the buffers of the two machines, so the caller cannot know how much of it
/// arrived.
#[tokio::test]
async fn unread_call_has_an_unknown_outcome() {
    let mut server = Server::start(ServerAction::Ignore).await;
    let mut ignored = call(&server.url());
    ignored.timeout = SHORT;
    let expected = "unknown: the processor did not answer within 300ms; it may have done it";
    assert_eq!(summary(&processor().send(ignored).await), expected);
    assert!(server.is_quiet() && server.connections() == 1);
}

/// CLM-7
#[tokio::test]
async fn lost_connection_has_an_unknown_outcome() {
    let processor = processor();
    let begun = "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{\"reference\":\"JE-7\"";
    for action in [
        ServerAction::HangUp,
        ServerAction::RespondAndReset(String::new()),
        ServerAction::RespondAndReset("HTTP/1.1 20".to_owned()),
        ServerAction::RespondAndReset(begun.to_owned()),
        ServerAction::answer("nonsense", "", ""),
    ] {
        let mut server = Server::start(action.clone()).await;
        let summary = summary(&processor.send(call(&server.url())).await);
        let expected = "unknown: the processor's answer was lost; it may have done it: ";
        assert!(summary.starts_with(expected), "{action:?}: {summary}");
        server.request().await;
        assert!(server.is_quiet(), "{action:?}: one call is one request");
    }
}

/// CLM-7
#[tokio::test]
async fn unfinished_answer_has_an_unknown_outcome() {
    let begun = "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{\"reference\":\"JE-7\"";
    let mut server = Server::start(ServerAction::Respond(begun.to_owned())).await;
    let mut slow = call(&server.url());
    slow.timeout = SHORT;
    let expected = "unknown: the processor did not answer within 300ms; it may have done it";
    assert_eq!(summary(&processor().send(slow).await), expected);
    server.request().await;
}

/// CLM-6
#[tokio::test]
async fn unreachable_processor_was_sent_nothing() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let refused_port = summary(&processor().send(call(&format!("http://127.0.0.1:{port}/"))).await);
    let expected =
        "again: the processor could not be reached; nothing was sent: Connection refused (os error 111)";
    assert_eq!(refused_port, expected);
    let unknown_name = summary(&processor().send(call("https://processor.invalid/")).await);
    let expected = "again: the processor could not be reached";
    assert!(unknown_name.starts_with(expected), "{unknown_name}");
}

/// CLM-6: the timeout of the whole call ends before there is a connection.
#[tokio::test]
async fn processor_without_a_connection_was_sent_nothing() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    // The test accepts no connection, so the kernel stops taking them after the first few.
    let mut waiting = Vec::new();
    while let Ok(connected) = tokio::time::timeout(SHORT, TcpStream::connect(address)).await {
        waiting.push(connected.unwrap());
        assert!(waiting.len() < 16, "the line never gets full");
    }
    let mut late = call(&format!("http://{address}/"));
    late.timeout = SHORT;
    let expected = "again: the processor could not be reached within 300ms; nothing was sent";
    assert_eq!(summary(&processor().send(late).await), expected);
}

/// CLM-6, QUA-6
#[tokio::test]
async fn processor_with_a_bad_certificate_was_sent_nothing() {
    let mut server = Server::start(ServerAction::answer("200 OK", "", "{}")).await;
    let summary = summary(&processor().send(call(&format!("https://{}/", server.address))).await);
    assert!(
        summary.starts_with("again: the processor could not be reached; nothing was sent: "),
        "{summary}"
    );
    assert!(server.is_quiet() && server.connections() == 1);
}
