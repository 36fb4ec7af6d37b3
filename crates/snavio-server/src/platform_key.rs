//! A platform key: where it comes from, and what is derived from it.
//!
//! Every use has a key of its own, so that none can stand in for another. What is sealed says under which platform key,
//! so that another can take its place (REG-13).

use std::fmt;
use std::path::{Path, PathBuf};

use aes_gcm::aead::{Aead, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use snavio_model::adapter::ForeignSecret;
use snavio_model::identity::token::TokenKey;
use snavio_model::registry::{Sealed, SealingKey};
use snavio_model::signature::signing::Secret;
use snavio_store::files;
use zeroize::Zeroizing;

use crate::machine::random;
use crate::platform::PlatformError;

/// Of what was sealed before it said under which key.
const SEALED_BEFORE: &str = "v1.";
const SEALED: &str = "v2.";

/// Where a platform key comes from.
#[derive(Clone)]
pub enum KeySource {
    /// A file, for its owner's eyes only.
    File(PathBuf),
    /// The configuration itself: an environment variable, so that no file is needed.
    Setting {
        /// The setting.
        name: &'static str,
        /// The key in base64.
        text: Zeroizing<String>,
    },
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name().display())
    }
}

impl KeySource {
    /// What to call it: a path, or a setting.
    pub fn name(&self) -> PathBuf {
        match self {
            Self::File(file) => file.clone(),
            Self::Setting { name, .. } => name.into(),
        }
    }

    /// Whether there is a key; a file may be missing.
    pub fn is_there(&self) -> bool {
        match self {
            Self::File(file) => file.exists(),
            Self::Setting { .. } => true,
        }
    }

    /// The fingerprint of the key, if it is one that a node would take. Makes none.
    pub fn fingerprint(&self) -> Result<String, PlatformError> {
        Ok(PlatformKey::read(self)?.fingerprint)
    }

    fn text(&self) -> Result<Zeroizing<String>, PlatformError> {
        match self {
            Self::File(file) => read_secret(file),
            Self::Setting { text, .. } => Ok(text.clone()),
        }
    }
}

/// A platform key, as the keys of its uses.
pub(crate) struct PlatformKey {
    /// What tells it from others, and nothing else about it.
    pub(crate) fingerprint: String,
    sealing: Aes256Gcm,
    /// Signs tokens.
    pub(crate) tokens: TokenKey,
    /// The key of client secrets' hashes, unless they began under another platform key.
    pub(crate) hash_key: Secret,
    /// Seals the changelog.
    pub(crate) changelog: SealingKey,
    /// The seed of the key that signs snapshots of the registry.
    pub(crate) snapshots: Zeroizing<[u8; 32]>,
}

impl PlatformKey {
    /// Reads a key.
    pub(crate) fn read(source: &KeySource) -> Result<Self, PlatformError> {
        let text = source.text()?;
        let bytes = STANDARD.decode(text.trim()).map(Zeroizing::new).ok();
        let bytes = bytes.and_then(|it| <[u8; 32]>::try_from(it.as_slice()).ok().map(Zeroizing::new));
        let bytes = bytes.ok_or_else(|| PlatformError::Content(source.name()))?;
        let master = TokenKey::new(&bytes[..]);
        Ok(Self {
            fingerprint: hex::encode(&derived(&master, "fingerprint")[..8]),
            sealing: Aes256Gcm::new((&*derived(&master, "sealing")).into()),
            tokens: TokenKey::new(&derived(&master, "tokens")[..]),
            hash_key: Secret::from_bytes(*derived(&master, "client-secrets")),
            changelog: SealingKey::from_bytes(&derived(&master, "changelog")),
            snapshots: derived(&master, "snapshots"),
        })
    }

    /// Encrypts a secret.
    pub(crate) fn seal(&self, secret: &[u8]) -> Sealed {
        let nonce: [u8; 12] = random();
        let sealed = self.sealing.encrypt(&Nonce::from(nonce), secret);
        let sealed = sealed.expect("AES-GCM encrypts a few bytes: only messages of 64 GiB are too long");
        Sealed(format!("{SEALED}{}.{}", self.fingerprint, STANDARD.encode([&nonce[..], &sealed].concat())))
    }

    /// Opens what was sealed under this key.
    pub(crate) fn open(&self, sealed: &Sealed) -> Option<Zeroizing<Vec<u8>>> {
        let encoded = match sealed_under(sealed) {
            Some(fingerprint) if fingerprint != self.fingerprint => return None,
            Some(_) => sealed.0.rsplit('.').next()?,
            None => sealed.0.strip_prefix(SEALED_BEFORE)?,
        };
        let bytes = STANDARD.decode(encoded).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(12)?;
        let nonce = <[u8; 12]>::try_from(nonce).ok()?;
        self.sealing.decrypt(&Nonce::from(nonce), sealed).ok().map(Zeroizing::new)
    }
}

/// The secret that was opened, if it is one of the platform's own.
pub(crate) fn own_secret(opened: &[u8]) -> Option<Secret> {
    <[u8; 32]>::try_from(opened).ok().map(Secret::from_bytes)
}

/// The secret that was opened, if it is one of a provider.
pub(crate) fn foreign_secret(opened: &[u8]) -> Option<ForeignSecret> {
    ForeignSecret::new(std::str::from_utf8(opened).ok()?).ok()
}

/// The fingerprint of the key that something was sealed under, if it says.
pub(crate) fn sealed_under(sealed: &Sealed) -> Option<&str> {
    sealed.0.strip_prefix(SEALED)?.split_once('.').map(|(fingerprint, _)| fingerprint)
}

/// The key of one use.
fn derived(master: &TokenKey, label: &str) -> Zeroizing<[u8; 32]> {
    Zeroizing::new(master.digest(&[b"snavio", label.as_bytes()]))
}

/// Makes a platform key in a file that must not be there yet, and gives back its fingerprint.
pub fn make_platform_key(file: &Path) -> Result<String, PlatformError> {
    let failed = |source| PlatformError::File { file: file.to_owned(), source };
    files::write_new(file, fresh("").as_bytes()).map_err(failed)?;
    KeySource::File(file.to_owned()).fingerprint()
}

/// Reads a secret from its file, making it on first use, for its owner's eyes only.
pub(crate) fn secret_file(path: &Path, prefix: &str) -> Result<Zeroizing<String>, PlatformError> {
    if !path.exists() {
        let failed = |source| PlatformError::File { file: path.to_owned(), source };
        files::write_whole(path, fresh(prefix).as_bytes()).map_err(failed)?;
    }
    read_secret(path)
}

fn fresh(prefix: &str) -> Zeroizing<String> {
    Zeroizing::new(format!("{prefix}{}\n", STANDARD.encode(random::<32>())))
}

/// Reads a secret, unless others could.
fn read_secret(file: &Path) -> Result<Zeroizing<String>, PlatformError> {
    let failed = |source| PlatformError::File { file: file.to_owned(), source };
    if files::open_to_others(file).map_err(failed)?.is_some() {
        return Err(PlatformError::Open(file.into()));
    }
    std::fs::read_to_string(file).map(Zeroizing::new).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> PlatformKey {
        let text = Zeroizing::new(STANDARD.encode([byte; 32]));
        PlatformKey::read(&KeySource::Setting { name: "platform.key", text }).unwrap()
    }

    /// REG-13
    #[test]
    fn what_is_sealed_says_under_which_key_and_opens_under_no_other() {
        let (one, other) = (key(1), key(2));
        let sealed = one.seal(&[7; 32]);
        assert_eq!(sealed_under(&sealed), Some(one.fingerprint.as_str()));
        let opened = one.open(&sealed).unwrap();
        assert_eq!(own_secret(&opened).map(|it| *it.expose_bytes()), Some([7; 32]));
        let text = one.open(&one.seal(b"whsec_of a provider")).unwrap();
        assert!(own_secret(&text).is_none(), "of another length");
        assert_eq!(foreign_secret(&text).unwrap().expose(), "whsec_of a provider");
        assert!(foreign_secret(&opened).is_none(), "no text");
        assert!(other.open(&sealed).is_none());
        let lying = Sealed(sealed.0.replace(&one.fingerprint, &other.fingerprint));
        assert!(other.open(&lying).is_none(), "the name alone opens nothing");
        let before = Sealed(format!("{SEALED_BEFORE}{}", sealed.0.rsplit('.').next().unwrap()));
        assert!(one.open(&before).is_some() && other.open(&before).is_none(), "as it was sealed before");
        for broken in ["", "v1.", "v2.", "v2.x", "v3.x.y", &format!("v2.{}.", one.fingerprint)] {
            assert!(one.open(&Sealed(broken.to_owned())).is_none(), "{broken:?}");
        }
    }

    /// REG-13
    #[test]
    fn what_is_derived_is_wiped_when_dropped() {
        fn is_wiped<T: zeroize::ZeroizeOnDrop>() {}
        is_wiped::<Aes256Gcm>();
        is_wiped::<Secret>();
        // All that an HMAC holds are two states of its hash.
        is_wiped::<sha2::Sha256>();
        is_wiped::<Zeroizing<String>>();
    }

    /// REG-13
    #[test]
    fn a_key_in_a_setting_is_not_shown() {
        let source = KeySource::Setting { name: "platform.key", text: Zeroizing::new("c2VjcmV0".into()) };
        assert_eq!(format!("{source:?}"), "platform.key");
        assert!(matches!(source.fingerprint(), Err(PlatformError::Content(_))));
    }
}
