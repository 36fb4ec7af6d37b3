//! Who can see the original content of a conflict after its claims have expired. The test deletes the claims
//! by hand.

use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::{Api, Credentials};

use crate::node::{Launch, Node, verdict};
use crate::people::issue;

fn subscription(target: &str, queue: &str, policy: &str) -> Value {
    json!({
        "target": target, "events_of": "acme/shop", "name": "order.paid", "queue": queue,
        "dead_letter_queue": "dead", "claim": { "policy": policy },
    })
}

async fn show(caller: &Api, conflict: i64) -> (u16, Value) {
    verdict(caller.send(Method::GET, &format!("/v1/conflicts/{conflict}"), None, "").await)
}

/// CLM-14, CLM-1: the recipients see it, also after their claims have expired, and so do all services of a
/// tenant that has the event type. A later subscriber does not.
#[tokio::test]
async fn conflict_shows_original_to_recipients_after_claims_expire() {
    let mut node = Node::start();
    let registry = json!({
        "tenants": [{ "name": "acme" }, { "name": "zeta" }, { "name": "yota" }],
        "services": [
            { "name": "acme/shop" }, { "name": "acme/ledger" }, { "name": "acme/reports" }, { "name": "acme/bystander" },
            { "name": "zeta/app" }, { "name": "yota/app" },
        ],
        "event_types": [{ "owner": "acme/shop", "name": "order.paid" }],
        "subscriptions": [
            subscription("acme/ledger", "ledger", "event"), subscription("acme/reports", "reports", "event"),
            subscription("zeta/app", "app", "event"),
        ],
        "grants": [
            { "source": "zeta/app", "target": "acme/shop", "name": "order.paid" },
            { "source": "yota/app", "target": "acme/shop", "name": "order.paid" },
        ],
    });
    let all = <[Credentials; 6]>::try_from(node.apply(&registry).await).unwrap();
    let [shop, ledger, reports, bystander, ..] = &all;
    let emit = async |node: &Node, cents: i64| {
        let event = json!({ "eventId": "o-1", "eventType": "order.paid", "data": { "cents": cents } });
        let caller = node.api().with_token(&node.token(shop).await);
        let body = Some(event.to_string().into_bytes());
        verdict(caller.send(Method::POST, "/v1/events", body, "application/json").await)
    };
    assert_eq!(emit(&node, 1471147114).await.0, 202);
    node.stop();
    let store = snavio_sdk::sqlite::rusqlite::Connection::open(node.data().join("snavio.db")).unwrap();
    assert_eq!(store.execute("DELETE FROM claim", []).unwrap(), 3);
    drop(store);
    node.restart(&Launch::default());
    node.apply(&json!({ "subscriptions": [subscription("yota/app", "app", "event")] })).await;
    let (status, refused) = emit(&node, 1).await;
    assert_eq!((status, &refused["reason"]), (409, &json!("conflict")), "{refused}");
    let conflict_of = async |tenant: &str| {
        let page = node.get(&format!("/v1/conflicts?tenant={tenant}")).await;
        page["items"][0]["conflictId"].as_i64().unwrap()
    };
    for (tenant, is_shown) in [("acme", true), ("zeta", true), ("yota", false)] {
        let token = issue(&node, "books", "accounting-ops", Some(tenant)).await.token;
        let (status, whole) = show(&node.api().with_token(&token), conflict_of(tenant).await).await;
        assert_eq!((status, whole["original"].is_object()), (200, is_shown), "{tenant}: {whole}");
        assert_eq!(whole.to_string().contains("1471147114"), is_shown, "{tenant}: {whole}");
    }
    let conflict = conflict_of("acme").await;
    for credentials in [shop, ledger, reports] {
        let (status, whole) = show(&node.api().with_token(&node.token(credentials).await), conflict).await;
        assert_eq!((status, whole["original"].is_object()), (200, true), "{}: {whole}", credentials.source);
    }
    let token = node.token(bystander).await;
    assert_eq!(show(&node.api().with_token(&token), conflict).await.0, 404);
}
