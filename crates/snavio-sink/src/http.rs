//! What all calls over HTTP share: their headers, and what is said of those that came to nothing.

use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use snavio_model::bounds;

use crate::guard::{Forbidden, GuardError, causes};
use crate::sink::Call;

/// The headers of a call, the message's id under a name of the kind's own.
pub(crate) fn headers(call: &Call, id_name: &'static str) -> Result<HeaderMap, String> {
    let id = call.message_id.as_str();
    // Whoever reads a header takes spaces off its ends, and then two ids would be one.
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
        headers.insert(HeaderName::from_static(name), told(value)?);
    }
    for (name, value) in &call.headers {
        let name =
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| "a header's name is none".to_owned())?;
        headers.insert(name, told(value)?);
    }
    Ok(headers)
}

fn told(value: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(value).map_err(|_| "the message's id cannot be told in a header".to_owned())
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

/// The text of a header.
pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// How long the other side asks to wait, in seconds or until a date. A date is counted from the one that the answer
/// itself bears, so that it does not matter how far the two clocks are apart.
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

/// Why nothing was sent, for people of the tenant whose processor or receiver it is.
pub(crate) fn unsent(whom: &str, error: &GuardError, timeout: Duration) -> String {
    match error {
        GuardError::Name(forbidden) => not_called(whom, forbidden),
        GuardError::Address(why) => format!("the {whom} may not be called: {why}"),
        GuardError::Call(cause) if cause.is_timeout() => {
            format!("the {whom} could not be reached within {timeout:?}; nothing was sent")
        }
        error => format!("the {whom} could not be reached; nothing was sent: {}", innermost(error)),
    }
}

/// What a name stands for inside this network is for the operator, and never for whoever named it (QUA-6).
fn not_called(whom: &str, forbidden: &Forbidden) -> String {
    tracing::warn!(%forbidden, "a {whom} was not called");
    format!(
        "the {whom} may not be called: its name stands for an address that is not public; see outgoing.allowed"
    )
}

/// What is known of a call that was sent and not answered.
pub(crate) fn unanswered(whom: &str, error: &GuardError, timeout: Duration) -> String {
    match error {
        GuardError::Call(cause) if cause.is_timeout() => {
            format!("the {whom} did not answer within {timeout:?}; it may have done it")
        }
        GuardError::Name(forbidden) => not_called(whom, forbidden),
        error => format!("the {whom}'s answer was lost; it may have done it: {}", innermost(error)),
    }
}

/// The cause of all: what is around it says only that something failed.
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
    fn the_other_side_asks_for_time_in_seconds_or_until_a_date() {
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
            let told = retry_after(&answer(&[(RETRY_AFTER, asked), date.clone()]));
            assert_eq!(told, seconds.map(Duration::from_secs), "{asked:?}");
        }
        assert_eq!(retry_after(&answer(&[(RETRY_AFTER, "Sun, 06 Nov 1994 08:50:37 GMT")])), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
