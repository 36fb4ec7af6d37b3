//! The members that only events have, as they are stored and delivered.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::write_string;
use crate::name::EventVersion;

/// An event's own members (MSG-5). The content hash covers none of them (MSG-9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventEnvelope {
    /// The version of the event type.
    pub version: EventVersion,
    /// The time that the producer wrote, else the time of receipt.
    pub timestamp: String,
    /// A JSON object, as received.
    pub metadata: Option<String>,
}

impl EventEnvelope {
    /// The members as one JSON text, for a store.
    pub fn to_text(&self) -> String {
        let metadata = self.metadata.as_deref();
        let mut text = Vec::with_capacity(64 + self.timestamp.len() + metadata.map_or(0, str::len));
        text.extend_from_slice(br#"{"version":"#);
        write_string(&mut text, self.version.as_str());
        text.extend_from_slice(br#","timestamp":"#);
        write_string(&mut text, &self.timestamp);
        if let Some(metadata) = metadata {
            text.extend_from_slice(br#","metadata":"#);
            text.extend_from_slice(metadata.as_bytes());
        }
        text.push(b'}');
        // All parts are text.
        String::from_utf8(text).unwrap_or_default()
    }

    /// Reads the text that [`EventEnvelope::to_text`] returned. Any other text gives `None`.
    pub fn stored(text: &str) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Stored {
            version: EventVersion,
            timestamp: String,
            metadata: Option<Box<RawValue>>,
        }
        let Stored { version, timestamp, metadata } = serde_json::from_str(text).ok()?;
        let envelope = Self { version, timestamp, metadata: metadata.map(|raw| raw.get().to_owned()) };
        (envelope.to_text() == text).then_some(envelope)
    }

    /// The size that counts in queues and batches, in bytes.
    pub fn bytes(&self) -> usize {
        self.metadata.as_ref().map_or(0, String::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MSG-5, QUA-1
    #[test]
    fn stored_envelope_is_read_back_byte_for_byte() {
        for metadata in [None, Some("{}"), Some("{ \"b\":1.0,  \"a\" : \"\\u0041\" }"), Some(r#"{"é":[]}"#)]
        {
            let envelope = EventEnvelope {
                version: "2.10".parse().unwrap(),
                timestamp: "2026-11-15T09:30:00.5+01:00".to_owned(),
                metadata: metadata.map(str::to_owned),
            };
            assert_eq!(EventEnvelope::stored(&envelope.to_text()), Some(envelope));
        }
        for other in [
            "",
            "{}",
            r#"{"version":"1.0"}"#,
            r#"{"version":"1","timestamp":""}"#,
            r#"{"version":"1.0", "timestamp":""}"#,
            r#"{"version":"1.0","timestamp":"","other":1}"#,
        ] {
            assert_eq!(EventEnvelope::stored(other), None, "{other}");
        }
    }
}
