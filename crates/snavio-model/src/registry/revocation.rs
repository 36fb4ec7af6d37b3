//! What a change took back, and which messages would not have been sent had everybody known (REG-17).

use std::time::Duration;

use super::Registry;
use super::change::Change;
use super::entry::{Entry, Grant};
use crate::bounds;
use crate::message::MessageKind;
use crate::name::{CommandName, GrantedName, KeyVersion, ServiceName, TenantName};
use crate::time::Timestamp;

/// A permission that ended by a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// What it was.
    pub what: Revoked,
    /// The registry's version from which on it is gone.
    pub version: i64,
    /// From when on.
    pub at: Timestamp,
}

/// What was taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revoked {
    /// A grant.
    Grant {
        /// Who could send.
        source: ServiceName,
        /// To whom.
        target: ServiceName,
        /// What.
        name: GrantedName,
    },
    /// A key.
    Key {
        /// Whose.
        service: ServiceName,
        /// Which.
        version: KeyVersion,
    },
    /// A source was banned.
    Source(ServiceName),
    /// A tenant was suspended.
    Tenant(TenantName),
}

/// What a message was sent by.
#[derive(Debug, Clone, Copy)]
pub struct Used<'a> {
    /// What kind of message it is.
    pub kind: MessageKind,
    /// Who sent it.
    pub source: &'a ServiceName,
    /// To whom.
    pub target: &'a ServiceName,
    /// What.
    pub name: &'a CommandName,
    /// The key it was signed with, if it was.
    pub key_version: Option<&'a KeyVersion>,
    /// The registry it was judged by.
    pub registry_version: i64,
    /// When it was settled.
    pub settled_at: Timestamp,
}

impl Revocation {
    /// What a change took back, if it did. An end that was brought forward is one if it comes so soon that nodes may
    /// not know of it by then.
    pub fn of(change: &Change) -> Option<Self> {
        let settled = change.at.plus(bounds::REVOCATION_SETTLED);
        let is_over = |end: Option<Timestamp>| end.is_some_and(|end| end <= change.at);
        // From when on something is gone that ended at the one time before, and ends at the other now.
        let gone_from = |before: Option<Timestamp>, now: Option<Timestamp>| {
            let now = now?.max(change.at);
            (before.is_none_or(|before| before > now) && now <= settled).then_some(now)
        };
        let (what, at) = match (&change.before, &change.after) {
            (Some(Entry::Grant(grant)), None) => {
                (of_grant(grant), gone_from(grant.expires_at, Some(change.at))?)
            }
            (Some(Entry::Grant(before)), Some(Entry::Grant(after))) => {
                (of_grant(after), gone_from(before.expires_at, after.expires_at)?)
            }
            (Some(Entry::Key(key)), after) => {
                let end = match after {
                    Some(Entry::Key(after)) => after.ends_at(),
                    _ => Some(change.at),
                };
                let what = Revoked::Key { service: key.service.clone(), version: key.version.clone() };
                (what, gone_from(key.ends_at(), end)?)
            }
            (before, Some(Entry::Ban(ban))) if !is_over(ban.until) => match before {
                Some(Entry::Ban(before)) if !is_over(before.until) => return None,
                _ => (Revoked::Source(ban.source.clone()), change.at),
            },
            (Some(Entry::Tenant(before)), Some(Entry::Tenant(after)))
                if after.suspended && !before.suspended =>
            {
                (Revoked::Tenant(after.name.clone()), change.at)
            }
            _ => return None,
        };
        Some(Self { what, version: change.version, at })
    }

    /// The tenant whose messages may have been sent by it.
    pub fn senders(&self) -> &str {
        match &self.what {
            Revoked::Grant { source, .. } | Revoked::Source(source) => source.tenant(),
            Revoked::Key { service, .. } => service.tenant(),
            Revoked::Tenant(tenant) => tenant.as_str(),
        }
    }

    /// Whether a message was sent by it.
    pub fn covers(&self, used: Used<'_>) -> bool {
        match &self.what {
            Revoked::Grant { source, target, name } => {
                let is_name = name.is_all() || name.as_str() == used.name.as_str();
                // An event is its publisher's own: a grant says who gets it, not who sends it.
                used.kind == MessageKind::Command && source == used.source && target == used.target && is_name
            }
            Revoked::Key { service, version } => service == used.source && Some(version) == used.key_version,
            Revoked::Source(source) => source == used.source,
            Revoked::Tenant(tenant) => tenant.as_str() == used.source.tenant(),
        }
    }

    /// Whether a message was sent by it after it was taken back.
    pub fn touches(&self, used: Used<'_>) -> bool {
        used.registry_version < self.version && used.settled_at >= self.at && self.covers(used)
    }

    /// Whether it was still gone when a message was sent that it touches: by the registry of that moment. Another grant
    /// may permit the same, and what was taken back may have been given again.
    pub fn is_gone(&self, then: &Registry, used: Used<'_>) -> bool {
        let at = used.settled_at;
        match &self.what {
            Revoked::Grant { .. } => {
                let target = then.service(used.target.as_str());
                target.is_none_or(|view| view.grant(used.source, used.name, at).is_none())
            }
            Revoked::Key { service, version } => {
                let key = then.service(service.as_str()).and_then(|view| view.key(version));
                key.is_none_or(|key| !key.is_good(at))
            }
            Revoked::Source(source) => then.ban(source, at).is_some(),
            Revoked::Tenant(tenant) => then.tenant(tenant.as_str()).is_none_or(|it| it.suspended),
        }
    }

    /// Whom it is told to that a message was sent by it: the target's owner, or of a key its own.
    pub fn told_to<'a>(&self, used: Used<'a>) -> &'a str {
        match self.what {
            Revoked::Key { .. } => used.source.tenant(),
            Revoked::Grant { .. } | Revoked::Source(_) | Revoked::Tenant(_) => used.target.tenant(),
        }
    }

    /// Of revocations in their order, those that a message is told of: to each of whom it concerns, the first that it
    /// was sent in spite of.
    pub fn told_of<'r>(revocations: &'r [Self], then: &Registry, used: Used<'_>) -> Vec<&'r Self> {
        let mut told: Vec<&Self> = Vec::new();
        for revocation in revocations.iter().filter(|it| it.touches(used) && it.is_gone(then, used)) {
            if told.iter().all(|it| it.told_to(used) != revocation.told_to(used)) {
                told.push(revocation);
            }
        }
        told
    }

    /// How long after it a message was sent.
    pub fn stale_for(&self, settled_at: Timestamp) -> Duration {
        settled_at.since(self.at)
    }
}

impl Revoked {
    /// The word in records.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Grant { .. } => "grant",
            Self::Key { .. } => "key",
            Self::Source(_) => "ban",
            Self::Tenant(_) => "suspension",
        }
    }
}

fn of_grant(grant: &Grant) -> Revoked {
    let Grant { source, target, name, .. } = grant.clone();
    Revoked::Grant { source, target, name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Ban, Key, Sealed, Tenant};

    const NOON: Timestamp = Timestamp(1_000_000);

    fn later(seconds: u64) -> Option<Timestamp> {
        Some(NOON.plus(Duration::from_secs(seconds)))
    }

    fn grant(name: &str, expires_at: Option<Timestamp>) -> Option<Entry> {
        let name: GrantedName = name.parse().unwrap();
        let grant = Grant::new("acme/billing".parse().unwrap(), "zeta/bot".parse().unwrap(), name);
        Some(Entry::Grant(Grant { expires_at, ..grant }))
    }

    fn key(expires_at: Option<Timestamp>, revoked_at: Option<Timestamp>) -> Option<Entry> {
        Some(Entry::Key(Key {
            service: "acme/billing".parse().unwrap(),
            version: "hmac-v1".parse().unwrap(),
            secret: Sealed(String::new()),
            created_at: Timestamp(0),
            expires_at,
            revoked_at,
        }))
    }

    fn ban(until: Option<Timestamp>) -> Option<Entry> {
        Some(Entry::Ban(Ban { source: "acme/billing".parse().unwrap(), reason: String::new(), until }))
    }

    fn tenant(suspended: bool) -> Option<Entry> {
        Some(Entry::Tenant(Tenant { name: "acme".parse().unwrap(), contact: None, suspended }))
    }

    /// REG-17
    #[test]
    fn what_ends_a_permission_is_told_from_what_does_not() {
        for (before, after, what) in [
            (grant("pay", None), None, Some(("grant", 0))),
            (grant("pay", later(9)), None, Some(("grant", 0))),
            (grant("pay", Some(NOON)), None, None),
            (grant("pay", None), grant("pay", Some(Timestamp(0))), Some(("grant", 0))),
            (grant("pay", None), grant("pay", Some(NOON)), Some(("grant", 0))),
            (grant("pay", None), grant("pay", later(9)), Some(("grant", 9))),
            (grant("pay", None), grant("pay", later(15)), Some(("grant", 15))),
            // By then every node knows.
            (grant("pay", None), grant("pay", later(16)), None),
            (grant("pay", later(16)), grant("pay", later(9)), Some(("grant", 9))),
            (grant("pay", later(9)), grant("pay", later(9)), None),
            (grant("pay", later(9)), grant("pay", None), None),
            (grant("pay", Some(NOON)), grant("pay", Some(Timestamp(0))), None),
            (None, grant("pay", None), None),
            (key(None, None), key(None, Some(NOON)), Some(("key", 0))),
            (key(None, None), key(later(9), None), Some(("key", 9))),
            (key(None, None), key(later(3600), None), None),
            (key(later(9), None), key(Some(NOON), None), Some(("key", 0))),
            (key(None, None), None, Some(("key", 0))),
            (key(Some(Timestamp(0)), None), None, None),
            (None, ban(None), Some(("ban", 0))),
            (ban(Some(Timestamp(0))), ban(later(9)), Some(("ban", 0))),
            (ban(None), ban(later(9)), None),
            (None, ban(Some(NOON)), None),
            (ban(None), None, None),
            (tenant(false), tenant(true), Some(("suspension", 0))),
            (tenant(true), tenant(false), None),
        ] {
            let key = before.as_ref().or(after.as_ref()).unwrap().key();
            let change =
                Change { version: 7, at: NOON, who: String::new(), why: String::new(), key, before, after };
            let told = Revocation::of(&change);
            let at = |it: &Revocation| it.at.since(NOON).as_secs();
            assert_eq!(told.as_ref().map(|it| (it.what.as_str(), at(it))), what, "{change:?}");
            if let Some(told) = told {
                assert_eq!((told.version, told.senders()), (7, "acme"));
            }
        }
    }

    /// REG-17
    #[test]
    fn only_what_was_sent_by_it_is_covered() {
        let (billing, spy): (ServiceName, ServiceName) =
            ("acme/billing".parse().unwrap(), "acme/spy".parse().unwrap());
        let (bot, other): (ServiceName, ServiceName) =
            ("zeta/bot".parse().unwrap(), "zeta/other".parse().unwrap());
        let (pay, ping) = ("pay".parse().unwrap(), "ping".parse().unwrap());
        let (first, second) = ("hmac-v1".parse().unwrap(), "hmac-v2".parse().unwrap());
        let name = |text: &str| text.parse::<GrantedName>().unwrap();
        let of = |name| Revoked::Grant { source: billing.clone(), target: bot.clone(), name };
        let (registry_version, settled_at) = (6, NOON);
        let used = |source, target, name, key_version| Used {
            kind: MessageKind::Command,
            source,
            target,
            name,
            key_version,
            registry_version,
            settled_at,
        };
        let sent = [
            used(&billing, &bot, &pay, Some(&first)),
            used(&billing, &bot, &ping, Some(&first)),
            used(&billing, &other, &pay, Some(&second)),
            used(&spy, &bot, &pay, Some(&first)),
        ];
        for (what, covered) in [
            (of(name("pay")), [true, false, false, false]),
            (of(name("*")), [true, true, false, false]),
            (Revoked::Key { service: billing.clone(), version: first.clone() }, [true, true, false, false]),
            (Revoked::Source(billing.clone()), [true, true, true, false]),
            (Revoked::Tenant("acme".parse().unwrap()), [true; 4]),
            (Revoked::Tenant("zeta".parse().unwrap()), [false; 4]),
        ] {
            let revocation = Revocation { what, version: 7, at: NOON };
            assert_eq!(sent.map(|it| revocation.covers(it)), covered, "{revocation:?}");
            assert_eq!(sent.map(|it| revocation.touches(it)), covered, "{revocation:?}");
            let knew = sent.map(|it| Used { registry_version: 7, ..it });
            assert_eq!(knew.map(|it| revocation.touches(it)), [false; 4], "who knew of it is judged by it");
            let before = sent.map(|it| Used { settled_at: Timestamp(NOON.0 - 1), ..it });
            assert_eq!(before.map(|it| revocation.touches(it)), [false; 4], "what came before it was right");
        }
    }

    /// REG-17, MSG-5
    #[test]
    fn an_event_is_sent_by_no_grant_and_where_it_is_not_signed_by_no_key() {
        let shop: ServiceName = "acme/shop".parse().unwrap();
        let (name, version): (CommandName, KeyVersion) =
            ("order.paid".parse().unwrap(), "hmac-v1".parse().unwrap());
        let event = |key_version| Used {
            kind: MessageKind::Event,
            source: &shop,
            target: &shop,
            name: &name,
            key_version,
            registry_version: 6,
            settled_at: NOON,
        };
        let own = Revoked::Grant { source: shop.clone(), target: shop.clone(), name: "*".parse().unwrap() };
        let key = Revoked::Key { service: shop.clone(), version: version.clone() };
        for (what, unsigned, signed) in
            [(own, false, false), (key, false, true), (Revoked::Source(shop.clone()), true, true)]
        {
            let revocation = Revocation { what, version: 7, at: NOON };
            let covered = [event(None), event(Some(&version))].map(|it| revocation.covers(it));
            assert_eq!(covered, [unsigned, signed], "{revocation:?}");
        }
    }

    struct Nothing;

    impl crate::registry::Unseal for Nothing {
        fn unseal(&self, _: &Sealed) -> Option<crate::signature::signing::Secret> {
            Some(crate::signature::signing::Secret::from_bytes([1; 32]))
        }
    }

    /// REG-17
    #[test]
    fn each_whom_it_concerns_is_told_once_and_only_of_what_was_still_gone() {
        let (billing, bot): (ServiceName, ServiceName) =
            ("acme/billing".parse().unwrap(), "zeta/bot".parse().unwrap());
        let (name, key_version) = ("pay".parse().unwrap(), "hmac-v1".parse().unwrap());
        let used = Used {
            kind: MessageKind::Command,
            source: &billing,
            target: &bot,
            name: &name,
            key_version: Some(&key_version),
            registry_version: 6,
            settled_at: NOON,
        };
        let gone = |version, what| Revocation { what, version, at: NOON };
        let all = [
            gone(7, Revoked::Key { service: billing.clone(), version: key_version.clone() }),
            gone(8, Revoked::Source(billing.clone())),
            gone(
                9,
                Revoked::Grant { source: billing.clone(), target: bot.clone(), name: "pay".parse().unwrap() },
            ),
        ];
        let told = |then: &Registry| -> Vec<_> {
            Revocation::told_of(&all, then, used)
                .iter()
                .map(|it| (it.what.as_str(), it.told_to(used)))
                .collect()
        };
        let with = |entries: &[Option<Entry>]| {
            let mut registry = Registry::default();
            for name in ["acme/billing", "zeta/bot"] {
                registry.put(Entry::Service(crate::registry::Service::new(name.parse().unwrap())), &Nothing);
            }
            entries.iter().flatten().for_each(|entry| registry.put(entry.clone(), &Nothing));
            registry
        };
        for (entries, expected) in [
            (vec![], vec![("key", "acme"), ("grant", "zeta")]),
            (vec![ban(None)], vec![("key", "acme"), ("ban", "zeta")]),
            (vec![ban(later(9)), key(None, Some(NOON))], vec![("key", "acme"), ("ban", "zeta")]),
            // Given back meanwhile, or permitted by another grant.
            (vec![key(None, None)], vec![("grant", "zeta")]),
            (vec![key(None, None), grant("pay", None)], vec![]),
            (vec![key(None, None), grant("*", None)], vec![]),
            (vec![key(None, None), grant("pay", Some(NOON))], vec![("grant", "zeta")]),
            (vec![key(None, None), grant("pay", None), ban(Some(NOON))], vec![]),
        ] {
            assert_eq!(told(&with(&entries)), expected, "{entries:?}");
        }
    }
}
