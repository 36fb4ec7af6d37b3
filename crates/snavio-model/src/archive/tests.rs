use std::time::Duration;

use bytes::Bytes;

use super::cooling::{Needed, Stays, stays};
use super::hold::{Held, Hold, InForce, Lifted};
use super::*;
use crate::claim::{Claim, ClaimKey, Progress, Status};
use crate::hash::DomainHash;
use crate::id::MessageId;
use crate::message::event::EventEnvelope;
use crate::message::trace::{CorrelationId, Traceparent};

const DAY: u64 = 86_400;

fn record(number: i64, payload: &'static [u8]) -> Record {
    let message = Message {
        tenant: "acme".parse().unwrap(),
        id: MessageId::stored(&format!("id \"{number}\"")),
        source: "acme/billing".parse().unwrap(),
        target: "acme/gl".parse().unwrap(),
        name: "post".parse().unwrap(),
        signed_target: "gl".into(),
        sent_at: "2026-11-15T09:30:00+01:00".into(),
        key_version: Some("hmac-v1".parse().unwrap()),
        signature: "ab".repeat(32).into(),
        correlation: CorrelationId::from_random([7; 16]),
        traceparent: Traceparent::from_random([7; 24]),
        received_at: Timestamp(1_794_731_400_000),
        registry_version: 5,
        domain_hash: DomainHash([9; 32]),
        payload: Bytes::from_static(payload),
        event: None,
    };
    let answer = Answer { status: 201, content_type: Some("text/plain".to_owned()), body: "\u{0}é".into() };
    let destination: Arc<str> = "acme/gl:post".into();
    let (expires_at, delivery) = (Timestamp(9), Some(Serial(number + 1)));
    Record {
        number: Serial(number),
        path: Path::Slow,
        settled_at: Timestamp(1_794_731_400_001),
        hash_version: 1,
        message,
        claims: vec![ArchivedClaim { destination, expires_at, delivery, answer: Some(answer) }],
        erased_at: None,
    }
}

fn event(number: i64) -> Record {
    let mut record = record(number, br#"{"a": 1.0}"#);
    record.message.key_version = None;
    record.message.event = Some(Arc::new(EventEnvelope {
        version: "2.1".parse().unwrap(),
        timestamp: "2019-11-15T09:30:00.5+01:00".to_owned(),
        metadata: Some(r#"{ "userId":"u-1", "é": 1.0 }"#.to_owned()),
    }));
    record.claims.push(ArchivedClaim {
        destination: "umbrella/audit:posted".into(),
        expires_at: Timestamp(8),
        delivery: None,
        answer: None,
    });
    record
}

/// CLM-16, CLM-18
#[test]
fn segment_reads_back_and_is_written_deterministically() {
    let records = [record(1, b"{ \"amount\": 10.00 }\n"), event(4), record(9, b"\xff\x00")];
    let segment = segment::write(&records).unwrap();
    assert_eq!(segment::write(&records).unwrap(), segment);
    assert!(segment.key.starts_with("claims/2026/11/15/"), "{}", segment.key);
    assert_eq!(segment::read(&segment.key, &segment.text).unwrap(), records);
    let pointed = segment::read_pointed(&segment.key, &segment.text).unwrap();
    assert_eq!(pointed, segment.pointers.iter().cloned().zip(records.clone()).collect::<Vec<_>>());
    for (pointer, record) in segment.pointers.iter().zip(&records) {
        assert_eq!(Pointer::parse(&pointer.to_string()).as_ref(), Some(pointer));
        assert_eq!(segment::find(pointer, &segment.text).as_ref(), Ok(record));
    }
    assert_eq!(segment::write(&[]), None);
}

/// CLM-17: the pointer beside a claim says whether a response exists, unless an older version wrote it.
#[test]
fn claim_pointer_says_whether_a_response_exists() {
    let record = segment::write(&[record(1, b"1")]).unwrap().pointers.remove(0);
    let answer = Answer { status: 422, content_type: None, body: Bytes::new() };
    for (pointer, ending, answered) in [
        (ClaimPointer::new(record.clone(), Some(&answer)), ":422", Answered::With(422)),
        (ClaimPointer::new(record.clone(), None), ":-", Answered::No),
        (ClaimPointer { record: record.clone(), answered: Answered::Unsaid }, "", Answered::Unsaid),
    ] {
        assert_eq!(pointer.to_string(), format!("{record}{ending}"));
        let read = ClaimPointer::parse(&pointer.to_string()).unwrap();
        assert_eq!((read.answered, &read), (answered, &pointer));
    }
    for text in [format!("{record}:"), format!("{record}:0422"), format!("{record}:x"), "a#1:00:-".to_owned()]
    {
        assert_eq!(ClaimPointer::parse(&text), None, "{text}");
    }
}

/// CLM-16
#[test]
fn record_belongs_to_one_message_only() {
    let id = IdKey { id: MessageId::stored("id \"1\""), tenant: "acme".parse().unwrap() };
    let first = record(1, b"1");
    assert!(first.is_of(&id, Serial(1)));
    assert!(!first.is_of(&id, Serial(2)));
    assert!(!record(2, b"1").is_of(&id, Serial(2)));
    assert!(!first.is_of(&IdKey { tenant: "umbrella".parse().unwrap(), ..id }, Serial(1)));
}

/// CLM-18
#[test]
fn altered_segment_is_detected() {
    let segment = segment::write(&[record(1, b"1"), record(3, b"2")]).unwrap();
    for place in [0, 20, segment.text.len() / 2, segment.text.len() - 2] {
        let mut text = segment.text.clone();
        text[place] ^= 1;
        let altered = Fault::Altered { object: segment.key.clone() };
        assert_eq!(segment::read(&segment.key, &text), Err(altered.clone()), "at {place}");
        assert_eq!(segment::find(&segment.pointers[1], &text), Err(altered), "at {place}");
    }
    assert!(segment::read(&segment.key, &segment.text[..segment.text.len() - 1]).is_err());
    // The pointer of another record, and one past the end.
    let (one, other) = (&segment.pointers[0], &segment.pointers[1]);
    for wrong in [Pointer { place: 1, ..one.clone() }, Pointer { place: 2, ..other.clone() }] {
        let fault = Fault::Record { object: segment.key.clone(), place: wrong.place };
        assert_eq!(segment::find(&wrong, &segment.text), Err(fault));
    }
    for text in ["", "a", "a#1", "a#1:00", "a#x:00"] {
        assert_eq!(Pointer::parse(text), None, "{text}");
    }
}

/// CLM-18
#[test]
fn erased_record_keeps_hash_and_times_without_content() {
    let erased = event(4).erased(Timestamp(77));
    assert!(erased.message.payload.is_empty() && erased.message.is_erased());
    assert_eq!(erased.message.event.as_ref().unwrap().metadata, None);
    assert!(erased.answer("acme/gl:post").unwrap().body.is_empty());
    assert_eq!((erased.erased_at, erased.message.domain_hash), (Some(Timestamp(77)), DomainHash([9; 32])));
    assert!(!event(4).message.is_erased());
    let segment = segment::write(std::slice::from_ref(&erased)).unwrap();
    assert_eq!(segment::read(&segment.key, &segment.text).unwrap(), [erased]);
    assert!(!String::from_utf8(segment.text).unwrap().contains("userId"));
}

fn at(days: u64) -> Timestamp {
    Timestamp(0).plus(Duration::from_secs(days * DAY))
}

fn claim(hot_days: Option<u64>, status: Option<Status>) -> Claim {
    let progress = status.map(|status| Box::new(Progress { status, ..Progress::new(Serial(2)) }));
    Claim {
        source: "acme/billing".parse().unwrap(),
        message: Serial(1),
        first_seen_at: at(0),
        expires_at: at(2557),
        hot_until: hot_days.map(at),
        progress,
    }
}

/// CLM-15, CLM-18
#[test]
fn only_cold_finished_unneeded_messages_are_moved() {
    let none = Needed::default();
    let (again, for_good) = (Status::Failed { is_final: false }, Status::Failed { is_final: true });
    let cold = |status| claim(Some(400), Some(status));
    for (claims, needed, day, stay) in [
        (vec![claim(Some(400), None)], none, 399, Some(Stays::Hot)),
        (vec![claim(Some(400), None)], none, 400, None),
        (vec![cold(Status::Completed)], none, 401, None),
        (vec![cold(for_good)], none, 401, None),
        (vec![cold(Status::Processing)], none, 401, Some(Stays::Unfinished)),
        (vec![cold(again)], none, 401, Some(Stays::Unfinished)),
        (vec![cold(Status::InDoubt)], none, 401, Some(Stays::Unfinished)),
        // A message with several destinations stays until its last claim is cold and ended.
        (vec![cold(Status::Completed), claim(Some(500), None)], none, 401, Some(Stays::Hot)),
        (vec![cold(Status::Completed), claim(None, Some(again))], none, 401, Some(Stays::Unfinished)),
        (vec![cold(Status::Completed), claim(None, None)], none, 401, None),
        // Messages of other policies never move.
        (vec![claim(None, None)], none, 401, Some(Stays::Hot)),
        // Telemetry reads a message for fourteen days.
        (vec![claim(Some(1), None)], none, 13, Some(Stays::Hot)),
        (vec![claim(Some(1), None)], none, 14, None),
        (vec![claim(Some(1), None)], Needed { by_delivery: true, ..none }, 20, Some(Stays::Needed)),
        (vec![claim(Some(1), None)], Needed { by_dead_letter: true, ..none }, 20, Some(Stays::Needed)),
        (vec![claim(Some(1), None)], Needed { by_conflict: true, ..none }, 20, Some(Stays::Needed)),
        (vec![claim(Some(1), None)], Needed { by_its_hash: true, ..none }, 20, Some(Stays::Needed)),
    ] {
        assert_eq!(stays(at(0), &claims, needed, at(day)), stay, "day {day}: {claims:?} {needed:?}");
    }
}

/// CLM-18
#[test]
fn hold_covers_an_id_a_destination_or_a_tenant() {
    let hold = |tenant: &str, held| Hold {
        id: Serial(1),
        tenant: tenant.parse().unwrap(),
        held,
        who: String::new(),
        why: String::new(),
        at: Timestamp(0),
        lifted: None,
    };
    let key = ClaimKey {
        id: MessageId::stored("a"),
        tenant: "acme".parse().unwrap(),
        destination: "umbrella/audit:posted".into(),
    };
    for (legal_hold, is_held) in [
        (hold("acme", Held::Id(MessageId::stored("a"))), true),
        (hold("acme", Held::Id(MessageId::stored("b"))), false),
        (hold("umbrella", Held::Id(MessageId::stored("a"))), true),
        (hold("umbrella", Held::Id(MessageId::stored("b"))), false),
        (hold("umbre", Held::Id(MessageId::stored("a"))), false),
        (hold("umbrella", Held::Destination("umbrella/audit:posted".into())), true),
        (hold("umbrella", Held::Destination("umbrella/audit:other".into())), false),
        (hold("acme", Held::Tenant), true),
        (hold("umbrella", Held::Tenant), true),
        (hold("umbre", Held::Tenant), false),
    ] {
        assert_eq!(
            InForce::of([legal_hold.clone()]).on_claim(&key),
            is_held.then_some(legal_hold.id),
            "{legal_hold:?}"
        );
        let lifted = Lifted { who: String::new(), why: String::new(), at: Timestamp(1) };
        assert!(InForce::of([Hold { lifted: Some(lifted), ..legal_hold }]).is_empty());
    }
}
