//! Conflicts (CLM-5, CLM-8, CLM-12 to CLM-15): one id with two contents, the records of it, and its
//! resolution.

use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::bounds::BATCH_MESSAGES_MAX;
use snavio_sdk::{Api, Credentials};

use crate::node::{Draft, Node, new_id, post, post_batch, verdict};
use crate::patience::eventually;
use crate::people::issue;
use crate::shell::Shell;
use crate::wire::metric;

/// `acme/billing` posts to `zeta/ledger`. The people of tenant `zeta` resolve its conflicts.
struct Fixture {
    node: Node,
    billing: Credentials,
    ledger: Credentials,
}

impl Fixture {
    async fn start() -> Self {
        let node = Node::start();
        let registry = json!({
            "tenants": [{ "name": "acme" }, { "name": "zeta" }],
            "services": [{ "name": "acme/billing" }, { "name": "zeta/ledger" }],
            "routes": [{
                "target": "zeta/ledger", "name": "post-entry", "queue": "entries", "dead_letter_queue": "exceptions",
                "claim": { "policy": "ledger" },
            }],
            "grants": [{ "source": "acme/billing", "target": "zeta/ledger", "name": "post-entry" }],
        });
        let [billing, ledger] = <[Credentials; 2]>::try_from(node.apply(&registry).await).unwrap();
        Self { node, billing, ledger }
    }

    fn sign(&self, id: &str, payload: &str) -> Vec<u8> {
        let draft =
            Draft { target: "zeta/ledger".into(), payload: payload.into(), ..Draft::new("post-entry", id) };
        draft.sign(&self.billing)
    }

    async fn post(&self, id: &str, payload: &str) -> (u16, Value) {
        post(&self.node.client(&self.billing), self.sign(id, payload)).await
    }

    /// Sends two contents under each of `count` new ids, in two batches.
    async fn flood(&self, count: usize) {
        let client = self.node.client(&self.billing);
        let ids: Vec<_> = (0..count).map(|_| new_id()).collect();
        let [first, second] = [r#"{"a":1}"#, r#"{"a":2}"#]
            .map(|payload| ids.iter().map(|id| self.sign(id, payload)).collect::<Vec<_>>());
        let accepted = post_batch(&client, &first).await.unwrap();
        assert!(accepted.iter().all(|result| result["accepted"] == true), "{accepted:?}");
        let refused = post_batch(&client, &second).await.unwrap();
        assert!(refused.iter().all(|result| result["reason"] == "conflict"), "{refused:?}");
    }

    async fn person(&self, role: &str, tenant: &str) -> Api {
        self.node.api().with_token(&issue(&self.node, role, role, Some(tenant)).await.token)
    }
}

async fn service_api(node: &Node, service: &Credentials) -> Api {
    node.api().with_token(&node.token(service).await)
}

async fn get(caller: &Api, path: &str) -> (u16, Value) {
    verdict(caller.send(Method::GET, path, None, "").await)
}

async fn move_conflict(
    caller: &Api,
    id: i64,
    state: &str,
    note: &str,
    compensating: Option<&str>,
) -> (u16, Value) {
    let body = json!({ "state": state, "note": note, "compensatingEventId": compensating });
    let path = format!("/v1/conflicts/{id}/state");
    verdict(caller.send(Method::POST, &path, Some(body.to_string().into_bytes()), "application/json").await)
}

/// The number of audit records of opened conflicts.
fn count_opened(items: &[Value]) -> usize {
    items.iter().filter(|action| action["action"] == "conflict.open").count()
}

/// CLM-5, CLM-8, CLM-14: 409, one conflict, one dead letter that names it, one critical record, and no loop.
#[tokio::test]
async fn conflicting_duplicate_is_refused_with_both_contents_on_record() {
    let fixture = Fixture::start().await;
    let id = new_id();
    let (first, second) = (
        r#"{"lines":[{"account":"cash-at-bank","amount":100}],"postingDate":"2026-11-15"}"#,
        r#"{"lines":[{"account":"cash-at-bank","amount":101}],"postingDate":"2026-11-15"}"#,
    );
    assert_eq!(fixture.post(&id, first).await.0, 202);
    let (status, answer) = fixture.post(&id, first).await;
    assert_eq!((status, &answer["duplicate"]), (200, &json!(true)));
    let (status, answer) = fixture.post(&id, second).await;
    assert_eq!(
        (status, &answer["reason"], &answer["accepted"]),
        (409, &json!("conflict"), &json!(false)),
        "{answer}"
    );
    let conflict = answer["conflict_id"].as_i64().unwrap();
    assert!(!answer.to_string().contains("cash-at-bank"), "the first payload is not revealed: {answer}");
    for _ in 0..3 {
        let (status, again) = fixture.post(&id, second).await;
        assert_eq!((status, again["conflict_id"].as_i64()), (409, Some(conflict)), "{again}");
    }

    let books = fixture.person("accounting-ops", "zeta").await;
    // Lists end before the first commit that is still under way, so they may lag for a moment.
    let listed = eventually("the conflict is listed", async || {
        let (_, page) = get(&books, "/v1/conflicts?state=OPEN").await;
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 1, "{page}");
        items.first().cloned()
    })
    .await;
    assert_eq!((listed["conflictId"].as_i64(), &listed["count"]), (Some(conflict), &json!(4)));
    assert_eq!((&listed["eventId"], &listed["flaggedBy"]), (&json!(id), &json!("gateway")));
    assert_ne!(listed["originalDomainPayloadHash"], listed["conflictingDomainPayloadHash"]);
    let (status, whole) = get(&books, &format!("/v1/conflicts/{conflict}")).await;
    assert_eq!(status, 200, "{whole}");
    let difference = json!([{ "pointer": "/lines/0/amount", "original": 100, "conflicting": 101 }]);
    assert_eq!((&whole["differences"], &whole["conflictsOfSource"]), (&difference, &json!(4)));
    assert_eq!(
        whole["original"]["command"]["payload"].to_string(),
        serde_json::from_str::<Value>(first).unwrap().to_string()
    );

    let letter = listed["dlqMessageRef"].as_i64().unwrap();
    let ledger = fixture.node.client(&fixture.ledger);
    let only_item = async |path: &str| {
        eventually(path, async || {
            let listed = ledger.call(Method::GET, path, None).await.unwrap();
            let items = listed["items"].as_array().unwrap();
            assert!(items.len() <= 1, "{listed}");
            items.first().cloned()
        })
        .await
    };
    let dead = only_item("/v1/dead-letters").await;
    assert_eq!(
        (dead["id"].as_i64(), &dead["reason"], dead["conflict_id"].as_i64()),
        (Some(letter), &json!("conflict"), Some(conflict))
    );
    let whole = ledger.call(Method::GET, &format!("/v1/dead-letters/{letter}"), None).await.unwrap();
    assert_eq!(
        (whole["conflict_id"].as_i64(), &whole["content"]["command"]["payload"]["lines"][0]["amount"]),
        (Some(conflict), &json!(101)),
        "{whole}"
    );
    let found = ledger.call(Method::GET, &format!("/v1/claims/{id}?tenant=acme"), None).await.unwrap();
    assert_eq!(whole["original"], found["claims"][0]["message"], "{whole} {found}");
    let redrive =
        ledger.call(Method::POST, &format!("/v1/dead-letters/{letter}/redrive"), Some(&json!({}))).await;
    let redrive = redrive.unwrap_err().to_string();
    assert!(redrive.contains("never dispatched"), "{redrive}");
    let record = only_item("/v1/telemetry?type=snavio.claim.conflict").await;
    assert_eq!((&record["severity"], record["conflict_id"].as_i64()), (&json!("critical"), Some(conflict)));
    fixture.node.items("/v1/audit", |items| count_opened(items) == 1).await;
    assert_eq!(metric(&fixture.node, "events_conflicts_total").await, Some(4.0));
    assert_eq!(metric(&fixture.node, "events_conflicts_open").await, Some(1.0));
    let received =
        ledger.receive("entries", 10, std::time::Duration::from_secs(30), std::time::Duration::ZERO).await;
    assert_eq!(received.unwrap().len(), 1, "posted once");
}

/// CLM-12, CLM-13, QUA-5
#[tokio::test]
async fn conflict_moves_only_by_permitted_roles_and_transitions() {
    let fixture = Fixture::start().await;
    let id = new_id();
    fixture.post(&id, r#"{"a":1}"#).await;
    let conflict = fixture.post(&id, r#"{"a":2}"#).await.1["conflict_id"].as_i64().unwrap();
    for (role, tenant, sees, moves) in [
        ("accounting-ops", "acme", 404, 404),
        ("tenant-admin", "acme", 404, 404),
        ("tenant-admin", "zeta", 200, 403),
        ("tenant-viewer", "zeta", 200, 403),
        ("auditor", "zeta", 200, 403),
    ] {
        let person = fixture.person(role, tenant).await;
        assert_eq!(get(&person, &format!("/v1/conflicts/{conflict}")).await.0, sees, "{role} of {tenant}");
        assert_eq!(
            move_conflict(&person, conflict, "TRIAGED", "mine", None).await.0,
            moves,
            "{role} of {tenant}"
        );
    }
    let books = fixture.person("accounting-ops", "zeta").await;
    let assert_refused = async |state: &str, note: &str, compensating: Option<&str>| {
        let (status, answer) = move_conflict(&books, conflict, state, note, compensating).await;
        assert_eq!((status, &answer["reason"]), (409, &json!("conflict_state")), "{state}: {answer}");
    };
    assert_refused("RESOLVED_ACCEPT_ORIGINAL", "too early", None).await;
    assert_eq!(move_conflict(&books, conflict, "TRIAGED", "asked the shop", None).await.0, 200);
    assert_refused("TRIAGED", "again", None).await;
    assert_refused("RESOLVED_ACCEPT_NEW", "no reversal", None).await;
    assert_refused("RESOLVED_ACCEPT_NEW", "its own id", Some(&id)).await;
    assert_refused("RESOLVED_ACCEPT_ORIGINAL", " ", None).await;
    let reversal = new_id();
    let (status, unsent) = accept_new(&books, conflict, &reversal).await;
    assert_eq!((status, &unsent["reason"]), (409, &json!("conflict_state")), "{unsent}");
    let detail = unsent["detail"].as_str().unwrap();
    assert!(detail.contains("send the reversal first, then name it"), "{detail}");
    assert_eq!(fixture.post(&reversal, r#"{"a":-1}"#).await.0, 202);
    let (status, done) = accept_new(&books, conflict, &reversal).await;
    assert_eq!((status, &done["conflictState"]), (200, &json!("RESOLVED_ACCEPT_NEW")), "{done}");
    assert_eq!(done["compensatingEventId"], reversal);
    assert_refused("RESOLVED_ACCEPT_ORIGINAL", "changed my mind", None).await;
    let shell = Shell::at(&fixture.node);
    let listed = eventually("the conflict is listed", async || {
        let listed = shell.run("conflicts list --tenant zeta --output json").json();
        listed["items"][0]["conflictId"].as_i64()
    })
    .await;
    assert_eq!(listed, conflict);
    let shown = shell.run(&format!("conflicts show {conflict}"));
    assert!(shown.out.contains("/a") && shown.out.contains("where the two differ"), "{}", shown.out);
    let refused = shell.run(&format!("conflicts triage {conflict} --note late"));
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("from where it does not become TRIAGED"), "{}", refused.err);
}

/// Resolves a conflict for the new content, with this reversal.
async fn accept_new(caller: &Api, conflict: i64, reversal: &str) -> (u16, Value) {
    move_conflict(caller, conflict, "RESOLVED_ACCEPT_NEW", "amount was wrong", Some(reversal)).await
}

/// CLM-13: a message from before the conflict was flagged is not a reversal of it, and a reversal resolves
/// only one conflict.
#[tokio::test]
async fn reversal_follows_its_conflict_and_is_named_once() {
    let fixture = Fixture::start().await;
    let (unrelated, reversal) = (new_id(), new_id());
    fixture.post(&unrelated, r#"{"a":5}"#).await;
    let mut conflicts = Vec::new();
    for id in [new_id(), new_id()] {
        // The clock must advance between the unrelated message and the conflicts.
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        fixture.post(&id, r#"{"a":1}"#).await;
        conflicts.push(fixture.post(&id, r#"{"a":2}"#).await.1["conflict_id"].as_i64().unwrap());
    }
    let books = fixture.person("accounting-ops", "zeta").await;
    for conflict in &conflicts {
        assert_eq!(move_conflict(&books, *conflict, "TRIAGED", "asked the shop", None).await.0, 200);
    }
    let (status, answer) = accept_new(&books, conflicts[0], &unrelated).await;
    assert_eq!((status, &answer["reason"]), (409, &json!("conflict_state")), "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains("before the conflict was flagged"), "{answer}");
    assert_eq!(fixture.post(&reversal, r#"{"a":-1}"#).await.0, 202);
    assert_eq!(accept_new(&books, conflicts[0], &reversal).await.0, 200);
    eventually("the refusal names the first conflict", async || {
        let (status, answer) = accept_new(&books, conflicts[1], &new_id()).await;
        assert_eq!(status, 409, "{answer}");
        let (status, answer) = accept_new(&books, conflicts[1], &reversal).await;
        assert_eq!((status, &answer["reason"]), (409, &json!("conflict_state")), "{answer}");
        answer["detail"].as_str().unwrap().contains(&format!("conflict {}", conflicts[0])).then_some(())
    })
    .await;
    let own = new_id();
    assert_eq!(fixture.post(&own, r#"{"a":-2}"#).await.0, 202);
    assert_eq!(accept_new(&books, conflicts[1], &own).await.0, 200);
}

/// CLM-8, INT-1: finance reads its exceptions queue with its own token. Its redrive of a conflict reaches the
/// gateway, which refuses it.
#[tokio::test]
async fn finance_lists_its_dead_letters_with_its_own_token() {
    let fixture = Fixture::start().await;
    let id = new_id();
    fixture.post(&id, r#"{"a":1}"#).await;
    fixture.post(&id, r#"{"a":2}"#).await;
    let token = issue(&fixture.node, "books", "accounting-ops", Some("zeta")).await.token;
    let books = Shell::new().with("SNAVIO_URL", fixture.node.url()).with("SNAVIO_TOKEN", &token);
    let operator = Shell::at(&fixture.node);
    for (shell, tenant_flag) in [(&books, ""), (&operator, "--tenant zeta")] {
        let letters = eventually("the dead letter is listed", async || {
            let ended =
                shell.run(&format!("dead-letters list --queue exceptions {tenant_flag} --output json"));
            assert_eq!(ended.code, Some(0), "{ended:?}");
            ended.json()["items"].as_array().filter(|items| !items.is_empty()).cloned()
        })
        .await;
        assert_eq!((letters.len(), &letters[0]["reason"]), (1, &json!("conflict")), "{letters:?}");
        let letter = &letters[0]["id"];
        let shown = shell.run(&format!("dead-letters show {letter} {tenant_flag} --output json"));
        assert_eq!(shown.code, Some(0), "{shown:?}");
        assert_eq!(shown.json()["content"]["command"]["payload"], json!({ "a": 2 }), "{shown:?}");
        // The command reaches the gateway, which refuses it with the reason.
        let redriven = shell.run(&format!("dead-letters redrive {letter} {tenant_flag} --why x"));
        assert_eq!(redriven.code, Some(1), "{redriven:?}");
        assert!(redriven.err.contains("evidence of a conflict"), "{redriven:?}");
    }
    assert_eq!(books.run("dead-letters list --tenant acme").code, Some(1));
}

/// QUA-5, CLM-8: the first message under an id may have gone to another tenant than the second.
#[tokio::test]
async fn first_message_for_another_tenant_stays_hidden() {
    let fixture = Fixture::start().await;
    let other = json!({
        "tenants": [{ "name": "yota" }], "services": [{ "name": "yota/ledger" }],
        "routes": [{
            "target": "yota/ledger", "name": "post-entry", "queue": "entries", "dead_letter_queue": "exceptions",
            "claim": { "policy": "ledger" },
        }],
        "grants": [{ "source": "acme/billing", "target": "yota/ledger", "name": "post-entry" }],
    });
    fixture.node.apply(&other).await;
    let id = new_id();
    assert_eq!(fixture.post(&id, r#"{"salary":1471147114}"#).await.0, 202);
    let draft = Draft {
        target: "yota/ledger".into(),
        payload: r#"{"amount":1}"#.into(),
        ..Draft::new("post-entry", &id)
    };
    let (status, answer) = post(&fixture.node.client(&fixture.billing), draft.sign(&fixture.billing)).await;
    assert_eq!(status, 409, "{answer}");
    let conflict = answer["conflict_id"].as_i64().unwrap();
    let books = fixture.person("accounting-ops", "yota").await;
    let (status, whole) = get(&books, &format!("/v1/conflicts/{conflict}")).await;
    assert_eq!(
        (status, &whole["original"], &whole["differences"]),
        (200, &Value::Null, &json!([])),
        "{whole}"
    );
    assert!(
        !whole.to_string().contains("1471147114")
            && whole["conflicting"]["command"]["payload"]["amount"] == 1,
        "{whole}"
    );
    let all = fixture.node.get(&format!("/v1/conflicts/{conflict}")).await;
    assert_eq!(all["original"]["command"]["payload"]["salary"], 1471147114, "an operator sees both");
}

/// CLM-1, CLM-8: within a tenant, too, a conflict shows the first message only to its sender, its recipient
/// and people. A service sees claims and conflicts only of messages that it sent or received.
#[tokio::test]
async fn provoked_conflict_does_not_reveal_another_services_message() {
    let node = Node::start();
    let registry = json!({
        "tenants": [{ "name": "acme" }],
        "services": [
            { "name": "acme/billing" }, { "name": "acme/spy" }, { "name": "acme/bystander" }, { "name": "acme/bot" },
        ],
        "routes": [{
            "target": "acme/bot", "name": "book", "queue": "book", "dead_letter_queue": "dead",
            "claim": { "policy": "ledger" }, "processing": { "kind": "tracked" },
        }],
        "grants": [
            { "source": "acme/billing", "target": "acme/bot", "name": "book" },
            { "source": "acme/spy", "target": "acme/bot", "name": "book" },
        ],
    });
    let all = <[Credentials; 4]>::try_from(node.apply(&registry).await).unwrap();
    let [billing, spy, bystander, bot] = &all;
    let id = new_id();
    let mut answers = Vec::new();
    for (service, payload) in [(billing, r#"{"salary":1471147114}"#), (spy, r#"{"salary":1}"#)] {
        let draft = Draft { payload: payload.into(), ..Draft::new("book", &id) };
        answers.push(post(&node.client(service), draft.sign(service)).await);
    }
    assert_eq!((answers[0].0, answers[1].0), (202, 409), "{answers:?}");
    let conflict = answers[1].1["conflict_id"].as_i64().unwrap();
    let path = format!("/v1/conflicts/{conflict}");
    let (status, whole) = get(&service_api(&node, spy).await, &path).await;
    assert_eq!(
        (status, &whole["original"], &whole["differences"]),
        (200, &Value::Null, &json!([])),
        "{whole}"
    );
    assert!(!whole.to_string().contains("1471147114"), "{whole}");
    assert_eq!(whole["conflicting"]["command"]["payload"], json!({ "salary": 1 }), "its own");
    let viewer = node.api().with_token(&issue(&node, "Vera", "tenant-viewer", Some("acme")).await.token);
    for caller in [service_api(&node, bot).await, viewer, node.operator()] {
        let (status, whole) = get(&caller, &path).await;
        let salary = &whole["original"]["command"]["payload"]["salary"];
        assert_eq!(
            (status, salary, whole["differences"].as_array().map(Vec::len)),
            (200, &json!(1471147114), Some(1))
        );
    }
    assert_eq!(get(&service_api(&node, bystander).await, &path).await.0, 404);
    eventually("the conflict is listed", async || {
        let (_, page) = get(&service_api(&node, bot).await, "/v1/conflicts").await;
        (page["items"].as_array().map(Vec::len) == Some(1)).then_some(())
    })
    .await;
    for (service, conflicts, claims) in [(spy, 1, 0), (bystander, 0, 0), (billing, 0, 1), (bot, 1, 1)] {
        for (path, count) in [("/v1/conflicts", conflicts), ("/v1/claims", claims)] {
            let (status, page) = get(&service_api(&node, service).await, path).await;
            assert_eq!(
                (status, page["items"].as_array().map(Vec::len)),
                (200, Some(count)),
                "{path}: {page}"
            );
        }
    }
}

/// MSG-8, MSG-9, CLM-8: pairs of contents that have one content hash (200), and pairs that have two (409).
#[tokio::test]
async fn content_hash_separates_duplicates_from_conflicts() {
    let fixture = Fixture::start().await;
    for (first, second, status) in [
        (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, 200),
        (r#"{"a":1}"#, r#"{"a":1.0}"#, 200),
        ("{\"a\":\"\u{e9}\"}", "{\"a\":\"e\u{301}\"}", 409),
        (r#"{"a":9007199254740993}"#, r#"{"a":9007199254740992}"#, 409),
        (r#"{"postingDate":"2026-11-15"}"#, r#"{"postingDate":"2026-11-16"}"#, 409),
        (r#"{"offset":1}"#, r#"{"offset":2}"#, 409),
    ] {
        let id = new_id();
        assert_eq!(fixture.post(&id, first).await.0, 202, "{first}");
        let (actual, answer) = fixture.post(&id, second).await;
        assert_eq!(actual, status, "{first} {second}: {answer}");
    }
}

/// CLM-8: the gateway accepts one of 20 different contents that arrive at the same time under one id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_contents_yield_a_single_accepted_message() {
    let fixture = Fixture::start().await;
    let id = new_id();
    let bodies: Vec<_> = (0..20).map(|amount| format!(r#"{{"a":{amount}}}"#)).collect();
    let answers = futures_util::future::join_all(bodies.iter().map(|body| fixture.post(&id, body))).await;
    let [accepted, refused] =
        [202, 409].map(|wanted| answers.iter().filter(|(status, _)| *status == wanted).count());
    assert_eq!((accepted, refused), (1, 19), "{answers:?}");
}

/// CLM-8: each of 10,000 other contents under one id gets a 409. They leave 100 conflicts, dead letters,
/// audit records and telemetry records.
#[tokio::test]
async fn flood_of_contents_under_an_id_leaves_bounded_records() {
    const CONTENTS: usize = 10_000;
    const RECORDS: usize = 100;
    let fixture = Fixture::start().await;
    let id = new_id();
    let client = fixture.node.client(&fixture.billing);
    assert_eq!(fixture.post(&id, r#"{"a":"first"}"#).await.0, 202);
    assert_eq!(fixture.post(&id, r#"{"a":0}"#).await.0, 409);
    for part in (1..CONTENTS).collect::<Vec<_>>().chunks(BATCH_MESSAGES_MAX) {
        let bodies: Vec<_> =
            part.iter().map(|amount| fixture.sign(&id, &format!(r#"{{"a":{amount}}}"#))).collect();
        let answers = post_batch(&client, &bodies).await.unwrap();
        assert_eq!(answers.len(), part.len());
        assert!(
            answers.iter().all(|result| result["status"] == 409 && result["reason"] == "conflict"),
            "{answers:?}"
        );
    }
    let conflicts = fixture
        .node
        .items("/v1/conflicts?limit=1000", |items| {
            items.iter().filter_map(|conflict| conflict["count"].as_u64()).sum::<u64>() == CONTENTS as u64
        })
        .await;
    assert_eq!(conflicts.len(), RECORDS);
    assert_eq!(metric(&fixture.node, "events_conflicts_total").await, Some(CONTENTS as f64));
    let books = fixture.node.client(&fixture.ledger);
    for list in ["telemetry?type=snavio.claim.conflict&", "dead-letters?"] {
        eventually(list, async || {
            let listed = books.call(Method::GET, &format!("/v1/{list}limit=1000"), None).await.unwrap();
            (listed["items"].as_array().map(Vec::len) == Some(RECORDS)).then_some(())
        })
        .await;
    }
    fixture.node.items("/v1/audit?limit=1000", |items| count_opened(items) == RECORDS).await;
}

/// The conflicts that a log reports: the number with a line of their own, and the count of each summary line.
fn count_in_log(log: &str) -> (usize, Vec<usize>) {
    let single = log.lines().filter(|line| line.contains("an id was used for two contents")).count();
    let summaries = log.lines().filter(|line| line.contains("more ids were used for two contents"));
    let counts = summaries.map(|line| {
        let count = line.split_once("count").unwrap().1;
        let digits = count.chars().skip_while(|character| !character.is_ascii_digit());
        digits.take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
    });
    (single, counts.collect())
}

/// CLM-21: a flood of conflicts does not flood the log. Some conflicts get a line of their own and a summary
/// counts the rest, so that none is missing. Each one has its own audit record and telemetry record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_of_conflicts_is_summarized_in_the_log() {
    const IDS: usize = 400;
    let mut fixture = Fixture::start().await;
    fixture.flood(IDS).await;
    let (single, summaries) = eventually("the log counts all conflicts", async || {
        let (single, summaries) = count_in_log(&fixture.node.said());
        (single + summaries.iter().sum::<usize>() == IDS).then_some((single, summaries))
    })
    .await;
    // A summary covers at most a second. The two batches may have taken several seconds.
    assert!((10..=100).contains(&single) && !summaries.is_empty(), "{single} lines, and {summaries:?}");
    assert!(single <= 10 * (summaries.len() + 1), "{single} lines, and {summaries:?}");
    let deeds = fixture.node.get("/v1/audit?limit=1000").await;
    assert_eq!(count_opened(deeds["items"].as_array().unwrap()), IDS);
    assert_eq!(metric(&fixture.node, "events_conflicts_total").await, Some(IDS as f64));
    let books = fixture.node.client(&fixture.ledger);
    let records =
        books.call(Method::GET, "/v1/telemetry?type=snavio.claim.conflict&limit=1000", None).await.unwrap();
    assert_eq!(records["items"].as_array().unwrap().len(), IDS);

    // A node that stops logs the summary of its last second.
    fixture.flood(20).await;
    fixture.node.stop();
    let (single, summaries) = count_in_log(&fixture.node.said());
    assert_eq!(single + summaries.iter().sum::<usize>(), IDS + 20);
}

/// CLM-15
#[tokio::test]
async fn ledger_retention_under_seven_years_is_refused() {
    let fixture = Fixture::start().await;
    let route = json!({ "routes": [{
        "target": "zeta/ledger", "name": "post-entry", "queue": "entries", "dead_letter_queue": "exceptions",
        "claim": { "policy": "ledger", "keep_seconds": 2556 * 86_400 },
    }] });
    let body = Some(route.to_string().into_bytes());
    let sent =
        fixture.node.operator().send(Method::POST, "/v1/registry/apply", body, "application/json").await;
    let (status, answer) = verdict(sent);
    assert_eq!(status, 409, "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains("2557 days × 86400 s = 220924800 s"), "{answer}");
}

/// CLM-8, CLM-11, CLM-18: lists on the command line contain all items, as a table and as JSON.
#[tokio::test]
async fn command_line_lists_are_complete() {
    const CONFLICTS: usize = 1_001;
    let fixture = Fixture::start().await;
    let mut left = CONFLICTS;
    while left > 0 {
        let some = left.min(BATCH_MESSAGES_MAX);
        fixture.flood(some).await;
        left -= some;
    }
    let shell = Shell::at(&fixture.node);
    eventually("all conflicts are listed", async || {
        let listed = shell.run("conflicts list --tenant zeta --output json").json();
        (listed["items"].as_array().map(Vec::len) == Some(CONFLICTS)).then_some(())
    })
    .await;
    let table = shell.run("conflicts list --tenant zeta");
    assert_eq!(table.out.lines().filter(|line| line.contains("OPEN")).count(), CONFLICTS, "{}", table.err);
    let deeds = shell.run("audit deeds --output json").json();
    assert_eq!(count_opened(deeds["items"].as_array().unwrap()), CONFLICTS);
    let ledger = shell.write("ledger.json", &serde_json::to_string(&fixture.ledger).unwrap());
    let letters = shell.run(&format!("dead-letters list -c {ledger} --output json")).json();
    let letters: std::collections::BTreeSet<_> =
        letters["items"].as_array().unwrap().iter().map(|letter| letter["id"].as_i64()).collect();
    assert_eq!(letters.len(), CONFLICTS);
}

/// The index of the first line that contains a text.
fn line_with(lines: &[&str], text: &str) -> usize {
    lines.iter().position(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}: {lines:?}"))
}

/// CLM-14
#[tokio::test]
async fn conflict_show_prints_both_messages_and_all_notes() {
    let fixture = Fixture::start().await;
    let id = new_id();
    assert_eq!(
        fixture.post(&id, r#"{"amount": 1.00000000000000000000000000000001, "to": "1200"}"#).await.0,
        202
    );
    let conflict =
        fixture.post(&id, r#"{"amount": 1.00000000000000000000000000000002, "to": "1200"}"#).await.1;
    let conflict = conflict["conflict_id"].to_string();
    let shell = Shell::at(&fixture.node);
    for words in [
        &["triage", &conflict, "--note", "asked the shop"][..],
        &["resolve", &conflict, "--accept", "original", "--note", "sent twice"],
    ] {
        let moved = shell.run_words(&[&["conflicts"], words].concat());
        assert_eq!(moved.code, Some(0), "{moved:?}");
    }
    let shown = shell.run_words(&["conflicts", "show", &conflict]);
    let lines: Vec<_> = shown.out.lines().collect();
    for empty in ["original: ", "conflicting: ", "differences"] {
        assert!(!lines.iter().any(|line| line.starts_with(empty)), "{}", shown.out);
    }
    assert!(!shown.out.contains('\u{fffd}'), "{}", shown.out);
    let note = line_with(&lines, "TRIAGED: asked the shop");
    assert_eq!(
        (lines[note - 1], line_with(&lines, "RESOLVED_ACCEPT_ORIGINAL: sent twice")),
        ("resolutionNotes:", note + 1)
    );
    let (first, second) = (line_with(&lines, "original:"), line_with(&lines, "conflicting:"));
    let amounts: Vec<_> = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.contains("\"amount\": 1.0000"))
        .map(|(at, _)| at)
        .collect();
    assert!(
        amounts.len() == 2 && first < amounts[0] && amounts[0] < second && second < amounts[1],
        "{}",
        shown.out
    );
    let difference = lines[line_with(&lines, "/amount")];
    for digits in ["1.00000000000000000000000000000001", "1.00000000000000000000000000000002"] {
        assert!(difference.contains(digits), "{difference}");
        assert!(amounts.iter().any(|at| lines[*at].contains(digits)), "{}", shown.out);
    }
    let shown = shell.run_words(&["claims", "show", &id, "--tenant", "acme"]);
    assert!(
        !shown.out.contains("claims:") && shown.out.contains("destination: zeta/ledger:post-entry"),
        "{}",
        shown.out
    );
}
