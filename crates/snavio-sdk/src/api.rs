//! JSON over HTTP with a bearer token, and refusals as errors.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::Value;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The gateway said no, and why.
    #[error("{status} {reason}: {detail}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The stable reason code.
        reason: String,
        /// What was wrong, and what to do.
        detail: String,
        /// When to come back.
        retry_after: Option<Duration>,
        /// The whole document.
        document: Value,
        /// The same as it came: numbers have all their digits.
        text: Box<str>,
    },
    /// The gateway was not reached, or hung up.
    #[error("cannot reach {url}")]
    Unreachable {
        /// Where it was looked for.
        url: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// The gateway did not tell the key to sign with, and why.
    #[error("the key to sign with is not told: {0}")]
    Withheld(String),
    /// The message could not be made.
    #[error("the message is not right")]
    Message(#[from] snavio_model::refusal::Refusal),
}

impl ApiError {
    /// Whether the same call may go through later: overload, outage, a lost connection. What failed for good is answered
    /// the same however often it is sent, whatever status its processor gave or the gateway gives in its place.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Refused { status, .. } => {
                matches!(status, 429 | 502 | 503 | 504) && !self.is_final_failure() && !self.is_throttled()
            }
            Self::Unreachable { .. } => true,
            Self::Withheld(_) | Self::Message(_) => false,
        }
    }

    /// Whether the message was taken, and failed for good.
    pub fn is_final_failure(&self) -> bool {
        matches!(self, Self::Refused { document, .. } if document["state"] == "FAILED")
    }

    /// Whether the credential, signature or key is wrong, and too many before it were: waiting alone does not help.
    fn is_throttled(&self) -> bool {
        matches!(self, Self::Refused { reason, .. } if reason == "auth_throttled" || reason == "signature_throttled")
    }

    /// Whether the gateway did not take the token, which may have been right until a restart or a change of keys. Where
    /// others at the same address used wrong ones, it says so in other words.
    pub(crate) fn is_of_the_token(&self) -> bool {
        matches!(self, Self::Refused { reason, .. } if reason == "unauthenticated" || reason == "auth_throttled")
    }

    /// Whether another key may help: the gateway did not accept this one, or throttles and does not say why by code.
    pub(crate) fn may_be_of_the_key(&self) -> bool {
        self.is_of_the_key()
            || matches!(self, Self::Refused { reason, .. } if reason == "signature_throttled")
    }

    /// Whether the gateway did not accept the key of a message, which may have been right until a rotation.
    pub fn is_of_the_key(&self) -> bool {
        matches!(self, Self::Refused { status: 401, reason, .. } if reason == "key_expired" || reason == "key_unknown")
    }

    /// When the gateway asked to come back.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// A connection to a node.
#[derive(Debug, Clone)]
pub struct Api {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
}

impl Api {
    /// A node at `base`, for example `http://127.0.0.1:8080`. Without a scheme it is `http://` for this machine, and
    /// `https://` for others: a token must not go over a network as it is by mistake. `ca` is a PEM with further roots to trust. A node on
    /// this machine is reached without the proxy that the environment names (`HTTP_PROXY`), others with it.
    pub fn new(base: &str, ca: Option<&[u8]>) -> Result<Self, ApiError> {
        // One provider for the process; a second one asking is told so and goes on with the first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let base = &with_scheme(base);
        let unreachable = |source| ApiError::Unreachable { url: base.to_owned(), source };
        // No gateway redirects, and a token must not follow one elsewhere.
        let redirects = reqwest::redirect::Policy::none();
        let mut builder =
            reqwest::Client::builder().timeout(Duration::from_secs(40)).tcp_nodelay(true).redirect(redirects);
        if is_loopback(base) {
            builder = builder.no_proxy();
        }
        if let Some(pem) = ca {
            let certificates = reqwest::Certificate::from_pem_bundle(pem).map_err(unreachable)?;
            for certificate in certificates {
                builder = builder.add_root_certificate(certificate);
            }
        }
        let http = builder.build().map_err(unreachable)?;
        Ok(Self { http, base: base.trim_end_matches('/').to_owned(), token: None })
    }

    /// The same node, with a bearer token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// The node's address.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Whether nobody on the way can read what is said: it is encrypted, or does not leave the machine.
    pub(crate) fn is_confidential(&self) -> bool {
        self.base.starts_with("https://") || is_loopback(&self.base)
    }

    /// Calls with a JSON body, or none.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        let bytes = body.map(|body| body.to_string().into_bytes());
        self.send(method, path, bytes, "application/json").await.map(|(_, document)| document)
    }

    /// Calls with bytes of a content type, and says the status too.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        content_type: &str,
    ) -> Result<(u16, Value), ApiError> {
        let (status, bytes) = self.exchange(method, path, body, content_type).await?;
        Ok((status, document(&bytes)))
    }

    /// Calls with bytes of a content type, and gives back the bytes of a successful answer.
    pub async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        content_type: &str,
    ) -> Result<(u16, Vec<u8>), ApiError> {
        self.exchange_with(method, path, body, content_type, &[]).await
    }

    /// The same, with further headers.
    pub(crate) async fn exchange_with(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        content_type: &str,
        headers: &[(&str, String)],
    ) -> Result<(u16, Vec<u8>), ApiError> {
        let url = format!("{}{path}", self.base);
        let mut request = self.http.request(method, &url);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.header("content-type", content_type).body(body);
        }
        let unreachable = |source| ApiError::Unreachable { url: url.clone(), source };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let retry_after = response.headers().get("retry-after").and_then(|it| it.to_str().ok()?.parse().ok());
        let bytes = response.bytes().await.map_err(unreachable)?;
        if status.is_success() {
            return Ok((status.as_u16(), bytes.into()));
        }
        Err(refused(status, retry_after.map(Duration::from_secs), &bytes))
    }
}

/// Whether the address is of this machine: what is said to it, tokens above all, is nothing for a proxy.
fn with_scheme(base: &str) -> String {
    if base.contains("://") {
        return base.to_owned();
    }
    let plain = format!("http://{base}");
    if is_loopback(&plain) { plain } else { format!("https://{base}") }
}

fn is_loopback(base: &str) -> bool {
    let url = reqwest::Url::parse(base).ok();
    let host = url.as_ref().and_then(|url| url.host_str()).unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or_else(|_| host == "localhost", |address| address.to_canonical().is_loopback())
}

pub(crate) fn document(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()))
}

fn refused(status: StatusCode, retry_after: Option<Duration>, bytes: &[u8]) -> ApiError {
    let (document, told) = (document(bytes), String::from_utf8_lossy(bytes).into());
    let text = |name: &str| document.get(name).and_then(Value::as_str).map(str::to_owned);
    let reason = text("reason").or_else(|| text("error")).unwrap_or_default();
    let detail = text("detail").or_else(|| text("error_description")).unwrap_or_default();
    ApiError::Refused { status: status.as_u16(), reason, detail, retry_after, document, text: told }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLM-6
    #[test]
    fn what_failed_for_good_is_not_worth_another_try() {
        let refused =
            |status, body: &str| refused(StatusCode::from_u16(status).unwrap(), None, body.as_bytes());
        for (status, body, is_retryable) in [
            (502, r#"{"state":"FAILED","error":"no"}"#, false),
            (503, r#"{"state":"FAILED"}"#, false),
            (502, r#"{"reason":"unavailable"}"#, true),
            (503, r#"{"reason":"unavailable"}"#, true),
            (502, "<html>", true),
            (429, "{}", true),
            (429, r#"{"reason":"auth_throttled"}"#, false),
            (429, r#"{"reason":"signature_throttled"}"#, false),
            (422, r#"{"state":"FAILED"}"#, false),
            (409, "{}", false),
        ] {
            assert_eq!(refused(status, body).is_retryable(), is_retryable, "{status} {body}");
        }
    }

    /// REG-7
    #[test]
    fn a_node_on_this_machine_is_known_by_its_address() {
        for base in ["http://127.0.0.1:8080", "http://LOCALHOST/", "https://[::1]:1", "http://127.9.9.9"] {
            assert!(is_loopback(base), "{base}");
        }
        for base in ["http://10.0.0.1", "http://localhost.example", "http://127.0.0.1.example", "nonsense"] {
            assert!(!is_loopback(base), "{base}");
        }
    }

    /// REG-11
    #[test]
    fn what_goes_to_another_machine_is_confidential_over_tls_only() {
        for (base, expected) in
            [("http://127.0.0.1:8080", true), ("https://10.0.0.1", true), ("http://10.0.0.1", false)]
        {
            assert_eq!(Api::new(base, None).unwrap().is_confidential(), expected, "{base}");
        }
    }
}
