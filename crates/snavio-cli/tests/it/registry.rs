//! The registry from outside (REG-1, REG-2, REG-4, REG-5): in effect at once, on the record, and without secrets.

use base64::Engine as _;
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::{ApiError, Credentials};

use crate::node::{Cast, Draft, Launch, Node, new_id, post, verdict};
use crate::shell::Shell;
use crate::wire::{Answered, http};

struct Desk {
    node: Node,
    cast: Cast,
}

impl Desk {
    async fn set() -> Self {
        let node = Node::start();
        let cast = node.cast().await;
        Self { node, cast }
    }

    /// A call by the operator.
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

    /// A call by a service.
    async fn call_as(&self, who: &Credentials, method: Method, path: &str, body: Value) -> (u16, Value) {
        let api = self.node.client(who).authorized().await.expect("the service is authenticated");
        let body = (!body.is_null()).then(|| body.to_string().into_bytes());
        verdict(api.send(method, path, body, "application/json").await)
    }

    async fn send(&self, name: &str) -> u16 {
        let billing = &self.cast.billing;
        post(&self.node.client(billing), Draft::new(name, &new_id()).sign(billing)).await.0
    }
}

fn grant(name: &str) -> Value {
    json!({ "source": "acme/billing", "target": "acme/bot", "name": name })
}

/// Where a grant is taken back.
fn granted(name: &str) -> String {
    format!("/v1/grants?source=acme/billing&target=acme/bot&name={name}")
}

/// The part of a registry file that the usual cast made, written down.
fn file() -> Value {
    json!({
        "tenants": [{ "name": "acme" }],
        "services": [{ "name": "acme/billing" }, { "name": "acme/bot" }],
        "grants": [grant("notify")],
    })
}

/// REG-4
#[tokio::test]
async fn the_same_file_again_changes_nothing() {
    let desk = Desk::set().await;
    let before = desk.get("/v1/registry").await;
    let (status, answer) = desk.apply(file()).await;
    assert_eq!((status, &answer["changes"], &answer["credentials"]), (200, &json!([]), &json!([])));
    assert_eq!(answer["version"], before["version"]);
    assert_eq!(desk.get("/v1/registry").await, before);
}

/// REG-3, REG-4
#[tokio::test]
async fn a_dry_run_says_what_would_change_and_changes_nothing() {
    let desk = Desk::set().await;
    let before = desk.get("/v1/registry").await;
    let mut plan = file();
    plan["dry_run"] = true.into();
    plan["tenants"] = json!([{ "name": "acme", "contact": "ops@example.com" }]);
    plan["services"] = json!([{ "name": "acme/new" }]);
    plan["grants"] = json!([grant("refund")]);
    let (status, answer) = desk.apply(plan).await;
    assert_eq!((status, &answer["dry_run"], &answer["credentials"]), (200, &json!(true), &json!([])));
    let steps: Vec<_> =
        answer["changes"].as_array().into_iter().flatten().map(|it| (&it["step"], &it["kind"])).collect();
    let (add, change) = (json!("add"), json!("change"));
    let [tenant, service, key, client, of_grant] =
        ["tenant", "service", "key", "client", "grant"].map(|it| json!(it));
    assert_eq!(
        steps,
        [(&change, &tenant), (&add, &service), (&add, &key), (&add, &client), (&add, &of_grant)]
    );
    assert_eq!(desk.get("/v1/registry").await, before);
    assert_eq!(desk.get("/v1/tenants/acme/services/new").await["reason"], "not_found");
}

/// REG-1
#[tokio::test]
async fn control_characters_in_entries_are_refused() {
    let desk = Desk::set().await;
    let before = desk.get("/v1/registry").await;
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
            let (status, answer) = desk.call(Method::PUT, path, body).await;
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
        assert_eq!(desk.apply(file).await.0, 409);
    }
    assert_eq!(desk.get("/v1/registry").await, before);
    let mut file = file();
    file["services"][1]["description"] = "first line\n\tsecond line".into();
    assert_eq!(desk.apply(file).await.0, 200);
    assert_eq!(desk.send("notify").await, 202);
}

/// REG-1, REG-18
#[tokio::test]
async fn a_change_is_in_effect_for_the_very_next_message() {
    let desk = Desk::set().await;
    for _ in 0..3 {
        assert_eq!(desk.send("notify").await, 202);
        assert_eq!(desk.call(Method::DELETE, &granted("notify"), Value::Null).await.0, 200);
        assert_eq!(desk.send("notify").await, 403);
        assert_eq!(desk.call(Method::PUT, "/v1/grants", grant("notify")).await.0, 201);
    }
    assert_eq!(desk.send("lost").await, 404);
    let route = json!({ "queue": "lost-inbox", "dead_letter_queue": "bot-dead" });
    assert_eq!(desk.call(Method::PUT, "/v1/routes/acme/bot/lost", route).await.0, 201);
    assert_eq!(desk.send("lost").await, 202);
    let billing = desk.node.client(&desk.cast.billing);
    let message = || Draft::new("notify", &new_id()).sign(&desk.cast.billing);
    assert_eq!(post(&billing, message()).await.0, 202);
    assert_eq!(desk.call(Method::PUT, "/v1/tenants/acme", json!({ "suspended": true })).await.0, 200);
    let (status, problem) = post(&billing, message()).await;
    assert_eq!((status, problem["reason"].as_str()), (403, Some("suspended")));
}

/// REG-7
#[tokio::test]
async fn a_suspended_tenant_gets_no_token_and_sees_nothing() {
    let node = Node::start();
    let cast = node.cast().await;
    let bot = node.client(&cast.bot);
    let reads = ["/v1/telemetry", "/v1/registry", "/v1/dead-letters", "/v1/queues/pay-inbox"];
    for path in reads {
        bot.call(Method::GET, path, None).await.expect(path);
    }
    let mut tenant = json!({ "tenants": [{ "name": "acme", "suspended": true }] });
    node.apply(&tenant).await;
    let refused = async |path: &str| {
        let (status, problem) =
            verdict(bot.authorized().await.unwrap().send(Method::GET, path, None, "").await);
        (status, problem["reason"].as_str().unwrap_or_default().to_owned())
    };
    for path in reads {
        assert_eq!(refused(path).await, (403, "suspended".into()), "{path}");
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
async fn a_route_holds_what_it_was_given_and_defaults_for_the_rest() {
    let desk = Desk::set().await;
    let path = "/v1/routes/acme/bot/refund";
    let given = json!({ "queue": "refunds", "dead_letter_queue": "bot-dead" });
    assert_eq!(desk.call(Method::PUT, path, given).await.0, 201);
    let mut route = json!({
        "kind": "route", "target": "acme/bot", "name": "refund", "queue": "refunds", "dead_letter_queue": "bot-dead",
        "claim": { "policy": "none" }, "dispatch": "adaptive", "profile": "moderate", "receives_max": 5,
        "expected_drain_seconds": 300,
    });
    assert_eq!(desk.get(path).await, route);
    let given = json!({
        "queue": "refunds", "dead_letter_queue": "bot-dead", "claim": { "policy": "strict", "keep_seconds": 600 },
        "dispatch": "cold-only", "profile": "critical", "receives_max": 9, "expected_drain_seconds": 60,
    });
    assert_eq!(desk.call(Method::PUT, path, given.clone()).await.0, 200);
    for (name, value) in given.as_object().into_iter().flatten() {
        route[name] = value.clone();
    }
    assert_eq!(desk.get(path).await, route);
    let mut typo = given;
    typo["recieves_max"] = 3.into();
    let (status, problem) = desk.call(Method::PUT, path, typo).await;
    assert_eq!((status, &problem["reason"]), (400, &json!("invalid_request")));
    assert!(problem["detail"].as_str().is_some_and(|it| it.contains("recieves_max")), "{problem}");
    let without = json!({ "queue": "refunds" });
    assert_eq!(desk.call(Method::PUT, path, without).await.0, 400, "a dead-letter queue is required");
}

/// REG-2, REG-6, CLM-20
#[tokio::test]
async fn a_file_that_does_not_hold_together_is_refused_as_a_whole_with_every_problem_named() {
    let desk = Desk::set().await;
    let before = desk.get("/v1/registry").await;
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
    let (status, problem) = desk.apply(bad).await;
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
    assert_eq!(desk.get("/v1/registry").await, before, "nothing of it was taken");
    let fifo = json!({ "queue": "in.fifo", "dead_letter_queue": "dead" });
    let (status, problem) = desk.call(Method::PUT, "/v1/routes/acme/bot/fifo", fifo).await;
    assert_eq!((status, problem["accepted"].as_bool()), (400, Some(false)), "{problem}");
}

/// REG-4
#[tokio::test]
async fn a_file_that_says_two_things_of_one_name_is_refused() {
    let desk = Desk::set().await;
    for twice in [
        json!({ "services": [{ "name": "acme/twin" }, { "name": "acme/twin" }] }),
        json!({ "tenants": [{ "name": "acme", "contact": "a" }, { "name": "acme", "contact": "b" }] }),
    ] {
        let (status, problem) = desk.apply(twice).await;
        assert_eq!((status, &problem["reason"]), (409, &json!("registry_conflict")));
        assert!(problem["detail"].as_str().is_some_and(|it| it.contains("twice")), "{problem}");
    }
}

/// REG-5
#[tokio::test]
async fn every_change_is_on_the_record_with_who_when_why_before_and_after() {
    let desk = Desk::set().await;
    let start = desk.get("/v1/registry").await["version"].clone();
    let changed = desk
        .call(Method::PUT, "/v1/tenants/acme?why=new%20contact", json!({ "contact": "a@example.com" }))
        .await;
    assert_eq!(changed.0, 200);
    let removed = desk.call(Method::DELETE, &format!("{}&why=tidy", granted("lost")), Value::Null).await;
    assert_eq!(removed, (200, json!({ "removed": ["grant acme/billing>acme/bot:lost"] })));

    let page = desk.get(&format!("/v1/registry/changes?since={start}")).await;
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
        let page = desk.get(&format!("/v1/registry/changes?since={since}&limit=4")).await;
        let items = page["items"].as_array().cloned().unwrap_or_default();
        if items.is_empty() {
            break;
        }
        assert!(items.len() <= 4);
        seen.extend(items.iter().filter_map(|it| it["version"].as_i64()));
        since = page["next"].as_i64().unwrap_or_default();
    }
    assert_eq!(seen, (1..=version + 2).collect::<Vec<_>>(), "every version, once");
}

/// REG-1
#[tokio::test]
async fn what_others_need_is_not_removed_before_them() {
    let desk = Desk::set().await;
    for (path, needed_by) in [
        ("/v1/tenants/acme", "service acme/bot"),
        ("/v1/tenants/acme/services/bot", "route acme/bot:notify"),
        ("/v1/tenants/acme/services/billing", "grant acme/billing>acme/bot:notify"),
    ] {
        let (status, problem) = desk.call(Method::DELETE, path, Value::Null).await;
        assert_eq!((status, &problem["reason"]), (409, &json!("registry_conflict")), "{path}");
        assert!(problem["detail"].as_str().is_some_and(|it| it.contains(needed_by)), "{path}: {problem}");
    }
    for name in ["notify", "pay", "lost"] {
        assert_eq!(desk.call(Method::DELETE, &granted(name), Value::Null).await.0, 200);
    }
    for path in [
        "/v1/routes/acme/bot/notify",
        "/v1/routes/acme/bot/pay",
        "/v1/tenants/acme/services/bot",
        "/v1/tenants/acme/services/billing",
        "/v1/tenants/acme",
    ] {
        assert_eq!(desk.call(Method::DELETE, path, Value::Null).await.0, 200, "{path}");
        assert_eq!(desk.call(Method::DELETE, path, Value::Null).await.0, 404, "{path}");
    }
    assert_eq!(desk.get("/v1/registry").await["items"], json!([]));
}

/// REG-13, REG-7
#[tokio::test]
async fn secrets_are_shown_once_and_are_nowhere_to_be_found_afterwards() {
    let mut desk = Desk::set().await;
    desk.send("notify").await;
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
        texts.push((path.to_owned(), desk.get(path).await.to_string().into_bytes()));
        let own = desk.call_as(&desk.cast.billing, Method::GET, path, Value::Null).await.1;
        texts.push((format!("{path} as a service"), own.to_string().into_bytes()));
    }
    let again =
        desk.call(Method::PUT, "/v1/tenants/acme/services/billing", json!({ "description": "x" })).await.1;
    texts.push(("the service put again".to_owned(), again.to_string().into_bytes()));
    let operator = desk.node.operator_token();
    desk.node.kill();
    let kept = desk.node.engine().kept(desk.node.folder());
    let sealed = kept.iter().any(|(_, text)| text.windows(7).any(|part| part == b"hmac-v1"));
    assert!(sealed, "what is looked at holds the keys");
    texts.extend(kept);

    let mut secrets = vec![operator.as_bytes().to_vec()];
    for it in [&desk.cast.billing, &desk.cast.bot] {
        secrets.push(it.client_secret.clone().into_bytes());
        secrets.push(it.hmac_secret.trim_start_matches("whsec_").as_bytes().to_vec());
        let secret = it.secret().expect("a secret").expose_bytes().to_vec();
        // Bytes of a table are shown in hexadecimal.
        secrets.push(secret.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into_bytes());
        secrets.push(secret);
    }
    texts.push(("what the node logs".to_owned(), desk.node.said().into_bytes()));
    for (name, text) in &texts {
        for secret in &secrets {
            let found = text.windows(secret.len()).any(|part| part == secret);
            assert!(!found, "a secret is in {name}");
        }
    }
}

/// REG-18
#[tokio::test]
async fn changes_at_the_same_time_all_land() {
    let desk = Desk::set().await;
    let start = desk.get("/v1/registry").await["version"].as_i64().unwrap_or_default();
    let names: Vec<_> = (0..12).map(|n| format!("cmd-{n}")).collect();
    let puts = join_all(names.iter().map(|name| desk.call(Method::PUT, "/v1/grants", grant(name)))).await;
    assert!(puts.iter().all(|(status, _)| *status == 201), "{puts:?}");
    let registry = desk.get("/v1/registry").await;
    assert_eq!(registry["version"], start + 12);
    let held: Vec<_> =
        registry["items"].as_array().into_iter().flatten().map(|it| it["name"].clone()).collect();
    assert!(names.iter().all(|name| held.contains(&json!(name))), "{held:?}");
}

/// REG-18, REG-7
#[tokio::test]
async fn of_two_who_register_one_service_at_once_one_gets_its_credentials_and_they_work() {
    let desk = Desk::set().await;
    for round in 0..4 {
        let path = format!("/v1/tenants/acme/services/twin-{round}");
        let puts = join_all((0..4).map(|_| desk.call(Method::PUT, &path, json!({})))).await;
        let made: Vec<_> = puts.iter().filter(|(_, it)| it.get("hmac_secret").is_some()).collect();
        assert_eq!(made.len(), 1, "one made it, the others found it: {puts:?}");
        let twin: Credentials =
            serde_json::from_value(made[0].1.clone()).expect("credentials are as documented");
        let of_twin = json!({ "source": twin.source, "target": "acme/bot", "name": "notify" });
        assert_eq!(desk.call(Method::PUT, "/v1/grants", of_twin).await.0, 201);
        let sent = post(&desk.node.client(&twin), Draft::new("notify", &new_id()).sign(&twin)).await;
        assert_eq!(sent.0, 202, "{}", sent.1);
    }
}

/// REG-1, QUA-1
#[tokio::test]
async fn the_registry_survives_a_restart() {
    let mut desk = Desk::set().await;
    desk.call(Method::DELETE, &granted("lost"), Value::Null).await;
    let (registry, changes) = (desk.get("/v1/registry").await, desk.get("/v1/registry/changes").await);
    desk.node.kill();
    desk.node.restart(&Launch::default());
    assert_eq!(desk.get("/v1/registry").await, registry);
    assert_eq!(desk.get("/v1/registry/changes").await, changes);
    assert_eq!((desk.send("notify").await, desk.send("lost").await), (202, 403));
}

/// REG-8
#[tokio::test]
async fn a_principal_acts_for_its_own_source_only() {
    let desk = Desk::set().await;
    let (billing, bot) = (&desk.cast.billing, &desk.cast.bot);
    let message = Draft::new("notify", &new_id());
    for (caller, signer) in [(bot, billing), (billing, bot)] {
        let (status, problem) = post(&desk.node.client(caller), message.sign(signer)).await;
        assert_eq!(
            (status, &problem["reason"]),
            (401, &json!("hmac_invalid")),
            "{caller:?} with the key of {signer:?}"
        );
    }
    let mut claimed = message.sign(billing);
    let end = claimed.len() - 2;
    claimed.splice(end..end, *br#","source":"acme/bot""#);
    let (status, problem) = post(&desk.node.client(billing), claimed).await;
    assert_eq!((status, &problem["reason"]), (400, &json!("source_present")));
}

/// QUA-5, REG-9
#[tokio::test]
async fn a_service_changes_nothing_and_sees_its_own_tenant_only() {
    let desk = Desk::set().await;
    let other = json!({
        "tenants": [{ "name": "zeta" }], "services": [{ "name": "zeta/bot" }],
        "routes": [{ "target": "zeta/bot", "name": "ping", "queue": "in", "dead_letter_queue": "dead" }],
        "grants": [{ "source": "acme/billing", "target": "zeta/bot", "name": "ping" }],
    });
    desk.node.apply(&other).await;
    let before = desk.get("/v1/registry").await;
    let billing = &desk.cast.billing;
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
        let (status, problem) = desk.call_as(billing, method.clone(), path, body).await;
        assert_eq!((status, &problem["reason"]), (403, &json!("forbidden")), "{method} {path}");
    }
    assert_eq!(desk.get("/v1/registry").await, before);

    let see = async |path: &str| desk.call_as(billing, Method::GET, path, Value::Null).await;
    for (theirs, random) in [
        ("/v1/tenants/zeta", "/v1/tenants/nobody"),
        ("/v1/tenants/zeta/services/bot", "/v1/tenants/nobody/services/bot"),
        ("/v1/routes/zeta/bot/ping", "/v1/routes/nobody/bot/ping"),
    ] {
        assert_eq!(see(theirs).await, see(random).await);
        assert_eq!(see(theirs).await.0, 404);
    }
    for list in ["/v1/registry", "/v1/tenants", "/v1/grants"] {
        assert!(!see(list).await.1.to_string().contains("zeta"), "{list}");
    }
}

/// REG-7
#[tokio::test]
async fn a_client_gets_a_token_for_ten_minutes_by_form_or_by_basic_authentication() {
    let desk = Desk::set().await;
    let billing = &desk.cast.billing;
    let url = format!("{}/v1/token", desk.node.url());
    let grant_type = ("grant_type", "client_credentials");
    let form = [grant_type, ("client_id", &billing.client_id), ("client_secret", &billing.client_secret)];
    let by_form = http(&desk.node).post(&url).form(&form);
    let by_basic = http(&desk.node).post(&url).basic_auth(&billing.client_id, Some(&billing.client_secret));
    for request in [by_form, by_basic.form(&[grant_type])] {
        let response = request.send().await.expect("the node answers");
        assert_eq!(
            (response.status().as_u16(), response.headers()["cache-control"].to_str().ok()),
            (200, Some("no-store"))
        );
        let answer: Value = serde_json::from_str(&response.text().await.expect("text")).expect("JSON");
        assert_eq!((&answer["token_type"], &answer["expires_in"]), (&json!("Bearer"), &json!(600)));
        let claims = answer["access_token"].as_str().and_then(|it| it.split('.').nth(1)).unwrap_or_default();
        let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).expect("base64");
        let claims: Value = serde_json::from_slice(&claims).expect("JSON");
        let lifetime =
            claims["exp"].as_i64().unwrap_or_default() - claims["iat"].as_i64().unwrap_or_default();
        assert_eq!((lifetime, &claims["service"]), (600, &json!("acme/billing")));
    }
}

/// REG-7, QUA-5
#[tokio::test]
async fn a_wrong_client_secret_gets_no_token_and_an_unknown_client_the_same_answer() {
    let desk = Desk::set().await;
    let billing = &desk.cast.billing;
    let ask = async |grant_type: &str, id: &str, secret: &str| {
        let form = [("grant_type", grant_type), ("client_id", id), ("client_secret", secret)];
        let answer =
            Answered::to(http(&desk.node).post(format!("{}/v1/token", desk.node.url())).form(&form)).await;
        (answer.status, answer.document())
    };
    let wrong = ask("client_credentials", &billing.client_id, &desk.cast.bot.client_secret).await;
    assert_eq!((wrong.0, &wrong.1["error"]), (401, &json!("invalid_client")));
    assert_eq!(ask("client_credentials", "snavcl_nobody", &billing.client_secret).await, wrong);
    assert_eq!(ask("client_credentials", &billing.client_id, "").await, wrong);
    let password = ask("password", &billing.client_id, &billing.client_secret).await;
    assert_eq!((password.0, &password.1["error"]), (400, &json!("unsupported_grant_type")));
    let in_url = format!(
        "{}/v1/token?grant_type=client_credentials&client_id={}&client_secret={}",
        desk.node.url(),
        billing.client_id,
        billing.client_secret
    );
    let in_url = Answered::to(http(&desk.node).post(in_url)).await.status;
    assert!((400..500).contains(&in_url), "no credential travels in a URL: {in_url}");
    assert!(!desk.node.token(billing).await.is_empty());
}

/// REG-4
#[tokio::test]
async fn a_suspension_is_lifted_only_by_saying_so() {
    let desk = Desk::set().await;
    let suspended = async || desk.get("/v1/tenants/acme").await["suspended"].clone();
    assert_eq!(desk.call(Method::PUT, "/v1/tenants/acme", json!({ "suspended": true })).await.0, 200);
    let (_, again) = desk.apply(file()).await;
    assert_eq!((&again["changes"], suspended().await), (&json!([]), json!(true)));
    let (_, put) = desk.call(Method::PUT, "/v1/tenants/acme", json!({ "contact": "ops" })).await;
    assert_eq!((&put["suspended"], suspended().await), (&json!(true), json!(true)));
    let (_, lifted) = desk.apply(json!({ "tenants": [{ "name": "acme", "suspended": false }] })).await;
    let members = json!({
        "contact": { "before": "ops", "after": null }, "suspended": { "before": true, "after": false },
    });
    assert_eq!((&lifted["changes"][0]["members"], suspended().await), (&members, json!(false)));
}

/// REG-24
#[tokio::test]
async fn a_route_stays_while_its_queue_holds_deliveries_that_no_other_route_would_name() {
    let desk = Desk::set().await;
    let (path, other) = ("/v1/routes/acme/bot/notify", "/v1/routes/acme/bot/lost");
    let route = |queue: &str| json!({ "queue": queue, "dead_letter_queue": "bot-dead" });
    assert_eq!(desk.send("notify").await, 202);
    let (status, problem) = desk.call(Method::DELETE, path, Value::Null).await;
    assert_eq!((status, &problem["reason"]), (409, &json!("registry_conflict")));
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("notify-inbox") && detail.contains("1 deliveries"), "{detail}");
    assert_eq!(
        desk.call(Method::PUT, path, route("elsewhere")).await.0,
        409,
        "a change would strand them too"
    );
    let mut plan = json!({ "dry_run": true, "routes": [route("elsewhere")] });
    plan["routes"][0]["target"] = "acme/bot".into();
    plan["routes"][0]["name"] = "notify".into();
    assert_eq!(desk.apply(plan).await.0, 409);
    // Another route of the queue keeps them within reach.
    assert_eq!(desk.call(Method::PUT, other, route("notify-inbox")).await.0, 201);
    assert_eq!(desk.call(Method::DELETE, path, Value::Null).await.0, 200);
    assert_eq!(desk.call(Method::DELETE, other, Value::Null).await.0, 409);
    let purge = "/v1/queues/notify-inbox/purge?tenant=acme";
    assert_eq!(desk.call(Method::POST, purge, json!({})).await.1["purged"], 1);
    assert_eq!(desk.call(Method::DELETE, other, Value::Null).await.0, 200);
}

/// REG-24
#[tokio::test]
async fn a_former_tenants_name_is_free_only_while_the_store_holds_nothing_under_it() {
    let desk = Desk::set().await;
    assert_eq!(desk.call(Method::PUT, "/v1/tenants/brief", json!({})).await.0, 201);
    assert_eq!(desk.call(Method::DELETE, "/v1/tenants/brief", Value::Null).await.0, 200);
    assert_eq!(
        desk.call(Method::PUT, "/v1/tenants/brief", json!({})).await.0,
        201,
        "nothing happened under it"
    );

    assert_eq!(desk.send("notify").await, 202);
    assert_eq!(desk.call(Method::DELETE, "/v1/tenants/acme", Value::Null).await.0, 409, "it has services");
    assert_eq!(desk.call(Method::POST, "/v1/queues/notify-inbox/purge?tenant=acme", json!({})).await.0, 200);
    for name in ["notify", "pay", "lost"] {
        assert_eq!(desk.call(Method::DELETE, &granted(name), Value::Null).await.0, 200);
    }
    let routes = ["/v1/routes/acme/bot/notify", "/v1/routes/acme/bot/pay"];
    let services = ["/v1/tenants/acme/services/billing", "/v1/tenants/acme/services/bot"];
    for path in routes.iter().chain(&services).chain(&["/v1/tenants/acme"]) {
        assert_eq!(desk.call(Method::DELETE, path, Value::Null).await.0, 200, "{path}");
    }
    let (status, problem) = desk.call(Method::PUT, "/v1/tenants/acme", json!({})).await;
    assert_eq!((status, &problem["reason"]), (409, &json!("registry_conflict")));
    assert!(problem["detail"].as_str().is_some_and(|it| it.contains("choose another name")), "{problem}");
}

/// REG-4: a file in YAML, applied as a whole: what it does not name of its tenants goes, and others' stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_applied_as_a_whole_removes_what_it_does_not_name() {
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
    let steps = |plan: &Value, step: &str| -> Vec<String> {
        let changes = plan["changes"].as_array().unwrap().iter().filter(|it| it["step"] == step);
        changes
            .map(|it| format!("{} {}", it["kind"].as_str().unwrap(), it["name"].as_str().unwrap()))
            .collect()
    };
    assert_eq!(steps(&plan, "add"), ["route acme/bot:greet"], "{plan}");
    assert_eq!(steps(&plan, "change"), ["service acme/bot"], "{plan}");
    let removed = steps(&plan, "remove");
    assert!(removed.contains(&"service acme/billing".to_owned()), "{plan}");
    assert!(removed.contains(&"grant acme/billing>acme/bot:pay".to_owned()), "{plan}");
    assert!(removed.iter().all(|it| !it.contains("zeta")), "{plan}");
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
