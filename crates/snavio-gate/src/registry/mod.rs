//! The registry in memory: how it is loaded, kept up to date, aged and written as a snapshot.

pub(crate) mod currency;
pub(crate) mod loaded;
pub(crate) mod past;
pub(crate) mod polls;
pub(crate) mod refreshing;
pub(crate) mod service_notes;
pub(crate) mod snapshot;
