//! The published vectors in `docs/vectors/`. Other implementations are checked against them too. Their
//! expected values were computed without this crate.

#![expect(clippy::unwrap_used, reason = "a vector that cannot be read must stop the test")]

use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use snavio_model::hash::DomainHash;
use snavio_model::id::MessageId;
use snavio_model::json::Pointer;
use snavio_model::message::command::{CommandEnvelope, NewCommand};
use snavio_model::message::payload::Payload;
use snavio_model::name::{CommandName, KeyVersion, ServiceName, TargetText};
use snavio_model::refusal::Refusal;
use snavio_model::signature::signing::{Secret, Signature};
use snavio_model::signature::webhook::{self, WebhookSignature};

fn vectors<T: DeserializeOwned>(file: &str) -> T {
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vectors/{}"), file);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[derive(Deserialize)]
struct Canonical {
    why: String,
    input: String,
    canonical: String,
    sha256: String,
}

/// MSG-8
#[test]
fn canonical_forms() {
    for vector in vectors::<Vec<Canonical>>("canonical.json") {
        let payload = Payload::parse(vector.input.as_bytes()).unwrap();
        assert_eq!(str::from_utf8(payload.canonical()).unwrap(), vector.canonical, "{}", vector.why);
        assert_eq!(hex::encode(payload.sha256()), vector.sha256, "{}", vector.why);
        assert_eq!(hex::encode(Sha256::digest(&vector.canonical)), vector.sha256, "{}", vector.why);
    }
}

#[derive(Deserialize)]
struct RefusedText {
    why: String,
    input: Option<String>,
    /// For input that is not text.
    input_hex: Option<String>,
    reason: String,
}

/// MSG-10, QUA-4
#[test]
fn refused_texts() {
    for vector in vectors::<Vec<RefusedText>>("refused.json") {
        let bytes = match (vector.input, vector.input_hex) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(digits)) => hex::decode(digits).unwrap(),
            _ => panic!("{}: one input", vector.why),
        };
        let refusal = Payload::parse(&bytes).map_err(Refusal::from).unwrap_err();
        assert_eq!(refusal.reason.code(), vector.reason, "{}: {refusal}", vector.why);
        assert!(refusal.detail.contains(" at byte "), "{}: {refusal}", vector.why);
    }
}

#[derive(Deserialize)]
struct DomainHashes {
    events: Vec<EventHash>,
    commands: Vec<CommandHash>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventHash {
    why: String,
    event_type: String,
    payload: String,
    #[serde(rename = "leave_out")]
    left_out: Vec<Pointer>,
    #[serde(rename = "domain_hash")]
    hash: String,
}

#[derive(Deserialize)]
struct CommandHash {
    why: String,
    target: ServiceName,
    name: CommandName,
    payload: String,
    #[serde(rename = "leave_out")]
    left_out: Vec<Pointer>,
    #[serde(rename = "domain_hash")]
    hash: String,
}

/// MSG-9
#[test]
fn domain_hashes() {
    let vectors: DomainHashes = vectors("domain-hash.json");
    for vector in vectors.events {
        let hash =
            DomainHash::of_event_without(&vector.event_type, vector.payload.as_bytes(), &vector.left_out);
        assert_eq!(hash.unwrap().to_string(), vector.hash, "{}", vector.why);
    }
    for vector in vectors.commands {
        let payload = vector.payload.as_bytes();
        let hash =
            DomainHash::of_command_without(&vector.target, &vector.name, payload, &vector.left_out).unwrap();
        assert_eq!(hash.to_string(), vector.hash, "{}", vector.why);
        if vector.left_out.is_empty() {
            let payload = Payload::parse(payload).unwrap();
            assert_eq!(hash, DomainHash::of_command(&vector.target, &vector.name, payload.canonical()));
        }
    }
}

#[derive(Deserialize)]
struct Signed {
    why: String,
    secret: String,
    version_id: KeyVersion,
    id: String,
    timestamp: String,
    source: ServiceName,
    target: TargetText,
    name: CommandName,
    payload_text: String,
    signing_text: String,
    hmac: String,
}

/// MSG-1, MSG-3
#[test]
fn signatures() {
    for vector in vectors::<Vec<Signed>>("signature.json") {
        let secret = Secret::parse(&vector.secret).unwrap();
        let command = NewCommand {
            id: &MessageId::uuid(&vector.id).unwrap(),
            timestamp: &vector.timestamp,
            version_id: &vector.version_id,
            source: &vector.source,
            target: &vector.target,
            name: &vector.name,
            payload: vector.payload_text.as_bytes(),
            correlation_id: None,
        };
        let text = command.signing_text().unwrap();
        assert_eq!(text.to_string(), vector.signing_text, "{}", vector.why);
        assert_eq!(text.sign(&secret).to_string(), vector.hmac, "{}", vector.why);

        let body = command.sign(&secret).unwrap();
        let read = CommandEnvelope::parse(&body).unwrap();
        assert_eq!(read.payload.raw(), vector.payload_text.as_bytes(), "{}", vector.why);
        assert_eq!(read.hmac, Some(Signature::parse(&vector.hmac)), "{}", vector.why);
        let text = read.signing_text(&vector.version_id, &vector.source);
        assert!(text.verify(&secret, &read.hmac.unwrap().unwrap()), "{}", vector.why);
    }
}

#[derive(Deserialize)]
struct Webhook {
    why: String,
    secret: String,
    webhook_id: String,
    webhook_timestamp: String,
    body: String,
    webhook_signature: String,
    verifies: bool,
}

/// MSG-4
#[test]
fn webhooks() {
    for vector in vectors::<Vec<Webhook>>("webhook.json") {
        let secret = Secret::parse(&vector.secret).unwrap();
        let body = vector.body.as_bytes();
        let read =
            WebhookSignature::parse(&vector.webhook_id, &vector.webhook_timestamp, &vector.webhook_signature)
                .unwrap();
        assert_eq!(read.verify(&secret, body).is_some(), vector.verifies, "{}", vector.why);
        let own = webhook::sign(&secret, &read.id, read.timestamp, body);
        let sent = vector.webhook_signature.split(' ').any(|signature| signature == own);
        assert_eq!(sent, vector.verifies, "{}", vector.why);
    }
}

#[derive(Deserialize)]
struct DerivedId {
    source: String,
    external_id: String,
    payload: String,
    event_id: String,
}

/// MSG-7
#[test]
fn derived_ids() {
    for DerivedId { source, external_id, payload, event_id } in vectors::<Vec<DerivedId>>("derived-id.json") {
        let made = snavio_model::adapter::event_id(&source, &external_id, payload.as_bytes()).unwrap();
        assert_eq!(made.as_str(), event_id, "{source}:{external_id} {payload}");
    }
}
