//! The differences between two JSON texts, by pointer (CLM-14).

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::value::RawValue;

use super::Reader;

/// A place where two texts differ.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Difference {
    /// The place, as a JSON pointer.
    pub pointer: String,
    /// The value in the original text, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub original: Option<Box<RawValue>>,
    /// The value in the conflicting text, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub conflicting: Option<Box<RawValue>>,
}

/// The places where two texts differ, at most `most`. Numbers compare by their exact value. If a text is no
/// JSON, there are none.
pub fn differences(original: &[u8], conflicting: &[u8], most: usize) -> Vec<Difference> {
    let read = |text| serde_json::from_slice::<&RawValue>(text).ok();
    let mut found = Vec::new();
    if let (Some(original), Some(conflicting)) = (read(original), read(conflicting)) {
        compare(String::new(), Some(original), Some(conflicting), most, &mut found);
    }
    found
}

fn compare(
    pointer: String,
    original: Option<&RawValue>,
    conflicting: Option<&RawValue>,
    most: usize,
    found: &mut Vec<Difference>,
) {
    if found.len() >= most {
        return;
    }
    let (Some(one), Some(other)) = (original, conflicting) else {
        return found.push(difference(pointer, original, conflicting));
    };
    if let (Some(one), Some(other)) = (members(one), members(other)) {
        for name in one.keys().chain(other.keys()).collect::<BTreeSet<_>>() {
            let name_in = name.replace('~', "~0").replace('/', "~1");
            compare(
                format!("{pointer}/{name_in}"),
                one.get(name).copied(),
                other.get(name).copied(),
                most,
                found,
            );
        }
    } else if let (Some(one), Some(other)) = (items(one), items(other)) {
        for place in 0..one.len().max(other.len()) {
            let at = format!("{pointer}/{place}");
            compare(at, one.get(place).copied(), other.get(place).copied(), most, found);
        }
    } else if canonical(one) != canonical(other) {
        found.push(difference(pointer, original, conflicting));
    }
}

fn difference(pointer: String, original: Option<&RawValue>, conflicting: Option<&RawValue>) -> Difference {
    let own = |value: Option<&RawValue>| value.map(ToOwned::to_owned);
    Difference { pointer, original: own(original), conflicting: own(conflicting) }
}

fn canonical(value: &RawValue) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    Reader::new(value.get().as_bytes()).ok()?.canonical(&mut text).ok()?;
    Some(text)
}

fn members(value: &RawValue) -> Option<BTreeMap<String, &RawValue>> {
    value.get().starts_with('{').then(|| serde_json::from_str(value.get()).ok())?
}

fn items(value: &RawValue) -> Option<Vec<&RawValue>> {
    value.get().starts_with('[').then(|| serde_json::from_str(value.get()).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLM-14, MSG-8
    #[test]
    fn differing_members_are_named_by_pointer() {
        for (one, other, places) in [
            (r#"{"a":1,"b":[1,2]}"#, r#"{"b":[1.0,2],"a":1}"#, &[][..]),
            (r#"{"amount":9007199254740993}"#, r#"{"amount":9007199254740992}"#, &["/amount"]),
            (
                r#"{"a":{"x/y":1,"z~":[1,2]}}"#,
                r#"{"a":{"x/y":2,"z~":[1,3,4]}}"#,
                &["/a/x~1y", "/a/z~0/1", "/a/z~0/2"],
            ),
            (r#"{"a":1}"#, r#"{"b":1}"#, &["/a", "/b"]),
            (r#"{"a":{}}"#, r#"{"a":[]}"#, &["/a"]),
            ("1", "2", &[""]),
            (r#""é""#, "\"e\u{301}\"", &[""]),
        ] {
            let found = differences(one.as_bytes(), other.as_bytes(), 100);
            assert_eq!(
                found.iter().map(|difference| difference.pointer.as_str()).collect::<Vec<_>>(),
                places,
                "{one} {other}"
            );
        }
        assert_eq!(differences(b"[1,2,3]", b"[4,5,6]", 2).len(), 2);
    }
}
