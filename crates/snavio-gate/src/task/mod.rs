//! Background tasks: they take no input, and may run at any time and twice.

pub(crate) mod legacy_keys;
pub(crate) mod revocations;
pub(crate) mod rotator;
pub(crate) mod sealer;
pub(crate) mod sweeper;
