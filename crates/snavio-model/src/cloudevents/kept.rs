//! The attributes of a CloudEvent in the metadata of the native event: all that have no member of their own
//! there, in one object called `cloudevents`.
//!
//! Two names in this object are no attributes: `source` is the source as sent, if it is a URI, and `data` is
//! the kind of the data, if it is not JSON.

use std::collections::BTreeMap;

use super::attribute::{Value, is_attribute_char, is_name};
use super::data::DataKind;
use super::media;
use super::source::{Source, URI_RULE, is_absolute_uri};
use crate::bounds::CLOUDEVENT_EXTENSIONS_MAX;
use crate::json::{Fault, Kind, Pointer, Reader, write_string};

/// The name of the member in an event's metadata.
pub const MEMBER: &str = "cloudevents";

/// The place of an extension in an event's metadata. Ordering reads its extensions there (ORD-1).
pub fn pointer(extension: &str) -> Option<Pointer> {
    is_name(extension).then(|| Pointer::new(&format!("/{MEMBER}/{extension}")).ok())?
}

pub(super) type Attributes = BTreeMap<String, Value>;

/// The parts of a native event's metadata.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MetadataParts {
    /// The attributes of the CloudEvent.
    pub(super) attributes: Attributes,
    /// The source as sent, if it was a URI.
    pub(super) source: Option<Source>,
    /// The kind of the data, if it was not JSON.
    pub(super) data: Option<String>,
    /// All other members, as a JSON object that an attribute can hold. `None` if there are none.
    pub(super) metadata: Option<String>,
}

impl MetadataParts {
    /// Splits metadata that was checked on receipt. Entries that are no valid attributes are ignored.
    pub(super) fn of(metadata: Option<&str>) -> Self {
        let mut parts = Self::default();
        let read = metadata.map(|metadata| parts.read(metadata));
        if read.is_none_or(|read| read.is_ok()) { parts } else { Self::default() }
    }

    fn read(&mut self, metadata: &str) -> Result<(), Fault> {
        let mut reader = Reader::new(metadata.as_bytes())?;
        let mut object = reader.object()?;
        let mut others = vec![b'{'];
        while let Some(member) = reader.member(&mut object)? {
            if member == MEMBER && reader.kind()? == Kind::Object {
                self.read_attributes(&mut reader)?;
            } else if member == MEMBER {
                reader.skip()?;
            } else {
                write_member(&mut others, &member);
                reader.canonical(&mut others)?;
                others.push(b',');
            }
        }
        self.metadata = close_object(others).map(|json| escape_for_attribute(&json));
        reader.finish()
    }

    fn read_attributes(&mut self, reader: &mut Reader<'_>) -> Result<(), Fault> {
        let mut object = reader.object()?;
        while let Some(member) = reader.member(&mut object)? {
            let Some(Ok(value)) = Value::read(reader)? else { continue };
            match (&*member, &value) {
                ("source", Value::Text(text)) => self.source = Source::new(text),
                ("data", Value::Text(text)) => self.data = Some(text.clone()),
                (name, value) if self.takes(name, value) => {
                    self.attributes.insert(name.to_owned(), value.clone());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn takes(&self, name: &str, value: &Value) -> bool {
        let has_room = self.attributes.len() < CLOUDEVENT_EXTENSIONS_MAX;
        has_room && is_kept(name) && broken_rule(name, value).is_none()
    }
}

/// Joins the parts to the metadata that [`MetadataParts::of`] splits. A result that could not be read again
/// is a fault: on delivery all of it would be lost.
pub(super) fn metadata(
    metadata: Option<&str>,
    attributes: &Attributes,
    source: &Source,
    data: DataKind,
) -> Result<Option<String>, Fault> {
    let mut kept = vec![b'{'];
    for (name, value) in attributes {
        write_member(&mut kept, name);
        value.write_json(&mut kept);
        kept.push(b',');
    }
    let source = (!source.is_plain()).then_some(source.as_str());
    for (name, text) in [("source", source), ("data", data.word())] {
        let Some(text) = text else { continue };
        write_member(&mut kept, name);
        write_string(&mut kept, text);
        kept.push(b',');
    }
    let Some(kept) = close_object(kept) else { return Ok(metadata.map(str::to_owned)) };
    let others = metadata.and_then(|metadata| metadata.trim().strip_suffix('}')).unwrap_or("{").trim_end();
    let comma = if others == "{" { "" } else { "," };
    let whole = format!(r#"{others}{comma}"{MEMBER}":{kept}}}"#);
    let mut reader = Reader::new(whole.as_bytes())?;
    reader.skip()?;
    reader.finish()?;
    Ok(Some(whole))
}

/// Escapes the characters that no attribute can hold. In JSON they can only be in strings.
fn escape_for_attribute(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for char in json.chars() {
        if is_attribute_char(char) {
            out.push(char);
        } else {
            char.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    out
}

/// Whether a text may be the metadata beside the attributes: an object in strict JSON without the member
/// `cloudevents`.
pub(super) fn is_metadata(text: &str) -> bool {
    let check = || -> Result<bool, Fault> {
        let mut reader = Reader::new(text.as_bytes())?;
        let mut is_free = reader.kind()? == Kind::Object;
        if is_free {
            let mut object = reader.object()?;
            while let Some(member) = reader.member(&mut object)? {
                is_free &= member != MEMBER;
                reader.skip()?;
            }
            reader.finish()?;
        }
        Ok(is_free)
    };
    check().unwrap_or(false)
}

/// Whether an attribute is kept here: it has no member in the native event, and its name is not reserved for
/// the platform.
pub(super) fn is_kept(name: &str) -> bool {
    let has_member = [
        "id",
        "source",
        "specversion",
        "type",
        "time",
        "data",
        "correlationid",
        "traceparent",
        "eventversion",
    ];
    is_name(name) && !has_member.contains(&name) && !is_of_platform(name)
}

/// The rule that the value of an attribute breaks, if its name has a rule.
pub(super) fn broken_rule(name: &str, value: &Value) -> Option<&'static str> {
    let (fits, rule): (fn(&str) -> bool, _) = match name {
        "subject" => (|text| !text.is_empty(), "must be text that is not empty"),
        "dataschema" => (is_absolute_uri, URI_RULE),
        "datacontenttype"
            if value.as_text().is_some_and(|text| media::is_json(text) && !media::is_utf8(text)) =>
        {
            (|_| false, "must not name another charset than utf-8 or us-ascii for JSON")
        }
        "datacontenttype" => {
            (media::is_media_type, "must be a media type (RFC 2046), such as application/json")
        }
        _ => return None,
    };
    (!value.as_text().is_some_and(fits)).then_some(rule)
}

/// Whether the name is reserved for the platform. The gateway drops such attributes if another gateway wrote
/// them.
pub(super) fn is_of_platform(name: &str) -> bool {
    name.starts_with("snavio")
}

fn write_member(out: &mut Vec<u8>, name: &str) {
    write_string(out, name);
    out.push(b':');
}

/// Ends an object. Each of its members ended with a comma. `None` for an empty object.
fn close_object(mut out: Vec<u8>) -> Option<String> {
    let comma = out.pop();
    out.push(b'}');
    (comma == Some(b',')).then(|| String::from_utf8(out).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes() -> Attributes {
        let text = |value: &str| Value::Text(value.to_owned());
        [("subject", text("7 \"é\"")), ("sampled", Value::Boolean(true)), ("rank", Value::Integer(-7))]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }

    /// MSG-6
    #[test]
    fn joined_metadata_splits_into_its_parts() {
        let uri = Source::new("https://ci.example/acme/shop").unwrap();
        let plain = Source::new("acme/shop").unwrap();
        for others in [None, Some(r#"{"userId":"u-1","x":{"a":[1,"\u007f\ud83f\udffe"]}}"#)] {
            for (source, data) in [(&uri, DataKind::Binary), (&plain, DataKind::Json), (&uri, DataKind::Json)]
            {
                let whole = metadata(others, &attributes(), source, data).unwrap().unwrap();
                let kept = MetadataParts::of(Some(&whole));
                assert_eq!(kept.attributes, attributes(), "{whole}");
                assert_eq!(kept.source.as_ref(), (source == &uri).then_some(&uri), "{whole}");
                assert_eq!(
                    (kept.data.as_deref(), kept.metadata.as_deref()),
                    (data.word(), others),
                    "{whole}"
                );
            }
            let alone = metadata(others, &Attributes::new(), &plain, DataKind::Json).unwrap();
            assert_eq!(alone.as_deref(), others);
        }
        assert_eq!(
            metadata(Some(" { } "), &Attributes::new(), &uri, DataKind::None).unwrap().unwrap(),
            r#"{"cloudevents":{"source":"https://ci.example/acme/shop","data":"none"}}"#
        );
    }

    /// MSG-6
    #[test]
    fn invalid_attributes_in_metadata_are_ignored() {
        let kept = MetadataParts::of(Some(
            r#"{"cloudevents":{"subject":"","partitionkey":["x"],"Flag":true,"id":"7","snaviosource":"acme/other","time":"x","n":1.5,"ok":"y","dataschema":"x","datacontenttype":"json","source":"a b","data":7}}"#,
        ));
        let ok = [("ok".to_owned(), Value::Text("y".to_owned()))];
        assert_eq!(kept, MetadataParts { attributes: ok.into(), ..MetadataParts::default() });
        for other in [r#"{"cloudevents":"x"}"#, r#"{"cloudevents":[]}"#, "{}", "[]", "{"] {
            assert_eq!(MetadataParts::of(Some(other)), MetadataParts::default(), "{other}");
        }
    }

    /// MSG-6
    #[test]
    fn metadata_is_an_object_without_the_cloudevents_member() {
        for (text, fits) in [
            ("{}", true),
            (r#"{"a":{"cloudevents":1}}"#, true),
            (r#"{"cloudevents":{}}"#, false),
            (r#"{"a":1,"a":2}"#, false),
            ("{} x", false),
            ("[]", false),
            ("", false),
        ] {
            assert_eq!(is_metadata(text), fits, "{text}");
        }
    }
}
