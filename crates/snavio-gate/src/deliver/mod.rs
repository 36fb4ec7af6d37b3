//! Delivery: the courier calls processors and receivers of pushes; workers begin claims.

pub(crate) mod begin;
pub(crate) mod courier;
pub(crate) mod disabling;
pub(crate) mod targets;
