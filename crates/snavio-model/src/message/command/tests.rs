//! The form of a command, member by member.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::bounds::BODY_BYTES_MAX;
use crate::id::MessageId;
use crate::message::trace::CorrelationId;
use crate::name::{CommandName, KeyVersion, ServiceName, TargetText};
use crate::refusal::{Reason, Refused};
use crate::signature::signing::{InvalidSignature, Secret, Signature};
use crate::time::Timestamp;

const ID: &str = "0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f";
const HMAC: &str = "64908b8b1e744c187800f55b00529821a50c2c99b38ef239d15dd4675668e134";

fn message() -> Value {
    json!({
        "metadata": {
            "id": ID,
            "timestamp": "2026-11-15T09:30:00.5+01:00",
            "type": "snavio.command-sent",
            "version_id": "hmac-v1",
            "hmac": HMAC,
            "correlation_id": "c-1",
        },
        "command": {"target": "acme/bot", "name": "notify-user", "payload": {"user": "u-1"}},
    })
}

/// The message with `member` of `part` set to `value`.
fn with(part: &str, member: &str, value: impl Into<Value>) -> String {
    let mut message = message();
    message[part][member] = value.into();
    message.to_string()
}

fn without(part: &str, member: &str) -> String {
    let mut message = message();
    message[part].as_object_mut().unwrap().remove(member);
    message.to_string()
}

fn refusal_of(body: impl AsRef<[u8]>) -> Refused {
    CommandEnvelope::parse(body.as_ref()).unwrap_err()
}

fn refusal_text(body: impl AsRef<[u8]>) -> String {
    refusal_of(body).refusal.to_string()
}

/// MSG-1
#[test]
fn command_is_read_with_all_its_members() {
    let body = message().to_string();
    let read = CommandEnvelope::parse(body.as_bytes()).unwrap();
    assert_eq!(read.id.as_str(), ID);
    assert_eq!(read.timestamp, Timestamp(1_794_731_400_500));
    assert_eq!(read.timestamp_text, "2026-11-15T09:30:00.5+01:00");
    assert_eq!(read.version_id, KeyVersion::new("hmac-v1").ok());
    assert_eq!(read.hmac, Some(Signature::parse(HMAC)));
    assert_eq!(read.correlation_id, CorrelationId::new("c-1"));
    assert_eq!(read.target.as_str(), "acme/bot");
    assert_eq!(read.name.as_str(), "notify-user");
    assert_eq!(read.payload.raw(), br#"{"user":"u-1"}"#);
}

/// MSG-1
#[test]
fn upper_case_id_is_kept_in_lower_case() {
    let body = with("metadata", "id", ID.to_uppercase());
    assert_eq!(CommandEnvelope::parse(body.as_bytes()).unwrap().id.as_str(), ID);
}

/// MSG-1
#[test]
fn escapes_and_white_space_in_the_envelope_do_not_matter() {
    let body =
        message().to_string().replace("\"id\"", " \"\\u0069d\" ").replace("acme/bot", "acme\\/b\\u006ft");
    let read = CommandEnvelope::parse(body.as_bytes()).unwrap();
    assert_eq!((read.id.as_str(), read.target.as_str()), (ID, "acme/bot"));
}

/// MSG-1, MSG-4
#[test]
fn signature_may_be_left_to_the_headers() {
    let body = without("metadata", "hmac");
    assert_eq!(CommandEnvelope::parse(body.as_bytes()).unwrap().hmac, None);
    let body = without("metadata", "version_id");
    assert_eq!(CommandEnvelope::parse(body.as_bytes()).unwrap().version_id, None);
}

/// MSG-3, QUA-4
#[test]
fn unreadable_signature_is_kept_for_a_later_check() {
    for hmac in ["", "zz", &HMAC[1..], &HMAC.to_uppercase(), "é"] {
        let body = with("metadata", "hmac", hmac);
        assert_eq!(
            CommandEnvelope::parse(body.as_bytes()).unwrap().hmac,
            Some(Err(InvalidSignature)),
            "{hmac}"
        );
    }
}

/// MSG-1
#[test]
fn payload_is_any_json_value_kept_unchanged() {
    for (payload, canonical) in
        [("null", "null"), ("[ 1.0 ]", "[1]"), ("\"\\u0041\"", "\"A\""), ("{ }", "{}")]
    {
        let body = message().to_string().replace(r#"{"user":"u-1"}"#, &format!(" {payload} "));
        let read = CommandEnvelope::parse(body.as_bytes()).unwrap();
        assert_eq!(read.payload.raw(), payload.as_bytes());
        assert_eq!(read.payload.canonical(), canonical.as_bytes());
    }
}

/// MSG-1, MSG-2, MSG-13, QUA-4
#[test]
fn wrong_member_is_refused_by_name() {
    let timestamp = "metadata.timestamp must be RFC 3339 with T and an offset, without a leap second";
    for (part, member, value, expected) in [
        ("metadata", "id", json!(7), "malformed: metadata.id must be a string"),
        ("metadata", "id", json!(null), "malformed: metadata.id must be a string"),
        ("metadata", "id", json!("x"), "invalid_id: metadata.id must be a hyphenated UUID that is not nil"),
        (
            "metadata",
            "id",
            json!("00000000-0000-0000-0000-000000000000"),
            "invalid_id: metadata.id must be a hyphenated UUID that is not nil",
        ),
        (
            "metadata",
            "timestamp",
            json!(1_794_731_400),
            "invalid_timestamp: metadata.timestamp must be a string",
        ),
        ("metadata", "timestamp", json!("2026-11-15T23:59:60Z"), &format!("invalid_timestamp: {timestamp}")),
        (
            "metadata",
            "timestamp",
            json!("2026-11-15T08:30:00Z\n"),
            &format!("invalid_timestamp: {timestamp}"),
        ),
        ("metadata", "type", json!("other"), "malformed: metadata.type must be snavio.command-sent"),
        ("metadata", "type", json!([]), "malformed: metadata.type must be a string"),
        (
            "metadata",
            "version_id",
            json!("a b"),
            "invalid_name: metadata.version_id: a key version must be 1 to 63 of a-z 0-9 . _ - beginning with a letter or digit",
        ),
        ("metadata", "hmac", json!(1), "malformed: metadata.hmac must be a string"),
        (
            "metadata",
            "correlation_id",
            json!(""),
            "malformed: metadata.correlation_id must be 1 to 128 printable ASCII characters",
        ),
        ("command", "target", json!({}), "malformed: command.target must be a string"),
        (
            "command",
            "target",
            json!("a/b/c"),
            "invalid_name: command.target: a target must be tenant/service or service, each 1 to 63 of a-z 0-9 . _ - beginning with a letter or digit",
        ),
        (
            "command",
            "name",
            json!("delete\nuser"),
            "invalid_name: command.name: a command's name must be 1 to 128 of A-Z a-z 0-9 . _ - beginning with a letter or digit",
        ),
        (
            "command",
            "source",
            json!("acme/billing"),
            "source_present: command.source must not be sent: the gateway sets it",
        ),
        (
            "command",
            "source",
            json!(null),
            "source_present: command.source must not be sent: the gateway sets it",
        ),
        (
            "metadata",
            "replayed",
            json!(true),
            "reserved_field: metadata.replayed is set by the platform only",
        ),
        ("metadata", "replay_id", json!(1), "reserved_field: metadata.replay_id is set by the platform only"),
        (
            "command",
            "replay_reason",
            json!(""),
            "reserved_field: command.replay_reason is set by the platform only",
        ),
        ("metadata", "traceId", json!(1), "unknown_field: metadata has no member traceId"),
        ("metadata", "source", json!(1), "unknown_field: metadata has no member source"),
        ("command", "Payload", json!(1), "unknown_field: command has no member Payload"),
        ("command", "<img onerror=x>", json!(1), "unknown_field: a member of command is unknown"),
        ("metadata", "", json!(1), "unknown_field: a member of metadata is unknown"),
    ] {
        let refused = refusal_of(with(part, member, value));
        assert_eq!(refused.refusal.to_string(), expected);
        assert_eq!(refused.subject.id.is_some(), member != "id", "{member}");
    }
    assert_eq!(
        refusal_text(with("metadata", &"x".repeat(41), 1)),
        "unknown_field: a member of metadata is unknown"
    );
}

/// MSG-1
#[test]
fn missing_member_is_named() {
    for (part, member) in [
        ("metadata", "id"),
        ("metadata", "timestamp"),
        ("metadata", "type"),
        ("command", "target"),
        ("command", "name"),
        ("command", "payload"),
    ] {
        assert_eq!(refusal_text(without(part, member)), format!("malformed: {part}.{member} is missing"));
    }
}

/// MSG-1, QUA-4
#[test]
fn document_of_another_form_is_malformed() {
    for (body, expected) in [
        ("{", "malformed: unexpected end at byte 1"),
        ("[]", "malformed: the message must be an object"),
        ("null", "malformed: the message must be an object"),
        ("{}", "malformed: metadata.type is missing"),
        (r#"{"metadata":[],"command":{}}"#, "malformed: metadata must be an object"),
        (r#"{"metadata":{},"command":"x"}"#, "malformed: command must be an object"),
        (r#"{"replayed":1}"#, "unknown_field: the message has no member replayed"),
        (r#"{"metadata":{},"metadata":{}}"#, "duplicate_member: repeated member name at byte 15"),
        (r#"{"metadata":{"x":1,"x":2}}"#, "duplicate_member: repeated member name at byte 19"),
        (r#"{"metadata":{"id":NaN}}"#, "malformed: unexpected character at byte 18"),
        (r#"{"metadata":{"id":"\ud800"}}"#, "malformed: lone surrogate at byte 19"),
    ] {
        assert_eq!(refusal_text(body), expected, "{body}");
    }
    assert_eq!(
        refusal_text(format!("{} ,", message())).split(" at ").next(),
        Some("malformed: trailing text")
    );
    assert_eq!(refusal_of(b"\xff").refusal.reason, Reason::Malformed);
}

/// MSG-10
#[test]
fn depth_counts_from_the_messages_own_brace() {
    let body = |levels: usize| {
        let payload = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        message().to_string().replace(r#"{"user":"u-1"}"#, &payload)
    };
    assert!(CommandEnvelope::parse(body(62).as_bytes()).is_ok());
    assert_eq!(refusal_of(body(63)).refusal.reason, Reason::TooDeep);
}

/// MSG-12
#[test]
fn refusal_has_the_ids_that_were_read() {
    let broken = message().to_string().replace("u-1\"}", "u-1\",}");
    let first = refusal_of(format!(r#"{{"metadata":{},{}"#, message()["metadata"], &broken[1..]));
    assert_eq!(first.refusal.reason, Reason::Malformed);
    assert_eq!(first.subject.id, MessageId::uuid(ID));
    assert_eq!(first.subject.correlation, CorrelationId::new("c-1"));

    // A wrong member does not stop the reading of the members after it.
    let late = r#"{"command":{"source":1},"metadata":{"x":1,"id":"0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f"}}"#;
    assert_eq!(refusal_of(late).subject.id, MessageId::uuid(ID));
    assert_eq!(refusal_of(b"{").subject.id, None);
}

/// PIP-1
#[test]
fn form_comes_before_the_source_and_json_before_form() {
    let source_and_name = with("command", "source", "x").replace("notify-user", "a b");
    assert_eq!(refusal_of(&source_and_name).refusal.reason, Reason::InvalidName);
    assert_eq!(refusal_of(format!("{source_and_name}x")).refusal.reason, Reason::Malformed);
    let source_and_missing =
        without("command", "name").replace("\"command\":{", "\"command\":{\"source\":1,");
    assert_eq!(refusal_of(source_and_missing).refusal.reason, Reason::Malformed);
}

/// MSG-10
#[test]
fn too_many_members_stop_the_reading() {
    let members: Vec<_> = (0..20_000).map(|n| format!("\"m{n}\":0")).collect();
    let body = format!("{{\"metadata\":{{{}}}}}", members.join(","));
    assert!(body.len() < BODY_BYTES_MAX);
    assert_eq!(
        refusal_of(body).refusal.to_string().split(" at ").next(),
        Some("malformed: too many members")
    );
}

/// MSG-1, MSG-3
#[test]
fn gateway_reads_and_verifies_a_written_command() {
    let secret = Secret::from_bytes([7; 32]);
    let version_id = KeyVersion::new("hmac-v1").unwrap();
    let source = ServiceName::new("acme/billing").unwrap();
    let command = NewCommand {
        id: &MessageId::uuid(ID).unwrap(),
        timestamp: "2026-11-15T08:30:00Z",
        version_id: &version_id,
        source: &source,
        target: &TargetText::new("bot").unwrap(),
        name: &CommandName::new("notify").unwrap(),
        payload: b"{\"b\": 1.0,\n \"a\": 2}",
        correlation_id: Some(&CorrelationId::new("say \"hi\" \\").unwrap()),
    };
    let body = command.sign(&secret).unwrap();
    let read = CommandEnvelope::parse(&body).unwrap();
    assert_eq!(read.payload.raw(), command.payload);
    assert_eq!(read.correlation_id.as_ref(), command.correlation_id);
    let signature = read.hmac.unwrap().unwrap();
    assert!(read.signing_text(&version_id, &source).verify(&secret, &signature));
    let other = ServiceName::new("acme/other").unwrap();
    assert!(!read.signing_text(&version_id, &other).verify(&secret, &signature));
    assert_eq!(
        read.signing_text(&version_id, &source).to_string(),
        command.signing_text().unwrap().to_string()
    );
}

/// MSG-1, MSG-3
#[test]
fn client_refuses_an_invalid_command_before_sending() {
    let id = MessageId::uuid(ID).unwrap();
    let command = NewCommand {
        id: &id,
        timestamp: "2026-11-15T08:30:00Z",
        version_id: &KeyVersion::new("hmac-v1").unwrap(),
        source: &ServiceName::new("acme/billing").unwrap(),
        target: &TargetText::new("bot").unwrap(),
        name: &CommandName::new("notify").unwrap(),
        payload: b"{}",
        correlation_id: None,
    };
    let reason = |command: NewCommand<'_>| command.sign(&Secret::from_bytes([7; 32])).unwrap_err().reason;
    assert_eq!(reason(NewCommand { id: &MessageId::stored("a\nb"), ..command }), Reason::InvalidId);
    assert_eq!(reason(NewCommand { timestamp: "now", ..command }), Reason::InvalidTimestamp);
    assert_eq!(reason(NewCommand { payload: b"{\"a\":1,\"a\":1}", ..command }), Reason::DuplicateMember);
    assert_eq!(reason(NewCommand { payload: b"1} , {", ..command }), Reason::Malformed);
}

proptest! {
    /// QUA-9
    #[test]
    fn damaged_command_never_panics_the_reader(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        end in any::<prop::sample::Index>(),
    ) {
        let mut body = message().to_string().into_bytes();
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let _ = CommandEnvelope::parse(&body);
        let _ = CommandEnvelope::parse(&body[..end.index(body.len())]);
    }
}
