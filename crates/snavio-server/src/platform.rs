//! The platform's own secrets: the key under which all others are kept, and the operator's token.
//!
//! A node knows one platform key, or two while one takes the place of the other: it opens with both, and seals and
//! signs with the one that the store names (REG-13).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use snavio_gate::SnapshotKeys;
use snavio_model::adapter::ForeignSecret;
use snavio_model::identity::token;
use snavio_model::identity::token::{TokenClaims, TokenFault, TokenKey};
use snavio_model::registry::{NewSecrets, PublicKey, Sealed, Signer, Unseal};
use snavio_model::signature::ed25519::{SigningKey, VerifyingKey};
use snavio_model::signature::signing::Secret;
use snavio_model::time::Timestamp;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::machine::random;
use crate::platform_key::{KeySource, PlatformKey, foreign_secret, own_secret, sealed_under, secret_file};

/// Where the platform key is kept within the data folder, unless configured otherwise.
pub const PLATFORM_KEY_FILE: &str = "platform.key";
/// Where the operator's token is kept within the data folder, unless configured otherwise.
pub const OPERATOR_TOKEN_FILE: &str = "operator.token";

const OPERATOR_PREFIX: &str = "snavop_";

/// Why the platform's secrets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlatformError {
    /// The file cannot be read or made.
    #[error("cannot use {file}")]
    File {
        /// Which file.
        file: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file's content is not a secret.
    #[error("{0} does not hold 32 bytes in base64; restore it from your backup of the platform's secrets")]
    Content(PathBuf),
    /// Others could read the secret.
    #[error("{0} can be read by others; run: chmod 600 {0}")]
    Open(PathBuf),
    /// A new key would open nothing of what the store holds.
    #[error(
        "{0} is missing, and the store holds secrets sealed under it; put back your copy of it, or one from another node of this store, or name its place with platform.key_file"
    )]
    Missing(PathBuf),
    /// The key is not the one that the store's other nodes have.
    #[error(
        "{file} is another platform key than the one of this store ({pinned}, and this is {own}); copy the file from a node that serves, or name its place with platform.key_file"
    )]
    Another {
        /// The platform key's file.
        file: PathBuf,
        /// The fingerprint in the store.
        pinned: String,
        /// This key's.
        own: String,
    },
    /// The key is not the one that the store's secrets were sealed under.
    #[error(
        "{file} does not open {key}: it is the key of another store, or the record is damaged; put back this store's platform key, or restore a backup"
    )]
    Foreign {
        /// The platform key's file.
        file: PathBuf,
        /// The sealed key.
        key: String,
    },
}

/// What only the platform can do: seal and open secrets, issue tokens, hash client secrets.
pub(crate) struct Platform {
    /// One or two.
    keys: Vec<PlatformKey>,
    /// Which of them seals and signs.
    chosen: AtomicUsize,
    /// The key of keyed hashes: it stays when the platform key is another, for what was hashed is not known.
    hash_key: Secret,
    client_secrets: TokenKey,
    operator_token: Zeroizing<String>,
}

/// What a store says of its platform's secrets.
#[derive(Debug, Default)]
pub(crate) struct Pinned {
    /// Whether nothing is sealed in it yet.
    pub(crate) is_new: bool,
    /// The fingerprint of the platform key.
    pub(crate) platform_key: Option<String>,
    /// The key of keyed hashes, once it does not come from the platform key any more.
    pub(crate) hash_key: Option<Sealed>,
}

impl Platform {
    /// Reads the platform's secrets, making those that do not exist yet; the key only for a store that holds
    /// nothing sealed under another.
    pub(crate) fn open(
        sources: &[KeySource],
        operator_file: &Path,
        pinned: &Pinned,
    ) -> Result<Self, PlatformError> {
        let keys = keys(sources, pinned.is_new)?;
        let chosen = chosen(&keys, sources, pinned.platform_key.as_deref())?;
        let opened = match &pinned.hash_key {
            Some(sealed) => keys.iter().find_map(|key| key.open(sealed)).and_then(|it| own_secret(&it)),
            None => Some(keys[chosen].hash_key.clone()),
        };
        let foreign = || PlatformError::Foreign { file: named(sources), key: "the key of hashes".to_owned() };
        let hash_key = opened.ok_or_else(foreign)?;
        let operator_token = secret_file(operator_file, OPERATOR_PREFIX)?;
        let operator_token = Zeroizing::new(operator_token.trim().to_owned());
        if operator_token.len() < OPERATOR_PREFIX.len() + 32 {
            return Err(PlatformError::Content(operator_file.into()));
        }
        let client_secrets = TokenKey::new(hash_key.expose_bytes());
        Ok(Self { keys, chosen: AtomicUsize::new(chosen), hash_key, client_secrets, operator_token })
    }

    fn key(&self) -> &PlatformKey {
        &self.keys[self.chosen.load(Ordering::Relaxed)]
    }

    /// What tells the platform key from others, and nothing else about it.
    pub(crate) fn fingerprint(&self) -> &str {
        &self.key().fingerprint
    }

    /// The fingerprints of all keys that are known here.
    pub(crate) fn known(&self) -> Vec<&str> {
        self.keys.iter().map(|key| key.fingerprint.as_str()).collect()
    }

    /// Goes by the key that the store names, if it is known here.
    pub(crate) fn follow(&self, pinned: &str) {
        let place = self.keys.iter().position(|key| key.fingerprint == pinned);
        if let Some(place) = place
            && self.chosen.swap(place, Ordering::Relaxed) != place
        {
            tracing::info!(platform_key = pinned, "another platform key is in force");
        }
    }

    /// What was sealed under another key, sealed under this one; nothing if it is already, or does not open.
    pub(crate) fn reseal(&self, sealed: &Sealed, to: &str) -> Option<Sealed> {
        let to = self.keys.iter().find(|key| key.fingerprint == to)?;
        if sealed_under(sealed) == Some(to.fingerprint.as_str()) {
            return None;
        }
        self.opened(sealed).map(|secret| to.seal(&secret))
    }

    fn opened(&self, sealed: &Sealed) -> Option<Zeroizing<Vec<u8>>> {
        self.keys.iter().find_map(|key| key.open(sealed))
    }

    /// The key of keyed hashes, sealed under one of the platform keys.
    pub(crate) fn sealed_hash_key(&self, under: &str) -> Option<Sealed> {
        let key = self.keys.iter().find(|key| key.fingerprint == under)?;
        Some(key.seal(self.hash_key.expose_bytes()))
    }

    /// The secret of a new key, and the same sealed for the registry.
    pub(crate) fn new_key(&self) -> (Secret, Sealed) {
        let secret = Secret::from_bytes(random());
        let sealed = self.key().seal(secret.expose_bytes());
        (secret, sealed)
    }

    /// A provider's secret, sealed for the registry.
    pub(crate) fn seal_text(&self, secret: &ForeignSecret) -> Sealed {
        self.key().seal(secret.expose().as_bytes())
    }

    /// A new access token.
    pub(crate) fn issue(&self, claims: &TokenClaims) -> String {
        token::issue(&self.key().tokens, claims)
    }

    /// What a token says, if this platform issued it, under any key that is known, and it has not expired.
    pub(crate) fn verify(&self, text: &str, now: Timestamp) -> Result<TokenClaims, TokenFault> {
        let mut verified = self.keys.iter().map(|key| token::verify(&key.tokens, text, now));
        let found = verified.find(|it| !matches!(it, Err(TokenFault::Forged)));
        found.unwrap_or(Err(TokenFault::Forged))
    }

    /// The keyed hash under which a client's secret is kept.
    pub(crate) fn hash_client_secret(&self, client: &str, secret: &str) -> String {
        hex::encode(self.client_secrets.digest(&[client.as_bytes(), secret.as_bytes()]))
    }

    /// Whether the hash is that of the secret, in constant time.
    pub(crate) fn is_client_secret(&self, client: &str, secret: &str, hash: &str) -> bool {
        self.hash_client_secret(client, secret).as_bytes().ct_eq(hash.as_bytes()).into()
    }

    /// Whether a bearer token is the operator's, in constant time.
    pub(crate) fn is_operator(&self, token: &str) -> bool {
        self.operator_token.as_bytes().ct_eq(token.as_bytes()).into()
    }
}

impl NewSecrets for Platform {
    fn new_secret(&self) -> Sealed {
        self.new_key().1
    }
}

impl Unseal for Platform {
    fn unseal(&self, sealed: &Sealed) -> Option<Secret> {
        told(self.opened(sealed).and_then(|it| own_secret(&it)))
    }

    fn unseal_text(&self, sealed: &Sealed) -> Option<ForeignSecret> {
        told(self.opened(sealed).and_then(|it| foreign_secret(&it)))
    }
}

/// Says that a secret did not open.
fn told<T>(opened: Option<T>) -> Option<T> {
    if opened.is_none() {
        metrics::counter!("snavio_unseal_failures_total").increment(1);
        tracing::error!("a sealed key does not open under the platform key: its messages are refused");
    }
    opened
}

impl Signer for Platform {
    fn public_key(&self) -> PublicKey {
        self.key().changelog.public_key()
    }

    fn sign(&self, text: &[u8]) -> [u8; 64] {
        self.key().changelog.sign(text)
    }
}

impl SnapshotKeys for Platform {
    fn signing(&self) -> SigningKey {
        SigningKey::from_seed(&self.key().snapshots)
    }

    fn verifying(&self) -> Vec<VerifyingKey> {
        self.keys.iter().map(|key| SigningKey::from_seed(&key.snapshots).verifying()).collect()
    }
}

/// What the seals of the changelog are verified with, by a platform key.
pub fn changelog_public_key(source: &KeySource) -> Result<PublicKey, PlatformError> {
    Ok(PlatformKey::read(source)?.changelog.public_key())
}

fn named(sources: &[KeySource]) -> PathBuf {
    sources.first().map(KeySource::name).unwrap_or_default()
}

/// Reads the keys; the first is made for a new store, if it is to be in a file.
fn keys(sources: &[KeySource], store_is_new: bool) -> Result<Vec<PlatformKey>, PlatformError> {
    if let Some(KeySource::File(file)) = sources.first()
        && !file.exists()
    {
        if !store_is_new {
            return Err(PlatformError::Missing(file.clone()));
        }
        secret_file(file, "")?;
    }
    sources.iter().map(PlatformKey::read).collect()
}

/// The one that the store names; without a word of it, the first. A stranger's key is refused.
fn chosen(keys: &[PlatformKey], sources: &[KeySource], pinned: Option<&str>) -> Result<usize, PlatformError> {
    let Some(pinned) = pinned else { return Ok(0) };
    let place = keys.iter().position(|key| key.fingerprint == pinned);
    let own = || keys.iter().map(|key| key.fingerprint.as_str()).collect::<Vec<_>>().join(", ");
    let another = || PlatformError::Another { file: named(sources), pinned: pinned.to_owned(), own: own() };
    place.ok_or_else(another)
}

/// A new client secret, shown once.
pub(crate) fn new_client_secret() -> Zeroizing<String> {
    let bytes = Zeroizing::new(random::<32>());
    // Room for all of it at once: a string that grows leaves copies behind.
    let mut text = Zeroizing::new(String::with_capacity(64));
    text.push_str("snavcs_");
    URL_SAFE_NO_PAD.encode_string(*bytes, &mut text);
    text
}

/// A new client id.
pub(crate) fn new_client_id() -> String {
    format!("snavcl_{}", hex::encode(random::<12>()))
}
