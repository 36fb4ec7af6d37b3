//! Standard Webhooks signatures over a raw body (MSG-4), so that existing libraries can sign and verify.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::Mac as _;
use subtle::{Choice, ConstantTimeEq as _};

use crate::bounds::{WEBHOOK_ID_BYTES_MAX, WEBHOOK_SIGNATURES_MAX};
use crate::id::MessageId;
use crate::refusal::{Reason, Refusal};
use crate::signature::signing::{HmacSha256, Secret, Signature};
use crate::time::Timestamp;

/// The three headers of a signed request. Trust none of them before [`WebhookSignature::verify`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookSignature {
    /// `webhook-id` as sent.
    pub id: String,
    /// `webhook-timestamp`: whole seconds since 1970.
    pub timestamp: i64,
    /// The `v1` entries of `webhook-signature`.
    pub signatures: Vec<Signature>,
}

impl WebhookSignature {
    /// Reads `webhook-id`, `webhook-timestamp` and `webhook-signature`.
    pub fn parse(id: &str, timestamp: &str, signatures: &str) -> Result<Self, Refusal> {
        let printable = id.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if id.is_empty() || id.len() > WEBHOOK_ID_BYTES_MAX || !printable {
            return Err(Refusal::new(Reason::InvalidId, "webhook-id must be 1 to 128 printable characters"));
        }
        let timestamp = whole_seconds(timestamp).ok_or_else(|| {
            Refusal::new(Reason::InvalidTimestamp, "webhook-timestamp must be whole seconds since 1970")
        })?;
        let signatures: Vec<_> = signatures.split(' ').filter_map(parse_signature).collect();
        if !(1..=WEBHOOK_SIGNATURES_MAX).contains(&signatures.len()) {
            let detail = "webhook-signature must hold 1 to 8 entries of v1 and the base64 of 32 bytes";
            return Err(Refusal::new(Reason::HmacInvalid, detail));
        }
        Ok(Self { id: id.to_owned(), timestamp, signatures })
    }

    /// Returns the signature of `body` under `secret`, if it is among the sent ones. Compares in constant
    /// time. Only this signature identifies the message, because anyone can add others.
    #[must_use = "an unverified message must not be processed"]
    pub fn verify(&self, secret: &Secret, body: &[u8]) -> Option<Signature> {
        self.verify_with(secret.mac(), body)
    }

    /// Verifies as [`WebhookSignature::verify`], with an HMAC key of any length.
    pub(crate) fn verify_with(&self, key: HmacSha256, body: &[u8]) -> Option<Signature> {
        let right = Signature(mac(key, &self.id, self.timestamp, body).finalize().into_bytes().into());
        let none = Choice::from(0);
        let found = self.signatures.iter().fold(none, |found, given| found | given.0.ct_eq(&right.0));
        bool::from(found).then_some(right)
    }

    /// Whether `webhook-id` is the id of this message. A UUID may have any case.
    pub fn is_for(&self, id: &MessageId) -> bool {
        self.id == id.as_str() || MessageId::uuid(&self.id).as_ref() == Some(id)
    }

    /// Whether `webhook-timestamp` is this time to the second.
    pub fn is_at(&self, at: Timestamp) -> bool {
        at.0.div_euclid(1000) == self.timestamp
    }
}

/// The value of `webhook-signature` for `body`, with one signature.
pub fn sign(secret: &Secret, id: &str, timestamp: i64, body: &[u8]) -> String {
    let signature = mac(secret.mac(), id, timestamp, body).finalize().into_bytes();
    format!("v1,{}", STANDARD.encode(signature))
}

/// The three headers of a request that the gateway sends (DLV-1), signed under each of the destination's
/// secrets: during a change of secrets a receiver may know either one. Receivers read at most
/// [`WEBHOOK_SIGNATURES_MAX`] signatures, so the gateway adds no more.
pub fn headers<'s>(
    secrets: impl IntoIterator<Item = &'s Secret>,
    id: &str,
    timestamp: i64,
    body: &[u8],
) -> [(&'static str, String); 3] {
    let signatures =
        secrets.into_iter().take(WEBHOOK_SIGNATURES_MAX).map(|secret| sign(secret, id, timestamp, body));
    [
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", timestamp.to_string()),
        ("webhook-signature", signatures.collect::<Vec<_>>().join(" ")),
    ]
}

fn mac(key: HmacSha256, id: &str, timestamp: i64, body: &[u8]) -> HmacSha256 {
    let mut mac = key;
    mac.update(id.as_bytes());
    mac.update(format!(".{timestamp}.").as_bytes());
    mac.update(body);
    mac
}

/// Reads whole seconds. Each number has one spelling, because the signature covers the text but only the
/// number is kept.
pub(crate) fn whole_seconds(text: &str) -> Option<i64> {
    let canonical = text == "0" || text.starts_with(|first: char| matches!(first, '1'..='9'));
    // Eleven digits reach past the year 5000 and leave room for milliseconds.
    let digits = text.len() <= 11 && text.bytes().all(|byte| byte.is_ascii_digit());
    (canonical && digits).then(|| text.parse().ok())?
}

/// Reads a `v1` entry. Entries of other versions and unreadable ones can never match, so they are skipped.
fn parse_signature(entry: &str) -> Option<Signature> {
    let encoded = entry.strip_prefix("v1,")?;
    let mut bytes = [0; 33];
    let count = STANDARD.decode_slice(encoded, &mut bytes).ok()?;
    bytes[..count].try_into().ok().map(Signature)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmac::KeyInit as _;

    const ID: &str = "0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f";
    const AT: i64 = 1_794_731_400;

    fn secret() -> Secret {
        Secret::from_bytes(*b"snavio-test-secret-32-bytes-long")
    }

    fn parse(id: &str, timestamp: &str, signatures: &str) -> Result<WebhookSignature, Reason> {
        WebhookSignature::parse(id, timestamp, signatures).map_err(|refusal| refusal.reason)
    }

    /// MSG-4
    #[test]
    fn signature_covers_id_time_body_and_secret() {
        let header = sign(&secret(), ID, AT, b"{}");
        let signed = parse(ID, &AT.to_string(), &header).unwrap();
        assert!(signed.verify(&secret(), b"{}").is_some());
        assert!(signed.verify(&secret(), b"{} ").is_none());
        assert!(signed.verify(&Secret::from_bytes([0; 32]), b"{}").is_none());
        let other = WebhookSignature { timestamp: AT + 1, ..signed.clone() };
        assert!(other.verify(&secret(), b"{}").is_none());
        assert!(WebhookSignature { id: "other".into(), ..signed }.verify(&secret(), b"{}").is_none());
    }

    /// MSG-4
    #[test]
    fn single_valid_signature_of_several_suffices() {
        let good = sign(&secret(), ID, AT, b"{}");
        let other = sign(&Secret::from_bytes([9; 32]), ID, AT, b"{}");
        for (header, is_valid) in [
            (format!("{other} {good}"), true),
            (format!("{good} {other}"), true),
            (format!("v1a,AAAA v2,{} {good}", &good[3..]), true),
            (format!("v1,??? {good}"), true),
            (other.clone(), false),
        ] {
            let verified = parse(ID, &AT.to_string(), &header).unwrap().verify(&secret(), b"{}");
            assert_eq!(
                verified.map(|signature| format!("v1,{}", STANDARD.encode(signature.0))),
                is_valid.then(|| good.clone())
            );
        }
    }

    /// DLV-1, MSG-4
    #[test]
    fn request_is_signed_under_every_secret_of_its_destination() {
        let other = Secret::from_bytes([9; 32]);
        let [id, timestamp, signature] = headers([&other, &secret()], ID, AT, b"{}").map(|(_, value)| value);
        let signed = parse(&id, &timestamp, &signature).unwrap();
        assert_eq!(signed.signatures.len(), 2);
        for (secret, holds) in [(secret(), true), (other, true), (Secret::from_bytes([8; 32]), false)] {
            assert_eq!(signed.verify(&secret, b"{}").is_some(), holds);
            assert!(signed.verify(&secret, b"[]").is_none());
        }
        // The example of the public specification.
        let key: [u8; 24] = *b"\x31\xf2\x90\xf6\xbf\x06\x29\x8a\xab\x4f\x08\xd4\x3c\x3f\x08\x2c\xf6\x48\xa3\x62\xda\x2d\xa4\xb0";
        let key = HmacSha256::new_from_slice(&key).unwrap();
        let example = mac(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        let example = STANDARD.encode(example.finalize().into_bytes());
        assert_eq!(example, "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    /// MSG-4, QUA-4
    #[test]
    fn invalid_headers_are_refused() {
        let good = sign(&secret(), ID, AT, b"{}");
        let at = AT.to_string();
        for (id, timestamp, signatures, reason) in [
            ("", at.as_str(), good.as_str(), Reason::InvalidId),
            ("a\nb", &at, &good, Reason::InvalidId),
            ("é", &at, &good, Reason::InvalidId),
            (&"x".repeat(129), &at, &good, Reason::InvalidId),
            (ID, "", &good, Reason::InvalidTimestamp),
            (ID, "+1794731400", &good, Reason::InvalidTimestamp),
            (ID, "-1", &good, Reason::InvalidTimestamp),
            (ID, "01794731400", &good, Reason::InvalidTimestamp),
            (ID, "1794731400.5", &good, Reason::InvalidTimestamp),
            (ID, "2026-11-15T08:30:00Z", &good, Reason::InvalidTimestamp),
            (ID, "99999999999999999999", &good, Reason::InvalidTimestamp),
            (ID, &at, "", Reason::HmacInvalid),
            (ID, &at, &good[3..], Reason::HmacInvalid),
            (ID, &at, &format!("v2,{}", &good[3..]), Reason::HmacInvalid),
            (ID, &at, "v1,AAAA", Reason::HmacInvalid),
            (ID, &at, &[good.as_str(); 9].join(" "), Reason::HmacInvalid),
        ] {
            assert_eq!(parse(id, timestamp, signatures), Err(reason), "{id} {timestamp} {signatures}");
        }
    }

    /// MSG-4
    #[test]
    fn headers_match_the_message_by_id_and_second() {
        let signed = parse(&ID.to_uppercase(), &AT.to_string(), &sign(&secret(), ID, AT, b"")).unwrap();
        assert!(signed.is_for(&MessageId::uuid(ID).unwrap()));
        assert!(!signed.is_for(&MessageId::uuid("0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e70").unwrap()));
        for (millis, same) in [(0, true), (999, true), (1000, false), (-1, false)] {
            assert_eq!(signed.is_at(Timestamp(AT * 1000 + millis)), same, "{millis}");
        }
    }
}
