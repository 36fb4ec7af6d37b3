//! Commands as a stream of lines, answered line by line.

use reqwest::Method;
use serde_json::Value;
use snavio_model::bounds;

use crate::node::{Draft, Launch, Node, drain, new_id, post};
use crate::raw_wire::{self, Wire};

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
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
async fn a_line_that_is_too_long_ends_the_stream_after_the_answers_before_it() {
    let node = Node::start();
    let cast = node.cast().await;
    let token = node.token(&cast.billing).await;
    let line = |name: &str| [Draft::new(name, &new_id()).sign(&cast.billing), b"\n".to_vec()].concat();
    let mut wire = Wire::to(&node);
    wire.send(head(&token));
    wire.send(chunk(&line("notify")));
    wire.send(chunk(b"{\"not\": \"a message\"}\n\n"));
    wire.send(chunk(&line("pay")));
    // The client goes on sending for a while: it must be able to read the answers all the same.
    for _ in 0..40 {
        wire.send(chunk(&[b'x'; 16 * 1024]));
    }
    wire.send(chunk(&line("notify")));
    wire.send("0\r\n\r\n");
    let answer = wire.answer();
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/x-ndjson")));
    let told: Vec<_> =
        lines(&answer.body).iter().map(|it| (it["status"].clone(), it["reason"].clone())).collect();
    let expected = [
        (202.into(), Value::Null),
        (400.into(), "unknown_field".into()),
        (202.into(), Value::Null),
        (413.into(), "too_large".into()),
    ];
    assert_eq!(told, expected);
    let bot = node.client(&cast.bot);
    assert_eq!(drain(&bot, "notify-inbox").await.len(), 1);
    assert_eq!(drain(&bot, "pay-inbox").await.len(), 1);
}

/// PIP-5
#[tokio::test]
async fn an_open_stream_is_ended_by_a_stop_after_the_answers_to_what_it_sent() {
    // Longer than a test waits: the stop must not need it.
    let mut node = Node::launch(&Launch::default().set("SERVER_DRAIN_SECONDS", 600));
    let cast = node.cast().await;
    let token = node.token(&cast.billing).await;
    let mut wire = Wire::to(&node);
    wire.send(head(&token));
    wire.send(chunk(&[Draft::new("notify", &new_id()).sign(&cast.billing), b"\n".to_vec()].concat()));
    assert_eq!(lines(&wire.first_chunk())[0]["status"], 202);
    node.signal("TERM");
    let last = lines(&wire.chunks());
    assert_eq!((&last[0]["status"], &last[0]["reason"]), (&503.into(), &"overloaded".into()), "{last:?}");
    drop(wire);
    assert!(node.wait().success());
}

/// REG-7
#[tokio::test]
async fn a_stream_ends_when_its_client_is_registered_no_more() {
    let node = Node::start();
    let cast = node.cast().await;
    let token = node.token(&cast.billing).await;
    let line = || chunk(&[Draft::new("notify", &new_id()).sign(&cast.billing), b"\n".to_vec()].concat());
    let mut wire = Wire::to(&node);
    wire.send(head(&token));
    wire.send(line());
    assert_eq!(lines(&wire.first_chunk())[0]["status"], 202);
    for name in ["notify", "pay", "lost"] {
        let grant = format!("/v1/grants?source=acme/billing&target=acme/bot&name={name}");
        node.operator().call(Method::DELETE, &grant, None).await.expect("the grant is taken back");
    }
    let removed = node.operator().call(Method::DELETE, "/v1/tenants/acme/services/billing", None).await;
    removed.expect("the service can be removed");
    wire.send(line());
    let last = lines(&wire.chunks());
    assert_eq!(
        (&last[0]["status"], &last[0]["reason"]),
        (&401.into(), &"unauthenticated".into()),
        "{last:?}"
    );
}

/// PIP-9
#[tokio::test]
async fn more_open_streams_than_a_tenant_has_turns_all_go_on() {
    let node = Node::start();
    let cast = node.cast().await;
    let token = node.token(&cast.billing).await;
    let line = || chunk(&[Draft::new("notify", &new_id()).sign(&cast.billing), b"\n".to_vec()].concat());
    let count = bounds::TENANT_TURNS / bounds::TURN_OF_REQUEST + 1;
    let mut open: Vec<_> = (0..count).map(|_| Wire::to(&node)).collect();
    for wire in &mut open {
        wire.send(head(&token));
        wire.send(line());
    }
    for wire in &mut open {
        assert_eq!(lines(&wire.first_chunk())[0]["status"], 202);
    }
    let (status, _) =
        post(&node.client(&cast.billing), Draft::new("pay", &new_id()).sign(&cast.billing)).await;
    assert_eq!(status, 202, "streams at rest keep nobody from theirs");
    for wire in &mut open {
        wire.send(line());
        wire.send("0\r\n\r\n");
        assert_eq!(lines(&wire.chunks())[0]["status"], 202);
    }
}

/// PIP-8
#[tokio::test]
async fn answers_come_while_the_stream_is_still_open() {
    let node = Node::start();
    let cast = node.cast().await;
    let token = node.token(&cast.billing).await;
    let mut wire = Wire::to(&node);
    wire.send(head(&token));
    // A line byte by byte: cut only where it ends.
    for byte in Draft::new("notify", &new_id()).sign(&cast.billing) {
        wire.send(chunk(&[byte]));
    }
    wire.send(chunk(b"\n"));
    assert_eq!(lines(&wire.first_chunk())[0]["status"], 202);
}
