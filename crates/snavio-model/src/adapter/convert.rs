//! Makes a native event of a request that was verified.

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
    /// The native event that a request is, as JSON: what [`crate::message::event::NativeEvent::parse`] takes.
    pub fn event(&self, request: &WebhookRequest<'_>) -> Result<Vec<u8>, Refusal> {
        self.check_body(request)?;
        let seen = &self.look_up(request)?;
        let members = self.members(seen)?;
        let (data, metadata) = match self.data {
            DataRule::Body => (self.body(request)?, Some(members).filter(|it| it != b"{}")),
            DataRule::Members => (members, None),
        };
        let external_id = self.external_id(seen)?;
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
        let timestamp = self.timestamp(seen)?;
        let event = NewEvent {
            id: &id,
            event_type: &self.event_type(seen)?,
            timestamp: timestamp.as_deref(),
            version: None,
            data: &data,
            metadata: metadata.as_deref(),
            correlation_id: None,
        };
        event.write()
    }

    /// MSG-10: what is looked up in the body is one value to every reader of it. One that nothing is taken from may be
    /// anything.
    fn check_body(&self, request: &WebhookRequest<'_>) -> Result<(), Refusal> {
        let is_looked_at = self.origins().any(|it| matches!(it, Origin::Pointer(_)));
        if request.body.is_empty() || self.data == DataRule::Body || !is_looked_at {
            return Ok(());
        }
        let read = || -> Result<(), Fault> {
            let mut reader = Reader::new(request.body)?;
            reader.skip()?;
            reader.finish()
        };
        read().map_err(|fault| Refusal::new(fault.kind.reason(), format!("the body: {fault}")))
    }

    /// Looks up all that is taken from the body, in one pass over it.
    fn look_up<'r>(&self, request: &WebhookRequest<'r>) -> Result<Seen<'_, 'r>, Refusal> {
        let pointers = self.origins().filter_map(|it| match it {
            Origin::Pointer(pointer) if !request.body.is_empty() => Some(pointer),
            _ => None,
        });
        let body = Lookups::of(request.body, pointers);
        let body = body.map_err(|fault| Refusal::new(fault.kind.reason(), format!("the body: {fault}")))?;
        Ok(Seen { request: *request, body })
    }

    /// The body as data, without what is left out.
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

    /// The members that the request has, as an object.
    fn members(&self, seen: &Seen<'_, '_>) -> Result<Vec<u8>, Refusal> {
        let mut out = vec![b'{'];
        for (name, origin) in &self.members {
            let Some(value) = origin.find(seen)? else { continue };
            if out.len() > 1 {
                out.push(b',');
            }
            write_string(&mut out, name);
            out.push(b':');
            match value {
                Located::Header(text) => write_string(&mut out, text),
                Located::Body(found) => out.extend_from_slice(found.raw),
            }
        }
        out.push(b'}');
        Ok(out)
    }

    fn external_id(&self, seen: &Seen<'_, '_>) -> Result<String, Refusal> {
        let part = |origin: &Origin| origin.text(seen, "the external id");
        let parts = self.external_id.iter().map(part).collect::<Result<Vec<_>, _>>()?;
        let before = parts.iter().zip(&self.external_id).take(parts.len().saturating_sub(1));
        // Two events could have one id: `a:b` and `c`, `a` and `b:c`.
        if let Some((_, origin)) = before.into_iter().find(|(part, _)| part.contains(':')) {
            let detail =
                format!("{origin} must have no colon, which parts it from the rest of the external id");
            return Err(Refusal::new(Reason::InvalidId, detail));
        }
        Ok(parts.join(":"))
    }

    fn event_type(&self, seen: &Seen<'_, '_>) -> Result<CommandName, Refusal> {
        let Some(origin) = &self.event_type_suffix else { return Ok(self.event_type.clone()) };
        let suffix = origin.text(seen, "the event's type")?;
        let name = CommandName::event_type(&format!("{}.{suffix}", self.event_type));
        name.map_err(|invalid| Refusal::new(Reason::InvalidName, format!("{origin}: {invalid}")))
    }

    /// When it happened, where the request says so in a way that is known.
    fn timestamp(&self, seen: &Seen<'_, '_>) -> Result<Option<String>, Refusal> {
        let Some(value) = self.timestamp.as_ref().map(|it| it.find(seen)).transpose()?.flatten() else {
            return Ok(None);
        };
        let Some(text) = value.text() else { return Ok(None) };
        let seconds = text.parse::<i64>().ok().and_then(|it| it.checked_mul(1000));
        let written = seconds.map_or(text, |millis| Timestamp(millis).to_string());
        Ok(Some(written).filter(|it| Timestamp::parse(it).is_some()))
    }
}

/// A value of a request.
enum Located<'a> {
    Header(&'a str),
    Body(Found<'a>),
}

impl Located<'_> {
    /// Text, or a whole number as text.
    fn text(&self) -> Option<String> {
        match self {
            Self::Header(text) => Some((*text).to_owned()),
            Self::Body(found) => found.text().or_else(|| found.whole_number()),
        }
    }
}

/// A request, and what was looked up in its body.
struct Seen<'p, 'r> {
    request: WebhookRequest<'r>,
    body: Lookups<'p, 'r>,
}

impl Origin {
    fn find<'r>(&self, seen: &Seen<'_, 'r>) -> Result<Option<Located<'r>>, Refusal> {
        match self {
            Self::Header(name) => Ok(seen.request.header(name)?.map(Located::Header)),
            Self::Pointer(pointer) => Ok(seen.body.at(pointer).map(Located::Body)),
        }
    }

    /// A value that must be there, and not empty.
    fn text(&self, seen: &Seen<'_, '_>, what: &str) -> Result<String, Refusal> {
        let text = self.find(seen)?.and_then(|it| it.text()).filter(|it| !it.is_empty());
        let missing = || format!("{what} is expected in {self}, as text or a whole number");
        text.ok_or_else(|| Refusal::new(Reason::Malformed, missing()))
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
