//! Requests that carry no message and are signed all the same (REG-11), as Standard Webhooks are: in the place of the
//! body stand the method, a space and the path. No message can be mistaken for that, because it is not JSON.

use std::time::Duration;

use crate::refusal::{Reason, Refusal, Skew};
use crate::registry::{LiveKey, ServiceView};
use crate::time::Timestamp;
use crate::webhook::WebhookSignature;

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
    let sent_at = Timestamp(signature.timestamp.saturating_mul(1000));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::ServiceName;
    use crate::registry::{Entry, Key, Registry, Sealed, Service, Unseal, version};
    use crate::signing::Secret;
    use crate::webhook::sign;

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
