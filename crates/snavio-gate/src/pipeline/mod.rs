//! The path of a message: shield, fast, settle.

pub(crate) mod dry_run;
pub(crate) mod fan_out;
pub(crate) mod fast;
pub(crate) mod memory;
pub(crate) mod settle;
pub(crate) mod shield;
pub(crate) mod vouching;
pub(crate) mod wrong_signatures;
