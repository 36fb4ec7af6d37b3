//! How messages stand, one at a time.

use reqwest::Method;
use serde_json::json;

use super::{Builds, ids, order, reason};
use crate::node::{Draft, Launch, new_id, post};
use crate::patience::eventually;
use crate::shell::Shell;
use crate::wire::metric;

/// ORD-1: exact, whole, from zero, as a number or as text, and never through a float.
#[tokio::test]
async fn numbers_are_whole_and_exact() {
    let builds = Builds::set(Launch::default()).await;
    let of = order(json!({ "mode": "strict" }));
    assert_eq!(builds.subscribe("deploy", "build", &of, json!({})).await.0, 201);
    for (place, (number, status, reason_is)) in [
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
        let answer = builds.send(&format!("big-{place}"), "build", "big", number).await;
        assert_eq!(reason(&answer), (status, reason_is), "{number}: {}", answer.1);
    }
    // By their value, however they are written.
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

/// ORD-3, ORD-4, ORD-8: the cases of the sequence-validation story, late ones refused.
#[tokio::test]
async fn strict_order_refuses_late_events_and_counts_what_it_meets() {
    let builds = Builds::set(Launch::default().set("STRICT_ORDERING", "true")).await;
    assert_eq!(builds.subscribe("deploy", "build", &order(json!({})), json!({})).await.0, 201);
    for (number, status) in [(1, 202), (2, 202), (1, 200), (5, 202), (4, 409), (5, 200), (6, 202)] {
        assert_eq!(builds.sent("b", number).await.0, status, "{number}");
    }
    let conflict = builds.send("other", "build", "b", "6").await;
    assert_eq!(reason(&conflict), (409, "sequence_conflict"));
    assert_eq!(conflict.1["accepted"], json!(false));
    let late = builds.send("late", "build", "b", "3").await;
    assert_eq!((&late.1["number"], &late.1["last"]), (&json!(3), &json!(6)), "{}", late.1);
    let route = r#"{route="acme/deploy:acme/ci:build"}"#;
    let counted = async |name: &str| metric(&builds.node, &format!("{name}{route}")).await;
    assert_eq!(counted("event_order_violations_total").await, Some(3.0));
    assert_eq!(counted("event_sequence_gaps_total").await, Some(1.0));
    assert_eq!(metric(&builds.node, "event_sequence_gap_size_sum").await, Some(2.0));
    assert!(metric(&builds.node, "sequence_validation_duration_seconds_count").await > Some(5.0));
    let said = builds.node.said();
    let line = said.lines().find(|it| it.contains("a late message")).unwrap_or_else(|| panic!("{said}"));
    for part in ["number=4", "last=5", "distance=1", "entity=\"b\""] {
        assert!(line.contains(part), "{line}");
    }
    let line = said.lines().find(|it| it.contains("a number that another message has")).unwrap();
    for part in ["number=6", "last=6", "distance=0", "entity=\"b\""] {
        assert!(line.contains(part), "{line}");
    }
    // One at a time, lowest first.
    for number in [1, 2, 5, 6] {
        let received = builds.receive("deploy").await;
        assert_eq!(ids(&received), [format!("b-{number}")]);
        assert!(builds.receive("deploy").await.is_empty());
        builds.end("deploy", &received).await;
    }
}

/// ORD-3, ORD-5
#[tokio::test]
async fn late_events_are_delivered_or_left_out_and_a_completion_closes() {
    let builds = Builds::set(Launch::default()).await;
    let both = order(json!({ "scope": "builds", "completion": ["done"] }));
    for (service, mode) in [("deploy", "lenient"), ("lenient", "skip")] {
        let mut of = both.clone();
        of["mode"] = json!(mode);
        for name in ["build", "done"] {
            assert_eq!(builds.subscribe(service, name, &of, json!({})).await.0, 201);
        }
    }
    for number in [1, 3, 2] {
        let (status, answer) = builds.sent("b", number).await;
        assert_eq!(status, 202, "{answer}");
        let skipped = answer["subscriptions"].as_array().unwrap().iter().any(|it| it["verdict"] == "skipped");
        assert_eq!(skipped, number == 2, "{answer}");
    }
    assert_eq!(ids(&builds.receive("deploy").await), ["b-1", "b-3", "b-2"]);
    // ORD-8: in every mode.
    for service in ["deploy", "lenient"] {
        let late = format!(r#"event_order_violations_total{{route="acme/{service}:acme/ci:build"}}"#);
        assert_eq!(metric(&builds.node, &late).await, Some(1.0), "{service}");
    }
    let path = "/v1/entities/b?destination=acme/deploy:acme/ci:build";
    assert_eq!(builds.node.get(path).await["missing"], json!(0));
    assert_eq!(builds.send("end", "done", "b", "4").await.0, 202);
    // Both types count together, under either name.
    let closed = builds.node.get("/v1/entities/b?destination=acme/deploy:acme/ci:done").await;
    assert_eq!((&closed["closed"], &closed["last"]), (&json!(true), &json!(4)));
    assert_eq!(closed["scope"], json!("acme/deploy#builds"));
    assert_eq!(builds.send("late", "build", "b", "0").await.0, 202);
    assert_eq!(builds.node.get(path).await["last"], json!(4), "a late one does not begin it anew");
}

/// ORD-3: a wait that ends is ended by the node itself.
#[tokio::test]
async fn what_waits_goes_out_when_its_wait_is_over() {
    let builds = Builds::set(Launch::default()).await;
    let of = order(json!({ "mode": "reorder", "wait_seconds": 4 }));
    assert_eq!(builds.subscribe("deploy", "build", &of, json!({})).await.0, 201);
    for number in [1, 4, 3] {
        assert_eq!(builds.sent("b", number).await.0, 202);
    }
    for number in [1, 3, 4] {
        let received = eventually("the next one", async || {
            let received = builds.receive("deploy").await;
            (!received.is_empty()).then_some(received)
        })
        .await;
        assert_eq!(ids(&received), [format!("b-{number}")]);
        builds.end("deploy", &received).await;
    }
    let gaps = r#"event_sequence_gaps_total{route="acme/deploy:acme/ci:build"}"#;
    eventually("the gap is counted", async || metric(&builds.node, gaps).await.filter(|it| *it == 1.0)).await;
    assert_eq!(builds.sent("b", 2).await.0, 409);
}

/// ORD-6, ORD-7, over the command line.
#[tokio::test]
async fn an_entity_is_shown_skipped_and_reset_on_the_record() {
    let builds = Builds::set(Launch::default()).await;
    let of = order(json!({ "mode": "strict", "on_failure": "park" }));
    assert_eq!(builds.subscribe("deploy", "build", &of, json!({ "receives_max": 1 })).await.0, 201);
    for number in 1..=3 {
        builds.sent("b", number).await;
    }
    let first = builds.receive("deploy").await;
    assert_eq!(ids(&first), ["b-1"]);
    // Nobody acknowledges it, and it may be handed out once only.
    let client = builds.client("deploy");
    let again = first[0].receipt();
    client.release("deploy", &[again], std::time::Duration::ZERO, None).await.unwrap();
    let shell = Shell::at(&builds.node).with("SNAVIO_TOKEN", &builds.node.operator_token());
    let show = "entities show b --destination acme/deploy:acme/ci:build --output json";
    let parked = eventually("it is parked", async || {
        builds.receive("deploy").await;
        let shown = shell.run(show).json();
        (shown["parkedAt"] == json!(1)).then_some(shown)
    })
    .await;
    assert_eq!((&parked["last"], &parked["mode"]), (&json!(3), &json!("strict")));
    assert!(builds.receive("deploy").await.is_empty());
    let skip = |number: i64| {
        let words = ["entities", "skip", "b", "--destination", "acme/deploy:acme/ci:build", "--number"];
        let number = number.to_string();
        shell.run_words(&[&words[..], &[&number, "--why", "of no use"]].concat())
    };
    assert_eq!(skip(2).code, Some(1), "it is not parked there");
    assert_eq!(skip(1).code, Some(0));
    let second = eventually("the next one", async || builds.receive("deploy").await.pop()).await;
    assert_eq!(second.message.id(), Some("b-2"));
    let reset =
        ["entities", "reset", "b", "--destination", "acme/deploy:acme/ci:build", "--why", "numbered anew"];
    assert_eq!(shell.run_words(&reset).code, Some(1), "deliveries of it are there");
    assert_eq!(shell.run_words(&[&reset[..], &["--force"]].concat()).code, Some(0));
    assert_ne!(shell.run(show).code, Some(0), "nothing is known of it");
    assert_eq!(builds.send("new", "build", "b", "1").await.0, 202);
    let audit = builds.node.get("/v1/audit").await.to_string();
    for deed in ["entity.skip", "entity.reset"] {
        assert!(audit.contains(deed), "{audit}");
    }
}

/// ORD-7, DLV-2: what was tried and purged is a dead letter that a person puts back by itself, though no claim waits for it, and
/// nothing passes it.
#[tokio::test]
async fn what_was_tried_is_not_passed_for_being_purged() {
    let builds = Builds::set(Launch::default()).await;
    let of = order(json!({ "mode": "strict", "on_failure": "park" }));
    assert_eq!(builds.subscribe("deploy", "build", &of, json!({})).await.0, 201);
    for number in 1..=3 {
        builds.sent("b", number).await;
    }
    assert_eq!(ids(&builds.receive("deploy").await), ["b-1"]);
    let purge = "/v1/queues/deploy/purge?tenant=acme";
    let (status, purged) = builds.operate(Method::POST, purge, json!({ "why": "a migration" })).await;
    assert_eq!((status, purged), (200, json!({ "purged": 2, "in_doubt": 1, "in_progress": 0 })));
    let parked = builds.sent("b", 4).await;
    assert_eq!((parked.0, &parked.1["parked"]), (202, &json!(true)), "{}", parked.1);
    assert!(builds.receive("deploy").await.is_empty());
    let letters = builds.node.get("/v1/dead-letters?tenant=acme").await;
    let all = "/v1/queues/dead/redrive?tenant=acme";
    let (status, done) = builds.operate(Method::POST, all, json!({ "why": "all" })).await;
    assert_eq!((status, &done["redriven"]), (200, &json!(0)), "{done}");
    let one = format!("/v1/dead-letters/{}/redrive?tenant=acme", letters["items"][0]["id"]);
    let (status, done) = builds.operate(Method::POST, &one, json!({ "why": "it was not done" })).await;
    assert_eq!((status, &done["redriven"]), (200, &json!(1)), "{done} {letters}");
    for number in [1, 4] {
        let received = eventually("the next one", async || {
            Some(builds.receive("deploy").await).filter(|it| !it.is_empty())
        })
        .await;
        assert_eq!(ids(&received), [format!("b-{number}")]);
        builds.end("deploy", &received).await;
    }
}

/// ORD-6: whatever its name, and by which name it was counted.
#[tokio::test]
async fn every_entity_can_be_asked_for() {
    let builds = Builds::set(Launch::default()).await;
    let mut of = order(json!({ "mode": "strict" }));
    assert_eq!(builds.subscribe("deploy", "build", &of, json!({})).await.0, 201);
    for (place, name) in ["", ".", "..", "a/b?c"].into_iter().enumerate() {
        assert_eq!(builds.send(&format!("odd-{place}"), "build", name, "7").await.0, 202);
    }
    let shell = Shell::at(&builds.node).with("SNAVIO_TOKEN", &builds.node.operator_token());
    let shown = |name: &str| {
        let words =
            ["entities", "show", name, "--destination", "acme/deploy:acme/ci:build", "--output", "json"];
        shell.run_words(&words).json()
    };
    for name in ["", ".", "..", "a/b?c"] {
        assert_eq!((&shown(name)["entity"], &shown(name)["last"]), (&json!(name), &json!(7)));
    }
    // What was counted before the route had a scope is there still.
    let received = builds.receive("deploy").await;
    assert_eq!(received.len(), 4);
    builds.end("deploy", &received).await;
    of["scope"] = json!("builds");
    let (status, answer) = builds.subscribe("deploy", "build", &of, json!({})).await;
    assert!(matches!(status, 200 | 201), "{answer}");
    assert_eq!(shown(".")["scope"], json!("acme/deploy:acme/ci:build"));
    assert_eq!(builds.send("anew", "build", ".", "1").await.0, 202);
    assert_eq!((&shown(".")["scope"], &shown(".")["last"]), (&json!("acme/deploy#builds"), &json!(1)));
}

/// ORD-3, ORD-5: late at every subscription, and late once it is closed.
#[tokio::test]
async fn an_event_that_is_late_for_all_is_refused() {
    let builds = Builds::set(Launch::default()).await;
    let of = order(json!({ "mode": "strict", "scope": "builds", "completion": ["done"] }));
    for service in ["deploy", "strict"] {
        for name in ["build", "done"] {
            assert_eq!(builds.subscribe(service, name, &of, json!({})).await.0, 201);
        }
    }
    assert_eq!(builds.sent("b", 5).await.0, 202);
    let late = builds.sent("b", 4).await;
    assert_eq!(reason(&late), (409, "out_of_order"));
    assert_eq!((&late.1["number"], &late.1["last"]), (&json!(4), &json!(5)));
    assert_eq!(builds.send("end", "done", "b", "6").await.0, 202);
    let late = builds.sent("b", 3).await;
    assert_eq!(reason(&late), (409, "entity_closed"));
    assert_eq!((&late.1["number"], &late.1["last"]), (&json!(3), &json!(6)));
    let letters = builds.node.get("/v1/dead-letters?tenant=acme").await;
    assert_eq!(letters["items"], json!([]), "nothing of them was written");
}

/// PIP-13, ORD-4: a dead letter needs another one that takes the event.
#[tokio::test]
async fn an_event_that_is_late_for_one_and_unreadable_for_the_other_is_refused() {
    let builds = Builds::set(Launch::default()).await;
    let strict = order(json!({ "mode": "strict" }));
    assert_eq!(builds.subscribe("deploy", "build", &strict, json!({})).await.0, 201);
    assert_eq!(builds.sent("b", 5).await.0, 202);
    let blind = json!({ "entity": "/buildId", "number": "/buildId", "mode": "strict" });
    assert_eq!(builds.subscribe("strict", "build", &blind, json!({})).await.0, 201);
    let late = builds.sent("b", 4).await;
    assert_eq!(reason(&late), (409, "out_of_order"));
    assert_eq!((&late.1["number"], &late.1["last"]), (&json!(4), &json!(5)), "{}", late.1);
    let letters = builds.node.get("/v1/dead-letters?tenant=acme").await;
    assert_eq!(letters["items"], json!([]), "nothing of it was written");
    assert_eq!(builds.sent("b", 6).await.0, 202, "one takes it");
    builds.node.items("/v1/dead-letters?tenant=acme", |it| it.len() == 1).await;
}

/// ORD-4, CLM-1: each type has a claim of its own, and what is called a duplicate would never be delivered.
#[tokio::test]
async fn one_id_of_two_types_that_count_together_is_two_events() {
    let builds = Builds::set(Launch::default()).await;
    let of = order(json!({ "mode": "strict", "scope": "builds" }));
    for name in ["build", "done"] {
        assert_eq!(builds.subscribe("deploy", name, &of, json!({})).await.0, 201);
    }
    assert_eq!(builds.send("order-7", "build", "b", "1").await.0, 202);
    // Its number is taken: that is for its producer to know.
    let taken = builds.send("order-7", "done", "b", "1").await;
    assert_eq!(reason(&taken), (409, "sequence_conflict"), "{}", taken.1);
    for expected in [202, 200] {
        let sent = builds.send("order-7", "done", "b", "2").await;
        assert_eq!(sent.0, expected, "{}", sent.1);
    }
    assert_eq!(builds.send("order-7", "build", "b", "1").await.0, 200, "its claim knows it");
    for name in ["build", "done"] {
        let received = builds.receive("deploy").await;
        assert_eq!(ids(&received), ["order-7"]);
        assert_eq!(received[0].message.as_event().unwrap().event_type.as_str(), name);
        builds.end("deploy", &received).await;
    }
    assert!(builds.receive("deploy").await.is_empty());
}

/// ORD-4, ORD-6: of more gaps than are tracked, no figure says more than is known.
#[tokio::test]
async fn what_is_missing_is_told_from_what_is_not_tracked_any_more() {
    let builds = Builds::set(Launch::default()).await;
    assert_eq!(builds.subscribe("deploy", "build", &order(json!({})), json!({})).await.0, 201);
    let shell = Shell::at(&builds.node).with("SNAVIO_TOKEN", &builds.node.operator_token());
    let show = "entities show b --destination acme/deploy:acme/ci:build --output json";
    let send = async |numbers: &mut dyn Iterator<Item = i64>| {
        for number in numbers {
            assert_eq!(builds.sent("b", number).await.0, 202);
        }
        let shown = shell.run(show).json();
        (shown["gaps"].as_array().unwrap().len(), shown["missing"].clone(), shown["untracked"].clone())
    };
    assert_eq!(send(&mut (0..=80).step_by(2)).await, (32, json!(32), json!(8)));
    assert_eq!(send(&mut (1..=79).step_by(2)).await, (0, json!(0), json!(8)));
}

/// ORD-4, ORD-8: the number of one that waits is taken, and the last one is another.
#[tokio::test]
async fn a_number_that_a_waiting_message_has_is_refused_with_both_numbers() {
    let builds = Builds::set(Launch::default()).await;
    let of = order(json!({ "mode": "reorder" }));
    assert_eq!(builds.subscribe("deploy", "build", &of, json!({})).await.0, 201);
    for number in [1, 4] {
        assert_eq!(builds.sent("b", number).await.0, 202);
    }
    let taken = builds.send("other", "build", "b", "4").await;
    assert_eq!(reason(&taken), (409, "sequence_conflict"));
    assert_eq!((&taken.1["number"], &taken.1["last"]), (&json!(4), &json!(1)), "{}", taken.1);
    let said = builds.node.said();
    let line = said.lines().find(|it| it.contains("a number that another message has")).unwrap();
    for part in ["number=4", "last=1", "distance=3", "entity=\"b\""] {
        assert!(line.contains(part), "{line}");
    }
}

/// ORD-1: what cannot be is not registered.
#[tokio::test]
async fn an_order_that_cannot_be_kept_is_not_registered() {
    let builds = Builds::set(Launch::default()).await;
    let of = order(json!({ "mode": "strict" }));
    for (order, further, says) in [
        (of.clone(), json!({ "claim": { "policy": "none" } }), "claim policy"),
        (order(json!({ "mode": "lenient", "on_failure": "park" })), json!({}), "on_failure park"),
        (order(json!({ "on_failure": "park" })), json!({}), "order.mode must say so"),
        (order(json!({ "wait_seconds": 0 })), json!({}), "wait_seconds"),
        (order(json!({ "completion": ["done"] })), json!({}), "one scope"),
        (order(json!({ "mode": "reorder", "timestamp_as_number": true })), json!({}), "timestamp_as_number"),
    ] {
        let (status, answer) = builds.subscribe("deploy", "build", &order, further).await;
        assert!(status >= 400 && answer.to_string().contains(says), "{status} {answer}");
    }
    assert_eq!(builds.subscribe("deploy", "build", &of, json!({})).await.0, 201);
    // Types that count together are judged in one way.
    let scoped = |mode: &str| order(json!({ "mode": mode, "scope": "builds", "completion": ["done"] }));
    assert_eq!(builds.subscribe("reorder", "build", &scoped("reorder"), json!({})).await.0, 201);
    let (status, answer) = builds.subscribe("reorder", "done", &scoped("lenient"), json!({})).await;
    assert!(status >= 400 && answer.to_string().contains("same scope"), "{status} {answer}");
    let always = json!({ "acl": "always" });
    let (status, answer) = builds.subscribe("reorder", "done", &scoped("reorder"), always).await;
    assert!(status >= 400 && answer.to_string().contains("acl or order"), "{status} {answer}");
    assert_eq!(builds.subscribe("reorder", "done", &scoped("reorder"), json!({})).await.0, 201);
    let path = "/v1/subscriptions/acme/deploy/acme/ci/build";
    assert_eq!(builds.node.get(path).await["order"]["mode"], json!("strict"));
    let (status, _) = builds
        .operate(
            Method::POST,
            "/v1/entities/x/reset?destination=acme/deploy:acme/ci:build",
            json!({ "why": "x" }),
        )
        .await;
    assert_eq!(status, 404);
}

/// ORD-6, CLM-1: an id is enough to guess at its content, so other services of the tenant do not see it.
#[tokio::test]
async fn only_senders_recipients_and_people_see_ids_of_entities() {
    let builds = Builds::set(Launch::default()).await;
    for (name, policy) in [("build", "strict"), ("done", "event")] {
        let of = order(json!({ "mode": "reorder", "wait_seconds": 3600 }));
        let subscribed = builds.subscribe("reorder", name, &of, json!({ "claim": { "policy": policy } }));
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
    let builds = Builds::set(Launch::default()).await;
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
