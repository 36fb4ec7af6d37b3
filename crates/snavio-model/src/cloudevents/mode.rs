//! The mode of an event in a request, by the request's headers.

use super::media::{essence, is_json, is_utf8};
use crate::refusal::{Reason, Refusal};

/// JSON is in UTF-8 (RFC 8259), and the gateway reads it as UTF-8.
pub const UTF8_RULE: &str =
    "JSON must be in UTF-8: the charset of its content type must be utf-8 or us-ascii";

/// The form of one or several events in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// No CloudEvents.
    Native,
    /// One CloudEvent as one JSON object.
    Structured,
    /// One CloudEvent: its attributes in headers, its data as the body.
    Binary,
    /// CloudEvents in a JSON array.
    Batch,
}

impl Mode {
    /// The content type of structured mode.
    pub const STRUCTURED: &str = "application/cloudevents+json";
    /// The content type of batch mode.
    pub const BATCH: &str = "application/cloudevents-batch+json";

    /// Determines the mode from the content type and the names of the headers. Refuses a request that holds
    /// an event twice: two readers could take two events.
    pub fn of<'h>(
        content_type: Option<&str>,
        names: impl IntoIterator<Item = &'h str>,
    ) -> Result<Self, Refusal> {
        let (mut is_binary, mut has_attributes) = (false, false);
        for name in names {
            is_binary |= is_required(name);
            has_attributes |= is_attribute(name);
        }
        let has_other_charset = content_type.is_some_and(|text| is_json(text) && !is_utf8(text));
        match content_type.map(essence).as_deref() {
            Some(Self::STRUCTURED | Self::BATCH) if has_attributes => {
                let detail = "the body holds the whole event, and headers that begin with ce- hold attributes again: send only one form";
                Err(Refusal::new(Reason::InvalidRequest, detail))
            }
            _ if has_other_charset => Err(Refusal::new(Reason::UnsupportedMediaType, UTF8_RULE)),
            Some(Self::STRUCTURED) => Ok(Self::Structured),
            Some(Self::BATCH) => Ok(Self::Batch),
            Some(other) if other.starts_with("application/cloudevents") => {
                let detail = "the content type of CloudEvents must be application/cloudevents+json or application/cloudevents-batch+json";
                Err(Refusal::new(Reason::UnsupportedMediaType, detail))
            }
            _ if is_binary => Ok(Self::Binary),
            _ => Ok(Self::Native),
        }
    }
}

/// Whether a header could be an attribute in binary mode.
fn is_attribute(header: &str) -> bool {
    header.get(..3).is_some_and(|prefix| prefix.eq_ignore_ascii_case("ce-"))
}

/// Whether every CloudEvent in binary mode has this header. Other headers with the prefix may have another
/// purpose.
fn is_required(header: &str) -> bool {
    ["ce-specversion", "ce-id", "ce-type", "ce-source"]
        .iter()
        .any(|required| header.eq_ignore_ascii_case(required))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MSG-6
    #[test]
    fn headers_determine_the_mode() {
        let ce = ["host", "CE-Id"];
        for (content_type, names, mode) in [
            (None, &[][..], Some(Mode::Native)),
            (Some("application/json"), &["ce-other"], Some(Mode::Native)),
            (Some("application/json"), &ce, Some(Mode::Binary)),
            (None, &ce, Some(Mode::Binary)),
            (Some("application/cloudevents+json; charset=UTF-8"), &[], Some(Mode::Structured)),
            (Some("Application/CloudEvents+JSON"), &["accept", "ce"], Some(Mode::Structured)),
            (Some("application/cloudevents+json"), &["CE-Sequence"], None),
            (Some("application/cloudevents-batch+json"), &["ce-other"], None),
            (Some("application/cloudevents+json"), &ce, None),
            (Some("application/cloudevents-batch+json"), &[], Some(Mode::Batch)),
            (Some("application/cloudevents-batch+json"), &ce, None),
            (Some("application/cloudevents+avro"), &ce, None),
            (Some("application/cloudevents"), &[], None),
            (Some("application/cloudevents+json; charset=utf-16"), &[], None),
            (Some("application/cloudevents+json;CHARSET=\"UTF-16\""), &[], None),
            (Some("application/cloudevents+json; charset=US-ASCII"), &[], Some(Mode::Structured)),
            (Some("application/cloudevents-batch+json; charset=iso-8859-1"), &[], None),
            (Some("application/json; charset=utf-16"), &ce, None),
            (Some("application/json; charset=utf-16"), &[], None),
            (Some("application/vnd.acme+json; charset=\"utf-8\""), &ce, Some(Mode::Binary)),
            (Some("text/plain; charset=utf-16"), &ce, Some(Mode::Binary)),
        ] {
            assert_eq!(Mode::of(content_type, names.iter().copied()).ok(), mode, "{content_type:?}");
        }
    }
}
