//! Past versions of the registry: the differences between two versions, and the way back to one (REG-5).

use std::collections::{BTreeMap, BTreeSet};

use super::{Change, Entry, EntryKey, Kind, Registry, Tenant, Wish};

/// The differences between two versions: for each entry, its state at the earlier and at the later one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Differences(BTreeMap<EntryKey, (Option<Entry>, Option<Entry>)>);

impl Differences {
    /// Adds the next change after the earlier version. The earlier state of an entry is the one before its
    /// first change.
    pub fn add(&mut self, change: Change) {
        self.0
            .entry(change.key)
            .and_modify(|(_, after)| after.clone_from(&change.after))
            .or_insert((change.before, change.after));
    }

    /// The entries that differ between the two versions.
    pub fn iter(&self) -> impl Iterator<Item = (&EntryKey, &Option<Entry>, &Option<Entry>)> {
        let all = self.0.iter().map(|(key, (before, after))| (key, before, after));
        all.filter(|(_, before, after)| before != after)
    }

    /// Reconstructs the registry of the earlier version from the later one, for inspection only.
    pub fn undo(&self, registry: &Registry, version: i64) -> Registry {
        let mut past = registry.clone();
        for (key, before, _) in self.iter() {
            match before {
                Some(entry) => past.put(entry.clone(), &LeavesSealed),
                None => past.remove(key),
            }
        }
        past.at_version(version)
    }
}

/// Decrypts no secrets, because a past registry neither signs nor verifies.
struct LeavesSealed;

impl super::Unseal for LeavesSealed {
    fn unseal(&self, _: &super::Sealed) -> Option<crate::signature::signing::Secret> {
        None
    }
}

/// The changes that lead back to a version.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rollback {
    /// The changes to make.
    pub wishes: Vec<Wish>,
    /// Entries that differ and remain as they are.
    pub left_alone: Vec<EntryKey>,
}

impl Rollback {
    /// Plans the way from the current registry back to the state before these differences.
    ///
    /// Anything that may have been revoked because it was stolen does not return by itself. So keys, push
    /// secrets, clients, personal tokens, issuers, workloads and adapters (which have secrets of providers)
    /// remain as they are, bans and suspensions remain in force, and answered grant requests remain answered.
    /// The rollback removes such an entry only together with its service or route, if that did not exist in
    /// the earlier version.
    pub fn of(registry: &Registry, differences: &Differences) -> Self {
        let mut rollback = Self::default();
        let mut gone = BTreeSet::new();
        for (key, before, _) in differences.iter().filter(|(key, _, _)| !remains(key.kind)) {
            match before {
                Some(entry) => rollback.wishes.push(Wish::Put(restored(registry, entry))),
                None => drop(gone.insert(key.clone())),
            }
        }
        let holders = [Kind::Service, Kind::Route, Kind::Subscription];
        let holders: BTreeSet<_> = gone.iter().filter(|key| holders.contains(&key.kind)).cloned().collect();
        if !holders.is_empty() {
            let of_gone = |entry: &&Entry| entry.refers_to().iter().any(|key| holders.contains(key));
            let kept = registry.entries().filter(|entry| remains(entry.key().kind));
            gone.extend(kept.filter(of_gone).map(Entry::key));
        }
        let differing = differences.iter().map(|(key, _, _)| key).filter(|key| remains(key.kind));
        rollback.left_alone = differing.filter(|key| !gone.contains(key)).cloned().collect();
        rollback.wishes.extend(gone.into_iter().filter(|key| registry.get(key).is_some()).map(Wish::Remove));
        rollback
    }
}

/// The entry to restore. REG-4: only an explicit request lifts a suspension.
fn restored(registry: &Registry, entry: &Entry) -> Entry {
    match entry {
        Entry::Tenant(tenant) => {
            let current = registry.tenant(tenant.name.as_str());
            let suspended = tenant.suspended || current.is_some_and(|current| current.suspended);
            Entry::Tenant(Tenant { suspended, ..tenant.clone() })
        }
        other => other.clone(),
    }
}

/// Whether a rollback leaves entries of this kind as they are.
fn remains(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Key
            | Kind::PushSecret
            | Kind::Client
            | Kind::PersonalToken
            | Kind::GrantRequest
            | Kind::Issuer
            | Kind::Workload
            | Kind::Ban
            | Kind::Adapter
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Ban, Grant, Service};
    use crate::time::Timestamp;

    fn tenant(contact: &str) -> Entry {
        Entry::Tenant(Tenant {
            name: "acme".parse().unwrap(),
            contact: Some(contact.to_owned()),
            suspended: false,
        })
    }

    fn service(name: &str) -> Entry {
        Entry::Service(Service::new(name.parse().unwrap()))
    }

    fn grant(source: &str) -> Entry {
        let name: crate::name::CommandName = "pay".parse().unwrap();
        Entry::Grant(Grant::new(source.parse().unwrap(), "acme/bot".parse().unwrap(), name))
    }

    fn ban(source: &str) -> Entry {
        Entry::Ban(Ban { source: source.parse().unwrap(), reason: String::new(), until: None })
    }

    /// The registry after each of these steps, and the changes between them.
    fn story(steps: &[(Option<Entry>, Option<Entry>)]) -> (Vec<Registry>, Vec<Change>) {
        let mut all = vec![Registry::default()];
        let mut changes = Vec::new();
        for ((before, after), version) in steps.iter().cloned().zip(1..) {
            let key = before.as_ref().or(after.as_ref()).unwrap().key();
            let (who, why) = (String::new(), String::new());
            changes.push(Change { version, at: Timestamp(version), who, why, key, before, after });
            all.push(all[all.len() - 1].with(&changes[changes.len() - 1..], &LeavesSealed));
        }
        (all, changes)
    }

    fn between(changes: &[Change], from: i64, to: i64) -> Differences {
        let mut differences = Differences::default();
        changes
            .iter()
            .filter(|change| change.version > from && change.version <= to)
            .for_each(|change| differences.add(change.clone()));
        differences
    }

    fn entries(registry: &Registry) -> Vec<Entry> {
        registry.entries().cloned().collect()
    }

    fn steps() -> Vec<(Option<Entry>, Option<Entry>)> {
        vec![
            (None, Some(tenant("a"))),
            (None, Some(service("acme/bot"))),
            (None, Some(grant("acme/bot"))),
            (Some(tenant("a")), Some(tenant("b"))),
            (Some(grant("acme/bot")), None),
            (None, Some(service("acme/new"))),
            (None, Some(ban("acme/bot"))),
            (None, Some(ban("acme/new"))),
            (Some(tenant("b")), Some(tenant("a"))),
        ]
    }

    /// REG-5
    #[test]
    fn every_version_can_be_inspected_and_compared() {
        let (versions, changes) = story(&steps());
        for from in 0..versions.len() {
            for to in from..versions.len() {
                let differences = between(&changes, from as i64, to as i64);
                let past = differences.undo(&versions[to], from as i64);
                assert_eq!(entries(&past), entries(&versions[from]), "{to} back to {from}");
                assert_eq!(past.version(), from as i64);
                for (key, before, after) in differences.iter() {
                    assert_eq!(versions[from].get(key), before.as_ref());
                    assert_eq!(versions[to].get(key), after.as_ref());
                }
            }
        }
        assert_eq!(between(&changes, 3, 9).iter().filter(|(key, _, _)| key.kind == Kind::Tenant).count(), 0);
    }

    /// REG-5
    #[test]
    fn rollback_keeps_bans_and_secrets_of_remaining_services() {
        let (versions, changes) = story(&steps());
        let rollback = Rollback::of(&versions[9], &between(&changes, 3, 9));
        assert_eq!(
            rollback.wishes,
            [
                Wish::Put(grant("acme/bot")),
                Wish::Remove(service("acme/new").key()),
                Wish::Remove(ban("acme/new").key())
            ]
        );
        assert_eq!(rollback.left_alone, [ban("acme/bot").key()]);
        assert_eq!(Rollback::of(&versions[9], &Differences::default()), Rollback::default());
    }

    /// REG-4, REG-5: a rollback lifts no suspension.
    #[test]
    fn suspension_outlives_a_rollback() {
        let of = |contact: &str, suspended| match tenant(contact) {
            Entry::Tenant(tenant) => Entry::Tenant(Tenant { suspended, ..tenant }),
            other => other,
        };
        let steps = [(None, Some(of("a", false))), (Some(of("a", false)), Some(of("b", true)))];
        let (all, changes) = story(&steps);
        let rollback = Rollback::of(&all[2], &between(&changes, 1, 2));
        assert_eq!(rollback.wishes, [Wish::Put(of("a", true))]);
    }
}
