//! The data of a CloudEvent as the native event has it.
//!
//! A native event's data is JSON. Data of a CloudEvent may be anything, so it is turned into JSON that a consumer can read
//! without knowing CloudEvents: text becomes a string, whatever else `{"data_base64": "…"}`, and none at all `null`. What it
//! becomes depends on its bytes and its content type only, not on the mode it came in: so the same event sent in two modes
//! has one domain hash, and is a duplicate and no conflict.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::media;
use crate::json::{Fault, Kind, Reader, write_string};

/// What the data of a CloudEvent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataKind {
    /// There is none.
    None,
    /// JSON, and the same in the native event.
    Json,
    /// Text, in the native event a string.
    Text,
    /// Bytes, in the native event an object with their base64.
    Binary,
}

impl DataKind {
    /// What data of a content type is to be read as; what is meant without one depends on the mode.
    pub(super) fn declared(content_type: Option<&str>, without: Self) -> Self {
        match content_type {
            None => without,
            Some(it) if media::is_json(it) => Self::Json,
            Some(it) if media::is_utf8_text(it) => Self::Text,
            Some(_) => Self::Binary,
        }
    }

    /// The word that is kept with an event; none for JSON, which needs no word.
    pub(super) fn word(self) -> Option<&'static str> {
        match self {
            Self::Json => None,
            Self::None => Some("none"),
            Self::Text => Some("text"),
            Self::Binary => Some("base64"),
        }
    }
}

/// The data of a CloudEvent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data<'a> {
    kind: DataKind,
    json: Cow<'a, [u8]>,
}

const BASE64: &str = "data_base64";

impl<'a> Data<'a> {
    /// None at all.
    pub(super) fn none() -> Self {
        Self { kind: DataKind::None, json: Cow::Borrowed(b"null") }
    }

    /// JSON that a reader has checked.
    pub(super) fn checked_json(json: &'a [u8]) -> Self {
        Self { kind: DataKind::Json, json: Cow::Borrowed(json) }
    }

    /// Bytes that were declared to be of a kind. JSON must be that; text that is none is bytes like others.
    pub(super) fn read(bytes: Cow<'a, [u8]>, declared: DataKind) -> Result<Self, Fault> {
        Ok(match declared {
            DataKind::None => Self::none(),
            DataKind::Json => Self { kind: DataKind::Json, json: strict_json(bytes)? },
            DataKind::Text => Self::text(&bytes).unwrap_or_else(|| Self::binary(&bytes)),
            DataKind::Binary => Self::binary(&bytes),
        })
    }

    /// Text, unless it cannot be a string of strict JSON (MSG-10).
    fn text(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))?;
        let mut json = Vec::with_capacity(text.len() + 2);
        write_string(&mut json, text);
        Some(Self { kind: DataKind::Text, json: json.into() })
    }

    fn binary(bytes: &[u8]) -> Self {
        let json = format!(r#"{{"{BASE64}":"{}"}}"#, STANDARD.encode(bytes));
        Self { kind: DataKind::Binary, json: json.into_bytes().into() }
    }

    /// Of the payload of an event, by the word that was kept with it. A word that the payload does not bear out counts
    /// for nothing: whoever sent it wrote it there.
    pub(super) fn of_payload(payload: &'a [u8], word: Option<&str>) -> Self {
        let kinds = [DataKind::None, DataKind::Text, DataKind::Binary];
        let kind = kinds.into_iter().find(|kind| word.is_some() && kind.word() == word);
        let data = Self { kind: kind.unwrap_or(DataKind::Json), json: Cow::Borrowed(payload) };
        let holds = match data.kind {
            DataKind::None => payload == b"null",
            _ => data.bytes().is_some(),
        };
        if holds { data } else { Self::checked_json(payload) }
    }

    /// What it is.
    pub fn kind(&self) -> DataKind {
        self.kind
    }

    /// The data of the native event, as JSON.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// The data itself, as the body of a request has it; nothing if there is none.
    pub fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        match self.kind {
            DataKind::None => None,
            DataKind::Json => Some(Cow::Borrowed(&self.json)),
            DataKind::Text => {
                let mut reader = Reader::new(&self.json).ok()?;
                let is_text = reader.kind().ok()? == Kind::String;
                is_text.then(|| reader.string().ok())?.map(|text| text.into_owned().into_bytes().into())
            }
            DataKind::Binary => STANDARD.decode(self.base64()?).ok().map(Cow::Owned),
        }
    }

    /// The base64 of data that is bytes.
    pub(super) fn base64(&self) -> Option<String> {
        let mut reader = Reader::new(&self.json).ok()?;
        if self.kind != DataKind::Binary || reader.kind().ok()? != Kind::Object {
            return None;
        }
        let mut object = reader.object().ok()?;
        let mut base64 = None;
        while let Some(member) = reader.member(&mut object).ok()? {
            let fits = member == BASE64 && reader.kind().ok()? == Kind::String;
            base64 = Some(fits.then(|| reader.string().ok())??.into_owned());
        }
        base64
    }
}

/// The one JSON value that the bytes are, without white space around it.
fn strict_json(bytes: Cow<'_, [u8]>) -> Result<Cow<'_, [u8]>, Fault> {
    let checked = |bytes: &[u8]| {
        let mut reader = Reader::new(bytes)?;
        reader.skip()?;
        reader.finish()
    };
    checked(&bytes)?;
    Ok(match bytes {
        Cow::Borrowed(bytes) => Cow::Borrowed(bytes.trim_ascii()),
        Cow::Owned(bytes) => Cow::Owned(bytes.trim_ascii().to_vec()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MSG-6, MSG-9
    #[test]
    fn data_becomes_json_by_its_bytes_and_its_type_and_back() {
        let xml = r#"<a b="c"/>"#;
        for (bytes, content_type, kind, json) in [
            (&b" {\"a\": 1.0}\n"[..], Some("application/json"), DataKind::Json, "{\"a\": 1.0}"),
            (b"7", Some("application/vnd.acme+json"), DataKind::Json, "7"),
            (b"7", None, DataKind::Json, "7"),
            (b"7", Some("text/plain"), DataKind::Text, "\"7\""),
            (xml.as_bytes(), Some("application/xml"), DataKind::Text, r#""<a b=\"c\"/>""#),
            ("é\u{feff}\n".as_bytes(), Some("text/plain"), DataKind::Text, "\"é\u{feff}\\n\""),
            (b"a\0b", Some("text/plain"), DataKind::Binary, r#"{"data_base64":"YQBi"}"#),
            (b"\xff", Some("text/plain"), DataKind::Binary, r#"{"data_base64":"/w=="}"#),
            (b"7", Some("application/octet-stream"), DataKind::Binary, r#"{"data_base64":"Nw=="}"#),
            (b"", Some("image/png"), DataKind::Binary, r#"{"data_base64":""}"#),
        ] {
            let data = Data::read(bytes.into(), DataKind::declared(content_type, DataKind::Json)).unwrap();
            assert_eq!((data.kind(), std::str::from_utf8(data.json()).unwrap()), (kind, json));
            assert_eq!(data.bytes().unwrap().trim_ascii(), bytes.trim_ascii());
            assert_eq!(Data::of_payload(data.json(), kind.word()), data);
        }
    }

    /// MSG-6, MSG-10
    #[test]
    fn what_is_declared_to_be_json_must_be_strict_json() {
        for bytes in [&b""[..], b"hello", b"{\"a\":1,\"a\":2}", b"NaN", b"1 2", b"\xff"] {
            assert!(Data::read(bytes.into(), DataKind::Json).is_err(), "{bytes:?}");
        }
    }

    /// MSG-6
    #[test]
    fn a_word_that_the_payload_does_not_bear_out_counts_for_nothing() {
        for (payload, word, kind) in [
            ("null", Some("none"), DataKind::None),
            ("null", None, DataKind::Json),
            ("{}", Some("none"), DataKind::Json),
            ("\"a\"", Some("text"), DataKind::Text),
            ("7", Some("text"), DataKind::Json),
            (r#"{"data_base64":"YQ=="}"#, Some("base64"), DataKind::Binary),
            (r#"{"data_base64":"YQ=="}"#, None, DataKind::Json),
            (r#"{"data_base64":"YQ"}"#, Some("base64"), DataKind::Json),
            (r#"{"data_base64":7}"#, Some("base64"), DataKind::Json),
            (r#"{"data_base64":"YQ==","x":1}"#, Some("base64"), DataKind::Json),
            ("{}", Some("base64"), DataKind::Json),
            ("7", Some("json"), DataKind::Json),
        ] {
            assert_eq!(Data::of_payload(payload.as_bytes(), word).kind(), kind, "{payload} {word:?}");
        }
    }
}
