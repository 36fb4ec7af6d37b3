//! Request bodies: read within their limit, JSON told by its headers, errors as problems.

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use snavio_model::limits;
use snavio_model::refusal::{Reason, Refusal};

use super::{Problem, Shared};

/// What a body is, by its content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Media {
    Json,
    NdJson,
}

/// Tells the media type; encoded bodies are not taken.
pub(super) fn media(headers: &HeaderMap) -> Result<Media, Refusal> {
    let unsupported = |detail: &'static str| Refusal::new(Reason::UnsupportedMediaType, detail);
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(unsupported("bodies with a content encoding are not taken"));
    }
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        Ok(Media::Json)
    } else if essence.eq_ignore_ascii_case("application/x-ndjson") {
        Ok(Media::NdJson)
    } else {
        Err(unsupported("the content type must be application/json"))
    }
}

/// Reads a body of at most `limit` bytes.
pub(super) async fn read(body: Body, limit: usize) -> Result<Bytes, Refusal> {
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Refusal::new(Reason::TooLarge, format!("the body is larger than {limit} bytes")))
        }
        Err(_) => Err(Refusal::new(Reason::InvalidRequest, "the body ended before it was complete")),
    }
}

/// A JSON body of a management call.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Shared> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &Shared) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let bytes = read(body, limits::BATCH_BYTES_MAX).await?;
        if bytes.is_empty() {
            return parse(b"{}");
        }
        media(&parts.headers)?;
        parse(&bytes)
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<JsonBody<T>, Problem> {
    let parsed = serde_json::from_slice(bytes).map(JsonBody);
    parsed.map_err(|error| {
        Refusal::new(Reason::InvalidRequest, format!("the body does not fit: {error}")).into()
    })
}
