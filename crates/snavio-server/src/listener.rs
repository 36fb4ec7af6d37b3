//! A listener: takes connections within its limits, serves each, and lets them end in peace (QUA-7).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use snavio_model::bounds;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::door::{Door, Doorway};

/// What HTTP/2 clients say first.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How often a client that stopped within its first words is looked at again.
const FIRST_WORDS_LOOK: Duration = Duration::from_millis(20);
/// A pause after a failed accept: out of descriptors, most likely, and trying at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often an HTTP/2 client is asked whether it is still there.
const HTTP2_PING: Duration = Duration::from_secs(30);

/// A listener's settings, the same for each of its connections.
#[derive(Clone)]
pub(crate) struct Listener {
    pub(crate) door: Arc<Door>,
    pub(crate) connections: Arc<Semaphore>,
    pub(crate) tls: Option<TlsAcceptor>,
    /// For the handshake, and for the headers of each request.
    pub(crate) header_timeout: Duration,
    /// For requests under way when the node stops.
    pub(crate) drain: Duration,
    pub(crate) stopping: CancellationToken,
}

impl Listener {
    /// Takes connections until told to stop, then waits for those there are.
    pub(crate) async fn run(self, listener: TcpListener) {
        let graceful = GracefulShutdown::new();
        let accept = async {
            loop {
                match listener.accept().await {
                    Ok((stream, remote)) => self.take(stream, remote, graceful.watcher()),
                    Err(error) => {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "cannot accept a connection"
                        );
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        self.stopping.run_until_cancelled(accept).await;
        drop(listener);
        if tokio::time::timeout(self.drain, graceful.shutdown()).await.is_err() {
            tracing::warn!("connections were still open when the time for draining was over");
        }
    }

    fn take(&self, stream: TcpStream, remote: SocketAddr, watcher: Watcher) {
        let Ok(permit) = Arc::clone(&self.connections).try_acquire_owned() else {
            metrics::counter!("snavio_connections_refused_total").increment(1);
            return;
        };
        let listener = self.clone();
        tokio::spawn(async move {
            let open = metrics::gauge!("snavio_connections");
            open.increment(1);
            // What ends a connection early is the client's affair.
            let _ = listener.serve(stream, remote, watcher).await;
            open.decrement(1);
            drop(permit);
        });
    }

    /// Serves one connection to its end; nothing when the client was too slow to begin.
    async fn serve(&self, stream: TcpStream, remote: SocketAddr, watcher: Watcher) -> Option<()> {
        // Answers are small and waited for: they must not wait for each other.
        let _ = stream.set_nodelay(true);
        let (local, encrypted) = (stream.local_addr().ok()?.ip(), self.tls.is_some());
        let doorway = Doorway::new(Arc::clone(&self.door), local, remote.ip(), encrypted);
        match &self.tls {
            None => {
                let http2 = self.begin(is_http2(&stream)).await?;
                self.talk(TokioIo::new(stream), http2, doorway, watcher).await;
            }
            Some(tls) => {
                let stream = self.begin(tls.accept(stream)).await?;
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                self.talk(TokioIo::new(stream), http2, doorway, watcher).await;
            }
        }
        Some(())
    }

    /// What comes before the first request must come in time, and not hold up a node that stops.
    async fn begin<T>(&self, beginning: impl Future<Output = std::io::Result<T>>) -> Option<T> {
        let in_time = tokio::time::timeout(self.header_timeout, beginning);
        self.stopping.run_until_cancelled(in_time).await?.ok()?.ok()
    }

    async fn talk<I>(&self, io: I, http2: bool, doorway: Doorway, watcher: Watcher)
    where
        I: Read + Write + Unpin + Send + 'static,
    {
        let builder = auto::Builder::new(TokioExecutor::new());
        // The version is known by now: the builder would wait for the first words without any limit.
        let mut builder = if http2 { builder.http2_only() } else { builder.http1_only() };
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.header_timeout)
            .max_headers(bounds::HEADERS_MAX)
            .max_buf_size(bounds::HEADER_BYTES_MAX);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(HTTP2_PING)
            .max_concurrent_streams(bounds::HTTP2_STREAMS_MAX)
            .max_pending_accept_reset_streams(bounds::HTTP2_RESETS_MAX)
            .max_local_error_reset_streams(bounds::HTTP2_RESETS_MAX)
            .initial_stream_window_size(bounds::HTTP2_STREAM_BYTES)
            .initial_connection_window_size(bounds::HTTP2_CONNECTION_BYTES)
            .max_header_list_size(bounds::HTTP2_HEADER_BYTES_MAX);
        let connection = builder.serve_connection(io, doorway);
        let _ = watcher.watch(connection.into_owned()).await;
    }
}

/// Whether a client begins in HTTP/2. Looks without taking; who sends nothing at all is not waited for here.
async fn is_http2(stream: &TcpStream) -> std::io::Result<bool> {
    let mut first = [0; HTTP2_PREFACE.len()];
    loop {
        let seen = stream.peek(&mut first).await?;
        if seen == 0 || first[..seen] != HTTP2_PREFACE[..seen] {
            return Ok(false);
        }
        if seen == HTTP2_PREFACE.len() {
            return Ok(true);
        }
        tokio::time::sleep(FIRST_WORDS_LOOK).await;
    }
}
