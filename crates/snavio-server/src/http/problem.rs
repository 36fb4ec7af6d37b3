//! Refusals as RFC 9457 problem documents (MSG-12).

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};
use snavio_model::refusal::{Reason, Refusal, Refused};
use snavio_store::StoreError;

/// An answer that says no.
#[derive(Debug)]
pub(crate) struct Problem(Box<Refused>);

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        Self(Box::new(refused))
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Refused::from(refusal).into()
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Stale { .. } => {
                Refusal::new(Reason::RegistryConflict, "the registry was changed by somebody else meanwhile")
                    .into()
            }
            error => {
                tracing::warn!(error = &error as &dyn std::error::Error, "store did not answer");
                let after = std::time::Duration::from_secs(1);
                Refusal::retry(Reason::Unavailable, after, "the store cannot answer at the moment").into()
            }
        }
    }
}

impl Problem {
    /// The status of the answer.
    pub(crate) fn status(&self) -> u16 {
        self.0.refusal.reason.contract().status
    }

    /// The document.
    pub(crate) fn document(&self) -> Value {
        let Refused { subject, refusal } = &*self.0;
        let contract = refusal.reason.contract();
        let mut document = json!({
            "type": format!("urn:snavio:problem:{}", contract.code),
            "title": contract.title,
            "status": contract.status,
            "detail": refusal.detail,
            "reason": contract.code,
            "accepted": false,
            "advice": contract.advice,
        });
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                document[name] = value;
            }
        };
        set("id", subject.id.as_ref().map(|id| id.as_str().into()));
        set("correlation_id", subject.correlation.as_ref().map(|it| it.as_str().into()));
        set("retry_after_ms", refusal.retry_after.map(|it| (it.as_millis() as u64).into()));
        if let Some(skew) = refusal.skew {
            let seconds = skew.received_at.skew(skew.sent_at).as_millis() as f64 / 1000.0;
            set("skew_seconds", Some(seconds.into()));
            set("received_at", Some(skew.received_at.to_string().into()));
        }
        document
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, self.document().to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(after) = self.0.refusal.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
