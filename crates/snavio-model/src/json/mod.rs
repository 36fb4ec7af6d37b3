//! Strict JSON (MSG-10) and its canonical form (MSG-8), in one pass over the bytes.
//!
//! Two parsers must never read one message in two ways, and two spellings of one value must have one hash.
//! General-purpose parsers promise neither: they keep the last of two equal members and round long numbers.

mod canonical;
mod differences;
mod find;
mod member;
mod number;
mod pointer;
mod reader;
mod split;
mod text;

pub use differences::{Difference, differences};
pub use find::{Found, Lookups};
pub use pointer::{InvalidPointer, Pointer};
pub use reader::{Array, Kind, Object, Reader};
pub use split::split_array;
pub use text::write_string;

use crate::refusal::{Reason, Refusal};

/// A fault in a text that should be JSON, and its position. It never contains the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {at}")]
pub struct Fault {
    /// The rule that was broken.
    pub kind: FaultKind,
    /// The offset in bytes, from zero.
    pub at: usize,
}

/// The violations of strict JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    #[error("invalid UTF-8")]
    NotUtf8,
    /// A mark that some parsers skip and others refuse.
    #[error("byte-order mark")]
    ByteOrderMark,
    /// A value is not complete.
    #[error("unexpected end")]
    UnexpectedEnd,
    /// `NaN`, a comma too many, a comment and the like.
    #[error("unexpected character")]
    Unexpected,
    #[error("trailing text")]
    TrailingText,
    /// Not a number as JSON writes it: a leading zero, a sign or point without digits.
    #[error("malformed number")]
    MalformedNumber,
    /// A line break or another control character inside a string.
    #[error("raw control character")]
    ControlCharacter,
    /// A backslash that escapes nothing known.
    #[error("unknown escape")]
    UnknownEscape,
    /// A surrogate without its other half.
    #[error("lone surrogate")]
    LoneSurrogate,
    /// A character at which some readers end the text.
    #[error("escaped null character")]
    NullCharacter,
    /// Past [`crate::bounds::JSON_MEMBERS_MAX`].
    #[error("too many members")]
    TooMany,
    /// The same decoded name twice in one object.
    #[error("repeated member name")]
    DuplicateMember,
    /// Past [`crate::bounds::NUMBER_DIGITS_MAX`] or [`crate::bounds::NUMBER_EXPONENT_MAX`].
    #[error("number out of range")]
    NumberRange,
    /// Past [`crate::bounds::JSON_DEPTH_MAX`].
    #[error("nesting too deep")]
    TooDeep,
}

impl FaultKind {
    /// The code of the refusal.
    pub const fn reason(self) -> Reason {
        match self {
            Self::DuplicateMember => Reason::DuplicateMember,
            Self::NumberRange => Reason::NumberRange,
            Self::TooDeep => Reason::TooDeep,
            _ => Reason::Malformed,
        }
    }

    const fn at(self, at: usize) -> Fault {
        Fault { kind: self, at }
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::new(fault.kind.reason(), fault.to_string())
    }
}

#[cfg(test)]
mod tests;
