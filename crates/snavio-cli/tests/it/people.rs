//! People and their tokens over HTTP (REG-9): the permissions of roles, the data they can see, the end of
//! tokens.

use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::bounds;
use snavio_sdk::Api;

use crate::node::{Cast, Draft, Node, new_id, post, verdict};
use crate::shell::Shell;
use crate::wire::{Answered, http};

/// A person's token and the token's id.
pub(crate) struct Issued {
    pub(crate) id: String,
    pub(crate) token: String,
}

/// Issues a token as the operator.
pub(crate) async fn issue(node: &Node, person: &str, role: &str, tenant: Option<&str>) -> Issued {
    let body = json!({ "person": person, "role": role, "tenant": tenant });
    let answer = node.operator().call(Method::POST, "/v1/tokens", Some(&body)).await.unwrap();
    let [id, token] = ["id", "token"].map(|member| answer[member].as_str().unwrap().to_owned());
    Issued { id, token }
}

struct TwoTenants {
    node: Node,
    cast: Cast,
}

impl TwoTenants {
    /// Starts a node with the usual services and another tenant `zeta` with a service.
    async fn start() -> Self {
        let node = Node::start();
        let cast = node.cast().await;
        let zeta = json!({
            "tenants": [{ "name": "zeta" }], "services": [{ "name": "zeta/shop" }],
            "routes": [{ "target": "zeta/shop", "name": "buy", "queue": "buy", "dead_letter_queue": "dead" }],
        });
        node.apply(&zeta).await;
        Self { node, cast }
    }

    async fn person(&self, role: &str, tenant: Option<&str>) -> Api {
        self.node.api().with_token(&issue(&self.node, "anna@example.com", role, tenant).await.token)
    }
}

async fn call(caller: &Api, method: Method, path: &str, body: Value) -> (u16, Value) {
    let body = (!body.is_null()).then(|| body.to_string().into_bytes());
    verdict(caller.send(method, path, body, "application/json").await)
}

async fn get(caller: &Api, path: &str) -> (u16, Value) {
    call(caller, Method::GET, path, Value::Null).await
}

/// The names of all changed entries that the caller sees, as one text.
async fn changed_names(caller: &Api) -> String {
    let (_, page) = get(caller, "/v1/registry/changes?limit=1000").await;
    page["items"].as_array().unwrap().iter().map(|change| change["name"].to_string()).collect()
}

/// The status of a request with a token.
async fn status_with_token(node: &Node, token: &str) -> u16 {
    let request = http(node).get(format!("{}/v1/tenants", node.url()));
    Answered::to(request.bearer_auth(token)).await.status
}

/// Runs a command that must succeed, and returns its output.
fn run(shell: &Shell, line: &str) -> String {
    let ended = shell.run(line);
    assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
    ended.out
}

fn status_and_reason(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["reason"].as_str().unwrap_or_default())
}

/// REG-2, REG-8, REG-9
#[tokio::test]
async fn tenant_admin_onboards_only_its_own_services() {
    let setup = TwoTenants::start().await;
    let admin = setup.person("tenant-admin", Some("acme")).await;
    let (status, made) = call(&admin, Method::PUT, "/v1/tenants/acme/services/shop", json!({})).await;
    assert_eq!(status, 201, "{made}");
    let shop: snavio_sdk::Credentials = serde_json::from_value(made).unwrap();
    let route = json!({ "queue": "buy-inbox", "dead_letter_queue": "bot-dead" });
    assert_eq!(call(&admin, Method::PUT, "/v1/routes/acme/bot/buy", route.clone()).await.0, 201);
    let grant = json!({ "source": "acme/shop", "target": "acme/bot", "name": "buy" });
    assert_eq!(call(&admin, Method::PUT, "/v1/grants", grant).await.0, 201);
    let client = setup.node.client(&shop);
    assert_eq!(post(&client, Draft::new("buy", &new_id()).sign(&shop)).await.0, 202);
    let (_, log) = get(&admin, "/v1/registry/changes?limit=1000").await;
    let last = log["items"].as_array().unwrap().last().unwrap();
    assert!(last["who"].as_str().unwrap().starts_with("anna@example.com (tenant-admin "), "{last}");

    // For another tenant's names the answer is `not_found`, whether they exist or not.
    let foreign = json!({ "source": "acme/shop", "target": "zeta/shop", "name": "buy" });
    for (method, path, body) in [
        (Method::PUT, "/v1/tenants/ten/services/shop", json!({})),
        (Method::DELETE, "/v1/tenants/ten/services/shop", Value::Null),
        (Method::PUT, "/v1/routes/ten/shop/buy", route),
        (Method::DELETE, "/v1/routes/ten/shop/buy", Value::Null),
        (Method::PUT, "/v1/grants", foreign),
        (Method::PUT, "/v1/tenants/ten", json!({ "contact": "mine" })),
        (Method::DELETE, "/v1/tenants/ten", Value::Null),
    ] {
        let answer = call(&admin, method.clone(), &path.replace("ten", "zeta"), body.clone()).await;
        assert_eq!(status_and_reason(&answer), (404, "not_found"), "{method} {path}");
        if path.contains("ten/") {
            let random = call(&admin, method.clone(), &path.replace("ten", "nobody"), body).await;
            assert_eq!(answer, random, "{method} {path}");
        }
    }
    // Only the platform may change these facts, even for the person's own tenant.
    for (method, path, body) in [
        (Method::PUT, "/v1/tenants/acme", json!({ "suspended": true })),
        (Method::DELETE, "/v1/tenants/acme", Value::Null),
        (Method::POST, "/v1/tokens", json!({ "person": "me", "role": "operator" })),
    ] {
        let answer = call(&admin, method.clone(), path, body).await;
        assert_eq!(status_and_reason(&answer), (403, "forbidden"), "{method} {path}");
    }
    assert_eq!(call(&admin, Method::PUT, "/v1/tenants/acme", json!({ "contact": "x@y" })).await.0, 200);
}

/// REG-4, REG-9
#[tokio::test]
async fn tenant_admin_apply_lists_every_foreign_entry() {
    let setup = TwoTenants::start().await;
    let admin = setup.person("tenant-admin", Some("acme")).await;
    let mut file = json!({
        "tenants": [{ "name": "acme" }],
        "services": [{ "name": "acme/shop" }],
        "routes": [{ "target": "acme/shop", "name": "buy", "queue": "buy", "dead_letter_queue": "dead" }],
        "grants": [{ "source": "zeta/shop", "target": "acme/shop", "name": "buy" }],
    });
    let (status, applied) = call(&admin, Method::POST, "/v1/registry/apply", file.clone()).await;
    assert_eq!((status, applied["credentials"].as_array().map(Vec::len)), (200, Some(1)), "{applied}");
    let version = setup.node.get("/v1/registry").await["version"].clone();

    file["tenants"] = json!([{ "name": "acme", "suspended": true }, { "name": "new" }]);
    file["services"] = json!([{ "name": "acme/more" }, { "name": "zeta/shop" }, { "name": "nobody/shop" }]);
    file["grants"] = json!([{ "source": "acme/shop", "target": "zeta/shop", "name": "buy" }]);
    let answer = call(&admin, Method::POST, "/v1/registry/apply", file).await;
    assert_eq!(status_and_reason(&answer), (403, "forbidden"));
    let detail = answer.1["detail"].as_str().unwrap();
    for problem in [
        "tenant acme: your role may not change this",
        "tenant new: it is not of your tenant",
        "service zeta/shop: it is not of your tenant",
        "service nobody/shop: it is not of your tenant",
        "grant acme/shop>zeta/shop:buy: it is not of your tenant",
    ] {
        assert!(detail.contains(problem), "{problem} is not in: {detail}");
    }
    assert!(!detail.contains("acme/more"), "{detail}");
    assert_eq!(setup.node.get("/v1/registry").await["version"], version, "nothing of it was registered");
}

/// REG-9
#[tokio::test]
async fn reading_roles_change_nothing_and_see_only_their_scope() {
    let setup = TwoTenants::start().await;
    let viewer = setup.person("tenant-viewer", Some("acme")).await;
    let auditor = setup.person("auditor", Some("acme")).await;
    let all = setup.person("auditor", None).await;
    for caller in [&viewer, &auditor, &all] {
        let answer = call(caller, Method::POST, "/v1/registry/apply", json!({})).await;
        assert_eq!(status_and_reason(&answer), (403, "forbidden"));
    }
    assert_eq!(status_and_reason(&get(&viewer, "/v1/registry/changes").await), (403, "forbidden"));
    let (own, everything) = (changed_names(&auditor).await, changed_names(&all).await);
    assert!(own.contains("acme/bot") && !own.contains("zeta"), "{own}");
    assert!(everything.contains("acme/bot") && everything.contains("zeta/shop"));

    // The pages together equal the whole list, and the last page says that it is the last.
    let (mut since, mut paged) = (json!(0), String::new());
    loop {
        let (_, page) = get(&auditor, &format!("/v1/registry/changes?limit=2&since={since}")).await;
        let items = page["items"].as_array().unwrap();
        paged.extend(items.iter().map(|change| change["name"].to_string()));
        if page["next"] == since {
            break;
        }
        since = page["next"].clone();
    }
    assert_eq!(paged, own);
    assert_eq!(get(&all, "/v1/telemetry?tenant=zeta").await.0, 200);
    assert_eq!(status_and_reason(&get(&auditor, "/v1/telemetry?tenant=zeta").await), (404, "not_found"));
    assert_eq!(status_and_reason(&get(&all, "/v1/telemetry").await), (400, "invalid_request"));
}

/// REG-9
#[tokio::test]
async fn accounting_ops_receives_for_any_service_of_its_tenant() {
    let setup = TwoTenants::start().await;
    let billing = setup.node.client(&setup.cast.billing);
    assert_eq!(post(&billing, Draft::new("pay", &new_id()).sign(&setup.cast.billing)).await.0, 202);
    let ops = setup.person("accounting-ops", Some("acme")).await;
    let (_, got) = call(&ops, Method::POST, "/v1/queues/pay-inbox/receive", json!({})).await;
    let one = &got["deliveries"][0];
    let receipt = json!({ "delivery_id": one["delivery_id"], "fence": one["fence"] });
    let (_, done) =
        call(&ops, Method::POST, "/v1/queues/pay-inbox/ack", json!({ "receipts": [receipt] })).await;
    assert_eq!(done["results"][0]["outcome"], "done", "{done}");
    let viewer = setup.person("tenant-viewer", Some("acme")).await;
    let answer = call(&viewer, Method::POST, "/v1/queues/pay-inbox/receive", json!({})).await;
    assert_eq!(status_and_reason(&answer), (403, "forbidden"));
}

/// REG-9
#[tokio::test]
async fn token_ends_with_its_revocation_or_its_tenant() {
    let setup = TwoTenants::start().await;
    let node = &setup.node;
    let spare = json!({ "tenants": [{ "name": "spare" }] });
    node.apply(&spare).await;
    let anna = issue(node, "anna", "tenant-viewer", Some("acme")).await;
    let bert = issue(node, "bert", "tenant-viewer", Some("spare")).await;
    let secret = anna.token.strip_prefix(&format!("snavpt_{}_", anna.id)).unwrap();
    for path in ["/v1/tokens", "/v1/registry", "/v1/registry/changes?limit=1000"] {
        let shown = node.get(path).await.to_string();
        assert!(shown.contains(&anna.id), "{path}");
        assert!(!shown.contains(secret) && !shown.contains("secret_hash"), "{path}");
    }
    let (as_anna, as_bert) = (node.api().with_token(&anna.token), node.api().with_token(&bert.token));
    assert_eq!(get(&as_anna, "/v1/tenants/acme").await.0, 200);
    assert_eq!(get(&as_bert, "/v1/tenants/spare").await.0, 200);

    // A suspended tenant's people are refused like its services.
    node.apply(&json!({ "tenants": [{ "name": "acme", "suspended": true }] })).await;
    assert_eq!(status_and_reason(&get(&as_anna, "/v1/tenants/acme").await), (403, "suspended"));
    node.apply(&json!({ "tenants": [{ "name": "acme", "suspended": false }] })).await;

    let path = format!("/v1/tokens/{}?why=left", anna.id);
    node.operator().call(Method::DELETE, &path, None).await.unwrap();
    assert_eq!(status_and_reason(&get(&as_anna, "/v1/tenants/acme").await), (401, "unauthenticated"));
    node.operator().call(Method::DELETE, "/v1/tenants/spare", None).await.unwrap();
    assert_eq!(status_and_reason(&get(&as_bert, "/v1/tenants/spare").await), (401, "unauthenticated"));
    assert!(!node.get("/v1/tokens").await.to_string().contains("bert"));
}

/// REG-9
#[tokio::test]
async fn token_with_invalid_role_or_lifetime_is_not_issued() {
    let setup = TwoTenants::start().await;
    let operator = setup.node.operator();
    for (person, role, tenant, days, expected) in [
        ("anna", "tenant-admin", Value::Null, json!(1), (409, "registry_conflict")),
        ("anna", "operator", json!("acme"), json!(1), (409, "registry_conflict")),
        ("anna", "tenant-admin", json!("nobody"), json!(1), (409, "registry_conflict")),
        (" ", "auditor", Value::Null, json!(1), (409, "registry_conflict")),
        ("a\nb", "auditor", Value::Null, json!(1), (409, "registry_conflict")),
        ("anna", "king", Value::Null, json!(1), (400, "invalid_request")),
        ("anna", "auditor", Value::Null, json!(0), (400, "invalid_request")),
        ("anna", "auditor", Value::Null, json!(366), (400, "invalid_request")),
        ("anna", "auditor", Value::Null, json!(365), (201, "")),
    ] {
        let body = json!({ "person": person, "role": role, "tenant": tenant, "days": days });
        let answer = call(&operator, Method::POST, "/v1/tokens", body.clone()).await;
        assert_eq!(status_and_reason(&answer), expected, "{body}");
    }
}

/// REG-9, PIP-1
#[tokio::test]
async fn token_guessing_is_throttled_and_correct_token_is_accepted() {
    let setup = TwoTenants::start().await;
    let anna = issue(&setup.node, "anna", "tenant-viewer", Some("acme")).await;
    for n in 0..bounds::AUTH_FAILURES_MAX {
        assert_eq!(status_with_token(&setup.node, &format!("snavpt_{}_{n}", anna.id)).await, 401);
    }
    assert_eq!(status_with_token(&setup.node, &format!("snavpt_{}_more", anna.id)).await, 429);
    assert_eq!(status_with_token(&setup.node, "snavpt_").await, 429);
    assert_eq!(status_with_token(&setup.node, &anna.token).await, 200);
}

/// REG-9: a stream that began before the revocation of its token returns no later record.
#[tokio::test]
async fn telemetry_stream_ends_with_its_token() {
    let setup = TwoTenants::start().await;
    let anna = issue(&setup.node, "anna", "tenant-viewer", Some("acme")).await;
    let request = http(&setup.node).get(format!("{}/v1/telemetry", setup.node.url()));
    let mut stream =
        request.bearer_auth(&anna.token).header("accept", "text/event-stream").send().await.unwrap();
    let billing = setup.node.client(&setup.cast.billing);
    let send = async || post(&billing, Draft::new("notify", &new_id()).sign(&setup.cast.billing)).await.0;
    assert_eq!(send().await, 202);
    assert!(stream.chunk().await.unwrap().is_some());
    setup.node.operator().call(Method::DELETE, &format!("/v1/tokens/{}", anna.id), None).await.unwrap();
    assert_eq!(send().await, 202);
    assert_eq!(stream.chunk().await.unwrap(), None, "the stream has ended");
}

/// REG-1, REG-8, REG-9: onboarding by the command line with nothing but personal tokens.
#[tokio::test]
async fn people_onboard_by_the_command_line() {
    let setup = TwoTenants::start().await;
    let operator = Shell::at(&setup.node);
    let admin = |tenant: &str| {
        let line = format!("tokens issue --person anna --role tenant-admin --tenant {tenant} --output json");
        let made = operator.run(&line).json();
        let token = made["token"].as_str().unwrap().to_owned();
        (
            made["id"].as_str().unwrap().to_owned(),
            Shell::new().with("SNAVIO_URL", setup.node.url()).with("SNAVIO_TOKEN", &token),
        )
    };
    let ((id, acme), (_, zeta)) = (admin("acme"), admin("zeta"));
    acme.write("registry.toml", "[[services]]\nname = \"acme/shop\"\n");
    run(&acme, "apply -f registry.toml --credentials-dir keys");
    run(&acme, "grants ask acme/shop zeta/shop buy --purpose orders -c keys/acme/shop.json");
    assert!(run(&zeta, "grants requests").contains("orders"));
    run(&zeta, "grants approve acme/shop zeta/shop buy --expires-at 2999-01-01T00:00:00Z --why fine");
    assert!(run(&zeta, "get grants").contains("acme/shop"));
    run(&zeta, "grants take-back acme/shop zeta/shop buy");
    run(&zeta, "grants give acme/shop zeta/shop *");
    run(&acme, "grants ask acme/shop zeta/shop buy");
    run(&zeta, "grants decline acme/shop zeta/shop buy");
    assert!(run(&acme, "get changes").contains("anna (tenant-admin"));

    acme.write("theirs.toml", "[[services]]\nname = \"zeta/more\"\n");
    let refused = acme.run("apply -f theirs.toml");
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("service zeta/more: it is not of your tenant"), "{refused:?}");
    assert!(run(&operator, "tokens list").contains(&id));
    run(&operator, &format!("tokens revoke {id} --why left"));
    let ended = acme.run("get services");
    assert!(ended.code == Some(1) && ended.err.contains("401 unauthenticated"), "{ended:?}");
}
