//! Answers in JSON.

use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;

/// A document as an answer.
pub(super) fn json(status: StatusCode, document: &impl Serialize) -> Response {
    let text = serde_json::to_string(document).unwrap_or_else(|_| "null".to_owned());
    typed(status, "application/json", text)
}

/// A text of a media type.
pub(super) fn typed(status: StatusCode, media: &'static str, text: String) -> Response {
    let mut response = (status, text).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// An answer that nobody on the way may keep, because it holds a secret.
pub(super) fn no_store(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
