//! Binary mode: the attributes are in headers that begin with `ce-`, and the data is the body.

use std::borrow::Cow;

use super::attribute::Value;
use super::data::{Data, DataKind};
use super::draft::{Draft, wrong_data};
use super::event::CloudEvent;
use super::media;
use crate::bounds::CLOUDEVENT_HEADER_BYTES_MAX;
use crate::percent::in_header;
use crate::refusal::{Reason, Refused};

const PREFIX: &str = "ce-";

impl<'a> CloudEvent<'a> {
    /// Reads an event in binary mode from all headers of a request, in any case, and its body.
    ///
    /// A body without a content type is JSON, as in structured mode. JSON is never empty, so an empty body is
    /// then no data. With another content type an empty body is empty data.
    pub fn binary<'h>(
        headers: impl IntoIterator<Item = (&'h str, &'h str)>,
        body: &'a [u8],
    ) -> Result<Self, Refused> {
        let mut draft = Draft::default();
        let mut seen = Vec::new();
        for (name, value) in headers {
            let name = name.to_ascii_lowercase();
            let attribute = name.strip_prefix(PREFIX);
            if attribute.is_none() && name != "content-type" {
                continue;
            }
            if seen.contains(&name) {
                draft.form.add_fault(Reason::DuplicateMember, || "a header of the event came twice".into());
            }
            match attribute {
                None => draft.attribute("datacontenttype", Value::text(value.to_owned()).ok_or(())),
                Some("datacontenttype") => {
                    let detail = "ce-datacontenttype must not be sent: the content-type header says it";
                    draft.form.add_fault(Reason::Malformed, || detail.into());
                }
                Some(attribute) => read_header(&mut draft, attribute, value),
            }
            seen.push(name);
        }
        draft.finish(Ok(body), |draft, body| {
            let declared = match DataKind::declared(draft.content_type(), DataKind::Json) {
                DataKind::Json if body.is_empty() => DataKind::None,
                declared => declared,
            };
            Data::read(body.into(), declared).map_err(wrong_data)
        })
    }

    /// The event in binary mode. `None` if the event must be sent in structured mode: its headers exceed the
    /// limit of receivers, or receivers would read its empty body as data that it does not have.
    pub fn to_binary(&self) -> Option<BinaryForm<'_>> {
        let is_json = self.content_type().is_none_or(media::is_json);
        if self.data.kind() == DataKind::None && !is_json {
            return None;
        }
        let mut headers = Vec::new();
        for (name, value) in self.members() {
            headers.push((format!("{PREFIX}{name}"), in_header(&value.to_string())));
        }
        // Receivers would read a body without a content type as JSON, or as anything.
        let implied = match self.data.kind() {
            DataKind::None => None,
            DataKind::Json => Some("application/json"),
            DataKind::Text => Some("text/plain; charset=utf-8"),
            DataKind::Binary => Some("application/octet-stream"),
        };
        if let Some(content_type) = self.content_type().or(implied) {
            headers.push(("content-type".to_owned(), content_type.to_owned()));
        }
        let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
        let body = self.data.bytes().unwrap_or_default();
        (bytes <= CLOUDEVENT_HEADER_BYTES_MAX).then_some(BinaryForm { headers, body })
    }
}

/// An event in binary mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinaryForm<'a> {
    /// Names in lower case. The content type is among them.
    pub headers: Vec<(String, String)>,
    pub body: Cow<'a, [u8]>,
}

fn read_header(draft: &mut Draft, attribute: &str, value: &str) {
    match decoded(value) {
        Some(text) => draft.attribute(attribute, Value::text(text).ok_or(())),
        None => {
            let rule = "as printable ASCII, all else percent-encoded in UTF-8";
            // A valid name is short and holds only letters and digits, so that the refusal can repeat it.
            let shown_name = if super::attribute::is_name(attribute) { attribute } else { "…" };
            draft.form.add_fault(Reason::Malformed, || {
                format!("the header {PREFIX}{shown_name} must be written {rule}")
            });
        }
    }
}

/// Decodes the value of a header, and also quoted strings of older senders. `None` if the value has another
/// form.
fn decoded(header: &str) -> Option<String> {
    let unquoted = unquoted(header.trim_matches([' ', '\t']))?;
    let mut out = Vec::with_capacity(unquoted.len());
    let mut rest = unquoted.as_slice();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        out.push(digit(digits[0])? << 4 | digit(digits[1])?);
        rest = behind;
    }
    String::from_utf8(out).ok()
}

fn unquoted(header: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(header.len());
    let mut is_quoted = false;
    let mut bytes = header.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\\' if is_quoted => out.push(bytes.next()?),
            b' '..=b'~' | b'\t' => out.push(byte),
            _ => return None,
        }
    }
    (!is_quoted && out.is_ascii()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// MSG-6
    #[test]
    fn header_values_are_decoded_as_the_binding_says() {
        for (header, text) in [
            ("plain", Some("plain")),
            ("  plain\t", Some("plain")),
            ("Euro%20%E2%82%AC%20%F0%9F%98%80", Some("Euro € 😀")),
            ("%e2%82%ac", Some("€")),
            ("%41", Some("A")),
            ("%2541", Some("%41")),
            ("a b", Some("a b")),
            (r#""a b""#, Some("a b")),
            (r#""a \"b\" \\ %20""#, Some(r#"a "b" \  "#)),
            (r#"a" b "c"#, Some("a b c")),
            ("", Some("")),
            ("%C0%A0", None),
            ("%ff", None),
            ("%", None),
            ("%4", None),
            ("%4g", None),
            ("\"open", None),
            (r#""open\"#, None),
            ("é", None),
            (r#""\é""#, None),
            ("a\u{1}", None),
        ] {
            assert_eq!(decoded(header).as_deref(), text, "{header}");
        }
    }

    proptest! {
        /// MSG-6
        #[test]
        fn encoded_text_decodes_to_itself(text: String) {
            let header = in_header(&text);
            prop_assert!(header.bytes().all(|byte| matches!(byte, b'!'..=b'~')));
            prop_assert_eq!(decoded(&header), Some(text));
        }

        /// QUA-4
        #[test]
        fn no_header_makes_the_decoder_panic(header: String) {
            let _ = decoded(&header);
        }
    }
}
