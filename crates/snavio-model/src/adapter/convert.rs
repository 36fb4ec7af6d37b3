//! Converts a verified request into a native event.

use super::config::{Adapter, DataRule, IdRule, Origin};
use super::id::event_id;
use super::request::WebhookRequest;
use crate::id::MessageId;
use crate::json::{Fault, Found, Lookups, Reader, write_string};
use crate::message::event::NewEvent;
use crate::name::CommandName;
use crate::refusal::{Reason, Refusal};
use crate::time::Timestamp;

impl Adapter {
    /// The request as a native event in JSON, as [`crate::message::event::NativeEvent::parse`] reads it.
    pub fn event(&self, request: &WebhookRequest<'_>) -> Result<Vec<u8>, Refusal> {
        self.check_body(request)?;
        let values = &self.look_up(request)?;
        let members = self.members(values)?;
        let (data, metadata) = match self.data {
            DataRule::Body => (self.body(request)?, Some(members).filter(|members| members != b"{}")),
            DataRule::Members => (members, None),
        };
        let external_id = self.external_id(values)?;
        let id = match self.id {
            IdRule::Derived => event_id(&self.source, &external_id, &data)?,
            IdRule::External => {
                let id = format!("{}{external_id}", self.id_prefix.as_deref().unwrap_or_default());
                MessageId::event(&id).ok_or_else(|| {
                    let rule = MessageId::EVENT_RULE;
                    let detail = format!("to be the event's id, the external id with its prefix {rule}");
                    Refusal::new(Reason::InvalidId, detail)
                })?
            }
        };
        let timestamp = self.timestamp(values)?;
        let event = NewEvent {
            id: &id,
            event_type: &self.event_type(values)?,
            timestamp: timestamp.as_deref(),
            version: None,
            data: &data,
            metadata: metadata.as_deref(),
            correlation_id: None,
        };
        event.write()
    }

    /// MSG-10: refuses a body that two parsers could read in two ways, if the adapter looks up values in it.
    /// A body that the adapter does not read may be anything.
    fn check_body(&self, request: &WebhookRequest<'_>) -> Result<(), Refusal> {
        let is_body_read = self.origins().any(|origin| matches!(origin, Origin::Pointer(_)));
        if request.body.is_empty() || self.data == DataRule::Body || !is_body_read {
            return Ok(());
        }
        let read = || -> Result<(), Fault> {
            let mut reader = Reader::new(request.body)?;
            reader.skip()?;
            reader.finish()
        };
        read().map_err(|fault| Refusal::new(fault.kind.reason(), format!("the body: {fault}")))
    }

    /// Looks up all values of the body in one pass.
    fn look_up<'r>(&self, request: &WebhookRequest<'r>) -> Result<RequestValues<'_, 'r>, Refusal> {
        let pointers = self.origins().filter_map(|origin| match origin {
            Origin::Pointer(pointer) if !request.body.is_empty() => Some(pointer),
            _ => None,
        });
        let body = Lookups::of(request.body, pointers);
        let body = body.map_err(|fault| Refusal::new(fault.kind.reason(), format!("the body: {fault}")))?;
        Ok(RequestValues { request: *request, body })
    }

    /// The body as data, without the members in `left_out`.
    fn body(&self, request: &WebhookRequest<'_>) -> Result<Vec<u8>, Refusal> {
        let read = || -> Result<Vec<u8>, Fault> {
            let mut reader = Reader::new(request.body)?;
            let mut canonical = Vec::new();
            let raw = reader.canonical_without(&self.left_out, &mut canonical)?;
            reader.finish()?;
            Ok(if self.left_out.is_empty() { raw.to_vec() } else { canonical })
        };
        read().map_err(|fault| Refusal::new(fault.kind.reason(), format!("the body: {fault}")))
    }

    /// The configured members that the request has, as a JSON object.
    fn members(&self, values: &RequestValues<'_, '_>) -> Result<Vec<u8>, Refusal> {
        let mut out = vec![b'{'];
        for (name, origin) in &self.members {
            let Some(value) = origin.find(values)? else { continue };
            if out.len() > 1 {
                out.push(b',');
            }
            write_string(&mut out, name);
            out.push(b':');
            match value {
                RequestValue::Header(text) => write_string(&mut out, text),
                RequestValue::Body(found) => out.extend_from_slice(found.raw),
            }
        }
        out.push(b'}');
        Ok(out)
    }

    fn external_id(&self, values: &RequestValues<'_, '_>) -> Result<String, Refusal> {
        let parts = self.external_id.iter().map(|origin| origin.text(values, "the external id"));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let before = parts.iter().zip(&self.external_id).take(parts.len().saturating_sub(1));
        // Without this rule `a:b` and `c` would have the same id as `a` and `b:c`.
        if let Some((_, origin)) = before.into_iter().find(|(part, _)| part.contains(':')) {
            let detail =
                format!("{origin} must not contain a colon: colons separate the parts of the external id");
            return Err(Refusal::new(Reason::InvalidId, detail));
        }
        Ok(parts.join(":"))
    }

    fn event_type(&self, values: &RequestValues<'_, '_>) -> Result<CommandName, Refusal> {
        let Some(origin) = &self.event_type_suffix else { return Ok(self.event_type.clone()) };
        let suffix = origin.text(values, "the event's type")?;
        let name = CommandName::event_type(&format!("{}.{suffix}", self.event_type));
        name.map_err(|invalid| Refusal::new(Reason::InvalidName, format!("{origin}: {invalid}")))
    }

    /// The time of the event, if the request has one in a known form.
    fn timestamp(&self, values: &RequestValues<'_, '_>) -> Result<Option<String>, Refusal> {
        let Some(value) = self.timestamp.as_ref().map(|origin| origin.find(values)).transpose()?.flatten()
        else {
            return Ok(None);
        };
        let Some(text) = value.text() else { return Ok(None) };
        let millis = text.parse::<i64>().ok().and_then(|seconds| seconds.checked_mul(1000));
        let written = millis.map_or(text, |millis| Timestamp(millis).to_string());
        Ok(Some(written).filter(|time| Timestamp::parse(time).is_some()))
    }
}

/// A value found in a request.
enum RequestValue<'a> {
    Header(&'a str),
    Body(Found<'a>),
}

impl RequestValue<'_> {
    /// Text as it is, or a whole number as text. Other values give `None`.
    fn text(&self) -> Option<String> {
        match self {
            Self::Header(text) => Some((*text).to_owned()),
            Self::Body(found) => found.text().or_else(|| found.whole_number()),
        }
    }
}

/// A request with the values that were looked up in its body.
struct RequestValues<'p, 'r> {
    request: WebhookRequest<'r>,
    body: Lookups<'p, 'r>,
}

impl Origin {
    fn find<'r>(&self, values: &RequestValues<'_, 'r>) -> Result<Option<RequestValue<'r>>, Refusal> {
        match self {
            Self::Header(name) => Ok(values.request.header(name)?.map(RequestValue::Header)),
            Self::Pointer(pointer) => Ok(values.body.at(pointer).map(RequestValue::Body)),
        }
    }

    /// The value as text. Refuses a request in which it is missing or empty.
    fn text(&self, values: &RequestValues<'_, '_>, role: &str) -> Result<String, Refusal> {
        let text = self.find(values)?.and_then(|value| value.text()).filter(|text| !text.is_empty());
        text.ok_or_else(|| {
            let detail = format!("{role} is expected in {self}, as text or a whole number");
            Refusal::new(Reason::Malformed, detail)
        })
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header(name) => write!(f, "the header {}", name.to_ascii_lowercase()),
            Self::Pointer(pointer) => write!(f, "the body at {pointer}"),
        }
    }
}
