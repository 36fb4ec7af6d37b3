//! Injected faults (QUA-1): a disk that fails, fills up or is slow, a second process, a stop signal, and a
//! clock that was set back. Every test checks that its fault occurred.

mod clock;
mod disk_full;
mod flush;
mod log_length;
mod process;

use std::sync::{Arc, Mutex};

use reqwest::Method;

use crate::embedded::crash::{Actors, Tally, close};
use crate::node::{Cast, Launch, Node};

/// Starts the node again and checks every promise in the tally.
async fn account_after_restart(node: &mut Node, cast: &Cast, tally: Arc<Mutex<Tally>>) {
    node.restart(&Launch::default());
    Actors::new(node, cast, &tally).account().await;
    let totals = close(tally);
    totals.assert_kept();
    assert!(totals.acknowledged > 0, "nothing was acknowledged before the fault: {totals}");
}

/// The status of the node, as the operator sees it.
async fn status(node: &Node) -> serde_json::Value {
    node.operator().call(Method::GET, "/v1/status", None).await.expect("the node answers")
}
