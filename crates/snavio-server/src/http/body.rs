//! Request bodies: told by their headers, read within their limit and in time.

use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body_util::BodyExt;
use snavio_model::refusal::{Reason, Refusal};

use crate::arriving::BodyError;
use crate::load::{Kept, Load, no_room};

/// What a body is, by its content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Media {
    Json,
    NdJson,
}

/// Tells the media type; encoded bodies are not taken.
pub(super) fn media(headers: &HeaderMap) -> Result<Media, Refusal> {
    check_encoding(headers)?;
    let essence = essence(headers);
    if essence.eq_ignore_ascii_case("application/json") {
        Ok(Media::Json)
    } else if essence.eq_ignore_ascii_case("application/x-ndjson") {
        Ok(Media::NdJson)
    } else {
        Err(Refusal::new(Reason::UnsupportedMediaType, "the content type must be application/json"))
    }
}

/// A body that was compressed would have to be opened before its size is known.
pub(super) fn check_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    let encoded = |value: &http::HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
    if headers.get_all(CONTENT_ENCODING).iter().any(encoded) {
        let detail = "bodies with a content encoding are not taken";
        return Err(Refusal::new(Reason::UnsupportedMediaType, detail));
    }
    Ok(())
}

/// The content type without its parameters.
pub(super) fn essence(headers: &HeaderMap) -> &str {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    content_type.split(';').next().unwrap_or_default().trim()
}

/// Reads a body of at most `limit` bytes. One that says it is larger is refused before any of it is read, and so
/// is one that there is no room for.
pub(super) async fn read(load: &Load, mut body: Body, limit: usize) -> Result<Bytes, Refusal> {
    let told = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if told > limit {
        return Err(too_large(limit));
    }
    let mut room = load.reserve(told)?;
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let Ok(part) = frame.map_err(|error| broken(&error))?.into_data() else { continue };
        if length + part.len() > limit {
            return Err(too_large(limit));
        }
        length += part.len();
        if length > told && !room.grow(part.len()) {
            return Err(no_room());
        }
        if first.is_empty() {
            // Most bodies come in one part, which then need not be copied.
            first = part;
        } else {
            if rest.is_empty() {
                rest.reserve(told.max(length));
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&part);
        }
    }
    let bytes = if rest.is_empty() { first } else { rest.freeze() };
    Ok(Kept::with(bytes, room))
}

fn too_large(limit: usize) -> Refusal {
    Refusal::new(Reason::TooLarge, format!("the body is larger than {limit} bytes"))
}

/// Why a body did not come to its end.
pub(super) fn broken(error: &(dyn std::error::Error + 'static)) -> Refusal {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    if causes.any(|cause| matches!(cause.downcast_ref(), Some(BodyError::TooSlow))) {
        return Refusal::new(Reason::RequestTimeout, "the body paused for too long");
    }
    Refusal::new(Reason::InvalidRequest, "the body ended before it was complete")
}
