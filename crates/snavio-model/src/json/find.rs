//! Looks up one value of a document that was checked before.

use super::{Fault, Kind, Pointer, Reader};

/// A value within a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its bytes as they came.
    pub raw: &'a [u8],
}

impl<'a> Found<'a> {
    /// The value that a pointer names, if the document has it. Here a name that is a whole number counts the elements of
    /// an array, from zero. What comes behind the value is not looked at.
    pub fn at(document: &'a [u8], pointer: &Pointer) -> Result<Option<Self>, Fault> {
        let mut reader = Reader::new(document)?;
        for name in pointer.names() {
            let is_there = match reader.kind()? {
                Kind::Object => enter_object(&mut reader, name)?,
                Kind::Array => enter_array(&mut reader, name)?,
                _ => false,
            };
            if !is_there {
                return Ok(None);
            }
        }
        let kind = reader.kind()?;
        Ok(Some(Self { kind, raw: reader.skip()? }))
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<String> {
        let mut reader = Reader::new(self.raw).ok().filter(|_| self.kind == Kind::String)?;
        reader.string().ok().map(std::borrow::Cow::into_owned)
    }

    /// The number in canonical form, if it is a whole one: `7` of `7.0`, `1000` of `1e3`.
    pub fn whole_number(&self) -> Option<String> {
        let mut text = Vec::new();
        Reader::new(self.raw).ok().filter(|_| self.kind == Kind::Number)?.canonical(&mut text).ok()?;
        // From 1e21 on a number has an exponent; it is whole if that reaches over all digits behind the point.
        let text = String::from_utf8(text).ok()?;
        let is_whole = match text.split_once("e+") {
            None => !text.contains(['.', 'e']),
            Some((digits, exponent)) => {
                let behind_point = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
                exponent.parse().is_ok_and(|exponent: usize| behind_point <= exponent)
            }
        };
        is_whole.then_some(text)
    }
}

/// Reads on to the value of a member.
fn enter_object(reader: &mut Reader<'_>, name: &str) -> Result<bool, Fault> {
    let mut object = reader.object()?;
    while let Some(member) = reader.member(&mut object)? {
        if member == name {
            return Ok(true);
        }
        reader.skip()?;
    }
    Ok(false)
}

/// Reads on to an element.
fn enter_array(reader: &mut Reader<'_>, name: &str) -> Result<bool, Fault> {
    let is_plain = name == "0" || !name.starts_with(['0', '+']);
    let Some(index) = name.parse::<usize>().ok().filter(|_| is_plain) else { return Ok(false) };
    let mut array = reader.array()?;
    for _ in 0..index {
        if !reader.element(&mut array)? {
            return Ok(false);
        }
        reader.skip()?;
    }
    reader.element(&mut array)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(document: &str, pointer: &str) -> Option<String> {
        let found = Found::at(document.as_bytes(), &Pointer::new(pointer).unwrap()).unwrap();
        found.map(|it| String::from_utf8(it.raw.to_vec()).unwrap())
    }

    /// MSG-7, ORD-1
    #[test]
    fn a_pointer_finds_members_and_elements() {
        let document = r#"{"a": {"b~/": [10, {"c": "x"}]}, "": 1.0, "\u0061b": null}"#;
        for (pointer, found) in [
            ("/a/b~0~1/0", Some("10")),
            ("/a/b~0~1/1/c", Some(r#""x""#)),
            ("/a/b~0~1/2", None),
            ("/a/b~0~1/01", None),
            ("/a/b~0~1/+1", None),
            ("/a/b~0~1/-", None),
            ("/", Some("1.0")),
            ("/ab", Some("null")),
            ("/ab/c", None),
            ("/x", None),
            ("/a/b", None),
        ] {
            assert_eq!(at(document, pointer).as_deref(), found, "{pointer}");
        }
        assert_eq!(at("[1,[2]]", "/1/0").as_deref(), Some("2"));
        assert_eq!(at("7", "/a"), None);
        assert!(Found::at(b"{\"a\":", &Pointer::new("/a").unwrap()).is_err());
    }

    /// ORD-1, MSG-8
    #[test]
    fn a_whole_number_is_one_by_its_value() {
        for (text, whole) in [
            ("7", Some("7")),
            ("7.0", Some("7")),
            ("-0", Some("0")),
            ("-7", Some("-7")),
            ("1e3", Some("1000")),
            ("1500e-2", Some("15")),
            ("15e-1", None),
            ("7.5", None),
            ("1e-7", None),
            ("9007199254740993", Some("9007199254740993")),
            ("1e21", Some("1e+21")),
            ("1.5e21", Some("1.5e+21")),
            ("1234567890123456789012.5", None),
            ("\"7\"", None),
            ("true", None),
        ] {
            let mut reader = Reader::new(text.as_bytes()).unwrap();
            let found = Found { kind: reader.kind().unwrap(), raw: text.as_bytes() };
            assert_eq!(found.whole_number().as_deref(), whole, "{text}");
        }
    }
}
