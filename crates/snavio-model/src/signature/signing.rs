//! Signatures of commands and the secrets behind them (MSG-3).

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::{ZeroizeOnDrop, Zeroizing};

use crate::name::{CommandName, KeyVersion, ServiceName, TargetText};

/// The text that a signature covers, in the order of its lines. Its types exclude line breaks, and
/// [`crate::time::Timestamp::parse`] must have accepted the timestamp, so no two messages have the same text.
#[derive(Debug, Clone, Copy)]
pub struct SigningText<'a> {
    pub version_id: &'a KeyVersion,
    /// The id of the command, in lower case.
    pub id: &'a crate::id::MessageId,
    /// The timestamp as sent.
    pub timestamp: &'a str,
    /// The full name of the sender.
    pub source: &'a ServiceName,
    /// The target as sent.
    pub target: &'a TargetText,
    pub name: &'a CommandName,
    /// The hash of the canonical payload.
    pub payload_sha256: [u8; 32],
}

const SCHEME: &str = "SNAVIO1-HMAC-SHA256";

impl SigningText<'_> {
    /// Computes the signature under `secret`.
    pub fn sign(&self, secret: &Secret) -> Signature {
        Signature(self.mac(secret).finalize().into_bytes().into())
    }

    /// Whether `signature` is the signature under `secret`. Compares in constant time.
    #[must_use = "an unverified message must not be processed"]
    pub fn verify(&self, secret: &Secret, signature: &Signature) -> bool {
        self.mac(secret).verify_slice(&signature.0).is_ok()
    }

    fn mac(&self, secret: &Secret) -> HmacSha256 {
        let mut mac = secret.mac();
        for line in self.lines() {
            mac.update(line.as_bytes());
            mac.update(b"\n");
        }
        mac.update(&self.payload_hex());
        mac
    }

    /// All lines but the last.
    fn lines(&self) -> [&str; 7] {
        [
            SCHEME,
            self.version_id.as_str(),
            self.id.as_str(),
            self.timestamp,
            self.source.as_str(),
            self.target.as_str(),
            self.name.as_str(),
        ]
    }

    fn payload_hex(&self) -> [u8; 64] {
        let mut hex = [0; 64];
        hex::encode_to_slice(self.payload_sha256, &mut hex).expect("64 digits are two for each of 32 bytes");
        hex
    }
}

impl fmt::Display for SigningText<'_> {
    /// The text itself, for people who look for a difference. Signing streams the same lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().iter().try_for_each(|line| writeln!(f, "{line}"))?;
        f.write_str(&hex::encode(self.payload_sha256))
    }
}

pub(crate) type HmacSha256 = Hmac<Sha256>;

/// A text that is not a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a secret must be whsec_ and the base64 of 32 bytes")]
pub struct InvalidSecret;

/// 32 random bytes that a service and the gateway share. Only [`Secret::expose`] prints them.
#[derive(Clone, ZeroizeOnDrop)]
pub struct Secret([u8; Secret::BYTES]);

impl Secret {
    /// Length of a secret.
    pub const BYTES: usize = 32;
    const PREFIX: &str = "whsec_";

    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Reads `whsec_<base64>`.
    pub fn parse(text: &str) -> Result<Self, InvalidSecret> {
        let encoded = text.strip_prefix(Self::PREFIX).ok_or(InvalidSecret)?;
        // The decoder needs room for whole groups of three bytes.
        let mut bytes = Zeroizing::new([0; Self::BYTES.next_multiple_of(3)]);
        let count = STANDARD.decode_slice(encoded, &mut *bytes).map_err(|_| InvalidSecret)?;
        bytes[..count].try_into().map(Self).map_err(|_| InvalidSecret)
    }

    /// The secret as `whsec_<base64>`, to be shown once to its owner.
    pub fn expose(&self) -> Zeroizing<String> {
        // The capacity suffices from the start, because a growing string leaves copies in memory.
        let mut text = Zeroizing::new(String::with_capacity(64));
        text.push_str(Self::PREFIX);
        STANDARD.encode_string(self.0, &mut text);
        text
    }

    /// The bytes, for a store that encrypts them.
    pub fn expose_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    pub(crate) fn mac(&self) -> HmacSha256 {
        HmacSha256::new_from_slice(&self.0).expect("HMAC takes a key of any length")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A text that is not a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a signature must be 64 lower-case hexadecimal digits")]
pub struct InvalidSignature;

/// An HMAC-SHA256. Its equality is not constant-time: use it to recognize messages, not to verify them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signature(pub [u8; 32]);

impl Signature {
    /// Reads exactly 64 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, InvalidSignature> {
        let mut bytes = [0; 32];
        if text.len() != 64 || text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(InvalidSignature);
        }
        hex::decode_to_slice(text, &mut bytes).map_err(|_| InvalidSignature)?;
        Ok(Self(bytes))
    }
}

impl Signature {
    /// The signature as shared text.
    pub fn to_text(self) -> Arc<str> {
        (&*hex::Buffer::<32>::new().format(&self.0)).into()
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(hex::Buffer::<32>::new().format(&self.0))
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::MessageId;

    const SECRET: &str = "whsec_c25hdmlvLXRlc3Qtc2VjcmV0LTMyLWJ5dGVzLWxvbmc=";

    /// MSG-3
    #[test]
    fn secret_is_whsec_and_base64_of_32_bytes() {
        let secret = Secret::parse(SECRET).unwrap();
        assert_eq!(secret.expose_bytes(), b"snavio-test-secret-32-bytes-long");
        assert_eq!(*secret.expose(), SECRET);
        assert_eq!(*Secret::from_bytes(*secret.expose_bytes()).expose(), SECRET);
        for text in [
            "",
            "whsec_",
            "c25hdmlvLXRlc3Qtc2VjcmV0LTMyLWJ5dGVzLWxvbmc=",
            "whsec_c25hdmlvLXRlc3Qtc2VjcmV0LTMyLWJ5dGVzLWxvbmc",
            "whsec_c25hdmlvLXRlc3Qtc2VjcmV0LTMyLWJ5dGVzLWxvbmd=",
            "whsec_c25hdmlvLXRlc3Qtc2VjcmV0LTMxLWJ5dGVzLWxvbg==",
            "whsec_c25hdmlvLXRlc3Qtc2VjcmV0LTMzLWJ5dGVzLWxvbmcr",
            "whsec_c25hdmlvLXRlc3Qtc2VjcmV0LTMyLWJ5dGVzLWxvbmc= ",
            "whsec_c25hdmlvLXRlc3Qtc2VjcmV0LTMyLWJ5dGVzLWxvbmdjMjVoZG1sdkxYUmxjM1F0YzJWamNtVjA=",
        ] {
            assert!(Secret::parse(text).is_err(), "{text:?}");
        }
    }

    /// MSG-3, QUA-4
    #[test]
    fn secret_does_not_print_itself() {
        assert_eq!(format!("{:?}", Secret::parse(SECRET).unwrap()), "Secret(..)");
    }

    /// MSG-3
    #[test]
    fn signature_is_64_lower_case_digits() {
        let text = "64908b8b1e744c187800f55b00529821a50c2c99b38ef239d15dd4675668e134";
        assert_eq!(Signature::parse(text).unwrap().to_string(), text);
        for wrong in [
            "",
            &text.to_uppercase(),
            &text[1..],
            &text[2..],
            &format!("{text}00"),
            &format!(" {}", &text[1..]),
            &text.replace('6', "g"),
            &text.replace("64", "é"),
        ] {
            assert!(Signature::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    /// MSG-3
    #[test]
    fn every_line_is_covered() {
        let secret = Secret::parse(SECRET).unwrap();
        let text = SigningText {
            version_id: &KeyVersion::new("hmac-v1").unwrap(),
            id: &MessageId::uuid("0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f").unwrap(),
            timestamp: "2026-11-15T08:30:00Z",
            source: &ServiceName::new("acme/billing").unwrap(),
            target: &TargetText::new("acme/bot").unwrap(),
            name: &CommandName::new("notify").unwrap(),
            payload_sha256: [7; 32],
        };
        let signature = text.sign(&secret);
        assert!(text.verify(&secret, &signature));
        assert!(!text.verify(&Secret::from_bytes([1; 32]), &signature));
        for other in [
            SigningText { version_id: &KeyVersion::new("hmac-v2").unwrap(), ..text },
            SigningText { id: &MessageId::uuid("0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e70").unwrap(), ..text },
            SigningText { timestamp: "2026-11-15T08:30:01Z", ..text },
            SigningText { source: &ServiceName::new("acme/other").unwrap(), ..text },
            SigningText { target: &TargetText::new("bot").unwrap(), ..text },
            SigningText { name: &CommandName::new("delete").unwrap(), ..text },
            SigningText { payload_sha256: [8; 32], ..text },
        ] {
            assert!(!other.verify(&secret, &signature), "{other}");
        }
        for bit in 0..256 {
            let mut flipped = signature;
            flipped.0[bit / 8] ^= 1 << (bit % 8);
            assert!(!text.verify(&secret, &flipped));
        }
    }

    /// MSG-3
    #[test]
    fn text_is_eight_lines_without_final_line_feed() {
        let text = SigningText {
            version_id: &KeyVersion::new("hmac-v1").unwrap(),
            id: &MessageId::uuid("0192F0A0-7C3E-7B60-8C1D-1B2A3C4D5E6F").unwrap(),
            timestamp: "2026-11-15T08:30:00Z",
            source: &ServiceName::new("acme/billing").unwrap(),
            target: &TargetText::new("bot").unwrap(),
            name: &CommandName::new("notify").unwrap(),
            payload_sha256: [0; 32],
        };
        let lines = [
            "SNAVIO1-HMAC-SHA256",
            "hmac-v1",
            "0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f",
            "2026-11-15T08:30:00Z",
            "acme/billing",
            "bot",
            "notify",
            "0000000000000000000000000000000000000000000000000000000000000000",
        ];
        assert_eq!(text.to_string(), lines.join("\n"));
    }
}
