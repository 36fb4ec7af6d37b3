//! The pipeline: the stages shield, fast and slow, and the background tasks.
//!
//! [`Gate::accept`] takes an [`Arrival`]. `shield` authenticates it, `fast` permits it from memory or says
//! why it must escalate, and `slow` settles it in one durable commit. Each stage consumes the type that the
//! previous one returns. A stage never calls another stage: only `gate.rs`, and `dry_run.rs` which takes the
//! same path, name two of them.

mod answer;
mod archive;
mod begin;
mod breadth;
mod committer;
mod courier;
mod currency;
mod disabling;
mod dry_run;
mod failing;
mod fast;
mod follow;
mod gate;
mod gathering;
mod legacy_keys;
mod loaded;
mod memory;
mod meters;
mod past;
mod polls;
mod refreshing;
mod revocations;
mod rotator;
mod sealer;
mod service_notes;
mod shield;
mod slow;
mod snapshot;
mod sweeper;
mod targets;
mod ticket;
mod vouching;
mod wrong_signatures;

pub use answer::{Answer, Reached, Standing, Verdict};
pub use archive::{Archive, Erased, Round as ArchiveRound, Said, Trouble as ArchiveTrouble};
pub use begin::{Beginning, Begun};
pub use courier::{Attempt, Processor};
pub use dry_run::{Step, StepVerdict};
pub use follow::{Followed, Wait};
pub use gate::{Gate, Settings};
pub use loaded::Loaded;
pub use service_notes::ServiceNote;
pub use shield::{Arrival, Form, Vouched};
pub use snapshot::{
    SnapshotKeys, Snapshots, TROUBLE_CAUSES as SNAPSHOT_TROUBLE_CAUSES, Trouble as SnapshotTrouble,
};
pub use targets::TargetState;
pub use vouching::{UnverifiedWebhook, VerifiedWebhook};
