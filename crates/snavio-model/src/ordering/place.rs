//! The position of a message at one destination, and the ordering of its delivery there.

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

/// The position of a message at one destination, and the rules for it there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub key: EntityKey,
    pub number: i64,
    pub kind: NumberKind,
    /// Whether its type closes the entity.
    pub completes: bool,
    pub rules: Rules,
}

impl Place {
    /// Finds the position of a message at a route; `None` if it passes unordered. Refuses an invalid number
    /// (ORD-1).
    pub fn find(message: &Message, route: &Route, defaults: &OrderDefaults) -> Result<Option<Self>, Refusal> {
        let marks = Marks::of(message, ordered(route, defaults).map(|(order, _)| order).into_iter());
        Ok(match Self::by(&marks, message, route, defaults)? {
            Placed::At(place) => Some(place),
            Placed::Unordered | Placed::Unmarked | Placed::Unreadable => None,
        })
    }

    /// Finds the position of a message at each of several routes. It reads the message once for all of them.
    pub fn find_each<'r>(
        message: &Message,
        routes: impl Iterator<Item = &'r Route> + Clone,
        defaults: &OrderDefaults,
    ) -> Vec<Result<Placed, Refusal>> {
        let marks = Marks::of(message, routes.clone().filter_map(|route| Some(ordered(route, defaults)?.0)));
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

    /// The ordering of the delivery, if only one delivery per ordering key is leased at a time.
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

/// The ordering settings and rules of a route that orders its messages.
fn ordered<'r>(route: &'r Route, defaults: &OrderDefaults) -> Option<(&'r Order, Rules)> {
    let order = route.order.as_ref()?;
    Some((order, order.rules(defaults)?))
}

/// The settings that determine the ordering keys of a route with one leased delivery per key. After they
/// change, new deliveries do not queue behind the existing ones of the same entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lanes<'a> {
    scope: Option<&'a QueueName>,
    entity: Option<&'a Pointer>,
}

impl<'a> Lanes<'a> {
    /// The settings of a route; `None` if it leases deliveries without order.
    pub fn of(route: &'a Route, defaults: &OrderDefaults) -> Option<Self> {
        let (order, rules) = ordered(route, defaults)?;
        let is_one_at_a_time = rules.mode.is_one_at_a_time();
        is_one_at_a_time.then_some(Self { scope: order.scope.as_ref(), entity: order.entity.as_ref() })
    }
}

/// The result of a search for a message's position at one destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placed {
    /// The route does not order messages.
    Unordered,
    /// The route orders messages, but this one has no entity or no number: it passes unordered (ORD-1).
    Unmarked,
    /// The message has this position.
    At(Place),
    /// The message states an invalid entity or number. With several destinations this is not its producer's
    /// fault (PIP-13).
    Unreadable,
}

impl Placed {
    /// The position, if there is one.
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

/// The ordering of one delivery. Deliveries with the same key are leased one at a time, lowest number first
/// (ORD-3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// The ordering key.
    pub key: EntityKey,
    pub number: i64,
    pub kind: NumberKind,
    /// If later deliveries are parked when this one fails for good: the lifetime of the entity's state
    /// (ORD-7).
    pub parks: Option<Duration>,
    /// Whether it waits for a gap to fill; consumers cannot lease it meanwhile.
    pub waits: bool,
}

impl Lane {
    /// [`Lane::parks`] in whole seconds, for stores.
    pub fn parks_seconds(&self) -> Option<i64> {
        self.parks.map(|ttl| i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX))
    }

    /// Reads the value of [`Lane::parks_seconds`].
    pub fn stored_parks(seconds: Option<i64>) -> Option<Duration> {
        seconds.map(|seconds| Duration::from_secs(seconds.unsigned_abs()))
    }

    /// The rules by which the entity is parked; `None` if its route does not park.
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

/// The stored record of an entity: its state, and the rules of the last judgement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntityRecord {
    pub state: EntityState,
    pub rules: Rules,
}

impl EntityRecord {
    /// Serializes the record as JSON, for a store.
    pub fn to_text(&self) -> String {
        // All members are numbers, texts and lists of them, so this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the text of [`EntityRecord::to_text`]; `None` for any other text.
    pub fn stored(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}
