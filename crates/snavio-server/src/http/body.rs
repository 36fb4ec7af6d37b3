//! Request bodies: told by their headers, read within their limit and in time.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http_body_util::BodyExt;
use snavio_model::bounds;
use snavio_model::cloudevents::{UTF8_RULE, is_utf8};
use snavio_model::refusal::{Reason, Refusal};
use tokio::time::{Instant, timeout_at};

use super::App;
use crate::arriving::BodyError;
use crate::load::Kept;

/// What a body is, by its content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Media {
    Json,
    NdJson,
}

/// Tells the media type; encoded bodies are not taken.
pub(super) fn media(headers: &HeaderMap) -> Result<Media, Refusal> {
    check_encoding(headers)?;
    if !is_utf8(content_type(headers)) {
        return Err(Refusal::new(Reason::UnsupportedMediaType, UTF8_RULE));
    }
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
    content_type(headers).split(';').next().unwrap_or_default().trim()
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Reads a body of at most `limit` bytes. One that says it is larger is refused before any of it is read; room
/// is taken for what came, not for what was announced.
pub(super) async fn read(app: &App, parts: &Parts, mut body: Body, limit: usize) -> Result<Bytes, Refusal> {
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large(limit));
    }
    let mut room = app.body_room(parts)?;
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    let (begun, mut length) = (Instant::now(), 0);
    loop {
        let deadline = begun + app.body_timeout + time_for(length);
        let frame = timeout_at(deadline, body.frame()).await.map_err(|_| too_slow())?;
        let Some(frame) = frame else { break };
        let Ok(part) = frame.map_err(|error| broken(&error))?.into_data() else { continue };
        length += part.len();
        if length > limit {
            return Err(too_large(limit));
        }
        room.grow(part.len())?;
        if first.is_empty() {
            // Most bodies come in one part, which then need not be copied.
            first = part;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&part);
        }
    }
    let bytes = if rest.is_empty() { first } else { rest.freeze() };
    Ok(Kept::with(bytes, room))
}

/// How long so many bytes may take. Pauses are bounded elsewhere; this is against a client that never pauses and
/// never ends, and keeps its room meanwhile.
fn time_for(bytes: usize) -> Duration {
    Duration::from_millis((bytes as u64).saturating_mul(1000) / bounds::BODY_BYTES_PER_SECOND_MIN)
}

fn too_slow() -> Refusal {
    Refusal::new(Reason::RequestTimeout, "the body comes too slowly")
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
