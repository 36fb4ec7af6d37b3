//! A server that treats each request as the test says, and passes on the requests that it has read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::AMPLE;

/// The server's reaction to a request.
#[derive(Debug, Clone)]
pub(crate) enum ServerAction {
    /// Answers with these bytes, and keeps the connection.
    Respond(String),
    /// Answers with these bytes, and resets the connection.
    RespondAndReset(String),
    /// Answers with this status, and a body that goes on until the client hangs up.
    RespondEndlessly(&'static str),
    /// Reads the request, and never answers.
    Hang,
    /// Reads the request, and closes the connection.
    HangUp,
    /// Does not read the request.
    Ignore,
}

impl ServerAction {
    /// Responds with a status line, headers and a body.
    pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Self {
        Self::Respond(format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len()))
    }
}

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
    pub(crate) async fn start(action: ServerAction) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::unbounded_channel();
        let (pouring, poured) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, action.clone(), sender.clone(), pouring.clone()));
            }
        });
        Self { address, requests, connections, poured }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/post?x=1", self.address)
    }

    /// Returns the next request that the server has read.
    pub(crate) async fn request(&mut self) -> Request {
        tokio::time::timeout(AMPLE, self.requests.recv()).await.expect("a request comes").unwrap()
    }

    /// Returns true if the server has read no further request.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.requests.try_recv().is_err()
    }

    /// Returns how many bytes of an endless answer the client took before it hung up.
    pub(crate) async fn poured(mut self) -> usize {
        tokio::time::timeout(AMPLE, self.poured.recv()).await.expect("it is hung up on").unwrap()
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(
    mut stream: TcpStream,
    action: ServerAction,
    requests: mpsc::UnboundedSender<Request>,
    poured: mpsc::UnboundedSender<usize>,
) {
    if matches!(action, ServerAction::Ignore) {
        return std::future::pending().await;
    }
    while let Some(request) = read(&mut stream).await {
        requests.send(request).unwrap();
        match &action {
            ServerAction::Respond(bytes) => stream.write_all(bytes.as_bytes()).await.unwrap_or_default(),
            ServerAction::RespondAndReset(bytes) => {
                stream.write_all(bytes.as_bytes()).await.unwrap();
                stream.set_zero_linger().unwrap();
                return;
            }
            ServerAction::RespondEndlessly(status) => {
                return poured.send(pour(&mut stream, status).await).unwrap_or_default();
            }
            ServerAction::Hang => std::future::pending().await,
            ServerAction::HangUp | ServerAction::Ignore => return,
        }
    }
}

/// Answers without an end, and returns the number of bytes that the client took.
async fn pour(stream: &mut TcpStream, status: &str) -> usize {
    let head = format!("HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let (piece, mut taken) = (format!("{:x}\r\n{}\r\n", 1000, "x".repeat(1000)), 0);
    while stream.write_all(piece.as_bytes()).await.is_ok() {
        taken += piece.len();
    }
    taken
}

/// Reads a whole request. Returns `None` if the client hung up or speaks another protocol.
async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
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
