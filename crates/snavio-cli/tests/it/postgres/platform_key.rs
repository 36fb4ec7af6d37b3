//! The replacement of the platform key while a fleet runs (REG-13, ENG-7).

use serde_json::json;

use crate::engine::Database;
use crate::node::{Draft, Launch, Node, new_id, post};
use crate::patience::eventually;
use crate::shell::Shell;

/// REG-13, ENG-7
#[tokio::test]
async fn fleet_rotates_platform_key_once_every_node_has_it() {
    let database = Database::new();
    let plain = Launch::default();
    let mut one = Node::over(&database, &plain);
    let mut two = Node::over(&database, &plain);
    let cast = one.cast().await;
    let folder = Shell::new();
    let made = folder.run("platform-key new next.key --output json").json();
    let with_second_key = Launch::default().set("PLATFORM_SECOND_KEY_FILE", folder.path("next.key"));
    one.stop();
    one.restart(&with_second_key);
    let refused = Shell::at(&one).run("platform-key rotate");
    let address = two.url().trim_start_matches("http://");
    assert!(refused.code == Some(1) && refused.err.contains(address), "{refused:?}");
    two.stop();
    two.restart(&with_second_key);
    let rotated = Shell::at(&one).run("platform-key rotate --output json");
    assert_eq!(rotated.json()["platform_key"], made["fingerprint"], "{rotated:?}");
    let shown = || Shell::at(&two).run("platform-key show --output json").json();
    eventually("the other node follows", async || {
        (shown()["platform_key"] == made["fingerprint"]).then_some(())
    })
    .await;
    two.apply(&json!({ "services": [{ "name": "acme/later" }] })).await;
    let sealed = shown()["sealed_under"].as_object().unwrap().clone();
    assert_eq!(
        sealed.keys().collect::<Vec<_>>(),
        [made["fingerprint"].as_str().unwrap()],
        "later entries are encrypted under the new key too"
    );
    for node in [&one, &two] {
        let billing = node.client(&cast.billing);
        assert_eq!(post(&billing, Draft::new("notify", &new_id()).sign(&cast.billing)).await.0, 202);
    }
}
