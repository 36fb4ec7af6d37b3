//! The pipeline: shield, fast, slow, and the tasks that run beside it.
//!
//! The path of a message: [`Gate::accept`] takes an [`Arrival`], `shield` makes it authentic, `fast` permits it
//! from memory or says why memory does not suffice, `slow` settles it in one durable commit. A stage eats the
//! type that the one before it yields, and never calls an earlier one; only `gate.rs` names two of them.

mod committer;
mod currency;
mod fast;
mod gate;
mod gathering;
mod legacy_keys;
mod meters;
mod polls;
mod rotator;
mod shield;
mod slow;
mod sweeper;
mod ticket;

pub use gate::{Answer, Gate, Settings, Verdict};
pub use shield::Arrival;
