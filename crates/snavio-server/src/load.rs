//! What is under way, counted and bounded: refusing early beats slowing everyone or running out of memory (PIP-9).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use snavio_model::refusal::{Reason, Refusal};

/// When to come back after an overload.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A count with a bound. Taking and giving back are one atomic step each.
#[derive(Debug)]
pub(crate) struct Bounded {
    now: AtomicUsize,
    max: usize,
}

impl Bounded {
    /// Nothing taken yet.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { now: AtomicUsize::new(0), max })
    }

    /// How much is taken.
    pub(crate) fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    /// Takes so much, to be given back when it is dropped, unless that is over the bound and what is spare.
    pub(crate) fn take(self: &Arc<Self>, amount: usize, spare: usize) -> Option<Taken> {
        // Made before the check: dropping it is what gives the amount back.
        let taken = Taken { of: Arc::clone(self), amount };
        let before = self.now.fetch_add(amount, Ordering::Relaxed);
        (before.saturating_add(amount) <= self.max.saturating_add(spare)).then_some(taken)
    }
}

/// A part of a bounded whole.
#[derive(Debug)]
pub(crate) struct Taken {
    of: Arc<Bounded>,
    amount: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.of.now.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

impl Taken {
    /// Takes more of the same whole; false when that is over its bound.
    pub(crate) fn grow(&mut self, amount: usize) -> bool {
        let Some(mut more) = self.of.take(amount, 0) else { return false };
        self.amount += std::mem::take(&mut more.amount);
        true
    }
}

/// What a node has under way.
pub(crate) struct Load {
    pub(crate) requests: Arc<Bounded>,
    pub(crate) body_bytes: Arc<Bounded>,
}

impl Load {
    /// Nothing under way yet.
    pub(crate) fn new(requests_max: usize, body_bytes_max: usize) -> Self {
        Self { requests: Bounded::new(requests_max), body_bytes: Bounded::new(body_bytes_max) }
    }

    /// A place for a request, or for a stream that outlives its request.
    pub(crate) fn enter(&self, path: &str) -> Result<Taken, Refusal> {
        let taken = self.requests.take(1, spare(path, self.requests.max));
        taken.ok_or_else(|| overloaded("too many requests are under way"))
    }

    /// Room for bytes of a body.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<Taken, Refusal> {
        self.body_bytes.take(bytes, 0).ok_or_else(no_room)
    }
}

/// What ends work already begun may go past the bound by a quarter, and so may the question how the node is:
/// refusing these would make an overload last.
pub(crate) fn spare(path: &str, max: usize) -> usize {
    let ends_work = path.ends_with("/ack") || path.ends_with("/extend") || path.ends_with("/release");
    if ends_work || matches!(path, "/livez" | "/readyz") { max.div_ceil(4) } else { 0 }
}

/// The refusal of what is too much.
pub(crate) fn overloaded(detail: &'static str) -> Refusal {
    Refusal::retry(Reason::Overloaded, RETRY_AFTER, detail)
}

/// The refusal of a body that there is no room for.
pub(crate) fn no_room() -> Refusal {
    overloaded("too many bodies are being read")
}

/// A body with the room it takes, which is free again when the last slice of it is gone.
pub(crate) struct Kept {
    bytes: Bytes,
    _room: Taken,
}

impl Kept {
    /// The body as bytes like any others.
    pub(crate) fn with(bytes: Bytes, room: Taken) -> Bytes {
        Bytes::from_owner(Self { bytes, _room: room })
    }
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PIP-9
    #[test]
    fn what_is_taken_is_bounded_and_given_back() {
        let bounded = Bounded::new(4);
        let held: Vec<_> = (0..6).filter_map(|_| bounded.take(1, 0)).collect();
        assert_eq!((held.len(), bounded.now()), (4, 4));
        assert!(bounded.take(1, spare("/v1/queues/q/ack", 4)).is_some());
        assert!(bounded.take(1, spare("/v1/commands", 4)).is_none());
        drop(held);
        assert_eq!(bounded.now(), 0);
    }

    /// PIP-9
    #[test]
    fn a_bodys_room_is_free_when_its_last_slice_is_gone() {
        let load = Load::new(1, 10);
        let room = load.reserve(8).unwrap();
        let body = Kept::with(Bytes::from_static(b"12345678"), room);
        let part = body.slice(2..4);
        drop(body);
        assert!(load.reserve(8).is_err());
        drop(part);
        assert!(load.reserve(8).is_ok());
    }
}
