//! What is wrong with the form of a message: reading goes on to the end even when a member is wrong, so that a refusal
//! can name the message; the first wrong member is the reason.

use std::borrow::Cow;

use crate::json::{Fault, Kind, Reader};
use crate::message::trace::CorrelationId;
use crate::name::{InvalidName, is_short_identifier};
use crate::refusal::{Reason, Refusal};

/// The first member that was wrong, if any was.
#[derive(Debug, Default)]
pub(crate) struct Form {
    wrong: Option<Refusal>,
}

impl Form {
    /// Notes that something is wrong; only the first counts.
    pub(crate) fn wrong(&mut self, reason: Reason, detail: impl FnOnce() -> String) {
        self.wrong.get_or_insert_with(|| Refusal::new(reason, detail()));
    }

    /// Nothing was wrong.
    pub(crate) fn check(self) -> Result<(), Refusal> {
        self.wrong.map_or(Ok(()), Err)
    }

    /// Reads a string; a value of another kind is wrong for the reason given.
    pub(crate) fn text<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        member: &str,
        reason: Reason,
    ) -> Result<Option<Cow<'a, str>>, Fault> {
        if reader.kind()? == Kind::String {
            return reader.string().map(Some);
        }
        self.wrong(reason, || format!("{member} must be a string"));
        reader.skip()?;
        Ok(None)
    }

    /// Reads a name of some kind.
    pub(crate) fn name<T>(
        &mut self,
        reader: &mut Reader<'_>,
        member: &str,
        check: impl Fn(&str) -> Result<T, InvalidName>,
    ) -> Result<Option<T>, Fault> {
        let Some(text) = self.text(reader, member, Reason::Malformed)? else { return Ok(None) };
        match check(&text) {
            Ok(name) => Ok(Some(name)),
            Err(invalid) => {
                self.wrong(Reason::InvalidName, || format!("{member}: {invalid}"));
                Ok(None)
            }
        }
    }

    /// Reads the producer's name for the journey.
    pub(crate) fn correlation(
        &mut self,
        reader: &mut Reader<'_>,
        member: &str,
    ) -> Result<Option<CorrelationId>, Fault> {
        let Some(text) = self.text(reader, member, Reason::Malformed)? else { return Ok(None) };
        let correlation = CorrelationId::new(&text);
        if correlation.is_none() {
            self.wrong(Reason::Malformed, || format!("{member} must be 1 to 128 printable ASCII characters"));
        }
        Ok(correlation)
    }

    /// Refuses a member that no producer sends.
    pub(crate) fn unknown(
        &mut self,
        reader: &mut Reader<'_>,
        place: &str,
        member: &str,
    ) -> Result<(), Fault> {
        if is_short_identifier(member) {
            self.wrong(Reason::UnknownField, || format!("{place} has no member {member}"));
        } else {
            self.wrong(Reason::UnknownField, || format!("a member of {place} is unknown"));
        }
        reader.skip().map(drop)
    }

    /// Refuses a member that only the platform sets.
    pub(crate) fn reserved(&mut self, reader: &mut Reader<'_>, member: &str) -> Result<(), Fault> {
        self.wrong(Reason::ReservedField, || format!("{member} is set by the platform only"));
        reader.skip().map(drop)
    }
}

/// Whether a member says that a message is a replay, which is the platform's to say (MSG-1).
pub(crate) fn is_of_replay(member: &str) -> bool {
    matches!(member, "replayed" | "replay_id" | "replay_reason")
}

/// The refusal of a message that lacks a member.
pub(crate) fn missing(member: &str) -> Refusal {
    Refusal::new(Reason::Malformed, format!("{member} is missing"))
}
