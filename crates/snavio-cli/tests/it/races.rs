//! Who wins when many say the same, and who is told what (CLM-1, CLM-4, PIP-2).

use futures_util::future::join_all;
use serde_json::{Value, json};
use snavio_sdk::Credentials;

use crate::node::{Cast, Draft, Launch, Node, drain, new_id, post, seconds_from_now};
use crate::patience::eventually;

/// A node with the usual cast, a second sender in the same tenant, and one in another.
struct Scene {
    node: Node,
    cast: Cast,
    shop: Credentials,
    stranger: Credentials,
}

impl Scene {
    async fn set() -> Self {
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

    /// Source and id of everything that was delivered.
    async fn delivered(&self, queue: &str) -> Vec<(String, String)> {
        let deliveries = drain(&self.node.client(&self.cast.bot), queue).await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let told = deliveries.iter().map(|it| {
            let command: Value = serde_json::from_str(it.message.as_command().unwrap().command.get())
                .expect("a command is JSON");
            (text(&command["source"]), text(&it.message.as_command().unwrap().metadata["id"]))
        });
        told.collect()
    }
}

/// CLM-4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_racing_sends_of_one_id_one_is_dispatched_and_the_rest_are_duplicates() {
    let scene = Scene::set().await;
    let client = scene.node.client(&scene.cast.billing);
    client.authorized().await.expect("the service is authenticated");
    for _ in 0..4 {
        let id = new_id();
        // Each is a message of its own: another signing time, and so another signature.
        let drafts: Vec<_> = (0..50)
            .map(|n| Draft { timestamp: seconds_from_now(n % 25 - 12), ..Draft::new("pay", &id) })
            .collect();
        let answers =
            join_all(drafts.iter().map(|draft| post(&client, draft.sign(&scene.cast.billing)))).await;
        let accepted = answers.iter().filter(|(status, _)| *status == 202).count();
        let duplicates =
            answers.iter().filter(|(status, it)| *status == 200 && it["duplicate"] == true).count();
        assert_eq!((accepted, duplicates), (1, 49), "{answers:?}");
        assert_eq!(scene.delivered("pay-inbox").await, [("acme/billing".to_owned(), id)]);
    }
}

/// CLM-1
#[tokio::test]
async fn the_same_id_from_two_tenants_is_two_messages() {
    let scene = Scene::set().await;
    let draft = Draft::new("pay", &new_id());
    let own = scene.send(&scene.cast.billing, &draft);
    let other = scene.send(&scene.stranger, &draft);
    let (own, other) = tokio::join!(own, other);
    assert_eq!((own.0, other.0), (202, 202));
    let mut delivered = scene.delivered("pay-inbox").await;
    delivered.sort();
    let both = ["acme/billing", "zeta/shop"].map(|source| (source.to_owned(), draft.id.clone()));
    assert_eq!(delivered, both);
}

/// CLM-1
#[tokio::test]
async fn another_service_of_the_tenant_that_uses_a_taken_id_is_in_conflict() {
    let scene = Scene::set().await;
    let draft = Draft::new("pay", &new_id());
    assert_eq!(scene.send(&scene.cast.billing, &draft).await.0, 202);
    for _ in 0..2 {
        let (status, problem) = scene.send(&scene.shop, &draft).await;
        assert_eq!((status, &problem["reason"]), (409, &json!("conflict")));
        assert_eq!((&problem["id"], &problem["accepted"]), (&json!(draft.id), &json!(false)));
        assert!(!problem.to_string().contains("billing"), "it is not told whose the id is: {problem}");
    }
    let again = Draft { timestamp: seconds_from_now(1), ..draft.clone() };
    let (status, answer) = scene.send(&scene.cast.billing, &again).await;
    assert_eq!((status, &answer["duplicate"]), (200, &json!(true)), "the owner's claim stands");
    assert_eq!(scene.delivered("pay-inbox").await.len(), 1);
}

/// CLM-1
#[tokio::test]
async fn one_id_on_two_routes_is_two_claims() {
    let scene = Scene::set().await;
    let route = json!({ "routes": [{
        "target": "acme/bot", "name": "refund", "queue": "refund-inbox", "dead_letter_queue": "bot-dead",
        "claim": { "policy": "strict" },
    }], "grants": [{ "source": "acme/billing", "target": "acme/bot", "name": "refund" }] });
    scene.node.apply(&route).await;
    let id = new_id();
    for (name, status) in [("pay", 202), ("refund", 202), ("pay", 200), ("refund", 200)] {
        let draft = Draft { timestamp: seconds_from_now(status - 201), ..Draft::new(name, &id) };
        assert_eq!(i64::from(scene.send(&scene.cast.billing, &draft).await.0), status, "{name}");
    }
}

/// PIP-2
#[tokio::test]
async fn the_very_same_signed_message_goes_nowhere_twice_on_any_route() {
    let scene = Scene::set().await;
    let client = scene.node.client(&scene.cast.billing);
    for name in ["notify", "pay"] {
        let draft = Draft::new(name, &new_id());
        let captured = draft.sign(&scene.cast.billing);
        assert_eq!(post(&client, captured.clone()).await.0, 202);
        for _ in 0..3 {
            let (status, answer) = post(&client, captured.clone()).await;
            assert_eq!((status, &answer["duplicate"]), (200, &json!(true)), "{name}");
        }
        assert_eq!(scene.delivered(&format!("{name}-inbox")).await.len(), 1, "{name}");
    }
}

/// PIP-2, CLM-3
#[tokio::test]
async fn on_a_route_without_claims_a_freshly_signed_retry_is_delivered_again() {
    let scene = Scene::set().await;
    let draft = Draft::new("notify", &new_id());
    assert_eq!(scene.send(&scene.cast.billing, &draft).await.0, 202);
    let again = Draft { timestamp: seconds_from_now(1), ..draft };
    assert_eq!(scene.send(&scene.cast.billing, &again).await.0, 202);
    assert_eq!(scene.delivered("notify-inbox").await.len(), 2);
}

/// PIP-2
#[tokio::test]
async fn a_message_captured_from_one_tenant_is_no_use_to_another() {
    let scene = Scene::set().await;
    let captured = Draft::new("notify", &new_id()).sign(&scene.cast.billing);
    let (status, problem) = post(&scene.node.client(&scene.stranger), captured).await;
    assert_eq!((status, &problem["reason"]), (401, &json!("hmac_invalid")));
}

/// PIP-4
#[tokio::test]
async fn a_message_refused_for_a_full_queue_leaves_no_claim() {
    let settings = vec![("SNAVIO_STORE_QUEUE_DEPTH_MAX".to_owned(), "1".to_owned())];
    let scene = Scene::launch(&Launch { settings, ..Launch::default() }).await;
    let (first, second) = (Draft::new("pay", &new_id()), Draft::new("pay", &new_id()));
    assert_eq!(scene.send(&scene.cast.billing, &first).await.0, 202);
    let (status, problem) = scene.send(&scene.cast.billing, &second).await;
    assert_eq!((status, &problem["reason"]), (503, &json!("overloaded")));
    assert!(problem["retry_after_ms"].is_u64(), "{problem}");
    assert_eq!(scene.delivered("pay-inbox").await.len(), 1);
    // A queue is not counted for every message; but what comes when there is room again is judged afresh.
    let taken = async || match scene.send(&scene.cast.billing, &second).await.0 {
        503 => None,
        status => Some(status),
    };
    assert_eq!(eventually("there is room", taken).await, 202);
}

/// PIP-4
#[tokio::test]
async fn a_message_refused_for_want_of_a_grant_or_route_leaves_no_claim() {
    let scene = Scene::set().await;
    let draft = Draft::new("lost", &new_id());
    assert_eq!(scene.send(&scene.cast.billing, &draft).await.0, 404);
    let route = json!({ "routes": [{
        "target": "acme/bot", "name": "lost", "queue": "lost-inbox", "dead_letter_queue": "bot-dead",
        "claim": { "policy": "strict" },
    }] });
    scene.node.apply(&route).await;
    assert_eq!(scene.send(&scene.cast.billing, &draft).await.0, 202);
}
