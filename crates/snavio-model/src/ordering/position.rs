//! Where a message stands in the order of its entity: read from its payload or its extensions, and never through a float.

use serde::{Deserialize, Serialize};

use super::config::Order;
use crate::bounds::ENTITY_BYTES_MAX;
use crate::cloudevents::kept;
use crate::json::{Fault, Found, Kind, Lookups, Pointer};
use crate::message::Message;
use crate::refusal::{Reason, Refusal};
use crate::time::Timestamp;

/// Where a message stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// What is ordered: an order, a build, an account. A whole number is the same as its text.
    pub entity: String,
    /// Its number there, from zero.
    pub number: i64,
    /// What kind of number it is.
    pub kind: NumberKind,
}

/// What a number counts. An entity has numbers of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NumberKind {
    /// The messages of the entity.
    Sequence,
    /// Milliseconds since 1970.
    Time,
}

impl NumberKind {
    /// The number in stores; never used for anything else.
    pub fn number(self) -> i16 {
        match self {
            Self::Sequence => 0,
            Self::Time => 1,
        }
    }

    /// Takes back what [`NumberKind::number`] gave.
    pub fn stored(number: i16) -> Option<Self> {
        match number {
            0 => Some(Self::Sequence),
            1 => Some(Self::Time),
            _ => None,
        }
    }
}

/// What orders go by in one message: looked up for all of them in one pass over its payload and one over its metadata, since
/// an event may have a thousand destinations that each look somewhere else (QUA-1).
pub(super) struct Marks<'o, 'm> {
    message: &'m Message,
    payload: Result<Lookups<'o, 'm>, Fault>,
    extensions: Result<Extensions<'m>, Fault>,
}

/// The extensions of CloudEvents that messages are ordered by.
#[derive(Debug, Clone, Copy, Default)]
struct Extensions<'m> {
    partition_key: Option<Found<'m>>,
    sequence: Option<Found<'m>>,
}

impl<'o, 'm> Marks<'o, 'm> {
    pub(super) fn of(message: &'m Message, orders: impl Iterator<Item = &'o Order> + Clone) -> Self {
        let pointers = || orders.clone().flat_map(|it| [&it.entity, &it.number]);
        let by_extensions = pointers().any(Option::is_none);
        Self {
            message,
            payload: Lookups::of(&message.payload, pointers().flatten()),
            extensions: if by_extensions { Extensions::of(message) } else { Ok(Extensions::default()) },
        }
    }
}

impl<'m> Extensions<'m> {
    fn of(message: &'m Message) -> Result<Self, Fault> {
        let Some(metadata) = message.event.as_ref().and_then(|it| it.metadata.as_ref()) else {
            return Ok(Self::default());
        };
        let names = [PARTITION_KEY, SEQUENCE].map(kept::pointer);
        let found = Lookups::of(metadata.as_bytes(), names.iter().flatten())?;
        let [partition_key, sequence] = names.each_ref().map(|it| found.at(it.as_ref()?));
        Ok(Self { partition_key, sequence })
    }
}

const PARTITION_KEY: &str = "partitionkey";
const SEQUENCE: &str = "sequence";

impl Order {
    /// Where a message stands; nothing if it passes unordered (ORD-1). A number that is none is refused.
    pub(super) fn position(&self, marks: &Marks<'_, '_>) -> Result<Option<Position>, Refusal> {
        let message = marks.message;
        let Some(entity) = self.entity_in(marks)? else { return Ok(None) };
        let numbered = find(marks, &self.number, |it| it.sequence)?;
        if let Some(found) = numbered.filter(|it| it.kind != Kind::Null) {
            let number = number(&found).ok_or_else(|| self.no_number())?;
            return Ok(Some(Position { entity, number, kind: NumberKind::Sequence }));
        }
        let millis = || sent_at(message).map(|at| at.0).filter(|millis| *millis >= 0);
        let number = self.timestamp_as_number.then(millis).flatten();
        Ok(number.map(|number| Position { entity, number, kind: NumberKind::Time }))
    }

    fn entity_in(&self, marks: &Marks<'_, '_>) -> Result<Option<String>, Refusal> {
        let Some(found) = find(marks, &self.entity, |it| it.partition_key)? else { return Ok(None) };
        let entity = found.text().or_else(|| found.whole_number());
        if entity.as_ref().is_some_and(|it| it.len() > ENTITY_BYTES_MAX) {
            let place = place(&self.entity, PARTITION_KEY);
            let detail = format!("the entity in {place} must be at most {ENTITY_BYTES_MAX} bytes");
            return Err(Refusal::new(Reason::Malformed, detail));
        }
        Ok(entity)
    }

    fn no_number(&self) -> Refusal {
        let place = place(&self.number, SEQUENCE);
        let detail = format!("the number in {place} must be whole, 0 to {}, or the same as text", i64::MAX);
        Refusal::new(Reason::InvalidSequence, detail)
    }
}

/// A value of the payload by its pointer, or else of an extension.
fn find<'m>(
    marks: &Marks<'_, 'm>,
    pointer: &Option<Pointer>,
    extension: fn(&Extensions<'m>) -> Option<Found<'m>>,
) -> Result<Option<Found<'m>>, Refusal> {
    let found = match pointer {
        Some(pointer) => marks.payload.as_ref().map(|it| it.at(pointer)),
        None => marks.extensions.as_ref().map(extension),
    };
    found.map_err(|fault| Refusal::from(*fault))
}

fn place(pointer: &Option<Pointer>, extension: &str) -> String {
    match pointer {
        Some(pointer) => format!("the payload at {pointer}"),
        None => format!("the extension {extension}"),
    }
}

/// A whole number from zero on, by its exact value, or as digits in text, with zeros in front as producers pad them.
fn number(found: &Found<'_>) -> Option<i64> {
    let text = found.text();
    let is_digits = |it: &String| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit());
    let digits = text.or_else(|| found.whole_number()).filter(is_digits)?;
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() { Some(0) } else { significant.parse().ok() }
}

/// When the message says that it happened, or was signed.
fn sent_at(message: &Message) -> Option<Timestamp> {
    Timestamp::parse(message.event.as_ref().map_or(&message.sent_at, |event| &event.timestamp))
}
