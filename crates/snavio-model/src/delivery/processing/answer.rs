//! The response of a processor, and the reference in it (CLM-9).

use std::fmt;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::bounds;
use crate::json::Reader;

/// The response of a processor, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub content_type: Option<String>,
    pub body: Bytes,
}

impl Answer {
    /// The response without its content (CLM-18).
    pub fn erased(self) -> Self {
        Self { status: self.status, content_type: None, body: Bytes::new() }
    }

    /// The reference: the text or number at a JSON pointer in the body. A number keeps its spelling, because
    /// a double would turn `2026.10` into `2026.1`, which may be another entry.
    pub fn reference(&self, pointer: &str) -> Result<String, NoReference> {
        let mut value = serde_json::from_slice(&self.body).map_err(|_| NoReference::Unfit)?;
        for name in pointer.split('/').skip(1) {
            value = child(value, &name.replace("~1", "/").replace("~0", "~"))?;
        }
        let value = value.get();
        let found = match value.as_bytes().first() {
            Some(b'"') => serde_json::from_str(value).map_err(|_| NoReference::Unfit)?,
            Some(b'-' | b'0'..=b'9') => value.to_owned(),
            _ => return Err(NoReference::Unfit),
        };
        if is_reference(&found) { Ok(found) } else { Err(NoReference::Unfit) }
    }

    /// The number of members in the body, if it is JSON that strict readers accept even inside any document
    /// of the gateway (MSG-10); otherwise `None`.
    pub fn strict_members(&self) -> Option<usize> {
        let (levels, members) = (bounds::ANSWER_LEVELS_AROUND, bounds::ANSWER_MEMBERS_AROUND);
        let mut reader = Reader::within(&self.body, levels, members).ok()?;
        reader.skip().ok()?;
        let read = reader.members_read() - members;
        reader.finish().ok().map(|()| read)
    }
}

/// The reason that a response has no reference at a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoReference {
    /// The value is missing, or is not a short text or number.
    #[error("no text or number of 1 to {} bytes on one line is there", bounds::REFERENCE_BYTES_MAX)]
    Unfit,
    /// A member on the path is repeated: some readers take the first of them, others the last.
    #[error("a member on the way to it is repeated in its object, and readers differ in which one they take")]
    Repeated,
}

/// The value of a member of an object, or of an element of a list.
fn child<'a>(value: &'a RawValue, name: &str) -> Result<&'a RawValue, NoReference> {
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'{') => {
            let Members(members) = serde_json::from_str(text).map_err(|_| NoReference::Unfit)?;
            let mut found = members.into_iter().filter(|(member, _)| member == name);
            let (_, value) = found.next().ok_or(NoReference::Unfit)?;
            if found.next().is_some() { Err(NoReference::Repeated) } else { Ok(value) }
        }
        Some(b'[') => {
            let is_plain = name == "0" || !name.starts_with(['0', '+']);
            let index = name.parse().ok().filter(|_| is_plain);
            let elements: Vec<_> = serde_json::from_str(text).map_err(|_| NoReference::Unfit)?;
            index.and_then(|index: usize| elements.get(index).copied()).ok_or(NoReference::Unfit)
        }
        _ => Err(NoReference::Unfit),
    }
}

/// The members of an object in their order, including repeated ones.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(MembersVisitor).map(Self)
    }
}

/// Whether a text can be a reference: short, and on one line.
pub fn is_reference(text: &str) -> bool {
    (1..=bounds::REFERENCE_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_reference(body: &str, pointer: &str) -> Result<String, NoReference> {
        let body = body.to_owned().into();
        Answer { status: 201, content_type: None, body }.reference(pointer)
    }

    /// CLM-9: a double of the number may name another entry.
    #[test]
    fn numeric_reference_keeps_its_spelling() {
        for number in ["2026.10", "123456789012345678901234567890", "1e3", "-0", "1.0", "9007199254740993"] {
            for (body, pointer) in [
                (format!(r#"{{"ref": {number} }}"#), "/ref"),
                (format!(r#"[null,{{"a/b~":[{number}]}}]"#), "/1/a~1b~0/0"),
            ] {
                assert_eq!(read_reference(&body, pointer).as_deref(), Ok(number), "{body}");
            }
        }
        for (body, pointer, found) in [
            (r#"{"r":1,"r":2}"#, "/r", Err(NoReference::Repeated)),
            (r#"{"r":1,"\u0072":1}"#, "/r", Err(NoReference::Repeated)),
            (r#"{"a":{"r":1},"b":2,"a":3}"#, "/a/r", Err(NoReference::Repeated)),
            (r#"{"r":1,"b":2,"b":2}"#, "/r", Ok("1")),
            (r#"{"r":"\u004aE-1"}"#, "/r", Ok("JE-1")),
            (r#"{"":7}"#, "/", Ok("7")),
            ("[7]", "/00", Err(NoReference::Unfit)),
            ("[7]", "/1", Err(NoReference::Unfit)),
            ("7", "/r", Err(NoReference::Unfit)),
            (r#"{"r":{"s":7}}"#, "/r", Err(NoReference::Unfit)),
            (r#"{"r":true}"#, "/r", Err(NoReference::Unfit)),
            (r#"{"r":7} and more"#, "/r", Err(NoReference::Unfit)),
            (r#"{"r":01}"#, "/r", Err(NoReference::Unfit)),
        ] {
            assert_eq!(read_reference(body, pointer).as_deref(), found.as_ref().copied(), "{body} {pointer}");
        }
        let long = format!(r#"{{"r":{}}}"#, "1".repeat(257));
        assert_eq!(read_reference(&long, "/r"), Err(NoReference::Unfit));
    }

    /// MSG-10, PIP-8: lenient readers accept all of these bodies.
    #[test]
    fn strict_json_excludes_bodies_that_break_strict_readers() {
        let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let members = |count: usize| format!("[{}]", vec![r#"{"a":1}"#; count].join(","));
        for (body, is_strict) in [
            (r#" {"a":[1.50,null,"\u00e9"]} "#.to_owned(), true),
            (nested(bounds::JSON_DEPTH_MAX - bounds::ANSWER_LEVELS_AROUND), true),
            (nested(bounds::JSON_DEPTH_MAX - bounds::ANSWER_LEVELS_AROUND + 1), false),
            (members(bounds::JSON_MEMBERS_MAX - bounds::ANSWER_MEMBERS_AROUND), true),
            (members(bounds::JSON_MEMBERS_MAX - bounds::ANSWER_MEMBERS_AROUND + 1), false),
            (r#"{"a":1,"a":2}"#.to_owned(), false),
            (r#"{"a":1,"\u0061":2}"#.to_owned(), false),
            (r#""\ud800""#.to_owned(), false),
            ("1e9999".to_owned(), false),
            ("1".repeat(bounds::NUMBER_DIGITS_MAX + 1), false),
            ("{} {}".to_owned(), false),
            ("<html>".to_owned(), false),
            (String::new(), false),
        ] {
            let answer = Answer { status: 200, content_type: None, body: body.clone().into() };
            assert_eq!(answer.strict_members().is_some(), is_strict, "{body}");
        }
    }
}
