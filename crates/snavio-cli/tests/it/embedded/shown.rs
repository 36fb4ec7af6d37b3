//! Who is shown what was first of a conflict once the claims under its id are over: they are taken out by hand.

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

async fn show(who: &Api, conflict: i64) -> (u16, Value) {
    verdict(who.send(Method::GET, &format!("/v1/conflicts/{conflict}"), None, "").await)
}

/// CLM-14, CLM-1: whoever was sent it, also when its claim is over, and each service of a tenant that has the type; not who
/// has subscribed since.
#[tokio::test]
async fn a_conflict_shows_what_was_first_to_whoever_was_sent_it_also_when_the_claims_are_over() {
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
        let who = node.api().with_token(&node.token(shop).await);
        let body = Some(event.to_string().into_bytes());
        verdict(who.send(Method::POST, "/v1/events", body, "application/json").await)
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
    let of = async |tenant: &str| {
        let page = node.get(&format!("/v1/conflicts?tenant={tenant}")).await;
        page["items"][0]["conflictId"].as_i64().unwrap()
    };
    for (tenant, is_shown) in [("acme", true), ("zeta", true), ("yota", false)] {
        let token = issue(&node, "books", "accounting-ops", Some(tenant)).await.token;
        let (status, whole) = show(&node.api().with_token(&token), of(tenant).await).await;
        assert_eq!((status, whole["original"].is_object()), (200, is_shown), "{tenant}: {whole}");
        assert_eq!(whole.to_string().contains("1471147114"), is_shown, "{tenant}: {whole}");
    }
    let conflict = of("acme").await;
    for who in [shop, ledger, reports] {
        let (status, whole) = show(&node.api().with_token(&node.token(who).await), conflict).await;
        assert_eq!((status, whole["original"].is_object()), (200, true), "{}: {whole}", who.source);
    }
    let token = node.token(bystander).await;
    assert_eq!(show(&node.api().with_token(&token), conflict).await.0, 404);
}
