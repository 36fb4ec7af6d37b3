//! Claims on the command line: look-up, reprocess, settle, explain, import, and redrive beyond the horizon
//! (CLM-10, CLM-11, CLM-20, PIP-11).

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::Credentials;

use crate::node::{Draft, Node, new_id, post, verdict};
use crate::patience::eventually;
use crate::people::issue;
use crate::shell::Shell;

struct Fixture {
    node: Node,
    billing: Credentials,
    bot: Credentials,
    other: Credentials,
}

impl Fixture {
    async fn start() -> Self {
        let node = Node::start();
        let [mut book, notify, see] = [("book", "ledger"), ("notify", "none"), ("see", "seen")].map(|(name, claim)| {
            json!({
                "target": "acme/bot", "name": name, "queue": name, "dead_letter_queue": "dead", "receives_max": 1,
                "claim": { "policy": claim },
            })
        });
        book["processing"] = json!({ "kind": "tracked" });
        let registry = json!({
            "tenants": [{ "name": "acme" }],
            "services": [{ "name": "acme/billing" }, { "name": "acme/bot" }, { "name": "acme/other" }],
            "routes": [book, notify, see],
            "grants": [{ "source": "acme/billing", "target": "acme/bot", "name": "*" }],
            "event_types": [{ "owner": "acme/billing", "name": "paid" }],
            "subscriptions": [{
                "target": "acme/bot", "events_of": "acme/billing", "name": "paid", "queue": "paid",
                "dead_letter_queue": "dead", "claim": { "policy": "seen" },
            }],
        });
        let [billing, bot, other] = <[Credentials; 3]>::try_from(node.apply(&registry).await).unwrap();
        Self { node, billing, bot, other }
    }

    async fn send(&self, name: &str, id: &str) -> (u16, Value) {
        post(&self.node.client(&self.billing), Draft::new(name, id).sign(&self.billing)).await
    }

    /// Sends a message to `book` and reports a final failure.
    async fn fail(&self, id: &str) {
        assert_eq!(self.send("book", id).await.0, 202);
        let worker = self.node.client(&self.bot);
        let work = worker.receive("book", 1, Duration::from_secs(30), Duration::from_secs(5)).await.unwrap();
        let body = json!({
            "delivery_id": work[0].delivery_id, "fence": work[0].fence, "error": "no such account", "final": true,
        });
        let failed = worker.call(Method::POST, "/v1/claims/book/fail", Some(&body)).await.unwrap();
        assert_eq!(failed["status"], "FAILED");
    }
}

/// CLM-10, CLM-11
#[tokio::test]
async fn failed_claims_are_listed_shown_and_reprocessed() {
    let fixture = Fixture::start().await;
    let ids = [new_id(), new_id(), new_id()];
    for id in &ids {
        fixture.fail(id).await;
    }
    let shell = Shell::at(&fixture.node);
    let listed = shell.run("claims list --tenant acme --status failed --output json").json();
    let found: Vec<_> =
        listed["items"].as_array().unwrap().iter().map(|claim| claim["eventId"].clone()).collect();
    assert_eq!(json!(found), json!(ids));
    let shown = shell.run(&format!("claims show {} --tenant acme", ids[0]));
    assert!(shown.out.contains("no such account") && shown.out.contains("failed"), "{shown:?}");
    let without_tenant = shell.run(&format!("claims show {}", ids[0]));
    assert!(
        without_tenant.code == Some(0) && without_tenant.out.contains("acme/bot:book"),
        "{without_tenant:?}"
    );
    let one = shell.run(&format!("claims reprocess {} --tenant acme --why mended --output json", ids[0]));
    assert_eq!(one.json()["reprocessed"], 1, "{one:?}");
    let settle = format!("claims settle {} --tenant acme --reference JE-1 --why seen --output json", ids[1]);
    let settled = shell.run(&settle).json();
    assert_eq!((&settled["status"], &settled["glPostingReference"]), (&json!("COMPLETED"), &json!("JE-1")));
    let rest = shell.run("claims reprocess --status failed --tenant acme --why mended --output json");
    assert_eq!(rest.json()["reprocessed"], 1, "{rest:?}");
    let neither = shell.run("claims reprocess --tenant acme --why mended");
    assert_eq!(neither.code, Some(2), "{neither:?}");
    let open = shell.run("claims list --tenant acme --output json").json();
    let open: Vec<_> =
        open["items"].as_array().unwrap().iter().map(|claim| claim["status"].clone()).collect();
    assert_eq!(open, ["PROCESSING"; 2]);
}

/// CLM-11: with several claims under one id, reprocessing needs the destination. A refused id does not keep
/// the others from being reprocessed.
#[tokio::test]
async fn reprocess_selects_by_destination_and_skips_refused_ids() {
    let fixture = Fixture::start().await;
    let shell = Shell::at(&fixture.node);
    let (id, other) = (new_id(), new_id());
    for id in [&id, &other] {
        fixture.fail(id).await;
    }
    // The same id, with the same content, at another destination.
    assert_eq!(fixture.send("see", &id).await.0, 202);
    let why = ["--tenant", "acme", "--why", "mended", "--output", "json"];
    let reprocess = |more: &[&str]| shell.run_words(&[&["claims", "reprocess"][..], more, &why].concat());
    let several = reprocess(&[&id]);
    assert!(several.code == Some(1) && several.err.contains("name one"), "{several:?}");
    let some = reprocess(&[&new_id(), &id, &other]);
    assert_eq!(some.code, Some(1), "{some:?}");
    assert_eq!(some.json(), json!({ "reprocessed": 1, "refused": 2 }), "{some:?}");
    assert!(some.err.contains("2 were refused") && some.err.contains(&id), "{some:?}");
    let one = reprocess(&[&id, "--destination", "acme/bot:book"]);
    assert_eq!((one.code, &one.json()["reprocessed"]), (Some(0), &json!(1)), "{one:?}");
}

/// PIP-11
#[tokio::test]
async fn every_decision_on_a_message_can_be_explained() {
    let fixture = Fixture::start().await;
    let id = new_id();
    fixture.fail(&id).await;
    fixture.send("nothing", &id).await;
    let mut draft = Draft::new("book", &id);
    draft.payload = r#"{"other":1}"#.to_owned();
    post(&fixture.node.client(&fixture.billing), draft.sign(&fixture.billing)).await;
    let shell = Shell::at(&fixture.node);
    let explain = format!("explain {id} --tenant acme");
    let steps = eventually("all steps are on record", async || {
        let explained = shell.run(&format!("{explain} --output json")).json();
        let steps = explained["steps"].as_array().unwrap().clone();
        ["route-missing", "routed to acme/bot:book", "was claimed", "it is FAILED", "a conflict at"]
            .iter()
            .all(|text| steps.iter().any(|step| step.to_string().contains(text)))
            .then_some(steps)
    })
    .await;
    let routed =
        steps.iter().find(|step| step["decision"] == "granted, and routed to acme/bot:book").unwrap();
    assert_eq!(
        (&routed["basis"]["key_version"], &routed["basis"]["source"]),
        (&json!("hmac-v1"), &json!("acme/billing"))
    );
    let processing = steps.iter().find(|step| step["stage"] == "processing").unwrap();
    assert_eq!(processing["basis"]["error"], "no such account");
    let explanation = shell.run(&explain).out;
    assert!(
        explanation.contains("  processing: it is FAILED\n")
            && explanation.contains("\n  error: no such account\n"),
        "{explanation}"
    );
    // Another service of the tenant learns nothing about this service's message or its conflict.
    let path = format!("/v1/messages/{id}/explain");

    for (service, conflicts) in [(&fixture.billing, 1), (&fixture.bot, 1), (&fixture.other, 0)] {
        let explained = fixture.node.client(service).call(Method::GET, &path, None).await.unwrap();
        assert_eq!(explained.to_string().matches("a conflict at").count(), conflicts, "{explained}");
    }
    let unknown = shell.run(&format!("explain {} --tenant acme", new_id()));
    assert!(unknown.out.contains("nothing is on record"), "{unknown:?}");
}

/// CLM-10
#[tokio::test]
async fn imported_seen_events_are_duplicates() {
    let fixture = Fixture::start().await;
    let shell = Shell::at(&fixture.node);
    let (known, old, unknown) = (new_id(), new_id(), new_id());
    let table = snavio_sdk::sqlite::rusqlite::Connection::open(shell.path("kira.db")).unwrap();
    let seen = crate::node::seconds_from_now(-3600);
    let naive = seen.trim_end_matches('Z');
    let fill = format!(
        "CREATE TABLE seen_events (event_id TEXT PRIMARY KEY, first_seen_ts TEXT NOT NULL, last_seen_ts TEXT NOT NULL); \
         INSERT INTO seen_events VALUES ('{known}', '{naive}', '{naive}'), ('{old}', '2001-01-01 00:00:00', '2001-01-01 00:00:00');"
    );
    table.execute_batch(&fill).unwrap();
    let import = "claims import --from kira.db --source acme/billing --destination acme/bot:see --why moving --output json";
    assert_eq!(shell.run(import).json(), json!({ "imported": 1, "left_out": 1 }));
    assert_eq!(shell.run(import).json(), json!({ "imported": 0, "left_out": 2 }), "imported only once");
    let (status, answer) = fixture.send("see", &known).await;
    assert_eq!(
        (status, &answer["duplicate"], &answer["first_seen_at"]),
        (200, &json!(true), &json!(seen)),
        "{answer}"
    );
    assert_eq!(fixture.send("see", &unknown).await.0, 202);
    assert_eq!(fixture.send("see", &old).await.0, 202);
    let compared = shell.run(&import.replace("bot:see", "bot:book"));
    assert!(compared.code == Some(1) && compared.err.contains("its policy is ledger"), "{compared:?}");
    let unknown_source = shell.run(&import.replace("acme/billing", "acme/biling"));
    assert!(
        unknown_source.code == Some(1) && unknown_source.err.contains("there is no service acme/biling"),
        "{unknown_source:?}"
    );
    let subscribed = import.replace("acme/bot:see", "acme/bot:acme/billing:paid");
    let other = shell.run(&subscribed.replace("acme/billing --", "acme/other --"));
    assert!(other.code == Some(1) && other.err.contains("to events of acme/billing"), "{other:?}");
    assert_eq!(shell.run(&subscribed).json()["imported"], 1);
    let missing = shell.run(&import.replace("kira.db", "none.db"));
    assert!(missing.code == Some(1) && missing.err.contains("none.db"), "{missing:?}");
}

async fn redrive(worker: &snavio_sdk::Client, path: &str, body: Value) -> (u16, Value) {
    let api = worker.authorized().await.unwrap();
    verdict(api.send(Method::POST, path, Some(body.to_string().into_bytes()), "application/json").await)
}

/// CLM-20
#[tokio::test]
async fn redrive_beyond_the_horizon_needs_explicit_consent() {
    let fixture = Fixture::start().await;
    for _ in 0..2 {
        assert_eq!(fixture.send("notify", &new_id()).await.0, 202);
    }
    let worker = fixture.node.client(&fixture.bot);
    let letters = eventually("both are dead letters", async || {
        worker.receive("notify", 10, Duration::ZERO, Duration::ZERO).await.unwrap();
        let letters = worker.call(Method::GET, "/v1/dead-letters", None).await.unwrap();
        let letters = letters["items"].as_array().unwrap().clone();
        (letters.len() == 2).then_some(letters)
    })
    .await;
    // From now on the route makes claims, but these two messages have none.
    let route = json!({ "queue": "notify", "dead_letter_queue": "dead", "claim": { "policy": "strict" } });
    let body = Some(route.to_string().into_bytes());
    let put = fixture
        .node
        .operator()
        .send(Method::PUT, "/v1/routes/acme/bot/notify", body, "application/json")
        .await;
    assert_eq!(verdict(put).0, 200);

    let one = format!("/v1/dead-letters/{}/redrive", letters[0]["id"]);
    for path in [one.as_str(), "/v1/queues/dead/redrive"] {
        let (status, refused) = redrive(&worker, path, json!({ "why": "mended" })).await;
        assert_eq!((status, &refused["reason"]), (409, &json!("beyond_horizon")), "{refused}");
    }
    // The route now makes no claims, but it may have made some before.
    let route = json!({ "queue": "notify", "dead_letter_queue": "dead" });
    let body = Some(route.to_string().into_bytes());
    let put = fixture
        .node
        .operator()
        .send(Method::PUT, "/v1/routes/acme/bot/notify", body, "application/json")
        .await;
    assert_eq!(verdict(put).0, 200);
    let (status, refused) = redrive(&worker, &one, json!({ "why": "mended" })).await;
    assert_eq!((status, &refused["reason"]), (409, &json!("beyond_horizon")), "{refused}");
    let (status, refused) = redrive(&worker, &one, json!({ "beyond_horizon": true })).await;
    assert_eq!((status, &refused["reason"]), (400, &json!("invalid_request")), "{refused}");
    let consent = json!({ "why": "billing has not sent it again", "beyond_horizon": true });
    for path in [one.as_str(), "/v1/queues/dead/redrive"] {
        let (status, answer) = redrive(&worker, path, consent.clone()).await;
        assert_eq!((status, &answer["redriven"]), (200, &json!(1)), "{answer}");
    }
    let deeds = fixture.node.get("/v1/audit").await;
    let redrives =
        deeds["items"].as_array().unwrap().iter().filter(|action| action["action"] == "dead_letter.redrive");
    assert!(
        redrives.clone().all(|action| action["why"] == "beyond the horizon: billing has not sent it again")
    );
    assert_eq!(redrives.count(), 2);
}

/// CLM-10: an id may equal a word of the API, or a path segment such as `..`.
#[tokio::test]
async fn odd_ids_are_looked_up_or_refused_in_clear_words() {
    let fixture = Fixture::start().await;
    let shell = Shell::at(&fixture.node);
    for id in ["import", "a/b", "...", "x?y"] {
        let shown = shell.run_words(&["claims", "show", id, "--tenant", "acme", "--output", "json"]);
        assert_eq!((shown.code, &shown.json()["eventId"]), (Some(0), &json!(id)), "{shown:?}");
    }
    for id in [".", ".."] {
        for command in [&["claims", "show"][..], &["explain"]] {
            let refused = shell.run_words(&[command, &[id, "--tenant", "acme"]].concat());
            assert!(refused.code == Some(1) && refused.err.contains("a step of the path"), "{refused:?}");
        }
    }
}

/// CLM-1, CLM-10: a sender can look up its own ids at another tenant's destination that it has a grant for.
#[tokio::test]
async fn sender_learns_never_seen_at_anothers_destination() {
    let fixture = Fixture::start().await;
    let registry = json!({
        "tenants": [{ "name": "kira" }, { "name": "zeta" }, { "name": "mars" }],
        "services": [{ "name": "kira/shop" }, { "name": "zeta/shop" }, { "name": "mars/shop" }],
        "grants": [
            { "source": "kira/shop", "target": "acme/bot", "name": "book" },
            { "source": "zeta/shop", "target": "acme/bot", "name": "book" },
        ],
    });
    let [kira, zeta, mars] = <[Credentials; 3]>::try_from(fixture.node.apply(&registry).await).unwrap();
    let seen = new_id();
    let draft = Draft { target: "acme/bot".to_owned(), ..Draft::new("book", &seen) };
    assert_eq!(post(&fixture.node.client(&zeta), draft.sign(&zeta)).await.0, 202);
    let mut callers = Vec::new();
    for (service, tenant) in [(&kira, "kira"), (&zeta, "zeta"), (&mars, "mars")] {
        callers.push((fixture.node.api().with_token(&fixture.node.token(service).await), tenant));
        let viewer = issue(&fixture.node, tenant, "tenant-viewer", Some(tenant)).await;
        callers.push((fixture.node.api().with_token(&viewer.token), tenant));
    }
    for (caller, tenant) in &callers {
        for (id, is_sent) in [(&seen, true), (&new_id(), false)] {
            let path = format!("/v1/claims/{id}?destination=acme/bot:book");
            let (status, found) = verdict(caller.send(Method::GET, &path, None, "").await);
            let expected = match *tenant {
                "zeta" if is_sent => (200, json!("in_progress")),
                "zeta" | "kira" => (200, json!("never_seen")),
                _ => (404, Value::Null),
            };
            assert_eq!((status, found["outcome"].clone()), expected, "{tenant}: {found}");
        }
    }
}

/// CLM-1, CLM-10, CLM-11: the owner of a destination finds, settles and reprocesses every claim that its list
/// shows.
#[tokio::test]
async fn owner_finds_claims_of_every_sender() {
    let fixture = Fixture::start().await;
    let registry = json!({
        "tenants": [{ "name": "acme" }, { "name": "kira" }, { "name": "zeta" }],
        "services": [{ "name": "kira/shop" }, { "name": "zeta/shop" }, { "name": "zeta/idle" }],
        "grants": [
            { "source": "kira/shop", "target": "acme/bot", "name": "book" },
            { "source": "zeta/shop", "target": "acme/bot", "name": "book" },
        ],
    });
    let senders = <[Credentials; 3]>::try_from(fixture.node.apply(&registry).await).unwrap();
    let shell = Shell::at(&fixture.node);
    let auditor = issue(&fixture.node, "ada", "auditor", Some("acme")).await;
    let auditor = fixture.node.api().with_token(&auditor.token);
    let get = async |path: &str| verdict(auditor.send(Method::GET, path, None, "").await);
    let worker = fixture.node.client(&fixture.bot);
    for id in [&new_id(), &new_id()] {
        for sender in &senders[..2] {
            let draft = Draft { target: "acme/bot".to_owned(), ..Draft::new("book", id) };
            assert_eq!(post(&fixture.node.client(sender), draft.sign(sender)).await.0, 202);
            let work =
                worker.receive("book", 1, Duration::from_secs(30), Duration::from_secs(5)).await.unwrap();
            let body = json!({
                "delivery_id": work[0].delivery_id, "fence": work[0].fence, "error": "no account", "final": true,
            });
            worker.call(Method::POST, "/v1/claims/book/fail", Some(&body)).await.unwrap();
        }
        let mut look_ups = Vec::new();
        for path in [id.to_owned(), format!("{id}?tenant=acme"), format!("{id}?destination=acme/bot:book")] {
            look_ups.push(get(&format!("/v1/claims/{path}")).await.1);
            look_ups.push(worker.call(Method::GET, &format!("/v1/claims/{path}"), None).await.unwrap());
        }
        for flags in ["", "--tenant acme", "--destination acme/bot:book"] {
            look_ups.push(shell.run(&format!("claims show {id} {flags} --output json")).json());
        }
        for found in look_ups {
            assert_eq!(
                (&found["outcome"], &found["tenants"]),
                (&json!("failed"), &json!(["kira", "zeta"])),
                "{found}"
            );
        }
        // A sender sees only its own claims, and a service that sent nothing sees none.
        let kira = fixture
            .node
            .client(&senders[0])
            .call(Method::GET, &format!("/v1/claims/{id}"), None)
            .await
            .unwrap();
        assert_eq!(kira["tenants"], json!(["kira"]), "{kira}");
        let idle = fixture.node.client(&senders[2]);
        for path in [id.to_owned(), format!("{id}?tenant=kira"), format!("{id}?sender=kira")] {
            let hidden = idle.call(Method::GET, &format!("/v1/claims/{path}"), None).await;
            assert!(
                hidden.as_ref().is_err_and(|error| error.to_string().contains("no such claim")),
                "{hidden:?}"
            );
        }
        let never = idle.call(Method::GET, &format!("/v1/claims/{}", new_id()), None).await.unwrap();
        assert_eq!((&never["outcome"], &never["tenants"]), (&json!("never_seen"), &json!([])), "{never}");

        let several = shell.run(&format!("claims settle {id} --tenant acme --why seen"));
        assert!(several.code == Some(1) && several.err.contains("from tenant kira"), "{several:?}");
        let settle = format!(
            "claims settle {id} --tenant acme --sender kira --reference JE-1 --why seen --output json"
        );
        assert_eq!(shell.run(&settle).json()["tenant"], "kira");
        let all = shell.run("claims reprocess --status failed --tenant acme --why mended --output json");
        assert_eq!(all.json(), json!({ "reprocessed": 1, "refused": 0 }), "{all:?}");
        let (_, found) = get(&format!("/v1/claims/{id}?sender=zeta")).await;
        assert_eq!(found["outcome"], "in_progress", "{found}");
        worker.receive("book", 1, Duration::from_secs(600), Duration::from_secs(5)).await.unwrap();
    }
}
