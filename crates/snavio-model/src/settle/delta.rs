//! What a batch leaves to be written.

use std::collections::BTreeMap;

use super::Intake;
use crate::claim::conflict::Conflict;
use crate::claim::{Claim, ClaimKey, IdKey, Original};
use crate::delivery::{DeadLetter, Delivery};
use crate::id::Serial;
use crate::message::{Message, Path};
use crate::ordering::{EntityKey, EntityRecord};

/// A conflict to be recorded, with the dead letter that carries its message.
#[derive(Debug, Clone)]
pub struct NewConflict {
    /// The conflict.
    pub conflict: Conflict,
    /// Whether its original's number was given in this very batch, as its own were.
    pub is_original_new: bool,
    /// The dead letter. Its message is the conflict's own number, or that of the first one if several were made of one.
    pub letter: DeadLetter,
}

/// What a batch leaves to be written.
#[derive(Debug, Default)]
pub struct Delta {
    /// Messages, as their number and their place in the batch.
    pub messages: Vec<(Serial, usize)>,
    /// Claims that are new, or replace an expired one.
    pub claims: Vec<(ClaimKey, Claim)>,
    /// What ids mean from now on.
    pub originals: Vec<(IdKey, Original)>,
    /// What ids meant before, and mean for longer: another destination has taken them up since.
    pub lengthened: Vec<(IdKey, Original)>,
    /// Deliveries to enqueue.
    pub deliveries: Vec<Delivery>,
    /// Deliveries that are dead letters from the start.
    pub letters: Vec<DeadLetter>,
    /// Conflicts to record.
    pub conflicts: Vec<NewConflict>,
    /// Conflicts that were recorded before, once for each time that they were met again.
    pub repeats: Vec<Serial>,
    /// What is known of entities from now on.
    pub entities: BTreeMap<EntityKey, EntityRecord>,
    /// Deliveries that waited and may be handed out now, by their lane and number.
    pub released: Vec<(EntityKey, i64)>,
}

impl Delta {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.repeats.is_empty() && self.entities.is_empty()
    }

    /// How a message was decided that is written under this number.
    pub fn path_of(&self, number: Serial, path: Path) -> Path {
        let is_conflict = self.conflicts.iter().any(|it| it.conflict.id == number);
        if is_conflict { Path::Conflict } else { path }
    }

    /// The dead letters among them, each with its message.
    pub fn letters<'a>(&'a self, batch: &'a [Intake]) -> impl Iterator<Item = (&'a DeadLetter, &'a Message)> {
        let of = |letter: &'a DeadLetter| {
            let written = self.messages.iter().find(|(number, _)| *number == letter.delivery.message);
            written.and_then(|(_, place)| batch.get(*place)).map(|intake| (letter, &intake.message))
        };
        self.letters.iter().filter_map(of)
    }

    /// Whether anything but dispatching was decided.
    pub fn has_conflicts(&self) -> bool {
        !self.conflicts.is_empty() || !self.repeats.is_empty()
    }
}
