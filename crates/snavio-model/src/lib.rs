//! The domain types of Snavio and every decision about them.
//!
//! Nothing in this crate does I/O, awaits, reads a clock or generates randomness: time, ids and random bytes
//! are arguments. So tests run every judgement as a table or a property, and both storage engines share the
//! code.

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
