//! The API's own description: every route, in a document and on a page, without a token and without scripts.

use reqwest::Method;
use serde_json::Value;

use crate::node::Node;
use crate::wire::http;

async fn text(node: &Node, path: &str) -> (reqwest::header::HeaderMap, String) {
    let answer = http(node).get(format!("{}{path}", node.url())).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{path}");
    (answer.headers().clone(), answer.text().await.unwrap())
}

async fn document(node: &Node) -> Value {
    serde_json::from_str(&text(node, "/openapi.json").await.1).unwrap()
}

fn operations(document: &Value) -> Vec<(String, Method, Value)> {
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            all.push((path.clone(), method.to_uppercase().parse().unwrap(), operation.clone()));
        }
    }
    all
}

fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// INT-1
#[tokio::test]
async fn described_operations_exist_and_references_resolve() {
    let node = Node::start();
    let document = document(&node).await;
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let operations = operations(&document);
    assert!(operations.len() >= 35, "{}", operations.len());
    for (path, method, operation) in &operations {
        let filled = path.replace("{id}", "1").replace(['{', '}'], "");
        let request = http(&node).request(method.clone(), format!("{}{filled}", node.url()));
        let status = request.send().await.unwrap().status().as_u16();
        assert!(!matches!(status, 404 | 405), "{method} {path} answers {status}");
        let open = operation["security"][0] == serde_json::json!({});
        // A webhook has no token: its adapter authenticates it.
        let open = open && !path.starts_with("/v1/hooks/");
        assert_eq!(status == 401, !open, "{method} {path} answers {status} without a token");
        assert!(operation["summary"].is_string(), "{method} {path} has no summary");
        let refusal =
            &operation["responses"]["default"]["content"]["application/problem+json"]["schema"]["$ref"];
        assert_eq!(refusal, "#/components/schemas/Problem", "{method} {path}");
    }
    let ids: std::collections::HashSet<_> =
        operations.iter().map(|operation| operation.2["operationId"].as_str()).collect();
    assert_eq!(ids.len(), operations.len(), "an operation's id is its own");
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
}

/// MSG-12
#[tokio::test]
async fn reasons_and_ways_to_authenticate_are_described() {
    let node = Node::start();
    let document = document(&node).await;
    let reasons = document["components"]["schemas"]["Problem"]["properties"]["reason"]["enum"].clone();
    let known = snavio_model::refusal::Reason::ALL.iter().map(|reason| reason.code());
    assert_eq!(reasons, serde_json::json!(known.collect::<Vec<_>>()));
    let schemes = &document["components"]["securitySchemes"];
    assert_eq!(schemes["bearer"]["scheme"], "bearer");
    assert_eq!(schemes["client_credentials"]["flows"]["clientCredentials"]["tokenUrl"], "/v1/token");
    let secrets = ["secret_hash", "\"secret\""];
    assert!(secrets.iter().all(|secret| !document.to_string().contains(secret)));
}

/// QUA-8
#[tokio::test]
async fn pages_have_no_script_and_load_nothing_from_outside() {
    let node = Node::start();
    for path in ["/", "/docs"] {
        let (headers, page) = text(&node, path).await;
        assert!(headers["content-type"].to_str().unwrap().starts_with("text/html"));
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        for bad in ["<script", "javascript:", "style=", " onclick", "http://", "https://"] {
            assert!(!page.contains(bad), "{path} holds {bad}");
        }
    }
    let (headers, _) = text(&node, "/assets/snavio.css").await;
    assert_eq!(headers["content-type"], "text/css; charset=utf-8");
    let docs = text(&node, "/docs").await.1;
    for (path, _, operation) in operations(&document(&node).await) {
        assert!(docs.contains(&format!("<code>{path}</code>")), "{path} is not on the page");
        assert!(docs.contains(&format!("id=\"{}\"", operation["operationId"].as_str().unwrap())));
    }
    assert!(docs.contains("auth_throttled"));
}

/// QUA-5
#[tokio::test]
async fn front_page_names_no_tenant() {
    let node = Node::start();
    node.cast().await;
    let page = text(&node, "/").await.1;
    for word in ["ready", "store", "clock", "disk", "/docs", env!("CARGO_PKG_VERSION")] {
        assert!(page.contains(word), "{word} is missing");
    }
    assert!(!page.contains("acme") && !page.contains("billing"));
}

/// INT-1
#[tokio::test]
async fn description_matches_accepted_requests() {
    let document = document(&Node::start()).await;
    let schemas = &document["components"]["schemas"];
    for payload in [&schemas["SignedContent"], &schemas["Command"]] {
        assert_eq!(payload["properties"]["payload"]["type"], Value::Null, "any value: {payload}");
    }
    let metadata = &schemas["SignedMetadata"];
    for member in ["hmac", "version_id", "correlation_id"] {
        assert_eq!(metadata["properties"][member]["type"], "string", "never null");
        assert!(!metadata["required"].as_array().unwrap().contains(&member.into()), "{member}");
    }
    let max = &schemas["ReceiveBody"]["properties"]["max"];
    assert_eq!((&max["minimum"], &max["maximum"]), (&1.into(), &10.into()), "{max}");
    let headers = |path: &str, method: &str| {
        let parameters = document["paths"][path][method]["parameters"].as_array().unwrap();
        let headers = parameters.iter().filter(|parameter| parameter["in"] == "header");
        headers.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let known =
        ["x-correlation-id", "prefer", "traceparent", "webhook-id", "webhook-timestamp", "webhook-signature"];
    assert_eq!(headers("/v1/commands", "post"), known);
    assert_eq!(headers("/v1/telemetry", "get"), ["last-event-id"]);
}
