//! What is under way, counted and bounded: refusing early beats slowing everyone or running out of memory (PIP-9).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use snavio_model::refusal::{Reason, Refusal};

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
        let taken = Taken { of: Arc::clone(self), amount, spare };
        let before = self.now.fetch_add(amount, Ordering::Relaxed);
        (before.saturating_add(amount) <= self.max.saturating_add(spare)).then_some(taken)
    }
}

/// A part of a bounded whole.
#[derive(Debug)]
pub(crate) struct Taken {
    of: Arc<Bounded>,
    amount: usize,
    spare: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.of.now.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

impl Taken {
    /// Takes more of the same whole; false when that is over its bound.
    pub(crate) fn grow(&mut self, amount: usize) -> bool {
        let Some(mut more) = self.of.take(amount, self.spare) else { return false };
        self.amount += std::mem::take(&mut more.amount);
        true
    }

    /// Parts with some of what was taken.
    fn split(&mut self, amount: usize) -> Self {
        let amount = amount.min(self.amount);
        self.amount -= amount;
        Self { of: Arc::clone(&self.of), amount, spare: self.spare }
    }
}

/// Room for the bytes of one body: of the node's and of the share that it is counted among, such as its tenant's.
#[derive(Debug)]
pub(crate) struct Room {
    node: Taken,
    share: Option<Taken>,
}

impl Room {
    /// Takes more, for bytes that came.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Refusal> {
        if self.share.as_mut().is_some_and(|share| !share.grow(bytes)) {
            return Err(overloaded("too many bodies of this tenant, or of webhooks, are in memory"));
        }
        if self.node.grow(bytes) { Ok(()) } else { Err(no_room()) }
    }

    /// Parts with the room of some of the bytes.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        Self { node: self.node.split(bytes), share: self.share.as_mut().map(|share| share.split(bytes)) }
    }
}

/// What a node, or one tenant on it, has under way.
#[derive(Debug)]
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
    pub(crate) fn enter(&self, class: Class) -> Result<Taken, Refusal> {
        let taken = self.requests.take(1, class.spare(self.requests.max));
        taken.ok_or_else(|| overloaded("too many requests are under way"))
    }

    /// Room for a body that is about to come, out of the node's and of a share. It takes none yet: what a client announces
    /// is not what it sends.
    pub(crate) fn room(&self, class: Class, share: Option<&Arc<Bounded>>) -> Result<Room, Refusal> {
        let none = |of: &Arc<Bounded>| of.take(0, class.spare(of.max)).ok_or_else(no_room);
        Ok(Room { node: none(&self.body_bytes)?, share: share.map(none).transpose()? })
    }
}

/// Requests as an overload tells them apart: refusing some would make it last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Brings work.
    Ordinary,
    /// Ends work already begun.
    EndsWork,
    /// Asks how the node is.
    Health,
    /// Asks for a token, which ending work needs; strangers ask for them too.
    Token,
}

impl Class {
    /// How far past a bound it may go.
    pub(crate) fn spare(self, max: usize) -> usize {
        match self {
            Self::Ordinary => 0,
            Self::EndsWork | Self::Health => max.div_ceil(4),
            Self::Token => max.div_ceil(8),
        }
    }
}

/// The refusal of what is too much.
pub(crate) fn overloaded(detail: &'static str) -> Refusal {
    Refusal::new(Reason::Overloaded, detail)
}

/// The refusal of a body that there is no room for.
fn no_room() -> Refusal {
    overloaded("too many bodies are in memory")
}

/// A body with the room it takes, which is free again when the last slice of it is gone.
pub(crate) struct Kept {
    bytes: Bytes,
    _room: Room,
}

impl Kept {
    /// The body as bytes like any others.
    pub(crate) fn with(bytes: Bytes, room: Room) -> Bytes {
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
        assert!(bounded.take(1, Class::EndsWork.spare(4)).is_some());
        assert!(bounded.take(1, Class::Ordinary.spare(4)).is_none());
        drop(held);
        assert_eq!(bounded.now(), 0);
    }

    /// PIP-9
    #[test]
    fn a_bodys_room_is_free_when_its_last_slice_is_gone() {
        let load = Load::new(1, 10);
        let taken = || {
            let mut room = load.room(Class::Ordinary, None).unwrap();
            room.grow(8).map(|()| room)
        };
        let body = Kept::with(Bytes::from_static(b"12345678"), taken().unwrap());
        let part = body.slice(2..4);
        drop(body);
        assert!(taken().is_err());
        drop(part);
        assert!(taken().is_ok());
    }

    /// PIP-9
    #[test]
    fn a_tenant_fills_its_own_part_and_acknowledgements_find_room_past_it() {
        let (load, tenant) = (Load::new(1, 16), Bounded::new(4));
        let grown = |class: Class, of_tenant: Option<&Arc<Bounded>>, bytes: usize| {
            let mut room = load.room(class, of_tenant).unwrap();
            room.grow(bytes).map(|()| room)
        };
        let mut held = grown(Class::Ordinary, Some(&tenant), 4).unwrap();
        assert!(grown(Class::Ordinary, Some(&tenant), 1).is_err());
        assert!(grown(Class::EndsWork, Some(&tenant), 1).is_ok());
        assert!(grown(Class::Ordinary, Some(&Bounded::new(4)), 4).is_ok());
        let line = held.split(3);
        drop(held);
        assert_eq!((tenant.now(), load.body_bytes.now()), (3, 3));
        drop(line);
        assert_eq!((tenant.now(), load.body_bytes.now()), (0, 0));
        let _full = grown(Class::Ordinary, None, 16).unwrap();
        assert!(grown(Class::Token, None, 3).is_err(), "two bytes are kept for tokens");
        assert!(grown(Class::Token, None, 2).is_ok());
    }
}
