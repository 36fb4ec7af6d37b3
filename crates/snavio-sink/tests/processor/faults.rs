//! Faults of a call, and whether the processor may still have done the work (CLM-7).

use std::time::Duration;

use snavio_sink::Sink;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::server::{Act, Server};
use crate::{call, processor, told};

/// The timeout of calls that must time out.
const SHORT: Duration = Duration::from_millis(300);

/// CLM-7
#[tokio::test]
async fn what_was_sent_and_not_answered_in_time_may_have_been_done() {
    let mut server = Server::start(Act::Hang).await;
    let mut hanging = call(&server.url());
    hanging.timeout = SHORT;
    let says = "unknown: the processor did not answer within 300ms; it may have done it";
    assert_eq!(told(&processor().send(hanging).await), says);
    assert_eq!(server.request().await.body, r#"{"amount":"10.00"}"#, "it was read");
}

/// CLM-7: the request is in the buffers of the two machines, so the caller cannot know how much of it
/// arrived.
#[tokio::test]
async fn what_was_sent_and_not_read_in_time_may_be_done_later() {
    let mut server = Server::start(Act::Ignore).await;
    let mut ignored = call(&server.url());
    ignored.timeout = SHORT;
    let says = "unknown: the processor did not answer within 300ms; it may have done it";
    assert_eq!(told(&processor().send(ignored).await), says);
    assert!(server.is_quiet() && server.connections() == 1);
}

/// CLM-7
#[tokio::test]
async fn a_connection_that_is_lost_leaves_it_in_doubt() {
    let processor = processor();
    let begun = "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{\"reference\":\"JE-7\"";
    for act in [
        Act::HangUp,
        Act::SayAndReset(String::new()),
        Act::SayAndReset("HTTP/1.1 20".to_owned()),
        Act::SayAndReset(begun.to_owned()),
        Act::answer("nonsense", "", ""),
    ] {
        let mut server = Server::start(act.clone()).await;
        let told = told(&processor.send(call(&server.url())).await);
        let says = "unknown: the processor's answer was lost; it may have done it: ";
        assert!(told.starts_with(says), "{act:?}: {told}");
        server.request().await;
        assert!(server.is_quiet(), "{act:?}: one call is one request");
    }
}

/// CLM-7
#[tokio::test]
async fn an_answer_that_does_not_end_in_time_leaves_it_in_doubt() {
    let begun = "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{\"reference\":\"JE-7\"";
    let mut server = Server::start(Act::Say(begun.to_owned())).await;
    let mut slow = call(&server.url());
    slow.timeout = SHORT;
    let says = "unknown: the processor did not answer within 300ms; it may have done it";
    assert_eq!(told(&processor().send(slow).await), says);
    server.request().await;
}

/// CLM-6
#[tokio::test]
async fn a_processor_that_is_not_there_was_sent_nothing() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let told_of_none = told(&processor().send(call(&format!("http://127.0.0.1:{port}/"))).await);
    let says =
        "again: the processor could not be reached; nothing was sent: Connection refused (os error 111)";
    assert_eq!(told_of_none, says);
    let told_of_no_name = told(&processor().send(call("https://processor.invalid/")).await);
    let says = "again: the processor could not be reached";
    assert!(told_of_no_name.starts_with(says), "{told_of_no_name}");
}

/// CLM-6: the timeout of the whole call ends before there is a connection.
#[tokio::test]
async fn a_processor_that_does_not_take_connections_in_time_was_sent_nothing() {
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
    let says = "again: the processor could not be reached within 300ms; nothing was sent";
    assert_eq!(told(&processor().send(late).await), says);
}

/// CLM-6, QUA-6
#[tokio::test]
async fn a_processor_without_a_good_certificate_was_sent_nothing() {
    let mut server = Server::start(Act::answer("200 OK", "", "{}")).await;
    let told = told(&processor().send(call(&format!("https://{}/", server.address))).await);
    assert!(told.starts_with("again: the processor could not be reached; nothing was sent: "), "{told}");
    assert!(server.is_quiet() && server.connections() == 1);
}
