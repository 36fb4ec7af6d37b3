//! A node's metrics, and the bound on their number that hostile names cannot pass.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};
use snavio_sdk::ApiError;
use snavio_testbed::python;

use crate::node::{Draft, Launch, Node, drain, new_id, post};
use crate::patience::eventually;
use crate::wire::{http, metric, metrics, metrics_text};

/// TEL-8
#[tokio::test]
async fn commands_are_counted_by_verdict() {
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
async fn removed_queue_has_no_series() {
    let node = Node::start();
    node.cast().await;
    assert!(metrics(&node).await.keys().any(|series| series.contains("pay-inbox")));
    let gone = node.operator().call(reqwest::Method::DELETE, "/v1/routes/acme/bot/pay", None).await;
    assert_eq!(gone.unwrap(), json!({ "removed": ["route acme/bot:pay"] }));
    assert!(!metrics(&node).await.keys().any(|series| series.contains("pay-inbox")));
}

/// TEL-8
#[tokio::test]
async fn every_metric_is_documented() {
    let node = Node::start();
    let cast = node.cast().await;
    post(&node.client(&cast.billing), Draft::new("pay", &new_id()).sign(&cast.billing)).await;
    let documented: BTreeSet<_> = documented().into_keys().collect();
    assert!(documented.len() > 25);
    for series in metrics(&node).await.into_keys() {
        let name = series.split('{').next().unwrap();
        let name =
            ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        let ours = ["snavio_", "events_", "event_", "sequence_"];
        assert!(
            ours.iter().any(|prefix| name.starts_with(prefix)),
            "{series} has none of the prefixes {ours:?}"
        );
        assert!(documented.contains(name), "snavio_{name} is not in docs/metrics.md");
    }
}

/// The metrics of docs/metrics.md with their kinds.
fn documented() -> BTreeMap<String, String> {
    let docs =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md")).unwrap();
    let rows = docs.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|');
        let name = cells.next()?.trim().trim_end_matches('`').to_owned();
        let kind = cells.next()?.trim();
        ["counter", "gauge", "histogram"].contains(&kind).then(|| (name, kind.to_owned()))
    });
    rows.collect()
}

/// TEL-8
#[tokio::test]
async fn counters_and_gauges_exist_from_first_scrape() {
    let node = Node::start();
    let text = metrics_text(&node).await;
    let documented = documented();
    assert!(documented.len() > 60, "{documented:?}");
    let is_embedded = node.get("/v1/status").await["store"]["engine"] == "embedded";
    for (name, kind) in &documented {
        const OF_EMBEDDED: [&str; 3] =
            ["snavio_store_wal_bytes", "snavio_store_deliveries", "snavio_disk_free_bytes"];
        let is_of_embedded = OF_EMBEDDED.contains(&name.as_str());
        if kind == "histogram" || is_of_embedded && !is_embedded {
            continue;
        }
        assert!(text.contains(&format!("# HELP {name} ")), "{name} has no HELP:\n{text}");
        assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name} is no {kind}:\n{text}");
        // A queue's or a target's series exist only while it is registered.
        let is_of_queues = name.starts_with("snavio_queue_") || name.starts_with("snavio_target_breaker");
        if !is_of_queues && name != "snavio_target_calls" {
            let has_series = text.lines().any(|line| {
                line.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with([' ', '{']))
            });
            assert!(has_series, "{name} has no series:\n{text}");
        }
    }
}

/// TEL-8
#[tokio::test]
async fn counters_of_routes_exist_before_their_first_message() {
    let node = Node::start();
    node.cast().await;
    let route = json!({
        "queue": "pay-inbox", "dead_letter_queue": "bot-dead", "claim": { "policy": "strict" },
        "order": { "entity": "/account", "number": "/n" },
    });
    node.operator().call(reqwest::Method::PUT, "/v1/routes/acme/bot/ordered", Some(&route)).await.unwrap();
    let now = metrics(&node).await;
    for series in [
        r#"snavio_route_commands_total{target="acme/bot",name="notify"}"#,
        r#"snavio_route_commands_total{target="acme/bot",name="ordered"}"#,
        r#"event_order_violations_total{route="acme/bot:ordered"}"#,
        r#"event_sequence_gaps_total{route="acme/bot:ordered"}"#,
    ] {
        assert_eq!(now.get(series), Some(&0.0), "{series}");
    }
    assert!(!now.contains_key(r#"event_order_violations_total{route="acme/bot:notify"}"#));
}

/// TEL-8
#[tokio::test]
async fn scrape_of_twenty_routes_is_small_and_well_formed() {
    const ROUTES: usize = 20;
    const BYTES_MAX: usize = 80_000;
    const CHECK: &str = "
import json, sys
from prometheus_client.parser import text_string_to_metric_families
families = list(text_string_to_metric_families(sys.stdin.read()))
names = [family.name for family in families]
assert len(names) == len(set(names)), names
print(json.dumps({family.name: [family.documentation, family.type, len(family.samples)] for family in families}))
";
    let node = Node::start();
    let routes = (0..ROUTES).map(|n| {
        json!({
            "target": "acme/general-ledger", "name": format!("post-journal-entry-{n}"),
            "queue": format!("general-ledger-inbox-{n}"), "dead_letter_queue": format!("general-ledger-dead-{n}"),
            "claim": { "policy": "strict" },
        })
    });
    let grants = (0..ROUTES).map(|n| {
        let name = format!("post-journal-entry-{n}");
        json!({ "source": "acme/billing", "target": "acme/general-ledger", "name": name })
    });
    let registry = json!({
        "tenants": [{ "name": "acme" }],
        "services": [{ "name": "acme/billing" }, { "name": "acme/general-ledger" }],
        "routes": routes.collect::<Vec<_>>(),
        "grants": grants.collect::<Vec<_>>(),
    });
    let billing = node.apply(&registry).await.remove(0);
    for n in 0..ROUTES {
        let mut draft = Draft::new(&format!("post-journal-entry-{n}"), &new_id());
        draft.target = "acme/general-ledger".into();
        assert_eq!(post(&node.client(&billing), draft.sign(&billing)).await.0, 202);
    }
    let text = metrics_text(&node).await;
    assert!(text.contains("post-journal-entry-19") && text.contains("general-ledger-inbox-19"));
    println!("{} bytes, {} lines", text.len(), text.lines().count());
    assert!(text.len() < BYTES_MAX, "{} bytes:\n{text}", text.len());
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        let is_described = |name: &str| {
            text.contains(&format!("# HELP {name} ")) && text.contains(&format!("# TYPE {name} "))
        };
        assert!(is_described(name) || base.is_some_and(is_described), "{name} has no HELP or TYPE");
    }
    let mut parser =
        python().args(["-c", CHECK]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    parser.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let ended = parser.wait_with_output().unwrap();
    assert!(ended.status.success(), "prometheus_client refuses the text:\n{text}");
    let families: BTreeMap<String, (String, String, usize)> = serde_json::from_slice(&ended.stdout).unwrap();
    assert!(families.len() > 60, "{families:?}");
    for (name, (help, kind, _)) in &families {
        assert!(!help.is_empty() && kind != "unknown" && kind != "untyped", "{name}: {help:?} {kind}");
    }
}

/// TEL-8
#[tokio::test]
async fn open_conflicts_are_right_in_first_scrape() {
    let node = Node::start();
    let cast = node.cast().await;
    let billing = node.client(&cast.billing);
    // Only the policy `ledger` compares contents.
    let route =
        json!({ "queue": "pay-inbox", "dead_letter_queue": "bot-dead", "claim": { "policy": "ledger" } });
    node.operator().call(reqwest::Method::PUT, "/v1/routes/acme/bot/pay", Some(&route)).await.unwrap();
    assert_eq!(metric(&node, "events_conflicts_open").await, Some(0.0));
    for conflicts in 1..=3 {
        let id = new_id();
        let mut draft = Draft { payload: r#"{"a":1}"#.into(), ..Draft::new("pay", &id) };
        assert_eq!(post(&billing, draft.sign(&cast.billing)).await.0, 202);
        draft.payload = r#"{"a":2}"#.into();
        assert_eq!(post(&billing, draft.sign(&cast.billing)).await.0, 409);
        assert_eq!(metric(&node, "events_conflicts_open").await, Some(f64::from(conflicts)));
    }
}

/// REG-19, TEL-1
#[tokio::test]
async fn registry_refreshes_are_logged_and_counted() {
    let node =
        Node::launch(&Launch::default().set("LOG_FORMAT", "json").set("LOG_FILTER", "snavio::cache=debug"));
    node.cast().await;
    let counted = metric(&node, r#"snavio_cache_refresh_seconds_count{outcome="succeeded"}"#).await.unwrap();
    let lines = eventually("every refresh is logged, one without changes among them", async || {
        let log = node.said();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let refreshes: Vec<_> =
            lines.filter(|line| line["fields"]["event"] == "snavio.cache.refreshed").collect();
        let has_idle = refreshes.iter().any(|line| line["fields"]["changes"] == 0);
        (refreshes.len() as f64 >= counted && has_idle).then_some(refreshes)
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
            ["age_seconds", "fresh_ttl", "stale_ttl"].map(|field| fields[field].as_f64().unwrap());
        // The lifetimes of keys and bans, 2 s and 4 s, each shortened by a tenth at most.
        assert!((1.8..=2.0).contains(&fresh) && (3.6..=4.0).contains(&stale), "{line}");
        assert!((0.0..60.0).contains(&age), "{line}");
        let level = if fields["changes"].as_i64().unwrap() > 0 { "INFO" } else { "DEBUG" };
        assert_eq!(line["level"], level, "{line}");
    }
    assert!(lines.iter().any(|line| line["level"] == "INFO"), "the cast was registered: {lines:?}");
}
