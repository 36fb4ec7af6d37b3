//! The data of a CloudEvent in the native event.
//!
//! A native event's data is JSON. Data of a CloudEvent may be anything, so the gateway converts it into JSON
//! that a consumer can read without knowing CloudEvents: text becomes a string, other bytes become
//! `{"data_base64": "…"}`, and absent data becomes `null`. The result depends only on the bytes and the
//! content type, not on the mode of the request. The same event sent in two modes therefore has one content
//! hash, and is a duplicate and no conflict.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::media;
use crate::json::{Fault, Kind, Reader, write_string};

/// The kind of a CloudEvent's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataKind {
    /// The event has no data.
    None,
    /// JSON, unchanged in the native event.
    Json,
    /// Text, a string in the native event.
    Text,
    /// Bytes, an object with their base64 in the native event.
    Binary,
}

impl DataKind {
    /// The kind that a content type declares. The mode decides the kind of data without a content type.
    pub(super) fn declared(content_type: Option<&str>, without: Self) -> Self {
        match content_type {
            None => without,
            Some(media_type) if media::is_json(media_type) => Self::Json,
            Some(media_type) if media::is_utf8_text(media_type) => Self::Text,
            Some(_) => Self::Binary,
        }
    }

    /// The name that is kept with an event. JSON needs none.
    pub(super) fn word(self) -> Option<&'static str> {
        match self {
            Self::Json => None,
            Self::None => Some("none"),
            Self::Text => Some("text"),
            Self::Binary => Some("base64"),
        }
    }
}

/// The data of a CloudEvent, as JSON of the native event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data<'a> {
    kind: DataKind,
    json: Cow<'a, [u8]>,
}

const BASE64: &str = "data_base64";

impl<'a> Data<'a> {
    /// Absent data.
    pub(super) fn none() -> Self {
        Self { kind: DataKind::None, json: Cow::Borrowed(b"null") }
    }

    /// JSON that a reader has checked.
    pub(super) fn checked_json(json: &'a [u8]) -> Self {
        Self { kind: DataKind::Json, json: Cow::Borrowed(json) }
    }

    /// Reads bytes of a declared kind. Declared JSON must be strict JSON. Declared text that a JSON string
    /// cannot hold becomes bytes.
    pub(super) fn read(bytes: Cow<'a, [u8]>, declared: DataKind) -> Result<Self, Fault> {
        Ok(match declared {
            DataKind::None => Self::none(),
            DataKind::Json => Self { kind: DataKind::Json, json: strict_json(bytes)? },
            DataKind::Text => Self::text(&bytes).unwrap_or_else(|| Self::binary(&bytes)),
            DataKind::Binary => Self::binary(&bytes),
        })
    }

    /// Text, if it can be a string of strict JSON (MSG-10).
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

    /// The data of an event's payload, by the name that was kept with it. A name that contradicts the payload
    /// has no effect: a producer of native events can write any name.
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

    /// The kind of the data.
    pub fn kind(&self) -> DataKind {
        self.kind
    }

    /// The data of the native event, as JSON.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// The data as the body of a request has it. `None` if there is no data.
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

    /// The base64 of binary data.
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

/// The single JSON value in the bytes, without white space around it.
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
    fn data_becomes_json_by_bytes_and_type_and_back() {
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
    fn declared_json_must_be_strict_json() {
        for bytes in [&b""[..], b"hello", b"{\"a\":1,\"a\":2}", b"NaN", b"1 2", b"\xff"] {
            assert!(Data::read(bytes.into(), DataKind::Json).is_err(), "{bytes:?}");
        }
    }

    /// MSG-6
    #[test]
    fn kept_kind_that_contradicts_the_payload_is_ignored() {
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
