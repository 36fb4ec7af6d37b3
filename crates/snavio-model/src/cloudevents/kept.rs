//! What is kept of a CloudEvent in the metadata of the native event: its attributes that have no member of their own
//! there, as one object called `cloudevents`.
//!
//! Two of its names cannot be attributes' names: `source` is the source as it was given, where that is a URI, and `data`
//! says what the data was, where that is not JSON.

use std::collections::BTreeMap;

use super::attribute::{Value, is_attribute_char, is_name};
use super::data::DataKind;
use super::media;
use super::source::{Source, URI_RULE, is_absolute_uri};
use crate::bounds::CLOUDEVENT_EXTENSIONS_MAX;
use crate::json::{Fault, Kind, Pointer, Reader, write_string};

/// The member of an event's metadata.
pub const MEMBER: &str = "cloudevents";

/// Where an extension is kept within an event's metadata: those of ORD-1 are read there.
pub fn pointer(extension: &str) -> Option<Pointer> {
    is_name(extension).then(|| Pointer::new(&format!("/{MEMBER}/{extension}")).ok())?
}

/// Attributes by their names.
pub(super) type Attributes = BTreeMap<String, Value>;

/// The metadata of a native event, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// What belongs to the CloudEvent.
    pub(super) attributes: Attributes,
    /// The source as it was given.
    pub(super) source: Option<Source>,
    /// What the data was.
    pub(super) data: Option<String>,
    /// All other members, as a JSON object that an attribute can hold; nothing if there are none.
    pub(super) metadata: Option<String>,
}

impl Kept {
    /// Takes metadata apart. It was checked when it came; of what is not an attribute in it, nothing is taken.
    pub(super) fn of(metadata: Option<&str>) -> Self {
        let mut kept = Self::default();
        let read = metadata.map(|it| kept.read(it));
        if read.is_none_or(|read| read.is_ok()) { kept } else { Self::default() }
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
        self.metadata = closed(others).map(|it| escaped(&it));
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

/// Puts metadata together: what [`Kept::of`] takes apart. What it could not read again, all of which would be lost on
/// delivery, is a fault.
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
    let Some(kept) = closed(kept) else { return Ok(metadata.map(str::to_owned)) };
    let others = metadata.and_then(|it| it.trim().strip_suffix('}')).unwrap_or("{").trim_end();
    let comma = if others == "{" { "" } else { "," };
    let whole = format!(r#"{others}{comma}"{MEMBER}":{kept}}}"#);
    let mut reader = Reader::new(whole.as_bytes())?;
    reader.skip()?;
    reader.finish()?;
    Ok(Some(whole))
}

/// JSON with what no attribute can hold as escapes: it can only be within strings.
fn escaped(json: &str) -> String {
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

/// Whether a text may be the metadata beside the attributes: an object in strict JSON, without the member for them.
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

/// Whether an attribute is kept here: those that the native event has members for are not, and those that only the
/// platform writes neither.
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

/// What the value of an attribute must be and is not, of those that have a rule.
pub(super) fn broken_rule(name: &str, value: &Value) -> Option<&'static str> {
    let (fits, rule): (fn(&str) -> bool, _) = match name {
        "subject" => (|text| !text.is_empty(), "must be text that is not empty"),
        "dataschema" => (is_absolute_uri, URI_RULE),
        "datacontenttype" if value.as_text().is_some_and(|it| media::is_json(it) && !media::is_utf8(it)) => {
            (|_| false, "must not name another charset than utf-8 or us-ascii for JSON")
        }
        "datacontenttype" => {
            (media::is_media_type, "must be a media type (RFC 2046), such as application/json")
        }
        _ => return None,
    };
    (!value.as_text().is_some_and(fits)).then_some(rule)
}

/// Whether an attribute is the platform's: those that another gateway wrote are left behind.
pub(super) fn is_of_platform(name: &str) -> bool {
    name.starts_with("snavio")
}

fn write_member(out: &mut Vec<u8>, name: &str) {
    write_string(out, name);
    out.push(b':');
}

/// Ends an object, each member of which left a comma behind; nothing of an empty one.
fn closed(mut out: Vec<u8>) -> Option<String> {
    let comma = out.pop();
    out.push(b'}');
    (comma == Some(b',')).then(|| String::from_utf8(out).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes() -> Attributes {
        let text = |it: &str| Value::Text(it.to_owned());
        [("subject", text("7 \"é\"")), ("sampled", Value::Boolean(true)), ("rank", Value::Integer(-7))]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }

    /// MSG-6
    #[test]
    fn what_is_put_together_is_taken_apart_again() {
        let uri = Source::new("https://ci.example/acme/shop").unwrap();
        let plain = Source::new("acme/shop").unwrap();
        for others in [None, Some(r#"{"userId":"u-1","x":{"a":[1,"\u007f\ud83f\udffe"]}}"#)] {
            for (source, data) in [(&uri, DataKind::Binary), (&plain, DataKind::Json), (&uri, DataKind::Json)]
            {
                let whole = metadata(others, &attributes(), source, data).unwrap().unwrap();
                let kept = Kept::of(Some(&whole));
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
    fn what_is_no_attribute_is_not_taken_from_what_a_producer_wrote_there() {
        let kept = Kept::of(Some(
            r#"{"cloudevents":{"subject":"","partitionkey":["x"],"Flag":true,"id":"7","snaviosource":"acme/other","time":"x","n":1.5,"ok":"y","dataschema":"x","datacontenttype":"json","source":"a b","data":7}}"#,
        ));
        let ok = [("ok".to_owned(), Value::Text("y".to_owned()))];
        assert_eq!(kept, Kept { attributes: ok.into(), ..Kept::default() });
        for other in [r#"{"cloudevents":"x"}"#, r#"{"cloudevents":[]}"#, "{}", "[]", "{"] {
            assert_eq!(Kept::of(Some(other)), Kept::default(), "{other}");
        }
    }

    /// MSG-6
    #[test]
    fn metadata_beside_the_attributes_is_an_object_without_the_member_for_them() {
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
