//! The nouns of Snavio and every decision about them.
//!
//! Nothing here does I/O, awaits, reads a clock or asks for randomness: time, ids and random bytes are
//! arguments. So every judgement can be tested as a table, and the simulation uses the very same code.

pub mod claim;
pub mod delivery;
pub mod fair;
pub mod id;
pub mod limits;
pub mod message;
pub mod name;
pub mod recent;
pub mod refusal;
pub mod registry;
pub mod settle;
pub mod telemetry;
pub mod time;

pub mod command;
pub mod hash;
pub mod json;
pub mod payload;
pub mod signing;
pub mod trace;
pub mod webhook;
