//! Structured mode: the whole event as one JSON object (`application/cloudevents+json`), or many in an array.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::attribute::Value;
use super::data::{Data, DataKind};
use super::draft::{Draft, wrong_data};
use super::event::CloudEvent;
use crate::json::{Fault, Kind, Reader, split_array};
use crate::refusal::{Reason, Refusal, Refused};

/// The raw events of a batch (`application/cloudevents-batch+json`), at most one more than `max`.
/// [`CloudEvent::structured`] reads each event on its own, so that an invalid event never affects another
/// (PIP-8).
pub fn batch(body: &[u8], max: usize) -> Result<Vec<&[u8]>, Refusal> {
    Ok(split_array(body, max)?)
}

/// The data as in the document. Its meaning depends on the content type, which may come later in the
/// document.
enum Member<'a> {
    Json { raw: &'a [u8], text: Option<Cow<'a, str>> },
    Base64(Cow<'a, str>),
}

impl<'a> CloudEvent<'a> {
    /// Reads an event in structured mode.
    pub fn structured(body: &'a [u8]) -> Result<Self, Refused> {
        let mut draft = Draft::default();
        let member = read(&mut draft, body);
        draft.finish(member, read_data)
    }
}

fn read<'a>(draft: &mut Draft, body: &'a [u8]) -> Result<Option<Member<'a>>, Fault> {
    let mut reader = Reader::new(body)?;
    let mut data = None;
    if reader.kind()? == Kind::Object {
        let mut object = reader.object()?;
        while let Some(name) = reader.member(&mut object)? {
            let has_data = data.is_some();
            match &*name {
                "data" => data = Some(read_json(&mut reader)?),
                "data_base64" => data = read_base64(draft, &mut reader)?.or(data),
                name => {
                    if let Some(value) = Value::read(&mut reader)? {
                        draft.attribute(name, value);
                    }
                    continue;
                }
            }
            if has_data {
                let twice = "data and data_base64 exclude each other: send one of them";
                draft.form.add_fault(Reason::Malformed, || twice.into());
            }
        }
    } else {
        draft.form.add_fault(Reason::Malformed, || "the event must be an object".into());
        reader.skip()?;
    }
    reader.finish()?;
    Ok(data)
}

fn read_json<'a>(reader: &mut Reader<'a>) -> Result<Member<'a>, Fault> {
    let is_text = reader.kind()? == Kind::String;
    let raw = reader.skip()?;
    let text = if is_text { Some(Reader::new(raw)?.string()?) } else { None };
    Ok(Member::Json { raw, text })
}

fn read_base64<'a>(draft: &mut Draft, reader: &mut Reader<'a>) -> Result<Option<Member<'a>>, Fault> {
    let text = draft.form.read_text(reader, "data_base64", Reason::Malformed)?;
    Ok(text.map(Member::Base64))
}

/// Reads the data once its content type is known. Without a content type it is JSON, or bytes if it came as
/// base64.
fn read_data<'a>(draft: &Draft, member: Option<Member<'a>>) -> Result<Data<'a>, Refusal> {
    let (bytes, without) = match member {
        None => return Ok(Data::none()),
        Some(Member::Base64(text)) => {
            let rule = "data_base64 must be base64 (RFC 4648, section 4) with its padding";
            let bytes = STANDARD.decode(&*text).map_err(|_| Refusal::new(Reason::Malformed, rule))?;
            (bytes, DataKind::Binary)
        }
        Some(Member::Json { raw, text }) => {
            if DataKind::declared(draft.content_type(), DataKind::Json) == DataKind::Json {
                return Ok(Data::checked_json(raw));
            }
            let rule = "data must be a string where datacontenttype is not JSON; send bytes as data_base64";
            let text = text.ok_or_else(|| Refusal::new(Reason::Malformed, rule))?;
            (text.into_owned().into_bytes(), DataKind::Json)
        }
    };
    let declared = DataKind::declared(draft.content_type(), without);
    Data::read(bytes.into(), declared).map_err(wrong_data)
}
