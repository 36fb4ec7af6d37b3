//! The pipeline: shield, fast, slow, and the tasks that run beside it.
//!
//! The path of a message: [`Gate::accept`] takes an [`Arrival`], `shield` makes it authentic, `fast` permits it
//! from memory or says why memory does not suffice, `slow` settles it in one durable commit. A stage eats the
//! type that the one before it yields, and never calls an earlier one; only `gate.rs`, and `dry_run.rs` which walks the same way, name two of them.

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
