//! Faults in the form of a message. Reading continues after a wrong member, so that a refusal can name the
//! message. The first fault is the reason.

use std::borrow::Cow;

use crate::json::{Fault, Kind, Reader};
use crate::message::trace::CorrelationId;
use crate::name::{InvalidName, is_short_identifier};
use crate::refusal::{Reason, Refusal};

/// The first fault in the form of a message, if any.
#[derive(Debug, Default)]
pub(crate) struct Form {
    first_fault: Option<Refusal>,
}

impl Form {
    /// Records a fault. Only the first one counts.
    pub(crate) fn add_fault(&mut self, reason: Reason, detail: impl FnOnce() -> String) {
        self.first_fault.get_or_insert_with(|| Refusal::new(reason, detail()));
    }

    /// The first fault as an error.
    pub(crate) fn into_result(self) -> Result<(), Refusal> {
        self.first_fault.map_or(Ok(()), Err)
    }

    /// Reads a string. A value of another kind is a fault with this reason.
    pub(crate) fn read_text<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        member: &str,
        reason: Reason,
    ) -> Result<Option<Cow<'a, str>>, Fault> {
        if reader.kind()? == Kind::String {
            return reader.string().map(Some);
        }
        self.add_fault(reason, || format!("{member} must be a string"));
        reader.skip()?;
        Ok(None)
    }

    /// Reads a name and checks its form.
    pub(crate) fn read_name<T>(
        &mut self,
        reader: &mut Reader<'_>,
        member: &str,
        check: impl Fn(&str) -> Result<T, InvalidName>,
    ) -> Result<Option<T>, Fault> {
        let Some(text) = self.read_text(reader, member, Reason::Malformed)? else { return Ok(None) };
        match check(&text) {
            Ok(name) => Ok(Some(name)),
            Err(invalid) => {
                self.add_fault(Reason::InvalidName, || format!("{member}: {invalid}"));
                Ok(None)
            }
        }
    }

    /// Reads a correlation id.
    pub(crate) fn read_correlation_id(
        &mut self,
        reader: &mut Reader<'_>,
        member: &str,
    ) -> Result<Option<CorrelationId>, Fault> {
        let Some(text) = self.read_text(reader, member, Reason::Malformed)? else { return Ok(None) };
        let correlation = CorrelationId::new(&text);
        if correlation.is_none() {
            self.add_fault(Reason::Malformed, || {
                format!("{member} must be 1 to 128 printable ASCII characters")
            });
        }
        Ok(correlation)
    }

    /// Refuses a member that no producer may send.
    pub(crate) fn refuse_unknown(
        &mut self,
        reader: &mut Reader<'_>,
        place: &str,
        member: &str,
    ) -> Result<(), Fault> {
        if is_short_identifier(member) {
            self.add_fault(Reason::UnknownField, || format!("{place} has no member {member}"));
        } else {
            self.add_fault(Reason::UnknownField, || format!("a member of {place} is unknown"));
        }
        reader.skip().map(drop)
    }

    /// Refuses a member that only the platform sets.
    pub(crate) fn refuse_reserved(&mut self, reader: &mut Reader<'_>, member: &str) -> Result<(), Fault> {
        self.add_fault(Reason::ReservedField, || format!("{member} is set by the platform only"));
        reader.skip().map(drop)
    }
}

/// Whether a member marks a message as a replay. Only the platform may set it (MSG-1).
pub(crate) fn is_of_replay(member: &str) -> bool {
    matches!(member, "replayed" | "replay_id" | "replay_reason")
}

/// The refusal of a message that lacks a member.
pub(crate) fn missing(member: &str) -> Refusal {
    Refusal::new(Reason::Malformed, format!("{member} is missing"))
}
