//! Holds, erasures and the archive, as far as they can be seen without years passing (CLM-17, CLM-18).

use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::{Api, Credentials};

use crate::node::{Draft, Launch, Node, drain, new_id, post, verdict};
use crate::patience::eventually;
use crate::people::issue;
use crate::shell::Shell;
use crate::wire::metric;

/// `acme/ledger` does work of its own, by a route that keeps it for an audit.
struct Books {
    node: Node,
    ledger: Api,
}

impl Books {
    async fn open(launch: &Launch) -> Self {
        let node = Node::launch(launch);
        let registry = json!({
            "tenants": [{ "name": "acme" }],
            "services": [{ "name": "acme/ledger" }],
            "routes": [{
                "target": "acme/ledger", "name": "import", "queue": "imports", "dead_letter_queue": "exceptions",
                "claim": { "policy": "ledger" }, "processing": { "kind": "reported" },
            }],
        });
        let [ledger] = <[Credentials; 1]>::try_from(node.apply(&registry).await).unwrap();
        let token = node.token(&ledger).await;
        let ledger = node.api().with_token(&token);
        Self { node, ledger }
    }

    async fn begin(&self, id: &str, amount: u32) -> (u16, Value) {
        call(&self.ledger, "/v1/claims/import/begin", json!({ "id": id, "payload": { "amount": amount } }))
            .await
    }

    /// Work that was begun and is complete.
    async fn post(&self, id: &str) {
        let (status, begun) = self.begin(id, 10).await;
        assert_eq!(status, 201, "{begun}");
        let body = json!({
            "delivery_id": begun["delivery_id"], "fence": begun["fence"], "reference": "JE-1",
            "response": { "entry": "of Jane Doe" },
        });
        assert_eq!(call(&self.ledger, "/v1/claims/import/complete", body).await.0, 200);
    }
}

async fn call(who: &Api, path: &str, body: Value) -> (u16, Value) {
    verdict(who.send(Method::POST, path, Some(body.to_string().into_bytes()), "application/json").await)
}

async fn get(who: &Api, path: &str) -> (u16, Value) {
    verdict(who.send(Method::GET, path, None, "").await)
}

/// The erasures that somebody sees, once there are so many: lists may be a moment behind.
async fn erasures(who: &Api, count: usize) -> Vec<Value> {
    eventually("the erasures are listed", async || {
        let (status, listed) = get(who, "/v1/erasures").await;
        assert_eq!(status, 200, "{listed}");
        listed["items"].as_array().filter(|it| it.len() == count).cloned()
    })
    .await
}

/// CLM-18
#[tokio::test]
async fn what_is_held_cannot_be_erased_and_what_is_erased_is_still_known() {
    let books = Books::open(&Launch::default()).await;
    let operator = books.node.operator();
    let id = new_id();
    let erasure = json!({ "tenant": "acme", "eventId": id, "why": "request 4711" });
    assert_eq!(call(&operator, "/v1/erasures", erasure.clone()).await.0, 404, "there is nothing yet");
    assert_eq!(books.begin(&id, 10).await.0, 201);
    let (status, busy) = call(&operator, "/v1/erasures", erasure.clone()).await;
    assert_eq!((status, &busy["reason"]), (409, &json!("in_progress")), "{busy}");
    let id = new_id();
    books.post(&id).await;
    let erasure = json!({ "tenant": "acme", "eventId": id, "why": "request 4711" });

    let shell = Shell::at(&books.node);
    let why = ["--tenant", "acme", "--event", &id, "--why", "a lawsuit", "--output", "json"];
    let set = shell.run_words(&[&["holds", "set"], &why[..]].concat());
    assert_eq!(set.code, Some(0), "{set:?}");
    let hold = set.json()["holdId"].as_i64().unwrap();
    let (status, held) = call(&operator, "/v1/erasures", erasure.clone()).await;
    assert_eq!((status, &held["reason"]), (409, &json!("held")), "{held}");
    assert!(held["detail"].as_str().unwrap().contains(&hold.to_string()), "{held}");
    let listed = shell.run("holds list --tenant acme --output json").json();
    assert_eq!(listed["items"][0]["why"], "a lawsuit", "{listed}");
    let lifted =
        shell.run_words(&["holds", "lift", &hold.to_string(), "--why", "it is over", "--output", "json"]);
    assert_eq!((lifted.code, &lifted.json()["liftedWhy"]), (Some(0), &json!("it is over")));

    let erased =
        shell.run_words(&["erase", &id, "--tenant", "acme", "--why", "request 4711", "--output", "json"]);
    assert_eq!((erased.code, &erased.json()["before"]), (Some(0), &json!(false)), "{erased:?}");
    assert_eq!(erased.json()["objectsLeft"], 0, "{erased:?}");
    let (status, again) = call(&operator, "/v1/erasures", erasure).await;
    assert_eq!(
        (status, &again["before"], &again["erasedAt"]),
        (200, &json!(true), &erased.json()["erasedAt"])
    );

    let (status, replay) = books.begin(&id, 10).await;
    assert_eq!(
        (status, &replay["is_new"], &replay["state"]),
        (200, &json!(false), &json!("COMPLETED")),
        "{replay}"
    );
    assert_eq!((&replay["reference"], &replay["erased"]), (&json!("JE-1"), &json!(true)), "{replay}");
    assert!(!replay.to_string().contains("Jane Doe"), "{replay}");
    let (status, conflict) = books.begin(&id, 11).await;
    assert_eq!((status, &conflict["reason"]), (409, &json!("conflict")), "{conflict}");
    let (_, found) = get(&operator, &format!("/v1/claims/{id}?tenant=acme")).await;
    let claim = &found["claims"][0];
    assert!(claim["erasedAt"].is_string() && claim["domainPayloadHash"].is_string(), "{found}");
    let (status, answer) = get(&operator, &format!("/v1/claims/{id}/answer?tenant=acme")).await;
    assert_eq!(status, 404, "{answer}");
    let (_, conflicts) = get(&operator, "/v1/conflicts?tenant=acme").await;
    let conflict = conflicts["items"][0]["conflictId"].as_i64().unwrap();
    let (status, whole) = get(&operator, &format!("/v1/conflicts/{conflict}")).await;
    assert_eq!((status, &whole["original"]["erased"]), (200, &json!(true)), "{whole}");

    assert_eq!(erasures(&operator, 1).await[0]["why"], "request 4711");
    let all = ["hold.set", "hold.lift", "claim.erase"];
    let has = |items: &[Value], action: &str| items.iter().any(|it| it["action"] == action);
    books.node.items("/v1/audit", |items| all.iter().all(|action| has(items, action))).await;
}

/// CLM-18, REG-9
#[tokio::test]
async fn accounting_holds_and_lifts_and_says_why() {
    let books = Books::open(&Launch::default()).await;
    let token = issue(&books.node, "books", "accounting-ops", Some("acme")).await.token;
    let books_keeper = books.node.api().with_token(&token);
    for (body, status) in [
        (json!({ "why": "" }), 400),
        (json!({ "why": "x", "eventId": "a", "destination": "acme/ledger:import" }), 400),
        (json!({ "why": "x", "destination": "zeta/ledger:import" }), 400),
        (json!({ "why": "x", "tenant": "zeta" }), 404),
        (json!({ "why": "x", "destination": "acme/ledger:imprt" }), 404),
        (json!({ "why": "x", "destination": "acme/ledger:import" }), 201),
        (json!({ "why": "all of it" }), 201),
    ] {
        let (answered, told) = call(&books_keeper, "/v1/holds", body.clone()).await;
        assert_eq!(answered, status, "{body}: {told}");
    }
    let (_, page) = get(&books_keeper, "/v1/holds").await;
    assert_eq!(page["items"].as_array().map(Vec::len), Some(2), "{page}");
    let id = new_id();
    books.post(&id).await;
    let (status, held) = call(&books_keeper, "/v1/erasures", json!({ "eventId": id, "why": "x" })).await;
    assert_eq!((status, &held["reason"]), (409, &json!("held")), "{held}");
}

/// CLM-18: a hold keeps claims, and where none are made it would keep nothing.
#[tokio::test]
async fn a_destination_without_claims_is_not_held() {
    let books = Books::open(&Launch::default()).await;
    let route = |claim: &str| {
        json!({ "routes": [{
            "target": "acme/ledger", "name": "tell", "queue": "told", "dead_letter_queue": "dead",
            "claim": { "policy": claim },
        }] })
    };
    let hold = json!({ "tenant": "acme", "destination": "acme/ledger:tell", "why": "a lawsuit" });
    for (policy, status) in [("none", 404), ("strict", 201), ("none", 201)] {
        books.node.apply(&route(policy)).await;
        let (answered, told) = call(&books.node.operator(), "/v1/holds", hold.clone()).await;
        assert_eq!(answered, status, "{policy}: {told}");
        let says = told["detail"].as_str().unwrap_or_default();
        assert!(status == 201 || says.contains("a hold would be on nothing"), "{told}");
    }
}

/// CLM-18: what a tenant left behind can be held after it is gone; a name that nobody ever had is a typo.
#[tokio::test]
async fn what_a_former_tenant_left_behind_can_be_held() {
    let books = Books::open(&Launch::default()).await;
    let operator = books.node.operator();
    let more = json!({ "tenants": [{ "name": "brief" }], "services": [{ "name": "brief/app" }], "routes": [{
        "target": "brief/app", "name": "run", "queue": "runs", "dead_letter_queue": "dead",
        "claim": { "policy": "strict" },
    }, {
        "target": "brief/app", "name": "tell", "queue": "runs", "dead_letter_queue": "dead",
    }] });
    books.node.apply(&more).await;
    for path in [
        "/v1/routes/brief/app/run",
        "/v1/routes/brief/app/tell",
        "/v1/tenants/brief/services/app",
        "/v1/tenants/brief",
    ] {
        let (status, gone) = verdict(operator.send(Method::DELETE, path, None, "").await);
        assert_eq!(status, 200, "{path}: {gone}");
    }
    for (body, status) in [
        (json!({ "tenant": "brief", "why": "x" }), 201),
        (json!({ "tenant": "brief", "destination": "brief/app:run", "why": "x" }), 201),
        (json!({ "tenant": "brief", "destination": "brief/app:ran", "why": "x" }), 404),
        (json!({ "tenant": "brief", "destination": "brief/app:tell", "why": "it never made claims" }), 404),
        (json!({ "tenant": "breif", "why": "x" }), 404),
    ] {
        let (answered, told) = call(&operator, "/v1/holds", body.clone()).await;
        assert_eq!(answered, status, "{body}: {told}");
    }
    let erasure = json!({ "tenant": "brief", "eventId": "a", "why": "x" });
    let (status, told) = call(&operator, "/v1/erasures", erasure).await;
    assert_eq!(status, 404, "{told}");
    assert!(told["detail"].as_str().is_some_and(|it| it.contains("nothing leads from this id")), "{told}");
}

/// `acme/shop` posts to `zeta/gl`.
struct TwoTenants {
    node: Node,
    shop: Credentials,
    gl: Credentials,
}

impl TwoTenants {
    async fn set() -> Self {
        let node = Node::launch(&Launch::default());
        let registry = json!({
            "tenants": [{ "name": "acme" }, { "name": "zeta" }],
            "services": [{ "name": "acme/shop" }, { "name": "zeta/gl" }],
            "routes": [{
                "target": "zeta/gl", "name": "post", "queue": "post", "dead_letter_queue": "exceptions",
                "claim": { "policy": "ledger" },
            }],
            "grants": [{ "source": "acme/shop", "target": "zeta/gl", "name": "post" }],
        });
        let [shop, gl] = <[Credentials; 2]>::try_from(node.apply(&registry).await).unwrap();
        Self { node, shop, gl }
    }

    async fn post(&self, id: &str, amount: u32) -> (u16, Value) {
        let mut draft = Draft::new("post", id);
        draft.target = "zeta/gl".to_owned();
        draft.payload = json!({ "amount": amount }).to_string();
        post(&self.node.client(&self.shop), draft.sign(&self.shop)).await
    }

    async fn person(&self, role: &str, tenant: &str) -> Api {
        let name = format!("{role}-{tenant}");
        self.node.api().with_token(&issue(&self.node, &name, role, Some(tenant)).await.token)
    }
}

/// CLM-18: whoever was sent something holds it by its id, and whoever sent it cannot erase it; a hold on what is not there is
/// none, and is refused.
#[tokio::test]
async fn whoever_was_sent_an_id_holds_it_and_nobody_holds_nothing() {
    let two = TwoTenants::set().await;
    let id = new_id();
    let (ours, theirs) =
        (two.person("accounting-ops", "acme").await, two.person("accounting-ops", "zeta").await);
    let hold = json!({ "eventId": id, "why": "a lawsuit" });
    for who in [&ours, &theirs] {
        let (status, told) = call(who, "/v1/holds", hold.clone()).await;
        assert_eq!((status, &told["reason"]), (404, &json!("not_found")), "{told}");
        assert!(told["detail"].as_str().unwrap().contains("a hold would be on nothing"), "{told}");
    }
    assert_eq!(two.post(&id, 10).await.0, 202);
    assert_eq!(drain(&two.node.client(&two.gl), "post").await.len(), 1);

    let (status, held) = call(&theirs, "/v1/holds", hold).await;
    assert_eq!(status, 201, "{held}");
    let erase = json!({ "eventId": id, "why": "request 4711" });
    let (status, told) = call(&ours, "/v1/erasures", erase.clone()).await;
    assert_eq!((status, &told["reason"]), (409, &json!("held")), "{told}");
    let lift = format!("/v1/holds/{}/lift", held["holdId"]);
    assert_eq!(call(&ours, &lift, json!({ "why": "x" })).await.0, 404, "it is not theirs to lift");
    assert_eq!(call(&theirs, &lift, json!({ "why": "it is over" })).await.0, 200);
    let (status, told) = call(&ours, "/v1/erasures", erase).await;
    assert_eq!(status, 200, "{told}");
    // Whoever may erase sees what was; whoever may only look does not.
    for (who, count) in [(&ours, 1), (&theirs, 0)] {
        erasures(who, count).await;
    }
    assert_eq!(get(&two.person("tenant-viewer", "acme").await, "/v1/erasures").await.0, 403);
    assert_eq!(get(&ours, "/v1/erasures?tenant=zeta").await.0, 404);
}

/// CLM-18, CLM-8: whoever sent two contents to another tenant cannot destroy what that one must decide by; the other is
/// told once it is destroyed, and both tenants' auditors see their own erasures.
#[tokio::test]
async fn evidence_of_anothers_conflict_is_not_erased() {
    let two = TwoTenants::set().await;
    let id = new_id();
    let mut conflict = Value::Null;
    for amount in [10, 11] {
        conflict = two.post(&id, amount).await.1["conflict_id"].clone();
    }
    assert_eq!(drain(&two.node.client(&two.gl), "post").await.len(), 1);
    let as_ = async |role, tenant| two.person(role, tenant).await;
    let erase = json!({ "tenant": "acme", "eventId": id, "why": "request 4711" });
    let ours = as_("accounting-ops", "acme").await;
    let (status, told) = call(&ours, "/v1/erasures", erase.clone()).await;
    assert_eq!((status, &told["reason"]), (409, &json!("conflict_state")), "{told}");
    assert!(told["detail"].as_str().unwrap().contains(&conflict.to_string()), "{told}");
    let theirs = as_("accounting-ops", "zeta").await;
    let (_, whole) = get(&theirs, &format!("/v1/conflicts/{conflict}")).await;
    assert_eq!(whole["differences"].as_array().map(Vec::len), Some(1), "{whole}");
    for state in ["TRIAGED", "RESOLVED_ACCEPT_ORIGINAL"] {
        let path = format!("/v1/conflicts/{conflict}/state");
        assert_eq!(call(&theirs, &path, json!({ "state": state, "note": "seen" })).await.0, 200);
    }
    let (status, told) = call(&ours, "/v1/erasures", erase).await;
    assert_eq!(status, 200, "{told}");
    eventually("it is told of once", async || {
        let (_, told) = get(&theirs, "/v1/telemetry?type=snavio.claim.erased").await;
        (told["items"].as_array().map(Vec::len) == Some(1)).then_some(())
    })
    .await;
    for (tenant, count) in [("acme", 1), ("zeta", 0)] {
        erasures(&as_("auditor", tenant).await, count).await;
    }
}

/// CLM-17, CLM-21
#[tokio::test]
async fn an_archive_that_cannot_be_written_is_warned_of_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let in_the_way = folder.path().join("archive");
    std::fs::write(&in_the_way, "a file").unwrap();
    let launch = Launch::default().set("ARCHIVE_URL", format!("file://{}", in_the_way.display()));
    let books = Books::open(&launch).await;
    let failures = eventually("it is counted", async || {
        metric(&books.node, "events_archive_failures_total").await.filter(|it| *it >= 1.0)
    });
    failures.await;
    let backlog = async || metric(&books.node, "events_archive_backlog").await;
    assert_eq!(eventually("what waits is counted", backlog).await, 0.0);
    assert!(books.node.said().contains("the archive cannot be used"), "{}", books.node.said());
    books.post(&new_id()).await;
}

/// CLM-17, CLM-18: a node that names another archive than its store's says what to do, and goes on with everything else.
#[tokio::test]
async fn a_node_with_another_archive_than_its_stores_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| format!("file://{}", folder.path().join(name).display());
    let mut books = Books::open(&Launch::default().set("ARCHIVE_URL", place("one"))).await;
    let identity = folder.path().join("one/claims/identity");
    let named = eventually("the archive was used", async || {
        std::fs::read_to_string(&identity).ok().filter(|named| !named.is_empty())
    })
    .await;
    assert!(!books.node.said().contains("the archive cannot be used"), "{}", books.node.said());
    books.node.stop();
    books.node.restart(&Launch::default().set("ARCHIVE_URL", place("other")));
    let told = async || {
        let said = books.node.said();
        let words = ["archive.url names another archive", "there says nothing", &named];
        words.iter().all(|it| said.contains(it)).then_some(())
    };
    eventually("it is told of", told).await;
}
