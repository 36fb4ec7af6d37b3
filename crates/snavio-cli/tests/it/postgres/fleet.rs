//! Several nodes over one database keep the promises of one node (ENG-7).

use std::time::Duration;

use reqwest::Method;
use serde_json::Value;
use snavio_sdk::Client;

use crate::audit::sealed;
use crate::engine::Database;
use crate::health::readiness;
use crate::node::{Draft, Launch, Node, new_id, post};
use crate::patience::eventually;
use crate::shell::Shell;

/// Starts a node over a new database, on either engine under test.
fn start_first() -> Node {
    Node::over(&Database::new(), &Launch::default())
}

/// Starts another node over the same database, with the same secrets.
fn start_beside(node: &Node) -> Node {
    Node::over(node.engine().database(), &Launch::default())
}

async fn status(node: &Node) -> Value {
    node.get("/v1/status").await
}

async fn addresses(node: &Node) -> Vec<String> {
    let status = status(node).await;
    let nodes = status["nodes"].as_array().expect("nodes are listed");
    nodes.iter().map(|node| node["address"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The address of the node that runs the expiry sweep.
async fn sweeper(node: &Node) -> Option<String> {
    let status = status(node).await;
    let mut nodes = status["nodes"].as_array().expect("nodes are listed").iter();
    let sweeper =
        nodes.find(|node| node["leads"].as_array().is_some_and(|tasks| tasks.contains(&"sweeper".into())));
    sweeper.and_then(|node| node["address"].as_str().map(str::to_owned))
}

fn address(node: &Node) -> &str {
    node.url().trim_start_matches("http://")
}

/// ENG-7, REG-18
#[tokio::test]
async fn entries_of_one_node_reach_the_other() {
    let one = start_first();
    let other = start_beside(&one);
    one.cast().await;
    eventually("the other has the routes", async || {
        let page = other.get("/v1/registry?kind=route").await;
        page["items"].as_array().is_some_and(|entries| entries.len() == 2).then_some(())
    })
    .await;
    let nodes = eventually("no node lags", async || {
        let status = status(&other).await;
        let lags = status["nodes"].as_array()?.iter().map(|node| node["registry_lag"].as_i64());
        lags.clone().all(|lag| lag == Some(0)).then(|| lags.count())
    });
    assert_eq!(nodes.await, 2);
}

/// ENG-7, REG-18
#[tokio::test]
async fn node_that_cannot_read_registry_becomes_not_ready() {
    let node = start_first();
    let cast = node.cast().await;
    let billing = node.client(&cast.billing);
    assert_eq!(post(&billing, Draft::new("pay", &new_id()).sign(&cast.billing)).await.0, 202);
    // A change by a newer version that has more kinds of entries.
    let change = "UPDATE registry_version SET version = version + 1; \
         INSERT INTO registry_change (version, at, who, why, kind, name, before, after) \
         SELECT version, 0, 'operator', 'newer', 'mood', 'acme', NULL, '{}' FROM registry_version";
    node.engine().database().ask(change);
    let (status, document) = eventually("the node is not ready", async || {
        let (status, document) = readiness(&node).await;
        (status != 200).then_some((status, document))
    })
    .await;
    assert_eq!((status, &document["checks"]["store"]), (503, &"ok".into()), "{document}");
    assert!(document["checks"]["registry"].to_string().contains("upgrade this node"), "{document}");
    eventually("the node accepts no messages", async || {
        let (status, answer) = post(&billing, Draft::new("pay", &new_id()).sign(&cast.billing)).await;
        (status == 503).then(|| assert_eq!(answer["reason"], "unavailable"))
    })
    .await;
}

/// ENG-7, DLV-2, CLM-4
#[tokio::test]
async fn message_of_one_node_is_received_from_other_once() {
    let one = start_first();
    let cast = one.cast().await;
    let other = start_beside(&one);
    let draft = Draft::new("pay", &new_id());
    let waiting = {
        let bot = other.client(&cast.bot);
        let wait = async move { bot.receive("pay-inbox", 10, MINUTE, Duration::from_secs(20)).await };
        tokio::spawn(wait)
    };
    assert_eq!(post(&one.client(&cast.billing), draft.sign(&cast.billing)).await.0, 202);
    let received = waiting.await.unwrap().expect("the other node returns deliveries");
    let ids: Vec<_> = received.iter().map(|delivery| delivery.message.id()).collect();
    assert_eq!(ids, [Some(draft.id.as_str())]);

    let (status, answer) = post(&other.client(&cast.billing), draft.sign(&cast.billing)).await;
    assert_eq!((status, &answer["duplicate"]), (200, &true.into()), "both nodes know the id");
    let bot = one.client(&cast.bot);
    assert!(receive(&bot).await.is_empty(), "the delivery is leased on both nodes");
    bot.acknowledge("pay-inbox", &[received[0].receipt()])
        .await
        .expect("a receipt of one node is valid on the other");
}

const MINUTE: Duration = Duration::from_secs(60);

async fn receive(client: &Client) -> Vec<snavio_sdk::Delivery> {
    client.receive("pay-inbox", 10, MINUTE, Duration::ZERO).await.expect("the queue can be received from")
}

/// ENG-7, REG-6
#[tokio::test]
async fn token_of_one_node_is_valid_on_other() {
    let one = start_first();
    let cast = one.cast().await;
    let other = start_beside(&one);
    let token = one.token(&cast.bot).await;
    let asked = other.api().with_token(&token).call(Method::GET, "/v1/queues/pay-inbox", None).await;
    assert_eq!(asked.expect("the token is good")["depth"], 0);
    assert_eq!(one.operator_token(), other.operator_token());
}

/// ENG-7, REG-13
#[tokio::test]
async fn node_with_another_platform_key_does_not_start() {
    let one = start_first();
    let key = |node: &Node| std::fs::read(node.secret("platform.key")).unwrap();
    // A new key would decrypt everything as long as the registry is empty. The store remembers its platform
    // key.
    for registered in [false, true] {
        if registered {
            one.cast().await;
        }
        let other = start_first();
        let strange = other.engine().database().moved_to(&one.engine().database().url);
        let stranger = Node::refused(&strange, &Launch::default());
        assert_ne!(key(&stranger), key(&one));
        let said = stranger.said();
        assert!(said.contains("another platform key") && said.contains("platform.key"), "{said}");
    }
    assert_eq!(addresses(&one).await, [address(&one)], "the refused node was never listed");
}

/// ENG-7, TEL-9
#[tokio::test]
async fn stopped_node_is_unlisted_and_its_tasks_move() {
    let mut one = start_first();
    let other = start_beside(&one);
    for node in [&one, &other] {
        assert_eq!(addresses(node).await, [address(&one), address(&other)]);
        let leading = eventually("one of them sweeps", async || sweeper(node).await).await;
        assert_eq!(leading, address(&one), "the first node stays the leader");
    }
    for node in status(&other).await["nodes"].as_array().unwrap() {
        assert_eq!((&node["version"], &node["draining"]), (&env!("CARGO_PKG_VERSION").into(), &false.into()));
        assert!(node["silent_seconds"].as_f64().is_some_and(|silent| silent < 20.0), "{node}");
        for member in ["registry_version", "registry_lag", "waiting"] {
            assert!(node[member].is_number(), "{member}: {node}");
        }
    }
    one.stop();
    assert_eq!(addresses(&other).await, [address(&other)]);
    eventually("the other sweeps", async || {
        sweeper(&other).await.filter(|leading| leading == address(&other))
    })
    .await;
}

/// ENG-7, command line (10-interfaces)
#[test]
fn command_line_shows_the_nodes() {
    let one = start_first();
    let other = start_beside(&one);
    let shell = Shell::at(&other);
    let document = shell.run("status --output json").json();
    assert_eq!(
        (&document["store"]["engine"], document["nodes"].as_array().map(Vec::len)),
        (&"postgres".into(), Some(2))
    );
    let shown = shell.run("status");
    assert_eq!(shown.code, Some(0), "{shown:?}");
    for word in ["store.engine: postgres", "registry lag", "leads", address(&one), address(&other)] {
        assert!(shown.out.contains(word), "{word}: {}", shown.out);
    }
}

/// PIP-12
#[tokio::test]
async fn database_without_flushes_needs_relaxed_mode() {
    let database = Database::new();
    let database = database.moved_to(format!("{}?options=-csynchronous_commit%3Doff", database.url));
    let mut node = Node::refused(&database, &Launch::default());
    assert!(node.said().contains("synchronous_commit is off"), "{}", node.said());
    node.restart(&Launch::default().set("STORE_RELAXED", true));
    assert_eq!(readiness(&node).await.1["durability"], "relaxed");
    let cast = node.cast().await;
    let message = Draft::new("notify", &new_id()).sign(&cast.billing);
    assert_eq!(post(&node.client(&cast.billing), message).await.1["durability"], "relaxed");
}

/// REG-5, ENG-7
#[tokio::test]
async fn two_nodes_write_one_seal_chain_over_a_kill() {
    let one = start_first();
    let mut other = start_beside(&one);
    let file = |node: &str, n: usize| serde_json::json!({ "tenants": [{ "name": format!("{node}-{n}") }] });
    for n in 0..10 {
        let (a, b) = (file("one", n), file("other", n));
        tokio::join!(one.apply(&a), other.apply(&b));
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let chain = sealed(&one).await;
    assert!(chain["seals"].as_i64() > Some(1), "{chain}");
    assert_eq!(Shell::at(&other).run("audit verify").code, Some(0));
    other.apply(&file("last", 0)).await;
    other.kill();
    let after = sealed(&one).await;
    assert_eq!(after["sealed_version"], 21, "{after}");
    let head = chain["head"].as_str().unwrap();
    let found = Shell::at(&one).run(&format!("audit verify --head {head}"));
    assert_eq!(found.code, Some(0), "{found:?}");
}
