//! Grant requests across tenants, and their approval and refusal (REG-8).

use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::bounds;
use snavio_model::id::Serial;
use snavio_sdk::{Api, Credentials};

use crate::node::{Draft, Node, new_id, post, post_batch, verdict};
use crate::people::issue;
use crate::shell::Shell;
use crate::wire::{Answered, metric, post_json};

/// `zeta/bank` has the route `pay`, and `acme/shop` has no grant for it yet.
struct Fixture {
    node: Node,
    shop: Credentials,
    bank: Credentials,
    /// The API as the admin of tenant `acme`.
    acme: Api,
    /// The API as the admin of tenant `zeta`.
    zeta: Api,
    /// The ids of the two admins' tokens.
    token_ids: [String; 2],
}

/// Source, target and name of a grant to send `pay` to `zeta/bank`.
fn grant_of(source: &str) -> Value {
    json!({ "source": source, "target": "zeta/bank", "name": "pay" })
}

impl Fixture {
    async fn start() -> Self {
        let node = Node::start();
        let registry = json!({
            "tenants": [{ "name": "acme" }, { "name": "zeta" }],
            "services": [{ "name": "acme/shop" }, { "name": "zeta/bank" }],
            "routes": [{ "target": "zeta/bank", "name": "pay", "queue": "pay", "dead_letter_queue": "dead" }],
        });
        let [shop, bank] = <[Credentials; 2]>::try_from(node.apply(&registry).await).unwrap();
        let acme = issue(&node, "acme", "tenant-admin", Some("acme")).await;
        let zeta = issue(&node, "zeta", "tenant-admin", Some("zeta")).await;
        let token_ids = [acme.id, zeta.id];
        let [acme, zeta] = [acme.token, zeta.token].map(|token| node.api().with_token(&token));
        Self { node, shop, bank, acme, zeta, token_ids }
    }

    async fn service(&self, caller: &Credentials) -> Api {
        self.node.client(caller).authorized().await.unwrap()
    }

    /// Requests a grant for the name `c<n>` of a target that does not exist.
    async fn request_numbered(&self, n: usize) -> (u16, Value) {
        let source = ["acme/shop", "acme/stall"][n % 2];
        let body = json!({ "source": source, "target": "nobody/there", "name": format!("c{n}") });
        call(&self.acme, "/v1/grant-requests", body).await
    }

    /// Sends `pay` as `acme/shop`, and returns the status.
    async fn pay(&self) -> u16 {
        let draft = Draft { target: "zeta/bank".into(), ..Draft::new("pay", &new_id()) };
        post(&self.node.client(&self.shop), draft.sign(&self.shop)).await.0
    }
}

async fn call(caller: &Api, path: &str, body: Value) -> (u16, Value) {
    verdict(caller.send(Method::POST, path, Some(body.to_string().into_bytes()), "application/json").await)
}

/// The pending requests that the caller sees.
async fn pending(caller: &Api) -> Vec<Value> {
    let (_, page) = verdict(caller.send(Method::GET, "/v1/grant-requests", None, "").await);
    page["items"].as_array().unwrap().clone()
}

/// REG-8
#[tokio::test]
async fn approved_grant_request_lets_the_first_message_through() {
    let fixture = Fixture::start().await;
    let shop = fixture.service(&fixture.shop).await;
    assert_eq!(fixture.pay().await, 403);
    let mut request = grant_of("acme/shop");
    request["purpose"] = "orders".into();
    assert_eq!(call(&shop, "/v1/grant-requests", request.clone()).await.0, 201);
    assert_eq!(call(&shop, "/v1/grant-requests", request).await.0, 200, "requested already");
    for caller in [&shop, &fixture.acme, &fixture.zeta] {
        let [request] = <[Value; 1]>::try_from(pending(caller).await).unwrap();
        assert_eq!((&request["source"], &request["purpose"]), (&json!("acme/shop"), &json!("orders")));
    }
    // The requester cannot approve its own request.
    for caller in [&shop, &fixture.acme] {
        assert_eq!(call(caller, "/v1/grant-requests/approve", grant_of("acme/shop")).await.0, 404);
    }
    assert_eq!(fixture.pay().await, 403);

    let version = fixture.node.get("/v1/registry").await["version"].as_i64().unwrap();
    let mut approve = grant_of("acme/shop");
    approve["expires_at"] = "2020-01-01T00:00:00Z".into();
    assert_eq!(call(&fixture.zeta, "/v1/grant-requests/approve", approve.clone()).await.0, 400);
    approve["expires_at"] = "2999-01-01T00:00:00Z".into();
    let (status, grant) = call(&fixture.zeta, "/v1/grant-requests/approve?why=fine", approve).await;
    assert_eq!((status, &grant["expires_at"]), (200, &json!("2999-01-01T00:00:00.000Z")));
    assert_eq!(fixture.pay().await, 202);
    assert!(pending(&fixture.zeta).await.is_empty());
    let log = fixture.node.get(&format!("/v1/registry/changes?since={version}")).await;
    let steps = log["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| (&change["kind"], &change["why"], &change["at"]));
    let steps: Vec<_> = steps.collect();
    assert_eq!(steps.len(), 2, "one change of the registry: {log}");
    assert!(steps.iter().all(|step| step.1 == "fine" && step.2 == steps[0].2), "{log}");
    assert_eq!(call(&shop, "/v1/grant-requests", grant_of("acme/shop")).await.0, 409, "granted already");
}

/// REG-8
#[tokio::test]
async fn request_is_declined_by_owner_or_withdrawn_by_requester() {
    let fixture = Fixture::start().await;
    let bank = fixture.service(&fixture.bank).await;
    for (requester, decliner) in [(&fixture.acme, &fixture.zeta), (&fixture.acme, &fixture.acme)] {
        assert_eq!(call(requester, "/v1/grant-requests", grant_of("acme/shop")).await.0, 201);
        assert_eq!(call(&bank, "/v1/grant-requests/decline", grant_of("acme/shop")).await.0, 403);
        assert_eq!(call(decliner, "/v1/grant-requests/decline?why=no", grant_of("acme/shop")).await.0, 200);
        assert_eq!(call(decliner, "/v1/grant-requests/decline", grant_of("acme/shop")).await.0, 404);
        assert!(pending(&fixture.zeta).await.is_empty());
    }
    assert_eq!(fixture.pay().await, 403);
    assert_eq!(call(&fixture.zeta, "/v1/grant-requests/approve", grant_of("acme/shop")).await.0, 404);
}

/// REG-8: the gateway refuses the attempt in the same words whether or not the source exists, counts it and
/// audits it.
#[tokio::test]
async fn request_for_a_foreign_source_is_refused() {
    let mut fixture = Fixture::start().await;
    let bank = fixture.service(&fixture.bank).await;
    let attempts =
        [(&bank, "acme/shop"), (&bank, "no/body"), (&fixture.zeta, "acme/shop"), (&fixture.zeta, "no/body")];
    let mut answers = Vec::new();
    for (caller, source) in attempts {
        let (status, mut problem) = call(caller, "/v1/grant-requests", grant_of(source)).await;
        assert_eq!((status, &problem["reason"]), (403, &json!("forbidden")), "{source}");
        for own in ["correlation_id", "traceparent"] {
            problem[own].take();
        }
        answers.push(problem);
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert!(pending(&fixture.node.operator()).await.is_empty());
    assert_eq!(metric(&fixture.node, "snavio_foreign_source_total").await, Some(4.0));
    assert!(fixture.node.said().contains("the source is not the caller's own"));
    fixture.node.stop();
    let store = fixture.node.engine().open(fixture.node.folder()).await;
    let record = store.audit(Serial(0), 10).await.unwrap();
    let attempts_on_record: Vec<_> =
        record.iter().map(|action| (action.action.as_str(), action.object.as_str())).collect();
    let (existing, random) = ("acme/shop>zeta/bank:pay", "no/body>zeta/bank:pay");
    let expected = [existing, random, existing, random].map(|object| ("grant_request.ask", object));
    assert_eq!(attempts_on_record, expected);
    assert!(
        record[0].act.who.starts_with("zeta/bank (") && record[2].act.who.starts_with("zeta (tenant-admin ")
    );
}

/// REG-8: a tenant has a limited number of pending requests, so that it neither hides the requests of others
/// nor fills the registry.
#[tokio::test]
async fn pending_requests_are_bounded() {
    let fixture = Fixture::start().await;
    fixture.node.apply(&json!({ "services": [{ "name": "acme/stall" }] })).await;
    for n in 0..snavio_model::bounds::GRANT_REQUESTS_MAX {
        assert_eq!(fixture.request_numbered(n).await.0, 201);
    }
    let (status, problem) = fixture.request_numbered(1000).await;
    let detail = problem["detail"].as_str().unwrap();
    assert!(status == 409 && detail.contains("500 requests of tenant acme wait already"), "{problem}");
    assert_eq!(fixture.request_numbered(1).await.0, 200);
    let bank = fixture.service(&fixture.bank).await;
    let other = json!({ "source": "zeta/bank", "target": "acme/shop", "name": "refund" });
    assert_eq!(call(&bank, "/v1/grant-requests", other).await.0, 201, "other tenants can still request");
}

/// REG-8, QUA-5: the gateway answers and keeps a request in the same way, whether or not the other tenant has
/// the target.
#[tokio::test]
async fn request_reveals_nothing_of_another_tenant() {
    let fixture = Fixture::start().await;
    let answers_for = async |target: &str| {
        let body = json!({ "source": "acme/shop", "target": target, "name": "pay", "purpose": "orders" });
        let mut answers = Vec::new();
        for path in
            ["", "", "/approve", "/decline", "/decline"].map(|path| format!("/v1/grant-requests{path}"))
        {
            let mut body = body.clone();
            if path.len() > "/v1/grant-requests".len() {
                body.as_object_mut().unwrap().remove("purpose");
            }
            let (status, mut answer) = call(&fixture.acme, &path, body).await;
            for own in ["asked_at", "correlation_id", "traceparent"] {
                answer[own].take();
            }
            let listed = pending(&fixture.acme).await.len();
            answers.push((status, answer.to_string().replace(target, "a target"), listed));
        }
        answers
    };
    let existing = answers_for("zeta/bank").await;
    let statuses: Vec<_> = existing.iter().map(|answer| (answer.0, answer.2)).collect();
    assert_eq!(statuses, [(201, 1), (200, 1), (404, 1), (200, 0), (404, 0)]);
    assert_eq!(answers_for("zeta/random").await, existing);
    assert_eq!(answers_for("nobody/random").await, existing);

    let (status, problem) = call(
        &fixture.acme,
        "/v1/grant-requests",
        json!({ "source": "acme/shop", "target": "acme/random", "name": "pay" }),
    )
    .await;
    assert!(status == 409 && problem.to_string().contains("acme/random is not registered"), "{problem}");
    // The owner of the name sees the request, and cannot approve it while the target is not registered.
    let random = json!({ "source": "acme/shop", "target": "zeta/random", "name": "pay" });
    assert_eq!(call(&fixture.acme, "/v1/grant-requests", random.clone()).await.0, 201);
    assert_eq!(pending(&fixture.zeta).await.len(), 1);
    let (status, problem) = call(&fixture.zeta, "/v1/grant-requests/approve", random.clone()).await;
    assert!(status == 409 && problem.to_string().contains("zeta/random is not registered"), "{problem}");
    fixture.node.apply(&json!({ "services": [{ "name": "zeta/random" }] })).await;
    assert_eq!(call(&fixture.zeta, "/v1/grant-requests/approve", random).await.0, 200);
}

async fn get_text(caller: &Api, path: &str) -> String {
    verdict(caller.send(Method::GET, path, None, "").await).1.to_string()
}

/// REG-8: the target's owner sees which tenant made a request. Only that tenant itself, operators and
/// platform-wide auditors see which person or service made it.
#[tokio::test]
async fn foreign_tenant_does_not_see_the_requester() {
    let fixture = Fixture::start().await;
    let auditor = issue(&fixture.node, "otto", "auditor", None).await.token;
    let auditor = fixture.node.api().with_token(&auditor);
    let [acme, zeta] = &fixture.token_ids;

    let log = "/v1/registry/changes?limit=1000";
    let ask = "/v1/grant-requests?why=between-us";
    assert_eq!(call(&fixture.acme, ask, grant_of("acme/shop")).await.0, 201);
    assert_eq!(pending(&fixture.zeta).await[0]["asked_by"], "acme");
    for path in ["/v1/grant-requests", "/v1/registry", log] {
        let text = get_text(&fixture.zeta, path).await;
        assert!(text.contains("acme/shop") && !text.contains(acme) && !text.contains("between-us"), "{text}");
    }
    for caller in [&fixture.acme, &fixture.node.operator(), &auditor] {
        assert!(get_text(caller, "/v1/grant-requests").await.contains(acme));
    }
    assert!(get_text(&fixture.node.operator(), log).await.contains("between-us"));

    let decline = "/v1/grant-requests/decline?why=between-us";
    assert_eq!(call(&fixture.acme, decline, grant_of("acme/shop")).await.0, 200);
    let text = get_text(&fixture.zeta, log).await;
    assert!(!text.contains(acme) && !text.contains("between-us"), "{text}");
    // The target's owner does not see a service's client id either. It sees its own people's actions in full.
    let shop = fixture.service(&fixture.shop).await;
    assert_eq!(call(&shop, ask, grant_of("acme/shop")).await.0, 201);
    assert_eq!(pending(&fixture.zeta).await[0]["asked_by"], "acme");
    assert_eq!(call(&fixture.zeta, "/v1/grant-requests/decline?why=no", grant_of("acme/shop")).await.0, 200);
    let text = get_text(&fixture.zeta, log).await;
    assert!(
        text.contains(zeta) && !text.contains(&fixture.shop.client_id) && !text.contains("between-us"),
        "{text}"
    );
}

/// REG-24: the removal of a service removes its requests and the requests for grants of it.
#[tokio::test]
async fn requests_are_removed_with_their_services() {
    let fixture = Fixture::start().await;
    assert_eq!(call(&fixture.acme, "/v1/grant-requests", grant_of("acme/shop")).await.0, 201);
    let removed = fixture.acme.call(Method::DELETE, "/v1/tenants/acme/services/shop", None).await.unwrap();
    assert!(removed.to_string().contains("grant_request acme/shop>zeta/bank:pay"), "{removed}");
    assert!(pending(&fixture.zeta).await.is_empty());
    // A later tenant of the same name must not see the requests of the removed one.
    fixture
        .node
        .apply(&json!({ "tenants": [{ "name": "new" }], "services": [{ "name": "acme/shop" }] }))
        .await;
    let ask = json!({ "source": "acme/shop", "target": "new/none", "name": "pay" });
    assert_eq!(call(&fixture.acme, "/v1/grant-requests", ask).await.0, 201);
    let removed = fixture.node.operator().call(Method::DELETE, "/v1/tenants/new", None).await.unwrap();
    assert!(removed.to_string().contains("grant_request acme/shop>new/none:pay"), "{removed}");
}

/// PIP-2, REG-2
#[tokio::test]
async fn denied_sender_gets_its_own_nearest_grants() {
    let node = Node::start();
    let cast = node.cast().await;
    let more = json!({
        "services": [{ "name": "acme/shop" }],
        "event_types": [{ "owner": "acme/billing", "name": "invoice.sent" }],
        "grants": [{ "source": "acme/shop", "target": "acme/bot", "name": "notify-all" }],
    });
    let shop = node.apply(&more).await.remove(0);
    let send = async |caller: &Credentials, target: &str, name: &str| {
        let draft = Draft { target: target.into(), ..Draft::new(name, &new_id()) };
        let (status, problem) = post(&node.client(caller), draft.sign(caller)).await;
        assert_eq!((status, &problem["reason"]), (403, &json!("acl-deny")), "{problem}");
        problem["detail"].as_str().unwrap().to_owned()
    };
    for (target, name, expected) in [
        (
            "bot",
            "notify-all",
            "acme/billing has no grant to send notify-all to acme/bot; the nearest of its grants: notify to acme/bot, ",
        ),
        (
            "acme/none",
            "pay",
            "acme/billing has no grant to send pay to acme/none; the nearest of its grants: pay to acme/bot, ",
        ),
    ] {
        let detail = send(&cast.billing, target, name).await;
        assert!(detail.starts_with(expected), "{detail}");
        assert!(
            !detail.contains("shop") && !detail.contains("notify-all to acme/bot,"),
            "it reveals another service's grant: {detail}"
        );
    }
    let detail = send(&shop, "bot", "notify").await;
    let expected = "acme/shop has no grant to send notify to acme/bot; the nearest of its grants: notify-all to acme/bot";
    assert_eq!(detail, expected);
    let detail = send(&cast.bot, "billing", "pay").await;
    assert_eq!(detail, "acme/bot has no grant to send pay to acme/billing; it has no grants");

    let event = json!({ "eventId": "e-1", "eventType": "invoice.send", "data": {} }).to_string();
    let token = node.token(&cast.billing).await;
    let problem = Answered::to(post_json(&node, "/v1/events", &token, event)).await.document();
    let expected = "acme/billing has not registered the event type invoice.send; the nearest that it has registered: \
                    invoice.sent";
    assert_eq!((&problem["reason"], &problem["detail"]), (&json!("acl-deny"), &json!(expected)));
    let tried = json!({ "source": "acme/shop", "target": "acme/bot", "name": "notify" });
    let (_, tried) = call(&node.operator(), "/v1/dry-run", tried).await;
    let step = tried["steps"].as_array().unwrap().last().unwrap();
    assert!(step["detail"].as_str().unwrap().contains("notify-all to acme/bot"), "{tried}");

    // A grant for all names (`*`) does not cover a critical route.
    let critical = json!({
        "target": "acme/bot", "name": "erase", "queue": "q", "dead_letter_queue": "d", "profile": "critical",
    });
    let all = json!({ "source": "acme/shop", "target": "acme/bot", "name": "*" });
    node.apply(&json!({ "routes": [critical], "grants": [all] })).await;
    let detail = send(&shop, "bot", "erase").await;
    let expected = "acme/shop has no grant to send erase to acme/bot; the nearest of its grants: * to acme/bot, notify-all \
                    to acme/bot; * does not cover critical routes: ask for a grant by name";
    assert_eq!(detail, expected);
    // The refusals of one request name the nearest grants only a limited number of times.
    let denied = bounds::NEAREST_REFUSALS_MAX + 2;
    let denied: Vec<_> = (0..denied).map(|_| Draft::new("erase", &new_id()).sign(&shop)).collect();
    let detail = post_batch(&node.client(&shop), &denied).await.unwrap();
    let named = detail.iter().filter(|detail| detail["detail"].as_str().unwrap().contains("nearest")).count();
    assert_eq!(named, bounds::NEAREST_REFUSALS_MAX, "{detail:?}");
}

/// A grant for `acme/shop` to send this name to `zeta/bank`.
fn shop_grant(name: &str) -> Value {
    json!({ "source": "acme/shop", "target": "zeta/bank", "name": name })
}

async fn put_grant(caller: &Api, name: &str) -> (u16, Value) {
    let body = Some(shop_grant(name).to_string().into_bytes());
    verdict(caller.send(Method::PUT, "/v1/grants", body, "application/json").await)
}

/// REG-2, REG-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grant_for_a_missing_route_has_a_warning() {
    let fixture = Fixture::start().await;
    let warning = "grant acme/shop > zeta/bank: payy: zeta/bank has no route and no event type payy, so messages under this \
                   grant are refused (route-missing) until one is registered; did you mean pay?";
    let (status, granted) = put_grant(&fixture.zeta, "payy").await;
    assert_eq!((status, &granted["warnings"]), (201, &json!([warning])), "{granted}");
    assert_eq!((&granted["source"], &granted["name"]), (&json!("acme/shop"), &json!("payy")), "{granted}");
    for name in ["pay", "*"] {
        let (status, granted) = put_grant(&fixture.zeta, name).await;
        assert_eq!((status, granted.get("warnings")), (201, None), "{granted}");
    }
    let shop = fixture.service(&fixture.shop).await;
    let asked = json!({ "source": "acme/shop", "target": "zeta/bank", "name": "pax" });
    assert_eq!(call(&shop, "/v1/grant-requests", asked.clone()).await.0, 201);
    let (status, approved) = call(&fixture.zeta, "/v1/grant-requests/approve", asked).await;
    assert_eq!((status, approved["warnings"].as_array().map(Vec::len)), (200, Some(1)), "{approved}");

    for dry_run in [true, false] {
        let file = json!({ "grants": [shop_grant("payy"), shop_grant("pay")], "dry_run": dry_run });
        let (status, applied) = call(&fixture.node.operator(), "/v1/registry/apply", file).await;
        assert_eq!((status, &applied["warnings"]), (200, &json!([warning])), "{applied}");
        let route =
            json!({ "target": "zeta/bank", "name": "payy", "queue": "pay", "dead_letter_queue": "dead" });
        let file = json!({ "grants": [shop_grant("payy")], "routes": [route], "dry_run": true });
        let (_, applied) = call(&fixture.node.operator(), "/v1/registry/apply", file).await;
        assert_eq!(applied.get("warnings"), None, "the file has the route: {applied}");
    }

    let shell = Shell::at(&fixture.node);
    let file = shell.write("grants.json", &json!({ "grants": [shop_grant("payy")] }).to_string());
    let line = format!("warning: {warning}");
    for words in [
        &["apply", "-f", &file][..],
        &["apply", "-f", &file, "--dry-run"],
        &["grants", "give", "acme/shop", "zeta/bank", "payy"],
    ] {
        let ended = shell.run_words(words);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.out.lines().filter(|printed| *printed == line).count(), 1, "{ended:?}");
    }
}
