//! A service's own client: it holds the service's credentials, fetches its token, signs what it sends, and follows its
//! keys (`following.rs`).

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use snavio_model::delivery::Receipt;
use snavio_model::id::{MessageId, Serial};
use snavio_model::message::command::NewCommand;
use snavio_model::message::event::NewEvent;
use snavio_model::message::trace::CorrelationId;
use snavio_model::name::{CommandName, EventVersion, KeyVersion, ServiceName, TargetText};
use snavio_model::signature::signing::Secret;
use snavio_model::time::Timestamp;
use tokio::sync::Mutex;
use zeroize::Zeroize;

use crate::api::document;
use crate::delivered::Delivered;
use crate::following::{Following, Signer, signed};
use crate::{Api, ApiError};

/// A token this close to its end is renewed.
const TOKEN_MARGIN: Duration = Duration::from_secs(60);
/// Pauses between the attempts of one send.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(800),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

/// What registering a service answered: who it is, and its secrets.
#[derive(Clone, Serialize, Deserialize)]
pub struct Credentials {
    /// The service.
    pub source: ServiceName,
    /// Its OAuth client.
    pub client_id: String,
    /// The client's secret.
    pub client_secret: String,
    /// The version of its HMAC key.
    pub hmac_version: KeyVersion,
    /// The key, as `whsec_…`.
    pub hmac_secret: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials of {}", self.source)
    }
}

impl Drop for Credentials {
    fn drop(&mut self) {
        self.client_secret.zeroize();
        self.hmac_secret.zeroize();
    }
}

impl Credentials {
    /// The same, with another key.
    #[must_use]
    pub fn with_key(&self, hmac_version: KeyVersion, hmac_secret: String) -> Self {
        let (source, client_id, client_secret) =
            (self.source.clone(), self.client_id.clone(), self.client_secret.clone());
        Self { source, client_id, client_secret, hmac_version, hmac_secret }
    }

    /// The HMAC key itself.
    pub fn secret(&self) -> Result<Secret, ApiError> {
        use snavio_model::refusal::{Reason, Refusal};

        let wrong =
            |_| Refusal::new(Reason::InvalidRequest, "hmac_secret must be whsec_ and the base64 of 32 bytes");
        Ok(Secret::parse(&self.hmac_secret).map_err(wrong)?)
    }
}

/// A command to send.
#[derive(Debug, Clone)]
pub struct Command {
    /// The id; the same on every retry.
    pub id: MessageId,
    /// Where it goes.
    pub target: TargetText,
    /// Its name.
    pub name: CommandName,
    /// Its payload, as JSON.
    pub payload: Vec<u8>,
    /// The journey it belongs to.
    pub correlation: Option<CorrelationId>,
}

impl Command {
    /// A command under a new, time-ordered id.
    pub fn new(target: TargetText, name: CommandName, payload: Vec<u8>) -> Self {
        Self { id: new_id(), target, name, payload, correlation: None }
    }
}

/// An event to send, of a type that the client's own service publishes.
#[derive(Debug, Clone)]
pub struct Event {
    /// The id; the same on every retry.
    pub id: MessageId,
    /// Its type.
    pub event_type: CommandName,
    /// When it happened; when the gateway takes it, without it.
    pub timestamp: Option<String>,
    /// The version of its type; the type's own without it.
    pub version: Option<EventVersion>,
    /// What it says, as JSON.
    pub data: Vec<u8>,
    /// What else belongs to it, as a JSON object.
    pub metadata: Option<Vec<u8>>,
    /// The journey it belongs to.
    pub correlation: Option<CorrelationId>,
}

impl Event {
    /// An event under a new, time-ordered id.
    pub fn new(event_type: CommandName, data: Vec<u8>) -> Self {
        let id = new_id();
        Self { id, event_type, timestamp: None, version: None, data, metadata: None, correlation: None }
    }
}

pub(crate) fn new_id() -> MessageId {
    MessageId::stored(&uuid::Uuid::now_v7().to_string())
}

/// The gateway's answer to a message it did not refuse.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status: 202 accepted, 201 processed, 200 a duplicate, a replay, or late and left out.
    pub status: u16,
    /// The whole document.
    pub document: Value,
    /// The same as it came: numbers have all their digits.
    pub text: Box<str>,
}

impl Answer {
    fn new(status: u16, bytes: &[u8]) -> Self {
        Self { status, document: document(bytes), text: String::from_utf8_lossy(bytes).into() }
    }

    /// Whether it was seen before, so that nothing was dispatched: a duplicate, or a replay of what was processed.
    pub fn is_duplicate(&self) -> bool {
        self.says("duplicate") || self.says("replay")
    }

    /// Whether it is late in the order of its entity where late ones are left out: recorded, and not delivered.
    pub fn is_skipped(&self) -> bool {
        self.says("skipped")
    }

    /// Whether it is accepted, and waits for those before it in its entity. An event for several says so of each in
    /// `subscriptions`.
    pub fn is_waiting(&self) -> bool {
        self.says("waiting")
    }

    /// Whether it is accepted, and queues behind one of its entity that failed for good. An event for several says so of
    /// each in `subscriptions`.
    pub fn is_parked(&self) -> bool {
        self.says("parked")
    }

    fn says(&self, word: &str) -> bool {
        self.document[word] == true
    }
}

/// A delivery, as received.
#[derive(Debug, Clone, Deserialize)]
pub struct Delivery {
    /// Its id: the same over attempts. Store it with your effect.
    pub delivery_id: Serial,
    /// Rises with every attempt.
    pub fence: Serial,
    /// Which attempt this is.
    pub attempt: u32,
    /// The message.
    pub message: Delivered,
}

impl Delivery {
    /// What acknowledges it.
    pub fn receipt(&self) -> Receipt {
        Receipt { delivery_id: self.delivery_id, fence: self.fence }
    }
}

/// A service's client.
pub struct Client {
    pub(crate) api: Api,
    pub(crate) following: Following,
    token: Mutex<Option<(String, Timestamp)>>,
}

impl Client {
    /// A client for a service at a node. It asks for its configuration with its first command, and every 12 hours
    /// while it sends, and signs with a new key as soon as there is one: see [`Client::keeping`].
    pub fn new(api: Api, credentials: Credentials) -> Result<Self, ApiError> {
        Ok(Self { api, following: Following::new(credentials)?, token: Mutex::new(None) })
    }

    /// The message as it goes over the wire, signed now.
    pub fn sign(&self, command: &Command) -> Result<Vec<u8>, ApiError> {
        sign(command, &self.following.current())
    }

    /// The text that [`Client::sign`] would sign now, for looking at.
    pub fn signing_text(&self, command: &Command) -> Result<String, ApiError> {
        let signer = self.following.current();
        Ok(new_command(command, &signer.credentials, &now().to_string()).signing_text()?.to_string())
    }

    async fn send_signed(&self, command: &Command, signer: Arc<Signer>) -> Result<Answer, ApiError> {
        let body = sign(command, &signer)?;
        let (status, bytes) = self.exchange(Method::POST, "/v1/commands", Some(body)).await?;
        Ok(Answer::new(status, &bytes))
    }

    /// Sends an event, and again under the same id while the failure may pass, obeying the gateway's hints. The request is
    /// signed, whether or not the service's events must be.
    pub async fn send_event(&self, event: &Event) -> Result<Answer, ApiError> {
        let body = new_event(event).write()?;
        self.persist(|| self.signing(|signer| self.send_event_signed(event, &body, signer))).await
    }

    async fn send_event_signed(
        &self,
        event: &Event,
        body: &[u8],
        signer: Arc<Signer>,
    ) -> Result<Answer, ApiError> {
        let headers = signed(&signer, event.id.as_str(), body);
        let (status, bytes) =
            self.exchange_with(Method::POST, "/v1/events", Some(body.to_vec()), &headers).await?;
        Ok(Answer::new(status, &bytes))
    }

    /// Sends a command, and again under the same id while the failure may pass, obeying the gateway's hints.
    pub async fn send(&self, command: &Command) -> Result<Answer, ApiError> {
        self.persist(|| self.send_once(command)).await
    }

    /// Sends a command once, freshly signed; and once more when its key was not accepted and there is another.
    pub async fn send_once(&self, command: &Command) -> Result<Answer, ApiError> {
        self.signing(|signer| self.send_signed(command, signer)).await
    }

    async fn persist<F: Future<Output = Result<Answer, ApiError>>>(
        &self,
        send: impl Fn() -> F,
    ) -> Result<Answer, ApiError> {
        let mut pauses = PAUSES.into_iter();
        loop {
            match send().await {
                Err(error) if error.is_retryable() => match pauses.next() {
                    Some(pause) => tokio::time::sleep(error.retry_after().unwrap_or(pause).max(pause)).await,
                    None => return Err(error),
                },
                ended => return ended,
            }
        }
    }

    /// Receives up to `max` deliveries, waiting up to `wait` for the first.
    pub async fn receive(
        &self,
        queue: &str,
        max: usize,
        visibility: Duration,
        wait: Duration,
    ) -> Result<Vec<Delivery>, ApiError> {
        #[derive(Deserialize)]
        struct Page {
            deliveries: Vec<Delivery>,
        }
        let body =
            json!({ "max": max, "visibility_seconds": visibility.as_secs(), "wait_seconds": wait.as_secs() });
        let path = format!("/v1/queues/{queue}/receive");
        let body = body.to_string().into_bytes();
        let (_, bytes) = self.exchange(Method::POST, &path, Some(body)).await?;
        let page: Page = serde_json::from_slice(&bytes).map_err(|error| unreadable(&error))?;
        Ok(page.deliveries)
    }

    /// Ends deliveries for good; the answer says which were done, gone or fenced.
    pub async fn acknowledge(&self, queue: &str, receipts: &[Receipt]) -> Result<Value, ApiError> {
        let body = json!({ "receipts": receipts });
        self.call(Method::POST, &format!("/v1/queues/{queue}/ack"), Some(&body)).await
    }

    /// Ends a delivery for good, and says what came of it, for senders who ask: the reference that the work is known by,
    /// 1 to 256 bytes, and what to answer. Both are kept where the route is `tracked`, the answer where its claims keep
    /// answers too.
    pub async fn acknowledge_with(
        &self,
        queue: &str,
        receipt: Receipt,
        reference: Option<&str>,
        response: Option<&Value>,
    ) -> Result<Value, ApiError> {
        let mut body = json!({ "receipts": [receipt] });
        if let Some(reference) = reference {
            body["reference"] = reference.into();
        }
        if let Some(response) = response {
            body["response"] = response.clone();
        }
        self.call(Method::POST, &format!("/v1/queues/{queue}/ack"), Some(&body)).await
    }

    /// Hides deliveries for `visibility` from now on; the answer says which were done, gone or fenced.
    pub async fn extend(
        &self,
        queue: &str,
        receipts: &[Receipt],
        visibility: Duration,
    ) -> Result<Value, ApiError> {
        let body = json!({ "receipts": receipts, "visibility_seconds": visibility.as_secs() });
        self.call(Method::POST, &format!("/v1/queues/{queue}/extend"), Some(&body)).await
    }

    /// Gives deliveries back, to be received again after `delay`; the answer says which were done, gone or fenced. What
    /// went wrong is kept where the route is `tracked`, and told to senders who ask.
    pub async fn release(
        &self,
        queue: &str,
        receipts: &[Receipt],
        delay: Duration,
        error: Option<&str>,
    ) -> Result<Value, ApiError> {
        self.give_back(queue, receipts, delay, error, false).await
    }

    /// The same where nobody knows whether the work is done: where its route holds what is in doubt, the gateway keeps it for
    /// a person, and does not hand it out again by itself.
    pub async fn release_unknown(
        &self,
        queue: &str,
        receipts: &[Receipt],
        delay: Duration,
        error: Option<&str>,
    ) -> Result<Value, ApiError> {
        self.give_back(queue, receipts, delay, error, true).await
    }

    async fn give_back(
        &self,
        queue: &str,
        receipts: &[Receipt],
        delay: Duration,
        error: Option<&str>,
        is_unknown: bool,
    ) -> Result<Value, ApiError> {
        let mut body = json!({ "receipts": receipts, "delay_seconds": delay.as_secs() });
        if let Some(error) = error {
            body["error"] = error.into();
        }
        if is_unknown {
            body["unknown"] = true.into();
        }
        self.call(Method::POST, &format!("/v1/queues/{queue}/release"), Some(&body)).await
    }

    /// Calls any endpoint as this service.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        let body = body.map(|body| body.to_string().into_bytes());
        self.exchange(method, path, body).await.map(|(_, bytes)| document(&bytes))
    }

    /// Calls with a token, and with a new one when the one at hand is not taken any more.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<(u16, Vec<u8>), ApiError> {
        self.exchange_with(method, path, body, &[]).await
    }

    pub(crate) async fn exchange_with(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        headers: &[(&str, String)],
    ) -> Result<(u16, Vec<u8>), ApiError> {
        let json = "application/json";
        let api = self.authorized().await?;
        match api.exchange_with(method.clone(), path, body.clone(), json, headers).await {
            Err(error) if error.is_of_the_token() => {
                *self.token.lock().await = None;
                self.authorized().await?.exchange_with(method, path, body, json, headers).await
            }
            ended => ended,
        }
    }

    /// The node, with a token that still holds.
    pub async fn authorized(&self) -> Result<Api, ApiError> {
        let mut token = self.token.lock().await;
        if let Some((text, ends)) = token.as_ref()
            && now().plus(TOKEN_MARGIN) < *ends
        {
            return Ok(self.api.with_token(text));
        }
        let signer = self.following.current();
        let form = format!(
            "grant_type=client_credentials&client_id={}&client_secret={}",
            signer.credentials.client_id, signer.credentials.client_secret
        );
        let content_type = "application/x-www-form-urlencoded";
        let (_, answer) =
            self.api.send(Method::POST, "/v1/token", Some(form.into_bytes()), content_type).await?;
        let text = answer["access_token"].as_str().unwrap_or_default().to_owned();
        let lifetime = Duration::from_secs(answer["expires_in"].as_u64().unwrap_or(0));
        let api = self.api.with_token(&text);
        *token = Some((text, now().plus(lifetime)));
        Ok(api)
    }
}

fn sign(command: &Command, signer: &Signer) -> Result<Vec<u8>, ApiError> {
    Ok(new_command(command, &signer.credentials, &now().to_string()).sign(&signer.secret)?)
}

fn new_command<'a>(command: &'a Command, credentials: &'a Credentials, timestamp: &'a str) -> NewCommand<'a> {
    NewCommand {
        id: &command.id,
        timestamp,
        version_id: &credentials.hmac_version,
        source: &credentials.source,
        target: &command.target,
        name: &command.name,
        payload: &command.payload,
        correlation_id: command.correlation.as_ref(),
    }
}

fn new_event(event: &Event) -> NewEvent<'_> {
    NewEvent {
        id: &event.id,
        event_type: &event.event_type,
        timestamp: event.timestamp.as_deref(),
        version: event.version.as_ref(),
        data: &event.data,
        metadata: event.metadata.as_deref(),
        correlation_id: event.correlation.as_ref(),
    }
}

pub(crate) fn unreadable(error: &serde_json::Error) -> ApiError {
    use snavio_model::refusal::{Reason, Refusal};

    Refusal::new(Reason::InvalidRequest, format!("the gateway's answer cannot be read: {error}")).into()
}

#[expect(clippy::disallowed_methods, reason = "a client signs with its own clock")]
pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// CLM-5: whoever books what is new must not book a replay.
    #[test]
    fn a_replay_was_seen_before_as_a_duplicate_was() {
        for (document, is_duplicate) in [
            (json!({ "accepted": true }), false),
            (json!({ "duplicate": true }), true),
            (json!({ "status": "COMPLETED", "replay": true }), true),
            (json!({ "status": "COMPLETED", "replay": false }), false),
        ] {
            let answer = Answer { status: 200, document, text: Box::default() };
            assert_eq!(answer.is_duplicate(), is_duplicate, "{answer:?}");
        }
    }
}
