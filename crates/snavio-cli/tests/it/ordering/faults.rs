//! Faults of the store while it reads or writes the state of entities.

use serde_json::json;

use super::{BuildsFixture, ids, order, status_and_reason};
use crate::engine::Engine;
use crate::node::Launch;
use crate::patience::{eventually, poll};
use crate::strace::{Attached, Strace, WRITES};

/// A fault of the store.
enum Fault {
    Writes(Strace, Attached),
    Table {
        /// Failed batches in the log before the fault.
        failed_before: usize,
    },
}

fn failed_batches(builds: &BuildsFixture) -> usize {
    builds.node.said().matches("batch not settled").count()
}

impl Fault {
    fn begin(builds: &BuildsFixture) -> Self {
        match builds.node.engine() {
            Engine::Embedded => {
                let trace = builds.node.folder().join("trace");
                let strace = Strace::of(WRITES, trace).inject(WRITES, "error=EIO");
                let attached = strace.attach(&builds.node, "snavio-writer");
                Self::Writes(strace, attached)
            }
            Engine::Postgres(database) => {
                database.ask("ALTER TABLE entity RENAME TO away");
                Self::Table { failed_before: failed_batches(builds) }
            }
        }
    }

    fn end(self, builds: &BuildsFixture) {
        match self {
            Self::Writes(strace, attached) => {
                assert!(strace.fired() > 0);
                drop(attached);
            }
            Self::Table { failed_before } => {
                // The log counts repeated lines in one line, a second later.
                poll("the log says that the store failed", || {
                    (failed_batches(builds) > failed_before).then_some(())
                });
                builds.node.engine().database().ask("ALTER TABLE away RENAME TO entity");
            }
        }
    }
}

/// ORD-2, QUA-4: a store error in the story of sequence validation. The gateway accepts nothing unjudged and
/// moves no number, and it judges a refused message that comes again like a new one.
#[tokio::test(flavor = "multi_thread")]
async fn store_failure_accepts_nothing_and_moves_no_number() {
    let builds = BuildsFixture::start(Launch::default()).await;
    for mode in ["lenient", "skip", "strict", "reorder"] {
        let settings = order(json!({ "mode": mode }));
        let (status, answer) = builds.subscribe("deploy", "build", &settings, json!({})).await;
        assert!(matches!(status, 200 | 201), "{answer}");
        assert_eq!(builds.send_build(mode, 1).await.0, 202);
        let fault = Fault::begin(&builds);
        let refused = builds.send_build(mode, 3).await;
        assert_eq!(status_and_reason(&refused), (503, "unavailable"), "{mode}: {}", refused.1);
        assert_eq!(refused.1["accepted"], json!(false));
        fault.end(&builds);
        // The refused 3 left no trace: 2 is not late.
        let two = eventually("the store works again", async || {
            Some(builds.send_build(mode, 2).await).filter(|answer| answer.0 != 503)
        })
        .await;
        assert_eq!((two.0, &two.1["skipped"]), (202, &json!(null)), "{mode}: {}", two.1);
        let three = builds.send_build(mode, 3).await;
        assert_eq!((three.0, &three.1["waiting"]), (202, &json!(null)), "{mode}: the refusal left no claim");
        let mut received_ids = Vec::new();
        eventually("all three come", async || {
            let received = builds.receive("deploy").await;
            received_ids.extend(ids(&received));
            builds.acknowledge("deploy", &received).await;
            (received_ids.len() >= 3).then_some(())
        })
        .await;
        assert_eq!(received_ids, [1, 2, 3].map(|number| format!("{mode}-{number}")));
    }
}
