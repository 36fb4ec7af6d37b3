//! A payload: the bytes that are delivered and the form that is hashed, from one reading.

use sha2::{Digest as _, Sha256};

use crate::json::{Fault, Reader};

/// A checked JSON value of any kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload<'a> {
    raw: &'a [u8],
    canonical: Vec<u8>,
}

impl<'a> Payload<'a> {
    /// Reads a text that is one payload and nothing else.
    pub fn parse(text: &'a [u8]) -> Result<Self, Fault> {
        let mut reader = Reader::new(text)?;
        let payload = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(payload)
    }

    /// Reads the value that comes next.
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        // In most messages the payload is the rest, and the canonical form is no longer than what was sent.
        let mut canonical = Vec::with_capacity(reader.bytes_left());
        let raw = reader.canonical(&mut canonical)?;
        Ok(Self { raw, canonical })
    }

    /// The bytes as they came, without white space around them. Deliveries carry these.
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// The canonical form (MSG-8).
    pub fn canonical(&self) -> &[u8] {
        &self.canonical
    }

    /// The hash of the canonical form, which signatures cover. Computed anew on every call.
    pub fn sha256(&self) -> [u8; 32] {
        Sha256::digest(&self.canonical).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MSG-8, MSG-10
    #[test]
    fn a_payload_keeps_its_bytes_and_its_canonical_form() {
        let payload = Payload::parse(b" {\"b\": 1.0, \"a\": \"\\u0041\"}\n").unwrap();
        assert_eq!(payload.raw(), b"{\"b\": 1.0, \"a\": \"\\u0041\"}");
        assert_eq!(payload.canonical(), br#"{"a":"A","b":1}"#);
        assert_eq!(payload.sha256(), <[u8; 32]>::from(Sha256::digest(br#"{"a":"A","b":1}"#)));
        assert!(Payload::parse(b"1 2").is_err());
    }
}
