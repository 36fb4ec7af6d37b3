use super::super::{Author, Tenant, Unseal, plan};
use super::*;
use crate::signature::signing::Secret;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

struct AnySecret;

impl Unseal for AnySecret {
    fn unseal(&self, _: &Sealed) -> Option<Secret> {
        Some(Secret::from_bytes([7; 32]))
    }
}

fn days(count: i64) -> Timestamp {
    Timestamp(NOW.0 + count * 86_400_000)
}

fn service() -> ServiceName {
    "acme/bot".parse().unwrap()
}

fn sealed() -> Sealed {
    Sealed("sealed".to_owned())
}

/// A key: its number, and the days (from now) of creation, expiry and revocation.
type Row = (u64, i64, Option<i64>, Option<i64>);

fn registry(rows: &[Row]) -> Registry {
    let mut registry = Registry::default();
    let tenant = Tenant { name: "acme".parse().unwrap(), contact: None, suspended: false };
    registry.put(Entry::Tenant(tenant), &AnySecret);
    for name in ["acme/bot", "acme/bot-b", "acme/bo"] {
        registry.put(Entry::Service(Service::new(name.parse().unwrap())), &AnySecret);
    }
    for (number, made, ends, revoked) in rows {
        let key = Key {
            service: service(),
            version: version(*number),
            secret: sealed(),
            created_at: days(*made),
            expires_at: ends.map(days),
            revoked_at: revoked.map(days),
        };
        registry.put(Entry::Key(key.clone()), &AnySecret);
        registry.put(Entry::Key(Key { service: "acme/bot-b".parse().unwrap(), ..key }), &AnySecret);
    }
    registry
}

fn after(registry: &Registry, wishes: Vec<Wish>) -> Registry {
    let author = Author { who: "test".into(), why: String::new(), at: NOW };
    let changes =
        plan(registry, wishes, &author, Duration::from_secs(60)).expect("the change holds together");
    registry.with(&changes, &AnySecret)
}

/// The ring as text, for example `1 previous until 7, 2 current`.
fn describe(registry: &Registry, now: Timestamp) -> String {
    let ring = KeyRing::of(registry, &service()).expect("the service is registered");
    let one = |key: &&Key| {
        let state = format!("{:?}", ring.state(key, now)).to_lowercase();
        let until = key.expires_at.map(|end| format!(" until {}", (end.0 - NOW.0) / 86_400_000));
        format!("{} {state}{}", number(&key.version).unwrap(), until.unwrap_or_default())
    };
    ring.keys().iter().map(one).collect::<Vec<_>>().join(", ")
}

fn rotated(rows: &[Row]) -> String {
    let registry = registry(rows);
    let new = KeyRing::of(&registry, &service()).unwrap().rotate(sealed(), NOW);
    let after = after(&registry, new.wishes);
    let view = after.service("acme/bot").unwrap();
    assert_eq!(view.current_key(NOW).unwrap().version, new.version, "the newest key signs");
    describe(&after, NOW)
}

/// REG-10
#[test]
fn rotation_keeps_previous_key_for_the_overlap() {
    for (rows, expected) in [
        (&[][..], "1 current"),
        (&[(1, -30, None, None)][..], "1 previous until 7, 2 current"),
        (&[(1, -30, Some(2), None), (2, -5, None, None)], "1 ended until 0, 2 previous until 7, 3 current"),
        // Ended keys remain unchanged.
        (&[(1, -30, Some(-2), None), (2, -5, None, None)], "1 ended until -2, 2 previous until 7, 3 current"),
        // Two keys of one moment, with more than nine keys.
        (&[(9, -1, Some(6), None), (10, -1, None, None)], "9 ended until 0, 10 previous until 7, 11 current"),
        // After a revocation without replacement: a key that was to end soon does not live longer.
        (&[(1, -30, Some(2), None), (2, -5, None, Some(-1))], "1 previous until 2, 2 revoked, 3 current"),
    ] {
        assert_eq!(rotated(rows), expected, "{rows:?}");
    }
}

/// REG-10
#[test]
fn old_ended_keys_are_removed_but_never_the_newest() {
    let rows = [(1, -99, Some(-31), None), (2, -98, Some(-30), None), (3, -97, None, Some(-40))];
    assert_eq!(rotated(&rows), "2 ended until -30, 3 revoked, 4 current");
    let mut many: Vec<Row> = (1..=40).map(|n| (n, -1, Some(0), None)).collect();
    many.push((41, 0, None, None));
    let left = rotated(&many);
    assert_eq!(left.split(", ").count(), bounds::KEYS_KEPT_MAX, "{left}");
    assert!(left.ends_with("40 ended until 0, 41 previous until 7, 42 current"), "{left}");
}

/// REG-10
#[test]
fn key_is_due_after_its_days_unless_revoked() {
    for (rows, due) in [
        (&[][..], false),
        (&[(1, -29, None, None)][..], false),
        (&[(1, -30, None, None)], true),
        (&[(1, -99, Some(1), None), (2, -29, None, None)], false),
        (&[(1, -99, None, Some(-1))], false),
        (&[(1, -99, Some(-1), None)], true),
    ] {
        let registry = registry(rows);
        let ring = KeyRing::of(&registry, &service()).unwrap();
        assert_eq!(ring.is_due(NOW), due, "{rows:?}");
        let all = KeyRing::all(&registry);
        assert_eq!(all.len(), if rows.is_empty() { 0 } else { 2 }, "one for each service with keys");
        assert!(all.iter().all(|ring| ring.keys().len() == rows.len() && ring.is_due(NOW) == due));
    }
}

/// REG-12
#[test]
fn revoked_current_key_is_replaced() {
    let rows = [(1, -30, Some(3), None), (2, -5, None, None)];
    for (number, next, expected) in [
        (2, Some(sealed()), "1 previous until 3, 2 revoked, 3 current"),
        (2, None, "1 current until 3, 2 revoked"),
        (1, Some(sealed()), "1 revoked until 3, 2 current"),
    ] {
        let registry = registry(&rows);
        let ring = KeyRing::of(&registry, &service()).unwrap();
        let revoked = ring.revoke(&version(number), next, NOW).expect("there is such a key");
        let after = after(&registry, revoked.wishes);
        assert_eq!(describe(&after, NOW), expected);
        assert_eq!(revoked.replacement.is_some(), expected.contains("3 current"));
        assert!(!after.service("acme/bot").unwrap().key(&version(number)).unwrap().is_good(NOW));
        let again = KeyRing::of(&after, &service()).unwrap();
        let again = again.revoke(&version(number), Some(sealed()), days(1)).unwrap();
        let has_no_effect =
            |wish: &Wish| matches!(wish, Wish::Put(entry) if after.get(&entry.key()) == Some(entry));
        assert!(again.wishes.iter().all(has_no_effect) && again.replacement.is_none(), "once is enough");
    }
    let registry = registry(&rows);
    let ring = KeyRing::of(&registry, &service()).unwrap();
    assert!(ring.revoke(&version(9), Some(sealed()), NOW).is_none());
    assert!(KeyRing::of(&registry, &"acme/nobody".parse().unwrap()).is_none());
}

/// REG-12
#[test]
fn ending_keys_are_accepted_now_and_refused_later() {
    let two_days = Duration::from_secs(2 * 86_400);
    for (ends, soon) in
        [(None, false), (Some(-1), false), (Some(0), false), (Some(2), true), (Some(3), false)]
    {
        let registry = registry(&[(1, -30, ends, None), (2, -5, None, None)]);
        let ring = KeyRing::of(&registry, &service()).unwrap();
        assert_eq!(ring.ending(two_days, NOW).count() == 1, soon, "{ends:?}");
    }
}
