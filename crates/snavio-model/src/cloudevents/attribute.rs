//! Attributes of CloudEvents: their names, and the types of their values.

use crate::bounds::CLOUDEVENT_NAME_BYTES_MAX;
use crate::json::{Fault, Kind, Reader, write_string};

/// The value of an attribute. URIs, times and binary values of CloudEvents are text here, as in JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Text without control characters.
    Text(String),
    /// A whole number of 32 bits.
    Integer(i32),
    Boolean(bool),
}

/// The rule for values, as refusals state it.
pub(super) const VALUE_RULE: &str =
    "must be text without control characters, a whole number of 32 bits, true or false";

impl Value {
    /// A value of text, if an attribute may hold the text.
    pub(super) fn text(text: String) -> Option<Self> {
        is_text(&text).then_some(Self::Text(text))
    }

    /// Reads the next value. `null` gives `None`, because it stands for an absent attribute. A value that no
    /// attribute can hold gives the inner error.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Result<Self, ()>>, Fault> {
        let value = match reader.kind()? {
            Kind::Null => {
                reader.skip()?;
                return Ok(None);
            }
            Kind::String => Self::text(reader.string()?.into_owned()),
            Kind::Number => integer(reader.skip()?).map(Self::Integer),
            Kind::Bool => Some(Self::Boolean(reader.skip()? == b"true")),
            Kind::Object | Kind::Array => {
                reader.skip()?;
                None
            }
        };
        Ok(Some(value.ok_or(())))
    }

    /// The text, if the value is text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Integer(_) | Self::Boolean(_) => None,
        }
    }

    /// Appends the value as JSON.
    pub(super) fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => write_string(out, text),
            other => out.extend_from_slice(other.to_string().as_bytes()),
        }
    }
}

/// The canonical text, as headers carry it.
impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Integer(number) => number.fmt(f),
            Self::Boolean(value) => value.fmt(f),
        }
    }
}

/// Accepts digits with at most a minus sign: `1.0` and `1e3` are no integers in CloudEvents.
fn integer(raw: &[u8]) -> Option<i32> {
    std::str::from_utf8(raw).ok()?.parse().ok()
}

/// The rule for names, as refusals state it.
pub(super) const NAME_RULE: &str = "attribute names must be 1 to 64 of a-z 0-9";

/// Whether a text is a valid name of an attribute.
pub(super) fn is_name(text: &str) -> bool {
    (1..=CLOUDEVENT_NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9'))
}

fn is_text(text: &str) -> bool {
    text.chars().all(is_attribute_char)
}

/// Whether the character is neither a control character nor a noncharacter of Unicode.
pub(super) fn is_attribute_char(char: char) -> bool {
    let code = u32::from(char);
    !(char.is_control() || matches!(code, 0xfdd0..=0xfdef) || code & 0xfffe == 0xfffe)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MSG-6
    #[test]
    fn value_is_text_a_small_integer_or_a_boolean() {
        let text = |value: &str| Some(Ok(Value::Text(value.to_owned())));
        for (json, value) in [
            (r#""a b""#, text("a b")),
            (r#""é\ud83d\ude00""#, text("é😀")),
            (r#""""#, text("")),
            ("7", Some(Ok(Value::Integer(7)))),
            ("-2147483648", Some(Ok(Value::Integer(i32::MIN)))),
            ("true", Some(Ok(Value::Boolean(true)))),
            ("false", Some(Ok(Value::Boolean(false)))),
            ("null", None),
            ("2147483648", Some(Err(()))),
            ("7.0", Some(Err(()))),
            ("1e3", Some(Err(()))),
            (r#""a\nb""#, Some(Err(()))),
            (r#""\u0085""#, Some(Err(()))),
            (r#""\ufdd0""#, Some(Err(()))),
            (r#""\uffff""#, Some(Err(()))),
            (r#""\ud83f\udffe""#, Some(Err(()))),
            ("{}", Some(Err(()))),
            ("[1]", Some(Err(()))),
        ] {
            assert_eq!(Value::read(&mut Reader::new(json.as_bytes()).unwrap()).unwrap(), value, "{json}");
        }
    }

    /// MSG-6
    #[test]
    fn name_is_lower_case_letters_and_digits() {
        for (name, fits) in [
            ("a", true),
            ("a1", true),
            ("1a", true),
            ("", false),
            ("aB", false),
            ("a_b", false),
            ("é", false),
        ] {
            assert_eq!(is_name(name), fits, "{name}");
        }
        assert!(is_name(&"x".repeat(64)) && !is_name(&"x".repeat(65)));
    }
}
