//! Key rotation on the client's side (REG-11). The client asks for its configuration at an interval, signs
//! with a new key as soon as it has one, and keeps the previous key for nodes that do not know the new one
//! yet.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;
use snavio_model::bounds;
use snavio_model::name::KeyVersion;
use snavio_model::signature::signed_request::{TENANT_CONFIG, TENANT_CONFIG_PATH};
use snavio_model::signature::signing::Secret;
use snavio_model::signature::webhook;
use tokio::sync::Mutex;
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::client::{Client, Credentials, new_id, now, unreadable};
use crate::{Answer, ApiError};

/// The least pause between two polls that a refused message causes. After a failed poll, the next regular
/// poll comes after 60 times this pause, or earlier if the poll interval is shorter.
const POLL_PAUSE: Duration = Duration::from_secs(1);

/// A key and the credentials that contain it.
pub(crate) struct Signer {
    pub(crate) credentials: Credentials,
    pub(crate) secret: Secret,
}

impl Signer {
    pub(crate) fn new(credentials: Credentials) -> Result<Self, ApiError> {
        Ok(Self { secret: credentials.secret()?, credentials })
    }
}

type Hook = Box<dyn Fn(&Credentials) + Send + Sync>;

/// The keys of a client, and the state of its polls.
pub(crate) struct Following {
    keys: RwLock<Keys>,
    every: Option<Duration>,
    on_new_credentials: Option<Hook>,
    /// The last poll. The task that holds this lock is polling.
    last_poll: Mutex<Option<Poll>>,
}

#[derive(Clone)]
struct Keys {
    current: Arc<Signer>,
    previous: Option<Arc<Signer>>,
}

#[derive(Clone, Copy)]
struct Poll {
    at: Instant,
    succeeded: bool,
}

/// The part of the configuration about the signing key.
#[derive(Deserialize)]
struct KeyResponse {
    current: Option<CurrentKey>,
    withheld: Option<String>,
}

#[derive(Deserialize)]
struct CurrentKey {
    hmac_version: KeyVersion,
    hmac_secret: Zeroizing<String>,
}

impl Following {
    pub(crate) fn new(credentials: Credentials) -> Result<Self, ApiError> {
        let current = Arc::new(Signer::new(credentials)?);
        let keys = RwLock::new(Keys { current, previous: None });
        Ok(Self {
            keys,
            every: Some(bounds::CONFIG_POLL),
            on_new_credentials: None,
            last_poll: Mutex::new(None),
        })
    }

    pub(crate) fn current(&self) -> Arc<Signer> {
        self.keys().current
    }

    fn keys(&self) -> Keys {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the signing key. A concurrent signature uses either the old or the new key, never a mix.
    fn swap(&self, next: Signer) {
        let next = Arc::new(next);
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let previous = std::mem::replace(&mut keys.current, Arc::clone(&next));
        keys.previous = Some(previous);
        drop(keys);
        if let Some(on_new_credentials) = &self.on_new_credentials {
            on_new_credentials(&next.credentials);
        }
    }
}

impl Client {
    /// Sets the interval at which the client asks for its configuration. The default is 12 hours.
    #[must_use]
    pub fn polling_every(mut self, every: Duration) -> Self {
        self.following.every = Some(every);
        self
    }

    /// Keeps the client on the key that it was given, even after a rotation.
    #[must_use]
    pub fn without_following(mut self) -> Self {
        self.following.every = None;
        self
    }

    /// Sets a function that gets new credentials as soon as the client has them, so that the program can
    /// store them for its next start.
    #[must_use]
    pub fn keeping(mut self, on_new_credentials: impl Fn(&Credentials) + Send + Sync + 'static) -> Self {
        self.following.on_new_credentials = Some(Box::new(on_new_credentials));
        self
    }

    /// The credentials that the client uses now.
    pub fn credentials(&self) -> Credentials {
        self.following.current().credentials.clone()
    }

    /// The configuration of this service: its keys, limits, routes and grants.
    ///
    /// If the connection is encrypted or stays on this machine, the request is signed and the response
    /// contains the signing key.
    pub async fn tenant_config(&self) -> Result<Value, ApiError> {
        self.tenant_config_signed(&self.following.current()).await
    }

    async fn tenant_config_signed(&self, signer: &Signer) -> Result<Value, ApiError> {
        // On an unencrypted network the request stays unsigned: an attacker could hold back a signed request
        // and use it first, over TLS, to get the key.
        let is_confidential = self.api.is_confidential();
        let headers = is_confidential.then(|| signed(signer, new_id().as_str(), TENANT_CONFIG.as_bytes()));
        let headers = headers.unwrap_or_default();
        let (_, bytes) = self.exchange_with(Method::GET, TENANT_CONFIG_PATH, None, &headers).await?;
        serde_json::from_slice(&bytes).map_err(|error| unreadable(&error))
    }

    /// Fetches the signing key and signs with it from now on. Returns true if the key is new.
    pub async fn fetch_key(&self) -> Result<bool, ApiError> {
        let mut last_poll = self.following.last_poll.lock().await;
        let fetched = self.fetch().await;
        *last_poll = Some(Poll { at: Instant::now(), succeeded: fetched.is_ok() });
        fetched
    }

    async fn fetch(&self) -> Result<bool, ApiError> {
        let Keys { current, previous } = self.following.keys();
        let response = match (self.tenant_config_signed(&current).await, previous) {
            // The current key was revoked; the previous key may still be valid.
            (Err(error), Some(previous)) if error.may_be_key_rejected() => {
                self.tenant_config_signed(&previous).await?
            }
            (response, _) => response?,
        };
        let response: KeyResponse = serde_json::from_value(response).map_err(|error| unreadable(&error))?;
        let Some(key) = response.current else {
            if !self.api.is_confidential() {
                return Err(ApiError::Withheld("the connection is not encrypted; use https".to_owned()));
            }
            return Err(ApiError::Withheld(response.withheld.unwrap_or_default()));
        };
        let credentials = self.credentials();
        if key.hmac_version == credentials.hmac_version && *key.hmac_secret == credentials.hmac_secret {
            return Ok(false);
        }
        let hmac_secret = key.hmac_secret.as_str().to_owned();
        self.following.swap(Signer::new(credentials.with_key(key.hmac_version, hmac_secret))?);
        Ok(true)
    }

    /// Fetches the signing key if a poll is due. Does not wait for another task that is polling. Ignores
    /// errors: the current key is valid for days, and a later poll tries again.
    async fn follow(&self) {
        let Some(every) = self.following.every else { return };
        let Ok(mut last_poll) = self.following.last_poll.try_lock() else { return };
        let pause = |last_poll: Poll| if last_poll.succeeded { every } else { every.min(POLL_PAUSE * 60) };
        if last_poll.is_some_and(|last| last.at.elapsed() < pause(last)) {
            return;
        }
        let succeeded = self.fetch().await.is_ok();
        *last_poll = Some(Poll { at: Instant::now(), succeeded });
    }

    /// A key other than the refused one, if there is one: a newer key, or the previous key if the node does
    /// not know the newer one yet.
    async fn other_signer(&self, refused: &Signer) -> Option<Arc<Signer>> {
        self.following.every?;
        let is_other =
            |signer: &Arc<Signer>| signer.credentials.hmac_version != refused.credentials.hmac_version;
        if !is_other(&self.following.current()) {
            let mut last_poll = self.following.last_poll.lock().await;
            if last_poll.is_none_or(|last| last.at.elapsed() >= POLL_PAUSE) {
                let succeeded = self.fetch().await.is_ok();
                *last_poll = Some(Poll { at: Instant::now(), succeeded });
            }
        }
        let Keys { current, previous } = self.following.keys();
        std::iter::once(current).chain(previous).find(is_other)
    }

    /// Calls `send` with the signing key. If the gateway rejects the key and there is another one, calls
    /// `send` once more with that key.
    pub(crate) async fn signing<F: Future<Output = Result<Answer, ApiError>>>(
        &self,
        send: impl Fn(Arc<Signer>) -> F,
    ) -> Result<Answer, ApiError> {
        self.follow().await;
        let signer = self.following.current();
        match send(Arc::clone(&signer)).await {
            Err(error) if error.may_be_key_rejected() => match self.other_signer(&signer).await {
                Some(other) => send(other).await,
                None => Err(error),
            },
            ended => ended,
        }
    }
}

/// The headers that prove that the service itself sent this body: Standard Webhooks, signed now.
pub(crate) fn signed(signer: &Signer, id: &str, body: &[u8]) -> Vec<(&'static str, String)> {
    let at = now().0.div_euclid(1000);
    let signature = webhook::sign(&signer.secret, id, at, body);
    vec![
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", at.to_string()),
        ("webhook-signature", signature),
    ]
}
