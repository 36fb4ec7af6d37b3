//! An HTTP processor: called once for each attempt, and its answer is what came of that (CLM-9).
//!
//! What matters is to tell apart what had no effect and what may have had one. Nothing was sent: it failed. An answer
//! came, whole or too long to be kept: its status says. Anything else nobody knows. How many calls are made at once is
//! the caller's business.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use snavio_model::id::{MessageId, Serial};
use snavio_model::limits;
use snavio_model::name::ServiceName;
use snavio_model::processing::{Answer, Ending};
use snavio_model::trace::{CorrelationId, Traceparent};

use crate::address::Network;
use crate::guard::{Answered, GuardError, Guarded, PostError, causes};

/// One attempt.
#[derive(Debug, Clone)]
pub struct Call {
    /// Where.
    pub url: String,
    /// How long it may take, from the first step to the last byte of the answer.
    pub timeout: Duration,
    /// Where in the answer the posting reference is, as a JSON pointer.
    pub reference: Option<String>,
    /// The message's id: by it the processor knows what it has done.
    pub idempotency_key: MessageId,
    /// Who sent it: the id is unique only within this one's tenant.
    pub source: ServiceName,
    /// Rises with every attempt.
    pub fence: Serial,
    /// The same over attempts.
    pub delivery_id: Serial,
    /// Which attempt this is, counted from one.
    pub attempt: u32,
    /// The journey of the message,
    pub correlation: CorrelationId,
    /// and its place in a trace.
    pub traceparent: Traceparent,
    /// What the body is.
    pub content_type: &'static str,
    /// The message.
    pub body: Bytes,
}

/// Calls HTTP processors.
pub struct HttpProcessor {
    guard: Guarded,
}

impl HttpProcessor {
    /// Calls public addresses over TLS, and those allowed also without.
    pub fn new(allowed: &[Network]) -> Result<Self, GuardError> {
        Ok(Self { guard: Guarded::new(allowed)? })
    }

    /// Whether a URL may be called, as far as can be told before its name is resolved; if not, why.
    pub fn check(&self, url: &str) -> Result<(), GuardError> {
        self.guard.check(url).map(drop)
    }

    /// Calls, and says what came of it.
    pub async fn call(&self, call: Call) -> Ending {
        let headers = match headers(&call) {
            Ok(headers) => headers,
            Err(error) => return failed(error.to_owned(), true),
        };
        match self.guard.post(&call.url, headers, call.body, call.timeout).await {
            Ok(answered) => ending(answered, call.reference.as_deref()),
            Err(PostError::Unsent(error)) => failed(unsent(&error, call.timeout), false),
            Err(PostError::Unanswered(error)) => Ending::Unknown { error: unanswered(&error, call.timeout) },
        }
    }
}

fn failed(error: String, is_final: bool) -> Ending {
    Ending::Failed { error, is_final, answer: None, retry_after: None }
}

fn headers(call: &Call) -> Result<HeaderMap, &'static str> {
    let id = call.idempotency_key.as_str();
    // Whoever reads a header takes spaces off its ends, and then two ids would be one.
    if id.trim_ascii() != id {
        return Err("the message's id begins or ends with a space, which no Idempotency-Key can carry");
    }
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(call.content_type));
    for (name, value) in [
        ("idempotency-key", id),
        ("snavio-source", call.source.as_str()),
        ("snavio-fence", &call.fence.to_string()),
        ("snavio-delivery-id", &call.delivery_id.to_string()),
        ("snavio-attempt", &call.attempt.to_string()),
        ("x-correlation-id", call.correlation.as_str()),
        ("traceparent", call.traceparent.as_str()),
    ] {
        let value =
            HeaderValue::from_str(value).map_err(|_| "the message's id cannot be told in a header")?;
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(headers)
}

fn ending(answered: Answered, pointer: Option<&str>) -> Ending {
    let Answered { status, headers, body } = answered;
    let content_type = text(&headers, &CONTENT_TYPE).filter(|it| it.len() <= limits::CONTENT_TYPE_BYTES_MAX);
    let answer = body.map(|body| Answer { status, content_type: content_type.map(str::to_owned), body });
    Ending::of_http(status, answer, pointer, retry_after(&headers))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// How long the processor asks to wait, in seconds or until a date. A date is counted from the one that the answer
/// itself bears, so that it does not matter how far the two clocks are apart.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let asked = text(headers, &RETRY_AFTER)?;
    let wait = match asked.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => date(asked)?.duration_since(date(text(headers, &DATE)?)?).unwrap_or_default(),
    };
    Some(wait.min(Duration::from_secs(limits::BACKOFF_SECONDS_MAX.into())))
}

fn date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text).ok()
}

/// Why nothing was sent, for people of the tenant whose processor it is.
fn unsent(error: &GuardError, timeout: Duration) -> String {
    match error {
        GuardError::Name(forbidden) => {
            // What a name stands for inside this network is for the operator.
            tracing::warn!(%forbidden, "a processor was not called");
            "the processor may not be called: its name stands for an address that is not public; see \
             outgoing.allowed"
                .to_owned()
        }
        GuardError::Address(why) => format!("the processor may not be called: {why}"),
        GuardError::Call(cause) if cause.is_timeout() => {
            format!("the processor could not be reached within {timeout:?}; nothing was sent")
        }
        error => format!("the processor could not be reached; nothing was sent: {}", innermost(error)),
    }
}

fn unanswered(error: &GuardError, timeout: Duration) -> String {
    match error {
        GuardError::Call(cause) if cause.is_timeout() => {
            format!("the processor did not answer within {timeout:?}; it may have done it")
        }
        error => format!("the processor's answer was lost; it may have done it: {}", innermost(error)),
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

    /// CLM-6
    #[test]
    fn a_processor_asks_for_time_in_seconds_or_until_a_date() {
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
