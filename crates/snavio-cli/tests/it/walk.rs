//! Every endpoint as every kind of caller (QUA-5): who is nobody, who is of another tenant, who sends, who owns,
//! who runs the platform.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use crate::node::Node;
use crate::wire::{Answered, http};

/// The callers, in the order of a row's answers.
const CALLERS: [&str; 5] = ["a stranger", "another tenant", "the sender", "the owner", "an operator"];

struct Row {
    method: &'static str,
    /// As the API describes it.
    path: &'static str,
    /// As it is asked for here.
    asked: &'static str,
    body: Value,
    answers: [u16; 5],
}

fn row(method: &'static str, path: &'static str, asked: &'static str, body: Value, answers: [u16; 5]) -> Row {
    Row { method, path, asked, body, answers }
}

/// What anybody may read.
fn open(path: &'static str) -> Row {
    row("GET", path, path, Value::Null, [200; 5])
}

fn rows() -> Vec<Row> {
    const OWNER_AND_OPERATOR: [u16; 5] = [401, 404, 404, 200, 200];
    const OPERATORS: [u16; 5] = [401, 403, 403, 403, 200];
    let receipts = json!({ "receipts": [{ "delivery_id": 1, "fence": 1 }] });
    let queue = |verb: &'static str, path, asked, body| row(verb, path, asked, body, OWNER_AND_OPERATOR);
    let route = json!({ "queue": "more", "dead_letter_queue": "bot-dead" });
    let grant = json!({ "source": "acme/billing", "target": "acme/bot", "name": "more" });
    let nothing = Value::Null;
    vec![
        row("POST", "/v1/commands", "/v1/commands", json!({}), [401, 400, 400, 400, 403]),
        row("POST", "/v1/commands/batch", "/v1/commands/batch", json!([]), [401, 200, 200, 200, 403]),
        queue("GET", "/v1/queues/{queue}", "/v1/queues/pay-inbox?tenant=acme", nothing.clone()),
        queue("POST", "/v1/queues/{queue}/receive", "/v1/queues/pay-inbox/receive?tenant=acme", json!({})),
        queue("POST", "/v1/queues/{queue}/ack", "/v1/queues/pay-inbox/ack?tenant=acme", receipts.clone()),
        queue(
            "POST",
            "/v1/queues/{queue}/extend",
            "/v1/queues/pay-inbox/extend?tenant=acme",
            receipts.clone(),
        ),
        queue("POST", "/v1/queues/{queue}/release", "/v1/queues/pay-inbox/release?tenant=acme", receipts),
        queue("POST", "/v1/queues/{queue}/purge", "/v1/queues/pay-inbox/purge?tenant=acme", json!({})),
        queue("POST", "/v1/queues/{queue}/redrive", "/v1/queues/bot-dead/redrive?tenant=acme", json!({})),
        row(
            "GET",
            "/v1/dead-letters",
            "/v1/dead-letters?tenant=acme",
            nothing.clone(),
            [401, 404, 200, 200, 200],
        ),
        row(
            "GET",
            "/v1/dead-letters/{id}",
            "/v1/dead-letters/1?tenant=acme",
            nothing.clone(),
            [401, 404, 404, 404, 404],
        ),
        row(
            "POST",
            "/v1/dead-letters/{id}/redrive",
            "/v1/dead-letters/1/redrive?tenant=acme",
            json!({}),
            [401, 404, 404, 404, 404],
        ),
        row("GET", "/v1/telemetry", "/v1/telemetry?tenant=acme", nothing.clone(), [401, 404, 200, 200, 200]),
        row("GET", "/v1/tenants", "/v1/tenants", nothing.clone(), [401, 200, 200, 200, 200]),
        row("GET", "/v1/tenants/{tenant}", "/v1/tenants/acme", nothing.clone(), [401, 404, 200, 200, 200]),
        row("PUT", "/v1/tenants/{tenant}", "/v1/tenants/acme", json!({}), OPERATORS),
        row(
            "GET",
            "/v1/tenants/{tenant}/services/{service}",
            "/v1/tenants/acme/services/bot",
            nothing.clone(),
            [401, 404, 200, 200, 200],
        ),
        row(
            "PUT",
            "/v1/tenants/{tenant}/services/{service}",
            "/v1/tenants/acme/services/bot",
            json!({}),
            OPERATORS,
        ),
        row(
            "GET",
            "/v1/tenants/{tenant}/services/{service}/keys",
            "/v1/tenants/acme/services/bot/keys",
            nothing.clone(),
            [401, 404, 200, 200, 200],
        ),
        row(
            "POST",
            "/v1/tenants/{tenant}/services/{service}/keys/rotate",
            "/v1/tenants/acme/services/spare/keys/rotate",
            json!({}),
            [401, 403, 403, 403, 201],
        ),
        row(
            "POST",
            "/v1/tenants/{tenant}/services/{service}/keys/{version}/revoke",
            "/v1/tenants/acme/services/spare/keys/hmac-v1/revoke",
            json!({}),
            OPERATORS,
        ),
        row("GET", "/v1/platform-key", "/v1/platform-key", nothing.clone(), OPERATORS),
        row("POST", "/v1/platform-key", "/v1/platform-key", json!({ "to": "x" }), [401, 403, 403, 403, 409]),
        row("GET", "/v1/tenant-config", "/v1/tenant-config", nothing.clone(), [401, 200, 200, 200, 403]),
        row(
            "GET",
            "/v1/routes/{tenant}/{service}/{name}",
            "/v1/routes/acme/bot/pay",
            nothing.clone(),
            [401, 404, 200, 200, 200],
        ),
        row(
            "PUT",
            "/v1/routes/{tenant}/{service}/{name}",
            "/v1/routes/acme/bot/more",
            route,
            [401, 403, 403, 403, 201],
        ),
        row("GET", "/v1/grants", "/v1/grants", nothing.clone(), [401, 200, 200, 200, 200]),
        row("PUT", "/v1/grants", "/v1/grants", grant, [401, 403, 403, 403, 201]),
        row("GET", "/v1/registry", "/v1/registry", nothing.clone(), [401, 200, 200, 200, 200]),
        row("GET", "/v1/registry/changes", "/v1/registry/changes", nothing.clone(), OPERATORS),
        row("POST", "/v1/registry/apply", "/v1/registry/apply", json!({ "dry_run": true }), OPERATORS),
        // A form, not JSON: whoever asks, by whatever token, must show a client's secret.
        row("POST", "/v1/token", "/v1/token", json!({}), [415; 5]),
        row("GET", "/v1/status", "/v1/status", nothing.clone(), OPERATORS),
        row("GET", "/metrics", "/metrics", nothing.clone(), OPERATORS),
        open("/livez"),
        open("/readyz"),
        open("/openapi.json"),
        open("/docs"),
        open("/"),
        open("/assets/snavio.css"),
        // Last, from the leaves up: what is gone cannot be asked about.
        row(
            "DELETE",
            "/v1/grants",
            "/v1/grants?source=acme/billing&target=acme/bot&name=more",
            nothing.clone(),
            OPERATORS,
        ),
        row(
            "DELETE",
            "/v1/routes/{tenant}/{service}/{name}",
            "/v1/routes/acme/bot/more",
            nothing.clone(),
            OPERATORS,
        ),
        row(
            "DELETE",
            "/v1/tenants/{tenant}/services/{service}",
            "/v1/tenants/acme/services/spare",
            nothing.clone(),
            OPERATORS,
        ),
        row("DELETE", "/v1/tenants/{tenant}", "/v1/tenants/spare", nothing, OPERATORS),
    ]
}

async fn ask(node: &Node, row: &Row, path: &str, token: Option<&str>) -> Answered {
    let method: Method = row.method.parse().unwrap();
    let mut request = http(node).request(method, format!("{}{path}", node.url()));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    if !row.body.is_null() {
        request = request.header("content-type", "application/json").body(row.body.to_string());
    }
    Answered::to(request).await
}

/// QUA-5
#[tokio::test]
async fn every_endpoint_answers_each_caller_as_it_should_and_none_is_missing_here() {
    let node = Node::start();
    let cast = node.cast().await;
    let more = json!({
        "tenants": [{ "name": "zeta" }, { "name": "spare" }],
        "services": [{ "name": "zeta/spy" }, { "name": "acme/spare" }],
    });
    let spy = node.apply(&more).await.remove(0);
    let operator = node.operator_token();
    let tokens = [
        None,
        Some(node.token(&spy).await),
        Some(node.token(&cast.billing).await),
        Some(node.token(&cast.bot).await),
        Some(operator),
    ];
    let rows = rows();
    for row in &rows {
        for ((caller, token), expected) in CALLERS.iter().zip(&tokens).zip(row.answers) {
            let answer = ask(&node, row, row.asked, token.as_deref()).await;
            assert_eq!(answer.status, expected, "{} {} as {caller}: {}", row.method, row.asked, answer.text);
        }
        let foreign = ask(&node, row, row.asked, tokens[1].as_deref()).await;
        if foreign.status == 404 && row.asked.contains("acme") {
            let random = ask(&node, row, &row.asked.replace("acme", "nobody"), tokens[1].as_deref()).await;
            assert_eq!(foreign.text, random.text, "{} {}: as if it were not there", row.method, row.asked);
        }
        assert!(foreign.status >= 400 || !foreign.text.contains("acme"), "{}: {}", row.asked, foreign.text);
    }
    let document = ask(&node, &open("/openapi.json"), "/openapi.json", None).await.document();
    let described = document["paths"].as_object().unwrap().iter().flat_map(|(path, item)| {
        item.as_object().unwrap().keys().map(move |method| (method.to_uppercase(), path.clone()))
    });
    let walked: BTreeSet<_> = rows.iter().map(|row| (row.method.to_owned(), row.path.to_owned())).collect();
    assert_eq!(described.collect::<BTreeSet<_>>(), walked, "an endpoint is missing in this walk");
}
