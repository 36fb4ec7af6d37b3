//! Outcomes: the answer of each message, reports on its work, metrics and telemetry.

pub(crate) mod answer;
pub(crate) mod failing;
pub(crate) mod follow;
pub(crate) mod gathering;
pub(crate) mod meters;
