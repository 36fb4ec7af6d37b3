//! Shared parts of all HTTP calls: request headers, and the error texts of calls without a response.

use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use snavio_model::bounds;

use crate::guard::{Forbidden, GuardError, causes};
use crate::sink::Call;

/// The headers of a call. `id_name` is the header of this kind that carries the message's id.
pub(crate) fn headers(call: &Call, id_name: &'static str) -> Result<HeaderMap, String> {
    let id = call.message_id.as_str();
    // Readers of a header trim spaces at both ends, and then two different ids would become equal.
    if id.trim_ascii() != id {
        let name = id_name.split('-').map(capitalised).collect::<Vec<_>>().join("-");
        return Err(format!("the message's id begins or ends with a space, which no {name} can carry"));
    }
    let mut headers = HeaderMap::new();
    for (name, value) in [
        (id_name, id),
        ("snavio-source", call.source.as_str()),
        ("snavio-fence", &call.fence.to_string()),
        ("snavio-delivery-id", &call.delivery_id.to_string()),
        ("snavio-attempt", &call.attempt.to_string()),
        ("x-correlation-id", call.correlation.as_str()),
        ("traceparent", call.traceparent.as_str()),
    ] {
        headers.insert(HeaderName::from_static(name), header_value(value)?);
    }
    for (name, value) in &call.headers {
        let name =
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("invalid header name {name:?}"))?;
        headers.insert(name, header_value(value)?);
    }
    Ok(headers)
}

fn header_value(value: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(value).map_err(|_| "the message's id cannot be told in a header".to_owned())
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

/// The trimmed value of a header, if it is text.
pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// The wait that the response asks for, in seconds or until a date. A date is compared with the response's
/// own `Date`, so that the difference between the two clocks does not matter.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let asked = text(headers, &RETRY_AFTER)?;
    let wait = match asked.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => date(asked)?.duration_since(date(text(headers, &DATE)?)?).unwrap_or_default(),
    };
    Some(wait.min(Duration::from_secs(bounds::BACKOFF_SECONDS_MAX.into())))
}

fn date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text).ok()
}

/// The error text of a call that sent nothing. People of the tenant that owns the processor or receiver read
/// it.
pub(crate) fn unsent_error(party: &str, error: &GuardError, timeout: Duration) -> String {
    match error {
        GuardError::Name(forbidden) => forbidden_error(party, forbidden),
        GuardError::Address(problem) => format!("the {party} may not be called: {problem}"),
        GuardError::Call(cause) if cause.is_timeout() => {
            format!("the {party} could not be reached within {timeout:?}; nothing was sent")
        }
        error => format!("the {party} could not be reached; nothing was sent: {}", innermost(error)),
    }
}

/// Logs the resolved address for the operator and returns a text without it: the tenant that named the host
/// may be probing this network (QUA-6).
fn forbidden_error(party: &str, forbidden: &Forbidden) -> String {
    tracing::warn!(%forbidden, "a {party} was not called");
    format!(
        "the {party} may not be called: its name stands for an address that is not public; see outgoing.allowed"
    )
}

/// The error text of a call that was sent and has no response.
pub(crate) fn unanswered_error(party: &str, error: &GuardError, timeout: Duration) -> String {
    match error {
        GuardError::Call(cause) if cause.is_timeout() => {
            format!("the {party} did not answer within {timeout:?}; it may have done it")
        }
        GuardError::Name(forbidden) => forbidden_error(party, forbidden),
        error => format!("the {party}'s answer was lost; it may have done it: {}", innermost(error)),
    }
}

/// The innermost cause; the outer errors say only that a call failed.
fn innermost(error: &GuardError) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    /// CLM-6, DLV-4
    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let date = (DATE, "Sun, 06 Nov 1994 08:49:37 GMT");
        for (asked, seconds) in [
            ("0", Some(0)),
            ("120", Some(120)),
            (" 7 ", Some(7)),
            ("99999999999", Some(12 * 3600)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", Some(60)),
            ("Sun Nov  6 08:50:37 1994", Some(60)),
            ("Sun, 06 Nov 1994 08:49:36 GMT", Some(0)),
            ("Wed, 01 Jan 2200 00:00:00 GMT", Some(12 * 3600)),
            ("-1", None),
            ("soon", None),
            ("99999999999999999999999", None),
            ("", None),
        ] {
            let wait = retry_after(&answer(&[(RETRY_AFTER, asked), date.clone()]));
            assert_eq!(wait, seconds.map(Duration::from_secs), "{asked:?}");
        }
        assert_eq!(retry_after(&answer(&[(RETRY_AFTER, "Sun, 06 Nov 1994 08:50:37 GMT")])), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
