//! Every refusal of an invalid request is a problem document that repeats nothing from the request.

use reqwest::Method;
use serde_json::{Value, json};

use crate::node::{Node, verdict};
use crate::raw_wire::Wire;
use crate::wire::http;

async fn ask(node: &Node, method: Method, path: &str, body: Option<&str>) -> (u16, Value) {
    let body = body.map(|body| body.as_bytes().to_vec());
    verdict(node.operator().send(method, path, body, "application/json").await)
}

/// MSG-12
#[tokio::test]
async fn invalid_paths_queries_and_bodies_are_problems() {
    let node = Node::start();
    node.cast().await;
    for (method, path, body, reason) in [
        (Method::GET, "/nowhere", None, "404 not_found"),
        (Method::DELETE, "/v1/commands", None, "405 method_not_allowed"),
        (Method::OPTIONS, "/v1/commands", None, "405 method_not_allowed"),
        (Method::GET, "/v1/tenants/%FF", None, "400 invalid_request"),
        (Method::GET, "/v1/tenants/No", None, "400 invalid_name"),
        (Method::GET, "/v1/dead-letters/s3cret?tenant=acme", None, "400 invalid_request"),
        (Method::GET, "/v1/dead-letters?tenant=acme&after=s3cret", None, "400 invalid_request"),
        (Method::GET, "/v1/dead-letters?tenant=acme&limit=1001", None, "400 invalid_request"),
        (Method::GET, "/v1/registry?kind=s3cret", None, "404 not_found"),
        (Method::GET, "/v1/registry?after=s3cret", None, "400 invalid_request"),
        (Method::GET, "/v1/registry/changes?since=s3cret", None, "400 invalid_request"),
        (Method::DELETE, "/v1/grants?source=s3cret", None, "400 invalid_request"),
        (Method::PUT, "/v1/tenants/acme", Some(r#"{"suspended":"s3cret"}"#), "400 invalid_request"),
        (
            Method::PUT,
            "/v1/tenants/acme",
            Some(r#"{"suspended":true,"suspended":false}"#),
            "400 invalid_request",
        ),
        (Method::PUT, "/v1/tenants/acme", Some("{"), "400 invalid_request"),
        (
            Method::PUT,
            "/v1/routes/acme/bot/notify",
            Some(r#"{"queue":"a","queue":"b"}"#),
            "400 invalid_request",
        ),
        (
            Method::PUT,
            "/v1/routes/acme/bot/notify",
            Some(r#"{"target":"acme/other"}"#),
            "400 invalid_request",
        ),
        (
            Method::POST,
            "/v1/registry/apply",
            Some(r#"{"tenants":[{"name":"s3cret!"}]}"#),
            "400 invalid_request",
        ),
    ] {
        let (status, problem) = ask(&node, method.clone(), path, body).await;
        assert_eq!(
            format!("{status} {}", problem["reason"].as_str().unwrap_or_default()),
            reason,
            "{method} {path}"
        );
        assert!(!problem.to_string().contains("s3cret"), "{problem}");
    }
}

/// MSG-12
#[tokio::test]
async fn wrong_method_answer_lists_allowed_methods() {
    let node = Node::start();
    let mut wire = Wire::to(&node);
    let answer = wire.ask("DELETE /v1/queues/q HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(answer.refusal(), (405, "method_not_allowed".into()));
    assert_eq!(answer.header("allow"), Some("GET,HEAD"));
}

/// MSG-12
#[tokio::test]
async fn head_is_get_without_the_body() {
    let node = Node::start();
    let client = http(&node);
    let answer = client.head(format!("{}/readyz", node.url())).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.bytes().await.unwrap().is_empty());
}

/// REG-1
#[tokio::test]
async fn grant_is_revoked_by_its_parameters() {
    let node = Node::start();
    node.cast().await;
    let path = "/v1/grants?source=acme/billing&target=acme/bot&name=pay&why=over";
    assert_eq!(ask(&node, Method::DELETE, path, None).await.0, 200);
    assert_eq!(ask(&node, Method::DELETE, path, None).await.0, 404);
    let (_, changes) = ask(&node, Method::GET, "/v1/registry/changes?limit=1000", None).await;
    let last = changes["items"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((last["kind"].as_str(), last["why"].as_str()), (Some("grant"), Some("over")));
}

/// REG-1
#[tokio::test]
async fn route_document_round_trips_through_get_and_put() {
    let node = Node::start();
    node.cast().await;
    let path = "/v1/routes/acme/bot/pay";
    let (_, route) = ask(&node, Method::GET, path, None).await;
    assert_eq!(ask(&node, Method::PUT, path, Some(&route.to_string())).await, (200, route));
}

/// REG-7
#[tokio::test]
async fn concurrent_registrations_of_one_service_share_one_key() {
    let node = Node::start();
    node.apply(&json!({ "tenants": [{ "name": "acme" }] })).await;
    let operator = node.operator();
    let path = "/v1/tenants/acme/services/bot";
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let operator = operator.clone();
        all.spawn(async move { operator.call(Method::PUT, path, Some(&json!({}))).await });
    }
    let answers = all.join_all().await;
    let with_secret =
        answers.iter().filter(|answer| answer.as_ref().is_ok_and(|made| made["hmac_secret"].is_string()));
    assert_eq!(with_secret.count(), 1);
    let (_, keys) = ask(&node, Method::GET, "/v1/registry?kind=client", None).await;
    assert_eq!(keys["items"].as_array().unwrap().len(), 1);
}

/// DLV-3
#[tokio::test]
async fn single_fenced_receipt_is_a_problem_with_its_outcome() {
    use crate::node::{Draft, new_id, post};
    use std::time::Duration;

    let node = Node::start();
    let cast = node.cast().await;
    let (billing, bot) = (node.client(&cast.billing), node.client(&cast.bot));
    post(&billing, Draft::new("notify", &new_id()).sign(&cast.billing)).await;
    let receive = async || bot.receive("notify-inbox", 1, Duration::ZERO, Duration::ZERO).await.unwrap();
    let first = receive().await.pop().unwrap().receipt();
    receive().await.pop().unwrap();
    let api = bot.authorized().await.unwrap();
    let body = json!({ "receipts": [first] });
    let (status, document) = verdict(
        api.send(
            Method::POST,
            "/v1/queues/notify-inbox/ack",
            Some(body.to_string().into()),
            "application/json",
        )
        .await,
    );
    assert_eq!((status, document["reason"].as_str()), (409, Some("fenced")));
    assert_eq!(document["results"][0]["outcome"], "fenced");
}

/// QUA-5
#[tokio::test]
async fn foreign_tenants_records_are_not_found() {
    let node = Node::start();
    let cast = node.cast().await;
    let bot = node.client(&cast.bot).authorized().await.unwrap();
    for path in [
        "/v1/telemetry?tenant=umbrella",
        "/v1/dead-letters?tenant=umbrella",
        "/v1/queues/notify-inbox?tenant=umbrella",
    ] {
        let (status, problem) = verdict(bot.send(Method::GET, path, None, "").await);
        assert_eq!((status, problem["reason"].as_str()), (404, Some("not_found")), "{path}");
    }
}
