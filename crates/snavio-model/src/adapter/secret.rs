//! Secrets that a provider and the gateway share. The provider defines their form.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use crate::bounds::{FOREIGN_SECRET_CHARS_MAX, FOREIGN_SECRET_CHARS_MIN};
use crate::signature::signing::HmacSha256;

/// Why a text is not a provider's secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidForeignSecret {
    /// Too short to be safe, too long, or not text that a header can carry.
    #[error("a secret must be 16 to 512 printable ASCII characters")]
    Text,
    #[error("a secret of Standard Webhooks must be whsec_ and the base64 of 24 to 64 bytes")]
    StandardWebhooks,
}

/// A provider's secret. Only [`ForeignSecret::expose`] returns its text.
#[derive(Clone, ZeroizeOnDrop)]
pub struct ForeignSecret(String);

impl ForeignSecret {
    /// Takes a secret as the provider displays it.
    pub fn new(text: &str) -> Result<Self, InvalidForeignSecret> {
        let fits = (FOREIGN_SECRET_CHARS_MIN..=FOREIGN_SECRET_CHARS_MAX).contains(&text.len())
            && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if fits { Ok(Self(text.to_owned())) } else { Err(InvalidForeignSecret::Text) }
    }

    /// A secret that no provider has, for a signature that only costs time.
    pub(super) fn dummy() -> Self {
        Self(String::new())
    }

    /// The secret in plain text, for a store that encrypts it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether a text is the secret. It hashes both first, so that time reveals nothing, not even the length.
    pub(super) fn matches(&self, text: &str) -> Choice {
        Sha256::digest(&self.0).ct_eq(&Sha256::digest(text))
    }

    /// Whether one of the signatures is the HMAC of the joined parts under the secret's text. It computes the
    /// HMAC once for any number of signatures.
    pub(super) fn has_signed(&self, parts: &[&[u8]], signatures: &[[u8; 32]]) -> Choice {
        let mut mac = hmac_with_key(self.0.as_bytes());
        parts.iter().for_each(|part| mac.update(part));
        let own = mac.finalize().into_bytes();
        signatures
            .iter()
            .fold(Choice::from(0), |is_valid, signature| is_valid | own.as_slice().ct_eq(signature))
    }

    /// An HMAC with the key of Standard Webhooks: the bytes after `whsec_`.
    pub(super) fn standard_webhooks(&self) -> Result<HmacSha256, InvalidForeignSecret> {
        let unfit = InvalidForeignSecret::StandardWebhooks;
        let encoded = self.0.strip_prefix("whsec_").ok_or(unfit)?;
        let bytes = Zeroizing::new(STANDARD.decode(encoded).map_err(|_| unfit)?);
        if (24..=64).contains(&bytes.len()) { Ok(hmac_with_key(&bytes)) } else { Err(unfit) }
    }
}

fn hmac_with_key(key: &[u8]) -> HmacSha256 {
    #[cfg(test)]
    SIGNATURE_COUNT.with(|count| count.set(count.get() + 1));
    HmacSha256::new_from_slice(key).expect("HMAC takes a key of any length")
}

#[cfg(test)]
thread_local! {
    /// The number of signatures that the current test has computed. An attacker can measure their time.
    pub(super) static SIGNATURE_COUNT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl fmt::Debug for ForeignSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ForeignSecret(..)")
    }
}
