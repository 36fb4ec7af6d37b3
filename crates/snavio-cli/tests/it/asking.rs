//! What people ask on the command line about what was sent, and what they are told when it was not taken (CLM-6, CLM-8,
//! CLM-10, CLM-18).

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

/// An id that was made so long ago, and says so.
fn id_made(seconds_ago: u64) -> String {
    let (now, _) = Uuid::now_v7().get_timestamp().unwrap().to_unix();
    Uuid::new_v7(Timestamp::from_unix(NoContext, now - seconds_ago, 0)).to_string()
}

fn route(target: &str, name: &str, claim: &str) -> Value {
    json!({ "target": target, "name": name, "queue": name, "dead_letter_queue": "dead", "claim": { "policy": claim } })
}

/// CLM-10: what could not have been forgotten yet was never there.
#[tokio::test]
async fn an_id_was_never_seen_where_every_claim_on_it_would_still_be_kept() {
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
    let outcome = |more: &str| {
        let shown = shell.run(&format!("claims show {id} --tenant acme --output json {more}"));
        assert_eq!(shown.code, Some(0), "{shown:?}");
        shown.json()["outcome"].clone()
    };
    assert_eq!(outcome(""), "never_seen", "others' routes are no way of its own");
    assert_eq!(outcome("--destination acme/ledger:post"), "never_seen");
    assert_eq!(outcome("--destination zeta/bot:run"), "beyond_horizon");
    // With a grant it may have been sent there.
    node.apply(&json!({ "grants": [{ "source": "acme/shop", "target": "zeta/bot", "name": "*" }] })).await;
    assert_eq!(outcome(""), "beyond_horizon");
    assert_eq!(outcome("--destination acme/ledger:post"), "never_seen");
}

/// CLM-10: what a destination keeps today says nothing of what it kept when an id was sent.
#[tokio::test]
async fn an_id_that_may_have_been_forgotten_before_a_route_was_changed_is_beyond_the_horizon() {
    let node = Node::start();
    let registry = |claim: &str| {
        json!({
            "tenants": [{ "name": "acme" }], "services": [{ "name": "acme/ledger" }],
            "routes": [route("acme/ledger", "post", claim), route("acme/ledger", "other", "ledger")],
        })
    };
    node.apply(&registry("none")).await;
    let shell = Shell::at(&node);
    let outcome = |id: &str, more: &str| {
        let shown = shell.run(&format!("claims show {id} --tenant acme --output json {more}"));
        assert_eq!(shown.code, Some(0), "{shown:?}");
        shown.json()["outcome"].clone()
    };
    let post = "--destination acme/ledger:post";
    let old = id_made(60);
    assert_eq!(outcome(&old, ""), "never_seen", "where nothing was ever claimed nothing is forgotten");
    node.apply(&registry("ledger")).await;
    for id in [&old, "no-time-of-its-own"] {
        assert_eq!(outcome(id, post), "beyond_horizon", "{id}: it was sent and not claimed, perhaps");
        assert_eq!(outcome(id, ""), "beyond_horizon", "{id}");
        assert_eq!(outcome(id, "--destination acme/ledger:other"), "never_seen", "{id}");
    }
    let typo = shell.run("claims show any --tenant acme --destination acme/ledger:ohter");
    assert!(typo.code == Some(1) && typo.err.contains("did you mean acme/ledger:other?"), "{typo:?}");
}

/// PIP-11: a message that no claim leads to is found among the newest.
#[tokio::test]
async fn what_is_over_is_explained_while_its_message_is_among_the_newest() {
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
    assert_eq!(of_bot.unwrap()["steps"], json!([]), "services see what they sent");
}

/// CLM-5, CLM-16, CLM-18: an auditor's questions have commands.
#[tokio::test]
async fn an_auditor_reads_answers_and_erasures() {
    let processor = Processor::start().await;
    let books = Books::set(http(&processor)).await;
    let id = new_id();
    let said = r#"{"glPostingReference": "JE-1",  "amount":1.10}"#;
    processor.answers([Reply::new(201, said).header("Content-Type", "application/json")]);
    assert_eq!(books.send(&id, 10).await.status, 201);
    let node = &books.node;
    let of = async |role: &str| {
        let token = issue(node, role, role, Some("acme")).await.token;
        Shell::new().with("SNAVIO_URL", node.url()).with("SNAVIO_TOKEN", &token)
    };
    let (auditor, accounting) = (of("auditor").await, of("accounting-ops").await);
    let answer = auditor.run(&format!("claims answer {id}"));
    assert_eq!((answer.code, answer.out.as_str()), (Some(0), said), "byte for byte: {answer:?}");
    let message = auditor.run(&format!("claims message {id}")).json();
    assert_eq!((&message["eventId"], &message["data"]), (&json!(id), &json!({ "amount": 10 })), "{message}");
    let erased = accounting.run_words(&["erase", &id, "--tenant", "acme", "--why", "request 4711"]);
    assert_eq!(erased.code, Some(0), "{erased:?}");
    for who in [&auditor, &accounting] {
        // Lists may be a moment behind.
        eventually("the erasure is listed", async || {
            let listed = who.run("erasures list --output json").json();
            (listed["items"][0]["why"] == "request 4711").then_some(())
        })
        .await;
        assert!(who.run("erasures list --tenant acme").out.contains("request 4711"));
    }
    let gone = auditor.run(&format!("claims answer {id}"));
    assert!(gone.code == Some(1) && gone.err.contains("its answer was erased"), "{gone:?}");
    let gone = auditor.run(&format!("claims message {id}"));
    assert!(gone.code == Some(1) && gone.err.contains("what it said was erased"), "{gone:?}");
    let deeds = auditor.run("audit deeds");
    assert!(deeds.code == Some(1) && deeds.err.contains("403 forbidden"), "{deeds:?}");
}

/// CLM-11: a page never parts the claims of one message, or those behind would be on none.
#[tokio::test]
async fn pages_of_claims_leave_none_out() {
    let node = Node::start();
    let subscription = |target: &str| {
        json!({
            "target": target, "events_of": "acme/shop", "name": "paid", "queue": "paid", "dead_letter_queue": "dead",
            "claim": { "policy": "ledger" }, "processing": { "kind": "tracked" },
        })
    };
    let registry = json!({
        "tenants": [{ "name": "acme" }],
        "services": [{ "name": "acme/shop" }, { "name": "acme/a" }, { "name": "acme/b" }, { "name": "acme/c" }],
        "event_types": [{ "owner": "acme/shop", "name": "paid" }],
        "subscriptions": [subscription("acme/a"), subscription("acme/b"), subscription("acme/c")],
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
            found.extend(items.iter().map(|it| (it["eventId"].to_string(), it["destination"].to_string())));
            after = page["next"].clone();
        }
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 6, "{limit}: {found:?}");
    }
}

/// Whoever sent something again is told what there is to do, and nothing that would not help.
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
}

const RETRY: &str = "a retry must use the same, --id";

/// CLM-6, CLM-8, MSG-12
#[tokio::test(flavor = "multi_thread")]
async fn emit_says_what_to_do_about_a_refusal() {
    let processor = Processor::start().await;
    let books = Books::set(http(&processor)).await;
    let sender = Sender::new(&books.node, &books.shop);
    let id = new_id();
    let emit = |id: &str, data: &str| sender.emit(&["--event", "order.paid", "--id", id, data]);
    assert_eq!(emit(&id, "1").code, Some(0));
    let conflict = emit(&id, "2");
    for told in ["409 conflict", "needs another id", "use a new id for a new message"] {
        assert!(conflict.err.contains(told), "{told}: {conflict:?}");
    }
    assert!(!conflict.err.contains(RETRY), "{conflict:?}");

    let failing = new_id();
    let no = r#"{"code":"period_closed"}"#;
    processor.answers([Reply::new(422, no).header("Content-Type", "application/json")]);
    for _ in 0..2 {
        let failed = emit(&failing, "1");
        for told in ["422 ", no, "failed for good"] {
            assert!(failed.err.contains(told), "{told}: {failed:?}");
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
    assert!(lost.err.contains(RETRY), "nobody knows: {lost:?}");
}

/// ORD-1, MSG-12
#[tokio::test]
async fn emit_says_by_which_number_a_message_is_late() {
    let node = Node::start();
    let mut build = route("acme/ci", "build", "strict");
    build["order"] = json!({ "entity": "/build", "number": "/n", "mode": "strict" });
    let registry = json!({
        "tenants": [{ "name": "acme" }], "services": [{ "name": "acme/git" }, { "name": "acme/ci" }], "routes": [build],
        "grants": [{ "source": "acme/git", "target": "acme/ci", "name": "build" }],
    });
    let credentials: Vec<Credentials> = node.apply(&registry).await;
    let sender = Sender::new(&node, &credentials[0]);
    let emit = |n: u32| {
        let payload = json!({ "build": "b-1", "n": n }).to_string();
        sender.emit(&["--target", "ci", "--name", "build", &payload])
    };
    assert_eq!(emit(7).code, Some(0));
    let late = emit(3);
    for told in ["409 out_of_order", "its number is 3, and 7 was processed", "do not send it again"] {
        assert!(late.err.contains(told), "{told}: {late:?}");
    }
    assert!(!late.err.contains(RETRY), "{late:?}");
}
