//! Sinks: outside destinations that the gateway calls, one file for each kind, and the guard that every
//! outgoing call goes through.
//!
//! A node makes outgoing calls only in this crate. The crate depends on the model, knows no store, and
//! decides nothing about a message. It returns the outcome of a call as a
//! [`Called`](snavio_model::delivery::processing::Called), and the caller decides the rest.

mod address;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod guard;
mod http;
mod http_processor;
mod http_push;
mod lookups;
mod parcel;
mod sink;

pub use address::Network;
pub use http_processor::HttpProcessor;
pub use http_push::HttpPush;
pub use sink::{Call, Sink};
