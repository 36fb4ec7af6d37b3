//! Names of tenants, services, commands, key versions and queues (MSG-13).
//!
//! A value of a name type proves that its text was checked. Names are cheap to clone, because every message
//! carries several.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A text that is not a valid name of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be {rule}")]
pub struct InvalidName {
    /// The kind of name, for example `a queue's name`.
    pub what: &'static str,
    /// The rule that the text breaks.
    pub rule: &'static str,
}

const LOWER: &str = "1 to 63 of a-z 0-9 . _ - beginning with a letter or digit";
const MIXED: &str = "1 to 128 of A-Z a-z 0-9 . _ - beginning with a letter or digit";
const GRANTED: &str = "a command's name, or * for all";
const VERSION: &str = "major.minor, whole numbers of up to 5 digits without leading zeros";
const QUEUE: &str = "1 to 80 of A-Z a-z 0-9 _ -";
const FULL: &str = "tenant/service, each 1 to 63 of a-z 0-9 . _ - beginning with a letter or digit";
const TARGET: &str =
    "tenant/service or service, each 1 to 63 of a-z 0-9 . _ - beginning with a letter or digit";

fn is_lower(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.as_bytes()[0].is_ascii_alphanumeric()
        && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'))
}

fn is_mixed(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.as_bytes()[0].is_ascii_alphanumeric()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

fn is_queue(text: &str) -> bool {
    (1..=80).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

fn is_version(text: &str) -> bool {
    let is_number = |text: &str| {
        let is_plain = text == "0" || !text.starts_with('0');
        (1..=5).contains(&text.len()) && is_plain && text.bytes().all(|b| b.is_ascii_digit())
    };
    text.split_once('.').is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $rule:expr, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String))]
        pub struct $type(Arc<str>);

        impl $type {
            /// Checks the text.
            pub fn new(text: &str) -> Result<Self, InvalidName> {
                if $check(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(InvalidName { what: $what, rule: $rule })
                }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $type {
            type Error = InvalidName;
            fn try_from(text: String) -> Result<Self, InvalidName> {
                Self::new(&text)
            }
        }

        impl std::str::FromStr for $type {
            type Err = InvalidName;
            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0.as_ref().to_owned()
            }
        }

        impl std::borrow::Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name!(
    /// The owner of services.
    TenantName, "a tenant's name", LOWER, is_lower
);
name!(
    /// A command's name within its target, or an event type within its publisher.
    CommandName, "a command's name", MIXED, is_mixed
);
name!(
    /// The version of an event's type, for example `1.0` (MSG-5).
    EventVersion, "a version", VERSION, is_version
);
name!(
    /// The name of one version of a service's HMAC key, for example `hmac-v1`.
    KeyVersion, "a key version", LOWER, is_lower
);
name!(
    /// A queue's name within its tenant, as SQS allows it.
    QueueName, "a queue's name", QUEUE, is_queue
);
name!(
    /// A consumer's name in its own database, where it records completed work (CLM-10).
    ConsumerName, "a consumer's name", LOWER, is_lower
);
name!(
    /// An adapter's name within its tenant (MSG-7).
    AdapterName, "an adapter's name", LOWER, is_lower
);
name!(
    /// A service by its full name, `tenant/service`: a source or a target of messages.
    ServiceName, "a service's full name", FULL, is_full
);

name!(
    /// A target as a message states it, `tenant/service` or `service` alone; signed as sent (MSG-1).
    /// [`ServiceName::resolve`] returns the service.
    TargetText, "a target", TARGET, is_target
);

name!(
    /// The commands that a grant covers: one name, or `*` for all commands of the target that such a grant
    /// can cover.
    GrantedName, "a grant's name", GRANTED, is_granted
);

fn is_granted(text: &str) -> bool {
    text == GrantedName::ALL || is_mixed(text)
}

impl GrantedName {
    /// The text that stands for all commands.
    pub const ALL: &str = "*";

    /// Whether the grant covers all commands.
    pub fn is_all(&self) -> bool {
        &*self.0 == Self::ALL
    }
}

impl From<CommandName> for GrantedName {
    fn from(name: CommandName) -> Self {
        Self(name.0)
    }
}

impl CommandName {
    /// Checks the text of an event type.
    pub fn event_type(text: &str) -> Result<Self, InvalidName> {
        Self::new(text).map_err(|invalid| InvalidName { what: "an event type", ..invalid })
    }
}

impl Default for EventVersion {
    fn default() -> Self {
        Self("1.0".into())
    }
}

fn is_target(text: &str) -> bool {
    is_full(text) || is_lower(text)
}

fn is_full(text: &str) -> bool {
    text.split_once('/').is_some_and(|(tenant, service)| is_lower(tenant) && is_lower(service))
}

impl ServiceName {
    /// The service `service` of `tenant`.
    pub fn of(tenant: &TenantName, service: &str) -> Result<Self, InvalidName> {
        if is_lower(service) {
            Ok(Self(format!("{tenant}/{service}").into()))
        } else {
            Err(InvalidName { what: "a service's name", rule: LOWER })
        }
    }

    /// Resolves a target as a message states it: in full, or as a service of the sender's own tenant (MSG-1).
    pub fn resolve(text: &str, own_tenant: &TenantName) -> Result<Self, InvalidName> {
        if text.contains('/') { Self::new(text) } else { Self::of(own_tenant, text) }
    }

    /// The tenant part.
    pub fn tenant(&self) -> &str {
        self.0.split_once('/').map_or("", |(tenant, _)| tenant)
    }

    /// The part after the tenant.
    pub fn service(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, service)| service)
    }
}

/// A queue and the tenant it belongs to: `tenant/queue` as text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueKey(Arc<str>);

impl QueueKey {
    /// The queue `queue` of `tenant`.
    pub fn new(tenant: &str, queue: &QueueName) -> Self {
        Self(format!("{tenant}/{queue}").into())
    }

    /// Reads the text of [`QueueKey::as_str`].
    pub fn stored(text: &str) -> Self {
        Self(text.into())
    }

    /// The text `tenant/queue`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tenant part.
    pub fn tenant(&self) -> &str {
        self.0.split_once('/').map_or("", |(tenant, _)| tenant)
    }

    /// The queue part.
    pub fn queue(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, queue)| queue)
    }
}

impl fmt::Display for QueueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether the text looks like the name of a member. Answers repeat only such texts: they must not echo
/// arbitrary input.
pub fn is_short_identifier(text: &str) -> bool {
    text.len() <= crate::bounds::NAMED_MEMBER_BYTES_MAX
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MSG-13
    #[test]
    fn name_rules_are_enforced() {
        let long = "a".repeat(64);
        for (text, lower, mixed, queue) in [
            ("acme", true, true, true),
            ("0.a_b-c", true, true, false),
            ("Acme", false, true, true),
            ("-acme", false, false, true),
            (".a", false, false, false),
            ("", false, false, false),
            ("a b", false, false, false),
            ("a\n", false, false, false),
            ("é", false, false, false),
            (long.as_str(), false, true, true),
        ] {
            assert_eq!(TenantName::new(text).is_ok(), lower, "tenant {text:?}");
            assert_eq!(KeyVersion::new(text).is_ok(), lower, "key {text:?}");
            assert_eq!(CommandName::new(text).is_ok(), mixed, "command {text:?}");
            assert_eq!(QueueName::new(text).is_ok(), queue, "queue {text:?}");
        }
        assert!(CommandName::new(&"x".repeat(128)).is_ok());
        assert!(CommandName::new(&"x".repeat(129)).is_err());
        assert!(QueueName::new(&"x".repeat(81)).is_err());
    }

    /// MSG-5
    #[test]
    fn version_is_two_whole_numbers() {
        for text in ["1.0", "0.0", "12.345", "99999.99999"] {
            assert!(EventVersion::new(text).is_ok(), "{text:?}");
        }
        for text in ["", "1", "1.", ".1", "1.0.0", "01.0", "1.00", "-1.0", "1.a", "1 .0", "100000.0", "v1.0"]
        {
            assert!(EventVersion::new(text).is_err(), "{text:?}");
        }
        assert_eq!(EventVersion::default().as_str(), "1.0");
    }

    /// MSG-1
    #[test]
    fn bare_target_resolves_in_senders_tenant() {
        let acme = TenantName::new("acme").unwrap();
        for (text, full) in [
            ("bot", Some("acme/bot")),
            ("other/bot", Some("other/bot")),
            ("a/b/c", None),
            ("/bot", None),
            ("acme/", None),
            ("", None),
        ] {
            let resolved = ServiceName::resolve(text, &acme).ok();
            assert_eq!(resolved.as_ref().map(ServiceName::as_str), full, "{text:?}");
            assert_eq!(TargetText::new(text).is_ok(), full.is_some(), "{text:?}");
        }
    }
}
