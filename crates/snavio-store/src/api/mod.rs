//! The interfaces of a store, one file each.

pub(crate) mod archive;
pub(crate) mod claims;
pub(crate) mod entities;
pub(crate) mod fleet;
