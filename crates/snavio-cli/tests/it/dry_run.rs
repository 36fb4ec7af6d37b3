//! Dry runs of messages at a real node (REG-3), and bans (LIM-7, REG-12).

use reqwest::Method;
use serde_json::{Value, json};

use crate::node::{Cast, Draft, Node, drain, new_id, post};
use crate::people::issue;
use crate::shell::{Ended, Shell};

async fn dry_run(node: &Node, wanted: &Value) -> Value {
    let operator = node.operator();
    operator.call(Method::POST, "/v1/dry-run", Some(wanted)).await.unwrap()
}

fn verdicts(result: &Value) -> Vec<(&str, &str)> {
    let steps = result["steps"].as_array().unwrap();
    steps.iter().map(|step| (step["check"].as_str().unwrap(), step["verdict"].as_str().unwrap())).collect()
}

fn detail(result: &Value, step: usize) -> &str {
    result["steps"][step]["detail"].as_str().unwrap()
}

fn output_of(ended: &Ended) -> String {
    format!("{}{}", ended.out, ended.err)
}

fn signed(draft: &Draft, cast: &Cast) -> Value {
    serde_json::from_slice(&draft.sign(&cast.billing)).unwrap()
}

/// REG-3: a dry run reports each check, delivers nothing and claims no id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dry_run_reports_each_step_without_effect() {
    let node = Node::start();
    let cast = node.cast().await;
    let (billing, bot) = (node.client(&cast.billing), node.client(&cast.bot));
    let draft = Draft::new("pay", &new_id());
    let message = signed(&draft, &cast);
    let wanted = json!({ "source": "acme/billing", "message": message });
    for _ in 0..2 {
        let result = dry_run(&node, &wanted).await;
        assert_eq!(result["accepted"], true, "{result}");
        let all = ["form", "sender", "window", "signature", "grant", "route", "claim"];
        assert_eq!(verdicts(&result), all.map(|check| (check, "passed")), "{result}");
    }
    assert!(drain(&bot, "pay-inbox").await.is_empty(), "nothing was delivered");
    assert_eq!(post(&billing, draft.sign(&cast.billing)).await.0, 202, "the dry run made no claim");
    let result = dry_run(&node, &wanted).await;
    let claim = &result["steps"][6];
    assert!(claim["detail"].as_str().unwrap().starts_with("a duplicate"), "{result}");
}

/// REG-3: a dry run reports the same refusal as the message itself then gets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dry_run_predicts_the_refusal() {
    let node = Node::start();
    let cast = node.cast().await;
    let billing = node.client(&cast.billing);
    let good = Draft::new("pay", &new_id());
    let forged = {
        let mut message = signed(&good, &cast);
        message["metadata"]["hmac"] = "0".repeat(64).into();
        message
    };
    let with_source = {
        let mut message = signed(&good, &cast);
        message["command"]["source"] = "acme/billing".into();
        message
    };
    let with_unknown_key = {
        let mut message = signed(&good, &cast);
        message["metadata"]["version_id"] = "hmac-v9".into();
        message
    };
    for (message, reason) in [
        (signed(&Draft::new("steal", &new_id()), &cast), "acl-deny"),
        (forged, "hmac_invalid"),
        (with_source, "source_present"),
        (with_unknown_key, "key_unknown"),
        (json!({ "metadata": {} }), "malformed"),
    ] {
        let wanted = json!({ "source": "acme/billing", "message": message });
        let result = dry_run(&node, &wanted).await;
        assert_eq!((&result["accepted"], &result["reason"]), (&json!(false), &json!(reason)), "{result}");
        let last = result["steps"].as_array().unwrap().last().unwrap();
        assert_eq!(last["verdict"], "refused", "{result}");
        let (_, answer) = post(&billing, message.to_string().into_bytes()).await;
        assert_eq!(answer["reason"], reason, "{answer}");
    }
}

/// REG-3, QUA-5: a sender to another tenant learns whether the gateway would accept its message, but nothing
/// about that tenant's queues and policies.
#[tokio::test]
async fn foreign_sender_gets_verdicts_but_no_queue_names() {
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
    let operators_result = dry_run(&node, &wanted).await;

    let route_detail =
        "to queue ledger-in, dead letters to ledger-dead, by the slow path, because of dedupe_required";
    assert_eq!(detail(&operators_result, 5), route_detail);
    assert_eq!(detail(&operators_result, 6), "the id is free, under policy strict, and the queue has room");
    for caller in [&admin, &service] {
        let callers_result = caller.call(Method::POST, "/v1/dry-run", Some(&wanted)).await.unwrap();
        assert_eq!(
            verdicts(&callers_result),
            verdicts(&operators_result),
            "the verdicts are the same: {callers_result}"
        );
        assert_eq!(detail(&callers_result, 5), "there is a route");
        assert_eq!(detail(&callers_result, 6), "the id is free and the queue has room");
        assert!(!callers_result.to_string().contains("ledger"), "{callers_result}");
    }
}

/// REG-3, CLM-1: a service that knows another service's id cannot test guesses of its payload.
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
        let secret = Draft { payload: r#"{"amount":1200}"#.into(), ..Draft::new(name, &new_id()) };
        assert_eq!(post(&node.client(&cast.billing), secret.sign(&cast.billing)).await.0, 202);
        let mut answers = Vec::new();
        for payload in [r#"{"amount":1200}"#, r#"{"amount":1201}"#] {
            let guess = Draft { payload: payload.into(), ..Draft::new(name, &secret.id) };
            let message: Value = serde_json::from_slice(&guess.sign(&shop)).unwrap();
            let wanted = json!({ "message": message });
            answers.push(service.call(Method::POST, "/v1/dry-run", Some(&wanted)).await.unwrap());
        }
        assert_eq!(answers[0]["reason"], "conflict", "{}", answers[0]);
        assert_eq!(answers[0], answers[1], "{name}");
        let detail = answers[0]["steps"][6]["detail"].as_str().unwrap();
        assert_eq!(
            detail,
            "conflict: this id is in use, for other content or by another service of the tenant"
        );
    }
}

/// REG-3, CLM-8
#[tokio::test]
async fn dry_run_reports_a_conflict_under_an_own_id() {
    let node = Node::start();
    let cast = node.cast().await;
    let route = json!({
        "target": "acme/bot", "name": "post", "queue": "posts", "dead_letter_queue": "bot-dead",
        "claim": { "policy": "ledger" },
    });
    let grant = json!({ "source": "acme/billing", "target": "acme/bot", "name": "post" });
    node.apply(&json!({ "routes": [route], "grants": [grant] })).await;
    let first = Draft { payload: r#"{"amount":1200}"#.into(), ..Draft::new("post", &new_id()) };
    let billing = node.client(&cast.billing);
    assert_eq!(post(&billing, first.sign(&cast.billing)).await.0, 202);
    let altered = Draft { payload: r#"{"amount":1201}"#.into(), ..first };
    let message = signed(&altered, &cast);
    let service = billing.authorized().await.unwrap();
    let result =
        service.call(Method::POST, "/v1/dry-run", Some(&json!({ "message": message }))).await.unwrap();
    let detail = result["steps"][6]["detail"].as_str().unwrap();
    assert_eq!(
        detail, "conflict: this id means something else already; a conflict would be put on record",
        "{result}"
    );
}

/// REG-3: `register-target` proves a route by a dry run before it registers it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn register_target_proves_the_route_first() {
    let node = Node::start();
    node.cast().await;
    let shell = Shell::at(&node);
    let register = |more: &str| {
        let command = "register-target acme/bot greet --queue greetings --dead-letter-queue bot-dead";
        shell.run(&format!("{command} {more}"))
    };
    let refused = register("--from acme/billing");
    assert_eq!(refused.code, Some(1), "{}", output_of(&refused));
    assert!(output_of(&refused).contains("acl-deny"), "{}", output_of(&refused));
    assert_eq!(register("--dry-run").code, Some(0));
    let route = node.operator().call(Method::GET, "/v1/routes/acme/bot/greet", None).await;
    assert!(route.is_err(), "a dry run registers nothing");
    let done = register("--why greetings");
    assert_eq!(done.code, Some(0), "{}", output_of(&done));
    assert!(output_of(&done).contains("registered, version"), "{}", output_of(&done));
    assert!(output_of(&register("")).contains("nothing to change"));
    let fifo = shell.run("register-target acme/bot x --queue a.fifo --dead-letter-queue b");
    assert_eq!(fifo.code, Some(2), "{}", output_of(&fifo));
}

/// LIM-7, PIP-1: an operator's ban excludes a source until it ends or an operator lifts it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn banned_source_is_refused_until_the_ban_is_lifted() {
    let node = Node::start();
    let cast = node.cast().await;
    let billing = node.client(&cast.billing);
    let send = async || post(&billing, Draft::new("pay", &new_id()).sign(&cast.billing)).await;
    assert_eq!(send().await.0, 202);
    let shell = Shell::at(&node);
    let set = shell.run_words(&["bans", "set", "acme/billing", "--reason", "floods"]);
    assert_eq!(set.code, Some(0), "{}", output_of(&set));
    let (status, answer) = send().await;
    assert_eq!((status, &answer["reason"]), (403, &json!("banned")), "{answer}");
    assert!(output_of(&shell.run_words(&["bans", "list"])).contains("floods"));
    assert_eq!(shell.run_words(&["bans", "lift", "acme/billing"]).code, Some(0));
    assert_eq!(send().await.0, 202);
    let past = shell.run_words(&["bans", "set", "acme/billing", "--until", "2020-01-01T00:00:00Z"]);
    assert_eq!(past.code, Some(0), "{}", output_of(&past));
    assert_eq!(send().await.0, 202, "a ban that has ended has no effect");
    let unfit = shell.run_words(&["bans", "set", "acme/billing", "--until", "tomorrow"]);
    assert!(unfit.code == Some(1) && output_of(&unfit).contains("RFC 3339"), "{}", output_of(&unfit));
}
