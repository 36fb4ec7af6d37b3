//! The input of settling: a permitted message with its destinations.

use std::sync::Arc;

use crate::bounds;
use crate::limit::fair::Size;
use crate::message::{Message, Path};
use crate::ordering::{EntityKey, Placed};
use crate::registry::{Acl, BoundRoute};
use crate::time::Timestamp;

/// A permitted message with its destinations.
#[derive(Debug, Clone)]
pub struct Intake {
    pub message: Message,
    /// The path that it took to settling.
    pub path: Path,
    /// The destinations. Each has its own claim and delivery.
    pub destinations: Vec<Arc<BoundRoute>>,
    /// The position in its entity at each destination; empty if no destination orders.
    pub places: Vec<Placed>,
    /// For each destination, whether its node has just accepted this message there (PIP-2); empty if none
    /// has.
    pub known: Vec<bool>,
    /// The time until which its permission may be acted on (REG-15).
    pub good_until: Timestamp,
}

impl Intake {
    /// Whether the store's registry must have the same version at the commit (`acl: always`, REG-15).
    pub fn asks_registry(&self) -> bool {
        self.destinations.iter().any(|route| route.route.acl == Acl::Always)
    }

    /// The intake room that it occupies: an event counts once for each destination.
    pub fn size(&self) -> Size {
        let items = self.destinations.len().max(1);
        Size { items, bytes: self.message.bytes() + (items - 1) * bounds::DELIVERY_BYTES }
    }

    /// Upper bound of the numbers that its judgement assigns: one for the message and one for each delivery.
    /// A conflict needs two for each tenant that must resolve it, for the record and the dead letter.
    pub fn numbers_max(&self) -> usize {
        let destinations = self.destinations.len();
        (1 + destinations).max(2 * destinations)
    }

    /// The entities whose states a backend must load and lock before it can judge the intake (ORD-2).
    pub fn entities(&self) -> impl Iterator<Item = &EntityKey> {
        self.places.iter().filter_map(Placed::place).map(|place| &place.key)
    }
}
