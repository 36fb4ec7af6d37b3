//! The answer to an accepted message of an ordered route (PIP-13, ORD-3, ORD-7): its members, its status, and
//! the later explanation by `snavio explain`.

use std::time::Duration;

use serde_json::{Value, json};
use snavio_model::bounds;
use snavio_sdk::{Command, Credentials};

use super::{BuildsFixture, order};
use crate::node::{Draft, Launch, Node, new_id, post, post_batch};
use crate::patience::eventually;
use crate::shell::Shell;
use crate::wire::{Answered, metric, post_json};

/// The longest wait, so that a waiting message still waits at the end of its test on a slow machine.
const WAIT_SECONDS: u32 = bounds::ORDER_WAIT_SECONDS_MAX;

/// The members of an answer that are true, followed by the verdict of each subscription.
fn answer_summary(answer: &Value) -> String {
    let own =
        ["duplicate", "skipped", "waiting", "parked"].into_iter().filter(|member| answer[*member] == true);
    let each = answer["subscriptions"].as_array().into_iter().flatten();
    let each = each.map(|subscription| {
        let subscriber = subscription["destination"].as_str().unwrap().split(['/', ':']).nth(1).unwrap();
        format!("{subscriber} {}", subscription["verdict"].as_str().unwrap())
    });
    let mut each: Vec<_> = each.collect();
    each.sort_unstable();
    own.map(str::to_owned).chain(each).collect::<Vec<_>>().join(", ")
}

/// Sends an event that must be accepted with this status and summary of the answer.
async fn send_expecting(builds: &BuildsFixture, build: &str, number: i64, status: u16, expected: &str) {
    let answer = builds.send_build(build, number).await;
    assert_eq!((answer.0, answer_summary(&answer.1).as_str()), (status, expected), "{number}: {}", answer.1);
    assert_eq!(answer.1["accepted"], true);
}

async fn subscribe_in_mode(builds: &BuildsFixture, service: &str, mode: &str) {
    let settings = order(json!({ "mode": mode, "wait_seconds": WAIT_SECONDS }));
    assert_eq!(builds.subscribe(service, "build", &settings, json!({})).await.0, 201);
}

/// ORD-3, PIP-13
#[tokio::test]
async fn answer_says_that_event_is_skipped_or_waits() {
    let builds = BuildsFixture::start(Launch::default()).await;
    subscribe_in_mode(&builds, "deploy", "skip").await;
    send_expecting(&builds, "b", 5, 202, "deploy accepted").await;
    send_expecting(&builds, "b", 4, 200, "skipped, deploy skipped").await;
    send_expecting(&builds, "b", 4, 200, "duplicate, deploy duplicate").await;
    // Skipped by all subscriptions the event is skipped; otherwise it is accepted.
    subscribe_in_mode(&builds, "lenient", "skip").await;
    send_expecting(&builds, "b", 6, 202, "deploy accepted, lenient accepted").await;
    send_expecting(&builds, "b", 3, 200, "skipped, deploy skipped, lenient skipped").await;
    subscribe_in_mode(&builds, "reorder", "reorder").await;
    send_expecting(&builds, "b", 7, 202, "deploy accepted, lenient accepted, reorder accepted").await;
    send_expecting(&builds, "b", 9, 202, "deploy accepted, lenient accepted, reorder waiting").await;
    send_expecting(&builds, "b", 8, 202, "deploy skipped, lenient skipped, reorder accepted").await;
    // In a batch each event has its own result.
    let entries = [2, 4, 1].map(|number| {
        json!({ "eventId": format!("c-{number}"), "eventType": "build",
            "data": { "buildId": "c", "eventSequence": number } })
    });
    let body = json!(entries).to_string();
    let batch =
        Answered::to(post_json(&builds.node, "/v1/events/batch", &builds.token, body)).await.document();
    let each: Vec<_> = batch["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| (result["status"].clone(), answer_summary(result)))
        .collect();
    let expected = [
        (json!(202), "deploy accepted, lenient accepted, reorder accepted".to_owned()),
        (json!(202), "deploy accepted, lenient accepted, reorder waiting".to_owned()),
        (json!(202), "deploy skipped, lenient skipped, reorder dead_letter".to_owned()),
    ];
    assert_eq!(each, expected);
}

/// ORD-1, ORD-8
#[tokio::test]
async fn messages_without_entity_or_number_are_reported_unordered() {
    let builds = BuildsFixture::start(Launch::default()).await;
    for (service, settings) in [("strict", order(json!({ "mode": "strict" }))), ("lenient", Value::Null)] {
        let order = if settings.is_null() { json!({}) } else { json!({ "order": settings }) };
        let body = json!({ "queue": service, "dead_letter_queue": "dead", "claim": { "policy": "strict" } });
        let body = [body, order].into_iter().flat_map(|part| part.as_object().cloned().unwrap()).collect();
        let path = format!("/v1/subscriptions/acme/{service}/acme/ci/build");
        assert_eq!(builds.call_as_operator(reqwest::Method::PUT, &path, Value::Object(body)).await.0, 201);
    }
    let send = async |data: Value| {
        let event = json!({ "eventId": new_id(), "eventType": "build", "data": data });
        let answer =
            Answered::to(post_json(&builds.node, "/v1/events", &builds.token, event.to_string())).await;
        assert_eq!(answer.status, 202, "{}", answer.document());
        let each = answer.document()["subscriptions"].as_array().unwrap().clone();
        let [strict, lenient] = ["acme/strict", "acme/lenient"].map(|name| {
            let verdict = each
                .iter()
                .find(|subscription| subscription["destination"].as_str().unwrap().contains(name))
                .unwrap();
            verdict["ordered"].clone()
        });
        (strict, lenient)
    };
    for data in [json!({ "buildId": "b" }), json!({ "eventSequence": 7 }), json!({})] {
        assert_eq!(send(data.clone()).await, (json!(false), Value::Null), "{data}");
    }
    assert_eq!(send(json!({ "buildId": "b", "eventSequence": 7 })).await, (Value::Null, Value::Null));
    let unordered = metric(&builds.node, "event_unordered_total{route=\"acme/strict:acme/ci:build\"}").await;
    assert_eq!(unordered, Some(3.0));
    // The answer to a command has the member itself.
    let commands = Commands::start().await;
    let mut draft = Draft::new("strict", &new_id());
    draft.payload = r#"{"build":"b"}"#.to_owned();
    let (status, answer) =
        post(&commands.node.client(&commands.billing), draft.sign(&commands.billing)).await;
    assert_eq!((status, &answer["ordered"]), (202, &json!(false)), "{answer}");
}

/// ORD-3: the answer calls a late message that is delivered accepted, and never processed.
#[tokio::test]
async fn late_messages_are_reported_accepted() {
    let builds = BuildsFixture::start(Launch::default()).await;
    for (service, mode) in [("lenient", "lenient"), ("strict", "strict")] {
        let settings = order(json!({ "mode": mode }));
        assert_eq!(builds.subscribe(service, "build", &settings, json!({})).await.0, 201);
    }
    assert_eq!(builds.send_build("b", 5).await.0, 202);
    let (status, late) = builds.send_build("b", 4).await;
    assert_eq!(
        (status, answer_summary(&late).as_str()),
        (202, "lenient accepted, strict dead_letter"),
        "{late}"
    );
    assert!(!late.to_string().contains("processed"), "{late}");
    let commands = Commands::start().await;
    let client = commands.node.client(&commands.billing);
    assert_eq!(post(&client, commands.signed("strict", 5).1).await.0, 202);
    let (status, refused) = post(&client, commands.signed("strict", 4).1).await;
    assert_eq!((status, &refused["reason"]), (409, &json!("out_of_order")), "{refused}");
    assert!(refused["advice"].as_str().unwrap().contains("was accepted"), "{refused}");
}

/// `acme/billing` sends commands to `acme/bot`, which has a route for each of three orders.
struct Commands {
    node: Node,
    billing: Credentials,
    bot: Credentials,
}

impl Commands {
    async fn start() -> Self {
        let node = Node::start();
        let modes = [("skip", "continue"), ("reorder", "continue"), ("strict", "park")];
        let routes = modes.map(|(name, on_failure)| {
            json!({
                "target": "acme/bot", "name": name, "queue": name, "dead_letter_queue": "dead",
                "receives_max": 1, "claim": { "policy": "strict" }, "order": {
                    "entity": "/build", "number": "/number", "mode": name, "wait_seconds": WAIT_SECONDS,
                    "on_failure": on_failure,
                },
            })
        });
        let registry = json!({
            "tenants": [{ "name": "acme" }],
            "services": [{ "name": "acme/billing" }, { "name": "acme/bot" }],
            "routes": routes,
            "grants": [{ "source": "acme/billing", "target": "acme/bot", "name": "*" }],
        });
        let [billing, bot] = <[Credentials; 2]>::try_from(node.apply(&registry).await).unwrap();
        Self { node, billing, bot }
    }

    fn signed(&self, name: &str, number: i64) -> (String, Vec<u8>) {
        let id = new_id();
        let payload = json!({ "build": "b", "number": number }).to_string();
        let signed = Draft { payload, ..Draft::new(name, &id) }.sign(&self.billing);
        (id, signed)
    }

    /// Sends a command; returns its id, and the status and summary of the answer.
    async fn send(&self, name: &str, number: i64) -> (String, u16, String) {
        let (id, signed) = self.signed(name, number);
        let (status, answer) = post(&self.node.client(&self.billing), signed).await;
        (id, status, answer_summary(&answer))
    }

    /// Waits until the explanation of a message has a step about its order, and returns the step.
    async fn explain_order(&self, id: &str) -> Value {
        let shell = Shell::at(&self.node);
        eventually("order is explained", async || {
            let explain_order = shell.run(&format!("explain {id} --tenant acme --output json")).json();
            let steps = explain_order["steps"].as_array().unwrap();
            steps.iter().find(|step| !step["basis"]["sequence"].is_null()).cloned()
        })
        .await
    }
}

/// ORD-3, ORD-7, PIP-11
#[tokio::test]
async fn command_answer_and_explanation_show_its_order() {
    let commands = Commands::start().await;
    let send = async |name, number, status: u16, expected: &str| {
        let (id, got, answer_summary) = commands.send(name, number).await;
        assert_eq!((got, answer_summary.as_str()), (status, expected), "{name} {number}");
        id
    };
    send("skip", 5, 202, "").await;
    let skipped = send("skip", 4, 200, "skipped").await;
    send("reorder", 2, 202, "").await;
    let waiting = send("reorder", 4, 202, "waiting").await;
    let batch = [7, 6].map(|number| commands.signed("reorder", number).1);
    let results = post_batch(&commands.node.client(&commands.billing), &batch).await.unwrap();
    assert_eq!(results.iter().map(answer_summary).collect::<Vec<_>>(), ["waiting"; 2], "{results:?}");

    // The first delivery fails for good.
    send("strict", 1, 202, "").await;
    let bot = commands.node.client(&commands.bot);
    let first = bot.receive("strict", 1, Duration::from_secs(30), Duration::from_secs(5)).await.unwrap();
    bot.release("strict", &[first[0].receipt()], Duration::ZERO, None).await.unwrap();
    let mut number = 1;
    let parked = eventually("a later command is parked", async || {
        let _ = bot.receive("strict", 1, Duration::from_secs(30), Duration::ZERO).await;
        number += 1;
        let (id, status, word) = commands.send("strict", number).await;
        assert_eq!(status, 202);
        (word == "parked").then_some(id)
    })
    .await;

    for (id, decision, part, value) in [
        (&skipped, "number 4, and the last is 5: skipped", "last", json!(5)),
        (&waiting, "waiting: number 4, and the last is 2", "mode", json!("reorder")),
        (&parked, "parked at 1, which failed for good", "parked_at", json!(1)),
    ] {
        let step = commands.explain_order(id).await;
        assert!(step["decision"].as_str().unwrap().contains(decision), "{step}");
        assert_eq!(step["basis"]["sequence"][part], value, "{step}");
    }
}

/// ORD-3: the SDK and the command line report the same facts.
#[tokio::test]
async fn clients_report_order_of_message() {
    let commands = Commands::start().await;
    let client = commands.node.client(&commands.billing);
    let send = async |name: &str, number: i64| {
        let payload = json!({ "build": "b", "number": number }).to_string().into_bytes();
        client.send(&Command::new("acme/bot".parse().unwrap(), name.parse().unwrap(), payload)).await.unwrap()
    };
    for (name, number) in [("skip", 5), ("reorder", 2)] {
        let first = send(name, number).await;
        assert!(!first.is_skipped() && !first.is_waiting() && !first.is_parked() && !first.is_duplicate());
    }
    let late = send("skip", 4).await;
    assert!(late.is_skipped() && late.status == 200, "{late:?}");
    assert!(send("reorder", 4).await.is_waiting());
    let shell = Shell::at(&commands.node);
    let credentials = shell.write("billing.json", &serde_json::to_string(&commands.billing).unwrap());
    let answer_summary =
        ["emit", "-c", &credentials, "--target", "acme/bot", "--name", "reorder", "--output", "json"];
    let emitted = shell.run_words(&[&answer_summary[..], &[r#"{"build":"b","number":6}"#]].concat());
    assert_eq!(emitted.json()["waiting"], true, "{emitted:?}");
}
