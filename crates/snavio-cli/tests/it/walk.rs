//! Every endpoint as every kind of caller (QUA-5): unauthenticated, another tenant, the sender, the owner,
//! and people of every role (REG-9).

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use crate::golden;
use crate::node::Node;
use crate::people::issue;
use crate::wire::{Answered, http};

/// The callers, each with the index of its answer in a row.
const CALLERS: [(&str, usize); 12] = [
    ("a stranger", 0),
    ("another tenant's service", 1),
    ("another tenant's admin", 2),
    ("the sender", 3),
    ("the owner", 4),
    ("the tenant's admin", 5),
    ("the tenant's viewer", 6),
    ("the tenant's accounting-ops", 7),
    ("the tenant's auditor", 8),
    ("an auditor of all", 9),
    ("an operator", 10),
    ("the operator's token", 10),
];
/// The callers of another tenant.
const FOREIGN: [usize; 2] = [1, 2];

type Answers = [u16; 11];

/// Reads that are open to all callers of the tenant.
const READ: Answers = [401, 404, 404, 200, 200, 200, 200, 200, 200, 200, 200];
/// Reads of a queue: its owner and people.
const READ_QUEUE: Answers = [401, 404, 404, 404, 200, 200, 200, 200, 200, 200, 200];
/// Changes of a queue: its owner, and the roles that fix failures.
const MEND: Answers = [401, 404, 404, 404, 200, 200, 403, 200, 403, 403, 200];
/// Changes that the tenant's admin may make.
const MANAGE: Answers = [401, 404, 404, 403, 403, 200, 403, 403, 403, 403, 200];
/// Creations that the tenant's admin may make.
const MAKE: Answers = [401, 404, 404, 403, 403, 201, 403, 403, 403, 403, 201];
/// Lists in which each caller sees only its own entries.
const LIST: Answers = [401, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200];
/// The record of actions in the tenant: roles that act there, and auditors.
const RECORD: Answers = [401, 404, 404, 403, 403, 200, 403, 200, 200, 200, 200];
/// Reads of the whole platform.
const PLATFORM: Answers = [401, 403, 403, 403, 403, 403, 403, 403, 403, 200, 200];

/// Entries that do not exist.
const NOTHING: Answers = [401, 404, 404, 404, 404, 404, 404, 404, 404, 404, 404];
/// Work on a service's own routes; the route named here does not exist.
const WORK: Answers = [401, 404, 403, 404, 404, 403, 403, 403, 403, 403, 403];

/// The rollback takes effect for permitted callers, so each caller has a change of its own to undo.
const ROLLBACK: &str = "/v1/registry/rollback";

const EVENT_TYPE: &str = "/v1/event-types/{tenant}/{service}/{type}";
const ADAPTER: &str = "/v1/adapters/{tenant}/{name}";
const SUBSCRIPTION: &str =
    "/v1/subscriptions/{tenant}/{service}/{publisher_tenant}/{publisher_service}/{type}";

struct Row {
    method: &'static str,
    /// The path in the API's description.
    path: &'static str,
    /// The path of the request: `{n}` is the caller's number, `{token}` the id of a token that was issued for
    /// it.
    request_path: &'static str,
    body: Value,
    answers: Answers,
}

fn row(
    method: &'static str,
    path: &'static str,
    request_path: &'static str,
    body: Value,
    answers: Answers,
) -> Row {
    Row { method, path, request_path, body, answers }
}

fn get(path: &'static str, request_path: &'static str, answers: Answers) -> Row {
    row("GET", path, request_path, Value::Null, answers)
}

/// A change of a queue.
fn queue(path: &'static str, request_path: &'static str, body: Value) -> Row {
    row("POST", path, request_path, body, MEND)
}

/// Answers of an endpoint for services, with the status that they get.
fn for_services(status: u16) -> Answers {
    [401, status, 403, status, status, 403, 403, 403, 403, 403, 403]
}

/// Answers of an endpoint for operators, with the status that they get.
fn for_operators(status: u16) -> Answers {
    [401, 403, 403, 403, 403, 403, 403, 403, 403, 403, status]
}

/// One entry for each caller, by the caller's number.
fn for_each_caller(entry: impl Fn(usize) -> Value) -> Vec<Value> {
    (0..CALLERS.len()).map(entry).collect()
}

/// A route or subscription that pushes, with further members.
fn push_route(further: &Value) -> Value {
    let mut route = json!({
        "target": "acme/bot", "name": "hooked", "queue": "hooks", "dead_letter_queue": "bot-dead",
        "processing": { "kind": "push", "url": "https://hooks.example/" },
    });
    further.as_object().unwrap().iter().for_each(|(name, value)| route[name] = value.clone());
    route
}

async fn trust_issuer(node: &Node, issuer: &str) {
    let body = json!({ "issuer": issuer, "audience": "snavio", "keys": { "file": "/keys" } });
    node.operator().call(Method::PUT, "/v1/issuers", Some(&body)).await.unwrap();
}

fn delete(path: &'static str, request_path: &'static str, answers: Answers) -> Row {
    row("DELETE", path, request_path, Value::Null, answers)
}

/// A read without authentication.
fn open(path: &'static str) -> Row {
    get(path, path, [200; 11])
}

fn messages() -> Vec<Row> {
    let receipts = json!({ "receipts": [{ "delivery_id": 1, "fence": 1 }] });
    vec![
        row("POST", "/v1/commands", "/v1/commands", json!({}), for_services(400)),
        row("POST", "/v1/commands/batch", "/v1/commands/batch", json!([]), for_services(200)),
        row("POST", "/v1/events", "/v1/events", json!({}), for_services(400)),
        row("POST", "/v1/events/batch", "/v1/events/batch", json!([]), for_services(200)),
        // A webhook's sender has no token.
        row("POST", "/v1/hooks/{tenant}/{adapter}", "/v1/hooks/acme/more-0", json!({}), [401; 11]),
        get("/v1/queues/{queue}", "/v1/queues/pay-inbox?tenant=acme", READ_QUEUE),
        queue("/v1/queues/{queue}/receive", "/v1/queues/pay-inbox/receive?tenant=acme", json!({})),
        queue("/v1/queues/{queue}/ack", "/v1/queues/pay-inbox/ack?tenant=acme", receipts.clone()),
        queue("/v1/queues/{queue}/extend", "/v1/queues/pay-inbox/extend?tenant=acme", receipts.clone()),
        queue("/v1/queues/{queue}/release", "/v1/queues/pay-inbox/release?tenant=acme", receipts.clone()),
        queue("/v1/queues/{queue}/purge", "/v1/queues/pay-inbox/purge?tenant=acme", json!({})),
        queue("/v1/queues/{queue}/redrive", "/v1/queues/bot-dead/redrive?tenant=acme", json!({})),
        get("/v1/dead-letters", "/v1/dead-letters?tenant=acme", READ),
        get(
            "/v1/dead-letters/{id}",
            "/v1/dead-letters/1?tenant=acme",
            [401, 404, 404, 404, 404, 404, 404, 404, 404, 404, 404],
        ),
        row(
            "POST",
            "/v1/dead-letters/{id}/redrive",
            "/v1/dead-letters/1/redrive?tenant=acme",
            json!({}),
            [401, 404, 404, 404, 404, 404, 403, 404, 403, 403, 404],
        ),
        get("/v1/messages/{id}/explain", "/v1/messages/x/explain?tenant=acme", READ),
        row(
            "POST",
            "/v1/claims/import",
            "/v1/claims/import",
            json!({ "source": "acme/billing", "destination": "acme/bot:nothing", "items": [{ "id": "x", "first_seen_at": "2026-11-16T00:00:00Z" }], "why": "moving" }),
            [401, 404, 404, 403, 403, 404, 403, 403, 403, 403, 404],
        ),
        get("/v1/claims/import", "/v1/claims/import?tenant=acme", READ),
        get("/v1/claims", "/v1/claims?tenant=acme", READ),
        get("/v1/claims/{key}", "/v1/claims/x?tenant=acme", READ),
        get("/v1/claims/{key}/answer", "/v1/claims/x/answer?tenant=acme", NOTHING),
        get("/v1/claims/{key}/message", "/v1/claims/x/message?tenant=acme", NOTHING),
        row("POST", "/v1/claims/{key}/begin", "/v1/claims/x/begin", json!({ "id": "x", "payload": 1 }), WORK),
        row(
            "POST",
            "/v1/claims/{key}/complete",
            "/v1/claims/x/complete",
            json!({ "delivery_id": 1, "fence": 1 }),
            WORK,
        ),
        row(
            "POST",
            "/v1/claims/{key}/fail",
            "/v1/claims/x/fail",
            json!({ "delivery_id": 1, "fence": 1, "error": "no" }),
            WORK,
        ),
        row(
            "POST",
            "/v1/claims/{key}/extend",
            "/v1/claims/x/extend",
            json!({ "delivery_id": 1, "fence": 1 }),
            WORK,
        ),
        row(
            "POST",
            "/v1/claims/{key}/reprocess",
            "/v1/claims/x/reprocess?tenant=acme",
            json!({ "why": "fixed" }),
            NOTHING,
        ),
        row(
            "POST",
            "/v1/claims/{key}/settle",
            "/v1/claims/x/settle?tenant=acme",
            json!({ "reference": "JE-1", "why": "seen in the ledger" }),
            NOTHING,
        ),
        get("/v1/conflicts", "/v1/conflicts?tenant=acme", READ),
        get("/v1/conflicts/{id}", "/v1/conflicts/1", [401, 404, 404, 404, 404, 404, 404, 404, 404, 404, 404]),
        row(
            "POST",
            "/v1/conflicts/{id}/state",
            "/v1/conflicts/1/state",
            json!({ "state": "TRIAGED", "note": "looked at" }),
            [401, 404, 404, 404, 404, 404, 404, 404, 404, 404, 404],
        ),
        get("/v1/entities/{entity}", "/v1/entities/x?destination=acme/bot:pay", NOTHING),
        row(
            "POST",
            "/v1/entities/{entity}/reset",
            "/v1/entities/x/reset?destination=acme/bot:pay",
            json!({ "why": "counted anew" }),
            [401, 404, 404, 403, 404, 404, 403, 404, 403, 403, 404],
        ),
        row(
            "POST",
            "/v1/entities/{entity}/skip",
            "/v1/entities/x/skip?destination=acme/bot:pay",
            json!({ "number": 1, "why": "of no use" }),
            [401, 404, 404, 403, 404, 404, 403, 404, 403, 403, 404],
        ),
        get("/v1/telemetry", "/v1/telemetry?tenant=acme", READ),
        get("/v1/holds", "/v1/holds?tenant=acme", READ),
        row(
            "POST",
            "/v1/holds",
            "/v1/holds",
            json!({ "tenant": "acme", "destination": "acme/bot:pay", "why": "a lawsuit" }),
            [401, 404, 404, 403, 403, 403, 403, 201, 403, 403, 201],
        ),
        row(
            "POST",
            "/v1/holds/{id}/lift",
            "/v1/holds/1/lift",
            json!({ "why": "the case is closed" }),
            NOTHING,
        ),
        get("/v1/erasures", "/v1/erasures?tenant=acme", RECORD),
        row(
            "POST",
            "/v1/erasures",
            "/v1/erasures",
            json!({ "tenant": "acme", "eventId": "never-{n}", "why": "asked for" }),
            [401, 404, 404, 403, 403, 403, 403, 404, 403, 403, 404],
        ),
    ]
}

fn registry() -> Vec<Row> {
    let service = "/v1/tenants/{tenant}/services/{service}";
    let route = "/v1/routes/{tenant}/{service}/{name}";
    let more = json!({ "queue": "more", "dead_letter_queue": "bot-dead" });
    let adapter = json!({
        "preset": "stripe", "service": "acme/billing", "event_type": "more-{n}", "secrets": ["a secret of theirs"],
    });
    let grant = json!({ "source": "acme/billing", "target": "acme/bot", "name": "more-{n}" });
    let file = json!({ "dry_run": true, "grants": [grant.clone()] });
    vec![
        get("/v1/tenants", "/v1/tenants", LIST),
        get("/v1/tenants/{tenant}", "/v1/tenants/acme", READ),
        row("PUT", "/v1/tenants/{tenant}", "/v1/tenants/acme", json!({}), MANAGE),
        get(service, "/v1/tenants/acme/services/bot", READ),
        row("PUT", service, "/v1/tenants/acme/services/spare-{n}", json!({}), MANAGE),
        get(route, "/v1/routes/acme/bot/pay", READ),
        row("PUT", route, "/v1/routes/acme/bot/more-{n}", more.clone(), MANAGE),
        get(EVENT_TYPE, "/v1/event-types/acme/billing/more-0", READ),
        row("PUT", EVENT_TYPE, "/v1/event-types/acme/billing/more-{n}", json!({}), MANAGE),
        get(SUBSCRIPTION, "/v1/subscriptions/acme/bot/acme/billing/more-0", READ),
        row("PUT", SUBSCRIPTION, "/v1/subscriptions/acme/bot/acme/billing/more-{n}", more, MANAGE),
        row(
            "POST",
            "/v1/routes/{tenant}/{service}/{name}/push-secret/rotate",
            "/v1/routes/acme/bot/hooked/push-secret/rotate",
            json!({}),
            MAKE,
        ),
        row(
            "POST",
            "/v1/subscriptions/{tenant}/{service}/{publisher_tenant}/{publisher_service}/{type}/push-secret/rotate",
            "/v1/subscriptions/acme/bot/acme/billing/hooked/push-secret/rotate",
            json!({}),
            MAKE,
        ),
        get(ADAPTER, "/v1/adapters/acme/more-0", READ),
        row("PUT", ADAPTER, "/v1/adapters/acme/more-{n}", adapter, MANAGE),
        get("/v1/grants", "/v1/grants", LIST),
        row("PUT", "/v1/grants", "/v1/grants", grant, MANAGE),
        get("/v1/registry", "/v1/registry", LIST),
        get("/v1/grant-requests", "/v1/grant-requests", LIST),
        // Only the sender may request a grant, or its tenant's admin for it.
        row(
            "POST",
            "/v1/grant-requests",
            "/v1/grant-requests",
            json!({ "source": "acme/billing", "target": "acme/bot", "name": "asked-{n}" }),
            [401, 403, 403, 200, 403, 200, 403, 403, 403, 403, 200],
        ),
        row(
            "POST",
            "/v1/grant-requests/approve",
            "/v1/grant-requests/approve",
            json!({ "source": "acme/billing", "target": "acme/bot", "name": "wanted-{n}" }),
            MANAGE,
        ),
        // The service that requested a grant may withdraw the request.
        row(
            "POST",
            "/v1/grant-requests/decline",
            "/v1/grant-requests/decline",
            json!({ "source": "acme/billing", "target": "acme/bot", "name": "asked-{n}" }),
            [401, 404, 404, 200, 403, 200, 403, 403, 403, 403, 200],
        ),
        get(
            "/v1/registry/changes",
            "/v1/registry/changes?limit=1000",
            [401, 403, 200, 403, 403, 200, 403, 403, 200, 200, 200],
        ),
        row(
            "POST",
            "/v1/registry/apply",
            "/v1/registry/apply",
            file,
            [401, 403, 403, 403, 403, 200, 403, 403, 403, 403, 200],
        ),
    ]
}

fn identity() -> Vec<Row> {
    let person = json!({ "person": "anna", "role": "tenant-viewer", "tenant": "acme" });
    vec![
        // The endpoint takes a form, not JSON. It ignores access tokens and wants a credential in the form.
        row("POST", "/v1/token", "/v1/token", json!({}), [415; 11]),
        get("/v1/tokens", "/v1/tokens", LIST),
        row(
            "POST",
            "/v1/tokens",
            "/v1/tokens",
            person,
            [401, 403, 403, 403, 403, 403, 403, 403, 403, 403, 201],
        ),
        get("/v1/issuers", "/v1/issuers", LIST),
        row(
            "PUT",
            "/v1/issuers",
            "/v1/issuers",
            json!({ "issuer": "https://ci.example", "audience": "snavio", "keys": { "file": "/keys" } }),
            [401, 403, 403, 403, 403, 403, 403, 403, 403, 403, 200],
        ),
        get("/v1/workloads", "/v1/workloads", LIST),
        row(
            "PUT",
            "/v1/workloads",
            "/v1/workloads",
            json!({ "issuer": "https://ci.example", "subject": "job-{n}", "service": "acme/bot" }),
            [401, 404, 404, 403, 403, 403, 403, 403, 403, 403, 200],
        ),
        delete(
            "/v1/tokens/{id}",
            "/v1/tokens/{token}",
            [401, 404, 404, 403, 403, 403, 403, 403, 403, 403, 200],
        ),
    ]
}

/// Keys, bans, dry runs and the audit records.
fn keys_and_record() -> Vec<Row> {
    let keys = "/v1/tenants/{tenant}/services/{service}/keys";
    let ban = "/v1/bans/{tenant}/{service}";
    let probe = json!({ "source": "acme/billing", "target": "acme/bot", "name": "pay" });
    vec![
        get(keys, "/v1/tenants/acme/services/bot/keys", READ),
        row(
            "POST",
            "/v1/tenants/{tenant}/services/{service}/keys/rotate",
            "/v1/tenants/acme/services/spare-{n}/keys/rotate",
            json!({}),
            MAKE,
        ),
        row(
            "POST",
            "/v1/tenants/{tenant}/services/{service}/keys/{version}/revoke",
            "/v1/tenants/acme/services/spare-{n}/keys/hmac-v1/revoke",
            json!({}),
            MANAGE,
        ),
        // Revoked once more: a caller without permission does not learn that the key is revoked.
        row(
            "POST",
            "/v1/tenants/{tenant}/services/{service}/keys/{version}/revoke",
            "/v1/tenants/acme/services/spare-{n}/keys/hmac-v1/revoke",
            json!({}),
            MANAGE,
        ),
        get(
            "/v1/tenant-config",
            "/v1/tenant-config",
            [401, 200, 403, 200, 200, 403, 403, 403, 403, 403, 403],
        ),
        get("/v1/platform-key", "/v1/platform-key", for_operators(200)),
        row("POST", "/v1/platform-key", "/v1/platform-key", json!({ "to": "x" }), for_operators(409)),
        get("/v1/bans", "/v1/bans", PLATFORM),
        get(ban, "/v1/bans/acme/banned-{n}", PLATFORM),
        row("PUT", ban, "/v1/bans/acme/banned-{n}", json!({}), for_operators(200)),
        delete(ban, "/v1/bans/acme/banned-{n}", for_operators(200)),
        row(
            "POST",
            "/v1/dry-run",
            "/v1/dry-run",
            probe,
            [401, 404, 404, 400, 403, 200, 403, 403, 403, 403, 200],
        ),
        get("/v1/registry/seals", "/v1/registry/seals", PLATFORM),
        get("/v1/registry/evidence", "/v1/registry/evidence", PLATFORM),
        get("/v1/registry/at/{version}", "/v1/registry/at/1", PLATFORM),
        get("/v1/registry/compare", "/v1/registry/compare?from=1", PLATFORM),
        row("POST", ROLLBACK, ROLLBACK, json!({ "version": -1 }), for_operators(200)),
        get("/v1/audit", "/v1/audit", PLATFORM),
    ]
}

fn platform() -> Vec<Row> {
    vec![
        get("/v1/status", "/v1/status", PLATFORM),
        get("/metrics", "/metrics", PLATFORM),
        open("/livez"),
        open("/readyz"),
        open("/openapi.json"),
        open("/docs"),
        open("/"),
        open("/assets/snavio.css"),
    ]
}

/// Removals come last, and dependents before their owners, because removed entries cannot be asked about.
/// Each caller has entries of its own to remove.
fn removals() -> Vec<Row> {
    vec![
        delete("/v1/workloads", "/v1/workloads?issuer=https://ci.example&subject=job-{n}", MANAGE),
        delete(
            "/v1/issuers",
            "/v1/issuers?issuer=https://other-{n}.example",
            [401, 403, 403, 403, 403, 403, 403, 403, 403, 403, 200],
        ),
        delete("/v1/grants", "/v1/grants?source=acme/billing&target=acme/bot&name=more-{n}", MANAGE),
        delete(ADAPTER, "/v1/adapters/acme/more-{n}", MANAGE),
        delete(SUBSCRIPTION, "/v1/subscriptions/acme/bot/acme/billing/more-{n}", MANAGE),
        delete(EVENT_TYPE, "/v1/event-types/acme/billing/more-{n}", MANAGE),
        delete("/v1/routes/{tenant}/{service}/{name}", "/v1/routes/acme/bot/more-{n}", MANAGE),
        delete("/v1/tenants/{tenant}/services/{service}", "/v1/tenants/acme/services/spare-{n}", MANAGE),
        delete(
            "/v1/tenants/{tenant}",
            "/v1/tenants/acme",
            [401, 404, 404, 403, 403, 403, 403, 403, 403, 403, 409],
        ),
        delete(
            "/v1/tenants/{tenant}",
            "/v1/tenants/spare-{n}",
            [401, 404, 404, 404, 404, 404, 404, 404, 404, 403, 200],
        ),
    ]
}

struct EndpointTest {
    node: Node,
    /// The token of each caller, in the order of `CALLERS`.
    tokens: Vec<Option<String>>,
    /// For each caller the id of a token that it may try to revoke.
    revocable: Vec<String>,
}

impl EndpointTest {
    async fn start() -> Self {
        let node = Node::start();
        let cast = node.cast().await;
        let zeta = json!({ "tenants": [{ "name": "zeta" }], "services": [{ "name": "zeta/spy" }] });
        let spy = node.apply(&zeta).await.remove(0);
        let spares = json!({
            "tenants": for_each_caller(|n| json!({ "name": format!("spare-{n}") })),
            "services": for_each_caller(|n| json!({ "name": format!("acme/spare-{n}") })),
            "routes": for_each_caller(|n| json!({ "target": "acme/bot", "name": format!("more-{n}"), "queue": "more",
                "dead_letter_queue": "bot-dead" })),
            "event_types": for_each_caller(|n| json!({ "owner": "acme/billing", "name": format!("more-{n}") })),
            "subscriptions": for_each_caller(|n| json!({ "target": "acme/bot", "events_of": "acme/billing",
                "name": format!("more-{n}"), "queue": "more", "dead_letter_queue": "bot-dead" })),
            "adapters": for_each_caller(|n| json!({ "preset": "stripe", "name": format!("more-{n}"), "service": "acme/billing",
                "event_type": format!("more-{n}"), "secrets": ["a secret of theirs"] })),
            "grants": for_each_caller(|n| json!({ "source": "acme/billing", "target": "acme/bot",
                "name": format!("more-{n}") })),
        });
        node.apply(&spares).await;
        let hooks = json!({
            "event_types": [{ "owner": "acme/billing", "name": "hooked" }],
            "routes": [push_route(&json!({}))],
            "subscriptions": [push_route(&json!({ "events_of": "acme/billing", "queue": "event-hooks" }))],
        });
        node.apply(&hooks).await;
        let banned =
            json!({ "services": for_each_caller(|n| json!({ "name": format!("acme/banned-{n}") })) });
        node.apply(&banned).await;
        for n in 0..CALLERS.len() {
            for word in ["asked", "wanted"] {
                let name = format!("{word}-{n}");
                let body = json!({ "source": "acme/billing", "target": "acme/bot", "name": name });
                node.operator().call(Method::POST, "/v1/grant-requests", Some(&body)).await.unwrap();
            }
        }
        trust_issuer(&node, "https://ci.example").await;
        for n in 0..CALLERS.len() {
            trust_issuer(&node, &format!("https://other-{n}.example")).await;
            let ban = format!("/v1/bans/acme/banned-{n}");
            node.operator().call(Method::PUT, &ban, Some(&json!({}))).await.unwrap();
            let body = json!({ "issuer": "https://ci.example", "subject": format!("job-{n}"), "service": "acme/bot" });
            node.operator().call(Method::PUT, "/v1/workloads", Some(&body)).await.unwrap();
        }
        let mut revocable = Vec::new();
        for n in 0..CALLERS.len() {
            revocable.push(issue(&node, &format!("spare-{n}"), "tenant-viewer", Some("acme")).await.id);
        }
        let person = async |role, tenant| Some(issue(&node, "anna", role, tenant).await.token);
        let tokens = vec![
            None,
            Some(node.token(&spy).await),
            person("tenant-admin", Some("zeta")).await,
            Some(node.token(&cast.billing).await),
            Some(node.token(&cast.bot).await),
            person("tenant-admin", Some("acme")).await,
            person("tenant-viewer", Some("acme")).await,
            person("accounting-ops", Some("acme")).await,
            person("auditor", Some("acme")).await,
            person("auditor", None).await,
            person("operator", None).await,
            Some(node.operator_token()),
        ];
        Self { node, tokens, revocable }
    }

    /// Sends a row's request as a caller, with `words.0` replaced by `words.1` in path and body.
    async fn ask(&self, row: &Row, caller: usize, words: (&str, &str)) -> Answered {
        let filled = |text: &str| {
            let text = text.replace("{n}", &caller.to_string()).replace("{token}", &self.revocable[caller]);
            text.replace(words.0, words.1)
        };
        let method: Method = row.method.parse().unwrap();
        let mut request =
            http(&self.node).request(method, format!("{}{}", self.node.url(), filled(row.request_path)));
        if let Some(token) = &self.tokens[caller] {
            request = request.bearer_auth(token);
        }
        if !row.body.is_null() {
            let body = filled(&row.body.to_string());
            request = request.header("content-type", "application/json").body(body);
        }
        Answered::to(request).await
    }

    /// Checks the answer to each caller and returns all of them in one line.
    async fn check(&self, row: &Row) -> String {
        let mut line = format!("{:<7}{}", row.method, row.path);
        for (caller, (name, place)) in CALLERS.iter().enumerate() {
            let answer = match row.path {
                ROLLBACK => self.roll_back(row, caller).await,
                _ => self.ask(row, caller, ("", "")).await,
            };
            let request = format!("{} {} as {name}", row.method, row.request_path);
            assert_eq!(answer.status, row.answers[*place], "{request}: {}", answer.text);
            if answer.status == 403 {
                assert_eq!(answer.document()["reason"], "forbidden", "{request}");
            }
            if FOREIGN.contains(&caller) {
                self.check_foreign(row, caller, &answer, &request).await;
            }
            let reason = if answer.status < 400 { Value::Null } else { answer.document()["reason"].clone() };
            line.push_str(&format!(
                " {}{}",
                answer.status,
                reason.as_str().map(|reason| format!(" {reason}")).unwrap_or_default()
            ));
            line.push(',');
        }
        line
    }

    /// Registers a grant and asks as a caller to roll it back. Checks that the grant is removed if and only
    /// if the answer is 200.
    async fn roll_back(&self, row: &Row, caller: usize) -> Answered {
        let version = self.node.get("/v1/registry?limit=1").await["version"].to_string();
        let grant =
            json!({ "source": "acme/billing", "target": "acme/bot", "name": format!("undone-{caller}") });
        self.node.operator().call(Method::PUT, "/v1/grants", Some(&grant)).await.unwrap();
        let answer = self.ask(row, caller, ("-1", &version)).await;
        let name = grant["name"].as_str().unwrap();
        let grants = self.node.get("/v1/registry?kind=grant&limit=1000").await;
        let is_there = grants["items"].as_array().unwrap().iter().any(|grant| grant["name"] == name);
        assert_eq!(is_there, answer.status != 200, "{name}: {}", answer.text);
        if answer.status == 200 {
            let [undone] =
                <[Value; 1]>::try_from(answer.document()["changes"].as_array().unwrap().clone()).unwrap();
            let of_grant = format!("acme/billing>acme/bot:{name}");
            assert_eq!(undone, json!({ "step": "remove", "kind": "grant", "name": of_grant }));
        }
        answer
    }

    /// Checks that another tenant gets the same refusal for an entry that exists and one that does not, and
    /// sees no other tenant's name in an answer.
    async fn check_foreign(&self, row: &Row, caller: usize, answer: &Answered, request: &str) {
        if answer.status < 400 {
            return assert!(!answer.text.contains("acme"), "{request}: {}", answer.text);
        }
        if !matches!(answer.status, 403 | 404) {
            return;
        }
        let made = self.revocable[caller].as_str();
        for words in [
            ("acme", "nobody"),
            ("spare-", "random-"),
            ("more-", "random-"),
            ("ed-", "-random-"),
            ("job-", "random-"),
            (made, "0123456789abcdef"),
        ] {
            let missing = self.ask(row, caller, words).await;
            let expected = answer.text.replace(words.0, words.1);
            assert_eq!(missing.text, expected, "{request}: the answer must equal that for a missing entry");
        }
    }
}

/// QUA-5, REG-9
#[tokio::test]
async fn every_endpoint_answers_each_caller_by_its_permission() {
    let test = EndpointTest::start().await;
    let rows: Vec<_> = [messages(), registry(), identity(), keys_and_record(), platform(), removals()]
        .into_iter()
        .flatten()
        .collect();
    let mut lines = CALLERS.map(|(caller, _)| caller).join(", ");
    for row in &rows {
        lines = format!("{lines}\n{}", test.check(row).await.trim_end_matches(','));
    }
    golden::check("permissions.txt", &(lines + "\n"));
    let document = test.ask(&open("/openapi.json"), 0, ("", "")).await.document();
    let described = document["paths"].as_object().unwrap().iter().flat_map(|(path, item)| {
        item.as_object().unwrap().keys().map(move |method| (method.to_uppercase(), path.clone()))
    });
    let walked: BTreeSet<_> = rows.iter().map(|row| (row.method.to_owned(), row.path.to_owned())).collect();
    assert_eq!(described.collect::<BTreeSet<_>>(), walked, "an endpoint is missing in this walk");
}
