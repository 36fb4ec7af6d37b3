//! Token requests of services and the refusals of the token endpoint (RFC 6749).

use reqwest::header::{CACHE_CONTROL, WWW_AUTHENTICATE};
use serde_json::Value;

use crate::node::Node;
use crate::wire::http;

const FORM: &str = "application/x-www-form-urlencoded";

struct Answer {
    status: u16,
    document: Value,
    challenge: Option<String>,
    cache: Option<String>,
}

async fn ask(node: &Node, basic: Option<(&str, &str)>, content_type: &str, body: String) -> Answer {
    let request = http(node).post(format!("{}/v1/token", node.url()));
    let request = request.header("content-type", content_type).body(body);
    let request = match basic {
        Some((id, secret)) => request.basic_auth(id, Some(secret)),
        None => request,
    };
    let answer = request.send().await.unwrap();
    let text = |name| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let (challenge, cache) = (text(WWW_AUTHENTICATE), text(CACHE_CONTROL));
    Answer { status: answer.status().as_u16(), challenge, cache, document: answer.json().await.unwrap() }
}

/// REG-7
#[tokio::test]
async fn credentials_are_in_form_or_header_but_not_both() {
    let node = Node::start();
    let bot = node.cast().await.bot;
    let (id, secret) = (bot.client_id.as_str(), bot.client_secret.as_str());
    let grant = "grant_type=client_credentials";
    let in_form = format!("{grant}&client_id={id}&client_secret={secret}&scope=ignored");
    let percent: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
    for (basic, body, expected) in [
        (None, in_form.clone(), "200"),
        (Some((id, secret)), grant.to_owned(), "200"),
        (Some((id, percent.as_str())), format!("{grant}&client_id={id}"), "200"),
        (Some((id, secret)), in_form.clone(), "400 invalid_request"),
        (Some((id, secret)), format!("{grant}&client_id=other"), "400 invalid_request"),
        (None, format!("{in_form}&grant_type=password"), "400 invalid_request"),
        (None, String::new(), "400 invalid_request"),
        (None, in_form.replace("client_credentials", "password"), "400 unsupported_grant_type"),
        (None, grant.to_owned(), "401 invalid_client"),
        (None, format!("{grant}&client_id={id}&client_secret=wrong"), "401 invalid_client"),
        (Some(("nobody", secret)), grant.to_owned(), "401 invalid_client"),
    ] {
        let answer = ask(&node, basic, FORM, body.clone()).await;
        let outcome = format!("{} {}", answer.status, answer.document["error"].as_str().unwrap_or_default());
        assert_eq!(outcome.trim(), expected, "{basic:?} {body}");
        assert_eq!(answer.cache.as_deref(), Some("no-store"));
        let challenged = answer.challenge.is_some_and(|challenge| challenge.starts_with("Basic "));
        assert_eq!(challenged, answer.status == 401);
        assert!(answer.status == 200 || !answer.document.to_string().contains(secret));
    }
}

/// REG-7
#[tokio::test]
async fn only_forms_are_accepted() {
    let node = Node::start();
    let body = r#"{"grant_type":"client_credentials"}"#.to_owned();
    let answer = ask(&node, None, "application/json", body).await;
    assert_eq!((answer.status, answer.document["reason"].as_str()), (415, Some("unsupported_media_type")));
    let answer = ask(&node, None, FORM, "a".repeat(16 * 1024 + 1)).await;
    assert_eq!((answer.status, answer.document["reason"].as_str()), (413, Some("too_large")));
}
