//! The hash chain over the changelog (REG-5). Each seal covers the changes since the previous one. Its head
//! also covers the previous head, and is signed. To alter anything, an attacker must compute every later head
//! again, and cannot sign it.
//!
//! The `signature` of a seal is one byte for the format (1), the signer's public key, the signature of the
//! head, and the digest of each change in order. The head covers the digests. The seal keeps them, so that a
//! verifier can name an altered change.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::evidence::Evidence;
use super::verify::Fault;
use crate::bounds;
use crate::signature::ed25519::{SIGNATURE_BYTES, SigningKey, VerifyingKey};
use crate::time::Timestamp;

/// The format of a seal and of the text under its head.
const FORM: u8 = 1;
const KEY_BYTES: usize = 32;

/// Defines 32 bytes that are written in hex.
macro_rules! hex32 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub [u8; 32]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex::encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = NotHex;

            fn from_str(text: &str) -> Result<Self, NotHex> {
                let bytes = hex::decode(text).ok().and_then(|bytes| bytes.try_into().ok());
                bytes.map(Self).ok_or(NotHex)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NotHex;

            fn try_from(text: String) -> Result<Self, NotHex> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    };
}

/// A text that is not 32 bytes in hex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be 64 hex digits")]
pub struct NotHex;

hex32! {
    /// A SHA-256.
    Digest
}

hex32! {
    /// An Ed25519 public key.
    PublicKey
}

/// Hashes a sequence of values so that different sequences have different encodings: a length precedes every
/// text, and each sequence begins with its type.
pub(super) struct Encoder(Sha256);

impl Encoder {
    pub(super) fn new(type_name: &str) -> Self {
        Self(Sha256::new()).text(type_name)
    }

    pub(super) fn text(self, text: &str) -> Self {
        self.number(text.len() as i64).bytes(text.as_bytes())
    }

    pub(super) fn number(self, number: i64) -> Self {
        self.bytes(&number.to_be_bytes())
    }

    /// Adds bytes of a fixed count; use [`Self::text`] for values of variable length.
    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.update(bytes);
        self
    }

    pub(super) fn digest(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// Signs heads. Outside this crate, because the model does not know the platform key.
pub trait Signer: Send + Sync {
    /// The key that verifies its signatures.
    fn public_key(&self) -> PublicKey;

    /// Signs the text of a head.
    fn sign(&self, text: &[u8]) -> [u8; SIGNATURE_BYTES];
}

/// An Ed25519 key that signs seals.
pub struct SealingKey(SigningKey);

impl SealingKey {
    /// A key from 32 secret bytes.
    pub fn from_bytes(secret: &[u8; 32]) -> Self {
        Self(SigningKey::from_seed(secret))
    }
}

impl Signer for SealingKey {
    fn public_key(&self) -> PublicKey {
        PublicKey(self.0.verifying().to_bytes())
    }

    fn sign(&self, text: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.0.sign(text)
    }
}

impl PublicKey {
    /// Whether the owner of the key signed the text.
    fn has_signed(&self, text: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        VerifyingKey::from_bytes(self.0).is_signed(text, signature)
    }
}

/// A link of the chain, as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Seal {
    /// Its position in the chain, from 1.
    pub number: i64,
    /// The first change that it covers.
    pub first_version: i64,
    /// The last change that it covers.
    pub last_version: i64,
    /// Time of the seal, in milliseconds since 1970.
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub at: Timestamp,
    /// The digest of the members above, of the changes, and of the previous head.
    #[serde(with = "bytes")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub head: Vec<u8>,
    /// The signer's key, its signature of the head, and the digest of each change.
    #[serde(with = "bytes")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub signature: Vec<u8>,
}

/// Serializes bytes of any count as hex.
mod bytes {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex::encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        hex::decode(String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// The parsed `signature` of a seal.
pub(super) struct Signed {
    pub(super) key: PublicKey,
    signature: [u8; SIGNATURE_BYTES],
    pub(super) digests: Vec<Digest>,
}

impl Seal {
    /// Makes the next seal over the changes that follow the previous seal without a gap.
    pub fn next(
        before: Option<&Self>,
        changes: &[Evidence],
        at: Timestamp,
        signer: &dyn Signer,
    ) -> Result<Self, Fault> {
        let first_version = first_version_after(before);
        let changes = &changes[..changes.len().min(bounds::SEAL_CHANGES_MAX)];
        let following =
            (first_version..).zip(changes).take_while(|(version, change)| change.version == *version);
        let digests: Vec<_> = following.map(|(_, change)| change.digest()).collect();
        if digests.is_empty() {
            return Err(Fault::ChangeMissing { version: first_version });
        }
        let last_version = first_version + digests.len() as i64 - 1;
        Self::signed_by(before, last_version, &digests, at, signer)
    }

    /// Makes the next seal over versions that a restore skipped and that have no changes.
    pub fn skip(
        before: Option<&Self>,
        skipped: Skipped,
        at: Timestamp,
        signer: &dyn Signer,
    ) -> Result<Self, Fault> {
        let first_version = first_version_after(before);
        if skipped.first != first_version || skipped.last < first_version {
            return Err(Fault::ChangeMissing { version: first_version });
        }
        Self::signed_by(before, skipped.last, &[], at, signer)
    }

    fn signed_by(
        before: Option<&Self>,
        last_version: i64,
        digests: &[Digest],
        at: Timestamp,
        signer: &dyn Signer,
    ) -> Result<Self, Fault> {
        let number = before.map_or(1, |seal| seal.number + 1);
        let altered = Fault::SealAltered { number: number - 1 };
        let previous = before.map(|seal| seal.head_digest().ok_or(altered)).transpose()?;
        let (head, signature) = (Vec::new(), Vec::new());
        let mut seal =
            Self { number, first_version: first_version_after(before), last_version, at, head, signature };
        let head = seal.head_over(previous, digests);
        seal.head = head.0.to_vec();
        seal.signature = [&[FORM][..], &signer.public_key().0, &signer.sign(&to_sign(head))].concat();
        seal.signature.extend(digests.iter().flat_map(|digest| digest.0));
        Ok(seal)
    }

    /// The head as a digest; `None` if it has the wrong length.
    pub fn head_digest(&self) -> Option<Digest> {
        self.head.as_slice().try_into().ok().map(Digest)
    }

    /// Computes the head over the previous head and these digests.
    pub(super) fn head_over(&self, previous: Option<Digest>, digests: &[Digest]) -> Digest {
        let encoder = Encoder::new("snavio.seal.v1").bytes(&previous.map_or([0; 32], |head| head.0));
        let numbers = [self.number, self.first_version, self.last_version, self.at.0, digests.len() as i64];
        let encoder = numbers.into_iter().fold(encoder, Encoder::number);
        digests.iter().fold(encoder, |encoder, digest| encoder.bytes(&digest.0)).digest()
    }

    /// Parses the signature. `None` if it is malformed, or has neither the digests of all covered changes nor
    /// none.
    pub(super) fn signed(&self) -> Option<Signed> {
        let rest = self.signature.strip_prefix(&[FORM])?;
        let (key, rest) = rest.split_first_chunk::<KEY_BYTES>()?;
        let (signature, rest) = rest.split_first_chunk::<SIGNATURE_BYTES>()?;
        let (digests, left) = rest.as_chunks::<32>();
        let count = self.last_version.checked_sub(self.first_version)?.checked_add(1)?;
        let is_whole = left.is_empty() && count > 0 && (digests.is_empty() || count == digests.len() as i64);
        is_whole.then(|| Signed {
            key: PublicKey(*key),
            signature: *signature,
            digests: digests.iter().copied().map(Digest).collect(),
        })
    }
}

impl Signed {
    /// Whether the owner of the key signed this head.
    pub(super) fn holds(&self, head: Digest) -> bool {
        self.key.has_signed(&to_sign(head), &self.signature)
    }
}

/// The first version that the next seal covers.
fn first_version_after(before: Option<&Seal>) -> i64 {
    before.map_or(1, |seal| seal.last_version + 1)
}

/// Versions without changes. A restored store continues above every version that it may have lost, so that no
/// version has two meanings. The restore notes the skipped versions, and the next seal signs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Skipped {
    pub first: i64,
    pub last: i64,
}

impl Skipped {
    /// The prefix of the note's name; the first skipped version follows.
    pub const NOTES: &str = "registry/skipped/";

    /// The note in the store: a name, and the last skipped version.
    pub fn note(self) -> (String, String) {
        (format!("{}{}", Self::NOTES, self.first), self.last.to_string())
    }

    /// Reads a note; `None` if it is another one.
    pub fn of_note(name: &str, value: &str) -> Option<Self> {
        let first = name.strip_prefix(Self::NOTES)?.parse().ok()?;
        let last = value.parse().ok().filter(|last| (first..i64::MAX).contains(last))?;
        Some(Self { first, last })
    }
}

/// The signed text of a head. Its prefix excludes confusion with any other text that the key may sign.
fn to_sign(head: Digest) -> Vec<u8> {
    [b"snavio.head.v1:".as_slice(), &head.0].concat()
}
