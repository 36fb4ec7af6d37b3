//! A payload: the bytes that are delivered and the canonical form that is hashed, from one pass over the
//! text.

use sha2::{Digest as _, Sha256};

use crate::json::{Fault, Reader};

/// A checked JSON value of any kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload<'a> {
    raw: &'a [u8],
    canonical: Vec<u8>,
}

impl<'a> Payload<'a> {
    /// Reads a text that is exactly one payload.
    pub fn parse(text: &'a [u8]) -> Result<Self, Fault> {
        let mut reader = Reader::new(text)?;
        let payload = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(payload)
    }

    /// Reads the next value.
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        // In most messages the payload is the rest, and its canonical form is not longer than the text.
        let mut canonical = Vec::with_capacity(reader.bytes_left());
        let raw = reader.canonical(&mut canonical)?;
        Ok(Self { raw, canonical })
    }

    /// The bytes as received, without surrounding white space. Deliveries carry these.
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// The canonical form (MSG-8).
    pub fn canonical(&self) -> &[u8] {
        &self.canonical
    }

    /// The hash of the canonical form, which signatures cover. Every call computes it again.
    pub fn sha256(&self) -> [u8; 32] {
        Sha256::digest(&self.canonical).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MSG-8, MSG-10
    #[test]
    fn payload_keeps_raw_and_canonical_form() {
        let payload = Payload::parse(b" {\"b\": 1.0, \"a\": \"\\u0041\"}\n").unwrap();
        assert_eq!(payload.raw(), b"{\"b\": 1.0, \"a\": \"\\u0041\"}");
        assert_eq!(payload.canonical(), br#"{"a":"A","b":1}"#);
        assert_eq!(payload.sha256(), <[u8; 32]>::from(Sha256::digest(br#"{"a":"A","b":1}"#)));
        assert!(Payload::parse(b"1 2").is_err());
    }
}
