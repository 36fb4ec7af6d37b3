//! Telemetry over HTTP (TEL-1, TEL-2, TEL-4, PIP-14): every outcome is recorded once, for its own tenant.

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
    /// Sends a message and returns status and answer.
    async fn post(&self, draft: &Draft) -> (u16, Value) {
        post(&self.node.client(&self.cast.billing), draft.sign(&self.cast.billing)).await
    }

    async fn telemetry(&self, reader: &Credentials, query: &str) -> Value {
        let api = self.node.client(reader).authorized().await.expect("the service is authenticated");
        verdict(api.send(Method::GET, &format!("/v1/telemetry{query}"), None, "").await).1
    }

    /// Waits for the record of this type about this message. The node writes records of refusals in a later
    /// commit.
    async fn record_of(&self, kind: &str, id: &str) -> Value {
        eventually(kind, async || {
            let page = self.telemetry(&self.cast.billing, &format!("?type={kind}&limit=1000")).await;
            let items = page["items"].as_array().cloned().unwrap_or_default();
            items.into_iter().find(|record| record["command_id"] == id)
        })
        .await
    }
}

/// Checks the members that all records of messages have.
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
async fn delivered_message_is_recorded_with_its_path() {
    let queue_test = Scene::set().await;
    for (name, path) in [("notify", "fast"), ("pay", "slow")] {
        let draft = Draft::new(name, &new_id());
        let (_, answer) = queue_test.post(&draft).await;
        let record = queue_test.record_of("snavio.command.delivered", &draft.id).await;
        check_common(&record, "snavio.command.delivered", &draft);
        assert_eq!((&record["path"], &record["replay"]), (&json!(path), &json!(false)));
        assert_eq!(record["correlation_id"], answer["correlation_id"]);
    }
}

/// TEL-1, PIP-14
#[tokio::test]
async fn invalid_message_and_failed_dispatch_have_different_records() {
    let queue_test = Scene::set().await;
    let (invalid, failed) = ("snavio.command.invalid", "snavio.command.failed");
    for (name, kind, reason) in [("delete-user", failed, "acl-deny"), ("lost", failed, "route-missing")] {
        let draft = Draft::new(name, &new_id());
        queue_test.post(&draft).await;
        let record = queue_test.record_of(kind, &draft.id).await;
        check_common(&record, kind, &draft);
        assert_eq!(record["reason"], reason);
    }
    let forged = Draft::new("notify", &new_id());
    post(&queue_test.node.client(&queue_test.cast.billing), forged.sign(&queue_test.cast.bot)).await;
    let record = queue_test.record_of(invalid, &forged.id).await;
    check_common(&record, invalid, &forged);
    assert_eq!(record["reason"], "hmac_invalid");

    let late = Draft { timestamp: seconds_from_now(-75), ..Draft::new("notify", &new_id()) };
    queue_test.post(&late).await;
    let record = queue_test.record_of(invalid, &late.id).await;
    check_common(&record, invalid, &late);
    assert_eq!(record["reason"], "timestamp_out_of_window");
    assert!(record["skew_seconds"].as_f64().is_some_and(|skew| (74.0..80.0).contains(&skew)), "{record}");
    assert_eq!(record["sent_at"], late.timestamp);
    assert!(record["received_at"].is_string());
}

/// TEL-1, PIP-14
#[tokio::test]
async fn refusal_before_parsing_is_recorded() {
    let queue_test = Scene::set().await;
    let token = queue_test.node.token(&queue_test.cast.billing).await;
    let over = vec![b' '; bounds::BODY_BYTES_DEFAULT + 1];
    let too_large = post_json(&queue_test.node, "/v1/commands", &token, over);
    let url = format!("{}/v1/commands", queue_test.node.url());
    let xml =
        http(&queue_test.node).post(&url).bearer_auth(&token).header("content-type", "text/xml").body("<a/>");
    let signed = Draft::new("notify", &new_id()).sign(&queue_test.cast.billing);
    let headers =
        post_json(&queue_test.node, "/v1/commands", &token, signed).header("webhook-signature", "v1,x");
    let entry = format!(r#"[{{"x":"{}"}}]"#, "x".repeat(bounds::BODY_BYTES_DEFAULT));
    let in_batch = post_json(&queue_test.node, "/v1/commands/batch", &token, entry);
    for (case, request, reason, count) in [
        ("too large", too_large, "too_large", 1),
        ("not JSON", xml, "unsupported_media_type", 1),
        ("half a webhook", headers, "hmac_missing", 1),
        ("too large in a batch", in_batch, "too_large", 2),
    ] {
        Answered::to(request).await;
        eventually(case, async || {
            let page = queue_test.telemetry(&queue_test.cast.billing, "?type=snavio.command.invalid").await;
            let items = page["items"].as_array().cloned().unwrap_or_default();
            (items.iter().filter(|record| record["reason"] == reason).count() == count).then_some(())
        })
        .await;
    }
}

/// TEL-1
#[tokio::test]
async fn duplicate_is_recorded_with_its_dedupe_mode() {
    let queue_test = Scene::set().await;
    let draft = Draft::new("pay", &new_id());
    queue_test.post(&draft).await;
    let again = Draft { timestamp: seconds_from_now(1), ..draft.clone() };
    assert_eq!(queue_test.post(&again).await.0, 200);
    let record = queue_test.record_of("snavio.command.duplicate", &draft.id).await;
    check_common(&record, "snavio.command.duplicate", &draft);
    assert_eq!(record["dedupe_mode"], "strict");
}

/// TEL-1
#[tokio::test]
async fn clock_skew_near_limit_is_recorded() {
    let queue_test = Scene::set().await;
    let near = Draft { timestamp: seconds_from_now(-50), ..Draft::new("notify", &new_id()) };
    let ahead = Draft { timestamp: seconds_from_now(55), ..Draft::new("notify", &new_id()) };
    let calm = Draft { timestamp: seconds_from_now(-40), ..Draft::new("notify", &new_id()) };
    for draft in [&calm, &near, &ahead] {
        assert_eq!(queue_test.post(draft).await.0, 202);
    }
    for (draft, least) in [(&near, 49.0), (&ahead, 48.0)] {
        let record = queue_test.record_of("snavio.telemetry.skew_near_limit", &draft.id).await;
        check_common(&record, "snavio.telemetry.skew_near_limit", draft);
        assert!(
            record["skew_seconds"].as_f64().is_some_and(|skew| (least..60.0).contains(&skew)),
            "{record}"
        );
        assert_eq!(record["sent_at"], draft.timestamp);
    }
    // The node received this message first, so a record of it would exist by now.
    let page = queue_test.telemetry(&queue_test.cast.billing, "?type=snavio.telemetry.skew_near_limit").await;
    assert!(!page.to_string().contains(&calm.id));
}

/// TEL-1
#[tokio::test]
async fn dead_letter_is_reported_to_sender() {
    let queue_test = Scene::set().await;
    let id = queue_test.send("notify").await;
    let letter = queue_test.exhaust().await;
    let record = queue_test.record_of("snavio.command.failed", &id).await;
    check_common(&record, "snavio.command.failed", &Draft::new("notify", &id));
    assert_eq!(
        (&record["reason"], &record["dead_letter_reason"]),
        (&json!("delivery-failure"), &json!("receives_exhausted"))
    );
    assert_eq!((&record["delivery_id"], &record["attempts"]), (&letter["id"], &json!(3)));
}

/// TEL-3, TEL-4
#[tokio::test]
async fn records_are_paged_by_number_without_gap_or_repeat() {
    let queue_test = Scene::set().await;
    let mut sent = Vec::new();
    for _ in 0..7 {
        sent.push(queue_test.send("notify").await);
    }
    let (mut after, mut seen) = (json!(0), Vec::new());
    loop {
        let page = queue_test.telemetry(&queue_test.cast.billing, &format!("?after={after}&limit=3")).await;
        let items = page["items"].as_array().cloned().unwrap_or_default();
        if items.is_empty() {
            break;
        }
        assert!(items.len() <= 3 && items.is_sorted_by_key(|record| record["number"].as_i64()));
        after = page["next"].clone();
        let of_messages = items.iter().filter(|record| record["type"] == "snavio.command.delivered");
        seen.extend(of_messages.map(|record| record["command_id"].as_str().unwrap_or_default().to_owned()));
    }
    assert_eq!(seen, sent);
}

/// TEL-4
#[tokio::test]
async fn long_poll_waits_for_matching_record() {
    let queue_test = Scene::set().await;
    queue_test.send("notify").await;
    let asked = queue_test.telemetry(&queue_test.cast.billing, "?type=snavio.command.failed&wait_seconds=20");
    let cause = async {
        // A record that the poll does not ask for does not end it.
        queue_test.send("notify").await;
        queue_test.post(&Draft::new("lost", &new_id())).await
    };
    let answered =
        tokio::time::timeout(Duration::from_secs(15), async { tokio::join!(asked, cause).0 }).await;
    let page = answered.expect("woken long before its time");
    assert_eq!(page["items"].as_array().map(Vec::len), Some(1), "{page}");
    assert_eq!(page["items"][0]["reason"], "route-missing");
}

/// TEL-4
#[tokio::test]
async fn telemetry_is_filtered_by_type_and_source() {
    let queue_test = Scene::set().await;
    let shop = json!({
        "services": [{ "name": "acme/shop" }],
        "grants": [{ "source": "acme/shop", "target": "acme/bot", "name": "notify" }],
    });
    let shop = queue_test.node.apply(&shop).await.remove(0);
    queue_test.send("notify").await;
    assert_eq!(
        post(&queue_test.node.client(&shop), Draft::new("notify", &new_id()).sign(&shop)).await.0,
        202
    );
    queue_test.post(&Draft::new("lost", &new_id())).await;
    let failed = Draft::new("lost", &new_id());
    queue_test.post(&failed).await;
    queue_test.record_of("snavio.command.failed", &failed.id).await;
    for (query, count) in [
        ("?source=acme/shop", 1),
        ("?source=acme/billing&type=snavio.command.delivered", 1),
        ("?source=acme/billing&type=snavio.command.failed", 2),
        ("?source=acme/shop&type=snavio.command.failed", 0),
        ("?type=snavio.command.failed", 2),
    ] {
        let page = queue_test.telemetry(&queue_test.cast.bot, query).await;
        let items = page["items"].as_array().cloned().unwrap_or_default();
        let about_messages = items.iter().filter(|record| record["type"] != "snavio.telemetry.skew_sample");
        assert_eq!(about_messages.count(), count, "{query}: {page}");
    }
}

/// TEL-4, QUA-5
#[tokio::test]
async fn tenant_reads_only_its_own_telemetry() {
    let queue_test = Scene::set().await;
    let other = json!({ "tenants": [{ "name": "zeta" }], "services": [{ "name": "zeta/bot" }] });
    let zeta = queue_test.node.apply(&other).await.remove(0);
    queue_test.send("notify").await;
    for query in ["", "?source=acme/billing", "?tenant=zeta"] {
        assert_eq!(queue_test.telemetry(&zeta, query).await["items"], json!([]), "{query}");
    }
    let theirs = queue_test.telemetry(&zeta, "?tenant=acme").await;
    assert_eq!(theirs["reason"], "not_found");
    assert_eq!(
        theirs,
        queue_test.telemetry(&zeta, "?tenant=nobody").await,
        "as if there were no such tenant"
    );
    let of_target = queue_test.telemetry(&queue_test.cast.bot, "?type=snavio.command.delivered").await;
    assert_eq!(of_target["items"].as_array().map(Vec::len), Some(1), "the same tenant's other service may");
}

/// Reads `count` server-sent events: their id, type and data.
async fn events(
    queue_test: &Scene,
    last_event_id: Option<&str>,
    count: usize,
) -> Vec<(String, String, Value)> {
    let token = queue_test.node.token(&queue_test.cast.billing).await;
    let url = format!("{}/v1/telemetry?type=snavio.command.delivered", queue_test.node.url());
    let mut request =
        http(&queue_test.node).get(url).bearer_auth(token).header("accept", "text/event-stream");
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
        .map(|event| {
            (
                field(event, "id"),
                field(event, "event"),
                serde_json::from_str(&field(event, "data")).expect("JSON"),
            )
        })
        .collect()
}

/// TEL-4
#[tokio::test]
async fn server_sent_events_continue_after_last_event_id() {
    let queue_test = Scene::set().await;
    let mut sent = vec![queue_test.send("notify").await, queue_test.send("notify").await];
    let first = events(&queue_test, None, 2).await;
    for ((id, event, data), message) in first.iter().zip(&sent) {
        assert_eq!((event.as_str(), &data["command_id"]), ("snavio.command.delivered", &json!(message)));
        assert_eq!(*id, data["number"].to_string());
    }
    let more = async {
        sent.push(queue_test.send("notify").await);
        sent.push(queue_test.send("notify").await);
    };
    let (rest, ()) = tokio::join!(events(&queue_test, Some(&first[0].0), 3), more);
    let rest: Vec<_> = rest.into_iter().map(|(_, _, data)| data["command_id"].clone()).collect();
    assert_eq!(rest, sent[1..].iter().map(|id| json!(id)).collect::<Vec<_>>());
}

/// REG-7
#[tokio::test]
async fn stream_ends_when_its_reader_is_suspended() {
    let queue_test = Scene::set().await;
    let token = queue_test.node.token(&queue_test.cast.bot).await;
    let mut wire = Wire::to(&queue_test.node);
    wire.send(head("GET /v1/telemetry", &token, &["Accept: text/event-stream"]));
    let billing = queue_test.node.client(&queue_test.cast.billing);
    let [before, after] = [(); 2].map(|()| Draft::new("notify", &new_id()));
    assert_eq!(post(&billing, before.sign(&queue_test.cast.billing)).await.0, 202);
    assert!(String::from_utf8(wire.first_chunk()).unwrap().contains(&before.id));
    queue_test.node.apply(&json!({ "tenants": [{ "name": "acme", "suspended": true }] })).await;
    // The refusal is a record of the tenant, which the stream would return next.
    assert_eq!(post(&billing, after.sign(&queue_test.cast.billing)).await.0, 403);
    assert_eq!(String::from_utf8(wire.chunks()).unwrap(), "");
}

/// TEL-2
#[tokio::test]
async fn delivered_records_survive_a_kill_and_numbers_rise_over_it() {
    let mut queue_test = Scene::set().await;
    let mut sent = vec![queue_test.send("notify").await];
    queue_test.node.kill();
    queue_test.node.restart(&Launch::default());
    sent.push(queue_test.send("notify").await);
    let page = queue_test.telemetry(&queue_test.cast.billing, "?type=snavio.command.delivered").await;
    let items = page["items"].as_array().cloned().unwrap_or_default();
    assert!(items.is_sorted_by_key(|record| record["number"].as_i64()));
    let recorded: Vec<_> =
        items.iter().map(|record| record["command_id"].as_str().unwrap_or_default()).collect();
    assert_eq!(recorded, sent);
}

/// TEL-2
#[tokio::test]
async fn clean_stop_writes_gathered_telemetry() {
    let mut queue_test = Scene::set().await;
    let draft = Draft::new("lost", &new_id());
    queue_test.post(&draft).await;
    queue_test.node.signal("TERM");
    eventually("the node's end", async || queue_test.node.ended()).await;
    queue_test.node.restart(&Launch::default());
    queue_test.record_of("snavio.command.failed", &draft.id).await;
}

async fn page(client: &snavio_sdk::Client, query: &str) -> (usize, i64) {
    let page = client.call(Method::GET, &format!("/v1/telemetry?{query}"), None).await.unwrap();
    (page["items"].as_array().unwrap().len(), page["next"].as_i64().unwrap())
}

/// TEL-4, PIP-9
#[tokio::test]
async fn filter_scans_bounded_records_and_loses_none() {
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
    assert!(next < last, "one request reads some records, not all");
    // One step finds more records than the page has room for: the rest is on the next page.
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
async fn stream_of_gone_reader_frees_its_place() {
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
