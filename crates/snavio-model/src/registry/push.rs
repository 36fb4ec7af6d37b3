//! The secret and the disabled state of a push route (DLV-1, MSG-4).
//!
//! The secret belongs to one destination and signs only the gateway's requests. It is never a key for
//! messages to the gateway, so a person with the one cannot use it as the other.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Unseal;
use super::entry::{Route, Sealed, event_type_of};
use super::key::{EntryKey, Kind};
use crate::bounds;
use crate::delivery::processing::ProcessingKind;
use crate::signature::signing::Secret;
use crate::time::Timestamp;

/// The secret that signs requests to a destination, and the previous one while receivers may still know only
/// that one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PushSecret {
    /// The route or subscription: `tenant/service:name` or `tenant/service:publisher-tenant/publisher:type`.
    pub destination: String,
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub secret: Sealed,
    pub created_at: Timestamp,
    /// The previous secret, encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub previous_secret: Option<Sealed>,
    /// Time until which requests also have a signature under the previous secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_until: Option<Timestamp>,
}

impl PushSecret {
    /// The first secret of a destination.
    pub fn new(destination: &str, secret: Sealed, now: Timestamp) -> Self {
        Self {
            destination: destination.to_owned(),
            secret,
            created_at: now,
            previous_secret: None,
            previous_until: None,
        }
    }

    /// Replaces the secret. Requests are signed under both secrets for the overlap.
    #[must_use]
    pub fn rotated(&self, secret: Sealed, overlap: Duration, now: Timestamp) -> Self {
        Self {
            previous_secret: Some(self.secret.clone()),
            previous_until: Some(now.plus(overlap)),
            ..Self::new(&self.destination, secret, now)
        }
    }

    /// The tenant that owns the destination.
    pub fn owner(&self) -> &str {
        self.destination.split('/').next().unwrap_or_default()
    }

    /// The key of its route or subscription.
    pub fn route_key(&self) -> EntryKey {
        let is_event = event_type_of(&self.destination).is_some();
        let kind = if is_event { Kind::Subscription } else { Kind::Route };
        EntryKey { kind, name: self.destination.clone() }
    }

    /// Decrypts the secrets; `None` if the current one cannot be decrypted.
    pub fn open(&self, unseal: &dyn Unseal) -> Option<LivePushSecret> {
        let previous = self.previous_secret.as_ref().zip(self.previous_until);
        Some(LivePushSecret {
            current: unseal.unseal(&self.secret)?,
            previous: previous.and_then(|(sealed, until)| Some((unseal.unseal(sealed)?, until))),
        })
    }
}

/// The decrypted secrets of a destination.
#[derive(Debug)]
pub struct LivePushSecret {
    current: Secret,
    previous: Option<(Secret, Timestamp)>,
}

impl LivePushSecret {
    /// The secrets that sign a request at this time, newest first.
    pub fn at(&self, now: Timestamp) -> impl Iterator<Item = &Secret> {
        let previous = self.previous.iter().filter(move |(_, until)| now < *until);
        [&self.current].into_iter().chain(previous.map(|(secret, _)| secret))
    }
}

/// The disabled state of a push route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Disabled {
    /// The time at which pushes were disabled.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::time::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub at: Option<Timestamp>,
    /// The note, for people.
    pub why: String,
}

impl Route {
    /// The problem of its disabled state, if any.
    pub(super) fn disabled_problem(&self) -> Option<String> {
        self.disabled.as_ref()?.problem(self.processing.kind)
    }
}

impl Disabled {
    /// The problem of the state on a route with this kind of processing.
    fn problem(&self, kind: ProcessingKind) -> Option<String> {
        if !kind.is_sent() {
            return Some("disabled is only for processing.kind push".to_owned());
        }
        let is_long = self.why.chars().count() > bounds::REASON_CHARS_MAX;
        is_long.then(|| format!("disabled.why is longer than {} characters", bounds::REASON_CHARS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The secret is the first byte of the sealed text, repeated.
    struct Clear;

    impl Unseal for Clear {
        fn unseal(&self, sealed: &Sealed) -> Option<Secret> {
            sealed.0.bytes().next().map(|byte| Secret::from_bytes([byte; 32]))
        }
    }

    fn sealed(text: &str) -> Sealed {
        Sealed(text.to_owned())
    }

    fn names(live: &LivePushSecret, now: i64) -> String {
        live.at(Timestamp(now)).map(|secret| char::from(secret.expose_bytes()[0])).collect()
    }

    /// MSG-4, DLV-1
    #[test]
    fn requests_are_signed_with_both_secrets_during_overlap() {
        let first = PushSecret::new("acme/bot:pay", sealed("a"), Timestamp(0));
        assert_eq!(names(&first.open(&Clear).unwrap(), 5), "a");
        let second = first.rotated(sealed("b"), Duration::from_secs(1), Timestamp(5));
        let live = second.open(&Clear).unwrap();
        assert_eq!((names(&live, 1004), names(&live, 1005)), ("ba".to_owned(), "b".to_owned()));
        let third = second.rotated(sealed("c"), Duration::from_secs(1), Timestamp(10));
        assert_eq!(names(&third.open(&Clear).unwrap(), 11), "cb", "at most two secrets sign");
        assert!(PushSecret::new("acme/bot:pay", sealed(""), Timestamp(0)).open(&Clear).is_none());
    }

    /// DLV-1
    #[test]
    fn secret_belongs_to_its_route_or_subscription() {
        for (destination, key) in [
            ("acme/bot:pay", "route acme/bot:pay"),
            ("acme/bot:zeta/shop:order.paid", "subscription acme/bot:zeta/shop:order.paid"),
        ] {
            let secret = PushSecret::new(destination, sealed("a"), Timestamp(0));
            assert_eq!((secret.route_key().to_string().as_str(), secret.owner()), (key, "acme"));
        }
    }
}
