//! Where a message stands at one destination, and the lane of its delivery there.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::config::{Mode, OnFailure, Order, OrderDefaults, Rules};
use super::position::{Marks, NumberKind};
use super::state::{EntityKey, EntityState};
use crate::json::Pointer;
use crate::message::Message;
use crate::name::QueueName;
use crate::refusal::Refusal;
use crate::registry::Route;

/// Where a message stands at one destination, and by which rules it is judged there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its entity.
    pub key: EntityKey,
    /// Its number.
    pub number: i64,
    /// What the number counts.
    pub kind: NumberKind,
    /// Whether its type closes the entity.
    pub completes: bool,
    /// The rules.
    pub rules: Rules,
}

impl Place {
    /// Where a message stands at a route; nothing if it passes unordered. A number that is none is refused (ORD-1).
    pub fn find(message: &Message, route: &Route, defaults: &OrderDefaults) -> Result<Option<Self>, Refusal> {
        let marks = Marks::of(message, ordered(route, defaults).map(|it| it.0).into_iter());
        Ok(match Self::by(&marks, message, route, defaults)? {
            Placed::At(place) => Some(place),
            Placed::Unordered | Placed::Unmarked | Placed::Unreadable => None,
        })
    }

    /// Where a message stands at each of several routes: what it says of that is read once for all of them.
    pub fn find_each<'r>(
        message: &Message,
        routes: impl Iterator<Item = &'r Route> + Clone,
        defaults: &OrderDefaults,
    ) -> Vec<Result<Placed, Refusal>> {
        let marks = Marks::of(message, routes.clone().filter_map(|it| Some(ordered(it, defaults)?.0)));
        routes.map(|route| Self::by(&marks, message, route, defaults)).collect()
    }

    fn by(
        marks: &Marks<'_, '_>,
        message: &Message,
        route: &Route,
        defaults: &OrderDefaults,
    ) -> Result<Placed, Refusal> {
        let Some((order, rules)) = ordered(route, defaults) else { return Ok(Placed::Unordered) };
        let Some(position) = order.position(marks)? else { return Ok(Placed::Unmarked) };
        Ok(Placed::At(Self {
            key: EntityKey::new(&message.tenant, route, order, &position.entity),
            number: position.number,
            kind: position.kind,
            completes: order.completes(&message.name),
            rules,
        }))
    }

    /// The lane of its delivery, where one message of an entity is handed out at a time.
    pub fn lane(&self, waits: bool) -> Option<Box<Lane>> {
        let Rules { mode, ttl, on_failure, .. } = self.rules;
        mode.is_one_at_a_time().then(|| {
            Box::new(Lane {
                key: self.key.clone(),
                number: self.number,
                kind: self.kind,
                parks: (on_failure == OnFailure::Park).then_some(ttl),
                waits,
            })
        })
    }
}

/// How a route orders its messages, if it does.
fn ordered<'r>(route: &'r Route, defaults: &OrderDefaults) -> Option<(&'r Order, Rules)> {
    let order = route.order.as_ref()?;
    Some((order, order.rules(defaults)?))
}

/// What decides which deliveries of a route are in one lane, where one message of an entity is handed out at a time: those that
/// are there are beside those that come, and not before them, once it is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lanes<'a> {
    scope: Option<&'a QueueName>,
    entity: Option<&'a Pointer>,
}

impl<'a> Lanes<'a> {
    /// The lanes of a route; nothing where its deliveries are in none.
    pub fn of(route: &'a Route, defaults: &OrderDefaults) -> Option<Self> {
        let (order, rules) = ordered(route, defaults)?;
        let is_one_at_a_time = rules.mode.is_one_at_a_time();
        is_one_at_a_time.then_some(Self { scope: order.scope.as_ref(), entity: order.entity.as_ref() })
    }
}

/// Whether a message has a place at one destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placed {
    /// Nobody orders it there.
    Unordered,
    /// The route orders, and the message has no entity or no number: it passes unordered (ORD-1).
    Unmarked,
    /// It has this one.
    At(Place),
    /// What it says of its place cannot be one: at one of several destinations that is no fault of its producer's (PIP-13).
    Unreadable,
}

impl Placed {
    /// The place, if it has one.
    pub fn place(&self) -> Option<&Place> {
        match self {
            Self::At(place) => Some(place),
            Self::Unordered | Self::Unmarked | Self::Unreadable => None,
        }
    }
}

impl From<Option<Place>> for Placed {
    fn from(place: Option<Place>) -> Self {
        place.map_or(Self::Unordered, Self::At)
    }
}

/// Deliveries of one lane are handed out one at a time, lowest number first (ORD-3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// Whose messages they are.
    pub key: EntityKey,
    /// The number of this one.
    pub number: i64,
    /// What the number counts.
    pub kind: NumberKind,
    /// Where later ones queue behind this one when it fails for good: how long their entity is remembered (ORD-7).
    pub parks: Option<Duration>,
    /// Whether it waits for those before it, and is not handed out.
    pub waits: bool,
}

impl Lane {
    /// [`Lane::parks`] in whole seconds, as stores keep it.
    pub fn parks_seconds(&self) -> Option<i64> {
        self.parks.map(|it| i64::try_from(it.as_secs()).unwrap_or(i64::MAX))
    }

    /// Takes back what [`Lane::parks_seconds`] gave.
    pub fn stored_parks(seconds: Option<i64>) -> Option<Duration> {
        seconds.map(|it| Duration::from_secs(it.unsigned_abs()))
    }

    /// The rules by which its entity is parked, if it is.
    pub fn parking_rules(&self) -> Option<Rules> {
        self.parks.map(|ttl| Rules {
            mode: Mode::Strict,
            ttl,
            wait: Duration::ZERO,
            waiting_max: 1,
            on_failure: OnFailure::Park,
        })
    }
}

/// What a store keeps of an entity: its state, and the rules that it was last judged by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntityRecord {
    /// The state.
    pub state: EntityState,
    /// The rules.
    pub rules: Rules,
}

impl EntityRecord {
    /// As one JSON text, for a store.
    pub fn to_text(&self) -> String {
        // Its members are numbers, text and lists of them: there is nothing that JSON could not say.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Takes back what [`EntityRecord::to_text`] gave; nothing of another text.
    pub fn stored(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}
