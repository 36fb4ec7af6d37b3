//! The public keys of trusted issuers (REG-7): from a file on this node or over the guard, kept in memory, and looked
//! for again when they change or a token names a key that is not there.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use snavio_model::registry::{Issuer, KeySet};
use snavio_sink::Network;
use snavio_sink::guard::{GuardError, Guarded};
use tokio::time::Instant;

use crate::jws::{KeyRing, Parts, PublicKey};

/// A file of keys is not longer than what is read over the network.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// Keys from a URL are fetched again after this time, so that a withdrawn one ends,
const FETCHED_FRESH: Duration = Duration::from_secs(600);
/// and not used any more when that failed for so long.
const FETCHED_KEPT: Duration = Duration::from_secs(3600);
/// A token that names an unknown key has them fetched again, but not more often than this.
const UNKNOWN_KEY_PAUSE: Duration = Duration::from_secs(60);
/// How long a fetch that failed is not tried again.
const FAILED_PAUSE: Duration = Duration::from_secs(5);
/// Issuers whose keys are kept.
const ISSUERS_MAX: usize = 1000;

/// Why an issuer's keys cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeySetError {
    /// The file cannot be read.
    #[error("the file of keys cannot be read")]
    File(#[from] std::io::Error),
    /// The address cannot be read from.
    #[error("the keys cannot be fetched")]
    Fetch(#[from] GuardError),
    /// What is there is no key set.
    #[error("what is there is not a JWK set of at most 64 KiB")]
    Content,
    /// It failed just now.
    #[error("the keys could not be fetched a moment ago")]
    Lately,
}

/// The keys of all issuers that were asked for.
pub(crate) struct KeySets {
    guard: Guarded,
    known: Mutex<HashMap<KeySetPlace, Arc<tokio::sync::Mutex<Known>>>>,
}

type KeySetPlace = (bool, String);

/// What is known of one issuer's keys.
#[derive(Default)]
struct Known {
    ring: Option<Arc<KeyRing>>,
    read_at: Option<Instant>,
    tried_at: Option<Instant>,
    /// Of a file: when it was written, and how long it is.
    stamp: Option<(SystemTime, u64)>,
}

impl KeySets {
    /// None yet.
    pub(crate) fn new(allowed: &[Network]) -> Result<Self, GuardError> {
        Ok(Self { guard: Guarded::new(allowed)?, known: Mutex::default() })
    }

    /// Whether an issuer's keys are in a place that could be asked.
    pub(crate) fn check(&self, keys: &KeySet) -> Result<(), &'static str> {
        match keys {
            KeySet::File(path) if Path::new(path).is_absolute() => Ok(()),
            KeySet::File(_) => Err("the file of keys must be a full path"),
            KeySet::Url(url) => self.guard.check(url).map(|_| ()).map_err(|error| match error {
                GuardError::Address(why) => why,
                _ => "it cannot be called",
            }),
        }
    }

    /// The key with which the issuer signed the token, if it has it.
    pub(crate) async fn find(
        &self,
        issuer: &Issuer,
        parts: &Parts<'_>,
    ) -> Result<Option<PublicKey>, KeySetError> {
        let known = self.known(&issuer.keys);
        // One reads for all who wait.
        let mut known = known.lock().await;
        self.refresh(&issuer.keys, &mut known, false).await?;
        let find = |known: &Known| known.ring.as_ref().and_then(|ring| ring.find(parts).cloned());
        if let Some(key) = find(&known) {
            return Ok(Some(key));
        }
        self.refresh(&issuer.keys, &mut known, true).await?;
        Ok(find(&known))
    }

    fn known(&self, keys: &KeySet) -> Arc<tokio::sync::Mutex<Known>> {
        let place = match keys {
            KeySet::File(path) => (false, path.clone()),
            KeySet::Url(url) => (true, url.clone()),
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= ISSUERS_MAX && !known.contains_key(&place) {
            known.clear();
        }
        Arc::clone(known.entry(place).or_default())
    }

    /// Reads the keys if it is time to; because a key is missing, somewhat earlier.
    async fn refresh(&self, keys: &KeySet, known: &mut Known, is_missing: bool) -> Result<(), KeySetError> {
        match keys {
            KeySet::File(path) => refresh_file(Path::new(path), known),
            KeySet::Url(url) => self.refresh_url(url, known, is_missing).await,
        }
    }

    async fn refresh_url(&self, url: &str, known: &mut Known, is_missing: bool) -> Result<(), KeySetError> {
        let fresh = if is_missing { UNKNOWN_KEY_PAUSE } else { FETCHED_FRESH };
        let younger = |at: Option<Instant>, than| at.is_some_and(|at| at.elapsed() < than);
        if younger(known.read_at, fresh) || (is_missing && younger(known.tried_at, UNKNOWN_KEY_PAUSE)) {
            return Ok(());
        }
        let fetched = if younger(known.tried_at, FAILED_PAUSE) {
            Err(KeySetError::Lately)
        } else {
            known.tried_at = Some(Instant::now());
            self.fetch(url).await
        };
        match fetched {
            Ok(ring) => {
                known.ring = Some(Arc::new(ring));
                known.read_at = Some(Instant::now());
                Ok(())
            }
            Err(error) if younger(known.read_at, FETCHED_KEPT) => {
                tracing::warn!(
                    url,
                    error = &error as &dyn std::error::Error,
                    "an issuer's keys stay as they were"
                );
                Ok(())
            }
            Err(error) => {
                known.ring = None;
                Err(error)
            }
        }
    }

    async fn fetch(&self, url: &str) -> Result<KeyRing, KeySetError> {
        KeyRing::read(&self.guard.get(url).await?).ok_or(KeySetError::Content)
    }
}

/// A file is looked at every time, and read when it is another one than before.
fn refresh_file(path: &Path, known: &mut Known) -> Result<(), KeySetError> {
    let metadata = std::fs::metadata(path)?;
    let stamp = Some((metadata.modified()?, metadata.len()));
    if known.ring.is_some() && known.stamp == stamp {
        return Ok(());
    }
    known.ring = None;
    if !metadata.is_file() {
        return Err(KeySetError::Content);
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(KeySetError::Content);
    }
    known.ring = Some(Arc::new(KeyRing::read(&bytes).ok_or(KeySetError::Content)?));
    known.stamp = stamp;
    Ok(())
}
