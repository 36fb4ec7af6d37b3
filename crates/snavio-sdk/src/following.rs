//! How a client follows its service's keys (REG-11): it asks for its configuration now and then, signs with the new key
//! as soon as it knows it, and keeps the one before for nodes that do not know the new one yet.

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

/// After a poll that failed, or one for a refused message, so long is waited for the next.
const POLL_PAUSE: Duration = Duration::from_secs(1);

/// A key, and the credentials it is part of.
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

/// The keys that a client has, and how it comes by new ones.
pub(crate) struct Following {
    keys: RwLock<Keys>,
    every: Option<Duration>,
    keep: Option<Hook>,
    /// When it was last asked; whoever holds this is asking.
    polled: Mutex<Option<Polled>>,
}

#[derive(Clone)]
struct Keys {
    current: Arc<Signer>,
    previous: Option<Arc<Signer>>,
}

#[derive(Clone, Copy)]
struct Polled {
    at: Instant,
    succeeded: bool,
}

/// What the gateway says of the key to sign with.
#[derive(Deserialize)]
struct Told {
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
        Ok(Self { keys, every: Some(bounds::CONFIG_POLL), keep: None, polled: Mutex::new(None) })
    }

    /// The key to sign with.
    pub(crate) fn current(&self) -> Arc<Signer> {
        self.keys().current
    }

    fn keys(&self) -> Keys {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Signs with another key from now on. Whoever is signing meanwhile has either the one or the other, whole.
    fn swap(&self, next: Signer) {
        let next = Arc::new(next);
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let previous = std::mem::replace(&mut keys.current, Arc::clone(&next));
        keys.previous = Some(previous);
        drop(keys);
        if let Some(keep) = &self.keep {
            keep(&next.credentials);
        }
    }
}

impl Client {
    /// The same client, asking for its configuration this often; 12 hours when not said.
    #[must_use]
    pub fn polling_every(mut self, every: Duration) -> Self {
        self.following.every = Some(every);
        self
    }

    /// The same client, signing with the one key it was given, whatever becomes of it.
    #[must_use]
    pub fn without_following(mut self) -> Self {
        self.following.every = None;
        self
    }

    /// The same client, handing new credentials over as soon as it has them, to be kept for its next start.
    #[must_use]
    pub fn keeping(mut self, keep: impl Fn(&Credentials) + Send + Sync + 'static) -> Self {
        self.following.keep = Some(Box::new(keep));
        self
    }

    /// The credentials that it works with now.
    pub fn credentials(&self) -> Credentials {
        self.following.current().credentials.clone()
    }

    /// What the gateway has to say to this service: its keys, limits, routes and grants. If the connection is encrypted or
    /// does not leave the machine the request is signed, and the answer holds the key to sign with.
    pub async fn tenant_config(&self) -> Result<Value, ApiError> {
        self.tenant_config_signed(&self.following.current()).await
    }

    async fn tenant_config_signed(&self, signer: &Signer) -> Result<Value, ApiError> {
        // Who can hold back what is signed on an open network could use it elsewhere, over TLS and first.
        let is_confidential = self.api.is_confidential();
        let headers = is_confidential.then(|| signed(signer, new_id().as_str(), TENANT_CONFIG.as_bytes()));
        let headers = headers.unwrap_or_default();
        let (_, bytes) = self.exchange_with(Method::GET, TENANT_CONFIG_PATH, None, &headers).await?;
        serde_json::from_slice(&bytes).map_err(|error| unreadable(&error))
    }

    /// Asks for the key to sign with, and signs with it from now on. Says whether it is another one.
    pub async fn fetch_key(&self) -> Result<bool, ApiError> {
        let mut polled = self.following.polled.lock().await;
        let fetched = self.fetch().await;
        *polled = Some(Polled { at: Instant::now(), succeeded: fetched.is_ok() });
        fetched
    }

    async fn fetch(&self) -> Result<bool, ApiError> {
        let Keys { current, previous } = self.following.keys();
        let told = match (self.tenant_config_signed(&current).await, previous) {
            // The current one was taken back: the one before may still be good.
            (Err(error), Some(previous)) if error.may_be_of_the_key() => {
                self.tenant_config_signed(&previous).await?
            }
            (told, _) => told?,
        };
        let told: Told = serde_json::from_value(told).map_err(|error| unreadable(&error))?;
        let Some(key) = told.current else {
            if !self.api.is_confidential() {
                return Err(ApiError::Withheld("the connection is not encrypted: ask over TLS".to_owned()));
            }
            return Err(ApiError::Withheld(told.withheld.unwrap_or_default()));
        };
        let credentials = self.credentials();
        if key.hmac_version == credentials.hmac_version && *key.hmac_secret == credentials.hmac_secret {
            return Ok(false);
        }
        let hmac_secret = key.hmac_secret.as_str().to_owned();
        self.following.swap(Signer::new(credentials.with_key(key.hmac_version, hmac_secret))?);
        Ok(true)
    }

    /// Asks for the key to sign with if it is time to. Nobody waits for somebody else who is asking, and what goes
    /// wrong is tried again later: the key at hand is good for days.
    async fn follow(&self) {
        let Some(every) = self.following.every else { return };
        let Ok(mut polled) = self.following.polled.try_lock() else { return };
        let pause = |polled: Polled| if polled.succeeded { every } else { every.min(POLL_PAUSE * 60) };
        if polled.is_some_and(|it| it.at.elapsed() < pause(it)) {
            return;
        }
        let succeeded = self.fetch().await.is_ok();
        *polled = Some(Polled { at: Instant::now(), succeeded });
    }

    /// Another key than the one that was refused, if there is one: a new one, or the one before it where the node
    /// does not know the new one yet.
    async fn other_signer(&self, refused: &Signer) -> Option<Arc<Signer>> {
        self.following.every?;
        let is_other =
            |signer: &Arc<Signer>| signer.credentials.hmac_version != refused.credentials.hmac_version;
        if !is_other(&self.following.current()) {
            let mut polled = self.following.polled.lock().await;
            if polled.is_none_or(|it| it.at.elapsed() >= POLL_PAUSE) {
                let succeeded = self.fetch().await.is_ok();
                *polled = Some(Polled { at: Instant::now(), succeeded });
            }
        }
        let Keys { current, previous } = self.following.keys();
        std::iter::once(current).chain(previous).find(is_other)
    }

    /// Does something with the key to sign with; and once more when it was not accepted and there is another.
    pub(crate) async fn signing<F: Future<Output = Result<Answer, ApiError>>>(
        &self,
        send: impl Fn(Arc<Signer>) -> F,
    ) -> Result<Answer, ApiError> {
        self.follow().await;
        let signer = self.following.current();
        match send(Arc::clone(&signer)).await {
            Err(error) if error.may_be_of_the_key() => match self.other_signer(&signer).await {
                Some(other) => send(other).await,
                None => Err(error),
            },
            ended => ended,
        }
    }
}

/// What shows that a request with this body is the service's own: the headers of Standard Webhooks, signed now.
pub(crate) fn signed(signer: &Signer, id: &str, body: &[u8]) -> Vec<(&'static str, String)> {
    let at = now().0.div_euclid(1000);
    let signature = webhook::sign(&signer.secret, id, at, body);
    vec![
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", at.to_string()),
        ("webhook-signature", signature),
    ]
}
