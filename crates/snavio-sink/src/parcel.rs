//! A request body that records whether it was sent.
//!
//! A failed call had certainly no effect only if nothing of its body was sent. The connection and the caller
//! compete for the body: the first one takes it. If the connection takes it, it may have sent it. If the
//! caller reclaims it, it is never sent. The error of a call does not tell: a call may time out at the moment
//! in which its connection is established.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The caller's handle of a body.
pub(crate) struct Parcel(Arc<Mutex<Option<Bytes>>>);

/// The connection's handle of the same body.
pub(crate) struct Outgoing {
    parcel: Arc<Mutex<Option<Bytes>>>,
    bytes: u64,
    is_taken: bool,
}

/// The caller reclaimed the body before the connection took it.
#[derive(Debug, thiserror::Error)]
#[error("the body was reclaimed before it was sent")]
pub(crate) struct BodyReclaimed;

impl Parcel {
    /// Returns both handles of a body. A connection never asks for an empty body, so an empty body counts as
    /// sent from the beginning.
    pub(crate) fn new(body: Bytes) -> (Self, Outgoing) {
        let (bytes, is_taken) = (body.len() as u64, body.is_empty());
        let parcel = Arc::new(Mutex::new(Some(body).filter(|body| !body.is_empty())));
        (Self(Arc::clone(&parcel)), Outgoing { parcel, bytes, is_taken })
    }

    /// Reclaims the body. Returns true if nothing of it was sent; then nothing of it will be sent.
    pub(crate) fn reclaim(self) -> bool {
        take(&self.0).is_some()
    }
}

fn take(parcel: &Mutex<Option<Bytes>>) -> Option<Bytes> {
    parcel.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = BodyReclaimed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyReclaimed>>> {
        if self.is_taken {
            return Poll::Ready(None);
        }
        self.is_taken = true;
        Poll::Ready(Some(take(&self.parcel).map(Frame::data).ok_or(BodyReclaimed)))
    }

    fn is_end_stream(&self) -> bool {
        self.is_taken
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(if self.is_taken { 0 } else { self.bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(outgoing: &mut Outgoing) -> String {
        let polled = Pin::new(outgoing).poll_frame(&mut Context::from_waker(std::task::Waker::noop()));
        match polled {
            Poll::Ready(Some(Ok(frame))) => format!("{:?}", frame.into_data().unwrap()),
            Poll::Ready(Some(Err(error))) => error.to_string(),
            Poll::Ready(None) => "end".to_owned(),
            Poll::Pending => "pending".to_owned(),
        }
    }

    /// CLM-7
    #[test]
    fn body_is_either_sent_or_reclaimed() {
        let (parcel, mut outgoing) = Parcel::new("hello".into());
        assert_eq!(outgoing.size_hint().exact(), Some(5));
        assert_eq!((poll(&mut outgoing), poll(&mut outgoing)), ("b\"hello\"".to_owned(), "end".to_owned()));
        assert!(!parcel.reclaim());

        let (parcel, mut outgoing) = Parcel::new("hello".into());
        assert!(parcel.reclaim());
        assert_eq!(poll(&mut outgoing), "the body was reclaimed before it was sent");

        let (parcel, outgoing) = Parcel::new(Bytes::new());
        assert!(outgoing.is_end_stream() && !parcel.reclaim());
    }
}
