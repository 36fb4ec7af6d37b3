//! An HTTP processor: called once for each attempt, and its answer is what came of that (CLM-9).
//!
//! What matters is to tell apart what had no effect and what may have had one. Nothing was sent: it failed. An answer
//! came, whole or too long to be kept: its status says. Anything else nobody knows.

use async_trait::async_trait;
use reqwest::header::CONTENT_TYPE;
use snavio_model::bounds;
use snavio_model::delivery::breaker::Presence;
use snavio_model::delivery::processing::{Answer, Called, Ending, UnknownOutcome};

use crate::address::Network;
use crate::guard::{Answered, GuardError, Guarded, PostError};
use crate::http::{headers, retry_after, text, unanswered, unsent};
use crate::sink::{Call, Sink};

/// Calls HTTP processors.
pub struct HttpProcessor {
    guard: Guarded,
}

impl HttpProcessor {
    /// Calls public addresses over TLS, and those allowed also without.
    pub fn new(allowed: &[Network]) -> Result<Self, GuardError> {
        Ok(Self { guard: Guarded::new(allowed)? })
    }
}

#[async_trait]
impl Sink for HttpProcessor {
    fn check(&self, address: &str) -> Result<(), GuardError> {
        self.guard.check(address).map(drop)
    }

    async fn send(&self, call: Call) -> Called {
        let headers = match headers(&call, "idempotency-key") {
            Ok(headers) => headers,
            Err(error) => return Called { ending: failed(error, true), presence: Presence::Unasked },
        };
        match self.guard.post((&call.url, call.target.tenant()), headers, call.body, call.timeout).await {
            Ok(answered) => {
                let presence = Presence::of_status(answered.status, retry_after(&answered.headers));
                Called {
                    ending: ending(answered, call.reference.as_deref(), call.on_unknown_outcome),
                    presence,
                }
            }
            Err(PostError::Unsent(error)) => {
                let presence = if error.is_crowded() { Presence::Crowded } else { Presence::SILENT };
                Called { ending: failed(unsent("processor", &error, call.timeout), false), presence }
            }
            Err(PostError::Unanswered(error)) => {
                let ending = Ending::Unknown { error: unanswered("processor", &error, call.timeout) };
                Called { ending, presence: Presence::SILENT }
            }
        }
    }
}

fn failed(error: String, is_final: bool) -> Ending {
    Ending::Failed { error, is_final, answer: None, retry_after: None }
}

fn ending(answered: Answered, pointer: Option<&str>, on_unknown_outcome: UnknownOutcome) -> Ending {
    let Answered { status, headers, body } = answered;
    let content_type = text(&headers, &CONTENT_TYPE).filter(|it| it.len() <= bounds::CONTENT_TYPE_BYTES_MAX);
    let answer = body.map(|body| Answer { status, content_type: content_type.map(str::to_owned), body });
    Ending::of_http(status, answer, pointer, retry_after(&headers), on_unknown_outcome)
}
