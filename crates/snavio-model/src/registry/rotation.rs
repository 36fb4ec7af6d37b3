//! The life cycle of a service's keys (REG-10, REG-12): the state of each key, the due time of the next one,
//! and the changes of a rotation or revocation. This module makes no secrets: the caller passes them, sealed.

use std::time::Duration;

use serde::Serialize;

use super::change::Wish;
use super::entry::{Entry, Key, Sealed, Service};
use super::key::{EntryKey, Kind};
use super::{LiveKey, Registry};
use crate::bounds;
use crate::name::{KeyVersion, ServiceName};
use crate::time::Timestamp;

/// Prefix of every version's name; the number follows.
const VERSION_PREFIX: &str = "hmac-v";
const DAY: Duration = Duration::from_secs(86_400);

/// The state of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum KeyState {
    /// The newest accepted key, which the service signs with.
    Current,
    /// Accepted beside the current key until it ends.
    Previous,
    /// No longer accepted, because it has expired.
    Ended,
    /// No longer accepted, because it was revoked.
    Revoked,
}

/// The keys of a service, oldest first, including those that are no longer accepted.
#[derive(Debug, Clone)]
pub struct KeyRing<'a> {
    service: &'a Service,
    keys: Vec<&'a Key>,
}

/// A new key, with the changes that create it.
#[derive(Debug)]
pub struct NewKey {
    /// The version in messages.
    pub version: KeyVersion,
    /// The changes, to be made in one transaction.
    pub wishes: Vec<Wish>,
}

/// The changes that revoke a key.
#[derive(Debug)]
pub struct KeyRevocation {
    /// The key that replaces it, if any.
    pub replacement: Option<KeyVersion>,
    /// The changes, to be made in one transaction. For a key that was revoked before they have no effect.
    pub wishes: Vec<Wish>,
}

impl<'a> KeyRing<'a> {
    /// The keys of a service; `None` if the service is not registered.
    pub fn of(registry: &'a Registry, service: &ServiceName) -> Option<Self> {
        let Some(Entry::Service(service)) = registry.get(&EntryKey::service(service)) else { return None };
        let before = EntryKey { kind: Kind::Key, name: format!("{}:", service.name) };
        let own = registry.entries_after(Some(&before)).map_while(|entry| match entry {
            Entry::Key(key) if key.service == service.name => Some(key),
            _ => None,
        });
        Some(Self::new(service, own.collect()))
    }

    /// The keys of every service with keys, ordered by service name.
    pub fn all(registry: &'a Registry) -> Vec<Self> {
        let before = EntryKey { kind: Kind::Key, name: String::new() };
        let keys = registry.entries_after(Some(&before)).map_while(|entry| match entry {
            Entry::Key(key) => Some(key),
            _ => None,
        });
        let keys: Vec<_> = keys.collect();
        let rings = keys.chunk_by(|one, next| one.service == next.service).filter_map(|own| {
            match registry.get(&EntryKey::service(&own.first()?.service))? {
                Entry::Service(service) => Some(Self::new(service, own.to_vec())),
                _ => None,
            }
        });
        rings.collect()
    }

    fn new(service: &'a Service, mut keys: Vec<&'a Key>) -> Self {
        keys.sort_by_key(|key| age(&key.version, key.created_at));
        Self { service, keys }
    }

    pub fn service(&self) -> &'a ServiceName {
        &self.service.name
    }

    /// All keys, oldest first.
    pub fn keys(&self) -> &[&'a Key] {
        &self.keys
    }

    /// The key to sign with: the newest one that is accepted.
    pub fn current(&self, now: Timestamp) -> Option<&'a Key> {
        self.keys.iter().rfind(|key| key.is_good(now)).copied()
    }

    /// The state of a key of this ring.
    pub fn state(&self, key: &Key, now: Timestamp) -> KeyState {
        if key.revoked_at.is_some_and(|at| at <= now) {
            KeyState::Revoked
        } else if !key.is_good(now) {
            KeyState::Ended
        } else if self.current(now).is_some_and(|current| current.version == key.version) {
            KeyState::Current
        } else {
            KeyState::Previous
        }
    }

    /// Time at which the next scheduled key is due. `None` after the newest key was revoked without a
    /// replacement: the person who decided that also makes the next key.
    pub fn rotates_at(&self) -> Option<Timestamp> {
        let newest = self.keys.last().filter(|key| key.revoked_at.is_none())?;
        Some(newest.created_at.plus(DAY * self.service.key_days()))
    }

    /// Whether a scheduled key is due.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.rotates_at().is_some_and(|due| due <= now)
    }

    /// Accepted keys that end within this time.
    pub fn ending(&self, within: Duration, now: Timestamp) -> impl Iterator<Item = &'a Key> {
        let ends = move |key: &&'a Key| key.is_good(now) && !key.is_good(now.plus(within));
        self.keys.iter().copied().filter(ends)
    }

    /// Makes the next key. The current one remains accepted for the overlap; older ones end now.
    pub fn rotate(&self, secret: Sealed, now: Timestamp) -> NewKey {
        let overlap = now.plus(DAY * self.service.key_overlap_days());
        let current = self.current(now);
        let mut wishes = self.removals(now);
        for key in self.keys.iter().filter(|key| key.is_good(now)) {
            let is_current = current.is_some_and(|current| current.version == key.version);
            let ends = if is_current { overlap } else { now };
            let ends = key.expires_at.map_or(ends, |end| end.min(ends));
            wishes.push(Wish::Put(Entry::Key(Key { expires_at: Some(ends), ..(*key).clone() })));
        }
        let version = self.next_version();
        wishes.push(Wish::Put(self.new_key(&version, secret, now)));
        NewKey { version, wishes }
    }

    /// Revokes a key; `None` if the version does not exist. If it is the current key and `next` has a secret,
    /// a new key replaces it, so that the service is not left without a key. The previous key remains: it was
    /// not compromised, and its users can fetch the next one.
    pub fn revoke(
        &self,
        version: &KeyVersion,
        next: Option<Sealed>,
        now: Timestamp,
    ) -> Option<KeyRevocation> {
        let key = self.keys.iter().find(|key| key.version == *version)?;
        if key.revoked_at.is_some() {
            // The wish has no effect, but the caller's permission for it must still be checked.
            let wishes = vec![Wish::Put(Entry::Key((*key).clone()))];
            return Some(KeyRevocation { replacement: None, wishes });
        }
        let revoked = Key { revoked_at: Some(now), ..(*key).clone() };
        let mut wishes = vec![Wish::Put(Entry::Key(revoked))];
        let is_current = self.state(key, now) == KeyState::Current;
        let replacement = next.filter(|_| is_current).map(|secret| {
            let version = self.next_version();
            wishes.push(Wish::Put(self.new_key(&version, secret, now)));
            version
        });
        Some(KeyRevocation { replacement, wishes })
    }

    fn new_key(&self, version: &KeyVersion, secret: Sealed, now: Timestamp) -> Entry {
        Entry::Key(Key {
            service: self.service.name.clone(),
            version: version.clone(),
            secret,
            created_at: now,
            expires_at: None,
            revoked_at: None,
        })
    }

    /// The version after all existing ones. The newest key is never removed, so no version is reused.
    fn next_version(&self) -> KeyVersion {
        let last = self.keys.iter().filter_map(|key| number(&key.version)).max().unwrap_or(0);
        version(last.saturating_add(1))
    }

    /// Removes keys that ended long ago, and the oldest ended keys above the limit.
    fn removals(&self, now: Timestamp) -> Vec<Wish> {
        let Some((_, older)) = self.keys.split_last() else { return Vec::new() };
        let ended: Vec<_> = older.iter().filter(|key| !key.is_good(now)).collect();
        let too_many = (self.keys.len() + 1).saturating_sub(bounds::KEYS_KEPT_MAX);
        let is_old = |key: &Key| key.ends_at().is_some_and(|end| now.since(end) > bounds::KEY_KEPT);
        let gone = ended.iter().enumerate().filter(|(index, key)| *index < too_many || is_old(key));
        gone.map(|(_, key)| Wish::Remove(EntryKey::key(&key.service, &key.version))).collect()
    }
}

impl Key {
    /// Whether the gateway accepts its signatures at this time.
    pub fn is_good(&self, at: Timestamp) -> bool {
        self.ends_at().is_none_or(|end| at < end)
    }
}

impl LiveKey {
    /// The value that orders the keys of a service from old to new.
    pub(super) fn age(&self) -> impl Ord + use<> {
        age(&self.version, self.created_at)
    }
}

/// Orders by number first, because two keys may be made in one moment, and the clocks of nodes differ.
fn age(version: &KeyVersion, created_at: Timestamp) -> (Option<u64>, Timestamp) {
    (number(version), created_at)
}

fn number(version: &KeyVersion) -> Option<u64> {
    version.as_str().strip_prefix(VERSION_PREFIX)?.parse().ok()
}

/// The version with this number.
pub fn version(number: u64) -> KeyVersion {
    KeyVersion::new(&format!("{VERSION_PREFIX}{number}")).expect("hmac-v and a number are a key version")
}

#[cfg(test)]
mod tests;
