//! HTTP push (DLV-1, DLV-4): a message as a signed POST, taken when the receiver answers with a 2xx.
//!
//! Nothing is kept of an answer but its status and when the receiver wants the next attempt. Whatever else it says, or if it
//! says nothing, the message is sent again, under the same ids: a receiver must know by `webhook-id` what it has done.

use async_trait::async_trait;
use snavio_model::bounds;
use snavio_model::delivery::breaker::Presence;
use snavio_model::delivery::processing::{Called, Ending};

use crate::address::Network;
use crate::guard::{GuardError, Guarded, PostError};
use crate::http::{headers, retry_after, unanswered, unsent};
use crate::sink::{Call, Sink};

/// Pushes messages to HTTP endpoints. The call brings the signature's headers: what signs is not known here.
pub struct HttpPush {
    guard: Guarded,
}

impl HttpPush {
    /// Calls public addresses over TLS, and those allowed also without.
    pub fn new(allowed: &[Network]) -> Result<Self, GuardError> {
        Ok(Self { guard: Guarded::new(allowed)? })
    }
}

#[async_trait]
impl Sink for HttpPush {
    fn check(&self, address: &str) -> Result<(), GuardError> {
        self.guard.check(address).map(drop)
    }

    async fn send(&self, call: Call) -> Called {
        let headers = match headers(&call, "webhook-id") {
            Ok(headers) => headers,
            Err(error) => {
                let ending = Ending::Failed { error, is_final: true, answer: None, retry_after: None };
                return Called { ending, presence: Presence::Unasked };
            }
        };
        match self.guard.begin_post((&call.url, call.target.tenant()), headers, call.body, call.timeout).await
        {
            Ok(begun) => {
                let (status, asked) = (begun.status, retry_after(&begun.headers));
                // Read to its end, so that the connection can be used again. What it says does not matter, nor whether it
                // comes: the status is there.
                let _ = begun.read(bounds::PUSH_ANSWER_BYTES_MAX).await;
                let presence = match status {
                    410 => Presence::Gone,
                    _ => Presence::of_status(status, asked),
                };
                Called { ending: Ending::of_push(status, asked), presence }
            }
            Err(PostError::Unsent(error)) => {
                let presence = if error.is_crowded() { Presence::Crowded } else { Presence::SILENT };
                let error = unsent("receiver", &error, call.timeout);
                let ending = Ending::Failed { error, is_final: false, answer: None, retry_after: None };
                Called { ending, presence }
            }
            Err(PostError::Unanswered(error)) => {
                let ending = Ending::Unknown { error: unanswered("receiver", &error, call.timeout) };
                Called { ending, presence: Presence::SILENT }
            }
        }
    }
}
