//! Stored records: their fields, check values and codecs, the same for each engine.

pub(crate) mod check_value;
pub(crate) mod lease;
