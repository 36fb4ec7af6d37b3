//! What a producer is told of order when its message is taken (PIP-13, ORD-3, ORD-7): the words, the status, and what
//! `snavio explain` makes of it later.

use std::time::Duration;

use serde_json::{Value, json};
use snavio_model::bounds;
use snavio_sdk::{Command, Credentials};

use super::{Builds, order};
use crate::node::{Draft, Launch, Node, new_id, post, post_batch};
use crate::patience::eventually;
use crate::shell::Shell;
use crate::wire::{Answered, metric, post_json};

/// However slow the machine is, what waits does so to the end of its test.
const WAIT_SECONDS: u32 = bounds::ORDER_WAIT_SECONDS_MAX;

/// The words of an answer: those of the message itself, then what each of its subscriptions says.
fn words(answer: &Value) -> String {
    let own = ["duplicate", "skipped", "waiting", "parked"].into_iter().filter(|it| answer[*it] == true);
    let each = answer["subscriptions"].as_array().into_iter().flatten();
    let each = each.map(|it| {
        let subscriber = it["destination"].as_str().unwrap().split(['/', ':']).nth(1).unwrap();
        format!("{subscriber} {}", it["verdict"].as_str().unwrap())
    });
    let mut each: Vec<_> = each.collect();
    each.sort_unstable();
    own.map(str::to_owned).chain(each).collect::<Vec<_>>().join(", ")
}

/// ORD-3, PIP-13
#[tokio::test]
async fn an_event_that_is_left_out_or_waits_is_told_so() {
    let builds = Builds::set(Launch::default()).await;
    let subscribe = async |service, mode: &str| {
        let of = order(json!({ "mode": mode, "wait_seconds": WAIT_SECONDS }));
        assert_eq!(builds.subscribe(service, "build", &of, json!({})).await.0, 201);
    };
    let sent = async |build, number, status: u16, said: &str| {
        let answer = builds.sent(build, number).await;
        assert_eq!((answer.0, words(&answer.1).as_str()), (status, said), "{number}: {}", answer.1);
        assert_eq!(answer.1["accepted"], true);
    };
    subscribe("deploy", "skip").await;
    sent("b", 5, 202, "deploy accepted").await;
    sent("b", 4, 200, "skipped, deploy skipped").await;
    sent("b", 4, 200, "duplicate, deploy duplicate").await;
    // Left out by all of them it is left out; else it is on its way.
    subscribe("lenient", "skip").await;
    sent("b", 6, 202, "deploy accepted, lenient accepted").await;
    sent("b", 3, 200, "skipped, deploy skipped, lenient skipped").await;
    subscribe("reorder", "reorder").await;
    sent("b", 7, 202, "deploy accepted, lenient accepted, reorder accepted").await;
    sent("b", 9, 202, "deploy accepted, lenient accepted, reorder waiting").await;
    sent("b", 8, 202, "deploy skipped, lenient skipped, reorder accepted").await;
    // In a batch each has its own.
    let entry = |number: i64| {
        json!({ "eventId": format!("c-{number}"), "eventType": "build",
            "data": { "buildId": "c", "eventSequence": number } })
    };
    let body = json!([entry(2), entry(4), entry(1)]).to_string();
    let batch =
        Answered::to(post_json(&builds.node, "/v1/events/batch", &builds.token, body)).await.document();
    let each: Vec<_> =
        batch["results"].as_array().unwrap().iter().map(|it| (it["status"].clone(), words(it))).collect();
    let expected = [
        (json!(202), "deploy accepted, lenient accepted, reorder accepted".to_owned()),
        (json!(202), "deploy accepted, lenient accepted, reorder waiting".to_owned()),
        (json!(202), "deploy skipped, lenient skipped, reorder dead_letter".to_owned()),
    ];
    assert_eq!(each, expected);
}

/// ORD-1, ORD-8
#[tokio::test]
async fn messages_without_entity_or_number_are_told_unordered() {
    let builds = Builds::set(Launch::default()).await;
    for (service, of) in [("strict", order(json!({ "mode": "strict" }))), ("lenient", Value::Null)] {
        let order = if of.is_null() { json!({}) } else { json!({ "order": of }) };
        let body = json!({ "queue": service, "dead_letter_queue": "dead", "claim": { "policy": "strict" } });
        let body = [body, order].into_iter().flat_map(|it| it.as_object().cloned().unwrap()).collect();
        let path = format!("/v1/subscriptions/acme/{service}/acme/ci/build");
        assert_eq!(builds.operate(reqwest::Method::PUT, &path, Value::Object(body)).await.0, 201);
    }
    let send = async |data: Value| {
        let event = json!({ "eventId": new_id(), "eventType": "build", "data": data });
        let answer =
            Answered::to(post_json(&builds.node, "/v1/events", &builds.token, event.to_string())).await;
        assert_eq!(answer.status, 202, "{}", answer.document());
        let each = answer.document()["subscriptions"].as_array().unwrap().clone();
        let ordered = |name: &str| {
            let of = each.iter().find(|it| it["destination"].as_str().unwrap().contains(name)).unwrap();
            of["ordered"].clone()
        };
        (ordered("acme/strict"), ordered("acme/lenient"))
    };
    for data in [json!({ "buildId": "b" }), json!({ "eventSequence": 7 }), json!({})] {
        assert_eq!(send(data.clone()).await, (json!(false), Value::Null), "{data}");
    }
    assert_eq!(send(json!({ "buildId": "b", "eventSequence": 7 })).await, (Value::Null, Value::Null));
    let unordered = metric(&builds.node, "event_unordered_total{route=\"acme/strict:acme/ci:build\"}").await;
    assert_eq!(unordered, Some(3.0));
    // Of a command the answer itself says so.
    let commands = Commands::set().await;
    let mut draft = Draft::new("strict", &new_id());
    draft.payload = r#"{"build":"b"}"#.to_owned();
    let (status, answer) =
        post(&commands.node.client(&commands.billing), draft.sign(&commands.billing)).await;
    assert_eq!((status, &answer["ordered"]), (202, &json!(false)), "{answer}");
}

/// ORD-3: a late message that is delivered is accepted, and nothing says that it was processed.
#[tokio::test]
async fn late_messages_are_told_accepted() {
    let builds = Builds::set(Launch::default()).await;
    for (service, mode) in [("lenient", "lenient"), ("strict", "strict")] {
        let of = order(json!({ "mode": mode }));
        assert_eq!(builds.subscribe(service, "build", &of, json!({})).await.0, 201);
    }
    assert_eq!(builds.sent("b", 5).await.0, 202);
    let (status, late) = builds.sent("b", 4).await;
    assert_eq!((status, words(&late).as_str()), (202, "lenient accepted, strict dead_letter"), "{late}");
    assert!(!late.to_string().contains("processed"), "{late}");
    let commands = Commands::set().await;
    let send = async |number: u32| {
        let mut draft = Draft::new("strict", &new_id());
        draft.payload = json!({ "build": "b", "number": number }).to_string();
        post(&commands.node.client(&commands.billing), draft.sign(&commands.billing)).await
    };
    assert_eq!(send(5).await.0, 202);
    let (status, refused) = send(4).await;
    assert_eq!((status, &refused["reason"]), (409, &json!("out_of_order")), "{refused}");
    assert!(refused["advice"].as_str().unwrap().contains("was accepted"), "{refused}");
}

/// `acme/billing` sends commands to `acme/bot`, which orders them in each way.
struct Commands {
    node: Node,
    billing: Credentials,
    bot: Credentials,
}

impl Commands {
    async fn set() -> Self {
        let node = Node::start();
        let route = |name: &str, on_failure: &str| {
            json!({
                "target": "acme/bot", "name": name, "queue": name, "dead_letter_queue": "dead",
                "receives_max": 1, "claim": { "policy": "strict" }, "order": {
                    "entity": "/build", "number": "/number", "mode": name, "wait_seconds": WAIT_SECONDS,
                    "on_failure": on_failure,
                },
            })
        };
        let registry = json!({
            "tenants": [{ "name": "acme" }],
            "services": [{ "name": "acme/billing" }, { "name": "acme/bot" }],
            "routes": [route("skip", "continue"), route("reorder", "continue"), route("strict", "park")],
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

    /// Sends one, and gives its id with the status and the words of its answer.
    async fn send(&self, name: &str, number: i64) -> (String, u16, String) {
        let (id, signed) = self.signed(name, number);
        let (status, answer) = post(&self.node.client(&self.billing), signed).await;
        (id, status, words(&answer))
    }

    /// What is explained of the order of a message, once it is.
    async fn explained(&self, id: &str) -> Value {
        let shell = Shell::at(&self.node);
        eventually("order is explained", async || {
            let explained = shell.run(&format!("explain {id} --tenant acme --output json")).json();
            let steps = explained["steps"].as_array().unwrap();
            steps.iter().find(|it| !it["basis"]["sequence"].is_null()).cloned()
        })
        .await
    }
}

/// ORD-3, ORD-7, PIP-11
#[tokio::test]
async fn a_command_is_told_how_it_stands_and_that_can_be_explained() {
    let commands = Commands::set().await;
    let said = async |name, number, status: u16, word: &str| {
        let (id, got, words) = commands.send(name, number).await;
        assert_eq!((got, words.as_str()), (status, word), "{name} {number}");
        id
    };
    said("skip", 5, 202, "").await;
    let skipped = said("skip", 4, 200, "skipped").await;
    said("reorder", 2, 202, "").await;
    let waiting = said("reorder", 4, 202, "waiting").await;
    let batch = [7, 6].map(|it| commands.signed("reorder", it).1);
    let results = post_batch(&commands.node.client(&commands.billing), &batch).await.unwrap();
    assert_eq!(results.iter().map(words).collect::<Vec<_>>(), ["waiting"; 2], "{results:?}");

    // The first one fails for good.
    said("strict", 1, 202, "").await;
    let bot = commands.node.client(&commands.bot);
    let first = bot.receive("strict", 1, Duration::from_secs(30), Duration::from_secs(5)).await.unwrap();
    bot.release("strict", &[first[0].receipt()], Duration::ZERO, None).await.unwrap();
    let mut number = 1;
    let parked = eventually("what comes after it is parked", async || {
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
        let step = commands.explained(id).await;
        assert!(step["decision"].as_str().unwrap().contains(decision), "{step}");
        assert_eq!(step["basis"]["sequence"][part], value, "{step}");
    }
}

/// ORD-3: the same words from the SDK and on the command line.
#[tokio::test]
async fn clients_have_words_for_it() {
    let commands = Commands::set().await;
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
    let words = ["emit", "-c", &credentials, "--target", "acme/bot", "--name", "reorder", "--output", "json"];
    let emitted = shell.run_words(&[&words[..], &[r#"{"build":"b","number":6}"#]].concat());
    assert_eq!(emitted.json()["waiting"], true, "{emitted:?}");
}
