//! How a route orders its messages, as it is registered and as it is used.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::json::Pointer;
use crate::name::{CommandName, QueueName};

/// How the messages of a route are ordered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Order {
    /// Whether they are; as the platform has it when not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Where in the payload the entity is named; without it by the CloudEvents extension `partitionkey`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity: Option<Pointer>,
    /// Where in the payload the number is; without it in the CloudEvents extension `sequence`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<Pointer>,
    /// Whether a message without a number takes its timestamp in milliseconds as one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timestamp_as_number: bool,
    /// What is done with a message that is not in order; as the platform has it when not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// How long an entity is remembered after it last went on; as the platform has it when not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
    /// Routes of one target that name the same scope count together: the messages of an entity are often of several
    /// types. A route without one counts alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<QueueName>,
    /// Types after which an entity is closed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completion: Vec<CommandName>,
    /// How long a message waits for those before it, in the mode `reorder`.
    #[serde(default = "wait_default")]
    pub wait_seconds: u32,
    /// How many messages of an entity wait at most, in the mode `reorder`.
    #[serde(default = "waiting_default")]
    pub waiting_max: u32,
    /// What becomes of an entity's later messages when one fails for good.
    #[serde(default)]
    pub on_failure: OnFailure,
}

/// What is done with a message that is not in order (ORD-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Mode {
    /// A late one is processed, warned of and counted.
    Lenient,
    /// A late one is recorded and not delivered.
    Skip,
    /// A late one is refused.
    Strict,
    /// One ahead of a gap waits for a while; a late one is refused.
    Reorder,
}

impl Mode {
    /// Whether one message of an entity is handed out at a time, lowest first.
    pub fn is_one_at_a_time(self) -> bool {
        matches!(self, Self::Strict | Self::Reorder)
    }
}

/// What becomes of an entity's later messages when one fails for good (ORD-7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum OnFailure {
    /// They go on.
    #[default]
    Continue,
    /// They queue behind it, until it is mended or skipped.
    Park,
}

/// What holds for routes that do not say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderDefaults {
    /// `ENABLE_SEQUENCE_VALIDATION`: whether messages are ordered at all.
    pub enabled: bool,
    /// `STRICT_ORDERING`: whether late ones are refused.
    pub strict: bool,
    /// `SEQUENCE_TTL_HOURS`: how long an entity is remembered.
    pub ttl: Duration,
}

impl Default for OrderDefaults {
    fn default() -> Self {
        Self { enabled: true, strict: false, ttl: bounds::ORDER_TTL }
    }
}

/// How messages of an entity are judged, once all is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// What is done with one that is not in order.
    pub mode: Mode,
    /// How long an entity is remembered after it last went on.
    #[serde(rename = "ttl_seconds", with = "seconds")]
    pub ttl: Duration,
    /// How long a message waits for those before it.
    #[serde(rename = "wait_seconds", with = "seconds")]
    pub wait: Duration,
    /// How many messages of an entity wait at most.
    pub waiting_max: usize,
    /// What becomes of later messages when one fails for good.
    pub on_failure: OnFailure,
}

/// Durations as they are stored.
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

impl Order {
    /// By these pointers, with all else as the platform has it.
    pub fn by(entity: Pointer, number: Pointer) -> Self {
        Self { entity: Some(entity), number: Some(number), ..Self::by_extensions() }
    }

    /// By the extensions of CloudEvents, with all else as the platform has it.
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

    /// The rules that it comes to; none if messages are not ordered.
    pub fn rules(&self, defaults: &OrderDefaults) -> Option<Rules> {
        let mode = self.mode.unwrap_or(if defaults.strict { Mode::Strict } else { Mode::Lenient });
        let seconds = |it: u32| Duration::from_secs(u64::from(it));
        self.enabled.unwrap_or(defaults.enabled).then(|| Rules {
            mode,
            ttl: self.ttl_seconds.map_or(defaults.ttl, seconds),
            wait: seconds(self.wait_seconds),
            waiting_max: usize::try_from(self.waiting_max).unwrap_or(usize::MAX),
            on_failure: self.on_failure,
        })
    }

    /// Whether routes with these two may count together: they do not, or judge in one way.
    pub fn counts_with(&self, other: &Self) -> bool {
        let judged = |it: &Self| (it.enabled, it.mode, it.ttl_seconds, it.on_failure);
        self.scope != other.scope || judged(self) == judged(other)
    }

    /// Whether an entity is closed after a message of this type.
    pub fn completes(&self, name: &CommandName) -> bool {
        self.completion.contains(name)
    }

    /// What is wrong with it, if anything.
    pub fn problem(&self) -> Option<String> {
        let within = |what: &str, value: u32, most: u32| {
            (!(1..=most).contains(&value)).then(|| format!("order.{what} is {value}, not 1 to {most}"))
        };
        let ttl_max = u32::try_from(bounds::ORDER_TTL_MAX.as_secs()).unwrap_or(u32::MAX);
        let waiting_max = u32::try_from(bounds::ORDER_WAITING_MAX).unwrap_or(u32::MAX);
        let is_long = |it: &Pointer| it.to_string().len() > bounds::POINTER_BYTES_MAX;
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
            let why = "only there one message of an entity is handed out at a time";
            // What the platform has where nothing is said is each node's own setting, and may change with every start.
            let how = "and order.mode must say so, whatever the platform's default is";
            return Some(format!("order.on_failure park is for the modes strict and reorder: {why}, {how}"));
        }
        let ttl = self.ttl_seconds.and_then(|it| within("ttl_seconds", it, ttl_max));
        ttl.or_else(|| within("wait_seconds", self.wait_seconds, bounds::ORDER_WAIT_SECONDS_MAX))
            .or_else(|| within("waiting_max", self.waiting_max, waiting_max))
    }
}
