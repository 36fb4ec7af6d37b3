//! Signatures that many may check and one may make (Ed25519).

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

/// The bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;

/// A key that signs.
pub struct SigningKey(Ed25519KeyPair);

/// The key by which a signature is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyingKey([u8; 32]);

impl SigningKey {
    /// The key of a secret seed: the same seed gives the same key.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let key = Ed25519KeyPair::from_seed_unchecked(seed);
        Self(key.expect("any 32 bytes are the seed of an Ed25519 key"))
    }

    /// The key by which others check what this one signed.
    pub fn verifying(&self) -> VerifyingKey {
        let public = self.0.public_key().as_ref();
        VerifyingKey(public.try_into().expect("a public key of Ed25519 has 32 bytes"))
    }

    /// Signs: always the same signature for the same content.
    pub fn sign(&self, content: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let signature = self.0.sign(content);
        signature.as_ref().try_into().expect("a signature of Ed25519 has 64 bytes")
    }
}

impl VerifyingKey {
    /// A key as it is passed on. Bytes that are none have signed nothing.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key to pass on.
    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// Whether the key's owner signed exactly this.
    pub fn is_signed(&self, content: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(content, signature).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REG-21
    #[test]
    fn a_signature_is_good_for_its_content_and_key_alone() {
        let key = SigningKey::from_seed(&[7; 32]);
        let signature = key.sign(b"content");
        assert!(key.verifying().is_signed(b"content", &signature));
        assert!(!key.verifying().is_signed(b"Content", &signature));
        assert!(!SigningKey::from_seed(&[8; 32]).verifying().is_signed(b"content", &signature));
        let passed_on = VerifyingKey::from_bytes(key.verifying().to_bytes());
        assert!(passed_on.is_signed(b"content", &signature));
        assert!(!VerifyingKey::from_bytes([0xff; 32]).is_signed(b"content", &signature), "no key at all");
        for cut in [0, 1, 63] {
            assert!(!key.verifying().is_signed(b"content", &signature[..cut]));
        }
    }
}
