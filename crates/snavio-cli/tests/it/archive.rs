//! Legal holds, erasures and the archive, in the parts that a test can see without years passing (CLM-17,
//! CLM-18).

use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::{Api, Credentials};

use crate::node::{Draft, Launch, Node, drain, new_id, post, verdict};
use crate::patience::eventually;
use crate::people::issue;
use crate::shell::Shell;
use crate::wire::metric;

/// `acme/ledger` begins its own work through the claims API, on a route with the claim policy `ledger`.
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

    /// Begins and completes work under this id.
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

async fn call(caller: &Api, path: &str, body: Value) -> (u16, Value) {
    verdict(caller.send(Method::POST, path, Some(body.to_string().into_bytes()), "application/json").await)
}

async fn get(caller: &Api, path: &str) -> (u16, Value) {
    verdict(caller.send(Method::GET, path, None, "").await)
}

/// Waits until the caller's list has `count` erasures, because lists may lag, and returns them.
async fn listed_erasures(caller: &Api, count: usize) -> Vec<Value> {
    eventually("the erasures are listed", async || {
        let (status, listed) = get(caller, "/v1/erasures").await;
        assert_eq!(status, 200, "{listed}");
        listed["items"].as_array().filter(|items| items.len() == count).cloned()
    })
    .await
}

/// CLM-18
#[tokio::test]
async fn held_id_is_not_erased_and_erased_id_stays_known() {
    let books = Books::open(&Launch::default()).await;
    let operator = books.node.operator();
    let id = new_id();
    let erasure = json!({ "tenant": "acme", "eventId": id, "why": "request 4711" });
    assert_eq!(call(&operator, "/v1/erasures", erasure.clone()).await.0, 404, "the id is unknown");
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
    let lifted = shell.run_words(&[
        "holds",
        "lift",
        &hold.to_string(),
        "--why",
        "the lawsuit ended",
        "--output",
        "json",
    ]);
    assert_eq!((lifted.code, &lifted.json()["liftedWhy"]), (Some(0), &json!("the lawsuit ended")));

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

    assert_eq!(listed_erasures(&operator, 1).await[0]["why"], "request 4711");
    let actions = ["hold.set", "hold.lift", "claim.erase"];
    let is_audited =
        |items: &[Value]| actions.iter().all(|action| items.iter().any(|item| item["action"] == *action));
    books.node.items("/v1/audit", is_audited).await;
}

/// CLM-18, REG-9
#[tokio::test]
async fn accounting_sets_holds_in_its_own_tenant() {
    let books = Books::open(&Launch::default()).await;
    let token = issue(&books.node, "books", "accounting-ops", Some("acme")).await.token;
    let bookkeeper = books.node.api().with_token(&token);
    for (body, status) in [
        (json!({ "why": "" }), 400),
        (json!({ "why": "x", "eventId": "a", "destination": "acme/ledger:import" }), 400),
        (json!({ "why": "x", "destination": "zeta/ledger:import" }), 400),
        (json!({ "why": "x", "tenant": "zeta" }), 404),
        (json!({ "why": "x", "destination": "acme/ledger:imprt" }), 404),
        (json!({ "why": "x", "destination": "acme/ledger:import" }), 201),
        (json!({ "why": "all of it" }), 201),
    ] {
        let (actual, answer) = call(&bookkeeper, "/v1/holds", body.clone()).await;
        assert_eq!(actual, status, "{body}: {answer}");
    }
    let (_, page) = get(&bookkeeper, "/v1/holds").await;
    assert_eq!(page["items"].as_array().map(Vec::len), Some(2), "{page}");
    let id = new_id();
    books.post(&id).await;
    let (status, held) = call(&bookkeeper, "/v1/erasures", json!({ "eventId": id, "why": "x" })).await;
    assert_eq!((status, &held["reason"]), (409, &json!("held")), "{held}");
}

/// CLM-18: a hold keeps claims, so the gateway refuses one on a destination that has never made claims.
#[tokio::test]
async fn destination_without_claims_is_not_held() {
    let books = Books::open(&Launch::default()).await;
    let hold = json!({ "tenant": "acme", "destination": "acme/ledger:tell", "why": "a lawsuit" });
    for (policy, status) in [("none", 404), ("strict", 201), ("none", 201)] {
        let route = json!({
            "target": "acme/ledger", "name": "tell", "queue": "told", "dead_letter_queue": "dead",
            "claim": { "policy": policy },
        });
        books.node.apply(&json!({ "routes": [route] })).await;
        let (actual, answer) = call(&books.node.operator(), "/v1/holds", hold.clone()).await;
        assert_eq!(actual, status, "{policy}: {answer}");
        let detail = answer["detail"].as_str().unwrap_or_default();
        assert!(status == 201 || detail.contains("a hold would be on nothing"), "{answer}");
    }
}

/// CLM-18: the records of a removed tenant can still be held. The gateway refuses a name that no tenant or
/// route ever had, because it must be a typing error.
#[tokio::test]
async fn former_tenants_records_can_be_held() {
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
        let (status, removed) = verdict(operator.send(Method::DELETE, path, None, "").await);
        assert_eq!(status, 200, "{path}: {removed}");
    }
    for (body, status) in [
        (json!({ "tenant": "brief", "why": "x" }), 201),
        (json!({ "tenant": "brief", "destination": "brief/app:run", "why": "x" }), 201),
        (json!({ "tenant": "brief", "destination": "brief/app:ran", "why": "x" }), 404),
        (json!({ "tenant": "brief", "destination": "brief/app:tell", "why": "it never made claims" }), 404),
        (json!({ "tenant": "breif", "why": "x" }), 404),
    ] {
        let (actual, answer) = call(&operator, "/v1/holds", body.clone()).await;
        assert_eq!(actual, status, "{body}: {answer}");
    }
    let erasure = json!({ "tenant": "brief", "eventId": "a", "why": "x" });
    let (status, answer) = call(&operator, "/v1/erasures", erasure).await;
    assert_eq!(status, 404, "{answer}");
    assert!(
        answer["detail"].as_str().is_some_and(|detail| detail.contains("nothing leads from this id")),
        "{answer}"
    );
}

/// `acme/shop` posts to `zeta/gl`.
struct TwoTenants {
    node: Node,
    shop: Credentials,
    gl: Credentials,
}

impl TwoTenants {
    async fn start() -> Self {
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

/// CLM-18: the recipient of a message holds it by its id, and then the sender cannot erase it. The gateway
/// refuses a hold on an id that it does not know.
#[tokio::test]
async fn recipient_holds_an_id_and_unknown_ids_are_refused() {
    let two = TwoTenants::start().await;
    let id = new_id();
    let (sender, recipient) =
        (two.person("accounting-ops", "acme").await, two.person("accounting-ops", "zeta").await);
    let hold = json!({ "eventId": id, "why": "a lawsuit" });
    for caller in [&sender, &recipient] {
        let (status, answer) = call(caller, "/v1/holds", hold.clone()).await;
        assert_eq!((status, &answer["reason"]), (404, &json!("not_found")), "{answer}");
        assert!(answer["detail"].as_str().unwrap().contains("a hold would be on nothing"), "{answer}");
    }
    assert_eq!(two.post(&id, 10).await.0, 202);
    assert_eq!(drain(&two.node.client(&two.gl), "post").await.len(), 1);

    let (status, held) = call(&recipient, "/v1/holds", hold).await;
    assert_eq!(status, 201, "{held}");
    let erase = json!({ "eventId": id, "why": "request 4711" });
    let (status, answer) = call(&sender, "/v1/erasures", erase.clone()).await;
    assert_eq!((status, &answer["reason"]), (409, &json!("held")), "{answer}");
    let lift = format!("/v1/holds/{}/lift", held["holdId"]);
    assert_eq!(call(&sender, &lift, json!({ "why": "x" })).await.0, 404, "the sender cannot lift it");
    assert_eq!(call(&recipient, &lift, json!({ "why": "the lawsuit ended" })).await.0, 200);
    let (status, answer) = call(&sender, "/v1/erasures", erase).await;
    assert_eq!(status, 200, "{answer}");
    // Only the tenant that may erase the id sees the erasure. A viewer cannot list erasures at all.
    for (caller, count) in [(&sender, 1), (&recipient, 0)] {
        listed_erasures(caller, count).await;
    }
    assert_eq!(get(&two.person("tenant-viewer", "acme").await, "/v1/erasures").await.0, 403);
    assert_eq!(get(&sender, "/v1/erasures?tenant=zeta").await.0, 404);
}

/// CLM-18, CLM-8: a tenant that sent two contents under one id to another tenant cannot erase them while the
/// other tenant still needs them to decide the conflict. After the erasure, the other tenant gets one
/// telemetry record, and each tenant's auditor sees that tenant's own erasures.
#[tokio::test]
async fn evidence_of_another_tenants_conflict_is_not_erased() {
    let two = TwoTenants::start().await;
    let id = new_id();
    let mut conflict = Value::Null;
    for amount in [10, 11] {
        conflict = two.post(&id, amount).await.1["conflict_id"].clone();
    }
    assert_eq!(drain(&two.node.client(&two.gl), "post").await.len(), 1);
    let erase = json!({ "tenant": "acme", "eventId": id, "why": "request 4711" });
    let sender = two.person("accounting-ops", "acme").await;
    let (status, answer) = call(&sender, "/v1/erasures", erase.clone()).await;
    assert_eq!((status, &answer["reason"]), (409, &json!("conflict_state")), "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains(&conflict.to_string()), "{answer}");
    let recipient = two.person("accounting-ops", "zeta").await;
    let (_, whole) = get(&recipient, &format!("/v1/conflicts/{conflict}")).await;
    assert_eq!(whole["differences"].as_array().map(Vec::len), Some(1), "{whole}");
    for state in ["TRIAGED", "RESOLVED_ACCEPT_ORIGINAL"] {
        let path = format!("/v1/conflicts/{conflict}/state");
        assert_eq!(call(&recipient, &path, json!({ "state": state, "note": "seen" })).await.0, 200);
    }
    let (status, answer) = call(&sender, "/v1/erasures", erase).await;
    assert_eq!(status, 200, "{answer}");
    eventually("the recipient has one record of the erasure", async || {
        let (_, page) = get(&recipient, "/v1/telemetry?type=snavio.claim.erased").await;
        (page["items"].as_array().map(Vec::len) == Some(1)).then_some(())
    })
    .await;
    for (tenant, count) in [("acme", 1), ("zeta", 0)] {
        listed_erasures(&two.person("auditor", tenant).await, count).await;
    }
}

/// CLM-17, CLM-21
#[tokio::test]
async fn unwritable_archive_is_logged_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let blocking_file = folder.path().join("archive");
    std::fs::write(&blocking_file, "a file").unwrap();
    let launch = Launch::default().set("ARCHIVE_URL", format!("file://{}", blocking_file.display()));
    let books = Books::open(&launch).await;
    let failures = eventually("the failure is counted", async || {
        metric(&books.node, "events_archive_failures_total").await.filter(|failures| *failures >= 1.0)
    });
    failures.await;
    let backlog =
        eventually("the backlog is counted", async || metric(&books.node, "events_archive_backlog").await);
    assert_eq!(backlog.await, 0.0);
    assert!(books.node.said().contains("the archive cannot be used"), "{}", books.node.said());
    books.post(&new_id()).await;
}

/// CLM-17, CLM-18: if the setting names another archive than the store belongs to, the node logs an error
/// with advice, and all its other work goes on.
#[tokio::test]
async fn node_reports_an_archive_other_than_its_stores() {
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("file://{}", folder.path().join(name).display());
    let mut books = Books::open(&Launch::default().set("ARCHIVE_URL", url("one"))).await;
    let identity = folder.path().join("one/claims/identity");
    let named = eventually("the archive was used", async || {
        std::fs::read_to_string(&identity).ok().filter(|named| !named.is_empty())
    })
    .await;
    assert!(!books.node.said().contains("the archive cannot be used"), "{}", books.node.said());
    books.node.stop();
    books.node.restart(&Launch::default().set("ARCHIVE_URL", url("other")));
    eventually("the node logs it", async || {
        let log = books.node.said();
        let phrases = ["archive.url names another archive", "there says nothing", &named];
        phrases.iter().all(|phrase| log.contains(phrase)).then_some(())
    })
    .await;
}
