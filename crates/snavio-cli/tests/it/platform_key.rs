//! The platform key: from a file or the environment, and its replacement by another key (REG-13).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::Credentials;

use crate::node::{Draft, Launch, Node, new_id, post};
use crate::patience::eventually;
use crate::shell::Shell;
use crate::wire::{Answered, http};

async fn assert_service_works(node: &Node, credentials: &Credentials) {
    let client = node.client(credentials);
    assert_eq!(post(&client, Draft::new("notify", &new_id()).sign(credentials)).await.0, 202);
    let config = client.tenant_config().await.expect("the service is who it says");
    assert_eq!(config["current"]["hmac_secret"], credentials.hmac_secret);
}

fn launch_with(name: &str, file: &str) -> Launch {
    Launch::default().set(name, file)
}

/// A registry with an adapter of `acme/billing` and a subscription to its events.
fn telegram_adapter() -> Value {
    let (name, secrets) = ("telegram.update", ["the bot's secret"]);
    json!({
        "event_types": [{ "owner": "acme/billing", "name": name }],
        "adapters": [{ "preset": "telegram", "name": "bot", "service": "acme/billing", "secrets": secrets }],
        "subscriptions": [{
            "target": "acme/bot", "events_of": "acme/billing", "name": name, "queue": "updates", "dead_letter_queue": "bot-dead",
        }],
    })
}

/// The status of the answer to a webhook that carries this secret.
async fn post_update(node: &Node, secret: &str) -> u16 {
    let request = http(node).post(format!("{}/v1/hooks/acme/bot", node.url()));
    let request = request.header("x-telegram-bot-api-secret-token", secret).body(r#"{"update_id":7}"#);
    Answered::to(request).await.status
}

/// REG-13
#[tokio::test]
async fn replaced_platform_key_keeps_tokens_keys_and_secrets_working() {
    let mut node = Node::start();
    let cast = node.cast().await;
    assert_service_works(&node, &cast.billing).await;
    // Two more secrets: the key that signs pushes, and the key before it.
    let hooked = json!({ "routes": [{
        "target": "acme/bot", "name": "hooked", "queue": "hooks", "dead_letter_queue": "bot-dead",
        "processing": { "kind": "push", "url": "https://hooks.example/" },
    }] });
    node.apply(&hooked).await;
    assert_eq!(Shell::at(&node).run("push rotate acme/bot:hooked").code, Some(0));
    node.apply(&telegram_adapter()).await;
    let folder = Shell::new();
    let made = folder.run("platform-key new next.key --output json").json();
    let (file, fingerprint) = (folder.path("next.key"), made["fingerprint"].as_str().unwrap().to_owned());
    assert_eq!(folder.run("platform-key new next.key").code, Some(1), "nothing is overwritten");
    let lonely = Shell::at(&node).run("platform-key rotate");
    assert!(lonely.code == Some(1) && lonely.err.contains("platform.second_key_file"), "{lonely:?}");
    node.stop();

    node.restart(&launch_with("PLATFORM_SECOND_KEY_FILE", &file));
    assert_service_works(&node, &cast.billing).await;
    let before = node.token(&cast.billing).await;
    let rotated = Shell::at(&node).run("platform-key rotate --why exercise --output json").json();
    assert_eq!(
        (&rotated["platform_key"], rotated["known"].as_array().unwrap().len()),
        (&made["fingerprint"], 2)
    );
    let sealed = rotated["sealed_under"].as_object().unwrap();
    assert_eq!(sealed.keys().collect::<Vec<_>>(), [&fingerprint], "everything is sealed anew");
    assert_eq!(sealed[&fingerprint], 5, "two services' keys, a push's two secrets and that of an adapter");
    assert_service_works(&node, &cast.billing).await;
    let still = node.api().with_token(&before).call(Method::GET, "/v1/tenant-config", None).await;
    assert!(still.is_ok(), "a token from before the rotation keeps its validity: {still:?}");
    node.stop();

    // The node refuses to start with the first key, and with a foreign key alone.
    node.try_restart(&Launch::default());
    assert!(!node.is_serving() && node.said().contains("another platform key"), "{}", node.said());
    folder.run("platform-key new stranger.key");
    node.try_restart(&launch_with("PLATFORM_KEY_FILE", &folder.path("stranger.key")));
    assert!(!node.is_serving() && node.said().contains("another platform key"), "{}", node.said());
    node.restart(&launch_with("PLATFORM_KEY_FILE", &file));
    for credentials in [&cast.billing, &cast.bot] {
        let token = node.token(credentials).await;
        assert!(!token.is_empty(), "client secrets are known as before");
    }
    assert_service_works(&node, &cast.billing).await;
    assert_eq!(post_update(&node, "the bot's secret").await, 202, "a provider's secret is readable too");
    assert_eq!(post_update(&node, "another secret").await, 401);
}

/// REG-13: no entry of a tenant's registry prevents the replacement of the key.
#[tokio::test]
async fn adapter_that_registry_would_refuse_is_resealed() {
    let folder = Shell::new();
    let made = folder.run("platform-key new next.key --output json").json();
    let node = Node::launch(&launch_with("PLATFORM_SECOND_KEY_FILE", &folder.path("next.key")));
    node.cast().await;
    node.apply(&telegram_adapter()).await;
    let signing = json!({ "services": [{ "name": "acme/billing", "signed_events": true }] });
    node.apply(&signing).await;
    let refused = node.operator().call(Method::POST, "/v1/registry/apply", Some(&telegram_adapter())).await;
    assert!(format!("{refused:?}").contains("must be signed"), "{refused:?}");
    let rotated = Shell::at(&node).run("platform-key rotate --why exercise --output json").json();
    assert_eq!(rotated["platform_key"], made["fingerprint"], "{rotated}");
    let sealed = rotated["sealed_under"].as_object().unwrap();
    assert_eq!(sealed.keys().collect::<Vec<_>>(), [made["fingerprint"].as_str().unwrap()], "{rotated}");
}

/// REG-13
#[tokio::test]
async fn platform_key_comes_from_environment() {
    let [key, other_key] = [1, 2].map(|byte| STANDARD.encode([byte; 32]));
    let launch = launch_with("PLATFORM_KEY_FILE", "").set("PLATFORM_KEY", key);
    let mut node = Node::launch(&launch);
    let cast = node.cast().await;
    assert_service_works(&node, &cast.billing).await;
    assert!(!node.secret("platform.key").exists(), "no file is made");
    node.stop();
    node.try_restart(&launch_with("PLATFORM_KEY_FILE", "").set("PLATFORM_KEY", &other_key));
    assert!(!node.is_serving() && node.said().contains("another platform key"), "{}", node.said());
    assert!(!node.said().contains(&other_key));
    node.restart(&launch);
    assert_service_works(&node, &cast.billing).await;
}

/// REG-13, REG-21: a node with only the new key reads the snapshots of a node that ran during the rotation.
#[tokio::test]
async fn running_writer_signs_snapshots_with_current_platform_key() {
    let folder = Shell::new();
    folder.run("platform-key new next.key");
    let snapshots = tempfile::tempdir().unwrap();
    let writing = |launch: Launch| {
        let launch = launch.set("SNAPSHOT_URL", format!("file://{}", snapshots.path().display()));
        let launch = launch.set("SNAPSHOT_ENVIRONMENT", "test").set("SNAPSHOT_INTERVAL_SECONDS", 1);
        launch.set("LOG_FILTER", "info")
    };
    let published = || std::fs::read_to_string(snapshots.path().join("registry/latest.json")).ok();
    let mut node = Node::launch(&writing(launch_with("PLATFORM_SECOND_KEY_FILE", &folder.path("next.key"))));
    let cast = node.cast().await;
    eventually("a snapshot is written", async || published()).await;
    let rotated = Shell::at(&node).run("platform-key rotate --why exercise");
    assert_eq!(rotated.code, Some(0), "{rotated:?}");
    // The snapshot that was being written during the rotation, and the next one.
    for _ in 0..2 {
        let before = published();
        eventually("the snapshot is renewed", async || (published() != before).then_some(())).await;
    }
    node.kill();
    let before = node.said();
    assert!(!before.contains("a snapshot is refused"), "the writer accepts its earlier snapshot: {before}");

    node.restart(&writing(launch_with("PLATFORM_KEY_FILE", &folder.path("next.key"))));
    let log = node.said()[before.len()..].to_owned();
    assert!(log.contains("the registry was read from a snapshot"), "{log}");
    assert_service_works(&node, &cast.billing).await;
}
