//! The manifest: `registry/latest.json`, one object `{"manifest": …, "signature": …}`. The signature covers a
//! fixed line and then the exact bytes of the manifest.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Fault;
use super::object::version_of_key;
use crate::bounds;
use crate::registry::Kind;
use crate::signature::ed25519::{SigningKey, VerifyingKey};
use crate::time::Timestamp;

/// The format of manifest and objects that this version writes and reads.
const FORMAT: u32 = 1;
/// The line before the manifest in the signed text.
const SIGNED: &[u8] = b"snavio snapshot 1\n";

/// The key of the manifest in the object storage.
pub fn latest_key() -> &'static str {
    "registry/latest.json"
}

/// The content of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Format of the manifest and of its objects.
    pub format: u32,
    /// Version of the registry.
    pub version_id: i64,
    /// Time at which the store was known to be at that version. The registry's age counts from here (REG-23).
    #[serde(with = "moment")]
    pub generated_at: Timestamp,
    /// The environment of the registry.
    pub environment: String,
    /// Time for which nodes may read the snapshot after `generated_at`.
    pub ttl_seconds: u64,
    /// The objects with the entries, in reading order.
    pub objects: Vec<Object>,
    /// Tenants that the snapshot omits, because an entry is invalid (REG-22).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Distinguishes the change that led to this version from any other (see [`super::trail`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_change: Option<String>,
    /// The head of the changelog's hash chain (REG-5), in its own text form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_head: Option<String>,
}

/// One object of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Object {
    /// The key in the object storage.
    pub key: String,
    /// The kind of its entries.
    pub kind: Kind,
    /// The SHA-256 of its bytes, in hex.
    pub digest: String,
    pub bytes: u64,
    /// Bytes of the unpacked entries.
    pub text_bytes: u64,
    pub entries: u64,
}

/// The requirements that a reader has for a snapshot.
#[derive(Debug, Clone)]
pub struct Standard<'a> {
    /// The highest version that this node ever verified.
    pub floor: i64,
    /// The environment of the reader.
    pub environment: &'a str,
    /// The reader's time.
    pub now: Timestamp,
    /// Upper bound for the bytes of all objects together.
    pub bytes_max: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Published<'a> {
    #[serde(borrow)]
    manifest: &'a RawValue,
    signature: String,
}

/// The signed manifest as bytes to publish.
pub fn publish(manifest: &Manifest, key: &SigningKey) -> Result<Vec<u8>, serde_json::Error> {
    let text = serde_json::to_string(manifest)?;
    let signature = STANDARD.encode(key.sign(&signed(&text)));
    serde_json::to_vec(&Published { manifest: &RawValue::from_string(text)?, signature })
}

/// Reads a published manifest and verifies the signature of this platform. [`Manifest::judge`] decides
/// whether a node may use it.
pub fn verify(published: &[u8], key: &VerifyingKey) -> Result<Manifest, Fault> {
    if published.len() > bounds::SNAPSHOT_MANIFEST_BYTES_MAX {
        return Err(Fault::Oversized { what: format!("the manifest has {} bytes", published.len()) });
    }
    let unreadable = |error: serde_json::Error| Fault::malformed(format!("the manifest: {error}"));
    let Published { manifest, signature } = serde_json::from_slice(published).map_err(unreadable)?;
    let signature = STANDARD.decode(signature).map_err(|_| Fault::WrongSignature)?;
    if !key.is_signed(&signed(manifest.get()), &signature) {
        return Err(Fault::WrongSignature);
    }
    serde_json::from_str(manifest.get()).map_err(unreadable)
}

fn signed(manifest: &str) -> Vec<u8> {
    [SIGNED, manifest.as_bytes()].concat()
}

impl Manifest {
    /// A manifest in the current format, without objects.
    pub fn new(version_id: i64, generated_at: Timestamp, environment: &str, ttl: Duration) -> Self {
        Self {
            format: FORMAT,
            version_id,
            generated_at,
            environment: environment.to_owned(),
            ttl_seconds: ttl.as_secs(),
            objects: Vec::new(),
            left_out: Vec::new(),
            last_change: None,
            audit_head: None,
        }
    }

    /// Packed bytes of all objects.
    pub fn bytes(&self) -> u64 {
        self.objects.iter().fold(0, |sum, object| sum.saturating_add(object.bytes))
    }

    /// Number of entries in all objects.
    pub fn entries(&self) -> u64 {
        self.objects.iter().fold(0, |sum, object| sum.saturating_add(object.entries))
    }

    /// Whether a node may use this verified manifest.
    pub fn judge(&self, standard: &Standard<'_>) -> Result<(), Fault> {
        if self.format != FORMAT {
            return Err(Fault::malformed(format!(
                "its format is {}, and this node reads format {FORMAT}",
                self.format
            )));
        }
        if self.environment != standard.environment {
            return Err(Fault::OtherEnvironment { named: self.environment.clone() });
        }
        if self.version_id < standard.floor {
            return Err(Fault::RolledBack { version: self.version_id, floor: standard.floor });
        }
        self.judge_age(standard.now)?;
        self.judge_sizes(standard.bytes_max)?;
        match self.left_out.as_slice() {
            [] => Ok(()),
            tenants => Err(Fault::Incomplete { tenants: tenants.to_vec() }),
        }
    }

    fn judge_age(&self, now: Timestamp) -> Result<(), Fault> {
        if self.generated_at > now.plus(bounds::SNAPSHOT_AHEAD_MAX) {
            return Err(Fault::malformed(format!(
                "it was made at {}, which is in the future; check the clocks",
                self.generated_at
            )));
        }
        if now.since(self.generated_at) >= Duration::from_secs(self.ttl_seconds) {
            return Err(Fault::Expired { generated_at: self.generated_at });
        }
        Ok(())
    }

    fn judge_sizes(&self, bytes_max: u64) -> Result<(), Fault> {
        let bytes = self.bytes();
        if bytes > bytes_max {
            return Err(Fault::Oversized {
                what: format!("it has {bytes} bytes, more than the limit of {bytes_max}"),
            });
        }
        for object in &self.objects {
            if object.bytes.max(object.text_bytes) > bounds::SNAPSHOT_OBJECT_BYTES_MAX as u64 {
                return Err(Fault::Oversized { what: format!("{} is too large", object.key) });
            }
            match version_of_key(&object.key) {
                Some(version) if version == self.version_id => {}
                Some(_) => return Err(Fault::Mixed { key: object.key.clone() }),
                None => {
                    return Err(Fault::malformed(format!("{:?} is not the key of an object", object.key)));
                }
            }
        }
        Ok(())
    }
}

/// Serializes a time as RFC 3339 text.
mod moment {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::time::Timestamp;

    pub(super) fn serialize<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(at)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(from)?;
        Timestamp::parse(&text).ok_or_else(|| serde::de::Error::custom("a time must be RFC 3339"))
    }
}
