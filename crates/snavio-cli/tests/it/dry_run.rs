//! What would happen to a message, asked of a real node (REG-3), and bans (LIM-7, REG-12).

use reqwest::Method;
use serde_json::{Value, json};

use crate::node::{Cast, Draft, Node, drain, new_id, post};
use crate::people::issue;
use crate::shell::{Ended, Shell};

async fn foresee(node: &Node, wanted: &Value) -> Value {
    let operator = node.operator();
    operator.call(Method::POST, "/v1/dry-run", Some(wanted)).await.unwrap()
}

fn verdicts(foreseen: &Value) -> Vec<(&str, &str)> {
    let steps = foreseen["steps"].as_array().unwrap();
    steps.iter().map(|it| (it["check"].as_str().unwrap(), it["verdict"].as_str().unwrap())).collect()
}

fn said(ended: &Ended) -> String {
    format!("{}{}", ended.out, ended.err)
}

fn signed(draft: &Draft, cast: &Cast) -> Value {
    serde_json::from_slice(&draft.sign(&cast.billing)).unwrap()
}

/// REG-3: step by step, and nothing of it happens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_tells_each_step_and_does_nothing() {
    let node = Node::start();
    let cast = node.cast().await;
    let (billing, bot) = (node.client(&cast.billing), node.client(&cast.bot));
    let draft = Draft::new("pay", &new_id());
    let message = signed(&draft, &cast);
    let wanted = json!({ "source": "acme/billing", "message": message });
    for _ in 0..2 {
        let foreseen = foresee(&node, &wanted).await;
        assert_eq!(foreseen["accepted"], true, "{foreseen}");
        let all = ["form", "sender", "window", "signature", "grant", "route", "claim"];
        assert_eq!(verdicts(&foreseen), all.map(|check| (check, "passed")), "{foreseen}");
    }
    assert!(drain(&bot, "pay-inbox").await.is_empty(), "nothing was delivered");
    assert_eq!(post(&billing, draft.sign(&cast.billing)).await.0, 202, "no id was taken");
    let foreseen = foresee(&node, &wanted).await;
    let claim = &foreseen["steps"][6];
    assert!(claim["detail"].as_str().unwrap().starts_with("a duplicate"), "{foreseen}");
}

/// REG-3: what a dry run foresees is what then happens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_foreseen_is_what_happens() {
    let node = Node::start();
    let cast = node.cast().await;
    let billing = node.client(&cast.billing);
    let good = Draft::new("pay", &new_id());
    let forged = {
        let mut message = signed(&good, &cast);
        message["metadata"]["hmac"] = "0".repeat(64).into();
        message
    };
    let sourced = {
        let mut message = signed(&good, &cast);
        message["command"]["source"] = "acme/billing".into();
        message
    };
    let unknown = {
        let mut message = signed(&good, &cast);
        message["metadata"]["version_id"] = "hmac-v9".into();
        message
    };
    for (message, reason) in [
        (signed(&Draft::new("steal", &new_id()), &cast), "acl-deny"),
        (forged, "hmac_invalid"),
        (sourced, "source_present"),
        (unknown, "key_unknown"),
        (json!({ "metadata": {} }), "malformed"),
    ] {
        let wanted = json!({ "source": "acme/billing", "message": message });
        let foreseen = foresee(&node, &wanted).await;
        assert_eq!(
            (&foreseen["accepted"], &foreseen["reason"]),
            (&json!(false), &json!(reason)),
            "{foreseen}"
        );
        let last = foreseen["steps"].as_array().unwrap().last().unwrap();
        assert_eq!(last["verdict"], "refused", "{foreseen}");
        let (_, answer) = post(&billing, message.to_string().into_bytes()).await;
        assert_eq!(answer["reason"], reason, "{answer}");
    }
}

/// REG-3, QUA-5: who sends to another tenant is told whether it would get through, and nothing of how that tenant
/// has arranged itself.
#[tokio::test]
async fn a_sender_of_another_tenant_is_told_the_verdicts_and_no_queue() {
    let node = Node::start();
    let registry = json!({
        "tenants": [{ "name": "acme" }, { "name": "zeta" }],
        "services": [{ "name": "acme/shop" }, { "name": "zeta/bank" }],
        "routes": [{ "target": "zeta/bank", "name": "pay", "queue": "ledger-in", "dead_letter_queue": "ledger-dead",
            "claim": { "policy": "strict" } }],
        "grants": [{ "source": "acme/shop", "target": "zeta/bank", "name": "pay" }],
    });
    let shop = node.apply(&registry).await.remove(0);
    let admin = node.api().with_token(&issue(&node, "anna", "tenant-admin", Some("acme")).await.token);
    let service = node.client(&shop).authorized().await.unwrap();
    let draft = Draft { target: "zeta/bank".into(), ..Draft::new("pay", &new_id()) };
    let message: Value = serde_json::from_slice(&draft.sign(&shop)).unwrap();
    let wanted = json!({ "source": "acme/shop", "message": message });
    let told = foresee(&node, &wanted).await;
    let detail = |told: &Value, step: usize| told["steps"][step]["detail"].as_str().unwrap().to_owned();
    let way = "to queue ledger-in, dead letters to ledger-dead, by the slow path, because of dedupe_required";
    assert_eq!(detail(&told, 5), way);
    assert_eq!(detail(&told, 6), "the id is free, under policy strict, and the queue has room");
    for who in [&admin, &service] {
        let seen = who.call(Method::POST, "/v1/dry-run", Some(&wanted)).await.unwrap();
        assert_eq!(verdicts(&seen), verdicts(&told), "the verdicts are the same: {seen}");
        assert_eq!(detail(&seen, 5), "there is a route");
        assert_eq!(detail(&seen, 6), "the id is free and the queue has room");
        assert!(!seen.to_string().contains("ledger"), "{seen}");
    }
}

/// REG-3, CLM-1: a service that knows another one's id cannot test guesses of its payload.
#[tokio::test]
async fn right_and_wrong_guesses_get_the_same_dry_run() {
    let node = Node::start();
    let cast = node.cast().await;
    let routes = ["ledger", "event", "strict"].map(|policy| {
        json!({
            "target": "acme/bot", "name": policy, "queue": "posts", "dead_letter_queue": "bot-dead",
            "claim": { "policy": policy },
        })
    });
    let grants = ["acme/billing", "acme/shop"]
        .map(|source| json!({ "source": source, "target": "acme/bot", "name": "*" }));
    let registry = json!({ "services": [{ "name": "acme/shop" }], "routes": routes, "grants": grants });
    let shop = node.apply(&registry).await.remove(0);
    let service = node.client(&shop).authorized().await.unwrap();
    for name in ["ledger", "event", "strict"] {
        let draft = |payload: &str| Draft { payload: payload.into(), ..Draft::new(name, &new_id()) };
        let secret = draft(r#"{"amount":1200}"#);
        assert_eq!(post(&node.client(&cast.billing), secret.sign(&cast.billing)).await.0, 202);
        let mut answers = Vec::new();
        for payload in [r#"{"amount":1200}"#, r#"{"amount":1201}"#] {
            let guess = Draft { id: secret.id.clone(), ..draft(payload) };
            let message: Value = serde_json::from_slice(&guess.sign(&shop)).unwrap();
            let wanted = json!({ "message": message });
            answers.push(service.call(Method::POST, "/v1/dry-run", Some(&wanted)).await.unwrap());
        }
        assert_eq!(answers[0]["reason"], "conflict", "{}", answers[0]);
        assert_eq!(answers[0], answers[1], "{name}");
        let told = answers[0]["steps"][6]["detail"].as_str().unwrap();
        assert_eq!(
            told,
            "conflict: this id is in use, for other content or by another service of the tenant"
        );
    }
}

/// REG-3, CLM-8
#[tokio::test]
async fn altered_content_under_an_own_id_is_foreseen() {
    let node = Node::start();
    let cast = node.cast().await;
    let route = json!({
        "target": "acme/bot", "name": "post", "queue": "posts", "dead_letter_queue": "bot-dead",
        "claim": { "policy": "ledger" },
    });
    let grant = json!({ "source": "acme/billing", "target": "acme/bot", "name": "post" });
    node.apply(&json!({ "routes": [route], "grants": [grant] })).await;
    let draft = |id: &str, payload: &str| Draft { payload: payload.into(), ..Draft::new("post", id) };
    let id = new_id();
    let billing = node.client(&cast.billing);
    assert_eq!(post(&billing, draft(&id, r#"{"amount":1200}"#).sign(&cast.billing)).await.0, 202);
    let message = signed(&draft(&id, r#"{"amount":1201}"#), &cast);
    let service = billing.authorized().await.unwrap();
    let told = service.call(Method::POST, "/v1/dry-run", Some(&json!({ "message": message }))).await.unwrap();
    let detail = told["steps"][6]["detail"].as_str().unwrap();
    assert_eq!(
        detail, "conflict: this id means something else already; a conflict would be put on record",
        "{told}"
    );
}

/// REG-3: a route is proved before it is registered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn register_target_proves_the_route_first() {
    let node = Node::start();
    node.cast().await;
    let shell = Shell::at(&node);
    let register = |more: &[&str]| {
        let fixed = [
            "register-target",
            "acme/bot",
            "greet",
            "--queue",
            "greetings",
            "--dead-letter-queue",
            "bot-dead",
        ];
        shell.run_words(&[&fixed[..], more].concat())
    };
    let refused = register(&["--from", "acme/billing"]);
    assert_eq!(refused.code, Some(1), "{}", said(&refused));
    assert!(said(&refused).contains("acl-deny"), "{}", said(&refused));
    assert_eq!(register(&["--dry-run"]).code, Some(0));
    let nothing = node.operator().call(Method::GET, "/v1/routes/acme/bot/greet", None).await;
    assert!(nothing.is_err(), "only proved");
    let done = register(&["--why", "greetings"]);
    assert_eq!(done.code, Some(0), "{}", said(&done));
    assert!(said(&done).contains("registered, version"), "{}", said(&done));
    assert!(said(&register(&[])).contains("nothing to change"));
    let fifo = shell.run_words(&[
        "register-target",
        "acme/bot",
        "x",
        "--queue",
        "a.fifo",
        "--dead-letter-queue",
        "b",
    ]);
    assert_eq!(fifo.code, Some(2), "{}", said(&fifo));
}

/// LIM-7, PIP-1: an operator's ban stops a source, and lifting it lets it in again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_banned_source_is_refused_until_the_ban_is_lifted() {
    let node = Node::start();
    let cast = node.cast().await;
    let billing = node.client(&cast.billing);
    let send = async || post(&billing, Draft::new("pay", &new_id()).sign(&cast.billing)).await;
    assert_eq!(send().await.0, 202);
    let shell = Shell::at(&node);
    let set = shell.run_words(&["bans", "set", "acme/billing", "--reason", "floods"]);
    assert_eq!(set.code, Some(0), "{}", said(&set));
    let (status, answer) = send().await;
    assert_eq!((status, &answer["reason"]), (403, &json!("banned")), "{answer}");
    assert!(said(&shell.run_words(&["bans", "list"])).contains("floods"));
    assert_eq!(shell.run_words(&["bans", "lift", "acme/billing"]).code, Some(0));
    assert_eq!(send().await.0, 202);
    let past = shell.run_words(&["bans", "set", "acme/billing", "--until", "2020-01-01T00:00:00Z"]);
    assert_eq!(past.code, Some(0), "{}", said(&past));
    assert_eq!(send().await.0, 202, "a ban that has ended is none");
    let unfit = shell.run_words(&["bans", "set", "acme/billing", "--until", "tomorrow"]);
    assert!(unfit.code == Some(1) && said(&unfit).contains("RFC 3339"), "{}", said(&unfit));
}
