//! What a processor answered, and the posting reference in it (CLM-9).

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::limits;

/// What a processor answered, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// What the body is.
    pub content_type: Option<String>,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// The same without what it says (CLM-18).
    pub fn erased(self) -> Self {
        Self { status: self.status, content_type: None, body: Bytes::new() }
    }

    /// The posting reference: the text, or number, under a JSON pointer in the body. A number is taken as it is written:
    /// read as a double, `2026.10` is `2026.1`, which may be another entry.
    pub fn reference(&self, pointer: &str) -> Option<String> {
        let body = serde_json::from_slice(&self.body).ok()?;
        let names = pointer.split('/').skip(1);
        let value =
            names.map(|name| name.replace("~1", "/").replace("~0", "~")).try_fold(body, within)?.get();
        let found = match value.as_bytes().first()? {
            b'"' => serde_json::from_str(value).ok()?,
            b'-' | b'0'..=b'9' => value.to_owned(),
            _ => return None,
        };
        is_reference(&found).then_some(found)
    }
}

/// The value under a name within another, or at a place in a list. Of a name that is there twice the last counts, as with
/// most readers of JSON.
fn within(value: &RawValue, name: String) -> Option<&RawValue> {
    match value.get().as_bytes().first()? {
        b'{' => serde_json::from_str::<BTreeMap<String, &RawValue>>(value.get()).ok()?.remove(&name),
        b'[' => {
            let is_plain = name == "0" || !name.starts_with(['0', '+']);
            let place = name.parse().ok().filter(|_| is_plain)?;
            serde_json::from_str::<Vec<&RawValue>>(value.get()).ok()?.into_iter().nth(place)
        }
        _ => None,
    }
}

/// Whether a text can be a posting reference: short, and on one line.
pub fn is_reference(text: &str) -> bool {
    (1..=limits::REFERENCE_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLM-9: what a double would make of it may be another entry.
    #[test]
    fn a_number_is_a_reference_as_it_is_written() {
        let reference = |body: &str, pointer: &str| {
            let body = body.to_owned().into();
            Answer { status: 201, content_type: None, body }.reference(pointer)
        };
        for number in ["2026.10", "123456789012345678901234567890", "1e3", "-0", "1.0", "9007199254740993"] {
            for (body, pointer) in [
                (format!(r#"{{"ref": {number} }}"#), "/ref"),
                (format!(r#"[null,{{"a/b~":[{number}]}}]"#), "/1/a~1b~0/0"),
            ] {
                assert_eq!(reference(&body, pointer).as_deref(), Some(number), "{body}");
            }
        }
        for (body, pointer, found) in [
            (r#"{"r":1,"r":2}"#, "/r", Some("2")),
            (r#"{"r":"\u004aE-1"}"#, "/r", Some("JE-1")),
            (r#"{"":7}"#, "/", Some("7")),
            ("[7]", "/00", None),
            ("[7]", "/1", None),
            ("7", "/r", None),
            (r#"{"r":{"s":7}}"#, "/r", None),
            (r#"{"r":true}"#, "/r", None),
            (r#"{"r":7} and more"#, "/r", None),
            (r#"{"r":01}"#, "/r", None),
        ] {
            assert_eq!(reference(body, pointer).as_deref(), found, "{body} {pointer}");
        }
        assert_eq!(reference(&format!(r#"{{"r":{}}}"#, "1".repeat(257)), "/r"), None);
    }
}
