//! The pipeline: the stages shield, fast and settle, and the background tasks.
//!
//! [`Gate::accept`] takes an [`Arrival`]. `shield` authenticates it, `fast` permits it from memory or says
//! why it must escalate, and `settle` settles it in one durable commit. Each stage consumes the type that the
//! previous one returns. A stage never calls another stage: only `gate.rs`, and `dry_run.rs` which takes the
//! same path, name two of them.

mod archive;
pub(crate) mod commit;
pub(crate) mod deliver;
mod gate;
pub(crate) mod outcome;
pub(crate) mod pipeline;
pub(crate) mod registry;
pub(crate) mod task;

pub use crate::deliver::begin::{Beginning, Begun};
pub use crate::deliver::courier::{Attempt, Processor};
pub use crate::deliver::targets::TargetState;
pub use crate::outcome::answer::{Answer, Reached, Standing, Verdict};
pub use crate::outcome::follow::{Followed, Wait};
pub use crate::pipeline::dry_run::{Step, StepVerdict};
pub use crate::pipeline::shield::{Arrival, Form, Vouched};
pub use crate::pipeline::vouching::{UnverifiedWebhook, VerifiedWebhook};
pub use crate::registry::loaded::Loaded;
pub use crate::registry::service_notes::ServiceNote;
pub use crate::registry::snapshot::{
    SnapshotKeys, Snapshots, TROUBLE_CAUSES as SNAPSHOT_TROUBLE_CAUSES, Trouble as SnapshotTrouble,
};
pub use archive::{Archive, Erased, Round as ArchiveRound, Said, Trouble as ArchiveTrouble};
pub use gate::{Gate, Settings};
