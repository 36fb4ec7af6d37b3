//! The store cannot read or keep what is known of an entity.

use serde_json::json;

use super::{Builds, ids, order, reason};
use crate::engine::Engine;
use crate::node::Launch;
use crate::patience::{eventually, poll};
use crate::strace::{Attached, Strace, WRITES};

/// What keeps the store from working.
enum Fault {
    Writes(Strace, Attached),
    Table {
        /// How many batches had failed before.
        told: usize,
    },
}

fn failed_batches(builds: &Builds) -> usize {
    builds.node.said().matches("batch not settled").count()
}

impl Fault {
    fn begin(builds: &Builds) -> Self {
        match builds.node.engine() {
            Engine::Embedded => {
                let trace = builds.node.folder().join("trace");
                let strace = Strace::of(WRITES, trace).inject(WRITES, "error=EIO");
                let attached = strace.attach(&builds.node, "snavio-writer");
                Self::Writes(strace, attached)
            }
            Engine::Postgres(database) => {
                database.ask("ALTER TABLE entity RENAME TO away");
                Self::Table { told: failed_batches(builds) }
            }
        }
    }

    fn end(self, builds: &Builds) {
        match self {
            Self::Writes(strace, attached) => {
                assert!(strace.fired() > 0);
                drop(attached);
            }
            Self::Table { told } => {
                // Repeated lines are counted in one line, a second later.
                poll("the log says that the store failed", || (failed_batches(builds) > told).then_some(()));
                builds.node.engine().database().ask("ALTER TABLE away RENAME TO entity");
            }
        }
    }
}

/// ORD-2, QUA-4: the sequence-validation story's store error. Nothing is let through unjudged, nothing moves, and what was
/// refused is taken as if it came for the first time.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_lets_nothing_through_and_moves_no_number() {
    let builds = Builds::set(Launch::default()).await;
    for mode in ["lenient", "skip", "strict", "reorder"] {
        let of = order(json!({ "mode": mode }));
        let (status, answer) = builds.subscribe("deploy", "build", &of, json!({})).await;
        assert!(matches!(status, 200 | 201), "{answer}");
        assert_eq!(builds.sent(mode, 1).await.0, 202);
        let fault = Fault::begin(&builds);
        let refused = builds.sent(mode, 3).await;
        assert_eq!(reason(&refused), (503, "unavailable"), "{mode}: {}", refused.1);
        assert_eq!(refused.1["accepted"], json!(false));
        fault.end(&builds);
        // The refused three was never there: two is not late.
        let two = eventually("the store works again", async || {
            Some(builds.sent(mode, 2).await).filter(|answer| answer.0 != 503)
        })
        .await;
        assert_eq!((two.0, &two.1["skipped"]), (202, &json!(null)), "{mode}: {}", two.1);
        let three = builds.sent(mode, 3).await;
        assert_eq!((three.0, &three.1["waiting"]), (202, &json!(null)), "{mode}: it left no claim");
        let mut came = Vec::new();
        eventually("all three come", async || {
            let received = builds.receive("deploy").await;
            came.extend(ids(&received));
            builds.end("deploy", &received).await;
            (came.len() >= 3).then_some(())
        })
        .await;
        assert_eq!(came, [1, 2, 3].map(|number| format!("{mode}-{number}")));
    }
}
