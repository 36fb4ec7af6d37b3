//! The nouns of Snavio and every decision about them.
//!
//! Nothing here does I/O, awaits, reads a clock or asks for randomness: time, ids and random bytes are
//! arguments. So every judgement can be tested as a table or a property, and both engines use the very same code.

pub mod adapter;
pub mod archive;
pub mod bounds;
pub mod claim;
pub mod cloudevents;
pub mod delivery;
pub mod hash;
pub mod id;
pub mod identity;
pub mod json;
pub mod limit;
pub mod message;
pub mod name;
pub mod nearest;
pub mod ordering;
pub mod percent;
pub mod refusal;
pub mod registry;
pub mod settle;
pub mod signature;
pub mod telemetry;
pub mod time;
