//! Requests that two readers could read in two ways (QUA-7): a proxy in front of the node and the node itself must
//! not disagree about who sends a body, what it is and where it ends.
//!
//! Over HTTP/1, hyper settles where a body ends before the edge sees the headers. It refuses different
//! Content-Lengths, a list of them, a Transfer-Encoding that does not end in `chunked` and any Transfer-Encoding of an
//! HTTP/1.0 request with a bare 400. It drops a Content-Length beside a Transfer-Encoding and closes the connection
//! after the answer, as RFC 9112 6.1 asks; of equal Content-Lengths it keeps the first. It accepts codings before a
//! last `chunked`, which it does not decode: [`check_framing`] refuses those.

use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName};
use snavio_model::refusal::{Reason, Refusal};

/// Headers that say one thing, and say it once.
const ONCE: [HeaderName; 3] = [AUTHORIZATION, CONTENT_TYPE, CONTENT_LENGTH];

/// Refuses every Transfer-Encoding but exactly one `chunked`. The caller must close the connection: another reader may
/// see the end of the body elsewhere.
pub(crate) fn check_framing(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => {
            let detail = "unsupported Transfer-Encoding: send exactly one header with the value chunked, or a Content-Length";
            Err(Refusal::new(Reason::InvalidRequest, detail))
        }
    }
}

/// Refuses what is said twice.
pub(crate) fn check(headers: &HeaderMap) -> Result<(), Refusal> {
    match ONCE.iter().find(|name| headers.get_all(*name).iter().nth(1).is_some()) {
        None => Ok(()),
        Some(name) => {
            let detail = format!("the request has more than one {name} header");
            Err(Refusal::new(Reason::InvalidRequest, detail))
        }
    }
}
