//! Filters with unknown names are refused as not found, with the nearest name that the caller may see
//! (CLM-11, QUA-5).

use reqwest::Method;
use serde_json::json;

use crate::node::{Node, new_id, verdict};
use crate::people::issue;
use crate::shell::Shell;

/// CLM-11
#[tokio::test]
async fn unknown_names_in_filters_are_not_found() {
    let node = Node::start();
    let cast = node.cast().await;
    let shell = Shell::at(&node);
    let bot = shell.write("bot.json", &serde_json::to_string(&cast.bot).unwrap());
    let id = new_id();
    for (line, nearest) in [
        ("audit show --kind gant".to_owned(), "did you mean grant?"),
        ("audit show --name acme/billin".to_owned(), "did you mean acme/billing?"),
        ("audit show --kind service --name acme/pay --since 3".to_owned(), "there is no entry"),
        ("audit at 1 --kind rout".to_owned(), "did you mean route?"),
        ("claims list --status faild".to_owned(), "did you mean failed?"),
        ("claims list --status done".to_owned(), "processing, failed, in_doubt"),
        ("claims list --tenant acm".to_owned(), "did you mean acme?"),
        (format!("claims show {id} --tenant acm"), "did you mean acme?"),
        (format!("claims show {id} --sender acm"), "did you mean acme?"),
        (format!("claims show {id} --destination acme/bot:pai"), "did you mean acme/bot:pay?"),
        ("conflicts list --state opne".to_owned(), "did you mean OPEN?"),
        ("conflicts list --tenant acm".to_owned(), "did you mean acme?"),
        ("holds list --tenant acm".to_owned(), "did you mean acme?"),
        ("erasures list --tenant acm".to_owned(), "did you mean acme?"),
        ("dead-letters list --tenant acm".to_owned(), "did you mean acme?"),
        ("dead-letters list --tenant acme --queue bot-deed".to_owned(), "did you mean bot-dead?"),
        ("entities show b-1 --destination acme/bot:pai".to_owned(), "did you mean acme/bot:pay?"),
        (format!("explain {id} --tenant acm"), "did you mean acme?"),
        (format!("receive -c {bot} pay-inbx"), "did you mean pay-inbox?"),
    ] {
        let ended = shell.run(&line);
        assert_eq!(ended.code, Some(1), "{line}: {ended:?}");
        assert!(ended.err.contains(nearest), "{line}: {ended:?}");
    }
    // A known name without records gives an empty list.
    for line in [
        "audit show --kind ban",
        "claims list --status failed",
        "conflicts list --state OPEN",
        "dead-letters list --tenant acme --queue bot-dead",
        "audit show --name acme/billing --since 1000",
    ] {
        assert_eq!(shell.run(line).code, Some(0), "{line}");
    }
    for (path, nearest) in [
        ("/v1/registry?kind=gant", "grant"),
        ("/v1/registry/at/1?kind=gant", "grant"),
        ("/v1/telemetry?tenant=acme&type=snavio.claim.fensed", "snavio.claim.fenced"),
        ("/v1/telemetry?tenant=acme&source=acme/billin", "acme/billing"),
        ("/v1/telemetry?tenant=acm", "acme"),
        ("/v1/queues/pay-inbx?tenant=acme", "pay-inbox"),
        ("/v1/conflicts?state=OPNE", "OPEN"),
        ("/v1/claims?status=faild", "failed"),
        ("/v1/entities/b-1?destination=acme/bot:pay&of=acm", "acme"),
    ] {
        let (status, refused) = verdict(node.operator().send(Method::GET, path, None, "").await);
        assert_eq!((status, &refused["reason"]), (404, &json!("not_found")), "{path}: {refused}");
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.ends_with(&format!("did you mean {nearest}?")), "{path}: {detail}");
    }
}

/// QUA-5
#[tokio::test]
async fn hints_name_only_entries_that_caller_sees() {
    let node = Node::start();
    let cast = node.cast().await;
    let zeta = json!({ "tenants": [{ "name": "zeta" }], "services": [{ "name": "zeta/shop" }] });
    node.apply(&zeta).await;
    let viewer = issue(&node, "zoe", "tenant-viewer", Some("zeta")).await;
    let viewer = node.api().with_token(&viewer.token);
    let billing = node.api().with_token(&node.token(&cast.billing).await);
    for path in [
        "/v1/claims/x?destination=acme/bot:pai",
        "/v1/claims/x?destination=acme/bot:pay",
        "/v1/claims/x?tenant=acm",
        "/v1/dead-letters?queue=bot-deed",
        "/v1/queues/pay-inbx",
        "/v1/entities/x?destination=acme/bot:pai",
        "/v1/entities/x?destination=acme/bot:pay",
    ] {
        let (status, refused) = verdict(viewer.send(Method::GET, path, None, "").await);
        assert_eq!(status, 404, "{path}: {refused}");
        assert!(!refused.to_string().contains("did you mean"), "{path}: {refused}");
    }
    // The hint does not name the queues of another service of the tenant.
    let (status, refused) = verdict(billing.send(Method::GET, "/v1/queues/pay-inbx", None, "").await);
    assert_eq!(status, 404, "{refused}");
    assert!(!refused.to_string().contains("pay-inbox"), "{refused}");
}
