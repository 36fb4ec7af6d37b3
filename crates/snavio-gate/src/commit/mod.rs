//! The committer: it settles waiting messages together, one commit for each batch.

pub(crate) mod committer;
pub(crate) mod ticket;
