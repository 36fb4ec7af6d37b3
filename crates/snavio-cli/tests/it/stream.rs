//! Commands as a stream of lines; the node answers line by line.

use reqwest::Method;
use serde_json::Value;
use snavio_model::bounds;
use snavio_sdk::Credentials;

use crate::node::{Draft, Launch, Node, drain, new_id, post};
use crate::raw_wire::{self, Wire};

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// A chunk with one line: a new signed message.
fn line(name: &str, credentials: &Credentials) -> Vec<u8> {
    chunk(&[Draft::new(name, &new_id()).sign(credentials), b"\n".to_vec()].concat())
}

fn head(token: &str) -> String {
    let more = ["Content-Type: application/x-ndjson", "Transfer-Encoding: chunked"];
    raw_wire::head("POST /v1/commands/batch", token, &more)
}

fn lines(body: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(body).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// PIP-8
#[tokio::test]
async fn oversized_line_ends_stream_after_earlier_answers() {
    let node = Node::start();
    let cast = node.cast().await;
    let token = node.token(&cast.billing).await;
    let mut wire = Wire::to(&node);
    wire.send(head(&token));
    wire.send(line("notify", &cast.billing));
    wire.send(chunk(b"{\"not\": \"a message\"}\n\n"));
    wire.send(line("pay", &cast.billing));
    // The client continues to send; it must still be able to read the answers.
    for _ in 0..40 {
        wire.send(chunk(&[b'x'; 16 * 1024]));
    }
    wire.send(line("notify", &cast.billing));
    wire.send("0\r\n\r\n");
    let answer = wire.answer();
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/x-ndjson")));
    let verdicts: Vec<_> =
        lines(&answer.body).iter().map(|line| (line["status"].clone(), line["reason"].clone())).collect();
    let expected = [
        (202.into(), Value::Null),
        (400.into(), "unknown_field".into()),
        (202.into(), Value::Null),
        (413.into(), "too_large".into()),
    ];
    assert_eq!(verdicts, expected);
    let bot = node.client(&cast.bot);
    assert_eq!(drain(&bot, "notify-inbox").await.len(), 1);
    assert_eq!(drain(&bot, "pay-inbox").await.len(), 1);
}

/// PIP-5
#[tokio::test]
async fn stop_ends_open_stream_after_its_answers() {
    // Longer than the test waits, so the stop must not wait for the drain.
    let mut node = Node::launch(&Launch::default().set("SERVER_DRAIN_SECONDS", 600));
    let cast = node.cast().await;
    let token = node.token(&cast.billing).await;
    let mut wire = Wire::to(&node);
    wire.send(head(&token));
    wire.send(line("notify", &cast.billing));
    assert_eq!(lines(&wire.first_chunk())[0]["status"], 202);
    node.signal("TERM");
    let last = lines(&wire.chunks());
    assert_eq!((&last[0]["status"], &last[0]["reason"]), (&503.into(), &"overloaded".into()), "{last:?}");
    drop(wire);
    assert!(node.wait().success());
}

/// REG-7
#[tokio::test]
async fn stream_ends_when_its_client_is_removed() {
    let node = Node::start();
    let cast = node.cast().await;
    let token = node.token(&cast.billing).await;
    let mut wire = Wire::to(&node);
    wire.send(head(&token));
    wire.send(line("notify", &cast.billing));
    assert_eq!(lines(&wire.first_chunk())[0]["status"], 202);
    for name in ["notify", "pay", "lost"] {
        let grant = format!("/v1/grants?source=acme/billing&target=acme/bot&name={name}");
        node.operator().call(Method::DELETE, &grant, None).await.expect("the grant is revoked");
    }
    let removed = node.operator().call(Method::DELETE, "/v1/tenants/acme/services/billing", None).await;
    removed.expect("the service can be removed");
    wire.send(line("notify", &cast.billing));
    let last = lines(&wire.chunks());
    assert_eq!(
        (&last[0]["status"], &last[0]["reason"]),
        (&401.into(), &"unauthenticated".into()),
        "{last:?}"
    );
}

/// PIP-9
#[tokio::test]
async fn open_streams_over_the_concurrency_limit_all_continue() {
    let node = Node::start();
    let cast = node.cast().await;
    let token = node.token(&cast.billing).await;
    let count = bounds::TENANT_TURNS / bounds::TURN_OF_REQUEST + 1;
    let mut open: Vec<_> = (0..count).map(|_| Wire::to(&node)).collect();
    for wire in &mut open {
        wire.send(head(&token));
        wire.send(line("notify", &cast.billing));
    }
    for wire in &mut open {
        assert_eq!(lines(&wire.first_chunk())[0]["status"], 202);
    }
    let (status, _) =
        post(&node.client(&cast.billing), Draft::new("pay", &new_id()).sign(&cast.billing)).await;
    assert_eq!(status, 202, "idle streams use no concurrency limit");
    for wire in &mut open {
        wire.send(line("notify", &cast.billing));
        wire.send("0\r\n\r\n");
        assert_eq!(lines(&wire.chunks())[0]["status"], 202);
    }
}

/// PIP-8
#[tokio::test]
async fn answers_arrive_while_stream_is_open() {
    let node = Node::start();
    let cast = node.cast().await;
    let token = node.token(&cast.billing).await;
    let mut wire = Wire::to(&node);
    wire.send(head(&token));
    // One chunk for each byte: the node splits lines only at their ends.
    for byte in Draft::new("notify", &new_id()).sign(&cast.billing) {
        wire.send(chunk(&[byte]));
    }
    wire.send(chunk(b"\n"));
    assert_eq!(lines(&wire.first_chunk())[0]["status"], 202);
}
