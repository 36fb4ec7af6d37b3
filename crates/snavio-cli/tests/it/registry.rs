//! The registry over HTTP (REG-1, REG-2, REG-4, REG-5): changes act at once, are recorded, and show no
//! secrets.

use base64::Engine as _;
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::{ApiError, Credentials};

use crate::node::{Cast, Draft, Launch, Node, new_id, post, verdict};
use crate::shell::Shell;
use crate::wire::{Answered, http};

struct RegistryTest {
    node: Node,
    cast: Cast,
}

impl RegistryTest {
    async fn start() -> Self {
        let node = Node::start();
        let cast = node.cast().await;
        Self { node, cast }
    }

    /// Calls the API as the operator.
    async fn call(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let body = (!body.is_null()).then(|| body.to_string().into_bytes());
        verdict(self.node.operator().send(method, path, body, "application/json").await)
    }

    async fn get(&self, path: &str) -> Value {
        self.call(Method::GET, path, Value::Null).await.1
    }

    async fn apply(&self, file: Value) -> (u16, Value) {
        self.call(Method::POST, "/v1/registry/apply", file).await
    }

    /// Calls the API as a service.
    async fn call_as(&self, service: &Credentials, method: Method, path: &str, body: Value) -> (u16, Value) {
        let api = self.node.client(service).authorized().await.expect("the service is authenticated");
        let body = (!body.is_null()).then(|| body.to_string().into_bytes());
        verdict(api.send(method, path, body, "application/json").await)
    }

    /// The member `suspended` of the tenant `acme`.
    async fn is_suspended(&self) -> Value {
        self.get("/v1/tenants/acme").await["suspended"].clone()
    }

    async fn send(&self, name: &str) -> u16 {
        let billing = &self.cast.billing;
        post(&self.node.client(billing), Draft::new(name, &new_id()).sign(billing)).await.0
    }
}

fn grant(name: &str) -> Value {
    json!({ "source": "acme/billing", "target": "acme/bot", "name": name })
}

/// The path at which a grant is revoked.
fn grant_path(name: &str) -> String {
    format!("/v1/grants?source=acme/billing&target=acme/bot&name={name}")
}

/// A registry file with a part of the entries that `Node::cast` registers.
fn file() -> Value {
    json!({
        "tenants": [{ "name": "acme" }],
        "services": [{ "name": "acme/billing" }, { "name": "acme/bot" }],
        "grants": [grant("notify")],
    })
}

/// Kind and name of the changes of a plan that have this step.
fn changes_by_step(plan: &Value, step: &str) -> Vec<String> {
    let changes = plan["changes"].as_array().unwrap().iter().filter(|change| change["step"] == step);
    changes
        .map(|change| format!("{} {}", change["kind"].as_str().unwrap(), change["name"].as_str().unwrap()))
        .collect()
}

/// REG-4
#[tokio::test]
async fn same_file_again_changes_nothing() {
    let test = RegistryTest::start().await;
    let before = test.get("/v1/registry").await;
    let (status, answer) = test.apply(file()).await;
    assert_eq!((status, &answer["changes"], &answer["credentials"]), (200, &json!([]), &json!([])));
    assert_eq!(answer["version"], before["version"]);
    assert_eq!(test.get("/v1/registry").await, before);
}

/// REG-3, REG-4
#[tokio::test]
async fn dry_run_lists_changes_and_changes_nothing() {
    let test = RegistryTest::start().await;
    let before = test.get("/v1/registry").await;
    let mut plan = file();
    plan["dry_run"] = true.into();
    plan["tenants"] = json!([{ "name": "acme", "contact": "ops@example.com" }]);
    plan["services"] = json!([{ "name": "acme/new" }]);
    plan["grants"] = json!([grant("refund")]);
    let (status, answer) = test.apply(plan).await;
    assert_eq!((status, &answer["dry_run"], &answer["credentials"]), (200, &json!(true), &json!([])));
    let steps: Vec<_> = answer["changes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|change| (&change["step"], &change["kind"]))
        .collect();
    let (add, change) = (json!("add"), json!("change"));
    let [tenant, service, key, client, of_grant] =
        ["tenant", "service", "key", "client", "grant"].map(|kind| json!(kind));
    assert_eq!(
        steps,
        [(&change, &tenant), (&add, &service), (&add, &key), (&add, &client), (&add, &of_grant)]
    );
    assert_eq!(test.get("/v1/registry").await, before);
    assert_eq!(test.get("/v1/tenants/acme/services/new").await["reason"], "not_found");
}

/// REG-1
#[tokio::test]
async fn control_characters_in_entries_are_refused() {
    let test = RegistryTest::start().await;
    let before = test.get("/v1/registry").await;
    let issuer =
        |name: &str, keys: &str| json!({ "issuer": name, "audience": "snavio", "keys": { "file": keys } });
    for c in ["\0", "\u{1b}", "\u{7f}", "\u{85}", "\r"] {
        let text = format!("a{c}b");
        for (path, body) in [
            ("/v1/issuers", issuer(&text, "/keys")),
            ("/v1/issuers", issuer("https://ci.example", &format!("/{text}"))),
            ("/v1/tenants/acme", json!({ "contact": text })),
            ("/v1/tenants/acme/services/bot", json!({ "description": text })),
            ("/v1/bans/acme/billing", json!({ "reason": text })),
        ] {
            let (status, answer) = test.call(Method::PUT, path, body).await;
            assert_eq!(
                (status, answer["reason"].as_str()),
                (409, Some("registry_conflict")),
                "{path}: {answer}"
            );
            let detail = answer["detail"].as_str().unwrap();
            assert!(
                detail.contains("control character U+") && !detail.contains(char::is_control),
                "{detail}"
            );
        }
        let mut file = file();
        file["services"][1]["description"] = text.as_str().into();
        assert_eq!(test.apply(file).await.0, 409);
    }
    assert_eq!(test.get("/v1/registry").await, before);
    let mut file = file();
    file["services"][1]["description"] = "first line\n\tsecond line".into();
    assert_eq!(test.apply(file).await.0, 200);
    assert_eq!(test.send("notify").await, 202);
}

/// REG-1, REG-18
#[tokio::test]
async fn change_is_in_effect_for_next_message() {
    let test = RegistryTest::start().await;
    for _ in 0..3 {
        assert_eq!(test.send("notify").await, 202);
        assert_eq!(test.call(Method::DELETE, &grant_path("notify"), Value::Null).await.0, 200);
        assert_eq!(test.send("notify").await, 403);
        assert_eq!(test.call(Method::PUT, "/v1/grants", grant("notify")).await.0, 201);
    }
    assert_eq!(test.send("lost").await, 404);
    let route = json!({ "queue": "lost-inbox", "dead_letter_queue": "bot-dead" });
    assert_eq!(test.call(Method::PUT, "/v1/routes/acme/bot/lost", route).await.0, 201);
    assert_eq!(test.send("lost").await, 202);
    let billing = test.node.client(&test.cast.billing);
    let messages = [(); 2].map(|()| Draft::new("notify", &new_id()).sign(&test.cast.billing));
    assert_eq!(post(&billing, messages[0].clone()).await.0, 202);
    assert_eq!(test.call(Method::PUT, "/v1/tenants/acme", json!({ "suspended": true })).await.0, 200);
    let (status, problem) = post(&billing, messages[1].clone()).await;
    assert_eq!((status, problem["reason"].as_str()), (403, Some("suspended")));
}

/// REG-7
#[tokio::test]
async fn suspended_tenant_gets_no_token_and_reads_nothing() {
    let node = Node::start();
    let cast = node.cast().await;
    let bot = node.client(&cast.bot);
    let reads = ["/v1/telemetry", "/v1/registry", "/v1/dead-letters", "/v1/queues/pay-inbox"];
    for path in reads {
        bot.call(Method::GET, path, None).await.expect(path);
    }
    let mut tenant = json!({ "tenants": [{ "name": "acme", "suspended": true }] });
    node.apply(&tenant).await;
    for path in reads {
        let (status, problem) =
            verdict(bot.authorized().await.unwrap().send(Method::GET, path, None, "").await);
        let reason = problem["reason"].as_str().unwrap_or_default();
        assert_eq!((status, reason), (403, "suspended"), "{path}");
    }
    match node.client(&cast.bot).authorized().await {
        Err(ApiError::Refused { status: 403, document, .. }) => assert_eq!(document["reason"], "suspended"),
        _ => panic!("a suspended tenant got a token"),
    }
    tenant["tenants"][0]["suspended"] = false.into();
    node.apply(&tenant).await;
    bot.call(Method::GET, "/v1/telemetry", None).await.expect("it is back");
}

/// REG-2
#[tokio::test]
async fn route_keeps_given_members_and_defaults() {
    let test = RegistryTest::start().await;
    let path = "/v1/routes/acme/bot/refund";
    let given = json!({ "queue": "refunds", "dead_letter_queue": "bot-dead" });
    assert_eq!(test.call(Method::PUT, path, given).await.0, 201);
    let mut route = json!({
        "kind": "route", "target": "acme/bot", "name": "refund", "queue": "refunds", "dead_letter_queue": "bot-dead",
        "claim": { "policy": "none" }, "dispatch": "adaptive", "profile": "moderate", "receives_max": 5,
        "expected_drain_seconds": 300,
    });
    assert_eq!(test.get(path).await, route);
    let given = json!({
        "queue": "refunds", "dead_letter_queue": "bot-dead", "claim": { "policy": "strict", "keep_seconds": 600 },
        "dispatch": "cold-only", "profile": "critical", "receives_max": 9, "expected_drain_seconds": 60,
    });
    assert_eq!(test.call(Method::PUT, path, given.clone()).await.0, 200);
    for (name, value) in given.as_object().into_iter().flatten() {
        route[name] = value.clone();
    }
    assert_eq!(test.get(path).await, route);
    let mut typo = given;
    typo["recieves_max"] = 3.into();
    let (status, problem) = test.call(Method::PUT, path, typo).await;
    assert_eq!((status, &problem["reason"]), (400, &json!("invalid_request")));
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("recieves_max")), "{problem}");
    let without = json!({ "queue": "refunds" });
    assert_eq!(test.call(Method::PUT, path, without).await.0, 400, "a dead-letter queue is required");
}

/// REG-2, REG-6, CLM-20
#[tokio::test]
async fn inconsistent_file_is_refused_with_every_problem_named() {
    let test = RegistryTest::start().await;
    let before = test.get("/v1/registry").await;
    let bad = json!({
        "tenants": [{ "name": "fine" }],
        "services": [{ "name": "nowhere/bot" }],
        "routes": [
            { "target": "acme/nobody", "name": "x", "queue": "in", "dead_letter_queue": "dead" },
            { "target": "acme/bot", "name": "same", "queue": "in", "dead_letter_queue": "in" },
            { "target": "acme/bot", "name": "none", "queue": "in", "dead_letter_queue": "dead", "receives_max": 0 },
            { "target": "acme/bot", "name": "short", "queue": "in", "dead_letter_queue": "dead",
              "claim": { "policy": "strict", "keep_seconds": 100 } },
        ],
        "grants": [{ "source": "acme/ghost", "target": "acme/bot", "name": "x" }],
    });
    let (status, problem) = test.apply(bad).await;
    assert_eq!((status, &problem["reason"]), (409, &json!("registry_conflict")));
    let detail = problem["detail"].as_str().unwrap_or_default();
    for named in [
        "service nowhere/bot: tenant nowhere is not registered",
        "route acme/nobody:x: service acme/nobody is not registered",
        "route acme/bot:same: queue and dead_letter_queue must differ",
        "route acme/bot:none: receives_max is 0",
        "2 × 60 s + 60 s = 180 s",
        "grant acme/ghost>acme/bot:x: service acme/ghost is not registered",
    ] {
        assert!(detail.contains(named), "{named} is not named in: {detail}");
    }
    assert_eq!(test.get("/v1/registry").await, before, "nothing of it was taken");
    let fifo = json!({ "queue": "in.fifo", "dead_letter_queue": "dead" });
    let (status, problem) = test.call(Method::PUT, "/v1/routes/acme/bot/fifo", fifo).await;
    assert_eq!((status, problem["accepted"].as_bool()), (400, Some(false)), "{problem}");
}

/// REG-4
#[tokio::test]
async fn file_with_one_name_twice_is_refused() {
    let test = RegistryTest::start().await;
    for twice in [
        json!({ "services": [{ "name": "acme/twin" }, { "name": "acme/twin" }] }),
        json!({ "tenants": [{ "name": "acme", "contact": "a" }, { "name": "acme", "contact": "b" }] }),
    ] {
        let (status, problem) = test.apply(twice).await;
        assert_eq!((status, &problem["reason"]), (409, &json!("registry_conflict")));
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("keep one")), "{problem}");
    }
}

/// REG-5
#[tokio::test]
async fn changelog_records_author_time_note_before_and_after() {
    let test = RegistryTest::start().await;
    let start = test.get("/v1/registry").await["version"].clone();
    let changed = test
        .call(Method::PUT, "/v1/tenants/acme?why=new%20contact", json!({ "contact": "a@example.com" }))
        .await;
    assert_eq!(changed.0, 200);
    let removed = test.call(Method::DELETE, &format!("{}&why=tidy", grant_path("lost")), Value::Null).await;
    assert_eq!(removed, (200, json!({ "removed": ["grant acme/billing>acme/bot:lost"] })));

    let page = test.get(&format!("/v1/registry/changes?since={start}")).await;
    let [first, second] = page["items"].as_array().map(Vec::as_slice).unwrap_or_default() else {
        panic!("two changes since: {page}")
    };
    let version = start.as_i64().unwrap_or_default();
    assert_eq!((&first["version"], &second["version"]), (&json!(version + 1), &json!(version + 2)));
    assert_eq!(page["next"], version + 2);
    assert_eq!((&first["who"], &first["why"]), (&json!("operator"), &json!("new contact")));
    assert_eq!(first["before"], json!({ "kind": "tenant", "name": "acme", "suspended": false }));
    assert_eq!(first["after"]["contact"], "a@example.com");
    assert!(first["at"].as_str().and_then(snavio_model::time::Timestamp::parse).is_some());
    assert_eq!(
        (&second["kind"], &second["why"], &second["after"]),
        (&json!("grant"), &json!("tidy"), &Value::Null)
    );
    assert_eq!(second["before"]["name"], "lost");

    let mut since = 0;
    let mut seen = Vec::new();
    loop {
        let page = test.get(&format!("/v1/registry/changes?since={since}&limit=4")).await;
        let items = page["items"].as_array().cloned().unwrap_or_default();
        if items.is_empty() {
            break;
        }
        assert!(items.len() <= 4);
        seen.extend(items.iter().filter_map(|change| change["version"].as_i64()));
        since = page["next"].as_i64().unwrap_or_default();
    }
    assert_eq!(seen, (1..=version + 2).collect::<Vec<_>>(), "every version, once");
}

/// REG-1
#[tokio::test]
async fn entry_with_dependents_is_not_removed() {
    let test = RegistryTest::start().await;
    for (path, needed_by) in [
        ("/v1/tenants/acme", "service acme/bot"),
        ("/v1/tenants/acme/services/bot", "route acme/bot:notify"),
        ("/v1/tenants/acme/services/billing", "grant acme/billing>acme/bot:notify"),
    ] {
        let (status, problem) = test.call(Method::DELETE, path, Value::Null).await;
        assert_eq!((status, &problem["reason"]), (409, &json!("registry_conflict")), "{path}");
        assert!(
            problem["detail"].as_str().is_some_and(|detail| detail.contains(needed_by)),
            "{path}: {problem}"
        );
    }
    for name in ["notify", "pay", "lost"] {
        assert_eq!(test.call(Method::DELETE, &grant_path(name), Value::Null).await.0, 200);
    }
    for path in [
        "/v1/routes/acme/bot/notify",
        "/v1/routes/acme/bot/pay",
        "/v1/tenants/acme/services/bot",
        "/v1/tenants/acme/services/billing",
        "/v1/tenants/acme",
    ] {
        assert_eq!(test.call(Method::DELETE, path, Value::Null).await.0, 200, "{path}");
        assert_eq!(test.call(Method::DELETE, path, Value::Null).await.0, 404, "{path}");
    }
    assert_eq!(test.get("/v1/registry").await["items"], json!([]));
}

/// REG-13, REG-7
#[tokio::test]
async fn secrets_are_shown_once_and_never_found_later() {
    let mut test = RegistryTest::start().await;
    test.send("notify").await;
    let everything = [
        "/v1/registry",
        "/v1/registry/changes?limit=1000",
        "/v1/tenants",
        "/v1/tenants/acme",
        "/v1/tenants/acme/services/billing",
        "/v1/grants",
        "/v1/routes/acme/bot/notify",
        "/v1/status",
        "/metrics",
    ];
    let mut texts = Vec::new();
    for path in everything {
        texts.push((path.to_owned(), test.get(path).await.to_string().into_bytes()));
        let own = test.call_as(&test.cast.billing, Method::GET, path, Value::Null).await.1;
        texts.push((format!("{path} as a service"), own.to_string().into_bytes()));
    }
    let again =
        test.call(Method::PUT, "/v1/tenants/acme/services/billing", json!({ "description": "x" })).await.1;
    texts.push(("the service put again".to_owned(), again.to_string().into_bytes()));
    let operator = test.node.operator_token();
    test.node.kill();
    let kept = test.node.engine().kept(test.node.folder());
    let sealed = kept.iter().any(|(_, text)| text.windows(7).any(|part| part == b"hmac-v1"));
    assert!(sealed, "the examined files hold the keys");
    texts.extend(kept);

    let mut secrets = vec![operator.as_bytes().to_vec()];
    for credentials in [&test.cast.billing, &test.cast.bot] {
        secrets.push(credentials.client_secret.clone().into_bytes());
        secrets.push(credentials.hmac_secret.trim_start_matches("whsec_").as_bytes().to_vec());
        let secret = credentials.secret().expect("a secret").expose_bytes().to_vec();
        // The dump shows binary columns in hexadecimal.
        secrets.push(secret.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into_bytes());
        secrets.push(secret);
    }
    texts.push(("the log of the node".to_owned(), test.node.said().into_bytes()));
    for (name, text) in &texts {
        for secret in &secrets {
            let found = text.windows(secret.len()).any(|part| part == secret);
            assert!(!found, "a secret is in {name}");
        }
    }
}

/// REG-18
#[tokio::test]
async fn concurrent_changes_are_all_applied() {
    let test = RegistryTest::start().await;
    let start = test.get("/v1/registry").await["version"].as_i64().unwrap_or_default();
    let names: Vec<_> = (0..12).map(|n| format!("cmd-{n}")).collect();
    let puts = join_all(names.iter().map(|name| test.call(Method::PUT, "/v1/grants", grant(name)))).await;
    assert!(puts.iter().all(|(status, _)| *status == 201), "{puts:?}");
    let registry = test.get("/v1/registry").await;
    assert_eq!(registry["version"], start + 12);
    let held: Vec<_> =
        registry["items"].as_array().into_iter().flatten().map(|entry| entry["name"].clone()).collect();
    assert!(names.iter().all(|name| held.contains(&json!(name))), "{held:?}");
}

/// REG-18, REG-7
#[tokio::test]
async fn concurrent_registration_returns_working_credentials_once() {
    let test = RegistryTest::start().await;
    for round in 0..4 {
        let path = format!("/v1/tenants/acme/services/twin-{round}");
        let puts = join_all((0..4).map(|_| test.call(Method::PUT, &path, json!({})))).await;
        let made: Vec<_> = puts.iter().filter(|(_, answer)| answer.get("hmac_secret").is_some()).collect();
        assert_eq!(made.len(), 1, "one request creates the service, the others find it: {puts:?}");
        let twin: Credentials =
            serde_json::from_value(made[0].1.clone()).expect("credentials are as documented");
        let of_twin = json!({ "source": twin.source, "target": "acme/bot", "name": "notify" });
        assert_eq!(test.call(Method::PUT, "/v1/grants", of_twin).await.0, 201);
        let sent = post(&test.node.client(&twin), Draft::new("notify", &new_id()).sign(&twin)).await;
        assert_eq!(sent.0, 202, "{}", sent.1);
    }
}

/// REG-1, QUA-1
#[tokio::test]
async fn registry_survives_restart() {
    let mut test = RegistryTest::start().await;
    test.call(Method::DELETE, &grant_path("lost"), Value::Null).await;
    let (registry, changes) = (test.get("/v1/registry").await, test.get("/v1/registry/changes").await);
    test.node.kill();
    test.node.restart(&Launch::default());
    assert_eq!(test.get("/v1/registry").await, registry);
    assert_eq!(test.get("/v1/registry/changes").await, changes);
    assert_eq!((test.send("notify").await, test.send("lost").await), (202, 403));
}

/// REG-8
#[tokio::test]
async fn principal_acts_only_for_its_own_source() {
    let test = RegistryTest::start().await;
    let (billing, bot) = (&test.cast.billing, &test.cast.bot);
    let message = Draft::new("notify", &new_id());
    for (caller, signer) in [(bot, billing), (billing, bot)] {
        let (status, problem) = post(&test.node.client(caller), message.sign(signer)).await;
        assert_eq!(
            (status, &problem["reason"]),
            (401, &json!("hmac_invalid")),
            "{caller:?} with the key of {signer:?}"
        );
    }
    let mut claimed = message.sign(billing);
    let end = claimed.len() - 2;
    claimed.splice(end..end, *br#","source":"acme/bot""#);
    let (status, problem) = post(&test.node.client(billing), claimed).await;
    assert_eq!((status, &problem["reason"]), (400, &json!("source_present")));
}

/// QUA-5, REG-9
#[tokio::test]
async fn service_reads_only_its_own_tenant_and_changes_nothing() {
    let test = RegistryTest::start().await;
    let other = json!({
        "tenants": [{ "name": "zeta" }], "services": [{ "name": "zeta/bot" }],
        "routes": [{ "target": "zeta/bot", "name": "ping", "queue": "in", "dead_letter_queue": "dead" }],
        "grants": [{ "source": "acme/billing", "target": "zeta/bot", "name": "ping" }],
    });
    test.node.apply(&other).await;
    let before = test.get("/v1/registry").await;
    let billing = &test.cast.billing;
    let route = json!({ "queue": "in", "dead_letter_queue": "dead" });
    for (method, path, body) in [
        (Method::PUT, "/v1/tenants/acme", json!({})),
        (Method::DELETE, "/v1/tenants/acme", Value::Null),
        (Method::PUT, "/v1/tenants/acme/services/new", json!({})),
        (Method::DELETE, "/v1/tenants/acme/services/bot", Value::Null),
        (Method::PUT, "/v1/routes/acme/billing/new", route),
        (Method::DELETE, "/v1/routes/acme/bot/notify", Value::Null),
        (Method::PUT, "/v1/grants", grant("new")),
        (Method::DELETE, "/v1/grants?source=acme/billing&target=acme/bot&name=notify", Value::Null),
        (Method::POST, "/v1/registry/apply", file()),
        (Method::GET, "/v1/registry/changes", Value::Null),
        (Method::GET, "/v1/status", Value::Null),
        (Method::GET, "/metrics", Value::Null),
    ] {
        let (status, problem) = test.call_as(billing, method.clone(), path, body).await;
        assert_eq!((status, &problem["reason"]), (403, &json!("forbidden")), "{method} {path}");
    }
    assert_eq!(test.get("/v1/registry").await, before);

    let see = async |path: &str| test.call_as(billing, Method::GET, path, Value::Null).await;
    for (theirs, missing) in [
        ("/v1/tenants/zeta", "/v1/tenants/nobody"),
        ("/v1/tenants/zeta/services/bot", "/v1/tenants/nobody/services/bot"),
        ("/v1/routes/zeta/bot/ping", "/v1/routes/nobody/bot/ping"),
    ] {
        assert_eq!(see(theirs).await, see(missing).await);
        assert_eq!(see(theirs).await.0, 404);
    }
    for list in ["/v1/registry", "/v1/tenants", "/v1/grants"] {
        assert!(!see(list).await.1.to_string().contains("zeta"), "{list}");
    }
}

/// REG-7
#[tokio::test]
async fn client_gets_token_by_form_or_basic_authentication() {
    let test = RegistryTest::start().await;
    let billing = &test.cast.billing;
    let url = format!("{}/v1/token", test.node.url());
    let grant_type = ("grant_type", "client_credentials");
    let form = [grant_type, ("client_id", &billing.client_id), ("client_secret", &billing.client_secret)];
    let by_form = http(&test.node).post(&url).form(&form);
    let by_basic = http(&test.node).post(&url).basic_auth(&billing.client_id, Some(&billing.client_secret));
    for request in [by_form, by_basic.form(&[grant_type])] {
        let response = request.send().await.expect("the node answers");
        assert_eq!(
            (response.status().as_u16(), response.headers()["cache-control"].to_str().ok()),
            (200, Some("no-store"))
        );
        let answer: Value = serde_json::from_str(&response.text().await.expect("text")).expect("JSON");
        assert_eq!((&answer["token_type"], &answer["expires_in"]), (&json!("Bearer"), &json!(600)));
        let claims =
            answer["access_token"].as_str().and_then(|token| token.split('.').nth(1)).unwrap_or_default();
        let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).expect("base64");
        let claims: Value = serde_json::from_slice(&claims).expect("JSON");
        let lifetime =
            claims["exp"].as_i64().unwrap_or_default() - claims["iat"].as_i64().unwrap_or_default();
        assert_eq!((lifetime, &claims["service"]), (600, &json!("acme/billing")));
    }
}

/// REG-7, QUA-5
#[tokio::test]
async fn wrong_secret_and_unknown_client_get_same_answer() {
    let test = RegistryTest::start().await;
    let billing = &test.cast.billing;
    let ask = async |grant_type: &str, id: &str, secret: &str| {
        let form = [("grant_type", grant_type), ("client_id", id), ("client_secret", secret)];
        let answer =
            Answered::to(http(&test.node).post(format!("{}/v1/token", test.node.url())).form(&form)).await;
        (answer.status, answer.document())
    };
    let wrong = ask("client_credentials", &billing.client_id, &test.cast.bot.client_secret).await;
    assert_eq!((wrong.0, &wrong.1["error"]), (401, &json!("invalid_client")));
    assert_eq!(ask("client_credentials", "snavcl_nobody", &billing.client_secret).await, wrong);
    assert_eq!(ask("client_credentials", &billing.client_id, "").await, wrong);
    let password = ask("password", &billing.client_id, &billing.client_secret).await;
    assert_eq!((password.0, &password.1["error"]), (400, &json!("unsupported_grant_type")));
    let in_url = format!(
        "{}/v1/token?grant_type=client_credentials&client_id={}&client_secret={}",
        test.node.url(),
        billing.client_id,
        billing.client_secret
    );
    let in_url = Answered::to(http(&test.node).post(in_url)).await.status;
    assert!((400..500).contains(&in_url), "no credential travels in a URL: {in_url}");
    assert!(!test.node.token(billing).await.is_empty());
}

/// REG-4
#[tokio::test]
async fn suspension_is_lifted_only_explicitly() {
    let test = RegistryTest::start().await;
    assert_eq!(test.call(Method::PUT, "/v1/tenants/acme", json!({ "suspended": true })).await.0, 200);
    let (_, again) = test.apply(file()).await;
    assert_eq!((&again["changes"], test.is_suspended().await), (&json!([]), json!(true)));
    let (_, put) = test.call(Method::PUT, "/v1/tenants/acme", json!({ "contact": "ops" })).await;
    assert_eq!((&put["suspended"], test.is_suspended().await), (&json!(true), json!(true)));
    let (_, lifted) = test.apply(json!({ "tenants": [{ "name": "acme", "suspended": false }] })).await;
    let members = json!({
        "contact": { "before": "ops", "after": null }, "suspended": { "before": true, "after": false },
    });
    assert_eq!((&lifted["changes"][0]["members"], test.is_suspended().await), (&members, json!(false)));
}

/// REG-24
#[tokio::test]
async fn last_route_of_non_empty_queue_is_not_removed() {
    let test = RegistryTest::start().await;
    let (path, other) = ("/v1/routes/acme/bot/notify", "/v1/routes/acme/bot/lost");
    let [elsewhere, same_queue] =
        ["elsewhere", "notify-inbox"].map(|queue| json!({ "queue": queue, "dead_letter_queue": "bot-dead" }));
    assert_eq!(test.send("notify").await, 202);
    let (status, problem) = test.call(Method::DELETE, path, Value::Null).await;
    assert_eq!((status, &problem["reason"]), (409, &json!("registry_conflict")));
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("notify-inbox") && detail.contains("1 deliveries"), "{detail}");
    assert_eq!(
        test.call(Method::PUT, path, elsewhere.clone()).await.0,
        409,
        "a change would strand them too"
    );
    let mut plan = json!({ "dry_run": true, "routes": [elsewhere] });
    plan["routes"][0]["target"] = "acme/bot".into();
    plan["routes"][0]["name"] = "notify".into();
    assert_eq!(test.apply(plan).await.0, 409);
    // With another route of the queue the deliveries stay reachable.
    assert_eq!(test.call(Method::PUT, other, same_queue).await.0, 201);
    assert_eq!(test.call(Method::DELETE, path, Value::Null).await.0, 200);
    assert_eq!(test.call(Method::DELETE, other, Value::Null).await.0, 409);
    let purge = "/v1/queues/notify-inbox/purge?tenant=acme";
    assert_eq!(test.call(Method::POST, purge, json!({})).await.1["purged"], 1);
    assert_eq!(test.call(Method::DELETE, other, Value::Null).await.0, 200);
}

/// REG-24
#[tokio::test]
async fn former_tenant_name_is_free_only_without_stored_records() {
    let test = RegistryTest::start().await;
    assert_eq!(test.call(Method::PUT, "/v1/tenants/brief", json!({})).await.0, 201);
    assert_eq!(test.call(Method::DELETE, "/v1/tenants/brief", Value::Null).await.0, 200);
    assert_eq!(
        test.call(Method::PUT, "/v1/tenants/brief", json!({})).await.0,
        201,
        "nothing happened under it"
    );

    assert_eq!(test.send("notify").await, 202);
    assert_eq!(test.call(Method::DELETE, "/v1/tenants/acme", Value::Null).await.0, 409, "it has services");
    assert_eq!(test.call(Method::POST, "/v1/queues/notify-inbox/purge?tenant=acme", json!({})).await.0, 200);
    for name in ["notify", "pay", "lost"] {
        assert_eq!(test.call(Method::DELETE, &grant_path(name), Value::Null).await.0, 200);
    }
    let routes = ["/v1/routes/acme/bot/notify", "/v1/routes/acme/bot/pay"];
    let services = ["/v1/tenants/acme/services/billing", "/v1/tenants/acme/services/bot"];
    for path in routes.iter().chain(&services).chain(&["/v1/tenants/acme"]) {
        assert_eq!(test.call(Method::DELETE, path, Value::Null).await.0, 200, "{path}");
    }
    let (status, problem) = test.call(Method::PUT, "/v1/tenants/acme", json!({})).await;
    assert_eq!((status, &problem["reason"]), (409, &json!("registry_conflict")));
    assert!(
        problem["detail"].as_str().is_some_and(|detail| detail.contains("choose another name")),
        "{problem}"
    );
}

/// REG-4: `--prune` with a file in YAML removes the entries of its tenants that it does not name, and no
/// others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pruning_apply_removes_entries_missing_from_file() {
    let node = Node::start();
    node.cast().await;
    let other = json!({ "tenants": [{ "name": "zeta" }], "services": [{ "name": "zeta/app" }] });
    node.apply(&other).await;
    let shell = Shell::at(&node);
    let file = shell.write(
        "registry.yaml",
        "tenants:\n  - name: acme\nservices:\n  - name: acme/bot\n    description: the one that stays\n\
         routes:\n  - target: acme/bot\n    name: greet\n    queue: greetings\n    dead_letter_queue: bot-dead\n    \
         expires_at: 2099-01-01T00:00:00Z\n",
    );
    let plan = shell.run(&format!("apply -f {file} --prune --dry-run --output json")).json();
    assert_eq!(changes_by_step(&plan, "add"), ["route acme/bot:greet"], "{plan}");
    assert_eq!(changes_by_step(&plan, "change"), ["service acme/bot"], "{plan}");
    let removed = changes_by_step(&plan, "remove");
    assert!(removed.contains(&"service acme/billing".to_owned()), "{plan}");
    assert!(removed.contains(&"grant acme/billing>acme/bot:pay".to_owned()), "{plan}");
    assert!(removed.iter().all(|step| !step.contains("zeta")), "{plan}");
    let done = shell.run(&format!("apply -f {file} --prune"));
    assert_eq!(done.code, Some(0), "{done:?}");
    let again = shell.run(&format!("apply -f {file} --prune"));
    assert!(again.out.contains("nothing to change"), "{again:?}");
    let left = node.get("/v1/registry?limit=1000").await.to_string();
    assert!(
        left.contains("zeta/app") && left.contains("2099-01-01T00:00:00") && !left.contains("acme/billing"),
        "{left}"
    );
}
