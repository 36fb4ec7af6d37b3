//! What a node counts, and that nobody can make it count without end.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use snavio_sdk::ApiError;

use crate::node::{Draft, Launch, Node, drain, new_id, post};
use crate::patience::eventually;
use crate::wire::{http, metric, metrics};

/// TEL-8
#[tokio::test]
async fn commands_are_counted_by_what_became_of_them() {
    let node = Node::start();
    let cast = node.cast().await;
    let billing = node.client(&cast.billing);
    let paid = Draft::new("pay", &new_id());
    for draft in [
        Draft::new("notify", &new_id()),
        paid.clone(),
        paid,
        Draft::new("lost", &new_id()),
        Draft::new("other", &new_id()),
    ] {
        post(&billing, draft.sign(&cast.billing)).await;
    }
    let forged = Draft::new("pay", &new_id()).sign(&cast.bot);
    post(&billing, forged).await;
    let now = metrics(&node).await;
    for (series, expected) in [
        (r#"snavio_commands_total{verdict="accepted",path="fast",reason=""}"#, 1.0),
        (r#"snavio_commands_total{verdict="accepted",path="slow",reason=""}"#, 1.0),
        (r#"snavio_commands_total{verdict="duplicate",path="",reason=""}"#, 1.0),
        (r#"snavio_commands_total{verdict="refused",path="",reason="route-missing"}"#, 1.0),
        (r#"snavio_commands_total{verdict="refused",path="",reason="acl-deny"}"#, 1.0),
        (r#"snavio_commands_total{verdict="refused",path="",reason="hmac_invalid"}"#, 1.0),
        ("snavio_duplicates_prevented_total", 1.0),
        ("snavio_strict_commands_total", 2.0),
        ("snavio_misroutes_total", 1.0),
        ("snavio_signature_failures_total", 1.0),
        (r#"snavio_escalations_total{reason="dedupe_required"}"#, 1.0),
        (r#"snavio_route_commands_total{target="acme/bot",name="notify"}"#, 1.0),
        (r#"snavio_route_commands_total{target="acme/bot",name="pay"}"#, 2.0),
        (r#"snavio_queue_depth{tenant="acme",queue="notify-inbox"}"#, 1.0),
        (r#"snavio_http_request_seconds_count{route="/v1/commands"}"#, 6.0),
        (r#"snavio_settle_seconds_count{path="fast"}"#, 1.0),
        (r#"snavio_settle_seconds_count{path="slow"}"#, 1.0),
        ("snavio_requests_in_flight", 1.0),
    ] {
        assert_eq!(now.get(series), Some(&expected), "{series}");
    }
    drain(&node.client(&cast.bot), "notify-inbox").await;
    let depth = r#"snavio_queue_depth{tenant="acme",queue="notify-inbox"}"#;
    eventually("the depth is counted anew", async || (metric(&node, depth).await == Some(0.0)).then_some(()))
        .await;
}

/// QUA-9
#[tokio::test]
async fn hostile_names_make_no_series() {
    let node = Node::start();
    let cast = node.cast().await;
    let billing = node.client(&cast.billing);
    let before = metrics(&node).await.len();
    for n in 0..50 {
        let mut draft = Draft::new(&format!("hostile-{n}"), &new_id());
        post(&billing, draft.sign(&cast.billing)).await;
        draft.target = format!("hostile/t{n}");
        post(&billing, draft.sign(&cast.billing)).await;
        http(&node).get(format!("{}/hostile/{n}", node.url())).send().await.unwrap();
        let queue = billing.call(reqwest::Method::GET, &format!("/v1/queues/hostile-{n}"), None).await;
        assert!(matches!(queue, Err(ApiError::Refused { status: 404, .. })));
    }
    let after = metrics(&node).await;
    assert!(after.keys().all(|series| !series.contains("hostile")));
    assert!(after.len() < before + 50, "{before} series became {}", after.len());
}

/// TEL-8
#[tokio::test]
async fn a_queue_that_is_gone_is_not_shown_any_more() {
    let node = Node::start();
    node.cast().await;
    let shown = async || metrics(&node).await.keys().any(|series| series.contains("pay-inbox"));
    assert!(shown().await);
    let gone = node.operator().call(reqwest::Method::DELETE, "/v1/routes/acme/bot/pay", None).await;
    assert_eq!(gone.unwrap(), json!({ "removed": ["route acme/bot:pay"] }));
    assert!(!shown().await);
}

/// TEL-8
#[tokio::test]
async fn every_metric_is_documented() {
    let node = Node::start();
    let cast = node.cast().await;
    post(&node.client(&cast.billing), Draft::new("pay", &new_id()).sign(&cast.billing)).await;
    let docs =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md")).unwrap();
    let documented: BTreeSet<_> =
        docs.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert!(documented.len() > 25);
    for series in metrics(&node).await.into_keys() {
        let name = series.split('{').next().unwrap();
        let name = ["_bucket", "_sum", "_count"].iter().find_map(|it| name.strip_suffix(it)).unwrap_or(name);
        let ours = ["snavio_", "events_", "event_", "sequence_"];
        assert!(ours.iter().any(|it| name.starts_with(it)), "{series} is not ours");
        assert!(documented.contains(name), "snavio_{name} is not in docs/metrics.md");
    }
}

/// REG-19, TEL-1
#[tokio::test]
async fn every_refresh_of_the_registry_is_a_line_of_the_log_and_counted() {
    let node =
        Node::launch(&Launch::default().set("LOG_FORMAT", "json").set("LOG_FILTER", "snavio::cache=debug"));
    node.cast().await;
    let counted = metric(&node, r#"snavio_cache_refresh_seconds_count{outcome="succeeded"}"#).await.unwrap();
    let refreshes = || {
        let said = node.said();
        let lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["fields"]["event"] == "snavio.cache.refreshed").collect::<Vec<_>>()
    };
    let lines = eventually("each is there, and one that found nothing", async || {
        let lines = refreshes();
        let is_idle = |line: &Value| line["fields"]["changes"] == 0;
        (lines.len() as f64 >= counted && lines.iter().any(is_idle)).then_some(lines)
    })
    .await;
    for line in &lines {
        let fields = &line["fields"];
        assert_eq!(
            (&fields["cache_type"], &fields["succeeded"]),
            (&json!("registry"), &json!(true)),
            "{line}"
        );
        let [age, fresh, stale] =
            ["age_seconds", "fresh_ttl", "stale_ttl"].map(|it| fields[it].as_f64().unwrap());
        // Of keys and bans, shortened by a tenth at most.
        assert!((1.8..=2.0).contains(&fresh) && (3.6..=4.0).contains(&stale), "{line}");
        assert!((0.0..60.0).contains(&age), "{line}");
        let level = if fields["changes"].as_i64().unwrap() > 0 { "INFO" } else { "DEBUG" };
        assert_eq!(line["level"], level, "{line}");
    }
    assert!(lines.iter().any(|line| line["level"] == "INFO"), "the cast was registered: {lines:?}");
}
