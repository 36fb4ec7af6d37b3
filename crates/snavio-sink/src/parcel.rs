//! A body of which it is known whether it was sent.
//!
//! Only when nothing was sent can a failed call be told from one that may have had an effect. Whoever takes the body
//! first has it: the connection, which may then have sent it, or the caller, who takes it back, and then it never will
//! be. An error alone does not say: a call may run out of time at the very moment at which its connection is there.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The caller's end of a body.
pub(crate) struct Parcel(Arc<Mutex<Option<Bytes>>>);

/// The connection's end of it.
pub(crate) struct Outgoing {
    parcel: Arc<Mutex<Option<Bytes>>>,
    bytes: u64,
    is_taken: bool,
}

/// The connection came too late.
#[derive(Debug, thiserror::Error)]
#[error("the body was taken back before it was sent")]
pub(crate) struct TakenBack;

impl Parcel {
    /// Both ends of a body. An empty one is never asked for, so it counts as sent from the beginning.
    pub(crate) fn of(body: Bytes) -> (Self, Outgoing) {
        let (bytes, is_taken) = (body.len() as u64, body.is_empty());
        let parcel = Arc::new(Mutex::new(Some(body).filter(|body| !body.is_empty())));
        (Self(Arc::clone(&parcel)), Outgoing { parcel, bytes, is_taken })
    }

    /// Whether nothing of the body was sent, nor will be.
    pub(crate) fn take_back(self) -> bool {
        take(&self.0).is_some()
    }
}

fn take(parcel: &Mutex<Option<Bytes>>) -> Option<Bytes> {
    parcel.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = TakenBack;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TakenBack>>> {
        if self.is_taken {
            return Poll::Ready(None);
        }
        self.is_taken = true;
        Poll::Ready(Some(take(&self.parcel).map(Frame::data).ok_or(TakenBack)))
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
    fn a_body_is_sent_or_taken_back_and_never_both() {
        let (parcel, mut outgoing) = Parcel::of("hello".into());
        assert_eq!(outgoing.size_hint().exact(), Some(5));
        assert_eq!((poll(&mut outgoing), poll(&mut outgoing)), ("b\"hello\"".to_owned(), "end".to_owned()));
        assert!(!parcel.take_back());

        let (parcel, mut outgoing) = Parcel::of("hello".into());
        assert!(parcel.take_back());
        assert_eq!(poll(&mut outgoing), "the body was taken back before it was sent");

        let (parcel, outgoing) = Parcel::of(Bytes::new());
        assert!(outgoing.is_end_stream() && !parcel.take_back());
    }
}
