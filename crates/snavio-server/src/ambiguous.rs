//! Requests that two readers could read in two ways (QUA-7): a proxy in front of the node and the node itself must
//! not disagree about who sends a body, what it is and where it ends.
//!
//! Over HTTP/1, hyper settles where a body ends before anybody here sees the headers. Different Content-Lengths, a
//! list of them, and a Transfer-Encoding that does not end in `chunked` are refused with a bare 400. A
//! Content-Length beside a Transfer-Encoding is dropped, and the connection closed after the answer, as RFC 9112
//! 6.1 asks, so that nothing can follow on it; of equal Content-Lengths the first is kept.

use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName};
use snavio_model::refusal::{Reason, Refusal};

/// Headers that say one thing, and say it once.
const ONCE: [HeaderName; 3] = [AUTHORIZATION, CONTENT_TYPE, CONTENT_LENGTH];

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
