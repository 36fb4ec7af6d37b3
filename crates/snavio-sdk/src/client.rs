//! The client of one service. It holds the service's credentials, fetches access tokens, signs messages, and
//! follows key rotations (`following.rs`).

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

/// A token is renewed this long before it expires.
const TOKEN_MARGIN: Duration = Duration::from_secs(60);
/// Pauses between the attempts of one `send`.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(800),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

/// The credentials of a service, as the gateway returns them when the service is registered. Both secrets are
/// erased from memory on drop.
#[derive(Clone, Serialize, Deserialize)]
pub struct Credentials {
    /// The service's name, `tenant/service`.
    pub source: ServiceName,
    /// The OAuth client id of the service.
    pub client_id: String,
    pub client_secret: String,
    pub hmac_version: KeyVersion,
    /// The HMAC key, as `whsec_…`.
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
    /// The same credentials with another key.
    #[must_use]
    pub fn with_key(&self, hmac_version: KeyVersion, hmac_secret: String) -> Self {
        let (source, client_id, client_secret) =
            (self.source.clone(), self.client_id.clone(), self.client_secret.clone());
        Self { source, client_id, client_secret, hmac_version, hmac_secret }
    }

    /// Decodes the HMAC key. Fails if `hmac_secret` is not `whsec_` and the base64 of 32 bytes.
    pub fn secret(&self) -> Result<Secret, ApiError> {
        use snavio_model::refusal::{Reason, Refusal};

        let wrong =
            |_| Refusal::new(Reason::InvalidRequest, "hmac_secret must be whsec_ and the base64 of 32 bytes");
        Ok(Secret::parse(&self.hmac_secret).map_err(wrong)?)
    }
}

/// A command to send to one target.
#[derive(Debug, Clone)]
pub struct Command {
    /// The message id. It is the same on every retry.
    pub id: MessageId,
    /// The service that the command is for: `tenant/service`, or `service` alone within the sender's tenant.
    pub target: TargetText,
    pub name: CommandName,
    /// The payload as JSON text.
    pub payload: Vec<u8>,
    /// The correlation id. Without it, the gateway sets one.
    pub correlation: Option<CorrelationId>,
}

impl Command {
    /// Creates a command with a new, time-ordered id.
    pub fn new(target: TargetText, name: CommandName, payload: Vec<u8>) -> Self {
        Self { id: new_id(), target, name, payload, correlation: None }
    }
}

/// An event to send, of a type that the client's own service publishes.
#[derive(Debug, Clone)]
pub struct Event {
    /// The message id. It is the same on every retry.
    pub id: MessageId,
    pub event_type: CommandName,
    /// The time of the event. Without it, the gateway uses the time of receipt.
    pub timestamp: Option<String>,
    /// The version of the event type. Without it, the version of the registered type applies.
    pub version: Option<EventVersion>,
    /// The business content as JSON text.
    pub data: Vec<u8>,
    /// Additional metadata as a JSON object.
    pub metadata: Option<Vec<u8>>,
    /// The correlation id. Without it, the gateway sets one.
    pub correlation: Option<CorrelationId>,
}

impl Event {
    /// Creates an event with a new, time-ordered id.
    pub fn new(event_type: CommandName, data: Vec<u8>) -> Self {
        let id = new_id();
        Self { id, event_type, timestamp: None, version: None, data, metadata: None, correlation: None }
    }
}

pub(crate) fn new_id() -> MessageId {
    MessageId::stored(&uuid::Uuid::now_v7().to_string())
}

/// The gateway's response to a message that it did not refuse.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status: 202 accepted; 201 processed; 200 a duplicate, a replayed response, or a late message
    /// that its route skips.
    pub status: u16,
    /// The whole response document.
    pub document: Value,
    /// The response as text. It keeps all digits of numbers, which `document` may round.
    pub text: Box<str>,
}

impl Answer {
    fn new(status: u16, bytes: &[u8]) -> Self {
        Self { status, document: document(bytes), text: String::from_utf8_lossy(bytes).into() }
    }

    /// Whether the gateway has seen the id before and dispatched nothing now: a duplicate, or the replayed
    /// response of a message that is already processed.
    pub fn is_duplicate(&self) -> bool {
        self.is_set("duplicate") || self.is_set("replay")
    }

    /// Whether the message is late in the order of its entity and its route skips late messages. The gateway
    /// recorded it and does not deliver it.
    pub fn is_skipped(&self) -> bool {
        self.is_set("skipped")
    }

    /// Whether the message is accepted and waits for missing messages of its entity. For an event with
    /// several subscriptions, see `subscriptions` in the document.
    pub fn is_waiting(&self) -> bool {
        self.is_set("waiting")
    }

    /// Whether the message is accepted and parked behind a message of its entity that failed for good. For an
    /// event with several subscriptions, see `subscriptions` in the document.
    pub fn is_parked(&self) -> bool {
        self.is_set("parked")
    }

    fn is_set(&self, word: &str) -> bool {
        self.document[word] == true
    }
}

/// A delivery that this consumer has leased.
#[derive(Debug, Clone, Deserialize)]
pub struct Delivery {
    /// The delivery id. It is the same on every attempt. Store it with your effect.
    pub delivery_id: Serial,
    /// The fencing token. It rises with every attempt.
    pub fence: Serial,
    /// The number of this attempt, counted from 1.
    pub attempt: u32,
    pub message: Delivered,
}

impl Delivery {
    /// The receipt handle, which acknowledges, extends or releases the delivery.
    pub fn receipt(&self) -> Receipt {
        Receipt { delivery_id: self.delivery_id, fence: self.fence }
    }
}

/// Sends messages and receives deliveries as one service.
pub struct Client {
    pub(crate) api: Api,
    pub(crate) following: Following,
    token: Mutex<Option<(String, Timestamp)>>,
}

impl Client {
    /// Creates a client for a service at a node.
    ///
    /// While the client sends, it asks the gateway for its configuration: with the first message and then
    /// every 12 hours. It signs with a new key as soon as it has one. To store a new key for the next start,
    /// see [`Client::keeping`].
    pub fn new(api: Api, credentials: Credentials) -> Result<Self, ApiError> {
        Ok(Self { api, following: Following::new(credentials)?, token: Mutex::new(None) })
    }

    /// The command as it goes over the wire, signed with the current key and time.
    pub fn sign(&self, command: &Command) -> Result<Vec<u8>, ApiError> {
        sign(command, &self.following.current())
    }

    /// The text that [`Client::sign`] would sign now, for debugging.
    pub fn signing_text(&self, command: &Command) -> Result<String, ApiError> {
        let signer = self.following.current();
        Ok(new_command(command, &signer.credentials, &now().to_string()).signing_text()?.to_string())
    }

    async fn send_signed(&self, command: &Command, signer: Arc<Signer>) -> Result<Answer, ApiError> {
        let body = sign(command, &signer)?;
        let (status, bytes) = self.exchange(Method::POST, "/v1/commands", Some(body)).await?;
        Ok(Answer::new(status, &bytes))
    }

    /// Sends an event. Retries under the same id while the error is retryable, with the waits that the
    /// gateway asks for. The request is signed, even if the service's events need no signature.
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

    /// Sends a command. Retries under the same id while the error is retryable, with the waits that the
    /// gateway asks for.
    pub async fn send(&self, command: &Command) -> Result<Answer, ApiError> {
        self.persist(|| self.send_once(command)).await
    }

    /// Sends a command once, signed with the current time. If the gateway rejects the key and the client has
    /// another one, it sends the command a second time with that key.
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

    /// Receives up to `max` deliveries and leases them for `visibility`. Waits up to `wait` for the first
    /// one.
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

    /// Acknowledges deliveries: the work is done, and they are not delivered again. The response has an
    /// `outcome` for each receipt: `done`, `gone` or `fenced`.
    pub async fn acknowledge(&self, queue: &str, receipts: &[Receipt]) -> Result<Value, ApiError> {
        let body = json!({ "receipts": receipts });
        self.call(Method::POST, &format!("/v1/queues/{queue}/ack"), Some(&body)).await
    }

    /// Acknowledges a delivery and reports its result, which producers can query.
    ///
    /// `reference` is the id of the result in your system, 1 to 256 bytes. `response` is the response for the
    /// producer. The gateway keeps both if the route is `tracked`, and the response only if the claims of the
    /// route keep responses.
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

    /// Extends the leases of deliveries to `visibility` from now. The response has an `outcome` for each
    /// receipt: `done`, `gone` or `fenced`.
    pub async fn extend(
        &self,
        queue: &str,
        receipts: &[Receipt],
        visibility: Duration,
    ) -> Result<Value, ApiError> {
        let body = json!({ "receipts": receipts, "visibility_seconds": visibility.as_secs() });
        self.call(Method::POST, &format!("/v1/queues/{queue}/extend"), Some(&body)).await
    }

    /// Releases deliveries; they become visible again after `delay`. The response has an `outcome` for each
    /// receipt: `done`, `gone` or `fenced`. If the route is `tracked`, the gateway keeps `error`, and
    /// producers can query it.
    pub async fn release(
        &self,
        queue: &str,
        receipts: &[Receipt],
        delay: Duration,
        error: Option<&str>,
    ) -> Result<Value, ApiError> {
        self.release_with(queue, receipts, delay, error, false).await
    }

    /// Releases deliveries whose outcome is unknown: the work may be done. If the route holds messages with
    /// an unknown outcome, the gateway keeps them for a person and does not deliver them again by itself.
    pub async fn release_unknown(
        &self,
        queue: &str,
        receipts: &[Receipt],
        delay: Duration,
        error: Option<&str>,
    ) -> Result<Value, ApiError> {
        self.release_with(queue, receipts, delay, error, true).await
    }

    async fn release_with(
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

    /// Calls any endpoint of the gateway as this service.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        let body = body.map(|body| body.to_string().into_bytes());
        self.exchange(method, path, body).await.map(|(_, bytes)| document(&bytes))
    }

    /// Sends a request with a token. If the gateway rejects the token, fetches a new one and sends the
    /// request again.
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
            Err(error) if error.is_token_rejected() => {
                *self.token.lock().await = None;
                self.authorized().await?.exchange_with(method, path, body, json, headers).await
            }
            ended => ended,
        }
    }

    /// A connection to the node with a valid access token of this service. Fetches a token if there is none,
    /// or if it expires within a minute.
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

    Refusal::new(Reason::InvalidRequest, format!("cannot read the gateway's response: {error}")).into()
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

    /// CLM-5: a program that books new messages must not book a replayed response.
    #[test]
    fn replayed_response_counts_as_duplicate() {
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
