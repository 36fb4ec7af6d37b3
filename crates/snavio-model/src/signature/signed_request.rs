//! Signed requests without a message (REG-11), in the form of Standard Webhooks: the method, a space and the
//! path replace the body. No message can be mistaken for this text, because it is not JSON. Each request is
//! valid once.

use std::fmt::Write;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::bounds::{CLAIM_KEEP_SLACK, SIGNED_REQUESTS_MAX};
use crate::refusal::{Reason, Refusal, Skew};
use crate::registry::{LiveKey, ServiceView};
use crate::signature::webhook::WebhookSignature;
use crate::time::Timestamp;

/// The path under which a producer fetches its keys.
pub const TENANT_CONFIG_PATH: &str = "/v1/tenant-config";
/// The signed text of a request for the secret of the current key.
pub const TENANT_CONFIG: &str = "GET /v1/tenant-config";

/// Finds the key of a service that signed a request. Refuses a key that is not accepted and a time outside
/// the window. The window is checked before the signature, as for messages.
pub fn check<'a>(
    signature: &WebhookSignature,
    request: &str,
    service: &'a ServiceView,
    received_at: Timestamp,
    window: Duration,
) -> Result<&'a LiveKey, Refusal> {
    let sent_at = sent_at(signature.timestamp);
    if received_at.skew(sent_at) > window {
        let detail = format!("the request was not signed within {} s of its receipt", window.as_secs());
        let skew = Some(Skew { sent_at, received_at });
        return Err(Refusal { skew, ..Refusal::new(Reason::TimestampOutOfWindow, detail) });
    }
    let mut keys = service.keys().iter().rev().map(AsRef::as_ref);
    let key = keys
        .find(|key: &&LiveKey| signature.verify(&key.secret, request.as_bytes()).is_some())
        .ok_or_else(|| {
            let detail = "webhook-signature does not match under any key of this service";
            Refusal::new(Reason::HmacInvalid, detail)
        })?;
    if !key.is_good(received_at) {
        let detail =
            "webhook-signature is of a key that is no longer accepted; ask an operator for a new one";
        return Err(Refusal::new(Reason::KeyExpired, detail));
    }
    Ok(key)
}

/// Accepts a request unless it was used before. Returns the new note: the list of the service's used
/// requests, with this one.
///
/// Format of the note: `<webhook-timestamp>:<16 hex digits of the id's SHA-256>` for each, separated by
/// spaces. It omits requests so old that no node accepts them any more, even with different clocks.
pub fn take(
    noted: Option<&str>,
    signature: &WebhookSignature,
    now: Timestamp,
    window: Duration,
) -> Result<String, Refusal> {
    let id = &hex::encode(Sha256::digest(&signature.id))[..16];
    let keep = window + CLAIM_KEEP_SLACK;
    let used = noted.unwrap_or_default().split(' ').filter_map(|entry| entry.split_once(':'));
    let is_kept = |at: &str| at.parse().is_ok_and(|at| now.since(sent_at(at)) <= keep);
    let used: Vec<_> = used.filter(|(at, _)| is_kept(at)).collect();
    if used.iter().any(|(_, other)| *other == id) {
        let detail = "a request with this webhook-id was used before; sign each request under a new id";
        return Err(Refusal::new(Reason::Replayed, detail));
    }
    if used.len() >= SIGNED_REQUESTS_MAX {
        let detail = format!("this service sent {SIGNED_REQUESTS_MAX} signed requests within minutes");
        return Err(Refusal::retry(Reason::Overloaded, window, detail));
    }
    let mut note = format!("{}:{id}", signature.timestamp);
    for (at, id) in used {
        write!(note, " {at}:{id}").expect("a string takes text");
    }
    Ok(note)
}

fn sent_at(seconds: i64) -> Timestamp {
    Timestamp(seconds.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::ServiceName;
    use crate::registry::{Entry, Key, Registry, Sealed, Service, Unseal, version};
    use crate::signature::signing::Secret;
    use crate::signature::webhook::sign;

    const NOW: Timestamp = Timestamp(1_800_000_000_500);
    const WINDOW: Duration = Duration::from_secs(60);

    /// The secret is the first byte of the sealed text, repeated.
    struct Plain;

    impl Unseal for Plain {
        fn unseal(&self, sealed: &Sealed) -> Option<Secret> {
            Some(secret(sealed.0.as_bytes()[0]))
        }
    }

    fn secret(byte: u8) -> Secret {
        Secret::from_bytes([byte; 32])
    }

    fn registry() -> Registry {
        let name: ServiceName = "acme/bot".parse().unwrap();
        let mut registry = Registry::default();
        registry.put(Entry::Service(Service::new(name.clone())), &Plain);
        let ends = [
            ("a", Some(NOW), None),
            ("b", None, Some(NOW)),
            ("c", Some(Timestamp(NOW.0 + 1)), None),
            ("d", None, None),
        ];
        for (number, (sealed, expires_at, revoked_at)) in (1..).zip(ends) {
            let (service, secret) = (name.clone(), Sealed(sealed.to_owned()));
            let version = version(number);
            let key = Key { service, version, secret, created_at: Timestamp(0), expires_at, revoked_at };
            registry.put(Entry::Key(key), &Plain);
        }
        registry
    }

    fn signed(id: &str, at: i64) -> WebhookSignature {
        let header = sign(&secret(b'd'), id, at, TENANT_CONFIG.as_bytes());
        WebhookSignature::parse(id, &at.to_string(), &header).unwrap()
    }

    /// REG-11
    #[test]
    fn request_is_accepted_once_within_its_window() {
        let start = NOW.0 / 1000;
        let mut note: Option<String> = None;
        for (passed, id, at, expected) in [
            (0, "a", 0, Ok(1)),
            (0, "b", 0, Ok(2)),
            (0, "b", 0, Err(Reason::Replayed)),
            // A new signature needs a new id.
            (1, "b", 1, Err(Reason::Replayed)),
            (60, "late", 0, Ok(3)),
            (60, "early", 120, Ok(4)),
            (119, "a", 60, Err(Reason::Replayed)),
            // Now no node accepts requests from the start of the test.
            (121, "c", 121, Ok(2)),
            (200, "early", 121, Err(Reason::Replayed)),
            (300, "d", 300, Ok(1)),
        ] {
            let now = NOW.plus(Duration::from_secs(passed));
            let note_or_refusal = take(note.as_deref(), &signed(id, start + at), now, WINDOW);
            let count = note_or_refusal.as_ref().map(|note| note.split(' ').count());
            let count = count.map_err(|refusal| refusal.reason);
            assert_eq!(count, expected, "{id} after {passed} s");
            note = note_or_refusal.ok().or(note);
        }
    }

    /// REG-11: to forget some of many requests would make them valid again.
    #[test]
    fn full_memory_refuses_and_forgets_nothing() {
        let at = NOW.0 / 1000;
        let mut note = None;
        for n in 0..SIGNED_REQUESTS_MAX {
            note = Some(take(note.as_deref(), &signed(&n.to_string(), at), NOW, WINDOW).unwrap());
        }
        let refused = |id: &str| take(note.as_deref(), &signed(id, at), NOW, WINDOW).unwrap_err();
        assert_eq!(refused("0").reason, Reason::Replayed);
        assert_eq!((refused("more").reason, refused("more").retry_after), (Reason::Overloaded, Some(WINDOW)));
        assert!(note.unwrap().len() <= 28 * SIGNED_REQUESTS_MAX, "the note is small");
    }

    /// REG-11
    #[test]
    fn request_needs_a_live_key_and_a_recent_time() {
        let registry = registry();
        let now = NOW.0 / 1000;
        for (byte, at, text, expected) in [
            (b'd', now, TENANT_CONFIG, Ok("hmac-v4")),
            (b'd', now + 60, TENANT_CONFIG, Ok("hmac-v4")),
            (b'c', now, TENANT_CONFIG, Ok("hmac-v3")),
            (b'd', now - 60, TENANT_CONFIG, Err(Reason::TimestampOutOfWindow)),
            (b'd', now + 61, TENANT_CONFIG, Err(Reason::TimestampOutOfWindow)),
            (b'a', now, TENANT_CONFIG, Err(Reason::KeyExpired)),
            (b'b', now, TENANT_CONFIG, Err(Reason::KeyExpired)),
            (b'x', now, TENANT_CONFIG, Err(Reason::HmacInvalid)),
            (b'd', now, "", Err(Reason::HmacInvalid)),
            (b'd', now, "POST /v1/tenant-config", Err(Reason::HmacInvalid)),
            (b'd', now, "GET /v1/tenant-config?x=1", Err(Reason::HmacInvalid)),
        ] {
            let header = sign(&secret(byte), "id-1", at, text.as_bytes());
            let signature = WebhookSignature::parse("id-1", &at.to_string(), &header).unwrap();
            let service = registry.service("acme/bot").unwrap();
            let key = check(&signature, TENANT_CONFIG, service, NOW, WINDOW);
            let version = key.map(|key| key.version.as_str()).map_err(|refusal| refusal.reason);
            assert_eq!(version, expected, "{} {at} {text}", char::from(byte));
        }
    }
}
