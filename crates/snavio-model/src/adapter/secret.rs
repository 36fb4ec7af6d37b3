//! Secrets that a provider and the gateway share. Their form is the provider's.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use crate::bounds::{FOREIGN_SECRET_CHARS_MAX, FOREIGN_SECRET_CHARS_MIN};
use crate::signature::signing::HmacSha256;

/// A text that is not a provider's secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidForeignSecret {
    /// Too short to keep anybody out, too long, or not what a header can carry.
    #[error("a secret must be 16 to 512 printable ASCII characters")]
    Text,
    /// Not of the form of Standard Webhooks.
    #[error("a secret of Standard Webhooks must be whsec_ and the base64 of 24 to 64 bytes")]
    StandardWebhooks,
}

/// A provider's secret. Nothing prints it but [`ForeignSecret::expose`].
#[derive(Clone, ZeroizeOnDrop)]
pub struct ForeignSecret(String);

impl ForeignSecret {
    /// Takes a secret as the provider shows it.
    pub fn new(text: &str) -> Result<Self, InvalidForeignSecret> {
        let fits = (FOREIGN_SECRET_CHARS_MIN..=FOREIGN_SECRET_CHARS_MAX).contains(&text.len())
            && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if fits { Ok(Self(text.to_owned())) } else { Err(InvalidForeignSecret::Text) }
    }

    /// A secret that nobody has.
    pub(super) fn of_nobody() -> Self {
        Self(String::new())
    }

    /// The secret, for a store that encrypts it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether a text is the secret. Both are hashed first, so that the time tells nothing, not even the length.
    pub(super) fn is(&self, text: &str) -> Choice {
        Sha256::digest(&self.0).ct_eq(&Sha256::digest(text))
    }

    /// Whether one of the signatures is that of the parts, one behind the other, under the secret as its text is. However
    /// many there are, it is made once.
    pub(super) fn has_signed(&self, parts: &[&[u8]], signatures: &[[u8; 32]]) -> Choice {
        let mut mac = keyed(self.0.as_bytes());
        parts.iter().for_each(|part| mac.update(part));
        let own = mac.finalize().into_bytes();
        signatures.iter().fold(Choice::from(0), |found, it| found | own.as_slice().ct_eq(it))
    }

    /// The key of Standard Webhooks: the bytes behind `whsec_`.
    pub(super) fn standard_webhooks(&self) -> Result<HmacSha256, InvalidForeignSecret> {
        let unfit = InvalidForeignSecret::StandardWebhooks;
        let encoded = self.0.strip_prefix("whsec_").ok_or(unfit)?;
        let bytes = Zeroizing::new(STANDARD.decode(encoded).map_err(|_| unfit)?);
        if (24..=64).contains(&bytes.len()) { Ok(keyed(&bytes)) } else { Err(unfit) }
    }
}

fn keyed(key: &[u8]) -> HmacSha256 {
    #[cfg(test)]
    SIGNATURES.with(|it| it.set(it.get() + 1));
    HmacSha256::new_from_slice(key).expect("HMAC takes a key of any length")
}

#[cfg(test)]
thread_local! {
    /// How many signatures a test has made: what they cost can be seen from outside.
    pub(super) static SIGNATURES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl fmt::Debug for ForeignSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ForeignSecret(..)")
    }
}
