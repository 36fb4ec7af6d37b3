//! What was acknowledged survives the node's death at any moment (QUA-1, PIP-4, PIP-5): the real binary is killed
//! at every write and flush of a script, and at random moments under load, started again, and held to account.

mod actors;
mod planted;
mod random;
mod scripted;
mod seed;
mod tally;

pub(crate) use actors::{Actors, Sent, close};
pub(crate) use seed::Choices;
pub(crate) use tally::{Tally, Totals};

/// Whether the long run was asked for, with `./test --long`.
pub(crate) fn is_long() -> bool {
    std::env::var("TEST_LONG").is_ok_and(|value| value == "1")
}
