//! Requests as they go over the wire: any bytes, any headers, and the whole answer.

use std::time::Duration;

use reqwest::{RequestBuilder, Response};
use serde_json::Value;
use snavio_sdk::Credentials;

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

/// A fresh access token of a service.
pub(crate) async fn token(node: &Node, credentials: &Credentials) -> String {
    let form = [
        ("grant_type", "client_credentials"),
        ("client_id", &credentials.client_id),
        ("client_secret", &credentials.client_secret),
    ];
    let request = http(node).post(format!("{}/v1/token", node.url())).form(&form);
    let answer = Answered::to(request).await;
    answer.document()["access_token"].as_str().expect("a token").to_owned()
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
