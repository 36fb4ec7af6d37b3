use proptest::prelude::*;

use super::*;
use crate::registry::{EntryEvidence, LoggedChange, SealingKey, Signer};
use crate::time::Timestamp;

const KEY: [u8; 32] = [7; 32];

fn key_text(n: i64) -> String {
    format!(r#"{{"kind":"key","service":"acme/s{n}","version":"hmac-v1","secret":"v1.abc{n}"}}"#)
}

fn logged(version: i64) -> LoggedChange {
    LoggedChange {
        version,
        at: Timestamp(1_800_000_000_000 + version),
        who: "operator".into(),
        why: format!("step {version}"),
        kind: "key".into(),
        name: format!("acme/s{version}:hmac-v1"),
        before: (version % 3 == 0).then(|| key_text(version - 1)),
        after: (version % 4 != 0).then(|| key_text(version)),
    }
}

/// A changelog as stored, and its chain: seals of three changes each, and two unsealed changes.
fn chain() -> (Vec<LoggedChange>, Vec<Seal>) {
    let changes: Vec<_> = (1..=11).map(logged).collect();
    let seals = seals(&changes[..9], &SealingKey::from_bytes(&KEY));
    (changes, seals)
}

fn seals(changes: &[LoggedChange], signer: &dyn Signer) -> Vec<Seal> {
    let mut seals: Vec<Seal> = Vec::new();
    for (part, at) in changes.chunks(3).zip(0..) {
        let evidence: Vec<_> = part.iter().map(LoggedChange::evidence).collect();
        seals.push(Seal::next(seals.last(), &evidence, Timestamp(at), signer).unwrap());
    }
    seals
}

fn key_of(secret: [u8; 32]) -> PublicKey {
    SealingKey::from_bytes(&secret).public_key()
}

fn verified(seals: &[Seal], changes: &[LoggedChange]) -> Result<Verified, Fault> {
    let evidence: Vec<_> = changes.iter().map(LoggedChange::evidence).collect();
    verify(seals, &evidence, 11, &[key_of(KEY)], None)
}

/// REG-5
#[test]
fn intact_chain_verifies_and_names_unsealed_changes() {
    let (changes, seals) = chain();
    let sound = verified(&seals, &changes).unwrap();
    assert_eq!((sound.seals, sound.sealed_version, sound.version), (3, 9, 11));
    assert_eq!(sound.head, seals[2].head_digest());
    assert_eq!(sound.unsealed(), Some((10, 11)));
    let all: Vec<_> = changes[..9].iter().map(LoggedChange::evidence).collect();
    assert_eq!(verify(&seals, &all, 9, &[key_of(KEY)], None).unwrap().unsealed(), None);
    assert_eq!(verify(&[], &[], 0, &[], None), Ok(Verified::default()));
    for seal in &seals {
        assert!(verify(&seals, &all, 9, &[key_of(KEY)], seal.head_digest()).is_ok());
    }
}

/// REG-5
#[test]
fn each_kind_of_tampering_has_its_own_fault() {
    type Tampering = fn(&mut Vec<LoggedChange>, &mut Vec<Seal>);
    let table: [(Tampering, Fault); 14] = [
        (|changes, _| drop(changes.remove(4)), Fault::ChangeMissing { version: 5 }),
        (|changes, _| drop(changes.remove(10)), Fault::ChangeMissing { version: 11 }),
        (|changes, _| changes.truncate(7), Fault::ChangeMissing { version: 8 }),
        (|changes, _| changes.clear(), Fault::ChangeMissing { version: 1 }),
        (|changes, _| changes[4].why = "no reason".into(), Fault::ChangeAltered { version: 5 }),
        (|changes, _| changes[4].after = None, Fault::ChangeAltered { version: 5 }),
        (
            |changes, _| {
                changes.remove(1);
                (1..).zip(changes).for_each(|(version, change)| change.version = version);
            },
            Fault::ChangeMoved { version: 3, found_at: 2 },
        ),
        (
            |changes, _| {
                changes.swap(3, 5);
                (1..).zip(changes).for_each(|(version, change)| change.version = version);
            },
            Fault::ChangeMoved { version: 6, found_at: 4 },
        ),
        (|_, seals| drop(seals.remove(1)), Fault::SealMissing { number: 2 }),
        (|_, seals| seals[1].at = Timestamp(5), Fault::SealAltered { number: 2 }),
        (|_, seals| seals[1].signature[40] ^= 1, Fault::SignatureWrong { number: 2 }),
        (
            |_, seals| {
                seals.remove(0);
                (1..).zip(seals).for_each(|(number, seal)| seal.number = number);
            },
            Fault::SealAltered { number: 1 },
        ),
        (
            |changes, chain| {
                changes[0].who = "nobody".into();
                *chain = seals(changes, &SealingKey::from_bytes(&[8; 32]));
            },
            Fault::KeyUnknown { number: 1, key: key_of([8; 32]) },
        ),
        (
            // The seal names the right key, but was signed without it.
            |changes, chain| {
                changes[0].who = "nobody".into();
                *chain = seals(changes, &Impostor);
            },
            Fault::SignatureWrong { number: 1 },
        ),
    ];
    for (tamper, fault) in table {
        let (mut changes, mut seals) = chain();
        tamper(&mut changes, &mut seals);
        assert_eq!(verified(&seals, &changes), Err(fault));
    }
}

struct Impostor;

impl Signer for Impostor {
    fn public_key(&self) -> PublicKey {
        key_of(KEY)
    }

    fn sign(&self, text: &[u8]) -> [u8; 64] {
        SealingKey::from_bytes(&[8; 32]).sign(text)
    }
}

/// REG-5: an attacker who cuts the chain off and has the key can seal the rest again. Only a head that was
/// noted elsewhere reveals it.
#[test]
fn noted_head_reveals_a_cut_chain() {
    let (mut changes, sealed) = chain();
    let noted = sealed[2].head_digest();
    changes[8].why = "altered meanwhile".into();
    let mut again = sealed[..2].to_vec();
    let evidence: Vec<_> = changes.iter().map(LoggedChange::evidence).collect();
    let signer = SealingKey::from_bytes(&KEY);
    again.push(Seal::next(again.last(), &evidence[6..9], Timestamp(9), &signer).unwrap());
    assert!(verified(&again, &changes).is_ok(), "the chain itself reveals nothing");
    for chain in [&again[..], &again[..2], &[]] {
        let result = verify(chain, &evidence, 11, &[key_of(KEY)], noted);
        assert_eq!(result, Err(Fault::HeadMissing { head: noted.unwrap() }));
    }
}

/// REG-5, REG-13
#[test]
fn chain_with_a_changed_platform_key_needs_both_keys() {
    let (changes, mut sealed) = chain();
    let evidence: Vec<_> = changes.iter().map(LoggedChange::evidence).collect();
    let next = SealingKey::from_bytes(&[8; 32]);
    sealed.push(Seal::next(sealed.last(), &evidence[9..], Timestamp(9), &next).unwrap());
    let keys = [key_of(KEY), key_of([8; 32])];
    assert_eq!(verify(&sealed, &evidence, 11, &keys, None).unwrap().sealed_version, 11);
    let result = verify(&sealed, &evidence, 11, &keys[..1], None);
    assert_eq!(result, Err(Fault::KeyUnknown { number: 4, key: keys[1] }));
}

/// REG-5
#[test]
fn gap_in_changes_cannot_be_sealed() {
    let (changes, sealed) = chain();
    let signer = SealingKey::from_bytes(&KEY);
    let missing = Seal::next(sealed.last(), &[changes[10].evidence()], Timestamp(0), &signer);
    assert_eq!(missing, Err(Fault::ChangeMissing { version: 10 }));
    let headless = Seal { head: vec![1, 2], ..sealed[2].clone() };
    let altered = Seal::next(Some(&headless), &[changes[9].evidence()], Timestamp(0), &signer);
    assert_eq!(altered, Err(Fault::SealAltered { number: 3 }));
}

/// REG-5, REG-13
#[test]
fn evidence_shows_no_secret_but_depends_on_it() {
    let mut change = logged(5);
    let shown = serde_json::to_string(&change.evidence()).unwrap();
    assert!(!shown.contains("abc5") && shown.contains("acme/s5"), "{shown}");
    let digest = change.evidence().digest();
    let again: Evidence = serde_json::from_str(&shown).unwrap();
    assert_eq!(again.digest(), digest);
    change.after = change.after.map(|text| text.replace("abc5", "abc6"));
    assert_ne!(change.evidence().digest(), digest);
    let client = r#"{"kind":"client","id":"c","secret_hash":"00ff"}"#;
    assert!(!EntryEvidence::of(client).text.contains("00ff"));
    let unreadable = EntryEvidence::of(r#"{"secret":"00ff","#);
    assert_eq!((unreadable.text.as_str(), unreadable.secret_digest.is_some()), ("", true));
}

/// REG-5: the digest of a change is the same on every machine and in every later version.
#[test]
fn digests_and_heads_never_change() {
    let (changes, seals) = chain();
    // Computed by another program from the guide's description of the format.
    let digest = "6e0cf933f681b4daea786754149e495f7c1d11afe71e6fcaaffa4bcd83dc86c7";
    assert_eq!(changes[4].evidence().digest().to_string(), digest);
    let head = "ceb41c635242734cea7e00f4eec6646204c02e916eec13c659203d9a18f1420e";
    assert_eq!(seals[2].head_digest().unwrap().to_string(), head);
}

/// Flips a bit. Returns false if the result is not a text, which a store could not keep.
fn flip(text: &mut String, at: usize, bit: u8) -> bool {
    let mut bytes = text.clone().into_bytes();
    let Some(byte) = bytes.get_mut(at) else { return false };
    *byte ^= 1 << bit;
    String::from_utf8(bytes).map(|flipped| *text = flipped).is_ok()
}

proptest! {
    /// REG-5
    #[test]
    fn any_changed_bit_of_a_sealed_change_is_found(
        version in 0..9_usize, member in 0..8_usize, at in 0..120_usize, bit in 0..8_u8, number in 0..63_u32,
    ) {
        let (mut changes, seals) = chain();
        let change = &mut changes[version];
        let changed = match member {
            0 => { change.version ^= 1 << number; true }
            1 => { change.at.0 ^= 1 << number; true }
            2 => flip(&mut change.who, at % 8, bit),
            3 => { let length = change.why.len(); flip(&mut change.why, at % length, bit) }
            4 => flip(&mut change.kind, at % 3, bit),
            5 => { let length = change.name.len(); flip(&mut change.name, at % length, bit) }
            6 => change.before.as_mut().is_some_and(|text| flip(text, at % text.len().max(1), bit)),
            _ => change.after.as_mut().is_some_and(|text| flip(text, at % text.len().max(1), bit)),
        };
        prop_assert_eq!(verified(&seals, &changes).is_err(), changed, "{:?}", changes[version]);
    }

    /// REG-5
    #[test]
    fn any_changed_bit_of_a_seal_is_found(
        seal in 0..3_usize, member in 0..6_usize, at in 0..400_usize, bit in 0..8_u8, number in 0..63_u32,
    ) {
        let (changes, mut seals) = chain();
        let tampered = &mut seals[seal];
        match member {
            0 => tampered.number ^= 1 << number,
            1 => tampered.first_version ^= 1 << number,
            2 => tampered.last_version ^= 1 << number,
            3 => tampered.at.0 ^= 1 << number,
            4 => tampered.head[at % 32] ^= 1 << bit,
            _ => { let length = tampered.signature.len(); tampered.signature[at % length] ^= 1 << bit }
        }
        prop_assert!(verified(&seals, &changes).is_err());
    }

    /// REG-5
    #[test]
    fn truncated_seal_is_found(seal in 0..3_usize, left in 0..200_usize) {
        let (changes, mut seals) = chain();
        let length = seals[seal].signature.len();
        seals[seal].signature.truncate(left % length);
        prop_assert!(verified(&seals, &changes).is_err());
    }
}

/// REG-5: a restored store continues above the versions that it may have lost.
#[test]
fn skipped_versions_are_sealed_and_reported() {
    let signer = SealingKey::from_bytes(&KEY);
    let (mut changes, mut chain) = chain();
    let restored = Skipped { first: 12, last: 1011 };
    changes.extend([1012, 1013].map(logged));
    let evidence: Vec<_> = changes.iter().map(LoggedChange::evidence).collect();
    let walk = |seals: &[Seal], skips: &[Skipped], version| {
        let mut verifier = Verifier::new(vec![key_of(KEY)], None, skips.to_vec());
        let mut left = evidence.iter();
        for seal in seals {
            verifier.seal(seal)?;
            while verifier.wants_changes() {
                verifier.change(left.next().unwrap())?;
            }
        }
        left.try_for_each(|change| verifier.change(change))?;
        verifier.end(version)
    };
    assert_eq!(walk(&chain, &[], 1013), Err(Fault::ChangeMissing { version: 12 }), "no note of a restore");
    let other = Skipped { first: 12, last: 1010 };
    assert_eq!(walk(&chain, &[other], 1013), Err(Fault::ChangeMissing { version: 1011 }));
    let not_sealed = walk(&chain, &[restored], 1013).unwrap();
    assert_eq!((not_sealed.version, &not_sealed.skipped[..]), (1013, &[restored][..]));
    assert_eq!(not_sealed.unsealed(), Some((10, 1013)));

    chain.push(Seal::next(chain.last(), &evidence[9..], Timestamp(9), &signer).unwrap());
    assert_eq!(chain[3].last_version, 11, "the seal ends at the gap");
    let none = Seal::next(chain.last(), &evidence[11..], Timestamp(9), &signer);
    assert_eq!(none, Err(Fault::ChangeMissing { version: 12 }));
    let wrong = Seal::skip(chain.last(), Skipped { first: 13, last: 1011 }, Timestamp(9), &signer);
    assert_eq!(wrong, Err(Fault::ChangeMissing { version: 12 }));
    chain.push(Seal::skip(chain.last(), restored, Timestamp(10), &signer).unwrap());
    chain.push(Seal::next(chain.last(), &evidence[11..], Timestamp(11), &signer).unwrap());
    // The sealed skip needs no note any more.
    let sealed = walk(&chain, &[], 1013).unwrap();
    assert_eq!((sealed.seals, sealed.sealed_version, &sealed.skipped[..]), (6, 1013, &[restored][..]));
    // The gateway never makes a change with a skipped version.
    let within = || {
        let mut verifier = Verifier::new(vec![key_of(KEY)], None, vec![restored]);
        evidence[..11].iter().try_for_each(|change| verifier.change(change))?;
        verifier.change(&logged(1012).evidence())?;
        verifier.change(&logged(500).evidence())
    };
    assert_eq!(within(), Err(Fault::ChangeSkipped { version: 500 }));
    let far = Skipped { first: 12, last: 999_999 };
    let mut verifier = Verifier::new(vec![key_of(KEY)], None, vec![far]);
    evidence[..11].iter().for_each(|change| verifier.change(change).unwrap());
    assert_eq!(verifier.end(11), Err(Fault::SkippedTooFar { last: 999_999, version: 11 }));
    // A sealed skip cannot be extended over sealed changes.
    chain[4].last_version = 1012;
    assert_eq!(walk(&chain, &[], 1013), Err(Fault::SealAltered { number: 5 }));
}

/// REG-5
#[test]
fn skip_note_is_read_as_written() {
    let skipped = Skipped { first: 8, last: 1007 };
    let (name, value) = skipped.note();
    assert_eq!((name.as_str(), value.as_str()), ("registry/skipped/8", "1007"));
    assert_eq!(Skipped::of_note(&name, &value), Some(skipped));
    for (name, value) in [
        ("registry/skipped/8", "9223372036854775807"),
        ("registry/skipped/8", "7"),
        ("registry/skipped/x", "9"),
        ("other/8", "9"),
    ] {
        assert_eq!(Skipped::of_note(name, value), None, "{name} {value}");
    }
}
