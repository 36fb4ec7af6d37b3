//! Requests that carry no message and are signed all the same (REG-11), as Standard Webhooks are: in the place of the
//! body stand the method, a space and the path. No message can be mistaken for that, because it is not JSON. Each is
//! good once.

use std::fmt::Write;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::bounds::{CLAIM_KEEP_SLACK, SIGNED_REQUESTS_MAX};
use crate::refusal::{Reason, Refusal, Skew};
use crate::registry::{LiveKey, ServiceView};
use crate::signature::webhook::WebhookSignature;
use crate::time::Timestamp;

/// Where a producer learns of its keys.
pub const TENANT_CONFIG_PATH: &str = "/v1/tenant-config";
/// What is signed to be told the secret of the current one.
pub const TENANT_CONFIG: &str = "GET /v1/tenant-config";

/// Which key of a service signed a request, if it is one that is accepted, and signed just now. The window comes
/// before the signature, as for messages.
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
    let signs = |key: &&LiveKey| signature.verify(&key.secret, request.as_bytes()).is_some();
    let none = || {
        Refusal::new(Reason::HmacInvalid, "webhook-signature does not match under any key of this service")
    };
    let key = service.keys().iter().rev().map(AsRef::as_ref).find(signs).ok_or_else(none)?;
    if !key.is_good(received_at) {
        let detail =
            "webhook-signature is of a key that is not accepted any more; ask an operator for a new one";
        return Err(Refusal::new(Reason::KeyExpired, detail));
    }
    Ok(key)
}

/// Takes a request, unless it was taken before: the note of those of its service that were, with this one.
///
/// Layout of the note: `<webhook-timestamp>:<16 hex digits of the id's SHA-256>` of each, separated by spaces. One that
/// no node can take for a new one any more, however their clocks differ, is left out.
pub fn take(
    noted: Option<&str>,
    signature: &WebhookSignature,
    now: Timestamp,
    window: Duration,
) -> Result<String, Refusal> {
    let id = &hex::encode(Sha256::digest(&signature.id))[..16];
    let keep = window + CLAIM_KEEP_SLACK;
    let taken = noted.unwrap_or_default().split(' ').filter_map(|entry| entry.split_once(':'));
    let is_kept = |at: &str| at.parse().is_ok_and(|at| now.since(sent_at(at)) <= keep);
    let taken: Vec<_> = taken.filter(|(at, _)| is_kept(at)).collect();
    if taken.iter().any(|(_, other)| *other == id) {
        let detail = "a request of this webhook-id was taken before; each is good once";
        return Err(Refusal::new(Reason::Replayed, detail));
    }
    if taken.len() >= SIGNED_REQUESTS_MAX {
        let detail = format!("{SIGNED_REQUESTS_MAX} signed requests of this service came within minutes");
        return Err(Refusal::retry(Reason::Overloaded, window, detail));
    }
    let mut note = format!("{}:{id}", signature.timestamp);
    for (at, id) in taken {
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

    /// The secret is the sealed text, filled up.
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
    fn a_request_is_taken_once_and_forgotten_when_its_window_is_long_over() {
        let start = NOW.0 / 1000;
        let mut note: Option<String> = None;
        for (passed, id, at, expected) in [
            (0, "a", 0, Ok(1)),
            (0, "b", 0, Ok(2)),
            (0, "b", 0, Err(Reason::Replayed)),
            // Whoever signs anew has another id.
            (1, "b", 1, Err(Reason::Replayed)),
            (60, "late", 0, Ok(3)),
            (60, "early", 120, Ok(4)),
            (119, "a", 60, Err(Reason::Replayed)),
            // By now no node takes what was signed at the start.
            (121, "c", 121, Ok(2)),
            (200, "early", 121, Err(Reason::Replayed)),
            (300, "d", 300, Ok(1)),
        ] {
            let now = NOW.plus(Duration::from_secs(passed));
            let taken = take(note.as_deref(), &signed(id, start + at), now, WINDOW);
            let count = taken.as_ref().map(|it| it.split(' ').count()).map_err(|it| it.reason);
            assert_eq!(count, expected, "{id} after {passed} s");
            note = taken.ok().or(note);
        }
    }

    /// REG-11: forgetting some of many would make them good again.
    #[test]
    fn what_is_remembered_has_an_end_and_nothing_is_forgotten_for_it() {
        let at = NOW.0 / 1000;
        let mut note = None;
        for n in 0..SIGNED_REQUESTS_MAX {
            note = Some(take(note.as_deref(), &signed(&n.to_string(), at), NOW, WINDOW).unwrap());
        }
        let refused = |id: &str| take(note.as_deref(), &signed(id, at), NOW, WINDOW).unwrap_err();
        assert_eq!(refused("0").reason, Reason::Replayed);
        assert_eq!((refused("more").reason, refused("more").retry_after), (Reason::Overloaded, Some(WINDOW)));
        assert!(note.unwrap().len() <= 28 * SIGNED_REQUESTS_MAX, "and is small");
    }

    /// REG-11
    #[test]
    fn only_a_live_key_of_the_service_signs_and_only_just_now() {
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
            let told = key.map(|key| key.version.as_str()).map_err(|refusal| refusal.reason);
            assert_eq!(told, expected, "{} {at} {text}", char::from(byte));
        }
    }
}
