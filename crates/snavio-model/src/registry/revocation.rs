//! Revocations: the permission that a change ended, and the messages that used it afterwards (REG-17).

use std::time::Duration;

use super::Registry;
use super::change::Change;
use super::entry::{Entry, Grant};
use crate::bounds;
use crate::message::MessageKind;
use crate::name::{CommandName, GrantedName, KeyVersion, ServiceName, TenantName};
use crate::time::Timestamp;

/// The end of a permission by a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    pub what: Revoked,
    /// The first version of the registry without the permission.
    pub version: i64,
    /// The time from which the permission is revoked.
    pub at: Timestamp,
}

/// A revoked permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revoked {
    /// A grant.
    Grant { source: ServiceName, target: ServiceName, name: GrantedName },
    /// A key.
    Key { service: ServiceName, version: KeyVersion },
    /// A source was banned.
    Source(ServiceName),
    /// A tenant was suspended.
    Tenant(TenantName),
}

/// The permission that a message used.
#[derive(Debug, Clone, Copy)]
pub struct Used<'a> {
    pub kind: MessageKind,
    pub source: &'a ServiceName,
    pub target: &'a ServiceName,
    pub name: &'a CommandName,
    /// The key that signed it; `None` for an unsigned message.
    pub key_version: Option<&'a KeyVersion>,
    /// The version of the registry that the judgement used.
    pub registry_version: i64,
    pub settled_at: Timestamp,
}

/// The time from which a permission is revoked, if its end moved forward from `before` to `now`. An end after
/// [`bounds::REVOCATION_SETTLED`] is no revocation, because every node knows it by then.
fn revoked_from(before: Option<Timestamp>, now: Option<Timestamp>, change: &Change) -> Option<Timestamp> {
    let settled = change.at.plus(bounds::REVOCATION_SETTLED);
    let now = now?.max(change.at);
    (before.is_none_or(|before| before > now) && now <= settled).then_some(now)
}

fn has_ended(end: Option<Timestamp>, at: Timestamp) -> bool {
    end.is_some_and(|end| end <= at)
}

impl Revocation {
    /// The revocation by a change, if it is one. An end that was moved forward counts only if it comes so
    /// soon that nodes may not yet know it.
    pub fn of(change: &Change) -> Option<Self> {
        let (what, at) = match (&change.before, &change.after) {
            (Some(Entry::Grant(grant)), None) => {
                (of_grant(grant), revoked_from(grant.expires_at, Some(change.at), change)?)
            }
            (Some(Entry::Grant(before)), Some(Entry::Grant(after))) => {
                (of_grant(after), revoked_from(before.expires_at, after.expires_at, change)?)
            }
            (Some(Entry::Key(key)), after) => {
                let end = match after {
                    Some(Entry::Key(after)) => after.ends_at(),
                    _ => Some(change.at),
                };
                let what = Revoked::Key { service: key.service.clone(), version: key.version.clone() };
                (what, revoked_from(key.ends_at(), end, change)?)
            }
            (before, Some(Entry::Ban(ban))) if !has_ended(ban.until, change.at) => match before {
                Some(Entry::Ban(before)) if !has_ended(before.until, change.at) => return None,
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

    /// The tenant of the senders that could use the permission.
    pub fn senders(&self) -> &str {
        match &self.what {
            Revoked::Grant { source, .. } | Revoked::Source(source) => source.tenant(),
            Revoked::Key { service, .. } => service.tenant(),
            Revoked::Tenant(tenant) => tenant.as_str(),
        }
    }

    /// Whether a message used the permission.
    pub fn covers(&self, used: Used<'_>) -> bool {
        match &self.what {
            Revoked::Grant { source, target, name } => {
                let is_name = name.is_all() || name.as_str() == used.name.as_str();
                // An event belongs to its publisher: a grant decides who receives it, not who sends it.
                used.kind == MessageKind::Command && source == used.source && target == used.target && is_name
            }
            Revoked::Key { service, version } => service == used.source && Some(version) == used.key_version,
            Revoked::Source(source) => source == used.source,
            Revoked::Tenant(tenant) => tenant.as_str() == used.source.tenant(),
        }
    }

    /// Whether a message used the permission after its revocation.
    pub fn touches(&self, used: Used<'_>) -> bool {
        used.registry_version < self.version && used.settled_at >= self.at && self.covers(used)
    }

    /// Whether the permission was still revoked when an affected message was settled, by the registry of that
    /// time. Another grant may have permitted the same, or the permission may have been granted again.
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
            Revoked::Tenant(tenant) => then.tenant(tenant.as_str()).is_none_or(|tenant| tenant.suspended),
        }
    }

    /// The tenant to notify of a message that used the permission: for a key its owner, otherwise the
    /// target's owner.
    pub fn told_to<'a>(&self, used: Used<'a>) -> &'a str {
        match self.what {
            Revoked::Key { .. } => used.source.tenant(),
            Revoked::Grant { .. } | Revoked::Source(_) | Revoked::Tenant(_) => used.target.tenant(),
        }
    }

    /// The revocations to report for a message, from a list in order: for each tenant to notify, the first
    /// revocation that the message ignored.
    pub fn told_of<'r>(revocations: &'r [Self], then: &Registry, used: Used<'_>) -> Vec<&'r Self> {
        let mut reported: Vec<&Self> = Vec::new();
        for revocation in revocations {
            let is_ignored = revocation.touches(used) && revocation.is_gone(then, used);
            if is_ignored && reported.iter().all(|other| other.told_to(used) != revocation.told_to(used)) {
                reported.push(revocation);
            }
        }
        reported
    }

    /// The time from the revocation to the settlement of a message.
    pub fn stale_for(&self, settled_at: Timestamp) -> Duration {
        settled_at.since(self.at)
    }
}

impl Revoked {
    /// The word in telemetry records.
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
    fn revocation_is_distinguished_from_other_changes() {
        for (before, after, what) in [
            (grant("pay", None), None, Some(("grant", 0))),
            (grant("pay", later(9)), None, Some(("grant", 0))),
            (grant("pay", Some(NOON)), None, None),
            (grant("pay", None), grant("pay", Some(Timestamp(0))), Some(("grant", 0))),
            (grant("pay", None), grant("pay", Some(NOON)), Some(("grant", 0))),
            (grant("pay", None), grant("pay", later(9)), Some(("grant", 9))),
            (grant("pay", None), grant("pay", later(15)), Some(("grant", 15))),
            // By then every node knows the new end.
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
            let found = Revocation::of(&change);
            let word_and_delay = found
                .as_ref()
                .map(|revocation| (revocation.what.as_str(), revocation.at.since(NOON).as_secs()));
            assert_eq!(word_and_delay, what, "{change:?}");
            if let Some(found) = found {
                assert_eq!((found.version, found.senders()), (7, "acme"));
            }
        }
    }

    /// A command that was settled at noon by version 6 of the registry.
    fn command<'a>(
        source: &'a ServiceName,
        target: &'a ServiceName,
        name: &'a CommandName,
        key_version: &'a KeyVersion,
    ) -> Used<'a> {
        Used {
            kind: MessageKind::Command,
            source,
            target,
            name,
            key_version: Some(key_version),
            registry_version: 6,
            settled_at: NOON,
        }
    }

    /// REG-17
    #[test]
    fn revocation_covers_only_messages_that_used_it() {
        let (billing, spy): (ServiceName, ServiceName) =
            ("acme/billing".parse().unwrap(), "acme/spy".parse().unwrap());
        let (bot, other): (ServiceName, ServiceName) =
            ("zeta/bot".parse().unwrap(), "zeta/other".parse().unwrap());
        let (pay, ping) = ("pay".parse().unwrap(), "ping".parse().unwrap());
        let (first, second) = ("hmac-v1".parse().unwrap(), "hmac-v2".parse().unwrap());
        let revoked_grant = |name: &str| Revoked::Grant {
            source: billing.clone(),
            target: bot.clone(),
            name: name.parse().unwrap(),
        };
        let sent = [
            command(&billing, &bot, &pay, &first),
            command(&billing, &bot, &ping, &first),
            command(&billing, &other, &pay, &second),
            command(&spy, &bot, &pay, &first),
        ];
        for (what, covered) in [
            (revoked_grant("pay"), [true, false, false, false]),
            (revoked_grant("*"), [true, true, false, false]),
            (Revoked::Key { service: billing.clone(), version: first.clone() }, [true, true, false, false]),
            (Revoked::Source(billing.clone()), [true, true, true, false]),
            (Revoked::Tenant("acme".parse().unwrap()), [true; 4]),
            (Revoked::Tenant("zeta".parse().unwrap()), [false; 4]),
        ] {
            let revocation = Revocation { what, version: 7, at: NOON };
            assert_eq!(sent.map(|used| revocation.covers(used)), covered, "{revocation:?}");
            assert_eq!(sent.map(|used| revocation.touches(used)), covered, "{revocation:?}");
            let knew = sent.map(|used| Used { registry_version: 7, ..used });
            assert_eq!(
                knew.map(|used| revocation.touches(used)),
                [false; 4],
                "its judgement knew the revocation"
            );
            let before = sent.map(|used| Used { settled_at: Timestamp(NOON.0 - 1), ..used });
            assert_eq!(before.map(|used| revocation.touches(used)), [false; 4], "it was settled before");
        }
    }

    /// REG-17, MSG-5
    #[test]
    fn event_uses_no_grant_and_unsigned_event_no_key() {
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
            let covered = [event(None), event(Some(&version))].map(|used| revocation.covers(used));
            assert_eq!(covered, [unsigned, signed], "{revocation:?}");
        }
    }

    struct OneSecret;

    impl crate::registry::Unseal for OneSecret {
        fn unseal(&self, _: &Sealed) -> Option<crate::signature::signing::Secret> {
            Some(crate::signature::signing::Secret::from_bytes([1; 32]))
        }
    }

    /// Both services, and these entries.
    fn registry_with(entries: &[Option<Entry>]) -> Registry {
        let mut registry = Registry::default();
        for name in ["acme/billing", "zeta/bot"] {
            registry.put(Entry::Service(super::super::Service::new(name.parse().unwrap())), &OneSecret);
        }
        entries.iter().flatten().for_each(|entry| registry.put(entry.clone(), &OneSecret));
        registry
    }

    /// REG-17
    #[test]
    fn each_tenant_is_told_once_of_permissions_still_revoked() {
        let (billing, bot): (ServiceName, ServiceName) =
            ("acme/billing".parse().unwrap(), "zeta/bot".parse().unwrap());
        let (name, key_version) = ("pay".parse().unwrap(), "hmac-v1".parse().unwrap());
        let used = command(&billing, &bot, &name, &key_version);
        let grant_of_pay =
            Revoked::Grant { source: billing.clone(), target: bot.clone(), name: "pay".parse().unwrap() };
        let key_of_billing = Revoked::Key { service: billing.clone(), version: key_version.clone() };
        let all = [(7, key_of_billing), (8, Revoked::Source(billing.clone())), (9, grant_of_pay)]
            .map(|(version, what)| Revocation { what, version, at: NOON });
        for (entries, expected) in [
            (vec![], vec![("key", "acme"), ("grant", "zeta")]),
            (vec![ban(None)], vec![("key", "acme"), ("ban", "zeta")]),
            (vec![ban(later(9)), key(None, Some(NOON))], vec![("key", "acme"), ("ban", "zeta")]),
            // The permission returned meanwhile, or another grant permits the message.
            (vec![key(None, None)], vec![("grant", "zeta")]),
            (vec![key(None, None), grant("pay", None)], vec![]),
            (vec![key(None, None), grant("*", None)], vec![]),
            (vec![key(None, None), grant("pay", Some(NOON))], vec![("grant", "zeta")]),
            (vec![key(None, None), grant("pay", None), ban(Some(NOON))], vec![]),
        ] {
            let then = registry_with(&entries);
            let reported = Revocation::told_of(&all, &then, used);
            let reported: Vec<_> = reported
                .iter()
                .map(|revocation| (revocation.what.as_str(), revocation.told_to(used)))
                .collect();
            assert_eq!(reported, expected, "{entries:?}");
        }
    }
}
