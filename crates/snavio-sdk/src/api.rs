//! The HTTP connection to a node: JSON with a bearer token, and refusals as errors.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::Value;

/// The error of a call to the gateway.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The gateway refused the request.
    #[error("{status} {reason}: {detail}")]
    Refused {
        status: u16,
        /// The code of the refusal, for example `acl-deny`. Codes are stable.
        reason: String,
        /// A text for people: the problem, and the remedy.
        detail: String,
        /// The wait that the gateway asks for before a retry.
        retry_after: Option<Duration>,
        /// The whole response document.
        document: Value,
        /// The response as text. It keeps all digits of numbers, which `document` may round.
        text: Box<str>,
    },
    /// The gateway could not be reached, or the connection closed before the response.
    #[error("cannot reach {url}")]
    Unreachable {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// The gateway did not return the signing key. The text has the cause.
    #[error("the gateway did not return the signing key: {0}")]
    Withheld(String),
    /// The message is invalid, or the gateway's response could not be read.
    #[error("invalid message or response")]
    Message(#[from] snavio_model::refusal::Refusal),
}

impl ApiError {
    /// Whether the same call may succeed later: the gateway is overloaded or down, or the connection was
    /// lost. A message that failed for good is not retryable: the gateway gives the same response to every
    /// retry, whatever its status code is.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Refused { status, .. } => {
                matches!(status, 429 | 502 | 503 | 504) && !self.is_final_failure() && !self.is_throttled()
            }
            Self::Unreachable { .. } => true,
            Self::Withheld(_) | Self::Message(_) => false,
        }
    }

    /// Whether the gateway accepted the message and its processing failed for good.
    pub fn is_final_failure(&self) -> bool {
        matches!(self, Self::Refused { document, .. } if document["state"] == "FAILED")
    }

    /// Whether the gateway throttles this caller after too many wrong credentials, signatures or keys.
    /// Waiting alone does not help.
    fn is_throttled(&self) -> bool {
        matches!(self, Self::Refused { reason, .. } if reason == "auth_throttled" || reason == "signature_throttled")
    }

    /// Whether the gateway rejected the token. The token may have been valid until a restart or a change of
    /// keys. `auth_throttled` counts, too: the gateway answers with it if other callers at the same address
    /// used wrong tokens.
    pub(crate) fn is_token_rejected(&self) -> bool {
        matches!(self, Self::Refused { reason, .. } if reason == "unauthenticated" || reason == "auth_throttled")
    }

    /// Whether another key may help: the gateway rejected this key, or it throttles, and then its code does
    /// not tell the cause.
    pub(crate) fn may_be_key_rejected(&self) -> bool {
        self.is_of_the_key()
            || matches!(self, Self::Refused { reason, .. } if reason == "signature_throttled")
    }

    /// Whether the gateway rejected the key of a message. The key may have been valid until a rotation.
    pub fn is_of_the_key(&self) -> bool {
        matches!(self, Self::Refused { status: 401, reason, .. } if reason == "key_expired" || reason == "key_unknown")
    }

    /// The wait that the gateway asks for before a retry.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// A connection to a node. It needs no service's credentials; operators' tools use it with a token.
#[derive(Debug, Clone)]
pub struct Api {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
}

impl Api {
    /// Connects to a node at `base`, for example `http://127.0.0.1:8080`.
    ///
    /// If `base` has no scheme, the scheme is `http://` for this machine and `https://` for other hosts, so
    /// that a token does not cross a network unencrypted by mistake. `ca` is a PEM file with additional root
    /// certificates to trust. Calls to this machine ignore the proxy of the environment (`HTTP_PROXY`),
    /// because a token must not go through it. Calls to other hosts use the proxy.
    pub fn new(base: &str, ca: Option<&[u8]>) -> Result<Self, ApiError> {
        // The process has one crypto provider. A second installation fails and keeps the first, so the error
        // is ignored.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let base = &with_scheme(base);
        let unreachable = |source| ApiError::Unreachable { url: base.to_owned(), source };
        // The gateway never redirects, and a token must not follow a redirect to another host.
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

    /// A connection to the same node with a bearer token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// The base URL of the node.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Whether the connection is encrypted or stays on this machine.
    pub(crate) fn is_confidential(&self) -> bool {
        self.base.starts_with("https://") || is_loopback(&self.base)
    }

    /// Sends a request with an optional JSON body and returns the response document.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        let bytes = body.map(|body| body.to_string().into_bytes());
        self.send(method, path, bytes, "application/json").await.map(|(_, document)| document)
    }

    /// Sends a request with a body of a content type and returns the status and the response document.
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

    /// Sends a request with a body of a content type and returns the status and the bytes of a successful
    /// response.
    pub async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        content_type: &str,
    ) -> Result<(u16, Vec<u8>), ApiError> {
        self.exchange_with(method, path, body, content_type, &[]).await
    }

    /// Like [`Api::exchange`], with additional headers.
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
        let retry_after =
            response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let bytes = response.bytes().await.map_err(unreachable)?;
        if status.is_success() {
            return Ok((status.as_u16(), bytes.into()));
        }
        Err(refused(status, retry_after.map(Duration::from_secs), &bytes))
    }
}

/// Adds the scheme to an address that has none.
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

/// The first of the members that is a string, or an empty text.
fn first_text(document: &Value, names: [&str; 2]) -> String {
    let mut texts = names.into_iter().filter_map(|name| document.get(name).and_then(Value::as_str));
    texts.next().unwrap_or_default().to_owned()
}

fn refused(status: StatusCode, retry_after: Option<Duration>, bytes: &[u8]) -> ApiError {
    let (document, text) = (document(bytes), String::from_utf8_lossy(bytes).into());
    // The token endpoint uses the names of OAuth.
    let reason = first_text(&document, ["reason", "error"]);
    let detail = first_text(&document, ["detail", "error_description"]);
    ApiError::Refused { status: status.as_u16(), reason, detail, retry_after, document, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLM-6
    #[test]
    fn message_failed_for_good_is_not_retryable() {
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
    fn loopback_base_is_recognized() {
        for base in ["http://127.0.0.1:8080", "http://LOCALHOST/", "https://[::1]:1", "http://127.9.9.9"] {
            assert!(is_loopback(base), "{base}");
        }
        for base in ["http://10.0.0.1", "http://localhost.example", "http://127.0.0.1.example", "nonsense"] {
            assert!(!is_loopback(base), "{base}");
        }
    }

    /// REG-11
    #[test]
    fn remote_base_is_confidential_only_over_tls() {
        for (base, expected) in
            [("http://127.0.0.1:8080", true), ("https://10.0.0.1", true), ("http://10.0.0.1", false)]
        {
            assert_eq!(Api::new(base, None).unwrap().is_confidential(), expected, "{base}");
        }
    }
}
