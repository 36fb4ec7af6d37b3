//! Ed25519 signatures: one party signs, many can verify.

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

/// The length of a signature.
pub const SIGNATURE_BYTES: usize = 64;

/// The private key, which signs.
pub struct SigningKey(Ed25519KeyPair);

/// The public key, which verifies signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyingKey([u8; 32]);

impl SigningKey {
    /// The key of a secret seed. The same seed gives the same key.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let key = Ed25519KeyPair::from_seed_unchecked(seed);
        Self(key.expect("any 32 bytes are the seed of an Ed25519 key"))
    }

    /// The public key that verifies this key's signatures.
    pub fn verifying(&self) -> VerifyingKey {
        let public = self.0.public_key().as_ref();
        VerifyingKey(public.try_into().expect("a public key of Ed25519 has 32 bytes"))
    }

    /// Signs the content. The same content always has the same signature.
    pub fn sign(&self, content: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let signature = self.0.sign(content);
        signature.as_ref().try_into().expect("a signature of Ed25519 has 64 bytes")
    }
}

impl VerifyingKey {
    /// Takes a public key. Bytes that are no key verify no signature.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key as bytes, for other parties.
    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// Whether the owner of the key signed exactly this content.
    pub fn is_signed(&self, content: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(content, signature).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REG-21
    #[test]
    fn signature_is_valid_for_its_content_and_key_only() {
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
