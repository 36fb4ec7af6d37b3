//! Splits a JSON array into its elements without checking them. Each element is then read strictly on its
//! own, so that an invalid entry of a batch never affects another (PIP-8).

use super::{Fault, FaultKind};

/// The raw elements of the array in `bytes`. Only the array's own punctuation is checked. An array of more
/// than `max` elements is split up to the first element past `max`, and its rest is not read.
pub fn split_array(bytes: &[u8], max: usize) -> Result<Vec<&[u8]>, Fault> {
    let mut split = Split { bytes, at: 0 };
    split.space();
    split.expect(b'[')?;
    split.space();
    let mut elements = Vec::new();
    if split.peek() != Some(b']') {
        loop {
            elements.push(split.element()?);
            if elements.len() > max {
                return Ok(elements);
            }
            if split.peek() != Some(b',') {
                break;
            }
            split.at += 1;
        }
    }
    split.expect(b']')?;
    split.space();
    match split.peek() {
        None => Ok(elements),
        Some(_) => Err(split.fault(FaultKind::TrailingText)),
    }
}

struct Split<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Split<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn fault(&self, kind: FaultKind) -> Fault {
        Fault { kind, at: self.at }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Fault> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.fault(FaultKind::Unexpected))
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// Reads up to the comma or bracket that ends this element. Text within strings does not count.
    fn element(&mut self) -> Result<&'a [u8], Fault> {
        let start = self.at;
        let mut depth = 0usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => self.string()?,
                b'{' | b'[' => depth += 1,
                b',' if depth == 0 => break,
                b']' if depth == 0 => break,
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
        }
        let element = self.bytes[start..self.at].trim_ascii();
        if element.is_empty() || self.peek().is_none() {
            return Err(self.fault(FaultKind::Unexpected));
        }
        Ok(element)
    }

    /// Stops at the closing quote.
    fn string(&mut self) -> Result<(), Fault> {
        self.at += 1;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => return Ok(()),
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        Err(self.fault(FaultKind::Unexpected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Option<Vec<&str>> {
        split_at_most(text, 3)
    }

    fn split_at_most(text: &str, max: usize) -> Option<Vec<&str>> {
        let elements = split_array(text.as_bytes(), max).ok()?;
        Some(elements.into_iter().map(|element| std::str::from_utf8(element).unwrap()).collect())
    }

    /// PIP-8
    #[test]
    fn array_is_split_at_its_own_commas_only() {
        for (text, elements) in [
            ("[]", Some(vec![])),
            (" [ ] \n", Some(vec![])),
            ("[1]", Some(vec!["1"])),
            (r#"[{"a":[1,2]}, {"b":","} ]"#, Some(vec![r#"{"a":[1,2]}"#, r#"{"b":","}"#])),
            (r#"["\"],[", 2]"#, Some(vec![r#""\"],[""#, "2"])),
            (r#"[{"a":1,"a":2},NaN,{]"#, None),
            (r#"[{"a":1,"a":2},NaN]"#, Some(vec![r#"{"a":1,"a":2}"#, "NaN"])),
            ("[1,]", None),
            ("[,1]", None),
            ("[1", None),
            ("[\"a", None),
            ("[\"a\\", None),
            ("[1] x", None),
            ("{}", None),
            ("", None),
        ] {
            assert_eq!(split(text), elements, "{text:?}");
        }
    }

    /// PIP-9
    #[test]
    fn array_that_is_too_long_is_not_read_completely() {
        assert_eq!(split_at_most("[1,2,3]", 3), Some(vec!["1", "2", "3"]));
        assert_eq!(split_at_most("[1,2,3,4,,,", 3), Some(vec!["1", "2", "3", "4"]));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_split_or_refused(bytes: Vec<u8>) {
            let _ = split_array(&bytes, 3);
        }
    }
}
