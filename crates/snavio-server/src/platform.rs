//! The platform's own secrets: the key under which all others are kept, and the operator's token.
//!
//! Every use has a key of its own, derived from the platform key, so that none can stand in for another.

use std::path::{Path, PathBuf};

use aes_gcm::aead::{Aead, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use snavio_model::ed25519::SigningKey;
use snavio_model::registry::{NewSecrets, PublicKey, Sealed, SealingKey, Signer, Unseal};
use snavio_model::signing::Secret;
use snavio_model::time::Timestamp;
use snavio_model::token::{self, TokenClaims, TokenFault, TokenKey};
use snavio_store::files;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::machine::random;

/// Where the platform key is kept within the data folder, unless configured otherwise.
pub const PLATFORM_KEY_FILE: &str = "platform.key";
/// Where the operator's token is kept within the data folder, unless configured otherwise.
pub const OPERATOR_TOKEN_FILE: &str = "operator.token";

const OPERATOR_PREFIX: &str = "snavop_";
const SEALED_PREFIX: &str = "v1.";

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
    fingerprint: String,
    sealing: Aes256Gcm,
    tokens: TokenKey,
    client_secrets: TokenKey,
    changelog: SealingKey,
    snapshots: Zeroizing<[u8; 32]>,
    operator_token: Zeroizing<String>,
}

impl Platform {
    /// Reads the platform's secrets, making those that do not exist yet; the key only for a store that holds
    /// nothing sealed under another.
    pub(crate) fn open(
        key_file: &Path,
        operator_file: &Path,
        store_is_new: bool,
    ) -> Result<Self, PlatformError> {
        if !store_is_new && !key_file.exists() {
            return Err(PlatformError::Missing(key_file.into()));
        }
        let master = TokenKey::new(&platform_key(&secret_file(key_file, "")?, key_file)?[..]);
        let operator_token = secret_file(operator_file, OPERATOR_PREFIX)?;
        let operator_token = Zeroizing::new(operator_token.trim().to_owned());
        if operator_token.len() < OPERATOR_PREFIX.len() + 32 {
            return Err(PlatformError::Content(operator_file.into()));
        }
        let derived = |label| derived(&master, label);
        Ok(Self {
            fingerprint: fingerprint(&master),
            sealing: Aes256Gcm::new((&*derived("sealing")).into()),
            tokens: TokenKey::new(&derived("tokens")[..]),
            client_secrets: TokenKey::new(&derived("client-secrets")[..]),
            changelog: changelog_key(&master),
            snapshots: derived("snapshots"),
            operator_token,
        })
    }

    /// What tells the platform key from others, and nothing else about it.
    pub(crate) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The key that signs snapshots of the registry (REG-21).
    pub(crate) fn snapshot_key(&self) -> SigningKey {
        SigningKey::from_seed(&self.snapshots)
    }

    /// The secret of a new key, and the same sealed for the registry.
    pub(crate) fn new_key(&self) -> (Secret, Sealed) {
        let secret = Secret::from_bytes(random());
        let sealed = self.seal(&secret);
        (secret, sealed)
    }

    /// Encrypts a secret for the registry.
    fn seal(&self, secret: &Secret) -> Sealed {
        let nonce: [u8; 12] = random();
        let sealed = self.sealing.encrypt(&Nonce::from(nonce), &secret.expose_bytes()[..]);
        let sealed = sealed.expect("AES-GCM encrypts 32 bytes: only messages of 64 GiB are too long");
        Sealed(format!("{SEALED_PREFIX}{}", STANDARD.encode([&nonce[..], &sealed].concat())))
    }

    /// A new access token.
    pub(crate) fn issue(&self, claims: &TokenClaims) -> String {
        token::issue(&self.tokens, claims)
    }

    /// What a token says, if this platform issued it and it has not expired.
    pub(crate) fn verify(&self, text: &str, now: Timestamp) -> Result<TokenClaims, TokenFault> {
        token::verify(&self.tokens, text, now)
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
        let opened = self.open_sealed(sealed);
        if opened.is_none() {
            metrics::counter!("snavio_unseal_failures_total").increment(1);
            tracing::error!("a sealed key does not open under the platform key: its messages are refused");
        }
        opened
    }
}

impl Signer for Platform {
    fn public_key(&self) -> PublicKey {
        self.changelog.public_key()
    }

    fn sign(&self, text: &[u8]) -> [u8; 64] {
        self.changelog.sign(text)
    }
}

impl Platform {
    fn open_sealed(&self, sealed: &Sealed) -> Option<Secret> {
        let bytes = STANDARD.decode(sealed.0.strip_prefix(SEALED_PREFIX)?).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(12)?;
        let nonce = <[u8; 12]>::try_from(nonce).ok()?;
        let opened = Zeroizing::new(self.sealing.decrypt(&Nonce::from(nonce), sealed).ok()?);
        <[u8; 32]>::try_from(opened.as_slice()).ok().map(Secret::from_bytes)
    }
}

/// The fingerprint of the platform key in a file, if it is one that a node would take. Makes none.
pub fn platform_key_fingerprint(file: &Path) -> Result<String, PlatformError> {
    Ok(fingerprint(&TokenKey::new(&platform_key(&read_secret(file)?, file)?[..])))
}

/// What the seals of the changelog are verified with, by the platform key in a file.
pub fn changelog_public_key(file: &Path) -> Result<PublicKey, PlatformError> {
    Ok(changelog_key(&TokenKey::new(&platform_key(&read_secret(file)?, file)?[..])).public_key())
}

/// The key that seals the changelog.
fn changelog_key(master: &TokenKey) -> SealingKey {
    SealingKey::from_bytes(&derived(master, "changelog"))
}

fn fingerprint(master: &TokenKey) -> String {
    hex::encode(&derived(master, "fingerprint")[..8])
}

/// The key of one use.
fn derived(master: &TokenKey, label: &str) -> Zeroizing<[u8; 32]> {
    Zeroizing::new(master.digest(&[b"snavio", label.as_bytes()]))
}

/// The key that a file holds.
fn platform_key(text: &str, file: &Path) -> Result<Zeroizing<[u8; 32]>, PlatformError> {
    let bytes = STANDARD.decode(text.trim()).map(Zeroizing::new).ok();
    let bytes = bytes.and_then(|it| <[u8; 32]>::try_from(it.as_slice()).ok());
    bytes.map(Zeroizing::new).ok_or_else(|| PlatformError::Content(file.into()))
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

/// Reads a secret from its file, making it on first use, for its owner's eyes only.
fn secret_file(path: &Path, prefix: &str) -> Result<Zeroizing<String>, PlatformError> {
    if !path.exists() {
        let fresh = Zeroizing::new(format!("{prefix}{}\n", STANDARD.encode(random::<32>())));
        let failed = |source| PlatformError::File { file: path.to_owned(), source };
        files::write_whole(path, fresh.as_bytes()).map_err(failed)?;
    }
    read_secret(path)
}

/// Reads a secret, unless others could.
fn read_secret(file: &Path) -> Result<Zeroizing<String>, PlatformError> {
    let failed = |source| PlatformError::File { file: file.to_owned(), source };
    if files::open_to_others(file).map_err(failed)?.is_some() {
        return Err(PlatformError::Open(file.into()));
    }
    std::fs::read_to_string(file).map(Zeroizing::new).map_err(failed)
}
