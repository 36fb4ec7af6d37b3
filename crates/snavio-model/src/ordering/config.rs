//! How a route orders its messages: the registered settings and the rules that follow from them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::json::Pointer;
use crate::name::{CommandName, QueueName};

/// How a route orders its messages (ORD-1). The platform's setting applies to members that the route leaves
/// out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Order {
    /// Whether the route orders its messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Pointer to the entity in the payload. Without it, the entity is the CloudEvents extension
    /// `partitionkey`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity: Option<Pointer>,
    /// Pointer to the sequence number in the payload. Without it, the number is the CloudEvents extension
    /// `sequence`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<Pointer>,
    /// Whether a message without a number is numbered by its timestamp in milliseconds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timestamp_as_number: bool,
    /// The treatment of a message that is late or ahead of a gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Time for which the gateway keeps the state of an entity after its last advance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
    /// Routes of one target that name the same scope count together, because the messages of an entity often
    /// have several types. A route without a scope counts alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<QueueName>,
    /// Message types that close an entity.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completion: Vec<CommandName>,
    /// Time for which a message waits for a gap to fill, in the mode `reorder`.
    #[serde(default = "wait_default")]
    pub wait_seconds: u32,
    /// Most messages of one entity that wait, in the mode `reorder`.
    #[serde(default = "waiting_default")]
    pub waiting_max: u32,
    /// The treatment of an entity's later messages after one fails for good.
    #[serde(default)]
    pub on_failure: OnFailure,
}

/// The treatment of a message that is late or ahead of a gap (ORD-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Mode {
    /// A late message is delivered; the gateway warns and counts it.
    Lenient,
    /// A late message is recorded and not delivered.
    Skip,
    /// A late message is refused.
    Strict,
    /// A message ahead of a gap waits for a limited time. A late message is refused.
    Reorder,
}

impl Mode {
    /// Whether only one delivery per ordering key is leased at a time, lowest number first.
    pub fn is_one_at_a_time(self) -> bool {
        matches!(self, Self::Strict | Self::Reorder)
    }
}

/// The treatment of an entity's later messages after one fails for good (ORD-7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum OnFailure {
    /// Later messages are delivered.
    #[default]
    Continue,
    /// Later messages are parked behind the failed one, until it is fixed or skipped.
    Park,
}

/// The platform's settings for routes that leave them out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderDefaults {
    /// `ENABLE_SEQUENCE_VALIDATION`: whether routes order messages at all.
    pub enabled: bool,
    /// `STRICT_ORDERING`: whether late messages are refused.
    pub strict: bool,
    /// `SEQUENCE_TTL_HOURS`: the time for which the state of an entity is kept.
    pub ttl: Duration,
}

impl Default for OrderDefaults {
    fn default() -> Self {
        Self { enabled: true, strict: false, ttl: bounds::ORDER_TTL }
    }
}

/// The rules for the messages of an entity: a route's settings combined with the platform's defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    pub mode: Mode,
    /// Time for which the state of an entity is kept after its last advance.
    #[serde(rename = "ttl_seconds", with = "seconds")]
    pub ttl: Duration,
    /// Time for which a message waits for a gap to fill.
    #[serde(rename = "wait_seconds", with = "seconds")]
    pub wait: Duration,
    /// Most messages of one entity that wait.
    pub waiting_max: usize,
    pub on_failure: OnFailure,
}

/// Stores durations as whole seconds.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(duration.as_secs())
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_secs)
    }
}

fn wait_default() -> u32 {
    30
}

fn waiting_default() -> u32 {
    64
}

fn from_seconds(seconds: u32) -> Duration {
    Duration::from_secs(u64::from(seconds))
}

/// The problem of a setting that is not within 1 to `most`.
fn range_problem(setting: &str, value: u32, most: u32) -> Option<String> {
    (!(1..=most).contains(&value)).then(|| format!("order.{setting} is {value}, not 1 to {most}"))
}

impl Order {
    /// Settings with these pointers and otherwise the platform's defaults.
    pub fn by(entity: Pointer, number: Pointer) -> Self {
        Self { entity: Some(entity), number: Some(number), ..Self::by_extensions() }
    }

    /// Settings with the CloudEvents extensions and otherwise the platform's defaults.
    pub fn by_extensions() -> Self {
        Self {
            enabled: None,
            entity: None,
            number: None,
            timestamp_as_number: false,
            mode: None,
            ttl_seconds: None,
            scope: None,
            completion: Vec::new(),
            wait_seconds: wait_default(),
            waiting_max: waiting_default(),
            on_failure: OnFailure::default(),
        }
    }

    /// Combines the settings with the platform's defaults; `None` if the route does not order messages.
    pub fn rules(&self, defaults: &OrderDefaults) -> Option<Rules> {
        let mode = self.mode.unwrap_or(if defaults.strict { Mode::Strict } else { Mode::Lenient });
        self.enabled.unwrap_or(defaults.enabled).then(|| Rules {
            mode,
            ttl: self.ttl_seconds.map_or(defaults.ttl, from_seconds),
            wait: from_seconds(self.wait_seconds),
            waiting_max: usize::try_from(self.waiting_max).unwrap_or(usize::MAX),
            on_failure: self.on_failure,
        })
    }

    /// Whether two routes with these settings may share a scope: their scopes differ, or their judgements
    /// agree.
    pub fn counts_with(&self, other: &Self) -> bool {
        let judged = |order: &Self| (order.enabled, order.mode, order.ttl_seconds, order.on_failure);
        self.scope != other.scope || judged(self) == judged(other)
    }

    /// Whether a message of this type closes the entity.
    pub fn completes(&self, name: &CommandName) -> bool {
        self.completion.contains(name)
    }

    /// The first problem of the settings, if any.
    pub fn problem(&self) -> Option<String> {
        let ttl_max = u32::try_from(bounds::ORDER_TTL_MAX.as_secs()).unwrap_or(u32::MAX);
        let waiting_max = u32::try_from(bounds::ORDER_WAITING_MAX).unwrap_or(u32::MAX);
        let is_long = |pointer: &Pointer| pointer.to_string().len() > bounds::POINTER_BYTES_MAX;
        if self.entity.iter().chain(&self.number).any(is_long) {
            return Some(format!("order: a pointer has at most {} bytes", bounds::POINTER_BYTES_MAX));
        }
        if self.completion.len() > bounds::ORDER_COMPLETIONS_MAX {
            return Some(format!("order.completion has at most {} types", bounds::ORDER_COMPLETIONS_MAX));
        }
        if self.timestamp_as_number && self.mode == Some(Mode::Reorder) {
            return Some(
                "order.timestamp_as_number is not for the mode reorder: every message would wait".into(),
            );
        }
        let is_one_at_a_time = self.mode.is_some_and(Mode::is_one_at_a_time);
        if self.on_failure == OnFailure::Park && !is_one_at_a_time {
            let why = "only these lease one message of an entity at a time";
            // Each node has its own default mode, which may change with every start.
            let how = "and the route must set order.mode itself";
            return Some(format!("order.on_failure park needs the mode strict or reorder: {why}, {how}"));
        }
        let ttl = self.ttl_seconds.and_then(|seconds| range_problem("ttl_seconds", seconds, ttl_max));
        ttl.or_else(|| range_problem("wait_seconds", self.wait_seconds, bounds::ORDER_WAIT_SECONDS_MAX))
            .or_else(|| range_problem("waiting_max", self.waiting_max, waiting_max))
    }
}
