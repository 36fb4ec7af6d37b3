//! HTTP requests with any bytes and any headers, and their unparsed answers.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;

use crate::node::Node;

/// A plain HTTP client without token or default headers.
pub(crate) fn http(node: &Node) -> reqwest::Client {
    // An API client also chooses the TLS provider of the process, which the plain client needs too.
    node.api();
    reqwest::Client::builder().timeout(Duration::from_secs(40)).build().expect("a client can be made")
}

/// A POST request of JSON with an access token.
pub(crate) fn post_json(
    node: &Node,
    path: &str,
    token: &str,
    body: impl Into<reqwest::Body>,
) -> RequestBuilder {
    let request = http(node).post(format!("{}{path}", node.url()));
    request.bearer_auth(token).header("content-type", "application/json").body(body)
}

/// The text of `/metrics`.
pub(crate) async fn metrics_text(node: &Node) -> String {
    let answer =
        node.operator().exchange(Method::GET, "/metrics", None, "").await.expect("the node shows metrics").1;
    String::from_utf8(answer).expect("figures are text")
}

/// The values of `/metrics`, by series.
pub(crate) async fn metrics(node: &Node) -> BTreeMap<String, f64> {
    let text = metrics_text(node).await;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let read = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        Some((series.to_owned(), value.parse().ok()?))
    };
    lines.map(|line| read(line).unwrap_or_else(|| panic!("{line:?} is no figure"))).collect()
}

/// The value of one series, if there is one.
pub(crate) async fn metric(node: &Node, series: &str) -> Option<f64> {
    metrics(node).await.remove(series)
}

/// An HTTP answer with any status.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) text: String,
}

impl Answered {
    /// Sends the request and reads the whole answer.
    pub(crate) async fn to(request: RequestBuilder) -> Self {
        Self::read(request.send().await.expect("the node answers")).await
    }

    async fn read(response: Response) -> Self {
        let status = response.status().as_u16();
        let content_type = response.headers().get("content-type").and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_owned();
        let text = response.text().await.expect("the answer is complete");
        Self { status, content_type, text }
    }

    pub(crate) fn document(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }

    /// Status and reason, to compare in one assertion. The reason is empty if there is none.
    pub(crate) fn refusal(&self) -> (u16, String) {
        (self.status, self.document()["reason"].as_str().unwrap_or_default().to_owned())
    }
}
