//! The content hash: SHA-256 of the business content of a message, apart from how and when it was sent
//! (MSG-9).

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::json::{Fault, Pointer, Reader, write_string};
use crate::name::{CommandName, ServiceName};

/// The version of the rules below. Stores keep it with every hash, because hashes of two versions are not
/// comparable.
pub const HASH_VERSION: u16 = 1;

/// SHA-256 of the canonical business content of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DomainHash(pub [u8; 32]);

impl DomainHash {
    /// The hash of a command with a payload in canonical form: `{"name":…,"payload":…,"target":…}`.
    pub fn of_command(target: &ServiceName, name: &CommandName, canonical_payload: &[u8]) -> Self {
        // JSON escapes no character that a name may have.
        let parts: [&[u8]; 7] = [
            br#"{"name":""#,
            name.as_str().as_bytes(),
            br#"","payload":"#,
            canonical_payload,
            br#","target":""#,
            target.as_str().as_bytes(),
            br#""}"#,
        ];
        Self::of(&parts)
    }

    /// The hash of a command without the members of its payload that the pointers name.
    pub fn of_command_without(
        target: &ServiceName,
        name: &CommandName,
        payload: &[u8],
        left_out: &[Pointer],
    ) -> Result<Self, Fault> {
        Ok(Self::of_command(target, name, &canonical_without(payload, left_out)?))
    }

    /// The hash of an event with a payload in canonical form: `{"eventType":…,"payload":…}`.
    pub fn of_event(event_type: &str, canonical_payload: &[u8]) -> Self {
        let mut quoted_type = Vec::with_capacity(event_type.len() + 2);
        write_string(&mut quoted_type, event_type);
        Self::of(&[br#"{"eventType":"#, &quoted_type, br#","payload":"#, canonical_payload, b"}"])
    }

    /// The hash of an event without the members of its payload that the pointers name.
    pub fn of_event_without(event_type: &str, payload: &[u8], left_out: &[Pointer]) -> Result<Self, Fault> {
        Ok(Self::of_event(event_type, &canonical_without(payload, left_out)?))
    }

    fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        parts.iter().for_each(|part| hasher.update(part));
        Self(hasher.finalize().into())
    }
}

fn canonical_without(payload: &[u8], left_out: &[Pointer]) -> Result<Vec<u8>, Fault> {
    let mut canonical = Vec::with_capacity(payload.len());
    let mut reader = Reader::new(payload)?;
    reader.canonical_without(left_out, &mut canonical)?;
    reader.finish()?;
    Ok(canonical)
}

impl fmt::Display for DomainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for DomainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DomainHash({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MSG-9
    #[test]
    fn hash_is_that_of_the_canonical_form() {
        let target = ServiceName::new("acme/bot").unwrap();
        let name = CommandName::new("notify").unwrap();
        let whole = br#"{"name":"notify","payload":{"a":1},"target":"acme/bot"}"#;
        let hash = DomainHash::of_command(&target, &name, br#"{"a":1}"#);
        assert_eq!(hash.0, <[u8; 32]>::from(Sha256::digest(whole)));
        let whole = br#"{"eventType":"a\"b","payload":null}"#;
        assert_eq!(DomainHash::of_event("a\"b", b"null").0, <[u8; 32]>::from(Sha256::digest(whole)));
    }

    /// MSG-9
    #[test]
    fn pointers_leave_out_members_of_objects_and_nothing_else() {
        for (payload, pointers, rest) in [
            (r#"{"a":1,"meta":{"x":1}}"#, &["/meta"][..], r#"{"a":1}"#),
            (r#"{"meta":1}"#, &["/meta"], "{}"),
            (r#"{"meta":{"y":2,"x":1}}"#, &["/meta/x"], r#"{"meta":{"y":2}}"#),
            (r#"{"meta":{"y":2,"x":1}}"#, &["/meta/x", "/meta/y"], r#"{"meta":{}}"#),
            (r#"{"meta":{"y":2,"x":1}}"#, &["/meta/x", "/meta"], "{}"),
            (r#"{"b":1,"a":2,"c":3}"#, &["/a"], r#"{"b":1,"c":3}"#),
            (r#"{"z":1,"b":1,"a":2}"#, &["/z"], r#"{"a":2,"b":1}"#),
            (r#"{"a/b":1,"~":2,"":3,"c":4}"#, &["/a~1b", "/~0", "/"], r#"{"c":4}"#),
            (r#"{"\u006deta":1}"#, &["/meta"], "{}"),
            (r#"{"a":1}"#, &["/b", "/a/b", "/a/b/c"], r#"{"a":1}"#),
            (r#"[{"a":1}]"#, &["/0", "/0/a", "/a"], r#"[{"a":1}]"#),
            (r#"{"a":[{"b":1}]}"#, &["/a/0", "/a/0/b", "/a/b"], r#"{"a":[{"b":1}]}"#),
            (r#"{"a":{"0":1}}"#, &["/a/0"], r#"{"a":{}}"#),
            ("7", &["/a"], "7"),
        ] {
            let pointers: Vec<_> = pointers.iter().map(|text| Pointer::new(text).unwrap()).collect();
            let left = canonical_without(payload.as_bytes(), &pointers).unwrap();
            assert_eq!(String::from_utf8(left).unwrap(), rest, "{payload} without {pointers:?}");
        }
    }

    /// MSG-9, MSG-10
    #[test]
    fn left_out_members_are_still_checked() {
        let meta = [Pointer::new("/meta").unwrap()];
        for payload in [r#"{"meta":{"x":1,"x":2}}"#, r#"{"meta":1,"a":2,"meta":3}"#, r#"{"meta":01}"#] {
            assert!(DomainHash::of_event_without("T", payload.as_bytes(), &meta).is_err(), "{payload}");
        }
    }
}
