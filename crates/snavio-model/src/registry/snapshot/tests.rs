use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::bounds;
use crate::registry::{Entry, EntryKey, Kind, Registry, Sealed, Unseal};
use crate::signature::ed25519::SigningKey;
use crate::signature::signing::Secret;

const NOON: Timestamp = Timestamp(1_800_000_000_000);
const HOUR: Duration = Duration::from_secs(3600);

struct NoKeys;

impl Unseal for NoKeys {
    fn unseal(&self, _: &Sealed) -> Option<Secret> {
        None
    }
}

fn key() -> SigningKey {
    SigningKey::from_seed(&[1; 32])
}

fn entry(text: &str) -> Entry {
    serde_json::from_str(text).unwrap()
}

/// One entry of every kind, each after the entries that it refers to.
fn one_of_each() -> Vec<Entry> {
    [
        r#"{"kind":"tenant","name":"acme","contact":"ops@acme.example"}"#,
        r#"{"kind":"service","name":"acme/bot","key_days":20}"#,
        r#"{"kind":"service","name":"acme/billing"}"#,
        r#"{"kind":"key","service":"acme/bot","version":"hmac-v1","secret":"v1.AAAA","created_at":1}"#,
        r#"{"kind":"client","id":"c1","service":"acme/bot","secret_hash":"00","created_at":1}"#,
        r#"{"kind":"route","target":"acme/bot","name":"pay","queue":"q","dead_letter_queue":"d","profile":"critical"}"#,
        r#"{"kind":"event_type","owner":"acme/bot","name":"paid","version":"2.0"}"#,
        r#"{"kind":"grant","source":"acme/billing","target":"acme/bot","name":"pay"}"#,
        r#"{"kind":"subscription","target":"acme/billing","events_of":"acme/bot","name":"paid","queue":"q","dead_letter_queue":"d"}"#,
        r#"{"kind":"push_secret","destination":"acme/bot:pay","secret":"v1.AAAA","created_at":1,"previous_secret":"v1.BBBB","previous_until":2}"#,
        r#"{"kind":"personal_token","id":"t1","person":"Ann","role":"auditor","secret_hash":"00","created_at":1,"expires_at":2}"#,
        r#"{"kind":"grant_request","source":"acme/billing","target":"acme/bot","name":"tell","asked_by":"Ann","asked_at":1}"#,
        r#"{"kind":"issuer","issuer":"https://i.example","audience":"snavio","keys":{"file":"/k"}}"#,
        r#"{"kind":"workload","issuer":"https://i.example","subject":"w","service":"acme/bot"}"#,
        r#"{"kind":"ban","source":"acme/billing","reason":"flood"}"#,
        r#"{"kind":"adapter","name":"pay","service":"acme/bot","source":"pay","event_type":"paid","external_id":[{"pointer":"/id"}],"verification":{"scheme":"stripe"},"secrets":["v2.x.AAAA"]}"#,
    ]
    .map(entry)
    .into()
}

fn lines(entries: &[Entry]) -> Vec<u8> {
    let mut lines = Vec::new();
    entries.iter().for_each(|entry| write_entry(entry, &mut lines).unwrap());
    lines
}

/// An object as a writer makes it, but not packed.
fn object(version: i64, entries: &[Entry]) -> (Object, Vec<u8>) {
    let lines = lines(entries);
    let bytes = [header(version).as_bytes(), &lines].concat();
    let (key, digest) = object_key(version, &bytes);
    let object = Object {
        key,
        kind: entries[0].key().kind,
        digest,
        bytes: bytes.len() as u64,
        text_bytes: lines.len() as u64,
        entries: entries.len() as u64,
    };
    (object, bytes)
}

fn manifest() -> Manifest {
    let mut manifest = Manifest::new(7, NOON, "prod", HOUR);
    manifest.objects = vec![object(7, &one_of_each()[..1]).0];
    manifest
}

fn standard() -> Standard<'static> {
    Standard { floor: 7, environment: "prod", now: NOON, bytes_max: 1_000_000 }
}

fn judge_published(published: &[u8], standard: &Standard<'_>) -> &'static str {
    let judged = verify(published, &key().verifying()).and_then(|manifest| manifest.judge(standard));
    judged.map_or_else(|fault| fault.cause(), |()| "good")
}

fn standard_after(seconds: u64) -> Standard<'static> {
    Standard { now: NOON.plus(Duration::from_secs(seconds)), ..standard() }
}
/// REG-21
#[test]
fn each_manifest_fault_has_its_own_cause() {
    let published = |change: &dyn Fn(&mut Manifest)| {
        let mut manifest = manifest();
        change(&mut manifest);
        publish(&manifest, &key()).unwrap()
    };
    let good = published(&|_| {});
    let text = String::from_utf8(good.clone()).unwrap();
    let key_of = |key: &str| published(&|manifest| manifest.objects[0].key = key.to_owned());
    let huge = bounds::SNAPSHOT_OBJECT_BYTES_MAX as u64 + 1;
    for (word, published, standard) in [
        ("good", good.clone(), standard()),
        ("good", good.clone(), standard_after(3599)),
        ("good", good.clone(), Standard { floor: 0, ..standard() }),
        ("good", published(&|manifest| manifest.audit_head = Some("abc".to_owned())), standard()),
        ("wrong_signature", publish(&manifest(), &SigningKey::from_seed(&[2; 32])).unwrap(), standard()),
        ("wrong_signature", text.replace(r#""version_id":7"#, r#""version_id":8"#).into_bytes(), standard()),
        ("wrong_signature", text.replace(r#""version_id":7"#, r#""version_id": 7"#).into_bytes(), standard()),
        ("wrong_signature", br#"{"manifest":{},"signature":"-"}"#.to_vec(), standard()),
        ("rolled_back", good.clone(), Standard { floor: 8, ..standard() }),
        ("other_environment", good.clone(), Standard { environment: "test", ..standard() }),
        ("expired", good.clone(), standard_after(3600)),
        ("expired", published(&|manifest| manifest.generated_at = NOON.minus(HOUR)), standard()),
        ("malformed", published(&|manifest| manifest.generated_at = NOON.plus(HOUR)), standard()),
        ("malformed", published(&|manifest| manifest.format = 2), standard()),
        ("malformed", key_of("registry/7/../../etc/passwd"), standard()),
        ("malformed", key_of("registry/+7/ab"), standard()),
        ("malformed", key_of("latest.json"), standard()),
        ("malformed", good[..good.len() / 2].to_vec(), standard()),
        ("malformed", Vec::new(), standard()),
        ("oversized", good.clone(), Standard { bytes_max: 10, ..standard() }),
        (
            "oversized",
            published(&|manifest| manifest.objects[0].text_bytes = huge),
            Standard { bytes_max: u64::MAX, ..standard() },
        ),
        (
            "oversized",
            published(&|manifest| {
                manifest.objects.extend(vec![manifest.objects[0].clone(); 2_000_000 / 40]);
            }),
            standard(),
        ),
        ("oversized", vec![b' '; bounds::SNAPSHOT_MANIFEST_BYTES_MAX + 1], standard()),
        ("mixed", key_of("registry/6/ab"), standard()),
        ("incomplete", published(&|manifest| manifest.left_out = vec!["acme".to_owned()]), standard()),
    ] {
        let start = String::from_utf8_lossy(&published[..published.len().min(200)]).into_owned();
        assert_eq!(judge_published(&published, &standard), word, "{standard:?} {start}");
    }
}

/// REG-21
#[test]
fn each_object_fault_has_its_own_cause() {
    let entries = &one_of_each()[..1];
    let (named, bytes) = object(7, entries);
    let (older, older_bytes) = object(6, entries);
    let mut changed = bytes.clone();
    *changed.last_mut().unwrap() ^= 1;
    let headless = b"no header".to_vec();
    let (_, digest) = object_key(7, &headless);
    let headless_named = Object { digest, bytes: 9, ..named.clone() };
    let padded = [&bytes[..], b" "].concat();
    for (word, named, bytes) in [
        ("good", &named, &bytes),
        ("wrong_digest", &named, &changed),
        ("wrong_digest", &named, &padded),
        ("truncated", &named, &bytes[..bytes.len() - 1].to_vec()),
        ("truncated", &named, &Vec::new()),
        ("mixed", &named, &older_bytes),
        ("mixed", &older, &older_bytes),
        ("malformed", &headless_named, &headless),
    ] {
        let judged = judge_object(named, 7, bytes);
        assert_eq!(judged.map_or_else(|fault| fault.cause(), |_| "good"), word, "{named:?}");
    }
}

/// REG-20, REG-21
#[test]
fn entries_are_read_as_written() {
    for entry in one_of_each() {
        let (object, _) = object(7, std::slice::from_ref(&entry));
        assert_eq!(read_entries(&object, &lines(std::slice::from_ref(&entry))).unwrap(), [entry]);
    }
    let kinds: BTreeSet<_> = one_of_each().iter().map(|entry| entry.key().kind).collect();
    assert_eq!(kinds.len(), Kind::ALL.len(), "every kind is written and read");

    let (named, _) = object(7, &one_of_each()[..1]);
    let good = lines(&one_of_each()[..1]);
    let cut = good[..good.len() - 1].to_vec();
    let twice = [&good[..], &good].concat();
    let long = [b"\"".repeat(bounds::SNAPSHOT_ENTRY_BYTES_MAX), b"\n".to_vec()].concat();
    for (wrong, of_kind) in [
        (cut, Kind::Tenant),
        (twice, Kind::Tenant),
        (long, Kind::Tenant),
        (good, Kind::Route),
        (b"{}\n".to_vec(), Kind::Tenant),
        (b"\xff\n".to_vec(), Kind::Tenant),
    ] {
        let object = Object { kind: of_kind, text_bytes: wrong.len() as u64, ..named.clone() };
        assert_eq!(read_entries(&object, &wrong).unwrap_err().cause(), "malformed");
    }
}

/// REG-22
#[test]
fn entry_requires_its_references() {
    let none = BTreeSet::new();
    let mut registry = Registry::default();
    for entry in one_of_each() {
        let alone = Scope { registry: &Registry::default(), left_out: &none }.problem(&entry);
        let needs_none = matches!(entry.key().kind, Kind::Tenant | Kind::Issuer | Kind::PersonalToken);
        assert_eq!(alone.is_none(), needs_none, "{entry:?}");
        assert_eq!(Scope { registry: &registry, left_out: &none }.problem(&entry), None, "{entry:?}");
        registry.put(entry, &NoKeys);
    }
    let left_out = BTreeSet::from(["acme".to_owned()]);
    let grant = registry.get(&EntryKey { kind: Kind::Grant, name: "acme/billing>acme/bot:pay".to_owned() });
    assert!(Scope { registry: &registry, left_out: &left_out }.problem(grant.unwrap()).is_some());
    // A grant request to another tenant's service is valid whether or not the service exists (REG-8).
    for (target, fits) in [("zeta/none", true), ("acme/none", false)] {
        let names = format!(r#""source":"acme/billing","target":"{target}","name":"tell""#);
        let asked = entry(&format!(r#"{{"kind":"grant_request",{names},"asked_by":"Ann","asked_at":1}}"#));
        let problem = Scope { registry: &registry, left_out: &none }.problem(&asked);
        assert_eq!(problem.is_none(), fits, "{problem:?}");
    }
    let mut tenant = one_of_each().swap_remove(0);
    if let Entry::Tenant(tenant) = &mut tenant {
        tenant.contact = Some("x".repeat(bounds::CONTACT_CHARS_MAX + 1));
    }
    assert!(Scope { registry: &registry, left_out: &none }.problem(&tenant).is_some());
}

/// REG-21
#[test]
fn changes_of_one_version_have_distinct_trails() {
    let entry = one_of_each().swap_remove(0);
    let change = Change {
        version: 3,
        at: NOON,
        who: "ann".to_owned(),
        why: "new".to_owned(),
        key: entry.key(),
        before: None,
        after: Some(entry),
    };
    assert_eq!(trail(&change), trail(&change.clone()));
    let others = [
        Change { version: 4, ..change.clone() },
        Change { at: Timestamp(0), ..change.clone() },
        Change { who: "annn".to_owned(), why: "ew".to_owned(), ..change.clone() },
        Change { key: EntryKey { kind: Kind::Ban, name: "acme".to_owned() }, ..change.clone() },
    ];
    for other in others {
        assert_ne!(trail(&other), trail(&change), "{other:?}");
    }
}
