//! The server itself refuses slow, oversized, ambiguous and misdirected requests.

use std::time::{Duration, Instant};

use crate::node::{Launch, Node};
use crate::patience::poll;
use crate::raw_wire::{Wire, head, json_head, json_request};

const BYTES_OVER_LIMIT: usize = 256 * 1024 + 1;

fn start_with_short_timeouts() -> Node {
    let launch = Launch::default().set("SERVER_HEADER_TIMEOUT_SECONDS", 1);
    Node::launch(&launch.set("SERVER_BODY_TIMEOUT_SECONDS", 1))
}

fn get(path: &str, host: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

#[expect(clippy::disallowed_methods, reason = "a test looks at the clock on the wall")]
fn within(limit: Duration, act: impl FnOnce()) {
    let start = Instant::now();
    act();
    assert!(start.elapsed() < limit, "took {:?}", start.elapsed());
}

/// QUA-7
#[test]
fn only_configured_hosts_are_answered() {
    let node = Node::launch(&Launch::default().set("SERVER_HOSTS", "api.example, other.example:8443"));
    let own = node.url().strip_prefix("http://").unwrap().to_owned();
    for host in [own.as_str(), "localhost", "127.0.0.1", "API.example:80", "other.example:8443"] {
        assert_eq!(Wire::to(&node).ask(get("/livez", host)).status, 200, "{host}");
    }
    for host in ["evil.example", "other.example", "127.0.0.2", "localhost.evil.example"] {
        assert_eq!(Wire::to(&node).ask(get("/livez", host)).refusal(), (421, "misdirected".into()), "{host}");
    }
    for request in [
        "GET /livez HTTP/1.1\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        "GET http://evil.example/livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost: a@localhost\r\n\r\n",
    ] {
        assert_eq!(Wire::to(&node).ask(request).refusal(), (400, "invalid_request".into()), "{request}");
    }
}

/// QUA-7
#[test]
fn repeated_single_value_header_is_refused() {
    let node = Node::start();
    for (header, value) in [("Authorization", "Bearer x"), ("Content-Type", "application/json")] {
        let request = format!(
            "POST /v1/commands HTTP/1.1\r\nHost: localhost\r\n{header}: {value}\r\n{header}: {value}\r\n\
             Content-Length: 2\r\n\r\n{{}}"
        );
        let answer = Wire::to(&node).ask(request);
        assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{header}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(&header.to_lowercase()) && !detail.contains(value), "{detail}");
    }
}

/// QUA-7
#[test]
fn ambiguously_framed_request_is_refused_or_last_on_connection() {
    let node = Node::start();
    let hidden = get("/livez", "localhost");
    let post = |headers: &str, body: &str| {
        format!(
            "POST /v1/token HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/xml\r\n{headers}\r\n\r\n{body}{hidden}"
        )
    };
    for headers in [
        "Content-Length: 3\r\nContent-Length: 4",
        "Content-Length: +3",
        "Content-Length: 3, 4",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: xchunked",
    ] {
        let mut wire = Wire::to(&node);
        assert_eq!(wire.ask(post(headers, "abc")).status, 400, "{headers}");
        assert!(wire.is_hung_up_within(Duration::from_secs(8)), "{headers}");
    }
    // With two framings the chunks count, and the node does not read the bytes after them as a request.
    for headers in
        ["Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 5"]
    {
        let mut wire = Wire::to(&node);
        assert_eq!(wire.ask(post(headers, "0\r\n\r\n")).status, 415, "{headers}");
        assert!(wire.is_hung_up_within(Duration::from_secs(8)), "{headers}");
    }
    // The same length twice is one length, and the bytes after the body are another request.
    let mut wire = Wire::to(&node);
    assert_eq!(wire.ask(post("Content-Length: 3\r\nContent-Length: 3", "abc")).status, 415);
    assert_eq!(wire.answer().status, 200);
}

/// QUA-7
#[test]
fn only_one_chunked_transfer_encoding_is_accepted() {
    let node = Node::start();
    let hidden = get("/livez", "localhost");
    let refused = [
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked,chunked",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: x chunked",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding: ,chunked",
        "Transfer-Encoding: chunked,",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding:",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding: \x0bchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: gzip,\r\n chunked",
    ];
    let accepted = [
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: Chunked ",
        "transfer-encoding:\t CHUNKED\t ",
        "TRANSFER-ENCODING:chunked",
    ];
    for length in ["", "Content-Length: 5\r\n"] {
        for version in ["1.1", "1.0"] {
            for (headers, status) in
                refused.map(|coding| (coding, 400)).into_iter().chain(accepted.map(|coding| (coding, 415)))
            {
                // HTTP before 1.1 has no Transfer-Encoding: a reader of that version does not end the body
                // where the chunks end.
                let status = if version == "1.0" { 400 } else { status };
                for headers in [format!("{length}{headers}\r\n"), format!("{headers}\r\n{length}")] {
                    let case = format!("HTTP/{version} {headers:?}");
                    let mut wire = Wire::to(&node);
                    let answer = wire.ask(format!(
                        "POST /v1/token HTTP/{version}\r\nHost: localhost\r\nConnection: keep-alive\r\n\
                         Content-Type: text/xml\r\n{headers}\r\n0\r\n\r\n{hidden}"
                    ));
                    assert_eq!(answer.status, status, "{case}");
                    if status == 415 && length.is_empty() {
                        assert_eq!(wire.answer().status, 200, "{case}: the next request is answered");
                    } else {
                        assert!(wire.is_hung_up_within(Duration::from_secs(5)), "{case}");
                    }
                }
            }
        }
    }
    let answer =
        Wire::to(&node).ask("GET /livez HTTP/1.1\r\nHost: evil\r\nTransfer-Encoding: gzip, chunked\r\n\r\n");
    assert_eq!(answer.refusal(), (400, "invalid_request".into()));
    assert_eq!(answer.header("connection"), Some("close"));
}

/// QUA-4
#[tokio::test]
async fn body_over_limit_is_refused_at_once() {
    let node = Node::start();
    let cast = node.cast().await;
    let token = node.token(&cast.billing).await;
    let post = |more: &[&str]| {
        head("POST /v1/commands", &token, &[&["Content-Type: application/json"], more].concat())
    };
    // Refused by its announced length, before a byte of the body is sent.
    let answer = Wire::to(&node).ask(json_head("/v1/commands", &token, BYTES_OVER_LIMIT));
    assert_eq!(answer.refusal(), (413, "too_large".into()));
    let length = format!("Content-Length: {BYTES_OVER_LIMIT}");
    let answer = Wire::to(&node).ask(post(&[&length, "Expect: 100-continue"]));
    assert_eq!(answer.refusal(), (413, "too_large".into()), "a client that asks first is told at once");
    // Sent as a whole, by a client that reads only after it has sent everything.
    let answer = Wire::to(&node).ask(json_request("/v1/commands", &token, &[b'x'; BYTES_OVER_LIMIT]));
    assert_eq!(answer.refusal(), (413, "too_large".into()));
    // Sent in chunks that do not end.
    let mut wire = Wire::to(&node);
    wire.send(post(&["Transfer-Encoding: chunked"]));
    let chunk = format!("{:x}\r\n{}\r\n", 64 * 1024, "x".repeat(64 * 1024));
    for _ in 0..5 {
        wire.send(&chunk);
    }
    assert_eq!(wire.answer().refusal(), (413, "too_large".into()));
    // A body that is one byte shorter is read, and refused for its content.
    let answer = Wire::to(&node).ask(json_request("/v1/commands", &token, &[b'x'; BYTES_OVER_LIMIT - 1]));
    assert_eq!(answer.refusal(), (400, "malformed".into()));
}

/// QUA-7
#[test]
fn slow_headers_close_the_connection() {
    let node = start_with_short_timeouts();
    for first in ["", "P", "PRI * HTTP/2", "GET /livez HTTP/1.1\r\nHost: local"] {
        let mut wire = Wire::to(&node);
        wire.send(first);
        within(Duration::from_secs(9), || {
            // The node may answer some of them first; it closes all connections.
            while !wire.is_hung_up_within(Duration::from_secs(8)) {}
        });
    }
}

/// Starts a node with short timeouts and announces a body of `length` bytes on a connection.
async fn announce_body(length: usize) -> (Node, Wire) {
    let node = start_with_short_timeouts();
    let cast = node.cast().await;
    let token = node.token(&cast.billing).await;
    let mut wire = Wire::to(&node);
    wire.send(json_head("/v1/commands", &token, length));
    (node, wire)
}

/// QUA-7
#[tokio::test]
async fn paused_body_is_refused() {
    let (_node, mut wire) = announce_body(100).await;
    wire.send("{");
    within(Duration::from_secs(9), || {
        assert_eq!(wire.answer().refusal(), (408, "request_timeout".into()));
        assert!(wire.is_hung_up_within(Duration::from_secs(8)));
    });
}

/// QUA-7
#[tokio::test]
async fn endless_slow_body_is_refused() {
    let (_node, mut wire) = announce_body(100_000).await;
    let mut writer = wire.writer();
    let dribble = std::thread::spawn(move || {
        while writer.send(" ") {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    assert_eq!(wire.answer().refusal(), (408, "request_timeout".into()));
    drop(wire);
    dribble.join().unwrap();
}

/// QUA-7
#[test]
fn headers_are_bounded_in_number_and_size() {
    let node = Node::start();
    let many: String = (0..150).map(|n| format!("X-{n}: 1\r\n")).collect();
    let large = format!("X-Large: {}\r\n", "x".repeat(200 * 1024));
    for headers in [many, large] {
        let request = format!("GET /livez HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        assert_eq!(Wire::to(&node).ask(&request).status, 431, "{} bytes", request.len());
    }
}

/// QUA-7
#[test]
fn connections_over_limit_are_closed_and_others_stay() {
    let node = Node::launch(&Launch::default().set("SERVER_CONNECTIONS_MAX", 3));
    let mut open: Vec<_> = (0..3).map(|_| Wire::to(&node)).collect();
    for wire in &mut open {
        assert_eq!(wire.ask(get("/livez", "localhost")).status, 200);
    }
    assert!(Wire::to(&node).is_hung_up_within(Duration::from_secs(8)));
    assert_eq!(open[0].ask(get("/livez", "localhost")).status, 200);
    open.pop();
    poll("a connection that ended makes room", || {
        (!Wire::to(&node).is_hung_up_within(Duration::from_millis(100))).then_some(())
    });
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// QUA-7
#[test]
fn http2_stream_reset_flood_is_cut_off() {
    let node = Node::start();
    let mut wire = Wire::to(&node);
    wire.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    wire.send(frame(4, 0, 0, &[]));
    let get = [&[0x82, 0x86, 0x84, 0x41, 9][..], b"localhost"].concat();
    let mut flood = Vec::new();
    for stream in (1..8_001).step_by(2) {
        flood.extend(frame(1, 0b101, stream, &get));
        flood.extend(frame(3, 0, stream, &8u32.to_be_bytes()));
    }
    wire.send(flood);
    let (kind, payload) = std::iter::repeat_with(|| wire.frame()).find(|(kind, _)| *kind == 7).unwrap();
    let code = u32::from_be_bytes(payload[4..8].try_into().unwrap());
    assert_eq!((kind, code), (7, 11), "GOAWAY, ENHANCE_YOUR_CALM");
}
