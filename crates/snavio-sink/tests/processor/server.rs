//! A server that does as it is told with each request, good or bad, and hands on what it has read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::AMPLE;

/// What is done with a request.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Answered with these bytes, and the connection is kept.
    Say(String),
    /// Answered with these bytes, and the connection is reset.
    SayAndReset(String),
    /// Answered with this status and a body that goes on until the client hangs up.
    Pour(&'static str),
    /// Read, and never answered.
    Hang,
    /// Read, and hung up on.
    HangUp,
    /// Not even read.
    Ignore,
}

impl Act {
    /// An answer with a status line, headers and a body.
    pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Self {
        Self::Say(format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len()))
    }
}

/// A request as it came.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: String,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: mpsc::UnboundedReceiver<Request>,
    connections: Arc<AtomicUsize>,
    poured: mpsc::UnboundedReceiver<usize>,
}

impl Server {
    pub(crate) async fn start(act: Act) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::unbounded_channel();
        let (pouring, poured) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, act.clone(), sender.clone(), pouring.clone()));
            }
        });
        Self { address, requests, connections, poured }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/post?x=1", self.address)
    }

    /// The next request that was read.
    pub(crate) async fn request(&mut self) -> Request {
        tokio::time::timeout(AMPLE, self.requests.recv()).await.expect("a request comes").unwrap()
    }

    /// Whether no request was read that was not asked for.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.requests.try_recv().is_err()
    }

    /// How much of an endless answer was taken before the client hung up.
    pub(crate) async fn poured(mut self) -> usize {
        tokio::time::timeout(AMPLE, self.poured.recv()).await.expect("it is hung up on").unwrap()
    }

    /// How often it was connected to.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(
    mut stream: TcpStream,
    act: Act,
    requests: mpsc::UnboundedSender<Request>,
    poured: mpsc::UnboundedSender<usize>,
) {
    if matches!(act, Act::Ignore) {
        return std::future::pending().await;
    }
    while let Some(request) = read(&mut stream).await {
        requests.send(request).unwrap();
        match &act {
            Act::Say(bytes) => stream.write_all(bytes.as_bytes()).await.unwrap_or_default(),
            Act::SayAndReset(bytes) => {
                stream.write_all(bytes.as_bytes()).await.unwrap();
                stream.set_zero_linger().unwrap();
                return;
            }
            Act::Pour(status) => return poured.send(pour(&mut stream, status).await).unwrap_or_default(),
            Act::Hang => std::future::pending().await,
            Act::HangUp | Act::Ignore => return,
        }
    }
}

/// Answers without an end; says how much of that was taken.
async fn pour(stream: &mut TcpStream, status: &str) -> usize {
    let head = format!("HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let (piece, mut taken) = (format!("{:x}\r\n{}\r\n", 1000, "x".repeat(1000)), 0);
    while stream.write_all(piece.as_bytes()).await.is_ok() {
        taken += piece.len();
    }
    taken
}

/// A whole request, or none when the client hung up or speaks something else.
async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
            let head = std::str::from_utf8(&bytes[..end]).ok()?;
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let body = &bytes[end + 4..];
            if body.len() == length?.parse::<usize>().ok()? {
                let text = String::from_utf8_lossy(body).into_owned();
                return Some(Request { head: head.to_owned(), body: text, bytes: body.to_vec() });
            }
        }
        stream.read_buf(&mut bytes).await.ok().filter(|count| *count > 0)?;
        if !bytes.starts_with(b"POST") && !b"POST".starts_with(&bytes) {
            return None;
        }
    }
}
