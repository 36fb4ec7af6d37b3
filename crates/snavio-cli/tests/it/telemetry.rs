//! Telemetry from outside (TEL-1, TEL-2, TEL-4, PIP-14): every outcome is told, once, to its own tenant.

use std::time::Duration;

use futures_util::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::bounds;
use snavio_sdk::Credentials;

use crate::node::{Draft, Launch, Node, new_id, post, post_batch, seconds_from_now, verdict};
use crate::patience::eventually;
use crate::queue::Scene;
use crate::raw_wire::{Wire, head};
use crate::wire::{Answered, http, metric, post_json};

impl Scene {
    /// Sends a message and says status and answer.
    async fn post(&self, draft: &Draft) -> (u16, Value) {
        post(&self.node.client(&self.cast.billing), draft.sign(&self.cast.billing)).await
    }

    async fn telemetry(&self, who: &Credentials, query: &str) -> Value {
        let api = self.node.client(who).authorized().await.expect("the service is authenticated");
        verdict(api.send(Method::GET, &format!("/v1/telemetry{query}"), None, "").await).1
    }

    /// The record of this type about this message; its refusal rides a later commit.
    async fn told(&self, kind: &str, id: &str) -> Value {
        eventually(kind, async || {
            let page = self.telemetry(&self.cast.billing, &format!("?type={kind}&limit=1000")).await;
            let items = page["items"].as_array().cloned().unwrap_or_default();
            items.into_iter().find(|it| it["command_id"] == id)
        })
        .await
    }
}

/// Checks the members that all records hold.
fn check_common(record: &Value, kind: &str, draft: &Draft) {
    assert_eq!(record["type"], kind, "{record}");
    assert_eq!(record["command_id"], draft.id.as_str(), "{record}");
    assert_eq!(record["source"], "acme/billing", "{record}");
    assert_eq!(record["target"], "acme/bot", "{record}");
    assert_eq!(record["command.name"], draft.name.as_str(), "{record}");
    let at = record["timestamp"].as_str().and_then(snavio_model::time::Timestamp::parse);
    assert!(at.is_some() && record["number"].is_i64(), "{record}");
}

/// TEL-1
#[tokio::test]
async fn what_is_delivered_is_told_with_its_path() {
    let scene = Scene::set().await;
    for (name, path) in [("notify", "fast"), ("pay", "slow")] {
        let draft = Draft::new(name, &new_id());
        let (_, answer) = scene.post(&draft).await;
        let record = scene.told("snavio.command.delivered", &draft.id).await;
        check_common(&record, "snavio.command.delivered", &draft);
        assert_eq!((&record["path"], &record["replay"]), (&json!(path), &json!(false)));
        assert_eq!(record["correlation_id"], answer["correlation_id"]);
    }
}

/// TEL-1, PIP-14
#[tokio::test]
async fn a_refusal_of_the_message_itself_is_told_as_invalid_and_one_for_other_causes_as_failed() {
    let scene = Scene::set().await;
    let (invalid, failed) = ("snavio.command.invalid", "snavio.command.failed");
    for (name, kind, reason) in [("delete-user", failed, "acl-deny"), ("lost", failed, "route-missing")] {
        let draft = Draft::new(name, &new_id());
        scene.post(&draft).await;
        let record = scene.told(kind, &draft.id).await;
        check_common(&record, kind, &draft);
        assert_eq!(record["reason"], reason);
    }
    let forged = Draft::new("notify", &new_id());
    post(&scene.node.client(&scene.cast.billing), forged.sign(&scene.cast.bot)).await;
    let record = scene.told(invalid, &forged.id).await;
    check_common(&record, invalid, &forged);
    assert_eq!(record["reason"], "hmac_invalid");

    let late = Draft { timestamp: seconds_from_now(-75), ..Draft::new("notify", &new_id()) };
    scene.post(&late).await;
    let record = scene.told(invalid, &late.id).await;
    check_common(&record, invalid, &late);
    assert_eq!(record["reason"], "timestamp_out_of_window");
    assert!(record["skew_seconds"].as_f64().is_some_and(|skew| (74.0..80.0).contains(&skew)), "{record}");
    assert_eq!(record["sent_at"], late.timestamp);
    assert!(record["received_at"].is_string());
}

/// TEL-1, PIP-14
#[tokio::test]
async fn what_was_refused_before_it_was_read_is_told_too() {
    let scene = Scene::set().await;
    let token = scene.node.token(&scene.cast.billing).await;
    let over = vec![b' '; bounds::BODY_BYTES_DEFAULT + 1];
    let too_large = post_json(&scene.node, "/v1/commands", &token, over);
    let url = format!("{}/v1/commands", scene.node.url());
    let xml =
        http(&scene.node).post(&url).bearer_auth(&token).header("content-type", "text/xml").body("<a/>");
    let signed = Draft::new("notify", &new_id()).sign(&scene.cast.billing);
    let headers = post_json(&scene.node, "/v1/commands", &token, signed).header("webhook-signature", "v1,x");
    let entry = format!(r#"[{{"x":"{}"}}]"#, "x".repeat(bounds::BODY_BYTES_DEFAULT));
    let in_batch = post_json(&scene.node, "/v1/commands/batch", &token, entry);
    for (what, request, reason, count) in [
        ("too large", too_large, "too_large", 1),
        ("not JSON", xml, "unsupported_media_type", 1),
        ("half a webhook", headers, "hmac_missing", 1),
        ("too large in a batch", in_batch, "too_large", 2),
    ] {
        Answered::to(request).await;
        eventually(what, async || {
            let page = scene.telemetry(&scene.cast.billing, "?type=snavio.command.invalid").await;
            let items = page["items"].as_array().cloned().unwrap_or_default();
            (items.iter().filter(|it| it["reason"] == reason).count() == count).then_some(())
        })
        .await;
    }
}

/// TEL-1
#[tokio::test]
async fn a_duplicate_is_told_with_all_that_names_it() {
    let scene = Scene::set().await;
    let draft = Draft::new("pay", &new_id());
    scene.post(&draft).await;
    let again = Draft { timestamp: seconds_from_now(1), ..draft.clone() };
    assert_eq!(scene.post(&again).await.0, 200);
    let record = scene.told("snavio.command.duplicate", &draft.id).await;
    check_common(&record, "snavio.command.duplicate", &draft);
    assert_eq!(record["dedupe_mode"], "strict");
}

/// TEL-1
#[tokio::test]
async fn a_clock_near_the_limit_is_told_of_before_it_is_refused() {
    let scene = Scene::set().await;
    let near = Draft { timestamp: seconds_from_now(-50), ..Draft::new("notify", &new_id()) };
    let ahead = Draft { timestamp: seconds_from_now(55), ..Draft::new("notify", &new_id()) };
    let calm = Draft { timestamp: seconds_from_now(-40), ..Draft::new("notify", &new_id()) };
    for draft in [&calm, &near, &ahead] {
        assert_eq!(scene.post(draft).await.0, 202);
    }
    for (draft, least) in [(&near, 49.0), (&ahead, 48.0)] {
        let record = scene.told("snavio.telemetry.skew_near_limit", &draft.id).await;
        check_common(&record, "snavio.telemetry.skew_near_limit", draft);
        assert!(
            record["skew_seconds"].as_f64().is_some_and(|skew| (least..60.0).contains(&skew)),
            "{record}"
        );
        assert_eq!(record["sent_at"], draft.timestamp);
    }
    // The calm one came first, so that a record of it would have been written by now.
    let told = scene.telemetry(&scene.cast.billing, "?type=snavio.telemetry.skew_near_limit").await;
    assert!(!told.to_string().contains(&calm.id));
}

/// TEL-1
#[tokio::test]
async fn a_dead_letter_is_told_to_the_sender() {
    let scene = Scene::set().await;
    let id = scene.send("notify").await;
    let letter = scene.exhaust().await;
    let record = scene.told("snavio.command.failed", &id).await;
    check_common(&record, "snavio.command.failed", &Draft::new("notify", &id));
    assert_eq!(
        (&record["reason"], &record["dead_letter_reason"]),
        (&json!("delivery-failure"), &json!("receives_exhausted"))
    );
    assert_eq!((&record["delivery_id"], &record["attempts"]), (&letter["id"], &json!(3)));
}

/// TEL-3, TEL-4
#[tokio::test]
async fn records_are_numbered_and_read_on_from_a_number_without_gap_or_repeat() {
    let scene = Scene::set().await;
    let mut sent = Vec::new();
    for _ in 0..7 {
        sent.push(scene.send("notify").await);
    }
    let (mut after, mut seen) = (json!(0), Vec::new());
    loop {
        let page = scene.telemetry(&scene.cast.billing, &format!("?after={after}&limit=3")).await;
        let items = page["items"].as_array().cloned().unwrap_or_default();
        if items.is_empty() {
            break;
        }
        assert!(items.len() <= 3 && items.is_sorted_by_key(|it| it["number"].as_i64()));
        after = page["next"].clone();
        let of_messages = items.iter().filter(|it| it["type"] == "snavio.command.delivered");
        seen.extend(of_messages.map(|it| it["command_id"].as_str().unwrap_or_default().to_owned()));
    }
    assert_eq!(seen, sent);
}

/// TEL-4
#[tokio::test]
async fn a_long_poll_waits_for_the_record_it_asks_for() {
    let scene = Scene::set().await;
    scene.send("notify").await;
    let asked = scene.telemetry(&scene.cast.billing, "?type=snavio.command.failed&wait_seconds=20");
    let cause = async {
        // What is not asked for does not end the poll.
        scene.send("notify").await;
        scene.post(&Draft::new("lost", &new_id())).await
    };
    let answered =
        tokio::time::timeout(Duration::from_secs(15), async { tokio::join!(asked, cause).0 }).await;
    let page = answered.expect("woken long before its time");
    assert_eq!(page["items"].as_array().map(Vec::len), Some(1), "{page}");
    assert_eq!(page["items"][0]["reason"], "route-missing");
}

/// TEL-4
#[tokio::test]
async fn telemetry_is_filtered_by_type_and_by_source() {
    let scene = Scene::set().await;
    let shop = json!({
        "services": [{ "name": "acme/shop" }],
        "grants": [{ "source": "acme/shop", "target": "acme/bot", "name": "notify" }],
    });
    let shop = scene.node.apply(&shop).await.remove(0);
    scene.send("notify").await;
    assert_eq!(post(&scene.node.client(&shop), Draft::new("notify", &new_id()).sign(&shop)).await.0, 202);
    scene.post(&Draft::new("lost", &new_id())).await;
    let failed = Draft::new("lost", &new_id());
    scene.post(&failed).await;
    scene.told("snavio.command.failed", &failed.id).await;
    for (query, count) in [
        ("?source=acme/shop", 1),
        ("?source=acme/billing&type=snavio.command.delivered", 1),
        ("?source=acme/billing&type=snavio.command.failed", 2),
        ("?source=acme/shop&type=snavio.command.failed", 0),
        ("?type=snavio.command.failed", 2),
    ] {
        let page = scene.telemetry(&scene.cast.bot, query).await;
        let items = page["items"].as_array().cloned().unwrap_or_default();
        let about_messages = items.iter().filter(|it| it["type"] != "snavio.telemetry.skew_sample");
        assert_eq!(about_messages.count(), count, "{query}: {page}");
    }
}

/// TEL-4, QUA-5
#[tokio::test]
async fn a_tenant_reads_its_own_telemetry_only() {
    let scene = Scene::set().await;
    let other = json!({ "tenants": [{ "name": "zeta" }], "services": [{ "name": "zeta/bot" }] });
    let zeta = scene.node.apply(&other).await.remove(0);
    scene.send("notify").await;
    for query in ["", "?source=acme/billing", "?tenant=zeta"] {
        assert_eq!(scene.telemetry(&zeta, query).await["items"], json!([]), "{query}");
    }
    let theirs = scene.telemetry(&zeta, "?tenant=acme").await;
    assert_eq!(theirs["reason"], "not_found");
    assert_eq!(theirs, scene.telemetry(&zeta, "?tenant=nobody").await, "as if there were no such tenant");
    let of_target = scene.telemetry(&scene.cast.bot, "?type=snavio.command.delivered").await;
    assert_eq!(of_target["items"].as_array().map(Vec::len), Some(1), "the same tenant's other service may");
}

/// Reads server-sent events until there are enough.
async fn events(scene: &Scene, last_event_id: Option<&str>, count: usize) -> Vec<(String, String, Value)> {
    let token = scene.node.token(&scene.cast.billing).await;
    let url = format!("{}/v1/telemetry?type=snavio.command.delivered", scene.node.url());
    let mut request = http(&scene.node).get(url).bearer_auth(token).header("accept", "text/event-stream");
    if let Some(id) = last_event_id {
        request = request.header("last-event-id", id);
    }
    let response = request.send().await.expect("the node answers");
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut text = String::new();
    let mut stream = response.bytes_stream();
    while text.matches("\ndata: ").count() < count || !text.ends_with("\n\n") {
        let part =
            tokio::time::timeout(Duration::from_secs(20), stream.next()).await.expect("events come in time");
        text.push_str(&String::from_utf8_lossy(&part.expect("the stream goes on").expect("bytes")));
    }
    let field = |event: &str, name: &str| {
        let line = event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_default().to_owned()
    };
    let events = text.split("\n\n").filter(|event| event.contains("data: "));
    events
        .map(|it| {
            (field(it, "id"), field(it, "event"), serde_json::from_str(&field(it, "data")).expect("JSON"))
        })
        .collect()
}

/// TEL-4
#[tokio::test]
async fn server_sent_events_begin_where_the_reader_stopped_and_go_on_as_things_happen() {
    let scene = Scene::set().await;
    let mut sent = vec![scene.send("notify").await, scene.send("notify").await];
    let first = events(&scene, None, 2).await;
    for ((id, event, data), message) in first.iter().zip(&sent) {
        assert_eq!((event.as_str(), &data["command_id"]), ("snavio.command.delivered", &json!(message)));
        assert_eq!(*id, data["number"].to_string());
    }
    let more = async {
        sent.push(scene.send("notify").await);
        sent.push(scene.send("notify").await);
    };
    let (rest, ()) = tokio::join!(events(&scene, Some(&first[0].0), 3), more);
    let rest: Vec<_> = rest.into_iter().map(|(_, _, data)| data["command_id"].clone()).collect();
    assert_eq!(rest, sent[1..].iter().map(|id| json!(id)).collect::<Vec<_>>());
}

/// REG-7
#[tokio::test]
async fn a_stream_ends_before_it_tells_more_to_one_who_may_not_read_any_more() {
    let scene = Scene::set().await;
    let token = scene.node.token(&scene.cast.bot).await;
    let mut wire = Wire::to(&scene.node);
    wire.send(head("GET /v1/telemetry", &token, &["Accept: text/event-stream"]));
    let billing = scene.node.client(&scene.cast.billing);
    let [told, untold] = [(); 2].map(|()| Draft::new("notify", &new_id()));
    assert_eq!(post(&billing, told.sign(&scene.cast.billing)).await.0, 202);
    assert!(String::from_utf8(wire.first_chunk()).unwrap().contains(&told.id));
    scene.node.apply(&json!({ "tenants": [{ "name": "acme", "suspended": true }] })).await;
    // The refusal is a record of the tenant's, which the stream would tell next.
    assert_eq!(post(&billing, untold.sign(&scene.cast.billing)).await.0, 403);
    assert_eq!(String::from_utf8(wire.chunks()).unwrap(), "");
}

/// TEL-2
#[tokio::test]
async fn delivered_records_survive_a_kill_and_numbers_rise_over_it() {
    let mut scene = Scene::set().await;
    let mut sent = vec![scene.send("notify").await];
    scene.node.kill();
    scene.node.restart(&Launch::default());
    sent.push(scene.send("notify").await);
    let page = scene.telemetry(&scene.cast.billing, "?type=snavio.command.delivered").await;
    let items = page["items"].as_array().cloned().unwrap_or_default();
    assert!(items.is_sorted_by_key(|it| it["number"].as_i64()));
    let told: Vec<_> = items.iter().map(|it| it["command_id"].as_str().unwrap_or_default()).collect();
    assert_eq!(told, sent);
}

/// TEL-2
#[tokio::test]
async fn a_clean_stop_writes_what_was_gathered() {
    let mut scene = Scene::set().await;
    let draft = Draft::new("lost", &new_id());
    scene.post(&draft).await;
    scene.node.signal("TERM");
    eventually("the node's end", async || scene.node.ended()).await;
    scene.node.restart(&Launch::default());
    scene.told("snavio.command.failed", &draft.id).await;
}

async fn page(client: &snavio_sdk::Client, query: &str) -> (usize, i64) {
    let page = client.call(Method::GET, &format!("/v1/telemetry?{query}"), None).await.unwrap();
    (page["items"].as_array().unwrap().len(), page["next"].as_i64().unwrap())
}

/// TEL-4, PIP-9
#[tokio::test]
async fn a_filter_passes_over_a_bounded_number_of_records_and_loses_none() {
    let node = Node::start();
    let cast = node.cast().await;
    let billing = node.client(&cast.billing);
    for _ in 0..22 {
        let batch: Vec<_> = (0..500).map(|_| Draft::new("notify", &new_id()).sign(&cast.billing)).collect();
        post_batch(&billing, &batch).await.unwrap();
    }
    let (items, next) = page(&billing, "type=snavio.claim.conflict").await;
    assert_eq!(items, 0);
    let (_, last) = page(&billing, &format!("type=snavio.claim.conflict&after={next}")).await;
    assert!(next < last, "one request looks at some, not at all of them");
    // More are found in one step than the page holds: the others are on the next one.
    let mut after = 0;
    for _ in 0..3 {
        let (items, next) = page(&billing, &format!("source=acme/billing&limit=2&after={after}")).await;
        let (whole, plain) = page(&billing, &format!("limit=2&after={after}")).await;
        assert_eq!((items, next), (whole, plain));
        after = next;
    }
}

/// TEL-4
#[tokio::test]
async fn a_stream_whose_reader_left_gives_up_its_place_at_once() {
    let node = Node::start();
    let cast = node.cast().await;
    let token = node.token(&cast.bot).await;
    let under_way =
        async |count| (metric(&node, "snavio_requests_in_flight").await == Some(count)).then_some(());
    let mut wire = Wire::to(&node);
    wire.send(head("GET /v1/telemetry", &token, &["Accept: text/event-stream"]));
    eventually("the stream is open", async || under_way(2.0).await).await;
    drop(wire);
    eventually("the place is free", async || under_way(1.0).await).await;
}
