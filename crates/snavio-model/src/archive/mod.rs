//! The archive: what is moved there of claims that have cooled, as it is written and found again (CLM-15 to CLM-18).
//!
//! A [`Record`] is a message with the answers to it; records stand together in a segment ([`segment`]), and a
//! [`Pointer`] beside the claim says where. What may be moved is judged in [`cooling`], what must not be deleted is
//! named in [`hold`].

pub mod cooling;
pub mod hold;
mod record;
pub mod segment;

use std::fmt;
use std::sync::Arc;

use crate::claim::IdKey;
use crate::delivery::processing::Answer;
use crate::id::Serial;
use crate::message::{Message, Path};
use crate::time::Timestamp;

/// A message as it stood in the log, with what was answered to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub number: Serial,
    /// How it was decided.
    pub path: Path,
    /// When it was settled.
    pub settled_at: Timestamp,
    /// The version of its hash.
    pub hash_version: u16,
    /// The message.
    pub message: Message,
    /// The claims that moved with it, by their destinations.
    pub claims: Vec<ArchivedClaim>,
    /// When what it says was destroyed, if it was.
    pub erased_at: Option<Timestamp>,
}

/// What is archived of a claim: the rest of it stays hot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedClaim {
    /// Where the message went.
    pub destination: Arc<str>,
    /// Until when the claim is kept.
    pub expires_at: Timestamp,
    /// The delivery that carried the work, where that was reported back.
    pub delivery: Option<Serial>,
    /// What was answered, where that was kept.
    pub answer: Option<Answer>,
}

impl Record {
    /// The answer that a destination gave.
    pub fn answer(&self, destination: &str) -> Option<&Answer> {
        self.claims.iter().find(|it| *it.destination == *destination)?.answer.as_ref()
    }

    /// Whether it is of this message, and not of another that something wrong points to.
    pub fn is_of(&self, id: &IdKey, number: Serial) -> bool {
        self.number == number && self.message.id == id.id && self.message.tenant == id.tenant
    }

    /// The same without what the message and its answers say (CLM-18): the hash and the times stay.
    pub fn erased(mut self, at: Timestamp) -> Self {
        self.message = self.message.erased();
        for claim in &mut self.claims {
            claim.answer = claim.answer.take().map(Answer::erased);
        }
        self.erased_at = Some(at);
        self
    }

    /// What it takes up in a segment, more or less.
    pub fn bytes(&self) -> usize {
        let answers = self.claims.iter().filter_map(|it| it.answer.as_ref());
        self.message.bytes() + answers.map(|it| it.body.len()).sum::<usize>()
    }
}

/// Where a record is: in which object, at which place, and what it must be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pointer {
    /// The segment's key.
    pub object: String,
    /// Its place there, counted from zero.
    pub place: u32,
    /// The SHA-256 of the record.
    pub digest: [u8; 32],
}

impl Pointer {
    /// Takes back what it is written as: `<object>#<place>:<digest>`.
    pub fn parse(text: &str) -> Option<Self> {
        let (object, rest) = text.rsplit_once('#')?;
        let (place, digest) = rest.split_once(':')?;
        let mut bytes = [0; 32];
        hex::decode_to_slice(digest, &mut bytes).ok()?;
        let pointer = Self { object: object.to_owned(), place: place.parse().ok()?, digest: bytes };
        (pointer.to_string() == text).then_some(pointer)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}:{}", self.object, self.place, hex::encode(self.digest))
    }
}

/// What stands beside a claim that was moved: where its record is, and what is known of its answer without reading that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimPointer {
    /// Where the record is.
    pub record: Pointer,
    /// Whether there is an answer in it.
    pub answered: Answered,
}

/// Whether a record has an answer to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// Nobody wrote down whether it has.
    Unsaid,
    /// It has none.
    No,
    /// It has one, with this status.
    With(u16),
}

impl ClaimPointer {
    /// What is written beside a claim whose record is there, with its answer.
    pub fn new(record: Pointer, answer: Option<&Answer>) -> Self {
        let answered = answer.map_or(Answered::No, |it| Answered::With(it.status));
        Self { record, answered }
    }

    /// Takes back what it is written as: `<object>#<place>:<digest>:<status>`, `-` for no answer. Older ones end with the
    /// digest.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(record) = Pointer::parse(text) {
            return Some(Self { record, answered: Answered::Unsaid });
        }
        let (record, answered) = text.rsplit_once(':')?;
        let answered = match answered {
            "-" => Answered::No,
            status => Answered::With(status.parse().ok()?),
        };
        let pointer = Self { record: Pointer::parse(record)?, answered };
        (pointer.to_string() == text).then_some(pointer)
    }
}

impl fmt::Display for ClaimPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.answered {
            Answered::Unsaid => self.record.fmt(f),
            Answered::No => write!(f, "{}:-", self.record),
            Answered::With(status) => write!(f, "{}:{status}", self.record),
        }
    }
}

/// Why something of the archive is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is not what its key says.
    #[error("{object} is not as it was written")]
    Altered {
        /// Which segment.
        object: String,
    },
    /// It is of a form that this program does not know.
    #[error("{object} is of a form that this version does not know")]
    Unknown {
        /// Which segment.
        object: String,
    },
    /// A record is not what its pointer says, or not there.
    #[error("record {place} of {object} is not as it was written")]
    Record {
        /// Which segment.
        object: String,
        /// Which of its records.
        place: u32,
    },
    /// What points to it cannot be read.
    #[error("{0:?} points to nothing in an archive")]
    Pointer(String),
}

#[cfg(test)]
mod tests;
