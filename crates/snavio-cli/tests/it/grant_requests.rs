//! Asking for grants, and answering (REG-8): across tenants, from the outside.

use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::bounds;
use snavio_model::id::Serial;
use snavio_sdk::{Api, Credentials};

use crate::node::{Draft, Node, new_id, post, post_batch, verdict};
use crate::people::issue;
use crate::shell::Shell;
use crate::wire::{Answered, metric, post_json};

/// `zeta/bank` takes `pay`; `acme/shop` would like to send it.
struct Desk {
    node: Node,
    shop: Credentials,
    bank: Credentials,
    /// The admins of both tenants, and the ids of their tokens.
    acme: Api,
    zeta: Api,
    ids: [String; 2],
}

fn triple(source: &str) -> Value {
    json!({ "source": source, "target": "zeta/bank", "name": "pay" })
}

impl Desk {
    async fn set() -> Self {
        let node = Node::start();
        let registry = json!({
            "tenants": [{ "name": "acme" }, { "name": "zeta" }],
            "services": [{ "name": "acme/shop" }, { "name": "zeta/bank" }],
            "routes": [{ "target": "zeta/bank", "name": "pay", "queue": "pay", "dead_letter_queue": "dead" }],
        });
        let [shop, bank] = <[Credentials; 2]>::try_from(node.apply(&registry).await).unwrap();
        let admin = async |tenant| issue(&node, tenant, "tenant-admin", Some(tenant)).await;
        let (acme, zeta) = (admin("acme").await, admin("zeta").await);
        let ids = [acme.id, zeta.id];
        let [acme, zeta] = [acme.token, zeta.token].map(|token| node.api().with_token(&token));
        Self { node, shop, bank, acme, zeta, ids }
    }

    async fn service(&self, who: &Credentials) -> Api {
        self.node.client(who).authorized().await.unwrap()
    }

    async fn pay(&self) -> u16 {
        let draft = Draft { target: "zeta/bank".into(), ..Draft::new("pay", &new_id()) };
        post(&self.node.client(&self.shop), draft.sign(&self.shop)).await.0
    }
}

async fn call(who: &Api, path: &str, body: Value) -> (u16, Value) {
    verdict(who.send(Method::POST, path, Some(body.to_string().into_bytes()), "application/json").await)
}

async fn waiting(who: &Api) -> Vec<Value> {
    let (_, page) = verdict(who.send(Method::GET, "/v1/grant-requests", None, "").await);
    page["items"].as_array().unwrap().clone()
}

/// REG-8
#[tokio::test]
async fn a_producer_asks_the_targets_owner_says_yes_and_the_first_message_goes_through() {
    let desk = Desk::set().await;
    let shop = desk.service(&desk.shop).await;
    assert_eq!(desk.pay().await, 403);
    let mut ask = triple("acme/shop");
    ask["purpose"] = "orders".into();
    assert_eq!(call(&shop, "/v1/grant-requests", ask.clone()).await.0, 201);
    assert_eq!(call(&shop, "/v1/grant-requests", ask).await.0, 200, "asked already");
    for who in [&shop, &desk.acme, &desk.zeta] {
        let [request] = <[Value; 1]>::try_from(waiting(who).await).unwrap();
        assert_eq!((&request["source"], &request["purpose"]), (&json!("acme/shop"), &json!("orders")));
    }
    // Who asked does not answer.
    for who in [&shop, &desk.acme] {
        assert_eq!(call(who, "/v1/grant-requests/approve", triple("acme/shop")).await.0, 404);
    }
    assert_eq!(desk.pay().await, 403);

    let version = desk.node.get("/v1/registry").await["version"].as_i64().unwrap();
    let mut approve = triple("acme/shop");
    approve["expires_at"] = "2020-01-01T00:00:00Z".into();
    assert_eq!(call(&desk.zeta, "/v1/grant-requests/approve", approve.clone()).await.0, 400);
    approve["expires_at"] = "2999-01-01T00:00:00Z".into();
    let (status, grant) = call(&desk.zeta, "/v1/grant-requests/approve?why=fine", approve).await;
    assert_eq!((status, &grant["expires_at"]), (200, &json!("2999-01-01T00:00:00.000Z")));
    assert_eq!(desk.pay().await, 202);
    assert!(waiting(&desk.zeta).await.is_empty());
    let log = desk.node.get(&format!("/v1/registry/changes?since={version}")).await;
    let steps = log["items"].as_array().unwrap().iter().map(|it| (&it["kind"], &it["why"], &it["at"]));
    let steps: Vec<_> = steps.collect();
    assert_eq!(steps.len(), 2, "one change of the registry: {log}");
    assert!(steps.iter().all(|it| it.1 == "fine" && it.2 == steps[0].2), "{log}");
    assert_eq!(call(&shop, "/v1/grant-requests", triple("acme/shop")).await.0, 409, "granted already");
}

/// REG-8
#[tokio::test]
async fn a_request_is_declined_by_the_owner_or_withdrawn_by_who_asked() {
    let desk = Desk::set().await;
    let bank = desk.service(&desk.bank).await;
    for (asks, ends) in [(&desk.acme, &desk.zeta), (&desk.acme, &desk.acme)] {
        assert_eq!(call(asks, "/v1/grant-requests", triple("acme/shop")).await.0, 201);
        assert_eq!(call(&bank, "/v1/grant-requests/decline", triple("acme/shop")).await.0, 403);
        assert_eq!(call(ends, "/v1/grant-requests/decline?why=no", triple("acme/shop")).await.0, 200);
        assert_eq!(call(ends, "/v1/grant-requests/decline", triple("acme/shop")).await.0, 404);
        assert!(waiting(&desk.zeta).await.is_empty());
    }
    assert_eq!(desk.pay().await, 403);
    assert_eq!(call(&desk.zeta, "/v1/grant-requests/approve", triple("acme/shop")).await.0, 404);
}

/// REG-8: the attempt is refused in the same words whether or not there is such a source, counted, and audited.
#[tokio::test]
async fn nobody_asks_for_a_source_that_is_not_their_own() {
    let mut desk = Desk::set().await;
    let bank = desk.service(&desk.bank).await;
    let attempts =
        [(&bank, "acme/shop"), (&bank, "no/body"), (&desk.zeta, "acme/shop"), (&desk.zeta, "no/body")];
    let mut answers = Vec::new();
    for (who, source) in attempts {
        let (status, mut problem) = call(who, "/v1/grant-requests", triple(source)).await;
        assert_eq!((status, &problem["reason"]), (403, &json!("forbidden")), "{source}");
        for own in ["correlation_id", "traceparent"] {
            problem[own].take();
        }
        answers.push(problem);
    }
    assert!(answers.iter().all(|it| *it == answers[0]));
    assert!(waiting(&desk.node.operator()).await.is_empty());
    assert_eq!(metric(&desk.node, "snavio_foreign_source_total").await, Some(4.0));
    assert!(desk.node.said().contains("the source is not the caller's own"));
    desk.node.stop();
    let store = desk.node.engine().open(desk.node.folder()).await;
    let record = store.audit(Serial(0), 10).await.unwrap();
    let told: Vec<_> = record.iter().map(|it| (it.action.as_str(), it.object.as_str())).collect();
    let (there, random) = ("acme/shop>zeta/bank:pay", "no/body>zeta/bank:pay");
    assert_eq!(told, [there, random, there, random].map(|object| ("grant_request.ask", object)));
    assert!(
        record[0].act.who.starts_with("zeta/bank (") && record[2].act.who.starts_with("zeta (tenant-admin ")
    );
}

/// REG-8: one tenant cannot bury the requests of others, nor fill the registry with what nobody answers.
#[tokio::test]
async fn what_waits_for_an_answer_is_bounded() {
    let desk = Desk::set().await;
    desk.node.apply(&json!({ "services": [{ "name": "acme/stall" }] })).await;
    let ask = async |n: usize| {
        let source = ["acme/shop", "acme/stall"][n % 2];
        let body = json!({ "source": source, "target": "nobody/there", "name": format!("c{n}") });
        call(&desk.acme, "/v1/grant-requests", body).await
    };
    for n in 0..snavio_model::bounds::GRANT_REQUESTS_MAX {
        assert_eq!(ask(n).await.0, 201);
    }
    let (status, problem) = ask(1000).await;
    let detail = problem["detail"].as_str().unwrap();
    assert!(status == 409 && detail.contains("500 requests of tenant acme wait already"), "{problem}");
    assert_eq!(ask(1).await.0, 200);
    let bank = desk.service(&desk.bank).await;
    let other = json!({ "source": "zeta/bank", "target": "acme/shop", "name": "refund" });
    assert_eq!(call(&bank, "/v1/grant-requests", other).await.0, 201, "others still ask");
}

/// REG-8, QUA-5: a request is answered and waits alike, whether or not another tenant has such a target.
#[tokio::test]
async fn who_asks_does_not_learn_what_another_tenant_has() {
    let desk = Desk::set().await;
    let ask = async |target: &str| {
        let body = json!({ "source": "acme/shop", "target": target, "name": "pay", "purpose": "orders" });
        let mut told = Vec::new();
        for path in ["", "", "/approve", "/decline", "/decline"].map(|it| format!("/v1/grant-requests{it}")) {
            let mut body = body.clone();
            if path.len() > "/v1/grant-requests".len() {
                body.as_object_mut().unwrap().remove("purpose");
            }
            let (status, mut answer) = call(&desk.acme, &path, body).await;
            for own in ["asked_at", "correlation_id", "traceparent"] {
                answer[own].take();
            }
            let listed = waiting(&desk.acme).await.len();
            told.push((status, answer.to_string().replace(target, "a target"), listed));
        }
        told
    };
    let there = ask("zeta/bank").await;
    let statuses: Vec<_> = there.iter().map(|it| (it.0, it.2)).collect();
    assert_eq!(statuses, [(201, 1), (200, 1), (404, 1), (200, 0), (404, 0)]);
    assert_eq!(ask("zeta/random").await, there);
    assert_eq!(ask("nobody/random").await, there);

    let (status, problem) = call(
        &desk.acme,
        "/v1/grant-requests",
        json!({ "source": "acme/shop", "target": "acme/random", "name": "pay" }),
    )
    .await;
    assert!(status == 409 && problem.to_string().contains("acme/random is not registered"), "{problem}");
    // The owner of the name reads what was asked, and can give nothing on what is not there.
    let random = json!({ "source": "acme/shop", "target": "zeta/random", "name": "pay" });
    assert_eq!(call(&desk.acme, "/v1/grant-requests", random.clone()).await.0, 201);
    assert_eq!(waiting(&desk.zeta).await.len(), 1);
    let (status, problem) = call(&desk.zeta, "/v1/grant-requests/approve", random.clone()).await;
    assert!(status == 409 && problem.to_string().contains("zeta/random is not registered"), "{problem}");
    desk.node.apply(&json!({ "services": [{ "name": "zeta/random" }] })).await;
    assert_eq!(call(&desk.zeta, "/v1/grant-requests/approve", random).await.0, 200);
}

/// REG-8: the target's owner is told which tenant asked; who that was is for the tenant itself and for operators.
#[tokio::test]
async fn another_tenant_is_not_told_who_asked() {
    let desk = Desk::set().await;
    let auditor = issue(&desk.node, "otto", "auditor", None).await.token;
    let auditor = desk.node.api().with_token(&auditor);
    let [acme, zeta] = &desk.ids;
    let told =
        async |who: &Api, path: &str| verdict(who.send(Method::GET, path, None, "").await).1.to_string();
    let log = "/v1/registry/changes?limit=1000";
    let ask = "/v1/grant-requests?why=between-us";
    assert_eq!(call(&desk.acme, ask, triple("acme/shop")).await.0, 201);
    assert_eq!(waiting(&desk.zeta).await[0]["asked_by"], "acme");
    for path in ["/v1/grant-requests", "/v1/registry", log] {
        let seen = told(&desk.zeta, path).await;
        assert!(seen.contains("acme/shop") && !seen.contains(acme) && !seen.contains("between-us"), "{seen}");
    }
    for who in [&desk.acme, &desk.node.operator(), &auditor] {
        assert!(told(who, "/v1/grant-requests").await.contains(acme));
    }
    assert!(told(&desk.node.operator(), log).await.contains("between-us"));

    let decline = "/v1/grant-requests/decline?why=between-us";
    assert_eq!(call(&desk.acme, decline, triple("acme/shop")).await.0, 200);
    let seen = told(&desk.zeta, log).await;
    assert!(!seen.contains(acme) && !seen.contains("between-us"), "{seen}");
    // A service's client is its tenant's affair too; what the owner's own people do is told in full.
    let shop = desk.service(&desk.shop).await;
    assert_eq!(call(&shop, ask, triple("acme/shop")).await.0, 201);
    assert_eq!(waiting(&desk.zeta).await[0]["asked_by"], "acme");
    assert_eq!(call(&desk.zeta, "/v1/grant-requests/decline?why=no", triple("acme/shop")).await.0, 200);
    let seen = told(&desk.zeta, log).await;
    assert!(
        seen.contains(zeta) && !seen.contains(&desk.shop.client_id) && !seen.contains("between-us"),
        "{seen}"
    );
}

/// REG-24: a service goes with what it asked for, and what others asked of it.
#[tokio::test]
async fn requests_go_with_their_services() {
    let desk = Desk::set().await;
    assert_eq!(call(&desk.acme, "/v1/grant-requests", triple("acme/shop")).await.0, 201);
    let gone = desk.acme.call(Method::DELETE, "/v1/tenants/acme/services/shop", None).await.unwrap();
    assert!(gone.to_string().contains("grant_request acme/shop>zeta/bank:pay"), "{gone}");
    assert!(waiting(&desk.zeta).await.is_empty());
    // What was asked of a tenant is not for the next of its name to read.
    desk.node.apply(&json!({ "tenants": [{ "name": "new" }], "services": [{ "name": "acme/shop" }] })).await;
    let ask = json!({ "source": "acme/shop", "target": "new/none", "name": "pay" });
    assert_eq!(call(&desk.acme, "/v1/grant-requests", ask).await.0, 201);
    let gone = desk.node.operator().call(Method::DELETE, "/v1/tenants/new", None).await.unwrap();
    assert!(gone.to_string().contains("grant_request acme/shop>new/none:pay"), "{gone}");
}

/// PIP-2, REG-2
#[tokio::test]
async fn denied_sender_is_told_its_own_nearest_grants() {
    let node = Node::start();
    let cast = node.cast().await;
    let more = json!({
        "services": [{ "name": "acme/shop" }],
        "event_types": [{ "owner": "acme/billing", "name": "invoice.sent" }],
        "grants": [{ "source": "acme/shop", "target": "acme/bot", "name": "notify-all" }],
    });
    let shop = node.apply(&more).await.remove(0);
    let send = async |who: &Credentials, target: &str, name: &str| {
        let draft = Draft { target: target.into(), ..Draft::new(name, &new_id()) };
        let (status, problem) = post(&node.client(who), draft.sign(who)).await;
        assert_eq!((status, &problem["reason"]), (403, &json!("acl-deny")), "{problem}");
        problem["detail"].as_str().unwrap().to_owned()
    };
    for (target, name, detail) in [
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
        let told = send(&cast.billing, target, name).await;
        assert!(told.starts_with(detail), "{told}");
        assert!(
            !told.contains("shop") && !told.contains("notify-all to acme/bot,"),
            "another's grant: {told}"
        );
    }
    let told = send(&shop, "bot", "notify").await;
    let expected = "acme/shop has no grant to send notify to acme/bot; the nearest of its grants: notify-all to acme/bot";
    assert_eq!(told, expected);
    let told = send(&cast.bot, "billing", "pay").await;
    assert_eq!(told, "acme/bot has no grant to send pay to acme/billing; it has no grants");

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

    // A grant for all names does not cover a critical route.
    let critical = json!({
        "target": "acme/bot", "name": "erase", "queue": "q", "dead_letter_queue": "d", "profile": "critical",
    });
    let all = json!({ "source": "acme/shop", "target": "acme/bot", "name": "*" });
    node.apply(&json!({ "routes": [critical], "grants": [all] })).await;
    let told = send(&shop, "bot", "erase").await;
    let expected = "acme/shop has no grant to send erase to acme/bot; the nearest of its grants: * to acme/bot, notify-all \
                    to acme/bot; * does not cover critical routes: ask for a grant by name";
    assert_eq!(told, expected);
    // One request names them a few times.
    let denied = bounds::NEAREST_REFUSALS_MAX + 2;
    let denied: Vec<_> = (0..denied).map(|_| Draft::new("erase", &new_id()).sign(&shop)).collect();
    let told = post_batch(&node.client(&shop), &denied).await.unwrap();
    let named = told.iter().filter(|told| told["detail"].as_str().unwrap().contains("nearest")).count();
    assert_eq!(named, bounds::NEAREST_REFUSALS_MAX, "{told:?}");
}

/// REG-2, REG-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grant_for_a_missing_route_has_a_warning() {
    let desk = Desk::set().await;
    let warning = "grant acme/shop > zeta/bank: payy: zeta/bank has no route and no event type payy, so messages under this \
                   grant are refused (route-missing) until one is registered; did you mean pay?";
    let grant = |name: &str| json!({ "source": "acme/shop", "target": "zeta/bank", "name": name });
    let put = async |name: &str| {
        let body = Some(grant(name).to_string().into_bytes());
        verdict(desk.zeta.send(Method::PUT, "/v1/grants", body, "application/json").await)
    };
    let (status, given) = put("payy").await;
    assert_eq!((status, &given["warnings"]), (201, &json!([warning])), "{given}");
    assert_eq!((&given["source"], &given["name"]), (&json!("acme/shop"), &json!("payy")), "{given}");
    for name in ["pay", "*"] {
        let (status, given) = put(name).await;
        assert_eq!((status, given.get("warnings")), (201, None), "{given}");
    }
    let shop = desk.service(&desk.shop).await;
    let asked = json!({ "source": "acme/shop", "target": "zeta/bank", "name": "pax" });
    assert_eq!(call(&shop, "/v1/grant-requests", asked.clone()).await.0, 201);
    let (status, approved) = call(&desk.zeta, "/v1/grant-requests/approve", asked).await;
    assert_eq!((status, approved["warnings"].as_array().map(Vec::len)), (200, Some(1)), "{approved}");

    for dry_run in [true, false] {
        let file = json!({ "grants": [grant("payy"), grant("pay")], "dry_run": dry_run });
        let (status, applied) = call(&desk.node.operator(), "/v1/registry/apply", file).await;
        assert_eq!((status, &applied["warnings"]), (200, &json!([warning])), "{applied}");
        let route =
            json!({ "target": "zeta/bank", "name": "payy", "queue": "pay", "dead_letter_queue": "dead" });
        let file = json!({ "grants": [grant("payy")], "routes": [route], "dry_run": true });
        let (_, applied) = call(&desk.node.operator(), "/v1/registry/apply", file).await;
        assert_eq!(applied.get("warnings"), None, "the file has the route: {applied}");
    }

    let shell = Shell::at(&desk.node);
    let file = shell.write("grants.json", &json!({ "grants": [grant("payy")] }).to_string());
    let line = format!("warning: {warning}");
    for words in [
        &["apply", "-f", &file][..],
        &["apply", "-f", &file, "--dry-run"],
        &["grants", "give", "acme/shop", "zeta/bank", "payy"],
    ] {
        let ended = shell.run_words(words);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.out.lines().filter(|it| *it == line).count(), 1, "{ended:?}");
    }
}
