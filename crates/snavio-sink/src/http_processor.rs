//! The HTTP processor sink: one call for each attempt, and the response is the outcome (CLM-9).
//!
//! The sink must tell an attempt without an effect from one that may have had an effect. If nothing was sent,
//! the attempt failed. If a response came, its status decides, even if the body is too long to keep. In every
//! other case the outcome is unknown.

use async_trait::async_trait;
use reqwest::header::CONTENT_TYPE;
use snavio_model::bounds;
use snavio_model::delivery::breaker::Presence;
use snavio_model::delivery::processing::{Answer, Called, Ending, UnknownOutcome};

use crate::address::Network;
use crate::guard::{Answered, GuardError, Guarded, PostError};
use crate::http::{headers, retry_after, text, unanswered_error, unsent_error};
use crate::sink::{Call, Sink};

/// Calls HTTP processors and reads their responses.
pub struct HttpProcessor {
    guard: Guarded,
}

impl HttpProcessor {
    /// A sink that calls public addresses over TLS. It also calls the allowed networks, with or without TLS.
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
            Ok(response) => {
                let presence = Presence::of_status(response.status, retry_after(&response.headers));
                Called {
                    ending: ending(response, call.reference.as_deref(), call.on_unknown_outcome),
                    presence,
                }
            }
            Err(PostError::Unsent(error)) => {
                let presence = if error.is_crowded() { Presence::Crowded } else { Presence::SILENT };
                Called { ending: failed(unsent_error("processor", &error, call.timeout), false), presence }
            }
            Err(PostError::Unanswered(error)) => {
                let ending = Ending::Unknown { error: unanswered_error("processor", &error, call.timeout) };
                Called { ending, presence: Presence::SILENT }
            }
        }
    }
}

fn failed(error: String, is_final: bool) -> Ending {
    Ending::Failed { error, is_final, answer: None, retry_after: None }
}

fn ending(response: Answered, pointer: Option<&str>, on_unknown_outcome: UnknownOutcome) -> Ending {
    let Answered { status, headers, body } = response;
    let content_type =
        text(&headers, &CONTENT_TYPE).filter(|value| value.len() <= bounds::CONTENT_TYPE_BYTES_MAX);
    let answer = body.map(|body| Answer { status, content_type: content_type.map(str::to_owned), body });
    Ending::of_http(status, answer, pointer, retry_after(&headers), on_unknown_outcome)
}
