//! Concurrent and repeated sends of one id: which is accepted, and the answers to the others (CLM-1, CLM-4,
//! PIP-2).

use futures_util::future::join_all;
use serde_json::{Value, json};
use snavio_sdk::Credentials;

use crate::node::{Cast, Draft, Launch, Node, drain, new_id, post, seconds_from_now};
use crate::patience::eventually;

/// A node with the usual services, a second sender in the same tenant, and one in another tenant.
struct Senders {
    node: Node,
    cast: Cast,
    shop: Credentials,
    stranger: Credentials,
}

impl Senders {
    async fn start() -> Self {
        Self::launch(&Launch::default()).await
    }

    async fn launch(launch: &Launch) -> Self {
        let node = Node::launch(launch);
        let cast = node.cast().await;
        let grant =
            |source: &str, name: &str| json!({ "source": source, "target": "acme/bot", "name": name });
        let more = json!({
            "tenants": [{ "name": "zeta" }],
            "services": [{ "name": "acme/shop" }, { "name": "zeta/shop" }],
            "grants": [
                grant("acme/shop", "pay"), grant("acme/shop", "notify"),
                grant("zeta/shop", "pay"), grant("zeta/shop", "notify"),
            ],
        });
        let [shop, stranger] = <[_; 2]>::try_from(node.apply(&more).await).expect("two services were made");
        Self { node, cast, shop, stranger }
    }

    async fn send(&self, credentials: &Credentials, draft: &Draft) -> (u16, Value) {
        post(&self.node.client(credentials), draft.sign(credentials)).await
    }

    /// Source and id of all messages that were delivered to the queue.
    async fn drain_messages(&self, queue: &str) -> Vec<(String, String)> {
        let deliveries = drain(&self.node.client(&self.cast.bot), queue).await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let messages = deliveries.iter().map(|delivery| {
            let command: Value = serde_json::from_str(delivery.message.as_command().unwrap().command.get())
                .expect("a command is JSON");
            (text(&command["source"]), text(&delivery.message.as_command().unwrap().metadata["id"]))
        });
        messages.collect()
    }
}

/// CLM-4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_concurrent_sends_of_one_id_dispatch_once() {
    let senders = Senders::start().await;
    let client = senders.node.client(&senders.cast.billing);
    client.authorized().await.expect("the service is authenticated");
    for _ in 0..4 {
        let id = new_id();
        // Each message has a signing time, and so a signature, of its own.
        let drafts: Vec<_> = (0..50)
            .map(|n| Draft { timestamp: seconds_from_now(n % 25 - 12), ..Draft::new("pay", &id) })
            .collect();
        let answers =
            join_all(drafts.iter().map(|draft| post(&client, draft.sign(&senders.cast.billing)))).await;
        let accepted = answers.iter().filter(|(status, _)| *status == 202).count();
        let duplicates =
            answers.iter().filter(|(status, answer)| *status == 200 && answer["duplicate"] == true).count();
        assert_eq!((accepted, duplicates), (1, 49), "{answers:?}");
        assert_eq!(senders.drain_messages("pay-inbox").await, [("acme/billing".to_owned(), id)]);
    }
}

/// CLM-1
#[tokio::test]
async fn same_id_from_two_tenants_is_two_messages() {
    let senders = Senders::start().await;
    let draft = Draft::new("pay", &new_id());
    let own = senders.send(&senders.cast.billing, &draft);
    let other = senders.send(&senders.stranger, &draft);
    let (own, other) = tokio::join!(own, other);
    assert_eq!((own.0, other.0), (202, 202));
    let mut delivered = senders.drain_messages("pay-inbox").await;
    delivered.sort();
    let both = ["acme/billing", "zeta/shop"].map(|source| (source.to_owned(), draft.id.clone()));
    assert_eq!(delivered, both);
}

/// CLM-1
#[tokio::test]
async fn same_id_from_second_service_of_tenant_is_conflict() {
    let senders = Senders::start().await;
    let draft = Draft::new("pay", &new_id());
    assert_eq!(senders.send(&senders.cast.billing, &draft).await.0, 202);
    for _ in 0..2 {
        let (status, problem) = senders.send(&senders.shop, &draft).await;
        assert_eq!((status, &problem["reason"]), (409, &json!("conflict")));
        assert_eq!((&problem["id"], &problem["accepted"]), (&json!(draft.id), &json!(false)));
        assert!(!problem.to_string().contains("billing"), "the refusal hides the owner of the id: {problem}");
    }
    let again = Draft { timestamp: seconds_from_now(1), ..draft.clone() };
    let (status, answer) = senders.send(&senders.cast.billing, &again).await;
    assert_eq!((status, &answer["duplicate"]), (200, &json!(true)), "the owner's claim stands");
    assert_eq!(senders.drain_messages("pay-inbox").await.len(), 1);
}

/// CLM-1
#[tokio::test]
async fn same_id_on_two_routes_is_two_claims() {
    let senders = Senders::start().await;
    let route = json!({ "routes": [{
        "target": "acme/bot", "name": "refund", "queue": "refund-inbox", "dead_letter_queue": "bot-dead",
        "claim": { "policy": "strict" },
    }], "grants": [{ "source": "acme/billing", "target": "acme/bot", "name": "refund" }] });
    senders.node.apply(&route).await;
    let id = new_id();
    for (name, status) in [("pay", 202), ("refund", 202), ("pay", 200), ("refund", 200)] {
        let draft = Draft { timestamp: seconds_from_now(status - 201), ..Draft::new(name, &id) };
        assert_eq!(i64::from(senders.send(&senders.cast.billing, &draft).await.0), status, "{name}");
    }
}

/// PIP-2
#[tokio::test]
async fn repeated_signed_message_is_duplicate_on_any_route() {
    let senders = Senders::start().await;
    let client = senders.node.client(&senders.cast.billing);
    for name in ["notify", "pay"] {
        let draft = Draft::new(name, &new_id());
        let captured = draft.sign(&senders.cast.billing);
        assert_eq!(post(&client, captured.clone()).await.0, 202);
        for _ in 0..3 {
            let (status, answer) = post(&client, captured.clone()).await;
            assert_eq!((status, &answer["duplicate"]), (200, &json!(true)), "{name}");
        }
        assert_eq!(senders.drain_messages(&format!("{name}-inbox")).await.len(), 1, "{name}");
    }
}

/// PIP-2, CLM-3
#[tokio::test]
async fn newly_signed_retry_without_claims_is_delivered_again() {
    let senders = Senders::start().await;
    let draft = Draft::new("notify", &new_id());
    assert_eq!(senders.send(&senders.cast.billing, &draft).await.0, 202);
    let again = Draft { timestamp: seconds_from_now(1), ..draft };
    assert_eq!(senders.send(&senders.cast.billing, &again).await.0, 202);
    assert_eq!(senders.drain_messages("notify-inbox").await.len(), 2);
}

/// PIP-2
#[tokio::test]
async fn captured_message_is_refused_from_another_tenant() {
    let senders = Senders::start().await;
    let captured = Draft::new("notify", &new_id()).sign(&senders.cast.billing);
    let (status, problem) = post(&senders.node.client(&senders.stranger), captured).await;
    assert_eq!((status, &problem["reason"]), (401, &json!("hmac_invalid")));
}

/// PIP-4
#[tokio::test]
async fn full_queue_refusal_leaves_no_claim() {
    let settings = vec![("SNAVIO_STORE_QUEUE_DEPTH_MAX".to_owned(), "1".to_owned())];
    let senders = Senders::launch(&Launch { settings, ..Launch::default() }).await;
    let (first, second) = (Draft::new("pay", &new_id()), Draft::new("pay", &new_id()));
    assert_eq!(senders.send(&senders.cast.billing, &first).await.0, 202);
    let (status, problem) = senders.send(&senders.cast.billing, &second).await;
    assert_eq!((status, &problem["reason"]), (503, &json!("overloaded")));
    assert!(problem["retry_after_ms"].is_u64(), "{problem}");
    assert_eq!(senders.drain_messages("pay-inbox").await.len(), 1);
    // The node does not count a queue for every message. Once there is room, the message is judged anew.
    let taken = async || match senders.send(&senders.cast.billing, &second).await.0 {
        503 => None,
        status => Some(status),
    };
    assert_eq!(eventually("there is room", taken).await, 202);
}

/// PIP-4
#[tokio::test]
async fn missing_route_refusal_leaves_no_claim() {
    let senders = Senders::start().await;
    let draft = Draft::new("lost", &new_id());
    assert_eq!(senders.send(&senders.cast.billing, &draft).await.0, 404);
    let route = json!({ "routes": [{
        "target": "acme/bot", "name": "lost", "queue": "lost-inbox", "dead_letter_queue": "bot-dead",
        "claim": { "policy": "strict" },
    }] });
    senders.node.apply(&route).await;
    assert_eq!(senders.send(&senders.cast.billing, &draft).await.0, 202);
}
