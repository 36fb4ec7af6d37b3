//! Requests as they go over the wire: any bytes, any headers, and the whole answer.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;

use crate::node::Node;

/// A plain HTTP client, with nothing filled in.
pub(crate) fn http(node: &Node) -> reqwest::Client {
    // Making an API client also chooses the process's TLS provider, which a plain one needs too.
    node.api();
    reqwest::Client::builder().timeout(Duration::from_secs(40)).build().expect("a client can be made")
}

/// A post of JSON by a service's token.
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
    let answer = node.operator().exchange(Method::GET, "/metrics", None, "").await.expect("the node tells").1;
    String::from_utf8(answer).expect("figures are text")
}

/// Everything that `/metrics` shows, by series.
pub(crate) async fn metrics(node: &Node) -> BTreeMap<String, f64> {
    let text = metrics_text(node).await;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let read = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        Some((series.to_owned(), value.parse().ok()?))
    };
    lines.map(|line| read(line).unwrap_or_else(|| panic!("{line:?} is no figure"))).collect()
}

/// One figure, if it is shown.
pub(crate) async fn metric(node: &Node, series: &str) -> Option<f64> {
    metrics(node).await.remove(series)
}

/// An answer, whatever it says.
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
        let content_type = response.headers().get("content-type").and_then(|it| it.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_owned();
        let text = response.text().await.expect("the answer is complete");
        Self { status, content_type, text }
    }

    /// The answer as JSON.
    pub(crate) fn document(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }

    /// Status and reason, for looking at in one go.
    pub(crate) fn refusal(&self) -> (u16, String) {
        (self.status, self.document()["reason"].as_str().unwrap_or_default().to_owned())
    }
}
