//! The writes of a batch.

use std::collections::BTreeMap;

use super::Intake;
use crate::claim::conflict::Conflict;
use crate::claim::{Claim, ClaimKey, IdKey, Original};
use crate::delivery::{DeadLetter, Delivery};
use crate::id::Serial;
use crate::message::{Message, Path};
use crate::ordering::{EntityKey, EntityRecord};

/// A conflict to record, with the dead letter that carries its message.
#[derive(Debug, Clone)]
pub struct NewConflict {
    pub conflict: Conflict,
    /// Whether the number of the original was assigned in this batch, like the conflict's own.
    pub is_original_new: bool,
    /// The dead letter. Its message has the conflict's number, or the first conflict's number if one message
    /// made several.
    pub letter: DeadLetter,
}

/// The writes of a batch.
#[derive(Debug, Default)]
pub struct Delta {
    /// Messages, by number and position in the batch.
    pub messages: Vec<(Serial, usize)>,
    /// New claims, and replacements of expired ones.
    pub claims: Vec<(ClaimKey, Claim)>,
    /// New id records.
    pub originals: Vec<(IdKey, Original)>,
    /// Id records with a later expiry, because another destination has claimed the id.
    pub lengthened: Vec<(IdKey, Original)>,
    pub deliveries: Vec<Delivery>,
    /// Deliveries that become dead letters at once.
    pub letters: Vec<DeadLetter>,
    pub conflicts: Vec<NewConflict>,
    /// Existing conflicts that occurred again, once for each occurrence.
    pub repeats: Vec<Serial>,
    /// New states of entities.
    pub entities: BTreeMap<EntityKey, EntityRecord>,
    /// Deliveries that waited and may now be leased, by ordering key and number.
    pub released: Vec<(EntityKey, i64)>,
}

impl Delta {
    /// Whether the batch writes nothing.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.repeats.is_empty() && self.entities.is_empty()
    }

    /// The path of the message with this number; `path` unless it is a conflict.
    pub fn path_of(&self, number: Serial, path: Path) -> Path {
        let is_conflict = self.conflicts.iter().any(|new| new.conflict.id == number);
        if is_conflict { Path::Conflict } else { path }
    }

    /// The new dead letters, each with its message.
    pub fn letters<'a>(&'a self, batch: &'a [Intake]) -> impl Iterator<Item = (&'a DeadLetter, &'a Message)> {
        self.letters.iter().filter_map(|letter| {
            let written = self.messages.iter().find(|(number, _)| *number == letter.delivery.message);
            written.and_then(|(_, place)| batch.get(*place)).map(|intake| (letter, &intake.message))
        })
    }

    /// Whether the batch has conflicts, new or repeated.
    pub fn has_conflicts(&self) -> bool {
        !self.conflicts.is_empty() || !self.repeats.is_empty()
    }
}
