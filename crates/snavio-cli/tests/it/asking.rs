//! Command-line look-ups of sent messages (`claims`, `explain`, `erasures`), and the advice of `emit` after a
//! refusal (CLM-6, CLM-8, CLM-10, CLM-18).

use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::Credentials;
use uuid::{NoContext, Timestamp, Uuid};

use crate::node::{Draft, Node, new_id, post};
use crate::patience::eventually;
use crate::people::issue;
use crate::processing::{Books, http};
use crate::processor::{Processor, Reply};
use crate::shell::{Ended, Shell};

/// A time-ordered id from so many seconds ago.
fn id_made(seconds_ago: u64) -> String {
    let (now, _) = Uuid::now_v7().get_timestamp().unwrap().to_unix();
    Uuid::new_v7(Timestamp::from_unix(NoContext, now - seconds_ago, 0)).to_string()
}

fn route(target: &str, name: &str, claim: &str) -> Value {
    json!({ "target": target, "name": name, "queue": name, "dead_letter_queue": "dead", "claim": { "policy": claim } })
}

/// Runs `claims show` and returns the outcome that it prints.
fn shown_outcome(shell: &Shell, id: &str, more: &str) -> Value {
    let shown = shell.run(&format!("claims show {id} --tenant acme --output json {more}"));
    assert_eq!(shown.code, Some(0), "{shown:?}");
    shown.json()["outcome"].clone()
}

/// Two routes of one service: `post` with this claim policy, and `other` with `ledger`.
fn registry_with(claim: &str) -> Value {
    json!({
        "tenants": [{ "name": "acme" }], "services": [{ "name": "acme/ledger" }],
        "routes": [route("acme/ledger", "post", claim), route("acme/ledger", "other", "ledger")],
    })
}

/// CLM-10: an id without a claim was never seen if a claim of its age could not have expired yet.
#[tokio::test]
async fn unknown_id_is_never_seen_within_claim_retention() {
    let node = Node::start();
    let registry = json!({
        "tenants": [{ "name": "acme" }, { "name": "zeta" }],
        "services": [{ "name": "acme/shop" }, { "name": "acme/ledger" }, { "name": "zeta/bot" }],
        "routes": [
            route("acme/ledger", "post", "ledger"), route("acme/ledger", "note", "none"), route("zeta/bot", "run", "strict"),
        ],
    });
    node.apply(&registry).await;
    let shell = Shell::at(&node);
    let id = id_made(7200);
    let outcome = |more: &str| shown_outcome(&shell, &id, more);
    assert_eq!(outcome(""), "never_seen", "acme has no grant to zeta's route");
    assert_eq!(outcome("--destination acme/ledger:post"), "never_seen");
    assert_eq!(outcome("--destination zeta/bot:run"), "beyond_horizon");
    // With a grant, acme may have sent the id to zeta's route, and a claim there would have expired already.
    node.apply(&json!({ "grants": [{ "source": "acme/shop", "target": "zeta/bot", "name": "*" }] })).await;
    assert_eq!(outcome(""), "beyond_horizon");
    assert_eq!(outcome("--destination acme/ledger:post"), "never_seen");
}

/// CLM-10: the retention that a destination has today says nothing about its retention when an id was sent.
#[tokio::test]
async fn id_older_than_a_route_change_is_beyond_the_horizon() {
    let node = Node::start();
    node.apply(&registry_with("none")).await;
    let shell = Shell::at(&node);
    let outcome = |id: &str, more: &str| shown_outcome(&shell, id, more);
    let post = "--destination acme/ledger:post";
    let old = id_made(60);
    assert_eq!(outcome(&old, ""), "never_seen", "a route that never made claims does not count");
    node.apply(&registry_with("ledger")).await;
    for id in [&old, "no-time-of-its-own"] {
        assert_eq!(outcome(id, post), "beyond_horizon", "{id}: it may have been sent and not claimed");
        assert_eq!(outcome(id, ""), "beyond_horizon", "{id}");
        assert_eq!(outcome(id, "--destination acme/ledger:other"), "never_seen", "{id}");
    }
    let typo = shell.run("claims show any --tenant acme --destination acme/ledger:ohter");
    assert!(typo.code == Some(1) && typo.err.contains("did you mean acme/ledger:other?"), "{typo:?}");
}

/// PIP-11: `explain` finds a message without a claim only among the newest messages.
#[tokio::test]
async fn explain_finds_unclaimed_messages_among_the_newest() {
    let node = Node::start();
    let cast = node.cast().await;
    let id = new_id();
    let draft = Draft::new("notify", &id);
    assert_eq!(post(&node.client(&cast.billing), draft.sign(&cast.billing)).await.0, 202);
    let shell = Shell::at(&node);
    let explained = shell.run(&format!("explain {id} --tenant acme --output json"));
    let explained = explained.json();
    let steps = explained["steps"].as_array().unwrap();
    assert_eq!((steps.len(), &steps[0]["stage"]), (1, &json!("fast")), "{explained}");
    assert_eq!(steps[0]["decision"], "granted, and taken as acme/bot notify; no claim of it is kept");
    assert_eq!(explained["messages_searched_in_part"], false, "{explained}");
    let of_bot = node.client(&cast.bot).call(Method::GET, &format!("/v1/messages/{id}/explain"), None).await;
    assert_eq!(of_bot.unwrap()["steps"], json!([]), "a service sees only messages that it sent");
}

async fn shell_of_role(node: &Node, role: &str) -> Shell {
    let token = issue(node, role, role, Some("acme")).await.token;
    Shell::new().with("SNAVIO_URL", node.url()).with("SNAVIO_TOKEN", &token)
}

/// CLM-5, CLM-16, CLM-18: an auditor reads responses, messages and erasures by commands.
#[tokio::test]
async fn auditor_reads_responses_and_erasures() {
    let processor = Processor::start().await;
    let books = Books::set(http(&processor)).await;
    let id = new_id();
    let body = r#"{"glPostingReference": "JE-1",  "amount":1.10}"#;
    processor.answers([Reply::new(201, body).header("Content-Type", "application/json")]);
    assert_eq!(books.send(&id, 10).await.status, 201);
    let node = &books.node;
    let auditor = shell_of_role(node, "auditor").await;
    let accounting = shell_of_role(node, "accounting-ops").await;
    let answer = auditor.run(&format!("claims answer {id}"));
    assert_eq!((answer.code, answer.out.as_str()), (Some(0), body), "byte for byte: {answer:?}");
    let message = auditor.run(&format!("claims message {id}")).json();
    assert_eq!((&message["eventId"], &message["data"]), (&json!(id), &json!({ "amount": 10 })), "{message}");
    let erased = accounting.run_words(&["erase", &id, "--tenant", "acme", "--why", "request 4711"]);
    assert_eq!(erased.code, Some(0), "{erased:?}");
    for shell in [&auditor, &accounting] {
        // Lists may lag for a moment.
        eventually("the erasure is listed", async || {
            let listed = shell.run("erasures list --output json").json();
            (listed["items"][0]["why"] == "request 4711").then_some(())
        })
        .await;
        assert!(shell.run("erasures list --tenant acme").out.contains("request 4711"));
    }
    let erased = auditor.run(&format!("claims answer {id}"));
    assert!(erased.code == Some(1) && erased.err.contains("its answer was erased"), "{erased:?}");
    let erased = auditor.run(&format!("claims message {id}"));
    assert!(erased.code == Some(1) && erased.err.contains("what it said was erased"), "{erased:?}");
    let deeds = auditor.run("audit deeds");
    assert!(deeds.code == Some(1) && deeds.err.contains("403 forbidden"), "{deeds:?}");
}

/// CLM-11: a page never splits the claims of one message. Otherwise the next page, which starts behind that
/// message, would lack the rest of them.
#[tokio::test]
async fn claim_pages_leave_none_out() {
    let node = Node::start();
    let subscriptions = ["acme/a", "acme/b", "acme/c"].map(|target| {
        json!({
            "target": target, "events_of": "acme/shop", "name": "paid", "queue": "paid", "dead_letter_queue": "dead",
            "claim": { "policy": "ledger" }, "processing": { "kind": "tracked" },
        })
    });
    let registry = json!({
        "tenants": [{ "name": "acme" }],
        "services": [{ "name": "acme/shop" }, { "name": "acme/a" }, { "name": "acme/b" }, { "name": "acme/c" }],
        "event_types": [{ "owner": "acme/shop", "name": "paid" }],
        "subscriptions": subscriptions,
    });
    let credentials: Vec<Credentials> = node.apply(&registry).await;
    let shop = node.client(&credentials[0]).authorized().await.unwrap();
    for id in ["e-1", "e-2"] {
        let event = json!({ "eventId": id, "eventType": "paid", "data": 1 });
        shop.call(Method::POST, "/v1/events", Some(&event)).await.unwrap();
    }
    for limit in [1, 2, 3, 4, 5, 6, 100] {
        let (mut found, mut after) = (Vec::new(), json!(0));
        loop {
            let page = node.get(&format!("/v1/claims?tenant=acme&limit={limit}&after={after}")).await;
            let items = page["items"].as_array().unwrap();
            if items.is_empty() {
                break;
            }
            found.extend(
                items.iter().map(|claim| (claim["eventId"].to_string(), claim["destination"].to_string())),
            );
            after = page["next"].clone();
        }
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 6, "{limit}: {found:?}");
    }
}

/// A shell that sends with `emit` and a service's credentials.
struct Sender {
    shell: Shell,
    credentials: String,
}

impl Sender {
    fn new(node: &Node, credentials: &Credentials) -> Self {
        let shell = Shell::at(node);
        let credentials = shell.write("credentials.json", &serde_json::to_string(credentials).unwrap());
        Self { shell, credentials }
    }

    fn emit(&self, words: &[&str]) -> Ended {
        self.shell.run_words(&[&["emit", "-c", &self.credentials], words].concat())
    }

    fn emit_paid(&self, id: &str, data: &str) -> Ended {
        self.emit(&["--event", "order.paid", "--id", id, data])
    }

    fn emit_build(&self, number: u32) -> Ended {
        let payload = json!({ "build": "b-1", "n": number }).to_string();
        self.emit(&["--target", "ci", "--name", "build", &payload])
    }
}

/// The part of an error that advises a retry under the same id.
const RETRY: &str = "a retry must use the same, --id";

/// CLM-6, CLM-8, MSG-12: `emit` gives advice that fits the refusal, and advises a retry only if a retry can
/// help.
#[tokio::test(flavor = "multi_thread")]
async fn emit_advises_on_a_refusal() {
    let processor = Processor::start().await;
    let books = Books::set(http(&processor)).await;
    let sender = Sender::new(&books.node, &books.shop);
    let id = new_id();
    assert_eq!(sender.emit_paid(&id, "1").code, Some(0));
    let conflict = sender.emit_paid(&id, "2");
    for expected in ["409 conflict", "needs another id", "use a new id for a new message"] {
        assert!(conflict.err.contains(expected), "{expected}: {conflict:?}");
    }
    assert!(!conflict.err.contains(RETRY), "{conflict:?}");

    let failing = new_id();
    let no = r#"{"code":"period_closed"}"#;
    processor.answers([Reply::new(422, no).header("Content-Type", "application/json")]);
    for _ in 0..2 {
        let failed = sender.emit_paid(&failing, "1");
        for expected in ["422 ", no, "failed for good"] {
            assert!(failed.err.contains(expected), "{expected}: {failed:?}");
        }
        assert!(failed.code == Some(1) && !failed.err.contains(RETRY), "{failed:?}");
    }

    let away = Shell::new();
    let lost = away.run_words(&[
        "emit",
        "-c",
        &sender.credentials,
        "--url",
        "http://127.0.0.1:1",
        "--event",
        "order.paid",
        "--id",
        &id,
        "1",
    ]);
    assert!(lost.err.contains(RETRY), "the outcome is unknown: {lost:?}");
}

/// ORD-1, MSG-12
#[tokio::test]
async fn emit_shows_the_numbers_of_a_late_message() {
    let node = Node::start();
    let mut build = route("acme/ci", "build", "strict");
    build["order"] = json!({ "entity": "/build", "number": "/n", "mode": "strict" });
    let registry = json!({
        "tenants": [{ "name": "acme" }], "services": [{ "name": "acme/git" }, { "name": "acme/ci" }], "routes": [build],
        "grants": [{ "source": "acme/git", "target": "acme/ci", "name": "build" }],
    });
    let credentials: Vec<Credentials> = node.apply(&registry).await;
    let sender = Sender::new(&node, &credentials[0]);
    assert_eq!(sender.emit_build(7).code, Some(0));
    let late = sender.emit_build(3);
    for expected in ["409 out_of_order", "its number is 3, and 7 was processed", "do not send it again"] {
        assert!(late.err.contains(expected), "{expected}: {late:?}");
    }
    assert!(!late.err.contains(RETRY), "{late:?}");
}
