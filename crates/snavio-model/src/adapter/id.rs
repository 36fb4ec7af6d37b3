//! Ids derived from content: `sha256("{source}:{external_id}:{normalized}")` in hex (MSG-7). They equal the
//! ids of the Python reference, so that its ids stay valid.

use sha2::{Digest as _, Sha256};

use super::python::dumps;
use crate::bounds::ID_SOURCE_CHARS_MAX;
use crate::id::MessageId;
use crate::json::Fault;

/// A text that cannot be the source in an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to 64 printable ASCII characters without a colon, because a colon ends it in an id")]
pub struct InvalidSource;

/// Checks that a text can be the source in an id.
pub(super) fn check_source(source: &str) -> Result<(), InvalidSource> {
    let fits = (1..=ID_SOURCE_CHARS_MAX).contains(&source.chars().count())
        && source.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b':');
    if fits { Ok(()) } else { Err(InvalidSource) }
}

/// The id of an event from its source, the source's own id for it, and its data as JSON.
///
/// The source must not contain a colon, or two events could have one id. [`super::Adapter::problem`] checks
/// that for adapters; every other caller must check it.
pub fn event_id(source: &str, external_id: &str, data: &[u8]) -> Result<MessageId, Fault> {
    let mut hasher = Sha256::new();
    for part in [source, ":", external_id, ":", &dumps(data)?] {
        hasher.update(part);
    }
    Ok(MessageId::stored(&hex::encode(hasher.finalize())))
}
