//! A processor or a receiver of pushes for tests: a small HTTP server that answers by its script and records
//! the requests.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};

/// The scripted answer to one request.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    status: u16,
    headers: String,
    body: String,
    after: Duration,
}

impl Reply {
    pub(crate) fn new(status: u16, body: &str) -> Self {
        Self { status, headers: String::new(), body: body.to_owned(), after: Duration::ZERO }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub(crate) fn after(self, after: Duration) -> Self {
        Self { after, ..self }
    }
}

/// A recorded request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
    /// The bytes of the body.
    pub(crate) raw: Vec<u8>,
}

#[derive(Default)]
struct Shared {
    script: Mutex<VecDeque<Reply>>,
    asked: Mutex<Vec<Asked>>,
    posted: Mutex<u64>,
    /// The delay of answers that are not in the script.
    slow: Mutex<Duration>,
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}/journal-entries")
}

/// A bound port without a listener that no other process can get: connections to it are refused.
pub(crate) struct Reserved {
    socket: TcpSocket,
    port: u16,
}

impl Reserved {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(std::net::SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let port = socket.local_addr().expect("it is bound").port();
        Self { socket, port }
    }

    pub(crate) fn url(&self) -> String {
        url(self.port)
    }
}

/// Serves until it is dropped.
pub(crate) struct Processor {
    shared: Arc<Shared>,
    port: u16,
    serving: tokio::task::JoinHandle<()>,
}

impl Processor {
    pub(crate) async fn start() -> Self {
        Self::on(Reserved::new())
    }

    /// Listens on a reserved port.
    pub(crate) fn on(Reserved { socket, port }: Reserved) -> Self {
        let listener = socket.listen(1024).expect("it listens");
        let shared = Arc::<Shared>::default();
        let serving = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, Arc::clone(&shared)));
                }
            }
        });
        Self { shared, port, serving }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        url(self.port)
    }

    /// Adds answers to the script. After the script each request is a posting with the next reference, `JE-1`
    /// first.
    pub(crate) fn answers(&self, replies: impl IntoIterator<Item = Reply>) {
        self.shared.script.lock().unwrap().extend(replies);
    }

    /// Sets the delay of answers that are not in the script.
    pub(crate) fn takes(&self, time: Duration) {
        *self.shared.slow.lock().unwrap() = time;
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let mut headers = BTreeMap::new();
    let mut line = String::new();
    while stream.read_line(&mut line).await.ok()? > 2 {
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.to_lowercase(), value.trim().to_owned());
        }
        line.clear();
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let (raw, body) = (body.clone(), serde_json::from_slice(&body).unwrap_or(Value::Null));
    shared.asked.lock().unwrap().push(Asked { headers, body, raw });
    let scripted = shared.script.lock().unwrap().pop_front();
    let reply = scripted.unwrap_or_else(|| {
        let mut posted = shared.posted.lock().unwrap();
        *posted += 1;
        let body = format!("{{ \"glPostingReference\":\"JE-{posted}\",\n  \"amount\": 10.00 }}\n");
        let reply = Reply::new(201, &body).header("Content-Type", "application/json");
        reply.after(*shared.slow.lock().unwrap())
    });
    tokio::time::sleep(reply.after).await;
    let Reply { status, headers, body, .. } = reply;
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status} x\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes()).await.ok()
}
