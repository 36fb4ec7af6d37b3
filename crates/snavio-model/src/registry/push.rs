//! What belongs to a push beside its route (DLV-1, MSG-4): the secret that requests are signed with, and since when nothing is
//! sent any more.
//!
//! The secret is the destination's alone, and never one that somebody signs messages to this gateway with: who knows the one
//! cannot use it for the other.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Unseal;
use super::entry::{Route, Sealed, event_type_of};
use super::key::{EntryKey, Kind};
use crate::bounds;
use crate::delivery::processing::ProcessingKind;
use crate::signature::signing::Secret;
use crate::time::Timestamp;

/// The secret that requests to a destination are signed with, and the one before it while receivers may still know only that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PushSecret {
    /// The route or subscription: `tenant/service:name` or `tenant/service:publisher-tenant/publisher:type`.
    pub destination: String,
    /// The secret, encrypted.
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub secret: Sealed,
    /// When it was made.
    pub created_at: Timestamp,
    /// The one before it, encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub previous_secret: Option<Sealed>,
    /// Until when requests are signed with that one too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_until: Option<Timestamp>,
}

impl PushSecret {
    /// The first of a destination.
    pub fn new(destination: &str, secret: Sealed, now: Timestamp) -> Self {
        Self {
            destination: destination.to_owned(),
            secret,
            created_at: now,
            previous_secret: None,
            previous_until: None,
        }
    }

    /// The next one: for a while requests are signed with both.
    #[must_use]
    pub fn rotated(&self, secret: Sealed, overlap: Duration, now: Timestamp) -> Self {
        Self {
            previous_secret: Some(self.secret.clone()),
            previous_until: Some(now.plus(overlap)),
            ..Self::new(&self.destination, secret, now)
        }
    }

    /// The tenant that owns it.
    pub fn owner(&self) -> &str {
        self.destination.split('/').next().unwrap_or_default()
    }

    /// What it goes with.
    pub fn route_key(&self) -> EntryKey {
        let is_event = event_type_of(&self.destination).is_some();
        let kind = if is_event { Kind::Subscription } else { Kind::Route };
        EntryKey { kind, name: self.destination.clone() }
    }

    /// With its secrets open; nothing if the current one does not open.
    pub fn open(&self, unseal: &dyn Unseal) -> Option<LivePushSecret> {
        let previous = self.previous_secret.as_ref().zip(self.previous_until);
        Some(LivePushSecret {
            current: unseal.unseal(&self.secret)?,
            previous: previous.and_then(|(sealed, until)| Some((unseal.unseal(sealed)?, until))),
        })
    }
}

/// The open secrets of a destination.
#[derive(Debug)]
pub struct LivePushSecret {
    current: Secret,
    previous: Option<(Secret, Timestamp)>,
}

impl LivePushSecret {
    /// Those that a request is signed with now, the newest first.
    pub fn at(&self, now: Timestamp) -> impl Iterator<Item = &Secret> {
        let previous = self.previous.iter().filter(move |(_, until)| now < *until);
        [&self.current].into_iter().chain(previous.map(|(secret, _)| secret))
    }
}

/// Since when nothing is pushed any more, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Disabled {
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::time::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub at: Option<Timestamp>,
    /// Why, for people.
    pub why: String,
}

impl Route {
    /// What is wrong with its being disabled, if anything.
    pub(super) fn disabled_problem(&self) -> Option<String> {
        self.disabled.as_ref()?.problem(self.processing.kind)
    }
}

impl Disabled {
    /// What is wrong with it on a route that is processed so.
    fn problem(&self, kind: ProcessingKind) -> Option<String> {
        if !kind.is_sent() {
            return Some("disabled is for processing.kind push".to_owned());
        }
        let is_long = self.why.chars().count() > bounds::REASON_CHARS_MAX;
        is_long.then(|| format!("disabled.why is longer than {} characters", bounds::REASON_CHARS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Secrets in the clear: each is its first letter, over and over.
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
        live.at(Timestamp(now)).map(|it| char::from(it.expose_bytes()[0])).collect()
    }

    /// MSG-4, DLV-1
    #[test]
    fn while_one_secret_replaces_another_requests_are_signed_with_both() {
        let first = PushSecret::new("acme/bot:pay", sealed("a"), Timestamp(0));
        assert_eq!(names(&first.open(&Clear).unwrap(), 5), "a");
        let second = first.rotated(sealed("b"), Duration::from_secs(1), Timestamp(5));
        let live = second.open(&Clear).unwrap();
        assert_eq!((names(&live, 1004), names(&live, 1005)), ("ba".to_owned(), "b".to_owned()));
        let third = second.rotated(sealed("c"), Duration::from_secs(1), Timestamp(10));
        assert_eq!(names(&third.open(&Clear).unwrap(), 11), "cb", "no more than two");
        assert!(PushSecret::new("acme/bot:pay", sealed(""), Timestamp(0)).open(&Clear).is_none());
    }

    /// DLV-1
    #[test]
    fn a_secret_goes_with_its_route_or_subscription() {
        for (destination, key) in [
            ("acme/bot:pay", "route acme/bot:pay"),
            ("acme/bot:zeta/shop:order.paid", "subscription acme/bot:zeta/shop:order.paid"),
        ] {
            let secret = PushSecret::new(destination, sealed("a"), Timestamp(0));
            assert_eq!((secret.route_key().to_string().as_str(), secret.owner()), (key, "acme"));
        }
    }
}
