//! Ids that are made from content: `sha256("{source}:{external_id}:{normalized}")` in hex (MSG-7), as the Python
//! reference makes them, so that its ids stay valid.

use sha2::{Digest as _, Sha256};

use super::python::dumps;
use crate::bounds::ID_SOURCE_CHARS_MAX;
use crate::id::MessageId;
use crate::json::Fault;

/// A text that ids cannot name as their source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to 64 printable ASCII characters without a colon, which ends it in ids")]
pub struct InvalidSource;

/// Whether a source is one that ids can name.
pub(super) fn check_source(source: &str) -> Result<(), InvalidSource> {
    let fits = (1..=ID_SOURCE_CHARS_MAX).contains(&source.chars().count())
        && source.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b':');
    if fits { Ok(()) } else { Err(InvalidSource) }
}

/// The id of an event by its source, the id that the source gives it, and its data as JSON. A source may not contain a
/// colon, or two events could have one id: [`super::Adapter::problem`] has checked that, and whoever else asks must.
pub fn event_id(source: &str, external_id: &str, data: &[u8]) -> Result<MessageId, Fault> {
    let mut hasher = Sha256::new();
    for part in [source, ":", external_id, ":", &dumps(data)?] {
        hasher.update(part);
    }
    Ok(MessageId::stored(&hex::encode(hasher.finalize())))
}
