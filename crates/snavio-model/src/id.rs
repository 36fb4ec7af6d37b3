//! Identifiers: the ids of messages, and the serials of a store.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The longest id of an event, in bytes.
const EVENT_ID_BYTES_MAX: usize = 128;

/// The id that a producer gave a message, the same over retries. Commands use hyphenated UUIDs in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(Arc<str>);

impl MessageId {
    /// Reads a command's id: a hyphenated UUID in any case, not nil (MSG-1).
    pub fn uuid(text: &str) -> Option<Self> {
        let hyphenated = text.len() == 36;
        let uuid = uuid::Uuid::try_parse(text).ok().filter(|uuid| hyphenated && !uuid.is_nil())?;
        let mut buffer = uuid::Uuid::encode_buffer();
        let lower: &str = uuid.hyphenated().encode_lower(&mut buffer);
        Some(Self(lower.into()))
    }

    /// The rule for an event's id, as refusals state it.
    pub const EVENT_RULE: &str = "must be 1 to 128 printable ASCII characters, without a space at either end";

    /// Reads an event's id: 1 to 128 printable ASCII characters, or a hyphenated UUID in any case (MSG-5). A
    /// space at either end is refused: no header can carry it, so the event could not be pushed.
    pub fn event(text: &str) -> Option<Self> {
        Self::asked_for(text).filter(|id| id.0.trim_matches(' ').len() == id.0.len())
    }

    /// Reads an id from a look-up. It may have spaces at either end, because the gateway once accepted such
    /// ids.
    pub fn asked_for(text: &str) -> Option<Self> {
        let is_id = (1..=EVENT_ID_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        Self::uuid(text).or_else(|| is_id.then(|| Self(text.into())))
    }

    /// The time at which the id was made, if the id has it: a UUID of version 7 does.
    pub fn made_at(&self) -> Option<Timestamp> {
        let uuid = uuid::Uuid::try_parse(&self.0).ok().filter(|uuid| uuid.get_version_num() == 7)?;
        i64::try_from(uuid.as_u128() >> 80).ok().map(Timestamp)
    }

    /// An id from the text that [`MessageId::as_str`] returned.
    pub fn stored(text: &str) -> Self {
        Self(text.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A number that only rises: over batches, crashes, restarts and restores of a store.
///
/// It has the store's epoch in the high bits and a counter in the low bits. Every start begins a new epoch,
/// so that serials rise without a write of their own. They stay below 2^53, so that every JSON reader keeps
/// them exact. Messages, deliveries, fencing tokens, dead letters and telemetry records share one source of
/// serials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Serial(pub i64);

impl Serial {
    /// Bits of the counter; when it is used up, a new epoch begins.
    pub const COUNTER_BITS: u32 = 28;
    /// The last epoch that keeps serials below 2^53.
    pub const EPOCH_MAX: i64 = (1 << (53 - Self::COUNTER_BITS)) - 1;

    /// The first serial of an epoch.
    pub fn first_of(epoch: i64) -> Self {
        Self(epoch << Self::COUNTER_BITS)
    }

    /// The serial after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The epoch it belongs to.
    pub fn epoch(self) -> i64 {
        self.0 >> Self::COUNTER_BITS
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MSG-1
    #[test]
    fn command_id_is_a_uuid_kept_in_lower_case() {
        for (text, kept) in [
            ("0192F0A0-7C3E-7B60-8C1D-1B2A3C4D5E6F", Some("0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f")),
            ("0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f", Some("0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f")),
            ("00000000-0000-0000-0000-000000000000", None),
            ("0192f0a07c3e7b608c1d1b2a3c4d5e6f", None),
            ("{0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f}", None),
            ("urn:uuid:0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f", None),
            ("0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6", None),
            ("", None),
        ] {
            assert_eq!(MessageId::uuid(text).as_ref().map(MessageId::as_str), kept, "{text:?}");
        }
    }

    /// MSG-5
    #[test]
    fn event_id_is_printable_and_a_uuid_lower_case() {
        let longest = "x".repeat(128);
        for (text, kept) in [
            ("0192F0A0-7C3E-7B60-8C1D-1B2A3C4D5E6F", Some("0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f")),
            ("0192F0A07C3E7B608C1D1B2A3C4D5E6F", Some("0192F0A07C3E7B608C1D1B2A3C4D5E6F")),
            ("Order 7 ~", Some("Order 7 ~")),
            (" order-7", None),
            ("order-7 ", None),
            (" ", None),
            (" 0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f", None),
            ("x", Some("x")),
            (longest.as_str(), Some(longest.as_str())),
            (&format!("{longest}x"), None),
            ("", None),
            ("a\tb", None),
            ("a\u{7f}", None),
            ("é", None),
        ] {
            assert_eq!(MessageId::event(text).as_ref().map(MessageId::as_str), kept, "{text:?}");
        }
        for (text, is_id) in [("order-7 ", true), ("\t", false), ("", false)] {
            assert_eq!(MessageId::asked_for(text).is_some(), is_id, "{text:?}");
        }
    }

    #[test]
    fn serials_rise_over_epochs_and_stay_exact_in_json() {
        let last = Serial(Serial::first_of(7).0 + (1 << Serial::COUNTER_BITS) - 1);
        assert_eq!(last.epoch(), 7);
        assert_eq!(last.next(), Serial::first_of(8));
        assert!(Serial::first_of(Serial::EPOCH_MAX + 1).0 <= 1 << 53);
    }
}
