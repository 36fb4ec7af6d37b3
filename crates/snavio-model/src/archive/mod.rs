//! The archive: the messages and responses of claims that are no longer hot, how they are written and found
//! again (CLM-15 to CLM-18).
//!
//! A [`Record`] is a message with its responses. A [`segment`] holds many records, and a [`Pointer`] beside
//! the claim names the segment and the record. [`cooling`] judges which messages may move; [`hold`] names the
//! records that must not be deleted.

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

/// A message as it was in the message log, with the responses to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its serial in the message log.
    pub number: Serial,
    /// The path on which the gateway decided it.
    pub path: Path,
    pub settled_at: Timestamp,
    /// The version of the rules for its content hash (MSG-9).
    pub hash_version: u16,
    pub message: Message,
    /// The claims that moved with it, one for each destination.
    pub claims: Vec<ArchivedClaim>,
    /// When its content was erased, if it was.
    pub erased_at: Option<Timestamp>,
}

/// The archived part of a claim. The rest of the claim stays in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedClaim {
    pub destination: Arc<str>,
    /// The end of the claim's retention.
    pub expires_at: Timestamp,
    /// The delivery that carried the work, if its outcome was reported.
    pub delivery: Option<Serial>,
    /// The stored response, if the gateway kept it.
    pub answer: Option<Answer>,
}

impl Record {
    /// The response of a destination.
    pub fn answer(&self, destination: &str) -> Option<&Answer> {
        self.claims.iter().find(|claim| *claim.destination == *destination)?.answer.as_ref()
    }

    /// Whether this is the record of the message. A wrong pointer can lead to the record of another message.
    pub fn is_of(&self, id: &IdKey, number: Serial) -> bool {
        self.number == number && self.message.id == id.id && self.message.tenant == id.tenant
    }

    /// The record without the content of the message and its responses (CLM-18). Hash and times stay.
    pub fn erased(mut self, at: Timestamp) -> Self {
        self.message = self.message.erased();
        for claim in &mut self.claims {
            claim.answer = claim.answer.take().map(Answer::erased);
        }
        self.erased_at = Some(at);
        self
    }

    /// The approximate size in a segment, in bytes.
    pub fn bytes(&self) -> usize {
        let answers = self.claims.iter().filter_map(|claim| claim.answer.as_ref());
        self.message.bytes() + answers.map(|answer| answer.body.len()).sum::<usize>()
    }
}

/// The place of a record in the archive, and the digest that the record must have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pointer {
    /// The segment's key.
    pub object: String,
    /// The position of the record in the segment, from zero.
    pub place: u32,
    /// The SHA-256 of the record.
    pub digest: [u8; 32],
}

impl Pointer {
    /// Reads the text form: `<object>#<place>:<digest>`.
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

/// The pointer beside a moved claim. It also says whether the record has a response, so that this needs no
/// read of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimPointer {
    pub record: Pointer,
    pub answered: Answered,
}

/// Whether a record has a response to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// The pointer does not say it: an older version wrote it.
    Unsaid,
    No,
    /// It has one, with this status code.
    With(u16),
}

impl ClaimPointer {
    /// The pointer for a claim with its record at `record`.
    pub fn new(record: Pointer, answer: Option<&Answer>) -> Self {
        let answered = answer.map_or(Answered::No, |answer| Answered::With(answer.status));
        Self { record, answered }
    }

    /// Reads the text form: `<object>#<place>:<digest>:<status>`, with `-` for no response. Older pointers
    /// end with the digest.
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

/// Why a part of the archive is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The content does not match the key.
    #[error("archive segment {object} was altered: its content does not match the digest in its key")]
    Altered { object: String },
    /// A newer version may have written it.
    #[error("archive segment {object} has a format that this version does not know")]
    Unknown { object: String },
    /// The record does not match its pointer, or is missing.
    #[error("record {place} of archive segment {object} was altered or is missing")]
    Record { object: String, place: u32 },
    #[error("{0:?} is not a pointer into an archive")]
    Pointer(String),
}

#[cfg(test)]
mod tests;
