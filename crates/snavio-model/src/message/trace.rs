//! The ids that follow a message: the correlation id and the W3C trace context (MSG-11).

use std::fmt;
use std::sync::Arc;

use crate::bounds::CORRELATION_ID_BYTES_MAX;

/// Links the messages of one flow. The producer chooses it, so it has no value as evidence.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CorrelationId(Arc<str>);

impl CorrelationId {
    /// Accepts 1 to 128 printable ASCII characters.
    pub fn new(text: &str) -> Option<Self> {
        let printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        (printable && (1..=CORRELATION_ID_BYTES_MAX).contains(&text.len())).then(|| Self(text.into()))
    }

    /// A new id for a message without one.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self((&*hex::Buffer::<16>::new().format(&bytes)).into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CorrelationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A position in a trace: `00-<trace>-<span>-<flags>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Traceparent(Arc<str>);

const TEXT_BYTES: usize = 55;

impl Traceparent {
    /// Reads version 00. Any other header counts as absent: the specification requires a new trace then.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut part = |digits| parts.next().filter(|part| is_hex(part, digits));
        let version = part(2)?;
        let (trace, span, _flags) = (part(32)?, part(16)?, part(2)?);
        let whole = text.len() == TEXT_BYTES && version == "00";
        (whole && !is_zero(trace) && !is_zero(span)).then(|| Self(text.into()))
    }

    /// A new trace for a message without one, marked as sampled, because the gateway records every message.
    pub fn from_random(bytes: [u8; 24]) -> Self {
        let (trace, span) = bytes.split_at(16);
        let mut text = String::with_capacity(TEXT_BYTES);
        for part in ["00-", &not_zero(trace), "-", &not_zero(span), "-01"] {
            text.push_str(part);
        }
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The two ids that every record about a message repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journey {
    /// The producer's id, or a random one.
    pub correlation: CorrelationId,
    pub traceparent: Traceparent,
}

impl Journey {
    /// Uses the given ids, and new ones for the missing.
    pub fn begin(
        correlation: Option<CorrelationId>,
        traceparent: Option<Traceparent>,
        random: [u8; 40],
    ) -> Self {
        let (mut name, mut trace) = ([0; 16], [0; 24]);
        name.copy_from_slice(&random[..16]);
        trace.copy_from_slice(&random[16..]);
        Self {
            correlation: correlation.unwrap_or_else(|| CorrelationId::from_random(name)),
            traceparent: traceparent.unwrap_or_else(|| Traceparent::from_random(trace)),
        }
    }
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_zero(hex: &str) -> bool {
    hex.bytes().all(|digit| digit == b'0')
}

/// The bytes as hex. All zeros mean `none` in a trace context, so random zeros are replaced.
fn not_zero(random: &[u8]) -> String {
    let hex = hex::encode(random);
    if is_zero(&hex) { hex::encode(vec![1; random.len()]) } else { hex }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MSG-11
    #[test]
    fn correlation_id_is_printable_and_short() {
        for (text, is_valid) in [
            ("c-1", true),
            ("order 7 / \"x\"", true),
            (" a", true),
            (&"x".repeat(128), true),
            (&"x".repeat(129), false),
            ("", false),
            (" ", true),
            ("a\nb", false),
            ("a\u{7f}", false),
            ("é", false),
        ] {
            assert_eq!(CorrelationId::new(text).is_some(), is_valid, "{text:?}");
        }
        let made = CorrelationId::from_random([0xab; 16]);
        assert_eq!(CorrelationId::new(made.as_str()), Some(made));
    }

    /// MSG-11
    #[test]
    fn traceparent_is_nonzero_version_00_in_lower_case() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parsed = Traceparent::parse(good).unwrap();
        assert_eq!(parsed.to_string(), good);
        for wrong in [
            "",
            &good.to_uppercase(),
            &good.replace("00-", "01-"),
            &good.replace("00-", "ff-"),
            &good.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &good.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &good.replace('-', "_"),
            &format!("{good}-00"),
            &format!("{good} "),
            &good[..54],
            &good.replace("4b", "é"),
        ] {
            assert_eq!(Traceparent::parse(wrong), None, "{wrong:?}");
        }
    }

    /// MSG-11
    #[test]
    fn generated_traceparent_is_valid_for_any_random_bytes() {
        for bytes in [[0; 24], [7; 24], [0xff; 24]] {
            let made = Traceparent::from_random(bytes);
            assert_eq!(Traceparent::parse(made.as_str()), Some(made));
        }
    }
}
