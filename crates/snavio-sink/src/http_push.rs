//! HTTP push (DLV-1, DLV-4): a message as a signed POST, delivered when the receiver answers with a 2xx.
//!
//! The gateway keeps only the status of a response and the time at which the receiver wants the next attempt.
//! After any other response, or none, the gateway sends the message again under the same ids. A receiver must
//! deduplicate by `webhook-id`.

use async_trait::async_trait;
use snavio_model::bounds;
use snavio_model::delivery::breaker::Presence;
use snavio_model::delivery::processing::{Called, Ending};

use crate::address::Network;
use crate::guard::{GuardError, Guarded, PostError};
use crate::http::{headers, retry_after, unanswered_error, unsent_error};
use crate::sink::{Call, Sink};

/// Pushes messages to HTTP endpoints. The caller puts the signature into the call's headers; this sink does
/// not sign.
pub struct HttpPush {
    guard: Guarded,
}

impl HttpPush {
    /// A sink that calls public addresses over TLS. It also calls the allowed networks, with or without TLS.
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
            Ok(response) => {
                let (status, retry_after_header) = (response.status, retry_after(&response.headers));
                // Read the body to its end, so that the connection can be reused. Its content does not
                // matter, nor does a failure to read it: the status is known.
                let _ = response.read(bounds::PUSH_ANSWER_BYTES_MAX).await;
                let presence = match status {
                    410 => Presence::Gone,
                    _ => Presence::of_status(status, retry_after_header),
                };
                Called { ending: Ending::of_push(status, retry_after_header), presence }
            }
            Err(PostError::Unsent(error)) => {
                let presence = if error.is_crowded() { Presence::Crowded } else { Presence::SILENT };
                let error = unsent_error("receiver", &error, call.timeout);
                let ending = Ending::Failed { error, is_final: false, answer: None, retry_after: None };
                Called { ending, presence }
            }
            Err(PostError::Unanswered(error)) => {
                let ending = Ending::Unknown { error: unanswered_error("receiver", &error, call.timeout) };
                Called { ending, presence: Presence::SILENT }
            }
        }
    }
}
