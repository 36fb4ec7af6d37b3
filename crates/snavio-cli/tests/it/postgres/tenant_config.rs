//! Two nodes over one database accept a signed request once together, on whichever node it arrives first
//! (REG-11).

use std::sync::Arc;

use crate::engine::Database;
use crate::keys::{SIGNED, asked, signature};
use crate::node::{Launch, Node};
use crate::wire::http;

/// REG-11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signed_request_is_accepted_once_over_both_nodes() {
    let database = Database::new();
    let one = Arc::new(Node::over(&database, &Launch::default()));
    let billing = Arc::new(one.cast().await.billing);
    let other = Arc::new(Node::over(&database, &Launch::default()));
    let token = one.token(&billing).await;
    let ask = async |node: &Node, headers| {
        let request = http(node).get(format!("{}/v1/tenant-config", node.url()));
        asked(request, &token, Some(headers)).await
    };
    let captured = signature(&billing, 0, SIGNED);
    assert_eq!(ask(&one, &captured).await.verdict(), "given");
    assert_eq!(ask(&other, &captured).await.verdict(), "replayed");
    assert_eq!(ask(&one, &captured).await.verdict(), "replayed");

    let asking: Vec<_> = (0..40)
        .map(|n| {
            let node = Arc::clone(if n % 2 == 0 { &one } else { &other });
            let billing = Arc::clone(&billing);
            tokio::spawn(async move { node.client(&billing).tenant_config().await.unwrap() })
        })
        .collect();
    for response in asking {
        assert_eq!(response.await.unwrap()["current"]["hmac_version"], "hmac-v1");
    }
}
