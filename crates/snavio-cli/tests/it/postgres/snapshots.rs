//! One of several nodes writes snapshots for all (REG-20, ENG-7).

use std::path::Path;

use crate::engine::Database;
use crate::node::{Launch, Node};
use crate::patience::eventually;
use crate::wire::metrics;

fn launch(folder: &Path) -> Launch {
    Launch::default()
        .set("SNAPSHOT_URL", format!("file://{}", folder.display()))
        .set("SNAPSHOT_ENVIRONMENT", "prod")
        .set("SNAPSHOT_INTERVAL_SECONDS", 1)
        .set("LOG_FILTER", "info")
}

async fn written(node: &Node) -> f64 {
    metrics(node).await.get("snavio_snapshots_written_total").copied().unwrap_or(0.0)
}

/// REG-20, REG-23, ENG-7
#[tokio::test]
async fn second_node_starts_from_snapshot_and_takes_over_writing() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::new();
    let mut one = Node::over(&database, &launch(folder.path()));
    one.cast().await;
    eventually("the first node writes", async || (written(&one).await >= 3.0).then_some(())).await;
    let other = Node::over(&database, &launch(folder.path()));
    assert!(other.said().contains("the registry was read from a snapshot"), "{}", other.said());
    let so_far = written(&one).await;
    eventually("the first node continues", async || (written(&one).await >= so_far + 3.0).then_some(()))
        .await;
    assert_eq!(written(&other).await, 0.0, "one writes for all");
    one.signal("TERM");
    one.wait();
    eventually("the other takes over", async || (written(&other).await > 0.0).then_some(())).await;
}
