//! Requests written byte by byte, which no correct HTTP client would send.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::node::Node;

/// The head of a request with a bearer token, including the blank line at its end.
pub(crate) fn head(line: &str, token: &str, more: &[&str]) -> String {
    let more: String = more.iter().map(|header| format!("{header}\r\n")).collect();
    format!("{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{more}\r\n")
}

/// The head of a POST request whose JSON body has `length` bytes.
pub(crate) fn json_head(path: &str, token: &str, length: usize) -> String {
    let length = format!("Content-Length: {length}");
    head(&format!("POST {path}"), token, &["Content-Type: application/json", &length])
}

/// A complete POST request with a JSON body.
pub(crate) fn json_request(path: &str, token: &str, body: &[u8]) -> Vec<u8> {
    [json_head(path, token, body.len()).as_bytes(), body].concat()
}

/// A raw TCP connection to a node.
pub(crate) struct Wire(TcpStream);

/// An HTTP answer with its unparsed head and body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Status and reason of a refusal. Panics if the body is not a problem document.
    pub(crate) fn refusal(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status);
        (self.status, problem["reason"].as_str().expect("a reason").to_owned())
    }
}

impl Wire {
    pub(crate) fn to(node: &Node) -> Self {
        let address = node.url().split_once("://").expect("an address").1;
        let stream = TcpStream::connect(address).expect("the node listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout can be set");
        stream.set_write_timeout(Some(Duration::from_secs(30))).expect("a timeout can be set");
        Self(stream)
    }

    /// A second handle of the same connection, to send while another handle waits for an answer.
    pub(crate) fn writer(&self) -> Self {
        Self(self.0.try_clone().expect("a socket can be shared"))
    }

    /// Sends bytes; returns false if the node has closed the connection.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.write_all(bytes.as_ref()).is_ok()
    }

    /// Reads one answer with its whole body.
    pub(crate) fn answer(&mut self) -> Answer {
        let head = self.head();
        let status =
            head.get(9..12).and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{head:?}"));
        let mut answer = Answer { status, head, body: Vec::new() };
        if let Some(length) = answer.header("content-length") {
            answer.body = vec![0; length.parse().expect("a length")];
            self.0.read_exact(&mut answer.body).expect("the body comes");
        } else if answer.header("transfer-encoding").is_some() {
            answer.body = self.chunks();
        }
        answer
    }

    /// Sends bytes and reads one answer.
    pub(crate) fn ask(&mut self, bytes: impl AsRef<[u8]>) -> Answer {
        self.send(bytes);
        self.answer()
    }

    fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(
                self.byte().unwrap_or_else(|| panic!("hung up after {:?}", head.escape_ascii().to_string())),
            );
        }
        String::from_utf8(head).expect("heads are text")
    }

    /// Reads the head and the first chunk of an answer that the node has not finished.
    pub(crate) fn first_chunk(&mut self) -> Vec<u8> {
        self.head();
        self.chunk()
    }

    /// Reads the remaining chunks of an answer.
    pub(crate) fn chunks(&mut self) -> Vec<u8> {
        let chunks = std::iter::repeat_with(|| self.chunk());
        chunks.take_while(|chunk| !chunk.is_empty()).flatten().collect()
    }

    fn chunk(&mut self) -> Vec<u8> {
        let size = usize::from_str_radix(self.line().trim(), 16).expect("a chunk's size");
        let mut chunk = vec![0; size + 2];
        self.0.read_exact(&mut chunk).expect("the chunk comes");
        chunk.truncate(size);
        chunk
    }

    /// Reads one frame of HTTP/2: its type and payload.
    pub(crate) fn frame(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).expect("a frame comes");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).expect("the frame's payload comes");
        (head[3], payload)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        while !line.ends_with('\n') {
            line.push(self.byte().expect("a line").into());
        }
        line
    }

    fn byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        (self.0.read(&mut byte).expect("the node answers in time") == 1).then_some(byte[0])
    }

    /// Whether the node closes the connection within the time without sending another byte.
    pub(crate) fn is_hung_up_within(&mut self, time: Duration) -> bool {
        self.0.set_read_timeout(Some(time)).expect("a timeout can be set");
        match self.0.read(&mut [0]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}
