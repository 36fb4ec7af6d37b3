//! What is settled: a message that may be dispatched, and where to.

use std::sync::Arc;

use crate::bounds;
use crate::limit::fair::Size;
use crate::message::{Message, Path};
use crate::ordering::{EntityKey, Placed};
use crate::registry::{Acl, BoundRoute};
use crate::time::Timestamp;

/// A message that may be dispatched, and where to.
#[derive(Debug, Clone)]
pub struct Intake {
    /// The message.
    pub message: Message,
    /// How it got here.
    pub path: Path,
    /// Its destinations: each has its own claim and delivery.
    pub destinations: Vec<Arc<BoundRoute>>,
    /// Where it stands in the order of its entity at each destination; nothing at all where none is ordered.
    pub places: Vec<Placed>,
    /// At which destinations its node has accepted this very message already (PIP-2); nothing at all where at none.
    pub known: Vec<bool>,
    /// Until when what permitted it may be acted on (REG-15).
    pub good_until: Timestamp,
}

impl Intake {
    /// Whether the registry that permitted it must still be the store's when it is written (`acl: always`, REG-15).
    pub fn asks_registry(&self) -> bool {
        self.destinations.iter().any(|route| route.route.acl == Acl::Always)
    }

    /// How much of the room for what waits it takes: an event for many is as much as many.
    pub fn size(&self) -> Size {
        let items = self.destinations.len().max(1);
        Size { items, bytes: self.message.bytes() + (items - 1) * bounds::DELIVERY_BYTES }
    }

    /// How many numbers judging it may give out: one for its message and one for each delivery; of a conflict one for the
    /// record and one for the dead letter of each tenant that must decide.
    pub fn numbers_max(&self) -> usize {
        let destinations = self.destinations.len();
        (1 + destinations).max(2 * destinations)
    }

    /// The entities whose states must be read, and kept from others, before it can be judged (ORD-2).
    pub fn entities(&self) -> impl Iterator<Item = &EntityKey> {
        self.places.iter().filter_map(Placed::place).map(|place| &place.key)
    }
}
