//! The domain types of Snavio and every decision about them.
//!
//! Nothing in this crate does I/O, awaits, reads a clock or generates randomness: time, ids and random bytes
//! are arguments. So tests run every judgement as a table or a property, and both storage engines share the
//! code.

pub mod adapter;
pub mod age;
pub mod archive;
pub mod assertion;
pub mod breaker;
pub mod claim;
pub mod cloudevents;
pub mod command;
pub mod conflict;
pub mod delivery;
pub mod ed25519;
pub mod event;
pub mod fair;
mod form;
pub mod hash;
pub mod id;
pub mod json;
pub mod limits;
pub mod lines;
pub mod log_limiter;
pub mod message;
pub mod name;
pub mod nearest;
pub mod order;
pub mod payload;
pub mod percent;
pub mod permission;
pub mod processing;
pub mod recent;
pub mod refusal;
pub mod registry;
pub mod seldom;
pub mod settle;
pub mod share;
pub mod signed_request;
pub mod signing;
pub mod snapshot;
pub mod telemetry;
pub mod throttle;
pub mod time;
pub mod token;
pub mod trace;
pub mod webhook;
