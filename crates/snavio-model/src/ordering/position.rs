//! Reads the position of a message in its entity from the payload or the extensions, never through a float.

use serde::{Deserialize, Serialize};

use super::config::Order;
use crate::bounds::ENTITY_BYTES_MAX;
use crate::cloudevents::kept;
use crate::json::{Fault, Found, Kind, Lookups, Pointer};
use crate::message::Message;
use crate::refusal::{Reason, Refusal};
use crate::time::Timestamp;

/// Entity and number of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The entity, for example an order, a build, an account. A whole number equals its text.
    pub entity: String,
    /// The number within the entity, from zero.
    pub number: i64,
    pub kind: NumberKind,
}

/// The unit of a number. All numbers of an entity are of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NumberKind {
    /// A count of the entity's messages.
    Sequence,
    /// Milliseconds since 1970.
    Time,
}

impl NumberKind {
    /// The number in stores; it is never reused for another kind.
    pub fn number(self) -> i16 {
        match self {
            Self::Sequence => 0,
            Self::Time => 1,
        }
    }

    /// Reads the value of [`NumberKind::number`].
    pub fn stored(number: i16) -> Option<Self> {
        match number {
            0 => Some(Self::Sequence),
            1 => Some(Self::Time),
            _ => None,
        }
    }
}

/// Values of a message at all pointers of several orderings. One pass over the payload and one over the
/// metadata find them all, because an event may have a thousand destinations with different pointers (QUA-1).
pub(super) struct Marks<'o, 'm> {
    message: &'m Message,
    payload: Result<Lookups<'o, 'm>, Fault>,
    extensions: Result<Extensions<'m>, Fault>,
}

/// The CloudEvents extensions that determine order.
#[derive(Debug, Clone, Copy, Default)]
struct Extensions<'m> {
    partition_key: Option<Found<'m>>,
    sequence: Option<Found<'m>>,
}

impl<'o, 'm> Marks<'o, 'm> {
    pub(super) fn of(message: &'m Message, orders: impl Iterator<Item = &'o Order> + Clone) -> Self {
        let pointers = || orders.clone().flat_map(|order| [&order.entity, &order.number]);
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
        let Some(metadata) = message.event.as_ref().and_then(|event| event.metadata.as_ref()) else {
            return Ok(Self::default());
        };
        let names = [PARTITION_KEY, SEQUENCE].map(kept::pointer);
        let found = Lookups::of(metadata.as_bytes(), names.iter().flatten())?;
        let [partition_key, sequence] = names.each_ref().map(|name| found.at(name.as_ref()?));
        Ok(Self { partition_key, sequence })
    }
}

const PARTITION_KEY: &str = "partitionkey";
const SEQUENCE: &str = "sequence";

impl Order {
    /// The position of a message; `None` if it passes unordered. Refuses an invalid number (ORD-1).
    pub(super) fn position(&self, marks: &Marks<'_, '_>) -> Result<Option<Position>, Refusal> {
        let message = marks.message;
        let Some(entity) = self.entity_in(marks)? else { return Ok(None) };
        let numbered = find_value(marks, &self.number, |extensions| extensions.sequence)?;
        if let Some(found) = numbered.filter(|value| value.kind != Kind::Null) {
            let number = parse_number(&found).ok_or_else(|| self.invalid_number())?;
            return Ok(Some(Position { entity, number, kind: NumberKind::Sequence }));
        }
        let millis = || sent_at(message).map(|at| at.0).filter(|millis| *millis >= 0);
        let number = self.timestamp_as_number.then(millis).flatten();
        Ok(number.map(|number| Position { entity, number, kind: NumberKind::Time }))
    }

    fn entity_in(&self, marks: &Marks<'_, '_>) -> Result<Option<String>, Refusal> {
        let Some(found) = find_value(marks, &self.entity, |extensions| extensions.partition_key)? else {
            return Ok(None);
        };
        let entity = found.text().or_else(|| found.whole_number());
        if entity.as_ref().is_some_and(|entity| entity.len() > ENTITY_BYTES_MAX) {
            let place = describe_place(&self.entity, PARTITION_KEY);
            let detail = format!("the entity in {place} must be at most {ENTITY_BYTES_MAX} bytes");
            return Err(Refusal::new(Reason::Malformed, detail));
        }
        Ok(entity)
    }

    fn invalid_number(&self) -> Refusal {
        let place = describe_place(&self.number, SEQUENCE);
        let detail = format!("the number in {place} must be whole, 0 to {}, or the same as text", i64::MAX);
        Refusal::new(Reason::InvalidSequence, detail)
    }
}

/// Finds the value at a pointer into the payload, or else the value of an extension.
fn find_value<'m>(
    marks: &Marks<'_, 'm>,
    pointer: &Option<Pointer>,
    extension: fn(&Extensions<'m>) -> Option<Found<'m>>,
) -> Result<Option<Found<'m>>, Refusal> {
    let found = match pointer {
        Some(pointer) => marks.payload.as_ref().map(|values| values.at(pointer)),
        None => marks.extensions.as_ref().map(extension),
    };
    found.map_err(|fault| Refusal::from(*fault))
}

fn describe_place(pointer: &Option<Pointer>, extension: &str) -> String {
    match pointer {
        Some(pointer) => format!("the payload at {pointer}"),
        None => format!("the extension {extension}"),
    }
}

/// Parses an exact whole number from zero on, or digits in text. Producers may pad the digits with leading
/// zeros.
fn parse_number(found: &Found<'_>) -> Option<i64> {
    let digits = found.text().or_else(|| found.whole_number())?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() { Some(0) } else { significant.parse().ok() }
}

/// The time at which the event happened, or the command was signed, as the message states it.
fn sent_at(message: &Message) -> Option<Timestamp> {
    Timestamp::parse(message.event.as_ref().map_or(&message.sent_at, |event| &event.timestamp))
}
