//! Refusals as RFC 9457 problem documents (MSG-12).

use std::borrow::Cow;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use snavio_gate::ArchiveTrouble;
use snavio_model::refusal::{Reason, Refusal, Refused};
use snavio_store::StoreError;
use utoipa::ToSchema;

use super::answer::typed;
use super::openapi::reasons;
use crate::load::overloaded;

/// When to come back after an overload or an outage, unless whoever refuses knows better.
pub(super) const COME_BACK_AFTER: Duration = Duration::from_secs(1);

/// When to come back for what is in the archive while that is down.
const ARCHIVE_ASKED_AGAIN: Duration = Duration::from_secs(30);

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
            StoreError::Overloaded(why) => overloaded(why).into(),
            error => {
                tracing::warn!(error = &error as &dyn std::error::Error, "store did not answer");
                match error {
                    StoreError::Closed => Refusal::lost("the store closed before it answered").into(),
                    StoreError::Damaged { .. } => {
                        let detail = "a record that this needs is damaged: an operator can see which with snavio doctor";
                        Refusal::new(Reason::Unavailable, detail).into()
                    }
                    StoreError::Lost(_) => Refusal::lost("the store gave no answer").into(),
                    _ => Refusal::new(Reason::Unavailable, "the store cannot answer at the moment").into(),
                }
            }
        }
    }
}

impl From<ArchiveTrouble> for Problem {
    fn from(trouble: ArchiveTrouble) -> Self {
        match trouble {
            ArchiveTrouble::Store(error) => error.into(),
            trouble => {
                tracing::warn!(error = &trouble as &dyn std::error::Error, "the archive did not answer");
                let detail = "it is in the archive, which cannot be used now";
                Refusal::retry(Reason::Unavailable, ARCHIVE_ASKED_AGAIN, detail).into()
            }
        }
    }
}

/// When to come back: every 503 says so, whoever refuses.
fn retry_after(refusal: &Refusal) -> Option<Duration> {
    let default = (refusal.reason.contract().status == 503).then_some(COME_BACK_AFTER);
    refusal.retry_after.or(default)
}

/// The document of a refusal.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Document {
    r#type: String,
    title: &'static str,
    status: u16,
    /// What was wrong, for a person to read.
    detail: Cow<'static, str>,
    #[schema(schema_with = reasons)]
    reason: &'static str,
    /// False: the refusal left no trace. Missing where the gateway cannot know; a retry with the same id settles it.
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<bool>,
    /// What to do.
    advice: &'static str,
    /// The message's id, where it was known.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    /// The message's place in its trace, where one was begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skew_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received_at: Option<String>,
    /// Where it is on record that the id means two things.
    #[serde(skip_serializing_if = "Option::is_none")]
    conflict_id: Option<i64>,
    /// The number of a message that is late in the order of its entity,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<i64>,
    /// and the highest of its entity that was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<i64>,
}

impl Problem {
    /// The document.
    pub(crate) fn document(&self) -> Document {
        let Refused { subject, refusal } = &*self.0;
        let contract = refusal.reason.contract();
        let skew = refusal.skew;
        Document {
            r#type: format!("urn:snavio:problem:{}", contract.code),
            title: contract.title,
            status: contract.status,
            detail: refusal.detail.clone(),
            reason: contract.code,
            accepted: (!refusal.in_doubt).then_some(false),
            advice: contract.advice,
            id: subject.id.as_ref().map(|id| id.as_str().to_owned()),
            correlation_id: subject.correlation.as_ref().map(|it| it.as_str().to_owned()),
            traceparent: subject.traceparent.as_ref().map(|it| it.as_str().to_owned()),
            retry_after_ms: retry_after(refusal).map(|it| it.as_millis() as u64),
            skew_seconds: skew.map(|it| it.received_at.skew(it.sent_at).as_millis() as f64 / 1000.0),
            received_at: skew.map(|it| it.received_at.to_string()),
            conflict_id: refusal.conflict.map(|it| it.0),
            number: refusal.numbers.as_ref().map(|it| it.number),
            last: refusal.numbers.as_ref().map(|it| it.last),
        }
    }

    /// An answer with the document, to which the caller may have added something.
    pub(crate) fn answer(&self, document: &impl Serialize) -> Response {
        let refusal = &self.0.refusal;
        let status = StatusCode::from_u16(refusal.reason.contract().status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let text = serde_json::to_string(document).unwrap_or_default();
        let mut response = typed(status, "application/problem+json", text);
        let headers = response.headers_mut();
        if let Some(after) = retry_after(refusal) {
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_millis().div_ceil(1000).max(1) as u64));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"snavio\""));
        }
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.answer(&self.document())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MSG-12
    #[test]
    fn an_answer_that_cannot_know_does_not_say_that_nothing_was_accepted() {
        let shown = |refusal: Refusal| serde_json::to_value(Problem::from(refusal).document()).unwrap();
        let known = shown(Refusal::new(Reason::Unavailable, "no"));
        assert_eq!((&known["accepted"], &known["retry_after_ms"]), (&false.into(), &1000.into()));
        let lost = shown(Refusal::lost("no word"));
        assert_eq!((lost.get("accepted"), &lost["retry_after_ms"]), (None, &1000.into()));
        assert!(lost["advice"].as_str().unwrap().contains("retry with the same id"));
    }

    /// MSG-12
    #[test]
    fn every_503_says_when_to_come_back() {
        for reason in Reason::ALL.iter().filter(|reason| reason.contract().status == 503) {
            let answer = Problem::from(Refusal::new(*reason, "")).into_response();
            assert!(answer.headers().contains_key(RETRY_AFTER), "{reason:?}");
        }
    }
}
