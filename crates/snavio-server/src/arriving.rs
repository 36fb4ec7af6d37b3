//! A request's body as it comes in from a connection: each part in time (QUA-7), and what a handler left unread
//! taken off the wire, within bounds.
//!
//! Without the latter the server would close the connection with bytes still waiting in it. The system then
//! resets the connection, and a client that is still sending loses the answer that tells it what is wrong.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::HttpBody;
use bytes::Bytes;
use http::header::EXPECT;
use http::{Request, Version};
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming, SizeHint};
use snavio_model::bounds;
use tokio::time::Sleep;

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// The client paused for longer than it may.
    #[error("body paused for too long")]
    TooSlow,
    /// The connection, or what came over it.
    #[error("body broke off")]
    Broken(#[source] hyper::Error),
}

/// A body that is on its way.
pub(crate) struct Arriving {
    incoming: Option<Incoming>,
    pause_max: Duration,
    pause: Option<Pin<Box<Sleep>>>,
    linger: bool,
}

impl Arriving {
    /// The request with its body so wrapped; the parts of the body may be this far apart.
    pub(crate) fn wrap(request: Request<Incoming>, pause_max: Duration) -> Request<Self> {
        // A client that waits to be told to go on has nothing on the wire, and HTTP/2 can end one stream alone.
        let linger = request.version() < Version::HTTP_2 && !request.headers().contains_key(EXPECT);
        request.map(|incoming| Self { incoming: Some(incoming), pause_max, pause: None, linger })
    }

    /// Whether the client has paused for too long.
    fn is_overdue(&mut self, context: &mut Context<'_>) -> bool {
        let pause_max = self.pause_max;
        let pause = self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause_max)));
        pause.as_mut().poll(context).is_ready()
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(incoming) = self.incoming.as_mut() else { return Poll::Ready(None) };
        match Pin::new(incoming).poll_frame(context) {
            Poll::Ready(frame) => {
                self.pause = None;
                Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken)))
            }
            Poll::Pending if self.is_overdue(context) => {
                // A client this slow is not waited for once more.
                self.linger = false;
                Poll::Ready(Some(Err(BodyError::TooSlow)))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        let unread = self.incoming.take().filter(|incoming| self.linger && !incoming.is_end_stream());
        if let (Some(incoming), Ok(runtime)) = (unread, tokio::runtime::Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(bounds::LINGER, discard(incoming)));
        }
    }
}

async fn discard(mut incoming: Incoming) {
    let mut bytes = 0;
    while let Some(Ok(frame)) = incoming.frame().await {
        bytes += frame.data_ref().map_or(0, Bytes::len);
        if bytes > bounds::LINGER_BYTES_MAX {
            return;
        }
    }
}
