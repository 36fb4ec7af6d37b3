//! Order of single messages: verdicts, gaps, waits, parking, scopes and the commands on entities.

use reqwest::Method;
use serde_json::{Value, json};

use super::{BuildsFixture, ids, order, status_and_reason};
use crate::node::{Draft, Launch, new_id, post};
use crate::patience::eventually;
use crate::shell::Shell;
use crate::wire::metric;

/// ORD-1: sequence numbers are exact whole numbers from zero, as a number or as text, and never pass through
/// a float.
#[tokio::test]
async fn numbers_are_whole_and_exact() {
    let builds = BuildsFixture::start(Launch::default()).await;
    let settings = order(json!({ "mode": "strict" }));
    assert_eq!(builds.subscribe("deploy", "build", &settings, json!({})).await.0, 201);
    for (index, (number, status, expected)) in [
        ("9007199254740993", 202, ""),
        ("9007199254740992", 409, "out_of_order"),
        ("9007199254740994", 202, ""),
        ("9223372036854775807", 202, ""),
        ("9223372036854775808", 400, "invalid_sequence"),
        ("-1", 400, "invalid_sequence"),
        ("7.5", 400, "invalid_sequence"),
        (r#""seven""#, 400, "invalid_sequence"),
        ("true", 400, "invalid_sequence"),
        ("null", 202, ""),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = builds.send(&format!("big-{index}"), "build", "big", number).await;
        assert_eq!(status_and_reason(&answer), (status, expected), "{number}: {}", answer.1);
    }
    // Numbers compare by value, in every notation.
    for (id, number, status) in [
        ("a", r#""7""#, 202),
        ("b", "7.0", 409),
        ("c", "8", 202),
        ("d", "1e3", 202),
        ("e", "999", 409),
        ("f", "1001", 202),
    ] {
        let answer = builds.send(id, "build", "written", number).await;
        assert_eq!(answer.0, status, "{number}: {}", answer.1);
    }
    let path = "/v1/entities/big?destination=acme/deploy:acme/ci:build";
    assert_eq!(builds.node.get(path).await["last"], json!(i64::MAX));
    let path = "/v1/entities/written?destination=acme/deploy:acme/ci:build";
    assert_eq!(builds.node.get(path).await["last"], json!(1001));
}

/// ORD-3, ORD-4, ORD-8: the cases of the story of sequence validation; late messages are refused.
#[tokio::test]
async fn strict_order_refuses_late_events_and_counts_violations() {
    let builds = BuildsFixture::start(Launch::default().set("STRICT_ORDERING", "true")).await;
    assert_eq!(builds.subscribe("deploy", "build", &order(json!({})), json!({})).await.0, 201);
    for (number, status) in [(1, 202), (2, 202), (1, 200), (5, 202), (4, 409), (5, 200), (6, 202)] {
        assert_eq!(builds.send_build("b", number).await.0, status, "{number}");
    }
    let conflict = builds.send("other", "build", "b", "6").await;
    assert_eq!(status_and_reason(&conflict), (409, "sequence_conflict"));
    assert_eq!(conflict.1["accepted"], json!(false));
    let late = builds.send("late", "build", "b", "3").await;
    assert_eq!((&late.1["number"], &late.1["last"]), (&json!(3), &json!(6)), "{}", late.1);
    let route = r#"{route="acme/deploy:acme/ci:build"}"#;
    for (name, count) in [("event_order_violations_total", 3.0), ("event_sequence_gaps_total", 1.0)] {
        assert_eq!(metric(&builds.node, &format!("{name}{route}")).await, Some(count), "{name}");
    }
    assert_eq!(metric(&builds.node, "event_sequence_gap_size_sum").await, Some(2.0));
    assert!(metric(&builds.node, "sequence_validation_duration_seconds_count").await > Some(5.0));
    let log = builds.node.said();
    let line = log.lines().find(|line| line.contains("a late message")).unwrap_or_else(|| panic!("{log}"));
    for part in ["number=4", "last=5", "distance=1", "entity=\"b\""] {
        assert!(line.contains(part), "{line}");
    }
    let line = log.lines().find(|line| line.contains("a number that another message has")).unwrap();
    for part in ["number=6", "last=6", "distance=0", "entity=\"b\""] {
        assert!(line.contains(part), "{line}");
    }
    // One delivery is leased at a time, the lowest number first.
    for number in [1, 2, 5, 6] {
        let received = builds.receive("deploy").await;
        assert_eq!(ids(&received), [format!("b-{number}")]);
        assert!(builds.receive("deploy").await.is_empty());
        builds.acknowledge("deploy", &received).await;
    }
}

/// ORD-3, ORD-5
#[tokio::test]
async fn late_events_are_delivered_or_skipped_and_completion_closes() {
    let builds = BuildsFixture::start(Launch::default()).await;
    let both = order(json!({ "scope": "builds", "completion": ["done"] }));
    for (service, mode) in [("deploy", "lenient"), ("lenient", "skip")] {
        let mut settings = both.clone();
        settings["mode"] = json!(mode);
        for name in ["build", "done"] {
            assert_eq!(builds.subscribe(service, name, &settings, json!({})).await.0, 201);
        }
    }
    for number in [1, 3, 2] {
        let (status, answer) = builds.send_build("b", number).await;
        assert_eq!(status, 202, "{answer}");
        let skipped =
            answer["subscriptions"].as_array().unwrap().iter().any(|verdict| verdict["verdict"] == "skipped");
        assert_eq!(skipped, number == 2, "{answer}");
    }
    assert_eq!(ids(&builds.receive("deploy").await), ["b-1", "b-3", "b-2"]);
    // ORD-8: late messages are counted in every mode.
    for service in ["deploy", "lenient"] {
        let late = format!(r#"event_order_violations_total{{route="acme/{service}:acme/ci:build"}}"#);
        assert_eq!(metric(&builds.node, &late).await, Some(1.0), "{service}");
    }
    let path = "/v1/entities/b?destination=acme/deploy:acme/ci:build";
    assert_eq!(builds.node.get(path).await["missing"], json!(0));
    assert_eq!(builds.send("end", "done", "b", "4").await.0, 202);
    // Both types count together, and either name shows the same entity.
    let closed = builds.node.get("/v1/entities/b?destination=acme/deploy:acme/ci:done").await;
    assert_eq!((&closed["closed"], &closed["last"]), (&json!(true), &json!(4)));
    assert_eq!(closed["scope"], json!("acme/deploy#builds"));
    assert_eq!(builds.send("late", "build", "b", "0").await.0, 202);
    assert_eq!(
        builds.node.get(path).await["last"],
        json!(4),
        "a late message does not start the entity anew"
    );
}

/// ORD-3: the node itself ends a wait after its time.
#[tokio::test]
async fn waiting_messages_are_delivered_when_wait_ends() {
    let builds = BuildsFixture::start(Launch::default()).await;
    let settings = order(json!({ "mode": "reorder", "wait_seconds": 4 }));
    assert_eq!(builds.subscribe("deploy", "build", &settings, json!({})).await.0, 201);
    for number in [1, 4, 3] {
        assert_eq!(builds.send_build("b", number).await.0, 202);
    }
    for number in [1, 3, 4] {
        let received = eventually("the next delivery", async || {
            let received = builds.receive("deploy").await;
            (!received.is_empty()).then_some(received)
        })
        .await;
        assert_eq!(ids(&received), [format!("b-{number}")]);
        builds.acknowledge("deploy", &received).await;
    }
    let gaps = r#"event_sequence_gaps_total{route="acme/deploy:acme/ci:build"}"#;
    eventually("the gap is counted", async || metric(&builds.node, gaps).await.filter(|count| *count == 1.0))
        .await;
    assert_eq!(builds.send_build("b", 2).await.0, 409);
}

/// ORD-6, ORD-7, over the command line.
#[tokio::test]
async fn entity_show_skip_and_reset_are_audited() {
    let builds = BuildsFixture::start(Launch::default()).await;
    let settings = order(json!({ "mode": "strict", "on_failure": "park" }));
    assert_eq!(builds.subscribe("deploy", "build", &settings, json!({ "receives_max": 1 })).await.0, 201);
    for number in 1..=3 {
        builds.send_build("b", number).await;
    }
    let first = builds.receive("deploy").await;
    assert_eq!(ids(&first), ["b-1"]);
    // The consumer releases its only attempt, so the delivery fails for good.
    let client = builds.client("deploy");
    let again = first[0].receipt();
    client.release("deploy", &[again], std::time::Duration::ZERO, None).await.unwrap();
    let shell = Shell::at(&builds.node).with("SNAVIO_TOKEN", &builds.node.operator_token());
    let show = "entities show b --destination acme/deploy:acme/ci:build --output json";
    let parked = eventually("the entity is parked", async || {
        builds.receive("deploy").await;
        let shown = shell.run(show).json();
        (shown["parkedAt"] == json!(1)).then_some(shown)
    })
    .await;
    assert_eq!((&parked["last"], &parked["mode"]), (&json!(3), &json!("strict")));
    assert!(builds.receive("deploy").await.is_empty());
    for (number, code) in [("2", 1), ("1", 0)] {
        let words = ["entities", "skip", "b", "--destination", "acme/deploy:acme/ci:build", "--number"];
        let skipped = shell.run_words(&[&words[..], &[number, "--why", "of no use"]].concat());
        assert_eq!(skipped.code, Some(code), "the entity is parked at 1: {skipped:?}");
    }
    let second = eventually("the next delivery", async || builds.receive("deploy").await.pop()).await;
    assert_eq!(second.message.id(), Some("b-2"));
    let reset =
        ["entities", "reset", "b", "--destination", "acme/deploy:acme/ci:build", "--why", "numbered anew"];
    assert_eq!(shell.run_words(&reset).code, Some(1), "the queue holds deliveries of the entity");
    assert_eq!(shell.run_words(&[&reset[..], &["--force"]].concat()).code, Some(0));
    assert_ne!(shell.run(show).code, Some(0), "the entity is unknown");
    assert_eq!(builds.send("new", "build", "b", "1").await.0, 202);
    let audit = builds.node.get("/v1/audit").await.to_string();
    for action in ["entity.skip", "entity.reset"] {
        assert!(audit.contains(action), "{audit}");
    }
}

/// ORD-7, DLV-2: a delivery that was attempted and then purged is a dead letter. Only a person's redrive of
/// that one dead letter returns it, even without a claim, and no later message of the entity passes it.
#[tokio::test]
async fn purged_attempted_delivery_still_blocks_its_entity() {
    let builds = BuildsFixture::start(Launch::default()).await;
    let settings = order(json!({ "mode": "strict", "on_failure": "park" }));
    assert_eq!(builds.subscribe("deploy", "build", &settings, json!({})).await.0, 201);
    for number in 1..=3 {
        builds.send_build("b", number).await;
    }
    assert_eq!(ids(&builds.receive("deploy").await), ["b-1"]);
    let purge = "/v1/queues/deploy/purge?tenant=acme";
    let (status, purged) =
        builds.call_as_operator(Method::POST, purge, json!({ "why": "a migration" })).await;
    assert_eq!((status, purged), (200, json!({ "purged": 2, "in_doubt": 1, "in_progress": 0 })));
    let parked = builds.send_build("b", 4).await;
    assert_eq!((parked.0, &parked.1["parked"]), (202, &json!(true)), "{}", parked.1);
    assert!(builds.receive("deploy").await.is_empty());
    let letters = builds.node.get("/v1/dead-letters?tenant=acme").await;
    let all = "/v1/queues/dead/redrive?tenant=acme";
    let (status, done) = builds.call_as_operator(Method::POST, all, json!({ "why": "all" })).await;
    assert_eq!((status, &done["redriven"]), (200, &json!(0)), "{done}");
    let one = format!("/v1/dead-letters/{}/redrive?tenant=acme", letters["items"][0]["id"]);
    let (status, done) =
        builds.call_as_operator(Method::POST, &one, json!({ "why": "it was not done" })).await;
    assert_eq!((status, &done["redriven"]), (200, &json!(1)), "{done} {letters}");
    for number in [1, 4] {
        let received = eventually("the next delivery", async || {
            Some(builds.receive("deploy").await).filter(|received| !received.is_empty())
        })
        .await;
        assert_eq!(ids(&received), [format!("b-{number}")]);
        builds.acknowledge("deploy", &received).await;
    }
}

fn show_entity(shell: &Shell, name: &str) -> Value {
    let words = ["entities", "show", name, "--destination", "acme/deploy:acme/ci:build", "--output", "json"];
    shell.run_words(&words).json()
}

/// ORD-6: an entity can be shown under any name, and under the name by which it was counted.
#[tokio::test]
async fn entity_with_any_name_can_be_shown() {
    let builds = BuildsFixture::start(Launch::default()).await;
    let mut settings = order(json!({ "mode": "strict" }));
    assert_eq!(builds.subscribe("deploy", "build", &settings, json!({})).await.0, 201);
    for (index, name) in ["", ".", "..", "a/b?c"].into_iter().enumerate() {
        assert_eq!(builds.send(&format!("odd-{index}"), "build", name, "7").await.0, 202);
    }
    let shell = Shell::at(&builds.node).with("SNAVIO_TOKEN", &builds.node.operator_token());
    for name in ["", ".", "..", "a/b?c"] {
        assert_eq!(
            (&show_entity(&shell, name)["entity"], &show_entity(&shell, name)["last"]),
            (&json!(name), &json!(7))
        );
    }
    // The state from before the route had a scope is still shown.
    let received = builds.receive("deploy").await;
    assert_eq!(received.len(), 4);
    builds.acknowledge("deploy", &received).await;
    settings["scope"] = json!("builds");
    let (status, answer) = builds.subscribe("deploy", "build", &settings, json!({})).await;
    assert!(matches!(status, 200 | 201), "{answer}");
    assert_eq!(show_entity(&shell, ".")["scope"], json!("acme/deploy:acme/ci:build"));
    assert_eq!(builds.send("anew", "build", ".", "1").await.0, 202);
    assert_eq!(
        (&show_entity(&shell, ".")["scope"], &show_entity(&shell, ".")["last"]),
        (&json!("acme/deploy#builds"), &json!(1))
    );
}

/// ORD-3, ORD-5: a message that is late at every subscription, and one that comes after the entity is closed.
#[tokio::test]
async fn event_late_at_every_subscription_is_refused() {
    let builds = BuildsFixture::start(Launch::default()).await;
    let settings = order(json!({ "mode": "strict", "scope": "builds", "completion": ["done"] }));
    for service in ["deploy", "strict"] {
        for name in ["build", "done"] {
            assert_eq!(builds.subscribe(service, name, &settings, json!({})).await.0, 201);
        }
    }
    assert_eq!(builds.send_build("b", 5).await.0, 202);
    let late = builds.send_build("b", 4).await;
    assert_eq!(status_and_reason(&late), (409, "out_of_order"));
    assert_eq!((&late.1["number"], &late.1["last"]), (&json!(4), &json!(5)));
    assert_eq!(builds.send("end", "done", "b", "6").await.0, 202);
    let late = builds.send_build("b", 3).await;
    assert_eq!(status_and_reason(&late), (409, "entity_closed"));
    assert_eq!((&late.1["number"], &late.1["last"]), (&json!(3), &json!(6)));
    let letters = builds.node.get("/v1/dead-letters?tenant=acme").await;
    assert_eq!(letters["items"], json!([]), "the refused events left no dead letter");
}

/// PIP-13, ORD-4: a late event becomes a dead letter only if another subscription accepts the event.
#[tokio::test]
async fn event_late_for_one_and_unreadable_for_other_is_refused() {
    let builds = BuildsFixture::start(Launch::default()).await;
    let strict = order(json!({ "mode": "strict" }));
    assert_eq!(builds.subscribe("deploy", "build", &strict, json!({})).await.0, 201);
    assert_eq!(builds.send_build("b", 5).await.0, 202);
    let unreadable = json!({ "entity": "/buildId", "number": "/buildId", "mode": "strict" });
    assert_eq!(builds.subscribe("strict", "build", &unreadable, json!({})).await.0, 201);
    let late = builds.send_build("b", 4).await;
    assert_eq!(status_and_reason(&late), (409, "out_of_order"));
    assert_eq!((&late.1["number"], &late.1["last"]), (&json!(4), &json!(5)), "{}", late.1);
    let letters = builds.node.get("/v1/dead-letters?tenant=acme").await;
    assert_eq!(letters["items"], json!([]), "the refused event left no dead letter");
    assert_eq!(builds.send_build("b", 6).await.0, 202, "one subscription accepts it");
    builds.node.items("/v1/dead-letters?tenant=acme", |letters| letters.len() == 1).await;
}

/// ORD-4, CLM-1: each type has claims of its own; an event that was wrongly called a duplicate would never be
/// delivered.
#[tokio::test]
async fn same_id_of_two_types_in_scope_is_two_events() {
    let builds = BuildsFixture::start(Launch::default()).await;
    let settings = order(json!({ "mode": "strict", "scope": "builds" }));
    for name in ["build", "done"] {
        assert_eq!(builds.subscribe("deploy", name, &settings, json!({})).await.0, 201);
    }
    assert_eq!(builds.send("order-7", "build", "b", "1").await.0, 202);
    // The number is used, and the refusal tells the producer so.
    let taken = builds.send("order-7", "done", "b", "1").await;
    assert_eq!(status_and_reason(&taken), (409, "sequence_conflict"), "{}", taken.1);
    for expected in [202, 200] {
        let sent = builds.send("order-7", "done", "b", "2").await;
        assert_eq!(sent.0, expected, "{}", sent.1);
    }
    assert_eq!(builds.send("order-7", "build", "b", "1").await.0, 200, "its claim exists");
    for name in ["build", "done"] {
        let received = builds.receive("deploy").await;
        assert_eq!(ids(&received), ["order-7"]);
        assert_eq!(received[0].message.as_event().unwrap().event_type.as_str(), name);
        builds.acknowledge("deploy", &received).await;
    }
    assert!(builds.receive("deploy").await.is_empty());
}

/// ORD-4, ORD-6: with more gaps than are tracked, each count covers only numbers that are known.
#[tokio::test]
async fn missing_and_untracked_numbers_are_counted_separately() {
    let builds = BuildsFixture::start(Launch::default()).await;
    assert_eq!(builds.subscribe("deploy", "build", &order(json!({})), json!({})).await.0, 201);
    let shell = Shell::at(&builds.node).with("SNAVIO_TOKEN", &builds.node.operator_token());
    let show = "entities show b --destination acme/deploy:acme/ci:build --output json";
    let send = async |numbers: &mut dyn Iterator<Item = i64>| {
        for number in numbers {
            assert_eq!(builds.send_build("b", number).await.0, 202);
        }
        let shown = shell.run(show).json();
        (shown["gaps"].as_array().unwrap().len(), shown["missing"].clone(), shown["untracked"].clone())
    };
    assert_eq!(send(&mut (0..=80).step_by(2)).await, (32, json!(32), json!(8)));
    assert_eq!(send(&mut (1..=79).step_by(2)).await, (0, json!(0), json!(8)));
}

/// ORD-4, ORD-8: a waiting message has the number, and the refusal names it and the last number.
#[tokio::test]
async fn number_of_waiting_message_is_refused_with_both_numbers() {
    let builds = BuildsFixture::start(Launch::default()).await;
    let settings = order(json!({ "mode": "reorder" }));
    assert_eq!(builds.subscribe("deploy", "build", &settings, json!({})).await.0, 201);
    for number in [1, 4] {
        assert_eq!(builds.send_build("b", number).await.0, 202);
    }
    let taken = builds.send("other", "build", "b", "4").await;
    assert_eq!(status_and_reason(&taken), (409, "sequence_conflict"));
    assert_eq!((&taken.1["number"], &taken.1["last"]), (&json!(4), &json!(1)), "{}", taken.1);
    let log = builds.node.said();
    let line = log.lines().find(|line| line.contains("a number that another message has")).unwrap();
    for part in ["number=4", "last=1", "distance=3", "entity=\"b\""] {
        assert!(line.contains(part), "{line}");
    }
}

/// ORD-1: an order that cannot be kept is refused at registration.
#[tokio::test]
async fn impossible_order_is_not_registered() {
    let builds = BuildsFixture::start(Launch::default()).await;
    let settings = order(json!({ "mode": "strict" }));
    for (order, further, expected) in [
        (settings.clone(), json!({ "claim": { "policy": "none" } }), "claim policy"),
        (order(json!({ "mode": "lenient", "on_failure": "park" })), json!({}), "on_failure park"),
        (order(json!({ "on_failure": "park" })), json!({}), "the route must set order.mode itself"),
        (order(json!({ "wait_seconds": 0 })), json!({}), "wait_seconds"),
        (order(json!({ "completion": ["done"] })), json!({}), "the same scope"),
        (order(json!({ "mode": "reorder", "timestamp_as_number": true })), json!({}), "timestamp_as_number"),
    ] {
        let (status, answer) = builds.subscribe("deploy", "build", &order, further).await;
        assert!(status >= 400 && answer.to_string().contains(expected), "{status} {answer}");
    }
    assert_eq!(builds.subscribe("deploy", "build", &settings, json!({})).await.0, 201);
    // Types that count together must have the same mode.
    let [reorder, lenient] = ["reorder", "lenient"]
        .map(|mode| order(json!({ "mode": mode, "scope": "builds", "completion": ["done"] })));
    assert_eq!(builds.subscribe("reorder", "build", &reorder, json!({})).await.0, 201);
    let (status, answer) = builds.subscribe("reorder", "done", &lenient, json!({})).await;
    assert!(status >= 400 && answer.to_string().contains("same scope"), "{status} {answer}");
    let always = json!({ "acl": "always" });
    let (status, answer) = builds.subscribe("reorder", "done", &reorder, always).await;
    assert!(status >= 400 && answer.to_string().contains("acl or order"), "{status} {answer}");
    assert_eq!(builds.subscribe("reorder", "done", &reorder, json!({})).await.0, 201);
    let path = "/v1/subscriptions/acme/deploy/acme/ci/build";
    assert_eq!(builds.node.get(path).await["order"]["mode"], json!("strict"));
    let (status, _) = builds
        .call_as_operator(
            Method::POST,
            "/v1/entities/x/reset?destination=acme/deploy:acme/ci:build",
            json!({ "why": "x" }),
        )
        .await;
    assert_eq!(status, 404);
}

/// ORD-6, CLM-1: an id is enough to guess at content, so other services of the tenant do not see ids.
#[tokio::test]
async fn only_senders_recipients_and_people_see_ids_of_entities() {
    let builds = BuildsFixture::start(Launch::default()).await;
    for (name, policy) in [("build", "strict"), ("done", "event")] {
        let settings = order(json!({ "mode": "reorder", "wait_seconds": 3600 }));
        let subscribed =
            builds.subscribe("reorder", name, &settings, json!({ "claim": { "policy": policy } }));
        let subscribed = subscribed.await;
        assert_eq!(subscribed.0, 201, "{}", subscribed.1);
        for number in ["1", "3"] {
            assert_eq!(builds.send(&format!("{name}-{number}"), name, "b", number).await.0, 202);
        }
        let path = format!("/v1/entities/b?destination=acme/reorder:acme/ci:{name}");
        let whole = builds.node.get(&path).await;
        assert_eq!(whole["lastId"], format!("{name}-1"), "{whole}");
        assert_eq!(whole["waiting"][0]["eventId"], format!("{name}-3"), "{whole}");
        let seen = async |credentials| {
            let api = builds.node.client(credentials).authorized().await.unwrap();
            api.call(Method::GET, &path, None).await.unwrap()
        };
        assert_eq!(seen(&builds.ci).await, whole, "the sender");
        assert_eq!(seen(&builds.subscribers["reorder"]).await, whole, "the recipient");
        let mut hidden = whole;
        hidden.as_object_mut().unwrap().remove("lastId");
        hidden["waiting"][0].as_object_mut().unwrap().remove("eventId");
        assert_eq!(seen(&builds.subscribers["lenient"]).await, hidden, "another service");
    }
}

/// ORD-6, CLM-1: a claim at another destination does not confirm a guess at an id.
#[tokio::test]
async fn claim_elsewhere_shows_no_id_of_an_entity() {
    let builds = BuildsFixture::start(Launch::default()).await;
    let strict = order(json!({}));
    assert_eq!(builds.subscribe("strict", "build", &strict, json!({})).await.0, 201);
    let id = new_id();
    assert_eq!(builds.send(&id, "build", "b", "1").await.0, 202);
    let lenient = &builds.subscribers["lenient"];
    let route = json!({
        "target": "acme/lenient", "name": "note", "queue": "lenient", "dead_letter_queue": "dead",
        "claim": { "policy": "strict" },
    });
    let grant = json!({ "source": "acme/lenient", "target": "acme/lenient", "name": "note" });
    builds.node.apply(&json!({ "routes": [route], "grants": [grant] })).await;
    let guess = Draft { target: "lenient".into(), ..Draft::new("note", &id) };
    let client = builds.node.client(lenient);
    assert_eq!(post(&client, guess.sign(lenient)).await.0, 202, "the id is claimed there");
    let path = "/v1/entities/b?destination=acme/strict:acme/ci:build";
    let seen = client.authorized().await.unwrap().call(Method::GET, path, None).await.unwrap();
    assert_eq!((&seen["last"], seen.get("lastId")), (&json!(1), None), "{seen}");
}
