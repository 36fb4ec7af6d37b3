//! Acknowledged messages survive the node's death at any moment (QUA-1, PIP-4, PIP-5). The tests kill the
//! real binary at every write and flush of a script, and at random moments under load. They start it again
//! and check a tally of all promises.

mod actors;
mod planted;
mod random;
mod scripted;
mod seed;
mod tally;

pub(crate) use actors::{Actors, Sent, close};
pub(crate) use seed::Choices;
pub(crate) use tally::{Tally, Totals};

/// Whether the long run was requested, with `./test --long`.
pub(crate) fn is_long() -> bool {
    std::env::var("TEST_LONG").is_ok_and(|value| value == "1")
}
