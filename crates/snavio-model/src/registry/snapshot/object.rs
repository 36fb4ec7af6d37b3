//! An object: one line with its version, then its entries, packed.

use sha2::{Digest as _, Sha256};

use super::Fault;
use super::manifest::Object;

const PREFIX: &str = "snavio-registry 1 ";
const FOLDER: &str = "registry/";

/// Upper bound of the header's length.
pub const OBJECT_HEADER_BYTES_MAX: usize = 64;

/// The first line of an object.
pub fn header(version: i64) -> String {
    format!("{PREFIX}{version}\n")
}

/// The key of an object with these bytes, `registry/<version>/<digest>`, and the digest.
pub fn object_key(version: i64, bytes: &[u8]) -> (String, String) {
    let digest = digest(bytes);
    (format!("{FOLDER}{version}/{digest}"), digest)
}

/// The version in the key of an object; `None` for any other key.
pub fn version_of_key(key: &str) -> Option<i64> {
    let (version, name) = key.strip_prefix(FOLDER)?.split_once('/')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    version.parse().ok().filter(|parsed: &i64| is_name && parsed.to_string() == version)
}

/// Returns the packed entries of an object, if its bytes match the manifest.
pub fn judge_object<'b>(object: &Object, version: i64, bytes: &'b [u8]) -> Result<&'b [u8], Fault> {
    let key = || object.key.clone();
    let packed = match split_header(bytes) {
        Some((own, packed)) if own == version => Some(packed),
        Some(_) => return Err(Fault::Mixed { key: key() }),
        None => None,
    };
    if (bytes.len() as u64) < object.bytes {
        return Err(Fault::Truncated { key: key() });
    }
    if digest(bytes) != object.digest {
        return Err(Fault::WrongDigest { key: key() });
    }
    packed.ok_or_else(|| Fault::malformed(format!("{} has no header", object.key)))
}

fn split_header(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let end = bytes.iter().take(OBJECT_HEADER_BYTES_MAX).position(|byte| *byte == b'\n')?;
    let (line, rest) = bytes.split_at(end);
    let version = std::str::from_utf8(line).ok()?.strip_prefix(PREFIX)?.parse().ok()?;
    Some((version, &rest[1..]))
}

fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
